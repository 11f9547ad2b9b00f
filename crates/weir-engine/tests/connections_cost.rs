//! What a packet of an open connection costs the middlebox, in instructions of the user engine: the same on every machine.
//!
//! Objects of another compiler have other counts: these are printed only.

use crate::balancer_cost::{COMPILER, compiler, machine};
use crate::common::policy;
use weir_packet::build::Frame;
use weir_vm::{Env, Machine};

const PASS: u32 = 2;
const HOST: [u8; 4] = [10, 0, 0, 1];
const SERVER: [u8; 4] = [198, 51, 100, 7];

/// The most that a packet may run, and what of it is the window of TCP: more than UDP's. Nine of each find the half that the connection's rule is read
/// from, so that rules of connections can be edited in place.
const RECORD: [(&str, u64); 5] = [
    ("udp", 1655),
    ("tcp acknowledges", 2009),
    ("tcp data", 2017),
    ("tcp data retransmitted", 2029),
    ("tcp data, loose", 2012),
];

fn run(machine: &mut Machine, frame: Frame) -> u64 {
    let before = machine.instructions_run();
    let mut frame = weir_vm::Frame::new(&frame.build());
    let verdict = machine.run_xdp(&mut frame, &Env::default()).expect("runs");
    assert_eq!(verdict, PASS);
    machine.instructions_run() - before
}

fn started(settings: &str) -> Machine {
    let text = format!("{settings}add-stateful ip-saddr 10.0.0.0/8 accept\nall drop");
    let (plan, _) = weir_functions::middlebox::plan(&policy(&text), &[]).expect("planned");
    machine(&plan)
}

fn out(flags: u8, sequence: u32, acknowledgement: u32) -> Frame {
    let frame = Frame::new().ip4(HOST, SERVER).tcp(5000, 80).flags(flags);
    frame.numbers(sequence, acknowledgement)
}

fn back(flags: u8, sequence: u32, acknowledgement: u32) -> Frame {
    let frame = Frame::new().ip4(SERVER, HOST).tcp(80, 5000).flags(flags);
    frame.numbers(sequence, acknowledgement)
}

/// A connection after its handshake.
fn established(settings: &str) -> Machine {
    const SYN: u8 = Frame::SYN;
    const ACK: u8 = Frame::ACK;
    let mut machine = started(settings);
    run(&mut machine, out(SYN, 1000, 0));
    run(&mut machine, back(SYN | ACK, 5000, 1001));
    run(&mut machine, out(ACK, 1001, 5001));
    run(&mut machine, back(ACK, 5001, 1001));
    machine
}

#[test]
fn a_packet_of_a_connection_runs_no_more_instructions_than_on_record() {
    let udp = || {
        Frame::new()
            .ip4(HOST, SERVER)
            .udp(5000, 53)
            .payload(b"data")
    };
    let mut plain = started("");
    for _ in 0..2 {
        run(&mut plain, udp());
    }
    let data = |sequence| out(Frame::ACK, sequence, 5001).payload(b"data");
    let mut tcp = established("");
    let mut loose = established("loose tcp\n");
    let found = [
        run(&mut plain, udp()),
        run(&mut tcp, out(Frame::ACK, 1001, 5001)),
        run(&mut tcp, data(1001)),
        run(&mut tcp, data(1001)),
        run(&mut loose, data(1001)),
    ];
    for ((what, most), count) in RECORD.into_iter().zip(found) {
        let more = count.saturating_sub(found[0]);
        eprintln!("{what}: {count} instructions, {more} more than of UDP, {most} on record");
    }
    // What reading the longer header takes, with a policy that keeps no connections.
    let text = "ip-saddr 10.0.0.0/8 accept\nall drop";
    let (plan, _) = weir_functions::middlebox::plan(&policy(text), &[]).expect("planned");
    let mut stateless = machine(&plan);
    let [short, long] = [udp(), data(1001)].map(|frame| run(&mut stateless, frame));
    eprintln!("without connections: udp {short}, tcp {long} instructions");
    let is_same = compiler() == COMPILER;
    for ((what, most), count) in RECORD.into_iter().zip(found) {
        assert!(!is_same || count <= most, "{what}: {count}, not {most}");
    }
}
