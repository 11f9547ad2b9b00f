//! The fast engine: a bit for the hash of one window of every pattern, buckets of patterns behind the bits, and comparison.
//!
//! Eight windows are hashed from two loads and their bits gathered before the one branch that asks whether any was set: mispredicted branches, not lookups, are what scanning costs.
//! Patterns of one to three bytes have no window. They would set so many bits that all scans would slow down, so they have passes of their own: a vector search for each while they are
//! few, a table of pairs for many.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use aho_corasick::Span;
use aho_corasick::packed::{Config, Searcher};

use super::rarity::{FOLD, rarest_window, rarity};
use super::{Hits, Needle, Pattern};

/// Golden-ratio multiplier: its high bits mix all bits of the window.
const MULTIPLIER: u32 = 0x9e37_79b1;

#[derive(Debug)]
pub(super) struct Prefilter {
    bits: Bits,
    /// Entries of a bucket: from `heads[b]` to `heads[b + 1]`.
    heads: Box<[u32]>,
    head_shift: u32,
    entries: Box<[Entry]>,
    patterns: Box<[Stored]>,
    bytes: Box<[u8]>,
    /// Bytes of the longest pattern.
    longest: usize,
    short: Option<Box<Short>>,
    /// Vector searches for the whole set, if it is small.
    vector: Vector,
}

/// A pattern's window.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Folded bytes of the pattern from the window on, as many as there are, up to eight.
    value: u64,
    /// Which of `value`'s bits count.
    mask: u64,
    /// Bytes of the pattern before the window.
    before: u32,
    /// Which pattern.
    pattern: u32,
}

#[derive(Clone, Copy, Debug)]
struct Stored {
    start: u32,
    len: u32,
    id: u32,
    nocase: bool,
}

/// The table of bits, of the smallest size that leaves most of its bytes empty: 4 KB and 32 KB stay in the first-level cache, the others in the second.
#[derive(Debug, Default)]
enum Bits {
    #[default]
    None,
    Small(Box<[u8; 1 << 12]>),
    Middle(Box<[u8; 1 << 15]>),
    Large(Box<[u8; 1 << 17]>),
    Huge(Box<[u8; 1 << 19]>),
}

impl Bits {
    /// Of these windows, so many of them different.
    fn new(different: usize, windows: impl Iterator<Item = u32>) -> Bits {
        let mut bits = match different {
            0 => Bits::None,
            1..=64 => Bits::Small(empty()),
            65..=1200 => Bits::Middle(empty()),
            1201..=6000 => Bits::Large(empty()),
            _ => Bits::Huge(empty()),
        };
        for window in windows {
            match &mut bits {
                Bits::None => {}
                Bits::Small(t) => set(t, window),
                Bits::Middle(t) => set(t, window),
                Bits::Large(t) => set(t, window),
                Bits::Huge(t) => set(t, window),
            }
        }
        bits
    }

    fn memory(&self) -> usize {
        match self {
            Bits::None => 0,
            Bits::Small(_) => 1 << 12,
            Bits::Middle(_) => 1 << 15,
            Bits::Large(_) => 1 << 17,
            Bits::Huge(_) => 1 << 19,
        }
    }
}

/// Some of the patterns of a set: the bits of their windows, and if they are few a search with vector instructions.
///
/// That search, of the crate that has the other engine, compares 16 or 32 places at once; it is begun anew behind each place that it finds, so where it finds many the table goes on.
#[derive(Debug)]
pub(super) struct Part {
    bits: Bits,
    /// Which, as they are stored.
    patterns: Box<[u32]>,
    vector: Vector,
    /// Which of the short patterns.
    short: Box<[u32]>,
}

/// The vector searches of a set of patterns.
#[derive(Debug, Default)]
struct Vector {
    /// Made when so much was searched that it pays.
    few: OnceLock<Box<[Few]>>,
    /// Bytes that were searched without.
    searched: AtomicUsize,
}

/// Four bytes, and the patterns that have them so many bytes behind their beginning.
type Literals = BTreeMap<[u8; 4], Places>;

/// Patterns, and bytes of them before a place.
type Places = Vec<(u32, u32)>;

/// Four bytes of each of a few patterns, in all cases of their letters.
#[derive(Debug)]
struct Few {
    searcher: Searcher,
    /// Of each four bytes: the patterns that have them, and the bytes before them there.
    patterns: Box<[Places]>,
}

