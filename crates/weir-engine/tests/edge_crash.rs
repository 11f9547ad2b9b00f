//! Applies that fail or are killed between any two steps: what ran goes on whole, and whoever comes next cleans up.

#![allow(clippy::print_stderr, reason = "a skip is said where the test runs")]

use std::process::Command;
use std::time::Duration;

use crate::edge_bed::{Bed, Down, Owned, chain, edge_name, empty, port, replace, root, wired};
use weir_engine::edge::{self, Edge, EdgeError, Step};
use weir_graph::{Link, MapType, Mode, Model, PortPlan, SharedMap, Source, Target};

/// Names the edge and the step for a process that is to be killed.
const VICTIM: &str = "WEIR_TEST_EDGE_VICTIM";

/// Five functions, and a port on tc.
fn first(name: &str) -> Model {
    let mut plan = chain(name, 5);
    add_tc_port(&mut plan, &[Source::Port(4)]);
    plan
}

/// A port on tc whose packets come to the last function.
fn add_tc_port(plan: &mut Model, sources: &[Source]) {
    let last = plan.instances.len() - 1;
    plan.ports.push(PortPlan {
        mode: Mode::Tc,
        ..port("both", "m4", 4)
    });
    plan.links.extend(sources.iter().map(|from| Link {
        from: *from,
        to: Target::Instance(last),
        guard: None,
    }));
}

/// Everything is different: functions replaced, gone and new, a path so long that it is recirculated, a new port, a port on tc that sees what
/// leaves it, too, a shared map.
fn second(name: &str) -> Model {
    let mut plan = chain(name, 40);
    plan.instances[4] = empty("new");
    replace(&mut plan, 1, 7);
    plan.ports.push(port("more", "m2", 3));
    add_tc_port(&mut plan, &[Source::Port(4), Source::Transmit(4)]);
    plan.maps.push(SharedMap {
        name: "load".to_owned(),
        kind: MapType::Array,
        key: 4,
        value: 8,
        entries: 1,
        fresh: false,
    });
    plan
}

fn bed() -> Bed {
    let bed = Bed::new();
    bed.edge
        .ip(&["link", "add", "m2", "type", "veth", "peer", "name", "m3"])
        .expect("veth");
    bed.edge
        .ip(&["link", "add", "m4", "type", "veth", "peer", "name", "m5"])
        .expect("veth");
    bed
}

fn is_before_the_switch(step: Step) -> bool {
    Step::ALL.iter().position(|s| *s == step) <= Step::ALL.iter().position(|s| *s == Step::Switch)
}

/// Packets follow the generation that runs, and all of its functions see them.
fn follows(bed: &Bed, name: &str, generation: u64) {
    let before = bed.on_edge(|| edge::status(name)).expect("runs");
    let (sent, was) = (bed.sent(), bed.arrived());
    bed.send(200);
    let now = bed.arrived();
    assert_eq!(
        (
            now.received - was.received,
            now.missing,
            now.late,
            now.twice
        ),
        (bed.sent() - sent, 0, 0, 0)
    );
    let after = bed.on_edge(|| edge::status(name)).expect("runs");
    assert_eq!(after.generation, generation);
    for (was, now) in before.instances.iter().zip(&after.instances) {
        assert_eq!(
            now.ledger.received - was.ledger.received,
            200,
            "{}",
            now.name
        );
    }
}

#[test]
fn an_apply_that_fails_changes_nothing() {
    if !root("an_apply_that_fails_changes_nothing") {
        return;
    }
    let bed = bed();
    let name = edge_name("fails");
    let _down = Down::of(&bed, &name);
    bed.on_edge(|| edge::apply(&wired(&first(&name)), "first"))
        .expect("applies");
    let before = bed.snapshot(&name);
    for step in Step::ALL {
        if !is_before_the_switch(step) {
            continue;
        }
        let e = bed.on_edge(|| {
            let mut edge = Edge::open(&name).expect("opens");
            edge.apply_watched(
                &wired(&second(&name)),
                "second",
                &mut |at| match at == step {
                    true => Err(EdgeError::GivenUp(step.name())),
                    false => Ok(()),
                },
            )
        });
        let e = e.expect_err("given up");
        assert!(matches!(e, EdgeError::GivenUp(_)), "{e}");
        assert_eq!(bed.snapshot(&name), before, "before {}", step.name());
        follows(&bed, &name, 1);
    }
    // Nothing stands in the way of the same once more.
    bed.on_edge(|| edge::apply(&wired(&second(&name)), "second"))
        .expect("applies");
    follows(&bed, &name, 2);
}

