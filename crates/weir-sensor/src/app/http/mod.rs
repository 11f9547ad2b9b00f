//! HTTP/1 and 0.9: requests and responses of one connection, pipelined, chunked, encoded, in whatever shape ends still understand.
//!
//! Each direction is a small state machine over the bytes in order; what it has not understood yet is in `carry`, at most one head long. Nothing depends on how the bytes were cut
//! into segments. Design and the list of tricks: `docs/design/sensor-apps.md`.

mod decode;
mod head;
pub(crate) mod multipart;
mod uri;

use std::collections::VecDeque;

use self::decode::{Decoder, MOST_LAYERS, Outcome, encodings};
use self::head::{Field, Head, Known, Search};
use self::multipart::Multipart;
use super::text::text;
use super::{App, Change, File, Parser, Transaction, Transactions, Wanted};
use crate::buffer::Buffer;
use crate::packet::Direction;
use crate::packet::Direction::{ToClient, ToServer};

/// The longest head that is parsed whole, bytes. Of a longer one the beginning is inspected, and the rest of that direction is not understood.
const MOST_HEAD: usize = 64 * 1024;
/// The longest line of a chunk's length.
const MOST_CHUNK_LINE: usize = 8 * 1024;
/// Bytes of a body that room is made for before they come.
const MOST_RESERVED: usize = 16 * 1024;
/// Bytes that a client may send after CONNECT before the answer.
const MOST_WAITING: usize = 16 * 1024;
/// Requests that may wait for an answer.
const MOST_PENDING: usize = super::MOST_LIVE;

/// A parser of one connection.
pub(super) struct Http1 {
    wanted: Wanted,
    halves: [Half; 2],
    /// Requests without their response yet.
    pending: VecDeque<Pending>,
    head: Head,
    scratch: [Vec<u8>; 2],
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Pending {
    id: u64,
    method: Method,
    /// Path of the target, for the name of the file that comes back.
    path: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Head,
    Connect,
    Other,
}

#[derive(Default)]
struct Half {
    state: State,
    carry: Vec<u8>,
    search: Search,
    /// The transaction whose message this is.
    id: Option<u64>,
    body: Body,
    time: u64,
    /// Messages begun.
    messages: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Before and in a head.
    #[default]
    Head,
    /// A body of so many bytes more.
    Fixed(u64),
    /// The line with a chunk's length.
    ChunkLine,
    /// So many bytes of a chunk.
    Chunk(u64),
    /// The line end after a chunk.
    ChunkEnd,
    /// Header lines after the last chunk.
    Trailer,
    /// A body until the stream ends.
    Close,
    /// A client that waits for the answer to CONNECT.
    Waiting,
    /// Bytes that belong to no message, until a line looks like the first of one.
    Junk,
    /// Nothing can be understood any more.
    Lost,
}

impl Http1 {
    pub(super) fn new(wanted: &Wanted) -> Http1 {
        Http1 {
            wanted: *wanted,
            halves: [Half::default(), Half::default()],
            pending: VecDeque::new(),
            head: Head::default(),
            scratch: [Vec::new(), Vec::new()],
        }
    }
}

impl Parser for Http1 {
    fn data(&mut self, direction: Direction, bytes: &[u8], time: u64, out: &mut Transactions) {
        let mut input = bytes;
        while !input.is_empty() && out.change.is_none() {
            self.halves[direction.index()].time = time;
            input = self.step(direction, input, out);
        }
        if let Some(change) = &mut out.change
            && !input.is_empty()
        {
            change.rest[direction.index()].extend_from_slice(input);
        }
    }

    fn gap(&mut self, direction: Direction, length: u64, out: &mut Transactions) {
        let half = &mut self.halves[direction.index()];
        match half.state {
            // Bodies go on after it, if they are as long as the gap.
            State::Fixed(left) if left > length => {
                half.state = State::Fixed(left - length);
                half.body.lost(length, out, half.id);
            }
            State::Chunk(left) if left > length => {
                half.state = State::Chunk(left - length);
                half.body.lost(length, out, half.id);
            }
            State::Fixed(left) if left == length => {
                half.body.lost(length, out, half.id);
                self.complete(direction, out);
            }
            State::Close => half.body.lost(length, out, half.id),
            State::Lost => {}
            _ => {
                half.carry.clear();
                half.search = Search::default();
                if half.id.is_some() {
                    half.body.lost(length, out, half.id);
                    self.complete(direction, out);
                }
                // A message may begin anywhere after it.
                self.halves[direction.index()].state = State::Junk;
            }
        }
    }

