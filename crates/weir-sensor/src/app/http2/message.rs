//! Messages of HTTP/2: the fields of a request or an answer as the buffers and the record that HTTP/1 has.

use serde_json::{Map, Value};

use super::hpack::Item;
use crate::app::bytes::split_most;
use crate::app::http::body::{Body, Framing};
use crate::app::http::fields::buffers;
use crate::app::http::head::{Head, Known};
use crate::app::http::multipart::{Multipart, parameter};
use crate::app::http::request::host_name;
use crate::app::http::response::{content_range, is_range};
use crate::app::http::uri;
use crate::app::text::text;
use crate::app::transaction::Transaction;
use crate::app::wanted::Asked;
use crate::buffer::Buffer;
use crate::packet::Direction;
use crate::packet::Direction::{ToClient, ToServer};

/// The fields of a block, as far as they are more than header lines.
#[derive(Default)]
pub(super) struct Message {
    method: Option<Vec<u8>>,
    target: Option<Vec<u8>>,
    authority: Option<Vec<u8>>,
    status: Option<Vec<u8>>,
    /// All of them as lines.
    raw: Vec<u8>,
    /// Sizes that the block gives the table.
    sizes: Vec<u32>,
    /// All of them for the record, if there is one.
    list: Option<Vec<Value>>,
}

impl Message {
    pub(super) fn new(record: bool) -> Message {
        Message {
            list: record.then(Vec::new),
            ..Message::default()
        }
    }

    pub(super) fn add(&mut self, item: Item<'_>, head: &mut Head) {
        let (name, value) = match item {
            Item::Field(name, value) => (name, value),
            Item::Size(size) => {
                self.sizes.push(size);
                if let Some(list) = &mut self.list {
                    let mut one = Map::new();
                    one.insert("table_size_update".into(), size.into());
                    list.push(Value::Object(one));
                }
                return;
            }
        };
        let pseudo = match name {
            b":method" => Some(&mut self.method),
            b":path" => Some(&mut self.target),
            b":authority" => Some(&mut self.authority),
            b":status" => Some(&mut self.status),
            _ => None,
        };
        if let Some(pseudo) = pseudo {
            // As with other ends the first one counts.
            pseudo.get_or_insert_with(|| value.to_vec());
        }
        head.put(name, value);
        self.raw.extend_from_slice(name);
        self.raw.extend_from_slice(b": ");
        self.raw.extend_from_slice(value);
        self.raw.extend_from_slice(b"\r\n");
        if let Some(list) = &mut self.list
            && list.len() < MOST_LISTED
        {
            let mut one = Map::new();
            one.insert("name".into(), text(name));
            one.insert("value".into(), text(value));
            list.push(Value::Object(one));
        }
    }

    /// What holds of fields wherever they stand.
    fn tell(&self, sent: Direction, d: Direction, head: &Head, t: &mut Transaction, w: &Asked) {
        for size in &self.sizes {
            t.note("http2.size_update", sent, u64::from(*size));
        }
        if w.buffers.has(Buffer::Http2HeaderName) {
            for field in &head.fields {
                t.push(Buffer::Http2HeaderName, d, head.name(field));
            }
        }
        if let Some(list) = &self.list {
            let name = match d {
                ToServer => "request_headers",
                ToClient => "response_headers",
            };
            let entry = t.record.entry(name);
            if let Value::Array(all) = entry.or_insert_with(|| Value::Array(Vec::new())) {
                let room = MOST_LISTED.saturating_sub(all.len());
                all.extend(list.iter().take(room).cloned());
            }
        }
    }

    /// Fills a transaction with what a block has sent one way; `promised`: of a request that the server answers unasked. `last`: nothing follows. Returns whether it is about DNS.
    pub(super) fn fill(
        &self,
        (sent, promised, last): (Direction, bool, bool),
        stream: &mut Stream,
        t: &mut Transaction,
        head: &Head,
        w: &Asked,
    ) -> bool {
        let d = if promised { ToServer } else { sent };
        if *d.of(&stream.over) {
            return false;
        }
        self.tell(sent, d, head, t, w);
        // Interim answers announce the real one, and trailers follow a body.
        let interim = matches!(self.status.as_deref(), Some([b'1', _, _]));
        let announced = d == ToClient && interim && !last;
        if !announced && !std::mem::replace(d.of_mut(&mut stream.begun), true) {
            return match d {
                ToServer => self.request(stream, t, head, w),
                ToClient => self.response(stream, t, head, w),
            };
        }
        let each = match d {
            ToServer => Buffer::HttpRequestHeader,
            ToClient => Buffer::HttpResponseHeader,
        };
        if w.buffers.has(each) {
            for field in &head.fields {
                t.build(each, d, |o| line(o, head.name(field), head.value(field)));
            }
        }
        false
    }

