//! Every class of operation with its edges, in the conformance cases' text form, and faults of raw memory.

use crate::asm;
use weir_vm::{Env, FaultKind, LoadError, Machine, Region, Violation};

fn eval(text: &str) -> u64 {
    run(text, &mut []).unwrap_or_else(|f| panic!("{text}\n{f}"))
}

fn run(text: &str, mem: &mut [u8]) -> Result<u64, weir_vm::Fault> {
    let code = asm::assemble(text).expect("assembles");
    Machine::from_instructions(&code)
        .expect("decodes")
        .run_raw(mem)
}

/// r0 after `operation` on r0 = a, r1 = b.
fn binary(operation: &str, a: u64, b: u64) -> u64 {
    eval(&format!(
        "lddw r0, {a:#x}\nlddw r1, {b:#x}\n{operation} r0, r1\nexit"
    ))
}

const MIN64: u64 = 1 << 63;
const MIN32: u64 = 1 << 31;
const ONES: u64 = u64::MAX;

#[test]
fn arithmetic_wraps() {
    assert_eq!(binary("add", ONES, 2), 1);
    assert_eq!(binary("add32", ONES, 2), 1);
    assert_eq!(binary("sub", 0, 1), ONES);
    assert_eq!(binary("sub32", 0, 1), 0xffff_ffff);
    assert_eq!(binary("mul", MIN64, ONES), MIN64);
    assert_eq!(binary("mul32", MIN32, 0xffff_ffff), MIN32);
    assert_eq!(eval("mov r0, 5\nneg r0\nexit"), -5i64 as u64);
    assert_eq!(eval("mov r0, 5\nneg32 r0\nexit"), 0xffff_fffb);
    assert_eq!(eval("mov r0, -1\nmov32 r0, -1\nexit"), 0xffff_ffff);
    assert_eq!(eval("mov r0, 0\nadd r0, -1\nexit"), ONES);
}

#[test]
fn division_by_zero_and_overflow() {
    assert_eq!(binary("div", 7, 0), 0);
    assert_eq!(binary("div32", ONES, 1 << 32), 0);
    assert_eq!(binary("mod", ONES, 0), ONES);
    assert_eq!(binary("mod32", ONES, 1 << 32), 0xffff_ffff);
    assert_eq!(binary("sdiv", 7, 0), 0);
    assert_eq!(binary("smod32", ONES, 0), 0xffff_ffff);
    assert_eq!(binary("sdiv", MIN64, ONES), MIN64);
    assert_eq!(binary("smod", MIN64, ONES), 0);
    assert_eq!(binary("sdiv32", MIN32, ONES), MIN32);
    assert_eq!(binary("smod32", MIN32, ONES), 0);
    assert_eq!(binary("sdiv", -7i64 as u64, 2), -3i64 as u64);
    assert_eq!(binary("smod", -7i64 as u64, 2), -1i64 as u64);
    assert_eq!(binary("sdiv32", 0xffff_fff9, 2), 0xffff_fffd);
    assert_eq!(eval("mov r0, -1\ndiv r0, -1\nexit"), 1);
    assert_eq!(eval("mov r0, -10\nsdiv r0, -2\nexit"), 5);
    assert_eq!(eval("mov r0, 10\nsmod32 r0, -3\nexit"), 1);
}

#[test]
fn shifts_take_the_low_bits_of_the_count() {
    assert_eq!(binary("lsh", 1, 65), 2);
    assert_eq!(binary("lsh32", 1, 33), 2);
    assert_eq!(binary("rsh", MIN64, 127), 1);
    assert_eq!(binary("rsh32", ONES, 36), 0x0fff_ffff);
    assert_eq!(binary("arsh", MIN64, 63), ONES);
    assert_eq!(binary("arsh32", MIN32, 63), 0xffff_ffff);
    assert_eq!(binary("arsh32", 0x7fff_ffff_8000_0000, 4), 0xf800_0000);
}

