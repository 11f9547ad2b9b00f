//! `weir bench router`: routing by the kernel, by the least XDP program that asks the kernel's table, and by weir's router with the kernel's table and with
//! its own; with one route and with a table of the Internet's size, to one destination and to many.
//!
//! A packet's cost is measured in ns of CPU time through a box, net of generating it; all variants take turns in every round. Invariant: a variant
//! that loses a packet or forwards one wrongly has no figure.

pub(crate) mod bed;
mod changes;
pub(crate) mod table;
mod traffic;
mod variant;

use std::io::Write;
use std::time::Instant;

use self::bed::{BEHIND, Bed, INSIDE};
use self::table::Prefix;
use self::traffic::Traffic;
use self::variant::{Packets, Variant};
use super::edge::{End, Function, Standing};
use super::measure::Samples;
use super::report::{Figure, Promise};
use super::testrun::load_baseline;
use super::xdp::select;
use super::{Bench, BenchOptions, Outcome, Scale};
use crate::LabError;
use crate::process::{Scratch, missing};
use rustix::time::{ClockId, clock_gettime};
use weir_kernel::iface;

/// Figures that are measured or left out together.
const GROUPS: [&str; 3] = ["router.one", "router.full", "router.changes"];
/// Destinations, as the paper counted them.
const DESTINATIONS: [usize; 4] = [1, 100, 4000, 20_000];
const QUICK_DESTINATIONS: [usize; 2] = [1, 4000];
/// Targets: the kernel's forwarding over weir's with the kernel's table; the full table over one route; seconds until a full table forwards.
const OVER_KERNEL: f64 = 2.5;
const FULL_OVER_ONE: f64 = 1.3;
const LOAD: f64 = 5.0;

/// Runs the benchmark of the router, tells about it on `out`.
///
/// # Errors
/// When it could not be carried out. Missed targets, missing peers and refused figures are results.
pub fn router(options: &BenchOptions<'_>, out: &mut dyn Write) -> Result<Outcome, LabError> {
    let groups = select(&GROUPS, &options.only)?;
    let mut bench = Bench {
        options,
        groups: Vec::new(),
        scale: Scale::of(options),
        outcome: Outcome::new("router", options.quick),
        out,
    };
    let full = match options.quick {
        true => table::FULL_QUICK,
        false => table::FULL,
    };
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let prefixes = table::prefixes(full);
    let scratch = Scratch::create("weir-router")?;
    let foreign = missing(&["xdp-forward"]).is_empty();
    if !foreign {
        // Debian 12's xdp-tools, 1.3.1, is without it.
        bench.absent("xdp-forward", "xdp-tools, from 1.4.0 on");
    }
    let mut make = Maker {
        bench: &mut bench,
        scratch: &scratch,
        beds: Vec::new(),
        packets: Vec::new(),
        variants: Vec::new(),
        addresses: table::addresses(&prefixes),
        prefixes,
        foreign,
        cpu: cpus - 1,
    };
    make.bench.note(format!(
        "the full table has {full} IPv4 prefixes drawn from a seed, with the shares of lengths of Internet tables, and {} next hops",
        table::HOPS
    ));
    if groups.contains(&"router.one") {
        make.one()?;
    }
    if groups.contains(&"router.full") {
        make.full()?;
    }
    if !make.variants.is_empty() {
        make.measure()?;
    }
    if groups.contains(&"router.changes") {
        changes::run(make.bench, &scratch, &make.prefixes, cpus)?;
    }
    targets(&mut bench, full);
    bench.progress("")?;
    Ok(bench.outcome)
}

struct Maker<'x, 'b> {
    bench: &'x mut Bench<'b>,
    scratch: &'x Scratch,
    beds: Vec<Bed>,
    packets: Vec<Packets>,
    variants: Vec<Variant>,
    prefixes: Vec<Prefix>,
    /// One of each prefix.
    addresses: Vec<u32>,
    /// xdp-forward is installed.
    foreign: bool,
    cpu: usize,
}

