//! The second stage of an edge's ledger: what became of packets that programs had redirected or transmitted.
//!
//! Tracepoints tell (`crate::monitor`); this says which of what they tell is the edge's. A device has one account, whoever handed packets to
//! it; a target of an instance has what was handed to it and what was refused at once. Invariant: where a kernel has no such tracepoints,
//! an edge works as well and says what is not counted.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use weir_bpf::abi::Stats;
use weir_bpf::abi::redirect::{TARGETS, TO_ALL};
use weir_functions::redirect::handed;
use weir_graph::Mode;
use weir_kernel::iface::LinkWatch;
use weir_kernel::{KernelError, Map, iface, netns, pins};

use super::error::EdgeError;
use super::ledgers::stats_of;
use super::state::{InstanceState, PairState, PortState, State};
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
    /// Packets that programs of the edge redirected and that no account has: neither taken by a device, a CPU or a socket nor lost for a
    /// reason. Packets on their way are among them. `None`: it cannot be told, for a broadcast or a tracepoint that is missing.
    pub unaccounted: Option<u64>,
    /// Devices that the edge sends packets to and that take none now, a sentence with the cure for each.
    pub warnings: Vec<String>,
    /// What not reported by this kernel.
    pub absent: Vec<Absent>,
    /// Packets that found no room in the monitor's map.
    pub uncounted: u64,
}

/// A device.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceAccount {
    /// Its name, or its index where it is gone.
    pub device: String,
    /// Packets that were redirected to it, by whatever program of the host, since the edge was set up; also those that it refused at once, of
    /// this edge.
    pub redirected: Account,
    /// Packets that came in by it and were transmitted back. Where the driver does not tell, those that it was given count as sent, except
    /// those that the device counts as dropped.
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
    /// Packets that were not reported: still on their way, or left out of a broadcast; of devices at most so many.
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
    Some(format!("losses of redirected packets are not counted: {e}"))
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

/// Frames that devices dropped on transmission so far, where they tell.
pub(super) fn baselines(
    devices: &[String],
    ports: &[PortState],
    old: Option<&State>,
) -> BTreeMap<u32, u64> {
    let names = devices.iter().chain(ports.iter().map(|port| &port.device));
    let of = |name: &String| {
        let index = iface::find_index(name)?;
        let before = old.and_then(|old| old.baselines.get(&index)).copied();
        let now = || iface::dropped_on_transmit(name).ok();
        Some((index, before.or_else(now)?))
    };
    names.filter_map(of).collect()
}

/// Interfaces that packets of the edge ever came in by.
pub(super) fn sources(
    ports: &[PortState],
    pair: Option<&PairState>,
    old: Option<&State>,
) -> BTreeSet<u32> {
    let pair = pair.into_iter();
    let pair = pair.flat_map(|pair| [pair.ifindex, pair.far_ifindex]);
    let old = old.into_iter().flat_map(|old| old.sources.iter().copied());
    let ports = ports.iter().map(|port| port.ifindex);
    ports.chain(pair).chain(old).collect()
}

/// Packets that instances redirected whose ledgers go with a change, less those of accounts that go: what tracepoints count stays. `None`: it
/// is not known.
pub(super) fn redirected_before(
    edge: &str,
    instances: &[&InstanceState],
    old: Option<&State>,
) -> Result<Option<i64>, EdgeError> {
    let Some(old) = old else {
        return Ok(Some(0));
    };
    let (Some(mut before), Some(monitor)) = (old.redirected_before, monitor::open(&folder(edge))?)
    else {
        return Ok(None);
    };
    let mut reader = Reader::new(monitor.read()?, old);
    for was in &old.instances {
        let mut goes = was.clone();
        let stays = |id: u32| {
            let mut maps = instances.iter().flat_map(|new| new.maps.values());
            maps.any(|map| map.id == id)
        };
        goes.maps.retain(|_, map| !stays(map.id));
        before += stats_of(&goes)?.verdict[XDP_REDIRECT].cast_signed();
        reader.count_cpus(&goes);
        if goes.object == "redirect" {
            reader.targets(&goes)?;
        }
    }
    before -= (reader.given() + reader.elsewhere).cast_signed();
    Ok((!reader.broadcasts).then_some(before))
}

/// What a user should know of the devices that packets are sent to by XDP, one sentence for each that takes none now.
pub(super) fn cures(state: &State) -> Vec<String> {
    // Generic XDP hands socket buffers over, which every device takes.
    let native = state.ports.iter().any(is_native);
    let names = state.leaves_by.iter();
    names.filter_map(|name| cure(name, native)).collect()
}

fn is_native(port: &PortState) -> bool {
    port.mode == Mode::Native.text()
}

