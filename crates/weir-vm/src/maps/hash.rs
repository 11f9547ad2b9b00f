//! The index of hash maps: key -> element number, with least-recently-used order where asked for.
//!
//! Owns keys, free and retired elements; values live in `Map`. Invariant: an element retired during a run is not
//! reused before that run ends. Iteration is by element number and so deterministic; hashing uses fixed keys.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};

use super::{BETWEEN_RUNS, BPF_EXIST, BPF_NOEXIST, SLOTS_MAX};
use crate::errno::{E2BIG, EEXIST, ENOENT};

type FixedHash = BuildHasherDefault<DefaultHasher>;

#[derive(Debug)]
pub(super) struct HashIndex {
    key_size: usize,
    by_key: HashMap<Box<[u8]>, u32, FixedHash>,
    /// Keys by element number.
    keys: Vec<u8>,
    live: Vec<bool>,
    free: Vec<u32>,
    /// Removed in the run `retired_in`; stale pointers may exist until it ends.
    retired: Vec<u32>,
    retired_in: u64,
    order: Option<Order>,
}

impl HashIndex {
    pub(super) fn new(key_size: usize, lru: bool) -> HashIndex {
        HashIndex {
            key_size,
            by_key: HashMap::default(),
            keys: Vec::new(),
            live: Vec::new(),
            free: Vec::new(),
            retired: Vec::new(),
            retired_in: BETWEEN_RUNS,
            order: lru.then(Order::default),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(super) fn find(&self, key: &[u8]) -> Option<u32> {
        self.by_key.get(key).copied()
    }

    /// Makes an element the most recently used one.
    pub(super) fn touch(&mut self, element: u32) {
        if let Some(order) = &mut self.order {
            order.remove(element);
            order.push_front(element);
        }
    }

    pub(super) fn key(&self, element: u32) -> &[u8] {
        let start = element as usize * self.key_size;
        self.keys
            .get(start..start + self.key_size)
            .unwrap_or_default()
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

    /// Finds or makes the element of `key`. As in the kernel, replacing a value that is not per-CPU makes a new
    /// element, so that pointers to the old one keep the old value.
    pub(super) fn place(
        &mut self,
        key: &[u8],
        flags: u64,
        max_entries: u32,
        in_place: bool,
        epoch: u64,
    ) -> Result<u32, i64> {
        let existing = self.find(key);
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
                let key = self.key(oldest).to_vec();
                self.remove(&key, epoch);
            }
            None => {}
        }
        let element = self.take(epoch)?;
        match existing {
            Some(old) => {
                if let Some(entry) = self.by_key.get_mut(key) {
                    *entry = element;
                }
                self.retire(old, epoch);
            }
            None => {
                self.by_key.insert(key.into(), element);
            }
        }
        let start = element as usize * self.key_size;
        if let Some(slot) = self.keys.get_mut(start..start + self.key_size) {
            slot.copy_from_slice(key);
        }
        if let Some(live) = self.live.get_mut(element as usize) {
            *live = true;
        }
        if let Some(order) = &mut self.order {
            order.push_front(element);
        }
        Ok(element)
    }

    pub(super) fn remove(&mut self, key: &[u8], epoch: u64) -> Option<u32> {
        let element = self.by_key.remove(key)?;
        self.retire(element, epoch);
        Some(element)
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
        if element as u64 >= SLOTS_MAX {
            return Err(E2BIG);
        }
        self.live.push(false);
        self.keys.resize((element + 1) * self.key_size, 0);
        Ok(element as u32)
    }
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
