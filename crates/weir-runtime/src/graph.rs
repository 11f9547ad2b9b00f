//! The graph of an edge: what is kept beside it while it runs. The configuration and the files it named, so that it can be compared with
//! another one and gone back to; and the outline of its plan.
//!
//! The engine keeps the text without reading it. Files above 256 KiB are kept by length and digest only: going back then needs them
//! as they were.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use weir_engine::edge::{self, EdgeError};
use weir_functions::joined::{Included, Joined};
use weir_functions::kind::Files;
use weir_graph::{Config, EdgePlan, Folder, Numbers, Outline};
use weir_policy::Diagnostics;

use crate::error::RuntimeError;
use crate::files::Read;

/// Largest file that is kept whole, in bytes.
const KEPT_MAX: usize = 256 << 10;

/// A configuration that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Path of the configuration, whole if that could be found out.
    pub path: PathBuf,
    /// Its text, with those of files that it includes.
    text: String,
    /// Where included files begin in it.
    #[serde(default)]
    included: Vec<Included>,
    /// Files by their names in it.
    files: BTreeMap<PathBuf, Kept>,
    /// When they were last changed, in seconds since 1970.
    #[serde(default)]
    changed: BTreeMap<PathBuf, u64>,
    /// What runs.
    pub outline: Outline,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kept {
    Text(String),
    Hex(String),
    Digest { bytes: usize, digest: String },
}

impl Record {
    /// Of a plan; `files` are those that were read for it.
    pub(crate) fn new(path: &Path, source: Joined, plan: &EdgePlan, files: &Read) -> Record {
        let read = files
            .iter()
            .filter_map(|(name, bytes)| Some((name.clone(), bytes.as_ref()?)));
        let folder = Folder::of(path);
        let changed = files
            .keys()
            .filter_map(|name| Some((name.clone(), folder.modified(name)?)));
        Record {
            path: std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
            text: source.text,
            included: source.included,
            files: read.map(|(name, bytes)| (name, Kept::of(bytes))).collect(),
            changed: changed.collect(),
            outline: plan.outline(),
        }
    }

    /// From what the engine kept.
    ///
    /// # Errors
    /// Something else than this version applied it.
    pub fn read(edge: &str, text: &str) -> Result<Record, RuntimeError> {
        serde_json::from_str(text).map_err(|error| {
            RuntimeError::Failed(format!(
                "edge {edge} was not applied by `weir apply` of this version ({error}): run `weir down --edge {edge}` and apply again"
            ))
        })
    }

    /// For the engine to keep.
    ///
    /// # Errors
    /// It has no text.
    pub fn write(&self) -> Result<String, RuntimeError> {
        serde_json::to_string(self).map_err(failed)
    }

    /// The configuration.
    ///
    /// # Errors
    /// This version does not read it.
    pub fn config(&self) -> Result<Config, RuntimeError> {
        weir_graph::parse_joined(self.source()).map_err(|found| {
            RuntimeError::Failed(format!(
                "the configuration that runs ({}) cannot be read by this version: {found}",
                self.path.display()
            ))
        })
    }

    /// The text of the configuration: one file, which includes nothing.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The same with another text, planned beside what runs, and what the planner warns of. The files it names are those that were kept.
    ///
    /// # Errors
    /// [`RuntimeError::Mistakes`] in the text.
    pub fn edited(&self, text: String) -> Result<(EdgePlan, Record, Diagnostics), RuntimeError> {
        let refused = |found: Diagnostics| RuntimeError::Mistakes {
            path: self.path.clone(),
            what: "changed configuration",
            found,
        };
        let source = self.source().with_text(text);
        let config = weir_graph::parse_joined(source.clone()).map_err(refused)?;
        let files = Running {
            record: self,
            edge: &config.edge,
        };
        let (plan, warnings) =
            weir_graph::plan(&config, &files, &self.numbers()).map_err(refused)?;
        let record = Record {
            text: source.text,
            included: source.included,
            outline: plan.outline(),
            ..self.clone()
        };
        Ok((plan, record, warnings))
    }

    fn source(&self) -> Joined {
        Joined {
            name: self.path.display().to_string(),
            text: self.text.clone(),
            included: self.included.clone(),
        }
    }

    fn numbers(&self) -> Numbers {
        let ports = self.outline.ports.iter();
        ports
            .map(|port| (port.device.clone(), port.number))
            .collect()
    }

    /// The same plan again, from what was kept.
    ///
    /// # Errors
    /// A file that was too large to be kept has changed.
    pub fn plan(&self) -> Result<EdgePlan, RuntimeError> {
        let cannot = |why: String| {
            RuntimeError::Failed(format!(
                "the configuration that runs ({}) could not be gone back to: {why}; nothing was changed",
                self.path.display()
            ))
        };
        let config =
            weir_graph::parse_joined(self.source()).map_err(|found| cannot(found.to_string()))?;
        let numbers = self.numbers();
        let files = Running {
            record: self,
            edge: &config.edge,
        };
        match weir_graph::plan(&config, &files, &numbers) {
            Ok((plan, _)) => Ok(plan),
            Err(found) => {
                let first = found.iter().next().map(|one| one.message.clone());
                Err(cannot(first.unwrap_or_default()))
            }
        }
    }
}

fn failed(error: serde_json::Error) -> RuntimeError {
    RuntimeError::Failed(error.to_string())
}

