//! What a packet of one among many connections costs, in test runs: few against a million, Zipf-distributed and uniform.
//!
//! A small program writes the next connection's headers over the frame and tail-calls weir; its own time is subtracted. One call of the
//! kernel runs it for a whole order of packets, so that nothing but the two programs touches the caches in between.

use std::os::fd::{AsFd, AsRawFd};

use weir_functions::middlebox::plan;
use weir_kernel::{LoadedProgram, TestCtx};
use weir_policy::{FileSets, Source, parse};

use super::measure::Samples;
use super::report::{Figure, Promise};
use super::rules::Random;
use super::testrun::{load, load_baseline};
use super::{Bench, Group};
use crate::LabError;

/// Packets of an order.
const ORDER: usize = 1 << 18;
/// Numbers of connections.
const SIZES: [usize; 3] = [1000, 100_000, 1_000_000];
/// A frame that holds the headers written.
const FRAME: [u8; 64] = [0; 64];

/// Measures what is selected.
pub(super) fn run(bench: &mut Bench<'_>) -> Result<(), LabError> {
    if !bench.wants(Group::TestConnections) {
        return Ok(());
    }
    let largest = bench.scale.largest.saturating_mul(10);
    let sizes: Vec<usize> = SIZES.into_iter().filter(|n| *n <= largest).collect();
    let mut tables = Vec::new();
    for (series, targets) in [
        ("plain", "accept"),
        ("tcp", "accept"),
        ("nat", "map ip-saddr 192.0.2.0-192.0.2.63 accept"),
    ] {
        for &size in &sizes {
            bench.progress(&format!("opening {size} connections"))?;
            tables.push(Table::new(series, size, targets)?);
        }
    }
    for round in 0..bench.scale.rounds {
        for table in &mut tables {
            bench.progress(&format!("connections, round {}: {}", round + 1, table.name))?;
            table.measure()?;
        }
    }
    for table in tables {
        let [zipf, uniform] = table.ns;
        for (kind, samples) in [("zipf", zipf), ("uniform", uniform)] {
            let name = format!("{}.{kind}", table.name);
            bench.figure(Figure::new(name, "ns/packet", samples));
        }
        bench.note(format!(
            "{}: {} connections open, {} packets dropped while opening",
            table.name, table.open, table.refused
        ));
    }
    targets(bench);
    Ok(())
}

fn targets(bench: &mut Bench<'_>) {
    let outcome = &mut bench.outcome;
    for series in ["plain", "tcp", "nat"] {
        let name = |size: usize, kind: &str| format!("testrun.connections.{series}.{size}.{kind}");
        outcome.compare(
            &name(1_000_000, "zipf"),
            &name(1000, "zipf"),
            Promise::AtMost(1.3),
        );
        let (Some(many), Some(few)) = (
            outcome.figure(&name(1_000_000, "uniform")),
            outcome.figure(&name(1000, "uniform")),
        ) else {
            continue;
        };
        let more = many.samples.minus(&few.samples);
        let more = Figure::new(name(1_000_000, "uniform-more"), "ns/packet", more);
        outcome.bound(more, 300.0);
    }
    // What following the numbers of TCP adds to a connection that is followed by its tuple only.
    let (Some(tcp), Some(udp)) = (
        outcome.figure("testrun.connections.tcp.1000.uniform"),
        outcome.figure("testrun.connections.plain.1000.uniform"),
    ) else {
        return;
    };
    let more = tcp.samples.minus(&udp.samples);
    let more = Figure::new("testrun.connections.tcp.1000.window", "ns/packet", more);
    outcome.bound(more, 15.0);
}

/// A program with its connections open.
struct Table {
    name: String,
    driver: LoadedProgram,
    tested: LoadedProgram,
    zipf: Vec<u32>,
    uniform: Vec<u32>,
    open: u64,
    refused: u64,
    /// Of Zipf-distributed and uniform packets, net of writing them.
    ns: [Samples; 2],
}

