//! Text -> [`Document`]: sections, names, values, each with its place. What it means is found out by `check`.
//!
//! [`parse`] reports all that is wrong with one text at once: syntax, types, unknown keys, values that cannot be.

use std::str::FromStr;

use weir_functions::joined::Joined;
use weir_functions::kind::suggest;
use weir_functions::read::{DEFAULT_EDGE, Section, Spanned, one_of};
use weir_policy::ast::Span;
use weir_policy::{Diagnostics, Report};
use weir_value::PortRange;

use crate::model::{
    Addresses, Allowed, Chain, Document, Edge, File, Function, Group, Interface, Link, Network,
    Places, Punt, Route, Selection, Station, Subnet, Tenant, Unknown, Vlan, Way, Workload,
};
use crate::values::{At, Kind, Mac, plain_address, plain_interface_address, plain_prefix};

/// Largest packet of a network or underlay unless the document says another.
pub const DEFAULT_MTU: u16 = 1500;

/// Packets to all that an interface may send a second, unless the document says another number.
pub const DEFAULT_STORM: u32 = 1000;

/// Seconds that what was learned lasts, unless the document says another number: the default of IEEE 802.1Q.
pub const DEFAULT_AGE: u32 = 300;

/// Seconds that DHCP leases an address for, unless the document says another number.
pub const DEFAULT_LEASE: u32 = 3600;

/// Packets a second that an interface may send to a helper, unless the document says another number.
pub const DEFAULT_PUNT_RATE: u32 = 1000;

/// Flows that may be installed in a function, unless the document says another number.
pub const DEFAULT_FLOWS: u32 = 1024;

/// Most flows of one function: the data plane's table of them has as many for all functions of an edge.
pub const MOST_FLOWS: u32 = 16_384;

/// Smallest MTU: that of IPv4 (RFC 791).
const LEAST_MTU: u64 = 68;

/// Largest identifier on the wire: the one above is that of probes.
pub const MOST_IDENTIFIER: u32 = weir_bpf::abi::probe::IDENTIFIER - 1;

/// Largest VLAN.
const MOST_VLAN: u32 = 4094;

/// Reads a document, or the table `[networks]` of an edge's configuration. `name` is what messages call the text, usually its path.
///
/// # Errors
/// All that is wrong with the text.
pub fn parse(text: &str, name: &str) -> Result<Document, Diagnostics> {
    parse_joined(Joined::new(name, text))
}

/// Reads a document, or the table `[networks]` of a configuration, that may consist of several files.
///
/// # Errors
/// All that is wrong with the text.
pub fn parse_joined(source: Joined) -> Result<Document, Diagnostics> {
    let mut report = Report::default();
    let mut document = Document::default();
    if let Some(table) = source.table(&mut report) {
        let mut root = Section::new("the document", table.get_ref(), Span::default());
        match root.table("networks", "the networks") {
            Some(networks) => read_inline(&mut document, root, networks, &mut report),
            None => match root.text("networks", &mut report) {
                Some(file) => {
                    let text = "this is the configuration of an edge, and its networks are in a file of their own";
                    let help = format!("name that file: `{}`", file.value);
                    report.error(0, file.span, text).help(help);
                }
                None => read(&mut document, root, &mut report),
            },
        }
    }
    match report.has_errors() {
        true => Err(source.finish(report, &[]).0),
        false => {
            document.source = source;
            Ok(document)
        }
    }
}

/// The networks that a configuration declares itself. What else it declares is read by `weir_graph`.
fn read_inline(
    document: &mut Document,
    mut root: Section<'_, '_>,
    networks: Section<'_, '_>,
    report: &mut Report,
) {
    let edge = root.text("edge", report);
    document.configured = Some(edge.map_or_else(|| DEFAULT_EDGE.to_owned(), |edge| edge.value));
    read(document, networks, report);
}

