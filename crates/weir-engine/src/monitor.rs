//! What becomes of packets after a program decided: the second stage of the ledger.
//!
//! A program that redirects learns only whether there was a target. Whether the target's device took the packet, its queue was full or
//! its CPU got to it, tracepoints of the kernel tell, to programs that are attached here (`bpf/monitor`), each by itself: a kernel that has
//! not all of them is told what cannot be counted. Counts are the host's; readers pick the devices and maps they know.
//!
//! Pinned in a folder of the edge, so that counting goes on without a process. Invariant: counters never go back while the pins stay.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use weir_bpf::abi::{Seen, SeenCount, seen};
use weir_kernel::hooks::{self, Held, HookPoint};
use weir_kernel::pinned::{self, PinnedLink};
use weir_kernel::probes::ProbeResult;
use weir_kernel::{KernelError, KernelObject, LoadedProgram, Map};
use zerocopy::{FromBytes, IntoBytes};

/// The tracepoints, in the order of [`Seen::event`], and what is not known where one is missing.
pub const TRACEPOINTS: [(&str, &str); 6] = [
    ("xdp_redirect_err", "packets that a target refused at once"),
    ("xdp_devmap_xmit", "packets that devices sent or dropped"),
    (
        "xdp_cpumap_enqueue",
        "packets that found a CPU's queue full",
    ),
    (
        "xdp_cpumap_kthread",
        "packets that a CPU took from its queue",
    ),
    (
        "xdp_bulk_tx",
        "packets that were transmitted back or dropped at that",
    ),
    (
        "xdp_exception",
        "packets that a driver could not do what a program said with",
    ),
];

/// All of them are older than weir's oldest kernel; programs on them by BTF need 5.5.
const FIRST_KERNEL: &str = "5.5";
/// Prefix of the pinned attachments in the folder, before the tracepoint's name.
const LINK: &str = "on-";
/// What the kernel gives as the id of no map (include/linux/filter.h, `bpf_redirect_info`).
const NO_MAP: u32 = i32::MAX as u32;
const SEEN: &str = "seen";
const UNSEEN: &str = "unseen";

/// The running monitor of a folder.
#[derive(Debug)]
pub struct Monitor {
    seen: Map,
    unseen: Map,
    links: Vec<PinnedLink>,
    /// Attachments that are pinned nowhere.
    held: Vec<Held>,
    absent: Vec<Absent>,
}

/// A tracepoint that is not watched.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Absent {
    /// Its name.
    pub tracepoint: &'static str,
    /// What is not counted without it.
    pub loses: &'static str,
    /// Why it is not watched.
    pub why: String,
}

/// What the tracepoints told so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readings {
    /// Counts by what happened where.
    pub counts: BTreeMap<Seen, SeenCount>,
    /// Packets that found no room in the monitor's map, which has 4,096 keys.
    pub unseen: SeenCount,
}

/// Attaches to every tracepoint that this kernel has and pins everything in `folder`, a folder of a bpffs that exists. What is pinned there already is kept, with
/// its counts.
///
/// # Errors
/// The maps cannot be made or pinned. A tracepoint that cannot be watched is no error: see [`Monitor::absent`].
pub fn attach(folder: &Path) -> Result<Monitor, KernelError> {
    let elf = weir_bpf::monitor("monitor").unwrap_or_default();
    let map = |name: &str| match Map::open(&folder.join(name))? {
        Some(map) => Ok(map),
        None => {
            let map = Map::create(name, KernelObject::open(elf)?.map_definition(name)?)?;
            map.pin(&folder.join(name))?;
            Ok::<Map, KernelError>(map)
        }
    };
    let mut monitor = Monitor {
        seen: map(SEEN)?,
        unseen: map(UNSEEN)?,
        links: Vec::new(),
        held: Vec::new(),
        absent: Vec::new(),
    };
    for (tracepoint, loses) in TRACEPOINTS {
        let pin = folder.join(format!("{LINK}{tracepoint}"));
        let link = match PinnedLink::open(&pin)? {
            Some(link) => Ok(link),
            None => program(elf, tracepoint, &monitor)
                .and_then(|program| hooks::attach(&program, point(tracepoint), &pin)),
        };
        match link {
            Ok(link) => monitor.links.push(link),
            Err(why) => monitor.absent.push(Absent {
                tracepoint,
                loses,
                why: why.to_string(),
            }),
        }
    }
    Ok(monitor)
}

