//! What the kernel's verifier says about the data plane: instructions it walked, for each set of features of the middlebox, the filter
//! and redirection.
//!
//! The record benches/record/verified-insns.tsv is kept in the tree. On the kernel and compiler of the record the counts must not grow by more than
//! a tenth (a deterministic gate); elsewhere they are printed only. `WEIR_UPDATE=1` writes the record, and appends what changed to its history,
//! benches/record/verified-history.tsv. weir-lab draws that.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::common;
use crate::features::{RECORD, SETS};
use crate::filters;
use weir_bpf::abi::balancer::feature as balancer;
use weir_bpf::abi::decapsulate;
use weir_bpf::abi::router::feature;
use weir_bpf::abi::{DIMS, SET_BITS, redirect};
use weir_kernel::{KernelObject, LoadedProgram};

/// What the record was at each change, kept in the tree.
const HISTORY: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../benches/record/verified-history.tsv"
);

/// Filters from a plain block list to everything that rules can ask for.
const FILTERS: &[(&str, &str)] = &[
    (
        "block-list",
        r#"rules = ["deny from 10.0.0.0/8, 2001:db8::/32"]"#,
    ),
    (
        "addresses-ports",
        r#"rules = ["allow from 10.0.0.0/8, 2001:db8::/32", "deny udp to-port 53 from 11.0.0.0/8 to 2001:db9::/32"]"#,
    ),
    (
        "ends",
        r#"
rules = ["allow from-port 1 from @some", "deny udp to-port 53 from 11.0.0.0/8 to 2001:db9::/32"]
[sets]
some = ["192.0.2.1 until 1700000001"]
"#,
    ),
    ("shed", r#"rules = ["shed udp when load > 80"]"#),
    ("limit", r#"rules = ["limit rate 1k/s per source"]"#),
    (
        "limit-block",
        r#"rules = ["deny from 10.0.0.0/8", "limit udp to-port 53 rate 1k/s per source block 60s"]"#,
    ),
    ("syncookie", r#"rules = ["syncookie to-port 80"]"#),
    (
        "all",
        r#"
rules = [
  "allow from-port 1 from @some",
  "deny udp to-port 53 from 11.0.0.0/8 to 2001:db9::/32",
  "shed udp when load > 80",
  "limit tcp-syn rate 10/s per source block 60s",
  "limit rate 1/s per entry from @some",
  "syncookie to-port 80",
]
cpu = [0, 1]
[sets]
some = ["192.0.2.1 until 1700000001"]
"#,
    ),
];

/// What packets are handed to, with checksums to finish.
const REDIRECTS: &[(&str, u32)] = &[
    ("devices", redirect::TO_DEVICES),
    ("cpus", redirect::TO_CPUS),
    ("sockets", redirect::TO_SOCKETS),
];

/// Routers, with checksums to finish: by the kernel's tables, by tables of their own, and with everything on.
const ROUTERS: &[(&str, u32)] = &[
    ("kernel", 0),
    ("own", feature::OWN | feature::ERRORS | feature::WIDE),
    (
        "kernel-all",
        feature::VLAN | feature::STRICT | feature::ERRORS | feature::MACS,
    ),
    (
        "own-all",
        feature::OWN
            | feature::VLAN
            | feature::STRICT
            | feature::ERRORS
            | feature::MACS
            | feature::COUNT_ROUTES
            | feature::WIDE,
    ),
];

/// Balancers, with checksums to finish: one mode each, and everything at once.
const BALANCERS: &[(&str, u32)] = &[
    ("dsr", 0),
    ("tunnel", balancer::ENCAP),
    ("nat", balancer::NAT),
    (
        "all",
        balancer::ENCAP
            | balancer::NAT
            | balancer::PREFIX
            | balancer::ANY_PORT
            | balancer::QUIC
            | balancer::CPU,
    ),
];

/// Programs of virtual networks, with room for several of everything.
const NETWORKS: &[&str] = &[
    "workload",
    "bridge",
    "flood",
    "router",
    "refuse",
    "steer",
    "punt",
    "resume",
    "empty",
    "tunnel",
    "underlay",
    "from_kernel",
];

/// Constants that say how much there is room for.
const HALVES: &[&str] = &[
    "net_half_interfaces",
    "net_half_bridges",
    "net_half_routers",
    "net_half_hops",
    "net_half_remotes",
    "net_half_tunnels",
    "net_half_lists",
    "net_half_steers",
    "net_half_selections",
    "net_half_punts",
    "net_half_buckets",
];

#[test]
fn verified_instructions_stay_within_the_record() {
    if !common::engines().contains(&weir_engine::EngineKind::Kernel) {
        return;
    }
    let environment = format!("{}\t{}", weir_kernel::probes::kernel_release(), compiler());
    let mut measured = Vec::new();
    for (name, features) in SETS {
        for mode in [0u32, 1] {
            let constants = [
                ("weir_features", *features),
                ("weir_csum_mode", mode),
                ("weir_dims", DIMS as u32),
                ("weir_set_bits", SET_BITS as u32),
            ];
            let label = format!("{name}{}", if mode == 1 { "+offloaded" } else { "" });
            measured.push((label, loaded("middlebox", &constants)));
        }
    }
    let (_, all) = SETS.last().expect("sets");
    for form in ["tc", "graph_tc", "watched_tc"] {
        let constants = [("weir_features", *all), ("weir_dims", DIMS as u32)];
        let program = loaded_as(&format!("middlebox_{form}"), "middlebox", &constants);
        measured.push((format!("{form}:all"), program));
    }
    for (name, keys) in FILTERS {
        let compiled = filters::compiled(&filters::filter(keys)).expect("compiles");
        let program = filters::runs::load(&compiled, &[]);
        measured.push((format!("filter:{name}"), program));
    }
    for name in NETWORKS {
        let object = format!("net_{name}");
        let program = loaded_as(&object, name, &halves(&object));
        measured.push((format!("net:{name}"), program));
    }
    for (name, to) in REDIRECTS {
        let constants = [("weir_to", *to), ("weir_targets", 4), ("weir_csum_mode", 1)];
        measured.push((format!("redirect:{name}"), loaded("redirect", &constants)));
    }
    for (name, features) in ROUTERS {
        let constants = [("weir_router_features", *features), ("weir_csum_mode", 1)];
        let program = loaded_as("router_graph", "router", &constants);
        measured.push((format!("router:{name}"), program));
    }
    for (name, features) in BALANCERS {
        let constants = [("weir_lb_features", *features), ("weir_csum_mode", 1)];
        let program = loaded_as("balancer_graph", "balancer", &constants);
        measured.push((format!("balancer:{name}"), program));
    }
    let mut constants = halves("balancer_net");
    let features = balancer::NAT | balancer::ANY_PORT | balancer::QUIC;
    constants.extend([("weir_lb_features", features), ("weir_csum_mode", 1)]);
    let program = loaded_as("balancer_net", "balancer", &constants);
    measured.push(("net:balancer".to_owned(), program));
    let mut constants = halves("middlebox_net");
    constants.extend([("weir_features", *all), ("weir_dims", DIMS as u32)]);
    let program = loaded_as("middlebox_net", "middlebox", &constants);
    measured.push(("net:middlebox:tc:all".to_owned(), program));
    let ends = [(
        "weir_dc_features",
        decapsulate::IPIP | decapsulate::GUE | decapsulate::FROM,
    )];
    let program = loaded_as("decapsulate_graph", "decapsulate", &ends);
    measured.push(("decapsulate:all".to_owned(), program));
    let measured: Vec<(String, u32)> = measured
        .into_iter()
        .map(|(label, program)| (label, program.verified_insns().expect("info")))
        .collect();
    for (label, count) in &measured {
        eprintln!("{label}: {count} verified instructions");
        // Socket buffers have more ways of being read and written.
        let most = if label.ends_with("tc:all") {
            400_000
        } else {
            200_000
        };
        assert!(
            *count < most,
            "{label}: far too near the kernel's limit of 1,000,000"
        );
    }
    let record = std::fs::read_to_string(RECORD).unwrap_or_default();
    if std::env::var_os("WEIR_UPDATE").is_some() {
        let mut text =
            String::from("# program features\tverified instructions\tkernel\tcompiler\n");
        for (label, count) in &measured {
            writeln!(text, "{label}\t{count}\t{environment}").expect("strings grow");
        }
        std::fs::write(RECORD, text).expect("the record is writable");
        let history = std::fs::read_to_string(HISTORY).expect("the history is in the tree");
        std::fs::write(HISTORY, appended(history, &measured)).expect("the history is writable");
        return;
    }
    let mut compared = 0;
    for (label, count) in &measured {
        let line = record
            .lines()
            .find(|line| line.split('\t').next() == Some(label));
        let line =
            line.unwrap_or_else(|| panic!("{label} is not in {RECORD}: run with WEIR_UPDATE=1"));
        let mut cells = line.splitn(3, '\t').skip(1);
        let kept: u32 = cells
            .next()
            .and_then(|n| n.parse().ok())
            .expect("the record holds numbers");
        if cells.next() == Some(&environment) {
            assert!(
                *count <= kept + kept / 10,
                "{label}: {count} verified instructions, {kept} on record"
            );
            compared += 1;
        }
    }
    eprintln!(
        "{compared} of {} counts compared with the record",
        measured.len()
    );
}

/// The history with one more change: the counts that differ from the last ones.
fn appended(mut history: String, measured: &[(String, u32)]) -> String {
    let mut last = BTreeMap::new();
    let mut changes = 0;
    for line in history.lines().filter(|line| !line.starts_with('#')) {
        let mut cells = line.split('\t');
        let mut cell = || cells.next().expect("three cells");
        changes = cell().parse().expect("a number of a change");
        last.insert(cell().to_owned(), cell().to_owned());
    }
    for (label, count) in measured {
        if last.get(label) != Some(&count.to_string()) {
            writeln!(history, "{}\t{label}\t{count}", changes + 1).expect("strings grow");
        }
    }
    history
}

#[test]
fn a_history_gets_what_changed() {
    let history = "# head\n1\ta\t10\n1\tb\t20\n2\ta\t11\n".to_owned();
    let measured =
        [("a", 11), ("b", 21), ("c", 30)].map(|(label, count)| (label.to_owned(), count));
    let grown = appended(history.clone(), &measured);
    assert_eq!(grown, format!("{history}3\tb\t21\n3\tc\t30\n"));
    assert_eq!(appended(grown.clone(), &measured), grown);
}

/// Room for 64 of everything that a program of virtual networks asks how much there is of.
fn halves(object: &str) -> Vec<(&'static str, u32)> {
    let opened = KernelObject::open(weir_bpf::object(object).expect("compiled")).expect("opens");
    let known: Vec<&str> = opened.constants().collect();
    let halves = HALVES.iter().filter(|half| known.contains(half));
    halves.map(|half| (*half, 64)).collect()
}

/// A program of this object with these constants.
fn loaded(object: &str, constants: &[(&str, u32)]) -> LoadedProgram {
    loaded_as(object, object, constants)
}

fn loaded_as(object: &str, program: &str, constants: &[(&str, u32)]) -> LoadedProgram {
    let mut opened =
        KernelObject::open(weir_bpf::object(object).expect("compiled")).expect("opens");
    for (symbol, value) in constants {
        opened
            .set_rodata(symbol, &value.to_ne_bytes())
            .expect("constant");
    }
    opened
        .load(program)
        .unwrap_or_else(|e| panic!("{object} {constants:?}: {e}\n{}", e.log().unwrap_or("")))
}

/// First line of the compiler's version, as the build uses it.
fn compiler() -> String {
    let clang = std::env::var("WEIR_CLANG").unwrap_or_else(|_| "clang".to_owned());
    let output = std::process::Command::new(clang)
        .arg("--version")
        .output()
        .expect("clang runs");
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned()
}
