//! Capture filters in the syntax of tcpdump (pcap-filter(7)), decided on frames as they are read, of files and interfaces alike.
//!
//! The subset: hosts, nets, ports and port ranges with `src`, `dst`, `src or dst`, `src and dst`; protocols (`ip ip6 arp rarp tcp udp sctp icmp icmp6`, `ip proto`, `ip6 proto`,
//! `ether proto`); `ether host|src|dst`; `vlan [ID]`, which moves what stands right of it behind the tag, as there; `broadcast`, `multicast`; `less`, `greater`;
//! comparisons of `len` and of bytes (`tcp[13] & 2 != 0`, `ip[6:2]`, names of TCP flags and ICMP types). Names of hosts are not looked up. What is not known is an error with its place.
//! As there, tags are not looked under without `vlan`, ports are those of unfragmented or first fragments, and `ip6` protocols those of the first header (or behind one fragment header).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::steer::link;

/// A filter.
#[derive(Clone, Debug)]
pub struct Filter {
    root: Expression,
}

/// A filter that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("capture filter: {message}\n    {text}\n    {:>width$}", "^", width = at + 1)]
pub struct FilterError {
    /// The filter as written.
    pub text: String,
    /// Where: bytes from its start.
    pub at: usize,
    /// What is wrong.
    pub message: String,
}

#[derive(Clone, Debug)]
enum Expression {
    And(Box<(Expression, Expression)>),
    Or(Box<(Expression, Expression)>),
    Not(Box<Expression>),
    /// With how many tags are left out first.
    Test(u8, Test),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Source,
    Destination,
    Either,
    Both,
}

#[derive(Clone, Debug)]
enum Test {
    /// Always.
    Any,
    EtherType(u16),
    /// IPv4 or IPv6 of either with this protocol.
    Protocol(u8),
    Protocol4(u8),
    Protocol6(u8),
    /// Addresses, with their mask; of IPv4 also ARP's.
    Net(Side, u128, u128, bool),
    /// Only of what carries these protocols; empty: TCP, UDP, SCTP.
    Port(Side, Option<u8>, u16, u16),
    Mac(Side, [u8; 6]),
    /// There is a tag at this depth, with this number.
    Vlan(Option<u16>),
    EtherBroadcast,
    EtherMulticast,
    IpMulticast,
    /// Words of arithmetic.
    Compare(Value, Relation, Value),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Less,
    Greater,
    LessEqual,
    GreaterEqual,
    Equal,
    NotEqual,
}

#[derive(Clone, Debug)]
enum Value {
    Number(u32),
    Length,
    Load(Layer, Box<Value>, u8),
    Binary(Operator, Box<(Value, Value)>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    And,
    Or,
    Xor,
    Left,
    Right,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layer {
    Ether,
    Ip,
    Ip6,
    Arp,
    /// The payload of unfragmented IPv4 packets of a protocol.
    Transport(u8),
}

/// What a frame is at one depth of tags.
struct View<'a> {
    frame: &'a [u8],
    wire: u32,
    ether: bool,
    kind: u16,
    /// What follows the link header.
    network: &'a [u8],
}

impl<'a> View<'a> {
    fn new(link_type: u16, frame: &'a [u8], wire: u32, tags: u8) -> Option<View<'a>> {
        let be = |at: usize| half(frame, at);
        let ip = |at: usize| match frame.get(at).map(|b| b >> 4) {
            Some(4) => 0x0800,
            Some(6) => 0x86dd,
            _ => 0,
        };
        let (kind, mut at, ether) = match link_type {
            link::ETHERNET => (be(12)?, 14, true),
            link::SLL => (be(14)?, 16, false),
            link::SLL2 => (be(0)?, 20, false),
            link::NULL | link::LOOP => (ip(4), 4, false),
            link::RAW | link::RAW_BSD | link::RAW_OPENBSD | link::IPV4 | link::IPV6 => {
                (ip(0), 0, false)
            }
            link::PPP => (ip(4), 4, false),
            _ => (0, 0, false),
        };
        let mut kind = kind;
        for _ in 0..tags {
            if !is_tag(kind) {
                return None;
            }
            kind = be(at + 2)?;
            at += 4;
        }
        Some(View {
            frame,
            wire,
            ether,
            kind,
            network: frame.get(at..).unwrap_or_default(),
        })
    }

    fn v4(&self) -> Option<&'a [u8]> {
        (self.kind == 0x0800 && self.network.len() >= 20).then_some(self.network)
    }

    fn v6(&self) -> Option<&'a [u8]> {
        (self.kind == 0x86dd && self.network.len() >= 40).then_some(self.network)
    }

