//! Worlds: what a router knows. Ports with addresses and MTUs, neighbours, routes, all drawn from a seed.
//!
//! A world is written down once, as `ip` reads it, and both sides get the same lines. Invariant: a prefix has one route, every next hop a neighbour.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weir_vm::{Neighbour, RouteKind, RouteLink, Routes, TABLE_MAIN};

use super::draw::Draw;

/// Ports of the router.
pub(crate) const PORTS: usize = 4;
/// Index of the loopback interface.
const LOOPBACK: u32 = 1;
/// Hosts behind each port.
pub(crate) const HOSTS: usize = 3;

/// What a router knows.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) ports: Vec<Port>,
    pub(crate) routes: Vec<Route>,
}

#[derive(Clone, Debug)]
pub(crate) struct Port {
    pub(crate) mtu: u32,
    pub(crate) v4: Ipv4Addr,
    pub(crate) v6: Ipv6Addr,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) network: IpAddr,
    pub(crate) bits: u8,
    pub(crate) to: To,
    /// A locked MTU of its own.
    pub(crate) mtu: Option<u32>,
}

/// What a route does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum To {
    /// Through neighbours (port, host); more than one: by flow.
    Hosts(Vec<(usize, usize)>),
    /// Through an IPv6 neighbour, whatever the packet's family.
    Host6(usize, usize),
    /// On the link.
    Link(usize),
    Blackhole,
    Unreachable,
    Prohibit,
    /// The router itself.
    Local,
}

impl World {
    pub(crate) fn draw(seed: u64) -> World {
        let mut draw = Draw::new(seed);
        let ports = (0..PORTS).map(|n| Port {
            // Frames come in by ports with a common MTU, too.
            mtu: match n {
                0 => 1500,
                _ => *draw.one_of(&[1500, 1500, 1400, 1280, 1454]),
            },
            v4: Ipv4Addr::new(10, n as u8 + 1, 0, 1),
            v6: Ipv6Addr::new(0xfd00 + n as u16 + 1, 0, 0, 0, 0, 0, 0, 1),
        });
        let ports: Vec<Port> = ports.collect();
        let mut routes: Vec<Route> = (0..PORTS).map(sources).collect();
        let mut taken = BTreeSet::new();
        for ipv6 in [false, true] {
            for _ in 0..15 + draw.below(45) {
                let route = Route::draw(&mut draw, ipv6, &ports);
                if taken.insert((route.network, route.bits)) {
                    routes.push(route);
                }
            }
            if draw.percent(50) {
                let network = match ipv6 {
                    true => Ipv6Addr::UNSPECIFIED.into(),
                    false => Ipv4Addr::UNSPECIFIED.into(),
                };
                routes.push(Route {
                    network,
                    bits: 0,
                    to: To::Hosts(vec![(draw.below(PORTS), draw.below(HOSTS))]),
                    mtu: None,
                });
            }
        }
        World {
            seed,
            ports,
            routes,
        }
    }

    /// The lines that make a namespace with ports this world's router, for `ip -batch`.
    pub(crate) fn batch(&self) -> String {
        let mut lines = Vec::new();
        for (n, port) in self.ports.iter().enumerate() {
            let device = device(n);
            lines.push(format!("link set {device} mtu {} up", port.mtu));
            lines.push(format!("addr add {}/24 dev {device}", port.v4));
            lines.push(format!("addr add {}/64 dev {device} nodad", port.v6));
            for host in 0..HOSTS {
                for address in [host4(n, host).into(), host6(n, host).into()] {
                    let address: IpAddr = address;
                    lines.push(format!(
                        "neigh add {address} lladdr {} dev {device} nud permanent",
                        colons(host_mac(n, host))
                    ));
                }
            }
        }
        lines.extend(
            self.routes
                .iter()
                .map(|r| format!("route add {}", r.line())),
        );
        lines.join("\n") + "\n"
    }

    /// The route that a destination takes, if it is not on a port's own network.
    pub(crate) fn route(&self, to: IpAddr) -> Option<&Route> {
        let fitting = self.routes.iter().filter(|r| r.covers(to));
        fitting.max_by_key(|r| r.bits)
    }

    /// The same world with one next hop for every route: what the user engine's tables can say.
    pub(crate) fn plain(mut self) -> World {
        for route in &mut self.routes {
            if let To::Hosts(all) = &mut route.to {
                all.truncate(1);
            }
        }
        self
    }

