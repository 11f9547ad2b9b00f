//! How routes are written: as `ip route` writes and takes them, so that its output is a table.
//!
//! ```text
//! default via 192.0.2.1 dev wan
//! 10.9.0.0/16 nexthop via 192.0.2.2 weight 2 nexthop via 192.0.2.3
//! 198.51.100.0/24 dev lan
//! blackhole 10.8.0.0/16
//! ```
//! Words that say nothing about where packets go (`proto`, `scope`, `src`, `pref`, flags) are read over; words that are not known are
//! refused. Interfaces are those of the router, by their names or devices; a gateway without `dev` is behind the interface whose
//! network holds it.

use std::net::IpAddr;

use weir_bpf::abi::router::hop;
use weir_policy::nearest;
use weir_value::{Invalid, Mac, Prefix};

use super::interface::Interface;
use super::rib::{Hop, Way};

/// A route as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Where to.
    pub prefix: Prefix,
    /// By which way.
    pub way: Way,
    /// Preference; the lowest is taken.
    pub metric: u32,
}

/// What is wrong with a line, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// In one line.
    pub message: String,
    /// The next step.
    pub advice: Option<String>,
}

fn wrong(message: impl Into<String>, advice: impl Into<String>) -> Wrong {
    Wrong {
        message: message.into(),
        advice: Some(advice.into()),
    }
}

fn plain(invalid: Invalid) -> Wrong {
    Wrong {
        message: invalid.to_string(),
        advice: None,
    }
}

/// Words with a value that do not change where packets go.
const ASIDE: &[&str] = &[
    "proto", "scope", "src", "table", "pref", "hoplimit", "advmss", "initcwnd", "initrwnd",
    "rto_min", "expires", "error", "features", "quickack", "congctl", "realm", "nhid",
];
/// Words without one.
const FLAGS: &[&str] = &[
    "onlink",
    "linkdown",
    "dead",
    "offload",
    "trap",
    "notify",
    "pervasive",
    "cache",
    "lock",
];
const KNOWN: &[&str] = &[
    "via", "dev", "nexthop", "weight", "metric", "mtu", "lladdr", "inet", "inet6",
];

/// Reads one route.
///
/// # Errors
/// [`Wrong`].
pub fn parse(text: &str, interfaces: &[Interface]) -> Result<Written, Wrong> {
    let mut words = text.split_whitespace().peekable();
    let kind = match words.peek().copied() {
        Some("unicast") => Some(None),
        Some("blackhole") => Some(Some(hop::BLACKHOLE)),
        Some("unreachable") => Some(Some(hop::UNREACHABLE)),
        Some("prohibit") => Some(Some(hop::PROHIBIT)),
        Some("local") => Some(Some(hop::LOCAL)),
        Some(other @ ("broadcast" | "multicast" | "anycast" | "nat" | "throw")) => {
            return Err(wrong(
                format!("routes of type `{other}` are not known here"),
                "packets to groups and broadcasts go to the stack by themselves",
            ));
        }
        _ => None,
    };
    if kind.is_some() {
        words.next();
    }
    let special = kind.flatten();
    let Some(target) = words.next() else {
        return Err(wrong(
            "a route begins with a prefix",
            "write \"192.0.2.0/24 via 198.51.100.1\"",
        ));
    };
    let mut metric = 0;
    let mut mtu = 0;
    let mut hops: Vec<Draft> = vec![Draft::default()];
    let mut several = false;
    while let Some(word) = words.next() {
        let mut value = |what: &str| {
            words.next().ok_or_else(|| {
                wrong(
                    format!("`{word}` needs a value"),
                    format!("write `{word} {what}`"),
                )
            })
        };
        let number = |text: &str| {
            text.parse::<u32>().map_err(|_| {
                wrong(
                    format!("expected a number in `{word} {text}`"),
                    format!("write `{word} 100`"),
                )
            })
        };
        let current = hops.last_mut();
        match word {
            "nexthop" => {
                if !several {
                    hops.clear();
                }
                several = true;
                hops.push(Draft::default());
            }
            "via" => {
                let mut text = value("ADDRESS")?;
                if text == "inet" || text == "inet6" {
                    text = words.next().unwrap_or_default();
                }
                let address = weir_value::address(text).map_err(plain)?;
                if let Some(draft) = current {
                    draft.via = Some(address);
                }
            }
            "dev" => {
                let name = value("INTERFACE")?;
                // Linux writes a device to routes that lead nowhere.
                if special.is_some() {
                    continue;
                }
                let number = interface(name, interfaces)?;
                if let Some(draft) = current {
                    draft.interface = Some(number);
                }
            }
            "weight" => {
                let text = value("1")?;
                let weight = number(text)?;
                if !(1..=256).contains(&weight) {
                    return Err(wrong(
                        format!("`weight {weight}` is out of range"),
                        "weights are from 1 to 256",
                    ));
                }
                if let Some(draft) = current {
                    draft.weight = weight as u16;
                }
            }
            "lladdr" => {
                let text = value("02:00:00:00:00:01")?;
                let mac = Mac::of_station(text).map_err(plain)?.0;
                if let Some(draft) = current {
                    draft.mac = mac;
                }
            }
            "metric" | "preference" | "priority" => metric = number(value("100")?)?,
            "mtu" => {
                let mut text = value("1400")?;
                if text == "lock" {
                    text = words.next().unwrap_or_default();
                }
                mtu = number(text)?;
                if !(68..=65_535).contains(&mtu) {
                    return Err(wrong(
                        format!("`mtu {mtu}` is out of range"),
                        "an MTU is from 68 to 65535",
                    ));
                }
            }
            _ if ASIDE.contains(&word) => {
                value("VALUE")?;
            }
            _ if FLAGS.contains(&word) => {}
            _ => {
                let known = ASIDE.iter().chain(FLAGS).chain(KNOWN).copied();
                return Err(Wrong {
                    message: format!("`{word}` is not understood in a route"),
                    advice: nearest(word, known).map(|near| format!("did you mean `{near}`?")),
                });
            }
        }
    }
    let v6 = hops
        .iter()
        .find_map(|draft| draft.via)
        .is_some_and(|via| via.is_ipv6());
    let prefix = prefix(target, v6)?;
    let hops = match special {
        Some(kind) => vec![(Hop::special(kind), 1)],
        None => hops
            .iter()
            .map(|draft| draft.finish(prefix, mtu, interfaces))
            .collect::<Result<_, _>>()?,
    };
    if hops.len() > 1 && hops.iter().any(|(hop, _)| hop.kind == hop::LINK) {
        return Err(wrong(
            "a route over several next hops needs a gateway in each",
            "write `nexthop via ADDRESS dev INTERFACE`",
        ));
    }
    Ok(Written {
        prefix,
        way: Way { hops },
        metric,
    })
}

