//! A document of networks -> its entries, and back. Only the shape is read here: names, edges, homes; what else an entry says stays as it is written.

use std::collections::BTreeSet;

use toml_edit::{Array, ArrayOfTables, DocumentMut, Item, Table, TableLike, value};

/// What does not fit into the store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreDocumentError {
    /// Not TOML.
    #[error("{0}")]
    Toml(String),
    /// A section without a name, or with one that is no part of a key.
    #[error("{what} `{name}`: names in the store have no `/` and are not empty")]
    Name {
        /// Kind of section.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// A workload without an edge.
    #[error("workload `{0}` has no edge: write `edge = \"NAME\"`")]
    Edge(String),
}

/// A section.
#[derive(Clone, Debug)]
pub struct Part {
    /// Its name.
    pub name: String,
    /// What it says.
    table: Table,
}

/// A network.
#[derive(Clone, Debug)]
pub struct NetworkPart {
    /// Its name.
    pub name: String,
    /// Its tenant.
    pub tenant: String,
    /// Edges that functions have their home on.
    pub homes: Vec<String>,
    /// Files that it carries.
    pub files: Vec<Part>,
    /// Workloads with their edges.
    pub workloads: Vec<(Part, String)>,
    table: Table,
}

/// The entries of a document.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    /// `version`.
    pub version: u64,
    /// `[[edge]]`.
    pub edges: Vec<Part>,
    /// `[[tenant]]`.
    pub tenants: Vec<String>,
    /// `[[network]]`.
    pub networks: Vec<NetworkPart>,
}

impl Part {
    /// The section as text. `head`: its name in the document.
    #[must_use]
    pub fn text(&self, head: &'static str) -> String {
        section(head, self.table.clone())
    }
}

impl NetworkPart {
    /// Carries one more file, unless it carries one of that name.
    pub fn carry(&mut self, name: &str, text: &str) {
        if self.files.iter().all(|file| file.name != name) {
            let mut table = Table::new();
            table.insert("name", value(name));
            table.insert("text", value(text));
            self.files.push(Part {
                name: name.to_owned(),
                table,
            });
        }
    }

    /// The section without files and workloads as text.
    #[must_use]
    pub fn text(&self) -> String {
        section("network", self.table.clone())
    }

    /// Writes identifiers into subnets and links that have none. `subnets`, `links`: one for each, 0: none is needed.
    pub fn identify(&mut self, subnets: &[u32], links: &[u32]) {
        for (name, numbers) in [("subnet", subnets), ("link", links)] {
            let Some(item) = self.table.get_mut(name) else {
                continue;
            };
            for (table, &number) in tables_mut(item).zip(numbers) {
                if number != 0 && table.get("identifier").is_none() {
                    table.insert("identifier", value(i64::from(number)));
                }
            }
        }
    }

    /// Identifiers that it says: of subnets by name, of links by their ends.
    #[must_use]
    pub fn identifiers(&self) -> Vec<(String, u32)> {
        identifiers(&self.table)
    }
}

/// Identifiers that the text of a network says, with what they are of.
pub(crate) fn identifiers_of(text: &str) -> Vec<(String, u32)> {
    let document: Option<DocumentMut> = text.parse().ok();
    let networks = document
        .as_ref()
        .and_then(|document| document.get("network"));
    let table = networks.map(tables).unwrap_or_default();
    table.first().map(identifiers).unwrap_or_default()
}

fn identifiers(table: &Table) -> Vec<(String, u32)> {
    let mut found = Vec::new();
    for (kind, keys) in [
        ("subnet", ["name"].as_slice()),
        ("link", &["from", "to", "vlan"]),
    ] {
        for one in table.get(kind).map(tables).unwrap_or_default() {
            let number = one.get("identifier").and_then(Item::as_integer);
            if let Some(number) = number.and_then(|number| u32::try_from(number).ok()) {
                found.push((owner(kind, keys, &one), number));
            }
        }
    }
    found
}

/// The section of a workload with other values of some keys.
///
/// # Errors
/// It is not the section of a workload.
pub fn with_keys(text: &str, keys: &[(&str, &str)]) -> Result<String, StoreDocumentError> {
    with_table(text, |table| {
        for (key, to) in keys {
            table.insert(key, value(*to));
        }
    })
}

