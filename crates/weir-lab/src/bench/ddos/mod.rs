//! `weir bench ddos`: section 5.1 of the XDP paper. Transactions of a TCP service under a flood of UDP packets, with nothing in front of the service, with
//! weir's filter, with the filter and the service's packets moved to another CPU, and with the least program that drops UDP.
//!
//! Every series has a bed of its own, and every point a connection and a flood of its own; all series take turns at every rate in every round. What was
//! offered, what came out of the receive queue and what was dropped is counted, not assumed. Invariant: the flood never leaves the namespaces of its bed.

pub(crate) mod bed;
mod service;

use std::io::Write;
use std::time::{Duration, Instant};

use weir_kernel::LoadedProgram;

use self::bed::{Bed, Precedence, bind, prefer, this_thread};
use self::service::{Client, Service};
use super::edge::{End, Function};
use super::measure::{Samples, processes};
use super::report::{Figure, Promise};
use super::testrun::load_baseline;
use super::xdp::traffic::{Generator, Pace, Traffic};
use super::{Bench, BenchOptions, Outcome, Scale};
use crate::LabError;

/// Thousands of packets a second. The last one is more than the generator can do: what it did is in the figures.
/// The first is as good as none, but for the CPU that the generator takes from the client.
const RATES: [u64; 12] = [
    1, 250, 500, 1000, 1500, 2000, 3000, 4000, 5000, 6000, 8000, 20_000,
];
const QUICK_RATES: [u64; 3] = [1, 1500, 20_000];
/// Places of the queue to another CPU.
const QUEUE: u32 = 4096;
/// How long a flood is.
#[derive(Clone, Copy)]
struct Lasting {
    /// The receive queue gets going before anything is counted.
    ahead: Duration,
    counted: Duration,
}
const LASTING: Lasting = Lasting {
    ahead: Duration::from_millis(60),
    counted: Duration::from_millis(700),
};
const QUICK_LASTING: Lasting = Lasting {
    ahead: Duration::from_millis(20),
    counted: Duration::from_millis(80),
};
const ROUNDS: u32 = 3;
/// Targets: of the least program's transactions, and of those of the unprotected server where it lost nine tenths.
const OF_MINIMAL: f64 = 0.9;
const OF_NONE: f64 = 5.0;
const LOST: f64 = 0.1;

/// Runs the benchmark of the filter against floods, tells about it on `out`.
///
/// # Errors
/// When it could not be carried out. Missed targets are results.
pub fn ddos(options: &BenchOptions<'_>, out: &mut dyn Write) -> Result<Outcome, LabError> {
    let mut bench = Bench {
        options,
        groups: Vec::new(),
        scale: Scale::of(options),
        outcome: Outcome::new("ddos", options.quick),
        out,
    };
    measure(&mut bench)?;
    bench.progress("")?;
    Ok(bench.outcome)
}

/// Something in front of the service.
struct Series {
    name: &'static str,
    bed: Bed,
    _service: Service,
    _program: Option<LoadedProgram>,
    points: Vec<Point>,
}

/// What was seen at a rate, a sample a round.
#[derive(Clone, Default)]
struct Point {
    transactions: Samples,
    /// Packets of the flood a second that were sent, and that came out of the receive queue.
    offered: Samples,
    arrived: Samples,
    /// Part of them that found the receive queue full, in percent.
    lost: Samples,
    /// Packets a second that weir dropped.
    dropped: Samples,
    /// Part of the time that the receive queue's thread was at work, in percent.
    busy: Samples,
}

/// Who works where.
#[derive(Clone, Copy)]
struct Cpus {
    /// The server and its receive queue.
    server: usize,
    /// Flood and client.
    outside: usize,
    /// Where the service's packets are moved to.
    moved: usize,
    all: usize,
}

