//! The established sensor in the same run: Suricata, where it is installed or named. It reads the same capture with the same rules in one packet thread; what counts is the CPU time of that
//! thread, without loading, from `/proc`. Its own configuration is used, with its outputs cut to what the bench's sensors write: alerts and counters.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::LabError;
use crate::process::Scratch;

/// How often the clocks of its threads are read.
const POLL: Duration = Duration::from_millis(2);
/// Where distributions install its configuration.
const CONFIGURATION: &str = "/etc/suricata/suricata.yaml";
const OUTPUTS: &str = "outputs:
  - eve-log:
      enabled: yes
      filetype: regular
      filename: eve.json
      types:
        - alert
        - stats:
            totals: yes
            threads: no
";

/// The peer, ready to run.
pub(super) struct Peer {
    program: PathBuf,
    configuration: PathBuf,
    rules: PathBuf,
    capture: PathBuf,
    folder: PathBuf,
}

/// What a run took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Took {
    pub(super) packets: u64,
    pub(super) alerts: u64,
    /// CPU time of the packet thread.
    pub(super) cpu_s: f64,
}

impl Peer {
    /// Prepares it. `None`: it is not installed, and was not asked for by name.
    pub(super) fn new(
        program: Option<&Path>,
        configuration: Option<&Path>,
        (rules, capture): (&[PathBuf], &Path),
        scratch: &Scratch,
    ) -> Result<Option<Peer>, LabError> {
        let named = program.is_some();
        let program = program.unwrap_or(Path::new("suricata"));
        let there = Command::new(program)
            .arg("-V")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        match there {
            Ok(status) if status.success() => {}
            Ok(_) | Err(_) if !named && configuration.is_some() => {
                return Err(failed(
                    "--peer-config without a peer: `suricata` is not installed, and no --peer names it",
                ));
            }
            Ok(_) | Err(_) if !named => return Ok(None),
            Ok(status) => return Err(failed(&format!("`{} -V`: {status}", program.display()))),
            Err(e) => return Err(failed(&format!("{}: {e}", program.display()))),
        }
        let stock = configuration.unwrap_or(Path::new(CONFIGURATION));
        let text =
            fs::read_to_string(stock).map_err(LabError::io(format!("read {}", stock.display())))?;
        let folder = scratch.path().join("peer");
        fs::create_dir_all(&folder)
            .map_err(LabError::io(format!("create {}", folder.display())))?;
        let mut all = Vec::new();
        for file in rules {
            let bytes = fs::read(file).map_err(LabError::io(format!("read {}", file.display())))?;
            all.extend(bytes);
            all.push(b'\n');
        }
        Ok(Some(Peer {
            program: program.to_path_buf(),
            configuration: scratch.write("peer.yaml", with_outputs(&text).as_bytes())?,
            rules: scratch.write("peer.rules", &all)?,
            capture: capture.to_path_buf(),
            folder,
        }))
    }

    /// Its version, as it says it.
    pub(super) fn version(&self) -> String {
        let said = Command::new(&self.program).arg("-V").output();
        let said = said.map(|o| o.stdout).unwrap_or_default();
        String::from_utf8_lossy(&said).trim().to_owned()
    }

    pub(super) fn run(&self) -> Result<Took, LabError> {
        let eve = self.folder.join("eve.json");
        // Logs are appended to.
        let _ = fs::remove_file(&eve);
        let mut child = Command::new(&self.program)
            .arg("-c")
            .arg(&self.configuration)
            .arg("-S")
            .arg(&self.rules)
            .arg("-r")
            .arg(&self.capture)
            .args(["-k", "none", "--runmode", "single", "-l"])
            .arg(&self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(LabError::io("start the peer"))?;
        let tasks = PathBuf::from(format!("/proc/{}/task", child.id()));
        let mut cpu_s = 0.0;
        let status = loop {
            // A clock that cannot be read any more keeps its last value.
            if let Some(now) = packet_thread(&tasks) {
                cpu_s = now;
            }
            match child
                .try_wait()
                .map_err(LabError::io("wait for the peer"))?
            {
                Some(status) => break status,
                None => thread::sleep(POLL),
            }
        };
        if !status.success() {
            return Err(failed(&format!("it ended with {status}")));
        }
        let log = fs::read_to_string(&eve).map_err(LabError::io("read the peer's log"))?;
        let (packets, alerts) = counted(&log);
        if packets == 0 || cpu_s == 0.0 {
            return Err(failed("it read no packet, or has no packet thread `W#01`"));
        }
        Ok(Took {
            packets,
            alerts,
            cpu_s,
        })
    }
}

fn failed(why: &str) -> LabError {
    LabError::Child {
        what: "the peer".to_owned(),
        why: why.to_owned(),
    }
}

/// CPU time of the packet thread so far, s.
fn packet_thread(tasks: &Path) -> Option<f64> {
    fs::read_dir(tasks).ok()?.flatten().find_map(|task| {
        let name = fs::read_to_string(task.path().join("comm")).ok()?;
        if !name.starts_with("W#") {
            return None;
        }
        let times = fs::read_to_string(task.path().join("schedstat")).ok()?;
        let ns: f64 = times.split(' ').next()?.parse().ok()?;
        Some(ns / 1e9)
    })
}

/// Packets and alerts of its log.
fn counted(log: &str) -> (u64, u64) {
    let (mut packets, mut alerts) = (0, 0);
    for line in log.lines() {
        let Ok(record) = serde_json::from_str::<serde_json::Value>(line) else {
            continue;
        };
        match record["event_type"].as_str() {
            Some("alert") => alerts += 1,
            Some("stats") => {
                packets = record["stats"]["decoder"]["pkts"]
                    .as_u64()
                    .unwrap_or(packets)
            }
            _ => {}
        }
    }
    (packets, alerts)
}

/// The configuration with these outputs instead of its own.
fn with_outputs(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut within = false;
    for line in text.lines() {
        let key = line.starts_with(|c: char| c.is_ascii_lowercase());
        if key {
            within = line.starts_with("outputs:");
        }
        if !within {
            out.push_str(line);
            out.push('\n');
        }
    }
    out.push_str(OUTPUTS);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_cut_to_alerts_and_counters() {
        let text = "%YAML 1.1\n---\nvars:\n  a: 1\noutputs:\n  - fast:\n      enabled: yes\n# note\nlogging:\n  x: 2\n";
        let cut = with_outputs(text);
        assert!(!cut.contains("fast"), "{cut}");
        for part in ["%YAML", "  a: 1", "logging:\n  x: 2", "eve-log"] {
            assert!(cut.contains(part), "{part}: {cut}");
        }
        assert_eq!(cut.matches("outputs:").count(), 1);
    }

    #[test]
    fn its_log_says_packets_and_alerts() {
        let log = "{\"event_type\":\"alert\"}\nbroken\n{\"event_type\":\"stats\",\"stats\":{\"decoder\":{\"pkts\":7}}}\n{\"event_type\":\"alert\"}\n";
        assert_eq!(counted(log), (7, 2));
    }

    #[test]
    fn a_program_that_is_named_must_be_there() {
        let scratch = Scratch::create("weir-peer").expect("a folder");
        let none = Path::new("/nonexistent/peer");
        let input: (&[PathBuf], &Path) = (&[], Path::new("none.pcap"));
        assert!(Peer::new(Some(none), None, input, &scratch).is_err());
    }
}
