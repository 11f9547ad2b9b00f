//! Keys of the store. All begin with `/weir/v1/`: another layout gets another number, and this one is left alone.
//!
//! Each kind of entry has one writer: documents and workloads are written by operators, `alive`, `present` and `results` by the edge they name. No edge watches
//! what another edge writes.

/// What all keys begin with.
pub const ROOT: &str = "/weir/v1/";

/// Which store this is ([`crate::StoreEntry`]).
pub const STORE: &str = "/weir/v1/store";

/// Declared edges: what `[[edge]]` says.
pub const EDGES: &str = "/weir/v1/edges/";

/// Networks: `config`, `head`, `files/PATH` and `workloads/NAME` of each.
pub const NETWORKS: &str = "/weir/v1/networks/";

/// Documents of tenants.
pub const TENANTS: &str = "/weir/v1/tenants/";

/// Identifiers on the wire, by number; the value is their owner.
pub const IDENTIFIERS: &str = "/weir/v1/identifiers/";

/// Registrations of agents, under leases.
pub const ALIVE: &str = "/weir/v1/alive/";

/// Which agents were there, under leases that outlive their registrations.
pub const PRESENT: &str = "/weir/v1/present/";

/// What edges applied.
pub const RESULTS: &str = "/weir/v1/results/";

/// Which networks concern an edge.
pub const INDEX: &str = "/weir/v1/index/";

/// A declared edge.
#[must_use]
pub fn edge(name: &str) -> String {
    format!("{EDGES}{name}")
}

/// All of a network.
#[must_use]
pub fn network(name: &str) -> String {
    format!("{NETWORKS}{name}/")
}

/// A network without its workloads.
#[must_use]
pub fn config(network: &str) -> String {
    format!("{NETWORKS}{network}/config")
}

/// Written with each change of a network: who changes one compares it.
#[must_use]
pub fn head(network: &str) -> String {
    format!("{NETWORKS}{network}/head")
}

/// Workloads of a network.
#[must_use]
pub fn workloads(network: &str) -> String {
    format!("{NETWORKS}{network}/workloads/")
}

/// A workload.
#[must_use]
pub fn workload(network: &str, name: &str) -> String {
    format!("{NETWORKS}{network}/workloads/{name}")
}

/// Files that a network carries.
#[must_use]
pub fn files(network: &str) -> String {
    format!("{NETWORKS}{network}/files/")
}

/// A file that a network carries. Its name is a path, and the last part of the key.
#[must_use]
pub fn file(network: &str, name: &str) -> String {
    format!("{NETWORKS}{network}/files/{name}")
}

/// Whether a key is that of a file.
#[must_use]
pub fn is_file(key: &str) -> bool {
    let rest = key
        .strip_prefix(NETWORKS)
        .and_then(|rest| rest.split_once('/'));
    rest.is_some_and(|(_, rest)| rest.starts_with("files/"))
}

/// A tenant.
#[must_use]
pub fn tenant(name: &str) -> String {
    format!("{TENANTS}{name}")
}

/// An identifier. Keys are in the order of the numbers.
#[must_use]
pub fn identifier(number: u32) -> String {
    format!("{IDENTIFIERS}{number:08}")
}

/// The registration of an edge's agent.
#[must_use]
pub fn alive(edge: &str) -> String {
    format!("{ALIVE}{edge}")
}

/// That the agent of an edge was there.
#[must_use]
pub fn present(edge: &str) -> String {
    format!("{PRESENT}{edge}")
}

/// What an edge applied.
#[must_use]
pub fn result(edge: &str) -> String {
    format!("{RESULTS}{edge}")
}

/// Networks that concern an edge.
#[must_use]
pub fn index_of(edge: &str) -> String {
    format!("{INDEX}{edge}/")
}

/// That a network concerns an edge.
#[must_use]
pub fn index(edge: &str, network: &str) -> String {
    format!("{INDEX}{edge}/{network}")
}

/// The network and, if it is the key of a workload, the workload of a key below [`NETWORKS`].
#[must_use]
pub fn network_of(key: &str) -> Option<(&str, Option<&str>)> {
    let (network, rest) = key.strip_prefix(NETWORKS)?.split_once('/')?;
    Some((network, rest.strip_prefix("workloads/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_tell_what_they_are_of() {
        assert_eq!(network_of(&config("shop")), Some(("shop", None)));
        assert_eq!(
            network_of(&workload("shop", "w1")),
            Some(("shop", Some("w1")))
        );
        assert_eq!(network_of(&edge("e1")), None);
        // The path of a file is not taken for another kind of key.
        for name in ["a.weir", "config", "workloads/w1", "../x", "/etc/a.weir"] {
            let key = file("shop", name);
            assert_eq!(
                (network_of(&key), is_file(&key)),
                (Some(("shop", None)), true)
            );
        }
        assert!(!is_file(&config("files")) && !is_file(&workload("shop", "files")));
        assert_eq!(identifier(4096), "/weir/v1/identifiers/00004096");
        // No network's keys are among those of another.
        assert!(!config("shop2").starts_with(&network("shop")));
    }
}
