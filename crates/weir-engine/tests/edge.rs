//! Edges on real devices: packets follow them, functions are replaced under a numbered stream, nothing of them is left.

#![allow(clippy::print_stderr, reason = "figures are said where the test runs")]

use std::time::{Duration, Instant};

use crate::edge_bed;
use crate::edge_bed::{Bed, Down, Owned, chain, edge_name, empty, replace, root, wired};
use weir_engine::edge::{self, Edge, EdgeError};
use weir_graph::{Link, Mode, Model, Source, Target};
use weir_kernel::KernelError;

#[test]
fn packets_follow_a_chain_and_every_hop_counts_them() {
    if !root("packets_follow_a_chain_and_every_hop_counts_them") {
        return;
    }
    let bed = Bed::new();
    let name = edge_name("chain");
    let _down = Down::of(&bed, &name);
    let plan = chain(&name, 5);
    let applied = bed
        .on_edge(|| edge::apply(&wired(&plan), "text"))
        .expect("applies");
    assert_eq!(applied.added.len(), 5);
    bed.send(1000);
    let arrived = bed.arrived();
    assert!(arrived.is_whole(bed.sent()), "{arrived:?}");
    let status = bed.on_edge(|| edge::status(&name)).expect("runs");
    assert_eq!((status.generation, status.text.as_str()), (1, "text"));
    assert_eq!(status.ports[0].ledger.received, 1000);
    for instance in &status.instances {
        assert_eq!(instance.ledger.received, 1000, "{}", instance.name);
        assert_eq!(instance.reasons(), []);
    }
    // The same once more changes nothing but the generation.
    let applied = bed
        .on_edge(|| edge::apply(&wired(&plan), "text"))
        .expect("applies");
    assert_eq!((applied.generation, applied.kept.len()), (2, 5));
    assert!(applied.replaced.is_empty() && applied.added.is_empty());
    assert_eq!(edge::list().expect("readable"), [] as [&str; 0]);
    let here = bed.on_edge(edge::list).expect("readable");
    assert_eq!(here, [name.as_str()]);
}

/// In CI 40 replacements of each function, with `WEIR_LONG=1` 1,000.
#[test]
fn functions_are_replaced_under_traffic_without_loss() {
    if !root("functions_are_replaced_under_traffic_without_loss") {
        return;
    }
    const FUNCTIONS: usize = 5;
    let rounds = match std::env::var("WEIR_LONG").as_deref() {
        Ok("1") => 1000,
        _ => 40,
    };
    let (burst, pause) = (640, Duration::from_millis(2));
    let (sent, plain) = Bed::plain(500, burst);
    eprintln!("plain veth: {sent} sent, {plain:?}");
    let bed = Bed::new();
    let name = edge_name("replace");
    let _down = Down::of(&bed, &name);
    let mut plan = chain(&name, FUNCTIONS);
    let mut running = bed
        .on_edge(|| {
            let mut running = Edge::open_or_create(&name)?;
            running.apply(&wired(&plan), "0")?;
            Ok::<_, EdgeError>(running)
        })
        .expect("applies");
    let began = Instant::now();
    bed.sending(burst, pause, || {
        bed.on_edge(|| {
            for round in 1..=rounds {
                for function in 0..FUNCTIONS {
                    replace(&mut plan, function, round);
                    let applied = running.apply(&wired(&plan), "n").expect("applies");
                    assert_eq!(applied.replaced, [format!("f{function}")]);
                    assert_eq!(applied.kept.len(), FUNCTIONS - 1);
                }
            }
        });
    });
    let took = began.elapsed();
    let (sent, arrived) = (bed.sent(), bed.arrived());
    let status = bed.on_edge(|| running.status()).expect("runs");
    eprintln!(
        "{} replacements in {took:.1?} ({:.1} ms each), {sent} packets sent: {arrived:?}",
        status.generation - 1,
        took.as_secs_f64() * 1e3 / (status.generation - 1) as f64,
    );
    assert_eq!(status.generation, u64::from(rounds) * FUNCTIONS as u64 + 1);
    assert_eq!(status.missed, 0);
    // Ledgers go on over replacements, and nothing was dropped between the port and the last function.
    let came = status.ports[0].ledger.received;
    for instance in &status.instances {
        assert_eq!(instance.ledger.received, came, "{}", instance.name);
        assert_eq!(instance.reasons(), [], "{}", instance.name);
    }
    assert_eq!((arrived.late, arrived.twice), (0, 0), "{arrived:?}");
    match plain.missing {
        0 => assert!(arrived.is_whole(sent), "{arrived:?} of {sent}"),
        // A queue of the plain pair overflows on this host: then what the edge is given must arrive.
        _ => assert!(arrived.received >= came, "{arrived:?} of {came}"),
    }
}

