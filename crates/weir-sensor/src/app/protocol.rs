//! What is known of an application protocol: the type of the rows that stand next to the parsers. `app` lists the rows; recognition, rules, records, counters and the fuzzer read them.

use super::names::App;
use super::probe::{First, StreamProbe};
use super::transaction::{Expected, Kind, Stage, Transaction, Transactions, Upgrade};
use super::wanted::Asked;
use crate::packet::Direction;

/// A protocol. A row says what differs from [`Protocol::NONE`].
#[derive(Clone, Copy)]
pub struct Protocol {
    /// Which.
    pub app: App,
    /// Other names that headers of rules have for it.
    pub aliases: &'static [&'static str],
    /// Names of Snort's services, where they differ.
    pub services: &'static [&'static str],
    /// What carries it.
    pub carrier: Carrier,
    /// How the beginning of a stream shows it.
    pub stream: Option<StreamProbe>,
    /// Whether a datagram of four bytes or more is of it.
    pub datagram: Option<fn(&First<'_>) -> bool>,
    /// How the bytes of each direction show it, once it is known.
    pub sides: Sides,
    /// Its parser; `None`: it is recognized, and rules inspect its stream.
    pub parser: Option<NewParser>,
    /// What its parser tells apart; `None`: it tells no transactions.
    pub kind: Option<&'static Kind>,
    /// Its client speaks first.
    pub client_first: bool,
    /// Names that older rules have for its events, and what these are called now.
    pub older_events: &'static [(&'static str, &'static str)],
    /// Events that published rules ask for and nothing raises: such a rule loads, with a note, and never matches.
    pub unraised_events: &'static [&'static str],
    /// Records write the names of its events in capitals.
    pub loud: bool,
    /// When rules can be decided, beside the hooks that all protocols have.
    pub hooks: &'static [(&'static str, Direction, Stage)],
    /// States of its transactions that a firewall asks rules in, by direction and in order; each is a hook.
    pub states: [&'static [&'static str]; 2],
    /// Hooks of the language that cannot be told apart here, and why.
    pub no_hooks: &'static [(&'static [&'static str], &'static str)],
    /// Keywords that ask for a number of its transactions.
    pub facts: &'static [Fact],
    /// Its transactions may carry files.
    pub files: bool,
    /// How its transactions are logged.
    pub log: Log,
}

impl Protocol {
    /// What most rows share.
    pub const NONE: Protocol = Protocol {
        app: App::Unknown,
        aliases: &[],
        services: &[],
        carrier: Carrier::Tcp,
        stream: None,
        datagram: None,
        sides: Sides::Either,
        parser: None,
        kind: None,
        client_first: false,
        older_events: &[],
        unraised_events: &[],
        loud: false,
        hooks: &[],
        states: [
            &["request_started", "request_complete"],
            &["response_started", "response_complete"],
        ],
        no_hooks: &[],
        facts: &[],
        files: false,
        log: Log {
            name: None,
            chosen: None,
            in_order: true,
            numbered: true,
            direction: |_, _| Direction::ToServer,
        },
    };

    /// The name under which its records stand.
    pub fn record(&self) -> &'static str {
        self.log.name.unwrap_or(self.app.name())
    }

    /// The word that chooses its records in a list of types.
    pub fn chosen(&self) -> &'static str {
        self.log.chosen.unwrap_or(self.record())
    }

    /// When a rule with a hook is decided.
    pub fn hook(&self, name: &str) -> Option<(Direction, Stage)> {
        let mut hooks = self.hooks.iter().chain(&COMMON_HOOKS);
        let (_, direction, stage) = hooks.find(|(hook, ..)| *hook == name)?;
        Some((*direction, *stage))
    }

    /// Which state of a direction a hook names, from 0: one of the list, or by the name that all protocols have for the first.
    pub fn state(&self, direction: Direction, name: &str) -> Option<u8> {
        let list = *direction.of(&self.states);
        let first = |n: &str| n.ends_with("_started") || n.ends_with("_in_progress");
        let at = list.iter().position(|state| *state == name);
        let at = at.or_else(|| first(name).then_some(0))?;
        u8::try_from(at).ok()
    }

    /// Whether TCP or UDP carries transactions that a parser tells apart.
    pub fn is_parsed(&self, tcp: bool) -> bool {
        self.kind.is_some() && self.carrier.has(tcp)
    }

    /// The name of its counters: of those that TCP and UDP carry there are two.
    pub fn counter(&self, tcp: bool) -> String {
        match self.carrier {
            Carrier::Both => both_counter(self.app, tcp),
            Carrier::Tcp | Carrier::Udp => self.app.name().to_owned(),
        }
    }
}

/// Hooks that transactions of all protocols have.
pub const COMMON_HOOKS: [(&str, Direction, Stage); 4] = [
    ("request_started", Direction::ToServer, Stage::Begun),
    ("response_started", Direction::ToClient, Stage::Begun),
    ("request_complete", Direction::ToServer, Stage::Over),
    ("response_complete", Direction::ToClient, Stage::Over),
];

/// The name of a counter of what both TCP and UDP carry.
pub fn both_counter(app: App, tcp: bool) -> String {
    format!("{}_{}", app.name(), if tcp { "tcp" } else { "udp" })
}

/// What carries a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// Either.
    Both,
}

impl Carrier {
    /// Whether TCP, or else UDP, is one.
    pub fn has(self, tcp: bool) -> bool {
        match self {
            Carrier::Tcp => tcp,
            Carrier::Udp => !tcp,
            Carrier::Both => true,
        }
    }
}

