//! What the balancer costs beside a bare TX, by mode, with 100 servers and clients that differ from packet to packet:
//!
//! ```text
//! cargo run --release -p weir-engine --example balancer-speed [FLOWS] [ROUNDS]
//! ```
//!
//! A driver program writes another client into the frame on every run and calls the program under test. Needs root. Times are those of
//! this machine; only their differences within one run mean something.

use std::io::{self, Write as _};
use std::path::Path;

use weir_functions::balancer;
use weir_functions::kind::{Files, Request};
use weir_functions::plan::{InstancePlan, PortConstants};
use weir_kernel::{KernelObject, LoadedProgram, TestCtx};
use weir_packet::build::Frame;
use weir_vm::{BPF_ANY, Env, Object};

const REPEAT: u32 = 2_000_000;
const SERVERS: usize = 100;

struct NoFiles;

impl Files for NoFiles {
    fn read(&self, _: &Path) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::NotFound.into())
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let flows: usize = arguments
        .first()
        .and_then(|n| n.parse().ok())
        .unwrap_or(60_000);
    let flows = flows.next_power_of_two();
    let rounds: usize = arguments.get(1).and_then(|n| n.parse().ok()).unwrap_or(5);
    let mut out = io::stdout();
    let frame = Frame::new()
        .ip4([10, 0, 0, 1], [192, 0, 2, 1])
        .tcp(1000, 80)
        .flags(Frame::ACK)
        .payload(&[0; 10])
        .build();
    let mut variants = vec![("bare tx".to_owned(), driver(flows, frame.len()), bare())];
    for mode in ["ipip", "gue", "nat", "dsr"] {
        let plan = plan(mode);
        let program = load(&plan);
        let _ = writeln!(
            out,
            "{mode}: {} verified instructions, {} run for a packet of a known flow",
            program.verified_insns().unwrap_or(0),
            instructions(&plan, &frame)
        );
        variants.push((mode.to_owned(), driver(flows, frame.len()), program));
    }
    for (_, driver, program) in &variants {
        program
            .install_in(driver, "call", 0)
            .expect("a program array");
    }
    let mut times = vec![Vec::new(); variants.len()];
    for _ in 0..rounds {
        for (number, (name, driver, _)) in variants.iter_mut().enumerate() {
            let mut back = Vec::new();
            let outcome = driver
                .test_run_repeated(&frame, &mut back, TestCtx::default(), REPEAT)
                .expect("runs");
            assert_eq!(outcome.retval, 3, "{name} transmits");
            times[number].push(outcome.duration.as_nanos() as u64);
        }
    }
    let median = |times: &[u64]| {
        let mut sorted = times.to_vec();
        sorted.sort_unstable();
        sorted[sorted.len() / 2]
    };
    let floor = median(&times[0]);
    for ((name, ..), times) in variants.iter().zip(&times) {
        let _ = writeln!(
            out,
            "{name:>10}, {flows} flows: {:4} ns, {:+4} over bare tx  {times:?}",
            median(times),
            median(times) as i64 - floor as i64
        );
    }
}

fn plan(mode: &str) -> InstancePlan {
    let mut text = format!(
        "source4 = \"10.99.0.0/16\"\n[[service]]\naddress = \"192.0.2.1\"\nprotocol = \"tcp\"\nport = 80\nmode = \"{mode}\"\n"
    );
    for n in 0..SERVERS {
        text.push_str(&format!(
            "[[service.server]]\naddress = \"10.0.0.{n}\"\nmac = \"02:00:00:00:02:{n:02x}\"\n"
        ));
    }
    let keys = text.parse().expect("TOML");
    let request = Request {
        name: "lb",
        keys: &keys,
        files: &NoFiles,
        ports: &[],
        transmits: false,
    };
    let mut plan = balancer::plan(&request).expect("planned").instance;
    plan.constants
        .push(("weir_lb_secret".into(), vec![7, 1, 8, 2, 8, 1, 8, 2]));
    plan
}

fn load(plan: &InstancePlan) -> LoadedProgram {
    let mut object = KernelObject::open(plan.object.bytes().expect("embedded")).expect("opens");
    let around = PortConstants {
        port: 1,
        mtu: Some(1500),
        ..PortConstants::default()
    };
    for (symbol, bytes) in plan.constants.iter().chain(&around.constants()) {
        object.set_rodata(symbol, bytes).expect("a constant");
    }
    for map in &plan.maps {
        object
            .set_map_entries(&map.name, map.max_entries)
            .expect("a map");
    }
    let program = object
        .load(&plan.program)
        .unwrap_or_else(|e| panic!("{e}\n{}", e.log().unwrap_or_default()));
    for map in plan.maps.iter().filter(|map| map.has_contents()) {
        program
            .update_batch(&map.name, &map.keys, &map.values)
            .expect("an update");
    }
    program
}

/// Instructions of the third packet of a flow, in the user engine.
fn instructions(plan: &InstancePlan, frame: &[u8]) -> u64 {
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
    let mut before = 0;
    for _ in 0..3 {
        before = machine.instructions_run();
        let mut frame = weir_vm::Frame::new(frame);
        let verdict = machine.run_xdp(&mut frame, &Env::default()).expect("runs");
        assert_eq!(verdict, 3, "it is transmitted");
    }
    machine.instructions_run() - before
}

fn bare() -> LoadedProgram {
    let object =
        KernelObject::open(weir_bpf::baseline("client_runs").expect("compiled")).expect("opens");
    object.load("client_runs_tx").expect("loads")
}

fn driver(flows: usize, len: usize) -> LoadedProgram {
    let mut object =
        KernelObject::open(weir_bpf::baseline("client_runs").expect("compiled")).expect("opens");
    let service = u32::from_ne_bytes([192, 0, 2, 1]);
    for (symbol, value) in [
        ("weir_clients", flows as u32),
        ("weir_len", len as u32),
        ("weir_service", service),
    ] {
        object
            .set_rodata(symbol, &value.to_ne_bytes())
            .expect("a constant");
    }
    object
        .set_map_entries("clients", flows as u32)
        .expect("a map");
    let program = object.load("client_runs").expect("loads");
    let mut state = 0x1234_5678_9abc_def1u64;
    let mut random = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z ^ z >> 31
    };
    let keys: Vec<u8> = (0..flows as u32).flat_map(u32::to_ne_bytes).collect();
    let values: Vec<u8> = (0..flows)
        .flat_map(|_| (random() & 0xffff_ffff_ffff).to_ne_bytes())
        .collect();
    program
        .update_batch("clients", &keys, &values)
        .expect("an update");
    program
}
