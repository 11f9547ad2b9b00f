//! The accuracy suite of the sensor: captures of attacks and of normal usage, made here, and which rules of `examples/sensor/accuracy.rules` must fire on each, how often, and that
//! no other one does. Classes are those of the attack framework that the paper on sensors at 100 Gbit/s uses.
//!
//! What must fire is written beside each case, from what the attack is and from published behaviour of receivers, not from what the sensor said. Every case runs with one worker,
//! with three, and with the other matching engine; the same must come out.

mod attacks;
mod evasion;
mod rest;
mod tape;

use std::collections::BTreeMap;
use std::fs;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use weir_sensor::config::SensorConfig;
use weir_sensor::load::{book, named};
use weir_sensor::matcher;
use weir_sensor::rules::Dialect;
use weir_sensor::run::{Controls, Setup, run as run_sensor};
use weir_sensor::settings::Settings;
use weir_sensor::source::{FileOptions, Files};
use weir_sensor::worker::Engine;

use crate::LabError;
use crate::process::Scratch;
use tape::Tape;

/// The rules, so that the suite works from any folder.
const RULES: &str = include_str!("../../../../examples/sensor/accuracy.rules");
/// What all cases are run with.
const SETTINGS: [&str; 2] = [
    "vars.address-groups.HOME_NET=10.0.0.0/8",
    "vars.address-groups.EXTERNAL_NET=!10.0.0.0/8",
];
/// Where cases and what is expected of them are listed in a kept folder.
const LIST: &str = "cases.json";

/// A class of the attack framework.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// What a browser or mail program is given.
    ClientSide,
    /// What no system sends.
    BadTraffic,
    /// Datagrams in pieces.
    Fragments,
    /// Attacks written so that a sensor may misread them.
    Evasion,
    /// Code in payloads.
    ShellCodes,
    /// Floods.
    DenialOfService,
    /// Passwords tried.
    BruteForce,
    /// Ports of nobody, and attacks of several steps.
    Traps,
    /// Probes that every sensor knows.
    TestRules,
    /// A capture of malicious traffic, replayed in several ways.
    Replay,
    /// Nothing may be found.
    Normal,
}

impl Class {
    /// As tables name it.
    pub fn name(self) -> &'static str {
        match self {
            Class::ClientSide => "client side",
            Class::BadTraffic => "bad traffic",
            Class::Fragments => "fragments",
            Class::Evasion => "evasion",
            Class::ShellCodes => "shell codes",
            Class::DenialOfService => "denial of service",
            Class::BruteForce => "brute force",
            Class::Traps => "traps",
            Class::TestRules => "test rules",
            Class::Replay => "replay",
            Class::Normal => "normal usage",
        }
    }
}

/// A capture and what must be found in it.
#[derive(Clone, Debug)]
struct Case {
    class: Class,
    name: String,
    tape: Tape,
    settings: Vec<String>,
    /// Alerts by rule; of all others none.
    expected: BTreeMap<u32, u64>,
}

fn case(class: Class, name: &str, tape: Tape) -> Case {
    Case {
        class,
        name: name.to_owned(),
        tape,
        settings: Vec::new(),
        expected: BTreeMap::new(),
    }
}

impl Case {
    /// A rule fires so often; 0 is no rule.
    fn fires(mut self, sid: u32, times: u64) -> Case {
        if sid != 0 {
            *self.expected.entry(sid).or_default() += times;
        }
        self
    }

    fn set(mut self, setting: &str) -> Case {
        self.settings.push(setting.to_owned());
        self
    }

    /// The name of its folder.
    fn folder(&self, number: usize) -> String {
        let mut name = format!("{number:03}-{}-", self.class.name());
        name.push_str(&self.name);
        let mut clean = String::new();
        for c in name.chars() {
            if c.is_ascii_alphanumeric() {
                clean.push(c.to_ascii_lowercase());
            } else if !clean.ends_with('-') {
                clean.push('-');
            }
        }
        clean.trim_end_matches('-').to_owned()
    }
}

