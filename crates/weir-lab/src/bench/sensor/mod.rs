//! `weir bench sensor`: packets that the sensor takes in a second of CPU time with no rule, one and all, by engine and number of workers; memory, loading, matching alone, and the cost of
//! each stage. On captures of anybody, on mixes of application traffic, or on traffic of the project's own.
//!
//! Every sensor is a process of its own (`part`) that loads its rules once; all take turns in every round. Runs that must find the same alerts and do not are an error, not a figure.

mod apps;
mod bodies;
mod input;
mod own;
mod part;
mod peer;
mod scan;
mod stages;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

pub use apps::Made;
pub use input::Traffic;
pub use part::serve as sensor_part;

use self::input::Input;
use self::part::{Job, Keep, Logs, Part, Ran};
use self::peer::Peer;
use super::measure::Samples;
use super::report::{Figure, Outcome, Promise};
use super::{Bench, BenchOptions, Scale};
use crate::LabError;
use crate::process::Scratch;

/// Rounds of everything.
const ROUNDS: usize = 5;
/// Rule sets this large have targets.
const LARGE: usize = 10_000;

/// What to run the sensor on, and what else to write.
#[derive(Clone, Debug, Default)]
pub struct SensorBench {
    /// Packets and rules.
    pub traffic: Traffic,
    /// A file for the costs of stages, as kcachegrind reads them.
    pub callgrind: Option<PathBuf>,
    /// The peer's program, if it is not the one installed.
    pub peer: Option<PathBuf>,
    /// Its configuration, if it is not the installed one.
    pub peer_config: Option<PathBuf>,
}

/// A sensor of the bench and what it was told.
struct Form {
    rules: &'static str,
    engine: &'static str,
    part: Part,
}

/// A form with a number of workers, and its samples.
#[derive(Default)]
struct Row {
    packets: Samples,
    bits: Samples,
    wall: Samples,
}

/// Runs the benchmark of the sensor, tells about it on `out`.
///
/// # Errors
/// When it could not be carried out, and when runs that must find the same alerts do not. Missed targets are results.
pub fn sensor(
    wanted: &SensorBench,
    options: &BenchOptions<'_>,
    out: &mut dyn Write,
) -> Result<Outcome, LabError> {
    let mut bench = Bench {
        options,
        groups: Vec::new(),
        scale: Scale::of(options),
        outcome: Outcome::new("sensor", options.quick),
        out,
    };
    let scratch = Scratch::create("weir-bench-sensor")?;
    bench.progress("packets")?;
    let input = Input::new(&wanted.traffic, options.quick, &scratch)?;
    for line in &input.said {
        bench.say(line)?;
        bench.note(line.clone());
    }
    let home = format!(
        "HOME_NET is {}, EXTERNAL_NET all other addresses: rules are left out whose addresses the traffic has not (figures of `open`: none is)",
        part::home()
    );
    bench.say(&home)?;
    bench.note(home);
    if cfg!(debug_assertions) {
        bench.note("this is a debug build: its figures say nothing".to_owned());
    }
    let about = (input.rules.as_slice(), input.capture.as_path());
    let peer = Peer::new(
        wanted.peer.as_deref(),
        wanted.peer_config.as_deref(),
        about,
        &scratch,
    )?;
    runs(&mut bench, &input, peer.as_ref(), &scratch)?;
    scan::measure(&mut bench, &input, ROUNDS)?;
    let rounds = if options.quick { 3 } else { ROUNDS };
    let costs = stages::measure(&mut bench, &input, &scratch, rounds)?;
    if let Some(path) = &wanted.callgrind {
        std::fs::write(path, stages::callgrind(&costs, &input.said))
            .map_err(LabError::io(format!("write {}", path.display())))?;
    }
    bench.progress("")?;
    Ok(bench.outcome)
}

fn job(input: &Input, scratch: &Scratch, keep: Keep, automaton: bool, name: &str) -> Job {
    Job {
        capture: input.capture.clone(),
        rules: input.rules.clone(),
        keep,
        automaton,
        logs: Logs::Alerts,
        open: false,
        folder: scratch.path().join(name),
    }
}