    fn end(&mut self, direction: Direction, out: &mut Transactions) {
        let half = &mut self.halves[direction.index()];
        match half.state {
            State::Head if !half.carry.is_empty() => {
                // The head that is there is all there will be.
                let carry = std::mem::take(&mut half.carry);
                half.search = Search::default();
                self.begin(direction, &carry, out);
            }
            State::ChunkLine if direction == ToClient && !half.carry.is_empty() => {
                let carry = std::mem::take(&mut half.carry);
                self.body(direction, &carry, out);
            }
            _ => {}
        }
        if self.halves[direction.index()].id.is_some() {
            let whole = self.halves[direction.index()].state == State::Close;
            self.finish_body(direction, whole, out);
            self.complete(direction, out);
        }
        self.halves[direction.index()].state = State::Lost;
        if direction == ToClient {
            // No answers will come.
            for p in std::mem::take(&mut self.pending) {
                if let Some(t) = out.find(p.id) {
                    t.finish_side(ToClient);
                }
            }
        }
    }

    fn memory(&self) -> usize {
        size_of::<Http1>()
            + self.head.memory()
            + self.pending.capacity() * size_of::<Pending>()
            + self.scratch.iter().map(Vec::capacity).sum::<usize>()
            + self.halves.iter().map(Half::memory).sum::<usize>()
    }
}

impl Half {
    fn memory(&self) -> usize {
        self.carry.capacity() + self.body.memory()
    }
}

impl Http1 {
    /// Consumes some of the input, and returns what is left.
    fn step<'a>(
        &mut self,
        direction: Direction,
        input: &'a [u8],
        out: &mut Transactions,
    ) -> &'a [u8] {
        let half = &mut self.halves[direction.index()];
        match half.state {
            State::Head => self.in_head(direction, input, out),
            State::Fixed(left) => {
                let taken = (input.len() as u64).min(left) as usize;
                half.state = State::Fixed(left - taken as u64);
                let over = left == taken as u64;
                self.body(direction, &input[..taken], out);
                if over {
                    self.finish_body(direction, true, out);
                    self.complete(direction, out);
                }
                &input[taken..]
            }
            State::ChunkLine => self.chunk_line(direction, input, out),
            State::Chunk(left) => {
                let taken = (input.len() as u64).min(left) as usize;
                half.state = if left == taken as u64 {
                    State::ChunkEnd
                } else {
                    State::Chunk(left - taken as u64)
                };
                self.body(direction, &input[..taken], out);
                &input[taken..]
            }
            State::ChunkEnd => match memchr::memchr(b'\n', input) {
                Some(at) => {
                    half.state = State::ChunkLine;
                    half.body.framing += at as u64 + 1;
                    &input[at + 1..]
                }
                None => {
                    half.body.framing += input.len() as u64;
                    &[]
                }
            },
            State::Trailer => self.trailer(direction, input, out),
            State::Close => {
                self.body(direction, input, out);
                &[]
            }
            State::Waiting => {
                half.carry.extend_from_slice(input);
                if half.carry.len() > MOST_WAITING {
                    half.carry = Vec::new();
                    half.state = State::Lost;
                }
                &[]
            }
            State::Junk => self.junk(direction, input),
            State::Lost => &[],
        }
    }

    fn in_head<'a>(
        &mut self,
        direction: Direction,
        input: &'a [u8],
        out: &mut Transactions,
    ) -> &'a [u8] {
        let half = &mut self.halves[direction.index()];
        let response = direction == ToClient;
        // Empty lines between messages are no message.
        let mut input = input;
        if half.carry.is_empty() {
            let skip =
                |b: &u8| matches!(b, b'\r' | b'\n') || (response && matches!(b, b' ' | b'\t'));
            let blank = input.iter().position(|b| !skip(b)).unwrap_or(input.len());
            input = &input[blank..];
            if input.is_empty() {
                return input;
            }
        }
        let before = half.carry.len();
        if before > 0 {
            half.carry.extend_from_slice(input);
        }
        // Most heads come whole in one segment, and are parsed where they are.
        let all: &[u8] = if before == 0 { input } else { &half.carry };
        if is_short(direction, all) {
            let all = all.to_vec();
            half.carry.clear();
            half.search = Search::default();
            let used = self.short(direction, &all, out);
            return self.rest(direction, all, used, before, input, out);
        }
        let end = half.search.end(all, response);
        match end {
            Some(end) if end <= MOST_HEAD => {
                half.search = Search::default();
                if before == 0 {
                    self.begin(direction, &input[..end], out);
                    return &input[end..];
                }
                let all = std::mem::take(&mut half.carry);
                self.begin(direction, &all[..end], out);
                self.rest(direction, all, end, before, input, out)
            }
            None if all.len() <= MOST_HEAD => {
                if before == 0 {
                    half.carry.extend_from_slice(input);
                }
                &[]
            }
            _ => {
                let all = if before == 0 {
                    input.to_vec()
                } else {
                    std::mem::take(&mut half.carry)
                };
                half.search = Search::default();
                self.begin(direction, &all[..MOST_HEAD], out);
                self.oddity(
                    direction,
                    "request_field_too_long",
                    "response_field_too_long",
                    out,
                );
                if self.halves[direction.index()].id.is_some() {
                    self.complete(direction, out);
                }
                self.halves[direction.index()].state = State::Lost;
                &[]
            }
        }
    }

    /// What is left of the input when `used` bytes of `all` are, whose first `before` bytes came earlier.
    fn rest<'a>(
        &mut self,
        direction: Direction,
        all: Vec<u8>,
        used: usize,
        before: usize,
        input: &'a [u8],
        out: &mut Transactions,
    ) -> &'a [u8] {
        if used >= before {
            return &input[used - before..];
        }
        // A head may end before bytes that were held back to see what follows them.
        let time = self.halves[direction.index()].time;
        self.data(direction, &all[used..], time, out);
        &[]
    }

    /// A first line that has no head after it: HTTP/0.9. Returns how much was used.
    fn short(&mut self, direction: Direction, all: &[u8], out: &mut Transactions) -> usize {
        if direction == ToServer {
            let (_, end) = Search::first_line(all, false).unwrap_or((all, all.len()));
            self.begin(direction, &all[..end], out);
            self.halves[0].state = State::Junk;
            return end;
        }
        if self.halves[1].messages > 0 {
            self.halves[1].state = State::Junk;
            return 0;
        }
        // A response without a head: everything is its body.
        self.attach(out);
        let half = &mut self.halves[1];
        half.messages += 1;
        half.state = State::Close;
        half.body = Body::default();
        if let Some(t) = half.id.and_then(|id| out.find(id)) {
            half.body.begin(ToClient, t, &self.wanted);
        }
        0
    }

    /// A head is whole: its transaction begins or goes on, its buffers are filled, and its body awaited.
    fn begin(&mut self, direction: Direction, bytes: &[u8], out: &mut Transactions) {
        let mut head = std::mem::take(&mut self.head);
        let fields_at = head.parse(bytes, direction == ToClient);
        if direction == ToServer {
            self.request(&head, &bytes[fields_at..], out);
        } else {
            self.response(&head, &bytes[fields_at..], out);
        }
        self.head = head;
    }

    fn request(&mut self, head: &Head, raw: &[u8], out: &mut Transactions) {
        let w = self.wanted;
        let line = RequestLine::of(head.line());
        let connect = line.method.eq_ignore_ascii_case(b"CONNECT");
        let method = if connect {
            Method::Connect
        } else if line.method.eq_ignore_ascii_case(b"HEAD") {
            Method::Head
        } else {
            Method::Other
        };
        let time = self.halves[0].time;
        let t = out.begin(App::Http1, time);
        let id = t.id;
        let target = uri::split(line.target, connect);
        let host = head.known(Known::Host);
        let b = w.buffers;
        let d = ToServer;
        if b.has(Buffer::HttpMethod) {
            t.push(Buffer::HttpMethod, d, line.method);
        }
        if b.has(Buffer::HttpUriRaw) {
            t.push(Buffer::HttpUriRaw, d, line.target);
        }
        if b.has(Buffer::HttpUri) {
            t.build(Buffer::HttpUri, d, |o| uri::normalize(&target, o));
        }
        if b.has(Buffer::HttpRequestLine) {
            t.push(Buffer::HttpRequestLine, d, head.line());
        }
        if b.has(Buffer::HttpProtocol) && !line.protocol.is_empty() {
            t.push(Buffer::HttpProtocol, d, line.protocol);
        }
        // The host of an absolute target outweighs the header.
        let raw_host = target.host.or(host);
        if let Some(raw_host) = raw_host {
            if b.has(Buffer::HttpHost) {
                t.build(Buffer::HttpHost, d, |o| host_name(raw_host, o));
            }
            if b.has(Buffer::HttpHostRaw) {
                t.push(Buffer::HttpHostRaw, d, raw_host);
            }
        }
        match (target.host, host) {
            (None, None) if line.protocol == b"HTTP/1.1" => t.event("missing_host_header"),
            (Some(a), Some(h)) => {
                let same = uri::authority(h)
                    .0
                    .is_some_and(|h| h.eq_ignore_ascii_case(a));
                if !same {
                    t.event("host_header_ambiguous");
                }
            }
            _ => {}
        }
        fields(t, head, raw, d, &w);
        if w.records {
            let r = &mut t.record;
            if let Some(h) = raw_host {
                let mut name = Vec::new();
                host_name(h, &mut name);
                r.insert("hostname".into(), text(&name));
                if let (_, Some(port)) = uri::authority(h) {
                    r.insert("http_port".into(), port.into());
                } else if let Some(port) = target.port {
                    r.insert("http_port".into(), port.into());
                }
            }
            r.insert("url".into(), text(line.target));
            for (name, known) in [
                ("http_user_agent", Known::UserAgent),
                ("xff", Known::XForwardedFor),
                ("http_refer", Known::Referer),
            ] {
                if let Some(v) = head.known(known) {
                    r.insert(name.into(), text(v));
                }
            }
            r.insert("http_method".into(), text(line.method));
            if !line.protocol.is_empty() {
                r.insert("protocol".into(), text(line.protocol));
            }
        }
        let half = &mut self.halves[0];
        half.id = Some(id);
        half.body = Body::default();
        // What an upload without a form is called: the path it goes to.
        if w.records || b.has(Buffer::FileName) {
            half.body.name = target.path.to_vec();
        }
        let multipart = head.known(Known::ContentType).and_then(Multipart::new);
        half.state = if line.protocol.is_empty() {
            State::Fixed(0)
        } else if connect {
            State::Waiting
        } else {
            framing(head, ToServer, t)
        };
        if half.state != State::Fixed(0) && half.state != State::Waiting {
            half.body.multipart = multipart;
            half.body.layers(head, t);
            half.body.begin(ToServer, t, &w);
        }
        if self.pending.len() >= MOST_PENDING {
            self.pending.pop_front();
        }
        let named = w.records || b.has(Buffer::FileName);
        self.pending.push_back(Pending {
            id,
            method,
            path: if named {
                target.path.to_vec()
            } else {
                Vec::new()
            },
        });
        match half.state {
            State::Fixed(0) => self.complete(ToServer, out),
            State::Waiting => {
                if let Some(t) = out.find(id) {
                    t.finish_side(ToServer);
                }
                self.halves[0].id = None;
            }
            _ => {}
        }
    }

    /// Finds or makes the transaction of a response, and returns its request.
    fn attach(&mut self, out: &mut Transactions) -> (Method, Vec<u8>) {
        let time = self.halves[1].time;
        // Requests that detection dropped, or the list of transactions gave up, have no answer to fill.
        while let Some(p) = self.pending.pop_front() {
            if out.find(p.id).is_some_and(|t| !t.done) {
                self.halves[1].id = Some(p.id);
                return (p.method, p.path);
            }
        }
        let t = out.begin(App::Http1, time);
        t.event("unable_to_match_response_to_request");
        t.finish_side(ToServer);
        self.halves[1].id = Some(t.id);
        (Method::Other, Vec::new())
    }

    fn response(&mut self, head: &Head, raw: &[u8], out: &mut Transactions) {
        let w = self.wanted;
        let line = StatusLine::of(head.line());
        let status = line.status();
        // Interim answers announce the real one.
        if matches!(status, Some(100 | 102 | 103)) {
            self.halves[1].state = State::Head;
            return;
        }
        let (method, path) = self.attach(out);
        let half = &mut self.halves[1];
        half.messages += 1;
        let Some(t) = half.id.and_then(|id| out.find(id)) else {
            return;
        };
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
        fields(t, head, raw, d, &w);
        if w.records {
            let r = &mut t.record;
            if let Some(status) = status {
                r.insert("status".into(), status.into());
            } else if !line.code.is_empty() {
                r.insert("status_string".into(), text(line.code));
            }
            if let Some(v) = head.known(Known::ContentType) {
                let end = memchr::memchr(b';', v).unwrap_or(v.len());
                r.insert("http_content_type".into(), text(&v[..end]));
            }
            if let Some(v) = head.known(Known::Location) {
                r.insert("redirect".into(), text(v));
            }
            if let Some(v) = head.known(Known::ContentRange) {
                let mut range = serde_json::Map::new();
                range.insert("raw".into(), text(v));
                r.insert("content_range".into(), range.into());
            }
            if !r.contains_key("protocol") {
                r.insert("protocol".into(), text(line.protocol));
            }
            r.insert("length".into(), 0.into());
        }
        if status.is_none() {
            t.event("response_invalid_status");
        }
        let switch = status == Some(101) && head.known(Known::Upgrade).is_some();
        let tunnel = method == Method::Connect && matches!(status, Some(200..=299));
        if tunnel || switch {
            t.finish();
            half.id = None;
            let h2 = head
                .known(Known::Upgrade)
                .is_some_and(|u| u.to_ascii_lowercase().starts_with(b"h2c"));
            let mut change = Change {
                to: (switch && h2).then_some(App::Http2),
                ..Change::default()
            };
            // What the client sent meanwhile belongs to the tunnel.
            change.rest[0] = std::mem::take(&mut self.halves[0].carry);
            out.change = Some(change);
            return;
        }
        half.state = if method == Method::Head || matches!(status, Some(204 | 304)) {
            State::Fixed(0)
        } else {
            framing(head, ToClient, t)
        };
        half.body = Body::default();
        if half.state != State::Fixed(0) {
            half.body.name = head
                .known(Known::ContentDisposition)
                .and_then(|v| multipart::parameter(v, b"filename"))
                .unwrap_or(path);
            half.body.layers(head, t);
            half.body.begin(ToClient, t, &w);
            // Growing step by step would copy a body several times over; a length that lies costs little.
            if let (State::Fixed(n), Some(body), true) =
                (half.state, half.body.target, half.body.layers.is_empty())
            {
                let room = w.response_body.min(MOST_RESERVED);
                t.reserve(body, usize::try_from(n).unwrap_or(room).min(room));
            }
        }
        let empty = half.state == State::Fixed(0);
        if empty {
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

    fn chunk_line<'a>(
        &mut self,
        direction: Direction,
        input: &'a [u8],
        out: &mut Transactions,
    ) -> &'a [u8] {
        let half = &mut self.halves[direction.index()];
        let newline = memchr::memchr(b'\n', input);
        let take = newline.map_or(input.len(), |n| n + 1);
        half.carry.extend_from_slice(&input[..take]);
        if newline.is_none() && half.carry.len() <= MOST_CHUNK_LINE {
            return &[];
        }
        let length = match newline {
            Some(_) if half.carry.len() <= MOST_CHUNK_LINE => chunk_length(&half.carry),
            _ => None,
        };
        match length {
            // Some servers end a chunk with more than one line end.
            Some(ChunkLength::Blank) => half.carry.clear(),
            Some(ChunkLength::Is(n)) => {
                half.body.framing += half.carry.len() as u64;
                half.carry.clear();
                half.state = if n == 0 {
                    State::Trailer
                } else {
                    State::Chunk(n)
                };
            }
            None => {
                // No length: what ends do then is to take the rest as it is.
                let line = std::mem::take(&mut half.carry);
                half.state = State::Close;
                self.oddity(
                    direction,
                    "invalid_request_chunk_len",
                    "invalid_response_chunk_len",
                    out,
                );
                self.body(direction, &line, out);
            }
        }
        &input[take..]
    }

    fn trailer<'a>(
        &mut self,
        direction: Direction,
        input: &'a [u8],
        out: &mut Transactions,
    ) -> &'a [u8] {
        let half = &mut self.halves[direction.index()];
        let newline = memchr::memchr(b'\n', input);
        let take = newline.map_or(input.len(), |n| n + 1);
        let before = half.carry.len();
        // Only whether the line is empty counts; `carry` keeps a little of it.
        let room = 4_usize.saturating_sub(before);
        half.carry.extend_from_slice(&input[..take.min(room)]);
        half.body.framing += take as u64;
        if newline.is_some() {
            let empty = half.carry.iter().all(|b| matches!(b, b'\r' | b'\n'));
            half.carry.clear();
            if empty {
                self.finish_body(direction, true, out);
                self.complete(direction, out);
            }
        }
        &input[take..]
    }

    /// Looks for a line that begins a message.
    fn junk<'a>(&mut self, direction: Direction, input: &'a [u8]) -> &'a [u8] {
        let half = &mut self.halves[direction.index()];
        let mut rest = input;
        loop {
            // `carry` holds the beginning of a line while it may become a first line; a byte that cannot is skipped to the line's end.
            while let Some(&byte) = rest.first() {
                half.carry.push(byte);
                rest = &rest[1..];
                match starts_message(direction, &half.carry) {
                    Some(true) => {
                        half.state = State::Head;
                        half.search = Search::default();
                        return rest;
                    }
                    Some(false) => break,
                    None => {}
                }
            }
            if half.carry.is_empty() || starts_message(direction, &half.carry).is_none() {
                return &[];
            }
            // No first line: on to the next line. A carry of one odd byte marks that the line is being skipped.
            if half.carry.last() == Some(&b'\n') {
                half.carry.clear();
                continue;
            }
            match memchr::memchr(b'\n', rest) {
                Some(n) => {
                    half.carry.clear();
                    rest = &rest[n + 1..];
                }
                None => {
                    half.carry.clear();
                    half.carry.push(0);
                    return &[];
                }
            }
        }
    }

    /// Bytes of a body without their transfer encoding.
    fn body(&mut self, direction: Direction, bytes: &[u8], out: &mut Transactions) {
        let half = &mut self.halves[direction.index()];
        half.body.message += bytes.len() as u64;
        if !half.body.sinking {
            return;
        }
        let Some(t) = half.id.and_then(|id| out.find(id)) else {
            return;
        };
        half.body
            .data(direction, bytes, t, &self.wanted, &mut self.scratch);
    }

    fn finish_body(&mut self, direction: Direction, whole: bool, out: &mut Transactions) {
        let half = &mut self.halves[direction.index()];
        if let Some(t) = half.id.and_then(|id| out.find(id)) {
            half.body.end(direction, whole, t, &self.wanted);
        }
    }

    /// A message is over: the next one begins.
    fn complete(&mut self, direction: Direction, out: &mut Transactions) {
        let half = &mut self.halves[direction.index()];
        half.state = State::Head;
        half.body.framing = 0;
        half.body = Body::default();
        if let Some(t) = half.id.take().and_then(|id| out.find(id)) {
            t.finish_side(direction);
        }
    }

    fn oddity(
        &mut self,
        direction: Direction,
        request: &'static str,
        response: &'static str,
        out: &mut Transactions,
    ) {
        let id = self.halves[direction.index()].id;
        if let Some(t) = id.and_then(|id| out.find(id)) {
            t.event(if direction == ToServer {
                request
            } else {
                response
            });
        }
    }
}

