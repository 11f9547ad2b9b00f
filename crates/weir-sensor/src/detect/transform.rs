//! Changes of a buffer before it is inspected.

use std::io::Read as _;
use std::ops::Range;
use std::sync::Arc;

use flate2::read::{GzDecoder, ZlibDecoder};
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha256};

use crate::base64;
use crate::rules::{Base64, Expression, Expressions, Pcre, Transform};
use crate::script::Script;

use super::script::Scripts;

/// A transform, ready to run.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    DotPrefix,
    Lowercase,
    Uppercase,
    StripWhitespace,
    CompressWhitespace,
    UrlDecode,
    Md5,
    Sha1,
    Sha256,
    Xor(Vec<u8>),
    Pcre(Arc<Expression>),
    HeaderLowercase,
    StripPseudoHeaders,
    Base64(Base64),
    Inflate(bool, u32),
    Subslice(i32, Option<i32>, bool),
    Field(Vec<u8>),
    Lua(Arc<Script>, Box<[String]>),
}

impl Change {
    pub(super) fn new(
        transform: &Transform,
        expressions: &mut Expressions,
    ) -> Result<Change, String> {
        Ok(match transform {
            Transform::DotPrefix => Change::DotPrefix,
            Transform::Lowercase => Change::Lowercase,
            Transform::Uppercase => Change::Uppercase,
            Transform::StripWhitespace => Change::StripWhitespace,
            Transform::CompressWhitespace => Change::CompressWhitespace,
            Transform::UrlDecode => Change::UrlDecode,
            Transform::Md5 => Change::Md5,
            Transform::Sha1 => Change::Sha1,
            Transform::Sha256 => Change::Sha256,
            Transform::Xor(key) if key.is_empty() => return Err("xor without a key".into()),
            Transform::Xor(key) => Change::Xor(key.clone()),
            Transform::Pcre(pattern) => Change::Pcre(expression(pattern, expressions)?),
            Transform::HeaderLowercase => Change::HeaderLowercase,
            Transform::StripPseudoHeaders => Change::StripPseudoHeaders,
            Transform::Domain | Transform::Tld => {
                return Err(
                    "domain and tld need a list of public suffixes, which is not here".into(),
                );
            }
            Transform::Subslice {
                offset,
                bytes,
                truncate,
            } => Change::Subslice(*offset, *bytes, *truncate),
            Transform::Field(name) => Change::Field(name.to_ascii_lowercase().into_bytes()),
            Transform::Lua(script, words) => {
                Change::Lua(Arc::clone(script), words.as_slice().into())
            }
            Transform::Inflate { gzip, most } => Change::Inflate(*gzip, *most),
            Transform::Base64(how) => match how.mode.as_deref() {
                None | Some("rfc2045" | "rfc4648" | "strict") => Change::Base64(how.clone()),
                Some(other) => return Err(format!("from_base64 has no mode `{other}`")),
            },
        })
    }

