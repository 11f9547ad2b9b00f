//! The cheap conditions of a rule, asked before anything is evaluated.

use std::net::IpAddr;

use crate::app::App;
use crate::packet::{Direction, Transport};
use crate::rules::{Header, HeaderProtocol, PortSet, Rule};

use super::check::Check;
use super::ends::Ends;

/// What a packet's transport is, for lists of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Class {
    Tcp = 0,
    Udp = 1,
    Icmpv4 = 2,
    Icmpv6 = 3,
    Sctp = 4,
    Other = 5,
    /// A fragment of one: it has no ports, and what it carries is looked at when the whole is put together.
    TcpPart = 6,
    UdpPart = 7,
}

/// How many there are.
pub(super) const CLASSES: usize = 8;

impl Class {
    pub(super) fn of(transport: &Transport) -> Class {
        match transport {
            Transport::Tcp(_) => Class::Tcp,
            Transport::Udp { .. } => Class::Udp,
            Transport::Icmp { v6: false, .. } => Class::Icmpv4,
            Transport::Icmp { v6: true, .. } => Class::Icmpv6,
            Transport::Sctp { .. } => Class::Sctp,
            Transport::None => Class::Other,
        }
    }
}

/// The cheap conditions, asked before anything is evaluated.
#[derive(Debug)]
pub(super) struct Gate {
    /// A bit for each class.
    pub(super) classes: u8,
    /// 4 or 6, or 0 for both.
    pub(super) version: u8,
    pub(super) to_server: Option<bool>,
    pub(super) established: Option<bool>,
    pub(super) needs_syn: bool,
    pub(super) only_fragment: Option<bool>,
    /// Header conditions that say nothing are not asked.
    pub(super) any_source: bool,
    pub(super) any_source_port: bool,
    pub(super) any_destination: bool,
    pub(super) any_destination_port: bool,
    pub(super) apps: Box<[(App, bool)]>,
    /// Where the application is known it must be one of these and ports are not asked.
    pub(super) services: Option<Box<[App]>>,
    /// `pkthdr`: packets without an IP header as well.
    pub(super) broken: bool,
}

/// The cheapest conditions of a gate, dense: a packet asks them of a hundred rules that no pattern leads to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quick {
    classes: u8,
    /// A bit for each direction, and the third for none.
    directions: u8,
    /// Bit 0: not established will do; bit 1: established; bit 2: no flow.
    established: u8,
    /// All ports of the header lie in these.
    pub(super) source_ports: (u16, u16),
    pub(super) destination_ports: (u16, u16),
    /// A bit for each application.
    apps: u64,
}

impl Quick {
    pub(super) fn new(rule: &Rule, gate: &Gate) -> Quick {
        let all = (0, u16::MAX);
        // Either way round, and where a known application stands for the ports, they are not asked here.
        let narrow = |set: &PortSet| {
            let asked = !set.any && !rule.header.both_ways && rule.services.is_none();
            let hull = || Some((set.ranges.first()?.0, set.ranges.last()?.1));
            if asked { hull().unwrap_or(all) } else { all }
        };
        Quick {
            classes: gate.classes,
            directions: match gate.to_server {
                Some(true) => 1,
                Some(false) => 2,
                None => 7,
            },
            established: match gate.established {
                Some(false) => 1,
                Some(true) => 2,
                None => 7,
            },
            source_ports: narrow(&rule.header.source_ports),
            destination_ports: narrow(&rule.header.destination_ports),
            apps: App::ALL
                .iter()
                .filter(|app| speaks(&gate.apps, **app))
                .fold(0, |bits, app| bits | 1 << *app as u64),
        }
    }

    /// Whether the rule is about such traffic, whatever its addresses and ports.
    pub(super) fn speaks(
        &self,
        class: Class,
        direction: Option<Direction>,
        established: Option<bool>,
        app: App,
    ) -> bool {
        self.classes >> (class as u8) & 1 != 0
            && self.directions >> direction.map_or(2, |d| d as u8) & 1 != 0
            && self.established >> established.map_or(2, u8::from) & 1 != 0
            && self.apps >> app as u64 & 1 != 0
    }

    #[inline]
    pub(super) fn may(
        &self,
        class: Class,
        direction: Option<Direction>,
        established: Option<bool>,
        app: App,
        ports: (u16, u16),
    ) -> bool {
        let within = |(low, high): (u16, u16), port: u16| low <= port && port <= high;
        self.speaks(class, direction, established, app)
            && within(self.source_ports, ports.0)
            && within(self.destination_ports, ports.1)
    }
}

