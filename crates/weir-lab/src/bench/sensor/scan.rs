//! What matching alone costs: both engines of the sensor, and the DFA of the crate aho-corasick as a measure of the machine, over the payloads of the packets, one by one, and the fast
//! patterns of all rules. It says how much of a run is matching, and puts figures of different machines into relation.

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use rustix::time::{ClockId, clock_gettime};
use weir_packet::pcap::LinkType;
use weir_sensor::decode::{self, Decoder};
use weir_sensor::load::book;
use weir_sensor::matcher::{Engine, Hits, Matcher, Pattern};
use weir_sensor::rules::{Dialect, fast_pattern};
use weir_sensor::source::{Batch, FileOptions, Files, Filled, Source};

use super::input::Input;
use super::part::{Logs, config};
use crate::LabError;
use crate::bench::Bench;
use crate::bench::measure::Samples;
use crate::bench::report::{Figure, Promise};

/// Payloads are searched up to so many bytes together.
const MOST: usize = 64 << 20;
/// Shorter ones are in too many payloads and cost every engine half its speed; a sensor asks them of few packets.
const SHORT: usize = 4;

/// Payloads, one behind the other.
struct Payloads {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Payloads {
    fn read(input: &Input) -> Result<Payloads, LabError> {
        let failed = |e: &dyn std::fmt::Display| LabError::Engine(e.to_string());
        let options = FileOptions {
            recursive: false,
            follow: false,
        };
        let mut source =
            Files::open(std::slice::from_ref(&input.capture), options).map_err(|e| failed(&e))?;
        let mut decoder = Decoder::new(decode::DecodeConfig {
            checksums: false,
            ..decode::DecodeConfig::default()
        });
        let mut batch = Batch::default();
        let mut payloads = Payloads {
            bytes: Vec::new(),
            ends: Vec::new(),
        };
        while payloads.bytes.len() < MOST {
            batch.clear();
            if source.fill(&mut batch).map_err(|e| failed(&e))? != Filled::Frames {
                break;
            }
            for frame in &batch.frames {
                let mut packet =
                    decoder.frame(LinkType(frame.link), frame.time, 1, batch.bytes(frame));
                while let Some(inner) = decoder.inner(&packet) {
                    packet = inner;
                }
                if !packet.payload().is_empty() {
                    payloads.bytes.extend_from_slice(packet.payload());
                    payloads.ends.push(payloads.bytes.len());
                }
            }
        }
        Ok(payloads)
    }

    fn each(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts
            .zip(&self.ends)
            .map(|(from, to)| &self.bytes[from..*to])
    }
}

/// Something that searches a payload and says how much it found.
type Search = Box<dyn FnMut(&[u8]) -> u64>;

struct Row {
    name: String,
    search: Search,
    rate: Samples,
    found: u64,
}

pub(super) fn measure(bench: &mut Bench<'_>, input: &Input, rounds: usize) -> Result<(), LabError> {
    let config = config(Logs::None).map_err(LabError::Engine)?;
    let book = book(&config, Dialect::Suricata, &input.rules)
        .map_err(|e| LabError::Engine(e.to_string()))?;
    let mut all: Vec<(Vec<u8>, bool)> = book
        .loaded
        .rules
        .iter()
        .filter_map(fast_pattern)
        .filter(|fast| !fast.bytes.is_empty())
        .map(|fast| match fast.nocase {
            true => (fast.bytes.to_ascii_lowercase(), true),
            false => (fast.bytes.to_vec(), false),
        })
        .collect();
    drop(book);
    all.sort();
    all.dedup();
    let long: Vec<_> = all
        .iter()
        .filter(|(b, _)| b.len() >= SHORT)
        .cloned()
        .collect();
    let payloads = Payloads::read(input)?;
    if payloads.bytes.is_empty() || long.is_empty() {
        bench.refuse("sensor.scan", "no payload, or no pattern of four bytes");
        return Ok(());
    }
    bench.note(format!(
        "scan: {} patterns, {} of them of {SHORT} bytes or more; {} payloads, {:.1} MB",
        all.len(),
        long.len(),
        payloads.ends.len(),
        payloads.bytes.len() as f64 / 1e6
    ));
    let mut rows = Vec::new();
    for (set, patterns) in [("long", &long), ("all", &all)] {
        if set == "all" && bench.scale.quick {
            continue;
        }
        rows.extend(rows_of(set, patterns)?);
    }
    for round in 0..rounds {
        bench.progress(&format!("patterns, round {} of {rounds}", round + 1))?;
        for row in &mut rows {
            let before = cpu_s();
            row.found = payloads.each().map(|payload| (row.search)(payload)).sum();
            let took = (cpu_s() - before).max(1e-9);
            row.rate
                .push(payloads.bytes.len() as f64 * 8.0 / took / 1e9);
        }
    }
    for set in ["long", "all"] {
        let found = |engine: &str| {
            let name = format!("sensor.scan.{engine}.{set}.rate");
            rows.iter().find(|r| r.name == name).map(|r| r.found)
        };
        if found("prefilter") != found("aho-corasick") {
            return Err(LabError::Engine(format!(
                "the engines find different numbers of patterns: {:?} and {:?}",
                found("prefilter"),
                found("aho-corasick")
            )));
        }
    }
    for row in rows {
        bench.figure(Figure::new(row.name, "Gbit/s", row.rate));
    }
    bench.outcome.compare(
        "sensor.scan.prefilter.long.rate",
        "sensor.scan.dfa.long.rate",
        Promise::Reported,
    );
    bench.outcome.compare(
        &format!("sensor.{}.all.prefilter.1.bits", input.name),
        "sensor.scan.dfa.long.rate",
        Promise::Reported,
    );
    Ok(())
}

fn rows_of(set: &str, patterns: &[(Vec<u8>, bool)]) -> Result<Vec<Row>, LabError> {
    let failed = |e: &dyn std::fmt::Display| LabError::Engine(e.to_string());
    let row = |engine: &str, search: Search| Row {
        name: format!("sensor.scan.{engine}.{set}.rate"),
        search,
        rate: Samples::default(),
        found: 0,
    };
    // One automaton without regard to case: what such a sensor would do, since most patterns ask for it.
    let dfa = AhoCorasick::builder()
        .match_kind(MatchKind::Standard)
        .ascii_case_insensitive(true)
        .kind(Some(AhoCorasickKind::DFA))
        .build(patterns.iter().map(|(bytes, _)| bytes))
        .map_err(|e| failed(&e))?;
    let mut rows = vec![row(
        "dfa",
        Box::new(move |payload| dfa.find_overlapping_iter(payload).count() as u64),
    )];
    let list: Vec<Pattern<'_>> = patterns
        .iter()
        .enumerate()
        .map(|(id, (bytes, nocase))| Pattern {
            bytes,
            nocase: *nocase,
            id: id as u32,
        })
        .collect();
    for (name, engine) in [
        ("prefilter", Engine::Prefilter),
        ("aho-corasick", Engine::AhoCorasick),
    ] {
        let matcher = Matcher::new(engine, &list).map_err(|e| failed(&e))?;
        let mut hits = Hits::new(list.len());
        rows.push(row(
            name,
            Box::new(move |payload| {
                hits.clear();
                matcher.scan(payload, &mut hits);
                hits.ids().len() as u64
            }),
        ));
    }
    Ok(rows)
}

/// CPU time of this thread so far, s.
fn cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
