//! SIP (RFC 3261): each request and each response is one transaction. Its first line and the header fields that rules name are read; what a message carries is passed over.
//!
//! Either end may send requests, so a message is what its first line says, not what its direction says. Of a stream a message is known when its head has come.

use super::lines::trimmed;
use super::names::App;
use super::probe::{Certainty, First, Look, StreamProbe};
use super::protocol::{Carrier, Log, Parser, Protocol};
use super::sdp;
use super::text::text;
use super::transaction::{Kind, Transaction, Transactions, Turns};
use super::wanted::Wanted;
use crate::buffer::Buffer;
use crate::packet::Direction;

pub(super) const SIP: Protocol = Protocol {
    app: App::Sip,
    carrier: Carrier::Both,
    stream: Some(StreamProbe::new(Certainty::Word, |first| {
        match (first.line(), first.is_server()) {
            (None, _) => Look::No,
            (Some(_), true) => first.begins_with(&[ANSWER]),
            (Some(_), false) => first.begins_with(METHODS),
        }
    })),
    datagram: Some(is_datagram),
    parser: Some(|start| Box::new(Sip::new(start.stream, start.asked))),
    kind: Some(&KIND),
    log: Log {
        numbered: false,
        direction: |t, _| match t.facts(FROM_SERVER).next() {
            Some(_) => Direction::ToClient,
            None => Direction::ToServer,
        },
        ..Protocol::NONE.log
    },
    ..Protocol::NONE
};

static KIND: Kind = Kind {
    app: App::Sip,
    turns: Turns::Message,
    events: &["incomplete_data", "invalid_data"],
    ..Kind::EXCHANGE
};

/// The fact that the server sent a message: on TCP the packet that its record comes with goes the other way.
const FROM_SERVER: &str = "sip.from_server";

/// What responses begin with.
const ANSWER: &[u8] = b"SIP/2.0 ";

/// Methods that streams begin with.
const METHODS: &[&[u8]] = &[
    b"INVITE sip",
    b"REGISTER sip",
    b"OPTIONS sip",
    b"NOTIFY sip",
    b"SUBSCRIBE sip",
];

/// Methods that only datagrams are known by.
const RARE_METHODS: &[&[u8]] = &[b"ACK sip", b"BYE sip", b"CANCEL sip", b"MESSAGE sip"];

/// Bytes of a head in a stream; of one that is longer nothing is read, nor of what follows it.
const MOST_HEAD: usize = 16 * 1024;
/// Bytes of a body that are waited for in streams if rules ask for it.
const MOST_BODY: u64 = 64 * 1024;
/// Header fields of one message that are looked at.
const MOST_FIELDS: usize = 256;

fn is_datagram(first: &First<'_>) -> bool {
    let mut methods = METHODS.iter().chain(RARE_METHODS);
    first.bytes.starts_with(ANSWER) || methods.any(|m| first.bytes.starts_with(m))
}

/// The header fields that rules name (RFC 3261, 20): their names, their compact forms, their buffers.
const FIELDS: &[(&[u8], &[u8], Buffer)] = &[
    (b"from", b"f", Buffer::SipFrom),
    (b"to", b"t", Buffer::SipTo),
    (b"via", b"v", Buffer::SipVia),
    (b"user-agent", b"", Buffer::SipUserAgent),
    (b"content-type", b"c", Buffer::SipContentType),
    (b"content-length", b"l", Buffer::SipContentLength),
];

/// The first line of a message, without its end.
enum FirstLine<'a> {
    Request {
        method: &'a [u8],
        uri: &'a [u8],
        version: &'a [u8],
    },
    Response {
        version: &'a [u8],
        code: &'a [u8],
        reason: &'a [u8],
    },
}

/// Two parts of a line around its first space.
fn word(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = memchr::memchr(b' ', line)?;
    Some((line.get(..at)?, line.get(at + 1..)?))
}

/// `SIP/2.0`, in either case (RFC 3261, 7.1).
fn is_version(word: &[u8]) -> bool {
    let number = word.get(4..).unwrap_or_default();
    word.len() > 4
        && word
            .iter()
            .zip(b"SIP/")
            .all(|(a, b)| a.eq_ignore_ascii_case(b))
        && number.iter().all(|b| b.is_ascii_digit() || *b == b'.')
}

