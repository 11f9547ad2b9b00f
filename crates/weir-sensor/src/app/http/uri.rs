//! Request targets: split into their parts, and normalized as rules expect `http.uri`: percent and `%u` decoding once, backslashes as slashes, repeated slashes as one,
//! overlong UTF-8 undone, dot segments removed; the query decoded once, scheme and authority left out.

use std::ops::Range;

use super::wanted::{HttpWanted, Invalid, PathRules};

/// Parts of a request target, as sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::app) struct RequestTarget<'a> {
    /// Host of an absolute target, without credentials and port.
    pub(super) host: Option<&'a [u8]>,
    /// Its port, if it is a number.
    pub(super) port: Option<u16>,
    /// What stands for its port is none.
    pub(super) odd_port: bool,
    pub(super) path: &'a [u8],
    pub(in crate::app) query: Option<&'a [u8]>,
    pub(super) fragment: Option<&'a [u8]>,
    /// What stands before the path: scheme and authority.
    front: &'a [u8],
}

/// Splits a target. That of CONNECT is an authority and nothing else.
pub(in crate::app) fn split(raw: &[u8], connect: bool) -> RequestTarget<'_> {
    let mut target = RequestTarget::default();
    let mut rest = raw;
    if connect {
        let bare = scheme(raw).map_or(raw, |at| &raw[at..]);
        (target.host, target.port) = tunnel_end(bare);
        target.odd_port = target.port.is_none() && has_port(bare);
        target.path = raw;
        return target;
    }
    if let Some(at) = scheme(raw) {
        rest = &raw[at..];
        let end = rest
            .iter()
            .position(|b| matches!(b, b'/' | b'?' | b'#' | b'\\'))
            .unwrap_or(rest.len());
        (target.host, target.port) = authority(&rest[..end]);
        target.odd_port = target.port.is_none() && has_port(&rest[..end]);
        rest = &rest[end..];
        target.front = &raw[..raw.len() - rest.len()];
    }
    if let Some(at) = memchr::memchr(b'#', rest) {
        target.fragment = Some(&rest[at + 1..]);
        rest = &rest[..at];
    }
    if let Some(at) = memchr::memchr(b'?', rest) {
        target.query = Some(&rest[at + 1..]);
        rest = &rest[..at];
    }
    target.path = rest;
    target
}

/// Where the authority begins, if there is `scheme://`.
fn scheme(raw: &[u8]) -> Option<usize> {
    if raw.first() == Some(&b'/') {
        return None;
    }
    let colon = raw
        .iter()
        .position(|b| !(b.is_ascii_alphanumeric() || matches!(b, b'+' | b'.' | b'-')))?;
    (colon > 0 && raw[colon..].starts_with(b"://")).then_some(colon + 3)
}

/// Host and port of `[user[:password]@]host[:port]`.
pub(in crate::app) fn authority(raw: &[u8]) -> (Option<&[u8]>, Option<u16>) {
    let raw = raw.trim_ascii();
    let raw = match memchr::memrchr(b'@', raw) {
        Some(at) => &raw[at + 1..],
        None => raw,
    };
    let host_end = if raw.first() == Some(&b'[') {
        memchr::memchr(b']', raw).map_or(raw.len(), |at| at + 1)
    } else {
        memchr::memchr(b':', raw).unwrap_or(raw.len())
    };
    let host = raw[..host_end].trim_ascii();
    let port = raw
        .get(host_end + 1..)
        .and_then(|p| std::str::from_utf8(p).ok())
        .and_then(|p| p.trim().parse().ok());
    ((!host.is_empty()).then_some(host), port)
}

/// Host and port of a tunnel's other end: `host:port`, without a user. The last colon is the one before the port, as addresses may stand without brackets.
fn tunnel_end(raw: &[u8]) -> (Option<&[u8]>, Option<u16>) {
    let raw = raw.trim_ascii();
    let raw = &raw[..memchr::memchr(b'/', raw).unwrap_or(raw.len())];
    let number = |bytes: &[u8]| std::str::from_utf8(bytes).ok()?.parse::<u16>().ok();
    let (host, port) = match memchr::memrchr(b':', raw) {
        Some(at) if !raw.ends_with(b"]") => (raw[..at].trim_ascii(), number(&raw[at + 1..])),
        _ => (raw, None),
    };
    ((!host.is_empty()).then_some(host), port)
}

