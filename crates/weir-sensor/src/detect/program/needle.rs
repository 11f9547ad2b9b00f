//! One content, searched for in a part of a buffer.

use crate::matcher::byte_cost;

/// A content as it is searched for: by its rarest byte.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Needle {
    /// In lower case if `nocase`.
    bytes: Box<[u8]>,
    nocase: bool,
    /// Index of the byte to look for.
    rare: usize,
}

impl Needle {
    pub(super) fn new(bytes: &[u8], nocase: bool) -> Needle {
        let bytes: Box<[u8]> = if nocase {
            bytes.to_ascii_lowercase().into()
        } else {
            bytes.into()
        };
        let cost = |b: u8| {
            if nocase {
                byte_cost(b).min(byte_cost(b.to_ascii_uppercase()))
            } else {
                byte_cost(b)
            }
        };
        let rare = (0..bytes.len())
            .max_by_key(|i| cost(bytes[*i]))
            .unwrap_or(0);
        Needle {
            bytes,
            nocase,
            rare,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    fn is_at(&self, there: &[u8]) -> bool {
        if self.nocase {
            self.bytes
                .iter()
                .zip(there)
                .all(|(a, b)| *a == b.to_ascii_lowercase())
        } else {
            *self.bytes == *there
        }
    }

    /// The first place from `low` on where it is found and has ended by `high`.
    pub(super) fn find(&self, haystack: &[u8], low: usize, high: usize) -> Option<usize> {
        let size = self.bytes.len();
        let high = high.min(haystack.len());
        // Where its rare byte may be.
        let last = high.checked_sub(size)?;
        if low > last {
            return None;
        }
        if low == last {
            return self.is_at(&haystack[low..high]).then_some(low);
        }
        let rare = self.bytes[self.rare];
        let upper = rare.to_ascii_uppercase();
        let mut at = low;
        while at <= last {
            let range = &haystack[at + self.rare..=last + self.rare];
            let found = if self.nocase && upper != rare {
                memchr::memchr2(rare, upper, range)
            } else {
                memchr::memchr(rare, range)
            };
            let start = at + found?;
            if self.is_at(&haystack[start..start + size]) {
                return Some(start);
            }
            at = start + 1;
        }
        None
    }
}
