//! The walks that packets can take: loops, how many functions one packet meets, and where it has to be recirculated.
//!
//! The kernel makes 33 tail calls for one packet and run ([`MAX_CALLS`]); each function, guard and recirculation is one of them.
//! Packets are recirculated as late as it must be on straight paths, and at every guarded link if loops make the longest walk too long. What one packet meets at most is then found by following all walks,
//! with the passes over guarded links they have left.

use std::collections::{BTreeMap, BTreeSet};

use crate::edge::Target;
use crate::model::{Link, Source};

/// Functions in a row that the kernel calls for one packet.
pub const MAX_CALLS: u32 = 33;

/// Recirculations of one packet that are planned.
pub const MAX_RECIRCULATIONS: u32 = 16;

/// Bits that all guarded links share in a packet's word of passes.
pub const GUARD_BITS: u32 = 32;

/// Combinations of passes over guarded links that are followed.
const MAX_COMBINATIONS: usize = 1 << 14;

/// A link between two functions, by their places in the list of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// Which guard it passes, if any.
    pub(crate) guard: Option<usize>,
}

/// The functions of an edge and the links between them. Links that lead out of the graph are no steps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Graph {
    /// Number of functions.
    pub(crate) nodes: usize,
    /// Functions that ports lead to.
    pub(crate) entries: Vec<usize>,
    pub(crate) steps: Vec<Step>,
    /// How often a packet may take each guarded link.
    pub(crate) guards: Vec<u32>,
    /// Which link each step is, by place in the list of links.
    pub(crate) links: Vec<usize>,
}

/// What the walks over a graph need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Walks {
    /// Steps on which packets are recirculated, by place in [`Graph::steps`].
    pub(crate) cut: BTreeSet<usize>,
    /// Functions of the longest walk, in order, guards left out.
    pub(crate) longest: Vec<usize>,
    /// Most recirculations of one packet.
    pub(crate) recirculations: u32,
}

impl Graph {
    /// The graph of so many functions and the links of their outputs and of ports.
    pub(crate) fn of(nodes: usize, links: &[Link]) -> Graph {
        let mut graph = Graph {
            nodes,
            ..Graph::default()
        };
        for (at, link) in links.iter().enumerate() {
            let Target::Instance(to) = link.to else {
                continue;
            };
            let Source::Out { instance: from, .. } = link.from else {
                graph.entries.push(to);
                continue;
            };
            let guard = link.guard.map(|limit| {
                graph.guards.push(limit);
                graph.guards.len() - 1
            });
            graph.steps.push(Step { from, to, guard });
            graph.links.push(at);
        }
        graph.entries.sort_unstable();
        graph.entries.dedup();
        graph
    }

    /// Links with a guard that close no loop, by their places.
    pub(crate) fn needless_guards(&self, links: &[Link]) -> Vec<usize> {
        let closes_loop = |link: usize| {
            let step = self.links.iter().position(|at| *at == link);
            step.is_some_and(|step| self.closes_loop(step))
        };
        let guarded = (0..links.len()).filter(|&at| links[at].guard.is_some());
        guarded.filter(|&at| !closes_loop(at)).collect()
    }

    /// The highest limit of a guarded link; 0: there is none.
    pub(crate) fn highest_guard(&self) -> u32 {
        self.guards.iter().copied().max().unwrap_or(0)
    }

    /// Bits of a packet's word of passes that each guarded link has.
    pub(crate) fn bits_of_a_guard(&self) -> u32 {
        (u32::BITS - self.highest_guard().leading_zeros()).max(1)
    }

    /// Bits that all guarded links need.
    pub(crate) fn guard_bits(&self) -> u32 {
        (self.guards.len() as u32).saturating_mul(self.bits_of_a_guard())
    }

