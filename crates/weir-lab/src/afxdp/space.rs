//! Which combinations can be on this machine: what it can do is probed first, and each combination that cannot be is counted under the sentence that says why.
//!
//! A few that can be set but cannot work are run all the same, one for each way of going wrong, so that a report shows what they cost: known traps.

use std::collections::HashSet;
use std::fs;

use serde::{Deserialize, Serialize};
use weir_kernel::{XdpMode, iface};
use weir_xsk::{Match, Mode as SocketMode, Socket, SocketConfig, Steer, Umem, UmemConfig};

use super::results::Pruned;
use super::settings::{NetnsHandle, Sysfs};
use super::sweep::{Combination, Mode, Placement};
use crate::xsk::ETHERTYPE;

/// What the machine and both interfaces can do; an error is the sentence that says why not.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Capabilities {
    /// An XDP program runs in the driver.
    pub native: Result<(), String>,
    /// Sockets without copying.
    pub zero_copy: Result<(), String>,
    /// NAPI instances that the sockets were told of: prober's and forwarder's side; 0: none.
    pub napi: [u32; 2],
    /// Interrupts can be put off.
    pub deferral: Result<(), String>,
    /// NAPI can run in threads.
    pub threaded: Result<(), String>,
    /// The devices' gathering of interrupts can be set.
    pub coalescing: Result<(), String>,
    /// The sleep of CPUs can be limited.
    pub c_states: Result<(), String>,
    /// Queues of the interface that has fewer.
    pub queues: u32,
    /// CPUs that this process may use.
    pub cpus: Vec<usize>,
    /// Longest packet.
    pub longest: u32,
}

impl Capabilities {
    /// What both ends can do, this one and the far one.
    #[must_use]
    pub fn with(self, far: Capabilities) -> Capabilities {
        Capabilities {
            native: self.native.and(far.native),
            zero_copy: self.zero_copy.and(far.zero_copy),
            napi: [self.napi[0], far.napi[0]],
            deferral: self.deferral.and(far.deferral),
            threaded: self.threaded.and(far.threaded),
            coalescing: self.coalescing.and(far.coalescing),
            queues: self.queues.min(far.queues),
            longest: self.longest.min(far.longest),
            ..self
        }
    }

    /// Probes an interface. Sockets and programs that this opens are closed again.
    ///
    /// # Errors
    /// It is not there, or nothing can be opened at all.
    pub fn probe(place: &NetnsHandle, name: &str) -> Result<Capabilities, crate::xsk::XskRunError> {
        place.run(|| probe_side(name))?
    }
}

/// One interface, of the thread's namespace.
fn probe_side(name: &str) -> Result<Capabilities, crate::xsk::XskRunError> {
    let found = iface::find(name)?;
    let sysfs = Sysfs::open();
    let readable = |attribute: &str| match &sysfs {
        Ok(sysfs) => match sysfs.read(name, attribute) {
            Ok(_) => Ok(()),
            Err(e) => Err(format!("this kernel has no {attribute} for {name} ({e})")),
        },
        Err(e) => Err(format!("{attribute} cannot be reached ({e})")),
    };
    let open = |mode| -> Result<Socket, weir_xsk::XskError> {
        let (umem, _) = Umem::new(&UmemConfig {
            frames: 128,
            ..UmemConfig::default()
        })?;
        let config = SocketConfig {
            rx: 64,
            tx: 64,
            fill: 64,
            completion: 64,
            mode,
            ..SocketConfig::default()
        };
        Socket::open(&umem, name, &config)
    };
    let steer = Steer::attach(name, XdpMode::Native, Match::EtherType(ETHERTYPE), false);
    let native = match &steer {
        Ok(_) => Ok(()),
        Err(e) => Err(format!("no XDP program in the driver of {name}: {e}")),
    };
    let zero_copy = match open(SocketMode::ZeroCopy) {
        Ok(_) => Ok(()),
        Err(e @ (weir_xsk::XskError::NoZeroCopy { .. } | weir_xsk::XskError::Excluded(_))) => {
            Err(e.to_string())
        }
        Err(e) => return Err(e.into()),
    };
    // While the program is there: the driver has its NAPI then.
    let napi = open(SocketMode::Copy)?.effective()?.napi_id;
    drop(steer);
    Ok(Capabilities {
        native,
        zero_copy,
        napi: [napi; 2],
        deferral: readable("napi_defer_hard_irqs").and(readable("gro_flush_timeout")),
        threaded: readable("threaded"),
        coalescing: match iface::coalescing(name) {
            Ok(_) => Ok(()),
            Err(e) => Err(format!(
                "driver {} gathers no interrupts ({e})",
                found.driver
            )),
        },
        c_states: c_states(),
        queues: iface::queues(name).map_or(1, |q| q.most.max(1)),
        cpus: cpus(),
        longest: found.mtu.min(iface::linear_mtu()) + 14,
    })
}

