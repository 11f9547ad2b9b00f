//! Carrying a sweep out: the bed, the order, one run after the other, what is told on the way, and going on where an interrupted one ended.
//!
//! Invariants: every cell and every control runs once in each block; the order of a block follows from the seed and the block's number alone; a run ends by itself, by its time
//! or by being told, and is recorded either way; what was changed is put back before this returns.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use weir_kernel::{KernelError, NetNs};

use super::beside::{Aside, Asides, What};
use super::control::{self, CONTROLS, Control};
use super::extras::{Extras, Limits, chain, rerun_under_load};
use super::records::{Header, Line, Records};
use super::remote::{Far, Remote};
use super::results::{Cell, Effective, Extra, Pruned, Results, Run};
use super::settings::{Journal, NetnsHandle, PREFIX, WakeLimit, restore_orphans};
use super::side::{Order, Side};
use super::space::{Capabilities, Space, prune};
use super::sweep::{Combination, Mode, Placement, Sweep, WaitBy};
use crate::bench::measure::{processes, schedstat_ns};
use crate::xsk::{Calibration, Meter, PingPlan, XskRunError, calibrate, now_ns, ping};

/// Version of results.
pub const VERSION: u32 = 1;
/// What setting a run up and taking it down takes, about; for estimates only.
const OVERHEAD: Duration = Duration::from_millis(120);
/// How long an interface that went down is waited for.
const PATIENCE: Duration = Duration::from_secs(3);

/// Addresses of the own bed (TEST-NET-2).
const NEAR: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const FAR: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);

/// Why a sweep could not be carried out. A run that failed is no error: it is a result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AfxdpError {
    /// The document.
    #[error(transparent)]
    Document(#[from] super::sweep::Mistakes),
    /// Sockets, interfaces, settings.
    #[error(transparent)]
    Run(#[from] XskRunError),
    /// A file.
    #[error("cannot {what}: {source}")]
    Io {
        /// An infinitive without "to".
        what: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The folder holds another sweep.
    #[error(
        "{folder} holds runs of another sweep ({why}): give another --output, or remove the folder"
    )]
    OtherSweep {
        /// The folder.
        folder: String,
        /// In what it differs.
        why: String,
    },
    /// Nothing to run.
    #[error("none of the {0} combinations can be on this machine: `--dry-run` says why")]
    Nothing(usize),
    /// The interface went down and stayed so.
    #[error("{interface} is down, and did not come up within {} s; all settings were restored{kept}", PATIENCE.as_secs())]
    Down {
        /// The interface.
        interface: String,
        /// What becomes of the runs.
        kept: &'static str,
    },
    /// The user asked to stop.
    #[error("interrupted; all settings were restored{0}")]
    Interrupted(&'static str),
}

impl From<KernelError> for AfxdpError {
    fn from(error: KernelError) -> AfxdpError {
        AfxdpError::Run(error.into())
    }
}

impl AfxdpError {
    /// Whether the user asked for something that cannot be.
    pub fn is_usage(&self) -> bool {
        match self {
            AfxdpError::Document(_) | AfxdpError::OtherSweep { .. } | AfxdpError::Nothing(_) => {
                true
            }
            AfxdpError::Run(error) => error.is_usage(),
            _ => false,
        }
    }

    pub(super) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> AfxdpError {
        let what = what.into();
        move |source| AfxdpError::Io { what, source }
    }
}

/// Where a sweep runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ends {
    /// Two namespaces of its own with a veth pair.
    Bed,
    /// Two interfaces of this namespace that are connected with each other: the prober's, the forwarder's.
    Interfaces(String, String),
    /// The prober's interface here, and where the forwarder's host listens (`weir lab afxdp --listen`).
    Remote(String, String),
}

/// How to carry it out.
pub struct Options<'a> {
    /// What to run.
    pub sweep: &'a Sweep,
    /// Where.
    pub ends: Ends,
    /// Where runs are kept; a sweep that was interrupted goes on there.
    pub out: Option<&'a Path>,
    /// Instead of the document's: no run and nothing beside the blocks begins after it.
    pub time_limit: Option<Duration>,
    /// Frames may reach a real network.
    pub owned: bool,
    /// Ends it in order.
    pub stop: &'a AtomicBool,
    /// Told what happens.
    pub tell: &'a dyn Fn(Told<'_>),
    /// Which cells are measured beside the blocks, if the document wants that.
    pub beside: &'a dyn Fn(&Results) -> Beside,
}