/// Whether what is there of a head shows that none will follow: a request line without a version, or an answer that begins with something else than a version.
fn is_short(direction: Direction, bytes: &[u8]) -> bool {
    if direction == ToServer {
        // "GET /x\r\n" and nothing else: what follows, if anything does, is not a header line.
        return Search::first_line(bytes, false).is_some_and(|(line, _)| {
            RequestLine::of(line).protocol.is_empty() && !line.is_empty()
        });
    }
    let bytes = bytes.trim_ascii_start();
    let n = bytes.len().min(4);
    !bytes[..n].eq_ignore_ascii_case(&b"HTTP"[..n])
}

/// Whether a line begins like a first line; `None`: it may yet.
fn starts_message(direction: Direction, line: &[u8]) -> Option<bool> {
    if direction == ToClient {
        let n = line.len().min(5);
        return if !line[..n].eq_ignore_ascii_case(&b"HTTP/"[..n]) {
            Some(false)
        } else {
            (n == 5).then_some(true)
        };
    }
    match line.iter().position(|b| *b == b' ') {
        Some(at) => Some(super::recognize::is_method(&line[..at])),
        None if line.len() > 20 || !line.iter().all(u8::is_ascii_uppercase) => Some(false),
        None => None,
    }
}

struct RequestLine<'a> {
    method: &'a [u8],
    target: &'a [u8],
    protocol: &'a [u8],
}

