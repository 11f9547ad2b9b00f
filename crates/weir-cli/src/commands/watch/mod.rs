//! Watching a running edge: `weir top`, `weir capture`, `weir trace`, `weir drops`.
//!
//! All but the first let the edge, its graph and its networks, run the same configuration in programs that tell what packets go through, and go back when they end.
//! Invariant: whatever ends a watcher in order, the edge runs the programs it ran before, unless somebody applied something meanwhile.

pub(crate) mod capture;
pub(crate) mod drops;
mod networks;
mod side;
pub(crate) mod top;
pub(crate) mod trace;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use weir_bpf::abi::{WatchCount, WatchEvent, watch};
use weir_engine::edge::{self, Edge, EdgeError, Form};
use weir_engine::network;
use weir_engine::watch::words::Named;
use weir_engine::watch::{At, Names, Quick, Watcher, Wish, filter};
use weir_functions::kind::Judge;
use weir_graph::EdgePlan;
use weir_kernel::Map;
use weir_policy::Filter;

use self::side::{Place, Side};
use crate::args::watch::{EdgeArgs, PacketArgs};
use crate::failure::Failure;
use crate::output;
use weir_runtime::graph::Record;

/// Between two looks at the ring.
const TICK: Duration = Duration::from_millis(10);

/// Between two looks at whether somebody applied something.
const LOOK: Duration = Duration::from_millis(500);

/// How long the edge is waited for while somebody else changes it.
const PATIENCE: Duration = Duration::from_secs(10);

/// The edge that is meant.
fn edge_name(args: &EdgeArgs) -> Result<String, Failure> {
    match (&args.edge, &args.config) {
        (Some(name), _) => Ok(name.clone()),
        (None, Some(path)) => super::edge::name(path, None),
        (None, None) => {
            let mut running = weir_runtime::edges()?;
            match (running.pop(), running.is_empty()) {
                (None, _) => Err(Failure::Failed(
                    "no edge is running in this network namespace; `weir apply` starts one"
                        .to_owned(),
                )),
                (Some(one), true) => Ok(one),
                (Some(last), false) => Err(Failure::Usage(format!(
                    "several edges are running: select one with --edge ({}, {last})",
                    running.join(", ")
                ))),
            }
        }
    }
}

/// What is asked of a session beside the packets.
struct Asked {
    /// Which stages.
    at: Stages,
    /// Bytes of each packet.
    snap: u32,
}

/// Stages as a user names them.
enum Stages {
    All,
    Entry,
    End,
    Drops,
    /// Behind the function of this name.
    Function(String),
}

/// An edge that is being watched: its graph, its networks, or both.
struct Session {
    parts: Vec<Part>,
    /// What runs as the graph, for who explains drops.
    graph: Option<(Record, EdgePlan)>,
    stop: Arc<AtomicBool>,
    until: Option<Instant>,
}

/// A graph or the networks of an edge: each with its programs, names and events.
struct Part {
    runs: Runs,
    names: Names,
    watcher: Watcher,
    wanted: Wanted,
}

/// Programs that can be watched; dropping it goes back to those that ran before.
enum Runs {
    Graph(Box<Watched>),
    Networks(networks::Watched),
}

/// Which of the events are shown, of those that the kernel was asked for.
struct Wanted {
    filter: Option<Filter>,
    /// Packets that came in by these only; empty: by any.
    ports: BTreeSet<u32>,
    /// Entries stand for the filter alone, if not.
    entries: bool,
    /// Of networks: only there.
    place: Option<Place>,
}

/// An edge that runs programs which can be watched; dropping it goes back to those it ran before.
struct Watched {
    name: String,
    plan: EdgePlan,
    text: String,
    generation: u64,
    is_over: bool,
}

/// What ended a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// A signal, the time, or enough packets.
    Done,
    /// Another configuration was applied, or the edge taken down.
    Applied,
}

