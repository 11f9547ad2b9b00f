//! One content, searched for in a part of a buffer: by its two rarest bytes, at once for a block of places, in loops that compilers make vectors of. Where these two are everywhere and
//! comparing costs more than reading, a search takes over that is linear for every text.

use memchr::{memchr, memchr2, memmem};

use super::byte_cost;

/// Places that are looked at together.
const BLOCK: usize = 32;
/// Bytes that may be compared for each that was passed, before the other search takes over; and to begin with.
const COMPARED: usize = 4;
const GRANTED: usize = 512;
/// How much is put in lower case at a time for the other search.
const CHUNK: usize = 16 * 1024;

/// A content as it is searched for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Needle {
    /// In lower case if `nocase`.
    bytes: Box<[u8]>,
    nocase: bool,
    /// Its two rarest bytes, or the one it has.
    rare: [Rare; 2],
}

/// A byte of the content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Rare {
    at: u16,
    byte: u8,
    /// Bits that are set before the comparison: those of case.
    case: u8,
}

impl Rare {
    fn is(self, byte: u8) -> bool {
        byte | self.case == self.byte
    }
}

impl Needle {
    pub(crate) fn new(bytes: &[u8], nocase: bool) -> Needle {
        let bytes: Box<[u8]> = if nocase {
            bytes.to_ascii_lowercase().into()
        } else {
            bytes.into()
        };
        let cost = |b: u8| {
            if nocase {
                byte_cost(b).min(byte_cost(b.to_ascii_uppercase()))
            } else {
                byte_cost(b)
            }
        };
        let reach = bytes.len().min(usize::from(u16::MAX));
        let rarest = |but: Option<usize>| {
            let places = (0..reach).filter(|i| Some(*i) != but);
            // A byte twice says less than two bytes.
            let same = |i: usize| but.is_some_and(|b| bytes[b] == bytes[i]);
            places.max_by_key(|i| (!same(*i), cost(bytes[*i])))
        };
        let first = rarest(None).unwrap_or(0);
        let second = rarest(Some(first)).unwrap_or(first);
        let rare = [first, second].map(|at| {
            let byte = bytes.get(at).copied().unwrap_or(0);
            Rare {
                at: at as u16,
                byte,
                case: if nocase && byte.is_ascii_lowercase() {
                    0x20
                } else {
                    0
                },
            }
        });
        Needle {
            bytes,
            nocase,
            rare,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether these bytes are it.
    pub(crate) fn is_at(&self, there: &[u8]) -> bool {
        if self.nocase {
            there.eq_ignore_ascii_case(&self.bytes)
        } else {
            *self.bytes == *there
        }
    }

    /// The first place from `low` on where it is found and has ended by `high`.
    pub(crate) fn find(&self, haystack: &[u8], low: usize, high: usize) -> Option<usize> {
        let size = self.bytes.len();
        let high = high.min(haystack.len());
        let last = high.checked_sub(size)?;
        if low > last {
            return None;
        }
        if low == last {
            return self.is_at(&haystack[low..high]).then_some(low);
        }
        if size == 1 {
            let [Rare { byte, case, .. }, _] = self.rare;
            let places = &haystack[low..high];
            let found = match case {
                0 => memchr(byte, places),
                _ => memchr2(byte, byte.to_ascii_uppercase(), places),
            };
            return found.map(|at| low + at);
        }
        self.by_pairs(haystack, low, last)
    }

    /// By blocks of places at which the two bytes may stand.
    fn by_pairs(&self, haystack: &[u8], low: usize, last: usize) -> Option<usize> {
        let size = self.bytes.len();
        let [a, b] = self.rare;
        let ends = |rare: Rare| &haystack[low + usize::from(rare.at)..=last + usize::from(rare.at)];
        let (first, second) = (ends(a), ends(b));
        let mut compared = 0;
        let (blocks, _) = first.as_chunks::<BLOCK>();
        let (others, _) = second.as_chunks::<BLOCK>();
        for (number, (x, y)) in blocks.iter().zip(others).enumerate() {
            let mut hits = [0_u8; BLOCK];
            let mut any = 0;
            for i in 0..BLOCK {
                hits[i] = u8::from(x[i] | a.case == a.byte) & u8::from(y[i] | b.case == b.byte);
                any |= hits[i];
            }
            if any == 0 {
                continue;
            }
            let begin = low + number * BLOCK;
            for (i, _) in hits.iter().enumerate().filter(|(_, h)| **h != 0) {
                let start = begin + i;
                if self.is_at(&haystack[start..start + size]) {
                    return Some(start);
                }
                compared += size;
                if compared > GRANTED + COMPARED * (start - low) {
                    return self.by_periods(haystack, start + 1, last);
                }
            }
        }
        let begin = blocks.len() * BLOCK;
        let rest = first.iter().zip(second).enumerate().skip(begin);
        rest.filter(|(_, (x, y))| a.is(**x) && b.is(**y))
            .map(|(i, _)| low + i)
            .find(|start| self.is_at(&haystack[*start..start + size]))
    }

    /// By a search that never compares much more than there is.
    #[cold]
    fn by_periods(&self, haystack: &[u8], low: usize, last: usize) -> Option<usize> {
        let size = self.bytes.len();
        let places = haystack.get(low..last + size)?;
        if !self.nocase {
            return memmem::find(places, &self.bytes).map(|at| low + at);
        }
        let finder = memmem::Finder::new(&self.bytes);
        let mut lower = Vec::new();
        for begin in (0..places.len()).step_by(CHUNK) {
            let end = places.len().min(begin + CHUNK + size - 1);
            lower.clear();
            lower.extend(places[begin..end].iter().map(u8::to_ascii_lowercase));
            if let Some(at) = finder.find(&lower) {
                return Some(low + begin + at);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plainly(needle: &[u8], nocase: bool, text: &[u8], low: usize, high: usize) -> Option<usize> {
        let high = high.min(text.len());
        (low..=high.checked_sub(needle.len())?).find(|s| {
            let there = &text[*s..s + needle.len()];
            match nocase {
                true => there.eq_ignore_ascii_case(needle),
                false => there == needle,
            }
        })
    }

    #[test]
    fn contents_are_found_where_a_plain_search_finds_them() {
        let mut number = 7_u64;
        let mut below = |most: usize| {
            number = number.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(11);
            (number >> 33) as usize % most
        };
        let mut found = 0;
        for round in 0..6000 {
            let letters: &[u8] = [&b"aA"[..], b"abAB", b"ab<[@`{\x00\xc1"][round % 3];
            let text: Vec<u8> = (0..below(300))
                .map(|_| letters[below(letters.len())])
                .collect();
            let needle: Vec<u8> = match below(3) {
                0 if !text.is_empty() => {
                    let at = below(text.len());
                    text[at..text.len().min(at + 1 + below(40))].to_vec()
                }
                _ => (0..1 + below(6))
                    .map(|_| letters[below(letters.len())])
                    .collect(),
            };
            let nocase = below(2) == 0;
            let (low, high) = (below(40), below(400));
            let made = Needle::new(&needle, nocase);
            let wanted = plainly(&needle, nocase, &text, low, high);
            found += usize::from(wanted.is_some());
            assert_eq!(
                made.find(&text, low, high),
                wanted,
                "{needle:?} ({nocase}) in {text:?} from {low} to {high}"
            );
        }
        assert!(found > 1000, "{found}");
    }

    #[test]
    fn texts_made_of_the_content_are_searched_to_their_end() {
        for nocase in [false, true] {
            let needle = [b"a".repeat(60), b"b".to_vec(), b"a".repeat(60)].concat();
            let made = Needle::new(&needle, nocase);
            // The rare byte stands everywhere, and all but the last byte fits.
            let mut part = needle.clone();
            part.pop();
            part.push(b'c');
            let mut text = part.repeat(400);
            assert_eq!(made.find(&text, 0, text.len()), None);
            let at = text.len();
            text.extend(&needle);
            text.extend(b"more of it");
            assert_eq!(made.find(&text, 0, text.len()), Some(at));
            assert_eq!(made.find(&text, 0, at + needle.len() - 1), None);
            let same = Needle::new(&[b"a".repeat(60), b"b".to_vec()].concat(), nocase);
            let mut text = b"aA"[usize::from(nocase)..][..1].repeat(50_000);
            assert_eq!(same.find(&text, 0, text.len()), None);
            text.push(b'b');
            let wanted = (!nocase || text[0].eq_ignore_ascii_case(&b'a')).then_some(50_000 - 60);
            assert_eq!(same.find(&text, 0, text.len()), wanted);
        }
    }
}
