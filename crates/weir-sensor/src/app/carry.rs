//! Messages of a stream, put together from its pieces: what is not whole yet is held, what is not looked at passes.

/// What a parser took from the front of the bytes it was shown.
pub(super) enum Taken {
    /// Nothing: more bytes are needed.
    More,
    /// So many bytes, at least one.
    Bytes(usize),
    /// So many bytes, and as many behind them pass without a look.
    Passing(usize, u64),
}

/// One direction of a stream.
#[derive(Default)]
pub(super) struct Carry {
    held: Vec<u8>,
    passing: u64,
}

impl Carry {
    /// Shows what is held and these bytes to `take` until it wants more.
    pub(super) fn feed(&mut self, bytes: &[u8], mut take: impl FnMut(&[u8]) -> Taken) {
        let mut held = std::mem::take(&mut self.held);
        let was_held = !held.is_empty();
        if was_held {
            held.extend_from_slice(bytes);
        }
        let mut rest: &[u8] = if was_held { &held } else { bytes };
        loop {
            let passed = (rest.len() as u64).min(self.passing);
            self.passing -= passed;
            rest = rest.get(passed as usize..).unwrap_or_default();
            if rest.is_empty() {
                return;
            }
            let (taken, passing) = match take(rest) {
                Taken::More => break,
                Taken::Bytes(taken) => (taken, 0),
                Taken::Passing(taken, passing) => (taken, passing),
            };
            self.passing = passing;
            rest = rest.get(taken..).unwrap_or_default();
        }
        let left = rest.len();
        self.held = if was_held {
            held.drain(..held.len() - left);
            held
        } else {
            rest.to_vec()
        };
    }

    /// So many bytes were lost; returns whether they were of those that pass.
    pub(super) fn gap(&mut self, length: u64) -> bool {
        let passes = self.held.is_empty() && self.passing >= length;
        if passes {
            self.passing -= length;
        }
        passes
    }

    /// Whether nothing is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.passing == 0
    }

    /// Memory it holds.
    pub(super) fn memory(&self) -> usize {
        self.held.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages behind a byte with their length; those of more than 4 pass.
    fn messages(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
        let (mut carry, mut all) = (Carry::default(), Vec::new());
        for piece in pieces {
            carry.feed(piece, |bytes| match bytes {
                [n, ..] if *n > 4 => Taken::Passing(1, u64::from(*n)),
                [n, rest @ ..] => match rest.get(..usize::from(*n)) {
                    Some(message) => {
                        all.push(message.to_vec());
                        Taken::Bytes(1 + message.len())
                    }
                    None => Taken::More,
                },
                [] => Taken::More,
            });
        }
        all
    }

    #[test]
    fn pieces_do_not_matter() {
        let bytes = b"\x02ab\x07-------\x01c\x04end";
        let whole = messages(&[bytes]);
        assert_eq!(whole, [b"ab".to_vec(), b"c".to_vec()]);
        for step in 1..bytes.len() {
            let pieces: Vec<&[u8]> = bytes.chunks(step).collect();
            assert_eq!(messages(&pieces), whole, "{step}");
        }
    }

    #[test]
    fn what_passes_may_be_lost() {
        let mut carry = Carry::default();
        carry.feed(b"x", |_| Taken::Passing(1, 10));
        assert!(carry.gap(4) && !carry.is_empty());
        assert!(!carry.gap(7));
        assert!(carry.gap(6) && carry.is_empty());
    }
}
