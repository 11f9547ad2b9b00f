//! From functions and walks to instances: numbers, targets of outputs, and the implicit ones, which guard links and recirculate packets.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use weir_functions::kind::Planned;

use crate::config::Function;
use crate::edge::{Instance, Target};
use crate::parts::names_of;
use crate::paths::{Graph, Walks};
use crate::wiring::{End, Wired};

/// Numbers all instances: functions in the order of the configuration, guards in the order of their links, recirculations in the order
/// of the links they were made for.
pub(crate) fn instances(
    functions: &[Function],
    planned: Vec<Planned>,
    wired: &[Wired<'_>],
    walks: &Walks,
    graph: &Graph,
) -> Vec<Instance> {
    let mut instances: Vec<Instance> = Vec::new();
    for (function, planned) in functions.iter().zip(planned) {
        instances.push(Instance {
            vid: 0,
            name: function.name.value.clone(),
            kind: function.kind.value.clone(),
            fresh: function.fresh,
            // An output without a link leads to the stack.
            links: vec![Target::Stack; planned.outs.len()],
            planned,
            shares: names_of(&function.maps),
        });
    }
    // Each link between functions is one step, in the order of links.
    let steps = || {
        wired
            .iter()
            .filter(|one| matches!(one.end, End::Function(_)))
    };
    let most = graph.guards.iter().copied().max().unwrap_or(1);
    let bits = u32::BITS - most.leading_zeros();
    let first_guard = instances.len();
    for (number, (one, &limit)) in steps()
        .filter(|one| one.link.guard.is_some())
        .zip(&graph.guards)
        .enumerate()
    {
        instances.push(guard(one, number as u32 * bits, bits, limit));
    }
    // Recirculations, by the place they lead to.
    let mut away: BTreeMap<usize, usize> = BTreeMap::new();
    for &at in &walks.cut {
        let to = graph.steps[at].to;
        if let Entry::Vacant(place) = away.entry(to) {
            place.insert(instances.len());
            instances.push(recirculate(&instances[to].name, to));
        }
    }
    for one in wired {
        if let End::Out(target) = one.end {
            instances[one.from].links[one.out] = target;
        }
    }
    for (at, one) in steps().enumerate() {
        let step = graph.steps[at];
        let mut target = match walks.cut.contains(&at) {
            true => away.get(&step.to).copied().unwrap_or(step.to),
            false => step.to,
        };
        if let Some(guard) = step.guard {
            instances[first_guard + guard].links = vec![vid(target)];
            target = first_guard + guard;
        }
        instances[one.from].links[one.out] = vid(target);
    }
    for (vid, instance) in (1..).zip(&mut instances) {
        instance.vid = vid;
    }
    instances
}

/// The number of the instance at a place.
pub(crate) fn vid(place: usize) -> Target {
    Target::Instance(place as u32 + 1)
}

/// Counts the passes of a guarded link in its bits of the packet's word, and drops what would be one too many.
fn guard(one: &Wired<'_>, shift: u32, bits: u32, limit: u32) -> Instance {
    let link = one.link;
    let from = match &link.out {
        Some(out) if out.value != "next" => format!("{}.{}", link.from.value, out.value),
        _ => link.from.value.clone(),
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
    implicit("guard", format!("guard behind {from}"), planned)
}

/// Sends packets into the pair by its second output; what comes back goes on by the first.
fn recirculate(name: &str, to: usize) -> Instance {
    let mut planned = Planned::embedded("recirculate");
    planned.outs.push("away".to_owned());
    let mut instance = implicit("recirculate", format!("recirculate to {name}"), planned);
    instance.links = vec![vid(to), Target::Pair];
    instance
}

fn implicit(kind: &str, name: String, planned: Planned) -> Instance {
    Instance {
        vid: 0,
        name,
        kind: kind.to_owned(),
        fresh: false,
        planned,
        shares: BTreeMap::new(),
        links: vec![Target::Stack],
    }
}
