//! HTTP/2 (RFC 9113): the frames of a connection, put together to messages. A stream is a transaction, and so is each frame about the connection itself.
//!
//! Each direction is a small state machine over its bytes; what it keeps of a frame is at most [`MOST_FRAME`]. Contents of DATA are not kept: they go where bodies of HTTP/1 go. Nothing
//! depends on how the bytes were cut into segments.

mod dns;
mod frame;
mod framed;
mod hpack;
mod huffman;
mod message;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

use self::frame::Head as Frame;
use self::framed::Sample;
use self::hpack::{Item, Table};
use self::message::{Message, Stream};
use super::bytes::{be16, be32, split_most};
use super::http::body::Body;
use super::http::head::Head;
use super::http::probe;
use super::names::App;
use super::probe::{Certainty, StreamProbe};
use super::protocol::{Fact, Log, Parser, Protocol, Written};
use super::transaction::{Kind, Transaction, Transactions, Upgrade};
use super::wanted::Asked;
use crate::packet::Direction;
use crate::packet::Direction::{ToClient, ToServer};

/// Bytes of a frame, or of the fields of a message over several frames, that are put together.
const MOST_FRAME: usize = 100 * 1024;
/// Streams of a connection that are open at a time; beyond it the oldest is decided as it is.
const MOST_STREAMS: usize = 256;

/// Streams that one end has given up and whose other direction is waited for.
const MOST_GIVEN_UP: usize = 16;

pub(super) const HTTP2: Protocol = Protocol {
    app: App::Http2,
    aliases: &["http"],
    stream: Some(StreamProbe::new(Certainty::Sure, probe::http2)),
    client_first: true,
    parser: Some(|start| Box::new(Http2::new(start.asked, start.upgraded))),
    kind: Some(&KIND),
    facts: &[
        Fact {
            keyword: "http2.frametype",
            written: Written::Number(frame::KINDS),
            what: "type of a frame of a direction",
            ..Fact::NONE
        },
        Fact {
            keyword: "http2.errorcode",
            written: Written::Number(frame::ERRORS),
            what: "error that ends a stream or the connection",
            ..Fact::NONE
        },
        Fact {
            keyword: "http2.priority",
            written: Written::Number(&[]),
            what: "weight of a stream, as sent: one less than it is",
            ..Fact::NONE
        },
        Fact {
            keyword: "http2.window",
            written: Written::Number(&[]),
            what: "bytes that a WINDOW_UPDATE allows",
            ..Fact::NONE
        },
        Fact {
            keyword: "http2.size_update",
            written: Written::Number(&[]),
            what: "size that HPACK gives its table",
            ..Fact::NONE
        },
        Fact {
            keyword: "http2.settings",
            written: Written::Keyed(frame::SETTING_NAMES),
            what: "a setting, and its value",
            ..Fact::NONE
        },
    ],
    files: true,
    log: LOG,
    ..Protocol::NONE
};

/// DNS in HTTP/2 (RFC 8484): a connection of HTTP/2 is it from its first message of DNS on.
pub(super) const DOH2: Protocol = Protocol {
    app: App::Doh2,
    client_first: true,
    parser: Some(|start| Box::new(Http2::new(start.asked, start.upgraded))),
    kind: Some(&DOH_KIND),
    files: true,
    log: Log {
        chosen: Some("doh2"),
        ..LOG
    },
    ..Protocol::NONE
};

const LOG: Log = Log {
    name: Some("http"),
    chosen: Some("http2"),
    in_order: false,
    ..Protocol::NONE.log
};

static KIND: Kind = Kind {
    app: App::Http2,
    ..COMMON
};

static DOH_KIND: Kind = Kind {
    app: App::Doh2,
    ..COMMON
};

const COMMON: Kind = Kind {
    events: EVENTS,
    may_lack: |t, direction| direction == ToServer || t.answered,
    answered: |t| t.answered,
    ..Kind::EXCHANGE
};

