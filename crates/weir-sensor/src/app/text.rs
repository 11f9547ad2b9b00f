//! Bytes of the wire as text of the event log.

use serde_json::Value;

/// As text: UTF-8 as it is, any other byte as `\xNN`.
pub(crate) fn text(bytes: &[u8]) -> Value {
    Value::String(string(bytes))
}

pub(crate) fn string(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        for byte in chunk.invalid() {
            out.push_str("\\x");
            out.push(digit(byte >> 4));
            out.push(digit(byte & 15));
        }
    }
    out
}

fn digit(value: u8) -> char {
    let value = value & 15;
    char::from(if value < 10 {
        b'0' + value
    } else {
        b'a' + value - 10
    })
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|b| [digit(b >> 4), digit(b & 15)])
        .collect()
}

/// Hexadecimal with colons between bytes.
pub(crate) fn colons(bytes: &[u8], upper: bool) -> String {
    let mut out = String::with_capacity(bytes.len() * 3);
    for (i, byte) in bytes.iter().enumerate() {
        if i > 0 {
            out.push(':');
        }
        out.push(digit(byte >> 4));
        out.push(digit(byte & 15));
    }
    if upper {
        out.make_ascii_uppercase();
    }
    out
}
