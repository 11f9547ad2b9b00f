//! FTP: commands with their replies, the data connections they announce, the change to TLS; and those data connections.

#![expect(
    clippy::indexing_slicing,
    reason = "older than the lint: lengths are compared before; a place that is touched gets a checked access"
)]

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};

use super::lines::{Greeting, Line, Login, greeting, login};
use super::names::App;
use super::probe::{Certainty, First, Look, StreamProbe};
use super::protocol::{Fact, Log, Parser, Protocol, Written};
use super::text::text;
use super::transaction::{Change, Expected, Kind, Transaction, Transactions, Turns};
use super::wanted::Wanted;
use crate::buffer::Buffer;
use crate::packet::Direction;
use crate::packet::Direction::{ToClient, ToServer};

/// The longest line of a command or a reply if nothing else is set; what exceeds it is left out.
const MOST_LINE: usize = 4096;
/// Reply lines of one command that are kept.
const MOST_REPLIES: usize = 64;

pub(super) const FTP: Protocol = Protocol {
    app: App::Ftp,
    stream: Some(StreamProbe::new(Certainty::Word, stream)),
    parser: Some(|start| Box::new(Ftp::new(start.asked))),
    kind: Some(&KIND),
    facts: &[
        Fact {
            keyword: "ftp.dynamic_port",
            what: "port of the data connection that a command or reply names",
            ..Fact::NONE
        },
        Fact {
            keyword: "ftp.mode",
            written: Written::Word(&[("active", 1), ("passive", 2)]),
            what: "`active` or `passive`",
            ..Fact::NONE
        },
        Fact {
            keyword: "ftp.reply_received",
            written: Written::Word(&[
                ("no", 1),
                ("yes", 2),
                ("false", 1),
                ("true", 2),
                ("off", 1),
                ("on", 2),
            ]),
            answer: true,
            what: "`yes` or `no`: whether a command was answered",
            ..Fact::NONE
        },
        Fact {
            keyword: "ftpbounce",
            written: Written::Bare,
            what: "a PORT command names another host",
            ..Fact::NONE
        },
    ],
    files: true,
    log: Log {
        numbered: false,
        ..Protocol::NONE.log
    },
    ..Protocol::NONE
};

/// Commands that ask for data connections, with the numbers that rules compare.
const COMMANDS: [(&str, u64); 7] = [
    ("retr", 1),
    ("stor", 2),
    ("stou", 3),
    ("appe", 4),
    ("list", 5),
    ("nlst", 6),
    ("mlsd", 7),
];

pub(super) const FTP_DATA: Protocol = Protocol {
    app: App::FtpData,
    parser: Some(|start| Box::new(FtpData::new(start.asked, start.expected))),
    kind: Some(&DATA),
    facts: &[Fact {
        keyword: "ftpdata_command",
        aliases: &["ftpdata.command"],
        written: Written::Word(&COMMANDS),
        what: "`retr`, `stor`, `stou`, `appe`, `list`, `nlst` or `mlsd`: what asked for the data connection",
        ..Fact::NONE
    }],
    files: true,
    log: Log {
        name: Some("ftp_data"),
        numbered: false,
        ..Protocol::NONE.log
    },
    ..Protocol::NONE
};

static KIND: Kind = Kind {
    app: App::Ftp,
    events: &[
        "body_gap",
        "request_command_too_long",
        "response_command_too_long",
    ],
    most: 1024,
    // What a server says fills a buffer that is asked for.
    may_lack: |t, direction| direction == ToServer || t.all().any(|(_, d, _)| d == direction),
    ..Kind::EXCHANGE
};

static DATA: Kind = Kind {
    app: App::FtpData,
    turns: Turns::Transfer,
    // Its one file goes one way, which may be the server's.
    answered: |t| t.files.iter().any(|f| f.direction == ToClient),
    events: &["body_gap"],
    ..Kind::EXCHANGE
};

fn stream(first: &First<'_>) -> Look {
    if first.line().is_none() {
        return Look::No;
    }
    if first.is_server() {
        return match greeting(first) {
            Greeting::Ftp => Look::Yes,
            Greeting::Maybe => Look::Maybe,
            Greeting::Smtp | Greeting::No => Look::No,
        };
    }
    let commands: &[&[u8]] = &[
        b"FEAT\r",
        b"AUTH TLS",
        b"AUTH SSL",
        b"PASV\r",
        b"EPSV\r",
        b"SYST\r",
    ];
    match (first.begins_with(commands), login(first)) {
        (Look::Yes, _) | (_, Login::Yes { pop3: false }) => Look::Yes,
        (Look::Maybe, _) | (_, Login::Maybe) => Look::Maybe,
        _ => Look::No,
    }
}

