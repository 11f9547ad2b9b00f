//! SMTP: commands and replies, pipelined or not, the messages with their files, BDAT, and the change to TLS. One transaction a message.

#![expect(
    clippy::indexing_slicing,
    reason = "older than the lint: lengths are compared before; a place that is touched gets a checked access"
)]

use std::collections::VecDeque;

use super::lines::{Greeting, Line, greeting};
use super::mime::Mime;
use super::names::App;
use super::probe::{Certainty, First, Look, StreamProbe};
use super::protocol::{Parser, Protocol};
use super::text::text;
use super::transaction::{Change, Kind, Transaction, Transactions};
use super::wanted::Wanted;
use crate::buffer::Buffer;
use crate::packet::Direction;
use crate::packet::Direction::{ToClient, ToServer};

/// The longest line of a command or a reply; what exceeds it is left out.
const MOST_LINE: usize = 4096;
/// Commands that may wait for a reply.
const MOST_PENDING: usize = 256;
/// Bytes of a mail that its frame keeps.
const MOST_FRAME: usize = 64 * 1024;
/// Recipients of one message that are kept.
const MOST_RECIPIENTS: usize = 256;

pub(super) const SMTP: Protocol = Protocol {
    app: App::Smtp,
    stream: Some(StreamProbe::new(Certainty::Word, stream)),
    parser: Some(|start| Box::new(Smtp::new(start.asked))),
    kind: Some(&KIND),
    loud: true,
    // Messages are cut by their lengths and their dots: nothing stays that is of neither.
    unraised_events: &[
        "bdat_chunk_len_exceeded",
        "failed_protocol_change",
        "unparsable_content",
    ],
    files: true,
    ..Protocol::NONE
};

static KIND: Kind = Kind {
    app: App::Smtp,
    events: &[
        "body_gap",
        "data_command_rejected",
        "duplicate_fields",
        "invalid_bdat",
        "invalid_pipelined_sequence",
        "invalid_reply",
        "max_command_line_len_exceeded",
        "max_reply_line_len_exceeded",
        "mime_invalid_base64",
        "mime_invalid_qp",
        "mime_long_boundary",
        "mime_long_enc_line",
        "mime_long_filename",
        "mime_long_header_name",
        "mime_long_header_value",
        "mime_long_line",
        "mime_too_many_files",
        "no_server_welcome_message",
        "tls_rejected",
        "too_many_recipients",
        "unable_to_match_reply_with_request",
    ],
    // Replies have no buffers, and carry no files.
    may_lack: |_, direction| direction == ToServer,
    ..Kind::EXCHANGE
};

fn stream(first: &First<'_>) -> Look {
    if first.line().is_none() {
        return Look::No;
    }
    if first.is_server() {
        return match greeting(first) {
            Greeting::Smtp => Look::Yes,
            Greeting::Maybe => Look::Maybe,
            Greeting::Ftp | Greeting::No => Look::No,
        };
    }
    first.begins_with(&[b"EHLO ", b"HELO ", b"LHLO ", b"MAIL FROM:"])
}

pub(super) struct Smtp {
    wanted: Wanted,
    lines: [Line; 2],
    mode: Mode,
    /// Commands without a reply, with the transaction that a reply ends.
    pending: VecDeque<(Command, Option<u64>)>,
    id: Option<u64>,
    helo: Vec<u8>,
    recipients: usize,
    mime: Option<Box<Mime>>,
    time: u64,
    greeted: bool,
    /// The body of the frame of the mail, where it is kept.
    frame: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    Data,
    Bdat,
    StartTls,
    Quit,
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Command,
    /// A message until the line with a dot; how much of that line was seen.
    Data {
        seen: bool,
        dot: DotState,
    },
    /// So many bytes of a message more, and whether they are the last.
    Bdat(u64, bool),
}

/// Where in "CRLF . CRLF" the message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DotState {
    Start,
    Inside,
    AfterDot,
    AfterDotCr,
}

impl Smtp {
    pub(super) fn new(wanted: &Wanted) -> Smtp {
        Smtp {
            wanted: *wanted,
            lines: [Line::default(), Line::default()],
            mode: Mode::Command,
            pending: VecDeque::new(),
            id: None,
            helo: Vec::new(),
            recipients: 0,
            mime: None,
            time: 0,
            greeted: false,
            frame: None,
        }
    }

