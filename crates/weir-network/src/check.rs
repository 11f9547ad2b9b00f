//! Document -> [`Networks`]: what is written fits together, and numbers that all edges share are given out.
//!
//! All that is wrong with a document is reported at once, each with its place. Everything behind works on what passed here.

mod addresses;
mod balancers;
mod chains;
mod edges;
mod helpers;
mod names;
mod routes;
mod shape;

use std::collections::{BTreeMap, BTreeSet};

use weir_bpf::abi::filter::feature;
use weir_functions::balancer::{self, Balancer};
use weir_functions::kind::{self, EdgePort, Files, FunctionError, Planned, Request};
use weir_policy::ast::Span;
use weir_policy::{Diagnostics, Report};

pub use balancers::BALANCER;
pub(crate) use shape::Shape;

use crate::files::Carried;
use crate::graph::{End, Graph};
use crate::model::{Document, Function, Network, SIDES};
use crate::plan::shared_slot;
use crate::values::hash;

/// The first identifier that is given out.
pub const FIRST_IDENTIFIER: u32 = 4096;

/// A document that fits together.
#[derive(Clone, Debug)]
pub struct Networks {
    /// What is written.
    pub document: Document,
    /// The same with chains as functions and links, if there are any.
    expanded: Option<Document>,
    /// Of each network.
    pub(crate) graphs: Vec<Graph>,
    /// Of each network's subnets.
    pub(crate) identifiers: Vec<Vec<u32>>,
    /// Of each network's links, 0 where it never leaves an edge.
    pub(crate) link_identifiers: Vec<Vec<u32>>,
    /// Of each network's functions, those with programs of their own.
    pub(crate) planned: Vec<Vec<Option<Planned>>>,
}

impl Networks {
    /// What is to be planned: chains are functions and links there.
    pub(crate) fn wanted(&self) -> &Document {
        self.expanded.as_ref().unwrap_or(&self.document)
    }

    /// Of each link of a network whether it leaves an edge, and so has an identifier; `None`: so does a link that a chain made, which nothing in the
    /// document can give one.
    pub fn links_that_leave(&self, network: &str) -> Option<Vec<bool>> {
        let at = |one: &Network| one.name.as_str() == network;
        let at = self.document.networks.iter().position(at)?;
        let written = self.document.networks[at].links.len();
        let leaves = |identifier: &u32| *identifier != 0;
        let (links, made) = self.link_identifiers[at].split_at(written);
        (!made.iter().any(leaves)).then(|| links.iter().map(leaves).collect())
    }

    /// The number of a tenant: the same on every edge and in every version, because it is on the wire.
    pub fn tenant_number(&self, name: &str) -> u32 {
        tenant_number(name)
    }

    /// The identifier of a link; 0: it never leaves an edge.
    pub(crate) fn link_identifier(&self, network: usize, link: usize) -> u32 {
        self.link_identifiers[network][link]
    }
}

pub(crate) fn tenant_number(name: &str) -> u32 {
    (hash(name) as u32).max(1)
}

/// Checks a document and gives numbers out. Also what is allowed and probably not meant.
///
/// # Errors
/// All that is wrong with it.
pub fn check(
    document: Document,
    files: &dyn Files,
) -> Result<(Networks, Diagnostics), Diagnostics> {
    let mut report = Report::default();
    let mut texts = Vec::new();
    let expanded = chains::expand(&document, &mut report);
    let wanted = expanded.as_ref().unwrap_or(&document);
    // Functions of a chain that was not put in are linked to nothing.
    let is_whole = !report.has_errors();
    names::check(wanted, is_whole, &mut report);
    let graphs: Vec<Graph> = (wanted.networks.iter())
        .map(|network| Graph::of(wanted, network))
        .collect();
    let shapes: Vec<Shape> = (wanted.networks.iter().zip(&graphs))
        .map(|(network, graph)| shape::segments(network, graph, &mut report))
        .collect();
    let planned = planned(wanted, &graphs, files, &mut report, &mut texts);
    for (at, network) in wanted.networks.iter().enumerate() {
        shape::paths(network, &graphs[at], &mut report);
        shape::homes(wanted, network, &graphs[at], &planned[at], &mut report);
    }
    addresses::check(wanted, &graphs, &shapes, &mut report);
    routes::check(wanted, &mut report);
    edges::check(wanted, &graphs, &mut report);
    helpers::check(wanted, &mut report);
    let (identifiers, link_identifiers) = identifiers(wanted, &graphs);
    let failed = report.has_errors();
    let (errors, warnings) = document.source.finish(report, &texts);
    if failed {
        return Err(errors);
    }
    let networks = Networks {
        document,
        expanded,
        graphs,
        identifiers,
        link_identifiers,
        planned,
    };
    Ok((networks, warnings))
}

