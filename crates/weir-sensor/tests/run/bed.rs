//! What the tests share: conversations as captures, and runs over them.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;
use weir_packet::build::Frame;
use weir_packet::pcap::Writer;
use weir_sensor::config::SensorConfig;
use weir_sensor::matcher;
use weir_sensor::rules::Dialect;
use weir_sensor::run::{Controls, Setup, Summary, run};
use weir_sensor::settings::Settings;
use weir_sensor::source::filter::Filter;
use weir_sensor::source::{FileOptions, Files};
use weir_sensor::worker::Engine;

pub(crate) const CLIENT: [u8; 4] = [192, 168, 1, 10];
pub(crate) const SERVER: [u8; 4] = [198, 51, 100, 80];
/// 2024-01-01T00:00:00.
pub(crate) const START: u64 = 1_704_067_200_000_000_000;

/// Frames with times, a millisecond apart.
#[derive(Default)]
pub(crate) struct Tape {
    pub(crate) frames: Vec<(u64, Vec<u8>)>,
}

impl Tape {
    pub(crate) fn push(&mut self, frame: &Frame) {
        let time = START + self.frames.len() as u64 * 1_000_000;
        self.frames.push((time, frame.build()));
    }

    /// A TCP session: handshake, what each side says in turn (client first), and the end.
    pub(crate) fn session(
        &mut self,
        client: ([u8; 4], u16),
        server: ([u8; 4], u16),
        said: &[&[u8]],
    ) {
        let ends = [client, server];
        let mut next = [1000_u32, 5000];
        let segment = |from: usize, flags: u8, next: [u32; 2], payload: &[u8]| {
            let (a, b) = (ends[from], ends[1 - from]);
            let acknowledged = if flags & Frame::ACK != 0 {
                next[1 - from]
            } else {
                0
            };
            Frame::new()
                .ip4(a.0, b.0)
                .tcp(a.1, b.1)
                .flags(flags)
                .numbers(next[from], acknowledged)
                .payload(payload)
        };
        self.push(&segment(0, Frame::SYN, next, &[]));
        next[0] += 1;
        self.push(&segment(1, Frame::SYN | Frame::ACK, next, &[]));
        next[1] += 1;
        self.push(&segment(0, Frame::ACK, next, &[]));
        for (turn, text) in said.iter().enumerate() {
            let from = turn % 2;
            for part in text.chunks(1400) {
                self.push(&segment(from, Frame::ACK | Frame::PSH, next, part));
                next[from] += part.len() as u32;
            }
            self.push(&segment(1 - from, Frame::ACK, next, &[]));
        }
        for from in [0, 1] {
            self.push(&segment(from, Frame::ACK | Frame::FIN, next, &[]));
            next[from] += 1;
        }
        self.push(&segment(0, Frame::ACK, next, &[]));
    }

    pub(crate) fn pcap(&self) -> Vec<u8> {
        let mut writer = Writer::new(Vec::new()).expect("memory");
        for (time, frame) in &self.frames {
            writer
                .write(*time, frame, frame.len() as u32)
                .expect("memory");
        }
        writer.finish().expect("memory")
    }
}

/// A request and its answer.
pub(crate) fn web(tape: &mut Tape, port: u16, request: &str, answer: &str) {
    tape.session(
        (CLIENT, port),
        (SERVER, 80),
        &[request.as_bytes(), answer.as_bytes()],
    );
}

pub(crate) const ANSWER: &str =
    "HTTP/1.1 200 OK\r\nServer: test\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello";

/// A folder of its own that goes with the value.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "weir-sensor-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// How a run is to be.
#[derive(Clone)]
pub(crate) struct How {
    pub(crate) rules: String,
    pub(crate) settings: Vec<String>,
    pub(crate) workers: usize,
    pub(crate) matcher: matcher::Engine,
    pub(crate) filter: Option<&'static str>,
    /// A configuration that settings are added to.
    pub(crate) config: Option<PathBuf>,
    /// Files beside the rules.
    pub(crate) beside: Vec<(&'static str, &'static str)>,
}

impl How {
    pub(crate) fn rules(rules: &str) -> How {
        How {
            rules: rules.to_owned(),
            settings: Vec::new(),
            workers: 1,
            matcher: matcher::Engine::Prefilter,
            filter: None,
            config: None,
            beside: Vec::new(),
        }
    }

