//! Tristate numbers: which bits of a value are known, and to be what.
//!
//! Owns the bitwise half of the verifier's knowledge about a number (Table 2 of the XDP paper calls it *tnum*); the
//! ranges are in `scalar`. Addition and subtraction are optimal, multiplication is the long multiplication that Linux
//! 6.18 uses, so that both engines know equally much. Generic over the width only so that tests can try every
//! number of a small width on the very same code.
//! Invariant: `value & mask == 0`, and neither has bits above the width.

use std::fmt;

/// What is known about the bits of a 64-bit register.
pub(crate) type Tnum = KnownBits<64>;

/// The set of all `x` with `x & !mask == value`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct KnownBits<const WIDTH: u32> {
    /// Bits known to be one.
    pub(crate) value: u64,
    /// Bits not known.
    pub(crate) mask: u64,
}

impl<const WIDTH: u32> KnownBits<WIDTH> {
    const ALL: u64 = ones(WIDTH);
    const LOW: u64 = ones(WIDTH / 2);

    /// Nothing is known.
    pub(crate) const UNKNOWN: Self = KnownBits {
        value: 0,
        mask: Self::ALL,
    };

    /// Exactly this number.
    pub(crate) const fn constant(value: u64) -> Self {
        KnownBits {
            value: value & Self::ALL,
            mask: 0,
        }
    }

    /// The fewest bits that hold every number from `min` to `max`: the common leading ones and zeros are known.
    pub(crate) fn range(min: u64, max: u64) -> Self {
        let unknown = ones(u64::BITS - (min ^ max).leading_zeros());
        Self::made(min & !unknown, unknown)
    }

    /// Drops what is above the width or known and unknown at once.
    fn made(value: u64, mask: u64) -> Self {
        KnownBits {
            value: value & !mask & Self::ALL,
            mask: mask & Self::ALL,
        }
    }

    /// The number, if all bits are known.
    pub(crate) fn known(self) -> Option<u64> {
        (self.mask == 0).then_some(self.value)
    }

    /// The least member above a number; the greatest member if there is none.
    pub(crate) fn after(self, number: u64) -> u64 {
        if number >= self.max() {
            return self.max();
        }
        let from = number + 1;
        let wrong = (from ^ self.value) & !self.mask & Self::ALL;
        let Some(highest) = wrong.checked_ilog2() else {
            return from;
        };
        let below = ones(highest + 1);
        if self.value & (1 << highest) != 0 {
            // A one is missing there: all below it is as small as it can be.
            return (from & !below) | (self.value & below);
        }
        // A zero is missing there: the next unknown bit above becomes one. There is one, because the greatest member is above `number`.
        let free = self.mask & !from & !below;
        let bit = 1 << free.trailing_zeros();
        (from & !(bit | (bit - 1))) | bit | (self.value & (bit - 1))
    }

    /// Whether all bits are known.
    pub(crate) fn is_constant(self) -> bool {
        self.mask == 0
    }

    /// Smallest number as unsigned.
    pub(crate) fn min(self) -> u64 {
        self.value
    }

    /// Largest number as unsigned.
    pub(crate) fn max(self) -> u64 {
        self.value | self.mask
    }

    /// Whether the set has this number.
    pub(crate) fn holds(self, number: u64) -> bool {
        number & !self.mask & Self::ALL == self.value
    }

    /// Whether every number of `other` is in this set.
    pub(crate) fn contains(self, other: Self) -> bool {
        other.mask & !self.mask == 0 && other.value & !self.mask == self.value
    }

    /// Whether the known bits of both agree: without that they share no number.
    pub(crate) fn overlaps(self, other: Self) -> bool {
        (self.value ^ other.value) & !self.mask & !other.mask == 0
    }

    /// Whether every number is a multiple of `size`, a power of two (0 counts as 1).
    pub(crate) fn is_aligned(self, size: u64) -> bool {
        size == 0 || self.max() & (size - 1) == 0
    }

    /// Every sum.
    pub(crate) fn add(self, other: Self) -> Self {
        let least = self.value.wrapping_add(other.value);
        let most = least.wrapping_add(self.mask).wrapping_add(other.mask);
        // A bit is unknown where an operand's is, or where the carry into it differs between least and most.
        Self::made(least, (least ^ most) | self.mask | other.mask)
    }