    /// Writes the changed bytes to `out`; returns whether there is a buffer then.
    pub(super) fn apply(&self, bytes: &[u8], out: &mut Vec<u8>, scripts: &mut Scripts) -> bool {
        out.clear();
        let blank = |b: u8| matches!(b, b' ' | 9..=13);
        match self {
            Change::DotPrefix => {
                out.push(b'.');
                out.extend_from_slice(bytes);
            }
            Change::Lowercase => out.extend(bytes.iter().map(u8::to_ascii_lowercase)),
            Change::Uppercase => out.extend(bytes.iter().map(u8::to_ascii_uppercase)),
            Change::StripWhitespace => out.extend(bytes.iter().filter(|b| !blank(**b))),
            Change::CompressWhitespace => {
                let mut before = false;
                for b in bytes {
                    if !(before && blank(*b)) {
                        out.push(*b);
                    }
                    before = blank(*b);
                }
            }
            Change::UrlDecode => url_decode(bytes, out),
            Change::Md5 => out.extend_from_slice(&Md5::digest(bytes)),
            Change::Sha1 => out.extend_from_slice(&Sha1::digest(bytes)),
            Change::Sha256 => out.extend_from_slice(&Sha256::digest(bytes)),
            Change::Xor(key) => {
                out.extend(bytes.iter().zip(key.iter().cycle()).map(|(b, k)| b ^ k))
            }
            Change::Pcre(expression) => {
                // Without a match the buffer stays as it is.
                let mut found = expression.locations();
                let group = expression
                    .captures(bytes, &mut found)
                    .ok()
                    .and(found.get(1));
                let (from, to) = group.unwrap_or((0, bytes.len()));
                out.extend_from_slice(bytes.get(from..to).unwrap_or_default());
            }
            Change::Field(name) => {
                let value = bytes.split(|b| *b == b'\n').find_map(|line| {
                    let colon = line.iter().position(|b| *b == b':')?;
                    line[..colon]
                        .trim_ascii()
                        .eq_ignore_ascii_case(name)
                        .then(|| line[colon + 1..].trim_ascii())
                });
                out.extend_from_slice(value.unwrap_or_default());
                return value.is_some();
            }
            Change::Lua(script, words) => match scripts.transform(script, words, bytes) {
                Some(changed) => *out = changed,
                None => out.extend_from_slice(bytes),
            },
            Change::HeaderLowercase => {
                let mut name = true;
                for b in bytes {
                    match b {
                        b':' => name = false,
                        b'\n' => name = true,
                        _ => {}
                    }
                    out.push(if name { b.to_ascii_lowercase() } else { *b });
                }
            }
            Change::StripPseudoHeaders => {
                for line in bytes.split_inclusive(|b| *b == b'\n') {
                    if line.first() != Some(&b':') {
                        out.extend_from_slice(line);
                    }
                }
            }
            Change::Subslice(offset, count, truncate) => {
                let range = part(bytes.len(), *offset, *count, *truncate);
                out.extend_from_slice(bytes.get(range).unwrap_or_default());
            }
            Change::Inflate(gzip, most) => {
                // What breaks off is inspected as far as it goes.
                let most = u64::from(*most);
                let _ = match gzip {
                    true => GzDecoder::new(bytes).take(most).read_to_end(out),
                    false => ZlibDecoder::new(bytes).take(most).read_to_end(out),
                };
            }
            Change::Base64(how) => {
                let mut encoded = bytes.get(how.offset as usize..).unwrap_or_default();
                if let Some(count) = how.bytes {
                    encoded = encoded.get(..count as usize).unwrap_or_default();
                }
                match how.mode.as_deref() {
                    Some("rfc2045") => base64::decode_lenient(encoded, out),
                    Some("strict") => base64::decode_strict(encoded, out),
                    _ => {
                        base64::decode_whole_bytes(encoded, out);
                    }
                }
                // What is no Base64, or has fewer bytes than asked for, stays as it is.
                if out.is_empty() {
                    out.extend_from_slice(bytes);
                }
            }
        }
        true
    }
}

/// The expression of a transform, which has no flags.
fn expression(pattern: &str, expressions: &mut Expressions) -> Result<Arc<Expression>, String> {
    let pcre = Pcre::new(pattern.to_owned());
    expressions.of(&pcre).map_err(|e| e.to_string())
}

/// The part of so many bytes that `subslice` asks for; nothing where it is not in them, unless it may be cut.
fn part(length: usize, offset: i32, count: Option<i32>, truncate: bool) -> Range<usize> {
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    let from_end = |n: i64| if n < 0 { length + n } else { n };
    let from = from_end(offset.into());
    let to = match count.map(i64::from) {
        None => length,
        Some(n) if n < 0 => length + n,
        Some(n) => from.max(0) + n,
    };
    let inside = 0..=length;
    let (from, to) = match truncate {
        true => (from.clamp(0, length), to.clamp(0, length)),
        false if inside.contains(&from) && inside.contains(&to) => (from, to),
        false => (0, 0),
    };
    let place = |n: i64| usize::try_from(n).unwrap_or(0);
    place(from)..place(to.max(from))
}

/// `%xx` and `+`; what is no escape stays.
fn url_decode(bytes: &[u8], out: &mut Vec<u8>) {
    let digit = |b: Option<&u8>| b.and_then(|b| char::from(*b).to_digit(16));
    let mut at = 0;
    while let Some(b) = bytes.get(at) {
        let escape = (*b == b'%')
            .then(|| Some((digit(bytes.get(at + 1))?, digit(bytes.get(at + 2))?)))
            .flatten();
        match (b, escape) {
            (_, Some((high, low))) => {
                out.push((high << 4 | low) as u8);
                at += 3;
                continue;
            }
            (b'+', _) => out.push(b' '),
            _ => out.push(*b),
        }
        at += 1;
    }
}

