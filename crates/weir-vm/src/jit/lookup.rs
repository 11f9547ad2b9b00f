//! `bpf_map_lookup_elem` without a call, for maps known when compiling.
//!
//! Owns the code of bounds, hash and probing; what it walks is laid out in `maps::values` and `maps::hash`. After a helper
//! call R1 to R5 are unreadable for programs, so everything but the program's saved registers may change. Invariant: the
//! result is the address the helper would give, or 0.

use std::mem::offset_of;

use super::asm::*;
use super::emit::{STATE, constant};
use super::native::State;
use crate::interp::Env;
use crate::maps::{Layout, Lookup, MULTIPLIER, Map, TAGGED};

/// Longest key that is hashed and compared in place.
const KEY_MAX: u32 = 64;

/// Whether [`write`] can do it.
pub(super) fn is_inlined(map: &Map) -> bool {
    match map.lookup_method() {
        Lookup::Array(layout) => i32::try_from(layout.pitch).is_ok(),
        Lookup::Hash(layout, ..) => {
            i32::try_from(layout.pitch).is_ok() && map.definition().key_size <= KEY_MAX
        }
        Lookup::Helper => false,
    }
}

/// What stands aside of a lookup: the ways that are seldom taken.
pub(super) struct Aside {
    /// Not this bucket; where probing goes on.
    next: Option<(Label, Label)>,
    /// Not there.
    missed: Label,
    done: Label,
}

impl Aside {
    /// Writes them, where straight code does not pass.
    pub(super) fn write(&self, a: &mut Assembler) {
        if let Some((next, probe)) = self.next {
            a.bind(next);
            a.alu_mem_imm(false, Alu::Cmp, at(R10, 0), 0);
            a.jump_if(Cond::Equal, self.missed);
            a.alu_imm(true, Alu::Add, RDI, 1);
            a.alu(true, Alu::And, RDI, RCX);
            a.jump(probe);
        }
        a.bind(self.missed);
        constant(a, RAX, 0);
        a.jump(self.done);
    }
}

/// rax = the value for the key at rsi.
pub(super) fn write(a: &mut Assembler, map: &Map, cpus: u32) -> Option<Aside> {
    let per_cpu = map.kind().is_percpu() && cpus > 1;
    match map.lookup_method() {
        Lookup::Array(layout) => {
            let entries = map.definition().max_entries;
            Some(array(a, layout, entries, per_cpu))
        }
        Lookup::Hash(layout, seed, head) => {
            let key_size = map.definition().key_size;
            Some(hash(a, layout, seed, head, key_size, per_cpu))
        }
        Lookup::Helper => None,
    }
}

/// rax = the element `index`, which an array has.
pub(super) fn element(a: &mut Assembler, map: &Map, index: u32, cpus: u32) {
    if let Lookup::Array(layout) = map.lookup_method() {
        a.constant(RAX, layout.start + u64::from(index) * layout.pitch as u64);
        if map.kind().is_percpu() && cpus > 1 {
            own_value(a, layout);
        }
    }
}

fn array(a: &mut Assembler, layout: Layout, entries: u32, per_cpu: bool) -> Aside {
    let (missed, done) = (a.label(), a.label());
    if entries == 1 {
        a.constant(RAX, layout.start);
        a.alu_mem_imm(false, Alu::Cmp, at(RSI, 0), 0);
        a.jump_if(Cond::NotEqual, missed);
    } else {
        a.load(Width::B4, RAX, at(RSI, 0));
        a.alu_imm(false, Alu::Cmp, RAX, entries as i32);
        a.jump_if(Cond::AboveEqual, missed);
        scale(a, RAX, layout.pitch);
        a.constant(R10, layout.start);
        a.alu(true, Alu::Add, RAX, R10);
    }
    if per_cpu {
        own_value(a, layout);
    }
    a.bind(done);
    Aside {
        next: None,
        missed,
        done,
    }
}