fn runs(
    bench: &mut Bench<'_>,
    input: &Input,
    peer: Option<&Peer>,
    scratch: &Scratch,
) -> Result<(), LabError> {
    let weir = bench.options.weir.clone();
    let mut load = Loads::default();
    let mut memory: BTreeMap<String, Samples> = BTreeMap::new();
    let mut forms: Vec<Form> = Vec::new();
    // Alerts of each set of rules, which all forms must find.
    let mut expected: BTreeMap<&'static str, Ran> = BTreeMap::new();
    let mut one = None;
    for (rules, engine) in [
        ("all", "prefilter"),
        ("all", "aho-corasick"),
        ("open", "prefilter"),
        ("none", "prefilter"),
        ("one", "prefilter"),
        ("one", "aho-corasick"),
    ] {
        bench.progress(&format!("loading rules ({rules}, {engine})"))?;
        let keep = match rules {
            "none" => Keep::None,
            "one" => match one {
                Some((gid, sid)) => Keep::One(gid, sid),
                None => continue,
            },
            _ => Keep::All,
        };
        let name = format!("{rules}-{engine}");
        let job = Job {
            open: rules == "open",
            ..job(input, scratch, keep, engine == "aho-corasick", &name)
        };
        let mut part = Part::start(&weir, &job)?;
        load.add(rules, engine, &part);
        // The first run warms up and shows the memory of a run.
        let ran = part.run(1)?;
        memory
            .entry(format!("sensor.{}.{rules}.{engine}.memory", input.name))
            .or_default()
            .push(ran.peak_mb);
        if rules == "open" {
            bench.note(format!(
                "open: all rules with HOME_NET and EXTERNAL_NET any, so that none is left out for its addresses: {} loaded, {} rejected",
                part.loaded.rules, part.loaded.refused
            ));
        }
        if rules == "all" && engine == "prefilter" {
            one = chosen(&ran.alerts);
            bench.note(match one {
                Some((gid, sid)) => {
                    format!("the one rule is {gid}:{sid}, which alerts least of those that do")
                }
                None => "no rule alerts, so that there is no figure with one".to_owned(),
            });
            bench.note(format!(
                "rules: {} loaded, {} rejected",
                part.loaded.rules, part.loaded.refused
            ));
        }
        same(&mut expected, rules, engine, 1, ran)?;
        forms.push(Form {
            rules,
            engine,
            part,
        });
    }
    let mut peers = Samples::default();
    match peer {
        Some(peer) => {
            bench.progress("the peer")?;
            let (version, took) = (peer.version(), peer.run()?);
            bench.note(format!(
                "peer: {version}, all rules, its own HOME_NET: {} packets, {} alerts; CPU time of its packet thread alone",
                took.packets, took.alerts
            ));
        }
        None => bench.note("the peer, Suricata, is not installed; --peer names one".to_owned()),
    }
    let mut rows: BTreeMap<(usize, usize), Row> = BTreeMap::new();
    for round in 0..ROUNDS {
        for (at, form) in forms.iter_mut().enumerate() {
            for workers in [1, 2] {
                let needed = workers == 1 || form.rules == "all" && form.engine == "prefilter";
                if bench.scale.quick && !needed {
                    continue;
                }
                bench.progress(&format!(
                    "round {} of {ROUNDS}: {} rules, {}, {workers} workers",
                    round + 1,
                    form.rules,
                    form.engine
                ))?;
                let ran = form.part.run(workers)?;
                let row = rows.entry((at, workers)).or_default();
                let (cpu, wall) = (ran.cpu_s.max(1e-9), ran.wall_s.max(1e-9));
                row.packets.push(ran.frames as f64 / cpu / 1e3);
                row.bits.push(ran.bytes as f64 * 8.0 / cpu / 1e9);
                row.wall.push(ran.frames as f64 / wall / 1e3);
                same(&mut expected, form.rules, form.engine, workers, ran)?;
            }
        }
        if let Some(peer) = peer {
            bench.progress(&format!("round {} of {ROUNDS}: the peer", round + 1))?;
            let took = peer.run()?;
            peers.push(took.packets as f64 / took.cpu_s / 1e3);
        }
        // Once more from the start, for what loading takes and the memory of a first run.
        bench.progress(&format!("round {} of {ROUNDS}: loading", round + 1))?;
        let fresh = job(input, scratch, Keep::All, false, "fresh");
        let mut part = Part::start(&weir, &fresh)?;
        load.add("all", "prefilter", &part);
        let name = format!("sensor.{}.all.prefilter.memory", input.name);
        memory.entry(name).or_default().push(part.run(1)?.peak_mb);
    }
    for ((at, workers), row) in rows {
        let form = &forms[at];
        let name = format!(
            "sensor.{}.{}.{}.{workers}",
            input.name, form.rules, form.engine
        );
        bench.figure(Figure::new(
            format!("{name}.packets"),
            "kpps/CPU",
            row.packets,
        ));
        bench.figure(Figure::new(format!("{name}.bits"), "Gbit/s/CPU", row.bits));
        bench.figure(Figure::new(format!("{name}.wall"), "kpps", row.wall));
    }
    for (rules, ran) in &expected {
        let count = ran.alerts.values().sum::<u64>() as f64;
        let name = format!("sensor.{}.{rules}.alerts", input.name);
        bench.figure(Figure::new(name, "alerts", Samples(vec![count])));
    }
    for (name, samples) in memory {
        bench.figure(Figure::new(name, "MB", samples));
    }
    load.figures(bench);
    if peer.is_some() {
        let name = format!("sensor.{}.all.peer.1.packets", input.name);
        bench.figure(Figure::new(name, "kpps/CPU", peers));
    }
    compare(&mut bench.outcome, input.name);
    Ok(())
}

/// The rule that alerts least often, of those that do; of several the first by number.
fn chosen(alerts: &BTreeMap<String, u64>) -> Option<(u32, u32)> {
    let numbers = alerts.iter().filter_map(|(rule, count)| {
        let (gid, sid) = rule.split_once(':')?;
        Some((*count, gid.parse().ok()?, sid.parse().ok()?))
    });
    numbers.min().map(|(_, gid, sid)| (gid, sid))
}