/// Four-byte strings that one vector search is made for at most: it has no more buckets that pay.
const FEW: usize = 64;
/// So many vector searches take about as long as the table.
const SEARCHES: usize = 3;
/// Short patterns that are searched for one by one; the table for more of them is as slow as so many searches.
const FEW_SHORT: usize = 12;
/// Shorter buffers are not worth beginning a vector search.
const LONG: usize = 64;
/// A vector search starts again behind each find. Where finds are closer together than this on average the table is faster.
const APART: usize = 256;
/// Finds in a buffer that are always granted.
const MANY: usize = 8;
/// Vector searches for a part are made when so many bytes were searched without. Making them takes as long as the table takes for about as many.
const PAYS: usize = 1 << 16;

impl Few {
    /// Searches for patterns as they are stored, with their numbers; none if they are not few.
    fn new<'a>(patterns: impl Iterator<Item = (u32, &'a [u8], bool)>) -> Box<[Few]> {
        let mut searches = vec![Literals::new()];
        for (number, bytes, nocase) in patterns {
            // Each letter without case doubles the strings, which costs more than a window that is less rare.
            let letter = |b: &u8| nocase && b.is_ascii_lowercase();
            let cost = |w: &[u8]| -> i32 { 40 << w.iter().filter(|b| letter(b)).count() };
            let best = bytes
                .windows(4)
                .enumerate()
                .max_by_key(|(at, w)| (rarity(w) - cost(w), Reverse(*at)));
            let Some((before, window)) = best else {
                return Box::default();
            };
            let mut literals = Vec::new();
            for cases in 0..16_u8 {
                let upper = |i: usize| cases >> i & 1 != 0;
                if (0..4).all(|i| !upper(i) || letter(&window[i])) {
                    literals.push(std::array::from_fn(|i| match upper(i) {
                        true => window[i].to_ascii_uppercase(),
                        false => window[i],
                    }));
                }
            }
            let fits = |all: &Literals| {
                let new = literals.iter().filter(|l| !all.contains_key(*l));
                all.len() + new.count() <= FEW
            };
            let at = match searches.iter().position(fits) {
                Some(at) => at,
                None if searches.len() == SEARCHES => return Box::default(),
                None => {
                    searches.push(Literals::new());
                    searches.len() - 1
                }
            };
            let all = &mut searches[at];
            for literal in literals {
                all.entry(literal)
                    .or_default()
                    .push((number, before as u32));
            }
        }
        let made: Option<Vec<Few>> = searches
            .into_iter()
            .filter(|all| !all.is_empty())
            .map(|all| {
                Some(Few {
                    searcher: Config::new().builder().extend(all.keys()).build()?,
                    patterns: all.into_values().collect(),
                })
            })
            .collect();
        made.unwrap_or_default().into()
    }

    /// About what one needs; it is made after memory was counted.
    const MOST_MEMORY: usize = 8 << 10;
}

impl Part {
    pub(super) fn memory(&self) -> usize {
        self.bits.memory()
            + (self.patterns.len() + self.short.len()) * 4
            + SEARCHES * Few::MOST_MEMORY
    }
}

/// An empty table; its size is a power of two.
fn empty<const N: usize>() -> Box<[u8; N]> {
    vec![0; N]
        .into_boxed_slice()
        .try_into()
        .unwrap_or_else(|_| Box::new([0; N]))
}

#[inline(always)]
fn hash(window: u32) -> u32 {
    window.wrapping_mul(MULTIPLIER)
}

/// The byte of the table that a hash leads to. The index is below N by construction of the shift, so no bound is checked.
#[inline(always)]
fn cell<const N: usize>(table: &[u8; N], hash: u32) -> u8 {
    table[(hash >> (32 - N.trailing_zeros())) as usize % N]
}

/// The bit of that byte.
#[inline(always)]
fn bit<const N: usize>(hash: u32) -> u8 {
    1 << (hash >> (32 - 3 - N.trailing_zeros()) & 7)
}

fn set<const N: usize>(table: &mut [u8; N], window: u32) {
    let hash = hash(window);
    table[(hash >> (32 - N.trailing_zeros())) as usize % N] |= bit::<N>(hash);
}

