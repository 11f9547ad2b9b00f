//! The tables of bpf/functions/balancer.c from the model of a balancer, and from what runs: numbers of servers and services.

use std::mem::offset_of;

use weir_bpf::abi::balancer::{self as abi, deliver, feature, flow, service, state};
use weir_bpf::abi::{
    LbBack, LbBucket, LbCount, LbKey, LbPrefix, LbServer, LbService, Near, PortAt,
};
use weir_value::Prefix;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::numbers::{Former, assign};
use super::ring::{self, Member};
use super::{
    AllDown, Answers, Balancer, Mode, OBJECT, SERVICES_MAX, Server, Service, bytes, number,
};
use crate::plan::{Constant, DeviceField, HostElement, MapPlan};
use crate::request::{EdgePort, FunctionError, Planned};

/// Buckets of remembered fragments: 8,192 datagrams at a time.
const FRAGMENT_BUCKETS: u32 = 1024;
/// How long a datagram's fragments are remembered.
const FRAGMENT_NS: u64 = 30_000_000_000;
/// Packets that wait for a CPU at most.
const QUEUE: u64 = 2048;

/// `kept`: contents of a map of the instance that runs under the same name.
pub(super) fn plan(
    balancer: &Balancer,
    ports: &[EdgePort],
    kept: &dyn Fn(&str) -> Option<Vec<u8>>,
) -> Result<Planned, FunctionError> {
    let numbered = Numbered::new(balancer, kept)?;
    let mut planned = Planned::embedded(OBJECT);
    planned.asks.secret = Some("weir_lb_secret");
    planned.asks.finished_checksums = true;
    planned.asks.least_mtu = least_mtu(balancer);
    planned.notes = notes(balancer);
    let all = || balancer.services.iter().flat_map(|s| &s.servers);
    planned.ports = all().filter_map(|server| server.to).collect();
    planned.ports.sort_unstable();
    planned.ports.dedup();
    let buckets = balancer
        .connections
        .div_ceil(abi::WAYS as u64)
        .next_power_of_two() as u32;
    planned.instance.constants = constants(balancer, buckets);
    planned.instance.maps = vec![
        MapPlan::empty("flows", buckets as usize, size_of::<LbBucket>()),
        MapPlan::empty(
            "fragments",
            FRAGMENT_BUCKETS as usize,
            size_of::<LbBucket>(),
        ),
        MapPlan::empty("service_counts", SERVICES_MAX, size_of::<LbCount>()),
        MapPlan::empty(
            "server_counts",
            balancer.servers as usize,
            size_of::<LbCount>(),
        ),
        MapPlan::empty("nears", balancer.servers as usize, size_of::<Near>()),
        MapPlan::empty("health", balancer.servers as usize, size_of::<u64>()),
        MapPlan::array("service_names", &numbered.service_names),
    ];
    planned.instance.maps.push(by_index(ports));
    planned
        .instance
        .maps
        .extend(numbered.tables(balancer, ports));
    Ok(planned)
}

fn constants(balancer: &Balancer, buckets: u32) -> Vec<Constant> {
    let word = |name: &'static str, value: u32| -> Constant {
        (name.into(), value.to_ne_bytes().to_vec())
    };
    let has = |what: &dyn Fn(&Service) -> bool, bit: u32| match balancer.services.iter().any(what) {
        true => bit,
        false => 0,
    };
    let features = has(&|s| s.mode.is_tunnel(), feature::ENCAP)
        | has(&|s| s.mode == Mode::Nat, feature::NAT)
        | has(&|s| !s.address.is_one(), feature::PREFIX)
        | has(&|s| s.port.is_none(), feature::ANY_PORT)
        | has(&|s| s.quic.is_some(), feature::QUIC)
        | has(&|s| s.servers.iter().any(|x| x.cpu.is_some()), feature::CPU)
        | match balancer.answers {
            Answers::Known => 0,
            Answers::All => feature::UNKNOWN,
        };
    let units = |ns: u64| ns.div_ceil(1 << abi::TIME).max(1) as u32;
    let mut idle = [0u32; abi::STATES];
    let [new, tcp, udp, closing] = balancer.idle_ns.map(units);
    (idle[flow::NEW], idle[flow::TCP]) = (new, tcp);
    (idle[flow::UDP], idle[flow::CLOSING]) = (udp, closing);
    (idle[flow::TOWARDS], idle[flow::FROM]) = (units(FRAGMENT_NS), units(FRAGMENT_NS));
    let hosts = |prefix: Option<Prefix>| {
        prefix.map_or(0, |p| {
            u32::MAX
                .checked_shr(32u32.saturating_sub(u32::from(p.width() - p.len)))
                .unwrap_or(0)
        })
    };
    let first = |prefix: Option<Prefix>| prefix.map_or(0, |p| p.first);
    let source6 = first(balancer.source6);
    let halves = [(source6 >> 64) as u64, source6 as u64];
    vec![
        word("weir_lb_features", features),
        word("weir_lb_flow_mask", buckets - 1),
        word("weir_lb_fragment_mask", FRAGMENT_BUCKETS - 1),
        ("weir_lb_idle".into(), idle.as_bytes().to_vec()),
        word("weir_lb_source4", first(balancer.source4) as u32),
        word("weir_lb_hosts4", hosts(balancer.source4)),
        ("weir_lb_source6".into(), halves.as_bytes().to_vec()),
        word("weir_lb_hosts6", hosts(balancer.source6)),
    ]
}

