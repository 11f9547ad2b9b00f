//! Networks that are watched: every program is replaced by one that tells what packets go through, in the same slot or on the same device and
//! with the same maps. No generation changes, so connections, counters and what was learned stay.
//!
//! Invariants: what ran before is pinned by slot before anything is replaced, so that any process can put exactly that back; whoever opens the
//! networks for a change does so first. Packets may pass programs of both forms meanwhile.

use weir_kernel::pinned::{self, Folder};
use weir_kernel::{Direction, Filter, LoadedProgram, Map};
use weir_network::EdgeNetworks;

use super::apply::{Networks, digest, folder_of, look, set_prefix};
use super::attach;
use super::error::NetworkError;
use super::layout::SHARED;
use super::private;
use super::state::DeviceState;
use crate::watch::{self, WatchError};

/// Pins of programs that ran before begin so, behind the prefix of the set; their slot follows.
const BEFORE: &str = "unwatched-";

/// Whether an edge's networks run programs that tell.
///
/// # Errors
/// Its folder cannot be read.
pub fn is_watched(edge: &str) -> Result<bool, NetworkError> {
    let names = pinned::names(&folder_of(edge)?)?;
    Ok(names.iter().any(|name| slot_of(name).is_some()))
}

/// The process that watches an edge's networks; `None`: none does, or it is gone.
///
/// # Errors
/// Its state cannot be read.
pub fn watcher(edge: &str) -> Result<Option<u32>, NetworkError> {
    let Some(look) = look(edge)? else {
        return Ok(None);
    };
    match look.set.map(watch::MAPS[0]) {
        Ok(want) => watch::owner(want).map_err(|error| match error {
            WatchError::Kernel(error) => error.into(),
            other => NetworkError::OtherVersion {
                why: other.to_string(),
            },
        }),
        // They are not watched.
        Err(_) => Ok(None),
    }
}

impl Networks {
    /// Lets packets meet programs that tell; the maps to ask them by, in the order of [`watch::MAPS`]. `plan` is that of the running
    /// generation.
    ///
    /// # Errors
    /// What the kernel refused; the programs of before run.
    pub fn watch(&mut self, plan: &EdgeNetworks) -> Result<[Map; 3], NetworkError> {
        let outcome = self.replace(plan);
        if outcome.is_err() {
            // What is told is why it failed; who opens the networks next tries again.
            let _ = self.unwatch();
        }
        outcome
    }

    fn replace(&mut self, plan: &EdgeNetworks) -> Result<[Map; 3], NetworkError> {
        let Some(running) = &mut self.running else {
            return Err(NetworkError::NotRunning {
                edge: self.edge.clone(),
            });
        };
        let (state, set) = (&running.state, &mut running.set);
        if state.digest != digest() {
            return Err(NetworkError::OtherVersion {
                why: "its programs have other maps".to_owned(),
            });
        }
        let programs = set.watched()?;
        let find = |name: &str| {
            let found = programs.iter().find(|(known, _)| *known == name);
            found
                .map(|(_, program)| program)
                .ok_or_else(|| NetworkError::Incomplete {
                    what: format!("program {name}"),
                })
        };
        let mut own = Vec::new();
        for function in &plan.functions {
            let name = weir_network::instance_name(&function.network, &function.name);
            let mut functions = state.functions.iter();
            let Some(before) = functions.find(|one| one.name == name) else {
                continue;
            };
            let program = private::watched(function, &name, plan, set, before)?;
            own.push((before.slot, program));
        }
        let mut slots: Vec<(u32, &LoadedProgram)> =
            own.iter().map(|(slot, program)| (*slot, program)).collect();
        for (name, slot) in SHARED {
            slots.push((*slot, find(name)?));
        }
        let (path, prefix) = (self.folder.path(), set_prefix(state.set));
        let called = set.map("net_programs")?;
        for (slot, _) in &slots {
            if let Some(id) = called.program_at(*slot)? {
                let before = LoadedProgram::by_id(id)?;
                before.pin(&path.join(format!("{prefix}{BEFORE}{slot}")))?;
            }
        }
        let maps = watch::MAPS.map(|name| set.map(name).and_then(|map| copy(map, name)));
        let [want, ring, count] = maps;
        let maps = [want?, ring?, count?];
        for (map, name) in maps.iter().zip(watch::MAPS) {
            map.pin(&path.join(format!("{prefix}{name}")))?;
        }
        // Where packets come in follows last: then all that they meet tells.
        for (slot, program) in &slots {
            called.set_program(*slot, program)?;
        }
        for device in &state.devices {
            put(&self.folder, device, find(device.role.program())?)?;
        }
        let pair = Filter::existing(state.pair, Direction::Ingress, false);
        let replaced = pair.replace(find("resume")?);
        pair.keep();
        replaced?;
        Ok(maps)
    }

    /// Puts back what ran before; `false`: nothing is watched.
    ///
    /// # Errors
    /// What the kernel refused; calling it again goes on.
    pub(super) fn unwatch(&self) -> Result<bool, NetworkError> {
        let Some(running) = &self.running else {
            return Ok(false);
        };
        let prefix = set_prefix(running.state.set);
        let names = self.folder.names()?;
        let of_set = |name: &&String| name.starts_with(&prefix);
        let before: Vec<(&String, u32)> = names
            .iter()
            .filter(of_set)
            .filter_map(|name| Some((name, slot_of(name)?)))
            .collect();
        let maps = watch::MAPS.map(|name| format!("{prefix}{name}"));
        if before.is_empty() && !maps.iter().any(|name| names.contains(name)) {
            return Ok(false);
        }
        let set = &running.set;
        for device in &running.state.devices {
            put(&self.folder, device, set.program(device.role.program())?)?;
        }
        let pair = Filter::existing(running.state.pair, Direction::Ingress, false);
        let replaced = pair.replace(set.program("resume")?);
        pair.keep();
        replaced?;
        let called = set.map("net_programs")?;
        for (name, slot) in &before {
            if let Some(program) = LoadedProgram::open(&self.folder.path().join(name))? {
                called.set_program(*slot, &program)?;
            }
        }
        for name in &maps {
            self.folder.unlink(name)?;
        }
        // Last, so that a process that is killed in between leaves a sign of what is to be done.
        for (name, _) in before {
            self.folder.unlink(name)?;
        }
        Ok(true)
    }
}

/// Puts a program on a device that has one; it may be gone.
fn put(folder: &Folder, device: &DeviceState, program: &LoadedProgram) -> Result<(), NetworkError> {
    match attach::is_there(folder, device)? {
        true => attach::replace(folder, device, program),
        false => Ok(()),
    }
}

/// The same map once more.
fn copy(map: &Map, name: &str) -> Result<Map, NetworkError> {
    Ok(Map::by_id(map.id(), name)?)
}

/// The slot in the name of a pin of what ran before.
fn slot_of(pin: &str) -> Option<u32> {
    let (_, rest) = pin.strip_prefix('s')?.split_once('-')?;
    rest.strip_prefix(BEFORE)?.parse().ok()
}
