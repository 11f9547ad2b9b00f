//! What `weir sensor` says: of rules before, of frames, flows, alerts and losses after.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};
use weir_sensor::detect::RuleCost;
use weir_sensor::load::Book;
use weir_sensor::run::Summary;
use weir_sensor::source::SourceCounts;
use weir_sensor::worker::{Engine, Uncompiled};

use super::seconds;
use crate::output;

/// Refused rules that are shown without `-v`.
const SHOWN: usize = 5;

/// What is said where rules ask for files that no output writes.
pub(super) const UNSTORED: &str = "One or more rule(s) depends on the file-store output log which is not enabled. Enable the output \"file-store\"";

/// What became of the rules.
pub(super) struct Loaded {
    pub(super) rules: usize,
    pub(super) refused: usize,
    /// Those of them that are not in error: they require something else than this sensor, or a later revision took their place.
    pub(super) skipped: usize,
    /// The first of those, each as a line.
    first_skipped: Vec<String>,
    /// A rule asks for files to be written out, and they are not.
    pub(super) unstored: bool,
    /// Lines of files beside the rules that were refused: thresholds, classes, reputation.
    pub(super) lines: usize,
    pub(super) files: usize,
    took: Duration,
}

impl Loaded {
    pub(super) fn new(
        book: &Book,
        uncompiled: &[Uncompiled],
        engine: &Engine,
        took: Duration,
    ) -> Loaded {
        let skipped = || book.loaded.refused.iter().filter(|r| r.is_skipped());
        Loaded {
            rules: engine.rules(),
            refused: book.loaded.refused.len() + uncompiled.len(),
            skipped: skipped().count(),
            first_skipped: skipped().take(SHOWN).map(|r| r.to_string()).collect(),
            unstored: (book.loaded.notes.iter())
                .any(|n| n.text.starts_with("`filestore`: files are not")),
            lines: book.refused.len(),
            files: book.loaded.files,
            took,
        }
    }
}

impl Loaded {
    /// The rules that say they are for another sensor: the first of them, and how many more there are. What an output that is off leaves undone.
    pub(super) fn remarks(&self) -> String {
        let mut text = String::new();
        for line in &self.first_skipped {
            let _ = writeln!(text, "skipped   {line}");
        }
        let more = self.skipped - self.first_skipped.len();
        if more > 0 {
            let _ = writeln!(text, "skipped   ... and {more} more rules");
        }
        if self.unstored {
            let _ = writeln!(text, "note      {UNSTORED}");
        }
        text
    }

    /// How many rules of how many files were loaded.
    pub(super) fn summary(&self) -> String {
        format!(
            "{} rule files processed. {} rules successfully loaded, {} rules failed, {} rules skipped",
            self.files,
            self.rules,
            self.refused - self.skipped,
            self.skipped
        )
    }
}

/// Refused rules, to standard error.
pub(super) fn tell_rules(book: &Book, uncompiled: &[Uncompiled], verbose: u8) {
    let most = if verbose > 0 { usize::MAX } else { SHOWN };
    let mut text = String::new();
    // Rules that say they are for another sensor are no errors: the summary has them.
    let refused = || {
        let rules = book.loaded.refused.iter().filter(|r| !r.is_skipped());
        book.refused.iter().chain(rules)
    };
    let all = refused().count() + uncompiled.len();
    for one in refused().take(most) {
        let _ = writeln!(text, "weir: {}", one.explain());
    }
    let left = most.saturating_sub(all - uncompiled.len());
    for one in uncompiled.iter().take(left) {
        let _ = writeln!(
            text,
            "weir: {}:{}: sid {}: {}",
            one.place.file, one.place.line, one.sid, one.reason
        );
    }
    if all > most {
        let _ = writeln!(
            text,
            "weir: ... and {} more rejected rules or lines; -v or `weir sensor rules check` shows them",
            all - most
        );
    }
    if verbose > 0 {
        for note in &book.loaded.notes {
            let _ = writeln!(
                text,
                "weir: {}:{}: sid {}: note: {}",
                note.place.file, note.place.line, note.sid, note.text
            );
        }
        if let Some(path) = &book.classes {
            let _ = writeln!(text, "weir: classification from {}", path.display());
        }
    }
    for (_, why) in &book.missing {
        let _ = writeln!(text, "weir: {why}");
    }
    output::tell(&text);
}

