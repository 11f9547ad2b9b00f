//! The demo: a client, weir and a server in three network namespaces, real HTTP, iperf3 and UDP traffic through
//! `examples/demo.weir`, and checks that traffic really behaved as the policy says.
//!
//! Without root the same traffic is replayed from a committed capture in the user engine. What is judged comes from
//! the kernel's counters at both ends and from tcpdump, never from weir's own idea of a packet.

mod bed;
mod handshakes;
mod live;
mod replayed;
mod traffic;

use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use weir_kernel::probes;

use crate::LabError;
use crate::process::Scratch;

/// The policy, so that the demo works from any folder.
pub(crate) const POLICY: &str = include_str!("../../../../examples/demo.weir");
/// The MSS it clamps to.
pub(crate) const MSS: u16 = 1400;

/// How to show the demo.
#[derive(Debug)]
pub struct DemoOptions<'a> {
    /// The program `weir`.
    pub weir: PathBuf,
    /// Seconds of the iperf3 stream.
    pub seconds: u32,
    /// Replay the capture even when root.
    pub replay: bool,
    /// Only results: the child's tables are not shown and nothing is told on the way.
    pub quiet: bool,
    /// Ends the demo in order when set.
    pub stop: &'a AtomicBool,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What should hold.
    pub name: String,
    /// Whether it does.
    pub ok: bool,
    /// What was seen.
    pub seen: String,
}

/// What the demo found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DemoOutcome {
    /// `kernel`, or `user` when a capture was replayed.
    pub engine: &'static str,
    /// All checks in order.
    pub checks: Vec<Check>,
    /// Throughput of the iperf3 streams in Gbit/s, for information.
    pub gbit_per_second: Vec<f64>,
}

impl DemoOutcome {
    /// Whether every check holds, and there were any.
    pub fn ok(&self) -> bool {
        !self.checks.is_empty() && self.checks.iter().all(|check| check.ok)
    }
}

/// Runs the demo and tells about it on `out`.
///
/// # Errors
/// When the demo could not be carried out; a failed check is a result.
pub fn demo(options: &DemoOptions<'_>, out: &mut dyn Write) -> Result<DemoOutcome, LabError> {
    let mut stage = Stage {
        options,
        out,
        checks: Vec::new(),
    };
    let scratch = Scratch::create("weir-demo")?;
    let (engine, gbit_per_second) = match impediment(options.replay) {
        None => ("kernel", live::show(&mut stage, &scratch)?),
        Some(why) => {
            replayed::show(&mut stage, &scratch, &why)?;
            ("user", Vec::new())
        }
    };
    let outcome = DemoOutcome {
        engine,
        checks: stage.checks,
        gbit_per_second,
    };
    let failed = outcome.checks.iter().filter(|c| !c.ok).count();
    if !options.quiet {
        let verdict = match failed {
            0 => format!("all {} checks hold", outcome.checks.len()),
            n => format!("{n} of {} checks FAILED", outcome.checks.len()),
        };
        writeln!(out, "\n{verdict}\n\n{NEXT}")?;
    }
    Ok(outcome)
}

/// Why the demo is replayed instead of run on interfaces; `None`: nothing stands in the way.
fn impediment(replay: bool) -> Option<String> {
    if replay {
        return Some("asked for".to_owned());
    }
    if !rustix::process::geteuid().is_root() {
        return Some("not root, so no namespaces".to_owned());
    }
    // Root in a container may still be without what this takes.
    let missing = probes::probe_all()
        .into_iter()
        .find(|p| p.ok.is_err() && (p.needed || p.name == "netns"))?;
    Some(format!(
        "`weir doctor` finds no {} here: {}",
        missing.name,
        missing.ok.err().unwrap_or_default()
    ))
}

/// What to try after the demo.
const NEXT: &str = "\
Try next:
  weir explain examples/demo.weir                            what the rules mean, in words
  weir replay examples/tcp-normaliser.weir --in FILE.pcap    a policy over your own capture, without root
  weir run examples/flood-guard.weir -i IF                   a policy on an interface, until Ctrl-C (root)
  weir doctor                                                what this kernel can do
`make run` builds target/debug/weir, `make release` target/dist/weir; docs/ explains the language.";

/// Where the demo tells what happens and collects what it found.
struct Stage<'a> {
    options: &'a DemoOptions<'a>,
    out: &'a mut dyn Write,
    checks: Vec<Check>,
}

impl Stage<'_> {
    /// Ends the demo if the user wants it to.
    fn keep_going(&self) -> Result<(), LabError> {
        if self.options.stop.load(Ordering::Relaxed) {
            Err(LabError::Interrupted)
        } else {
            Ok(())
        }
    }

    /// A line for the user; also a place where an interruption is noticed.
    fn say(&mut self, line: &str) -> Result<(), LabError> {
        self.keep_going()?;
        if !self.options.quiet {
            writeln!(self.out, "{line}")?;
            self.out.flush()?;
        }
        Ok(())
    }

    fn check(
        &mut self,
        name: impl Into<String>,
        ok: bool,
        seen: impl Into<String>,
    ) -> Result<(), LabError> {
        let check = Check {
            name: name.into(),
            ok,
            seen: seen.into(),
        };
        let state = if ok { "ok    " } else { "FAILED" };
        let line = format!("  {state}  {}: {}", check.name, check.seen);
        self.checks.push(check);
        self.say(&line)
    }

    /// Shows the policy without its comments.
    fn say_policy(&mut self) -> Result<(), LabError> {
        self.say("policy (examples/demo.weir):")?;
        for line in POLICY
            .lines()
            .filter(|l| !l.is_empty() && !l.starts_with('#'))
        {
            self.say(&format!("  {line}"))?;
        }
        Ok(())
    }
}

/// A number out of a report of weir, `/packets/received`; absent is 0.
fn number(report: &serde_json::Value, pointer: &str) -> u64 {
    report
        .pointer(pointer)
        .and_then(serde_json::Value::as_u64)
        .unwrap_or(0)
}

/// The ledger as a check: its equation, and whether it holds.
fn ledger(report: &serde_json::Value) -> (bool, String) {
    let part = |name: &str| number(report, &format!("/packets/{name}"));
    let parts = ["pass", "drop", "tx", "redirect", "aborted"];
    let sum: u64 = parts.iter().map(|name| part(name)).sum();
    let terms: Vec<String> = parts
        .iter()
        .filter(|n| part(n) > 0)
        .map(|name| format!("{} {name}", part(name)))
        .collect();
    let received = part("received");
    (
        received == sum && received > 0,
        format!("{received} received = {}", terms.join(" + ")),
    )
}

/// Packets of each rule, by name.
fn rule_packets(report: &serde_json::Value) -> Vec<(String, u64)> {
    let rules = report.get("rules").and_then(serde_json::Value::as_array);
    rules
        .into_iter()
        .flatten()
        .map(|rule| {
            let name = rule
                .get("name")
                .and_then(serde_json::Value::as_str)
                .unwrap_or("-")
                .to_owned();
            (name, number(rule, "/packets"))
        })
        .collect()
}
