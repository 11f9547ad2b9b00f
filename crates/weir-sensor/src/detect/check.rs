//! Conditions on headers, flows and the numbers of transactions.

use std::net::IpAddr;
use std::sync::Arc;

use crate::app::{App, Transaction, UNTOLD};
use crate::buffer::Buffer;
use crate::event::{self, Event, Events};
use crate::packet::{Direction, Ip, Packet, Tcp, Transport};
use crate::rules::{
    BitsMode, Hook, PacketCondition, Range, Reputation, Spoken, Stage, StreamSide, VlanLayer, Which,
};

use super::{FlowView, in_range};

/// Bits of `ssl_state` that are messages of the client: its hello, its key exchange.
const CLIENT_STATES: u64 = 1 | 4;
/// And of the server.
const SERVER_STATES: u64 = 2 | 8;

/// What a check may look at.
#[derive(Clone, Copy)]
pub(super) struct Scene<'a> {
    pub(super) packet: Option<&'a Packet<'a>>,
    pub(super) time: u64,
    pub(super) events: Events,
    pub(super) flow: Option<&'a FlowView>,
    /// Which way what is inspected goes.
    pub(super) direction: Option<Direction>,
    pub(super) transaction: Option<&'a Transaction>,
}

/// Whose score is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sides {
    Source,
    Destination,
    Any,
    Both,
}

/// A check, ready to run.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Check {
    /// As the model has it.
    Plain(PacketCondition),
    /// Type of an option in the IPv4 header, or several.
    IpOption(Vec<u8>),
    AnyIpOption,
    Event(Event),
    /// An event that nothing raises.
    Never,
    /// Name of a transaction's event, and its protocol unless any.
    AppEvent(String, String),
    /// A number of a transaction is one of these ranges; `true`: it is there and none of them.
    Fact(String, Vec<Range>, bool),
    /// The score of an address in a category; an address without one has none, which `None` asks for.
    Reputation(Sides, u8, Option<Range>, Arc<Reputation>),
    /// Some of these bits are set in a number of a transaction; `true`: none.
    FactBits(String, u64, bool),
    /// A client of FTP asks for a connection to somebody else.
    Bounce,
}

impl Check {
    pub(super) fn new(
        condition: &PacketCondition,
        reputation: &Arc<Reputation>,
    ) -> Result<Check, String> {
        Ok(match condition {
            PacketCondition::IpOption(name) => match name.as_str() {
                "any" => Check::AnyIpOption,
                "eol" => Check::IpOption(vec![0]),
                "nop" => Check::IpOption(vec![1]),
                "rr" => Check::IpOption(vec![7]),
                "ts" => Check::IpOption(vec![68]),
                "sec" => Check::IpOption(vec![130]),
                "lsrr" => Check::IpOption(vec![131]),
                "lsrre" => Check::IpOption(vec![131]),
                "esec" => Check::IpOption(vec![133]),
                "qs" => Check::IpOption(vec![25]),
                "cipso" => Check::IpOption(vec![134]),
                "satid" => Check::IpOption(vec![136]),
                "rtralt" => Check::IpOption(vec![148]),
                "ssrr" => Check::IpOption(vec![137]),
                other => return Err(format!("ipopts has no option `{other}`")),
            },
            PacketCondition::Event(name) => {
                if event::is_unraised(name) {
                    return Ok(Check::Never);
                }
                let event = if let Some(name) = name.strip_prefix("stream.") {
                    Event::stream(name)
                } else {
                    let name = name.strip_prefix("decoder.").unwrap_or(name);
                    Event::decode(name).or_else(|| Event::stream(name))
                };
                Check::Event(event.ok_or_else(|| format!("no event is called `{name}`"))?)
            }
            PacketCondition::AppEvent(app, name) => Check::AppEvent(app.clone(), name.clone()),
            PacketCondition::Record(keyword, value, negated) => fact(keyword, value, *negated)?,
            PacketCondition::Reputation {
                side,
                category,
                value,
                absent,
            } => {
                let sides = match side.as_str() {
                    "src" => Sides::Source,
                    "dst" => Sides::Destination,
                    "any" => Sides::Any,
                    "both" => Sides::Both,
                    other => return Err(format!("iprep has no side `{other}`")),
                };
                let value = (!absent).then_some(*value);
                Check::Reputation(sides, *category, value, reputation.clone())
            }
            other => Check::Plain(other.clone()),
        })
    }

