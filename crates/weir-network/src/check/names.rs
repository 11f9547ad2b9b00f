//! Names: each is plain and there once, and what is named exists.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use weir_functions::kind::{self, suggest};
use weir_functions::read::taken;
use weir_policy::Report;
use weir_policy::ast::Span;

use crate::document::known;
use crate::files::plain;
use crate::graph::{End, Names, NoEnd};
use crate::model::{Addresses, Document, Network, Workload};
use crate::values::At;

/// Longest name of anything, in bytes.
const NAME_MAX: usize = 32;

/// Longest name of a file, in bytes.
const FILE_NAME_MAX: usize = 255;

/// Kinds of functions with the interfaces `a` and `b` that networks have besides those of graphs.
const OWN_KINDS: [&str; 1] = ["punt"];

/// `is_whole`: nothing that would link functions is missing.
pub(super) fn check(document: &Document, is_whole: bool, report: &mut Report) {
    let edges: BTreeSet<&str> = document.edges.iter().map(|one| one.name.as_str()).collect();
    let tenants: BTreeSet<&str> = document
        .tenants
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    unique(
        document.edges.iter().map(|one| &one.name),
        "edge",
        "names of edges must be unique",
        report,
    );
    unique(
        document.tenants.iter().map(|one| &one.name),
        "tenant",
        "names of tenants must be unique",
        report,
    );
    unique(
        document.networks.iter().map(|one| &one.name),
        "network",
        "names of networks must be unique, also across tenants",
        report,
    );
    for edge in &document.edges {
        if let Some(device) = &edge.device {
            device_name(device, report);
        }
    }
    for network in &document.networks {
        exists(
            &network.tenant,
            "tenant",
            &tenants,
            "declare it: `[[tenant]]` with `name`",
            report,
        );
        check_network(network, &edges, is_whole, report);
    }
    check_devices(document, report);
}

fn check_network(network: &Network, edges: &BTreeSet<&str>, is_whole: bool, report: &mut Report) {
    let subnets = network.subnets.iter().map(|one| &one.name);
    let functions = network.functions.iter().map(|one| &one.name);
    unique(
        subnets.chain(functions),
        "subnet or function",
        "names of subnets and functions must be unique within a network",
        report,
    );
    unique(
        network.workloads.iter().map(|one| &one.name),
        "workload",
        "names of workloads must be unique within a network",
        report,
    );
    unique(
        network.groups.iter().map(|one| &one.name),
        "group",
        "names of groups must be unique within a network",
        report,
    );
    let mut seen = BTreeSet::new();
    for file in &network.files {
        file_name(&file.name, report);
        if !seen.insert(file.name.as_str()) {
            report
                .error(
                    0,
                    file.name.span,
                    format!("the file `{}` is carried twice", file.name.value),
                )
                .help("remove one of the two");
        }
    }
    let no_edge = "declare it: `[[edge]]` with `name`";
    for function in &network.functions {
        if let Some(home) = &function.home {
            exists(home, "edge", edges, no_edge, report);
        }
        if !function.is_router()
            && function.steer.is_none()
            && kind::named(&function.kind).is_none()
            && !OWN_KINDS.contains(&function.kind.as_str())
        {
            let known = kind::KINDS.iter().map(|kind| kind.name);
            let kinds: Vec<&str> = known.chain(OWN_KINDS).collect();
            let text = format!("unknown function kind `{}`", function.kind.value);
            report
                .error(0, function.kind.span, text)
                .help(suggest(&function.kind, &kinds));
        }
        unique(
            function.interfaces.iter().map(|one| &one.name),
            "interface",
            "names of interfaces must be unique within a router",
            report,
        );
    }
    let names: BTreeSet<&str> = network
        .subnets
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    let groups: BTreeSet<&str> = (network.groups.iter())
        .map(|one| one.name.as_str())
        .collect();
    for workload in &network.workloads {
        exists(
            &workload.subnet,
            "subnet",
            &names,
            "declare it: `[[network.subnet]]` with `name`",
            report,
        );
        exists(&workload.edge, "edge", edges, no_edge, report);
        memberships(workload, &groups, report);
        device_name(&workload.device, report);
    }
    check_links(network, is_whole, report);
}