/// Attaches to every tracepoint that this kernel has, for as long as the value lives.
///
/// # Errors
/// The maps cannot be made.
pub fn watch() -> Result<Monitor, KernelError> {
    let elf = weir_bpf::monitor("monitor").unwrap_or_default();
    let map = |name: &str| Map::create(name, KernelObject::open(elf)?.map_definition(name)?);
    let mut monitor = Monitor {
        seen: map(SEEN)?,
        unseen: map(UNSEEN)?,
        links: Vec::new(),
        held: Vec::new(),
        absent: Vec::new(),
    };
    for (tracepoint, loses) in TRACEPOINTS {
        let held = program(elf, tracepoint, &monitor)
            .and_then(|program| hooks::hold(&program, point(tracepoint)));
        match held {
            Ok(held) => monitor.held.push(held),
            Err(why) => monitor.absent.push(Absent {
                tracepoint,
                loses,
                why: why.to_string(),
            }),
        }
    }
    Ok(monitor)
}

/// The monitor that is pinned in a folder; `None` if there is none.
///
/// # Errors
/// What is pinned cannot be opened.
pub fn open(folder: &Path) -> Result<Option<Monitor>, KernelError> {
    let (Some(seen), Some(unseen)) = (
        Map::open(&folder.join(SEEN))?,
        Map::open(&folder.join(UNSEEN))?,
    ) else {
        return Ok(None);
    };
    let mut monitor = Monitor {
        seen,
        unseen,
        links: Vec::new(),
        held: Vec::new(),
        absent: Vec::new(),
    };
    for (tracepoint, loses) in TRACEPOINTS {
        match PinnedLink::open(&folder.join(format!("{LINK}{tracepoint}")))? {
            Some(link) => monitor.links.push(link),
            None => monitor.absent.push(Absent {
                tracepoint,
                loses,
                why: "it was not there when the edge was set up".to_owned(),
            }),
        }
    }
    Ok(Some(monitor))
}

/// Names of the pins that a monitor may have in its folder.
pub fn pins() -> impl Iterator<Item = String> {
    let links = TRACEPOINTS.iter().map(|(name, _)| format!("{LINK}{name}"));
    [SEEN, UNSEEN].into_iter().map(str::to_owned).chain(links)
}

/// Detaches what is pinned in a folder and removes the pins; the folder stays.
///
/// # Errors
/// A pin cannot be opened or removed.
pub fn remove(folder: &Path) -> Result<(), KernelError> {
    for (tracepoint, _) in TRACEPOINTS {
        if let Some(link) = PinnedLink::open(&folder.join(format!("{LINK}{tracepoint}")))? {
            link.remove()?;
        }
    }
    for name in pinned::names(folder)? {
        if name == SEEN || name == UNSEEN {
            let path = folder.join(&name);
            std::fs::remove_file(&path).map_err(|e| KernelError::Sys {
                what: format!("remove {}", path.display()),
                source: e,
            })?;
        }
    }
    Ok(())
}

/// Whether each tracepoint can be watched on this kernel, found by loading the program for it.
pub fn probe() -> Vec<ProbeResult> {
    let elf = weir_bpf::monitor("monitor").unwrap_or_default();
    let load = |name: &str| KernelObject::open(elf).and_then(|object| object.load(name));
    TRACEPOINTS
        .iter()
        .map(|(name, loses)| ProbeResult {
            name,
            used_for: loses,
            ok: load(name).map(drop).map_err(|e| e.to_string()),
            needed: false,
            first_kernel: FIRST_KERNEL,
            fallback: "those packets are not counted",
        })
        .collect()
}

