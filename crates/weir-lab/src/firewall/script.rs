//! The notation of the firewall bed: cases and policies as text, one packet a line, read into typed steps.
//!
//! The grammar is in docs/firewall-bed.md. Pure: addresses, ports and sequence numbers stay symbolic here; `segment` turns them into bytes.
//! Invariant: text that does not parse is an error with its line, never a step that does less than it says.

use std::time::Duration;

/// A host of the bed, or a role in a case's flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Host {
    /// Who opens the flow of the policy.
    Opener,
    /// Who answers it.
    Responder,
    /// Inside.
    C,
    /// Inside.
    D,
    /// Outside.
    S,
    /// Outside.
    T,
    /// Outside: knows addresses and ports, sees no packets.
    X,
    /// The public address of the case.
    P,
    /// A second public address of the case.
    Q,
    /// That one of both that a device chose first.
    Pooled,
}

impl Host {
    fn parse(word: &str) -> Option<Host> {
        Some(match word {
            "a" => Host::Opener,
            "b" => Host::Responder,
            "c" => Host::C,
            "d" => Host::D,
            "s" => Host::S,
            "t" => Host::T,
            "x" => Host::X,
            "p" => Host::P,
            "q" => Host::Q,
            "o" => Host::Pooled,
            _ => return None,
        })
    }
}

/// A side of the box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// box0.
    Inside,
    /// box1.
    Outside,
}

impl Side {
    /// The far one.
    pub(crate) fn other(self) -> Side {
        match self {
            Side::Inside => Side::Outside,
            Side::Outside => Side::Inside,
        }
    }
}

/// Where datagrams are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    Side(Side),
    Opener,
    Responder,
}

/// A port: a number, or what a device chose before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Port {
    /// As written.
    Number(u16),
    /// Bound by the first arrival that names it, compared by later ones.
    Var(String),
}

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) host: Host,
    pub(crate) port: Option<Port>,
}

/// The IP header beyond addresses, and what is done to the finished packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct IpFields {
    pub(crate) ttl: Option<u8>,
    pub(crate) id: Option<u16>,
    /// Bytes A to B of the IP payload, and whether more follow.
    pub(crate) piece: Option<(usize, usize, bool)>,
    /// Bytes of the IP payload that are overwritten, by offset.
    pub(crate) pokes: Vec<(usize, Vec<u8>)>,
}

/// TCP, with numbers relative to the initial ones of both hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tcp {
    pub(crate) flags: u8,
    pub(crate) seq: i64,
    pub(crate) ack: Option<i64>,
    pub(crate) window: u16,
    /// Options as bytes, and where relative numbers of SACK blocks lie.
    pub(crate) options: Vec<u8>,
    pub(crate) sack: Option<(i64, i64)>,
    pub(crate) payload: Vec<u8>,
    pub(crate) bad_checksum: bool,
}

/// ICMP or ICMPv6.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Icmp {
    pub(crate) kind: u8,
    pub(crate) code: u8,
    /// Bytes 4 to 7 of an error's header: MTU, pointer, gateway.
    pub(crate) rest: u32,
    pub(crate) quote: Option<Box<Packet>>,
    /// Bytes of the quoted packet that are quoted.
    pub(crate) quoted: usize,
    pub(crate) payload: Vec<u8>,
    pub(crate) bad_checksum: bool,
}

/// What a packet carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum L4 {
    Tcp(Tcp),
    Udp {
        payload: Vec<u8>,
        zero_checksum: bool,
        bad_checksum: bool,
    },
    Icmp(Icmp),
    Other {
        protocol: u8,
        payload: Vec<u8>,
    },
}

/// A packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) from: End,
    pub(crate) to: End,
    pub(crate) ip: IpFields,
    pub(crate) l4: L4,
}

