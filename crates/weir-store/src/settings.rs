//! How the store is reached: the section `[store]` of agent.toml.

use std::path::PathBuf;

use serde::Deserialize;

use crate::tls::Endpoint;

/// How the store is reached, and as whom.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Settings {
    /// Members of the cluster, as `https://HOST:PORT`; each is tried when another does not answer.
    pub endpoints: Vec<Endpoint>,
    /// Certificates of authorities that members' certificates are verified with (PEM).
    pub ca: PathBuf,
    /// Certificate to show (PEM), with `key`.
    pub cert: Option<PathBuf>,
    /// Its private key (PEM).
    pub key: Option<PathBuf>,
    /// User of etcd, with `password-file`.
    pub user: Option<String>,
    /// File with the password, whose final line break does not belong to it.
    pub password_file: Option<PathBuf>,
    /// Edge of documents that this host is; default: the host's name.
    pub edge: Option<String>,
    /// Seconds for which something that the store no longer has stays in force.
    #[serde(default = "default_grace")]
    pub grace: u64,
    /// Seconds after which an edge whose agent is silent is suspect.
    #[serde(default = "default_lease")]
    pub lease: u64,
    /// Seconds after that until it counts as removed.
    #[serde(default = "default_remove_after")]
    pub remove_after: u64,
}

/// Seconds that `lease` may be: etcd rounds shorter ones up, and longer ones say nothing in time.
const LEASE: std::ops::RangeInclusive<u64> = 3..=600;

/// Seconds that `remove-after` may be: up to 30 days.
const REMOVE_AFTER: std::ops::RangeInclusive<u64> = 3..=2_592_000;

fn default_grace() -> u64 {
    5
}

fn default_lease() -> u64 {
    10
}

fn default_remove_after() -> u64 {
    300
}

impl Settings {
    /// What several keys say together.
    ///
    /// # Errors
    /// What is missing.
    pub fn check(&self) -> Result<(), String> {
        if self.endpoints.is_empty() {
            return Err("`endpoints` of [store] is empty: name at least one member of the cluster, as https://10.0.0.1:2379".to_owned());
        }
        for (key, value, range) in [
            ("lease", self.lease, LEASE),
            ("remove-after", self.remove_after, REMOVE_AFTER),
        ] {
            if !range.contains(&value) {
                return Err(format!(
                    "`{key} = {value}` of [store]: expected {} to {} seconds",
                    range.start(),
                    range.end()
                ));
            }
        }
        if self.cert.is_some() != self.key.is_some() {
            return Err("`cert` and `key` of [store] belong together: give both".to_owned());
        }
        if self.user.is_some() != self.password_file.is_some() {
            return Err(
                "`user` and `password-file` of [store] belong together: give both".to_owned(),
            );
        }
        Ok(())
    }
}