impl Table {
    fn new(series: &str, size: usize, targets: &str) -> Result<Table, LabError> {
        let name = format!("testrun.connections.{series}.{size}");
        let text = format!(
            "connections {size}\ntimeout udp-unreplied 1h\ntimeout tcp-syn-sent 1h\nadd-stateful ip-saddr 10.0.0.0/8 {targets}\n"
        );
        let bad = |why: String| LabError::Policy {
            name: name.clone(),
            why,
        };
        let source = Source::new("bench.weir", &text);
        let policy = parse(&source, &FileSets::relative_to("."))
            .map_err(|diagnostics| bad(diagnostics.to_string()))?
            .policy;
        let (plan, _) = plan(&policy, &[]).map_err(|error| bad(error.to_string()))?;
        let tested = load(&plan)?;
        let tcp = u32::from(series == "tcp");
        let constants = [("weir_order", ORDER as u32), ("weir_tcp", tcp)];
        let driver = load_baseline("conversations", &constants, &[("order", ORDER)])?;
        let mut random = Random(11);
        let zipf = (0..ORDER).map(|_| zipf(&mut random, size)).collect();
        let uniform = (0..ORDER).map(|_| random.below(size) as u32).collect();
        let mut table = Table {
            name,
            driver,
            tested,
            zipf,
            uniform,
            open: 0,
            refused: 0,
            ns: Default::default(),
        };
        let all: Vec<u32> = (0..size as u32).collect();
        for part in all.chunks(ORDER) {
            let mut part = part.to_vec();
            let packets = part.len();
            part.resize(ORDER, 0);
            table.pass(&part, true, packets)?;
        }
        (table.open, table.refused) = table.counted()?;
        Ok(table)
    }

    fn measure(&mut self) -> Result<(), LabError> {
        for (at, order) in [(0, self.zipf.clone()), (1, self.uniform.clone())] {
            let floor = self.pass(&order, false, ORDER)?;
            let all = self.pass(&order, true, ORDER)?;
            self.ns[at].push(all - floor);
        }
        Ok(())
    }

    /// ns a packet of an order, with or without the program under test.
    fn pass(&mut self, order: &[u32], tested: bool, packets: usize) -> Result<f64, LabError> {
        self.driver
            .write_array("order", 0, bytes_of(order).as_slice())?;
        let cpus = self.driver.lookup_percpu("next", &[0; 4])?.len();
        let zeros = vec![0u8; cpus * 8];
        self.driver.update("next", &[0; 4], &zeros, 0)?;
        if tested {
            let program = self.tested.as_fd().as_raw_fd();
            self.driver
                .update("tested", &[0; 4], &program.to_ne_bytes(), 0)?;
        } else {
            self.driver.delete("tested", &[0; 4])?;
        }
        let mut out = Vec::new();
        let ctx = TestCtx::default();
        let outcome = self
            .driver
            .test_run_repeated(&FRAME, &mut out, ctx, packets as u32)?;
        Ok(outcome.duration.as_nanos() as f64)
    }

    /// Packets that passed and that were dropped.
    fn counted(&self) -> Result<(u64, u64), LabError> {
        let word = |cpu: &[u8], at: usize| {
            let bytes = cpu.get(at * 8..at * 8 + 8).unwrap_or(&[0; 8]);
            u64::from_ne_bytes(bytes.try_into().unwrap_or_default())
        };
        let stats = self.tested.lookup_percpu("stats", &[0; 4])?;
        // `struct weir_stats`: received, bytes, verdicts by enum xdp_action.
        let verdict = |action: usize| stats.iter().map(|cpu| word(cpu, 2 + action)).sum();
        Ok((verdict(2), verdict(1)))
    }
}

/// A connection by Zipf's law of exponent 1; which ones are frequent is spread over the table.
fn zipf(random: &mut Random, size: usize) -> u32 {
    let uniform = random.below(1 << 30) as f64 / f64::from(1 << 30);
    let rank = ((size as f64 + 1.0).powf(uniform) - 1.0) as u64;
    // 7,919 is prime to all sizes.
    (rank * 7919 % size as u64) as u32
}

fn bytes_of(order: &[u32]) -> Vec<u8> {
    order.iter().flat_map(|n| n.to_ne_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_connections_have_most_of_zipfs_packets() {
        let mut random = Random(3);
        let mut seen = vec![0u32; 1000];
        for _ in 0..100_000 {
            seen[zipf(&mut random, 1000) as usize] += 1;
        }
        seen.sort_unstable_by(|a, b| b.cmp(a));
        let top: u32 = seen[..100].iter().sum();
        assert!((60_000..75_000).contains(&top), "{top}");
        assert!(seen[999] > 0, "every one has some");
    }
}
