//! CPU use against offered load: how much of its time the thread of a receive queue works while packets come in at a pace and are dropped.
//!
//! The receive queue has a CPU of its own and the generator another one, as on the bed of `weir bench ddos`. A kernel-bypass framework that polls is
//! at 100 % at any load. Invariant: a rate at which packets were lost says so beside its figure.

use std::time::{Duration, Instant};

use super::Xdp;
use super::traffic::{Pace, Traffic};
use crate::LabError;
use crate::bench::ddos::bed::{Bed, Precedence, bind, prefer, this_thread};
use crate::bench::edge::{End, Function};
use crate::bench::measure::Samples;
use crate::bench::report::Figure;
use crate::bench::testrun::load_baseline;

/// Thousands of packets a second.
const RATES: [u64; 7] = [10, 100, 500, 1000, 2000, 3000, 4000];
const QUICK_RATES: [u64; 2] = [100, 1000];
/// The receive queue gets going before anything is counted.
const AHEAD: Duration = Duration::from_millis(50);

struct Series {
    name: &'static str,
    bed: Bed,
    busy: Vec<Samples>,
    lost: Vec<Samples>,
}

/// Measures all rates.
pub(crate) fn run(xdp: &mut Xdp<'_, '_>) -> Result<(), LabError> {
    if xdp.cpus < 2 {
        xdp.bench.refuse(
            "load.drop",
            "generator and receive queue need a CPU each, and there is one",
        );
        return Ok(());
    }
    let (queue, generating) = (1, 0);
    let rates: &[u64] = if xdp.bench.scale.quick {
        &QUICK_RATES
    } else {
        &RATES
    };
    let lasting = Duration::from_millis(if xdp.bench.scale.quick { 150 } else { 500 });
    let rounds = 5;
    let traffic = Traffic {
        ipv6: false,
        sources: 1,
    };
    let generator = traffic.generator()?;
    let program = load_baseline("xdp_drop", &[("weir_read", 1)], &[])?;
    let mut series = Vec::new();
    for name in ["minimal", "graph", "filter"] {
        let mut bed = Bed::build(queue, generating)?;
        let filter = super::filter_of(traffic);
        match name {
            "minimal" => bed.protect(&program)?,
            "filter" if !filter.is_known() => continue,
            "filter" => bed.protect_by(&filter, End::Stack)?,
            _ => bed.protect_by(&Function::empty(), End::Drop)?,
        }
        series.push(Series {
            name,
            bed,
            busy: vec![Samples::default(); rates.len()],
            lost: vec![Samples::default(); rates.len()],
        });
    }
    xdp.bench.say(&format!(
        "CPU use against offered load: {} series, {} rates, {rounds} rounds",
        series.len(),
        rates.len()
    ))?;
    for round in 1..=rounds {
        for (at, rate) in rates.iter().enumerate() {
            for one in &mut series {
                xdp.bench.progress(&format!(
                    "load, round {round}: {} at {rate} thousand packets a second",
                    one.name
                ))?;
                let pace = Pace {
                    rate: rate * 1000,
                    lasting: lasting + 4 * AHEAD,
                };
                let bed = &one.bed;
                let generator = &generator;
                // On a thread of its own, whose precedence ends with it.
                let (busy, lost) = std::thread::scope(|scope| {
                    let run = scope.spawn(|| offer(bed, generator, pace, lasting, generating));
                    run.join()
                        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                })?;
                one.busy[at].push(busy);
                one.lost[at].push(lost);
            }
        }
    }
    for (at, rate) in rates.iter().enumerate() {
        for one in &series {
            for (kind, samples) in [("busy", &one.busy[at]), ("lost", &one.lost[at])] {
                let name = format!("load.drop.{}.{rate}.{kind}", one.name);
                xdp.bench.figure(Figure::new(name, "%", samples.clone()));
            }
        }
    }
    Ok(())
}

/// Percent of the time that the receive queue's thread worked, and of the packets that found the queue full.
fn offer(
    bed: &Bed,
    generator: &super::traffic::Generator,
    pace: Pace,
    lasting: Duration,
    cpu: usize,
) -> Result<(f64, f64), LabError> {
    prefer(this_thread(), Precedence::Observer)?;
    let (ns, at) = bed.outside();
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
        std::thread::sleep(AHEAD);
        let before = (generator.sent()?, bed.seen()?);
        let start = Instant::now();
        std::thread::sleep(lasting);
        let wall = start.elapsed().as_nanos() as f64;
        let after = (generator.sent()?, bed.seen()?);
        match flood.join() {
            Ok(ended) => ended?,
            Err(panic) => std::panic::resume_unwind(panic),
        }
        let busy = (after.1.busy_ns - before.1.busy_ns) / wall;
        let sent = after.0 - before.0;
        let arrived = after.1.arrived - before.1.arrived;
        let lost = sent.saturating_sub(arrived) as f64 / sent.max(1) as f64;
        Ok::<_, LabError>((100.0 * busy, 100.0 * lost))
    })
}
