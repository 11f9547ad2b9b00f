//! The verifier's rules: for each a program that breaks it and one nearly equal that does not.

#[path = "verifier/programs.rs"]
mod programs;

use std::collections::BTreeSet;

use crate::asm;
use crate::object;
use weir_vm::verify::{Rejection, Rule, Verified, VerifyOptions, verify};
use weir_vm::{BPF_F_RDONLY_PROG, Insn, Machine, MapDefinition, MapKind, Object, ProgramKind};

/// The maps that the programs name.
fn maps() -> Vec<MapDefinition> {
    let array = MapDefinition::new("array", MapKind::Array, 4, 16, 4);
    let mut rodata = MapDefinition::new(".rodata", MapKind::Array, 4, 8, 1);
    rodata.flags = BPF_F_RDONLY_PROG;
    let mut locked = MapDefinition::new("locked", MapKind::Hash, 4, 16, 4);
    locked.has_spin_lock = true;
    let mut outer = MapDefinition::new("outer", MapKind::ArrayOfMaps, 4, 4, 2);
    outer.inner = Some(Box::new(array.clone()));
    vec![
        array,
        MapDefinition::new("hash", MapKind::Hash, 8, 8, 16),
        MapDefinition::new("ring", MapKind::RingBuf, 0, 0, 4096),
        MapDefinition::new("programs", MapKind::ProgArray, 4, 4, 4),
        rodata,
        locked,
        MapDefinition::new("devices", MapKind::DevMap, 4, 4, 4),
        MapDefinition::new("percpu", MapKind::PercpuArray, 4, 8, 4),
        MapDefinition::new("data", MapKind::Array, 4, 64, 1),
        outer,
    ]
}

