//! All captures at hand with a published rule set: nothing panics, everything ends in one counter, and neither workers nor engines change what is found.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use weir_sensor::config::SensorConfig;
use weir_sensor::load::{book, named};
use weir_sensor::matcher;
use weir_sensor::rules::Dialect;
use weir_sensor::settings::Settings;
use weir_sensor::worker::Engine;

use super::bed::{Folder, How, Left, over};

pub(crate) fn captures(root: &Path) -> Vec<PathBuf> {
    let (mut folders, mut found) = (
        vec![root.join("pcaps"), root.join("zeek-traces")],
        Vec::new(),
    );
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path
                .extension()
                .is_some_and(|e| e == "pcap" || e == "trace" || e == "pcapng" || e == "cap")
            {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn sorted(left: &Left) -> Vec<&str> {
    left.fast.lines().collect()
}

#[test]
fn all_captures_with_a_published_rule_set() {
    let Some(root) = weir_testdata::find("") else {
        return;
    };
    let folder = Folder::new();
    let unpacked = Command::new("tar")
        .arg("xzf")
        .arg(root.join("rules/et-open-half.tar.gz"))
        .arg("-C")
        .arg(&folder.0)
        .status();
    assert!(unpacked.is_ok_and(|s| s.success()), "tar");
    let mut rules = Vec::new();
    let mut folders = vec![folder.0.clone()];
    while let Some(f) = folders.pop() {
        for entry in std::fs::read_dir(&f).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rules") {
                rules.extend(named(&path).expect("there"));
            }
        }
    }
    rules.sort();
    let mut settings = Settings::default();
    settings
        .set("vars.address-groups.HOME_NET=any")
        .expect("set");
    settings
        .set("vars.address-groups.EXTERNAL_NET=any")
        .expect("set");
    let config = SensorConfig::from_settings(&settings).expect("right");
    let engine = |matcher| {
        let mut book = book(&config, Dialect::Suricata, &rules).expect("rules");
        let refused = book.loaded.refused.len();
        let (engine, uncompiled) = Engine::new(&config, &mut book, matcher);
        println!(
            "{} rules, {refused} refused, {} not compiled",
            engine.rules(),
            uncompiled.len()
        );
        assert!(engine.rules() > 12_000);
        Arc::new(engine)
    };
    let captures = captures(&root);
    let first = engine(matcher::Engine::Prefilter);
    let run = |engine: &Arc<Engine>, workers| {
        let left = over(
            &captures,
            &config,
            Arc::clone(engine),
            &How::rules("").workers(workers),
            &folder,
        );
        assert_eq!(
            left.summary.ledger.unaccounted(),
            0,
            "{:?}",
            left.summary.ledger
        );
        println!(
            "{workers} workers: {} frames, {} alerts, {:?}",
            left.summary.ledger.read, left.summary.alerts, left.summary.elapsed
        );
        left
    };
    let one = run(&first, 1);
    assert!(one.summary.alerts > 0);
    assert_eq!(sorted(&run(&first, 3)), sorted(&one));
    drop(first);
    let other = run(&engine(matcher::Engine::AhoCorasick), 1);
    assert_eq!(sorted(&other), sorted(&one));
}
