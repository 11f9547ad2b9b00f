//! Changing an edge from the generation that runs to the next one.
//!
//! Everything new is made beside what runs; one word switches; then what is no longer reached is removed.
//! Invariant: up to the switch any failure, and the end of the process, leaves the running generation as it was.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use weir_bpf::abi::{self, Hop, panel};
use weir_functions::plan::Constant;
use weir_graph::{EdgePlan, Hooks, Mode, SharedMap, Target};
use weir_kernel::pinned::PinnedLink;
use weir_kernel::{KernelError, KernelObject, LoadedProgram, Map, MapDefinition};

use super::building::Building;
use super::error::EdgeError;
use super::form::{Form, Hook};
use super::load::{Build, Recipe, Surroundings};
use super::maps::{STACK, way_out};
use super::ports::{Sees, Wanted};
use super::state::{
    self, HookState, InstanceState, PairState, PortState, SharedState, State, words,
};
use super::{Edge, hooks, ledgers, ports, second};

/// Instances of a graph up to which links are constants of the programs in front of them: a hop costs 4 ns instead of 6 to 9, and a
/// new program takes all that lead to it along, at a few ms each.
const CONSTANT_LINKS: usize = 256;

/// What an apply is about to do: for whoever watches it, and for tests that end it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The plan was compared with what runs; nothing was made yet.
    Make,
    /// All new programs are loaded.
    Fill,
    /// All new programs have their slots.
    Link,
    /// The new half of the links is written.
    Attach,
    /// New ports are attached.
    Hook,
    /// New objects on other hooks are attached.
    Remember,
    /// The new state lies beside the old one.
    Switch,
    /// Packets follow the new generation.
    Settle,
    /// No packet follows the old one any more.
    Clean,
    /// Everything old is gone.
    Done,
}

impl Step {
    /// All of them, in order.
    pub const ALL: [Step; 10] = [
        Step::Make,
        Step::Fill,
        Step::Link,
        Step::Attach,
        Step::Hook,
        Step::Remember,
        Step::Switch,
        Step::Settle,
        Step::Clean,
        Step::Done,
    ];

    /// One word for it.
    pub fn name(self) -> &'static str {
        match self {
            Step::Make => "make",
            Step::Fill => "fill",
            Step::Link => "link",
            Step::Attach => "attach",
            Step::Hook => "hook",
            Step::Remember => "remember",
            Step::Switch => "switch",
            Step::Settle => "settle",
            Step::Clean => "clean",
            Step::Done => "done",
        }
    }
}

/// What an apply did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// The generation that packets follow now, from 1.
    pub generation: u64,
    /// Instances that went on untouched.
    pub kept: Vec<String>,
    /// Instances whose program was replaced; their state was kept where its shape is the same.
    pub replaced: Vec<String>,
    /// New instances.
    pub added: Vec<String>,
    /// Instances that are gone.
    pub removed: Vec<String>,
    /// Ports that were attached.
    pub attached: Vec<String>,
    /// Ports that were taken off.
    pub detached: Vec<String>,
    /// What a user should know.
    pub notes: Vec<String>,
}

/// Watches an apply, and may end it by an error.
pub type Watcher<'w> = &'w mut dyn FnMut(Step) -> Result<(), EdgeError>;

/// An instance as it is to run.
struct Instance {
    state: InstanceState,
    /// Programs on XDP and on tc; `None`: it runs already, or does not run there.
    made: [Option<LoadedProgram>; 2],
}

pub(super) fn apply(
    edge: &mut Edge,
    plan: &EdgePlan,
    text: &str,
    watch: Watcher<'_>,
) -> Result<Applied, EdgeError> {
    let old = edge.state.take();
    let outcome = change(edge, plan, text, old.as_ref(), watch);
    match outcome {
        Ok((state, applied)) => {
            if !state.watched {
                edge.maps.forget_watching();
            }
            edge.state = Some(state);
            Ok(applied)
        }
        Err(Failed::Before(e)) => {
            edge.state = old;
            Err(e)
        }
        // Switched, but not cleaned up: the state that holds is the new one, and opening the edge again finishes.
        Err(Failed::After(state, e)) => {
            edge.state = Some(*state);
            Err(e)
        }
    }
}

enum Failed {
    Before(EdgeError),
    After(Box<State>, EdgeError),
}

impl<E: Into<EdgeError>> From<E> for Failed {
    fn from(e: E) -> Failed {
        Failed::Before(e.into())
    }
}

