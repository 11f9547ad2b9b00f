//! Rules by address: which of many address lists hold a given address, by one search instead of one for each rule.
//!
//! Every boundary of every range cuts the address space; an interval between two cuts has a list of the rules whose set holds it. IPv4 intervals are reached through a table of the
//! upper 16 bits, so that a search touches a few neighbouring lines. Sets of half the address space (`!$HOME_NET`) belong to whoever asks for the other side of the header.

use std::net::IpAddr;

use crate::rules::AddressSet;

/// Rules by address.
#[derive(Debug, Default)]
pub(super) struct AddressMap {
    v4: Space<u32>,
    /// First interval of each /16, and one past the last.
    blocks: Vec<u32>,
    v6: Space<u128>,
}

#[derive(Debug, Default)]
struct Space<T> {
    /// First address of each interval, rising; the first is 0 unless empty.
    starts: Vec<T>,
    /// Where each interval's list begins in `rules`; one more at the end.
    lists: Vec<u32>,
    rules: Vec<u32>,
}

/// Integers that intervals can be made of.
trait Address: Copy + Ord + Default {
    fn next(self) -> Option<Self>;
}

impl Address for u32 {
    fn next(self) -> Option<u32> {
        self.checked_add(1)
    }
}

impl Address for u128 {
    fn next(self) -> Option<u128> {
        self.checked_add(1)
    }
}

impl<T: Address> Space<T> {
    fn new(ranges: &[(T, T, u32)]) -> Space<T> {
        if ranges.is_empty() {
            return Space {
                starts: Vec::new(),
                lists: Vec::new(),
                rules: Vec::new(),
            };
        }
        // (address, begins, rule): what changes there.
        let mut changes = Vec::with_capacity(ranges.len() * 2);
        for (low, high, rule) in ranges {
            changes.push((*low, true, *rule));
            if let Some(after) = high.next() {
                changes.push((after, false, *rule));
            }
        }
        changes.sort_unstable();
        let mut space = Space {
            starts: vec![T::default()],
            lists: vec![0],
            rules: Vec::new(),
        };
        let mut active = std::collections::BTreeMap::<u32, u32>::new();
        let mut rest = changes.as_slice();
        while let Some((at, ..)) = rest.first() {
            let here = rest.iter().take_while(|c| c.0 == *at).count();
            if *at != T::default() {
                space.rules.extend(active.keys());
                space.lists.push(space.rules.len() as u32);
                space.starts.push(*at);
            }
            for (_, begins, rule) in &rest[..here] {
                let count = active.entry(*rule).or_default();
                if *begins {
                    *count += 1;
                } else {
                    *count = count.saturating_sub(1);
                }
                if *count == 0 {
                    active.remove(rule);
                }
            }
            rest = &rest[here..];
        }
        space.rules.extend(active.keys());
        space.lists.push(space.rules.len() as u32);
        space
    }

    fn list(&self, interval: usize) -> &[u32] {
        match (
            self.lists.get(interval),
            self.lists.get(interval.wrapping_add(1)),
        ) {
            (Some(from), Some(to)) => self
                .rules
                .get(*from as usize..*to as usize)
                .unwrap_or_default(),
            _ => &[],
        }
    }

    fn memory(&self) -> usize {
        self.starts.len() * size_of::<T>() + (self.lists.len() + self.rules.len()) * 4
    }
}

impl AddressMap {
    /// Of sets and the rules they belong to.
    pub(super) fn new(sets: &[(AddressSet, u32)]) -> AddressMap {
        let mut v4 = Vec::new();
        let mut v6 = Vec::new();
        for (set, rule) in sets {
            v4.extend(set.v4.iter().map(|(low, high)| (*low, *high, *rule)));
            v6.extend(set.v6.iter().map(|(low, high)| (*low, *high, *rule)));
        }
        let v4 = Space::new(&v4);
        let blocks = if v4.starts.is_empty() {
            Vec::new()
        } else {
            (0..=65536_u64)
                .map(|block| v4.starts.partition_point(|s| u64::from(*s) < block << 16) as u32)
                .collect()
        };
        AddressMap {
            v4,
            blocks,
            v6: Space::new(&v6),
        }
    }

