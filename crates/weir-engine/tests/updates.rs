//! Rules that change while an instance runs: after thousands of random edits every packet matches what it would match in a fresh build
//! of the same rules, in the user engine and in the kernel, and an edit that is refused changes nothing.
//!
//! `WEIR_UPDATES` sets the number of edits (default 10,000; a tenth of it in the kernel). The edits are the same in every run.

#![allow(
    clippy::print_stderr,
    reason = "what was compared is said where the test runs"
)]

use std::mem::offset_of;
use std::sync::Arc;

use crate::common;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use weir_bpf::abi::{self, Counter, LiveWord, Replay};
use weir_engine::live::{RuleMaps, written};
use weir_engine::{EngineKind, Packet, ReplayOptions};
use weir_functions::middlebox::{Edit, RuleBook, Staged, Step, Written};
use weir_functions::plan::{Constant, InstancePlan, PortConstants};
use weir_kernel::{KernelObject, LoadedProgram, MmapArray, TestCtx};
use weir_packet::Verdict;
use weir_policy::model::{Connections, DropWhen, Policy, Target};
use weir_policy::{FileSets, Source, parse};
use weir_vm::{BPF_ANY, Env, Frame, Machine, Object};
use zerocopy::{FromBytes, IntoBytes};

/// Edits between two comparisons with a fresh build.
const BETWEEN: usize = 20;
/// Packets of a comparison.
const PACKETS: usize = 60;

#[test]
fn after_random_edits_the_user_engine_matches_as_a_fresh_build_does() {
    let outcome = random_edits(&mut InVm::new, edits_wanted());
    eprintln!("user engine: {outcome}");
}

#[test]
fn after_random_edits_the_kernel_matches_as_a_fresh_build_does() {
    if !common::engines().contains(&EngineKind::Kernel) {
        return;
    }
    let outcome = random_edits(&mut InKernel::new, edits_wanted() / 10);
    eprintln!("kernel: {outcome}");
}

#[test]
fn ids_are_never_given_twice_and_refused_edits_change_nothing() {
    let rules = rules_of("ip-proto tcp drop\nfirst: ip-proto udp accept\n");
    let (mut book, _) = RuleBook::new(rules, &Connections::default(), &[], false).expect("a plan");
    let one = |text: &str| rules_of(text).pop().expect("a rule");
    let generation = book.generation();
    for (edits, message) in [
        (vec![Edit::Delete(7)], "no rule 7"),
        (vec![Edit::Delete(1), Edit::Delete(1)], "no rule 1"),
        (vec![Edit::Delete(2), Edit::Delete(3)], "no rule 3"),
        (
            vec![Edit::Add(Box::new(one("first: ip-proto icmp drop")))],
            "rule 2 is already named `first`",
        ),
        (
            vec![Edit::Delete(1), Edit::Add(Box::new(one("out eth0 drop")))],
            "`out` cannot be known here",
        ),
    ] {
        let error = book.stage(edits).expect_err(message).to_string();
        assert!(error.contains(message), "{error}");
        assert_eq!((book.generation(), book.entries().len()), (generation, 2));
    }
    let add = |book: &mut RuleBook, edits: Vec<Edit>| {
        match book.stage(edits).expect("staged") {
            Staged::InPlace(step) => book.commit(*step),
            Staged::Rebuild(rebuild) => book.commit_rebuild(*rebuild),
        }
        book.entries().map(|e| e.rule.id).collect::<Vec<u32>>()
    };
    let drop = || Edit::Add(Box::new(one("ip-ttl < 3 drop")));
    assert_eq!(add(&mut book, vec![drop()]), [1, 2, 3]);
    assert_eq!(add(&mut book, vec![Edit::Delete(3)]), [1, 2]);
    assert_eq!(add(&mut book, vec![drop()]), [1, 2, 4]);
    // Replacing under the same name is one change.
    let replaced = one("first: ip-proto icmp drop");
    let edits = vec![Edit::Delete(2), Edit::Add(Box::new(replaced))];
    assert_eq!(add(&mut book, edits), [1, 4, 5]);
    assert_eq!(
        book.missing().collect::<Vec<_>>(),
        [(2, "first: ip-proto udp accept")]
    );
    assert!(book.drifted());
    book.saved();
    assert!(!book.drifted());
    assert_eq!(add(&mut book, vec![Edit::Flush, drop()]), [6]);
    assert_eq!(book.missing().count(), 3);
}

