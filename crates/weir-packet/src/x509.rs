//! Names in X.509 certificates: the common names of a distinguished name (RFC 5280, section 4.1.2.4), read from DER (X.690).
//!
//! Nothing else of a certificate is read here, and nothing is verified: whoever asks has verified the certificate before.

/// Tags of DER.
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;

/// id-at-commonName, 2.5.4.3.
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];

/// The common names of a name, in its order; the bytes are what its outer SEQUENCE contains. `None`: it is not well-formed, or a common name
/// is not text of the types that RFC 5280 demands of new certificates (UTF8String, PrintableString).
#[must_use]
pub fn common_names(name: &[u8]) -> Option<Vec<&str>> {
    let mut found = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let (set, after) = element(rest, SET)?;
        rest = after;
        let mut attributes = set;
        while !attributes.is_empty() {
            let (attribute, after) = element(attributes, SEQUENCE)?;
            attributes = after;
            let (kind, value) = element(attribute, OBJECT_IDENTIFIER)?;
            if kind == COMMON_NAME {
                found.push(text(value)?);
            }
        }
    }
    Some(found)
}

/// The text of a string, which is all that the bytes are.
fn text(value: &[u8]) -> Option<&str> {
    let (bytes, rest) = match value.first()? {
        &tag @ (UTF8_STRING | PRINTABLE_STRING) => element(value, tag)?,
        _ => return None,
    };
    let text = std::str::from_utf8(bytes).ok()?;
    let is_plain = rest.is_empty() && !text.is_empty() && !text.chars().any(char::is_control);
    is_plain.then_some(text)
}

/// The contents of an element with a tag, and what follows it. Lengths are definite and as short as possible, as DER demands.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&found, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81 => {
            let (&length, rest) = rest.split_first()?;
            (usize::from(length), rest)
        }
        0x82 => {
            let (bytes, rest) = rest.split_first_chunk::<2>()?;
            (usize::from(u16::from_be_bytes(*bytes)), rest)
        }
        // 64 KiB are more than any name has.
        _ => return None,
    };
    let is_shortest = match first {
        0x81 => length >= 0x80,
        0x82 => length >= 0x100,
        _ => true,
    };
    if found != tag || !is_shortest {
        return None;
    }
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An attribute in a SET of its own.
    fn attribute(kind: &[u8], tag: u8, value: &[u8]) -> Vec<u8> {
        let wrap = |tag: u8, bytes: &[u8]| {
            let mut all = vec![tag, bytes.len() as u8];
            all.extend_from_slice(bytes);
            all
        };
        let mut pair = wrap(OBJECT_IDENTIFIER, kind);
        pair.extend(wrap(tag, value));
        wrap(SET, &wrap(SEQUENCE, &pair))
    }

    #[test]
    fn common_names_are_read_and_nothing_else() {
        let organization = attribute(&[0x55, 0x04, 0x0a], PRINTABLE_STRING, b"weir");
        let kim = attribute(&COMMON_NAME, UTF8_STRING, b"kim");
        let lee = attribute(&COMMON_NAME, PRINTABLE_STRING, b"lee");
        assert_eq!(common_names(&[]), Some(Vec::new()));
        assert_eq!(common_names(&organization), Some(Vec::new()));
        let all = [organization, kim.clone(), lee].concat();
        assert_eq!(common_names(&all), Some(vec!["kim", "lee"]));
        for cut in 1..all.len() {
            let names = common_names(&all[..cut]);
            assert!(names.is_none_or(|names| names.len() < 2), "cut at {cut}");
        }
        for broken in [
            attribute(&COMMON_NAME, UTF8_STRING, b""),
            attribute(&COMMON_NAME, UTF8_STRING, b"kim\0.example"),
            attribute(&COMMON_NAME, UTF8_STRING, b"\xff"),
            // BMPString.
            attribute(&COMMON_NAME, 0x1e, b"\0k"),
            [&kim[..], &[0]].concat(),
        ] {
            assert_eq!(common_names(&broken), None, "{broken:?}");
        }
    }

    #[test]
    fn lengths_are_those_of_der() {
        let long = [b'a'; 200];
        assert_eq!(
            element(&[&[0x0c, 0x81, 200], &long[..]].concat(), 0x0c),
            Some((&long[..], &[][..]))
        );
        for broken in [
            // Longer than needed, indefinite, beyond the end.
            &[0x0c, 0x81, 1, b'a'][..],
            &[0x0c, 0x82, 0, 1, b'a'],
            &[0x0c, 0x80, b'a', 0, 0],
            &[0x0c, 2, b'a'],
            &[0x0c, 0x84, 0, 0, 0, 1, b'a'],
            &[0x0c],
        ] {
            assert_eq!(element(broken, 0x0c), None, "{broken:?}");
        }
    }
}
