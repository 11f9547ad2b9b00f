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
/// For rule sets that bite in the first packets of an address.
const FEWER: usize = 30_000;
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
    theirs: impl FnMut(&[Packet], &[(usize, Vec<u8>)]) -> Vec<bool>,
) {
    compare_some(name, policy, six_too, PACKETS, None, theirs);
}

/// A packet as it was judged: interface, bytes, time, and whether it passed.
type Judged = (usize, Vec<u8>, u64, bool);

/// The same for so many packets, which are kept.
fn compare_some(
    name: &str,
    policy: &str,
    six_too: bool,
    packets: usize,
    mut kept: Option<&mut Vec<Judged>>,
    mut theirs: impl FnMut(&[Packet], &[(usize, Vec<u8>)]) -> Vec<bool>,
) {
    let mut weir = Weir::new(name, policy);
    let mut numbers = Numbers(2026);
    let mut asked: Vec<Packet> = Vec::new();
    let (mut compared, mut passed, mut answers) = (0, 0, 0);
    let mut differences: BTreeMap<String, (usize, String)> = BTreeMap::new();
    while compared < packets {
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
            if let Some(kept) = &mut kept {
                kept.push((*interface, frame.clone(), now_ns, theirs));
            }
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

/// Limits and sets that packets fill: verdicts depend on all packets before, so a difference shows in those behind it.
#[test]
fn what_counts_packets_judges_as_its_translation_does() {
    for (name, format, program, arguments) in [
        ("guard.nft", Format::Nft, "nft", &["-f", "-"][..]),
        (
            "guard.iptables-save",
            Format::IptablesSave,
            "iptables-nft-restore",
            &[],
        ),
    ] {
        if !can_ask(program) {
            return;
        }
        let made = imported(name, format);
        let router = kernel();
        router.feed(program, arguments, &as_translated(name, &made));
        let mut kept = Vec::new();
        let six_too = format == Format::Nft;
        let theirs = |_: &[Packet], frames: &[(usize, Vec<u8>)]| router.passed(frames);
        compare_some(name, &made.policy, six_too, FEWER, Some(&mut kept), theirs);
        // What each line of the file counts or puts into a set is needed for that.
        let has_memory = |line: &str| {
            // That a time is renewed shows only when the first is over.
            let renews = line.contains("ip-saddr in @KNOCK2 add @KNOCK2");
            let targets = ["drop over", " add @", " delete @"];
            !renews && !line.starts_with('#') && targets.iter().any(|target| line.contains(target))
        };
        let mut needed = 0;
        for block in made
            .policy
            .split("\n\n")
            .filter(|block| block.lines().any(has_memory))
        {
            let kept_lines: Vec<&str> = block.lines().filter(|line| !has_memory(line)).collect();
            let mut weir = Weir::new(name, &made.policy.replace(block, &kept_lines.join("\n")));
            let differs = kept.iter().any(|(interface, frame, now_ns, passed)| {
                (weir.judge(*interface, frame, *now_ns).0 == Verdict::Pass) != *passed
            });
            assert!(differs, "{name}: no packet shows {block}");
            needed += 1;
        }
        assert!(needed >= 9, "{name}: {needed}");
    }
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
