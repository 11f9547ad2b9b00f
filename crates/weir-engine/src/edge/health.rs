//! Health of a balancer's servers: who was found not to answer, in a map that outlives replacements, and what follows from it in the tables that
//! packets are looked up in.
//!
//! A server that is down keeps the flows it has and gets no new ones. Its places of the ring go to the others in place, while packets flow: no
//! program is loaded, no other map touched. Rings depend on identities and weights alone, so one that comes back has its old places again.
//! Where all servers of a service are down and its policy is to keep, the last that were up go on getting flows; that they do is written down
//! with their health, for whoever makes the tables anew.
//! Invariant: a place holds a server of its service at any moment; one that gets no flows is marked last and unmarked first, so no flow finds
//! nobody while somebody is there.

use std::collections::{BTreeMap, BTreeSet};

use weir_bpf::abi::balancer::{self as abi, service, state};
use weir_bpf::abi::{LbServer, LbService};
use weir_functions::balancer;
use weir_functions::balancer::ring::{self, Member};
use weir_kernel::{KernelError, Map};
use zerocopy::{FromBytes, IntoBytes};

use super::error::EdgeError;
use super::folder::{folder_of, lock, not_running, read_state};
use super::maps::EdgeMaps;
use super::state::{InstanceState, State};

/// Servers of a balancer that do not answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Down {
    /// All of them, by [`balancer::Service::server_identity`].
    pub servers: BTreeSet<u64>,
    /// Those that get new flows all the same, because no other server of their service is up.
    pub kept: BTreeSet<u64>,
}

/// Says of servers of a running balancer, by [`balancer::Service::server_identity`], whether they are down; servers that are not there are passed
/// over. Returns who is down now.
///
/// # Errors
/// [`EdgeError::NotRunning`], [`EdgeError::NoBalancer`], [`EdgeError::Busy`], what the kernel refused.
pub fn set_down(name: &str, instance: &str, changes: &[(u64, bool)]) -> Result<Down, EdgeError> {
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
    let found = state
        .instance(instance)
        .filter(|i| i.object == balancer::OBJECT);
    let found = found.ok_or_else(|| EdgeError::NoBalancer {
        edge: name.to_owned(),
        instance: instance.to_owned(),
    })?;
    let mut tables = Tables::open(found)?;
    tables.set(changes)?;
    Ok(tables.down)
}

/// Says again in tables that were made anew what is known of servers. Returns those that are down, as sentences.
pub(super) fn settle(edge: &State) -> Result<Vec<String>, KernelError> {
    let mut notes = Vec::new();
    let all = edge.instances.iter();
    for instance in all.filter(|i| i.object == balancer::OBJECT) {
        let mut tables = Tables::open(instance)?;
        if tables.down.servers.is_empty() {
            continue;
        }
        tables.turn_those_with(&tables.down.servers.clone())?;
        let kept = match tables.down.kept.len() {
            0 => String::new(),
            n => format!(
                " ({n} of them do all the same: no other server of their service is up, and it has all_down = \"keep\")"
            ),
        };
        notes.push(format!(
            "function {}: {} of its servers failed their last health check and get no new flows{kept}; `weir service list` shows them, `weir service check` restores them",
            instance.name,
            tables.down.servers.len()
        ));
    }
    Ok(notes)
}

