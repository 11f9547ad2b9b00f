//! What detection sees of a stream: pieces, cut at places that depend on the bytes alone, each with some of what came before it.
//!
//! A piece ends at absolute multiples of [`PIECE`], when the other end has answered, when a message of the application is whole, at a gap, and at the end of the direction.
//! How the bytes of a message were cut into segments changes nothing.

use crate::detect::{LOOKBACK, PIECE, Piece};
use crate::packet::Direction;

/// One direction of a stream, as far as detection still needs it.
#[derive(Debug, Default)]
pub(super) struct Window {
    bytes: Vec<u8>,
    /// Offset in the stream of its first byte.
    base: u64,
    /// Index of the first byte that was not inspected.
    fresh: usize,
    /// Nothing will follow.
    ended: bool,
    /// The end was inspected.
    done: bool,
    /// Parts before gaps that were not inspected to their end.
    before: Vec<(Vec<u8>, u64, usize)>,
}

impl Window {
    /// Bytes that came in order.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Bytes that will not come.
    pub(super) fn gap(&mut self, length: u64) {
        let end = self.base + self.bytes.len() as u64;
        if self.fresh < self.bytes.len() {
            self.before
                .push((std::mem::take(&mut self.bytes), self.base, self.fresh));
        }
        self.bytes.clear();
        (self.base, self.fresh) = (end + length, 0);
    }

    /// The end of the direction.
    pub(super) fn end(&mut self) {
        self.ended = true;
    }

    /// Offset of what comes next.
    pub(super) fn next(&self) -> u64 {
        self.base + self.bytes.len() as u64
    }

    /// Whether there is something to inspect: a whole piece, or anything at all if `all`.
    pub(super) fn is_due(&self, all: bool) -> bool {
        !self.before.is_empty()
            || self.ended && !self.done
            || (all && self.fresh < self.bytes.len())
            || (self.base + self.fresh as u64) / PIECE as u64 != self.next() / PIECE as u64
    }

    /// What was inspected has nothing to do with what comes: it is not shown again.
    pub(super) fn forget(&mut self) {
        if self.fresh == self.bytes.len() && !self.ended {
            self.base += self.fresh as u64;
            self.bytes.clear();
            self.fresh = 0;
        }
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        self.bytes.capacity()
            + self
                .before
                .iter()
                .map(|(b, ..)| b.capacity())
                .sum::<usize>()
    }