/// What carries the smallest packet that must not be fragmented on its way (IPv4: 576 bytes, IPv6: 1,280) in the largest of the tunnels.
fn least_mtu(balancer: &Balancer) -> u32 {
    let tunnels = balancer.services.iter().filter(|s| s.mode.is_tunnel());
    let needs = tunnels.flat_map(|service| {
        let inner = if !service.address.is_ip6 { 576 } else { 1280 };
        let gue = match service.mode {
            Mode::Gue { version: 1, .. } => 8,
            Mode::Gue { .. } => 12,
            _ => 0,
        };
        let outer = |s: &Server| if s.address.is_ipv4() { 20 } else { 40 };
        service.servers.iter().map(move |s| inner + gue + outer(s))
    });
    needs.max().unwrap_or(0)
}

fn notes(balancer: &Balancer) -> Vec<String> {
    let mut notes = Vec::new();
    for service in &balancer.services {
        let covered = balancer.services.iter().filter(|other| {
            (other.address, other.port) != (service.address, service.port)
                && other.protocol == service.protocol
                && service.address.covers(&other.address)
                && (service.port == other.port || service.port.is_none())
        });
        for other in covered {
            notes.push(format!(
                "service `{}` ({}) covers `{}` ({}), which goes first: the most specific address wins, then a port",
                service.name,
                service.place(),
                other.name,
                other.place()
            ));
        }
        if service.servers.is_empty() {
            notes.push(format!(
                "service `{}` has no server yet: its flows are dropped (no_server)",
                service.name
            ));
        } else if !service.servers.iter().any(Server::takes_flows) {
            notes.push(format!(
                "all servers of service `{}` drain: new flows are dropped (no_server)",
                service.name
            ));
        }
    }
    notes
}

/// Servers and services with their numbers.
struct Numbered {
    /// By number.
    servers: Vec<LbServer>,
    service_names: Vec<u64>,
    /// Numbers, as the model has its services and their servers.
    of_services: Vec<u32>,
    of_servers: Vec<Vec<usize>>,
}

impl Numbered {
    fn new(
        balancer: &Balancer,
        kept: &dyn Fn(&str) -> Option<Vec<u8>>,
    ) -> Result<Numbered, FunctionError> {
        let before: Vec<LbServer> = elements(kept("servers"));
        let former: Vec<Former> = before
            .iter()
            .map(|server| Former {
                identity: server.identity,
                gone_at: match server.state {
                    state::GONE => server.gone_at,
                    _ => 0,
                },
            })
            .collect();
        let wanted: Vec<u64> = balancer
            .services
            .iter()
            .flat_map(|s| s.servers.iter().map(|server| s.server_identity(server)))
            .collect();
        // What was read says that they fit.
        let numbers = assign(&former, &wanted, balancer.servers as usize)
            .ok_or_else(|| FunctionError::key("servers", "no number is left for a server"))?;
        let identities: Vec<u64> = balancer.services.iter().map(Service::identity).collect();
        let names: Vec<u64> = elements(kept("service_names"));
        let in_use = |identity: &u64| Former {
            identity: *identity,
            gone_at: 0,
        };
        let former_services: Vec<Former> = names.iter().map(in_use).collect();
        let of_services = assign(&former_services, &identities, SERVICES_MAX)
            .ok_or_else(|| FunctionError::key("service", "no number is left for a service"))?;
        let mut service_names = names;
        service_names.resize(SERVICES_MAX, 0);
        for (number, identity) in of_services.iter().zip(&identities) {
            service_names[*number] = *identity;
        }
        let highest = numbers.iter().max().map_or(0, |n| n + 1);
        let mut servers = before;
        servers.truncate(balancer.servers as usize);
        while servers.last().is_some_and(|server| server.identity == 0) {
            servers.pop();
        }
        servers.resize(servers.len().max(highest), LbServer::default());
        let last_gone = former.iter().map(|f| f.gone_at).max().unwrap_or(0);
        for server in &mut servers {
            if server.identity != 0 && server.state != state::GONE {
                server.gone_at = last_gone + 1;
            }
            if server.identity != 0 {
                // Nobody takes it for one of its service.
                *server = LbServer {
                    identity: server.identity,
                    state: state::GONE,
                    gone_at: server.gone_at,
                    ..LbServer::default()
                };
            }
        }
        let mut left = numbers.into_iter();
        let mut of_servers = Vec::new();
        for (service, number) in balancer.services.iter().zip(&of_services) {
            let numbers: Vec<usize> = left.by_ref().take(service.servers.len()).collect();
            for (server, at) in service.servers.iter().zip(&numbers) {
                servers[*at] = element(service, server, *number as u32);
            }
            of_servers.push(numbers);
        }
        Ok(Numbered {
            servers,
            service_names,
            of_services: of_services.into_iter().map(|n| n as u32).collect(),
            of_servers,
        })
    }

