//! `weir_fuzz::graph::graph_config` under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::graph::graph_config(data));
