//! What a packet costs in the classifier, in the running kernel: growing numbers of rules, masks and option rules, against one
//! table for each mask.
//!
//! `cargo run --release -p weir-engine --example classifier-speed [-- --quick] [-- --out FILE]`, as root. Rules come from a fixed generator.
//! Packets are chosen to match the same number of rules in every size. Variants run in turn in every round; medians are printed, in ns
//! a packet, net of the harness. *hot*: each packet many times in a row. *random*: every packet once in turn, so that its rules
//! are not in the caches (the kernel's set-up of each run is part of that figure).

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, ExitCode};
use std::time::Instant;

use weir_classify::Scheme;
use weir_functions::middlebox::plan_with;
use weir_functions::plan::{InstancePlan, PortConstants};
use weir_kernel::{KernelObject, LoadedProgram, TestCtx};
use weir_packet::build::Frame;
use weir_policy::model::Policy;
use weir_policy::{FileSets, Source, parse};

/// ns a test run takes around a program that does nothing.
const HARNESS: f64 = 7.0;
/// Packets repeated in a row for the hot figure.
const HOT: usize = 64;

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "classifier-speed: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let quick = arguments.iter().any(|a| a == "--quick");
    let out = (arguments.iter().position(|a| a == "--out")).and_then(|at| arguments.get(at + 1));
    let (rounds, repeat) = if quick { (1, 200) } else { (5, 2000) };
    let mut variants = variants()?;
    for _ in 0..rounds {
        for variant in &mut variants {
            variant.measure(repeat)?;
        }
    }
    let text = report(&mut variants)?;
    std::io::stdout().write_all(text.as_bytes())?;
    if let Some(file) = out {
        std::fs::write(file, text)?;
    }
    Ok(())
}

fn variants() -> Result<Vec<Variant>, Failure> {
    use Scheme::{Merged, TablePerMask};
    let some = tuple_packets(&tuples(1000), 2);
    let mut variants = vec![Variant::new("no rules", "", &some, Merged)?];
    for size in [1000, 10_000, 100_000] {
        let rules = tuples(size);
        let text = tuple_text(&rules);
        let packets = tuple_packets(&rules, 2);
        let name = format!("{size} rules");
        variants.push(Variant::new(&name, &text, &packets, Merged)?);
        let name = format!("{size} rules, table per mask");
        variants.push(Variant::new(&name, &text, &packets, TablePerMask)?);
    }
    for masks in [26, 1000] {
        let rules = by_mask(masks);
        let text = tuple_text(&rules);
        let packets = tuple_packets(&rules, 2);
        let name = format!("{masks} masks");
        variants.push(Variant::new(&name, &text, &packets, Merged)?);
        let name = format!("{masks} masks, table per mask");
        variants.push(Variant::new(&name, &text, &packets, TablePerMask)?);
    }
    for (count, kind) in [
        (10, "values"),
        (10_000, "values"),
        (10, "ranges"),
        (1000, "ranges"),
    ] {
        let (text, packets) = options(count, kind == "ranges");
        let name = format!("{count} option {kind}");
        variants.push(Variant::new(&name, &text, &packets, Merged)?);
    }
    Ok(variants)
}

