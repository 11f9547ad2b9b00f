//! The kernel helpers this engine has, with Linux's numbers, results and error numbers.
//!
//! Owns argument checks and effects on frame, maps and ring buffers. What the kernel's verifier would refuse (a wrong
//! map, a null pointer, a bad lock) is a fault, what the kernel answers at run time is an error number in r0. Time and
//! randomness come from `Env`. Invariant: no helper panics or loops beyond the instruction budget, whatever its arguments.

mod cookie;
mod dynptr;
mod kernel;
mod room;
mod route;
mod skb;
mod streams;
mod text;

use crate::catalogue::{helper_name, kernel_function};
use crate::errno::{E2BIG, EAGAIN, EINVAL};
use crate::interp::{FaultKind, Redirect, Registers, Run, Step};
use crate::maps::{Map, MapKind};
use crate::memory::{handle_map, map_handle};

/// Tail calls a run may make (`MAX_TAIL_CALL_CNT`): the 34th falls through.
pub const TAIL_CALLS: u32 = 33;

/// Most iterations of `bpf_loop`.
const LOOPS_MAX: u64 = 1 << 23;

/// Helpers that tc programs do not have: adjustments, redirection through maps, and byte access of XDP frames.
const XDP_ONLY: [u32; 7] = [44, 51, 54, 65, 188, 189, 190];

const XDP_ABORTED: u64 = 0;
const XDP_REDIRECT: u64 = 4;
const XDP_ACTIONS: u64 = 3;
const BPF_F_BROADCAST: u64 = 8;
const BPF_F_EXCLUDE_INGRESS: u64 = 16;

