//! Numbers bit by bit: each bit is known, or is one of the inputs, possibly inverted, or unknown.
//!
//! Enough to see a field of the packet through loads, shifts, masks, swaps and comparisons with constants, which is how
//! compilers read headers. Invariant: a bit that is an input equals that input for every value of all inputs.

/// One bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bit {
    Known(bool),
    /// The input with this number, inverted if so said.
    Input(u32, bool),
    Unknown,
}

/// A 64-bit number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bits([Bit; 64]);

impl Bits {
    pub(super) const UNKNOWN: Bits = Bits([Bit::Unknown; 64]);

    pub(super) fn constant(value: u64) -> Bits {
        Bits(std::array::from_fn(|i| Bit::Known(value >> i & 1 == 1)))
    }

    /// `width` bits of the inputs from `first` on, zero-extended.
    pub(super) fn input(first: u32, width: usize) -> Bits {
        Bits(std::array::from_fn(|i| {
            if i < width {
                Bit::Input(first + i as u32, false)
            } else {
                Bit::Known(false)
            }
        }))
    }

    /// From bytes, lowest first, zero-extended.
    pub(super) fn from_bytes(bytes: &[[Bit; 8]]) -> Bits {
        Bits(std::array::from_fn(|i| {
            bytes.get(i / 8).map_or(Bit::Known(false), |b| b[i % 8])
        }))
    }

    /// The lowest `n` bytes.
    pub(super) fn bytes(&self, n: usize) -> Vec<[Bit; 8]> {
        let (bytes, _) = self.0.as_chunks::<8>();
        bytes.iter().take(n).copied().collect()
    }

    /// The number, if every bit is known.
    pub(super) fn value(&self) -> Option<u64> {
        let mut value = 0;
        for (i, bit) in self.0.iter().enumerate() {
            match bit {
                Bit::Known(bit) => value |= u64::from(*bit) << i,
                _ => return None,
            }
        }
        Some(value)
    }

    /// The number for given inputs; unknown bits count as 0.
    pub(super) fn evaluate(&self, input: impl Fn(u32) -> bool) -> u64 {
        let mut value = 0;
        for (i, bit) in self.0.iter().enumerate() {
            let bit = match bit {
                Bit::Known(bit) => *bit,
                Bit::Input(n, inverted) => input(*n) != *inverted,
                Bit::Unknown => false,
            };
            value |= u64::from(bit) << i;
        }
        value
    }

    /// The inputs that make the lowest `width` bits equal `wanted`, if known bits do not stand against it.
    pub(super) fn solve(&self, wanted: u64, width: usize) -> Option<Vec<(u32, bool)>> {
        let mut inputs = Vec::new();
        for (i, bit) in self.0.iter().enumerate().take(width) {
            let want = wanted >> i & 1 == 1;
            match bit {
                Bit::Known(known) if *known != want => return None,
                Bit::Known(_) => {}
                Bit::Input(n, inverted) => inputs.push((*n, want != *inverted)),
                Bit::Unknown => return None,
            }
        }
        Some(inputs)
    }

    /// Inputs it depends on directly.
    pub(super) fn inputs(&self) -> impl Iterator<Item = (u32, bool)> {
        self.0.iter().filter_map(|bit| match bit {
            Bit::Input(n, inverted) => Some((*n, *inverted)),
            _ => None,
        })
    }

    /// The low 32 bits, zero-extended.
    pub(super) fn low32(&self) -> Bits {
        Bits(std::array::from_fn(|i| match i {
            0..32 => self.0[i],
            _ => Bit::Known(false),
        }))
    }

    pub(super) fn shift_left(&self, by: u32) -> Bits {
        let by = by as usize;
        Bits(std::array::from_fn(|i| {
            i.checked_sub(by)
                .map_or(Bit::Known(false), |from| self.0[from])
        }))
    }

    /// `top` is what comes in: the sign, or 0.
    pub(super) fn shift_right(&self, by: u32, top: Bit) -> Bits {
        Bits(std::array::from_fn(|i| {
            self.0.get(i + by as usize).copied().unwrap_or(top)
        }))
    }

    /// The highest bit of `width`.
    pub(super) fn sign(&self, width: usize) -> Bit {
        self.0.get(width - 1).copied().unwrap_or(Bit::Unknown)
    }

    /// The lowest `width` bits, sign-extended.
    pub(super) fn sign_extended(&self, width: usize) -> Bits {
        let sign = self.sign(width);
        Bits(std::array::from_fn(|i| {
            if i < width { self.0[i] } else { sign }
        }))
    }

