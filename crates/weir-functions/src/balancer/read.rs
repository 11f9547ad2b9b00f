//! The keys of a balancer, read and checked. All mistakes are told, each at its key.
//!
//! Sections below the function (`service`, `service.server`) are read as requests of their own, so that their keys are typed and known
//! like those of any function; what they say is put behind the place of the section.

use std::net::IpAddr;

use toml::{Table, Value};
use weir_bpf::abi::balancer as abi;
use weir_value::{Invalid, Mac, Prefix};

use super::{
    AllDown, Answers, Balancer, Mode, Protocol, Quic, SERVERS_MAX, SERVICES_MAX, Server, Service,
    check, ring,
};
use crate::request::{FunctionError, Key, Request, suggest};

pub(super) const KEYS: &[Key] = &[
    Key::new(
        "service",
        "none",
        "`[[function.service]]`: virtual services",
    ),
    Key::new(
        "source4",
        "none",
        "outer source prefix of tunnels over IPv4; required where there are any. The low bits are a hash of the flow, so that servers spread flows over their queues",
    ),
    Key::new("source6", "none", "the same over IPv6"),
    Key::new(
        "connections",
        "1,000,000",
        "flows that can be remembered, 8 bytes each, rounded up to a power of two. Twice the expected number leaves room for all of them",
    ),
    Key::new(
        "ring",
        "65537",
        "slots of the hash ring of each service, a prime from 251",
    ),
    Key::new(
        "servers",
        "4096",
        "capacity for servers, including removed ones. Above 65,535 numbers are used up",
    ),
    Key::new(
        "idle",
        "`{ tcp = \"15m\", udp = \"2m\", new = \"1m\", closing = \"30s\" }`",
        "idle time after which a flow may be evicted for another; at most 72 h",
    ),
    Key::new(
        "answers",
        "`\"known\"`",
        "which packets of NAT servers are translated back: `\"known\"`, `\"all\"` ([NAT](#nat))",
    ),
];
pub(super) const SERVICE: &[Key] = &[
    Key::new("name", "`service-N`", "name in lists and messages"),
    Key::new("address", "required", "virtual address, or a prefix"),
    Key::new("protocol", "required", "`tcp` or `udp`"),
    Key::new("port", "all ports", "virtual port"),
    Key::new("mode", "required", "`ipip`, `gue`, `nat`, `dsr`"),
    Key::new("gue_port", "6080", "UDP port of GUE"),
    Key::new(
        "gue_version",
        "1",
        "1: the IP packet follows UDP directly. 0: with a header of four bytes, as Linux' `fou` with `encap gue` writes it",
    ),
    Key::new(
        "quic",
        "`false`",
        "server ids are in connection ids ([QUIC](#quic))",
    ),
    Key::new("quic_id_bytes", "2", "bytes of a server id"),
    Key::new(
        "check",
        "none",
        "how `weir service check` probes its servers ([checks](#checks))",
    ),
    Key::new(
        "all_down",
        "`\"keep\"`",
        "what happens to new flows while all servers are down: `\"keep\"`, `\"drop\"` ([all servers are down](#all-servers-are-down))",
    ),
    Key::new(
        "server",
        "required",
        "`[[function.service.server]]`; `server = []` is a service without servers, whose flows are dropped",
    ),
];
pub(super) const SERVER: &[Key] = &[
    Key::new("address", "required", "address of the server"),
    Key::new(
        "port",
        "the service's",
        "`nat`: the port that it listens on",
    ),
    Key::new("weight", "1", "1 to 65,535; for 0 use `drain`"),
    Key::new(
        "drain",
        "`false`",
        "keep existing flows, accept no new ones",
    ),
    Key::new(
        "mac",
        "by the kernel's route",
        "MAC address of the server or its gateway. Without it forwarding must be on and the outgoing device a port of the edge; where the kernel has no route, packets go on by the default output",
    ),
    Key::new(
        "to",
        "the receiving device",
        "with `mac`: the port of the edge that the server is behind (a NIC, a tap, a veth)",
    ),
    Key::new(
        "cpu",
        "none",
        "packets go to the stack on this CPU. `dsr`: the server is this host, with the service's address on `lo`; `address` only tells servers apart. `nat`: the stack forwards to the server, whose answers must come in by the edge (a namespace behind a port)",
    ),
    Key::new("id", "none", "QUIC: number of the server"),
];
const IDLE: [(&str, u64); 4] = [("new", 60), ("tcp", 900), ("udp", 120), ("closing", 30)];
const MODES: &[&str] = &["ipip", "gue", "nat", "dsr"];
/// Longest that an idle flow can be kept: times are remembered modulo 78 hours.
const IDLE_MAX_NS: u64 = 72 * 3_600_000_000_000;
const SECOND: u64 = 1_000_000_000;

