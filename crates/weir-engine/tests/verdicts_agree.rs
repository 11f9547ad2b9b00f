//! Random programs, judged by weir's verifier and by the kernel's, and run in both engines.
//!
//! A program that weir accepts and the kernel refuses fails the test: an unsound acceptance, or a rule of the kernel that
//! is missing. The other way round is counted by weir's rule and may only be rare. Programs accepted by both run over
//! random frames in the interpreter and in the kernel: verdict, packet and map contents must be equal, and every register
//! must lie in the state the verifier had for it. 3,000 programs; `WEIR_CASES=100000` for the long run. Failing programs
//! shrink and are kept in `verdicts_agree.regressions`; with `WEIR_TRIAGE=1` all differences are collected by kind instead.
//! Known differences: docs/design/verifier.md.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{cases, config};
use crate::programs;
use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestRunner};
use rustix::thread::{CapabilitySet, CpuSet};
use weir_kernel::raw::{RawMap, RawMapSpec, RawProgram};
use weir_vm::verify::{Rejection, VerifyOptions, verify, verify_recording};
use weir_vm::{Env, FaultKind, Frame, Machine, ProgramKind};

#[test]
fn random_programs_get_one_verdict_and_do_the_same() {
    if !rustix::process::geteuid().is_root() {
        assert!(
            std::env::var("CI").as_deref() != Ok("true"),
            "in CI the kernel's verifier must be asked: run as root"
        );
        say("skipped: only root may ask the kernel's verifier");
        return;
    }
    pin_to_first_cpu();
    let cases = cases(3000);
    let bed = RefCell::new(Bed::new());
    let strategy = (
        programs::program(),
        prop::collection::vec(programs::frame(), 4).prop_map(Frames),
    );
    let mut runner = TestRunner::new(config(cases, file!()));
    // All of them, each kind once, instead of the first one shrunk.
    let triage = std::env::var_os("WEIR_TRIAGE").is_some_and(|value| value == "1");
    let result = runner.run(&strategy, |(program, frames)| {
        let mut bed = bed.borrow_mut();
        match bed.judge(&program.code(), &frames.0) {
            Err(failure) if triage => {
                bed.tally.failures.add(kind_of(&failure), failure);
                Ok(())
            }
            verdict => verdict.map_err(TestCaseError::fail),
        }
    });
    let bed = bed.into_inner();
    say(&bed.tally.to_string());
    if let Err(error) = result {
        crate::common::give_up(error);
    }
    assert!(bed.tally.failures.0.is_empty(), "see the list above");
    bed.tally.demand(cases);
}

/// The same programs for tc, whose context and helpers are others: verdicts only.
#[test]
fn random_tc_programs_get_one_verdict() {
    if !rustix::process::geteuid().is_root() {
        assert!(
            std::env::var("CI").as_deref() != Ok("true"),
            "in CI the kernel's verifier must be asked: run as root"
        );
        say("skipped: only root may ask the kernel's verifier");
        return;
    }
    let cases = cases(1000);
    let bed = RefCell::new(Bed::new());
    let mut runner = TestRunner::new(config(cases, file!()));
    let result = runner.run(&programs::program(), |program| {
        let code = programs::for_tc(&program.code());
        let verdict = bed.borrow_mut().judge_tc(&code);
        verdict.map_err(TestCaseError::fail)
    });
    let bed = bed.into_inner();
    say(&bed.tally.to_string());
    if let Err(error) = result {
        crate::common::give_up(error);
    }
    bed.tally.demand(cases);
}

