//! XDP frames as programs see them: context, bounds, adjustments, byte helpers, and the faults of bad accesses.

use crate::object::{compile, machine, results, run};
use weir_vm::{AccessFault, CALL_FRAMES, Env, Fault, FaultKind, Frame, Region, Violation};

const EINVAL: i64 = -22;
const EFAULT: i64 = -14;
const EACCES: i64 = -13;

fn sequence(n: usize) -> Vec<u8> {
    (0..n).map(|i| i as u8).collect()
}

fn access(result: Result<u32, Fault>) -> AccessFault {
    match result.expect_err("the access is refused").kind {
        FaultKind::Access(fault) => *fault,
        other => panic!("expected an access fault, got {other}"),
    }
}

#[test]
fn context_fields() {
    let elf = compile("frame");
    let env = Env {
        ingress_ifindex: 11,
        rx_queue: 12,
        egress_ifindex: 13,
        ..Env::default()
    };
    for length in [0, 1, 13, 14, 60, 1_514, 3_520, 65_549] {
        let mut m = machine(&elf, "fields");
        let mut frame = Frame::new(&sequence(length));
        assert_eq!(m.run_xdp(&mut frame, &env), Ok(2));
        assert_eq!(results(&m, 6), [length as i64, 11, 12, 0, 0, length as i64]);
        assert_eq!(frame.data(), sequence(length));
    }
    let mut m = machine(&elf, "egress");
    assert_eq!(m.run_xdp(&mut Frame::new(&[0; 60]), &env), Ok(2));
    assert_eq!(results(&m, 1), [13]);
}

#[test]
fn packet_bytes_change_in_place() {
    let elf = compile("frame");
    let mut frame = Frame::new(&sequence(14));
    let (_, verdict) = run(&elf, "swap_macs", &mut frame);
    assert_eq!(verdict, Ok(3));
    assert_eq!(frame.data(), [6, 7, 8, 9, 10, 11, 0, 1, 2, 3, 4, 5, 12, 13]);
    let mut short = Frame::new(&sequence(13));
    let (_, verdict) = run(&elf, "swap_macs", &mut short);
    assert_eq!(verdict, Ok(1));
    assert_eq!(short.data(), sequence(13));
}

#[test]
fn head_tail_and_metadata() {
    let elf = compile("frame");
    let mut frame = Frame::new(&sequence(60));
    let (m, verdict) = run(&elf, "push", &mut frame);
    assert_eq!(verdict, Ok(2));
    assert_eq!(results(&m, 2), [EINVAL, EINVAL]);
    assert_eq!(
        frame.data()[..10],
        [0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0, 1]
    );

    let mut frame = Frame::new(&sequence(60));
    let (m, verdict) = run(&elf, "tail", &mut frame);
    assert_eq!(verdict, Ok(2));
    assert_eq!(results(&m, 3), [0, 64, EINVAL]);
    assert_eq!(frame.data()[60..], [0; 4]);

    let mut frame = Frame::new(&sequence(60));
    let (m, verdict) = run(&elf, "meta", &mut frame);
    assert_eq!(verdict, Ok(2));
    assert_eq!(results(&m, 2), [EACCES, 0]);
    assert_eq!(frame.metadata(), [0xdd, 0xcc, 0xbb, 0xaa]);
}

/// The answers of Linux 6.18 (`BPF_PROG_TEST_RUN`) to the same program.
#[test]
fn limits_are_those_of_the_kernel() {
    for length in [14, 60, 1_514, 3_520] {
        let mut frame = Frame::new(&sequence(length));
        let (m, verdict) = run(&compile("frame"), "limits", &mut frame);
        assert_eq!(verdict, Ok(2));
        let expected = [EINVAL, 0, 0, EINVAL, 0, EINVAL, 0, EINVAL, 0, EINVAL, 0];
        assert_eq!(results(&m, 11), expected, "{length}");
        assert_eq!(frame.len(), 14);
    }
}