/// How the bytes of each direction of a stream show a protocol that the other one has shown.
#[derive(Clone, Copy)]
pub enum Sides {
    /// Most answers have no pattern of their own.
    Either,
    /// Both ends say what they speak: a direction that does not is an anomaly.
    Both,
    /// As [`Sides::Both`], by a test: whether the first bytes of a direction are, as far as they go, an ordinary beginning.
    Like(fn(Direction, &[u8]) -> bool),
}

/// How transactions are logged.
#[derive(Clone, Copy)]
pub struct Log {
    /// The name of their records, where it is not the protocol's.
    pub name: Option<&'static str>,
    /// The word that chooses them in a list of types, where it is not that name.
    pub chosen: Option<&'static str>,
    /// A transaction is logged behind those that began before it: messages follow each other. Else when it is done.
    pub in_order: bool,
    /// Records have `tx_id`.
    pub numbered: bool,
    /// Which way a record goes, given that of the packet that it comes with.
    pub direction: fn(&Transaction, Direction) -> Direction,
}

/// A keyword that asks for a number of a transaction (`Transaction::facts`).
#[derive(Clone, Copy, Debug)]
pub struct Fact {
    /// The keyword.
    pub keyword: &'static str,
    /// Other names of the keyword.
    pub aliases: &'static [&'static str],
    /// The name under which the parser notes the number, where it is not the keyword's.
    pub fact: Option<&'static str>,
    /// How the number is written.
    pub written: Written,
    /// It is of the client's turn, and of nothing that the server says.
    pub request: bool,
    /// It is known when the server's turn is over, and not before.
    pub answer: bool,
    /// What it is, for docs/sensor-rules.md.
    pub what: &'static str,
}

impl Fact {
    /// What most facts share.
    pub const NONE: Fact = Fact {
        keyword: "",
        aliases: &[],
        fact: None,
        written: Written::Number(&[]),
        request: false,
        answer: false,
        what: "",
    };

    /// The name under which the parser notes the number.
    pub fn name(&self) -> &'static str {
        self.fact.unwrap_or(self.keyword)
    }
}

/// The number of something that does not tell one: it keeps the place of it among others.
pub const UNTOLD: u64 = u64::MAX;

/// How rules write a number.
#[derive(Clone, Copy, Debug)]
pub enum Written {
    /// Exact, a range, or one of these names.
    Number(&'static [(&'static str, u64)]),
    /// A number or a range, of which `a<>b` has its ends.
    Inclusive,
    /// One of these words, and behind it what its number is: `>n`, `<n`, `=n`, a range, or nothing. The parser notes the word's number above the lower 32 bits.
    Keyed(&'static [(&'static str, u64)]),
    /// Numbers and ranges with commas between them: one of them.
    List,
    /// Exact, a range, or one of these names; behind a comma which of several numbers it is about: its place, from the end if it is negative, `any` or `all`.
    Placed(&'static [(&'static str, u64)]),
    /// Two numbers of a byte with a comma between them, which the parser notes as one of two bytes.
    Pair,
    /// Names with commas or blanks between them: one of them.
    Choice(&'static [(&'static str, u64)]),
    /// One of these words.
    Word(&'static [(&'static str, u64)]),
    /// Bits by name, with commas between them: all of them are set in one number, and none of those with `!`.
    Flags(&'static [(&'static str, u64)]),
    /// The same, or one number.
    Bits(&'static [(&'static str, u64)]),
    /// Numbers and names with commas or blanks between them: one of them. Some words are short for several ranges.
    Names(
        &'static [(&'static str, u64)],
        &'static [(&'static str, &'static [(u64, u64)])],
    ),
    /// One of these names, an equals sign, and the number that it has; the parser notes name and number as one, 32 bits each.
    Attribute(&'static [(&'static str, u64)]),
    /// One to three numbers with commas between them, by the facts for one, two and three of them: 16 bits of the last, 16 of the one before (32 where it is the last).
    Steps([&'static str; 3]),
    /// A date: seconds since 1970.
    Date,
    /// Without a value; it is there or not.
    Bare,
}

/// Makes a parser.
pub type NewParser = fn(&Start<'_>) -> Box<dyn Parser>;

/// What a parser begins with.
pub struct Start<'a> {
    /// Of a stream, rather than of datagrams.
    pub stream: bool,
    /// What it is asked for.
    pub asked: &'a Asked,
    /// The announcement of another flow that its flow was known by.
    pub expected: Option<&'a Expected>,
    /// The request of HTTP/1 that its flow began as.
    pub upgraded: Option<&'a Upgrade>,
}

/// A parser of one flow. Nothing it is given may panic it; what it cannot understand it counts as an event of the transaction.
pub trait Parser: Send {
    /// The next bytes of a stream in one direction, or one datagram.
    fn data(&mut self, direction: Direction, bytes: &[u8], time: u64, out: &mut Transactions);

    /// So many bytes of a stream were lost.
    fn gap(&mut self, direction: Direction, length: u64, out: &mut Transactions);

    /// The stream has ended in one direction: what waits for more is complete now.
    fn end(&mut self, direction: Direction, out: &mut Transactions);

    /// Memory it holds, bytes, for the cap of all parsers.
    fn memory(&self) -> usize;

    /// Whether the last message of a direction is over and nothing of the next has come. `false` where messages are not told apart.
    fn is_between(&self, _: Direction) -> bool {
        false
    }
}
