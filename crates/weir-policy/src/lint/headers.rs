//! What the parts of a packet that vary in length need: TCP options, IPv4 options, IPv6 extension headers.

use super::shape::{EXTENSIONS, Part, Shape, first_in};
use crate::model::{KindSet, Ranges};

/// Options of a header of which only presence is asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeaderOptions {
    required: KindSet,
    forbidden: KindSet,
    any: bool,
    none: bool,
}

impl Default for HeaderOptions {
    fn default() -> Self {
        HeaderOptions {
            required: KindSet::EMPTY,
            forbidden: KindSet::EMPTY,
            any: false,
            none: false,
        }
    }
}

impl HeaderOptions {
    pub(super) fn present(&mut self, kind: Option<u8>, negated: bool) {
        match (kind, negated) {
            (Some(kind), false) => self.required.insert(kind),
            (Some(kind), true) => self.forbidden.insert(kind),
            (None, false) => self.any = true,
            (None, true) => self.none = true,
        }
    }

    /// Fewest bytes; `None` if what is asked contradicts itself.
    pub(super) fn least(&self) -> Option<u128> {
        let words = self.required.0.iter().zip(&self.forbidden.0);
        let mut count: u32 = 0;
        for (required, forbidden) in words {
            if required & forbidden != 0 {
                return None;
            }
            count += required.count_ones();
        }
        if self.none && (self.any || count > 0) {
            return None;
        }
        if self.any {
            count = count.max(1);
        }
        Some(u128::from(count) * 2)
    }
}

/// TCP options, with tests of their values.
#[derive(Debug, Default)]
pub(super) struct TcpOptions<'a> {
    presence: HeaderOptions,
    values: Vec<(u8, ValueTest<'a>, bool)>,
}

