//! What has to change for one plan to become another: ports, instances, links, shared maps, hooks.
//!
//! An instance is *kept* if it runs the same program with the same configuration, *replaced* if not; links are compared by themselves,
//! so that moving a link replaces nothing.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::config::TRANSMIT;
use crate::outline::{InstanceOutline, Outline};

/// All that differs, in the order of the new plan; what is gone comes last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Diff {
    /// Ports that are not the same.
    pub ports: Vec<Change>,
    /// Instances that are not the same.
    pub instances: Vec<Change>,
    /// Instances that go on as they are.
    pub kept: Vec<String>,
    /// Links that are not the same: `from`, or `from.output`.
    pub links: Vec<Change>,
    /// Shared maps that are not the same.
    pub maps: Vec<Change>,
    /// Objects on other hooks that are not the same.
    pub hooks: Vec<Change>,
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "change", rename_all = "lowercase")]
pub enum Change {
    /// Was not there.
    Added {
        /// Name.
        name: String,
        /// What it is.
        what: String,
    },
    /// Is not wanted any more.
    Removed {
        /// Name.
        name: String,
        /// What it was.
        what: String,
    },
    /// Is another one.
    Changed {
        /// Name.
        name: String,
        /// What of it, one entry each.
        what: Vec<String>,
    },
}

/// What has to change for `old` to become `new`.
pub fn diff(old: &Outline, new: &Outline) -> Diff {
    let mut found = Diff {
        ports: by_name(
            &old.ports,
            &new.ports,
            |port| (port.name.clone(), port_text(port)),
            |a, b| {
                let mut what = Vec::new();
                changed(&mut what, "number", &a.number, &b.number);
                changed(&mut what, "device", &a.device, &b.device);
                changed(&mut what, "mode", &a.mode.text(), &b.mode.text());
                let sums =
                    |mode: &Option<String>| mode.clone().unwrap_or_else(|| "by driver".to_owned());
                changed(
                    &mut what,
                    "checksums",
                    &sums(&a.checksums),
                    &sums(&b.checksums),
                );
                changed(&mut what, "metadata", &a.metadata, &b.metadata);
                what
            },
        ),
        instances: by_name(
            &old.instances,
            &new.instances,
            |one| (one.name.clone(), one.kind.clone()),
            replaced,
        ),
        maps: by_name(
            &old.maps,
            &new.maps,
            |map| {
                let text = format!(
                    "{} of {} entries, {} + {} bytes",
                    map.kind.text(),
                    map.entries,
                    map.key,
                    map.value
                );
                (map.name.clone(), text)
            },
            |a, b| {
                let mut what = Vec::new();
                changed(&mut what, "type", &a.kind.text(), &b.kind.text());
                changed(&mut what, "key", &a.key, &b.key);
                changed(&mut what, "value", &a.value, &b.value);
                changed(&mut what, "entries", &a.entries, &b.entries);
                what
            },
        ),
        hooks: by_name(
            &old.hooks,
            &new.hooks,
            |hook| (hook.name.clone(), hook.attach.clone()),
            |a, b| {
                let mut what = Vec::new();
                changed(&mut what, "file", &a.file, &b.file);
                changed(&mut what, "program", &a.program, &b.program);
                changed(&mut what, "attach", &a.attach, &b.attach);
                changed(&mut what, "maps", &pairs(&a.shares), &pairs(&b.shares));
                if a.digest != b.digest {
                    what.push("object".to_owned());
                }
                what
            },
        ),
        ..Diff::default()
    };
    let same = |one: &&InstanceOutline| {
        let before = old.instances.iter().find(|before| before.name == one.name);
        before.is_some_and(|before| before.runs_the_same(one))
    };
    found.kept = new
        .instances
        .iter()
        .filter(same)
        .map(|one| one.name.clone())
        .collect();
    let text = |link: &(String, String)| (link.0.clone(), link.1.clone());
    found.links = by_name(&links(old), &links(new), text, |a, b| match a.1 == b.1 {
        true => Vec::new(),
        false => vec![format!("{} -> {}", a.1, b.1)],
    });
    found
}

impl Diff {
    /// Whether both plans are the same.
    pub fn is_empty(&self) -> bool {
        let lists = [
            &self.ports,
            &self.instances,
            &self.links,
            &self.maps,
            &self.hooks,
        ];
        lists.iter().all(|list| list.is_empty())
    }
}