impl Session {
    /// Lets the edge run programs that tell, and asks them.
    fn open(args: &EdgeArgs, packets: &PacketArgs, asked: &Asked) -> Result<Session, Failure> {
        let name = edge_name(args)?;
        let networks = networks::Look::of(&name)?;
        let status = match edge::status(&name) {
            Ok(status) => Some(status),
            Err(EdgeError::NotRunning { .. }) if networks.is_some() => None,
            Err(error) => return Err(error.into()),
        };
        let record = status
            .as_ref()
            .map(|status| Record::read(&name, &status.text))
            .transpose()?;
        if let Some(path) = &args.config {
            let planned = super::edge::plan(path, None)?;
            let of_networks = planned.networks.map(|part| part.record.text);
            let is_same = planned.graph.map(|part| part.record) == record
                && of_networks.as_ref() == networks.as_ref().map(|look| &look.text);
            if !is_same {
                return Err(Failure::Usage(format!(
                    "{} is not running: apply it first, or watch the running edge with --edge {name}",
                    path.display()
                )));
            }
        }
        let owner = status.as_ref().and_then(|status| status.watcher);
        let owner = owner.or(networks.as_ref().and_then(|look| look.watcher));
        if let Some(owner) = owner {
            return Err(Failure::Failed(format!(
                "process {owner} is watching edge {name} already: end it first"
            )));
        }
        let plan = record.as_ref().map(Record::plan).transpose()?;
        let graph_side = match (&status, &plan) {
            (Some(status), Some(plan)) => Some(graph_side(status, plan)),
            _ => None,
        };
        let (graph_wish, networks_wish) = wishes(
            packets,
            asked,
            graph_side.as_ref(),
            networks.as_ref().map(|look| &look.side),
        )?;
        // From here on a signal ends the command in order.
        let stop = crate::limits::stop_on_signals()?;
        let mut parts = Vec::new();
        if let (Some((wish, wanted)), Some(side), Some(status), Some(plan)) =
            (graph_wish, graph_side, status, &plan)
        {
            let runs = Runs::Graph(Box::new(Watched::begin(&name, plan, status.text)?));
            let maps = edge::watch_maps(&name)?.ok_or_else(|| {
                Failure::Failed(format!("edge {name} was modified concurrently; retry"))
            })?;
            parts.push(Part::begin(runs, side.names, maps, &wish, wanted)?);
        }
        if let (Some((wish, wanted)), Some(look)) = (networks_wish, networks) {
            let (runs, maps) = networks::Watched::begin(&name)?;
            let runs = Runs::Networks(runs);
            parts.push(Part::begin(runs, look.side.names, maps, &wish, wanted)?);
        }
        Ok(Session {
            parts,
            graph: record.zip(plan),
            stop,
            until: packets.duration.map(|duration| Instant::now() + duration),
        })
    }

    /// Who explains drops of functions of the graph, by name.
    fn judges(&self) -> Result<BTreeMap<String, Box<dyn Judge>>, Failure> {
        match &self.graph {
            Some((record, plan)) => {
                let config = record.config()?;
                Ok(weir_graph::judges(&config, record, &plan.ports))
            }
            None => Ok(BTreeMap::new()),
        }
    }