/// Every access to `struct __sk_buff`, of each width, signed or not, read or written, is allowed where the kernel allows it.
#[test]
fn the_fields_of_a_tc_context_are_the_kernels() {
    if !rustix::process::geteuid().is_root() {
        say("skipped: only root may ask the kernel's verifier");
        return;
    }
    let mut wrong = Vec::new();
    // Reads, signed reads, stores of a register and of a constant, by width.
    let opcodes = [
        0x71, 0x69, 0x61, 0x79, 0x91, 0x89, 0x81, 0x73, 0x6b, 0x63, 0x7b, 0x72, 0x6a, 0x62, 0x7a,
    ];
    for opcode in opcodes {
        let reads = opcode & 7 == 1;
        for off in -4i16..200 {
            let (dst, src) = if reads { (0, 1) } else { (1, 2) };
            let mut code = programs::Code::default();
            code.put(0xb7, 2, 0, 0, 1);
            // A store of a constant has no source.
            code.put(opcode, dst, if opcode & 7 == 2 { 0 } else { src }, off, 0);
            code.put(0xb7, 0, 0, 0, 0);
            code.put(0x95, 0, 0, 0, 0);
            let code = code.bytes();
            let own = tc_verdict(&code).is_ok();
            let kernel = RawProgram::load_tc(&code, &[], false).expect("the kernel answers");
            if own != kernel.is_ok() {
                wrong.push(format!("{opcode:#x} at {off}: {own} here"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What stands in fields that an instruction does not use is refused where the kernel refuses it.
#[test]
fn reserved_fields_are_the_kernels() {
    if !rustix::process::geteuid().is_root() {
        say("skipped: only root may ask the kernel's verifier");
        return;
    }
    let mut wrong = Vec::new();
    let mut accepted = 0;
    for opcode in 0..=255u8 {
        // Each field alone, and none; values that mean something to some instruction, too.
        let fields = [0i32, 1, 2, 8, 16, 32, 64];
        let sources = [0u8, 1, 2, 3];
        for (src, off, imm) in sources
            .iter()
            .map(|s| (*s, 0, 0))
            .chain(fields.iter().map(|f| (0, *f as i16, 0)))
            .chain(fields.iter().map(|f| (3, *f as i16, 0)))
            .chain(fields.iter().map(|f| (0, 0, *f)))
            .chain(fields.iter().map(|f| (3, 0, *f)))
        {
            // A 16-byte load needs its second half, and may name maps; legacy packet access is not for XDP.
            let dst = match opcode & 7 {
                0 => continue,
                1..=3 => 10,
                5 if matches!(opcode, 0x05 | 0x85 | 0x95) => 0,
                5 | 6 if matches!(opcode, 0x06 | 0xe5 | 0xe6) => 0,
                _ => 4,
            };
            let mut code = programs::Code::default();
            for register in [0, 2, 3, 4, 5] {
                code.put(0xb7, register, 0, 0, 1);
            }
            code.put(0x7a, 10, 0, -8, 1);
            let (dst, src, off) = match opcode & 7 {
                1 => (4, 10, -8),
                2 | 3 => (dst, src, -8),
                _ => (dst, src, off),
            };
            code.put(opcode, dst, src, off, imm);
            for _ in 0..70 {
                code.put(0xb7, 0, 0, 0, 1);
            }
            code.put(0x95, 0, 0, 0, 0);
            let code = code.bytes();
            let own = xdp_verdict(&code);
            let kernel = RawProgram::load_xdp(&code, &[], false).expect("the kernel answers");
            accepted += usize::from(own.is_ok());
            if own.is_ok() != kernel.is_ok() {
                let why = kernel.err().map(|r| r.line().to_owned());
                wrong.push(format!(
                    "{opcode:#x} src {src} off {off} imm {imm}: here {own:?}, the kernel {why:?}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(accepted > 500, "only {accepted} instructions are accepted");
}

/// Which fields of each kind of socket may be read is what the kernel says.
#[test]
fn the_fields_of_sockets_are_the_kernels() {
    if !rustix::process::geteuid().is_root() {
        say("skipped: only root may ask the kernel's verifier");
        return;
    }
    let mut wrong = Vec::new();
    let mut accepted = 0;
    // The lookup, what is made of its result, and where the load goes: a full socket, any socket, a TCP socket.
    for (helper, cast) in [(84, None), (99, None), (84, Some(96))] {
        for opcode in [0x71u8, 0x69, 0x61, 0x79, 0x91, 0x89, 0x81] {
            for off in -4i16..124 {
                let mut code = programs::Code::default();
                code.put(0x7a, 10, 0, -16, 0);
                code.put(0x7a, 10, 0, -8, 0);
                code.put(0xbf, 2, 10, 0, 0);
                code.put(0x07, 2, 0, 0, -16);
                code.put(0xb7, 3, 0, 0, 12);
                code.put(0xb7, 4, 0, 0, -1);
                code.put(0xb7, 5, 0, 0, 0);
                code.put(0x85, 0, 0, 0, helper);
                let none = code.put(0x15, 0, 0, 0, 0);
                code.put(0xbf, 6, 0, 0, 0);
                code.put(0xbf, 7, 0, 0, 0);
                let null = cast.map(|cast| {
                    code.put(0xbf, 1, 6, 0, 0);
                    code.put(0x85, 0, 0, 0, cast);
                    code.put(0xbf, 7, 0, 0, 0);
                    code.put(0x15, 7, 0, 0, 0)
                });
                code.put(opcode, 8, 7, off, 0);
                if let Some(null) = null {
                    let here = code.here();
                    code.land(null, here);
                }
                code.put(0xbf, 1, 6, 0, 0);
                code.put(0x85, 0, 0, 0, 86);
                let end = code.here();
                code.land(none, end);
                code.put(0xb7, 0, 0, 0, 0);
                code.put(0x95, 0, 0, 0, 0);
                let code = code.bytes();
                let own = tc_verdict(&code);
                let kernel = RawProgram::load_tc(&code, &[], false).expect("the kernel answers");
                accepted += usize::from(own.is_ok());
                if own.is_ok() != kernel.is_ok() {
                    wrong.push(format!(
                        "helpers {helper} and {cast:?}, {opcode:#x} at {off}: here {own:?}"
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(accepted > 100, "only {accepted} loads are accepted");
}

/// weir's verdict about an XDP program: the rule and the words of a rejection.
fn xdp_verdict(code: &[u8]) -> Result<(), (String, String)> {
    verdict_of(ProgramKind::XDP, code)
}

/// weir's verdict about a tc program: the rule and the words of a rejection.
fn tc_verdict(code: &[u8]) -> Result<(), (String, String)> {
    verdict_of(ProgramKind::SchedCls, code)
}

fn verdict_of(kind: ProgramKind, code: &[u8]) -> Result<(), (String, String)> {
    let machine = Machine::from_program_of(kind, code, programs::maps(), 2)
        .map_err(|e| ("load".to_owned(), e.to_string()))?;
    match verify(&machine, "code", &VerifyOptions::default()) {
        Ok(_) => Ok(()),
        Err(rejection) => Err(described(&rejection)),
    }
}

/// Frames that print short.
#[derive(Clone)]
struct Frames(Vec<Vec<u8>>);

impl std::fmt::Debug for Frames {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0
            .iter()
            .try_for_each(|frame| write!(f, "{frame:02x?} "))
    }
}

/// Examples by kind: how many, and the shortest.
#[derive(Default)]
struct Examples(BTreeMap<String, (usize, String)>);

impl Examples {
    fn add(&mut self, kind: String, text: String) {
        let found = self.0.entry(kind).or_insert_with(|| (0, text.clone()));
        found.0 += 1;
        if text.len() < found.1.len() {
            found.1 = text;
        }
    }

    fn count(&self) -> usize {
        self.0.values().map(|(count, _)| count).sum()
    }
}

impl std::fmt::Display for Examples {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|(kind, (count, shortest))| {
            writeln!(f, "{count} times {kind}; the shortest: {shortest}")
        })
    }
}

/// The first line, figures aside.
fn kind_of(failure: &str) -> String {
    let line = failure.lines().next().unwrap_or_default();
    line.chars()
        .take(90)
        .map(|c| if c.is_ascii_digit() { '#' } else { c })
        .collect()
}

/// The kernel's maps, which all programs share, and what came out so far.
struct Bed {
    maps: Vec<RawMap>,
    cpus: u32,
    tally: Tally,
}

/// What came out.
#[derive(Default)]
struct Tally {
    /// Accepted by both.
    accepted: usize,
    /// Refused by both.
    refused: usize,
    /// False rejections by weir's rule.
    false_rejections: Examples,
    /// Disagreements, when they are collected.
    failures: Examples,
    /// Runs compared.
    runs: usize,
    /// Programs whose results depend on addresses or uninitialised stack, which no two engines share.
    incomparable: usize,
    /// Accepted programs whose states were not recorded.
    unwatched: usize,
    /// Registers and stack slots compared with abstract states.
    compared: u64,
}

impl Tally {
    /// The sample must have been worth it.
    fn demand(&self, cases: u32) {
        let cases = cases as usize;
        assert!(
            self.accepted * 6 > cases,
            "too few programs are valid: {self}"
        );
        assert!(
            self.refused * 6 > cases,
            "too few programs are invalid: {self}"
        );
        assert!(
            self.false_rejections.count() * 200 <= cases,
            "more than one in 200 programs is falsely rejected: {self}"
        );
        assert!(
            self.incomparable * 25 <= cases,
            "too few results compare: {self}"
        );
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "accepted by both {}, refused by both {}, falsely rejected {}; runs compared {}, incomparable programs {}; unwatched programs {}, registers in foreseen states {}",
            self.accepted,
            self.refused,
            self.false_rejections.count(),
            self.runs,
            self.incomparable,
            self.unwatched,
            self.compared
        )?;
        write!(f, "false rejections:\n{}", self.false_rejections)?;
        write!(f, "disagreements:\n{}", self.failures)
    }
}

impl Bed {
    fn new() -> Bed {
        let maps: Vec<RawMap> = programs::maps()
            .iter()
            .map(|d| {
                let spec = RawMapSpec {
                    kind: d.kind as u32,
                    key_size: d.key_size,
                    value_size: d.value_size,
                    max_entries: d.max_entries,
                    flags: d.flags,
                };
                RawMap::create(spec).expect("the kernel has the kind of map")
            })
            .collect();
        let percpu = maps.iter().find(|m| m.spec().kind == 6);
        let percpu = percpu.expect("there is a per-CPU array");
        let cpus = percpu.value_bytes() as u32 / percpu.spec().value_size;
        Bed {
            maps,
            cpus,
            tally: Tally::default(),
        }
    }

    fn judge(&mut self, code: &[u8], frames: &[Vec<u8>]) -> Result<(), String> {
        let machine = Machine::from_program(code, programs::maps(), self.cpus);
        let own = machine
            .map_err(|e| ("load".to_owned(), e.to_string()))
            .and_then(|machine| {
                verify(&machine, "code", &VerifyOptions::default())
                    .map_err(|rejection| described(&rejection))
                    .map(|_| machine)
            });
        let kernel = RawProgram::load_xdp(code, &self.maps, false)
            .map_err(|e| format!("the kernel cannot be asked: {e}"))?;
        match (own, kernel) {
            (Err(_), Err(_)) => {
                self.tally.refused += 1;
                Ok(())
            }
            (Ok(_), Err(refusal)) => Err(format!(
                "accepted here, refused by the kernel: {}\n{}",
                refusal.line(),
                programs::listing(code)
            )),
            (Err((rule, words)), Ok(_)) => {
                let text = format!("{words}\n{}", programs::listing(code));
                self.tally.false_rejections.add(rule, text);
                Ok(())
            }
            (Ok(mut machine), Ok(program)) => {
                self.tally.accepted += 1;
                self.run(&mut machine, &program, frames, code)
            }
        }
    }

    fn judge_tc(&mut self, code: &[u8]) -> Result<(), String> {
        let kernel = RawProgram::load_tc(code, &self.maps, false)
            .map_err(|e| format!("the kernel cannot be asked: {e}"))?;
        match (tc_verdict(code), kernel) {
            (Ok(()), Ok(_)) => self.tally.accepted += 1,
            (Err(_), Err(_)) => self.tally.refused += 1,
            (Ok(()), Err(refusal)) => {
                return Err(format!(
                    "accepted here, refused by the kernel: {}\n{}",
                    refusal.line(),
                    programs::listing(code)
                ));
            }
            (Err((rule, words)), Ok(_)) => {
                let text = format!("{words}\n{}", programs::listing(code));
                self.tally.false_rejections.add(rule, text);
            }
        }
        Ok(())
    }

    fn run(
        &mut self,
        machine: &mut Machine,
        program: &RawProgram,
        frames: &[Vec<u8>],
        code: &[u8],
    ) -> Result<(), String> {
        self.reset(machine);
        let options = VerifyOptions::default();
        match verify_recording(machine, "code", &options) {
            Ok((_, recording)) => machine.watch(Arc::new(recording)),
            // The longer walk may use up the budget.
            Err(_) => self.tally.unwatched += 1,
        }
        for (at, bytes) in frames.iter().enumerate() {
            let (verdict, packet) = program
                .test_run(bytes)
                .map_err(|e| format!("the kernel cannot run it: {e}"))?;
            let mut frame = Frame::new(bytes);
            let own = machine.run_xdp(&mut frame, &Env::default());
            if let Err(fault) = &own
                && matches!(fault.kind, FaultKind::Budget { .. })
                && code.as_chunks::<8>().0.iter().any(|slot| slot[0] == 0xe5)
            {
                // A loop that only `may_goto` ends, which the kernel does by the clock.
                self.tally.incomparable += 1;
                return Ok(());
            }
            let own = own.map_err(|fault| {
                format!(
                    "{fault}, in a verified program over {bytes:02x?}\n{}",
                    programs::listing(code)
                )
            })?;
            self.tally.runs += 1;
            if let Some(misfit) = machine.misfit() {
                return Err(format!(
                    "a run in no foreseen state: {misfit}\nover {bytes:02x?}\n{}",
                    programs::listing(code)
                ));
            }
            let maps = self.different_map(machine);
            // The kernel hands back metadata in front of the frame.
            let own_packet = [frame.metadata(), frame.data()].concat();
            if own == verdict && own_packet == packet && maps.is_none() {
                continue;
            }
            if reveals_addresses(code, &self.maps) || self.reads_blank(machine, &frames[..=at]) {
                self.tally.incomparable += 1;
                return Ok(());
            }
            return Err(format!(
                "r0 is {own:#x} here and {verdict:#x} in the kernel, packet {:02x?} and {packet:02x?}, different map: {maps:?}; over {bytes:02x?}\n{}",
                own_packet,
                programs::listing(code)
            ));
        }
        self.tally.compared += machine.watched().map_or(0, |watched| watched.compared);
        Ok(())
    }

    /// Whether the last of some runs depends on bytes of the stack that nobody wrote. To the verifier a helper has written its buffer, also if it
    /// fails and leaves it as it was.
    fn reads_blank(&mut self, machine: &mut Machine, frames: &[Vec<u8>]) -> bool {
        let mut last = |blank: u8| {
            self.reset(machine);
            machine.set_blank_stack(blank);
            let mut end = (None, Vec::new());
            for bytes in frames {
                let mut frame = Frame::new(bytes);
                let verdict = machine.run_xdp(&mut frame, &Env::default());
                end = (verdict.ok(), [frame.metadata(), frame.data()].concat());
            }
            (end, contents(machine))
        };
        last(0) != last(0xa5)
    }

    /// Gives maps their first contents, in the kernel and here.
    fn reset(&mut self, machine: &mut Machine) {
        let definitions = programs::maps();
        for (map, definition) in self.maps.iter_mut().zip(&definitions) {
            if definition.name == "ring" {
                // Nobody reads the kernel's; it would fill up.
                *map = RawMap::create(map.spec()).expect("another ring buffer");
                continue;
            }
            if matches!(definition.name.as_str(), "programs" | "devices") {
                continue;
            }
            if definition.name == "hash" {
                for key in map.keys().expect("keys of the kernel's map") {
                    map.delete(&key).expect("the key can go");
                }
            }
            let keys = if definition.name == "hash" {
                2
            } else {
                definition.max_entries
            };
            for key in 0..keys {
                let key = key.to_le_bytes();
                let value: Vec<u8> = (0..map.value_bytes())
                    .map(|at| (at as u8).wrapping_mul(37) ^ key[0].wrapping_add(3))
                    .collect();
                map.update(&key, &value)
                    .expect("the kernel takes the value");
                let own = machine.map_mut(&definition.name).expect("the map exists");
                own.update(&key, &value, 0)
                    .expect("the map takes the value");
            }
        }
    }

    /// A map with other contents in the kernel.
    fn different_map(&self, machine: &Machine) -> Option<String> {
        for (map, definition) in self.maps.iter().zip(&programs::maps()) {
            if !COMPARED.contains(&definition.name.as_str()) {
                continue;
            }
            let own = machine.map(&definition.name).expect("the map exists");
            let mut keys = map.keys().expect("keys of the kernel's map");
            let mut own_keys: Vec<Vec<u8>> = own.keys().collect();
            keys.sort();
            own_keys.sort();
            let same = |key: &Vec<u8>| map.lookup(key).expect("the key exists") == own.lookup(key);
            if keys != own_keys || !keys.iter().all(same) {
                return Some(definition.name.clone());
            }
        }
        None
    }
}

/// Maps whose contents are compared.
const COMPARED: [&str; 4] = ["array", "hash", "percpu", "one"];

/// What they hold here.
fn contents(machine: &Machine) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let maps = COMPARED.iter().filter_map(|name| machine.map(name));
    let mut all = Vec::new();
    for map in maps {
        let mut keys: Vec<Vec<u8>> = map.keys().collect();
        keys.sort();
        all.extend(keys.into_iter().map(|key| {
            let value = map.lookup(&key);
            (key, value)
        }));
    }
    all
}

/// A rejection's rule and the rest of it.
fn described(rejection: &Rejection) -> (String, String) {
    let rule = format!("{:?}", rejection.rule);
    let name = rule.split([' ', '(', '{']).next().unwrap_or_default();
    (
        name.to_owned(),
        format!("op {}: {rule}", rejection.place.op),
    )
}

/// Whether a program's results can depend on kernel addresses or on what the stack happened to hold: without the
/// capability that allows both, the kernel refuses it.
fn reveals_addresses(code: &[u8], maps: &[RawMap]) -> bool {
    std::thread::scope(|scope| {
        let without_perfmon = scope.spawn(|| {
            let kept = CapabilitySet::BPF | CapabilitySet::NET_ADMIN;
            let mut sets = rustix::thread::capabilities(None).expect("own capabilities");
            sets.effective = kept;
            sets.permitted = kept;
            sets.inheritable = CapabilitySet::empty();
            rustix::thread::set_capabilities(None, sets).expect("capabilities can be dropped");
            RawProgram::load_xdp(code, maps, false).is_ok_and(|verdict| verdict.is_err())
        });
        without_perfmon.join().expect("the thread does not panic")
    })
}

fn pin_to_first_cpu() {
    let mut first = CpuSet::new();
    first.set(0);
    rustix::thread::sched_setaffinity(None, &first).expect("the first CPU is there");
}

#[expect(clippy::print_stdout, reason = "figures of a test")]
fn say(text: &str) {
    println!("{text}");
}