/// The section of a workload that is in these security groups, and in no others.
///
/// # Errors
/// It is not the section of a workload.
pub fn with_groups(text: &str, groups: &[String]) -> Result<String, StoreDocumentError> {
    with_table(text, |table| {
        match groups {
            [] => drop(table.remove("groups")),
            [one] => drop(table.insert("groups", value(one))),
            all => drop(table.insert("groups", value(all.iter().collect::<Array>()))),
        };
    })
}

fn with_table(text: &str, edit: impl FnOnce(&mut Table)) -> Result<String, StoreDocumentError> {
    let document: Result<DocumentMut, _> = text.replace(WORKLOAD, "[[workload]]").parse();
    let document = document.map_err(|error| StoreDocumentError::Toml(error.to_string()))?;
    let table = document.get("workload").map(tables).unwrap_or_default();
    let mut table = table.into_iter().next().ok_or_else(|| {
        StoreDocumentError::Toml("the entry is not the section of a workload".to_owned())
    })?;
    edit(&mut table);
    Ok(section("network.workload", table))
}

/// The head of a workload's section.
const WORKLOAD: &str = "[[network.workload]]";

/// Keys and values of the only table of a section, without spaces and comments, in the order of the keys.
pub(crate) fn plain(text: &str) -> Option<Vec<(String, String)>> {
    let document: DocumentMut = text.replace(WORKLOAD, "[[workload]]").parse().ok()?;
    let (_, item) = document.iter().next()?;
    let table = tables(item).into_iter().next()?;
    let mut all = Vec::new();
    for (key, item) in table.iter() {
        let value = match item {
            Item::Value(toml_edit::Value::Array(list)) => {
                let texts: Vec<String> = list.iter().map(plain_value).collect();
                texts.join(",")
            }
            Item::Value(value) => plain_value(value),
            // A table within a section: compared as it is written.
            other => other.to_string(),
        };
        all.push((key.to_owned(), value));
    }
    all.sort();
    Some(all)
}

fn plain_value(value: &toml_edit::Value) -> String {
    let mut value = value.clone();
    value.decor_mut().clear();
    value.to_string()
}

/// What an identifier of a table is of.
fn owner(kind: &str, keys: &[&str], table: &Table) -> String {
    let mut text = kind.to_owned();
    for key in keys {
        let item = table.get(key);
        let value = item.and_then(Item::as_str).map(str::to_owned);
        let value = value.or_else(|| item.and_then(Item::as_integer).map(|n| n.to_string()));
        text.push(' ');
        text.push_str(&value.unwrap_or_else(|| "0".to_owned()));
    }
    text
}

/// What subnets and links of a network are called as owners of identifiers, in their order.
#[must_use]
pub(crate) fn owners(network: &NetworkPart) -> (Vec<String>, Vec<String>) {
    let all = |kind: &str, keys: &[&str]| -> Vec<String> {
        let found = network.table.get(kind).map(tables).unwrap_or_default();
        found.iter().map(|one| owner(kind, keys, one)).collect()
    };
    (
        all("subnet", &["name"]),
        all("link", &["from", "to", "vlan"]),
    )
}

/// The entries of a document's text.
///
/// # Errors
/// [`StoreDocumentError`].
pub fn split(text: &str) -> Result<Parts, StoreDocumentError> {
    let document: DocumentMut = text
        .parse()
        .map_err(|error: toml_edit::TomlError| StoreDocumentError::Toml(error.to_string()))?;
    let all = |name: &str| document.get(name).map(tables).unwrap_or_default();
    let version = document.get("version").and_then(Item::as_integer);
    let mut parts = Parts {
        version: version
            .and_then(|n| u64::try_from(n).ok())
            .unwrap_or_default(),
        ..Parts::default()
    };
    for table in all("edge") {
        let name = name_of("edge", &table)?;
        parts.edges.push(Part { name, table });
    }
    for table in all("tenant") {
        parts.tenants.push(name_of("tenant", &table)?);
    }
    let only = match parts.edges.as_slice() {
        [only] => Some(only.name.clone()),
        _ => None,
    };
    for mut table in all("network") {
        let name = name_of("network", &table)?;
        let (workloads, files) = (table.remove("workload"), table.remove("file"));
        let mut network = NetworkPart {
            tenant: text_of(&table, "tenant"),
            homes: homes(&table),
            files: Vec::new(),
            workloads: Vec::new(),
            name,
            table,
        };
        for one in files.as_ref().map(tables).unwrap_or_default() {
            // A path, with its slashes, is the last part of its key.
            let name = text_of(&one, "name");
            if name.is_empty() {
                return Err(StoreDocumentError::Name { what: "file", name });
            }
            network.files.push(Part { name, table: one });
        }
        for mut one in workloads.as_ref().map(tables).unwrap_or_default() {
            let name = name_of("workload", &one)?;
            let edge = match (one.get("edge").and_then(Item::as_str), &only) {
                (Some(edge), _) => edge.to_owned(),
                (None, Some(only)) => {
                    one.insert("edge", value(only));
                    only.clone()
                }
                (None, None) => return Err(StoreDocumentError::Edge(name)),
            };
            network.workloads.push((Part { name, table: one }, edge));
        }
        parts.networks.push(network);
    }
    Ok(parts)
}