    /// This world as the user engine is told of it.
    pub(crate) fn told(&self) -> Routes {
        let link = |ifindex, mtu, address| RouteLink {
            ifindex,
            mtu,
            header: 14,
            address,
            forwards_ipv4: true,
            forwards_ipv6: true,
        };
        let mut all = Routes {
            links: vec![link(LOOPBACK, 65_536, [0; 6])],
            ..Routes::default()
        };
        let route = |network, prefix, kind, via, ifindex| weir_vm::Route {
            table: TABLE_MAIN,
            network,
            prefix,
            kind,
            via,
            ifindex,
            metric: match IpAddr::is_ipv6(&network) {
                true => 1024,
                false => 0,
            },
            locked_mtu: None,
            source: None,
        };
        for (n, port) in self.ports.iter().enumerate() {
            let at = port_number(n);
            all.links.push(link(at, port.mtu, port_mac(n)));
            let (v4, v6) = (port.v4.to_bits(), port.v6.to_bits());
            let four = |bits: u32| IpAddr::from(Ipv4Addr::from_bits(bits));
            let six = |bits: u128| IpAddr::from(Ipv6Addr::from_bits(bits));
            all.routes.extend([
                route(four(v4), 32, RouteKind::Local, None, at),
                route(four(v4 | 0xff), 32, RouteKind::Broadcast, None, at),
                route(four(v4 & !0xff), 24, RouteKind::Unicast, None, at),
                route(six(v6), 128, RouteKind::Local, None, at),
                route(six(v6 & !1), 128, RouteKind::Local, None, at),
                route(six(v6 & !1), 64, RouteKind::Unicast, None, at),
            ]);
            for host in 0..HOSTS {
                for address in [IpAddr::from(host4(n, host)), host6(n, host).into()] {
                    all.neighbours.push(Neighbour {
                        ifindex: at,
                        address,
                        link: host_mac(n, host),
                    });
                }
            }
        }
        for one in &self.routes {
            let (kind, via, at) = match &one.to {
                To::Hosts(hosts) => {
                    let (port, host) = hosts[0];
                    let via = match one.network.is_ipv6() {
                        true => host6(port, host).into(),
                        false => IpAddr::from(host4(port, host)),
                    };
                    (RouteKind::Unicast, Some(via), port_number(port))
                }
                To::Host6(port, host) => {
                    let via = host6(*port, *host).into();
                    (RouteKind::Unicast, Some(via), port_number(*port))
                }
                To::Link(port) => (RouteKind::Unicast, None, port_number(*port)),
                To::Blackhole => (RouteKind::Blackhole, None, LOOPBACK),
                To::Unreachable => (RouteKind::Unreachable, None, LOOPBACK),
                To::Prohibit => (RouteKind::Prohibit, None, LOOPBACK),
                To::Local => (RouteKind::Local, None, LOOPBACK),
            };
            all.routes.push(weir_vm::Route {
                locked_mtu: one.mtu,
                ..route(one.network, one.bits, kind, via, at)
            });
        }
        all
    }

    /// Whether an address is the router's own, that of all routers of a link among them.
    pub(crate) fn is_own(&self, address: IpAddr) -> bool {
        let of = |p: &Port| match address {
            IpAddr::V4(a) => a == p.v4,
            IpAddr::V6(a) => a.to_bits() | 1 == p.v6.to_bits(),
        };
        self.ports.iter().any(of)
            || matches!(self.route(address), Some(Route { to: To::Local, .. }))
    }
}

impl Route {
    fn draw(draw: &mut Draw, ipv6: bool, ports: &[Port]) -> Route {
        let to = match draw.weighted(&[50, 4, 8, 6, 6, 6, 3, 8]) {
            0 => To::Hosts(vec![(draw.below(PORTS), draw.below(HOSTS))]),
            1 if !ipv6 => To::Host6(draw.below(PORTS), draw.below(HOSTS)),
            2 => To::Link(draw.below(PORTS)),
            3 => To::Blackhole,
            4 => To::Unreachable,
            5 => To::Prohibit,
            6 => To::Local,
            7 => {
                let mut all: Vec<(usize, usize)> = (0..2 + draw.below(3))
                    .map(|_| (draw.below(PORTS), draw.below(HOSTS)))
                    .collect();
                all.sort_unstable();
                all.dedup();
                To::Hosts(all)
            }
            _ => To::Hosts(vec![(draw.below(PORTS), draw.below(HOSTS))]),
        };
        let bits = match (&to, ipv6) {
            (To::Local, false) => 32,
            (To::Local, true) => 128,
            (_, false) => *draw.one_of(&[8, 12, 16, 16, 20, 22, 24, 24, 24, 28, 30, 32]),
            (_, true) => *draw.one_of(&[16, 20, 32, 32, 44, 48, 48, 48, 56, 64, 64, 127, 128]),
        };
        let network = match ipv6 {
            false => {
                let first = 20 + draw.below(2) as u8;
                under4(draw, first).into()
            }
            true => IpAddr::from(under6(draw)),
        };
        // No more than its device takes: XDP sends nothing that is longer, whatever a route says.
        let mtu = match &to {
            To::Hosts(all) if all.len() == 1 && draw.percent(8) => {
                Some((*draw.one_of(&[1280, 1300, 1420])).min(ports[all[0].0].mtu))
            }
            _ => None,
        };
        Route {
            network: masked(network, bits),
            bits,
            to,
            mtu,
        }
    }