/// Applies edits to a running instance and compares now and then. Returns what was done.
fn random_edits<I: Instance>(load: &mut dyn FnMut(&InstancePlan) -> I, wanted: usize) -> String {
    let mut runner = TestRunner::deterministic();
    let pool = pool(&mut runner);
    let frames: Vec<Vec<u8>> = (0..400)
        .map(|_| sample(&mut runner, weir_packet::generate::frame()))
        .collect();
    let mut random = Random(11);
    let (mut book, plan) =
        RuleBook::new(pool[..40].to_vec(), &Connections::default(), &[], false).expect("a plan");
    // Ids count from 1 as in a policy.
    let mut running = load(&plan);
    let (mut in_place, mut rebuilt, mut refused, mut matched) = (0, 0, 0, 0);
    for number in 1..=wanted {
        let ids: Vec<u32> = book.entries().map(|e| e.rule.id).collect();
        let mut edits = Vec::new();
        match random.below(20) {
            0 if ids.len() > 60 => edits.extend((0..10).map(|i| Edit::Delete(ids[i * 3]))),
            1..10 if ids.len() > 20 => edits.push(Edit::Delete(ids[random.below(ids.len())])),
            10 if ids.len() > 20 => {
                edits.push(Edit::Delete(ids[random.below(ids.len())]));
                edits.push(Edit::Add(Box::new(pool[random.below(pool.len())].clone())));
            }
            11 if random.below(100) == 0 => edits.push(Edit::Flush),
            _ => edits.push(Edit::Add(Box::new(pool[random.below(pool.len())].clone()))),
        }
        let generation = book.generation();
        match book.stage(edits) {
            Ok(Staged::InPlace(step)) => {
                running.apply(&step);
                book.commit(*step);
                in_place += 1;
            }
            Ok(Staged::Rebuild(rebuild)) => {
                running = load(&rebuild.plan);
                book.commit_rebuild(*rebuild);
                rebuilt += 1;
            }
            Err(error) => {
                assert!(
                    error.to_string().contains("could match one packet"),
                    "{error}"
                );
                assert_eq!(book.generation(), generation);
                refused += 1;
                continue;
            }
        }
        assert_eq!(book.generation(), generation + 1);
        if number % BETWEEN == 0 || number == wanted {
            let from = random.below(frames.len() - PACKETS);
            matched += compare(&book, &mut running, &frames[from..from + PACKETS], number);
        }
    }
    assert!(
        in_place > wanted / 2 && rebuilt > 0,
        "{in_place} in place, {rebuilt} rebuilt"
    );
    assert!(
        matched > wanted as u64 / BETWEEN as u64,
        "only {matched} matches were compared"
    );
    format!(
        "{in_place} edits in place, {rebuilt} by a rebuild, {refused} refused; {matched} matches compared"
    )
}

/// Compares verdicts, bytes and matches with those of a fresh build in the user engine. Returns how many matches there were.
fn compare(book: &RuleBook, running: &mut dyn Instance, frames: &[Vec<u8>], number: usize) -> u64 {
    let mut fresh = Policy::default();
    for (id, entry) in (1..).zip(book.entries()) {
        let mut rule = entry.rule.clone();
        rule.id = id;
        fresh.rules.push(rule);
    }
    let options = ReplayOptions::default();
    let mut engine =
        weir_engine::open(EngineKind::User, &Arc::new(fresh), &options).expect("a fresh build");
    let before: Vec<Counter> = book.entries().map(|e| running.counter(e.slot)).collect();
    let (mut out, mut live) = (Vec::new(), Vec::new());
    for (n, frame) in (0u64..).zip(frames) {
        let packet = Packet {
            frame,
            now_ns: 1,
            number: n,
            port: 0,
            queue: 0,
        };
        let wanted = engine.packet(&packet, &mut out).expect("runs");
        let found = running.packet(frame, &mut live);
        let summary = weir_packet::summary(frame);
        assert_eq!(found, wanted, "after edit {number}: {summary}");
        if wanted == Verdict::Pass {
            assert_eq!(live, out, "after edit {number}: {summary}");
        }
    }
    let (_, wanted) = engine.totals().expect("counters");
    let mut matched = 0;
    for ((entry, before), wanted) in book.entries().zip(before).zip(wanted) {
        let now = running.counter(entry.slot);
        let found = (now.packets - before.packets, now.bytes - before.bytes);
        let text = &entry.text;
        assert_eq!(
            found,
            (wanted.packets, wanted.bytes),
            "after edit {number}: {text}"
        );
        matched += wanted.packets;
    }
    matched
}

