//! HTTP/1 and 0.9: requests and responses of one connection, pipelined, chunked, encoded, in whatever shape ends still understand.
//!
//! Each direction is a small state machine over the bytes in order; what it has not understood yet is in `carry`, at most one head long. Nothing depends on how the bytes were cut
//! into segments. Design and the list of tricks: `docs/design/sensor-apps.md`.

#![expect(
    clippy::indexing_slicing,
    reason = "older than the lint: lengths are compared before; a place that is touched gets a checked access"
)]

pub(super) mod body;
mod chunk;
mod decode;
pub(super) mod fields;
pub(super) mod head;
mod lzma;
pub(crate) mod multipart;
pub(super) mod probe;
pub(super) mod request;
pub(super) mod response;
pub(super) mod uri;
mod wanted;

pub use wanted::{HttpWanted, Invalid, PathRules};

use std::collections::VecDeque;

use crate::packet::Direction;
use crate::packet::Direction::{ToClient, ToServer};

use self::body::{Body, Framing};
use self::head::{Head, Search};
use self::request::RequestLine;
use super::names::App;
use super::probe::{Certainty, StreamProbe};
use super::protocol::{Parser, Protocol, Sides};
use super::transaction::{Kind, Stage, Transaction, Transactions, Upgrade};
use super::wanted::Asked;
use crate::buffer::Buffer;

/// The longest head that is parsed whole, bytes. Of a longer one the beginning is inspected, and the rest of that direction is not understood.
const MOST_HEAD: usize = 64 * 1024;

/// Bytes of a body that room is made for before they come.
const MOST_RESERVED: usize = 16 * 1024;

/// Bytes that a client may send after CONNECT before the answer.
const MOST_WAITING: usize = 16 * 1024;

/// Requests that may wait for an answer.
const MOST_PENDING: usize = super::MOST_LIVE;

/// Bytes of a body up to which a message is kept when it is over, as what follows may be more of it.
const MOST_KEPT: u64 = 8 * 1024;

/// Bytes of a message that its frame keeps.
const MOST_FRAME: usize = 64 * 1024;

/// The longest line that is waited for to see whether it is one of a request.
const MOST_DOUBT: usize = 8 * 1024;

pub(super) const HTTP1: Protocol = Protocol {
    app: App::Http1,
    aliases: &["http1"],
    stream: Some(StreamProbe::new(Certainty::Sure, probe::http1)),
    sides: Sides::Like(probe::begins_like_http),
    client_first: true,
    parser: Some(|start| Box::new(Http1::new(start.asked))),
    kind: Some(&KIND),
    unraised_events: &[
        "failed_protocol_change",
        "invalid_authority_port",
        "invalid_server_port_in_request",
        "invalid_transfer_encoding_value_in_response",
        "multipart_generic_error",
        "request_server_port_tcp_port_mismatch",
        "too_many_warnings",
        "unknown_error",
    ],
    older_events: &[
        (
            "response_invalid_protocol",
            "response_line_invalid_protocol",
        ),
        (
            "response_invalid_status",
            "response_line_invalid_response_status",
        ),
        ("response_header_invalid", "response_header_name_not_token"),
    ],
    loud: true,
    states: [
        &[
            "request_started",
            "request_line",
            "request_headers",
            "request_body",
            "request_trailer",
            "request_complete",
        ],
        &[
            "response_started",
            "response_line",
            "response_headers",
            "response_body",
            "response_trailer",
            "response_complete",
        ],
    ],
    hooks: &[
        (
            "request_started",
            ToServer,
            Stage::Has(Buffer::HttpRequestLine),
        ),
        (
            "response_started",
            ToClient,
            Stage::Has(Buffer::HttpResponseLine),
        ),
        (
            "request_line",
            ToServer,
            Stage::Has(Buffer::HttpRequestLine),
        ),
        (
            "request_headers",
            ToServer,
            Stage::Has(Buffer::HttpRequestLine),
        ),
        ("request_body", ToServer, Stage::Over),
        ("request_trailer", ToServer, Stage::Over),
        (
            "response_line",
            ToClient,
            Stage::Has(Buffer::HttpResponseLine),
        ),
        (
            "response_headers",
            ToClient,
            Stage::Has(Buffer::HttpResponseLine),
        ),
        ("response_body", ToClient, Stage::Over),
        ("response_trailer", ToClient, Stage::Over),
    ],
    files: true,
    ..Protocol::NONE
};

