//! The verifier's rules: for each a program that breaks it and one nearly equal that does not.

mod asm;
#[path = "verifier/programs.rs"]
mod programs;

use std::collections::BTreeSet;

use programs::PROGRAMS;
use weir_vm::verify::{Rejection, Rule, Verified, VerifyOptions, verify};
use weir_vm::{BPF_F_RDONLY_PROG, Machine, MapDefinition, MapKind};

fn map(
    name: &str,
    kind: MapKind,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
) -> MapDefinition {
    MapDefinition {
        name: name.to_owned(),
        kind,
        key_size,
        value_size,
        max_entries,
        flags: 0,
        has_spin_lock: false,
        inner: None,
        extra: 0,
        key_type: None,
        value_type: None,
    }
}

/// The maps that the programs name.
fn maps() -> Vec<MapDefinition> {
    let array = map("array", MapKind::Array, 4, 16, 4);
    let mut rodata = map(".rodata", MapKind::Array, 4, 8, 1);
    rodata.flags = BPF_F_RDONLY_PROG;
    let mut locked = map("locked", MapKind::Hash, 4, 16, 4);
    locked.has_spin_lock = true;
    let mut outer = map("outer", MapKind::ArrayOfMaps, 4, 4, 2);
    outer.inner = Some(Box::new(array.clone()));
    vec![
        array,
        map("hash", MapKind::Hash, 8, 8, 16),
        map("ring", MapKind::RingBuf, 0, 0, 4096),
        map("programs", MapKind::ProgArray, 4, 4, 4),
        rodata,
        locked,
        map("devices", MapKind::DevMap, 4, 4, 4),
        map("percpu", MapKind::PercpuArray, 4, 8, 4),
        map("data", MapKind::Array, 4, 64, 1),
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
    for program in PROGRAMS {
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
    let names: BTreeSet<&str> = PROGRAMS.iter().map(|p| p.name).collect();
    assert_eq!(names.len(), PROGRAMS.len());
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
