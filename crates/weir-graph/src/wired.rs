//! From links to targets: the implicit instances that guard links and recirculate packets, then where each output and each port leads.
//!
//! Owns the names and the order of implicit instances: guards in the order of their links, then recirculations in the order of the links they
//! were made for.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use weir_functions::kind::Planned;

use crate::edge::{EdgePlan, Instance, Target};
use crate::model::{Link, Model, Source};
use crate::paths::{Graph, MAX_CALLS, Walks};

/// The plan of a model whose links were checked; `graph` and `walks` are those of its links.
pub(crate) fn wired(model: Model, graph: &Graph, walks: &Walks) -> EdgePlan {
    let Model {
        edge,
        mut ports,
        mut instances,
        links,
        maps,
        hooks,
    } = model;
    ports.sort_by_key(|port| port.number);
    // An output without a link leads to the stack.
    let unlinked = |one: &Instance| vec![Target::Stack; one.planned.outs.len()];
    let mut targets: Vec<Vec<Target>> = instances.iter().map(unlinked).collect();
    let first_guard = instances.len();
    let bits = graph.bits_of_a_guard();
    let guarded = links.iter().filter_map(|link| Some((link, link.guard?)));
    let guards: Vec<Instance> = (0..)
        .zip(guarded)
        .map(|(number, (link, limit))| guard(&instances, link, number * bits, bits, limit))
        .collect();
    targets.extend(guards.iter().map(unlinked));
    instances.extend(guards);
    // Recirculations, by the place they lead to.
    let mut away: BTreeMap<usize, usize> = BTreeMap::new();
    for &at in &walks.cut {
        let to = graph.steps[at].to;
        if let Entry::Vacant(place) = away.entry(to) {
            place.insert(instances.len());
            let name = format!("recirculate to {}", instances[to].name);
            instances.push(recirculate(name));
            targets.push(vec![Target::Instance(to), Target::Pair]);
        }
    }
    let mut entries = vec![Target::Stack; ports.len()];
    let mut transmits = vec![None; ports.len()];
    for link in &links {
        match link.from {
            Source::Out { instance, out } => targets[instance][out] = link.to,
            Source::Port(number) => {
                if let Some(at) = ports.iter().position(|port| port.number == number) {
                    entries[at] = link.to;
                }
            }
            Source::Transmit(number) => {
                if let Some(at) = ports.iter().position(|port| port.number == number) {
                    transmits[at] = Some(link.to);
                }
            }
        }
    }
    for (at, step) in graph.steps.iter().enumerate() {
        let mut target = match walks.cut.contains(&at) {
            true => away.get(&step.to).copied().unwrap_or(step.to),
            false => step.to,
        };
        if let Some(guard) = step.guard {
            targets[first_guard + guard] = vec![Target::Instance(target)];
            target = first_guard + guard;
        }
        if let Source::Out { instance, out } = links[graph.links[at]].from {
            targets[instance][out] = Target::Instance(target);
        }
    }
    let notes = notes(&instances, walks, graph);
    EdgePlan {
        edge,
        ports,
        entries,
        transmits,
        instances,
        targets,
        maps,
        hooks,
        longest: walks.longest.len() as u32,
        recirculations: walks.recirculations,
        notes,
    }
}

/// Counts the passes of a guarded link in its bits of the packet's word, and drops what would be one too many.
fn guard(instances: &[Instance], link: &Link, shift: u32, bits: u32, limit: u32) -> Instance {
    let from = match link.from {
        Source::Out { instance, out } => {
            let instance = &instances[instance];
            match instance.planned.outs[out].as_str() {
                "next" => instance.name.clone(),
                out => format!("{}.{out}", instance.name),
            }
        }
        Source::Port(number) | Source::Transmit(number) => number.to_string(),
    };
    let number = |n: u32| n.to_ne_bytes().to_vec();
    let mut planned = Planned::embedded("guard");
    planned.instance.constants = vec![
        ("weir_guard_shift".into(), number(shift)),
        (
            "weir_guard_mask".into(),
            number(u32::MAX >> (u32::BITS - bits)),
        ),
        ("weir_guard_limit".into(), number(limit)),
    ];
    Instance::new(format!("guard behind {from}"), "guard", planned)
}

/// Sends packets into the pair by its second output; what comes back goes on by the first.
fn recirculate(name: String) -> Instance {
    let mut planned = Planned::embedded("recirculate");
    planned.outs.push("away".to_owned());
    Instance::new(name, "recirculate", planned)
}

fn notes(instances: &[Instance], walks: &Walks, graph: &Graph) -> Vec<String> {
    let mut notes = Vec::new();
    for instance in instances {
        let unshared = instance.planned.unshared.iter();
        let unshared = unshared.filter(|(map, _)| !instance.shares.contains_key(map));
        let of = instance.planned.notes.iter();
        let of = of.chain(unshared.map(|(_, note)| note));
        notes.extend(of.map(|note| format!("{}: {note}", instance.name)));
    }
    if !walks.cut.is_empty() {
        let name = |at: usize| instances[at].name.as_str();
        let names: Vec<&str> = walks.longest.iter().map(|&at| name(at)).collect();
        let places = walks.cut.iter().map(|&at| name(graph.steps[at].to));
        let places: BTreeSet<&str> = places.collect();
        let places: Vec<String> = places.iter().map(|name| format!("`{name}`")).collect();
        notes.push(format!(
            "a packet may pass {} functions ({}), and the kernel calls {MAX_CALLS} in a row: packets are sent round through a veth pair in front of {}, \
             at most {} each, which costs about as much as receiving them again",
            names.len(),
            abridged(&names),
            places.join(", "),
            match walks.recirculations {
                1 => "once".to_owned(),
                many => format!("{many} times"),
            },
        ));
    }
    notes
}

/// A walk, without its middle if it is long.
pub(crate) fn abridged(names: &[&str]) -> String {
    match names {
        [first, second, .., last] if names.len() > 6 => {
            format!("{first} > {second} > ... > {last}")
        }
        _ => names.join(" > "),
    }
}
