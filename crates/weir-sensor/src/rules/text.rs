//! A part of a rule's text that knows where in it it stands, so that every error can point at what it is about.

use std::ops::Range;

use super::problem::{Kind, Parsed, Problem};

/// Bytes and the offset of the first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) start: usize,
}

impl<'a> Text<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Text { bytes, start: 0 }
    }

    pub(super) fn len(self) -> usize {
        self.bytes.len()
    }

    pub(super) fn is_empty(self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn end(self) -> usize {
        self.start + self.bytes.len()
    }

    pub(super) fn part(self, range: Range<usize>) -> Self {
        Text {
            bytes: &self.bytes[range.clone()],
            start: self.start + range.start,
        }
    }

    pub(super) fn from(self, at: usize) -> Self {
        self.part(at..self.len())
    }

    pub(super) fn trim(self) -> Self {
        let from = self.bytes.len() - self.bytes.trim_ascii_start().len();
        let to = self.bytes.trim_ascii_end().len().max(from);
        self.part(from..to)
    }

    /// What is before and behind the first of a byte.
    pub(super) fn cut(self, at: u8) -> Option<(Self, Self)> {
        let place = self.bytes.iter().position(|b| *b == at)?;
        Some((self.part(0..place), self.from(place + 1)))
    }

    /// Its parts between a byte, each trimmed.
    pub(super) fn split(self, at: u8) -> Vec<Self> {
        let mut parts = Vec::new();
        let mut rest = self;
        while let Some((part, behind)) = rest.cut(at) {
            parts.push(part.trim());
            rest = behind;
        }
        parts.push(rest.trim());
        parts
    }

    /// Its words.
    pub(super) fn words(self) -> Vec<Self> {
        let mut words = Vec::new();
        let mut from = None;
        for (i, b) in self.bytes.iter().enumerate() {
            match (b.is_ascii_whitespace(), from) {
                (false, None) => from = Some(i),
                (true, Some(start)) => {
                    words.push(self.part(start..i));
                    from = None;
                }
                _ => {}
            }
        }
        if let Some(start) = from {
            words.push(self.from(start));
        }
        words
    }

    pub(super) fn strip(self, prefix: &str) -> Option<Self> {
        self.bytes
            .starts_with(prefix.as_bytes())
            .then(|| self.from(prefix.len()))
    }

    /// Without `!` before it, and whether there was one.
    pub(super) fn negation(self) -> (Self, bool) {
        match self.strip("!") {
            Some(rest) => (rest.trim(), true),
            None => (self, false),
        }
    }

    /// Without the quotation marks around it.
    pub(super) fn unquoted(self) -> Parsed<Self> {
        match self.bytes {
            [b'"', inner @ .., b'"'] => Ok(self.part(1..1 + inner.len())),
            [b'"', ..] => Err(self.fail(Kind::Syntax, "the quotation mark is not closed")),
            _ => Ok(self),
        }
    }

    pub(super) fn str(self) -> Parsed<&'a str> {
        std::str::from_utf8(self.bytes).map_err(|_| self.fail(Kind::Syntax, "not UTF-8"))
    }

    /// For messages: what is not UTF-8 is replaced.
    pub(super) fn lossy(self) -> String {
        String::from_utf8_lossy(self.bytes).into_owned()
    }

    pub(super) fn is(self, word: &str) -> bool {
        self.bytes == word.as_bytes()
    }

    pub(super) fn is_word(self, word: &str) -> bool {
        self.bytes.eq_ignore_ascii_case(word.as_bytes())
    }

    pub(super) fn fail(self, kind: Kind, reason: impl Into<String>) -> Problem {
        Problem {
            start: self.start,
            end: self.end(),
            kind,
            reason: reason.into(),
            keyword: None,
            phrase: None,
        }
    }

    /// A whole number, decimal or with `0x`, within a range.
    pub(super) fn number(self, low: i64, high: i64) -> Parsed<i64> {
        let (digits, negative) = match self.bytes {
            [b'-', rest @ ..] => (rest, true),
            [b'+', rest @ ..] => (rest, false),
            all => (all, false),
        };
        let magnitude = match digits {
            [b'0', b'x' | b'X', hex @ ..] => radix(hex, 16),
            _ => radix(digits, 10),
        };
        let Some(magnitude) = magnitude else {
            let reason = match self.is_empty() {
                true => "a number is missing".to_owned(),
                false => format!("`{}` is not a number", self.lossy()),
            };
            return Err(self.fail(Kind::Value, reason));
        };
        let value = if negative { -magnitude } else { magnitude };
        match (i128::from(low)..=i128::from(high)).contains(&value) {
            true => Ok(value as i64),
            false => Err(self.fail(
                Kind::Value,
                format!("{value} is not within {low} and {high}"),
            )),
        }
    }
}

fn radix(digits: &[u8], base: u32) -> Option<i128> {
    if digits.is_empty() || digits.len() > 20 || !digits[0].is_ascii_alphanumeric() {
        return None;
    }
    let text = std::str::from_utf8(digits).ok()?;
    i128::from_str_radix(text, base).ok()
}
