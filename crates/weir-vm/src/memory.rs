//! The virtual address space of a run: every pointer names its region, and every access is checked.
//!
//! A pointer's top three bits are the kind of region; the rest names the region and the offset in it, biased so that
//! arithmetic a little outside stays recognisable. Owns translation and [`AccessFault`]; does not own the contents
//! (frames and maps do). Invariant: an address never reaches memory of another region, nor of another packet
//! generation, nor of an element or record other than its own.

use std::fmt;

use thiserror::Error;

use crate::frame::Frame;
use crate::insn::{Kind, LINKED, Op};
use crate::jit::Host;
use crate::maps::Map;
use crate::skb::{Loaded, SkbFields};

/// Bytes of stack in each call frame (RFC 9669 leaves it open; Linux has 512).
pub const STACK_BYTES: usize = 512;
/// Most call frames at once, the entry's included, as in Linux.
pub const CALL_FRAMES: usize = 8;

/// One frame more than programs have: keys shown to `bpf_for_each_map_elem` callbacks live there.
pub(crate) const KEY_FRAME: usize = CALL_FRAMES;
pub(crate) const STACK_TOTAL: usize = (CALL_FRAMES + 1) * STACK_BYTES;

/// Most maps of a machine, inner maps included.
pub(crate) const MAPS_MAX: usize = 1 << 12;

/// Numbers, and addresses of the host.
const NONE: u64 = 0;
const STACK: u64 = 1;
const CONTEXT: u64 = 2;
const PACKET: u64 = 3;
const VALUE: u64 = 4;
const RECORD: u64 = 5;
const HANDLE: u64 = 6;
const RAW: u64 = 7;

const KIND_SHIFT: u32 = 61;
/// Bias of 32-bit offsets.
const BIAS: u64 = 1 << 30;
/// Generations of packet pointers have 29 bits.
const GENERATION_MASK: u32 = (1 << 29) - 1;
/// Map number, slot or record, biased offset. The offset has 24 bits ([`SLOT_SHIFT`]) and the slot 25, but for maps of more slots:
/// there the slot takes bits that the offsets in their values leave ([`slot_shift`]).
const MAP_SHIFT: u32 = 49;
/// Bits of the offset in a value or record, the bias included, unless the map has too many slots for it.
pub(crate) const SLOT_SHIFT: u32 = 24;
/// The least of them: offsets from -256 KiB to 768 KiB stay recognisable.
const SLOT_SHIFT_LEAST: u32 = 20;
/// Handles count in steps, so that arithmetic on one gives no other.
const HANDLE_SHIFT: u32 = 16;
const FUNCTION_HANDLE: u64 = 1 << 60;

/// What an address points into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Region {
    /// Not a pointer: null or a number.
    None,
    /// Stack of the call frame with this number, 0 for the entry.
    Stack(u32),
    /// `struct xdp_md`.
    Context,
    /// The frame's bytes and metadata.
    Packet,
    /// A value of the map with this name.
    MapValue(String),
    /// A reserved record of the ring buffer with this name.
    Record(String),
    /// A map or function pointer, which has no bytes.
    Handle,
    /// Memory given to `run_raw`.
    Raw,
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Region::None => f.write_str("no region (not a pointer)"),
            Region::Stack(frame) => write!(f, "the stack of call frame {frame}"),
            Region::Context => f.write_str("the context"),
            Region::Packet => f.write_str("the packet"),
            Region::MapValue(map) => write!(f, "a value of map {map}"),
            Region::Record(map) => write!(f, "a record of ring buffer {map}"),
            Region::Handle => f.write_str("a map or function pointer"),
            Region::Raw => f.write_str("the memory passed in"),
        }
    }
}

