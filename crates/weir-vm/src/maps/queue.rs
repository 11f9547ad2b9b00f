//! Queues and stacks: values without keys, in order of arrival.
//!
//! Owns the values; programs get copies, never pointers. Invariant: at most `max_entries` values are held.

use std::collections::VecDeque;

use super::{BPF_EXIST, BPF_NOEXIST};
use crate::errno::{E2BIG, EINVAL, ENOENT};

#[derive(Debug)]
pub(crate) struct Queue {
    /// Last in, first out.
    stack: bool,
    most: usize,
    /// The next to be taken is in front.
    values: VecDeque<Vec<u8>>,
}

impl Queue {
    pub(super) fn new(stack: bool, max_entries: u32) -> Queue {
        Queue {
            stack,
            most: max_entries as usize,
            values: VecDeque::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// `bpf_map_push_elem`: with `BPF_EXIST` the oldest value makes room.
    pub(crate) fn push(&mut self, value: &[u8], flags: u64) -> Result<(), i64> {
        if flags & BPF_NOEXIST != 0 || flags > BPF_EXIST {
            return Err(EINVAL);
        }
        if self.values.len() >= self.most {
            if flags != BPF_EXIST {
                return Err(E2BIG);
            }
            if self.stack {
                self.values.pop_back();
            } else {
                self.values.pop_front();
            }
        }
        if self.stack {
            self.values.push_front(value.to_vec());
        } else {
            self.values.push_back(value.to_vec());
        }
        Ok(())
    }

    /// `bpf_map_pop_elem`.
    pub(crate) fn pop(&mut self) -> Result<Vec<u8>, i64> {
        self.values.pop_front().ok_or(ENOENT)
    }

    /// `bpf_map_peek_elem`.
    pub(crate) fn peek(&self) -> Result<&[u8], i64> {
        self.values.front().map(Vec::as_slice).ok_or(ENOENT)
    }
}