impl Monitor {
    /// What cannot be counted here.
    pub fn absent(&self) -> &[Absent] {
        &self.absent
    }

    /// Whether every tracepoint that can be watched still is.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn is_attached(&self) -> Result<bool, KernelError> {
        for link in &self.links {
            if !link.is_attached()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Everything counted so far.
    ///
    /// # Errors
    /// A map cannot be read.
    pub fn read(&self) -> Result<Readings, KernelError> {
        let mut readings = Readings::default();
        for key in self.seen.keys()? {
            let Ok(what) = Seen::read_from_bytes(&key) else {
                continue;
            };
            readings.counts.insert(what, sum(&self.seen, &key)?);
        }
        readings.unseen = sum(&self.unseen, 0u32.as_bytes())?;
        Ok(readings)
    }
}

/// A place where packets are handed to, and what became of them there.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Account {
    /// Packets that the place took.
    pub sent: u64,
    /// Packets that it did not take, by reason.
    pub dropped: BTreeMap<String, u64>,
}

impl Account {
    /// All packets that were not taken.
    pub fn lost(&self) -> u64 {
        self.dropped.values().sum()
    }

    /// Packets that were not reported, of so many that were handed over: still on their way, or left out of a broadcast because the device was down or
    /// its MTU too small.
    pub fn untold(&self, handed: u64) -> u64 {
        handed.saturating_sub(self.sent + self.lost())
    }

    /// Adds another place's.
    pub(crate) fn merge(&mut self, other: &Account) {
        self.sent += other.sent;
        for (why, packets) in &other.dropped {
            *self.dropped.entry(why.clone()).or_default() += packets;
        }
    }

    /// Packets of which so many are lost that no tracepoint told of: at most those that there are.
    pub(crate) fn take(&mut self, handed: u64, stopped: u64, dropped: u64) {
        let stopped = stopped.min(handed);
        let dropped = dropped.min(handed - stopped);
        let lost = |dropped| SeenCount { sent: 0, dropped };
        self.sent += handed - stopped - dropped;
        self.add(&lost(stopped), Why::Device(0));
        self.add(&lost(dropped), Why::Transmit);
    }

    fn add(&mut self, count: &SeenCount, why: Why) {
        self.sent += count.sent;
        if count.dropped > 0 {
            *self.dropped.entry(why.to_string()).or_default() += count.dropped;
        }
    }
}

