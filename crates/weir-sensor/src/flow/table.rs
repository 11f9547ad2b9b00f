//! The table of flows: a hash of keys, and lists in the order in which flows are to end.
//!
//! A flow is in one list for each length of timeout, moved to its end when a packet comes (at most once a second of the capture's clock), so that what expires, and what is
//! the oldest, is at the head of a list and nothing ever looks through all flows. Another list has those that hold segments. The order of buckets decides nothing.

use super::key::Key;
use super::{Flow, SECOND};

/// No flow.
const NONE: u32 = u32::MAX;

/// A flow of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowRef(u32);

/// What look-ups and lists touch, apart from the flow itself.
#[derive(Debug)]
struct Node {
    key: Key,
    hash: u64,
    /// Next in its bucket, or next free node.
    chain: u32,
    /// Neighbours in its list by timeout.
    previous: u32,
    next: u32,
    /// Neighbours in the list of those that hold segments.
    held_previous: u32,
    held_next: u32,
    /// Its list by timeout.
    list: u32,
    /// When it was put at the end of its list.
    moved: u64,
    client_swapped: bool,
    holds: bool,
}

#[derive(Clone, Copy, Debug)]
struct List {
    head: u32,
    tail: u32,
    /// Nanoseconds.
    timeout: u64,
    /// Its flows have TCP sessions.
    sessions: bool,
}

#[derive(Debug)]
pub(super) struct Table<X> {
    seed: u64,
    nodes: Vec<Node>,
    /// In boxes: flows do not move when the table grows, and leave it without a copy.
    flows: Vec<Option<Box<Flow<X>>>>,
    free: u32,
    buckets: Vec<u32>,
    len: usize,
    /// Flows with a TCP session.
    sessions: usize,
    /// One for each timeout, with and without sessions: a handful. The first is of flows just made.
    lists: Vec<List>,
    held: List,
}

impl<X> Table<X> {
    /// What a flow occupies: itself, its node, its share of buckets.
    pub(super) const FLOW: usize = size_of::<Flow<X>>()
        + size_of::<Node>()
        + size_of::<Option<Box<Flow<X>>>>()
        + 2 * size_of::<u32>();

    pub(super) fn new(seed: u64) -> Table<X> {
        let list = List {
            head: NONE,
            tail: NONE,
            timeout: 0,
            sessions: false,
        };
        Table {
            seed,
            nodes: Vec::new(),
            flows: Vec::new(),
            free: NONE,
            buckets: vec![NONE; 1024],
            len: 0,
            sessions: 0,
            lists: vec![list],
            held: list,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn sessions(&self) -> usize {
        self.sessions
    }

    pub(super) fn memory(&self) -> usize {
        self.len * Self::FLOW
    }

    #[expect(
        clippy::expect_used,
        reason = "a reference is to a flow until it is removed"
    )]
    pub(super) fn flow(&self, at: FlowRef) -> &Flow<X> {
        self.flows[at.0 as usize]
            .as_deref()
            .expect("a reference is to a flow until it is removed")
    }

