//! Golden cases: one named test for each folder of tests/cases, run through the real program in every engine.
//!
//! A folder says which packets come in, and for each what becomes of it, byte for byte, which rules match and which
//! reasons are counted; any other movement of a counter fails. The format is described in tests/cases/README.md.
//! Expected bytes are never weir's own output.

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use common::{Folder, Run, WEIR, engines, hex, read_capture, root, unhex, write_capture};
use libtest_mimic::{Arguments, Failed, Trial};
use serde::Deserialize;
use serde_json::{Value, json};
use weir_packet::{Fate, Reason, summary};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let folder = root().join("tests/cases");
    let engines = engines();
    let mut trials = Vec::new();
    for area in folders(&folder) {
        for case in folders(&area) {
            let name = format!("{}/{}", last(&area), last(&case));
            let engines = engines.clone();
            trials.push(Trial::test(name, move || judge(&case, &engines)));
        }
    }
    if trials.is_empty() {
        trials.push(Trial::test("there_are_cases", move || {
            Err(format!("no case in {}", folder.display()).into())
        }));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// `case.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    /// The case in one sentence.
    says: String,
    /// Further flags of `weir replay`.
    #[serde(default)]
    options: Vec<String>,
    /// Text of the message with which the policy is refused; then there are no packets.
    refused: Option<String>,
    /// What is counted for each packet.
    #[serde(default)]
    packet: Vec<Counted>,
}

/// What one packet moves besides `received` and its verdict.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Counted {
    /// Ids of the rules that match.
    #[serde(default)]
    rules: Vec<u64>,
    /// Names of reasons and notes.
    #[serde(default)]
    reasons: Vec<String>,
    /// Time in ns; default: one packet a second, from second 1.
    time_ns: Option<u64>,
}

/// What becomes of a packet: a paragraph of `expect.hex`.
enum Fated {
    Dropped,
    Unchanged,
    Bytes(Vec<u8>),
}

fn judge(case: &Path, engines: &[&str]) -> Result<(), Failed> {
    let text = read(&case.join("case.toml"))?;
    let spec: Case = toml::from_str(&text).map_err(|e| format!("case.toml: {e}"))?;
    let policy = case.join("policy.weir");
    let scratch = Folder::new();
    if let Some(message) = &spec.refused {
        return refused(&spec, &policy, message, &scratch, engines);
    }
    let (frames, fates) = packets(case)?;
    if frames.len() != fates.len() || frames.len() != spec.packet.len() || frames.is_empty() {
        let (a, b, c) = (frames.len(), fates.len(), spec.packet.len());
        return Err(format!(
            "{a} packets in in.hex, {b} in expect.hex and {c} in case.toml: each file has one entry a packet"
        )
        .into());
    }
    consistent(&spec, &fates)?;
    let times: Vec<u64> = (1u64..)
        .zip(&spec.packet)
        .map(|(second, packet)| packet.time_ns.unwrap_or(second * 1_000_000_000))
        .collect();
    let input = scratch.join("in.pcap");
    write_capture(
        &input,
        times.iter().copied().zip(frames.iter().map(Vec::as_slice)),
    );
    let mut problems = Vec::new();
    for engine in engines {
        let output = scratch.join(&format!("{engine}.pcap"));
        let run = replay(&spec, &policy, &input, &output, engine);
        if run.status != 0 || !run.stderr.is_empty() && !run.stderr.contains("warning") {
            problems.push(format!(
                "{engine}: exit status {}\n{}",
                run.status, run.stderr
            ));
            continue;
        }
        let found = read_capture(&output);
        problems.extend(bytes(engine, &frames, &fates, &times, &found));
        problems.extend(counters(engine, &spec, &frames, &fates, &run.json()));
    }
    if problems.is_empty() {
        return Ok(());
    }
    Err(format!("{}\n{}", spec.says, problems.join("\n")).into())
}

