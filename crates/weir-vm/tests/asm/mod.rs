//! An assembler for the text syntax of the public conformance cases, for tests only.
//!
//! One instruction per line, `%r0` to `%r10` (the sign is optional), labels, `#` comments, `lock` prefixes.

use std::collections::HashMap;

use weir_vm::Insn;

/// Encodes a program.
pub(crate) fn assemble(text: &str) -> Result<Vec<u8>, String> {
    let mut labels = HashMap::new();
    let mut lines = Vec::new();
    let mut slot: i64 = 0;
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or("").trim().to_lowercase();
        if line.is_empty() {
            continue;
        }
        if let Some(label) = line.strip_suffix(':') {
            labels.insert(label.trim().to_owned(), slot);
            continue;
        }
        // A bare `exit` label used as a target means the last exit, as in the reference assembler.
        if line == "exit" {
            labels.insert("exit".to_owned(), slot);
        }
        let wide = line.starts_with("lddw");
        lines.push((slot, line));
        slot += if wide { 2 } else { 1 };
    }
    let mut code = Vec::new();
    for (slot, line) in &lines {
        let insns =
            line_code(line, *slot, &labels).ok_or_else(|| format!("cannot assemble `{line}`"))?;
        for insn in insns {
            code.extend_from_slice(&insn.to_bytes());
        }
    }
    Ok(code)
}

fn line_code(line: &str, slot: i64, labels: &HashMap<String, i64>) -> Option<Vec<Insn>> {
    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let arguments: Vec<&str> = rest
        .split(',')
        .map(str::trim)
        .filter(|a| !a.is_empty())
        .collect();
    let mut insn = Insn {
        opcode: 0,
        dst: 0,
        src: 0,
        off: 0,
        imm: 0,
    };
    let target = |text: &str| -> Option<i64> {
        if text.starts_with('+') || text.starts_with('-') {
            return number(text);
        }
        Some(labels.get(text)? - slot - 1)
    };
    if name == "lock" {
        return lock(rest, insn).map(|i| vec![i]);
    }
    match (name, arguments.as_slice()) {
        ("exit", []) => insn.opcode = 0x95,
        ("call", ["local", _] | [_]) if rest.starts_with("local") => {
            insn.opcode = 0x85;
            insn.src = 1;
            insn.imm = target(rest.strip_prefix("local")?.trim())? as i32;
        }
        ("call", [to]) => {
            if let Some(dst) = register(to) {
                insn.opcode = 0x8d;
                insn.dst = dst;
            } else {
                insn.opcode = 0x85;
                insn.imm = number(to)? as i32;
            }
        }
        // `map N`: a map; `value N+OFFSET`: into the value of a map of one element; `function LABEL`.
        ("lddw", [dst, value]) if value.starts_with("map ") => {
            return wide(register(dst)?, 1, number(&value[4..])? as i32, 0);
        }
        ("lddw", [dst, value]) if value.starts_with("value ") => {
            let (map, offset) = value[6..].split_once('+')?;
            return wide(
                register(dst)?,
                2,
                number(map)? as i32,
                number(offset)? as i32,
            );
        }
        ("lddw", [dst, value]) if value.starts_with("function ") => {
            return wide(register(dst)?, 4, target(&value[9..])? as i32, 0);
        }
        ("lddw", [dst, value]) => {
            let value = number(value)? as u64;
            insn.opcode = 0x18;
            insn.dst = register(dst)?;
            insn.imm = value as u32 as i32;
            let high = Insn {
                opcode: 0,
                dst: 0,
                src: 0,
                off: 0,
                imm: (value >> 32) as i32,
            };
            return Some(vec![insn, high]);
        }
        ("ja", [to]) => {
            insn.opcode = 0x05;
            insn.off = target(to)? as i16;
        }
        ("may_goto", [to]) => {
            insn.opcode = 0xe5;
            insn.off = target(to)? as i16;
        }
        ("ja32", [to]) => {
            insn.opcode = 0x06;
            insn.imm = target(to)? as i32;
        }
        (_, [dst]) => {
            insn.dst = register(dst)?;
            (insn.opcode, insn.imm) = match name {
                "neg" => (0x87, 0),
                "neg32" => (0x84, 0),
                "le16" | "le32" | "le64" => (0xd4, name[2..].parse().ok()?),
                "be16" | "be32" | "be64" => (0xdc, name[2..].parse().ok()?),
                "swap16" | "swap32" | "swap64" => (0xd7, name[4..].parse().ok()?),
                "bswap16" | "bswap32" | "bswap64" => (0xd7, name[5..].parse().ok()?),
                _ => return None,
            };
        }
        (_, [dst, source]) if name.starts_with("ldx") => {
            insn.opcode = match &name[3..] {
                "b" => 0x71,
                "h" => 0x69,
                "w" => 0x61,
                "dw" => 0x79,
                "sb" => 0x91,
                "sh" => 0x89,
                "sw" => 0x81,
                _ => return None,
            };
            insn.dst = register(dst)?;
            (insn.src, insn.off) = memory(source)?;
        }
        (_, [target, value]) if name.starts_with("st") => {
            let (opcode, width) = match name.strip_prefix("stx") {
                Some(width) => (0x63, width),
                None => (0x62, &name[2..]),
            };
            insn.opcode = opcode
                | match width {
                    "w" => 0x00,
                    "h" => 0x08,
                    "b" => 0x10,
                    "dw" => 0x18,
                    _ => return None,
                };
            (insn.dst, insn.off) = memory(target)?;
            if opcode == 0x63 {
                insn.src = register(value)?;
            } else {
                insn.imm = number(value)? as i32;
            }
        }
        (_, [dst, value]) => {
            alu(name, &mut insn)?;
            insn.dst = register(dst)?;
            operand(value, &mut insn)?;
        }
        (_, [dst, value, to]) => {
            let (name, class) = match name.strip_suffix("32") {
                Some(name) => (name, 0x06),
                None => (name, 0x05),
            };
            const NAMES: [&str; 14] = [
                "ja", "jeq", "jgt", "jge", "jset", "jne", "jsgt", "jsge", "", "", "jlt", "jle",
                "jslt", "jsle",
            ];
            let operation = NAMES.iter().position(|n| *n == name && !n.is_empty())?;
            insn.opcode = class | ((operation as u8) << 4);
            insn.dst = register(dst)?;
            operand(value, &mut insn)?;
            insn.off = target(to)? as i16;
        }
        _ => return None,
    }
    Some(vec![insn])
}