/// Devices that do not tell are believed to take frames: what they refuse is counted.
fn cure(device: &str, native: bool) -> Option<String> {
    let found = iface::find(device).ok()?;
    let carrier = LinkWatch::new(device).ok()?.state().ok()??.carrier;
    if !found.up {
        return Some(format!(
            "{device} takes no redirected frames while it is down: `ip link set {device} up`"
        ));
    }
    if !native {
        return None;
    }
    let takes = iface::takes_xdp_frames(found.ifindex).ok()?;
    let far = found.is_veth().then(|| netns::far_end(found.ifindex).ok());
    let far = far.flatten().flatten();
    // The far end's name, and what to write in front of a command for it.
    let there = far.and_then(|far| Some((far.place.prefix()?, far.name?)));
    let what = match (found.is_veth(), takes) {
        (true, Some(false)) => match there {
            Some((prefix, peer)) => format!(
                "until its far end has an XDP program or its GRO on: `{prefix}ethtool -K {peer} gro on`, or `weir prog load` a program there"
            ),
            None => "until its far end, in another namespace, has an XDP program or its GRO on: there, `ethtool -K NAME gro on`".to_owned(),
        },
        (true, _) if !carrier => match there {
            Some((prefix, peer)) => {
                format!("while its far end is down: `{prefix}ip link set {peer} up`")
            }
            None => "while its far end, in another namespace, is down: there, `ip link set NAME up`".to_owned(),
        },
        (false, Some(false)) => format!("its driver ({}) cannot transmit them", found.driver),
        (false, _) if found.driver == "tun" && !carrier => {
            "until a virtual machine, or another process, opens it".to_owned()
        }
        _ => return None,
    };
    Some(format!("{device} takes no redirected frames {what}"))
}

/// What became of the packets of an edge. `ledgers`: of everything that a packet leaves it by, read before this is called: so what is lost
/// never hides behind packets that came meanwhile.
pub(super) fn read(
    edge: &str,
    edge_folder: &Path,
    state: &State,
    ledgers: &[&Stats],
) -> Result<Option<SecondStage>, EdgeError> {
    let Some(monitor) = monitor::open(&folder(edge))? else {
        return Ok(None);
    };
    let handed = Map::open(&edge_folder.join(HANDED))?;
    let transmitted = Map::open(&edge_folder.join(TRANSMITTED))?;
    let devices = Map::open(&edge_folder.join(DEVICES))?;
    let mut reader = Reader::new(monitor.read()?, state);
    for port in &state.ports {
        reader.doors.push(Door {
            device: port.ifindex,
            map: devices.as_ref().map_or(0, Map::id),
            place: port.number,
            generic: match &handed {
                Some(handed) => packets_at(handed, port.number)?,
                None => 0,
            },
        });
    }
    let mut instances = Vec::new();
    for instance in &state.instances {
        reader.count_cpus(instance);
        if instance.object == "redirect" {
            instances.push(InstanceTargets {
                instance: instance.name.clone(),
                targets: reader.targets(instance)?,
            });
        }
    }
    let mut indexes: Vec<u32> = Vec::new();
    for door in &reader.doors {
        if !indexes.contains(&door.device) {
            indexes.push(door.device);
        }
    }
    let mut accounts = Vec::with_capacity(indexes.len());
    for index in indexes {
        let port = state.ports.iter().find(|port| port.ifindex == index);
        let sent_back = match (port, &transmitted) {
            (Some(port), Some(transmitted)) => packets_at(transmitted, port.number)?,
            _ => 0,
        };
        let before = state.baselines.get(&index).copied();
        accounts.push(reader.device(index, sent_back, before));
    }
    let redirected: u64 = ledgers.iter().map(|one| one.verdict[XDP_REDIRECT]).sum();
    let known = reader.ended(state);
    let tells = monitor.absent().is_empty() && !reader.broadcasts;
    let missing = |before: i64| {
        let all = redirected.saturating_add_signed(before);
        all.saturating_sub(known)
    };
    Ok(Some(SecondStage {
        devices: accounts,
        instances,
        unaccounted: state.redirected_before.filter(|_| tells).map(missing),
        warnings: cures(state),
        absent: monitor.absent().to_vec(),
        uncounted: reader.readings.unseen.sent + reader.readings.unseen.dropped,
    }))
}

/// Maps of the edge: its devices, packets that generic ports handed to them, and packets that ports were to send back.
const DEVICES: &str = "weir_devices";
const HANDED: &str = "weir_handed";
const TRANSMITTED: &str = "weir_transmitted";

/// Place of the verdict in a ledger.
const XDP_REDIRECT: usize = 4;

/// A place of a map by which packets of the edge leave.
struct Door {
    /// Its device's index.
    device: u32,
    map: u32,
    place: u32,
    /// Packets that generic ports handed over here.
    generic: u64,
}

/// What is read once for all accounts.
struct Reader {
    readings: Readings,
    netns: u32,
    /// Indexes of generic ports.
    generic: Vec<u32>,
    doors: Vec<Door>,
    /// Packets that CPUs and sockets were given.
    elsewhere: u64,
    /// Whether an instance makes several packets of one.
    broadcasts: bool,
}

impl Reader {
    fn new(readings: Readings, state: &State) -> Reader {
        let generic = state.ports.iter().filter(|port| !is_native(port));
        Reader {
            readings,
            netns: state.netns as u32,
            generic: generic.map(|port| port.ifindex).collect(),
            doors: Vec::new(),
            elsewhere: 0,
            broadcasts: false,
        }
    }

