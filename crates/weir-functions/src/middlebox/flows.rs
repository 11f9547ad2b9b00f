//! What the table of connections holds, for people: records -> connections, and which of them a filter means.
//!
//! Pure: reads copies of records. States and deaths are judged as docs/semantics.md section 7 and `bpf/include/flow.h` do.
//! Invariant: a record that is free, being written or dead is no connection here.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};
use weir_bpf::abi::{Flow, TUPLE_EXPECTED, Tuple, flow_flag, life};
use weir_policy::model::{Connections, FlowState};
use weir_value::{PROTOCOLS, protocol as protocol_number};

/// A live connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// Identifies it as long as it lives: sequence number << 32 | place.
    pub id: u64,
    /// Of this protocol, by name or number.
    pub protocol: String,
    /// As the packet that opened it was received.
    pub original: Ends,
    /// As that packet was sent on, if it was translated.
    pub translated: Option<Ends>,
    /// State, as `timeout` spells it.
    pub state: String,
    /// Since the last packet, ms.
    pub idle_ms: u64,
    /// Until it is dead if no packet comes, ms.
    pub expires_ms: u64,
    /// Since the first packet, ms.
    pub age_ms: u64,
    /// Ids of its rules, ascending.
    pub rules: Vec<u32>,
    /// What is added to sequence numbers of the side that opened it, and of the other.
    pub sequence_offsets: Option<[u32; 2]>,
    /// What identifications (IPv4) or flow labels (IPv6) are set to.
    pub identity: Option<u32>,
    /// What is added to them.
    pub identity_offset: Option<u32>,
    /// Opened by a packet on its way out of a port.
    pub on_transmit: bool,
}

impl Connection {
    /// `tcp-established`, `udp`: the protocol and how far it is, as one word.
    pub fn state_and_protocol(&self) -> &str {
        match self.protocol.as_str() {
            // Its state says `icmp` of both.
            "icmp6" => "icmp6",
            _ => &self.state,
        }
    }
}

/// Two ends. Of an ICMP query the ports are its identifier and its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ends {
    /// Source address.
    pub source: IpAddr,
    /// Source port.
    pub source_port: u16,
    /// Destination address.
    pub destination: IpAddr,
    /// Destination port.
    pub destination_port: u16,
}

/// Which connections are meant: all that is given must hold. Nothing given: all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionFilter {
    /// This one only.
    pub id: Option<u64>,
    /// One of the ends, original or translated, has this address.
    pub address: Option<IpAddr>,
    /// ... this port.
    pub port: Option<u16>,
    /// Of this protocol, by name or number.
    pub protocol: Option<String>,
    /// State as `timeout` spells it.
    pub state: Option<String>,
    /// Has this rule.
    pub rule: Option<u32>,
}

impl ConnectionFilter {
    /// Whether a connection is meant.
    pub fn covers(&self, connection: &Connection) -> bool {
        let ends = || std::iter::once(&connection.original).chain(&connection.translated);
        let with = |test: &dyn Fn(IpAddr, u16) -> bool| {
            ends().any(|e| test(e.source, e.source_port) || test(e.destination, e.destination_port))
        };
        let place = match (self.address, self.port) {
            (None, None) => true,
            (address, port) => with(&|a, p| {
                address.is_none_or(|want| want == a) && port.is_none_or(|want| want == p)
            }),
        };
        place
            && self.id.is_none_or(|id| id == connection.id)
            && (self.protocol.as_ref()).is_none_or(|text| {
                protocol_number(text)
                    .is_ok_and(|want| protocol_number(&connection.protocol) == Ok(want))
            })
            && (self.state.as_ref()).is_none_or(|name| {
                let states = FlowState::named(name).iter();
                states
                    .map(|state| state.name())
                    .any(|s| s == connection.state)
            })
            && self
                .rule
                .is_none_or(|rule| connection.rules.contains(&rule))
    }
}

