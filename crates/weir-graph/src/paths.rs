//! The walks that packets can take: loops, how many functions one packet meets, and where it has to be recirculated.
//!
//! The kernel makes 33 tail calls for one packet and run. A stretch of [`MAX_FUNCTIONS`] functions is 32 of them; the 33rd is for the
//! function that recirculates. Guarded links make loops finite: a walk is followed with the passes it has left, so that what is
//! computed is the longest walk there is, not an estimate.

use std::collections::{BTreeMap, BTreeSet};

use crate::edge::GUARD_BITS;

/// Functions a packet may meet without being recirculated.
pub const MAX_FUNCTIONS: u32 = 32;

/// Recirculations of one packet.
pub const MAX_RECIRCULATIONS: u32 = 8;

/// Guarded links of an edge: each has its bits of one word.
pub(crate) const MAX_GUARDS: usize = (u32::BITS / GUARD_BITS) as usize;

/// Combinations of passes over guarded links that are followed.
const MAX_COMBINATIONS: usize = 1 << 12;

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
}

/// What the walks over a graph need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Walks {
    /// Steps in front of which packets are recirculated, by place in [`Graph::steps`].
    pub(crate) cut: BTreeSet<usize>,
    /// Functions of the longest walk, in order.
    pub(crate) longest: Vec<usize>,
    /// Most recirculations of one packet.
    pub(crate) recirculations: u32,
}

impl Graph {
    /// Loops that no guard ends, each as the steps that make it, by place in [`Graph::steps`]. One for each step that closes one.
    pub(crate) fn endless_loops(&self) -> Vec<Vec<usize>> {
        let free = |at: &usize| self.steps[*at].guard.is_none();
        let from = self.steps_by_node(free);
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

    /// Follows all walks. There must be no endless loop. `None`: there are too many combinations of passes over guarded links.
    pub(crate) fn walks(&self) -> Option<Walks> {
        let order = self.order();
        let from = self.steps_by_node(|_| true);
        let mut cut = BTreeSet::new();
        loop {
            let before = cut.len();
            let walks = self.follow(&order, &from, &mut cut)?;
            // Without guards, whatever led to a cut was final when it was made.
            if cut.len() == before || self.guards.is_empty() {
                return Some(walks);
            }
        }
    }

    fn follow(
        &self,
        order: &[usize],
        from: &[Vec<usize>],
        cut: &mut BTreeSet<usize>,
    ) -> Option<Walks> {
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
                    let Some(next) = passes.over(step.guard, &self.guards) else {
                        continue;
                    };
                    if seen.stretch >= MAX_FUNCTIONS {
                        cut.insert(at);
                    }
                    let behind = seen.step(cut.contains(&at), (passes, node));
                    let there = match next == passes {
                        true => &mut nodes,
                        false => levels.entry(next).or_insert_with(none),
                    };
                    there[step.to] =
                        Some(there[step.to].map_or(behind, |other| other.worse(behind)));
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
            cut: cut.clone(),
            longest,
            recirculations,
        })
    }

    /// Functions such that unguarded steps lead forward only.
    fn order(&self) -> Vec<usize> {
        let free = |at: &usize| self.steps[*at].guard.is_none();
        let from = self.steps_by_node(free);
        let mut into = vec![0; self.nodes];
        for step in self.steps.iter().filter(|step| step.guard.is_none()) {
            into[step.to] += 1;
        }
        let mut ready: BTreeSet<usize> = (0..self.nodes).filter(|&node| into[node] == 0).collect();
        let mut order = Vec::with_capacity(self.nodes);
        while let Some(node) = ready.pop_first() {
            order.push(node);
            for &at in &from[node] {
                let to = self.steps[at].to;
                into[to] -= 1;
                if into[to] == 0 {
                    ready.insert(to);
                }
            }
        }
        order
    }

    fn reachable(&self, starts: impl IntoIterator<Item = usize>) -> Vec<bool> {
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

/// How often a walk took each guarded link. Ordered so that a walk only comes to later ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Passes {
    total: u32,
    each: u32,
}

impl Passes {
    /// After one step more; `None`: the guard lets nobody pass any more.
    fn over(self, guard: Option<usize>, guards: &[u32]) -> Option<Passes> {
        let Some(guard) = guard else {
            return Some(self);
        };
        let shift = guard as u32 * GUARD_BITS;
        let used = self.each >> shift & ((1 << GUARD_BITS) - 1);
        (used < guards[guard]).then(|| Passes {
            total: self.total + 1,
            each: self.each + (1 << shift),
        })
    }
}

/// The worst walk to a function.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// Functions since it came in or was recirculated, this one included.
    stretch: u32,
    /// Functions in all.
    functions: u32,
    recirculations: u32,
    /// Where the walk of most functions came from.
    before: Option<(Passes, usize)>,
}

impl Seen {
    const START: Seen = Seen {
        stretch: 1,
        functions: 1,
        recirculations: 0,
        before: None,
    };

    fn step(self, is_cut: bool, from: (Passes, usize)) -> Seen {
        Seen {
            stretch: if is_cut { 1 } else { self.stretch + 1 },
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
            stretch: self.stretch.max(other.stretch),
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
            guards: Vec::new(),
        }
    }

    #[test]
    fn a_chain_is_cut_after_every_32_functions() {
        for (functions, cuts) in [
            (1, &[][..]),
            (32, &[]),
            (33, &[31]),
            (40, &[31]),
            (64, &[31]),
            (65, &[31, 63]),
        ] {
            let walks = chain(functions).walks().expect("no guards");
            assert_eq!(walks.cut, cuts.iter().copied().collect(), "{functions}");
            assert_eq!(walks.longest.len(), functions);
            assert_eq!(walks.recirculations as usize, cuts.len());
        }
    }

    #[test]
    fn a_guarded_loop_counts_its_passes() {
        // Ten functions round and round, three times more: 40, with the guard as the eleventh 43.
        let mut graph = chain(11);
        graph.guards = vec![3];
        graph.steps.push(Step {
            from: 10,
            to: 0,
            guard: Some(0),
        });
        assert!(graph.endless_loops().is_empty());
        assert!(graph.closes_loop(10));
        let walks = graph.walks().expect("few combinations");
        assert_eq!(walks.longest.len(), 44);
        assert!(!walks.cut.is_empty());
        graph.steps[10].guard = None;
        assert_eq!(graph.endless_loops(), [(0..11).collect::<Vec<_>>()]);
    }

    #[test]
    fn branches_that_meet_are_cut_where_the_longer_one_needs_it() {
        // 0..=31 in a row, 0 -> 32 directly, too.
        let mut graph = chain(33);
        graph.steps.push(Step {
            from: 0,
            to: 32,
            guard: None,
        });
        let walks = graph.walks().expect("no guards");
        assert_eq!(walks.cut, [31].into());
    }
}