fn change(
    edge: &mut Edge,
    plan: &EdgePlan,
    text: &str,
    old: Option<&State>,
    watch: Watcher<'_>,
) -> Result<(State, Applied), Failed> {
    let generation = old.map_or(0, |state| state.generation) + 1;
    let wanted = ports::find(&plan.ports, old, edge.folder.path())?;
    ports::suit(plan, &wanted)?;
    let around = Surroundings {
        offloaded: wanted.iter().any(|port| port.offloaded),
        mtu: wanted.iter().map(|port| port.device.mtu).min(),
        metadata: plan.ports.iter().any(|port| port.metadata),
    };
    let mut numbers = Numbers::of(old);
    let wanted_instances = plan.instances.iter().zip(plan.instance_hooks());
    let mut recipes: Vec<Recipe<'_>> = wanted_instances
        .map(|(instance, hooks)| recipe(instance, edge.form, hooks))
        .collect();
    let mut vids = Vec::with_capacity(recipes.len());
    for recipe in &recipes {
        let before = old.and_then(|old| old.instance(&recipe.name));
        vids.push(before.map_or_else(|| numbers.vid(), |before| before.vid));
    }
    refuse_too_many(&recipes, old)?;
    watch(Step::Make)?;

    if edge.form == Form::Watched {
        complete_entry(edge, Hook::Xdp)?;
    }
    if plan.has_tc() {
        complete_entry(edge, Hook::Tc)?;
        edge.need_tc_stub()?;
    }
    // What objects bring to the edge itself stays, whatever becomes of the rest: it is empty.
    let mut objects: Vec<Option<KernelObject>> = Vec::with_capacity(recipes.len());
    for recipe in &recipes {
        let before = old.and_then(|old| old.instance(&recipe.name));
        let may_stay = before.is_some() && recipe.shares.is_empty();
        let same = may_stay
            && old.map(State::form) == Some(edge.form)
            && before.map(InstanceState::hooks) == Some(recipe.hooks())
            && before.is_some_and(|b| {
                recipe
                    .content(around, &BTreeMap::new())
                    .is_ok_and(|content| content == b.content)
            });
        let object = match same {
            true => None,
            false => Some(recipe.open()?),
        };
        if let Some(object) = &object {
            edge.maps.complete(object, edge.folder.path(), &edge.name)?;
            if let Some(copy) = recipe.open_copy()? {
                edge.maps.complete(&copy, edge.folder.path(), &edge.name)?;
            }
        }
        objects.push(object);
    }

    let mut building = Building::new(&edge.folder, edge.arrays()?, &edge.maps);
    let (shared, shared_states) = share(edge, plan, old, generation, &mut building)?;
    let mut applied = Applied {
        generation,
        ..Applied::default()
    };
    let mut made: Vec<Option<Instance>> = recipes.iter().map(|_| None).collect();
    for at in plan.targets_first() {
        let slots = |at: usize| made[at].as_ref().map(|instance| instance.state.slot);
        recipes[at].placement = placement(plan, at, vids[at], &slots);
        let recipe = &recipes[at];
        let before = old.and_then(|old| old.instance(&recipe.name));
        let content = recipe.content(around, &shared)?;
        let digest = recipe.digest(&content)?;
        let implicit = plan.instances[at].is_implicit();
        if let Some(before) = before
            && before.digest == digest
        {
            note(&mut applied.kept, recipe, implicit);
            if let Some(map) = before.maps.get(crate::tai::TAI) {
                crate::tai::renew(map.id)?;
            }
            made[at] = Some(Instance {
                state: before.clone(),
                made: [None, None],
            });
            continue;
        }
        let object = match objects[at].take() {
            Some(object) => object,
            None => recipe.open()?,
        };
        let loaded = recipe.load(object, around, &edge.maps, &shared, before, &content)?;
        for (name, map) in &loaded.maps {
            // A map that goes on has its pin already.
            let new = |pin: &String| !edge.folder.path().join(pin).exists();
            if let Some(pin) = map.pin().filter(new) {
                Map::by_id(map.id, name)?.pin(&building.pin(&pin))?;
            }
        }
        match before {
            Some(before) if before.content == content => {
                note(&mut applied.kept, recipe, implicit);
            }
            Some(_) => note(&mut applied.replaced, recipe, implicit),
            None => note(&mut applied.added, recipe, implicit),
        }
        let programs = match recipe.hooks() {
            Hooks { xdp: true, .. } => [Some(loaded.program), loaded.copy],
            Hooks { xdp: false, .. } => [None, Some(loaded.program)],
        };
        let id = |at: usize| -> Result<Option<u32>, KernelError> {
            let program = programs.get(at).and_then(Option::as_ref);
            Ok(program
                .map(LoadedProgram::info)
                .transpose()?
                .map(|info| info.id))
        };
        made[at] = Some(Instance {
            state: InstanceState {
                name: recipe.name.clone(),
                object: recipe.plan.object.to_string(),
                vid: vids[at],
                slot: numbers.slot(),
                digest,
                content,
                object_digest: recipe.object_digest()?,
                program: id(0)?.unwrap_or_default(),
                tc_program: id(1)?,
                maps: loaded.maps,
                secret: loaded.secret,
                outs: Vec::new(),
                implicit,
            },
            made: programs,
        });
    }
    let place = |name: &String| recipes.iter().position(|recipe| recipe.name == *name);
    for list in [&mut applied.kept, &mut applied.replaced, &mut applied.added] {
        list.sort_by_key(place);
    }
    let mut instances: Vec<Instance> = made.into_iter().flatten().collect();
    for (at, instance) in instances.iter_mut().enumerate() {
        let outs = plan.outs(at);
        let named = outs.map(|(out, to)| (out.to_owned(), plan.target_name(to).to_owned()));
        instance.state.outs = named.collect();
    }
    if let Some(old) = old {
        let new: Vec<&InstanceState> = instances.iter().map(|i| &i.state).collect();
        super::routers::carry_over(old, &new)?;
    }
    watch(Step::Fill)?;

    for instance in &instances {
        let arrays = [Some(edge.maps.programs()?), edge.maps.tc_programs()];
        for (array, program) in arrays.into_iter().zip(&instance.made) {
            if let (Some(array), Some(program)) = (array, program) {
                building.slot(instance.state.slot);
                array.set_program(instance.state.slot, program)?;
            }
        }
    }
    watch(Step::Link)?;

    write_links(edge, plan, &instances, generation)?;
    let devices = wanted.iter();
    let devices = devices.map(|port| (port.device.ifindex, port.plan.number));
    edge.maps.set_ports(generation, devices)?;
    watch(Step::Attach)?;

    let pair = pair(edge, plan, old, generation, &mut building)?;
    let port_states = attach(edge, plan, &wanted, generation, &mut building, &mut applied)?;
    watch(Step::Hook)?;

    let hook_states = attach_hooks(edge, plan, old, generation, &shared, &mut building)?;
    watch(Step::Remember)?;

    let leaves_by = plan.leaves_by();
    let new: Vec<&InstanceState> = instances.iter().map(|i| &i.state).collect();
    let redirected_before = second::redirected_before(&edge.name, &new, old)?;
    let state = State {
        layout: state::LAYOUT,
        maps_layout: abi::STATE_LAYOUT,
        netns: edge.netns,
        generation,
        text: text.to_owned(),
        baselines: second::baselines(&leaves_by, &port_states, old),
        leaves_by,
        sources: second::sources(&port_states, pair.as_ref(), old),
        redirected_before,
        ports: port_states,
        instances: instances.into_iter().map(|i| i.state).collect(),
        maps: shared_states,
        hooks: hook_states,
        pair,
        watched: edge.form == Form::Watched,
    };
    building.pin(&state::pin_name(generation));
    state::write(&edge.folder, &state)?;
    watch(Step::Switch)?;

    edge.maps.switch(generation)?;
    building.keep();
    if let Some(old) = old {
        let gone = |i: &&InstanceState| state.instance(&i.name).is_none() && !i.implicit;
        let gone = old.instances.iter().filter(gone);
        applied.removed = gone.map(|i| i.name.clone()).collect();
    }
    match finish(edge, &wanted, old, &state, &mut applied, watch) {
        Ok(()) => Ok((state, applied)),
        Err(e) => Err(Failed::After(Box::new(state), e)),
    }
}

