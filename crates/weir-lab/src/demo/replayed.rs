//! The demo without privileges: the traffic of the demo from a committed capture through `weir replay`.
//!
//! The capture was taken in the demo's bed behind both senders, with their offloads off; it names the interfaces box0
//! and box1, by which packets came to weir. See tests/captures/README.md.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use weir_kernel::netns::run_command;

use super::handshakes;
use super::{MSS, POLICY, Stage, ledger, number, rule_packets};
use crate::LabError;
use crate::process::{Running, Scratch, missing};

const CAPTURE: &[u8] = include_bytes!("../../../../tests/captures/demo.pcapng");

/// Shows it; `why` it is not the real thing.
pub(crate) fn show(stage: &mut Stage<'_>, scratch: &Scratch, why: &str) -> Result<(), LabError> {
    stage.say(&format!(
        "replay ({why}): the traffic of the demo from a capture, in the user engine; `sudo make run` shows it on real interfaces"
    ))?;
    stage.say_policy()?;
    let policy = scratch.write("demo.weir", POLICY.as_bytes())?;
    let capture = scratch.write("demo.pcapng", CAPTURE)?;
    let rewritten = scratch.path().join("rewritten.pcap");
    let weir = stage.options.weir.clone();
    let replay = |output: &Path| {
        let mut command = Command::new(&weir);
        command
            .arg("replay")
            .arg(&policy)
            .arg("--in")
            .arg(&capture)
            .arg("--output")
            .arg(output);
        command
    };
    if !stage.options.quiet {
        stage.say("\n$ weir replay demo.weir --in demo.pcapng --output rewritten.pcap")?;
        let mut child = Running::start(
            replay(&rewritten).stdout(Stdio::inherit()),
            "weir replay",
            scratch,
        )?;
        let status = child.wait(std::time::Duration::from_secs(60))?;
        if !status.success() {
            return Err(child.failed(&format!("{status}")));
        }
        stage.say("")?;
    }
    let text = run_command(replay(&rewritten).arg("--json"))?;
    let report: serde_json::Value = serde_json::from_str(&text).map_err(|e| LabError::Child {
        what: "weir replay --json".to_owned(),
        why: format!("no JSON: {e}"),
    })?;

    let (balanced, equation) = ledger(&report);
    stage.check("every packet has one verdict", balanced, equation)?;
    for (name, packets) in rule_packets(&report)
        .into_iter()
        .filter(|(name, _)| name != "shares")
    {
        stage.check(
            format!("rule {name} matched"),
            packets > 0,
            format!("{packets} packets"),
        )?;
    }
    let drops = number(&report, "/packets/drop");
    let by_rule = number(&report, "/reasons/rule_drop");
    stage.check(
        "only the firewall dropped",
        drops == by_rule && drops > 0,
        format!("{drops} dropped, {by_rule} by rules"),
    )?;
    if !missing(&["tcpdump"]).is_empty() {
        return stage.say("  tcpdump is not installed: checksums and options of the rewritten packets were not judged");
    }
    if !fs::exists(&rewritten).unwrap_or(false) {
        return stage.check("the rewritten packets are in a capture", false, "no file");
    }
    let decoded = handshakes::decode(&rewritten)?;
    stage.check(
        "checksums of the rewritten packets, judged by tcpdump",
        decoded.wrong == 0 && decoded.right > 0,
        format!("{} right, {} wrong", decoded.right, decoded.wrong),
    )?;
    let normal = decoded
        .handshakes
        .iter()
        .filter(|h| h.is_normal(MSS))
        .count();
    stage.check(
        format!("handshakes have only MSS {MSS} and window scale"),
        normal == decoded.handshakes.len() && normal > 0,
        format!("{normal} of {}", decoded.handshakes.len()),
    )?;
    let web = decoded
        .handshakes
        .iter()
        .filter(|h| !h.answer && h.to == 80)
        .count();
    let strays = decoded
        .handshakes
        .iter()
        .filter(|h| !h.answer && matches!(h.to, 8080 | 23))
        .count();
    stage.check(
        "clients' handshakes go to port 80",
        web > 0 && strays == 0,
        format!("{web} to port 80, {strays} to ports 8080 and 23"),
    )
}
