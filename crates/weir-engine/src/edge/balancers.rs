//! Balancers of an edge: what they counted, read from their maps by who is counted (services and servers by their identities), and whether this
//! host knows the way to their servers.

use std::collections::BTreeMap;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weir_bpf::abi::balancer::{deliver, state};
use weir_bpf::abi::{LbCount, LbServer};
use weir_functions::balancer::{self, report};
use weir_kernel::{KernelError, Map, iface, routes};
use zerocopy::FromBytes;

use super::state::State;
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

/// Lets the kernel ask for servers whose way it is to say. What a user should know: servers that it has no way to, or none by a port.
pub(super) fn prepare(edge: &State) -> Result<Vec<String>, KernelError> {
    let mut notes = Vec::new();
    for instance in edge
        .instances
        .iter()
        .filter(|i| i.object == balancer::OBJECT)
    {
        let Some(map) = instance.maps.get("servers") else {
            continue;
        };
        let servers = Map::by_id(map.id, "servers")?;
        for number in 0..servers.definition().entries {
            let value = servers.lookup(&number.to_ne_bytes())?;
            let server = value.and_then(|bytes| LbServer::read_from_bytes(&bytes).ok());
            let by_kernel = |s: &LbServer| {
                matches!(s.state, state::UP | state::DRAIN)
                    && s.deliver & (deliver::MAC | deliver::CPU) == 0
            };
            let Some(server) = server.filter(by_kernel) else {
                continue;
            };
            let address = address_of(&server);
            let note = |what: String| {
                format!(
                    "function {}: {what}, so packets to server {address} go on by the default output: \
                     add a route (ip route add), or say how it is reached with mac and to",
                    instance.name
                )
            };
            let way = routes::way_to(address)?;
            let Some(hop) = way.and_then(|way| way.hops.into_iter().next()) else {
                notes.push(note(format!("this host has no way to {address}")));
                continue;
            };
            if !edge.ports.iter().any(|port| port.ifindex == hop.device) {
                let device = iface::name_of(hop.device).unwrap_or_default();
                notes.push(note(format!(
                    "the way to {address} leads out of {device}, which is no port"
                )));
                continue;
            }
            // One that does not answer shows in the kernel's neighbours (ip neigh); packets go to the default output until it does.
            let _ = routes::ask_neighbour(hop.device, hop.via.unwrap_or(address));
        }
    }
    Ok(notes)
}

fn address_of(server: &LbServer) -> IpAddr {
    let [a, b, c, d, ..] = server.address;
    match server.family {
        4 => Ipv4Addr::new(a, b, c, d).into(),
        _ => Ipv6Addr::from(server.address).into(),
    }
}