/// Which rule an access broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Violation {
    /// Outside the region.
    #[error("outside the region")]
    Bounds,
    /// The pointer is older than the last head, tail or metadata adjustment.
    #[error("the packet pointer is stale: reload data and data_end after adjusting the frame")]
    StalePacket,
    /// The call frame has returned.
    #[error("that call frame has returned")]
    DeadFrame,
    /// The record was submitted or discarded.
    #[error("the record was already submitted or discarded")]
    Released,
    /// Programs may only read it.
    #[error("programs may not write here")]
    ReadOnly,
    /// Programs may only write it.
    #[error("programs may not read here")]
    WriteOnly,
    /// Atomic operations need natural alignment.
    #[error("an atomic operation must be aligned to its width")]
    Misaligned,
    /// The kernel allows atomic operations on stack, map values and records only.
    #[error("atomic operations are not allowed here")]
    Atomic,
    /// Only aligned 4-byte loads of the six documented fields.
    #[error("the context has only 4-byte loads at 0, 4, 8, 12, 16 and 20")]
    Context,
    /// No field of `struct __sk_buff`, or not of this width, or not to be written.
    #[error("struct __sk_buff has no field here that tc programs may access so")]
    SocketBuffer,
    /// Nothing can be read or written through it.
    #[error("it points to no memory")]
    NoMemory,
}

/// A checked access that failed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{} of {width} bytes at offset {offset} of {region}: {violation}", if *write { "write" } else { "read" })]
pub struct AccessFault {
    /// Region the address names.
    pub region: Region,
    /// Offset from the region's start; of the packet, from the frame's first byte.
    pub offset: i64,
    /// Bytes accessed.
    pub width: usize,
    /// Whether it was a write.
    pub write: bool,
    /// Rule broken.
    pub violation: Violation,
    /// The address as the program had it.
    pub address: u64,
}

/// Where an address points, as far as the region tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spot {
    /// Nowhere.
    None,
    /// Call frame, offset from its lowest byte.
    Stack(usize, i64),
    Context(i64),
    /// Distances from the metadata's start, the packet's start and the packet's end.
    Packet {
        meta: i64,
        data: i64,
        end: i64,
    },
    /// Map, offset from the start of a value.
    Value(usize, i64),
    /// Offset from the start of a record.
    Record(i64),
    Map(usize),
    /// Operation a function begins with.
    Function(usize),
}

type Access<T> = Result<T, Box<AccessFault>>;

/// The regions of one run.
pub(crate) struct Memory<'r> {
    pub(crate) stack: &'r mut [u8; STACK_TOTAL],
    /// What a call frame's stack holds when it begins.
    pub(crate) blank: u8,
    /// Number of the running call frame.
    pub(crate) depth: usize,
    pub(crate) frame: Option<&'r mut Frame>,
    pub(crate) generation: u32,
    pub(crate) raw: &'r mut [u8],
    pub(crate) maps: &'r mut [Map],
    /// `ingress_ifindex`, `rx_queue_index`, `egress_ifindex`.
    pub(crate) context: [u32; 3],
    /// Of a tc program, whose context is `struct __sk_buff`.
    pub(crate) skb: Option<&'r mut SkbFields>,
    /// In a native run addresses without a tag are the host's; in others they are nothing.
    pub(crate) host: Option<Host>,
}

/// Start of the call frame's stack; r10 is [`STACK_BYTES`] higher.
pub(crate) fn stack_address(frame: usize) -> u64 {
    (STACK << KIND_SHIFT) | ((frame as u64) << 32) | BIAS
}

pub(crate) fn context_address() -> u64 {
    (CONTEXT << KIND_SHIFT) | BIAS
}

pub(crate) fn raw_address() -> u64 {
    (RAW << KIND_SHIFT) | BIAS
}

/// Values that addresses with this many bits of offset tell apart; slots are 32-bit numbers.
pub(crate) fn slots_at(shift: u32) -> u64 {
    (1 << (MAP_SHIFT - shift)).min(u64::from(u32::MAX))
}

/// Bits that addresses of values spare for the offset, of a map with this many values of this size; nothing if addresses have too few bits
/// for so many. Values begin at a quarter of the range, and fill half of it at most.
pub(crate) fn slot_shift(slots: u64, value_size: u32) -> Option<u32> {
    let fits = |shift| slots <= slots_at(shift);
    if fits(SLOT_SHIFT) {
        return Some(SLOT_SHIFT);
    }
    let offset = (u64::from(value_size) * 2).next_power_of_two().ilog2();
    let shift = offset.max(SLOT_SHIFT_LEAST);
    (shift < SLOT_SHIFT && fits(shift)).then_some(shift)
}