fn cases() -> Vec<Case> {
    [
        attacks::client_side(),
        attacks::bad_traffic(),
        attacks::fragmented(),
        evasion::streams(),
        evasion::applications(),
        attacks::shell_codes(),
        attacks::denial_of_service(),
        attacks::brute_force(),
        rest::traps(),
        rest::test_rules(),
        rest::replays(),
        rest::normal(),
    ]
    .concat()
}

/// What to do.
#[derive(Debug, Default)]
pub struct AccuracyOptions {
    /// Keep captures, rules, what is expected and logs in this folder.
    pub keep: Option<PathBuf>,
    /// Run no sensor: judge the logs that one left in this folder.
    pub judge: Option<PathBuf>,
    /// Hold the captures of normal usage to these rules as well, and say how many alerts they give.
    pub rules: Vec<PathBuf>,
}

/// A case and what came out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Its class.
    pub class: Class,
    /// What it is.
    pub case: String,
    /// Its folder, if cases are kept.
    pub folder: String,
    /// Settings beside those that all have, as `--set` takes them.
    pub settings: Vec<String>,
    /// Alerts by rule that must be there; no others may.
    pub expected: BTreeMap<u32, u64>,
    /// Alerts by rule.
    #[serde(default)]
    pub seen: BTreeMap<u32, u64>,
    /// What is wrong beside that, if anything.
    #[serde(default)]
    pub wrong: Option<String>,
}

impl Row {
    /// Whether all is as it must be.
    pub fn ok(&self) -> bool {
        self.seen == self.expected && self.wrong.is_none()
    }
}

/// What a suite found.
#[derive(Clone, Debug, Serialize)]
pub struct AccuracyOutcome {
    /// All cases, by class.
    pub rows: Vec<Row>,
    /// Rules that were loaded.
    pub rules: usize,
    /// Alerts of the rules named beside the suite's own on normal usage, by rule; and how many rules those are.
    pub others: Option<(usize, BTreeMap<u32, u64>)>,
}

impl AccuracyOutcome {
    /// Whether every case is as it must be.
    pub fn ok(&self) -> bool {
        self.rows.iter().all(Row::ok)
    }
}

fn io_error<'a>(what: &str, path: &'a Path) -> impl Fn(std::io::Error) -> LabError + 'a {
    let what = format!("{what} {}", path.display());
    move |source| LabError::Io {
        what: what.clone(),
        source,
    }
}

fn broken(what: &str, why: impl std::fmt::Display) -> LabError {
    LabError::Child {
        what: what.to_owned(),
        why: why.to_string(),
    }
}

/// Runs the suite, or judges what another run left.
///
/// # Errors
/// Files cannot be written or read, or the sensor cannot run; a case that fails is no error.
pub fn accuracy(options: &AccuracyOptions) -> Result<AccuracyOutcome, LabError> {
    if let Some(folder) = &options.judge {
        return judge(folder);
    }
    let scratch;
    let folder: &Path = match &options.keep {
        Some(folder) => {
            fs::create_dir_all(folder).map_err(io_error("make", folder))?;
            folder
        }
        None => {
            scratch = Scratch::create("weir-accuracy")?;
            scratch.path()
        }
    };
    let rules = folder.join("accuracy.rules");
    fs::write(&rules, RULES).map_err(io_error("write", &rules))?;
    let mut bench = Bench::new(rules);
    let mut rows = Vec::new();
    let mut normal = Vec::new();
    for (number, case) in cases().into_iter().enumerate() {
        let mut row = Row {
            class: case.class,
            folder: case.folder(number + 1),
            settings: case.settings.clone(),
            expected: case.expected.clone(),
            seen: BTreeMap::new(),
            wrong: None,
            case: case.name,
        };
        let own = folder.join(&row.folder);
        fs::create_dir_all(&own).map_err(io_error("make", &own))?;
        let capture = own.join("capture.pcap");
        let file = fs::File::create(&capture).map_err(io_error("write", &capture))?;
        case.tape
            .write(BufWriter::new(file))
            .map_err(io_error("write", &capture))?;
        bench.run(&capture, &own, &mut row)?;
        if case.class == Class::Normal {
            normal.push(capture);
        }
        rows.push(row);
    }
    let others = match options.rules.is_empty() {
        true => None,
        false => Some(hold(&normal, &options.rules, folder)?),
    };
    if options.keep.is_some() {
        keep(folder, &rows)?;
    }
    Ok(AccuracyOutcome {
        rows,
        rules: bench.rules_loaded,
        others,
    })
}

