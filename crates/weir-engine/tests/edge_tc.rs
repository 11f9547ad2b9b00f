//! Edges whose ports are on tc, on real devices: ways out by devices, replacements and changes of hooks under a numbered stream, and a mark.

use std::time::Duration;

use crate::edge_bed::{Bed, Down, Owned, chain, edge_name, empty, replace, root, settled, wired};
use weir_engine::edge::{self, Edge};
use weir_graph::{Link, Mode, Model, Source, Target};

/// Functions between two ports on tc; another one sees what leaves by the second port.
fn on_tc(name: &str, functions: usize) -> Model {
    let mut plan = chain(name, functions);
    for port in &mut plan.ports {
        port.mode = Mode::Tc;
    }
    plan.instances.push(empty("leaves"));
    plan.links.push(Link {
        from: Source::Transmit(2),
        to: Target::Instance(functions),
        guard: None,
    });
    plan
}

/// A bed whose first device takes frames without a program of XDP.
fn bed() -> Bed {
    let bed = Bed::new();
    bed.edge
        .output("ethtool", &["-K", "m0", "gro", "on"])
        .expect("ethtool");
    bed
}

#[test]
fn packets_are_handed_to_devices_and_seen_when_they_leave() {
    if !root("packets_are_handed_to_devices_and_seen_when_they_leave") {
        return;
    }
    let bed = bed();
    let name = edge_name("tc");
    let _down = Down::of(&bed, &name);
    let plan = on_tc(&name, 5);
    bed.on_edge(|| edge::apply(&wired(&plan), "text"))
        .expect("applies");
    for _ in 0..20 {
        bed.send(50);
    }
    let arrived = bed.arrived();
    assert!(arrived.is_whole(bed.sent()), "{arrived:?}");
    let status = bed.on_edge(|| edge::status(&name)).expect("runs");
    let ports = &status.ports;
    assert_eq!(ports[0].ledger.received, 1000);
    assert!(ports[0].transmit.is_none());
    let left = ports[1].transmit.as_ref().expect("is seen");
    assert_eq!(left.received, 1000);
    for instance in &status.instances {
        assert_eq!(instance.ledger.received, 1000, "{}", instance.name);
        assert_eq!(instance.reasons(), []);
    }
    assert_eq!(status.missed, 0);
    if let Some(second) = status.second {
        assert_eq!(second.unaccounted.unwrap_or(0), 0);
        let m1 = second.devices.iter().find(|one| one.device == "m1");
        assert_eq!(m1.expect("an account").redirected.sent, 1000);
    }
    let owned = Owned::of(&bed, &name);
    assert!(bed.on_edge(|| edge::down(&name)).expect("goes down"));
    owned.are_gone();
}

/// Each function several times. The hook of a port that runs does not change, as its mode does not.
#[test]
fn functions_are_replaced_on_tc_without_loss() {
    if !root("functions_are_replaced_on_tc_without_loss") {
        return;
    }
    let bed = bed();
    let name = edge_name("tcswap");
    let _down = Down::of(&bed, &name);
    let mut plan = on_tc(&name, 4);
    bed.on_edge(|| edge::apply(&wired(&plan), "0"))
        .expect("applies");
    bed.sending(64, Duration::from_millis(2), || {
        bed.on_edge(|| {
            for round in 1..=40u32 {
                let at = round as usize % 5;
                replace(&mut plan, at, round);
                let applied = edge::apply(&wired(&plan), "more").expect("applies");
                assert_eq!(applied.replaced.len(), 1, "{applied:?}");
                assert_eq!(applied.kept.len(), 4, "{applied:?}");
            }
        });
    });
    let (sent, arrived) = (bed.sent(), bed.arrived());
    assert!(arrived.is_whole(sent), "{arrived:?} of {sent}");
    assert!(sent > 300, "{sent}");
    let status = bed.on_edge(|| edge::status(&name)).expect("runs");
    assert_eq!(status.missed, 0);
    for instance in &status.instances {
        assert_eq!(instance.ledger.received, sent, "{}", instance.name);
    }
    let mut xdp = plan.clone();
    xdp.ports[0].mode = Mode::Native;
    let refused = bed.on_edge(|| edge::apply(&wired(&xdp), "xdp"));
    let refused = refused.expect_err("refused").to_string();
    assert!(
        refused.contains("tc") && refused.contains("native"),
        "{refused}"
    );
}

/// A port on XDP comes to a function that a port on tc leads to, and goes again: the function keeps its counters.
#[test]
fn a_function_comes_to_a_second_hook_and_leaves_it() {
    if !root("a_function_comes_to_a_second_hook_and_leaves_it") {
        return;
    }
    let bed = bed();
    let name = edge_name("tcboth");
    let _down = Down::of(&bed, &name);
    let mut plan = on_tc(&name, 1);
    // m1 is on XDP, and what it receives comes to the same function.
    plan.ports[1].mode = Mode::Native;
    plan.links.pop();
    plan.instances.pop();
    let alone = plan.clone();
    plan.links.push(Link {
        from: Source::Port(2),
        to: Target::Instance(0),
        guard: None,
    });
    let mut running = bed.on_edge(|| Edge::open_or_create(&name)).expect("opens");
    for (round, plan) in [&alone, &plan, &alone, &plan].into_iter().enumerate() {
        let applied = bed.on_edge(|| running.apply(&wired(plan), "both"));
        let applied = applied.expect("applies");
        let kept: &[&str] = if round == 0 { &[] } else { &["f0"] };
        assert_eq!(applied.kept, kept, "{applied:?}");
        bed.send(50);
        let arrived = bed.arrived();
        assert!(arrived.is_whole(bed.sent()), "{arrived:?}");
        let status = bed.on_edge(|| running.status()).expect("runs");
        assert_eq!(status.instances[0].ledger.received, bed.sent());
        assert_eq!(status.missed, 0);
    }
}

#[test]
fn packets_go_back_by_the_device_that_they_came_in_by() {
    if !root("packets_go_back_by_the_device_that_they_came_in_by") {
        return;
    }
    let bed = bed();
    let name = edge_name("tcback");
    let _down = Down::of(&bed, &name);
    let mut plan = on_tc(&name, 2);
    plan.links[2].to = Target::Tx;
    let back = || -> u64 {
        let shown = bed.sender.ip(&["-s", "-j", "link", "show", "a0"]);
        let shown: serde_json::Value = serde_json::from_str(&shown.expect("shown")).expect("JSON");
        shown[0]["stats64"]["rx"]["packets"]
            .as_u64()
            .expect("a number")
    };
    bed.on_edge(|| edge::apply(&wired(&plan), "back"))
        .expect("applies");
    let before = settled(back);
    bed.send(40);
    assert_eq!(settled(back) - before, 40);
    let status = bed.on_edge(|| edge::status(&name)).expect("runs");
    assert_eq!(status.instances[1].ledger.verdict[3], 40);
    assert_eq!(bed.arrived().received, 0);
}
