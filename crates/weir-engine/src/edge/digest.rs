//! One number for everything that an instance is made from, so that a later run of weir sees whether it would make it alike.
//!
//! FNV-1a of 128 bits: it guards against change, not against malice; who can write the state of an edge can do anything to it.

/// A digest being made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Digest(u128);

const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

impl Digest {
    pub(crate) fn new() -> Digest {
        Digest(OFFSET)
    }

    /// Adds bytes and their number, so that parts cannot run into each other.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Digest {
        let length = (bytes.len() as u64).to_ne_bytes();
        for byte in length.iter().chain(bytes) {
            self.0 = (self.0 ^ u128::from(*byte)).wrapping_mul(PRIME);
        }
        self
    }

    pub(crate) fn text(&mut self, text: &str) -> &mut Digest {
        self.bytes(text.as_bytes())
    }

    pub(crate) fn number(&mut self, number: u64) -> &mut Digest {
        self.bytes(&number.to_ne_bytes())
    }

    /// As it is written into the state.
    pub(crate) fn finish(self) -> String {
        format!("{:032x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_run_into_each_other() {
        let of = |parts: &[&str]| {
            let mut digest = Digest::new();
            for part in parts {
                digest.text(part);
            }
            digest.finish()
        };
        assert_ne!(of(&["ab", "c"]), of(&["a", "bc"]));
        assert_eq!(of(&["ab", "c"]), of(&["ab", "c"]));
        assert_eq!(of(&[]).len(), 32);
    }
}