/// Engines by what they were told, so that rules are compiled once for each.
struct Bench {
    rules: PathBuf,
    engines: BTreeMap<(Vec<String>, bool), (SensorConfig, Arc<Engine>)>,
    rules_loaded: usize,
}

impl Bench {
    fn new(rules: PathBuf) -> Bench {
        Bench {
            rules,
            engines: BTreeMap::new(),
            rules_loaded: 0,
        }
    }

    fn engine(
        &mut self,
        settings: &[String],
        oracle: bool,
    ) -> Result<(SensorConfig, Arc<Engine>), LabError> {
        let key = (settings.to_vec(), oracle);
        if let Some((config, engine)) = self.engines.get(&key) {
            return Ok((config.clone(), Arc::clone(engine)));
        }
        let (config, engine) = load(settings, std::slice::from_ref(&self.rules), oracle, true)?;
        self.rules_loaded = engine.rules();
        let engine = Arc::new(engine);
        self.engines
            .insert(key, (config.clone(), Arc::clone(&engine)));
        Ok((config, engine))
    }

    /// Runs a case three ways.
    fn run(&mut self, capture: &Path, logs: &Path, row: &mut Row) -> Result<(), LabError> {
        for (how, workers, oracle) in [
            ("one worker", 1, false),
            ("three workers", 3, false),
            ("aho-corasick", 1, true),
        ] {
            let (config, engine) = self.engine(&row.settings, oracle)?;
            for name in ["eve.json", "fast.log"] {
                // What an earlier suite left there would be appended to.
                let _ = fs::remove_file(logs.join(name));
            }
            sense(
                &[capture.to_path_buf()],
                &config,
                engine,
                workers,
                logs,
                &row.case,
            )?;
            let path = logs.join("eve.json");
            let seen = alerts(&fs::read_to_string(&path).map_err(io_error("read", &path))?);
            if how == "one worker" {
                row.seen = seen;
            } else if seen != row.seen {
                row.wrong = Some(format!("with {how}: {}", list(&seen)));
            }
        }
        Ok(())
    }
}

/// Rules with a configuration. `whole`: none may be refused.
fn load(
    settings: &[String],
    rules: &[PathBuf],
    oracle: bool,
    whole: bool,
) -> Result<(SensorConfig, Engine), LabError> {
    let mut all = Settings::default();
    for setting in SETTINGS
        .into_iter()
        .chain(settings.iter().map(String::as_str))
    {
        all.set(setting).map_err(|e| broken("settings", e))?;
    }
    let config = SensorConfig::from_settings(&all).map_err(|e| broken("settings", e))?;
    let mut book = book(&config, Dialect::Suricata, rules).map_err(|e| broken("rules", e))?;
    if whole && let Some(refused) = book.loaded.refused.first() {
        return Err(broken("rules", refused.explain()));
    }
    let matcher = match oracle {
        true => matcher::Engine::AhoCorasick,
        false => matcher::Engine::Prefilter,
    };
    let (engine, uncompiled) = Engine::new(&config, &mut book, matcher);
    match uncompiled.first() {
        Some(rule) if whole => Err(broken(&format!("rule {}", rule.sid), &rule.reason)),
        _ => Ok((config, engine)),
    }
}

fn sense(
    captures: &[PathBuf],
    config: &SensorConfig,
    engine: Arc<Engine>,
    workers: usize,
    logs: &Path,
    what: &str,
) -> Result<weir_sensor::run::Summary, LabError> {
    let mut source = Files::open(captures, FileOptions::default()).map_err(|e| broken(what, e))?;
    let setup = Setup {
        config,
        engine,
        workers,
        filter: None,
        logs: logs.to_path_buf(),
        idle: None,
        reload: None,
        say: &|_| {},
    };
    let summary =
        run_sensor(setup, &mut source, &Controls::default()).map_err(|e| broken(what, e))?;
    match (summary.problems.first(), summary.ledger.unaccounted()) {
        (Some((path, problem)), _) => Err(broken(&path.display().to_string(), problem)),
        (None, 0) => Ok(summary),
        (None, frames) => Err(broken(what, format!("{frames} frames are in no counter"))),
    }
}

