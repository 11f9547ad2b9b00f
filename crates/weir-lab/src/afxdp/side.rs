//! One end of the link: its interface, its settings, its addresses; and the far end with the forwarder, which is told what to be for each run.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use weir_kernel::iface;
use weir_xsk::{BusyPoll, Mode as SocketMode, SocketConfig, UmemConfig};

use super::control::{self, CONTROLS};
use super::settings::{InterfaceSettings, Journal, NetnsHandle, Setting};
use super::sweep::{Combination, Mode, Placement};
use crate::xsk::{ForwardPlan, Meter, Setup, SocketReport, XskRunError, forward};

/// How long a forwarder may take until it is ready: a queue is busy for some ten milliseconds after its socket closed.
const READY: Duration = Duration::from_secs(10);
/// How long a busy queue is tried: on a machine with much to do the kernel closes sockets late.
const PATIENCE: Duration = Duration::from_secs(3);
/// Most frames of a socket.
const FRAMES: u32 = 8192;

/// One end.
#[derive(Debug)]
pub(super) struct Side {
    // Settings go back before the place may end.
    settings: InterfaceSettings,
    pub(super) place: Arc<NetnsHandle>,
    pub(super) interface: String,
    pub(super) mac: [u8; 6],
    pub(super) driver: String,
    /// For the UDP controls.
    pub(super) address: Option<Ipv4Addr>,
    /// CPUs of prober and forwarder.
    cpus: [usize; 2],
    owned: bool,
}

impl Drop for Side {
    fn drop(&mut self) {
        let Side {
            settings, place, ..
        } = self;
        // A failure keeps the journal; there is nobody to tell here.
        let _ = place.run(|| settings.restore());
    }
}

impl Side {
    /// Of an interface; nothing is changed yet.
    pub(super) fn new(
        journal: &Arc<Journal>,
        place: NetnsHandle,
        interface: &str,
        address: Option<Ipv4Addr>,
        owned: bool,
    ) -> Result<Side, XskRunError> {
        let (found, settings) = place.run(|| {
            Ok::<_, XskRunError>((
                iface::find(interface)?,
                InterfaceSettings::of(journal, interface)?,
            ))
        })??;
        let cpus = super::space::cpus();
        let first = cpus.first().copied().unwrap_or(0);
        Ok(Side {
            settings,
            place: Arc::new(place),
            interface: interface.to_owned(),
            mac: found.mac,
            driver: found.driver,
            address,
            cpus: [first, cpus.get(1).copied().unwrap_or(first)],
            owned,
        })
    }

    /// Gives the interface the settings of a combination, none: its own. What does not hold is told.
    pub(super) fn configure(
        &mut self,
        one: Option<&Combination>,
    ) -> Result<Vec<String>, XskRunError> {
        let mut wanted = Vec::new();
        if let Some(one) = one {
            if let Ok(Ok(q)) = self.place.run(|| iface::queues(&self.interface)) {
                let some = |had: u32| if had > 0 { one.queues } else { 0 };
                wanted.push((
                    Setting::Queues,
                    format!("{}/{}/{}", some(q.rx), some(q.tx), some(q.combined)),
                ));
            }
            if let Some(us) = one.coalescing {
                wanted.push((Setting::Coalescing, format!("{us}/{us}/false/false")));
            }
            if one.threaded {
                if self.driver == "veth" {
                    wanted.push((Setting::Gro, "true".to_owned()));
                }
                wanted.push((Setting::Threaded, "1".to_owned()));
            }
            if one.deferral.irqs > 0 {
                wanted.push((Setting::Irqs, one.deferral.irqs.to_string()));
            }
            if !one.deferral.timeout.is_zero() {
                wanted.push((
                    Setting::Timeout,
                    one.deferral.timeout.as_nanos().to_string(),
                ));
            }
        }
        let Side {
            settings, place, ..
        } = self;
        Ok(place.run(|| settings.turn_into(&wanted))??)
    }

    /// Puts back what was changed.
    pub(super) fn restore(&mut self) -> Result<(), XskRunError> {
        let Side {
            settings, place, ..
        } = self;
        Ok(place.run(|| settings.restore())??)
    }

    /// The sockets of a combination. `role` is 0 for the prober, 1 for the forwarder.
    pub(super) fn setup(&self, one: &Combination, role: usize, meter: &Arc<Meter>) -> Setup {
        let wait = [one.prober_wait, one.forwarder_wait][role];
        let cpu = match one.placement {
            Placement::Split => self.cpus[role],
            Placement::Same => self.cpus[0],
        };
        Setup {
            umem: UmemConfig {
                frame_size: one.frame_size,
                frames: (2 * one.ring.max(one.batch)).clamp(128, FRAMES),
                ..UmemConfig::default()
            },
            socket: SocketConfig {
                rx: one.ring,
                tx: one.ring,
                fill: one.ring,
                completion: one.ring,
                mode: match one.mode {
                    Mode::ZeroCopy => SocketMode::ZeroCopy,
                    Mode::Generic | Mode::Copy => SocketMode::Copy,
                },
                need_wakeup: one.need_wakeup,
                busy_poll: one.busy_poll.map(|(micros, budget)| BusyPoll {
                    micros,
                    budget,
                    prefer: true,
                }),
                patience: PATIENCE,
                ..SocketConfig::default()
            },
            generic: one.mode == Mode::Generic,
            wait: wait.into(),
            batch: one.batch as usize,
            cpus: vec![cpu],
            priority: (one.priority > 0).then_some(one.priority),
            owned: self.owned,
            meter: Some(Arc::clone(meter)),
            ..Setup::new(&self.interface)
        }
    }

