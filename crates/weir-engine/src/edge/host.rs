//! What this host must do for an edge beside it: balancers and policies hand packets to its stack, which forwards them only if it may and if it
//! believes their source; filters answer SYNs for its sockets; and servers have the link-layer addresses that a configuration says, or nobody takes their packets.
//!
//! Notes name what is lost and the command, or the key, that changes it. One thing is changed here: where policies give packets an address of this host
//! as source, the stack is told to take them, until no function does so any more.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::thread;
use std::time::Duration;

use weir_bpf::abi::balancer::{deliver, mode, state};
use weir_bpf::abi::{LbKey, LbPrefix, LbServer, LbService};
use weir_functions::balancer;
use weir_graph::EdgePlan;
use weir_kernel::{KernelError, Map, iface, own_source, routes, stack};
use zerocopy::FromBytes;

use super::health;
use super::state::{InstanceState, State};
use crate::translated::{Entrance, dropped_by_stack, take_own_sources};

/// How long a server that the kernel does not know may take to say where it is.
const ASKING: Duration = Duration::from_millis(200);

/// By which records of own sources are found.
pub(super) fn owner(edge: &str) -> String {
    format!("edge-{edge}")
}

/// Tells the stack what policies make of sources, and takes back what none does any more. Returns what is new, or why it cannot be told.
pub(super) fn settle(
    name: &str,
    edge: &State,
    plan: &EdgePlan,
) -> Result<Vec<String>, KernelError> {
    let owner = owner(name);
    let entrances = entrances(edge);
    let before = own_source::held_by(&owner)?;
    let (mut held, mut notes) = (BTreeSet::new(), Vec::new());
    for instance in &plan.instances {
        if !plan.leads_to_stack(&instance.name) {
            continue;
        }
        match take_own_sources(&instance.planned.translations, &entrances, &owner) {
            Ok(found) => {
                for (one, sentence) in found {
                    if held.insert(one.ifindex()) && !before.contains(&one.ifindex()) {
                        notes.push(format!("function {}: {sentence}", instance.name));
                    }
                    // No process stays: the record keeps it.
                    one.leave();
                }
            }
            Err(e) => notes.push(format!(
                "function {}: the stack drops packets that get an address of this host as source: {e}",
                instance.name
            )),
        }
    }
    let idle: Vec<u32> = before
        .into_iter()
        .filter(|one| !held.contains(one))
        .collect();
    own_source::release_all(&owner, Some(&idle))?;
    Ok(notes)
}

fn entrances(edge: &State) -> Vec<Entrance<'_>> {
    let ports = edge.ports.iter();
    ports
        .map(|port| Entrance {
            names: [&port.name, &port.device],
            device: &port.device,
            ifindex: port.ifindex,
        })
        .collect()
}

/// What a user should know of the host, a line each.
pub(super) fn notes(edge: &State, plan: &EdgePlan) -> Result<Vec<String>, KernelError> {
    let mut notes = Vec::new();
    let entrances = entrances(edge);
    for instance in &plan.instances {
        if plan.leads_to_stack(&instance.name) {
            let found = dropped_by_stack(&instance.planned.translations, &entrances)?;
            let of = |note| format!("function {}: {note}", instance.name);
            notes.extend(found.into_iter().map(of));
        }
        if instance.planned.asks.syn_cookies && stack::always_sends_cookies() == Some(false) {
            notes.push(format!(
                "function {}: this host's sockets refuse connections that begin with a cookie of the filter: `sysctl net.ipv4.tcp_syncookies=2`",
                instance.name
            ));
        }
    }
    let instances = edge.instances.iter();
    for instance in instances.filter(|i| i.object == balancer::OBJECT) {
        let Some(map) = instance.maps.get("servers") else {
            continue;
        };
        let all = health::servers(&Map::by_id(map.id, "servers")?)?;
        let is_used = |server: &LbServer| matches!(server.state, state::UP | state::DRAIN);
        let servers: Vec<LbServer> = all.into_iter().map(|(_, s)| s).filter(is_used).collect();
        let of = format!("function {}", instance.name);
        let to_stack = plan.leads_to_stack(&instance.name);
        notes.extend(forwarding(edge, to_stack, &of, &servers));
        notes.extend(sources(edge, instance, to_stack, &of, &servers)?);
        notes.extend(stations(edge, &of, &servers)?);
    }
    Ok(notes)
}

/// Servers without `mac` are found by the kernel's tables, and answers are sent on by the stack.
fn forwarding(edge: &State, to_stack: bool, of: &str, servers: &[LbServer]) -> Vec<String> {
    let asks_kernel = |s: &LbServer| s.deliver & (deliver::MAC | deliver::CPU) == 0;
    let is_here = |s: &LbServer| s.deliver & deliver::CPU != 0 && s.mode == mode::DSR;
    let needs = |s: &&LbServer| asks_kernel(s) || (to_stack && !is_here(s));
    let mut notes = Vec::new();
    for (family, is_ipv6, cure) in [
        (4, false, "net.ipv4.ip_forward=1"),
        (6, true, "net.ipv6.conf.all.forwarding=1"),
    ] {
        if !servers.iter().filter(needs).any(|s| s.family == family) {
            continue;
        }
        let off = edge.ports.iter().map(|port| port.device.as_str());
        let off: Vec<&str> = off
            .filter(|device| stack::forwards(device, is_ipv6) == Some(false))
            .collect();
        if !off.is_empty() {
            notes.push(format!(
                "{of}: this host does not forward IPv{family} that comes in by {}: packets to servers without `mac`, and answers of servers \
                 that come back by this host, are lost in its stack: `sysctl {cure}`",
                off.join(", ")
            ));
        }
    }
    notes
}