fn measure(bench: &mut Bench<'_>) -> Result<(), LabError> {
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    if all < 2 {
        bench.refuse(
            "flood",
            "flood and server need a CPU each, and there is one",
        );
        return Ok(());
    }
    let cpus = Cpus {
        server: 1,
        outside: 0,
        // The paper's third CPU, where there is one.
        moved: if all > 2 { 2 } else { 0 },
        all,
    };
    if all == 2 {
        bench.note(
            "two CPUs: what is moved to another CPU goes to that of flood and client".to_owned(),
        );
    }
    let (rates, lasting): (&[u64], Lasting) = match bench.scale.quick {
        true => (&QUICK_RATES, QUICK_LASTING),
        false => (&RATES, LASTING),
    };
    let traffic = Traffic {
        ipv6: false,
        sources: 1,
    };
    let generator = traffic.generator()?;
    let mut series = build(bench, cpus)?;
    for one in &mut series {
        one.points = vec![Point::default(); rates.len()];
    }
    bench.say(&format!(
        "a service under a flood: {} series, {} rates, {ROUNDS} rounds",
        series.len(),
        rates.len()
    ))?;
    for round in 1..=ROUNDS {
        for (at, rate) in rates.iter().enumerate() {
            for one in &mut series {
                bench.progress(&format!(
                    "flood, round {round}: {} under {rate} thousand packets a second",
                    one.name
                ))?;
                // On a thread of its own, whose precedence ends with it.
                let (bed, point, generator) = (&one.bed, &mut one.points[at], &generator);
                std::thread::scope(|scope| {
                    let run =
                        scope.spawn(|| run(bed, generator, *rate, lasting, cpus.outside, point));
                    run.join()
                        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                })?;
            }
        }
    }
    report(bench, &series, rates);
    targets(bench, rates);
    Ok(())
}

/// The series with their beds.
fn build(bench: &mut Bench<'_>, cpus: Cpus) -> Result<Vec<Series>, LabError> {
    let mut all = Vec::new();
    let moved = cpus.moved as u32;
    for name in ["none", "minimal", "minimal-cpu", "filter", "filter-cpu"] {
        bench.progress(&format!("building {name}"))?;
        let mut bed = Bed::build(cpus.server, cpus.outside)?;
        let threads = moving_threads(moved);
        let program = match name {
            "minimal" => Some(load_baseline("xdp_drop", &[("weir_udp", 1)], &[])?),
            "minimal-cpu" => {
                let constants = [("weir_udp", 1), ("weir_cpu", moved)];
                let program = load_baseline("xdp_cpu", &constants, &[("cpus", cpus.all)])?;
                // No program there: packets go to that CPU's stack.
                let place = [QUEUE, 0].map(u32::to_ne_bytes).concat();
                program.update("cpus", &moved.to_ne_bytes(), &place, 0)?;
                Some(program)
            }
            _ => None,
        };
        if let Some(program) = &program {
            bed.protect(program)?;
        }
        if name.starts_with("filter") {
            let mut function = Function {
                kind: "filter",
                keys: "rules = [\"deny udp\"]\n".to_owned(),
                files: Vec::new(),
            };
            if !function.is_known() {
                bench.refuse(&format!("flood.tcp.{name}"), "this build has no filter");
                continue;
            }
            if name == "filter-cpu" {
                function.keys += &format!("cpu = [{moved}]\nqueue = {QUEUE}\n");
            }
            bed.protect_by(&function, End::Stack)?;
        }
        for thread in moving_threads(moved) {
            if !threads.contains(&thread) {
                prefer(thread, Precedence::Queue)?;
            }
        }
        all.push(Series {
            name,
            _service: Service::start(bed.listen()?, cpus.server)?,
            bed,
            _program: program,
            points: Vec::new(),
        });
    }
    Ok(all)
}

/// Threads that work on what other CPUs hand to this one.
fn moving_threads(cpu: u32) -> Vec<u32> {
    processes(|comm| comm.starts_with(&format!("cpumap/{cpu}/")))
}