/// What must become of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    /// It arrives as the flow's views say.
    Pass,
    /// It arrives with these ends; of an error with this quote; its text translated to this one.
    As(Box<Arrival>),
    /// Nothing arrives; counted under this reason, if one is named.
    Drop(Option<String>),
    /// The box answers the sender with this ICMP error about the packet as it was sent.
    Error(u8, u8),
    /// Not judged.
    Any,
}

/// How a packet arrives that is translated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) from: End,
    pub(crate) to: End,
    pub(crate) quote: Option<(End, End)>,
    pub(crate) text: Option<Vec<u8>>,
    /// What is added to the sequence number and the acknowledgement.
    pub(crate) shift: (i64, i64),
}

/// A comparison of what devices chose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    Equal(Port, Port),
    Differ(Port, Port),
    /// Both even or both odd.
    SameParity(Port, Port),
    AtLeast(Port, u16),
}

/// One line of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) number: usize,
    /// As written.
    pub(crate) text: String,
    pub(crate) step: Step,
}

/// What a line does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Send(Box<Send>),
    /// All fragments of the last datagrams together give, or do not give, this text to the receiver.
    Deliver {
        abuse: bool,
        to: Destination,
        text: Vec<u8>,
        arrives: bool,
    },
    Wait(Duration),
    Check(Check),
    /// New initial sequence numbers.
    Isn(Host, u32),
}

/// A packet that is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Send {
    pub(crate) abuse: bool,
    /// The side that it enters by, where the sender's address does not say so.
    pub(crate) side: Option<Side>,
    pub(crate) packet: Packet,
    /// How often it is sent.
    pub(crate) times: u16,
    /// From one to the next: what is added to the TCP sequence number. 0: to the source port 1.
    pub(crate) stride: u32,
    pub(crate) expect: Expect,
}

/// A case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) group: String,
    pub(crate) title: String,
    pub(crate) cite: String,
    pub(crate) note: Option<String>,
    /// Why weir may let pass what nftables drops.
    pub(crate) argued: Option<String>,
    pub(crate) policies: Vec<String>,
    pub(crate) ip6: bool,
    pub(crate) lines: Vec<Line>,
}

/// A policy, for weir and for nftables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Policy {
    pub(crate) name: String,
    pub(crate) summary: String,
    /// The flow between `a` and `b`: as `a` sees it, and as `b` does.
    pub(crate) near: (End, End),
    pub(crate) far: (End, End),
    /// Lines of a policy of weir; those that begin with `each` stand once for each case.
    pub(crate) weir: Vec<String>,
    pub(crate) nft: Vec<String>,
    /// For the box of nftables.
    pub(crate) sysctls: Vec<(String, String)>,
    /// More arguments of `weir run`.
    pub(crate) arguments: Vec<String>,
}

/// Text that is not a script.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}: `{text}`")]
pub struct ScriptError {
    /// From 1.
    pub line: usize,
    /// What was expected.
    pub why: String,
    /// The line.
    pub text: String,
}

/// Reads cases.
pub(crate) fn cases(text: &str) -> Result<Vec<Case>, ScriptError> {
    let mut all: Vec<Case> = Vec::new();
    let mut group = String::from("other");
    for (at, raw) in text.lines().enumerate() {
        let bad = |why: String| ScriptError {
            line: at + 1,
            why,
            text: raw.trim().to_owned(),
        };
        let line = raw.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim();
        match word {
            "group" => group = rest.to_owned(),
            "case" => all.push(Case {
                group: group.clone(),
                title: rest.to_owned(),
                cite: String::new(),
                note: None,
                argued: None,
                policies: Vec::new(),
                ip6: false,
                lines: Vec::new(),
            }),
            _ => {
                let case = all
                    .last_mut()
                    .ok_or_else(|| bad("expected `case TITLE` first".to_owned()))?;
                match word {
                    "cite" => case.cite = rest.to_owned(),
                    "note" => case.note = Some(rest.to_owned()),
                    "policy" => {
                        case.policies = rest.split_whitespace().map(str::to_owned).collect();
                    }
                    "argued" => case.argued = Some(rest.to_owned()),
                    "ip6" if rest.is_empty() => case.ip6 = true,
                    _ => {
                        for text in expanded(line).map_err(bad)? {
                            let step =
                                Reader::new(&text).and_then(|mut r| r.step()).map_err(bad)?;
                            case.lines.push(Line {
                                number: at + 1,
                                text,
                                step,
                            });
                        }
                    }
                }
            }
        }
    }
    for case in &all {
        let why = if case.cite.is_empty() {
            "a case without `cite AUTHORITY`"
        } else if case.policies.is_empty() {
            "a case without `policy NAME`"
        } else if !case.lines.iter().any(|l| l.step.is_judged()) {
            "a case that judges nothing"
        } else {
            continue;
        };
        return Err(ScriptError {
            line: case.lines.first().map_or(0, |l| l.number),
            why: why.to_owned(),
            text: case.title.clone(),
        });
    }
    Ok(all)
}

