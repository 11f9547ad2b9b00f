//! Buffers of header lines, of either direction.

use crate::app::text::text;
use crate::app::transaction::Transaction;
use crate::app::wanted::Asked;
use crate::buffer::Buffer;
use crate::packet::Direction;
use crate::packet::Direction::ToServer;

use super::head::{Field, Head, Known};

/// Buffers, events and record of header lines of HTTP/1, of either direction.
pub(super) fn fields(t: &mut Transaction, head: &Head, raw: &[u8], d: Direction, w: &Asked) {
    buffers(t, head, head.line(), raw, d, w);
    oddities(t, head, d, w);
}

/// Buffers of header lines, of either direction. `line`: the first one; `raw`: the others, as sent.
pub(in crate::app) fn buffers(
    t: &mut Transaction,
    head: &Head,
    line: &[u8],
    raw: &[u8],
    d: Direction,
    w: &Asked,
) {
    let b = w.buffers;
    let cookie = if d == ToServer {
        Known::Cookie
    } else {
        Known::SetCookie
    };
    let put = |o: &mut Vec<u8>, f: &Field| {
        o.extend_from_slice(head.name(f));
        o.extend_from_slice(b": ");
        o.extend_from_slice(head.value(f));
    };
    if !head.fields.is_empty() {
        if b.has(Buffer::HttpHeader) {
            t.build(Buffer::HttpHeader, d, |o| {
                for f in head.fields.iter().filter(|f| f.known != cookie) {
                    put(o, f);
                    o.extend_from_slice(b"\r\n");
                }
            });
        }
        if b.has(Buffer::HttpHeaderRaw) {
            t.push(Buffer::HttpHeaderRaw, d, raw);
        }
        if b.has(Buffer::HttpHeaderNames) {
            t.build(Buffer::HttpHeaderNames, d, |o| {
                o.extend_from_slice(b"\r\n");
                for f in &head.fields {
                    o.extend_from_slice(head.name(f));
                    o.extend_from_slice(b"\r\n");
                }
                o.extend_from_slice(b"\r\n");
            });
        }
    }
    if b.has(Buffer::HttpStart) {
        t.build(Buffer::HttpStart, d, |o| {
            o.extend_from_slice(line);
            o.extend_from_slice(b"\r\n");
            for f in &head.fields {
                put(o, f);
                o.extend_from_slice(b"\r\n");
            }
            o.extend_from_slice(b"\r\n");
        });
    }
    let each = if d == ToServer {
        Buffer::HttpRequestHeader
    } else {
        Buffer::HttpResponseHeader
    };
    if b.has(each) {
        for f in &head.fields {
            t.build(each, d, |o| put(o, f));
        }
    }
    for f in &head.fields {
        let buffer = match f.known {
            Known::Accept => Buffer::HttpAccept,
            Known::AcceptEncoding => Buffer::HttpAcceptEncoding,
            Known::AcceptLanguage => Buffer::HttpAcceptLanguage,
            Known::Connection => Buffer::HttpConnection,
            Known::ContentLength => Buffer::HttpContentLength,
            Known::ContentType => Buffer::HttpContentType,
            Known::Cookie | Known::SetCookie if f.known == cookie => Buffer::HttpCookie,
            Known::Location => Buffer::HttpLocation,
            Known::Referer => Buffer::HttpReferer,
            Known::Server => Buffer::HttpServer,
            Known::UserAgent => Buffer::HttpUserAgent,
            _ => continue,
        };
        if b.has(buffer) && buffer.sides().has(d) {
            t.push(buffer, d, head.value(f));
        }
    }
}

/// What was odd about header lines of HTTP/1, and what records have of them.
fn oddities(t: &mut Transaction, head: &Head, d: Direction, w: &Asked) {
    let o = head.oddities;
    let request = d == ToServer;
    let mut note = |odd: bool, a: &'static str, b: &'static str| {
        if odd {
            t.event(if request { a } else { b });
        }
    };
    note(
        o.no_colon,
        "request_field_missing_colon",
        "response_field_missing_colon",
    );
    note(
        o.folding,
        "invalid_request_field_folding",
        "invalid_response_field_folding",
    );
    note(
        o.no_token,
        "request_header_invalid",
        "response_header_name_not_token",
    );
    note(
        o.blank_after_name,
        "request_invalid_lws_after_name",
        "response_invalid_lws_after_name",
    );
    note(
        o.repeated,
        "request_header_repetition",
        "response_header_repetition",
    );
    note(
        o.lengths,
        "duplicate_content_length_field_in_request",
        "duplicate_content_length_field_in_response",
    );
    note(
        o.too_many,
        "request_too_many_headers",
        "response_too_many_headers",
    );
    note(
        o.too_long,
        "request_field_too_long",
        "response_field_too_long",
    );
    if w.records {
        log(t, head, d, w);
    }
}

/// What records have of header lines if they are asked for.
fn log(t: &mut Transaction, head: &Head, d: Direction, w: &Asked) {
    // Lines of one name are one.
    let mut lines: Vec<(&[u8], Vec<u8>)> = Vec::new();
    for f in &head.fields {
        let is = |(name, _): &&(String, _)| head.name(f).eq_ignore_ascii_case(name.as_bytes());
        match w.http.custom.iter().find(is) {
            Some((_, Some(field))) => {
                t.record.insert((*field).into(), text(head.value(f)));
            }
            Some((_, None)) => lines.push((head.name(f), head.value(f).to_vec())),
            None => {}
        }
    }
    if w.http.lines[d.index()] {
        lines.clear();
        for (name, value) in &head.lines {
            let (name, value) = (head.bytes(*name), head.bytes(*value));
            match lines.iter_mut().find(|(n, _)| n.eq_ignore_ascii_case(name)) {
                Some((_, all)) => {
                    all.extend_from_slice(b", ");
                    all.extend_from_slice(value);
                }
                None => lines.push((name, value.to_vec())),
            }
        }
    }
    if !lines.is_empty() {
        let lines = lines.iter().map(|(name, value)| {
            let mut line = serde_json::Map::new();
            line.insert("name".into(), text(name));
            line.insert("value".into(), text(value));
            line.into()
        });
        let field = if d == ToServer {
            "request_headers"
        } else {
            "response_headers"
        };
        t.record.insert(
            field.into(),
            lines.collect::<Vec<serde_json::Value>>().into(),
        );
    }
}