    /// Whether it needs a packet, rather than a flow or a transaction.
    pub(super) fn needs_packet(&self) -> bool {
        match self {
            Check::Plain(condition) => !matches!(
                condition,
                PacketCondition::StreamSize { .. }
                    | PacketCondition::FlowAge(_)
                    | PacketCondition::FlowPackets(..)
                    | PacketCondition::FlowBytes(..)
                    | PacketCondition::CertificateValid(_)
                    | PacketCondition::Placed(..)
                    | PacketCondition::Modbus(_)
                    | PacketCondition::NotReached(..)
                    | PacketCondition::FileSize(..)
                    | PacketCondition::FileSum(..)
                    | PacketCondition::Application(..)
                    | PacketCondition::Hook(Hook::All | Hook::Reached(..))
            ),
            Check::IpOption(_) | Check::AnyIpOption | Check::Event(_) | Check::Never => true,
            Check::AppEvent(..)
            | Check::Fact(..)
            | Check::FactBits(..)
            | Check::Bounce
            | Check::Reputation(..) => false,
        }
    }

    /// Whether it is about a transaction.
    pub(super) fn needs_transaction(&self) -> bool {
        matches!(
            self,
            Check::AppEvent(..)
                | Check::Fact(..)
                | Check::FactBits(..)
                | Check::Bounce
                | Check::Plain(
                    PacketCondition::CertificateValid(_)
                        | PacketCondition::Placed(..)
                        | PacketCondition::Modbus(_)
                        | PacketCondition::NotReached(..)
                        | PacketCondition::FileSize(..)
                        | PacketCondition::FileSum(..)
                        | PacketCondition::Hook(Hook::Reached(..))
                )
        )
    }

    /// Whether it is about a protocol, and about nothing else. That none is told yet (`unknown`) is nothing that happens: a rule that asks for no more never holds.
    pub(super) fn is_of_application(&self) -> bool {
        matches!(self, Check::Plain(PacketCondition::Application(..)))
    }

    /// Whether it always holds: it says only when a rule is decided.
    pub(super) fn is_free(&self) -> bool {
        matches!(self, Check::Plain(PacketCondition::Hook(Hook::All)))
    }

    /// Whether it waits for a state of a transaction.
    pub(super) fn is_hook(&self) -> bool {
        matches!(self, Check::Plain(PacketCondition::Hook(Hook::Reached(..))))
    }

    /// Whether it holds no more when a transaction has got further.
    pub(super) fn is_passing(&self) -> bool {
        matches!(self, Check::Plain(PacketCondition::NotReached(..)))
    }

    /// The buffer that a hook waits for, or that is looked at.
    pub(super) fn waits_for(&self) -> Option<Buffer> {
        match self {
            Check::Plain(
                PacketCondition::Hook(Hook::Reached(_, Stage::Has(buffer)))
                | PacketCondition::NotReached(_, Stage::Has(buffer)),
            ) => Some(*buffer),
            Check::Plain(PacketCondition::Modbus(_)) => Some(Buffer::FrameModbusPdu),
            _ => None,
        }
    }

    /// Whether it is about an event of a transaction.
    pub(super) fn is_app_event(&self) -> bool {
        matches!(self, Check::AppEvent(..))
    }

    /// Whether it can only hold of a packet with the SYN flag.
    pub(super) fn needs_syn(&self) -> bool {
        matches!(
            self,
            Check::Plain(PacketCondition::Flags { bits, mode: BitsMode::Exact | BitsMode::All, .. })
                if bits & 2 != 0
        )
    }

    /// Whether it holds.
    pub(super) fn holds(&self, scene: &Scene<'_>) -> bool {
        self.decide(scene).unwrap_or(false)
    }

