//! What the verifier knows about a number in a register: known bits and ranges.
//!
//! Owns the transfer functions of arithmetic, the outcome of comparisons, and what a branch teaches about its operands.
//! Pointers and the identity of registers are the caller's. A number has four ranges (unsigned and signed, of the
//! register and of its lower half) and a tnum; [`Number::sync`] lets each learn from the others. Everything is as
//! precise as Linux 6.18, no more and no less, because verdicts shall be equal; the order of deductions therefore
//! matters. Generic over the width only so that tests can try every number of a small width on the very same code.
//! Invariant: a concrete number that satisfied the facts before satisfies them after; `scalar/tests.rs` holds every
//! function to it.

use std::fmt;

use crate::verify::range::Range;
use crate::verify::tnum::{KnownBits, ones, signed};

/// What is known about the number in a 64-bit register.
pub(crate) type Scalar = Number<64>;

/// An arithmetic operation of RFC 9669 section 4.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alu {
    /// Sum.
    Add,
    /// Difference.
    Sub,
    /// Product.
    Mul,
    /// Unsigned quotient, 0 by 0.
    Div,
    /// Unsigned remainder, the dividend by 0.
    Mod,
    /// Signed quotient.
    Sdiv,
    /// Signed remainder.
    Smod,
    /// Conjunction.
    And,
    /// Disjunction.
    Or,
    /// Exclusive disjunction.
    Xor,
    /// Shift left.
    Lsh,
    /// Shift right, filling zeros.
    Rsh,
    /// Shift right, filling the sign.
    Arsh,
    /// Negation; the right operand is ignored.
    Neg,
    /// The right operand.
    Mov,
}

/// The condition of a jump (RFC 9669 section 4.3): left operand against right operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cond {
    /// Equal.
    Eq,
    /// Not equal.
    Ne,
    /// Some bit in common.
    Set,
    /// Unsigned greater.
    Gt,
    /// Unsigned greater or equal.
    Ge,
    /// Unsigned less.
    Lt,
    /// Unsigned less or equal.
    Le,
    /// Signed greater.
    Sgt,
    /// Signed greater or equal.
    Sge,
    /// Signed less.
    Slt,
    /// Signed less or equal.
    Sle,
}

/// Facts about a number of `WIDTH` bits; the fields named 32 are about its lower half.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Number<const WIDTH: u32> {
    /// Known bits.
    pub(crate) tnum: KnownBits<WIDTH>,
    /// Least value, unsigned.
    pub(crate) umin: u64,
    /// Greatest value, unsigned.
    pub(crate) umax: u64,
    /// Least value, signed.
    pub(crate) smin: i64,
    /// Greatest value, signed.
    pub(crate) smax: i64,
    /// Least value of the lower half, unsigned.
    pub(crate) u32_min: u32,
    /// Greatest value of the lower half, unsigned.
    pub(crate) u32_max: u32,
    /// Least value of the lower half, signed.
    pub(crate) s32_min: i32,
    /// Greatest value of the lower half, signed.
    pub(crate) s32_max: i32,
}

impl<const WIDTH: u32> Number<WIDTH> {
    const HALF: u32 = WIDTH / 2;
    /// The bits of the lower half.
    const LOW: u64 = ones(WIDTH / 2);

    /// Any number.
    pub(crate) const UNKNOWN: Self = Number {
        tnum: KnownBits::UNKNOWN,
        umin: 0,
        umax: ones(WIDTH),
        smin: i64::MIN >> (64 - WIDTH),
        smax: i64::MAX >> (64 - WIDTH),
        u32_min: 0,
        u32_max: ones(WIDTH / 2) as u32,
        s32_min: i32::MIN >> (32 - WIDTH / 2),
        s32_max: i32::MAX >> (32 - WIDTH / 2),
    };

    /// Exactly this number.
    pub(crate) const fn constant(value: u64) -> Self {
        let (unsigned, low) = (value & ones(WIDTH), value & ones(WIDTH / 2));
        Number {
            tnum: KnownBits::constant(value),
            umin: unsigned,
            umax: unsigned,
            smin: signed(value, WIDTH),
            smax: signed(value, WIDTH),
            u32_min: low as u32,
            u32_max: low as u32,
            s32_min: signed(value, WIDTH / 2) as i32,
            s32_max: signed(value, WIDTH / 2) as i32,
        }
    }

