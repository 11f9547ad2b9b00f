//! Which tables a packet may skip. For a 16-bit piece of the flat key, each value has a bitmap of the tables that hold a rule which
//! that value does not exclude; the data plane ANDs the bitmaps of a few pieces and probes what is left.
//!
//! Exact for prefixes, masks and, in fields of their own 16 bits, for ranges and sets; anything else excludes nothing. Pieces are chosen
//! by what they save on packets made from the rules themselves.

use std::collections::{HashMap, HashSet};

use weir_bpf::abi::{Cond, DIMS, DimRows, KEY_WORDS, cond_op};

use crate::model::{half_of, intervals};
use crate::{Draft, Pruning, RuleSet, bitmap_words};

/// Fewer tables are simply probed.
const SMALL: usize = 4;
/// Pieces looked at closely, by the number of rules they concern.
const CANDIDATES: usize = 20;
/// Packets made up to judge pieces.
const SAMPLES: usize = 512;
/// Tables a piece must save a packet on average; a lookup in it costs about a third of a probe.
const WORTH: f64 = 0.4;
/// Room for all rows, in 64-bit words.
const MAX_ROWS: usize = 1 << 22;
/// Rules looked at, in all, to bound how many can match at once.
const SPLIT_BUDGET: usize = 1 << 20;
/// Values of a piece.
const VALUES: usize = 1 << 16;
/// Sets of more intervals are not spread over a piece.
const MAX_SET: u32 = 4096;

/// Chooses pieces and computes their bitmaps.
pub(crate) fn choose(set: &RuleSet<'_>, drafts: &[Draft]) -> Pruning {
    let mut pruning = Pruning::default();
    if drafts.len() <= SMALL {
        return pruning;
    }
    let words = bitmap_words(drafts.len());
    let packets = packets(set);
    // Wide bitmaps are large: look at fewer pieces then.
    let closely = (CANDIDATES * 4 / words).clamp(DIMS, CANDIDATES);
    let mut pieces: Vec<Piece> = most_used(set, closely)
        .into_iter()
        .map(|half| Piece::new(set, drafts, half))
        .collect();
    let all: Vec<u64> = (0..words).map(|w| ones(drafts.len(), w)).collect();
    let mut left: Vec<Vec<u64>> = vec![all; packets.len()];
    while pruning.halves.len() < DIMS {
        let probes = |left: &[Vec<u64>], piece: Option<&Piece>| -> u64 {
            let mut sum = 0;
            for (packet, left) in packets.iter().zip(left) {
                let row = piece.map(|p| p.bitmap(half_of(packet, p.half)));
                for w in 0..words {
                    sum += u64::from((left[w] & row.map_or(!0, |r| r[w])).count_ones());
                }
            }
            sum
        };
        let before = probes(&left, None);
        let best = (0..pieces.len()).min_by_key(|&i| probes(&left, Some(&pieces[i])));
        let Some(best) = best else { break };
        let saved = before - probes(&left, Some(&pieces[best]));
        if (saved as f64) < WORTH * packets.len() as f64 {
            break;
        }
        let piece = pieces.swap_remove(best);
        if !piece.keep(&mut pruning) {
            continue;
        }
        for (packet, left) in packets.iter().zip(&mut left) {
            let row = piece.bitmap(half_of(packet, piece.half));
            left.iter_mut().zip(row).for_each(|(l, r)| *l &= r);
        }
    }
    pruning
}

/// Tables a packet may have to probe at most: the largest bitmap of the piece that bounds best.
pub(crate) fn most(pruning: &Pruning, tables: usize) -> usize {
    let words = bitmap_words(tables);
    let ends = pruning.row_first.iter().skip(1).map(|&f| f as usize);
    let ends = ends.chain([pruning.rows.len() / words]);
    (pruning.row_first.iter().zip(ends))
        .filter_map(|(&first, end)| {
            pruning.rows[first as usize * words..end * words]
                .chunks_exact(words)
                .map(|row| row.iter().map(|w| w.count_ones() as usize).sum())
                .max()
        })
        .min()
        .unwrap_or(tables)
        .min(tables)
}