/// The value of a map of one element, or the first one of a map with the usual [`slot_shift`].
pub(crate) fn value_address(map: usize) -> u64 {
    slot_address(map, 0, SLOT_SHIFT)
}

fn slot_address(map: usize, slot: u32, shift: u32) -> u64 {
    (VALUE << KIND_SHIFT)
        | ((map as u64) << MAP_SHIFT)
        | (u64::from(slot) << shift)
        | value_bias(shift)
}

fn record_address(map: usize, sequence: u32) -> u64 {
    (RECORD << KIND_SHIFT)
        | ((map as u64) << MAP_SHIFT)
        | (u64::from(sequence) << SLOT_SHIFT)
        | value_bias(SLOT_SHIFT)
}

pub(crate) fn map_handle(map: usize) -> u64 {
    (HANDLE << KIND_SHIFT) | ((map as u64) << HANDLE_SHIFT)
}

pub(crate) fn function_handle(op: u64) -> u64 {
    (HANDLE << KIND_SHIFT) | FUNCTION_HANDLE | (op << HANDLE_SHIFT)
}

/// The map a handle names.
pub(crate) fn handle_map(address: u64) -> Option<usize> {
    let index = (address >> HANDLE_SHIFT) & 0xffff_ffff;
    (address == map_handle(index as usize)).then_some(index as usize)
}

/// The operation a function pointer of the interpreter names.
pub(crate) fn handle_function(address: u64) -> Option<usize> {
    let index = (address >> HANDLE_SHIFT) & 0xffff_ffff;
    (address == function_handle(index)).then_some(index as usize)
}

/// The ring buffer and sequence number of a pointer to the start of a record.
fn record_of(address: u64) -> Option<(usize, u32)> {
    let (map, sequence) = (map_of(address), slot_of(address, SLOT_SHIFT));
    (address == record_address(map, sequence)).then_some((map, sequence))
}

/// The map whose value an address points into.
pub(crate) fn value_map(address: u64) -> Option<usize> {
    is_map_value(address).then(|| map_of(address))
}

/// What a 16-byte load with a relocation yields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Linked {
    /// The map itself.
    Map(usize),
    /// The value of a map of one element, and the offset in it.
    Value(usize, i32),
}

/// The pointer that the linker put into `op`, if it is one.
pub(crate) fn linked_pointer(op: &Op) -> Option<Linked> {
    if op.kind != Kind::LoadImm || op.src != LINKED {
        return None;
    }
    let address = op.imm;
    if let Some(map) = handle_map(address) {
        return Some(Linked::Map(map));
    }
    let offset = value_place(address, SLOT_SHIFT) as i32;
    let is_value = is_map_value(address) && slot_of(address, SLOT_SHIFT) == 0;
    is_value.then(|| Linked::Value(map_of(address), offset))
}

fn is_map_value(address: u64) -> bool {
    address >> KIND_SHIFT == VALUE
}

fn is_context(address: u64) -> bool {
    address >> KIND_SHIFT == CONTEXT
}