    /// What IPv4's payload is, if it is the first fragment.
    fn payload4(&self) -> Option<(u8, &'a [u8])> {
        let ip = self.v4()?;
        (half(ip, 6)? & 0x1fff == 0).then_some(())?;
        Some((ip[9], ip.get(usize::from(ip[0] & 15) * 4..)?))
    }

    fn protocol(&self, wanted: u8) -> bool {
        self.protocol4(wanted) || self.protocol6(wanted)
    }

    fn protocol4(&self, wanted: u8) -> bool {
        self.v4().is_some_and(|ip| ip[9] == wanted)
    }

    fn protocol6(&self, wanted: u8) -> bool {
        self.v6()
            .is_some_and(|ip| ip[6] == wanted || (ip[6] == 44 && ip.get(40) == Some(&wanted)))
    }

    fn addresses(&self) -> Option<(u128, u128, bool)> {
        if let Some(ip) = self.v4() {
            return Some((u128::from(word(ip, 12)?), u128::from(word(ip, 16)?), true));
        }
        if let Some(ip) = self.v6() {
            let address = |at: usize| {
                ip.get(at..)?
                    .first_chunk::<16>()
                    .map(|b| u128::from_be_bytes(*b))
            };
            return Some((address(8)?, address(24)?, false));
        }
        // ARP and RARP for IPv4: sender and target.
        if matches!(self.kind, 0x0806 | 0x8035) {
            return Some((
                u128::from(word(self.network, 14)?),
                u128::from(word(self.network, 24)?),
                true,
            ));
        }
        None
    }

    fn ports(&self) -> Option<(u8, u16, u16)> {
        let (protocol, payload) = match self.v6() {
            Some(ip) => (ip[6], &ip[40..]),
            None => self.payload4()?,
        };
        matches!(protocol, 6 | 17 | 132).then_some(())?;
        Some((protocol, half(payload, 0)?, half(payload, 2)?))
    }

    fn layer(&self, layer: Layer) -> Option<&'a [u8]> {
        match layer {
            Layer::Ether => Some(self.frame),
            Layer::Ip => self.v4(),
            Layer::Ip6 => self.v6(),
            Layer::Arp => (self.kind == 0x0806).then_some(self.network),
            Layer::Transport(58) => self.v6().filter(|ip| ip[6] == 58).map(|ip| &ip[40..]),
            Layer::Transport(wanted) => self
                .payload4()
                .filter(|(p, _)| *p == wanted)
                .map(|(_, payload)| payload),
        }
    }
}

fn is_tag(kind: u16) -> bool {
    matches!(kind, 0x8100 | 0x88a8 | 0x9100)
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes
        .get(at..)?
        .first_chunk::<2>()
        .map(|b| u16::from_be_bytes(*b))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes
        .get(at..)?
        .first_chunk::<4>()
        .map(|b| u32::from_be_bytes(*b))
}

impl Side {
    fn holds<T: Copy>(self, source: T, destination: T, test: impl Fn(T) -> bool) -> bool {
        match self {
            Side::Source => test(source),
            Side::Destination => test(destination),
            Side::Either => test(source) || test(destination),
            Side::Both => test(source) && test(destination),
        }
    }
}

impl Value {
    /// `None`: the frame ends before what is asked for, or a division by 0; the comparison does not hold then.
    fn of(&self, view: &View<'_>) -> Option<u32> {
        Some(match self {
            Value::Number(n) => *n,
            Value::Length => view.wire,
            Value::Load(layer, at, size) => {
                let bytes = view.layer(*layer)?;
                let at = at.of(view)? as usize;
                match size {
                    1 => u32::from(*bytes.get(at)?),
                    2 => u32::from(half(bytes, at)?),
                    _ => word(bytes, at)?,
                }
            }
            Value::Binary(operator, both) => {
                let (a, b) = (both.0.of(view)?, both.1.of(view)?);
                match operator {
                    Operator::Add => a.wrapping_add(b),
                    Operator::Subtract => a.wrapping_sub(b),
                    Operator::Multiply => a.wrapping_mul(b),
                    Operator::Divide => a.checked_div(b)?,
                    Operator::Modulo => a.checked_rem(b)?,
                    Operator::And => a & b,
                    Operator::Or => a | b,
                    Operator::Xor => a ^ b,
                    Operator::Left => a.checked_shl(b).unwrap_or(0),
                    Operator::Right => a.checked_shr(b).unwrap_or(0),
                }
            }
        })
    }
}

