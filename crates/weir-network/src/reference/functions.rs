//! Functions with programs of their own, as a walk sees them: what balancers do to packets, by their tables; all others let packets through as
//! they are.
//!
//! Nothing is remembered here: every packet is one of a flow that no balancer has seen. So a later fragment has no server, and neither have
//! QUIC packets whose connection id names one. ICMP errors that would be translated are followed as they are.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use weir_bpf::abi::balancer::{CHUNK, ECHO, state};
use weir_bpf::abi::{LbBack, LbKey, LbServer, LbService};
use weir_functions::balancer::flow;
use weir_functions::kind::Planned;
use weir_packet::Reason;
use weir_packet::checksum::{sum, update};
use zerocopy::FromBytes;

use super::chain::Fields;
use super::frames::{ETH_IP4, ETH_IP6, HEADER, address4, address6, ether_type, word16};
use super::{Balanced, Passed, Private};
use crate::check::BALANCER;
use crate::plan::EdgeNetworks;

/// The functions of an edge.
#[derive(Clone, Debug)]
pub struct Functions {
    /// By slot.
    balancers: HashMap<u32, Balancer>,
}

impl Functions {
    /// Those of a plan.
    pub fn of(plan: &EdgeNetworks) -> Functions {
        let balancers = plan.functions.iter().filter(|one| one.kind == BALANCER);
        Functions {
            balancers: balancers
                .map(|one| (one.slot, Balancer::of(&one.planned)))
                .collect(),
        }
    }
}

impl Private for Functions {
    fn pass(&mut self, slot: u32, _: u32, frame: Vec<u8>) -> Result<Passed, &'static str> {
        match self.balancers.get(&slot) {
            Some(balancer) => balancer.balance(frame),
            None => Ok(Passed::on(frame)),
        }
    }
}

/// The tables of one.
#[derive(Clone, Debug)]
struct Balancer {
    services: HashMap<Place, LbService>,
    /// Services by where servers send from.
    backs: HashMap<Place, LbBack>,
    /// By number.
    servers: HashMap<u32, LbServer>,
    ring: Vec<u16>,
}

/// Address, protocol, port; port 0: any.
type Place = (IpAddr, u8, u16);

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMP6: u8 = 58;
/// TTL and hop limit of answers.
const TTL: u8 = 64;

/// Keys and values of a map of a plan.
fn entries<K: FromBytes, V: FromBytes>(
    planned: &Planned,
    map: &str,
) -> impl Iterator<Item = (K, V)> {
    let found = planned.instance.maps.iter().find(|one| one.name == map);
    found.into_iter().flat_map(|map| {
        let keys = map.keys.chunks_exact(map.key_size.max(1));
        let values = map.values.chunks_exact(map.value_size.max(1));
        keys.zip(values).filter_map(|(key, value)| {
            Some((
                K::read_from_bytes(key).ok()?,
                V::read_from_bytes(value).ok()?,
            ))
        })
    })
}

fn place(key: LbKey) -> Place {
    let address = match key.family {
        4 => Ipv4Addr::from(key.low as u32).into(),
        _ => Ipv6Addr::from(u128::from(key.high) << 64 | u128::from(key.low)).into(),
    };
    (address, key.protocol, key.port)
}

/// An address as records have it, of the family of another one.
fn address(bytes: [u8; 16], like: IpAddr) -> IpAddr {
    let [a, b, c, d, ..] = bytes;
    match like {
        IpAddr::V4(_) => Ipv4Addr::new(a, b, c, d).into(),
        IpAddr::V6(_) => Ipv6Addr::from(bytes).into(),
    }
}

impl Balancer {
    fn of(planned: &Planned) -> Balancer {
        let by_place = |(key, value)| (place(key), value);
        let chunks = entries::<u32, [u16; CHUNK]>(planned, "ring");
        Balancer {
            services: entries(planned, "services").map(by_place).collect(),
            backs: entries(planned, "backs")
                .map(|(key, value)| (place(key), value))
                .collect(),
            servers: entries(planned, "servers").collect(),
            ring: chunks.flat_map(|(_, chunk)| chunk).collect(),
        }
    }