fn read(document: &mut Document, mut root: Section<'_, '_>, report: &mut Report) {
    if let Some(version) = root.number("version", 0, i64::MAX as u64, report) {
        document.version = version.value;
    }
    for section in root.sections("edge", "an edge", report) {
        document.edges.extend(read_edge(section, report));
    }
    let own = match (&document.configured, document.edges.as_slice()) {
        (Some(configured), edges) => {
            // One host needs no underlay, and so nothing that a section would say.
            if edges.is_empty() {
                let name = At {
                    value: configured.clone(),
                    span: root.span,
                };
                document.edges.push(plain_edge(name, root.span));
            }
            document.configured.clone()
        }
        (None, [only]) => Some(only.name.value.clone()),
        (None, _) => None,
    };
    for mut section in root.sections("tenant", "a tenant", report) {
        let name = section.need("name", report);
        section.finish(report);
        document
            .tenants
            .extend(name.map(|name| Tenant { name: name.into() }));
    }
    for section in root.sections("network", "a network", report) {
        let network = read_network(section, own.as_deref(), report);
        document.networks.extend(network);
    }
    root.finish(report);
}

fn read_edge(mut section: Section<'_, '_>, report: &mut Report) -> Option<Edge> {
    let at = section.span;
    let name = section.need("name", report);
    let underlay = values(section.texts("underlay", report), plain_address, report);
    let device = section.text("device", report);
    let mtu = read_mtu(&mut section, report);
    let kind = section.text("tunnel", report);
    let kind_at = kind.as_ref().map_or(at, |kind| kind.span);
    let names_tenant = section.flag("tenant_option", report);
    let tunnel = one_of(kind, "unknown tunnel kind", &Kind::ALL, report);
    let mut accepts = Vec::new();
    for text in section.texts("accepts", report) {
        let place = text.span;
        let kind = one_of(Some(text), "unknown tunnel kind", &Kind::ALL, report);
        accepts.extend(kind.map(|value| At { value, span: place }));
    }
    section.finish(report);
    let mut edge = plain_edge(name?.into(), at);
    edge.underlay = underlay;
    edge.device = device.map(At::from);
    edge.mtu = mtu.unwrap_or(edge.mtu);
    edge.tunnel = At {
        value: tunnel.unwrap_or(edge.tunnel.value),
        span: kind_at,
    };
    edge.accepts = accepts;
    edge.names_tenant = names_tenant.is_none_or(|flag| flag.value);
    Some(edge)
}

/// An edge of which only the name is written.
fn plain_edge(name: At<String>, at: Span) -> Edge {
    Edge {
        name,
        underlay: Vec::new(),
        device: None,
        mtu: At {
            value: DEFAULT_MTU,
            span: at,
        },
        tunnel: At {
            value: Kind::Vxlan,
            span: at,
        },
        accepts: Vec::new(),
        names_tenant: true,
    }
}

/// `own`: the edge of workloads that name none.
fn read_network(
    mut section: Section<'_, '_>,
    own: Option<&str>,
    report: &mut Report,
) -> Option<Network> {
    let at = section.span;
    let name = section.need("name", report);
    let tenant = section.need("tenant", report);
    let mtu = read_mtu(&mut section, report);
    let mut subnets = Vec::new();
    for one in section.sections("subnet", "a subnet", report) {
        subnets.extend(read_subnet(one, report));
    }
    let mut functions = Vec::new();
    for one in section.sections("function", "a function", report) {
        functions.extend(read_function(one, report));
    }
    let mut links = Vec::new();
    for one in section.sections("link", "a link", report) {
        links.extend(read_link(one, report));
    }
    let mut chains = Vec::new();
    for one in section.sections("chain", "a chain", report) {
        chains.extend(read_chain(one, report));
    }
    let mut files = Vec::new();
    for one in section.sections("file", "a file", report) {
        files.extend(read_file(one, report));
    }
    let mut groups = Vec::new();
    for mut one in section.sections("group", "a group", report) {
        let name = one.need("name", report);
        one.finish(report);
        groups.extend(name.map(|name| Group { name: name.into() }));
    }
    let mut workloads = Vec::new();
    for one in section.sections("workload", "a workload", report) {
        workloads.extend(read_workload(one, own, report));
    }
    section.finish(report);
    Some(Network {
        name: name?.into(),
        tenant: tenant?.into(),
        mtu: mtu.unwrap_or(At {
            value: DEFAULT_MTU,
            span: at,
        }),
        subnets,
        functions,
        links,
        chains,
        files,
        groups,
        workloads,
    })
}