    /// PipelineState out what is due. `all`: also what is no whole piece yet.
    pub(super) fn take(
        &mut self,
        direction: Direction,
        all: bool,
        mut inspect: impl FnMut(&Piece<'_>),
    ) {
        for (bytes, base, fresh) in self.before.drain(..) {
            pieces(&bytes, base, fresh, true, |window, base, fresh| {
                inspect(&Piece {
                    direction,
                    window,
                    fresh,
                    base,
                    last: false,
                });
            });
        }
        let all = all || self.ended;
        let (ended, mut told) = (self.ended, false);
        let total = self.bytes.len();
        let end = self.base + total as u64;
        let taken = pieces(
            &self.bytes,
            self.base,
            self.fresh,
            all,
            |window, base, fresh| {
                let last = ended && base + window.len() as u64 == end;
                told |= last;
                inspect(&Piece {
                    direction,
                    window,
                    fresh,
                    base,
                    last,
                });
            },
        );
        self.fresh = taken;
        if self.ended && !self.done {
            self.done = true;
            // Conditions on the end of a stream are decided although no byte is new.
            if !told && total > 0 {
                let from = total.saturating_sub(LOOKBACK);
                inspect(&Piece {
                    direction,
                    window: &self.bytes[from..],
                    fresh: total - from,
                    base: self.base + from as u64,
                    last: true,
                });
            }
            self.bytes = Vec::new();
            (self.base, self.fresh) = (end, 0);
            return;
        }
        // Kept until twice as much is there, so that bytes move once, not with every piece.
        if self.fresh > 2 * LOOKBACK {
            let cut = self.fresh - LOOKBACK;
            self.bytes.drain(..cut);
            self.base += cut as u64;
            self.fresh -= cut;
        }
    }
}

/// Cuts at multiples of `PIECE`; returns up to where. The rest is handed out if `all`.
fn pieces(
    bytes: &[u8],
    base: u64,
    fresh: usize,
    all: bool,
    mut inspect: impl FnMut(&[u8], u64, usize),
) -> usize {
    let mut fresh = fresh;
    while fresh < bytes.len() {
        let at = base + fresh as u64;
        let cut = ((at / PIECE as u64 + 1) * PIECE as u64 - base) as usize;
        let end = cut.min(bytes.len());
        if end < cut && !all {
            break;
        }
        let from = fresh.saturating_sub(LOOKBACK);
        inspect(&bytes[from..end], base + from as u64, fresh - from);
        fresh = end;
    }
    fresh
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Windows, offsets of their first bytes, first fresh bytes, whether they are the last.
    type Seen = Vec<(Vec<u8>, u64, usize, bool)>;

    fn run(stream: &[u8], sizes: &[usize]) -> Seen {
        let (mut window, mut seen, mut at, mut n) = (Window::default(), Vec::new(), 0, 0);
        let mut take = |w: &mut Window| {
            w.take(Direction::ToServer, false, |p| {
                seen.push((p.window.to_vec(), p.base, p.fresh, p.last))
            });
        };
        while at < stream.len() {
            let end = (at + sizes[n % sizes.len()]).min(stream.len());
            window.push(&stream[at..end]);
            assert_eq!(window.next(), end as u64);
            take(&mut window);
            (at, n) = (end, n + 1);
        }
        window.end();
        take(&mut window);
        seen
    }

    #[test]
    fn segments_change_nothing() {
        let stream: Vec<u8> = (0..40_000_u32).map(|n| ((n * n) >> 3) as u8).collect();
        let whole = run(&stream, &[40_000]);
        assert!(whole.len() >= 16 && whole.last().is_some_and(|p| p.3));
        for sizes in [&[1][..], &[1460], &[2560], &[2561, 1, 7000], &[5120]] {
            assert_eq!(run(&stream, sizes), whole, "{sizes:?}");
        }
        // Every byte is new once, and what is shown is what stands there.
        let mut next = 0;
        for (window, base, fresh, _) in &whole {
            assert_eq!(base + *fresh as u64, next);
            next = base + window.len() as u64;
            assert_eq!(window[..], stream[*base as usize..next as usize]);
            assert!(*fresh == LOOKBACK || *base == 0);
        }
        assert_eq!(next, 40_000);
    }

    #[test]
    fn what_is_forgotten_is_not_shown_again() {
        let mut window = Window::default();
        let mut seen = Vec::new();
        let mut take = |w: &mut Window| {
            w.take(Direction::ToServer, true, |p| {
                seen.push((p.window.to_vec(), p.base, p.fresh, p.last))
            });
        };
        window.push(b"first");
        // Not inspected yet: kept.
        window.forget();
        take(&mut window);
        window.forget();
        assert!(!window.is_due(true) && window.next() == 5);
        window.push(b"second");
        take(&mut window);
        window.end();
        take(&mut window);
        assert_eq!(
            seen,
            [
                (b"first".to_vec(), 0, 0, false),
                (b"second".to_vec(), 5, 0, false),
                (b"second".to_vec(), 5, 6, true),
            ]
        );
    }

    #[test]
    fn nothing_is_seen_over_a_gap() {
        let mut window = Window::default();
        let mut seen = Vec::new();
        window.push(b"before");
        window.gap(4);
        window.push(b"after");
        assert!(window.is_due(false));
        window.take(Direction::ToClient, true, |p| {
            seen.push((p.window.to_vec(), p.base, p.fresh))
        });
        assert_eq!(
            seen,
            [(b"before".to_vec(), 0, 0), (b"after".to_vec(), 10, 0)]
        );
        assert!(!window.is_due(true));
        window.end();
        let mut last = Vec::new();
        window.take(Direction::ToClient, false, |p| {
            last.push((p.window.to_vec(), p.base, p.fresh, p.last))
        });
        assert_eq!(last, [(b"after".to_vec(), 10, 5, true)]);
        window.take(Direction::ToClient, true, |_| {
            panic!("the end is told once")
        });
    }
}
