//! From links to hops: implicit instances for guarded links and for paths that are longer than the kernel lets programs call each
//! other, then what each output and each port leads to. Pure.
//!
//! Invariant: no packet makes more than [`CALLS`] tail calls between two recirculations, loops included.

use weir_graph::Mode;

use super::error::EdgeError;
use super::plan::{EdgePlan, LinkPlan, Source, Target};

/// Tail calls that the kernel lets a packet make (MAX_TAIL_CALL_CNT). The first one is that of the entry.
pub(super) const CALLS: usize = 33;

/// Bits of `weir_chain.passes`.
const PASSES: u32 = 32;

/// A node of the graph as it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    /// A configured instance, by its place.
    Configured(usize),
    /// Counts passes over a guarded link.
    Guard {
        name: String,
        shift: u32,
        mask: u32,
        limit: u32,
    },
    /// Sends packets through the pair.
    Recirculate { name: String },
}

/// Where a packet goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Node(usize),
    Port(usize),
    /// Into the pair for recirculation.
    Away,
    Stack,
    Drop,
    Tx,
}

/// The graph as it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wiring {
    pub(super) nodes: Vec<Node>,
    /// (node, output, way).
    pub(super) hops: Vec<(usize, usize, Way)>,
    /// For each port.
    pub(super) entries: Vec<Way>,
    /// Whether there is any [`Node::Recirculate`].
    pub(super) recirculates: bool,
}

impl Wiring {
    /// All nodes, each behind those that its outputs lead to, but for loops.
    pub(super) fn targets_first(&self) -> Vec<usize> {
        let mut next = vec![Vec::new(); self.nodes.len()];
        for (node, _, way) in &self.hops {
            if let Way::Node(to) = way {
                next[*node].push(*to);
            }
        }
        let mut order = Vec::with_capacity(self.nodes.len());
        let mut seen = vec![false; self.nodes.len()];
        for start in 0..self.nodes.len() {
            // (node, how many of its targets were visited): paths may be longer than the stack is deep.
            let mut path = Vec::new();
            if !std::mem::replace(&mut seen[start], true) {
                path.push((start, 0));
            }
            while let Some((node, visited)) = path.last_mut() {
                match next[*node].get(*visited) {
                    Some(&to) => {
                        *visited += 1;
                        if !std::mem::replace(&mut seen[to], true) {
                            path.push((to, 0));
                        }
                    }
                    None => {
                        order.push(*node);
                        path.pop();
                    }
                }
            }
        }
        order
    }
}

