//! [`Document`] -> text, and what two documents differ in.
//!
//! Both see a document as sections with keys: what is written is what is compared, so nothing that a document says is left out of either.
//! Reading what [`export`] wrote gives the same document.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;
use toml::Value;

use crate::document::{
    ANY, DEFAULT_AGE, DEFAULT_FLOWS, DEFAULT_LEASE, DEFAULT_MTU, DEFAULT_PUNT_RATE, DEFAULT_STORM,
    DEVICE,
};
use crate::model::{
    Addresses, Chain, Document, Edge, File, Function, Interface, Link, Network, Route, Selection,
    Station, Subnet, Vlan, Way, Workload,
};
use crate::values::Kind;

/// One table of a document.
struct Section {
    /// What it is: `edge`, `subnet`.
    kind: &'static str,
    /// Its name; of links what they join.
    name: String,
    /// Keys and values as they are written.
    keys: Vec<(String, String)>,
    /// Of a file: differences are told by its lines, not by its keys.
    lines: Option<Vec<String>>,
}

impl Section {
    fn new(kind: &'static str, name: &str) -> Section {
        Section {
            kind,
            name: name.to_owned(),
            keys: vec![("name".to_owned(), text(name))],
            lines: None,
        }
    }

    fn key(&mut self, key: &str, value: impl fmt::Display) -> &mut Section {
        self.keys.push((key.to_owned(), value.to_string()));
        self
    }

    fn list(&mut self, key: &str, list: Vec<String>) -> &mut Section {
        match list.as_slice() {
            [] => self,
            [one] => self.key(key, one),
            _ => self.key(key, format!("[{}]", list.join(", "))),
        }
    }
}

/// A document as text.
pub fn export(document: &Document) -> String {
    let mut out = format!("version = {}\n", document.version);
    let mut write = |header: &str, section: &Section| {
        out += &format!("\n[[{header}]]\n");
        for (key, value) in &section.keys {
            out += &format!("{key} = {value}\n");
        }
    };
    for edge in &document.edges {
        write("edge", &edge_section(edge));
    }
    for tenant in &document.tenants {
        write("tenant", &Section::new("tenant", &tenant.name));
    }
    for network in &document.networks {
        write("network", &network_section(network));
        for part in parts(network) {
            write(&format!("network.{}", part.kind), &part);
        }
    }
    out
}

fn edge_section(edge: &Edge) -> Section {
    let mut section = Section::new("edge", &edge.name);
    section.list(
        "underlay",
        edge.underlay
            .iter()
            .map(|one| text(&one.to_string()))
            .collect(),
    );
    if let Some(device) = &edge.device {
        section.key("device", text(device));
    }
    if edge.mtu.value != DEFAULT_MTU {
        section.key("mtu", edge.mtu.value);
    }
    if edge.tunnel.value != Kind::Vxlan {
        section.key("tunnel", text(edge.tunnel.name()));
    }
    section.list(
        "accepts",
        edge.accepts.iter().map(|kind| text(kind.name())).collect(),
    );
    if !edge.names_tenant {
        section.key("tenant_option", false);
    }
    section
}

fn network_section(network: &Network) -> Section {
    let mut section = Section::new("network", &network.name);
    section.key("tenant", text(&network.tenant));
    if network.mtu.value != DEFAULT_MTU {
        section.key("mtu", network.mtu.value);
    }
    section
}

fn parts(network: &Network) -> impl Iterator<Item = Section> {
    let subnets = network.subnets.iter().map(subnet_section);
    let functions = network.functions.iter().map(function_section);
    let links = network.links.iter().map(link_section);
    let workloads = network.workloads.iter().map(workload_section);
    let chains = network.chains.iter().map(chain_section);
    let files = network.files.iter().map(file_section);
    let groups = (network.groups.iter()).map(|group| Section::new("group", &group.name));
    subnets
        .chain(functions)
        .chain(links)
        .chain(chains)
        .chain(files)
        .chain(groups)
        .chain(workloads)
}