/// A running copy of the data plane whose maps can be written.
pub(crate) trait Instance {
    fn apply(&mut self, step: &Step);
    fn packet(&mut self, frame: &[u8], out: &mut Vec<u8>) -> Verdict;
    fn counter(&mut self, slot: u32) -> Counter;
}

pub(crate) struct InVm {
    machine: Machine,
    frame: Frame,
}

impl InVm {
    pub(crate) fn new(plan: &InstancePlan) -> InVm {
        let mut object = Object::parse(plan.object.bytes().expect("compiled"))
            .expect("the object is well formed");
        for (symbol, bytes) in constants(plan) {
            object.set_rodata(&symbol, &bytes).expect("a constant");
        }
        for map in &plan.maps {
            object
                .set_map_entries(&map.name, map.max_entries)
                .expect("a map");
        }
        let mut vm = InVm {
            machine: object.load(&plan.program).expect("loads"),
            frame: Frame::new(&[]),
        };
        for map in &plan.maps {
            for (key, value) in map.entries() {
                vm.write(&map.name, key, value);
            }
        }
        vm
    }

    fn write(&mut self, map: &str, key: &[u8], value: &[u8]) {
        let map = self.machine.map_mut(map).expect("a map of the program");
        map.update(key, value, BPF_ANY).expect("fits");
    }