/// Reads policies.
pub(crate) fn policies(text: &str) -> Result<Vec<Policy>, ScriptError> {
    let mut all: Vec<Policy> = Vec::new();
    let mut block = String::new();
    for (at, raw) in text.lines().enumerate() {
        let bad = |why: String| ScriptError {
            line: at + 1,
            why,
            text: raw.trim().to_owned(),
        };
        let line = raw.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim();
        if word == "policy" {
            let (name, summary) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            let end = |host| End { host, port: None };
            all.push(Policy {
                name: name.to_owned(),
                summary: summary.trim().to_owned(),
                near: (end(Host::C), end(Host::S)),
                far: (end(Host::C), end(Host::S)),
                weir: Vec::new(),
                nft: Vec::new(),
                sysctls: Vec::new(),
                arguments: Vec::new(),
            });
            block.clear();
            continue;
        }
        let policy = all
            .last_mut()
            .ok_or_else(|| bad("expected `policy NAME SUMMARY` first".to_owned()))?;
        match (word, block.as_str()) {
            ("weir" | "nft", _) if rest.is_empty() => word.clone_into(&mut block),
            ("flow", _) => {
                let mut reader = Reader::new(rest).map_err(bad)?;
                let ends = |r: &mut Reader| -> Result<(End, End), String> {
                    let from = r.end()?;
                    r.exactly(">")?;
                    Ok((from, r.end()?))
                };
                let mut both = || {
                    let near = ends(&mut reader)?;
                    reader.exactly("=>")?;
                    Ok((near, ends(&mut reader)?))
                };
                (policy.near, policy.far) = both().map_err(bad)?;
            }
            ("sysctl", _) => {
                let (name, value) = rest
                    .split_once('=')
                    .ok_or_else(|| bad("expected `sysctl NAME=VALUE`".to_owned()))?;
                policy.sysctls.push((name.to_owned(), value.to_owned()));
            }
            ("arguments", _) => policy
                .arguments
                .extend(rest.split_whitespace().map(str::to_owned)),
            (_, "weir") => policy.weir.push(line.to_owned()),
            (_, "nft") => policy.nft.push(line.to_owned()),
            _ => return Err(bad("expected `weir`, `nft`, `flow` or `sysctl`".to_owned())),
        }
    }
    Ok(all)
}

/// The lines that a line stands for. `open`: a handshake; `alive X Y`: data both ways from X and Y, acknowledged; others: themselves.
fn expanded(line: &str) -> Result<Vec<String>, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    Ok(match words[..] {
        ["open"] => vec![
            "a > b S 0 mss 1460 wscale 7".to_owned(),
            "b > a SA 0 ack 1 mss 1460 wscale 7".to_owned(),
            "a > b A 1 ack 1".to_owned(),
        ],
        ["alive", x, y] => {
            let (x, y) = (number(x)?, number(y)?);
            vec![
                format!("a > b PA {x}:{} ack {y}", x + 10),
                format!("b > a PA {y}:{} ack {}", y + 10, x + 10),
                format!("a > b A {} ack {}", x + 10, y + 10),
            ]
        }
        _ => vec![line.to_owned()],
    })
}

