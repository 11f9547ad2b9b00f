//! One subnet over two hosts that a veth pair joins, its workloads' packets in a tunnel: weir's kinds of tunnel, the kernel's VXLAN devices in its bridges,
//! and, for what the tunnel itself costs, those bridges without any.
//!
//! ```text
//! a0 --- bridge --- tunnel === wire === tunnel --- bridge --- b0
//! ```

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use weir_kernel::NetNs;

use super::Net;
use super::bed::{Bed, Builder, Series, add_bridge, namespace, plain_bridges};
use super::document::{self, EDGES, device};
use super::edge::Standing;
use super::traffic;
use crate::LabError;
use crate::bench::measure::Samples;
use crate::bench::report::{Figure, Promise};
use crate::bench::router::bed::batch;

/// How the subnet crosses the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The wire is a port of both bridges.
    Bridged,
    /// A VXLAN device of the kernel is, at both.
    Linux,
    /// A kind of weir's tunnels, as documents name it.
    Weir(&'static str),
}

/// A way, and whether the hosts' own addresses are of IPv6.
#[derive(Clone, Copy, Debug)]
struct Lay {
    way: Way,
    v6: bool,
}

/// Of these the first is what others are compared with.
const KINDS: [&str; 4] = ["vxlan", "geneve", "gre", "kernel-vxlan"];

impl Lay {
    fn name(self) -> String {
        let way = match self.way {
            Way::Bridged => "bridged",
            Way::Linux => "linux",
            Way::Weir(kind) => kind,
        };
        format!("{way}{}", if self.v6 { "6" } else { "" })
    }

    fn underlay(self) -> [&'static str; 2] {
        match self.v6 {
            false => ["192.0.2.1", "192.0.2.2"],
            true => ["fd00:99::1", "fd00:99::2"],
        }
    }

    /// Two hosts with a pair of workloads.
    fn build(self, builder: &Builder<'_>) -> Result<Bed, LabError> {
        let hosts = [
            Arc::new(namespace("weir-net-here")?),
            Arc::new(namespace("weir-net-there")?),
        ];
        let mut bed = builder.ends(Series::Tunnel, 1, 1, [&hosts[0], &hosts[1]])?;
        let wire = format!(
            "link add wire type veth peer name wire netns {}\n",
            hosts[1].name()
        );
        batch(&hosts[0], builder.scratch, &wire)?;
        for (host, at) in hosts.iter().zip(0..) {
            self.host(builder, host, at)?;
        }
        if let Way::Weir(kind) = self.way {
            let text = document::stretched(kind, self.underlay(), 1);
            for (host, edge) in hosts.iter().zip(EDGES) {
                let standing = Standing::new(host, edge);
                standing.apply(&text)?;
                bed.standing.push(standing);
            }
        }
        Ok(bed)
    }

    fn host(self, builder: &Builder<'_>, host: &NetNs, at: usize) -> Result<(), LabError> {
        let underlay = self.underlay();
        let mut lines = "link set dev wire mtu 1600 up\n".to_owned();
        match (self.way, self.v6) {
            (Way::Bridged, _) => {}
            (_, false) => {
                let _ = writeln!(lines, "address add {}/24 dev wire", underlay[at]);
            }
            (_, true) => {
                host.sysctl("net.ipv6.conf.wire.disable_ipv6", "0")?;
                let _ = writeln!(lines, "address add {}/64 dev wire nodad", underlay[at]);
            }
        }
        if matches!(self.way, Way::Bridged | Way::Linux) {
            plain_bridges(host)?;
            add_bridge(&mut lines, 0);
            let end = ['a', 'b'][at];
            let mut ports = vec![device(end, 0)];
            if self.way == Way::Linux {
                let _ = writeln!(
                    lines,
                    "link add vx type vxlan id 100 local {} remote {} dev wire dstport 4789\nlink set dev vx up",
                    underlay[at],
                    underlay[1 - at]
                );
                ports.push("vx".to_owned());
            } else {
                ports.push("wire".to_owned());
            }
            for port in ports {
                let _ = writeln!(lines, "link set dev {port} master br0");
            }
        }
        batch(host, builder.scratch, &lines)
    }
}

