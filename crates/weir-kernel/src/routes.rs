//! Routes of the current namespace over rtnetlink: read whole, followed as they change; and neighbours that the kernel is to ask for.
//!
//! Message formats are those of rtnetlink(7), read and written by the netlink-packet crates. Not everything that removes routes is told: of IPv4 those that go with an address or a link
//! vanish silently, and a full socket loses messages. [`Change::Unknown`] stands for all of that: who follows reads everything again then.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkHeader,
    NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteMetric, RouteNextHop,
    RouteProtocol, RouteScope, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

use crate::KernelError;

/// The table of ordinary routes (`RT_TABLE_MAIN`).
pub const MAIN: u32 = 254;
/// The table of the host's own addresses (`RT_TABLE_LOCAL`).
pub const LOCAL: u32 = 255;

/// `RTMGRP_LINK`, `RTMGRP_IPV4_IFADDR`, `RTMGRP_IPV4_ROUTE`, `RTMGRP_IPV6_IFADDR`, `RTMGRP_IPV6_ROUTE` of linux/rtnetlink.h.
const GROUPS: u32 = 1 | 0x10 | 0x40 | 0x100 | 0x400;
/// Bytes that may wait for the one who follows: a table that is filled at once is some hundred bytes a route.
const BUFFER: usize = 64 << 20;
/// Longest datagram that the kernel writes in a dump.
const DATAGRAM: usize = 64 << 10;

/// A route of the kernel's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelRoute {
    /// Its table.
    pub table: u32,
    /// First address of the destination.
    pub destination: IpAddr,
    /// Length of its prefix.
    pub len: u8,
    /// What it does.
    pub kind: KernelRouteKind,
    /// Preference: the lowest is taken.
    pub metric: u32,
    /// Its own MTU.
    pub mtu: Option<u32>,
    /// Next hops; none where it leads nowhere.
    pub hops: Vec<KernelHop>,
}

/// A next hop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelHop {
    /// Gateway; `None`: the destination itself.
    pub via: Option<IpAddr>,
    /// Index of the device; 0: none.
    pub device: u32,
    /// Share of the flows, from 1.
    pub weight: u16,
}

/// What a route does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelRouteKind {
    /// Forwards.
    Unicast,
    /// To the host itself, broadcasts and groups included.
    Local,
    /// Drops silently.
    Blackhole,
    /// Drops and says so.
    Unreachable,
    /// Drops and says that it is forbidden.
    Prohibit,
}

/// What happened to the routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A route is there, or has another way.
    Added(KernelRoute),
    /// A route is gone.
    Removed(KernelRoute),
    /// Something else: read everything again.
    Unknown,
}

/// All routes of a table of both families.
///
/// # Errors
/// What the kernel refused.
pub fn read(table: u32) -> Result<Vec<KernelRoute>, KernelError> {
    let told = |e| KernelError::sys("read the routes", e);
    let socket = socket(0).map_err(told)?;
    let mut routes = Vec::new();
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        dump(&socket, family, table, &mut routes).map_err(told)?;
    }
    Ok(routes)
}

/// Changes of the routes of a table, from the moment it is opened on.
#[derive(Debug)]
pub struct Follower {
    socket: OwnedFd,
    table: u32,
}

impl Follower {
    /// Begins to follow.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn open(table: u32) -> Result<Follower, KernelError> {
        let socket = socket(GROUPS).map_err(|e| KernelError::sys("follow the routes", e))?;
        // Without the privilege the ordinary limit holds, and losses are told.
        let _ = sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER);
        Ok(Follower { socket, table })
    }

    /// Changes that came in within `wait`; empty: none.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn next(&self, wait: Duration) -> Result<Vec<Change>, KernelError> {
        let told = |e| KernelError::sys("follow the routes", e);
        let mut changes = Vec::new();
        if !readable(self.socket.as_fd(), wait).map_err(told)? {
            return Ok(changes);
        }
        let mut buffer = vec![0; DATAGRAM];
        // All that is there, so that what belongs together is done together.
        while changes.len() < 100_000 {
            match receive(&self.socket, &mut buffer, RecvFlags::DONTWAIT) {
                Ok(got) => each(&buffer[..got], |header, payload| {
                    changes.extend(self.change(header, payload));
                    Ok(true)
                })
                .map_err(told)
                .map(drop)?,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => changes.push(Change::Unknown),
                Err(e) => return Err(told(e)),
            }
        }
        Ok(changes)
    }

    fn change(&self, header: &NetlinkHeader, message: &RouteNetlinkMessage) -> Option<Change> {
        match message {
            RouteNetlinkMessage::NewRoute(route) => {
                let route = route_of(route, self.table)?;
                // A second route of IPv4 to the same prefix counts once the first is gone: only reading again tells which it is.
                let second = header.flags & NLM_F_APPEND != 0 && route.destination.is_ipv4();
                Some(if second {
                    Change::Unknown
                } else {
                    Change::Added(route)
                })
            }
            RouteNetlinkMessage::DelRoute(route) => {
                route_of(route, self.table).map(Change::Removed)
            }
            RouteNetlinkMessage::NewLink(_)
            | RouteNetlinkMessage::DelLink(_)
            | RouteNetlinkMessage::DelAddress(_) => Some(Change::Unknown),
            _ => None,
        }
    }
}

