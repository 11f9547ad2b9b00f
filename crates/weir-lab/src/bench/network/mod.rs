//! `weir bench network`: section 4 of the InKeV paper. Rows of bridges and routers between two workloads, carried out by weir in the kernel of one host, by the kernel's own
//! bridges and routers, by a process for each function, and by Open vSwitch: round trips warm and cold, connections, one stream; the same between two hosts over each kind of tunnel; what a hop
//! costs; and very many networks.
//!
//! Every variant has a bed of its own and all take turns in every round. Invariant: a variant that loses a packet of those that go back and forth has no figure.

mod bed;
mod document;
mod edge;
mod hop;
mod ovs;
mod scale;
mod traffic;
mod tunnel;

use std::io::Write;
use std::time::Duration;

use self::bed::{Bed, Builder, Series};
use super::measure::Samples;
use super::report::{Figure, Promise};
use super::xdp::select;
use super::{Bench, BenchOptions, Outcome, Scale};
use crate::LabError;
use crate::process::Scratch;

/// Figures that are measured or left out together.
const GROUPS: [&str; 6] = [
    "network.rtt",
    "network.crr",
    "network.flow",
    "network.tunnel",
    "network.hop",
    "network.scale",
];
/// Functions of rows of 1, 5 and 10 routers with bridges between and at the ends.
const ROWS: [usize; 3] = [3, 11, 21];
/// Longer ones, which are recirculated.
const LONG: [usize; 2] = [31, 101];
/// Of the paper's longest row.
const PAPER: usize = 21;
/// Pairs that connect at once.
const PAIRS: [usize; 3] = [1, 4, 16];
/// Targets: of the kernel's round trip, of the processes', first over warm; times the kernel's connections; of the rate of a direct redirect; ns of a hop; s and ms.
const OF_LINUX: f64 = 0.65;
const OF_USER: f64 = 0.1;
const FIRST: f64 = 3.0;
const OVER_LINUX: f64 = 1.8;
const OF_REDIRECT: f64 = 0.9;
const PANEL_NS: f64 = 3.0;
const APPLY_S: f64 = 10.0;
const CHANGE_MS: f64 = 50.0;

/// Runs the benchmark of virtual networks, tells about it on `out`.
///
/// # Errors
/// When it could not be carried out. Missed targets, missing peers and refused figures are results.
pub fn network(options: &BenchOptions<'_>, out: &mut dyn Write) -> Result<Outcome, LabError> {
    let groups = select(&GROUPS, &options.only)?;
    let mut bench = Bench {
        options,
        groups: Vec::new(),
        scale: Scale::of(options),
        outcome: Outcome::new("network", options.quick),
        out,
    };
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let scratch = Scratch::create("weir-network")?;
    let mut net = Net {
        scratch: &scratch,
        cpu: cpus - 1,
        bench: &mut bench,
    };
    net.bench.note(format!(
        "back and forth: both ends and every function on CPU {}, with real-time priority",
        net.cpu
    ));
    if groups.contains(&"network.rtt") {
        net.round_trips()?;
    }
    if groups.contains(&"network.crr") {
        net.connections()?;
    }
    if groups.contains(&"network.flow") {
        net.streams()?;
    }
    if groups.contains(&"network.tunnel") {
        tunnel::run(&mut net)?;
    }
    if groups.contains(&"network.hop") {
        hop::run(&mut net)?;
    }
    if groups.contains(&"network.scale") {
        scale::run(&mut net)?;
    }
    bench.progress("")?;
    Ok(bench.outcome)
}

struct Net<'x, 'b> {
    bench: &'x mut Bench<'b>,
    scratch: &'x Scratch,
    /// Where everything is that goes back and forth.
    cpu: usize,
}