/// Keys that change nothing, to standard error.
pub(super) fn tell_unknown(keys: &[String]) {
    for key in keys {
        output::complain(&format!("{key} has no effect"));
    }
}

/// A size as people read it.
pub(super) fn bytes(count: u64) -> String {
    match count {
        0..10_000 => format!("{count} B"),
        10_000..10_000_000 => format!("{:.1} kB", count as f64 / 1e3),
        10_000_000..10_000_000_000 => format!("{:.1} MB", count as f64 / 1e6),
        _ => format!("{:.1} GB", count as f64 / 1e9),
    }
}

/// The most frequent rules that are shown.
const RULES: usize = 10;
/// Rules that are shown of those that cost most.
const COSTLY: usize = 20;

pub(super) fn text(loaded: &Loaded, summary: &Summary, verbose: u8) -> String {
    let mut text = String::new();
    let (ledger, source) = (&summary.ledger, &summary.source);
    let count = |name: &str| summary.counters.get(name).copied().unwrap_or(0);
    let _ = writeln!(
        text,
        "rules     {} loaded, {} rejected, of {} files in {}{}",
        loaded.rules,
        loaded.refused,
        loaded.files,
        seconds(loaded.took),
        match loaded.lines {
            0 => String::new(),
            n => format!(", and {n} threshold, classification or reputation lines rejected"),
        }
    );
    text += &loaded.remarks();
    let rate = source.frames as f64 / summary.elapsed.as_secs_f64().max(1e-9);
    let _ = writeln!(
        text,
        "frames    {} ({}) in {}, {rate:.0} a second{}",
        source.frames,
        bytes(source.wire_bytes),
        seconds(summary.elapsed),
        if source.files > 1 {
            format!(", of {} files", source.files)
        } else {
            String::new()
        }
    );
    let _ = writeln!(
        text,
        "inspected {}, wrong checksum {}, fragments {}, not IP {}, broken {}, filtered {}",
        ledger.inspected,
        ledger.bad_checksum,
        ledger.fragments,
        ledger.not_ip,
        ledger.invalid,
        ledger.filtered
    );
    if let Some(received) = source.kernel_packets {
        text += &capture(received, summary);
    }
    if let Some(inline) = &source.inline {
        let named: Vec<String> = (inline.named().into_iter())
            .filter(|(name, n)| *n > 0 && *name != "received")
            .map(|(name, n)| format!("{n} {}", name.replace(['_', '.'], " ")))
            .collect();
        let _ = writeln!(
            text,
            "inline    {} received: {}",
            inline.received,
            named.join(", ")
        );
        if inline.unaccounted() != 0 {
            let _ = writeln!(
                text,
                "frames between the interfaces that are in no counter: {}",
                inline.unaccounted()
            );
        }
    }
    let _ = writeln!(
        text,
        "flows     {} (tcp {}, udp {}, icmp {})",
        count("flow.total"),
        count("flow.tcp"),
        count("flow.udp"),
        count("flow.icmp")
    );
    let _ = writeln!(text, "alerts    {}", summary.alerts);
    let mut rules: Vec<_> = summary.rules.iter().collect();
    rules.sort_by_key(|((gid, sid), n)| (std::cmp::Reverse(**n), *gid, *sid));
    let most = if verbose > 0 { usize::MAX } else { RULES };
    for ((gid, sid), n) in rules.iter().take(most) {
        let _ = writeln!(text, "  {n:8}  {gid}:{sid}");
    }
    if rules.len() > most {
        let _ = writeln!(text, "            and of {} rules more", rules.len() - most);
    }
    let lost: Vec<String> = losses(summary)
        .into_iter()
        .map(|(name, n)| format!("{n} {name}"))
        .collect();
    let _ = writeln!(
        text,
        "lost      {}",
        if lost.is_empty() {
            "nothing".to_owned()
        } else {
            lost.join(", ")
        }
    );
    // Most of what somebody captures where senders leave checksums to their devices.
    if ledger.bad_checksum * 10 > ledger.inspected + ledger.bad_checksum {
        let _ = writeln!(
            text,
            "many checksums are wrong, as where a sender leaves them to its device: -k none reads such frames"
        );
    }
    if source.unaccounted() != 0 {
        let _ = writeln!(
            text,
            "frames of the kernel that are in no counter: {}",
            source.unaccounted()
        );
    }
    if ledger.unaccounted() != 0 {
        let _ = writeln!(
            text,
            "frames that are in no counter: {}",
            ledger.unaccounted()
        );
    }
    if verbose > 0 {
        for (name, n) in &summary.counters {
            let _ = writeln!(text, "{name} {n}");
        }
    }
    text
}

