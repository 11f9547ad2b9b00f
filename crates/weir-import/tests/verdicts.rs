//! The rule sets in the kernel and their translations in weir: the same verdicts on 100,000 packets each, of new connections and of answers.
//!
//! The kernel has the files as they are, but for the lines that `weir import` named as not translated. Of pf, which Linux has not, `pf_evaluator` judges.

use std::collections::BTreeMap;
use std::time::Instant;

use weir_import::{Effect, Format, Imported};
use weir_packet::Verdict;
use weir_policy::reference::{Input, Options, PortId, Reference};
use weir_policy::{NoFiles, Source};

use crate::bed::Router;
use crate::packets::{INTERFACES, Numbers, Packet};
use crate::pf_evaluator::Pf;
use crate::snapshots::{folder, imported};

/// Packets that are compared for each rule set.
const PACKETS: usize = 100_000;
/// Packets in flight.
const BATCH: usize = 200;

/// Whether the kernel can be asked: as root, with the programs. In CI without excuse.
#[expect(
    clippy::print_stderr,
    reason = "a skipped comparison is said where the test runs"
)]
pub(crate) fn can_ask(program: &str) -> bool {
    let is_there = std::process::Command::new(program)
        .arg("--version")
        .output()
        .is_ok();
    let can = rustix::process::geteuid().is_root() && is_there;
    assert!(
        can || std::env::var("CI").as_deref() != Ok("true"),
        "in CI this runs as root, with {program} (`scripts/setup`)"
    );
    if !can {
        eprintln!("skipped: needs root and {program}");
    }
    can
}

/// The file without what was not translated: `reject` as `drop`, and the lines that are left out blank.
fn as_translated(name: &str, made: &Imported) -> String {
    let text = std::fs::read_to_string(folder().join(name)).expect(name);
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for finding in &made.findings {
        let line = &mut lines[finding.line as usize - 1];
        match finding.effect {
            Effect::NoAnswer => {
                let at = line.find("-j REJECT").map(|at| (at, "-j DROP"));
                let at = at.or_else(|| line.find("reject").map(|at| (at, "drop")));
                if let Some((at, drop)) = at {
                    line.replace_range(at.., drop);
                }
            }
            Effect::Elsewhere | Effect::AsOthers | Effect::ByRules => {}
            Effect::NotLogged if line.ends_with("drop") => {}
            _ => line.clear(),
        }
    }
    lines.join("\n") + "\n"
}

/// A policy that runs.
struct Weir {
    reference: Reference,
    begun: Instant,
    number: u64,
}

impl Weir {
    fn new(name: &str, policy: &str) -> Weir {
        let parsed = weir_policy::parse(&Source::new(name, policy), &NoFiles).expect("a policy");
        Weir {
            reference: Reference::new(parsed.policy, Options::default()),
            begun: Instant::now(),
            number: 0,
        }
    }

    fn judge(&mut self, interface: usize, frame: &[u8], now_ns: u64) -> (Verdict, String) {
        self.number += 1;
        let outcome = self.reference.run(Input {
            number: self.number,
            now_ns,
            port: PortId {
                name: Some(INTERFACES[interface]),
                index: interface as u32 + 1,
            },
            ..Input::new(frame)
        });
        (
            outcome.verdict,
            format!("{:?} {:?}", outcome.matched, outcome.reasons),
        )
    }
}

/// Compares the two, packet by packet; `theirs` judges a batch.
pub(crate) fn compare(
    name: &str,
    policy: &str,
    six_too: bool,
    mut theirs: impl FnMut(&[Packet], &[(usize, Vec<u8>)]) -> Vec<bool>,
) {
    let mut weir = Weir::new(name, policy);
    let mut numbers = Numbers(2026);
    let mut asked: Vec<Packet> = Vec::new();
    let (mut compared, mut passed, mut answers) = (0, 0, 0);
    let mut differences: BTreeMap<String, (usize, String)> = BTreeMap::new();
    while compared < PACKETS {
        let mut batch: Vec<Packet> = Vec::new();
        // Answers to what passed in the batch before, then packets of their own.
        for packet in asked.drain(..).take(BATCH / 4) {
            batch.extend(packet.answer(&mut numbers));
        }
        answers += batch.len();
        batch.extend((batch.len()..BATCH).map(|_| Packet::any(&mut numbers, six_too)));
        let frames: Vec<(usize, Vec<u8>)> = (1u16..)
            .zip(&batch)
            .map(|(number, packet)| (packet.interface, packet.frame(number)))
            .collect();
        let now_ns = weir.begun.elapsed().as_nanos() as u64;
        let theirs = theirs(&batch, &frames);
        for ((packet, (interface, frame)), theirs) in batch.iter().zip(&frames).zip(theirs) {
            let (ours, why) = weir.judge(*interface, frame, now_ns);
            compared += 1;
            passed += usize::from(theirs);
            if (ours == Verdict::Pass) != theirs {
                let what = format!("{ours:?} {why}");
                let seen = differences
                    .entry(what)
                    .or_insert_with(|| (0, format!("{packet:?} {}", weir_packet::summary(frame))));
                seen.0 += 1;
            } else if theirs {
                asked.push(*packet);
            }
        }
    }
    assert!(
        differences.is_empty(),
        "{name}: {} kinds of packets of {compared}: {differences:#?}",
        differences.len()
    );
    assert!(
        passed * 20 > compared && passed * 20 < compared * 19,
        "{name}: {passed} of {compared} pass"
    );
    assert!(answers * 50 > compared, "{name}: {answers} answers");
}

/// A router of the kernel that drops nothing yet.
pub(crate) fn kernel() -> Router {
    Router::build()
}

#[test]
fn iptables_judges_as_its_translation_does() {
    if !can_ask("iptables-nft-restore") {
        return;
    }
    let name = "dmz.iptables-save";
    let made = imported(name, Format::IptablesSave);
    let router = kernel();
    router.feed("iptables-nft-restore", &[], &as_translated(name, &made));
    compare(name, &made.policy, false, |_, frames| router.passed(frames));
}

#[test]
fn nftables_judges_as_its_translation_does() {
    if !can_ask("nft") {
        return;
    }
    let name = "edge.nft";
    let made = imported(name, Format::Nft);
    let router = kernel();
    let text = as_translated(name, &made).replace("flush ruleset", "");
    router.feed("nft", &["-f", "-"], &text);
    compare(name, &made.policy, true, |_, frames| router.passed(frames));
}

#[test]
fn pf_judges_as_its_translation_does() {
    let name = "gateway.pf";
    let made = imported(name, Format::Pf);
    let mut pf = Pf::read(&as_translated(name, &made));
    compare(name, &made.policy, true, |batch, _| {
        batch.iter().map(|packet| pf.passes(packet)).collect()
    });
}