fn report(variants: &mut [Variant]) -> Result<String, Failure> {
    let mut text = format!(
        "# ns a packet, net of {HARNESS} ns harness; Linux {}; {}; {}\n# variant\ttables\tat most probed\tat most compared\thot\trandom\tplan ms\tload ms\n",
        weir_kernel::probes::kernel_release(),
        first_line(
            &std::env::var("WEIR_CLANG").unwrap_or_else(|_| "clang".to_owned()),
            "--version"
        )?,
        first_line("date", "+%F")?,
    );
    for v in &mut *variants {
        let (hot, random) = (median(&mut v.hot), median(&mut v.random));
        writeln!(
            text,
            "{}\t{}\t{}\t{}\t{hot:.0}\t{random:.0}\t{:.0}\t{:.0}",
            v.name, v.tables, v.probes, v.candidates, v.plan_ms, v.load_ms
        )?;
    }
    let mut cost = |name: &str| -> Result<(f64, f64), Failure> {
        let found = variants.iter_mut().find(|v| v.name == name);
        let found = found.ok_or("a variant is missing")?;
        Ok((median(&mut found.hot), median(&mut found.random)))
    };
    for (a, b, target) in [
        ("100000 rules", "1000 rules", "at most 2"),
        ("1000 masks", "26 masks", "at most 2"),
        ("10000 option values", "10 option values", "at most 1.2"),
        ("1000 option ranges", "10 option ranges", "at most 1.5"),
        (
            "100000 rules, table per mask",
            "100000 rules",
            "at least 10",
        ),
        ("1000 masks, table per mask", "1000 masks", "no target"),
    ] {
        let ((hot_a, random_a), (hot_b, random_b)) = (cost(a)?, cost(b)?);
        writeln!(
            text,
            "# {a} / {b}: {:.2} hot, {:.2} random ({target})",
            hot_a / hot_b,
            random_a / random_b
        )?;
    }
    Ok(text)
}

/// A policy in the kernel, with packets for it.
struct Variant {
    name: String,
    program: LoadedProgram,
    packets: Vec<Vec<u8>>,
    tables: usize,
    probes: usize,
    candidates: usize,
    plan_ms: f64,
    load_ms: f64,
    hot: Vec<f64>,
    random: Vec<f64>,
}

impl Variant {
    fn new(
        name: &str,
        text: &str,
        packets: &[Vec<u8>],
        scheme: Scheme,
    ) -> Result<Variant, Failure> {
        if packets.len() < HOT {
            let found = packets.len();
            return Err(format!("{name}: {found} packets match as many rules as wanted").into());
        }
        let policy = policy(text)?;
        let started = Instant::now();
        let (plan, bounds) = plan_with(&policy, &[], scheme)?;
        let planned = started.elapsed();
        let started = Instant::now();
        let program = load(&plan)?;
        Ok(Variant {
            name: name.to_owned(),
            program,
            packets: packets.to_vec(),
            tables: bounds.tables,
            probes: bounds.probes,
            candidates: bounds.candidates,
            plan_ms: planned.as_secs_f64() * 1e3,
            load_ms: started.elapsed().as_secs_f64() * 1e3,
            hot: Vec::new(),
            random: Vec::new(),
        })
    }

    /// One round: means over the packets.
    fn measure(&mut self, repeat: u32) -> Result<(), Failure> {
        let mut out = Vec::new();
        let mut sum = |packets: &[Vec<u8>], repeat| -> Result<f64, Failure> {
            let mut sum = 0.0;
            for packet in packets {
                let ctx = TestCtx::default();
                let outcome = self
                    .program
                    .test_run_repeated(packet, &mut out, ctx, repeat)?;
                sum += outcome.duration.as_nanos() as f64 - HARNESS;
            }
            Ok(sum / packets.len() as f64)
        };
        self.hot.push(sum(&self.packets[..HOT], repeat)?);
        self.random.push(sum(&self.packets, 1)?);
        Ok(())
    }
}

fn load(plan: &InstancePlan) -> Result<LoadedProgram, Failure> {
    let mut object = KernelObject::open(weir_bpf::object(plan.object).ok_or("no such object")?)?;
    let port = PortConstants::default().constants();
    for (symbol, bytes) in plan.constants.iter().chain(&port) {
        object.set_rodata(symbol, bytes)?;
    }
    for map in &plan.maps {
        object.set_map_entries(map.name, map.max_entries)?;
    }
    let program = object.load(plan.program)?;
    for map in plan.maps.iter().filter(|map| !map.keys.is_empty()) {
        program.update_batch(map.name, &map.keys, &map.values)?;
    }
    Ok(program)
}