impl RequestLine<'_> {
    fn of(line: &[u8]) -> RequestLine<'_> {
        let line = line.trim_ascii();
        let end = line.iter().position(u8::is_ascii_whitespace);
        let (method, rest) = match end {
            Some(end) => (&line[..end], line[end..].trim_ascii()),
            None => (line, &b""[..]),
        };
        // A target may hold spaces: the version is the last word, if it is one.
        let last = rest.iter().rposition(u8::is_ascii_whitespace);
        let (target, protocol) = match last {
            Some(at) if is_protocol(&rest[at + 1..]) => (rest[..at].trim_ascii(), &rest[at + 1..]),
            None if is_protocol(rest) => (&b""[..], rest),
            _ => (rest, &b""[..]),
        };
        RequestLine {
            method,
            target,
            protocol,
        }
    }
}

fn is_protocol(word: &[u8]) -> bool {
    word.len() >= 5 && word[..5].eq_ignore_ascii_case(b"HTTP/")
}

struct StatusLine<'a> {
    protocol: &'a [u8],
    code: &'a [u8],
    message: &'a [u8],
}

impl StatusLine<'_> {
    fn of(line: &[u8]) -> StatusLine<'_> {
        let line = line.trim_ascii();
        let word = |b: &[u8]| {
            b.iter()
                .position(u8::is_ascii_whitespace)
                .unwrap_or(b.len())
        };
        let (protocol, rest) = line.split_at(word(line));
        let rest = rest.trim_ascii();
        let (code, rest) = rest.split_at(word(rest));
        StatusLine {
            protocol,
            code,
            message: rest.trim_ascii(),
        }
    }

    fn status(&self) -> Option<u16> {
        let code = std::str::from_utf8(self.code).ok()?.parse().ok()?;
        (100..=999).contains(&code).then_some(code)
    }
}