fn first_line(line: &[u8]) -> Option<FirstLine<'_>> {
    let (first, rest) = word(line)?;
    if is_version(first) {
        // The reason may be empty, and its space is then often left out.
        let (code, reason) = word(rest).unwrap_or((rest, &[]));
        let is_code = code.len() == 3 && code.iter().all(u8::is_ascii_digit);
        return is_code.then_some(FirstLine::Response {
            version: first,
            code,
            reason,
        });
    }
    let is_token = |b: &u8| b.is_ascii_alphanumeric() || b"-.!%*_+`'~".contains(b);
    let (uri, version) = word(rest)?;
    let right = !first.is_empty() && first.iter().all(is_token) && !uri.is_empty();
    (right && is_version(version)).then_some(FirstLine::Request {
        method: first,
        uri,
        version,
    })
}

/// Where the head ends and the body begins: behind the first empty line.
fn end_of_head(bytes: &[u8]) -> Option<usize> {
    memchr::memchr_iter(b'\n', bytes).find_map(|at| match bytes.get(at + 1..)? {
        [b'\n', ..] => Some(at + 2),
        [b'\r', b'\n', ..] => Some(at + 3),
        _ => None,
    })
}

/// A head: its first line, its header fields.
struct Head<'a> {
    line: &'a [u8],
    said: FirstLine<'a>,
    fields: Vec<(Buffer, Vec<u8>)>,
    /// How long the message says that its body is.
    length: Option<u64>,
}

impl Head<'_> {
    /// Whether the body describes a session (SDP).
    fn describes(&self) -> bool {
        let mut kinds = (self.fields.iter()).filter(|f| f.0 == Buffer::SipContentType);
        kinds.next().is_some_and(|(_, kind)| {
            let end = memchr::memchr(b';', kind).unwrap_or(kind.len());
            let kind = kind.get(..end).unwrap_or_default().trim_ascii();
            kind.eq_ignore_ascii_case(b"application/sdp")
        })
    }
}

fn read(head: &[u8]) -> Option<Head<'_>> {
    let mut lines = head.split(|b| *b == b'\n').map(trimmed);
    let line = lines.next()?;
    let said = first_line(line)?;
    let mut fields: Vec<(Buffer, Vec<u8>)> = Vec::new();
    // Whether a line that is folded goes on with a field that is kept.
    let mut kept = false;
    for line in lines.take_while(|l| !l.is_empty()).take(MOST_FIELDS) {
        if matches!(line.first(), Some(b' ' | b'\t')) {
            if let Some((_, value)) = fields.last_mut().filter(|_| kept) {
                value.push(b' ');
                value.extend_from_slice(line.trim_ascii());
            }
            continue;
        }
        let colon = memchr::memchr(b':', line)?;
        let (name, value) = line.split_at_checked(colon)?;
        let name = name.trim_ascii();
        let is = |f: &&(&[u8], &[u8], Buffer)| {
            name.eq_ignore_ascii_case(f.0) || !f.1.is_empty() && name.eq_ignore_ascii_case(f.1)
        };
        let known = FIELDS.iter().find(is);
        kept = known.is_some();
        if let Some((.., buffer)) = known {
            let value = value.strip_prefix(b":").unwrap_or(value).trim_ascii();
            fields.push((*buffer, value.to_vec()));
        }
    }
    let mut lengths = fields.iter().filter(|f| f.0 == Buffer::SipContentLength);
    let length = lengths.next().map(|f| number(&f.1));
    Some(Head {
        line,
        said,
        fields,
        length: length.flatten(),
    })
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[derive(Default)]
struct Side {
    /// A head that is not whole.
    carry: Vec<u8>,
    /// Bytes of a body that are still to come.
    skip: u64,
}

pub(super) struct Sip {
    stream: bool,
    wanted: Wanted,
    sides: [Side; 2],
    /// Time of the last bytes.
    time: u64,
}

impl Sip {
    pub(super) fn new(stream: bool, wanted: &Wanted) -> Sip {
        Sip {
            stream,
            wanted: *wanted,
            sides: [Side::default(), Side::default()],
            time: 0,
        }
    }

    /// A message whose head is whole; returns the length of its body, as it says, or `None` if it is no message.
    fn message(
        &self,
        d: Direction,
        (head, body): (&[u8], &[u8]),
        time: u64,
        out: &mut Transactions,
    ) -> Option<u64> {
        let t = begin(d, time, out);
        let read = read(head);
        match &read {
            Some(read) => {
                self.note(t, d, read);
                if read.describes() {
                    sdp::note(t, d, body, &self.wanted);
                }
                self.frames(t, d, (head, body));
            }
            None => t.event("invalid_data"),
        }
        t.finish();
        read.map(|read| read.length.unwrap_or(0))
    }

