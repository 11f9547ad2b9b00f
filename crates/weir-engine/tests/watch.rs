//! Watching in the running kernel: which packets become events, what the events say, what is lost, and what it costs to be able to.
//!
//! The maps of the edge are filled by hand here, as in tests/panel.rs; `weir trace` and `weir capture` on an edge are tested in weir-cli.

use std::time::Duration;

use crate::common;
use crate::features;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use weir_bpf::abi::{WatchCount, WatchEvent, panel, watch};
use weir_engine::EngineKind;
use weir_engine::watch::words::Named;
use weir_engine::watch::{At, Journeys, MAPS, Names, Quick, WatchError, Watcher, Wish, filter};
use weir_kernel::{KernelObject, LoadedProgram, Map, TestCtx};
use weir_packet::{Reason, generate};
use weir_policy::Filter;
use weir_policy::reference::{Input, PortId};

const DROP: u32 = 1;
const PASS: u32 = 2;
/// weir's number of the one port.
const PORT: u32 = 70;
/// Maps that all programs of an edge share.
const SHARED: [&str; 8] = [
    "weir_chain",
    "weir_links",
    "weir_programs",
    "weir_devices",
    "weir_watch_want",
    "weir_watch",
    "weir_watch_count",
    "weir_watch_desk",
];

#[test]
fn every_stage_of_a_packet_is_an_event() {
    let Some(mut chain) = Chain::new(3) else {
        return;
    };
    chain.end(0, panel::DROP);
    let mut watcher = chain.watch(&Wish::default()).expect("nobody watches");
    assert_eq!(chain.run(&FRAME, 1), DROP);
    let mut journeys = Journeys::default();
    let mut ended = Vec::new();
    let mut texts = Vec::new();
    let names = names();
    watcher
        .read(|event, bytes| {
            assert_eq!(bytes, FRAME);
            assert_eq!((event.len as usize, event.port), (FRAME.len(), PORT));
            texts.push(names.path(event));
            ended.extend(journeys.add(event, bytes));
        })
        .expect("reads");
    assert_eq!(
        texts,
        [
            "wan",
            "wan > one: pass",
            "wan > one: pass > two: pass",
            "wan > one: pass > two: pass > three: pass > drop link_drop",
        ]
    );
    assert_eq!(ended.len(), 1);
    assert!(ended[0].is_whole());
    let end = &ended[0].end().expect("whole").event;
    assert_eq!(end.reason, Reason::LinkDrop.index());
    assert_eq!(end.kind, watch::END | watch::DROP);
    assert_eq!((end.hop, end.vid, end.generation), (2, 3, 1));
    let times: Vec<u64> = ended[0].stages.iter().map(|s| s.event.time_ns).collect();
    assert!(times.is_sorted());
    let count = watcher.count().expect("reads");
    assert_eq!(
        (count.packets, count.asked, count.events, count.lost),
        (1, 1, 4, 0)
    );
}

#[test]
fn ways_out_are_told_apart() {
    let Some(mut chain) = Chain::new(1) else {
        return;
    };
    for (vid, slot, text) in [
        (0, panel::STACK, "wan > one: pass > stack"),
        (0, panel::TX, "wan > one: pass > tx"),
        (9, panel::DEVICE, "wan > one: pass > drop redirect_failed"),
        (5, 4000, "wan > one: pass > drop missed_call"),
    ] {
        chain.end(vid, slot);
        let mut watcher = chain
            .watch(&Wish {
                at: At::End,
                ..Wish::default()
            })
            .expect("nobody watches");
        chain.run(&FRAME, 1);
        let mut texts = Vec::new();
        watcher
            .read(|event, _| texts.push(names().path(event)))
            .expect("reads");
        assert_eq!(texts, [text]);
    }
}

