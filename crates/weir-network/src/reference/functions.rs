//! Functions with programs of their own, as a walk sees them: what balancers do to packets, by their tables; all others let packets through as
//! they are.
//!
//! Of flows, the servers that the ring gave them are remembered, so that their answers are known; every other packet is one of a flow that no
//! balancer has seen. So a later fragment has no server, and connection ids of QUIC are not looked at. Who asks about an answer alone has it
//! taken for one of the flow that the ring would have given to its server ([`Functions::presuming`]).

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use weir_bpf::abi::balancer::{CHUNK, ECHO, state};
use weir_bpf::abi::{LbBack, LbKey, LbServer, LbService};
use weir_functions::balancer::flow;
use weir_functions::kind::Planned;
use weir_packet::Reason;
use zerocopy::FromBytes;

use super::chain::Fields;
use super::frames::HEADER;
use super::translate::{self, ICMP, ICMP6, Quote, Side, TCP, UDP, ends};
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
    /// Those of a plan, for single packets: of an answer, the flow is presumed to be known.
    pub fn presuming(plan: &EdgeNetworks) -> Functions {
        let mut functions = Functions::of(plan);
        for balancer in functions.balancers.values_mut() {
            balancer.presumes = true;
        }
        functions
    }

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
        match self.balancers.get_mut(&slot) {
            Some(balancer) => balancer.balance(frame),
            None => Ok(Passed::on(frame)),
        }
    }
}

/// The tables of one.
#[derive(Clone, Debug)]
struct Balancer {
    services: HashMap<ServiceEndpoint, LbService>,
    /// Services by where servers send from.
    backs: HashMap<ServiceEndpoint, LbBack>,
    /// By number.
    servers: HashMap<u32, LbServer>,
    ring: Vec<u16>,
    /// Numbers of servers by protocol, client and service.
    flows: HashMap<(u8, SocketAddr, SocketAddr), u32>,
    /// A flow that is not remembered is one that the ring was asked for.
    presumes: bool,
}

/// Address, protocol, port; port 0: any.
type ServiceEndpoint = (IpAddr, u8, u16);

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