/// Cells to be measured beside the blocks, by their ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Beside {
    /// Under load.
    pub load: Vec<String>,
    /// Over chains of forwarders.
    pub chains: Vec<String>,
}

/// What is told on the way.
#[derive(Clone, Copy, Debug)]
pub enum Told<'a> {
    /// Something to know.
    Note(&'a str),
    /// A run begins.
    Progress {
        /// Runs done.
        done: u64,
        /// All runs.
        all: u64,
        /// Time that the rest takes, about.
        left: Duration,
        /// What begins.
        cell: &'a str,
    },
}

/// What a sweep would run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Combinations that can be, and those that cannot.
    pub space: Space,
    /// Controls of each block.
    pub controls: Vec<&'static str>,
    /// How long, about.
    pub estimate: Duration,
    /// What was found out about the machine.
    pub capabilities: Capabilities,
}

/// A bed, probed.
pub struct Bed {
    pub(super) near: Side,
    pub(super) far: Far,
    pub(super) calibration: Calibration,
    /// Kernel threads that handle packets.
    helpers: Vec<u32>,
    /// Ends last: until namespaces are gone and settings are back.
    pub(super) journal: Arc<Journal>,
}

impl Bed {
    /// Makes one, or takes interfaces that are there. What a killed sweep left is put back first.
    ///
    /// # Errors
    /// An interface is not there, is not to be used, or nothing may be done.
    pub fn new(ends: &Ends, owned: bool, tell: &dyn Fn(Told<'_>)) -> Result<Bed, AfxdpError> {
        for line in restore_orphans()? {
            tell(Told::Note(&line));
        }
        let journal = Journal::begin()?;
        let side = |name: &str| {
            crate::xsk::Setup {
                owned,
                ..crate::xsk::Setup::new(name)
            }
            .check_owned(name)?;
            Side::new(&journal, NetnsHandle::Here, name, None, owned)
        };
        let (near, far) = match ends {
            Ends::Bed => {
                let (near, far) = own_bed(&journal)?;
                (near, Far::Local(Box::new(far)))
            }
            Ends::Remote(near, address) => (
                side(near)?,
                Far::Remote(Box::new(Remote::connect(address)?)),
            ),
            Ends::Interfaces(near, far) => {
                if near == far {
                    return Err(XskRunError::Usage(format!(
                        "{near} is used for both ends: name the connected interface"
                    ))
                    .into());
                }
                (side(near)?, Far::Local(Box::new(side(far)?)))
            }
        };
        let helpers = processes(|name| name.starts_with("ksoftirqd/"));
        Ok(Bed {
            near,
            far,
            calibration: calibrate(),
            helpers,
            journal,
        })
    }

    /// What a sweep would run here.
    ///
    /// # Errors
    /// Nothing can be opened at all.
    pub fn plan(&self, sweep: &Sweep) -> Result<Plan, AfxdpError> {
        let near = Capabilities::probe(&self.near.place, &self.near.interface)?;
        let capabilities = near.with(self.far.capabilities()?);
        let mut space = prune(&sweep.combinations, &capabilities);
        let mut controls = Vec::new();
        for control in CONTROLS {
            let why = if control.spins && capabilities.cpus.len() < 2 {
                Some("this process may use one CPU only: spinning controls cannot be split")
            } else if control.name.starts_with("udp")
                && (self.near.address.is_none() || self.far.address().is_none())
            {
                Some(
                    "an end has no address that the other could send to over the link: no UDP controls",
                )
            } else {
                None
            };
            match why {
                None => controls.push(control.name),
                Some(reason) => match space.pruned.iter_mut().find(|p| p.reason == reason) {
                    Some(known) => known.count += 1,
                    None => space.pruned.push(Pruned {
                        reason: reason.to_owned(),
                        count: 1,
                        example: control.name.to_owned(),
                    }),
                },
            }
        }
        let once: Duration = space
            .cells
            .iter()
            .map(|one| guess(sweep, one))
            .sum::<Duration>()
            + guess(sweep, &sweep.base) * controls.len() as u32;
        Ok(Plan {
            space,
            controls,
            estimate: once * sweep.blocks,
            capabilities,
        })
    }

    /// Puts everything back; dropping it does so as well, but tells nobody of failures.
    ///
    /// # Errors
    /// A setting cannot be put back. It stays in the journal.
    pub fn restore(mut self) -> Result<(), AfxdpError> {
        let near = self.near.restore();
        self.far.restore()?;
        near?;
        Ok(())
    }
}

fn own_bed(journal: &Arc<Journal>) -> Result<(Side, Side), XskRunError> {
    let mut spaces = namespaces(journal, 2)?.into_iter();
    let (Some(near), Some(far)) = (spaces.next(), spaces.next()) else {
        return Err(XskRunError::Usage("no namespaces".to_owned()));
    };
    link((&near, "near"), (&far, "far"))?;
    for (ns, name, address) in [(&near, "near", NEAR), (&far, "far", FAR)] {
        ns.ip(&["address", "add", &format!("{address}/24"), "dev", name])?;
    }
    let near = Side::new(journal, NetnsHandle::Ns(near), "near", Some(NEAR), true)?;
    let far = Side::new(journal, NetnsHandle::Ns(far), "far", Some(FAR), true)?;
    Ok((near, far))
}

/// Namespaces in which nothing but the sweep sends.
pub(super) fn namespaces(journal: &Journal, count: u32) -> Result<Vec<Arc<NetNs>>, XskRunError> {
    // Names of its own, so that what is left of them can be told from those of others.
    let prefix = format!("{PREFIX}-{:x}", now_ns() & 0xff_ffff);
    journal.note_bed(&format!("{prefix}-"))?;
    (0..count)
        .map(|_| {
            let ns = NetNs::create(&prefix)?;
            for which in ["all", "default"] {
                ns.sysctl(&format!("net.ipv6.conf.{which}.disable_ipv6"), "1")?;
            }
            Ok(Arc::new(ns))
        })
        .collect()
}

/// Joins two namespaces with a veth pair that may have several queues, and sets both ends up.
pub(super) fn link(one: (&NetNs, &str), other: (&NetNs, &str)) -> Result<(), XskRunError> {
    let sizes = ["numtxqueues", "4", "numrxqueues", "4"];
    let mut add = vec!["link", "add", one.1];
    add.extend(sizes);
    add.extend(["type", "veth", "peer", "name", other.1]);
    add.extend(sizes);
    add.extend(["netns", other.0.name()]);
    one.0.ip(&add)?;
    for (ns, name) in [one, other] {
        ns.ip(&["link", "set", name, "up"])?;
    }
    Ok(())
}

/// How long a run takes, about.
fn guess(sweep: &Sweep, one: &Combination) -> Duration {
    let (count, warm_up) = sweep.pings(one);
    let trip = match (one.placement, one.forwarder_wait, one.prober_wait) {
        (Placement::Same, f, p) if f != p => Duration::from_millis(4),
        (_, WaitBy::Poll, _) | (_, _, WaitBy::Poll) => Duration::from_micros(30),
        _ => Duration::from_micros(10),
    };
    let trip = trip.max(one.deferral.timeout * 2).max(one.interval);
    let batches = (count + warm_up).div_ceil(one.batch.into());
    trip.saturating_mul(u32::try_from(batches).unwrap_or(u32::MAX))
        .min(sweep.duration)
        + OVERHEAD
}

/// What runs in a block.
#[derive(Clone, Debug)]
enum Job {
    Cell(Combination),
    Control(Control, Combination),
}

impl Job {
    fn id(&self) -> String {
        match self {
            Job::Cell(one) => one.id(),
            Job::Control(control, _) => control.name.to_owned(),
        }
    }