    /// Whether rules, or records, ask for the body behind a head.
    fn asks_body(&self, head: &Head<'_>) -> bool {
        self.asks_bodies() || head.describes() && sdp::is_wanted(&self.wanted)
    }

    /// Whether rules ask for all bodies.
    fn asks_bodies(&self) -> bool {
        let bodies = [
            Buffer::FrameSipPdu,
            Buffer::FrameSipRequestBody,
            Buffer::FrameSipResponseBody,
        ];
        bodies.iter().any(|b| self.wanted.buffers.has(*b))
    }

    /// A body that was waited for will not be whole: its message is told with what there is.
    fn end_wait(&mut self, d: Direction, out: &mut Transactions) {
        let side = std::mem::take(d.of_mut(&mut self.sides));
        let bytes = side.carry.as_slice();
        let end = end_of_head(bytes).filter(|_| self.stream);
        let asked = |end: &usize| {
            let head = bytes.get(..*end).and_then(read);
            head.is_some_and(|head| self.asks_body(&head))
        };
        let Some(end) = end.filter(asked) else {
            *d.of_mut(&mut self.sides) = side;
            return;
        };
        let (head, body) = bytes.split_at_checked(end).unwrap_or((bytes, &[]));
        let length = self.message(d, (head, body), self.time, out);
        d.of_mut(&mut self.sides).skip = length.unwrap_or(0).saturating_sub(body.len() as u64);
    }

    /// Parts of a message as sent.
    fn frames(&self, t: &mut Transaction, d: Direction, (head, body): (&[u8], &[u8])) {
        let at = memchr::memchr(b'\n', head).map_or(head.len(), |end| end + 1);
        let (line, fields) = head.split_at_checked(at).unwrap_or((head, &[]));
        let fields = fields.strip_suffix(b"\n").unwrap_or(fields);
        let fields = fields.strip_suffix(b"\r").unwrap_or(fields);
        let names = match d {
            Direction::ToServer => [
                Buffer::FrameSipRequestLine,
                Buffer::FrameSipRequestHeaders,
                Buffer::FrameSipRequestBody,
            ],
            Direction::ToClient => [
                Buffer::FrameSipResponseLine,
                Buffer::FrameSipResponseHeaders,
                Buffer::FrameSipResponseBody,
            ],
        };
        if self.wanted.buffers.has(Buffer::FrameSipPdu) {
            let whole = [head, body].concat();
            t.frame((Buffer::FrameSipPdu, d), &whole, None);
        }
        for (buffer, bytes) in names.into_iter().zip([line, fields, body]) {
            if self.wanted.buffers.has(buffer) && !bytes.is_empty() {
                t.frame((buffer, d), bytes, None);
            }
        }
    }

    /// What rules and the log are told of a message.
    fn note(&self, t: &mut Transaction, d: Direction, read: &Head<'_>) {
        let (buffers, record): (Vec<_>, Vec<_>) = match read.said {
            FirstLine::Request {
                method,
                uri,
                version,
            } => (
                vec![
                    (Buffer::SipMethod, method),
                    (Buffer::SipUri, uri),
                    (Buffer::SipProtocol, version),
                    (Buffer::SipRequestLine, read.line),
                ],
                vec![
                    ("method", method),
                    ("uri", uri),
                    ("version", version),
                    ("request_line", read.line),
                ],
            ),
            FirstLine::Response {
                version,
                code,
                reason,
            } => (
                vec![
                    (Buffer::SipProtocol, version),
                    (Buffer::SipStatusCode, code),
                    (Buffer::SipStatusMessage, reason),
                    (Buffer::SipResponseLine, read.line),
                ],
                vec![
                    ("version", version),
                    ("code", code),
                    ("reason", reason),
                    ("response_line", read.line),
                ],
            ),
        };
        let fields = read.fields.iter().map(|(b, value)| (*b, value.as_slice()));
        for (buffer, bytes) in buffers.into_iter().chain(fields) {
            if self.wanted.buffers.has(buffer) {
                t.push(buffer, d, bytes);
            }
        }
        if self.wanted.records {
            for (key, value) in record {
                t.record.insert(key.into(), text(value));
            }
        }
    }

    /// An event of a message that could not be read.
    fn broken(d: Direction, event: &'static str, time: u64, out: &mut Transactions) {
        let t = begin(d, time, out);
        t.event(event);
        t.finish();
    }

