//! What `asn1` asks of elements in the basic encoding (X.690) that begin at a place.

use crate::rules::Asn1;

/// Elements that are looked at from one place.
const MOST_ELEMENTS: usize = 256;
/// A number written in digits needs no more; what is longer overruns the fixed buffers of decoders.
const LONG_REAL: usize = 256;

/// An element: what tells its kind, and where its content is.
struct Element {
    /// Class and form, as in the first byte.
    first: u8,
    number: u32,
    /// Bytes before its content.
    head: usize,
    /// Bytes of its content; `None`: it ends where a mark says so.
    length: Option<u64>,
}

fn element(bytes: &[u8]) -> Option<Element> {
    let first = *bytes.first()?;
    let mut at = 1;
    let mut number = u32::from(first & 0x1f);
    if number == 0x1f {
        number = 0;
        // Four bytes of seven bits are more than any tag has.
        loop {
            let byte = *bytes.get(at)?;
            at += 1;
            number = number << 7 | u32::from(byte & 0x7f);
            if byte & 0x80 == 0 {
                break;
            }
            if at > 4 {
                return None;
            }
        }
    }
    let byte = *bytes.get(at)?;
    at += 1;
    let length = match byte {
        0..=0x7f => Some(u64::from(byte)),
        0x80 => None,
        _ => {
            let digits = bytes.get(at..at + usize::from(byte & 0x7f))?;
            at += digits.len();
            let significant = digits.iter().skip_while(|b| **b == 0);
            // More than eight bytes are longer than anything.
            match significant.clone().count() {
                0..=8 => Some(significant.fold(0, |n, b| n << 8 | u64::from(*b))),
                _ => Some(u64::MAX),
            }
        }
    };
    Some(Element {
        first,
        number,
        head: at,
        length,
    })
}

/// Whether one of the elements from the beginning on is as asked for. Those inside of others follow them.
pub(super) fn has(mut bytes: &[u8], asked: &Asn1) -> bool {
    for _ in 0..MOST_ELEMENTS {
        let Some(found) = element(bytes) else {
            return false;
        };
        let inside = bytes.get(found.head..).unwrap_or_default();
        if is_asked(&found, inside, asked) {
            return true;
        }
        let is_constructed = found.first & 0x20 != 0;
        let next = match found.length.map(usize::try_from) {
            Some(Ok(length)) if !is_constructed => inside.get(length..),
            Some(Err(_)) if !is_constructed => None,
            _ => Some(inside),
        };
        match next {
            Some(next) => bytes = next,
            None => return false,
        }
    }
    false
}

fn is_asked(found: &Element, inside: &[u8], asked: &Asn1) -> bool {
    let oversize = asked.oversize.map(u64::from);
    if let (Some(limit), Some(length)) = (oversize, found.length)
        && length > limit
    {
        return true;
    }
    let Some(length) = found.length.filter(|_| found.first & 0xc0 == 0) else {
        return false;
    };
    let first = inside.first().copied();
    match found.number {
        // More unused bits than there are bits.
        3 if asked.bitstring => {
            let bits = length.saturating_sub(1).saturating_mul(8);
            first.is_some_and(|unused| bits < unused.into())
        }
        // In decimal digits.
        9 if asked.double => first.is_some_and(|b| b & 0xc0 == 0) && length > LONG_REAL as u64,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Asn1 = Asn1 {
        bitstring: false,
        double: false,
        oversize: None,
        offset: 0,
        relative: false,
    };

    #[test]
    fn elements_are_looked_at_in_each_other() {
        let oversize = |limit| Asn1 {
            oversize: Some(limit),
            ..NONE
        };
        // A sequence of an integer and a text of 300 bytes, of which a few are there.
        let sequence = b"\x30\x82\x01\x35\x02\x01\x05\x04\x82\x01\x2cabc";
        assert!(has(sequence, &oversize(299)));
        assert!(has(sequence, &oversize(300)), "the sequence itself");
        assert!(!has(sequence, &oversize(309)));
        assert!(has(b"\x04\x89\x01\0\0\0\0\0\0\0\0", &oversize(u32::MAX)));
        assert!(!has(b"\x04\x80", &oversize(0)));
        let bits = Asn1 {
            bitstring: true,
            ..NONE
        };
        assert!(has(b"\x30\x80\x03\x01\x07", &bits));
        assert!(!has(b"\x03\x02\x07\0", &bits));
        assert!(!has(b"\x83\x01\x07", &bits), "of another class");
        let double = Asn1 {
            double: true,
            ..NONE
        };
        assert!(has(b"\x09\x82\x01\x01\x03", &double));
        assert!(!has(b"\x09\x82\x01\x01\x83", &double));
        assert!(!has(b"\x09\x82\x01\x00\x03", &double));
        // Nothing of this is there, and none of it is read beyond its end.
        let all = Asn1 {
            bitstring: true,
            double: true,
            oversize: Some(1 << 20),
            ..NONE
        };
        for whole in [
            &sequence[..],
            b"\x1f\xff\xff\xff\xff\x01",
            b"\x30\x80\0\0",
            b"\x04\x88",
        ] {
            for cut in 0..=whole.len() {
                assert!(!has(&whole[..cut], &all));
            }
        }
        assert!(!has(&[0x30, 0x80].repeat(100_000), &all));
    }
}
