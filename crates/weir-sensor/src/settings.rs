//! A configuration as a tree of words: read from TOML or YAML, changed by `--set`, asked by dotted keys; it knows which of its keys nobody asked for.
//!
//! Keys are those that users of signature sensors know (`vars.address-groups.HOME_NET`, `stream.memcap`, ...), in either syntax. What a key means is said in `config`.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

/// Files that include each other are followed so deep.
const DEPTH: usize = 8;

/// A configuration that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// A file cannot be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// A file is neither TOML nor YAML that can be read.
    #[error("{}: {message}", path.display())]
    Syntax {
        /// Which.
        path: PathBuf,
        /// What is wrong, with its line.
        message: String,
    },
    /// A value does not mean anything for its key.
    #[error("{key}: {value:?} is not {expected}")]
    Value {
        /// The key.
        key: String,
        /// As written.
        value: String,
        /// What could stand there.
        expected: &'static str,
    },
    /// `--set` without `=`.
    #[error("--set {0}: write KEY=VALUE, as in --set stream.midstream=true")]
    Assignment(String),
}

/// The tree.
#[derive(Debug, Default)]
pub struct Settings {
    root: Value,
    /// Keys that were asked for, or that lie under one that was.
    asked: RefCell<BTreeSet<String>>,
    /// Folder of the first file: relative paths in it count from there.
    folder: Option<PathBuf>,
}

impl Settings {
    /// Reads files; later ones override earlier ones, key by key.
    ///
    /// # Errors
    /// A file cannot be read, or its text is wrong.
    pub fn read(paths: &[PathBuf]) -> Result<Settings, SettingsError> {
        let mut settings = Settings {
            root: Value::Object(Map::new()),
            ..Settings::default()
        };
        for path in paths {
            let value = read(path, 0)?;
            merge(&mut settings.root, value);
            if settings.folder.is_none() {
                settings.folder = path.parent().map(Path::to_path_buf);
            }
        }
        Ok(settings)
    }

    /// Reads text, of TOML if `toml`, else of YAML.
    ///
    /// # Errors
    /// The text is wrong.
    pub fn parse(text: &str, toml: bool) -> Result<Settings, SettingsError> {
        let path = Path::new(if toml { "text.toml" } else { "text.yaml" });
        Ok(Settings {
            root: parse(text, path)?,
            ..Settings::default()
        })
    }

    /// `KEY=VALUE`; parts of lists are numbered from 0.
    ///
    /// # Errors
    /// There is no `=`.
    pub fn set(&mut self, assignment: &str) -> Result<(), SettingsError> {
        let (key, value) = assignment
            .split_once('=')
            .filter(|(key, _)| !key.trim().is_empty())
            .ok_or_else(|| SettingsError::Assignment(assignment.to_owned()))?;
        let mut at = &mut self.root;
        for part in key.trim().split('.') {
            let index = part.parse::<usize>().ok();
            // The first part of a list that is not there, or empty, makes it one.
            if at.is_null() && index == Some(0) {
                *at = Value::Array(Vec::new());
            }
            if let (Value::Array(list), Some(index)) = (&mut *at, index) {
                // A list grows by one part only: a number that leaves a gap is a mistake.
                if index > list.len() {
                    return Err(SettingsError::Assignment(assignment.to_owned()));
                }
                if index == list.len() {
                    list.push(Value::Object(Map::new()));
                }
                let Value::Array(list) = at else {
                    unreachable!("matched above")
                };
                at = &mut list[index];
                continue;
            }
            if !at.is_object() {
                *at = Value::Object(Map::new());
            }
            let Value::Object(map) = at else {
                unreachable!("made so above")
            };
            at = map.entry(part).or_insert(Value::Null);
        }
        *at = Value::String(value.trim().to_owned());
        Ok(())
    }

    /// A path as written, counted from the folder of the configuration.
    pub fn path(&self, written: &str) -> PathBuf {
        let path = PathBuf::from(written);
        match &self.folder {
            Some(folder) if path.is_relative() && !path.exists() => folder.join(path),
            _ => path,
        }
    }

    fn find(&self, key: &str) -> Option<&Value> {
        self.asked.borrow_mut().insert(key.to_owned());
        self.look_up(key)
    }

