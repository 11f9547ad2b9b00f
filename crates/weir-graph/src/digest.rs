//! Digests that are the same on every machine and in every version: 128-bit FNV-1a.
//!
//! They tell whether a running instance is the one that is wanted: guards against change, not against malice. Nobody gains from a collision:
//! who can choose the bytes, or write the state of an edge, can configure the edge.

/// A digest of bytes as 32 hex digits.
pub fn digest(bytes: &[u8]) -> String {
    Digest(OFFSET).fold(bytes).finish()
}

/// A digest of several parts, which cannot run into each other.
#[derive(Clone, Copy, Debug)]
pub struct Digest(u128);

const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

impl Default for Digest {
    fn default() -> Digest {
        Digest::new()
    }
}

impl Digest {
    /// Of nothing yet.
    pub fn new() -> Digest {
        Digest(OFFSET)
    }

    /// Adds bytes, preceded by how many there are.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Digest {
        let length = (bytes.len() as u64).to_ne_bytes();
        *self = self.fold(&length).fold(bytes);
        self
    }

    /// Adds a text.
    pub fn text(&mut self, text: &str) -> &mut Digest {
        self.bytes(text.as_bytes())
    }

    /// Adds a number.
    pub fn number(&mut self, number: u64) -> &mut Digest {
        self.bytes(&number.to_ne_bytes())
    }

    /// 32 hex digits.
    pub fn finish(self) -> String {
        format!("{:032x}", self.0)
    }

    fn fold(self, bytes: &[u8]) -> Digest {
        let add = |state: u128, &byte: &u8| (state ^ u128::from(byte)).wrapping_mul(PRIME);
        Digest(bytes.iter().fold(self.0, add))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_values() {
        assert_eq!(digest(b""), "6c62272e07bb014262b821756295c58d");
        assert_eq!(digest(b"foobar"), "343e1662793c64bf6f0d3597ba446f18");
    }

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
        assert_eq!(of(&[]), digest(b""));
    }
}