    /// Any number from `min` to `max`, unsigned.
    pub(crate) fn between(min: u64, max: u64) -> Self {
        let mut number = Self::UNKNOWN;
        number.umin = min;
        number.umax = max;
        number.sync();
        number
    }

    /// Any number from `min` to `max`, signed and within the lower half's signed range (results of helpers).
    pub(crate) fn between_signed(min: i32, max: i32) -> Self {
        let mut number = Self::UNKNOWN;
        number.narrow_signed(min, max);
        number
    }

    /// Learns that the number lies from `min` to `max`, signed, in both widths.
    pub(crate) fn narrow_signed(&mut self, min: i32, max: i32) {
        self.smin = self.smin.max(i64::from(min));
        self.smax = self.smax.min(i64::from(max));
        self.s32_min = self.s32_min.max(min);
        self.s32_max = self.s32_max.min(max);
        self.sync();
    }

    /// The number, if it is known.
    pub(crate) fn value(&self) -> Option<u64> {
        self.tnum.known()
    }

    /// The lower half, if it is known.
    pub(crate) fn low_value(&self) -> Option<u64> {
        self.tnum.subreg().known()
    }

    /// Whether a register with these facts may contain `number`.
    pub(crate) fn holds(&self, number: u64) -> bool {
        let number = number & ones(WIDTH);
        self.tnum.holds(number)
            && self.wide().holds(number)
            && self.half().holds(number & Self::LOW)
    }

    /// Whether all facts of `old` follow from those of `self`: what was safe with `old` is safe with `self`.
    pub(crate) fn within(&self, old: &Self) -> bool {
        self.wide().within(&old.wide())
            && self.half().within(&old.half())
            && old.tnum.contains(self.tnum)
    }

    /// Whether no number satisfies the facts.
    pub(crate) fn is_contradictory(&self) -> bool {
        let wrong = |range: Range, bits: Option<u64>| {
            range.umin > range.umax
                || range.smin > range.smax
                || bits.is_some_and(|value| range != Range::constant(value, range.bits))
        };
        wrong(self.wide(), self.value()) || wrong(self.half(), self.low_value())
    }

    /// The result of `self op rhs` on the register (`wide`) or on lower halves, which zeroes the upper half.
    ///
    /// Quotients, remainders and shifts by other than a constant below the width are unknown, in both widths.
    pub(crate) fn alu(&self, op: Alu, wide: bool, rhs: &Self) -> Self {
        let mut result = match op {
            Alu::Mov => *rhs,
            Alu::Neg => Self::constant(0).sum(self, false),
            Alu::Add => self.sum(rhs, true),
            Alu::Sub => self.sum(rhs, false),
            Alu::Mul => self.product(rhs),
            Alu::And | Alu::Or | Alu::Xor => self.bitwise(op, rhs),
            Alu::Lsh | Alu::Rsh | Alu::Arsh => match rhs.shift_count(wide) {
                Some(count) => self.shifted(op, wide, count),
                None => return Self::UNKNOWN,
            },
            Alu::Div | Alu::Mod | Alu::Sdiv | Alu::Smod => return Self::UNKNOWN,
        };
        if !wide {
            result.low_half_only();
        }
        if op != Alu::Mov || !wide {
            result.sync();
        }
        result
    }

    /// The number after its upper bits are zeroed: what a load of `bits` bits yields. `bits` is a power of two up to the width.
    pub(crate) fn zero_extend(&self, bits: u32) -> Self {
        if bits >= WIDTH {
            return *self;
        }
        let mut result = *self;
        let kept = ones(bits);
        result.tnum = self.tnum.cast(bits);
        if self.umin & !kept == self.umax & !kept {
            result.umin = self.umin & kept;
            result.umax = self.umax & kept;
        } else {
            result.umin = 0;
            result.umax = kept;
        }
        result.smin = result.umin as i64;
        result.smax = result.umax as i64;
        if bits < Self::HALF {
            result.set_half(Range::unknown(Self::HALF));
        }
        result.sync();
        result
    }