const EVENTS: &[&str] = &[
    "abnormal_ce_header",
    "authority_host_mismatch",
    "compression_bomb",
    "dns_message_invalid",
    "dns_request_too_long",
    "dns_response_too_long",
    "extra_header_data",
    "failed_decompression",
    "file_name_too_long",
    "header_integer_overflow",
    "invalid_client_magic",
    "invalid_frame_data",
    "invalid_frame_header",
    "invalid_frame_length",
    "invalid_header",
    "invalid_http1_settings",
    "invalid_range",
    "long_frame_data",
    "lzma_memlimit_reached",
    "multipart_invalid_header",
    "multipart_no_filedata",
    "reassembly_limit_reached",
    "stream_id_reuse",
    "too_many_encoding_layers",
    "too_many_streams",
    "userinfo_in_uri",
];

/// A parser of one connection.
struct Http2 {
    wanted: Asked,
    halves: [Half; 2],
    /// Those that are open, the oldest first.
    streams: Vec<Stream>,
    /// The last stream that each end has begun.
    newest: [u32; 2],
    /// A message of DNS was seen.
    doh: bool,
    /// The request of HTTP/1 that the connection was before, until it is taken up.
    upgraded: Option<Box<Upgrade>>,
    head: Head,
    scratch: [Vec<u8>; 2],
}

struct Half {
    state: State,
    carry: Vec<u8>,
    table: Table,
    /// Fields that are not whole.
    block: Option<Block>,
    time: u64,
    /// The head of the frame in progress as it was sent.
    sent: [u8; frame::HEAD],
    /// The beginning of a frame of a body, if frames are asked for.
    sample: Option<Sample>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before what a client says first.
    Preface,
    /// In the head of a frame.
    Head,
    /// In a frame that is kept until it is whole.
    Frame(Frame),
    /// In a frame with a part of a body: bytes that are left, how many of them are padding (`None`: that is not known yet), and whether it ends its direction.
    Data {
        stream: u32,
        left: u32,
        padding: Option<u32>,
        last: bool,
    },
    /// In a frame whose payload is ignored.
    Skip(u32),
    /// Nothing can be understood any more.
    Lost,
}

/// Fields of a message, of one frame or several.
struct Block {
    stream: u32,
    bytes: Vec<u8>,
    /// It is of a request that the server answers unasked.
    promise: bool,
    /// Nothing follows in its direction.
    last: bool,
    /// Some of it was not kept.
    cut: bool,
}

impl Http2 {
    fn new(wanted: &Asked, upgraded: Option<&Upgrade>) -> Http2 {
        let half = |state| Half {
            state,
            carry: Vec::new(),
            table: Table::new(),
            block: None,
            time: 0,
            sent: [0; frame::HEAD],
            sample: None,
        };
        Http2 {
            wanted: wanted.clone(),
            halves: [half(State::Preface), half(State::Head)],
            streams: Vec::new(),
            newest: [0; 2],
            doh: false,
            upgraded: upgraded.cloned().map(Box::new),
            head: Head::default(),
            scratch: [Vec::new(), Vec::new()],
        }
    }
}

impl Parser for Http2 {
    fn data(&mut self, direction: Direction, bytes: &[u8], time: u64, out: &mut Transactions) {
        direction.of_mut(&mut self.halves).time = time;
        if let Some(upgrade) = self.upgraded.take() {
            self.take_up(&upgrade, time, out);
        }
        let mut input = bytes;
        while !input.is_empty() {
            input = self.step(direction, input, out);
        }
    }

    fn gap(&mut self, direction: Direction, length: u64, out: &mut Transactions) {
        let half = direction.of_mut(&mut self.halves);
        match &mut half.state {
            State::Lost => return,
            // A body goes on after it. Of padding less is left than there was.
            State::Data {
                stream,
                left,
                padding: Some(padding),
                ..
            } if u64::from(left.saturating_sub(*padding)) > length => {
                *left -= length as u32;
                let number = *stream;
                if let Some(stream) = self.streams.iter_mut().find(|s| s.number == number) {
                    let (id, body) = (Some(stream.id), direction.of_mut(&mut stream.bodies));
                    body.lost(direction, length, out, id, &self.wanted);
                }
                return;
            }
            State::Skip(left) if u64::from(*left) > length => {
                *left -= length as u32;
                return;
            }
            // Where the next frame begins is not to be seen, nor what its fields point at.
            _ => half.state = State::Lost,
        }
        self.stop(direction, out);
    }