/// A call that found nothing was said to go on before; together that is still one whole journey.
#[test]
fn a_missed_call_ends_a_whole_journey() {
    let Some(mut chain) = Chain::new(2) else {
        return;
    };
    chain.end(5, 4000);
    let mut watcher = chain.watch(&Wish::default()).expect("nobody watches");
    chain.run(&FRAME, 1);
    let mut journeys = Journeys::default();
    let mut ended = Vec::new();
    watcher
        .read(|event, bytes| ended.extend(journeys.add(event, bytes)))
        .expect("reads");
    assert_eq!(ended.len(), 1);
    assert!(ended[0].is_whole());
    assert_eq!(ended[0].stages.len(), 4);
}

#[test]
fn only_what_was_asked_for_becomes_an_event() {
    let Some(mut chain) = Chain::new(3) else {
        return;
    };
    let seen = |chain: &mut Chain, wish: &Wish| -> Vec<(u32, u32, usize)> {
        let mut watcher = chain.watch(wish).expect("nobody watches");
        chain.run(&FRAME, 12);
        let mut events = Vec::new();
        watcher
            .read(|event, bytes| events.push((event.kind, event.vid, bytes.len())))
            .expect("reads");
        events
    };
    let wish = |at| Wish {
        at,
        snap: 20,
        ..Wish::default()
    };
    // Nothing is dropped.
    assert_eq!(seen(&mut chain, &wish(At::Drops)), []);
    assert_eq!(
        seen(&mut chain, &wish(At::Entry)),
        [(watch::ENTRY, 0, 20); 12]
    );
    assert_eq!(
        seen(&mut chain, &wish(At::Instance(2))),
        [(watch::ON, 2, 20); 12]
    );
    assert_eq!(
        seen(&mut chain, &wish(At::Instance(3))),
        [(watch::END, 3, 20); 12]
    );
    let sampled = Wish {
        sample: 4,
        ..wish(At::End)
    };
    assert_eq!(seen(&mut chain, &sampled).len(), 3);
    for (ports, events) in [(vec![PORT - 1], 0), (vec![3, PORT], 12)] {
        let wish = Wish {
            ports,
            ..wish(At::End)
        };
        assert_eq!(seen(&mut chain, &wish).len(), events);
    }
    chain.end(0, panel::DROP);
    assert_eq!(
        seen(&mut chain, &wish(At::Drops)),
        [(watch::END | watch::DROP, 3, 20); 12]
    );
}

#[test]
fn there_is_one_watcher_and_nothing_stays_behind_it() {
    let Some(mut chain) = Chain::new(1) else {
        return;
    };
    let watcher = chain.watch(&Wish::default()).expect("nobody watches");
    let second = chain.watch(&Wish::default()).expect_err("one watches");
    let WatchError::Taken { owner } = second else {
        panic!("{second}");
    };
    assert_eq!(owner, std::process::id());
    drop(watcher);
    chain.run(&FRAME, 5);
    let mut watcher = chain.watch(&Wish::default()).expect("nobody watches");
    let mut events = 0;
    watcher.read(|_, _| events += 1).expect("reads");
    assert_eq!(events, 0, "packets of the time between are not seen");
    assert_eq!(watcher.count().expect("reads"), WatchCount::default());
}

#[test]
fn events_that_find_no_room_are_counted() {
    let Some(mut chain) = Chain::new(3) else {
        return;
    };
    let frame = [0x5a; 1500];
    let wish = Wish {
        snap: 9216,
        ..Wish::default()
    };
    let mut watcher = chain.watch(&wish).expect("nobody watches");
    let packets = 2000;
    chain.run(&frame, packets);
    let (mut events, mut whole, mut journeys) = (0, 0, Journeys::default());
    let mut sink = |event: &WatchEvent, bytes: &[u8]| {
        assert_eq!(bytes, frame);
        events += 1;
        whole += journeys
            .add(event, bytes)
            .iter()
            .filter(|journey| journey.is_whole())
            .count();
    };
    watcher.read(&mut sink).expect("reads");
    // There is room again.
    chain.run(&frame, 1);
    watcher.read(&mut sink).expect("reads");
    let count = watcher.count().expect("reads");
    assert_eq!(count.asked, u64::from(packets) + 1);
    assert_eq!(count.events, events);
    assert_eq!(count.events + count.lost, 4 * count.asked);
    assert!(count.lost > 0, "the ring holds 4 MiB");
    assert!(whole > 1 && whole < packets as usize);
}