fn place(key: LbKey) -> ServiceEndpoint {
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
            flows: HashMap::new(),
            presumes: false,
        }
    }

    fn balance(&mut self, mut frame: Vec<u8>) -> Result<Passed, &'static str> {
        let Some((from, to)) = ends(&frame) else {
            return Ok(Passed::on(frame));
        };
        // Malformed packets are dropped, for a reason of many.
        let fields = Fields::of(&frame).ok_or("private")?;
        let icmp = if to.is_ipv4() { ICMP } else { ICMP6 };
        let balanced = match (fields.protocol, fields.ports) {
            _ if fields.is_later && self.is_service(to) => {
                return Err(Reason::FragBeforeFirst.name());
            }
            (protocol @ (TCP | UDP), Some((sport, dport))) => {
                let ends = [SocketAddr::new(from, sport), SocketAddr::new(to, dport)];
                self.flow(&mut frame, &fields, protocol, ends)?
            }
            (protocol, _) if protocol == icmp => self.icmp(&mut frame, &fields, to)?,
            _ => None,
        };
        Ok(Passed {
            frame,
            back: matches!(balanced, Some(Balanced::Echoed { .. })),
            balanced,
        })
    }

    fn is_service(&self, address: IpAddr) -> bool {
        let protocol = if address.is_ipv4() { ICMP } else { ICMP6 };
        let found = self.services.get(&(address, protocol, 0));
        found.is_some_and(|service| service.number == ECHO)
    }

    /// The server that a new flow gets; `None`: it is for no service.
    fn given(
        &self,
        protocol: u8,
        from: SocketAddr,
        to: SocketAddr,
    ) -> Result<Option<Given>, &'static str> {
        let find = |port| self.services.get(&(to.ip(), protocol, port));
        let Some(service) = find(to.port()).or_else(|| find(0)) else {
            return Ok(None);
        };
        let places = service.ring_size;
        if places == 0 {
            return Err(Reason::NoServer.name());
        }
        let hash = flow::hash(from.ip(), to.ip(), protocol, (from.port(), to.port()));
        let at = service.ring_first + flow::place(hash, places);
        let number = self.ring.get(at as usize).ok_or(Reason::Internal.name())?;
        let number = u32::from(*number);
        let server = self.servers.get(&number);
        let server = server.filter(|one| one.state == state::UP);
        let server = server.ok_or(Reason::NoServer.name())?;
        let target = address(server.address, to.ip());
        let (at, port) = other(target, u16::from_be(server.port), to);
        Ok(Some(Given { number, at, port }))
    }

    /// The service that a server's answer to a client is of, and whether its port is another one; `None`: it is no answer.
    fn returned(
        &self,
        protocol: u8,
        from: SocketAddr,
        client: SocketAddr,
    ) -> Option<(SocketAddr, u16)> {
        let find = |port| self.backs.get(&(from.ip(), protocol, port));
        let back = find(from.port()).or_else(|| find(0))?;
        let service = address(back.address, from.ip());
        let (service, port) = other(service, u16::from_be(back.port), from);
        let known = self.flows.get(&(protocol, client, service)).copied();
        let presumed = || match self.presumes {
            true => self.given(protocol, client, service).ok().flatten(),
            false => None,
        };
        let known = known.or_else(|| presumed().map(|given| given.number));
        (known == Some(back.server)).then_some((service, port))
    }

    fn flow(
        &mut self,
        frame: &mut [u8],
        fields: &Fields,
        protocol: u8,
        [from, to]: [SocketAddr; 2],
    ) -> Result<Option<Balanced>, &'static str> {
        if let Some(given) = self.given(protocol, from, to)? {
            // FIN and RST begin nothing.
            let flags = frame.get(HEADER + fields.l4 + 13).copied().unwrap_or(0);
            if protocol == UDP || flags & 5 == 0 {
                self.flows.insert((protocol, from, to), given.number);
            }
            translate::packet(frame, fields, Side::Target, given.at.ip(), given.port);
            return Ok(Some(Balanced::Given {
                service: to,
                server: given.at,
            }));
        }
        Ok(self.returned(protocol, from, to).map(|(service, port)| {
            translate::packet(frame, fields, Side::Source, service.ip(), port);
            Balanced::Returned {
                server: from,
                service,
            }
        }))
    }

    fn icmp(
        &self,
        frame: &mut [u8],
        fields: &Fields,
        to: IpAddr,
    ) -> Result<Option<Balanced>, &'static str> {
        let is_service = self.is_service(to);
        if is_service && translate::echo(frame, fields) {
            return Ok(Some(Balanced::Echoed { address: to }));
        }
        let Some(quote) = Quote::of(frame, fields) else {
            return Ok(None);
        };
        // An error that a client sends quotes what it got of the service; one that is sent to a client, what that sent.
        let (side, about, found) = match is_service {
            true => {
                let given = self.given(quote.protocol, quote.to, quote.from)?;
                (Side::Source, quote.from, given.map(|to| (to.at, to.port)))
            }
            false if quote.from.ip() == to => {
                let found = self.returned(quote.protocol, quote.to, quote.from);
                (Side::Target, quote.to, found)
            }
            false => return Ok(None),
        };
        Ok(found.map(|(now, port)| {
            quote.translate(frame, side, now.ip(), port);
            Balanced::Quoted { about, now }
        }))
    }
}

/// A server for a new flow.
struct Given {
    number: u32,
    at: SocketAddr,
    /// The port that is to be written, 0: none.
    port: u16,
}

/// An address, with a port of its own or that of another one; and the port that is to be written, 0: none.
fn other(address: IpAddr, port: u16, like: SocketAddr) -> (SocketAddr, u16) {
    let shown = if port == 0 { like.port() } else { port };
    (SocketAddr::new(address, shown), port)
}