pub(super) struct Ftp {
    wanted: Wanted,
    lines: [Line; 2],
    /// Commands without their last reply.
    pending: VecDeque<(u64, Command)>,
    /// Transaction of replies that no command asked for.
    unasked: Option<u64>,
    /// The data connection that the next transfer uses.
    announced: Option<Expected>,
    /// Code that ends the reply in progress.
    open: Option<[u8; 3]>,
    /// Lines of the reply in progress.
    replies: usize,
    /// Whether the line in progress was cut, of each direction.
    cut: [bool; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    Auth,
    Passive,
    Transfer,
    Other,
}

impl Ftp {
    pub(super) fn new(wanted: &Wanted) -> Ftp {
        Ftp {
            wanted: *wanted,
            lines: [Line::default(), Line::default()],
            pending: VecDeque::new(),
            unasked: None,
            announced: None,
            open: None,
            replies: 0,
            cut: [false; 2],
        }
    }

    fn command(&mut self, line: &[u8], cut: bool, time: u64, out: &mut Transactions) {
        let w = self.wanted;
        let line = line.trim_ascii_start();
        if line.is_empty() {
            return;
        }
        let end = line
            .iter()
            .position(|b| *b == b' ' || *b == b'\t')
            .unwrap_or(line.len());
        let (word, data) = line.split_at(end);
        let data = data.trim_ascii();
        // A greeting without its last line is over when a command comes.
        if let Some(t) = self.unasked.take().and_then(|id| out.find(id)) {
            t.finish();
        }
        if !out.may_begin(&KIND) {
            return;
        }
        let t = out.begin(&KIND, time);
        let id = t.id;
        if cut {
            t.event("request_command_too_long");
        }
        if w.buffers.has(Buffer::FtpCommand) {
            t.push(Buffer::FtpCommand, ToServer, word);
        }
        if w.buffers.has(Buffer::FtpCommandData) && !data.is_empty() {
            t.push(Buffer::FtpCommandData, ToServer, data);
        }
        if w.records {
            let name = text(&word.to_ascii_uppercase());
            t.record.insert("command".into(), name);
            if !data.is_empty() {
                t.record.insert("command_data".into(), text(data));
                t.record.insert("command_truncated".into(), cut.into());
            }
            t.record.insert("reply_truncated".into(), false.into());
            t.record.insert("reply_received".into(), "no".into());
        }
        t.facts.push(("ftp.reply_received", 1));
        let upper = word.to_ascii_uppercase();
        let mut command = Command::Other;
        let mut expected = None;
        match upper.as_slice() {
            b"AUTH" => command = Command::Auth,
            b"PASV" | b"EPSV" => command = Command::Passive,
            b"PORT" => {
                if let Some((address, port)) = numbers(data) {
                    t.facts
                        .push(("ftpbounce.address", u64::from(u32::from(address))));
                    active(t, port, &w);
                    expected = Some((ToClient, Some(IpAddr::V4(address)), port));
                }
            }
            b"EPRT" => {
                if let Some((address, port)) = extended(data) {
                    active(t, port, &w);
                    expected = Some((ToClient, address, port));
                }
            }
            b"RETR" | b"STOR" | b"STOU" | b"APPE" | b"LIST" | b"NLST" | b"MLSD" => {
                command = Command::Transfer;
                let name = match upper.as_slice() {
                    b"RETR" => "RETR",
                    b"STOR" => "STOR",
                    b"STOU" => "STOU",
                    b"APPE" => "APPE",
                    b"NLST" => "NLST",
                    b"MLSD" => "MLSD",
                    _ => "LIST",
                };
                if let Some(mut e) = self.announced.take() {
                    e.command = name;
                    // What a list is of is no file.
                    if matches!(name, "RETR" | "STOR" | "STOU" | "APPE") {
                        e.file = data.to_vec();
                    }
                    out.expected.push(e);
                }
            }
            _ => {}
        }
        if let Some(t) = out.find(id) {
            t.finish_side(ToServer);
        }
        if let Some((direction, address, port)) = expected {
            self.announce(direction, address, port, out);
        }
        if self.pending.len() >= out.most(&KIND)
            && let Some((old, _)) = self.pending.pop_front()
            && let Some(t) = out.find(old)
        {
            t.finish();
        }
        self.pending.push_back((id, command));
    }

