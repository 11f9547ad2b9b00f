//! `weir_fuzz::graph::routes` under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::graph::routes(data));
