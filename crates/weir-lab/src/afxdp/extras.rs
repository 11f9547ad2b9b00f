//! What is measured beside the cells of a sweep: round trips of some of them from a packet a second up to the highest rate without loss, and over chains of
//! forwarders.
//!
//! Extras carry the kinds `maximum` (the highest rate without loss, with its round trips), `load` and `chain`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::results::{Cell, Extra};
use super::run::{AfxdpError, Bed, Told, link, namespaces, with_deadline};
use super::settings::NetnsHandle;
use super::side::{Order, Side};
use super::sweep::Combination;
use crate::xsk::{
    Chain, ForwardPlan, Meter, PingPlan, PingReport, Setup, XskRunError, forward, ping,
};

/// Packets that a point has at least.
const LEAST: u64 = 10;
/// Packets that a point has at most.
const MOST: u64 = 200_000;
/// Where the search for the highest rate begins, packets a second.
const FIRST: f64 = 5_000.0;
/// Steps between the last rate without loss and the first with it.
const STEPS: u32 = 4;
/// How long chains may take until they are ready.
const READY: Duration = Duration::from_secs(10);

/// How thoroughly.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Load points of a cell, the highest rate without loss among them.
    pub points: u32,
    /// How long a point lasts; slow ones longer, so that they have some packets.
    pub lasting: Duration,
    /// A point that would take longer is left out.
    pub longest: Duration,
    /// When a packet is given up.
    pub timeout: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            points: 6,
            lasting: Duration::from_millis(500),
            longest: Duration::from_secs(10),
            timeout: Duration::from_millis(200),
        }
    }
}

/// What both kinds need to know.
pub struct Extras<'a> {
    /// Ends it in order.
    pub stop: &'a AtomicBool,
    /// Told what is left out.
    pub tell: &'a dyn Fn(Told<'_>),
    /// Told to those who interrupt it: what is kept.
    pub kept: &'static str,
    /// How thoroughly.
    pub limits: Limits,
}

/// Runs cells again: finds the highest rate at which none of their packets is lost, then load points from one packet a second up to it, evenly spaced on a logarithmic scale. A
/// rate is one at which packets are sent whether or not earlier ones are back.
///
/// # Errors
/// A cell cannot run, or the user said stop.
pub fn rerun_under_load(
    bed: &mut Bed,
    cells: &[&Cell],
    extras: &Extras<'_>,
) -> Result<Vec<Extra>, AfxdpError> {
    let mut found = Vec::new();
    for cell in cells {
        let one = combination(cell)?;
        let meter = Arc::new(Meter::default());
        let order = Order {
            knobs: cell.knobs.clone(),
            control: None,
        };
        bed.near.configure(Some(&one))?;
        let forwarding = bed.far.start(&order, &meter)?;
        let loaded = load(bed, cell, &one, extras);
        let report = bed.far.finish(forwarding);
        found.extend(loaded?);
        if let Some(why) = report.failure {
            (extras.tell)(Told::Note(&format!("{} under load: {why}", cell.id)));
        }
    }
    bed.near.configure(None)?;
    bed.far.restore()?;
    Ok(found)
}

fn combination(cell: &Cell) -> Result<Combination, AfxdpError> {
    let knobs = cell
        .knobs
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    Combination::from_knobs(knobs)
        .map_err(|text| XskRunError::Usage(format!("{}: {text}", cell.id)).into())
}