#[test]
fn a_chain_of_40_is_recirculated_once() {
    if !root("a_chain_of_40_is_recirculated_once") {
        return;
    }
    let bed = Bed::new();
    let name = edge_name("forty");
    let down = Down::of(&bed, &name);
    let before = bed.devices();
    let mut plan = chain(&name, 40);
    bed.on_edge(|| edge::apply(&wired(&plan), ""))
        .expect("applies");
    bed.send(1000);
    let arrived = bed.arrived();
    assert!(arrived.is_whole(bed.sent()), "{arrived:?}");
    let status = bed.on_edge(|| edge::status(&name)).expect("runs");
    let pair = status.recirculation.as_ref().expect("there is a pair");
    assert_eq!(pair.ledger.received, 1000);
    assert_eq!(edge::reasons(&pair.ledger), []);
    for instance in &status.instances {
        assert_eq!(instance.ledger.received, 1000, "{}", instance.name);
    }
    // Functions on both sides of the pair are replaced while packets are in it.
    bed.sending(128, Duration::from_millis(2), || {
        bed.on_edge(|| {
            for round in 1..=10 {
                for function in [0, 31, 32, 39] {
                    replace(&mut plan, function, round);
                    edge::apply(&wired(&plan), "").expect("applies");
                }
            }
        });
    });
    let (sent, arrived) = (bed.sent(), bed.arrived());
    let status = bed.on_edge(|| edge::status(&name)).expect("runs");
    let pair = status.recirculation.expect("there is a pair");
    eprintln!(
        "{sent} sent, {arrived:?}, {} came back",
        pair.ledger.received
    );
    assert_eq!(edge::reasons(&pair.ledger), []);
    assert_eq!((arrived.late, arrived.twice, status.missed), (0, 0, 0));
    assert!(arrived.is_whole(sent), "{arrived:?} of {sent}");
    costs(&bed, &name);
    drop(down);
    assert_eq!(bed.devices(), before);
}

/// What the way through the pair costs beside calls in a row: the same functions, 33 of them without the pair and 34 with it.
/// Times are printed, not asserted.
fn costs(bed: &Bed, name: &str) {
    const COUNT: u32 = 100_000;
    let time = |functions: usize| {
        let plan = chain(name, functions);
        bed.on_edge(|| edge::apply(&wired(&plan), ""))
            .expect("applies");
        let mut rounds: Vec<f64> = (0..5)
            .map(|_| {
                let before = bed.arrived().received;
                let spent = bed.send_timed(COUNT).as_secs_f64() * 1e9;
                spent / (bed.arrived().received - before) as f64
            })
            .collect();
        rounds.sort_by(f64::total_cmp);
        rounds[2]
    };
    let (one, without, with) = (time(1), time(33), time(34));
    eprintln!("1 function {one:.0} ns a packet, generator and check included");
    eprintln!(
        "33 functions in a row {without:.0} ns a packet, 34 by way of the pair {with:.0} ns: {:.0} ns more",
        with - without
    );
}

#[test]
fn a_packet_takes_a_guarded_link_as_often_as_it_may() {
    if !root("a_packet_takes_a_guarded_link_as_often_as_it_may") {
        return;
    }
    // Three functions in a loop: with 4 passes all calls fit, with 12 every pass is recirculated.
    for (limit, recirculates) in [(4, false), (12, true)] {
        let bed = Bed::new();
        let name = edge_name("guard");
        let _down = Down::of(&bed, &name);
        let mut plan = chain(&name, 3);
        plan.links[3] = Link {
            from: Source::Out {
                instance: 2,
                out: 0,
            },
            to: Target::Instance(0),
            guard: Some(limit),
        };
        bed.on_edge(|| edge::apply(&wired(&plan), ""))
            .expect("applies");
        bed.send(100);
        assert_eq!(bed.arrived().received, 0);
        let status = bed.on_edge(|| edge::status(&name)).expect("runs");
        assert_eq!(status.recirculation.is_some(), recirculates);
        let guard = status
            .instances
            .iter()
            .find(|i| i.name == "guard behind f2")
            .expect("there");
        assert!(guard.implicit);
        assert_eq!(guard.ledger.received, 100 * (u64::from(limit) + 1));
        assert_eq!(guard.reasons(), [("loop_guard", 100)]);
        assert_eq!(
            status.instances[0].ledger.received,
            100 * (u64::from(limit) + 1)
        );
    }
}

