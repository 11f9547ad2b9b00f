//! Base64: its digits, and decoding as rules ask for it: by RFC 4648 up to the first character that does not belong, or by RFC 2045, which passes over such characters.

/// What a character stands for.
pub(crate) fn digit(byte: u8) -> Option<u32> {
    Some(u32::from(match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    }))
}

/// Encodes bytes, with padding.
pub(crate) fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for part in bytes.chunks(3) {
        let word = u32::from(part[0]) << 16
            | u32::from(*part.get(1).unwrap_or(&0)) << 8
            | u32::from(*part.get(2).unwrap_or(&0));
        for digit in 0..4 {
            if digit <= part.len() {
                out.push(ALPHABET[(word >> (18 - 6 * digit) & 63) as usize]);
            } else {
                out.push(b'=');
            }
        }
    }
}

/// Decodes to `out` as far as the alphabet goes; an incomplete last group yields the bytes it has.
pub(crate) fn decode_until_invalid(encoded: &[u8], out: &mut Vec<u8>) {
    decode(encoded.iter().map_while(|b| digit(*b)), out);
}

/// The same, but padding ends its group only, and what follows is decoded, too; and nothing is if a group has less than two characters before its padding or end: that is no byte,
/// and what is decoded then was never encoded. Returns how many characters were looked at.
pub(crate) fn decode_whole_bytes(encoded: &[u8], out: &mut Vec<u8>) -> usize {
    out.clear();
    let ours = |b: &u8| *b == b'=' || digit(*b).is_some();
    let end = encoded.iter().position(|b| !ours(b));
    let end = end.unwrap_or(encoded.len());
    for group in encoded[..end].chunks(4) {
        let mut digits = group.iter().map_while(|b| digit(*b));
        let (Some(a), Some(b)) = (digits.next(), digits.next()) else {
            out.clear();
            return end;
        };
        let (c, d) = (digits.next(), digits.next());
        let bits = a << 18 | b << 12 | c.unwrap_or(0) << 6 | d.unwrap_or(0);
        let bytes = 1 + usize::from(c.is_some()) + usize::from(d.is_some());
        out.extend_from_slice(&bits.to_be_bytes()[1..][..bytes]);
    }
    end
}

/// Decodes whole groups to `out`, passing over what is not of the alphabet; padding ends the last one.
pub(crate) fn decode_lenient(encoded: &[u8], out: &mut Vec<u8>) {
    let data = encoded.iter().take_while(|b| **b != b'=');
    decode(data.filter_map(|b| digit(*b)), out);
    let ours = |b: &&u8| **b == b'=' || digit(**b).is_some();
    let characters = encoded.iter().filter(ours).count();
    if encoded.contains(&b'=') && characters.is_multiple_of(4) {
        return;
    }
    out.truncate(out.len() / 3 * 3);
}

/// Decodes to `out`, all or nothing.
pub(crate) fn decode_strict(encoded: &[u8], out: &mut Vec<u8>) {
    let data = encoded.len()
        - encoded
            .iter()
            .rev()
            .take(2)
            .take_while(|b| **b == b'=')
            .count();
    if encoded.len().is_multiple_of(4) && encoded[..data].iter().all(|b| digit(*b).is_some()) {
        decode_until_invalid(encoded, out);
    }
}

fn decode(digits: impl Iterator<Item = u32>, out: &mut Vec<u8>) {
    out.clear();
    let (mut bits, mut have) = (0_u32, 0);
    for d in digits {
        bits = bits << 6 | d;
        have += 6;
        if have >= 8 {
            have -= 8;
            out.push((bits >> have) as u8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mode_has_its_way_with_foreign_characters() {
        let mut out = Vec::new();
        decode_until_invalid(b"aGVs bG8=", &mut out);
        assert_eq!(out, b"hel");
        decode_until_invalid(b"aGVsbG8=", &mut out);
        assert_eq!(out, b"hello");
        decode_lenient(b"aG-Vs\r\nbG8=", &mut out);
        assert_eq!(out, b"hello");
        decode_lenient(b"aG-VsbG8", &mut out);
        assert_eq!(out, b"hel");
        decode_whole_bytes(b"aGVsbG8.com", &mut out);
        assert_eq!(out, b"hello");
        decode_whole_bytes(b"aGVsb.com", &mut out);
        assert!(out.is_empty());
        decode_whole_bytes(b"YQ==YWJjZGU=YWI", &mut out);
        assert_eq!(out, b"aabcdeab");
        for bad in [&b"YWJj=="[..], b"YWJj=YWJ", b"Y===", b"=", b""] {
            decode_whole_bytes(bad, &mut out);
            assert!(out.is_empty(), "{bad:?}");
        }
        decode_strict(b"aG-VsbG8", &mut out);
        assert!(out.is_empty());
        decode_strict(b"aGVsbG8=", &mut out);
        assert_eq!(out, b"hello");
    }
}