    /// The transaction of the message in progress, begun if there is none.
    fn transaction<'a>(&mut self, out: &'a mut Transactions) -> Option<&'a mut Transaction> {
        if self.id.is_none_or(|id| out.find(id).is_none_or(|t| t.done)) {
            let t = out.begin(&KIND, self.time);
            self.id = Some(t.id);
            self.recipients = 0;
            if !self.helo.is_empty() {
                helo(t, &self.helo, &self.wanted);
            }
        }
        out.find(self.id?)
    }

    fn command(&mut self, line: &[u8], out: &mut Transactions) {
        let w = self.wanted;
        let end = line
            .iter()
            .position(|b| *b == b' ' || *b == b'\t')
            .unwrap_or(line.len());
        let (word, rest) = line.split_at(end);
        let rest = rest.trim_ascii();
        let word = word.to_ascii_uppercase();
        let mut command = Command::Other;
        if !self.greeted
            && self.pending.is_empty()
            && let Some(t) = self.transaction(out)
        {
            t.event("no_server_welcome_message");
        }
        self.check_turn(out);
        match word.as_slice() {
            b"HELO" | b"EHLO" | b"LHLO" => {
                let again = !self.helo.is_empty();
                self.helo = rest.to_vec();
                if let Some(t) = self.transaction(out) {
                    helo(t, rest, &w);
                    if again {
                        t.event("duplicate_fields");
                    }
                }
            }
            b"MAIL" => {
                let Some(address) = after(rest, b"FROM") else {
                    return;
                };
                // A second message of the connection is a transaction of its own.
                let second = self.id.and_then(|id| out.find(id)).is_some_and(|t| {
                    t.complete[0] || t.get(Buffer::SmtpMailFrom, ToServer).next().is_some()
                });
                // One that was never sent named another sender.
                let again =
                    second && (self.id.and_then(|id| out.find(id))).is_some_and(|t| !t.complete[0]);
                if second {
                    self.finish(out);
                    self.id = None;
                }
                if let Some(t) = self.transaction(out) {
                    if again {
                        t.event("duplicate_fields");
                    }
                    if w.buffers.has(Buffer::SmtpMailFrom) {
                        t.push(Buffer::SmtpMailFrom, ToServer, address);
                    }
                    if w.records {
                        t.record.insert("mail_from".into(), text(address));
                    }
                }
            }
            b"RCPT" => {
                let Some(address) = after(rest, b"TO") else {
                    return;
                };
                self.recipients += 1;
                let many = self.recipients > MOST_RECIPIENTS;
                if let Some(t) = self.transaction(out) {
                    if many {
                        t.event("too_many_recipients");
                    } else {
                        if w.buffers.has(Buffer::SmtpRcptTo) {
                            t.push(Buffer::SmtpRcptTo, ToServer, address);
                        }
                        if w.records {
                            let list = t
                                .record
                                .entry("rcpt_to")
                                .or_insert_with(|| Vec::<serde_json::Value>::new().into());
                            if let serde_json::Value::Array(list) = list {
                                list.push(text(address));
                            }
                        }
                    }
                }
            }
            b"DATA" => {
                command = Command::Data;
                self.transaction(out);
                self.mime.get_or_insert_default();
                self.mode = Mode::Data {
                    seen: false,
                    dot: DotState::Start,
                };
            }
            b"BDAT" => {
                command = Command::Bdat;
                self.transaction(out);
                self.mime.get_or_insert_default();
                let mut words = rest.split(|b| *b == b' ').filter(|w| !w.is_empty());
                let length = words
                    .next()
                    .and_then(|w| std::str::from_utf8(w).ok()?.parse().ok());
                if length.is_none()
                    && let Some(t) = self.id.and_then(|id| out.find(id))
                {
                    t.event("invalid_bdat");
                }
                let length = length.unwrap_or(0);
                let last = words
                    .next()
                    .is_some_and(|w| w.eq_ignore_ascii_case(b"LAST"));
                self.mode = Mode::Bdat(length, last);
                if length == 0 {
                    self.mode = Mode::Command;
                    if last {
                        self.end_message(out);
                    }
                }
            }
            b"STARTTLS" => command = Command::StartTls,
            b"RSET" => self.finish(out),
            b"QUIT" => command = Command::Quit,
            _ => {}
        }
        if self.pending.len() < MOST_PENDING {
            self.pending.push_back((command, self.id));
        }
    }

    /// Nothing may follow a command whose answer changes what comes next before that is there.
    fn check_turn(&mut self, out: &mut Transactions) {
        if let Some((Command::Data | Command::StartTls, id)) = self.pending.back()
            && let Some(t) = id.and_then(|id| out.find(id))
        {
            t.event("invalid_pipelined_sequence");
        }
    }

    /// The client has sent the whole message.
    fn end_message(&mut self, out: &mut Transactions) {
        self.mode = Mode::Command;
        let mime = self.mime.take();
        let w = self.wanted;
        if let Some(t) = self.id.and_then(|id| out.find(id)) {
            if let Some(mut mime) = mime {
                mime.end(t, &w);
            }
            t.finish_side(ToServer);
        }
        // The reply to the message itself.
        if self.pending.len() < MOST_PENDING {
            self.pending.push_back((Command::Other, self.id));
        }
    }

    /// Begins the frame of a mail, so many bytes before the end of what was given.
    fn begin_frame(&mut self, behind: usize, out: &mut Transactions) {
        let of = (Buffer::FrameSmtpData, ToServer);
        let t = self.id.and_then(|id| out.find(id));
        let t = t.filter(|_| self.wanted.buffers.has(of.0));
        self.frame = t.map(|t| t.begin_frame(of, Some(behind)));
    }

    fn finish(&mut self, out: &mut Transactions) {
        if let Some(t) = self.id.take().and_then(|id| out.find(id)) {
            t.finish();
        }
    }

    fn message(&mut self, bytes: &[u8], out: &mut Transactions) {
        let w = self.wanted;
        if let (Some(mime), Some(t)) = (&mut self.mime, self.id.and_then(|id| out.find(id))) {
            mime.data(bytes, t, &w);
        }
    }

    /// A dot in front of a line was sent that is not of the message (RFC 5321, section 4.5.2).
    fn stuffed(&mut self) {
        if let Some(mime) = &mut self.mime {
            mime.stuffed();
        }
    }

    /// Bytes of a message until its dot; returns what follows.
    fn data_mode<'a>(
        &mut self,
        bytes: &'a [u8],
        mut dot: DotState,
        out: &mut Transactions,
    ) -> &'a [u8] {
        let mut at = 0;
        // Where bytes that belong to the message begin.
        let mut from = 0;
        while at < bytes.len() {
            match dot {
                DotState::Inside => match memchr::memchr(b'\n', &bytes[at..]) {
                    Some(n) => {
                        at += n + 1;
                        dot = DotState::Start;
                    }
                    None => at = bytes.len(),
                },
                DotState::Start => {
                    if bytes[at] == b'.' {
                        self.message(&bytes[from..at], out);
                        at += 1;
                        // The dot itself never belongs to the message.
                        from = at;
                        dot = DotState::AfterDot;
                    } else {
                        dot = DotState::Inside;
                    }
                }
                DotState::AfterDot => match bytes[at] {
                    b'\n' => {
                        self.end_message(out);
                        return &bytes[at + 1..];
                    }
                    b'\r' => {
                        at += 1;
                        from = at;
                        dot = DotState::AfterDotCr;
                    }
                    _ => {
                        self.stuffed();
                        dot = DotState::Inside;
                    }
                },
                DotState::AfterDotCr => {
                    if bytes[at] == b'\n' {
                        self.end_message(out);
                        return &bytes[at + 1..];
                    }
                    // It was no end after all: the CR is of the message.
                    self.stuffed();
                    self.message(b"\r", out);
                    dot = DotState::Inside;
                }
            }
        }
        self.message(&bytes[from..], out);
        self.mode = Mode::Data { seen: true, dot };
        &[]
    }

    fn reply(&mut self, line: &[u8], out: &mut Transactions) {
        let code = line
            .get(..3)
            .and_then(|c| std::str::from_utf8(c).ok()?.parse::<u16>().ok());
        let Some(code) = code else {
            if let Some(t) = self.id.and_then(|id| out.find(id)) {
                t.event("invalid_reply");
            }
            return;
        };
        if line.get(3) == Some(&b'-') {
            return;
        }
        // The greeting answers nothing, and the challenges of AUTH answer a line that was counted.
        if !self.greeted
            && code == 220
            && self
                .pending
                .front()
                .is_none_or(|p| p.0 != Command::StartTls)
        {
            self.greeted = true;
            return;
        }
        self.greeted = true;
        let Some((command, id)) = self.pending.pop_front() else {
            if let Some(t) = out.live.back_mut() {
                t.event("unable_to_match_reply_with_request");
            }
            return;
        };
        match command {
            Command::StartTls if code == 220 => {
                self.finish(out);
                out.change = Some(Change {
                    to: Some(App::Tls),
                    ..Change::default()
                });
            }
            Command::StartTls => {
                if let Some(t) = id.and_then(|id| out.find(id)) {
                    t.event("tls_rejected");
                }
            }
            Command::Data if code >= 400 => {
                if let Some(t) = id.and_then(|id| out.find(id)) {
                    t.event("data_command_rejected");
                }
                if let Mode::Data { seen: false, .. } = self.mode {
                    self.mode = Mode::Command;
                    self.mime = None;
                }
            }
            Command::Quit => self.finish(out),
            _ => {
                // The reply after the message ends its transaction.
                if let Some(t) = id.and_then(|id| out.find(id))
                    && t.complete[0]
                {
                    t.finish_side(ToClient);
                }
            }
        }
    }
}

