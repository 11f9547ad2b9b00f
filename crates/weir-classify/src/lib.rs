//! Rules -> classifier tables. Pure: decides which table and bucket each rule lies in and what the data plane may skip.
//!
//! [`build`] is the whole of it. `merge` puts rules of many masks into few tables, `prune` tells for 16-bit pieces of the flat key which
//! tables are worth a probe, `tree` orders large buckets by ranges, `index` is the hash index, `bound` the static worst case,
//! `model` the data plane's lookup in Rust.
//! Invariant: none of them decides a match. Every candidate is compared with its full exact key and its conditions, and a packet
//! meets each rule at most once.

#![warn(clippy::expect_used, clippy::unwrap_used)]

mod bound;
mod index;
mod merge;
mod model;
mod offsets;
mod prune;
mod tree;

use std::collections::HashMap;

use weir_bpf::abi::{Cell, Cond, DimRows, Interval, KEY_WORDS, Node, PROBE_WORDS, Table};

pub use model::Cost;
pub use offsets::Offsets;

/// Masked bits of one word of the flat key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MaskedWord {
    /// Index of the word.
    pub word: u8,
    /// Bits that count, as in memory.
    pub mask: u64,
    /// What they must be; no bits outside the mask.
    pub value: u64,
}

/// What is exact about a rule: at most [`PROBE_WORDS`] words, by ascending index.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ExactKey {
    words: Vec<MaskedWord>,
}

impl ExactKey {
    /// Adds a requirement on some bits. `false`, and nothing changes, if it contradicts what is there or needs a word too many:
    /// then it must be tested as a residual condition.
    pub fn require(&mut self, bits: &[MaskedWord]) -> bool {
        let mut next = self.words.clone();
        for bit in bits {
            debug_assert!(usize::from(bit.word) < KEY_WORDS && bit.value & !bit.mask == 0);
            let full = next.len() == PROBE_WORDS;
            match next.iter_mut().find(|have| have.word == bit.word) {
                Some(have) if (have.value ^ bit.value) & have.mask & bit.mask != 0 => return false,
                Some(have) => {
                    have.mask |= bit.mask;
                    have.value |= bit.value;
                }
                None if full => return false,
                None => next.push(*bit),
            }
        }
        next.sort_unstable();
        self.words = next;
        true
    }

    /// The words, by ascending index.
    pub fn words(&self) -> &[MaskedWord] {
        &self.words
    }

    /// Values of the words, zero behind them: what the data plane compares.
    pub fn values(&self) -> [u64; PROBE_WORDS] {
        let mut values = [0; PROBE_WORDS];
        for (slot, word) in values.iter_mut().zip(&self.words) {
            *slot = word.value;
        }
        values
    }
}

/// What the classifier needs to know of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleKey {
    /// Its exact part.
    pub exact: ExactKey,
    /// First of its residual conditions.
    pub cond_first: u32,
    /// Their number.
    pub cond_count: u32,
}

/// All rules, in rule order, with the conditions they refer to.
#[derive(Clone, Copy, Debug)]
pub struct RuleSet<'a> {
    /// Rules.
    pub rules: &'a [RuleKey],
    /// Residual conditions of all rules.
    pub conds: &'a [Cond],
    /// Intervals of their sets.
    pub intervals: &'a [Interval],
}

impl<'a> RuleSet<'a> {
    /// Residual conditions of a rule.
    pub fn conds_of(&self, rule: u32) -> &'a [Cond] {
        let rule = &self.rules[rule as usize];
        &self.conds[rule.cond_first as usize..][..rule.cond_count as usize]
    }
}

/// How rules are laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheme {
    /// Merged, pruned, with trees: what plans use.
    #[default]
    Merged,
    /// Merged, with trees, every table probed for every packet: what few rules that change often use.
    Unpruned,
    /// One table for each mask, every table probed for every packet, buckets scanned: the baseline of benchmarks and tests.
    TablePerMask,
}