impl Prefilter {
    pub(super) fn new(patterns: &[Pattern<'_>]) -> Prefilter {
        let mut stored = Vec::with_capacity(patterns.len());
        let mut bytes = Vec::new();
        let mut short = Short::default();
        let mut windows: Vec<(u32, Entry)> = Vec::new();
        let mut crowd = foldhash::HashMap::<u32, usize>::default();
        for pattern in patterns.iter().filter(|p| !p.bytes.is_empty()) {
            if pattern.bytes.len() < 4 {
                short.add(pattern);
                continue;
            }
            let (before, _) = rarest_window(pattern.bytes, |w| crowd.get(&w).copied().unwrap_or(0));
            let mut value = [0_u8; 8];
            let mut mask = [0_u8; 8];
            for (i, b) in pattern.bytes[before..].iter().take(8).enumerate() {
                value[i] = b | 0x20;
                mask[i] = 0xff;
            }
            let value = u64::from_le_bytes(value);
            *crowd.entry(value as u32).or_default() += 1;
            windows.push((
                value as u32,
                Entry {
                    value,
                    mask: u64::from_le_bytes(mask),
                    before: before as u32,
                    pattern: stored.len() as u32,
                },
            ));
            stored.push(Stored {
                start: bytes.len() as u32,
                len: pattern.bytes.len() as u32,
                id: pattern.id,
                nocase: pattern.nocase,
            });
            if pattern.nocase {
                bytes.extend(pattern.bytes.iter().map(u8::to_ascii_lowercase));
            } else {
                bytes.extend_from_slice(pattern.bytes);
            }
        }
        let bits = Bits::new(crowd.len(), windows.iter().map(|(window, _)| *window));
        let count = (windows.len() * 2).next_power_of_two().max(2);
        let head_shift = 32 - count.trailing_zeros();
        windows.sort_by_key(|(w, e)| (hash(*w) >> head_shift, *w, e.pattern));
        let mut heads = vec![0_u32; count + 1];
        for (window, _) in &windows {
            heads[(hash(*window) >> head_shift) as usize + 1] += 1;
        }
        for i in 1..heads.len() {
            heads[i] += heads[i - 1];
        }
        Prefilter {
            longest: stored.iter().map(|p| p.len as usize).max().unwrap_or(0),
            bits,
            heads: heads.into(),
            head_shift,
            entries: windows.into_iter().map(|(_, e)| e).collect(),
            patterns: stored.into(),
            bytes: bytes.into(),
            short: (!short.is_empty()).then(|| Box::new(short.sorted())),
            vector: Vector::default(),
        }
    }

    pub(super) fn scan(&self, haystack: &[u8], hits: &mut Hits) {
        let few = match self.patterns.len() <= SEARCHES * FEW {
            true => self.searches(&self.vector, 0..self.patterns.len() as u32, haystack),
            false => &[],
        };
        self.scan_with(few, &self.bits, haystack, hits);
        if let Some(short) = &self.short {
            match short.entries.len() <= FEW_SHORT {
                true => short.entries.iter().for_each(|e| e.find(haystack, hits)),
                false => short.scan(haystack, hits),
            }
        }
    }

    /// Searches for some of the patterns; others may be found as well.
    pub(super) fn scan_part(&self, part: &Part, haystack: &[u8], hits: &mut Hits) {
        let few = self.searches(&part.vector, part.patterns.iter().copied(), haystack);
        self.scan_with(few, &part.bits, haystack, hits);
        if let Some(short) = &self.short {
            match part.short.len() <= FEW_SHORT {
                true => {
                    let wanted = part
                        .short
                        .iter()
                        .filter_map(|at| short.entries.get(*at as usize));
                    wanted.for_each(|e| e.find(haystack, hits));
                }
                false => short.scan(haystack, hits),
            }
        }
    }

    fn scan_with(&self, few: &[Few], bits: &Bits, haystack: &[u8], hits: &mut Hits) {
        if few.is_empty() {
            self.scan_from(bits, haystack, 0, hits);
            return;
        }
        for few in few {
            if let Some(from) = self.few(few, haystack, hits) {
                // The table has other windows of the patterns: what was not compared may have begun a pattern's length before. It has those of the other searches as well.
                self.scan_from(bits, haystack, from.saturating_sub(self.longest), hits);
            }
        }
    }

    /// The vector searches for some patterns, if they pay.
    #[inline]
    fn searches<'a>(
        &self,
        vector: &'a Vector,
        patterns: impl Iterator<Item = u32>,
        haystack: &[u8],
    ) -> &'a [Few] {
        if haystack.len() < LONG {
            return &[];
        }
        if let Some(few) = vector.few.get() {
            return few;
        }
        let length = haystack.len();
        let before = vector.searched.fetch_add(length, Ordering::Relaxed);
        if before + length < PAYS {
            return &[];
        }
        vector.few.get_or_init(|| {
            Few::new(patterns.map(|number| {
                let pattern = self.patterns[number as usize];
                (number, self.stored(pattern), pattern.nocase)
            }))
        })
    }

    /// One vector search; returns up to where it went if there are too many finds.
    fn few(&self, few: &Few, haystack: &[u8], hits: &mut Hits) -> Option<usize> {
        let (mut from, mut finds) = (0, 0);
        while finds < MANY + from / APART {
            finds += 1;
            let rest = Span::from(from..haystack.len());
            let found = few.searcher.find_in(haystack, rest)?;
            from = found.start() + 1;
            let patterns = few.patterns.get(found.pattern().as_usize());
            for (pattern, before) in patterns.into_iter().flatten() {
                self.compare(*pattern, *before, haystack, found.start(), hits);
            }
        }
        Some(from)
    }

    /// The patterns whose id is wanted. Their buckets hold the others as well, which only adds hits.
    pub(super) fn part(&self, wanted: impl Fn(u32) -> bool) -> Part {
        let entries = || {
            self.entries
                .iter()
                .filter(|e| wanted(self.patterns[e.pattern as usize].id))
        };
        let mut windows: Vec<u32> = entries().map(|e| e.value as u32).collect();
        // Entries of one window follow each other.
        windows.dedup();
        let short = self.short.iter().flat_map(|s| s.entries.iter()).zip(0..);
        Part {
            short: short
                .filter(|(e, _)| wanted(e.id))
                .map(|(_, at)| at)
                .collect(),
            patterns: entries().map(|e| e.pattern).collect(),
            vector: Vector::default(),
            bits: Bits::new(windows.len(), windows.iter().copied()),
        }
    }

    fn stored(&self, pattern: Stored) -> &[u8] {
        &self.bytes[pattern.start as usize..(pattern.start + pattern.len) as usize]
    }

    /// Looks at the windows that begin at `from` or behind it.
    fn scan_from(&self, bits: &Bits, haystack: &[u8], from: usize, hits: &mut Hits) {
        match bits {
            Bits::None => {}
            Bits::Small(t) => self.windows(t, haystack, from, hits),
            Bits::Middle(t) => self.windows(t, haystack, from, hits),
            Bits::Large(t) => self.windows(t, haystack, from, hits),
            Bits::Huge(t) => self.windows(t, haystack, from, hits),
        }
    }

    #[inline(always)]
    fn windows<const N: usize>(
        &self,
        table: &[u8; N],
        haystack: &[u8],
        from: usize,
        hits: &mut Hits,
    ) {
        const FOLDS: u64 = (FOLD as u64) << 32 | FOLD as u64;
        let mut at = from;
        let mut rest = haystack.get(from..).unwrap_or_default();
        while let Some((low, high)) = eleven(rest) {
            let (low, high) = (low | FOLDS, high | FOLDS);
            let any = |windows: u64| cell(table, hash(windows as u32));
            let found = any(low)
                | any(low >> 8)
                | any(low >> 16)
                | any(low >> 24)
                | any(low >> 32)
                | any(high >> 16)
                | any(high >> 24)
                | any(high >> 32);
            if found != 0 {
                self.eight(table, low, high, haystack, at, hits);
            }
            at += 8;
            rest = rest.get(8..).unwrap_or_default();
        }
        for (i, w) in rest.windows(4).enumerate() {
            let window = u32::from_le_bytes([w[0], w[1], w[2], w[3]]) | FOLD;
            if cell(table, hash(window)) & bit::<N>(hash(window)) != 0 {
                self.bucket(window, haystack, at + i, hits);
            }
        }
    }

    /// Looks at eight windows one by one. `low` are bytes 0 to 7 from `at` on, `high` bytes 3 to 10.
    #[inline(never)]
    fn eight<const N: usize>(
        &self,
        table: &[u8; N],
        low: u64,
        high: u64,
        haystack: &[u8],
        at: usize,
        hits: &mut Hits,
    ) {
        for i in 0..8 {
            let window = if i < 4 {
                low >> (8 * i)
            } else {
                high >> (8 * (i - 3))
            } as u32;
            if cell(table, hash(window)) & bit::<N>(hash(window)) != 0 {
                self.bucket(window, haystack, at + i, hits);
            }
        }
    }

    /// Compares the patterns whose window has this one's hash with what is there.
    #[inline(never)]
    fn bucket(&self, window: u32, haystack: &[u8], at: usize, hits: &mut Hits) {
        let bucket = (hash(window) >> self.head_shift) as usize;
        let (Some(from), Some(to)) = (self.heads.get(bucket), self.heads.get(bucket + 1)) else {
            return;
        };
        let Some(entries) = self.entries.get(*from as usize..*to as usize) else {
            return;
        };
        if entries.is_empty() {
            return;
        }
        let seen = match haystack.get(at..).and_then(<[u8]>::first_chunk::<8>) {
            Some(chunk) => u64::from_le_bytes(*chunk),
            None => {
                // Near the end: bytes that are not there are zero, and a pattern that wants them is too long by its length.
                let mut chunk = [0; 8];
                for (to, from) in chunk.iter_mut().zip(haystack.get(at..).unwrap_or_default()) {
                    *to = *from;
                }
                u64::from_le_bytes(chunk)
            }
        } | (u64::from(FOLD) << 32 | u64::from(FOLD));
        for entry in entries {
            if (seen ^ entry.value) & entry.mask != 0 {
                continue;
            }
            self.compare(entry.pattern, entry.before, haystack, at, hits);
        }
    }

    /// Notes a pattern that is there, beginning so many bytes before a place.
    #[inline]
    fn compare(&self, pattern: u32, before: u32, haystack: &[u8], at: usize, hits: &mut Hits) {
        let pattern = self.patterns[pattern as usize];
        if hits.has(pattern.id) {
            return;
        }
        let start = at.wrapping_sub(before as usize);
        let Some(there) = haystack.get(start..start.wrapping_add(pattern.len as usize)) else {
            return;
        };
        if same(self.stored(pattern), there, pattern.nocase) {
            hits.insert(pattern.id);
        }
    }

    pub(super) fn memory(&self) -> usize {
        self.bits.memory()
            + self.heads.len() * 4
            + size_of_val(&*self.entries)
            + size_of_val(&*self.patterns)
            + self.bytes.len()
            + self.short.as_ref().map_or(0, |s| {
                size_of::<Short>() + s.entries.len() * size_of::<ShortEntry>()
            })
    }
}