fn check(text: &str, options: &VerifyOptions) -> Result<Verified, Box<Rejection>> {
    let code = asm::assemble(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let mut machine = Machine::from_program(&code, maps(), 2).expect("decodes");
    if let Some(value) = machine
        .map_mut(".rodata")
        .and_then(|m| m.value_mut(&[0; 4]))
    {
        value.copy_from_slice(b"\x03\0\0\0abc\0");
    }
    verify(&machine, "code", options)
}

fn rule_name(rule: &Rule) -> String {
    let text = format!("{rule:?}");
    text.chars().take_while(|c| c.is_alphanumeric()).collect()
}

#[test]
fn every_program_gets_its_verdict() {
    let mut wrong = Vec::new();
    for program in programs::all() {
        let found = match check(program.text, &VerifyOptions::default()) {
            Ok(_) => String::new(),
            Err(rejection) => rule_name(&rejection.rule),
        };
        if found != program.rule {
            wrong.push(format!(
                "{}: expected {:?}, found {found:?}",
                program.name, program.rule
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn names_are_unique() {
    let names: BTreeSet<&str> = programs::all().map(|p| p.name).collect();
    assert_eq!(names.len(), programs::all().count());
}

#[test]
fn a_rejection_says_where_and_why() {
    let text = "ldxw r2, [r1]\nldxw r3, [r1+4]\nmov r4, r2\nadd r4, 8\njgt r4, r3, out\nldxb r0, [r2+8]\nexit\nout:\nmov r0, 0\nexit";
    let rejection = check(text, &VerifyOptions::default()).expect_err("one byte too far");
    assert_eq!(
        rejection.rule,
        Rule::PacketBounds {
            offset: 8,
            size: 1,
            range: 8,
            variable: false
        }
    );
    assert_eq!(rejection.place.slot, 5);
    assert_eq!(rejection.register, Some(2));
    let history = rejection.history.expect("r2 was loaded");
    assert_eq!(
        history.birth,
        weir_vm::verify::Birth::Loaded(weir_vm::verify::ValueKind::Context)
    );
    assert_eq!((history.born_at, history.narrowed_at), (0, Some(4)));
    let path: Vec<_> = rejection.path.iter().map(|s| (s.op, s.taken)).collect();
    assert_eq!(path, [(4, false)]);
    assert!(rejection.log.is_empty());
}

#[test]
fn the_log_is_written_when_asked_for() {
    let options = VerifyOptions {
        log: true,
        ..VerifyOptions::default()
    };
    let verified = check("mov r0, 2\nexit", &options).expect("accepted");
    assert_eq!(verified.log.lines().count(), 2, "{}", verified.log);
    assert_eq!(verified.processed, 2);
}

#[test]
fn strict_alignment_is_about_packets_and_values() {
    let strict = VerifyOptions {
        strict_alignment: true,
        ..VerifyOptions::default()
    };
    let at = |offset: u32| {
        format!(
            "ldxw r2, [r1]\nldxw r3, [r1+4]\nmov r4, r2\nadd r4, 32\njgt r4, r3, out\nldxw r0, [r2+{offset}]\nexit\nout:\nmov r0, 0\nexit"
        )
    };
    // The frame begins two bytes before an aligned address.
    assert!(check(&at(14), &strict).is_ok());
    let rejection = check(&at(12), &strict).expect_err("misaligned");
    assert_eq!(rule_name(&rejection.rule), "Misaligned");
    assert!(check(&at(12), &VerifyOptions::default()).is_ok());
}

#[test]
fn stack_never_written_is_refused_when_asked_for() {
    let options = VerifyOptions {
        unwritten_stack: false,
        ..VerifyOptions::default()
    };
    let refused = [
        "ldxdw r0, [r10-8]\nexit",
        "stw [r10-8], 0\nldxdw r0, [r10-8]\nexit",
        "stw [r10-4], 0\nmov r2, r10\nadd r2, -8\nlddw r1, map 1\ncall 1\nmov r0, 0\nexit",
        // One path writes, the other does not.
        "ldxw r1, [r1+16]\njeq r1, 0, read\nstdw [r10-8], 1\nread:\nldxdw r0, [r10-8]\nexit",
    ];
    for text in refused {
        let rejection = check(text, &options).expect_err(text);
        assert_eq!(rule_name(&rejection.rule), "UninitStack", "{text}");
        assert!(check(text, &VerifyOptions::default()).is_ok(), "{text}");
    }
    let written = "stdw [r10-8], 0\nldxdw r0, [r10-8]\nexit";
    assert!(check(written, &options).is_ok());
}

/// The rule that a program's name says it breaks: `no_RULE` or `no_RULE_more`.
fn named_rule(program: &str) -> &str {
    let rest = program.strip_prefix("no_").unwrap_or("");
    let rule = rest.split('_').next().unwrap_or("");
    // `no_memory` is a name like any other.
    if rule.starts_with(|c: char| c.is_ascii_uppercase()) {
        rule
    } else {
        ""
    }
}

fn compiled_verdict(object: &Object, program: &str) -> String {
    let machine = object.clone().load(program).expect("loads");
    match verify(&machine, program, &VerifyOptions::default()) {
        Ok(_) => String::new(),
        Err(rejection) => rule_name(&rejection.rule),
    }
}

#[test]
fn compiled_programs_get_their_verdicts() {
    let mut wrong = Vec::new();
    for (name, least) in [("verdicts", 20), ("kernel", 30)] {
        let object = Object::parse(&object::compile(name)).expect("parses");
        for program in object.programs() {
            let found = compiled_verdict(&object, program);
            if found != named_rule(program) {
                wrong.push(format!("{program}: {found:?}"));
            }
        }
        assert!(object.programs().count() > least, "{name}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn some_helpers_ask_for_a_license() {
    let compile = |license: &str| {
        let flag = format!("-DLICENSE=\"{license}\"");
        Object::parse(&object::compile_with("verdicts", &["-g", &flag])).expect("parses")
    };
    assert_eq!(
        compiled_verdict(&compile("Proprietary"), "prints"),
        "License"
    );
    assert_eq!(compiled_verdict(&compile("GPL"), "prints"), "");
    assert_eq!(compiled_verdict(&compile("Proprietary"), "number"), "");
}

#[test]
fn functions_of_the_kernel_are_refused_by_name() {
    let object = Object::parse(&object::compile_with(
        "verdicts",
        &["-g", "-DKERNEL_FUNCTION"],
    ))
    .expect("parses");
    let machine = object.load("no_External").expect("loads");
    let rejection = verify(&machine, "no_External", &VerifyOptions::default()).expect_err("extern");
    let name = "bpf_not_there".to_owned();
    assert_eq!(rejection.rule, Rule::External { name });
}

#[test]
fn unknown_programs_are_named() {
    let object = Object::parse(&object::compile("verdicts")).expect("parses");
    let machine = object.load("number").expect("loads");
    let rejection = verify(&machine, "nothing", &VerifyOptions::default()).expect_err("not there");
    assert_eq!(rejection.rule, Rule::NoProgram);
}

/// A program of so many instructions that all do nothing, and an exit.
fn long(instructions: usize) -> Vec<u8> {
    let mov = Insn {
        opcode: 0xb7,
        dst: 0,
        src: 0,
        off: 0,
        imm: 0,
    };
    let exit = Insn {
        opcode: 0x95,
        ..mov
    };
    let mut code = mov.to_bytes().repeat(instructions - 1);
    code.extend(exit.to_bytes());
    code
}

fn rule_of(code: &[u8], options: &VerifyOptions) -> String {
    let machine = Machine::from_program(code, maps(), 2).expect("decodes");
    match verify(&machine, "code", options) {
        Ok(_) => String::new(),
        Err(rejection) => rule_name(&rejection.rule),
    }
}

#[test]
fn limits_are_the_kernels() {
    let options = VerifyOptions::default();
    assert_eq!(rule_of(&long(1_000_001), &options), "TooManyInstructions");
    assert_eq!(rule_of(&long(1_000_000), &options), "");

    // The program and 255 functions of one another's level are 256, one more is too many.
    let calls = |functions: i32| {
        let call = Insn {
            opcode: 0x85,
            dst: 0,
            src: 1,
            off: 0,
            imm: 0,
        };
        let mov = Insn {
            opcode: 0xb7,
            dst: 0,
            src: 0,
            off: 0,
            imm: 0,
        };
        let exit = Insn {
            opcode: 0x95,
            ..mov
        };
        let mut insns: Vec<Insn> = (0..functions)
            .map(|n| Insn {
                imm: functions - n + 2 * n,
                ..call
            })
            .collect();
        insns.push(exit);
        for _ in 0..functions {
            insns.extend([mov, exit]);
        }
        insns.iter().flat_map(|i| i.to_bytes()).collect::<Vec<u8>>()
    };
    assert_eq!(rule_of(&calls(255), &options), "");
    assert_eq!(rule_of(&calls(256), &options), "TooManyFunctions");

    let few = VerifyOptions {
        state_bytes: 10_000,
        ..VerifyOptions::default()
    };
    let looping = asm::assemble("mov r0, 0\nagain:\nadd r0, 1\njlt r0, 2000, again\nexit")
        .expect("assembles");
    assert_eq!(rule_of(&looping, &few), "StateMemory");
    assert_eq!(rule_of(&looping, &options), "");
}

#[test]
fn too_many_branches_may_not_wait() {
    // Each instruction forks on a number that nothing else depends on, and no state is kept between.
    let mut text = String::from("ldxw r2, [r1+16]\nmov r0, 0\n");
    for bit in 0..9000 {
        text.push_str(&format!("jset r2, {}, out\n", 1u32 << (bit % 31)));
    }
    text.push_str("out:\nexit");
    let code = asm::assemble(&text).expect("assembles");
    // Bits once found unset are not asked again: only 31 branches fork.
    assert_eq!(rule_of(&code, &VerifyOptions::default()), "");
    let mut text = String::from("mov r6, r1\nmov r0, 0\n");
    for _ in 0..8300 {
        text.push_str("ldxw r2, [r6+16]\njeq r2, 1, out\n");
    }
    text.push_str("out:\nexit");
    let code = asm::assemble(&text).expect("assembles");
    assert_eq!(rule_of(&code, &VerifyOptions::default()), "PendingBranches");
}

/// Open-coded iterators yield what the kernel's do, interpreted and, over numbers, compiled.
#[test]
fn iterators_yield_their_numbers_and_bits() {
    let object = Object::parse(&object::compile("verdicts")).expect("parses");
    // Interface 1, queue 0: 3 to 9, nothing to four rounds, and bits 0, 63, 68 and 69.
    let expected = [
        ("iterates", 42),
        ("iterates_in_iterations", 10),
        ("iterates_over_bits", 200),
    ];
    for (program, result) in expected {
        let mut machine = object.clone().load(program).expect("loads");
        let run = |machine: &mut Machine| {
            machine.run_xdp(&mut weir_vm::Frame::new(&[0; 60]), &weir_vm::Env::default())
        };
        assert_eq!(run(&mut machine), Ok(result), "{program}");
        if !weir_vm::jit::available() {
            continue;
        }
        // An iterator over bits copies from wherever it is told, which native code cannot check.
        let compiled = machine.verify_and_compile(&VerifyOptions::default());
        assert_eq!(
            compiled.is_ok(),
            program != "iterates_over_bits",
            "{compiled:?}"
        );
        assert_eq!(run(&mut machine), Ok(result), "{program}");
        assert_eq!(run(&mut machine), Ok(result), "{program}");
    }
}

fn insn(opcode: u8, dst: u8, src: u8, off: i16, imm: i32) -> [u8; 8] {
    Insn {
        opcode,
        dst,
        src,
        off,
        imm,
    }
    .to_bytes()
}

/// What an instruction does not use is zero, and the frame pointer is not written: on paths that lead there.
#[test]
fn reserved_fields_and_the_frame_pointer_count_where_a_path_leads() {
    let options = VerifyOptions::default();
    let exit = insn(0x95, 0, 0, 0, 0);
    let with = |wrong: [u8; 8]| [insn(0xb7, 0, 0, 0, 0), wrong, exit].concat();
    // `r0 = r0` with an immediate, a negation with a source, and an addition with an offset it does not have.
    assert_eq!(
        rule_of(&with(insn(0xbf, 0, 0, 0, 5)), &options),
        "ReservedField"
    );
    assert_eq!(
        rule_of(&with(insn(0x87, 0, 1, 0, 0)), &options),
        "ReservedField"
    );
    assert_eq!(rule_of(&with(insn(0x87, 0, 0, 0, 0)), &options), "");
    // The same behind a jump that is never taken.
    let dead =
        |wrong: [u8; 8]| [insn(0xb7, 0, 0, 0, 0), insn(0x15, 0, 0, 1, 0), wrong, exit].concat();
    assert_eq!(rule_of(&dead(insn(0xbf, 0, 0, 0, 5)), &options), "");
}

/// A tc program has another context and other helpers than an XDP program; what one reads is not the other's.
#[test]
fn tc_programs_have_their_own_context_and_helpers() {
    let verdict = |kind: ProgramKind, text: &str| {
        let code = asm::assemble(text).expect("assembles");
        let machine = Machine::from_program_of(kind, &code, maps(), 2).expect("loads");
        match verify(&machine, "code", &VerifyOptions::default()) {
            Ok(_) => String::new(),
            Err(rejection) => rejection.to_string(),
        }
    };
    let bytes = |data: i32, end: i32| {
        format!(
            "ldxw r2, [r1+{data}]\nldxw r3, [r1+{end}]\nmov r4, r2\nadd r4, 14\nmov r0, 0\njgt r4, r3, out\nldxb r0, [r2+13]\nout:\nexit"
        )
    };
    assert_eq!(verdict(ProgramKind::SchedCls, &bytes(76, 80)), "");
    assert_eq!(verdict(ProgramKind::XDP, &bytes(0, 4)), "");
    assert_ne!(verdict(ProgramKind::XDP, &bytes(76, 80)), "");
    // The length and the kind of a packet are no pointers.
    assert_ne!(verdict(ProgramKind::SchedCls, &bytes(0, 4)), "");
    // Written: the mark, in its own width.
    let mark = "mov r2, 7\nstxw [r1+8], r2\nmov r0, 0\nexit";
    assert_eq!(verdict(ProgramKind::SchedCls, mark), "");
    assert_ne!(
        verdict(ProgramKind::SchedCls, &mark.replace("+8", "+16")),
        ""
    );
    assert_ne!(
        verdict(ProgramKind::SchedCls, &mark.replace("stxw", "stxh")),
        ""
    );
    assert_ne!(verdict(ProgramKind::XDP, mark), "");
    // bpf_skb_pull_data makes packet pointers stale, and is not XDP's; bpf_xdp_adjust_head is not tc's.
    let pull = "mov r6, r1\nldxw r7, [r6+76]\nldxw r8, [r6+80]\nmov r4, r7\nadd r4, 14\nmov r0, 0\njgt r4, r8, out\nmov r2, 0\nmov r1, r6\ncall 39\nldxb r0, [r7+0]\nout:\nexit";
    assert!(
        verdict(ProgramKind::SchedCls, pull).contains("no memory"),
        "{}",
        verdict(ProgramKind::SchedCls, pull)
    );
    let helper = |number: u32| format!("mov r2, 0\ncall {number}\nmov r0, 0\nexit");
    assert_eq!(verdict(ProgramKind::SchedCls, &helper(39)), "");
    assert!(verdict(ProgramKind::XDP, &helper(39)).contains("not available to XDP"));
    assert!(verdict(ProgramKind::SchedCls, &helper(44)).contains("not available to tc"));
}

/// Dynptrs, sections, exceptions and look-ups of what no run has do what the kernel's do; the kernel's results are in `kernel_functions`
/// of weir-engine.
#[test]
fn kernel_functions_with_a_model_run() {
    let object = Object::parse(&object::compile("kernel")).expect("parses");
    let mut frame = [0; 60];
    frame[14] = 9;
    frame[26..30].copy_from_slice(&[1, 2, 3, 4]);
    let run = |program: &str, bytes: &[u8]| {
        let mut machine = object.clone().load(program).expect("loads");
        let mut frame = weir_vm::Frame::new(bytes);
        let result = machine.run_xdp(&mut frame, &weir_vm::Env::default());
        (result, frame.data().to_vec(), machine)
    };
    for (program, result) in [
        ("slices_the_packet", 0x0403_0201),
        ("writes_the_packet", 77 + 26),
        ("dynptr_of_a_value", 42),
        ("record_of_any_size", 2),
        ("passes_a_dynptr", 60),
        ("looks_a_connection_up", 3),
        ("reads_in_sections", 2),
        ("throws", 7),
        ("throws_to_a_callback", 8),
    ] {
        let (found, after, mut machine) = run(program, &frame);
        assert_eq!(found, Ok(result), "{program}");
        let written = program == "writes_the_packet";
        assert_eq!(after[14], if written { 77 } else { 9 }, "{program}");
        if program == "record_of_any_size" {
            let records = machine.drain_ringbuf("ring");
            assert_eq!(records, [vec![5, 0, 0, 0, 0, 0, 0, 0]]);
        }
        // Only the interpreter has them.
        if weir_vm::jit::available() {
            let compiled = machine.verify_and_compile(&VerifyOptions::default());
            assert!(compiled.is_err(), "{program}");
        }
    }
    assert_eq!(run("slices_the_packet", &frame[..20]).0, Ok(1));
    let (refused, ..) = run("acquires_a_task", &frame);
    let reason = refused.expect_err("no run has tasks").to_string();
    assert!(reason.contains("get_current_task_btf"), "{reason}");
}

/// Every rule is broken by some test in this folder.
#[test]
fn every_rule_has_a_program() {
    let source = include_str!("../src/verify/rejection.rs");
    let body = source
        .split("pub enum Rule {")
        .nth(1)
        .expect("the list of rules");
    let body = body.split("\n}\n").next().expect("its end");
    let rules: BTreeSet<&str> = body
        .lines()
        .filter_map(|l| l.strip_prefix("    "))
        .filter(|l| l.starts_with(|c: char| c.is_ascii_uppercase()))
        .map(|l| l.split([' ', ',', '{']).next().unwrap_or(l))
        .collect();
    assert!(rules.len() > 60, "{}", rules.len());
    let compiled = concat!(
        include_str!("objects/verdicts.c"),
        include_str!("objects/kernel.c")
    );
    let tests = concat!(include_str!("verifier.rs"), include_str!("loading.rs"));
    let broken = |rule: &str| {
        programs::all().any(|p| p.rule == rule)
            || compiled.contains(&format!("no_{rule}"))
            || tests.contains(&format!("\"{rule}\""))
            || tests.contains(&format!("Rule::{rule}"))
    };
    let missing: Vec<_> = rules.iter().filter(|r| !broken(r)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// A small generator: the same programs on every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % limit
    }

    fn insn(&mut self, left: i64) -> Vec<Insn> {
        const OPCODES: [u8; 40] = [
            0x07, 0x0f, 0x17, 0x1f, 0x27, 0x47, 0x57, 0x5f, 0x67, 0x77, 0x87, 0xb7, 0xbf, 0xbf,
            0xbc, 0xb4, 0x04, 0x0c, 0x54, 0xc7, 0x61, 0x61, 0x69, 0x71, 0x79, 0x79, 0x62, 0x63,
            0x6b, 0x73, 0x7a, 0x7b, 0x7b, 0x15, 0x55, 0x2d, 0x3d, 0xad, 0xa5, 0x85,
        ];
        let opcode = OPCODES[self.below(40) as usize];
        let mut insn = Insn {
            opcode,
            dst: self.below(11) as u8,
            src: self.below(11) as u8,
            off: -8 * self.below(3) as i16,
            imm: self.below(17) as i32 - 8,
        };
        match opcode & 7 {
            5 if opcode == 0x85 => {
                const HELPERS: [i32; 12] = [1, 2, 3, 5, 12, 44, 51, 131, 132, 189, 28, 7];
                (insn.dst, insn.src, insn.off) = (0, 0, 0);
                insn.imm = HELPERS[self.below(12) as usize];
            }
            5 => {
                // Now and then backwards.
                insn.off =
                    self.below(left.max(1) as u64) as i16 - i16::from(self.below(16) == 0) * 3;
            }
            1 if self.below(2) == 0 => (insn.src, insn.off) = (1, 4 * self.below(6) as i16),
            4 | 7 => {
                insn.off = 0;
                insn.dst %= 10;
            }
            _ => {}
        }
        // Mostly nothing in fields that the instruction does not use, which would be refused.
        if self.below(100) > 0 {
            let register = opcode & 8 != 0;
            match opcode & 7 {
                1 | 3 => insn.imm = 0,
                2 => insn.src = 0,
                4 | 7 if opcode == 0x87 => (insn.src, insn.imm) = (0, 0),
                5 if opcode == 0x85 => {}
                _ if register => insn.imm = 0,
                _ => insn.src = 0,
            }
        }
        if self.below(12) == 0 {
            let map = self.below(10) as i32;
            let load = Insn {
                opcode: 0x18,
                src: 1 + self.below(2) as u8,
                imm: map,
                off: 0,
                dst: insn.dst % 10,
            };
            return vec![
                load,
                Insn {
                    opcode: 0,
                    dst: 0,
                    src: 0,
                    off: 0,
                    imm: 0,
                },
            ];
        }
        vec![insn]
    }

    fn program(&mut self) -> Vec<u8> {
        let length = 2 + self.below(30);
        // Something in every register, so that more is accepted: packet, its end, numbers, the context.
        let mov = |dst, imm| Insn {
            opcode: 0xb7,
            dst,
            src: 0,
            off: 0,
            imm,
        };
        let copy = |dst, src| Insn {
            opcode: 0xbf,
            src,
            ..mov(dst, 0)
        };
        let field = |dst, off| Insn {
            opcode: 0x61,
            off,
            ..copy(dst, 1)
        };
        let mut insns = vec![
            field(2, 0),
            field(3, 4),
            field(4, 16),
            mov(5, 3),
            copy(6, 1),
            copy(7, 2),
            mov(8, 0),
            field(9, 12),
            mov(0, 1),
        ];
        let length = length + insns.len() as u64;
        while (insns.len() as u64) < length {
            let left = length as i64 - insns.len() as i64;
            insns.extend(self.insn(left));
        }
        let mov = Insn {
            opcode: 0xb7,
            dst: 0,
            src: 0,
            off: 0,
            imm: 2,
        };
        insns.push(mov);
        insns.push(Insn {
            opcode: 0x95,
            imm: 0,
            ..mov
        });
        insns.iter().flat_map(|i| i.to_bytes()).collect()
    }
}

/// 60,000 programs; `WEIR_CASES=5000000` for a long run. Whatever the instructions, the verifier answers; and what it accepts does not fault in the checked interpreter.
#[test]
fn accepted_programs_do_not_fault() {
    let mut random = Random(7);
    let options = VerifyOptions {
        budget: 20_000,
        ..VerifyOptions::default()
    };
    let (mut decoded, mut accepted) = (0, 0);
    let cases = std::env::var("WEIR_CASES")
        .ok()
        .and_then(|n| n.parse().ok());
    for round in 0..cases.unwrap_or(60_000) {
        let code = random.program();
        let Ok(mut machine) = Machine::from_program(&code, maps(), 2) else {
            continue;
        };
        decoded += 1;
        if verify(&machine, "code", &options).is_err() {
            continue;
        }
        accepted += 1;
        for length in [14, 15, 60] {
            let mut frame = weir_vm::Frame::new(&vec![round as u8; length]);
            let env = weir_vm::Env {
                random_seed: round,
                now_ns: round,
                ..weir_vm::Env::default()
            };
            if let Err(fault) = machine.run_xdp(&mut frame, &env) {
                panic!(
                    "{fault}\n{}",
                    code.chunks(8)
                        .map(|c| format!("{c:02x?}\n"))
                        .collect::<String>()
                );
            }
        }
    }
    assert!(
        decoded > 10_000 && accepted > 1000,
        "{decoded} decoded, {accepted} accepted"
    );
}