    fn look_up(&self, key: &str) -> Option<&Value> {
        let mut at = &self.root;
        for part in key.split('.') {
            at = match at {
                Value::Object(map) => map.get(part)?,
                Value::Array(list) => list.get(part.parse::<usize>().ok()?)?,
                _ => return None,
            };
        }
        (!at.is_null()).then_some(at)
    }

    /// A word; numbers and truth values as they are written.
    pub fn text(&self, key: &str) -> Option<String> {
        text(self.find(key)?)
    }

    /// As [`Settings::text`], for messages about a key: it stays unknown if nothing else asks for it.
    pub fn text_of_unknown(&self, key: &str) -> Option<String> {
        text(self.look_up(key)?)
    }

    /// Yes or no.
    ///
    /// # Errors
    /// It is something else.
    pub fn truth(&self, key: &str) -> Result<Option<bool>, SettingsError> {
        let Some(value) = self.text(key) else {
            return Ok(None);
        };
        match value.to_ascii_lowercase().as_str() {
            "yes" | "true" | "on" | "1" => Ok(Some(true)),
            "no" | "false" | "off" | "0" => Ok(Some(false)),
            _ => Err(wrong(key, &value, "yes or no")),
        }
    }

    /// A number.
    ///
    /// # Errors
    /// It is something else.
    pub fn number(&self, key: &str) -> Result<Option<u64>, SettingsError> {
        let Some(value) = self.text(key) else {
            return Ok(None);
        };
        value
            .trim()
            .parse()
            .map(Some)
            .map_err(|_| wrong(key, &value, "a number"))
    }

    /// Bytes, with `kb`, `mb`, `gb` (of 1024) behind them or not.
    ///
    /// # Errors
    /// It is something else.
    pub fn bytes(&self, key: &str) -> Result<Option<u64>, SettingsError> {
        let Some(value) = self.text(key) else {
            return Ok(None);
        };
        bytes(&value)
            .map(Some)
            .ok_or_else(|| wrong(key, &value, "a number of bytes, as in 64mb"))
    }

    /// A duration in seconds, with `s`, `m`, `h`, `d` behind it or not.
    ///
    /// # Errors
    /// It is something else.
    pub fn seconds(&self, key: &str) -> Result<Option<u64>, SettingsError> {
        let Some(value) = self.text(key) else {
            return Ok(None);
        };
        seconds(&value)
            .map(Some)
            .ok_or_else(|| wrong(key, &value, "a time, as in 60 or 10m"))
    }

    /// Words of a list; one word is a list of one.
    pub fn list(&self, key: &str) -> Option<Vec<String>> {
        match self.find(key)? {
            Value::Array(list) => Some(list.iter().filter_map(text).collect()),
            other => text(other).map(|one| vec![one]),
        }
    }

    /// Keys right below one, in the order of their names; of a list, its numbers.
    pub fn keys(&self, key: &str) -> Vec<String> {
        match self.find(key) {
            Some(Value::Object(map)) => map.keys().cloned().collect(),
            Some(Value::Array(list)) => (0..list.len()).map(|n| n.to_string()).collect(),
            _ => Vec::new(),
        }
    }

    /// Whether there is something under a key.
    pub fn has(&self, key: &str) -> bool {
        self.find(key).is_some()
    }

    /// All keys with their values, in order: `key = value`. A part of a list that has a name stands as the value of its number, too.
    pub fn dump(&self) -> Vec<String> {
        let mut lines = Vec::new();
        dump(&self.root, &mut String::new(), &mut lines);
        lines
    }

    /// Keys with a value that nobody asked for: they change nothing.
    pub fn unknown(&self) -> Vec<String> {
        let mut leaves = Vec::new();
        gather(&self.root, &mut String::new(), &mut leaves);
        let asked = self.asked.borrow();
        leaves.retain(|leaf| !asked.contains(leaf));
        leaves
    }
}

fn wrong(key: &str, value: &str, expected: &'static str) -> SettingsError {
    SettingsError::Value {
        key: key.to_owned(),
        value: value.to_owned(),
        expected,
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(s) => Some(s.clone()),
        Value::Number(n) => Some(n.to_string()),
        Value::Bool(b) => Some(b.to_string()),
        _ => None,
    }
}