/// From the first CPU's value to the running one's.
fn own_value(a: &mut Assembler, layout: Layout) {
    a.load(Width::B8, R10, at(STATE, offset_of!(State, env) as i32));
    a.load(Width::B4, R10, at(R10, offset_of!(Env, cpu) as i32));
    scale(a, R10, layout.stride);
    a.alu(true, Alu::Add, RAX, R10);
}

fn scale(a: &mut Assembler, register: Reg, by: usize) {
    if by.is_power_of_two() {
        a.shift_imm(true, Shift::Shl, register, by.trailing_zeros() as u8);
    } else {
        a.imul_imm(true, register, register, by as i32);
    }
}

/// Buckets have 16 bytes.
const BUCKET_SHIFT: u8 = 4;

fn hash(
    a: &mut Assembler,
    layout: Layout,
    seed: u64,
    head: u64,
    key_size: u32,
    per_cpu: bool,
) -> Aside {
    let (probe, next, missed, done) = (a.label(), a.label(), a.label(), a.label());
    let chunks = chunks(key_size);
    a.constant(RAX, seed);
    for (offset, size) in &chunks {
        load_chunk(a, R9, R10, *offset, *size);
        a.alu(true, Alu::Xor, RAX, R9);
        a.constant(RDX, MULTIPLIER);
        a.unary(true, Unary::Mul, RDX);
        a.alu(true, Alu::Xor, RAX, RDX);
    }
    // r8 is the upper half of the bucket we look for, rdi its number, rcx the mask, r11 the table.
    a.constant(R10, head);
    a.load(Width::B8, R11, at(R10, 0));
    a.load(Width::B8, RCX, at(R10, 8));
    a.mov(false, R8, RAX);
    a.alu_imm(false, Alu::Or, R8, TAGGED as i32);
    a.mov(false, RDI, R8);
    a.alu(true, Alu::And, RDI, RCX);
    a.bind(probe);
    a.mov(true, R10, RDI);
    a.shift_imm(true, Shift::Shl, R10, BUCKET_SHIFT);
    a.alu(true, Alu::Add, R10, R11);
    a.alu_load(false, Alu::Cmp, R8, at(R10, 4));
    a.jump_if(Cond::NotEqual, next);
    a.load(Width::B8, RAX, at(R10, 8));
    for (offset, size) in &chunks {
        // Keys lie in whole words, zeros behind them, as load_chunk makes it.
        let stored = at(RAX, layout.key as i32 + *offset);
        if chunks.len() == 1 {
            a.alu_load(true, Alu::Cmp, R9, stored);
        } else {
            load_chunk(a, RDX, R9, *offset, *size);
            a.alu_load(true, Alu::Cmp, RDX, stored);
        }
        a.jump_if(Cond::NotEqual, next);
    }
    if per_cpu {
        own_value(a, layout);
    }
    a.bind(done);
    Aside {
        next: Some((next, probe)),
        missed,
        done,
    }
}

/// Offsets and sizes of a key's words, the last one perhaps shorter.
fn chunks(key_size: u32) -> Vec<(i32, u32)> {
    (0..key_size.div_ceil(8))
        .map(|i| (8 * i as i32, (key_size - 8 * i).min(8)))
        .collect()
}

/// `to` = `size` bytes of the key at rsi, zeros above them.
fn load_chunk(a: &mut Assembler, to: Reg, scratch: Reg, offset: i32, size: u32) {
    match size {
        8 => a.load(Width::B8, to, at(RSI, offset)),
        4 => a.load(Width::B4, to, at(RSI, offset)),
        2 => a.load(Width::B2, to, at(RSI, offset)),
        1 => a.load(Width::B1, to, at(RSI, offset)),
        _ => {
            let part = if size > 4 { 4 } else { 2 };
            load_chunk(a, to, scratch, offset, part);
            let mut done = part;
            while done < size {
                let width = if size - done >= 2 {
                    Width::B2
                } else {
                    Width::B1
                };
                a.load(width, scratch, at(RSI, offset + done as i32));
                a.shift_imm(true, Shift::Shl, scratch, 8 * done as u8);
                a.alu(true, Alu::Or, to, scratch);
                done += width.bytes();
            }
        }
    }
}