    pub(crate) fn set(mut self, setting: &str) -> How {
        self.settings.push(setting.to_owned());
        self
    }

    pub(crate) fn workers(mut self, workers: usize) -> How {
        self.workers = workers;
        self
    }
}

/// What a run left.
pub(crate) struct Left {
    pub(crate) summary: Summary,
    pub(crate) eve: Vec<Value>,
    pub(crate) text: String,
    pub(crate) fast: String,
}

impl Left {
    /// Records of a type.
    pub(crate) fn of(&self, kind: &str) -> Vec<&Value> {
        self.eve
            .iter()
            .filter(|r| r["event_type"] == kind)
            .collect()
    }

    /// Numbers of the rules that alerted, in order.
    pub(crate) fn sids(&self) -> Vec<u64> {
        self.of("alert")
            .iter()
            .map(|r| r["alert"]["signature_id"].as_u64().expect("a number"))
            .collect()
    }
}

/// Runs a sensor over captures.
pub(crate) fn sense(captures: &[PathBuf], how: &How) -> Left {
    sense_within(&Folder::new(), captures, how)
}

/// The same in a folder, which keeps what is written.
pub(crate) fn sense_within(folder: &Folder, captures: &[PathBuf], how: &How) -> Left {
    let rules = folder.0.join("test.rules");
    fs::write(&rules, &how.rules).expect("written");
    for (name, text) in &how.beside {
        fs::write(folder.0.join(name), text).expect("written");
    }
    let mut settings = match &how.config {
        Some(path) => Settings::read(std::slice::from_ref(path)).expect("a configuration"),
        None => Settings::default(),
    };
    // Tests ask what is found; how much of it is told is another question.
    settings.set("packet-alert-max=65535").expect("a number");
    for one in &how.settings {
        settings.set(one).expect(one);
    }
    let config = SensorConfig::from_settings(&settings).expect("a configuration");
    let (engine, book, uncompiled) =
        Engine::load(&config, Dialect::Suricata, &[rules], how.matcher, None).expect("rules");
    let refused: Vec<String> = book
        .loaded
        .refused
        .iter()
        .map(weir_sensor::rules::Refused::explain)
        .collect();
    assert!(
        refused.is_empty(),
        "{}",
        refused.join(
            "
"
        )
    );
    assert!(uncompiled.is_empty(), "{uncompiled:?}");
    over(captures, &config, Arc::new(engine), how, folder)
}

/// The same with rules that are ready.
pub(crate) fn over(
    captures: &[PathBuf],
    config: &SensorConfig,
    engine: Arc<Engine>,
    how: &How,
    folder: &Folder,
) -> Left {
    for name in ["eve.json", "fast.log"] {
        let _ = fs::remove_file(folder.0.join(name));
    }
    let mut source = Files::open(captures, FileOptions::default()).expect("captures");
    let setup = Setup {
        config,
        engine,
        workers: how.workers,
        filter: how.filter.map(|f| Filter::parse(f).expect(f)),
        logs: folder.0.clone(),
        idle: None,
        reload: None,
        say: &|_| {},
    };
    let summary = run(setup, &mut source, &Controls::default()).expect("a run");
    let text = fs::read_to_string(folder.0.join("eve.json")).expect("UTF-8");
    let eve = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
        .collect();
    let fast = fs::read_to_string(folder.0.join("fast.log")).expect("UTF-8");
    Left {
        summary,
        eve,
        text,
        fast,
    }
}

/// Runs a sensor over frames.
pub(crate) fn sense_tape(tape: &Tape, how: &How) -> Left {
    let folder = Folder::new();
    let path = folder.0.join("tape.pcap");
    fs::write(&path, tape.pcap()).expect("written");
    sense(&[path], how)
}

/// Rules and how often they alerted, by their number.
pub(crate) fn counts(alerts: &[&Value]) -> Vec<(u64, usize)> {
    let mut all = std::collections::BTreeMap::new();
    for alert in alerts {
        *all.entry(alert["alert"]["signature_id"].as_u64().expect("a number"))
            .or_insert(0) += 1;
    }
    all.into_iter().collect()
}