/// The compiled classifier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Classifier {
    /// Masks to probe; at least one, so that the probe loop of the data plane is never empty.
    pub tables: Vec<Table>,
    /// Masks of whole rules, to compare candidates with.
    pub shapes: Vec<Table>,
    /// Shape of each rule of the input.
    pub shape_of: Vec<u32>,
    /// The rule array: positions in the input, bucket by bucket.
    pub order: Vec<u32>,
    /// Hash index; a power of two.
    pub cells: Vec<Cell>,
    /// Trees of large buckets; node 0 is none.
    pub nodes: Vec<Node>,
    /// Positions in the rule array, for nodes.
    pub lists: Vec<u32>,
    /// Which tables a packet may skip.
    pub pruning: Pruning,
    /// Static worst case.
    pub worst: Cost,
}

/// Bitmaps of tables for pieces of the flat key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pruning {
    /// 16-bit pieces of the flat key, by index from its start.
    pub halves: Vec<u8>,
    /// First row of each piece.
    pub row_first: Vec<u32>,
    /// Row of each value of each piece, relative to its first.
    pub dim_rows: Vec<DimRows>,
    /// Rows: one bit for each table, as many words as tables need.
    pub rows: Vec<u64>,
}

/// Sizes beyond what the data plane's indexes hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClassifyError {
    /// More masks than tables are probed.
    #[error(
        "the rules need {masks} tables after merging; at most {max} are probed: write rules over the same fields, or use sets"
    )]
    TooManyMasks {
        /// Tables needed.
        masks: usize,
        /// Limit.
        max: usize,
    },
    /// One packet could meet too many rules.
    #[error(
        "{candidates} rules could have to be tested for one packet, at most {max} are: rules that differ only in payload conditions, large sets or not at all cannot be told apart by the index; join them with sets or add addresses or ports"
    )]
    TooManyCandidates {
        /// Static bound.
        candidates: usize,
        /// Limit.
        max: usize,
    },
}

/// Tables a packet may have to probe, at most.
pub const MAX_TABLES: usize = 4096;
/// Rules that may have to be tested for one packet, at most. The slot of the index counts with 19 bits.
pub const MAX_CANDIDATES: usize = 100_000;
/// Different exact keys a bucket takes in before a rule needs another table.
const BUCKET_KEYS: usize = 8;

/// A table under construction.
struct Draft {
    /// Word and mask, by ascending word.
    mask: Vec<(u8, u64)>,
    /// Rules of each bucket in rule order. A bucket is whatever has the same hash.
    buckets: Vec<(u64, Vec<u32>)>,
}

/// Compiles rules, given in rule order.
///
/// # Errors
/// [`ClassifyError`] if the static worst case is beyond the limits.
pub fn build(set: &RuleSet<'_>, scheme: Scheme) -> Result<Classifier, ClassifyError> {
    build_from(set, scheme, 0)
}

/// [`build`] for tables that are numbered from `first_table` on, so that they can lie behind others: the number is part of the hash.
///
/// # Errors
/// As [`build`].
pub fn build_from(
    set: &RuleSet<'_>,
    scheme: Scheme,
    first_table: u32,
) -> Result<Classifier, ClassifyError> {
    let (shapes, shape_of) = shapes(set.rules);
    let mut drafts = merge::tables(set.rules, &shapes, &shape_of, scheme, first_table);
    if drafts.len() > MAX_TABLES {
        return Err(ClassifyError::TooManyMasks {
            masks: drafts.len(),
            max: MAX_TABLES,
        });
    }
    if drafts.is_empty() {
        drafts.push(Draft {
            mask: Vec::new(),
            buckets: Vec::new(),
        });
    }
    let pruning = match scheme {
        Scheme::Merged => prune::choose(set, &drafts),
        Scheme::Unpruned | Scheme::TablePerMask => Pruning::default(),
    };
    let mut order = Vec::with_capacity(set.rules.len());
    let mut lists = Vec::new();
    let mut nodes = vec![Node::default()];
    let mut slots = Vec::new();
    let mut candidates = 0;
    for (table, draft) in (first_table..).zip(&drafts) {
        let mut worst = 0;
        for (hash, members) in &draft.buckets {
            let first = order.len() as u32;
            order.extend_from_slice(members);
            let tree = match scheme {
                Scheme::Merged | Scheme::Unpruned => {
                    tree::plant(set, members, first, &mut nodes, &mut lists)
                }
                Scheme::TablePerMask => None,
            };
            let (slot, most) = match tree {
                Some(tree) => (index::slot(*hash, table, tree.root, 0, true), tree.most),
                None => {
                    let count = members.len() as u32;
                    (
                        index::slot(*hash, table, first, count, false),
                        members.len(),
                    )
                }
            };
            slots.push(slot);
            worst = worst.max(most);
        }
        candidates += worst;
    }
    if candidates > MAX_CANDIDATES {
        return Err(ClassifyError::TooManyCandidates {
            candidates,
            max: MAX_CANDIDATES,
        });
    }
    Ok(Classifier {
        worst: Cost {
            tables: prune::most(&pruning, drafts.len()),
            candidates,
        },
        tables: drafts.iter().map(|draft| table(&draft.mask)).collect(),
        shapes: shapes.iter().map(|mask| table(mask)).collect(),
        shape_of,
        order,
        cells: index::cells(&slots),
        nodes,
        lists,
        pruning,
    })
}