static KIND: Kind = Kind {
    app: App::Http1,
    events: &[
        "100_continue_already_seen",
        "abnormal_ce_header",
        "compression_bomb",
        "content_length_extra_data_end",
        "content_length_extra_data_start",
        "double_encoded_uri",
        "duplicate_content_length_field_in_request",
        "duplicate_content_length_field_in_response",
        "file_name_too_long",
        "gzip_decompression_failed",
        "host_header_ambiguous",
        "invalid_content_length_field_in_request",
        "invalid_content_length_field_in_response",
        "invalid_request_chunk_len",
        "invalid_request_field_folding",
        "invalid_response_chunk_len",
        "invalid_response_field_folding",
        "invalid_transfer_encoding_value_in_request",
        "lzma_memlimit_reached",
        "method_delim_non_compliant",
        "missing_host_header",
        "multipart_invalid_header",
        "multipart_no_filedata",
        "range_invalid",
        "request_auth_unrecognized",
        "request_body_unexpected",
        "request_chunk_extension",
        "request_field_missing_colon",
        "request_field_too_long",
        "request_header_host_invalid",
        "request_header_invalid",
        "request_header_repetition",
        "request_invalid_lws_after_name",
        "request_line_incomplete",
        "request_line_invalid",
        "request_line_leading_whitespace",
        "request_line_missing_protocol",
        "request_too_many_headers",
        "request_uri_host_invalid",
        "response_abnormal_transfer_encoding",
        "response_body_unexpected",
        "response_chunk_extension",
        "response_chunked_old_proto",
        "response_field_missing_colon",
        "response_field_too_long",
        "response_header_name_not_token",
        "response_header_repetition",
        "response_invalid_lws_after_name",
        "response_line_invalid_protocol",
        "response_line_invalid_response_status",
        "response_too_many_headers",
        "switching_proto_with_content_length",
        "too_many_encoding_layers",
        "unable_to_match_response_to_request",
        "uri_delim_non_compliant",
    ],
    may_lack: |t, direction| direction == ToServer || t.answered,
    ..Kind::EXCHANGE
};

/// A parser of one connection.
pub(super) struct Http1 {
    wanted: Asked,
    halves: [Half; 2],
    /// Requests without their response yet.
    pending: VecDeque<Pending>,
    head: Head,
    scratch: [Vec<u8>; 2],
    /// The request that was told to continue.
    continued: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Pending {
    id: u64,
    method: Method,
    /// Path of the target, for the name of the file that comes back.
    path: Vec<u8>,
    /// What goes on in HTTP/2 if the server agrees.
    upgrade: Option<Box<Upgrade>>,
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
    /// The one of the message before, while more of it may come.
    last: Option<u64>,
    body: Body,
    time: u64,
    /// Messages begun.
    messages: u64,
    /// The body of the message's frame, where it is kept.
    frame: Option<usize>,
    /// Bytes from the head that is read to the end of what was given.
    behind: usize,
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
    /// The same, as more of the body of the message before.
    Extra,
    /// Nothing can be understood any more.
    Lost,
}

impl Http1 {
    pub(super) fn new(wanted: &Asked) -> Http1 {
        Http1 {
            continued: None,
            wanted: wanted.clone(),
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
            let half = &mut self.halves[direction.index()];
            half.time = time;
            // What is behind the head of a message is added to its frame as it comes; what is given again meanwhile, once.
            let inside = half.state != State::Head;
            let frame = half.frame.take_if(|_| inside).zip(half.id);
            let rest = self.step(direction, input, out);
            if let Some((frame, id)) = frame {
                let taken = input.strip_suffix(rest).unwrap_or(input);
                if let Some(t) = out.find(id) {
                    t.append_to(frame, taken, MOST_FRAME);
                }
                let half = &mut self.halves[direction.index()];
                if half.id == Some(id) && half.frame.is_none() {
                    half.frame = Some(frame);
                }
            }
            input = rest;
        }
        if let Some(change) = &mut out.change
            && !input.is_empty()
        {
            change.rest[direction.index()].extend_from_slice(input);
        }
    }

