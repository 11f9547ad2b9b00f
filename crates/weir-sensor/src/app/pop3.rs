//! POP3 (RFC 1939, 2449, 5034): a command with its answer is a transaction, and so is the greeting. After STLS the stream is TLS.

use std::collections::VecDeque;

use serde_json::{Map, Value};

use super::lines::{Line, Login, login};
use super::names::App;
use super::probe::{Certainty, First, Look, StreamProbe};
use super::protocol::{Parser, Protocol};
use super::text::text;
use super::transaction::{Change, Kind, Transactions};
use super::wanted::Wanted;
use crate::packet::Direction;
use crate::packet::Direction::{ToClient, ToServer};

/// Bytes of a line that are kept; commands have up to 255.
const MOST_LINE: usize = 512;
/// Bytes of a command (RFC 2449, 4).
const MOST_COMMAND: usize = 255;
/// Commands that may wait for answers.
const MOST_PENDING: usize = 128;
/// Lines of an answer that its record has.
const MOST_DATA: usize = 128;

pub(super) const POP3: Protocol = Protocol {
    app: App::Pop3,
    stream: Some(StreamProbe::new(Certainty::Word, look)),
    parser: Some(|start| Box::new(Pop3::new(start.asked))),
    kind: Some(&KIND),
    ..Protocol::NONE
};

static KIND: Kind = Kind {
    app: App::Pop3,
    events: &[
        "incorrect_argument_count",
        "request_too_long",
        "response_too_long",
        "unknown_command",
    ],
    ..Kind::EXCHANGE
};

/// Words that clients of POP3 begin with.
const FIRST_WORDS: &[&[u8]] = &[
    b"USER", b"PASS", b"APOP", b"CAPA", b"AUTH", b"STLS", b"QUIT", b"NOOP", b"STAT",
];

fn look(first: &First<'_>) -> Look {
    if first.line().is_none() {
        return Look::No;
    }
    if first.is_server() {
        // A server of POP3 speaks first; others answer with these words, too.
        let asked = first
            .other
            .get(..4)
            .is_some_and(|word| !FIRST_WORDS.iter().any(|w| w.eq_ignore_ascii_case(word)));
        return match asked {
            true => Look::No,
            false => first.begins_with(&[b"+OK", b"-ERR"]),
        };
    }
    match (first.begins_with(&[b"CAPA\r"]), login(first)) {
        (Look::Yes, _) | (_, Login::Yes { pop3: true }) => Look::Yes,
        (Look::Maybe, _) | (_, Login::Maybe) => Look::Maybe,
        _ => Look::No,
    }
}

/// What a command is like.
struct Command {
    name: &'static str,
    /// How many arguments it has at least and at most.
    arguments: (usize, usize),
    /// What follows the first line of its answer.
    data: Data,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Data {
    None,
    /// Lines up to a period, which records have.
    Lines,
    /// Those of a mail, which records do not have.
    Mail,
    /// Lines, if it has no argument.
    Bare,
}

const fn command(name: &'static str, least: usize, most: usize, data: Data) -> Command {
    Command {
        name,
        arguments: (least, most),
        data,
    }
}

const COMMANDS: &[Command] = &[
    command("USER", 1, 1, Data::None),
    // A password may have blanks.
    command("PASS", 1, usize::MAX, Data::None),
    command("APOP", 2, 2, Data::None),
    command("AUTH", 0, 2, Data::Bare),
    command("CAPA", 0, 0, Data::Lines),
    command("STLS", 0, 0, Data::None),
    command("STAT", 0, 0, Data::None),
    command("LIST", 0, 1, Data::Bare),
    command("UIDL", 0, 1, Data::Bare),
    command("RETR", 1, 1, Data::Mail),
    command("TOP", 2, 2, Data::Mail),
    command("DELE", 1, 1, Data::None),
    command("RSET", 0, 0, Data::None),
    command("NOOP", 0, 0, Data::None),
    command("QUIT", 0, 0, Data::None),
    command("LAST", 0, 0, Data::None),
    command("LANG", 0, 1, Data::Bare),
    command("UTF8", 0, 0, Data::None),
];

/// What records call what a client says to prove who it is, which they do not have.
const PROOF: &str = "<SASL DATA>";

/// A command that waits.
struct Pending {
    transaction: u64,
    data: Data,
    /// `AUTH`, or its proof: the server may ask for more.
    proves: bool,
    starts_tls: bool,
}

struct Pop3 {
    wanted: Wanted,
    lines: [Line; 2],
    pending: VecDeque<Pending>,
    /// The next line of the client is proof.
    proof: bool,
    /// The answer whose lines come.
    open: Option<Pending>,
    data: Vec<Value>,
}

impl Pop3 {
    fn new(wanted: &Wanted) -> Pop3 {
        Pop3 {
            wanted: *wanted,
            lines: [Line::default(), Line::default()],
            pending: VecDeque::new(),
            proof: false,
            open: None,
            data: Vec::new(),
        }
    }