impl Step {
    fn is_judged(&self) -> bool {
        match self {
            Step::Send(send) => send.expect != Expect::Any,
            Step::Deliver { .. } | Step::Check(_) => true,
            Step::Wait(_) | Step::Isn(..) => false,
        }
    }
}

struct Reader {
    tokens: Vec<Token>,
    at: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Text(Vec<u8>),
}

impl Reader {
    fn new(line: &str) -> Result<Reader, String> {
        Ok(Reader {
            tokens: tokens(line)?,
            at: 0,
        })
    }

    fn peek(&self) -> Option<&str> {
        match self.tokens.get(self.at) {
            Some(Token::Word(word)) => Some(word),
            _ => None,
        }
    }

    fn word(&mut self) -> Result<String, String> {
        match self.tokens.get(self.at) {
            Some(Token::Word(word)) => {
                self.at += 1;
                Ok(word.clone())
            }
            Some(Token::Text(_)) => Err("unexpected text".to_owned()),
            None => Err("the line ends early".to_owned()),
        }
    }

    fn text(&mut self) -> Option<Vec<u8>> {
        match self.tokens.get(self.at) {
            Some(Token::Text(text)) => {
                self.at += 1;
                Some(text.clone())
            }
            _ => None,
        }
    }

    fn accept(&mut self, word: &str) -> bool {
        let found = self.peek() == Some(word);
        self.at += usize::from(found);
        found
    }

    fn exactly(&mut self, word: &str) -> Result<(), String> {
        match self.accept(word) {
            true => Ok(()),
            false => Err(format!("expected `{word}`")),
        }
    }

    fn step(&mut self) -> Result<Step, String> {
        let abuse = self.accept("abuse");
        let step = match self.peek() {
            Some("wait") => {
                self.at += 1;
                let word = self.word()?;
                Step::Wait(weir_value::duration(&word)?)
            }
            Some("isn") => {
                self.at += 1;
                let host = self.host()?;
                let value = number(&self.word()?)?;
                Step::Isn(host, u32::try_from(value).map_err(|e| e.to_string())?)
            }
            Some("check") => {
                self.at += 1;
                Step::Check(self.check()?)
            }
            Some("deliver") => {
                self.at += 1;
                let to = match self.word()?.as_str() {
                    "inside" => Destination::Side(Side::Inside),
                    "outside" => Destination::Side(Side::Outside),
                    "a" => Destination::Opener,
                    "b" => Destination::Responder,
                    _ => return Err("expected `inside`, `outside`, `a` or `b`".to_owned()),
                };
                let text = self.text().ok_or("expected a text")?;
                let arrives = match self.expect()? {
                    Expect::Pass => true,
                    Expect::Drop(None) => false,
                    _ => return Err("`deliver` ends in `pass` or `drop`".to_owned()),
                };
                Step::Deliver {
                    abuse,
                    to,
                    text,
                    arrives,
                }
            }
            _ => {
                let side = if self.accept("@in") {
                    Some(Side::Inside)
                } else if self.accept("@out") {
                    Some(Side::Outside)
                } else {
                    None
                };
                let (times, stride) = match self.peek().and_then(|w| w.strip_prefix('*')) {
                    Some(word) => {
                        let (times, stride) = word.split_once('/').unwrap_or((word, "0"));
                        let times = times.parse().map_err(|_| "expected `*N` or `*N/STRIDE`")?;
                        let stride = u32::try_from(number(stride)?).map_err(|e| e.to_string())?;
                        self.at += 1;
                        (times, stride)
                    }
                    None => (1, 0),
                };
                let packet = self.packet()?;
                let expect = self.expect()?;
                Step::Send(Box::new(Send {
                    abuse,
                    side,
                    packet,
                    times,
                    stride,
                    expect,
                }))
            }
        };
        match self.tokens.get(self.at) {
            None => Ok(step),
            Some(Token::Word(word)) => Err(format!("unexpected `{word}`")),
            Some(Token::Text(_)) => Err("unexpected text".to_owned()),
        }
    }

