//! Numbers of the wire, where there are that many bytes.

pub(super) fn be16(b: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*b.get(at)?, *b.get(at + 1)?]))
}

pub(super) fn be32(b: &[u8], at: usize) -> Option<u32> {
    Some(u32::from(be16(b, at)?) << 16 | u32::from(be16(b, at + 2)?))
}

pub(super) fn le16(b: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes([*b.get(at)?, *b.get(at + 1)?]))
}

pub(super) fn le32(b: &[u8], at: usize) -> Option<u32> {
    Some(u32::from(le16(b, at + 2)?) << 16 | u32::from(le16(b, at)?))
}

/// As many bytes as there are, up to `most`, and the rest.
pub(super) fn split_most(bytes: &[u8], most: usize) -> (&[u8], &[u8]) {
    bytes.split_at_checked(most).unwrap_or((bytes, &[]))
}
