//! Bounds of a number of one width: unsigned and signed side by side.
//!
//! Owns what follows from bounds alone, for the register and for its lower half alike; known bits and the exchange
//! between the halves are in `scalar`. Bounds may contradict each other (no number satisfies them) and stay so.
//! Invariant: no bound leaves the range's bits, so that it can be stored in the field of that width.

use crate::verify::scalar::Alu;
use crate::verify::tnum::{KnownBits, ones, signed};

/// Unsigned and signed bounds of the same number of `bits` bits; signed ones are sign-extended to 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) bits: u32,
    pub(crate) umin: u64,
    pub(crate) umax: u64,
    pub(crate) smin: i64,
    pub(crate) smax: i64,
}

impl Range {
    pub(crate) const fn unknown(bits: u32) -> Range {
        Range {
            bits,
            umin: 0,
            umax: ones(bits),
            smin: i64::MIN >> (64 - bits),
            smax: i64::MAX >> (64 - bits),
        }
    }

    pub(crate) fn constant(value: u64, bits: u32) -> Range {
        Range {
            bits,
            umin: value,
            umax: value,
            smin: signed(value, bits),
            smax: signed(value, bits),
        }
    }

    /// Unsigned bounds; signed ones follow if no sign lies between.
    pub(crate) fn of_unsigned(umin: u64, umax: u64, bits: u32) -> Range {
        let (smin, smax) = (signed(umin, bits), signed(umax, bits));
        let any = Range::unknown(bits);
        let ordered = smin <= smax;
        Range {
            bits,
            umin,
            umax,
            smin: if ordered { smin } else { any.smin },
            smax: if ordered { smax } else { any.smax },
        }
    }

    /// Signed bounds; unsigned ones follow if both have one sign.
    pub(crate) fn of_signed(smin: i64, smax: i64, bits: u32) -> Range {
        let any = Range::unknown(bits);
        if (smin < 0) != (smax < 0) {
            return Range { smin, smax, ..any };
        }
        Range {
            bits,
            umin: any.unsigned(smin),
            umax: any.unsigned(smax),
            smin,
            smax,
        }
    }

    /// A signed bound as an unsigned number of the same bits.
    pub(crate) fn unsigned(&self, bound: i64) -> u64 {
        bound as u64 & ones(self.bits)
    }

    pub(crate) fn holds(&self, number: u64) -> bool {
        let negative = signed(number, self.bits);
        self.umin <= number && number <= self.umax && self.smin <= negative && negative <= self.smax
    }

    pub(crate) fn within(&self, old: &Range) -> bool {
        old.umin <= self.umin
            && self.umax <= old.umax
            && old.smin <= self.smin
            && self.smax <= old.smax
    }

    /// Whether the bounds alone rule out a common number.
    pub(crate) fn apart(&self, other: &Range) -> bool {
        self.umin > other.umax
            || self.umax < other.umin
            || self.smin > other.smax
            || self.smax < other.smin
    }

    pub(crate) fn intersect_unsigned(&mut self, min: u64, max: u64) {
        self.umin = self.umin.max(min);
        self.umax = self.umax.min(max);
    }

    pub(crate) fn intersect_signed(&mut self, min: i64, max: i64) {
        self.smin = self.smin.max(min);
        self.smax = self.smax.min(max);
    }

    pub(crate) fn learn_from_bits<const WIDTH: u32>(&mut self, known: KnownBits<WIDTH>) {
        let sign = 1 << (self.bits - 1);
        // The least signed number has the sign if it may and nothing else that is unknown.
        let least = known.value | (known.mask & sign);
        let most = known.value | (known.mask & !sign);
        self.intersect_signed(signed(least, self.bits), signed(most, self.bits));
        self.intersect_unsigned(known.min(), known.max());
    }

    /// Signed from unsigned bounds and back. A signed range over zero is two pieces of the unsigned one, [0, smax] and [smin, max]; where
    /// the unsigned bounds rule one out, the other is left (`__reg32_deduce_bounds` and `__reg64_deduce_bounds` of the kernel).
    pub(crate) fn learn_signs(&mut self) {
        let (smin, smax) = (signed(self.umin, self.bits), signed(self.umax, self.bits));
        if smin <= smax {
            self.intersect_signed(smin, smax);
        }
        let (umin, umax) = (self.unsigned(self.smin), self.unsigned(self.smax));
        if umin <= umax {
            self.intersect_unsigned(umin, umax);
        } else if self.umax < umin {
            self.smin = signed(self.umin, self.bits);
            self.umax = self.umax.min(umax);
        } else if umax < self.umin {
            self.smax = signed(self.umax, self.bits);
            self.umin = self.umin.max(umin);
        }
    }