    fn announce(
        &mut self,
        direction: Direction,
        address: Option<IpAddr>,
        port: u16,
        out: &mut Transactions,
    ) {
        let e = Expected {
            app: App::FtpData,
            direction,
            address,
            port,
            file: Vec::new(),
            command: "",
        };
        self.announced = Some(e.clone());
        out.expected.push(e);
    }

    fn reply(&mut self, line: &[u8], cut: bool, time: u64, out: &mut Transactions) {
        let w = self.wanted;
        let code = line
            .get(..3)
            .filter(|c| c.iter().all(u8::is_ascii_digit))
            .map(|c| [c[0], c[1], c[2]]);
        let after = line.get(3).copied();
        let last = match (self.open, code) {
            (Some(open), Some(code)) => code == open && after != Some(b'-'),
            (Some(_), None) => false,
            (None, Some(code)) => {
                if after == Some(b'-') {
                    self.open = Some(code);
                }
                after != Some(b'-')
            }
            (None, None) => true,
        };
        let (id, command) = match self.pending.front() {
            Some(p) => *p,
            None => {
                let id = match self.unasked {
                    Some(id) if out.find(id).is_some() => id,
                    _ => {
                        let t = out.begin(&KIND, time);
                        t.finish_side(ToServer);
                        // There is no command in which something could be missing.
                        t.only(ToClient);
                        t.id
                    }
                };
                self.unasked = Some(id);
                (id, Command::Other)
            }
        };
        let content = match code {
            Some(_) => line.get(4..).unwrap_or_default(),
            None => line,
        };
        self.replies += 1;
        if cut && let Some(t) = out.find(id) {
            t.event("response_command_too_long");
            if w.records {
                t.record.insert("reply_truncated".into(), true.into());
            }
        }
        if let Some(t) = out.find(id)
            && self.replies <= MOST_REPLIES
        {
            if w.buffers.has(Buffer::FtpReply) {
                t.push(Buffer::FtpReply, ToClient, content);
            }
            if let Some(code) = code
                && w.buffers.has(Buffer::FtpCompletionCode)
            {
                t.push(Buffer::FtpCompletionCode, ToClient, &code);
            }
            if w.records {
                let mut add = |key: &str, value: &[u8]| {
                    let list = t
                        .record
                        .entry(key)
                        .or_insert_with(|| Vec::<serde_json::Value>::new().into());
                    if let serde_json::Value::Array(list) = list {
                        list.push(text(value));
                    }
                };
                // Lines before the last keep their code, as they are of one answer.
                let shown = if after == Some(b'-') { line } else { content };
                let shown = shown.trim_ascii_end();
                if !shown.is_empty() {
                    add("reply", shown);
                }
                if let Some(code) = code.filter(|_| after != Some(b'-')) {
                    add("completion_code", &code);
                }
                t.record.insert("reply_received".into(), "yes".into());
                t.record.entry("reply_truncated").or_insert(false.into());
            }
            if let Some(fact) = t.facts.iter_mut().find(|f| f.0 == "ftp.reply_received") {
                fact.1 = 2;
            }
        }
        if !last {
            return;
        }
        self.open = None;
        self.replies = 0;
        // 150 and its like announce the real reply.
        if code.is_some_and(|c| c[0] == b'1') && command == Command::Transfer {
            return;
        }
        let end = match (command, code.as_ref().map(|c| &c[..])) {
            (Command::Passive, Some(b"227")) => {
                let open = memchr::memchr(b'(', content).map_or(0, |p| p + 1);
                let digits = content[open..]
                    .iter()
                    .position(u8::is_ascii_digit)
                    .unwrap_or(0);
                numbers(&content[open + digits..]).map(|(a, p)| (Some(IpAddr::V4(a)), p))
            }
            (Command::Passive, Some(b"229")) => memchr::memchr(b'(', content)
                .and_then(|open| extended(&content[open + 1..]))
                .map(|(_, port)| (None, port)),
            _ => None,
        };
        if let Some((address, port)) = end {
            if let Some(t) = out.find(id) {
                t.facts.push(("ftp.dynamic_port", u64::from(port)));
                t.facts.push(("ftp.mode", 2));
                if w.records {
                    t.record.insert("dynamic_port".into(), port.into());
                    t.record.insert("mode".into(), "passive".into());
                }
            }
            self.announce(ToServer, address, port, out);
        }
        self.pending.pop_front();
        self.unasked = None;
        if let Some(t) = out.find(id) {
            t.finish_side(ToClient);
        }
        if command == Command::Auth && code.is_some_and(|c| &c == b"234") {
            out.change = Some(Change {
                to: Some(App::Tls),
                ..Change::default()
            });
        }
    }
}

fn active(t: &mut Transaction, port: u16, w: &Wanted) {
    t.facts.push(("ftp.dynamic_port", u64::from(port)));
    t.facts.push(("ftp.mode", 1));
    if w.records {
        t.record.insert("dynamic_port".into(), port.into());
        t.record.insert("mode".into(), "active".into());
    }
}

/// Address and port of `h1,h2,h3,h4,p1,p2`.
fn numbers(data: &[u8]) -> Option<(Ipv4Addr, u16)> {
    let mut n = [0u8; 6];
    let mut words = data.split(|b| *b == b',');
    for slot in &mut n {
        let word = words.next()?.trim_ascii();
        let digits = word.iter().take_while(|b| b.is_ascii_digit()).count();
        *slot = std::str::from_utf8(&word[..digits]).ok()?.parse().ok()?;
    }
    let port = u16::from_be_bytes([n[4], n[5]]);
    Some((Ipv4Addr::new(n[0], n[1], n[2], n[3]), port))
}

/// Address and port of `|1|address|port|`, whatever its delimiter.
fn extended(data: &[u8]) -> Option<(Option<IpAddr>, u16)> {
    let delimiter = *data.first()?;
    let mut words = data[1..].split(|b| *b == delimiter);
    words.next()?;
    let address = std::str::from_utf8(words.next()?).ok()?;
    let port = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
    Some((address.parse().ok(), port))
}

impl Parser for Ftp {
    fn data(&mut self, d: Direction, bytes: &[u8], time: u64, out: &mut Transactions) {
        let mut rest = bytes;
        let most = match self.wanted.said.ftp_line {
            0 => MOST_LINE,
            set => set as usize,
        };
        while !rest.is_empty() && out.change.is_none() {
            let (line, left) = d.of_mut(&mut self.lines).next(rest, most);
            rest = left;
            *d.of_mut(&mut self.cut) |= d.of_mut(&mut self.lines).was_too_long();
            let Some(line) = line else {
                continue;
            };
            let cut = std::mem::take(d.of_mut(&mut self.cut));
            if d == ToServer {
                self.command(&line, cut, time, out);
            } else {
                self.reply(&line, cut, time, out);
            }
        }
        if let Some(change) = &mut out.change {
            d.of_mut(&mut change.rest).extend_from_slice(rest);
        }
    }