    fn ask(&mut self, line: &[u8], cut: bool, time: u64, out: &mut Transactions) {
        let proof = std::mem::take(&mut self.proof);
        if self.pending.len() >= MOST_PENDING
            && let Some(oldest) = self.pending.pop_front()
            && let Some(t) = out.find(oldest.transaction)
        {
            t.finish();
        }
        let t = out.begin(&KIND, time);
        if cut || line.len() > MOST_COMMAND && !proof {
            t.event("request_too_long");
        }
        let mut words = line
            .split(|b| *b == b' ' || *b == b'\t')
            .filter(|w| !w.is_empty());
        let word = words.next().unwrap_or_default();
        let arguments: Vec<&[u8]> = words.take(64).collect();
        let known = COMMANDS
            .iter()
            .find(|c| c.name.as_bytes().eq_ignore_ascii_case(word));
        let mut data = Data::None;
        if let Some(known) = known.filter(|_| !proof) {
            let (least, most) = known.arguments;
            if !(least..=most).contains(&arguments.len()) {
                t.event("incorrect_argument_count");
            }
            data = match known.data {
                Data::Bare if arguments.is_empty() => Data::Lines,
                Data::Bare => Data::None,
                data => data,
            };
        } else if !proof {
            t.event("unknown_command");
        }
        if self.wanted.records {
            let mut request = Map::new();
            let shown = match proof {
                true => PROOF.into(),
                false => text(&word.to_ascii_uppercase()),
            };
            request.insert("command".into(), shown);
            if !proof && !arguments.is_empty() {
                let all = arguments.iter().map(|a| text(a)).collect();
                request.insert("args".into(), Value::Array(all));
            }
            t.record.insert("request".into(), request.into());
        }
        t.finish_side(ToServer);
        let is = |name: &str| !proof && known.is_some_and(|c| c.name == name);
        let pending = Pending {
            transaction: t.id,
            data,
            proves: proof || is("AUTH"),
            starts_tls: is("STLS"),
        };
        self.pending.push_back(pending);
    }

    /// The first line of an answer.
    fn answer(&mut self, line: &[u8], cut: bool, time: u64, out: &mut Transactions) {
        let pending = self.pending.pop_front();
        let id = match &pending {
            Some(pending) => pending.transaction,
            None => {
                let t = out.begin(&KIND, time);
                t.finish_side(ToServer);
                t.id
            }
        };
        let Some(t) = out.find(id) else {
            return;
        };
        if cut {
            t.event("response_too_long");
        }
        let end = line.iter().position(|b| *b == b' ').unwrap_or(line.len());
        let (status, header) = line.split_at_checked(end).unwrap_or((line, &[]));
        let success = status.starts_with(b"+");
        if self.wanted.records {
            let mut response = Map::new();
            response.insert("success".into(), success.into());
            let shown: &str = if success { "OK" } else { "ERR" };
            response.insert("status".into(), shown.into());
            response.insert("header".into(), text(header.trim_ascii()));
            t.record.insert("response".into(), response.into());
        }
        // It wants more of a proof.
        self.proof = status == b"+" && pending.as_ref().is_some_and(|p| p.proves);
        match pending {
            Some(pending) if success && pending.starts_tls => {
                t.finish();
                out.change = Some(Change {
                    to: Some(App::Tls),
                    ..Change::default()
                });
            }
            Some(pending) if success && pending.data != Data::None => self.open = Some(pending),
            _ => t.finish(),
        }
    }

    /// A line behind the first of an answer.
    fn more(&mut self, line: &[u8], cut: bool, out: &mut Transactions) {
        let Some(open) = &self.open else {
            return;
        };
        if line == b"." {
            self.over(out);
            return;
        }
        let shown = open.data == Data::Lines;
        // Lines of mails may have a thousand bytes and more.
        if cut
            && shown
            && let Some(t) = out.find(open.transaction)
        {
            t.event("response_too_long");
        }
        if shown && self.wanted.records && self.data.len() < MOST_DATA {
            self.data
                .push(text(line.strip_prefix(b".").unwrap_or(line)));
        }
    }

    /// The answer whose lines came is over.
    fn over(&mut self, out: &mut Transactions) {
        let data = std::mem::take(&mut self.data);
        let Some(t) = self.open.take().and_then(|open| out.find(open.transaction)) else {
            return;
        };
        if let Some(response) = t.record.get_mut("response").and_then(Value::as_object_mut)
            && !data.is_empty()
        {
            response.insert("data".into(), Value::Array(data));
        }
        t.finish();
    }
}

impl Parser for Pop3 {
    fn data(&mut self, d: Direction, bytes: &[u8], time: u64, out: &mut Transactions) {
        let mut rest = bytes;
        while !rest.is_empty() && out.change.is_none() {
            let mut lines = std::mem::take(d.of_mut(&mut self.lines));
            let (line, left) = lines.next(rest, MOST_LINE);
            rest = left;
            if let Some(line) = line {
                let cut = lines.was_too_long();
                match d {
                    ToServer => self.ask(&line, cut, time, out),
                    ToClient if self.open.is_some() => self.more(&line, cut, out),
                    ToClient => self.answer(&line, cut, time, out),
                }
            }
            *d.of_mut(&mut self.lines) = lines;
        }
        if let Some(change) = &mut out.change {
            d.of_mut(&mut change.rest).extend_from_slice(rest);
        }
    }