    fn request(&self, stream: &mut Stream, t: &mut Transaction, head: &Head, w: &Asked) -> bool {
        let (b, d) = (w.buffers, ToServer);
        let method = self.method.as_deref().unwrap_or_default();
        let target = self.target.as_deref().unwrap_or_default();
        let host = head.known(Known::Host);
        let authority = self.authority.as_deref();
        let raw_host = authority.or(host);
        if authority.is_some_and(|a| a.contains(&b'@')) {
            t.event("userinfo_in_uri");
        }
        if let (Some(a), Some(h)) = (authority, host)
            && !a.eq_ignore_ascii_case(h)
        {
            t.event("authority_host_mismatch");
        }
        let parts = uri::split(target, false);
        let mut normal = Vec::new();
        let (path, _) = uri::normalize(&parts, &w.http, &mut normal);
        stream.path = normal.get(path).unwrap_or_default().to_vec();
        if self.method.is_some() && b.has(Buffer::HttpMethod) {
            t.push(Buffer::HttpMethod, d, method);
        }
        if self.target.is_some() {
            if b.has(Buffer::HttpUriRaw) {
                t.push(Buffer::HttpUriRaw, d, target);
            }
            if b.has(Buffer::HttpUri) {
                t.push(Buffer::HttpUri, d, &normal);
            }
            if b.has(Buffer::HttpRequestLine) {
                t.build(Buffer::HttpRequestLine, d, |o| {
                    o.extend_from_slice(&request_line(method, target));
                    o.extend_from_slice(b"\r\n");
                });
            }
        }
        if b.has(Buffer::HttpProtocol) {
            t.push(Buffer::HttpProtocol, d, VERSION);
        }
        if let Some(raw) = raw_host {
            if b.has(Buffer::HttpHost) {
                t.build(Buffer::HttpHost, d, |o| host_name(raw, false, o));
            }
            if b.has(Buffer::HttpHostRaw) {
                t.push(Buffer::HttpHostRaw, d, raw);
            }
        }
        buffers(t, head, &request_line(method, target), &self.raw, d, w);
        if w.records {
            let r = &mut t.record;
            if let Some(raw) = raw_host {
                let mut name = Vec::new();
                host_name(raw, false, &mut name);
                r.insert("hostname".into(), text(&name));
                if let Some(port) = uri::authority(raw).1.filter(|p| *p > 0) {
                    r.insert("http_port".into(), port.into());
                }
            }
            for (name, value) in [
                ("url", self.target.as_deref()),
                ("http_method", self.method.as_deref()),
                ("http_user_agent", head.known(Known::UserAgent)),
                ("http_refer", head.known(Known::Referer)),
                ("xff", head.known(Known::XForwardedFor)),
            ] {
                if let Some(value) = value {
                    r.insert(name.into(), text(value));
                }
            }
        }
        let uploads = matches!(method, b"POST" | b"PUT");
        let asks = super::dns::asks(head, parts.query);
        if let Some(question) = asks {
            match question {
                Some(question) => super::dns::message(d, &question, true, t, w),
                None => stream.dns[0] = Some(Vec::new()),
            }
            return true;
        }
        let name = if uploads {
            stream.path.clone()
        } else {
            Vec::new()
        };
        let mut body = Body::new(Framing::NONE, uploads, name);
        body.followed = true;
        let form = head.known(Known::ContentType).and_then(Multipart::new);
        body.form(form.filter(|_| uploads));
        body.layers(head, &self.raw, w, t);
        stream.bodies[0] = body;
        false
    }