/// What routes, by its series: `None`: no function of weir's.
type Routes = (&'static str, Option<Function>);

/// Loads xdp-forward onto both interfaces. It pins by names, whatever the network namespace: a file system of its own, which ends with the shell, keeps
/// several of them, and others' of the host, apart.
const XDP_FORWARD: &str = r#"
set -e
mount --make-rprivate /
mount -t bpf bpf /sys/fs/bpf
xdp-forward load -f fib -F direct "$1" "$2"
"#;

/// CPU time of this process so far, in ns.
fn process_ns() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// weir's router with the kernel's tables.
fn by_kernel_tables() -> Function {
    Function {
        kind: "router",
        keys: "table = \"kernel\"\n".to_owned(),
        files: Vec::new(),
    }
}

impl Maker<'_, '_> {
    fn counts(&self) -> &'static [usize] {
        match self.bench.scale.quick {
            true => &QUICK_DESTINATIONS,
            false => &DESTINATIONS,
        }
    }

    fn all(&self, own: Function) -> Vec<Routes> {
        let mut all = vec![
            ("kernel", None),
            ("minimal", None),
            ("fib", Some(by_kernel_tables())),
            ("own", Some(own)),
        ];
        if self.foreign {
            all.push(("xdp-forward", None));
        }
        all
    }

    /// Everything over one route of each family.
    fn one(&mut self) -> Result<(), LabError> {
        let own = table::own(&[], BEHIND);
        for (series, function) in self.all(own) {
            self.bench.progress(&format!("building one.{series}"))?;
            let Some((bed, edge)) = self.bed(&format!("router.one.{series}"), series, function)?
            else {
                continue;
            };
            let mut edge = edge;
            for ipv6 in [false, true] {
                for &n in self.counts() {
                    let packets = self.packets(ipv6, n)?;
                    self.add(&format!("router.one.{series}"), bed, packets, edge.take());
                }
            }
        }
        Ok(())
    }

    /// IPv4 over the full table; the largest figure goes to all of its prefixes.
    fn full(&mut self) -> Result<(), LabError> {
        let lines = table::lines(&self.prefixes, BEHIND, "route add ");
        let own = table::own(&self.prefixes, BEHIND);
        for (series, function) in self.all(own) {
            self.bench.progress(&format!("building full.{series}"))?;
            if let Some(function) = &function
                && !function.is_known()
            {
                self.bench
                    .refuse(&format!("router.full.{series}"), "this build has no router");
                continue;
            }
            let bed = Bed::build(self.scratch)?;
            if series != "own" {
                let start = Instant::now();
                bed::batch(&bed.middle, self.scratch, &lines)?;
                if series == "kernel" {
                    self.load_time("kernel.seconds", start.elapsed().as_secs_f64());
                }
            }
            let (start, cpu) = (Instant::now(), process_ns());
            let stood = self.stand(&format!("router.full.{series}"), bed, series, function)?;
            let Some((bed, edge)) = stood else {
                continue;
            };
            if series == "own" {
                self.load_time("own.cpu", (process_ns() - cpu) / 1e9);
                let seconds = Samples(vec![start.elapsed().as_secs_f64()]);
                let figure = Figure::new("router.load.own.seconds", "s", seconds);
                self.bench.outcome.bound(figure, LOAD);
            }
            let mut edge = edge;
            let all = self.addresses.len();
            for n in self.counts().iter().copied().chain([all]) {
                let packets = self.packets(false, n)?;
                self.add(&format!("router.full.{series}"), bed, packets, edge.take());
            }
        }
        Ok(())
    }

    fn load_time(&mut self, what: &str, seconds: f64) {
        let name = format!("router.load.{what}");
        self.bench
            .figure(Figure::new(name, "s", Samples(vec![seconds])));
    }

    fn bed(
        &mut self,
        name: &str,
        series: &str,
        function: Option<Function>,
    ) -> Result<Option<(usize, Option<Standing>)>, LabError> {
        let bed = Bed::build(self.scratch)?;
        self.stand(name, bed, series, function)
    }

    /// Puts onto a bed what routes there.
    fn stand(
        &mut self,
        name: &str,
        mut bed: Bed,
        series: &str,
        function: Option<Function>,
    ) -> Result<Option<(usize, Option<Standing>)>, LabError> {
        if series == "minimal" {
            let program = load_baseline("xdp_fib", &[], &[])?;
            bed.middle.run(|| {
                let behind = iface::index_of(BEHIND)?.to_ne_bytes();
                program.update("devices", &behind, &behind, 0)
            })??;
            bed.attach(&program)?;
        }
        if series == "xdp-forward" {
            let script = ["-m", "sh", "-c", XDP_FORWARD, "sh", INSIDE, BEHIND];
            if let Err(error) = bed.middle.output("unshare", &script) {
                self.bench.refuse(name, &error.to_string());
                return Ok(None);
            }
        }
        let mut edge = None;
        if let Some(function) = function {
            if !function.is_known() {
                self.bench.refuse(name, "this build has no router");
                return Ok(None);
            }
            let stood =
                Standing::apply_all(&bed.middle, &[INSIDE], &[BEHIND], &[function], End::Stack);
            match stood {
                Ok(standing) => edge = Some(standing),
                Err(error) => {
                    self.bench.refuse(name, &error.to_string());
                    return Ok(None);
                }
            }
        }
        self.beds.push(bed);
        Ok(Some((self.beds.len() - 1, edge)))
    }

    fn packets(&mut self, ipv6: bool, count: usize) -> Result<usize, LabError> {
        let same = |p: &Packets| p.ipv6 == ipv6 && p.count == count;
        if let Some(at) = self.packets.iter().position(same) {
            return Ok(at);
        }
        let four = table::some(&self.addresses, count);
        let destinations = match ipv6 {
            false => four.into_iter().map(u64::from).collect(),
            // 2001:db8::/32 with as many networks as are needed.
            true => four
                .into_iter()
                .map(|a| 0x2001_0db8_0000_0000 | u64::from(a))
                .collect(),
        };
        let traffic = Traffic { ipv6, destinations };
        self.packets.push(Packets {
            ipv6,
            count,
            generator: traffic.generator()?,
            floor: traffic.floor()?,
        });
        Ok(self.packets.len() - 1)
    }

    fn add(&mut self, name: &str, bed: usize, packets: usize, edge: Option<Standing>) {
        let of = &self.packets[packets];
        let name = format!("{name}.{}.{}", of.count, of.family());
        self.variants
            .push(Variant::new(name, Some(bed), packets, edge));
    }

    fn measure(&mut self) -> Result<(), LabError> {
        let name = |p: &Packets| format!("router.floor.{}.{}", p.count, p.family());
        let mut floors: Vec<Variant> = (0..)
            .zip(&self.packets)
            .map(|(at, p)| Variant::new(name(p), None, at, None))
            .collect();
        let rounds = self.bench.scale.rounds;
        let budget = self.bench.scale.budget_ns;
        self.bench.say(&format!(
            "packets through a router: {} variants, {rounds} rounds",
            self.variants.len()
        ))?;
        // Where nothing stands in the way, all of them wait in one place: any bed will do.
        let any = 0;
        let total = floors.len() + self.variants.len();
        for round in 0..=rounds {
            let all = floors.iter_mut().chain(&mut self.variants);
            for (n, variant) in all.enumerate() {
                self.bench.progress(&format!(
                    "routed packets, round {round}: {} of {total}",
                    n + 1
                ))?;
                let bed = &self.beds[variant.bed.unwrap_or(any)];
                let packets = &self.packets[variant.packets];
                variant.measure(bed, packets, round, budget, self.cpu)?;
            }
        }
        for floor in &floors {
            floor.report(None, self.bench);
        }
        for variant in &self.variants {
            let floor = floors.iter().find(|f| f.packets == variant.packets);
            variant.report(floor, self.bench);
        }
        Ok(())
    }
}