/// The connection in a record at a place of the table, if it is one at this time of the kernel's monotonic clock.
pub fn read(record: &Flow, place: u32, now_ns: u64, settings: &Connections) -> Option<Connection> {
    if record.life & life::MASK != life::LIVE {
        return None;
    }
    let state = state(record);
    let timeout = timeout(record, state, settings);
    let idle = now_ns.saturating_sub(record.last_ns);
    if idle > timeout {
        return None;
    }
    let mut rules: Vec<u32> = record.rule_ids().collect();
    rules.sort_unstable();
    let has = |flag: u32| record.what & flag != 0;
    let is_v4 = record.orig.family == 4;
    let (set, moved) = match is_v4 {
        true => (flow_flag::ID_SET, flow_flag::ID_MOVED),
        false => (flow_flag::LABEL_SET, flow_flag::LABEL_MOVED),
    };
    let value = record.identity;
    let offsets = [record.seq_off, record.ack_off];
    Some(Connection {
        id: id(record, place),
        protocol: protocol(&record.orig),
        original: ends(&record.orig),
        translated: is_translated(record).then(|| ends(&record.trans)),
        state: state.name().to_owned(),
        idle_ms: idle / MS,
        expires_ms: (timeout - idle) / MS,
        age_ms: now_ns.saturating_sub(record.born_ns) / MS,
        rules,
        sequence_offsets: has(flow_flag::SEQUENCE).then_some(offsets),
        identity: has(set).then_some(value),
        identity_offset: has(moved).then_some(value),
        on_transmit: has(flow_flag::TRANSMIT),
    })
}

const MS: u64 = 1_000_000;

/// Whether the connection, or what it expects, leaves with another tuple.
fn is_translated(record: &Flow) -> bool {
    let expects_other = record.orig.what == TUPLE_EXPECTED && record.orig != record.trans;
    expects_other || record.what & flow_flag::NAT != 0
}

/// For how long a record lives without packets, ns.
fn timeout(record: &Flow, state: FlowState, settings: &Connections) -> u64 {
    let of = |state: FlowState| settings.timeouts_ns[state as usize];
    let own = record.what & flow_flag::TIMEOUT != 0;
    let mut timeout = match state {
        state if state.takes_rule_timeout() && own => record.timeout_ns,
        _ => of(state),
    };
    if state != FlowState::TcpEstablished || settings.loose_tcp {
        return timeout;
    }
    if record.life & life::RETRANS == life::RETRANS {
        timeout = timeout.min(of(FlowState::TcpRetrans));
    }
    let ahead = |end: u32, acked: u32| (acked.wrapping_sub(end) as i32) < 0;
    let [opener, other] = record.side;
    if record.life & life::INEXACT == 0
        && (ahead(opener.end, record.acked[1]) || ahead(other.end, record.acked[0]))
    {
        timeout = timeout.min(of(FlowState::TcpUnack));
    }
    timeout
}

fn id(record: &Flow, place: u32) -> u64 {
    record.life >> 32 << 32 | u64::from(place)
}

/// Where the connection of an id lies, and its sequence number.
pub fn place_of(id: u64) -> (u32, u32) {
    (id as u32, (id >> 32) as u32)
}

fn state(record: &Flow) -> FlowState {
    let seen = record.life >> life::SEEN_AT & 0xff;
    let forward = seen & 0xf;
    let reverse = seen >> life::SEEN_REVERSE;
    let either = forward | reverse;
    let both = forward & reverse;
    let acked = (record.life / life::ACKED_FIN) & 3;
    match record.orig.proto {
        _ if record.orig.what == TUPLE_EXPECTED => FlowState::Expectation,
        _ if record.orig.what != 0 => FlowState::Mapping,
        17 if reverse > 0 => FlowState::UdpStream,
        17 => FlowState::UdpUnreplied,
        6 if either & life::SEEN_RST != 0 => FlowState::TcpClose,
        6 if both & life::SEEN_FIN != 0 && acked == 3 => FlowState::TcpTimeWait,
        6 if both & life::SEEN_FIN != 0 => FlowState::TcpLastAck,
        6 if either & life::SEEN_FIN != 0 && acked != 0 => FlowState::TcpCloseWait,
        6 if either & life::SEEN_FIN != 0 => FlowState::TcpFinWait,
        6 if reverse == 0 => FlowState::TcpSynSent,
        6 if both & life::SEEN_ACK != 0 => FlowState::TcpEstablished,
        6 => FlowState::TcpSynRecv,
        _ if is_query(&record.orig) => FlowState::Icmp,
        _ if reverse > 0 => FlowState::Generic,
        _ => FlowState::GenericNew,
    }
}

