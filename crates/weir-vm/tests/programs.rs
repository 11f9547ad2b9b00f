//! Compiled objects: linking, calls, constants, tail calls, clocks.

use crate::object::{compile, machine, results, run};
use weir_vm::{Env, FaultKind, Frame, LoadError, Object};

#[test]
fn subprograms_constants_and_globals() {
    let elf = compile("code");
    let mut object = Object::parse(&elf).expect("parses");
    object
        .set_rodata("limit", &9u32.to_le_bytes())
        .expect("limit is a constant");
    object
        .set_rodata("hidden", &2u16.to_le_bytes())
        .expect("static constants too");
    let mut m = object.load("calls").expect("loads");
    let mut frame = Frame::new(&[0; 60]);
    assert_eq!(m.run_xdp(&mut frame, &Env::default()), Ok(2));
    assert_eq!(results(&m, 4), [8 * 9 + 1 + 2, 8, 41, 1]);
    assert_eq!(m.run_xdp(&mut frame, &Env::default()), Ok(2));
    assert_eq!(results(&m, 4), [75, 8, 42, 2]);
    assert_eq!(
        m.map(".data").and_then(|d| d.value(&[0; 4])).map(|v| v[0]),
        Some(42)
    );
}

#[test]
fn static_functions_beside_programs() {
    let elf = compile("beside");
    let mut frame = Frame::new(&[0; 60]);
    assert_eq!(run(&elf, "first", &mut frame).1, Ok(1002));
    assert_eq!(run(&elf, "second", &mut frame).1, Ok(1001));
}

#[test]
fn constants_are_checked() {
    let elf = compile("code");
    let mut object = Object::parse(&elf).expect("parses");
    assert_eq!(
        object.set_rodata("limit", &[0; 8]),
        Err(LoadError::ConstantSize {
            name: "limit".into(),
            expected: 4,
            got: 8
        })
    );
    assert!(matches!(
        object.set_rodata("counter", &[0; 4]),
        Err(LoadError::NoConstant(_))
    ));
    assert!(matches!(
        object.set_map_entries("none", 4),
        Err(LoadError::NoMap { .. })
    ));
    assert!(matches!(
        object.load("none"),
        Err(LoadError::NoProgram { .. })
    ));
}

#[test]
fn lists_what_the_object_has() {
    let object = Object::parse(&compile("code")).expect("parses");
    let programs: Vec<_> = object.programs().collect();
    assert_eq!(
        programs,
        [
            "calls", "loops", "leaf", "caller", "count", "miss", "clock", "prewired"
        ]
    );
    assert_eq!(object.program_section("clock"), Some("xdp/other"));
    let maps: Vec<_> = object.map_names().collect();
    for name in ["results", "jumps", "wired", ".rodata", ".data", ".bss"] {
        assert!(maps.contains(&name), "{name} is missing in {maps:?}");
    }
}

#[test]
fn loops_and_their_callbacks() {
    let (m, verdict) = run(&compile("code"), "loops", &mut Frame::new(&[0; 60]));
    assert_eq!(verdict, Ok(2));
    assert_eq!(results(&m, 7), [10, 45, 5, -22, 0xffff_fff9, 4, 12]);
}

#[test]
fn tail_calls_end_after_33() {
    let elf = compile("code");
    let mut m = machine(&elf, "count");
    m.set_tail_call("jumps", 1, "count").expect("slot exists");
    assert_eq!(m.run_xdp(&mut Frame::new(&[0; 60]), &Env::default()), Ok(1));
    assert_eq!(m.map(".bss").map(|b| count_in(b.value(&[0; 4]))), Some(34));
}

/// The `zeroed` counter is somewhere in `.bss` with only zeros beside it.
fn count_in(bss: Option<&[u8]>) -> u64 {
    bss.into_iter().flatten().map(|b| u64::from(*b)).sum()
}