    /// `None`: what it is about is not there.
    fn decide(&self, scene: &Scene<'_>) -> Option<bool> {
        let condition = match self {
            Check::Plain(condition) => condition,
            Check::IpOption(kinds) => {
                return Some(options(scene.packet?)?.any(|o| kinds.contains(&o)));
            }
            Check::AnyIpOption => return Some(options(scene.packet?)?.next().is_some()),
            Check::Event(event) => return Some(scene.events.has(*event)),
            Check::Never => return Some(false),
            Check::Reputation(sides, category, range, scores) => {
                let score = |address| {
                    let score = scores.score(address, *category);
                    match range {
                        Some(range) => score.is_some_and(|s| in_range(range, u64::from(s))),
                        None => score.is_none(),
                    }
                };
                let (source, destination) = match (scene.packet, scene.flow, scene.direction) {
                    (Some(packet), ..) => {
                        let ip = packet.ip.as_ref()?;
                        (ip.source, ip.destination)
                    }
                    (None, Some(flow), Some(direction)) => {
                        let (source, destination) = flow.ends(direction);
                        (source.0, destination.0)
                    }
                    _ => return None,
                };
                return Some(match sides {
                    Sides::Source => score(source),
                    Sides::Destination => score(destination),
                    Sides::Any => score(source) || score(destination),
                    Sides::Both => score(source) && score(destination),
                });
            }
            Check::AppEvent(app, name) => {
                let transaction = scene.transaction?;
                let right = transaction.is_called(app);
                return Some(right && transaction.events.iter().any(|e| e == name));
            }
            // The server's certificate is said in one direction only.
            Check::Fact(name, ..)
                if scene.direction == Some(Direction::ToServer) && name.starts_with("tls.cert") =>
            {
                return Some(false);
            }
            Check::Fact(name, ranges, negated) => {
                let transaction = scene.transaction?;
                // What a client offered is no version of a server that never answered.
                if transaction.app == App::Tls
                    && scene.direction == Some(Direction::ToClient)
                    && !transaction.has_begun(Direction::ToClient)
                {
                    return None;
                }
                let mut there = false;
                for value in transaction.facts_of(name, scene.direction) {
                    there = true;
                    if ranges.iter().any(|r| in_range(r, value)) {
                        return Some(!negated);
                    }
                }
                return Some(there && *negated);
            }
            Check::Bounce => {
                let client = scene.flow?.client.to_canonical();
                let mut named = scene.transaction?.facts("ftpbounce.address");
                let asks = scene.direction == Some(Direction::ToServer);
                let other = |a: u64| IpAddr::from((a as u32).to_be_bytes()) != client;
                return Some(asks && named.any(other));
            }
            Check::FactBits(name, bits, negated) => {
                let mut set = scene
                    .transaction?
                    .facts(name)
                    .fold(0, |all, value| all | value);
                // Each message of a handshake is of one direction; a rule is not told of it again in the other.
                set &= match scene.direction {
                    Some(Direction::ToServer) => CLIENT_STATES,
                    Some(Direction::ToClient) => SERVER_STATES,
                    None => u64::MAX,
                };
                // Who has said nothing has not said something else either.
                return Some(set != 0 && (set & bits != 0) != *negated);
            }
        };
        let number = |range: &Range, n: u64| Some(in_range(range, n));
        match condition {
            PacketCondition::PayloadSize(r) => {
                // A fragment has none: it is asked of the whole.
                let packet = scene.packet?;
                if packet.ip.as_ref().is_some_and(|ip| ip.fragment) {
                    return None;
                }
                let size = match packet.is_carrier() {
                    true => 0,
                    false => packet.payload.len(),
                };
                number(r, size as u64)
            }
            PacketCondition::Ttl(r) => number(r, u64::from(scene.packet?.ip.as_ref()?.ttl)),
            PacketCondition::Tos(r) => number(r, u64::from(scene.packet?.ip.as_ref()?.tos)),
            PacketCondition::Id(r) => number(r, u64::from(ipv4(scene)?.id)),
            PacketCondition::Protocol(r) => {
                number(r, u64::from(scene.packet?.ip.as_ref()?.protocol))
            }
            PacketCondition::Version(six) => {
                Some(scene.packet?.ip.as_ref()?.source.is_ipv6() == *six)
            }
            PacketCondition::Checksum { event, six, right } => {
                let packet = scene.packet?;
                let there = match event {
                    Event::TcpChecksum => matches!(packet.transport, Transport::Tcp(_)),
                    Event::UdpChecksum => matches!(packet.transport, Transport::Udp { .. }),
                    Event::Ipv4Checksum => true,
                    _ => matches!(packet.transport, Transport::Icmp { .. }),
                };
                let version = packet.ip.as_ref()?.source.is_ipv6() == *six;
                Some(there && version && scene.events.has(*event) != *right)
            }
            PacketCondition::FragmentBits { bits, mode } => {
                Some(compare(ipv4(scene)?.flags, *bits, *mode))
            }
            PacketCondition::FragmentOffset(r) => {
                let ip = scene.packet?.ip.as_ref()?;
                // In IPv6 only fragments have an offset.
                if ip.source.is_ipv6() && !ip.fragment {
                    return None;
                }
                // The keyword counts as the header does, in units of eight bytes.
                number(r, u64::from(ip.fragment_offset / 8))
            }
            PacketCondition::Flags {
                bits,
                ignored,
                mode,
            } => Some(compare(
                tcp(scene)?.flags & !ignored,
                bits & !ignored,
                *mode,
            )),
            PacketCondition::Sequence(n) => Some(tcp(scene)?.sequence == *n),
            PacketCondition::Acknowledgement(n) => Some(tcp(scene)?.acknowledgement == *n),
            PacketCondition::Window(r) => number(r, u64::from(tcp(scene)?.window)),
            PacketCondition::Mss(r) => number(r, u64::from(tcp(scene)?.mss?)),
            PacketCondition::IcmpType(r) => number(r, u64::from(icmp(scene)?.0)),
            PacketCondition::IcmpCode(r) => number(r, u64::from(icmp(scene)?.1)),
            PacketCondition::IgmpType(r) => {
                let packet = scene.packet?;
                let kind = packet.data.get(packet.igmp()?.start)?;
                number(r, u64::from(*kind))
            }
            PacketCondition::IcmpId(n) => Some(icmp(scene)?.2?.0 == *n),
            PacketCondition::IcmpSequence(n) => Some(icmp(scene)?.2?.1 == *n),
            PacketCondition::Placed(name, range, which) => {
                let told = |n: u64| n != UNTOLD && in_range(range, n);
                let transaction = scene.transaction?;
                let mut values = transaction.facts(name);
                Some(match which {
                    Which::Any => values.any(told),
                    Which::All => {
                        let mut values = values.peekable();
                        values.peek().is_some() && values.all(told)
                    }
                    Which::At(place) => {
                        let count = values.count() as i64;
                        let place = i64::from(*place);
                        let place = if place < 0 { count + place } else { place };
                        let place = usize::try_from(place).ok()?;
                        told(transaction.facts(name).nth(place)?)
                    }
                })
            }
            PacketCondition::Modbus(asked) => {
                let side = scene.direction.filter(|d| *d == Direction::ToServer)?;
                let transaction = scene.transaction?;
                let message = transaction.get(Buffer::FrameModbusPdu, side).next()?;
                Some(asked.holds(message))
            }
            PacketCondition::SameAddress => {
                let ip = scene.packet?.ip.as_ref()?;
                Some(ip.source == ip.destination)
            }
            PacketCondition::StreamSize { side, size } => {
                let bytes = scene.flow?.stream;
                let client = in_range(size, bytes[Direction::ToServer.index()]);
                let server = in_range(size, bytes[Direction::ToClient.index()]);
                Some(match side {
                    StreamSide::Client => client,
                    StreamSide::Server => server,
                    StreamSide::Both => client && server,
                    StreamSide::Either => client || server,
                })
            }
            PacketCondition::FlowAge(r) => {
                let age = scene.time.saturating_sub(scene.flow?.start);
                number(r, age / 1_000_000_000)
            }
            PacketCondition::FlowPackets(side, r) => Some(of_sides(*side, r, scene.flow?.packets)),
            PacketCondition::FlowBytes(side, r) => Some(of_sides(*side, r, scene.flow?.bytes)),
            PacketCondition::Vlan(layer, r) => {
                let packet = scene.packet?;
                let tags = packet.vlan.get(..usize::from(packet.vlans))?;
                Some(match layer {
                    VlanLayer::At(layer) => {
                        let at = match usize::try_from(*layer) {
                            Ok(at) => at,
                            Err(_) => tags.len().checked_sub(usize::from(layer.unsigned_abs()))?,
                        };
                        in_range(r, u64::from(*tags.get(at)?))
                    }
                    VlanLayer::Any => tags.iter().any(|t| in_range(r, u64::from(*t))),
                    VlanLayer::All => {
                        !tags.is_empty() && tags.iter().all(|t| in_range(r, u64::from(*t)))
                    }
                })
            }
            PacketCondition::VlanLayers(r) => number(r, u64::from(scene.packet?.vlans)),
            PacketCondition::WindowScale(r) => number(r, u64::from(tcp(scene)?.window_scale?)),
            PacketCondition::Mtu(r) => {
                let packet = scene.packet?;
                let Transport::Icmp {
                    v6: true,
                    kind: 2,
                    header,
                    ..
                } = packet.transport
                else {
                    return None;
                };
                let b = packet.data.get(header + 4..header + 8)?;
                number(r, u64::from(u32::from_be_bytes([b[0], b[1], b[2], b[3]])))
            }
            PacketCondition::FileSize(r, way) => {
                let way = way.or(scene.direction);
                // Of what was cut the rest is not known: it is at least so large.
                let open = !r.negated && r.high == u64::MAX && r.mask == u64::MAX;
                let files = scene.transaction?.files.iter();
                let mut found = files.filter(|f| Some(f.direction) == way && (f.whole || open));
                Some(found.any(|f| in_range(r, f.size)))
            }
            PacketCondition::FileSum(sum, list, negated) => {
                let files = scene.transaction?.files.iter();
                let sums = files
                    .filter(|f| Some(f.direction) == scene.direction)
                    .flat_map(|f| &f.sums);
                let mut of_kind = sums.filter(|(name, _)| name == sum);
                Some(of_kind.any(|(_, s)| list.contains(s) != *negated))
            }
            PacketCondition::CertificateValid(valid) => {
                let transaction = scene.transaction?;
                if scene.direction == Some(Direction::ToServer) {
                    return Some(false);
                }
                let mut after = transaction.facts("tls.cert_notafter");
                let until = after.next()?;
                Some((scene.time / 1_000_000_000 <= until) == *valid)
            }
            PacketCondition::Rpc(program, version, procedure) => {
                let packet = scene.packet?;
                let call = match packet.transport {
                    // A record mark of four bytes comes first.
                    Transport::Tcp(_) => packet.payload().get(4..)?,
                    _ => packet.payload(),
                };
                let word = |i: usize| {
                    let b = call.get(i * 4..i * 4 + 4)?;
                    Some(u32::from_be_bytes([b[0], b[1], b[2], b[3]]))
                };
                Some(
                    word(1)? == 0
                        && word(2)? == 2
                        && word(3)? == *program
                        && version.is_none_or(|v| word(4) == Some(v))
                        && procedure.is_none_or(|p| word(5) == Some(p)),
                )
            }
            PacketCondition::Application(spoken, apps, negated) => {
                let flow = scene.flow?;
                let side = |d: Direction| flow.sides[d.index()];
                let either = [Direction::ToServer, Direction::ToClient].map(side);
                let told = match spoken {
                    Spoken::Final => &[flow.app][..],
                    Spoken::Direction => &[side(scene.direction?)],
                    Spoken::ToServer => &either[..1],
                    Spoken::ToClient => &either[1..],
                    Spoken::Either => &either,
                    Spoken::Original => &[flow.before.unwrap_or(App::Unknown)],
                };
                let named = told.iter().any(|app| apps.contains(app));
                // Of what is not told yet nobody knows that it is something else.
                let known = told.iter().any(|app| *app != App::Unknown);
                Some(if *negated { known && !named } else { named })
            }
            PacketCondition::Hook(Hook::All | Hook::PreFlow | Hook::PreStream) => Some(true),
            PacketCondition::Hook(Hook::FlowStart) => {
                Some(scene.flow?.packets[scene.direction?.index()] == 1)
            }
            PacketCondition::Hook(Hook::Reached(direction, stage)) => {
                Some(reached(scene.transaction?, *direction, *stage))
            }
            PacketCondition::NotReached(direction, stage) => {
                Some(!reached(scene.transaction?, *direction, *stage))
            }
            // Compiled to checks of their own.
            PacketCondition::IpOption(_)
            | PacketCondition::AppEvent(..)
            | PacketCondition::Event(_)
            | PacketCondition::Record(..)
            | PacketCondition::Reputation { .. } => None,
        }
    }
}