    /// Servers behind a port have its device's address as their source.
    fn servers(&self, balancer: &Balancer, ports: &[EdgePort]) -> MapPlan {
        let mut map = MapPlan::empty("servers", balancer.servers as usize, size_of::<LbServer>());
        for (number, server) in (0u32..).zip(&self.servers) {
            let key = number.to_ne_bytes();
            let behind = ports
                .iter()
                .find(|port| server.to != 0 && port.number == u32::from(server.to));
            match behind {
                Some(port) => map.host.push(HostElement {
                    device: port.device.clone(),
                    port: port.number,
                    key: Some(key.to_vec()),
                    value: server.as_bytes().to_vec(),
                    below: 0,
                    fields: vec![(offset_of!(LbServer, from), DeviceField::Mac)],
                }),
                None => {
                    map.keys.extend(key);
                    map.values.extend(server.as_bytes());
                }
            }
        }
        map
    }

    /// What packets are looked up in.
    fn tables(&self, balancer: &Balancer, ports: &[EdgePort]) -> Vec<MapPlan> {
        let mut exact: Vec<(LbKey, LbService)> = Vec::new();
        let mut prefixes: Vec<(LbPrefix, LbService)> = Vec::new();
        let mut backs: Vec<(LbKey, LbBack)> = Vec::new();
        let mut ids: Vec<(u64, u32)> = Vec::new();
        let mut places: Vec<u16> = Vec::new();
        for (at, it) in balancer.services.iter().enumerate() {
            let numbers = &self.of_servers[at];
            let members: Vec<Member> = it
                .servers
                .iter()
                .zip(numbers)
                .filter(|(server, _)| server.takes_flows())
                .map(|(server, number)| Member {
                    identity: it.server_identity(server),
                    weight: server.weight,
                    number: *number as u16,
                })
                .collect();
            let ring = ring::build(&members, balancer.ring);
            let element = LbService {
                number: self.of_services[at],
                identity: it.identity() as u32,
                ring_first: places.len() as u32,
                ring_size: ring.len() as u32,
                mode: it.mode.number(),
                flags: it.quic.map_or(0, |_| service::QUIC)
                    | match it.all_down {
                        AllDown::Keep => 0,
                        AllDown::Drop => service::DROP,
                    },
                id_bytes: it.quic.map_or(0, |q| q.bytes),
                pad: 0,
            };
            places.extend(ring);
            let echo = LbService {
                number: abi::ECHO,
                ..LbService::default()
            };
            let icmp = if it.address.is_ip6 { 58 } else { 1 };
            let protocol = it.protocol.number();
            let port = it.port.unwrap_or(0);
            for (protocol, port, element) in [(protocol, port, element), (icmp, 0, echo)] {
                if it.address.is_one() {
                    put(
                        &mut exact,
                        key(it.address.address(), protocol, port),
                        element,
                    );
                } else {
                    put(&mut prefixes, trie_key(it.address, protocol, port), element);
                }
            }
            for (server, number) in it.servers.iter().zip(numbers) {
                if it.mode == Mode::Nat {
                    let from = server.port.or(it.port).unwrap_or(0);
                    let back = LbBack {
                        address: bytes(it.address.address()),
                        port: it.port.unwrap_or(0).to_be(),
                        pad: 0,
                        server: *number as u32,
                    };
                    put(&mut backs, key(server.address, protocol, from), back);
                }
                if let Some(id) = server.id {
                    let key = u64::from(element.identity) << 32 | u64::from(id);
                    ids.push((key, *number as u32));
                }
            }
        }
        let chunks: Vec<[u16; abi::CHUNK]> = places
            .chunks(abi::CHUNK)
            .map(|part| {
                let mut chunk = [0; abi::CHUNK];
                chunk[..part.len()].copy_from_slice(part);
                chunk
            })
            .collect();
        let mut all = vec![
            self.servers(balancer, ports),
            table("services", &exact),
            table("service_prefixes", &prefixes),
            table("backs", &backs),
            table("quic_ids", &ids),
            MapPlan::array("ring", &chunks),
        ];
        let servers = balancer.services.iter().flat_map(|s| &s.servers);
        let mut cpus: Vec<u32> = servers.filter_map(|server| server.cpu).collect();
        cpus.sort_unstable();
        cpus.dedup();
        let room = cpus.last().map_or(1, |last| *last as usize + 1);
        let mut map = MapPlan::empty("cpus", room, 8);
        map.keys = cpus.iter().flat_map(|cpu| cpu.to_ne_bytes()).collect();
        map.values = cpus.iter().flat_map(|_| QUEUE.to_ne_bytes()).collect();
        all.push(map);
        all
    }
}