fn read_subnet(mut section: Section<'_, '_>, report: &mut Report) -> Option<Subnet> {
    let name = section.need("name", report);
    let prefixes = values(section.texts("prefix", report), plain_prefix, report);
    let gateway = values(section.texts("gateway", report), plain_address, report);
    let identifier = read_identifier(&mut section, report);
    let unknown = section.text("unknown", report);
    let unknown = one_of(
        unknown,
        "packets for unknown stations cannot be",
        &Unknown::ALL,
        report,
    );
    let storm = section.per_second("storm", report);
    let age = section.seconds("age", 1, 1_000_000, report);
    let dhcp = section.flag("dhcp", report);
    let lease = section.seconds("lease", 60, u32::MAX.into(), report);
    if let Some(lease) = lease
        .as_ref()
        .filter(|_| dhcp.as_ref().is_none_or(|dhcp| !dhcp.value))
    {
        report
            .error(0, lease.span, "`lease` is of subnets with `dhcp`")
            .help("add `dhcp = true`, or leave it out");
    }
    section.finish(report);
    let seconds = lease.map_or(DEFAULT_LEASE, |lease| lease.value as u32);
    let dhcp = dhcp.filter(|dhcp| dhcp.value).map(|dhcp| At {
        value: seconds,
        span: dhcp.span,
    });
    Some(Subnet {
        name: name?.into(),
        prefixes,
        gateway,
        identifier,
        unknown,
        storm: storm.map_or(DEFAULT_STORM, |storm| storm.value),
        age: age.map_or(DEFAULT_AGE, |age| age.value as u32),
        dhcp,
    })
}

fn read_function(mut section: Section<'_, '_>, report: &mut Report) -> Option<Function> {
    let name = section.need("name", report);
    let kind = section.need("kind", report);
    let home = section.text("home", report);
    let (mut interfaces, mut routes) = (Vec::new(), Vec::new());
    let (mut keys, mut places) = Default::default();
    let mut punt = None;
    if kind
        .as_ref()
        .is_some_and(|kind| kind.value == crate::model::PUNT)
    {
        punt = Some(read_punt(section, report));
    } else if kind
        .as_ref()
        .is_some_and(|kind| kind.value == crate::model::ROUTER)
    {
        for one in section.sections("interface", "an interface", report) {
            interfaces.extend(read_interface(one, report));
        }
        routes = values(section.texts("route", report), read_route, report);
        section.finish(report);
    } else {
        (keys, places) = section.rest(report);
    }
    Some(Function {
        name: name?.into(),
        kind: kind?.into(),
        home: home.map(At::from),
        interfaces,
        routes,
        punt,
        keys,
        places: Places(places),
        steer: None,
    })
}

fn read_punt(mut section: Section<'_, '_>, report: &mut Report) -> Punt {
    let mut selections = Vec::new();
    for one in section.sections("select", "a selection", report) {
        selections.push(read_selection(one, report));
    }
    let rate = section.per_second("rate", report);
    let flows = section.number("flows", 0, MOST_FLOWS.into(), report);
    section.finish(report);
    Punt {
        selections,
        rate: rate.map_or(DEFAULT_PUNT_RATE, |rate| rate.value),
        flows: flows.map_or(DEFAULT_FLOWS, |flows| flows.value as u32),
    }
}

fn read_interface(mut section: Section<'_, '_>, report: &mut Report) -> Option<Interface> {
    let name = section.need("name", report);
    let addresses = values(
        section.texts("address", report),
        plain_interface_address,
        report,
    );
    let mac = section.text("mac", report);
    let mac = mac.and_then(|text| value(text, Mac::from_str, report));
    let mtu = read_mtu(&mut section, report);
    section.finish(report);
    Some(Interface {
        name: name?.into(),
        addresses,
        mac,
        mtu,
    })
}

