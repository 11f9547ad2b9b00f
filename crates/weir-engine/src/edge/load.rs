//! Loading the programs of instances: which constants they get, whose maps they use, and what is kept of those they replace.
//!
//! Invariant: loading changes nothing that runs. Maps of state are only shared where their definitions are equal.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;

use weir_bpf::abi;
use weir_functions::plan::{
    ChecksumMode, Constant, DeviceFacts, InstancePlan, MapPlan, ObjectSource, PortConstants,
};
use weir_graph::{Digest, Hooks};
use weir_kernel::{KernelError, KernelObject, LoadedProgram, Map, MapDefinition, iface};

use super::error::EdgeError;
use super::form::{Form, Hook};
use super::maps::{EdgeMaps, PREFIX};
use super::state::{InstanceState, MapState, PROG_ARRAY, Role, definition, words};
use crate::tai;

/// What an instance is to be made from.
#[derive(Debug)]
pub(crate) struct Recipe<'p> {
    pub(crate) name: String,
    pub(crate) plan: InstancePlan,
    /// Name in the object, name of the shared map.
    pub(crate) shares: &'p BTreeMap<String, String>,
    pub(crate) fresh: bool,
    /// Name of a constant that is random.
    pub(crate) secret: Option<&'static str>,
    pub(crate) build: Build,
    /// The same once more for the other hook, where packets of both come to it.
    pub(crate) copy: Option<Build>,
    /// Constants that say where in the graph it stands; objects that are not weir's own may have none of them.
    pub(crate) placement: Vec<Constant>,
}

/// What a function is built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Build {
    /// Graphs on XDP.
    Graph(Form),
    /// Graphs on tc.
    GraphTc(Form),
    /// Virtual networks on tc.
    Network(Form),
}

/// A program that is new, and what the state says of it.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) program: LoadedProgram,
    /// The copy for the other hook.
    pub(crate) copy: Option<LoadedProgram>,
    pub(crate) maps: BTreeMap<String, MapState>,
    pub(crate) secret: Option<[u8; 8]>,
}

/// The maps that all programs of an edge share, whatever their objects declare.
pub(crate) trait Common {
    /// Whether a map of this name is one of them.
    fn is_common(&self, name: &str) -> bool;
    /// The map, if it is there.
    fn get(&self, name: &str) -> Option<&Map>;
}

impl Common for EdgeMaps {
    fn is_common(&self, name: &str) -> bool {
        name.starts_with(PREFIX)
    }

    fn get(&self, name: &str) -> Option<&Map> {
        self.find(name)
    }
}

/// Constants that depend on the ports of the edge, not on the function.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Surroundings {
    /// Whether any port may carry unfinished checksums.
    pub(crate) offloaded: bool,
    /// The smallest MTU of the ports.
    pub(crate) mtu: Option<u32>,
    /// Whether packets to the stack of any port take their mark along.
    pub(crate) metadata: bool,
}

