//! What routers and balancers carried, in short: a line for each next hop and interface, and for each service.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::Serialize;
use weir_bpf::abi::router::hop;
use weir_engine::edge::{InstanceStatus, Status};
use weir_functions::kind::EdgePort;
use weir_graph::Numbers;

use crate::error::RuntimeError;
use crate::graph::Record;

/// One thing that packets went to.
#[derive(Debug, Serialize)]
pub struct Carried {
    /// Name of the service, the next hop or the interface.
    pub to: String,
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Of services: flows that began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flows: Option<u64>,
    /// Of services: servers that take flows, and all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub servers: Option<[usize; 2]>,
    /// Of services: servers that failed their checks, if any did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub down: Option<usize>,
}

/// A server of a service that has a check.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CheckedServer {
    /// Name of the function.
    pub function: String,
    /// The service: protocol, address and port.
    pub service: String,
    /// Its address, with its port if it has its own.
    pub server: String,
}

/// Servers of services with checks, and whether each failed them. Of an edge that something else applied there are none.
///
/// # Errors
/// What the maps hold cannot be read.
pub fn checked_servers(status: &Status) -> Result<BTreeMap<CheckedServer, bool>, RuntimeError> {
    let mut all = BTreeMap::new();
    let Ok(record) = Record::read(&status.name, &status.text) else {
        return Ok(all);
    };
    let Ok(config) = record.config() else {
        return Ok(all);
    };
    let mut balancers = weir_graph::balancers(&config, &record, &[]);
    for instance in &status.instances {
        let Some(Ok(balancer)) = balancers.remove(&instance.name) else {
            continue;
        };
        let services = balancer.services.iter();
        let checked: Vec<_> = services.filter(|service| service.check.is_some()).collect();
        if checked.is_empty() {
            continue;
        }
        let counts = instance.balancer_counts().map_err(failed)?;
        let down = counts.unwrap_or_default().down;
        for service in checked {
            for server in &service.servers {
                let name = CheckedServer {
                    function: instance.name.clone(),
                    service: service.place(),
                    server: match server.port {
                        Some(port) => SocketAddr::new(server.address, port).to_string(),
                        None => server.address.to_string(),
                    },
                };
                all.insert(name, down.contains(&service.server_identity(server)));
            }
        }
    }
    Ok(all)
}

/// By name of the function. An edge that something else applied has no configuration to say what counters are of: nothing is told of it.
pub(super) fn read(status: &Status) -> Result<BTreeMap<String, Vec<Carried>>, RuntimeError> {
    let mut all = BTreeMap::new();
    let Ok(record) = Record::read(&status.name, &status.text) else {
        return Ok(all);
    };
    let Ok(config) = record.config() else {
        return Ok(all);
    };
    let ports: Vec<EdgePort> = status
        .ports
        .iter()
        .map(|port| EdgePort {
            number: port.number,
            name: port.name.clone(),
            device: port.device.clone(),
        })
        .collect();
    let numbers: Numbers = (ports.iter())
        .map(|port| (port.device.clone(), port.number))
        .collect();
    let mut balancers = weir_graph::balancers(&config, &record, &ports);
    for instance in &status.instances {
        if let Some(Ok(balancer)) = balancers.remove(&instance.name) {
            all.insert(instance.name.clone(), services(instance, &balancer)?);
        } else if let Some(interfaces) = weir_graph::interfaces(&config, &numbers, &instance.name) {
            let names: Vec<String> = interfaces.into_iter().map(|one| one.name).collect();
            all.insert(instance.name.clone(), hops(instance, &names)?);
        }
    }
    Ok(all)
}

fn services(
    instance: &InstanceStatus,
    balancer: &weir_functions::balancer::Balancer,
) -> Result<Vec<Carried>, RuntimeError> {
    let counts = instance.balancer_counts().map_err(failed)?;
    let counts = counts.unwrap_or_default();
    let of = |service: &weir_functions::balancer::Service| {
        let count = counts.services.get(&service.identity());
        let count = count.copied().unwrap_or_default();
        let takes = service.servers.iter().filter(|server| {
            let identity = service.server_identity(server);
            let is_out = counts.down.contains(&identity) && !counts.kept.contains(&identity);
            server.takes_flows() && !is_out
        });
        let down = service
            .servers
            .iter()
            .filter(|server| counts.down.contains(&service.server_identity(server)));
        Carried {
            to: format!("{} ({})", service.place(), service.name),
            packets: count.packets,
            bytes: count.bytes,
            flows: Some(count.flows),
            servers: Some([takes.count(), service.servers.len()]),
            down: Some(down.count()).filter(|n| *n > 0),
        }
    };
    Ok(balancer.services.iter().map(of).collect())
}

/// Next hops that were taken, and interfaces.
fn hops(instance: &InstanceStatus, names: &[String]) -> Result<Vec<Carried>, RuntimeError> {
    let counts = instance.router_counts().map_err(failed)?;
    let counts = counts.unwrap_or_default();
    let name = |number: usize| names.get(number).map_or("?", String::as_str);
    let line = |to: String, (packets, bytes): (u64, u64)| Carried {
        to,
        packets,
        bytes,
        flows: None,
        servers: None,
        down: None,
    };
    let taken = counts.hops.iter().filter(|one| one.counted.0 > 0);
    let hops = taken.map(|one| {
        let dev = name(one.interface.into());
        let to = match (one.kind, one.via) {
            (_, Some(via)) => format!("via {via} dev {dev}"),
            (hop::LINK, _) => format!("dev {dev}"),
            (kind, _) => hop_kind(kind).to_owned(),
        };
        line(to, one.counted)
    });
    let mut all: Vec<Carried> = hops.collect();
    let sent = counts.sent.iter().take(names.len()).enumerate();
    all.extend(sent.map(|(number, sent)| line(format!("sent by {}", name(number)), *sent)));
    Ok(all)
}

/// The word for a kind of next hop.
#[must_use]
pub fn hop_kind(kind: u8) -> &'static str {
    match kind {
        hop::GATEWAY => "gateway",
        hop::LINK => "link",
        hop::LOCAL => "local",
        hop::BLACKHOLE => "blackhole",
        hop::UNREACHABLE => "unreachable",
        hop::PROHIBIT => "prohibit",
        _ => "none",
    }
}

fn failed(error: impl std::fmt::Display) -> RuntimeError {
    RuntimeError::Failed(error.to_string())
}
