//! The lookup program in rbpf's JIT, as its users would run it: with a helper of their own for the map.
//!
//! rbpf has neither maps nor the context of XDP programs, so the two context loads are rewritten to 8-byte loads of real
//! pointers, and helper 1 is a function over an open-addressed table of 32-bit keys: the fastest that suits the program.

#![expect(
    unsafe_code,
    reason = "rbpf's JIT runs what it is given, and its helpers get addresses"
)]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rbpf::EbpfVmRaw;

use super::vm::Runner;
use crate::LabError;

/// The program with its context beside it.
pub(super) struct Rbpf {
    vm: EbpfVmRaw<'static>,
    frame: Vec<u8>,
}

/// A table of {key, count}; a power of two, less than half full.
struct Table {
    mask: usize,
    entries: Vec<(AtomicU64, AtomicU64)>,
}

static HOSTS: OnceLock<Table> = OnceLock::new();

/// Loads bpf/baselines/lookup.c with these hosts.
pub(super) fn lookup(hosts: impl ExactSizeIterator<Item = u32>) -> Result<Rbpf, LabError> {
    HOSTS.get_or_init(|| {
        let size = (hosts.len() * 2 + 2).next_power_of_two();
        let table = Table {
            mask: size - 1,
            entries: (0..size).map(|_| Default::default()).collect(),
        };
        for host in hosts {
            let mut at = table.start(host.to_be());
            while table.entries[at].0.load(Ordering::Relaxed) != 0 {
                at = (at + 1) & table.mask;
            }
            let tagged = u64::from(host.to_be()) | 1 << 32;
            table.entries[at].0.store(tagged, Ordering::Relaxed);
        }
        table
    });
    // For the life of the process: the VM borrows its program.
    let code: &'static [u8] = Box::leak(program()?.into_boxed_slice());
    let failed = |error: std::io::Error| LabError::Engine(format!("rbpf: {error}"));
    let mut vm = EbpfVmRaw::new(Some(code)).map_err(failed)?;
    vm.register_helper(1, find).map_err(failed)?;
    vm.jit_compile().map_err(failed)?;
    Ok(Rbpf {
        vm,
        frame: Vec::new(),
    })
}

impl Runner for Rbpf {
    fn run(&mut self, packet: &[u8], times: u32) -> Result<(), LabError> {
        self.frame.clear();
        self.frame.extend_from_slice(packet);
        let data = self.frame.as_mut_ptr() as u64;
        let mut context = [0; 16];
        context[..8].copy_from_slice(&data.to_le_bytes());
        context[8..].copy_from_slice(&(data + self.frame.len() as u64).to_le_bytes());
        for _ in 0..times {
            // SAFETY: the program is this project's own, checked by weir's verifier: it reads the context and the frame
            // within its bounds, and counts in a value `find` gave it, which lives as long as the process.
            let verdict = unsafe { self.vm.execute_program_jit(&mut context) };
            match verdict {
                Ok(2) => {}
                other => return Err(LabError::Engine(format!("rbpf: verdict {other:?}"))),
            }
        }
        Ok(())
    }
}

impl Table {
    fn start(&self, key: u32) -> usize {
        (key.wrapping_mul(0x9e37_79b1) >> 15) as usize & self.mask
    }
}

/// Helper 1: the count of the key at `key`.
fn find(_map: u64, key: u64, _: u64, _: u64, _: u64) -> u64 {
    let Some(table) = HOSTS.get() else {
        return 0;
    };
    // SAFETY: the program passes the address of four bytes of its stack.
    let key = unsafe { (key as *const u32).read_unaligned() };
    let tagged = u64::from(key) | 1 << 32;
    let mut at = table.start(key);
    loop {
        let (found, count) = &table.entries[at];
        match found.load(Ordering::Relaxed) {
            0 => return 0,
            word if word == tagged => return count.as_ptr() as u64,
            _ => at = (at + 1) & table.mask,
        }
    }
}

/// The instructions of the object's section `xdp`, context loads rewritten.
fn program() -> Result<Vec<u8>, LabError> {
    let elf = weir_bpf::baseline("lookup").unwrap_or_default();
    let mut code = section(elf, b"xdp\0")
        .ok_or_else(|| LabError::Engine("the object of lookup.c has no section xdp".to_owned()))?;
    for insn in code.as_chunks_mut::<8>().0 {
        // rN = *(u32 *)(r1 + 0 or 4), in the first instructions the only ones of this form.
        let offset = u16::from_le_bytes([insn[2], insn[3]]);
        if insn[0] == 0x61 && insn[1] >> 4 == 1 && (offset == 0 || offset == 4) {
            insn[0] = 0x79;
            insn[2] = (offset * 2) as u8;
        }
    }
    Ok(code)
}

/// Contents of a section of a 64-bit ELF file.
fn section(elf: &[u8], name: &[u8]) -> Option<Vec<u8>> {
    let word = |at: usize| Some(u64::from_le_bytes(*elf.get(at..)?.first_chunk()?) as usize);
    let half = |at: usize| Some(u16::from_le_bytes(*elf.get(at..)?.first_chunk()?) as usize);
    let int = |at: usize| Some(u32::from_le_bytes(*elf.get(at..)?.first_chunk()?) as usize);
    let headers = word(40)?;
    let header = |index: usize| headers + 64 * index;
    let names = word(header(half(62)?) + 24)?;
    (0..half(60)?).find_map(|index| {
        let at = header(index);
        if !elf.get(names + int(at)?..)?.starts_with(name) {
            return None;
        }
        let start = word(at + 24)?;
        Some(elf.get(start..start + word(at + 32)?)?.to_vec())
    })
}