/// A policy that no engine takes: `weir check` and every engine refuse it with the same words.
fn refused(
    spec: &Case,
    policy: &Path,
    message: &str,
    scratch: &Folder,
    engines: &[&str],
) -> Result<(), Failed> {
    let input = scratch.capture("in.pcap", &[]);
    let mut problems = Vec::new();
    let mut first: Option<String> = None;
    for engine in engines {
        let output = scratch.join(&format!("{engine}.pcap"));
        let run = replay(spec, policy, &input, &output, engine);
        if run.status != 2 || !run.stderr.contains(message) || !run.stdout.is_empty() {
            problems.push(format!(
                "{engine}: wanted status 2 and `{message}`: {run:?}"
            ));
        }
        let said = first.get_or_insert_with(|| run.stderr.clone());
        if *said != run.stderr {
            problems.push(format!("{engine} says something else: {}", run.stderr));
        }
    }
    if problems.is_empty() {
        return Ok(());
    }
    Err(format!("{}\n{}", spec.says, problems.join("\n")).into())
}

fn replay(spec: &Case, policy: &Path, input: &Path, output: &Path, engine: &str) -> Run {
    let mut command = std::process::Command::new(WEIR);
    command
        .arg("replay")
        .arg(policy)
        .args(["--json", "--engine", engine]);
    command.arg("--in").arg(input).arg("--out").arg(output);
    command.args(&spec.options);
    common::run(&mut command)
}

/// A packet has a reason that drops exactly if it is dropped, and only names that exist.
fn consistent(spec: &Case, fates: &[Fated]) -> Result<(), Failed> {
    for (n, (packet, fate)) in (1..).zip(spec.packet.iter().zip(fates)) {
        let mut drops = 0;
        for name in &packet.reasons {
            match Reason::ALL.iter().find(|reason| reason.name() == name) {
                Some(reason) => drops += usize::from(reason.fate() == Fate::Drop),
                None => return Err(format!("packet {n}: there is no reason `{name}`").into()),
            }
        }
        if drops != usize::from(matches!(fate, Fated::Dropped)) {
            return Err(format!("packet {n}: {drops} reasons to drop do not fit its fate").into());
        }
    }
    Ok(())
}

fn bytes(
    engine: &str,
    frames: &[Vec<u8>],
    fates: &[Fated],
    times: &[u64],
    found: &[(u64, Vec<u8>)],
) -> Vec<String> {
    let mut problems = Vec::new();
    let mut found = found.iter();
    for (n, frame) in frames.iter().enumerate() {
        let wanted = match &fates[n] {
            Fated::Dropped => continue,
            Fated::Unchanged => frame,
            Fated::Bytes(bytes) => bytes,
        };
        match found.next() {
            None => problems.push(format!(
                "{engine}: packet {} and later are not in the output",
                n + 1
            )),
            Some((time, _)) if *time != times[n] => {
                problems.push(format!(
                    "{engine}: wanted packet {} of time {} in the output, found time {time}",
                    n + 1,
                    times[n]
                ));
                return problems;
            }
            Some((_, bytes)) if bytes != wanted => {
                problems.push(compared(engine, n + 1, frame, wanted, bytes));
            }
            Some(_) => {}
        }
    }
    if let Some((time, extra)) = found.next() {
        problems.push(format!(
            "{engine}: a packet too many, time {time}: {}",
            summary(extra)
        ));
    }
    problems
}

/// Packets decoded, and their bytes with the differing ones marked.
fn compared(engine: &str, number: usize, received: &[u8], wanted: &[u8], found: &[u8]) -> String {
    let mut text = format!(
        "{engine}: packet {number} became other bytes\n  received {}\n  wanted   {}\n  found    {}\n",
        summary(received),
        summary(wanted),
        summary(found)
    );
    let width = 16;
    for at in (0..wanted.len().max(found.len())).step_by(width) {
        let row = |bytes: &[u8]| -> String {
            let end = bytes.len().min(at + width);
            let row: Vec<String> = bytes
                .get(at..end)
                .unwrap_or_default()
                .iter()
                .map(|b| format!("{b:02x}"))
                .collect();
            row.join(" ")
        };
        let (a, b) = (row(wanted), row(found));
        if a == b {
            continue;
        }
        let marks: String = (at..at + width)
            .map(|i| {
                if wanted.get(i) == found.get(i) {
                    "   "
                } else {
                    "^^ "
                }
            })
            .collect();
        text.push_str(&format!(
            "  {at:04x} wanted {a}\n       found  {b}\n              {}\n",
            marks.trim_end()
        ));
    }
    text.push_str(&format!("  received bytes {}", hex(received)));
    text
}

