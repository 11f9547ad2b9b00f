//! Copies of the program, one for each port and direction: loading them so that they share what they must, and what holds them
//! at their hooks.
//!
//! Copies of one instance share all maps but their constants. Copies of a new layout of the rules share the maps of state with those
//! they replace ([`Sharing`]), and have the others to themselves.

use weir_bpf::abi;
use weir_functions::middlebox::{CONNECTION_MAPS, COUNT_MAPS, dynamic};
use weir_functions::plan::{InstancePlan, MapPlan, ObjectSource, Port, PortConstants};
use weir_kernel::pins::{HeldFilter, HeldLink, Left};
use weir_kernel::{Direction, KernelError, KernelObject, Link, LoadedProgram};

use super::Hook;
use crate::tai;

/// What holds a program at its hook.
#[derive(Debug)]
pub(super) enum Attachment {
    /// Survives a killed process, for `weir down`.
    Pinned(HeldLink),
    /// Ends with the process.
    Plain(Link),
    /// Survives a killed process.
    Filter(HeldFilter),
}

impl From<Left> for Attachment {
    fn from(left: Left) -> Attachment {
        match left {
            Left::Link(link) => Attachment::Pinned(link),
            Left::Filter(filter) => Attachment::Filter(filter),
        }
    }
}

impl Attachment {
    pub(super) fn is_attached(&self) -> bool {
        let attached = match self {
            Attachment::Pinned(link) => link.is_attached(),
            Attachment::Plain(link) => link.is_attached(),
            Attachment::Filter(filter) => filter.is_attached(),
        };
        attached.unwrap_or(false)
    }

    /// Puts another program in place of the present one; every packet meets one of them.
    pub(super) fn replace(&mut self, program: &LoadedProgram) -> Result<(), KernelError> {
        match self {
            Attachment::Pinned(link) => link.link().update(program),
            Attachment::Plain(link) => link.update(program),
            Attachment::Filter(filter) => filter.replace(program),
        }
    }

    /// What another process left goes with this one from now on.
    pub(super) fn own(&mut self) {
        match self {
            Attachment::Pinned(link) => link.own(),
            Attachment::Plain(_) => {}
            Attachment::Filter(filter) => filter.own(),
        }
    }

    pub(super) fn release(self) -> Result<(), KernelError> {
        match self {
            Attachment::Pinned(link) => link.release(),
            Attachment::Plain(link) => link.detach(),
            Attachment::Filter(filter) => filter.release(),
        }
    }
}

/// One program to attach: a port has one, or one for each direction.
#[derive(Debug)]
pub(super) struct LoadedCopy {
    pub(super) program: LoadedProgram,
    /// Index into the ports.
    pub(super) port: usize,
    pub(super) direction: Direction,
}

/// What a copy is made for.
#[derive(Clone, Copy, Debug)]
pub(super) struct AttachPoint {
    /// Index into the ports.
    pub(super) port: usize,
    pub(super) hook: Hook,
    pub(super) direction: Direction,
    pub(super) packets: Packets,
    pub(super) constants: PortConstants,
}

impl AttachPoint {
    pub(super) fn is_xdp(&self) -> bool {
        matches!(self.hook, Hook::Xdp(_))
    }
}

/// Which packets of its port and direction a copy judges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packets {
    All,
    /// XDP leaves fragments to a copy on tc, where they can wait for their first one (docs/design/fragments.md).
    ButFragments,
    /// That copy.
    Fragments,
}

/// Whose maps a copy uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sharing<'a> {
    /// Copies of the same layout of the rules: everything.
    pub(super) same: &'a [LoadedCopy],
    /// Copies that are being replaced.
    pub(super) replaced: &'a [LoadedCopy],
    /// What of theirs goes on.
    pub(super) keep: Keep,
}

/// What goes on when copies are replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Keep {
    /// The ledger.
    pub(super) stats: bool,
    /// Counters and rate words of rules: there is room enough in the old ones.
    pub(super) counters: bool,
    /// Connections.
    pub(super) connections: bool,
    /// What limits of connections count, if the connections go on: their tables lie where they did.
    pub(super) counts: bool,
    /// What packets filled sets with: it lies where it did.
    pub(super) sets: bool,
    /// What belongs to the process: ports, events, scratch.
    pub(super) process: bool,
}

