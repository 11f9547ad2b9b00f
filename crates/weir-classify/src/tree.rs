//! Large buckets: rules with the same key that differ in ranges of one field. A segment tree over the bounds of the ranges.
//!
//! Each range lies in the O(log n) nodes that make it up, so the lists take n log n entries at most, whatever overlaps; a
//! search meets one node a level, and a rule in one of them at most. Rules without a range on the field lie at the root.

use weir_bpf::abi::{Cond, Node, cond_op};

use crate::model::intervals;
use crate::{BUCKET_KEYS, RuleSet};

/// A condition in more pieces than this is not split; the rule lies at the root.
const MAX_PIECES: usize = 64;

/// A tree in the node array.
pub(crate) struct Tree {
    pub(crate) root: u32,
    /// Candidates on the worst path.
    pub(crate) most: usize,
}

/// Grows a tree for a bucket whose rules lie at `first` and on in the rule array. `None` if scanning is as good.
pub(crate) fn plant(
    set: &RuleSet<'_>,
    members: &[u32],
    first: u32,
    nodes: &mut Vec<Node>,
    lists: &mut Vec<u32>,
) -> Option<Tree> {
    if members.len() <= BUCKET_KEYS {
        return None;
    }
    let field = field(set, members)?;
    // (allowed intervals of the field, position in the rule array)
    let mut ranges: Vec<(u128, u128, u32)> = Vec::new();
    let mut everywhere = Vec::new();
    let top = maximum(&set.conds[field as usize]);
    for (at, &rule) in (first..).zip(members) {
        let cond = set
            .conds_of(rule)
            .iter()
            .find(|cond| same_field(cond, &set.conds[field as usize]) && splits(cond));
        match cond {
            Some(cond) => {
                let allowed = allowed(cond, set, top);
                ranges.extend(allowed.into_iter().map(|(lo, hi)| (lo, hi, at)));
            }
            None => everywhere.push(at),
        }
    }
    let mut cuts: Vec<u128> = (ranges.iter())
        .flat_map(|&(lo, hi, _)| [lo, hi.saturating_add(1)])
        .filter(|&cut| cut > 0 && cut <= top)
        .collect();
    cuts.sort_unstable();
    cuts.dedup();
    let listed = lists.len();
    let mut growth = Growth {
        nodes,
        lists,
        cuts: &cuts,
        field,
    };
    let (root, most) = growth.grow(0, cuts.len(), (0, top), ranges, everywhere);
    // All rules on one path: the tree would only add steps.
    if most >= members.len() {
        growth.nodes.truncate(root as usize);
        growth.lists.truncate(listed);
        return None;
    }
    Some(Tree { root, most })
}

struct Growth<'a> {
    nodes: &'a mut Vec<Node>,
    lists: &'a mut Vec<u32>,
    cuts: &'a [u128],
    field: u32,
}

impl Growth<'_> {
    /// A node for the values `span`, split by the cuts `from..to`. Returns it and the candidates on its worst path.
    fn grow(
        &mut self,
        from: usize,
        to: usize,
        span: (u128, u128),
        ranges: Vec<(u128, u128, u32)>,
        mut here: Vec<u32>,
    ) -> (u32, usize) {
        let (whole, parts): (Vec<_>, Vec<_>) =
            (ranges.into_iter()).partition(|&(lo, hi, _)| lo <= span.0 && hi >= span.1);
        here.extend(whole.iter().map(|r| r.2));
        if here.is_empty() && parts.is_empty() {
            return (0, 0);
        }
        let at = self.nodes.len();
        let mut node = Node {
            field: self.field,
            first: self.lists.len() as u32,
            count: here.len() as u32,
            ..Node::default()
        };
        self.lists.extend_from_slice(&here);
        self.nodes.push(node);
        let mut below = 0;
        if !parts.is_empty() {
            let middle = from + (to - from) / 2;
            let pivot = self.cuts[middle];
            node.pivot = [(pivot >> 64) as u64, pivot as u64];
            let low = parts.iter().filter(|r| r.0 < pivot).copied().collect();
            let high = parts.iter().filter(|r| r.1 >= pivot).copied().collect();
            let left = self.grow(from, middle, (span.0, pivot - 1), low, Vec::new());
            let right = self.grow(middle + 1, to, (pivot, span.1), high, Vec::new());
            (node.left, node.right) = (left.0, right.0);
            below = left.1.max(right.1);
        }
        self.nodes[at] = node;
        (at as u32, here.len() + below)
    }
}

/// The condition, of some member, on the field that most members restrict most; ties go to the first.
fn field(set: &RuleSet<'_>, members: &[u32]) -> Option<u32> {
    let mut fields: Vec<(u32, f64)> = Vec::new();
    for &rule in members {
        let start = set.rules[rule as usize].cond_first;
        for (at, cond) in (start..).zip(set.conds_of(rule)) {
            if !splits(cond) {
                continue;
            }
            let top = maximum(cond);
            let covered: f64 = allowed(cond, set, top)
                .iter()
                .map(|&(lo, hi)| (hi - lo) as f64 + 1.0)
                .sum();
            let gain = 1.0 - covered / (top as f64 + 1.0);
            match fields
                .iter_mut()
                .find(|(have, _)| same_field(&set.conds[*have as usize], cond))
            {
                Some((_, sum)) => *sum += gain,
                None => fields.push((at, gain)),
            }
        }
    }
    let best = fields.iter().map(|f| f.1).fold(0.0, f64::max);
    (fields.iter())
        .find(|f| f.1 > 0.0 && f.1 >= best)
        .map(|f| f.0)
}

fn splits(cond: &Cond) -> bool {
    match cond.op {
        cond_op::RANGE => true,
        cond_op::SET => (cond.set_count as usize) < MAX_PIECES,
        _ => false,
    }
}

fn same_field(a: &Cond, b: &Cond) -> bool {
    let place = |c: &Cond| (c.off, c.width, c.shift, c.mask);
    place(a) == place(b)
}

/// Largest number a condition can read.
fn maximum(cond: &Cond) -> u128 {
    match cond.width {
        16 => u128::MAX,
        width => u128::from(cond.mask & (u64::MAX >> (64 - u32::from(width) * 8))),
    }
}

/// Values the condition holds for.
fn allowed(cond: &Cond, set: &RuleSet<'_>, top: u128) -> Vec<(u128, u128)> {
    let mut inside: Vec<(u128, u128)> = intervals(cond, set.intervals)
        .into_iter()
        .filter(|&(lo, hi)| lo <= hi && lo <= top)
        .map(|(lo, hi)| (lo, hi.min(top)))
        .collect();
    if cond.flags & cond_op::NEGATED == 0 {
        return inside;
    }
    inside.sort_unstable();
    let mut outside = Vec::new();
    let mut from = 0;
    for (lo, hi) in inside {
        if lo > from {
            outside.push((from, lo - 1));
        }
        match hi.checked_add(1) {
            Some(next) if next <= top => from = next,
            _ => return outside,
        }
    }
    outside.push((from, top));
    outside
}
