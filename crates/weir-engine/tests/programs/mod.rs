//! Random XDP programs, mostly sensible: they parse, check bounds, compute, spill, look up, loop and call.
//!
//! Owns the pieces programs are made of, how they become instructions, and the maps they may name. A program is a list
//! of pieces, so it shrinks by losing pieces. Conventions make most programs valid (r6 is the context, r7 and r8 the
//! packet's ends, r0 to r5 and r9 numbers); every piece can break them a little: one byte too far, a check forgotten or
//! the wrong way round. Invariant: the same pieces give the same instructions.

mod assembly;
mod pieces;
mod strategies;

use proptest::prelude::*;
use weir_vm::{Insn, MapDefinition, MapKind};

pub(crate) use strategies::program;

/// The maps of all programs, by the index that instructions name.
pub(crate) fn maps() -> Vec<MapDefinition> {
    let map = |name: &str, kind, key_size, value_size, max_entries, flags| {
        let mut definition = MapDefinition::new(name, kind, key_size, value_size, max_entries);
        definition.flags = flags;
        definition
    };
    vec![
        map("array", MapKind::Array, 4, 64, 4, 0),
        map("hash", MapKind::Hash, 4, 16, 8, 0),
        map("percpu", MapKind::PercpuArray, 4, 32, 2, 0),
        map("one", MapKind::Array, 4, 24, 1, 0),
        map("ring", MapKind::RingBuf, 0, 0, 4096, 0),
        map("programs", MapKind::ProgArray, 4, 4, 2, 0),
        map("devices", MapKind::DevMap, 4, 4, 4, 0),
        map(
            "constants",
            MapKind::Array,
            4,
            16,
            2,
            weir_vm::BPF_F_RDONLY_PROG,
        ),
    ]
}

/// Index of the ring buffer among [`maps`].
pub(crate) const RING: u8 = 4;
/// Index of the program array among [`maps`].
pub(crate) const PROGRAMS: u8 = 5;
/// Index of the device map among [`maps`].
pub(crate) const DEVICES: u8 = 6;

/// Frames to run a program over; numbers in them are small or extreme more often than not.
pub(crate) fn frame() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        4 => any::<u8>(),
        3 => 0u8..16,
        1 => Just(0xff),
        1 => Just(0x80),
        1 => Just(0x7f),
    ];
    let length = prop_oneof![
        3 => Just(14usize),
        3 => 14usize..40,
        3 => 40usize..80,
        1 => 80usize..300,
    ];
    length.prop_flat_map(move |len| prop::collection::vec(byte.clone(), len))
}

/// Instructions with jumps whose targets are known only later.
#[derive(Default)]
pub(crate) struct Code {
    insns: Vec<Insn>,
}

impl Code {
    /// Index of the next instruction.
    pub(crate) fn here(&self) -> usize {
        self.insns.len()
    }

    /// Appends an instruction; its index.
    pub(crate) fn put(&mut self, opcode: u8, dst: u8, src: u8, off: i16, imm: i32) -> usize {
        self.insns.push(Insn {
            opcode,
            dst,
            src,
            off,
            imm,
        });
        self.insns.len() - 1
    }

    /// Makes the jump at `at` go to `target`.
    pub(crate) fn land(&mut self, at: usize, target: usize) {
        if let Some(insn) = self.insns.get_mut(at) {
            insn.off = (target as i64 - at as i64 - 1) as i16;
        }
    }

    /// Makes the function call at `at` go to `target`.
    pub(crate) fn connect(&mut self, at: usize, target: usize) {
        if let Some(insn) = self.insns.get_mut(at) {
            insn.imm = (target as i64 - at as i64 - 1) as i32;
        }
    }

    /// The 16-byte load of kind `src`.
    pub(crate) fn wide(&mut self, dst: u8, src: u8, low: u32, high: u32) {
        self.put(0x18, dst, src, 0, low as i32);
        self.put(0, 0, 0, 0, high as i32);
    }

    /// The bytes of all instructions.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.insns.iter().flat_map(|i| i.to_bytes()).collect()
    }
}

/// An XDP program of [`program`] as one for tc: the same with the fields of `struct __sk_buff`, and for helpers that only XDP has some that
/// only tc has.
pub(crate) fn for_tc(code: &[u8]) -> Vec<u8> {
    let (slots, _) = code.as_chunks::<8>();
    let converted = slots.iter().flat_map(|slot| {
        let mut insn = Insn::from_bytes(*slot);
        if insn.opcode == 0x61 && insn.src == 6 {
            insn.off = match insn.off {
                0 => 76,
                4 => 80,
                8 => 140,
                12 => 0,
                16 => 48,
                other => other,
            };
        }
        if (insn.opcode, insn.src) == (0x85, 0) {
            insn.imm = match insn.imm {
                44 => 39,
                51 => 23,
                54 => 40,
                65 => 43,
                189 => 26,
                190 => 9,
                other => other,
            };
        }
        insn.to_bytes()
    });
    converted.collect()
}

/// The instructions in the kernel's notation of bytes, one a line, for messages.
pub(crate) fn listing(code: &[u8]) -> String {
    let (slots, _) = code.as_chunks::<8>();
    let mut text = String::new();
    for (at, slot) in slots.iter().enumerate() {
        let i = Insn::from_bytes(*slot);
        text.push_str(&format!(
            "{at:4}: {:02x} dst=r{} src=r{} off={} imm={:#x}\n",
            i.opcode, i.dst, i.src, i.off, i.imm
        ));
    }
    text
}
