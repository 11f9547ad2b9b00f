//! The hash index: (table, masked words) -> a run of rules or a tree. Two cells of four slots can hold a bucket.
//!
//! A slot keeps the hash and not the key: whatever it leads to is compared in full anyway. It does keep the table, so that a
//! probe never meets rules of another table, which would then be met twice.

use weir_bpf::abi::{Cell, Slot, hash, slot_bits};

/// Average load at which the number of cells is chosen, in slots a cell.
const LOAD: usize = 2;

/// First step of a hash.
pub(crate) fn start(table: u32) -> u64 {
    hash::SEED ^ (u64::from(table) + 1).wrapping_mul(hash::TABLE)
}

/// Mixes a masked word in.
pub(crate) fn mix(h: u64, word: u64) -> u64 {
    let h = (h ^ word).wrapping_mul(hash::WORD);
    h ^ h >> 29
}

/// Last step.
pub(crate) fn finish(h: u64) -> u64 {
    let h = h.wrapping_mul(hash::END);
    h ^ h >> 32
}

/// The cells a hash may lie in; `cells` is a power of two.
pub(crate) fn places(h: u64, cells: usize) -> [usize; 2] {
    let mask = cells - 1;
    [h as usize & mask, (h >> 24) as usize & mask]
}

pub(crate) fn slot(hash: u64, table: u32, first: u32, count: u32, tree: bool) -> Slot {
    debug_assert!(count < 1 << slot_bits::COUNT && table < 1 << slot_bits::TABLE);
    let tree = u32::from(tree) << slot_bits::TREE;
    Slot {
        hash,
        first,
        // An empty slot is all zeros: tables count from 1 here.
        what: tree | (table + 1) << slot_bits::COUNT | count,
    }
}

/// Places all slots. A lookup goes on to the second cell only when the first one is full.
pub(crate) fn cells(slots: &[Slot]) -> Vec<Cell> {
    let mut size = slots.len().div_ceil(LOAD).next_power_of_two();
    loop {
        if let Some(cells) = place(slots, size) {
            return cells;
        }
        size *= 2;
    }
}

fn place(slots: &[Slot], size: usize) -> Option<Vec<Cell>> {
    let mut cells = vec![Cell::default(); size];
    for slot in slots {
        let free = places(slot.hash, size)
            .into_iter()
            .find_map(|at| Some((at, cells[at].slot.iter().position(|s| s.what == 0)?)));
        let (at, free) = free?;
        cells[at].slot[free] = *slot;
    }
    Some(cells)
}
