//! Bloom filters: sets that answer "certainly not" or "perhaps".
//!
//! Sized as the kernel sizes them. The hash is another and has no random seed, so that a run is the same every time: which values are taken
//! for members wrongly differs from the kernel's, how many does not. Invariant: a value that was added is always found.

use super::BPF_ANY;
use crate::errno::{EINVAL, ENOENT};

/// Hash functions unless the definition says otherwise.
const HASHES: u64 = 5;

#[derive(Debug)]
pub(crate) struct Bloom {
    hashes: u64,
    /// Number of bits less one; a power of two less one.
    mask: u64,
    bits: Vec<u64>,
}

impl Bloom {
    /// A filter for `max_entries` values; `extra` is `map_extra`.
    pub(super) fn new(max_entries: u32, extra: u64) -> Bloom {
        let hashes = if extra & 15 == 0 { HASHES } else { extra & 15 };
        // The best number of bits is entries * hashes / ln 2, and 7/5 is close to 1 / ln 2.
        let bits = u64::from(max_entries) * hashes / 5 * 7;
        let bits = bits.clamp(64, 1 << 31).next_power_of_two();
        Bloom {
            hashes,
            mask: bits - 1,
            bits: vec![0; (bits / 64) as usize],
        }
    }

    /// `bpf_map_push_elem`: adds a value.
    pub(crate) fn push(&mut self, value: &[u8], flags: u64) -> Result<(), i64> {
        if flags != BPF_ANY {
            return Err(EINVAL);
        }
        for i in 0..self.hashes {
            let bit = hash(value, i) & self.mask;
            if let Some(word) = self.bits.get_mut((bit / 64) as usize) {
                *word |= 1 << (bit % 64);
            }
        }
        Ok(())
    }

    /// `bpf_map_peek_elem`: an error for a value that was certainly not added.
    pub(crate) fn peek(&self, value: &[u8]) -> Result<(), i64> {
        let set = |i| {
            let bit = hash(value, i) & self.mask;
            let word = self.bits.get((bit / 64) as usize);
            word.is_some_and(|w| w & (1 << (bit % 64)) != 0)
        };
        if (0..self.hashes).all(set) {
            Ok(())
        } else {
            Err(ENOENT)
        }
    }
}

/// FNV-1a, mixed at the end so that its low bits depend on all of the value.
fn hash(value: &[u8], seed: u64) -> u64 {
    let mut h = 0xcbf2_9ce4_8422_2325 ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for byte in value {
        h = (h ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    h = (h ^ (h >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    h ^ (h >> 29)
}
