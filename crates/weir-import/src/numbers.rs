//! Sets of numbers as sorted, disjoint intervals, with complement: what conditions are made of.

/// A set of numbers below 2^128.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct Numbers(Vec<(u128, u128)>);

impl Numbers {
    /// Sorts and merges; intervals that run backwards are left out.
    pub(crate) fn new(mut intervals: Vec<(u128, u128)>) -> Numbers {
        intervals.retain(|(low, high)| low <= high);
        intervals.sort_unstable();
        let mut merged: Vec<(u128, u128)> = Vec::with_capacity(intervals.len());
        for (low, high) in intervals {
            match merged.last_mut() {
                Some((_, end)) if low <= end.saturating_add(1) => *end = (*end).max(high),
                _ => merged.push((low, high)),
            }
        }
        Numbers(merged)
    }

    pub(crate) fn one(value: u128) -> Numbers {
        Numbers(vec![(value, value)])
    }

    pub(crate) fn range(low: u128, high: u128) -> Numbers {
        Numbers::new(vec![(low, high)])
    }

    /// All numbers of so many bits, 1 to 128.
    pub(crate) fn all(bits: u32) -> Numbers {
        Numbers(vec![(0, u128::MAX >> 128u32.saturating_sub(bits).min(127))])
    }

    pub(crate) fn intervals(&self) -> &[(u128, u128)] {
        &self.0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn contains(&self, value: u128) -> bool {
        let after = self.0.partition_point(|&(low, _)| low <= value);
        let before = after.checked_sub(1).and_then(|at| self.0.get(at));
        before.is_some_and(|&(_, high)| value <= high)
    }

    /// Whether it has fewer members.
    pub(crate) fn is_smaller(&self, other: &Numbers) -> bool {
        let size = |set: &Numbers| {
            let sizes = set.0.iter().map(|&(low, high)| high - low);
            sizes.fold(0u128, |sum, size| {
                sum.saturating_add(size).saturating_add(1)
            })
        };
        size(self) < size(other)
    }

    /// The only member, if there is one.
    pub(crate) fn single(&self) -> Option<u128> {
        match self.0[..] {
            [(low, high)] if low == high => Some(low),
            _ => None,
        }
    }

    pub(crate) fn and(&self, other: &Numbers) -> Numbers {
        let mut out = Vec::new();
        let (mut left, mut right) = (self.0.iter().peekable(), other.0.iter().peekable());
        while let (Some(&&(a, b)), Some(&&(c, d))) = (left.peek(), right.peek()) {
            let (low, high) = (a.max(c), b.min(d));
            if low <= high {
                out.push((low, high));
            }
            if b < d {
                left.next();
            } else {
                right.next();
            }
        }
        Numbers(out)
    }

    pub(crate) fn or(&self, other: &Numbers) -> Numbers {
        Numbers::new(self.0.iter().chain(&other.0).copied().collect())
    }

    /// What of `domain` is not in this set.
    pub(crate) fn not_in(&self, domain: &Numbers) -> Numbers {
        let mut gaps = Vec::with_capacity(self.0.len() + 1);
        let mut from = Some(0u128);
        for &(low, high) in &self.0 {
            if let (Some(from), Some(before)) = (from, low.checked_sub(1)) {
                gaps.push((from, before));
            }
            from = high.checked_add(1);
        }
        if let Some(from) = from {
            gaps.push((from, u128::MAX));
        }
        Numbers::new(gaps).and(domain)
    }

    pub(crate) fn is_within(&self, other: &Numbers) -> bool {
        self.and(other) == *self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complements_are_exact() {
        let domain = Numbers::all(16);
        let set = Numbers::new(vec![(0, 79), (81, 81), (65535, 65535)]);
        assert_eq!(set.not_in(&domain).intervals(), [(80, 80), (82, 65534)]);
        assert_eq!(set.not_in(&domain).not_in(&domain), set);
        assert!(domain.not_in(&domain).is_empty());
        assert_eq!(Numbers::default().not_in(&domain), domain);
        let wide = Numbers::all(128);
        assert_eq!(
            Numbers::one(u128::MAX).not_in(&wide).intervals(),
            [(0, u128::MAX - 1)]
        );
        assert!(wide.not_in(&wide).is_empty());
    }
}