/// Whether packets of a link may have to leave an edge: an end has a home, and the other end has not the same one.
pub(crate) fn leaves(graph: &Graph, ends: [End; 2]) -> bool {
    let homes = ends.map(|end| match end {
        End::Subnet(_) => None,
        End::Side(function, _) => graph.homes[function],
    });
    homes[0] != homes[1]
}

/// Given ones as they are; others get the next free number, in the order of the document.
fn identifiers(document: &Document, graphs: &[Graph]) -> (Vec<Vec<u32>>, Vec<Vec<u32>>) {
    let written = document.networks.iter().flat_map(|network| {
        let subnets = network
            .subnets
            .iter()
            .filter_map(|subnet| subnet.identifier);
        subnets.chain(network.links.iter().filter_map(|link| link.identifier))
    });
    let taken: BTreeSet<u32> = written.map(|identifier| identifier.value).collect();
    let mut free = (FIRST_IDENTIFIER..).filter(|number| !taken.contains(number));
    let mut next = || free.next().unwrap_or(0);
    let mut all = (Vec::new(), Vec::new());
    for (network, graph) in document.networks.iter().zip(graphs) {
        let subnets = network.subnets.iter();
        let subnets = subnets.map(|one| one.identifier.map_or_else(&mut next, |given| given.value));
        all.0.push(subnets.collect());
        let links = network.links.iter().zip(&graph.wires).map(|(link, wire)| {
            match (link.identifier, wire) {
                (Some(given), _) => given.value,
                (None, Some(wire)) if leaves(graph, wire.ends) => next(),
                (None, _) => 0,
            }
        });
        all.1.push(links.collect());
    }
    all
}

/// Kinds turn their keys into instances.
fn planned(
    document: &Document,
    graphs: &[Graph],
    files: &dyn Files,
    report: &mut Report,
    texts: &mut Vec<(String, String)>,
) -> Vec<Vec<Option<Planned>>> {
    let mut all = Vec::new();
    for (network, graph) in document.networks.iter().zip(graphs) {
        let mut of_network = Vec::new();
        let files = Carried::new(network, files);
        for (at, function) in network.functions.iter().enumerate() {
            if shared_slot(function).is_some() {
                no_keys(function, report);
            }
            of_network.push(match has_own_program(function) {
                true => plan_one(network, graph, at, &files, report, texts),
                false => None,
            });
        }
        for file in files.unused() {
            report
                .warning(
                    0,
                    file.name.span,
                    format!(
                        "no function of the network names the file `{}`",
                        file.name.value
                    ),
                )
                .help("remove it, or name it in `policy`");
        }
        all.push(of_network);
    }
    all
}

/// Whether a kind turns the keys of a function into an instance.
pub(crate) fn has_own_program(function: &Function) -> bool {
    !function.is_router() && shared_slot(function).is_none()
}

/// Instances that share a program have no keys besides `home`.
fn no_keys(function: &Function, report: &mut Report) {
    for key in function.keys.keys() {
        let place = function
            .places
            .0
            .get(key)
            .copied()
            .unwrap_or(function.name.span);
        let text = format!(
            "a function of kind `{}` has no key `{key}`",
            function.kind.value
        );
        report.error(0, place, text).help("leave it out");
    }
}

