//! How HTTP/1 and HTTP/2 begin.

use crate::app::probe::{First, Look, begins, prefixed};
use crate::packet::Direction;

/// Methods of HTTP that requests begin with.
const METHODS: &[&[u8]] = &[
    b"GET",
    b"POST",
    b"HEAD",
    b"PUT",
    b"OPTIONS",
    b"CONNECT",
    b"DELETE",
    b"PATCH",
    b"TRACE",
    b"PROPFIND",
    b"PROPPATCH",
    b"MKCOL",
    b"COPY",
    b"MOVE",
    b"LOCK",
    b"UNLOCK",
    b"REPORT",
    b"MKACTIVITY",
    b"CHECKOUT",
    b"MERGE",
    b"VERSION-CONTROL",
    b"UNCHECKOUT",
    b"CHECKIN",
    b"UPDATE",
    b"LABEL",
    b"MKWORKSPACE",
    b"BASELINE-CONTROL",
    b"INVALID",
];

/// Whether a word is a method that requests begin with.
pub(super) fn is_method(word: &[u8]) -> bool {
    METHODS.contains(&word) || RARE.contains(&word)
}

/// Methods that are no sign of HTTP by themselves: other protocols have them, or few servers do.
const RARE: &[&[u8]] = &[
    b"SEARCH",
    b"NOTIFY",
    b"M-SEARCH",
    b"SUBSCRIBE",
    b"UNSUBSCRIBE",
    b"BITS_POST",
    b"CCM_POST",
    b"SSTP_DUPLEX_POST",
    b"RPC_CONNECT",
    b"RPC_IN_DATA",
    b"RPC_OUT_DATA",
    b"POLL",
    b"BPROPFIND",
    b"BPROPPATCH",
    b"BMOVE",
    b"BDELETE",
    b"BCOPY",
];

/// Whether the first bytes of a direction are, as far as they go, how HTTP/1 begins without doubt. What is no such beginning may be HTTP for all that.
pub(super) fn begins_like_http(direction: Direction, bytes: &[u8]) -> bool {
    let starts = |word: &[u8]| begins(bytes, word) != Some(false);
    match direction {
        Direction::ToClient => [&b"HTTP/0.9"[..], b"HTTP/1.0", b"HTTP/1.1"]
            .into_iter()
            .any(starts),
        Direction::ToServer => METHODS.iter().any(|method| {
            starts(method) && matches!(bytes.get(method.len()), None | Some(b' ' | b'\t'))
        }),
    }
}

/// What comes after empty lines and blanks.
fn trimmed<'a>(first: &First<'a>) -> &'a [u8] {
    let blank = |b: &u8| matches!(b, b'\r' | b'\n' | b' ' | b'\t');
    let start = first.bytes.iter().position(|b| !blank(b));
    start
        .and_then(|at| first.bytes.get(at..))
        .unwrap_or_default()
}

/// HTTP/1: a method, or a first line that says its version.
pub(super) fn http1(first: &First<'_>) -> Look {
    let bytes = trimmed(first);
    if bytes.is_empty() {
        return Look::Maybe;
    }
    if first.is_server() {
        return prefixed(bytes, b"HTTP/");
    }
    let Some(end) = bytes.iter().position(u8::is_ascii_whitespace) else {
        let token = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
        return match bytes.len() <= 32 && bytes.iter().all(token) {
            true => Look::Maybe,
            false => Look::No,
        };
    };
    let (word, rest) = bytes.split_at(end);
    let mut known = METHODS.iter().chain(RARE);
    if known.any(|m| m.eq_ignore_ascii_case(word)) {
        // "GET\n" alone is no request.
        let [b' ' | b'\t', rest @ ..] = rest else {
            return Look::No;
        };
        // SIP has some of these words, too.
        let shared = [&b"OPTIONS"[..], b"NOTIFY", b"SUBSCRIBE"];
        if shared.iter().any(|w| w.eq_ignore_ascii_case(word)) {
            return match begins(rest, b"sip") {
                Some(true) => Look::No,
                None => Look::Maybe,
                Some(false) => Look::Yes,
            };
        }
        return Look::Yes;
    }
    // Any other word: the line must say its version.
    match memchr::memchr(b'\n', bytes).and_then(|end| bytes.get(..end)) {
        Some(line) => {
            let line = line.trim_ascii_end();
            let tail = line.len().checked_sub(9).and_then(|at| line.get(at..));
            match tail.is_some_and(|t| t.starts_with(b" HTTP/1.")) {
                true => Look::Yes,
                false => Look::No,
            }
        }
        None => {
            let text = |b: &u8| *b >= 0x20 || matches!(b, b'\r' | b'\t');
            match bytes.iter().all(text) {
                true => Look::Maybe,
                false => Look::No,
            }
        }
    }
}

/// HTTP/2: the preface of a client, the settings that a server begins with.
pub(in crate::app) fn http2(first: &First<'_>) -> Look {
    if !first.is_server() {
        return match trimmed(first) {
            [] => Look::Maybe,
            bytes => prefixed(bytes, b"PRI * HTTP/2.0\r\n"),
        };
    }
    // A frame with settings, of the connection.
    let fits = |(at, byte): (usize, &u8)| match at {
        2 => byte.is_multiple_of(6) && *byte <= 60,
        3 => *byte == 4,
        _ => *byte == 0,
    };
    let head = first.bytes.iter().take(9);
    match head.enumerate().all(fits) {
        false => Look::No,
        true if first.bytes.len() < 9 => Look::Maybe,
        true => Look::Yes,
    }
}
