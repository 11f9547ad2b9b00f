//! A graph of functions on the devices of this host: applied, changed under traffic, looked at, taken down.
//!
//! There is no process that stays: everything an edge is lies pinned in a folder of bpffs, and the next call picks it up there. What is
//! asked for, and where every output leads, says the [`EdgePlan`]; the change itself is in `apply`, what is remembered in `state`; [`replay`] runs the
//! same over captures.
//! Invariant (docs/design/graph.md): packets follow one complete generation at any time, whatever ends the process that
//! makes the next one; what such a process leaves is told from what runs, and removed by the next.

mod apply;
mod balancers;
mod building;
mod carried;
mod error;
mod filters;
mod folder;
mod form;
pub mod health;
mod hooks;
mod host;
mod ledgers;
pub(crate) mod load;
mod maps;
mod ports;
pub mod replay;
pub mod routers;
mod second;
pub(crate) mod state;
mod status;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use weir_bpf::abi::panel;
use weir_graph::EdgePlan;
use weir_kernel::pinned::{self, Folder, PinnedLink};
use weir_kernel::{KernelError, LoadedProgram, Map, netlink, netns, own_source};

use apply::panel_slots;
use folder::{folder_of, lock, not_running, read_state, state_of};
use form::Hook;
use maps::EdgeMaps;
use state::{PortState, State};

pub use apply::{Applied, Step, Watcher};
pub use balancers::BalancerCounts;
pub use carried::{HopCount, RouterCounts};
pub use error::EdgeError;
pub use folder::{FOLDER, list};
pub use form::Form;
pub use ledgers::reasons;
pub use ports::Sees;
pub use second::{DeviceAccount, InstanceTargets, SecondStage, TargetAccount};
pub use status::{InstanceStatus, PortStatus, Recirculation, Status};

/// Pins that are attachments begin with one of these.
const ATTACHMENTS: [&str; 4] = ["port-", "tc-", "pair-", "hook-"];

/// An edge that this process may change: nobody else does while it is open. What runs goes on when it is dropped.
#[derive(Debug)]
pub struct Edge {
    name: String,
    folder: Folder,
    maps: EdgeMaps,
    stub: LoadedProgram,
    /// The same on tc; `None`: there never was a port on tc.
    tc_stub: Option<LoadedProgram>,
    netns: u64,
    /// Which build of its programs the next apply makes.
    form: Form,
    /// `None`: nothing was ever applied.
    state: Option<State>,
}

/// Makes an edge what the plan says; `text` is the configuration that it came from. Returns once no packet follows the old generation.
///
/// # Errors
/// [`EdgeError`]; what ran before runs on, unchanged.
pub fn apply(plan: &EdgePlan, text: &str) -> Result<Applied, EdgeError> {
    let mut edge = Edge::open_or_create(&plan.edge)?;
    let applied = edge.apply(plan, text);
    if edge.state.is_none() {
        // What is told is why nothing runs, not what could not be removed.
        let _ = edge.down();
    }
    applied
}

/// Why [`apply`] would refuse the devices of a plan as they are now; changes nothing.
pub fn refuses_devices(plan: &EdgePlan) -> Option<EdgeError> {
    let wanted = ports::find(&plan.ports, None, Path::new(""));
    wanted.and_then(|wanted| ports::suit(plan, &wanted)).err()
}

/// What an edge does now. Takes no lock.
///
/// # Errors
/// [`EdgeError::NotRunning`] lists those that are.
pub fn status(name: &str) -> Result<Status, EdgeError> {
    let folder = folder_of(name)?;
    // A generation that is switched away takes its state with it; the next look finds the new one.
    let mut last = None;
    for _ in 0..3 {
        let Some(maps) = EdgeMaps::open(&folder)? else {
            break;
        };
        let Some(state) = read_state(name, &folder, &maps)? else {
            break;
        };
        match stub_of(&maps).and_then(|stub| status::of(name, &folder, &state, &stub)) {
            Ok(status) => return Ok(status),
            Err(e) => last = Some(e),
        }
    }
    match last {
        Some(e) => Err(e),
        None => Err(not_running(name)?),
    }
}

