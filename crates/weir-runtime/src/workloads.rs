//! Workloads that come and go: the running document is edited, checked and applied, and everything else of it stays as it is, comments included.
//!
//! Each edge keeps a copy of the document, so a change is made on each edge of the network. Packets to a workload that moves find it on
//! the edges that know of it; docs/networks.md says in which order to tell them.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use toml_edit::{Array, ArrayOfTables, DocumentMut, InlineTable, Item, Table, Value, value};
use weir_engine::network::{self, NetworkError};
use weir_kernel::iface;
use weir_policy::Diagnostics;

use crate::error::RuntimeError;
use crate::networks::{self, NetworksApplied, Record};

/// A workload as it is added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Its network.
    pub network: String,
    /// Its name in that.
    pub name: String,
    /// Its subnet.
    pub subnet: String,
    /// Interface on its edge.
    pub device: String,
    /// What it may send from.
    pub addresses: Vec<IpAddr>,
    /// A MAC address, or `device`; `None`: one that is made of its name.
    pub mac: Option<String>,
    /// The edge it sits on; `None`: this one.
    pub edge: Option<String>,
    /// Security groups that it is in.
    pub groups: Vec<String>,
}

/// What becomes of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It comes.
    Add(Workload),
    /// It goes.
    Remove {
        /// Its network.
        network: String,
        /// Its name.
        name: String,
    },
    /// It sits on another edge, or behind another device.
    Move {
        /// Its network.
        network: String,
        /// Its name.
        name: String,
        /// The edge; `None`: as before.
        edge: Option<String>,
        /// The interface there; `None`: as before.
        device: Option<String>,
    },
    /// It is in these security groups, and in no others.
    Groups {
        /// Its network.
        network: String,
        /// Its name.
        name: String,
        /// Names of the groups.
        groups: Vec<String>,
    },
}

/// What a change did.
#[derive(Debug)]
pub struct Changed {
    /// What is probably not meant.
    pub warnings: Diagnostics,
    /// What was applied; `None`: it was so already.
    pub applied: Option<NetworksApplied>,
}

/// How long a change waits for other changes of the same edge: those of a host that starts many containers at once.
const PATIENCE: Duration = Duration::from_secs(30);

/// The pause before it tries again.
const PAUSE: Duration = Duration::from_millis(5);

/// Changes a workload of the networks that run on an edge. Changes of several processes at the same time follow each other.
///
/// # Errors
/// No networks run there, or they belong to a configuration; the change makes no valid document, or the kernel refused it. What ran before
/// runs on.
pub fn change(edge: &str, change: &Change) -> Result<Changed, RuntimeError> {
    let until = Instant::now() + PATIENCE;
    loop {
        let busy = match attempt(edge, change) {
            Ok(Some(changed)) => return Ok(changed),
            Ok(None) => RuntimeError::Failed(format!(
                "the networks of edge {edge} were modified concurrently; retry"
            )),
            Err(busy @ RuntimeError::Network(NetworkError::Busy { .. })) => busy,
            Err(error) => return Err(error),
        };
        if Instant::now() >= until {
            return Err(busy);
        }
        std::thread::sleep(PAUSE);
    }
}

/// `None`: another process changed the document since it was read here.
fn attempt(edge: &str, change: &Change) -> Result<Option<Changed>, RuntimeError> {
    let Some(look) = network::look(edge)? else {
        return Err(RuntimeError::Failed(format!(
            "edge {edge} runs no networks here; `weir apply DOCUMENT` starts them"
        )));
    };
    let mut record = Record::read(&look.text)?;
    if let Some(owner) = &record.configuration {
        return Err(RuntimeError::Usage(format!(
            "the networks of edge {edge} belong to the configuration {0}: change {1} and run `weir apply {0}`",
            owner.display(),
            record.path.display()
        )));
    }
    let text = edited(&record.text, edge, change)?;
    let is_same = text == record.text;
    record.text = text;
    let (_, warnings) = record.check()?;
    // A device that is another one than before has to be attached.
    if is_same && look.device_changes()?.new.is_empty() {
        return Ok(Some(Changed {
            warnings,
            applied: None,
        }));
    }
    if let Some(device) = device_here(edge, change)
        && iface::find_index(device).is_none()
    {
        return Err(RuntimeError::Failed(format!(
            "edge {edge} has no device named `{device}`: create it first (`ip link`)"
        )));
    }
    record.read_devices(edge)?;
    let applied = networks::apply_after(look.generation, edge, &record)?;
    Ok(applied.map(|applied| Changed {
        warnings,
        applied: Some(applied),
    }))
}

