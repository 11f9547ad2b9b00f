//! How analyses write contents and name buffers.

use crate::app::App;
use crate::buffer::Buffer;

/// A content as rules write it: what is no plain text in hexadecimal between bars.
pub(super) fn written(bytes: &[u8]) -> String {
    let mut out = String::new();
    let mut hexadecimal = false;
    for byte in bytes {
        let plain = byte.is_ascii_graphic() && !b"\"|:;\\".contains(byte);
        if plain == hexadecimal {
            out.push('|');
            hexadecimal = !plain;
        } else if hexadecimal {
            out.push(' ');
        }
        match plain {
            true => out.push(char::from(*byte)),
            false => out.push_str(&format!("{byte:02X}")),
        }
    }
    if hexadecimal {
        out.push('|');
    }
    out
}

/// The name of a buffer, as programs that read analyses know it: of HTTP and a few others with underscores, as the keywords were before they were sticky.
pub(super) fn engine_name(buffer: Buffer) -> &'static str {
    match buffer {
        Buffer::Payload => return "payload",
        Buffer::HttpResponseBody => return engine_name(Buffer::FileData),
        _ => {}
    }
    let (sticky, modifiers) = buffer.words();
    let older = matches!(buffer.app(), Some(App::Http1 | App::Smb))
        || matches!(
            buffer,
            Buffer::FileData | Buffer::DnsQuery | Buffer::DcerpcStub
        );
    let with_underscores = |name: &&&'static str| !name.contains('.');
    let found = modifiers.iter().chain(&sticky).find(with_underscores);
    found.filter(|_| older).copied().unwrap_or(buffer.name())
}

#[cfg(test)]
mod tests {
    use super::written;

    #[test]
    fn contents_are_written_as_rules_write_them() {
        for (bytes, expected) in [
            (&b"one"[..], "one"),
            (b"in pkt", "in|20|pkt"),
            (b"\x15\x03\x01", "|15 03 01|"),
            (b"a;\\b", "a|3B 5C|b"),
        ] {
            assert_eq!(written(bytes), expected);
        }
    }
}