/// Numbers of the ports of a running edge by device, so that a plan gives them the same; empty if it does not run.
///
/// # Errors
/// Its state cannot be read.
pub fn numbers(name: &str) -> Result<BTreeMap<String, u32>, EdgeError> {
    let folder = folder_of(name)?;
    let Some(maps) = EdgeMaps::open(&folder)? else {
        return Ok(BTreeMap::new());
    };
    let state = read_state(name, &folder, &maps)?;
    let ports = state.into_iter().flat_map(|state| state.ports);
    Ok(ports.map(|port| (port.device, port.number)).collect())
}

/// What an array of a running instance holds, all elements one behind the other; `None` if the edge or the instance does not run, or has
/// no such array. For what a new plan must agree with.
///
/// # Errors
/// The state of the edge or the map cannot be read.
pub fn held(name: &str, instance: &str, map: &str) -> Result<Option<Vec<u8>>, EdgeError> {
    let folder = folder_of(name)?;
    let Some(maps) = EdgeMaps::open(&folder)? else {
        return Ok(None);
    };
    let state = read_state(name, &folder, &maps)?;
    let found = state.as_ref().and_then(|state| {
        let instance = state.instance(instance)?;
        instance.maps.get(map).map(|map| map.id)
    });
    let Some(id) = found else {
        return Ok(None);
    };
    Ok(elements(id, map)?)
}

/// All elements of an array, one behind the other; `None`: it is no such array.
pub(crate) fn elements(id: u32, map: &str) -> Result<Option<Vec<u8>>, KernelError> {
    let map = Map::by_id(id, map)?;
    let mut all = Vec::new();
    for index in 0..map.definition().entries {
        match map.lookup(&index.to_ne_bytes())? {
            Some(value) => all.extend(value),
            None => return Ok(None),
        }
    }
    Ok(Some(all))
}

/// The maps that a watched edge is watched through ([`crate::watch::MAPS`]); `None` if its programs cannot be watched.
///
/// # Errors
/// The edge is not there, or a map cannot be opened.
pub fn watch_maps(name: &str) -> Result<Option<[Map; 3]>, EdgeError> {
    let folder = folder_of(name)?;
    let [want, ring, count] = crate::watch::MAPS.map(|map| Map::open(&folder.join(map)));
    Ok(match (want?, ring?, count?) {
        (Some(want), Some(ring), Some(count)) => Some([want, ring, count]),
        _ => None,
    })
}

/// The generation that packets follow; `None` if the edge does not run.
///
/// # Errors
/// Its maps cannot be opened.
pub fn generation(name: &str) -> Result<Option<u64>, EdgeError> {
    let maps = EdgeMaps::open(&folder_of(name)?)?;
    let generation = maps.map(|maps| maps.generation()).transpose()?;
    Ok(generation.filter(|generation| *generation > 0))
}

/// Takes an edge off its devices and removes everything of it, also what killed processes left. `false` if there was nothing.
///
/// # Errors
/// [`EdgeError::OtherNamespace`], [`EdgeError::Busy`], or what the kernel refused; calling it again goes on.
pub fn down(name: &str) -> Result<bool, EdgeError> {
    let path = folder_of(name)?;
    // To others than root it looks as if it were not there.
    if !pinned::names(Path::new(FOLDER))?.iter().any(|n| n == name) {
        return Ok(false);
    }
    let folder = lock(name, &path)?;
    let here = netns::current_inode()?;
    if let Some(maps) = EdgeMaps::open(&path)?
        && let Ok(Some(state)) = read_state(name, &path, &maps)
        && state.netns != here
        && !is_orphan(&path, &state)?
    {
        return Err(EdgeError::OtherNamespace {
            name: name.to_owned(),
            there: state.netns,
        });
    }
    wipe(name, &folder)?;
    own_source::release_all(&host::owner(name), None)?;
    folder.remove()?;
    Ok(true)
}

/// Names of edges of other namespaces whose devices are gone, usually with their namespace: [`down`] removes them from anywhere.
///
/// # Errors
/// The folder cannot be read.
pub fn orphans() -> Result<Vec<String>, EdgeError> {
    let here = netns::current_inode()?;
    let mut found = Vec::new();
    for name in pinned::names(Path::new(FOLDER))? {
        // Those that cannot be read are in `list`, which any caller asks as well.
        if let Ok(Some(state)) = state_of(&name)
            && state.netns != here
            && is_orphan(&Path::new(FOLDER).join(&name), &state)?
        {
            found.push(name);
        }
    }
    Ok(found)
}

