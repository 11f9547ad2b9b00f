//! Published rule sets of the test data, where they are: at least 99 % of each loads, and every rule that does not is listed with its place and reason.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use weir_sensor::rules::{Dialect, LoadSettings, Loaded, load, read_classes};

fn say(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// A folder with an archive's files; removed when it goes out of scope.
struct Unpacked(PathBuf);

impl Drop for Unpacked {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn unpack(name: &str) -> Option<Unpacked> {
    let archive = weir_testdata::find(&format!("rules/{name}.tar.gz"))?;
    let folder = std::env::temp_dir().join(format!("weir-rules-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    let unpacked = Unpacked(folder);
    let done = Command::new("tar")
        .arg("xzf")
        .arg(&archive)
        .arg("-C")
        .arg(&unpacked.0)
        .status();
    assert!(
        done.is_ok_and(|s| s.success()),
        "tar unpacks {}",
        archive.display()
    );
    Some(unpacked)
}

fn report(name: &str, loaded: &Loaded, took: std::time::Duration) -> f64 {
    let share = loaded.rules.len() as f64 / loaded.active() as f64;
    say(&format!(
        "{name}: {} of {} rules ({:.2} %) from {} files in {:.0} ms, {} expressions, {} notes",
        loaded.rules.len(),
        loaded.active(),
        share * 100.0,
        loaded.files,
        took.as_secs_f64() * 1e3,
        loaded.expressions.len(),
        loaded.notes.len(),
    ));
    for (reason, count) in loaded.reasons() {
        say(&format!("  {count:5}  {reason}"));
    }
    if std::env::var_os("WEIR_LONG").is_some() {
        for refused in &loaded.refused {
            say(&refused.explain());
        }
    }
    for refused in &loaded.refused {
        assert!(refused.place.line > 0 && refused.column > 0, "{refused}");
        assert!(
            !refused.reason.is_empty() && !refused.text.is_empty(),
            "{refused}"
        );
    }
    share
}

#[test]
fn a_published_set_of_the_suricata_language() {
    let Some(folder) = unpack("et-open-half") else {
        return;
    };
    let files = folder.0.join("et-open-half");
    let table = std::fs::read(files.join("classification.config")).expect("its classes");
    let (classes, bad) = read_classes("classification.config", &table);
    assert_eq!(bad, [], "every class is read");
    let settings = LoadSettings {
        classes,
        ..LoadSettings::default()
    };
    let begin = Instant::now();
    let loaded = load(&[files], &settings).expect("the files are there");
    let share = report("et-open-half", &loaded, begin.elapsed());
    assert!(loaded.active() > 12_000, "{} rules", loaded.active());
    assert!(share >= 0.99, "{share} of the rules load");
    let classless = loaded.rules.iter().filter(|r| r.category.is_empty());
    assert_eq!(
        classless.count(),
        0,
        "every rule has the category of its class"
    );
}

#[test]
fn a_published_set_of_the_snort_language() {
    let Some(folder) = unpack("snort3-community") else {
        return;
    };
    let settings = LoadSettings {
        dialect: Dialect::Snort,
        ..LoadSettings::default()
    };
    let begin = Instant::now();
    let files = folder.0.join("snort3-community");
    let loaded = load(&[files], &settings).expect("the files are there");
    let share = report("snort3-community", &loaded, begin.elapsed());
    assert!(loaded.active() > 4_000, "{} rules", loaded.active());
    assert!(share >= 0.99, "{share} of the rules load");
}
