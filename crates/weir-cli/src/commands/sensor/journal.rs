//! What the sensor says of itself, in the files that `logging.outputs` asks for: as lines, or as objects in JSON. Standard error has it all the same.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;
use weir_sensor::load::Book;
use weir_sensor::settings::{Settings, SettingsError};
use weir_sensor::worker::Uncompiled;

use crate::failure::Failure;
use crate::output;

/// How much something matters; those that come first matter most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Error,
    Warning,
    Notice,
    Info,
}

/// Names of levels in configurations. Of those that say more than anything here does there are several.
const LEVELS: &[(&str, Level)] = &[
    ("emergency", Level::Error),
    ("alert", Level::Error),
    ("critical", Level::Error),
    ("error", Level::Error),
    ("warning", Level::Warning),
    ("notice", Level::Notice),
    ("info", Level::Info),
    ("perf", Level::Info),
    ("config", Level::Info),
    ("debug", Level::Info),
];

struct Output {
    file: File,
    json: bool,
    /// What matters less is left out.
    level: Level,
}

/// All files.
pub(super) struct Journal {
    outputs: Vec<Output>,
}

impl Journal {
    /// Opens the files below the log directory, which is created if there are any. One that cannot be opened is told and left out.
    pub(super) fn open(settings: &Settings, log: &Path) -> Result<Journal, Failure> {
        let mut outputs = Vec::new();
        for number in settings.keys("logging.outputs") {
            let key = |name: &str| format!("logging.outputs.{number}.file.{name}");
            let on = settings.truth(&key("enabled")).map_err(Failure::usage)?;
            if !settings.has(&format!("logging.outputs.{number}.file")) || on == Some(false) {
                continue;
            }
            let json = match settings.text(&key("type")).as_deref() {
                None | Some("regular") => false,
                Some("json") => true,
                Some(other) => return Err(wrong(&key("type"), other, "regular or json")),
            };
            let own = level(settings, &key("level"))?;
            let usual = level(settings, "logging.default-log-level")?;
            let name = settings.text(&key("filename"));
            let path = log.join(name.unwrap_or_else(|| "weir.log".to_owned()));
            let file = std::fs::create_dir_all(log)
                .and_then(|()| OpenOptions::new().create(true).append(true).open(&path));
            let file = match file {
                Ok(file) => file,
                // Standard error has it all the same.
                Err(e) => {
                    output::complain(&format!("logging: {}: {e}", path.display()));
                    continue;
                }
            };
            outputs.push(Output {
                file,
                json,
                level: own.or(usual).unwrap_or(Level::Notice),
            });
        }
        Ok(Journal { outputs })
    }

    /// Says something about a part of the sensor. A file that cannot be written is not worth the run.
    pub(super) fn say(&mut self, level: Level, module: &str, message: &str) {
        let seconds = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |d| d.as_secs());
        let time = weir_value::utc(seconds);
        for output in self.outputs.iter_mut().filter(|o| level <= o.level) {
            let name = format!("{level:?}");
            let line = match output.json {
                true => json!({
                    "timestamp": time,
                    "log_level": name,
                    "event_type": "engine",
                    "engine": {"module": module, "message": message},
                })
                .to_string(),
                false => plain(&format!("{time} {name}: {module}: {message}")),
            };
            let _ = writeln!(output.file, "{line}");
        }
    }

    /// Rules that were not loaded: why, and which.
    pub(super) fn rules(&mut self, book: &Book, uncompiled: &[Uncompiled]) {
        for one in &book.refused {
            let message = format!("{}:{}: {}", one.place.file, one.place.line, one.reason);
            self.say(Level::Warning, "config", &message);
        }
        for (part, why) in &book.missing {
            self.say(Level::Warning, part, why);
        }
        for one in &book.loaded.refused {
            let (module, message) = one.logged();
            if one.is_skipped() {
                self.say(Level::Info, &module, &message);
                continue;
            }
            self.say(Level::Error, &module, &message);
            let (file, line) = (&one.place.file, one.place.line);
            let message = format!(
                "error parsing signature \"{}\" from file {file} at line {line}",
                one.text
            );
            self.say(Level::Error, "detect", &message);
        }
        for one in uncompiled {
            self.say(Level::Error, "detect", &one.reason);
            let (file, line) = (&one.place.file, one.place.line);
            let message = format!(
                "error parsing signature {} from file {file} at line {line}",
                one.sid
            );
            self.say(Level::Error, "detect", &message);
        }
    }
}

/// A line of a log: rules, captures and peers are foreign, and control characters of theirs would forge lines or move a terminal's cursor.
fn plain(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    for c in line.chars() {
        match c.is_control() {
            true => out.extend(c.escape_default()),
            false => out.push(c),
        }
    }
    out
}

fn level(settings: &Settings, key: &str) -> Result<Option<Level>, Failure> {
    let Some(word) = settings.text(key) else {
        return Ok(None);
    };
    let lower = word.to_ascii_lowercase();
    let known = LEVELS.iter().find(|(name, _)| *name == lower);
    match known {
        Some((_, level)) => Ok(Some(*level)),
        None => Err(wrong(key, &word, "error, warning, notice, info or debug")),
    }
}

fn wrong(key: &str, value: &str, expected: &'static str) -> Failure {
    Failure::usage(SettingsError::Value {
        key: key.to_owned(),
        value: value.to_owned(),
        expected,
    })
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn control_characters_are_escaped() {
        let line = "bad rule \"a\r\n2026 Error: forged\" \u{1b}[2J\u{9b}K \u{e9}";
        let expected = "bad rule \"a\\r\\n2026 Error: forged\" \\u{1b}[2J\\u{9b}K \u{e9}";
        assert_eq!(plain(line), expected);
    }
}
