//! The function that routes: by the kernel's tables, or by tables of its own that are built here and edited while packets follow them.
//!
//! What a router is made of is in [`interface`] (ports and VLANs), [`route`] (how routes are written), [`rib`] (all routes) and [`trie`]
//! (the words in which the data plane looks addresses up), in a [`memory`]. docs/design/router.md says how and why.

pub mod interface;
pub mod memory;
pub mod rib;
pub mod route;
pub mod trie;

use std::path::{Path, PathBuf};

use toml::Value;
use weir_bpf::abi::router::{feature, hop, origin};
use weir_bpf::abi::{PortAt, panel, router as abi};
use weir_value::Prefix;
use zerocopy::IntoBytes;

use crate::plan::{Constant, DeviceField, HostElement, MapPlan};
use crate::request::{FunctionError, Key, Kind, Planned, Request, suggest};
use interface::Interface;
use memory::{PlanMemory, Size};
use rib::{Hop, Rib, RibError, TableCapacity, Way};
use route::{Written, Wrong};

/// Keys of an instance.
const KEYS: &[Key] = &[
    Key::new(
        "table",
        "`\"kernel\"`",
        "`\"kernel\"`: every packet is a lookup in the kernel's tables, including rules. `\"own\"`: [own tables](#own-tables)",
    ),
    Key::new(
        "interface",
        "every port",
        "`[[function.interface]]`: interfaces of the router, at most 64",
    ),
    Key::new(
        "station",
        "none",
        "`[\"02:00:00:00:00:01 lan\", ...]`: frames to these MAC addresses are forwarded to that interface within its VLAN, without routing",
    ),
    Key::new(
        "errors",
        "`\"stack\"`, with own tables `\"own\"`",
        "who sends ICMP errors for packets that cannot be forwarded; `\"none\"`: they are dropped silently",
    ),
    Key::new(
        "errors_per_second",
        "1,000",
        "rate limit of its own ICMP errors, 1 to 1,000,000, with a burst of 50",
    ),
    Key::new(
        "reverse_path",
        "`\"off\"`",
        "reverse path filter. `\"loose\"`: there must be a route to the source. `\"strict\"`: by the interface that the packet came in by",
    ),
    Key::new(
        "routes",
        "none",
        "own tables: routes as `ip route` prints them, or `{ file = \"routes.txt\" }` with one per line and `#` for comments. Types `blackhole`, `unreachable`, `prohibit`, `local`; `via`, `dev`, `nexthop`, `weight`, `metric`, `mtu`, `lladdr`. Words that do not affect forwarding (`proto`, `scope`, `src`, ...) are ignored",
    ),
    Key::new(
        "prefixes",
        "as configured, a quarter more, and 1,024",
        "own tables: capacity for IPv4 routes. Above 16,384 prefixes the table takes 64 MiB",
    ),
    Key::new(
        "prefixes6",
        "as configured, a quarter more, and 1,024",
        "own tables: capacity for IPv6 routes",
    ),
    Key::new(
        "next_hops",
        "4,096",
        "own tables: capacity for different next hops, at most 65,535",
    ),
    Key::new(
        "counters",
        "`\"next-hops\"`",
        "own tables: `\"routes\"` counts routes too, for one more memory access per packet",
    ),
];
/// Keys that mean nothing where the kernel's tables are asked.
const OWN_KEYS: [&str; 5] = ["routes", "prefixes", "prefixes6", "next_hops", "counters"];
/// Prefixes from which on the root of IPv4 has 2^24 words: 64 MiB, and one access less for nearly all addresses.
const WIDE_FROM: usize = 16_384;
/// Prefixes of either family at most: the number of a route has 24 bits.
const PREFIXES_MAX: u64 = 8_000_000;
/// What the tables of a router may take in the kernel, in bytes.
const BYTES_MAX: u64 = 4 << 30;
/// Next hops at most: groups name them in 16 bits.
const HOPS_MAX: u64 = 65_535;
/// ICMP errors a second, unless the configuration says otherwise: what Linux sends to all peers together.
const ERRORS_PER_SECOND: u64 = 1000;
/// Errors that may follow each other at once.
const ERRORS_AT_ONCE: u64 = 50;

/// Whose tables a router asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Kernel,
    Own,
}

/// The kind's row in `kind`.
pub const KIND: Kind = Kind {
    sends: true,
    forwards: true,
    ..Kind::new(
        "router",
        plan,
        &[("", KEYS), ("interface", interface::KEYS)],
    )
};