/// One connection under one flood.
fn run(
    bed: &Bed,
    generator: &Generator,
    thousands: u64,
    lasting: Lasting,
    cpu: usize,
    point: &mut Point,
) -> Result<(), LabError> {
    prefer(this_thread(), Precedence::Observer)?;
    let client = Client::start(bed.connect()?, cpu)?;
    let (ns, at) = bed.outside();
    let pace = Pace {
        rate: thousands * 1000,
        lasting: lasting.counted + 4 * lasting.ahead,
    };
    generator.pace(None)?;
    std::thread::scope(|scope| {
        let flood = scope.spawn(|| {
            ns.run(|| {
                bind(this_thread(), cpu, Precedence::Flood)?;
                generator.flood(at, pace)?;
                Ok::<_, LabError>(())
            })?
        });
        generator.wait_for_start(|| flood.is_finished())?;
        std::thread::sleep(lasting.ahead);
        let before = (client.transactions(), generator.sent()?, bed.seen()?);
        let dropped = bed.dropped()?;
        let start = Instant::now();
        std::thread::sleep(lasting.counted);
        let seconds = start.elapsed().as_secs_f64();
        let after = (client.transactions(), generator.sent()?, bed.seen()?);
        let dropped = count(&bed.dropped()?) - count(&dropped);
        match flood.join() {
            Ok(ended) => ended?,
            Err(panic) => std::panic::resume_unwind(panic),
        }
        let each = |more: u64| more as f64 / seconds;
        point.transactions.push(each(after.0 - before.0));
        let sent = after.1 - before.1;
        point.offered.push(each(sent));
        // The client's requests are among those that arrive.
        let arrived = after.2.arrived - before.2.arrived;
        let flooded = arrived.saturating_sub(after.0 - before.0);
        point.arrived.push(each(flooded));
        let lost = sent.saturating_sub(flooded) as f64 / sent.max(1) as f64;
        point.lost.push(100.0 * lost);
        point.dropped.push(each(dropped));
        let busy = (after.2.busy_ns - before.2.busy_ns) / 1e9 / seconds;
        point.busy.push(100.0 * busy);
        Ok::<(), LabError>(())
    })?;
    drop(client);
    Ok(())
}

fn count(reasons: &[(&str, u64)]) -> u64 {
    reasons.iter().map(|(_, n)| n).sum()
}

fn report(bench: &mut Bench<'_>, all: &[Series], rates: &[u64]) {
    for (at, rate) in rates.iter().enumerate() {
        for series in all {
            let point = &series.points[at];
            for (kind, unit, samples) in [
                ("transactions", "1/s", &point.transactions),
                ("offered", "packets/s", &point.offered),
                ("arrived", "packets/s", &point.arrived),
                ("lost", "%", &point.lost),
                ("dropped", "packets/s", &point.dropped),
                ("busy", "%", &point.busy),
            ] {
                if kind == "dropped" && !series.name.starts_with("filter") {
                    continue;
                }
                let name = format!("flood.tcp.{}.{rate}.{kind}", series.name);
                bench.figure(Figure::new(name, unit, samples.clone()));
            }
        }
    }
    for series in all {
        if let Ok(reasons) = series.bed.dropped()
            && !reasons.is_empty()
        {
            let words: Vec<String> = reasons.iter().map(|(r, n)| format!("{r} {n}")).collect();
            bench.note(format!("{} dropped: {}", series.name, words.join(", ")));
        }
    }
}

fn targets(bench: &mut Bench<'_>, rates: &[u64]) {
    let outcome = &mut bench.outcome;
    let name = |series: &str, rate: u64| format!("flood.tcp.{series}.{rate}.transactions");
    let value = |outcome: &Outcome, name: &str| outcome.figure(name).map(|f| f.value);
    let quiet = value(outcome, &name("none", rates[0]));
    for &rate in rates {
        let (filter, none) = (name("filter", rate), name("none", rate));
        outcome.compare(
            &filter,
            &name("minimal", rate),
            Promise::AtLeast(OF_MINIMAL),
        );
        outcome.compare(
            &name("filter-cpu", rate),
            &name("minimal-cpu", rate),
            Promise::Reported,
        );
        if let (Some(quiet), Some(now)) = (quiet, value(outcome, &none))
            && now <= LOST * quiet
        {
            outcome.compare(&filter, &none, Promise::AtLeast(OF_NONE));
        }
    }
    // Where the protected server gives up, too, or the flood.
    let last = rates.last().copied().unwrap_or_default();
    let (Some(start), Some(end)) = (quiet, value(outcome, &name("minimal", last))) else {
        return;
    };
    let what = match end <= start / 2.0 {
        true => "more than half of the protected service's transactions are lost there",
        false => "the protected service holds there: the generator has no more",
    };
    let offered = value(outcome, &format!("flood.tcp.minimal.{last}.offered")).unwrap_or_default();
    bench.note(format!(
        "the highest rate was {:.1} million packets a second; {what}",
        offered / 1e6
    ));
}
