//! What each stage costs, without a clock between them: the sensor cut short behind one stage after the other, and with more and more of its rules, all taking turns; a stage is what it adds.
//!
//! What rules ask of parsers belongs to the parsers: of a run with some rules, the first stages with the same rules are subtracted, so that only detection is left.

use std::fmt::Write as _;

use super::input::Input;
use super::part::{Job, Keep, Logs, Part, Stage};
use crate::LabError;
use crate::bench::Bench;
use crate::bench::measure::Samples;
use crate::bench::report::Figure;
use crate::process::Scratch;

/// Stages in the order of a packet, with what each is a part of.
const STAGES: [(&str, &str); 10] = [
    ("read", "source"),
    ("decode", "source"),
    ("defragment", "flows"),
    ("flow-stream", "flows"),
    ("application", "flows"),
    ("worker", "detection"),
    ("packet-rules", "detection"),
    ("stream-rules", "detection"),
    ("transactions", "detection"),
    ("log", "output"),
];

/// A stage with ns a packet.
pub(super) struct Cost {
    name: &'static str,
    part_of: &'static str,
    ns: f64,
}

pub(super) fn measure(
    bench: &mut Bench<'_>,
    input: &Input,
    scratch: &Scratch,
    rounds: usize,
) -> Result<Vec<Cost>, LabError> {
    let start = |bench: &mut Bench<'_>, name: &str, keep: Keep, logs: Logs| {
        bench.progress(&format!("stages: loading ({name})"))?;
        let job = Job {
            capture: input.capture.clone(),
            rules: input.rules.clone(),
            keep,
            automaton: false,
            logs,
            open: false,
            folder: scratch.path().join(format!("stages-{name}")),
        };
        Part::start(&bench.options.weir, &job)
    };
    let mut none = start(bench, "none", Keep::None, Logs::None)?;
    let mut packets = start(bench, "packets", Keep::Packets, Logs::None)?;
    let mut streams = start(bench, "streams", Keep::PacketsAndStreams, Logs::None)?;
    let mut all = start(bench, "all", Keep::All, Logs::None)?;
    let mut logged = start(bench, "logged", Keep::All, Logs::All)?;
    let counts = [&packets, &streams, &all].map(|p| p.loaded.rules);
    bench.note(format!(
        "stages: {} rules are decided on packets, {} on streams, {} on transactions",
        counts[0],
        counts[1] - counts[0],
        counts[2] - counts[1]
    ));
    let mut samples: [Samples; STAGES.len()] = Default::default();
    let mut spread = Samples::default();
    let mut total = Samples::default();
    for round in 0..rounds {
        bench.progress(&format!("stages, round {} of {rounds}", round + 1))?;
        let read = all.pass(Stage::Read)?;
        let frames = read.frames.max(1) as f64;
        let of = |ran: &super::part::Ran| ran.cpu_s * 1e9 / frames;
        let read = of(&read);
        let spread_to = of(&all.pass(Stage::Spread)?);
        let decode = of(&all.pass(Stage::Decode)?);
        let defragment = of(&all.pass(Stage::Defragment)?);
        let flows = of(&all.pass(Stage::Streams)?);
        let apps = of(&all.pass(Stage::Apps)?);
        let mut detection = [0.0; 4];
        for (at, part) in [&mut none, &mut packets, &mut streams, &mut all]
            .into_iter()
            .enumerate()
        {
            detection[at] = of(&part.run(1)?) - of(&part.pass(Stage::Apps)?);
        }
        let with_logs = of(&logged.run(1)?);
        let without = apps + detection[3];
        for (sample, value) in samples.iter_mut().zip([
            read,
            decode - read,
            defragment - decode,
            flows - defragment,
            apps - flows,
            detection[0],
            detection[1] - detection[0],
            detection[2] - detection[1],
            detection[3] - detection[2],
            with_logs - without,
        ]) {
            sample.push(value);
        }
        spread.push(spread_to - read);
        total.push(with_logs);
    }
    let whole = total.median();
    let prefix = format!("sensor.{}.stage", input.name);
    let mut costs = Vec::new();
    for ((name, part_of), samples) in STAGES.into_iter().zip(samples) {
        let ns = samples.median();
        costs.push(Cost { name, part_of, ns });
        bench.figure(Figure::new(
            format!("{prefix}.{name}.share"),
            "%",
            shares(&samples, whole),
        ));
        bench.figure(Figure::new(format!("{prefix}.{name}.time"), "ns", samples));
    }
    bench.figure(Figure::new(format!("{prefix}.spread.time"), "ns", spread));
    bench.figure(Figure::new(format!("{prefix}.whole.time"), "ns", total));
    Ok(costs)
}

fn shares(samples: &Samples, whole: f64) -> Samples {
    Samples(samples.0.iter().map(|ns| ns / whole * 100.0).collect())
}

/// The costs as kcachegrind and callgrind_annotate read them: ps of CPU time for a packet, since counts are whole numbers. A stage that noise made negative is 0.
pub(super) fn callgrind(costs: &[Cost], about: &[String]) -> String {
    let ps = |cost: &Cost| (cost.ns.max(0.0) * 1e3).round() as u64;
    let mut parts: Vec<(&str, u64)> = Vec::new();
    for cost in costs {
        match parts.iter_mut().find(|(name, _)| *name == cost.part_of) {
            Some((_, sum)) => *sum += ps(cost),
            None => parts.push((cost.part_of, ps(cost))),
        }
    }
    let total: u64 = parts.iter().map(|(_, sum)| sum).sum();
    let mut text = String::from("# callgrind format\nversion: 1\ncreator: weir bench sensor\n");
    for line in about {
        let _ = writeln!(text, "desc: {}", line.replace('\n', " "));
    }
    let _ = write!(
        text,
        "positions: line\nevent: ps : picoseconds of CPU time for a packet\nevents: ps\nsummary: {total}\n\nfl=sensor\nfn=sensor\n1 0\n"
    );
    for (part, sum) in &parts {
        let _ = write!(text, "cfn={part}\ncalls=1 1\n1 {sum}\n");
    }
    for (part, _) in &parts {
        let _ = write!(text, "\nfn={part}\n1 0\n");
        for cost in costs.iter().filter(|c| c.part_of == *part) {
            let _ = write!(text, "cfn={}\ncalls=1 1\n1 {}\n", cost.name, ps(cost));
        }
    }
    for cost in costs {
        let _ = write!(text, "\nfn={}\n1 {}\n", cost.name, ps(cost));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_adds_up() {
        let cost = |name, part_of, ns| Cost { name, part_of, ns };
        let costs = [
            cost("read", "source", 10.0),
            cost("decode", "source", 20.5),
            cost("log", "output", -3.0),
        ];
        let text = callgrind(&costs, &["two\nlines".to_owned()]);
        assert!(text.starts_with("# callgrind format\n"), "{text}");
        for line in [
            "summary: 30500",
            "desc: two lines",
            "fn=decode\n1 20500",
            "cfn=source\ncalls=1 1\n1 30500",
            "fn=log\n1 0",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }
}
