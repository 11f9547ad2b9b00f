//! The virtual networks of an edge: what is kept beside them while they run, and how that becomes a plan again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use weir_engine::network::{self, Look, NetworkError, Networks};
use weir_functions::joined::{Included, Joined};
use weir_graph::Folder;
use weir_kernel::Map;
use weir_network::model::Document;
use weir_network::{BALANCER, EdgeNetworks, NamedFile, Networks as Checked, Numbers};
use weir_policy::Diagnostics;

use crate::error::RuntimeError;
use crate::files::{self, Held, Read, Watched};
use crate::stations;

/// What is kept beside running networks, as the engine's text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Where the document was read from, whole: files that it names lie beside it.
    pub path: PathBuf,
    /// The document, with the texts of files that it includes; or the configuration that declares the networks itself.
    pub text: String,
    /// Where included files begin in it.
    #[serde(default)]
    included: Vec<Included>,
    /// MAC addresses that were read from devices, by `network/workload`.
    #[serde(default)]
    stations: BTreeMap<String, String>,
    /// The configuration of the edge that names the document; `None`: the document was applied for itself.
    #[serde(default)]
    pub configuration: Option<PathBuf>,
    /// It may read no files: others than this host's operator wrote it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    alone: bool,
}

impl Record {
    /// Of a file.
    ///
    /// # Errors
    /// It cannot be read, or a file that it includes.
    pub fn of_file(path: &Path) -> Result<Record, RuntimeError> {
        let (source, _) = files::joined(path, "document")?;
        Ok(Record::of(path, source))
    }

    /// Of a text that may neither include nor name files. `name` is what messages call it.
    #[must_use]
    pub fn of_text(name: &str, text: String) -> Record {
        Record {
            alone: true,
            ..Record::of(Path::new(name), Joined::new(name, text))
        }
    }

    /// Of a file that was read.
    pub(crate) fn of(path: &Path, source: Joined) -> Record {
        Record {
            path: std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
            text: source.text,
            included: source.included,
            stations: BTreeMap::new(),
            configuration: None,
            alone: false,
        }
    }

    /// From what the engine kept.
    ///
    /// # Errors
    /// Something else than this version applied it.
    pub fn read(text: &str) -> Result<Record, RuntimeError> {
        serde_json::from_str(text).map_err(|error| {
            RuntimeError::Failed(format!(
                "what runs was not applied by `weir apply` of this version: {error}"
            ))
        })
    }

    /// For the engine to keep.
    ///
    /// # Errors
    /// It has no text.
    pub fn write(&self) -> Result<String, RuntimeError> {
        serde_json::to_string(self).map_err(|error| RuntimeError::Failed(error.to_string()))
    }

    /// The document, checked as if nothing of it ran; and what is probably not meant.
    ///
    /// # Errors
    /// [`RuntimeError::Mistakes`].
    pub fn check(&self) -> Result<(Checked, Diagnostics), RuntimeError> {
        self.check_beside(&|_, _| None, &mut Read::new())
    }

    /// With what functions hold that run, by function and map: balancers go on with the numbers of their servers. `read` gets the files
    /// that the document names.
    pub(crate) fn check_beside(
        &self,
        held: Held<'_>,
        read: &mut Read,
    ) -> Result<(Checked, Diagnostics), RuntimeError> {
        let document = self.parse()?;
        let files = self.files(held);
        let checked = weir_network::check(document, &files).map_err(|found| self.refused(found));
        read.extend(files.into_read());
        checked
    }