enum ChunkLength {
    Is(u64),
    Blank,
}

/// The number of a chunk line: hexadecimal after white space and control characters; what follows it is an extension. `None`: no number, or one that no end takes.
fn chunk_length(line: &[u8]) -> Option<ChunkLength> {
    let odd = |b: &u8| matches!(b, b' ' | b'\t' | b'\r' | b'\n' | 0x0b | 0x0c | 0);
    let start = line.iter().position(|b| !odd(b));
    let Some(start) = start else {
        return Some(ChunkLength::Blank);
    };
    let digits = line[start..]
        .iter()
        .take_while(|b| b.is_ascii_hexdigit())
        .count();
    if digits == 0 {
        return None;
    }
    let mut n: u64 = 0;
    for b in &line[start..start + digits] {
        n = n.checked_mul(16)? + u64::from((*b as char).to_digit(16)?);
    }
    (n <= i32::MAX as u64).then_some(ChunkLength::Is(n))
}

/// How the body of a message is delimited.
fn framing(head: &Head, direction: Direction, t: &mut Transaction) -> State {
    let chunked = head.known(Known::TransferEncoding).is_some_and(|v| {
        let v: Vec<u8> = v
            .iter()
            .filter(|b| **b != 0)
            .map(u8::to_ascii_lowercase)
            .collect();
        memchr::memmem::find(&v, b"chunked").is_some()
    });
    let length = head.known(Known::ContentLength);
    if chunked {
        if length.is_some() {
            t.event("request_smuggling");
        }
        return State::ChunkLine;
    }
    if let Some(v) = length {
        match content_length(v) {
            Some(n) => return State::Fixed(n),
            None => t.event(if direction == ToServer {
                "invalid_content_length_field_in_request"
            } else {
                "invalid_content_length_field_in_response"
            }),
        }
    }
    if direction == ToServer {
        State::Fixed(0)
    } else {
        State::Close
    }
}

