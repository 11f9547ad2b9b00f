//! `weir_fuzz::elf_loader` under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::elf_loader(data));
