//! What a hop of a network costs: rows of functions that do nothing but count, in test runs of the running kernel.
//!
//! *empty*: a workload's program and N empty functions as networks have them, tables written by hand. *counting*: N + 1 programs written by hand that count the same and
//! call each other by constant numbers; what networks take more than that is the patch panel's own share. A figure for a hop is the slope from one function to N, so that
//! what entry and end cost is not in it.

use weir_bpf::abi::{Exact, Vi, exact_kind, net_slot, vi_flag};
use weir_engine::network::{Capacity, Set};
use weir_kernel::{KernelObject, LoadedProgram, TestCtx};
use weir_network::Tables;
use weir_network::exact::{place, scope};

use super::edge::engine;
use super::{Net, PANEL_NS};
use crate::LabError;
use crate::bench::measure::{CpuClock, Samples};
use crate::bench::report::Figure;

/// Functions of the longest row: within the kernel's 33 calls.
const LONGEST: u32 = 30;
/// Bytes of the frame, which is nobody's protocol.
const FRAME: usize = 64;

/// Measures rows of one and of thirty functions.
pub(super) fn run(net: &mut Net<'_, '_>) -> Result<(), LabError> {
    let repeat = match net.bench.scale.quick {
        true => 200_000,
        false => 1_000_000,
    };
    let mut rows = Vec::new();
    for length in [1, LONGEST] {
        rows.push(("empty", length, networks(length)?, Samples::default()));
        rows.push(("counting", length, by_hand(length)?, Samples::default()));
    }
    let rounds = net.bench.scale.rounds;
    net.bench.say(&format!(
        "hops: {} rows, {rounds} rounds of {repeat} runs",
        rows.len()
    ))?;
    for round in 0..rounds {
        net.bench.progress(&format!("hops, round {}", round + 1))?;
        for (name, length, row, ns) in &mut rows {
            let (ended, took) = row.run(repeat, net.cpu)?;
            if ended != row.end() {
                return Err(LabError::Engine(format!(
                    "a row of {length} {name} ended with {ended}, not with {}",
                    row.end()
                )));
            }
            ns.push(took);
        }
    }
    let samples = |name: &str, length: u32| {
        let found = rows.iter().find(|row| row.0 == name && row.1 == length);
        found.map(|row| row.3.clone()).unwrap_or_default()
    };
    for (name, length, _, ns) in &rows {
        let figure = format!("network.hop.{name}.{length}.total");
        net.bench
            .figure(Figure::new(figure, "ns/packet", ns.clone()));
    }
    let hop = |name: &str| {
        let more = samples(name, LONGEST).minus(&samples(name, 1));
        Samples(
            more.0
                .iter()
                .map(|ns| ns / f64::from(LONGEST - 1))
                .collect(),
        )
    };
    for name in ["empty", "counting"] {
        let figure = format!("network.hop.{name}.{LONGEST}.hop");
        net.bench.figure(Figure::new(figure, "ns/hop", hop(name)));
    }
    let figure = format!("network.hop.panel.{LONGEST}.hop");
    let share = hop("empty").minus(&hop("counting"));
    net.bench
        .outcome
        .bound(Figure::new(figure, "ns/hop", share), PANEL_NS);
    Ok(())
}

/// A row, ready to run.
enum Row {
    Networks(Set),
    ByHand {
        first: LoadedProgram,
        _rest: Vec<LoadedProgram>,
    },
}

/// TC_ACT_*
const SHOT: u32 = 2;
const REDIRECT: u32 = 7;

impl Row {
    /// What a packet's way ends with.
    fn end(&self) -> u32 {
        match self {
            Row::Networks(_) => REDIRECT,
            Row::ByHand { .. } => SHOT,
        }
    }

