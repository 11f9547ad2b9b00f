//! `weir check` on 100,000 rules: what is deterministic is asserted, the time is printed.
//!
//! The sets are written here: five-tuples from a fixed generator, and the ClassBench sets of the test data, in
//! weir's language, when they are there.

use std::fmt::Write as _;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common;
use crate::common::{Folder, WEIR};

/// Bytes of resident memory that 100,000 rules may take.
const MOST_MEMORY: u64 = 500 << 20;

#[test]
fn one_hundred_thousand_five_tuples() {
    let folder = Folder::new();
    let targets = ["drop", "accept", "mod ip-dscp 10"];
    let file = folder.write("tuples.weir", five_tuples(100_000, "", targets));
    judge("five-tuples", &file, 100_000);
}

#[test]
fn one_hundred_thousand_stateful_rules() {
    let folder = Folder::new();
    let targets = [
        "accept timeout 1h",
        "map ip-saddr 198.51.100.0/24",
        "map ip-daddr 192.0.2.1 shuffle ip-id",
    ];
    let file = folder.write("nat.weir", five_tuples(100_000, "add-stateful ", targets));
    judge("stateful five-tuples", &file, 100_000);
}

#[test]
fn classbench_sets() {
    let Some(sets) = weir_testdata::find("classbench") else {
        return;
    };
    for name in ["acl1_100000", "fw1_100000", "ipc1_100000"] {
        let file = sets.join(format!("{name}.gz"));
        let rules = match Command::new("gzip").arg("-dc").arg(&file).output() {
            Ok(output) if output.status.success() => {
                String::from_utf8_lossy(&output.stdout).into_owned()
            }
            other => panic!("cannot unpack {}: {other:?}", file.display()),
        };
        let policy = translated(&rules);
        let count = policy.lines().count();
        assert!(count > 50_000, "{name} has {count} rules");
        let folder = Folder::new();
        let file = folder.write("set.weir", policy);
        judge(name, &file, count);
    }
}

fn judge(name: &str, file: &Path, rules: usize) {
    // Into a file: a long report would fill a pipe that nobody reads.
    let folder = Folder::new();
    let report = folder.join("report.json");
    let output = File::create(&report).expect("temporary files can be written");
    let started = Instant::now();
    let mut child = Command::new(WEIR)
        .args(["check", "--json"])
        .arg(file)
        .stdin(Stdio::null())
        .stdout(output)
        .spawn()
        .expect("weir starts");
    // The peak is read while the process lives: the last reading before it ends counts.
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    let exit = loop {
        peak = peak.max(high_water(&status).unwrap_or(0));
        if let Some(exit) = child.try_wait().expect("weir can be waited for") {
            break exit;
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let elapsed = started.elapsed();
    common::say(&format!(
        "weir check, {name}: {rules} rules, {:.2} s, {} MB{}",
        elapsed.as_secs_f64(),
        peak >> 20,
        if cfg!(debug_assertions) {
            " (debug build)"
        } else {
            ""
        }
    ));
    let text = std::fs::read_to_string(&report).expect("the report was written");
    let report: serde_json::Value = serde_json::from_str(&text).expect("the report is JSON");
    let shown: String = text.chars().take(400).collect();
    assert!(exit.success(), "{name}: {exit}: {shown}");
    assert_eq!(report["policies"][0]["rules"], rules);
    assert!(peak > 0 && peak < MOST_MEMORY, "{peak} bytes");
}

/// `VmHWM` of a process in bytes.
fn high_water(status: &str) -> Option<u64> {
    let text = std::fs::read_to_string(status).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

/// Distinct rules of source, destination, both ports and protocol.
fn five_tuples(count: u32, prefix: &str, targets: [&str; 3]) -> String {
    let mut text = String::new();
    // Knuth's multiplicative hash: distinct for distinct numbers.
    for n in 0..count {
        let mixed = n.wrapping_mul(2_654_435_761);
        let [a, b, c, d] = mixed.to_be_bytes();
        let [.., e, f] = n.to_be_bytes();
        let protocol = if n % 2 == 0 { "tcp" } else { "udp" };
        let target = targets[n as usize % 3];
        let _ = writeln!(
            text,
            "{prefix}ip-saddr {a}.{b}.{c}.{d} ip-daddr 10.{f}.{e}.{} {protocol}-sport {} {protocol}-dport {} {target}",
            n % 251,
            1024 + n % 60_000,
            1 + mixed % 65_535,
        );
    }
    text
}

/// ClassBench filters in weir's language: addresses, port ranges and protocol; flags are left out.
fn translated(filters: &str) -> String {
    let mut text = String::new();
    for line in filters.lines() {
        let Some(fields) = line.strip_prefix('@') else {
            continue;
        };
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let [
            source,
            destination,
            slow,
            _,
            shigh,
            dlow,
            _,
            dhigh,
            protocol,
            ..,
        ] = fields[..]
        else {
            continue;
        };
        let before = text.len();
        for (field, prefix) in [("ip-saddr", source), ("ip-daddr", destination)] {
            if !prefix.ends_with("/0") {
                let _ = write!(text, "{field} {prefix} ");
            }
        }
        let ports = match protocol {
            "0x06/0xFF" => Some("tcp"),
            "0x11/0xFF" => Some("udp"),
            "0x00/0x00" => None,
            other => {
                let number = other.split('/').next().unwrap_or_default();
                let _ = write!(text, "ip-proto {number} ");
                None
            }
        };
        if let Some(ports) = ports {
            let mut any = true;
            for (field, low, high) in [("sport", slow, shigh), ("dport", dlow, dhigh)] {
                if (low, high) != ("0", "65535") {
                    any = false;
                    let range = if low == high {
                        low.to_owned()
                    } else {
                        format!("{low}-{high}")
                    };
                    let _ = write!(text, "{ports}-{field} {range} ");
                }
            }
            if any {
                let _ = write!(text, "ip-proto {ports} ");
            }
        }
        if text.len() == before {
            text.push_str("all ");
        }
        text.push_str("drop\n");
    }
    text
}