    fn patch(&mut self, map: &str, index: u32, at: usize, bytes: &[u8]) {
        let map = self.machine.map_mut(map).expect("a map of the program");
        let value = map.value_mut(&index.to_ne_bytes()).expect("an element");
        value[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

impl Instance for InVm {
    fn apply(&mut self, step: &Step) {
        for write in &step.writes {
            for (index, value) in (write.first..).zip(write.values.chunks_exact(write.width)) {
                self.write(write.map, &index.to_ne_bytes(), value);
            }
        }
        for slot in &step.fresh {
            let all = self
                .machine
                .map("counters")
                .expect("a map")
                .lookup(&slot.to_ne_bytes());
            let zeros = vec![0; all.expect("a slot").len()];
            self.write("counters", &slot.to_ne_bytes(), &zeros);
        }
        if let Some((half, header)) = &step.half {
            let at = offset_of!(LiveWord, half) + half * size_of::<abi::Half>();
            self.patch("live", 0, at, header.as_bytes());
        }
        for &place in &step.ends {
            let at = offset_of!(abi::Rule, dead_from);
            self.patch("rules", place, at, &step.generation.to_ne_bytes());
        }
        self.patch(
            "live",
            0,
            offset_of!(LiveWord, now),
            &step.now.to_ne_bytes(),
        );
    }

    fn packet(&mut self, frame: &[u8], out: &mut Vec<u8>) -> Verdict {
        self.frame.reset(frame);
        let action = self.machine.run_xdp(&mut self.frame, &Env::default());
        out.clear();
        out.extend_from_slice(self.frame.data());
        verdict(action.expect("no fault"))
    }

    fn counter(&mut self, slot: u32) -> Counter {
        let map = self.machine.map("counters").expect("a map of the program");
        let values = map.lookup(&slot.to_ne_bytes()).expect("a slot");
        values.chunks_exact(16).fold(Counter::default(), sum)
    }
}

pub(crate) struct InKernel {
    program: LoadedProgram,
    maps: RuleMaps,
    replay: MmapArray,
}

impl InKernel {
    pub(crate) fn new(plan: &InstancePlan) -> InKernel {
        let mut object = KernelObject::open(plan.object.bytes().expect("compiled"))
            .expect("the object is well formed");
        for (symbol, bytes) in constants(plan) {
            object.set_rodata(&symbol, &bytes).expect("a constant");
        }
        for map in &plan.maps {
            object
                .set_map_entries(&map.name, map.max_entries)
                .expect("a map");
        }
        let program = object.load(&plan.program).expect("loads");
        for map in plan.maps.iter().filter(|map| !map.keys.is_empty()) {
            program
                .update_batch(&map.name, &map.keys, &map.values)
                .expect("filled");
        }
        InKernel {
            maps: RuleMaps::of(&program).expect("mapped"),
            replay: program.mmap_array("replay").expect("mapped"),
            program,
        }
    }
}

impl Instance for InKernel {
    fn apply(&mut self, step: &Step) {
        self.maps.apply(&self.program, step).expect("applied");
    }

    fn packet(&mut self, frame: &[u8], out: &mut Vec<u8>) -> Verdict {
        if frame.len() < 14 || frame.len() > abi::FRAME_MAX {
            return Verdict::Drop;
        }
        self.replay
            .write(0, Replay::default().as_bytes())
            .expect("fits");
        let outcome = self
            .program
            .test_run(frame, out, TestCtx::default())
            .expect("runs");
        verdict(outcome.retval)
    }

    fn counter(&mut self, slot: u32) -> Counter {
        let values = self
            .program
            .lookup_percpu("counters", &slot.to_ne_bytes())
            .expect("a slot");
        values
            .iter()
            .map(Vec::as_slice)
            .fold(Counter::default(), sum)
    }
}

fn constants(plan: &InstancePlan) -> Vec<Constant> {
    let port = PortConstants {
        replay: true,
        ..PortConstants::default()
    };
    plan.constants
        .iter()
        .cloned()
        .chain(port.constants())
        .collect()
}

fn sum(a: Counter, bytes: &[u8]) -> Counter {
    let b = Counter::read_from_bytes(bytes).expect("a counter");
    Counter {
        packets: a.packets + b.packets,
        bytes: a.bytes + b.bytes,
    }
}

fn verdict(action: u32) -> Verdict {
    match action {
        1 => Verdict::Drop,
        2 => Verdict::Pass,
        other => panic!("the middlebox returned {other}"),
    }
}

/// Rules of generated policies, without what depends on a rule's number or on time, as limits do: those beside the plan count on, a
/// fresh build of them begins.
fn pool(runner: &mut TestRunner) -> Vec<Written> {
    let mut pool = Vec::new();
    while pool.len() < 800 {
        for mut one in rules_of(&sample(runner, weir_policy::generate::policy_text())) {
            let steady = |t: &Target| {
                !matches!(
                    t,
                    Target::Drop(
                        DropWhen::Random { .. }
                            | DropWhen::Over { .. }
                            | DropWhen::OverEach { .. }
                            | DropWhen::OverConnections { .. }
                            | DropWhen::Quota { .. }
                            | DropWhen::Answered(_)
                    ) | Target::Log { limit: Some(_), .. }
                )
            };
            let rewrites = |t: &Target| !matches!(t, Target::Drop(_) | Target::Accept);
            // Few that rewrite: many of them could not be collected for one packet.
            let welcome = !one.rule.targets.iter().any(rewrites) || pool.len() % 8 == 0;
            if one.rule.targets.iter().all(steady) && welcome {
                one.rule.name = None;
                one.rule.id = pool.len() as u32 + 1;
                pool.push(one);
            }
        }
    }
    pool
}

pub(crate) fn rules_of(text: &str) -> Vec<Written> {
    match parse(&Source::new("test.weir", text), &FileSets::relative_to(".")) {
        Ok(parsed) => written(&parsed),
        Err(diagnostics) => panic!("{diagnostics}\n{text}"),
    }
}

fn sample<S: Strategy>(runner: &mut TestRunner, strategy: S) -> S::Value {
    strategy.new_tree(runner).expect("a value").current()
}

fn edits_wanted() -> usize {
    let wanted = std::env::var("WEIR_UPDATES")
        .ok()
        .and_then(|n| n.parse().ok());
    wanted.unwrap_or(10_000)
}

pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % n
    }
}