/// What is kept beside the running graph of an edge; `None` if none runs, or only root can tell: then `note` is told.
///
/// # Errors
/// It cannot be read.
pub fn running(edge: &str, note: &mut dyn FnMut(String)) -> Result<Option<Record>, RuntimeError> {
    match edge::status(edge) {
        Ok(status) => Record::read(edge, &status.text).map(Some),
        Err(EdgeError::NotRunning { .. }) => Ok(None),
        Err(error) if is_hidden(&error) => {
            note("only root sees what runs: this is compared with nothing".to_owned());
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Numbers of the ports of the graph that runs; none where that cannot be seen, as without root.
pub(crate) fn numbers(edge: &str) -> Result<Numbers, RuntimeError> {
    match edge::numbers(edge) {
        Ok(numbers) => Ok(numbers),
        Err(error) if is_hidden(&error) => Ok(Numbers::new()),
        Err(error) => Err(error.into()),
    }
}

/// What a map of a running instance holds; `None` if it does not run. Where that cannot be seen, the plan is that of a fresh start.
pub(crate) fn held(
    edge: &str,
    instance: &str,
    map: &str,
    note: &mut dyn FnMut(String),
) -> Option<Vec<u8>> {
    match edge::held(edge, instance, map) {
        Ok(held) => held,
        Err(error) if is_hidden(&error) => None,
        Err(error) => {
            note(format!(
                "what {instance} runs with cannot be read ({error}): this is planned as if it did not run"
            ));
            None
        }
    }
}

/// Whether only root can tell.
fn is_hidden(error: &EdgeError) -> bool {
    !rustix::process::geteuid().is_root() && matches!(error, EdgeError::Kernel(_))
}

/// Files of a record, and what runs of its edge.
struct Running<'a> {
    record: &'a Record,
    edge: &'a str,
}

impl Files for Running<'_> {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.record.read(path)
    }

    fn modified(&self, path: &Path) -> Option<u64> {
        self.record.modified(path)
    }

    fn kept(&self, instance: &str, map: &str) -> Option<Vec<u8>> {
        held(self.edge, instance, map, &mut |_| ())
    }
}

impl Files for Record {
    fn modified(&self, path: &Path) -> Option<u64> {
        self.changed.get(path).copied()
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let invalid = |text: &str| io::Error::new(io::ErrorKind::InvalidData, text.to_owned());
        match self.files.get(path) {
            None => Err(io::ErrorKind::NotFound.into()),
            Some(Kept::Text(text)) => Ok(text.clone().into_bytes()),
            Some(Kept::Hex(digits)) => {
                unhex(digits).ok_or_else(|| invalid("what was kept of it is damaged"))
            }
            Some(Kept::Digest { bytes, digest }) => {
                let now = Folder::of(&self.path).read(path)?;
                match now.len() == *bytes && weir_graph::digest(&now) == *digest {
                    true => Ok(now),
                    false => Err(invalid(
                        "it has changed since, and is too large to have been kept",
                    )),
                }
            }
        }
    }
}

impl Kept {
    fn of(bytes: &[u8]) -> Kept {
        if bytes.len() > KEPT_MAX {
            return Kept::Digest {
                bytes: bytes.len(),
                digest: weir_graph::digest(bytes),
            };
        }
        match std::str::from_utf8(bytes) {
            Ok(text) => Kept::Text(text.to_owned()),
            Err(_) => Kept::Hex(bytes.iter().map(|b| format!("{b:02x}")).collect()),
        }
    }
}

fn unhex(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_can_be_planned_again() {
        let folder = std::env::temp_dir().join(format!("weir-record-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        let path = folder.join("edge.toml");
        let text = "[[port]]\nname = 'wan'\ndevice = 'none0'\n[[function]]\nname = 'rules'\nkind = 'middlebox'\npolicy = 'p.weir'\n\
                    [[link]]\nfrom = 'wan'\nto = 'rules'\n";
        let rules = "tcp-dport 23 drop\n";
        for rules in [
            rules.to_owned(),
            rules.repeat(KEPT_MAX / rules.len() / 200) + &"# more\n".repeat(KEPT_MAX / 7),
        ] {
            std::fs::write(folder.join("p.weir"), &rules).expect("it can be written");
            let config = weir_graph::parse(text, "edge.toml").expect("right");
            let (plan, _) =
                weir_graph::plan(&config, &Folder::new(&folder), &Numbers::new()).expect("right");
            let files = [(PathBuf::from("p.weir"), Some(rules.clone().into_bytes()))].into();
            let record = Record::new(&path, Joined::new("", text), &plan, &files);
            let back = Record::read("e", &record.write().expect("text")).expect("the same");
            assert_eq!(back, record);
            // Small files are kept, large ones must be as they were.
            std::fs::write(folder.join("p.weir"), "all accept\n").expect("it can be written");
            match rules.len() > KEPT_MAX {
                false => assert_eq!(back.plan().expect("kept").outline(), plan.outline()),
                true => {
                    let error = back.plan().expect_err("changed").to_string();
                    assert!(
                        error.contains("it has changed since, and is too large to have been kept"),
                        "{error}"
                    );
                    std::fs::write(folder.join("p.weir"), &rules).expect("it can be written");
                    assert_eq!(back.plan().expect("as it was").outline(), plan.outline());
                }
            }
        }
        std::fs::remove_dir_all(&folder).expect("it is there");
    }
}