impl Memory<'_> {
    /// `len` bytes at `address`, to read.
    #[inline]
    pub(crate) fn bytes(&self, address: u64, len: usize) -> Access<&[u8]> {
        if len == 0 {
            return Ok(&[]);
        }
        self.find(address, len)
            .ok_or_else(|| self.explain(address, len, false))
    }

    /// `len` bytes at `address`, to write.
    #[inline]
    pub(crate) fn bytes_mut(&mut self, address: u64, len: usize) -> Access<&mut [u8]> {
        if len == 0 {
            return Ok(&mut []);
        }
        if self.find_mut(address, len).is_none() {
            return Err(self.explain(address, len, true));
        }
        Ok(self.find_mut(address, len).unwrap_or_default())
    }

    #[inline(always)]
    pub(crate) fn load<const N: usize>(&self, address: u64) -> Access<[u8; N]> {
        match self.find(address, N).and_then(|b| b.first_chunk::<N>()) {
            Some(bytes) => Ok(*bytes),
            None => self.load_field(address),
        }
    }

    #[inline(always)]
    pub(crate) fn store<const N: usize>(&mut self, address: u64, bytes: [u8; N]) -> Access<()> {
        if let Some(to) = self
            .find_mut(address, N)
            .and_then(|b| b.first_chunk_mut::<N>())
        {
            *to = bytes;
            return Ok(());
        }
        self.store_field(address, &bytes)
    }

    /// A 4-byte load, which from the context yields what the kernel's rewritten access would: pointers are 64 bits wide.
    #[inline(always)]
    pub(crate) fn load_word(&self, address: u64) -> Access<u64> {
        if is_context(address) {
            return self.load_context(address);
        }
        Ok(u64::from(u32::from_le_bytes(self.load::<4>(address)?)))
    }

    /// The bytes of an atomic operation: aligned, and not in the packet.
    #[inline]
    pub(crate) fn atomic<const N: usize>(&mut self, address: u64) -> Access<&mut [u8; N]> {
        let violation = match address >> KIND_SHIFT {
            PACKET => Some(Violation::Atomic),
            _ if !address.is_multiple_of(N as u64) => Some(Violation::Misaligned),
            _ => None,
        };
        if let Some(violation) = violation {
            let mut fault = self.explain(address, N, true);
            fault.violation = violation;
            return Err(fault);
        }
        if self.find_mut(address, N).is_none() {
            return Err(self.explain(address, N, true));
        }
        let fault = AccessFault {
            region: Region::None,
            offset: 0,
            width: N,
            write: true,
            violation: Violation::Bounds,
            address,
        };
        self.find_mut(address, N)
            .and_then(|b| b.first_chunk_mut::<N>())
            .ok_or_else(|| Box::new(fault))
    }

    /// What an address means, for comparing it with what the verifier foresaw.
    pub(crate) fn spot(&self, address: u64) -> Spot {
        let biased = i64::from(address as u32) - BIAS as i64;
        let in_value = value_place(address, self.shift_of(address));
        let upper = (address >> 32) as u32 & GENERATION_MASK;
        match address >> KIND_SHIFT {
            STACK => Spot::Stack(upper as usize, biased),
            CONTEXT => Spot::Context(biased),
            PACKET => {
                // Far offsets carry into the generation's bits, so both are one number here; a stale pointer is 2^32 and more away.
                let whole = (address & ((1 << KIND_SHIFT) - 1)) as i64;
                let biased = whole - (i64::from(self.generation) << 32) - BIAS as i64;
                let (meta, data, end) = self.frame.as_deref().map_or((0, 0, 0), Frame::bounds);
                Spot::Packet {
                    meta: biased - meta as i64,
                    data: biased - data as i64,
                    end: biased - end as i64,
                }
            }
            VALUE => Spot::Value(map_of(address), in_value),
            RECORD => Spot::Record(in_value),
            HANDLE => match (handle_map(address), handle_function(address)) {
                (Some(map), _) => Spot::Map(map),
                (None, Some(op)) => Spot::Function(op),
                (None, None) => Spot::None,
            },
            _ => Spot::None,
        }
    }

    /// The map and the slot that an address of a value names.
    pub(crate) fn slot_at(&self, address: u64) -> Option<(u32, &Map)> {
        let map = self.maps.get(value_map(address)?)?;
        Some((slot_of(address, map.slot_shift()), map))
    }

    /// Makes every packet pointer handed out so far stale.
    pub(crate) fn invalidate_packet(&mut self) {
        self.generation = next_generation(self.generation);
    }

    /// Makes the context show the frame as it is now.
    pub(crate) fn publish_frame(&mut self) {
        if let (Some(host), Some(frame)) = (&mut self.host, self.frame.as_deref()) {
            host.publish(frame);
        }
    }

    /// Pointer to a map's value for programs.
    #[inline]
    pub(crate) fn value_pointer(&self, map: usize, slot: u32) -> u64 {
        if self.host.is_some() {
            return self.maps.get(map).map_or(0, |m| m.slot_address(slot));
        }
        let shift = self.maps.get(map).map_or(SLOT_SHIFT, Map::slot_shift);
        slot_address(map, slot, shift)
    }

    /// Bits of the offset in an address of a value or record.
    fn shift_of(&self, address: u64) -> u32 {
        let map = self.maps.get(map_of(address));
        map.map_or(SLOT_SHIFT, Map::slot_shift)
    }

    /// Pointer to `len` bytes at an offset of the packet, if programs can reach them directly.
    pub(crate) fn packet_pointer(&self, offset: usize, len: usize) -> Option<u64> {
        let (_, data, end) = self.frame.as_deref()?.bounds();
        let at = data.checked_add(offset)?;
        (at.checked_add(len)? <= end).then(|| {
            (PACKET << KIND_SHIFT) | (u64::from(self.generation) << 32) | (BIAS + at as u64)
        })
    }

    /// Pointer to a reserved record for programs.
    pub(crate) fn record_pointer(&self, map: usize, sequence: u32) -> u64 {
        if self.host.is_some() {
            let ring = self.maps.get(map).and_then(Map::ring);
            return ring.map_or(0, |r| r.address(sequence));
        }
        record_address(map, sequence)
    }

    /// The ring buffer and sequence number of a pointer to the start of a record.
    pub(crate) fn record_at(&self, address: u64) -> Option<(usize, u32)> {
        if self.host.is_some() {
            let mut rings = self.maps.iter().enumerate();
            return rings.find_map(|(map, m)| Some((map, m.ring()?.at_address(address)?)));
        }
        record_of(address)
    }

    /// Pointer to the key shown to callbacks over elements.
    pub(crate) fn key_pointer(&self) -> u64 {
        match &self.host {
            Some(host) => host.key(),
            None => stack_address(KEY_FRAME),
        }
    }

    /// The function a pointer names: an operation for the interpreter, an address in a native run.
    pub(crate) fn function_at(&self, address: u64) -> Option<usize> {
        if self.host.is_some() {
            return Some(address as usize);
        }
        handle_function(address)
    }

    /// Whether a pointer goes to a map's value.
    pub(crate) fn is_map_value(&self, address: u64) -> bool {
        self.host.is_some() || is_map_value(address)
    }

    /// Whether a pointer is the context.
    pub(crate) fn is_context(&self, address: u64) -> bool {
        self.host.is_some() || is_context(address)
    }

    /// A byte at an address that nobody has checked, not even the verifier.
    pub(crate) fn probe(&self, address: u64) -> Option<u8> {
        if let Some(host) = &self.host {
            let frame = self.frame.as_deref().is_some_and(|f| f.holds(address, 1));
            let ours =
                frame || host.holds(address, 1) || self.maps.iter().any(|m| m.holds(address, 1));
            if !ours {
                return None;
            }
        }
        self.load::<1>(address).ok().map(|[byte]| byte)
    }

    /// Clears the stack of the running call frame, so that reading what was not written yields the same each time.
    #[inline]
    pub(crate) fn clear_stack(&mut self) {
        let start = self.depth * STACK_BYTES;
        if let Some(stack) = self.stack.get_mut(start..start + STACK_BYTES) {
            stack.fill(self.blank);
        }
    }

    #[inline(always)]
    fn find(&self, address: u64, len: usize) -> Option<&[u8]> {
        match address >> KIND_SHIFT {
            NONE => self.host.as_ref()?.bytes(address, len),
            STACK => {
                let at = self.stack_at(address, len)?;
                self.stack.get(at..at + len)
            }
            PACKET => {
                let frame = self.frame.as_deref()?;
                let at = packet_at(frame, self.generation, address, len)?;
                frame.buffer().get(at..at + len)
            }
            VALUE => {
                let map = self.maps.get(map_of(address))?;
                let at = value_offset(address, map.slot_shift())?;
                if !map.readable_by_programs() {
                    return None;
                }
                let slot = slot_of(address, map.slot_shift());
                map.slot_value(slot)?.get(at..at + len)
            }
            RAW => {
                let at = biased_offset(address)?;
                self.raw.get(at..at + len)
            }
            RECORD => {
                let at = value_offset(address, SLOT_SHIFT)?;
                let ring = self.maps.get(map_of(address))?.ring()?;
                ring.record(slot_of(address, SLOT_SHIFT))?.get(at..at + len)
            }
            _ => None,
        }
    }

    #[inline(always)]
    fn find_mut(&mut self, address: u64, len: usize) -> Option<&mut [u8]> {
        match address >> KIND_SHIFT {
            NONE => self.host.as_mut()?.bytes_mut(address, len),
            STACK => {
                let at = self.stack_at(address, len)?;
                self.stack.get_mut(at..at + len)
            }
            PACKET => {
                let generation = self.generation;
                let frame = self.frame.as_deref_mut()?;
                let at = packet_at(frame, generation, address, len)?;
                frame.buffer_mut().get_mut(at..at + len)
            }
            VALUE => {
                let map = self.maps.get_mut(map_of(address))?;
                let at = value_offset(address, map.slot_shift())?;
                if !map.writable_by_programs() {
                    return None;
                }
                let slot = slot_of(address, map.slot_shift());
                map.slot_value_mut(slot)?.get_mut(at..at + len)
            }
            RAW => {
                let at = biased_offset(address)?;
                self.raw.get_mut(at..at + len)
            }
            RECORD => {
                let at = value_offset(address, SLOT_SHIFT)?;
                let ring = self.maps.get_mut(map_of(address))?.ring_mut()?;
                ring.record_mut(slot_of(address, SLOT_SHIFT))?
                    .get_mut(at..at + len)
            }
            _ => None,
        }
    }

    #[inline(always)]
    fn stack_at(&self, address: u64, len: usize) -> Option<usize> {
        let frame = (address >> 32) as u32 & GENERATION_MASK;
        let offset = biased_offset(address)?;
        let live = frame as usize <= self.depth || frame as usize == KEY_FRAME;
        (live && offset + len <= STACK_BYTES).then(|| frame as usize * STACK_BYTES + offset)
    }

    /// A load from `struct __sk_buff` of another width than four, which XDP's context does not have.
    #[cold]
    #[inline(never)]
    fn load_field<const N: usize>(&self, address: u64) -> Access<[u8; N]> {
        if let Some(value) = self.skb_value(address, N)
            && let Some(bytes) = value.to_le_bytes().first_chunk::<N>()
        {
            return Ok(*bytes);
        }
        Err(self.explain(address, N, false))
    }

    /// A store to `struct __sk_buff`; XDP's context is read-only.
    #[cold]
    #[inline(never)]
    fn store_field(&mut self, address: u64, bytes: &[u8]) -> Access<()> {
        if let (Some(fields), Some(offset)) = (self.skb.as_deref_mut(), context_offset(address))
            && fields.store(offset, bytes).is_some()
        {
            return Ok(());
        }
        Err(self.explain(address, bytes.len(), true))
    }

    fn skb_value(&self, address: u64, width: usize) -> Option<u64> {
        let loaded = self.skb.as_deref()?.load(context_offset(address)?, width)?;
        let frame = self.frame.as_deref()?;
        let (meta, data, end) = frame.bounds();
        let packet = |at: usize| {
            (PACKET << KIND_SHIFT) | (u64::from(self.generation) << 32) | (BIAS + at as u64)
        };
        Some(match loaded {
            Loaded::Number(value) => value,
            Loaded::Data => packet(data),
            Loaded::End => packet(end),
            Loaded::Meta => packet(meta),
            Loaded::Length { shift, bits } => {
                (frame.len() as u64 >> shift) & (u64::MAX >> (64 - bits))
            }
        })
    }

    fn load_context(&self, address: u64) -> Access<u64> {
        if self.skb.is_some() {
            let value = self.skb_value(address, 4);
            return value.ok_or_else(|| self.explain(address, 4, false));
        }
        let offset = (address as u32).wrapping_sub(BIAS as u32);
        let (meta, data, end) = self.frame.as_deref().map_or((0, 0, 0), Frame::bounds);
        let packet = |at: usize| {
            (PACKET << KIND_SHIFT) | (u64::from(self.generation) << 32) | (BIAS + at as u64)
        };
        let [ingress, queue, egress] = self.context;
        Ok(
            match (address >> 32 == CONTEXT << (KIND_SHIFT - 32), offset) {
                (true, 0) => packet(data),
                (true, 4) => packet(end),
                (true, 8) => packet(meta),
                (true, 12) => u64::from(ingress),
                (true, 16) => u64::from(queue),
                (true, 20) => u64::from(egress),
                _ => return Err(self.explain(address, 4, false)),
            },
        )
    }

    #[cold]
    #[inline(never)]
    fn explain(&self, address: u64, width: usize, write: bool) -> Box<AccessFault> {
        let biased = i64::from(address as u32) - BIAS as i64;
        let in_value = value_place(address, self.shift_of(address));
        let map = self.maps.get(map_of(address));
        let map_name = || map.map_or_else(|| "?".to_owned(), |m| m.name().to_owned());
        let upper = (address >> 32) as u32 & GENERATION_MASK;
        let (region, offset, violation) = match address >> KIND_SHIFT {
            STACK => {
                let dead = upper as usize > self.depth && upper as usize != KEY_FRAME;
                let violation = if dead {
                    Violation::DeadFrame
                } else {
                    Violation::Bounds
                };
                (Region::Stack(upper), biased, violation)
            }
            CONTEXT if self.skb.is_some() => (Region::Context, biased, Violation::SocketBuffer),
            CONTEXT if write => (Region::Context, biased, Violation::ReadOnly),
            CONTEXT => (Region::Context, biased, Violation::Context),
            PACKET => {
                let data = self.frame.as_deref().map_or(0, |f| f.bounds().1);
                let violation = if upper == self.generation {
                    Violation::Bounds
                } else {
                    Violation::StalePacket
                };
                (Region::Packet, biased - data as i64, violation)
            }
            VALUE => {
                let protected = write && map.is_some_and(|m| !m.writable_by_programs());
                let violation = if protected {
                    Violation::ReadOnly
                } else if !write && map.is_some_and(|m| !m.readable_by_programs()) {
                    Violation::WriteOnly
                } else {
                    Violation::Bounds
                };
                (Region::MapValue(map_name()), in_value, violation)
            }
            RECORD => {
                let ring = map.and_then(Map::ring);
                let held = ring.is_some_and(|r| r.record(slot_of(address, SLOT_SHIFT)).is_some());
                let violation = if held {
                    Violation::Bounds
                } else {
                    Violation::Released
                };
                (Region::Record(map_name()), in_value, violation)
            }
            HANDLE => (Region::Handle, 0, Violation::NoMemory),
            RAW => (Region::Raw, biased, Violation::Bounds),
            _ => (Region::None, address as i64, Violation::NoMemory),
        };
        Box::new(AccessFault {
            region,
            offset,
            width,
            write,
            violation,
            address,
        })
    }
}

