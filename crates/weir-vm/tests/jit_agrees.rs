//! Native code against the interpreter: generated programs of every operation give the same result, memory, cost and fault.
//!
//! Programs are lists of small numbers that become instructions, so that a failure shrinks to a few lines. `WEIR_CASES`
//! sets the number of programs.

use crate::asm;
use proptest::prelude::*;
use proptest::test_runner::{Config, FileFailurePersistence, TestRunner};
use weir_vm::jit::{self, Raw};
use weir_vm::verify::VerifyOptions;
use weir_vm::{Env, Fault, FaultKind, Frame, Insn, Machine};

/// Enough for loops to turn, few enough for endless ones.
const BUDGET: u64 = 3_000;

/// `may_goto` goes on 8,388,608 times in a run, in calls of functions as well, and then always jumps.
#[test]
fn may_goto_counts_alike() {
    let counted = "mov r0, 0\nagain:\nmay_goto out\nadd r0, 1\njlt r0, 7, again\nout:\nexit";
    let endless = "mov r6, 0\nagain:\nmay_goto out\nadd r6, 1\nja again\nout:\ncall local f\nadd r0, r6\nexit\nf:\nmov r0, 0\nmore:\nmay_goto end\nadd r0, 1\nja more\nend:\nexit";
    let env = Env {
        instruction_budget: 100_000_000,
        ..Env::default()
    };
    for (text, expected) in [(counted, 7), (endless, 1 << 23)] {
        let code = asm::assemble(text).expect("assembles");
        let machine = || Machine::from_instructions(&code).expect("decodes");
        let interpreted = machine().run_xdp(&mut Frame::new(&[0; 60]), &env);
        assert_eq!(interpreted, Ok(expected), "{text}");
        if !jit::available() {
            continue;
        }
        let mut checked = machine();
        let mut raw = Raw::compile(&mut checked).expect("compiles");
        assert_eq!(
            raw.run_xdp(&mut Frame::new(&[0; 60]), &env),
            Ok(expected),
            "{text}"
        );
        let mut native = machine();
        native
            .verify_and_compile(&VerifyOptions::default())
            .expect("is accepted");
        assert_eq!(
            native.run_xdp(&mut Frame::new(&[0; 60]), &env),
            Ok(expected),
            "{text}"
        );
        // Each run counts anew.
        assert_eq!(
            native.run_xdp(&mut Frame::new(&[0; 60]), &env),
            Ok(expected),
            "{text}"
        );
    }
}