    /// Loops that no guard ends, each as the steps that make it, by place in [`Graph::steps`]. One for each step that closes one.
    pub(crate) fn endless_loops(&self) -> Vec<Vec<usize>> {
        let from = self.free_steps();
        let mut state = vec![Visit::New; self.nodes];
        let mut loops = Vec::new();
        for start in 0..self.nodes {
            if state[start] != Visit::New {
                continue;
            }
            // The way from `start` to where we are: (node, next of its steps).
            let mut way = vec![(start, 0)];
            let mut taken: Vec<usize> = Vec::new();
            state[start] = Visit::Open;
            while let Some((node, next)) = way.last_mut() {
                let Some(&step) = from[*node].get(*next) else {
                    state[*node] = Visit::Done;
                    way.pop();
                    taken.pop();
                    continue;
                };
                *next += 1;
                let to = self.steps[step].to;
                match state[to] {
                    Visit::Done => {}
                    Visit::New => {
                        state[to] = Visit::Open;
                        way.push((to, 0));
                        taken.push(step);
                    }
                    Visit::Open => {
                        let first = way.iter().position(|(on, _)| *on == to).unwrap_or(0);
                        loops.push(taken[first..].iter().copied().chain([step]).collect());
                    }
                }
            }
        }
        loops
    }

    /// Whether a step is part of a loop.
    pub(crate) fn closes_loop(&self, step: usize) -> bool {
        let Step { from, to, .. } = self.steps[step];
        self.reachable([to])[from]
    }

    /// Functions that packets of ports can come to.
    pub(crate) fn met(&self) -> Vec<bool> {
        self.reachable(self.entries.iter().copied())
    }

    /// Functions that packets can come to from one of them, itself included.
    pub(crate) fn reachable(&self, starts: impl IntoIterator<Item = usize>) -> Vec<bool> {
        let from = self.steps_by_node(|_| true);
        let mut met = vec![false; self.nodes];
        let mut open: Vec<usize> = starts.into_iter().collect();
        while let Some(node) = open.pop() {
            if !std::mem::replace(&mut met[node], true) {
                open.extend(from[node].iter().map(|&at| self.steps[at].to));
            }
        }
        met
    }

    /// Follows all walks. There must be no endless loop. `None`: there are too many combinations of passes over guarded links.
    pub(crate) fn walks(&self) -> Option<Walks> {
        let order = self.order();
        let cut = self.cut(&order);
        self.follow(&order, cut)
    }

    /// Steps on which packets must be recirculated.
    fn cut(&self, order: &[usize]) -> BTreeSet<usize> {
        let straight = self
            .depths(order, &self.entries)
            .into_iter()
            .max()
            .unwrap_or(0);
        let round = self.steps.iter().filter_map(|step| {
            let limit = self.guards[step.guard?];
            let body = self
                .depths(order, &[step.to])
                .into_iter()
                .max()
                .unwrap_or(0);
            Some(limit.saturating_mul(body + 1))
        });
        let total = round.fold(straight, u32::saturating_add);
        // One call more is that of the guard which ends the walk.
        let loops_recirculate = !self.guards.is_empty() && total >= MAX_CALLS;
        let from = self.steps_by_node(|_| true);
        // Calls that must be left for a function: for what follows it or for going away, and for a guard before that.
        let needs = |node: usize| {
            let one =
                |&at: &usize| 1 + u32::from(self.steps[at].guard.is_some() && loops_recirculate);
            from[node].iter().map(one).max().unwrap_or(0)
        };
        let mut calls = vec![0; self.nodes];
        for &entry in &self.entries {
            calls[entry] = 1;
        }
        // What comes back begins anew, also where no port's packets come by in front of it.
        for step in self
            .steps
            .iter()
            .filter(|step| step.guard.is_some() && loops_recirculate)
        {
            calls[step.to] = 1;
        }
        let mut cut = BTreeSet::new();
        for &node in order {
            for &at in &from[node] {
                let Step { to, guard, .. } = self.steps[at];
                let must = match guard {
                    Some(_) => loops_recirculate,
                    None => calls[node] + 1 + needs(to) > MAX_CALLS,
                };
                if must {
                    cut.insert(at);
                    calls[to] = calls[to].max(1);
                } else if guard.is_none() {
                    calls[to] = calls[to].max(calls[node] + 1);
                }
            }
        }
        cut
    }