    fn streamed(&mut self, d: Direction, bytes: &[u8], time: u64, out: &mut Transactions) {
        let mut side = std::mem::take(d.of_mut(&mut self.sides));
        let passed = bytes
            .len()
            .min(usize::try_from(side.skip).unwrap_or(usize::MAX));
        side.skip -= passed as u64;
        side.carry
            .extend_from_slice(bytes.get(passed..).unwrap_or_default());
        let mut rest = side.carry.as_slice();
        while side.skip == 0 {
            // Empty lines between messages keep connections alive (RFC 5626, 3.5.1).
            while let [b'\r' | b'\n', after @ ..] = rest {
                rest = after;
            }
            let Some(end) = end_of_head(rest.get(..MOST_HEAD).unwrap_or(rest)) else {
                if rest.len() > MOST_HEAD {
                    Self::broken(d, "incomplete_data", time, out);
                    out.failed = true;
                    return;
                }
                break;
            };
            let (head, behind) = rest.split_at_checked(end).unwrap_or((rest, &[]));
            let mut body = &[][..];
            if let Some(head) = read(head)
                && self.asks_body(&head)
                && let Some(length) = head.length
                && length <= MOST_BODY
            {
                match behind.get(..length as usize) {
                    Some(whole) => body = whole,
                    None => break,
                }
            }
            let Some(length) = self.message(d, (head, body), time, out) else {
                // Where the next message begins is unknown.
                out.failed = true;
                return;
            };
            rest = rest.get(end..).unwrap_or_default();
            let there = rest
                .len()
                .min(usize::try_from(length).unwrap_or(usize::MAX));
            side.skip = length - there as u64;
            rest = rest.get(there..).unwrap_or_default();
        }
        let done = side.carry.len() - rest.len();
        side.carry.drain(..done);
        if side.carry.is_empty() {
            side.carry = Vec::new();
        }
        *d.of_mut(&mut self.sides) = side;
    }
}

fn begin(d: Direction, time: u64, out: &mut Transactions) -> &mut Transaction {
    let t = out.begin(&KIND, time);
    t.only(d);
    if d == Direction::ToClient {
        t.facts.push((FROM_SERVER, 1));
    }
    t
}

impl Parser for Sip {
    fn data(&mut self, d: Direction, bytes: &[u8], time: u64, out: &mut Transactions) {
        self.time = time;
        if self.stream {
            return self.streamed(d, bytes, time, out);
        }
        // Datagrams of nothing but line ends keep a path through NAT open.
        if bytes.iter().all(|b| matches!(b, b'\r' | b'\n' | 0)) {
            return;
        }
        match end_of_head(bytes) {
            Some(end) => {
                let parts = bytes.split_at_checked(end).unwrap_or((bytes, &[]));
                self.message(d, parts, time, out);
            }
            // A line that is no first line will not become one.
            None if memchr::memchr(b'\n', bytes).is_some_and(|end| {
                first_line(trimmed(bytes.get(..end).unwrap_or_default())).is_none()
            }) =>
            {
                Self::broken(d, "invalid_data", time, out);
            }
            None => Self::broken(d, "incomplete_data", time, out),
        }
    }

    fn gap(&mut self, d: Direction, length: u64, out: &mut Transactions) {
        self.end_wait(d, out);
        let side = d.of_mut(&mut self.sides);
        // Of a body nothing is read; where a head was lost, the next one is not found.
        match side.skip.checked_sub(length) {
            Some(left) => side.skip = left,
            None => out.failed = true,
        }
    }

    fn end(&mut self, d: Direction, out: &mut Transactions) {
        self.end_wait(d, out);
    }

    fn memory(&self) -> usize {
        size_of::<Sip>() + self.sides.iter().map(|s| s.carry.capacity()).sum::<usize>()
    }

