//! The index of hash maps: key -> element number, with least-recently-used order where asked for.
//!
//! Owns the table, free and retired elements; keys and values live in `Values`. Invariant: an element retired during a
//! run is not reused before that run ends. Iteration is by element number and so deterministic: the hash has a random
//! seed for each map, against keys chosen to collide, and no result depends on it. Generated code probes the same table.

use std::hash::{BuildHasher, Hasher, RandomState};

use super::values::Values;
use super::{BETWEEN_RUNS, BPF_EXIST, BPF_NOEXIST};
use crate::errno::{E2BIG, EEXIST, ENOENT, ENOMEM};
use crate::jit::Block;

/// Buckets of a new table; tables double when half full.
const BUCKETS_MIN: usize = 8;

/// A bucket is two words: hash << 32 | element + 1, or 0 if empty; and the address of the element's value.
const BUCKET_WORDS: usize = 2;

/// Multiplier of the hash (any odd number with well mixed bits will do).
pub(crate) const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Set in every hash, so that none is the 0 of an empty bucket.
pub(crate) const TAGGED: u32 = 1 << 31;

#[derive(Debug)]
pub(super) struct HashIndex {
    seed: u64,
    table: Block,
    /// Buckets less one.
    mask: usize,
    /// Address of the table and the mask, for generated code: the table moves when it grows, this does not.
    head: Block,
    used: usize,
    live: Vec<bool>,
    free: Vec<u32>,
    /// Removed in the run `retired_in`; stale pointers may exist until it ends.
    retired: Vec<u32>,
    retired_in: u64,
    /// Elements that have addresses, those of values that are stale included.
    most: u64,
    order: Option<Order>,
}

impl HashIndex {
    /// An empty index of at most `most` elements, stale ones included; nothing when there is no memory.
    pub(super) fn new(lru: bool, most: u64) -> Option<HashIndex> {
        let mut index = HashIndex {
            seed: RandomState::new().build_hasher().finish(),
            table: Block::zeroed(BUCKETS_MIN * BUCKET_WORDS * 8)?,
            mask: BUCKETS_MIN - 1,
            head: Block::zeroed(16)?,
            used: 0,
            live: Vec::new(),
            free: Vec::new(),
            retired: Vec::new(),
            retired_in: BETWEEN_RUNS,
            most,
            order: lru.then(Order::default),
        };
        index.publish();
        Some(index)
    }

    pub(super) fn len(&self) -> usize {
        self.used
    }

    /// Seed of the hash and address of {table, mask}; nothing if looking an element up changes the order.
    pub(super) fn native(&self) -> Option<(u64, u64)> {
        self.order
            .is_none()
            .then(|| (self.seed, self.head.address()))
    }

    pub(super) fn find(&self, values: &Values, key: &[u8]) -> Option<u32> {
        let tag = hash(self.seed, key);
        let buckets = self.table.words();
        let mut at = tag as usize & self.mask;
        loop {
            let word = *buckets.get(at * BUCKET_WORDS)?;
            if word == 0 {
                return None;
            }
            let element = (word as u32).wrapping_sub(1);
            if (word >> 32) as u32 == tag && values.key(element) == key {
                return Some(element);
            }
            at = (at + 1) & self.mask;
        }
    }

    /// Makes an element the most recently used one.
    pub(super) fn touch(&mut self, element: u32) {
        if let Some(order) = &mut self.order {
            order.remove(element);
            order.push_front(element);
        }
    }

    pub(super) fn is_live(&self, element: u32) -> bool {
        self.live.get(element as usize) == Some(&true)
    }