/// Lets the kernel ask for the link-layer address of a neighbour, unless it knows it; what comes of it is seen later.
///
/// # Errors
/// What the kernel refused: no such device, or no privilege.
pub fn ask_neighbour(device: u32, address: IpAddr) -> Result<(), KernelError> {
    use NeighbourState::{Delay, Noarp, Permanent, Probe, Reachable};
    let asked = || -> io::Result<()> {
        // A neighbour that is asked for is no longer what somebody said it was: permanent ones would be unlearned.
        if let Some(Delay | Noarp | Permanent | Probe | Reachable) = state_of(device, address)? {
            return Ok(());
        }
        let mut message = neighbour(device, address);
        message.header.state = NeighbourState::None;
        message.header.flags = NeighbourFlags::Use;
        let socket = socket(0)?;
        let flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE;
        send(&socket, RouteNetlinkMessage::NewNeighbour(message), flags)?;
        answers(&socket, |_, _| Ok(true))
    };
    asked().map_err(|e| KernelError::sys(format!("ask for the neighbour {address}"), e))
}

/// Sends what has no better route to a router on an interface of the current namespace, in the main table.
///
/// # Errors
/// What the kernel refused: the router is on no network of the interface.
pub fn set_default(device: u32, router: IpAddr) -> Result<(), KernelError> {
    let asked = || -> io::Result<()> {
        let mut message = RouteMessage::default();
        message.header.address_family = family_of(router);
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.protocol = RouteProtocol::Static;
        message.header.scope = RouteScope::Universe;
        message.header.kind = RouteType::Unicast;
        message.attributes.push(RouteAttribute::Oif(device));
        let gateway = match router {
            IpAddr::V4(router) => RouteAddress::Inet(router),
            IpAddr::V6(router) => RouteAddress::Inet6(router),
        };
        message.attributes.push(RouteAttribute::Gateway(gateway));
        let socket = socket(0)?;
        let flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE;
        send(&socket, RouteNetlinkMessage::NewRoute(message), flags)?;
        answers(&socket, |_, _| Ok(true))
    };
    asked().map_err(|e| KernelError::sys(format!("set the default route through {router}"), e))
}

/// A neighbour whose link-layer address the kernel knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelNeighbour {
    /// Index of the device that it is behind.
    pub device: u32,
    /// Its address.
    pub address: IpAddr,
    /// Its link-layer address.
    pub link: [u8; 6],
}

/// All neighbours of both families that packets can be sent to.
///
/// # Errors
/// What the kernel refused.
pub fn neighbours() -> Result<Vec<KernelNeighbour>, KernelError> {
    let mut found = Vec::new();
    let mut asked = || -> io::Result<()> {
        let socket = socket(0)?;
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut message = NeighbourMessage::default();
            message.header.family = family;
            let message = RouteNetlinkMessage::GetNeighbour(message);
            send(&socket, message, NLM_F_REQUEST | NLM_F_DUMP)?;
            answers(&socket, |_, message| {
                if let RouteNetlinkMessage::NewNeighbour(message) = message {
                    found.extend(known(message));
                }
                Ok(true)
            })?;
        }
        Ok(())
    };
    asked()
        .map(|()| found)
        .map_err(|e| KernelError::sys("read the neighbours", e))
}

fn known(message: &NeighbourMessage) -> Option<KernelNeighbour> {
    use NeighbourState::{Delay, Noarp, Permanent, Probe, Reachable, Stale};
    if !matches!(
        message.header.state,
        Delay | Noarp | Permanent | Probe | Reachable | Stale
    ) {
        return None;
    }
    let (mut address, mut link) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(a)) => {
                address = Some((*a).into())
            }
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(a)) => {
                address = Some((*a).into())
            }
            NeighbourAttribute::LinkLayerAddress(bytes) => link = bytes.as_slice().try_into().ok(),
            _ => {}
        }
    }
    Some(KernelNeighbour {
        device: message.header.ifindex,
        address: address?,
        link: link?,
    })
}