    fn expect(&mut self) -> Result<Expect, String> {
        if !self.accept("=>") {
            return Ok(Expect::Pass);
        }
        if self.accept("pass") {
            return Ok(Expect::Pass);
        }
        if self.accept("any") {
            return Ok(Expect::Any);
        }
        if self.accept("error") {
            let word = self.word()?;
            let parts = word
                .split_once('/')
                .and_then(|(k, c)| Some((k.parse().ok()?, c.parse().ok()?)));
            let (kind, code) = parts.ok_or("expected `error TYPE/CODE`")?;
            return Ok(Expect::Error(kind, code));
        }
        if self.accept("drop") {
            let reason = self.peek().map(str::to_owned);
            self.at += usize::from(reason.is_some());
            return Ok(Expect::Drop(reason));
        }
        let from = self.end()?;
        self.exactly(">")?;
        let to = self.end()?;
        let mut arrival = Arrival {
            from,
            to,
            quote: None,
            text: None,
            shift: (0, 0),
        };
        loop {
            if self.accept("quote") {
                let from = self.end()?;
                self.exactly(">")?;
                arrival.quote = Some((from, self.end()?));
            } else if self.accept("seq") {
                arrival.shift.0 = number(&self.word()?)?;
            } else if self.accept("ack") {
                arrival.shift.1 = number(&self.word()?)?;
            } else if let Some(text) = self.text() {
                arrival.text = Some(text);
            } else {
                return Ok(Expect::As(Box::new(arrival)));
            }
        }
    }

    fn check(&mut self) -> Result<Check, String> {
        let one = port(&self.word()?)?;
        let relation = self.word()?;
        let other = port(&self.word()?)?;
        Ok(match (relation.as_str(), &other) {
            ("==", _) => Check::Equal(one, other),
            ("!=", _) => Check::Differ(one, other),
            ("parity", _) => Check::SameParity(one, other),
            (">=", Port::Number(least)) => Check::AtLeast(one, *least),
            _ => return Err("expected `==`, `!=`, `parity` or `>= N`".to_owned()),
        })
    }

    fn host(&mut self) -> Result<Host, String> {
        let word = self.word()?;
        Host::parse(&word).ok_or_else(|| format!("no host `{word}`"))
    }

    fn end(&mut self) -> Result<End, String> {
        let word = self.word()?;
        let (host, number) = match word.split_once(':') {
            Some((host, number)) => (host, Some(port(number)?)),
            None => (word.as_str(), None),
        };
        let host = Host::parse(host).ok_or_else(|| format!("no host `{host}`"))?;
        Ok(End { host, port: number })
    }

    fn packet(&mut self) -> Result<Packet, String> {
        let from = self.end()?;
        self.exactly(">")?;
        let to = self.end()?;
        let kind = self.word()?;
        let mut ip = IpFields::default();
        let l4 = match kind.as_str() {
            "udp" => self.udp(&mut ip)?,
            "icmp" => self.icmp(&mut ip)?,
            "proto" => {
                let protocol = u8::try_from(number(&self.word()?)?).map_err(|e| e.to_string())?;
                let mut payload = Vec::new();
                loop {
                    if let Some(text) = self.text() {
                        payload = text;
                    } else if self.accept("hex") {
                        payload = hex(&self.word()?)?;
                    } else if !self.ip_field(&mut ip)? {
                        break L4::Other { protocol, payload };
                    }
                }
            }
            flags => self.tcp(flags, &mut ip)?,
        };
        Ok(Packet { from, to, ip, l4 })
    }