    /// What the last run ended with, and ns of CPU time of one of so many runs: the kernel's own figure is wall-clock time in whole ns.
    fn run(&mut self, repeat: u32, cpu: usize) -> Result<(u32, f64), LabError> {
        let first = match self {
            Row::Networks(set) => set.program_mut("workload").map_err(engine)?,
            Row::ByHand { first, .. } => first,
        };
        let timed = move || {
            let mut out = Vec::new();
            let mut run =
                |repeat| first.test_run_repeated(&[0; FRAME], &mut out, TestCtx::default(), repeat);
            let clock = CpuClock::on(cpu)?;
            run(repeat / 50)?;
            let before = clock.ns();
            let outcome = run(repeat)?;
            Ok((outcome.retval, (clock.ns() - before) / f64::from(repeat)))
        };
        // The clock binds its thread.
        std::thread::scope(|scope| {
            let run = scope.spawn(timed);
            run.join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

/// A workload at the device that test runs come from, whose number is 0, so many empty functions, and out of the loopback device of nobody: a test run only
/// asks for it.
fn networks(functions: u32) -> Result<Row, LabError> {
    let mut interfaces = vec![Vi::default(); 2 * functions as usize + 2];
    interfaces[1] = Vi {
        peer: 2,
        slot: net_slot::EMPTY,
        flags: vi_flag::ANY_MAC | vi_flag::ANY_ADDRESS,
        ..Vi::default()
    };
    for function in 1..=functions {
        let (near, far) = (2 * function, 2 * function + 1);
        interfaces[near as usize].onward = far;
        interfaces[far as usize] = match function == functions {
            true => Vi {
                slot: net_slot::DEVICE,
                device: 1,
                ..Vi::default()
            },
            false => Vi {
                peer: far + 1,
                slot: net_slot::EMPTY,
                ..Vi::default()
            },
        };
    }
    let device = Exact {
        value: 1,
        scope: scope(exact_kind::DEVICE, 0, 0),
        key: [0, 0],
        extra: 0,
    };
    let capacity = Capacity {
        interfaces: interfaces.len() as u32,
        bridges: 1,
        routers: 1,
        hops: 1,
        remotes: 1,
        tunnels: 1,
        lists: 1,
        steers: 1,
        selections: 1,
        punts: 1,
        buckets: 1,
        learned: 1,
    }
    .with_room();
    let tables = Tables {
        interfaces,
        exact: place(&[device], capacity.buckets).map_err(engine)?,
        bridges: Vec::new(),
        routers: Vec::new(),
        hops: Vec::new(),
        remotes: Vec::new(),
        tunnels: Vec::new(),
        lists: Vec::new(),
        steers: Vec::new(),
        selections: Vec::new(),
        punts: Vec::new(),
    };
    // No packet goes around: there is no pair.
    let set = Set::make(capacity, 0).map_err(engine)?;
    set.write(1, &tables).map_err(engine)?;
    set.switch(1).map_err(engine)?;
    Ok(Row::Networks(set))
}

fn by_hand(functions: u32) -> Result<Row, LabError> {
    // The first takes the part of the workload's program.
    let mut rest: Vec<LoadedProgram> = Vec::new();
    let mut first = None;
    for number in 0..=functions {
        let mut object = KernelObject::open(weir_bpf::baseline("tc_tail").unwrap_or_default())?;
        let next = match number < functions {
            true => number + 1,
            false => u32::MAX,
        };
        object.set_rodata("weir_next", &next.to_ne_bytes())?;
        object.set_rodata("weir_vid", &(2 * number + 1).to_ne_bytes())?;
        let Some(holder) = &first else {
            first = Some(object.load("tc_tail")?);
            continue;
        };
        for map in ["programs", "counts"] {
            object.reuse_map(map, holder)?;
        }
        let program = object.load("tc_tail")?;
        program.install_in(holder, "programs", number)?;
        rest.push(program);
    }
    first
        .map(|first| Row::ByHand { first, _rest: rest })
        .ok_or_else(|| LabError::Engine("a row has a first program".to_owned()))
}
