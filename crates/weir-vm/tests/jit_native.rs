//! Native code of compiled C programs against the interpreter: verdict, frame, maps, records, redirects, trace lines.

use crate::object::compile;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use weir_vm::jit::{self, CompileError, Execution, JitError};
use weir_vm::verify::VerifyOptions;
use weir_vm::{Env, Fault, Frame, Insn, Machine, Object, Redirect};

/// Keys and values of a map, by its name.
type Contents = (String, Vec<(Vec<u8>, Option<Vec<u8>>)>);

/// What a run leaves behind.
#[derive(Debug, PartialEq)]
struct Left {
    /// Verdict, or the fault of a helper this engine lacks.
    verdict: Result<u32, Fault>,
    frame: (Vec<u8>, Vec<u8>),
    maps: Vec<Contents>,
    records: Vec<Vec<Vec<u8>>>,
    redirect: Option<Redirect>,
    trace: Vec<String>,
}

fn left(machine: &mut Machine, verdict: Result<u32, Fault>, frame: &Frame) -> Left {
    let names: Vec<String> = machine.map_names().map(str::to_owned).collect();
    let maps = names.iter().map(|name| {
        let map = machine.map(name).expect("named");
        let entries = map.keys().map(|key| {
            let value = map.lookup(&key);
            (key, value)
        });
        (name.clone(), entries.collect())
    });
    Left {
        verdict,
        frame: (frame.data().to_vec(), frame.metadata().to_vec()),
        maps: maps.collect(),
        records: names.iter().map(|n| machine.drain_ringbuf(n)).collect(),
        redirect: machine.redirect().cloned(),
        trace: machine.take_trace(),
    }
}

#[test]
fn accepted_programs_do_the_same() {
    if !jit::available() {
        return;
    }
    let mut ran = 0;
    for name in ["code", "frame", "maps", "native", "tiny"] {
        let elf = compile(name);
        let programs: Vec<String> = Object::parse(&elf)
            .expect("parses")
            .programs()
            .map(str::to_owned)
            .collect();
        for program in &programs {
            let accepted = compare(&elf, program);
            assert!(accepted || name != "native", "{program} is refused");
            ran += usize::from(accepted);
        }
    }
    assert!(ran > 25, "only {ran} programs ran");
}

const ROUNDS: u8 = 3;

fn load(elf: &[u8], program: &str) -> Machine {
    let mut object = Object::parse(elf).expect("parses");
    object.set_cpus(2);
    object.load(program).expect("loads")
}

fn round(number: u8) -> (Frame, Env) {
    let bytes: Vec<u8> = (0..200u8).map(|i| i.wrapping_mul(7 + number)).collect();
    let env = Env {
        now_ns: 1_000 + u64::from(number),
        cpu: u32::from(number % 2),
        random_seed: 9,
        ..Env::default()
    };
    (Frame::new(&bytes), env)
}

/// Some rounds in a row; false if the verifier refuses the program.
fn compare(elf: &[u8], program: &str) -> bool {
    let (mut interpreted, mut native) = (load(elf, program), load(elf, program));
    match native.verify_and_compile(&VerifyOptions::default()) {
        Ok(()) => {}
        Err(CompileError::Rejected(_)) => return false,
        Err(CompileError::Jit(JitError::Kind)) => return false,
        Err(error) => panic!("{program}: {error}"),
    }
    assert_eq!(native.execution(), Execution::Jit);
    for number in 0..ROUNDS {
        let (mut frame, env) = round(number);
        let verdict = interpreted.run_xdp(&mut frame, &env);
        let expected = left(&mut interpreted, verdict, &frame);
        let (mut frame, _) = round(number);
        let verdict = native.run_xdp(&mut frame, &env);
        assert_eq!(left(&mut native, verdict, &frame), expected, "{program}");
    }
    true
}

/// Bytes joined by shifts and ors in every order: merged to wide loads or not, the number is the same.
#[test]
fn joined_bytes_make_the_same_number() {
    if !jit::available() {
        return;
    }
    let mut runner = TestRunner::new(Config::with_cases(2_000));
    let joins = (
        prop::sample::select(vec![2usize, 3, 4, 5, 8]),
        0i16..8,
        any::<bool>(),
        any::<bool>(),
        prop::sample::select(vec![0u8, 1, 2, 3]),
        any::<[u8; 32]>(),
    );
    runner
        .run(
            &joins,
            |(count, first, high_first, wide, spoiled, bytes)| {
                let code = join(count, first, high_first, wide, spoiled);
                let machine = || Machine::from_program(&code, Vec::new(), 1).expect("links");
                let (mut interpreted, mut native) = (machine(), machine());
                let compiled = native.verify_and_compile(&VerifyOptions::default());
                compiled.unwrap_or_else(|e| panic!("{e}"));
                let (mut expected, mut got) = (Frame::new(&bytes), Frame::new(&bytes));
                let env = Env::default();
                prop_assert_eq!(
                    interpreted.run_xdp(&mut expected, &env),
                    native.run_xdp(&mut got, &env)
                );
                prop_assert_eq!(expected.data(), got.data());
                if spoiled == 0 && first == 0 && (wide || count <= 4) {
                    // What the program is about: the number itself, against plain arithmetic.
                    let part = bytes.get(..count).unwrap_or_default();
                    let number = if high_first {
                        part.iter().fold(0, |n, b| n << 8 | u64::from(*b))
                    } else {
                        part.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))
                    };
                    prop_assert_eq!(&got.data()[24..], number.to_le_bytes());
                }
                Ok(())
            },
        )
        .unwrap_or_else(|e| panic!("{e}"));
}

/// A program that joins `count` bytes of the packet from `first` on, and stores the number behind byte 24.
/// `spoiled`: 1 a byte twice, 2 a shift of 9, 3 the packet changes in between.
fn join(count: usize, first: i16, high_first: bool, wide: bool, spoiled: u8) -> Vec<u8> {
    let (mov, lsh, or) = if wide {
        (0xbf, 0x67, 0x4f)
    } else {
        (0xbc, 0x64, 0x4c)
    };
    let mut code = vec![
        (0x61, 2, 1, 0, 0),  // r2 = data
        (0x61, 3, 1, 4, 0),  // r3 = data_end
        (0xbf, 4, 2, 0, 0),  // r4 = data
        (0x07, 4, 0, 0, 32), // r4 += 32
        (0xb7, 0, 0, 0, 1),
        (0xbd, 4, 3, 1, 0), // within the packet?
        (0x95, 0, 0, 0, 0),
    ];
    for n in 0..count {
        let place = if spoiled == 1 && n == 1 { 0 } else { n };
        let shift = if high_first { count - 1 - n } else { n } * 8;
        let shift = if spoiled == 2 && n == 1 { 9 } else { shift };
        // A 32-bit number has no room for further bytes.
        let shift = if wide { shift } else { shift % 32 };
        let target = if n == 0 { 0 } else { 5 };
        code.push((0x71, target, 2, first + place as i16, 0));
        if shift > 0 {
            code.push((lsh, target, 0, 0, shift as i32));
        }
        if n > 0 {
            code.push((or, 0, 5, 0, 0));
        }
        if spoiled == 3 && n == 0 {
            code.push((0x72, 2, 0, first + 1, 77));
        }
    }
    code.push((mov, 6, 0, 0, 0));
    code.push((0x7b, 2, 6, 24, 0));
    code.push((0x95, 0, 0, 0, 0));
    let insns = code.into_iter().map(|(opcode, dst, src, off, imm)| Insn {
        opcode,
        dst,
        src,
        off,
        imm,
    });
    insns.flat_map(Insn::to_bytes).collect()
}