/// An error unless a run found what the first run with these rules found.
fn same(
    expected: &mut BTreeMap<&'static str, Ran>,
    rules: &'static str,
    engine: &str,
    workers: usize,
    ran: Ran,
) -> Result<(), LabError> {
    let first = match expected.get(rules) {
        None => {
            expected.insert(rules, ran);
            return Ok(());
        }
        Some(first) => first,
    };
    let what = if ran.frames != first.frames {
        format!("{} packets instead of {}", ran.frames, first.frames)
    } else if ran.alerts != first.alerts {
        let differs = |(rule, n): &(&String, &u64)| first.alerts.get(*rule) != Some(n);
        let back = |(rule, n): &(&String, &u64)| ran.alerts.get(*rule) != Some(n);
        let one = ran.alerts.iter().find(differs);
        let other = first.alerts.iter().find(back);
        format!(
            "other alerts, as of rule {:?} (rule, number) instead of {:?}",
            one, other
        )
    } else if ran.digest != first.digest {
        "as many alerts with other contents".to_owned()
    } else {
        return Ok(());
    };
    Err(LabError::Engine(format!(
        "{rules} rules, engine {engine}, {workers} workers: {what}; every form must find the same, which is a defect of weir"
    )))
}

/// What loading rules took, by set and engine.
#[derive(Default)]
struct Loads(BTreeMap<String, (usize, [Samples; 4])>);

impl Loads {
    fn add(&mut self, rules: &str, engine: &str, part: &Part) {
        let entry = self
            .0
            .entry(format!("sensor.load.{rules}.{engine}"))
            .or_default();
        let loaded = &part.loaded;
        entry.0 = loaded.rules;
        let values = [
            loaded.read_s,
            loaded.compile_s,
            loaded.read_s + loaded.compile_s,
            loaded.peak_mb,
        ];
        for (samples, value) in entry.1.iter_mut().zip(values) {
            samples.push(value);
        }
    }

    fn figures(self, bench: &mut Bench<'_>) {
        for (name, (rules, [read, compile, total, memory])) in self.0 {
            bench.figure(Figure::new(format!("{name}.read"), "s", read));
            bench.figure(Figure::new(format!("{name}.compile"), "s", compile));
            let total = Figure::new(format!("{name}.total"), "s", total);
            let memory = Figure::new(format!("{name}.memory"), "MB", memory);
            if rules >= LARGE && name.ends_with(".prefilter") {
                bench.outcome.bound(total, 1.5);
                bench.outcome.bound(memory, 300.0);
            } else {
                bench.figure(total);
                bench.figure(memory);
            }
        }
    }
}

fn compare(outcome: &mut Outcome, name: &str) {
    let figure = |rules: &str, engine: &str, workers: usize, kind: &str| {
        format!("sensor.{name}.{rules}.{engine}.{workers}.{kind}")
    };
    let all = |workers, kind| figure("all", "prefilter", workers, kind);
    for (above, below, promise) in [
        (all(2, "wall"), all(1, "wall"), Promise::AtLeast(1.6)),
        (all(2, "packets"), all(1, "packets"), Promise::Reported),
        (
            all(1, "packets"),
            figure("all", "aho-corasick", 1, "packets"),
            Promise::Reported,
        ),
        (
            all(1, "packets"),
            figure("all", "peer", 1, "packets"),
            Promise::AtLeast(1.5),
        ),
        (
            all(1, "packets"),
            figure("open", "prefilter", 1, "packets"),
            Promise::Reported,
        ),
        (
            all(1, "packets"),
            figure("one", "prefilter", 1, "packets"),
            Promise::Reported,
        ),
        (
            all(1, "packets"),
            figure("none", "prefilter", 1, "packets"),
            Promise::Reported,
        ),
    ] {
        outcome.compare(&above, &below, promise);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(alerts: &[(&str, u64)], digest: u64) -> Ran {
        Ran {
            alerts: alerts
                .iter()
                .map(|(rule, n)| ((*rule).to_owned(), *n))
                .collect(),
            digest,
            ..Ran::default()
        }
    }

    #[test]
    fn runs_that_find_something_else_are_an_error() {
        let mut expected = BTreeMap::new();
        let mut check = |ran| same(&mut expected, "all", "prefilter", 2, ran);
        check(ran(&[("1:5", 2)], 7)).expect("the first");
        check(ran(&[("1:5", 2)], 7)).expect("the same");
        for (other, words) in [
            (ran(&[("1:5", 3)], 7), "other alerts"),
            (ran(&[], 7), "1:5"),
            (ran(&[("1:5", 2)], 8), "contents"),
        ] {
            let error = check(other).expect_err(words).to_string();
            assert!(
                error.contains(words) && error.contains("2 workers"),
                "{error}"
            );
        }
    }

    #[test]
    fn the_one_rule_is_the_quietest() {
        let alerts = ran(&[("1:9", 2), ("1:10", 2), ("1:7", 3)], 0).alerts;
        assert_eq!(chosen(&alerts), Some((1, 9)));
        assert_eq!(chosen(&BTreeMap::new()), None);
    }
}
