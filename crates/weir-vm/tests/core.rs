//! CO-RE against types of other kernels: fields that moved, grew, shrank, are gone, or are somewhere deeper.

use std::sync::Arc;

use crate::object::{compile, compile_with, results};
use weir_vm::{Btf, Env, FaultKind, Frame, LoadError, Machine, Object};

/// The types of layout 0 (compiled against), 1 (older), 2 (newer).
fn target(layout: u32) -> Arc<Btf> {
    let elf = compile_with("core_target", &["-g", &format!("-DLAYOUT={layout}")]);
    let object = Object::parse(&elf).expect("parses");
    Arc::new(object.btf().expect("compiled with -g").clone())
}

fn relocated(program: &str, target: &Arc<Btf>) -> Result<Machine, LoadError> {
    let mut object = Object::parse(&compile("core")).expect("parses");
    assert!(object.is_relocatable());
    object.relocate_against(Arc::clone(target));
    object.load(program)
}

/// Bytes of the thing: no two fields read alike.
fn pattern() -> Vec<u8> {
    (0..=255u8)
        .map(|i| i.wrapping_mul(37).wrapping_add(129))
        .collect()
}

fn unsigned(bytes: &[u8], at: u32, size: u32) -> i64 {
    let field = &bytes[at as usize..(at + size) as usize];
    field.iter().rev().fold(0, |n, b| n << 8 | i64::from(*b))
}

#[test]
fn every_kind_of_relocation_against_every_layout() {
    for layout in 0..3 {
        let types = target(layout);
        let mut m = relocated("core", &types).expect("loads");
        let memory = m.map_mut("memory").expect("is a map");
        let value = memory.value_mut(&[0; 4]).expect("has a value");
        value.copy_from_slice(&pattern());
        let verdict = m.run_xdp(&mut Frame::new(&[0; 60]), &Env::default());
        assert_eq!(verdict, Ok(2));

        // What they should be, read off the target's own types.
        let bytes = pattern();
        let thing = types.layout("thing").expect("is a struct");
        let part = types.layout("part").expect("is a struct");
        let field = |name: &str| {
            let deep = name == "deep" && layout == 2;
            match thing.member(name) {
                Some(m) => m.clone(),
                None => panic!("{name} {deep}"),
            }
        };
        let read = |name: &str| unsigned(&bytes, field(name).offset(), field(name).size);
        let b_of_parts_1 =
            field("parts").offset() + part.size + part.member("b").expect("is there").offset();
        let level = field("level");
        let word = unsigned(&bytes, level.bit_offset / 32 * 4, 4);
        let width = level.bit_width;
        let level = (word << (64 - level.bit_offset % 32 - width)) >> (64 - width);
        let newer = layout != 1;
        let colour = |name| types.enumerator(name);
        let expected = [
            read("first"),
            read("small"),
            read("deep"),
            unsigned(&bytes, b_of_parts_1, 4),
            level,
            i64::from(newer),
            if newer { read("optional") } else { 77 },
            0,
            i64::from(b_of_parts_1),
            i64::from(field("small").size),
            i64::from(layout == 1),
            i64::from(newer),
            if layout == 2 { 16 } else { 4 },
            0,
            0,
            i64::from(newer),
            colour("GREEN").expect("is there"),
            i64::from(newer),
            1,
            1,
            1,
            i64::from(part.size * (layout + 2)),
        ];
        assert_eq!(results(&m, 22), expected, "layout {layout}");
        let after = m
            .map("memory")
            .and_then(|m| m.value(&[0; 4]))
            .map(<[u8]>::to_vec);
        let at = field("deep").offset();
        assert_eq!(unsigned(&after.expect("has a value"), at, 4), 99);
    }
}

#[test]
fn without_types_the_layout_stays_as_compiled() {
    let elf = compile("core");
    let mut plain = Object::parse(&elf)
        .expect("parses")
        .load("core")
        .expect("loads");
    let mut same = relocated("core", &target(0)).expect("loads");
    for m in [&mut plain, &mut same] {
        let memory = m.map_mut("memory").expect("is a map");
        memory
            .value_mut(&[0; 4])
            .expect("has a value")
            .copy_from_slice(&pattern());
        assert_eq!(m.run_xdp(&mut Frame::new(&[0; 60]), &Env::default()), Ok(2));
    }
    // Flavours exist in the object itself, and nowhere else.
    let (plain, same) = (results(&plain, 22), results(&same, 22));
    assert_eq!(plain[..6], same[..6]);
    assert_eq!(plain[8..13], same[8..13]);
}

#[test]
fn a_field_that_is_missing_is_named_when_it_is_used() {
    let mut m = relocated("needs_newer", &target(2)).expect("loads");
    assert!(
        m.run_xdp(&mut Frame::new(&[0; 60]), &Env::default())
            .is_ok()
    );
    let mut m = relocated("needs_newer", &target(1)).expect("loads");
    let fault = m.run_xdp(&mut Frame::new(&[0; 60]), &Env::default());
    assert_eq!(
        fault.unwrap_err().kind,
        FaultKind::External {
            name: "struct thing.optional".into()
        }
    );
}