fn ipv4<'a>(scene: &Scene<'a>) -> Option<&'a Ip> {
    (scene.packet?.ip.as_ref()).filter(|ip| ip.source.is_ipv4())
}

fn tcp<'a>(scene: &Scene<'a>) -> Option<&'a Tcp> {
    match &scene.packet?.transport {
        Transport::Tcp(tcp) => Some(tcp),
        _ => None,
    }
}

type Icmp = (u8, u8, Option<(u16, u16)>);

fn icmp(scene: &Scene<'_>) -> Option<Icmp> {
    match &scene.packet?.transport {
        Transport::Icmp {
            kind, code, echo, ..
        } => Some((*kind, *code, *echo)),
        _ => None,
    }
}

fn compare(there: u8, bits: u8, mode: BitsMode) -> bool {
    match mode {
        BitsMode::Exact => there == bits,
        BitsMode::All => there & bits == bits,
        BitsMode::Any => there & bits != 0,
        // Not all of them.
        BitsMode::None => there & bits != bits,
    }
}

fn of_sides(side: u8, range: &Range, [to_server, to_client]: [u64; 2]) -> bool {
    match side {
        0 => in_range(range, to_server),
        1 => in_range(range, to_client),
        2 => in_range(range, to_server + to_client),
        _ => in_range(range, to_server) || in_range(range, to_client),
    }
}