#[test]
fn narrow_operations_clear_the_high_half() {
    for operation in [
        "add32", "sub32", "or32", "and32", "xor32", "lsh32", "rsh32", "mov32",
    ] {
        assert_eq!(binary(operation, ONES, 0) >> 32, 0, "{operation}");
    }
    assert_eq!(eval("mov r0, -1\nle32 r0\nexit"), 0xffff_ffff);
    assert_eq!(eval("mov r0, -1\nbe16 r0\nexit"), 0xffff);
}

#[test]
fn sign_extension_and_byte_order() {
    assert_eq!(binary("movsx864", 0, 0x1280), -128i64 as u64);
    assert_eq!(binary("movsx1664", 0, 0x1_8000), -32768i64 as u64);
    assert_eq!(binary("movsx3264", 0, 0x8000_0000), 0xffff_ffff_8000_0000);
    assert_eq!(binary("movsx832", ONES, 0x80), 0xffff_ff80);
    assert_eq!(binary("movsx1632", ONES, 0x7fff), 0x7fff);
    let swap = |operation: &str| {
        eval(&format!(
            "lddw r0, 0x1122334455667788\n{operation} r0\nexit"
        ))
    };
    assert_eq!(swap("be16"), 0x8877);
    assert_eq!(swap("be32"), 0x8877_6655);
    assert_eq!(swap("be64"), 0x8877_6655_4433_2211);
    assert_eq!(swap("le16"), 0x7788);
    assert_eq!(swap("le64"), 0x1122_3344_5566_7788);
    assert_eq!(swap("bswap16"), 0x8877);
    assert_eq!(swap("bswap32"), 0x8877_6655);
    assert_eq!(swap("bswap64"), 0x8877_6655_4433_2211);
}

#[test]
fn comparisons() {
    let taken = |operation: &str, a: u64, b: u64| {
        eval(&format!(
            "lddw r1, {a:#x}\nlddw r2, {b:#x}\nmov r0, 1\n{operation} r1, r2, +1\nmov r0, 0\nexit"
        )) == 1
    };
    for (operation, less, equal, greater) in [
        ("jeq", false, true, false),
        ("jne", true, false, true),
        ("jlt", true, false, false),
        ("jle", true, true, false),
        ("jgt", false, false, true),
        ("jge", false, true, true),
    ] {
        for suffix in ["", "32"] {
            let operation = format!("{operation}{suffix}");
            assert_eq!(taken(&operation, 1, 0xffff_fff0), less, "{operation}");
            assert_eq!(taken(&operation, 5, 5), equal, "{operation}");
            assert_eq!(taken(&operation, 0xffff_fff0, 1), greater, "{operation}");
        }
    }
    for (operation, less, equal, greater) in [
        ("jslt", true, false, false),
        ("jsle", true, true, false),
        ("jsgt", false, false, true),
        ("jsge", false, true, true),
    ] {
        assert_eq!(taken(operation, ONES, 1), less, "{operation}");
        assert_eq!(taken(operation, ONES, ONES), equal, "{operation}");
        assert_eq!(taken(operation, 1, ONES), greater, "{operation}");
        let narrow = format!("{operation}32");
        assert_eq!(taken(&narrow, 0xffff_ffff, 1), less, "{narrow}");
        assert_eq!(taken(&narrow, 1 << 32, 0), equal, "{narrow}");
        assert_eq!(taken(&narrow, 1, 0xffff_ffff), greater, "{narrow}");
    }
    assert!(taken("jset", 6, 2) && !taken("jset", 6, 1));
    assert!(taken("jset", 1 << 32, 1 << 32) && !taken("jset32", 1 << 32, 1 << 32));
    assert_eq!(
        eval("mov r1, -1\nmov r0, 1\njeq r1, -1, +1\nmov r0, 0\nexit"),
        1
    );
    assert_eq!(
        eval("mov32 r1, -1\nmov r0, 1\njeq r1, -1, +1\nmov r0, 0\nexit"),
        0
    );
}

