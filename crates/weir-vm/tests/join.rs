//! Several objects in one machine: names, shared maps, tail calls from one to another, both executions, and what is refused.

use crate::object::{compile, compile_with};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use weir_vm::jit::{self, Execution};
use weir_vm::verify::{VerifyOptions, verify};
use weir_vm::{Env, Frame, Join, LoadError, Machine, Object, TAIL_CALLS};

/// Maps the functions of the chain share, and one by another name.
fn shared(map: &str) -> Option<String> {
    match map {
        "load" => Some("edge_load".to_owned()),
        _ => map.starts_with("shared_").then(|| map.to_owned()),
    }
}

fn name(number: u32) -> String {
    format!("f{number}")
}

/// A machine of `functions` copies of the chain's function, each behind the slot of its number.
fn chain(elf: &[u8], functions: u32) -> Machine {
    let mut join = Join::new();
    for number in 0..functions {
        let mut object = Object::parse(elf).expect("parses");
        object
            .set_rodata("number", &number.to_le_bytes())
            .expect("is there");
        join.add(&name(number), object, shared).expect("fits");
    }
    let mut machine = join.load("f0/hop").expect("loads");
    for number in 0..functions {
        machine
            .set_tail_call("shared_programs", number, &format!("{}/hop", name(number)))
            .expect("there is room");
    }
    machine
}

fn set_link(machine: &mut Machine, from: u32, to: u32) {
    let links = machine.map_mut("shared_links").expect("shared");
    links
        .update(&from.to_le_bytes(), &to.to_le_bytes(), 0)
        .expect("is inside");
}

fn count(machine: &Machine, map: &str) -> u64 {
    let value = machine.map(map).and_then(|m| m.lookup(&[0; 4]));
    let value = value.unwrap_or_else(|| panic!("no map {map}"));
    u64::from_le_bytes(value[..8].try_into().expect("8 bytes"))
}

#[test]
fn parts_keep_their_own_and_share_what_they_share() {
    let machine = chain(&compile("chain"), 3);
    let names: Vec<&str> = machine.map_names().collect();
    assert_eq!(names.iter().filter(|n| **n == "shared_visit").count(), 1);
    assert_eq!(names.iter().filter(|n| **n == "edge_load").count(), 1);
    for own in ["seen", ".rodata", ".bss"] {
        for number in 0..3 {
            let wanted = format!("{}/{own}", name(number));
            assert!(names.contains(&wanted.as_str()), "{wanted} in {names:?}");
        }
    }
    // visit, programs, links, events, load are shared; seen, .rodata and .bss are each one's own.
    assert_eq!(names.len(), 5 + 3 * 3);
    assert_eq!(
        machine.reference("shared_programs", &[2, 0, 0, 0]),
        Some("f2/hop")
    );
}

