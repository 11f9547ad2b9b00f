//! Making an edge what was planned, and taking it down.
//!
//! The graph and the networks have a generation word each, so they switch one after the other: the graph first, because what it drops never
//! reaches the networks. All that can be refused is refused before the first of them; if the second fails all the same, the first goes back.

use std::sync::Arc;

use weir_engine::edge;
use weir_engine::network::{self, Networks};
use weir_network::EdgeNetworks;

use crate::error::RuntimeError;
use crate::former::Former;
use crate::networks::{self, NetworksApplied};
use crate::plan::{NetworksPart, Planned};

/// What an apply did.
#[derive(Debug, Default)]
pub struct Applied {
    /// Of the graph; `None`: the file has none.
    pub graph: Option<edge::Applied>,
    /// Of the networks; `None`: the file has none.
    pub networks: Option<NetworksApplied>,
    /// A graph ran and is wanted no more.
    pub graph_removed: bool,
    /// Networks ran that a configuration of the edge had named, and that it names no more.
    pub networks_removed: bool,
}

impl Planned {
    /// From now on a workload whose device does not exist is left out and no mistake: who says so looks at
    /// [`weir_engine::network::Look::device_changes`], and applies again.
    pub fn wait_for_devices(&mut self) {
        self.waits = true;
    }

    /// Makes the edge what was planned. `force`: also with a document of a lower version than the one that runs, and with a document of
    /// networks that belong to a configuration.
    ///
    /// # Errors
    /// What ran before runs on, unless the text says otherwise.
    pub fn apply(&self, force: bool) -> Result<Applied, RuntimeError> {
        let mut applied = Applied::default();
        let ready = self.prepare_networks(force)?;
        let former = match (&self.graph, &ready) {
            // Only of two parts one can be left behind by the other's failure.
            (Some(_), Some(_)) => Some(Former::of_graph(&self.edge)?),
            _ => None,
        };
        if let Some(part) = &self.graph {
            let text = part.record.write()?;
            match edge::apply(&part.plan, &text) {
                Ok(done) => applied.graph = Some(done),
                Err(error) => {
                    if let Some(ready) = ready {
                        give_back(ready.running);
                    }
                    return Err(error.into());
                }
            }
        }
        let outcome = ready.map(Ready::apply).transpose();
        match (outcome, former) {
            (Ok(done), _) => applied.networks = done,
            (Err(error), None) => return Err(error),
            (Err(error), Some(former)) => {
                let text = format!("the networks were rejected: {error}");
                return Err(match former.restore() {
                    Ok(()) => RuntimeError::Failed(format!("{text}; nothing was changed")),
                    Err(why) => RuntimeError::Failed(format!(
                        "{text}; the new graph runs, because the former one could not be gone back to: {why}"
                    )),
                });
            }
        }
        self.remove_rest(&mut applied)?;
        Ok(applied)
    }

    /// Holds the networks and plans them beside what runs, so that the graph is not touched where they are refused.
    fn prepare_networks(&self, force: bool) -> Result<Option<Ready<'_>>, RuntimeError> {
        let Some(part) = &self.networks else {
            return Ok(None);
        };
        let edge = &self.edge;
        let mut running = Networks::open(edge)?;
        if self.waits {
            running.wait_for_devices();
        }
        let version = part.checked.document.version;
        if running.version() > version && !force {
            return Err(RuntimeError::Usage(format!(
                "version {} of the document runs on edge {edge}, and this is version {version}; `--force` applies it all the same",
                running.version()
            )));
        }
        let is_same = running.generation() == part.seen.0;
        let owner = match is_same {
            true => part.seen.1.clone(),
            false => match running.text()? {
                Some(text) => networks::Record::read(&text)?.configuration,
                None => None,
            },
        };
        if let (None, Some(owner), false) = (&self.configuration, owner, force) {
            return Err(RuntimeError::Usage(format!(
                "the networks of edge {edge} belong to the configuration {0}: run `weir apply {0}`, or take them from it with --force",
                owner.display()
            )));
        }
        let plan = match is_same {
            true => Arc::clone(&part.plan),
            // Another command changed them since, or they could not be seen.
            false => Arc::new(part.record.plan_beside(edge, &running)?),
        };
        Ok(Some(Ready {
            running,
            plan,
            part,
        }))
    }

    /// Takes down what the configuration of a whole edge does not name any more.
    fn remove_rest(&self, applied: &mut Applied) -> Result<(), RuntimeError> {
        if self.configuration.is_none() {
            return Ok(());
        }
        if self.graph.is_none() {
            applied.graph_removed = edge::down(&self.edge)?;
        }
        if self.networks.is_none()
            && (self.running_networks()?).is_some_and(|record| self.owns(&record))
        {
            applied.networks_removed = down_networks(&self.edge)?;
        }
        Ok(())
    }
}

/// Networks that are held, with a plan that fits what runs.
struct Ready<'p> {
    running: Networks,
    plan: Arc<EdgeNetworks>,
    part: &'p NetworksPart,
}

impl Ready<'_> {
    fn apply(mut self) -> Result<NetworksApplied, RuntimeError> {
        let record = self.part.record.write()?;
        match self.running.apply(&self.plan, &record) {
            Ok(applied) => Ok(NetworksApplied {
                plan: self.plan,
                applied,
            }),
            Err(error) => {
                give_back(self.running);
                Err(error.into())
            }
        }
    }
}

/// Lets go of networks that were not applied: where none ran, their empty folder goes, too.
fn give_back(networks: Networks) {
    if networks.generation() == 0 {
        // What is told is why nothing runs, not what could not be removed.
        let _ = networks.remove();
    }
}

/// Names of edges that run in this network namespace: their graphs, their networks, or both. Edges whose state cannot be read are among them,
/// because they may run here; what asks for such a state says why it cannot be read.
///
/// # Errors
/// The folder of all edges cannot be read.
pub fn edges() -> Result<Vec<String>, RuntimeError> {
    let mut names = edge::list()?;
    names.extend(network::list_here()?);
    names.sort();
    names.dedup();
    Ok(names)
}

/// Takes down the graph and the networks of an edge. `false`: nothing of it runs.
///
/// # Errors
/// What the kernel refused, of networks after the graph was taken down; calling it again goes on.
pub fn down(name: &str) -> Result<bool, RuntimeError> {
    let networks = down_networks(name);
    let graph = edge::down(name)?;
    Ok(networks? || graph)
}

/// Takes down the networks of an edge. `false`: none run.
///
/// # Errors
/// What the kernel refused; calling it again goes on.
pub fn down_networks(name: &str) -> Result<bool, RuntimeError> {
    if !network::runs_here(name)? {
        return Ok(false);
    }
    Networks::open(name)?.remove()?;
    Ok(true)
}