/// Where packets of interfaces ended before a stage of the sensor had them; by workers, if each has a ring.
fn capture(received: u64, summary: &Summary) -> String {
    let source = &summary.source;
    let mut text = format!("capture   {received} received: {} read", source.frames);
    for (count, what) in [
        (source.kernel_drops, "lost for a full ring"),
        (source.bypass.packets, "bypassed in the kernel"),
        (source.shed.packets, "left out with their flows (--shed)"),
        (source.removed, "in rings of removed interfaces"),
    ] {
        if count > 0 {
            let _ = write!(text, ", {count} {what}");
        }
    }
    if source.not_handed_over > 0 {
        let count = source.not_handed_over;
        let _ = write!(
            text,
            "; of those read, {count} not handed over to their worker"
        );
    }
    text.push('\n');
    for (number, one) in summary.workers.iter().enumerate() {
        let _ = writeln!(
            text,
            "  worker {number}: {} received: {} read, {} lost for a full ring",
            received_by(one),
            one.frames,
            one.kernel_drops
        );
    }
    text
}

/// What came to a worker's ring: what filters kept away is all workers'.
fn received_by(one: &SourceCounts) -> u64 {
    let all = one.kernel_packets.unwrap_or(one.frames);
    all - one.bypass.packets - one.shed.packets
}

/// Rules that cost most, as a table.
pub(super) fn profile(summary: &Summary, verbose: u8) -> String {
    let mut text = String::new();
    let all = costly(summary);
    let work: u64 = all.iter().map(|(_, c)| c.work).sum();
    let _ = writeln!(
        text,
        "costs     {} rules were decided on a buffer, {work} units of work (a byte searched is one)",
        all.len()
    );
    if all.is_empty() {
        return text;
    }
    let _ = writeln!(
        text,
        "  {:>6} {:>12} {:>9} {:>9} {:>8} {:>8} {:>9}  worst buffer          rule",
        "share", "work", "checks", "held", "alerts", "pcre", "given up"
    );
    let most = if verbose > 0 { usize::MAX } else { COSTLY };
    for ((gid, sid), cost) in all.iter().take(most) {
        let alerts = summary.rules.get(&(*gid, *sid)).copied().unwrap_or(0);
        let _ = writeln!(
            text,
            "  {:5.1}% {:>12} {:>9} {:>9} {alerts:>8} {:>8} {:>9}  {:>5.1}/B of {:<9} {gid}:{sid} (packet {})",
            cost.work as f64 * 100.0 / work.max(1) as f64,
            cost.work,
            cost.checks,
            cost.held,
            cost.expressions,
            cost.given_up,
            cost.most as f64 / cost.most_bytes.max(1) as f64,
            bytes(cost.most_bytes),
            cost.most_packet,
        );
    }
    if all.len() > most {
        let _ = writeln!(text, "  and {} rules more; -v shows them", all.len() - most);
    }
    text
}

/// Rules by what they cost, the most first.
fn costly(summary: &Summary) -> Vec<((u32, u32), RuleCost)> {
    let mut all: Vec<_> = summary.costs.iter().map(|(r, c)| (*r, *c)).collect();
    all.sort_by_key(|(rule, cost)| (std::cmp::Reverse(cost.work), *rule));
    all
}