/// Wires a plan.
pub(super) fn wire(plan: &EdgePlan) -> Result<Wiring, EdgeError> {
    let closes = |l: &LinkPlan| matches!((l.from, l.to), (Source::Out { .. }, Target::Instance(_)));
    if let Some(limit) = (plan.links.iter().filter(|l| !closes(l))).find_map(|l| l.guard) {
        return Err(EdgeError::Range {
            what: "the guard of a link that leads from a port or out of the graph,".to_owned(),
            value: limit.into(),
            range: "only links between functions close loops".to_owned(),
        });
    }
    let order = sorted(plan)?;
    let depth_from = |start: Option<usize>| longest(plan, &order, start);
    let guarded: Vec<&LinkPlan> = plan.links.iter().filter(|l| l.guard.is_some()).collect();
    let round = guarded.iter().map(|link| match link.to {
        Target::Instance(head) => {
            let limit = link.guard.unwrap_or(0) as usize;
            let body = depth_from(Some(head)).into_iter().max().unwrap_or(0);
            limit.saturating_mul(body + 1)
        }
        _ => 0,
    });
    let depth = depth_from(None);
    let straight = depth.iter().copied().max().unwrap_or(0);
    let total = round.fold(straight, usize::saturating_add);
    // One call more is that of the guard which ends the walk.
    let loops_recirculate = !guarded.is_empty() && total >= CALLS;
    let mut wiring = Wiring {
        nodes: (0..plan.instances.len()).map(Node::Configured).collect(),
        entries: vec![Way::Stack; plan.ports.len()],
        ..Wiring::default()
    };
    // Calls a packet has made at most when the instance runs, since it came in or was recirculated.
    let mut calls = vec![0; plan.instances.len()];
    for link in &plan.links {
        if let (Source::Port(_), Target::Instance(first)) = (link.from, link.to) {
            calls[first] = 1;
        }
    }
    // What comes back through the pair begins anew, also where no port's packets come by in front of it.
    for link in guarded.iter().filter(|_| loops_recirculate) {
        if let Target::Instance(head) = link.to {
            calls[head] = 1;
        }
    }
    // Calls that must be left for an instance: for what follows it or for going away, and for a guard before that.
    let needs = |at: usize| {
        let leaves = plan.links.iter().filter(move |l| {
            matches!(l.from, Source::Out { instance, .. } if instance == at)
                && matches!(l.to, Target::Instance(_))
        });
        let one = |l: &LinkPlan| 1 + usize::from(l.guard.is_some() && loops_recirculate);
        leaves.map(one).max().unwrap_or(0)
    };
    let mut away_to: Vec<Option<usize>> = vec![None; plan.instances.len()];
    let mut guards = Guards::new(&guarded)?;
    // Every link into an instance is seen before those out of it, guarded ones apart, whose packets come back after fewer calls.
    let from_ports = plan
        .links
        .iter()
        .filter(|l| matches!(l.from, Source::Port(_)));
    let from_instances = order.iter().flat_map(|&at| {
        let leaves =
            move |l: &&LinkPlan| matches!(l.from, Source::Out { instance, .. } if instance == at);
        plan.links.iter().filter(leaves)
    });
    for link in from_ports.chain(from_instances) {
        let mut way = match link.to {
            Target::Instance(to) => Way::Node(to),
            Target::Port(port) => Way::Port(port),
            Target::Stack => Way::Stack,
            Target::Drop => Way::Drop,
            Target::Tx => Way::Tx,
        };
        if let (Source::Out { instance: from, .. }, Target::Instance(to)) = (link.from, link.to) {
            let must = match link.guard {
                Some(_) => loops_recirculate,
                None => calls[from] + 1 + needs(to) > CALLS,
            };
            if must {
                let at = *away_to[to].get_or_insert_with(|| {
                    let name = format!("recirculate to {}", plan.instances[to].name);
                    wiring.nodes.push(Node::Recirculate { name });
                    let at = wiring.nodes.len() - 1;
                    wiring.hops.push((at, 0, Way::Node(to)));
                    wiring.hops.push((at, 1, Way::Away));
                    at
                });
                wiring.recirculates = true;
                calls[to] = calls[to].max(1);
                way = Way::Node(at);
            } else if link.guard.is_none() {
                calls[to] = calls[to].max(calls[from] + 1);
            }
            if let Some(limit) = link.guard {
                wiring.nodes.push(guards.next(plan, link, limit));
                let at = wiring.nodes.len() - 1;
                wiring.hops.push((at, 0, way));
                way = Way::Node(at);
            }
        }
        match link.from {
            Source::Port(port) => wiring.entries[port] = way,
            Source::Out { instance, out } => wiring.hops.push((instance, out, way)),
        }
    }
    // An instance whose default output leads nowhere gives packets to the stack.
    for instance in 0..plan.instances.len() {
        if !wiring
            .hops
            .iter()
            .any(|(n, out, _)| (*n, *out) == (instance, 0))
        {
            wiring.hops.push((instance, 0, Way::Stack));
        }
    }
    if wiring.recirculates {
        refuse_generic(plan, &wiring)?;
    }
    Ok(wiring)
}

/// Instances in an order in which every link without guard leads forward.
fn sorted(plan: &EdgePlan) -> Result<Vec<usize>, EdgeError> {
    let edges: Vec<(usize, usize)> = forward(plan).collect();
    let mut waits = vec![0usize; plan.instances.len()];
    for (_, to) in &edges {
        waits[*to] += 1;
    }
    let mut order: Vec<usize> = (0..waits.len()).filter(|i| waits[*i] == 0).collect();
    let mut at = 0;
    while let Some(&from) = order.get(at) {
        at += 1;
        for (_, to) in edges.iter().filter(|(f, _)| *f == from) {
            waits[*to] -= 1;
            if waits[*to] == 0 {
                order.push(*to);
            }
        }
    }
    match (0..waits.len()).find(|i| waits[*i] > 0) {
        None => Ok(order),
        Some(start) => Err(EdgeError::Loop {
            path: round(plan, &edges, &waits, start),
        }),
    }
}

