//! The value a relocated instruction should hold, and how it is written into it.
//!
//! Invariant: an instruction that does not hold what the object's own types give is refused, never changed.

use super::{CoreError, Kind, Path, Value, raw_member};
use crate::btf::{Btf, Shape};
use crate::insn::Insn;

/// What the relocated instruction should hold for a place; for none, what it holds then, if anything.
pub(super) fn value(
    btf: &Btf,
    path: Option<&Path>,
    kind: Kind,
) -> Result<Option<Value>, CoreError> {
    let plain = |number: u64| {
        Ok(Some(Value {
            number,
            checked: true,
            field: None,
        }))
    };
    let Some(path) = path else {
        use Kind::*;
        return match kind {
            FieldExists | TypeExists | TypeMatches | EnumeratorExists | TypeIdTarget | TypeSize => {
                plain(0)
            }
            _ => Ok(None),
        };
    };
    match kind {
        Kind::FieldExists | Kind::TypeExists | Kind::TypeMatches | Kind::EnumeratorExists => {
            plain(1)
        }
        Kind::TypeIdLocal | Kind::TypeIdTarget => Ok(Some(Value {
            number: u64::from(path.root),
            checked: false,
            field: None,
        })),
        Kind::TypeSize => plain(u64::from(btf.size_of(path.root)?)),
        Kind::EnumeratorValue => plain(path.value),
        _ => field_value(btf, path, kind),
    }
}

fn field_value(btf: &Btf, path: &Path, kind: Kind) -> Result<Option<Value>, CoreError> {
    const BAD: CoreError =
        CoreError::Malformed("it asks for a property that an array element has not");
    let last = path.steps.last().ok_or(BAD)?;
    let checked = |number: u64, field| {
        Ok(Some(Value {
            number,
            checked: true,
            field,
        }))
    };
    let unchecked = |number: u64| {
        Ok(Some(Value {
            number,
            checked: false,
            field: None,
        }))
    };
    if last.name.is_none() {
        let size = btf.size_of(last.type_id)?;
        return match kind {
            Kind::FieldByteOffset => checked(path.bits / 8, Some((size, last.type_id))),
            Kind::FieldByteSize => checked(u64::from(size), None),
            _ => Err(BAD),
        };
    }
    let member = raw_member(btf, last.type_id, last.index)?;
    let size = btf.size_of(member.type_id)?;
    let width = u64::from(member.bit_width);
    let (mut bytes, mut at, mut bits) = (u64::from(size), path.bits / 8, width);
    if width > 0 && bytes > 0 {
        // The smallest aligned load that holds the whole bit field.
        let aligned = |bytes: u64| path.bits / 8 / bytes * bytes;
        at = aligned(bytes);
        while path.bits + width > (at + bytes) * 8 {
            if bytes >= 8 {
                return Err(CoreError::Malformed(
                    "a bit field spans more than eight bytes",
                ));
            }
            bytes *= 2;
            at = aligned(bytes);
        }
    } else {
        bits = bytes * 8;
    }
    match kind {
        Kind::FieldByteOffset => {
            let field = (width == 0).then_some((size, member.type_id));
            checked(at, field)
        }
        Kind::FieldByteSize => checked(bytes, None),
        Kind::FieldSigned => {
            let own = btf.resolve(member.type_id)?;
            let signed = matches!(
                btf.shape(own)?,
                Shape::Int { signed: true, .. } | Shape::Enum { signed: true, .. }
            );
            unchecked(u64::from(signed))
        }
        Kind::FieldLshift => unchecked(64u64.wrapping_sub(path.bits + bits).wrapping_add(at * 8)),
        Kind::FieldRshift => unchecked(64u64.wrapping_sub(bits)),
        _ => Err(BAD),
    }
}

/// Writes the new value; false where a load of the field's new size cannot stand in for the old one.
pub(super) fn patch(
    insns: &mut [Insn],
    slot: usize,
    old: Value,
    (new, resized): (Value, bool),
) -> Result<bool, CoreError> {
    const BAD: CoreError =
        CoreError::Malformed("it is at no instruction with an operand to relocate");
    let expect = |found: u64, expected: u64| {
        if old.checked && found != expected {
            return Err(CoreError::Instruction { found, expected });
        }
        Ok(())
    };
    let second = insns.get(slot.wrapping_add(1)).copied();
    let insn = insns.get_mut(slot).ok_or(BAD)?;
    match insn.opcode & 7 {
        // Arithmetic with an immediate.
        4 | 7 if insn.opcode & 8 == 0 => {
            expect(u64::from(insn.imm as u32), old.number & 0xffff_ffff)?;
            insn.imm = u32::try_from(new.number)
                .or_else(|_| i32::try_from(new.number as i64).map(|n| n as u32))
                .map_err(|_| CoreError::Range(new.number))? as i32;
        }
        // Loads and stores.
        1..=3 => {
            expect(insn.off as i64 as u64, old.number)?;
            if resized {
                return Ok(false);
            }
            insn.off = i16::try_from(new.number).map_err(|_| CoreError::Range(new.number))?;
            if let (Some((old_size, _)), Some((new_size, _))) = (old.field, new.field)
                && old_size != new_size
            {
                const SIZES: [(u8, u32); 4] = [(0x00, 4), (0x08, 2), (0x10, 1), (0x18, 8)];
                let accessed = SIZES.iter().find(|(code, _)| *code == insn.opcode & 0x18);
                let wanted = SIZES.iter().find(|(_, size)| *size == new_size);
                match (accessed, wanted) {
                    (Some((_, size)), Some((code, _))) if *size == old_size => {
                        insn.opcode = (insn.opcode & !0x18) | code;
                    }
                    _ => return Err(CoreError::Malformed("the load is not of the field's size")),
                }
            }
        }
        // A 16-byte load.
        0 if insn.opcode == 0x18 && insn.src == 0 => {
            let upper = second.filter(|s| s.opcode == 0).ok_or(BAD)?;
            let found = u64::from(insn.imm as u32) | (u64::from(upper.imm as u32) << 32);
            expect(found, old.number)?;
            insn.imm = new.number as u32 as i32;
            if let Some(half) = insns.get_mut(slot.wrapping_add(1)) {
                half.imm = (new.number >> 32) as u32 as i32;
            }
        }
        _ => return Err(BAD),
    }
    Ok(true)
}
