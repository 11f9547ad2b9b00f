//! Beds of the network figures: pairs of workloads, each a namespace of its own, and between them a row of functions carried out by weir, by the
//! kernel's bridges and routers, by processes, by Open vSwitch, or by nothing.
//!
//! ```text
//! a0 ---+                        +--- b0
//! a1 ---+ bridge router bridge ..+--- b1
//! ```
//!
//! Workloads know their gateway's MAC address in every bed, so that what is measured is the row and not its ARP. Everything vanishes with the value.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use weir_kernel::{Direction, Link, NetNs, iface};

use super::document::{self, LEFT, RIGHT, address, device, end_host, router_mac, workload_mac};
use super::edge::Standing;
use super::ovs::Switch;
use crate::LabError;
use crate::bench::router::bed::batch;
use crate::bench::testrun::load_baseline;
use crate::process::{Running, Scratch};

/// What carries packets from one end to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Series {
    /// One veth pair.
    Direct,
    /// Two pairs, joined by the least program on tc.
    Redirect,
    /// weir's virtual networks.
    Weir,
    /// The kernel's bridges, and routers in namespaces.
    Linux,
    /// The same with the routers on another host: both of their subnets reach it by VXLAN.
    Hairpin,
    /// One process for each function, with packet sockets.
    User,
    /// Open vSwitch with its user-space datapath, a bridge for each function.
    Ovs,
    /// One subnet over two hosts, in the ways of `tunnel.rs`.
    Tunnel,
}

impl Series {
    pub(super) fn name(self) -> &'static str {
        match self {
            Series::Direct => "direct",
            Series::Redirect => "redirect",
            Series::Weir => "weir",
            Series::Linux => "linux",
            Series::Hairpin => "hairpin",
            Series::User => "user",
            Series::Ovs => "ovs",
            Series::Tunnel => "tunnel",
        }
    }

    /// Whether functions look at addresses: else the ends are neighbours.
    fn routes(self) -> bool {
        matches!(self, Series::Weir | Series::Linux | Series::Hairpin)
    }
}

/// Two workloads that talk.
pub(super) struct Pair {
    pub(super) a: NetNs,
    pub(super) b: NetNs,
    /// Of `b`.
    pub(super) to: Ipv4Addr,
}

/// A bed.
pub(super) struct Bed {
    pub(super) series: Series,
    pub(super) functions: usize,
    pub(super) pairs: Vec<Pair>,
    // In the order in which they have to end: what runs, then its namespaces.
    pub(super) standing: Vec<Standing>,
    switch: Option<Switch>,
    _processes: Vec<Running>,
    _links: Vec<Link>,
    _namespaces: Vec<Arc<NetNs>>,
}

/// Who builds beds, and what with.
pub(super) struct Builder<'a> {
    pub(super) scratch: &'a Scratch,
    /// The program `weir`, which forwards frames as a process.
    pub(super) weir: &'a Path,
    /// Where functions that are processes run.
    pub(super) cpu: usize,
}

/// VXLAN of the hairpin: an identifier for each subnet of the router.
const VXLAN: [(&str, u32); 2] = [("x0", 100), ("x1", 101)];