    /// The number after bit `bits - 1` is copied upwards: to the width (`wide`), or to the lower half and zeros above.
    /// `bits` is at most half the width.
    pub(crate) fn sign_extend(&self, bits: u32, wide: bool) -> Self {
        let mut result = Self::UNKNOWN;
        let from = if wide { self.wide() } else { self.half() };
        if let Some(value) = self.value() {
            // Also to the lower half alone: the upper half is dropped below.
            result = Self::constant(signed(value, bits) as u64);
        } else {
            let (min, max) = from.sign_extended(bits);
            result.set_half(Range::of_signed(min, max, Self::HALF));
            if wide {
                result.set_wide(Range::of_signed(min, max, WIDTH));
            }
            if (min < 0) == (max < 0) {
                result.tnum = KnownBits::range(min as u64 & ones(WIDTH), max as u64 & ones(WIDTH));
            }
        }
        if !wide {
            result.low_half_only();
            result.sync();
        }
        result
    }

    /// The number after a conversion of byte order of its lowest `bits` bits (16, 32 or the width): `swapped` or left as
    /// they are, and the rest zeroed. Bits are followed, ranges only where nothing is swapped.
    pub(crate) fn byte_order(&self, bits: u32, swapped: bool) -> Self {
        let mut result = *self;
        if swapped {
            result = Number {
                tnum: self.tnum.swap_bytes(bits),
                ..Self::UNKNOWN
            };
        }
        result = result.zero_extend(bits);
        result.sync();
        result
    }

    /// The outcome of `self cond rhs`, if it is the same for all numbers of both.
    pub(crate) fn decide(&self, cond: Cond, wide: bool, rhs: &Self) -> Option<bool> {
        let (a, b) = (self.range(wide), rhs.range(wide));
        let (ta, tb) = (self.bits(wide), rhs.bits(wide));
        match cond {
            Cond::Eq => {
                if let (Some(x), Some(y)) = (ta.known(), tb.known()) {
                    return Some(x == y);
                }
                let apart =
                    !ta.overlaps(tb) || a.apart(&b) || (wide && self.half().apart(&rhs.half()));
                apart.then_some(false)
            }
            Cond::Ne => self.decide(Cond::Eq, wide, rhs).map(|equal| !equal),
            Cond::Set => {
                let (bits, mask) = match (ta.known(), tb.known()) {
                    (_, Some(mask)) => (ta, mask),
                    (Some(mask), None) => (tb, mask),
                    (None, None) => return None,
                };
                if bits.value & mask != 0 {
                    Some(true)
                } else if bits.max() & mask == 0 {
                    Some(false)
                } else {
                    None
                }
            }
            Cond::Gt => known(a.umin > b.umax, a.umax <= b.umin),
            Cond::Sgt => known(a.smin > b.smax, a.smax <= b.smin),
            Cond::Lt => known(a.umax < b.umin, a.umin >= b.umax),
            Cond::Slt => known(a.smax < b.smin, a.smin >= b.smax),
            Cond::Ge => known(a.umin >= b.umax, a.umax < b.umin),
            Cond::Sge => known(a.smin >= b.smax, a.smax < b.smin),
            Cond::Le => known(a.umax <= b.umin, a.umin > b.umax),
            Cond::Sle => known(a.smax <= b.smin, a.smin > b.smax),
        }
    }

