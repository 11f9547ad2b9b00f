//! Where weir's router and the kernel differ on purpose: the rows of docs/differences-router.md.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::bed::Seen;
use super::compare::Difference;
use super::packets::Packet;
use super::weir::Form;
use super::world::{HOSTS, PORTS, Route, To, World, host_mac, host4, host6, port_mac};

/// The reason of a difference, if it is one of those; `None`: a defect.
pub(crate) fn why(
    world: &World,
    form: Form,
    packets: &[Packet],
    difference: &Difference,
) -> Option<&'static str> {
    let packet = &packets[difference.packet?];
    let (source, _) = addresses(&packet.frame)?;
    if difference.expected.is_empty() && (world.is_own(source) || is_broadcast(world, source)) {
        return Some("a source that is the router's own or a network's broadcast address");
    }
    if is_by_another(world, packet, difference) {
        if form.own_table {
            return Some("one of several next hops: weir's choice is not the kernel's");
        }
        if packet.what.contains("ICMP") {
            return Some(
                "an ICMP error over several next hops: the kernel's own forwarding looks at the quote",
            );
        }
    }
    if form.own_errors && is_answered_back(world, packet, difference) {
        return Some(
            "the router's own errors go back by the port and to the station that the packet came from",
        );
    }
    None
}

/// What came of a packet to one of several next hops, where another was chosen on the other side.
fn is_by_another(world: &World, packet: &Packet, difference: &Difference) -> bool {
    let Some((_, to)) = addresses(&packet.frame) else {
        return false;
    };
    let Some(Route {
        to: To::Hosts(all), ..
    }) = world.route(to)
    else {
        return false;
    };
    if all.len() < 2 || is_linked(world, to) {
        return false;
    }
    let right = |seen: &Seen| {
        let back = port_mac(seen.port);
        all.iter().any(|(port, host)| {
            seen.port == *port
                && seen
                    .frame
                    .starts_with(&[&host_mac(*port, *host)[..], &back].concat())
        })
    };
    match (&difference.expected[..], &difference.found[..]) {
        ([expected], [found]) if expected.frame[12..] == found.frame[12..] => right(found),
        // By one of them the packet is too long: cut, or answered.
        _ => {
            let mtus: Vec<u32> = all.iter().map(|(port, _)| world.ports[*port].mtu).collect();
            let (least, most) = (mtus.iter().min(), mtus.iter().max());
            least < most && least.is_some_and(|mtu| packet.frame.len() > 14 + *mtu as usize)
        }
    }
}

/// An error that goes back to whoever the packet came from, where the kernel's goes, from another of its addresses, by the route to the
/// packet's source, or nowhere because there is none.
fn is_answered_back(world: &World, packet: &Packet, difference: &Difference) -> bool {
    let [found] = &difference.found[..] else {
        return false;
    };
    let back = [&packet.frame[6..12], &port_mac(packet.port)[..]].concat();
    let Some((from, source)) = addresses(&found.frame) else {
        return false;
    };
    let port = &world.ports[packet.port];
    if found.port != packet.port
        || !found.frame.starts_with(&back)
        || (from != IpAddr::from(port.v4) && from != IpAddr::from(port.v6))
    {
        return false;
    }
    match &difference.expected[..] {
        // Nobody knows the way to most addresses of a port's network.
        [] if is_linked(world, source) => !is_host(source),
        [] => match world.route(source) {
            None => true,
            Some(route) => !matches!(route.to, To::Hosts(_) | To::Host6(..)),
        },
        // All but link layer, source and, for the source, checksums.
        [expected] => match from {
            IpAddr::V4(_) => {
                let rest = |f: &[u8]| [&f[12..26], &f[30..]].concat();
                rest(&found.frame) == rest(&expected.frame)
            }
            IpAddr::V6(_) => {
                let rest = |f: &[u8]| [&f[12..22], &f[38..56], &f[58..]].concat();
                rest(&found.frame) == rest(&expected.frame)
            }
        },
        _ => false,
    }
}

/// Whether an address is in a port's network.
fn is_linked(world: &World, address: IpAddr) -> bool {
    world.ports.iter().any(|p| match address {
        IpAddr::V4(a) => a.to_bits() >> 8 == p.v4.to_bits() >> 8,
        IpAddr::V6(a) => a.to_bits() >> 64 == p.v6.to_bits() >> 64,
    })
}

/// Whether an address is that of a host.
fn is_host(address: IpAddr) -> bool {
    let hosts = (0..PORTS).flat_map(|p| (0..HOSTS).map(move |h| (p, h)));
    hosts
        .flat_map(|(p, h)| [IpAddr::from(host4(p, h)), host6(p, h).into()])
        .any(|host| host == address)
}

/// Source and destination of the IP packet in an untagged frame.
fn addresses(frame: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let ip = frame.get(14..)?;
    let four = |at: usize| -> Option<IpAddr> {
        let bytes: [u8; 4] = ip.get(at..at + 4)?.try_into().ok()?;
        Some(Ipv4Addr::from(bytes).into())
    };
    let six = |at: usize| -> Option<IpAddr> {
        let bytes: [u8; 16] = ip.get(at..at + 16)?.try_into().ok()?;
        Some(Ipv6Addr::from(bytes).into())
    };
    match frame.get(12..14)? {
        [8, 0] => Some((four(12)?, four(16)?)),
        [0x86, 0xdd] => Some((six(8)?, six(24)?)),
        _ => Some((Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into())),
    }
}

/// The last address of a port's IPv4 network.
fn is_broadcast(world: &World, address: IpAddr) -> bool {
    let last = |v4: Ipv4Addr| IpAddr::from(Ipv4Addr::from_bits(v4.to_bits() | 0xff));
    world.ports.iter().any(|p| last(p.v4) == address)
}
