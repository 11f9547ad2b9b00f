//! The second stage of an edge's ledger: what became of packets that programs had redirected or transmitted.
//!
//! Tracepoints tell (`crate::monitor`); this says which of what they tell is the edge's. A device has one account, whoever handed packets to
//! it; a target of an instance has what was handed to it and what was refused at once. Invariant: where a kernel has no such tracepoints,
//! an edge works as well and says what is not counted.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use weir_bpf::abi::redirect::{TARGETS, TO_ALL};
use weir_functions::redirect::handed;
use weir_kernel::{KernelError, Map, iface, pins};

use super::error::EdgeError;
use super::plan::{EdgePlan, Target};
use super::state::{InstanceState, State};
use crate::monitor::{self, Absent, Account, Readings};

/// Where monitors of edges are pinned, one folder for each: not in the edge's own, whose pins its state names.
const FOLDER: &str = "/sys/fs/bpf/weir/monitor";

/// What became of packets after programs decided.
#[derive(Clone, Debug, Serialize)]
pub struct SecondStage {
    /// Devices that packets are handed to, and ports.
    pub devices: Vec<DeviceAccount>,
    /// Instances of `redirect`.
    pub instances: Vec<InstanceTargets>,
    /// What this kernel does not tell.
    pub absent: Vec<Absent>,
    /// Packets that found no room in the monitor's map.
    pub uncounted: u64,
}

/// A device.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceAccount {
    /// Its name, or its index where it is gone.
    pub device: String,
    /// Packets that were redirected to it, by whatever program of the host, since the edge was set up.
    pub redirected: Account,
    /// Packets that came in by it and were transmitted back.
    pub transmitted: Account,
    /// Packets that its driver could not do with what a program said.
    pub exceptions: u64,
}

/// The targets of an instance.
#[derive(Clone, Debug, Serialize)]
pub struct InstanceTargets {
    /// Its name.
    pub instance: String,
    /// Its targets.
    pub targets: Vec<TargetAccount>,
}

/// A target of an instance.
#[derive(Clone, Debug, Serialize)]
pub struct TargetAccount {
    /// `device NAME`, `cpu N` or `socket of queue N`.
    pub target: String,
    /// Packets handed over since the instance was there.
    pub handed: u64,
    /// What is known of them. Of devices only what was refused at once: see [`DeviceAccount`].
    pub account: Account,
    /// Packets that nobody told about: still on their way, or left out of a broadcast; of devices at most so many.
    pub untold: u64,
}

/// Begins to count for an edge, or goes on. What is missing afterwards is told by [`read`]; a sentence if nothing is counted at all.
pub(super) fn begin(edge: &str) -> Option<String> {
    let folder = folder(edge);
    let made = pins::ensure_bpffs().and_then(|_| {
        fs::create_dir_all(&folder).map_err(|e| failed("make", &folder, e))?;
        monitor::attach(&folder)
    });
    let e = made.err()?;
    Some(format!(
        "what becomes of redirected packets is not counted: {e}"
    ))
}

/// Ends it and removes every pin.
pub(super) fn remove(edge: &str) -> Result<(), EdgeError> {
    let folder = folder(edge);
    if !folder.exists() {
        return Ok(());
    }
    monitor::remove(&folder)?;
    match fs::remove_dir(&folder) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(failed("remove", &folder, e).into()),
        _ => {
            // The last one to go takes the folder of all along; with others in it, it stays.
            let _ = fs::remove_dir(FOLDER);
            Ok(())
        }
    }
}

/// What a user should know of the devices that packets are sent to by XDP, one sentence for each that takes no frames now.
pub(super) fn cures(plan: &EdgePlan) -> Vec<String> {
    let linked = plan.links.iter().filter_map(|link| match link.to {
        Target::Port(place) => plan.ports.get(place).map(|port| port.device.as_str()),
        _ => None,
    });
    let maps = plan
        .instances
        .iter()
        .flat_map(|one| &one.planned.instance.maps);
    let redirected = maps
        .flat_map(|map| &map.devices)
        .map(|(_, name)| name.as_str());
    let mut names: Vec<&str> = linked.chain(redirected).collect();
    names.sort_unstable();
    names.dedup();
    names.into_iter().filter_map(cure).collect()
}

/// Devices that do not tell are believed to take frames: what they refuse is counted.
fn cure(device: &str) -> Option<String> {
    let found = iface::find(device).ok()?;
    if iface::takes_xdp_frames(found.ifindex).ok()? != Some(false) {
        return None;
    }
    let what = match (found.is_veth(), found.veth_peer.and_then(iface::name_of)) {
        (true, Some(peer)) => format!(
            "until its far end has an XDP program or its GRO on: `ethtool -K {peer} gro on`, or \
             `weir prog load` a program there"
        ),
        (true, None) => {
            "until its far end, in another namespace, has an XDP program or its GRO on: there, \
                         `ethtool -K NAME gro on`"
                .to_owned()
        }
        (false, _) => format!("its driver ({}) cannot transmit them", found.driver),
    };
    Some(format!("{device} takes no redirected frames {what}"))
}

