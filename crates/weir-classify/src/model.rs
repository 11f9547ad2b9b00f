//! The data plane's lookup in Rust, step for step as `bpf/include/classify.h` does it, and what it costs.
//!
//! For tests and benchmarks: comparing match sets over whole rule sets is a thousand times faster here than through an engine.

use weir_bpf::abi::{Cond, Interval, KEY_WORDS, Table, cond_op, slot_bits};

use crate::{Classifier, RuleSet, bitmap_words, index};

/// What a lookup costs, or could cost at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Tables probed.
    pub tables: usize,
    /// Rules compared.
    pub candidates: usize,
}

impl Classifier {
    /// Rules of the input that match a flat key, ascending, and what it took. Conditions on options' bytes and payloads are not in
    /// the flat key; they count as holding.
    pub fn find(&self, set: &RuleSet<'_>, flat: &[u64; KEY_WORDS]) -> (Vec<u32>, Cost) {
        let mut lookup = Lookup {
            classifier: self,
            set,
            flat,
            found: Vec::new(),
            cost: Cost::default(),
        };
        for word in 0..bitmap_words(self.tables.len()) {
            let mut bits = lookup.survivors(word);
            while bits != 0 {
                let table = word * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                if table < self.tables.len() {
                    lookup.probe(table);
                }
            }
        }
        lookup.found.sort_unstable();
        (lookup.found, lookup.cost)
    }
}

struct Lookup<'a> {
    classifier: &'a Classifier,
    set: &'a RuleSet<'a>,
    flat: &'a [u64; KEY_WORDS],
    found: Vec<u32>,
    cost: Cost,
}

impl Lookup<'_> {
    fn survivors(&self, word: usize) -> u64 {
        let pruning = &self.classifier.pruning;
        let words = bitmap_words(self.classifier.tables.len());
        let mut bits = !0;
        for (dim, &half) in pruning.halves.iter().enumerate() {
            let value = usize::from(half_of(self.flat, half));
            let chunk = &pruning.dim_rows[(dim << 16 | value) >> 5];
            let row = pruning.row_first[dim] as usize + usize::from(chunk.row[value & 31]);
            bits &= pruning.rows[row * words + word];
        }
        bits
    }

    fn probe(&mut self, table: usize) {
        self.cost.tables += 1;
        let mask = &self.classifier.tables[table];
        let mut h = index::start(table as u32);
        for i in 0..mask.n_words as usize {
            h = index::mix(h, self.flat[usize::from(mask.word[i])] & mask.mask[i]);
        }
        let h = index::finish(h);
        for at in index::places(h, self.classifier.cells.len()) {
            let cell = &self.classifier.cells[at];
            for slot in &cell.slot {
                let of_table = slot.what >> slot_bits::COUNT & ((1 << slot_bits::TABLE) - 1);
                if slot.hash != h || of_table as usize != table + 1 {
                    continue;
                }
                let count = slot.what & ((1 << slot_bits::COUNT) - 1);
                if slot.what >> slot_bits::TREE & 1 != 0 {
                    return self.descend(slot.first);
                }
                return (slot.first..slot.first + count).for_each(|at| self.candidate(at));
            }
            if cell.slot[3].what == 0 {
                return;
            }
        }
    }

    fn descend(&mut self, root: u32) {
        let mut at = root;
        let field = self.classifier.nodes[root as usize].field;
        let value = number(&self.set.conds[field as usize], self.flat);
        while at != 0 {
            let node = &self.classifier.nodes[at as usize];
            for i in node.first..node.first + node.count {
                self.candidate(self.classifier.lists[i as usize]);
            }
            let pivot = u128::from(node.pivot[0]) << 64 | u128::from(node.pivot[1]);
            at = if value < pivot { node.left } else { node.right };
        }
    }

    fn candidate(&mut self, at: u32) {
        self.cost.candidates += 1;
        let rule = self.classifier.order[at as usize];
        let shape = &self.classifier.shapes[self.classifier.shape_of[rule as usize] as usize];
        let values = self.set.rules[rule as usize].exact.values();
        if masked(shape, self.flat) == values && conditions_hold(self.set, rule, self.flat) {
            self.found.push(rule);
        }
    }
}

fn masked(shape: &Table, flat: &[u64; KEY_WORDS]) -> [u64; 8] {
    std::array::from_fn(|i| flat[usize::from(shape.word[i])] & shape.mask[i])
}

fn conditions_hold(set: &RuleSet<'_>, rule: u32, flat: &[u64; KEY_WORDS]) -> bool {
    set.conds_of(rule).iter().all(|cond| match cond.op {
        cond_op::RANGE | cond_op::SET => {
            let value = number(cond, flat);
            let inside = intervals(cond, set.intervals)
                .iter()
                .any(|&(lo, hi)| (lo..=hi).contains(&value));
            inside != (cond.flags & cond_op::NEGATED != 0)
        }
        _ => true,
    })
}

/// The intervals of a condition on a number; none of a condition on bytes.
pub(crate) fn intervals(cond: &Cond, all: &[Interval]) -> Vec<(u128, u128)> {
    let whole = |halves: [u64; 2]| u128::from(halves[0]) << 64 | u128::from(halves[1]);
    match cond.op {
        cond_op::RANGE => {
            let word = |i: usize| {
                let mut bytes = [0; 8];
                bytes.copy_from_slice(&cond.u[i * 8..][..8]);
                u64::from_ne_bytes(bytes)
            };
            vec![(whole([word(0), word(1)]), whole([word(2), word(3)]))]
        }
        cond_op::SET => all[cond.set_first as usize..][..cond.set_count as usize]
            .iter()
            .map(|i| (whole(i.lo), whole(i.hi)))
            .collect(),
        _ => Vec::new(),
    }
}

/// The number a condition is about.
fn number(cond: &Cond, flat: &[u64; KEY_WORDS]) -> u128 {
    let width = usize::from(cond.width);
    let number = (0..width).fold(0u128, |n, i| {
        let at = usize::from(cond.off) + i;
        n << 8 | u128::from(flat[at / 8].to_ne_bytes()[at % 8])
    });
    if width == 16 {
        return number;
    }
    u128::from((number as u64) >> cond.shift & cond.mask)
}

/// A 16-bit piece of the flat key, as a big-endian number.
pub(crate) fn half_of(flat: &[u64; KEY_WORDS], half: u8) -> u16 {
    let bytes = flat[usize::from(half / 4)].to_ne_bytes();
    let at = usize::from(half % 4) * 2;
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}
