//! Programs of others as functions of a chain, in the running kernel: where the chain stops, what the ledgers say, and more than ten.
//!
//! The maps of the edge are filled by hand, as in `panel.rs`. Scenarios bear the names that managers of such programs give them.
//! Needs root; says when it skips.

#![allow(
    clippy::print_stderr,
    reason = "what is skipped is said where the test runs"
)]

use std::io;
use std::path::Path;

use crate::common;
use crate::common::Sample;
use crate::graph;
use crate::pair;
use weir_bpf::abi::{NEXT, Stats, panel};
use weir_engine::EngineKind;
use weir_engine::edge::replay::GraphOptions;
use weir_functions::kind::{self, Files, FunctionError, Planned, Request};
use weir_graph::Target;
use weir_kernel::{KernelError, KernelObject, LoadedProgram, TestCtx};
use weir_packet::Reason;
use zerocopy::FromBytes;

const ABORTED: u32 = 0;
const DROP: u32 = 1;
const PASS: u32 = 2;
const TX: u32 = 3;
/// weir's number of the one port.
const PORT: u32 = 1;

/// `code` of chained.c returns the first byte of the frame, whatever it is.
const CODE: &str = "file = \"chained\"\nprogram = \"code\"\n";

#[test]
fn all_proceed() {
    let Some(mut chain) = Chain::new(&[CODE; 3]) else {
        return;
    };
    assert_eq!(chain.run(PASS as u8), PASS);
    for number in 0..3 {
        let stats = chain.stats(number);
        assert_eq!(
            (stats.received, stats.verdict[NEXT]),
            (1, u64::from(number < 2))
        );
    }
    // The last one's packet goes where its link leads, which is the stack.
    assert_eq!(chain.stats(2).verdict[PASS as usize], 1);
}

#[test]
fn chain_stops_at_drop_by_default() {
    let Some(mut chain) = Chain::new(&[CODE; 2]) else {
        return;
    };
    for (code, verdict) in [(1, DROP), (3, TX), (4, 4), (0, ABORTED)] {
        assert_eq!(chain.run(code), verdict, "code {code}");
    }
    assert_eq!(chain.stats(1).received, 0);
    let first = chain.stats(0);
    assert_eq!(first.verdict[..6], [1, 1, 0, 1, 1, 0]);
    assert_eq!(first.reason[Reason::ObjectDrop.index() as usize], 1);
}

#[test]
fn chain_stops_at_pass_with_custom_proceed_on() {
    let first = format!("{CODE}proceed = [\"drop\", \"tx\", 17]");
    let Some(mut chain) = Chain::new(&[&first, "file = \"chained\"\nprogram = \"longer\""]) else {
        return;
    };
    for (code, verdict, received) in [
        (PASS, PASS, 0),
        (DROP, PASS, 1),
        (17, PASS, 2),
        (TX, PASS, 3),
        (18, ABORTED, 3),
    ] {
        assert_eq!(chain.run(code as u8), verdict, "code {code}");
        assert_eq!(chain.stats(1).received, received, "code {code}");
    }
    let stats = chain.stats(0);
    assert_eq!(stats.verdict[..6], [1, 0, 1, 0, 0, 3]);
    assert_eq!(stats.reason[Reason::ObjectCode.index() as usize], 1);
    assert_eq!(stats.reason[Reason::ObjectDrop.index() as usize], 0);
}

#[test]
fn what_changes_the_length_is_seen_behind_it() {
    let longer = "file = \"chained\"\nprogram = \"longer\"";
    let Some(mut chain) = Chain::new(&[longer, longer, CODE]) else {
        return;
    };
    chain.run(PASS as u8);
    let bytes: Vec<u64> = (0..3).map(|n| chain.stats(n).bytes).collect();
    assert_eq!(bytes, [64, 66, 68]);
}

#[test]
fn the_answer_of_a_tail_call_is_the_wrappers() {
    let keys = "file = \"chained\"\nprogram = \"tail\"\nproceed = [\"tx\"]";
    let Some(mut chain) = Chain::new(&[keys, CODE]) else {
        return;
    };
    // `tail` calls `tail_first`, which answers TX for frames of even length: the wrapper goes on.
    assert_eq!(chain.run(DROP as u8), DROP);
    assert_eq!(chain.stats(0).verdict[NEXT], 1);
    assert_eq!(chain.stats(1).received, 1);
}