impl Balancer {
    /// Reads the keys of an instance.
    ///
    /// # Errors
    /// All mistakes that were found.
    pub fn read(request: &Request<'_>) -> Result<Balancer, FunctionError> {
        request.only(KEYS)?;
        let mut errors = Vec::new();
        let mut services = Vec::new();
        for (place, keys) in request.tables("service")?.into_iter().enumerate() {
            let at = format!("service.{place}");
            match service(&Request { keys, ..*request }, place) {
                Ok(service) => services.push((place, service)),
                Err(error) => errors.push(below(&at, error)),
            }
        }
        let mut take = |found: Result<u64, FunctionError>| {
            found.unwrap_or_else(|error| {
                errors.push(error);
                0
            })
        };
        let connections = take(
            request
                .number("connections", 64..=1 << 26)
                .map(|n| n.unwrap_or(1_000_000)),
        );
        let places = take(
            request
                .number("ring", 251..=65_537)
                .map(|n| n.unwrap_or(65_537)),
        );
        let servers = take(
            request
                .number("servers", 1..=SERVERS_MAX)
                .map(|n| n.unwrap_or(4096)),
        );
        if places != 0 && !ring::is_prime(places as u32) {
            let near = (places as u32..).find(|n| ring::is_prime(*n));
            errors.push(
                FunctionError::key("ring", format!("`ring` is a prime number, not {places}"))
                    .advice(format!("the next one is {}", near.unwrap_or(65_537))),
            );
        }
        let idle_ns = idle(request).unwrap_or_else(|error| {
            errors.push(error);
            [0; 4]
        });
        let answers = answers(request).unwrap_or_else(|error| {
            errors.push(error);
            Answers::default()
        });
        let mut source = |key: &str, want_v6: bool| {
            source(request, key, want_v6).unwrap_or_else(|error| {
                errors.push(error);
                None
            })
        };
        let (source4, source6) = (source("source4", false), source("source6", true));
        let wrong_sources = !errors.is_empty();
        check_overlaps(&services, &mut errors);
        check_nat(&services, &mut errors);
        if !wrong_sources {
            check_sources(&services, source4, source6, &mut errors);
        }
        // An empty list says that none is meant for now.
        if services.is_empty() && errors.is_empty() && !request.keys.contains_key("service") {
            errors.push(FunctionError::new("it has no service").advice(
                "add [[function.service]] with address, protocol, port and mode, and its servers",
            ));
        }
        if services.len() > SERVICES_MAX {
            errors.push(FunctionError::key(
                "service",
                format!(
                    "{} services, one balancer has at most {SERVICES_MAX}",
                    services.len()
                ),
            ));
        }
        let count: usize = services.iter().map(|(_, s)| s.servers.len()).sum();
        if servers != 0 && count as u64 > servers {
            errors.push(
                FunctionError::key(
                    "servers",
                    format!("{count} servers, and capacity for {servers}"),
                )
                .advice(format!(
                    "write servers = {} or more, {SERVERS_MAX} at most",
                    count.next_power_of_two().min(SERVERS_MAX as usize)
                )),
            );
        }
        match FunctionError::join(errors) {
            Some(error) => Err(error),
            None => Ok(Balancer {
                services: services.into_iter().map(|(_, service)| service).collect(),
                source4,
                source6,
                connections,
                ring: places as u32,
                servers,
                idle_ns,
                answers,
            }),
        }
    }
}