/// The first number of a value.
fn content_length(value: &[u8]) -> Option<u64> {
    let start = value.iter().position(u8::is_ascii_digit)?;
    let digits = value[start..]
        .iter()
        .take_while(|b| b.is_ascii_digit())
        .count();
    std::str::from_utf8(&value[start..start + digits])
        .ok()?
        .parse()
        .ok()
}

/// In lower case, without port and final dots.
fn host_name(raw: &[u8], out: &mut Vec<u8>) {
    let from = out.len();
    let host = uri::authority(raw).0.unwrap_or_default();
    out.extend(host.iter().map(u8::to_ascii_lowercase));
    while out.len() > from && out.last() == Some(&b'.') {
        out.pop();
    }
}

/// Buffers of header lines, of either direction.
fn fields(t: &mut Transaction, head: &Head, raw: &[u8], d: Direction, w: &Wanted) {
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
            o.extend_from_slice(head.line());
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
    note(o.folded, "request_header_folded", "response_header_folded");
    note(
        o.repeated,
        "request_header_repetition",
        "response_header_repetition",
    );
    note(
        o.repeated_length,
        "duplicate_content_length_field_in_request",
        "duplicate_content_length_field_in_response",
    );
    note(o.too_many, "too_many_headers", "too_many_headers");
}