/// Bytes 0 to 7 and 3 to 10, if there are so many.
#[inline(always)]
fn eleven(bytes: &[u8]) -> Option<(u64, u64)> {
    let all = bytes.first_chunk::<11>()?;
    let low = all.first_chunk::<8>()?;
    let high = all.last_chunk::<8>()?;
    Some((u64::from_le_bytes(*low), u64::from_le_bytes(*high)))
}

/// Whether bytes are the pattern's; a caseless pattern is stored in lower case.
fn same(wanted: &[u8], there: &[u8], nocase: bool) -> bool {
    if nocase {
        wanted.len() == there.len()
            && wanted
                .iter()
                .zip(there)
                .all(|(w, t)| *w == t.to_ascii_lowercase())
    } else {
        wanted == there
    }
}

/// Patterns of one to three bytes.
#[derive(Debug, Default)]
struct Short {
    /// Folded first bytes of patterns of one byte.
    single: [u64; 4],
    /// Folded pairs that longer patterns begin with, by their low ten bits after mixing; a bit table of 1,024 words.
    pairs: Vec<u64>,
    entries: Vec<ShortEntry>,
    count: usize,
}

#[derive(Debug)]
struct ShortEntry {
    /// First byte, folded, and second byte, folded, if there is one.
    key: u16,
    len: u8,
    bytes: [u8; 3],
    nocase: bool,
    id: u32,
    needle: Needle,
}