    pub(super) fn elements(&self) -> impl Iterator<Item = u32> + '_ {
        self.live
            .iter()
            .zip(0u32..)
            .filter(|(live, _)| **live)
            .map(|(_, e)| e)
    }

    /// Finds or makes the element of `key`, with memory. As in the kernel, replacing a value that is not per-CPU makes
    /// a new element, so that pointers to the old one keep the old value.
    pub(super) fn place(
        &mut self,
        values: &mut Values,
        key: &[u8],
        flags: u64,
        max_entries: u32,
        in_place: bool,
        epoch: u64,
    ) -> Result<u32, i64> {
        let existing = self.find(values, key);
        match existing {
            Some(_) if flags == BPF_NOEXIST => return Err(EEXIST),
            None if flags == BPF_EXIST => return Err(ENOENT),
            Some(element) if in_place => {
                self.touch(element);
                return Ok(element);
            }
            Some(_) => {}
            None if self.len() >= max_entries as usize => {
                let oldest = self.order.as_ref().and_then(|o| o.last).ok_or(E2BIG)?;
                let key = values.key(oldest).to_vec();
                self.remove(values, &key, epoch);
            }
            None => {}
        }
        let element = self.take(epoch)?;
        if let Err(errno) = values.reserve(element).and_then(|()| self.grow()) {
            self.free.push(element);
            return Err(errno);
        }
        values.set_key(element, key);
        if let Some(old) = existing {
            self.unlink(old, hash(self.seed, key));
            self.retire(old, epoch);
        }
        self.link(element, hash(self.seed, key), values.address_of(element));
        if let Some(live) = self.live.get_mut(element as usize) {
            *live = true;
        }
        if let Some(order) = &mut self.order {
            order.push_front(element);
        }
        Ok(element)
    }

    pub(super) fn remove(&mut self, values: &Values, key: &[u8], epoch: u64) -> Option<u32> {
        let element = self.find(values, key)?;
        self.unlink(element, hash(self.seed, key));
        self.retire(element, epoch);
        Some(element)
    }

    /// Puts an element into the first empty bucket from its own on; there is one, as the table is at most half full.
    fn link(&mut self, element: u32, tag: u32, address: u64) {
        let buckets = self.table.words_mut();
        let mut at = tag as usize & self.mask;
        while buckets.get(at * BUCKET_WORDS).is_some_and(|w| *w != 0) {
            at = (at + 1) & self.mask;
        }
        let bucket = buckets.get_mut(at * BUCKET_WORDS..(at + 1) * BUCKET_WORDS);
        if let Some([word, pointer]) = bucket {
            *word = (u64::from(tag) << 32) | u64::from(element + 1);
            *pointer = address;
            self.used += 1;
        }
    }

    /// Empties an element's bucket and closes the gap, so that probing may stop at the first empty one.
    fn unlink(&mut self, element: u32, tag: u32) {
        let mask = self.mask;
        let buckets = self.table.words_mut();
        let word = (u64::from(tag) << 32) | u64::from(element + 1);
        let mut gap = tag as usize & mask;
        loop {
            match buckets.get(gap * BUCKET_WORDS) {
                Some(w) if *w == word => break,
                None | Some(0) => return,
                Some(_) => gap = (gap + 1) & mask,
            }
        }
        let mut next = gap;
        loop {
            next = (next + 1) & mask;
            let Some(moved) = buckets.get(next * BUCKET_WORDS).filter(|w| **w != 0) else {
                break;
            };
            // An entry may move back to the gap unless its own bucket lies behind the gap.
            let home = (moved >> 32) as usize & mask;
            if next.wrapping_sub(home) & mask >= next.wrapping_sub(gap) & mask {
                buckets.copy_within(
                    next * BUCKET_WORDS..(next + 1) * BUCKET_WORDS,
                    gap * BUCKET_WORDS,
                );
                gap = next;
            }
        }
        if let Some(bucket) = buckets.get_mut(gap * BUCKET_WORDS..(gap + 1) * BUCKET_WORDS) {
            bucket.fill(0);
            self.used -= 1;
        }
    }

    /// Makes room for one entry more.
    fn grow(&mut self) -> Result<(), i64> {
        let buckets = self.mask + 1;
        if (self.used + 1) * 2 <= buckets {
            return Ok(());
        }
        let larger = Block::zeroed(2 * buckets * BUCKET_WORDS * 8).ok_or(ENOMEM)?;
        let old = std::mem::replace(&mut self.table, larger);
        self.mask = 2 * buckets - 1;
        self.used = 0;
        self.publish();
        for bucket in old.words().as_chunks::<BUCKET_WORDS>().0 {
            if bucket[0] != 0 {
                let element = (bucket[0] as u32) - 1;
                self.link(element, (bucket[0] >> 32) as u32, bucket[1]);
            }
        }
        Ok(())
    }

    fn publish(&mut self) {
        let (table, mask) = (self.table.address(), self.mask as u64);
        if let [first, second, ..] = self.head.words_mut() {
            *first = table;
            *second = mask;
        }
    }

    fn retire(&mut self, element: u32, epoch: u64) {
        if let Some(live) = self.live.get_mut(element as usize) {
            *live = false;
        }
        if let Some(order) = &mut self.order {
            order.remove(element);
        }
        self.release(epoch);
        self.retired_in = epoch;
        self.retired.push(element);
    }

    /// Makes elements retired in earlier runs reusable.
    fn release(&mut self, epoch: u64) {
        if self.retired_in != epoch || epoch == BETWEEN_RUNS {
            self.free.append(&mut self.retired);
        }
    }

    fn take(&mut self, epoch: u64) -> Result<u32, i64> {
        self.release(epoch);
        if let Some(element) = self.free.pop() {
            return Ok(element);
        }
        let element = self.live.len();
        if element as u64 >= self.most {
            return Err(E2BIG);
        }
        self.live.push(false);
        Ok(element as u32)
    }
}