impl Readings {
    /// What was counted since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Readings) -> Readings {
        let less = |now: &SeenCount, before: &SeenCount| SeenCount {
            sent: now.sent.saturating_sub(before.sent),
            dropped: now.dropped.saturating_sub(before.dropped),
        };
        let counts = self.counts.iter().map(|(key, now)| {
            let before = earlier.counts.get(key).copied().unwrap_or_default();
            (*key, less(now, &before))
        });
        Readings {
            counts: counts.filter(|(_, c)| c.sent + c.dropped > 0).collect(),
            unseen: less(&self.unseen, &earlier.unseen),
        }
    }

    /// Packets that programs handed to a device, whichever map they did it by: it is the device that has the account. `netns`: inode
    /// number of its network namespace, see [`weir_kernel::netns::current_inode`].
    pub fn device(&self, netns: u32, ifindex: u32) -> Account {
        let mut account = Account::default();
        for (key, count) in &self.counts {
            if key.event == seen::DEVICE && key.netns == netns && key.target == ifindex {
                account.add(count, Why::Device(key.error));
            }
        }
        account
    }

    /// Packets that a map of CPUs handed to one of them: those it took from its queue count as sent.
    pub fn cpu(&self, map: u32, cpu: u32) -> Account {
        let mut account = Account::default();
        for (key, count) in &self.counts {
            if key.map != map || key.target != cpu {
                continue;
            }
            match key.event {
                seen::ENQUEUE => account.add(&SeenCount { sent: 0, ..*count }, Why::QueueFull),
                seen::CPU => {
                    // Those dropped are among those taken.
                    account.sent += count.sent.saturating_sub(count.dropped);
                    account.add(&SeenCount { sent: 0, ..*count }, Why::NoMemory);
                }
                _ => {}
            }
        }
        account
    }

    /// Packets that a place of a map of devices, CPUs or sockets refused at once.
    pub fn refused(&self, map: u32, place: u32) -> Account {
        let mut account = Account::default();
        for (key, count) in &self.counts {
            if key.event == seen::ERROR && key.map == map && key.target == place {
                account.add(count, Why::Refused(key.error));
            }
        }
        account
    }

    /// The same of packets that came in by one of these interfaces.
    pub fn refused_from(&self, map: u32, place: u32, from: &[u32]) -> u64 {
        let of = |(key, count): (&Seen, &SeenCount)| {
            let here = key.event == seen::ERROR && key.map == map && key.target == place;
            (here && from.contains(&key.from)).then_some(count.dropped)
        };
        self.counts.iter().filter_map(of).sum()
    }

    /// Packets that came in by an interface and whose redirection to a device ended, in whatever way, or was refused at once, whatever the
    /// target.
    pub fn ended_from(&self, netns: u32, ifindex: u32) -> u64 {
        let of = |(key, count): (&Seen, &SeenCount)| match key.event {
            seen::DEVICE if key.netns == netns && key.from == ifindex => {
                Some(count.sent + count.dropped)
            }
            seen::ERROR if key.netns == netns && key.from == ifindex => Some(count.dropped),
            _ => None,
        };
        self.counts.iter().filter_map(of).sum()
    }

    /// Packets that a map of CPUs put into queues, or found them full for.
    pub fn queued(&self, map: u32) -> u64 {
        let of = |(key, count): (&Seen, &SeenCount)| {
            let here = key.event == seen::ENQUEUE && key.map == map;
            here.then_some(count.sent + count.dropped)
        };
        self.counts.iter().filter_map(of).sum()
    }

    /// Packets that a device could not transmit that were to leave by it at once: XDP_TX, and redirects by generic XDP.
    pub fn not_transmitted(&self, netns: u32, ifindex: u32) -> u64 {
        /// `XDP_TX` (include/uapi/linux/bpf.h).
        const TX: u32 = 3;
        let of = |(key, count): (&Seen, &SeenCount)| {
            let here = key.event == seen::EXCEPTION && key.netns == netns;
            (here && key.from == ifindex && key.target == TX).then_some(count.dropped)
        };
        self.counts.iter().filter_map(of).sum()
    }

    /// Packets that could not be sent by a device at all, sent there by a program without a map, or by a test run with live frames.
    pub fn refused_by_device(&self, netns: u32, ifindex: u32) -> Account {
        let mut account = Account::default();
        for (key, count) in &self.counts {
            let here = key.netns == netns && key.target == ifindex && key.map == NO_MAP;
            if key.event == seen::ERROR && here {
                account.add(count, Why::Refused(key.error));
            }
        }
        account
    }

    /// Packets that programs sent back by the device they came in by.
    pub fn transmitted(&self, netns: u32, ifindex: u32) -> Account {
        let mut account = Account::default();
        for (key, count) in &self.counts {
            if key.event == seen::TX && key.netns == netns && key.target == ifindex {
                account.add(count, Why::Device(key.error));
            }
        }
        account
    }

    /// Packets that a driver could not do with what a program said: aborted, or a verdict that it does not know or that failed.
    pub fn exceptions(&self, netns: u32, ifindex: u32) -> u64 {
        let of = |(key, count): (&Seen, &SeenCount)| {
            let here = key.event == seen::EXCEPTION && key.netns == netns && key.from == ifindex;
            here.then_some(count.dropped)
        };
        self.counts.iter().filter_map(of).sum()
    }
}

