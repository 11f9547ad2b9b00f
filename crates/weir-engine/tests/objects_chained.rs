//! Objects of anybody behind weir's wrapper: what the joined file does is what the object does by itself, in the kernel and in the
//! user engine, and it loads in both as it is.
//!
//! Needs root, and for foreign objects Debian's package xdp-tools; says when it skips.

#![allow(
    clippy::print_stderr,
    reason = "what is skipped is said where the test runs"
)]

use crate::common;
use crate::pair;
use crate::pair::{Pair, frames, installed};
use weir_engine::EngineKind;
use weir_kernel::{KernelObject, object::TEST_RUN_LINEAR};
use weir_object::{Chained, ObjectError, Request, chain};

/// Frames a program sees unless `WEIR_LONG=1`.
const FRAMES: usize = 300;

#[test]
fn joined_programs_do_what_they_do_alone() {
    if !common::engines().contains(&EngineKind::Kernel) {
        return;
    }
    let mut frames = frames(FRAMES);
    frames.retain(|f| f.len() <= TEST_RUN_LINEAR);
    for (file, programs) in [
        (
            "agree",
            &[
                "count",
                "lines",
                "filter",
                "sample",
                "nested",
                "remember",
                "routes",
                "spread",
                "reshape",
                "arithmetic",
                "kernel_types",
            ][..],
        ),
        (
            "chained",
            &[
                "everything",
                "tail",
                "tail_first",
                "tail_itself",
                "tail_deeper",
                "longer",
            ],
        ),
    ] {
        let elf = pair::compile(file, &["-g"]);
        eprintln!("{file}");
        for program in programs {
            let alone = run(&elf, program, &[], &frames);
            let chained = joined(&elf, program);
            let together = run(
                &chained.elf,
                "object",
                &[("weir_proceed", vec![0; 4])],
                &frames,
            );
            assert_eq!(alone, together, "{file} {program}");
        }
    }
}

/// A strong symbol that no kernel has keeps a program out, but not the others of its object.
#[test]
fn a_broken_sibling_is_left_out() {
    if !common::engines().contains(&EngineKind::Kernel) {
        return;
    }
    let frames = [vec![0u8; 64]];
    let elf = pair::compile("kinds", &["-g"]);
    for (program, verdict) in [("device", 2), ("device_too", 1), ("weak_symbols", 3)] {
        let chained = joined(&elf, program);
        let constants = [("weir_proceed", vec![0; 4])];
        assert_eq!(
            run(&chained.elf, "object", &constants, &frames),
            [(verdict, 1)],
            "{program}"
        );
    }
    let broken = KernelObject::open(&joined(&elf, "strong_symbol").elf);
    let error = broken
        .and_then(|o| o.load("object"))
        .expect_err("cannot be resolved");
    assert!(error.to_string().contains("CONFIG_STRONG"), "{error}");
}

/// Objects that others built, with other compilers.
#[test]
fn installed_programs_do_what_they_do_alone() {
    if !common::engines().contains(&EngineKind::Kernel) {
        return;
    }
    let mut frames = frames(FRAMES);
    frames.retain(|f| f.len() <= TEST_RUN_LINEAR);
    let mut ran = 0;
    for path in installed() {
        let elf = std::fs::read(&path).expect("can be read");
        let object = weir_vm::Object::parse(&elf).expect("an object");
        let xdp = object
            .programs()
            .filter(|p| object.program_kind(p).is_some_and(|k| k.is_xdp()));
        for program in xdp {
            let alone = run(&elf, program, &[], &frames);
            let chained = joined(&elf, program);
            let together = run(
                &chained.elf,
                "object",
                &[("weir_proceed", vec![0; 4])],
                &frames,
            );
            assert_eq!(alone, together, "{} {program}", path.display());
            ran += 1;
        }
    }
    eprintln!("{ran} programs");
}

fn run(
    elf: &[u8],
    program: &str,
    constants: &[(&str, Vec<u8>)],
    frames: &[Vec<u8>],
) -> Vec<(u32, u64)> {
    let mut pair = Pair::load(elf, program, constants);
    pair.start(false);
    for (number, frame) in frames.iter().enumerate() {
        if let Err(difference) = pair.packet(frame) {
            panic!("{program}, frame {number}: {difference}");
        }
    }
    // What is not there is laid out as each loader likes.
    if pair.user.map(".kconfig").is_none() {
        pair.compare_maps()
            .unwrap_or_else(|e| panic!("{program}: {e}"));
    }
    pair.verdicts.into_iter().collect()
}

fn joined(elf: &[u8], program: &str) -> Chained {
    let request = Request {
        object: elf,
        program: Some(program),
        wrapper: weir_bpf::object("object").expect("compiled"),
    };
    match chain(&request) {
        Ok(chained) => chained,
        Err(e) => panic!("{program}: {e}"),
    }
}

#[test]
fn what_cannot_be_joined_says_why() {
    let elf = pair::compile("kinds", &["-g"]);
    let wrapper = weir_bpf::object("object").expect("compiled");
    let refused = |object: &[u8], program| {
        let request = Request {
            object,
            program,
            wrapper,
        };
        chain(&request).expect_err("cannot be joined")
    };
    for program in [None, Some("nothing")] {
        eprintln!("{}", refused(&elf, program));
    }
    let bare = pair::compile("chained", &["-DLICENSE=\"GPL\""]);
    eprintln!("{}", refused(&bare, Some("code")));
    assert!(matches!(refused(b"ELF", None), ObjectError::Load(_)));
}

/// Foreign files are input: whatever is in them, the answer is a file or an error.
#[test]
fn damaged_objects_are_errors() {
    let whole = pair::compile("chained", &["-g"]);
    let wrapper = weir_bpf::object("object").expect("compiled");
    let attempt = |object: &[u8]| {
        let request = Request {
            object,
            program: Some("everything"),
            wrapper,
        };
        chain(&request).is_ok()
    };
    assert!(attempt(&whole));
    for end in (0..whole.len()).step_by(37) {
        assert!(!attempt(&whole[..end]), "cut at {end}");
    }
    // A fixed sequence of numbers: each damages up to four bytes.
    let mut state = 1u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as usize
    };
    let (mut joined, mut refused) = (0, 0);
    for _ in 0..3_000 {
        let mut damaged = whole.clone();
        for _ in 0..=next() % 4 {
            let at = next() % damaged.len();
            damaged[at] = next() as u8;
        }
        match attempt(&damaged) {
            true => joined += 1,
            false => refused += 1,
        }
    }
    eprintln!("{joined} joined all the same, {refused} refused");
    assert!(refused > 0 && joined > 0);
}
