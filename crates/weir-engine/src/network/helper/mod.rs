//! The helper of an edge: the user-space half of its functions (docs/design/punt.md). Reads packets that the data plane hands over, answers
//! DHCP clients, gives the rest to the controllers that listen at the north socket, and does for them what they ask.
//!
//! Invariants: one helper for each edge; what it knows of interfaces is of the generation that packets follow, or of the one before; nothing
//! but packets that were for it depends on it, and its end is noticed by the data plane within two seconds.

mod dispatcher;
mod generation;
mod line;
mod server;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use weir_kernel::EventRing;
use weir_network::EdgeNetworks;

use super::apply::latest;
use super::{Look, NetworkError, look};
use dispatcher::PuntDispatcher;
use generation::HelperGeneration;
use server::Server;

/// Where north sockets are, named after their edges.
pub const FOLDER: &str = "/run/weir/net";

/// How long the ring is waited for at a time.
const WAIT: Duration = Duration::from_millis(50);
/// How often the data plane is told who listens, and a new generation is looked for: a tenth of what it believes a word for.
const BEAT: Duration = Duration::from_millis(200);
/// How often flows without packets are removed: they are not followed any more from the moment on.
const SWEEP: Duration = Duration::from_secs(5);

/// What a helper is to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// The north socket.
    pub socket: PathBuf,
    /// Answer DHCP clients of subnets with `dhcp`.
    pub dhcp: bool,
}

impl Options {
    /// Everything, at the edge's usual socket.
    #[must_use]
    pub fn of(edge: &str) -> Options {
        Options {
            socket: Path::new(FOLDER).join(format!("{edge}.sock")),
            dhcp: true,
        }
    }
}

/// What a helper did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// Packets that the data plane handed over.
    pub received: u64,
    /// ... of interfaces that are gone, or so long ago that nobody waits: left by a helper that was killed.
    pub stale: u64,
    /// DHCP clients that were offered an address, given one, refused, not answered.
    pub offered: u64,
    /// See `offered`.
    pub leased: u64,
    /// See `offered`.
    pub refused: u64,
    /// See `offered`.
    pub silent: u64,
    /// Packets that were given to a controller.
    pub given: u64,
    /// ... that nobody listened for, or whose controller did not keep up.
    pub lost: u64,
    /// Packets that were sent into networks.
    pub sent: u64,
    /// ... that could not be.
    pub unsent: u64,
}

/// Plans what runs, for its names: from the text that it was applied with.
pub type Planner<'p> = &'p (dyn Fn(&Look) -> Result<EdgeNetworks, String> + Sync);

/// Runs a helper in the current network namespace until `stop` is set. Networks may be applied, changed and deleted meanwhile.
///
/// # Errors
/// Another one runs, the north socket cannot be made, or the kernel refused. `told` gets what goes wrong and is tried again.
pub fn run(
    edge: &str,
    options: &Options,
    planner: Planner<'_>,
    stop: &AtomicBool,
    told: &mut dyn FnMut(&str),
) -> Result<Counts, NetworkError> {
    let dispatcher = Arc::new(Mutex::new(PuntDispatcher::new(options.dhcp)));
    let server = Server::open(edge, &options.socket, &dispatcher)?;
    let mut ring: Option<EventRing> = None;
    let (mut beat, mut swept) = (None::<Instant>, Instant::now());
    let mut failed = String::new();
    while !stop.load(Ordering::Acquire) {
        if beat.is_none_or(|last| last.elapsed() >= BEAT) {
            beat = Some(Instant::now());
            let mut dispatcher = hold(&dispatcher);
            let looked = find(edge, &mut dispatcher, planner, &mut ring);
            let said = looked.as_ref().err().cloned().unwrap_or_default();
            if said != failed && !said.is_empty() {
                told(&said);
            }
            failed = said;
            dispatcher.beat();
            if swept.elapsed() >= SWEEP {
                swept = Instant::now();
                dispatcher.sweep();
            }
        }
        let mut records: Vec<Vec<u8>> = Vec::new();
        match &mut ring {
            Some(ring) => {
                ring.drain(WAIT, |record| records.push(record.to_vec()))?;
            }
            None => std::thread::sleep(WAIT),
        }
        if records.is_empty() {
            continue;
        }
        let mut dispatcher = hold(&dispatcher);
        for record in &records {
            if dispatcher.is_behind(record) {
                // Its interface may be newer than what is known here.
                let _ = find(edge, &mut dispatcher, planner, &mut ring);
            }
            dispatcher.take(record);
        }
    }
    drop(server);
    let mut dispatcher = hold(&dispatcher);
    dispatcher.hush();
    Ok(dispatcher.counts())
}

/// Looks again if another generation is there than the one that is known.
fn find(
    edge: &str,
    dispatcher: &mut PuntDispatcher,
    planner: Planner<'_>,
    ring: &mut Option<EventRing>,
) -> Result<(), String> {
    let text = |error: NetworkError| error.to_string();
    let newest = latest(edge).map_err(text)?;
    if newest == dispatcher.generation() {
        return Ok(());
    }
    let Some(found) = look(edge).map_err(text)? else {
        dispatcher.place(None);
        *ring = None;
        return Ok(());
    };
    if Some(found.generation) == dispatcher.generation() {
        return Ok(());
    }
    let plan = planner(&found)?;
    let map = found.set.map("net_ring").map_err(text)?;
    *ring = Some(map.event_ring().map_err(|error| error.to_string())?);
    dispatcher.place(Some(HelperGeneration::new(found, plan).map_err(text)?));
    Ok(())
}

/// What a panic of another thread left is whole: every change is one step.
fn hold(dispatcher: &Mutex<PuntDispatcher>) -> MutexGuard<'_, PuntDispatcher> {
    dispatcher.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The clock that the data plane reads, too.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
