//! New rules while a run goes on: the old ones are let go of, by everybody.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use weir_packet::pcap::{CaptureError, LinkType};
use weir_sensor::config::SensorConfig;
use weir_sensor::matcher;
use weir_sensor::rules::Dialect;
use weir_sensor::run::{Controls, Say, Setup, run};
use weir_sensor::settings::Settings;
use weir_sensor::source::{Batch, Filled, Source, SourceCounts, SourceError};
use weir_sensor::worker::Engine;

use super::bed::{ANSWER, Folder, SERVER, Tape};

/// Resident memory now, kilobytes.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    line.and_then(|l| l.trim().trim_end_matches(" kB").parse().ok())
        .unwrap_or(0)
}

/// Frames for as long as new rules are to come, some after each.
struct Frames<'a> {
    tape: &'a Tape,
    next: usize,
    given: u64,
    /// Batches since the rules became others.
    since: usize,
    /// Others were asked for.
    asked: bool,
    seen: usize,
    reloads: usize,
    controls: &'a Controls,
    reloaded: &'a AtomicUsize,
    first: Weak<Engine>,
    /// Kilobytes when rules were exchanged so often.
    resident: &'a Mutex<Vec<u64>>,
}

impl Frames<'_> {
    fn give(&mut self, batch: &mut Batch) -> Result<Filled, SourceError> {
        for _ in 0..20 {
            let (time, frame) = &self.tape.frames[self.next % self.tape.frames.len()];
            batch.push(*time, &[frame], frame.len() as u32, LinkType::ETHERNET.0);
            self.next += 1;
            self.given += 1;
        }
        Ok(Filled::Frames)
    }
}

impl Source for Frames<'_> {
    fn fill(&mut self, batch: &mut Batch) -> Result<Filled, SourceError> {
        // The machine is left to others while rules are loaded.
        std::thread::sleep(Duration::from_millis(1));
        let now = self.reloaded.load(Ordering::Relaxed);
        if now != self.seen {
            (self.seen, self.since, self.asked) = (now, 0, false);
        }
        self.since += 1;
        // Batches that were under way are done with, and a batch was about few slices only.
        if self.since >= 100 && !self.asked {
            if self.seen > 0 && self.first.strong_count() > 0 {
                // Who lets go of them has to be woken.
                assert!(self.since < 20_000, "the first rules are still there");
                return self.give(batch);
            }
            self.asked = true;
            self.resident.lock().unwrap().push(resident());
            if self.seen == self.reloads {
                return Ok(Filled::End);
            }
            self.controls.reload.store(true, Ordering::Relaxed);
        }
        self.give(batch)
    }

    fn counts(&mut self) -> SourceCounts {
        SourceCounts {
            frames: self.given,
            ..SourceCounts::default()
        }
    }

    fn problems(&mut self) -> Vec<(PathBuf, CaptureError)> {
        Vec::new()
    }

    fn progress(&self) -> Option<(u64, u64)> {
        None
    }

    fn is_live(&self) -> bool {
        false
    }
}

fn rules(folder: &Path) -> PathBuf {
    let mut text = String::from(
        "alert http any any -> any any (msg:\"evil\"; http.uri; content:\"/evil/\"; sid:1;)\n",
    );
    for sid in 2..2000 {
        text += &format!(
            "alert tcp any any -> any any (msg:\"{sid}\"; content:\"never {sid} seen\"; pcre:\"/never {sid} [a-z]+/\"; sid:{sid};)\n"
        );
    }
    let path = folder.join("test.rules");
    fs::write(&path, text).expect("written");
    path
}

#[test]
fn nobody_keeps_old_rules() {
    let mut tape = Tape::default();
    for client in 0..40_u8 {
        tape.session(
            ([10, 0, client, 1], 2000),
            (SERVER, 80),
            &[b"GET /evil/ HTTP/1.1\r\nHost: h\r\n\r\n", ANSWER.as_bytes()],
        );
    }
    for workers in [1, 2, 4] {
        let folder = Folder::new();
        let files = [rules(&folder.0)];
        let config = SensorConfig::from_settings(&Settings::default()).expect("a configuration");
        let engine = {
            let (config, files) = (config.clone(), files.clone());
            move |before: Option<&Engine>| {
                Engine::load(
                    &config,
                    Dialect::Suricata,
                    &files,
                    matcher::Engine::Prefilter,
                    before,
                )
                .map(|(engine, ..)| engine)
                .map_err(|e| e.to_string())
            }
        };
        let first = Arc::new(engine(None).expect("rules"));
        let controls = Controls::default();
        let (reloaded, resident) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let mut source = Frames {
            tape: &tape,
            next: 0,
            given: 0,
            since: 0,
            asked: false,
            seen: 0,
            reloads: 3,
            controls: &controls,
            reloaded: &reloaded,
            first: Arc::downgrade(&first),
            resident: &resident,
        };
        let say = |what: Say<'_>| match what {
            Say::Reloaded(rules, _) => {
                assert_eq!(rules, 1999);
                reloaded.fetch_add(1, Ordering::Relaxed);
            }
            Say::NotReloaded(why) => panic!("{why}"),
            Say::Progress(..)
            | Say::Interface(_)
            | Say::SumsIgnored
            | Say::Script(_)
            | Say::SetNotWritten(..) => {}
        };
        let setup = Setup {
            config: &config,
            engine: first,
            workers,
            filter: None,
            logs: folder.0.clone(),
            idle: None,
            reload: Some(Arc::new(move |before: &Engine| engine(Some(before)))),
            say: &say,
        };
        let summary = run(setup, &mut source, &controls).expect("a run");
        assert_eq!(summary.ledger.unaccounted(), 0);
        assert!(summary.alerts > 40);
        println!(
            "{workers} workers: resident kB with the first rules and after each exchange: {:?}",
            resident.lock().unwrap()
        );
    }
}