/// Groups that a workload is in exist, and what they hold of it is known.
fn memberships(workload: &Workload, groups: &BTreeSet<&str>, report: &mut Report) {
    let mut seen = BTreeMap::new();
    for group in &workload.groups {
        exists(
            group,
            "group",
            groups,
            "declare it: `[[network.group]]` with `name`",
            report,
        );
        let help = "name each group once";
        taken(&mut seen, group.as_str(), group.span, help, report);
    }
    if let (Some(group), Addresses::Any) = (workload.groups.first(), &workload.addresses) {
        let (name, group_name) = (&workload.name.value, &group.value);
        report
            .error(
                0,
                group.span,
                format!(
                    "`{name}` may use any address, and the group `{group_name}` holds addresses"
                ),
            )
            .help("give the workload its addresses: `address = [\"...\"]`");
    }
}

fn check_links(network: &Network, mut is_whole: bool, report: &mut Report) {
    let names = Names::of(network);
    let mut linked: BTreeMap<(usize, usize), Span> = BTreeMap::new();
    for link in &network.links {
        let mut ends = Vec::new();
        for (text, bare) in [(&link.from, 1), (&link.to, 0)] {
            match names.end(network, text, bare) {
                Ok(end) => ends.push((end, text)),
                Err(wrong) => {
                    is_whole = false;
                    no_end(network, &names, text, &wrong, report);
                }
            }
        }
        for (end, text) in &ends {
            let End::Side(function, side) = *end else {
                continue;
            };
            if let Some(first) = linked.get(&(function, side)) {
                let function = &network.functions[function];
                let message = format!(
                    "the interface `{}` of `{}` is linked twice",
                    function.side_name(side),
                    function.name.value
                );
                report
                    .error(0, text.span, message)
                    .help("an interface has one link; use a subnet to connect more than two")
                    .also(0, *first, "the first link");
            } else {
                linked.insert((function, side), text.span);
            }
        }
        if let [(one, _), (other, text)] = ends.as_slice()
            && one == other
        {
            let message = format!("`{}` is linked to itself", text.value);
            report
                .error(0, text.span, message)
                .help("leave the link out");
        }
    }
    for (at, function) in network.functions.iter().enumerate() {
        if function.sides() == 0 {
            let text = format!("the router `{}` has no interface", function.name.value);
            let help =
                "add `interface = [{ name = \"...\", address = [\"...\"] }]`, and a link for each";
            report.error(0, function.name.span, text).help(help);
        }
        for side in 0..function.sides() {
            // What a wrong link was meant for is not known.
            if linked.contains_key(&(at, side)) || !is_whole {
                continue;
            }
            let (name, side_name) = (&function.name.value, function.side_name(side));
            let place = function
                .interfaces
                .get(side)
                .map_or(function.name.span, |one| one.name.span);
            report
                .error(
                    0,
                    place,
                    format!("the interface `{side_name}` of `{name}` is not linked"),
                )
                .help(format!(
                    "add `[[network.link]]` with `to = \"{name}.{side_name}\"`"
                ));
        }
    }
}