fn targets(bench: &mut Bench<'_>, full: usize) {
    let outcome = &mut bench.outcome;
    let name = |set: &str, series: &str, n: usize, family: &str| {
        format!("router.{set}.{series}.{n}.{family}")
    };
    for (set, family) in [("one", "ipv4"), ("one", "ipv6"), ("full", "ipv4")] {
        for n in DESTINATIONS.into_iter().chain([full]) {
            let of = |series: &str| name(set, series, n, family);
            let promise = match n {
                4000 | 20_000 => Promise::AtLeast(OVER_KERNEL),
                _ => Promise::Reported,
            };
            outcome.compare(&of("kernel"), &of("fib"), promise);
            outcome.compare(&of("kernel"), &of("own"), Promise::Reported);
            outcome.compare(&of("kernel"), &of("minimal"), Promise::Reported);
            outcome.compare(&of("fib"), &of("minimal"), Promise::Reported);
            outcome.compare(&of("xdp-forward"), &of("fib"), Promise::Reported);
        }
    }
    for n in [4000, 20_000] {
        let promise = match n {
            4000 => Promise::AtMost(FULL_OVER_ONE),
            _ => Promise::Reported,
        };
        let (above, below) = (
            name("full", "own", n, "ipv4"),
            name("one", "own", n, "ipv4"),
        );
        outcome.compare(&above, &below, promise);
        let (above, below) = (
            name("full", "kernel", n, "ipv4"),
            name("one", "kernel", n, "ipv4"),
        );
        outcome.compare(&above, &below, Promise::Reported);
    }
    // Of destinations all over the table hardly any is in a cache.
    let (all, some) = (
        name("full", "own", full, "ipv4"),
        name("one", "own", 4000, "ipv4"),
    );
    outcome.compare(&all, &some, Promise::Reported);
}
