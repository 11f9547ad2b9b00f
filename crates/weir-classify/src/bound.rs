//! How many of some rules one packet can meet at most. Three bounds, each sound by itself; the smallest counts.
//!
//! By tables: every table's worst bucket or tree path. By shapes: rules of the same masks but other values exclude each other. By
//! splitting (in `prune`): rules that no value of a piece of the key leaves together exclude each other.

use std::collections::HashMap;

use weir_bpf::abi::slot_bits;

use crate::{Classifier, ExactKey, RuleSet, prune};

impl Classifier {
    /// An upper bound on how many of these rules (positions in the input, ascending) one packet can match. Stops looking for a better
    /// one once it is at most `enough`.
    pub fn most_at_once(&self, set: &RuleSet<'_>, rules: &[u32], enough: usize) -> usize {
        let mut bound = rules.len();
        let bounds: [&dyn Fn() -> usize; 3] = [
            &|| by_shape(set, &self.shape_of, rules),
            &|| self.by_table(rules),
            &|| prune::most_at_once(set, rules, enough),
        ];
        for better in bounds {
            if bound <= enough {
                break;
            }
            bound = bound.min(better());
        }
        bound
    }

    fn by_table(&self, rules: &[u32]) -> usize {
        let wanted = |at: u32| rules.binary_search(&self.order[at as usize]).is_ok();
        let mut worst: HashMap<u32, usize> = HashMap::new();
        for slot in self.cells.iter().flat_map(|cell| &cell.slot) {
            let table = slot.what >> slot_bits::COUNT & ((1 << slot_bits::TABLE) - 1);
            let count = slot.what & ((1 << slot_bits::COUNT) - 1);
            let most = match slot.what >> slot_bits::TREE {
                0 => (slot.first..slot.first + count)
                    .filter(|&at| wanted(at))
                    .count(),
                _ => self.path(slot.first, &wanted),
            };
            let worst = worst.entry(table).or_default();
            *worst = most.max(*worst);
        }
        worst.values().sum()
    }

    /// The most rules on one way down a tree.
    fn path(&self, node: u32, wanted: &impl Fn(u32) -> bool) -> usize {
        if node == 0 {
            return 0;
        }
        let node = &self.nodes[node as usize];
        let here = (self.lists[node.first as usize..][..node.count as usize].iter())
            .filter(|&&at| wanted(at))
            .count();
        let below = self
            .path(node.left, wanted)
            .max(self.path(node.right, wanted));
        here + below
    }
}

fn by_shape(set: &RuleSet<'_>, shape_of: &[u32], rules: &[u32]) -> usize {
    let mut alike: HashMap<&ExactKey, usize> = HashMap::new();
    let mut worst: HashMap<u32, usize> = HashMap::new();
    for &rule in rules {
        let n = alike.entry(&set.rules[rule as usize].exact).or_default();
        *n += 1;
        let most = worst.entry(shape_of[rule as usize]).or_default();
        *most = (*n).max(*most);
    }
    worst.values().sum()
}
