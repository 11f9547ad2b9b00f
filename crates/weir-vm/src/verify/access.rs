//! Loads, stores and atomic operations: what a pointer may reach, and what comes back.
//!
//! Owns bounds of packet, map values, records, keys and context; the stack's are in `stack`. The same checks serve
//! helpers' memory arguments. Invariant: every access that passes lies inside its memory for every value of the pointer.

use super::alu::DISTANCE_MAX;
use super::helpers::Hook;
use super::rejection::{Birth, Rule, ValueKind};
use super::scalar::Scalar;
use super::shape::fetched;
use super::stack::Stored;
use super::state::Reg;
use super::walk::{Step, Walk, stop, stop_at};
use crate::insn::{LOAD_ACQUIRE, Op, STORE_RELEASE};
use crate::skb::{self, Field};

/// Bytes of `struct xdp_md`.
const CONTEXT_BYTES: i64 = 24;
const EGRESS_IFINDEX: i64 = 20;
/// Bytes of a lock.
const LOCK_BYTES: i64 = 4;

/// How memory is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Read,
    Write,
}

impl Walk<'_> {
    /// `dst = *(src + off)`.
    pub(super) fn load(&mut self, op: &Op, bytes: u8, signed: bool) -> Step<()> {
        let base = *self.readable(op.src)?;
        self.check_same_kind(op.src, &base)?;
        if op.imm == LOAD_ACQUIRE as u64 {
            self.check_ordered(op.src, &base, op.off, bytes)?;
        }
        let mut reg = self.read(op.src, op.off, bytes, signed)?;
        if reg.is_number() && bytes < 8 {
            let bits = u32::from(bytes) * 8;
            reg.num = if signed {
                reg.num.sign_extend(bits, true)
            } else {
                reg.num.zero_extend(bits)
            };
            if signed {
                reg.id = 0;
                reg.off = 0;
            }
        }
        self.state.set(op.dst, reg);
        Ok(())
    }

    /// `*(dst + off) = value`.
    pub(super) fn store(&mut self, op: &Op, bytes: u8, source: Option<u8>) -> Step<()> {
        if let Some(source) = source {
            self.readable(source)?;
        }
        let base = *self.readable(op.dst)?;
        self.check_same_kind(op.dst, &base)?;
        if source.is_some() && op.imm == STORE_RELEASE as u64 {
            self.check_ordered(op.dst, &base, op.off, bytes)?;
        }
        let value = match source {
            Some(source) => Stored::Reg(source),
            None => Stored::Constant(op.imm),
        };
        self.write(op.dst, op.off, bytes, value)
    }

    /// Read-modify-write: aligned, on stack, values and records only.
    pub(super) fn atomic(&mut self, op: &Op, bytes: u8) -> Step<()> {
        self.readable(op.src)?;
        let base = *self.readable(op.dst)?;
        if op.imm & 0xff == 0xf1 {
            self.readable(0)?;
        }
        if !takes_atomics(base.kind) {
            return stop_at(op.dst, Rule::AtomicTarget { kind: base.kind });
        }
        self.check_same_kind(op.dst, &base)?;
        self.check_alignment(op.dst, &base, op.off, bytes, true)?;
        self.read(op.dst, op.off, bytes, false)?;
        // As in the kernel, the register that gets the old value does so before the write is checked: it cannot be the
        // pointer.
        if let Some(register) = fetched(op) {
            let mut result = Reg::unknown(Birth::Loaded(base.kind), self.at);
            result.num = result.num.zero_extend(u32::from(bytes) * 8);
            self.state.set(register, result);
        }
        self.write(op.dst, op.off, bytes, Stored::Anything)
    }

    /// `r0 = bytes of the packet`, by way of the context in r6; ends the function with 0 where there are none.
    pub(super) fn packet_load(&mut self, op: &Op, indexed: bool) -> Step<()> {
        const CONTEXT: u8 = 6;
        if self.hook != Hook::Tc {
            return stop(Rule::Invalid {
                reason: "legacy packet access (LD_ABS, LD_IND) is for tc programs; use direct packet access"
                    .to_owned(),
            });
        }
        let context = *self.readable(CONTEXT)?;
        if indexed {
            self.readable(op.src)?;
        }
        self.check_nothing_open()?;
        if context.kind != ValueKind::Context {
            return stop_at(
                CONTEXT,
                Rule::HelperArgument {
                    helper: "LD_ABS",
                    register: CONTEXT,
                    expected: "the context",
                    found: context.kind,
                },
            );
        }
        self.check_unmoved(CONTEXT, &context)?;
        if self.state.depth() > 0 {
            let mut gone = self.state.clone();
            let frame = gone.frames.pop();
            if frame.as_ref().is_some_and(|f| f.callback.is_some()) {
                return stop(Rule::CallbackResult {
                    min: 0,
                    max: i64::MAX,
                });
            }
            let call = frame.map_or(super::state::NOWHERE, |f| f.call);
            gone.set(0, Reg::constant(0, Birth::Computed, self.at));
            self.push(gone, call as usize + 1)?;
        }
        self.state.clobber(self.at);
        self.state
            .set(0, Reg::unknown(Birth::Loaded(ValueKind::Packet), self.at));
        Ok(())
    }

    /// Whether a load or store that orders others may go where the pointer points.
    fn check_ordered(&self, register: u8, base: &Reg, off: i32, bytes: u8) -> Step<()> {
        let kind = base.kind;
        if !takes_atomics(kind) {
            return stop_at(register, Rule::AtomicTarget { kind });
        }
        self.check_alignment(register, base, off, bytes, true)
    }

    fn read(&mut self, register: u8, off: i32, bytes: u8, signed: bool) -> Step<Reg> {
        let base = *self.state.reg(register);
        let size = i64::from(bytes);
        self.check_alignment(register, &base, off, bytes, false)?;
        match base.kind {
            ValueKind::Stack => {
                self.note_access(&base);
                return self.stack_load(register, off, bytes as usize);
            }
            ValueKind::Context => return self.read_context(register, off, bytes, signed),
            ValueKind::Socket => return self.read_socket(register, off, bytes),
            ValueKind::Object => return self.read_object(register, off, bytes),
            ValueKind::Map => return self.read_map(register, off, bytes),
            _ => self.check_memory(register, off, size, Mode::Read)?,
        }
        let mut result = Reg::unknown(Birth::Loaded(base.kind), self.at);
        if base.kind == ValueKind::MapValue
            && let Some(number) = self.constant_at(&base, off, bytes as usize)
        {
            result.num = number;
        }
        self.note_access(&base);
        Ok(result)
    }

    fn write(&mut self, register: u8, off: i32, bytes: u8, value: Stored) -> Step<()> {
        let base = *self.state.reg(register);
        self.check_alignment(register, &base, off, bytes, false)?;
        self.note_access(&base);
        match base.kind {
            ValueKind::Stack => self.stack_store(register, off, bytes as usize, value),
            ValueKind::Context => {
                let offset = self.context_offset(register, &base, off)?;
                let writable = usize::try_from(offset)
                    .is_ok_and(|offset| skb::writable(offset, usize::from(bytes)));
                if self.hook == Hook::Tc && writable {
                    return Ok(());
                }
                stop_at(
                    register,
                    Rule::ContextField {
                        offset,
                        size: i64::from(bytes),
                        write: true,
                    },
                )
            }
            _ => self.check_memory(register, off, i64::from(bytes), Mode::Write),
        }
    }

    /// Whether `size` bytes at `register + off` lie in the memory it points to, which is not the stack or the context.
    pub(super) fn check_memory(
        &mut self,
        register: u8,
        off: i32,
        size: i64,
        mode: Mode,
    ) -> Step<()> {
        let base = *self.state.reg(register);
        let kind = base.kind;
        if base.or_null {
            let map = self.map_name_of(&base);
            return stop_at(register, Rule::NullValue { kind, map });
        }
        match kind {
            ValueKind::Packet | ValueKind::PacketMeta => {
                self.check_packet(register, &base, off, size)
            }
            ValueKind::MapValue => self.check_value(register, &base, off, size, mode),
            ValueKind::Record | ValueKind::Memory | ValueKind::MapKey => {
                if mode == Mode::Write && (base.read_only || kind == ValueKind::MapKey) {
                    return stop_at(register, Rule::ReadOnlyMemory { kind });
                }
                let limit = match kind {
                    ValueKind::MapKey => self.map(base.map).map_or(0, |m| m.definition.key_size),
                    _ => base.range as u32,
                };
                self.check_region(register, &base, off, size, limit)
            }
            _ => stop_at(register, Rule::NotMemory { kind }),
        }
    }

    fn check_packet(&self, register: u8, base: &Reg, off: i32, size: i64) -> Step<()> {
        if base.num.smin < 0 {
            return stop_at(register, Rule::PacketNegative { min: base.num.smin });
        }
        let offset = i64::from(base.off) + i64::from(off);
        let range = i64::from(base.range);
        if range < 0 || offset < 0 || size < 0 || offset + size > range {
            return stop_at(
                register,
                Rule::PacketBounds {
                    offset,
                    size,
                    range,
                    variable: base.num.value().is_none(),
                },
            );
        }
        Ok(())
    }

    fn check_value(&self, register: u8, base: &Reg, off: i32, size: i64, mode: Mode) -> Step<()> {
        let Some(map) = self.map(base.map) else {
            return stop_at(register, Rule::NotMemory { kind: base.kind });
        };
        let definition = map.definition;
        if mode == Mode::Write && !definition.is_writable_by_programs() {
            return stop_at(
                register,
                Rule::ReadOnlyMap {
                    map: definition.name.clone(),
                },
            );
        }
        if mode == Mode::Read && definition.flags & WRONLY_PROG != 0 {
            return stop_at(
                register,
                Rule::ReadOnlyMap {
                    map: definition.name.clone(),
                },
            );
        }
        self.check_region(register, base, off, size, definition.value_size)?;
        if let Some(lock) = map.lock {
            let from = i64::from(base.off) + i64::from(off);
            let (min, max) = (from + base.num.smin, from + base.num.umax as i64);
            if min < lock + LOCK_BYTES && lock < max + size {
                return stop_at(
                    register,
                    Rule::LockAccess {
                        map: definition.name.clone(),
                    },
                );
            }
        }
        Ok(())
    }

    /// Bounds of memory of a known size.
    fn check_region(&self, register: u8, base: &Reg, off: i32, size: i64, limit: u32) -> Step<()> {
        let from = i64::from(base.off) + i64::from(off);
        let min = from.saturating_add(base.num.smin);
        let max = i64::try_from(base.num.umax)
            .unwrap_or(i64::MAX)
            .saturating_add(from);
        let unbounded = base.num.umax >= DISTANCE_MAX as u64;
        let inside = |at: i64| at >= 0 && size >= 0 && at.saturating_add(size) <= i64::from(limit);
        if !unbounded && inside(min) && inside(max) {
            return Ok(());
        }
        let rule = match base.kind {
            ValueKind::MapValue => Rule::MapValueBounds {
                map: self.map_name(base.map),
                min,
                max,
                size,
                value_size: limit,
            },
            kind => Rule::MemoryBounds {
                kind,
                min,
                max,
                size,
                limit,
            },
        };
        stop_at(register, rule)
    }

    /// Offset of a context access, which may not be through a moved pointer.
    fn context_offset(&self, register: u8, base: &Reg, off: i32) -> Step<i64> {
        if base.off != 0 {
            return stop_at(
                register,
                Rule::ContextMoved {
                    offset: i64::from(base.off),
                },
            );
        }
        if base.num.value() != Some(0) {
            return stop_at(register, Rule::VariableOffset { kind: base.kind });
        }
        Ok(i64::from(off))
    }

    fn read_context(&mut self, register: u8, off: i32, bytes: u8, signed: bool) -> Step<Reg> {
        let base = *self.state.reg(register);
        let offset = self.context_offset(register, &base, off)?;
        let size = i64::from(bytes);
        if self.hook == Hook::Tc {
            return self.read_buffer(register, offset, bytes, signed);
        }
        let field = size == 4
            && (0..CONTEXT_BYTES).contains(&offset)
            && offset % 4 == 0
            && (offset != EGRESS_IFINDEX || self.egress)
            && !(signed && offset < 12);
        if !field {
            return stop_at(
                register,
                Rule::ContextField {
                    offset,
                    size,
                    write: false,
                },
            );
        }
        self.note_access(&base);
        let birth = Birth::Loaded(ValueKind::Context);
        Ok(match offset {
            0 => Reg::pointer(ValueKind::Packet, birth, self.at),
            4 => Reg::pointer(ValueKind::PacketEnd, birth, self.at),
            8 => Reg::pointer(ValueKind::PacketMeta, birth, self.at),
            _ => Reg::unknown(birth, self.at),
        })
    }

    /// A load from `struct __sk_buff`.
    fn read_buffer(&mut self, register: u8, offset: i64, bytes: u8, signed: bool) -> Step<Reg> {
        let field = usize::try_from(offset)
            .ok()
            .and_then(|offset| skb::readable(offset, usize::from(bytes)));
        let birth = Birth::Loaded(ValueKind::Context);
        if field == Some(Field::Socket) && !signed {
            let base = *self.state.reg(register);
            self.note_access(&base);
            return Ok(self.context_socket(birth));
        }
        let pointer = |kind| Some(Reg::pointer(kind, birth, self.at));
        let loaded = match field {
            Some(Field::Data) => pointer(ValueKind::Packet),
            Some(Field::End) => pointer(ValueKind::PacketEnd),
            Some(Field::Meta) => pointer(ValueKind::PacketMeta),
            Some(Field::Number | Field::Length | Field::Vlan) => Some(Reg::unknown(birth, self.at)),
            Some(Field::Socket) | None => None,
        };
        let Some(loaded) = loaded.filter(|reg| !signed || reg.is_number()) else {
            return stop_at(
                register,
                Rule::ContextField {
                    offset,
                    size: i64::from(bytes),
                    write: false,
                },
            );
        };
        let base = *self.state.reg(register);
        self.note_access(&base);
        Ok(loaded)
    }

    /// The number in a constant's memory.
    fn constant_at(&self, base: &Reg, off: i32, size: usize) -> Option<Scalar> {
        let contents = self.map(base.map)?.frozen?;
        let at = i64::from(base.off) + i64::from(off) + base.num.value()? as i64;
        let at = usize::try_from(at).ok()?;
        let bytes = contents.get(at..at + size)?;
        let mut wide = [0; 8];
        for (to, from) in wide.iter_mut().zip(bytes) {
            *to = *from;
        }
        Some(Scalar::constant(u64::from_le_bytes(wide)))
    }

    /// Where alignment is checked: stack always, atomics always, other memory when asked to.
    fn check_alignment(
        &self,
        register: u8,
        base: &Reg,
        off: i32,
        bytes: u8,
        atomic: bool,
    ) -> Step<()> {
        let kernel = matches!(base.kind, ValueKind::Object | ValueKind::Map);
        let strict = atomic || base.kind == ValueKind::Stack || self.options.strict_alignment;
        if !strict || bytes == 1 || base.kind == ValueKind::Context || kernel {
            return Ok(());
        }
        let offset = i64::from(base.off) + i64::from(off);
        // As the kernel for machines that need it: the frame begins two bytes before an aligned address.
        let skew = match base.kind {
            ValueKind::Packet | ValueKind::PacketMeta => 2,
            _ => 0,
        };
        let sum = base
            .num
            .tnum
            .add(super::tnum::Tnum::constant((offset + skew) as u64));
        if sum.is_aligned(u64::from(bytes)) {
            return Ok(());
        }
        stop_at(
            register,
            Rule::Misaligned {
                kind: base.kind,
                offset,
                size: i64::from(bytes),
            },
        )
    }

    /// An operation's context accesses are rewritten, so it cannot access something else on another path.
    fn check_same_kind(&self, register: u8, base: &Reg) -> Step<()> {
        use super::facts::Access;
        let special = |kind| {
            matches!(
                kind,
                ValueKind::Context | ValueKind::Socket | ValueKind::Object
            )
        };
        let before = self.facts.op(self.at as usize).access;
        let mixed = match before {
            // Kinds of sockets are as different as sockets and contexts.
            Access::One(ValueKind::Socket, socket) if base.kind == ValueKind::Socket => {
                socket != Some(base.map as usize)
            }
            Access::One(kind, _) => kind != base.kind && (special(kind) || special(base.kind)),
            Access::Several => special(base.kind),
            Access::None => false,
        };
        if mixed {
            return stop_at(register, Rule::MixedPointers { kind: base.kind });
        }
        Ok(())
    }

    pub(super) fn note_access(&mut self, base: &Reg) {
        let map = match base.kind {
            ValueKind::MapValue => self
                .map(base.map)
                .filter(|m| m.live)
                .map(|_| base.map as usize),
            ValueKind::Socket => Some(base.map as usize),
            _ => None,
        };
        self.facts.access(self.at as usize, base.kind, map);
    }

    /// A helper's memory argument: `size` bytes at `register`, read or (also) written.
    pub(super) fn check_argument_memory(
        &mut self,
        register: u8,
        size: i64,
        mode: Mode,
        fills: bool,
        zero_allowed: bool,
    ) -> Step<()> {
        let base = *self.state.reg(register);
        if zero_allowed && size == 0 && base.is_null() {
            return Ok(());
        }
        match base.kind {
            ValueKind::Stack if !base.or_null => {
                if size == 0 && zero_allowed {
                    // Nothing is accessed, but the pointer must be into the frame.
                    let (_, max) = self.stack_range(register, 0, 0)?;
                    if max >= 0 {
                        return stop_at(register, Rule::StackBounds { offset: max, size });
                    }
                    return Ok(());
                }
                self.stack_argument(register, 0, size, mode == Mode::Write, fills)
            }
            _ => self.check_memory(register, 0, size, mode),
        }
    }
}

/// Programs may only write (`BPF_F_WRONLY_PROG`).
const WRONLY_PROG: u32 = 1 << 8;

/// Whether atomic operations may go to such memory at all.
fn takes_atomics(kind: ValueKind) -> bool {
    !matches!(
        kind,
        ValueKind::Context
            | ValueKind::Packet
            | ValueKind::PacketMeta
            | ValueKind::Socket
            | ValueKind::Object
            | ValueKind::Map
    )
}
