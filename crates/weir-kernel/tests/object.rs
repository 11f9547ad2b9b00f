//! Objects in the running kernel: constants, maps, test runs, rejections.

use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use crate::common::{load_sample, root, sample};
use weir_kernel::object::{TEST_RUN_LINEAR, TEST_RUN_MAX};
use weir_kernel::{Batch, KernelError, KernelObject, TestCtx};

const XDP_ABORTED: u32 = 0;
const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
const XDP_TX: u32 = 3;

/// A frame of a pattern that shows moved or missing bytes.
fn frame(len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
    bytes[12..14].copy_from_slice(&[0x08, 0x00]);
    bytes
}

fn seen(program: &weir_kernel::LoadedProgram, slot: u32) -> u64 {
    let value = program
        .lookup("seen", &slot.to_ne_bytes())
        .expect("readable")
        .expect("array entries exist");
    u64::from_ne_bytes(value.try_into().expect("8 bytes"))
}

#[test]
fn a_constant_changes_the_verdict() {
    if !root("a_constant_changes_the_verdict") {
        return;
    }
    let mut out = Vec::new();
    for verdict in [XDP_ABORTED, XDP_DROP, XDP_PASS, XDP_TX] {
        let mut program = load_sample(&[
            ("verdict", &verdict.to_ne_bytes()),
            ("marker", &0x1122_3344_5566_7788u64.to_ne_bytes()),
        ]);
        let outcome = program
            .test_run(&frame(60), &mut out, TestCtx::default())
            .expect("runs");
        assert_eq!(outcome.retval, verdict);
        assert_eq!(seen(&program, 3), 0x1122_3344_5566_7788);
        assert_eq!(out, frame(60));
    }
}

#[test]
fn constants_are_checked_by_name_and_size() {
    let mut object = KernelObject::open(sample()).expect("opens");
    let mut names: Vec<_> = object.constants().map(str::to_owned).collect();
    names.sort();
    assert_eq!(names, ["marker", "shrink_by", "touch_last", "verdict"]);
    let e = object.set_rodata("verdct", &[0; 4]).unwrap_err();
    assert_eq!(
        e.to_string(),
        "no constant verdct in .rodata, did you mean verdict?"
    );
    let e = object.set_rodata("verdict", &[0; 8]).unwrap_err();
    assert!(
        matches!(
            e,
            KernelError::WrongSize {
                want: 4,
                got: 8,
                ..
            }
        ),
        "{e:?}"
    );
    let e = object.set_map_entries("tabel", 9).unwrap_err();
    assert!(e.to_string().contains("did you mean table?"), "{e}");
}

#[test]
fn test_runs_return_every_byte_of_every_length() {
    if !root("test_runs_return_every_byte_of_every_length") {
        return;
    }
    let mut program = load_sample(&[("touch_last", &[1])]);
    let mut out = Vec::new();
    for len in [
        14,
        15,
        60,
        1514,
        3520,
        3521,
        4096,
        9000,
        65_536,
        TEST_RUN_MAX,
    ] {
        let sent = frame(len);
        let outcome = program
            .test_run(&sent, &mut out, TestCtx::default())
            .unwrap_or_else(|e| panic!("{len}: {e}"));
        assert_eq!(outcome.retval, XDP_PASS, "{len}");
        assert_eq!(seen(&program, 0), len as u64, "length the program saw");
        assert_eq!(
            seen(&program, 1),
            len.min(TEST_RUN_LINEAR) as u64,
            "linear part the program saw of {len}"
        );
        let mut expected = sent;
        // Offsets above 65,535 are out of reach of the byte helpers, so the
        // program's mark on the last byte of longer frames is refused.
        if len <= 65_536 {
            expected[len - 1] = 0xa5;
        }
        assert!(
            out == expected,
            "{len}: bytes differ, {} came back",
            out.len()
        );
    }
    for len in [0, 1, 13, TEST_RUN_MAX + 1] {
        let e = program
            .test_run(&vec![0; len], &mut out, TestCtx::default())
            .unwrap_err();
        assert!(matches!(e, KernelError::FrameLength { .. }), "{len}: {e}");
    }
}

#[test]
fn a_program_may_grow_a_frame_at_both_ends() {
    if !root("a_program_may_grow_a_frame_at_both_ends") {
        return;
    }
    let object = KernelObject::open(sample()).expect("opens");
    let mut program = object.load("grow").expect("loads");
    let mut out = Vec::new();
    for len in [14, 60, 3000, 5000, 65_000] {
        let sent = frame(len);
        let outcome = program
            .test_run(&sent, &mut out, TestCtx::default())
            .expect("runs");
        assert_eq!(outcome.retval, XDP_TX, "{len}");
        assert_eq!(out.len(), len + 128);
        assert_eq!(out[0], 0x5a);
        assert!(out[64..64 + len] == sent, "{len}: the frame moved");
    }
}

