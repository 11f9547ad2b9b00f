//! Chains on one edge: where packets go that come in by each interface of what leads into and out of them.

use weir_bpf::abi::{NetSelection, NetSteer};
use weir_value::{PortRange, Prefix};

use super::network::OneNetwork;
use crate::model::{Selection, Steer};
use crate::values::{mapped, masked, words};

impl OneNetwork<'_, '_> {
    pub(super) fn steer(&mut self, at: usize, steer: &Steer) {
        let vids: Vec<u32> = (0..steer.sides.len())
            .map(|side| {
                let tip = self.graph.at_side[at].get(side).copied().flatten();
                tip.and_then(|tip| self.tips.get(&(tip.link, tip.side)).copied())
                    .unwrap_or(0)
            })
            .collect();
        let there: Vec<Selection> = steer.selections.clone();
        let back: Vec<Selection> = there.iter().map(|one| one.reversed()).collect();
        let last = steer.stages.len();
        // Functions are entered by `a` on the way there, by `b` on the way back; `None`: the chain ends.
        let stage = |number: Option<usize>, by: usize| -> Vec<u32> {
            let sides = number.and_then(|number| steer.stages.get(number));
            sides
                .into_iter()
                .flatten()
                .map(|side| vids[side + by])
                .collect()
        };
        self.leads(vids[0], vids[1], &stage(Some(0), 0), &there);
        self.leads(vids[1], vids[0], &stage(last.checked_sub(1), 1), &back);
        for (number, sides) in steer.stages.iter().enumerate() {
            for side in sides {
                self.leads(vids[side + 1], vids[1], &stage(Some(number + 1), 0), &[]);
                self.leads(vids[*side], vids[0], &stage(number.checked_sub(1), 1), &[]);
            }
        }
    }

    /// Packets that come in by an interface go by one of the ways if they are selected, else onward.
    fn leads(&mut self, vid: u32, onward: u32, ways: &[u32], selected: &[Selection]) {
        let plan = &mut self.planner.plan;
        let instance = plan.steers.len() as u32;
        let (selections, n_selections) = select(&mut plan.selections, selected);
        plan.steers.push(NetSteer {
            ways: plan.lists.len() as u32,
            n_ways: ways.len() as u32,
            selections,
            n_selections,
        });
        plan.lists.extend(ways);
        let vi = self.planner.vi(vid);
        (vi.instance, vi.onward) = (instance, onward);
    }
}

/// Writes selections down: where their run begins, and how many they are.
pub(super) fn select(all: &mut Vec<NetSelection>, selected: &[Selection]) -> (u32, u32) {
    let first = all.len() as u32;
    all.extend(selected.iter().map(selection));
    (first, selected.len() as u32)
}

fn selection(one: &Selection) -> NetSelection {
    let net = |prefix: Option<Prefix>| match prefix.as_ref().map(mapped) {
        None => ([0; 2], [0; 2]),
        Some((first, length)) => (words(first), words(masked(u128::MAX, length))),
    };
    let (from, source_mask) = net(one.from);
    let (to, target_mask) = net(one.to);
    let all = PortRange {
        first: 0,
        last: u16::MAX,
    };
    let (source, target) = (one.from_port.unwrap_or(all), one.port.unwrap_or(all));
    NetSelection {
        source: from,
        source_mask,
        target: to,
        target_mask,
        source_low: source.first,
        source_high: source.last,
        target_low: target.first,
        target_high: target.last,
        protocol: one.protocol.unwrap_or(0),
        ports: u8::from(one.from_port.is_some() || one.port.is_some()),
        pad: [0; 6],
    }
}