pub(crate) fn plan_one(
    network: &Network,
    graph: &Graph,
    at: usize,
    files: &dyn Files,
    report: &mut Report,
    texts: &mut Vec<(String, String)>,
) -> Option<Planned> {
    let function = &network.functions[at];
    // `check` of names says so.
    kind::named(&function.kind)?;
    let is_balancer = function.kind.as_str() == BALANCER;
    if is_balancer && !balancers::keys(function, report) {
        return None;
    }
    let keys = &function.keys;
    let name = instance_name(&network.name, &function.name);
    // `in a` and `in b` of rules: numbers as in weir_vi.room.
    let ports = [(1, SIDES[0]), (2, SIDES[1])].map(|(number, name)| EdgePort {
        number,
        name: name.to_owned(),
        device: name.to_owned(),
    });
    let request = Request {
        name: &name,
        keys,
        files,
        ports: &ports,
        transmits: false,
    };
    match kind::plan(&function.kind, &request) {
        Ok(mut planned) => {
            if is_balancer && let Ok(read) = Balancer::read(&request) {
                balancers::way(network, graph, at, &read, report);
                let maps = &mut planned.instance.maps;
                maps.retain(|map| !balancer::OF_HOST.contains(&&*map.name));
            }
            if let Some(what) = beyond(&planned) {
                report
                    .error(
                        0,
                        function.kind.span,
                        format!(
                            "`{}` {what}, which networks do not support",
                            function.name.value
                        ),
                    )
                    .help(
                        "use it in the graph of an edge, in front of its networks: docs/graph.md",
                    );
                return None;
            }
            for note in &planned.notes {
                report.warning(0, function.name.span, note.clone());
            }
            Some(planned)
        }
        Err(error) => {
            let others = error.others.clone();
            for one in std::iter::once(&error).chain(&others) {
                complain(one, function, files, report, texts);
            }
            None
        }
    }
}

/// What a function with a program of its own is called among those of all networks, in requests to its kind and where it runs.
pub fn instance_name(network: &str, function: &str) -> String {
    format!("{network}/{function}")
}

/// What a function asks for that only XDP has.
fn beyond(planned: &Planned) -> Option<&'static str> {
    if planned.instance.object.for_networks(false).is_none() {
        return Some("is of a kind that runs on devices");
    }
    let constants = &planned.instance.constants;
    let (_, bytes) = constants
        .iter()
        .find(|(symbol, _)| symbol == "weir_filter_features")?;
    let features = u32::from_ne_bytes(bytes.as_slice().try_into().ok()?);
    if features & feature::COOKIE != 0 {
        return Some("answers with SYN cookies");
    }
    (features & feature::CPU != 0).then_some("moves packets to CPUs")
}

/// At the key, or in the line of the file that the key names.
fn complain(
    error: &FunctionError,
    function: &Function,
    files: &dyn Files,
    report: &mut Report,
    texts: &mut Vec<(String, String)>,
) {
    let places: &BTreeMap<String, Span> = &function.places.0;
    let mut place = match error.key.as_deref() {
        None => function.name.span,
        Some("kind") => function.kind.span,
        Some(key) => places.get(key).copied().unwrap_or(function.name.span),
    };
    let mut file = 0;
    if let Some((path, line)) = &error.file
        && let Some(text) = files
            .read(path)
            .ok()
            .and_then(|bytes| String::from_utf8(bytes).ok())
    {
        let start: usize = text
            .split_inclusive('\n')
            .take(line.saturating_sub(1))
            .map(str::len)
            .sum();
        let length = text[start..].lines().next().map_or(0, str::len);
        place = Span {
            start: start as u32,
            end: (start + length) as u32,
        };
        let name = path.display().to_string();
        // Networks may carry different files of one name.
        let is_it = |(known, content): &(String, String)| *known == name && *content == text;
        file = match texts.iter().position(is_it) {
            Some(at) => at as u32 + 1,
            None => {
                texts.push((name, text));
                texts.len() as u32
            }
        };
    }
    let draft = report.error(file, place, error.message.clone());
    if let Some(advice) = &error.advice {
        draft.help(advice.clone());
    }
}
