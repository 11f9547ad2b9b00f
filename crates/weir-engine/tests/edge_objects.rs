//! Programs of others on a live edge: they stop and pass on packets of a numbered stream, are replaced under it with what they
//! remember, and are refused where they would see half of a packet or lose what they remember.
//!
//! Needs root; says when it skips.

#![allow(clippy::print_stderr, reason = "figures are said where the test runs")]

use std::path::Path;
use std::time::Duration;

use crate::edge_bed::{Bed, Down, chain, edge_name, root, wired};
use crate::pair;
use weir_bpf::abi::NEXT;
use weir_engine::edge::{self, Edge, EdgeError, Status};
use weir_functions::kind::{self, Files, Planned, Request};
use weir_graph::Model;

/// Place of a verdict in the ledger.
const REDIRECT: usize = 4;
/// Counts in `stats`, whose name is weir's, too, and passes frames of 64 bytes.
const EVERYTHING: &str = "file = \"chained\"\nprogram = \"everything\"";

#[test]
fn objects_are_replaced_under_traffic_and_remember() {
    if !root("objects_are_replaced_under_traffic_and_remember") {
        return;
    }
    let bed = Bed::new();
    let name = edge_name("objects");
    let _down = Down::of(&bed, &name);
    let all = "proceed = [\"pass\", \"tx\"]";
    let mut plan = chain(&name, 5);
    // Between weir's own: a program with data and callbacks, one whose answers come from a tail call, one that reads the packet.
    put(&mut plan, 1, &format!("{EVERYTHING}\n{all}"));
    put(
        &mut plan,
        2,
        &format!("file = \"chained\"\nprogram = \"tail\"\n{all}"),
    );
    put(
        &mut plan,
        3,
        "file = \"chained\"\nprogram = \"code\"\nproceed = [0, \"pass\"]",
    );
    let mut running = bed
        .on_edge(|| {
            let mut running = Edge::open_or_create(&name)?;
            running.apply(&wired(&plan), "0")?;
            Ok::<_, EdgeError>(running)
        })
        .expect("applies");
    let rounds = match std::env::var("WEIR_LONG").as_deref() {
        Ok("1") => 300,
        _ => 15,
    };
    let versions: Vec<Model> = (0..rounds)
        .map(|round| {
            let limit = format!(
                "{EVERYTHING}\n{all}\nconstants = {{ limit = {} }}",
                1000 + round
            );
            let more = ["\"drop\", ", ""][round % 2];
            let tail = format!(
                "file = \"chained\"\nprogram = \"tail\"\nproceed = [{more}\"pass\", \"tx\"]"
            );
            let mut version = plan.clone();
            put(&mut version, 1, &limit);
            put(&mut version, 2, &tail);
            version
        })
        .collect();
    let applied: Vec<_> = bed.sending(640, Duration::from_millis(2), || {
        bed.on_edge(|| {
            let each = versions
                .iter()
                .map(|version| running.apply(&wired(version), "n"));
            each.collect()
        })
    });
    for applied in applied {
        let mut replaced = applied.expect("applies").replaced;
        replaced.sort();
        assert_eq!(replaced, ["f1", "f2"]);
    }
    let (sent, arrived) = (bed.sent(), bed.arrived());
    eprintln!(
        "{} replacements of objects, {sent} packets: {arrived:?}",
        rounds * 2
    );
    let status = bed.on_edge(|| running.status()).expect("runs");
    let ledgers = || {
        status
            .instances
            .iter()
            .map(|i| format!("{} {:?} {:?}", i.name, i.ledger.verdict, i.reasons()))
    };
    assert!(
        arrived.is_whole(sent),
        "{arrived:?}: {:?}",
        ledgers().collect::<Vec<_>>()
    );
    for instance in &status.instances {
        assert_eq!(
            instance.ledger.received, status.ports[0].ledger.received,
            "{}",
            instance.name
        );
        assert_eq!(
            instance.ledger.verdict[NEXT] + instance.ledger.verdict[REDIRECT],
            instance.ledger.received,
            "{}",
            instance.name
        );
        assert_eq!(instance.reasons(), [], "{}", instance.name);
    }
    // What the programs counted themselves went on over all replacements.
    assert_eq!(counted(&status, "f1"), sent);
    assert_eq!(counted(&status, "f2"), sent);
}