fn helo(t: &mut Transaction, name: &[u8], w: &Wanted) {
    if w.buffers.has(Buffer::SmtpHelo) && t.get(Buffer::SmtpHelo, ToServer).next().is_none() {
        t.push(Buffer::SmtpHelo, ToServer, name);
    }
    if w.records {
        t.record.insert("helo".into(), text(name));
    }
}

/// The address of `FROM:<a@b> SIZE=1`: with its brackets, without what follows.
fn after<'a>(rest: &'a [u8], word: &[u8]) -> Option<&'a [u8]> {
    let head = rest.get(..word.len())?;
    if !head.eq_ignore_ascii_case(word) {
        return None;
    }
    let rest = rest[word.len()..].trim_ascii_start();
    let rest = rest.strip_prefix(b":")?.trim_ascii_start();
    let end = if rest.first() == Some(&b'<') {
        memchr::memchr(b'>', rest).map_or(rest.len(), |e| e + 1)
    } else {
        rest.iter().position(|b| *b == b' ').unwrap_or(rest.len())
    };
    Some(&rest[..end])
}

impl Parser for Smtp {
    fn data(&mut self, d: Direction, bytes: &[u8], time: u64, out: &mut Transactions) {
        self.time = time;
        let mut rest = bytes;
        while !rest.is_empty() && out.change.is_none() {
            if d == ToServer {
                match self.mode {
                    Mode::Data { dot, seen } => {
                        if !seen {
                            self.check_turn(out);
                            self.begin_frame(rest.len(), out);
                        }
                        let id = self.id;
                        let left = self.data_mode(rest, dot, out);
                        let taken = rest.strip_suffix(left).unwrap_or(rest);
                        if let Some(frame) = self.frame
                            && let Some(t) = id.and_then(|id| out.find(id))
                        {
                            t.append_to(frame, taken, MOST_FRAME);
                        }
                        rest = left;
                        continue;
                    }
                    Mode::Bdat(left, last) => {
                        let taken = (rest.len() as u64).min(left) as usize;
                        self.message(&rest[..taken], out);
                        rest = &rest[taken..];
                        self.mode = Mode::Bdat(left - taken as u64, last);
                        if left == taken as u64 {
                            self.mode = Mode::Command;
                            if last {
                                self.end_message(out);
                                // BDAT has one reply, not two.
                                self.pending.pop_back();
                            }
                        }
                        continue;
                    }
                    Mode::Command => {}
                }
            }
            let (line, left) = d.of_mut(&mut self.lines).next(rest, MOST_LINE);
            rest = left;
            if d.of_mut(&mut self.lines).was_too_long()
                && let Some(t) = self.transaction(out)
            {
                t.event(if d == ToServer {
                    "max_command_line_len_exceeded"
                } else {
                    "max_reply_line_len_exceeded"
                });
            }
            if let Some(line) = line {
                let buffer = match d {
                    ToServer => Buffer::FrameSmtpCommand,
                    ToClient => Buffer::FrameSmtpReply,
                };
                let framed = self.wanted.buffers.has(buffer);
                let framed = framed.then(|| d.of(&self.lines).ended(&line));
                let before = self.id;
                let behind = framed.as_ref().map_or(0, |f| f.len() + rest.len());
                if d == ToServer {
                    self.command(&line, out);
                } else {
                    self.reply(&line, out);
                }
                if let Some(bytes) = framed {
                    let t = match self.id.or(before) {
                        Some(id) => out.find(id),
                        // The greeting comes before the first command.
                        None => self.transaction(out),
                    };
                    if let Some(t) = t {
                        t.frame((buffer, d), &bytes, Some(behind));
                    }
                }
            }
        }
        if let Some(change) = &mut out.change {
            d.of_mut(&mut change.rest).extend_from_slice(rest);
        }
    }

