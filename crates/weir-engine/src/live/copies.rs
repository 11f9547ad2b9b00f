//! Copies of the program, one for each port and direction: loading them so that they share what they must, and what holds them
//! at their hooks.
//!
//! Copies of one instance share all maps but their constants. Copies of a new layout of the rules share the maps of state with those
//! they replace ([`Sharing`]), and have the others to themselves.

use weir_functions::middlebox::STATE_MAPS;
use weir_functions::plan::{InstancePlan, MapPlan, Port, PortConstants};
use weir_kernel::pins::{HeldFilter, HeldLink};
use weir_kernel::{Direction, KernelError, KernelObject, Link, LoadedProgram};

use super::Hook;

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
pub(super) struct Place {
    /// Index into the ports.
    pub(super) port: usize,
    pub(super) hook: Hook,
    pub(super) direction: Direction,
    pub(super) constants: PortConstants,
}

/// Whose maps a copy uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sharing<'a> {
    /// Copies of the same layout of the rules: everything.
    pub(super) same: &'a [LoadedCopy],
    /// Copies that are being replaced: state.
    pub(super) replaced: &'a [LoadedCopy],
    /// Counters and rate words of the replaced ones are too small.
    pub(super) counters_grew: bool,
}

impl<'a> Sharing<'a> {
    fn owner(&self, map: &str, plan: &InstancePlan) -> Option<&'a LoadedProgram> {
        let of = |copies: &'a [LoadedCopy]| {
            let found = copies.iter().find(|c| c.program.map_sizes(map).is_ok());
            found.map(|copy| &copy.program)
        };
        let is_state =
            STATE_MAPS.contains(&map) || !plan.maps.iter().any(|planned| planned.name == map);
        let grew = self.counters_grew && GROWING.contains(&map);
        // A policy that kept no connections has no table of them to pass on.
        let planned = plan.maps.iter().find(|planned| planned.name == map);
        let fits = |owner: &&LoadedProgram| match (planned, owner.map_sizes(map)) {
            (Some(planned), Ok(sizes)) => sizes.entries >= planned.max_entries,
            _ => true,
        };
        match of(self.same) {
            None if is_state && !grew => of(self.replaced).filter(fits),
            owner => owner,
        }
    }
}

/// Maps with an element for each counter slot.
const GROWING: [&str; 2] = ["counters", "rates"];

/// Loads one copy of the program. Maps of its own are filled.
pub(super) fn load(
    plan: &InstancePlan,
    place: Place,
    ports: &[Port],
    sharing: Sharing<'_>,
) -> Result<LoadedCopy, KernelError> {
    let is_tc = !matches!(place.hook, Hook::Xdp(_));
    let name = if is_tc { super::TC_OBJECT } else { plan.object };
    let elf = weir_bpf::object(name).ok_or_else(|| KernelError::BadObject {
        why: format!("there is none named {name}"),
    })?;
    let mut object = KernelObject::open(elf)?;
    let constants = plan.constants.iter().cloned();
    for (symbol, value) in constants.chain(place.constants.constants()) {
        object.set_rodata(symbol, &value)?;
    }
    if is_tc {
        let egress = u32::from(place.direction == Direction::Egress);
        object.set_rodata("weir_egress", &egress.to_ne_bytes())?;
        object.set_map_entries("ports", ports.len() as u32)?;
    }
    for map in &plan.maps {
        object.set_map_entries(map.name, map.max_entries)?;
    }
    let mut own = Vec::new();
    // Sections hold this copy's own constants.
    for map in object.maps().into_iter().filter(|m| !m.starts_with('.')) {
        match sharing.owner(&map, plan) {
            Some(owner) => object.reuse_map(&map, owner)?,
            None => own.push(map),
        }
    }
    let program = object.load(plan.program)?;
    let planned = plan.maps.iter().filter(|map| !map.keys.is_empty());
    for map in planned.filter(|map| own.iter().any(|name| name == map.name)) {
        fill(&program, map)?;
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
        .update_batch(map.name, &map.keys, &map.values)
        .map(drop)
}
