//! Health of a balancer's servers: who was found not to answer, in a map that outlives replacements, and what follows from it in the tables that
//! packets are looked up in.
//!
//! A server that is down keeps the flows it has and gets no new ones. Its places of the ring go to the others in place, while packets flow: no
//! program is loaded, no other map touched. Rings depend on identities and weights alone, so one that comes back has its old places again.
//! Invariant: a place holds a server of its service at any moment; one that is down is marked last and unmarked first, so no flow finds
//! nobody while somebody is there.

use std::collections::{BTreeMap, BTreeSet};

use weir_bpf::abi::balancer::{self as abi, state};
use weir_bpf::abi::{LbServer, LbService};
use weir_functions::balancer;
use weir_functions::balancer::ring::{self, Member};
use weir_kernel::{KernelError, Map};
use zerocopy::{FromBytes, IntoBytes};

use super::error::EdgeError;
use super::maps::EdgeMaps;
use super::state::{InstanceState, State};
use super::{apply, folder_of, lock, not_running, read_state};

/// Says of servers of a running balancer, by [`balancer::Service::server_identity`], whether they are down. Returns how many it changed; servers
/// that are not there are passed over.
///
/// # Errors
/// [`EdgeError::NotRunning`], [`EdgeError::NoBalancer`], [`EdgeError::Busy`], what the kernel refused.
pub fn set_down(name: &str, instance: &str, changes: &[(u64, bool)]) -> Result<usize, EdgeError> {
    let path = folder_of(name)?;
    if !path.exists() {
        return Err(not_running(name)?);
    }
    // Who applies makes the same tables anew.
    let _folder = lock(name, &path)?;
    let maps = EdgeMaps::open(&path)?;
    let state = match &maps {
        Some(maps) => read_state(name, &path, maps)?,
        None => None,
    };
    let Some(state) = state else {
        return Err(not_running(name)?);
    };
    let found = apply::find_instance(&state, instance).filter(|i| i.object == balancer::OBJECT);
    let found = found.ok_or_else(|| EdgeError::NoBalancer {
        edge: name.to_owned(),
        instance: instance.to_owned(),
    })?;
    let mut tables = Tables::open(found)?;
    Ok(tables.set(changes)?)
}

/// Says again in tables that were made anew what is known of servers. Returns those that are down, as sentences.
pub(super) fn settle(edge: &State) -> Result<Vec<String>, KernelError> {
    let mut notes = Vec::new();
    let all = edge.instances.iter();
    for instance in all.filter(|i| i.object == balancer::OBJECT) {
        let mut tables = Tables::open(instance)?;
        if tables.down.is_empty() {
            continue;
        }
        let down: Vec<(u64, bool)> = tables.down.iter().map(|id| (*id, true)).collect();
        tables.mark(&down)?;
        notes.push(format!(
            "function {}: {} of its servers did not answer when they were last asked, and get no new flows; `weir service list` shows them, `weir service check` takes them in again",
            instance.name,
            down.len()
        ));
    }
    Ok(notes)
}

/// Identities of the servers that are down.
pub(super) fn down(
    servers: &[(u32, LbServer)],
    health: &Map,
) -> Result<BTreeSet<u64>, KernelError> {
    let mut down = BTreeSet::new();
    for (number, server) in servers {
        let said = health.lookup(&number.to_ne_bytes())?;
        let said = said.and_then(|bytes| u64::read_from_bytes(&bytes).ok());
        // What was said of a former owner of the number says nothing.
        if said == Some(server.identity) && server.state != state::GONE {
            down.insert(server.identity);
        }
    }
    Ok(down)
}

/// Servers by number; numbers are given from 0 on, so behind the first that is nobody's there are none.
pub(super) fn servers(map: &Map) -> Result<Vec<(u32, LbServer)>, KernelError> {
    let mut all = Vec::new();
    for number in 0..map.definition().entries {
        let value = map.lookup(&number.to_ne_bytes())?;
        match value.and_then(|bytes| LbServer::read_from_bytes(&bytes).ok()) {
            Some(server) if server.identity != 0 => all.push((number, server)),
            _ => break,
        }
    }
    Ok(all)
}

/// The tables of a running balancer.
struct Tables {
    servers: Map,
    health: Map,
    ring: Map,
    services: BTreeMap<u32, LbService>,
    all: Vec<(u32, LbServer)>,
    down: BTreeSet<u64>,
}