    fn gap(&mut self, d: Direction, _: u64, out: &mut Transactions) {
        *d.of_mut(&mut self.lines) = Line::default();
        *d.of_mut(&mut self.cut) = false;
        if d == ToClient {
            self.open = None;
            for (id, _) in std::mem::take(&mut self.pending) {
                if let Some(t) = out.find(id) {
                    t.finish();
                }
            }
        }
    }

    fn end(&mut self, d: Direction, out: &mut Transactions) {
        if d == ToClient {
            let ids = std::mem::take(&mut self.pending);
            for id in ids.into_iter().map(|p| p.0).chain(self.unasked.take()) {
                if let Some(t) = out.find(id) {
                    t.finish();
                }
            }
        }
    }

    fn memory(&self) -> usize {
        size_of::<Ftp>()
            + self.lines.iter().map(Line::memory).sum::<usize>()
            + self.pending.capacity() * 16
    }
}

/// A data connection: one file.
pub(super) struct FtpData {
    wanted: Wanted,
    file: Vec<u8>,
    command: &'static str,
    id: Option<u64>,
}

impl FtpData {
    pub(super) fn new(wanted: &Wanted, expected: Option<&Expected>) -> FtpData {
        FtpData {
            wanted: *wanted,
            file: expected.map(|e| e.file.clone()).unwrap_or_default(),
            command: expected.map_or("", |e| e.command),
            id: None,
        }
    }
}

impl Parser for FtpData {
    fn data(&mut self, d: Direction, bytes: &[u8], time: u64, out: &mut Transactions) {
        let w = self.wanted;
        let t = match self.id.and_then(|id| out.find(id).map(|t| t.id)) {
            Some(id) => out.find(id),
            None if self.id.is_some() => return,
            None => {
                let t = out.begin(&DATA, time);
                self.id = Some(t.id);
                if w.buffers.has(Buffer::FileName) && !self.file.is_empty() {
                    t.push(Buffer::FileName, d, &self.file);
                }
                t.begin_file(self.file.clone(), d, w.sums);
                if w.records {
                    if !self.file.is_empty() {
                        t.record.insert("filename".into(), text(&self.file));
                    }
                    if !self.command.is_empty() {
                        t.record.insert("command".into(), self.command.into());
                    }
                }
                let command =
                    (COMMANDS.iter()).find(|(name, _)| name.eq_ignore_ascii_case(self.command));
                if let Some((_, number)) = command {
                    t.facts.push(("ftpdata_command", *number));
                }
                let id = t.id;
                out.find(id)
            }
        };
        let Some(t) = t else {
            return;
        };
        t.transferred(d, bytes, &w);
    }

