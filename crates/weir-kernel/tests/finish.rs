//! `finish()` of the data plane (bpf/include/finish.h) in the kernel, against checksums that Rust computes: an unfinished packet
//! becomes the finished one, everything else stays as it is.

use crate::common::{compile, root};
use weir_kernel::{KernelObject, LoadedProgram, TestCtx};
use weir_packet::build::Frame;

const PASS: u32 = 2;
const TX: u32 = 3;
const OFFLOADED: u32 = 1;
const COMPLETE: u32 = 0;

fn load(mode: u32) -> LoadedProgram {
    load_with(mode, 0)
}

/// `again`: where the checksum lies that the program puts back after each run, 0: it does not.
fn load_with(mode: u32, again: u32) -> LoadedProgram {
    let include = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bpf/include");
    let elf = compile("finish", &["-I", include]);
    let mut object = KernelObject::open(&elf).expect("opens");
    for (name, value) in [("weir_csum_mode", mode), ("again", again)] {
        object
            .set_rodata(name, &value.to_ne_bytes())
            .expect("constant");
    }
    object.load("finished").expect("loads")
}

/// Bytes without a pattern that sums could hide behind.
fn payload(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9u32 ^ len as u32;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .collect()
}

/// The headers that a packet may have in front of its payload.
fn kinds() -> Vec<(&'static str, Frame)> {
    let four = || Frame::new().ip4([10, 1, 2, 3], [192, 0, 2, 77]);
    let six = || Frame::new().ip6([0x20; 16], [0xfd; 16]);
    vec![
        ("udp4", four().udp(1234, 53)),
        ("tcp4", four().tcp(40_000, 443).numbers(7, 9)),
        ("udp6", six().udp(1, 65_535)),
        (
            "tcp6",
            six().tcp(5, 6).tcp_option(8, &[1, 2, 3, 4, 5, 6, 7, 8]),
        ),
        (
            "tagged",
            Frame::new()
                .vlan(5)
                .vlan(6)
                .ip4([1, 2, 3, 4], [5, 6, 7, 8])
                .udp(9, 10),
        ),
        (
            "options4",
            four()
                .ip_options(&[1, 1, 1, 1, 7, 7, 4, 1, 2, 3, 4, 0])
                .tcp(1, 2),
        ),
        (
            "extensions6",
            six()
                .extension(0, &[5, 2, 0, 0, 1, 0])
                .extension(60, &[1, 4, 0, 0, 0, 0])
                .extension(51, &[0; 10])
                .udp(3, 4),
        ),
        ("atomic6", six().fragment(0, false).udp(3, 4)),
    ]
}

/// Verdict and frame of one run.
fn run(program: &mut LoadedProgram, frame: &[u8]) -> (u32, Vec<u8>) {
    let mut out = Vec::new();
    let outcome = program
        .test_run(frame, &mut out, TestCtx::default())
        .expect("runs");
    (outcome.retval, out)
}

#[test]
fn every_length_becomes_the_finished_packet() {
    if !root("every_length_becomes_the_finished_packet") {
        return;
    }
    let mut program = load(OFFLOADED);
    let long = [
        1_999, 2_048, 3_467, 3_481, 3_500, 4_097, 8_999, 9_000, 40_001, 65_400,
    ];
    let mut checked = 0;
    for (name, frame) in kinds() {
        for len in (0..=1_500).chain(long) {
            let frame = frame.clone().payload(&payload(len));
            let want = frame.clone().build();
            let (verdict, got) = run(&mut program, &frame.clone().unfinished().build());
            assert_eq!(
                verdict, TX,
                "{name} with {len} bytes of payload was left unfinished"
            );
            assert!(got == want, "{name} with {len} bytes: wrong bytes");
            checked += 1;
            let (verdict, got) = run(&mut program, &want);
            assert_eq!(
                verdict, PASS,
                "{name} with {len} bytes was finished already"
            );
            assert!(got == want, "{name} with {len} bytes: changed");
        }
    }
    assert_eq!(checked, 8 * (1_501 + long.len()));
}