/// Plans an instance.
///
/// # Errors
/// Keys, interfaces or routes are wrong, or more than the data plane can hold.
pub fn plan(request: &Request<'_>) -> Result<Planned, FunctionError> {
    request.only(KEYS)?;
    let whose = match request.text("table")? {
        None | Some("kernel") => Whose::Kernel,
        Some("own") => Whose::Own,
        Some(other) => return Err(wrong("table", other, &["kernel", "own"])),
    };
    let interfaces = interface::read(request)?;
    let mut features = match whose {
        Whose::Kernel => 0,
        Whose::Own => feature::OWN,
    };
    features |= match (request.text("errors")?, whose) {
        (Some("own"), _) | (None, Whose::Own) => feature::ERRORS,
        (Some("stack"), _) | (None, Whose::Kernel) => 0,
        (Some("none"), _) => feature::SILENT,
        (Some(other), _) => return Err(wrong("errors", other, &["own", "stack", "none"])),
    };
    features |= match request.text("reverse_path")? {
        None | Some("off") => 0,
        Some("loose") => feature::LOOSE,
        Some("strict") => feature::STRICT,
        Some(other) => return Err(wrong("reverse_path", other, &["off", "loose", "strict"])),
    };
    let stations = interface::stations(request, &interfaces)?;
    if stations.is_some() {
        features |= feature::MACS;
    }
    let tagged = interfaces.iter().any(|one| one.vlan != 0);
    if tagged {
        features |= feature::VLAN;
    }
    let rate = request
        .number("errors_per_second", 1..=1_000_000)?
        .unwrap_or(ERRORS_PER_SECOND);
    let interval = 1_000_000_000 / rate;

    let mut planned = Planned::embedded("router");
    let tables = match whose {
        Whose::Own => own_tables(request, &interfaces, &mut features)?,
        Whose::Kernel => {
            if let Some(key) = OWN_KEYS
                .into_iter()
                .find(|key| request.keys.contains_key(*key))
            {
                return Err(FunctionError::key(
                    key,
                    format!("`{key}` says nothing where the kernel's tables are asked"),
                )
                .advice("add table = \"own\", or remove it and tell the kernel (`ip route`)"));
            }
            Vec::new()
        }
    };
    let word = |name: &'static str, value: u64| -> Constant {
        (name.into(), value.to_ne_bytes().to_vec())
    };
    planned.instance.constants = vec![
        (
            "weir_router_features".into(),
            features.to_ne_bytes().to_vec(),
        ),
        word("weir_error_interval_ns", interval),
        word("weir_error_burst_ns", interval * ERRORS_AT_ONCE.min(rate)),
    ];
    planned.instance.maps = maps(&interfaces);
    planned.instance.maps.extend(stations);
    planned.instance.maps.extend(tables);
    planned.ports = interfaces.iter().map(|one| one.port.into()).collect();
    planned.ports.sort_unstable();
    planned.ports.dedup();
    planned.asks.finished_checksums = true;
    planned.asks.vlan_in_frame = tagged;
    if features & feature::ERRORS != 0 {
        planned.notes.extend(silent(&interfaces));
    }
    Ok(planned)
}

/// Routes, tables and next hops of a router that has its own.
fn own_tables(
    request: &Request<'_>,
    interfaces: &[Interface],
    features: &mut u32,
) -> Result<Vec<MapPlan>, FunctionError> {
    let counted = match request.text("counters")? {
        None | Some("next-hops") => false,
        Some("routes") => true,
        Some(other) => return Err(wrong("counters", other, &["next-hops", "routes"])),
    };
    if counted {
        *features |= feature::COUNT_ROUTES;
    }
    let mut routes = of_interfaces(interfaces);
    routes.extend(configured(request, interfaces)?);
    let have = |v6: bool| {
        routes
            .iter()
            .filter(|route| route.prefix.is_ip6 == v6)
            .count()
    };
    let default = |have: usize| (have + have / 4 + 1024) as u64;
    let [prefixes, prefixes6] =
        [("prefixes", have(false)), ("prefixes6", have(true))].map(|(key, have)| {
            let given = request.number(key, 1..=PREFIXES_MAX)?;
            Ok::<usize, FunctionError>(given.unwrap_or(default(have)) as usize)
        });
    let (prefixes, prefixes6) = (prefixes?, prefixes6?);
    let hops = request.number("next_hops", 1..=HOPS_MAX)?;
    let size = Size {
        wide: prefixes > WIDE_FROM,
        nodes: nodes(&routes, prefixes, prefixes6),
        room: TableCapacity {
            routes: prefixes + prefixes6 + 1,
            hops: hops.unwrap_or(4096.min(HOPS_MAX)) as usize + 1,
            groups: 1024,
        },
        counted,
    };
    if size.wide {
        *features |= feature::WIDE;
    }
    if size.bytes() > BYTES_MAX {
        let key = if prefixes6 > prefixes {
            "prefixes6"
        } else {
            "prefixes"
        };
        let gigabytes = size.bytes() >> 30;
        return Err(
            FunctionError::key(key, format!("tables of this size take {gigabytes} GiB")).advice(
                format!("they may take {} GiB: lower `{key}`", BYTES_MAX >> 30),
            ),
        );
    }
    let mut rib = Rib::open(PlanMemory::new(size), counted);
    for route in &routes {
        rib.put(route.prefix, &route.way, route.metric, origin::CONFIGURED)
            .map_err(|error| full(error, route))?;
    }
    Ok(rib.memory().maps(counted))
}