    fn combination(&self) -> &Combination {
        match self {
            Job::Cell(one) | Job::Control(_, one) => one,
        }
    }
}

/// The order of a block: all numbers below `count`, once each. It follows from seed and block alone.
pub fn order(seed: u64, block: u32, count: usize) -> Vec<usize> {
    // splitmix64 (public domain algorithm of Steele, Lea and Flood): every seed is as good as any other.
    let mut state = seed ^ (u64::from(block) + 1).wrapping_mul(0xa076_1d64_78bd_642f);
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let mut all: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        // The bias of the remainder is below 2^-40 for any sweep.
        all.swap(last, (next() % (last as u64 + 1)) as usize);
    }
    all
}

/// Carries a sweep out.
///
/// # Errors
/// It cannot be carried out, or was interrupted. What was changed is put back in either case, and what ran is kept in `out`.
pub fn run(options: &Options<'_>) -> Result<Results, AfxdpError> {
    let mut bed = Bed::new(&options.ends, options.owned, options.tell)?;
    let plan = bed.plan(options.sweep)?;
    if plan.space.cells.is_empty() {
        return Err(AfxdpError::Nothing(options.sweep.combinations.len()));
    }
    let begun = Instant::now();
    let results = blocks(&mut bed, options, &plan, begun).and_then(|mut results| {
        if options.sweep.extras {
            (results.extras, results.left_out) = beside(&mut bed, options, &results, begun)?;
        }
        Ok(results)
    });
    let restored = bed.restore();
    let results = results?;
    restored?;
    Ok(results)
}