    /// Hands over events of packets that match with the number of their part, until there is an end to it. `each` says whether to go on.
    fn run(
        &mut self,
        mut each: impl FnMut(usize, &Names, &WatchEvent, &[u8]) -> Result<bool, Failure>,
        mut idle: impl FnMut() -> Result<(), Failure>,
    ) -> Result<End, Failure> {
        let mut decided: HashMap<(usize, u32), (u64, bool)> = HashMap::new();
        let mut look = Instant::now() + LOOK;
        loop {
            let mut events = 0;
            for (at, part) in self.parts.iter_mut().enumerate() {
                let (names, wanted) = (&part.names, &part.wanted);
                let mut outcome = Ok(true);
                let read = part.watcher.read(|event, bytes| {
                    if !matches!(outcome, Ok(true)) {
                        return;
                    }
                    if let Some(filter) = &wanted.filter {
                        if event.kind == watch::ENTRY {
                            let port = names.ports.get(&event.port).map(String::as_str);
                            let matches = filter::matches(filter, event, bytes, port);
                            decided.insert((at, event.cpu), (event.number, matches));
                        }
                        // A packet whose beginning was lost is not known to match.
                        if decided.get(&(at, event.cpu)) != Some(&(event.number, true)) {
                            return;
                        }
                    }
                    if wanted.shows(event) {
                        outcome = each(at, names, event, bytes);
                    }
                });
                events += read.map_err(Failure::failed)?;
                if !outcome? {
                    return Ok(End::Done);
                }
            }
            if self.stop.load(Ordering::Relaxed)
                || self.until.is_some_and(|until| Instant::now() >= until)
            {
                return Ok(End::Done);
            }
            if Instant::now() >= look {
                look = Instant::now() + LOOK;
                for part in &self.parts {
                    if !part.runs.holds()? {
                        return Ok(End::Applied);
                    }
                }
            }
            if events == 0 {
                idle()?;
                sleep(TICK);
            }
        }
    }

    /// Asks for nothing any more, and lets the edge run what it ran before. What was seen.
    fn close(self) -> Result<WatchCount, Failure> {
        let mut sum = WatchCount::default();
        for mut part in self.parts {
            let count = part.watcher.count().map_err(Failure::failed)?;
            sum.packets += count.packets;
            sum.asked += count.asked;
            sum.events += count.events;
            sum.lost += count.lost;
            part.watcher.stop().map_err(Failure::failed)?;
            match &mut part.runs {
                Runs::Graph(graph) => graph.end()?,
                Runs::Networks(networks) => networks.end()?,
            }
        }
        Ok(sum)
    }
}

impl Part {
    fn begin(
        runs: Runs,
        names: Names,
        [want, ring, count]: [Map; 3],
        wish: &Wish,
        wanted: Wanted,
    ) -> Result<Part, Failure> {
        let watcher = Watcher::start(want, &ring, count, wish).map_err(Failure::failed)?;
        Ok(Part {
            runs,
            names,
            watcher,
            wanted,
        })
    }
}

impl Runs {
    /// Whether what was let run still does.
    fn holds(&self) -> Result<bool, Failure> {
        Ok(match self {
            Runs::Graph(graph) => edge::generation(&graph.name)? == Some(graph.generation),
            Runs::Networks(networks) => networks.holds()?,
        })
    }
}

impl Wanted {
    fn shows(&self, event: &WatchEvent) -> bool {
        // The kernel tells ports apart by the low bits of their numbers.
        let port = event.port & !watch::TRANSMIT;
        if !self.ports.is_empty() && !self.ports.contains(&port) {
            return false;
        }
        match &self.place {
            Some(place) => place.has(event),
            None => self.entries || event.kind != watch::ENTRY,
        }
    }
}

impl Watched {
    fn begin(name: &str, plan: &EdgePlan, text: String) -> Result<Watched, Failure> {
        let mut wanted = plan.clone();
        // Nothing is to begin anew because somebody looks.
        for instance in &mut wanted.instances {
            instance.fresh = false;
        }
        let mut edge = open_patiently(name)?;
        let status = edge.status()?;
        if status.text != text {
            return Err(Failure::Failed(format!(
                "edge {name} was modified concurrently; retry"
            )));
        }
        let generation = match status.form {
            // Somebody watched it and was killed.
            Form::Watched => status.generation,
            Form::Graph => {
                edge.set_form(Form::Watched);
                edge.apply(&wanted, &text)?.generation
            }
        };
        Ok(Watched {
            name: name.to_owned(),
            plan: wanted,
            text,
            generation,
            is_over: false,
        })
    }

