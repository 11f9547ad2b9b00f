//! Maps and the helpers on them, driven from compiled programs: results and error numbers as in Linux.

use crate::object::{compile, machine, results, run};
use weir_vm::jit;
use weir_vm::verify::VerifyOptions;
use weir_vm::{Env, FaultKind, Frame, Machine, Object, Redirect, Region, Violation};

const ENOENT: i64 = -2;
const E2BIG: i64 = -7;
const EAGAIN: i64 = -11;
const EEXIST: i64 = -17;
const EINVAL: i64 = -22;
const ENOSPC: i64 = -28;

fn ran(program: &str) -> Machine {
    let (m, verdict) = run(&compile("maps"), program, &mut Frame::new(&[0; 60]));
    assert_eq!(verdict, Ok(2));
    m
}

fn fault(program: &str) -> FaultKind {
    let (_, verdict) = run(&compile("maps"), program, &mut Frame::new(&[0; 60]));
    verdict.expect_err("faults").kind
}

#[test]
fn arrays() {
    let m = ran("arrays");
    assert_eq!(
        results(&m, 8),
        [0, EEXIST, E2BIG, EINVAL, EINVAL, 0, 9, EINVAL]
    );
    let map = m.map("array").expect("exists");
    assert_eq!(map.lookup(&[1, 0, 0, 0]), Some(vec![9, 0, 0, 0]));
    assert_eq!((map.len(), map.keys().count()), (4, 4));
}

#[test]
fn hashes_and_element_lifetimes() {
    let m = ran("hashes");
    assert_eq!(
        results(&m, 11),
        [ENOENT, 0, EEXIST, 0, 10, E2BIG, ENOENT, 0, 0, 10, 20]
    );
    let keys: Vec<_> = m.map("hash").expect("exists").keys().collect();
    assert_eq!(keys, [2u64.to_le_bytes()]);
}

#[test]
fn per_cpu_values() {
    let mut object = Object::parse(&compile("maps")).expect("parses");
    object.set_cpus(3);
    let mut m = object.load("per_cpu").expect("loads");
    let mut frame = Frame::new(&[0; 60]);
    for cpu in [1, 1, 2] {
        let env = Env {
            cpu,
            ..Env::default()
        };
        assert_eq!(m.run_xdp(&mut frame, &env), Ok(2));
    }
    let map = m.map_mut("percpu_hash").expect("exists");
    let key = 5u32.to_le_bytes();
    let value = map.lookup(&key).expect("made by the program");
    assert_eq!((value.len(), value[0], value[8], value[16]), (24, 0, 2, 1));
    assert_eq!(map.value_on(&key, 1), Some(&[2, 0, 0, 0][..]));
    assert!(map.update(&key, &[0; 4], 0).is_err());
    assert_eq!(map.update(&key, &[1; 24], 0), Ok(()));
    assert_eq!(map.value_on(&key, 2), Some(&[1; 4][..]));
    let env = Env {
        cpu: 3,
        ..Env::default()
    };
    let fault = m.run_xdp(&mut frame, &env).expect_err("no such CPU");
    assert_eq!(fault.kind, FaultKind::Cpu { cpu: 3, cpus: 3 });
}

#[test]
fn least_recently_used_goes_first() {
    assert_eq!(results(&ran("least_recent"), 4), [0, 1, 0, 1]);
}

#[test]
fn longest_prefix_wins() {
    assert_eq!(
        results(&ran("prefixes"), 10),
        [0, 24, 8, 0, EINVAL, 0, ENOSPC, ENOENT, EEXIST, 0]
    );
}

#[test]
fn spin_locks() {
    let m = ran("locking");
    assert_eq!(
        m.map("locks").and_then(|l| l.value(&[0; 4])),
        Some(&[0, 0, 0, 0, 1, 0, 0, 0][..])
    );
    assert!(matches!(
        fault("lock_twice"),
        FaultKind::HelperArgument {
            helper: "spin_lock",
            ..
        }
    ));
    assert_eq!(fault("lock_leak"), FaultKind::LeakedLock);
}