fn dump(value: &Value, prefix: &mut String, lines: &mut Vec<String>) {
    let mut below = |name: &str, value: &Value, lines: &mut Vec<String>| {
        let length = prefix.len();
        if length > 0 {
            prefix.push('.');
        }
        prefix.push_str(name);
        if let (Value::Object(map), true) = (value, name.bytes().all(|b| b.is_ascii_digit()))
            && let Some(first) = map.keys().next()
        {
            lines.push(format!("{prefix} = {first}"));
        }
        dump(value, prefix, lines);
        prefix.truncate(length);
    };
    match value {
        Value::Object(map) => map
            .iter()
            .for_each(|(name, value)| below(name, value, lines)),
        Value::Array(list) => {
            for (number, value) in list.iter().enumerate() {
                below(&number.to_string(), value, lines);
            }
        }
        // As configurations write it.
        Value::Bool(true) => lines.push(format!("{prefix} = yes")),
        Value::Bool(false) => lines.push(format!("{prefix} = no")),
        other => lines.push(match text(other) {
            Some(text) => format!("{prefix} = {text}"),
            None => format!("{prefix} = (null)"),
        }),
    }
}

/// `64mb`, `1 GiB`, `65535`.
pub(crate) fn bytes(value: &str) -> Option<u64> {
    let value = value.trim().to_ascii_lowercase();
    let end = value
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(value.len());
    let number: u64 = value[..end].parse().ok()?;
    let unit = match value[end..].trim() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(unit)
}

fn seconds(value: &str) -> Option<u64> {
    let value = value.trim();
    let end = value
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(value.len());
    let number: u64 = value[..end].parse().ok()?;
    let unit = match value[end..].trim() {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return None,
    };
    number.checked_mul(unit)
}

fn read(path: &Path, depth: usize) -> Result<Value, SettingsError> {
    let text = std::fs::read_to_string(path).map_err(|error| SettingsError::Read {
        path: path.to_path_buf(),
        error,
    })?;
    let mut value = parse(&text, path)?;
    // `include: FILE` or a list of them: what they say, this file may override.
    let included = value.as_object_mut().and_then(|map| map.remove("include"));
    let names: Vec<String> = match &included {
        Some(Value::Array(list)) => list.iter().filter_map(self::text).collect(),
        Some(one) => self::text(one).into_iter().collect(),
        None => Vec::new(),
    };
    if names.is_empty() {
        return Ok(value);
    }
    if depth == DEPTH {
        return Err(SettingsError::Syntax {
            path: path.to_path_buf(),
            message: format!("files include each other more than {DEPTH} deep"),
        });
    }
    let mut all = Value::Object(Map::new());
    for name in names {
        let mut included = PathBuf::from(name);
        if included.is_relative() {
            included = path.parent().unwrap_or(Path::new("")).join(included);
        }
        merge(&mut all, read(&included, depth + 1)?);
    }
    merge(&mut all, value);
    Ok(all)
}

fn parse(text: &str, path: &Path) -> Result<Value, SettingsError> {
    let failed = |message: String| SettingsError::Syntax {
        path: path.to_path_buf(),
        message,
    };
    let value: Value = if path.extension().is_some_and(|e| e == "toml") {
        toml::from_str(text).map_err(|e| failed(e.to_string()))?
    } else {
        let options = serde_saphyr::options! {
            duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::LastWins,
        };
        serde_saphyr::from_str_with_options(text, options).map_err(|e| failed(e.to_string()))?
    };
    match value {
        Value::Object(_) => Ok(value),
        Value::Null => Ok(Value::Object(Map::new())),
        _ => Err(failed("a configuration is keys with values".to_owned())),
    }
}

/// Puts `over` over `base`: maps key by key, everything else whole.
fn merge(base: &mut Value, over: Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                merge(base.entry(key).or_insert(Value::Null), value);
            }
        }
        (base, over) => *base = over,
    }
}