fn subnet_section(subnet: &Subnet) -> Section {
    let mut section = Section::new("subnet", &subnet.name);
    section.list(
        "prefix",
        subnet
            .prefixes
            .iter()
            .map(|net| text(&net.value.to_string()))
            .collect(),
    );
    section.list(
        "gateway",
        subnet
            .gateway
            .iter()
            .map(|one| text(&one.value.to_string()))
            .collect(),
    );
    if let Some(identifier) = subnet.identifier {
        section.key("identifier", identifier.value);
    }
    if let Some(unknown) = subnet.unknown {
        section.key("unknown", text(unknown.name()));
    }
    if subnet.storm != DEFAULT_STORM {
        section.key("storm", subnet.storm);
    }
    if subnet.age != DEFAULT_AGE {
        section.key("age", subnet.age);
    }
    if let Some(lease) = subnet.dhcp {
        section.key("dhcp", true);
        if lease.value != DEFAULT_LEASE {
            section.key("lease", lease.value);
        }
    }
    section
}

fn function_section(function: &Function) -> Section {
    let mut section = Section::new("function", &function.name);
    section.key("kind", text(&function.kind));
    if let Some(home) = &function.home {
        section.key("home", text(home));
    }
    if !function.interfaces.is_empty() {
        let list: Vec<String> = function.interfaces.iter().map(interface).collect();
        section.key("interface", format!("[{}]", list.join(", ")));
    }
    section.list(
        "route",
        function
            .routes
            .iter()
            .map(|one| text(&route(one)))
            .collect(),
    );
    if let Some(punt) = &function.punt {
        if !punt.selections.is_empty() {
            section.key("select", selections(&punt.selections));
        }
        if punt.rate != DEFAULT_PUNT_RATE {
            section.key("rate", punt.rate);
        }
        if punt.flows != DEFAULT_FLOWS {
            section.key("flows", punt.flows);
        }
    }
    for (key, value) in &function.keys {
        section.key(&bare(key), inline(value));
    }
    section
}

fn interface(interface: &Interface) -> String {
    let mut section = Section::new("interface", &interface.name);
    section.list(
        "address",
        interface
            .addresses
            .iter()
            .map(|net| text(&net.value.to_string()))
            .collect(),
    );
    if let Some(mac) = interface.mac {
        section.key("mac", text(&mac.value.to_string()));
    }
    if let Some(mtu) = interface.mtu {
        section.key("mtu", mtu.value);
    }
    let keys: Vec<String> = section
        .keys
        .iter()
        .map(|(key, value)| format!("{key} = {value}"))
        .collect();
    format!("{{ {} }}", keys.join(", "))
}

fn route(route: &Route) -> String {
    let way = match &route.way {
        Way::Via(gateways) => {
            let gateways: Vec<String> = gateways.iter().map(ToString::to_string).collect();
            format!("via {}", gateways.join(" "))
        }
        Way::Blackhole => "blackhole".to_owned(),
        Way::Unreachable => "unreachable".to_owned(),
        Way::Prohibit => "prohibit".to_owned(),
    };
    format!("{} {way}", route.to)
}

fn link_section(link: &Link) -> Section {
    let mut section = Section {
        kind: "link",
        name: format!("{} - {}", link.from.value, link.to.value),
        keys: Vec::new(),
        lines: None,
    };
    section
        .key("from", text(&link.from))
        .key("to", text(&link.to));
    if link.vlan != 0 {
        section.key("vlan", link.vlan);
    }
    if let Some(identifier) = link.identifier {
        section.key("identifier", identifier.value);
    }
    section
}

fn chain_section(chain: &Chain) -> Section {
    let mut section = Section::new("chain", &chain.name);
    section.key("at", text(&chain.at));
    let group = |group: &Vec<crate::values::At<String>>| {
        let names: Vec<String> = group.iter().map(|name| text(name)).collect();
        match names.as_slice() {
            [one] => one.clone(),
            _ => format!("[{}]", names.join(", ")),
        }
    };
    let through: Vec<String> = chain.through.iter().map(group).collect();
    section.key("through", format!("[{}]", through.join(", ")));
    if !chain.select.is_empty() {
        section.key("select", selections(&chain.select));
    }
    section
}