fn beside(
    bed: &mut Bed,
    options: &Options<'_>,
    results: &Results,
    begun: Instant,
) -> Result<(Vec<Extra>, Vec<String>), AfxdpError> {
    /// Forwarders of the longest chain.
    const LONGEST: u32 = 5;
    let extras = Extras {
        stop: options.stop,
        tell: options.tell,
        kept: kept(options),
        limits: Limits {
            timeout: options.sweep.timeout,
            ..Limits::default()
        },
    };
    let wanted = (options.beside)(results);
    let find = |id: &String| {
        results
            .cells
            .iter()
            .find(|cell| cell.id == *id && cell.control.is_none())
    };
    let of = |what: What, ids: &[String]| -> Vec<Aside> {
        let known = ids.iter().filter(|id| find(id).is_some());
        known
            .map(|id| Aside {
                what,
                cell: id.clone(),
            })
            .collect()
    };
    let mut asides = Asides::open(options.out, &header(bed, options.sweep))?;
    let limit = limit(options);
    let (found, left_out) = asides.all(
        &[
            of(What::Load, &wanted.load),
            of(What::Chains, &wanted.chains),
        ]
        .concat(),
        || limit.is_some_and(|limit| begun.elapsed() >= limit),
        |aside| match (find(&aside.cell), aside.what) {
            (None, _) => Ok(Vec::new()),
            (Some(cell), What::Load) => rerun_under_load(bed, &[cell], &extras),
            (Some(cell), What::Chains) => chain(bed, cell, LONGEST, options.sweep.count, &extras),
        },
    )?;
    if !left_out.is_empty() {
        let text = format!(
            "the time limit is reached: {} extra measurements are left out",
            left_out.len()
        );
        (options.tell)(Told::Note(&text));
    }
    Ok((found, left_out))
}

/// What all that is kept of a sweep has in common.
fn header(bed: &Bed, sweep: &Sweep) -> Header {
    Header {
        version: VERSION,
        document: sweep.text.clone(),
        seed: sweep.seed,
        kernel: super::machine::kernel(),
        driver: bed.near.driver.clone(),
        interfaces: [bed.near.interface.clone(), bed.far.interface()],
    }
}