#[test]
fn functions_and_ports_come_and_go() {
    if !root("functions_and_ports_come_and_go") {
        return;
    }
    let bed = Bed::new();
    let name = edge_name("change");
    let _down = Down::of(&bed, &name);
    let apply = |plan: &Model| bed.on_edge(|| edge::apply(&wired(plan), ""));
    let mut plan = chain(&name, 3);
    apply(&plan).expect("applies");
    bed.send(10);
    // One in the middle goes, and what stays keeps its number and its ledger.
    let before = bed.on_edge(|| edge::status(&name)).expect("runs");
    plan.instances.remove(1);
    plan.links = chain(&name, 2).links;
    let applied = apply(&plan).expect("applies");
    assert_eq!(applied.kept, ["f0", "f2"]);
    assert_eq!(applied.removed, ["f1"]);
    bed.send(10);
    let after = bed.on_edge(|| edge::status(&name)).expect("runs");
    // Only what lies in front of the change was loaded anew.
    assert_eq!(before.instances[2].program, after.instances[1].program);
    for (was, now) in [(0, 0), (2, 1)] {
        assert_eq!(before.instances[was].vid, after.instances[now].vid);
        assert_eq!(after.instances[now].ledger.received, 20);
    }
    // A new one takes the place.
    plan.instances.insert(1, empty("f9"));
    plan.links = chain(&name, 3).links;
    let applied = apply(&plan).expect("applies");
    assert_eq!(applied.added, ["f9"]);
    bed.send(10);
    assert!(bed.arrived().is_whole(30));
    // The receiving port goes: its device is as it was, and packets have nowhere to go.
    bed.edge
        .ip(&["link", "add", "m2", "type", "veth", "peer", "name", "m3"])
        .expect("veth");
    plan.ports[1].device = "m2".to_owned();
    renumber(&mut plan, 1, 3);
    let applied = apply(&plan).expect("applies");
    assert_eq!(
        (applied.attached, applied.detached),
        (vec!["out".to_owned()], vec!["out".to_owned()])
    );
    let free = bed.on_edge(|| weir_kernel::iface::find("m1").expect("there").xdp_prog_id);
    assert_eq!(free, None);
}

