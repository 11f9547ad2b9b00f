//! Watching a running edge: asking its objects for events, and reading them.
//!
//! Which packets become events is decided in the kernel (bpf/include/watch.h) by what [`Wish`] asks; a filter is decided exactly by the
//! reader, who sees every packet of interest as it came in ([`filter`]). [`journey`] puts the events of a packet together, [`words`]
//! says them. Invariant: there is one watcher of an edge at a time, and what it asked for is forgotten soon after it is gone.

pub mod filter;
pub mod journey;
pub mod words;

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use weir_bpf::abi::{WatchCount, WatchEvent, WatchWant, watch};
use weir_kernel::{EventRing, KernelError, Map};
use zerocopy::{FromBytes, IntoBytes};

pub use filter::Quick;
pub use journey::{Journey, Journeys, Stage};
pub use words::Names;

/// Maps of an edge that watching is made of; the objects of the watched form declare them.
pub const MAPS: [&str; 3] = ["weir_watch_want", "weir_watch", "weir_watch_count"];

/// How long a wish holds if its watcher does not renew it.
const LEASE: Duration = Duration::from_secs(5);

/// At which stages of a packet's way there is to be an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// All of them.
    All,
    /// Where packets come in.
    Entry,
    /// Behind the instance with this number.
    Instance(u32),
    /// Where they leave the graph.
    End,
    /// Where they are dropped.
    Drops,
}

/// What a watcher asks for.
#[derive(Clone, Debug)]
pub struct Wish {
    /// Which stages.
    pub at: At,
    /// Numbers of the ports to look at; empty: all.
    pub ports: Vec<u32>,
    /// Packets that can be told apart in the kernel; the reader decides exactly.
    pub quick: Quick,
    /// There is to be an event where a watched packet comes in, whatever `at` says.
    pub entries: bool,
    /// One packet in so many, of those that pass `quick`.
    pub sample: u32,
    /// Bytes of each packet.
    pub snap: u32,
}

impl Default for Wish {
    fn default() -> Self {
        Wish {
            at: At::All,
            ports: Vec::new(),
            quick: Quick::default(),
            entries: false,
            sample: 1,
            snap: 256,
        }
    }
}

/// Why an edge cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// Somebody else does.
    #[error("process {owner} is watching this edge already; end it first")]
    Taken {
        /// Process number.
        owner: u32,
    },
    /// A map is not what this version has.
    #[error(
        "map {map} holds {have} bytes, and this version of weir makes it of {want}; apply the configuration with one version"
    )]
    OtherVersion {
        /// Name.
        map: &'static str,
        /// Bytes of a value.
        have: usize,
        /// As they are here.
        want: usize,
    },
    /// The kernel refused something.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

/// A reader of an edge's events. Dropping it ends them.
#[derive(Debug)]
pub struct Watcher {
    want: Map,
    ring: EventRing,
    count: Map,
    wish: WatchWant,
    renewed: Duration,
    before: WatchCount,
}

/// Nanoseconds from the monotonic clock, by which events count, to that of the wall.
pub fn wall_offset() -> i128 {
    ns(clock(ClockId::Realtime)) - ns(clock(ClockId::Monotonic))
}

/// Who watches; `None`: nobody, or it is gone.
///
/// # Errors
/// The map cannot be read.
pub fn owner(want: &Map) -> Result<Option<u32>, WatchError> {
    let there = read_want(want)?;
    let holds = there.session != 0 && there.until_ns > now().as_nanos() as u64;
    Ok(holds.then_some(there.owner))
}

impl Watcher {
    /// Asks. `want`, `ring` and `count` are the edge's maps, in the order of [`MAPS`].
    ///
    /// # Errors
    /// [`WatchError`].
    pub fn start(want: Map, ring: &Map, count: Map, wish: &Wish) -> Result<Watcher, WatchError> {
        if let Some(owner) = owner(&want)? {
            return Err(WatchError::Taken { owner });
        }
        let mut ring = ring.event_ring()?;
        // What an earlier watcher left.
        ring.drain(Duration::ZERO, |_| ())?;
        let renewed = now();
        let session = (renewed.as_nanos() as u32) << 1 | 1;
        let mut watcher = Watcher {
            wish: asked(wish, session),
            before: total(&count)?,
            want,
            ring,
            count,
            renewed,
        };
        watcher.renew()?;
        Ok(watcher)
    }

