//! The Internet checksum over whole packets, eight bytes at a time; `weir_packet::checksum` is the plain form that tests compare it with.

/// The one's complement sum of the big-endian 16-bit words of `bytes`, folded; an odd last byte is the high half of a word.
pub(super) fn sum(bytes: &[u8]) -> u32 {
    // The sum does not care for byte order until its end (RFC 1071, section 2 B), so words are added as they lie.
    let mut total = 0_u64;
    let mut chunks = bytes.chunks_exact(8);
    for chunk in &mut chunks {
        let word = u64::from_le_bytes(chunk.try_into().unwrap_or_default());
        total += (word & 0xffff_ffff) + (word >> 32);
    }
    let rest = chunks.remainder();
    let mut last = [0; 8];
    for (last, byte) in last.iter_mut().zip(rest) {
        *last = *byte;
    }
    let word = u64::from_le_bytes(last);
    total += (word & 0xffff_ffff) + (word >> 32);
    let total = (total & 0xffff_ffff) + (total >> 32);
    let total = (total & 0xffff) + (total >> 16 & 0xffff) + (total >> 32);
    let total = (total & 0xffff) + (total >> 16);
    let total = (total & 0xffff) + (total >> 16);
    u32::from((total as u16).swap_bytes())
}

/// Whether folded sums that include the checksum field are right.
pub(super) fn is_right(parts: [u32; 3]) -> bool {
    let total = parts[0] + parts[1] + parts[2];
    let total = (total & 0xffff) + (total >> 16);
    (total & 0xffff) + (total >> 16) == 0xffff
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_the_plain_sum(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let plain = weir_packet::checksum::fold(weir_packet::checksum::sum(&bytes));
            prop_assert_eq!(super::sum(&bytes), u32::from(plain));
        }
    }
}