/// One line each: `+` added, `-` removed, `~` changed.
impl fmt::Display for Diff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return writeln!(f, "nothing changes");
        }
        let lists = [
            ("port", &self.ports),
            ("map", &self.maps),
            ("function", &self.instances),
            ("hook", &self.hooks),
            ("link", &self.links),
        ];
        for (what, list) in lists {
            for change in list {
                match change {
                    Change::Added { name, what: text } if what == "link" => {
                        writeln!(f, "+ link {name} > {text}")?
                    }
                    Change::Removed { name, what: text } if what == "link" => {
                        writeln!(f, "- link {name} > {text}")?
                    }
                    Change::Added { name, what: text } => writeln!(f, "+ {what} {name} ({text})")?,
                    Change::Removed { name, what: text } => {
                        writeln!(f, "- {what} {name} ({text})")?
                    }
                    Change::Changed { name, what: text } => {
                        writeln!(f, "~ {what} {name}: {}", text.join(", "))?
                    }
                }
            }
        }
        match self.kept.len() {
            0 => Ok(()),
            1 => writeln!(f, "  1 function unchanged"),
            many => writeln!(f, "  {many} functions unchanged"),
        }
    }
}

fn by_name<T>(
    old: &[T],
    new: &[T],
    describe: impl Fn(&T) -> (String, String),
    compare: impl Fn(&T, &T) -> Vec<String>,
) -> Vec<Change> {
    let mut before: BTreeMap<String, &T> = old.iter().map(|one| (describe(one).0, one)).collect();
    let mut changes = Vec::new();
    for one in new {
        let (name, what) = describe(one);
        match before.remove(&name) {
            None => changes.push(Change::Added { name, what }),
            Some(other) => {
                let what = compare(other, one);
                if !what.is_empty() {
                    changes.push(Change::Changed { name, what });
                }
            }
        }
    }
    for one in old {
        let (name, what) = describe(one);
        if before.contains_key(&name) {
            changes.push(Change::Removed { name, what });
        }
    }
    changes
}

/// Why an instance is replaced.
fn replaced(old: &InstanceOutline, new: &InstanceOutline) -> Vec<String> {
    let mut what = Vec::new();
    changed(&mut what, "kind", &old.kind, &new.kind);
    changed(&mut what, "object", &old.object, &new.object);
    if old.object == new.object && old.digest != new.digest {
        what.push("the object was rebuilt".to_owned());
    }
    changed(&mut what, "program", &old.program, &new.program);
    if old.kind == new.kind {
        let names = |ones: Vec<&String>| ones.into_iter().cloned().collect::<Vec<_>>().join(", ");
        let constants = keys_that_differ(&old.constants, &new.constants);
        if !constants.is_empty() {
            what.push(format!("constants {}", names(constants)));
        }
        for map in keys_that_differ(&old.maps, &new.maps) {
            what.push(match (old.maps.get(map), new.maps.get(map)) {
                (Some(a), Some(b)) if a.filled != b.filled => {
                    format!("map {map}: {} -> {} elements", a.filled, b.filled)
                }
                (Some(a), Some(b)) if a.digest != b.digest => format!("map {map}: contents"),
                (Some(a), Some(b)) => format!(
                    "map {map}: {} entries of {} + {} bytes -> {} of {} + {}",
                    a.entries, a.key, a.value, b.entries, b.key, b.value
                ),
                _ => format!("map {map}"),
            });
        }
    }
    changed(&mut what, "maps", &pairs(&old.shares), &pairs(&new.shares));
    what
}

fn keys_that_differ<'a, V: PartialEq>(
    old: &'a BTreeMap<String, V>,
    new: &'a BTreeMap<String, V>,
) -> Vec<&'a String> {
    let gone = old.keys().filter(|key| !new.contains_key(*key));
    let other = new
        .iter()
        .filter(|(key, value)| old.get(*key) != Some(value));
    let mut keys: Vec<&String> = other.map(|(key, _)| key).chain(gone).collect();
    keys.sort_unstable();
    keys
}

fn changed<T: PartialEq + fmt::Display>(what: &mut Vec<String>, name: &str, old: &T, new: &T) {
    if old != new {
        what.push(format!("{name} {old} -> {new}"));
    }
}

fn pairs(shares: &BTreeMap<String, String>) -> String {
    let pairs: Vec<String> = shares
        .iter()
        .map(|(own, shared)| format!("{own} = {shared}"))
        .collect();
    format!("{{{}}}", pairs.join(", "))
}

fn port_text(port: &crate::outline::PortOutline) -> String {
    format!("{}, {}", port.device, port.mode.text())
}

/// Every link: where from, where to. The default output goes without its name.
fn links(outline: &Outline) -> Vec<(String, String)> {
    let ports = outline.ports.iter().flat_map(|port| {
        let sent = port.transmit.clone();
        let sent = sent.map(|to| (format!("{}.{TRANSMIT}", port.name), to));
        std::iter::once((port.name.clone(), port.entry.clone())).chain(sent)
    });
    let outs = outline.instances.iter().flat_map(|one| {
        one.links.iter().map(|(out, to)| match out.as_str() {
            "next" => (one.name.clone(), to.clone()),
            _ => (format!("{}.{out}", one.name), to.clone()),
        })
    });
    ports.chain(outs).collect()
}
