//! What a hop costs: chains of functions that do nothing but count, in test runs of the running kernel.
//!
//! *weir*: an entry and N functions joined by the patch panel as the edge engine joins them, by constants; *looked-up*: by the array of links, as in loops and very large graphs.
//! *tail-calls*: N programs written by hand that call each other by constant numbers. *counting*: the same, and each counts as weir's functions do; what
//! weir takes more than that is the panel's own share. All take turns in every round. A figure for a
//! hop is the slope from one function to N, so that what the entry and the end cost is not in it.

use weir_kernel::{KernelObject, LoadedProgram, TestCtx};

use super::Xdp;
use super::graph::{Graph, Hops};
use super::traffic::FRAME;
use crate::LabError;
use crate::bench::measure::{CpuClock, Samples};
use crate::bench::report::Figure;

/// Lengths of chains; the kernel makes 33 calls.
const LENGTHS: [u32; 7] = [1, 2, 4, 8, 16, 24, 32];
/// Targets: ns a hop, and the panel's share of it.
const HOP_NS: f64 = 5.0;
const SHARE_NS: f64 = 3.0;
const DROP: u32 = 1;

/// Measures chains, and says what the verifier walked.
pub(crate) fn run(xdp: &mut Xdp<'_, '_>) -> Result<(), LabError> {
    let lengths: Vec<u32> = match xdp.bench.scale.quick {
        true => vec![1, 32],
        false => LENGTHS.to_vec(),
    };
    let repeat = if xdp.bench.scale.quick {
        200_000
    } else {
        1_000_000
    };
    let mut series = Vec::new();
    for (name, make) in [
        (
            "weir",
            (|n| weir(n, Hops::Constant)) as fn(u32) -> Result<Chain, LabError>,
        ),
        ("looked-up", |n| weir(n, Hops::LookedUp)),
        ("tail-calls", |n| by_hand(n, false)),
        ("counting", |n| by_hand(n, true)),
    ] {
        for &length in &lengths {
            series.push((name, length, make(length)?, Samples::default()));
        }
    }
    xdp.bench.say(&format!(
        "chains: {} of them, {} rounds of {repeat} runs",
        series.len(),
        xdp.rounds
    ))?;
    for round in 0..xdp.rounds {
        xdp.bench
            .progress(&format!("chains, round {}", round + 1))?;
        for (name, length, chain, ns) in &mut series {
            let outcome = chain.run(repeat, xdp.cpu)?;
            if outcome.0 != DROP {
                return Err(LabError::Engine(format!(
                    "a chain of {length} {name} ended with verdict {}, not with its drop",
                    outcome.0
                )));
            }
            ns.push(outcome.1);
        }
    }
    let samples = |name: &str, length: u32| {
        let found = series.iter().find(|s| s.0 == name && s.1 == length);
        found.map(|s| s.3.clone()).unwrap_or_default()
    };
    for (name, length, _, ns) in &series {
        let figure = format!("testrun.chain.{name}.{length}.total");
        xdp.bench
            .figure(Figure::new(figure, "ns/packet", ns.clone()));
    }
    let longest = lengths.last().copied().unwrap_or(1);
    for &length in lengths.iter().filter(|n| **n > 1) {
        let hop = |name: &str| {
            let more = samples(name, length).minus(&samples(name, 1));
            Samples(more.0.iter().map(|ns| ns / f64::from(length - 1)).collect())
        };
        let share = hop("weir").minus(&hop("counting"));
        for name in ["tail-calls", "counting", "looked-up", "weir"] {
            let figure = format!("testrun.chain.{name}.{length}.hop");
            let figure = Figure::new(figure, "ns/hop", hop(name));
            match (name, length == longest) {
                ("weir", true) => xdp.bench.outcome.bound(figure, HOP_NS),
                _ => xdp.bench.figure(figure),
            }
        }
        let figure = format!("testrun.chain.panel.{length}.hop");
        let figure = Figure::new(figure, "ns/hop", share);
        match length == longest {
            true => xdp.bench.outcome.bound(figure, SHARE_NS),
            false => xdp.bench.figure(figure),
        }
    }
    verified(xdp)
}

/// Instructions that the verifier walks, with the hooks for watching and without.
fn verified(xdp: &mut Xdp<'_, '_>) -> Result<(), LabError> {
    for (name, program) in [("empty", "empty"), ("entry", "entry"), ("filter", "filter")] {
        for form in ["graph", "watched"] {
            let Some(elf) = weir_bpf::object(&format!("{name}_{form}")) else {
                continue;
            };
            let loaded = KernelObject::open(elf)?.load(program)?;
            let walked = Samples(vec![f64::from(loaded.verified_insns()?)]);
            let figure = format!("verified.{name}.{form}");
            xdp.bench
                .figure(Figure::new(figure, "instructions", walked));
        }
    }
    Ok(())
}

struct Chain {
    first: LoadedProgram,
    _rest: Vec<LoadedProgram>,
}

impl Chain {
    /// Verdict, and ns of CPU time of one of so many runs: the kernel's own figure is wall-clock time in whole ns.
    fn run(&mut self, repeat: u32, cpu: usize) -> Result<(u32, f64), LabError> {
        let first = &mut self.first;
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

fn weir(functions: u32, hops: Hops) -> Result<Chain, LabError> {
    let graph = Graph::of_empty(functions, hops)?;
    Ok(Chain {
        first: graph.entry,
        _rest: graph.functions,
    })
}

fn by_hand(programs: u32, counting: bool) -> Result<Chain, LabError> {
    // The first takes the part of weir's entry.
    let mut rest: Vec<LoadedProgram> = Vec::new();
    let mut first = None;
    for number in 0..=programs {
        let mut object = KernelObject::open(weir_bpf::baseline("tail").unwrap_or_default())?;
        let next = if number < programs {
            number + 1
        } else {
            u32::MAX
        };
        object.set_rodata("weir_next", &next.to_ne_bytes())?;
        object.set_rodata("weir_count", &u32::from(counting).to_ne_bytes())?;
        let Some(holder) = &first else {
            first = Some(object.load("tail")?);
            continue;
        };
        object.reuse_map("programs", holder)?;
        let program = object.load("tail")?;
        program.install_in(holder, "programs", number)?;
        rest.push(program);
    }
    first
        .map(|first| Chain { first, _rest: rest })
        .ok_or_else(|| LabError::Engine("a chain has a first program".to_owned()))
}