    /// Sums; unsigned bounds hold if all of them wrap or none.
    pub(crate) fn plus(&self, rhs: &Range) -> Range {
        let any = Range::unknown(self.bits);
        let signed = |a: i64, b: i64| a.checked_add(b).filter(|sum| any.fits(*sum));
        let signed = signed(self.smin, rhs.smin).zip(signed(self.smax, rhs.smax));
        let wraps = |a: u64, b: u64| a.checked_add(b).is_none_or(|sum| sum > any.umax);
        let unsigned = wraps(self.umin, rhs.umin) || !wraps(self.umax, rhs.umax);
        let sum = |a: u64, b: u64| a.wrapping_add(b) & any.umax;
        let unsigned = unsigned.then(|| (sum(self.umin, rhs.umin), sum(self.umax, rhs.umax)));
        any.with(unsigned, signed)
    }

    /// Differences; unsigned bounds hold if all of them wrap or none.
    pub(crate) fn minus(&self, rhs: &Range) -> Range {
        let any = Range::unknown(self.bits);
        let signed = |a: i64, b: i64| a.checked_sub(b).filter(|rest| any.fits(*rest));
        let signed = signed(self.smin, rhs.smax).zip(signed(self.smax, rhs.smin));
        let unsigned = self.umin >= rhs.umax || self.umax < rhs.umin;
        let rest = |a: u64, b: u64| a.wrapping_sub(b) & any.umax;
        let unsigned = unsigned.then(|| (rest(self.umin, rhs.umax), rest(self.umax, rhs.umin)));
        any.with(unsigned, signed)
    }

    /// Products that do not wrap.
    pub(crate) fn times(&self, rhs: &Range) -> Range {
        let any = Range::unknown(self.bits);
        let unsigned = |a: u64, b: u64| a.checked_mul(b).filter(|p| *p <= any.umax);
        let unsigned = unsigned(self.umin, rhs.umin).zip(unsigned(self.umax, rhs.umax));
        let signed = |a: i64, b: i64| a.checked_mul(b).filter(|p| any.fits(*p));
        let corners = [
            signed(self.smin, rhs.smin),
            signed(self.smin, rhs.smax),
            signed(self.smax, rhs.smin),
            signed(self.smax, rhs.smax),
        ];
        let signed = corners
            .iter()
            .try_fold((i64::MAX, i64::MIN), |(min, max), corner| {
                corner.map(|product| (min.min(product), max.max(product)))
            });
        any.with(unsigned, signed)
    }

    fn fits(&self, number: i64) -> bool {
        self.smin <= number && number <= self.smax
    }

    /// The bounds given, those of `self` for the others.
    fn with(self, unsigned: Option<(u64, u64)>, signed: Option<(i64, i64)>) -> Range {
        let (umin, umax) = unsigned.unwrap_or((self.umin, self.umax));
        let (smin, smax) = signed.unwrap_or((self.smin, self.smax));
        Range {
            bits: self.bits,
            umin,
            umax,
            smin,
            smax,
        }
    }

    /// Shifts by a constant; bounds that only the bits tell are unknown.
    pub(crate) fn shifted(&self, op: Alu, count: u32) -> Range {
        let any = Range::unknown(self.bits);
        match op {
            Alu::Lsh if count < self.bits && self.umax <= 1 << (self.bits - 1 - count) => Range {
                umin: self.umin << count,
                umax: self.umax << count,
                ..any
            },
            Alu::Rsh => Range {
                umin: self.umin >> count,
                umax: self.umax >> count,
                ..any
            },
            Alu::Arsh => Range {
                smin: self.smin >> count,
                smax: self.smax >> count,
                ..any
            },
            _ => any,
        }
    }

    /// Signed bounds after bit `bits - 1` is copied upwards.
    pub(crate) fn sign_extended(&self, bits: u32) -> (i64, i64) {
        let any = Range::unknown(bits);
        let (min, max) = (
            signed(self.smin as u64, bits),
            signed(self.smax as u64, bits),
        );
        // Among numbers that differ in the lowest bits only, those of one sign keep their order.
        let one_block = bits == 64 || self.smin >> bits == self.smax >> bits;
        if one_block && (min < 0) == (max < 0) {
            (min, max)
        } else {
            (any.smin, any.smax)
        }
    }

    /// Learns `a <= b`.
    pub(crate) fn at_most(a: &mut Range, b: &mut Range) {
        a.umax = a.umax.min(b.umax);
        b.umin = a.umin.max(b.umin);
    }

    /// Learns `a < b`. Should it be impossible, the bounds may wrap; then they contradict each other afterwards.
    pub(crate) fn below(a: &mut Range, b: &mut Range) {
        a.umax = a.umax.min(b.umax.wrapping_sub(1) & ones(b.bits));
        b.umin = b.umin.max(a.umin.wrapping_add(1) & ones(a.bits));
    }

    /// Learns `a <= b`, signed.
    pub(crate) fn at_most_signed(a: &mut Range, b: &mut Range) {
        a.smax = a.smax.min(b.smax);
        b.smin = a.smin.max(b.smin);
    }

    /// Learns `a < b`, signed.
    pub(crate) fn below_signed(a: &mut Range, b: &mut Range) {
        a.smax = a.smax.min(signed(b.smax.wrapping_sub(1) as u64, b.bits));
        b.smin = b.smin.max(signed(a.smin.wrapping_add(1) as u64, a.bits));
    }
}
