//! The configuration of an edge as it is written: sections, names, places. What it means is found out by `plan`.
//!
//! [`parse`] reports all that is wrong with one text at once: syntax, types, unknown keys, names that are taken or lead nowhere.

use std::collections::{BTreeMap, BTreeSet};

use weir_bpf::abi::panel;
use weir_functions::joined::Joined;
use weir_functions::kind::suggest;
use weir_functions::plan::ChecksumMode;
use weir_functions::read::{DEFAULT_EDGE, Section, Spanned, one_of, taken};
use weir_policy::ast::Span;
use weir_policy::{Diagnostics, Report};

use crate::attach::Attach;
use crate::edge::{MapType, Mode, SharedMap};

/// A configuration that was read.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of the edge; [`DEFAULT_EDGE`] unless `edge` says another one.
    pub edge: String,
    /// The edge's virtual networks, if it has any.
    pub networks: Option<Networks>,
    pub(crate) source: Joined,
    pub(crate) ports: Vec<Port>,
    pub(crate) functions: Vec<Function>,
    pub(crate) links: Vec<Link>,
    pub(crate) maps: Vec<Map>,
    pub(crate) hooks: Vec<Hook>,
}

/// Where the virtual networks of an edge are declared. `weir_network` reads them.
#[derive(Clone, Debug)]
pub enum Networks {
    /// In the document of this name.
    File(Spanned<String>),
    /// In the table `[networks]` of the configuration.
    Here,
}