pub(super) fn no_end(
    network: &Network,
    names: &Names<'_>,
    text: &At<String>,
    wrong: &NoEnd,
    report: &mut Report,
) {
    let (message, help) = match wrong {
        NoEnd::Unknown(name) => {
            let all: Vec<&str> = names
                .subnets
                .keys()
                .chain(names.functions.keys())
                .copied()
                .collect();
            let none = "declare it: `[[network.subnet]]` or `[[network.function]]` with `name`";
            (
                format!("no subnet or function is named `{name}`"),
                known(name, &all, none),
            )
        }
        NoEnd::NoInterface(at, interface) => {
            let function = &network.functions[*at];
            let sides: Vec<&str> = (0..function.sides())
                .map(|side| function.side_name(side))
                .collect();
            (
                format!("`{}` has no interface `{interface}`", function.name.value),
                known(interface, &sides, "the router has none"),
            )
        }
        NoEnd::Bare(at) => {
            let function = &network.functions[*at];
            let example = match function.sides() {
                0 => "INTERFACE",
                _ => function.side_name(0),
            };
            (
                format!(
                    "a link leads to an interface of the router `{}`, not to the router",
                    function.name.value
                ),
                format!("write `{}.{example}`", function.name.value),
            )
        }
        NoEnd::OfSubnet(at) => {
            let subnet = &network.subnets[*at].name.value;
            (
                format!("`{subnet}` is a subnet, and subnets have no interfaces"),
                format!("write `{subnet}`"),
            )
        }
    };
    report.error(0, text.span, message).help(help);
}

/// A device is one workload, and the underlay's is none.
fn check_devices(document: &Document, report: &mut Report) {
    let mut seen: BTreeMap<(&str, &str), Span> = BTreeMap::new();
    for edge in &document.edges {
        if let Some(device) = &edge.device {
            seen.entry((&edge.name, device.as_str()))
                .or_insert(device.span);
        }
    }
    for workload in document
        .networks
        .iter()
        .flat_map(|network| &network.workloads)
    {
        let key = (workload.edge.as_str(), workload.device.as_str());
        match seen.get(&key) {
            None => drop(seen.insert(key, workload.device.span)),
            Some(first) => {
                let text = format!("duplicate device `{}` on edge `{}`", key.1, key.0);
                report
                    .error(0, workload.device.span, text)
                    .help("a device is one workload; VLANs of one device are `vlan = [1, 2]`")
                    .also(0, *first, "the first one");
            }
        }
    }
}

fn device_name(device: &At<String>, report: &mut Report) {
    if let Err(invalid) = weir_value::interface(device) {
        report.error(0, device.span, invalid.to_string());
    }
}

/// Carried files are found by their plain paths.
fn file_name(name: &At<String>, report: &mut Report) {
    let is_plain = |name: &str| plain(Path::new(name)).as_os_str() == name;
    let text = match name.as_str() {
        "" => "a file needs a name".to_owned(),
        long if long.len() > FILE_NAME_MAX => {
            format!("the name of a file has {} bytes", long.len())
        }
        odd if odd.chars().any(char::is_control) => {
            "the name of a file contains a control character".to_owned()
        }
        other if !is_plain(other) => format!("`{other}` is not a plain path"),
        _ => return,
    };
    report.error(0, name.span, text).help(format!(
        "write the path as `policy` names it, without `.` and double `/`, in at most {FILE_NAME_MAX} bytes"
    ));
}

fn exists(name: &At<String>, what: &str, names: &BTreeSet<&str>, none: &str, report: &mut Report) {
    if !names.contains(name.as_str()) {
        let text = format!("no {what} is named `{}`", name.value);
        let names: Vec<&str> = names.iter().copied().collect();
        report
            .error(0, name.span, text)
            .help(known(name, &names, none));
    }
}

fn unique<'a>(
    names: impl Iterator<Item = &'a At<String>>,
    what: &str,
    help: &str,
    report: &mut Report,
) {
    let mut seen = BTreeMap::new();
    for name in names {
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        let text = name.value.as_str();
        if text.is_empty() || text.len() > NAME_MAX || !text.bytes().all(is_plain) {
            let message = format!("`{text}` cannot be the name of a {what}")
                .replace("a edge", "an edge")
                .replace("a interface", "an interface");
            let help = format!("names are letters, digits, `-` and `_`, up to {NAME_MAX}");
            report.error(0, name.span, message).help(help);
        }
        taken(&mut seen, text, name.span, help, report);
    }
}