#[test]
fn a_program_may_cut_a_frame_also_across_pages() {
    if !root("a_program_may_cut_a_frame_also_across_pages") {
        return;
    }
    let mut out = Vec::new();
    for (len, cut) in [(60, 10), (5000, 100), (5000, 4000), (65_000, 64_900)] {
        let mut object = KernelObject::open(sample()).expect("opens");
        let by = u32::try_from(cut).expect("small");
        object
            .set_rodata("shrink_by", &by.to_ne_bytes())
            .expect("constant");
        let mut program = object.load("shrink").expect("loads");
        let sent = frame(len);
        let outcome = program
            .test_run(&sent, &mut out, TestCtx::default())
            .expect("runs");
        assert_eq!(outcome.retval, XDP_TX, "{len} - {cut}");
        assert!(out == sent[..len - cut], "{len} - {cut}: {}", out.len());
    }
}

#[test]
fn the_context_names_an_interface_of_the_namespace() {
    if !root("the_context_names_an_interface_of_the_namespace") {
        return;
    }
    let mut program = load_sample(&[]);
    let mut out = Vec::new();
    let lo = weir_kernel::iface::index_of("lo").expect("lo exists");
    let ctx = TestCtx {
        ingress_ifindex: lo,
        rx_queue: 0,
        ..TestCtx::default()
    };
    program
        .test_run(&frame(60), &mut out, ctx)
        .expect("lo is a device");
    assert_eq!(seen(&program, 4), u64::from(lo));
    let absent = TestCtx {
        ingress_ifindex: 999_999,
        rx_queue: 0,
        ..TestCtx::default()
    };
    assert!(program.test_run(&frame(60), &mut out, absent).is_err());
}

#[test]
fn maps_are_read_written_listed_and_drained() {
    if !root("maps_are_read_written_listed_and_drained") {
        return;
    }
    let mut program = load_sample(&[]);
    let (one, two) = (1u32.to_ne_bytes(), 2u32.to_ne_bytes());
    assert_eq!(program.lookup("table", &one).expect("readable"), None);
    program
        .update("table", &one, &[7, 0, 0, 0], 0)
        .expect("insert");
    assert!(
        program.update("table", &one, &[8, 0, 0, 0], 1).is_err(),
        "exists"
    );
    let batch = program
        .update_batch("table", &[one, two].concat(), &[9, 0, 0, 0, 6, 0, 0, 0])
        .expect("batch");
    assert_eq!(batch, Batch::Whole);
    assert_eq!(
        program.lookup("table", &one).expect("readable"),
        Some(vec![9, 0, 0, 0])
    );
    let mut keys = program.keys("table").expect("listed");
    keys.sort();
    assert_eq!(keys, [one.to_vec(), two.to_vec()]);
    assert!(program.delete("table", &one).expect("delete"));
    assert!(!program.delete("table", &one).expect("delete again"));
    assert!(
        program.update("table", &[1], &[0; 4], 0).is_err(),
        "short key"
    );
    let e = program.lookup("tables", &one).unwrap_err();
    assert!(e.to_string().contains("did you mean table?"), "{e}");

    for key in 10u32.. {
        match program.update("table", &key.to_ne_bytes(), &[0; 4], 0) {
            Ok(()) => assert!(key < 18, "it holds 8"),
            Err(e) => {
                assert!(
                    matches!(e, KernelError::MapFull { entries: 8, .. }),
                    "{e:?}"
                );
                break;
            }
        }
    }
    let beyond = program.update("seen", &99u32.to_ne_bytes(), &[0; 8], 0);
    let text = beyond.unwrap_err().to_string();
    assert!(text.contains("not below its 5 entries"), "{text}");

    let mut out = Vec::new();
    let all = 0u32.to_ne_bytes();
    program
        .update("hits", &all, &0u64.to_ne_bytes(), 0)
        .expect("one value for every CPU");
    for len in [60, 70, 80] {
        program
            .test_run(&frame(len), &mut out, TestCtx::default())
            .expect("runs");
    }
    let per_cpu = program.lookup_percpu("hits", &all).expect("per CPU");
    let sum: u64 = per_cpu
        .iter()
        .map(|v| u64::from_ne_bytes(v.as_slice().try_into().expect("8 bytes")))
        .sum();
    assert_eq!(sum, 3);
    let mut lengths = Vec::new();
    let n = program
        .drain("events", Duration::ZERO, |record| {
            lengths.push(u64::from_ne_bytes(record.try_into().expect("8 bytes")));
        })
        .expect("drains");
    assert_eq!((n, lengths), (3, vec![60, 70, 80]));
    let n = program
        .drain("events", Duration::from_millis(1), |_| panic!("empty"))
        .expect("drains");
    assert_eq!(n, 0);
}