#[test]
fn tail_calls_from_subprograms_and_misses() {
    let elf = compile("code");
    let mut m = machine(&elf, "caller");
    let mut frame = Frame::new(&[0; 60]);
    assert_eq!(m.run_xdp(&mut frame, &Env::default()), Ok(0));
    m.set_tail_call("jumps", 2, "leaf").expect("slot exists");
    assert_eq!(m.run_xdp(&mut frame, &Env::default()), Ok(78));
    m.select("miss").expect("program exists");
    assert_eq!(m.run_xdp(&mut frame, &Env::default()), Ok(3));
    m.select("prewired").expect("program exists");
    assert_eq!(m.run_xdp(&mut frame, &Env::default()), Ok(77));
    assert!(m.set_tail_call("jumps", 4, "leaf").is_err());
    assert!(m.set_tail_call("results", 0, "leaf").is_err());
}

#[test]
fn time_and_randomness_are_inputs() {
    let elf = compile("code");
    let mut m = machine(&elf, "clock");
    let env = Env {
        now_ns: 123_456_789_012,
        rx_queue: 3,
        random_seed: 42,
        ..Env::default()
    };
    let mut frame = Frame::new(&[0; 60]);
    assert_eq!(m.run_xdp(&mut frame, &env), Ok(2));
    let first = results(&m, 5);
    assert_eq!((first[0], first[3], first[4]), (123_456_789_012, -1, 0));
    assert_ne!(first[1], first[2]);
    assert_eq!(m.take_trace(), ["t=123456789012 n=3 s=abc"]);
    let before = m.instructions_run();
    assert_eq!(m.run_xdp(&mut frame, &env), Ok(2));
    assert_eq!(results(&m, 5), first);
    assert_eq!(m.instructions_run(), before * 2);
    let other = Env {
        random_seed: 43,
        ..env
    };
    assert_eq!(m.run_xdp(&mut frame, &other), Ok(2));
    assert_ne!(results(&m, 5)[1], first[1]);
}

#[test]
fn the_budget_is_exact() {
    let elf = compile("code");
    let mut m = machine(&elf, "loops");
    let mut frame = Frame::new(&[0; 60]);
    m.run_xdp(&mut frame, &Env::default()).expect("runs");
    let cost = m.instructions_run();
    let env = Env {
        instruction_budget: cost,
        ..Env::default()
    };
    assert_eq!(m.run_xdp(&mut frame, &env), Ok(2));
    let env = Env {
        instruction_budget: cost - 1,
        ..Env::default()
    };
    let fault = m.run_xdp(&mut frame, &env).expect_err("one short");
    assert_eq!(fault.kind, FaultKind::Budget { budget: cost - 1 });
}

#[test]
fn layouts_from_type_information() {
    let object = Object::parse(&compile("code")).expect("parses");
    let btf = object.btf().expect("compiled with -g");
    let outer = btf.layout("outer").expect("struct exists");
    assert_eq!(outer.size, 48);
    let offset = |name: &str| outer.member(name).map(|m| (m.offset(), m.size));
    assert_eq!(offset("first"), Some((0, 4)));
    assert_eq!(offset("inner_b"), Some((6, 2)));
    assert_eq!(offset("wide"), Some((8, 8)));
    assert_eq!(offset("bytes"), Some((8, 8)));
    assert_eq!(offset("point"), Some((20, 24)));
    let high = outer.member("high").expect("bit field");
    assert_eq!((high.bit_offset, high.bit_width), (16 * 8 + 3, 5));
    assert_eq!(
        btf.enumeration("colour"),
        Some(vec![("RED".to_owned(), 3), ("GREEN".to_owned(), 5)])
    );
    assert_eq!(btf.enumerator("GREEN"), Some(5));
    assert!(btf.layout("absent").is_err());
    let id = btf.type_id("u16").expect("typedef exists");
    assert_eq!(btf.size_of(id), Ok(2));
}

#[test]
fn faults_name_function_and_slot() {
    let elf = compile("frame");
    let (_, verdict) = run(&elf, "past_end", &mut Frame::new(&[0; 60]));
    let fault = verdict.expect_err("reads past the end");
    assert_eq!(fault.function, "past_end");
    let text = fault.to_string();
    assert!(
        text.contains(
            "of past_end: read of 1 bytes at offset 60 of the packet: outside the region"
        ),
        "{text}"
    );
}
