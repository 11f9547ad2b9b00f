//! `kind = "balancer"`: services and servers become the tables of bpf/functions/balancer.c.
//!
//! [`Balancer::read`] is configuration -> model, `tables` model -> plan. docs/balancer.md is the manual, docs/design/balancer.md says how flows
//! find and keep their servers. Invariant: with what runs at hand (`Files::kept`), a server that stays keeps its number.

pub mod check;
pub mod flow;
pub mod numbers;
mod read;
pub mod report;
pub mod ring;
mod tables;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use weir_bpf::abi::balancer::mode;
use weir_value::Prefix;

use crate::request::{FunctionError, Kind, Planned, Request};

pub use check::Check;
pub(crate) use read::prefix;

/// Services of an instance at most.
pub const SERVICES_MAX: usize = 1024;
/// Servers of an instance at most: numbers have sixteen bits.
pub const SERVERS_MAX: u64 = 65_535;
/// Name of the object.
pub const OBJECT: &str = "balancer";
/// Maps that its form for virtual networks has not: CPUs and next hops are those of the host.
pub const OF_HOST: [&str; 3] = ["cpus", "nears", "ports_by_index"];

/// The kind's row in `kind`.
pub const KIND: Kind = Kind {
    sends: true,
    ..Kind::new(
        "balancer",
        plan,
        &[
            ("", read::KEYS),
            ("service", read::SERVICE),
            ("service.server", read::SERVER),
            ("service.check", check::KEYS),
        ],
    )
};

/// Plans an instance.
///
/// # Errors
/// Keys that are wrong or do not fit together; all that were found.
pub fn plan(request: &Request<'_>) -> Result<Planned, FunctionError> {
    let balancer = Balancer::read(request)?;
    let kept = |map: &str| request.files.kept(request.name, map);
    tables::plan(&balancer, request.ports, &kept)
}

/// A balancer as configuration describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Balancer {
    /// In the order of the configuration.
    pub services: Vec<Service>,
    /// Outer sources of tunnels over IPv4, and of those over IPv6.
    pub source4: Option<Prefix>,
    #[expect(missing_docs, reason = "see source4")]
    pub source6: Option<Prefix>,
    /// Flows that can be remembered at least.
    pub connections: u64,
    /// Places of each service's ring, a prime.
    pub ring: u32,
    /// Room for servers.
    pub servers: u64,
    /// After which a flow that says nothing may be displaced, in ns: new ones, TCP, UDP, closing ones.
    pub idle_ns: [u64; 4],
    /// Which packets of NAT servers are translated back.
    pub answers: Answers,
}

/// Which packets that come from the address and port of a NAT server are answers of its service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answers {
    /// Those of flows that are remembered.
    #[default]
    Known,
    /// All but those to this host: for edges that share their clients with others.
    All,
}

/// What becomes of the new flows of a service while all its servers are down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AllDown {
    /// They go to those servers that were the last to be up.
    #[default]
    Keep,
    /// They are dropped.
    Drop,
}

impl AllDown {
    /// As configuration writes it.
    pub fn name(self) -> &'static str {
        match self {
            AllDown::Keep => "keep",
            AllDown::Drop => "drop",
        }
    }
}

fn bits(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// An address as a number, and its width.
fn number(address: IpAddr) -> (u128, u8) {
    match address {
        IpAddr::V4(a) => (u128::from(u32::from(a)), 32),
        IpAddr::V6(a) => (u128::from(a), 128),
    }
}

/// The bytes of an address in network order, IPv4 first and zeroes behind.
pub(crate) fn bytes(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(a) => {
            let mut all = [0; 16];
            all[..4].copy_from_slice(&a.octets());
            all
        }
        IpAddr::V6(a) => a.octets(),
    }
}

/// A virtual service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// For messages and reports.
    pub name: String,
    /// What it is reached by.
    pub address: Prefix,
    /// TCP or UDP.
    pub protocol: Protocol,
    /// `None`: all ports.
    pub port: Option<u16>,
    /// How packets get to its servers.
    pub mode: Mode,
    /// Where server ids are in connection ids of QUIC, if they are there.
    pub quic: Option<Quic>,
    /// How `weir service check` asks its servers, if it says so.
    pub check: Option<Check>,
    /// What it does while they are all down.
    pub all_down: AllDown,
    /// Its servers.
    pub servers: Vec<Server>,
}

impl Service {
    /// What tells it from other services on every edge.
    pub fn identity(&self) -> u64 {
        numbers::identity(&self.identity_bytes())
    }

    fn identity_bytes(&self) -> Vec<u8> {
        let mut all = vec![
            self.protocol.number(),
            self.address.width(),
            self.address.len,
        ];
        all.extend(bytes(self.address.address()));
        all.extend(self.port.unwrap_or(0).to_be_bytes());
        all
    }

    /// What tells one of its servers from all others.
    pub fn server_identity(&self, server: &Server) -> u64 {
        let mut all = self.identity_bytes();
        all.push(bits(server.address));
        all.extend(bytes(server.address));
        all.extend(server.port.unwrap_or(0).to_be_bytes());
        numbers::identity(&all)
    }

    /// `tcp 192.0.2.1:80`.
    pub fn place(&self) -> String {
        let (protocol, address) = (self.protocol.name(), self.address);
        match (self.port, address.is_ip6) {
            (None, _) => format!("{protocol} {address}"),
            (Some(port), false) => format!("{protocol} {address}:{port}"),
            (Some(port), true) => format!("{protocol} [{address}]:{port}"),
        }
    }
}

/// What a service speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "names of protocols")]
pub enum Protocol {
    Tcp,
    Udp,
}

impl Protocol {
    /// As configuration writes it.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
        }
    }

    fn number(self) -> u8 {
        match self {
            Protocol::Tcp => 6,
            Protocol::Udp => 17,
        }
    }
}

/// How packets get to servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In another IP packet.
    Ipip,
    /// In UDP.
    Gue {
        /// Destination port.
        port: u16,
        /// 0 or 1.
        version: u8,
    },
    /// With another destination.
    Nat,
    /// As they are, to the server's MAC address.
    Dsr,
}

impl Mode {
    /// As configuration writes it.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Ipip => "ipip",
            Mode::Gue { .. } => "gue",
            Mode::Nat => "nat",
            Mode::Dsr => "dsr",
        }
    }

    fn number(self) -> u8 {
        match self {
            Mode::Ipip => mode::IPIP,
            Mode::Gue { version: 1, .. } => mode::GUE,
            Mode::Gue { .. } => mode::GUE0,
            Mode::Nat => mode::NAT,
            Mode::Dsr => mode::DSR,
        }
    }

    /// Whether packets get headers in front.
    pub fn is_tunnel(self) -> bool {
        matches!(self, Mode::Ipip | Mode::Gue { .. })
    }
}

/// Where a server id stands in a connection id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quic {
    /// Bytes, 1 to 4.
    pub bytes: u8,
}

/// A server of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Its address.
    pub address: IpAddr,
    /// NAT: its port.
    pub port: Option<u16>,
    /// Its part of the flows.
    pub weight: u32,
    /// Keeps its flows and gets no new ones.
    pub drain: bool,
    /// MAC address of the server or of its gateway.
    pub mac: Option<[u8; 6]>,
    /// weir's number of the port that it is behind.
    pub to: Option<u32>,
    /// CPU of this host whose stack gets the packets.
    pub cpu: Option<u32>,
    /// In connection ids of QUIC.
    pub id: Option<u32>,
}

impl Server {
    /// Whether it gets new flows, as far as configuration says.
    pub fn takes_flows(&self) -> bool {
        !self.drain
    }
}