impl Builder<'_> {
    /// A row of so many functions with so many pairs.
    pub(super) fn build(
        &self,
        series: Series,
        functions: usize,
        pairs: usize,
    ) -> Result<Bed, LabError> {
        let hub = Arc::new(namespace("weir-net-hub")?);
        let mut bed = self.ends(series, functions, pairs, [&hub, &hub])?;
        match series {
            Series::Direct | Series::Tunnel => {}
            Series::Redirect => bed._links = redirect(&hub)?,
            Series::Weir => {
                let standing = Standing::new(&hub, document::EDGE);
                standing.apply(&document::row(functions, pairs))?;
                bed.standing.push(standing);
            }
            Series::Linux => self.linux(&mut bed, &hub, pairs)?,
            Series::Hairpin => self.hairpin(&mut bed, &hub, pairs)?,
            Series::User => self.processes(&mut bed, &hub)?,
            Series::Ovs => {
                for pair in &bed.pairs {
                    // Its packet sockets know nothing of unfinished checksums.
                    for end in [&pair.a, &pair.b] {
                        end.offloads_off("eth0", &["tx"])?;
                    }
                }
                bed.switch = Some(Switch::start(&hub, functions, self.scratch, self.cpu)?);
            }
        }
        Ok(bed)
    }

    /// Workloads of which one end of each pair is at each of two hosts, or both at one; nothing joins them yet.
    pub(super) fn ends(
        &self,
        series: Series,
        functions: usize,
        pairs: usize,
        hubs: [&Arc<NetNs>; 2],
    ) -> Result<Bed, LabError> {
        let mut bed = Bed {
            series,
            functions,
            pairs: Vec::new(),
            standing: Vec::new(),
            switch: None,
            _processes: Vec::new(),
            _links: Vec::new(),
            _namespaces: hubs.map(Arc::clone).into(),
        };
        for pair in 0..pairs {
            bed.pairs.push(self.pair(series, functions, pair, hubs)?);
        }
        Ok(bed)
    }

    fn pair(
        &self,
        series: Series,
        functions: usize,
        pair: usize,
        hubs: [&Arc<NetNs>; 2],
    ) -> Result<Pair, LabError> {
        let routers = match series.routes() {
            true => document::routers(functions),
            false => 0,
        };
        let made = Pair {
            a: namespace("weir-net-a")?,
            b: namespace("weir-net-b")?,
            to: address(routers, end_host('b', pair)),
        };
        if series == Series::Direct {
            let peer = ["link", "add", "eth0", "type", "veth", "peer", "name"];
            let peer = [&peer[..], &["eth0", "netns", made.b.name()]].concat();
            made.a.ip(&peer)?;
        }
        let ends = [('a', &made.a, 0, hubs[0]), ('b', &made.b, routers, hubs[1])];
        for (end, ns, subnet, hub) in ends {
            let mut lines = String::new();
            if series != Series::Direct {
                let device = device(end, pair);
                let line = format!(
                    "link add {device} type veth peer name eth0 netns {}\nlink set dev {device} up\n",
                    ns.name()
                );
                batch(hub, self.scratch, &line)?;
            }
            let _ = write!(
                lines,
                "link set dev eth0 address {} up\naddress add {}/24 dev eth0\n",
                workload_mac(end, pair),
                address(subnet, end_host(end, pair))
            );
            let (gateway, mac) = match (routers, end) {
                (0, 'a') => (address(0, end_host('b', pair)), workload_mac('b', pair)),
                (0, _) => (address(0, end_host('a', pair)), workload_mac('a', pair)),
                (_, 'a') => (address(0, RIGHT), router_mac(0, 'l')),
                _ => (address(routers, LEFT), router_mac(routers - 1, 'r')),
            };
            let _ = writeln!(
                lines,
                "neigh replace {gateway} lladdr {mac} dev eth0 nud permanent"
            );
            if routers > 0 {
                let _ = writeln!(lines, "route add default via {gateway}");
            }
            batch(ns, self.scratch, &lines)?;
        }
        Ok(made)
    }

    /// Bridges in one namespace, each router in its own.
    fn linux(&self, bed: &mut Bed, hub: &Arc<NetNs>, pairs: usize) -> Result<(), LabError> {
        let routers = document::routers(bed.functions);
        let mut lines = String::new();
        for bridge in 0..=routers {
            add_bridge(&mut lines, bridge);
        }
        into_bridges(&mut lines, routers, pairs);
        plain_bridges(hub)?;
        batch(hub, self.scratch, &lines)?;
        for router in 0..routers {
            bed._namespaces.push(self.router(hub, router, routers)?);
        }
        Ok(())
    }

    /// A namespace that routes, with an end in each of two bridges of `hub`.
    fn router(&self, hub: &NetNs, router: usize, routers: usize) -> Result<Arc<NetNs>, LabError> {
        let ns = Arc::new(namespace("weir-net-router")?);
        ns.sysctl("net.ipv4.ip_forward", "1")?;
        let (mut outside, mut inside) = (String::new(), String::new());
        for (side, subnet, host) in [('l', router, RIGHT), ('r', router + 1, LEFT)] {
            let _ = write!(
                outside,
                "link add {side}{router} type veth peer name {side} netns {}\nlink set dev {side}{router} master br{subnet} up\n",
                ns.name()
            );
            let _ = write!(
                inside,
                "link set dev {side} address {} up\naddress add {}/24 dev {side}\n",
                router_mac(router, side),
                address(subnet, host)
            );
        }
        for (to, via) in document::routes(router, routers) {
            let _ = writeln!(inside, "route add {to} via {via}");
        }
        batch(hub, self.scratch, &outside)?;
        batch(&ns, self.scratch, &inside)?;
        Ok(ns)
    }

    /// The bridges here and there are joined by VXLAN, and the router is there.
    fn hairpin(&self, bed: &mut Bed, hub: &Arc<NetNs>, pairs: usize) -> Result<(), LabError> {
        let there = Arc::new(namespace("weir-net-there")?);
        let wire = format!(
            "link add wire type veth peer name wire netns {}\n",
            there.name()
        );
        batch(hub, self.scratch, &wire)?;
        for (ns, own, other) in [(hub, 1, 2), (&there, 2, 1)] {
            plain_bridges(ns)?;
            let mut lines =
                format!("link set dev wire mtu 1600 up\naddress add 192.0.2.{own}/24 dev wire\n");
            for (bridge, (name, identifier)) in VXLAN.iter().enumerate() {
                add_bridge(&mut lines, bridge);
                let _ = write!(
                    lines,
                    "link add {name} type vxlan id {identifier} local 192.0.2.{own} remote 192.0.2.{other} dev wire dstport 4789\n\
                     link set dev {name} master br{bridge} up\n"
                );
            }
            if own == 1 {
                into_bridges(&mut lines, 1, pairs);
            }
            batch(ns, self.scratch, &lines)?;
        }
        let router = self.router(&there, 0, 1)?;
        bed._namespaces.extend([router, there]);
        Ok(())
    }

    /// One process for each function, joined by veth pairs.
    fn processes(&self, bed: &mut Bed, hub: &Arc<NetNs>) -> Result<(), LabError> {
        let mut lines = String::new();
        for link in 1..bed.functions {
            let _ = write!(
                lines,
                "link add l{link} type veth peer name r{link}\nlink set dev l{link} up\nlink set dev r{link} up\n"
            );
        }
        batch(hub, self.scratch, &lines)?;
        for function in 0..bed.functions {
            let left = match function {
                0 => device('a', 0),
                n => format!("r{n}"),
            };
            let right = match function + 1 == bed.functions {
                true => device('b', 0),
                false => format!("l{}", function + 1),
            };
            let mut command = hub.command(&self.weir.to_string_lossy())?;
            command
                .args(["lab", "forward", "--cpu", &self.cpu.to_string()])
                .args([left, right]);
            bed._processes.push(Running::start(
                &mut command,
                "weir lab forward",
                self.scratch,
            )?);
        }
        Ok(())
    }
}

