//! Words to conditions: how they are joined, the qualifiers, and hosts, nets and ports with them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::condition::{Relation, Side, Test, Value};
use super::words::{is_operator, number, port, words};
use super::{Expression, FilterError};

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
pub(super) const MOST_DEEP: u32 = 64;

pub(super) struct Parser<'a> {
    text: &'a str,
    words: Vec<(usize, String)>,
    pub(super) at: usize,
    tags: u8,
    side: Option<Side>,
    kind: Kind,
    protocol: Option<String>,
    pub(super) depth: u32,
}

/// What a filter asks.
pub(super) fn parse(text: &str) -> Result<Expression, FilterError> {
    let words = words(text)?;
    if let Some((at, _)) = words.get(MOST_WORDS) {
        return Err(FilterError {
            text: text.to_owned(),
            at: *at,
            message: format!("a filter has at most {MOST_WORDS} words"),
        });
    }
    if words.is_empty() {
        return Ok(Expression::Test(0, Test::Any));
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
    let root = parser.alternatives()?;
    match parser.words.get(parser.at) {
        None => Ok(root),
        Some(_) => Err(parser.wrong("nothing is expected here: join conditions by `and` or `or`")),
    }
}

impl Parser<'_> {
    pub(super) fn wrong(&self, message: &str) -> FilterError {
        let at = self.words.get(self.at).map_or(self.text.len(), |w| w.0);
        FilterError {
            text: self.text.to_owned(),
            at,
            message: message.to_owned(),
        }
    }

    pub(super) fn peek(&self) -> &str {
        self.words.get(self.at).map_or("", |w| w.1.as_str())
    }

    pub(super) fn take(&mut self, word: &str) -> bool {
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
    pub(super) fn alternatives(&mut self) -> Result<Expression, FilterError> {
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

    pub(super) fn test(&self, test: Test) -> Expression {
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
            return Err(self.wrong("unknown condition"));
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
}