/// The same chain in the user engine, interpreted and as native code, and in the kernel: verdicts, bytes and ledgers.
#[test]
fn engines_agree_on_chains_of_objects() {
    let samples: Vec<Sample> = pair::frames(400)
        .into_iter()
        .filter(|f| (60..=1514).contains(&f.len()))
        .map(|frame| Sample {
            frame,
            now_ns: 0,
            port: 1,
            queue: 0,
        })
        .collect();
    let of = |file: &str, program: &str, more: &str| {
        let keys = format!("file = \"{file}\"\nprogram = \"{program}\"\n{more}");
        let planned = plan(&keys).unwrap_or_else(|e| panic!("{keys}: {e}"));
        graph::instance(program, planned.instance, Target::Stack)
    };
    let all = "proceed = [\"aborted\", \"drop\", \"pass\", \"tx\", \"redirect\"]";
    let chains = [
        vec![
            of("agree", "lines", ""),
            of("agree", "reshape", all),
            of("chained", "everything", ""),
        ],
        vec![
            of("chained", "longer", ""),
            of("chained", "tail", "proceed = [\"tx\"]"),
            of("agree", "arithmetic", all),
        ],
        vec![
            of("chained", "tail_itself", all),
            of("chained", "code", "proceed = [0, 2]"),
            of("agree", "filter", all),
        ],
    ];
    for instances in chains {
        let graph = graph::chained(instances, Target::Stack);
        let said = graph::agree(
            &common::engines(),
            &graph,
            &GraphOptions::default(),
            &samples,
        );
        let said = said.unwrap_or_else(|e| panic!("{e}"));
        let received: Vec<u64> = said.totals.instances.iter().map(|s| s.received).collect();
        eprintln!("{} packets: {received:?} received", samples.len());
    }
}

/// Managers built on the kernel's own means stop at ten.
#[test]
fn fourteen_different_programs_in_one_chain() {
    let all = "proceed = [\"aborted\", \"drop\", \"pass\", \"tx\", \"redirect\"]";
    let of =
        |file: &str, program: &str| format!("file = \"{file}\"\nprogram = \"{program}\"\n{all}");
    let agree = [
        "count",
        "lines",
        "filter",
        "sample",
        "nested",
        "remember",
        "routes",
        "spread",
        "reshape",
        "arithmetic",
    ];
    let chained = ["everything", "tail", "tail_deeper", "longer"];
    let mut keys: Vec<String> = agree.iter().map(|p| of("agree", p)).collect();
    keys.extend(chained.iter().map(|p| of("chained", p)));
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let Some(mut chain) = Chain::new(&keys) else {
        return;
    };
    let frames = pair::frames(300);
    let linear = frames.iter().filter(|f| (60..=1514).contains(&f.len()));
    let mut sent = 0;
    for frame in linear {
        assert_eq!(chain.run_frame(frame), PASS);
        sent += 1;
    }
    for number in 0..keys.len() {
        let stats = chain.stats(number);
        let last = number + 1 == keys.len();
        assert_eq!(stats.received, sent, "{}", keys[number]);
        assert_eq!(stats.verdict[if last { PASS as usize } else { NEXT }], sent);
    }
    eprintln!("{sent} frames through {} programs", keys.len());
}

/// What is left of the 512 bytes of stack behind the wrapper, and of the 256 before a tail call. weir's verdict is the kernel's.
#[test]
fn how_much_stack_a_program_may_use() {
    if !common::engines().contains(&EngineKind::Kernel) {
        return;
    }
    for (program, least) in [("plain", 416), ("calling", 416), ("deeper", 192)] {
        let keys = |bytes| format!("file = \"stack:-DBYTES={bytes}\"\nprogram = \"{program}\"");
        let most = (1..=62)
            .rev()
            .map(|words| words * 8)
            .find(|bytes| plan(&keys(*bytes)).is_ok());
        let most = most.expect("some stack is left");
        assert!(most >= least, "{program}: {most}");
        load(&plan(&keys(most)).expect("planned"), None)
            .unwrap_or_else(|e| panic!("{program}, {most}: {e}"));
        let refused =
            plan(&format!("{}\nunverified = true", keys(most + 8))).expect("left to the kernel");
        match load(&refused, None) {
            Err(KernelError::Rejected { line, .. }) => {
                eprintln!("{program}: {most} bytes; the kernel on more: {line}")
            }
            other => panic!("{program}, {}: {other:?}", most + 8),
        }
    }
}