    /// Learns from the branch that `lhs cond rhs` (`taken`) or its negation leads to.
    ///
    /// Yields false when the facts contradict each other: no number leads there. Such an operand loses its ranges,
    /// because the kernel goes on verifying that branch with an unbounded register.
    pub(crate) fn refine(
        cond: Cond,
        wide: bool,
        taken: bool,
        lhs: &mut Self,
        rhs: &mut Self,
    ) -> bool {
        match (cond, taken) {
            (Cond::Eq, true) | (Cond::Ne, false) => Self::learn_equal(wide, lhs, rhs),
            (Cond::Ne, true) | (Cond::Eq, false) => match rhs.bits(wide).known() {
                Some(value) => lhs.learn_other_than(value, wide),
                None => {
                    if let Some(value) = lhs.bits(wide).known() {
                        rhs.learn_other_than(value, wide);
                    }
                }
            },
            (Cond::Set, _) => match rhs.bits(wide).known() {
                Some(mask) => lhs.learn_bits(mask, wide, taken),
                None => {
                    if let Some(mask) = lhs.bits(wide).known() {
                        rhs.learn_bits(mask, wide, taken);
                    }
                }
            },
            (Cond::Le, true) | (Cond::Gt, false) => {
                Self::learn_order(wide, lhs, rhs, Range::at_most)
            }
            (Cond::Lt, true) | (Cond::Ge, false) => Self::learn_order(wide, lhs, rhs, Range::below),
            (Cond::Ge, true) | (Cond::Lt, false) => {
                Self::learn_order(wide, rhs, lhs, Range::at_most)
            }
            (Cond::Gt, true) | (Cond::Le, false) => Self::learn_order(wide, rhs, lhs, Range::below),
            (Cond::Sle, true) | (Cond::Sgt, false) => {
                Self::learn_order(wide, lhs, rhs, Range::at_most_signed);
            }
            (Cond::Slt, true) | (Cond::Sge, false) => {
                Self::learn_order(wide, lhs, rhs, Range::below_signed);
            }
            (Cond::Sge, true) | (Cond::Slt, false) => {
                Self::learn_order(wide, rhs, lhs, Range::at_most_signed);
            }
            (Cond::Sgt, true) | (Cond::Sle, false) => {
                Self::learn_order(wide, rhs, lhs, Range::below_signed);
            }
        }
        let mut possible = true;
        for number in [lhs, rhs] {
            number.sync();
            if number.is_contradictory() {
                number.forget_ranges();
                possible = false;
            }
        }
        possible
    }

    /// [`Number::refine`] for a register compared with itself.
    ///
    /// Linux 6.18 decides such a comparison as if the registers were two, and narrows the one register twice; where that
    /// matters, no number gets there.
    pub(crate) fn refine_itself(cond: Cond, wide: bool, taken: bool, number: &mut Self) -> bool {
        let mut range = number.range(wide);
        match (cond, taken) {
            (Cond::Lt | Cond::Gt, true) | (Cond::Ge | Cond::Le, false) => {
                let mut same = range;
                Range::below(&mut range, &mut same);
                range.umin = same.umin;
            }
            (Cond::Slt | Cond::Sgt, true) | (Cond::Sge | Cond::Sle, false) => {
                let mut same = range;
                Range::below_signed(&mut range, &mut same);
                range.smin = same.smin;
            }
            _ => {}
        }
        number.set_range(wide, range);
        number.sync();
        if number.is_contradictory() {
            number.forget_ranges();
            return false;
        }
        true
    }

    /// Lets ranges and known bits learn from each other.
    pub(crate) fn sync(&mut self) {
        self.learn_ranges_from_bits();
        for _ in 0..3 {
            self.deduce_half();
            self.deduce_signs();
            self.deduce_wide_from_half();
        }
        self.learn_bits_from_ranges();
        self.learn_ranges_from_bits();
    }

    fn learn_ranges_from_bits(&mut self) {
        let (mut half, mut wide) = (self.half(), self.wide());
        half.learn_from_bits(self.tnum.subreg());
        wide.learn_from_bits(self.tnum);
        self.set_half(half);
        self.set_wide(wide);
        if let Some(only) = self.single() {
            *self = Self::constant(only);
        }
    }

    /// The only number with the known bits in the unsigned range: neither of the two knows it alone (`__update_reg64_bounds` of the kernel, from
    /// the stable releases of early 2026 on). With facts that contradict each other it is any number, as there.
    fn single(&self) -> Option<u64> {
        let next = self.tnum.after(self.umin);
        match self.tnum.holds(self.umin) {
            true => (next > self.umax).then_some(self.umin),
            false if next == self.tnum.max() => Some(next),
            false => (next <= self.umax && self.tnum.after(next) > self.umax).then_some(next),
        }
    }