/// Ports by the indexes of their devices.
fn by_index(ports: &[EdgePort]) -> MapPlan {
    let mut map = MapPlan::empty("ports_by_index", ports.len(), size_of::<PortAt>());
    map.host = ports
        .iter()
        .map(|port| HostElement {
            device: port.device.clone(),
            port: port.number,
            key: None,
            value: PortAt {
                port: port.number as u16,
                ..PortAt::default()
            }
            .as_bytes()
            .to_vec(),
            below: 0,
            fields: vec![(offset_of!(PortAt, mtu), DeviceField::Mtu)],
        })
        .collect();
    map
}

fn put<K: PartialEq, V>(table: &mut Vec<(K, V)>, key: K, value: V) {
    if table.iter().all(|(known, _)| *known != key) {
        table.push((key, value));
    }
}

fn table<K: IntoBytes + Immutable, V: IntoBytes + Immutable>(
    name: &'static str,
    entries: &[(K, V)],
) -> MapPlan {
    MapPlan {
        name: name.into(),
        max_entries: (entries.len() as u32).max(1),
        key_size: size_of::<K>(),
        value_size: size_of::<V>(),
        keys: entries
            .iter()
            .flat_map(|(key, _)| key.as_bytes().to_vec())
            .collect(),
        values: entries
            .iter()
            .flat_map(|(_, value)| value.as_bytes().to_vec())
            .collect(),
        devices: Vec::new(),
        host: Vec::new(),
    }
}

fn element(service: &Service, server: &Server, number: u32) -> LbServer {
    let mut deliver = 0;
    if server.mac.is_some() {
        deliver |= deliver::MAC;
    }
    if server.to.is_some() {
        deliver |= deliver::PORT;
    }
    if server.cpu.is_some() {
        deliver |= deliver::CPU;
    }
    LbServer {
        identity: service.server_identity(server),
        service: service.identity() as u32,
        state: match server.takes_flows() {
            true => state::UP,
            false => state::DRAIN,
        },
        mode: service.mode.number(),
        deliver,
        family: if server.address.is_ipv4() { 4 } else { 6 },
        address: bytes(server.address),
        port: server.port.unwrap_or(0).to_be(),
        to: server.to.unwrap_or(0) as u16,
        mac: server.mac.unwrap_or_default(),
        from: [0; 6],
        service_number: number,
        cpu: server.cpu.unwrap_or(0),
        gone_at: 0,
        other_port: match service.mode {
            Mode::Gue { port, .. } => port,
            Mode::Nat => server.port.or(service.port).unwrap_or(0),
            _ => 0,
        },
        weight: match server.takes_flows() {
            true => server.weight as u16,
            false => 0,
        },
    }
}

fn key(address: std::net::IpAddr, protocol: u8, port: u16) -> LbKey {
    let (value, width) = number(address);
    LbKey {
        high: (value >> 64) as u64,
        low: value as u64,
        port,
        protocol,
        family: if width == 32 { 4 } else { 6 },
        pad: 0,
    }
}

fn trie_key(prefix: Prefix, protocol: u8, port: u16) -> LbPrefix {
    LbPrefix {
        bits: 32 + u32::from(prefix.len),
        protocol,
        family: if prefix.is_ip6 { 6 } else { 4 },
        port: port.to_be(),
        address: bytes(prefix.address()),
    }
}

/// Elements of an array that was read, one behind the other; none if that is no such array.
fn elements<T: FromBytes>(bytes: Option<Vec<u8>>) -> Vec<T> {
    let bytes = bytes.unwrap_or_default();
    if !bytes.len().is_multiple_of(size_of::<T>()) {
        return Vec::new();
    }
    bytes
        .chunks_exact(size_of::<T>())
        .filter_map(|element| T::read_from_bytes(element).ok())
        .collect()
}
