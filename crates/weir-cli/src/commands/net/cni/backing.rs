//! Where workloads are declared: in the store, if the agent's settings name one, else in the document that runs on this host.

use std::path::Path;
use std::time::{Duration, Instant};

use weir_agent::Settings;
use weir_engine::network;
use weir_network::model::Document;
use weir_runtime::RuntimeError;
use weir_runtime::networks::{Record, running_edge};
use weir_runtime::workloads::{self, Change, Workload};

use super::super::store::Store;
use super::call::{CniError, Config};
use crate::args::net::StoreWorkloadCommand;
use crate::failure::Failure;

/// The folder of the agent's settings where the configuration names none.
const SETTINGS: &str = "/etc/weir";

/// The networks that containers join.
pub(super) struct Backing {
    edge: String,
    /// `None`: the document of this host.
    store: Option<Store>,
}

impl From<Failure> for CniError {
    fn from(failure: Failure) -> CniError {
        match failure {
            Failure::Usage(text) => CniError::config(text),
            other => CniError::later(other.to_string()),
        }
    }
}

impl From<RuntimeError> for CniError {
    fn from(error: RuntimeError) -> CniError {
        match &error {
            RuntimeError::Mistakes { found, .. } => {
                CniError::config(format!("{error}: {}", found.render(false)))
            }
            _ if error.is_usage() => CniError::config(error.to_string()),
            _ => CniError::host(error.to_string()),
        }
    }
}

impl Backing {
    pub(super) fn of(config: &Config) -> Result<Backing, CniError> {
        let folder = config.config.as_deref().unwrap_or(Path::new(SETTINGS));
        let settings = Settings::of(folder).map_err(|error| CniError::config(error.to_string()))?;
        let Some(settings) = settings.store else {
            let edge = match running_edge(config.edge.as_deref()) {
                Ok((edge, _)) => edge,
                // Only this means that no networks run.
                Err(RuntimeError::Failed(text)) => return Err(CniError::absent(text)),
                Err(error) => return Err(error.into()),
            };
            return Ok(Backing { edge, store: None });
        };
        let edge = config.edge.clone().or(settings.edge).unwrap_or_else(|| {
            let host = rustix::system::uname();
            host.nodename().to_string_lossy().into_owned()
        });
        let store = Some(Store::open(folder)?);
        Ok(Backing { edge, store })
    }

    /// Name of this edge.
    pub(super) fn edge(&self) -> &str {
        &self.edge
    }

    /// All networks as they are declared now.
    pub(super) fn document(&mut self) -> Result<Document, CniError> {
        let record = match &mut self.store {
            Some(store) => Record::of_text(
                "the store",
                store.read()?.document().map_err(Failure::from)?,
            ),
            None => {
                let look = network::look(&self.edge).map_err(RuntimeError::from)?;
                let look = look.ok_or_else(|| {
                    CniError::absent(format!("edge {} runs no networks here", self.edge))
                })?;
                Record::read(&look.text)?
            }
        };
        Ok(record.parse()?)
    }

    /// Adds a workload on this edge; one with the same values stays.
    pub(super) fn add(&mut self, workload: Workload) -> Result<(), CniError> {
        match &mut self.store {
            Some(store) => {
                store.change(&StoreWorkloadCommand::Add {
                    workload: format!("{}/{}", workload.network, workload.name),
                    subnet: workload.subnet,
                    on: self.edge.clone(),
                    device: workload.device,
                    address: workload.addresses,
                    mac: None,
                    group: workload.groups,
                })?;
            }
            None => {
                workloads::change(&self.edge, &Change::Add(workload))?;
            }
        }
        Ok(())
    }

    /// Deletes a workload.
    pub(super) fn delete(&mut self, network: &str, name: &str) -> Result<(), CniError> {
        match &mut self.store {
            Some(store) => {
                store.change(&StoreWorkloadCommand::Delete {
                    workload: format!("{network}/{name}"),
                })?;
            }
            None => {
                let (network, name) = (network.to_owned(), name.to_owned());
                workloads::change(&self.edge, &Change::Remove { network, name })?;
            }
        }
        Ok(())
    }

    /// Whether packets of a workload's device are carried now.
    pub(super) fn carries(&self, device: &str) -> Result<bool, CniError> {
        let look = network::look(&self.edge).map_err(RuntimeError::from)?;
        let Some(look) = look else {
            return Ok(false);
        };
        let changes = look.device_changes().map_err(RuntimeError::from)?;
        let mut other = changes.new.iter().chain(&changes.missing);
        Ok(look.devices.iter().any(|one| one == device) && !other.any(|one| one == device))
    }

    /// Waits until packets of a workload's device are carried: the agent of this edge follows the store.
    pub(super) fn settle(
        &self,
        device: &str,
        until: Instant,
        pause: Duration,
    ) -> Result<(), CniError> {
        while !self.carries(device)? {
            if Instant::now() >= until {
                return Err(CniError::later(format!(
                    "edge {} does not carry packets of {device} yet: `weir net store status` and the log of `weir agent` say why",
                    self.edge
                )));
            }
            std::thread::sleep(pause);
        }
        Ok(())
    }
}