    fn learn_bits_from_ranges(&mut self) {
        let wide = self.tnum.intersect(KnownBits::range(self.umin, self.umax));
        let low = KnownBits::range(u64::from(self.u32_min), u64::from(self.u32_max));
        let low = wide.subreg().intersect(low);
        self.tnum = wide.clear_subreg().or(low);
    }

    /// The lower half from the register's ranges, and its signs from each other.
    fn deduce_half(&mut self) {
        let mut half = self.half();
        let low = |v: u64| v & Self::LOW;
        let low_signed = |v: u64| signed(v, Self::HALF);
        let (umin, umax) = (self.umin, self.umax);
        let (smin, smax) = (self.smin as u64, self.smax as u64);
        // With one upper half for all, the lower halves are a range, too.
        if umin >> Self::HALF == umax >> Self::HALF {
            half.intersect_unsigned(low(umin), low(umax));
            if low_signed(umin) <= low_signed(umax) {
                half.intersect_signed(low_signed(umin), low_signed(umax));
            }
        }
        if self.smin >> Self::HALF == self.smax >> Self::HALF {
            if low(smin) <= low(smax) {
                half.intersect_unsigned(low(smin), low(smax));
            }
            if low_signed(smin) <= low_signed(smax) {
                half.intersect_signed(low_signed(smin), low_signed(smax));
            }
        }
        // Upper halves n and n+1, where the lower half goes from negative through ...ff|00... to positive.
        for (min, max) in [(umin, umax), (smin, smax)] {
            let next = low((min >> Self::HALF).wrapping_add(1)) == low(max >> Self::HALF);
            if next && low_signed(min) < 0 && low_signed(max) >= 0 {
                half.intersect_signed(low_signed(min), low_signed(max));
            }
        }
        half.learn_signs();
        self.set_half(half);
    }

    /// Signed from unsigned range and the other way round.
    fn deduce_signs(&mut self) {
        let mut wide = self.wide();
        wide.learn_signs();
        self.set_wide(wide);
    }

    fn deduce_wide_from_half(&mut self) {
        let mut wide = self.wide();
        let half = self.half();
        let under = |bound: u64, low: u64| (bound & !Self::LOW) | low;
        let under_signed = |bound: i64, low: u64| (bound & !(Self::LOW as i64)) | low as i64;
        let learn = |wide: &mut Range, min: u64, max: u64| {
            wide.intersect_unsigned(under(wide.umin, min), under(wide.umax, max));
            wide.intersect_signed(under_signed(wide.smin, min), under_signed(wide.smax, max));
        };
        learn(&mut wide, half.umin, half.umax);
        let (smin, smax) = (half.unsigned(half.smin), half.unsigned(half.smax));
        if smin <= smax {
            learn(&mut wide, smin, smax);
        }
        self.set_wide(wide);
        // After a sign extension: within the half's signed range and its lower half not negative means that the upper
        // half is zero.
        let unknown = Range::unknown(Self::HALF);
        if half.smin >= 0 && wide.smin >= unknown.smin && wide.smax <= unknown.smax {
            self.set_wide(Range {
                bits: WIDTH,
                umin: half.smin as u64,
                umax: half.smax as u64,
                smin: half.smin,
                smax: half.smax,
            });
            let bits = KnownBits::range(half.smin as u64, half.smax as u64);
            self.tnum = self.tnum.intersect(bits);
        }
    }

    /// Zeroes the upper half.
    fn low_half_only(&mut self) {
        self.tnum = self.tnum.subreg();
        let half = self.half();
        let (smin, smax) = if half.smin >= 0 && half.smax >= 0 {
            (half.smin, half.smax)
        } else {
            (0, Self::LOW as i64)
        };
        self.set_wide(Range {
            bits: WIDTH,
            umin: half.umin,
            umax: half.umax,
            smin,
            smax,
        });
    }

