//! Helpers for maps without keys: queues, stacks, Bloom filters, perf event arrays.

use super::{bad, fault};
use crate::errno::{E2BIG, EFAULT, EINVAL};
use crate::interp::{Registers, Run, Step};
use crate::maps::{Map, MapKind};

/// Lower half of the flags of `bpf_perf_event_output`: an index, or this for the CPU that runs.
const CURRENT_CPU: u32 = u32::MAX;
/// Upper half: bytes of the packet to append, 20 bits.
const PACKET_MASK: u64 = 0xf_ffff << 32;
/// Largest record of a perf event.
const RECORD_MAX: usize = u16::MAX as usize;

impl Run<'_> {
    pub(super) fn push(&mut self, regs: &Registers) -> Step<u64> {
        let kinds = |k| matches!(k, MapKind::Queue | MapKind::Stack | MapKind::BloomFilter);
        let id = self.map_of_kind(87, 1, regs, kinds)?;
        if !self
            .memory
            .maps
            .get(id)
            .is_some_and(Map::writable_by_programs)
        {
            return Err(bad(87, 1, regs, "the map is read-only for programs"));
        }
        let value = self.memory.bytes(regs[2], self.value_size(id));
        let value = value.map_err(fault)?.to_vec();
        let Some(map) = self.memory.maps.get_mut(id) else {
            return Ok(EINVAL as u64);
        };
        Ok(map.push(&value, regs[3]).err().unwrap_or(0) as u64)
    }

    pub(super) fn pop(&mut self, regs: &Registers) -> Step<u64> {
        let id = self.map_of_kind(88, 1, regs, |k| {
            matches!(k, MapKind::Queue | MapKind::Stack)
        })?;
        if !self
            .memory
            .maps
            .get(id)
            .is_some_and(Map::writable_by_programs)
        {
            return Err(bad(88, 1, regs, "the map is read-only for programs"));
        }
        let queue = self.memory.maps.get_mut(id).and_then(Map::queue_mut);
        let taken = queue.map_or(Err(EINVAL), |q| q.pop());
        self.hand_out(id, regs[2], taken)
    }

    pub(super) fn peek(&mut self, regs: &Registers) -> Step<u64> {
        let kinds = |k| matches!(k, MapKind::Queue | MapKind::Stack | MapKind::BloomFilter);
        let id = self.map_of_kind(89, 1, regs, kinds)?;
        let map = self.memory.maps.get(id);
        if let Some(bloom) = map.and_then(Map::bloom) {
            let value = self.memory.bytes(regs[2], self.value_size(id));
            return Ok(bloom.peek(value.map_err(fault)?).err().unwrap_or(0) as u64);
        }
        let queue = map.and_then(Map::queue);
        let next = queue.map_or(Err(EINVAL), |q| q.peek().map(<[u8]>::to_vec));
        self.hand_out(id, regs[2], next)
    }

    /// Writes a value where the program wants it; zeros when there is none.
    fn hand_out(&mut self, id: usize, address: u64, value: Result<Vec<u8>, i64>) -> Step<u64> {
        let size = self.value_size(id);
        let target = self.memory.bytes_mut(address, size).map_err(fault)?;
        match value {
            Ok(value) => {
                for (to, from) in target.iter_mut().zip(&value) {
                    *to = *from;
                }
                Ok(0)
            }
            Err(errno) => {
                target.fill(0);
                Ok(errno as u64)
            }
        }
    }

    pub(super) fn perf_event_output(&mut self, regs: &Registers) -> Step<u64> {
        self.context(25, regs)?;
        let id = self.map_of_kind(25, 2, regs, |k| k == MapKind::PerfEventArray)?;
        let flags = regs[3];
        let size = usize::try_from(regs[5]).map_err(|_| bad(25, 5, regs, "size is too large"))?;
        let mut record = self.memory.bytes(regs[4], size).map_err(fault)?.to_vec();
        if flags & !(PACKET_MASK | u64::from(u32::MAX)) != 0 {
            return Ok(EINVAL as u64);
        }
        let packet = ((flags & PACKET_MASK) >> 32) as usize;
        let data = self.memory.frame.as_deref().map_or(&[][..], |f| f.data());
        let Some(part) = data.get(..packet) else {
            return Ok(EFAULT as u64);
        };
        record.extend_from_slice(part);
        if record.len() > RECORD_MAX {
            return Ok(E2BIG as u64);
        }
        let index = match flags as u32 {
            CURRENT_CPU => self.env.cpu,
            index => index,
        };
        let perf = self.memory.maps.get_mut(id).and_then(Map::perf_mut);
        let result = perf.map_or(Err(EINVAL), |p| p.output(index, record));
        Ok(result.err().unwrap_or(0) as u64)
    }
}
