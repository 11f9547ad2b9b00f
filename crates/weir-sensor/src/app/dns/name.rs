//! Names: labels, pointers to labels elsewhere in the message, and what may be wrong with them.

use crate::app::bytes::be16;
use crate::app::transaction::Transaction;

/// The longest name that is written out.
const MOST_NAME: usize = 1025;
/// Labels and compression pointers followed in one name.
const MOST_STEPS: usize = 255;
/// Compression pointers of a name from which on it is a loop, if it has no end within its steps.
const LOOP: usize = 32;

/// Appends a name as labels with dots between them; `None` if it leads out of the message or has a label of no known kind.
pub(super) fn name(b: &[u8], mut at: usize, out: &mut Vec<u8>) -> Option<Odd> {
    let from = out.len();
    let mut jumps = 0;
    for _ in 0..MOST_STEPS {
        let length = *b.get(at)?;
        match length {
            0 => return Some(Odd::default()),
            0xc0.. => {
                jumps += 1;
                at = usize::from(be16(b, at)? & 0x3fff);
            }
            1..=63 => {
                let label = b.get(at + 1..at + 1 + usize::from(length))?;
                if out.len() > from {
                    out.push(b'.');
                }
                out.extend_from_slice(label);
                if out.len() - from > MOST_NAME {
                    out.truncate(from + MOST_NAME);
                    return Some(Odd {
                        cut: true,
                        ..Odd::default()
                    });
                }
                at += 1 + label.len();
            }
            _ => return None,
        }
    }
    Some(Odd {
        cut: true,
        endless: true,
        looped: jumps > LOOP,
    })
}

/// Passes over a name.
pub(super) fn skip_name(b: &[u8], mut at: usize) -> Option<usize> {
    loop {
        let length = *b.get(at)?;
        match length {
            0 => return Some(at + 1),
            0xc0.. => return b.get(at + 1).map(|_| at + 2),
            1..=63 => at += 1 + usize::from(length),
            _ => return None,
        }
    }
}

/// What is wrong with a name that can be read all the same.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Odd {
    /// It was cut.
    pub(super) cut: bool,
    /// It has more labels and pointers than names have.
    endless: bool,
    looped: bool,
}

impl Odd {
    pub(super) fn tell(self, t: &mut Transaction) {
        if self.looped {
            t.event("infinite_loop");
        }
        if self.endless {
            t.event("too_many_labels");
        }
        if self.cut {
            t.event("name_too_long");
        }
    }
}