/// The device on an edge that a change names.
fn device_here<'c>(here: &str, change: &'c Change) -> Option<&'c str> {
    match change {
        Change::Add(one) if one.edge.as_ref().is_none_or(|edge| edge == here) => Some(&one.device),
        Change::Move { device, edge, .. } if edge.as_deref() == Some(here) => device.as_deref(),
        _ => None,
    }
}

/// A workload as the section `[[network.workload]]` of a document that names its edge.
#[must_use]
pub fn section(workload: &Workload, edge: &str) -> String {
    let table = table_of(workload, Some(edge));
    format!("[[network.workload]]\n{table}")
}

/// The document with the change.
fn edited(text: &str, here: &str, change: &Change) -> Result<String, RuntimeError> {
    let unread = |error: toml_edit::TomlError| RuntimeError::Failed(error.to_string());
    let mut document: DocumentMut = text.parse().map_err(unread)?;
    // With one edge, workloads need not say theirs.
    let says_edge = document
        .get("edge")
        .and_then(Item::as_array_of_tables)
        .is_some_and(|edges| !edges.is_empty());
    let name = match change {
        Change::Add(workload) => &workload.network,
        Change::Remove { network, .. }
        | Change::Move { network, .. }
        | Change::Groups { network, .. } => network,
    };
    let mut workloads = Workloads::of(&mut document, name)?;
    match change {
        Change::Add(workload) => {
            let wanted = table_of(workload, says_edge.then_some(here));
            match workloads.find(&workload.name) {
                None => workloads.push(wanted),
                Some(found) if is_same(&found, &wanted) => {}
                Some(_) => {
                    return Err(RuntimeError::Usage(format!(
                        "workload {name}/{0} is there, with other values: `weir net workload move` or `delete` it first",
                        workload.name
                    )));
                }
            }
        }
        Change::Remove { name: workload, .. } => workloads.remove(workload)?,
        Change::Groups {
            name: workload,
            groups,
            ..
        } => workloads.set_groups(workload, groups)?,
        Change::Move {
            name: workload,
            edge,
            device,
            ..
        } => {
            if edge.is_some() && !says_edge {
                return Err(RuntimeError::Usage(
                    "the document has one edge: a workload cannot move to another".to_owned(),
                ));
            }
            for (key, to) in [("edge", edge), ("device", device)] {
                if let Some(to) = to {
                    workloads.set(workload, key, to)?;
                }
            }
        }
    }
    Ok(document.to_string())
}

/// The workloads of a network, written as `[[network.workload]]` or as an array of inline tables.
enum Workloads<'d> {
    Tables(&'d str, &'d mut ArrayOfTables),
    Inline(&'d str, &'d mut Array),
}