    fn end(&mut self, direction: Direction, out: &mut Transactions) {
        direction.of_mut(&mut self.halves).state = State::Lost;
        self.stop(direction, out);
    }

    fn memory(&self) -> usize {
        let half = |h: &Half| {
            h.carry.capacity()
                + h.table.memory()
                + h.block.as_ref().map_or(0, |b| b.bytes.capacity())
        };
        let stream = |s: &Stream| {
            let dns = s.dns.iter().flatten().map(Vec::capacity).sum::<usize>();
            let bodies = s.bodies.iter().map(Body::memory).sum::<usize>();
            size_of::<Stream>() + dns + bodies + s.path.capacity()
        };
        size_of::<Http2>()
            + self.head.memory()
            + self.scratch.iter().map(Vec::capacity).sum::<usize>()
            + self.halves.iter().map(half).sum::<usize>()
            + self.streams.iter().map(stream).sum::<usize>()
    }
}

impl Http2 {
    /// Consumes some of the input, and returns what is left.
    fn step<'a>(&mut self, d: Direction, input: &'a [u8], out: &mut Transactions) -> &'a [u8] {
        let half = d.of_mut(&mut self.halves);
        match half.state {
            State::Preface => self.preface(d, input, out),
            State::Head => {
                let (taken, rest) = split_most(input, frame::HEAD - half.carry.len());
                half.carry.extend_from_slice(taken);
                if let Some(sent) = half.carry.first_chunk() {
                    half.sent = *sent;
                    let head = Frame::read(sent);
                    half.carry.clear();
                    self.begin_frame(d, head, out);
                }
                rest
            }
            State::Frame(head) => {
                let length = head.length as usize;
                if half.carry.is_empty()
                    && let Some((payload, rest)) = input.split_at_checked(length)
                {
                    half.state = State::Head;
                    self.frame(d, head, payload, out);
                    return rest;
                }
                let (taken, rest) = split_most(input, length - half.carry.len());
                half.carry.extend_from_slice(taken);
                if half.carry.len() == length {
                    half.state = State::Head;
                    let payload = std::mem::take(&mut half.carry);
                    self.frame(d, head, &payload, out);
                }
                rest
            }
            State::Data {
                stream,
                left,
                padding,
                last,
            } => self.in_data(d, (stream, left, padding, last), input, out),
            State::Skip(left) => {
                let (taken, rest) = split_most(input, left as usize);
                half.state = match left - taken.len() as u32 {
                    0 => State::Head,
                    left => State::Skip(left),
                };
                rest
            }
            State::Lost => &[],
        }
    }

    /// What a client says first. Some send line ends before it, and servers pass over them.
    fn preface<'a>(&mut self, d: Direction, input: &'a [u8], out: &mut Transactions) -> &'a [u8] {
        let half = d.of_mut(&mut self.halves);
        let blank = |b: &u8| matches!(b, b'\r' | b'\n' | b' ' | b'\t');
        let mut rest = input;
        if half.carry.is_empty() {
            let start = rest.iter().position(|b| !blank(b)).unwrap_or(rest.len());
            rest = rest.get(start..).unwrap_or_default();
        }
        let (taken, rest) = split_most(rest, frame::PREFACE.len() - half.carry.len());
        half.carry.extend_from_slice(taken);
        let matched = frame::PREFACE.starts_with(&half.carry);
        if matched && half.carry.len() < frame::PREFACE.len() {
            return rest;
        }
        if matched {
            half.carry.clear();
            half.state = State::Head;
            return rest;
        }
        // The beginning was not seen, or is none.
        if half.carry.len() < frame::HEAD {
            return rest;
        }
        let carry = std::mem::take(&mut half.carry);
        let likely = |head: &[u8; frame::HEAD]| Frame::read(head).is_likely();
        half.state = match carry.first_chunk().is_some_and(likely) {
            true => State::Head,
            false => State::Lost,
        };
        self.trouble(d, "invalid_client_magic", out);
        let mut again = carry.as_slice();
        while !again.is_empty() {
            again = self.step(d, again, out);
        }
        rest
    }

    /// The head of a frame is whole.
    fn begin_frame(&mut self, d: Direction, head: Frame, out: &mut Transactions) {
        let half = d.of_mut(&mut self.halves);
        half.state = match head.length {
            0 => State::Head,
            length => State::Skip(length),
        };
        if !head.is_placed() {
            return self.trouble(d, "invalid_frame_header", out);
        }
        if head.kind == frame::DATA {
            return self.begin_data(d, head, out);
        }
        if head.kind > frame::CONTINUATION {
            // Extensions: ends pass over what they do not know.
            return self.note(d, head, out, |_, _| {});
        }
        if !head.is_measured() {
            return self.note(d, head, out, |t, _| t.event("invalid_frame_length"));
        }
        if head.length as usize > MOST_FRAME {
            self.note(d, head, out, |t, _| t.event("long_frame_data"));
            return;
        }
        if head.length == 0 {
            return self.frame(d, head, &[], out);
        }
        d.of_mut(&mut self.halves).state = State::Frame(head);
    }

    fn begin_data(&mut self, d: Direction, head: Frame, out: &mut Transactions) {
        let padded = head.has(frame::PADDED);
        if padded && head.length == 0 {
            return self.note(d, head, out, |t, _| t.event("invalid_frame_data"));
        }
        self.note(d, head, out, |_, _| {});
        self.begin_sample(d, head, out);
        let last = head.has(frame::END_STREAM);
        if head.length == 0 {
            if last {
                self.close(d, head.stream, true, out);
            }
            return;
        }
        d.of_mut(&mut self.halves).state = State::Data {
            stream: head.stream,
            left: head.length,
            padding: (!padded).then_some(0),
            last,
        };
    }

    fn in_data<'a>(
        &mut self,
        d: Direction,
        (stream, left, padding, last): (u32, u32, Option<u32>, bool),
        input: &'a [u8],
        out: &mut Transactions,
    ) -> &'a [u8] {
        let half = d.of_mut(&mut self.halves);
        let Some(padding) = padding else {
            let Some((first, rest)) = input.split_first() else {
                return input;
            };
            if let Some(sample) = &mut half.sample {
                sample.take(std::slice::from_ref(first));
            }
            let left = left - 1;
            let padding = u32::from(*first);
            half.state = match left {
                0 => State::Head,
                _ => State::Data {
                    stream,
                    left,
                    padding: Some(padding.min(left)),
                    last,
                },
            };
            if padding > left
                && let Some(t) = self.find(stream, out)
            {
                t.event("invalid_frame_data");
            }
            if left == 0 {
                end_sample(d.of_mut(&mut self.halves), d, &self.wanted, out);
            }
            if left == 0 && last {
                self.close(d, stream, true, out);
            }
            return rest;
        };
        let (taken, rest) = split_most(input, left as usize);
        if let Some(sample) = &mut half.sample {
            sample.take(taken);
        }
        let now = left - taken.len() as u32;
        half.state = match now {
            0 => State::Head,
            left => State::Data {
                stream,
                left,
                padding: Some(padding),
                last,
            },
        };
        let contents = left.saturating_sub(padding) as usize;
        let (contents, _) = split_most(taken, contents);
        self.body(d, stream, contents, out);
        if now == 0 {
            end_sample(d.of_mut(&mut self.halves), d, &self.wanted, out);
        }
        if now == 0 && last {
            self.close(d, stream, true, out);
        }
        rest
    }

    /// A frame of a body begins.
    fn begin_sample(&mut self, d: Direction, head: Frame, out: &mut Transactions) {
        if !framed::wants(&self.wanted) {
            return;
        }
        let length = head.length as usize;
        let stream = self.streams.iter().find(|s| s.number == head.stream);
        let half = d.of_mut(&mut self.halves);
        half.sample = stream.map(|s| Sample::new(s.id, half.sent, length));
        if length == 0 {
            end_sample(half, d, &self.wanted, out);
        }
    }

    /// A frame is whole.
    fn frame(&mut self, d: Direction, head: Frame, payload: &[u8], out: &mut Transactions) {
        if !framed::wants(&self.wanted) {
            return self.take(d, head, payload, out);
        }
        let sent = d.of(&self.halves).sent;
        let stream = |h: &Http2| {
            h.streams
                .iter()
                .find(|s| s.number == head.stream)
                .map(|s| s.id)
        };
        // It may end its stream, or begin it. Each frame of the connection is a transaction.
        let (before, count) = (stream(self), out.count);
        self.take(d, head, payload, out);
        let id = match head.stream {
            0 => (out.count > count).then(|| out.count - 1),
            _ => before.or_else(|| stream(self)),
        };
        if let Some(t) = id.and_then(|id| out.find(id)) {
            let bytes = [&sent, payload].concat();
            framed::add(t, d, &bytes, payload.len(), &self.wanted);
        }
    }

    fn take(&mut self, d: Direction, head: Frame, payload: &[u8], out: &mut Transactions) {
        match head.kind {
            frame::HEADERS | frame::PUSH_PROMISE => self.fields(d, head, payload, out),
            frame::CONTINUATION => self.more_fields(d, head, payload, out),
            frame::PRIORITY => self.note(d, head, out, |t, w| {
                if let Some(weight) = payload.get(4) {
                    note_priority(t, d, *weight, w);
                }
            }),
            frame::RST_STREAM => {
                let open = self.streams.iter().any(|s| s.number == head.stream);
                self.note(d, head, out, |t, w| note_error(t, d, be32(payload, 0), w));
                if open {
                    self.reset(d, head.stream, out);
                }
            }
            frame::GOAWAY => self.note(d, head, out, |t, w| note_error(t, d, be32(payload, 4), w)),
            frame::SETTINGS => self.note(d, head, out, |t, w| note_settings(t, d, payload, w)),
            frame::WINDOW_UPDATE => self.note(d, head, out, |t, _| {
                if let Some(bytes) = be32(payload, 0) {
                    t.note("http2.window", d, u64::from(bytes & 0x7fff_ffff));
                }
            }),
            _ => self.note(d, head, out, |_, _| {}),
        }
    }

    /// HEADERS or PUSH_PROMISE.
    fn fields(&mut self, d: Direction, head: Frame, payload: &[u8], out: &mut Transactions) {
        let promise = head.kind == frame::PUSH_PROMISE;
        let mut bytes = payload;
        let mut odd = false;
        if head.has(frame::PADDED) {
            let padding = bytes.first().map_or(0, |p| usize::from(*p));
            bytes = bytes.get(1..).unwrap_or_default();
            odd = padding > bytes.len();
            bytes = split_most(bytes, bytes.len().saturating_sub(padding)).0;
        }
        let mut number = head.stream;
        let mut weight = None;
        if promise {
            odd |= bytes.len() < 4;
            number = be32(bytes, 0).unwrap_or(0) & 0x7fff_ffff;
            bytes = bytes.get(4..).unwrap_or_default();
        } else if head.has(frame::HAS_PRIORITY) {
            odd |= bytes.len() < 5;
            weight = bytes.get(4).copied();
            bytes = bytes.get(5..).unwrap_or_default();
        }
        if promise && number == 0 {
            return self.trouble(d, "invalid_frame_data", out);
        }
        let frame = Frame {
            stream: number,
            ..head
        };
        if d == ToServer || promise {
            self.open(d, number, out);
        }
        self.note(d, frame, out, |t, w| {
            if odd {
                t.event("invalid_frame_data");
            }
            if let Some(weight) = weight {
                note_priority(t, d, weight, w);
            }
        });
        let half = d.of_mut(&mut self.halves);
        half.block = Some(Block {
            stream: number,
            bytes: bytes.to_vec(),
            promise,
            last: !promise && head.has(frame::END_STREAM),
            cut: false,
        });
        if head.has(frame::END_HEADERS) {
            self.block(d, out);
        }
    }

    fn more_fields(&mut self, d: Direction, head: Frame, payload: &[u8], out: &mut Transactions) {
        self.note(d, head, out, |_, _| {});
        let half = d.of_mut(&mut self.halves);
        let Some(block) = (half.block.as_mut()).filter(|b| b.promise || b.stream == head.stream)
        else {
            return self.note(d, head, out, |t, _| t.event("invalid_frame_data"));
        };
        let (taken, left) = split_most(payload, MOST_FRAME - block.bytes.len());
        block.bytes.extend_from_slice(taken);
        let cut = !left.is_empty() && !std::mem::replace(&mut block.cut, true);
        if cut {
            self.note(d, head, out, |t, _| t.event("reassembly_limit_reached"));
        }
        if head.has(frame::END_HEADERS) {
            self.block(d, out);
        }
    }

    /// The fields of a message are whole.
    fn block(&mut self, d: Direction, out: &mut Transactions) {
        let half = d.of_mut(&mut self.halves);
        let Some(block) = half.block.take() else {
            return;
        };
        let mut head = std::mem::take(&mut self.head);
        head.clear(self.wanted.http.headers);
        let mut message = Message::new(self.wanted.records);
        let read = half
            .table
            .read(&block.bytes, |item| message.add(item, &mut head));
        head.finish();
        let wrong = match read {
            Ok(()) => None,
            Err(_) if block.cut => None,
            Err(hpack::Wrong::Field) => Some("invalid_header"),
            Err(hpack::Wrong::Number) => Some("header_integer_overflow"),
            Err(hpack::Wrong::Cut) => Some("extra_header_data"),
            Err(hpack::Wrong::Large) => Some("reassembly_limit_reached"),
        };
        self.message(d, &block, &message, &head, wrong, out);
        self.head = head;
        if block.last {
            self.close(d, block.stream, true, out);
        }
    }

    /// The fields of a message are there.
    fn message(
        &mut self,
        d: Direction,
        block: &Block,
        message: &Message,
        head: &Head,
        wrong: Option<&'static str>,
        out: &mut Transactions,
    ) {
        let stream = self.streams.iter_mut().find(|s| s.number == block.stream);
        let Some(stream) = stream else { return };
        let Some(t) = out.find(stream.id).filter(|t| !t.done) else {
            return;
        };
        if let Some(wrong) = wrong {
            t.event(wrong);
        }
        let how = (d, block.promise, block.last);
        if message.fill(how, stream, t, head, &self.wanted) {
            t.app = App::Doh2;
            (self.doh, out.becomes) = (true, Some(App::Doh2));
        }
        if block.promise {
            // A server promises what has no body.
            self.close(ToServer, block.stream, true, out);
        }
    }

    /// The request of HTTP/1 that a connection was until it changed: the answer comes in stream 1.
    fn take_up(&mut self, upgrade: &Upgrade, time: u64, out: &mut Transactions) {
        self.newest[0] = 1;
        self.begin_stream(1, time, out);
        let mut head = std::mem::take(&mut self.head);
        head.clear(self.wanted.http.headers);
        let mut message = Message::new(self.wanted.records);
        for (name, value) in [
            (&b":method"[..], Some(&upgrade.method)),
            (b":path", Some(&upgrade.target)),
            (b":authority", upgrade.host.as_ref()),
        ] {
            if let Some(value) = value {
                message.add(Item::Field(name, value), &mut head);
            }
        }
        head.finish();
        let block = Block {
            stream: 1,
            bytes: Vec::new(),
            promise: false,
            last: true,
            cut: false,
        };
        if let Some(t) = self.find(1, out) {
            match upgrade.settings() {
                Some(settings) => note_settings(t, ToServer, &settings, &self.wanted),
                None => t.event("invalid_http1_settings"),
            }
        }
        self.message(ToServer, &block, &message, &head, None, out);
        self.close(ToServer, 1, true, out);
        self.head = head;
    }

    /// Notes a frame with its stream, or the connection, and what `more` says of it.
    fn note(
        &mut self,
        d: Direction,
        head: Frame,
        out: &mut Transactions,
        more: impl FnOnce(&mut Transaction, &Asked),
    ) {
        let time = d.of(&self.halves).time;
        let known = self.streams.iter().any(|s| s.number == head.stream);
        let by = usize::from(head.stream.is_multiple_of(2));
        let gone = self.newest.get(by).is_some_and(|n| head.stream <= *n);
        let id = match head.stream {
            0 => self.begin(0, time, out).id,
            // Frames of a stream that is closed may be under way still.
            _ if !known && gone => return,
            number => {
                if !known {
                    self.begin_stream(number, time, out);
                }
                let stream = self.streams.iter().find(|s| s.number == number);
                let Some(stream) = stream else { return };
                stream.id
            }
        };
        let Some(t) = out.find(id) else { return };
        t.note("http2.frametype", d, u64::from(head.kind));
        more(t, &self.wanted);
        if head.stream == 0 {
            self::message::of_connection(t, &self.wanted);
        }
    }

    /// Something is wrong with the connection.
    fn trouble(&mut self, d: Direction, event: &'static str, out: &mut Transactions) {
        let time = d.of(&self.halves).time;
        let t = self.begin(0, time, out);
        t.event(event);
        self::message::of_connection(t, &self.wanted);
    }

    /// A client, or a server with a promise, begins a stream.
    fn open(&mut self, d: Direction, number: u32, out: &mut Transactions) {
        let time = d.of(&self.halves).time;
        let by = usize::from(number.is_multiple_of(2));
        let Some(newest) = self.newest.get_mut(by) else {
            return;
        };
        let again = number <= *newest;
        *newest = number.max(*newest);
        if self.streams.iter().any(|s| s.number == number) {
            return;
        }
        self.begin_stream(number, time, out);
        if again && let Some(t) = self.find(number, out) {
            t.event("stream_id_reuse");
        }
    }

    fn begin_stream(&mut self, number: u32, time: u64, out: &mut Transactions) {
        if self.streams.len() >= MOST_STREAMS {
            let oldest = self.streams.remove(0);
            if let Some(t) = out.find(oldest.id) {
                t.event("too_many_streams");
                t.finish();
            }
        }
        let id = self.begin(number, time, out).id;
        self.streams.push(Stream::new(number, id));
    }

    /// The transaction of a stream, or (0) of a frame about the connection.
    fn begin<'a>(&self, number: u32, time: u64, out: &'a mut Transactions) -> &'a mut Transaction {
        let t = out.begin(&KIND, time);
        if self.doh {
            t.app = App::Doh2;
        }
        // Of the connection only what says something has a record: see `side`.
        if self.wanted.records && number != 0 {
            begin_record(t, number);
        }
        t
    }

    fn find<'a>(&self, number: u32, out: &'a mut Transactions) -> Option<&'a mut Transaction> {
        let stream = self.streams.iter().find(|s| s.number == number)?;
        out.find(stream.id)
    }

    /// A direction of a stream is over.
    fn close(&mut self, d: Direction, number: u32, whole: bool, out: &mut Transactions) {
        let Some(at) = self.streams.iter().position(|s| s.number == number) else {
            return;
        };
        let Some(stream) = self.streams.get_mut(at) else {
            return;
        };
        let over = std::mem::replace(d.of_mut(&mut stream.over), true);
        let Some(t) = out.find(stream.id).filter(|t| !t.done) else {
            self.streams.remove(at);
            return;
        };
        if !over {
            if let Some(message) = d.of_mut(&mut stream.dns).take() {
                self::dns::message(d, &message, whole, t, &self.wanted);
            } else if *d.of(&stream.begun) {
                (d.of_mut(&mut stream.bodies)).end(d, whole, t, &self.wanted);
            }
            *d.of_mut(&mut t.cut) |= !whole;
            t.finish_side(d);
        }
        if stream.over == [true; 2] {
            self.streams.remove(at);
        }
    }

    /// An end gives a stream up. What the other one has sent before it knows is still to come.
    fn reset(&mut self, d: Direction, number: u32, out: &mut Transactions) {
        self.close(d, number, false, out);
        if let Some(stream) = self.streams.iter_mut().find(|s| s.number == number) {
            stream.given_up = true;
        }
        let given_up = || self.streams.iter().filter(|s| s.given_up);
        if given_up().count() > MOST_GIVEN_UP
            && let Some(oldest) = given_up().next().map(|s| s.number)
        {
            for d in [ToServer, ToClient] {
                self.close(d, oldest, false, out);
            }
        }
    }

    /// Nothing more is understood of a direction.
    fn stop(&mut self, d: Direction, out: &mut Transactions) {
        let half = d.of_mut(&mut self.halves);
        (half.carry, half.block) = (Vec::new(), None);
        let open: Vec<u32> = self.streams.iter().map(|s| s.number).collect();
        for number in open {
            self.close(d, number, false, out);
        }
    }

    /// Bytes of a body.
    fn body(&mut self, d: Direction, number: u32, bytes: &[u8], out: &mut Transactions) {
        let Some(stream) = self.streams.iter_mut().find(|s| s.number == number) else {
            return;
        };
        let Some(t) = out.find(stream.id) else {
            return;
        };
        if *d.of(&stream.over) {
            return;
        }
        match d.of_mut(&mut stream.dns) {
            Some(message) => self::dns::more(d, message, bytes, t),
            // DATA before HEADERS belongs to no body.
            None if *d.of(&stream.begun) => {
                let body = d.of_mut(&mut stream.bodies);
                body.data(d, bytes, t, &self.wanted, &mut self.scratch);
            }
            None => t.event("invalid_frame_data"),
        }
    }
}

