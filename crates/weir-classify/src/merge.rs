//! Rules of many masks -> few tables. A rule may lie in any table whose mask is a part of its own; what the table's mask
//! leaves out is compared afterwards, so a bucket must stay short.
//!
//! Shapes are taken from the most specific to the least, so that a coarse table, which every packet meets, is filled last. At the end
//! tables whose rules all fit into finer ones are emptied again.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};

use weir_bpf::abi::key;

use crate::{BUCKET_KEYS, Draft, ExactKey, Mask, RuleKey, Scheme, index};

/// Assigns every rule to a table.
pub(crate) fn tables(
    rules: &[RuleKey],
    shapes: &[Mask],
    shape_of: &[u32],
    scheme: Scheme,
    first_table: u32,
) -> Vec<Draft> {
    let mut by_shape: Vec<u32> = (0..rules.len() as u32).collect();
    let bits: Vec<u32> = shapes.iter().map(bits).collect();
    by_shape.sort_by_key(|&rule| {
        let shape = shape_of[rule as usize];
        (std::cmp::Reverse(bits[shape as usize]), shape)
    });
    let mut tables = Tables {
        first: first_table,
        grown: Vec::new(),
    };
    let mut of_mask: HashMap<Mask, u32> = HashMap::new();
    let mut at = 0;
    while at < by_shape.len() {
        let shape = shape_of[by_shape[at] as usize];
        let end = at + by_shape[at..].partition_point(|&r| shape_of[r as usize] == shape);
        let mask = &shapes[shape as usize];
        let mut group = Group::new(mask, &tables.grown, scheme);
        for &rule in &by_shape[at..end] {
            group.place(rule, rules, &mut tables, &mut of_mask);
        }
        at = end;
    }
    if scheme != Scheme::TablePerMask {
        tables.settle(rules, shapes, shape_of);
    }
    tables.grown.into_iter().map(Growing::finish).collect()
}

/// All tables so far. Their numbers, which hashes hold, start at `first`.
struct Tables {
    first: u32,
    grown: Vec<Growing>,
}

/// A rule that joined a table.
struct Joined {
    table: u32,
    hash: u64,
    /// It was the first one with its exact key.
    is_new: bool,
}

impl Tables {
    /// Puts a rule into a table if its bucket there has room.
    fn join(&mut self, t: u32, rule: u32, rules: &[RuleKey]) -> Option<Joined> {
        let exact = &rules[rule as usize].exact;
        let table = &mut self.grown[t as usize];
        let hash = hash_of(self.first + t, &table.mask, exact);
        let bucket = match table.buckets.entry(hash) {
            Entry::Occupied(bucket) => bucket.into_mut(),
            Entry::Vacant(empty) => empty.insert(Bucket::default()),
        };
        let mut keys = bucket.keys.iter();
        let is_new = !keys.any(|&k| rules[k as usize].exact == *exact);
        if is_new && bucket.keys.len() >= BUCKET_KEYS {
            return None;
        }
        if is_new {
            bucket.keys.push(rule);
        }
        bucket.rules.push(rule);
        Some(Joined {
            table: t,
            hash,
            is_new,
        })
    }

    /// Takes the rule out again that joined last of all.
    fn leave(&mut self, joined: &Joined) {
        let buckets = &mut self.grown[joined.table as usize].buckets;
        let Some(bucket) = buckets.get_mut(&joined.hash) else {
            return;
        };
        bucket.rules.pop();
        if joined.is_new {
            bucket.keys.pop();
        }
        if bucket.rules.is_empty() {
            buckets.remove(&joined.hash);
        }
    }

