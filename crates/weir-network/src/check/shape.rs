//! The shape of networks: no loops of bridges, paths that packets can go to their end, and homes for what keeps state.

use std::collections::{BTreeSet, VecDeque};

use weir_bpf::abi::{NET_CALLS, NET_ROUNDS};
use weir_functions::kind::Planned;
use weir_policy::Report;

use super::BALANCER;
use crate::graph::{End, Graph};
use crate::model::{Document, Network};

/// Functions that one packet can pass.
const MOST_FUNCTIONS: u32 = NET_CALLS * NET_ROUNDS;

/// What is found out about the shape of a network.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shape {
    /// Of each subnet: the same number for those that are one segment at layer 2.
    pub(crate) segments: Vec<usize>,
}

/// Sets that are joined.
struct Sets(Vec<usize>);

impl Sets {
    fn of(&mut self, mut at: usize) -> usize {
        while self.0[at] != at {
            self.0[at] = self.0[self.0[at]];
            at = self.0[at];
        }
        at
    }

    /// Whether they were apart.
    fn join(&mut self, one: usize, other: usize) -> bool {
        let (one, other) = (self.of(one), self.of(other));
        self.0[one.max(other)] = one.min(other);
        one != other
    }
}

/// The place of a subnet or function among both.
fn node(network: &Network, end: End) -> usize {
    match end {
        End::Subnet(subnet) => subnet,
        End::Side(function, _) => network.subnets.len() + function,
    }
}

/// Finds segments, and refuses links that close a loop of them.
pub(super) fn segments(network: &Network, graph: &Graph, report: &mut Report) -> Shape {
    let mut sets = Sets((0..network.subnets.len() + network.functions.len()).collect());
    for (link, wire) in network.links.iter().zip(&graph.wires) {
        let Some(wire) = wire else {
            continue;
        };
        // Routers end segments; functions of a chain hang on to what leads to them by two links.
        let is_end = |end: &End| match *end {
            End::Subnet(_) => false,
            End::Side(at, side) => {
                let function = &network.functions[at];
                function.is_router() || (function.steer.is_some() && side >= 2)
            }
        };
        let [one, other] = wire.ends.map(|end| node(network, end));
        if wire.ends.iter().any(is_end) || one == other || sets.join(one, other) {
            continue;
        }
        let text = format!(
            "the link from `{}` to `{}` closes a loop of bridges: broadcasts would loop forever",
            link.from.value, link.to.value
        );
        report
            .error(0, link.from.span, text)
            .help("leave one link of the loop out, or put a router between");
    }
    Shape {
        segments: (0..network.subnets.len()).map(|at| sets.of(at)).collect(),
    }
}

/// The longest of all shortest ways between two places is how many functions a packet may have to pass.
pub(super) fn paths(network: &Network, graph: &Graph, report: &mut Report) {
    let nodes = network.subnets.len() + network.functions.len();
    if nodes <= MOST_FUNCTIONS as usize {
        return;
    }
    let mut near: Vec<Vec<usize>> = vec![Vec::new(); nodes];
    for wire in graph.wires.iter().flatten() {
        let [one, other] = wire.ends.map(|end| node(network, end));
        near[one].push(other);
        near[other].push(one);
    }
    let mut worst = (0, 0, 0);
    for start in (0..network.subnets.len()).filter(|at| !graph.workloads_at[*at].is_empty()) {
        let mut far = vec![u32::MAX; nodes];
        far[start] = 1;
        let mut ahead = VecDeque::from([start]);
        while let Some(at) = ahead.pop_front() {
            for next in &near[at] {
                if far[*next] == u32::MAX {
                    far[*next] = far[at] + 1;
                    ahead.push_back(*next);
                }
            }
        }
        let ends = (0..network.subnets.len()).filter(|at| !graph.workloads_at[*at].is_empty());
        for end in ends.filter(|end| far[*end] != u32::MAX) {
            worst = worst.max((far[end], start, end));
        }
    }
    let (length, start, end) = worst;
    if length > MOST_FUNCTIONS {
        let [start, end] = [start, end].map(|at| &network.subnets[at].name);
        let text = format!(
            "a packet from subnet `{}` to subnet `{}` would pass {length} functions",
            start.value, end.value
        );
        report.error(0, network.name.span, text).help(format!(
            "{MOST_FUNCTIONS} are the most: {NET_ROUNDS} rounds of {NET_CALLS} calls. Put fewer functions in a row"
        ));
    }
}

/// Both directions of a flow must meet the same instance.
pub(super) fn homes(
    document: &Document,
    network: &Network,
    graph: &Graph,
    planned: &[Option<Planned>],
    report: &mut Report,
) {
    let edges: BTreeSet<usize> = graph.edge_of.iter().flatten().copied().collect();
    for (function, planned) in network.functions.iter().zip(planned) {
        let keeps_state = match function.kind.as_str() {
            BALANCER => true,
            "middlebox" => planned
                .as_ref()
                .is_some_and(|one| one.asks.secret.is_some()),
            _ => false,
        };
        if !keeps_state || function.home.is_some() || edges.len() < 2 {
            continue;
        }
        let names: Vec<&str> = edges
            .iter()
            .take(3)
            .map(|at| document.edges[*at].name.as_str())
            .collect();
        let text = format!(
            "`{}` keeps state of flows, and workloads of `{}` are on {} edges: the two directions of a flow would meet two of it",
            function.name.value,
            network.name.value,
            edges.len()
        );
        report.error(0, function.name.span, text).help(format!(
            "say where it is: `home = \"{}\"`",
            names.first().unwrap_or(&"EDGE")
        ));
    }
}
