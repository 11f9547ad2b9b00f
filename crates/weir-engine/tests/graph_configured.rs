//! Graphs as configuration writes them, with functions of every kind, over captures: the running kernel and the user engine say the same.
//!
//! Objects of other people are compiled from crates/weir-vm/tests/objects. `WEIR_LONG=1` takes every frame of the captures.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use crate::common::{Sample, engines};
use crate::graph::{Said, agree};
use crate::pair;
use crate::pair::frames;
use weir_bpf::abi::NEXT;
use weir_engine::edge::replay::GraphOptions;
use weir_functions::kind::Files;
use weir_graph::Numbers;
use weir_packet::{Reason, Verdict};

/// Frames of the captures, spread over the ports in turn.
const FRAMES: usize = 1_000;

const PORTS: &str = r#"
[[port]]
name = "a"
device = "eth1"
[[port]]
name = "b"
device = "eth2"
checksums = "offloaded"
"#;

#[test]
fn objects_between_functions_of_weir() {
    let said = run(r#"
[[function]]
name = "box"
kind = "middlebox"
rules = """
ip-ttl < 2 drop
tcp-syn strip ! tcp-opt-mss
ip-ecn > 0 mod ip-dscp 2
"""
[[function]]
name = "shield"
kind = "filter"
rules = [
  "allow tcp to-port 22",
  "deny udp to-port 53",
  "deny from 10.0.0.0/9",
  "limit tcp-syn rate 50/s burst 3 per source block 100ms",
]
[[function]]
name = "count"
kind = "object"
file = "agree"
program = "count"
proceed = ["pass", "drop"]
constants = { limit = 300 }
[[function]]
name = "remember"
kind = "object"
file = "agree"
program = "remember"
proceed = ["pass", "drop", "tx"]
[[function]]
name = "reshape"
kind = "object"
file = "agree"
program = "reshape"
proceed = ["tx"]
[[function]]
name = "arithmetic"
kind = "object"
file = "agree"
program = "arithmetic"
[[link]]
from = "a"
to = "box"
[[link]]
from = "b"
to = "shield"
[[link]]
from = "box"
to = "shield"
[[link]]
from = "shield"
to = "count"
[[link]]
from = "count"
to = "remember"
[[link]]
from = "remember"
to = "reshape"
[[link]]
from = "reshape"
to = "arithmetic"
[[link]]
from = "arithmetic"
to = "b"
"#);
    for (place, stats) in said.totals.instances.iter().enumerate().take(5) {
        assert!(stats.verdict[NEXT] > 0, "function {place}: {stats:?}");
    }
    let denied = said.totals.instances[1].reason[Reason::Denied as usize];
    assert!(denied > 0, "{:?}", said.totals.instances[1]);
    assert!(said.totals.left_by.get(&2).is_some_and(|n| *n > 0));
}

/// More programs than the kernel's own dispatchers chain.
#[test]
fn fourteen_objects_in_a_row() {
    let mut text = String::new();
    for i in 0..14 {
        let program = ["count", "remember", "nested"][i % 3];
        text.push_str(&format!(
            "[[function]]\nname = \"o{i}\"\nkind = \"object\"\nfile = \"agree\"\nprogram = \"{program}\"\n\
             proceed = [\"pass\", \"drop\", \"tx\"]\n"
        ));
        let next = if i < 13 {
            format!("o{}", i + 1)
        } else {
            "tx".to_owned()
        };
        text.push_str(&format!("[[link]]\nfrom = \"o{i}\"\nto = \"{next}\"\n"));
    }
    text.push_str("[[link]]\nfrom = \"a\"\nto = \"o0\"\n[[link]]\nfrom = \"b\"\nto = \"o7\"\n");
    let said = run(&text);
    let (first, last) = (&said.totals.instances[0], &said.totals.instances[13]);
    assert!(first.received > 0 && last.verdict[3] > 0, "{last:?}");
}

/// A map that two objects share holds what both wrote; a map of the same name that they do not share does not.
#[test]
fn objects_share_a_map_by_name() {
    let said = run(r#"
[[map]]
name = "all"
type = "percpu-array"
key = 4
value = 16
entries = 4
[[function]]
name = "one"
kind = "object"
file = "agree"
program = "count"
proceed = ["pass", "drop"]
maps = { totals = "all" }
[[function]]
name = "two"
kind = "object"
file = "agree"
program = "count"
proceed = ["pass", "drop"]
maps = { totals = "all" }
[[link]]
from = "a"
to = "one"
[[link]]
from = "b"
to = "two"
[[link]]
from = "one"
to = "two"
"#);
    let of = |instance: usize, map: &str| {
        let found = said
            .contents
            .iter()
            .find(|(i, m, _)| (*i, *m) == (instance, map));
        let contents = found.and_then(|(.., c)| c.as_ref()).expect("has the map");
        contents
            .iter()
            .map(|(_, value)| u64::from_ne_bytes(value[..8].try_into().expect("8 bytes")))
            .sum::<u64>()
    };
    let passed: u64 = said.totals.instances.iter().map(|s| s.received).sum();
    assert_eq!(of(0, "totals"), of(1, "totals"));
    assert_eq!(of(0, "totals"), passed);
}

#[test]
fn redirection_to_devices_and_cpus() {
    let said = run(r#"
[[function]]
name = "web"
kind = "middlebox"
rules = "tcp-dport 80 mod ip-ttl 9"
[[function]]
name = "spread"
kind = "redirect"
to = ["a", "b"]
[[function]]
name = "cpu"
kind = "redirect"
cpu = 0
[[function]]
name = "socket"
kind = "redirect"
xsk = true
missing = "pass"
[[link]]
from = "a"
to = "web"
[[link]]
from = "web"
to = "spread"
[[link]]
from = "b"
to = "socket"
[[link]]
from = "socket"
to = "cpu"
"#);
    let redirected = said
        .outcomes
        .iter()
        .filter(|o| o.verdict == Verdict::Redirect);
    assert!(redirected.count() > FRAMES / 4);
    assert!(
        said.totals.left_by.is_empty(),
        "functions sent them, not links"
    );
    let handed = |instance: usize| said.totals.instances[instance].verdict[4];
    assert!(handed(1) > 0 && handed(2) > 0, "{:?}", said.totals);
    let said = run(r#"
[[function]]
name = "all"
kind = "redirect"
to = ["a", "b"]
broadcast = true
exclude_ingress = true
[[link]]
from = "a"
to = "all"
[[link]]
from = "b"
to = "all"
"#);
    let sent = said.totals.instances[0].verdict[4];
    assert_eq!(sent, said.outcomes.len() as u64);
}

#[test]
fn a_loop_that_sheds_what_comes_back_too_often() {
    let said = run(r#"
[[function]]
name = "count"
kind = "empty"
[[function]]
name = "box"
kind = "middlebox"
rules = "tcp-dport 80 add tcp-opt-mss 1200"
[[link]]
from = "a"
to = "count"
[[link]]
from = "b"
to = "count"
[[link]]
from = "count"
to = "box"
[[link]]
from = "box"
to = "count"
guard = 14
"#);
    let drops = said.outcomes.iter().filter(|o| o.verdict == Verdict::Drop);
    assert_eq!(drops.count(), said.outcomes.len());
    assert!(said.totals.resumed.is_some_and(|s| s.received > 0));
}

/// Runs the captures through a graph in every engine.
fn run(functions: &str) -> Said {
    let text = format!("{PORTS}{functions}");
    let config = weir_graph::parse(&text, "test.toml").unwrap_or_else(|e| panic!("{e}"));
    let files = Compiled::new(&["agree"]);
    let planned = weir_graph::plan(&config, &files, &Numbers::new());
    let (plan, _) = planned.unwrap_or_else(|e| panic!("{e}"));
    let taken = |f: &Vec<u8>| (14..=weir_bpf::abi::FRAME_MAX).contains(&f.len());
    let samples: Vec<Sample> = (0..)
        .zip(frames(FRAMES).into_iter().filter(taken))
        .map(|(number, frame)| Sample {
            frame,
            now_ns: 1_000_000 * number,
            port: 1 + (number % 2) as u32,
            queue: 0,
        })
        .collect();
    agree(&engines(), &plan, &GraphOptions::default(), &samples).unwrap_or_else(|e| panic!("{e}"))
}

/// Objects by the names of their sources.
struct Compiled(BTreeMap<PathBuf, Vec<u8>>);

impl Compiled {
    fn new(names: &[&str]) -> Compiled {
        let compiled = names
            .iter()
            .map(|name| (PathBuf::from(name), pair::compile(name, &["-g"])));
        Compiled(compiled.collect())
    }
}

impl Files for Compiled {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.0
            .get(path)
            .cloned()
            .ok_or(io::ErrorKind::NotFound.into())
    }
}