impl Run<'_> {
    /// Runs helper `number`; the operation to continue at after a successful tail call.
    pub(crate) fn helper(&mut self, number: u32, regs: &mut Registers) -> Step<Option<usize>> {
        if let Some(function) = kernel_function(number) {
            regs[0] = self.kernel_function(function, regs)?;
            return Ok(None);
        }
        if self.memory.skb.is_some() {
            if let Some(result) = self.tc_helper(number, regs)? {
                regs[0] = result;
                return Ok(None);
            }
            if XDP_ONLY.contains(&number) {
                return Err(unknown(number));
            }
        }
        let result = match number {
            1 => self.map_lookup(regs)?,
            2 => self.map_update(regs)? as u64,
            3 => self.map_delete(regs)? as u64,
            5 | 125 | 160 | 208 => self.env.now_ns,
            6 => self.trace_printk(regs)?,
            7 => u64::from(self.random_u32()),
            8 => u64::from(self.env.cpu),
            12 => return self.tail_call(regs),
            23 => self.redirect(regs),
            25 => self.perf_event_output(regs)?,
            28 => self.csum_diff(regs)?,
            // One node.
            42 => 0,
            44 => self.adjust(number, regs)?,
            51 => self.redirect_map(regs)?,
            54 => self.adjust(number, regs)?,
            65 => self.adjust(number, regs)?,
            69 => self.fib_lookup(regs)?,
            // No process of the user engine has sockets.
            84 | 85 | 99 => self.no_socket(number, regs)?,
            87 => self.push(regs)?,
            88 => self.pop(regs)?,
            89 => self.peek(regs)?,
            93 => self.spin_lock(regs)?,
            94 => self.spin_unlock(regs)?,
            105 => self.parse_number(number, regs)?,
            106 => self.parse_number(number, regs)?,
            // 250 ticks a second.
            118 => self.env.now_ns / 4_000_000,
            130 => self.ringbuf_output(regs)?,
            131 => self.ringbuf_reserve(regs)?,
            132 => self.ringbuf_finish(number, regs, true)?,
            133 => self.ringbuf_finish(number, regs, false)?,
            134 => self.ringbuf_query(regs)?,
            163 => self.check_mtu(regs)?,
            164 => self.for_each(regs)?,
            165 => self.snprintf(regs)?,
            177 => self.trace_vprintk(regs)?,
            181 => self.bounded_loop(regs)?,
            182 => self.strncmp(regs)?,
            188 => {
                self.context(number, regs)?;
                self.memory.frame.as_deref().map_or(0, |f| f.len() as u64)
            }
            189 => self.load_bytes(regs)?,
            190 => self.store_bytes(regs)?,
            195 => self.map_lookup_percpu(regs)?,
            197..=203 => self.dynptr_helper(number, regs)?,
            204 | 205 => self.make_cookie(number, regs)?,
            206 | 207 => self.check_cookie(number, regs)?,
            _ => return Err(unknown(number)),
        };
        regs[0] = result;
        Ok(None)
    }

    /// A lookup of a socket, which finds none: the tuple must be memory.
    fn no_socket(&mut self, number: u32, regs: &Registers) -> Step<u64> {
        self.context(number, regs)?;
        let length = regs[3] as u32 as usize;
        self.memory.bytes(regs[2], length).map_err(fault)?;
        Ok(0)
    }

    fn map_lookup(&mut self, regs: &Registers) -> Step<u64> {
        let id = self.map_with_values(1, regs)?;
        let address = regs[2];
        let Some(map) = self.memory.maps.get(id) else {
            return Ok(0);
        };
        if map.is_dense() {
            let index = u32::from_le_bytes(self.memory.load::<4>(address).map_err(fault)?);
            let slot = map
                .dense_index(index)
                .and_then(|e| map.slot(e, self.env.cpu));
            return Ok(slot.map_or(0, |slot| self.memory.value_pointer(id, slot)));
        }
        self.read_key(id, address)?;
        let Some(map) = self.memory.maps.get_mut(id) else {
            return Ok(0);
        };
        if map.kind().holds_maps() {
            let inner = map.reference(&self.scratch.key);
            return Ok(inner.map_or(0, |i| map_handle(i as usize)));
        }
        let slot = map
            .find_from_program(&self.scratch.key)
            .and_then(|e| map.slot(e, self.env.cpu));
        Ok(slot.map_or(0, |slot| self.memory.value_pointer(id, slot)))
    }

    fn map_lookup_percpu(&mut self, regs: &Registers) -> Step<u64> {
        let id = self.map_with_values(195, regs)?;
        self.read_key(id, regs[2])?;
        let Some(map) = self.memory.maps.get_mut(id) else {
            return Ok(0);
        };
        if !map.kind().is_percpu() {
            return Err(bad(195, 1, regs, "expected a per-CPU map"));
        }
        let cpu = regs[3] as u32;
        let slot = map
            .find_from_program(&self.scratch.key)
            .filter(|_| cpu < map.values_per_element())
            .and_then(|e| map.slot(e, cpu));
        Ok(slot.map_or(0, |slot| self.memory.value_pointer(id, slot)))
    }

    fn map_update(&mut self, regs: &Registers) -> Step<i64> {
        let id = self.changeable_map(2, regs)?;
        self.read_key(id, regs[2])?;
        let size = self.value_size(id);
        let value = self.memory.bytes(regs[3], size).map_err(fault)?;
        self.scratch.value.clear();
        self.scratch.value.extend_from_slice(value);
        let Some(map) = self.memory.maps.get_mut(id) else {
            return Ok(EINVAL);
        };
        let (key, value) = (&self.scratch.key, &self.scratch.value);
        let result = map.update_from_program(key, value, regs[4], self.env.cpu, self.epoch);
        Ok(result.err().unwrap_or(0))
    }

    fn map_delete(&mut self, regs: &Registers) -> Step<i64> {
        let id = self.changeable_map(3, regs)?;
        self.read_key(id, regs[2])?;
        let Some(map) = self.memory.maps.get_mut(id) else {
            return Ok(EINVAL);
        };
        let result = map.remove(&self.scratch.key, self.epoch);
        Ok(result.err().unwrap_or(0))
    }

    fn for_each(&mut self, regs: &Registers) -> Step<u64> {
        let id = self.map_with_values(164, regs)?;
        let callback = self
            .memory
            .function_at(regs[2])
            .ok_or_else(|| bad(164, 2, regs, "expected a callback function"))?;
        let elements = match self.memory.maps.get(id) {
            Some(map) if !map.kind().redirects() && map.kind() != MapKind::LpmTrie => {
                map.elements()
            }
            _ => return Err(bad(164, 1, regs, "expected an array or hash")),
        };
        if regs[4] != 0 {
            return Ok(EINVAL as u64);
        }
        let key_address = self.memory.key_pointer();
        let key_size = self.key_size(id);
        let outer = self
            .memory
            .bytes(key_address, key_size)
            .map_err(fault)?
            .to_vec();
        let mut visited = 0;
        for element in elements {
            let Some(map) = self.memory.maps.get(id) else {
                break;
            };
            let (Some(key), Some(slot)) =
                (map.element_key(element), map.slot(element, self.env.cpu))
            else {
                continue;
            };
            self.memory
                .bytes_mut(key_address, key.len())
                .map_err(fault)?
                .copy_from_slice(&key);
            visited += 1;
            let arguments = [
                map_handle(id),
                key_address,
                self.memory.value_pointer(id, slot),
                regs[3],
            ];
            if self.callback(callback, arguments)? != 0 {
                break;
            }
        }
        self.memory
            .bytes_mut(key_address, key_size)
            .map_err(fault)?
            .copy_from_slice(&outer);
        Ok(visited)
    }

    fn bounded_loop(&mut self, regs: &Registers) -> Step<u64> {
        let callback = self
            .memory
            .function_at(regs[2])
            .ok_or_else(|| bad(181, 2, regs, "expected a callback function"))?;
        let count = u64::from(regs[1] as u32);
        if regs[4] != 0 {
            return Ok(EINVAL as u64);
        }
        if count > LOOPS_MAX {
            // The kernel inlines the helper with a 32-bit move here: r0 is not sign-extended.
            return Ok(u64::from(E2BIG as u32));
        }
        for i in 0..count {
            if self.callback(callback, [i, regs[3], 0, 0])? != 0 {
                return Ok(i + 1);
            }
        }
        Ok(count)
    }

    fn tail_call(&mut self, regs: &mut Registers) -> Step<Option<usize>> {
        self.context(12, regs)?;
        let id = self.map_of_kind(12, 2, regs, |k| k == MapKind::ProgArray)?;
        let index = regs[3] as u32;
        let target = self
            .memory
            .maps
            .get(id)
            .and_then(|m| m.reference(&index.to_le_bytes()))
            .and_then(|program| self.programs.get(program as usize).copied());
        // An attempt that finds no program does not count.
        let Some(target) = target.filter(|_| self.tail_calls < TAIL_CALLS) else {
            return Ok(None);
        };
        self.tail_calls += 1;
        let context = regs[1];
        let frame_pointer = regs[10];
        *regs = [0; 16];
        regs[1] = context;
        regs[10] = frame_pointer;
        self.memory.clear_stack();
        Ok(Some(target))
    }

    fn redirect(&mut self, regs: &Registers) -> u64 {
        if regs[2] != 0 {
            return XDP_ABORTED;
        }
        self.redirect = Some(Redirect::Interface {
            ifindex: regs[1] as u32,
        });
        XDP_REDIRECT
    }

    fn redirect_map(&mut self, regs: &Registers) -> Step<u64> {
        let id = self.map_of_kind(51, 1, regs, MapKind::redirects)?;
        let Some(map) = self.memory.maps.get(id) else {
            return Ok(XDP_ABORTED);
        };
        let (key, flags) = (regs[2], regs[3]);
        let dev = matches!(map.kind(), MapKind::DevMap | MapKind::DevMapHash);
        let extra = if dev {
            BPF_F_BROADCAST | BPF_F_EXCLUDE_INGRESS
        } else {
            0
        };
        if flags & !(XDP_ACTIONS | extra) != 0 {
            return Ok(XDP_ABORTED);
        }
        let broadcast = flags & extra & BPF_F_BROADCAST != 0;
        if !broadcast && map.find(&(key as u32).to_le_bytes()).is_none() {
            return Ok(flags & XDP_ACTIONS);
        }
        self.redirect = Some(Redirect::Map {
            map: map.name().to_owned(),
            key,
            flags,
        });
        Ok(XDP_REDIRECT)
    }

    /// `bpf_xdp_adjust_head`, `_meta`, `_tail`: packet pointers go stale even when they fail, as for the verifier.
    fn adjust(&mut self, number: u32, regs: &Registers) -> Step<u64> {
        self.context(number, regs)?;
        self.memory.invalidate_packet();
        let delta = regs[2] as i32;
        let Some(frame) = self.memory.frame.as_deref_mut() else {
            return Ok(EINVAL as u64);
        };
        let result = match number {
            44 => frame.adjust_head(delta),
            54 => frame.adjust_meta(delta),
            _ => frame.adjust_tail(delta),
        };
        self.memory.publish_frame();
        Ok(result.err().unwrap_or(0) as u64)
    }

    fn load_bytes(&mut self, regs: &Registers) -> Step<u64> {
        let len = match self.frame_range(189, regs)? {
            Ok(len) => len,
            Err(errno) => return Ok(errno as u64),
        };
        let from = regs[2] as u32 as usize;
        let data = self.memory.frame.as_deref().map_or(&[][..], |f| f.data());
        self.scratch.value.clear();
        let part = data.get(from..from + len).unwrap_or_default();
        self.scratch.value.extend_from_slice(part);
        self.memory
            .bytes_mut(regs[3], len)
            .map_err(fault)?
            .copy_from_slice(&self.scratch.value);
        Ok(0)
    }

    fn store_bytes(&mut self, regs: &Registers) -> Step<u64> {
        let len = match self.frame_range(190, regs)? {
            Ok(len) => len,
            Err(errno) => return Ok(errno as u64),
        };
        let to = regs[2] as u32 as usize;
        let source = self.memory.bytes(regs[3], len).map_err(fault)?;
        self.scratch.value.clear();
        self.scratch.value.extend_from_slice(source);
        let target = self
            .memory
            .frame
            .as_deref_mut()
            .and_then(|f| f.data_mut().get_mut(to..to + len));
        if let Some(target) = target {
            target.copy_from_slice(&self.scratch.value);
        }
        Ok(0)
    }

    /// Checks offset (r2) and length (r4) of a copy from or to the frame; the length, or the kernel's error number.
    fn frame_range(&mut self, number: u32, regs: &Registers) -> Step<Result<usize, i64>> {
        self.context(number, regs)?;
        let part = match self.memory.frame.as_deref() {
            Some(frame) => frame.part(regs[2] as u32, regs[4] as u32),
            None => Err(EINVAL),
        };
        Ok(part.map(<[u8]>::len))
    }

    /// `bpf_csum_diff` as in Linux 6.18: the result is folded to 16 bits, and sizes need not be multiples of four (6.1
    /// does not fold and refuses other sizes with `-EINVAL`).
    fn csum_diff(&mut self, regs: &Registers) -> Step<u64> {
        let (from_size, to_size) = (regs[2] as u32, regs[4] as u32);
        let seed = regs[5] as u32;
        let from = self
            .memory
            .bytes(regs[1], from_size as usize)
            .map_err(fault)?;
        let to = self
            .memory
            .bytes(regs[3], to_size as usize)
            .map_err(fault)?;
        let sum = match (from_size, to_size) {
            (0, 0) => seed,
            (0, _) => checksum(to, seed),
            (_, 0) => !checksum(from, !seed),
            _ => add_carry(checksum(to, seed), !checksum(from, 0)),
        };
        let folded = sum.wrapping_add(sum.rotate_left(16)) >> 16;
        Ok(u64::from(folded))
    }

    fn spin_lock(&mut self, regs: &Registers) -> Step<u64> {
        if !self.memory.is_map_value(regs[1]) {
            return Err(bad(93, 1, regs, "expected a lock in a map value"));
        }
        self.memory.bytes(regs[1], 4).map_err(fault)?;
        if self.lock.is_some() {
            return Err(bad(93, 1, regs, "a lock is already held"));
        }
        self.lock = Some(regs[1]);
        Ok(0)
    }

    fn spin_unlock(&mut self, regs: &Registers) -> Step<u64> {
        if self.lock != Some(regs[1]) {
            return Err(bad(94, 1, regs, "this lock is not held"));
        }
        self.lock = None;
        Ok(0)
    }

    fn ringbuf_output(&mut self, regs: &Registers) -> Step<u64> {
        let id = self.map_of_kind(130, 1, regs, |k| k == MapKind::RingBuf)?;
        if regs[4] & !3 != 0 {
            return Ok(EINVAL as u64);
        }
        let size = usize::try_from(regs[3]).map_err(|_| bad(130, 3, regs, "size is too large"))?;
        let data = self.memory.bytes(regs[2], size).map_err(fault)?;
        self.scratch.value.clear();
        self.scratch.value.extend_from_slice(data);
        let Some(ring) = self.memory.maps.get_mut(id).and_then(Map::ring_mut) else {
            return Ok(EINVAL as u64);
        };
        let Some(sequence) = ring.reserve(size as u64) else {
            return Ok(EAGAIN as u64);
        };
        if let Some(record) = ring.record_mut(sequence) {
            record.copy_from_slice(&self.scratch.value);
        }
        ring.finish(sequence, true);
        Ok(0)
    }

    fn ringbuf_reserve(&mut self, regs: &Registers) -> Step<u64> {
        let id = self.map_of_kind(131, 1, regs, |k| k == MapKind::RingBuf)?;
        if regs[3] != 0 {
            return Ok(0);
        }
        let ring = self.memory.maps.get_mut(id).and_then(Map::ring_mut);
        let Some(sequence) = ring.and_then(|r| r.reserve(regs[2])) else {
            return Ok(0);
        };
        self.open_records += 1;
        Ok(self.memory.record_pointer(id, sequence))
    }

    fn ringbuf_finish(&mut self, number: u32, regs: &Registers, submit: bool) -> Step<u64> {
        let finished = self
            .memory
            .record_at(regs[1])
            .is_some_and(|(id, sequence)| {
                let ring = self.memory.maps.get_mut(id).and_then(Map::ring_mut);
                ring.is_some_and(|r| r.finish(sequence, submit))
            });
        if !finished {
            return Err(bad(number, 1, regs, "expected a reserved record"));
        }
        self.open_records = self.open_records.saturating_sub(1);
        Ok(0)
    }

    fn ringbuf_query(&mut self, regs: &Registers) -> Step<u64> {
        let id = self.map_of_kind(134, 1, regs, |k| k == MapKind::RingBuf)?;
        let ring = self.memory.maps.get(id).and_then(Map::ring);
        Ok(ring.map_or(0, |r| r.query(regs[2])))
    }

    fn strncmp(&mut self, regs: &Registers) -> Step<u64> {
        let size = regs[2] as u32;
        for i in 0..u64::from(size) {
            let [a] = self
                .memory
                .load::<1>(regs[1].wrapping_add(i))
                .map_err(fault)?;
            let [b] = self
                .memory
                .load::<1>(regs[3].wrapping_add(i))
                .map_err(fault)?;
            if a != b {
                return Ok(if a < b { -1i64 as u64 } else { 1 });
            }
            if a == 0 {
                break;
            }
        }
        Ok(0)
    }

    fn random_u32(&mut self) -> u32 {
        // splitmix64: any seed, zero included, gives a good sequence.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 32) as u32
    }

    fn context(&self, number: u32, regs: &Registers) -> Step<()> {
        if !self.memory.is_context(regs[1]) || self.memory.frame.is_none() {
            return Err(bad(number, 1, regs, "expected the context"));
        }
        Ok(())
    }

    fn map_of_kind(
        &self,
        number: u32,
        register: u8,
        regs: &Registers,
        accepts: impl Fn(MapKind) -> bool,
    ) -> Step<usize> {
        let address = regs[(register & 15) as usize];
        handle_map(address)
            .filter(|id| self.memory.maps.get(*id).is_some_and(|m| accepts(m.kind())))
            .ok_or_else(|| bad(number, register, regs, "expected a map of another kind"))
    }

    fn map_with_values(&self, number: u32, regs: &Registers) -> Step<usize> {
        self.map_of_kind(number, 1, regs, |k| {
            k.has_plain_values() || (k.holds_maps() && number == 1)
        })
    }

    /// A map programs may update and delete in.
    fn changeable_map(&self, number: u32, regs: &Registers) -> Step<usize> {
        let id = self.map_of_kind(number, 1, regs, |k| k.has_plain_values() && !k.redirects())?;
        let writable = self
            .memory
            .maps
            .get(id)
            .is_some_and(Map::writable_by_programs);
        if !writable {
            return Err(bad(number, 1, regs, "the map is read-only for programs"));
        }
        Ok(id)
    }

    fn read_key(&mut self, map: usize, address: u64) -> Step<()> {
        let size = self.key_size(map);
        let key = self.memory.bytes(address, size).map_err(fault)?;
        self.scratch.key.clear();
        self.scratch.key.extend_from_slice(key);
        Ok(())
    }

    fn key_size(&self, map: usize) -> usize {
        let map = self.memory.maps.get(map);
        map.map_or(0, |m| m.definition().key_size as usize)
    }

    fn value_size(&self, map: usize) -> usize {
        let map = self.memory.maps.get(map);
        map.map_or(0, |m| m.definition().value_size as usize)
    }
}

