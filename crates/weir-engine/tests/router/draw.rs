//! Random numbers that follow from a seed, so that a failing world can be had again.

/// SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct Draw(u64);

impl Draw {
    pub(crate) fn new(seed: u64) -> Draw {
        Draw(seed)
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is at least 1.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }

    /// True in so many of a hundred cases.
    pub(crate) fn percent(&mut self, p: u64) -> bool {
        self.bits() % 100 < p
    }

    pub(crate) fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// One of the numbers from 0 on, by weight.
    pub(crate) fn weighted(&mut self, weights: &[u64]) -> usize {
        let mut at = self.bits() % weights.iter().sum::<u64>();
        for (n, weight) in weights.iter().enumerate() {
            if at < *weight {
                return n;
            }
            at -= weight;
        }
        0
    }

    pub(crate) fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.bits() as u8).collect()
    }
}