    /// Empties tables whose rules all fit into finer ones, the coarsest first, and removes them: each is a probe less.
    ///
    /// The first rules of a shape went into a coarse table, because nobody knew yet how many there would be. The later ones
    /// found its buckets full and opened a finer one.
    fn settle(&mut self, rules: &[RuleKey], shapes: &[Mask], shape_of: &[u32]) {
        let mut coarse_first: Vec<u32> = (0..self.grown.len() as u32).collect();
        coarse_first.sort_by_key(|&t| self.grown[t as usize].bits);
        let mut is_empty = vec![false; self.grown.len()];
        for &t in &coarse_first {
            is_empty[t as usize] = self.is_emptied(t, &is_empty, rules, shapes, shape_of);
        }
        if !is_empty.contains(&true) {
            return;
        }
        let kept = self.grown.drain(..).zip(is_empty);
        let kept: Vec<Growing> = kept.filter(|(_, gone)| !gone).map(|(t, _)| t).collect();
        // The number of a table is part of its hashes.
        for (table, number) in kept.into_iter().zip(self.first..) {
            let mut again = Growing {
                buckets: HashMap::default(),
                ..table
            };
            for bucket in table.buckets.into_values() {
                for rule in bucket.rules {
                    let hash = hash_of(number, &again.mask, &rules[rule as usize].exact);
                    again.buckets.entry(hash).or_default().rules.push(rule);
                }
            }
            self.grown.push(again);
        }
    }

    /// Moves all rules of a table into finer ones that are not gone, or none.
    fn is_emptied(
        &mut self,
        t: u32,
        gone: &[bool],
        rules: &[RuleKey],
        shapes: &[Mask],
        shape_of: &[u32],
    ) -> bool {
        let bits = self.grown[t as usize].bits;
        let mut finer: Vec<u32> = (0..self.grown.len() as u32)
            .filter(|&u| !gone[u as usize] && self.grown[u as usize].bits > bits)
            .collect();
        finer.sort_by_key(|&u| std::cmp::Reverse(self.grown[u as usize].bits));
        let buckets = self.grown[t as usize].buckets.values();
        let mut members: Vec<u32> = buckets.flat_map(|b| b.rules.iter().copied()).collect();
        // The map's order is nobody's business.
        members.sort_unstable();
        let mut open: HashMap<u32, Vec<u32>> = HashMap::new();
        let mut moved = Vec::new();
        for rule in members {
            let shape = shape_of[rule as usize];
            let open = open.entry(shape).or_insert_with(|| {
                let mask = &shapes[shape as usize];
                let fits = |u: &&u32| is_part(&self.grown[**u as usize].mask, mask);
                finer.iter().filter(fits).copied().collect()
            });
            match open.iter().find_map(|&u| self.join(u, rule, rules)) {
                Some(joined) => moved.push(joined),
                None => {
                    for joined in moved.iter().rev() {
                        self.leave(joined);
                    }
                    return false;
                }
            }
        }
        true
    }
}

/// A table that still takes rules in.
struct Growing {
    mask: Mask,
    bits: u32,
    buckets: HashMap<u64, Bucket, BuildHasherDefault<Identity>>,
}

#[derive(Default)]
struct Bucket {
    /// One rule of each different exact key.
    keys: Vec<u32>,
    rules: Vec<u32>,
}

impl Growing {
    fn finish(self) -> Draft {
        let mut buckets: Vec<(u64, Vec<u32>)> = (self.buckets.into_iter())
            .map(|(hash, mut bucket)| {
                bucket.rules.sort_unstable();
                (hash, bucket.rules)
            })
            .collect();
        // The map's order is nobody's business; the plan must not depend on it.
        buckets.sort_unstable_by_key(|(_, rules)| rules[0]);
        Draft {
            mask: self.mask,
            buckets,
        }
    }
}

/// Rules of one shape, and where they may go.
struct Group {
    /// Tables by falling number of bits.
    open: Vec<u32>,
    /// Masks for new tables, from coarse to the shape itself.
    levels: Vec<Mask>,
}

impl Group {
    fn new(mask: &Mask, tables: &[Growing], scheme: Scheme) -> Group {
        if scheme == Scheme::TablePerMask {
            return Group {
                open: Vec::new(),
                levels: vec![mask.clone()],
            };
        }
        let mut open: Vec<u32> = (0..tables.len() as u32)
            .filter(|&t| is_part(&tables[t as usize].mask, mask))
            .collect();
        open.sort_by_key(|&t| std::cmp::Reverse(tables[t as usize].bits));
        let mut levels = vec![
            rounded(mask, 8, true),
            rounded(mask, 8, false),
            rounded(mask, 4, false),
            mask.clone(),
        ];
        levels.dedup();
        Group { open, levels }
    }

