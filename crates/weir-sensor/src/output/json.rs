//! JSON written straight into a buffer that is used again: no maps and no allocation for a record.

/// Appends a string with its quotes, escaped.
pub fn string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut from = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' && byte != 0x7f {
            continue;
        }
        out.extend_from_slice(&bytes[from..at]);
        from = at + 1;
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            _ => {
                const HEX: &[u8; 16] = b"0123456789abcdef";
                out.extend_from_slice(b"\\u00");
                out.push(HEX[usize::from(byte >> 4)]);
                out.push(HEX[usize::from(byte & 15)]);
            }
        }
    }
    out.extend_from_slice(&bytes[from..]);
    out.push(b'"');
}

/// Appends a number.
pub fn number(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0_u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Appends a list, each item as `one` writes it.
pub fn list<I: IntoIterator>(
    out: &mut Vec<u8>,
    items: I,
    mut one: impl FnMut(&mut Vec<u8>, I::Item),
) {
    out.push(b'[');
    for (n, item) in items.into_iter().enumerate() {
        if n > 0 {
            out.push(b',');
        }
        one(out, item);
    }
    out.push(b']');
}

/// Appends bytes in base64, with its quotes.
pub fn base64(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    crate::base64::encode(bytes, out);
    out.push(b'"');
}

/// Appends what can be printed of bytes, the rest as dots, with quotes.
pub fn printable(out: &mut Vec<u8>, bytes: &[u8]) {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        text.push(match byte {
            b'\r' | b'\n' | 0x20..0x7f => char::from(byte),
            _ => '.',
        });
    }
    string(out, &text);
}

/// An object that is being written. It ends with [`Object::end`].
#[derive(Debug)]
pub struct Object<'a> {
    out: &'a mut Vec<u8>,
    some: bool,
}

impl<'a> Object<'a> {
    /// Begins one.
    pub fn new(out: &'a mut Vec<u8>) -> Object<'a> {
        out.push(b'{');
        Object { out, some: false }
    }

    /// A key; its value is to be appended to the buffer returned. Keys are the program's own and need no escapes.
    pub fn key(&mut self, key: &str) -> &mut Vec<u8> {
        if self.some {
            self.out.push(b',');
        }
        self.some = true;
        self.out.push(b'"');
        self.out.extend_from_slice(key.as_bytes());
        self.out.extend_from_slice(b"\":");
        self.out
    }

    /// A string.
    pub fn string(&mut self, key: &str, value: &str) {
        string(self.key(key), value);
    }

    /// A number.
    pub fn number(&mut self, key: &str, value: u64) {
        number(self.key(key), value);
    }

    /// True or false.
    pub fn boolean(&mut self, key: &str, value: bool) {
        self.key(key)
            .extend_from_slice(if value { b"true" } else { b"false" });
    }

    /// What is JSON already.
    pub fn raw(&mut self, key: &str, value: &[u8]) {
        self.key(key).extend_from_slice(value);
    }

    /// What can be shown, as a string. It must need no escapes.
    pub fn plain(&mut self, key: &str, value: impl std::fmt::Display) {
        use std::io::Write;
        // Writing to memory does not fail.
        let _ = write!(self.key(key), "\"{value}\"");
    }

    /// A point in time.
    pub fn time(&mut self, key: &str, nanoseconds: u64) {
        let out = self.key(key);
        out.push(b'"');
        crate::time::eve(out, nanoseconds);
        out.push(b'"');
    }

    /// An object within.
    pub fn object(&mut self, key: &str) -> Object<'_> {
        Object::new(self.key(key))
    }

    /// Ends it.
    pub fn end(self) {
        self.out.push(b'}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(f: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        f(&mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn strings_are_read_back_as_they_were() {
        for text in [
            "",
            "plain",
            "a \"quoted\" \\ word",
            "line\r\n\ttab",
            "nul \0 and \u{1f} \u{7f}",
            "über 日本",
        ] {
            let json = written(|out| string(out, text));
            let back: String = serde_json::from_str(&json).expect("JSON");
            assert_eq!(back, text);
        }
    }

    #[test]
    fn numbers_and_base64() {
        assert_eq!(written(|out| number(out, 0)), "0");
        assert_eq!(written(|out| number(out, u64::MAX)), u64::MAX.to_string());
        // The examples of RFC 4648, section 10.
        for (plain, coded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(
                written(|out| base64(out, plain.as_bytes())),
                format!("\"{coded}\"")
            );
        }
    }

    #[test]
    fn objects_nest() {
        let json = written(|out| {
            let mut o = Object::new(out);
            o.string("a", "b");
            let mut inner = o.object("o");
            inner.boolean("yes", true);
            inner.end();
            o.object("empty").end();
            o.number("n", 7);
            o.end();
        });
        assert_eq!(json, r#"{"a":"b","o":{"yes":true},"empty":{},"n":7}"#);
    }
}