    /// The lowest `width` bits with their bytes in reverse order, zero-extended.
    pub(super) fn swapped(&self, width: usize) -> Bits {
        let mut bytes = self.bytes(width / 8);
        bytes.reverse();
        Bits::from_bytes(&bytes)
    }

    pub(super) fn and(&self, other: &Bits) -> Bits {
        self.zip(other, |a, b| match (a, b) {
            (Bit::Known(false), _) | (_, Bit::Known(false)) => Bit::Known(false),
            (Bit::Known(true), x) | (x, Bit::Known(true)) => x,
            (a, b) if a == b => a,
            _ => Bit::Unknown,
        })
    }

    pub(super) fn or(&self, other: &Bits) -> Bits {
        self.zip(other, |a, b| match (a, b) {
            (Bit::Known(true), _) | (_, Bit::Known(true)) => Bit::Known(true),
            (Bit::Known(false), x) | (x, Bit::Known(false)) => x,
            (a, b) if a == b => a,
            _ => Bit::Unknown,
        })
    }

    pub(super) fn xor(&self, other: &Bits) -> Bits {
        self.zip(other, |a, b| match (a, b) {
            (Bit::Known(false), x) | (x, Bit::Known(false)) => x,
            (Bit::Known(true), x) | (x, Bit::Known(true)) => inverted(x),
            (a, b) if a == b && a != Bit::Unknown => Bit::Known(false),
            _ => Bit::Unknown,
        })
    }

    /// Exact while no two bits meet that may both be 1; from there on up unknown.
    pub(super) fn add(&self, other: &Bits) -> Bits {
        if let (Some(a), Some(b)) = (self.value(), other.value()) {
            return Bits::constant(a.wrapping_add(b));
        }
        let mut out = [Bit::Unknown; 64];
        for (i, slot) in out.iter_mut().enumerate() {
            *slot = match (self.0[i], other.0[i]) {
                (Bit::Known(false), x) | (x, Bit::Known(false)) => x,
                _ => break,
            };
        }
        Bits(out)
    }

    fn zip(&self, other: &Bits, f: impl Fn(Bit, Bit) -> Bit) -> Bits {
        Bits(std::array::from_fn(|i| f(self.0[i], other.0[i])))
    }
}

fn inverted(bit: Bit) -> Bit {
    match bit {
        Bit::Known(known) => Bit::Known(!known),
        Bit::Input(n, was) => Bit::Input(n, !was),
        Bit::Unknown => Bit::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field read byte by byte and put together, as compilers do for packed structs.
    #[test]
    fn a_field_is_seen_through_shifts_and_masks() {
        let low = Bits::input(0, 8);
        let high = Bits::input(8, 8);
        let word = high.shift_left(8).or(&low);
        assert_eq!(word, Bits::input(0, 16));
        let swapped = word.swapped(16);
        let inputs = swapped.solve(0x0800, 16).expect("all bits are inputs");
        let set: Vec<u32> = inputs.iter().filter(|(_, v)| *v).map(|(n, _)| *n).collect();
        assert_eq!(set, [3], "bit 11 of the number is bit 3 of the first byte");
        let nibble = low.and(&Bits::constant(15)).shift_left(2);
        assert!(nibble.solve(20, 64).is_some());
        assert_eq!(nibble.solve(21, 64), None, "the low bits are zero");
        assert_eq!(nibble.evaluate(|n| n == 0 || n == 2), 20);
    }

    #[test]
    fn what_is_known_is_computed_as_by_the_machine() {
        let samples = [0, 1, 0xff, 0x8000_0000, u64::MAX, 0x1234_5678_9abc_def0];
        for a in samples {
            let x = Bits::constant(a);
            assert_eq!(x.value(), Some(a));
            assert_eq!(x.low32().value(), Some(a & 0xffff_ffff));
            assert_eq!(
                x.swapped(32).value(),
                Some(u64::from((a as u32).swap_bytes()))
            );
            assert_eq!(x.sign_extended(8).value(), Some(a as i8 as u64));
            assert_eq!(
                x.shift_right(7, x.sign(64)).value(),
                Some((a as i64 >> 7) as u64)
            );
            for b in samples {
                let y = Bits::constant(b);
                assert_eq!(x.and(&y).value(), Some(a & b));
                assert_eq!(x.or(&y).value(), Some(a | b));
                assert_eq!(x.xor(&y).value(), Some(a ^ b));
                assert_eq!(x.add(&y).value(), Some(a.wrapping_add(b)));
            }
        }
        assert_eq!(Bits::input(0, 8).add(&Bits::constant(1)).value(), None);
        let doubled = Bits::input(0, 4).add(&Bits::constant(0x30));
        assert_eq!(doubled.evaluate(|_| true), 0x3f, "no bits meet");
    }
}