impl Recipe<'_> {
    /// The object as it is built for where it stands.
    pub(crate) fn elf(&self) -> Result<&[u8], EdgeError> {
        self.elf_in(self.build)
    }

    fn elf_in(&self, build: Build) -> Result<&[u8], EdgeError> {
        let found = match build {
            Build::Network(form) => self.plan.object.for_networks(form == Form::Watched),
            Build::Graph(form) => self.plan.object.for_graph(form == Form::Watched),
            Build::GraphTc(form) => self.plan.object.for_graph_on_tc(form == Form::Watched),
        };
        found.ok_or_else(|| EdgeError::NoObject {
            instance: self.name.clone(),
            object: match (&self.plan.object, build) {
                (ObjectSource::Embedded(name), Build::Graph(form)) => form.of(name, Hook::Xdp),
                (ObjectSource::Embedded(name), Build::GraphTc(form)) => form.of(name, Hook::Tc),
                (ObjectSource::Embedded(name), Build::Network(Form::Graph)) => {
                    format!("{name}_net")
                }
                (ObjectSource::Embedded(name), Build::Network(Form::Watched)) => {
                    format!("{name}_net_watched")
                }
                (other, _) => other.to_string(),
            },
        })
    }

    /// Of the object alone; the same in all forms for graphs and on both hooks, as what it keeps is.
    pub(crate) fn object_digest(&self) -> Result<String, EdgeError> {
        Ok(Digest::new().bytes(self.unwatched()?).finish())
    }

    fn unwatched(&self) -> Result<&[u8], EdgeError> {
        self.elf_in(match self.build {
            Build::Network(_) => Build::Network(Form::Graph),
            Build::Graph(_) | Build::GraphTc(_) => Build::Graph(Form::Graph),
        })
    }

    /// Of everything but its form and its place in the graph: two instances of equal contents do the same with a packet.
    pub(crate) fn content(
        &self,
        around: Surroundings,
        shared: &BTreeMap<String, Map>,
    ) -> Result<String, EdgeError> {
        let mut digest = Digest::new();
        digest.bytes(self.unwatched()?).text(&self.plan.program);
        for (symbol, value) in self.own_constants(around) {
            digest.text(&symbol).bytes(&value);
        }
        for map in &self.plan.maps {
            digest
                .text(&map.name)
                .number(map.max_entries.into())
                .number(map.key_size as u64)
                .number(map.value_size as u64)
                .bytes(&map.keys)
                .bytes(&map.values);
            for (place, device) in &map.devices {
                // A device that was made anew has another index; one that is not there is told when the map is filled.
                let index = iface::index_of(device).unwrap_or_default();
                digest
                    .number((*place).into())
                    .text(device)
                    .number(index.into());
            }
            for element in &map.host {
                let facts = facts(&element.device).unwrap_or_default();
                let Some((key, value)) = element.complete(&facts) else {
                    continue;
                };
                digest.text(&element.device).bytes(&key).bytes(&value);
            }
        }
        for (map, with) in self.shares {
            let id = shared.get(with).map_or(0, Map::id);
            digest.text(map).text(with).number(id.into());
        }
        digest.text(self.secret.unwrap_or_default());
        Ok(digest.finish())
    }

    /// Of its contents, its form and its place: a program whose digest is that of the one that runs need not be loaded.
    pub(crate) fn digest(&self, content: &str) -> Result<String, EdgeError> {
        let mut digest = Digest::new();
        digest.text(content);
        if matches!(self.build, Build::Graph(form) | Build::GraphTc(form) if form == Form::Watched)
        {
            digest.text("watched");
        }
        let builds = [Some(self.build), self.copy].into_iter().flatten();
        for build in builds.filter(|build| matches!(build, Build::GraphTc(_))) {
            let which = if self.copy.is_some() {
                "xdp and tc"
            } else {
                "tc"
            };
            digest.text(which).bytes(self.elf_in(build)?);
        }
        for (symbol, value) in &self.placement {
            digest.text(symbol).bytes(value);
        }
        Ok(digest.finish())
    }

    /// On which hooks of graphs it runs.
    pub(super) fn hooks(&self) -> Hooks {
        let builds = [Some(self.build), self.copy];
        let has = |wanted: fn(&Build) -> bool| builds.iter().flatten().any(wanted);
        Hooks {
            xdp: has(|build| matches!(build, Build::Graph(_))),
            tc: has(|build| matches!(build, Build::GraphTc(_))),
        }
    }

    /// All constants that it is told, its own first; objects need not have those of where it stands.
    pub(crate) fn constants(&self, around: Surroundings) -> Vec<Constant> {
        let mut all = self.own_constants(around);
        all.extend(self.placement.iter().cloned());
        all
    }

    fn own_constants(&self, around: Surroundings) -> Vec<Constant> {
        let metadata = u32::from(around.metadata).to_ne_bytes().to_vec();
        let around = PortConstants {
            port: 0,
            checksums: match around.offloaded {
                true => ChecksumMode::Offloaded,
                false => ChecksumMode::Complete,
            },
            mtu: around.mtu,
            replay: false,
        };
        let own = self.plan.constants.iter().cloned();
        own.chain(around.constants())
            .chain([("weir_metadata".into(), metadata)])
            .collect()
    }

    /// Opens its object; nothing reaches the kernel yet.
    pub(crate) fn open(&self) -> Result<KernelObject, EdgeError> {
        KernelObject::open(self.elf()?).map_err(|error| self.of(error))
    }

    /// The same for the copy, if there is to be one.
    pub(crate) fn open_copy(&self) -> Result<Option<KernelObject>, EdgeError> {
        let open = |build| KernelObject::open(self.elf_in(build)?).map_err(|error| self.of(error));
        self.copy.map(open).transpose()
    }

    fn of(&self, error: KernelError) -> EdgeError {
        EdgeError::Of {
            who: format!("function {}", self.name),
            error,
        }
    }

    /// Loads it beside whatever runs. `old`: the instance it replaces; `content`: of this one, so that a program that only moves takes
    /// its configuration along.
    pub(crate) fn load(
        &self,
        mut object: KernelObject,
        around: Surroundings,
        common: &dyn Common,
        shared: &BTreeMap<String, Map>,
        old: Option<&InstanceState>,
        content: &str,
    ) -> Result<Made, EdgeError> {
        let of = |error| self.of(error);
        let kept = old.and_then(|old| old.secret).filter(|_| !self.fresh);
        let secret = match self.secret {
            Some(_) => Some(kept.map_or_else(random, Ok)?),
            None => None,
        };
        self.prepare(&mut object, around, secret)?;
        let same_object = match old {
            Some(old) => old.object_digest == self.object_digest()?,
            None => false,
        };
        // Others call their maps what they like.
        let ours = matches!(self.plan.object, ObjectSource::Embedded(_));
        let mut roles = BTreeMap::new();
        for name in object.maps() {
            if name == ".rodata" || name.starts_with(".rodata.") {
                continue;
            }
            let here = object.map_definition(&name).map_err(of)?;
            let moved = old.filter(|old| old.content == content);
            let (role, with) = match moved.and_then(|old| old.maps.get(&name)) {
                Some(before) if before.role == Role::Configuration => {
                    let map = Map::by_id(before.id, &name)?;
                    (Role::Configuration, Some(map))
                }
                _ => {
                    // Counters that mean something beside their tables only go with them.
                    let laid_out = ours && LAID_OUT.contains(&&*name);
                    let old = old.filter(|_| moved.is_some() || !laid_out);
                    self.role(&name, here, same_object, common, shared, old)?
                }
            };
            if let Some(map) = &with {
                object.share_map(&name, map).map_err(of)?;
            }
            roles.insert(name, (role, words(here), with.map(|map| map.id())));
        }
        let program = object.load(&self.plan.program).map_err(of)?;
        for map in self.plan.maps.iter().filter(|map| map.has_contents()) {
            if roles
                .get(&*map.name)
                .is_some_and(|(_, _, with)| with.is_none())
            {
                fill(&program, map).map_err(of)?;
            }
        }
        if ours && roles.contains_key(tai::TAI) {
            tai::write(&program).map_err(of)?;
        }
        let mut maps = BTreeMap::new();
        for (name, (role, declared, with)) in roles {
            // libbpf calls a map that was there before by the name it has there.
            let id = match with {
                Some(id) => id,
                None => Map::of(&program, &name)?.id(),
            };
            let held = !ours && role == Role::State;
            let map = MapState {
                id,
                role,
                declared,
                held,
            };
            maps.insert(name, map);
        }
        let copy = match self.open_copy()? {
            Some(object) => Some(self.load_copy(object, around, common, &maps, secret)?),
            None => None,
        };
        Ok(Made {
            program,
            copy,
            maps,
            secret,
        })
    }

    /// Sets constants and sizes of maps.
    fn prepare(
        &self,
        object: &mut KernelObject,
        around: Surroundings,
        secret: Option<[u8; 8]>,
    ) -> Result<(), EdgeError> {
        let of = |error| self.of(error);
        let known: Vec<String> = object.constants().map(str::to_owned).collect();
        let own = self.plan.constants.len();
        for (at, (symbol, value)) in self.constants(around).iter().enumerate() {
            // Not every object asks what its ports are like.
            if at < own || known.iter().any(|k| *k == **symbol) {
                object.set_rodata(symbol, value).map_err(of)?;
            }
        }
        if known.iter().any(|symbol| symbol == CLOCK_OFFSET) {
            let offset = crate::wall_offset_ns().to_ne_bytes();
            object.set_rodata(CLOCK_OFFSET, &offset).map_err(of)?;
        }
        if let (Some(symbol), Some(value)) = (self.secret, secret) {
            object.set_rodata(symbol, &value).map_err(of)?;
        }
        for map in &self.plan.maps {
            object
                .set_map_entries(&map.name, map.max_entries)
                .map_err(of)?;
        }
        Ok(())
    }

    /// Loads the program for the other hook: it has all maps in common with the first one, so that both are one instance.
    fn load_copy(
        &self,
        mut object: KernelObject,
        around: Surroundings,
        common: &dyn Common,
        maps: &BTreeMap<String, MapState>,
        secret: Option<[u8; 8]>,
    ) -> Result<LoadedProgram, EdgeError> {
        let of = |error| self.of(error);
        self.prepare(&mut object, around, secret)?;
        for name in object.maps() {
            if name == ".rodata" || name.starts_with(".rodata.") {
                continue;
            }
            let map = match maps.get(&name) {
                Some(map) => Some(Map::by_id(map.id, &name)?),
                None => common.get(&name).map(reopen).transpose()?,
            };
            let map = map.ok_or_else(|| KernelError::MissingMap {
                map: name.clone(),
                near: Vec::new(),
            });
            object.share_map(&name, &map.map_err(of)?).map_err(of)?;
        }
        object.load(&self.plan.program).map_err(of)
    }

    /// Whose a map of the object is to be, and the map that is there for it already.
    fn role(
        &self,
        name: &str,
        here: MapDefinition,
        same_object: bool,
        common: &dyn Common,
        shared: &BTreeMap<String, Map>,
        old: Option<&InstanceState>,
    ) -> Result<(Role, Option<Map>), EdgeError> {
        if common.is_common(name) {
            let map = common.get(name).map(reopen).transpose()?;
            return Ok((Role::Edge, map));
        }
        if let Some(with) = self.shares.get(name) {
            let who = format!("function {}", self.name);
            let map = shared_map(&who, name, with, here, shared)?;
            return Ok((Role::Shared, Some(map)));
        }
        // What an object's own tail calls reach is part of its code, and loading fills it: the program that runs goes on with its own.
        if here.kind == PROG_ARRAY {
            return Ok((Role::State, None));
        }
        let ours = matches!(self.plan.object, ObjectSource::Embedded(_));
        let planned = self.plan.maps.iter().find(|map| map.name == name);
        if planned.is_some_and(MapPlan::has_contents) {
            return Ok((Role::Configuration, None));
        }
        // What lies where in the variables of a program is known to this very object only.
        let keeps = !self.fresh && (same_object || !name.starts_with('.'));
        let before = old
            .and_then(|old| old.maps.get(name))
            .filter(|map| keeps && map.role == Role::State);
        let Some(before) = before else {
            return Ok((Role::State, None));
        };
        let have = definition(before.declared);
        if have == here || ours && have.differs_in_place_only(here) {
            return Ok((Role::State, still_there(before.id, name)?));
        }
        // Where its rules have no use for a map, a function of weir's makes room for one bucket: there is nothing to lose.
        let alike = (have.kind, have.key, have.value) == (here.kind, here.key, here.value);
        let unused = have.entries as usize <= abi::WAYS || planned.is_none() && here.entries == 1;
        if ours && alike && unused {
            return Ok((Role::State, None));
        }
        // Counters follow the rules they count: with other rules they begin anew.
        if planned.is_some() && COUNTERS.contains(&name) {
            return Ok((Role::State, None));
        }
        Err(EdgeError::MapChanged {
            instance: self.name.clone(),
            map: name.to_owned(),
            have,
            want: here,
        })
    }
}