/// Alerts of a log, by rule.
fn alerts(eve: &str) -> BTreeMap<u32, u64> {
    let mut seen = BTreeMap::new();
    for line in eve.lines() {
        let Ok(record) = serde_json::from_str::<serde_json::Value>(line) else {
            continue;
        };
        if record["event_type"] == "alert"
            && let Some(sid) = record["alert"]["signature_id"].as_u64()
        {
            *seen.entry(sid as u32).or_default() += 1;
        }
    }
    seen
}

/// Normal usage, held to rules of others.
fn hold(
    captures: &[PathBuf],
    names: &[PathBuf],
    folder: &Path,
) -> Result<(usize, BTreeMap<u32, u64>), LabError> {
    let mut rules = Vec::new();
    for name in names {
        rules.extend(named(name).map_err(|e| broken("rules", e))?);
    }
    let (config, engine) = load(&[], &rules, false, false)?;
    let loaded = engine.rules();
    let logs = folder.join("other-rules");
    fs::create_dir_all(&logs).map_err(io_error("make", &logs))?;
    let summary = sense(
        captures,
        &config,
        Arc::new(engine),
        1,
        &logs,
        "normal usage",
    )?;
    let by_rule = summary
        .rules
        .iter()
        .map(|((_, sid), n)| (*sid, *n))
        .collect();
    Ok((loaded, by_rule))
}

/// Writes what another sensor needs to be held to the same.
fn keep(folder: &Path, rows: &[Row]) -> Result<(), LabError> {
    let list = folder.join(LIST);
    let text = serde_json::to_string_pretty(rows).map_err(|e| broken(LIST, e))?;
    fs::write(&list, text).map_err(io_error("write", &list))?;
    let mut script = String::from(
        "#!/bin/sh\n# Runs another sensor over the cases of this folder, one log folder for each in the folder named first:\n#   sh replay.sh OUT suricata -k all\n# and then: weir lab sensor --judge OUT\nset -eu\ncd \"$(dirname \"$0\")\"\nout=$1; shift\nmkdir -p \"$out\"\ncp cases.json \"$out/\"\n",
    );
    for row in rows {
        script.push_str(&format!(
            "mkdir -p \"$out/{0}\"; \"$@\" -r {0}/capture.pcap -S accuracy.rules -l \"$out/{0}\"",
            row.folder
        ));
        for setting in SETTINGS
            .into_iter()
            .chain(row.settings.iter().map(String::as_str))
        {
            script.push_str(&format!(" --set '{setting}'"));
        }
        script.push_str(" >/dev/null\n");
    }
    let path = folder.join("replay.sh");
    fs::write(&path, script).map_err(io_error("write", &path))
}

/// Reads the logs that a sensor left.
fn judge(folder: &Path) -> Result<AccuracyOutcome, LabError> {
    let list = folder.join(LIST);
    let text = fs::read_to_string(&list).map_err(io_error("read", &list))?;
    let mut rows: Vec<Row> =
        serde_json::from_str(&text).map_err(|e| broken(&list.display().to_string(), e))?;
    for row in &mut rows {
        let path = folder.join(&row.folder).join("eve.json");
        row.wrong = None;
        match fs::read_to_string(&path) {
            Ok(text) => row.seen = alerts(&text),
            Err(e) => {
                row.seen = BTreeMap::new();
                row.wrong = Some(format!("{}: {e}", path.display()));
            }
        }
    }
    Ok(AccuracyOutcome {
        rows,
        rules: 0,
        others: None,
    })
}

/// `910101 x2, 910102`, or `none`.
pub fn list(alerts: &BTreeMap<u32, u64>) -> String {
    if alerts.is_empty() {
        return "none".to_owned();
    }
    let each: Vec<String> = alerts
        .iter()
        .map(|(sid, n)| match n {
            1 => sid.to_string(),
            n => format!("{sid} x{n}"),
        })
        .collect();
    each.join(", ")
}
