//! The sensor as a process of its own that runs when it is told to, so that its memory is its own and rules are loaded once for many rounds. One line of JSON asks, one answers.
//!
//! Both ends are here: [`Part`] is the asking one, [`serve`] the answering one (`weir bench sensor-part`).

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use weir_sensor::config::{Checksums, Kinds, SensorConfig, Verified};
use weir_sensor::detect;
use weir_sensor::load::book;
use weir_sensor::matcher;
use weir_sensor::rules::{Dialect, Variables};
use weir_sensor::run::{Controls, Say, Setup, run};
use weir_sensor::settings::Settings;
use weir_sensor::source::{FileOptions, Files};
use weir_sensor::stages::{Upto, pass};
use weir_sensor::worker::Engine;

use crate::LabError;

/// Which of the rules are loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Keep {
    None,
    One(u32, u32),
    /// Those that are decided on packets.
    Packets,
    /// Those, and those of streams.
    PacketsAndStreams,
    #[default]
    All,
}

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Logs {
    None,
    /// Alerts and counters as EVE.
    Alerts,
    /// All records as EVE, and fast.log: what a sensor writes if nobody says otherwise.
    All,
}

/// What a part is about; the first line that it is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Job {
    pub(super) capture: PathBuf,
    pub(super) rules: Vec<PathBuf>,
    pub(super) keep: Keep,
    pub(super) automaton: bool,
    pub(super) logs: Logs,
    /// Every address is at home and abroad: no rule is left out for the addresses that it names by variables.
    pub(super) open: bool,
    pub(super) folder: PathBuf,
}

/// What loading took.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Loaded {
    pub(super) rules: usize,
    pub(super) refused: usize,
    pub(super) read_s: f64,
    pub(super) compile_s: f64,
    /// The most memory so far.
    pub(super) peak_mb: f64,
}

/// Stages before detection, by the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Stage {
    Read,
    Spread,
    Decode,
    Defragment,
    Streams,
    Apps,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Ask {
    /// The whole sensor with so many workers.
    Run(usize),
    /// The first stages only.
    Pass(Stage),
}

/// What a run took and found.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Ran {
    pub(super) frames: u64,
    /// On the wire.
    pub(super) bytes: u64,
    pub(super) cpu_s: f64,
    pub(super) wall_s: f64,
    pub(super) peak_mb: f64,
    /// Frames for which the ledger has no end.
    pub(super) unaccounted: i64,
    /// By `gid:sid`.
    pub(super) alerts: BTreeMap<String, u64>,
    /// The lines of all alerts, in whatever order.
    pub(super) digest: u64,
}

#[derive(Serialize, Deserialize)]
enum Answer<T> {
    Done(T),
    Failed(String),
}

/// A running part.
pub(super) struct Part {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    pub(super) loaded: Loaded,
}