/// A map that a program left; `None` if it went with the process that loaded it, as maps do that an object declares and its program
/// never uses: nobody can have written to it.
fn still_there(id: u32, name: &str) -> Result<Option<Map>, KernelError> {
    match Map::by_id(id, name) {
        Ok(map) => Ok(Some(map)),
        Err(KernelError::Sys { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Maps whose size is the number of rules or the room for servers, and whose contents mean nothing, or little, under others.
const COUNTERS: [&str; 8] = [
    "counters",
    "rates",
    "meters",
    "count_names",
    "count_words",
    "service_counts",
    "server_counts",
    "nears",
];

/// The map of counters that every program of weir has.
pub(super) const LEDGER: &str = "stats";

/// Constant of programs that compare their clock with times of the calendar.
const CLOCK_OFFSET: &str = "weir_clock_offset";

/// Counters by places that are those of the tables of one plan: of a filter's rules, of the entries of its sets, and of the targets of a
/// redirect, where what they refused is counted beside a table's id.
const LAID_OUT: [&str; 7] = [
    "counts",
    "hits",
    "wide_hits",
    "carried_counts",
    "carried_hits",
    "handed",
    "handed_generic",
];

/// The map that an object shares under a name of its own.
pub(super) fn shared_map(
    who: &str,
    name: &str,
    with: &str,
    here: MapDefinition,
    shared: &BTreeMap<String, Map>,
) -> Result<Map, EdgeError> {
    let map = shared.get(with).ok_or_else(|| EdgeError::NoSharedMap {
        who: who.to_owned(),
        map: name.to_owned(),
        shared: with.to_owned(),
    })?;
    let there = map.definition();
    let shape = |d: MapDefinition| (d.kind, d.key, d.value, d.entries);
    if shape(here) != shape(there) {
        return Err(EdgeError::SharedMapDiffers {
            who: who.to_owned(),
            map: name.to_owned(),
            here,
            shared: with.to_owned(),
            there,
        });
    }
    Ok(reopen(map)?)
}

/// The same map once more.
pub(super) fn reopen(map: &Map) -> Result<Map, KernelError> {
    Map::by_id(map.id(), map.name())
}

/// One of weir's own programs that is no instance: `entry`, `resume`, `stub`.
/// `ledger`: the counters of the program that it replaces.
pub(super) fn load_own(
    name: &'static str,
    hook: Hook,
    form: Form,
    constants: &[(&str, u32)],
    edge: &EdgeMaps,
    ledger: Option<&Map>,
) -> Result<LoadedProgram, EdgeError> {
    let object = form.of(name, hook);
    let elf = weir_bpf::object(&object).ok_or_else(|| EdgeError::NoObject {
        instance: name.to_owned(),
        object: object.clone(),
    })?;
    let mut object = KernelObject::open(elf)?;
    for (symbol, value) in constants {
        object.set_rodata(symbol, &value.to_ne_bytes())?;
    }
    for map in object.maps() {
        let with = match ledger {
            Some(ledger) if map == LEDGER => Some(ledger),
            _ => edge.find(&map),
        };
        if let Some(with) = with {
            object.share_map(&map, with)?;
        }
    }
    Ok(object.load(name)?)
}

/// The constant of [`abi::csum`] for a port.
pub(super) fn csum_mode(offloaded: bool) -> u32 {
    match offloaded {
        true => abi::csum::OFFLOADED,
        false => abi::csum::COMPLETE,
    }
}

fn fill(program: &LoadedProgram, map: &MapPlan) -> Result<(), KernelError> {
    program.update_batch(&map.name, &map.keys, &map.values)?;
    for (place, device) in &map.devices {
        let index = iface::index_of(device)?;
        program.update(&map.name, &place.to_ne_bytes(), &index.to_ne_bytes(), 0)?;
    }
    for element in &map.host {
        if let Some((key, value)) = element.complete(&facts(&element.device)?) {
            program.update(&map.name, &key, &value, 0)?;
        }
    }
    Ok(())
}

/// What this host knows of a device.
fn facts(device: &str) -> Result<DeviceFacts, KernelError> {
    let found = iface::find(device)?;
    Ok(DeviceFacts {
        index: found.ifindex,
        mac: found.mac,
        mtu: found.mtu,
    })
}

/// Eight bytes that nobody guesses.
pub(crate) fn random() -> Result<[u8; 8], KernelError> {
    let mut value = [0; 8];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut value));
    read.map(|()| value).map_err(|source| KernelError::Sys {
        what: "read /dev/urandom".to_owned(),
        source,
    })
}
