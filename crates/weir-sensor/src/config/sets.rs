//! Sets of values that the configuration names (`datasets`), and what rules may do with files of theirs.

use std::path::PathBuf;

use crate::settings::{Settings, SettingsError};

/// `datasets`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sets {
    /// Rules may have sets written (`datasets.rules.allow-write`).
    pub write: bool,
    /// Wherever they like (`datasets.rules.allow-absolute-filenames`).
    pub anywhere: bool,
    /// Bytes of a set that nothing else is said of.
    pub memory: Option<u64>,
    /// Sets that are there before any rule.
    pub list: Vec<ConfiguredSet>,
}

/// A set that the configuration names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfiguredSet {
    /// Its name.
    pub name: String,
    /// `string`, `md5`, `sha256`, `ipv4`, `ipv6` or `ip`.
    pub kind: String,
    /// Where it is read from.
    pub load: Option<PathBuf>,
    /// It need not be there.
    pub optional: bool,
    /// Where it is written when the sensor stops.
    pub save: Option<PathBuf>,
    /// Bytes that it may take.
    pub memory: Option<u64>,
}

/// Keys below `datasets` that are no sets.
const OTHERS: [&str; 3] = ["defaults", "limits", "rules"];
/// Types of members.
pub(crate) const KINDS: [&str; 6] = ["string", "md5", "sha256", "ipv4", "ipv6", "ip"];

pub(super) fn sets(s: &Settings, data: Option<&PathBuf>) -> Result<Sets, SettingsError> {
    let mut list = Vec::new();
    for name in s.keys("datasets") {
        // A word instead of a section is no set.
        let section = !s.keys(&format!("datasets.{name}")).is_empty();
        if OTHERS.contains(&name.as_str()) || !section {
            continue;
        }
        let key = |key: &str| format!("datasets.{name}.{key}");
        let kind = s.text(&key("type")).unwrap_or_default();
        if !KINDS.contains(&kind.as_str()) {
            return Err(SettingsError::Value {
                key: key("type"),
                value: kind,
                expected: "string, md5, sha256, ipv4, ipv6 or ip",
            });
        }
        let file = |name: &str| s.text(&key(name)).map(|path| s.path(&path));
        // What is kept from run to run is where data is, unless its path is whole.
        let kept = |name: &str| {
            let path = PathBuf::from(s.text(&key(name))?);
            Some(data.map_or_else(|| path.clone(), |folder| folder.join(&path)))
        };
        let state = kept("state");
        list.push(ConfiguredSet {
            optional: state.is_some(),
            load: state.clone().or_else(|| file("load")),
            save: state.or_else(|| kept("save")),
            memory: s.bytes(&key("memcap"))?,
            kind,
            name,
        });
    }
    Ok(Sets {
        write: s.truth("datasets.rules.allow-write")? != Some(false),
        anywhere: s.truth("datasets.rules.allow-absolute-filenames")? == Some(true),
        memory: s.bytes("datasets.defaults.memcap")?,
        list,
    })
}
