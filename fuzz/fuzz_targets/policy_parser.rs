//! `weir_fuzz::policy_parser` under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::policy_parser(data));
