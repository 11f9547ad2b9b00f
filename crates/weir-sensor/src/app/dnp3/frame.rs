//! Frames of DNP3: a header of eight bytes and blocks of sixteen, each with its sum.

use serde_json::{Value, json};

/// Bytes of a header with its sum.
pub(super) const HEADER: usize = 10;
/// Bytes of a block of data that have one sum.
const BLOCK: usize = 16;

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    control: u8,
    pub(super) source: u16,
    pub(super) destination: u16,
}

/// What stands at the front of some bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// More are needed.
    More,
    /// No frame, or one whose header was changed.
    BadHeader,
    /// A length that not even the header has.
    Short,
    /// A frame of this length whose data was changed.
    BadData(usize),
    /// Its length, its data without sums, and its header.
    Whole(usize, Vec<u8>, Frame),
}

impl Frame {
    pub(super) fn take(bytes: &[u8]) -> Taken {
        let Some(header) = bytes.first_chunk::<HEADER>() else {
            return Taken::More;
        };
        let [a, b, length, control, d0, d1, s0, s1, c0, c1] = *header;
        let summed = header.get(..8).unwrap_or_default();
        if [a, b] != [5, 0x64] || sum(summed) != u16::from_le_bytes([c0, c1]) {
            return Taken::BadHeader;
        }
        // Control and addresses are counted.
        let Some(count) = usize::from(length).checked_sub(5) else {
            return Taken::Short;
        };
        let all = HEADER + count + 2 * count.div_ceil(BLOCK);
        let Some(blocks) = bytes.get(HEADER..all) else {
            return Taken::More;
        };
        let mut data = Vec::with_capacity(count);
        for block in blocks.chunks(BLOCK + 2) {
            let Some((part, told)) = block.split_last_chunk::<2>() else {
                return Taken::BadData(all);
            };
            if sum(part) != u16::from_le_bytes(*told) {
                return Taken::BadData(all);
            }
            data.extend_from_slice(part);
        }
        let frame = Frame {
            control,
            source: u16::from_le_bytes([s0, s1]),
            destination: u16::from_le_bytes([d0, d1]),
        };
        Taken::Whole(all, data, frame)
    }

    /// Whether it carries data of its user, confirmed or not.
    pub(super) fn has_data(&self) -> bool {
        self.control & 0x40 != 0 && matches!(self.control & 15, 3 | 4)
    }

    /// Its control byte, as records have it.
    pub(super) fn show(&self) -> Value {
        let bit = |bit: u8| self.control & bit != 0;
        json!({
            "dir": bit(0x80), "pri": bit(0x40), "fcb": bit(0x20), "fcv": bit(0x10),
            "function_code": self.control & 15,
        })
    }
}

/// CRC-16 of DNP.
pub(super) fn sum(bytes: &[u8]) -> u16 {
    let mut crc = 0u16;
    for byte in bytes {
        crc ^= u16::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 != 0 {
                crc >> 1 ^ 0xa6bc
            } else {
                crc >> 1
            };
        }
    }
    !crc
}
