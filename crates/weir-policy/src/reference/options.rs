//! The list of TCP options that targets work on: docs/semantics.md section 4.
//!
//! Made from the packet as received, without NOPs and what follows EOL. Invariant: the options' lengths never sum up
//! to more than the room.

use weir_packet::parse::{L4, Opt};

use crate::model::KindSet;

/// Options in order.
pub(super) struct OptionList {
    received: Vec<(Opt, Vec<u8>)>,
    options: Vec<(u8, Vec<u8>)>,
    room: usize,
}

/// The options would not fit.
#[derive(Debug)]
pub(super) struct NoRoom;

impl OptionList {
    /// The options of a packet as received.
    pub(super) fn new(frame: &[u8], tcp: &L4, room: usize) -> Self {
        let received: Vec<(Opt, Vec<u8>)> = tcp
            .options
            .iter()
            .map(|option| (*option, option.value(frame).to_vec()))
            .collect();
        let options = received
            .iter()
            .map(|(option, value)| (option.kind, value.clone()))
            .collect();
        OptionList {
            received,
            options,
            room,
        }
    }

    /// Gives every option of a kind another value.
    pub(super) fn set(&mut self, kind: u8, value: &[u8]) -> Result<(), NoRoom> {
        let change = |options: &[(u8, Vec<u8>)]| -> Vec<(u8, Vec<u8>)> {
            let new = |(k, v): &(u8, Vec<u8>)| {
                (
                    *k,
                    if *k == kind {
                        value.to_vec()
                    } else {
                        v.clone()
                    },
                )
            };
            options.iter().map(new).collect()
        };
        self.replace(change(&self.options))
    }

    /// Appends an option.
    pub(super) fn add(&mut self, kind: u8, value: &[u8]) -> Result<(), NoRoom> {
        let mut options = self.options.clone();
        options.push((kind, value.to_vec()));
        self.replace(options)
    }

    /// Removes every option of these kinds.
    pub(super) fn strip(&mut self, kinds: KindSet) {
        self.options.retain(|(kind, _)| !kinds.contains(*kind));
    }

    /// Whether the list is as it was received.
    pub(super) fn unchanged(&self) -> bool {
        self.same_shape()
            && self
                .received
                .iter()
                .zip(&self.options)
                .all(|((_, old), (_, new))| old == new)
    }

    /// The places and values of all options, if kinds and lengths are as received.
    pub(super) fn in_place(&self) -> Option<Vec<(Opt, &[u8])>> {
        let values = || {
            self.received
                .iter()
                .zip(&self.options)
                .map(|((at, _), (_, value))| (*at, value.as_slice()))
        };
        self.same_shape().then(|| values().collect())
    }

    /// The options as bytes, without padding.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (kind, value) in &self.options {
            bytes.extend_from_slice(&[*kind, (value.len() + 2) as u8]);
            bytes.extend_from_slice(value);
        }
        bytes
    }

    fn same_shape(&self) -> bool {
        self.received.len() == self.options.len()
            && self
                .received
                .iter()
                .zip(&self.options)
                .all(|((old, _), (kind, value))| old.kind == *kind && old.len == value.len() + 2)
    }

    fn replace(&mut self, options: Vec<(u8, Vec<u8>)>) -> Result<(), NoRoom> {
        let bytes: usize = options.iter().map(|(_, value)| value.len() + 2).sum();
        if bytes > self.room {
            return Err(NoRoom);
        }
        self.options = options;
        Ok(())
    }
}