#[test]
fn loads_and_stores_of_every_width() {
    let mut mem = [0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff];
    for (operation, expected) in [
        ("ldxb", 0x88),
        ("ldxh", 0x9988),
        ("ldxw", 0xbbaa_9988),
        ("ldxdw", 0xffee_ddcc_bbaa_9988),
        ("ldxsb", 0xffff_ffff_ffff_ff88),
        ("ldxsh", 0xffff_ffff_ffff_9988),
        ("ldxsw", 0xffff_ffff_bbaa_9988),
    ] {
        assert_eq!(
            run(&format!("{operation} r0, [r1]\nexit"), &mut mem),
            Ok(expected),
            "{operation}"
        );
    }
    let stores = "stb [r1], -1\nsth [r1+1], 0x1234\nmov r2, 7\nstxb [r1+3], r2\nstw [r1+4], -2\nmov r0, 0\nexit";
    assert_eq!(run(stores, &mut mem), Ok(0));
    assert_eq!(mem, [0xff, 0x34, 0x12, 7, 0xfe, 0xff, 0xff, 0xff]);
    assert_eq!(
        run("stdw [r1], -1\nldxdw r0, [r1]\nexit", &mut mem),
        Ok(ONES)
    );
    // Unaligned is fine, as on x86-64.
    assert_eq!(run("ldxw r0, [r1+3]\nexit", &mut mem), Ok(0xffff_ffff));
    // Stack that was not written reads as zero.
    assert_eq!(eval("ldxdw r0, [r10-512]\nexit"), 0);
}

#[test]
fn atomic_operations() {
    let atomic = |operation: &str| {
        eval(&format!(
            "lddw r1, 0xf0f0f0f0f0f0f0f0\nstxdw [r10-8], r1\nlddw r2, 0x00ff00ff00ff00ff\nlddw r0, 0xf0f0f0f0f0f0f0f0\n{operation}\nldxdw r0, [r10-8]\nexit"
        ))
    };
    assert_eq!(atomic("lock add [r10-8], r2"), 0xf1ef_f1ef_f1ef_f1ef);
    assert_eq!(atomic("lock or32 [r10-8], r2"), 0xf0f0_f0f0_f0ff_f0ff);
    assert_eq!(atomic("lock and [r10-8], r2"), 0x00f0_00f0_00f0_00f0);
    assert_eq!(
        atomic("lock fetch xor32 [r10-8], r2"),
        0xf0f0_f0f0_f00f_f00f
    );
    assert_eq!(atomic("lock xchg [r10-8], r2"), 0x00ff_00ff_00ff_00ff);
    assert_eq!(atomic("lock cmpxchg [r10-8], r2"), 0x00ff_00ff_00ff_00ff);
    assert_eq!(atomic("lock cmpxchg32 [r10-8], r2"), 0xf0f0_f0f0_00ff_00ff);
    assert_eq!(
        eval("stdw [r10-8], 5\nmov r1, 3\nlock fetch add32 [r10-8], r1\nmov r0, r1\nexit"),
        5
    );
    let fault = run("mov r1, 1\nlock add [r10-12], r1\nexit", &mut []).expect_err("misaligned");
    assert!(matches!(fault.kind, FaultKind::Access(a) if a.violation == Violation::Misaligned));
}

#[test]
fn raw_memory_is_bounded() {
    let access = |text: &str, mem: &mut [u8]| match run(text, mem).expect_err("outside").kind {
        FaultKind::Access(a) => (a.region, a.offset, a.width, a.write),
        other => panic!("{other}"),
    };
    let mut mem = [0; 8];
    assert_eq!(
        access("ldxb r0, [r1+8]\nexit", &mut mem),
        (Region::Raw, 8, 1, false)
    );
    assert_eq!(
        access("ldxdw r0, [r1+1]\nexit", &mut mem),
        (Region::Raw, 1, 8, false)
    );
    assert_eq!(
        access("stb [r1-1], 0\nexit", &mut mem),
        (Region::Raw, -1, 1, true)
    );
    assert_eq!(
        access("ldxb r0, [r1]\nexit", &mut []),
        (Region::Raw, 0, 1, false)
    );
    assert_eq!(
        access("stb [r10+0], 0\nexit", &mut []),
        (Region::Stack(0), 512, 1, true)
    );
    assert_eq!(
        access("ldxb r0, [r10-513]\nexit", &mut []),
        (Region::Stack(0), -1, 1, false)
    );
    assert_eq!(
        access("mov r1, 64\nldxb r0, [r1+0]\nexit", &mut []),
        (Region::None, 64, 1, false)
    );
}

