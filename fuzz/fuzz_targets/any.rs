//! The target that `WEIR_FUZZ_TARGET` names, under libFuzzer.

#![no_main]

use std::sync::LazyLock;

static TARGET: LazyLock<Box<dyn Fn(&[u8]) + Send + Sync>> = LazyLock::new(|| {
    let name = std::env::var("WEIR_FUZZ_TARGET").expect("WEIR_FUZZ_TARGET names a target");
    weir_fuzz::target(&name).unwrap_or_else(|| panic!("no target {name}"))
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| TARGET(data));
