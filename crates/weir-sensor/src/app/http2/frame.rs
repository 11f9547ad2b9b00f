//! Frames of HTTP/2 (RFC 9113, 4 and 6): their heads, and the numbers in them by name.

use crate::app::bytes::be32;

/// Bytes of a head.
pub(super) const HEAD: usize = 9;
/// What a client says before its first frame.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const PRIORITY: u8 = 2;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PUSH_PROMISE: u8 = 5;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

/// Of SETTINGS and PING: an answer. Of DATA and HEADERS: nothing of this end follows in the stream.
pub(super) const ACK: u8 = 1;
pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;
pub(super) const PADDED: u8 = 8;
pub(super) const HAS_PRIORITY: u8 = 0x20;

/// The head of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) length: u32,
    pub(super) kind: u8,
    pub(super) flags: u8,
    /// 0: the connection.
    pub(super) stream: u32,
}

impl Head {
    pub(super) fn read(bytes: &[u8; HEAD]) -> Head {
        let [a, b, c, kind, flags, ..] = *bytes;
        Head {
            length: u32::from_be_bytes([0, a, b, c]),
            kind,
            flags,
            stream: be32(bytes, 5).unwrap_or(0) & 0x7fff_ffff,
        }
    }

    pub(super) fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Whether frames of its type are of the connection, or of a stream, as this one is.
    pub(super) fn is_placed(self) -> bool {
        match self.kind {
            SETTINGS | PING | GOAWAY => self.stream == 0,
            DATA | HEADERS | PRIORITY | RST_STREAM | PUSH_PROMISE | CONTINUATION => {
                self.stream != 0
            }
            _ => true,
        }
    }

    /// Whether its length is one that frames of its type have.
    pub(super) fn is_measured(self) -> bool {
        match self.kind {
            PRIORITY => self.length == 5,
            RST_STREAM | WINDOW_UPDATE => self.length == 4,
            SETTINGS => self.length.is_multiple_of(6) && (!self.has(ACK) || self.length == 0),
            PING => self.length == 8,
            GOAWAY => self.length >= 8,
            _ => true,
        }
    }

    /// Whether these may be the first bytes of a direction whose beginning was not seen.
    pub(super) fn is_likely(self) -> bool {
        self.length <= 16_384 && self.kind <= CONTINUATION && self.is_placed() && self.is_measured()
    }
}

/// Types of frames, as rules name them.
pub(super) const KINDS: &[(&str, u64)] = &[
    ("DATA", 0),
    ("HEADERS", 1),
    ("PRIORITY", 2),
    ("RSTSTREAM", 3),
    ("SETTINGS", 4),
    ("PUSHPROMISE", 5),
    ("PING", 6),
    ("GOAWAY", 7),
    ("WINDOWUPDATE", 8),
    ("CONTINUATION", 9),
    ("RST_STREAM", 3),
    ("PUSH_PROMISE", 5),
    ("WINDOW_UPDATE", 8),
];

/// Error codes (7), as rules name them.
pub(super) const ERRORS: &[(&str, u64)] = &[
    ("NO_ERROR", 0),
    ("PROTOCOL_ERROR", 1),
    ("INTERNAL_ERROR", 2),
    ("FLOW_CONTROL_ERROR", 3),
    ("SETTINGS_TIMEOUT", 4),
    ("STREAM_CLOSED", 5),
    ("FRAME_SIZE_ERROR", 6),
    ("REFUSED_STREAM", 7),
    ("CANCEL", 8),
    ("COMPRESSION_ERROR", 9),
    ("CONNECT_ERROR", 10),
    ("ENHANCE_YOUR_CALM", 11),
    ("INADEQUATE_SECURITY", 12),
    ("HTTP_1_1_REQUIRED", 13),
];

/// Settings (6.5.2), as rules name them.
pub(super) const SETTING_NAMES: &[(&str, u64)] = &[
    ("SETTINGS_HEADER_TABLE_SIZE", 1),
    ("SETTINGS_ENABLE_PUSH", 2),
    ("SETTINGS_MAX_CONCURRENT_STREAMS", 3),
    ("SETTINGS_INITIAL_WINDOW_SIZE", 4),
    ("SETTINGS_MAX_FRAME_SIZE", 5),
    ("SETTINGS_MAX_HEADER_LIST_SIZE", 6),
    ("SETTINGS_ENABLE_CONNECT_PROTOCOL", 8),
    ("SETTINGS_NO_RFC7540_PRIORITIES", 9),
];

/// A number as records name it: without lines between the words, as logs of such sensors have it.
pub(super) fn logged(names: &[(&str, u64)], number: u64, other: &str) -> String {
    match names.iter().find(|(_, n)| *n == number) {
        Some((name, _)) => name.replace('_', ""),
        None => format!("{other}({number})"),
    }
}