/// The error of a section below the function, at its place.
pub(super) fn below(at: &str, mut error: FunctionError) -> FunctionError {
    let behind = |key: Option<String>| {
        Some(match key {
            Some(key) => format!("{at}.{key}"),
            None => at.to_owned(),
        })
    };
    error.key = behind(error.key.take());
    for other in &mut error.others {
        other.key = behind(other.key.take());
    }
    error
}

fn needs(key: &str, advice: &str) -> FunctionError {
    FunctionError::new(format!("it has no `{key}`")).advice(advice)
}

fn service(request: &Request<'_>, place: usize) -> Result<Service, FunctionError> {
    request.only(SERVICE)?;
    let mut errors = Vec::new();
    let address = request
        .text("address")?
        .ok_or_else(|| needs("address", "write address = \"192.0.2.1\" or a prefix"))?;
    let address = prefix("address", address)?;
    let protocol = match request.text("protocol")? {
        Some("tcp") => Protocol::Tcp,
        Some("udp") => Protocol::Udp,
        Some(other) => {
            return Err(FunctionError::key(
                "protocol",
                format!("`protocol` is \"tcp\" or \"udp\", not \"{other}\""),
            )
            .advice("packets of other protocols go on untouched"));
        }
        None => return Err(needs("protocol", "write protocol = \"tcp\" or \"udp\"")),
    };
    let port = request.number("port", 1..=65_535)?.map(|n| n as u16);
    let mode = mode(request)?;
    let quic = quic(request, protocol)?;
    let name = match request.text("name")? {
        Some(name) => name.to_owned(),
        None => format!("service-{}", place + 1),
    };
    if mode == Mode::Nat && !address.is_one() {
        return Err(FunctionError::key(
            "address",
            format!("NAT needs one address, and {address} has many: what a server sends could belong to any of them"),
        )
        .advice("make a service of each address, or choose ipip, gue or dsr"));
    }
    let mut service = Service {
        name,
        address,
        protocol,
        port,
        mode,
        quic,
        check: check::read(request)?,
        all_down: all_down(request)?,
        servers: Vec::new(),
    };
    check::fits(&service)?;
    for (place, keys) in request.tables("server")?.into_iter().enumerate() {
        match server(&Request { keys, ..*request }, &service) {
            Ok(server) => {
                let same = |s: &Server| (s.address, s.port) == (server.address, server.port);
                if service.servers.iter().any(same) {
                    errors.push(
                        FunctionError::key(
                            format!("server.{place}"),
                            format!("server {} is named twice", shown(&server)),
                        )
                        .advice("give one of them a weight that says what both should have"),
                    );
                }
                let same = |s: &Server| server.id.is_some() && s.id == server.id;
                if let Some(id) = server.id
                    && service.servers.iter().any(same)
                {
                    errors.push(FunctionError::key(
                        format!("server.{place}.id"),
                        format!("id {id} is that of two servers"),
                    ));
                }
                service.servers.push(server);
            }
            Err(error) => errors.push(below(&format!("server.{place}"), error)),
        }
    }
    // An empty list says that none is meant for now.
    if service.servers.is_empty() && errors.is_empty() && !request.keys.contains_key("server") {
        errors.push(
            FunctionError::new(format!(
                "service `{}` ({}) has no server",
                service.name,
                service.place()
            ))
            .advice("add [[function.service.server]] with address"),
        );
    }
    FunctionError::join(errors).map_or(Ok(service), Err)
}

