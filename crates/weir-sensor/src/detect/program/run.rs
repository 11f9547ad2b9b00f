//! Conditions in one buffer, evaluated: which choice of occurrences makes a chain hold. Tried for every candidate of every packet.

use crate::base64;
use crate::rules::{MathOperator, NotFound, TestOperator};

use super::super::in_range;
use super::{Find, Get, Jump, STEPS, Scratch, Search, Step, Subject, VARIABLES, Value};

/// Bytes of a capture that are kept.
const MOST_CAPTURED: usize = 4096;

pub(super) struct Run<'a, 'b> {
    pub(super) subject: &'a Subject<'a>,
    pub(super) scratch: &'b mut Scratch,
    pub(super) variables: [i64; VARIABLES],
    pub(super) steps: u32,
    /// A chain must reach beyond this index.
    pub(super) beyond: usize,
    /// Programs within programs, for scratch memory.
    pub(super) depth: usize,
}

impl Run<'_, '_> {
    pub(super) fn failed(&mut self) -> bool {
        if self.steps > STEPS {
            self.scratch.counts.steps_limited += 1;
        }
        false
    }

    fn value(&self, value: Value) -> i64 {
        match value {
            Value::Is(n) => n,
            Value::Variable(i) => self.variables[usize::from(i) % VARIABLES],
        }
    }

    fn step(&mut self) -> bool {
        self.steps += 1;
        self.steps <= STEPS
    }

    /// Whether the rest of a chain holds with the match before ending at `cursor`; returns the furthest end of what was found.
    pub(super) fn chain(
        &mut self,
        rest: &[Step],
        cursor: usize,
        reached: usize,
        at: usize,
    ) -> Option<usize> {
        let Some(step) = rest.get(at) else {
            return (self.beyond == 0 || reached > self.beyond).then_some(reached);
        };
        let next = at + 1;
        match step {
            Step::Content(find) => {
                let (low, high) = self.limits(find, cursor)?;
                if find.negated {
                    let found =
                        high >= low && find.needle.find(self.subject.bytes, low, high).is_some();
                    return if found {
                        None
                    } else {
                        self.chain(rest, cursor, reached, next)
                    };
                }
                let mut from = low;
                while let Some(start) = find.needle.find(self.subject.bytes, from, high) {
                    if !self.step() {
                        return None;
                    }
                    let end = start + find.needle.bytes.len();
                    let held = self.chain(rest, end, reached.max(end), next);
                    if held.is_some() {
                        return held;
                    }
                    from = start + 1;
                }
                None
            }
            Step::Pcre(search) => self.pcre(search, rest, cursor, reached, next),
            Step::IsDataAt {
                offset,
                relative,
                negated,
            } => {
                let length = self.subject.bytes.len() as i64;
                let offset = self.value(*offset);
                let there = if *relative {
                    (cursor as i64).saturating_add(offset) <= length
                } else {
                    offset < length.saturating_add_unsigned(self.subject.base)
                };
                if there == *negated {
                    return None;
                }
                self.chain(rest, cursor, reached, next)
            }
            Step::Test(test) => {
                let (value, _) = self.get(&test.get, cursor)?;
                let wanted = self.value(test.value);
                let held = match test.operator {
                    TestOperator::Less => value < i128::from(wanted),
                    TestOperator::Greater => value > i128::from(wanted),
                    TestOperator::Equal => value == i128::from(wanted),
                    TestOperator::LessEqual => value <= i128::from(wanted),
                    TestOperator::GreaterEqual => value >= i128::from(wanted),
                    TestOperator::And => value & i128::from(wanted) != 0,
                    TestOperator::Xor => value ^ i128::from(wanted) != 0,
                };
                if held == test.negated {
                    return None;
                }
                self.chain(rest, cursor, reached, next)
            }
            Step::Jump(jump) => {
                let to = self.jump(jump, cursor)?;
                self.chain(rest, to, reached, next)
            }
            Step::Extract(extract) => {
                let (value, end) = self.get(&extract.get, cursor)?;
                let mut value = value.checked_mul(i128::from(extract.multiplier))?;
                let align = i128::from(extract.align);
                if align > 1 {
                    value += (align - value % align) % align;
                }
                self.keep(extract.variable, i64::try_from(value).ok()?);
                self.chain(rest, end, reached, next)
            }
            Step::Math(math) => {
                let (value, end) = self.get(&math.get, cursor)?;
                let other = i128::from(self.value(math.value));
                let shift = || u32::try_from(other).ok().filter(|s| *s < 64);
                let value = match math.operator {
                    MathOperator::Add => value + other,
                    MathOperator::Subtract => value - other,
                    MathOperator::Multiply => value.checked_mul(other)?,
                    MathOperator::Divide => value.checked_div(other)?,
                    MathOperator::Left => i128::from((value as u64) << shift()?),
                    MathOperator::Right => value >> shift()?,
                };
                self.keep(math.variable, i64::try_from(value).ok()?);
                self.chain(rest, end, reached, next)
            }
            Step::Size(range) => {
                let size = self.subject.bytes.len() as u64;
                if !in_range(range, size) {
                    return None;
                }
                self.chain(rest, cursor, reached, next)
            }
            Step::Entropy(entropy) => {
                let from = entropy.offset as usize;
                let bytes = self.subject.bytes.get(from..)?;
                let bytes = match entropy.bytes {
                    Some(count) => bytes.get(..count as usize)?,
                    None => bytes,
                };
                if !in_range(&entropy.value, bits_a_byte(bytes)) {
                    return None;
                }
                self.chain(rest, cursor, reached, next)
            }
            Step::Dataset(set) => {
                if !set.holds(self.subject.bytes) {
                    return None;
                }
                self.chain(rest, cursor, reached, next)
            }
            Step::Base64(how, inner) => {
                let from = if how.relative { cursor } else { 0 };
                let bytes = self.subject.bytes;
                let mut encoded = bytes.get(from + how.offset as usize..)?;
                if let Some(most) = how.bytes {
                    encoded = encoded.get(..most as usize).unwrap_or(encoded);
                }
                let mut decoded = self.scratch.decoded.pop().unwrap_or_default();
                base64::decode_whole_bytes(encoded, &mut decoded);
                let held = !decoded.is_empty()
                    && self.depth < 4
                    && inner.holds_at(&Subject::whole(&decoded), self.scratch, self.depth + 1);
                decoded.clear();
                self.scratch.decoded.push(decoded);
                if !held {
                    return None;
                }
                self.chain(rest, cursor, reached, next)
            }
        }
    }