    /// The rules whose set holds an address, by rising number.
    pub(super) fn get(&self, address: IpAddr) -> &[u32] {
        match address {
            IpAddr::V4(a) => self
                .v4_interval(a.into())
                .map_or(&[], |at| self.v4.list(at)),
            IpAddr::V6(a) => self
                .v6_interval(a.into())
                .map_or(&[], |at| self.v6.list(at)),
        }
    }

    /// The number of the interval that an address is in; `None` if no set holds any of its version.
    pub(super) fn interval(&self, address: IpAddr) -> Option<usize> {
        match address {
            IpAddr::V4(a) => self.v4_interval(a.into()),
            IpAddr::V6(a) => Some(self.v4.starts.len() + self.v6_interval(a.into())?),
        }
    }

    /// The rules of each interval, by its number.
    pub(super) fn intervals(&self) -> impl Iterator<Item = &[u32]> {
        let v4 = (0..self.v4.starts.len()).map(|at| self.v4.list(at));
        v4.chain((0..self.v6.starts.len()).map(|at| self.v6.list(at)))
    }

    fn v4_interval(&self, address: u32) -> Option<usize> {
        let block = (address >> 16) as usize;
        let (from, to) = (self.blocks.get(block)?, self.blocks.get(block + 1)?);
        let starts = self.v4.starts.get(*from as usize..*to as usize)?;
        let at = *from as usize + starts.partition_point(|s| *s <= address);
        // An interval begins at or before every address, as the first begins at 0.
        at.checked_sub(1)
    }

    fn v6_interval(&self, address: u128) -> Option<usize> {
        (self.v6.starts.partition_point(|s| *s <= address)).checked_sub(1)
    }

    pub(super) fn memory(&self) -> usize {
        self.v4.memory() + self.v6.memory() + self.blocks.len() * 4
    }
}

/// How much of the address space a set holds, from 0 to 1: the smaller, the better a key.
pub(super) fn share(set: &AddressSet) -> f64 {
    if set.any {
        return 1.0;
    }
    let v4: f64 = set.v4.iter().map(|(l, h)| f64::from(h - l) + 1.0).sum();
    let v6: f64 = set.v6.iter().map(|(l, h)| (h - l) as f64 + 1.0).sum();
    (v4 / 2_f64.powi(32)).max(v6 / 2_f64.powi(128))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn set(v4: &[(u32, u32)], v6: &[(u128, u128)]) -> AddressSet {
        AddressSet {
            negated: false,
            any: false,
            v4: Arc::from(v4),
            v6: Arc::from(v6),
        }
    }

    #[test]
    fn the_map_agrees_with_asking_every_set() {
        let mut state = 1_u64;
        let mut random = move || {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 32) as u32
        };
        for round in 0..50 {
            let mask: u32 = if round % 2 == 0 { 0xff } else { u32::MAX };
            let sets: Vec<(AddressSet, u32)> = (0..40)
                .map(|rule| {
                    let mut ends: Vec<u32> = (0..6).map(|_| random() & mask).collect();
                    ends.sort_unstable();
                    ends.dedup();
                    let mut ranges: Vec<(u32, u32)> =
                        ends.chunks_exact(2).map(|c| (c[0], c[1])).collect();
                    if rule == 0 {
                        ranges = vec![(0, u32::MAX)];
                    }
                    let wide = ranges
                        .iter()
                        .map(|(l, h)| (u128::from(*l) << 90, u128::from(*h) << 90))
                        .collect::<Vec<_>>();
                    (set(&ranges, &wide), rule)
                })
                .collect();
            let map = AddressMap::new(&sets);
            for i in 0..300_u32 {
                let a = match i {
                    0 => 0,
                    1 => u32::MAX,
                    _ => random() & mask,
                };
                for address in [
                    IpAddr::V4(a.into()),
                    IpAddr::V6((u128::from(a) << 90).into()),
                ] {
                    let plain: Vec<u32> = sets
                        .iter()
                        .filter(|(s, _)| s.has(address))
                        .map(|(_, r)| *r)
                        .collect();
                    assert_eq!(map.get(address), plain, "{address}");
                }
            }
        }
        assert!(AddressMap::new(&[]).get(IpAddr::V4(1.into())).is_empty());
    }
}