/// An upper bound on how many of the rules one packet can match, at most `enough` if it can be shown.
pub(crate) fn most_at_once(set: &RuleSet<'_>, rules: &[u32], enough: usize) -> usize {
    if rules.len() <= enough {
        return rules.len();
    }
    let halves = most_used(set, CANDIDATES);
    let mut budget = SPLIT_BUDGET;
    split(set, &halves, rules, enough, &mut budget)
}

/// The bound for the largest group of rules that one value of the best piece leaves; groups beyond `enough` are split again.
fn split(
    set: &RuleSet<'_>,
    halves: &[u8],
    rules: &[u32],
    enough: usize,
    budget: &mut usize,
) -> usize {
    if rules.len() <= enough || *budget < rules.len() {
        return rules.len();
    }
    *budget -= rules.len();
    let best = (halves.iter())
        .map(|&half| (half, admitted(set, rules, half)))
        .min_by_key(|(_, counts)| counts.iter().copied().max());
    let Some((half, counts)) = best else {
        return rules.len();
    };
    let most = counts.iter().copied().max().unwrap_or(0) as usize;
    if most >= rules.len() {
        return rules.len();
    }
    let mut bound = most.min(enough);
    let mut seen: HashSet<Vec<u32>> = HashSet::new();
    // The largest group first: one that stays together ends the search.
    let mut values: Vec<u16> = (0..=u16::MAX).collect();
    values.sort_by_key(|&value| std::cmp::Reverse(counts[usize::from(value)]));
    for value in values {
        if counts[usize::from(value)] as usize <= bound.max(enough) {
            break;
        }
        if *budget < rules.len() {
            return most;
        }
        *budget -= rules.len();
        let group: Vec<u32> = (rules.iter().copied())
            .filter(|&rule| limit(set, rule, half).admits(value))
            .collect();
        if seen.contains(&group) {
            continue;
        }
        bound = bound.max(split(set, halves, &group, enough, budget));
        seen.insert(group);
    }
    bound
}

/// How many of the rules each value of a piece leaves.
fn admitted(set: &RuleSet<'_>, rules: &[u32], half: u8) -> Vec<u32> {
    let mut of_limit: HashMap<Limit, i64> = HashMap::new();
    for &rule in rules {
        *of_limit.entry(limit(set, rule, half)).or_default() += 1;
    }
    // Changes from one value to the next.
    let mut steps = vec![0i64; VALUES + 1];
    for (limit, n) in of_limit {
        limit.runs(|lo, hi| {
            steps[usize::from(lo)] += n;
            steps[usize::from(hi) + 1] -= n;
        });
    }
    let mut sum = 0;
    let running = steps[..VALUES].iter().map(|step| {
        sum += step;
        sum as u32
    });
    running.collect()
}

/// Values of a piece that a rule leaves open.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Limit {
    /// All.
    None,
    /// Those with these bits.
    Bits { mask: u16, value: u16 },
    /// Those in some interval.
    In(Vec<(u16, u16)>),
}

impl Limit {
    /// First and last of each run of values.
    fn runs(&self, mut visit: impl FnMut(u16, u16)) {
        match self {
            Limit::None => visit(0, u16::MAX),
            Limit::Bits { mask, value } => {
                // Open bits at the low end make a run; the others are counted through, jumping over the gaps.
                let low = mask.trailing_zeros().min(16);
                let run = ((1u32 << low) - 1) as u16;
                let fixed = mask | run;
                let mut bits = 0u16;
                loop {
                    visit(value | bits, value | bits | run);
                    bits = (bits | fixed).wrapping_add(1) & !fixed;
                    if bits == 0 {
                        break;
                    }
                }
            }
            Limit::In(intervals) => intervals.iter().for_each(|&(lo, hi)| visit(lo, hi)),
        }
    }

    fn admits(&self, x: u16) -> bool {
        match self {
            Limit::None => true,
            Limit::Bits { mask, value } => x & mask == *value,
            Limit::In(intervals) => intervals.iter().any(|&(lo, hi)| lo <= x && x <= hi),
        }
    }
}

fn limit(set: &RuleSet<'_>, rule: u32, half: u8) -> Limit {
    let word = half / 4;
    let (mut mask, mut value) = (0, 0);
    if let Some(exact) = (set.rules[rule as usize].exact.words().iter()).find(|w| w.word == word) {
        mask = piece(exact.mask, half);
        value = piece(exact.value, half);
    }
    let ranges = (set.conds_of(rule).iter()).find_map(|cond| spread(cond, set, half));
    match ranges {
        // Of the two the one that leaves fewer values.
        Some(ranges) if open(&ranges) < 1 << mask.count_zeros() => Limit::In(ranges),
        _ if mask == 0 => Limit::None,
        _ => Limit::Bits { mask, value },
    }
}

