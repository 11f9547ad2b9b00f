//! `--routes`: what a router by the kernel's tables would find there, told to the user engine: from this host, or from a file of lines as
//! `ip route`, `ip neigh` and `ip link` write them.
//!
//! Devices are known by name; a port's has weir's number of the port as its index, as in the whole of a replay, and others numbers behind those.
//! Invariant: a line that is not understood is an error, never passed over; what is understood and means nothing here is named in the manual.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use weir_kernel::routes::{self, KernelRouteKind};
use weir_kernel::{KernelError, iface};
use weir_value::{Invalid, Mac, Prefix};
use weir_vm::{Neighbour, Route, RouteKind, RouteLink, Routes};

use crate::failure::Failure;

/// Of a device of which nothing else is said.
const MTU: u32 = 1500;
/// Bytes of an Ethernet header.
const HEADER: u32 = 14;
/// Indexes of devices that are no ports begin here.
const OTHERS: u32 = 1 << 16;
/// Words of `ip route` that are followed by one that means nothing here.
const PAIRS: &[&str] = &[
    "proto",
    "scope",
    "pref",
    "hoplimit",
    "initcwnd",
    "initrwnd",
    "rtt",
    "rttvar",
    "ssthresh",
    "cwnd",
    "advmss",
    "reordering",
    "window",
    "congctl",
    "quickack",
    "fastopen_no_cookie",
    "expires",
    "weight",
    "error",
    "tos",
    "realm",
    "features",
    "rto_min",
    "users",
    "used",
    "age",
];
/// Words that stand by themselves.
const FLAGS: &[&str] = &[
    "onlink",
    "linkdown",
    "dead",
    "pervasive",
    "offload",
    "trap",
    "rt_offload",
    "rt_trap",
    "notify",
    "unresolved",
    "cache",
    "\\",
];

/// A device that packets come in and leave by, and its index in the engine.
pub(super) type Known = (String, u32);

/// `host`, or a file.
pub(super) fn read(from: &Path, devices: &[Known]) -> Result<Routes, Failure> {
    let mut table = Table::new(devices);
    if from == Path::new("host") {
        table.host(devices).map_err(Failure::failed)?;
        return Ok(table.routes);
    }
    let text = std::fs::read_to_string(from).map_err(|error| {
        Failure::Usage(format!("--routes: cannot read {}: {error}", from.display()))
    })?;
    for (number, line) in (1..).zip(text.lines()) {
        table
            .line(line)
            .map_err(|why| Failure::Usage(format!("{}:{number}: {why}", from.display())))?;
    }
    table
        .end_open()
        .map_err(|why| Failure::Usage(format!("{}: {why}", from.display())))?;
    Ok(table.routes)
}

struct Table {
    routes: Routes,
    indexes: BTreeMap<String, u32>,
    /// The device that `ip link` described last.
    link: Option<u32>,
    /// A route without a way, whose next hops are on lines of their own.
    open: Option<Route>,
}

impl Table {
    fn new(devices: &[Known]) -> Table {
        let mut table = Table {
            routes: Routes::default(),
            indexes: BTreeMap::new(),
            link: None,
            open: None,
        };
        for (device, index) in devices {
            table.indexes.insert(device.clone(), *index);
            table.add_link(*index);
        }
        table
    }

    fn add_link(&mut self, ifindex: u32) {
        let [_, _, high, low] = ifindex.to_be_bytes();
        self.routes.links.push(RouteLink {
            ifindex,
            mtu: MTU,
            header: HEADER,
            address: [2, 0, 0, 0, high, low],
            forwards_ipv4: true,
            forwards_ipv6: true,
        });
    }

    fn index(&mut self, device: &str) -> u32 {
        if let Some(index) = self.indexes.get(device) {
            return *index;
        }
        let index = OTHERS + self.indexes.len() as u32;
        self.indexes.insert(device.to_owned(), index);
        self.add_link(index);
        index
    }

    /// What this host knows.
    fn host(&mut self, devices: &[Known]) -> Result<(), KernelError> {
        for (device, index) in devices {
            let found = iface::find(device)?;
            let forwards = |family: &str| {
                let path = format!("/proc/sys/net/{family}/conf/{device}/forwarding");
                std::fs::read_to_string(path).is_ok_and(|text| text.trim() != "0")
            };
            let links = &mut self.routes.links;
            if let Some(link) = links.iter_mut().find(|l| l.ifindex == *index) {
                link.mtu = found.mtu;
                link.address = found.mac;
                link.forwards_ipv4 = forwards("ipv4");
                link.forwards_ipv6 = forwards("ipv6");
            }
        }
        for table in [routes::LOCAL, routes::MAIN] {
            for route in routes::read(table)? {
                let kind = match route.kind {
                    KernelRouteKind::Unicast => RouteKind::Unicast,
                    KernelRouteKind::Local => RouteKind::Local,
                    KernelRouteKind::Blackhole => RouteKind::Blackhole,
                    KernelRouteKind::Unreachable => RouteKind::Unreachable,
                    KernelRouteKind::Prohibit => RouteKind::Prohibit,
                };
                // Which of several the kernel takes is its own hash.
                let hop = route.hops.first();
                let ifindex = hop.map_or(0, |hop| hop.device);
                let ifindex = match iface::name_of(ifindex) {
                    Some(name) if ifindex != 0 => self.index(&name),
                    _ => 0,
                };
                self.routes.routes.push(Route {
                    table,
                    network: route.destination,
                    prefix: route.len,
                    kind,
                    via: hop.and_then(|hop| hop.via),
                    ifindex,
                    metric: route.metric,
                    locked_mtu: None,
                    source: None,
                });
            }
        }
        for neighbour in routes::neighbours()? {
            if let Some(name) = iface::name_of(neighbour.device) {
                let ifindex = self.index(&name);
                self.routes.neighbours.push(Neighbour {
                    ifindex,
                    address: neighbour.address,
                    link: neighbour.link,
                });
            }
        }
        Ok(())
    }

