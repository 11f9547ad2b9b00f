//! `weir_fuzz::pcap_reader` under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::pcap_reader(data));