    fn is_between(&self, d: Direction) -> bool {
        let side = d.of(&self.sides);
        side.carry.is_empty() && side.skip == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::probe::Ports;
    use crate::app::tests::{converse_all, wanted};
    use crate::packet::Direction::{ToClient, ToServer};

    const PORTS: Ports = Ports {
        client: 40_000,
        server: 5060,
    };

    const INVITE: &[u8] = b"INVITE sip:bob@b.example SIP/2.0\r\nv: SIP/2.0/TCP a.example\r\nVia:SIP/2.0/TCP p.example\r\nFrom: \"A\"\r\n <sip:a@a.example>\r\nt: <sip:bob@b.example>\r\nUser-Agent : phone\r\nc: application/sdp\r\nl: 5\r\n\r\nv=0\r\n";
    const TRYING: &[u8] =
        b"\r\n\r\nSIP/2.0 100 Trying\r\nContent-Length: 0\r\n\r\nSIP/2.0 200 \r\n\r\n";

    fn said(t: &Transaction, buffer: Buffer, d: Direction) -> Vec<String> {
        let bytes = t.get(buffer, d);
        bytes.map(|b| String::from_utf8_lossy(b).into()).collect()
    }

    #[test]
    fn messages_of_a_stream() {
        let bye = &b"BYE sip:a@a.example SIP/2.0\r\nContent-Length: x\r\n\r\n"[..];
        let c = converse_all(
            &[(ToServer, INVITE), (ToClient, TRYING), (ToClient, bye)],
            PORTS,
        );
        assert_eq!(c.app(), App::Sip);
        let t: Vec<_> = c.transactions.live.iter().collect();
        assert_eq!(t.len(), 4);
        assert_eq!(said(t[0], Buffer::SipMethod, ToServer), ["INVITE"]);
        assert_eq!(said(t[0], Buffer::SipUri, ToServer), ["sip:bob@b.example"]);
        let via = said(t[0], Buffer::SipVia, ToServer);
        assert_eq!(via, ["SIP/2.0/TCP a.example", "SIP/2.0/TCP p.example"]);
        let from = said(t[0], Buffer::SipFrom, ToServer);
        assert_eq!(from, ["\"A\" <sip:a@a.example>"]);
        assert_eq!(said(t[0], Buffer::SipUserAgent, ToServer), ["phone"]);
        assert_eq!(said(t[0], Buffer::SipContentLength, ToServer), ["5"]);
        assert_eq!(t[0].record["method"], "INVITE");
        assert_eq!(t[0].record["version"], "SIP/2.0");
        assert_eq!(t[1].record["reason"], "Trying");
        assert_eq!(said(t[1], Buffer::SipStatusCode, ToClient), ["100"]);
        assert_eq!(t[2].record["response_line"], "SIP/2.0 200 ");
        // Servers ask, too.
        assert_eq!(said(t[3], Buffer::SipMethod, ToClient), ["BYE"]);
        assert!(t.iter().all(|t| t.done && t.events.is_empty()));
    }

    #[test]
    fn a_lost_body_is_no_loss() {
        let mut out = Transactions::default();
        let mut sip = Sip::new(true, &wanted());
        let head = b"INVITE sip:b@b SIP/2.0\r\nContent-Length: 10\r\n\r\n123";
        sip.data(ToServer, head, 1, &mut out);
        sip.gap(ToServer, 7, &mut out);
        sip.data(ToServer, b"ACK sip:b@b SIP/2.0\r\n\r\n", 2, &mut out);
        assert_eq!(out.live[1].record["method"], "ACK");
        sip.gap(ToServer, 1, &mut out);
        assert!(out.failed);
    }

    #[test]
    fn what_is_no_message_is_an_event() {
        let events = |bytes: &[u8]| {
            let mut out = Transactions::default();
            Sip::new(false, &wanted()).data(ToServer, bytes, 1, &mut out);
            out.live.iter().flat_map(|t| t.events.clone()).collect()
        };
        let none: [&str; 0] = [];
        let of = |bytes: &[u8]| -> Vec<&'static str> { events(bytes) };
        assert_eq!(of(b"\r\n\r\n"), none);
        assert_eq!(of(INVITE), none);
        assert_eq!(of(b"INVITE sip:b@b SIP/2.0\r\nTo: b"), ["incomplete_data"]);
        assert_eq!(of(b"INVITE sip:b@b\r\nTo: b"), ["invalid_data"]);
        assert_eq!(of(b"SIP/2.0 1000 No\r\n\r\n"), ["invalid_data"]);
        assert_eq!(
            of(b"ACK sip:b@b SIP/2.0\r\nno colon\r\n\r\n"),
            ["invalid_data"]
        );
    }

    #[test]
    fn memory_has_a_bound() {
        let mut out = Transactions::default();
        let mut sip = Sip::new(true, &wanted());
        sip.data(ToServer, b"INVITE sip:b@b SIP/2.0\r\n", 1, &mut out);
        let mut most = 0;
        while !out.failed {
            sip.data(ToServer, b"Subject: the same again\r\n", 1, &mut out);
            most = most.max(sip.memory());
        }
        assert!(most < 4 * MOST_HEAD, "{most}");
        assert_eq!(out.live[0].events, ["incomplete_data"]);
    }
}