#[test]
fn padding_behind_the_packet_is_not_summed() {
    if !root("padding_behind_the_packet_is_not_summed") {
        return;
    }
    let mut program = load(OFFLOADED);
    let frame = Frame::new()
        .ip4([10, 0, 0, 1], [10, 0, 0, 2])
        .udp(1, 2)
        .payload(&[0xff; 3])
        .trailer(&[0xaa; 15]);
    let (verdict, got) = run(&mut program, &frame.clone().unfinished().build());
    assert_eq!((verdict, got), (TX, frame.build()));
}

#[test]
fn what_is_not_unfinished_stays_as_it_is() {
    if !root("what_is_not_unfinished_stays_as_it_is") {
        return;
    }
    let mut program = load(OFFLOADED);
    let four = || Frame::new().ip4([10, 0, 0, 1], [10, 0, 0, 2]);
    let six = || Frame::new().ip6([1; 16], [2; 16]);
    let truncated = |frame: Frame, by: usize| {
        let mut bytes = frame.unfinished().build();
        bytes.truncate(bytes.len() - by);
        bytes
    };
    let frames = [
        four().udp(1, 2).payload(b"none").zero_checksum().build(),
        four().udp(1, 2).payload(b"wrong").wrong_checksum(1).build(),
        four()
            .fragment(0, true)
            .udp(1, 2)
            .payload(&[7; 16])
            .unfinished()
            .build(),
        four()
            .fragment(8, false)
            .udp(1, 2)
            .payload(&[7; 16])
            .unfinished()
            .build(),
        six()
            .fragment(0, true)
            .udp(1, 2)
            .payload(&[7; 16])
            .unfinished()
            .build(),
        four().icmp(8, 0).payload(b"ping").unfinished().build(),
        four().protocol(132).payload(&[3; 40]).build(),
        six().extension(50, &[0; 14]).udp(1, 2).unfinished().build(),
        Frame::new().ether_type(0x0806).payload(&[1; 28]).build(),
        truncated(four().udp(1, 2).payload(&[1; 100]), 1),
        truncated(six().tcp(1, 2), 1),
        truncated(four().tcp(1, 2), 12),
        vec![0; 14],
    ];
    for frame in frames {
        let (verdict, got) = run(&mut program, &frame);
        assert_eq!(verdict, PASS, "{frame:02x?}");
        assert_eq!(got, frame);
    }
}

#[test]
fn where_checksums_are_complete_nothing_of_it_is_left() {
    if !root("where_checksums_are_complete_nothing_of_it_is_left") {
        return;
    }
    let mut program = load(COMPLETE);
    let frame = Frame::new()
        .ip4([10, 0, 0, 1], [10, 0, 0, 2])
        .udp(1, 2)
        .payload(b"x")
        .unfinished()
        .build();
    assert_eq!(run(&mut program, &frame), (PASS, frame));
    // Those of the test program.
    let left = program.verified_insns().expect("readable");
    assert!(left <= 20, "{left} instructions");
}

#[test]
fn cost_is_shown() {
    if !root("cost_is_shown") {
        return;
    }
    use std::io::Write as _;
    let mut program = load(OFFLOADED);
    let mut text = format!(
        "finish(): {} verified instructions",
        program.verified_insns().expect("readable")
    );
    for len in [18, 1_460] {
        let frame = Frame::new()
            .ip4([10, 0, 0, 1], [10, 0, 0, 2])
            .udp(1, 2)
            .payload(&payload(len));
        let time = |program: &mut LoadedProgram, bytes: &[u8]| {
            let mut out = Vec::new();
            let outcome = program
                .test_run_repeated(bytes, &mut out, TestCtx::default(), 200_000)
                .expect("runs");
            outcome.duration.as_nanos()
        };
        let finished = time(&mut program, &frame.build());
        let mut restoring = load_with(OFFLOADED, 14 + 20 + 6);
        let both = time(&mut restoring, &frame.build());
        let unfinished = time(&mut restoring, &frame.unfinished().build());
        text.push_str(&format!(
            "; {len} B of payload: finished already {finished} ns with the harness, to be finished {} ns more",
            unfinished.saturating_sub(both)
        ));
    }
    let _ = writeln!(std::io::stderr(), "{text}");
}
