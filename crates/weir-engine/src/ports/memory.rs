//! A port whose frames come from memory and go there: for tests, and for programs that embed the engine.

use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, PoisonError};

use super::{Arrival, Look, Port};

/// Frames handed over at a time, so that workers take turns.
const BATCH: usize = 32;

/// A port in memory.
#[derive(Debug)]
pub struct MemoryPort {
    name: String,
    ifindex: u32,
    arriving: Mutex<VecDeque<Arrival>>,
    sent: Mutex<Vec<Vec<u8>>>,
    passed: Mutex<Vec<Vec<u8>>>,
}

impl MemoryPort {
    /// A port at which `arriving` arrive.
    pub fn new(name: &str, ifindex: u32, arriving: impl IntoIterator<Item = Arrival>) -> Self {
        MemoryPort {
            name: name.to_owned(),
            ifindex,
            arriving: Mutex::new(arriving.into_iter().collect()),
            sent: Mutex::default(),
            passed: Mutex::default(),
        }
    }

    /// Takes the frames sent so far.
    pub fn take_sent(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.sent.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the frames that passed so far.
    pub fn take_passed(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.passed.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Port for MemoryPort {
    fn name(&self) -> &str {
        &self.name
    }

    fn ifindex(&self) -> u32 {
        self.ifindex
    }

    fn receive(&self, into: &mut Vec<Arrival>) -> io::Result<Look> {
        let mut arriving = self.arriving.lock().unwrap_or_else(PoisonError::into_inner);
        let n = arriving.len().min(BATCH);
        into.extend(arriving.drain(..n));
        Ok(match n {
            0 => Look::Over,
            n => Look::Frames(n),
        })
    }

    fn send(&self, frame: &[u8], _now_ns: u64) -> io::Result<()> {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        sent.push(frame.to_vec());
        Ok(())
    }

    fn pass(&self, frame: &[u8], _now_ns: u64) -> io::Result<()> {
        let mut passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        passed.push(frame.to_vec());
        Ok(())
    }
}