/// Runs a chain of transforms; the result is in one of the two buffers. `None`: there is no buffer after them.
pub(super) fn change<'a>(
    changes: &[Change],
    bytes: &[u8],
    [a, b]: &'a mut [Vec<u8>; 2],
    scripts: &mut Scripts,
) -> Option<&'a [u8]> {
    let (mut now, mut next) = (a, b);
    now.clear();
    let mut first = true;
    for change in changes {
        let there = if first {
            change.apply(bytes, now, scripts)
        } else {
            let there = change.apply(now, next, scripts);
            std::mem::swap(&mut now, &mut next);
            there
        };
        if !there {
            return None;
        }
        first = false;
    }
    Some(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(transform: Transform, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        Change::new(&transform, &mut Expressions::default())
            .expect("is supported")
            .apply(bytes, &mut out, &mut Scripts::default());
        out
    }

    #[test]
    fn each_transform_yields_what_its_keyword_says() {
        assert_eq!(changed(Transform::DotPrefix, b"a.b"), b".a.b");
        assert_eq!(changed(Transform::StripWhitespace, b" a\tb\r\n c"), b"abc");
        assert_eq!(
            changed(Transform::CompressWhitespace, b"a  \t b  "),
            b"a b "
        );
        assert_eq!(changed(Transform::UrlDecode, b"%41+%4%zz%"), b"A %4%zz%");
        assert_eq!(
            changed(Transform::Xor(vec![1, 2]), b"\x00\x00\x00"),
            [1, 2, 1]
        );
        assert_eq!(changed(Transform::Pcre("a(.)c".into()), b"xxabc"), b"b");
        assert_eq!(changed(Transform::Pcre("a(.)c".into()), b"xyz"), b"xyz");
        assert_eq!(
            changed(Transform::Field("Host".into()), b"A: b\r\nhost:  x y \r\n"),
            b"x y"
        );
        assert_eq!(
            changed(Transform::HeaderLowercase, b"Host: ABC\r\nX-Y: Z\r\n"),
            b"host: ABC\r\nx-y: Z\r\n"
        );
        assert_eq!(
            changed(Transform::StripPseudoHeaders, b":path: /\na: b\n"),
            b"a: b\n"
        );
        let base64 = |mode: Option<&str>, bytes, text: &[u8]| {
            let how = Base64 {
                bytes,
                offset: 0,
                relative: false,
                mode: mode.map(str::to_owned),
            };
            changed(Transform::Base64(how), text)
        };
        assert_eq!(base64(None, None, b"aGVsbG8.x"), b"hello");
        assert_eq!(base64(None, Some(4), b"aGVsbG8="), b"hel");
        // What cannot be decoded so stays as it is.
        for (mode, bytes, text) in [
            (None, None, &b"!!!!"[..]),
            (None, None, b"aGVsb.x"),
            (None, Some(12), b"aGVsbG8="),
            (Some("strict"), None, b"aGVsbG8"),
            (Some("rfc2045"), None, b"a.b"),
        ] {
            assert_eq!(base64(mode, bytes, text), text);
        }
        assert_eq!(base64(Some("strict"), None, b"aGVsbG8="), b"hello");
        assert_eq!(base64(Some("rfc2045"), None, b"aG VsbG8"), b"hel");
        let mut zipped = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        std::io::Write::write_all(&mut zipped, b"hello").expect("memory");
        let zipped = zipped.finish().expect("memory");
        let inflate = |gzip, most| changed(Transform::Inflate { gzip, most }, &zipped);
        assert_eq!(inflate(true, 1024), b"hello");
        assert_eq!(inflate(true, 3), b"hel");
        assert_eq!(inflate(false, 1024), b"");
        let sub = |offset, bytes, truncate| {
            let part = Transform::Subslice {
                offset,
                bytes,
                truncate,
            };
            String::from_utf8(changed(part, b"curl/7.64.1")).expect("text")
        };
        for (offset, bytes, truncate, expected) in [
            (0, Some(4), false, "curl"),
            (5, None, false, "7.64.1"),
            (-6, None, false, "7.64.1"),
            (-6, Some(1), false, "7"),
            (0, Some(-6), false, "curl/"),
            (-11, Some(-6), true, "curl/"),
            (11, None, false, ""),
            // Beyond the buffer.
            (0, Some(12), false, ""),
            (0, Some(12), true, "curl/7.64.1"),
            (12, None, false, ""),
            (12, Some(3), true, ""),
            (-20, Some(4), false, ""),
            (-20, Some(4), true, "curl"),
            (0, Some(-30), false, ""),
            (-20, Some(-30), true, ""),
            (8, Some(-6), false, ""),
            (i32::MIN, Some(i32::MAX), true, "curl/7.64.1"),
        ] {
            let found = sub(offset, bytes, truncate);
            assert_eq!(found, expected, "{offset} {bytes:?} {truncate}");
        }
        let hex = |b: Vec<u8>| b.iter().map(|b| format!("{b:02x}")).collect::<String>();
        assert_eq!(
            hex(changed(Transform::Md5, b"")),
            "d41d8cd98f00b204e9800998ecf8427e"
        );
        assert_eq!(
            hex(changed(Transform::Sha1, b"abc")),
            "a9993e364706816aba3e25717850c26c9cd0d89d"
        );
        assert!(hex(changed(Transform::Sha256, b"abc")).starts_with("ba7816bf8f01cfea"));
        assert!(Change::new(&Transform::Tld, &mut Expressions::default()).is_err());
    }
}