    fn response(&self, stream: &mut Stream, t: &mut Transaction, head: &Head, w: &Asked) -> bool {
        let (b, d) = (w.buffers, ToClient);
        let status = self.status.as_deref().unwrap_or_default();
        t.answered = true;
        if self.status.is_some() {
            if b.has(Buffer::HttpStatusCode) {
                t.push(Buffer::HttpStatusCode, d, status);
            }
            if b.has(Buffer::HttpResponseLine) {
                t.build(Buffer::HttpResponseLine, d, |o| {
                    o.extend_from_slice(&status_line(status));
                    o.extend_from_slice(b"\r\n");
                });
            }
        }
        if b.has(Buffer::HttpProtocol) {
            t.push(Buffer::HttpProtocol, d, VERSION);
        }
        if b.has(Buffer::HttpStatusMessage) {
            t.push(Buffer::HttpStatusMessage, d, b"");
        }
        buffers(t, head, &status_line(status), &self.raw, d, w);
        let kind = head.known(Known::ContentType);
        let range = head.known(Known::ContentRange);
        if w.records {
            let r = &mut t.record;
            if let Some(v) = kind {
                let end = memchr::memchr(b';', v).unwrap_or(v.len());
                let (name, _) = split_most(v, end);
                r.insert("http_content_type".into(), text(name.trim_ascii_end()));
            }
            if let Some(v) = range {
                r.insert("content_range".into(), content_range(v).into());
            }
            let number = std::str::from_utf8(status)
                .ok()
                .and_then(|s| s.parse().ok());
            match number {
                Some(n @ 100..=999) => {
                    r.insert("status".into(), u16::into(n));
                }
                _ if !status.is_empty() => {
                    r.insert("status_string".into(), text(status));
                }
                _ => {}
            }
            if let Some(v) = head.known(Known::Location) {
                r.insert("redirect".into(), text(v));
            }
            r.insert("length".into(), 0.into());
        }
        if range.is_some_and(|v| !is_range(v)) {
            t.event("invalid_range");
        }
        if super::dns::is_message(kind) {
            stream.dns[1] = Some(Vec::new());
            return true;
        }
        let name = head
            .known(Known::ContentDisposition)
            .and_then(|v| parameter(v, b"filename"))
            .unwrap_or_else(|| stream.path.clone());
        let mut body = Body::new(Framing::NONE, true, name);
        body.followed = true;
        body.range(range.is_some_and(is_range), w);
        body.layers(head, &self.raw, w, t);
        stream.bodies[1] = body;
        false
    }
}

/// A stream.
pub(super) struct Stream {
    pub(super) number: u32,
    /// Its transaction.
    pub(super) id: u64,
    pub(super) bodies: [Body; 2],
    /// Messages whose fields were seen.
    pub(super) begun: [bool; 2],
    /// Directions that have ended.
    pub(super) over: [bool; 2],
    /// An end wants no more of it.
    pub(super) given_up: bool,
    /// The bytes of a message of DNS so far, of a message that is one.
    pub(super) dns: [Option<Vec<u8>>; 2],
    /// Path of its target, for the name of the file that comes back.
    pub(super) path: Vec<u8>,
}

impl Stream {
    pub(super) fn new(number: u32, id: u64) -> Stream {
        Stream {
            number,
            id,
            bodies: Default::default(),
            begun: [false; 2],
            over: [false; 2],
            given_up: false,
            dns: [None, None],
            path: Vec::new(),
        }
    }
}

/// Fields that the record of a message lists.
const MOST_LISTED: usize = 1024;

/// A frame about the connection is all of its transaction: of a version that has no reason phrase, in either direction.
pub(super) fn of_connection(t: &mut Transaction, w: &Asked) {
    for d in [ToServer, ToClient] {
        if w.buffers.has(Buffer::HttpProtocol) {
            t.push(Buffer::HttpProtocol, d, VERSION);
        }
    }
    if w.buffers.has(Buffer::HttpStatusMessage) {
        t.push(Buffer::HttpStatusMessage, ToClient, b"");
    }
    t.finish();
}

const VERSION: &[u8] = b"HTTP/2";

fn request_line(method: &[u8], target: &[u8]) -> Vec<u8> {
    [method, b" ", target, b" ", VERSION].concat()
}

fn status_line(status: &[u8]) -> Vec<u8> {
    [VERSION, b" ", status].concat()
}

fn line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
}