    fn keep(&mut self, variable: u8, value: i64) {
        self.variables[usize::from(variable) % VARIABLES] = value;
    }

    /// From where a content may begin, and where it must have ended; `None`: nowhere, and it is not negated.
    fn limits(&self, find: &Find, cursor: usize) -> Option<(usize, usize)> {
        let length = self.subject.bytes.len() as i64;
        let base = i64::try_from(self.subject.base).unwrap_or(i64::MAX);
        let size = find.needle.bytes.len() as i64;
        let (mut low, mut high) = (0, length);
        if find.is_relative() {
            let begin = (cursor as i64).saturating_add(find.distance.map_or(0, |d| self.value(d)));
            low = begin;
            if let Some(within) = find.within {
                high = high.min(begin.saturating_add(self.value(within)));
            }
        }
        if find.offset.is_some() || find.depth.is_some() || find.starts {
            let begin = find
                .offset
                .map_or(0, |o| self.value(o))
                .saturating_sub(base);
            low = low.max(begin);
            if let Some(depth) = find.depth {
                high = high.min(begin.saturating_add(self.value(depth)));
            }
            if find.starts {
                high = high.min(begin.saturating_add(size));
            }
        }
        if find.ends {
            low = low.max(length - size);
            if high < length {
                high = -1;
            }
        }
        let low = low.max(0);
        if high < low.saturating_add(size) {
            // Nowhere: a negated content holds, another does not.
            return find.negated.then_some((1, 0));
        }
        Some((low as usize, high as usize))
    }

    fn pcre(
        &mut self,
        search: &Search,
        rest: &[Step],
        cursor: usize,
        reached: usize,
        next: usize,
    ) -> Option<usize> {
        let from = if search.relative { cursor } else { 0 };
        let subject = self.subject.bytes.get(from..)?;
        let mut start = 0;
        loop {
            self.scratch.counts.pcre_calls += 1;
            let found = search.expression.find_at(subject, start);
            if found == Err(NotFound::GivenUp) {
                self.scratch.counts.pcre_limited += 1;
                return None;
            }
            if search.negated {
                return match found {
                    Ok(_) => None,
                    Err(_) => self.chain(rest, cursor, reached, next),
                };
            }
            let (found, found_end) = found.ok()?;
            if !self.step() {
                return None;
            }
            let end = from + found_end;
            let place = self.scratch.captured.len();
            let held = self.chain(rest, end, reached.max(end), next);
            if held.is_some() {
                if !search.captures.is_empty() {
                    self.capture(search, subject, start, place);
                }
                return held;
            }
            // Another match only helps what is relative to this one, or must lie in new bytes.
            let may_help = self.beyond > 0 || rest.get(next).is_some();
            if !may_help || search.anchored || found >= subject.len() {
                return None;
            }
            start = found + 1;
        }
    }

    /// Keeps what was captured by the match from `start` on, before what later conditions have captured.
    fn capture(&mut self, search: &Search, subject: &[u8], start: usize, place: usize) {
        let groups = search.captures.iter().map(|c| c.group);
        let parts = search.expression.parts_at(subject, start, groups);
        let kept = search.captures.iter().zip(parts).filter_map(|(c, part)| {
            let part = part?;
            let part = part.get(..MOST_CAPTURED).unwrap_or(part);
            Some((c.clone(), part.to_vec()))
        });
        let place = place.min(self.scratch.captured.len());
        self.scratch.captured.splice(place..place, kept);
    }