/// A document of entries' texts, without a version if that is 0: edges, tenants, and networks each with its files and workloads.
#[must_use]
pub fn join<'t>(
    version: u64,
    edges: impl Iterator<Item = &'t str>,
    tenants: &BTreeSet<&str>,
    networks: impl Iterator<Item = (&'t str, Vec<&'t str>)>,
) -> String {
    let mut text = match version {
        0 => String::new(),
        version => format!("version = {version}\n"),
    };
    let mut add = |part: &str| {
        text.push_str(part);
        if !part.ends_with('\n') {
            text.push('\n');
        }
    };
    edges.for_each(&mut add);
    for tenant in tenants {
        let mut table = Table::new();
        table.insert("name", value(*tenant));
        add(&section("tenant", table));
    }
    for (network, workloads) in networks {
        add(network);
        workloads.into_iter().for_each(&mut add);
    }
    text
}

/// A section as a document of its own.
pub(crate) fn section(head: &str, mut table: Table) -> String {
    table.set_implicit(false);
    // Where it stood in its document says nothing here.
    forget_positions(&mut table);
    let mut document = DocumentMut::new();
    match head.split_once('.') {
        None => {
            let mut list = ArrayOfTables::new();
            list.push(table);
            document.insert(head, Item::ArrayOfTables(list));
            document.to_string()
        }
        // `[[network.workload]]`: the text is put behind its network.
        Some((_, last)) => {
            let mut list = ArrayOfTables::new();
            list.push(table);
            document.insert(last, Item::ArrayOfTables(list));
            document
                .to_string()
                .replacen(&format!("[[{last}]]"), &format!("[[{head}]]"), 1)
        }
    }
}

fn forget_positions(table: &mut Table) {
    table.set_position(None);
    for (_, item) in table.iter_mut() {
        match item {
            Item::Table(inner) => forget_positions(inner),
            Item::ArrayOfTables(list) => list.iter_mut().for_each(forget_positions),
            _ => {}
        }
    }
}

/// A list of tables, however it is written.
fn tables(item: &Item) -> Vec<Table> {
    match item {
        Item::ArrayOfTables(list) => list.iter().cloned().collect(),
        Item::Value(toml_edit::Value::Array(list)) => list
            .iter()
            .filter_map(|one| one.as_inline_table().cloned())
            .map(toml_edit::InlineTable::into_table)
            .collect(),
        _ => Vec::new(),
    }
}

fn tables_mut(item: &mut Item) -> Box<dyn Iterator<Item = &mut dyn TableLike> + '_> {
    match item {
        Item::ArrayOfTables(list) => {
            Box::new(list.iter_mut().map(|table| table as &mut dyn TableLike))
        }
        Item::Value(toml_edit::Value::Array(list)) => Box::new(
            list.iter_mut()
                .filter_map(|one| one.as_inline_table_mut())
                .map(|table| table as &mut dyn TableLike),
        ),
        _ => Box::new(std::iter::empty()),
    }
}

fn name_of(what: &'static str, table: &Table) -> Result<String, StoreDocumentError> {
    let name = text_of(table, "name");
    match name.is_empty() || name.contains('/') {
        true => Err(StoreDocumentError::Name { what, name }),
        false => Ok(name),
    }
}

fn text_of(table: &Table, key: &str) -> String {
    let text = table.get(key).and_then(Item::as_str);
    text.unwrap_or_default().to_owned()
}