impl Net<'_, '_> {
    /// Beds of rows, one after the other.
    fn build(&mut self, wanted: &[(Series, usize)], pairs: usize) -> Result<Vec<Bed>, LabError> {
        let builder = Builder {
            scratch: self.scratch,
            weir: &self.bench.options.weir,
            cpu: self.cpu,
        };
        let mut beds = Vec::new();
        for (series, functions) in wanted {
            let name = series.name();
            if *series == Series::Ovs && !ovs::is_there() {
                self.bench.absent(ovs::NEEDS.0, ovs::NEEDS.1);
                continue;
            }
            self.bench
                .progress(&format!("building {name}, {functions} functions"))?;
            match builder.build(*series, *functions, pairs) {
                Ok(bed) => beds.push(bed),
                // The others' figures do not depend on it.
                Err(error) if *series == Series::Ovs => {
                    self.bench.refuse(
                        &format!("network.rtt.{name}.{functions}"),
                        &error.to_string(),
                    );
                }
                Err(error) => return Err(error),
            }
        }
        Ok(beds)
    }

    fn round_trips(&mut self) -> Result<(), LabError> {
        let quick = self.bench.scale.quick;
        let mut wanted = vec![(Series::Direct, 0), (Series::Redirect, 0)];
        let rows: &[usize] = if quick { &[3, PAPER] } else { &ROWS };
        for &functions in rows {
            for series in [Series::Weir, Series::Linux, Series::User, Series::Ovs] {
                wanted.push((series, functions));
            }
        }
        for functions in LONG {
            wanted.push((Series::Weir, functions));
            if !quick {
                wanted.push((Series::Linux, functions));
            }
        }
        let beds = self.build(&wanted, 1)?;
        let (count, cold) = if quick { (200, 3) } else { (3000, 11) };
        let rounds = self.bench.scale.rounds;
        self.bench.say(&format!(
            "round trips: {} rows, {rounds} rounds of {count} and {cold} cold ones",
            beds.len()
        ))?;
        let mut points = vec![Some(<[Samples; 4]>::default()); beds.len()];
        for round in 0..=rounds {
            for (bed, point) in beds.iter().zip(&mut points) {
                let name = format!("network.rtt.{}.{}", bed.series.name(), bed.functions);
                self.bench.progress(&format!("{name}, round {round}"))?;
                // The first round warms up.
                let cold = if round == 0 { 0 } else { cold };
                match traffic::round_trips(bed, count, cold, self.cpu)? {
                    None => {
                        if point.take().is_some() {
                            self.bench
                                .refuse(&name, &format!("a packet was lost; {}", bed.words()));
                        }
                    }
                    Some(_) if round == 0 => {}
                    Some(trips) => {
                        if let Some([p50, p99, firsts, colds]) = point {
                            p50.push(trips.p50);
                            p99.push(trips.p99);
                            firsts.0.extend(trips.first);
                            colds.0.extend(trips.cold);
                        }
                    }
                }
            }
        }
        for (bed, point) in beds.iter().zip(points) {
            let kinds = ["p50", "p99", "first", "cold"];
            for (kind, samples) in kinds.into_iter().zip(point.into_iter().flatten()) {
                let name = format!("network.rtt.{}.{}.{kind}", bed.series.name(), bed.functions);
                self.bench.figure(Figure::new(name, "us", samples));
            }
        }
        self.judge_round_trips();
        Ok(())
    }

    fn judge_round_trips(&mut self) {
        let name = |series: &str, functions: usize, kind: &str| {
            format!("network.rtt.{series}.{functions}.{kind}")
        };
        let outcome = &mut self.bench.outcome;
        for functions in ROWS.into_iter().chain(LONG) {
            let weir = name("weir", functions, "p50");
            let promise = |at_most: f64| match functions {
                PAPER => Promise::AtMost(at_most),
                _ => Promise::Reported,
            };
            outcome.compare(&weir, &name("linux", functions, "p50"), promise(OF_LINUX));
            outcome.compare(&weir, &name("user", functions, "p50"), promise(OF_USER));
            outcome.compare(&weir, &name("ovs", functions, "p50"), Promise::Reported);
            let first = name("weir", functions, "first");
            outcome.compare(&first, &weir, promise(FIRST));
            for other in ["linux", "user", "ovs"] {
                outcome.compare(&first, &name(other, functions, "first"), Promise::Reported);
            }
            let cold = name("weir", functions, "cold");
            outcome.compare(&cold, &name("direct", 0, "cold"), Promise::Reported);
            for other in ["linux", "user", "ovs"] {
                outcome.compare(&cold, &name(other, functions, "cold"), Promise::Reported);
            }
        }
        for kind in ["first", "cold"] {
            let (one, many) = (name("direct", 0, kind), name("direct", 0, "p50"));
            outcome.compare(&one, &many, Promise::Reported);
        }
    }