/// Waits until nothing follows the old generation, and removes what only it had.
fn finish(
    edge: &Edge,
    wanted: &[Wanted<'_>],
    old: Option<&State>,
    state: &State,
    applied: &mut Applied,
    watch: Watcher<'_>,
) -> Result<(), EdgeError> {
    watch(Step::Settle)?;
    refresh(edge, wanted, state, old.map_or(edge.form, State::form))?;
    if old.is_some_and(|old| old.form() != edge.form) {
        edge.refresh_pair(state)?;
    }
    weir_kernel::grace_period()?;
    if let Some(old) = old {
        drain(old)?;
        super::filters::carry_over(old, state)?;
    }
    watch(Step::Clean)?;
    if let Some(old) = old {
        let here: BTreeSet<&str> = state.ports.iter().map(|p| p.pin.as_str()).collect();
        let gone = |p: &&PortState| !here.contains(p.pin.as_str());
        let gone = old.ports.iter().filter(gone);
        applied.detached = gone.map(|p| p.name.clone()).collect();
    }
    edge.sweep(state)?;
    watch(Step::Done)
}

/// Gives ports that stay and whose checksums are read in another way, or that ran in another form, the entry program for that.
fn refresh(
    edge: &Edge,
    wanted: &[Wanted<'_>],
    state: &State,
    before: Form,
) -> Result<(), EdgeError> {
    for (port, state) in wanted.iter().zip(&state.ports) {
        let Some(running) = &port.running else {
            continue;
        };
        let same = running.offloaded == port.offloaded && running.away == port.away();
        if !same || before != edge.form {
            edge.refresh_port(state, edge.form)?;
        }
    }
    Ok(())
}

/// Waits until what was on its way through the pair has come out of it: every packet of the old generation goes on in that one.
fn drain(old: &State) -> Result<(), EdgeError> {
    /// Longer than any queue of a veth pair takes; packets that it lost never come.
    const PATIENCE: Duration = Duration::from_millis(20);
    let senders: Vec<&InstanceState> = old
        .instances
        .iter()
        .filter(|i| i.implicit && i.object == "recirculate")
        .collect();
    let (Some(pair), false) = (&old.pair, senders.is_empty()) else {
        return Ok(());
    };
    let sent = || -> Result<u64, EdgeError> {
        let mut sent = 0;
        for sender in &senders {
            sent += ledgers::stats_of(sender)?.verdict[REDIRECT];
        }
        Ok(sent)
    };
    // A packet that came out may be sent once more by the next recirculation on its path.
    for _ in 0..senders.len() {
        let until = sent()?;
        let began = Instant::now();
        while ledgers::returned(pair)? < until && began.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_micros(200));
        }
        weir_kernel::grace_period()?;
    }
    Ok(())
}

