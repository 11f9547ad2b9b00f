//! Nothing panics: cut and damaged objects, arbitrary code, damaged type information.
//!
//! Deterministic: the pseudo-random sequence has a fixed seed.

use std::sync::Arc;

use crate::object;
use weir_vm::{Btf, Env, Frame, Machine, Object};

#[test]
fn an_object_cut_at_every_length() {
    let elf = object::compile("tiny");
    for length in 0..elf.len() {
        try_object(&elf[..length]);
    }
    try_object(&elf);
    assert!(Object::parse(&elf).is_ok());
    assert!(Object::parse(&elf[..elf.len() - 1]).is_err());
}

#[test]
fn an_object_with_damaged_bytes() {
    let elf = object::compile("tiny");
    let mut random = Random(1);
    for at in 0..elf.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff, random.next() as u8] {
            let mut damaged = elf.clone();
            damaged[at] = value;
            try_object(&damaged);
        }
    }
    for _ in 0..3_000 {
        let mut damaged = elf.clone();
        for _ in 0..1 + random.next() % 8 {
            let at = random.next() as usize % damaged.len();
            damaged[at] = random.next() as u8;
        }
        try_object(&damaged);
    }
}

#[test]
fn relocated_objects_with_damaged_bytes() {
    let mut random = Random(4);
    for (name, flags) in [("core", &["-g"][..]), ("legacy", &[]), ("iproute", &[])] {
        let elf = object::compile_with(name, flags);
        for _ in 0..4_000 {
            let mut damaged = elf.clone();
            for _ in 0..1 + random.next() % 4 {
                let at = random.next() as usize % damaged.len();
                damaged[at] = random.next() as u8;
            }
            try_object(&damaged);
        }
    }
}

#[test]
fn arbitrary_instructions() {
    let mut random = Random(2);
    let mut decoded = 0;
    for _ in 0..60_000 {
        let count = 1 + random.next() as usize % 12;
        let mut code = Vec::new();
        for _ in 0..count {
            code.extend_from_slice(&instruction(&mut random));
        }
        code.extend_from_slice(&[0x95, 0, 0, 0, 0, 0, 0, 0]);
        let Ok(mut machine) = Machine::from_instructions(&code) else {
            continue;
        };
        decoded += 1;
        let env = Env {
            instruction_budget: 500,
            ..Env::default()
        };
        let mut mem = [0x5a; 32];
        drop(machine.run_raw_with(&mut mem, &env));
        drop(machine.run_xdp(&mut Frame::new(&[1; 20]), &env));
    }
    assert!(decoded > 3_000, "only {decoded} programs decoded");
}

#[test]
fn arbitrary_type_information() {
    let mut random = Random(3);
    for _ in 0..20_000 {
        let mut bytes = vec![0x9f, 0xeb, 1, 0, 24, 0, 0, 0];
        let (types, strings) = (random.next() as u32 % 200, random.next() as u32 % 32);
        for word in [0, types, types, strings] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        for _ in 0..(types + strings) / 4 {
            let word = match random.next() % 3 {
                0 => random.next() as u32 % 8,
                1 => ((random.next() as u32 % 20) << 24) | (random.next() as u32 % 4),
                _ => random.next() as u32,
            };
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        if let Ok(btf) = Btf::parse(&bytes) {
            for id in 0..btf.len() as u32 {
                drop(btf.layout_of(id));
                drop(btf.size_of(id));
                drop(btf.members(id));
                btf.type_id(btf.name(id));
            }
        }
    }
}

/// An instruction of a likely shape, so that many sequences decode and run far.
fn instruction(random: &mut Random) -> [u8; 8] {
    const OPCODES: [u8; 40] = [
        0x07, 0x0f, 0x17, 0x27, 0x37, 0x3f, 0x47, 0x57, 0x67, 0x6f, 0x77, 0x87, 0x97, 0xa7, 0xb7,
        0xbf, 0xc7, 0x04, 0x34, 0x3c, 0x94, 0xb4, 0xbc, 0xd4, 0xdc, 0xd7, 0x05, 0x06, 0x15, 0x2d,
        0x46, 0x61, 0x79, 0x71, 0x63, 0x7b, 0x62, 0xdb, 0x85, 0x8d,
    ];
    let r = random.next();
    let opcode = OPCODES[r as usize % OPCODES.len()];
    let registers = ((r >> 8) % 11) as u8 | ((((r >> 16) % 11) as u8) << 4);
    let off = match (r >> 24) % 3 {
        0 => 0,
        1 => ((r >> 32) % 9) as i16 - 4,
        _ => -8,
    };
    let imm = match (r >> 40) % 4 {
        0 => ((r >> 48) % 200) as i32,
        1 => random.next() as i32,
        2 => [0, 1, 0x41, 0xe1, 0xf1, 16, 32, 64][(r >> 50) as usize % 8],
        _ => 1,
    };
    let registers = if opcode == 0x85 {
        registers & 0x1f
    } else {
        registers
    };
    let (o, i) = (off.to_le_bytes(), imm.to_le_bytes());
    [opcode, registers, o[0], o[1], i[0], i[1], i[2], i[3]]
}

fn try_object(bytes: &[u8]) {
    let Ok(mut object) = Object::parse(bytes) else {
        return;
    };
    if let Some(types) = object.btf().cloned() {
        object.relocate_against(Arc::new(types));
    }
    let programs: Vec<String> = object.programs().map(str::to_owned).collect();
    for program in programs {
        let Ok(mut machine) = object.clone().load(&program) else {
            continue;
        };
        let env = Env {
            instruction_budget: 2_000,
            ..Env::default()
        };
        drop(machine.run_xdp(&mut Frame::new(&[2; 60]), &env));
    }
}

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
