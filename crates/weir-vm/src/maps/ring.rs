//! The ring buffer: records in order of reservation, with the kernel's accounting of space.
//!
//! Owns the records until they are drained. A record's memory is its own allocation here, so nothing wraps; only the
//! positions follow the kernel. Invariant: `producer - consumer` never exceeds the size, and records hold sequence
//! numbers `first_sequence ..` in order.

use std::collections::VecDeque;

use crate::jit::Block;

/// Header the kernel keeps in front of each record.
const HEADER: u64 = 8;
/// Largest record: the length field has 30 bits, and addresses of this engine have less room.
const RECORD_MAX: u64 = super::VALUE_SIZE_MAX as u64;

#[derive(Debug)]
pub(crate) struct Ring {
    size: u64,
    producer: u64,
    consumer: u64,
    records: VecDeque<Record>,
    first_sequence: u32,
}

#[derive(Debug)]
struct Record {
    memory: Block,
    len: usize,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Reserved,
    Submitted,
    Discarded,
}

impl Ring {
    pub(super) fn new(size: u32) -> Ring {
        Ring {
            size: u64::from(size),
            producer: 0,
            consumer: 0,
            records: VecDeque::new(),
            first_sequence: 0,
        }
    }

    /// Reserves a zeroed record; the sequence number, or nothing when there is no room.
    pub(crate) fn reserve(&mut self, length: u64) -> Option<u32> {
        if length > RECORD_MAX || self.records.len() as u64 >= u64::from(SEQUENCES) {
            return None;
        }
        let taken = span(length);
        // The kernel keeps one byte free: a new position more than size - 1 ahead does not fit.
        if taken > self.size || self.producer + taken - self.consumer > self.size - 1 {
            return None;
        }
        let memory = Block::zeroed(length as usize)?;
        self.producer += taken;
        let sequence = self.first_sequence.wrapping_add(self.records.len() as u32) % SEQUENCES;
        self.records.push_back(Record {
            memory,
            len: length as usize,
            state: State::Reserved,
        });
        Some(sequence)
    }

    /// The bytes of a record that is still reserved.
    pub(crate) fn record(&self, sequence: u32) -> Option<&[u8]> {
        let record = self.records.get(self.position(sequence))?;
        let bytes = record.memory.bytes().get(..record.len);
        bytes.filter(|_| record.state == State::Reserved)
    }

    /// As [`Ring::record`], to write.
    pub(crate) fn record_mut(&mut self, sequence: u32) -> Option<&mut [u8]> {
        let record = self.at(sequence)?;
        if record.state != State::Reserved {
            return None;
        }
        record.memory.bytes_mut().get_mut(..record.len)
    }

    /// Where a reserved record is in the host's memory.
    pub(crate) fn address(&self, sequence: u32) -> u64 {
        let record = self.records.get(self.position(sequence));
        record.map_or(0, |r| r.memory.address())
    }

    /// The reserved record at an address of the host.
    pub(crate) fn at_address(&self, address: u64) -> Option<u32> {
        let reserved = |r: &Record| r.state == State::Reserved && r.memory.address() == address;
        let place = self.records.iter().rposition(reserved)?;
        Some(self.first_sequence.wrapping_add(place as u32) % SEQUENCES)
    }

    /// Whether an address range lies in a reserved record.
    pub(crate) fn holds(&self, address: u64, len: usize) -> bool {
        self.records.iter().any(|r| {
            let offset = address.wrapping_sub(r.memory.address());
            let inside = offset <= r.len as u64 && len as u64 <= r.len as u64 - offset;
            r.state == State::Reserved && inside
        })
    }

    /// Submits or discards a reserved record; false when it is not reserved.
    pub(crate) fn finish(&mut self, sequence: u32, submit: bool) -> bool {
        match self.at(sequence) {
            Some(record) if record.state == State::Reserved => {
                record.state = if submit {
                    State::Submitted
                } else {
                    State::Discarded
                };
                true
            }
            _ => false,
        }
    }

    /// Discards what a failed run left reserved.
    pub(crate) fn discard_reserved(&mut self) {
        for record in &mut self.records {
            if record.state == State::Reserved {
                record.state = State::Discarded;
            }
        }
    }

    /// Takes the submitted records up to the first one still reserved.
    pub(crate) fn drain(&mut self) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        while let Some(record) = self.records.pop_front_if(|r| r.state != State::Reserved) {
            self.consumer += span(record.len as u64);
            self.first_sequence = (self.first_sequence + 1) % SEQUENCES;
            if record.state == State::Submitted {
                let bytes = record.memory.bytes().get(..record.len);
                out.push(bytes.unwrap_or_default().to_vec());
            }
        }
        out
    }

    /// `bpf_ringbuf_query`.
    pub(crate) fn query(&self, what: u64) -> u64 {
        match what {
            0 => self.producer - self.consumer,
            1 => self.size,
            2 => self.consumer,
            3 => self.producer,
            _ => 0,
        }
    }

    fn at(&mut self, sequence: u32) -> Option<&mut Record> {
        let position = self.position(sequence);
        self.records.get_mut(position)
    }

    fn position(&self, sequence: u32) -> usize {
        ((sequence + SEQUENCES - self.first_sequence) % SEQUENCES) as usize
    }
}

/// Sequence numbers wrap here: they must fit an address (25 bits).
const SEQUENCES: u32 = 1 << 25;

fn span(length: u64) -> u64 {
    (length + HEADER).next_multiple_of(8)
}