/// Conditions that filters are made of here, in the range of what `weir_packet::generate` makes.
const CONDITIONS: [&str; 34] = [
    "all",
    "ip-saddr 10.0.0.0/8",
    "ip-saddr 192.0.2.1",
    "ip-daddr 10.0.0.0-10.0.0.200",
    "ip-daddr != 10.0.0.1",
    "ip6-saddr 2001:db8::/32",
    "ip6-daddr ::-2001:db8::ffff",
    "net-proto ip4",
    "net-proto ip6",
    "tcp-dport 80",
    "tcp-dport in { 22, 80, 443, 8000-9000 }",
    "tcp-sport >= 1024",
    "udp-dport < 1024",
    "udp-sport 53",
    "! udp-sport 53",
    "! tcp-syn",
    "tcp-syn",
    "tcp-opt-mss > 1000",
    "tcp-opt",
    "udp-payload[1] == x00",
    "tcp-payload != xff",
    "icmp-type 8",
    "icmp6-type >= 128",
    "ip-proto tcp",
    "ip-proto in { tcp, udp }",
    "ip6-next tcp",
    "ip6-eh",
    "vlan",
    "vlan-id 1-100",
    "frag",
    "! frag",
    "ip-ttl < 64",
    "in wan",
    "queue 0",
];

/// The kernel lets by at least what matches, and the reader decides as the reference does of the whole packet.
#[test]
fn filters_agree_with_the_reference() {
    let Some(mut chain) = Chain::new(1) else {
        return;
    };
    let mut filters: Vec<(String, Filter)> = Vec::new();
    for (i, a) in CONDITIONS.iter().enumerate() {
        let pairs = CONDITIONS[i + 1..].iter().map(|b| format!("{a} {b}"));
        for text in std::iter::once((*a).to_owned()).chain(pairs) {
            // Some exclude each other, which is an error of the language.
            if let Ok(filter) = Filter::parse(&text) {
                filters.push((text, filter));
            }
        }
    }
    assert!(filters.len() > 200, "{}", filters.len());
    let mut runner = TestRunner::new_with_rng(
        ProptestConfig::default(),
        proptest::test_runner::TestRng::deterministic_rng(
            proptest::test_runner::RngAlgorithm::ChaCha,
        ),
    );
    let mut frames: Vec<Vec<u8>> = Vec::new();
    let strategy = prop_oneof![generate::well_formed(), generate::frame()];
    let wanted = if std::env::var_os("WEIR_LONG").is_some() {
        2000
    } else {
        250
    };
    while frames.len() < wanted {
        let frame = strategy.new_tree(&mut runner).expect("a frame").current();
        if (14..=3500).contains(&frame.len()) {
            frames.push(frame);
        }
    }
    let (mut matched, mut let_by, mut refused) = (0u32, 0u32, 0u32);
    for (text, filter) in &filters {
        let wish = Wish {
            at: At::Entry,
            quick: Quick::of(filter),
            snap: filter::bytes_read(filter),
            ..Wish::default()
        };
        let mut watcher = chain.watch(&wish).expect("nobody watches");
        for frame in &frames {
            chain.run(frame, 1);
            let mut said = None;
            watcher
                .read(|event, bytes| {
                    said = Some(filter::matches(filter, event, bytes, Some("wan")));
                })
                .expect("reads");
            let port = PortId {
                name: Some("wan"),
                index: PORT,
            };
            let right = filter.matches(&Input {
                port,
                ..Input::new(frame)
            });
            assert_eq!(
                said.unwrap_or(false),
                right,
                "{text} (let by: {}): {} {frame:02x?}",
                said.is_some(),
                weir_packet::summary(frame)
            );
            matched += u32::from(right);
            let_by += u32::from(said == Some(false));
            refused += u32::from(said.is_none());
        }
    }
    eprintln!(
        "{} filters, {} packets: {matched} matched; of the others the kernel refused {refused} and let {let_by} by",
        filters.len(),
        frames.len()
    );
    assert!(matched > 1000 && refused > let_by);
}