/// Words of a table's bitmap.
pub fn bitmap_words(tables: usize) -> usize {
    tables.div_ceil(64)
}

type Mask = Vec<(u8, u64)>;

fn shapes(rules: &[RuleKey]) -> (Vec<Mask>, Vec<u32>) {
    let mut number: HashMap<Mask, u32> = HashMap::new();
    let mut shapes = Vec::new();
    let shape_of = rules
        .iter()
        .map(|rule| {
            let mask: Mask = rule.exact.words.iter().map(|w| (w.word, w.mask)).collect();
            *number.entry(mask).or_insert_with_key(|mask| {
                shapes.push(mask.clone());
                (shapes.len() - 1) as u32
            })
        })
        .collect();
    (shapes, shape_of)
}

fn table(mask: &[(u8, u64)]) -> Table {
    let mut table = Table {
        n_words: mask.len() as u32,
        ..Table::default()
    };
    for (i, &(word, mask)) in mask.iter().enumerate() {
        table.word[i] = word;
        table.mask[i] = mask;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(words: &[(u8, u64, u64)]) -> ExactKey {
        let mut key = ExactKey::default();
        for &(word, mask, value) in words {
            assert!(key.require(&[MaskedWord { word, mask, value }]));
        }
        key
    }

    #[test]
    fn an_empty_policy_has_one_table_and_no_rule() {
        let set = RuleSet {
            rules: &[],
            conds: &[],
            intervals: &[],
        };
        let built = build(&set, Scheme::Merged).expect("empty");
        assert_eq!((built.tables.len(), built.order.len()), (1, 0));
        assert_eq!(built.find(&set, &[0; KEY_WORDS]).0, []);
    }

    #[test]
    fn a_table_that_a_finer_one_makes_needless_is_emptied() {
        // One pair of addresses and so many ports: the first of them need no table that looks at ports.
        let rules: Vec<RuleKey> = (0..1000)
            .map(|port| RuleKey {
                exact: key(&[
                    (4, 0xffff_ffff_0000_0000, 0x0100_000a_0000_0000),
                    (5, 0xffff_ffff, 0x0764_33c6),
                    (11, 0xffff_ffff, 0x3500_0000 + port),
                ]),
                ..RuleKey::default()
            })
            .collect();
        let set = RuleSet {
            rules: &rules,
            conds: &[],
            intervals: &[],
        };
        let built = build(&set, Scheme::Merged).expect("fits");
        assert_eq!((built.worst.tables, built.worst.candidates), (1, 1));
        for rule in &rules {
            let mut packet = [0; KEY_WORDS];
            for word in &rule.exact.words {
                packet[usize::from(word.word)] = word.value;
            }
            assert_eq!(built.find(&set, &packet).0.len(), 1);
        }
    }

    #[test]
    fn contradictions_and_ninth_words_are_left_to_residual_conditions() {
        let mut exact = key(&[(0, 0xf, 1)]);
        assert!(!exact.require(&[MaskedWord {
            word: 0,
            mask: 0x3,
            value: 2
        }]));
        for word in 1..8 {
            assert!(exact.require(&[MaskedWord {
                word,
                mask: 1,
                value: 1
            }]));
        }
        let before = exact.clone();
        assert!(!exact.require(&[
            MaskedWord {
                word: 1,
                mask: 2,
                value: 2
            },
            MaskedWord {
                word: 20,
                mask: 1,
                value: 0
            }
        ]));
        assert_eq!(exact, before);
        assert!(exact.require(&[MaskedWord {
            word: 7,
            mask: 6,
            value: 2
        }]));
    }
}
