//! Balancers of an edge: what they counted, read from their maps by who is counted (services and servers by their identities), and whether this
//! host knows the way to their servers.

use std::collections::{BTreeMap, BTreeSet};

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weir_bpf::abi::balancer::{deliver, mode, state};
use weir_bpf::abi::{LbCount, LbServer};
use weir_functions::balancer::{self, report};
use weir_kernel::routes::KernelRouteKind;
use weir_kernel::{KernelError, Map, iface, routes};
use zerocopy::{FromBytes, IntoBytes};

use super::health;
use super::state::State;
use super::status::InstanceStatus;

/// Counts by identity ([`weir_functions::balancer::Service::identity`] and `server_identity`).
#[derive(Clone, Debug, Default)]
pub struct BalancerCounts {
    /// Of services.
    pub services: BTreeMap<u64, LbCount>,
    /// Of servers.
    pub servers: BTreeMap<u64, LbCount>,
    /// Servers that are down ([`super::health`]).
    pub down: BTreeSet<u64>,
    /// Those of them that get new flows all the same, because all of their service are down.
    pub kept: BTreeSet<u64>,
}

impl BalancerCounts {
    /// Of a balancer whose maps have these ids.
    ///
    /// # Errors
    /// What the kernel refused.
    pub(crate) fn read(id: &dyn Fn(&str) -> Option<u32>) -> Result<BalancerCounts, KernelError> {
        let open = |name: &str| -> Result<Option<Map>, KernelError> {
            id(name).map(|id| Map::by_id(id, name)).transpose()
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
            let servers = health::servers(&servers)?;
            for (number, server) in &servers {
                counts.servers.insert(server.identity, sum(&of, *number)?);
            }
            if let Some(map) = open("health")? {
                let down = health::down(&servers, &map)?;
                (counts.down, counts.kept) = (down.servers, down.kept);
            }
        }
        Ok(counts)
    }
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
        let id = |name: &str| self.maps.iter().find(|map| map.0 == name).map(|map| map.1);
        BalancerCounts::read(&id).map(Some)
    }

    /// Sets what was counted of services and servers with these identities to 0. What is counted at the same moment may be lost.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn zero_balancer_counts(&self, identities: &BTreeSet<u64>) -> Result<(), KernelError> {
        for (who, of) in [
            ("service_names", "service_counts"),
            ("servers", "server_counts"),
        ] {
            let id = |name: &str| self.maps.iter().find(|map| map.0 == name).map(|map| map.1);
            let (Some(names), Some(counts)) = (id(who), id(of)) else {
                continue;
            };
            let (names, counts) = (Map::by_id(names, who)?, Map::by_id(counts, of)?);
            for number in 0..names.definition().entries {
                let key = number.to_ne_bytes();
                // Both kinds of element begin with the identity.
                let value = names.lookup(&key)?;
                let identity = value.and_then(|v| Some(u64::from_ne_bytes(*v.first_chunk()?)));
                match identity {
                    Some(0) | None => break,
                    Some(identity) if identities.contains(&identity) => {
                        counts.update(&key, LbCount::default().as_bytes())?;
                    }
                    Some(_) => {}
                }
            }
        }
        Ok(())
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
        for (_, server) in health::servers(&servers)? {
            if !matches!(server.state, state::UP | state::DRAIN) {
                continue;
            }
            if server.deliver & deliver::CPU != 0 && server.mode == mode::NAT {
                notes.extend(own_answers(&instance.name, address_of(&server))?);
            }
            if server.deliver & (deliver::MAC | deliver::CPU) != 0 {
                continue;
            }
            let address = address_of(&server);
            let note = |what: String| {
                format!(
                    "function {}: {what}, so packets to server {address} leave by the default output: \
                     add a route (ip route add), or set `mac` and `to`",
                    instance.name
                )
            };
            let way = routes::way_to(address)?;
            let Some(hop) = way.and_then(|way| way.hops.into_iter().next()) else {
                notes.push(note(format!("this host has no route to {address}")));
                continue;
            };
            if !edge.ports.iter().any(|port| port.ifindex == hop.device) {
                let device = iface::name_of(hop.device).unwrap_or_default();
                notes.push(note(format!(
                    "the route to {address} leads out of {device}, which is not a port"
                )));
                continue;
            }
            // One that does not answer shows in the kernel's neighbours (ip neigh); packets go to the default output until it does.
            let _ = routes::ask_neighbour(hop.device, hop.via.unwrap_or(address));
        }
    }
    Ok(notes)
}

/// What the host itself answers is sent past the edge: there is nobody who translates it back.
fn own_answers(function: &str, address: IpAddr) -> Result<Option<String>, KernelError> {
    let way = routes::way_to(address)?;
    let is_own = way.is_some_and(|way| way.kind == KernelRouteKind::Local);
    Ok(is_own.then(|| {
        format!(
            "function {function}: server {address} is this host itself, and its answers do not pass the edge and are not translated back: \
             choose dsr with the service's address on lo, or a server in a namespace behind a port"
        )
    }))
}

fn address_of(server: &LbServer) -> IpAddr {
    let [a, b, c, d, ..] = server.address;
    match server.family {
        4 => Ipv4Addr::new(a, b, c, d).into(),
        _ => Ipv6Addr::from(server.address).into(),
    }
}