    fn gap(&mut self, d: Direction, _: u64, _: &mut Transactions) {
        // Lines go on behind the next line feed, as well as can be told.
        *d.of_mut(&mut self.lines) = Line::default();
    }

    fn end(&mut self, d: Direction, out: &mut Transactions) {
        if d == ToServer {
            return;
        }
        self.over(out);
        for pending in self.pending.drain(..) {
            if let Some(t) = out.find(pending.transaction) {
                t.finish();
            }
        }
    }

    fn is_between(&self, d: Direction) -> bool {
        d.of(&self.lines).is_empty() && (d == ToServer || self.open.is_none())
    }

    fn memory(&self) -> usize {
        let data = self.data.len() * (MOST_LINE + size_of::<Value>());
        let pending = self.pending.capacity() * size_of::<Pending>();
        let lines = self.lines.iter().map(Line::memory).sum::<usize>();
        size_of::<Pop3>() + lines + data + pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::probe::Ports;
    use crate::app::tests::converse_all;
    use crate::app::transaction::Transaction;

    fn exchange(parts: &[(Direction, &[u8])]) -> Vec<Transaction> {
        let c = converse_all(parts, Ports::default());
        assert_eq!(c.app(), App::Pop3);
        let live = c.transactions.live.into_iter();
        live.inspect(|t| assert!(t.done)).collect()
    }

    #[test]
    fn commands_have_answers_of_one_line_or_several() {
        let all = exchange(&[
            (ToClient, b"+OK ready\r\n"),
            (ToServer, b"capa\r\nLIST 1\r\nLIST\r\n"),
            (
                ToClient,
                b"+OK\r\nTOP\r\n..x\r\n.\r\n+OK 1 20\r\n+OK\r\n1 20\r\n.\r\n",
            ),
            (ToServer, b"AUTH XOAUTH2\r\n"),
            (ToClient, b"+ \r\n"),
            (ToServer, b"c2VjcmV0\r\n"),
            (ToClient, b"-ERR no\r\n"),
            (ToServer, b"RETR 1\r\n"),
            (ToClient, b"+OK\r\nSubject: x\r\n\r\n.\r\n"),
            (ToServer, b"FOO\r\nDELE\r\nQUIT\r\n"),
        ]);
        let r = |n: usize| &all[n].record;
        assert_eq!(r(0)["response"]["header"], "ready");
        assert_eq!(r(1)["request"]["command"], "CAPA");
        assert_eq!(r(1)["response"]["data"], serde_json::json!(["TOP", ".x"]));
        assert_eq!(r(2)["request"]["args"][0], "1");
        assert_eq!(r(3)["response"]["data"][0], "1 20");
        assert_eq!(r(4)["response"]["success"], true);
        assert_eq!(r(5)["request"]["command"], PROOF);
        assert_eq!(r(5)["response"]["status"], "ERR");
        assert!(r(6)["response"].get("data").is_none());
        assert_eq!(all[7].events, ["unknown_command"]);
        assert_eq!(all[8].events, ["incorrect_argument_count"]);
        assert!(r(9).get("response").is_none());
        assert_eq!(all.len(), 10);
    }

    #[test]
    fn tls_follows_if_it_is_granted() {
        let hello = b"\x16\x03\x01\x00\x01\x01";
        let parts: &[(Direction, &[u8])] = &[
            (ToClient, b"+OK\r\n"),
            (ToServer, b"CAPA\r\nSTLS\r\n"),
            (ToClient, b"+OK\r\nSTLS\r\n.\r\n+OK go\r\n"),
            (ToServer, hello),
        ];
        let c = converse_all(parts, Ports::default());
        assert_eq!((c.app(), c.before()), (App::Tls, Some(App::Pop3)));
    }

    #[test]
    fn memory_has_a_bound() {
        let (mut pop3, mut out) = (
            Pop3::new(&crate::app::tests::wanted()),
            Transactions::default(),
        );
        pop3.data(ToServer, &b"UIDL\r\n".repeat(1000), 1, &mut out);
        let line = [&b"+OK "[..], &[b'x'; 10_000], b"\r\n"].concat();
        pop3.data(ToClient, &line.repeat(500), 1, &mut out);
        assert!(pop3.memory() < 256 << 10, "{}", pop3.memory());
        assert!(
            out.live
                .iter()
                .any(|t| t.events.contains(&"response_too_long"))
        );
    }
}