    /// Files beside the document; none of one that others wrote.
    pub(crate) fn files<'h>(&self, held: Held<'h>) -> Watched<'h> {
        let folder = (!self.alone).then(|| Folder::of(&self.path));
        Watched::new(folder, held)
    }

    /// Files beside the document that functions of its networks name.
    ///
    /// # Errors
    /// [`RuntimeError::Mistakes`].
    pub fn named_files(&self) -> Result<Vec<NamedFile>, RuntimeError> {
        let document = self.parse()?;
        Ok(weir_network::named_files(
            &document,
            &self.files(&|_, _| None),
        ))
    }

    /// The document by itself.
    ///
    /// # Errors
    /// [`RuntimeError::Mistakes`].
    pub fn parse(&self) -> Result<Document, RuntimeError> {
        let source = Joined {
            name: self.path.display().to_string(),
            text: self.text.clone(),
            included: self.included.clone(),
        };
        let mut document =
            weir_network::parse_joined(source).map_err(|found| self.refused(found))?;
        let read = self.stations.iter();
        let read = read.filter_map(|(name, mac)| Some((name.clone(), mac.parse().ok()?)));
        document.fill_devices(&read.collect());
        Ok(document)
    }

    /// Reads the MAC addresses that workloads of an edge take from their devices.
    pub(crate) fn read_devices(&mut self, edge: &str) -> Result<(), RuntimeError> {
        let mut document = self.parse()?;
        self.stations = stations::read(&mut document, edge)?;
        Ok(())
    }

    /// The plan of an edge that fits what runs of it.
    pub(crate) fn plan_beside(
        &self,
        edge: &str,
        running: &Networks,
    ) -> Result<EdgeNetworks, RuntimeError> {
        let kept =
            |function: &str, map: &str| held(function, running.held(function, map), &mut |_| ());
        let (checked, _) = self.check_beside(&kept, &mut Read::new())?;
        planned(&checked, edge, running.numbers())
    }

    fn refused(&self, found: Diagnostics) -> RuntimeError {
        RuntimeError::Mistakes {
            path: self.path.clone(),
            what: "document",
            found,
        }
    }

    /// A document that was checked by itself, checked again beside what runs, if that makes a difference.
    pub(crate) fn beside(
        &self,
        networks: Checked,
        held: Held<'_>,
    ) -> Result<Checked, RuntimeError> {
        let mut functions = networks
            .document
            .networks
            .iter()
            .flat_map(|one| &one.functions);
        match functions.any(|one| one.kind.as_str() == BALANCER) {
            true => Ok(self.check_beside(held, &mut Read::new())?.0),
            false => Ok(networks),
        }
    }
}

/// The plan of an edge.
///
/// # Errors
/// The document does not declare the edge, or what it declares does not fit one.
pub fn planned(
    networks: &Checked,
    edge: &str,
    before: &Numbers,
) -> Result<EdgeNetworks, RuntimeError> {
    networks
        .plan(edge, before)
        .map_err(|error| RuntimeError::Usage(error.to_string()))
}

/// Which edge of a document is this host: the one that is given, the one whose configuration it is a part of, the only one, or the one that
/// has the host's name.
///
/// # Errors
/// None of these.
pub fn edge_of(document: &Document, given: Option<&str>) -> Result<String, RuntimeError> {
    if let Some(given) = given {
        return Ok(given.to_owned());
    }
    if let Some(configured) = &document.configured {
        return Ok(configured.clone());
    }
    if let [only] = document.edges.as_slice() {
        return Ok(only.name.value.clone());
    }
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    match document.edges.iter().find(|one| one.name.value == host) {
        Some(edge) => Ok(edge.name.value.clone()),
        None => {
            let names: Vec<&str> = document.edges.iter().map(|e| e.name.as_str()).collect();
            Err(RuntimeError::Usage(format!(
                "the document has no edge named as this host (`{host}`); say which one it is with --edge: {}",
                names.join(", ")
            )))
        }
    }
}

/// The running networks of the edge that is given, or of the only one of this network namespace.
///
/// # Errors
/// None runs, or several do.
pub fn running_edge(given: Option<&str>) -> Result<(String, Look), RuntimeError> {
    let names = match given {
        Some(given) => vec![given.to_owned()],
        None => network::list_here()?,
    };
    match names.as_slice() {
        [only] => match network::look(only)? {
            Some(look) => Ok((only.clone(), look)),
            None => Err(RuntimeError::Failed(format!(
                "edge {only} runs no networks here; `weir apply DOCUMENT` starts them"
            ))),
        },
        [] => Err(RuntimeError::Failed(
            "no networks run here; `weir apply DOCUMENT` starts them".to_owned(),
        )),
        many => Err(RuntimeError::Usage(format!(
            "networks of several edges run here; select one with --edge: {}",
            many.join(", ")
        ))),
    }
}

/// What an apply did with virtual networks.
#[derive(Debug)]
pub struct NetworksApplied {
    /// What runs now.
    pub plan: Arc<EdgeNetworks>,
    /// What changed.
    pub applied: network::Applied,
}

/// Makes the networks of an edge what a record says: one that ran before, or one that was changed since. Workloads whose devices do not exist are
/// left out until they do.
///
/// # Errors
/// The document has mistakes, or the kernel refused; what ran before runs on.
pub fn apply(edge: &str, record: &Record) -> Result<NetworksApplied, RuntimeError> {
    apply_held(edge, record, Networks::open(edge)?)
}

/// The same, if a generation still runs; `None`: another one does.
///
/// # Errors
/// As of [`apply`].
pub(crate) fn apply_after(
    generation: u64,
    edge: &str,
    record: &Record,
) -> Result<Option<NetworksApplied>, RuntimeError> {
    let running = Networks::open(edge)?;
    match running.generation() == generation {
        true => apply_held(edge, record, running).map(Some),
        false => Ok(None),
    }
}