impl<'d> Workloads<'d> {
    fn of(document: &'d mut DocumentMut, network: &'d str) -> Result<Self, RuntimeError> {
        let networks = document.get_mut("network");
        let networks = networks.and_then(Item::as_array_of_tables_mut);
        let mut known = Vec::new();
        for table in networks.into_iter().flat_map(ArrayOfTables::iter_mut) {
            let name = table.get("name").and_then(Item::as_str).unwrap_or_default();
            if name != network {
                known.push(name.to_owned());
                continue;
            }
            let item = table
                .entry("workload")
                .or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()));
            return match item {
                Item::ArrayOfTables(tables) => Ok(Workloads::Tables(network, tables)),
                Item::Value(Value::Array(list)) => Ok(Workloads::Inline(network, list)),
                _ => Err(RuntimeError::Failed(format!(
                    "`workload` of network {network} is not a list of tables"
                ))),
            };
        }
        Err(RuntimeError::Usage(format!(
            "no network named `{network}` runs here; available: {}",
            known.join(", ")
        )))
    }

    fn names(&self) -> Vec<String> {
        let name = |item: Option<&str>| item.unwrap_or_default().to_owned();
        match self {
            Workloads::Tables(_, tables) => tables
                .iter()
                .map(|table| name(table.get("name").and_then(Item::as_str)))
                .collect(),
            Workloads::Inline(_, list) => list
                .iter()
                .map(|one| {
                    let table = one.as_inline_table();
                    name(
                        table
                            .and_then(|table| table.get("name"))
                            .and_then(Value::as_str),
                    )
                })
                .collect(),
        }
    }

    /// Where a workload stands.
    fn place(&self, name: &str) -> Result<usize, RuntimeError> {
        let names = self.names();
        let network = match self {
            Workloads::Tables(network, _) | Workloads::Inline(network, _) => network,
        };
        names.iter().position(|one| one == name).ok_or_else(|| {
            RuntimeError::Usage(format!(
                "no workload `{network}/{name}` runs here; available: {}",
                names.join(", ")
            ))
        })
    }

    fn find(&self, name: &str) -> Option<Table> {
        let at = self.place(name).ok()?;
        match self {
            Workloads::Tables(_, tables) => tables.get(at).cloned(),
            Workloads::Inline(_, list) => {
                let table = list.get(at).and_then(Value::as_inline_table).cloned();
                table.map(InlineTable::into_table)
            }
        }
    }

    fn push(&mut self, table: Table) {
        match self {
            Workloads::Tables(_, tables) => tables.push(table),
            Workloads::Inline(_, list) => list.push(table.into_inline_table()),
        }
    }

    fn remove(&mut self, name: &str) -> Result<(), RuntimeError> {
        let at = self.place(name)?;
        match self {
            Workloads::Tables(_, tables) => drop(tables.remove(at)),
            Workloads::Inline(_, list) => drop(list.remove(at)),
        }
        Ok(())
    }

    /// Writes the groups of a workload, if they are not written so already.
    fn set_groups(&mut self, name: &str, groups: &[String]) -> Result<(), RuntimeError> {
        let at = self.place(name)?;
        let same = |item: Option<&Item>| match item {
            Some(item) => plain(item) == groups.join(","),
            None => groups.is_empty(),
        };
        match self {
            Workloads::Tables(_, tables) => {
                if let Some(table) = tables.get_mut(at).filter(|one| !same(one.get(GROUPS))) {
                    match groups.is_empty() {
                        true => drop(table.remove(GROUPS)),
                        false => table[GROUPS] = value(texts(groups)),
                    }
                }
            }
            Workloads::Inline(_, list) => {
                let table = list.get_mut(at).and_then(Value::as_inline_table_mut);
                let before = |table: &InlineTable| table.get(GROUPS).cloned().map(Item::Value);
                if let Some(table) = table.filter(|one| !same(before(one).as_ref())) {
                    match groups.is_empty() {
                        true => drop(table.remove(GROUPS)),
                        false => drop(table.insert(GROUPS, texts(groups))),
                    }
                }
            }
        }
        Ok(())
    }

    fn set(&mut self, name: &str, key: &str, to: &str) -> Result<(), RuntimeError> {
        let at = self.place(name)?;
        match self {
            Workloads::Tables(_, tables) => {
                if let Some(table) = tables.get_mut(at) {
                    table[key] = value(to);
                }
            }
            Workloads::Inline(_, list) => {
                let table = list.get_mut(at).and_then(Value::as_inline_table_mut);
                if let Some(table) = table {
                    table.insert(key, to.into());
                }
            }
        }
        Ok(())
    }
}

/// Key of a workload's security groups.
const GROUPS: &str = "groups";

/// Texts as the document writes them: a single one as a string, several as a list.
fn texts(all: &[String]) -> Value {
    match all {
        [one] => one.as_str().into(),
        all => all.iter().collect::<Array>().into(),
    }
}

/// `edge`: this one, where the workload has to say its edge.
fn table_of(workload: &Workload, edge: Option<&str>) -> Table {
    let mut table = Table::new();
    table["name"] = value(&workload.name);
    table["subnet"] = value(&workload.subnet);
    if let Some(here) = edge {
        table["edge"] = value(workload.edge.as_deref().unwrap_or(here));
    }
    table["device"] = value(&workload.device);
    if let Some(mac) = &workload.mac {
        table["mac"] = value(mac);
    }
    table["address"] = match workload.addresses.as_slice() {
        [one] => value(one.to_string()),
        all => value(all.iter().map(IpAddr::to_string).collect::<Array>()),
    };
    if !workload.groups.is_empty() {
        table[GROUPS] = value(texts(&workload.groups));
    }
    table
}

/// Whether two workloads have the same keys and values, whatever their order and spacing.
fn is_same(a: &Table, b: &Table) -> bool {
    let all = |table: &Table| {
        let mut all: Vec<(String, String)> = table
            .iter()
            .map(|(key, item)| (key.to_owned(), plain(item)))
            .collect();
        all.sort();
        all
    };
    all(a) == all(b)
}

