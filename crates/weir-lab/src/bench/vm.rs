//! `weir bench vm`: the user engine beside the running kernel, its own interpreter, and rbpf.
//!
//! All engines take turns in every round. A figure is the CPU time of the calling thread for one packet; from the kernel's
//! test runs the empty program's are subtracted, weir's own figures are whole, the call of the engine included, unless
//! their names end in `net`. No figure here says anything about moving packets, which is not measured.

use std::time::Instant;

use weir_classify::Scheme;
use weir_functions::middlebox::plan_with;
use weir_functions::plan::InstancePlan;
use weir_kernel::{KernelObject, LoadedProgram, TestCtx};
use weir_policy::{FileSets, Source, parse};
use weir_vm::jit::{self, CompileError};
use weir_vm::verify::{VerifyOptions, verify};
use weir_vm::{Env, Frame, Machine, Object};

use super::measure::{CpuClock, Samples};
use super::report::{Absent, Figure, Promise};
use super::testrun::{load, load_baseline};
use super::user::{engine, user_machine};
use super::{Bench, BenchOptions, Outcome, Scale, rules};
use crate::LabError;

/// Hosts in the map of the lookup program.
const HOSTS: u32 = 1024;
/// Packets that a figure is the mean of.
const PACKETS: usize = 8;
/// Rules of the middlebox.
const RULES: usize = 1000;

/// Runs the benchmark of the user engine.
///
/// # Errors
/// When it could not be carried out. Missed targets and what is not available are results.
pub fn vm(options: &BenchOptions<'_>, out: &mut dyn std::io::Write) -> Result<Outcome, LabError> {
    let mut bench = Bench {
        options,
        groups: Vec::new(),
        scale: Scale::of(options),
        outcome: Outcome::new("vm", options.quick),
        out,
    };
    let clock = CpuClock::on(0)?;
    runs(&mut bench, &clock)?;
    preparation(&mut bench, &clock)?;
    bench.progress("")?;
    Ok(bench.outcome)
}

/// Something that runs one packet many times in a row.
pub(super) trait Runner {
    fn run(&mut self, packet: &[u8], times: u32) -> Result<(), LabError>;
}

struct Variant {
    name: String,
    runner: Box<dyn Runner>,
    packets: Vec<Vec<u8>>,
    /// Runs of a packet in a round.
    times: u32,
    ns: Samples,
}

impl Variant {
    fn round(&mut self, clock: &CpuClock) -> Result<(), LabError> {
        let mut means = Samples::default();
        for packet in &self.packets {
            // The first runs warm up, and in the kernel pay for the call.
            self.runner.run(packet, 1 + self.times / 50)?;
            let before = clock.ns();
            self.runner.run(packet, self.times)?;
            means.push((clock.ns() - before) / f64::from(self.times));
        }
        self.ns
            .push(means.0.iter().sum::<f64>() / means.0.len() as f64);
        Ok(())
    }
}