/// What was given up, by stage.
fn losses(summary: &Summary) -> Vec<(&'static str, u64)> {
    let count = |name: &str| summary.counters.get(name).copied().unwrap_or(0);
    [
        ("frames by the kernel", summary.source.kernel_drops),
        (
            "packets of flows left out for load",
            summary.source.shed.packets,
        ),
        (
            "frames not handed over to their worker",
            summary.source.not_handed_over,
        ),
        (
            "frames in rings of interfaces that were removed",
            summary.source.removed,
        ),
        ("frames cut by the capture", summary.source.cut),
        ("files not read to their end", summary.source.broken_files),
        ("times that a link was away", summary.source.gaps),
        ("frames with a wrong checksum", summary.ledger.bad_checksum),
        ("fragments over the cap", count("defrag.over_cap")),
        ("flows over the cap", count("flow.end.forced")),
        ("stream bytes over the cap", count("tcp.bytes.over_cap")),
        ("gaps in streams", count("tcp.reassembly_gap")),
        (
            "alerts beyond packet-alert-max",
            count("detect.alert_queue_overflow"),
        ),
        ("reloads of rules", count("detect.reloads_refused")),
        (
            "buffers given up by rules, for their work",
            count("detect.limited.buffers"),
        ),
        (
            "expressions given up at their limit",
            count("detect.pcre.limited"),
        ),
        ("lines of EVE", count("output.eve_lost")),
        ("lines of fast.log", count("output.fast_lost")),
    ]
    .into_iter()
    .filter(|(_, n)| *n > 0)
    .collect()
}

/// What `-T` found.
pub(super) fn tested(loaded: &Loaded) -> Value {
    json!({"rules": rules_json(loaded)})
}

fn rules_json(loaded: &Loaded) -> Value {
    json!({"loaded": loaded.rules, "refused": loaded.refused, "refused_lines": loaded.lines, "files": loaded.files, "seconds": loaded.took.as_secs_f64()})
}

pub(super) fn json(loaded: &Loaded, summary: &Summary) -> Value {
    let rules: Vec<Value> = summary
        .rules
        .iter()
        .map(|((gid, sid), n)| json!({"gid": gid, "sid": sid, "alerts": n}))
        .collect();
    let problems: Vec<Value> = summary
        .problems
        .iter()
        .map(|(path, what)| json!({"file": path.display().to_string(), "problem": what}))
        .collect();
    let (ledger, source) = (&summary.ledger, &summary.source);
    let costs: Vec<Value> = costly(summary)
        .into_iter()
        .map(|((gid, sid), c)| {
            json!({
                "gid": gid, "sid": sid, "work": c.work, "checks": c.checks, "held": c.held,
                "expressions": c.expressions, "given_up": c.given_up,
                "worst": {"work": c.most, "bytes": c.most_bytes, "packet": c.most_packet},
            })
        })
        .collect();
    let inline = summary.source.inline.map(|inline| {
        let mut all: serde_json::Map<String, Value> = (inline.named().into_iter())
            .map(|(name, n)| (name.to_owned(), json!(n)))
            .collect();
        all.insert("unaccounted".to_owned(), json!(inline.unaccounted() as i64));
        all
    });
    let workers: Vec<Value> = (summary.workers.iter())
        .map(|one| {
            json!({"received": received_by(one), "read": one.frames, "ring_full": one.kernel_drops, "removed": one.removed})
        })
        .collect();
    let capture = source.kernel_packets.map(|received| {
        json!({
            "received": received,
            "read": source.frames,
            "ring_full": source.kernel_drops,
            "removed": source.removed,
            "bypassed": source.bypass.packets,
            "bypassed_bytes": source.bypass.bytes,
            "bypassed_late": source.bypass.late,
            "bypass_refused": source.bypass.refused,
            "shed": source.shed.packets,
            "shed_bytes": source.shed.bytes,
            "shed_flows": source.shed.flows,
            "not_handed_over": source.not_handed_over,
            "workers": workers,
            "unaccounted": source.unaccounted() as i64,
        })
    });
    json!({
        "rules": rules_json(loaded),
        "capture": capture,
        "inline": inline,
        "frames": summary.source.frames,
        "bytes": summary.source.wire_bytes,
        "seconds": summary.elapsed.as_secs_f64(),
        "ledger": {
            "read": ledger.read,
            "filtered": ledger.filtered,
            "not_ip": ledger.not_ip,
            "invalid": ledger.invalid,
            "fragments": ledger.fragments,
            "bad_checksum": ledger.bad_checksum,
            "inspected": ledger.inspected,
            "unaccounted": ledger.unaccounted() as i64,
        },
        "alerts": summary.alerts,
        "by_rule": rules,
        "costs": costs,
        "lost": losses(summary).into_iter().map(|(name, n)| json!({"what": name, "count": n})).collect::<Vec<_>>(),
        "counters": summary.counters,
        "problems": problems,
        "skipped": summary.skipped.iter().map(|p| p.display().to_string()).collect::<Vec<_>>(),
    })
}