    /// Hands over the events that are there, with their bytes, oldest first. To be called several times a second.
    ///
    /// # Errors
    /// The ring cannot be read, or the wish not renewed.
    pub fn read(&mut self, mut sink: impl FnMut(&WatchEvent, &[u8])) -> Result<usize, WatchError> {
        if now().saturating_sub(self.renewed) > LEASE / 5 {
            self.renew()?;
        }
        let session = self.wish.session;
        let mut events = 0;
        self.ring.drain(Duration::ZERO, |record| {
            let Ok((event, bytes)) = WatchEvent::read_from_prefix(record) else {
                return;
            };
            // The kernel rounds records up.
            let Some(bytes) = bytes.get(..event.snap as usize) else {
                return;
            };
            if event.session == session {
                events += 1;
                sink(&event, bytes);
            }
        })?;
        Ok(events)
    }

    /// What was seen since the start, over all CPUs.
    ///
    /// # Errors
    /// The map cannot be read.
    pub fn count(&self) -> Result<WatchCount, WatchError> {
        let now = total(&self.count)?;
        Ok(WatchCount {
            packets: now.packets - self.before.packets,
            asked: now.asked - self.before.asked,
            events: now.events - self.before.events,
            lost: now.lost - self.before.lost,
            turn: 0,
        })
    }

    /// Asks for nothing any more; events on their way can still be read.
    ///
    /// # Errors
    /// The map cannot be written.
    pub fn stop(&mut self) -> Result<(), WatchError> {
        Ok(self.want.update(&KEY, WatchWant::default().as_bytes())?)
    }

    fn renew(&mut self) -> Result<(), WatchError> {
        self.renewed = now();
        self.wish.until_ns = (self.renewed + LEASE).as_nanos() as u64;
        Ok(self.want.update(&KEY, self.wish.as_bytes())?)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // If it cannot be written, the lease runs out.
        let _ = self.stop();
    }
}

const KEY: [u8; 4] = [0; 4];

fn asked(wish: &Wish, session: u32) -> WatchWant {
    let mut ports = [0; 4];
    for port in &wish.ports {
        ports[(port >> 6) as usize & 3] |= 1 << (port & 63);
    }
    if wish.ports.is_empty() {
        ports = [u64::MAX; 4];
    }
    let (emit, vid) = match wish.at {
        At::All => (watch::ENTRY | watch::ON | watch::COPY | watch::END, 0),
        At::Entry => (watch::ENTRY, 0),
        At::Instance(vid) => (watch::ON | watch::END, vid),
        At::End => (watch::COPY | watch::END, 0),
        At::Drops => (watch::DROP, 0),
    };
    let mut want = WatchWant {
        session,
        owner: std::process::id(),
        emit: emit | if wish.entries { watch::ENTRY } else { 0 },
        vid,
        sample: wish.sample,
        snap: wish.snap,
        ports,
        ..WatchWant::default()
    };
    wish.quick.write(&mut want);
    want
}

fn read_want(want: &Map) -> Result<WatchWant, WatchError> {
    let bytes = want.lookup(&KEY)?.unwrap_or_default();
    WatchWant::read_from_bytes(&bytes).map_err(|_| WatchError::OtherVersion {
        map: MAPS[0],
        have: bytes.len(),
        want: size_of::<WatchWant>(),
    })
}

fn total(count: &Map) -> Result<WatchCount, WatchError> {
    let mut sum = WatchCount::default();
    for bytes in count.lookup_percpu(&KEY)? {
        let one = WatchCount::read_from_bytes(&bytes).map_err(|_| WatchError::OtherVersion {
            map: MAPS[2],
            have: bytes.len(),
            want: size_of::<WatchCount>(),
        })?;
        sum.packets += one.packets;
        sum.asked += one.asked;
        sum.events += one.events;
        sum.lost += one.lost;
    }
    Ok(sum)
}

fn now() -> Duration {
    let ns = ns(clock(ClockId::Monotonic));
    Duration::from_nanos(u64::try_from(ns).unwrap_or(0))
}

fn clock(id: ClockId) -> rustix::time::Timespec {
    clock_gettime(id)
}

fn ns(time: rustix::time::Timespec) -> i128 {
    i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
}
