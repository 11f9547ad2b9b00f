//! The whole store, for operators: what it declares, and what a push or a change of a workload writes. Pure but for [`Catalogue::read`].

use std::collections::{BTreeMap, BTreeSet};

use crate::document::{NetworkPart, Parts, identifiers_of, owners};
use crate::entry::{
    self, EdgeEntry, FileEntry, NetworkEntry, Origin, StoreEntry, TenantEntry, WorkloadEntry,
    next_generation, written,
};
use crate::etcd::{Client, Compare, Header, MOST_BYTES, Op, Range};
use crate::http::StoreError;
use crate::layout;
use crate::local::{Fnv, document};
use crate::reading::{Entries, edges_of};

/// The first identifier that is given out: those below are for documents.
const FIRST_IDENTIFIER: u32 = 4096;

/// All entries.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    /// Cluster and revision.
    pub header: Header,
    /// By key: value and revision.
    pub entries: Entries,
}

/// Why a document cannot be pushed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The store has the same or a newer version.
    #[error(
        "version {stored} of the document of tenant {tenant} is in the store, and this is version {given}: raise `version`, or use --force"
    )]
    Version {
        /// The tenant.
        tenant: String,
        /// Of the store.
        stored: u64,
        /// Of the document.
        given: u64,
    },
    /// The same edge, declared in another way.
    #[error(
        "edge {edge} is declared otherwise in the store, where other tenants use it; --force changes it for all of them"
    )]
    Edge {
        /// The edge.
        edge: String,
    },
    /// The same network of another tenant.
    #[error("network {network} belongs to tenant {tenant} in the store: choose another name")]
    Network {
        /// The network.
        network: String,
        /// Its tenant.
        tenant: String,
    },
    /// The same identifier of another network.
    #[error(
        "identifier {identifier} is taken by {owner} in the store: leave it out, and the store assigns one"
    )]
    Identifier {
        /// The identifier.
        identifier: u32,
        /// Who has it.
        owner: String,
    },
    /// An entry is larger than what one request may have.
    #[error(
        "{what} takes {size} bytes in the store, and one request to etcd holds {MOST_BYTES}: {advice}"
    )]
    Size {
        /// What the entry is of.
        what: String,
        /// Its key and value.
        size: usize,
        /// What can be done.
        advice: &'static str,
    },
}

/// What is written: each step is one transaction or several, and what stands between two steps is harmless.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// What must not have changed.
    pub compare: Vec<Compare>,
    /// Steps in their order.
    pub steps: Vec<Vec<Op>>,
    /// Tenants whose documents are marked complete at the end.
    pub tenants: Vec<(String, TenantEntry)>,
}

impl Plan {
    /// Whether nothing is to be written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps.iter().all(Vec::is_empty)
    }
}