impl Tables {
    fn open(instance: &InstanceState) -> Result<Tables, KernelError> {
        let open = |name: &str| {
            let missing = || KernelError::MissingMap {
                map: name.to_owned(),
                near: Vec::new(),
            };
            let map = instance.maps.get(name).ok_or_else(missing)?;
            Map::by_id(map.id, name)
        };
        let (map, health) = (open("servers")?, open("health")?);
        let all = servers(&map)?;
        let down = down(&all, &health)?;
        let mut services = BTreeMap::new();
        for name in ["services", "service_prefixes"] {
            let map = open(name)?;
            for key in map.keys()? {
                let value = map.lookup(&key)?;
                let service = value.and_then(|bytes| LbService::read_from_bytes(&bytes).ok());
                if let Some(service) = service.filter(|s| s.number != abi::ECHO) {
                    services.insert(service.identity, service);
                }
            }
        }
        Ok(Tables {
            servers: map,
            health,
            ring: open("ring")?,
            services,
            all,
            down,
        })
    }

    /// Writes down what is new, and acts on it.
    fn set(&mut self, changes: &[(u64, bool)]) -> Result<usize, KernelError> {
        let is_new = |(identity, is_down): &&(u64, bool)| {
            self.down.contains(identity) != *is_down
                && self.all.iter().any(|(_, s)| s.identity == *identity)
        };
        let changes: Vec<(u64, bool)> = changes.iter().filter(is_new).copied().collect();
        for (identity, is_down) in &changes {
            let of = self.all.iter().find(|(_, s)| s.identity == *identity);
            if let Some((number, _)) = of {
                let said = if *is_down { *identity } else { 0 };
                self.health
                    .update(&number.to_ne_bytes(), &said.to_ne_bytes())?;
            }
            match is_down {
                true => self.down.insert(*identity),
                false => self.down.remove(identity),
            };
        }
        self.mark(&changes)?;
        Ok(changes.len())
    }

    /// Puts servers into their rings or takes them out.
    fn mark(&mut self, changes: &[(u64, bool)]) -> Result<(), KernelError> {
        let mut touched = BTreeSet::new();
        let mut out = Vec::new();
        for (identity, is_down) in changes {
            let of = self.all.iter_mut().find(|(_, s)| s.identity == *identity);
            // Of one that gets no flows by configuration, nothing is to be done.
            let Some((number, server)) = of.filter(|(_, server)| server.weight != 0) else {
                continue;
            };
            let wanted = if *is_down { state::DRAIN } else { state::UP };
            if server.state == wanted {
                continue;
            }
            server.state = wanted;
            touched.insert(server.service);
            match is_down {
                true => out.push((*number, *server)),
                false => self
                    .servers
                    .update(&number.to_ne_bytes(), server.as_bytes())?,
            }
        }
        for service in touched {
            self.turn(service)?;
        }
        for (number, server) in out {
            self.servers
                .update(&number.to_ne_bytes(), server.as_bytes())?;
        }
        Ok(())
    }

    /// Writes the ring of a service. Where nobody is left it stays as it is, and new flows find that its servers take none.
    fn turn(&self, identity: u32) -> Result<(), KernelError> {
        let Some(service) = self.services.get(&identity) else {
            return Ok(());
        };
        let here = self.all.iter().filter(|(_, s)| {
            s.service == identity && s.weight != 0 && !self.down.contains(&s.identity)
        });
        let members: Vec<Member> = here
            .map(|(number, server)| Member {
                identity: server.identity,
                weight: server.weight.into(),
                number: *number as u16,
            })
            .collect();
        let places = ring::build(&members, service.ring_size);
        let mut at = service.ring_first as usize;
        let mut left = &places[..];
        while !left.is_empty() {
            let (element, offset) = ((at / abi::CHUNK) as u32, at % abi::CHUNK);
            let (now, later) = left.split_at(left.len().min(abi::CHUNK - offset));
            let mut chunk = self
                .ring
                .lookup(&element.to_ne_bytes())?
                .unwrap_or_default();
            let Some(part) = chunk.get_mut(offset * 2..(offset + now.len()) * 2) else {
                break;
            };
            part.copy_from_slice(now.as_bytes());
            self.ring.update(&element.to_ne_bytes(), &chunk)?;
            at += now.len();
            left = later;
        }
        Ok(())
    }
}