/// Whether the connection is that of ICMP queries.
fn is_query(tuple: &Tuple) -> bool {
    matches!((tuple.proto, tuple.family), (1, 4) | (58, 6))
}

/// The protocol's name, else its number; so is ICMP without queries, which has no states of its own.
fn protocol(tuple: &Tuple) -> String {
    let named = PROTOCOLS
        .iter()
        .find(|(_, number)| *number == tuple.proto)
        .filter(|_| !matches!(tuple.proto, 1 | 58) || is_query(tuple));
    named.map_or_else(|| tuple.proto.to_string(), |(name, _)| (*name).to_owned())
}

fn ends(tuple: &Tuple) -> Ends {
    let address = |bytes: [u8; 16]| match tuple.family {
        4 => {
            let [a, b, c, d, ..] = bytes;
            IpAddr::V4(Ipv4Addr::new(a, b, c, d))
        }
        _ => IpAddr::V6(Ipv6Addr::from(bytes)),
    };
    Ends {
        source: address(tuple.src),
        source_port: u16::from_be_bytes(tuple.sport),
        destination: address(tuple.dst),
        destination_port: u16::from_be_bytes(tuple.dport),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn tuple(source: u8) -> Tuple {
        let mut tuple = Tuple {
            sport: 1234u16.to_be_bytes(),
            dport: 80u16.to_be_bytes(),
            proto: 6,
            family: 4,
            ..Tuple::default()
        };
        tuple.src[..4].copy_from_slice(&[10, 0, 0, source]);
        tuple.dst[..4].copy_from_slice(&[198, 51, 100, 7]);
        tuple
    }

    fn seen(forward: u64, reverse: u64) -> u64 {
        7 << 32 | (forward | reverse << life::SEEN_REVERSE) << life::SEEN_AT | life::LIVE
    }

    fn record(life: u64) -> Flow {
        Flow {
            life,
            last_ns: 100 * SECOND,
            born_ns: 90 * SECOND,
            orig: tuple(5),
            trans: tuple(9),
            what: flow_flag::NAT | flow_flag::MORE,
            rule: 3,
            more: [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            ..Flow::default()
        }
    }

    #[test]
    fn a_record_is_told_as_its_owner_would() {
        let any = life::SEEN_ANY | life::SEEN_ACK;
        let found = read(
            &record(seen(any, any)),
            42,
            103 * SECOND,
            &Connections::default(),
        )
        .expect("it is alive");
        assert_eq!(found.id, 7 << 32 | 42);
        assert_eq!(place_of(found.id), (42, 7));
        assert_eq!(found.state, "tcp-established");
        assert_eq!((found.idle_ms, found.age_ms), (3000, 13_000));
        assert_eq!(found.expires_ms, 14_397_000);
        assert_eq!(found.rules, [1, 3]);
        assert_eq!(found.original.source.to_string(), "10.0.0.5");
        let translated = found.translated.expect("it is");
        assert_eq!(translated.source.to_string(), "10.0.0.9");
    }

    #[test]
    fn states_follow_the_flags_seen() {
        use life::{SEEN_ACK as ACK, SEEN_ANY as ANY, SEEN_FIN as FIN, SEEN_RST as RST};
        let cases = [
            (ANY, 0, FlowState::TcpSynSent),
            (ANY, ANY | ACK, FlowState::TcpSynRecv),
            (ANY | ACK, ANY | ACK, FlowState::TcpEstablished),
            (ANY | ACK | FIN, ANY | ACK, FlowState::TcpFinWait),
            (ANY | ACK | FIN, ANY | ACK | FIN, FlowState::TcpLastAck),
            (ANY | ACK | FIN, ANY | ACK | RST, FlowState::TcpClose),
        ];
        for (forward, reverse, want) in cases {
            assert_eq!(state(&record(seen(forward, reverse))), want);
        }
        let fin = ANY | ACK | FIN;
        for (forward, reverse, acked, want) in [
            (fin, ANY | ACK, 2, FlowState::TcpCloseWait),
            (ANY | ACK, fin, 1, FlowState::TcpCloseWait),
            (fin, fin, 2, FlowState::TcpLastAck),
            (fin, fin, 3, FlowState::TcpTimeWait),
        ] {
            let life = seen(forward, reverse) | (acked * life::ACKED_FIN);
            assert_eq!(state(&record(life)), want);
        }
    }

    #[test]
    fn what_is_not_acknowledged_or_retransmitted_shortens_the_time_out() {
        let any = life::SEEN_ANY | life::SEEN_ACK;
        let mut settings = Connections::default();
        settings.timeouts_ns[FlowState::TcpUnack as usize] = 200 * SECOND;
        settings.timeouts_ns[FlowState::TcpRetrans as usize] = 100 * SECOND;
        let lives = |record: &Flow, settings: &Connections| {
            read(record, 0, 100 * SECOND, settings).map(|found| found.expires_ms / 1000)
        };
        let mut idle = record(seen(any, any));
        (idle.side[0].end, idle.acked[1]) = (5, 5);
        (idle.side[1].end, idle.acked[0]) = (u32::MAX, u32::MAX);
        assert_eq!(lives(&idle, &settings), Some(14_400));
        idle.side[1].end = 1;
        assert_eq!(lives(&idle, &settings), Some(200));
        idle.life += life::RETRANS_ONE * 2;
        assert_eq!(lives(&idle, &settings), Some(200));
        idle.life += life::RETRANS_ONE;
        assert_eq!(lives(&idle, &settings), Some(100));
        idle.life -= life::RETRANS_ONE;
        idle.life |= life::INEXACT;
        assert_eq!(lives(&idle, &settings), Some(14_400));
        idle.life += life::RETRANS_ONE;
        settings.loose_tcp = true;
        assert_eq!(lives(&idle, &settings), Some(14_400));
    }

    #[test]
    fn the_dead_and_the_unfinished_are_none() {
        let settings = Connections::default();
        let fresh = record(seen(life::SEEN_ANY, 0));
        assert!(read(&fresh, 0, 340 * SECOND, &settings).is_some());
        assert!(read(&fresh, 0, 341 * SECOND, &settings).is_none());
        let mut claimed = fresh;
        claimed.life = 7 << 32 | life::CLAIMED;
        assert!(read(&claimed, 0, 100 * SECOND, &settings).is_none());
        assert!(read(&Flow::default(), 0, 0, &settings).is_none());
    }

    #[test]
    fn a_filter_means_what_all_its_parts_mean() {
        let any = life::SEEN_ANY | life::SEEN_ACK;
        let found = read(
            &record(seen(any, any)),
            42,
            103 * SECOND,
            &Connections::default(),
        )
        .expect("it is alive");
        let yes = [
            ConnectionFilter::default(),
            ConnectionFilter {
                address: Some(IpAddr::from([10, 0, 0, 9])),
                port: Some(1234),
                ..ConnectionFilter::default()
            },
            ConnectionFilter {
                rule: Some(3),
                protocol: Some("tcp".to_owned()),
                ..ConnectionFilter::default()
            },
        ];
        assert!(yes.iter().all(|filter| filter.covers(&found)));
        let no = [
            ConnectionFilter {
                address: Some(IpAddr::from([10, 0, 0, 9])),
                port: Some(80),
                ..ConnectionFilter::default()
            },
            ConnectionFilter {
                state: Some("udp".to_owned()),
                ..ConnectionFilter::default()
            },
            ConnectionFilter {
                id: Some(42),
                ..ConnectionFilter::default()
            },
        ];
        assert!(!no.iter().any(|filter| filter.covers(&found)));
    }
}
