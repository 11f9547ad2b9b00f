//! A thousand route changes a second in weir's own table while packets go through it: none may be lost.
//!
//! Every change is one that a routing daemon would make: a route gets another next hop, or goes and comes back; the default route stands behind all of
//! them, so that every packet has a way at every moment.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use weir_engine::edge::routers::Router;
use weir_functions::router::rib::Way;
use weir_kernel::LoadedProgram;
use weir_value::Prefix as RouterPrefix;

use super::bed::{BEHIND, Bed, Counts, INSIDE};
use super::table::{self, HOPS, Prefix};
use super::traffic::Traffic;
use crate::LabError;
use crate::bench::Bench;
use crate::bench::edge::{End, Standing};
use crate::bench::measure::Samples;
use crate::bench::report::Figure;
use crate::process::Scratch;

/// Changes a second.
const RATE: f64 = 1000.0;
/// Routes that are changed, and that packets go to.
const CHANGED: usize = 4000;
/// Packets sent at once.
const AT_ONCE: u32 = 100_000;

/// Measures it.
pub(crate) fn run(
    bench: &mut Bench<'_>,
    scratch: &Scratch,
    prefixes: &[Prefix],
    cpus: usize,
) -> Result<(), LabError> {
    let function = table::own(prefixes, BEHIND);
    if !function.is_known() || cpus < 2 {
        let why = match cpus {
            0 | 1 => "changes and packets need a CPU each, and there is one",
            _ => "this build has no router",
        };
        bench.refuse("router.changes", why);
        return Ok(());
    }
    let lasting = Duration::from_secs(if bench.scale.quick { 1 } else { 10 });
    bench.say(&format!(
        "{RATE} route changes a second under traffic, for {} s",
        lasting.as_secs()
    ))?;
    let bed = Bed::build(scratch)?;
    let edge = Standing::apply_all(&bed.middle, &[INSIDE], &[BEHIND], &[function], End::Stack)?;
    let step = (prefixes.len() / CHANGED).max(1);
    let some: Vec<Prefix> = prefixes
        .iter()
        .copied()
        .step_by(step)
        .take(CHANGED)
        .collect();
    let traffic = Traffic {
        ipv6: false,
        destinations: table::addresses(&some).into_iter().map(u64::from).collect(),
    };
    let generator = traffic.generator()?;
    let over = AtomicBool::new(false);
    let (sent, changed) = std::thread::scope(|scope| {
        let sending = scope.spawn(|| send(&bed, &generator, cpus - 1, &over));
        let changed = edge
            .router()
            .and_then(|router| change(router, &some, lasting));
        over.store(true, Ordering::Relaxed);
        let sent = sending.join();
        let sent = sent.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok::<_, LabError>((sent?, changed?))
    })?;
    let (count, seen) = sent;
    let figure = |kind: &str, unit, value| {
        let name = format!("router.changes.own.{kind}");
        Figure::new(name, unit, Samples(vec![value]))
    };
    let lost = count.saturating_sub(seen.right) + seen.wrong;
    bench.outcome.least(figure("rate", "1/s", changed), RATE);
    bench
        .outcome
        .figures
        .push(figure("sent", "packets", count as f64));
    bench.outcome.none(figure("lost", "packets", lost as f64));
    Ok(())
}

/// Sends until it is over: packets sent, and what became of them.
fn send(
    bed: &Bed,
    generator: &LoadedProgram,
    cpu: usize,
    over: &AtomicBool,
) -> Result<(u64, Counts), LabError> {
    let (mut sent, mut seen) = (0, Counts::default());
    while !over.load(Ordering::Relaxed) {
        let burst = bed.burst(generator, AT_ONCE, AT_ONCE.into(), cpu)?;
        sent += u64::from(AT_ONCE);
        seen.entered += burst.counts.entered;
        seen.right += burst.counts.right;
        seen.wrong += burst.counts.wrong;
    }
    Ok((sent, seen))
}

/// Changes routes for so long, as many as are due; how many a second they were.
fn change(mut router: Router, prefixes: &[Prefix], lasting: Duration) -> Result<f64, LabError> {
    let failed = |e: weir_engine::edge::EdgeError| LabError::Engine(e.to_string());
    let ways: Vec<Way> = prefixes
        .iter()
        .take(HOPS as usize)
        .filter_map(|p| Some(router.lookup(Ipv4Addr::from_bits(p.0).into())?.1))
        .collect();
    let start = Instant::now();
    let mut done = 0usize;
    while start.elapsed() < lasting && !ways.is_empty() {
        let due = (start.elapsed().as_secs_f64() * RATE * 1.02) as usize;
        while done < due {
            let (network, bits) = prefixes[done / 2 % prefixes.len()];
            let network = IpAddr::from(Ipv4Addr::from_bits(network));
            let prefix = RouterPrefix::around(network, bits);
            // Every fourth one goes, and comes back with the next change.
            if done.is_multiple_of(8) {
                router.remove(prefix, None).map_err(failed)?;
            } else {
                let way = ways[done % ways.len()].clone();
                router.put(&[(prefix, way, 0)]).map_err(failed)?;
            }
            done += 1;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(done as f64 / start.elapsed().as_secs_f64())
}