/// Offset of an address in the context.
fn context_offset(address: u64) -> Option<usize> {
    let inside = address >> 32 == CONTEXT << (KIND_SHIFT - 32);
    biased_offset(address).filter(|_| inside)
}

pub(crate) fn next_generation(generation: u32) -> u32 {
    (generation + 1) & GENERATION_MASK
}

#[inline(always)]
fn biased_offset(address: u64) -> Option<usize> {
    (address as u32)
        .checked_sub(BIAS as u32)
        .map(|o| o as usize)
}

/// What is added to offsets, so that those a little below zero are recognised.
#[inline(always)]
const fn value_bias(shift: u32) -> u64 {
    1 << (shift - 2)
}

/// Offset from the start of a value or record.
#[inline(always)]
fn value_place(address: u64, shift: u32) -> i64 {
    (address & ((1 << shift) - 1)) as i64 - value_bias(shift) as i64
}

#[inline(always)]
fn value_offset(address: u64, shift: u32) -> Option<usize> {
    usize::try_from(value_place(address, shift)).ok()
}

#[inline(always)]
fn map_of(address: u64) -> usize {
    (address >> MAP_SHIFT) as usize & (MAPS_MAX - 1)
}

#[inline(always)]
fn slot_of(address: u64, shift: u32) -> u32 {
    (address >> shift) as u32 & ((1u64 << (MAP_SHIFT - shift)) - 1) as u32
}

#[inline(always)]
fn packet_at(frame: &Frame, generation: u32, address: u64, len: usize) -> Option<usize> {
    let (meta, _, end) = frame.bounds();
    let at = biased_offset(address)?;
    let current = (address >> 32) as u32 & GENERATION_MASK == generation;
    (current && at >= meta && at + len <= end).then_some(at)
}