#[test]
fn what_cannot_be_is_refused_and_what_runs_stays() {
    if !root("what_cannot_be_is_refused_and_what_runs_stays") {
        return;
    }
    let bed = Bed::new();
    let name = edge_name("bad");
    let _down = Down::of(&bed, &name);
    let plan = chain(&name, 3);
    let apply = |plan: &Model| bed.on_edge(|| edge::apply(&wired(plan), ""));
    // Nothing is left of an edge that never ran.
    let mut bad = plan.clone();
    bad.ports[1].device = "m9".to_owned();
    let e = apply(&bad).expect_err("no such device").to_string();
    assert!(e.contains("port out") && e.contains("m9"), "{e}");
    assert!(!std::path::Path::new(edge::FOLDER).join(&name).exists());
    apply(&plan).expect("applies");
    let before = bed.snapshot(&name);
    let refused = |change: &dyn Fn(&mut Model), said: &[&str]| {
        let mut bad = plan.clone();
        change(&mut bad);
        let text = apply(&bad).expect_err("refused").to_string();
        assert!(said.iter().all(|s| text.contains(s)), "{text}");
        assert_eq!(bed.snapshot(&name), before, "{text}");
    };
    refused(
        &|p| p.ports[0].device = "nope".to_owned(),
        &["port in", "nope"],
    );
    refused(
        &|p| p.ports[1].device = "m0".to_owned(),
        &["device m0", "twice"],
    );
    refused(&|p| renumber(p, 0, 9), &["number 1", "become number 9"]);
    refused(&|p| renumber(p, 0, 255), &["255", "1 to 254"]);
    refused(
        &|p| p.ports[0].mode = Mode::Offload,
        &["port in", "m0 (driver veth) cannot run XDP in hardware"],
    );
    refused(&|p| p.ports[0].mode = Mode::Generic, &["native", "generic"]);
    refused(
        &|p| {
            p.instances[1].planned.instance.constants = vec![("nothing".into(), vec![1])];
        },
        &["function f1", "nothing"],
    );
    refused(
        &|p| p.instances[1].shares = [("stats".to_owned(), "all".to_owned())].into(),
        &["function f1", "stats", "all"],
    );
    refused(
        &|p| p.instances[1].planned.asks.vlan_in_frame = true,
        &["function f1", "m0 of port in", "ethtool -K m0 rxvlan off"],
    );
    let mtu = |mtu| {
        bed.edge
            .ip(&["link", "set", "m0", "mtu", mtu])
            .expect("set")
    };
    mtu("4000");
    let mut bad = plan.clone();
    bad.instances[2].planned.asks.linear_frames = true;
    let e = apply(&bad).expect_err("long frames").to_string();
    assert!(
        e.contains("function f2") && e.contains("its MTU is 4000"),
        "{e}"
    );
    mtu("1500");
    // Native where the driver has none is never generic.
    refused(
        &|p| {
            p.ports.push(edge_bed::port("host", "lo", 7));
        },
        &["port host", "native"],
    );
    // Somebody else's program is on the device.
    let other = edge_name("other");
    let e = bed.on_edge(|| edge::apply(&wired(&chain(&other, 1)), ""));
    let e = e.expect_err("taken");
    assert!(
        matches!(
            &e,
            EdgeError::Of {
                error: KernelError::AlreadyAttached { .. },
                ..
            }
        ),
        "{e}"
    );
    assert!(!std::path::Path::new(edge::FOLDER).join(&other).exists());
    // The devices are those of a namespace.
    let e = edge::apply(&wired(&plan), "").expect_err("elsewhere");
    assert!(matches!(e, EdgeError::OtherNamespace { .. }), "{e}");
    let e = edge::down(&name).expect_err("elsewhere");
    assert!(matches!(e, EdgeError::OtherNamespace { .. }), "{e}");
    // One process at a time.
    let held = bed.on_edge(|| Edge::open(&name)).expect("opens");
    let e = apply(&plan).expect_err("held");
    assert!(matches!(e, EdgeError::Busy(_)), "{e}");
    drop(held);
    let e = edge::status("no/name").expect_err("no name");
    assert!(matches!(e, EdgeError::BadName(_)), "{e}");
    let e = bed
        .on_edge(|| edge::status("nothing-here"))
        .expect_err("none");
    assert!(e.to_string().contains(&name), "{e}");
    assert_eq!(bed.snapshot(&name), before);
    bed.send(10);
    assert!(bed.arrived().is_whole(10));
}

#[test]
fn down_leaves_nothing() {
    if !root("down_leaves_nothing") {
        return;
    }
    let bed = Bed::new();
    let name = edge_name("down");
    let before = bed.devices();
    let plan = chain(&name, 40);
    bed.on_edge(|| edge::apply(&wired(&plan), ""))
        .expect("applies");
    let owned = Owned::of(&bed, &name);
    assert_ne!(bed.devices(), before);
    assert!(bed.on_edge(|| edge::down(&name)).expect("goes down"));
    assert_eq!(bed.devices(), before);
    assert!(!std::path::Path::new(edge::FOLDER).join(&name).exists());
    owned.are_gone();
    assert!(!bed.on_edge(|| edge::down(&name)).expect("nothing to do"));
    // The same devices can be used again.
    bed.on_edge(|| edge::apply(&wired(&plan), ""))
        .expect("applies");
    bed.on_edge(|| edge::down(&name)).expect("goes down");
}

/// Gives a port another number, and its links with it.
fn renumber(plan: &mut Model, port: usize, number: u32) {
    let before = std::mem::replace(&mut plan.ports[port].number, number);
    for link in &mut plan.links {
        if link.from == Source::Port(before) {
            link.from = Source::Port(number);
        }
        if link.to == Target::Device(before) {
            link.to = Target::Device(number);
        }
    }
}