    /// As `ip route` writes it.
    pub(crate) fn line(&self) -> String {
        let prefix = match self.bits {
            // A default route of IPv6 is told from one of IPv4 by its addresses only.
            0 if self.network.is_ipv6() => "::/0".to_owned(),
            bits => format!("{}/{bits}", self.network),
        };
        let via = |port: usize, host: usize| -> IpAddr {
            match self.network.is_ipv6() {
                true => host6(port, host).into(),
                false => host4(port, host).into(),
            }
        };
        let line = match &self.to {
            To::Hosts(all) if all.len() > 1 => {
                let hops = all.iter().map(|(p, h)| {
                    format!(" nexthop via {} dev {} weight 1", via(*p, *h), device(*p))
                });
                prefix + &hops.collect::<String>()
            }
            To::Hosts(all) => {
                let (port, host) = all[0];
                format!("{prefix} via {} dev {}", via(port, host), device(port))
            }
            To::Host6(port, host) => {
                format!(
                    "{prefix} via inet6 {} dev {}",
                    host6(*port, *host),
                    device(*port)
                )
            }
            To::Link(port) => format!("{prefix} dev {}", device(*port)),
            To::Blackhole => format!("blackhole {prefix}"),
            To::Unreachable => format!("unreachable {prefix}"),
            To::Prohibit => format!("prohibit {prefix}"),
            To::Local => format!("local {prefix} dev lo"),
        };
        match self.mtu {
            Some(mtu) => format!("{line} mtu lock {mtu}"),
            None => line,
        }
    }

    pub(crate) fn covers(&self, address: IpAddr) -> bool {
        address.is_ipv6() == self.network.is_ipv6() && masked(address, self.bits) == self.network
    }

    /// An address that the route covers, though another may cover it more closely.
    pub(crate) fn within(&self, draw: &mut Draw) -> IpAddr {
        match self.network {
            IpAddr::V4(network) => {
                let free = u32::MAX.checked_shr(self.bits.into()).unwrap_or(0);
                (Ipv4Addr::from_bits(network.to_bits() | under4(draw, 0).to_bits() & free)).into()
            }
            IpAddr::V6(network) => {
                let free = u128::MAX.checked_shr(self.bits.into()).unwrap_or(0);
                Ipv6Addr::from_bits(network.to_bits() | under6(draw).to_bits() & free).into()
            }
        }
    }
}

/// The route back to sources of which each has one packet.
fn sources(port: usize) -> Route {
    Route {
        network: source4(port, 0).into(),
        bits: 16,
        to: To::Hosts(vec![(port, 0)]),
        mtu: None,
    }
}

/// A source behind a port, for one packet.
pub(crate) fn source4(port: usize, number: u16) -> Ipv4Addr {
    let [high, low] = number.to_be_bytes();
    Ipv4Addr::new(30, port as u8 + 1, high, low)
}

/// Name of a port's interface.
pub(crate) fn device(port: usize) -> String {
    format!("p{port}")
}

/// weir's number of a port, and the index of its interface: in replays they are the same.
pub(crate) fn port_number(port: usize) -> u32 {
    port as u32 + 2
}

/// Link-layer address of a port.
pub(crate) fn port_mac(port: usize) -> [u8; 6] {
    [2, 0, 0, 0, 0x10, port as u8]
}

/// Link-layer address of a host.
pub(crate) fn host_mac(port: usize, host: usize) -> [u8; 6] {
    [2, 0, 0, 0, 0x30 + port as u8, host as u8 + 2]
}

pub(crate) fn host4(port: usize, host: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, port as u8 + 1, 0, host as u8 + 2)
}

pub(crate) fn host6(port: usize, host: usize) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00 + port as u16 + 1, 0, 0, 0, 0, 0, 0, host as u16 + 2)
}

pub(crate) fn colons(mac: [u8; 6]) -> String {
    mac.map(|b| format!("{b:02x}")).join(":")
}

/// Addresses from few values, so that prefixes nest.
fn under4(draw: &mut Draw, first: u8) -> Ipv4Addr {
    let mut part = || *draw.one_of(&[0, 1, 1, 2, 128, 129, 255]);
    Ipv4Addr::new(first, part(), part(), part())
}

fn under6(draw: &mut Draw) -> Ipv6Addr {
    let mut part = || *draw.one_of(&[0, 1, 1, 2, 0x8000, 0xffff]);
    Ipv6Addr::new(
        0x2001,
        0xdb0 + part() % 3,
        part(),
        part(),
        0,
        0,
        part(),
        part(),
    )
}

fn masked(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(a) => {
            let free = u32::MAX.checked_shr(bits.into()).unwrap_or(0);
            Ipv4Addr::from_bits(a.to_bits() & !free).into()
        }
        IpAddr::V6(a) => {
            let free = u128::MAX.checked_shr(bits.into()).unwrap_or(0);
            Ipv6Addr::from_bits(a.to_bits() & !free).into()
        }
    }
}