fn apply_held(
    edge: &str,
    record: &Record,
    mut running: Networks,
) -> Result<NetworksApplied, RuntimeError> {
    running.wait_for_devices();
    let plan = Arc::new(record.plan_beside(edge, &running)?);
    let applied = running.apply(&plan, &record.write()?)?;
    Ok(NetworksApplied { plan, applied })
}

/// Lets the networks of an edge tell what packets go through; the maps to ask them by, in the order of [`weir_engine::watch::MAPS`]. Whatever
/// changes the networks ends that, and [`unwatch`].
///
/// # Errors
/// Nothing runs, or the kernel refused; what ran before runs on.
pub fn watch(edge: &str) -> Result<[Map; 3], RuntimeError> {
    let mut running = Networks::open(edge)?;
    let text = running.text()?.unwrap_or_default();
    let plan = Record::read(&text)?.plan_beside(edge, &running)?;
    Ok(running.watch(&plan)?)
}

/// Lets the networks of an edge run the programs of before; `false`: they did.
///
/// # Errors
/// What the kernel refused; calling it again goes on.
pub fn unwatch(edge: &str) -> Result<bool, RuntimeError> {
    if !network::runs_here(edge)? || !network::is_watched(edge)? {
        return Ok(false);
    }
    // Who opens them for a change puts back what ran.
    drop(Networks::open(edge)?);
    Ok(true)
}

/// What is held, or nothing: where it cannot be read, servers get numbers as if the function did not run.
pub(crate) fn held(
    function: &str,
    found: Result<Option<Vec<u8>>, NetworkError>,
    note: &mut dyn FnMut(String),
) -> Option<Vec<u8>> {
    found.unwrap_or_else(|error| {
        note(format!(
            "what {function} runs with cannot be read ({error}): this is planned as if it did not run"
        ));
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_others_reads_no_file_of_this_host() {
        let secret = std::env::temp_dir().join(format!("weir-secret-{}", std::process::id()));
        std::fs::write(&secret, "root:hash\n").expect("writable");
        let path = secret.display();
        let head = "[[edge]]\nname = \"e1\"\n[[tenant]]\nname = \"red\"\n[[network]]\nname = \"n\"\ntenant = \"red\"\n";
        let function = format!(
            "[[network.function]]\nname = \"w\"\nkind = \"middlebox\"\npolicy = \"{path}\"\n"
        );
        for text in [
            format!("{head}{function}"),
            format!("include = \"{path}\"\n{head}"),
        ] {
            let record = Record::of_text("the store", text.clone());
            let kept = Record::read(&record.write().expect("JSON")).expect("the same");
            for one in [record, kept] {
                let refused = one.check().expect_err(&text);
                let RuntimeError::Mistakes { found, .. } = refused else {
                    panic!("{refused}");
                };
                let said = found.render(false);
                assert!(!said.contains("root:hash"), "{said}");
                assert!(
                    !text.contains("policy") || said.contains("reads no files of hosts"),
                    "{said}"
                );
            }
        }
        std::fs::remove_file(&secret).expect("removed");
    }

    /// What an edge of a store applies, keeps in its history, and rolls back to: the policy is a part of it.
    #[test]
    fn a_text_of_others_carries_its_policy() {
        let text = |port: u16| {
            format!(
                "[[edge]]\nname = \"e1\"\n[[tenant]]\nname = \"red\"\n[[network]]\nname = \"n\"\ntenant = \"red\"\n\
                 [[network.subnet]]\nname = \"a\"\n[[network.subnet]]\nname = \"b\"\n\
                 [[network.link]]\nfrom = \"a\"\nto = \"w\"\n[[network.link]]\nfrom = \"w\"\nto = \"b\"\n\
                 [[network.function]]\nname = \"w\"\nkind = \"middlebox\"\npolicy = \"w.weir\"\n\
                 [[network.file]]\nname = \"w.weir\"\ntext = \"db: udp-dport {port} drop\\n\"\n"
            )
        };
        let record = |port| {
            let record = Record::of_text("the store", text(port));
            Record::read(&record.write().expect("JSON")).expect("the same")
        };
        let [old, new] = [record(5432), record(5433)];
        for record in [&old, &new] {
            record.check().unwrap_or_else(|error| panic!("{error}"));
        }
        let [old, new] = [old, new].map(|record| record.parse().expect("read"));
        let said = weir_network::diff(&new, &old).to_string();
        assert!(
            said.contains("- db: udp-dport 5433 drop")
                && said.contains("+ db: udp-dport 5432 drop"),
            "{said}"
        );
    }
}