    fn gap(&mut self, direction: Direction, length: u64, out: &mut Transactions) {
        self.release(direction, out);
        let half = &mut self.halves[direction.index()];
        let w = &self.wanted;
        match half.state {
            // Bodies go on after it, if they are as long as the gap.
            State::Fixed(left) if left > length => {
                half.state = State::Fixed(left - length);
                half.body.lost(direction, length, out, half.id, w);
            }
            State::Chunk(left) if left > length => {
                half.state = State::Chunk(left - length);
                half.body.lost(direction, length, out, half.id, w);
            }
            State::Fixed(left) if left == length => {
                half.body.lost(direction, length, out, half.id, w);
                self.finish_body(direction, false, out);
                self.complete(direction, out);
            }
            State::Close | State::Extra => half.body.lost(direction, length, out, half.id, w),
            State::Lost => {}
            _ => {
                if direction == ToServer && half.state == State::Head && !half.carry.is_empty() {
                    // The line that was begun is all there is of a request.
                    let carry = std::mem::take(&mut half.carry);
                    self.begin(direction, &carry, out);
                    self.oddity(
                        direction,
                        "request_line_incomplete",
                        "request_line_incomplete",
                        out,
                    );
                }
                let half = &mut self.halves[direction.index()];
                half.carry.clear();
                half.search = Search::default();
                if half.id.is_some() {
                    half.body
                        .lost(direction, length, out, half.id, &self.wanted);
                    self.finish_body(direction, false, out);
                    self.complete(direction, out);
                }
                self.release(direction, out);
                // A message may begin anywhere after it.
                self.halves[direction.index()].state = State::Junk;
            }
        }
    }

    fn end(&mut self, direction: Direction, out: &mut Transactions) {
        let half = &mut self.halves[direction.index()];
        let mut last_chunk = false;
        match half.state {
            State::Head if !half.carry.is_empty() => {
                // The head that is there is all there will be.
                let carry = std::mem::take(&mut half.carry);
                half.search = Search::default();
                self.unfinished(direction, &carry, out);
            }
            State::ChunkLine => last_chunk = self.last_line(direction, out),
            State::Trailer => last_chunk = true,
            State::Extra => {
                let carry = std::mem::take(&mut half.carry);
                if carry != [0] {
                    self.body(direction, &carry, out);
                }
            }
            _ => {}
        }
        let half = &self.halves[direction.index()];
        if let Some(id) = half.id {
            let whole = last_chunk || matches!(half.state, State::Close | State::Extra);
            self.finish_body(direction, whole, out);
            if let Some(t) = out.find(id) {
                t.cut[direction.index()] |= !whole;
            }
            self.complete(direction, out);
        }
        self.release(direction, out);
        self.halves[direction.index()].state = State::Lost;
        if direction == ToClient {
            // No answers will come.
            for p in std::mem::take(&mut self.pending) {
                if let Some(t) = out.find(p.id) {
                    t.cut[ToClient.index()] = true;
                    t.finish_side(ToClient);
                }
            }
        }
    }