impl Test {
    fn holds(&self, view: &View<'_>) -> bool {
        match self {
            Test::Any => true,
            Test::EtherType(kind) => view.kind == *kind,
            Test::Protocol(p) => view.protocol(*p),
            Test::Protocol4(p) => view.protocol4(*p),
            Test::Protocol6(p) => view.protocol6(*p),
            Test::Net(side, net, mask, v4) => view.addresses().is_some_and(|(s, d, is_v4)| {
                is_v4 == *v4 && side.holds(s, d, |a| a & mask == *net)
            }),
            Test::Port(side, protocol, low, high) => view.ports().is_some_and(|(p, s, d)| {
                protocol.is_none_or(|wanted| wanted == p)
                    && side.holds(s, d, |port| (*low..=*high).contains(&port))
            }),
            Test::Mac(side, mac) => {
                let both = view.frame.get(6..12).zip(view.frame.get(..6));
                view.ether && both.is_some_and(|(s, d)| side.holds(s, d, |m| m == mac))
            }
            Test::Vlan(id) => {
                is_tag(view.kind)
                    && id
                        .is_none_or(|id| half(view.network, 0).is_some_and(|tci| tci & 0xfff == id))
            }
            Test::EtherBroadcast => view.ether && view.frame.starts_with(&[0xff; 6]),
            Test::EtherMulticast => view.ether && view.frame.first().is_some_and(|b| b & 1 != 0),
            Test::IpMulticast => {
                view.v4().is_some_and(|ip| ip[16] >= 224)
                    || view.v6().is_some_and(|ip| ip[24] == 255)
            }
            Test::Compare(a, relation, b) => {
                a.of(view)
                    .zip(b.of(view))
                    .is_some_and(|(a, b)| match relation {
                        Relation::Less => a < b,
                        Relation::Greater => a > b,
                        Relation::LessEqual => a <= b,
                        Relation::GreaterEqual => a >= b,
                        Relation::Equal => a == b,
                        Relation::NotEqual => a != b,
                    })
            }
        }
    }
}

impl Filter {
    /// Reads a filter. An empty one takes everything.
    ///
    /// # Errors
    /// It is not of the subset; says where.
    pub fn parse(text: &str) -> Result<Filter, FilterError> {
        let words = words(text)?;
        if let Some((at, _)) = words.get(MOST_WORDS) {
            return Err(FilterError {
                text: text.to_owned(),
                at: *at,
                message: format!("a filter has at most {MOST_WORDS} words"),
            });
        }
        let mut parser = Parser {
            text,
            words,
            at: 0,
            tags: 0,
            side: None,
            kind: Kind::Host,
            protocol: None,
            depth: 0,
        };
        if parser.words.is_empty() {
            return Ok(Filter {
                root: Expression::Test(0, Test::Any),
            });
        }
        let root = parser.alternatives()?;
        match parser.words.get(parser.at) {
            None => Ok(Filter { root }),
            Some(_) => {
                Err(parser.wrong("nothing is expected here: join conditions by `and` or `or`"))
            }
        }
    }

    /// Whether a frame passes. `wire`: its length before it was cut.
    pub fn takes(&self, link_type: u16, frame: &[u8], wire: u32) -> bool {
        fn holds(expression: &Expression, link_type: u16, frame: &[u8], wire: u32) -> bool {
            let on = |e| holds(e, link_type, frame, wire);
            match expression {
                Expression::And(both) => on(&both.0) && on(&both.1),
                Expression::Or(both) => on(&both.0) || on(&both.1),
                Expression::Not(inner) => !on(inner),
                Expression::Test(tags, test) => {
                    View::new(link_type, frame, wire, *tags).is_some_and(|view| test.holds(&view))
                }
            }
        }
        // As there, a frame that ends inside its link header passes no filter, negated ones neither.
        matches!(self.root, Expression::Test(_, Test::Any))
            || View::new(link_type, frame, wire, 0).is_some()
                && holds(&self.root, link_type, frame, wire)
    }
}

/// What a bare value after `host 10.0.0.1 or` means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Host,
    Net,
    Port,
    PortRange,
}

/// Words of a filter: conditions that are joined are nested inside, which takes stack.
const MOST_WORDS: usize = 2000;
/// Expressions may be nested so deep.
const MOST_DEEP: u32 = 64;

struct Parser<'a> {
    text: &'a str,
    words: Vec<(usize, String)>,
    at: usize,
    tags: u8,
    side: Option<Side>,
    kind: Kind,
    protocol: Option<String>,
    depth: u32,
}