/// What the kernel knows of a neighbour; `None`: nothing.
fn state_of(device: u32, address: IpAddr) -> io::Result<Option<NeighbourState>> {
    let socket = socket(0)?;
    let message = RouteNetlinkMessage::GetNeighbour(neighbour(device, address));
    send(&socket, message, NLM_F_REQUEST)?;
    let mut found = None;
    let asked = answers(&socket, |_, message| {
        if let RouteNetlinkMessage::NewNeighbour(message) = message {
            found = Some(message.header.state);
        }
        Ok(false)
    });
    match asked {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        asked => asked.map(|()| found),
    }
}

fn neighbour(device: u32, address: IpAddr) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = family_of(address);
    message.header.ifindex = device;
    message
        .attributes
        .push(NeighbourAttribute::Destination(match address {
            IpAddr::V4(a) => NeighbourAddress::Inet(a),
            IpAddr::V6(a) => NeighbourAddress::Inet6(a),
        }));
    message
}

/// The device and gateway by which this host reaches an address; `None`: it has no route there.
///
/// # Errors
/// What the kernel refused.
pub fn way_to(address: IpAddr) -> Result<Option<KernelRoute>, KernelError> {
    let mut message = RouteMessage::default();
    message.header.address_family = family_of(address);
    message.header.destination_prefix_length = if address.is_ipv4() { 32 } else { 128 };
    message.header.flags = RouteFlags::LookupTable;
    message
        .attributes
        .push(RouteAttribute::Destination(address.into()));
    let message = RouteNetlinkMessage::GetRoute(message);
    let mut found = None;
    let asked = socket(0).and_then(|socket| {
        send(&socket, message, NLM_F_REQUEST)?;
        answers(&socket, |_, message| {
            if let RouteNetlinkMessage::NewRoute(route) = message {
                found = decode(route);
            }
            Ok(false)
        })
    });
    match asked {
        Ok(()) => Ok(found),
        Err(e)
            if [
                libc::ENETUNREACH,
                libc::EHOSTUNREACH,
                libc::EINVAL,
                libc::EACCES,
            ]
            .map(Some)
            .contains(&e.raw_os_error()) =>
        {
            Ok(None)
        }
        Err(e) => Err(KernelError::sys(format!("find the way to {address}"), e)),
    }
}

fn family_of(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

pub(crate) fn socket(groups: u32) -> io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(
        rustix::net::AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        // NETLINK_ROUTE is protocol 0.
        None,
    )?;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, groups))?;
    Ok(socket)
}

pub(crate) fn send(socket: &OwnedFd, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
    let mut packet = NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::from(message));
    packet.header.flags = flags;
    packet.header.sequence_number = 1;
    packet.finalize();
    let mut bytes = vec![0; packet.buffer_len()];
    packet.serialize(&mut bytes);
    rustix::net::send(socket, &bytes, SendFlags::empty())?;
    Ok(())
}