/// Index of `XDP_REDIRECT`.
const REDIRECT: usize = 4;

fn note(list: &mut Vec<String>, recipe: &Recipe<'_>, implicit: bool) {
    if !implicit {
        list.push(recipe.name.clone());
    }
}

fn recipe(instance: &weir_graph::Instance, form: Form, hooks: Hooks) -> Recipe<'_> {
    let (build, copy) = match hooks {
        Hooks { xdp, tc: true } if !xdp => (Build::GraphTc(form), None),
        Hooks { tc, .. } => (Build::Graph(form), tc.then_some(Build::GraphTc(form))),
    };
    Recipe {
        name: instance.name.clone(),
        plan: instance.planned.instance.clone(),
        shares: &instance.shares,
        fresh: instance.fresh,
        secret: instance.planned.asks.secret,
        build,
        copy,
        placement: Vec::new(),
    }
}

/// Makes the maps that the copies of `entry` on a hook need.
fn complete_entry(edge: &mut Edge, hook: Hook) -> Result<(), EdgeError> {
    let name = edge.form.of("entry", hook);
    let elf = weir_bpf::object(&name).ok_or_else(|| EdgeError::NoObject {
        instance: "entry".to_owned(),
        object: name.clone(),
    })?;
    let entry = KernelObject::open(elf)?;
    edge.maps.complete(&entry, edge.folder.path(), &edge.name)
}