fn load(
    bed: &Bed,
    cell: &Cell,
    one: &Combination,
    extras: &Extras<'_>,
) -> Result<Vec<Extra>, AfxdpError> {
    let offer = |rate: f64, lasting: Duration| offer(bed, one, rate, lasting, extras);
    let trial = extras.limits.lasting / 3;
    // The first rate that goes well, then the first that does not, then between the two.
    let mut best: Option<(f64, PingReport)> = None;
    let mut rate = FIRST;
    let mut bad = f64::INFINITY;
    while best.is_none() && rate >= 5.0 {
        let report = offer(rate, trial)?;
        if goes_well(&report, rate) {
            best = Some((rate, report));
        } else {
            bad = rate;
            rate /= 4.0;
        }
    }
    let Some((mut good, mut report)) = best else {
        (extras.tell)(Told::Note(&format!(
            "{} loses packets, or falls behind, at 5 a second: no load points",
            cell.id
        )));
        return Ok(Vec::new());
    };
    let mut steps = 0;
    while steps < STEPS && good < 1e8 {
        let next = if bad.is_finite() {
            steps += 1;
            (good * bad).sqrt()
        } else {
            good * 2.0
        };
        let tried = offer(next, trial)?;
        if goes_well(&tried, next) {
            (good, report) = (next, tried);
        } else {
            bad = next;
        }
    }
    let mut found = vec![extra(
        "maximum",
        cell,
        achieved(&report),
        "packets/s",
        &report,
    )];
    let points = extras.limits.points.max(2);
    for n in 0..points {
        let rate = good.powf(f64::from(n) / f64::from(points - 1));
        let takes = Duration::from_secs_f64(LEAST as f64 / rate);
        if takes > extras.limits.longest {
            (extras.tell)(Told::Note(&format!(
                "{} at {rate:.0} packets a second is left out: {LEAST} packets take {} s",
                cell.id,
                takes.as_secs()
            )));
            continue;
        }
        let report = offer(rate, extras.limits.lasting)?;
        found.push(extra("load", cell, rate, "packets/s", &report));
    }
    Ok(found)
}

fn extra(kind: &str, cell: &Cell, at: f64, unit: &str, report: &PingReport) -> Extra {
    Extra {
        kind: kind.to_owned(),
        cell: cell.id.clone(),
        at,
        unit: unit.to_owned(),
        samples: report.samples.clone(),
        counts: [report.sent, report.received],
    }
}

fn achieved(report: &PingReport) -> f64 {
    report.sent as f64 / report.seconds.max(1e-9)
}

/// No loss, and as many packets sent as were to be.
fn goes_well(report: &PingReport, rate: f64) -> bool {
    report.sent > 0 && report.received == report.sent && achieved(report) >= 0.9 * rate
}

/// Sends at a rate.
fn offer(
    bed: &Bed,
    one: &Combination,
    rate: f64,
    lasting: Duration,
    extras: &Extras<'_>,
) -> Result<PingReport, AfxdpError> {
    let count = ((rate * lasting.as_secs_f64()) as u64).clamp(LEAST, MOST);
    let takes = Duration::from_secs_f64(count as f64 / rate);
    let plan = PingPlan {
        size: one.size as usize,
        batch: one.batch as usize,
        count: Some(count),
        interval: Duration::from_secs_f64(f64::from(one.batch) / rate),
        warm_up_interval: Duration::from_secs_f64(f64::from(one.batch) / rate),
        lasting: Some(takes * 2 + lasting),
        timeout: extras.limits.timeout,
        warm_up: count / 10,
        warm_up_lasting: None,
        back: None,
        to: Some(bed.far.mac()),
        ethertype: crate::xsk::ETHERTYPE,
        samples: count as usize,
        calibration: Some(bed.calibration),
    };
    let setup = bed.near.setup(one, 0, &Arc::new(Meter::default()));
    let all = takes * 2 + lasting + extras.limits.timeout * 2 + Duration::from_secs(5);
    let report = with_deadline(all, extras.stop, |told| {
        bed.near.place.run(|| ping(&setup, &plan, told))
    })
    .map_err(XskRunError::from)??;
    if extras.stop.load(Ordering::Relaxed) {
        return Err(AfxdpError::Interrupted(extras.kept));
    }
    Ok(report)
}

/// Runs a cell's settings over chains of 1 to `most` forwarders: namespaces in a ring, the prober's among them, so that a packet passes each forwarder once. Forwarders that
/// spin share one thread, which serves them in turn; forwarders that sleep have a thread each.
///
/// # Errors
/// A chain cannot be built, or the user said stop.
pub fn chain(
    bed: &Bed,
    cell: &Cell,
    most: u32,
    count: u64,
    extras: &Extras<'_>,
) -> Result<Vec<Extra>, AfxdpError> {
    let one = combination(cell)?;
    let mut found = Vec::new();
    for length in 1..=most {
        let ring = Ring::build(bed, length)?;
        let report = ring.measure(&one, count, bed, extras)?;
        if extras.stop.load(Ordering::Relaxed) {
            return Err(AfxdpError::Interrupted(extras.kept));
        }
        found.push(extra(
            "chain",
            cell,
            f64::from(length),
            "forwarders",
            &report,
        ));
    }
    Ok(found)
}

