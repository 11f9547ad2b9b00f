//! Heads of responses: the request that each answers, its buffers and its record, and what ends HTTP on the connection.

use crate::app::names::App;
use crate::app::protocol::Parser;
use crate::app::text::text;
use crate::app::transaction::{Change, Transactions, Upgrade};
use crate::buffer::Buffer;
use crate::packet::Direction::{ToClient, ToServer};

use super::body::{Body, Framing, content_length, framing};
use super::fields::fields;
use super::head::{Head, Known, Search};
use super::{Http1, KIND, Method, State, multipart};

impl Http1 {
    /// Finds or makes the transaction of a response, and returns its request.
    pub(super) fn attach(
        &mut self,
        out: &mut Transactions,
    ) -> (Method, Vec<u8>, Option<Box<Upgrade>>) {
        // A request of one line ends where its answer begins.
        let asked = &self.halves[0];
        if self.pending.is_empty() && asked.state == State::Head && !asked.carry.is_empty() {
            let carry = std::mem::take(&mut self.halves[0].carry);
            self.halves[0].search = Search::default();
            if Search::first_line(&carry, false).is_some() {
                self.begin(ToServer, &carry, out);
                self.halves[0].state = State::Junk;
            } else {
                self.halves[0].carry = carry;
            }
        }
        let time = self.halves[1].time;
        // Requests that detection dropped, or the list of transactions gave up, have no answer to fill.
        while let Some(p) = self.pending.pop_front() {
            if let Some(t) = out.find(p.id).filter(|t| !t.done) {
                t.answered = true;
                self.halves[1].id = Some(p.id);
                return (p.method, p.path, p.upgrade);
            }
        }
        let t = out.begin(&KIND, time);
        t.event("unable_to_match_response_to_request");
        t.finish_side(ToServer);
        t.answered = true;
        if self.wanted.records {
            t.record.insert("url".into(), UNSEEN.into());
        }
        self.halves[1].id = Some(t.id);
        (Method::Other, UNSEEN.into(), None)
    }

    pub(super) fn response(
        &mut self,
        head: &Head,
        (line_as_sent, raw): (&[u8], &[u8]),
        out: &mut Transactions,
    ) {
        let line = StatusLine::of(head.line());
        let status = line.status();
        let interim = matches!(status, Some(100..=199));
        let switches = status == Some(101);
        let promised = head.known(Known::TransferEncoding).is_some()
            || head
                .known(Known::ContentLength)
                .and_then(content_length)
                .is_some_and(|n| n > 0);
        // Interim answers announce the real one.
        if interim && !switches && !promised {
            self.halves[1].state = State::Head;
            let asking = self.pending.front().map(|p| p.id);
            let seen = std::mem::replace(&mut self.continued, asking);
            if status == Some(100)
                && seen == asking
                && let Some(t) = asking.and_then(|id| out.find(id))
            {
                t.event("100_continue_already_seen");
            }
            return;
        }
        let (method, path, upgraded) = self.attach(out);
        let half = &mut self.halves[1];
        half.messages += 1;
        let Some(t) = half.id.and_then(|id| out.find(id)) else {
            return;
        };
        self.frame(
            (Buffer::FrameHttpResponse, ToClient),
            [line_as_sent, raw],
            t,
        );
        let half = &mut self.halves[1];
        let w = &self.wanted;
        let b = w.buffers;
        let d = ToClient;
        if b.has(Buffer::HttpResponseLine) {
            t.push(Buffer::HttpResponseLine, d, head.line());
        }
        if b.has(Buffer::HttpProtocol) {
            t.push(Buffer::HttpProtocol, d, line.protocol);
        }
        if b.has(Buffer::HttpStatusCode) {
            t.push(Buffer::HttpStatusCode, d, line.code);
        }
        if b.has(Buffer::HttpStatusMessage) {
            t.push(Buffer::HttpStatusMessage, d, line.message);
        }
        fields(t, head, raw, d, w);
        if w.records {
            let r = &mut t.record;
            if let Some(v) = head.known(Known::ContentType) {
                let end = memchr::memchr(b';', v).unwrap_or(v.len());
                r.insert("http_content_type".into(), text(v[..end].trim_ascii_end()));
            }
            if let Some(v) = head.known(Known::ContentRange) {
                r.insert("content_range".into(), content_range(v).into());
            }
            if let Some(status) = status {
                r.insert("status".into(), status.into());
            } else if !line.code.is_empty() {
                r.insert("status_string".into(), text(line.code));
            }
            if let Some(v) = head.known(Known::Location) {
                r.insert("redirect".into(), text(v));
            }
            r.insert("length".into(), 0.into());
        }
        let version = |name: &&[u8]| line.protocol.eq_ignore_ascii_case(name);
        if ![&b"HTTP/0.9"[..], b"HTTP/1.0", b"HTTP/1.1"]
            .iter()
            .any(version)
        {
            t.event("response_line_invalid_protocol");
        }
        if status.is_none() {
            t.event("response_line_invalid_response_status");
        }
        if let Some(range) = head.known(Known::ContentRange)
            && !is_range(range)
        {
            t.event("range_invalid");
        }
        if switches && promised {
            t.event("switching_proto_with_content_length");
        }
        // Not even a length of 0 is allowed beside 204 (RFC 9110, section 8.6).
        let length = head.known(Known::ContentLength).is_some();
        if promised && matches!(status, Some(101 | 304))
            || status == Some(204) && (promised || length)
        {
            t.event("response_body_unexpected");
        }
        let upgrade = head.known(Known::Upgrade);
        let switch = switches && (upgrade.is_some() || !promised);
        let tunnel = method == Method::Connect && matches!(status, Some(200..=299));
        if tunnel || switch {
            t.finish();
            half.id = None;
            let h2 = upgrade.is_some_and(|u| u.to_ascii_lowercase().starts_with(b"h2c"));
            let socket = upgrade.is_some_and(|u| u.eq_ignore_ascii_case(b"websocket"));
            let mut change = Change {
                upgraded: upgraded.filter(|_| switch && h2),
                to: match switch {
                    true if h2 => Some(App::Http2),
                    true if socket => Some(App::Websocket),
                    _ => None,
                },
                ..Change::default()
            };
            // What the client sent meanwhile belongs to the tunnel.
            change.rest[0] = std::mem::take(&mut self.halves[0].carry);
            out.change = Some(change);
            return;
        }
        let old = !line.protocol.eq_ignore_ascii_case(b"HTTP/1.1");
        let how = framing(head, raw, ToClient, old, t);
        let none = method == Method::Head
            || matches!(status, Some(204 | 304)) && how.state != State::ChunkLine;
        let how = if none { Framing::NONE } else { how };
        let name = if w.records || b.has(Buffer::FileName) {
            head.known(Known::ContentDisposition)
                .and_then(|v| multipart::parameter(v, b"filename"))
                .unwrap_or(path)
        } else {
            Vec::new()
        };
        let mut body = Body::new(how, true, name);
        body.range(head.known(Known::ContentRange).is_some_and(is_range), w);
        body.layers(head, raw, w, t);
        half.state = how.state;
        half.body = body;
        if half.state == State::Fixed(0) {
            self.finish_body(ToClient, true, out);
            self.complete(ToClient, out);
        }
        if method == Method::Connect && self.halves[0].state == State::Waiting {
            // The proxy refused: the client goes on with HTTP.
            let carry = std::mem::take(&mut self.halves[0].carry);
            self.halves[0].state = State::Head;
            let time = self.halves[0].time;
            self.data(ToServer, &carry, time, out);
        }
    }
}