fn open(ranges: &[(u16, u16)]) -> u32 {
    ranges
        .iter()
        .map(|&(lo, hi)| u32::from(hi) - u32::from(lo) + 1)
        .sum()
}

/// Values of a piece that a condition leaves open; `None` if it says nothing about the piece.
fn spread(cond: &Cond, set: &RuleSet<'_>, half: u8) -> Option<Vec<(u16, u16)>> {
    if cond.op != cond_op::RANGE && (cond.op != cond_op::SET || cond.set_count > MAX_SET) {
        return None;
    }
    let (at, width) = (usize::from(half) * 2, usize::from(cond.width));
    let off = usize::from(cond.off);
    let whole = cond.shift == 0 && (width == 16 || cond.mask == u64::MAX >> (64 - width * 8));
    if !whole || off % 2 != 0 || at < off || at + 2 > off + width {
        return None;
    }
    let below = (off + width - at - 2) * 8;
    let mut out: Vec<(u16, u16)> = Vec::new();
    for (lo, hi) in intervals(cond, set.intervals) {
        // Only if the pieces above are the same for the whole interval is the bound of this piece meant.
        if lo.checked_shr(below as u32 + 16) != hi.checked_shr(below as u32 + 16) {
            return None;
        }
        out.push(((lo >> below) as u16, (hi >> below) as u16));
    }
    if cond.flags & cond_op::NEGATED == 0 {
        out.sort_unstable();
        let mut joined: Vec<(u16, u16)> = Vec::with_capacity(out.len());
        for (lo, hi) in out {
            match joined.last_mut() {
                Some((_, end)) if lo <= *end => *end = hi.max(*end),
                _ => joined.push((lo, hi)),
            }
        }
        return Some(joined);
    }
    if width != 2 {
        return None;
    }
    out.sort_unstable();
    let (mut outside, mut from) = (Vec::new(), 0u32);
    for (lo, hi) in out {
        if u32::from(lo) > from {
            outside.push((from as u16, lo - 1));
        }
        from = from.max(u32::from(hi) + 1);
    }
    if from < VALUES as u32 {
        outside.push((from as u16, u16::MAX));
    }
    Some(outside)
}