#[test]
fn load_surfaces_the_verifiers_reason() {
    let keys = "file = \"broken/bounds_missing\"";
    let error = plan(keys).expect_err("refused by weir");
    assert_eq!(error.key.as_deref(), Some("file"));
    assert!(error.message.contains("bounds_missing.c:"), "{error}");
    assert!(
        error
            .advice
            .is_some_and(|a| a.contains("unverified = true"))
    );
    let planned = plan(&format!("{keys}\nunverified = true")).expect("left to the kernel");
    assert!(
        planned.notes[0].contains("was not asked"),
        "{:?}",
        planned.notes
    );
    if !common::engines().contains(&EngineKind::Kernel) {
        return;
    }
    match load(&planned, None) {
        Err(KernelError::Rejected { line, .. }) => {
            assert!(line.contains("outside of the packet"), "{line}")
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_cannot_be_chained_says_why() {
    for (keys, key, says) in [
        ("", None, "needs its file"),
        ("file = \"none\"", Some("file"), "cannot read"),
        (
            "file = \"chained\"",
            Some("program"),
            "several XDP programs",
        ),
        (
            "file = \"chained\"\nprogram = \"cod\"",
            Some("program"),
            "no program \"cod\"",
        ),
        (
            "file = \"kinds\"\nprogram = \"devmap_program\"",
            Some("file"),
            "elements of a devmap",
        ),
        (
            "file = \"bound\"\nprogram = \"bound\"",
            Some("file"),
            "bpf_xdp_metadata_rx_timestamp",
        ),
        (
            "file = \"kinds\"\nprogram = \"traced\"",
            Some("program"),
            "only XDP programs",
        ),
        ("file = \"tc\"", Some("file"), "has no XDP program"),
        (
            "file = \"legacy\"\nprogram = \"first\"",
            Some("file"),
            "compile it with `clang -g`",
        ),
        (
            "file = \"legacy:-g\"\nprogram = \"first\"",
            Some("file"),
            "retired section `maps`",
        ),
        (
            "file = \"chained\"\nprogram = \"code\"\nproceed = [\"pas\"]",
            Some("proceed"),
            "no code `pas`",
        ),
        (
            "file = \"chained\"\nprogram = \"code\"\nproceed = [32]",
            Some("proceed"),
            "no code 32",
        ),
        (
            "file = \"chained\"\nprogram = \"code\"\nconstants = { limt = 1 }",
            Some("constants"),
            "no constant \"limt\"",
        ),
        (
            "file = \"chained\"\nprogram = \"code\"\nconstants = { limit = 4294967296 }",
            Some("constants"),
            "not between",
        ),
    ] {
        let error = plan(keys).expect_err(keys);
        assert_eq!(error.key.as_deref(), key, "{keys}: {error}");
        assert!(error.message.contains(says), "{keys}: {error}");
    }
}

#[test]
fn siblings_that_ask_for_what_is_elsewhere_are_no_hindrance() {
    let planned = plan("file = \"bound\"\nprogram = \"unbound\"").expect("plans");
    if common::engines().contains(&EngineKind::Kernel) {
        load(&planned, None).unwrap_or_else(|e| panic!("{e}"));
    }
}

#[test]
fn constants_are_set_under_the_names_they_have_there() {
    let keys =
        "file = \"chained\"\nprogram = \"everything\"\nconstants = { limit = 10, weir_port = 9 }";
    let planned = plan(keys).expect("plans");
    let set = |name: &str| {
        let mut all = planned.instance.constants.iter();
        all.find(|(n, _)| n == name).map(|(_, v)| v.clone())
    };
    assert_eq!(set("limit"), Some(10u32.to_le_bytes().to_vec()));
    assert_eq!(set("own_weir_port"), Some(9u32.to_le_bytes().to_vec()));
    assert!(
        planned.notes.iter().any(|n| n.contains("`own_stats`")),
        "{:?}",
        planned.notes
    );
    assert!(planned.asks.linear_frames);
}

/// Objects compiled from the test programs, by name.
struct Compiled;

impl Files for Compiled {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        match path.to_str() {
            Some("none") | None => Err(io::ErrorKind::NotFound.into()),
            Some("legacy") => Ok(pair::compile("legacy", &[])),
            Some(path) => match path.strip_prefix("broken/") {
                Some(name) => Ok(pair::compile(
                    &format!("../../../weir-cli/tests/broken/{name}"),
                    &["-g"],
                )),
                None => {
                    let (name, flag) = path.split_once(':').unwrap_or((path, "-O2"));
                    Ok(pair::compile(name, &["-g", flag]))
                }
            },
        }
    }
}

fn plan(keys: &str) -> Result<Planned, FunctionError> {
    let keys = keys.parse().expect("TOML");
    kind::plan(
        "object",
        &Request {
            name: "it",
            keys: &keys,
            files: &Compiled,
            ports: &[],
            transmits: false,
        },
    )
}

fn load(planned: &Planned, entry: Option<&LoadedProgram>) -> Result<LoadedProgram, KernelError> {
    let mut object = KernelObject::open(planned.instance.object.bytes().expect("bytes"))?;
    for (name, value) in &planned.instance.constants {
        object.set_rodata(name, value)?;
    }
    for map in ["weir_chain", "weir_links", "weir_programs", "weir_devices"] {
        if let Some(entry) = entry {
            object.reuse_map(map, entry)?;
        }
    }
    object.load(&planned.instance.program)
}

/// An entry program and instances behind it, in generation 1; what passes the last one goes to the stack.
struct Chain {
    entry: LoadedProgram,
    programs: Vec<LoadedProgram>,
}

impl Chain {
    /// `None` without privileges.
    fn new(functions: &[&str]) -> Option<Chain> {
        if !common::engines().contains(&EngineKind::Kernel) {
            return None;
        }
        let object = weir_bpf::object("entry_graph").expect("compiled");
        let mut object = KernelObject::open(object).expect("opens");
        object
            .set_rodata("weir_port", &PORT.to_ne_bytes())
            .expect("a constant");
        let entry = object.load("entry").expect("loads");
        let base = panel::VIDS as u32;
        let write = |map, at: u32, vid: u32, slot: u32| {
            let hop = [vid, slot].map(u32::to_ne_bytes).concat();
            entry
                .update(map, &at.to_ne_bytes(), &hop, 0)
                .expect("in range");
        };
        let mut programs = Vec::new();
        for (number, keys) in (1..).zip(functions) {
            let planned = plan(keys).unwrap_or_else(|e| panic!("{keys}: {e}"));
            let program = load(&planned, Some(&entry)).unwrap_or_else(|e| panic!("{keys}: {e}"));
            program
                .install_in(&entry, "weir_programs", number)
                .expect("a free slot");
            let out = (base + number) * panel::OUTS as u32;
            match (number as usize) < functions.len() {
                true => write("weir_links", out, number + 1, number + 1),
                false => write("weir_links", out, 0, panel::STACK),
            }
            programs.push(program);
        }
        write("weir_entries", PORT * 2 + 1, 1, 1);
        entry
            .update("weir_edge", &0u32.to_ne_bytes(), &1u64.to_ne_bytes(), 0)
            .expect("in range");
        Some(Chain { entry, programs })
    }

    /// The verdict on a frame of 64 bytes that begins with `first`.
    fn run(&mut self, first: u8) -> u32 {
        let mut frame = [0; 64];
        frame[0] = first;
        self.run_frame(&frame)
    }

    fn run_frame(&mut self, frame: &[u8]) -> u32 {
        let mut out = Vec::new();
        let outcome = self.entry.test_run(frame, &mut out, TestCtx::default());
        outcome.expect("runs").retval
    }

    /// Ledger of a function over all CPUs.
    fn stats(&self, function: usize) -> Stats {
        let program = &self.programs[function];
        let values = program
            .lookup_percpu("stats", &0u32.to_ne_bytes())
            .expect("there is one");
        let mut sum: Option<Stats> = None;
        for bytes in values {
            let one = Stats::read_from_bytes(&bytes).expect("its size");
            let Some(sum) = &mut sum else {
                sum = Some(one);
                continue;
            };
            sum.received += one.received;
            sum.bytes += one.bytes;
            sum.verdict
                .iter_mut()
                .zip(one.verdict)
                .for_each(|(a, b)| *a += b);
            sum.reason
                .iter_mut()
                .zip(one.reason)
                .for_each(|(a, b)| *a += b);
        }
        let sum = sum.expect("a CPU");
        assert_eq!(
            sum.received,
            sum.verdict.iter().sum::<u64>(),
            "received = sum of verdicts"
        );
        sum
    }
}