impl Catalogue {
    /// Reads everything, at one revision.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn read(client: &mut Client) -> Result<Catalogue, StoreError> {
        let range = Range::Prefix(layout::ROOT.to_owned());
        let (header, found) = client.range(&range, 0).await?;
        let catalogue = Catalogue {
            header,
            entries: found
                .into_iter()
                .map(|one| (one.key, (one.value, one.revision)))
                .collect(),
        };
        if let Some(store) = catalogue.store()?.filter(|one| one.format != entry::FORMAT) {
            return Err(StoreError::Entry {
                key: layout::STORE.to_owned(),
                why: format!("layout {}", store.format),
            });
        }
        Ok(catalogue)
    }

    pub(crate) fn get<T: serde::de::DeserializeOwned>(
        &self,
        key: &str,
    ) -> Result<Option<T>, StoreError> {
        let found = self.entries.get(key);
        found.map(|(value, _)| entry::read(key, value)).transpose()
    }

    pub(crate) fn revision(&self, key: &str) -> i64 {
        self.entries.get(key).map_or(0, |(_, revision)| *revision)
    }

    pub(crate) fn below<'c>(
        &'c self,
        prefix: &'c str,
    ) -> impl Iterator<Item = (&'c str, &'c String, &'c [u8])> {
        let found = self.entries.range(prefix.to_owned()..);
        found
            .take_while(move |(key, _)| key.starts_with(prefix))
            .map(move |(key, (value, _))| {
                (
                    key.strip_prefix(prefix).unwrap_or_default(),
                    key,
                    value.as_slice(),
                )
            })
    }

    /// Which store it is; `None`: nothing was ever pushed.
    ///
    /// # Errors
    /// The entry cannot be read.
    pub fn store(&self) -> Result<Option<StoreEntry>, StoreError> {
        self.get(layout::STORE)
    }

    /// Names of all networks.
    #[must_use]
    pub fn networks(&self) -> BTreeSet<String> {
        let keys = self.below(layout::NETWORKS);
        let names = keys.filter_map(|(_, key, _)| layout::network_of(key).map(|(name, _)| name));
        let names: BTreeSet<&str> = names.collect();
        let declared = |name: &&str| self.entries.contains_key(&layout::config(name));
        names
            .into_iter()
            .filter(declared)
            .map(str::to_owned)
            .collect()
    }

    /// Names of declared edges.
    #[must_use]
    pub fn edges(&self) -> BTreeSet<String> {
        self.below(layout::EDGES)
            .map(|(name, _, _)| name.to_owned())
            .collect()
    }

    /// Networks that concern an edge.
    #[must_use]
    pub fn indexed(&self, edge: &str) -> BTreeSet<String> {
        let prefix = layout::index_of(edge);
        self.below(&prefix)
            .map(|(name, _, _)| name.to_owned())
            .collect()
    }

    /// Documents of tenants.
    ///
    /// # Errors
    /// An entry cannot be read.
    pub fn tenants(&self) -> Result<BTreeMap<String, TenantEntry>, StoreError> {
        let all = self.below(layout::TENANTS);
        all.map(|(name, key, value)| Ok((name.to_owned(), entry::read(key, value)?)))
            .collect()
    }

    /// A workload.
    ///
    /// # Errors
    /// The entry cannot be read.
    pub fn workload(&self, network: &str, name: &str) -> Result<Option<WorkloadEntry>, StoreError> {
        self.get(&layout::workload(network, name))
    }

    /// Names of the files that a network carries.
    #[must_use]
    pub fn files(&self, network: &str) -> Vec<String> {
        let prefix = layout::files(network);
        self.below(&prefix)
            .map(|(name, _, _)| name.to_owned())
            .collect()
    }

    /// Names of the workloads of a network.
    #[must_use]
    pub fn workloads(&self, network: &str) -> Vec<String> {
        let prefix = layout::workloads(network);
        self.below(&prefix)
            .map(|(name, _, _)| name.to_owned())
            .collect()
    }

    /// All networks and all edges as one document.
    ///
    /// # Errors
    /// An entry cannot be read.
    pub fn document(&self) -> Result<String, StoreError> {
        document(&self.entries, &self.networks(), &self.edges(), 0)
    }

    /// The document that an edge has.
    ///
    /// # Errors
    /// An entry cannot be read.
    pub fn document_of_edge(&self, edge: &str) -> Result<String, StoreError> {
        let networks = self.indexed(edge);
        let of_networks = self.entries.iter().filter(|(key, _)| {
            layout::network_of(key).is_some_and(|(network, _)| networks.contains(network))
        });
        let of_networks = of_networks
            .map(|(key, one)| (key.clone(), one.clone()))
            .collect();
        document(&self.entries, &networks, &edges_of(&of_networks, edge), 0)
    }

    /// The store as it is after a plan.
    #[must_use]
    pub fn after(&self, plan: &Plan) -> Catalogue {
        let mut after = self.clone();
        for op in plan.steps.iter().flatten() {
            match op {
                Op::Put(key, value) | Op::PutLeased(key, value, _) => {
                    after.entries.insert(key.clone(), (value.clone(), 0));
                }
                Op::Delete(key) => {
                    after.entries.remove(key);
                }
            }
        }
        after
    }

    /// Gives identifiers to subnets and links that have none: those that they had before, else free ones. `links`: for each network whether its
    /// links leave an edge.
    ///
    /// # Errors
    /// One that is written belongs to another network.
    pub fn identify(
        &self,
        networks: &mut [NetworkPart],
        links: &[Vec<bool>],
    ) -> Result<(), Refused> {
        let mut taken: BTreeMap<u32, String> = BTreeMap::new();
        for (number, _, value) in self.below(layout::IDENTIFIERS) {
            if let Ok(number) = number.parse() {
                taken.insert(number, String::from_utf8_lossy(value).into_owned());
            }
        }
        let mut free = FIRST_IDENTIFIER;
        for network in networks.iter() {
            for (of, number) in network.identifiers() {
                let owner = format!("{} {of}", network.name);
                match taken.get(&number) {
                    Some(other) if !other.starts_with(&format!("{} ", network.name)) => {
                        return Err(Refused::Identifier {
                            identifier: number,
                            owner: other.clone(),
                        });
                    }
                    _ => drop(taken.insert(number, owner)),
                }
            }
        }
        for (network, leaves) in networks.iter_mut().zip(links) {
            let before: BTreeMap<String, u32> =
                match self.get::<NetworkEntry>(&layout::config(&network.name)) {
                    Ok(Some(config)) => identifiers_of(&config.text).into_iter().collect(),
                    _ => BTreeMap::new(),
                };
            let written: BTreeSet<u32> = network
                .identifiers()
                .into_iter()
                .map(|(_, number)| number)
                .collect();
            let mut give = |owner: &String| {
                if let Some(number) = before.get(owner).filter(|number| !written.contains(number)) {
                    return *number;
                }
                while taken.contains_key(&free) {
                    free += 1;
                }
                taken.insert(free, format!("{} {owner}", network.name));
                free
            };
            let (subnets, wires) = owners(network);
            let has: BTreeSet<String> = network
                .identifiers()
                .into_iter()
                .map(|(of, _)| of)
                .collect();
            let subnets: Vec<u32> = subnets
                .iter()
                .map(|owner| match has.contains(owner) {
                    true => 0,
                    false => give(owner),
                })
                .collect();
            let wires: Vec<u32> = wires
                .iter()
                .zip(leaves)
                .map(|(owner, leaves)| match *leaves && !has.contains(owner) {
                    true => give(owner),
                    false => 0,
                })
                .collect();
            network.identify(&subnets, &wires);
        }
        Ok(())
    }

    /// What a document writes. Its tenants' networks are those that it declares; networks of other tenants stay.
    ///
    /// # Errors
    /// [`Refused`] in the inner result; an entry cannot be read.
    pub fn push(
        &self,
        parts: &Parts,
        author: &str,
        force: bool,
    ) -> Result<Result<Plan, Refused>, StoreError> {
        let mut plan = Plan::default();
        let mut first = Vec::new();
        let (mut puts, mut last, mut deletes) = (Vec::new(), Vec::new(), Vec::new());
        if self.store()?.is_none() {
            let id = format!("{:016x}", crate::etcd::spread(u64::MAX));
            let store = StoreEntry {
                format: entry::FORMAT,
                id,
                accepted: 0,
            };
            first.push(Op::Put(layout::STORE.to_owned(), written(&store)));
        }
        plan.compare.push(Compare::Revision(
            layout::STORE.to_owned(),
            self.revision(layout::STORE),
        ));
        for edge in &parts.edges {
            let key = layout::edge(&edge.name);
            let text = edge.text("edge");
            match self.get::<EdgeEntry>(&key)? {
                Some(before) if same_section(&before.text, &text) => continue,
                Some(_) if !force => {
                    return Ok(Err(Refused::Edge {
                        edge: edge.name.clone(),
                    }));
                }
                before => {
                    let generation = next_generation(before.map_or(0, |one| one.generation));
                    puts.push(Op::Put(
                        key.clone(),
                        written(&EdgeEntry { generation, text }),
                    ));
                    plan.compare
                        .push(Compare::Revision(key.clone(), self.revision(&key)));
                }
            }
        }
        let tenants: BTreeSet<&str> = parts.tenants.iter().map(String::as_str).collect();
        let mut wanted = BTreeSet::new();
        for network in &parts.networks {
            wanted.insert(network.name.as_str());
            if let Err(refused) =
                self.push_network(network, &mut plan, &mut puts, &mut last, &mut deletes)?
            {
                return Ok(Err(refused));
            }
        }
        for name in self.networks() {
            let config: Option<NetworkEntry> = self.get(&layout::config(&name))?;
            let is_ours = config.is_some_and(|one| tenants.contains(one.tenant.as_str()));
            if is_ours && !wanted.contains(name.as_str()) {
                self.delete_network(&name, &mut plan, &mut deletes)?;
            }
        }
        let is_nothing = puts.is_empty() && last.is_empty() && deletes.is_empty();
        for tenant in &parts.tenants {
            let key = layout::tenant(tenant);
            let before: Option<TenantEntry> = self.get(&key)?;
            let mut sum = Fnv::new();
            for network in parts.networks.iter().filter(|one| one.tenant == *tenant) {
                sum.add(network.text().as_bytes());
                for file in &network.files {
                    sum.add(file.text("network.file").as_bytes());
                }
                for (workload, _) in &network.workloads {
                    sum.add(workload.text("network.workload").as_bytes());
                }
            }
            let digest = format!("{:016x}", sum.0);
            if let Some(before) = &before {
                let is_older = before.version > parts.version
                    || (before.version == parts.version && before.digest != digest);
                if is_older && before.complete && !force {
                    return Ok(Err(Refused::Version {
                        tenant: tenant.clone(),
                        stored: before.version,
                        given: parts.version,
                    }));
                }
                if before.digest == digest
                    && before.version == parts.version
                    && before.complete
                    && is_nothing
                {
                    continue;
                }
            }
            let mut entry = TenantEntry {
                generation: next_generation(before.map_or(0, |one| one.generation)),
                version: parts.version,
                digest,
                author: author.to_owned(),
                time: entry::now() / 1_000_000,
                complete: false,
            };
            plan.compare
                .push(Compare::Revision(key.clone(), self.revision(&key)));
            first.push(Op::Put(key, written(&entry)));
            entry.complete = true;
            plan.tenants.push((tenant.clone(), entry));
        }
        plan.steps = vec![first, puts, last, deletes];
        match plan.steps.iter().flatten().find_map(too_large) {
            Some(refused) => Ok(Err(refused)),
            None => Ok(Ok(plan)),
        }
    }

    fn push_network(
        &self,
        network: &NetworkPart,
        plan: &mut Plan,
        puts: &mut Vec<Op>,
        last: &mut Vec<Op>,
        deletes: &mut Vec<Op>,
    ) -> Result<Result<(), Refused>, StoreError> {
        let name = &network.name;
        let key = layout::config(name);
        let before: Option<NetworkEntry> = self.get(&key)?;
        if let Some(before) = before.as_ref().filter(|one| one.tenant != network.tenant) {
            return Ok(Err(Refused::Network {
                network: name.clone(),
                tenant: before.tenant.clone(),
            }));
        }
        let mut changed = false;
        let text = network.text();
        for (of, number) in network.identifiers() {
            let key = layout::identifier(number);
            let owner = format!("{name} {of}");
            let is_there = self
                .entries
                .get(&key)
                .is_some_and(|(value, _)| *value == owner.as_bytes());
            if !is_there {
                plan.compare
                    .push(Compare::Revision(key.clone(), self.revision(&key)));
                puts.push(Op::Put(key, owner.into_bytes()));
            }
        }
        let now: BTreeSet<String> = network
            .identifiers()
            .into_iter()
            .map(|(_, n)| layout::identifier(n))
            .collect();
        for (_, number) in before.iter().flat_map(|one| identifiers_of(&one.text)) {
            let key = layout::identifier(number);
            if !now.contains(&key) && self.entries.contains_key(&key) {
                deletes.push(Op::Delete(key));
            }
        }
        let mut edges: BTreeSet<String> = network.homes.iter().cloned().collect();
        for file in &network.files {
            let key = layout::file(name, &file.name);
            let text = file.text("network.file");
            let before: Option<FileEntry> = self.get(&key)?;
            if before.as_ref().is_some_and(|one| one.text == text) {
                continue;
            }
            let generation = next_generation(before.map_or(0, |one| one.generation));
            puts.push(Op::Put(key, written(&FileEntry { generation, text })));
            changed = true;
        }
        for file in self.files(name) {
            if network.files.iter().all(|one| one.name != file) {
                deletes.push(Op::Delete(layout::file(name, &file)));
                changed = true;
            }
        }
        let mut listed = BTreeSet::new();
        for (workload, edge) in &network.workloads {
            listed.insert(workload.name.clone());
            edges.insert(edge.clone());
            let key = layout::workload(name, &workload.name);
            let text = workload.text("network.workload");
            let before: Option<WorkloadEntry> = self.get(&key)?;
            if before
                .as_ref()
                .is_some_and(|one| one.text == text && one.origin == Origin::Document)
            {
                continue;
            }
            let generation = next_generation(before.map_or(0, |one| one.generation));
            let entry = WorkloadEntry {
                generation,
                edge: edge.clone(),
                text,
                origin: Origin::Document,
            };
            puts.push(Op::Put(key, written(&entry)));
            changed = true;
        }
        for workload in self.workloads(name) {
            if listed.contains(&workload) {
                continue;
            }
            let Some(entry) = self.workload(name, &workload)? else {
                continue;
            };
            match entry.origin {
                Origin::Command => drop(edges.insert(entry.edge)),
                Origin::Document => {
                    deletes.push(Op::Delete(layout::workload(name, &workload)));
                    changed = true;
                }
            }
        }
        if before
            .as_ref()
            .is_none_or(|one| one.text != text || one.homes != network.homes)
        {
            let generation = next_generation(before.map_or(0, |one| one.generation));
            let entry = NetworkEntry {
                generation,
                tenant: network.tenant.clone(),
                text,
                homes: network.homes.clone(),
            };
            last.push(Op::Put(key, written(&entry)));
            changed = true;
        }
        changed |= self.index_network(name, &edges, last, deletes);
        if changed {
            let head = layout::head(name);
            plan.compare
                .push(Compare::Revision(head.clone(), self.revision(&head)));
            last.push(Op::Put(head, b"{}".to_vec()));
        }
        Ok(Ok(()))
    }

    /// Makes a network known to the edges that it concerns, and to no others. `true`: something changes.
    fn index_network(
        &self,
        network: &str,
        edges: &BTreeSet<String>,
        puts: &mut Vec<Op>,
        deletes: &mut Vec<Op>,
    ) -> bool {
        let before: BTreeSet<String> = self
            .below(layout::INDEX)
            .filter_map(|(rest, _, _)| rest.split_once('/'))
            .filter(|(_, name)| *name == network)
            .map(|(edge, _)| edge.to_owned())
            .collect();
        for edge in edges.difference(&before) {
            puts.push(Op::Put(layout::index(edge, network), b"{}".to_vec()));
        }
        for edge in before.difference(edges) {
            deletes.push(Op::Delete(layout::index(edge, network)));
        }
        before != *edges
    }

    fn delete_network(
        &self,
        name: &str,
        plan: &mut Plan,
        deletes: &mut Vec<Op>,
    ) -> Result<(), StoreError> {
        let head = layout::head(name);
        plan.compare
            .push(Compare::Revision(head.clone(), self.revision(&head)));
        self.index_network(name, &BTreeSet::new(), &mut Vec::new(), deletes);
        let config: Option<NetworkEntry> = self.get(&layout::config(name))?;
        let numbers = config.iter().flat_map(|one| identifiers_of(&one.text));
        deletes.extend(numbers.map(|(_, number)| Op::Delete(layout::identifier(number))));
        let prefix = layout::network(name);
        deletes.extend(
            self.below(&prefix)
                .map(|(_, key, _)| Op::Delete(key.clone())),
        );
        Ok(())
    }

    /// What a workload's change writes. `to`: its section and its edge; `None`: it is deleted.
    ///
    /// # Errors
    /// An entry cannot be read.
    pub fn change(
        &self,
        network: &str,
        name: &str,
        to: Option<(String, String)>,
    ) -> Result<Plan, StoreError> {
        let head = layout::head(network);
        let key = layout::workload(network, name);
        let mut plan = Plan {
            compare: vec![
                Compare::Revision(head.clone(), self.revision(&head)),
                Compare::Revision(
                    layout::config(network),
                    self.revision(&layout::config(network)),
                ),
            ],
            ..Plan::default()
        };
        let before = self.workload(network, name)?;
        let mut ops = Vec::new();
        match &to {
            Some((text, edge)) => {
                if before
                    .as_ref()
                    .is_some_and(|one| same_section(&one.text, text))
                {
                    return Ok(Plan::default());
                }
                let generation = next_generation(before.as_ref().map_or(0, |one| one.generation));
                // What the document lists stays its own: a push moves it back, and `diff` says so.
                let origin = before.as_ref().map_or(Origin::Command, |one| one.origin);
                let entry = WorkloadEntry {
                    generation,
                    edge: edge.clone(),
                    text: text.clone(),
                    origin,
                };
                ops.push(Op::Put(key, written(&entry)));
            }
            None => ops.push(Op::Delete(key)),
        }
        let config: Option<NetworkEntry> = self.get(&layout::config(network))?;
        let mut edges: BTreeSet<String> = config
            .map(|one| one.homes)
            .unwrap_or_default()
            .into_iter()
            .collect();
        for other in self
            .workloads(network)
            .iter()
            .filter(|other| *other != name)
        {
            edges.extend(self.workload(network, other)?.map(|one| one.edge));
        }
        edges.extend(to.map(|(_, edge)| edge));
        let mut deletes = Vec::new();
        self.index_network(network, &edges, &mut ops, &mut deletes);
        ops.append(&mut deletes);
        ops.push(Op::Put(head, b"{}".to_vec()));
        plan.steps = vec![ops];
        Ok(plan)
    }
}

/// An entry that no request holds.
fn too_large(op: &Op) -> Option<Refused> {
    let size = op.size();
    if size <= MOST_BYTES {
        return None;
    }
    let key = op.key();
    let (what, advice) = match layout::network_of(key) {
        Some((network, None)) if layout::is_file(key) => {
            let prefix = layout::files(network);
            let name = key.strip_prefix(&prefix).unwrap_or(key);
            (
                format!("file `{name}` of network {network}"),
                "split a policy with `include`, and a set into several",
            )
        }
        Some((network, None)) => (
            format!("network {network}"),
            "move its `rules` into files that `policy` names",
        ),
        _ => (key.to_owned(), "shorten it"),
    };
    Some(Refused::Size { what, size, advice })
}

/// Whether two sections of plain keys say the same, whatever their order and spacing.
fn same_section(one: &str, other: &str) -> bool {
    one == other
        || crate::document::plain(one)
            .is_some_and(|plain| crate::document::plain(other) == Some(plain))
}
