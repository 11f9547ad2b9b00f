//! How much memory loading rules takes, in bytes that were asked for. The one test of its program: what others allocate would be counted.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use peak_alloc::PeakAlloc;
use weir_sensor::config::SensorConfig;
use weir_sensor::matcher;
use weir_sensor::rules::Dialect;
use weir_sensor::settings::Settings;
use weir_sensor::worker::Engine;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const RULES: u32 = 4_000;

struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        let path = std::env::temp_dir().join(format!("weir-sensor-memory-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("written");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Rules as they are published: several contents, an expression in some, bits in others, and much that only records say.
fn rule(n: u32, message: &str) -> String {
    let buffer = ["http.uri", "http.user_agent", "dns.query", "tls.sni"][n as usize % 4];
    let app = ["http", "http", "dns", "tls"][n as usize % 4];
    // Distinct from the first bytes on, as published patterns are.
    let word = n.wrapping_mul(2_654_435_761);
    let mut rule = format!(
        "alert {app} $HOME_NET any -> $EXTERNAL_NET any (msg:\"{message} activity of family {n} seen (GET)\"; flow:established,to_server; {buffer}; content:\"{word:08x}-name-{n}\"; fast_pattern; nocase; content:\"index-{n}\"; distance:0; "
    );
    if n.is_multiple_of(3) {
        let _ = write!(rule, "pcre:\"/id=[a-f0-9]{{8}}&n={n}/i\"; ");
    }
    if n.is_multiple_of(5) {
        let _ = write!(rule, "flowbits:set,family{}; ", n / 50);
    }
    let _ = writeln!(
        rule,
        "reference:url,example.org/analysis/{n}; classtype:trojan-activity; metadata:affected_product Windows_XP_Vista_7_8_10_Server_32_64_Bit, attack_target Client_Endpoint, created_at 2020_01_{:02}, deployment Perimeter, signature_severity Major; sid:{}; rev:1;)",
        n % 28 + 1,
        n + 1
    );
    rule
}

fn load(config: &SensorConfig, file: &Path, before: Option<&Engine>) -> Engine {
    let matcher = matcher::Engine::Prefilter;
    let files = [file.to_path_buf()];
    let (engine, book, uncompiled) =
        Engine::load(config, Dialect::Suricata, &files, matcher, before).expect("a file");
    assert_eq!((book.loaded.refused.len(), uncompiled.len()), (0, 0));
    engine
}

#[test]
fn new_rules_beside_old_ones_are_no_second_copy() {
    let folder = Folder::new();
    let all: String = (0..RULES).map(|n| rule(n, "Some")).collect();
    // Another line above everything, a name of a bit that comes before all others, every fiftieth rule changed, some gone, some new.
    let changed: String = "# of today\n".to_owned()
        + "alert http any any -> any any (msg:\"new\"; flowbits:isset,new; http.uri; content:\"/first\"; sid:900000;)\n"
        + &(0..RULES + 20)
            .filter(|n| n % 200 != 7)
            .map(|n| rule(n, if n % 50 == 3 { "Another" } else { "Some" }))
            .collect::<String>();
    let files = [
        folder.file("all.rules", &all),
        folder.file("changed.rules", &changed),
    ];
    drop((all, changed));
    let config = SensorConfig::from_settings(&Settings::default()).expect("a configuration");
    // What is made once in a process is made before anything is counted.
    drop(load(&config, &files[0], None));
    let empty = ALLOCATOR.current_usage();

    ALLOCATOR.reset_peak_usage();
    let mut engine = load(&config, &files[0], None);
    let rest = ALLOCATOR.current_usage() - empty;
    let peak = ALLOCATOR.peak_usage() - empty;
    println!("{RULES} rules: {rest} bytes, {peak} while they were loaded");
    // What rules are compiled from goes at once, rule by rule; before, all of it was there until the last was compiled.
    assert!(peak * 4 < rest * 5, "{peak} for {rest}");

    for (what, file) in [
        ("the same", &files[0]),
        ("changed", &files[1]),
        ("as before", &files[0]),
    ] {
        ALLOCATOR.reset_peak_usage();
        let new = load(&config, file, Some(&engine));
        let peak = ALLOCATOR.peak_usage() - empty;
        drop(std::mem::replace(&mut engine, new));
        let after = ALLOCATOR.current_usage() - empty;
        println!(
            "{what}: at most {peak}, {} % of one rule set; {after} after",
            peak * 100 / rest
        );
        assert!(
            peak * 10 < rest * 13,
            "{what}: {peak} at once, {rest} for one"
        );
        // Nothing of the old ones stays.
        assert!(
            after * 100 < rest * 102,
            "{what}: {after} after, {rest} before"
        );
    }
    drop(engine);
    let left = ALLOCATOR.current_usage().saturating_sub(empty);
    assert!(left < 10_000, "{left} bytes are left");
}
