//! Rules, packets and flows built by hand, and a reference that decides conditions the straight way.
#![allow(unreachable_pub, dead_code, reason = "shared by test files")]
#![allow(
    clippy::field_reassign_with_default,
    reason = "other fields are private"
)]

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use weir_sensor::app::{App, Transaction};
use weir_sensor::buffer::Buffer;
use weir_sensor::detect::{
    Detector, FlowState, FlowView, Match, Moment, PacketFlow, Piece, Ruleset,
};
use weir_sensor::event::Events;
use weir_sensor::matcher::Engine;
use weir_sensor::packet::{Direction, Ip, Packet, Signature, Tcp, Transport};
use weir_sensor::rules::*;

pub const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
pub const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
pub const SECOND: u64 = 1_000_000_000;

pub fn any_address() -> AddressSet {
    AddressSet {
        negated: false,
        any: true,
        v4: Arc::from([]),
        v6: Arc::from([]),
    }
}

pub fn address(a: Ipv4Addr) -> AddressSet {
    AddressSet {
        negated: false,
        any: false,
        v4: Arc::from([(u32::from(a), u32::from(a))]),
        v6: Arc::from([]),
    }
}

fn any_port() -> PortSet {
    PortSet {
        any: true,
        ranges: Arc::from([]),
    }
}

pub fn rule(sid: u32, protocol: HeaderProtocol) -> Rule {
    let header = Header {
        protocol,
        source: any_address(),
        source_ports: any_port(),
        destination: any_address(),
        destination_ports: any_port(),
        both_ways: false,
    };
    let place = SourceLocation {
        file: "test".into(),
        line: sid,
    };
    Rule {
        sid,
        rev: 1,
        ..Rule::new(header, place)
    }
}

/// A rule with conditions on one buffer.
pub fn on(sid: u32, protocol: HeaderProtocol, buffer: Buffer, conditions: Vec<Condition>) -> Rule {
    let mut rule = rule(sid, protocol);
    rule.groups.push(Group {
        way: None,
        buffer,
        transforms: Vec::new(),
        conditions,
    });
    if let (HeaderProtocol::App, Some(app)) = (protocol, buffer.app()) {
        rule.apps.push((app, false));
    }
    rule
}

pub fn content(bytes: &[u8]) -> Content {
    Content::new(bytes.to_vec())
}

pub fn plain(bytes: &[u8]) -> Condition {
    Condition::Content(content(bytes))
}

pub fn with(bytes: &[u8], change: impl FnOnce(&mut Content)) -> Condition {
    let mut c = content(bytes);
    change(&mut c);
    Condition::Content(c)
}

pub fn is(n: i64) -> Option<Number> {
    Some(Number::Is(n))
}

pub fn read(bytes: i64, offset: i64) -> Read {
    Read {
        bytes: Number::Is(bytes),
        offset: Number::Is(offset),
        relative: false,
        little: false,
        string: None,
        dce: false,
        bitmask: None,
    }
}

pub fn pcre(pattern: &str, change: impl FnOnce(&mut Pcre)) -> Condition {
    let mut p = Pcre::new(pattern.into());
    change(&mut p);
    Condition::Pcre(p)
}

pub fn view(protocol: u8, app: App) -> FlowView {
    FlowView {
        sides: [app; 2],
        before: None,
        opaque: false,
        id: 7,
        client: CLIENT,
        client_port: 40000,
        server: SERVER,
        server_port: 80,
        protocol,
        established: true,
        app,
        packets: [1, 1],
        bytes: [100, 100],
        stream: [0, 0],
        start: 0,
        alerted: false,
    }
}

/// A packet of the flow with a payload; headers are not in `data`.
pub fn packet(number: u64, direction: Direction, tcp: bool, payload: &[u8]) -> Packet<'_> {
    let (source, destination, ports) = match direction {
        Direction::ToServer => (CLIENT, SERVER, (40000, 80)),
        Direction::ToClient => (SERVER, CLIENT, (80, 40000)),
    };
    let mut packet = Packet::new(number * SECOND, number, payload);
    packet.ip = Some(Ip {
        source,
        destination,
        header: 0..0,
        protocol: if tcp { 6 } else { 17 },
        ttl: 64,
        tos: 0,
        id: 1,
        flags: 2,
        fragment_offset: 0,
        fragment: false,
    });
    packet.transport = if tcp {
        Transport::Tcp(Tcp {
            source: ports.0,
            destination: ports.1,
            sequence: 1,
            acknowledgement: 1,
            flags: 16,
            window: 100,
            urgent: 0,
            header: 0..0,
            timestamps: None,
            window_scale: None,
            mss: None,
            sack_permitted: false,
            fast_open: false,
            signature: Signature::None,
        })
    } else {
        Transport::Udp {
            source: ports.0,
            destination: ports.1,
            header: 0,
        }
    };
    packet.payload = 0..payload.len();
    packet
}