/// One next hop while it is read.
#[derive(Clone, Copy, Debug)]
struct Draft {
    via: Option<IpAddr>,
    interface: Option<u16>,
    weight: u16,
    mac: [u8; 6],
}

impl Default for Draft {
    fn default() -> Draft {
        Draft {
            via: None,
            interface: None,
            weight: 1,
            mac: [0; 6],
        }
    }
}

impl Draft {
    fn finish(
        &self,
        prefix: Prefix,
        mtu: u32,
        interfaces: &[Interface],
    ) -> Result<(Hop, u16), Wrong> {
        let interface = match (self.interface, self.via) {
            (Some(number), _) => number,
            (None, Some(via)) => behind(via, interfaces).ok_or_else(|| {
                wrong(
                    format!("no interface has a network that holds the gateway {via}: it cannot be reached"),
                    "add `dev INTERFACE`, or give the interface its `address` with the length of its network",
                )
            })?,
            (None, None) => {
                return Err(wrong(
                    format!("the route to {prefix:#} leads nowhere"),
                    "add `via ADDRESS` or `dev INTERFACE`, or begin it with `blackhole`",
                ));
            }
        };
        if let Some(via) = self.via {
            if via.is_unspecified() || via.is_multicast() || via.is_loopback() {
                return Err(wrong(
                    format!("{via} cannot be a gateway"),
                    "a gateway is one station on a network",
                ));
            }
            if prefix.is_ip6 && via.is_ipv4() {
                return Err(wrong(
                    format!("the IPv6 route to {prefix:#} cannot have the IPv4 gateway {via}"),
                    "name a gateway of the same family",
                ));
            }
            let own = interfaces
                .iter()
                .find(|one| one.addresses.iter().any(|own| own.address == via));
            if let Some(own) = own {
                return Err(wrong(
                    format!(
                        "the gateway {via} is the router itself (interface `{}`)",
                        own.name
                    ),
                    "name another station",
                ));
            }
        }
        Ok((
            Hop {
                kind: if self.via.is_some() {
                    hop::GATEWAY
                } else {
                    hop::LINK
                },
                interface,
                address: self.via,
                mtu,
                mac: self.mac,
            },
            self.weight,
        ))
    }
}

/// The interface whose network holds an address: the longest.
pub fn behind(address: IpAddr, interfaces: &[Interface]) -> Option<u16> {
    let networks = (0u16..).zip(interfaces).flat_map(|(number, one)| {
        let connected = one.addresses.iter().map(|own| own.network());
        let holds = connected.filter(move |network| network.contains(address));
        holds.map(move |network| (network.len, number))
    });
    networks
        .max_by_key(|(len, _)| *len)
        .map(|(_, number)| number)
}

fn interface(name: &str, interfaces: &[Interface]) -> Result<u16, Wrong> {
    let place = interfaces.iter().position(|one| one.name == name);
    let place = place.or_else(|| interfaces.iter().position(|one| one.device == name));
    place.map(|at| at as u16).ok_or_else(|| {
        let names = interfaces.iter().map(|one| one.name.as_str());
        Wrong {
            message: format!("the router has no interface `{name}`"),
            advice: Some(match nearest(name, names.clone()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!(
                    "its interfaces are {}",
                    names.collect::<Vec<_>>().join(", ")
                ),
            }),
        }
    })
}

/// `default` is that of IPv6 if its gateway is.
fn prefix(text: &str, v6: bool) -> Result<Prefix, Wrong> {
    if text == "default" {
        let any: IpAddr = if v6 {
            [0u16; 8].into()
        } else {
            [0u8; 4].into()
        };
        return Ok(Prefix::around(any, 0));
    }
    text.parse().map_err(plain)
}

/// Reads lines; `#` begins a comment.
///
/// # Errors
/// Number of the line from 1 and what is wrong with it, of the first twenty.
pub fn parse_lines(
    text: &str,
    interfaces: &[Interface],
) -> Result<Vec<Written>, Vec<(usize, Wrong)>> {
    let mut routes = Vec::new();
    let mut errors = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        match parse(line, interfaces) {
            Ok(route) => routes.push(route),
            Err(e) => errors.push((number, e)),
        }
        if errors.len() == 20 {
            break;
        }
    }
    if errors.is_empty() {
        Ok(routes)
    } else {
        Err(errors)
    }
}