    fn udp(&mut self, ip: &mut IpFields) -> Result<L4, String> {
        let (mut payload, mut zero, mut bad) = (Vec::new(), false, false);
        loop {
            if let Some(text) = self.text() {
                payload = text;
            } else if self.accept("bytes") {
                payload = pattern(usize::try_from(number(&self.word()?)?).unwrap_or(0));
            } else if self.accept("zero-checksum") {
                zero = true;
            } else if self.accept("bad-checksum") {
                bad = true;
            } else if !self.ip_field(ip)? {
                return Ok(L4::Udp {
                    payload,
                    zero_checksum: zero,
                    bad_checksum: bad,
                });
            }
        }
    }

    fn icmp(&mut self, ip: &mut IpFields) -> Result<L4, String> {
        let word = self.word()?;
        let (kind, code) = word.split_once('/').ok_or("expected `icmp TYPE/CODE`")?;
        let mut icmp = Icmp {
            kind: kind.parse().map_err(|_| "expected an ICMP type")?,
            code: code.parse().map_err(|_| "expected an ICMP code")?,
            rest: 0,
            quote: None,
            quoted: 28,
            payload: Vec::new(),
            bad_checksum: false,
        };
        loop {
            if let Some(text) = self.text() {
                icmp.payload = text;
            } else if self.accept("rest") {
                let value = number(&self.word()?)?;
                icmp.rest = u32::try_from(value).map_err(|e| e.to_string())?;
            } else if self.accept("bad-checksum") {
                icmp.bad_checksum = true;
            } else if self.accept("quoted") {
                icmp.quoted = usize::try_from(number(&self.word()?)?).unwrap_or(0);
            } else if self.accept("{") {
                icmp.quote = Some(Box::new(self.packet()?));
                self.exactly("}")?;
            } else if !self.ip_field(ip)? {
                return Ok(L4::Icmp(icmp));
            }
        }
    }

    fn tcp(&mut self, word: &str, ip: &mut IpFields) -> Result<L4, String> {
        let mut tcp = Tcp {
            flags: flags(word)?,
            seq: 0,
            ack: None,
            window: 64_240,
            options: Vec::new(),
            sack: None,
            payload: Vec::new(),
            bad_checksum: false,
        };
        if let Some(word) = self.peek().filter(|w| numeric(w)) {
            let (from, to) = word
                .split_once(':')
                .map_or((word, None), |(f, t)| (f, Some(t)));
            tcp.seq = number(from)?;
            if let Some(to) = to {
                let len = number(to)? - tcp.seq;
                tcp.payload = pattern(usize::try_from(len).map_err(|_| "an end before its begin")?);
            }
            self.at += 1;
        }
        loop {
            if let Some(text) = self.text() {
                tcp.payload = text;
            } else if self.accept("ack") {
                tcp.ack = Some(number(&self.word()?)?);
            } else if self.accept("win") {
                let value = number(&self.word()?)?;
                tcp.window = u16::try_from(value).map_err(|e| e.to_string())?;
            } else if self.accept("mss") {
                let value = u16::try_from(number(&self.word()?)?).map_err(|e| e.to_string())?;
                tcp.options.extend([2, 4]);
                tcp.options.extend(value.to_be_bytes());
            } else if self.accept("wscale") {
                let value = u8::try_from(number(&self.word()?)?).map_err(|e| e.to_string())?;
                tcp.options.extend([1, 3, 3, value]);
            } else if self.accept("sackok") {
                tcp.options.extend([1, 1, 4, 2]);
            } else if self.accept("sack") {
                let word = self.word()?;
                let (from, to) = word.split_once(':').ok_or("expected `sack A:B`")?;
                tcp.sack = Some((number(from)?, number(to)?));
            } else if self.accept("bad-checksum") {
                tcp.bad_checksum = true;
            } else if !self.ip_field(ip)? {
                return Ok(L4::Tcp(tcp));
            }
        }
    }