/// Old and new stand side by side for a moment, each name with a number of its own. There are twice as many slots.
fn refuse_too_many(recipes: &[Recipe<'_>], old: Option<&State>) -> Result<(), EdgeError> {
    let new = recipes
        .iter()
        .filter(|r| old.is_none_or(|old| old.instance(&r.name).is_none()));
    let have = new.count() + old.map_or(0, |old| old.instances.len());
    let most = panel::VIDS - 1;
    match have > most {
        true => Err(EdgeError::TooMany {
            what: "functions, those that run and go away included",
            have,
            most,
        }),
        false => Ok(()),
    }
}

/// Hands out numbers and slots that the running generation does not use.
struct Numbers {
    vids: BTreeSet<u32>,
    slots: BTreeSet<u32>,
}

impl Numbers {
    fn of(old: Option<&State>) -> Numbers {
        let running = || old.into_iter().flat_map(|old| &old.instances);
        Numbers {
            // Number 0 is none; slot 0 stays empty and slot 1 has the stub.
            vids: running().map(|i| i.vid).chain([0]).collect(),
            slots: running()
                .map(|i| i.slot)
                .chain([panel_slots::NOWHERE, panel_slots::STUB])
                .collect(),
        }
    }

    fn vid(&mut self) -> u32 {
        lowest(&mut self.vids)
    }

    fn slot(&mut self) -> u32 {
        lowest(&mut self.slots)
    }
}

fn lowest(used: &mut BTreeSet<u32>) -> u32 {
    // There are more numbers than elements, so one is free.
    let free = (0..=used.len() as u32).find(|n| !used.contains(n));
    let free = free.unwrap_or(u32::MAX);
    used.insert(free);
    free
}

/// Slots that no instance has.
pub(super) mod panel_slots {
    /// Empty.
    pub(in super::super) const NOWHERE: u32 = 0;
    /// The stub, for whoever needs its descriptor.
    pub(in super::super) const STUB: u32 = 1;
}

type Shared = (BTreeMap<String, Map>, Vec<SharedState>);

/// The maps of several objects: those that are there, and new ones.
fn share(
    edge: &Edge,
    plan: &EdgePlan,
    old: Option<&State>,
    generation: u64,
    building: &mut Building<'_>,
) -> Result<Shared, EdgeError> {
    let mut shared = BTreeMap::new();
    let mut states = Vec::new();
    for (place, wanted) in plan.maps.iter().enumerate() {
        let running = old
            .into_iter()
            .flat_map(|old| &old.maps)
            .find(|map| map.name == wanted.name);
        let definition = definition_of(wanted);
        let mut found = None;
        if let Some(running) = running {
            let have = state::definition(running.declared);
            if have == definition {
                found = Map::open(&edge.folder.path().join(&running.pin))?
                    .map(|map| (map, running.pin.clone()));
            } else if !wanted.fresh {
                return Err(EdgeError::SharedMapChanged {
                    map: wanted.name.clone(),
                    have,
                    want: definition,
                });
            }
        }
        let (map, pin) = match found {
            Some(found) => found,
            None => {
                let pin = format!("map-{place}-{generation}");
                let map = Map::create(&wanted.name, definition).map_err(|error| EdgeError::Of {
                    who: format!("map {}", wanted.name),
                    error,
                })?;
                map.pin(&building.pin(&pin))?;
                (map, pin)
            }
        };
        states.push(SharedState {
            name: wanted.name.clone(),
            declared: words(definition),
            pin,
            id: map.id(),
        });
        shared.insert(wanted.name.clone(), map);
    }
    Ok((shared, states))
}

/// A shared map as the kernel knows it.
fn definition_of(map: &SharedMap) -> MapDefinition {
    MapDefinition {
        kind: map.kind.number(),
        key: map.key,
        value: map.value,
        entries: map.entries,
        flags: map.kind.flags(),
    }
}

/// Writes the half of the links and entries that the next generation reads.
fn write_links(
    edge: &Edge,
    plan: &EdgePlan,
    instances: &[Instance],
    generation: u64,
) -> Result<(), KernelError> {
    let hop = |target: Target| match target {
        Target::Instance(at) => Hop {
            vid: instances[at].state.vid,
            slot: instances[at].state.slot,
        },
        out => way_out(out),
    };
    for (instance, targets) in instances.iter().zip(&plan.targets) {
        for out in 0..panel::OUTS {
            let target = targets.get(out);
            let hop = target.map_or(Hop::default(), |target| hop(*target));
            edge.maps
                .set_link(instance.state.vid, out, generation, hop)?;
        }
    }
    for number in 0..panel::PORTS as u32 {
        edge.maps.set_entry(number, generation, STACK)?;
        edge.maps.set_transmit(number, generation, STACK)?;
    }
    let targets = plan.entries.iter().zip(&plan.transmits);
    for (port, (entry, transmit)) in plan.ports.iter().zip(targets) {
        let maps = &edge.maps;
        maps.set_entry(port.number, generation, hop(*entry))?;
        if let Some(transmit) = transmit {
            maps.set_transmit(port.number, generation, hop(*transmit))?;
        }
    }
    Ok(())
}

/// Constants by which a program knows its number and where its outputs lead. `slots`: of instances that are settled, which are all that follow
/// it but for loops; those stay data, and so do links of graphs so large that loading all programs in front of a new one takes long.
fn placement(
    plan: &EdgePlan,
    at: usize,
    vid: u32,
    slots: &dyn Fn(usize) -> Option<u32>,
) -> Vec<Constant> {
    let constant = plan.instances.len() <= CONSTANT_LINKS;
    let mut outs = [Hop::default(); panel::OUTS];
    for (hop, target) in outs.iter_mut().zip(&plan.targets[at]) {
        *hop = match *target {
            Target::Instance(next) => Hop {
                // Every instance knows its own number.
                vid: 0,
                slot: slots(next)
                    .filter(|_| constant)
                    .unwrap_or(panel_slots::NOWHERE),
            },
            out => way_out(out),
        };
    }
    let words = |of: fn(&Hop) -> u32| outs.iter().flat_map(|h| of(h).to_ne_bytes()).collect();
    vec![
        ("weir_vid".into(), vid.to_ne_bytes().to_vec()),
        ("weir_next_slot".into(), words(|hop| hop.slot)),
        ("weir_next_vid".into(), words(|hop| hop.vid)),
    ]
}

/// The pair for recirculation, if the plan needs it: the one that is there, or a new one.
fn pair(
    edge: &Edge,
    plan: &EdgePlan,
    old: Option<&State>,
    generation: u64,
    building: &mut Building<'_>,
) -> Result<Option<PairState>, EdgeError> {
    if !plan.recirculates() {
        return Ok(None);
    }
    if let Some(pair) = old.and_then(|old| old.pair.as_ref()) {
        let link = PinnedLink::open(&edge.folder.path().join(&pair.pin))?;
        if link.is_some_and(|link| link.is_attached().unwrap_or(false)) {
            return Ok(Some(pair.clone()));
        }
    }
    ports::make_pair(&plan.edge, generation, edge.form, &edge.maps, building).map(Some)
}

fn attach(
    edge: &Edge,
    plan: &EdgePlan,
    wanted: &[Wanted<'_>],
    generation: u64,
    building: &mut Building<'_>,
    applied: &mut Applied,
) -> Result<Vec<PortState>, EdgeError> {
    let mut states = Vec::with_capacity(wanted.len());
    for (port, transmit) in wanted.iter().zip(&plan.transmits) {
        let mut state = port.state();
        if let Some(running) = &port.running {
            state.pin.clone_from(&running.pin);
            state.handover.clone_from(&running.handover);
            state.transmit.clone_from(&running.transmit);
        } else {
            building.device(port.plan.number);
            applied.attached.push(port.plan.name.clone());
        }
        let (maps, index) = (&edge.maps, port.device.ifindex);
        match port.running {
            // It has its place already, unless the map for tc is new.
            Some(_) => maps.set_tc_device(port.plan.number, index)?,
            None => maps.set_device(port.plan.number, Some(index))?,
        }
        let mut attach = |sees| port.attach(sees, generation, edge.form, &edge.maps, building);
        if port.running.is_none() {
            state.pin = attach(Sees::Received)?;
        }
        match (transmit, &state.transmit) {
            (Some(_), None) => state.transmit = Some(attach(Sees::Transmitted)?),
            (None, Some(_)) => state.transmit = None,
            _ => {}
        }
        // On tc the mark is the socket buffer's already.
        let hands_over = port.plan.metadata && port.plan.mode != Mode::Tc;
        match (hands_over, &state.handover) {
            (true, None) => state.handover = Some(port.hand_over(generation, building)?),
            (false, Some(_)) => state.handover = None,
            _ => {}
        }
        states.push(state);
    }
    Ok(states)
}

fn attach_hooks(
    edge: &Edge,
    plan: &EdgePlan,
    old: Option<&State>,
    generation: u64,
    shared: &BTreeMap<String, Map>,
    building: &mut Building<'_>,
) -> Result<Vec<HookState>, EdgeError> {
    let mut states = Vec::with_capacity(plan.hooks.len());
    for (place, hook) in plan.hooks.iter().enumerate() {
        let digest = hooks::digest(hook, shared);
        let running = old
            .into_iter()
            .flat_map(|old| &old.hooks)
            .find(|h| h.name == hook.name && h.digest == digest);
        if let Some(running) = running
            && PinnedLink::open(&edge.folder.path().join(&running.pin))?.is_some()
        {
            states.push(running.clone());
            continue;
        }
        states.push(hooks::attach(hook, place, generation, shared, building)?);
    }
    Ok(states)
}