/// Whether something that should be a port stands behind the host.
pub(super) fn has_port(raw: &[u8]) -> bool {
    let raw = memchr::memrchr(b'@', raw).map_or(raw, |at| &raw[at + 1..]);
    let behind = memchr::memrchr(b']', raw).map_or(raw, |at| &raw[at..]);
    memchr::memchr(b':', behind).is_some()
}

/// Appends the normalized target. Returns where its path stands, and whether it was encoded twice.
pub(in crate::app) fn normalize(
    target: &RequestTarget<'_>,
    w: &HttpWanted,
    out: &mut Vec<u8>,
) -> (Range<usize>, bool) {
    let rules = &w.path;
    if w.whole_target {
        out.extend_from_slice(target.front);
    }
    let mut twice = false;
    let from = out.len();
    decode(target.path, Some(rules), false, out);
    if rules.double {
        twice |= again(out, from, Some(rules));
    }
    if rules.utf8 {
        plain_utf8(out, from);
    }
    remove_dot_segments(out, from);
    let path = from..out.len();
    if let Some(query) = target.query {
        out.push(b'?');
        let from = out.len();
        decode(query, None, w.plus, out);
        if w.double_query {
            twice |= again(out, from, None);
        }
    }
    if let Some(fragment) = target.fragment {
        out.push(b'#');
        decode(fragment, None, false, out);
    }
    (path, twice)
}

/// Decodes what is there once more; whether that changed it.
fn again(out: &mut Vec<u8>, from: usize, rules: Option<&PathRules>) -> bool {
    let once = out.split_off(from);
    decode(&once, rules, false, out);
    out.len() - from < once.len()
}

fn hex(byte: u8) -> Option<u8> {
    (byte as char).to_digit(16).map(|d| d as u8)
}

/// Undoes percent encoding once. `path`: how separators and odd characters are taken, in a path.
fn decode(raw: &[u8], path: Option<&PathRules>, plus: bool, out: &mut Vec<u8>) {
    let from = out.len();
    let wide = path.is_none_or(|p| p.wide);
    let invalid = path.map_or(Invalid::Keep, |p| p.invalid);
    let replacement = path.map_or(b'?', |p| p.replacement);
    let mut at = 0;
    while at < raw.len() {
        let mut byte = raw[at];
        let start = at;
        at += 1;
        let mut encoded = false;
        if byte == b'%' {
            let pair = |i: usize| Some(hex(*raw.get(i)?)? << 4 | hex(*raw.get(i + 1)?)?);
            let unit = match raw.get(at) {
                Some(b'u' | b'U') if wide => pair(at + 1).zip(pair(at + 3)),
                _ => None,
            };
            if let Some((high, low)) = unit {
                byte = narrow(high, low, replacement);
                at += 5;
                encoded = true;
            } else if let Some(b) = pair(at) {
                byte = b;
                at += 2;
                encoded = true;
            } else {
                match (invalid, raw.get(at), raw.get(at + 1)) {
                    (Invalid::Remove, ..) => continue,
                    (Invalid::Decode, Some(a), Some(b)) => {
                        // As the well-known function does that forgets to look.
                        let digit = |b: u8| {
                            if b >= b'A' {
                                (b & 0xdf).wrapping_sub(b'A').wrapping_add(10)
                            } else {
                                b.wrapping_sub(b'0')
                            }
                        };
                        byte = digit(*a).wrapping_mul(16).wrapping_add(digit(*b));
                        at += 2;
                        encoded = true;
                    }
                    _ => {}
                }
            }
        } else if plus && byte == b'+' {
            byte = b' ';
        }
        if let Some(p) = path {
            let separator = byte == b'/' || byte == b'\\' && p.backslashes;
            if encoded && separator && !p.separators {
                out.extend_from_slice(&raw[start..at]);
                continue;
            }
            if byte == 0 && p.ends_at_nul[usize::from(encoded)] {
                return;
            }
            if separator {
                byte = b'/';
                if p.compress && out.len() > from && out.last() == Some(&b'/') {
                    continue;
                }
            }
            if p.lowercase {
                byte.make_ascii_lowercase();
            }
        }
        out.push(byte);
    }
}