#[test]
fn byte_helpers() {
    let elf = compile("frame");
    let mut frame = Frame::new(&sequence(16));
    let (m, verdict) = run(&elf, "bytes", &mut frame);
    assert_eq!(verdict, Ok(2));
    assert_eq!(results(&m, 6), [0, 0x0504_0302, 0, EINVAL, EFAULT, 0]);
    let (m, verdict) = run(&elf, "too_long", &mut frame);
    assert_eq!((verdict, results(&m, 1)), (Ok(2), vec![EFAULT]));
    assert_eq!(frame.data()[10..], [2, 3, 4, 5, 14, 15]);
}

#[test]
fn checksum_differences() {
    let (m, verdict) = run(&compile("frame"), "checksum", &mut Frame::new(&[0; 60]));
    assert_eq!(verdict, Ok(2));
    let fold = |mut sum: u64| {
        while sum >> 16 != 0 {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as i64
    };
    let to = 0x9abc + 0xdef0 + 1;
    let from = 0x1234 + 0x5678;
    assert_eq!(
        results(&m, 4),
        [
            fold(to),
            fold(to + (0xffff - fold(from) as u64)),
            fold(7 + (0xffff - fold(from) as u64)),
            fold(to + (0xffff - 0x56ac))
        ]
    );
}

#[test]
fn bad_packet_accesses() {
    let elf = compile("frame");
    let mut frame = Frame::new(&[0; 60]);
    let fault = access(run(&elf, "stale", &mut frame).1);
    assert_eq!(
        (fault.region, fault.violation),
        (Region::Packet, Violation::StalePacket)
    );
    let fault = access(run(&elf, "past_end", &mut frame).1);
    assert_eq!(
        (fault.offset, fault.width, fault.violation),
        (60, 1, Violation::Bounds)
    );
    let fault = access(run(&elf, "before", &mut frame).1);
    assert_eq!(
        (fault.offset, fault.width, fault.violation),
        (-1, 2, Violation::Bounds)
    );
    let fault = access(run(&elf, "past_end", &mut Frame::new(&[])).1);
    assert_eq!((fault.offset, fault.violation), (0, Violation::Bounds));
    let fault = access(run(&elf, "atomic_packet", &mut frame).1);
    assert_eq!(fault.violation, Violation::Atomic);
}

#[test]
fn bad_context_and_other_pointers() {
    let elf = compile("frame");
    let mut frame = Frame::new(&[0; 60]);
    let fault = access(run(&elf, "bad_context", &mut frame).1);
    assert_eq!((fault.offset, fault.violation), (12, Violation::Context));
    let fault = access(run(&elf, "write_context", &mut frame).1);
    assert_eq!(
        (fault.region, fault.violation, fault.write),
        (Region::Context, Violation::ReadOnly, true)
    );
    let fault = access(run(&elf, "null", &mut frame).1);
    assert_eq!((fault.region, fault.offset), (Region::None, 0));
    let fault = access(run(&elf, "dead_frame", &mut frame).1);
    assert_eq!(
        (fault.region, fault.violation),
        (Region::Stack(1), Violation::DeadFrame)
    );
}

#[test]
fn runs_that_cannot_go_on() {
    let elf = compile("frame");
    let mut frame = Frame::new(&[0; 60]);
    let kind =
        |program: &str, frame: &mut Frame| run(&elf, program, frame).1.expect_err("faults").kind;
    assert_eq!(
        kind("unknown", &mut frame),
        FaultKind::UnknownHelper {
            number: 16,
            name: "get_current_comm"
        }
    );
    assert_eq!(
        kind("external", &mut frame),
        FaultKind::External {
            name: "kernel_only".to_owned()
        }
    );
    assert_eq!(
        kind("endless", &mut frame),
        FaultKind::Budget { budget: 10_000_000 }
    );
    assert_eq!(kind("recursion", &mut frame), FaultKind::CallDepth);
    assert_eq!(CALL_FRAMES, 8);
}