/// One detector and one flow.
pub struct Bed {
    pub detector: Detector,
    pub state: FlowState,
    pub view: FlowView,
    pub number: u64,
    offset: [u64; 2],
    seen: [Vec<u8>; 2],
}

impl Bed {
    pub fn new(rules: Vec<Rule>, engine: Engine, protocol: u8, app: App) -> Bed {
        let (ruleset, refused) =
            Ruleset::build(rules, Expressions::default(), Arc::default(), engine);
        assert!(refused.is_empty(), "{refused:?}");
        Bed {
            detector: Detector::new(Arc::new(ruleset)),
            state: FlowState::default(),
            view: view(protocol, app),
            number: 0,
            offset: [0; 2],
            seen: Default::default(),
        }
    }

    pub fn taken(&mut self) -> Vec<Match> {
        let out = self.detector.matches().to_vec();
        self.detector.clear();
        out
    }

    /// Numbers of the rules that matched, in order.
    pub fn sids(&mut self) -> Vec<u32> {
        let rules = self.detector.rules().clone();
        self.taken()
            .iter()
            .map(|m| rules.rule(m.rule).sid)
            .collect()
    }

    /// A packet; of TCP it is not part of a stream.
    pub fn packet(&mut self, direction: Direction, payload: &[u8]) -> Vec<u32> {
        self.number += 1;
        let packet = packet(self.number, direction, self.view.protocol == 6, payload);
        let flow = PacketFlow {
            view: &self.view,
            state: &mut self.state,
            direction,
            offset: None,
            transaction: None,
        };
        self.detector.packet(&packet, Events::default(), Some(flow));
        self.sids()
    }

    /// A segment: as a packet, and as a piece of the stream.
    pub fn segment(&mut self, direction: Direction, payload: &[u8], last: bool) -> Vec<u32> {
        let d = direction.index();
        self.number += 1;
        let packet = packet(self.number, direction, true, payload);
        let flow = PacketFlow {
            view: &self.view,
            state: &mut self.state,
            direction,
            offset: Some(self.offset[d]),
            transaction: None,
        };
        self.detector.packet(&packet, Events::default(), Some(flow));
        self.offset[d] += payload.len() as u64;
        let seen = &mut self.seen[d];
        let fresh = seen.len().min(weir_sensor::detect::LOOKBACK);
        seen.drain(..seen.len() - fresh);
        seen.extend_from_slice(payload);
        let moment = Moment {
            time: packet.time,
            number: self.number,
            packet: Some(&packet),
        };
        let piece = Piece {
            direction,
            window: seen,
            fresh,
            base: self.offset[d] - seen.len() as u64,
            last,
        };
        self.detector
            .stream(&moment, &self.view, &mut self.state, &piece);
        self.sids()
    }

    pub fn transaction(&mut self, transaction: &mut Transaction, ended: bool) -> Vec<u32> {
        let moment = Moment {
            time: self.number * SECOND,
            number: self.number,
            packet: None,
        };
        self.detector.transaction(
            &moment,
            &self.view,
            &mut self.state,
            transaction,
            &[Direction::ToServer, Direction::ToClient],
            ended,
        );
        self.sids()
    }
}

/// A complete HTTP request with these buffers.
pub fn request(buffers: &[(Buffer, &[u8])]) -> Transaction {
    let mut t = Transaction::default();
    t.app = App::Http1;
    t.complete = [true, false];
    for (buffer, bytes) in buffers {
        t.push(*buffer, Direction::ToServer, bytes);
    }
    t
}

type Variables = HashMap<String, i128>;

/// Whether conditions hold of a buffer: every place is tried for every condition, in the order written.
pub fn reference(conditions: &[Condition], bytes: &[u8]) -> bool {
    place(conditions, bytes, 0, &Variables::new())
}