/// Nodes for these routes and as many more as prefixes may come: of IPv4 few lie below a root of 24 bits, of IPv6 about every second needs one.
fn nodes(routes: &[Written], prefixes: usize, prefixes6: usize) -> usize {
    let narrow = prefixes <= WIDE_FROM;
    let below = |route: &&Written| match (route.prefix.is_ip6, narrow) {
        (true, _) | (false, true) => route.prefix.len > 16,
        (false, false) => route.prefix.len > 24,
    };
    let steps = |route: &Written| match route.prefix.is_ip6 {
        true => usize::from(route.prefix.len - 16).div_ceil(8),
        false => 2,
    };
    // An upper bound for those that are known, for small tables; large ones share nodes.
    let known: usize = routes.iter().filter(below).map(steps).sum();
    let grown = if narrow { prefixes } else { prefixes / 32 } + prefixes6 * 3 / 4;
    known.min(4096 + grown) + grown.max(1024)
}

fn full(error: RibError, route: &Written) -> FunctionError {
    let key = match error {
        RibError::Hops(_) => "next_hops",
        RibError::Routes(_) if route.prefix.is_ip6 => "prefixes6",
        RibError::Routes(_) | RibError::Nodes { .. } => "prefixes",
        RibError::Groups(_) | RibError::Width => "routes",
    };
    FunctionError::key(
        key,
        format!("the route to {} cannot be held: {error}", route.prefix),
    )
    .advice(match key {
        "routes" => "give fewer next hops, or let routes share them".to_owned(),
        _ => format!("raise `{key}`"),
    })
}

/// What follows from the addresses of interfaces: the host itself, the networks it is in, and the addresses of all in them: IPv4's
/// broadcasts, IPv6's routers.
fn of_interfaces(interfaces: &[Interface]) -> Vec<Written> {
    let written = |prefix, hop| Written {
        prefix,
        way: Way {
            hops: vec![(hop, 1)],
        },
        metric: 0,
    };
    let mut routes: Vec<Written> = Vec::new();
    for (number, one) in (0u16..).zip(interfaces) {
        for own in &one.addresses {
            let (address, len) = (&own.address, own.len);
            let local = |address| written(Prefix::one(address), Hop::special(hop::LOCAL));
            routes.push(local(*address));
            if !own.network().is_one() {
                let hop = Hop {
                    kind: hop::LINK,
                    interface: number,
                    ..Hop::special(hop::LINK)
                };
                routes.push(written(own.network(), hop));
            }
            let more: std::net::IpAddr = match (address, len) {
                (std::net::IpAddr::V4(v4), 1..=30) => {
                    std::net::Ipv4Addr::from(u32::from(*v4) | u32::MAX >> len).into()
                }
                // That of all routers of a link: RFC 4291, 2.6.1.
                (std::net::IpAddr::V6(v6), 1..=126) => {
                    std::net::Ipv6Addr::from(u128::from(*v6) & !(u128::MAX >> len)).into()
                }
                _ => continue,
            };
            routes.push(local(more));
        }
    }
    routes
}