#[test]
fn generated_programs_do_the_same() {
    if !jit::available() {
        return;
    }
    let usual = std::env::var("WEIR_CASES")
        .ok()
        .and_then(|n| n.parse().ok());
    let cases = usual.unwrap_or(4_000);
    let config = Config {
        cases,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        source_file: Some(file!()),
        ..Config::default()
    };
    let strategy = (
        prop::collection::vec(choice(), 1..60),
        prop::collection::vec(any::<u8>(), 0..48),
    );
    let seen = std::cell::RefCell::new([0u32; 4]);
    let result = TestRunner::new(config).run(&strategy, |(choices, memory)| {
        let code = program(&choices);
        let kind = agree(&code, &memory).map_err(TestCaseError::fail)?;
        seen.borrow_mut()[kind] += 1;
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    // The generator must reach all ends of a run: a result, a bad access, a spent budget, another fault.
    let seen = seen.into_inner();
    assert!(
        cases < 1_000 || seen.iter().all(|n| *n > cases / 100),
        "{seen:?}"
    );
}

/// Runs both; which end the run had.
fn agree(code: &[u8], memory: &[u8]) -> Result<usize, String> {
    let env = Env {
        instruction_budget: BUDGET,
        random_seed: 5,
        ..Env::default()
    };
    let outcome = |native: bool| -> Result<Outcome, String> {
        let mut machine = Machine::from_instructions(code).map_err(|e| e.to_string())?;
        let mut memory = memory.to_vec();
        let mut frame = Frame::new(&[7; 64]);
        let (raw, xdp) = if native {
            let mut code = Raw::compile(&mut machine).map_err(|e| e.to_string())?;
            let raw = code.run_with(&mut memory, &env);
            (raw, code.run_xdp(&mut frame, &env))
        } else {
            let raw = machine.run_raw_with(&mut memory, &env);
            (raw, machine.run_xdp(&mut frame, &env))
        };
        let frame = (frame.data().to_vec(), frame.metadata().to_vec());
        Ok((raw, xdp, memory, frame, machine.instructions_run()))
    };
    let (interpreted, native) = (outcome(false)?, outcome(true)?);
    if interpreted != native {
        return Err(format!("interpreter {interpreted:?}\nnative {native:?}"));
    }
    Ok(match interpreted.0 {
        Ok(_) => 0,
        Err(Fault {
            kind: FaultKind::Access(_),
            ..
        }) => 1,
        Err(Fault {
            kind: FaultKind::Budget { .. },
            ..
        }) => 2,
        Err(_) => 3,
    })
}

type Outcome = (
    Result<u64, Fault>,
    Result<u32, Fault>,
    Vec<u8>,
    (Vec<u8>, Vec<u8>),
    u64,
);

/// Numbers an instruction is made from.
#[derive(Clone, Copy, Debug)]
struct Choice {
    what: u8,
    dst: u8,
    src: u8,
    off: i16,
    imm: i32,
}

fn choice() -> impl Strategy<Value = Choice> {
    let imm = prop_oneof![
        4 => -3..70i32,
        1 => prop::sample::select(vec![i32::MIN, i32::MAX, -128, 128, 255, 256, 0xffff, 1 << 16]),
        1 => any::<i32>(),
    ];
    let off = prop_oneof![3 => -48..48i16, 1 => any::<i16>()];
    let operation = prop_oneof![5 => 0u8..48, 2 => 48u8..96, 1 => 96u8..128];
    (operation, 0u8..10, 0u8..11, off, imm).prop_map(|(what, dst, src, off, imm)| Choice {
        what,
        dst,
        src,
        off,
        imm,
    })
}

/// Registers with something in them, the chosen instructions, two small functions, an exit.
fn program(choices: &[Choice]) -> Vec<u8> {
    let mut slots: Vec<Insn> = Vec::new();
    let start = [
        (0, -1),
        (3, 0x7fff_ffff),
        (4, 1),
        (5, -70_000),
        (7, 0),
        (8, i32::MIN),
    ];
    slots.extend(start.map(|(dst, imm)| insn(0xb7, dst, 0, 0, imm)));
    slots.push(insn(0xbf, 6, 1, 0, 0));
    slots.push(insn(0xbf, 9, 10, 0, 0));
    slots.push(insn(0x07, 9, 0, 0, -64));
    let mut jumps = Vec::new();
    let mut halves = Vec::new();
    for choice in choices {
        let at = slots.len();
        let Choice {
            what,
            dst,
            src,
            off,
            imm,
        } = *choice;
        match what {
            0..48 => slots.push(arithmetic(what, choice)),
            48..72 => {
                // Mostly inside the memory or the stack.
                let (base, off) = match src % 4 {
                    0 => (6, off.rem_euclid(24)),
                    1 => (9, off.rem_euclid(48)),
                    2 => (10, -1 - off.rem_euclid(80)),
                    _ => (src, off),
                };
                let width = [0x10, 0x08, 0x00, 0x18][what as usize % 4];
                slots.push(match what {
                    48..56 => insn(0x61 | width, dst, base, off, 0),
                    56..60 => insn(0x63 | width, base, dst, off, 0),
                    60..64 => insn(0x62 | width, base, 0, off, imm),
                    64..67 => insn([0x91, 0x89, 0x81][what as usize - 64], dst, base, off, 0),
                    _ => {
                        let codes = [0, 1, 0x40, 0x41, 0x50, 0x51, 0xa0, 0xa1, 0xe1, 0xf1];
                        let code = codes[imm.unsigned_abs() as usize % codes.len()];
                        let opcode = if what % 2 == 0 { 0xc3 } else { 0xdb };
                        insn(opcode, base, dst, off & !7, code)
                    }
                });
            }
            72..92 => {
                let class = if what % 2 == 0 { 5 } else { 6 };
                let source = if imm % 3 == 0 { 8 } else { 0 };
                let codes = [0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13];
                let code = codes[src as usize % codes.len()];
                let mut jump = insn(class | (code << 4) | source, dst, src, 0, imm);
                if code == 0 {
                    jump = insn(0x05, 0, 0, 0, 0);
                } else if source == 0 {
                    jump.src = 0;
                }
                jumps.push((at, off, false));
                slots.push(jump);
            }
            92..96 => slots.push(insn(0x95, 0, 0, 0, 0)),
            96..104 => {
                halves.push(at + 1);
                slots.push(insn(0x18, dst, 0, 0, imm));
                slots.push(insn(0, 0, 0, 0, i32::from(off)));
            }
            104..112 => {
                jumps.push((at, off, true));
                slots.push(insn(0x85, 0, 1, 0, 0));
            }
            112..116 => slots.push(insn(0x8d, dst, 0, 0, 0)),
            116..120 => slots.push(insn(
                0x85,
                0,
                0,
                0,
                [7, 8, 5, 44, 65, 182, 181][src as usize % 7],
            )),
            _ => {
                // A loop over the small function, four times.
                slots.push(insn(0xb7, 1, 0, 0, imm & 7));
                halves.push(at + 2);
                jumps.push((at + 1, i16::MIN, true));
                slots.push(insn(0x18, 2, 4, 0, 0));
                slots.push(insn(0, 0, 0, 0, 0));
                slots.push(insn(0xbf, 3, 9, 0, 0));
                slots.push(insn(0xb7, 4, 0, 0, 0));
                let call = if what % 2 == 0 { 181 } else { 0 };
                slots.push(match call {
                    0 => insn(0x8d, 2, 0, 0, 0),
                    helper => insn(0x85, 0, 0, 0, helper),
                });
            }
        }
    }
    slots.push(insn(0x95, 0, 0, 0, 0));
    let function = slots.len();
    slots.push(insn(0xbf, 0, 1, 0, 0));
    slots.push(insn(0x07, 6, 0, 0, 3));
    slots.push(insn(0x7b, 10, 6, -8, 0));
    slots.push(insn(0x57, 0, 0, 0, 1));
    slots.push(insn(0x95, 0, 0, 0, 0));
    let len = slots.len();
    for (at, off, call) in jumps {
        // The function, or a place near the jump.
        let near = at as i64 + i64::from(off % 12);
        let mut target = near.rem_euclid(len as i64) as usize;
        if off == i16::MIN || (call && off % 3 == 0) {
            target = function;
        }
        if halves.contains(&target) {
            target += 1;
        }
        let distance = target as i64 - at as i64 - 1;
        if call {
            slots[at].imm = distance as i32;
        } else {
            slots[at].off = distance as i16;
        }
    }
    slots.iter().flat_map(|i| i.to_bytes()).collect()
}

fn arithmetic(what: u8, choice: &Choice) -> Insn {
    let Choice {
        dst, src, off, imm, ..
    } = *choice;
    let class = if what.is_multiple_of(2) { 7 } else { 4 };
    let source = if off % 2 == 0 { 8 } else { 0 };
    let (src, imm) = if source == 8 { (src, 0) } else { (0, imm) };
    let binary = [
        0x00, 0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x90, 0xa0, 0xb0, 0xc0,
    ];
    match what / 2 {
        n @ 0..12 => insn(class | source | binary[n as usize], dst, src, 0, imm),
        12..14 => insn(class | source | 0x30, dst, src, 1, imm),
        14..16 => insn(class | source | 0x90, dst, src, 1, imm),
        16 => insn(class | 0x80, dst, 0, 0, 0),
        17..19 => {
            let widths: &[i16] = if class == 7 { &[8, 16, 32] } else { &[8, 16] };
            let width = widths[off.unsigned_abs() as usize % widths.len()];
            insn(class | 0xb8, dst, choice.src, width, 0)
        }
        19..21 => {
            let width = [16, 32, 64][off.unsigned_abs() as usize % 3];
            let opcode = [0xd4, 0xdc, 0xd7][choice.imm.unsigned_abs() as usize % 3];
            insn(opcode, dst, 0, 0, width)
        }
        _ => insn(class | 0xb8, dst, choice.src, 0, 0),
    }
}

fn insn(opcode: u8, dst: u8, src: u8, off: i16, imm: i32) -> Insn {
    Insn {
        opcode,
        dst,
        src,
        off,
        imm,
    }
}
