//! Elements of ASN.1 in its basic encoding, with a tag of one byte and a length that is given.

/// Tag, content and what follows of one element; `None`: it is not whole, or of another form.
pub(super) fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, head, length) = head(bytes)?;
    let (inside, rest) = bytes.get(head..)?.split_at_checked(length)?;
    Some((tag, inside, rest))
}

/// Tag of an element, bytes before its content, and bytes of its content.
pub(super) fn head(bytes: &[u8]) -> Option<(u8, usize, usize)> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    match first {
        0..=0x7f => Some((tag, 2, usize::from(first))),
        0x81..=0x84 => {
            let count = usize::from(first & 0x7f);
            let digits = rest.get(..count)?;
            let length = digits.iter().fold(0, |l, b| l << 8 | usize::from(*b));
            Some((tag, 2 + count, length))
        }
        _ => None,
    }
}

/// The elements in a content, as far as they are whole.
pub(super) fn elements(mut bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (tag, inside, rest) = element(bytes)?;
        bytes = rest;
        Some((tag, inside))
    })
}

/// A number of up to eight bytes, none of which is below 0.
pub(super) fn number(content: &[u8]) -> Option<u64> {
    match content.len() {
        1..=8 => Some(content.iter().fold(0, |n, b| n << 8 | u64::from(*b))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_two_forms() {
        assert_eq!(element(b"\x04\x02abc"), Some((4, &b"ab"[..], &b"c"[..])));
        assert_eq!(
            element(b"\x30\x84\0\0\0\x01ab"),
            Some((0x30, &b"a"[..], &b"b"[..]))
        );
        for bad in [
            &b"\x04"[..],
            b"\x04\x03ab",
            b"\x04\x80ab\0\0",
            b"\x04\x82\0",
        ] {
            assert_eq!(element(bad), None);
        }
        let all: Vec<_> = elements(b"\x02\x01\x05\x04\x01x\x04\x09").collect();
        assert_eq!(all, [(2, &b"\x05"[..]), (4, b"x")]);
        assert_eq!((number(b"\x01\0"), number(b"")), (Some(256), None));
    }
}