/// A frame of a body is over. Its frames come behind what its bytes have made: so their order does not depend on how the stream was cut.
fn end_sample(half: &mut Half, d: Direction, w: &Asked, out: &mut Transactions) {
    if let Some(sample) = half.sample.take() {
        sample.finish(d, w, out);
    }
}

fn begin_record(t: &mut Transaction, number: u32) {
    let mut about = Map::new();
    about.insert("stream_id".into(), number.into());
    about.insert("request".into(), Value::Object(Map::new()));
    about.insert("response".into(), Value::Object(Map::new()));
    t.record.insert("version".into(), "2".into());
    t.record.insert("http2".into(), Value::Object(about));
}

/// The part of the record about what one end sent; that of the connection begins with the first one.
fn side<'a>(t: &'a mut Transaction, d: Direction, w: &Asked) -> Option<&'a mut Map<String, Value>> {
    if w.records && t.record.is_empty() {
        begin_record(t, 0);
    }
    let about = t.record.get_mut("http2")?;
    let name = match d {
        ToServer => "request",
        ToClient => "response",
    };
    about.get_mut(name)?.as_object_mut()
}

fn note_priority(t: &mut Transaction, d: Direction, weight: u8, w: &Asked) {
    t.note("http2.priority", d, weight.into());
    if d == ToServer
        && let Some(record) = side(t, d, w)
    {
        record.insert("priority".into(), weight.into());
    }
}