/// What is told to those who interrupt it.
fn kept(options: &Options<'_>) -> &'static str {
    if options.out.is_some() {
        "; completed runs are kept; the same command resumes"
    } else {
        "; with --output DIR an interrupted sweep can be resumed"
    }
}

/// Of the blocks and what is measured beside them.
fn limit(options: &Options<'_>) -> Option<Duration> {
    options.time_limit.or(options.sweep.time_limit)
}

fn blocks(
    bed: &mut Bed,
    options: &Options<'_>,
    plan: &Plan,
    begun: Instant,
) -> Result<Results, AfxdpError> {
    let sweep = options.sweep;
    let controls = CONTROLS.iter().filter(|c| plan.controls.contains(&c.name));
    let jobs: Vec<Job> = plan
        .space
        .cells
        .iter()
        .cloned()
        .map(Job::Cell)
        .chain(controls.map(|c| Job::Control(*c, sweep.base.clone())))
        .collect();
    let header = header(bed, sweep);
    let mut records = Records::open(options.out, &header)?;
    let kept = kept(options);
    let all = jobs.len() as u64 * u64::from(sweep.blocks);
    let limit = limit(options);
    let mut took: BTreeMap<usize, Duration> = BTreeMap::new();
    let mut done = 0u64;
    let mut spent = Duration::ZERO;
    let mut late = false;
    'blocks: for block in 0..sweep.blocks {
        for (place, number) in order(sweep.seed, block, jobs.len()).into_iter().enumerate() {
            let job = &jobs[number];
            let id = job.id();
            if let Some(seconds) = records.has(&id, block) {
                done += 1;
                took.insert(number, Duration::from_secs_f64(seconds));
                continue;
            }
            let expected = |n: usize| {
                took.get(&n)
                    .copied()
                    .unwrap_or_else(|| guess(sweep, jobs[n].combination()))
            };
            if limit.is_some_and(|limit| begun.elapsed() + expected(number) > limit) {
                late = true;
                break 'blocks;
            }
            let whole: Duration = (0..jobs.len()).map(expected).sum();
            let left = whole.mul_f64((all - done) as f64 / jobs.len() as f64);
            (options.tell)(Told::Progress {
                done,
                all,
                left,
                cell: &id,
            });
            let from = Instant::now();
            let mut run = bed.one(sweep, job, options.stop);
            if options.stop.load(Ordering::Relaxed) {
                return Err(AfxdpError::Interrupted(kept));
            }
            run.block = block;
            run.place = place as u32;
            let failed = run.failure.is_some();
            took.insert(number, from.elapsed());
            spent += from.elapsed();
            done += 1;
            records.add(Line {
                cell: id,
                seconds: from.elapsed().as_secs_f64(),
                run,
            })?;
            if failed {
                bed.wait_up(options.stop, kept)?;
            }
        }
    }
    if late {
        let text = format!("the time limit is reached after {done} of {all} runs");
        (options.tell)(Told::Note(&text));
    }
    let mut machine = super::machine::describe();
    machine.push(("driver".to_owned(), bed.near.driver.clone()));
    machine.push((
        "devices".to_owned(),
        match options.ends {
            Ends::Bed => "a veth pair between two namespaces".to_owned(),
            Ends::Interfaces(..) | Ends::Remote(..) => {
                format!("{} and {}", bed.near.interface, bed.far.interface())
            }
        },
    ));
    let seconds = records.seconds();
    let mut runs = records.into_runs();
    let cells: Vec<Cell> = jobs
        .iter()
        .map(|job| Cell {
            id: job.id(),
            knobs: job.combination().knobs(),
            control: match job {
                Job::Cell(_) => None,
                Job::Control(control, _) => Some(control.name.to_owned()),
            },
            runs: runs.remove(&job.id()).unwrap_or_default(),
        })
        .filter(|cell| !cell.runs.is_empty())
        .collect();
    let blocks = cells
        .iter()
        .flat_map(|c| &c.runs)
        .map(|r| r.block + 1)
        .max()
        .unwrap_or(0);
    Ok(Results {
        version: VERSION,
        machine,
        driver: bed.near.driver.clone(),
        kernel: header.kernel,
        seed: sweep.seed,
        blocks,
        seconds,
        cells,
        pruned: plan.space.pruned.clone(),
        extras: Vec::new(),
        left_out: Vec::new(),
    })
}