fn gather(value: &Value, prefix: &mut String, leaves: &mut Vec<String>) {
    let mut each = |name: &str, value: &Value| {
        let length = prefix.len();
        if length > 0 {
            prefix.push('.');
        }
        prefix.push_str(name);
        gather(value, prefix, leaves);
        prefix.truncate(length);
    };
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| each(key, value)),
        // A list of words is one value.
        Value::Array(list) if list.iter().any(Value::is_object) => {
            list.iter()
                .enumerate()
                .for_each(|(n, value)| each(&n.to_string(), value));
        }
        Value::Null => {}
        _ => leaves.push(prefix.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_has_every_key() {
        let text = "vars:\n  a: 1\n  d: yes\noutputs:\n  - fast:\n      enabled: \"no\"\nrule-files: [x, z.rules]\nnone:\n";
        let mut settings = Settings::parse(text, false).expect("YAML");
        settings.set("vars.b.c=2").expect("set");
        let mut lines = settings.dump();
        lines.sort();
        let expected = [
            "none = (null)",
            "outputs.0 = fast",
            "outputs.0.fast.enabled = no",
            "rule-files.0 = x",
            "rule-files.1 = z.rules",
            "vars.a = 1",
            "vars.b.c = 2",
            "vars.d = yes",
        ];
        assert_eq!(lines, expected);
    }

    const YAML: &str = "%YAML 1.1\n---\n# comment\nvars:\n  address-groups:\n    HOME_NET: \"[10.0.0.0/8,!10.1.0.0/16]\"\n    EXTERNAL_NET: \"!$HOME_NET\"\n  port-groups:\n    ORACLE_PORTS: 1521\nstream:\n  memcap: 64 MiB\n  midstream: yes\n  prealloc-sessions: 2048\noutputs:\n  - fast:\n      enabled: no\n  - eve-log:\n      enabled: yes\n      types:\n        - alert:\n            payload: yes\n        - dns\nrule-files:\n  - a.rules\n  - b.rules\n";

    #[test]
    fn yaml_as_users_have_it() {
        let mut s = Settings::parse(YAML, false).expect("YAML");
        assert_eq!(
            s.text("vars.address-groups.HOME_NET").as_deref(),
            Some("[10.0.0.0/8,!10.1.0.0/16]")
        );
        assert_eq!(
            s.text("vars.port-groups.ORACLE_PORTS").as_deref(),
            Some("1521")
        );
        assert_eq!(s.keys("vars.address-groups"), ["EXTERNAL_NET", "HOME_NET"]);
        assert_eq!(s.bytes("stream.memcap").expect("bytes"), Some(64 << 20));
        assert_eq!(s.truth("stream.midstream").expect("yes or no"), Some(true));
        assert_eq!(
            s.truth("outputs.0.fast.enabled").expect("yes or no"),
            Some(false)
        );
        assert_eq!(
            s.truth("outputs.1.eve-log.types.0.alert.payload")
                .expect("yes or no"),
            Some(true)
        );
        assert_eq!(s.list("rule-files").expect("list"), ["a.rules", "b.rules"]);
        s.set("stream.midstream=no").expect("set");
        s.set("outputs.1.eve-log.types.2=tls").expect("set");
        assert_eq!(s.truth("stream.midstream").expect("yes or no"), Some(false));
        assert_eq!(s.text("outputs.1.eve-log.types.2").as_deref(), Some("tls"));
        assert_eq!(s.text("outputs.1.eve-log.types.1").as_deref(), Some("dns"));
    }

    #[test]
    fn toml_has_the_same_keys() {
        let s = Settings::parse("[vars.address-groups]\nHOME_NET = \"10.0.0.0/8\"\n[stream]\nmemcap = 1024\nnew = \"x\"\n", true).expect("TOML");
        assert_eq!(
            s.text("vars.address-groups.HOME_NET").as_deref(),
            Some("10.0.0.0/8")
        );
        assert_eq!(s.bytes("stream.memcap").expect("bytes"), Some(1024));
        assert_eq!(s.unknown(), ["stream.new"]);
    }

    #[test]
    fn mistakes_are_named() {
        let s =
            Settings::parse("stream:\n  memcap: lots\n  midstream: maybe\n", false).expect("YAML");
        assert_eq!(
            s.bytes("stream.memcap").expect_err("no bytes").to_string(),
            "stream.memcap: \"lots\" is not a number of bytes, as in 64mb"
        );
        assert!(s.truth("stream.midstream").is_err());
        assert!(Settings::parse("a: [1, 2\n", false).is_err());
        assert!(Settings::parse("- a\n- b\n", false).is_err());
        let mut s = Settings::default();
        assert!(s.set("nothing").is_err());
        s.set("a.b=1").expect("set");
        s.set("files.0=one").expect("set");
        s.set("files.1=two").expect("set");
        assert!(s.set("files.3=four").is_err());
        assert_eq!(s.list("files"), Some(vec!["one".into(), "two".into()]));
        assert_eq!(s.number("a.b").expect("number"), Some(1));
    }
}