/// Whether no device runs a program of an edge any more: its links outlive the devices they were on, and do nothing.
fn is_orphan(folder: &Path, state: &State) -> Result<bool, EdgeError> {
    for port in &state.ports {
        if let Some(link) = PinnedLink::open(&folder.join(&port.pin))?
            && link.is_attached()?
        {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Edge {
    /// Opens an edge that runs and cleans up what a killed process left of its work.
    ///
    /// # Errors
    /// [`EdgeError::NotRunning`], [`EdgeError::Busy`], [`EdgeError::OtherNamespace`], [`EdgeError::OtherVersion`].
    pub fn open(name: &str) -> Result<Edge, EdgeError> {
        if !folder_of(name)?.exists() {
            return Err(not_running(name)?);
        }
        let edge = Edge::open_or_create(name)?;
        if edge.state.is_none() {
            edge.down()?;
            return Err(not_running(name)?);
        }
        Ok(edge)
    }

    /// [`Edge::open`], or a new edge without ports: whoever then applies nothing takes it down.
    ///
    /// # Errors
    /// As of [`Edge::open`].
    pub fn open_or_create(name: &str) -> Result<Edge, EdgeError> {
        let path = folder_of(name)?;
        let folder = lock(name, &path)?;
        let here = netns::current_inode()?;
        if let Some(maps) = EdgeMaps::open(&path)?
            && let Some(state) = read_state(name, &path, &maps)?
            && (state.netns == here || !is_orphan(&path, &state)?)
        {
            if state.netns != here {
                return Err(EdgeError::OtherNamespace {
                    name: name.to_owned(),
                    there: state.netns,
                });
            }
            let edge = Edge {
                name: name.to_owned(),
                stub: stub_of(&maps)?,
                tc_stub: tc_stub_of(&maps)?,
                folder,
                maps,
                netns: here,
                form: Form::Graph,
                state: None,
            };
            edge.sweep_all(&state)?;
            return Ok(Edge {
                state: Some(state),
                ..edge
            });
        }
        // Whatever lies here was never switched to, or its devices are gone with their namespace.
        wipe(name, &folder)?;
        let made = EdgeMaps::create(&path).and_then(|maps| {
            let stub = load::load_own("stub", Hook::Xdp, Form::Graph, &[], &maps, None)?;
            maps.programs()?.set_program(panel_slots::STUB, &stub)?;
            Ok((maps, stub))
        });
        let (maps, stub) = match made {
            Ok(made) => made,
            Err(e) => {
                // What is told is why there is no edge, not what could not be removed of it.
                let _ = wipe(name, &folder);
                let _ = folder.remove();
                return Err(e);
            }
        };
        Ok(Edge {
            name: name.to_owned(),
            folder,
            maps,
            stub,
            tc_stub: None,
            netns: here,
            form: Form::Graph,
            state: None,
        })
    }

    /// Lets the next apply make another build of the programs; without this they are such that cannot be watched.
    pub fn set_form(&mut self, form: Form) {
        self.form = form;
    }

    /// See [`apply`].
    ///
    /// # Errors
    /// As [`apply`].
    pub fn apply(&mut self, plan: &EdgePlan, text: &str) -> Result<Applied, EdgeError> {
        self.apply_watched(plan, text, &mut |_| Ok(()))
    }

    /// [`Edge::apply`]; `watch` is told of every step before it is done and may end the work there. An error of its at
    /// [`Step::Settle`] or later comes after the switch: the new generation runs, and is cleaned up after by the next call.
    ///
    /// # Errors
    /// As [`apply`].
    pub fn apply_watched(
        &mut self,
        plan: &EdgePlan,
        text: &str,
        watch: Watcher<'_>,
    ) -> Result<Applied, EdgeError> {
        let note = second::begin(&self.name);
        let mut applied = apply::apply(self, plan, text, watch)?;
        applied.notes.extend(note);
        if let Some(state) = &self.state {
            applied.notes.extend(second::cures(state));
            applied.notes.extend(routers::prepare(state)?);
            applied.notes.extend(health::settle(state)?);
            applied.notes.extend(balancers::prepare(state)?);
            applied.notes.extend(host::settle(&self.name, state, plan)?);
            applied.notes.extend(host::notes(state, plan)?);
        }
        Ok(applied)
    }

    /// See [`status()`].
    ///
    /// # Errors
    /// As [`status()`].
    pub fn status(&self) -> Result<Status, EdgeError> {
        match &self.state {
            Some(state) => status::of(&self.name, self.folder.path(), state, &self.stub),
            None => Err(not_running(&self.name)?),
        }
    }

    /// The configuration that runs.
    pub fn text(&self) -> Option<&str> {
        self.state.as_ref().map(|state| state.text.as_str())
    }

    /// See [`down`].
    ///
    /// # Errors
    /// As [`down`].
    pub fn down(self) -> Result<(), EdgeError> {
        wipe(&self.name, &self.folder)?;
        own_source::release_all(&host::owner(&self.name), None)?;
        Ok(self.folder.remove()?)
    }

    /// Lets an attachment run another program, which goes on with its counters.
    fn exchange(
        &self,
        link: &PinnedLink,
        load: impl FnOnce(Option<&Map>) -> Result<LoadedProgram, EdgeError>,
    ) -> Result<(), EdgeError> {
        let running = LoadedProgram::by_id(link.prog_id()?)?;
        let ledger = Map::of(&running, load::LEDGER)?;
        Ok(link.update(&load(Some(&ledger))?)?)
    }

    /// Gives the attachments of a port the copies of `entry` for its state.
    fn refresh_port(&self, port: &PortState, form: Form) -> Result<(), EdgeError> {
        for (pin, sees) in port.entries() {
            if let Some(link) = PinnedLink::open(&self.folder.path().join(pin))? {
                self.exchange(&link, |ledger| port.entry(sees, form, &self.maps, ledger))?;
            }
        }
        Ok(())
    }

    /// The arrays of programs, each with its stub.
    fn arrays(&self) -> Result<Vec<(&Map, &LoadedProgram)>, KernelError> {
        let tc = self.maps.tc_programs().zip(self.tc_stub.as_ref());
        Ok([(self.maps.programs()?, &self.stub)]
            .into_iter()
            .chain(tc)
            .collect())
    }

    /// Puts the stub into the array of programs on tc, which is there, unless it is there as well. Both stubs have one ledger.
    fn need_tc_stub(&mut self) -> Result<(), EdgeError> {
        if self.tc_stub.is_none() {
            let ledger = Map::of(&self.stub, load::LEDGER)?;
            let ledger = Some(&ledger);
            let stub = load::load_own("stub", Hook::Tc, Form::Graph, &[], &self.maps, ledger)?;
            if let Some(programs) = self.maps.tc_programs() {
                programs.set_program(panel_slots::STUB, &stub)?;
            }
            self.tc_stub = Some(stub);
        }
        Ok(())
    }

    /// Gives the far end of the pair the program of the state's form.
    fn refresh_pair(&self, state: &State) -> Result<(), EdgeError> {
        let Some(pair) = &state.pair else {
            return Ok(());
        };
        match PinnedLink::open(&self.folder.path().join(&pair.pin))? {
            Some(link) => self.exchange(&link, |ledger| {
                let maps = &self.maps;
                load::load_own(
                    "resume",
                    Hook::Xdp,
                    state.form(),
                    ports::RESUME,
                    maps,
                    ledger,
                )
            }),
            None => Ok(()),
        }
    }

    /// Removes what a state does not name: pins, and programs in slots that it or its predecessor used.
    fn sweep(&self, state: &State) -> Result<(), EdgeError> {
        let named: BTreeSet<Cow<'_, str>> = named_pins(state).collect();
        let current = state::pin_name(state.generation);
        for pin in self.folder.names()? {
            if pin.starts_with(maps::PREFIX) && (state.watched || !pin.starts_with(maps::WATCHING))
                || pin == current
                || named.contains(pin.as_str())
            {
                continue;
            }
            if ATTACHMENTS.iter().any(|kind| pin.starts_with(kind)) {
                if let Some(link) = PinnedLink::open(&self.folder.path().join(&pin))? {
                    link.remove()?;
                }
            } else {
                self.folder.unlink(&pin)?;
            }
        }
        let used: BTreeSet<u32> = state.instances.iter().map(|i| i.slot).collect();
        for (programs, stub) in self.arrays()? {
            retire(programs, stub, &used)?;
        }
        let places: BTreeSet<u32> = state
            .ports
            .iter()
            .map(|p| p.number)
            .chain(state.pair.iter().map(|_| maps::PAIR_PLACE))
            .collect();
        for place in 0..panel::DEVICES as u32 {
            if !places.contains(&place) {
                self.maps.set_device(place, None)?;
            }
        }
        if state.pair.is_none() {
            netlink::remove(&ports::pair_names(&self.name).0)?;
        }
        Ok(())
    }

    /// [`Edge::sweep`] of an edge that another process left, maybe in the middle of its work.
    fn sweep_all(&self, state: &State) -> Result<(), EdgeError> {
        let older = |pin: &String| {
            state::generation_of(pin).is_some_and(|generation| generation < state.generation)
        };
        if self.folder.names()?.iter().any(older) {
            // It was killed behind its switch, before it had cleaned up.
            weir_kernel::grace_period()?;
            for port in &state.ports {
                self.refresh_port(port, state.form())?;
            }
            self.refresh_pair(state)?;
        }
        self.sweep(state)
    }
}

/// Puts the stub into all slots of an array that are not in use.
fn retire(programs: &Map, stub: &LoadedProgram, used: &BTreeSet<u32>) -> Result<(), KernelError> {
    let id = stub.info()?.id;
    // An instance may run on one hook only, and slots are given out from the lowest on: behind those in use, and a long run of empty
    // ones, there is nothing.
    let last = used.last().copied().unwrap_or_default();
    let mut empty = 0;
    for slot in panel_slots::STUB + 1..panel::PROGRAMS as u32 {
        match programs.program_at(slot)? {
            None => empty += 1,
            Some(there) => {
                empty = 0;
                if there != id && !used.contains(&slot) {
                    programs.set_program(slot, stub)?;
                }
            }
        }
        if empty > 64 && slot > last {
            break;
        }
    }
    Ok(())
}

fn named_pins(state: &State) -> impl Iterator<Item = Cow<'_, str>> {
    let own = state.instances.iter().flat_map(|i| i.maps.values());
    let own = own.filter_map(|map| map.pin().map(Cow::Owned));
    let ports = state.ports.iter();
    let written = ports
        .flat_map(|p| {
            [
                Some(p.pin.as_str()),
                p.handover.as_deref(),
                p.transmit.as_deref(),
            ]
        })
        .flatten()
        .chain(state.hooks.iter().map(|h| h.pin.as_str()))
        .chain(state.maps.iter().map(|m| m.pin.as_str()))
        .chain((state.pair.iter()).flat_map(|p| [p.pin.as_str(), p.near_pin.as_str()]));
    written.map(Cow::Borrowed).chain(own)
}

/// Removes everything in the folder of an edge, attachments first, and its pair.
fn wipe(name: &str, folder: &Folder) -> Result<(), EdgeError> {
    let pins = folder.names()?;
    for pin in &pins {
        if ATTACHMENTS.iter().any(|kind| pin.starts_with(kind))
            && let Some(link) = PinnedLink::open(&folder.path().join(pin))?
        {
            link.remove()?;
        }
    }
    netlink::remove(&ports::pair_names(name).0)?;
    for pin in &pins {
        folder.unlink(pin)?;
    }
    second::remove(name)
}

/// The stub on tc, if there is one.
fn tc_stub_of(maps: &EdgeMaps) -> Result<Option<LoadedProgram>, EdgeError> {
    let Some(programs) = maps.tc_programs() else {
        return Ok(None);
    };
    let id = programs.program_at(panel_slots::STUB)?;
    Ok(id.map(LoadedProgram::by_id).transpose()?)
}

fn stub_of(maps: &EdgeMaps) -> Result<LoadedProgram, EdgeError> {
    let id = maps.programs()?.program_at(panel_slots::STUB)?;
    let id = id.ok_or_else(|| KernelError::MissingProgram {
        program: "stub".to_owned(),
        near: Vec::new(),
    })?;
    Ok(LoadedProgram::by_id(id)?)
}