    fn gap(&mut self, _: Direction, length: u64, out: &mut Transactions) {
        if let Some(t) = self.id.and_then(|id| out.find(id)) {
            t.event("body_gap");
            if let Some(f) = t.files.first_mut() {
                f.size += length;
                f.gaps = true;
            }
        }
    }

    fn end(&mut self, d: Direction, out: &mut Transactions) {
        if let Some(t) = self.id.and_then(|id| out.find(id)) {
            let lost = t.events.contains(&"body_gap");
            if t.files.first().is_some_and(|f| f.direction == d) {
                t.end_file(0, !lost);
                t.finish();
            }
        }
    }

    fn memory(&self) -> usize {
        size_of::<FtpData>() + self.file.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::tests::{converse_all, wanted};
    use crate::app::{Conversation, Ports};

    #[test]
    fn commands_replies_and_what_they_announce() {
        let c = converse_all(
            &[
                (ToClient, b"220-Welcome\r\n220 FTP ready\r\n"),
                (ToServer, b"USER anonymous\r\n"),
                (ToClient, b"331 password?\r\n"),
                (ToServer, b"PASV\r\n"),
                (ToClient, b"227 Entering Passive Mode (10,0,0,1,4,1).\r\n"),
                (ToServer, b"RETR dir/x.bin\r\n"),
                (ToClient, b"150 opening\r\n226 done\r\n"),
                (ToServer, b"EPSV\r\n"),
                (ToClient, b"229 Extended (|||2000|)\r\n"),
                (ToServer, b"PORT 10,0,0,2,0,21\r\n"),
                (ToClient, b"200 ok\r\n"),
                (ToServer, b"STOR up\r\n"),
            ],
            Ports::default(),
        );
        assert_eq!(c.app(), App::Ftp);
        let t = &c.transactions.live;
        assert_eq!(t.len(), 7);
        assert!(t.iter().all(|t| t.done));
        assert_eq!(t[0].record["completion_code"][0], "220");
        assert_eq!(t[1].record["command"], "USER");
        assert_eq!(t[1].record["reply"][0], "password?");
        let replied = |i: usize| t[i].facts("ftp.reply_received").next();
        assert_eq!([0, 1, 6].map(replied), [None, Some(2), Some(1)]);
        assert_eq!(t[2].record["dynamic_port"], 1025);
        let reply: Vec<_> = t[3].get(Buffer::FtpCompletionCode, ToClient).collect();
        assert_eq!(reply, [b"150", b"226"]);
        assert_eq!(t[5].facts("ftpbounce.address").next(), Some(0x0a00_0002));
        let e = &c.transactions.expected;
        assert_eq!(e.len(), 5);
        let first: IpAddr = "10.0.0.1".parse().unwrap();
        assert_eq!((e[0].address, e[0].port), (Some(first), 1025));
        assert_eq!(
            (e[1].file.as_slice(), e[1].command),
            (&b"dir/x.bin"[..], "RETR")
        );
        assert_eq!((e[2].port, e[2].direction), (2000, ToServer));
        assert_eq!(
            (e[4].port, e[4].direction, e[4].command),
            (21, ToClient, "STOR")
        );

        let w = wanted();
        let mut data = Conversation::expected(&e[1], Ports::default(), &w);
        data.data(ToClient, b"MZ", 1, &w);
        data.data(ToClient, b"rest", 1, &w);
        data.close();
        let t = &data.transactions.live[0];
        assert_eq!(data.app(), App::FtpData);
        assert_eq!(t.get(Buffer::FileData, ToClient).next().unwrap(), b"MZrest");
        assert_eq!(t.record["filename"], "dir/x.bin");
        assert!(t.files[0].whole && t.files[0].size == 6);
    }

    #[test]
    fn auth_tls_goes_on_with_tls() {
        let c = converse_all(
            &[
                (ToClient, b"220 FTP\r\n"),
                (ToServer, b"AUTH TLS\r\n"),
                (ToClient, b"234 go\r\n"),
                (ToServer, b"\x16\x03\x01\x00\x01\x01"),
            ],
            Ports::default(),
        );
        assert_eq!((c.app(), c.before()), (App::Tls, Some(App::Ftp)));
    }
}
