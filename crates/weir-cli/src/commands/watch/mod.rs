//! Watching a running edge: `weir top`, `weir capture`, `weir trace`, `weir drops`.
//!
//! All but the first let the edge run the same configuration in programs that tell what packets go through, and go back when they end.
//! Invariant: whatever ends a watcher in order, the edge runs the programs it ran before, unless somebody applied something meanwhile.

pub(crate) mod capture;
pub(crate) mod drops;
pub(crate) mod top;
pub(crate) mod trace;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use weir_bpf::abi::{WatchCount, WatchEvent, watch};
use weir_engine::edge::{self, Edge, EdgeError, Form};
use weir_engine::watch::words::Named;
use weir_engine::watch::{At, Names, Quick, Watcher, Wish, filter};
use weir_graph::EdgePlan;
use weir_policy::Filter;

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

/// An edge that is being watched.
struct Session {
    edge: Watched,
    names: Names,
    record: Record,
    plan: EdgePlan,
    watcher: Watcher,
    filter: Option<Filter>,
    stop: Arc<AtomicBool>,
    until: Option<Instant>,
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
        let status = edge::status(&name)?;
        let record = Record::read(&name, &status.text)?;
        if let Some(path) = &args.config {
            let planned = super::edge::plan(path, None)?;
            let planned = planned.graph.map(|part| part.record);
            if planned.as_ref() != Some(&record) {
                return Err(Failure::Usage(format!(
                    "{} is not running: apply it first, or watch the running edge with --edge {name}",
                    path.display()
                )));
            }
        }
        if let Some(owner) = status.watcher {
            return Err(Failure::Failed(format!(
                "process {owner} is watching edge {name} already: end it first"
            )));
        }
        let plan = record.plan()?;
        let names = names_of(&status, &plan);
        let filter = packets
            .filter
            .as_deref()
            .map(|text| read_filter(text, &plan))
            .transpose()?;
        let wish = wish(packets, asked, filter.as_ref(), &names, &plan)?;
        let duration = packets.duration;
        // From here on a signal ends the command in order.
        let stop = crate::limits::stop_on_signals()?;
        let edge = Watched::begin(&name, &plan, status.text)?;
        let maps = edge::watch_maps(&name)?;
        let [want, ring, count] = maps.ok_or_else(|| {
            Failure::Failed(format!("edge {name} was modified concurrently; retry"))
        })?;
        let watcher = Watcher::start(want, &ring, count, &wish).map_err(Failure::failed)?;
        Ok(Session {
            edge,
            names,
            record,
            plan,
            watcher,
            filter,
            stop,
            until: duration.map(|duration| Instant::now() + duration),
        })
    }

    /// Hands over events of packets that match, until there is an end to it. `each` says whether to go on.
    fn run(
        &mut self,
        mut each: impl FnMut(&Names, &WatchEvent, &[u8]) -> Result<bool, Failure>,
        mut idle: impl FnMut() -> Result<(), Failure>,
    ) -> Result<End, Failure> {
        let mut decided: HashMap<u32, (u64, bool)> = HashMap::new();
        let mut look = Instant::now() + LOOK;
        loop {
            let (names, filter) = (&self.names, &self.filter);
            let mut outcome = Ok(true);
            let read = self.watcher.read(|event, bytes| {
                if !matches!(outcome, Ok(true)) {
                    return;
                }
                if let Some(filter) = filter {
                    if event.kind == watch::ENTRY {
                        let port = names.ports.get(&event.port).map(String::as_str);
                        let matches = filter::matches(filter, event, bytes, port);
                        decided.insert(event.cpu, (event.number, matches));
                    }
                    // A packet whose beginning was lost is not known to match.
                    if decided.get(&event.cpu) != Some(&(event.number, true)) {
                        return;
                    }
                }
                outcome = each(names, event, bytes);
            });
            let events = read.map_err(Failure::failed)?;
            if !outcome? {
                return Ok(End::Done);
            }
            if self.stop.load(Ordering::Relaxed)
                || self.until.is_some_and(|until| Instant::now() >= until)
            {
                return Ok(End::Done);
            }
            if Instant::now() >= look {
                look = Instant::now() + LOOK;
                if edge::generation(&self.edge.name)? != Some(self.edge.generation) {
                    return Ok(End::Applied);
                }
            }
            if events == 0 {
                idle()?;
                sleep(TICK);
            }
        }
    }

    /// Asks for nothing any more, and lets the edge run what it ran before. What was seen.
    fn close(mut self) -> Result<WatchCount, Failure> {
        let count = self.watcher.count().map_err(Failure::failed)?;
        self.watcher.stop().map_err(Failure::failed)?;
        self.edge.end()?;
        Ok(count)
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
    let mut edge = open_patiently(name)?;
    let status = edge.status()?;
    if status.form == Form::Graph {
        return Ok(false);
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
    }
}

/// Ports may be named as in the configuration or by their devices.
fn port_number(name: &str, plan: &EdgePlan) -> Option<u32> {
    let by_name = plan.ports.iter().find(|port| port.name == name);
    let found = by_name.or_else(|| plan.ports.iter().find(|port| port.device == name));
    found.map(|port| port.number)
}

fn read_filter(text: &str, plan: &EdgePlan) -> Result<Filter, Failure> {
    let mut filter = Filter::parse(text)
        .map_err(|error| Failure::Usage(format!("--filter: {}", error.to_string().trim_end())))?;
    let there: Vec<&str> = plan.ports.iter().map(|port| port.name.as_str()).collect();
    let alias = |name: &str| {
        let number = port_number(name, plan)?;
        let port = plan.ports.iter().find(|port| port.number == number)?;
        Some(port.name.clone())
    };
    filter
        .resolve_ports(&there, alias)
        .map_err(Failure::usage)?;
    Ok(filter)
}

fn wish(
    packets: &PacketArgs,
    asked: &Asked,
    filter: Option<&Filter>,
    names: &Names,
    plan: &EdgePlan,
) -> Result<Wish, Failure> {
    let mut ports = Vec::new();
    for name in &packets.ports {
        ports.push(port_number(name, plan).ok_or_else(|| {
            let there: Vec<&str> = plan.ports.iter().map(|port| port.name.as_str()).collect();
            Failure::Usage(format!(
                "--port {name}: no such port; ports: {}",
                there.join(", ")
            ))
        })?);
    }
    let at = match &asked.at {
        Stages::All => At::All,
        Stages::Entry => At::Entry,
        Stages::End => At::End,
        Stages::Drops => At::Drops,
        Stages::Function(name) => {
            let mut found = names.instances.iter();
            let found = found.find(|(_, named)| named.name == *name);
            let (vid, _) = found.ok_or_else(|| {
                let there: Vec<&str> =
                    names.instances.values().map(|named| named.name.as_str()).collect();
                Failure::Usage(format!(
                    "--at {name}: neither `entry`, `end`, `drops` or `all` nor a function; functions: {}",
                    there.join(", ")
                ))
            })?;
            At::Instance(*vid)
        }
    };
    let read = filter.map_or(0, filter::bytes_read);
    Ok(Wish {
        at,
        ports,
        quick: filter.map(Quick::of).unwrap_or_default(),
        entries: filter.is_some(),
        sample: packets.sample,
        snap: asked.snap.max(read),
    })
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