fn file_section(file: &File) -> Section {
    let mut section = Section::new("file", &file.name);
    section.key("text", text(&file.text));
    section.lines = Some(file.text.lines().map(str::to_owned).collect());
    section
}

fn selections(list: &[Selection]) -> String {
    let list: Vec<String> = list.iter().map(selection).collect();
    format!("[{}]", list.join(", "))
}

fn selection(one: &Selection) -> String {
    let mut keys = Vec::new();
    let mut key = |key: &str, value: Option<String>| {
        keys.extend(value.map(|value| format!("{key} = {}", text(&value))))
    };
    key(
        "protocol",
        one.protocol.map(|number| {
            let known = weir_value::PROTOCOLS.iter().find(|(_, one)| *one == number);
            known.map_or_else(|| number.to_string(), |(name, _)| (*name).to_owned())
        }),
    );
    key("from", one.from.map(|net| net.to_string()));
    key("to", one.to.map(|net| net.to_string()));
    key("from_port", one.from_port.map(|ports| ports.to_string()));
    key("port", one.port.map(|ports| ports.to_string()));
    match keys.is_empty() {
        true => "{}".to_owned(),
        false => format!("{{ {} }}", keys.join(", ")),
    }
}

fn workload_section(workload: &Workload) -> Section {
    let mut section = Section::new("workload", &workload.name);
    section
        .key("subnet", text(&workload.subnet))
        .key("edge", text(&workload.edge))
        .key("device", text(&workload.device));
    match workload.mac {
        Station::Made => {}
        Station::Given(mac) => drop(section.key("mac", text(&mac.value.to_string()))),
        Station::Device(_) => drop(section.key("mac", text(DEVICE))),
        Station::Any => drop(section.key("mac", text(ANY))),
    }
    match &workload.addresses {
        Addresses::Any => drop(section.key("address", text(ANY))),
        Addresses::Given(list) => {
            section.list(
                "address",
                list.iter()
                    .map(|one| text(&one.value.to_string()))
                    .collect(),
            );
        }
    }
    match &workload.vlan {
        Vlan::Access(0) => {}
        Vlan::Access(vlan) => drop(section.key("vlan", vlan)),
        Vlan::Trunk(list) => {
            let list: Vec<String> = list.iter().map(ToString::to_string).collect();
            section.key("vlan", format!("[{}]", list.join(", ")));
        }
    }
    if workload.external {
        section.key("external", true);
    }
    let allow = workload.allow.iter().map(|one| text(one.name()));
    section.list("allow", allow.collect());
    let groups = workload.groups.iter().map(|name| text(name));
    section.list("groups", groups.collect());
    section
}

/// A basic string (TOML 1.0).
fn text(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A key, in quotes unless it needs none.
fn bare(key: &str) -> String {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    match !key.is_empty() && key.bytes().all(is_plain) {
        true => key.to_owned(),
        false => text(key),
    }
}

fn inline(value: &Value) -> String {
    match value {
        Value::String(one) => text(one),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => float(*number),
        Value::Boolean(flag) => flag.to_string(),
        Value::Datetime(time) => time.to_string(),
        Value::Array(list) => {
            let list: Vec<String> = list.iter().map(inline).collect();
            format!("[{}]", list.join(", "))
        }
        Value::Table(table) => {
            let keys: Vec<String> = table
                .iter()
                .map(|(key, value)| format!("{} = {}", bare(key), inline(value)))
                .collect();
            format!("{{ {} }}", keys.join(", "))
        }
    }
}

fn float(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let text = number.to_string();
    match text.contains(['.', 'e']) {
        true => text,
        false => format!("{text}.0"),
    }
}

/// What became of something from one document to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// It is new.
    Added,
    /// It is gone.
    Removed,
    /// It is there in both, and not the same.
    Changed,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Change::Added => "added",
            Change::Removed => "removed",
            Change::Changed => "changed",
        })
    }
}

