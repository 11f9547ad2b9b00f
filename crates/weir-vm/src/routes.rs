//! What `bpf_fib_lookup` and `bpf_check_mtu` ask a kernel about: interfaces, routes, neighbours.
//!
//! Owns the tables and the search in them; the helpers' arguments are in `helpers::route`. Given from outside and never changed by a program.
//! Searches are linear, for tables of test size. Invariant: of the routes that cover an address the longest prefix wins, then the
//! lowest metric, then the first.

use std::net::IpAddr;

/// The table of ordinary routes.
pub const TABLE_MAIN: u32 = 254;

/// Interfaces, routes and neighbours of the host a program believes it runs on.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    /// Interfaces.
    pub links: Vec<RouteLink>,
    /// Routes of all tables.
    pub routes: Vec<Route>,
    /// Resolved neighbours.
    pub neighbours: Vec<Neighbour>,
}

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteLink {
    /// Interface index.
    pub ifindex: u32,
    /// Largest L3 packet in bytes.
    pub mtu: u32,
    /// Bytes of the link layer's header: 14 for Ethernet.
    pub header: u32,
    /// Link-layer address.
    pub address: [u8; 6],
    /// Whether IPv4 packets that come in here are forwarded.
    pub forwards_ipv4: bool,
    /// The same for IPv6.
    pub forwards_ipv6: bool,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Table; addresses of the host itself (`RouteKind::Local`) are found whatever theirs is.
    pub table: u32,
    /// Network.
    pub network: IpAddr,
    /// Length of its prefix in bits.
    pub prefix: u8,
    /// What happens to packets that take it.
    pub kind: RouteKind,
    /// Next hop; none for networks on the link. It may be of the other family.
    pub via: Option<IpAddr>,
    /// Interface the packets leave by.
    pub ifindex: u32,
    /// Of routes to the same prefix the lowest is taken.
    pub metric: u32,
    /// The route's own MTU, if it is locked; others do not count for forwarded packets.
    pub locked_mtu: Option<u32>,
    /// Address a packet of this host would have.
    pub source: Option<IpAddr>,
}

/// What a route does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteKind {
    /// Forwards.
    Unicast,
    /// The packet is for this host.
    Local,
    /// To all on the link.
    Broadcast,
    /// To a group.
    Multicast,
    /// Dropped silently.
    Blackhole,
    /// Answered with "unreachable".
    Unreachable,
    /// Answered with "prohibited".
    Prohibit,
}

impl RouteKind {
    /// Whether packets that take such a route go nowhere; it has no interface then.
    fn refuses(self) -> bool {
        matches!(
            self,
            RouteKind::Blackhole | RouteKind::Unreachable | RouteKind::Prohibit
        )
    }
}

/// A neighbour whose link-layer address is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Interface it is behind.
    pub ifindex: u32,
    /// Its address.
    pub address: IpAddr,
    /// Its link-layer address.
    pub link: [u8; 6],
}

impl Routes {
    /// The interface with this index.
    pub fn link(&self, ifindex: u32) -> Option<&RouteLink> {
        self.links.iter().find(|l| l.ifindex == ifindex)
    }

    /// The link-layer address of a neighbour.
    pub fn neighbour(&self, ifindex: u32, address: IpAddr) -> Option<[u8; 6]> {
        let found = self
            .neighbours
            .iter()
            .find(|n| n.ifindex == ifindex && n.address == address);
        found.map(|n| n.link)
    }

    /// Whether there is such a table of either family.
    pub fn has_table(&self, table: u32) -> bool {
        table == TABLE_MAIN || self.routes.iter().any(|r| r.table == table)
    }

    /// The route to `to` in one table, or as the ordinary rules find it: the host's own addresses, then the main table. In Linux
    /// IPv4's main table has the host's own addresses in it, IPv6's has not. `oif` asks for routes through that interface.
    pub fn find(&self, to: IpAddr, table: Option<u32>, oif: Option<u32>) -> Option<&Route> {
        let own = table.is_none() || (table == Some(TABLE_MAIN) && to.is_ipv4());
        let in_table = |r: &&Route| {
            if r.kind == RouteKind::Local {
                own
            } else {
                r.table == table.unwrap_or(TABLE_MAIN)
            }
        };
        let leaves_by = |r: &Route| oif.is_none_or(|oif| r.ifindex == oif);
        self.routes
            .iter()
            .filter(in_table)
            // For IPv6 the interface is a wish.
            .filter(|r| to.is_ipv6() || leaves_by(r) || r.kind.refuses())
            .filter(|r| covers(r.network, r.prefix, to))
            // The first of equals: `max_by` would take the last.
            .rev()
            .max_by_key(|r| (r.prefix, std::cmp::Reverse(r.metric), leaves_by(r)))
    }
}

fn covers(network: IpAddr, prefix: u8, address: IpAddr) -> bool {
    match (network, address) {
        (IpAddr::V4(n), IpAddr::V4(a)) => {
            let keep = u32::MAX
                .checked_shl(32 - u32::from(prefix.min(32)))
                .unwrap_or(0);
            n.to_bits() & keep == a.to_bits() & keep
        }
        (IpAddr::V6(n), IpAddr::V6(a)) => {
            let keep = u128::MAX
                .checked_shl(128 - u32::from(prefix.min(128)))
                .unwrap_or(0);
            n.to_bits() & keep == a.to_bits() & keep
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(network: &str, prefix: u8, metric: u32, ifindex: u32) -> Route {
        Route {
            table: TABLE_MAIN,
            network: network.parse().expect("an address"),
            prefix,
            kind: RouteKind::Unicast,
            via: None,
            ifindex,
            metric,
            locked_mtu: None,
            source: None,
        }
    }

    #[test]
    fn the_longest_prefix_then_the_lowest_metric() {
        let routes = Routes {
            routes: vec![
                route("0.0.0.0", 0, 0, 1),
                route("10.0.0.0", 8, 20, 2),
                route("10.0.0.0", 8, 10, 3),
                route("10.0.0.0", 8, 10, 4),
                route("::", 0, 0, 5),
                route("fe80::1", 128, 0, 6),
            ],
            ..Routes::default()
        };
        let to = |a: &str| {
            let found = routes.find(a.parse().expect("an address"), None, None);
            found.map(|r| r.ifindex)
        };
        assert_eq!(to("9.1.1.1"), Some(1));
        assert_eq!(to("10.1.1.1"), Some(3));
        assert_eq!(to("fe80::1"), Some(6));
        assert_eq!(to("fe80::2"), Some(5));
        assert!(
            routes
                .find("10.1.1.1".parse().expect("ok"), Some(7), None)
                .is_none()
        );
        let out = routes.find("10.1.1.1".parse().expect("ok"), None, Some(2));
        assert_eq!(out.map(|r| r.metric), Some(20));
    }
}