fn c_states() -> Result<(), String> {
    let driver =
        fs::read_to_string("/sys/devices/system/cpu/cpuidle/current_driver").unwrap_or_default();
    match driver.trim() {
        "" | "none" => {
            Err("this machine's CPUs have no C-states to limit (cpuidle driver: none)".to_owned())
        }
        _ => fs::OpenOptions::new()
            .write(true)
            .open(super::settings::CPU_LATENCY)
            .map(drop)
            .map_err(|e| format!("{} cannot be opened ({e})", super::settings::CPU_LATENCY)),
    }
}

/// CPUs that this process may use.
pub fn cpus() -> Vec<usize> {
    use rustix::thread::{CpuSet, sched_getaffinity};
    let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    let found: Vec<usize> = (0..CpuSet::MAX_CPU)
        .filter(|cpu| set.is_set(*cpu))
        .collect();
    if found.is_empty() { vec![0] } else { found }
}

/// What a sweep comes to on a machine.
#[derive(Clone, Debug)]
pub struct Space {
    /// To be run.
    pub cells: Vec<Combination>,
    /// Not to be run.
    pub pruned: Vec<Pruned>,
}

/// What becomes of a combination.
enum Fate {
    Runs,
    /// It would be refused; one of its kind runs, to show what it costs.
    Trap(String),
    Pruned(String),
}

/// Sorts combinations.
pub fn prune(combinations: &[Combination], can: &Capabilities) -> Space {
    let mut space = Space {
        cells: Vec::new(),
        pruned: Vec::new(),
    };
    let mut traps = HashSet::new();
    for one in combinations {
        let reason = match fate(one, can) {
            Fate::Runs => {
                space.cells.push(one.clone());
                continue;
            }
            Fate::Trap(_) if traps.insert((one.busy_poll.is_some(), one.deferral)) => {
                space.cells.push(one.clone());
                continue;
            }
            Fate::Trap(reason) => format!("{reason}; one such cell runs, to show what it costs"),
            Fate::Pruned(reason) => reason,
        };
        match space.pruned.iter_mut().find(|p| p.reason == reason) {
            Some(known) => known.count += 1,
            None => space.pruned.push(Pruned {
                reason,
                count: 1,
                example: one.id(),
            }),
        }
    }
    space
}

fn fate(one: &Combination, can: &Capabilities) -> Fate {
    let missing = |asked: bool, able: &Result<(), String>| match able {
        Err(why) if asked => Some(Fate::Pruned(why.clone())),
        _ => None,
    };
    let deferred = one.deferral.irqs > 0 || !one.deferral.timeout.is_zero();
    let impossible = missing(one.mode == Mode::ZeroCopy, &can.zero_copy)
        .or_else(|| missing(one.mode != Mode::Generic, &can.native))
        .or_else(|| missing(deferred, &can.deferral))
        .or_else(|| missing(one.threaded, &can.threaded))
        .or_else(|| missing(one.coalescing.is_some(), &can.coalescing))
        .or_else(|| missing(one.c_state.is_some(), &can.c_states));
    if let Some(fate) = impossible {
        return fate;
    }
    let pruned = |text: &str| Fate::Pruned(text.to_owned());
    let both_spin = one.forwarder_wait.spins() && one.prober_wait.spins();
    if one.placement == Placement::Same && both_spin {
        return pruned(
            "two spinning programs on one CPU: each packet would wait for a time slice, milliseconds",
        );
    }
    let one_spins = one.forwarder_wait.spins() || one.prober_wait.spins();
    if one.placement == Placement::Same && one_spins && one.priority > 0 {
        return pruned(
            "a program that spins in real time on the other's CPU: the other one would never run",
        );
    }
    if one.placement == Placement::Split && can.cpus.len() < 2 {
        return pruned("this process may use one CPU only: the two programs cannot be split");
    }
    if one.busy_poll.is_some() && !(polls(one.forwarder_wait) && polls(one.prober_wait)) {
        return pruned(
            "busy polling is done in calls, and a program that spins makes none: \"call\" and \"poll\" do",
        );
    }
    if one.queues > can.queues {
        return Fate::Pruned(format!(
            "more queues than the interfaces have ({})",
            can.queues
        ));
    }
    if one.size > can.longest {
        return Fate::Pruned(format!(
            "packets longer than the MTU of the interfaces ({} bytes)",
            can.longest
        ));
    }
    // The kernel keeps 256 bytes of each frame.
    if one.size + 256 > one.frame_size {
        return pruned("packets longer than a frame holds");
    }
    if one.batch > one.ring {
        return pruned("batches larger than a ring");
    }
    let polled = one.busy_poll.is_some() && !can.napi.contains(&0);
    match (one.busy_poll.is_some(), deferred) {
        (true, false) if !polled => Fate::Trap(
            "busy polling has nothing to poll: the driver names no NAPI instance for its queues (id 0)".to_owned(),
        ),
        (true, true) if !polled => Fate::Trap(
            "interrupts put off for busy polling that has nothing to poll (NAPI id 0): packets wait for the timer".to_owned(),
        ),
        (false, true) => Fate::Trap("interrupts put off, and no busy polling in their place: packets wait for the timer".to_owned()),
        _ => Fate::Runs,
    }
}

fn polls(wait: super::sweep::WaitBy) -> bool {
    wait != super::sweep::WaitBy::Spin
}