/// Something that is not the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Different {
    /// What became of it.
    pub change: Change,
    /// What it is: `edge`, `tenant`, `network`, `subnet`, `function`, `link`, `group`, `workload`.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// In words: keys and what they are, or were and are.
    pub what: Vec<String>,
}

/// A network that is not the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DifferentNetwork {
    /// The network itself.
    #[serde(flatten)]
    pub network: Different,
    /// Its parts, in the order of the document, those that are gone last.
    pub parts: Vec<Different>,
}

/// What two documents differ in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Diff {
    /// Edges.
    pub edges: Vec<Different>,
    /// Tenants.
    pub tenants: Vec<Different>,
    /// Networks.
    pub networks: Vec<DifferentNetwork>,
}

impl Diff {
    /// Whether both say the same, but for the version.
    pub fn is_empty(&self) -> bool {
        self.edges.is_empty() && self.tenants.is_empty() && self.networks.is_empty()
    }
}

impl fmt::Display for Diff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |f: &mut fmt::Formatter<'_>, indent: &str, one: &Different| {
            let what = match one.what.as_slice() {
                [] => String::new(),
                what => format!(" ({})", what.join(", ")),
            };
            writeln!(f, "{indent}{} {} {}{what}", one.kind, one.name, one.change)
        };
        for one in self.edges.iter().chain(&self.tenants) {
            line(f, "", one)?;
        }
        for one in &self.networks {
            line(f, "", &one.network)?;
            for part in &one.parts {
                line(f, "  ", part)?;
            }
        }
        Ok(())
    }
}

/// What `after` has otherwise than `before`.
pub fn diff(before: &Document, after: &Document) -> Diff {
    let edges = |document: &Document| document.edges.iter().map(edge_section).collect::<Vec<_>>();
    let tenants = |document: &Document| {
        let names = document.tenants.iter();
        names
            .map(|one| Section::new("tenant", &one.name))
            .collect::<Vec<_>>()
    };
    let old: BTreeMap<&str, &Network> = by_name(before);
    let new: BTreeMap<&str, &Network> = by_name(after);
    let mut networks = Vec::new();
    for network in &after.networks {
        let was = old.get(network.name.as_str());
        let own = |network: &Network| vec![network_section(network)];
        let head = compare(&was.map_or_else(Vec::new, |was| own(was)), &own(network));
        let inner = |network: &Network| parts(network).collect::<Vec<_>>();
        // Of a network that is new its parts are no news.
        let inside = match was {
            Some(was) => compare(&inner(was), &inner(network)),
            None => Vec::new(),
        };
        let head = head.into_iter().next();
        if head.is_some() || !inside.is_empty() {
            networks.push(DifferentNetwork {
                network: head.unwrap_or_else(|| Different {
                    change: Change::Changed,
                    kind: "network",
                    name: network.name.value.clone(),
                    what: Vec::new(),
                }),
                parts: inside,
            });
        }
    }
    for network in before
        .networks
        .iter()
        .filter(|one| !new.contains_key(one.name.as_str()))
    {
        networks.push(DifferentNetwork {
            network: Different {
                change: Change::Removed,
                kind: "network",
                name: network.name.value.clone(),
                what: Vec::new(),
            },
            parts: Vec::new(),
        });
    }
    Diff {
        edges: compare(&edges(before), &edges(after)),
        tenants: compare(&tenants(before), &tenants(after)),
        networks,
    }
}

fn by_name(document: &Document) -> BTreeMap<&str, &Network> {
    document
        .networks
        .iter()
        .map(|one| (one.name.as_str(), one))
        .collect()
}