fn mode(request: &Request<'_>) -> Result<Mode, FunctionError> {
    let text = request
        .text("mode")?
        .ok_or_else(|| needs("mode", "write mode = \"ipip\", \"gue\", \"nat\" or \"dsr\""))?;
    let port = request.number("gue_port", 1..=65_535)?;
    let version = request.number("gue_version", 0..=1)?;
    if text != "gue" {
        for (key, given) in [("gue_port", port), ("gue_version", version)] {
            if given.is_some() {
                return Err(FunctionError::key(
                    key,
                    format!("`{key}` says nothing about mode \"{text}\""),
                ));
            }
        }
    }
    Ok(match text {
        "ipip" => Mode::Ipip,
        "gue" => Mode::Gue {
            port: port.unwrap_or(6080) as u16,
            version: version.unwrap_or(1) as u8,
        },
        "nat" => Mode::Nat,
        "dsr" => Mode::Dsr,
        other => {
            return Err(
                FunctionError::key("mode", format!("unknown mode \"{other}\""))
                    .advice(suggest(other, MODES)),
            );
        }
    })
}

fn answers(request: &Request<'_>) -> Result<Answers, FunctionError> {
    match request.text("answers")? {
        None | Some("known") => Ok(Answers::Known),
        Some("all") => Ok(Answers::All),
        Some(other) => Err(FunctionError::key(
            "answers",
            format!("`answers` is \"known\" or \"all\", not \"{other}\""),
        )
        .advice("known: answers of flows in the flow table are translated; all: what NAT servers send to others than this host")),
    }
}

fn all_down(request: &Request<'_>) -> Result<AllDown, FunctionError> {
    match request.text("all_down")? {
        None | Some("keep") => Ok(AllDown::Keep),
        Some("drop") => Ok(AllDown::Drop),
        Some(other) => Err(FunctionError::key(
            "all_down",
            format!("`all_down` is \"keep\" or \"drop\", not \"{other}\""),
        )
        .advice("keep: while all servers are down, new flows go to the last ones that were up; drop: they are dropped")),
    }
}

fn quic(request: &Request<'_>, protocol: Protocol) -> Result<Option<Quic>, FunctionError> {
    let length = request.number("quic_id_bytes", 1..=4)?;
    if !request.flag("quic")? {
        return match length {
            Some(_) => Err(FunctionError::key(
                "quic_id_bytes",
                "`quic_id_bytes` has no effect without quic = true",
            )),
            None => Ok(None),
        };
    }
    if protocol == Protocol::Tcp {
        return Err(
            FunctionError::key("quic", "QUIC is spoken over UDP, and this service is TCP")
                .advice("write protocol = \"udp\", or leave `quic` out"),
        );
    }
    Ok(Some(Quic {
        bytes: length.unwrap_or(2) as u8,
    }))
}