/// Exactly the counters that should move have moved.
fn counters(
    engine: &str,
    spec: &Case,
    frames: &[Vec<u8>],
    fates: &[Fated],
    found: &Value,
) -> Vec<String> {
    let dropped = fates
        .iter()
        .filter(|fate| matches!(fate, Fated::Dropped))
        .count();
    let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
    let mut rules: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for (packet, frame) in spec.packet.iter().zip(frames) {
        for reason in &packet.reasons {
            *reasons.entry(reason).or_default() += 1;
        }
        for rule in &packet.rules {
            let counter = rules.entry(*rule).or_default();
            counter.0 += 1;
            counter.1 += frame.len() as u64;
        }
    }
    let mut problems = Vec::new();
    // What a rule answers goes back.
    let answered = reasons.get("answered").copied().unwrap_or(0) as usize;
    let wanted = json!({
        "received": frames.len(), "pass": frames.len() - dropped - answered, "drop": dropped,
        "tx": answered, "redirect": 0, "aborted": 0,
    });
    let mut compare = |what: &str, wanted: &Value, found: &Value| {
        if wanted != found {
            problems.push(format!("{engine}: {what}: wanted {wanted}, found {found}"));
        }
    };
    compare("packets", &wanted, &found["packets"]);
    compare("reasons", &json!(reasons), &found["reasons"]);
    let reported = found["rules"].as_array().cloned().unwrap_or_default();
    let found: BTreeMap<u64, (u64, u64)> = reported
        .iter()
        .map(|rule| {
            let number = |key: &str| rule[key].as_u64().unwrap_or(u64::MAX);
            (number("id"), (number("packets"), number("bytes")))
        })
        .filter(|(_, counter)| *counter != (0, 0))
        .collect();
    compare("rules (id: [packets, bytes])", &json!(rules), &json!(found));
    problems
}

fn packets(case: &Path) -> Result<(Vec<Vec<u8>>, Vec<Fated>), Failed> {
    let frames = paragraphs(&read(&case.join("in.hex"))?)
        .iter()
        .map(|text| bytes_of(text))
        .collect::<Result<_, _>>()
        .map_err(|e| format!("in.hex: {e}"))?;
    let mut fates = Vec::new();
    for text in paragraphs(&read(&case.join("expect.hex"))?) {
        fates.push(match text.trim() {
            "drop" => Fated::Dropped,
            "same" => Fated::Unchanged,
            _ => Fated::Bytes(bytes_of(&text).map_err(|e| format!("expect.hex: {e}"))?),
        });
    }
    Ok((frames, fates))
}

/// Hex digits; `00*65` stands for a byte repeated.
fn bytes_of(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    for word in text.split_whitespace() {
        match word.split_once('*') {
            Some((byte, times)) => {
                let times = times.parse().map_err(|e| format!("`{word}`: {e}"))?;
                bytes.extend(unhex(byte)?.repeat(times));
            }
            None => bytes.extend(unhex(word)?),
        }
    }
    Ok(bytes)
}

/// Texts between blank lines, without comments.
fn paragraphs(text: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut one = String::new();
    for line in text.lines().chain([""]) {
        let code = line.split('#').next().unwrap_or_default();
        if !line.trim().is_empty() {
            one.push_str(code);
            one.push('\n');
        } else if !one.trim().is_empty() {
            all.push(std::mem::take(&mut one));
        }
    }
    all
}

fn read(path: &Path) -> Result<String, Failed> {
    std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()).into())
}

fn folders(path: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(path)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect();
    found.sort();
    found
}

fn last(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}