fn runs(bench: &mut Bench<'_>, clock: &CpuClock) -> Result<(), LabError> {
    let times = if bench.scale.quick { 20_000 } else { 200_000 };
    let hosts: Vec<Vec<u8>> = (0..PACKETS as u32)
        .map(|i| question(host(i * 97)))
        .collect();
    let rules = rules::sites(RULES);
    let sites: Vec<Vec<u8>> = rules::packets_matching(&rules, 2, PACKETS)
        .iter()
        .map(|p| p.frame().build())
        .collect();
    let plan = policy_plan(&rules::policy(&rules, "accept"))?;

    let mut variants = Vec::new();
    let mut add = |name: &str, runner: Box<dyn Runner>, packets: &[Vec<u8>], times: u32| {
        variants.push(Variant {
            name: name.to_owned(),
            runner,
            packets: packets.to_vec(),
            times: times.max(100),
            ns: Samples::default(),
        });
    };
    let kernel = |program| {
        Box::new(Kernel {
            program,
            out: Vec::new(),
        })
    };
    add(
        "floor",
        kernel(load_baseline("harness", &[], &[])?),
        &hosts,
        times,
    );
    add("lookup.kernel", kernel(kernel_lookup()?), &hosts, times);
    add("middlebox.kernel", kernel(load(&plan)?), &sites, times / 10);
    add(
        "lookup.interpreter",
        user(user_lookup()?),
        &hosts,
        times / 20,
    );
    add(
        "middlebox.interpreter",
        user(user_machine(&plan)?),
        &sites,
        times / 100,
    );
    if jit::available() {
        add("floor.jit", user(compiled(user_floor()?)?), &hosts, times);
        add("lookup.jit", user(compiled(user_lookup()?)?), &hosts, times);
        add(
            "middlebox.jit",
            user(compiled(user_machine(&plan)?)?),
            &sites,
            times / 10,
        );
    } else {
        bench.refuse(
            "lookup.jit, middlebox.jit",
            "native code needs Linux on x86-64",
        );
    }
    match rbpf() {
        Some(runner) => add("lookup.rbpf", runner?, &hosts, times),
        None => bench.outcome.absent.push(Absent {
            program: "rbpf".to_owned(),
            package: "weir built with `--features rbpf`".to_owned(),
        }),
    }
    bench.say(&format!(
        "{} programs, {} rounds",
        variants.len(),
        bench.scale.rounds
    ))?;
    for round in 0..bench.scale.rounds {
        bench.progress(&format!("round {}", round + 1))?;
        for variant in &mut variants {
            variant.round(clock)?;
        }
    }
    let floor = variants.first().map(|v| v.ns.clone()).unwrap_or_default();
    for variant in &variants {
        let net = variant.name.ends_with(".kernel");
        let samples = if net {
            variant.ns.minus(&floor)
        } else {
            variant.ns.clone()
        };
        bench.figure(Figure::new(&variant.name, "ns/packet", samples));
    }
    let of = |name: &str| variants.iter().find(|v| v.name == name).map(|v| &v.ns);
    if let (Some(whole), Some(empty)) = (of("lookup.jit"), of("floor.jit")) {
        bench.figure(Figure::new(
            "lookup.jit.net",
            "ns/packet",
            whole.minus(empty),
        ));
    }
    let outcome = &mut bench.outcome;
    outcome.compare("lookup.jit", "lookup.kernel", Promise::AtMost(0.5));
    outcome.compare("lookup.jit.net", "lookup.kernel", Promise::Reported);
    outcome.compare("lookup.rbpf", "lookup.jit", Promise::AtLeast(2.0));
    outcome.compare("lookup.interpreter", "lookup.jit", Promise::Reported);
    outcome.compare("middlebox.jit", "middlebox.kernel", Promise::AtMost(0.7));
    outcome.compare("middlebox.interpreter", "middlebox.jit", Promise::Reported);
    Ok(())
}

/// Verifying and compiling the largest object there is: the middlebox with every feature.
fn preparation(bench: &mut Bench<'_>, clock: &CpuClock) -> Result<(), LabError> {
    let (mut verified, mut compiled, mut kernel) =
        (Samples::default(), Samples::default(), Samples::default());
    let mut size = (0, 0);
    for round in 0..bench.scale.rounds {
        bench.progress(&format!("preparation, round {}", round + 1))?;
        let mut object = Object::parse(middlebox()).map_err(engine)?;
        let mut other = KernelObject::open(middlebox())?;
        for (symbol, value) in everything() {
            object
                .set_rodata(symbol, &value.to_ne_bytes())
                .map_err(engine)?;
            other.set_rodata(symbol, &value.to_ne_bytes())?;
        }
        let before = clock.ns();
        let program = other.load("middlebox")?;
        kernel.push((clock.ns() - before) / 1e6);
        drop(program);

        let mut machine = object.load("middlebox").map_err(engine)?;
        let before = clock.ns();
        let proof = verify(&machine, "middlebox", &VerifyOptions::default())
            .map_err(|e| engine(CompileError::Rejected(e)))?;
        verified.push((clock.ns() - before) / 1e6);
        if jit::available() {
            let started = Instant::now();
            machine.compile(&[&proof]).map_err(engine)?;
            compiled.push(started.elapsed().as_secs_f64() * 1e3);
        }
        size = (proof.processed, machine.native_bytes());
    }
    let note = format!(
        "largest object: {} instructions walked, {} bytes of native code; verify.kernel is the whole load",
        size.0, size.1
    );
    bench.note(note);
    bench.figure(Figure::new("verify.kernel", "ms", kernel));
    bench.figure(Figure::new("verify.weir", "ms", verified));
    if jit::available() {
        bench
            .outcome
            .bound(Figure::new("compile.jit", "ms", compiled), 5.0);
    }
    let outcome = &mut bench.outcome;
    outcome.compare("verify.weir", "verify.kernel", Promise::AtMost(1.0));
    Ok(())
}