    fn connections(&mut self) -> Result<(), LabError> {
        let quick = self.bench.scale.quick;
        let pairs: &[usize] = if quick { &[1, 4] } else { &PAIRS };
        let lasting = Duration::from_millis(if quick { 50 } else { 400 });
        let rounds = if quick { 3 } else { 7 };
        for &pairs in pairs {
            let mut wanted = vec![(Series::Direct, 0), (Series::Hairpin, 3)];
            // A bridge between namespaces of many routers takes long to build, and the paper had one.
            for functions in [3, PAPER] {
                wanted.extend([(Series::Weir, functions), (Series::Linux, functions)]);
            }
            let beds = self.build(&wanted, pairs)?;
            self.bench.say(&format!(
                "connections: {} rows, {pairs} pairs, {rounds} rounds",
                beds.len()
            ))?;
            let mut rates = vec![Samples::default(); beds.len()];
            for round in 0..=rounds {
                for (bed, rate) in beds.iter().zip(&mut rates) {
                    self.bench
                        .progress(&format!("connections of {pairs} pairs, round {round}"))?;
                    let each = traffic::connections(bed, lasting, self.cpu)?;
                    if round > 0 {
                        rate.push(each);
                    }
                }
            }
            let name = |series: &str, functions: usize| {
                format!("network.crr.{series}.{functions}.{pairs}")
            };
            for (bed, rate) in beds.iter().zip(rates) {
                let name = name(bed.series.name(), bed.functions);
                self.bench.figure(Figure::new(name, "1/s", rate));
            }
            let outcome = &mut self.bench.outcome;
            let long = Promise::AtLeast(OVER_LINUX);
            outcome.compare(&name("weir", PAPER), &name("linux", PAPER), long);
            outcome.compare(&name("weir", 3), &name("linux", 3), Promise::Reported);
            outcome.compare(&name("weir", 3), &name("hairpin", 3), Promise::Reported);
        }
        Ok(())
    }

    fn streams(&mut self) -> Result<(), LabError> {
        if self.cpu == 0 {
            self.bench.refuse(
                "network.flow",
                "sender and receiver need a CPU each, and there is one",
            );
            return Ok(());
        }
        let quick = self.bench.scale.quick;
        let wanted = [
            (Series::Direct, 0),
            (Series::Redirect, 0),
            (Series::Weir, PAPER),
            (Series::Linux, PAPER),
        ];
        let beds = self.build(&wanted, 1)?;
        let lasting = Duration::from_millis(if quick { 90 } else { 600 });
        let rounds = self.bench.scale.rounds;
        self.bench
            .say(&format!("one stream: {} rows, {rounds} rounds", beds.len()))?;
        let mut points = vec![[Samples::default(), Samples::default()]; beds.len()];
        for round in 0..=rounds {
            for (bed, [rate, cpu]) in beds.iter().zip(&mut points) {
                self.bench.progress(&format!("one stream, round {round}"))?;
                let stream = traffic::stream(bed, lasting, [0, self.cpu])?;
                if round > 0 {
                    rate.push(stream.rate);
                    cpu.push(stream.cpu);
                }
            }
        }
        let name = |series: &str, functions: usize, kind: &str| {
            format!("network.flow.{series}.{functions}.{kind}")
        };
        for (bed, [rate, cpu]) in beds.iter().zip(points) {
            let (series, functions) = (bed.series.name(), bed.functions);
            self.bench
                .figure(Figure::new(name(series, functions, "rate"), "Gbit/s", rate));
            self.bench
                .figure(Figure::new(name(series, functions, "cpu"), "ms/Gbit", cpu));
        }
        let outcome = &mut self.bench.outcome;
        for (kind, promise) in [
            ("rate", Promise::AtLeast(OF_REDIRECT)),
            ("cpu", Promise::Reported),
        ] {
            let weir = name("weir", PAPER, kind);
            outcome.compare(&weir, &name("redirect", 0, kind), promise);
            outcome.compare(&weir, &name("linux", PAPER, kind), Promise::Reported);
        }
        Ok(())
    }
}