/// What records call the target of a request that was not seen.
const UNSEEN: &str = "/libhtp::request_uri_not_seen";

/// Whether a value says which part of what it is, in that order.
pub(in crate::app) fn is_range(value: &[u8]) -> bool {
    matches!(numbers(value), Some([first, last, _]) if first <= last)
}

/// First, last and whole of `bytes FIRST-LAST/WHOLE`; a star is no number, and any word may stand for the unit.
fn numbers(value: &[u8]) -> Option<[Option<u64>; 3]> {
    let text = std::str::from_utf8(value).ok()?.trim();
    let rest = text
        .trim_start_matches(|c: char| c.is_ascii_alphabetic())
        .trim_start();
    let (range, size) = rest.split_once('/')?;
    let number = |s: &str| match s.trim() {
        "*" => Some(None),
        n => n.parse().ok().map(Some),
    };
    let size = number(size)?;
    if range.trim() == "*" {
        return Some([None, None, size]);
    }
    let (first, last) = range.split_once('-')?;
    Some([number(first)?, number(last)?, size])
}

pub(in crate::app) fn content_range(value: &[u8]) -> serde_json::Map<String, serde_json::Value> {
    let mut range = serde_json::Map::new();
    range.insert("raw".into(), text(value));
    let parts = numbers(value).unwrap_or_default();
    for (name, part) in ["start", "end", "size"].into_iter().zip(parts) {
        if let Some(n) = part {
            range.insert(name.into(), n.into());
        }
    }
    range
}

struct StatusLine<'a> {
    protocol: &'a [u8],
    code: &'a [u8],
    message: &'a [u8],
}

impl StatusLine<'_> {
    pub(super) fn of(line: &[u8]) -> StatusLine<'_> {
        let space = |b: &u8| b.is_ascii_whitespace() || matches!(b, 0 | 0x0b);
        let skip = |b: &'_ [u8]| b.iter().take_while(|b| space(b)).count();
        let word = |b: &[u8]| b.iter().position(space).unwrap_or(b.len());
        let line = &line[skip(line)..];
        let (protocol, rest) = line.split_at(word(line));
        let rest = &rest[skip(rest)..];
        let (code, rest) = rest.split_at(word(rest));
        StatusLine {
            protocol,
            code,
            message: rest.trim_ascii(),
        }
    }

    fn status(&self) -> Option<u16> {
        if !self.code.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let code = std::str::from_utf8(self.code).ok()?.parse().ok()?;
        (100..=999).contains(&code).then_some(code)
    }
}