fn read_link(mut section: Section<'_, '_>, report: &mut Report) -> Option<Link> {
    let from = section.need("from", report);
    let to = section.need("to", report);
    let vlan = section.number("vlan", 0, MOST_VLAN.into(), report);
    let identifier = read_identifier(&mut section, report);
    section.finish(report);
    Some(Link {
        from: from?.into(),
        to: to?.into(),
        vlan: vlan.map_or(0, |vlan| vlan.value as u16),
        identifier,
    })
}

fn read_chain(mut section: Section<'_, '_>, report: &mut Report) -> Option<Chain> {
    let name = section.need("name", report);
    let at = section.need("at", report);
    let through = section.groups("through", report);
    let mut select = Vec::new();
    for one in section.sections("select", "a selection", report) {
        select.push(read_selection(one, report));
    }
    section.finish(report);
    let group = |group: Vec<Spanned<String>>| group.into_iter().map(At::from).collect();
    Some(Chain {
        name: name?.into(),
        at: at?.into(),
        through: through.into_iter().map(group).collect(),
        select,
    })
}

fn read_file(mut section: Section<'_, '_>, report: &mut Report) -> Option<File> {
    let name = section.need("name", report);
    let text = section.need("text", report);
    section.finish(report);
    Some(File {
        name: name?.into(),
        text: text?.value,
    })
}

fn read_selection(mut section: Section<'_, '_>, report: &mut Report) -> Selection {
    let mut net = |key| {
        let text = section.text(key, report)?;
        value(text, plain_prefix, report).map(|prefix| prefix.value)
    };
    let (from, to) = (net("from"), net("to"));
    let mut ports = |key| {
        let text = section.text(key, report)?;
        value(text, PortRange::from_str, report).map(|ports| ports.value)
    };
    let (from_port, port) = (ports("from_port"), ports("port"));
    let protocol = section.text("protocol", report);
    let protocol = protocol.and_then(|text| value(text, weir_value::protocol, report));
    let at = section.span;
    section.finish(report);
    let protocol = protocol.map(|protocol| protocol.value);
    let has_ports = protocol.is_some_and(|protocol| matches!(protocol, 6 | 17 | 132));
    if (from_port.is_some() || port.is_some()) && !has_ports {
        report
            .error(0, at, "ports are selected of a protocol that has none")
            .help("add `protocol = \"tcp\"`, `\"udp\"` or `\"sctp\"`");
    }
    if let (Some(from), Some(to)) = (from, to)
        && from.is_ip6 != to.is_ip6
    {
        report
            .error(0, at, format!("no packet goes from `{from}` to `{to}`"))
            .help("name two prefixes of one family");
    }
    Selection {
        protocol,
        from,
        to,
        from_port,
        port,
    }
}

fn read_workload(
    mut section: Section<'_, '_>,
    own: Option<&str>,
    report: &mut Report,
) -> Option<Workload> {
    let at = section.span;
    let name = section.need("name", report);
    let subnet = section.need("subnet", report);
    let edge = match own {
        None => section.need("edge", report).map(At::from),
        Some(own) => Some(section.text("edge", report).map_or_else(
            || At {
                value: own.to_owned(),
                span: at,
            },
            At::from,
        )),
    };
    let device = section.need("device", report);
    let external = section
        .flag("external", report)
        .is_some_and(|flag| flag.value);
    let mac = match section.text("mac", report) {
        None if external => Station::Any,
        None => Station::Made,
        Some(text) if text.value == ANY => Station::Any,
        Some(text) if text.value == DEVICE => Station::Device(At {
            value: None,
            span: text.span,
        }),
        Some(text) => value(text, Mac::from_str, report).map_or(Station::Made, Station::Given),
    };
    let texts = section.texts("address", report);
    let addresses = match texts.as_slice() {
        [] if external => Addresses::Any,
        [one] if one.value == ANY => Addresses::Any,
        _ => Addresses::Given(values(texts, plain_address, report)),
    };
    let vlan = match section.numbers("vlan", MOST_VLAN, report) {
        None => Vlan::Access(0),
        Some((list, true)) => Vlan::Trunk(list.iter().map(|one| one.value as u16).collect()),
        Some((list, false)) => Vlan::Access(list.first().map_or(0, |one| one.value as u16)),
    };
    let mut allow = Vec::new();
    for text in section.texts("allow", report) {
        let what = "workloads cannot be allowed to send";
        allow.extend(one_of(Some(text), what, &Allowed::ALL, report));
    }
    let groups = section.texts("groups", report);
    section.finish(report);
    Some(Workload {
        name: name?.into(),
        subnet: subnet?.into(),
        edge: edge?,
        device: device?.into(),
        mac,
        addresses,
        vlan,
        external,
        allow,
        groups: groups.into_iter().map(At::from).collect(),
    })
}