impl Bed {
    /// One run; whatever happens is in it.
    fn one(&mut self, sweep: &Sweep, job: &Job, stop: &AtomicBool) -> Run {
        let mut run = Run {
            block: 0,
            place: 0,
            samples: Vec::new(),
            sent: 0,
            received: 0,
            cpu_per_packet: 0.0,
            kernel_cpu_per_packet: 0.0,
            joules: None,
            effective: Effective::default(),
            failure: None,
        };
        if let Err(error) = self.measure(sweep, job, stop, &mut run) {
            run.failure = Some(error.to_string());
        } else if run.failure.is_none() && run.received == 0 {
            run.failure = Some(match run.sent {
                0 => "stalled: timeout during warm-up".to_owned(),
                sent => format!("stalled: none of {sent} packets came back"),
            });
        }
        run
    }

    fn measure(
        &mut self,
        sweep: &Sweep,
        job: &Job,
        stop: &AtomicBool,
        run: &mut Run,
    ) -> Result<(), XskRunError> {
        let one = job.combination();
        let (count, warm_up) = sweep.pings(one);
        let meter = Arc::new(Meter::default());
        let is_cell = matches!(job, Job::Cell(_));
        let mut unmet = self.near.configure(is_cell.then_some(one))?;
        let limit = match one.c_state.filter(|_| is_cell) {
            Some(micros) => Some((micros, WakeLimit::set(micros)?)),
            None => None,
        };
        if let Some((micros, limit)) = &limit
            && let Some(held) = limit.held()
            && i64::from(held) > i64::from(*micros)
        {
            unmet.push(format!(
                "CPUs were to wake within {micros} us, and may take {held} us"
            ));
        }
        let order = Order {
            knobs: one.knobs(),
            control: match job {
                Job::Cell(_) => None,
                Job::Control(control, _) => Some(control.name.to_owned()),
            },
        };
        let polled = self.near.busy_polled();
        let forwarding = self.far.start(&order, &meter)?;
        if one.threaded && is_cell {
            // Made with the setting, and gone with it. Where programs run in real time theirs is above it, or programs that spin would never let them run.
            let threads = processes(|name| name.starts_with("napi/"));
            if one.priority > 0 {
                for thread in &threads {
                    weir_kernel::sched::realtime(*thread, (one.priority + 1).min(99))?;
                }
            }
            self.helpers = processes(|name| name.starts_with("ksoftirqd/"));
            self.helpers.extend(threads);
        }
        let helpers = |pids: &[u32]| {
            pids.iter()
                .filter_map(|pid| schedstat_ns(*pid))
                .sum::<f64>()
        };
        let kernel = helpers(&self.helpers);
        let joules = super::machine::energy();
        let mut setup = self.near.setup(one, 0, &meter);
        setup.armed = None;
        let all = sweep.duration + sweep.timeout * 3 + Duration::from_secs(5);
        let probed: Result<(), XskRunError> = with_deadline(all, stop, |told| {
            let near = &self.near;
            match job {
                Job::Cell(_) => {
                    let plan = PingPlan {
                        size: one.size as usize,
                        batch: one.batch as usize,
                        count: Some(count),
                        interval: one.interval,
                        warm_up_interval: one.interval,
                        lasting: Some(sweep.duration),
                        timeout: sweep.timeout,
                        warm_up,
                        warm_up_lasting: Some(sweep.duration / 5),
                        back: None,
                        to: Some(self.far.mac()),
                        ethertype: crate::xsk::ETHERTYPE,
                        samples: count as usize,
                        calibration: Some(self.calibration),
                    };
                    let report = near.place.run(|| ping(&setup, &plan, told))??;
                    run.sent = report.sent;
                    run.received = report.received;
                    run.samples = report.samples;
                    for socket in &report.sockets {
                        run.effective.napi[0] = socket.napi_id.unwrap_or(0);
                        run.effective.wakeup_skipped |= socket.kicks_saved > 0;
                        if one.mode == Mode::ZeroCopy && socket.mode != Some("zero-copy") {
                            unmet.push(
                                "zero-copy was asked for, and the prober's socket copies"
                                    .to_owned(),
                            );
                        }
                    }
                }
                Job::Control(control, _) => {
                    let to = (
                        self.far.address().unwrap_or(Ipv4Addr::UNSPECIFIED),
                        self.far.mac(),
                    );
                    let plan = control::Plan {
                        count,
                        warm_up,
                        lasting: sweep.duration,
                        timeout: sweep.timeout,
                        ..control::Plan::of(*control, one, to)
                    };
                    let from = near.address.unwrap_or(Ipv4Addr::UNSPECIFIED);
                    let probed = near
                        .place
                        .run(|| control::probe(&setup, &plan, from, told))??;
                    run.sent = probed.sent;
                    run.received = probed.samples.len() as u64;
                    run.samples = probed.samples;
                }
            }
            Ok(())
        });
        let kernel = helpers(&self.helpers) - kernel;
        run.joules = super::machine::energy()
            .zip(joules)
            .map(|(after, before)| after - before);
        let far = self.far.finish(forwarding);
        drop(limit);
        probed?;
        run.failure = far.failure;
        let packets = run.received.max(1) as f64;
        run.cpu_per_packet = (meter.cpu_ns() + far.cpu_ns) as f64 / packets;
        run.kernel_cpu_per_packet = kernel.max(0.0) / packets;
        run.effective.napi[1] = far.napi;
        run.effective.zero_copy = far.zero_copy;
        run.effective.wakeup_skipped |= far.kicks_saved > 0;
        run.effective.busy_poll_packets =
            far.busy_polled + self.near.busy_polled().saturating_sub(polled);
        unmet.extend(far.unmet);
        if is_cell {
            unmet.extend(not_so(one, &run.effective));
        }
        run.effective.unmet = unmet;
        Ok(())
    }