    fn is_between(&self, direction: Direction) -> bool {
        let half = &self.halves[direction.index()];
        half.state == State::Head && half.carry.is_empty()
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
            State::ChunkEnd => self.chunk_end(direction, input),
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
            State::Junk | State::Extra => self.junk(direction, input, out),
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
                |b: &u8| matches!(b, b'\r' | b'\n') || (response && matches!(b, b' ' | b'\t' | 0));
            let blank = input.iter().position(|b| !skip(b)).unwrap_or(input.len());
            let (front, rest) = input.split_at(blank);
            if response
                && !front.is_empty()
                && let Some(t) = half.last.and_then(|id| out.find(id))
            {
                half.body.pad(direction, front, t, &self.wanted);
            }
            input = rest;
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
        if response && half.messages == 0 {
            match line_before_head(all) {
                Some(0) => {}
                Some(line) if before == 0 => return &input[line..],
                Some(line) => {
                    let all = std::mem::take(&mut half.carry);
                    half.search = Search::default();
                    return self.rest(direction, all, line, before, input, out);
                }
                None => {
                    if before == 0 {
                        half.carry.extend_from_slice(input);
                    }
                    return &[];
                }
            }
        }
        if half.last.is_some() {
            match begins(direction, all) {
                Some(true) => {}
                None => {
                    if before == 0 {
                        half.carry.extend_from_slice(input);
                    }
                    return &[];
                }
                Some(false) => {
                    let all = all.to_vec();
                    half.carry.clear();
                    half.search = Search::default();
                    self.extend(direction, out);
                    let time = self.halves[direction.index()].time;
                    self.data(direction, &all, time, out);
                    return &[];
                }
            }
        }
        match is_short(direction, all) {
            Some(false) => {}
            Some(true) => {
                let all = all.to_vec();
                half.carry.clear();
                half.search = Search::default();
                let used = self.short(direction, &all, out);
                return self.rest(direction, all, used, before, input, out);
            }
            None => {
                if before == 0 {
                    half.carry.extend_from_slice(input);
                }
                return &[];
            }
        }
        let end = half.search.end(all, response, false);
        match end {
            Some(end) if end <= MOST_HEAD => {
                half.search = Search::default();
                half.behind = all.len();
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
            // A line of blanks is not the empty line that ends a head.
            if matches!(all.get(end), Some(b' ' | b'\t'))
                && let Some(t) = out.live.back_mut()
            {
                t.event("request_line_missing_protocol");
            }
            self.release(direction, out);
            self.halves[0].state = State::Junk;
            return end;
        }
        if self.halves[1].messages > 0 {
            self.halves[1].state = State::Junk;
            return 0;
        }
        // A response without a head: everything is its body.
        let (_, path, _) = self.attach(out);
        let half = &mut self.halves[1];
        half.messages += 1;
        half.state = State::Close;
        half.body = Body::new(Framing::NONE, true, path);
        0
    }

    /// The stream ends in a head.
    fn unfinished(&mut self, direction: Direction, all: &[u8], out: &mut Transactions) {
        if self.halves[direction.index()].last.is_some() && begins(direction, all) != Some(true) {
            self.extend(direction, out);
            self.body(direction, all, out);
            return;
        }
        if direction == ToClient && is_short(direction, all) == Some(true) {
            self.short(direction, all, out);
            return self.body(direction, all, out);
        }
        // What did not end it while more could come may do so now.
        let end = Search::default().end(all, direction == ToClient, true);
        let end = end.unwrap_or(all.len());
        self.begin(direction, &all[..end], out);
        let time = self.halves[direction.index()].time;
        self.data(direction, &all[end..], time, out);
    }

    /// A head is whole: its transaction begins or goes on, its buffers are filled, and its body awaited.
    fn begin(&mut self, direction: Direction, bytes: &[u8], out: &mut Transactions) {
        self.release(direction, out);
        let mut head = std::mem::take(&mut self.head);
        head.most = self.wanted.http.headers;
        head.keep_lines = self.wanted.records && self.wanted.http.lines[direction.index()];
        let fields_at = head.parse(bytes, direction == ToClient);
        if direction == ToServer {
            self.request(&head, bytes.split_at(fields_at), out);
        } else {
            self.response(&head, bytes.split_at(fields_at), out);
        }
        self.head = head;
    }

    /// What comes is no message: more of the body of the one before, which is decided anew.
    fn extend(&mut self, direction: Direction, out: &mut Transactions) {
        let half = &mut self.halves[direction.index()];
        half.id = half.last.take();
        half.state = State::Extra;
        if let Some(t) = half.id.and_then(|id| out.find(id)) {
            t.reopen(direction);
        }
        if direction == ToServer
            && let Some(t) = half.id.and_then(|id| out.find(id))
        {
            t.event("request_body_unexpected");
        }
    }

    /// Nothing more of the message before will come.
    fn release(&mut self, direction: Direction, out: &mut Transactions) {
        let last = self.halves[direction.index()].last.take();
        if let Some(t) = last.and_then(|id| out.find(id)) {
            t.kept[direction.index()] = false;
        }
    }

    /// Looks for a line that begins a message. Other bytes are dropped, or more of a body.
    fn junk<'a>(
        &mut self,
        direction: Direction,
        input: &'a [u8],
        out: &mut Transactions,
    ) -> &'a [u8] {
        let extra = self.halves[direction.index()].state == State::Extra;
        let mut rest = input;
        while !rest.is_empty() {
            let half = &mut self.halves[direction.index()];
            // `carry` holds the beginning of a line while it may become a first line; in the middle of other lines, one NUL.
            if half.carry.as_slice() != [0] {
                while let Some((&byte, after)) = rest.split_first() {
                    half.carry.push(byte);
                    rest = after;
                    match starts_message(direction, &half.carry) {
                        Some(true) => {
                            if extra {
                                let begun =
                                    std::mem::take(&mut self.halves[direction.index()].carry);
                                self.finish_body(direction, true, out);
                                self.complete(direction, out);
                                self.release(direction, out);
                                self.halves[direction.index()].carry = begun;
                            }
                            let half = &mut self.halves[direction.index()];
                            half.state = State::Head;
                            half.search = Search::default();
                            return rest;
                        }
                        Some(false) => break,
                        None => {}
                    }
                }
                if starts_message(direction, &half.carry).is_none() {
                    return &[];
                }
                let line = std::mem::take(&mut half.carry);
                if line.last() != Some(&b'\n') {
                    half.carry.push(0);
                }
                if extra {
                    self.body(direction, &line, out);
                }
                continue;
            }
            let newline = memchr::memchr(b'\n', rest);
            let (line, after) = rest.split_at(newline.map_or(rest.len(), |n| n + 1));
            if newline.is_some() {
                half.carry.clear();
            }
            if extra {
                self.body(direction, line, out);
            }
            rest = after;
        }
        rest
    }

