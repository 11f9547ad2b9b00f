//! How long changes of rules take beside 100,000 rules, and loading these: in the running kernel, without attaching to anything.
//!
//! `cargo run --release -p weir-engine --example update-speed -- [--rules N] [--edits N] [--all-kinds] [--out FILE]`, as root. Edits are those
//! of `weir rule`: one rule added or deleted, or one replaced by another; each is read, planned and switched. Between two edits packets go
//! through the program. With --all-kinds half of the rules are of other kinds (`KINDS`), and each kind has its line: edits that add one.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use weir_engine::live::{RuleMaps, written};
use weir_functions::middlebox::{Edit, RuleBook, Staged};
use weir_functions::plan::{InstancePlan, PortConstants};
use weir_kernel::{KernelObject, LoadedProgram, TestCtx};
use weir_packet::build::Frame;
use weir_policy::{FileSets, Parsed, Source, parse};

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "update-speed: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| {
        let at = arguments.iter().position(|a| a == name);
        at.and_then(|at| arguments.get(at + 1))
    };
    let rules: usize = value("--rules").map_or(Ok(100_000), |n| n.parse())?;
    let edits: usize = value("--edits").map_or(Ok(2_000), |n| n.parse())?;
    let mut out = String::new();
    writeln!(
        out,
        "# {rules} rules; Linux {}; {}; {}; commit {}\n# what\ttimes\tmedian ms\tp99 ms\tlargest ms\tmedian CPU ms\tp99 CPU ms",
        weir_kernel::probes::kernel_release(),
        machine(),
        first_line("date", &["+%F"])?,
        first_line("git", &["rev-parse", "--short", "HEAD"])?,
    )?;

    let all_kinds = arguments.iter().any(|a| a == "--all-kinds");
    let rule = if all_kinds { any_rule } else { plain };
    let mut random = Random(5);
    let rules: String = (0..rules).map(|_| rule(&mut random).1).collect();
    let head = if all_kinds { HEAD } else { "" };
    let text = format!("{head}{rules}");
    let (mut reading, mut planning, mut loading) = (Vec::new(), Vec::new(), Vec::new());
    let mut last = None;
    for _ in 0..3 {
        drop(last.take());
        let began = Time::now()?;
        let parsed = read(&text)?;
        reading.push(began.elapsed()?);
        let began = Time::now()?;
        let (book, plan) = RuleBook::new(written(&parsed), &parsed.policy.connections, &[], false)?;
        planning.push(began.elapsed()?);
        let began = Time::now()?;
        let program = load(&plan)?;
        loading.push(began.elapsed()?);
        last = Some((book, program));
    }
    let sums = (reading.iter().zip(&planning).zip(&loading)).map(|((a, b), c)| Time {
        wall: a.wall + b.wall + c.wall,
        cpu: a.cpu + b.cpu + c.cpu,
    });
    let mut sums: Vec<Time> = sums.collect();
    line(&mut out, "read the policy", &mut reading)?;
    line(&mut out, "plan", &mut planning)?;
    line(&mut out, "load", &mut loading)?;
    line(&mut out, "read, plan and load", &mut sums)?;

    let (mut book, mut program) = last.ok_or("nothing was loaded")?;
    let mut maps = RuleMaps::of(&program)?;
    let mut random = Random(99);
    let (mut adding, mut deleting, mut replacing, mut rebuilds) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut kinds: BTreeMap<&str, Vec<Time>> = BTreeMap::new();
    for number in 0..edits {
        let ids = |book: &RuleBook, n: usize| book.entries().nth(n).map(|e| e.rule.id);
        let (kind, text) = rule(&mut random);
        // Sets stand in the policy that a rule is read with.
        let text = format!("{}{text}", if all_kinds { SETS } else { "" });
        let id = ids(&book, random.below(book.entries().len())).ok_or("no rule")?;
        let began = Time::now()?;
        let add = || -> Result<Vec<Edit>, Failure> {
            let rules = written(&read(&text)?).into_iter();
            Ok(rules.map(|rule| Edit::Add(Box::new(rule))).collect())
        };
        let (edit, times) = match number % 3 {
            0 => (add()?, &mut adding),
            1 => (vec![Edit::Delete(id)], &mut deleting),
            _ => ([vec![Edit::Delete(id)], add()?].concat(), &mut replacing),
        };
        match book.stage(edit)? {
            Staged::InPlace(step) => {
                maps.apply(&program, &step)?;
                book.commit(*step);
                times.push(began.elapsed()?);
            }
            Staged::Rebuild(rebuild) => {
                program = load(&rebuild.plan)?;
                maps = RuleMaps::of(&program)?;
                book.commit_rebuild(*rebuild);
                rebuilds.push(began.elapsed()?);
            }
        }
        if number % 3 != 1 {
            kinds.entry(kind).or_default().push(began.elapsed()?);
        }
        // Packets go on: every edit meets a program that was just used.
        probe(&mut program)?;
    }
    line(&mut out, "add a rule", &mut adding)?;
    line(&mut out, "delete a rule", &mut deleting)?;
    line(&mut out, "replace a rule", &mut replacing)?;
    line(&mut out, "edit that rebuilds", &mut rebuilds)?;
    for (kind, times) in &mut kinds {
        line(&mut out, &format!("add or replace by: {kind}"), times)?;
    }
    let mut any = [adding, deleting, replacing, rebuilds].concat();
    line(&mut out, "any edit", &mut any)?;
    std::io::stdout().write_all(out.as_bytes())?;
    if let Some(file) = value("--out") {
        std::fs::write(file, out)?;
    }
    Ok(())
}