/// Where a body goes.
#[derive(Default)]
struct Body {
    /// Bytes without transfer encoding.
    message: u64,
    /// Bytes of the transfer encoding itself.
    framing: u64,
    layers: Vec<Decoder>,
    /// The body of the transaction that is filled.
    target: Option<usize>,
    file: Option<usize>,
    multipart: Option<Multipart>,
    /// Whether anything still wants its bytes.
    sinking: bool,
    /// Decoded bytes so far.
    decoded: usize,
    name: Vec<u8>,
}

impl Body {
    /// Sets up what its Content-Encoding says.
    fn layers(&mut self, head: &Head, t: &mut Transaction) {
        let Some(value) = head.known(Known::ContentEncoding) else {
            return;
        };
        let (mut found, odd) = encodings(value);
        if odd {
            t.event("abnormal_ce_header");
        }
        if found.len() > MOST_LAYERS {
            t.event("too_many_encoding_layers");
            found.truncate(0);
        }
        // The last one applied is the first to be undone.
        self.layers = found.into_iter().rev().map(Decoder::new).collect();
    }

    fn begin(&mut self, d: Direction, t: &mut Transaction, w: &Wanted) {
        let b = w.buffers;
        let whole = if d == ToServer {
            Buffer::HttpRequestBody
        } else {
            Buffer::HttpResponseBody
        };
        // The parts of a form are files; any other body is one.
        let file = b.has(Buffer::FileData) && self.multipart.is_none();
        self.target = match (b.has(whole), file) {
            (true, true) => Some(t.begin_body(whole, Some(Buffer::FileData), d)),
            (true, false) => Some(t.begin_body(whole, None, d)),
            (false, true) => Some(t.begin_body(Buffer::FileData, None, d)),
            (false, false) => None,
        };
        if self.multipart.is_none() {
            if b.has(Buffer::FileName) && !self.name.is_empty() {
                t.push(Buffer::FileName, d, &self.name);
            }
            t.files.push(File {
                name: std::mem::take(&mut self.name),
                direction: d,
                size: 0,
                whole: false,
            });
            self.file = Some(t.files.len() - 1);
        }
        self.sinking = self.target.is_some() || self.multipart.is_some() || w.records;
    }