/// Prints what being watchable costs the verifier; that a form which is not watched has nothing of it is asserted.
#[test]
fn forms_that_are_not_watched_have_nothing_of_it() {
    let root = common::engines().contains(&EngineKind::Kernel);
    for object in &weir_bpf::OBJECTS {
        let (name, elf) = (object.name, object.bytes());
        let strings = |text: &str| elf.windows(text.len()).any(|w| w == text.as_bytes());
        let on_xdp = name.trim_end_matches("_tc");
        let tells = ["entry_watched", "empty_watched", "middlebox_watched"].contains(&on_xdp);
        for part in ["watch_emit", "weir_watch_want"] {
            // Programs that are at no stage of a packet's way have nothing to tell in any form.
            let may = on_xdp.ends_with("_watched");
            assert!(may || !strings(part), "{name} has {part}");
            assert!(!tells || strings(part), "{name} has no {part}");
        }
    }
    if !root {
        return;
    }
    let verified = |name: &str, program: &str, features: Option<u32>| {
        let mut object =
            KernelObject::open(weir_bpf::object(name).expect("compiled")).expect("opens");
        if let Some(features) = features {
            object
                .set_rodata("weir_features", &features.to_ne_bytes())
                .expect("a constant");
        }
        let loaded = object.load(program).expect("loads");
        loaded.verified_insns().expect("info")
    };
    for function in ["entry", "empty"] {
        let [graph, watched] = ["graph", "watched"]
            .map(|form| verified(&format!("{function}_{form}"), function, None));
        eprintln!("{function}: {graph} verified instructions in a graph, {watched} watched");
    }
    for (set, features) in features::SETS {
        let [graph, watched] = ["graph", "watched"]
            .map(|form| verified(&format!("middlebox_{form}"), "middlebox", Some(*features)));
        eprintln!("middlebox, {set}: {graph} verified instructions in a graph, {watched} watched");
    }
}

/// Prints; times are not asserted.
#[test]
fn what_watching_costs() {
    let frame = [0x5a; 64];
    for (form, functions) in [("graph", 1), ("graph", 9), ("watched", 1), ("watched", 9)] {
        let Some(mut chain) = Chain::of(form, functions) else {
            return;
        };
        let idle = chain.time(&frame);
        eprintln!("{form}, {functions} functions, nobody watches: {idle} ns a packet");
        if form == "graph" {
            continue;
        }
        let quick = Quick::of(&Filter::parse("ip-saddr 192.0.2.1 tcp-dport 80").expect("a filter"));
        for (text, at, quick) in [
            ("drops only, none dropped", At::Drops, Quick::default()),
            ("a filter that no packet matches", At::All, quick),
            ("the end of every packet", At::End, Quick::default()),
            ("every stage", At::All, Quick::default()),
        ] {
            let wish = Wish {
                at,
                quick,
                snap: 64,
                ..Wish::default()
            };
            let mut watcher = chain.watch(&wish).expect("nobody watches");
            chain.run(&frame, 1);
            let few = chain.time_few(&frame);
            watcher.read(|_, _| ()).expect("reads");
            eprintln!("{form}, {functions} functions, {text}: {few} ns a packet");
        }
    }
}

/// An Ethernet frame of a protocol that nothing looks at.
const FRAME: [u8; 64] = {
    let mut frame = [0; 64];
    frame[12] = 0x88;
    frame[13] = 0xb5;
    frame
};