fn line(out: &mut String, what: &str, times: &mut [Time]) -> Result<(), Failure> {
    let sorted = |of: fn(&Time) -> Duration| {
        let mut all: Vec<Duration> = times.iter().map(of).collect();
        all.sort_unstable();
        all
    };
    let (wall, cpu) = (sorted(|t| t.wall), sorted(|t| t.cpu));
    let ms = |all: &[Duration], at: usize| all.get(at).map_or(0.0, |t| t.as_secs_f64() * 1e3);
    let n = times.len();
    let p99 = (n * 99 / 100).min(n.saturating_sub(1));
    writeln!(
        out,
        "{what}\t{n}\t{:.3}\t{:.3}\t{:.3}\t{:.3}\t{:.3}",
        ms(&wall, n / 2),
        ms(&wall, p99),
        ms(&wall, n.saturating_sub(1)),
        ms(&cpu, n / 2),
        ms(&cpu, p99),
    )?;
    Ok(())
}

/// A moment, or what passed since one: on the clock, and of this thread on a CPU, which says more where other programs run.
#[derive(Clone, Copy)]
struct Time<W = Duration> {
    wall: W,
    cpu: Duration,
}

impl Time {
    fn now() -> Result<Time<Instant>, Failure> {
        Ok(Time {
            cpu: on_cpu()?,
            wall: Instant::now(),
        })
    }
}

impl Time<Instant> {
    fn elapsed(&self) -> Result<Time, Failure> {
        let wall = self.wall.elapsed();
        let cpu = on_cpu()?.saturating_sub(self.cpu);
        Ok(Time { wall, cpu })
    }
}

/// Of this thread so far.
fn on_cpu() -> Result<Duration, Failure> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let seconds = Duration::from_secs(time.tv_sec.try_into()?);
    Ok(seconds + Duration::from_nanos(time.tv_nsec.try_into()?))
}

fn load(plan: &InstancePlan) -> Result<LoadedProgram, Failure> {
    let mut object = KernelObject::open(plan.object.bytes().ok_or("no such object")?)?;
    let port = PortConstants::default().constants();
    for (symbol, bytes) in plan.constants.iter().chain(&port) {
        object.set_rodata(symbol, bytes)?;
    }
    for map in &plan.maps {
        object.set_map_entries(&map.name, map.max_entries)?;
    }
    let program = object.load(&plan.program)?;
    for map in plan.maps.iter().filter(|map| !map.keys.is_empty()) {
        program.update_batch(&map.name, &map.keys, &map.values)?;
    }
    Ok(program)
}