fn receive(socket: &OwnedFd, buffer: &mut [u8], flags: RecvFlags) -> io::Result<usize> {
    loop {
        match rustix::net::recv(socket, &mut *buffer, flags) {
            Ok((got, _)) => return Ok(got),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

fn readable(socket: BorrowedFd<'_>, wait: Duration) -> io::Result<bool> {
    let wait = Timespec {
        tv_sec: wait.as_secs() as i64,
        tv_nsec: wait.subsec_nanos().into(),
    };
    let mut fds = [PollFd::from_borrowed_fd(socket, PollFlags::IN)];
    match poll(&mut fds, Some(&wait)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Gives every message of a datagram to `take` until it says that it has enough; `false`: the last of an answer was there. Messages that cannot be read are passed over: they are
/// about things that are not known here.
fn each(
    bytes: &[u8],
    mut take: impl FnMut(&NetlinkHeader, &RouteNetlinkMessage) -> io::Result<bool>,
) -> io::Result<bool> {
    let mut rest = bytes;
    while rest.len() >= 16 {
        let len = u32::from_ne_bytes([rest[0], rest[1], rest[2], rest[3]]) as usize;
        let Some(one) = rest.get(..len).filter(|one| one.len() >= 16) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        if let Ok(message) = NetlinkMessage::<RouteNetlinkMessage>::deserialize(one) {
            match message.payload {
                NetlinkPayload::Done(_) => return Ok(false),
                NetlinkPayload::Error(e) => match e.code {
                    None => return Ok(false),
                    Some(code) => return Err(io::Error::from_raw_os_error(code.get().abs())),
                },
                NetlinkPayload::Overrun(_) => {
                    return Err(io::Error::from_raw_os_error(libc::ENOBUFS));
                }
                NetlinkPayload::InnerMessage(inner) if !take(&message.header, &inner)? => {
                    return Ok(false);
                }
                _ => {}
            }
        }
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(true)
}

pub(crate) fn answers(
    socket: &OwnedFd,
    mut take: impl FnMut(&NetlinkHeader, &RouteNetlinkMessage) -> io::Result<bool>,
) -> io::Result<()> {
    let mut buffer = vec![0; DATAGRAM];
    loop {
        let got = receive(socket, &mut buffer, RecvFlags::empty())?;
        if !each(&buffer[..got], &mut take)? {
            return Ok(());
        }
    }
}

fn dump(
    socket: &OwnedFd,
    family: AddressFamily,
    table: u32,
    routes: &mut Vec<KernelRoute>,
) -> io::Result<()> {
    let mut message = RouteMessage::default();
    message.header.address_family = family;
    let message = RouteNetlinkMessage::GetRoute(message);
    send(socket, message, NLM_F_REQUEST | NLM_F_DUMP)?;
    answers(socket, |_, message| {
        if let RouteNetlinkMessage::NewRoute(route) = message {
            routes.extend(route_of(route, table));
        }
        Ok(true)
    })
}

/// A route of this table, unless it is the cache's.
fn route_of(message: &RouteMessage, table: u32) -> Option<KernelRoute> {
    if message.header.flags.contains(RouteFlags::Cloned) {
        return None;
    }
    decode(message).filter(|route| route.table == table)
}

fn decode(message: &RouteMessage) -> Option<KernelRoute> {
    let header = &message.header;
    let any: IpAddr = match header.address_family {
        AddressFamily::Inet => [0u8; 4].into(),
        AddressFamily::Inet6 => [0u16; 8].into(),
        _ => return None,
    };
    let kind = match header.kind {
        RouteType::Unicast => KernelRouteKind::Unicast,
        RouteType::Local | RouteType::Broadcast | RouteType::Anycast | RouteType::Multicast => {
            KernelRouteKind::Local
        }
        RouteType::BlackHole => KernelRouteKind::Blackhole,
        RouteType::Unreachable => KernelRouteKind::Unreachable,
        RouteType::Prohibit => KernelRouteKind::Prohibit,
        _ => return None,
    };
    let mut route = KernelRoute {
        table: header.table.into(),
        destination: any,
        len: header.destination_prefix_length,
        kind,
        metric: 0,
        mtu: None,
        hops: Vec::new(),
    };
    let mut single = KernelHop {
        via: None,
        device: 0,
        weight: 1,
    };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(address) => route.destination = address_of(address)?,
            RouteAttribute::Table(table) => route.table = *table,
            RouteAttribute::Priority(metric) => route.metric = *metric,
            RouteAttribute::Oif(device) => single.device = *device,
            RouteAttribute::Gateway(address) => single.via = address_of(address),
            RouteAttribute::Via(via) => single.via = via_of(via),
            RouteAttribute::MultiPath(hops) => route.hops = hops.iter().map(hop_of).collect(),
            RouteAttribute::Metrics(metrics) => {
                route.mtu = metrics.iter().find_map(|metric| match metric {
                    RouteMetric::Mtu(mtu) => Some(*mtu),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    if route.hops.is_empty() && kind == KernelRouteKind::Unicast {
        route.hops.push(single);
    }
    Some(route)
}

fn hop_of(hop: &RouteNextHop) -> KernelHop {
    let mut via = None;
    for attribute in &hop.attributes {
        match attribute {
            RouteAttribute::Gateway(address) => via = address_of(address),
            RouteAttribute::Via(address) => via = via_of(address),
            _ => {}
        }
    }
    KernelHop {
        via,
        device: hop.interface_index,
        weight: u16::from(hop.hops) + 1,
    }
}

fn address_of(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(a) => Some((*a).into()),
        RouteAddress::Inet6(a) => Some((*a).into()),
        _ => None,
    }
}

fn via_of(via: &RouteVia) -> Option<IpAddr> {
    match via {
        RouteVia::Inet(a) => Some((*a).into()),
        RouteVia::Inet6(a) => Some((*a).into()),
        _ => None,
    }
}