#[test]
fn control_flow_stays_inside() {
    let decode = |bytes: &[u8]| match Machine::from_instructions(bytes) {
        Ok(_) => panic!("decodes"),
        Err(LoadError::Code { error, .. }) => error.to_string(),
        Err(other) => panic!("{other}"),
    };
    let exit = [0x95, 0, 0, 0, 0, 0, 0, 0];
    let code = |first: [u8; 8]| [first, exit].concat();
    assert!(decode(&code([0x05, 0, 5, 0, 0, 0, 0, 0])).contains("target 6"));
    assert!(decode(&code([0x05, 0, 0xfe, 0xff, 0, 0, 0, 0])).contains("target -1"));
    assert!(decode(&code([0xb7, 10, 0, 0, 0, 0, 0, 0])).contains("r10"));
    assert!(decode(&code([0xb7, 11, 0, 0, 0, 0, 0, 0])).contains("r11"));
    assert!(decode(&code([0xff, 0, 0, 0, 0, 0, 0, 0])).contains("0xff"));
    assert!(decode(&code([0x38, 0, 0, 0, 0, 0, 0, 0])).contains("0x38"));
    assert!(decode(&code([0x18, 0, 0, 0, 0, 0, 0, 0])).contains("second half"));
    assert!(decode(&[0x95, 0, 0]).contains("multiple of 8"));
    let wide = [0x18, 0x10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert!(decode(&[&wide[..], &exit].concat()).contains("relocation"));
    let middle = [
        &[0x05, 0, 1, 0, 0, 0, 0, 0][..],
        &[0x18, 0, 0, 0, 1, 0, 0, 0],
        &[0; 8],
        &exit,
    ]
    .concat();
    assert!(decode(&middle).contains("target 2"));
    let fault = run("mov r0, 1", &mut []).expect_err("no exit");
    assert_eq!(fault.kind, FaultKind::Fallthrough);
    let mut empty = Machine::from_instructions(&[]).expect("nothing to refuse");
    assert!(empty.run_raw(&mut []).is_err());
}

#[test]
fn calls_keep_callee_saved_registers_and_own_stacks() {
    let text = "
        mov r6, 6
        stdw [r10-8], 11
        mov r1, r10
        add r1, -8
        call local sub
        add r0, r6
        exit
        sub:
        mov r6, 100
        stdw [r10-8], 22
        ldxdw r0, [r1]
        exit";
    assert_eq!(eval(text), 17);
    let fault = run(
        "call local again\nexit\nagain:\ncall local again\nexit",
        &mut [],
    )
    .expect_err("recursion");
    assert_eq!(fault.kind, FaultKind::CallDepth);
    let fault = run("lddw r1, 0x7000000000\ncall r1\nexit", &mut []).expect_err("no function");
    assert_eq!(
        fault.kind,
        FaultKind::CallTarget {
            value: 0x70_0000_0000
        }
    );
}

#[test]
fn runs_end_with_the_budget() {
    let code = asm::assemble("loop:\nja loop").expect("assembles");
    let mut machine = Machine::from_instructions(&code).expect("decodes");
    let env = Env {
        instruction_budget: 1_000,
        ..Env::default()
    };
    let fault = machine.run_raw_with(&mut [], &env).expect_err("endless");
    assert_eq!(fault.kind, FaultKind::Budget { budget: 1_000 });
    assert_eq!(machine.instructions_run(), 1_000);
}

/// `LD_ABS` and `LD_IND` read the packet in network order, and end the program with 0 behind its end.
#[test]
fn tc_programs_read_the_packet_by_the_old_instructions() {
    use weir_vm::verify::{VerifyOptions, verify};
    use weir_vm::{Env, Machine, ProgramKind, Skb};
    let run = |load: [u8; 8]| {
        let code = [
            [0xbf, 0x16, 0, 0, 0, 0, 0, 0],  // r6 = r1
            [0xb7, 0x07, 0, 0, 10, 0, 0, 0], // r7 = 10
            load,
            [0x95, 0, 0, 0, 0, 0, 0, 0],
        ]
        .concat();
        let load = |kind| Machine::from_program_of(kind, &code, Vec::new(), 1).expect("decodes");
        let mut machine = load(ProgramKind::SchedCls);
        verify(&machine, "code", &VerifyOptions::default()).expect("tc programs have it");
        let xdp = verify(&load(ProgramKind::XDP), "code", &VerifyOptions::default());
        let reason = xdp.expect_err("XDP programs do not").to_string();
        assert!(reason.contains("legacy packet access"), "{reason}");
        let mut frame = [0; 60];
        frame[12..16].copy_from_slice(&[0x08, 0x00, 0x45, 0x17]);
        let mut packet = Skb::new(&frame);
        machine.run_tc(&mut packet, &Env::default()).expect("runs")
    };
    assert_eq!(run([0x28, 0, 0, 0, 12, 0, 0, 0]), 0x0800);
    assert_eq!(run([0x20, 0, 0, 0, 12, 0, 0, 0]), 0x0800_4517);
    assert_eq!(run([0x50, 0x70, 0, 0, 4, 0, 0, 0]), 0x45);
    // Behind the end, and from the network header.
    assert_eq!(run([0x30, 0, 0, 0, 60, 0, 0, 0]), 0);
    assert_eq!(run([0x30, 0, 0, 0, 1, 0, 0xf0, 0xff]), 0x17);
}

/// Loads that acquire and stores that release are loads and stores here, on memory that atomic operations may go to.
#[test]
fn ordered_loads_and_stores_have_every_width() {
    use weir_vm::Machine;
    use weir_vm::verify::{VerifyOptions, verify};
    const WIDTHS: [(u8, u64); 4] = [
        (0xd3, 0x88),
        (0xcb, 0x7788),
        (0xc3, 0x5566_7788),
        (0xdb, 0x1122_3344_5566_7788),
    ];
    for (opcode, expected) in WIDTHS {
        let code = [
            [0x18, 0x02, 0, 0, 0x88, 0x77, 0x66, 0x55], // r2 = 0x1122334455667788
            [0, 0, 0, 0, 0x44, 0x33, 0x22, 0x11],
            [0x7a, 0x0a, 0xf8, 0xff, 0, 0, 0, 0], // *(u64 *)(r10 - 8) = 0
            [opcode, 0x2a, 0xf8, 0xff, 0x10, 1, 0, 0], // store_release((r10 - 8), r2)
            [opcode, 0xa0, 0xf8, 0xff, 0, 1, 0, 0], // r0 = load_acquire((r10 - 8))
            [0x95, 0, 0, 0, 0, 0, 0, 0],
        ]
        .concat();
        let mut machine = Machine::from_instructions(&code).expect("decodes");
        assert_eq!(machine.run_raw(&mut []).expect("runs"), expected);
        verify(&machine, "code", &VerifyOptions::default()).expect("is accepted");
        // Not aligned, and the context.
        for (operands, offset) in [(0xa0, 0xf9), (0x10, 0)] {
            let code = [
                [0x7a, 0x0a, 0xf0, 0xff, 0, 0, 0, 0],
                [0x7a, 0x0a, 0xf8, 0xff, 0, 0, 0, 0],
                [
                    opcode,
                    operands,
                    offset,
                    if offset == 0 { 0 } else { 0xff },
                    0,
                    1,
                    0,
                    0,
                ],
                [0x95, 0, 0, 0, 0, 0, 0, 0],
            ]
            .concat();
            let machine = Machine::from_instructions(&code).expect("decodes");
            let aligned = operands == 0xa0 && opcode == 0xd3;
            let verdict = verify(&machine, "code", &VerifyOptions::default());
            assert_eq!(
                verdict.is_ok(),
                aligned,
                "{opcode:#x} {offset:#x}: {verdict:?}"
            );
        }
    }
}