/// Namespaces in a ring: `out` of each is connected with `in` of the next.
struct Ring {
    /// `in` and `out` of each namespace, the prober's first.
    nodes: Vec<[Side; 2]>,
}

impl Ring {
    fn build(bed: &Bed, forwarders: u32) -> Result<Ring, AfxdpError> {
        let spaces = namespaces(&bed.journal, forwarders + 1)?;
        for (n, space) in spaces.iter().enumerate() {
            let next = &spaces[(n + 1) % spaces.len()];
            link((space, "out"), (next, "in"))?;
        }
        let side = |space: &Arc<weir_kernel::NetNs>, name: &str| {
            Side::new(
                &bed.journal,
                NetnsHandle::Ns(Arc::clone(space)),
                name,
                None,
                true,
            )
        };
        let nodes = spaces
            .iter()
            .map(|space| Ok([side(space, "in")?, side(space, "out")?]))
            .collect::<Result<_, XskRunError>>()?;
        Ok(Ring { nodes })
    }

    fn measure(
        mut self,
        one: &Combination,
        count: u64,
        bed: &Bed,
        extras: &Extras<'_>,
    ) -> Result<PingReport, AfxdpError> {
        for side in self.nodes.iter_mut().flatten() {
            side.configure(Some(one))?;
        }
        let meter = Arc::new(Meter::default());
        let stop = AtomicBool::new(false);
        let Some(([home_in, home_out], forwarders)) = self.nodes.split_first() else {
            return Err(XskRunError::Usage("a chain without a prober".to_owned()).into());
        };
        let setups: Vec<(&Side, Setup, Arc<AtomicBool>)> = forwarders
            .iter()
            .map(|[enters, _]| {
                let armed = Arc::new(AtomicBool::new(false));
                let setup = Setup {
                    armed: Some(Arc::clone(&armed)),
                    ..enters.setup(one, 1, &meter)
                };
                (enters, setup, armed)
            })
            .collect();
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            let mut ready: Vec<&AtomicBool> = Vec::new();
            if one.forwarder_wait.spins() {
                let mut chain = Chain::new();
                for (side, setup, _) in &setups {
                    side.place
                        .run(|| chain.add(setup, "out"))
                        .map_err(XskRunError::from)??;
                }
                if let Some((_, setup, armed)) = setups.first() {
                    ready.push(armed);
                    let stop = &stop;
                    threads.push(scope.spawn(move || chain.run(setup, stop)));
                }
            } else {
                for (side, setup, armed) in &setups {
                    ready.push(armed);
                    let stop = &stop;
                    threads.push(scope.spawn(move || {
                        let plan = ForwardPlan {
                            to: Some("out".to_owned()),
                            ..ForwardPlan::default()
                        };
                        side.place.run(|| forward(setup, &plan, stop).map(drop))?
                    }));
                }
            }
            let limit = Instant::now() + READY;
            while !ready.iter().all(|armed| armed.load(Ordering::Acquire)) && Instant::now() < limit
            {
                if threads
                    .iter()
                    .any(std::thread::ScopedJoinHandle::is_finished)
                {
                    break;
                }
                std::thread::sleep(Duration::from_micros(200));
            }
            let setup = home_out.setup(one, 0, &meter);
            let lasting = extras.limits.lasting;
            let plan = PingPlan {
                size: one.size as usize,
                batch: one.batch as usize,
                count: Some(count),
                interval: one.interval,
                warm_up_interval: one.interval,
                lasting: Some(lasting),
                timeout: extras.limits.timeout,
                warm_up: count / 10,
                warm_up_lasting: Some(lasting / 5),
                back: Some(home_in.interface.clone()),
                to: None,
                ethertype: crate::xsk::ETHERTYPE,
                samples: count as usize,
                calibration: Some(bed.calibration),
            };
            let all = lasting + extras.limits.timeout * 3 + Duration::from_secs(5);
            let report = with_deadline(all, extras.stop, |told| {
                home_out.place.run(|| ping(&setup, &plan, told))
            });
            stop.store(true, Ordering::Relaxed);
            for thread in threads {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            }
            Ok(report.map_err(XskRunError::from)??)
        })
    }
}