fn homes(table: &Table) -> Vec<String> {
    let functions = table.get("function").map(tables).unwrap_or_default();
    let homes: BTreeSet<String> = functions
        .iter()
        .filter_map(|one| Some(one.get("home")?.as_str()?.to_owned()))
        .collect();
    homes.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "version = 3\n# edges\n[[edge]]\nname = \"e1\"\nunderlay = \"192.0.2.1\"\n[[edge]]\nname = \"e2\"\n[[tenant]]\nname = \"red\"\n\
        [[network]]\nname = \"shop\"\ntenant = \"red\"\n[[network.subnet]]\nname = \"web\"\nprefix = \"10.1.0.0/24\"\n\
        [[network.function]]\nname = \"wall\"\nkind = \"filter\"\nhome = \"e2\"\n[[network.file]]\nname = \"lib/a.weir\"\ntext = \"all drop\\n# [[network.workload]]\\n\"\n\
        [[network.workload]]\nname = \"w1\"\nsubnet = \"web\"\nedge = \"e1\"\n[[network]]\nname = \"b\"\ntenant = \"red\"\n\
        subnet = [{ name = \"s\" }]\nworkload = [{ name = \"x\", subnet = \"s\", edge = \"e2\" }]\n";

    fn joined(parts: &Parts) -> String {
        let edges: Vec<String> = parts.edges.iter().map(|part| part.text("edge")).collect();
        let networks: Vec<(String, Vec<String>)> = parts
            .networks
            .iter()
            .map(|network| {
                let files = network.files.iter().map(|part| part.text("network.file"));
                let workloads = network
                    .workloads
                    .iter()
                    .map(|(part, _)| part.text("network.workload"));
                (network.text(), files.chain(workloads).collect())
            })
            .collect();
        join(
            parts.version,
            edges.iter().map(String::as_str),
            &parts.tenants.iter().map(String::as_str).collect(),
            networks.iter().map(|(text, workloads)| {
                (
                    text.as_str(),
                    workloads.iter().map(String::as_str).collect(),
                )
            }),
        )
    }

    #[test]
    fn a_document_is_its_entries() {
        let parts = split(DOCUMENT).expect("right");
        assert_eq!(
            (parts.version, parts.edges.len(), parts.tenants.len()),
            (3, 2, 1)
        );
        assert_eq!(parts.networks[0].homes, ["e2"]);
        assert_eq!(parts.networks[1].workloads[0].1, "e2");
        assert_eq!(parts.networks[0].files[0].name, "lib/a.weir");
        assert!(!parts.networks[0].text().contains("all drop"));
        let again = joined(&parts);
        let twice = joined(&split(&again).expect("right"));
        assert_eq!(again, twice, "what is joined is split into the same");
        let plain = |text: &str| text.parse::<toml_edit::DocumentMut>().expect("TOML");
        let (one, other) = (plain(DOCUMENT), plain(&again));
        for (network, name) in ["shop", "b"].iter().enumerate() {
            let of = |document: &DocumentMut| tables(&document["network"])[network].clone();
            assert_eq!(text_of(&of(&one), "name"), *name);
            assert_eq!(
                tables(&of(&one)["workload"]).len(),
                tables(&of(&other)["workload"]).len()
            );
            assert_eq!(
                tables(&of(&one)["subnet"]).len(),
                tables(&of(&other)["subnet"]).len()
            );
        }
    }

    #[test]
    fn identifiers_are_written_where_none_is() {
        let mut parts = split(DOCUMENT).expect("right");
        parts.networks[0].identify(&[5000], &[]);
        parts.networks[1].identify(&[5001], &[]);
        assert_eq!(
            parts.networks[0].identifiers(),
            [("subnet web".to_owned(), 5000)]
        );
        let text = parts.networks[1].text();
        assert_eq!(
            identifiers_of(&text),
            [("subnet s".to_owned(), 5001)],
            "{text}"
        );
        parts.networks[0].identify(&[6000], &[]);
        assert_eq!(
            parts.networks[0].identifiers(),
            [("subnet web".to_owned(), 5000)]
        );
    }

    #[test]
    fn names_that_are_no_keys_are_refused() {
        let refused = split("[[edge]]\nname = \"a/b\"\n").expect_err("a slash");
        assert!(refused.to_string().contains("`a/b`"), "{refused}");
        let text = "[[network]]\nname = \"n\"\n[[network.workload]]\nname = \"w\"\n";
        assert_eq!(
            split(text).expect_err("no edge"),
            StoreDocumentError::Edge("w".to_owned())
        );
    }
}