    #[expect(
        clippy::expect_used,
        reason = "a reference is to a flow until it is removed"
    )]
    pub(super) fn flow_mut(&mut self, at: FlowRef) -> &mut Flow<X> {
        self.flows[at.0 as usize]
            .as_deref_mut()
            .expect("a reference is to a flow until it is removed")
    }

    /// The flow of a key, and whether its client is the higher end.
    pub(super) fn find(&self, key: &Key) -> Option<(FlowRef, bool)> {
        let hash = key.hash(self.seed);
        let mut at = self.buckets[hash as usize & (self.buckets.len() - 1)];
        while at != NONE {
            let node = &self.nodes[at as usize];
            if node.hash == hash && node.key == *key {
                return Some((FlowRef(at), node.client_swapped));
            }
            at = node.chain;
        }
        None
    }

    pub(super) fn insert(&mut self, key: Key, client_swapped: bool, flow: Flow<X>) -> FlowRef {
        if self.len >= self.buckets.len() {
            self.grow();
        }
        self.sessions += usize::from(flow.tcp.is_some());
        let hash = key.hash(self.seed);
        let bucket = hash as usize & (self.buckets.len() - 1);
        let node = Node {
            key,
            hash,
            chain: self.buckets[bucket],
            previous: NONE,
            next: NONE,
            held_previous: NONE,
            held_next: NONE,
            list: 0,
            moved: flow.info.last,
            client_swapped,
            holds: false,
        };
        let at = if self.free == NONE {
            self.nodes.push(node);
            self.flows.push(Some(Box::new(flow)));
            (self.nodes.len() - 1) as u32
        } else {
            let at = self.free;
            self.free = self.nodes[at as usize].chain;
            self.nodes[at as usize] = node;
            self.flows[at as usize] = Some(Box::new(flow));
            at
        };
        self.buckets[bucket] = at;
        self.len += 1;
        self.push(at, 0);
        FlowRef(at)
    }

    #[expect(
        clippy::expect_used,
        reason = "a reference is to a flow until it is removed"
    )]
    pub(super) fn remove(&mut self, at: FlowRef) -> Box<Flow<X>> {
        let at = at.0;
        self.set_holding(FlowRef(at), false);
        self.unlink(at);
        let bucket = self.nodes[at as usize].hash as usize & (self.buckets.len() - 1);
        let after = self.nodes[at as usize].chain;
        let mut link = self.buckets[bucket];
        if link == at {
            self.buckets[bucket] = after;
        } else {
            while self.nodes[link as usize].chain != at {
                link = self.nodes[link as usize].chain;
            }
            self.nodes[link as usize].chain = after;
        }
        self.nodes[at as usize].chain = self.free;
        self.free = at;
        self.len -= 1;
        let flow = self.flows[at as usize]
            .take()
            .expect("a reference is to a flow until it is removed");
        self.sessions -= usize::from(flow.tcp.is_some());
        flow
    }

    /// A packet of the flow came; it now lives so long without one.
    pub(super) fn touch(&mut self, at: FlowRef, now: u64, timeout: u64) {
        let node = &self.nodes[at.0 as usize];
        if self.lists[node.list as usize].timeout == timeout
            && node.list != 0
            && node.moved / SECOND == now / SECOND
        {
            return;
        }
        let sessions = self.flow(at).tcp.is_some();
        let alike = |l: &List| l.timeout == timeout && l.sessions == sessions;
        let list = match self.lists.iter().skip(1).position(alike) {
            Some(list) => list + 1,
            None => {
                self.lists.push(List {
                    head: NONE,
                    tail: NONE,
                    timeout,
                    sessions,
                });
                self.lists.len() - 1
            }
        };
        self.unlink(at.0);
        self.nodes[at.0 as usize].moved = now;
        self.push(at.0, list);
    }

    /// A flow whose timeout has passed, if there is one. A flow may have had packets in the second after it was moved, so it stays for that second.
    pub(super) fn expired(&self, now: u64) -> Option<FlowRef> {
        self.lists
            .iter()
            .filter(|list| list.head != NONE)
            .filter(|list| {
                now.saturating_sub(self.nodes[list.head as usize].moved) > list.timeout + SECOND
            })
            .min_by_key(|list| {
                (
                    self.nodes[list.head as usize].moved,
                    list.timeout,
                    list.sessions,
                )
            })
            .map(|list| FlowRef(list.head))
    }

    /// The flow that had no packet for longest, to a second.
    pub(super) fn oldest(&self) -> Option<FlowRef> {
        self.oldest_of(false)
    }

    /// Of those with a TCP session.
    pub(super) fn oldest_session(&self) -> Option<FlowRef> {
        self.oldest_of(true)
    }

    fn oldest_of(&self, sessions: bool) -> Option<FlowRef> {
        self.lists
            .iter()
            .filter(|list| list.head != NONE && (list.sessions || !sessions))
            .min_by_key(|list| {
                (
                    self.nodes[list.head as usize].moved,
                    list.timeout,
                    list.sessions,
                )
            })
            .map(|list| FlowRef(list.head))
    }

    /// Flows that had packets since then, to a second.
    pub(super) fn recent(&self, since: u64) -> Vec<FlowRef> {
        let mut found = Vec::new();
        for list in &self.lists {
            let mut at = list.tail;
            while at != NONE && self.nodes[at as usize].moved >= since {
                found.push(FlowRef(at));
                at = self.nodes[at as usize].previous;
            }
        }
        found
    }

    /// The flow that has held segments for longest.
    pub(super) fn oldest_holder(&self) -> Option<FlowRef> {
        (self.held.head != NONE).then_some(FlowRef(self.held.head))
    }

    /// Says whether a flow holds segments.
    pub(super) fn set_holding(&mut self, at: FlowRef, holds: bool) {
        let node = &mut self.nodes[at.0 as usize];
        if node.holds == holds {
            return;
        }
        node.holds = holds;
        if holds {
            node.held_previous = self.held.tail;
            node.held_next = NONE;
            match self.held.tail {
                NONE => self.held.head = at.0,
                tail => self.nodes[tail as usize].held_next = at.0,
            }
            self.held.tail = at.0;
        } else {
            let (previous, next) = (node.held_previous, node.held_next);
            match previous {
                NONE => self.held.head = next,
                p => self.nodes[p as usize].held_next = next,
            }
            match next {
                NONE => self.held.tail = previous,
                n => self.nodes[n as usize].held_previous = previous,
            }
        }
    }

    fn push(&mut self, at: u32, list: usize) {
        let tail = self.lists[list].tail;
        let node = &mut self.nodes[at as usize];
        node.list = list as u32;
        node.previous = tail;
        node.next = NONE;
        match tail {
            NONE => self.lists[list].head = at,
            tail => self.nodes[tail as usize].next = at,
        }
        self.lists[list].tail = at;
    }

    fn unlink(&mut self, at: u32) {
        let node = &self.nodes[at as usize];
        let (list, previous, next) = (node.list as usize, node.previous, node.next);
        match previous {
            NONE => self.lists[list].head = next,
            p => self.nodes[p as usize].next = next,
        }
        match next {
            NONE => self.lists[list].tail = previous,
            n => self.nodes[n as usize].previous = previous,
        }
    }

    fn grow(&mut self) {
        let size = self.buckets.len() * 2;
        self.buckets.clear();
        self.buckets.resize(size, NONE);
        for (at, node) in self.nodes.iter_mut().enumerate() {
            if self.flows[at].is_some() {
                let bucket = node.hash as usize & (size - 1);
                node.chain = self.buckets[bucket];
                self.buckets[bucket] = at as u32;
            }
        }
    }
}
