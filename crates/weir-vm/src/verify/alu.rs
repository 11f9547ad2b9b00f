//! Arithmetic on abstract registers: numbers, pointers moved by numbers, and what is refused.
//!
//! Owns the rules for pointers (the paper's Table 3); arithmetic of numbers is in `scalar`. Invariant: a pointer's
//! variable part is within half a gigabyte of its base at any time.

use super::rejection::{Birth, Rule, ValueKind};
use super::scalar::{Alu, Scalar};
use super::shape::operator;
use super::state::{ADDED, ADDED_LOW, MARKS, Reg};
use super::walk::{Step, Walk, stop, stop_at};
use crate::insn::{Kind, Op};

/// Pointers are moved by less than this.
pub(super) const DISTANCE_MAX: i64 = 1 << 29;

impl Walk<'_> {
    pub(super) fn alu(&mut self, op: &Op, alu: Alu, wide: bool, imm: bool) -> Step<()> {
        let at = self.at;
        if alu == Alu::Mov {
            if imm {
                let value = if wide { op.imm } else { op.imm & 0xffff_ffff };
                self.state
                    .set(op.dst, Reg::constant(value, Birth::Constant, at));
                return Ok(());
            }
            return self.copy(op, wide);
        }
        if !imm {
            self.readable(op.src)?;
        }
        let dst = *self.readable(op.dst)?;
        if alu == Alu::Neg {
            let result = if dst.is_number() {
                Reg::number(
                    dst.num.alu(Alu::Neg, wide, &Scalar::constant(0)),
                    Birth::Computed,
                    at,
                )
            } else {
                Reg::unknown(Birth::Computed, at)
            };
            self.state.set(op.dst, result);
            return Ok(());
        }
        if imm {
            self.check_constant_operand(op, alu, wide)?;
        }
        let src = if imm {
            Reg::constant(op.imm, Birth::Constant, at)
        } else {
            *self.state.reg(op.src)
        };
        match (dst.is_number(), src.is_number()) {
            (true, true) => self.numbers(op, alu, wide, &src),
            (false, false) => {
                if alu != Alu::Sub {
                    return stop_at(
                        op.dst,
                        Rule::TwoPointers {
                            operator: operator(alu),
                        },
                    );
                }
                self.state.set(op.dst, Reg::unknown(Birth::Computed, at));
                Ok(())
            }
            (false, true) => {
                if !imm {
                    self.precise(op.src);
                }
                self.move_pointer(op, alu, wide, (&dst, &src), op.dst)
            }
            (true, false) => {
                self.precise(op.dst);
                self.move_pointer(op, alu, wide, (&src, &dst), op.src)
            }
        }
    }

    /// Byte swaps and truncations.
    pub(super) fn bytes(&mut self, op: &Op) -> Step<()> {
        let dst = *self.readable(op.dst)?;
        let mut result = Reg::unknown(Birth::Computed, self.at);
        if dst.is_number() {
            let (bits, swapped) = match op.kind {
                Kind::Swap16 => (16, true),
                Kind::Swap32 => (32, true),
                Kind::Swap64 => (64, true),
                Kind::Le16 => (16, false),
                Kind::Le32 => (32, false),
                _ => (64, false),
            };
            result.num = dst.num.byte_order(bits, swapped);
        }
        self.state.set(op.dst, result);
        Ok(())
    }

    /// Sign-extending moves.
    pub(super) fn sign_move(&mut self, op: &Op, bits: u32, wide: bool) -> Step<()> {
        let src = *self.readable(op.src)?;
        if !src.is_number() {
            let mut result = Reg::unknown(Birth::Computed, self.at);
            if !wide {
                result.num = result.num.zero_extend(32);
            }
            self.state.set(op.dst, result);
            return Ok(());
        }
        let unchanged = src.num.umax < 1 << (bits - 1);
        if unchanged {
            self.name_number(op.src);
        }
        let mut result = *self.state.reg(op.src);
        if !unchanged {
            result.id = 0;
            result.off = 0;
        }
        result.num = result.num.sign_extend(bits, wide);
        self.state.set(op.dst, result);
        Ok(())
    }

    fn copy(&mut self, op: &Op, wide: bool) -> Step<()> {
        let src = *self.readable(op.src)?;
        if wide {
            self.name_number(op.src);
            let copied = *self.state.reg(op.src);
            self.state.set(op.dst, copied);
            return Ok(());
        }
        if !src.is_number() {
            let mut result = Reg::unknown(Birth::Computed, self.at);
            result.num = result.num.zero_extend(32);
            self.state.set(op.dst, result);
            return Ok(());
        }
        let fits = src.num.umax <= u64::from(u32::MAX);
        if fits {
            self.name_number(op.src);
        }
        let mut result = *self.state.reg(op.src);
        if !fits {
            // The upper half is dropped: what one copy learns does not hold for the other.
            result.id = 0;
            result.off = 0;
        }
        result.num = result.num.zero_extend(32);
        self.state.set(op.dst, result);
        Ok(())
    }

    /// Gives a number that is about to be copied an identity, so that copies learn from each other.
    pub(super) fn name_number(&mut self, register: u8) {
        let reg = *self.state.reg(register);
        if let Some(named) = self.named(reg) {
            *self.state.reg_mut(register) = named;
        }
    }

    /// The register with an identity, if it needs a new one or must lose its distance.
    pub(super) fn named(&mut self, mut reg: Reg) -> Option<Reg> {
        if !reg.is_number() {
            return None;
        }
        let mut changed = false;
        if reg.id & MARKS != 0 {
            reg.id = 0;
            reg.off = 0;
            changed = true;
        }
        if reg.id == 0 && reg.num.value().is_none() {
            reg.id = self.new_id();
            changed = true;
        }
        changed.then_some(reg)
    }

    fn check_constant_operand(&self, op: &Op, alu: Alu, wide: bool) -> Step<()> {
        let value = if wide {
            op.imm as i64
        } else {
            i64::from(op.imm as u32 as i32)
        };
        match alu {
            Alu::Div | Alu::Mod | Alu::Sdiv | Alu::Smod if value == 0 => {
                stop_at(op.dst, Rule::DivisionByZero)
            }
            Alu::Lsh | Alu::Rsh | Alu::Arsh => {
                let width = if wide { 64 } else { 32 };
                if (0..i64::from(width)).contains(&value) {
                    return Ok(());
                }
                stop_at(
                    op.dst,
                    Rule::ShiftAmount {
                        amount: value,
                        width,
                    },
                )
            }
            _ => Ok(()),
        }
    }

    fn numbers(&mut self, op: &Op, alu: Alu, wide: bool, src: &Reg) -> Step<()> {
        if alu == Alu::And && src.num.value().is_some() {
            self.fork_mask(op)?;
        }
        let at = self.at;
        let dst = self.state.reg_mut(op.dst);
        let narrow = dst.num.umax <= u64::from(u32::MAX);
        dst.num = dst.num.alu(alu, wide, &src.num);
        dst.birth = Birth::Computed;
        dst.born = at;
        let constant = src.num.value().filter(|_| alu == Alu::Add);
        let distance = constant.and_then(|n| match wide {
            true => i32::try_from(n as i64).ok(),
            // The sum's low half determines the siblings only if these are no wider.
            false => Some(n as u32 as i32).filter(|_| narrow),
        });
        match distance {
            Some(distance) if dst.id != 0 && dst.id & MARKS == 0 => {
                dst.id |= if wide { ADDED } else { ADDED_LOW };
                dst.off = distance;
            }
            _ => {
                dst.id = 0;
                dst.off = 0;
            }
        }
        Ok(())
    }

    /// A number that is 0 or all ones, as shifting a sign to the right leaves it, and is masked now: compilers write choices so. The kernel
    /// walks both (kernel/bpf/verifier.c: maybe_fork_scalars), which accepts more, and refuses what only one of them does wrong.
    fn fork_mask(&mut self, op: &Op) -> Step<()> {
        const LOW: u64 = u32::MAX as u64;
        let num = self.state.reg(op.dst).num;
        let (zeros, ones) = if (num.smin, num.smax) == (-1, 0) {
            (Scalar::constant(0), Scalar::constant(u64::MAX))
        } else if (num.s32_min, num.s32_max) == (-1, 0) {
            (
                num.alu(Alu::And, true, &Scalar::constant(!LOW)),
                num.alu(Alu::Or, true, &Scalar::constant(LOW)),
            )
        } else {
            return Ok(());
        };
        let at = self.at;
        let known = |state: &mut super::state::State, num| {
            let reg = state.reg_mut(op.dst);
            (reg.num, reg.id, reg.off) = (num, 0, 0);
            (reg.birth, reg.born) = (Birth::Computed, at);
        };
        let mut other = self.state.clone();
        known(&mut other, zeros);
        known(&mut self.state, ones);
        // The mask leaves 0 as it is.
        self.push(other, at as usize + 1)
    }

    /// `pointer op number`, where `register` held the pointer.
    fn move_pointer(
        &mut self,
        op: &Op,
        alu: Alu,
        wide: bool,
        (pointer, distance): (&Reg, &Reg),
        register: u8,
    ) -> Step<()> {
        let at = self.at;
        let kind = pointer.kind;
        if !wide {
            if alu != Alu::Sub {
                return stop_at(register, Rule::NarrowPointer { kind });
            }
            self.state.set(op.dst, Reg::unknown(Birth::Computed, at));
            return Ok(());
        }
        if pointer.or_null {
            let map = self.map_name_of(pointer);
            return stop_at(register, Rule::ArithmeticBeforeNullCheck { kind, map });
        }
        match kind {
            ValueKind::Map if distance.is_null() && alu == Alu::Add => {}
            ValueKind::Map | ValueKind::PacketEnd | ValueKind::Socket => {
                return stop_at(register, Rule::PointerArithmetic { kind });
            }
            _ => {}
        }
        self.check_distance(distance, kind, register)?;
        self.check_distance(pointer, kind, register)?;
        let mut result = *pointer;
        let constant = distance.num.value();
        match alu {
            Alu::Add => {
                let sum = constant.and_then(|c| {
                    i32::try_from(i64::from(pointer.off).wrapping_add(c as i64)).ok()
                });
                if let Some(off) = sum {
                    result.off = off;
                } else {
                    result.num = pointer.num.alu(Alu::Add, true, &distance.num);
                    if pointer.is_packet_any() {
                        result.id = self.new_id();
                        result.range = 0;
                        result.narrowed = at;
                    }
                }
            }
            Alu::Sub => {
                if op.dst != register {
                    return stop_at(op.dst, Rule::NumberMinusPointer);
                }
                if kind == ValueKind::Stack {
                    return stop_at(register, Rule::StackSubtraction);
                }
                let difference = constant.and_then(|c| {
                    i32::try_from(i64::from(pointer.off).wrapping_sub(c as i64)).ok()
                });
                if let Some(off) = difference {
                    result.off = off;
                } else {
                    result.num = pointer.num.alu(Alu::Sub, true, &distance.num);
                    if pointer.is_packet_any() {
                        result.id = self.new_id();
                        if distance.num.smin < 0 {
                            result.range = 0;
                        }
                        result.narrowed = at;
                    }
                }
            }
            _ => {
                return stop_at(
                    register,
                    Rule::PointerOperator {
                        operator: operator(alu),
                        kind,
                    },
                );
            }
        }
        self.check_distance(&result, kind, register)?;
        self.state.set(op.dst, result);
        Ok(())
    }

    /// Whether a pointer's offset, or what it is moved by, is sane.
    fn check_distance(&self, reg: &Reg, kind: ValueKind, register: u8) -> Step<()> {
        let wrong = |value| stop_at(register, Rule::PointerDistance { kind, value });
        if let Some(value) = reg.num.value() {
            let value = value as i64;
            if value >= DISTANCE_MAX || value <= -DISTANCE_MAX {
                return wrong(value);
            }
        }
        let off = if reg.is_number() {
            0
        } else {
            i64::from(reg.off)
        };
        if off >= DISTANCE_MAX || off <= -DISTANCE_MAX {
            return wrong(off);
        }
        if reg.num.smin >= DISTANCE_MAX || reg.num.smin <= -DISTANCE_MAX {
            return wrong(reg.num.smin);
        }
        Ok(())
    }

    /// Register `register`, which must hold something.
    pub(super) fn readable(&self, register: u8) -> Step<&Reg> {
        let reg = self.state.reg(register);
        if reg.kind == ValueKind::Uninitialised {
            return stop_at(register, Rule::UninitRegister { register });
        }
        Ok(reg)
    }

    /// Name of the map a pointer came from.
    pub(super) fn map_name_of(&self, reg: &Reg) -> Option<String> {
        let from_map = matches!(
            reg.kind,
            ValueKind::Map | ValueKind::MapValue | ValueKind::MapKey
        );
        from_map.then(|| self.map_name(reg.map))
    }

    /// An operation that this walk does not know.
    pub(super) fn unknown<T>(&self, name: &str) -> Step<T> {
        stop(Rule::External {
            name: name.to_owned(),
        })
    }
}
