//! The ring buffer: records in order of reservation, with the kernel's accounting of space.
//!
//! Owns the records until they are drained. A record's memory is its own allocation here, so nothing wraps; only the
//! positions follow the kernel. Invariant: `producer - consumer` never exceeds the size, and records hold sequence
//! numbers `first_sequence ..` in order.

use std::collections::VecDeque;

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
    bytes: Vec<u8>,
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
        self.producer += taken;
        let sequence = self.first_sequence.wrapping_add(self.records.len() as u32) % SEQUENCES;
        self.records.push_back(Record {
            bytes: vec![0; length as usize],
            state: State::Reserved,
        });
        Some(sequence)
    }

    /// The bytes of a record that is still reserved.
    pub(crate) fn record(&self, sequence: u32) -> Option<&[u8]> {
        let record = self.records.get(self.position(sequence))?;
        (record.state == State::Reserved).then_some(record.bytes.as_slice())
    }

    /// As [`Ring::record`], to write.
    pub(crate) fn record_mut(&mut self, sequence: u32) -> Option<&mut [u8]> {
        let record = self.at(sequence)?;
        (record.state == State::Reserved).then_some(record.bytes.as_mut_slice())
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
            self.consumer += span(record.bytes.len() as u64);
            self.first_sequence = (self.first_sequence + 1) % SEQUENCES;
            if record.state == State::Submitted {
                out.push(record.bytes);
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