    /// Every difference.
    pub(crate) fn sub(self, other: Self) -> Self {
        let base = self.value.wrapping_sub(other.value);
        let most = base.wrapping_add(self.mask);
        let least = base.wrapping_sub(other.mask);
        Self::made(base, (least ^ most) | self.mask | other.mask)
    }

    /// Every negation.
    pub(crate) fn neg(self) -> Self {
        Self::constant(0).sub(self)
    }

    /// Every conjunction.
    pub(crate) fn and(self, other: Self) -> Self {
        let value = self.value & other.value;
        Self::made(value, self.max() & other.max() & !value)
    }

    /// Every disjunction.
    pub(crate) fn or(self, other: Self) -> Self {
        let value = self.value | other.value;
        Self::made(value, (self.mask | other.mask) & !value)
    }

    /// Every exclusive disjunction.
    pub(crate) fn xor(self, other: Self) -> Self {
        Self::made(self.value ^ other.value, self.mask | other.mask)
    }

    /// Every product, by long multiplication over the bits of `self`: an unknown bit yields what holds with and without
    /// its summand.
    pub(crate) fn mul(self, other: Self) -> Self {
        let (mut bits, mut summand) = (self, other);
        let mut sum = Self::constant(0);
        while bits.max() != 0 {
            if bits.value & 1 == 1 {
                sum = sum.add(summand);
            } else if bits.mask & 1 == 1 {
                sum = sum.union(sum.add(summand));
            }
            bits = bits.rsh(1);
            summand = summand.lsh(1);
        }
        sum
    }

    /// Shifted left by `shift`, which is below the width.
    pub(crate) fn lsh(self, shift: u32) -> Self {
        Self::made(
            self.value.wrapping_shl(shift),
            self.mask.wrapping_shl(shift),
        )
    }

    /// Shifted right by `shift`, which is below the width.
    pub(crate) fn rsh(self, shift: u32) -> Self {
        Self::made(
            self.value.wrapping_shr(shift),
            self.mask.wrapping_shr(shift),
        )
    }

    /// Shifted right by `shift` with copies of the sign, which is bit `bits - 1`; higher bits of the result are zero.
    pub(crate) fn arsh(self, shift: u32, bits: u32) -> Self {
        let shifted = |v: u64| signed(v, bits).wrapping_shr(shift) as u64 & ones(bits);
        Self::made(shifted(self.value), shifted(self.mask))
    }

    /// The lowest `bits` bits (a multiple of 8) with their bytes reversed, the rest zero.
    pub(crate) fn swap_bytes(self, bits: u32) -> Self {
        let swapped = |v: u64| v.swap_bytes().wrapping_shr(64 - bits);
        Self::made(
            swapped(self.value & ones(bits)),
            swapped(self.mask & ones(bits)),
        )
    }

    /// What holds if both do; meaningless unless they [overlap](Self::overlaps).
    pub(crate) fn intersect(self, other: Self) -> Self {
        Self::made(self.value | other.value, self.mask & other.mask)
    }

    /// The fewest bits that hold the numbers of both.
    pub(crate) fn union(self, other: Self) -> Self {
        Self::made(
            self.value & other.value,
            (self.value ^ other.value) | self.mask | other.mask,
        )
    }

    /// The lowest `bits` bits, the rest zero.
    pub(crate) fn cast(self, bits: u32) -> Self {
        Self::made(self.value & ones(bits), self.mask & ones(bits))
    }

    /// The lower half (the 32-bit subregister), the upper half zero.
    pub(crate) fn subreg(self) -> Self {
        self.cast(WIDTH / 2)
    }

    /// The upper half, the lower half zero.
    pub(crate) fn clear_subreg(self) -> Self {
        Self::made(self.value & !Self::LOW, self.mask & !Self::LOW)
    }

    /// The upper half of `self` over the lower half of `lower`.
    pub(crate) fn with_subreg(self, lower: Self) -> Self {
        self.clear_subreg().or(lower.subreg())
    }
}

/// `(value; mask)` in hexadecimal, as kernel logs print it.
impl<const WIDTH: u32> fmt::Display for KnownBits<WIDTH> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({:#x}; {:#x})", self.value, self.mask)
    }
}

impl<const WIDTH: u32> fmt::Debug for KnownBits<WIDTH> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A number with the lowest `bits` bits set.
pub(crate) const fn ones(bits: u32) -> u64 {
    match bits {
        0 => 0,
        64.. => u64::MAX,
        _ => (1 << bits) - 1,
    }
}