fn server(request: &Request<'_>, service: &Service) -> Result<Server, FunctionError> {
    request.only(SERVER)?;
    let address = request
        .text("address")?
        .ok_or_else(|| needs("address", "write address = \"10.0.0.1\""))?;
    let address = weir_value::address(address).map_err(|invalid| {
        FunctionError::key("address", invalid.to_string())
            .advice("a server has one address, without a port")
    })?;
    let port = request.number("port", 1..=65_535)?.map(|n| n as u16);
    let weight = match request.keys.get("weight").and_then(Value::as_integer) {
        Some(0) => {
            return Err(
                FunctionError::key("weight", "a server of weight 0 gets no flows").advice(
                    "write drain = true: it keeps the flows it has and gets no new ones; or take the server out",
                ),
            );
        }
        _ => request.number("weight", 1..=65_535)?.unwrap_or(1) as u32,
    };
    let mode = service.mode.name();
    if !service.mode.is_tunnel() && address.is_ipv6() != service.address.is_ip6 {
        return Err(FunctionError::key(
            "address",
            format!(
                "server {address} is of another family than the service {}, and mode \"{mode}\" does not bridge them",
                service.address
            ),
        )
        .advice("choose ipip or gue, which put packets of either family into packets of either"));
    }
    match (port, service.mode, service.port) {
        (None, ..) => {}
        (Some(port), Mode::Nat, None) => {
            return Err(FunctionError::key(
                "port",
                format!(
                    "the service has all ports, and server {address} cannot have them all at {port}"
                ),
            )
            .advice("leave `port` out, or give the service a port"));
        }
        (Some(_), Mode::Nat, Some(_)) => {}
        (Some(port), _, has) if has == Some(port) => {}
        (Some(_), ..) => {
            return Err(FunctionError::key(
                "port",
                format!("mode \"{mode}\" does not change ports"),
            )
            .advice("leave `port` out, or choose nat"));
        }
    }
    // The same server, whether the port it has anyway is written or not.
    let port = port.filter(|port| service.mode == Mode::Nat && service.port != Some(*port));
    let mac = request.text("mac")?.map(mac).transpose()?;
    let to = match request.text("to")? {
        Some(name) => Some(request.port("to", name)?.number),
        None => None,
    };
    let cpu = request
        .number("cpu", 0..=abi::CPUS as u64 - 1)?
        .map(|n| n as u32);
    if cpu.is_some() && (mac.is_some() || to.is_some()) {
        return Err(FunctionError::key(
            "cpu",
            "a server on a CPU of this host has neither `mac` nor `to`",
        ));
    }
    if cpu.is_some() && service.mode.is_tunnel() {
        return Err(FunctionError::key(
            "cpu",
            format!("this host would get packets in a tunnel (mode \"{mode}\")"),
        )
        .advice("choose dsr (the service's address is one of this host) or nat"));
    }
    if to.is_some() && mac.is_none() {
        return Err(FunctionError::key(
            "to",
            format!("server {address} has a port and no MAC address to be reached by there"),
        )
        .advice("add mac = \"02:00:00:00:00:01\""));
    }
    if service.mode == Mode::Dsr && mac.is_none() && cpu.is_none() {
        return Err(FunctionError::new(format!(
            "mode \"dsr\" changes the MAC address, and server {address} has none"
        ))
        .advice("add mac = \"02:00:00:00:00:01\", or cpu = N for a server on this host"));
    }
    let id = match (service.quic, request.number("id", 0..=u64::from(u32::MAX))?) {
        (None, None) => None,
        (None, Some(_)) => {
            return Err(FunctionError::key(
                "id",
                "`id` has no effect without quic = true in the service",
            ));
        }
        (Some(_), None) => {
            return Err(needs(
                "id",
                "write id = 1: the number that the server puts into its connection ids",
            ));
        }
        (Some(quic), Some(id)) if quic.bytes < 4 && id >> (8 * quic.bytes) != 0 => {
            return Err(FunctionError::key(
                "id",
                format!("id {id} does not fit into {} bytes", quic.bytes),
            )
            .advice("raise quic_id_bytes of the service"));
        }
        (Some(_), Some(id)) => Some(id as u32),
    };
    Ok(Server {
        address,
        port,
        weight,
        drain: request.flag("drain")?,
        mac,
        to,
        cpu,
        id,
    })
}

fn shown(server: &Server) -> String {
    match server.port {
        Some(port) => format!("{} port {port}", server.address),
        None => server.address.to_string(),
    }
}

fn mac(text: &str) -> Result<[u8; 6], FunctionError> {
    Mac::of_station(text)
        .map(|mac| mac.0)
        .map_err(|invalid| FunctionError::key("mac", invalid.to_string()))
}

/// An address or a prefix.
pub(crate) fn prefix(key: &str, text: &str) -> Result<Prefix, FunctionError> {
    text.parse()
        .map_err(|invalid: Invalid| FunctionError::key(key, invalid.to_string()))
}

fn source(request: &Request<'_>, key: &str, is_v6: bool) -> Result<Option<Prefix>, FunctionError> {
    let Some(text) = request.text(key)? else {
        return Ok(None);
    };
    let prefix = prefix(key, text)?;
    match prefix.is_ip6 == is_v6 {
        true => Ok(Some(prefix)),
        false => Err(FunctionError::key(
            key,
            format!(
                "`{key}` is a prefix of IPv{}, not {text}",
                if is_v6 { 6 } else { 4 }
            ),
        )),
    }
}

