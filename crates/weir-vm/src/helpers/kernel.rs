//! Kernel functions: those that a run has a model for; the others are faults by name.
//!
//! Owns the layout of an iterator's state, which is the kernel's for numbers; bits are copied aside when the iterator begins.
//! No connection and no state of IPsec is ever found. Dynptrs are in `dynptr`. Invariant: copies are as many as [`COPIES`] at
//! most, whatever the program.

use super::fault;
use crate::catalogue::{KernelFunction, flags};
use crate::errno::{E2BIG, EFAULT, EINVAL, ENOENT, ENOMEM};
use crate::interp::{FaultKind, Registers, Run, Step};

/// `BPF_MAX_LOOPS`.
const LOOPS: i64 = 1 << 23;
/// Words of bits at most (`BITS_ITER_NR_WORDS_MAX`).
const WORDS: u32 = 511;
/// Copies at once.
const COPIES: usize = 64;

/// Which step of an iterator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IteratorStep {
    New,
    Next,
    Destroy,
}

impl IteratorStep {
    fn of(function: &KernelFunction) -> IteratorStep {
        if function.has(flags::ITER_NEW) {
            IteratorStep::New
        } else if function.has(flags::ITER_NEXT) {
            IteratorStep::Next
        } else {
            IteratorStep::Destroy
        }
    }
}

impl Run<'_> {
    pub(super) fn kernel_function(
        &mut self,
        function: &'static KernelFunction,
        regs: &Registers,
    ) -> Step<u64> {
        let name = function.name;
        match name {
            "iter_num_new" | "iter_num_next" | "iter_num_destroy" => {
                self.numbers(IteratorStep::of(function), regs)
            }
            "iter_bits_new" | "iter_bits_next" | "iter_bits_destroy" => {
                self.bits(IteratorStep::of(function), regs)
            }
            // One program runs at a time, and nothing interrupts it.
            "rcu_read_lock" | "rcu_read_unlock" | "preempt_disable" | "preempt_enable" => Ok(0),
            "rdonly_cast" => Ok(regs[1]),
            "throw" => {
                self.thrown = Some(regs[1]);
                Err(Box::new(FaultKind::Thrown))
            }
            // `error` of `struct bpf_ct_opts` and of `struct bpf_xfrm_state_opts`.
            "xdp_ct_lookup" | "skb_ct_lookup" => self.nothing_found(regs[4], regs[5], 4),
            "xdp_get_xfrm_state" => self.nothing_found(regs[2], regs[3], 0),
            _ => match self.dynptr_function(name, regs)? {
                Some(result) => Ok(result),
                None => Err(Box::new(FaultKind::KernelFunction { name })),
            },
        }
    }

    /// A look-up that finds nothing says so at `at` of its options.
    fn nothing_found(&mut self, options: u64, size: u64, at: usize) -> Step<u64> {
        let options = self.memory.bytes_mut(options, size as u32 as usize);
        let error = options.map_err(fault)?.get_mut(at..at + 4);
        if let Some(error) = error {
            error.copy_from_slice(&(ENOENT as i32).to_le_bytes());
        }
        Ok(0)
    }

    /// State: the number before the next, and the end.
    fn numbers(&mut self, step: IteratorStep, regs: &Registers) -> Step<u64> {
        let state = self.memory.bytes_mut(regs[1], 8).map_err(fault)?;
        let word = |at: usize| {
            let bytes = state.get(at..).and_then(|b| b.first_chunk::<4>());
            bytes.map_or(0, |b| i32::from_le_bytes(*b))
        };
        let (current, end) = (word(0), word(4));
        let (start, limit) = (regs[2] as i32, regs[3] as i32);
        let distance = i64::from(limit) - i64::from(start);
        let (current, end, result) = match step {
            IteratorStep::New if distance < 0 => (0, 0, EINVAL as u64),
            IteratorStep::New if distance > LOOPS => (0, 0, E2BIG as u64),
            IteratorStep::New => (start.wrapping_sub(1), limit, 0),
            IteratorStep::Next if current.wrapping_add(1) >= end => (0, 0, 0),
            IteratorStep::Next => (current.wrapping_add(1), end, regs[1]),
            IteratorStep::Destroy => (0, 0, 0),
        };
        let [a, b, c, d] = current.to_le_bytes();
        let [e, f, g, h] = end.to_le_bytes();
        state.copy_from_slice(&[a, b, c, d, e, f, g, h]);
        // An `int`, as the kernel returns it.
        Ok(match step {
            IteratorStep::New => u64::from(result as u32),
            _ => result,
        })
    }

    /// State: number of the copy, number of bits, last bit.
    fn bits(&mut self, step: IteratorStep, regs: &Registers) -> Step<u64> {
        let address = regs[1];
        let state = self.memory.bytes_mut(address, 16).map_err(fault)?;
        let word = |at: usize| {
            let bytes = state.get(at..).and_then(|b| b.first_chunk::<4>());
            bytes.map_or(0, |b| u32::from_le_bytes(*b))
        };
        let (copy, count, last) = (word(0) as usize, word(8), word(12));
        let put = |copy: usize, count: u32, last: u32| {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&(copy as u32).to_le_bytes());
            bytes[8..12].copy_from_slice(&count.to_le_bytes());
            bytes[12..].copy_from_slice(&last.to_le_bytes());
            bytes
        };
        match step {
            IteratorStep::New => {
                let words = regs[3] as u32;
                let (from, length) = (regs[2], words as usize * 8);
                state.copy_from_slice(&put(0, 0, u32::MAX));
                let errno = match words {
                    _ if from == 0 || words == 0 => EINVAL,
                    _ if words > WORDS => E2BIG,
                    _ => match self.memory.bytes(from, length).map(<[u8]>::to_vec) {
                        Err(_) => EFAULT,
                        Ok(bytes) => match self.keep_bits(bytes) {
                            None => ENOMEM,
                            Some(copy) => {
                                let state = self.memory.bytes_mut(address, 16).map_err(fault)?;
                                state.copy_from_slice(&put(copy, words * 64, u32::MAX));
                                0
                            }
                        },
                    },
                };
                Ok(u64::from(errno as u32))
            }
            IteratorStep::Next => {
                let bits = self.scratch.bits.get(copy).map_or(&[][..], Vec::as_slice);
                let set = |bit: &u32| {
                    let byte = bits.get(*bit as usize / 8);
                    byte.is_some_and(|byte| byte & (1 << (bit % 8)) != 0)
                };
                let next = if last == u32::MAX {
                    0
                } else {
                    last.saturating_add(1)
                };
                let found = (next..count).find(set);
                state.copy_from_slice(&put(copy, count, found.unwrap_or(count)));
                Ok(found.map_or(0, |_| address.wrapping_add(12)))
            }
            IteratorStep::Destroy => {
                if count != 0
                    && let Some(bits) = self.scratch.bits.get_mut(copy)
                {
                    bits.clear();
                }
                state.copy_from_slice(&put(0, 0, u32::MAX));
                Ok(0)
            }
        }
    }

    /// A place for a copy, if one is free.
    fn keep_bits(&mut self, bytes: Vec<u8>) -> Option<usize> {
        let places = &mut self.scratch.bits;
        let free = places.iter().position(Vec::is_empty).or_else(|| {
            (places.len() < COPIES).then(|| {
                places.push(Vec::new());
                places.len() - 1
            })
        })?;
        *places.get_mut(free)? = bytes;
        Some(free)
    }
}
