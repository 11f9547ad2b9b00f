//! `weir_fuzz::sensor_rules::sensor_rules` under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::sensor_rules::sensor_rules(data));