/// The byte that servers make of a UTF-16 unit: Latin-1 as it is, full-width forms as ASCII, a few look-alikes, else one that stands for all.
fn narrow(high: u8, low: u8, replacement: u8) -> u8 {
    match (high, low) {
        (0, low) => low,
        (0xff, 0x01..=0x5e) => low + 0x20,
        (0x22, 0x15) | (0x20, 0x44) => b'/',
        (0x22, 0x16) => b'\\',
        (0x20, 0x18 | 0x19 | 0x32) => b'\'',
        (0x20, 0x1c | 0x1d) => b'"',
        (0x20, 0x10..=0x15) => b'-',
        (0x20, 0x39) => b'<',
        (0x20, 0x3a) => b'>',
        _ => replacement,
    }
}

/// Overlong UTF-8 and full-width forms that stand for ASCII become it; other bytes stay as they are.
fn plain_utf8(out: &mut Vec<u8>, from: usize) {
    if out[from..].is_ascii() {
        return;
    }
    let (mut read, mut write) = (from, from);
    while read < out.len() {
        let (value, length) = match out[read..] {
            [a @ 0xc0..=0xc1, b @ 0x80..=0xbf, ..] => {
                (u32::from(a & 0x1f) << 6 | u32::from(b & 0x3f), 2)
            }
            [a @ 0xe0..=0xef, b @ 0x80..=0xbf, c @ 0x80..=0xbf, ..] => (
                u32::from(a & 0x0f) << 12 | u32::from(b & 0x3f) << 6 | u32::from(c & 0x3f),
                3,
            ),
            [0xf0, b @ 0x80..=0xbf, c @ 0x80..=0xbf, d @ 0x80..=0xbf, ..] => (
                u32::from(b & 0x3f) << 12 | u32::from(c & 0x3f) << 6 | u32::from(d & 0x3f),
                4,
            ),
            _ => (u32::MAX, 1),
        };
        let plain = match value {
            0..0x80 => Some(value as u8),
            0xff01..=0xff5e => Some((value - 0xff01 + 0x21) as u8),
            _ => None,
        };
        if let Some(byte) = plain {
            let byte = if byte == b'\\' { b'/' } else { byte };
            if !(byte == b'/' && write > from && out[write - 1] == b'/') {
                out[write] = byte;
                write += 1;
            }
            read += length;
        } else {
            // A slash that follows one just made is repeated as well.
            let byte = out[read];
            if !(byte == b'/' && write > from && out[write - 1] == b'/') {
                out[write] = byte;
                write += 1;
            }
            read += 1;
        }
    }
    out.truncate(write);
}