fn place(conditions: &[Condition], bytes: &[u8], cursor: i128, variables: &Variables) -> bool {
    let Some((first, rest)) = conditions.split_first() else {
        return true;
    };
    let length = bytes.len() as i128;
    let number = |n: &Number| match n {
        Number::Is(n) => i128::from(*n),
        Number::Variable(name) => variables[name],
    };
    let go = |cursor: i128| place(rest, bytes, cursor, variables);
    match first {
        Condition::Content(c) => {
            let size = c.bytes.len() as i128;
            let fits = |start: i128| {
                let end = start + size;
                let there = &bytes[start as usize..end as usize];
                let same = if c.nocase {
                    there.eq_ignore_ascii_case(&c.bytes)
                } else {
                    there == c.bytes
                };
                let offset = c.offset.as_ref().map_or(0, number);
                let relative = c.distance.is_some() || c.within.is_some();
                let from = cursor + c.distance.as_ref().map_or(0, number);
                same && start >= offset
                    && c.depth.as_ref().is_none_or(|d| end <= offset + number(d))
                    && (!relative || start >= from)
                    && c.within.as_ref().is_none_or(|w| end <= from + number(w))
                    && (!c.starts || start == offset)
                    && (!c.ends || end == length)
            };
            let mut places = (0..=length - size).filter(|s| fits(*s));
            if c.negated {
                places.next().is_none() && go(cursor)
            } else {
                places.any(|start| go(start + size))
            }
        }
        Condition::IsDataAt {
            offset,
            relative,
            negated,
        } => {
            let there = if *relative {
                cursor + number(offset) <= length
            } else {
                number(offset) < length
            };
            there != *negated && go(cursor)
        }
        Condition::Size(r) => {
            let n = bytes.len() as u64;
            ((r.low <= n && n <= r.high) != r.negated) && go(cursor)
        }
        Condition::ByteTest(t) => {
            let Some((value, _)) = value(&t.read, bytes, cursor, variables) else {
                return false;
            };
            let with = number(&t.value);
            let held = match t.operator {
                TestOperator::Less => value < with,
                TestOperator::Greater => value > with,
                TestOperator::Equal => value == with,
                TestOperator::LessEqual => value <= with,
                TestOperator::GreaterEqual => value >= with,
                TestOperator::And => value & with != 0,
                TestOperator::Xor => value ^ with != 0,
            };
            held != t.negated && go(cursor)
        }
        Condition::ByteJump(j) => {
            let Some((value, end)) = value(&j.read, bytes, cursor, variables) else {
                return false;
            };
            let mut by = value * i128::from(j.multiplier);
            while j.align && by % 4 != 0 {
                by += 1;
            }
            by += number(&j.post_offset);
            let to = if j.from_beginning {
                by
            } else if j.from_end {
                length + by
            } else {
                end + by
            };
            to <= length && go(to.max(0))
        }
        Condition::ByteExtract(e) => {
            let Some((value, end)) = value(&e.read, bytes, cursor, variables) else {
                return false;
            };
            let mut value = value * i128::from(e.multiplier);
            while e.align > 1 && value % i128::from(e.align) != 0 {
                value += 1;
            }
            let mut variables = variables.clone();
            variables.insert(e.name.clone(), value);
            place(rest, bytes, end, &variables)
        }
        other => panic!("the reference does not know {other:?}"),
    }
}

fn value(read: &Read, bytes: &[u8], cursor: i128, variables: &Variables) -> Option<(i128, i128)> {
    let number = |n: &Number| match n {
        Number::Is(n) => i128::from(*n),
        Number::Variable(name) => variables[name],
    };
    let from = number(&read.offset) + if read.relative { cursor } else { 0 };
    let end = from + number(&read.bytes);
    if from < 0 || end < from || end > bytes.len() as i128 {
        return None;
    }
    let mut digits = bytes[from as usize..end as usize].to_vec();
    let mut end = end;
    let value = match read.string {
        Some(base) => {
            let text = String::from_utf8_lossy(&digits).into_owned();
            let count = text.chars().take_while(|c| c.is_digit(base)).count();
            end = from + count as i128;
            i128::from_str_radix(&text[..count], base).ok()?
        }
        None => {
            if read.little {
                digits.reverse();
            }
            digits.iter().fold(0, |n, b| n * 256 + i128::from(*b))
        }
    };
    let value = match read.bitmask {
        Some(mask) => (value & i128::from(mask)) / (1 << mask.trailing_zeros()),
        None => value,
    };
    Some((value, end))
}