impl<'a> Sharing<'a> {
    fn owner(&self, map: &str, plan: &InstancePlan) -> Option<&'a LoadedProgram> {
        let of = |copies: &'a [LoadedCopy]| {
            let found = copies.iter().find(|c| c.program.map_sizes(map).is_ok());
            found.map(|copy| &copy.program)
        };
        if let Some(owner) = of(self.same) {
            return Some(owner);
        }
        let planned = plan.maps.iter().find(|planned| planned.name == map);
        let kept = match map {
            "counters" | "rates" => self.keep.counters,
            // Names in it hold ids of rules, which are given once: it goes on whatever became of their slots.
            "stats" | "meters" => self.keep.stats,
            dynamic::ELEMENTS => self.keep.sets,
            _ if COUNT_MAPS.contains(&map) => self.keep.connections && self.keep.counts,
            _ if CONNECTION_MAPS.contains(&map) => self.keep.connections,
            _ => self.keep.process && planned.is_none(),
        };
        let fits = |owner: &&LoadedProgram| match (planned, owner.map_sizes(map)) {
            // A policy that kept no connections, or translated none, has no table of them to pass on.
            (Some(planned), Ok(sizes)) => {
                sizes.entries == planned.max_entries && sizes.value == planned.value_size
            }
            (None, Ok(sizes)) if map == "stats" => sizes.value == size_of::<abi::Stats>(),
            (None, Ok(_)) => true,
            _ => false,
        };
        of(self.replaced).filter(|_| kept).filter(fits)
    }
}

impl Keep {
    /// All that can.
    pub(super) const ALL: Keep = Keep {
        stats: true,
        counters: true,
        connections: true,
        counts: true,
        sets: true,
        process: true,
    };
}

/// Loads one copy of the program. Maps of its own are filled.
pub(super) fn load(
    plan: &InstancePlan,
    place: AttachPoint,
    ports: &[Port],
    sharing: Sharing<'_>,
) -> Result<LoadedCopy, KernelError> {
    let is_tc = !matches!(place.hook, Hook::Xdp(_));
    let tc = ObjectSource::Embedded(super::TC_OBJECT);
    let source = if is_tc { &tc } else { &plan.object };
    let elf = source.bytes().ok_or_else(|| KernelError::BadObject {
        why: format!("none is named {source}"),
    })?;
    let mut object = KernelObject::open(elf)?;
    let constants = plan.constants.iter().cloned();
    for (symbol, value) in constants.chain(place.constants.constants()) {
        object.set_rodata(&symbol, &value)?;
    }
    if is_tc {
        let egress = u32::from(place.direction == Direction::Egress);
        let only_fragments = u32::from(place.packets == Packets::Fragments);
        object.set_rodata("weir_egress", &egress.to_ne_bytes())?;
        object.set_rodata("weir_only_fragments", &only_fragments.to_ne_bytes())?;
        object.set_map_entries("ports", ports.len() as u32)?;
    } else {
        let leaves = u32::from(place.packets == Packets::ButFragments);
        object.set_rodata("weir_leaves_fragments", &leaves.to_ne_bytes())?;
    }
    for map in &plan.maps {
        object.set_map_entries(&map.name, map.max_entries)?;
    }
    let mut own = Vec::new();
    // Sections hold this copy's own constants.
    for map in object.maps().into_iter().filter(|m| !m.starts_with('.')) {
        match sharing.owner(&map, plan) {
            Some(owner) => object.reuse_map(&map, owner)?,
            None => own.push(map),
        }
    }
    let program = object.load(&plan.program)?;
    let planned = plan.maps.iter().filter(|map| !map.keys.is_empty());
    for map in planned.filter(|map| own.iter().any(|name| *name == map.name)) {
        fill(&program, map)?;
    }
    if own.iter().any(|name| name == tai::TAI) {
        tai::write(&program)?;
    }
    if own.iter().any(|name| name == "ports") {
        for port in ports {
            program.update(
                "ports",
                &port.index.to_ne_bytes(),
                &port.number.to_ne_bytes(),
                0,
            )?;
        }
    }
    Ok(LoadedCopy {
        program,
        port: place.port,
        direction: place.direction,
    })
}

fn fill(program: &LoadedProgram, map: &MapPlan) -> Result<(), KernelError> {
    program
        .update_batch(&map.name, &map.keys, &map.values)
        .map(drop)
}