fn compare(before: &[Section], after: &[Section]) -> Vec<Different> {
    let key = |section: &Section| (section.kind, section.name.clone());
    let old: BTreeMap<_, &Section> = before.iter().map(|one| (key(one), one)).collect();
    let new: BTreeSet<_> = after.iter().map(key).collect();
    let of = |change, section: &Section, what| Different {
        change,
        kind: section.kind,
        name: section.name.clone(),
        what,
    };
    let told = |section: &Section| {
        if let Some(lines) = &section.lines {
            return vec![format!("{} lines", lines.len())];
        }
        let keys = section
            .keys
            .iter()
            .filter(|(key, _)| !["name", "from", "to"].contains(&key.as_str()));
        keys.map(|(key, value)| format!("{key} {value}"))
            .collect::<Vec<_>>()
    };
    let mut found = Vec::new();
    for section in after {
        match old.get(&key(section)) {
            None => found.push(of(Change::Added, section, told(section))),
            Some(was) if was.keys == section.keys => {}
            Some(was) => {
                let what = match (&was.lines, &section.lines) {
                    (Some(was), Some(is)) => changed_lines(was, is),
                    _ => differences(&was.keys, &section.keys),
                };
                found.push(of(Change::Changed, section, what));
            }
        }
    }
    for section in before.iter().filter(|one| !new.contains(&key(one))) {
        found.push(of(Change::Removed, section, Vec::new()));
    }
    found
}

/// Most lines of a file that a difference quotes.
const MOST_LINES: usize = 12;

/// Lines that only one of two texts has, as `diff` marks them.
fn changed_lines(before: &[String], after: &[String]) -> Vec<String> {
    let mut counts: BTreeMap<&str, i64> = BTreeMap::new();
    for line in before {
        *counts.entry(line.trim_end()).or_default() -= 1;
    }
    for line in after {
        *counts.entry(line.trim_end()).or_default() += 1;
    }
    let mut found = Vec::new();
    for (lines, sign) in [(before, '-'), (after, '+')] {
        for line in lines {
            let left = counts.entry(line.trim_end()).or_default();
            if *left != 0 && (*left < 0) == (sign == '-') {
                *left -= left.signum();
                found.push(format!("{sign} {}", line.trim()));
            }
        }
    }
    match found.len() {
        0 => vec!["its lines in another order, or other spaces".to_owned()],
        many if many > MOST_LINES => {
            found.truncate(MOST_LINES);
            found.push(format!("and {} more lines", many - MOST_LINES));
            found
        }
        _ => found,
    }
}