pub(super) fn read(edge: &str, state: &State) -> Result<Option<SecondStage>, EdgeError> {
    let Some(monitor) = monitor::open(&folder(edge))? else {
        return Ok(None);
    };
    let readings = monitor.read()?;
    let netns = state.netns as u32;
    let mut indexes: Vec<u32> = state.ports.iter().map(|port| port.ifindex).collect();
    let mut instances = Vec::new();
    for instance in state.instances.iter().filter(|i| i.object == "redirect") {
        let (targets, devices) = targets(instance, &readings, netns)?;
        instances.push(InstanceTargets {
            instance: instance.name.clone(),
            targets,
        });
        for device in devices {
            if !indexes.contains(&device) {
                indexes.push(device);
            }
        }
    }
    let device = |index: u32| DeviceAccount {
        device: name(index),
        redirected: readings.device(netns, index),
        transmitted: readings.transmitted(netns, index),
        exceptions: readings.exceptions(netns, index),
    };
    Ok(Some(SecondStage {
        devices: indexes.into_iter().map(device).collect(),
        instances,
        absent: monitor.absent().to_vec(),
        uncounted: readings.unseen.sent + readings.unseen.dropped,
    }))
}

/// The targets of an instance of `redirect`, and the devices among them, from its maps.
fn targets(
    instance: &InstanceState,
    readings: &Readings,
    netns: u32,
) -> Result<(Vec<TargetAccount>, Vec<u32>), EdgeError> {
    let map = |name: &str| match instance.maps.get(name) {
        Some(map) => Map::by_id(map.id, name).map(Some),
        None => Ok(None),
    };
    let mut targets = Vec::new();
    let mut indexes = Vec::new();
    let Some(accounts) = map("handed")? else {
        return Ok((targets, indexes));
    };
    let handed_to = |place: u32| -> Result<u64, KernelError> {
        let values = accounts.lookup_percpu(&place.to_ne_bytes())?;
        Ok(handed(values.iter().map(Vec::as_slice)).packets)
    };
    let to_all = handed_to(TO_ALL)?;
    if let Some(devices) = map("devices")? {
        for (place, index) in filled(&devices)? {
            let handed = handed_to(place)? + to_all;
            let account = readings.refused(devices.id(), place);
            let device = readings.device(netns, index);
            targets.push(TargetAccount {
                target: format!("device {}", name(index)),
                handed,
                untold: handed.saturating_sub(account.lost() + device.sent + device.lost()),
                account,
            });
            indexes.push(index);
        }
    }
    if let Some(cpus) = map("cpus")? {
        // Plans name CPUs in rising order, so a CPU's place is its rank.
        for (place, (cpu, _)) in (0..).zip(filled(&cpus)?) {
            let handed = handed_to(place)?;
            let mut account = readings.cpu(cpus.id(), cpu);
            account
                .dropped
                .extend(readings.refused(cpus.id(), cpu).dropped);
            targets.push(TargetAccount {
                target: format!("cpu {cpu}"),
                handed,
                untold: account.untold(handed),
                account,
            });
        }
    }
    let sockets = match targets.is_empty() {
        true => map("sockets")?,
        false => None,
    };
    if let Some(sockets) = sockets {
        for queue in 0..TARGETS as u32 {
            let handed = handed_to(queue)?;
            if handed == 0 {
                continue;
            }
            let mut account = readings.refused(sockets.id(), queue);
            // No tracepoint tells of packets that a socket took.
            account.sent = handed.saturating_sub(account.lost());
            targets.push(TargetAccount {
                target: format!("socket of queue {queue}"),
                handed,
                account,
                untold: 0,
            });
        }
    }
    Ok((targets, indexes))
}

/// Places of a map of devices or CPUs that are taken, with the first word of their values.
fn filled(map: &Map) -> Result<Vec<(u32, u32)>, KernelError> {
    let mut filled = Vec::new();
    for place in 0..map.definition().entries {
        let value = map.lookup(&place.to_ne_bytes())?;
        let word = value.as_deref().and_then(|value| value.first_chunk::<4>());
        if let Some(word) = word {
            filled.push((place, u32::from_ne_bytes(*word)));
        }
    }
    Ok(filled)
}

fn name(index: u32) -> String {
    iface::name_of(index).unwrap_or_else(|| format!("of index {index}, which is gone"))
}

fn folder(edge: &str) -> PathBuf {
    Path::new(FOLDER).join(edge)
}

fn failed(what: &str, folder: &Path, source: io::Error) -> KernelError {
    KernelError::Sys {
        what: format!("{what} {}", folder.display()),
        source,
    }
}