/// Servers that are down.
pub(super) fn down(servers: &[(u32, LbServer)], health: &Map) -> Result<Down, KernelError> {
    let mut down = Down::default();
    for (number, server) in servers {
        let said = health.lookup(&number.to_ne_bytes())?;
        let said = said.and_then(|bytes| u64::read_from_bytes(&bytes).ok());
        // What was said of a former owner of the number says nothing.
        let is_kept = said == Some(!server.identity);
        if (is_kept || said == Some(server.identity)) && server.state != state::GONE {
            down.servers.insert(server.identity);
            if is_kept {
                down.kept.insert(server.identity);
            }
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
    down: Down,
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
    fn set(&mut self, changes: &[(u64, bool)]) -> Result<(), KernelError> {
        let is_new = |(identity, is_down): &&(u64, bool)| {
            self.down.servers.contains(identity) != *is_down
                && self.all.iter().any(|(_, s)| s.identity == *identity)
        };
        let changes: Vec<(u64, bool)> = changes.iter().filter(is_new).copied().collect();
        for (identity, is_down) in &changes {
            match is_down {
                true => self.down.servers.insert(*identity),
                false => self.down.servers.remove(identity),
            };
            self.write_down(*identity)?;
        }
        self.turn_those_with(&changes.iter().map(|(identity, _)| *identity).collect())
    }

    /// What is known of a server, into the map that says so.
    fn write_down(&self, identity: u64) -> Result<(), KernelError> {
        let Some((number, _)) = self.all.iter().find(|(_, s)| s.identity == identity) else {
            return Ok(());
        };
        let is_down = self.down.servers.contains(&identity);
        let said = match (is_down, self.down.kept.contains(&identity)) {
            (false, _) => 0,
            (true, false) => identity,
            (true, true) => !identity,
        };
        self.health
            .update(&number.to_ne_bytes(), &said.to_ne_bytes())
    }

    /// Puts servers into their rings or takes them out, in the services that have any of these.
    fn turn_those_with(&mut self, servers: &BTreeSet<u64>) -> Result<(), KernelError> {
        let with = self
            .all
            .iter()
            .filter(|(_, s)| servers.contains(&s.identity));
        let touched: BTreeSet<u32> = with.map(|(_, s)| s.service).collect();
        touched
            .into_iter()
            .try_for_each(|service| self.turn(service))
    }

    /// Who gets new flows of a service: who is up. While nobody is, those that were the last, or nobody.
    fn active(&self, identity: u32, is_dropping: bool) -> BTreeSet<u64> {
        // Those without a weight get no flows by configuration.
        let members = || {
            let all = self.all.iter().map(|(_, server)| server);
            all.filter(|s| s.service == identity && s.weight != 0)
        };
        let those = |wanted: &dyn Fn(&LbServer) -> bool| -> BTreeSet<u64> {
            let found = members().filter(|server| wanted(server));
            found.map(|server| server.identity).collect()
        };
        let up = those(&|s| !self.down.servers.contains(&s.identity));
        if !up.is_empty() || is_dropping {
            return up;
        }
        let last = those(&|s| self.down.kept.contains(&s.identity));
        if !last.is_empty() {
            return last;
        }
        let last = those(&|s| s.state == state::UP);
        match last.is_empty() {
            true => those(&|_| true),
            false => last,
        }
    }

    /// Writes states and the ring of a service.
    fn turn(&mut self, identity: u32) -> Result<(), KernelError> {
        let Some(of) = self.services.get(&identity).copied() else {
            return Ok(());
        };
        let active = self.active(identity, of.flags & service::DROP != 0);
        let mut out = Vec::new();
        let mut noted = Vec::new();
        let mut is_other = false;
        for (number, server) in &mut self.all {
            if server.service != identity || server.weight == 0 {
                continue;
            }
            let gets_flows = active.contains(&server.identity);
            let is_kept = gets_flows && self.down.servers.contains(&server.identity);
            let changed = match is_kept {
                true => self.down.kept.insert(server.identity),
                false => self.down.kept.remove(&server.identity),
            };
            if changed {
                noted.push(server.identity);
            }
            let wanted = if gets_flows { state::UP } else { state::DRAIN };
            if server.state == wanted {
                continue;
            }
            server.state = wanted;
            is_other = true;
            match gets_flows {
                true => self
                    .servers
                    .update(&number.to_ne_bytes(), server.as_bytes())?,
                false => out.push((*number, *server)),
            }
        }
        // Where nobody is left it stays as it is, and new flows find that its servers take none.
        if is_other && !active.is_empty() {
            self.write_ring(&of, &active)?;
        }
        for (number, server) in out {
            self.servers
                .update(&number.to_ne_bytes(), server.as_bytes())?;
        }
        noted.into_iter().try_for_each(|one| self.write_down(one))
    }

    fn write_ring(&self, service: &LbService, active: &BTreeSet<u64>) -> Result<(), KernelError> {
        let here = self.all.iter().filter(|(_, s)| {
            s.service == service.identity && s.weight != 0 && active.contains(&s.identity)
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