#[test]
fn the_chain_stops_where_an_object_says() {
    if !root("the_chain_stops_where_an_object_says") {
        return;
    }
    let bed = Bed::new();
    let name = edge_name("stops");
    let _down = Down::of(&bed, &name);
    let mut plan = chain(&name, 2);
    // `everything` drops frames that are longer than its constant.
    put(
        &mut plan,
        0,
        &format!("{EVERYTHING}\nconstants = {{ limit = 10 }}"),
    );
    bed.on_edge(|| edge::apply(&wired(&plan), ""))
        .expect("applies");
    bed.send(100);
    let status = bed.on_edge(|| edge::status(&name)).expect("runs");
    assert_eq!(status.instances[0].ledger.verdict[1], 100);
    let reasons = status.instances[0].reasons();
    assert_eq!(reasons, [("object_drop", 100)]);
    assert_eq!(status.instances[1].ledger.received, 0);
}

#[test]
fn what_would_be_wrong_is_refused_and_the_edge_goes_on() {
    if !root("what_would_be_wrong_is_refused_and_the_edge_goes_on") {
        return;
    }
    let bed = Bed::new();
    let name = edge_name("wrong");
    let _down = Down::of(&bed, &name);
    let mut plan = chain(&name, 1);
    put(&mut plan, 0, EVERYTHING);
    bed.on_edge(|| edge::apply(&wired(&plan), "good"))
        .expect("applies");
    bed.send(10);

    let mut other = plan.clone();
    put(
        &mut other,
        0,
        "file = \"chained:-DENTRIES=8\"\nprogram = \"everything\"",
    );
    let error = bed
        .on_edge(|| edge::apply(&wired(&other), ""))
        .expect_err("a map changed");
    assert!(
        matches!(&error, EdgeError::MapChanged { map, .. } if map == "own_stats"),
        "{error}"
    );
    let said = error.to_string();
    assert!(
        said.contains("4 entries") && said.contains("8 entries"),
        "{said}"
    );

    bed.edge
        .ip(&["link", "set", "m0", "mtu", "3507"])
        .expect("an MTU");
    let error = bed
        .on_edge(|| edge::apply(&wired(&plan), ""))
        .expect_err("half packets");
    let said = error.to_string();
    assert!(
        said.contains("xdp.frags") && said.contains("3507") && said.contains("3506"),
        "{said}"
    );
    bed.edge
        .ip(&["link", "set", "m0", "mtu", "1500"])
        .expect("an MTU");

    bed.send(10);
    let status = bed.on_edge(|| edge::status(&name)).expect("runs");
    assert_eq!((status.generation, status.text.as_str()), (1, "good"));
    assert_eq!(counted(&status, "f0"), 20);
    // With `fresh` the other one is taken, and begins anew.
    other.instances[0].fresh = true;
    bed.on_edge(|| edge::apply(&wired(&other), ""))
        .expect("applies");
    let status = bed.on_edge(|| edge::status(&name)).expect("runs");
    assert_eq!(counted(&status, "f0"), 0);
}

/// The kernel empties an array of programs that neither a process nor a pin holds: `weir apply` ends, and its tail calls go on.
#[test]
fn tail_calls_of_an_object_outlive_the_process_that_loaded_it() {
    if !root("tail_calls_of_an_object_outlive_the_process_that_loaded_it") {
        return;
    }
    let bed = Bed::new();
    let name = edge_name("calls");
    let _down = Down::of(&bed, &name);
    let mut plan = chain(&name, 1);
    let tail = "file = \"chained\"\nprogram = \"tail\"\nproceed = [\"tx\", \"drop\"]";
    put(&mut plan, 0, tail);
    // Nothing of the edge is held here between the calls, as by a process that ended.
    bed.on_edge(|| edge::apply(&wired(&plan), ""))
        .expect("applies");
    bed.send(100);
    let status = bed.on_edge(|| edge::status(&name)).expect("runs");
    // TX and DROP are the answers of the program that is called; PASS would be that of a call that missed.
    assert_eq!(status.instances[0].ledger.received, 100);
    assert_eq!(status.instances[0].ledger.verdict[2], 0);
    // The next one comes with its own, and the former one's goes.
    let constant = format!("{tail}\nconstants = {{ limit = 5000 }}");
    put(&mut plan, 0, &constant);
    bed.on_edge(|| edge::apply(&wired(&plan), ""))
        .expect("applies");
    bed.send(100);
    let status = bed.on_edge(|| edge::status(&name)).expect("runs");
    assert_eq!(status.instances[0].ledger.received, 200);
    assert_eq!(status.instances[0].ledger.verdict[2], 0);
    let pins = std::fs::read_dir(Path::new(edge::FOLDER).join(&name)).expect("a folder");
    let arrays = pins.flatten().filter(|pin| {
        let name = pin.file_name();
        name.to_string_lossy().starts_with("calls-")
    });
    assert_eq!(arrays.count(), 1);
}