/// A 16-byte load whose operand is of kind `src`.
fn wide(dst: u8, src: u8, imm: i32, high: i32) -> Option<Vec<Insn>> {
    let insn = |opcode, dst, src, imm| Insn {
        opcode,
        dst,
        src,
        off: 0,
        imm,
    };
    Some(vec![insn(0x18, dst, src, imm), insn(0, 0, 0, high)])
}

fn alu(name: &str, insn: &mut Insn) -> Option<()> {
    if let Some(widths) = name.strip_prefix("movsx") {
        (insn.opcode, insn.off) = match widths {
            "864" => (0xb7, 8),
            "1664" => (0xb7, 16),
            "3264" => (0xb7, 32),
            "832" => (0xb4, 8),
            "1632" => (0xb4, 16),
            _ => return None,
        };
        return Some(());
    }
    let (name, class) = match name.strip_suffix("32") {
        Some(name) => (name, 0x04),
        None => (name, 0x07),
    };
    let name = match name {
        "sdiv" | "smod" => {
            insn.off = 1;
            &name[1..]
        }
        _ => name,
    };
    const NAMES: [&str; 13] = [
        "add", "sub", "mul", "div", "or", "and", "lsh", "rsh", "neg", "mod", "xor", "mov", "arsh",
    ];
    let operation = NAMES.iter().position(|n| *n == name)?;
    insn.opcode = class | ((operation as u8) << 4);
    Some(())
}

fn lock(rest: &str, mut insn: Insn) -> Option<Insn> {
    let (fetch, rest) = match rest.trim().strip_prefix("fetch ") {
        Some(rest) => (1, rest),
        None => (0, rest.trim()),
    };
    let (name, arguments) = rest.split_once(char::is_whitespace)?;
    let (name, opcode) = match name.strip_suffix("32") {
        Some(name) => (name, 0xc3),
        None => (name, 0xdb),
    };
    insn.opcode = opcode;
    insn.imm = match name {
        "add" => fetch,
        "or" => 0x40 | fetch,
        "and" => 0x50 | fetch,
        "xor" => 0xa0 | fetch,
        "xchg" => 0xe1,
        "cmpxchg" => 0xf1,
        _ => return None,
    };
    let (target, source) = arguments.split_once(',')?;
    (insn.dst, insn.off) = memory(target.trim())?;
    insn.src = register(source.trim())?;
    Some(insn)
}

fn operand(text: &str, insn: &mut Insn) -> Option<()> {
    if let Some(src) = register(text) {
        insn.opcode |= 8;
        insn.src = src;
        return Some(());
    }
    insn.imm = number(text)? as i32;
    Some(())
}

fn register(text: &str) -> Option<u8> {
    text.trim_start_matches('%').strip_prefix('r')?.parse().ok()
}

/// `[%r1+4]` and the like.
fn memory(text: &str) -> Option<(u8, i16)> {
    let inner = text.strip_prefix('[')?.strip_suffix(']')?;
    let split = inner.find(['+', '-']).unwrap_or(inner.len());
    let (base, offset) = inner.split_at(split);
    let offset = if offset.is_empty() {
        0
    } else {
        number(offset)?
    };
    Some((register(base.trim())?, offset as i16))
}

fn number(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let value = match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok()? as i64,
        None => digits.parse::<u64>().ok()? as i64,
    };
    Some(if negative {
        value.wrapping_neg()
    } else {
        value
    })
}
