//! The values of a map: memory that never moves, found by slot (element times CPUs plus CPU).
//!
//! Owns blocks of elements; an element is its CPUs' values, each rounded up to eight bytes, and behind them its key, if
//! the map has keys of its own. Invariant: the address of a value is the same as long as the map exists.

use crate::errno::ENOMEM;
use crate::jit::Block;

/// Elements of the smallest block of a map that grows, unless they are large.
const BLOCK_MIN: u32 = 64;
/// Above every element number: arrays have one block.
const ONE_BLOCK: u32 = 40;

#[derive(Debug)]
pub(super) struct Values {
    value_size: usize,
    cpus: u32,
    /// Distance of CPUs' values.
    stride: usize,
    key_size: usize,
    /// Distance of elements.
    pitch: usize,
    /// Logarithm of the number of elements in a block.
    shift: u32,
    blocks: Vec<Block>,
}

/// What generated code needs to compute addresses of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Distance of elements in bytes.
    pub(crate) pitch: usize,
    /// Distance of CPUs' values in bytes.
    pub(crate) stride: usize,
    /// Offset of an element's key from its start.
    pub(crate) key: usize,
    /// Address of the first element; 0 if there is none yet.
    pub(crate) start: u64,
}

impl Values {
    /// Memory for exactly `elements` elements without keys, all of it now; nothing when there is none.
    pub(super) fn fixed(value_size: u32, cpus: u32, elements: usize) -> Option<Values> {
        let mut values = Values::new(value_size, cpus, 0, ONE_BLOCK);
        let bytes = values.pitch.checked_mul(elements)?;
        values.blocks.push(Block::zeroed(bytes)?);
        Some(values)
    }

    /// Memory that comes in blocks of about `max_entries` elements with room for their keys.
    pub(super) fn growing(value_size: u32, cpus: u32, key_size: u32, max_entries: u32) -> Values {
        let mut values = Values::new(value_size, cpus, key_size as usize, 0);
        let least = if values.pitch > 1 << 12 { 1 } else { BLOCK_MIN };
        values.shift = max_entries.max(least).next_power_of_two().ilog2();
        values
    }

    fn new(value_size: u32, cpus: u32, key_size: usize, shift: u32) -> Values {
        let stride = value_size.next_multiple_of(8) as usize;
        Values {
            value_size: value_size as usize,
            cpus,
            stride,
            key_size,
            pitch: stride * cpus as usize + key_size.next_multiple_of(8),
            shift,
            blocks: Vec::new(),
        }
    }

    /// Writes between an element's first value and the next multiple of eight.
    pub(super) fn write_padding(&mut self, element: u32, bytes: &[u8]) {
        let (block, start) = self.element(element);
        let padding = start + self.value_size..start + self.stride;
        let block = self.blocks.get_mut(block).map(Block::bytes_mut);
        if let Some(to) = block.and_then(|b| b.get_mut(padding)?.get_mut(..bytes.len())) {
            to.copy_from_slice(bytes);
        }
    }

    /// Makes sure `element` has memory.
    pub(super) fn reserve(&mut self, element: u32) -> Result<(), i64> {
        let block = (u64::from(element) >> self.shift) as usize;
        while self.blocks.len() <= block {
            let bytes = self.pitch << self.shift;
            self.blocks.push(Block::zeroed(bytes).ok_or(ENOMEM)?);
        }
        Ok(())
    }

    pub(super) fn layout(&self) -> Layout {
        Layout {
            pitch: self.pitch,
            stride: self.stride,
            key: self.stride * self.cpus as usize,
            start: self.blocks.first().map_or(0, Block::address),
        }
    }

    /// Whether an address range of the host lies in these values.
    pub(super) fn holds(&self, address: u64, len: usize) -> bool {
        self.blocks.iter().any(|b| {
            let offset = address.wrapping_sub(b.address());
            offset <= b.len() as u64 && len as u64 <= b.len() as u64 - offset
        })
    }

    /// Distance of CPUs' values.
    pub(super) fn stride(&self) -> usize {
        self.stride
    }

    /// Elements there is memory for.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.blocks.len() << self.shift
    }

    /// One CPU's value.
    #[inline]
    pub(super) fn value(&self, slot: u32) -> Option<&[u8]> {
        let (block, start) = self.place(slot);
        let bytes = self.blocks.get(block)?.bytes();
        bytes.get(start..start + self.value_size)
    }

    #[inline]
    pub(super) fn value_mut(&mut self, slot: u32) -> Option<&mut [u8]> {
        let (block, start) = self.place(slot);
        let bytes = self.blocks.get_mut(block)?.bytes_mut();
        bytes.get_mut(start..start + self.value_size)
    }

    /// Host address of one CPU's value; 0 if it has no memory.
    #[inline]
    pub(super) fn address(&self, slot: u32) -> u64 {
        let (block, start) = self.place(slot);
        self.blocks
            .get(block)
            .map_or(0, |b| b.address() + start as u64)
    }

    /// Host address of an element: its first CPU's value.
    pub(super) fn address_of(&self, element: u32) -> u64 {
        self.address(element * self.cpus)
    }

    /// All CPUs' values of an element, each rounded up to eight bytes.
    pub(super) fn all(&self, element: u32) -> Option<&[u8]> {
        let (block, start) = self.element(element);
        let bytes = self.blocks.get(block)?.bytes();
        bytes.get(start..start + self.stride * self.cpus as usize)
    }

    #[inline]
    pub(super) fn key(&self, element: u32) -> &[u8] {
        let (block, start) = self.element(element);
        let start = start + self.stride * self.cpus as usize;
        let bytes = self.blocks.get(block).map_or(&[][..], Block::bytes);
        bytes.get(start..start + self.key_size).unwrap_or_default()
    }

    pub(super) fn set_key(&mut self, element: u32, key: &[u8]) {
        let (block, start) = self.element(element);
        let start = start + self.stride * self.cpus as usize;
        let bytes = self.blocks.get_mut(block).map(Block::bytes_mut);
        if let Some(to) = bytes.and_then(|b| b.get_mut(start..start + self.key_size)) {
            to.copy_from_slice(key);
        }
    }

    #[inline(always)]
    fn place(&self, slot: u32) -> (usize, usize) {
        if self.cpus == 1 {
            return self.element(slot);
        }
        let (block, start) = self.element(slot / self.cpus);
        (block, start + (slot % self.cpus) as usize * self.stride)
    }

    #[inline(always)]
    fn element(&self, element: u32) -> (usize, usize) {
        let element = u64::from(element);
        let inside = element & ((1 << self.shift) - 1);
        (
            (element >> self.shift) as usize,
            inside as usize * self.pitch,
        )
    }
}