    /// Reads a number; returns it and where it ended.
    fn get(&self, get: &Get, cursor: usize) -> Option<(i128, usize)> {
        let bytes = self.subject.bytes;
        let count = usize::try_from(self.value(get.bytes)).ok()?;
        let offset = self.value(get.offset);
        let from = if get.relative {
            (cursor as i64).checked_add(offset)?
        } else {
            offset.checked_sub(i64::try_from(self.subject.base).ok()?)?
        };
        let from = usize::try_from(from).ok()?;
        let end = match get.string {
            // No number of digits given: as far as they go.
            Some(_) if count == 0 => bytes.len().min(from.checked_add(MOST_DIGITS)?),
            _ => from.checked_add(count)?,
        };
        let digits = bytes.get(from..end)?;
        let mut read = digits.len();
        let value = match get.string {
            Some(base) => {
                let (value, length) = number(digits, base)?;
                // What is relative to a number in digits stands behind the last of them, however many were allowed.
                read = length;
                i128::from(value)
            }
            None if count > 8 => return None,
            None => {
                let fold = |n: u64, b: &u8| n << 8 | u64::from(*b);
                i128::from(if get.little {
                    digits.iter().rev().fold(0, fold)
                } else {
                    digits.iter().fold(0, fold)
                })
            }
        };
        let value = match get.bitmask {
            Some(mask) if mask != 0 => (value & i128::from(mask)) >> mask.trailing_zeros(),
            Some(_) => 0,
            None => value,
        };
        Some((value, from + read))
    }

    /// Where a jump leads: inside of the buffer or to its end. Before its start is its start.
    fn jump(&self, jump: &Jump, cursor: usize) -> Option<usize> {
        let length = self.subject.bytes.len() as i128;
        let (value, end) = self.get(&jump.get, cursor)?;
        let mut distance = value.checked_mul(i128::from(jump.multiplier))?;
        if jump.align {
            distance += (4 - distance % 4) % 4;
        }
        distance += i128::from(self.value(jump.post_offset));
        let to = if jump.from_beginning {
            distance - i128::from(self.subject.base)
        } else if jump.from_end {
            length + distance
        } else {
            end as i128 + distance
        };
        // What was before a window of a stream is not there any more.
        let to = if self.subject.base == 0 {
            to.max(0)
        } else {
            to
        };
        (0..=length).contains(&to).then_some(to as usize)
    }
}

/// The entropy of bytes by how often each is there, in millionths of a bit for each byte.
fn bits_a_byte(bytes: &[u8]) -> u64 {
    let mut counts = [0_u32; 256];
    for b in bytes {
        counts[usize::from(*b)] += 1;
    }
    let all = bytes.len() as f64;
    let sum: f64 = counts
        .iter()
        .filter(|c| **c > 0)
        .map(|c| f64::from(*c) / all)
        .map(|share| -share * share.log2())
        .sum();
    (sum * 1e6).round() as u64
}

/// The longest number of 64 bits, in octal digits with a sign.
const MOST_DIGITS: usize = 23;

/// A number written in digits, as C's `strtoull` reads one: blanks, a sign, digits as far as they go; at least one digit. With the length of all that was read.
fn number(text: &[u8], base: u32) -> Option<(i64, usize)> {
    let all = text.len();
    let blank = |b: &u8| b.is_ascii_whitespace() || *b == 0x0b;
    let mut text = &text[text.iter().take_while(|b| blank(b)).count()..];
    let mut negative = false;
    if let Some((sign @ (b'-' | b'+'), rest)) = text.split_first() {
        negative = *sign == b'-';
        text = rest;
    }
    if base == 16
        && let Some(rest) = text
            .strip_prefix(b"0x")
            .or_else(|| text.strip_prefix(b"0X"))
        && rest.first().is_some_and(u8::is_ascii_hexdigit)
    {
        text = rest;
    }
    let mut value: Option<i64> = None;
    while let Some((b, rest)) = text.split_first() {
        let Some(digit) = char::from(*b).to_digit(base.clamp(2, 36)) else {
            break;
        };
        text = rest;
        let so_far = value.unwrap_or(0);
        value = Some(
            so_far
                .checked_mul(i64::from(base))?
                .checked_add(i64::from(digit))?,
        );
    }
    value.map(|v| (if negative { -v } else { v }, all - text.len()))
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_are_read_as_c_reads_them() {
        assert_eq!(number(b"12ab", 10), Some((12, 2)));
        assert_eq!(number(b" -12", 10), Some((-12, 4)));
        assert_eq!(number(b"0x1F ", 16), Some((31, 4)));
        assert_eq!(number(b"0x", 16), Some((0, 1)));
        assert_eq!(number(b"zz", 10), None);
        assert_eq!(number(b"", 10), None);
        assert_eq!(number(b"777", 8), Some((511, 3)));
        assert_eq!(number(b"99999999999999999999", 10), None);
    }
}