    /// Packets of generic ports that devices took.
    fn given(&self) -> u64 {
        self.doors.iter().map(|door| self.taken(door)).sum()
    }

    /// The account of a device. `transmitted`: packets that it was to send back; `before`: what it had dropped when the edge began.
    fn device(&self, index: u32, transmitted: u64, before: Option<u64>) -> DeviceAccount {
        let device = name(index);
        let Reader {
            readings, netns, ..
        } = self;
        let mut redirected = readings.device(*netns, index);
        let mut sent_back = readings.transmitted(*netns, index);
        let stopped = readings.not_transmitted(*netns, index);
        // What tracepoints told of is in the device's own count, too.
        let told = redirected.lost() + sent_back.lost() + stopped;
        let dropped = match (before, iface::dropped_on_transmit(&device)) {
            (Some(before), Ok(now)) => now.saturating_sub(before).saturating_sub(told),
            _ => 0,
        };
        let mut handed = 0;
        for door in self.doors.iter().filter(|door| door.device == index) {
            redirected.merge(&readings.refused(door.map, door.place));
            handed += self.taken(door);
        }
        redirected.take(handed, stopped, dropped);
        let silent = transmitted.saturating_sub(sent_back.sent + sent_back.lost());
        sent_back.take(
            silent,
            stopped.saturating_sub(handed),
            dropped.saturating_sub(handed),
        );
        let all = readings.exceptions(*netns, index);
        DeviceAccount {
            exceptions: all - stopped.min(handed + silent),
            device,
            redirected,
            transmitted: sent_back,
        }
    }

    /// Packets of generic ports that a device took at a door; no tracepoint tells of those.
    fn taken(&self, door: &Door) -> u64 {
        let readings = &self.readings;
        let refused = readings.refused_from(door.map, door.place, &self.generic);
        door.generic.saturating_sub(refused)
    }

    /// Redirected packets that are in some account.
    fn ended(&self, state: &State) -> u64 {
        let from = state.sources.iter();
        let readings = &self.readings;
        let ended: u64 = from
            .map(|index| readings.ended_from(self.netns, *index))
            .sum();
        ended + self.given() + self.elsewhere
    }

    /// Packets that an instance gave to CPUs.
    fn count_cpus(&mut self, instance: &InstanceState) {
        if let Some(cpus) = instance.maps.get("cpus") {
            self.elsewhere += self.readings.queued(cpus.id);
        }
    }

    /// The targets of an instance of `redirect`, from its maps.
    fn targets(&mut self, instance: &InstanceState) -> Result<Vec<TargetAccount>, EdgeError> {
        let map = |name: &str| match instance.maps.get(name) {
            Some(map) => Map::by_id(map.id, name).map(Some),
            None => Ok(None),
        };
        let mut targets = Vec::new();
        let Some(accounts) = map("handed")? else {
            return Ok(targets);
        };
        let generic = map("handed_generic")?;
        let to_all = packets_at(&accounts, TO_ALL)?;
        self.broadcasts |= to_all > 0;
        if let Some(devices) = map("devices")? {
            for (place, index) in filled(&devices)? {
                let door = Door {
                    device: index,
                    map: devices.id(),
                    place,
                    generic: match &generic {
                        Some(generic) => packets_at(generic, place)?,
                        None => 0,
                    },
                };
                let handed = packets_at(&accounts, place)? + to_all;
                let account = self.readings.refused(devices.id(), place);
                let device = self.readings.device(self.netns, index);
                let ended = account.lost() + device.sent + device.lost() + self.taken(&door);
                targets.push(TargetAccount {
                    target: format!("device {}", name(index)),
                    handed,
                    untold: handed.saturating_sub(ended),
                    account,
                });
                self.doors.push(door);
            }
        }
        if let Some(cpus) = map("cpus")? {
            // Plans name CPUs in rising order, so a CPU's place is its rank.
            for (place, (cpu, _)) in (0..).zip(filled(&cpus)?) {
                let handed = packets_at(&accounts, place)?;
                let mut account = self.readings.cpu(cpus.id(), cpu);
                account
                    .dropped
                    .extend(self.readings.refused(cpus.id(), cpu).dropped);
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
                let handed = packets_at(&accounts, queue)?;
                if handed == 0 {
                    continue;
                }
                let mut account = self.readings.refused(sockets.id(), queue);
                // No tracepoint tells of packets that a socket took.
                account.sent = handed.saturating_sub(account.lost());
                self.elsewhere += account.sent;
                targets.push(TargetAccount {
                    target: format!("socket of queue {queue}"),
                    handed,
                    account,
                    untold: 0,
                });
            }
        }
        Ok(targets)
    }
}

/// Packets of a counter at a place, of all CPUs.
fn packets_at(map: &Map, place: u32) -> Result<u64, KernelError> {
    let values = map.lookup_percpu(&place.to_ne_bytes())?;
    Ok(handed(values.iter().map(Vec::as_slice)).packets)
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