/// Words with their places. Operators are words of their own.
fn words(text: &str) -> Result<Vec<(usize, String)>, FilterError> {
    let bytes = text.as_bytes();
    let (mut words, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let start = at;
        let byte = bytes[at];
        if byte.is_ascii_whitespace() {
            at += 1;
            continue;
        }
        let two = bytes.get(at..at + 2).unwrap_or_default();
        if matches!(
            two,
            b"&&" | b"||" | b"!=" | b"<=" | b">=" | b"==" | b"<<" | b">>"
        ) {
            at += 2;
        } else if b"()[]!<>=&|^+*/%".contains(&byte) {
            at += 1;
        } else if byte.is_ascii_alphanumeric() || b".:-_\\".contains(&byte) {
            while at < bytes.len()
                && (bytes[at].is_ascii_alphanumeric() || b".:_-\\".contains(&bytes[at]))
            {
                at += 1;
            }
        } else {
            return Err(FilterError {
                text: text.to_owned(),
                at,
                message: "this character has no meaning in a filter".to_owned(),
            });
        }
        words.push((start, text[start..at].trim_start_matches('\\').to_owned()));
    }
    Ok(words)
}

impl Parser<'_> {
    fn wrong(&self, message: &str) -> FilterError {
        let at = self.words.get(self.at).map_or(self.text.len(), |w| w.0);
        FilterError {
            text: self.text.to_owned(),
            at,
            message: message.to_owned(),
        }
    }

    fn peek(&self) -> &str {
        self.words.get(self.at).map_or("", |w| w.1.as_str())
    }

    fn take(&mut self, word: &str) -> bool {
        let found = self.peek() == word;
        self.at += usize::from(found);
        found
    }

    fn next(&mut self, what: &str) -> Result<String, FilterError> {
        let word = self.peek().to_owned();
        if word.is_empty() {
            return Err(self.wrong(&format!("{what} is expected")));
        }
        self.at += 1;
        Ok(word)
    }

    /// `and` and `or` bind alike and to the left, as in pcap-filter(7).
    fn alternatives(&mut self) -> Result<Expression, FilterError> {
        self.depth += 1;
        if self.depth > MOST_DEEP {
            return Err(self.wrong("too many parentheses"));
        }
        let mut left = self.negation()?;
        loop {
            if self.take("and") || self.take("&&") {
                left = Expression::And(Box::new((left, self.negation()?)));
            } else if self.take("or") || self.take("||") {
                left = Expression::Or(Box::new((left, self.negation()?)));
            } else {
                self.depth -= 1;
                return Ok(left);
            }
        }
    }

    fn negation(&mut self) -> Result<Expression, FilterError> {
        let mut negated = false;
        while self.take("not") || self.take("!") {
            negated = !negated;
        }
        let inner = if self.peek() == "(" && !self.is_arithmetic() {
            self.at += 1;
            let inner = self.alternatives()?;
            if !self.take(")") {
                return Err(self.wrong("`)` is expected"));
            }
            inner
        } else {
            self.primitive()?
        };
        Ok(if negated {
            Expression::Not(Box::new(inner))
        } else {
            inner
        })
    }

    /// Whether a parenthesis opens arithmetic: a comparison follows where it closes.
    fn is_arithmetic(&self) -> bool {
        let mut depth = 0;
        for (n, (_, word)) in self.words.iter().enumerate().skip(self.at) {
            match word.as_str() {
                "(" => depth += 1,
                ")" => {
                    depth -= 1;
                    if depth == 0 {
                        let next = self.words.get(n + 1).map_or("", |w| w.1.as_str());
                        return [
                            "<", ">", "=", "==", "!=", "<=", ">=", "&", "|", "^", "+", "-", "*",
                            "/", "%", "<<", ">>",
                        ]
                        .contains(&next);
                    }
                }
                _ => {}
            }
        }
        false
    }

    fn test(&self, test: Test) -> Expression {
        Expression::Test(self.tags, test)
    }

    fn primitive(&mut self) -> Result<Expression, FilterError> {
        let word = self.peek().to_owned();
        let after = self
            .words
            .get(self.at + 1)
            .map_or("", |w| w.1.as_str())
            .to_owned();
        if after == "["
            || word == "len"
            || word == "("
            || number(&word).is_some() && is_operator(&after)
        {
            return self.comparison();
        }
        match word.as_str() {
            "" => return Err(self.wrong("a condition is expected")),
            "vlan" => {
                self.at += 1;
                let id = match number(self.peek()) {
                    Some(id) if id < 4096 => {
                        self.at += 1;
                        Some(id as u16)
                    }
                    Some(_) => return Err(self.wrong("VLAN identifiers are less than 4096")),
                    None => None,
                };
                let test = self.test(Test::Vlan(id));
                self.tags = self.tags.saturating_add(1);
                return Ok(test);
            }
            "less" | "greater" => {
                self.at += 1;
                let n = self.number()?;
                let relation = if word == "less" {
                    Relation::LessEqual
                } else {
                    Relation::GreaterEqual
                };
                return Ok(self.test(Test::Compare(Value::Length, relation, Value::Number(n))));
            }
            "broadcast" | "multicast" => {
                self.at += 1;
                return Ok(self.test(if word == "broadcast" {
                    Test::EtherBroadcast
                } else {
                    Test::EtherMulticast
                }));
            }
            "ether" => return self.ether(),
            _ => {}
        }
        let protocol = matches!(
            word.as_str(),
            "ip" | "ip6" | "arp" | "rarp" | "tcp" | "udp" | "sctp" | "icmp" | "icmp6"
        )
        .then(|| {
            self.at += 1;
            word.clone()
        });
        if let Some(name) = &protocol {
            if matches!(name.as_str(), "ip" | "ip6") {
                if self.take("proto") {
                    let n = self.protocol_number()?;
                    return Ok(self.test(if name == "ip" {
                        Test::Protocol4(n)
                    } else {
                        Test::Protocol6(n)
                    }));
                }
                if self.take("multicast") {
                    let test = self.test(Test::IpMulticast);
                    return Ok(Expression::And(Box::new((self.of_protocol(name), test))));
                }
            }
            let word = self.peek();
            if !matches!(word, "src" | "dst" | "host" | "net" | "port" | "portrange") {
                return Ok(self.of_protocol(name));
            }
        }
        let qualified = protocol.is_some()
            || matches!(
                word.as_str(),
                "src" | "dst" | "host" | "net" | "port" | "portrange"
            );
        if word == "proto" {
            self.at += 1;
            let n = self.protocol_number()?;
            return Ok(self.test(Test::Protocol(n)));
        }
        if qualified {
            // A qualifier holds for the values that follow it by `or`, until the next one.
            self.protocol = protocol;
            self.side = self.side()?;
            self.kind = Kind::Host;
            for (name, kind) in [
                ("host", Kind::Host),
                ("net", Kind::Net),
                ("port", Kind::Port),
                ("portrange", Kind::PortRange),
            ] {
                if self.take(name) {
                    self.kind = kind;
                }
            }
        } else if self.at == 0 && !word.starts_with(|c: char| c.is_ascii_hexdigit() || c == ':') {
            return Err(self.wrong("this is no condition that is known"));
        }
        self.value()
    }

    fn side(&mut self) -> Result<Option<Side>, FilterError> {
        let first = match self.peek() {
            "src" => Side::Source,
            "dst" => Side::Destination,
            _ => return Ok(None),
        };
        self.at += 1;
        let joined = self.peek().to_owned();
        let other = self.words.get(self.at + 1).map_or("", |w| w.1.as_str());
        if matches!(joined.as_str(), "or" | "and" | "||" | "&&") && matches!(other, "src" | "dst") {
            // `src port 1 or dst port 2` is two conditions; `src or dst port 1` is one.
            let third = self.words.get(self.at + 2).map_or("", |w| w.1.as_str());
            let same = (other == "src") == (first == Side::Source);
            if same || third.is_empty() {
                return Err(self.wrong("write `src or dst` or `src and dst`"));
            }
            self.at += 2;
            return Ok(Some(if matches!(joined.as_str(), "or" | "||") {
                Side::Either
            } else {
                Side::Both
            }));
        }
        Ok(Some(first))
    }

    fn of_protocol(&self, name: &str) -> Expression {
        self.test(match name {
            "ip" => Test::EtherType(0x0800),
            "ip6" => Test::EtherType(0x86dd),
            "arp" => Test::EtherType(0x0806),
            "rarp" => Test::EtherType(0x8035),
            "tcp" => Test::Protocol(6),
            "udp" => Test::Protocol(17),
            "sctp" => Test::Protocol(132),
            "icmp" => Test::Protocol4(1),
            _ => Test::Protocol6(58),
        })
    }

    fn value(&mut self) -> Result<Expression, FilterError> {
        let side = self.side.unwrap_or(Side::Either);
        let place = self.at;
        let word = self.next("an address or a port")?;
        let back = |parser: &mut Self, message: &str| {
            parser.at = place;
            Err(parser.wrong(message))
        };
        match self.kind {
            Kind::Host | Kind::Net => {
                let mut prefix = None;
                let mut mask = None;
                if self.kind == Kind::Net {
                    if self.take("/") {
                        prefix = Some(self.number()?);
                    } else if self.take("mask") {
                        let written = self.next("a mask")?;
                        let Ok(m) = written.parse::<Ipv4Addr>() else {
                            self.at -= 1;
                            return Err(self.wrong("a mask is written as 255.255.0.0"));
                        };
                        mask = Some(u32::from(m));
                    }
                }
                let address = match (word.parse::<IpAddr>(), self.kind) {
                    (Ok(address), _) => address,
                    // 10.1 is the net 10.1.0.0/16.
                    (Err(_), Kind::Net) => {
                        let parts: Option<Vec<u8>> =
                            word.split('.').map(|p| p.parse().ok()).collect();
                        let Some(parts) = parts.filter(|p| p.len() < 4) else {
                            return back(self, "an address is expected; names are not looked up");
                        };
                        let mut octets = [0; 4];
                        octets[..parts.len()].copy_from_slice(&parts);
                        prefix = prefix.or(Some(parts.len() as u32 * 8));
                        IpAddr::V4(Ipv4Addr::from(octets))
                    }
                    (Err(_), _) => {
                        return back(self, "an address is expected; names are not looked up");
                    }
                };
                let (net, mask, v4) = match address {
                    IpAddr::V4(a) => {
                        let prefix = prefix.unwrap_or(32);
                        if prefix > 32 {
                            return back(self, "an IPv4 prefix has at most 32 bits");
                        }
                        let mask = mask.unwrap_or(u32::MAX.checked_shl(32 - prefix).unwrap_or(0));
                        (u128::from(u32::from(a)), u128::from(mask), true)
                    }
                    IpAddr::V6(a) => {
                        let prefix = prefix.unwrap_or(128);
                        if prefix > 128 || mask.is_some() {
                            return back(self, "an IPv6 prefix has at most 128 bits, and no mask");
                        }
                        (
                            u128::from(Ipv6Addr::from(a.octets())),
                            u128::MAX.checked_shl(128 - prefix).unwrap_or(0),
                            false,
                        )
                    }
                };
                if net & !mask != 0 {
                    return back(self, "the address has bits outside of its net");
                }
                let test = self.test(Test::Net(side, net, mask, v4));
                Ok(match self.protocol.as_deref() {
                    None => test,
                    Some(name @ ("ip" | "ip6" | "arp" | "rarp")) => {
                        Expression::And(Box::new((self.of_protocol(name), test)))
                    }
                    Some(name) => {
                        let message = format!("`{name}` has no hosts: write `{name} and host ...`");
                        return back(self, &message);
                    }
                })
            }
            Kind::Port | Kind::PortRange => {
                let range = word.split_once('-').unwrap_or((&word, &word));
                let both = (port(range.0), port(range.1));
                let (Some(low), Some(high)) = both else {
                    return back(
                        self,
                        "a port is expected, a number or one of the usual names",
                    );
                };
                if self.kind == Kind::Port && low != high {
                    return back(self, "write `portrange` in front of a range");
                }
                let protocol = match self.protocol.as_deref() {
                    None => None,
                    Some("tcp") => Some(6),
                    Some("udp") => Some(17),
                    Some("sctp") => Some(132),
                    Some("ip" | "ip6") => {
                        let of = self.of_protocol(self.protocol.as_deref().unwrap_or_default());
                        let test = self.test(Test::Port(side, None, low.min(high), low.max(high)));
                        return Ok(Expression::And(Box::new((of, test))));
                    }
                    Some(name) => {
                        let message = format!("`{name}` has no ports");
                        return back(self, &message);
                    }
                };
                Ok(self.test(Test::Port(side, protocol, low.min(high), low.max(high))))
            }
        }
    }

    fn ether(&mut self) -> Result<Expression, FilterError> {
        self.at += 1;
        if self.take("proto") {
            let word = self.next("an EtherType")?;
            let kind = match word.as_str() {
                "ip" => 0x0800,
                "ip6" => 0x86dd,
                "arp" => 0x0806,
                "rarp" => 0x8035,
                other => match number(other).and_then(|n| u16::try_from(n).ok()) {
                    Some(n) => n,
                    None => {
                        self.at -= 1;
                        return Err(self.wrong("an EtherType is expected"));
                    }
                },
            };
            return Ok(self.test(Test::EtherType(kind)));
        }
        if self.take("broadcast") {
            return Ok(self.test(Test::EtherBroadcast));
        }
        if self.take("multicast") {
            return Ok(self.test(Test::EtherMulticast));
        }
        let side = self.side()?.unwrap_or(Side::Either);
        self.take("host");
        let word = self.next("a hardware address")?;
        let parts: Option<Vec<u8>> = word
            .split([':', '-'])
            .map(|p| u8::from_str_radix(p, 16).ok())
            .collect();
        match parts.and_then(|p| <[u8; 6]>::try_from(p).ok()) {
            Some(mac) => Ok(self.test(Test::Mac(side, mac))),
            None => {
                self.at -= 1;
                Err(self.wrong("a hardware address is expected, as 02:00:00:00:00:01"))
            }
        }
    }

    fn number(&mut self) -> Result<u32, FilterError> {
        match number(self.peek()) {
            Some(n) => {
                self.at += 1;
                Ok(n)
            }
            None => Err(self.wrong("a number is expected")),
        }
    }

    fn protocol_number(&mut self) -> Result<u8, FilterError> {
        let known = match self.peek() {
            "icmp" => Some(1),
            "igmp" => Some(2),
            "tcp" => Some(6),
            "udp" => Some(17),
            "gre" => Some(47),
            "esp" => Some(50),
            "ah" => Some(51),
            "icmp6" => Some(58),
            "sctp" => Some(132),
            other => number(other).and_then(|n| u8::try_from(n).ok()),
        };
        match known {
            Some(n) => {
                self.at += 1;
                Ok(n)
            }
            None => Err(self.wrong("a protocol is expected, a number up to 255 or its name")),
        }
    }

    fn comparison(&mut self) -> Result<Expression, FilterError> {
        let left = self.arithmetic(0)?;
        let relation = match self.peek() {
            "<" => Relation::Less,
            ">" => Relation::Greater,
            "<=" => Relation::LessEqual,
            ">=" => Relation::GreaterEqual,
            "=" | "==" => Relation::Equal,
            "!=" => Relation::NotEqual,
            _ => return Err(self.wrong("a comparison is expected: = != < > <= >=")),
        };
        self.at += 1;
        let right = self.arithmetic(0)?;
        Ok(self.test(Test::Compare(left, relation, right)))
    }

    /// Weakest first: `| ^`, `&`, shifts, sums, products.
    fn arithmetic(&mut self, level: usize) -> Result<Value, FilterError> {
        const LEVELS: [&[(&str, Operator)]; 5] = [
            &[("|", Operator::Or), ("^", Operator::Xor)],
            &[("&", Operator::And)],
            &[("<<", Operator::Left), (">>", Operator::Right)],
            &[("+", Operator::Add), ("-", Operator::Subtract)],
            &[
                ("*", Operator::Multiply),
                ("/", Operator::Divide),
                ("%", Operator::Modulo),
            ],
        ];
        let Some(operators) = LEVELS.get(level) else {
            return self.operand();
        };
        let mut left = self.arithmetic(level + 1)?;
        loop {
            let Some((_, operator)) = operators.iter().find(|(word, _)| *word == self.peek())
            else {
                return Ok(left);
            };
            self.at += 1;
            let right = self.arithmetic(level + 1)?;
            left = Value::Binary(*operator, Box::new((left, right)));
        }
    }

    fn operand(&mut self) -> Result<Value, FilterError> {
        self.depth += 1;
        if self.depth > MOST_DEEP {
            return Err(self.wrong("too deep"));
        }
        let value = self.operand_inside();
        self.depth -= 1;
        value
    }

    fn operand_inside(&mut self) -> Result<Value, FilterError> {
        if self.take("(") {
            let inner = self.arithmetic(0)?;
            if !self.take(")") {
                return Err(self.wrong("`)` is expected"));
            }
            return Ok(inner);
        }
        if self.take("len") {
            return Ok(Value::Length);
        }
        if let Some(n) = number(self.peek()).or_else(|| named(self.peek())) {
            self.at += 1;
            return Ok(Value::Number(n));
        }
        let layer = match self.peek() {
            "ether" => Layer::Ether,
            "ip" => Layer::Ip,
            "ip6" => Layer::Ip6,
            "arp" => Layer::Arp,
            "tcp" => Layer::Transport(6),
            "udp" => Layer::Transport(17),
            "sctp" => Layer::Transport(132),
            "icmp" => Layer::Transport(1),
            "icmp6" => Layer::Transport(58),
            _ => return Err(self.wrong("a number, `len`, or bytes as in tcp[13] are expected")),
        };
        self.at += 1;
        if !self.take("[") {
            return Err(self.wrong("`[` is expected"));
        }
        // `6:2` comes as one word.
        let (at, size) = match self
            .peek()
            .split_once(':')
            .map(|(a, b)| (number(a), number(b)))
        {
            Some((Some(at), Some(size))) => {
                self.at += 1;
                (Value::Number(at), size)
            }
            Some(_) => return Err(self.wrong("an offset and a size are expected, as in ip[6:2]")),
            None => (self.arithmetic(0)?, 1),
        };
        if !matches!(size, 1 | 2 | 4) {
            return Err(self.wrong("1, 2 or 4 bytes can be read"));
        }
        if !self.take("]") {
            return Err(self.wrong("`]` is expected"));
        }
        Ok(Value::Load(layer, Box::new(at), size as u8))
    }
}