#[derive(Clone, Copy, Debug)]
enum ValueTest<'a> {
    Number(&'a Ranges),
    Bytes(&'a [u8]),
}

/// Longest value of a TCP option.
const MOST: usize = 38;

impl<'a> TcpOptions<'a> {
    pub(super) fn present(&mut self, kind: Option<u8>, negated: bool) {
        self.presence.present(kind, negated);
    }

    pub(super) fn number(&mut self, kind: u8, set: &'a Ranges, negated: bool) {
        self.presence.present(Some(kind), false);
        self.values.push((kind, ValueTest::Number(set), negated));
    }

    pub(super) fn bytes(&mut self, kind: u8, bytes: &'a [u8], negated: bool) {
        self.presence.present(Some(kind), false);
        self.values.push((kind, ValueTest::Bytes(bytes), negated));
    }

    /// Fewest bytes; `None` if no options are like that.
    pub(super) fn least(&self) -> Option<u128> {
        let mut bytes = self.presence.least()?;
        let mut done = KindSet::EMPTY;
        for &(kind, ..) in &self.values {
            if !done.contains(kind) {
                done.insert(kind);
                bytes += self.value(kind)? as u128;
            }
        }
        Some(bytes)
    }

    /// Fewest bytes of a value for which all tests of its option hold.
    fn value(&self, kind: u8) -> Option<usize> {
        let (least, most) = match kind {
            2 => (2, 2),
            3 => (1, 1),
            8 => (8, 8),
            _ => (0, MOST),
        };
        (least..=most).find(|&length| self.holds_at(kind, length))
    }

    /// Whether a value of this length can be right.
    fn holds_at(&self, kind: u8, length: usize) -> bool {
        let tests = || self.values.iter().filter(|(of, ..)| *of == kind);
        let prefixes = |wanted: bool| {
            tests().filter_map(move |(_, test, negated)| match test {
                ValueTest::Bytes(bytes) if *negated != wanted => Some(*bytes),
                _ => None,
            })
        };
        let longest = prefixes(true)
            .max_by_key(|bytes| bytes.len())
            .unwrap_or(&[]);
        if longest.len() > length || !prefixes(true).all(|bytes| longest.starts_with(bytes)) {
            return false;
        }
        let is_number = tests().any(|(_, test, _)| matches!(test, ValueTest::Number(_)));
        if !is_number {
            // Bytes behind the longest prefix are free: a longer literal differs in them, but for one of no more than 255 values.
            return prefixes(false).all(|bytes| !longest.starts_with(bytes));
        }
        if !(1..=8).contains(&length) {
            return false;
        }
        let all = |bytes: usize| (1u128 << (8 * bytes)) - 1;
        let behind = |prefix: &[u8]| {
            let number = prefix.iter().fold(0, |n, &b| n << 8 | u128::from(b));
            let rest = length - prefix.len();
            let first = number << (8 * rest);
            (first, first + all(rest))
        };
        let (lo, hi) = behind(longest);
        let excluded: Vec<(u128, u128)> = prefixes(false)
            .filter(|bytes| bytes.len() <= length)
            .map(behind)
            .collect();
        let excluded = Ranges::new(excluded);
        let numbers = tests().filter_map(|(_, test, negated)| match test {
            ValueTest::Number(set) => Some((*set, *negated)),
            ValueTest::Bytes(_) => None,
        });
        let sets: Vec<(&Ranges, bool)> = numbers.chain([(&excluded, true)]).collect();
        first_in(lo, hi, &sets).is_some()
    }
}

/// IPv6 extension headers.
#[derive(Debug)]
pub(super) struct Extensions {
    options: HeaderOptions,
    has_l4: bool,
    fragment_header: bool,
    is_later: bool,
}

impl Extensions {
    pub(super) fn of(shape: &Shape) -> Extensions {
        Extensions {
            options: HeaderOptions::default(),
            has_l4: shape.protocol().is_some(),
            fragment_header: shape.has_fragment_header(),
            is_later: shape.part == Part::Later,
        }
    }

    pub(super) fn present(&mut self, number: Option<u8>, negated: bool) {
        self.options.present(number, negated);
    }

    /// Fewest bytes; `None` if no chain of headers is like that. `strict`: at most eight are walked.
    pub(super) fn least(&self, strict: bool) -> Option<u128> {
        const FRAGMENT: u8 = 44;
        const ESP: u8 = 50;
        let mut options = self.options;
        if self.fragment_header {
            options.required.insert(FRAGMENT);
        } else {
            if options.required.contains(FRAGMENT) {
                return None;
            }
            // No header, no fragment header.
            options.forbidden.insert(FRAGMENT);
        }
        // The walk ends at ESP, and at the fragment header of a later fragment.
        if options.required.contains(ESP) && (self.has_l4 || self.is_later) {
            return None;
        }
        let mut others = options.required;
        EXTENSIONS.iter().for_each(|&kind| others.remove(kind));
        if others != KindSet::EMPTY {
            return None;
        }
        // Two bytes an option, eight a header.
        let bytes = options.least()? * 4;
        if strict && bytes > 64 {
            return None;
        }
        // ESP belongs to the payload, too.
        let esp = if options.required.contains(ESP) { 8 } else { 0 };
        Some(bytes - esp)
    }

    /// Numbers that the fixed header's next header has or, if `true`, has not.
    pub(super) fn next(&self, shape: &Shape) -> (Vec<u128>, bool) {
        let options = &self.options;
        let is_required = self.fragment_header
            || options.any
            || EXTENSIONS
                .iter()
                .any(|&kind| options.required.contains(kind));
        let is_possible = |number: u8| match number {
            44 => self.fragment_header,
            50 if self.has_l4 || self.is_later => false,
            _ => !options.none && !options.forbidden.contains(number),
        };
        let number = |kind: &u8| u128::from(*kind);
        let (possible, impossible): (Vec<u8>, Vec<u8>) =
            EXTENSIONS.iter().partition(|&&kind| is_possible(kind));
        match (shape.protocol(), is_required) {
            (_, true) => (possible.iter().map(number).collect(), false),
            (Some(protocol), false) => (
                possible.iter().map(number).chain([protocol]).collect(),
                false,
            ),
            (None, false) => {
                let l4 = match self.is_later {
                    true => &[][..],
                    false => &[6, 17, 58],
                };
                (
                    l4.iter()
                        .copied()
                        .chain(impossible.iter().map(number))
                        .collect(),
                    true,
                )
            }
        }
    }
}