pub(super) fn gate(rule: &Rule, checks: &[Check]) -> Gate {
    let bit = |c: Class| 1_u8 << c as u8;
    // What is asked of headers alone can be asked of fragments.
    let with_part = |whole: Class, part: Class| match rule.groups.is_empty() {
        true => bit(whole) | bit(part),
        false => bit(whole),
    };
    let (classes, version) = match rule.header.protocol {
        HeaderProtocol::TcpPacket | HeaderProtocol::TcpStream => (bit(Class::Tcp), 0),
        HeaderProtocol::Tcp => (with_part(Class::Tcp, Class::TcpPart), 0),
        HeaderProtocol::Udp => (with_part(Class::Udp, Class::UdpPart), 0),
        HeaderProtocol::Icmp => (bit(Class::Icmpv4) | bit(Class::Icmpv6), 0),
        HeaderProtocol::Icmpv4 => (bit(Class::Icmpv4), 0),
        HeaderProtocol::Icmpv6 => (bit(Class::Icmpv6), 0),
        HeaderProtocol::Sctp => (bit(Class::Sctp), 0),
        HeaderProtocol::App => (bit(Class::Tcp) | bit(Class::Udp), 0),
        HeaderProtocol::Ip | HeaderProtocol::PacketHeader => (0xff, 0),
        HeaderProtocol::Ipv4 => (0xff, 4),
        HeaderProtocol::Ipv6 => (0xff, 6),
    };
    let header = &rule.header;
    // What has no ports is at none, not at port 0, and not at another than those named either.
    let classes = match header.source_ports.any && header.destination_ports.any {
        true => classes,
        false => classes & (bit(Class::Tcp) | bit(Class::Udp) | bit(Class::Sctp)),
    };
    Gate {
        classes,
        version,
        to_server: rule.flow.to_server,
        established: rule.flow.established,
        needs_syn: checks.iter().any(Check::needs_syn),
        only_fragment: rule.flow.fragment,
        any_source: header.source.any,
        any_source_port: header.source_ports.any,
        any_destination: header.destination.any,
        any_destination_port: header.destination_ports.any,
        apps: with_carried(&rule.apps),
        services: rule.services.as_deref().map(Into::into),
        broken: header.protocol == HeaderProtocol::PacketHeader,
    }
}

/// The applications of a rule, and DNS in HTTP/2 where it is about either.
fn with_carried(apps: &[(App, bool)]) -> Box<[(App, bool)]> {
    let mut all = apps.to_vec();
    for negated in [false, true] {
        let has = |app| apps.contains(&(app, negated));
        if (has(App::Http2) || has(App::Dns)) && !has(App::Doh2) {
            all.push((App::Doh2, negated));
        }
    }
    all.into()
}

/// Whether a flow's application is one that a rule is about.
pub(super) fn speaks(apps: &[(App, bool)], app: App) -> bool {
    let mut positive = false;
    let mut named = false;
    for (wanted, negated) in apps {
        if *negated {
            if app == *wanted || app == App::Unknown {
                return false;
            }
        } else {
            positive = true;
            named |= app == *wanted;
        }
    }
    named || !positive
}

/// Whether the cheap conditions of a rule hold.
pub(super) fn open(
    gate: &Gate,
    header: &Header,
    ends: &Ends,
    direction: Option<Direction>,
) -> bool {
    if gate.classes >> (ends.class as u8) & 1 == 0 {
        return false;
    }
    if gate.version != ends.version && gate.version != 0 {
        return false;
    }
    if ends.version == 0 && !gate.broken {
        return false;
    }
    if let Some(to_server) = gate.to_server
        && direction
            != Some(if to_server {
                Direction::ToServer
            } else {
                Direction::ToClient
            })
    {
        return false;
    }
    if let Some(established) = gate.established
        && ends.established != Some(established)
    {
        return false;
    }
    if gate.only_fragment.is_some_and(|f| f != ends.reassembled) {
        return false;
    }
    if !gate.apps.is_empty() && !speaks(&gate.apps, ends.app) {
        return false;
    }
    let mut ports = true;
    if let Some(services) = &gate.services
        && !matches!(ends.app, App::Unknown | App::Failed)
    {
        if !services.contains(&ends.app) {
            return false;
        }
        ports = false;
    }
    let fits = |(source, source_port): (IpAddr, u16),
                (destination, destination_port): (IpAddr, u16)| {
        (!ports || gate.any_source_port || header.source_ports.has(source_port))
            && (!ports
                || gate.any_destination_port
                || header.destination_ports.has(destination_port))
            && (gate.any_source || header.source.has(source))
            && (gate.any_destination || header.destination.has(destination))
    };
    fits(ends.source, ends.destination) || header.both_ways && fits(ends.destination, ends.source)
}