/// The hash of a key: of each eight bytes (the last ones padded with zeros) a 128-bit product folded in half.
pub(crate) fn hash(seed: u64, key: &[u8]) -> u32 {
    let (words, rest) = key.as_chunks::<8>();
    let mut hash = seed;
    for word in words {
        hash = fold(hash ^ u64::from_le_bytes(*word));
    }
    if !rest.is_empty() {
        let mut last = [0; 8];
        for (to, from) in last.iter_mut().zip(rest) {
            *to = *from;
        }
        hash = fold(hash ^ u64::from_le_bytes(last));
    }
    hash as u32 | TAGGED
}

fn fold(word: u64) -> u64 {
    let product = u128::from(word) * u128::from(MULTIPLIER);
    product as u64 ^ (product >> 64) as u64
}

/// A doubly linked list of element numbers, most recently used first.
#[derive(Debug, Default)]
struct Order {
    links: Vec<Link>,
    first: Option<u32>,
    last: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Link {
    previous: Option<u32>,
    next: Option<u32>,
    linked: bool,
}

impl Order {
    fn push_front(&mut self, element: u32) {
        let index = element as usize;
        if self.links.len() <= index {
            self.links.resize(index + 1, Link::default());
        }
        let old = self.first;
        if let Some(link) = self.links.get_mut(index) {
            *link = Link {
                previous: None,
                next: old,
                linked: true,
            };
        }
        match old.and_then(|o| self.links.get_mut(o as usize)) {
            Some(link) => link.previous = Some(element),
            None => self.last = Some(element),
        }
        self.first = Some(element);
    }

    fn remove(&mut self, element: u32) {
        let Some(link) = self.links.get_mut(element as usize).filter(|l| l.linked) else {
            return;
        };
        let Link { previous, next, .. } = *link;
        *link = Link::default();
        match previous.and_then(|p| self.links.get_mut(p as usize)) {
            Some(p) => p.next = next,
            None => self.first = next,
        }
        match next.and_then(|n| self.links.get_mut(n as usize)) {
            Some(n) => n.previous = previous,
            None => self.last = previous,
        }
    }
}