impl ShortEntry {
    fn find(&self, haystack: &[u8], hits: &mut Hits) {
        if !hits.has(self.id) && self.needle.find(haystack, 0, haystack.len()).is_some() {
            hits.insert(self.id);
        }
    }
}

impl Short {
    fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn add(&mut self, pattern: &Pattern<'_>) {
        let mut bytes = [0; 3];
        for (to, from) in bytes.iter_mut().zip(pattern.bytes) {
            *to = if pattern.nocase {
                from.to_ascii_lowercase()
            } else {
                *from
            };
        }
        let first = bytes[0] | 0x20;
        let key = if pattern.bytes.len() == 1 {
            self.single[usize::from(first >> 6)] |= 1 << (first & 63);
            u16::from(first)
        } else {
            self.pairs.resize(1024, 0);
            let pair = u16::from_le_bytes([first, bytes[1] | 0x20]);
            self.pairs[usize::from(pair >> 6)] |= 1 << (pair & 63);
            pair
        };
        self.entries.push(ShortEntry {
            key,
            len: pattern.bytes.len() as u8,
            bytes,
            nocase: pattern.nocase,
            id: pattern.id,
            needle: Needle::new(pattern.bytes, pattern.nocase),
        });
        self.count += 1;
    }

    fn sorted(mut self) -> Short {
        self.entries.sort_by_key(|e| (e.len > 1, e.key, e.id));
        self
    }