/// The names on one loop that can be reached against the links from an instance which waits for ever.
fn round(plan: &EdgePlan, edges: &[(usize, usize)], waits: &[usize], start: usize) -> String {
    let mut path = vec![start];
    loop {
        let here = path[path.len() - 1];
        let before = edges
            .iter()
            .find(|(from, to)| *to == here && waits[*from] > 0);
        let Some((from, _)) = before else { break };
        if let Some(at) = path.iter().position(|seen| seen == from) {
            path.drain(..at);
            path.push(*from);
            break;
        }
        path.push(*from);
    }
    let names: Vec<&str> = path
        .iter()
        .rev()
        .map(|i| plan.instances[*i].name.as_str())
        .collect();
    names.join(" -> ")
}

fn forward(plan: &EdgePlan) -> impl Iterator<Item = (usize, usize)> {
    plan.links.iter().filter_map(|l| match (l.from, l.to) {
        (Source::Out { instance, .. }, Target::Instance(to)) if l.guard.is_none() => {
            Some((instance, to))
        }
        _ => None,
    })
}

/// The most instances on a way to each, itself included, from the ports or from one instance; 0: none leads there.
fn longest(plan: &EdgePlan, order: &[usize], start: Option<usize>) -> Vec<usize> {
    let mut depth = vec![0; plan.instances.len()];
    match start {
        Some(start) => depth[start] = 1,
        None => {
            for link in &plan.links {
                if let (Source::Port(_), Target::Instance(first)) = (link.from, link.to) {
                    depth[first] = 1;
                }
            }
        }
    }
    for &from in order {
        if depth[from] == 0 {
            continue;
        }
        for (_, to) in forward(plan).filter(|(f, _)| *f == from) {
            depth[to] = depth[to].max(depth[from] + 1);
        }
    }
    depth
}

/// Generic XDP turns a redirected frame into a socket buffer, and what lies in front of it is lost.
fn refuse_generic(plan: &EdgePlan, wiring: &Wiring) -> Result<(), EdgeError> {
    for link in &plan.links {
        let (Source::Port(port), Target::Instance(first)) = (link.from, link.to) else {
            continue;
        };
        if plan.ports[port].mode != Mode::Generic {
            continue;
        }
        let reached = reached(plan, first);
        let sends = |node: usize| matches!(wiring.nodes[node], Node::Recirculate { .. });
        let recirculates = wiring.hops.iter().any(|(node, _, way)| {
            reached.get(*node).is_some_and(|is| *is)
                && match way {
                    Way::Node(to) if sends(*to) => true,
                    Way::Node(to) if *to >= reached.len() => wiring
                        .hops
                        .iter()
                        .any(|(n, _, w)| n == to && matches!(w, Way::Node(next) if sends(*next))),
                    _ => false,
                }
        });
        if recirculates {
            return Err(EdgeError::LongGeneric {
                port: plan.ports[port].name.clone(),
                most: CALLS,
            });
        }
    }
    Ok(())
}

/// Instances that packets can come to from one of them, itself included, guarded links and all.
fn reached(plan: &EdgePlan, first: usize) -> Vec<bool> {
    let mut reached = vec![false; plan.instances.len()];
    let mut open = vec![first];
    while let Some(at) = open.pop() {
        if std::mem::replace(&mut reached[at], true) {
            continue;
        }
        for link in &plan.links {
            if let (Source::Out { instance, .. }, Target::Instance(to)) = (link.from, link.to)
                && instance == at
            {
                open.push(to);
            }
        }
    }
    reached
}