/// Links may go round in circles: the kernel's limit of tail calls ends that.
#[test]
fn random_chains_go_the_way_their_links_say_in_both_executions() {
    const FUNCTIONS: u32 = 40;
    let elf = compile("chain");
    let mut interpreted = chain(&elf, FUNCTIONS);
    for number in 0..FUNCTIONS {
        let program = format!("{}/hop", name(number));
        verify(&interpreted, &program, &VerifyOptions::default()).expect("is accepted");
    }
    let mut native = chain(&elf, FUNCTIONS);
    if jit::available() {
        native
            .verify_and_compile(&VerifyOptions::default())
            .expect("compiles");
        assert_eq!(native.execution(), Execution::Jit);
    }
    let mut runner = TestRunner::new(Config::with_cases(300));
    let (machines, visits) = (
        std::cell::RefCell::new((&mut interpreted, &mut native)),
        std::cell::RefCell::new(vec![0u64; FUNCTIONS as usize]),
    );
    runner
        .run(
            &prop::collection::vec(0..FUNCTIONS, FUNCTIONS as usize),
            |links| {
                let mut machines = machines.borrow_mut();
                let mut visits = visits.borrow_mut();
                // What the links say: a path until 0, or until the tail calls are used up.
                let (mut at, mut path) = (0u32, vec![0u32]);
                let expected = loop {
                    visits[at as usize] += 1;
                    match links[at as usize] {
                        0 => break 2,
                        _ if path.len() as u32 > TAIL_CALLS => break 1,
                        next => {
                            at = next;
                            path.push(next);
                        }
                    }
                };
                let (interpreted, native) = &mut *machines;
                for machine in [&mut **interpreted, &mut **native] {
                    for (from, to) in (0..).zip(&links) {
                        set_link(machine, from, *to);
                    }
                    let verdict = machine.run_xdp(&mut Frame::new(&[0; 60]), &Env::default());
                    prop_assert_eq!(verdict, Ok(expected));
                    let records = machine.drain_ringbuf("shared_events");
                    let walked: Vec<u32> = records
                        .iter()
                        .map(|r| u32::from_le_bytes(r[..4].try_into().expect("4 bytes")))
                        .collect();
                    prop_assert_eq!(&walked, &path);
                    for (number, seen) in (0..).zip(visits.iter()) {
                        for own in ["seen", ".bss"] {
                            let map = format!("{}/{own}", name(number));
                            prop_assert_eq!(count(machine, &map), *seen);
                        }
                    }
                    let all: u64 = visits.iter().sum();
                    prop_assert_eq!(count(machine, "edge_load"), all);
                }
                Ok(())
            },
        )
        .unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn the_entry_can_be_any_part() {
    let elf = compile("chain");
    let mut machine = chain(&elf, 5);
    set_link(&mut machine, 4, 2);
    if jit::available() {
        machine
            .verify_and_compile(&VerifyOptions::default())
            .expect("compiles");
    }
    for (entry, path) in [("f4/hop", vec![4, 2]), ("f1/hop", vec![1])] {
        machine.select(entry).expect("is there");
        let verdict = machine.run_xdp(&mut Frame::new(&[0; 60]), &Env::default());
        assert_eq!(verdict, Ok(2), "{entry}");
        let records = machine.drain_ringbuf("shared_events");
        let walked: Vec<u8> = records.iter().map(|r| r[0]).collect();
        assert_eq!(walked, path, "{entry}");
    }
}

#[test]
fn different_objects_keep_their_types_lines_and_licenses() {
    let mut join = Join::new();
    join.add(
        "chain",
        Object::parse(&compile("chain")).expect("parses"),
        shared,
    )
    .expect("fits");
    let closed = compile_with("maps", &["-g", "-DLICENSE=\"none\""]);
    join.add("maps", Object::parse(&closed).expect("parses"), |_| None)
        .expect("fits");
    let mut machine = join.load("maps/per_cpu").expect("loads");
    assert_eq!(
        machine.run_xdp(&mut Frame::new(&[0; 60]), &Env::default()),
        Ok(2)
    );
    // Locks are where the types of their own object say.
    let options = VerifyOptions::default();
    verify(&machine, "maps/locking", &options).expect("is accepted");
    verify(&machine, "chain/hop", &options).expect("is accepted");
    machine.select("maps/wrong_map").expect("is there");
    let fault = machine
        .run_xdp(&mut Frame::new(&[0; 60]), &Env::default())
        .expect_err("faults");
    assert_eq!(fault.function, "maps/wrong_map");
    let line = machine.source_line(fault.op).expect("compiled with -g");
    assert!(line.file.ends_with("maps.c"), "{line:?}");
}

#[test]
fn definitions_of_shared_maps_must_be_equal() {
    let mut join = Join::new();
    let narrow = Object::parse(&compile("chain")).expect("parses");
    let wide = Object::parse(&compile_with("chain", &["-g", "-DWIDE"])).expect("parses");
    join.add("a", narrow, shared).expect("fits");
    join.add("b", wide, shared).expect("fits so far");
    let error = join.load("a/hop").expect_err("2 is not 4");
    assert!(
        matches!(&error, LoadError::Shared { map, part, .. } if map == "edge_load" && part == "b"),
        "{error}"
    );
    let text = error.to_string();
    assert!(
        text.contains("array of 2 entries") && text.contains("array of 4 entries"),
        "{text}"
    );
}

#[test]
fn what_is_refused_names_its_part() {
    let object = || Object::parse(&compile("chain")).expect("parses");
    let mut join = Join::new();
    let all = |map: &str| Some(map.to_owned());
    let error = join.add("a", object(), all).expect_err("data");
    assert!(error.to_string().contains("data sections"), "{error}");
    join.add("a", object(), shared).expect("fits");
    let error = join.add("a/b", object(), shared).expect_err("a slash");
    assert!(error.to_string().contains("slash"), "{error}");
    let error = join.add("a", object(), shared).expect_err("twice");
    assert!(error.to_string().contains("two objects"), "{error}");
    assert_eq!(join.parts().collect::<Vec<_>>(), ["a"]);

    let load = |program: &str| {
        let mut join = Join::new();
        join.add("a", object(), shared).expect("fits");
        join.load(program).expect_err("is not there").to_string()
    };
    assert!(load("b/hop").contains("a/..."), "{}", load("b/hop"));
    assert!(load("hop").contains("a/..."), "{}", load("hop"));
    assert!(
        load("a/jump").starts_with("a: no program"),
        "{}",
        load("a/jump")
    );

    let mut huge = object();
    huge.set_map_entries("load", 0).expect("is there");
    let mut join = Join::new();
    join.add("a", object(), |_| None).expect("fits");
    join.add("b", huge, |_| None).expect("fits so far");
    let error = join.load("a/hop").expect_err("no entries");
    assert!(error.to_string().starts_with("b: "), "{error}");
}