fn idle(request: &Request<'_>) -> Result<[u64; 4], FunctionError> {
    let mut all = IDLE.map(|(_, seconds)| seconds * SECOND);
    let empty = Table::new();
    let table = request.table("idle")?.unwrap_or(&empty);
    let names = IDLE.map(|(name, _)| name);
    let inner = Request {
        keys: table,
        ..*request
    };
    for name in table.keys() {
        let key = format!("idle.{name}");
        let Some(place) = names.iter().position(|known| known == name) else {
            return Err(
                FunctionError::key(&key, format!("unknown flow kind `{name}`"))
                    .advice(suggest(name, &names)),
            );
        };
        let wrong = |why: String| FunctionError::key(&key, why);
        let time = inner.duration(name).map_err(|error| wrong(error.message))?;
        let ns = time.unwrap_or_default().as_nanos() as u64;
        if !(1_000_000..=IDLE_MAX_NS).contains(&ns) {
            return Err(wrong(format!("`{key}` is not from 1ms to 72h")));
        }
        all[place] = ns;
    }
    Ok(all)
}

fn check_overlaps(services: &[(usize, Service)], errors: &mut Vec<FunctionError>) {
    for (at, (place, service)) in services.iter().enumerate() {
        let same = |other: &Service| {
            (other.address, other.protocol, other.port)
                == (service.address, service.protocol, service.port)
        };
        if let Some((_, first)) = services[..at].iter().find(|(_, other)| same(other)) {
            errors.push(
                FunctionError::key(
                    format!("service.{place}"),
                    format!(
                        "services `{}` and `{}` are both {}",
                        first.name,
                        service.name,
                        service.place()
                    ),
                )
                .advice("put their servers into one service, or give one another port"),
            );
        }
        if let Some((_, first)) = services[..at]
            .iter()
            .find(|(_, other)| other.name == service.name)
            && !same(first)
        {
            errors.push(
                FunctionError::key(
                    format!("service.{place}.name"),
                    format!("two services are named `{}`", service.name),
                )
                .advice("names tell services apart in `weir service`"),
            );
        }
    }
}

/// A server's packets must say by their source which service they belong to.
fn check_nat(services: &[(usize, Service)], errors: &mut Vec<FunctionError>) {
    let mut seen: Vec<(IpAddr, Option<u16>, &Service)> = Vec::new();
    for (place, service) in services.iter().filter(|(_, s)| s.mode == Mode::Nat) {
        for (number, server) in service.servers.iter().enumerate() {
            let port = server.port.or(service.port);
            let clash = seen.iter().find(|(address, other, first)| {
                *address == server.address
                    && first.protocol == service.protocol
                    && (*other == port || other.is_none() || port.is_none())
                    && !std::ptr::eq(*first, service)
            });
            if let Some((_, _, first)) = clash {
                let at = match port {
                    Some(port) => format!("{} port {port}", server.address),
                    None => server.address.to_string(),
                };
                errors.push(
                    FunctionError::key(
                        format!("service.{place}.server.{number}"),
                        format!(
                            "server {at} is in two NAT services, `{}` and `{}`: what it sends could belong to either",
                            first.name, service.name
                        ),
                    )
                    .advice("use a separate server port for each service"),
                );
            }
            seen.push((server.address, port, service));
        }
    }
}

fn check_sources(
    services: &[(usize, Service)],
    source4: Option<Prefix>,
    source6: Option<Prefix>,
    errors: &mut Vec<FunctionError>,
) {
    for (is_v6, source, key, example) in [
        (false, source4, "source4", "10.99.0.0/16"),
        (true, source6, "source6", "fd99::/64"),
    ] {
        let tunnels = services.iter().filter(|(_, s)| s.mode.is_tunnel());
        let needs = tunnels
            .filter_map(|(_, s)| {
                Some((s, s.servers.iter().find(|x| x.address.is_ipv6() == is_v6)?))
            })
            .next();
        if let (Some((service, server)), None) = (needs, source) {
            errors.push(
                FunctionError::new(format!(
                    "mode \"{}\" needs a source for tunnels to {} (service `{}`), and `{key}` is not given",
                    service.mode.name(),
                    server.address,
                    service.name
                ))
                .advice(format!("add {key} = \"{example}\": addresses that are not used elsewhere")),
            );
        }
    }
}
