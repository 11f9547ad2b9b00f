//! Rules -> classifier tables. Pure: sorts what is exact about rules into tables the data plane can probe.
//!
//! One table for each mask over the flat key; in a table one bucket for each masked key. A rule lies in one bucket, and the rules of
//! a bucket lie side by side in the rule array, in rule order. What is not exact (ranges, negations, sets, payloads) is tested per
//! rule after the probe and is none of this crate's business. The scalable classifier of DESIGN section 7 comes behind [`build`].

use std::collections::HashMap;

use weir_bpf::abi::{Bucket, KEY_WORDS, PROBE_WORDS, Probe, Table};

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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
}

/// The compiled classifier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// At least one, so that the probe loop of the data plane is never empty.
    pub tables: Vec<Table>,
    /// Index of the data plane.
    pub buckets: Vec<(Probe, Bucket)>,
    /// The rule array: positions in the input, bucket by bucket.
    pub order: Vec<u32>,
}

/// Sizes beyond what the data plane's indexes hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClassifyError {
    /// More masks than tables are probed.
    #[error(
        "the rules use {masks} different combinations of fields; at most {max} are probed: write rules over the same fields, or use sets"
    )]
    TooManyMasks {
        /// Distinct masks.
        masks: usize,
        /// Limit.
        max: usize,
    },
}

/// Tables probed for each packet at most. Every one costs a hash lookup.
pub const MAX_TABLES: usize = 4096;

/// Compiles rules, given in rule order.
pub fn build(rules: &[ExactKey]) -> Result<Tables, ClassifyError> {
    let mut table_of: HashMap<Vec<(u8, u64)>, u32> = HashMap::new();
    let mut bucket_of: HashMap<Probe, u32> = HashMap::new();
    let mut tables = Vec::new();
    let mut members: Vec<(Probe, Vec<u32>)> = Vec::new();
    for (i, rule) in (0u32..).zip(rules) {
        let shape: Vec<(u8, u64)> = rule.words.iter().map(|w| (w.word, w.mask)).collect();
        let table = *table_of.entry(shape).or_insert_with(|| {
            tables.push(table(&rule.words));
            (tables.len() - 1) as u32
        });
        let mut probe = Probe {
            table,
            ..Probe::default()
        };
        for (slot, word) in probe.word.iter_mut().zip(&rule.words) {
            *slot = word.value;
        }
        let bucket = *bucket_of.entry(probe).or_insert_with(|| {
            members.push((probe, Vec::new()));
            (members.len() - 1) as u32
        });
        members[bucket as usize].1.push(i);
    }
    if tables.len() > MAX_TABLES {
        return Err(ClassifyError::TooManyMasks {
            masks: tables.len(),
            max: MAX_TABLES,
        });
    }
    if tables.is_empty() {
        tables.push(Table::default());
    }
    let mut order = Vec::with_capacity(rules.len());
    let mut buckets = Vec::with_capacity(members.len());
    for (probe, rules) in members {
        buckets.push((
            probe,
            Bucket {
                first: order.len() as u32,
                count: rules.len() as u32,
            },
        ));
        order.extend(rules);
    }
    Ok(Tables {
        tables,
        buckets,
        order,
    })
}

fn table(words: &[MaskedWord]) -> Table {
    let mut table = Table {
        n_words: words.len() as u32,
        ..Table::default()
    };
    for (i, word) in words.iter().enumerate() {
        table.word[i] = word.word;
        table.mask[i] = word.mask;
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

    /// What the data plane does: probe every table, return the rules found.
    fn probe(tables: &Tables, flat: &[u64; KEY_WORDS]) -> Vec<u32> {
        let mut found = Vec::new();
        for (i, table) in tables.tables.iter().enumerate() {
            let mut wanted = Probe {
                table: i as u32,
                ..Probe::default()
            };
            for k in 0..PROBE_WORDS {
                wanted.word[k] = flat[usize::from(table.word[k])] & table.mask[k];
            }
            if let Some((_, bucket)) = tables.buckets.iter().find(|(have, _)| *have == wanted) {
                found.extend(&tables.order[bucket.first as usize..][..bucket.count as usize]);
            }
        }
        found.sort_unstable();
        found
    }

    #[test]
    fn all_matching_rules_are_found_whatever_their_masks() {
        let rules = [
            key(&[(0, 1, 1), (3, 0xff, 80)]),
            key(&[(0, 1, 1), (3, 0xff, 81)]),
            key(&[(0, 1, 1)]),
            key(&[]),
            key(&[(0, 1, 1), (3, 0xff, 80)]),
            key(&[(9, !0, 7)]),
        ];
        let tables = build(&rules).expect("few masks");
        assert_eq!(tables.tables.len(), 4);
        let mut flat = [0; KEY_WORDS];
        assert_eq!(probe(&tables, &flat), [3]);
        flat[0] = 3;
        flat[3] = 0x150;
        assert_eq!(probe(&tables, &flat), [0, 2, 3, 4]);
        flat[9] = 7;
        assert_eq!(probe(&tables, &flat), [0, 2, 3, 4, 5]);
    }

    #[test]
    fn an_empty_policy_has_one_table_and_no_bucket() {
        let tables = build(&[]).expect("empty");
        assert_eq!((tables.tables.len(), tables.buckets.len()), (1, 0));
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