#[derive(Clone, Debug)]
pub(crate) struct Port {
    pub(crate) name: Spanned<String>,
    pub(crate) device: Spanned<String>,
    /// `hook` and `mode` in one.
    pub(crate) mode: Mode,
    /// Where the hook is named, if it is.
    pub(crate) hook: Option<Span>,
    pub(crate) checksums: Option<ChecksumMode>,
    pub(crate) metadata: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Function {
    pub(crate) name: Spanned<String>,
    pub(crate) kind: Spanned<String>,
    pub(crate) fresh: bool,
    pub(crate) maps: Vec<Share>,
    /// Keys of its kind.
    pub(crate) keys: toml::Table,
    /// Where they stand, by path.
    pub(crate) places: BTreeMap<String, Span>,
}

/// A map of an object and the shared map it is.
pub(crate) type Share = (Spanned<String>, Spanned<String>);

#[derive(Clone, Debug)]
pub(crate) struct Link {
    /// Port or function.
    pub(crate) from: Spanned<String>,
    /// Output of the function, if one is named.
    pub(crate) out: Option<Spanned<String>>,
    pub(crate) to: Spanned<String>,
    pub(crate) guard: Option<Spanned<u32>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Map {
    pub(crate) name: Spanned<String>,
    pub(crate) kind: MapType,
    pub(crate) key: u32,
    pub(crate) value: u32,
    pub(crate) entries: u32,
    pub(crate) fresh: bool,
}

impl Map {
    /// The map that is shared.
    pub(crate) fn shared(&self) -> SharedMap {
        SharedMap {
            name: self.name.value.clone(),
            kind: self.kind,
            key: self.key,
            value: self.value,
            entries: self.entries,
            fresh: self.fresh,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Hook {
    pub(crate) name: Spanned<String>,
    pub(crate) file: Spanned<String>,
    pub(crate) program: Spanned<String>,
    pub(crate) attach: Attach,
    pub(crate) maps: Vec<Share>,
}

/// Words that links name and that are neither ports nor functions.
pub(crate) const WAYS_OUT: [&str; 3] = ["stack", "drop", "tx"];

/// What a link begins at behind the name of a port on tc: packets that leave by it.
pub(crate) const TRANSMIT: &str = "transmit";

/// Largest `guard`.
const GUARD_MOST: u32 = 0xffff;

/// Longest name of anything, in bytes.
const NAME_MAX: usize = 32;

/// Reads a configuration. `name` is what messages call the text, usually its path.
///
/// # Errors
/// All that is wrong with the text.
pub fn parse(text: &str, name: &str) -> Result<Config, Diagnostics> {
    parse_joined(Joined::new(name, text))
}

/// Reads a configuration that may consist of several files.
///
/// # Errors
/// All that is wrong with the text.
pub fn parse_joined(source: Joined) -> Result<Config, Diagnostics> {
    let mut report = Report::default();
    let mut config = Config {
        edge: DEFAULT_EDGE.to_owned(),
        networks: None,
        source: Joined::default(),
        ports: Vec::new(),
        functions: Vec::new(),
        links: Vec::new(),
        maps: Vec::new(),
        hooks: Vec::new(),
    };
    if let Some(table) = source.table(&mut report) {
        let start = Span::default();
        let root = Section::new("the configuration", table.get_ref(), start);
        config.read(root, &mut report);
        config.check_names(&mut report);
        config.check_links(&mut report);
    }
    match report.has_errors() {
        true => Err(source.finish(report, &[]).0),
        false => {
            config.source = source;
            Ok(config)
        }
    }
}

impl Config {
    /// Whether it declares a graph: ports, and what packets of theirs meet. One with networks need not.
    #[must_use]
    pub fn has_graph(&self) -> bool {
        !self.ports.is_empty()
    }

    /// Whether it declares a port of that name.
    #[must_use]
    pub fn has_port(&self, name: &str) -> bool {
        self.ports.iter().any(|port| port.name.value == name)
    }

    fn read(&mut self, mut root: Section<'_, '_>, report: &mut Report) {
        if let Some(edge) = root.text("edge", report) {
            check_name(&edge, "the edge", report);
            self.edge = edge.value;
        }
        self.networks = match root.table("networks", "the networks") {
            Some(_) => Some(Networks::Here),
            None => root.text("networks", report).map(Networks::File),
        };
        for section in root.sections("port", "a port", report) {
            self.ports.extend(read_port(section, report));
        }
        for section in root.sections("map", "a map", report) {
            self.maps.extend(read_map(section, report));
        }
        for section in root.sections("function", "a function", report) {
            self.functions.extend(read_function(section, report));
        }
        for section in root.sections("hook", "a hook", report) {
            self.hooks.extend(read_hook(section, report));
        }
        for section in root.sections("link", "a link", report) {
            self.links.extend(read_link(section, report));
        }
        root.finish(report);
        let is_graph = self.networks.is_none() || !self.functions.is_empty();
        if self.ports.is_empty() && is_graph && !report.has_errors() {
            report
                .error(0, Span::default(), "the configuration has no port")
                .help("add `[[port]]` with `name` and `device`: packets come in there");
        }
    }

    /// Names of functions that packets that leave by a port can come to.
    pub(crate) fn transmitted(&self) -> BTreeSet<&str> {
        let is_port = |name: &str| self.ports.iter().any(|port| port.name.value == name);
        let starts = self.links.iter().filter(|link| {
            let out = link.out.as_ref();
            is_port(&link.from.value) && out.is_some_and(|out| out.value == TRANSMIT)
        });
        let mut met = BTreeSet::new();
        let mut open: Vec<&str> = starts.map(|link| link.to.value.as_str()).collect();
        while let Some(name) = open.pop() {
            // A port as a target is its device: packets leave the graph there.
            if !is_port(name) && met.insert(name) {
                let from = self.links.iter().filter(|link| link.from.value == name);
                open.extend(from.map(|link| link.to.value.as_str()));
            }
        }
        met
    }

    fn check_names(&self, report: &mut Report) {
        let ports = self.ports.iter().map(|port| (&port.name, "port"));
        let functions = self.functions.iter().map(|one| (&one.name, "function"));
        let mut seen = BTreeMap::new();
        for (name, what) in ports.chain(functions) {
            check_name(name, what, report);
            if WAYS_OUT.contains(&name.value.as_str()) {
                let text = format!(
                    "no {what} can be named `{}`: links use that word",
                    name.value
                );
                report.error(0, name.span, text).help("choose another name");
            }
            taken(
                &mut seen,
                &name.value,
                name.span,
                "names of ports and functions must be unique",
                report,
            );
        }
        let mut devices = BTreeMap::new();
        for port in &self.ports {
            let device = &port.device;
            if let Err(invalid) = weir_value::interface(&device.value) {
                report.error(0, device.span, invalid.to_string());
            }
            taken(
                &mut devices,
                &device.value,
                device.span,
                "an interface is one port",
                report,
            );
        }
        if let Some(port) = self.ports.get(panel::PORTS - 1) {
            let text = format!("an edge has at most {} ports", panel::PORTS - 1);
            report.error(0, port.name.span, text);
        }
        let maps: Vec<_> = self.maps.iter().map(|map| &map.name).collect();
        let hooks: Vec<_> = self.hooks.iter().map(|hook| &hook.name).collect();
        for (names, what) in [(maps, "map"), (hooks, "hook")] {
            let mut seen = BTreeMap::new();
            for name in names {
                check_name(name, what, report);
                taken(
                    &mut seen,
                    &name.value,
                    name.span,
                    &format!("names of {what}s must be unique"),
                    report,
                );
            }
        }
        self.check_shares(report);
    }

    /// Shared maps that are named but not declared.
    fn check_shares(&self, report: &mut Report) {
        let known: Vec<&str> = self
            .maps
            .iter()
            .map(|map| map.name.value.as_str())
            .collect();
        let functions = self.functions.iter().flat_map(|one| &one.maps);
        let hooks = self.hooks.iter().flat_map(|one| &one.maps);
        for (own, shared) in functions.chain(hooks) {
            if !known.contains(&shared.value.as_str()) {
                let help = match known.is_empty() {
                    true => "declare it: `[[map]]` with `name`, `type`, `key`, `value`, `entries`"
                        .to_owned(),
                    false => suggest(&shared.value, &known),
                };
                let text = format!("no map is named `{}`", shared.value);
                report.error(0, shared.span, text).help(help);
            }
            if own.value.starts_with("weir_") {
                let text = format!(
                    "`{}` belongs to the edge and cannot be shared by name",
                    own.value
                );
                report.error(0, own.span, text).help("leave it out");
            }
        }
    }

    /// Names in links, as far as they are ports and functions; outputs are known when functions are planned.
    fn check_links(&self, report: &mut Report) {
        let ports: Vec<&str> = self
            .ports
            .iter()
            .map(|port| port.name.value.as_str())
            .collect();
        let functions: Vec<&str> = self
            .functions
            .iter()
            .map(|one| one.name.value.as_str())
            .collect();
        let from: Vec<&str> = ports.iter().chain(&functions).copied().collect();
        let to: Vec<&str> = from.iter().chain(&WAYS_OUT).copied().collect();
        let mut seen: BTreeMap<(&str, &str), Span> = BTreeMap::new();
        for link in &self.links {
            let name = link.from.value.as_str();
            let dangling = |word: &str, known: &[&str]| {
                (
                    format!("no port or function is named `{word}`"),
                    suggest(word, known),
                )
            };
            if WAYS_OUT.contains(&name) {
                let text = format!("no packet comes from `{name}`");
                let help = "links begin at a port or at an output of a function";
                report.error(0, link.from.span, text).help(help);
            } else if !from.contains(&name) {
                let (text, help) = dangling(name, &from);
                report.error(0, link.from.span, text).help(help);
            } else if let Some(out) = link.out.as_ref()
                && let Some(port) = self.ports.iter().find(|port| port.name.value == name)
            {
                let received = format!("write `from = \"{name}\"`");
                if out.value != TRANSMIT {
                    let text = format!("the port `{name}` has no output `{}`", out.value);
                    let help = match port.mode {
                        Mode::Tc => format!(
                            "{received} for packets that it receives, `from = \"{name}.{TRANSMIT}\"` for those that leave by it"
                        ),
                        _ => received,
                    };
                    report.error(0, out.span, text).help(help);
                } else if port.mode != Mode::Tc {
                    let text = format!(
                        "the port `{name}` is on XDP, which does not see packets that leave by it"
                    );
                    let help = format!(
                        "add `hook = \"tc\"` to the port, or {received} for packets that it receives"
                    );
                    let draft = report.error(0, out.span, text);
                    draft.help(help).also(0, port.name.span, "the port");
                }
            }
            let end = link.to.value.as_str();
            if let Some((function, _)) = end.split_once('.').filter(|(one, _)| from.contains(one)) {
                let text = format!("a link leads to a function, not to an output: `{end}`");
                let help = format!("write `to = \"{function}\"`");
                report.error(0, link.to.span, text).help(help);
            } else if !to.contains(&end) {
                let (text, help) = dangling(end, &to);
                report.error(0, link.to.span, text).help(help);
            }
            let out = link.out.as_ref().map_or("next", |out| &out.value);
            match seen.get(&(name, out)) {
                None => drop(seen.insert((name, out), link.from.span)),
                Some(first) => {
                    let output = match (ports.contains(&name), out) {
                        (true, TRANSMIT) => format!("`{name}.{TRANSMIT}`"),
                        (true, _) => format!("the port `{name}`"),
                        (false, _) => format!("the output `{out}` of `{name}`"),
                    };
                    report
                        .error(0, link.from.span, format!("two links leave {output}"))
                        .help("an output leads to one place; copies go through a function of kind `redirect`")
                        .also(0, *first, "the first one");
                }
            }
        }
    }
}

fn read_port(mut section: Section<'_, '_>, report: &mut Report) -> Option<Port> {
    let name = section.need("name", report);
    let device = section.need("device", report);
    let modes = [Mode::Native, Mode::Generic, Mode::Offload].map(|mode| (mode.text(), mode));
    let hook = section.text("hook", report);
    let hook_span = hook.as_ref().map(|hook| hook.span);
    let hooks = [("xdp", None), ("tc", Some(Mode::Tc))];
    let hook = one_of(hook, "a port cannot be on", &hooks, report).flatten();
    let mode = section.text("mode", report);
    let mode_span = mode.as_ref().map(|mode| mode.span);
    let mode = one_of(mode, "a port has no mode", &modes, report);
    let sums = [
        ("complete", ChecksumMode::Complete),
        ("offloaded", ChecksumMode::Offloaded),
    ];
    let checksums = section.text("checksums", report);
    let checksums_span = checksums.as_ref().map(|checksums| checksums.span);
    let checksums = one_of(checksums, "checksums cannot be", &sums, report);
    let metadata = section.flag("metadata", report);
    if hook.is_some() {
        if let Some(span) = mode_span {
            let help = "leave `mode` out: it says where XDP runs";
            let text = "a port with `hook = \"tc\"` has no `mode`";
            report.error(0, span, text).help(help);
        }
        if let Some(span) = checksums_span {
            let help = "leave `checksums` out: on tc the kernel says of every packet whether its checksum is finished";
            let text = "a port with `hook = \"tc\"` has no `checksums`";
            report.error(0, span, text).help(help);
        }
    }
    section.finish(report);
    Some(Port {
        name: name?,
        device: device?,
        mode: hook.or(mode).unwrap_or_default(),
        hook: hook_span,
        checksums,
        metadata: metadata.is_some_and(|metadata| metadata.value),
    })
}

fn read_map(mut section: Section<'_, '_>, report: &mut Report) -> Option<Map> {
    let name = section.need("name", report);
    let kinds = MapType::ALL.map(|kind| (kind.text(), kind));
    let kind = section.need("type", report);
    let kind = one_of(
        kind,
        "no map that can be shared has the type",
        &kinds,
        report,
    );
    let key = section.need_count("key", 512, report);
    let value = section.need_count("value", 1 << 20, report);
    let entries = section.need_count("entries", 1 << 28, report);
    let fresh = section.flag("fresh", report);
    let at = section.span;
    section.finish(report);
    let (kind, key) = (kind?, key?);
    let is_array = matches!(kind, MapType::Array | MapType::PercpuArray);
    if is_array && key != 4 {
        let text = format!(
            "the key of a map of type `{}` has 4 bytes, not {key}",
            kind.text()
        );
        report.error(0, at, text).help("write `key = 4`");
    }
    Some(Map {
        name: name?,
        kind,
        key,
        value: value?,
        entries: entries?,
        fresh: fresh.is_some_and(|fresh| fresh.value),
    })
}

fn read_function(mut section: Section<'_, '_>, report: &mut Report) -> Option<Function> {
    let name = section.need("name", report);
    let kind = section.need("kind", report);
    let fresh = section
        .flag("fresh", report)
        .is_some_and(|fresh| fresh.value);
    let maps = section.pairs("maps", report);
    let (keys, places) = section.rest(report);
    Some(Function {
        name: name?,
        kind: kind?,
        fresh,
        maps,
        keys,
        places,
    })
}

fn read_hook(mut section: Section<'_, '_>, report: &mut Report) -> Option<Hook> {
    let name = section.need("name", report);
    let file = section.need("file", report);
    let program = section.need("program", report);
    let attach = section.need("attach", report);
    let maps = section.pairs("maps", report);
    section.finish(report);
    let attach = attach.and_then(|text| match Attach::parse(&text.value) {
        Ok(attach) => Some(attach),
        Err((message, help)) => {
            report.error(0, text.span, message).help(help);
            None
        }
    });
    Some(Hook {
        name: name?,
        file: file?,
        program: program?,
        attach: attach?,
        maps,
    })
}

fn read_link(mut section: Section<'_, '_>, report: &mut Report) -> Option<Link> {
    let from = section.need("from", report);
    let to = section.need("to", report);
    let guard = section.count("guard", GUARD_MOST, report);
    section.finish(report);
    let (from, out) = from?.split();
    Some(Link {
        from,
        out,
        to: to?,
        guard,
    })
}

/// Names become parts of paths and of messages.
fn check_name(name: &Spanned<String>, what: &str, report: &mut Report) {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    let text = name.value.as_str();
    if text.is_empty() || text.len() > NAME_MAX || !text.bytes().all(is_plain) {
        let help = format!("names are letters, digits, `-` and `_`, up to {NAME_MAX}");
        report
            .error(
                0,
                name.span,
                format!(
                    "`{text}` cannot be the name of a {}",
                    what.trim_start_matches("the ")
                ),
            )
            .help(help);
    }
}