/// The word for "whatever it says".
pub(crate) const ANY: &str = "any";

/// The word for "what the workload's end of its device has".
pub(crate) const DEVICE: &str = "device";

/// The word in front, as `ip route` writes it, or behind.
fn read_route(text: &str) -> Result<Route, String> {
    let wrong = || {
        format!(
            "invalid route `{text}`: expected `PREFIX via ADDRESS ...`, `blackhole PREFIX`, `unreachable PREFIX` or `prohibit PREFIX`"
        )
    };
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let (to, way) = match words.as_slice() {
        [to, "via", gateways @ ..] if !gateways.is_empty() => {
            let gateways = gateways.iter().map(|gateway| plain_address(gateway));
            (to, Way::Via(gateways.collect::<Result<_, _>>()?))
        }
        [one, other] => match (nowhere(one), nowhere(other)) {
            (Some(way), None) => (other, way),
            (None, Some(way)) => (one, way),
            _ => return Err(wrong()),
        },
        _ => return Err(wrong()),
    };
    Ok(Route {
        to: plain_prefix(to)?,
        way,
    })
}

/// Kinds of routes that lead nowhere.
fn nowhere(word: &str) -> Option<Way> {
    match word {
        "blackhole" => Some(Way::Blackhole),
        "unreachable" => Some(Way::Unreachable),
        "prohibit" => Some(Way::Prohibit),
        _ => None,
    }
}

fn read_mtu(section: &mut Section<'_, '_>, report: &mut Report) -> Option<At<u16>> {
    let mtu = section.number("mtu", LEAST_MTU, u16::MAX.into(), report)?;
    Some(At {
        value: mtu.value as u16,
        span: mtu.span,
    })
}

fn read_identifier(section: &mut Section<'_, '_>, report: &mut Report) -> Option<At<u32>> {
    section
        .count("identifier", MOST_IDENTIFIER, report)
        .map(At::from)
}

fn values<T, E: ToString>(
    texts: Vec<Spanned<String>>,
    read: impl Fn(&str) -> Result<T, E>,
    report: &mut Report,
) -> Vec<At<T>> {
    let one = |text| value(text, &read, report);
    texts.into_iter().filter_map(one).collect()
}

fn value<T, E: ToString>(
    text: Spanned<String>,
    read: impl Fn(&str) -> Result<T, E>,
    report: &mut Report,
) -> Option<At<T>> {
    match read(&text.value) {
        Ok(value) => Some(At {
            value,
            span: text.span,
        }),
        Err(error) => {
            report.error(0, text.span, error.to_string());
            None
        }
    }
}

/// `did you mean`, or all there is, or that there is none.
pub(crate) fn known(word: &str, names: &[&str], none: &str) -> String {
    match names.is_empty() {
        true => none.to_owned(),
        // A list of thousands helps nobody.
        false if names.len() > 20 => match weir_policy::nearest(word, names.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("there are {} others", names.len()),
        },
        false => suggest(word, names),
    }
}