/// RFC 3986, section 5.2.4, in place.
fn remove_dot_segments(out: &mut Vec<u8>, from: usize) {
    if !out[from..].contains(&b'.') {
        return;
    }
    let (mut read, mut write) = (from, from);
    let end = out.len();
    while read < end {
        let slash = out[read] == b'/';
        let start = if slash { read + 1 } else { read };
        let stop = memchr::memchr(b'/', &out[start..end]).map_or(end, |at| start + at);
        let last = stop == end;
        match &out[start..stop] {
            b"." => {
                if slash && last {
                    out[write] = b'/';
                    write += 1;
                }
                read = if slash { stop } else { (stop + 1).min(end) };
            }
            b".." => {
                if slash {
                    while write > from && out[write - 1] != b'/' {
                        write -= 1;
                    }
                    write = write.saturating_sub(1).max(from);
                    if last {
                        out[write] = b'/';
                        write += 1;
                    }
                    read = stop;
                } else {
                    read = (stop + 1).min(end);
                }
            }
            _ => {
                out.copy_within(read..stop, write);
                write += stop - read;
                read = stop;
            }
        }
    }
    out.truncate(write);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normal(raw: &str) -> String {
        let mut out = b"before".to_vec();
        normalize(&split(raw.as_bytes(), false), &HttpWanted::USUAL, &mut out);
        String::from_utf8_lossy(&out[6..]).into_owned()
    }

    #[test]
    fn targets_are_normalized_as_rules_expect() {
        for (raw, expected) in [
            ("/index.html", "/index.html"),
            ("/a%20b%2Fc", "/a b/c"),
            ("/%2e%2e/%2e%2e/etc/passwd", "/etc/passwd"),
            ("/a/./b/../c", "/a/c"),
            ("/a/..", "/"),
            ("/a/.", "/a/"),
            ("/../../x", "/x"),
            ("../x", "x"),
            ("//a///b", "/a/b"),
            ("/a\\b", "/a/b"),
            ("/a%5c..%5cb", "/b"),
            ("/%u0041%u002e%uff21", "/A.A"),
            ("/%zz%4", "/%zz%4"),
            ("/%2541", "/%41"),
            ("/%c0%af%c0%ae%c0%ae/x", "/x"),
            ("/caf%c3%a9", "/café"),
            ("/x?q=%41+b&r=../..//", "/x?q=A+b&r=../..//"),
            ("/x#%41", "/x#A"),
            ("http://User:p@Host:81/a/../b?c", "/b?c"),
            ("*", "*"),
            ("", ""),
            ("/.hidden/..x/x..", "/.hidden/..x/x.."),
        ] {
            assert_eq!(normal(raw), expected, "{raw}");
        }
    }

    #[test]
    fn settings_change_normalization() {
        let with = |raw: &str, change: &dyn Fn(&mut HttpWanted)| {
            let mut w = HttpWanted::USUAL;
            change(&mut w);
            let mut out = Vec::new();
            let (path, twice) = normalize(&split(raw.as_bytes(), false), &w, &mut out);
            let path = String::from_utf8_lossy(&out[path]).into_owned();
            (String::from_utf8_lossy(&out).into_owned(), path, twice)
        };
        let both = |a: &str, b: &str, t| (a.to_owned(), b.to_owned(), t);
        assert_eq!(
            with("/a%2541?%2541", &|w| w.path.double = true),
            both("/aA?%41", "/aA", true)
        );
        assert_eq!(
            with("/a?%2541", &|w| w.double_query = true),
            both("/a?A", "/a", true)
        );
        assert_eq!(
            with("/a%41?b", &|w| w.path.double = true),
            both("/aA?b", "/aA", false)
        );
        for (raw, change, expected) in [
            (
                "/A?B",
                (|w| w.path.lowercase = true) as fn(&mut HttpWanted),
                "/a?B",
            ),
            ("/a\\b", |w| w.path.backslashes = false, "/a\\b"),
            ("/a//b", |w| w.path.compress = false, "/a//b"),
            ("/a%2Fb%5c", |w| w.path.separators = false, "/a%2Fb%5c"),
            ("/%u0041", |w| w.path.wide = false, "/%u0041"),
            ("/a%00b", |w| w.path.ends_at_nul[1] = true, "/a"),
            ("/a%00b", |w| w.path.ends_at_nul[0] = true, "/a\0b"),
            ("/a\0b", |w| w.path.ends_at_nul[0] = true, "/a"),
            ("/a%zzb", |w| w.path.invalid = Invalid::Remove, "/azzb"),
            ("/?a+b", |w| w.plus = true, "/?a b"),
            ("/%u4141", |w| w.path.replacement = b'!', "/!"),
            (
                "http://u:p@H:81/a",
                |w| w.whole_target = true,
                "http://u:p@H:81/a",
            ),
        ] {
            assert_eq!(with(raw, &change).0, expected, "{raw}");
        }
    }

    #[test]
    fn authorities_are_split() {
        let t = split(b"http://u:p@Example.com:8080/x", false);
        assert_eq!((t.host, t.port), (Some(&b"Example.com"[..]), Some(8080)));
        let t = split(b"proxy.example:443", true);
        assert_eq!((t.host, t.port), (Some(&b"proxy.example"[..]), Some(443)));
        assert_eq!(authority(b"[::1]:80"), (Some(&b"[::1]"[..]), Some(80)));
        assert_eq!(authority(b""), (None, None));
    }
}
