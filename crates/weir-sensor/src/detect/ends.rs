//! Who sends what is inspected to whom, and what rules distinguish of it beside addresses and ports.

use std::net::{IpAddr, Ipv4Addr};

use crate::app::App;
use crate::packet::{Direction, Packet, Transport};

use super::flow::FlowView;
use super::gate::Class;

/// Who sends what is inspected to whom, and what is known of the flow.
#[derive(Clone, Copy)]
pub(super) struct Ends {
    pub(super) source: (IpAddr, u16),
    pub(super) destination: (IpAddr, u16),
    pub(super) protocol: u8,
    pub(super) class: Class,
    /// Of IP, or 0.
    pub(super) version: u8,
    pub(super) syn: bool,
    pub(super) reassembled: bool,
    /// `None`: there is no flow.
    pub(super) established: Option<bool>,
    pub(super) app: App,
}

impl Ends {
    /// Of a packet by itself.
    pub(super) fn of_packet(packet: &Packet<'_>) -> Ends {
        let (ports, syn) = match &packet.transport {
            Transport::Tcp(t) => ((t.source, t.destination), t.flags & 2 != 0),
            Transport::Udp {
                source,
                destination,
                ..
            }
            | Transport::Sctp {
                source,
                destination,
                ..
            } => ((*source, *destination), false),
            Transport::None if is_cut(packet) => (first_ports(packet), false),
            Transport::Icmp { .. } | Transport::None => ((0, 0), false),
        };
        let nowhere = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let (source, destination, protocol, version) = match &packet.ip {
            Some(ip) => (ip.source, ip.destination, ip.protocol, version(ip.source)),
            None => (nowhere, nowhere, 0, 0),
        };
        Ends {
            source: (source, ports.0),
            destination: (destination, ports.1),
            protocol,
            class: class_of(packet),
            version,
            syn,
            reassembled: packet.reassembled,
            established: None,
            app: App::Unknown,
        }
    }

    /// Of a direction of a flow.
    pub(super) fn of_flow(view: &FlowView, direction: Direction) -> Ends {
        let (source, destination) = view.ends(direction);
        Ends {
            source,
            destination,
            protocol: view.protocol,
            class: class_of_protocol(view.protocol),
            version: version(source.0),
            syn: false,
            reassembled: false,
            established: Some(view.established),
            app: view.app,
        }
    }

    pub(super) fn traffic(&self, direction: Option<Direction>) -> Traffic {
        let direction = direction.map_or(2, |d| d.index() as u32);
        let established = self.established.map_or(2, u32::from);
        Traffic(
            (self.app as u32) << 11
                | u32::from(self.reassembled) << 10
                | u32::from(self.version) << 7
                | (self.class as u32) << 4
                | established << 2
                | direction,
        )
    }
}

/// All that rules distinguish of traffic beside addresses and ports, in one number: class, direction, state, version, application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Traffic(u32);

impl Traffic {
    /// Below 2 to the power of this.
    pub(super) const BITS: u32 = 17;

    pub(super) fn key(self) -> u128 {
        u128::from(self.0)
    }
}

const _: () = assert!(
    App::ALL.len() <= 1 << (Traffic::BITS - 11),
    "an application has six bits of a key"
);

fn version(address: IpAddr) -> u8 {
    if address.is_ipv4() { 4 } else { 6 }
}

/// Whether the header of TCP, UDP or ICMP is there and could not be read, which an event says.
pub(super) fn is_cut(packet: &Packet<'_>) -> bool {
    packet.transport == Transport::None
        && !packet.events.is_empty()
        && (packet.ip.as_ref())
            .is_some_and(|ip| !ip.fragment && matches!(ip.protocol, 1 | 6 | 17 | 58))
}

/// What a packet is for rules: a cut header is one of its protocol still.
fn class_of(packet: &Packet<'_>) -> Class {
    match &packet.ip {
        Some(ip) if is_cut(packet) => class_of_protocol(ip.protocol),
        // The header of IPv6 says that it is a fragment, and no more.
        Some(ip) if ip.fragment && ip.source.is_ipv4() => match ip.protocol {
            6 => Class::TcpPart,
            17 => Class::UdpPart,
            _ => Class::Other,
        },
        _ => Class::of(&packet.transport),
    }
}

fn class_of_protocol(protocol: u8) -> Class {
    match protocol {
        6 => Class::Tcp,
        17 => Class::Udp,
        1 => Class::Icmpv4,
        58 => Class::Icmpv6,
        132 => Class::Sctp,
        _ => Class::Other,
    }
}

/// Ports of TCP or UDP whose header is wrong further on: a rule that names port 0 is not about it.
fn first_ports(packet: &Packet<'_>) -> (u16, u16) {
    match (&packet.ip, packet.payload().first_chunk::<4>()) {
        (Some(ip), Some(b)) if matches!(ip.protocol, 6 | 17) => (
            u16::from_be_bytes([b[0], b[1]]),
            u16::from_be_bytes([b[2], b[3]]),
        ),
        _ => (0, 0),
    }
}