#[test]
fn a_mapped_array_feeds_the_program_without_a_call() {
    if !root("a_mapped_array_feeds_the_program_without_a_call") {
        return;
    }
    let mut program = load_sample(&[]);
    let clock = program.mmap_array("clock").expect("mappable");
    assert_eq!(clock.len(), 32);
    let mut out = Vec::new();
    for now in [1u64, 1_700_000_000_000_000_001] {
        clock.write(0, &now.to_ne_bytes()).expect("fits");
        program
            .test_run(&frame(60), &mut out, TestCtx::default())
            .expect("runs");
        assert_eq!(seen(&program, 2), now);
    }
    let mut back = [0u8; 3];
    clock.write(9, &[1, 2, 3]).expect("fits");
    clock.read(9, &mut back).expect("fits");
    assert_eq!(back, [1, 2, 3]);
    assert!(clock.write(25, &[0; 8]).is_err());
    assert!(clock.write(usize::MAX, &[0; 8]).is_err());
    assert!(
        program.mmap_array("table").is_err(),
        "a hash has no such memory"
    );
}

#[test]
fn copies_of_a_program_share_a_map() {
    if !root("copies_of_a_program_share_a_map") {
        return;
    }
    let first = load_sample(&[]);
    let mut object = KernelObject::open(sample()).expect("opens");
    object.reuse_map("table", &first).expect("shared");
    object.set_map_entries("seen", 16).expect("resized");
    let second = object.load("sample").expect("loads");
    let sizes = second.map_sizes("seen").expect("known");
    assert_eq!((sizes.key, sizes.value, sizes.entries), (4, 8, 16));
    let key = 5u32.to_ne_bytes();
    first
        .update("table", &key, &[1, 2, 3, 4], 0)
        .expect("insert");
    assert_eq!(
        second.lookup("table", &key).expect("readable"),
        Some(vec![1, 2, 3, 4])
    );
    drop(first);
    assert!(second.lookup("table", &key).expect("readable").is_some());
    let slot = second.as_fd().as_raw_fd() as u32;
    let batch = second
        .update_batch("panel", &0u32.to_ne_bytes(), &slot.to_ne_bytes())
        .expect("program arrays take single updates");
    assert_eq!(batch, Batch::OneByOne);
    second.install_in(&second, "panel", 1).expect("slot taken");
}

#[test]
fn a_rejection_is_one_line_with_our_source_and_a_log() {
    if !root("a_rejection_is_one_line_with_our_source_and_a_log") {
        return;
    }
    let object = KernelObject::open(sample()).expect("opens");
    let e = object.load("unchecked").unwrap_err();
    let text = e.to_string();
    assert!(!text.contains('\n'), "{text}");
    assert!(text.contains("unchecked"), "{text}");
    assert!(text.contains("outside of the packet"), "{text}");
    assert!(text.contains("return data[20]; @ sample.bpf.c"), "{text}");
    assert!(e.log().expect("a log").lines().count() > 3);

    let object = KernelObject::open(sample()).expect("opens");
    let e = object.load("simple").unwrap_err();
    assert_eq!(
        e.to_string(),
        "no program simple in the object, did you mean sample?"
    );
}

#[test]
fn the_kernel_tells_about_the_program() {
    if !root("the_kernel_tells_about_the_program") {
        return;
    }
    let program = load_sample(&[]);
    let info = program.info().expect("readable");
    assert_eq!(info.name, "sample");
    assert!(info.id > 0 && info.xlated_insns > 10 && info.jited_len > 0);
    assert!(info.verified_insns > 10);
    assert_eq!(
        program.verified_insns().expect("readable"),
        info.verified_insns
    );
    assert_eq!(load_sample(&[]).info().expect("readable").tag, info.tag);
}

#[test]
fn the_needed_features_are_here() {
    if !root("the_needed_features_are_here") {
        return;
    }
    use weir_kernel::probes::{kernel_release, probe_all, release_at_least};
    let release = kernel_release();
    for probe in probe_all() {
        if probe.needed {
            assert_eq!(probe.ok, Ok(()), "{}", probe.name);
        }
        // Only policy of the machine, never age, may take these away.
        let excused = ["freplace", "fentry", "bpffs", "jit"].contains(&probe.name);
        if !excused && release_at_least(&release, probe.first_kernel) {
            assert_eq!(probe.ok, Ok(()), "{} on {release}", probe.name);
        }
    }
}