/// Types of the options in an IPv4 header, up to the first that is broken.
fn options(packet: &Packet<'_>) -> Option<impl Iterator<Item = u8>> {
    let ip = packet.ip.as_ref()?;
    let IpAddr::V4(_) = ip.source else {
        return None;
    };
    let header = packet.data.get(ip.header.clone())?;
    let length = usize::from(header.first()? & 15) * 4;
    let mut rest = header.get(20..length).unwrap_or_default();
    let mut over = false;
    Some(std::iter::from_fn(move || {
        let kind = *rest.first()?;
        if over {
            return None;
        }
        let size = match kind {
            0 => {
                over = true;
                1
            }
            1 => 1,
            _ => usize::from(*rest.get(1)?),
        };
        rest = rest.get(size.max(1)..).unwrap_or_default();
        Some(kind)
    }))
}

/// The numbers that a keyword's words stand for.
fn fact(keyword: &str, value: &str, negated: bool) -> Result<Check, String> {
    let one = |n: u64| Range::new(n, n, false);
    let lower = value.to_ascii_lowercase();
    let words: Vec<&str> = lower
        .split(['|', ','])
        .map(str::trim)
        .filter(|w| !w.is_empty())
        .collect();
    let number = |w: &str| match w.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => w.parse().ok(),
    };
    let wrong = |w: &str| format!("{keyword} has no value `{w}`");
    if keyword == "ftpbounce" {
        return Ok(Check::Bounce);
    }
    if keyword == "ssl_state" {
        let mut bits = 0;
        for word in &words {
            bits |= match *word {
                "client_hello" => 1,
                "server_hello" => 2,
                "client_keyx" => 4,
                "server_keyx" => 8,
                other => return Err(wrong(other)),
            };
        }
        return Ok(Check::FactBits(keyword.to_owned(), bits, negated));
    }
    if words.is_empty() {
        return Ok(Check::Fact(
            keyword.to_owned(),
            vec![Range::new(1, u64::MAX, false)],
            negated,
        ));
    }
    let mut ranges = Vec::new();
    for word in words {
        let range = match keyword {
            "tls.version" | "ssl_version" => {
                match word.trim_start_matches("tls").trim_start_matches('v') {
                    "1.0" => one(0x301),
                    "1.1" => one(0x302),
                    "1.2" => one(0x303),
                    "1.3" => one(0x304),
                    "sslv2" => one(2),
                    "sslv3" => one(0x300),
                    other => one(number(other).ok_or_else(|| wrong(word))?),
                }
            }
            _ if word.starts_with('&') => {
                let (mask, n) = word[1..].split_once('=').ok_or_else(|| wrong(word))?;
                let n = number(n).ok_or_else(|| wrong(word))?;
                Range {
                    mask: number(mask).ok_or_else(|| wrong(word))?,
                    ..one(n)
                }
            }
            _ => match word.split_once('-') {
                Some((low, high)) => Range::new(
                    number(low.trim()).ok_or_else(|| wrong(word))?,
                    number(high.trim()).ok_or_else(|| wrong(word))?,
                    false,
                ),
                None => match (word.strip_prefix('>'), word.strip_prefix('<')) {
                    (Some(n), _) => Range::new(
                        number(n.trim())
                            .ok_or_else(|| wrong(word))?
                            .saturating_add(1),
                        u64::MAX,
                        false,
                    ),
                    (_, Some(n)) => Range::new(
                        0,
                        number(n.trim())
                            .and_then(|n| n.checked_sub(1))
                            .ok_or_else(|| wrong(word))?,
                        false,
                    ),
                    _ => one(number(word).ok_or_else(|| wrong(word))?),
                },
            },
        };
        ranges.push(range);
    }
    Ok(Check::Fact(keyword.to_owned(), ranges, negated))
}

/// Whether a direction of a transaction has got so far.
pub(super) fn reached(transaction: &Transaction, direction: Direction, stage: Stage) -> bool {
    match stage {
        Stage::Begun => transaction.has_begun(direction),
        Stage::Has(buffer) => transaction.get(buffer, direction).next().is_some(),
        Stage::Shaken(bits) => transaction.facts("ssl_state").any(|s| s & bits == bits),
        Stage::Over => transaction.is_over(direction),
    }
}