#[cold]
fn fault(access: Box<crate::memory::AccessFault>) -> Box<FaultKind> {
    Box::new(FaultKind::Access(access))
}

#[cold]
fn unknown(number: u32) -> Box<FaultKind> {
    Box::new(FaultKind::UnknownHelper {
        number,
        name: helper_name(number),
    })
}

#[cold]
fn bad(number: u32, register: u8, regs: &Registers, reason: &'static str) -> Box<FaultKind> {
    Box::new(FaultKind::HelperArgument {
        helper: helper_name(number),
        register,
        value: regs[(register & 15) as usize],
        reason,
    })
}

/// One's complement sum of 32-bit words, the last one padded with zeros, with end-around carry; zero only if everything is.
fn checksum(bytes: &[u8], seed: u32) -> u32 {
    let (words, rest) = bytes.as_chunks::<4>();
    let mut sum = u64::from(seed);
    for word in words {
        sum += u64::from(u32::from_le_bytes(*word));
    }
    let mut last = [0; 4];
    for (to, from) in last.iter_mut().zip(rest) {
        *to = *from;
    }
    sum += u64::from(u32::from_le_bytes(last));
    // Sizes are limited by the regions, far below 2^32 words, so the sum cannot overflow.
    sum = (sum & 0xffff_ffff) + (sum >> 32);
    sum = (sum & 0xffff_ffff) + (sum >> 32);
    sum as u32
}

fn add_carry(a: u32, b: u32) -> u32 {
    let (sum, carry) = a.overflowing_add(b);
    sum + u32::from(carry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_keep_their_carries() {
        assert_eq!(checksum(&[], 0), 0);
        assert_eq!(checksum(&[0xff; 8], 0), 0xffff_ffff);
        assert_eq!(checksum(&[0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0], 0), 2);
        assert_eq!(checksum(&[1, 2, 3], 0), 0x0003_0201);
        assert_eq!(add_carry(u32::MAX, 1), 1);
    }
}