#[test]
fn a_killed_apply_leaves_a_whole_generation_and_the_next_one_cleans_up() {
    if !root("a_killed_apply_leaves_a_whole_generation_and_the_next_one_cleans_up") {
        return;
    }
    for step in Step::ALL {
        let bed = bed();
        let name = edge_name("killed");
        let _down = Down::of(&bed, &name);
        let devices = bed.devices();
        bed.on_edge(|| edge::apply(&wired(&first(&name)), "first"))
            .expect("applies");
        let before = bed.snapshot(&name);
        kill_at(&bed, &name, step.name());
        let generation = if is_before_the_switch(step) { 1 } else { 2 };
        follows(&bed, &name, generation);
        // Whoever opens the edge removes what is half built, or what is left to be removed.
        drop(bed.on_edge(|| Edge::open(&name)).expect("opens"));
        if generation == 1 {
            assert_eq!(bed.snapshot(&name), before, "killed at {}", step.name());
        }
        follows(&bed, &name, generation);
        let applied = bed.on_edge(|| edge::apply(&wired(&second(&name)), "second"));
        assert_eq!(applied.expect("applies").generation, generation + 1);
        follows(&bed, &name, generation + 1);
        // And down finds everything of a process killed once more.
        kill_at(&bed, &name, step.name());
        let owned = Owned::of(&bed, &name);
        assert!(bed.on_edge(|| edge::down(&name)).expect("goes down"));
        assert_eq!(bed.devices(), devices, "killed at {}", step.name());
        owned.are_gone();
    }
}

#[test]
fn the_first_apply_may_be_killed() {
    if !root("the_first_apply_may_be_killed") {
        return;
    }
    for step in [Step::Make, Step::Attach, Step::Switch, Step::Clean] {
        let bed = bed();
        let name = edge_name("first");
        let _down = Down::of(&bed, &name);
        let devices = bed.devices();
        kill_at(&bed, &name, step.name());
        let running = bed.on_edge(|| edge::status(&name)).is_ok();
        assert_eq!(running, !is_before_the_switch(step));
        bed.on_edge(|| edge::apply(&wired(&first(&name)), "first"))
            .expect("applies");
        follows(&bed, &name, if running { 2 } else { 1 });
        bed.on_edge(|| edge::down(&name)).expect("goes down");
        assert_eq!(bed.devices(), devices);
    }
}

/// Killed at no step in particular, while packets flow.
#[test]
fn killing_the_control_program_loses_no_packet() {
    if !root("killing_the_control_program_loses_no_packet") {
        return;
    }
    let bed = bed();
    let name = edge_name("loses");
    let _down = Down::of(&bed, &name);
    bed.on_edge(|| edge::apply(&wired(&first(&name)), "first"))
        .expect("applies");
    bed.sending(256, Duration::from_millis(1), || {
        for round in 0..4u32 {
            let mut child = victim(&bed, &name, "never").spawn().expect("starts");
            std::thread::sleep(Duration::from_millis(900 + u64::from(round) * 37));
            child.kill().expect("killed");
            child.wait().expect("ended");
        }
    });
    let (sent, arrived) = (bed.sent(), bed.arrived());
    let edge = bed.on_edge(|| Edge::open(&name)).expect("opens");
    let status = bed.on_edge(|| edge.status()).expect("runs");
    eprintln!(
        "killed four times, {} generations, {sent} packets sent: {arrived:?}",
        status.generation
    );
    assert!(
        status.generation > 1,
        "no apply was done before it was killed"
    );
    assert!(arrived.is_whole(sent), "{arrived:?} of {sent}");
}

/// This file once more as another process, in the namespace of the edge.
fn victim(bed: &Bed, name: &str, step: &str) -> Command {
    let this = std::env::current_exe().expect("known");
    let mut command = bed
        .edge
        .command(&this.to_string_lossy())
        .expect("namespace");
    command
        .args(["--exact", "edge_crash::victim_of_the_others", "--nocapture"])
        .env(VICTIM, format!("{name} {step}"))
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    command
}

fn kill_at(bed: &Bed, name: &str, step: &str) {
    use std::os::unix::process::ExitStatusExt;
    let ended = victim(bed, name, step).status().expect("starts");
    assert_eq!(ended.signal(), Some(9), "at {step}: {ended}");
}

/// Does nothing unless another test starts it.
#[test]
fn victim_of_the_others() {
    let Ok(order) = std::env::var(VICTIM) else {
        return;
    };
    let (name, step) = order.split_once(' ').expect("two words");
    let kill = || {
        let this = rustix::process::getpid();
        let killed = rustix::process::kill_process(this, rustix::process::Signal::KILL);
        killed.expect("killed");
    };
    if step != "never" {
        let mut edge = Edge::open_or_create(name).expect("opens");
        let outcome = edge.apply_watched(&wired(&second(name)), "second", &mut |at| {
            if at.name() == step {
                kill();
            }
            Ok(())
        });
        panic!("it was to be killed at {step}: {outcome:?}");
    }
    for round in 1.. {
        let mut plan = first(name);
        for function in 0..5 {
            replace(&mut plan, function, round);
        }
        edge::apply(&wired(&plan), "first").expect("applies");
    }
}