/// For each port and each instance that its packets can come to: (place of the port, place of the instance).
pub(super) fn meetings(plan: &EdgePlan) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for link in &plan.links {
        if let (Source::Port(port), Target::Instance(first)) = (link.from, link.to) {
            let here = reached(plan, first).into_iter().enumerate();
            found.extend(here.filter(|(_, is)| *is).map(|(at, _)| (port, at)));
        }
    }
    found
}

/// Hands out the bits of a packet's word of passes.
struct Guards {
    bits: u32,
    next: u32,
}

impl Guards {
    fn new(links: &[&LinkPlan]) -> Result<Guards, EdgeError> {
        let most = links.iter().filter_map(|l| l.guard).max().unwrap_or(0);
        let bits = (u32::BITS - most.leading_zeros()).max(1);
        if bits as usize * links.len() > PASSES as usize {
            return Err(EdgeError::Guards {
                links: links.len(),
                most,
            });
        }
        Ok(Guards { bits, next: 0 })
    }

    fn next(&mut self, plan: &EdgePlan, link: &LinkPlan, limit: u32) -> Node {
        let from = match link.from {
            Source::Port(port) => plan.ports[port].name.clone(),
            Source::Out { instance, out: 0 } => plan.instances[instance].name.clone(),
            Source::Out { instance, out } => {
                let instance = &plan.instances[instance];
                let named = instance.planned.outs.get(out).cloned();
                let out = named.unwrap_or_else(|| out.to_string());
                format!("{}.{out}", instance.name)
            }
        };
        let shift = self.next;
        self.next += self.bits;
        Node::Guard {
            name: format!("guard behind {from}"),
            shift,
            mask: u32::MAX >> (u32::BITS - self.bits),
            limit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::{EdgeInstance, PortPlan};
    use super::*;
    use weir_functions::kind::Planned;

    /// A port in front of so many functions in a row; the last leads to the stack.
    fn chain(functions: usize) -> EdgePlan {
        let mut plan = EdgePlan {
            name: "t".to_owned(),
            ports: vec![PortPlan {
                name: "in".to_owned(),
                device: "d".to_owned(),
                number: 1,
                mode: Mode::Native,
                checksums: None,
                metadata: false,
            }],
            ..EdgePlan::default()
        };
        for i in 0..functions {
            plan.instances.push(EdgeInstance {
                name: format!("f{i}"),
                planned: Planned::embedded("empty"),
                maps: Vec::new(),
                fresh: false,
            });
        }
        let from = |i: usize| match i {
            0 => Source::Port(0),
            _ => Source::Out {
                instance: i - 1,
                out: 0,
            },
        };
        plan.links = (0..functions)
            .map(|i| LinkPlan {
                from: from(i),
                to: Target::Instance(i),
                guard: None,
            })
            .collect();
        plan
    }

    fn close(plan: &mut EdgePlan, from: usize, to: usize, guard: Option<u32>) {
        plan.links.push(LinkPlan {
            from: Source::Out {
                instance: from,
                out: 1,
            },
            to: Target::Instance(to),
            guard,
        });
    }

    /// Calls of the longest stretch, by walking: at every guard the packet goes round as often as it may.
    fn most_calls(wiring: &Wiring, entry: Way) -> usize {
        fn walk(wiring: &Wiring, way: Way, calls: usize, passes: &mut Vec<u32>) -> usize {
            let Way::Node(node) = way else { return calls };
            let calls = calls + 1;
            let next = |wiring: &Wiring, calls, passes: &mut Vec<u32>| {
                let ways: Vec<Way> = wiring
                    .hops
                    .iter()
                    .filter(|(n, _, _)| *n == node)
                    .map(|(_, _, w)| *w)
                    .collect();
                ways.into_iter()
                    .map(|w| walk(wiring, w, calls, passes))
                    .max()
                    .unwrap_or(calls)
            };
            match &wiring.nodes[node] {
                Node::Configured(_) => next(wiring, calls, passes),
                Node::Guard { limit, .. } => {
                    if passes[node] >= *limit {
                        return calls;
                    }
                    passes[node] += 1;
                    let most = next(wiring, calls, passes);
                    passes[node] -= 1;
                    most
                }
                // What comes back starts from nothing.
                Node::Recirculate { .. } => calls.max(next(wiring, 0, passes)),
            }
        }
        walk(wiring, entry, 0, &mut vec![0; wiring.nodes.len()])
    }

    #[test]
    fn chains_up_to_the_kernels_limit_stay_whole_and_longer_ones_are_split() {
        for functions in [1, 5, 32, 33] {
            let wiring = wire(&chain(functions)).expect("wired");
            assert!(!wiring.recirculates, "{functions}");
            assert_eq!(most_calls(&wiring, wiring.entries[0]), functions);
        }
        for (functions, splits) in [(34, 1), (40, 1), (64, 1), (65, 1), (66, 2), (200, 6)] {
            let wiring = wire(&chain(functions)).expect("wired");
            assert_eq!(wiring.nodes.len() - functions, splits, "{functions}");
            assert!(most_calls(&wiring, wiring.entries[0]) <= CALLS);
        }
    }

    #[test]
    fn a_loop_needs_a_guard() {
        let mut plan = chain(4);
        close(&mut plan, 2, 1, None);
        let e = wire(&plan).expect_err("a loop");
        assert!(
            e.to_string().contains("f1 -> f2 -> f1") || e.to_string().contains("f2 -> f1 -> f2"),
            "{e}"
        );
        let mut plan = chain(4);
        close(&mut plan, 2, 1, Some(3));
        let wiring = wire(&plan).expect("guarded");
        assert!(!wiring.recirculates);
        // f0, then f1 f2 and the guard three times, then f1 f2 f3.
        assert_eq!(most_calls(&wiring, wiring.entries[0]), 1 + 3 * 3 + 3);
    }

    #[test]
    fn a_loop_that_may_be_long_recirculates() {
        let mut plan = chain(10);
        close(&mut plan, 8, 1, Some(5));
        let wiring = wire(&plan).expect("guarded");
        assert!(wiring.recirculates);
        assert!(most_calls(&wiring, wiring.entries[0]) <= CALLS);
        plan.ports[0].mode = Mode::Generic;
        let e = wire(&plan).expect_err("generic");
        assert!(e.to_string().contains("generic"), "{e}");
    }

    #[test]
    fn the_guard_that_ends_a_walk_is_called_too() {
        // 8 functions, then 5 times the guard and 4 functions are 33 calls; the guard's last one would be the 34th.
        let mut plan = chain(8);
        close(&mut plan, 7, 4, Some(5));
        let wiring = wire(&plan).expect("guarded");
        assert!(most_calls(&wiring, wiring.entries[0]) <= CALLS);
    }

    #[test]
    fn a_loop_that_leads_behind_where_packets_come_in_begins_anew() {
        let mut plan = chain(100);
        plan.links[0].to = Target::Instance(50);
        close(&mut plan, 90, 10, Some(1));
        let wiring = wire(&plan).expect("guarded");
        assert!(most_calls(&wiring, wiring.entries[0]) <= CALLS);
    }

    #[test]
    fn guards_share_the_bits_of_a_packet() {
        let mut plan = chain(6);
        close(&mut plan, 2, 1, Some(200));
        close(&mut plan, 4, 3, Some(255));
        let wiring = wire(&plan).expect("16 bits");
        let bits: Vec<(u32, u32)> = wiring
            .nodes
            .iter()
            .filter_map(|n| match n {
                Node::Guard { shift, mask, .. } => Some((*shift, *mask)),
                _ => None,
            })
            .collect();
        assert_eq!(bits, [(0, 255), (8, 255)]);
        close(&mut plan, 5, 0, Some(1 << 20));
        let e = wire(&plan).expect_err("63 bits");
        assert!(e.to_string().contains("32 bits"), "{e}");
    }

    #[test]
    fn a_generic_port_in_front_of_a_long_path_is_refused() {
        let mut plan = chain(40);
        plan.ports[0].mode = Mode::Generic;
        assert!(matches!(wire(&plan), Err(EdgeError::LongGeneric { .. })));
        let mut plan = chain(33);
        plan.ports[0].mode = Mode::Generic;
        wire(&plan).expect("short enough");
    }
}