fn names() -> Names {
    let named = |name: &str| Named {
        name: name.to_owned(),
        outs: Vec::new(),
    };
    let instances = ["one", "two", "three"];
    Names {
        ports: [(PORT, "wan".to_owned())].into(),
        instances: (1..).zip(instances.map(named)).collect(),
        networks: None,
    }
}

/// An entry program and a chain of `empty` instances behind it, in generation 1, which ends in the stack.
struct Chain {
    /// The entry, then the functions.
    programs: Vec<LoadedProgram>,
}

impl Chain {
    /// `None` without privileges.
    fn new(functions: u32) -> Option<Chain> {
        Chain::of("watched", functions)
    }

    fn of(form: &str, functions: u32) -> Option<Chain> {
        if !common::engines().contains(&EngineKind::Kernel) {
            return None;
        }
        let open = |name: &str| {
            let name = format!("{name}_{form}");
            KernelObject::open(weir_bpf::object(&name).expect("compiled")).expect("opens")
        };
        let mut object = open("entry");
        object
            .set_rodata("weir_port", &PORT.to_ne_bytes())
            .expect("a constant");
        let entry = object.load("entry").expect("loads");
        let mut programs = vec![];
        for number in 1..=functions {
            let mut object = open("empty");
            let maps = object.maps();
            for map in maps.iter().filter(|map| SHARED.contains(&map.as_str())) {
                object.reuse_map(map, &entry).expect("the same map");
            }
            let program = object.load("empty").expect("loads");
            program
                .install_in(&entry, "weir_programs", number)
                .expect("a free slot");
            programs.push(program);
        }
        programs.insert(0, entry);
        let chain = Chain { programs };
        for number in 1..functions {
            chain.link(number, number + 1, number + 1);
        }
        chain.end(0, panel::STACK);
        chain.write("weir_entries", PORT * 2 + 1, &hop(1, 1));
        chain.write("weir_edge", 0, &1u64.to_ne_bytes());
        Some(chain)
    }

    fn watch(&self, wish: &Wish) -> Result<Watcher, WatchError> {
        let [want, ring, count] =
            MAPS.map(|map| Map::of(&self.programs[0], map).expect("declared"));
        Watcher::start(want, &ring, count, wish)
    }

    /// Lets the chain end elsewhere.
    fn end(&self, vid: u32, slot: u32) {
        self.link(self.programs.len() as u32 - 1, vid, slot);
    }

    fn link(&self, from: u32, vid: u32, slot: u32) {
        let at = (panel::VIDS as u32 + from) * panel::OUTS as u32;
        self.write("weir_links", at, &hop(vid, slot));
    }

    fn write(&self, map: &str, at: u32, value: &[u8]) {
        let written = self.programs[0].update(map, &at.to_ne_bytes(), value, 0);
        written.expect("in range");
    }

    fn run(&mut self, frame: &[u8], repeat: u32) -> u32 {
        let mut out = Vec::new();
        self.programs[0]
            .test_run_repeated(frame, &mut out, TestCtx::default(), repeat)
            .expect("runs")
            .retval
    }

    /// ns a packet, over a million.
    fn time(&mut self, frame: &[u8]) -> u128 {
        self.timed(frame, 1_000_000)
    }

    /// ns a packet, over as many as the ring has room for.
    fn time_few(&mut self, frame: &[u8]) -> u128 {
        self.timed(frame, 1000)
    }

    fn timed(&mut self, frame: &[u8], repeat: u32) -> u128 {
        let mut out = Vec::new();
        let outcome = self.programs[0]
            .test_run_repeated(frame, &mut out, TestCtx::default(), repeat)
            .expect("runs");
        Duration::as_nanos(&outcome.duration)
    }
}

fn hop(vid: u32, slot: u32) -> Vec<u8> {
    [vid, slot].map(u32::to_ne_bytes).concat()
}

#[test]
fn passes_by_default() {
    let Some(mut chain) = Chain::new(2) else {
        return;
    };
    assert_eq!(chain.run(&FRAME, 1), PASS);
}