/// A value without spaces and comments; a list of one is that one.
fn plain(item: &Item) -> String {
    match item {
        Item::Value(Value::Array(list)) => {
            let values: Vec<&str> = list.iter().filter_map(Value::as_str).collect();
            values.join(",")
        }
        other => other
            .as_str()
            .map_or_else(|| other.to_string(), str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "# tenants\n[[edge]]\nname = \"e1\"\n[[edge]]\nname = \"e2\"\n[[network]]\nname = \"shop\"\n\
        [[network.workload]] # the first\nname = \"w1\"\nsubnet = \"web\"\nedge = \"e1\"\ndevice = \"tap1\"\naddress = \"10.1.0.7\"\n\
        [[network]]\nname = \"other\"\nworkload = [{ name = \"a\", subnet = \"s\", device = \"t\", address = [\"10.0.0.1\"] }]\n";

    fn workload(network: &str, name: &str) -> Workload {
        Workload {
            network: network.to_owned(),
            name: name.to_owned(),
            subnet: "web".to_owned(),
            device: "tap2".to_owned(),
            addresses: vec!["10.1.0.8".parse().expect("an address")],
            mac: None,
            edge: None,
            groups: Vec::new(),
        }
    }

    #[test]
    fn a_workload_is_added_to_its_network_once() {
        let add = Change::Add(workload("shop", "w2"));
        let once = edited(DOCUMENT, "e1", &add).expect("added");
        assert!(
            once.starts_with("# tenants\n") && once.contains("# the first"),
            "{once}"
        );
        let added = "[[network.workload]]\nname = \"w2\"\nsubnet = \"web\"\nedge = \"e1\"\ndevice = \"tap2\"\naddress = \"10.1.0.8\"\n";
        let at = once.find(added).expect("it is there");
        assert!(
            at < once.find("name = \"other\"").expect("the next network"),
            "{once}"
        );
        assert_eq!(edited(&once, "e1", &add).expect("so already"), once);
        let mut other = workload("shop", "w2");
        other.device = "tap9".to_owned();
        let refused = edited(&once, "e1", &Change::Add(other)).expect_err("other values");
        assert!(
            refused.to_string().contains("with other values"),
            "{refused}"
        );
    }

    #[test]
    fn a_workload_is_a_section_of_its_own() {
        let text = section(&workload("shop", "w2"), "e1");
        assert_eq!(
            text,
            "[[network.workload]]\nname = \"w2\"\nsubnet = \"web\"\nedge = \"e1\"\ndevice = \"tap2\"\naddress = \"10.1.0.8\"\n"
        );
    }

    #[test]
    fn groups_of_a_workload_are_replaced() {
        let groups = |network: &str, name: &str, groups: &[&str]| Change::Groups {
            network: network.to_owned(),
            name: name.to_owned(),
            groups: groups.iter().map(|one| (*one).to_owned()).collect(),
        };
        for (network, name) in [("shop", "w1"), ("other", "a")] {
            let edit = |text: &str, names: &[&str]| {
                edited(text, "e1", &groups(network, name, names)).expect("edited")
            };
            let two = edit(DOCUMENT, &["web", "db"]);
            assert!(two.contains("groups = [\"web\", \"db\"]"), "{two}");
            assert_eq!(edit(&two, &["web", "db"]), two);
            let one = edit(&two, &["db"]);
            assert!(one.contains("groups = \"db\""), "{one}");
            let none = edit(&one, &[]);
            assert!(!none.contains("groups"), "{none}");
            assert_eq!(edit(DOCUMENT, &[]), DOCUMENT);
        }
        let mut member = workload("shop", "w2");
        member.groups = vec!["web".to_owned()];
        let text = section(&member, "e1");
        assert!(text.ends_with("groups = \"web\"\n"), "{text}");
    }

    #[test]
    fn inline_workloads_are_edited_as_well() {
        let once = edited(DOCUMENT, "e1", &Change::Add(workload("other", "b"))).expect("added");
        assert!(once.contains("{ name = \"b\", subnet = \"web\""), "{once}");
        let remove = |name: &str| Change::Remove {
            network: "other".to_owned(),
            name: name.to_owned(),
        };
        let less = edited(&once, "e1", &remove("a")).expect("removed");
        assert!(
            !less.contains("\"10.0.0.1\"") && less.contains("name = \"b\""),
            "{less}"
        );
        let refused = edited(&less, "e1", &remove("a")).expect_err("it is gone");
        assert!(refused.to_string().contains("available: b"), "{refused}");
    }

    #[test]
    fn a_move_changes_edge_and_device_only() {
        let to = |edge: Option<&str>, device: Option<&str>| Change::Move {
            network: "shop".to_owned(),
            name: "w1".to_owned(),
            edge: edge.map(str::to_owned),
            device: device.map(str::to_owned),
        };
        let moved = edited(DOCUMENT, "e1", &to(Some("e2"), Some("tap7"))).expect("moved");
        let wanted = DOCUMENT.replace(
            "edge = \"e1\"\ndevice = \"tap1\"",
            "edge = \"e2\"\ndevice = \"tap7\"",
        );
        assert_eq!(moved, wanted);
        let one = DOCUMENT.replace("[[edge]]\nname = \"e1\"\n[[edge]]\nname = \"e2\"\n", "");
        let refused = edited(&one, "e1", &to(Some("e2"), None)).expect_err("one edge");
        assert!(refused.to_string().contains("one edge"), "{refused}");
        let unknown =
            edited(DOCUMENT, "e1", &Change::Add(workload("shoe", "w"))).expect_err("no network");
        assert!(
            unknown.to_string().contains("available: shop, other"),
            "{unknown}"
        );
    }
}
