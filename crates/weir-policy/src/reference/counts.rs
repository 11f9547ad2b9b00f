//! Limits of connections at a time: docs/semantics.md section 3, "Connections at a time".
//!
//! Each rule has a table of its own: buckets of four names, each with the connections that it opened. A name of which none is open may be
//! forgotten, no other. Buckets that no packet met are not there.

use std::collections::HashMap;

use weir_packet::Reason;
use weir_packet::parse::Ip;

use super::draw::splitmix64;
use super::limits::{buckets, name};
use crate::model::Per;

/// Names of a bucket.
const WAYS: usize = 4;

/// The tables of all rules; `Id` names a connection.
#[derive(Clone, Debug)]
pub(super) struct Tables<Id> {
    /// By rule and number of the bucket.
    buckets: HashMap<(u32, u64), [List<Id>; WAYS]>,
}

/// Connections under a name; the name 0 is nobody's.
#[derive(Clone, Debug)]
struct List<Id> {
    name: u64,
    connections: Vec<Id>,
}

impl<Id> Default for Tables<Id> {
    fn default() -> Self {
        Tables {
            buckets: HashMap::new(),
        }
    }
}

impl<Id> Default for List<Id> {
    fn default() -> Self {
        List {
            name: 0,
            connections: Vec::new(),
        }
    }
}

/// A limit of a rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    pub(super) rule: u32,
    pub(super) most: u32,
    /// `None`: all of the rule together.
    pub(super) per: Option<Per>,
    /// `limits N` of the policy.
    pub(super) room: u32,
}

impl Limit {
    /// What a connection is counted under, and its bucket. The key is that of replay.
    fn place(&self, frame: &[u8], ip: &Ip) -> (u64, u64) {
        match self.per {
            None => (splitmix64(u64::from(self.rule)) | 1, 0),
            Some(per) => {
                let name = name(self.rule, per, frame, ip);
                (name, (name >> 32) % buckets(self.room))
            }
        }
    }
}

impl<Id: Copy> List<Id> {
    fn open(&self, is_open: &impl Fn(Id) -> bool) -> usize {
        self.connections.iter().filter(|id| is_open(**id)).count()
    }
}

impl<Id: Copy> Tables<Id> {
    /// Why a packet may not open a connection, if it may not.
    pub(super) fn refusal(
        &self,
        limit: &Limit,
        frame: &[u8],
        ip: &Ip,
        is_open: impl Fn(Id) -> bool,
    ) -> Option<Reason> {
        let (name, bucket) = limit.place(frame, ip);
        let lists = self.buckets.get(&(limit.rule, bucket))?;
        if let Some(list) = lists.iter().find(|list| list.name == name) {
            return (list.open(&is_open) >= limit.most as usize).then_some(Reason::RuleDrop);
        }
        let has_room = lists.iter().any(|list| list.open(&is_open) == 0);
        (!has_room).then_some(Reason::LimitFull)
    }

    /// Counts a connection that a packet opened.
    pub(super) fn count(
        &mut self,
        limit: &Limit,
        frame: &[u8],
        ip: &Ip,
        opened: Id,
        is_open: impl Fn(Id) -> bool,
    ) {
        let (name, bucket) = limit.place(frame, ip);
        let lists = self.buckets.entry((limit.rule, bucket)).or_default();
        let known = lists.iter().position(|list| list.name == name);
        let unused = || lists.iter().position(|list| list.open(&is_open) == 0);
        let Some(at) = known.or_else(unused) else {
            return;
        };
        let list = &mut lists[at];
        list.name = name;
        list.connections.retain(|id| is_open(*id));
        // One that `accept` let in above the limit is not counted.
        if list.connections.len() < limit.most as usize {
            list.connections.push(opened);
        }
    }
}