    fn line(&mut self, line: &str) -> Result<(), String> {
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some(first) = words.first() else {
            return Ok(());
        };
        if *first == "nexthop" {
            return self.hops(&words);
        }
        self.end_open()?;
        if words.len() > 1
            && first
                .strip_suffix(':')
                .is_some_and(|n| n.parse::<u32>().is_ok())
        {
            return self.link(words[1], &words[2..]);
        }
        if first.starts_with("link/") {
            let link = self.link.ok_or("no line of a device stands before it")?;
            return self.link_address(link, &words);
        }
        if words.contains(&"lladdr") || words.get(3).is_some_and(|w| is_state(w)) {
            return self.neighbour(&words);
        }
        self.route(&words)
    }

    /// `2: eth0: <BROADCAST,UP> mtu 1500 ...`, with `link/ether` on the same line or the next.
    fn link(&mut self, name: &str, words: &[&str]) -> Result<(), String> {
        let name = name.trim_end_matches(':');
        let name = name.split('@').next().unwrap_or(name).to_owned();
        let index = self.index(&name);
        self.link = Some(index);
        let mtu = words.iter().position(|w| *w == "mtu");
        if let Some(mtu) = mtu.and_then(|at| words.get(at + 1)) {
            let mtu = mtu.parse().map_err(|_| format!("invalid MTU `{mtu}`"))?;
            let links = &mut self.routes.links;
            if let Some(link) = links.iter_mut().find(|l| l.ifindex == index) {
                link.mtu = mtu;
            }
        }
        match words.iter().position(|w| w.starts_with("link/")) {
            Some(at) => self.link_address(index, &words[at..]),
            None => Ok(()),
        }
    }

    fn link_address(&mut self, index: u32, words: &[&str]) -> Result<(), String> {
        if words[0] != "link/ether" {
            return Ok(());
        }
        let address: Mac = words.get(1).copied().unwrap_or_default().parse()?;
        let links = &mut self.routes.links;
        if let Some(link) = links.iter_mut().find(|l| l.ifindex == index) {
            link.address = address.0;
        }
        Ok(())
    }

    /// `10.0.0.1 dev eth0 lladdr 02:00:00:00:00:01 REACHABLE`; without an address it is none that packets go to.
    fn neighbour(&mut self, words: &[&str]) -> Result<(), String> {
        let address = ip(words[0])?;
        let after = |word: &str| {
            let at = words.iter().position(|w| *w == word)?;
            words.get(at + 1).copied()
        };
        let device = after("dev").ok_or("a neighbour without `dev`")?;
        let Some(link) = after("lladdr").map(str::parse::<Mac>).transpose()? else {
            return Ok(());
        };
        if words.contains(&"FAILED") || words.contains(&"INCOMPLETE") {
            return Ok(());
        }
        let ifindex = self.index(device);
        self.routes.neighbours.push(Neighbour {
            ifindex,
            address,
            link: link.0,
        });
        Ok(())
    }

    fn route(&mut self, words: &[&str]) -> Result<(), String> {
        let mut rest = words;
        let kind = match rest[0] {
            "unicast" => RouteKind::Unicast,
            "local" => RouteKind::Local,
            "broadcast" => RouteKind::Broadcast,
            "multicast" | "anycast" => RouteKind::Multicast,
            "blackhole" => RouteKind::Blackhole,
            "unreachable" => RouteKind::Unreachable,
            "prohibit" => RouteKind::Prohibit,
            _ => RouteKind::Unicast,
        };
        let has_kind = kind != RouteKind::Unicast || rest[0] == "unicast";
        if has_kind {
            rest = &rest[1..];
        }
        let to = rest.first().ok_or("a route without a destination")?;
        let mut route = Route {
            table: routes::MAIN,
            network: Ipv4Addr::UNSPECIFIED.into(),
            prefix: 0,
            kind,
            via: None,
            ifindex: 0,
            metric: 0,
            locked_mtu: None,
            source: None,
        };
        let said = self.ways(&mut route, &rest[1..])?;
        match (*to, route.via) {
            ("default", Some(IpAddr::V6(_))) => route.network = Ipv6Addr::UNSPECIFIED.into(),
            ("default", Some(IpAddr::V4(_))) => {}
            ("default", None) if rest.contains(&"pref") => {
                route.network = Ipv6Addr::UNSPECIFIED.into();
            }
            // Its next hops are on lines of their own, and say which family it is.
            ("default", None) if kind == RouteKind::Unicast && route.ifindex == 0 => {}
            ("default", None) => {
                return Err(
                    "`default` without `via` is of neither family: write 0.0.0.0/0 or ::/0"
                        .to_owned(),
                );
            }
            (to, _) => {
                let prefix = network(to)?;
                (route.network, route.prefix) = (prefix.address(), prefix.len);
            }
        }
        let Some(table) = said else {
            // Of a table that only rules lead to.
            return Ok(());
        };
        route.table = table;
        let is_own =
            kind == RouteKind::Unicast && words.windows(2).any(|w| w == ["proto", "kernel"]);
        if let (Some(source), true) = (route.source, is_own) {
            self.routes.routes.push(Route {
                table: routes::LOCAL,
                network: source,
                prefix: if source.is_ipv4() { 32 } else { 128 },
                kind: RouteKind::Local,
                via: None,
                ..route.clone()
            });
        }
        let leads = matches!(kind, RouteKind::Unicast) && route.ifindex == 0;
        match leads {
            true => self.open = Some(route),
            false => self.routes.routes.push(route),
        }
        Ok(())
    }