    /// Whether the next words were a field of the IP header.
    fn ip_field(&mut self, ip: &mut IpFields) -> Result<bool, String> {
        if self.accept("ttl") {
            ip.ttl = Some(u8::try_from(number(&self.word()?)?).map_err(|e| e.to_string())?);
        } else if self.accept("id") {
            ip.id = Some(u16::try_from(number(&self.word()?)?).map_err(|e| e.to_string())?);
        } else if self.accept("frag") {
            let word = self.word()?;
            let (range, more) = word
                .strip_suffix('+')
                .map_or((word.as_str(), false), |w| (w, true));
            let (from, to) = range
                .split_once('-')
                .ok_or("expected `frag A-B` or `frag A-B+`")?;
            let at = |w: &str| w.parse::<usize>().map_err(|e| e.to_string());
            let (from, to) = (at(from)?, at(to)?);
            if from >= to || from % 8 != 0 {
                return Err("a fragment begins at a multiple of 8 and has bytes".to_owned());
            }
            ip.piece = Some((from, to, more));
        } else if self.accept("poke") {
            let at = usize::try_from(number(&self.word()?)?).map_err(|e| e.to_string())?;
            let bytes = hex(&self.word()?)?;
            ip.pokes.push((at, bytes));
        } else {
            return Ok(false);
        }
        Ok(true)
    }
}

/// Words and texts of a line, up to a `#` between them.
fn tokens(line: &str) -> Result<Vec<Token>, String> {
    let mut all = Vec::new();
    let mut word = String::new();
    let mut chars = line.chars();
    let flush = |word: &mut String, all: &mut Vec<Token>| {
        if !word.is_empty() {
            all.push(Token::Word(std::mem::take(word)));
        }
    };
    while let Some(c) = chars.next() {
        match c {
            '#' if word.is_empty() => break,
            '"' => {
                flush(&mut word, &mut all);
                let mut text = Vec::new();
                loop {
                    match chars.next().ok_or("a text without its end")? {
                        '"' => break,
                        '\\' => text.push(match chars.next() {
                            Some('r') => b'\r',
                            Some('n') => b'\n',
                            Some('0') => 0,
                            Some('"') => b'"',
                            Some('\\') => b'\\',
                            _ => return Err("unknown escape".to_owned()),
                        }),
                        c => {
                            let mut buffer = [0; 4];
                            text.extend_from_slice(c.encode_utf8(&mut buffer).as_bytes());
                        }
                    }
                }
                all.push(Token::Text(text));
            }
            '{' | '}' => {
                flush(&mut word, &mut all);
                all.push(Token::Word(c.to_string()));
            }
            c if c.is_whitespace() => flush(&mut word, &mut all),
            c => word.push(c),
        }
    }
    flush(&mut word, &mut all);
    Ok(all)
}

fn numeric(word: &str) -> bool {
    let digits = word.strip_prefix('-').unwrap_or(word);
    digits.starts_with(|c: char| c.is_ascii_digit())
}

/// `5`, `-5`, `0x10`, `1+1000`, `1-1`.
fn number(word: &str) -> Result<i64, String> {
    let wrong = || format!("expected a number, not `{word}`");
    let one = |w: &str| -> Result<i64, String> {
        match w.strip_prefix("0x") {
            Some(hex) => i64::from_str_radix(hex, 16).map_err(|_| wrong()),
            None => w.parse().map_err(|_| wrong()),
        }
    };
    let (sign, rest) = word.strip_prefix('-').map_or((1, word), |w| (-1, w));
    if let Some((x, y)) = rest.split_once('+') {
        return Ok(sign * one(x)? + one(y)?);
    }
    if let Some((x, y)) = rest.split_once('-') {
        return Ok(sign * one(x)? - one(y)?);
    }
    Ok(sign * one(rest)?)
}

