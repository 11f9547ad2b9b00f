//! What a packet costs a balancer, in instructions of the user engine: the same on every machine.
//!
//! Objects of another compiler have other counts: these are printed only.

use std::process::Command;

use crate::balancers::planned;
use weir_functions::plan::InstancePlan;
use weir_packet::build::Frame;
use weir_vm::{BPF_ANY, Env, Machine, Object};

/// Compiler of the counts below.
pub(crate) const COMPILER: &str = "Debian clang version 14.0.6";

/// Mode, and the most that a packet of a known flow may run, as it was before answers were looked up in the flow table.
const FORWARD: [(&str, u64); 4] = [("ipip", 687), ("gue", 704), ("nat", 634), ("dsr", 497)];
/// The most for an answer, for what a server sends to somebody else, and for what comes from no server's port.
const BACK: [(&str, u64); 3] = [
    ("answer", 614),
    ("to somebody else", 484),
    ("no server's", 357),
];

const TX: u32 = 3;
const PASS: u32 = 2;

fn plan(mode: &str) -> InstancePlan {
    let text = format!(
        "source4 = \"10.99.0.0/16\"\nring = 1009\n[[service]]\naddress = \"192.0.2.1\"\nprotocol = \"tcp\"\nport = 80\nmode = \"{mode}\"\n\
         server = [{{ address = \"10.0.0.1\", mac = \"02:00:00:00:01:01\" }}]\n"
    );
    planned(&text, &[]).expect("planned").instance
}

pub(crate) fn machine(plan: &InstancePlan) -> Machine {
    let mut object = Object::parse(plan.object.bytes().expect("embedded")).expect("parses");
    for (symbol, bytes) in &plan.constants {
        object.set_rodata(symbol, bytes).expect("a constant");
    }
    for map in &plan.maps {
        object
            .set_map_entries(&map.name, map.max_entries)
            .expect("a map");
    }
    let mut machine = object.load(&plan.program).expect("loads");
    for map in &plan.maps {
        let target = machine.map_mut(&map.name).expect("a map");
        for (key, value) in map.entries() {
            target.update_all(key, value, BPF_ANY).expect("an update");
        }
    }
    machine
}

fn run(machine: &mut Machine, bytes: &[u8], wanted: u32) -> u64 {
    let before = machine.instructions_run();
    let mut frame = weir_vm::Frame::new(bytes);
    let verdict = machine.run_xdp(&mut frame, &Env::default()).expect("runs");
    assert_eq!(verdict, wanted);
    machine.instructions_run() - before
}

#[test]
fn a_packet_runs_no_more_instructions_than_on_record() {
    let ask = Frame::new()
        .ip4([198, 51, 100, 1], [192, 0, 2, 1])
        .tcp(1000, 80)
        .flags(Frame::ACK)
        .build();
    let from_server = |from: u16, to: u16| {
        let frame = Frame::new().ip4([10, 0, 0, 1], [198, 51, 100, 1]);
        frame.tcp(from, to).flags(Frame::ACK).build()
    };
    let mut found = Vec::new();
    for (mode, most) in FORWARD {
        let mut machine = machine(&plan(mode));
        let third = (0..3).map(|_| run(&mut machine, &ask, TX)).last();
        found.push((mode, third.expect("three"), most));
        if mode != "nat" {
            continue;
        }
        let frames = [(80, 1000), (80, 1001), (22, 1000)].map(|(from, to)| from_server(from, to));
        for ((what, most), frame) in BACK.into_iter().zip(&frames) {
            found.push((what, run(&mut machine, frame, PASS), most));
        }
    }
    let is_same = compiler() == COMPILER;
    for (what, count, most) in &found {
        eprintln!("{what}: {count} instructions, {most} on record");
        assert!(!is_same || count <= most, "{what}: {count}, not {most}");
    }
}

/// First line of the compiler's version, as the build uses it.
pub(crate) fn compiler() -> String {
    let clang = std::env::var("WEIR_CLANG").unwrap_or_else(|_| "clang".to_owned());
    let output = Command::new(clang).arg("--version").output();
    let text = output.map_or_else(|_| Vec::new(), |output| output.stdout);
    let text = String::from_utf8_lossy(&text);
    text.lines().next().unwrap_or_default().to_owned()
}
