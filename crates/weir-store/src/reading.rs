//! What concerns one edge, read at one revision of the store.

use std::collections::{BTreeMap, BTreeSet};

use crate::entry::{self, NetworkEntry, ResultEntry, StoreEntry, WorkloadEntry};
use crate::etcd::{Client, Header, KeyValue, Range};
use crate::http::StoreError;
use crate::layout;

/// Entries by key: value and revision.
pub(crate) type Entries = BTreeMap<String, (Vec<u8>, i64)>;

/// What concerns an edge, whole, at one revision.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// Cluster and revision.
    pub header: Header,
    /// Which store; `None`: nothing was ever pushed to it, or it was wiped.
    pub store: Option<StoreEntry>,
    /// Networks, edges and the index.
    pub entries: Entries,
    /// What the edge wrote last, with its revision.
    pub result: Option<(ResultEntry, i64)>,
}

impl Reading {
    /// Reads what the index of an edge names, and `networks` beside that.
    ///
    /// # Errors
    /// [`StoreError`]; [`StoreError::Compacted`]: the revision was compacted meanwhile, read again.
    pub async fn of(
        client: &mut Client,
        edge: &str,
        networks: &BTreeSet<String>,
    ) -> Result<Reading, StoreError> {
        let (header, store) = client
            .range(&Range::Key(layout::STORE.to_owned()), 0)
            .await?;
        let store = match store.first() {
            None => None,
            Some(found) => Some(entry::read::<StoreEntry>(&found.key, &found.value)?),
        };
        if let Some(store) = store.as_ref().filter(|one| one.format != entry::FORMAT) {
            return Err(StoreError::Entry {
                key: layout::STORE.to_owned(),
                why: format!("layout {} instead of {}", store.format, entry::FORMAT),
            });
        }
        let mut reading = Reading {
            header,
            store,
            ..Reading::default()
        };
        let at = header.revision;
        let prefix = layout::index_of(edge);
        let (_, index) = client.range(&Range::Prefix(prefix.clone()), at).await?;
        let mut networks = networks.clone();
        networks.extend(
            index
                .iter()
                .filter_map(|one| Some(one.key.strip_prefix(&prefix)?.to_owned())),
        );
        reading.add(index);
        for network in &networks {
            let range = Range::Prefix(layout::network(network));
            let (_, found) = client.range(&range, at).await?;
            reading.add(found);
        }
        for name in edges_of(&reading.entries, edge) {
            let (_, found) = client.range(&Range::Key(layout::edge(&name)), at).await?;
            reading.add(found);
        }
        let (_, result) = client.range(&Range::Key(layout::result(edge)), at).await?;
        if let Some(found) = result.first() {
            reading.result = Some((entry::read(&found.key, &found.value)?, found.revision));
        }
        Ok(reading)
    }

    fn add(&mut self, found: Vec<KeyValue>) {
        let found = found.into_iter();
        self.entries
            .extend(found.map(|one| (one.key, (one.value, one.revision))));
    }
}

/// Edges that entries of networks name, and the edge itself. An entry that cannot be read names none: whoever uses it says so.
pub(crate) fn edges_of(entries: &Entries, own: &str) -> BTreeSet<String> {
    let mut edges = BTreeSet::from([own.to_owned()]);
    for (key, (value, _)) in entries {
        match layout::network_of(key) {
            Some((_, Some(_))) => {
                edges.extend(entry::read::<WorkloadEntry>(key, value).map(|one| one.edge));
            }
            Some((network, None)) if *key == layout::config(network) => {
                let homes = entry::read::<NetworkEntry>(key, value).map(|one| one.homes);
                edges.extend(homes.into_iter().flatten());
            }
            _ => {}
        }
    }
    edges
}
