//! A transaction (a request and its response, a message): buffers in one allocation, bodies that grow apart, and a record for the event log.

use std::collections::VecDeque;

use crate::app::App;
use crate::buffer::Buffer;
use crate::packet::Direction;

/// A transaction.
#[derive(Clone, Debug, Default)]
pub struct Transaction {
    /// Counted from 0 in each flow (`tx_id`).
    pub id: u64,
    /// Its protocol.
    pub app: App,
    /// Time of its first byte.
    pub time: u64,
    /// Whether each direction is complete: nothing will be added to its buffers.
    pub complete: [bool; 2],
    /// What was wrong with it, as `app-layer-event` names it without the protocol.
    pub events: Vec<&'static str>,
    /// Fields for the event log, under the protocol's name.
    pub record: serde_json::Map<String, serde_json::Value>,
    arena: Vec<u8>,
    entries: Vec<Entry>,
    bodies: Vec<Body>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    buffer: Buffer,
    direction: Direction,
    start: u32,
    end: u32,
}

#[derive(Clone, Debug)]
struct Body {
    buffer: Buffer,
    direction: Direction,
    bytes: Vec<u8>,
}

impl Transaction {
    /// Adds a buffer that is whole.
    pub fn push(&mut self, buffer: Buffer, direction: Direction, bytes: &[u8]) {
        let start = self.arena.len() as u32;
        self.arena.extend_from_slice(bytes);
        self.entries.push(Entry {
            buffer,
            direction,
            start,
            end: self.arena.len() as u32,
        });
    }

    /// Adds to a body, up to `limit` bytes in all; returns whether all of it found room.
    pub fn append(
        &mut self,
        buffer: Buffer,
        direction: Direction,
        bytes: &[u8],
        limit: usize,
    ) -> bool {
        let at = self
            .bodies
            .iter()
            .position(|b| b.buffer == buffer && b.direction == direction)
            .unwrap_or_else(|| {
                self.bodies.push(Body {
                    buffer,
                    direction,
                    bytes: Vec::new(),
                });
                self.bodies.len() - 1
            });
        let body = &mut self.bodies[at].bytes;
        let taken = bytes.len().min(limit.saturating_sub(body.len()));
        body.extend_from_slice(&bytes[..taken]);
        taken == bytes.len()
    }

    /// The buffers of one name and direction, in the order they were added.
    pub fn get(&self, buffer: Buffer, direction: Direction) -> impl Iterator<Item = &[u8]> {
        self.all()
            .filter(move |(b, d, _)| *b == buffer && *d == direction)
            .map(|(_, _, bytes)| bytes)
    }

    /// Every buffer.
    pub fn all(&self) -> impl Iterator<Item = (Buffer, Direction, &[u8])> {
        let entries = self.entries.iter().map(|e| {
            let bytes = &self.arena[e.start as usize..e.end as usize];
            (e.buffer, e.direction, bytes)
        });
        let bodies = self
            .bodies
            .iter()
            .map(|b| (b.buffer, b.direction, b.bytes.as_slice()));
        entries.chain(bodies)
    }

    /// Bytes it holds.
    pub fn memory(&self) -> usize {
        self.arena.len() + self.bodies.iter().map(|b| b.bytes.len()).sum::<usize>()
    }
}

/// The live transactions of a flow, oldest first. Detection looks at those that changed, and drops those that are complete in both directions once it has.
#[derive(Debug, Default)]
pub struct Transactions {
    /// Live ones.
    pub live: VecDeque<Transaction>,
    /// How many there have been.
    pub count: u64,
    /// Set by a parser that does not understand its stream any more: the flow goes on without it.
    pub failed: bool,
}

impl Transactions {
    /// Begins one.
    pub fn begin(&mut self, app: App, time: u64) -> &mut Transaction {
        self.live.push_back(Transaction {
            id: self.count,
            app,
            time,
            ..Transaction::default()
        });
        self.count += 1;
        self.live.back_mut().expect("one was pushed")
    }
}