    fn end(&mut self) -> Result<(), Failure> {
        if self.is_over {
            return Ok(());
        }
        self.is_over = true;
        let mut edge = match open_patiently(&self.name) {
            Ok(edge) => edge,
            Err(EdgeError::NotRunning { .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        // What somebody else applied is theirs.
        if edge.status()?.generation == self.generation {
            edge.apply(&self.plan, &self.text)?;
        }
        Ok(())
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Err(failure) = self.end() {
            output::complain(&format!(
                "edge {} still runs programs that can be watched ({failure}): end that with `weir trace --off --edge {0}`",
                self.name
            ));
        }
    }
}

/// Lets an edge run programs again that cannot be watched. `false`: it did already.
fn off(name: &str) -> Result<bool, Failure> {
    let networks = weir_runtime::networks::unwatch(name)?;
    let mut edge = match open_patiently(name) {
        Err(EdgeError::NotRunning { .. }) if network::runs_here(name)? => return Ok(networks),
        other => other?,
    };
    let status = edge.status()?;
    if status.form == Form::Graph {
        return Ok(networks);
    }
    let mut wanted = Record::read(name, &status.text)?.plan()?;
    for instance in &mut wanted.instances {
        instance.fresh = false;
    }
    edge.apply(&wanted, &status.text)?;
    Ok(true)
}

fn open_patiently(name: &str) -> Result<Edge, EdgeError> {
    let began = Instant::now();
    loop {
        match Edge::open(name) {
            Err(EdgeError::Busy(_)) if began.elapsed() < PATIENCE => sleep(TICK),
            other => return other,
        }
    }
}

fn names_of(status: &edge::Status, plan: &EdgePlan) -> Names {
    let outs = |name: &str| {
        let found = plan.configured().find(|one| one.name == name);
        found
            .map(|one| one.planned.outs.clone())
            .unwrap_or_default()
    };
    Names {
        ports: status
            .ports
            .iter()
            .flat_map(|port| {
                let received = (port.number, port.name.clone());
                let leaving = port.transmit.as_ref();
                let leaving = leaving.map(|_| {
                    let name = format!("{}.transmit", port.name);
                    (port.number | watch::TRANSMIT, name)
                });
                std::iter::once(received).chain(leaving)
            })
            .collect(),
        instances: status
            .instances
            .iter()
            .map(|one| {
                let named = Named {
                    name: one.name.clone(),
                    outs: outs(&one.name),
                };
                (one.vid, named)
            })
            .collect(),
        networks: None,
    }
}

/// Ports may be named as in the configuration or by their devices.
fn graph_side(status: &edge::Status, plan: &EdgePlan) -> Side {
    let names = names_of(status, plan);
    let mut ports = BTreeMap::new();
    for port in &plan.ports {
        ports.insert(port.device.clone(), vec![port.number]);
    }
    // A name comes before the device of another port.
    for port in &plan.ports {
        ports.insert(port.name.clone(), vec![port.number]);
    }
    let stages = names.instances.iter();
    let stages = stages.map(|(vid, named)| (named.name.clone(), Place::Instance(*vid)));
    Side {
        ports,
        port_names: plan.ports.iter().map(|port| port.name.clone()).collect(),
        stages: stages.collect(),
        stage_names: names
            .instances
            .values()
            .map(|one| one.name.clone())
            .collect(),
        names,
    }
}

/// What is asked of a part, and which of its events are shown; `None`: the part has nothing of what is asked for.
type Asking = Option<(Wish, Wanted)>;

/// What is asked of the graph and of the networks. A name may be one of either.
fn wishes(
    packets: &PacketArgs,
    asked: &Asked,
    graph: Option<&Side>,
    networks: Option<&Side>,
) -> Result<(Asking, Asking), Failure> {
    let sides: Vec<&Side> = graph.into_iter().chain(networks).collect();
    let names = |of: fn(&Side) -> &Vec<String>| {
        let names = sides.iter().flat_map(|side| of(side));
        names.cloned().collect::<Vec<_>>().join(", ")
    };
    for name in &packets.ports {
        if !sides.iter().any(|side| side.ports.contains_key(name)) {
            return Err(Failure::Usage(format!(
                "--port {name}: no such port; ports: {}",
                names(|side| &side.port_names)
            )));
        }
    }
    if let Stages::Function(name) = &asked.at
        && !sides.iter().any(|side| side.stages.contains_key(name))
    {
        return Err(Failure::Usage(format!(
            "--at {name}: neither `entry`, `end`, `drops` or `all` nor a function; functions: {}",
            names(|side| &side.stage_names)
        )));
    }
    let mut refused = None;
    let mut ask = |side: Option<&Side>| match side.map(|side| asked_of(packets, asked, side)) {
        Some(Ok(asking)) => asking,
        // A port in a filter may be one of the other part.
        Some(Err(failure)) => {
            refused = Some(failure);
            None
        }
        None => None,
    };
    let (graph, networks) = (ask(graph), ask(networks));
    match (graph.is_none() && networks.is_none(), refused) {
        (true, Some(failure)) => Err(failure),
        (true, None) => Err(Failure::usage(
            "the ports and the stage are not of the same part of the edge: name those of its graph, or those of its networks",
        )),
        (false, _) => Ok((graph, networks)),
    }
}

fn asked_of(packets: &PacketArgs, asked: &Asked, side: &Side) -> Result<Asking, Failure> {
    let ports = packets.ports.iter().filter_map(|name| side.ports.get(name));
    let ports: BTreeSet<u32> = ports.flatten().copied().collect();
    if ports.is_empty() && !packets.ports.is_empty() {
        return Ok(None);
    }
    let (at, place) = match &asked.at {
        Stages::All => (At::All, None),
        Stages::Entry => (At::Entry, None),
        Stages::End => (At::End, None),
        Stages::Drops => (At::Drops, None),
        Stages::Function(name) => match side.stages.get(name) {
            None => return Ok(None),
            Some(Place::Instance(vid)) => (At::Instance(*vid), None),
            Some(place) => (At::All, Some(place.clone())),
        },
    };
    let filter = packets.filter.as_deref();
    let filter = filter.map(|text| read_filter(text, side)).transpose()?;
    let read = filter.as_ref().map_or(0, filter::bytes_read);
    let wish = Wish {
        at,
        ports: ports.iter().copied().collect(),
        quick: filter.as_ref().map(Quick::of).unwrap_or_default(),
        entries: filter.is_some(),
        sample: packets.sample,
        snap: asked.snap.max(read),
    };
    let wanted = Wanted {
        filter,
        ports,
        entries: matches!(asked.at, Stages::All | Stages::Entry),
        place,
    };
    Ok(Some((wish, wanted)))
}

fn read_filter(text: &str, side: &Side) -> Result<Filter, Failure> {
    let mut filter = Filter::parse(text)
        .map_err(|error| Failure::Usage(format!("--filter: {}", error.to_string().trim_end())))?;
    let there: Vec<&str> = side.port_names.iter().map(String::as_str).collect();
    let alias = |name: &str| {
        let number = side.ports.get(name)?.first()?;
        side.names.ports.get(number).cloned()
    };
    filter
        .resolve_ports(&there, alias)
        .map_err(Failure::usage)?;
    Ok(filter)
}

/// What is said when it is over.
fn closing(end: End, count: &WatchCount) -> Vec<String> {
    let mut lines = Vec::new();
    if end == End::Applied {
        lines.push("another configuration was applied, which ended the watch".to_owned());
    }
    if count.lost > 0 {
        lines.push(format!(
            "{} of {} events were lost, as packets came faster than they were read: narrow the filter, or give --sample",
            count.lost,
            count.lost + count.events
        ));
    }
    lines
}