fn note_error(t: &mut Transaction, d: Direction, code: Option<u32>, w: &Asked) {
    let Some(code) = code else { return };
    t.note("http2.errorcode", d, code.into());
    if let Some(record) = side(t, d, w) {
        let name = frame::logged(frame::ERRORS, code.into(), "UNKNOWN");
        record.insert("error_code".into(), name.into());
    }
}

fn note_settings(t: &mut Transaction, d: Direction, payload: &[u8], w: &Asked) {
    let mut list = Vec::new();
    for pair in payload.chunks_exact(6).take(MOST_SETTINGS) {
        let (Some(id), Some(value)) = (be16(pair, 0), be32(pair, 2)) else {
            continue;
        };
        t.note("http2.settings", d, u64::from(id) << 32 | u64::from(value));
        let mut one = Map::new();
        let name = frame::logged(frame::SETTING_NAMES, id.into(), "SETTINGSUNKNOWN");
        one.insert("settings_id".into(), name.into());
        one.insert("settings_value".into(), value.into());
        list.push(Value::Object(one));
    }
    if !list.is_empty()
        && let Some(record) = side(t, d, w)
    {
        record.insert("settings".into(), Value::Array(list));
    }
}

/// Settings of a frame that are looked at: ends use some ten.
const MOST_SETTINGS: usize = 64;
