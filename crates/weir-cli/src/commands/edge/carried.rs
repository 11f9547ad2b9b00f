//! What routers and balancers carried, in short, for `weir status`: a line for each next hop and interface, and for each service. `weir route` and
//! `weir service` tell the rest.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use weir_bpf::abi::router::hop;
use weir_engine::edge::{InstanceStatus, Status};
use weir_functions::kind::EdgePort;
use weir_graph::Numbers;

use crate::failure::Failure;
use weir_runtime::graph::Record;

/// Lines of a function that are shown as text; the JSON has all.
const LINES: usize = 20;

/// One thing that packets went to.
#[derive(Serialize)]
pub(super) struct Carried {
    to: String,
    packets: u64,
    bytes: u64,
    /// Of services: flows that began.
    #[serde(skip_serializing_if = "Option::is_none")]
    flows: Option<u64>,
    /// Of services: servers that take flows, and all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    servers: Option<[usize; 2]>,
    /// Of services: servers that failed their checks, if any did.
    #[serde(skip_serializing_if = "Option::is_none")]
    down: Option<usize>,
}

/// By name of the function. An edge that something else applied has no configuration to say what counters are of: nothing is told of it.
pub(super) fn read(status: &Status) -> Result<BTreeMap<String, Vec<Carried>>, Failure> {
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
) -> Result<Vec<Carried>, Failure> {
    let counts = instance.balancer_counts().map_err(Failure::failed)?;
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
fn hops(instance: &InstanceStatus, names: &[String]) -> Result<Vec<Carried>, Failure> {
    let counts = instance.router_counts().map_err(Failure::failed)?;
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
            (kind, _) => super::super::route::kind(kind).to_owned(),
        };
        line(to, one.counted)
    });
    let mut all: Vec<Carried> = hops.collect();
    let sent = counts.sent.iter().take(names.len()).enumerate();
    all.extend(sent.map(|(number, sent)| line(format!("sent by {}", name(number)), *sent)));
    Ok(all)
}

/// The lines for people: those with most packets first.
pub(super) fn tell(text: &mut String, carried: &[Carried]) {
    let mut sorted: Vec<&Carried> = carried.iter().collect();
    sorted.sort_by_key(|one| std::cmp::Reverse(one.packets));
    for one in sorted.iter().take(LINES) {
        let _ = write!(
            text,
            "  {}: {} packets, {} bytes",
            one.to, one.packets, one.bytes
        );
        if let Some(flows) = one.flows {
            let _ = write!(text, ", {flows} flows");
        }
        if let Some([takes, all]) = one.servers {
            let _ = write!(text, ", {takes} of {all} servers take new ones");
        }
        if let Some(down) = one.down {
            let _ = write!(text, ", {down} are down");
        }
        text.push('\n');
    }
    if sorted.len() > LINES {
        let _ = writeln!(text, "  and {} more (--json has all)", sorted.len() - LINES);
    }
}