    fn data(
        &mut self,
        d: Direction,
        bytes: &[u8],
        t: &mut Transaction,
        w: &Wanted,
        scratch: &mut [Vec<u8>; 2],
    ) {
        if self.layers.is_empty() {
            return self.sink(d, bytes, t, w);
        }
        let [from, into] = scratch;
        from.clear();
        from.extend_from_slice(bytes);
        let mut stop = false;
        // What is decoded beyond the limit of inspection serves nobody.
        let limit = if d == ToServer {
            w.request_body
        } else {
            w.response_body
        };
        let most = w
            .decompressed
            .min(limit.saturating_add(1))
            .saturating_sub(self.decoded);
        for layer in &mut self.layers {
            into.clear();
            match layer.decode(from, into, most) {
                Outcome::Ok => {}
                Outcome::Failed => t.event("gzip_decompression_failed"),
                Outcome::Full => {
                    if self.decoded + into.len() >= w.decompressed {
                        t.event("compression_bomb");
                    }
                    stop = true;
                }
            }
            std::mem::swap(from, into);
        }
        self.decoded += from.len();
        let decoded = std::mem::take(from);
        self.sink(d, &decoded, t, w);
        *from = decoded;
        if stop {
            self.sinking = false;
            t.complete[d.index()] = true;
        }
    }

    fn sink(&mut self, d: Direction, bytes: &[u8], t: &mut Transaction, w: &Wanted) {
        let limit = if d == ToServer {
            w.request_body
        } else {
            w.response_body
        };
        if let Some(m) = &mut self.multipart {
            m.data(bytes, t, w.buffers, limit);
        }
        if let Some(file) = self.file {
            t.files[file].size += bytes.len() as u64;
        }
        if let Some(target) = self.target
            && !t.append_to(target, bytes, limit)
            && self.multipart.is_none()
        {
            // Nothing more will be added: rules may decide.
            t.complete[d.index()] = true;
            if !w.records {
                self.sinking = false;
            }
        }
    }

    /// Bytes of it were lost: what is left cannot be decoded.
    fn lost(&mut self, length: u64, out: &mut Transactions, id: Option<u64>) {
        self.message += length;
        if !self.layers.is_empty() {
            self.sinking = false;
        }
        if let Some(t) = id.and_then(|id| out.find(id)) {
            t.event("body_gap");
        }
    }

    fn end(&mut self, d: Direction, whole: bool, t: &mut Transaction, w: &Wanted) {
        let limit = if d == ToServer {
            w.request_body
        } else {
            w.response_body
        };
        if let Some(m) = &mut self.multipart {
            m.end(t, limit);
        }
        if let Some(file) = self.file {
            t.files[file].whole = whole;
        }
        if d == ToClient && w.records {
            t.record
                .insert("length".into(), (self.message + self.framing).into());
        }
    }

    fn memory(&self) -> usize {
        self.layers.iter().map(Decoder::memory).sum::<usize>()
            + self.multipart.as_ref().map_or(0, Multipart::memory)
            + self.name.capacity()
    }
}

#[cfg(test)]
mod tests;