/// Why a packet was not taken, in words; negative error numbers as the kernel gives them.
#[derive(Clone, Copy, Debug)]
enum Why {
    Device(i32),
    Refused(i32),
    QueueFull,
    NoMemory,
    Transmit,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = match *self {
            Why::QueueFull => return f.write_str("the CPU's queue was full"),
            Why::NoMemory => return f.write_str("no memory for a socket buffer"),
            Why::Transmit => {
                return f.write_str("the device dropped them (its counter tx_dropped)");
            }
            // ndo_xdp_xmit took some of a batch only.
            Why::Device(0) => return f.write_str("the device's queue was full"),
            Why::Device(error) | Why::Refused(error) => -error,
        };
        match error {
            ENETDOWN => f.write_str("the device is down"),
            ENXIO | EOPNOTSUPP => f.write_str(
                "the device takes no XDP frames: a veth whose far end has neither an XDP program nor its GRO on, \
                 a tap that is not open, a driver that cannot transmit them",
            ),
            EMSGSIZE => f.write_str("the frame is larger than the device's MTU"),
            ENOSPC | ENOBUFS => f.write_str("the socket's ring was full"),
            EINVAL => f.write_str("the socket is bound to another device or queue, or the target is gone"),
            other => write!(f, "{}", std::io::Error::from_raw_os_error(other)),
        }
    }
}

// include/uapi/asm-generic/errno.h
const ENXIO: i32 = 6;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;
const EMSGSIZE: i32 = 90;
const EOPNOTSUPP: i32 = 95;
const ENETDOWN: i32 = 100;
const ENOBUFS: i32 = 105;

fn program(elf: &[u8], tracepoint: &str, monitor: &Monitor) -> Result<LoadedProgram, KernelError> {
    let mut object = KernelObject::open(elf)?;
    object.share_map(SEEN, &monitor.seen)?;
    object.share_map(UNSEEN, &monitor.unseen)?;
    object.load(tracepoint)
}

fn point(tracepoint: &str) -> HookPoint<'_> {
    HookPoint::Tracepoint {
        category: "xdp",
        name: tracepoint,
    }
}

fn sum(map: &Map, key: &[u8]) -> Result<SeenCount, KernelError> {
    let mut sum = SeenCount::default();
    for value in map.lookup_percpu(key)? {
        if let Ok(count) = SeenCount::read_from_bytes(&value) {
            sum.sent += count.sent;
            sum.dropped += count.dropped;
        }
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings(rows: &[(Seen, u64, u64)]) -> Readings {
        let count = |&(key, sent, dropped): &(Seen, u64, u64)| (key, SeenCount { sent, dropped });
        Readings {
            counts: rows.iter().map(count).collect(),
            unseen: SeenCount::default(),
        }
    }

    #[test]
    fn a_device_has_one_account_of_all_that_was_handed_to_it() {
        let to = |from, error| Seen {
            event: seen::DEVICE,
            netns: 7,
            from,
            target: 3,
            error,
            ..Seen::default()
        };
        let all = readings(&[(to(1, 0), 90, 2), (to(2, 0), 5, 0), (to(1, -ENXIO), 0, 4)]);
        let account = all.device(7, 3);
        assert_eq!((account.sent, account.lost()), (95, 6));
        assert_eq!(account.dropped["the device's queue was full"], 2);
        assert_eq!(account.untold(102), 1);
        assert_eq!(all.device(8, 3), Account::default());
        assert_eq!(all.since(&all), Readings::default());
    }

    #[test]
    fn a_cpu_that_dropped_did_not_take() {
        let of = |event| Seen {
            event,
            map: 9,
            target: 1,
            ..Seen::default()
        };
        let account = readings(&[(of(seen::ENQUEUE), 60, 40), (of(seen::CPU), 60, 1)]).cpu(9, 1);
        assert_eq!((account.sent, account.lost()), (59, 41));
    }
}