/// Answers of servers come to the stack with the service's address as their source.
fn sources(
    edge: &State,
    instance: &InstanceState,
    to_stack: bool,
    of: &str,
    servers: &[LbServer],
) -> Result<Vec<String>, KernelError> {
    if !to_stack {
        return Ok(Vec::new());
    }
    let services = addresses(instance)?;
    let mut asked = BTreeSet::new();
    let mut notes = Vec::new();
    for server in servers {
        let Some(device) = behind(edge, server)? else {
            continue;
        };
        for &service in services.get(&server.service).into_iter().flatten() {
            if !asked.insert((device.clone(), service)) {
                continue;
            }
            if let Some(why) = stack::disbelieves(&device, service)? {
                notes.push(format!(
                    "{of}: the stack drops answers from {service} that come in by {device}: {why}"
                ));
            }
        }
    }
    Ok(notes)
}

/// Addresses of services by the number that their servers have; of prefixes the first.
fn addresses(instance: &InstanceState) -> Result<BTreeMap<u32, Vec<IpAddr>>, KernelError> {
    let mut found: BTreeMap<u32, Vec<IpAddr>> = BTreeMap::new();
    for (name, read) in [
        ("services", exact as fn(&[u8]) -> Option<IpAddr>),
        ("service_prefixes", first),
    ] {
        let Some(map) = instance.maps.get(name) else {
            continue;
        };
        let map = Map::by_id(map.id, name)?;
        for key in map.keys()? {
            let value = map.lookup(&key)?;
            let service = value.and_then(|bytes| LbService::read_from_bytes(&bytes).ok());
            if let (Some(service), Some(address)) = (service, read(&key)) {
                found.entry(service.identity).or_default().push(address);
            }
        }
    }
    Ok(found)
}

fn exact(key: &[u8]) -> Option<IpAddr> {
    let key = LbKey::read_from_bytes(key).ok()?;
    Some(match key.family {
        4 => Ipv4Addr::from(key.low as u32).into(),
        _ => Ipv6Addr::from(u128::from(key.high) << 64 | u128::from(key.low)).into(),
    })
}

fn first(key: &[u8]) -> Option<IpAddr> {
    let key = LbPrefix::read_from_bytes(key).ok()?;
    Some(address_of(key.family, key.address))
}

fn address_of(family: u8, bytes: [u8; 16]) -> IpAddr {
    let [a, b, c, d, ..] = bytes;
    match family {
        4 => Ipv4Addr::new(a, b, c, d).into(),
        _ => Ipv6Addr::from(bytes).into(),
    }
}

/// The port's device that a server's answers come in by, as far as that is known.
fn behind(edge: &State, server: &LbServer) -> Result<Option<String>, KernelError> {
    let port = if server.deliver & deliver::CPU != 0 {
        None
    } else if server.deliver & deliver::MAC != 0 {
        let number = u32::from(server.to);
        edge.ports.iter().find(|port| port.number == number)
    } else {
        let way = routes::way_to(address_of(server.family, server.address))?;
        let hop = way.and_then(|way| way.hops.into_iter().next());
        edge.ports
            .iter()
            .find(|port| hop.as_ref().is_some_and(|hop| hop.device == port.ifindex))
    };
    Ok(port.map(|port| port.device.clone()))
}

/// Servers on a network of this host whose link-layer address is another than the one that the configuration gives them.
fn stations(edge: &State, of: &str, servers: &[LbServer]) -> Result<Vec<String>, KernelError> {
    let mut notes = Vec::new();
    for server in servers.iter().filter(|s| s.deliver & deliver::MAC != 0) {
        let address = address_of(server.family, server.address);
        let Some(device) = behind(edge, server)?.and_then(|name| iface::find_index(&name)) else {
            continue;
        };
        let way = routes::way_to(address)?;
        let hop = way.and_then(|way| way.hops.into_iter().next());
        if !hop.is_some_and(|hop| hop.device == device && hop.via.is_none()) {
            // `mac` is then that of a gateway.
            continue;
        }
        let said = text(server.mac);
        if let Some(found) = neighbour(device, address)?
            && found != server.mac
        {
            let found = text(found);
            notes.push(format!(
                "{of}: server {address} has MAC address {found}, and does not take packets to {said}: write `mac = \"{found}\"`"
            ));
        }
    }
    Ok(notes)
}

fn text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// The link-layer address that a neighbour says it has; `None`: it says nothing in time.
fn neighbour(device: u32, address: IpAddr) -> Result<Option<[u8; 6]>, KernelError> {
    let known = || -> Result<Option<[u8; 6]>, KernelError> {
        let all = routes::neighbours()?;
        let found = all
            .iter()
            .find(|n| n.device == device && n.address == address);
        Ok(found.map(|n| n.link))
    };
    if let Some(found) = known()? {
        return Ok(Some(found));
    }
    routes::ask_neighbour(device, address)?;
    let step = Duration::from_millis(5);
    for _ in 0..ASKING.as_millis() / step.as_millis() {
        thread::sleep(step);
        if let Some(found) = known()? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}