#[test]
fn ring_buffers() {
    let mut m = ran("records");
    assert_eq!(results(&m, 5), [0, 16 + 24 + 16, 4096, 0, EINVAL]);
    let records = m.drain_ringbuf("ring");
    assert_eq!(
        records,
        [
            vec![0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0],
            vec![7, 0, 0, 0]
        ]
    );
    assert!(m.drain_ringbuf("ring").is_empty());

    let mut m = ran("record_full");
    assert_eq!(results(&m, 2), [15, EAGAIN]);
    assert_eq!(m.drain_ringbuf("ring").len(), 15);
    assert_eq!(m.run_xdp(&mut Frame::new(&[0; 60]), &Env::default()), Ok(2));
    assert_eq!(results(&m, 2), [15, EAGAIN]);

    assert_eq!(fault("record_leak"), FaultKind::LeakedRecords(1));
    match fault("record_after") {
        FaultKind::Access(a) => {
            assert_eq!(
                (a.region, a.violation),
                (Region::Record("ring".into()), Violation::Released)
            );
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_failed_run_does_not_block_the_ring() {
    let elf = compile("maps");
    let mut m = machine(&elf, "record_leak");
    let mut frame = Frame::new(&[0; 60]);
    m.run_xdp(&mut frame, &Env::default()).expect_err("leaks");
    m.select("records").expect("exists");
    assert_eq!(m.run_xdp(&mut frame, &Env::default()), Ok(2));
    assert_eq!(m.drain_ringbuf("ring").len(), 2);
}

#[test]
fn maps_of_maps() {
    let elf = compile("maps");
    let mut m = machine(&elf, "nested");
    let key = 2u32.to_le_bytes();
    let inner = m
        .create_inner_map("outer_hash", "made")
        .expect("has an inner definition");
    inner
        .update(&[0; 4], &321u64.to_le_bytes(), 0)
        .expect("fits");
    m.set_inner_map("outer_hash", &key, "made")
        .expect("same definition");
    assert!(m.set_inner_map("outer_hash", &key, "hash").is_err());
    assert!(m.set_inner_map("outer", &[9, 0, 0, 0], "made").is_err());
    assert_eq!(m.run_xdp(&mut Frame::new(&[0; 60]), &Env::default()), Ok(2));
    assert_eq!(results(&m, 2), [0, 321]);
    assert_eq!(
        m.map("inner_two")
            .and_then(|i| i.value(&[1, 0, 0, 0]))
            .map(|v| v[0]),
        Some(55)
    );
}

#[test]
fn redirects_are_recorded() {
    let elf = compile("maps");
    let mut m = machine(&elf, "redirects");
    let mut frame = Frame::new(&[0; 60]);
    m.map_mut("devices")
        .expect("exists")
        .update(&[1, 0, 0, 0], &7u32.to_le_bytes(), 0)
        .expect("fits");
    assert_eq!(m.run_xdp(&mut frame, &Env::default()), Ok(4));
    assert_eq!(results(&m, 7), [4, 2, 1, 0, 3, 4, 0]);
    assert_eq!(m.redirect(), Some(&Redirect::Interface { ifindex: 3 }));
    m.select("redirect_last").expect("exists");
    assert_eq!(m.run_xdp(&mut frame, &Env::default()), Ok(4));
    assert_eq!(
        m.redirect(),
        Some(&Redirect::Map {
            map: "devices".into(),
            key: 1,
            flags: 2
        })
    );
    m.map_mut("devices")
        .expect("exists")
        .delete(&[1, 0, 0, 0])
        .expect("deletes");
    assert_eq!(m.run_xdp(&mut frame, &Env::default()), Ok(2));
    assert_eq!(m.redirect(), None);
}

#[test]
fn callbacks_over_elements() {
    assert_eq!(results(&ran("each"), 3), [2, 315, EINVAL]);
}

#[test]
fn value_bounds_and_protection() {
    match fault("overrun") {
        FaultKind::Access(a) => {
            assert_eq!((a.region, a.offset), (Region::MapValue("array".into()), 4));
        }
        other => panic!("{other}"),
    }
    match fault("write_rodata") {
        FaultKind::Access(a) => {
            assert_eq!(
                (a.region, a.violation),
                (Region::MapValue(".rodata".into()), Violation::ReadOnly)
            );
        }
        other => panic!("{other}"),
    }
    assert!(matches!(
        fault("wrong_map"),
        FaultKind::HelperArgument { register: 1, .. }
    ));
}

#[test]
fn entries_can_be_resized() {
    let mut object = Object::parse(&compile("maps")).expect("parses");
    object.set_map_entries("hash", 1).expect("exists");
    object.set_map_entries("ring", 8192).expect("exists");
    let mut m = object.clone().load("record_full").expect("loads");
    assert_eq!(m.run_xdp(&mut Frame::new(&[0; 60]), &Env::default()), Ok(2));
    assert_eq!(results(&m, 2), [31, EAGAIN]);
    assert_eq!(m.map("hash").map(|h| h.definition().max_entries), Some(1));
    object.set_map_entries("array", 0).expect("exists");
    assert!(object.load("records").is_err());
}

/// More elements than the 25 bits of a usual address count, as tables of production objects have: both engines reach all of them.
#[test]
fn maps_of_many_elements() {
    const ENTRIES: u32 = (1 << 26) + 5;
    let elf = compile("large");
    for native in [false, true] {
        if native && !jit::available() {
            continue;
        }
        let mut m = machine(&elf, "ends");
        if native {
            m.verify_and_compile(&VerifyOptions::default())
                .expect("accepted");
        }
        for round in 1..3 {
            let verdict = m.run_xdp(&mut Frame::new(&[0; 60]), &Env::default());
            assert_eq!(verdict, Ok(2));
            assert_eq!(results(&m, 4), [321 * round, 0, 0, 7]);
        }
        let slots = m.map("slots").expect("exists");
        for (key, value) in [(0, 2u64), (1, 0), (1 << 25, 40), (ENTRIES - 1, 600)] {
            let held = slots.value(&key.to_le_bytes());
            assert_eq!(held, Some(&value.to_le_bytes()[..]), "{key}");
        }
        assert_eq!(slots.value(&ENTRIES.to_le_bytes()), None);
    }
}

/// Beside the last of many elements is a fault with a place, as beside any other.
#[test]
fn a_fault_in_a_map_of_many_elements_has_its_place() {
    let (_, verdict) = run(&compile("large"), "beyond", &mut Frame::new(&[0; 60]));
    match verdict.expect_err("faults").kind {
        FaultKind::Access(a) => {
            assert_eq!((a.region, a.offset), (Region::MapValue("slots".into()), 8));
        }
        other => panic!("{other}"),
    }
}

/// What no address can name is refused by name, before any memory is asked for.
#[test]
fn elements_beyond_addresses_are_refused() {
    let mut object = Object::parse(&compile("large")).expect("parses");
    object.set_cpus(64);
    object.set_map_entries("counts", u32::MAX).expect("exists");
    let error = object.load("ends").expect_err("too many").to_string();
    assert!(error.contains("256 GiB"), "{error}");
}