fn policy(text: &str) -> Result<Policy, Failure> {
    match parse(
        &Source::new("speed.weir", text),
        &FileSets::relative_to("."),
    ) {
        Ok(parsed) => Ok(parsed.policy),
        Err(diagnostics) => Err(diagnostics.to_string().into()),
    }
}

/// A five-tuple rule.
#[derive(Clone, Copy)]
struct Tuple {
    source: (u32, u32),
    destination: (u32, u32),
    /// 6, 17, or 0 for any; ports only with the first two.
    protocol: u8,
    sport: (u16, u16),
    dport: (u16, u16),
}

struct Packet {
    source: u32,
    destination: u32,
    protocol: u8,
    sport: u16,
    dport: u16,
}

impl Tuple {
    fn matches(&self, p: &Packet) -> bool {
        let inside = |(network, bits): (u32, u32), address: u32| address & mask(bits) == network;
        inside(self.source, p.source)
            && inside(self.destination, p.destination)
            && (self.protocol == 0 || self.protocol == p.protocol)
            && (self.sport.0..=self.sport.1).contains(&p.sport)
            && (self.dport.0..=self.dport.1).contains(&p.dport)
    }
}

/// Any port.
const ANY: (u16, u16) = (0, u16::MAX);

/// Rules structured as filters of networks are: prefixes within sites whose number grows with the set, well-known ports, some
/// ranges, few short prefixes; behind them one rule each for all of TCP and UDP, so that every packet matches two.
fn tuples(count: usize) -> Vec<Tuple> {
    let mut random = Random(42);
    let sites: Vec<u32> = (0..40 + count / 100)
        .map(|_| random.address() & mask(16))
        .collect();
    let side = |random: &mut Random| {
        let site = sites[random.below(sites.len())];
        let bits = match random.below(1000) {
            0..4 => [8, 12, 14, 16][random.below(4)],
            4..300 => 17 + random.below(7) as u32,
            300..750 => 24 + random.below(8) as u32,
            _ => 32,
        };
        ((site | random.address() & 0xffff) & mask(bits), bits)
    };
    (2..count)
        .map(|_| {
            let protocol = [6, 6, 6, 6, 6, 17, 17, 17, 0][random.below(9)];
            let well_known = [22, 25, 53, 80, 110, 123, 143, 443, 993, 3306, 5432, 8080];
            let port = random.next() as u16;
            let dport = match random.below(100) {
                _ if protocol == 0 => ANY,
                0..20 => ANY,
                20..75 => [well_known[random.below(12)]; 2].into(),
                75..90 => {
                    [(1024, u16::MAX), (6000, 6063), (33_434, 33_600), (0, 1023)][random.below(4)]
                }
                _ => (port, port),
            };
            let sport = match random.below(100) {
                0..5 if protocol != 0 => (1024, u16::MAX),
                _ => ANY,
            };
            Tuple {
                source: side(&mut random),
                destination: side(&mut random),
                protocol,
                sport,
                dport,
            }
        })
        .chain([everything(6), everything(17)])
        .collect()
}

fn everything(protocol: u8) -> Tuple {
    Tuple {
        source: (0, 0),
        destination: (0, 0),
        protocol,
        sport: ANY,
        dport: ANY,
    }
}

/// 2,000 rules of so many pairs of prefix lengths, spread over all pairs, and one short rule that makes every packet match two.
fn by_mask(masks: usize) -> Vec<Tuple> {
    let mut random = Random(7);
    let pairs: Vec<(u32, u32)> = (8..=32)
        .flat_map(|s| (1..=40).map(move |d| (s, d)))
        .collect();
    (0..2000)
        .map(|i| {
            let (s, d) = pairs[(i % masks) * pairs.len() / masks];
            // Beyond 32 the pair differs in protocol instead.
            let (d, protocol) = if d > 32 { (d - 8, 6) } else { (d, 0) };
            Tuple {
                source: (random.address() & mask(s), s),
                destination: (random.address() & mask(d), d),
                protocol,
                sport: ANY,
                dport: ANY,
            }
        })
        .chain([everything(6)])
        .collect()
}

