//! The published rules as a whole, where the test data has them: all that load compile, both engines find the same in captured payload, and sizes and times are printed.

use std::sync::Arc;
use std::time::Instant;

use super::build::{packet, view};
use super::material::{cpu_seconds, payloads, rules_text, say};
use weir_sensor::app::App;
use weir_sensor::detect::{Detector, FlowState, Match, PacketFlow, Ruleset};
use weir_sensor::matcher::Engine;
use weir_sensor::packet::Direction;
use weir_sensor::rules::{LoadSettings, Loader};

fn ruleset(engine: Engine) -> Option<Arc<Ruleset>> {
    let text = rules_text()?;
    let settings = LoadSettings::default();
    let begun = Instant::now();
    let mut loader = Loader::new(&settings);
    loader.text("et.rules", text.as_bytes());
    let loaded = loader.finish();
    let read = begun.elapsed();
    let begun = Instant::now();
    let (ruleset, refused) =
        Ruleset::build(loaded.rules, loaded.expressions, Arc::default(), engine);
    say(&format!(
        "{engine:?}: {} rules, {} refused by the loader, {} here; read in {read:.0?}, built in {:.0?}; {} expressions, {} KB of patterns and lists",
        ruleset.len(),
        loaded.refused.len(),
        refused.len(),
        begun.elapsed(),
        ruleset.expressions(),
        ruleset.memory() / 1024,
    ));
    for r in refused.iter().take(5) {
        say(&format!("  {}: {}", r.sid, r.reason));
    }
    assert!(
        refused.len() * 100 <= ruleset.len(),
        "more than 1 % are refused"
    );
    Some(Arc::new(ruleset))
}

/// Every payload as a packet of its own flow, in each way, and as a stream.
fn run(detector: &mut Detector, payloads: &[Vec<u8>]) -> (Vec<(u64, u32)>, f64) {
    let mut out = Vec::new();
    let begun = cpu_seconds();
    for (number, payload) in payloads.iter().enumerate() {
        let number = number as u64 + 1;
        let tcp = !number.is_multiple_of(4);
        let direction = if number.is_multiple_of(2) {
            Direction::ToClient
        } else {
            Direction::ToServer
        };
        let packet = packet(number, direction, tcp, payload);
        let view = view(if tcp { 6 } else { 17 }, App::Unknown);
        let mut state = FlowState::default();
        let flow = PacketFlow {
            view: &view,
            state: &mut state,
            direction,
            offset: None,
            transaction: None,
        };
        detector.packet(&packet, Default::default(), Some(flow));
        out.extend(
            detector
                .matches()
                .iter()
                .map(|m: &Match| (m.packet, m.rule)),
        );
        detector.clear();
    }
    (out, cpu_seconds() - begun)
}

#[test]
fn both_engines_alert_alike_on_captured_payload() {
    let Some(fast) = ruleset(Engine::Prefilter) else {
        return;
    };
    let slow = ruleset(Engine::AhoCorasick).expect("is there");
    let mut payloads = payloads();
    if std::env::var_os("WEIR_LONG").is_none() {
        payloads = payloads.into_iter().step_by(5).collect();
    }
    let bytes: usize = payloads.iter().map(Vec::len).sum();
    let mut answers = Vec::new();
    for rules in [fast, slow] {
        let mut detector = Detector::new(rules);
        let (matches, seconds) = run(&mut detector, &payloads);
        let counts = detector.counts();
        say(&format!(
            "{} packets, {:.2} Gbit/s, {:.2} us a packet, {} matches, {counts:?}",
            payloads.len(),
            bytes as f64 * 8e-9 / seconds,
            seconds * 1e6 / payloads.len() as f64,
            matches.len(),
        ));
        answers.push(matches);
    }
    assert_eq!(answers[0], answers[1]);
}