    /// Functions on the longest way to each over unguarded steps, itself included; 0: none leads there.
    fn depths(&self, order: &[usize], starts: &[usize]) -> Vec<u32> {
        let from = self.free_steps();
        let mut depths = vec![0; self.nodes];
        for &start in starts {
            depths[start] = 1;
        }
        for &node in order.iter() {
            if depths[node] == 0 {
                continue;
            }
            for &at in &from[node] {
                let to = self.steps[at].to;
                depths[to] = depths[to].max(depths[node] + 1);
            }
        }
        depths
    }

    fn follow(&self, order: &[usize], cut: BTreeSet<usize>) -> Option<Walks> {
        let from = self.steps_by_node(|_| true);
        let places = Places::new(&self.guards)?;
        let mut levels: BTreeMap<Passes, Vec<Option<Seen>>> = BTreeMap::new();
        let none = || vec![None; self.nodes];
        let first = levels.entry(Passes::default()).or_insert_with(none);
        for &entry in &self.entries {
            first[entry] = Some(Seen::START);
        }
        let mut reached: BTreeMap<Passes, Vec<Option<Seen>>> = BTreeMap::new();
        let mut best: Option<(u32, Passes, usize)> = None;
        let mut recirculations = 0;
        while let Some((passes, mut nodes)) = levels.pop_first() {
            for &node in order {
                let Some(seen) = nodes[node] else {
                    continue;
                };
                recirculations = recirculations.max(seen.recirculations);
                if best.is_none_or(|(functions, ..)| seen.functions > functions) {
                    best = Some((seen.functions, passes, node));
                }
                for &at in &from[node] {
                    let step = self.steps[at];
                    let Some(next) = places.over(passes, step.guard) else {
                        continue;
                    };
                    let behind = seen.step(cut.contains(&at), (passes, node));
                    let there = match next == passes {
                        true => &mut nodes,
                        false => levels.entry(next).or_insert_with(none),
                    };
                    let worst = there[step.to].map_or(behind, |other| other.worse(behind));
                    there[step.to] = Some(worst);
                }
            }
            reached.insert(passes, nodes);
            if reached.len() + levels.len() > MAX_COMBINATIONS {
                return None;
            }
        }
        let mut longest = Vec::new();
        let mut at = best.map(|(_, passes, node)| (passes, node));
        while let Some((passes, node)) = at {
            longest.push(node);
            at = reached[&passes][node].and_then(|seen| seen.before);
        }
        longest.reverse();
        Some(Walks {
            cut,
            longest,
            recirculations,
        })
    }

    /// Functions such that unguarded steps lead forward only; those that were ready first come first.
    fn order(&self) -> Vec<usize> {
        let from = self.free_steps();
        let mut into = vec![0; self.nodes];
        for step in self.steps.iter().filter(|step| step.guard.is_none()) {
            into[step.to] += 1;
        }
        let mut order: Vec<usize> = (0..self.nodes).filter(|&node| into[node] == 0).collect();
        let mut at = 0;
        while let Some(&node) = order.get(at) {
            at += 1;
            for &step in &from[node] {
                let to = self.steps[step].to;
                into[to] -= 1;
                if into[to] == 0 {
                    order.push(to);
                }
            }
        }
        order
    }

    fn free_steps(&self) -> Vec<Vec<usize>> {
        self.steps_by_node(|at| self.steps[*at].guard.is_none())
    }