pub(super) fn add_bridge(lines: &mut String, bridge: usize) {
    let _ = write!(
        lines,
        "link add br{bridge} type bridge mcast_snooping 0\nlink set dev br{bridge} up\n"
    );
}

fn into_bridges(lines: &mut String, last: usize, pairs: usize) {
    for pair in 0..pairs {
        for (end, bridge) in [('a', 0), ('b', last)] {
            let _ = writeln!(
                lines,
                "link set dev {} master br{bridge}",
                device(end, pair)
            );
        }
    }
}

/// Bridges hand nothing to iptables, where the kernel can do that.
pub(super) fn plain_bridges(ns: &NetNs) -> Result<(), LabError> {
    for family in ["iptables", "ip6tables", "arptables"] {
        let name = format!("net.bridge.bridge-nf-call-{family}");
        if ns.run(|| Path::new("/proc/sys").join(name.replace('.', "/")).exists())? {
            ns.sysctl(&name, "0")?;
        }
    }
    Ok(())
}

/// One without IPv6, whose own packets would be among those that are measured.
pub(super) fn namespace(prefix: &str) -> Result<NetNs, LabError> {
    let ns = NetNs::create(prefix)?;
    ns.sysctl("net.ipv6.conf.all.disable_ipv6", "1")?;
    ns.sysctl("net.ipv6.conf.default.disable_ipv6", "1")?;
    // Connections that ended are not waited for by those that begin.
    ns.sysctl("net.ipv4.ip_local_port_range", "1025 65000")?;
    Ok(ns)
}

/// Joins the devices of the first pair.
fn redirect(hub: &NetNs) -> Result<Vec<Link>, LabError> {
    hub.run(|| {
        let [a, b] = ['a', 'b'].map(|end| iface::index_of(&device(end, 0)));
        let (a, b) = (a?, b?);
        let mut links = Vec::new();
        for (from, to) in [(a, b), (b, a)] {
            let program = load_baseline("tc_redirect", &[("weir_device", to)], &[])?;
            links.push(program.attach_tcx(from, Direction::Ingress)?);
        }
        Ok(links)
    })?
}

impl Bed {
    /// Lets what carries packets forget what it learned of them.
    pub(super) fn forget(&self) -> Result<(), LabError> {
        match &self.switch {
            Some(switch) => switch.forget(),
            None => Ok(()),
        }
    }

    /// What it says of packets that did not come.
    pub(super) fn words(&self) -> String {
        if self.standing.is_empty() {
            return "lost".to_owned();
        }
        let drops = self.standing.iter().map(|one| match one.drops() {
            Ok(drops) => format!("weir dropped: {drops}"),
            Err(error) => error.to_string(),
        });
        drops.collect::<Vec<_>>().join("; ")
    }
}