/// A piece of a word, as a big-endian number.
fn piece(word: u64, half: u8) -> u16 {
    let bytes = word.to_ne_bytes();
    let at = usize::from(half % 4) * 2;
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Pieces that say something about the most rules.
fn most_used(set: &RuleSet<'_>, n: usize) -> Vec<u8> {
    let mut uses = vec![0u32; KEY_WORDS * 4];
    for rule in set.rules {
        for word in rule.exact.words() {
            for half in word.word * 4..word.word * 4 + 4 {
                uses[usize::from(half)] += u32::from(piece(word.mask, half) != 0);
            }
        }
        let conds = &set.conds[rule.cond_first as usize..][..rule.cond_count as usize];
        for cond in conds.iter().filter(|c| c.op <= cond_op::SET) {
            let end = (cond.off + u16::from(cond.width)).div_ceil(2).max(1);
            uses[usize::from(end) - 1] += 1;
        }
    }
    let mut halves: Vec<u8> = (0..uses.len() as u8)
        .filter(|&h| uses[usize::from(h)] > 0)
        .collect();
    halves.sort_by_key(|&h| std::cmp::Reverse(uses[usize::from(h)]));
    halves.truncate(n);
    halves
}

/// Bitmaps of one piece. Values between two bounds of rules have the same one, and it is kept once: most sets know few values of most pieces.
struct Piece {
    half: u8,
    words: usize,
    /// The first value of each run of equal bitmaps, ascending; the first is 0.
    starts: Vec<u16>,
    /// A bitmap for each of `starts`.
    bits: Vec<u64>,
}

impl Piece {
    fn new(set: &RuleSet<'_>, drafts: &[Draft], half: u8) -> Piece {
        let words = bitmap_words(drafts.len());
        let mut everywhere = vec![0u64; words];
        let mut done: HashSet<Limit> = HashSet::new();
        // Values that a table holds rules for.
        let mut held: Vec<(usize, u16, u16)> = Vec::new();
        for (table, draft) in drafts.iter().enumerate() {
            done.clear();
            for &rule in draft.buckets.iter().flat_map(|(_, rules)| rules) {
                let limit = limit(set, rule, half);
                if limit == Limit::None {
                    everywhere[table / 64] |= 1 << (table % 64);
                    break;
                }
                done.insert(limit);
            }
            if everywhere[table / 64] & 1 << (table % 64) != 0 {
                continue;
            }
            // Joined: many wide ranges would otherwise write the same values again and again.
            let mut runs = Vec::new();
            done.iter()
                .for_each(|limit| limit.runs(|lo, hi| runs.push((lo, hi))));
            runs.sort_unstable();
            let mut next = 0;
            for (lo, hi) in runs {
                let (lo, hi) = (usize::from(lo).max(next), usize::from(hi));
                if lo <= hi {
                    held.push((table, lo as u16, hi as u16));
                    next = hi + 1;
                }
            }
        }
        let ends = held.iter().filter_map(|&(_, _, hi)| hi.checked_add(1));
        let mut starts: Vec<u16> = held.iter().map(|&(_, lo, _)| lo).chain(ends).collect();
        starts.push(0);
        starts.sort_unstable();
        starts.dedup();
        let mut bits = everywhere.repeat(starts.len());
        for (table, lo, hi) in held {
            let first = starts.partition_point(|&start| start < lo);
            let runs = starts[first..].iter().take_while(|&&start| start <= hi);
            for run in (first..).zip(runs).map(|(run, _)| run) {
                bits[run * words + table / 64] |= 1 << (table % 64);
            }
        }
        Piece {
            half,
            words,
            starts,
            bits,
        }
    }

    fn bitmap(&self, value: u16) -> &[u64] {
        let run = self.starts.partition_point(|&start| start <= value) - 1;
        &self.bits[run * self.words..][..self.words]
    }

    /// Adds the piece to the plan, equal bitmaps once. `false` if there is no room.
    fn keep(&self, pruning: &mut Pruning) -> bool {
        let start = pruning.rows.len();
        let mut known: HashMap<&[u64], u16> = HashMap::new();
        let mut rows = Vec::new();
        let mut dim = vec![DimRows::default(); VALUES / 32];
        let ends = self.starts.iter().skip(1).map(|&end| usize::from(end));
        let runs = self.starts.iter().zip(ends.chain([VALUES]));
        for ((&first, end), bitmap) in runs.zip(self.bits.chunks_exact(self.words)) {
            let next = known.len();
            let row = *known.entry(bitmap).or_insert_with(|| {
                rows.extend_from_slice(bitmap);
                next as u16
            });
            for value in usize::from(first)..end {
                dim[value / 32].row[value % 32] = row;
            }
        }
        if start + rows.len() > MAX_ROWS {
            return false;
        }
        pruning.halves.push(self.half);
        pruning.row_first.push((start / self.words) as u32);
        pruning.dim_rows.extend(dim);
        pruning.rows.extend(rows);
        true
    }
}

fn ones(tables: usize, word: usize) -> u64 {
    match tables - word * 64 {
        n if n >= 64 => !0,
        n => (1 << n) - 1,
    }
}

/// Flat keys that match rules spread over the set; bits a rule leaves open come from another rule.
fn packets(set: &RuleSet<'_>) -> Vec<[u64; KEY_WORDS]> {
    let n = set.rules.len();
    if n == 0 {
        return Vec::new();
    }
    let mut seed = 0x2545_f491_4f6c_dd1du64;
    let mut random = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    (0..SAMPLES)
        .map(|i| {
            let mut flat = [0; KEY_WORDS];
            let other = random() as usize % n;
            for rule in [other, i * n / SAMPLES] {
                for w in set.rules[rule].exact.words() {
                    let at = &mut flat[usize::from(w.word)];
                    *at = *at & !w.mask | w.value;
                    // What both leave open in these words is anything.
                    if rule == other && w.word != 0 {
                        *at |= random() & !w.mask;
                    }
                }
            }
            flat
        })
        .collect()
}
