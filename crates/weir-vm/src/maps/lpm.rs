//! The index of longest-prefix maps: one hash of (length, masked data), asked for each length in use, longest first.
//!
//! Keys are a 4-byte prefix length in host order and the data, most significant bit first. Invariant: every length in
//! `lengths` has at least one live element; the hash's keys are masked, `originals` keeps what the caller wrote.

use std::collections::BTreeMap;

use super::BPF_NOEXIST;
use super::hash::HashIndex;
use super::values::Values;
use crate::errno::{EEXIST, EINVAL, ENOENT, ENOSPC};

/// Longest key: length field and 256 bytes of data.
const KEY_MAX: usize = 260;

#[derive(Debug)]
pub(super) struct PrefixIndex {
    key_size: usize,
    hash: HashIndex,
    /// Elements per prefix length.
    lengths: BTreeMap<u32, u32>,
    /// Keys as inserted, by element number.
    originals: Vec<Vec<u8>>,
}

impl PrefixIndex {
    pub(super) fn new(key_size: usize, most: u64) -> Option<PrefixIndex> {
        Some(PrefixIndex {
            key_size,
            hash: HashIndex::new(false, most)?,
            lengths: BTreeMap::new(),
            originals: Vec::new(),
        })
    }

    pub(super) fn len(&self) -> usize {
        self.hash.len()
    }

    pub(super) fn key(&self, element: u32) -> &[u8] {
        self.originals
            .get(element as usize)
            .map_or(&[], |k| k.as_slice())
    }

    pub(super) fn elements(&self) -> impl Iterator<Item = u32> + '_ {
        self.hash.elements()
    }

    /// The element with the longest prefix that covers `key` and is no longer than the key's own length.
    pub(super) fn find(&self, values: &Values, key: &[u8]) -> Option<u32> {
        let length = self.prefix_length(key)?;
        let mut buffer = [0; KEY_MAX];
        self.lengths.range(..=length).rev().find_map(|(length, _)| {
            self.hash
                .find(values, self.masked(key, *length, &mut buffer)?)
        })
    }

    pub(super) fn place(
        &mut self,
        values: &mut Values,
        key: &[u8],
        flags: u64,
        max_entries: u32,
        epoch: u64,
    ) -> Result<u32, i64> {
        let length = self.prefix_length(key).ok_or(EINVAL)?;
        let mut buffer = [0; KEY_MAX];
        let masked = self.masked(key, length, &mut buffer).ok_or(EINVAL)?;
        let exists = self.hash.find(values, masked).is_some();
        if exists && flags == BPF_NOEXIST {
            return Err(EEXIST);
        }
        if !exists && self.len() >= max_entries as usize {
            return Err(if flags == super::BPF_EXIST {
                ENOENT
            } else {
                ENOSPC
            });
        }
        let element = self
            .hash
            .place(values, masked, flags, max_entries, false, epoch)?;
        if !exists {
            *self.lengths.entry(length).or_insert(0) += 1;
        }
        let index = element as usize;
        if self.originals.len() <= index {
            self.originals.resize(index + 1, Vec::new());
        }
        if let Some(original) = self.originals.get_mut(index) {
            original.clear();
            original.extend_from_slice(key);
        }
        Ok(element)
    }

    pub(super) fn remove(&mut self, values: &Values, key: &[u8], epoch: u64) -> Result<(), i64> {
        let length = self.prefix_length(key).ok_or(EINVAL)?;
        let mut buffer = [0; KEY_MAX];
        let masked = self.masked(key, length, &mut buffer).ok_or(EINVAL)?;
        self.hash.remove(values, masked, epoch).ok_or(ENOENT)?;
        if let Some(count) = self.lengths.get_mut(&length) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&length);
            }
        }
        Ok(())
    }

    /// The key's own prefix length, unless it is longer than the data.
    fn prefix_length(&self, key: &[u8]) -> Option<u32> {
        let length = u32::from_le_bytes(*key.first_chunk::<4>()?);
        (length as usize <= (self.key_size - 4) * 8).then_some(length)
    }

    /// `key` cut to `length` bits, written into `buffer`.
    fn masked<'b>(
        &self,
        key: &[u8],
        length: u32,
        buffer: &'b mut [u8; KEY_MAX],
    ) -> Option<&'b [u8]> {
        let out = buffer.get_mut(..self.key_size)?;
        out.copy_from_slice(key.get(..self.key_size)?);
        let (head, data) = out.split_at_mut_checked(4)?;
        head.copy_from_slice(&length.to_le_bytes());
        let whole = length as usize / 8;
        let bits = length % 8;
        for (i, byte) in data.iter_mut().enumerate().skip(whole) {
            let keep = if i == whole && bits != 0 {
                0xffu8 << (8 - bits)
            } else {
                0
            };
            *byte &= keep;
        }
        Some(out)
    }
}
