//! Functions with programs of their own: loaded beside those that run, into slots that no packet of the running generation calls.
//!
//! A function has two slots and uses one; a new program takes the other. Its state (connections, counters) goes on with it, by the rules
//! that hold in graphs (`crate::edge::load`).

use std::collections::BTreeMap;

use weir_bpf::abi::{self, net_slot};
use weir_functions::plan::Constant;
use weir_network::{EdgeNetworks, PrivateFunction, Tables};

use super::error::NetworkError;
use super::set::Set;
use weir_kernel::LoadedProgram;

use crate::edge::EdgeError;
use crate::edge::Form;
use crate::edge::load::{Build, Recipe, Surroundings};
use crate::edge::state::InstanceState;

/// The functions of a plan, made: as they stand in the state, and names of those that are new or changed.
pub(super) struct Made {
    pub(super) states: Vec<InstanceState>,
    pub(super) loaded: Vec<String>,
}

/// Slots that a function may have, for its number.
pub(super) fn slots(number: u32) -> [u32; 2] {
    let first = net_slot::PRIVATE + 2 * (number - net_slot::PRIVATE);
    [first, first + 1]
}

/// Loads what is not there as it is planned, or all of it for a set that is new. `running`: functions of the generation that runs.
pub(super) fn make(
    plan: &EdgeNetworks,
    set: &Set,
    running: &[InstanceState],
    is_new: bool,
) -> Result<Made, NetworkError> {
    let mut made = Made {
        states: Vec::with_capacity(plan.functions.len()),
        loaded: Vec::new(),
    };
    let before: BTreeMap<&str, &InstanceState> =
        running.iter().map(|one| (one.name.as_str(), one)).collect();
    for function in &plan.functions {
        let name = weir_network::instance_name(&function.network, &function.name);
        let before_it = before.get(name.as_str()).copied();
        let state = one(function, &name, plan, set, before_it, is_new)?;
        let same = before
            .get(name.as_str())
            .is_some_and(|b| b.program == state.program);
        if !same {
            made.loaded.push(name);
        }
        made.states.push(state);
    }
    Ok(made)
}

/// What the links of a function are like.
pub(super) fn surroundings(function: &PrivateFunction, plan: &EdgeNetworks) -> Surroundings {
    let mtu = plan
        .interfaces
        .get(function.sides[0] as usize)
        .map(|vi| vi.mtu);
    Surroundings {
        // tc asks the socket buffer; the constant says what the worst of them is.
        offloaded: true,
        mtu: mtu.filter(|mtu| *mtu != 0).map(u32::from),
        metadata: false,
    }
}

/// What a function is made from; `placement`: the constants of what it shares with others.
pub(super) fn recipe(
    function: &PrivateFunction,
    name: &str,
    placement: Vec<Constant>,
    form: Form,
) -> Recipe<'static> {
    static NO_SHARES: BTreeMap<String, String> = BTreeMap::new();
    Recipe {
        name: name.to_owned(),
        plan: function.planned.instance.clone(),
        shares: &NO_SHARES,
        fresh: false,
        secret: function.planned.asks.secret,
        build: Build::Network(form),
        copy: None,
        placement,
    }
}

fn one(
    function: &PrivateFunction,
    name: &str,
    plan: &EdgeNetworks,
    set: &Set,
    before: Option<&InstanceState>,
    is_new: bool,
) -> Result<InstanceState, NetworkError> {
    let around = surroundings(function, plan);
    let recipe = recipe(function, name, set.constants(), Form::Graph);
    let shared = BTreeMap::new();
    let of = |error| match error {
        EdgeError::MapChanged {
            map, have, want, ..
        } => NetworkError::StateChanged {
            name: name.to_owned(),
            map,
            have,
            want,
        },
        error => NetworkError::Function {
            name: name.to_owned(),
            error: Box::new(error),
        },
    };
    let content = recipe.content(around, &shared).map_err(of)?;
    let digest = recipe.digest(&content).map_err(of)?;
    if let Some(before) = before.filter(|before| !is_new && before.digest == digest) {
        return Ok(before.clone());
    }
    let [first, second] = slots(function.slot);
    let slot = match before {
        Some(before) if before.slot == first => second,
        _ => first,
    };
    if slot as usize >= abi::NET_PROGRAMS {
        return Err(NetworkError::TooManyFunctions {
            most: (abi::NET_PROGRAMS as u32 - net_slot::PRIVATE) / 2,
        });
    }
    let object = recipe.open().map_err(of)?;
    let made = recipe
        .load(object, around, set, &shared, before, &content)
        .map_err(of)?;
    set.map("net_programs")?.set_program(slot, &made.program)?;
    Ok(InstanceState {
        name: name.to_owned(),
        object: recipe.plan.object.to_string(),
        vid: function.sides[0],
        slot,
        digest,
        content,
        object_digest: recipe.object_digest().map_err(of)?,
        program: made.program.info()?.id,
        tc_program: None,
        maps: made.maps,
        secret: made.secret,
        outs: Vec::new(),
        implicit: false,
    })
}

/// The program of a function that runs once more, in the form that tells what packets go through. It uses the maps of the one that runs.
pub(super) fn watched(
    function: &PrivateFunction,
    name: &str,
    plan: &EdgeNetworks,
    set: &Set,
    running: &InstanceState,
) -> Result<LoadedProgram, NetworkError> {
    let of = |error| NetworkError::Function {
        name: name.to_owned(),
        error: Box::new(error),
    };
    let (around, shared) = (surroundings(function, plan), BTreeMap::new());
    let recipe = recipe(function, name, set.constants(), Form::Watched);
    let content = recipe.content(around, &shared).map_err(of)?;
    // With other contents it would get maps of its own, and packets would meet another configuration.
    if content != running.content {
        return Err(NetworkError::OtherContents {
            name: name.to_owned(),
        });
    }
    let object = recipe.open().map_err(of)?;
    let made = recipe.load(object, around, set, &shared, Some(running), &content);
    Ok(made.map_err(of)?.program)
}

/// Puts the slots that functions really have into the tables.
pub(super) fn place(tables: &mut Tables, plan: &EdgeNetworks, states: &[InstanceState]) {
    let planned = plan.functions.iter().zip(states);
    let slots: Vec<(u32, u32)> = planned
        .map(|(function, state)| (function.slot, state.slot))
        .collect();
    place_slots(tables, &slots);
}

/// ... from pairs of the slot that was planned and the one that holds.
pub(super) fn place_slots(tables: &mut Tables, slots: &[(u32, u32)]) {
    let slots: BTreeMap<u32, u32> = slots.iter().copied().collect();
    for vi in &mut tables.interfaces {
        if let Some(slot) = slots.get(&vi.slot) {
            vi.slot = *slot;
        }
    }
}