/// The routes of the configuration, inline or in a file.
fn configured(
    request: &Request<'_>,
    interfaces: &[Interface],
) -> Result<Vec<Written>, FunctionError> {
    let told = |key: String, wrong: Wrong| FunctionError {
        advice: wrong.advice,
        ..FunctionError::key(key, wrong.message)
    };
    let (routes, file) = match request.keys.get("routes") {
        None => (Vec::new(), None),
        Some(Value::Table(table)) => {
            let path = match (table.len(), table.get("file").and_then(Value::as_str)) {
                (1, Some(path)) => Path::new(path),
                _ => {
                    return Err(FunctionError::key(
                        "routes",
                        "`routes` is neither a list of routes nor a file",
                    )
                    .advice("write [\"default via 192.0.2.1\"] or { file = \"routes.txt\" }"));
                }
            };
            let bytes = request.file("routes", path)?;
            let text = String::from_utf8_lossy(&bytes);
            let routes = route::parse_lines(&text, interfaces).map_err(|errors| {
                let errors = errors.into_iter();
                let errors =
                    errors.map(|(line, wrong)| told("routes".to_owned(), wrong).at(path, line));
                FunctionError::join(errors.collect()).unwrap_or_default()
            })?;
            (routes, Some(PathBuf::from(path)))
        }
        Some(_) => {
            let mut routes = Vec::new();
            for (at, text) in request.texts("routes")?.into_iter().enumerate() {
                let route = route::parse(text, interfaces);
                routes.push(route.map_err(|wrong| told(format!("routes.{at}"), wrong))?);
            }
            (routes, None)
        }
    };
    let mut seen = std::collections::HashSet::with_capacity(routes.len());
    for route in &routes {
        if !seen.insert((route.prefix, route.metric)) {
            let error = FunctionError::key(
                "routes",
                format!(
                    "there are two routes to {} with metric {}",
                    route.prefix, route.metric
                ),
            )
            .advice(
                "remove one, give it another `metric`, or write one route with several `nexthop`",
            );
            return Err(match file {
                Some(file) => FunctionError {
                    message: format!("{} in {}", error.message, file.display()),
                    ..error
                },
                None => error,
            });
        }
    }
    Ok(routes)
}

/// Interfaces that could not say who they are.
fn silent(interfaces: &[Interface]) -> Option<String> {
    let names: Vec<&str> = interfaces
        .iter()
        .filter(|one| one.address4.is_none() && one.address6.is_none())
        .map(|one| one.name.as_str())
        .collect();
    (!names.is_empty()).then(|| {
        format!(
            "packets that come in by {} are not answered by ICMP errors: give these interfaces an `address`",
            names.join(", ")
        )
    })
}

fn wrong(key: &str, value: &str, known: &[&str]) -> FunctionError {
    FunctionError::key(key, format!("`{key}` cannot be `{value}`")).advice(suggest(value, known))
}

/// The maps by which interfaces are found.
fn maps(interfaces: &[Interface]) -> Vec<MapPlan> {
    let mut described = MapPlan::empty(
        "interfaces",
        abi::INTERFACES,
        size_of::<weir_bpf::abi::Interface>(),
    );
    let mut by_index = MapPlan::empty("ports_by_index", interfaces.len(), size_of::<PortAt>());
    let mut low = MapPlan::empty("ports_low", abi::LOW, size_of::<PortAt>());
    let mut untagged = vec![0u32; panel::PORTS];
    let mut tagged = MapPlan::empty("tagged", interfaces.len(), 4);
    for (number, one) in (0u32..).zip(interfaces) {
        described.host.push(one.element(number));
        let at = HostElement {
            device: one.device.clone(),
            port: one.port.into(),
            key: None,
            value: PortAt {
                port: one.port,
                interface: number as u16 + 1,
                mtu: one.mtu,
            }
            .as_bytes()
            .to_vec(),
            fields: match one.mtu {
                0 => vec![(std::mem::offset_of!(PortAt, mtu), DeviceField::Mtu)],
                _ => Vec::new(),
            },
            below: 0,
        };
        low.host.push(HostElement {
            below: abi::LOW as u32,
            ..at.clone()
        });
        by_index.host.push(at);
        if one.vlan == 0 {
            if let Some(place) = untagged.get_mut(usize::from(one.port)) {
                *place = number + 1;
            }
        } else {
            let key = u32::from(one.port) << 16 | u32::from(one.vlan);
            tagged.keys.extend(key.to_ne_bytes());
            tagged.values.extend((number + 1).to_ne_bytes());
        }
    }
    vec![
        described,
        by_index,
        low,
        MapPlan::array("untagged", &untagged),
        tagged,
    ]
}