    /// Sum or difference, not synchronised.
    fn sum(&self, rhs: &Self, add: bool) -> Self {
        let mut result = *self;
        let combined = if add { Range::plus } else { Range::minus };
        result.set_half(combined(&self.half(), &rhs.half()));
        result.set_wide(combined(&self.wide(), &rhs.wide()));
        result.tnum = if add {
            self.tnum.add(rhs.tnum)
        } else {
            self.tnum.sub(rhs.tnum)
        };
        result
    }

    /// Product, not synchronised.
    fn product(&self, rhs: &Self) -> Self {
        let mut result = *self;
        result.tnum = self.tnum.mul(rhs.tnum);
        result.set_half(self.half().times(&rhs.half()));
        result.set_wide(self.wide().times(&rhs.wide()));
        result
    }

    /// Bitwise operations, not synchronised; ranges mostly come from the bits.
    fn bitwise(&self, op: Alu, rhs: &Self) -> Self {
        let mut result = *self;
        result.tnum = match op {
            Alu::And => self.tnum.and(rhs.tnum),
            Alu::Or => self.tnum.or(rhs.tnum),
            _ => self.tnum.xor(rhs.tnum),
        };
        let range = |a: Range, b: Range, bits: KnownBits<WIDTH>| match bits.known() {
            Some(value) => Range::constant(value, a.bits),
            None => match op {
                Alu::And => Range::of_unsigned(bits.min(), a.umax.min(b.umax), a.bits),
                Alu::Or => Range::of_unsigned(a.umin.max(b.umin), bits.max(), a.bits),
                _ => Range::of_unsigned(bits.min(), bits.max(), a.bits),
            },
        };
        result.set_half(range(self.half(), rhs.half(), result.tnum.subreg()));
        result.set_wide(range(self.wide(), rhs.wide(), result.tnum));
        result
    }

    /// The shift count if it is one constant below the operation's width.
    fn shift_count(&self, wide: bool) -> Option<u32> {
        let width = if wide { WIDTH } else { Self::HALF };
        let range = self.range(wide);
        let known = self.bits(wide).is_constant() && range.umin == range.umax;
        // Also on lower halves the whole register must be below the width, as in the kernel.
        (known && range.smin == range.smax && self.umax < u64::from(width))
            .then_some(range.umin as u32)
    }

    /// Shifts, not synchronised.
    fn shifted(&self, op: Alu, wide: bool, count: u32) -> Self {
        let mut result = Self::UNKNOWN;
        let half = self.half();
        if !wide {
            let low = self.tnum.subreg();
            result.tnum = match op {
                Alu::Lsh => low.lsh(count).subreg(),
                Alu::Rsh => low.rsh(count),
                _ => low.arsh(count, Self::HALF),
            };
            let mut range = half.shifted(op, count);
            range.learn_from_bits(result.tnum);
            result.set_half(range);
            return result;
        }
        result.tnum = match op {
            Alu::Lsh => self.tnum.lsh(count),
            Alu::Rsh => self.tnum.rsh(count),
            _ => self.tnum.arsh(count, WIDTH),
        };
        let mut range = self.wide().shifted(op, count);
        if op == Alu::Lsh {
            // The first of the two shifts by which compilers extend the sign of the lower half.
            if count == Self::HALF {
                range.smin = half.smin << Self::HALF;
                range.smax = half.smax << Self::HALF;
            }
            result.set_half(half.shifted(op, count));
        }
        result.set_wide(range);
        result
    }

    fn learn_equal(wide: bool, lhs: &mut Self, rhs: &mut Self) {
        let mut range = lhs.range(wide);
        let other = rhs.range(wide);
        range.intersect_unsigned(other.umin, other.umax);
        range.intersect_signed(other.smin, other.smax);
        let bits = lhs.bits(wide).intersect(rhs.bits(wide));
        for number in [lhs, rhs] {
            number.set_range(wide, range);
            number.tnum = if wide {
                bits
            } else {
                number.tnum.with_subreg(bits)
            };
        }
    }