    /// Begins the frame of a message whose head is whole, if somebody asks for it.
    fn frame(&mut self, (buffer, d): (Buffer, Direction), head: [&[u8]; 2], t: &mut Transaction) {
        let half = &mut self.halves[d.index()];
        half.frame = None;
        if self.wanted.buffers.has(buffer) {
            let frame = t.begin_frame((buffer, d), Some(half.behind));
            for bytes in head {
                t.append_to(frame, bytes, MOST_FRAME);
            }
            half.frame = Some(frame);
        }
    }

    /// Bytes of a body without their transfer encoding.
    fn body(&mut self, direction: Direction, bytes: &[u8], out: &mut Transactions) {
        let half = &mut self.halves[direction.index()];
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

    /// A message is over: the next one begins. A short one is kept, as what follows may be more of it.
    fn complete(&mut self, direction: Direction, out: &mut Transactions) {
        let half = &mut self.halves[direction.index()];
        half.state = State::Head;
        half.last = None;
        half.frame = None;
        let id = half.id.take();
        if let Some(t) = id.and_then(|id| out.find(id)) {
            t.finish_side(direction);
            if half.body.may_grow(MOST_KEPT) {
                t.kept[direction.index()] = true;
                half.last = id;
            }
        }
        if half.last.is_none() {
            half.body = Body::default();
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
/// `None`: that is not to be seen yet.
fn is_short(direction: Direction, bytes: &[u8]) -> Option<bool> {
    if direction == ToServer {
        let Some((line, end)) = Search::first_line(bytes, false) else {
            return Some(false);
        };
        if line.is_empty() || !RequestLine::of(line).protocol.is_empty() {
            return Some(false);
        }
        // The version may only have been left out: then header lines follow, of which the first ones may be none.
        let mut begun = end;
        for (at, byte) in bytes.iter().enumerate().skip(end) {
            match byte {
                b':' => return Some(at == begun),
                b'\r' => {}
                b'\n' => {
                    let line = bytes[begun..at].trim_ascii();
                    let word = line.iter().position(u8::is_ascii_whitespace);
                    let word = &line[..word.unwrap_or(line.len())];
                    if line.is_empty() || probe::is_method(word) {
                        return Some(true);
                    }
                    begun = at + 1;
                }
                _ if at - end > 256 => return Some(true),
                _ => {}
            }
        }
        return None;
    }
    // Form feeds, vertical tabs and NULs in front of the version are passed over.
    let mut word = bytes
        .iter()
        .take(MOST_BEFORE)
        .filter(|b| **b != 0)
        .skip_while(|b| b.is_ascii_whitespace());
    for expected in b"HTTP" {
        match word.next() {
            Some(byte) if byte.eq_ignore_ascii_case(expected) => {}
            Some(_) => return Some(true),
            // Deciding now would make the result depend on where the sender cuts its stream.
            None if bytes.len() < MOST_BEFORE => return None,
            None => return Some(true),
        }
    }
    Some(false)
}

/// The longest line, and the most white space, before an answer that is passed over.
const MOST_BEFORE: usize = 256;

/// The length of a line that stands before the first answer and is no part of it, which clients pass over; `None`: that is not to be seen yet.
fn line_before_head(bytes: &[u8]) -> Option<usize> {
    let begins = |b: &[u8]| {
        let n = b.len().min(5);
        b[..n].eq_ignore_ascii_case(&b"HTTP/"[..n])
    };
    if begins(bytes) {
        return Some(0);
    }
    let Some(end) = memchr::memchr(b'\n', &bytes[..bytes.len().min(MOST_BEFORE)]) else {
        return (bytes.len() >= MOST_BEFORE).then_some(0);
    };
    let next = &bytes[end + 1..];
    match begins(next) {
        true if next.len() < 5 => None,
        true => Some(end + 1),
        false => Some(0),
    }
}

/// Whether what follows a message is another one, rather than more of its body; `None`: that is not to be seen yet.
fn begins(direction: Direction, bytes: &[u8]) -> Option<bool> {
    if direction == ToClient {
        let n = bytes.len().min(4);
        if !bytes[..n].eq_ignore_ascii_case(&b"HTTP"[..n]) {
            return Some(false);
        }
        return (n == 4).then_some(true);
    }
    let bytes = bytes.trim_ascii_start();
    let end = bytes.iter().position(u8::is_ascii_whitespace);
    let method = &bytes[..end.unwrap_or(bytes.len())];
    if end.is_some() && probe::is_method(method) {
        return Some(true);
    }
    // A method that nobody knows is one if the line has a version.
    match Search::first_line(bytes, false) {
        Some((line, _)) => Some(!RequestLine::of(line).protocol.is_empty()),
        None => (bytes.len() > MOST_DOUBT).then_some(false),
    }
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
        Some(at) => Some(probe::is_method(&line[..at])),
        None if line.len() > 20 || !line.iter().all(u8::is_ascii_uppercase) => Some(false),
        None => None,
    }
}

#[cfg(test)]
mod evasions;
#[cfg(test)]
mod tests;