fn probe(program: &mut LoadedProgram) -> Result<(), Failure> {
    let frame = Frame::new()
        .ip4([10, 0, 0, 1], [10, 0, 0, 2])
        .tcp(4000, 443);
    program.test_run_repeated(&frame.build(), &mut Vec::new(), TestCtx::default(), 100)?;
    Ok(())
}

fn read(text: &str) -> Result<Parsed, Failure> {
    let source = Source::new("speed.weir", text);
    parse(&source, &FileSets::relative_to(".")).map_err(|d| d.to_string().into())
}

/// Sets of the rules of all kinds.
const SETS: &str = "set bad = dynamic size 1024\n";
/// What stands in front of the rules of all kinds: small tables, and one rule of each kind that 64 rules beside it would not all have.
const HEAD: &str = "set bad = dynamic size 1024\nlimits 64\nip-saddr in @bad tcp-dport 1 drop\n";

/// A rule on prefixes and a port, or one of other kinds; and the kind.
fn any_rule(random: &mut Random) -> (&'static str, String) {
    let from = format!(
        "ip-saddr 10.{}.{}.0/24",
        random.below(256),
        random.below(256)
    );
    let port = random.below(60_000);
    let name = random.below(1 << 30);
    match random.below(22) {
        0 => (
            "rewriting",
            format!("{from} tcp-dport {port} mod ip-dscp {}\n", random.below(64)),
        ),
        1 => ("logging", format!("{from} udp-dport {port} log \"udp\"\n")),
        2 => (
            "stateful",
            format!("add-stateful {from} tcp-dport {port} accept\n"),
        ),
        3 => (
            "NAT",
            format!("add-stateful {from} tcp-dport {port} map ip-saddr 198.51.100.1 accept\n"),
        ),
        4 => (
            "limit",
            format!("{from} tcp-dport {port} drop over 100/s burst 10\n"),
        ),
        5 => (
            "limit for each source",
            format!("{from} tcp-dport {port} drop over 100/s burst 10 per source\n"),
        ),
        6 => (
            "rewriting of an option",
            format!("{from} tcp-dport {port} tcp-opt-mss > 1400 mod tcp-opt-mss 1400\n"),
        ),
        7 => (
            "payload",
            format!("{from} udp-dport {port} udp-payload[2] == x0100 drop\n"),
        ),
        8 => (
            "removal of an option",
            format!(
                "{from} tcp-dport {port} strip tcp-opt {}\n",
                30 + random.below(3)
            ),
        ),
        9 => (
            "dynamic set",
            format!("{from} tcp-dport {port} add @bad source\n"),
        ),
        10 => (
            "chain",
            format!(
                "{from} jump c{name}\nchain c{name} {{\ntcp-dport {port} drop\nudp-dport {port} accept\n}}\n"
            ),
        ),
        _ => plain(random),
    }
}

fn plain(random: &mut Random) -> (&'static str, String) {
    ("stateless", rule(random))
}

/// A rule on prefixes and a port, as network filters have them.
fn rule(random: &mut Random) -> String {
    let mut address = |bits: usize| {
        let all = (random.below(1 << 16) << 16 | random.below(1 << 16)) as u32;
        format!(
            "{}/{bits}",
            std::net::Ipv4Addr::from(all & (u32::MAX << (32 - bits)))
        )
    };
    let (from, to) = (address(24), address(32));
    let port = random.below(60_000);
    match random.below(4) {
        0 => format!("ip-saddr {from} ip-daddr {to} drop\n"),
        1 => format!(
            "ip-saddr {from} ip-daddr {to} tcp-dport {port}-{} drop\n",
            port + 900
        ),
        2 => format!("ip-daddr {to} udp-dport {port} drop\n"),
        _ => format!("ip-saddr {from} ip-daddr {to} tcp-dport {port} accept\n"),
    }
}

fn machine() -> String {
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{cpus} CPUs, {}", std::env::consts::ARCH)
}

fn first_line(program: &str, arguments: &[&str]) -> Result<String, Failure> {
    let output = Command::new(program).args(arguments).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % n
    }
}