fn is_operator(word: &str) -> bool {
    [
        "<", ">", "=", "==", "!=", "<=", ">=", "&", "|", "^", "+", "-", "*", "%", "<<", ">>",
    ]
    .contains(&word)
}

fn number(word: &str) -> Option<u32> {
    match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => word.parse().ok(),
    }
}

/// Offsets, flags and types that have names.
fn named(word: &str) -> Option<u32> {
    Some(match word {
        "tcpflags" => 13,
        "icmptype" | "icmp6type" => 0,
        "icmpcode" | "icmp6code" => 1,
        "tcp-fin" => 1,
        "tcp-syn" => 2,
        "tcp-rst" => 4,
        "tcp-push" => 8,
        "tcp-ack" => 16,
        "tcp-urg" => 32,
        "tcp-ece" => 64,
        "tcp-cwr" => 128,
        "icmp-echoreply" => 0,
        "icmp-unreach" => 3,
        "icmp-redirect" => 5,
        "icmp-echo" => 8,
        "icmp-timxceed" => 11,
        _ => return None,
    })
}

fn port(word: &str) -> Option<u16> {
    Some(match word {
        "ftp-data" => 20,
        "ftp" => 21,
        "ssh" => 22,
        "telnet" => 23,
        "smtp" => 25,
        "domain" => 53,
        "tftp" => 69,
        "http" => 80,
        "pop3" => 110,
        "ntp" => 123,
        "imap" => 143,
        "snmp" => 161,
        "https" => 443,
        "syslog" => 514,
        other => return other.parse().ok(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_packet::build::Frame;

    fn takes(filter: &str, frame: &Frame) -> bool {
        let bytes = frame.build();
        Filter::parse(filter)
            .expect(filter)
            .takes(1, &bytes, bytes.len() as u32)
    }

    #[test]
    fn what_filters_take() {
        let web = Frame::new()
            .ip4([10, 0, 0, 1], [192, 0, 2, 7])
            .tcp(1024, 80)
            .flags(Frame::SYN);
        for (filter, expected) in [
            ("", true),
            ("tcp", true),
            ("not tcp", false),
            ("! udp", true),
            ("host 10.0.0.1", true),
            ("src host 192.0.2.7", false),
            ("dst 192.0.2.7", true),
            ("src or dst host 192.0.2.7 and src and dst port 80", false),
            ("net 192.0.2.0/24 and port 80", true),
            ("net 10", true),
            ("net 10.0.0.0 mask 255.0.0.0", true),
            ("host 1.2.3.4 or 10.0.0.1", true),
            ("port 81 or 80", true),
            ("tcp dst portrange 70-90", true),
            ("udp port 80", false),
            ("tcp[13] & 2 != 0", true),
            ("tcp[tcpflags] & (tcp-syn|tcp-fin) == tcp-syn", true),
            ("(tcp[tcpflags] & tcp-ack) != 0", false),
            ("ip[6:2] & 0x1fff = 0 and (port 80 or port 443)", true),
            ("ip proto 6", true),
            ("proto udp", false),
            ("less 60", true),
            ("greater 1000", false),
            ("len > 20 && len < 1500", true),
            ("vlan", false),
            ("ip6", false),
            ("ether[0] & 1 = 0", true),
        ] {
            assert_eq!(takes(filter, &web), expected, "{filter}");
        }
        let tagged = Frame::new()
            .vlan(7)
            .ip4([10, 0, 0, 1], [192, 0, 2, 7])
            .udp(1, 53);
        for (filter, expected) in [
            ("udp", false),
            ("vlan", true),
            ("vlan 8", false),
            ("vlan 7 and udp port 53", true),
        ] {
            assert_eq!(takes(filter, &tagged), expected, "{filter}");
        }
        let later = Frame::new()
            .ip4([10, 0, 0, 1], [192, 0, 2, 7])
            .fragment(64, false)
            .protocol(17)
            .payload(&[0, 53, 0, 53]);
        assert!(!takes("port 53", &later) && takes("udp", &later));
    }

    #[test]
    fn mistakes_have_a_place() {
        for (filter, at) in [
            ("tcp and", 7),
            ("port", 4),
            ("host example.org", 5),
            ("tcp prot 80", 4),
            ("(tcp", 4),
            ("tcp[0:3] = 1", 7),
            ("port 80 ; drop", 8),
            ("net 10.0.0.1/8", 4),
            ("gateway x", 0),
        ] {
            let error = Filter::parse(filter).expect_err(filter);
            assert_eq!(error.at, at, "{error}");
        }
        assert!(Filter::parse(&"(".repeat(10_000)).is_err());
        assert!(Filter::parse(&format!("len = {}1", "(".repeat(10_000))).is_err());
    }
}