    /// What is said of a route behind its destination; its table, `None`: not one of those that are looked into.
    fn ways(&mut self, route: &mut Route, words: &[&str]) -> Result<Option<u32>, String> {
        let mut table = match route.kind {
            RouteKind::Local | RouteKind::Broadcast => routes::LOCAL,
            _ => routes::MAIN,
        };
        let mut known = true;
        let mut hops = false;
        let mut words = words.iter().copied();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("`{word}` has no value"));
            match word {
                "via" => {
                    let first = value()?;
                    let text = if matches!(first, "inet" | "inet6") {
                        value()?
                    } else {
                        first
                    };
                    route.via = route.via.or(Some(ip(text)?));
                }
                "dev" => {
                    let name = value()?;
                    if route.ifindex == 0 {
                        route.ifindex = self.index(name);
                    }
                }
                "metric" => route.metric = number(value()?)?,
                "src" => route.source = Some(ip(value()?)?),
                "mtu" => {
                    let first = value()?;
                    if first == "lock" {
                        route.locked_mtu = Some(number(value()?)?);
                    } else {
                        number(first)?;
                    }
                }
                "table" => match value()? {
                    "main" | "254" => table = routes::MAIN,
                    "local" | "255" => table = routes::LOCAL,
                    _ => known = false,
                },
                // Of several the first one counts: which the kernel takes is its own hash.
                "nexthop" if hops => break,
                "nexthop" => hops = true,
                word if FLAGS.contains(&word) => {}
                word if PAIRS.contains(&word) => drop(value()?),
                other => {
                    return Err(format!(
                        "`{other}` is not understood: lines are those of `ip route`, `ip neigh` or `ip link`"
                    ));
                }
            }
        }
        Ok(known.then_some(table))
    }

    /// A next hop on a line of its own: the first one counts, because which the kernel takes is its own hash.
    fn hops(&mut self, words: &[&str]) -> Result<(), String> {
        let Some(mut route) = self.open.take() else {
            // Of one that was there already.
            return match self.routes.routes.is_empty() {
                true => Err("`nexthop` without a route before it".to_owned()),
                false => Ok(()),
            };
        };
        let any = route.via.is_none() && route.prefix == 0;
        self.ways(&mut route, words)?;
        if let (true, Some(IpAddr::V6(_))) = (any, route.via) {
            route.network = Ipv6Addr::UNSPECIFIED.into();
        }
        self.routes.routes.push(route);
        Ok(())
    }

    fn end_open(&mut self) -> Result<(), String> {
        match self.open.take() {
            Some(route) => Err(format!(
                "the route to {}/{} has no `dev`",
                route.network, route.prefix
            )),
            None => Ok(()),
        }
    }
}

/// States that `ip neigh` writes of neighbours without an address.
fn is_state(word: &str) -> bool {
    matches!(
        word,
        "FAILED" | "INCOMPLETE" | "NOARP" | "PERMANENT" | "NONE"
    )
}

fn ip(text: &str) -> Result<IpAddr, String> {
    Ok(weir_value::address(text)?)
}

fn number(text: &str) -> Result<u32, String> {
    text.parse()
        .map_err(|_| format!("expected a number, not `{text}`"))
}

/// A prefix as `ip route` shows it: IPv4 networks may be short.
fn network(text: &str) -> Result<Prefix, String> {
    let (address, len) = match text.find('/') {
        Some(at) => text.split_at(at),
        None => (text, ""),
    };
    let is_short = !address.is_empty() && address.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let dots = address.matches('.').count();
    let whole = match is_short && dots < 3 {
        true => format!("{address}{}{len}", ".0".repeat(3 - dots)),
        false => text.to_owned(),
    };
    whole.parse().map_err(|invalid: Invalid| {
        format!("{invalid}; lines are those of `ip route`, `ip neigh` or `ip link`")
    })
}