/// The lowest `bits` bits (1 to 64) as a signed number.
pub(crate) const fn signed(value: u64, bits: u32) -> i64 {
    let up = 64 - bits;
    ((value << up) as i64) >> up
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDTH: u32 = 5;
    type Small = KnownBits<WIDTH>;

    fn all() -> impl Iterator<Item = Small> + Clone {
        let numbers = 0..1u64 << WIDTH;
        numbers.clone().flat_map(move |mask| {
            let values = numbers.clone().filter(move |value| value & mask == 0);
            values.map(move |value| KnownBits { value, mask })
        })
    }

    fn numbers(set: Small) -> impl Iterator<Item = u64> {
        (0..1u64 << WIDTH).filter(move |n| set.holds(*n))
    }

    /// The fewest known bits that hold all results.
    fn best(results: impl Iterator<Item = u64>) -> Small {
        let set = results.map(Small::constant).reduce(Small::union);
        set.expect("no set of all() is empty")
    }

    #[test]
    fn every_pair_of_small_numbers_computes_soundly_and_sums_exactly() {
        type Pair = (
            &'static str,
            fn(Small, Small) -> Small,
            fn(u64, u64) -> u64,
            bool,
        );
        let pairs: [Pair; 6] = [
            ("add", Small::add, u64::wrapping_add, true),
            ("sub", Small::sub, u64::wrapping_sub, true),
            ("mul", Small::mul, u64::wrapping_mul, false),
            ("and", Small::and, |a, b| a & b, true),
            ("or", Small::or, |a, b| a | b, true),
            ("xor", Small::xor, |a, b| a ^ b, true),
        ];
        for (a, b) in all().flat_map(|a| all().map(move |b| (a, b))) {
            for (name, set, number, exact) in pairs {
                let results = || numbers(a).flat_map(|x| numbers(b).map(move |y| number(x, y)));
                let result = set(a, b);
                let missing = results().find(|r| !result.holds(*r));
                assert_eq!(missing, None, "{a} {name} {b} is {result}");
                assert!(
                    !exact || result == best(results()),
                    "{a} {name} {b} is {result}"
                );
            }
            assert_eq!(a.contains(b), numbers(b).all(|n| a.holds(n)), "{a} {b}");
            assert_eq!(a.overlaps(b), numbers(b).any(|n| a.holds(n)), "{a} {b}");
            if a.overlaps(b) {
                let both = best(numbers(a).filter(|n| b.holds(*n)));
                assert_eq!(a.intersect(b), both, "{a} {b}");
            }
            assert_eq!(a.union(b), best(numbers(a).chain(numbers(b))), "{a} {b}");
        }
    }

    #[test]
    fn every_small_number_shifts_and_casts_exactly() {
        for a in all() {
            for shift in 0..WIDTH {
                assert_eq!(a.lsh(shift), best(numbers(a).map(|n| n << shift)));
                assert_eq!(a.rsh(shift), best(numbers(a).map(|n| n >> shift)));
                let arsh = numbers(a).map(|n| (signed(n, WIDTH) >> shift) as u64);
                assert_eq!(a.arsh(shift, WIDTH), best(arsh));
            }
            for bits in 1..=WIDTH {
                assert_eq!(a.cast(bits), best(numbers(a).map(|n| n & ones(bits))));
                let multiple = numbers(a).all(|n| n.is_multiple_of(1 << (bits - 1)));
                assert_eq!(a.is_aligned(1 << (bits - 1)), multiple);
            }
            let rebuilt = a.with_subreg(a.subreg());
            assert_eq!(rebuilt, a);
            assert_eq!(a.neg(), best(numbers(a).map(u64::wrapping_neg)));
            assert_eq!(a.known().is_some(), numbers(a).count() == 1);
        }
    }

    #[test]
    fn every_small_range_is_held_by_the_fewest_bits_with_its_common_lead() {
        for min in 0..1u64 << WIDTH {
            for max in min..1 << WIDTH {
                let range = Small::range(min, max);
                assert_eq!(range, best(min..=max));
            }
        }
        assert_eq!(Tnum::range(0, u64::MAX), Tnum::UNKNOWN);
        assert_eq!(Tnum::range(5, 5), Tnum::constant(5));
    }
}