    /// After a failure: goes on if both interfaces are up, or come up soon.
    fn wait_up(&mut self, stop: &AtomicBool, kept: &'static str) -> Result<(), AfxdpError> {
        let limit = Instant::now() + PATIENCE;
        loop {
            let interface = if !self.near.is_up() {
                self.near.interface.clone()
            } else if !self.far.is_up() {
                self.far.interface()
            } else {
                return Ok(());
            };
            if stop.load(Ordering::Relaxed) {
                return Err(AfxdpError::Interrupted(kept));
            }
            if Instant::now() > limit {
                return Err(AfxdpError::Down { interface, kept });
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// What was asked for and did not take effect, as far as sockets and counters tell.
fn not_so(one: &Combination, effective: &Effective) -> Vec<String> {
    let mut unmet = Vec::new();
    if one.mode == Mode::ZeroCopy && !effective.zero_copy {
        unmet.push("zero-copy was asked for, and the forwarder's socket copies".to_owned());
    }
    let polls = if one.busy_poll.is_none() {
        false
    } else if effective.napi.contains(&0) {
        unmet.push(
            "busy polling was asked for and does nothing: the driver names no NAPI instance for the queue (SO_INCOMING_NAPI_ID is 0; on a veth from Linux 6.13 on)".to_owned(),
        );
        false
    } else if effective.busy_poll_packets == 0 {
        unmet.push(
            "busy polling was asked for, and no packet came by it (BusyPollRxPackets did not grow)"
                .to_owned(),
        );
        false
    } else {
        true
    };
    if !polls && (one.deferral.irqs > 0 || !one.deferral.timeout.is_zero()) {
        unmet.push(format!(
            "interrupts were put off so that busy polling takes their place (napi_defer_hard_irqs {}, gro_flush_timeout {} us), and none takes place: every packet waits for the timer",
            one.deferral.irqs,
            one.deferral.timeout.as_micros()
        ));
    }
    unmet
}

/// Runs `work` with a flag that is set when it is to end: after `all`, or when the user says so.
pub(super) fn with_deadline<T>(
    all: Duration,
    stop: &AtomicBool,
    work: impl FnOnce(&AtomicBool) -> T,
) -> T {
    let told = AtomicBool::new(false);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let limit = Instant::now() + all;
            while !over.load(Ordering::Acquire) {
                std::thread::park_timeout(Duration::from_millis(50));
                if Instant::now() > limit || stop.load(Ordering::Relaxed) {
                    told.store(true, Ordering::Relaxed);
                }
            }
        });
        /// Ends the watch also when `work` panics.
        struct End<'a>(&'a AtomicBool, std::thread::Thread);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Release);
                self.1.unpark();
            }
        }
        let _end = End(&over, watch.thread().clone());
        work(&told)
    })
}
