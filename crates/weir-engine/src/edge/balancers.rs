//! What balancers of an edge counted, read from their maps by who is counted: services and servers by their identities.

use std::collections::BTreeMap;

use weir_bpf::abi::{LbCount, LbServer};
use weir_functions::balancer::{self, report};
use weir_kernel::{KernelError, Map};
use zerocopy::FromBytes;

use super::status::InstanceStatus;

/// Counts by identity ([`weir_functions::balancer::Service::identity`] and `server_identity`).
#[derive(Clone, Debug, Default)]
pub struct BalancerCounts {
    /// Of services.
    pub services: BTreeMap<u64, LbCount>,
    /// Of servers.
    pub servers: BTreeMap<u64, LbCount>,
}

impl InstanceStatus {
    /// What a balancer counted; `None` if the instance is none.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn balancer_counts(&self) -> Result<Option<BalancerCounts>, KernelError> {
        if self.object != balancer::OBJECT {
            return Ok(None);
        }
        let open = |name: &str| -> Result<Option<Map>, KernelError> {
            let id = self.maps.iter().find(|map| map.0 == name).map(|map| map.1);
            id.map(|id| Map::by_id(id, name)).transpose()
        };
        let mut counts = BalancerCounts::default();
        if let (Some(names), Some(of)) = (open("service_names")?, open("service_counts")?) {
            for number in 0..names.definition().entries {
                let key = number.to_ne_bytes();
                let name = names.lookup(&key)?;
                let identity = name.and_then(|bytes| u64::read_from_bytes(&bytes).ok());
                if let Some(identity) = identity.filter(|identity| *identity != 0) {
                    counts.services.insert(identity, sum(&of, number)?);
                }
            }
        }
        if let (Some(servers), Some(of)) = (open("servers")?, open("server_counts")?) {
            for number in 0..servers.definition().entries {
                let value = servers.lookup(&number.to_ne_bytes())?;
                let server = value.and_then(|bytes| LbServer::read_from_bytes(&bytes).ok());
                if let Some(server) = server.filter(|server| server.identity != 0) {
                    counts.servers.insert(server.identity, sum(&of, number)?);
                }
            }
        }
        Ok(Some(counts))
    }
}

fn sum(map: &Map, number: u32) -> Result<LbCount, KernelError> {
    let values = map.lookup_percpu(&number.to_ne_bytes())?;
    Ok(report::sum(values.iter().map(Vec::as_slice)))
}