    /// `BusyPollRxPackets` of its namespace.
    pub(super) fn busy_polled(&self) -> u64 {
        let read = || std::fs::read_to_string("/proc/thread-self/net/netstat").unwrap_or_default();
        let text = self.place.run(read).unwrap_or_default();
        let mut rows = text.lines().filter_map(|line| line.strip_prefix("TcpExt:"));
        let (Some(names), Some(values)) = (rows.next(), rows.next()) else {
            return 0;
        };
        let at = names
            .split_whitespace()
            .position(|name| name == "BusyPollRxPackets");
        at.and_then(|at| values.split_whitespace().nth(at)?.parse().ok())
            .unwrap_or(0)
    }

    /// Whether its interface is there and up.
    pub(super) fn is_up(&self) -> bool {
        let up = self.place.run(|| {
            let watch = iface::LinkWatch::new(&self.interface).ok()?;
            watch.state().ok()?
        });
        matches!(up, Ok(Some(state)) if state.up)
    }
}

/// What the forwarder is to be in a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Order {
    /// As in results.
    pub(super) knobs: BTreeMap<String, String>,
    /// A control instead of AF_XDP.
    pub(super) control: Option<String>,
}

impl Order {
    pub(super) fn combination(&self) -> Result<Combination, XskRunError> {
        let knobs = self
            .knobs
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        Combination::from_knobs(knobs).map_err(XskRunError::Usage)
    }
}

/// What the forwarder says of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct FarReport {
    pub(super) napi: u32,
    pub(super) zero_copy: bool,
    pub(super) kicks_saved: u64,
    pub(super) busy_polled: u64,
    /// CPU time of a forwarder on another host, from being ready to being told to stop.
    pub(super) cpu_ns: u64,
    pub(super) unmet: Vec<String>,
    pub(super) failure: Option<String>,
}

/// A forwarder at work on this host.
#[derive(Debug)]
pub(super) struct Forwarding {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Vec<SocketReport>, XskRunError>>>,
    unmet: Vec<String>,
    busy_polled: u64,
}

impl Forwarding {
    /// Starts one, with the settings of its order; ready once it returns.
    pub(super) fn start(
        side: &mut Side,
        order: &Order,
        meter: &Arc<Meter>,
    ) -> Result<Forwarding, XskRunError> {
        let one = order.combination()?;
        let control = match &order.control {
            Some(name) => Some(
                *CONTROLS
                    .iter()
                    .find(|c| c.name == *name)
                    .ok_or_else(|| XskRunError::Usage(format!("unknown control `{name}`")))?,
            ),
            None => None,
        };
        let unmet = side.configure(control.is_none().then_some(&one))?;
        let armed = Arc::new(AtomicBool::new(false));
        let mut setup = side.setup(&one, 1, meter);
        setup.armed = Some(Arc::clone(&armed));
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let place = Arc::clone(&side.place);
        let address = side.address.unwrap_or(Ipv4Addr::UNSPECIFIED);
        let (mac, busy_polled) = (side.mac, side.busy_polled());
        let work = move || match control {
            Some(control) => {
                let plan = control::Plan::of(control, &one, (address, mac));
                control::echo(&setup, &plan, &told).map(|()| Vec::new())
            }
            None => {
                let plan = ForwardPlan {
                    to: None,
                    both_ways: false,
                    stamp: false,
                    count: None,
                    lasting: None,
                    idle: None,
                };
                forward(&setup, &plan, &told).map(|report| report.sockets)
            }
        };
        let mut forwarding = Forwarding {
            stop,
            thread: Some(std::thread::spawn(move || place.run(work)?)),
            unmet,
            busy_polled,
        };
        let limit = Instant::now() + READY;
        while !armed.load(Ordering::Acquire) {
            if forwarding
                .thread
                .as_ref()
                .is_none_or(JoinHandle::is_finished)
            {
                return Err(match forwarding.join() {
                    Err(e) => e,
                    Ok(_) => XskRunError::Usage("the forwarder exited unexpectedly".to_owned()),
                });
            }
            if Instant::now() > limit {
                return Err(XskRunError::Usage(format!(
                    "the forwarder was not ready within {} s",
                    READY.as_secs()
                )));
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(forwarding)
    }

    /// Ends it and tells what it did.
    pub(super) fn finish(mut self, side: &Side) -> FarReport {
        let mut report = FarReport {
            unmet: std::mem::take(&mut self.unmet),
            ..FarReport::default()
        };
        match self.join() {
            Ok(sockets) => {
                for socket in sockets {
                    report.napi = socket.napi_id.unwrap_or(0);
                    report.zero_copy = socket.mode == Some("zero-copy");
                    report.kicks_saved += socket.kicks_saved;
                }
            }
            Err(e) => report.failure = Some(format!("forwarder: {e}")),
        }
        report.busy_polled = side.busy_polled().saturating_sub(self.busy_polled);
        report
    }

    fn join(&mut self) -> Result<Vec<SocketReport>, XskRunError> {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.take() {
            Some(thread) => thread
                .join()
                .unwrap_or_else(|_| Err(XskRunError::Usage("the forwarder panicked".to_owned()))),
            None => Ok(Vec::new()),
        }
    }
}

impl Drop for Forwarding {
    fn drop(&mut self) {
        let _ = self.join();
    }
}
