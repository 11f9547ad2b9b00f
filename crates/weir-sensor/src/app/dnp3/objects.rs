//! Objects of a message of DNP3: their headers, and how long what follows each is.

use serde_json::{Value, json};

use super::points::points;

/// Objects of one message that are looked at.
const MOST_OBJECTS: usize = 128;

/// The header of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Object {
    pub(super) group: u8,
    pub(super) variation: u8,
    qualifier: u8,
    start: u32,
    stop: u32,
    count: u32,
    /// Where its points begin, behind the head of the message.
    at: usize,
}

impl Object {
    /// As records have it, with points, of which so many more are shown. `bytes`: what is behind the head of the message.
    pub(super) fn show(&self, function: u8, bytes: &[u8], left: &mut u32) -> Value {
        let mut shown = json!({
            "group": self.group, "variation": self.variation, "qualifier": self.qualifier,
            "prefix_code": self.qualifier >> 4 & 7, "range_code": self.qualifier & 15,
            "start": self.start, "stop": self.stop, "count": self.count,
        });
        let prefix = match self.qualifier >> 4 & 7 {
            0 => Some(0),
            code @ 1..=3 => Some(1 << (code - 1)),
            _ => None,
        };
        if let Some(prefix) = prefix.filter(|_| carries(function) && self.qualifier & 15 != 6) {
            let kind = (self.group, self.variation);
            let wanted = (self.start, self.count.min(*left));
            let list = points(
                kind,
                prefix,
                wanted,
                bytes.get(self.at..).unwrap_or_default(),
            );
            *left -= u32::try_from(list.len()).unwrap_or(*left);
            if let Some(object) = shown.as_object_mut().filter(|_| !list.is_empty()) {
                object.insert("points".into(), list.into());
            }
        }
        shown
    }
}

/// The objects behind the head of a message, and whether those are all: what one holds must be known to find the next.
pub(super) fn objects(function: u8, bytes: &[u8]) -> (Vec<Object>, bool) {
    let mut list = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        if list.len() >= MOST_OBJECTS {
            return (list, false);
        }
        let Some((mut object, after)) = header(rest) else {
            return (list, false);
        };
        object.at = bytes.len() - after.len();
        list.push(object);
        match skip(function, &object, after) {
            Some(after) => rest = after,
            None => return (list, false),
        }
    }
    (list, true)
}

/// A number of so many bytes, the lowest first.
fn number(bytes: &[u8], count: usize) -> Option<(u32, &[u8])> {
    let (digits, rest) = bytes.split_at_checked(count)?;
    let value = digits
        .iter()
        .rev()
        .fold(0u32, |n, b| n << 8 | u32::from(*b));
    Some((value, rest))
}

fn header(bytes: &[u8]) -> Option<(Object, &[u8])> {
    let [group, variation, qualifier, rest @ ..] = bytes else {
        return None;
    };
    let mut object = Object {
        group: *group,
        variation: *variation,
        qualifier: *qualifier,
        start: 0,
        stop: 0,
        count: 0,
        at: 0,
    };
    let mut rest = rest;
    match qualifier & 15 {
        code @ 0..=5 => {
            let size = 1 << (code % 3);
            (object.start, rest) = number(rest, size)?;
            (object.stop, rest) = number(rest, size)?;
            object.count = object.stop.checked_sub(object.start)?.checked_add(1)?;
        }
        // All of them.
        6 => {}
        code @ 7..=9 => (object.count, rest) = number(rest, 1 << (code - 7))?,
        0xb => (object.count, rest) = number(rest, 1)?,
        _ => return None,
    }
    Some((object, rest))
}

/// What stands behind the points of an object; `None`: their size is not known, or they are not all there.
fn skip<'a>(function: u8, object: &Object, bytes: &'a [u8]) -> Option<&'a [u8]> {
    let count = usize::try_from(object.count).ok()?;
    let prefix = match object.qualifier >> 4 & 7 {
        0 => 0,
        // An index in front of each.
        code @ 1..=3 => 1 << (code - 1),
        // Its size in front of each.
        code @ 4..=6 => {
            let mut rest = bytes;
            for _ in 0..count {
                let (size, after) = number(rest, 1 << (code - 4))?;
                rest = after.get(usize::try_from(size).ok()?..)?;
            }
            return Some(rest);
        }
        _ => return None,
    };
    let size = match (carries(function), object.qualifier & 15) {
        (false, _) | (_, 6) => Size::Bytes(0),
        _ => size(object.group, object.variation)?,
    };
    let all = match size {
        Size::Bytes(size) => count.checked_mul(prefix + size)?,
        Size::Bits(bits) if prefix == 0 => count.checked_mul(bits)?.div_ceil(8),
        Size::Bits(_) => count.checked_mul(prefix + 1)?,
    };
    bytes.get(all..)
}

/// Whether messages of a function carry values; others name points.
fn carries(function: u8) -> bool {
    matches!(function, 2..=6 | 25..=33 | 129..=131)
}

enum Size {
    Bytes(usize),
    Bits(usize),
}

/// What a point of an object takes (IEEE 1815, annex A); `None`: it is none of those that are known.
fn size(group: u8, variation: u8) -> Option<Size> {
    // Flags and a value, with a time of six bytes or of two.
    let of = |sizes: &[usize]| {
        let at = usize::from(variation).checked_sub(1)?;
        sizes.get(at).copied().map(Size::Bytes)
    };
    match (group, variation) {
        (1 | 10 | 80, 1) | (12, 3) => Some(Size::Bits(1)),
        (3, 1) => Some(Size::Bits(2)),
        (1 | 3 | 10, 2) => Some(Size::Bytes(1)),
        (2 | 4, _) => of(&[1, 7, 3]),
        (11 | 13, _) => of(&[1, 7]),
        (12, _) => of(&[11, 11]),
        (20, _) => of(&[5, 3, 5, 3, 4, 2, 4, 2]),
        (21, _) => of(&[5, 3, 5, 3, 11, 9, 11, 9, 4, 2, 4, 2]),
        (22 | 23, _) => of(&[5, 3, 5, 3, 11, 9, 11, 9]),
        (30, _) => of(&[5, 3, 4, 2, 5, 9]),
        (31, _) => of(&[5, 3, 11, 9, 4, 2, 5, 9]),
        (32 | 33 | 42 | 43, _) => of(&[5, 3, 11, 9, 5, 9, 11, 15]),
        (34, _) => of(&[2, 4, 4]),
        (40 | 41, _) => of(&[5, 3, 5, 9]),
        (50, _) => of(&[6, 10, 6, 11]),
        (51, _) => of(&[6, 6]),
        (52, _) => of(&[2, 2]),
        (60, 1..=4) => Some(Size::Bytes(0)),
        // Strings have their length for a variation.
        (110 | 111, length) => Some(Size::Bytes(usize::from(length))),
        _ => None,
    }
}