fn tuple_text(rules: &[Tuple]) -> String {
    let mut text = String::new();
    for rule in rules {
        for (field, (network, bits)) in [("saddr", rule.source), ("daddr", rule.destination)] {
            let network = std::net::Ipv4Addr::from(network);
            let _ = write!(text, "ip-{field} {network}/{bits} ");
        }
        let name = match rule.protocol {
            6 => "tcp",
            17 => "udp",
            _ => "",
        };
        if !name.is_empty() {
            let _ = write!(text, "ip-proto {name} ");
        }
        for (field, (lo, hi)) in [("sport", rule.sport), ("dport", rule.dport)] {
            if (lo, hi) != ANY {
                let _ = write!(text, "{name}-{field} {lo}-{hi} ");
            }
        }
        text.push_str("accept\n");
    }
    text
}

/// Up to 1,000 packets that match just so many rules.
fn tuple_packets(rules: &[Tuple], matching: usize) -> Vec<Vec<u8>> {
    let mut random = Random(1234);
    let mut packets = Vec::new();
    for _ in 0..20_000 {
        let rule = rules[random.below(rules.len())];
        let bits = random.address();
        let other = random.address();
        let port = |(lo, hi): (u16, u16), by: u64| lo + (by % (u64::from(hi - lo) + 1)) as u16;
        let packet = Packet {
            source: rule.source.0 | bits & !mask(rule.source.1),
            destination: rule.destination.0 | other & !mask(rule.destination.1),
            protocol: if rule.protocol == 0 { 6 } else { rule.protocol },
            sport: port(rule.sport, random.next()),
            dport: port(rule.dport, random.next()),
        };
        let met = rules.iter().filter(|r| r.matches(&packet));
        if met.take(matching + 1).count() != matching {
            continue;
        }
        let frame = Frame::new().ip4(
            packet.source.to_be_bytes(),
            packet.destination.to_be_bytes(),
        );
        packets.push(match packet.protocol {
            17 => frame.udp(packet.sport, packet.dport).build(),
            _ => frame.tcp(packet.sport, packet.dport).build(),
        });
        if packets.len() == 1000 {
            break;
        }
    }
    packets
}

/// Rules on the value of one option; each packet matches one.
fn options(count: usize, ranges: bool) -> (String, Vec<Vec<u8>>) {
    let mut text = String::new();
    let step = 60_000 / count;
    for at in (0..count).map(|i| i * step) {
        // The ranges are no prefixes, which would be exact keys.
        let _ = match ranges {
            true => writeln!(text, "tcp-opt-mss {}-{} accept", at + 1, at + step - 3),
            false => writeln!(text, "tcp-opt-mss {at} accept"),
        };
    }
    let packets = (0..1000)
        .map(|i| {
            let mss = (i * 7919 % count * step + if ranges { step / 2 } else { 0 }) as u16;
            Frame::new()
                .ip4([10, 0, 0, 1], [10, 0, 0, 2])
                .tcp(4000, 443)
                .flags(Frame::SYN)
                .tcp_option(2, &mss.to_be_bytes())
                .tcp_option(4, &[])
                .tcp_option(8, &[0, 0, 0, 1, 0, 0, 0, 0])
                .tcp_option(3, &[7])
                .build()
        })
        .collect();
    (text, packets)
}

fn mask(bits: u32) -> u32 {
    u32::MAX.checked_shl(32 - bits).unwrap_or(0)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn first_line(command: &str, argument: &str) -> Result<String, Failure> {
    let output = Command::new(command).arg(argument).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// An address outside 0/8 and the multicast end.
    fn address(&mut self) -> u32 {
        self.next() as u32 % 0xd000_0000 + 0x0100_0000
    }
}