    fn place(
        &mut self,
        rule: u32,
        rules: &[RuleKey],
        tables: &mut Tables,
        of_mask: &mut HashMap<Mask, u32>,
    ) {
        let mut open = self.open.iter();
        if open.any(|&t| tables.join(t, rule, rules).is_some()) {
            return;
        }
        let last = self.levels.len() - 1;
        for (level, mask) in self.levels.iter().enumerate() {
            let t = match of_mask.get(mask) {
                // It was open and its bucket full; only the shape itself takes rules beyond that.
                Some(_) if level < last => continue,
                Some(&t) => t,
                None => {
                    let t = tables.grown.len() as u32;
                    of_mask.insert(mask.clone(), t);
                    tables.grown.push(Growing {
                        mask: mask.clone(),
                        bits: bits(mask),
                        buckets: HashMap::default(),
                    });
                    // Finer than the tables the rules of this shape found full.
                    self.open.push(t);
                    self.open
                        .sort_by_key(|&t| std::cmp::Reverse(tables.grown[t as usize].bits));
                    t
                }
            };
            let table = &mut tables.grown[t as usize];
            let hash = hash_of(tables.first + t, &table.mask, &rules[rule as usize].exact);
            let bucket = table.buckets.entry(hash).or_default();
            bucket.keys.push(rule);
            bucket.rules.push(rule);
            return;
        }
    }
}

fn hash_of(table: u32, mask: &[(u8, u64)], exact: &ExactKey) -> u64 {
    let mut words = exact.words.iter();
    let mut h = index::start(table);
    for &(word, mask) in mask {
        let value = words.find(|w| w.word == word).map_or(0, |w| w.value);
        h = index::mix(h, value & mask);
    }
    index::finish(h)
}

fn bits(mask: &Mask) -> u32 {
    mask.iter().map(|(_, mask)| mask.count_ones()).sum()
}

fn is_part(part: &[(u8, u64)], whole: &[(u8, u64)]) -> bool {
    let mut words = whole.iter();
    part.iter()
        .all(|&(word, mask)| words.any(|&(have, of)| have == word && mask & !of == 0))
}

/// A coarser mask: pieces of `unit` bits that are not wholly there are left out. With `drop_ports` also the first L4 word and the
/// classes other than the family, if addresses alone tell rules apart.
fn rounded(mask: &Mask, unit: u32, drop_ports: bool) -> Mask {
    const VALID: u8 = (key::VALID / 8) as u8;
    const L4: u8 = (key::L4 / 8) as u8;
    const FAMILY: u64 = 3;
    let mut out: Mask = mask
        .iter()
        .map(|&(word, mask)| match word {
            VALID => (word, mask),
            _ => (word, whole_pieces(mask, unit)),
        })
        .collect();
    let address: u32 = out.iter().map(|&(w, m)| address_bits(w, m)).sum();
    if drop_ports && address >= 16 {
        for (word, mask) in &mut out {
            match *word {
                VALID => *mask &= FAMILY,
                L4 => *mask = 0,
                _ => {}
            }
        }
    }
    out.retain(|&(_, mask)| mask != 0);
    out
}

fn whole_pieces(mask: u64, unit: u32) -> u64 {
    let piece = (1u64 << unit) - 1;
    (0..64 / unit)
        .map(|i| piece << (i * unit))
        .filter(|piece| mask & piece == *piece)
        .sum()
}

/// Bits of a word's mask that are IPv4 or IPv6 addresses.
fn address_bits(word: u8, mask: u64) -> u32 {
    let bytes = mask.to_ne_bytes();
    (0..8)
        .filter(|i| {
            let at = usize::from(word) * 8 + i;
            (key::IP4 + 12..key::IP4 + 20).contains(&at)
                || (key::IP6 + 8..key::IP6 + 40).contains(&at)
        })
        .map(|i| bytes[i].count_ones())
        .sum()
}

/// The keys are hashes already.
#[derive(Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0 << 8 | u64::from(byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}