fn middlebox() -> &'static [u8] {
    weir_bpf::object("middlebox").unwrap_or_default()
}

/// Constants with which nothing is left out.
fn everything() -> [(&'static str, u32); 2] {
    use weir_bpf::abi::{DIMS, feature as f};
    let features = f::TCPOPT
        | f::SLOTS
        | f::REWRITE
        | f::OPTION_OPS
        | f::PAYLOAD_OPS
        | f::LOG
        | f::STATE
        | f::TRANSLATE
        | f::NAT
        | f::SEQUENCE;
    [("weir_features", features), ("weir_dims", DIMS as u32)]
}

fn policy_plan(text: &str) -> Result<InstancePlan, LabError> {
    let bad = |why: String| LabError::Policy {
        name: "vm".to_owned(),
        why,
    };
    let source = Source::new("bench.weir", text);
    let policy = parse(&source, &FileSets::relative_to("."))
        .map_err(|diagnostics| bad(diagnostics.to_string()))?
        .policy;
    let planned = plan_with(&policy, &[], Scheme::Merged);
    Ok(planned.map_err(|error| bad(error.to_string()))?.0)
}

struct Kernel {
    program: LoadedProgram,
    out: Vec<u8>,
}

impl Runner for Kernel {
    fn run(&mut self, packet: &[u8], times: u32) -> Result<(), LabError> {
        let context = TestCtx::default();
        self.program
            .test_run_repeated(packet, &mut self.out, context, times)?;
        Ok(())
    }
}

fn kernel_lookup() -> Result<LoadedProgram, LabError> {
    let program = load_baseline("lookup", &[], &[])?;
    let keys: Vec<u8> = (0..HOSTS).flat_map(|i| host(i).to_be_bytes()).collect();
    program.update_batch("hosts", &keys, &vec![0; HOSTS as usize * 8])?;
    Ok(program)
}

/// A machine of the user engine.
struct User {
    machine: Machine,
    frame: Frame,
    env: Env,
}

fn user(machine: Machine) -> Box<dyn Runner> {
    Box::new(User {
        machine,
        frame: Frame::new(&[]),
        env: Env::default(),
    })
}

impl Runner for User {
    fn run(&mut self, packet: &[u8], times: u32) -> Result<(), LabError> {
        self.frame.reset(packet);
        for _ in 0..times {
            self.machine
                .run_xdp(&mut self.frame, &self.env)
                .map_err(engine)?;
        }
        Ok(())
    }
}

/// The empty program: what a run of the user engine costs by itself.
fn user_floor() -> Result<Machine, LabError> {
    let object = Object::parse(weir_bpf::baseline("harness").unwrap_or_default());
    object.map_err(engine)?.load("harness").map_err(engine)
}

fn user_lookup() -> Result<Machine, LabError> {
    let object = Object::parse(weir_bpf::baseline("lookup").unwrap_or_default()).map_err(engine)?;
    let mut machine = object.load("lookup").map_err(engine)?;
    if let Some(map) = machine.map_mut("hosts") {
        for i in 0..HOSTS {
            map.update(&host(i).to_be_bytes(), &[0; 8], 0)
                .map_err(engine)?;
        }
    }
    Ok(machine)
}

fn compiled(mut machine: Machine) -> Result<Machine, LabError> {
    machine
        .verify_and_compile(&VerifyOptions::default())
        .map_err(engine)?;
    Ok(machine)
}

fn host(number: u32) -> u32 {
    0x0a00_0000 + number % HOSTS
}

/// A DNS question to a host.
fn question(to: u32) -> Vec<u8> {
    rules::Packet {
        source: 0xc0a8_0001,
        destination: to,
        protocol: rules::UDP,
        sport: 40_000,
        dport: 53,
        flags: 0,
    }
    .frame()
    .build()
}

#[cfg(not(feature = "rbpf"))]
fn rbpf() -> Option<Result<Box<dyn Runner>, LabError>> {
    None
}

#[cfg(feature = "rbpf")]
fn rbpf() -> Option<Result<Box<dyn Runner>, LabError>> {
    Some(super::rbpf::lookup((0..HOSTS).map(host)).map(|r| Box::new(r) as Box<dyn Runner>))
}