    fn gap(&mut self, d: Direction, length: u64, out: &mut Transactions) {
        if d == ToClient {
            // Replies were lost: which command the next one answers is not known.
            self.pending.clear();
            self.lines[1] = Line::default();
            return;
        }
        self.lines[0] = Line::default();
        match &mut self.mode {
            Mode::Bdat(left, _) => *left = left.saturating_sub(length),
            Mode::Data { dot, .. } => *dot = DotState::Inside,
            Mode::Command => {}
        }
        if let Some(t) = self.id.and_then(|id| out.find(id)) {
            t.event("body_gap");
        }
    }

    fn end(&mut self, d: Direction, out: &mut Transactions) {
        if d == ToServer && self.mode != Mode::Command {
            out.cut(d);
            self.end_message(out);
        }
        if let Some(t) = self.id.and_then(|id| out.find(id)) {
            t.finish_side(d);
        }
    }

    fn is_between(&self, d: Direction) -> bool {
        d.of(&self.lines).is_empty() && (d == ToClient || self.mode == Mode::Command)
    }

    fn memory(&self) -> usize {
        size_of::<Smtp>()
            + self.lines.iter().map(Line::memory).sum::<usize>()
            + self.pending.capacity() * 32
            + self.helo.capacity()
            + self.mime.as_ref().map_or(0, |m| m.memory())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::Ports;
    use crate::app::tests::converse_all;

    const GREETING: &[u8] = b"220 mail ESMTP\r\n";

    #[test]
    fn a_message_with_files() {
        let client = b"EHLO me.example\r\nMAIL FROM:<a@b.c> SIZE=100\r\nRCPT TO:<d@e.f>\r\nrcpt to: <g@h.i>\r\nDATA\r\n";
        let message = b"From: A <a@b.c>\r\nTo: d@e.f,\r\n g@h.i\r\nSubject: hi\r\nContent-Type: multipart/mixed; boundary=\"B1\"\r\n\r\npreamble\r\n--B1\r\nContent-Type: text/plain\r\n\r\nbody text\r\n..dot\r\n--B1\r\nContent-Type: application/octet-stream; name=x.exe\r\nContent-Transfer-Encoding: base64\r\nContent-Disposition: attachment;\r\n filename=\"evil.exe\"\r\n\r\nTVqQ\r\nAAM=\r\n--B1\r\nContent-Disposition: attachment; filename=q.txt\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\na=3Db=\r\nc\r\nd\r\n--B1--\r\n.\r\n";
        let c = converse_all(
            &[
                (ToClient, GREETING),
                (ToServer, client),
                (
                    ToClient,
                    b"250-hi\r\n250 x\r\n250 ok\r\n250 ok\r\n250 ok\r\n354 go\r\n",
                ),
                (ToServer, message),
                (ToClient, b"250 queued\r\n"),
                (ToServer, b"MAIL FROM:<second@x>\r\n"),
                (ToClient, b"250 ok\r\n"),
            ],
            Ports::default(),
        );
        assert_eq!(c.app(), App::Smtp);
        let t = &c.transactions.live[0];
        let all = |b| -> Vec<String> {
            t.get(b, ToServer)
                .map(|x| String::from_utf8_lossy(x).into_owned())
                .collect()
        };
        assert_eq!(all(Buffer::SmtpHelo), ["me.example"]);
        assert_eq!(all(Buffer::SmtpMailFrom), ["<a@b.c>"]);
        assert_eq!(all(Buffer::SmtpRcptTo), ["<d@e.f>", "<g@h.i>"]);
        assert_eq!(all(Buffer::FileName), ["evil.exe", "q.txt"]);
        let files: Vec<&[u8]> = t.get(Buffer::FileData, ToServer).collect();
        assert_eq!(files, [&b"MZ\x90\0\x03"[..], b"a=bc\r\nd"]);
        assert_eq!(all(Buffer::EmailSubject), ["hi"]);
        assert_eq!(t.beside["email"]["attachment"][0], "evil.exe");
        assert_eq!(t.beside["email"]["to"][1], "g@h.i");
        assert_eq!(t.beside["email"]["status"], "PARSE_DONE");
        assert!(t.done && t.files.iter().all(|f| f.whole));
        let second = &c.transactions.live[1];
        assert_eq!(second.record["mail_from"], "<second@x>");
    }

    #[test]
    fn turns_and_names_that_are_out_of_order_are_told() {
        let told = |all: &[(Direction, &[u8])]| {
            let c = converse_all(all, Ports::default());
            let live = c.transactions.live.iter();
            live.flat_map(|t| t.events.clone()).collect::<Vec<_>>()
        };
        let hello: (Direction, &[u8]) = (ToServer, b"EHLO x\r\n");
        let yes: (Direction, &[u8]) = (ToClient, b"250 ok\r\n");
        assert_eq!(told(&[hello, yes]), ["no_server_welcome_message"]);
        let start = [(ToClient, GREETING), hello, yes];
        assert!(told(&start).is_empty());
        assert_eq!(told(&[&start[..], &[hello]].concat()), ["duplicate_fields"]);
        let more: &[u8] = b"STARTTLS\r\nMAIL FROM:<a@b>\r\n";
        let pipelined = ["invalid_pipelined_sequence"];
        assert_eq!(told(&[&start[..], &[(ToServer, more)]].concat()), pipelined);
        // The letter comes before the server wants it; at its turn it may.
        let data: &[u8] = b"MAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nDATA\r\n";
        let answer: &[u8] = b"250 ok\r\n250 ok\r\n354 go\r\n";
        let letter: &[u8] = b"hello\r\n.\r\n";
        let all = |turns: &[(Direction, &[u8])]| told(&[&start[..], turns].concat());
        let early = [(ToServer, data), (ToServer, letter), (ToClient, answer)];
        assert_eq!(all(&early), pipelined);
        let right = [(ToServer, data), (ToClient, answer), (ToServer, letter)];
        assert!(all(&right).is_empty());
    }

    #[test]
    fn bdat_and_pipelining_and_refusal() {
        let c = converse_all(
            &[
                (ToClient, GREETING),
                (
                    ToServer,
                    b"EHLO x\r\nMAIL FROM:<a>\r\nRCPT TO:<b>\r\nDATA\r\n",
                ),
                (ToClient, b"250 a\r\n250 b\r\n550 c\r\n554 no\r\n"),
                (
                    ToServer,
                    b"MAIL FROM:<c>\r\nBDAT 10\r\nFrom: x\r\n.BDAT 4 LAST\r\n\n\r\n.QUIT\r\n",
                ),
                (ToClient, b"250 a\r\n250 b\r\n250 c\r\n221 bye\r\n"),
            ],
            Ports::default(),
        );
        let t = &c.transactions.live;
        assert!(t[0].events.contains(&"data_command_rejected"));
        assert_eq!(t[1].record["mail_from"], "<c>");
        assert_eq!(t[1].beside["email"]["from"], "x");
    }

    /// Any answer from 400 on refuses, for good or for now: what follows are commands, and no letter.
    #[test]
    fn data_that_is_refused_for_now() {
        for code in ["421", "450", "451", "452", "500", "554"] {
            let refusal = format!("250 x\r\n250 a\r\n250 b\r\n{code} not now\r\n");
            let c = converse_all(
                &[
                    (ToClient, GREETING),
                    (
                        ToServer,
                        b"EHLO x\r\nMAIL FROM:<a>\r\nRCPT TO:<b>\r\nDATA\r\n",
                    ),
                    (ToClient, refusal.as_bytes()),
                    (ToServer, b"RSET\r\nMAIL FROM:<again>\r\n"),
                    (ToClient, b"250 ok\r\n250 ok\r\n"),
                ],
                Ports::default(),
            );
            let t = &c.transactions.live;
            assert_eq!(t.len(), 2, "{code}");
            assert!(t[0].events.contains(&"data_command_rejected"), "{code}");
            assert_eq!(t[1].record["mail_from"], "<again>", "{code}");
        }
        // One that is no refusal lets the letter come.
        let c = converse_all(
            &[
                (ToClient, GREETING),
                (ToServer, b"EHLO x\r\nMAIL FROM:<a>\r\nDATA\r\n"),
                (ToClient, b"250 x\r\n250 a\r\n354 go\r\n"),
                (
                    ToServer,
                    b"Subject: MAIL FROM\r\n\r\nMAIL FROM:<no>\r\n.\r\n",
                ),
            ],
            Ports::default(),
        );
        assert_eq!(c.transactions.live.len(), 1);
        assert!(c.transactions.live[0].events.is_empty());
    }

    /// A letter in a letter is read however it is encoded, and what is in it.
    #[test]
    fn letters_in_letters() {
        let file = "Content-Type: application/x-evil; name=a.exe\r\nContent-Transfer-Encoding: base64\r\n\r\nTVqQ\r\n";
        let inner = format!(
            "Subject: inner\r\nContent-Type: multipart/mixed; boundary=in\r\n\r\n--in\r\n{file}--in--\r\n"
        );
        let encode = |text: &str, how: &str| match how {
            "base64" => {
                let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
                let mut out = String::new();
                for chunk in text.as_bytes().chunks(3) {
                    let n = chunk.iter().fold(0_u32, |n, b| n << 8 | u32::from(*b))
                        << (8 * (3 - chunk.len()));
                    for at in 0..4 {
                        let digit = digits[(n >> (18 - 6 * at)) as usize & 63] as char;
                        out.push(if at > chunk.len() { '=' } else { digit });
                    }
                    if out.len() % 77 == 76 {
                        out.push('\n');
                    }
                }
                out.replace('\n', "\r\n")
            }
            "quoted-printable" => text.replace('=', "=3D"),
            _ => text.to_owned(),
        };
        let deeper = |how: &str, within: &str| {
            let body = encode(within, how);
            format!(
                "Subject: middle\r\nContent-Type: message/rfc822\r\nContent-Transfer-Encoding: {how}\r\n\r\n{body}\r\n"
            )
        };
        for how in ["7bit", "base64", "quoted-printable"] {
            for (message, named) in [
                (deeper(how, &inner), false),
                (deeper("base64", &deeper(how, &inner)), false),
                (
                    deeper(how, &inner).replace("message/rfc822", "message/rfc822; name=a.eml"),
                    how != "7bit",
                ),
            ] {
                let all =
                    format!("EHLO x\r\nMAIL FROM:<a>\r\nRCPT TO:<b>\r\nDATA\r\n{message}.\r\n");
                let c = converse_all(
                    &[(ToClient, GREETING), (ToServer, all.as_bytes())],
                    Ports::default(),
                );
                let t = &c.transactions.live[0];
                let names: Vec<_> = t
                    .get(Buffer::FileName, ToServer)
                    .map(<[u8]>::to_vec)
                    .collect();
                let expected = if named {
                    vec![b"a.eml".to_vec(), b"a.exe".to_vec()]
                } else {
                    vec![b"a.exe".to_vec()]
                };
                assert_eq!(names, expected, "{how}: {message}");
                let last = t.get(Buffer::FileData, ToServer).last().map(<[u8]>::to_vec);
                assert_eq!(last.as_deref(), Some(&b"MZ\x90"[..]), "{how}: {message}");
            }
        }
    }

    #[test]
    fn starttls_goes_on_with_tls() {
        let c = converse_all(
            &[
                (ToClient, GREETING),
                (ToServer, b"EHLO x\r\nSTARTTLS\r\n"),
                (ToClient, b"250 ok\r\n220 go\r\n"),
                (ToServer, b"\x16\x03\x01\x00\x2f\x01\x00\x00\x2b\x03\x03aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\x00\x00\x04\xc0\x2f\x13\x01\x01\x00"),
            ],
            Ports::default(),
        );
        assert_eq!(c.app(), App::Tls);
        assert_eq!(c.before(), Some(App::Smtp));
        let t = c.transactions.live.back().unwrap();
        assert!(
            t.get(Buffer::Ja3String, ToServer)
                .next()
                .unwrap()
                .starts_with(b"771,")
        );
    }
}