fn differences(before: &[(String, String)], after: &[(String, String)]) -> Vec<String> {
    let old: BTreeMap<&String, &String> = before.iter().map(|(key, value)| (key, value)).collect();
    let new: BTreeMap<&String, &String> = after.iter().map(|(key, value)| (key, value)).collect();
    let all: BTreeSet<&String> = old.keys().chain(new.keys()).copied().collect();
    let say = |key: &String| match (old.get(key), new.get(key)) {
        (Some(was), Some(is)) if was != is => Some(format!("{key} {was} -> {is}")),
        (None, Some(is)) => Some(format!("{key} {is}")),
        (Some(was), None) => Some(format!("no {key}, was {was}")),
        _ => None,
    };
    all.into_iter().filter_map(say).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::parse;

    const TEXT: &str = r#"
version = 9
[[edge]]
name = "e1"
underlay = ["192.0.2.1", "2001:db8::1"]
device = "eth0"
mtu = 1600
tunnel = "gre"
accepts = ["gre", "kernel-vxlan"]
[[tenant]]
name = "red"
[[network]]
name = "shop"
tenant = "red"
mtu = 1400
[[network.subnet]]
name = "web"
prefix = ["10.1.0.0/24", "fd00:1::/64"]
gateway = "10.1.0.1"
identifier = 7
unknown = "flood"
storm = 0
age = 60
[[network.function]]
name = "gw"
kind = "router"
home = "e1"
interface = [{ name = "web", address = ["10.1.0.1/24", "fd00:1::1/64"], mac = "02:00:00:00:00:01", mtu = 1300 }]
route = ["0.0.0.0/0 via 10.1.0.2 10.1.0.3", "10.9.0.0/16 blackhole", "unreachable 10.8.0.0/16", "fd00:8::/32 prohibit"]
[[network.function]]
name = "wall"
kind = "filter"
rules = ["deny from \"x\"\\\n", 'allow']
fraction = 2.0
small = 1e-30
when = 1979-05-27T07:32:00Z
flag = true
[network.function.sets]
"odd key" = { file = "a\tb\u0001", list = [1, [2]] }
[[network.link]]
from = "web"
to = "gw.web"
vlan = 5
identifier = 8
[[network.chain]]
name = "look"
at = "gw.web"
through = ["wall", ["one", "two"]]
select = [{ protocol = "tcp", from = "10.1.0.0/24", port = "443" }, { protocol = "99" }, { protocol = "udp", to = "fd00:1::/64", from_port = "1024-65535" }, {}]
[[network.file]]
name = "lists/a.weir"
text = "one\n\ttwo \"x\"\n"
[[network.workload]]
name = "w1"
subnet = "web"
edge = "e1"
device = "tap1"
mac = "02:00:00:00:00:07"
address = ["10.1.0.7", "fd00:1::7"]
vlan = 7
[[network.workload]]
name = "w2"
subnet = "web"
edge = "e1"
device = "tap2"
mac = "any"
address = "any"
vlan = [1, 2]
[[network.workload]]
name = "out"
subnet = "web"
edge = "e1"
device = "eth1"
external = true
"#;

    #[test]
    fn what_is_written_is_read_again() {
        let document = parse(TEXT, "net.toml").unwrap_or_else(|errors| panic!("{errors}"));
        let written = export(&document);
        let again = parse(&written, "written").unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!(again, document);
        assert_eq!(export(&again), written);
        assert!(diff(&document, &again).is_empty());
    }

    #[test]
    fn every_key_counts() {
        let document = parse(TEXT, "net.toml").expect("read");
        let written = export(&document);
        // Each line that can be left out is missed.
        let mut found = 0;
        for (at, line) in written.lines().enumerate() {
            let rest: Vec<&str> = written
                .lines()
                .enumerate()
                .filter(|(n, _)| *n != at)
                .map(|(_, line)| line)
                .collect();
            let Ok(other) = parse(&rest.join("\n"), "less") else {
                continue;
            };
            if line.is_empty() || line.starts_with("version") || line.starts_with("[[") {
                continue;
            }
            found += 1;
            // A way out has any address unless it says otherwise.
            let of_way_out = written.lines().position(|one| one == "device = \"eth1\"");
            let is_any = line.ends_with("= \"any\"") && of_way_out < Some(at);
            // Workloads are on the only edge there is.
            let is_default = is_any || line == "edge = \"e1\"";
            assert_eq!(diff(&document, &other).is_empty(), is_default, "{line}");
        }
        assert!(found > 20, "{found}");
    }

    #[test]
    fn differences_are_told_in_words() {
        let before = parse(TEXT, "net.toml").expect("read");
        let text = TEXT
            .replace("mtu = 1400\n", "")
            .replace("device = \"tap1\"", "device = \"tap9\"")
            .replace("name = \"w2\"", "name = \"w3\"")
            .replace("mtu = 1600", "mtu = 1700")
            .replace("one\\n", "three\\n");
        let after = parse(
            &format!("{text}[[network]]\nname = \"new\"\ntenant = \"red\"\n"),
            "net.toml",
        )
        .expect("read");
        assert_eq!(
            diff(&before, &after).to_string(),
            "\
edge e1 changed (mtu 1600 -> 1700)
network shop changed (no mtu, was 1400)
  file lists/a.weir changed (- one, + three)
  workload w1 changed (device \"tap1\" -> \"tap9\")
  workload w3 added (subnet \"web\", edge \"e1\", device \"tap2\", mac \"any\", address \"any\", vlan [1, 2])
  workload w2 removed
network new added (tenant \"red\")
"
        );
        assert_eq!(
            diff(&after, &before).networks[1].network.change,
            Change::Removed
        );
    }
}
