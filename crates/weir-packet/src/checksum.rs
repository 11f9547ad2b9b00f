//! The Internet checksum (RFC 1071), its incremental update (RFC 1624), and pseudo-header sums.
//!
//! Sums are plain additions of big-endian 16-bit words in 64 bits; nothing overflows below 2^48 words.
//! The update is the exact arithmetic of docs/semantics.md section 4: every engine gives the same 16 bits,
//! not merely an equivalent value of one's complement.

/// Adds the big-endian 16-bit words of `bytes`; an odd last byte counts as the high half of a word.
pub fn sum(bytes: &[u8]) -> u64 {
    bytes
        .chunks(2)
        .map(|pair| match *pair {
            [high, low] => u64::from(u16::from_be_bytes([high, low])),
            [high] => u64::from(high) << 8,
            _ => 0,
        })
        .sum()
}

/// Adds carries into the low 16 bits until the value fits (RFC 1071 section 4.1).
pub fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The checksum of `bytes`, whose own checksum field must be zero.
pub fn checksum(bytes: &[u8]) -> u16 {
    !fold(sum(bytes))
}

/// The checksum field `old` after covered words with the sum `before` became words with the sum `after`
/// (RFC 1624, equation 3). Equal sums change nothing.
pub fn update(old: u16, before: u64, after: u64) -> u16 {
    if before == after {
        return old;
    }
    !fold(u64::from(!old) + difference(before, after))
}

/// As [`update`] for a field that holds a plain, not inverted sum: an unfinished checksum.
pub fn update_plain(old: u16, before: u64, after: u64) -> u16 {
    if before == after {
        return old;
    }
    fold(u64::from(old) + difference(before, after))
}

/// Sum of the IPv4 pseudo-header (RFC 9293 section 3.1).
pub fn pseudo_header4(source: [u8; 4], destination: [u8; 4], protocol: u8, length: u32) -> u64 {
    sum(&source) + sum(&destination) + u64::from(protocol) + sum(&length.to_be_bytes())
}

/// Sum of the IPv6 pseudo-header (RFC 8200 section 8.1).
pub fn pseudo_header6(source: [u8; 16], destination: [u8; 16], protocol: u8, length: u32) -> u64 {
    sum(&source) + sum(&destination) + u64::from(protocol) + sum(&length.to_be_bytes())
}

/// `after - before` as a non-negative number: 0xffff0000 is 0 modulo 0xffff.
fn difference(before: u64, after: u64) -> u64 {
    after + (0xffff_0000 - before)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_example_of_rfc_1071() {
        assert_eq!(
            sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]),
            0x2_ddf0
        );
        assert_eq!(fold(0x2_ddf0), 0xddf2);
        assert_eq!(
            checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]),
            !0xddf2
        );
        assert_eq!(sum(&[0xab]), 0xab00);
        assert_eq!(sum(&[]), 0);
    }

    #[test]
    fn the_example_of_rfc_1624() {
        assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
        assert_eq!(update(0xdd2f, 0x5555, 0x5555), 0xdd2f);
    }

    #[test]
    fn pseudo_headers_add_their_fields() {
        assert_eq!(
            pseudo_header4([10, 0, 0, 1], [10, 0, 0, 2], 6, 20),
            0x0a00 + 1 + 0x0a00 + 2 + 6 + 20
        );
        let mut address = [0; 16];
        address[15] = 1;
        assert_eq!(
            pseudo_header6(address, address, 17, 0x1_0008),
            1 + 1 + 17 + 1 + 8
        );
    }

    proptest! {
        #[test]
        fn a_correct_checksum_stays_correct(mut bytes in prop::collection::vec(any::<u8>(), 4..80), at in any::<prop::sample::Index>(), new in any::<u16>()) {
            let old = checksum(&bytes);
            let at = at.index(bytes.len() / 2) * 2;
            let before = sum(&bytes[at..at + 2]);
            bytes[at..at + 2].copy_from_slice(&new.to_be_bytes());
            let updated = update(old, before, u64::from(new));
            prop_assert_eq!(fold(sum(&bytes) + u64::from(updated)), 0xffff);
        }
    }
}