fn port(word: &str) -> Result<Port, String> {
    match word.strip_prefix('?') {
        Some(name) if !name.is_empty() => Ok(Port::Var(name.to_owned())),
        _ => {
            let value = number(word)?;
            u16::try_from(value)
                .map(Port::Number)
                .map_err(|e| e.to_string())
        }
    }
}

fn flags(word: &str) -> Result<u8, String> {
    if word == "-" {
        return Ok(0);
    }
    word.chars().try_fold(0u8, |all, c| {
        Ok(all
            | match c {
                'F' => 0x01,
                'S' => 0x02,
                'R' => 0x04,
                'P' => 0x08,
                'A' => 0x10,
                'U' => 0x20,
                'E' => 0x40,
                'C' => 0x80,
                _ => {
                    return Err(format!(
                        "expected TCP flags, `udp`, `icmp` or `proto`, not `{word}`"
                    ));
                }
            })
    })
}

fn hex(word: &str) -> Result<Vec<u8>, String> {
    if !word.len().is_multiple_of(2) || !word.is_ascii() {
        return Err("expected an even number of hex digits".to_owned());
    }
    (0..word.len() / 2)
        .map(|n| u8::from_str_radix(&word[2 * n..2 * n + 2], 16).map_err(|e| e.to_string()))
        .collect()
}

/// Bytes that are told apart by their place.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| b'a' + (n % 23) as u8).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &str) -> Result<Step, String> {
        Reader::new(line).and_then(|mut r| r.step())
    }

    fn sent(line: &str) -> Send {
        match one(line) {
            Ok(Step::Send(send)) => *send,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn a_segment_with_relative_numbers() {
        let send = sent("abuse b > a FA 1+10:21 ack 5-1 win 0x10 => drop tcp_window");
        assert!(send.abuse && send.side.is_none());
        assert_eq!(send.expect, Expect::Drop(Some("tcp_window".to_owned())));
        let L4::Tcp(tcp) = send.packet.l4 else {
            panic!("TCP")
        };
        assert_eq!((tcp.flags, tcp.seq, tcp.ack), (0x11, 11, Some(4)));
        assert_eq!((tcp.window, tcp.payload.len()), (16, 10));
    }

    #[test]
    fn an_error_and_how_it_arrives() {
        let send =
            sent("x > p icmp 3/4 rest 1400 { p:?m > s:53 udp \"hi\" } => x > c quote c:5 > s:53");
        let L4::Icmp(icmp) = send.packet.l4 else {
            panic!("ICMP")
        };
        assert_eq!(icmp.rest, 1400);
        let quote = icmp.quote.expect("a quote");
        assert_eq!(quote.from.port, Some(Port::Var("m".to_owned())));
        let Expect::As(arrival) = send.expect else {
            panic!("translated")
        };
        assert_eq!(arrival.from.host, Host::X);
        assert!(arrival.quote.is_some());
    }

    #[test]
    fn pieces_and_pokes() {
        let send = sent("@out *5 c > d:7 udp bytes 64 id 9 frag 8-24+ poke 13 02ff => any");
        assert_eq!((send.side, send.times), (Some(Side::Outside), 5));
        assert_eq!(send.packet.ip.piece, Some((8, 24, true)));
        assert_eq!(send.packet.ip.pokes, [(13, vec![2, 255])]);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (line, why) in [
            ("a > b Z", "expected TCP flags"),
            ("a > e S", "no host `e`"),
            ("a > b S 5:4", "an end before its begin"),
            ("a > b S => drop tcp_window more", "unexpected `more`"),
            ("a > b udp \"open", "a text without its end"),
            ("a > b udp frag 4-8", "a multiple of 8"),
            ("check ?m > 5", "expected `==`"),
        ] {
            let said = one(line).expect_err(line);
            assert!(said.contains(why), "{line}: {said}");
        }
        let without = cases("case nothing\ncite RFC 1\npolicy accept\nwait 5ms\n");
        assert!(
            without
                .expect_err("judges nothing")
                .why
                .contains("judges nothing")
        );
    }
}