/// The same holds for timers: with nobody to hold their map they cannot be started.
#[test]
fn timers_of_an_object_outlive_the_process_that_loaded_it() {
    if !root("timers_of_an_object_outlive_the_process_that_loaded_it") {
        return;
    }
    let bed = Bed::new();
    let name = edge_name("timers");
    let _down = Down::of(&bed, &name);
    let mut plan = chain(&name, 1);
    // The user engine has no timers.
    put(&mut plan, 0, "file = \"timer\"\nunverified = true");
    bed.on_edge(|| edge::apply(&wired(&plan), ""))
        .expect("applies");
    bed.send(10);
    std::thread::sleep(Duration::from_millis(100));
    let status = bed.on_edge(|| edge::status(&name)).expect("runs");
    assert!(first_of(&status, "f0", "timers") > 0);
}

/// Maps of others are kept whatever they are called: a filter of weir lays `counts` out anew.
#[test]
fn a_map_that_is_called_as_one_of_weirs_keeps_its_contents() {
    if !root("a_map_that_is_called_as_one_of_weirs_keeps_its_contents") {
        return;
    }
    let bed = Bed::new();
    let name = edge_name("names");
    let _down = Down::of(&bed, &name);
    let mut plan = chain(&name, 1);
    for (proceed, sum) in [("\"drop\"", 10), ("\"drop\", \"tx\"", 20)] {
        let keys = format!("file = \"legacy:-DTODAY\"\nprogram = \"first\"\nproceed = [{proceed}]");
        put(&mut plan, 0, &keys);
        bed.on_edge(|| edge::apply(&wired(&plan), ""))
            .expect("applies");
        bed.send(10);
        let status = bed.on_edge(|| edge::status(&name)).expect("runs");
        assert_eq!(first_of(&status, "f0", "counts"), sum);
    }
}

/// What programs of chained.c counted in element 0 of their map `stats`.
fn counted(status: &Status, instance: &str) -> u64 {
    first_of(status, instance, "own_stats")
}

/// The number in element 0 of a map of an instance.
fn first_of(status: &Status, instance: &str, map: &str) -> u64 {
    let found = status
        .instances
        .iter()
        .find(|i| i.name == instance)
        .expect("an instance");
    let (_, id) = found
        .maps
        .iter()
        .find(|(name, _)| name == map)
        .expect("a map");
    let map = weir_kernel::Map::by_id(*id, map).expect("there");
    let value = map.lookup(&[0; 4]).expect("readable").expect("in range");
    u64::from_ne_bytes(*value.first_chunk().expect("eight bytes"))
}

/// Objects compiled from the test programs, by name, with a flag behind a colon.
struct Compiled;

impl Files for Compiled {
    fn read(&self, path: &Path) -> std::io::Result<Vec<u8>> {
        let path = path.to_str().expect("UTF-8");
        let (name, flag) = path.split_once(':').unwrap_or((path, "-DENTRIES=4"));
        Ok(pair::compile(name, &["-g", flag]))
    }
}

fn put(plan: &mut Model, instance: usize, keys: &str) {
    plan.instances[instance].planned = planned(keys);
}

fn planned(keys: &str) -> Planned {
    let keys = keys.parse().expect("TOML");
    let request = Request {
        name: "it",
        keys: &keys,
        files: &Compiled,
        ports: &[],
        transmits: false,
    };
    kind::plan("object", &request).unwrap_or_else(|e| panic!("{e}"))
}