    /// Moves the ends of the ranges that are `value`.
    fn learn_other_than(&mut self, value: u64, wide: bool) {
        let mut range = self.range(wide);
        let negative = signed(value, range.bits);
        if range.umin == value {
            range.umin = range.umin.wrapping_add(1) & ones(range.bits);
        }
        if range.umax == value {
            range.umax = range.umax.wrapping_sub(1) & ones(range.bits);
        }
        if range.smin == negative {
            range.smin = signed(range.smin.wrapping_add(1) as u64, range.bits);
        }
        if range.smax == negative {
            range.smax = signed(range.smax.wrapping_sub(1) as u64, range.bits);
        }
        self.set_range(wide, range);
    }

    /// Learns that some bit of `mask` is set, which says something if it is a single bit, or that none is.
    fn learn_bits(&mut self, mask: u64, wide: bool, set: bool) {
        if set && !mask.is_power_of_two() {
            return;
        }
        let mask = KnownBits::constant(if set { mask } else { !mask });
        if !set {
            // On a branch that cannot be taken, ranges and bits would contradict each other.
            self.forget_ranges();
        }
        let bits = self.bits(wide);
        let learnt = if set { bits.or(mask) } else { bits.and(mask) };
        self.tnum = if wide {
            learnt
        } else {
            self.tnum.with_subreg(learnt)
        };
    }

    fn learn_order(
        wide: bool,
        less: &mut Self,
        more: &mut Self,
        order: fn(&mut Range, &mut Range),
    ) {
        let (mut a, mut b) = (less.range(wide), more.range(wide));
        order(&mut a, &mut b);
        less.set_range(wide, a);
        more.set_range(wide, b);
    }

    /// Keeps the known bits only.
    fn forget_ranges(&mut self) {
        *self = Number {
            tnum: self.tnum,
            ..Self::UNKNOWN
        };
    }

    fn bits(&self, wide: bool) -> KnownBits<WIDTH> {
        if wide { self.tnum } else { self.tnum.subreg() }
    }

    fn range(&self, wide: bool) -> Range {
        if wide { self.wide() } else { self.half() }
    }

    fn set_range(&mut self, wide: bool, range: Range) {
        if wide {
            self.set_wide(range);
        } else {
            self.set_half(range);
        }
    }

    fn wide(&self) -> Range {
        Range {
            bits: WIDTH,
            umin: self.umin,
            umax: self.umax,
            smin: self.smin,
            smax: self.smax,
        }
    }

    fn set_wide(&mut self, range: Range) {
        self.umin = range.umin;
        self.umax = range.umax;
        self.smin = range.smin;
        self.smax = range.smax;
    }

    fn half(&self) -> Range {
        Range {
            bits: Self::HALF,
            umin: u64::from(self.u32_min),
            umax: u64::from(self.u32_max),
            smin: i64::from(self.s32_min),
            smax: i64::from(self.s32_max),
        }
    }

    /// Every bound of `range` fits the half: ranges never leave their width.
    fn set_half(&mut self, range: Range) {
        self.u32_min = range.umin as u32;
        self.u32_max = range.umax as u32;
        self.s32_min = range.smin as i32;
        self.s32_max = range.smax as i32;
    }
}

impl<const WIDTH: u32> fmt::Debug for Number<WIDTH> {
    /// The number or, where it is not known, what differs from knowing nothing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(value) = self.value() {
            return write!(f, "{value:#x}");
        }
        let any = Self::UNKNOWN;
        write!(f, "scalar(")?;
        if (self.umin, self.umax) != (any.umin, any.umax) {
            write!(f, "u={:#x}..={:#x} ", self.umin, self.umax)?;
        }
        if (self.smin, self.smax) != (any.smin, any.smax) {
            write!(f, "s={}..={} ", self.smin, self.smax)?;
        }
        if (self.u32_min, self.u32_max) != (any.u32_min, any.u32_max) {
            write!(f, "u32={:#x}..={:#x} ", self.u32_min, self.u32_max)?;
        }
        if (self.s32_min, self.s32_max) != (any.s32_min, any.s32_max) {
            write!(f, "s32={}..={} ", self.s32_min, self.s32_max)?;
        }
        write!(f, "bits={})", self.tnum)
    }
}

/// Some if one of two exclusive conditions holds.
fn known(yes: bool, no: bool) -> Option<bool> {
    if yes {
        Some(true)
    } else if no {
        Some(false)
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