impl Part {
    /// Starts it and waits until its rules are loaded.
    pub(super) fn start(weir: &Path, job: &Job) -> Result<Part, LabError> {
        std::fs::create_dir_all(&job.folder)
            .map_err(LabError::io(format!("create {}", job.folder.display())))?;
        let mut child = Command::new(weir)
            .args(["bench", "sensor-part"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(LabError::io("start a sensor of the bench"))?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(failed("has no pipes"));
        };
        let mut part = Part {
            child,
            to: Some(to),
            from: BufReader::new(from),
            loaded: Loaded {
                rules: 0,
                refused: 0,
                read_s: 0.0,
                compile_s: 0.0,
                peak_mb: 0.0,
            },
        };
        part.loaded = part.ask(job)?;
        Ok(part)
    }

    /// Runs the whole sensor.
    pub(super) fn run(&mut self, workers: usize) -> Result<Ran, LabError> {
        let ran: Ran = self.ask(&Ask::Run(workers))?;
        if ran.unaccounted != 0 {
            return Err(failed(&format!(
                "{} frames ended in no counter",
                ran.unaccounted
            )));
        }
        Ok(ran)
    }

    /// Runs the first stages.
    pub(super) fn pass(&mut self, stage: Stage) -> Result<Ran, LabError> {
        self.ask(&Ask::Pass(stage))
    }

    fn ask<T: DeserializeOwned>(&mut self, what: &impl Serialize) -> Result<T, LabError> {
        let mut line = serde_json::to_string(what).map_err(|e| failed(&e.to_string()))?;
        line.push('\n');
        let Some(to) = &mut self.to else {
            return Err(failed("is not asked any more"));
        };
        to.write_all(line.as_bytes())
            .and_then(|()| to.flush())
            .map_err(LabError::io("ask a sensor of the bench"))?;
        line.clear();
        self.from
            .read_line(&mut line)
            .map_err(LabError::io("hear a sensor of the bench"))?;
        if line.is_empty() {
            return Err(failed("ended early"));
        }
        match serde_json::from_str(&line).map_err(|e| failed(&e.to_string()))? {
            Answer::Done(answer) => Ok(answer),
            Answer::Failed(why) => Err(failed(&why)),
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // At the end of its input it ends; one that is in the middle of a run is not waited for.
        self.to = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn failed(why: &str) -> LabError {
    LabError::Child {
        what: "a sensor of the bench".to_owned(),
        why: why.to_owned(),
    }
}

/// Answers until the input ends.
///
/// # Errors
/// Reading or writing fails; what goes wrong with the sensor is an answer.
pub fn serve(input: &mut dyn BufRead, output: &mut dyn Write) -> Result<(), LabError> {
    let mut line = String::new();
    input
        .read_line(&mut line)
        .map_err(LabError::io("read what to run"))?;
    let loaded = serde_json::from_str::<Job>(&line)
        .map_err(|e| e.to_string())
        .and_then(Bed::load);
    let bed = match loaded {
        Ok((bed, loaded)) => {
            answer(output, Ok(loaded))?;
            bed
        }
        Err(why) => return answer::<Loaded>(output, Err(why)),
    };
    loop {
        line.clear();
        let read = input.read_line(&mut line);
        if read.map_err(LabError::io("read what to run"))? == 0 {
            return Ok(());
        }
        let ran = match serde_json::from_str(&line) {
            Ok(Ask::Run(workers)) => bed.run(workers),
            Ok(Ask::Pass(stage)) => bed.pass(stage),
            Err(e) => Err(e.to_string()),
        };
        answer(output, ran)?;
    }
}

fn answer<T: Serialize>(output: &mut dyn Write, what: Result<T, String>) -> Result<(), LabError> {
    let answer = match what {
        Ok(done) => Answer::Done(done),
        Err(why) => Answer::Failed(why),
    };
    let line = serde_json::to_string(&answer).map_err(|e| failed(&e.to_string()))?;
    writeln!(output, "{line}")?;
    output.flush()?;
    Ok(())
}

/// A configuration with rules, loaded.
struct Bed {
    job: Job,
    config: SensorConfig,
    engine: Arc<Engine>,
}

/// What `HOME_NET` is where a part is not told otherwise.
pub(super) fn home() -> String {
    let variables = Variables::conventional();
    let home = variables.addresses.get("HOME_NET");
    home.cloned().unwrap_or_default()
}

/// The configuration of all parts: checksums are not looked at, since captures are often taken before a device writes them.
pub(super) fn config(logs: Logs) -> Result<SensorConfig, String> {
    let mut config =
        SensorConfig::from_settings(&Settings::default()).map_err(|e| e.to_string())?;
    config.checksums = Checksums::all(Verified::None);
    match logs {
        Logs::All => {}
        Logs::None => (config.logs.eve, config.logs.fast) = (Vec::new(), None),
        Logs::Alerts => {
            config.logs.fast = None;
            config.logs.kinds = Kinds {
                alert: true,
                flow: false,
                stats: true,
                anomaly_decode: false,
                anomaly_stream: false,
                anomaly_app: false,
                files: false,
                apps: Some(Vec::new()),
                ..config.logs.kinds.clone()
            };
            for one in &mut config.logs.eve {
                one.kinds.clone_from(&config.logs.kinds);
            }
        }
    }
    Ok(config)
}

impl Bed {
    fn load(job: Job) -> Result<(Bed, Loaded), String> {
        let mut config = config(job.logs)?;
        if job.open {
            for name in ["HOME_NET", "EXTERNAL_NET"] {
                config.addresses.push((name.to_owned(), "any".to_owned()));
            }
        }
        let kind = if job.automaton {
            matcher::Engine::AhoCorasick
        } else {
            matcher::Engine::Prefilter
        };
        let files: &[PathBuf] = match job.keep {
            Keep::None => &[],
            _ => &job.rules,
        };
        let read =
            |files: &[PathBuf]| book(&config, Dialect::Suricata, files).map_err(|e| e.to_string());
        let mut kept: Option<Vec<(u32, u32)>> = None;
        match &job.keep {
            Keep::None | Keep::All => {}
            Keep::One(gid, sid) => kept = Some(vec![(*gid, *sid)]),
            Keep::Packets | Keep::PacketsAndStreams => {
                // Which part decides a rule is known of compiled ones only.
                let (engine, _) = Engine::new(&config, &mut read(files)?, kind);
                let with_streams = job.keep == Keep::PacketsAndStreams;
                let wanted = |part: Option<detect::Part>| match part {
                    Some(detect::Part::Packets) => true,
                    Some(detect::Part::Streams) => with_streams,
                    Some(detect::Part::Transactions) | None => false,
                };
                kept = Some(
                    engine
                        .parts()
                        .filter(|(_, part)| wanted(*part))
                        .map(|(rule, _)| (rule.gid, rule.sid))
                        .collect(),
                );
            }
        }
        let started = Instant::now();
        let mut book = read(files)?;
        let read_s = started.elapsed().as_secs_f64();
        if let Some(mut kept) = kept {
            kept.sort_unstable();
            book.loaded
                .rules
                .retain(|rule| kept.binary_search(&(rule.gid, rule.sid)).is_ok());
        }
        let refused = book.loaded.refused.len();
        let started = Instant::now();
        let (engine, uncompiled) = Engine::new(&config, &mut book, kind);
        let compile_s = started.elapsed().as_secs_f64();
        drop(book);
        let loaded = Loaded {
            rules: engine.rules(),
            refused: refused + uncompiled.len(),
            read_s,
            compile_s,
            peak_mb: peak_mb(),
        };
        let bed = Bed {
            job,
            config,
            engine: Arc::new(engine),
        };
        Ok((bed, loaded))
    }

    fn source(&self) -> Result<Files, String> {
        let options = FileOptions {
            recursive: false,
            follow: false,
        };
        Files::open(std::slice::from_ref(&self.job.capture), options).map_err(|e| e.to_string())
    }

    fn run(&self, workers: usize) -> Result<Ran, String> {
        let eve = self.job.folder.join("eve.json");
        for log in [&eve, &self.job.folder.join("fast.log")] {
            // Logs are appended to.
            let _ = std::fs::remove_file(log);
        }
        let mut source = self.source()?;
        let setup = Setup {
            config: &self.config,
            engine: Arc::clone(&self.engine),
            workers,
            filter: None,
            logs: self.job.folder.clone(),
            idle: None,
            reload: None,
            say: &|_: Say<'_>| {},
        };
        let (cpu, wall) = (cpu_s(), Instant::now());
        let summary = run(setup, &mut source, &Controls::default()).map_err(|e| e.to_string())?;
        let (cpu_s, wall_s) = (cpu_s() - cpu, wall.elapsed().as_secs_f64());
        if let Some((path, problem)) = summary.problems.first() {
            return Err(format!("{}: {problem}", path.display()));
        }
        Ok(Ran {
            frames: summary.ledger.read,
            bytes: summary.source.wire_bytes,
            cpu_s,
            wall_s,
            peak_mb: peak_mb(),
            unaccounted: i64::try_from(summary.ledger.unaccounted()).unwrap_or(i64::MAX),
            alerts: summary
                .rules
                .iter()
                .map(|((gid, sid), n)| (format!("{gid}:{sid}"), *n))
                .collect(),
            digest: match self.job.logs {
                Logs::None => 0,
                Logs::Alerts | Logs::All => digest(&eve)?,
            },
        })
    }

    fn pass(&self, stage: Stage) -> Result<Ran, String> {
        let upto = match stage {
            Stage::Read => Upto::Read,
            Stage::Spread => Upto::Spread,
            Stage::Decode => Upto::Decode,
            Stage::Defragment => Upto::Defragment,
            Stage::Streams => Upto::Streams,
            Stage::Apps => Upto::Apps,
        };
        let mut source = self.source()?;
        let (cpu, wall) = (cpu_s(), Instant::now());
        let passed = pass(&self.config, &self.engine, &mut source, upto);
        let passed = passed.map_err(|e| e.to_string())?;
        Ok(Ran {
            frames: passed.frames,
            cpu_s: cpu_s() - cpu,
            wall_s: wall.elapsed().as_secs_f64(),
            peak_mb: peak_mb(),
            ..Ran::default()
        })
    }
}

/// CPU time of all threads of this process so far, s.
fn cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The most memory that this process has had, MB; 0 where the system does not tell.
fn peak_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let kb = line.and_then(|l| l.trim().trim_end_matches("kB").trim().parse::<f64>().ok());
    kb.unwrap_or(0.0) / 1024.0
}

/// A number for the alerts of a log that does not depend on their order.
fn digest(eve: &Path) -> Result<u64, String> {
    let wrong = |e: std::io::Error| format!("{}: {e}", eve.display());
    let mut reader = BufReader::new(std::fs::File::open(eve).map_err(wrong)?);
    let mut line = Vec::new();
    let mut sum = 0_u64;
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line).map_err(wrong)? == 0 {
            return Ok(sum);
        }
        if line
            .windows(b"\"event_type\":\"alert\"".len())
            .any(|w| w == b"\"event_type\":\"alert\"")
        {
            // FNV-1a.
            let hash = line.iter().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| {
                (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3)
            });
            sum = sum.wrapping_add(hash);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_job_is_answered_and_ends_it() {
        let mut output = Vec::new();
        serve(&mut &b"{}\n"[..], &mut output).expect("memory");
        let text = String::from_utf8(output).expect("JSON");
        assert!(
            text.starts_with("{\"Failed\":") && text.contains("capture"),
            "{text}"
        );
    }
}
