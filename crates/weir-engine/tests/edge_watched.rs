//! Watching a running edge: its programs are exchanged for such that tell, and back, under a numbered stream.

#![allow(clippy::print_stderr, reason = "figures are said where the test runs")]

use std::time::{Duration, Instant};

use crate::edge_bed;
use crate::edge_bed::{Bed, Down, chain, edge_name, root, wired};
use weir_bpf::abi::{WatchWant, watch};
use weir_engine::edge::{self, Edge, EdgeError, Form};
use weir_engine::watch::{Journey, Journeys, Watcher, Wish};
use zerocopy::IntoBytes;

/// Longest wait for a wish to run out.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);

/// Applies the same plan in a form.
fn apply(name: &str, functions: usize, form: Form) -> Result<edge::Applied, EdgeError> {
    let mut edge = Edge::open_or_create(name)?;
    edge.set_form(form);
    edge.apply(&wired(&chain(name, functions)), "text")
}

#[test]
fn watching_begins_and_ends_under_traffic_without_loss() {
    if !root("watching_begins_and_ends_under_traffic_without_loss") {
        return;
    }
    let rounds = match std::env::var("WEIR_LONG").as_deref() {
        Ok("1") => 500,
        _ => 15,
    };
    // 40 functions: their path is recirculated.
    for functions in [5, 40] {
        let bed = Bed::new();
        let name = edge_name("watch");
        let _down = Down::of(&bed, &name);
        bed.on_edge(|| apply(&name, functions, Form::Graph))
            .expect("applies");
        let mut seen = 0;
        bed.sending(64, Duration::from_millis(2), || {
            bed.on_edge(|| {
                for _ in 0..rounds {
                    apply(&name, functions, Form::Watched).expect("applies");
                    seen += watch_some(&name);
                    apply(&name, functions, Form::Graph).expect("applies");
                    assert!(edge::watch_maps(&name).expect("readable").is_none());
                }
            });
        });
        let arrived = edge_bed::settled(|| bed.arrived());
        assert!(
            arrived.is_whole(bed.sent()),
            "{arrived:?} of {}",
            bed.sent()
        );
        assert!(seen > 0);
        let status = bed.on_edge(|| edge::status(&name)).expect("runs");
        assert_eq!(status.form, Form::Graph);
        // Ledgers went on over all exchanges, those of ports, too.
        assert_eq!(status.ports[0].ledger.received, bed.sent());
        for instance in status.instances.iter().filter(|one| !one.implicit) {
            assert_eq!(instance.ledger.received, bed.sent(), "{}", instance.name);
        }
        eprintln!(
            "{functions} functions: watched {rounds} times under {} packets, nothing lost; {seen} packets seen on their whole way",
            bed.sent()
        );
    }
}

/// Watches until some packets were seen on their whole way.
fn watch_some(name: &str) -> usize {
    let [want, ring, count] = edge::watch_maps(name).expect("readable").expect("watched");
    let mut watcher = Watcher::start(
        want,
        &ring,
        count,
        &Wish {
            sample: 8,
            ..Wish::default()
        },
    )
    .expect("nobody else");
    let status = edge::status(name).expect("runs");
    assert_eq!(
        (status.form, status.watcher),
        (Form::Watched, Some(std::process::id()))
    );
    let mut journeys = Journeys::default();
    let mut whole = 0;
    let began = Instant::now();
    while whole == 0 && began.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(5));
        let read = watcher.read(|event, bytes| {
            assert_eq!(u64::from(event.port), 1);
            let ended = journeys.add(event, bytes);
            whole += ended.iter().filter(|journey| journey.is_whole()).count();
        });
        read.expect("reads");
    }
    whole
}

/// What a killed watcher leaves is found and taken away; packets are not told of for longer than its lease.
#[test]
fn what_a_killed_watcher_leaves_ends() {
    if !root("what_a_killed_watcher_leaves_ends") {
        return;
    }
    let bed = Bed::new();
    let name = edge_name("killed");
    let _down = Down::of(&bed, &name);
    bed.on_edge(|| apply(&name, 2, Form::Watched))
        .expect("applies");
    // What such a one asked for last, good for two seconds more.
    bed.on_edge(|| {
        let [want, ..] = edge::watch_maps(&name).expect("readable").expect("watched");
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let asked = WatchWant {
            session: 1,
            owner: 4_000_000,
            until_ns: (now.tv_sec as u64 + 2) * 1_000_000_000,
            emit: watch::END,
            ports: [u64::MAX; 4],
            ..WatchWant::default()
        };
        want.update(&[0; 4], asked.as_bytes()).expect("in range");
    });
    bed.send(100);
    assert!(bed.arrived().is_whole(100));
    let status = bed.on_edge(|| edge::status(&name)).expect("runs");
    assert_eq!(status.watcher, Some(4_000_000));
    let began = Instant::now();
    while bed
        .on_edge(|| edge::status(&name))
        .expect("runs")
        .watcher
        .is_some()
    {
        assert!(began.elapsed() < PATIENCE, "it runs out");
        std::thread::sleep(Duration::from_millis(100));
    }
    // The next apply ends it.
    bed.on_edge(|| apply(&name, 2, Form::Graph))
        .expect("applies");
    let status = bed.on_edge(|| edge::status(&name)).expect("runs");
    assert_eq!((status.form, status.watcher), (Form::Graph, None));
    bed.send(100);
    assert!(bed.arrived().is_whole(200));
}

/// A packet that is recirculated is told of in two parts: up to the pair, and from it on.
#[test]
fn a_recirculated_packet_comes_back() {
    if !root("a_recirculated_packet_comes_back") {
        return;
    }
    let bed = Bed::new();
    let name = edge_name("round");
    let _down = Down::of(&bed, &name);
    bed.on_edge(|| apply(&name, 40, Form::Watched))
        .expect("applies");
    let mut journeys = Journeys::default();
    let mut ended: Vec<Journey> = Vec::new();
    let [want, ring, count] = bed
        .on_edge(|| edge::watch_maps(&name))
        .expect("readable")
        .expect("watched");
    let mut watcher = Watcher::start(want, &ring, count, &Wish::default()).expect("nobody else");
    bed.send(1);
    edge_bed::settled(|| bed.arrived());
    watcher
        .read(|event, bytes| ended.extend(journeys.add(event, bytes)))
        .expect("reads");
    assert_eq!(ended.len(), 2);
    assert!(ended.iter().all(Journey::is_whole));
    let [first, second] =
        [&ended[0], &ended[1]].map(|journey| journey.entry().expect("whole").event.vid);
    assert_eq!(first, 0);
    assert_ne!(second, 0, "it came back to an instance");
    let functions: u32 = ended
        .iter()
        .map(|journey| journey.end().expect("whole").event.hop)
        .sum();
    // All but the last let it go on, and the recirculation did once for each part of the way.
    assert!(functions >= 39, "{functions}");
}