    fn steps_by_node(&self, wanted: impl Fn(&usize) -> bool) -> Vec<Vec<usize>> {
        let mut from = vec![Vec::new(); self.nodes];
        for at in (0..self.steps.len()).filter(wanted) {
            from[self.steps[at].from].push(at);
        }
        from
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Visit {
    New,
    Open,
    Done,
}

/// How often a walk took each guarded link, as one number with a place for each. Ordered so that a walk only comes to later ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Passes {
    total: u64,
    each: u64,
}

/// The value of each guard's place in [`Passes::each`], and the number of its values.
struct Places(Vec<(u64, u64)>);

impl Places {
    fn new(guards: &[u32]) -> Option<Places> {
        let mut value = 1u64;
        let mut places = Vec::with_capacity(guards.len());
        for &guard in guards {
            let values = u64::from(guard) + 1;
            places.push((value, values));
            value = value.checked_mul(values)?;
        }
        Some(Places(places))
    }

    /// After one step more; `None`: the guard lets nobody pass any more.
    fn over(&self, passes: Passes, guard: Option<usize>) -> Option<Passes> {
        let Some(guard) = guard else {
            return Some(passes);
        };
        let (value, values) = self.0[guard];
        let used = passes.each / value % values;
        (used + 1 < values).then(|| Passes {
            total: passes.total + 1,
            each: passes.each + value,
        })
    }
}

/// The worst walk to a function.
#[derive(Clone, Copy, Debug)]
struct Seen {
    functions: u32,
    recirculations: u32,
    /// Where the walk of most functions came from.
    before: Option<(Passes, usize)>,
}

impl Seen {
    const START: Seen = Seen {
        functions: 1,
        recirculations: 0,
        before: None,
    };

    fn step(self, is_cut: bool, from: (Passes, usize)) -> Seen {
        Seen {
            functions: self.functions + 1,
            recirculations: self.recirculations + u32::from(is_cut),
            before: Some(from),
        }
    }

    /// The worst of both in each respect.
    fn worse(self, other: Seen) -> Seen {
        let longer = if other.functions > self.functions {
            other
        } else {
            self
        };
        Seen {
            recirculations: self.recirculations.max(other.recirculations),
            ..longer
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(nodes: usize) -> Graph {
        let step = |from| Step {
            from,
            to: from + 1,
            guard: None,
        };
        Graph {
            nodes,
            entries: vec![0],
            steps: (0..nodes - 1).map(step).collect(),
            ..Graph::default()
        }
    }

    #[test]
    fn a_chain_is_cut_where_the_calls_end() {
        for (functions, cuts) in [
            (1, &[][..]),
            (33, &[]),
            (34, &[31]),
            (40, &[31]),
            (65, &[31]),
            (66, &[31, 63]),
        ] {
            let walks = chain(functions).walks().expect("no guards");
            assert_eq!(walks.cut, cuts.iter().copied().collect(), "{functions}");
            assert_eq!(walks.longest.len(), functions);
            assert_eq!(walks.recirculations as usize, cuts.len());
        }
    }

    #[test]
    fn a_guarded_loop_counts_its_passes() {
        let mut graph = chain(10);
        graph.guards = vec![1];
        graph.steps.push(Step {
            from: 9,
            to: 0,
            guard: Some(0),
        });
        assert!(graph.endless_loops().is_empty());
        assert!(graph.closes_loop(9));
        let walks = graph.walks().expect("few combinations");
        assert_eq!((walks.longest.len(), walks.cut.len()), (20, 0));
        graph.guards = vec![3];
        let walks = graph.walks().expect("few combinations");
        assert_eq!(walks.longest.len(), 40);
        assert_eq!((walks.cut, walks.recirculations), ([9].into(), 3));
        graph.steps[9].guard = None;
        assert_eq!(graph.endless_loops(), [(0..10).collect::<Vec<_>>()]);
    }

    #[test]
    fn branches_that_meet_are_cut_where_the_longer_one_needs_it() {
        // 0..=33 in a row, 0 -> 33 directly, too.
        let mut graph = chain(34);
        graph.steps.push(Step {
            from: 0,
            to: 33,
            guard: None,
        });
        let walks = graph.walks().expect("no guards");
        assert_eq!(walks.cut, [31].into());
    }
}
