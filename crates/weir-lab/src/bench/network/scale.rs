//! Very many networks on one edge: how long applying them takes, how long a change of one workload, and the memory of the tables.
//!
//! Devices are made before and not counted. Invariant: they vanish with their namespaces.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;

use weir_kernel::NetNs;

use super::document::{EDGE, WORKLOADS, many};
use super::edge::Standing;
use super::{APPLY_S, CHANGE_MS, Net};
use crate::LabError;
use crate::bench::measure::Samples;
use crate::bench::report::Figure;
use crate::bench::router::bed::batch;

/// Networks, of ten workloads each.
const NETWORKS: usize = 1000;
const QUICK_NETWORKS: usize = 30;

/// Applies them, and changes one workload again and again.
pub(super) fn run(net: &mut Net<'_, '_>) -> Result<(), LabError> {
    let (networks, rounds) = match net.bench.scale.quick {
        true => (QUICK_NETWORKS, 3),
        false => (NETWORKS, 11),
    };
    let workloads = networks * WORKLOADS;
    net.bench
        .say(&format!("{networks} networks with {workloads} workloads"))?;
    net.bench.progress("making their devices")?;
    let edge = Arc::new(NetNs::create("weir-net-edge")?);
    let far = NetNs::create("weir-net-far")?;
    for ns in [edge.as_ref(), &far] {
        ns.sysctl("net.ipv6.conf.default.disable_ipv6", "1")?;
    }
    let begin = Instant::now();
    for from in (0..workloads).step_by(1000) {
        net.bench
            .progress(&format!("devices: {from} of {workloads}"))?;
        let mut lines = String::new();
        for n in from..(from + 1000).min(workloads) {
            let _ = writeln!(
                lines,
                "link add d{n} type veth peer name d{n} netns {}",
                far.name()
            );
        }
        batch(&edge, net.scratch, &lines)?;
    }
    let made = begin.elapsed().as_secs_f64();
    net.bench.note(format!(
        "making {workloads} devices beforehand took {made:.1} s"
    ));
    net.bench.progress("applying")?;
    let standing = Standing::new(&edge, EDGE);
    let (applied, took) = standing.apply(&many(networks, 1, 0))?;
    let name = |what: &str| format!("network.scale.{workloads}.{what}");
    let one = |value: f64| Samples(vec![value]);
    let bench = &mut *net.bench;
    bench.figure(Figure::new(name("document"), "s", one(took.document)));
    let apply = Figure::new(name("apply"), "s", one(took.plan + took.apply));
    bench.outcome.bound(apply, APPLY_S);
    let memory = one(applied.memory as f64 / 1e6);
    bench.figure(Figure::new(name("memory"), "MB", memory));
    let (mut changes, mut documents) = (Samples::default(), Samples::default());
    for round in 1..=rounds {
        net.bench.progress(&format!("changes, round {round}"))?;
        // A workload goes and comes.
        let (_, took) = standing.apply(&many(networks, 1 + round, (round % 2) as usize))?;
        changes.push((took.plan + took.apply) * 1e3);
        documents.push((took.document + took.plan + took.apply) * 1e3);
    }
    let change = Figure::new(name("change"), "ms", changes);
    net.bench.outcome.bound(change, CHANGE_MS);
    net.bench
        .figure(Figure::new(name("change-from-text"), "ms", documents));
    net.bench.progress("removing them")?;
    drop(standing);
    Ok(())
}