    fn balance(&self, frame: Vec<u8>) -> Result<Passed, &'static str> {
        let Some((from, to)) = ends(&frame) else {
            return Ok(Passed::on(frame));
        };
        // Malformed packets are dropped, for a reason of many.
        let fields = Fields::of(&frame).ok_or("private")?;
        let icmp = if to.is_ipv4() { ICMP } else { ICMP6 };
        match (fields.protocol, fields.ports) {
            _ if fields.is_later && self.is_service(to) => Err(Reason::FragBeforeFirst.name()),
            (protocol @ (TCP | UDP), Some(ports)) => {
                self.flow(frame, &fields, protocol, ports, from, to)
            }
            (protocol, _) if protocol == icmp && self.is_service(to) => {
                Ok(echo(frame, &fields, to))
            }
            _ => Ok(Passed::on(frame)),
        }
    }

    fn is_service(&self, address: IpAddr) -> bool {
        let protocol = if address.is_ipv4() { ICMP } else { ICMP6 };
        let found = self.services.get(&(address, protocol, 0));
        found.is_some_and(|service| service.number == ECHO)
    }

    fn flow(
        &self,
        mut frame: Vec<u8>,
        fields: &Fields,
        protocol: u8,
        ports: (u16, u16),
        from: IpAddr,
        to: IpAddr,
    ) -> Result<Passed, &'static str> {
        let (services, backs) = (&self.services, &self.backs);
        let find = |port| services.get(&(to, protocol, port));
        if let Some(service) = find(ports.1).or_else(|| find(0)) {
            let places = service.ring_size;
            if places == 0 {
                return Err(Reason::NoServer.name());
            }
            let hash = flow::hash(from, to, protocol, ports);
            let at = service.ring_first + flow::place(hash, places);
            let number = self.ring.get(at as usize).ok_or(Reason::Internal.name())?;
            let server = self.servers.get(&u32::from(*number));
            let server = server.filter(|one| one.state == state::UP);
            let server = server.ok_or(Reason::NoServer.name())?;
            let target = address(server.address, to);
            let port = u16::from_be(server.port);
            translate(&mut frame, fields, protocol, Side::Target, target, port);
            let port = if port == 0 { ports.1 } else { port };
            return Ok(Passed {
                frame,
                back: false,
                balanced: Some(Balanced::Given {
                    service: SocketAddr::new(to, ports.1),
                    server: SocketAddr::new(target, port),
                }),
            });
        }
        let find = |port| backs.get(&(from, protocol, port));
        let Some(back) = find(ports.0).or_else(|| find(0)) else {
            return Ok(Passed::on(frame));
        };
        let service = address(back.address, from);
        let port = u16::from_be(back.port);
        translate(&mut frame, fields, protocol, Side::Source, service, port);
        let port = if port == 0 { ports.0 } else { port };
        Ok(Passed {
            frame,
            back: false,
            balanced: Some(Balanced::Returned {
                server: SocketAddr::new(from, ports.0),
                service: SocketAddr::new(service, port),
            }),
        })
    }
}

/// Source and destination of an IP packet; of another frame `None`.
fn ends(frame: &[u8]) -> Option<(IpAddr, IpAddr)> {
    match ether_type(frame) {
        ETH_IP4 => Some((
            address4(frame, HEADER + 12).into(),
            address4(frame, HEADER + 16).into(),
        )),
        ETH_IP6 => Some((
            address6(frame, HEADER + 8).into(),
            address6(frame, HEADER + 24).into(),
        )),
        _ => None,
    }
}

/// Which address and port of a packet.
#[derive(Clone, Copy)]
enum Side {
    Source = 0,
    Target = 1,
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// The checksum at a place after words of its sum changed.
fn follow(frame: &mut [u8], at: usize, before: u64, after: u64) {
    let new = update(word16(frame, at), before, after);
    frame[at..at + 2].copy_from_slice(&new.to_be_bytes());
}

/// Gives a packet another address and port on one side; port 0: it stays. Its checksums follow (RFC 1624).
fn translate(frame: &mut [u8], fields: &Fields, protocol: u8, side: Side, new: IpAddr, port: u16) {
    let bytes = octets(new);
    let at = match new {
        IpAddr::V4(_) => HEADER + 12 + side as usize * 4,
        IpAddr::V6(_) => HEADER + 8 + side as usize * 16,
    };
    let mut before = sum(&frame[at..at + bytes.len()]);
    let mut after = sum(&bytes);
    frame[at..at + bytes.len()].copy_from_slice(&bytes);
    if new.is_ipv4() {
        follow(frame, HEADER + 10, before, after);
    }
    let l4 = HEADER + fields.l4;
    if port != 0 {
        let at = l4 + side as usize * 2;
        before += u64::from(word16(frame, at));
        after += u64::from(port);
        frame[at..at + 2].copy_from_slice(&port.to_be_bytes());
    }
    match protocol {
        TCP => follow(frame, l4 + 16, before, after),
        // 0: it has none.
        _ if word16(frame, l4 + 6) != 0 => {
            follow(frame, l4 + 6, before, after);
            if word16(frame, l4 + 6) == 0 {
                frame[l4 + 6..l4 + 8].fill(0xff);
            }
        }
        _ => {}
    }
}

/// The service's address answers echo requests; other ICMP goes on.
fn echo(mut frame: Vec<u8>, fields: &Fields, own: IpAddr) -> Passed {
    let l4 = HEADER + fields.l4;
    let (request, reply) = if own.is_ipv4() { (8, 0) } else { (128, 129) };
    if fields.is_fragment || frame.get(l4) != Some(&request) || frame.len() < l4 + 8 {
        return Passed::on(frame);
    }
    let (at, length) = if own.is_ipv4() {
        (HEADER + 12, 4)
    } else {
        (HEADER + 8, 16)
    };
    frame[at..at + 2 * length].rotate_left(length);
    let was = u64::from(word16(&frame, l4));
    frame[l4] = reply;
    let is = u64::from(word16(&frame, l4));
    follow(&mut frame, l4 + 2, was, is);
    if own.is_ipv4() {
        let was = u64::from(word16(&frame, HEADER + 8));
        frame[HEADER + 8] = TTL;
        let is = u64::from(word16(&frame, HEADER + 8));
        follow(&mut frame, HEADER + 10, was, is);
    } else {
        frame[HEADER + 7] = TTL;
    }
    frame[..12].rotate_left(6);
    Passed {
        frame,
        back: true,
        balanced: Some(Balanced::Echoed { address: own }),
    }
}