/// What one way came to.
#[derive(Clone, Default)]
struct Point {
    p50: Samples,
    p99: Samples,
    connections: Samples,
    rate: Samples,
    cpu: Samples,
}

/// Round trips, connections and one stream by each way.
pub(super) fn run(net: &mut Net<'_, '_>) -> Result<(), LabError> {
    let quick = net.bench.scale.quick;
    let plain = |way| Lay { way, v6: false };
    let mut lays = vec![plain(Way::Bridged), plain(Way::Linux)];
    lays.extend(KINDS.map(|kind| plain(Way::Weir(kind))));
    if !quick {
        lays.push(Lay {
            way: Way::Linux,
            v6: true,
        });
        lays.extend(KINDS.map(|kind| Lay {
            way: Way::Weir(kind),
            v6: true,
        }));
    }
    let builder = Builder {
        scratch: net.scratch,
        weir: &net.bench.options.weir,
        cpu: net.cpu,
    };
    let mut beds = Vec::new();
    for lay in &lays {
        net.bench.progress(&format!("building {}", lay.name()))?;
        beds.push(lay.build(&builder)?);
    }
    let rounds = net.bench.scale.rounds;
    net.bench.say(&format!(
        "two hosts: {} ways over the wire, {rounds} rounds",
        beds.len()
    ))?;
    let count = if quick { 200 } else { 2000 };
    let lasting = |ms: u64| Duration::from_millis(if quick { ms / 5 } else { ms });
    // A stream needs a CPU at each end.
    let two = net.cpu > 0;
    let mut points = vec![Some(Point::default()); beds.len()];
    for round in 0..=rounds {
        for ((lay, bed), point) in lays.iter().zip(&beds).zip(&mut points) {
            let name = lay.name();
            net.bench.progress(&format!("{name}, round {round}"))?;
            let Some(trips) = traffic::round_trips(bed, count, 0, net.cpu)? else {
                if point.take().is_some() {
                    let why = format!("a packet was lost; {}", bed.words());
                    net.bench.refuse(&format!("network.tunnel.{name}"), &why);
                }
                continue;
            };
            let connections = traffic::connections(bed, lasting(300), net.cpu)?;
            let stream = match two {
                true => Some(traffic::stream(bed, lasting(450), [0, net.cpu])?),
                false => None,
            };
            // The first round warms up.
            let (Some(point), true) = (point, round > 0) else {
                continue;
            };
            point.p50.push(trips.p50);
            point.p99.push(trips.p99);
            point.connections.push(connections);
            if let Some(stream) = stream {
                point.rate.push(stream.rate);
                point.cpu.push(stream.cpu);
            }
        }
    }
    if !two {
        let why = "sender and receiver need a CPU each, and there is one";
        net.bench.refuse("network.tunnel.rate", why);
    }
    report(net, &lays, points);
    Ok(())
}

const UNITS: [(&str, &str); 5] = [
    ("p50", "us"),
    ("p99", "us"),
    ("crr", "1/s"),
    ("rate", "Gbit/s"),
    ("cpu", "ms/Gbit"),
];

fn report(net: &mut Net<'_, '_>, lays: &[Lay], points: Vec<Option<Point>>) {
    let name = |lay: &str, kind: &str| format!("network.tunnel.{lay}.{kind}");
    for (lay, point) in lays.iter().zip(points) {
        let Some(point) = point else { continue };
        let all = [
            point.p50,
            point.p99,
            point.connections,
            point.rate,
            point.cpu,
        ];
        for ((kind, unit), samples) in UNITS.into_iter().zip(all) {
            if !samples.0.is_empty() {
                net.bench
                    .figure(Figure::new(name(&lay.name(), kind), unit, samples));
            }
        }
    }
    for lay in lays {
        let against = match lay.way {
            Way::Bridged => continue,
            Way::Linux => plain_name(Way::Bridged, false),
            Way::Weir(_) => plain_name(Way::Linux, lay.v6),
        };
        for (kind, _) in UNITS {
            net.bench.outcome.compare(
                &name(&lay.name(), kind),
                &name(&against, kind),
                Promise::Reported,
            );
        }
    }
}

fn plain_name(way: Way, v6: bool) -> String {
    Lay { way, v6 }.name()
}