    fn scan(&self, haystack: &[u8], hits: &mut Hits) {
        let singles = self.entries.partition_point(|e| e.len == 1);
        let (single, longer) = self.entries.split_at(singles);
        // Once all of them are found there is nothing to look for.
        let mut left = self.entries.len();
        for (at, byte) in haystack.iter().enumerate() {
            let first = byte | 0x20;
            if !single.is_empty() && self.single[usize::from(first >> 6)] >> (first & 63) & 1 != 0 {
                left -= check(single, u16::from(first), haystack, at, hits);
            }
            let Some(second) = haystack.get(at + 1) else {
                break;
            };
            let pair = u16::from_le_bytes([first, second | 0x20]);
            let word = self.pairs.get(usize::from(pair >> 6)).copied().unwrap_or(0);
            if word >> (pair & 63) & 1 != 0 {
                left -= check(longer, pair, haystack, at, hits);
            }
            if left == 0 {
                break;
            }
        }
    }
}

/// Compares the short patterns of one key; returns how many were found for the first time.
fn check(entries: &[ShortEntry], key: u16, haystack: &[u8], at: usize, hits: &mut Hits) -> usize {
    let from = entries.partition_point(|e| e.key < key);
    let mut found = 0;
    for e in entries[from..].iter().take_while(|e| e.key == key) {
        if hits.has(e.id) {
            continue;
        }
        let len = usize::from(e.len);
        if let Some(there) = haystack.get(at..at + len)
            && same(&e.bytes[..len], there, e.nocase)
        {
            hits.insert(e.id);
            found += 1;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a part finds beyond what is wanted does no harm; what it misses would.
    #[test]
    fn a_part_finds_what_is_wanted_of_it() {
        let mut state = 7_u64;
        let mut random = |below: usize| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 33) as usize % below
        };
        let (mut searched, mut found) = (0, 0);
        for round in 0..300 {
            // Few letters, so that buffers are full of windows and of half patterns.
            let letters = [b"abAB".as_slice(), b"aAzZ09\x00\xff %", b"ab\x01\x41\x61"][round % 3];
            let mut bytes = |least: usize, most: usize| -> Vec<u8> {
                (0..least + random(most))
                    .map(|_| letters[random(letters.len())])
                    .collect()
            };
            let patterns: Vec<(Vec<u8>, bool)> = (0..1 + round % 90)
                .map(|n| (bytes(4, 12), n % 3 == 0))
                .collect();
            let buffers: Vec<Vec<u8>> = (0..20).map(|n| bytes(0, 40 + 20 * n)).collect();
            let set: Vec<Pattern<'_>> = (0..)
                .zip(&patterns)
                .map(|(id, (bytes, nocase))| Pattern {
                    bytes,
                    nocase: *nocase,
                    id,
                })
                .collect();
            let all = Prefilter::new(&set);
            let wanted = |id: u32| id as usize % 4 < 1 + round % 4;
            let part = all.part(wanted);
            // As if so much had been searched already; every other time.
            let pays = round % 2 == 0;
            for vector in [&part.vector, &all.vector] {
                vector
                    .searched
                    .store(if pays { PAYS } else { 0 }, Ordering::Relaxed);
            }
            for buffer in &buffers {
                let (mut of_all, mut of_part) = (Hits::new(set.len()), Hits::new(set.len()));
                of_all.clear();
                of_part.clear();
                all.scan(buffer, &mut of_all);
                all.scan_part(&part, buffer, &mut of_part);
                searched += usize::from(part.vector.few.get().is_some_and(|few| !few.is_empty()));
                for id in of_all.ids().iter().filter(|id| wanted(**id)) {
                    found += 1;
                    assert!(
                        of_part.has(*id),
                        "{:?} in {buffer:?}",
                        patterns[*id as usize]
                    );
                }
                for id in of_part.ids() {
                    assert!(
                        of_all.has(*id),
                        "{:?} in {buffer:?}",
                        patterns[*id as usize]
                    );
                }
            }
        }
        assert!(searched > 100 && found > 1000, "{searched} {found}");
    }
}
