//! `weir_fuzz::sensor_stages::defragment` under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::sensor_stages::defragment(data));
