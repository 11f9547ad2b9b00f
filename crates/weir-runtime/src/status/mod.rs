//! What an edge does, as every client shows it: ports, functions and hooks with their ledgers, and what routers and balancers carried.
//!
//! received = sum of verdicts; each side is counted on its own.

mod carried;

use std::collections::BTreeMap;

use serde::Serialize;
use weir_bpf::abi::{NEXT, Stats};
use weir_engine::edge::{self, Form, SecondStage, Status, reasons};
use weir_functions::filter::report::FilterReport;

pub use carried::{Carried, CheckedServer, checked_servers, hop_kind};

use crate::error::RuntimeError;
use crate::graph::Record;

/// The graph of a running edge.
#[derive(Debug, Serialize)]
pub struct EdgeStatus {
    /// Its name.
    pub edge: String,
    /// The generation that packets follow, from 1.
    pub generation: u64,
    /// Where it was applied from.
    pub configuration: Option<String>,
    /// Its ports, as configured.
    pub ports: Vec<Port>,
    /// Its functions; those that weir put there by itself come last.
    pub functions: Vec<Function>,
    /// Other hooks of the graph.
    pub hooks: Vec<Hook>,
    /// Recirculation, where a path is long enough to need it.
    pub recirculation: Option<Recirculation>,
    /// What became of packets after programs decided.
    pub second_stage: Option<SecondStage>,
    /// Calls that found a function that was just replaced.
    pub missed: u64,
    /// Whether the programs are such that can be watched, and the process that does; absent where they are not.
    pub watched: Option<Watched>,
}

/// A port.
#[derive(Debug, Serialize)]
pub struct Port {
    /// Name in the configuration.
    pub name: String,
    /// weir's number.
    pub number: u32,
    /// Name of the device when it was attached.
    pub device: String,
    /// Its index.
    pub ifindex: u32,
    /// `native`, `generic` or `tc`.
    pub mode: String,
    /// Whether the device is there and runs the program.
    pub attached: bool,
    /// What came in since it was attached.
    pub ledger: Ledger,
    /// Of packets that leave by it; absent where no program sees them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transmit: Option<Ledger>,
}

/// A function.
#[derive(Debug, Serialize)]
pub struct Function {
    /// Name in the configuration.
    pub name: String,
    /// Its kind; `None`: something else than weir applied the edge.
    pub kind: Option<String>,
    /// Its object or file.
    pub object: String,
    /// Its number.
    pub vid: u32,
    /// The kernel's id of its program.
    pub program: u32,
    /// Whether weir put it there by itself.
    pub implicit: bool,
    /// Where its outputs lead.
    pub links: Vec<Link>,
    /// Kernel ids of its maps, by name.
    pub maps: BTreeMap<String, u32>,
    /// What it did since it was there, over all replacements.
    pub ledger: Ledger,
    /// Of a router or a balancer: what it carried, by next hop or service.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub carried: Vec<Carried>,
    /// Of a filter, where it was asked for.
    #[serde(flatten)]
    pub counted: Option<Hits>,
}

/// What a filter counted, or why that cannot be told.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Hits {
    /// By rule and entry.
    Counted(FilterReport),
    /// Which rule a counter is of is not known.
    Unknown {
        /// Why.
        not_counted: String,
    },
}

/// A link.
#[derive(Debug, Serialize)]
pub struct Link {
    /// Name of the output.
    pub out: String,
    /// What it leads to.
    pub to: String,
}

/// A hook.
#[derive(Debug, Serialize)]
pub struct Hook {
    /// Name in the configuration.
    pub name: String,
    /// Where it is.
    pub attach: String,
}

/// The way of packets whose path is longer than the kernel lets programs call each other.
#[derive(Debug, Serialize)]
pub struct Recirculation {
    /// The pair of devices.
    pub devices: [String; 2],
    /// Packets that came back.
    pub ledger: Ledger,
}

/// Programs that can be watched run.
#[derive(Debug, Serialize)]
pub struct Watched {
    /// `None`: nobody watches, or it was killed.
    pub process: Option<u32>,
}

/// What became of packets.
#[derive(Debug, Serialize)]
pub struct Ledger {
    /// Packets that came in.
    pub received: u64,
    /// Their bytes, with the link header.
    pub bytes: u64,
    /// What became of them.
    pub verdicts: Verdicts,
    /// Why packets were dropped, and what was noted of them.
    pub reasons: Vec<Counted>,
}

/// Packets by verdict.
#[derive(Debug, Serialize)]
pub struct Verdicts {
    /// Went on to what comes next.
    pub next: u64,
    /// Went to the stack.
    pub pass: u64,
    /// Were dropped.
    pub drop: u64,
    /// Were sent back by the device they came from.
    pub tx: u64,
    /// Were sent by another device.
    pub redirect: u64,
    /// Ended in an error of the program.
    pub aborted: u64,
}

/// Packets of one reason.
#[derive(Debug, Serialize)]
pub struct Counted {
    /// Name of the reason.
    pub reason: &'static str,
    /// Packets.
    pub packets: u64,
}

impl EdgeStatus {
    /// Of the graph of an edge. `with_hits`: with the counters of filters by rule and entry.
    ///
    /// # Errors
    /// [`weir_engine::edge::EdgeError::NotRunning`], or its state or its maps cannot be read.
    pub fn read(name: &str, with_hits: bool) -> Result<EdgeStatus, RuntimeError> {
        let status = edge::status(name)?;
        let hits = match with_hits {
            true => hits(&status)?,
            false => BTreeMap::new(),
        };
        let carried = carried::read(&status)?;
        Ok(EdgeStatus::of(status, hits, carried))
    }

    fn of(
        status: Status,
        mut hits: BTreeMap<String, Hits>,
        mut carried: BTreeMap<String, Vec<Carried>>,
    ) -> EdgeStatus {
        // An edge that something else applied is shown, too, without its kinds.
        let record = Record::read(&status.name, &status.text).ok();
        let kind = |name: &str| {
            let instances = record.iter().flat_map(|record| &record.outline.instances);
            let mut found = instances.filter(|one| one.name == name);
            found.next().map(|one| one.kind.clone())
        };
        EdgeStatus {
            configuration: record
                .as_ref()
                .map(|record| record.path.display().to_string()),
            edge: status.name.clone(),
            generation: status.generation,
            ports: status
                .ports
                .iter()
                .map(|port| Port {
                    name: port.name.clone(),
                    number: port.number,
                    device: port.device.clone(),
                    ifindex: port.ifindex,
                    mode: port.mode.clone(),
                    attached: port.attached,
                    ledger: Ledger::of(&port.ledger),
                    transmit: port.transmit.as_ref().map(Ledger::of),
                })
                .collect(),
            functions: status
                .instances
                .iter()
                .map(|one| Function {
                    name: one.name.clone(),
                    kind: kind(&one.name),
                    object: one.object.clone(),
                    vid: one.vid,
                    program: one.program,
                    implicit: one.implicit,
                    links: one
                        .outs
                        .iter()
                        .map(|(out, to)| Link {
                            out: out.clone(),
                            to: to.clone(),
                        })
                        .collect(),
                    maps: one.maps.iter().cloned().collect(),
                    ledger: Ledger::of(&one.ledger),
                    carried: carried.remove(&one.name).unwrap_or_default(),
                    counted: hits.remove(&one.name),
                })
                .collect(),
            hooks: status
                .hooks
                .iter()
                .map(|(name, attach)| Hook {
                    name: name.clone(),
                    attach: attach.clone(),
                })
                .collect(),
            recirculation: status.recirculation.as_ref().map(|pair| Recirculation {
                devices: [pair.devices.0.clone(), pair.devices.1.clone()],
                ledger: Ledger::of(&pair.ledger),
            }),
            second_stage: status.second,
            missed: status.missed,
            watched: (status.form == Form::Watched).then_some(Watched {
                process: status.watcher,
            }),
        }
    }
}

/// The counters of all filters of an edge, by name. Which of them belongs to which rule and entry, its configuration tells.
fn hits(status: &Status) -> Result<BTreeMap<String, Hits>, RuntimeError> {
    let record = Record::read(&status.name, &status.text)?;
    let mut all = BTreeMap::new();
    for (name, filter) in weir_graph::filters(&record.config()?, &record) {
        let Some(instance) = status.instances.iter().find(|one| one.name == name) else {
            continue;
        };
        let unknown = |why: String| Hits::Unknown { not_counted: why };
        let found = match filter {
            Ok(filter) => match filter.compile() {
                Ok(compiled) => {
                    let counters = instance
                        .filter_counters()
                        .map_err(|error| RuntimeError::Failed(error.to_string()))?;
                    Hits::Counted(counters.unwrap_or_default().report(&filter, &compiled))
                }
                Err(error) => unknown(error.to_string()),
            },
            Err(error) => unknown(error.message),
        };
        all.insert(name, found);
    }
    Ok(all)
}

impl Verdicts {
    /// Verdicts by name, in the order in which they are shown.
    #[must_use]
    pub fn by_name(&self) -> [(&'static str, u64); 6] {
        [
            ("next", self.next),
            ("pass", self.pass),
            ("drop", self.drop),
            ("tx", self.tx),
            ("redirect", self.redirect),
            ("aborted", self.aborted),
        ]
    }
}

impl Ledger {
    fn of(stats: &Stats) -> Ledger {
        let verdict = |at: usize| stats.verdict[at];
        Ledger {
            received: stats.received,
            bytes: stats.bytes,
            verdicts: Verdicts {
                next: verdict(NEXT),
                aborted: verdict(0),
                drop: verdict(1),
                pass: verdict(2),
                tx: verdict(3),
                redirect: verdict(4),
            },
            reasons: reasons(stats)
                .into_iter()
                .map(|(reason, packets)| Counted { reason, packets })
                .collect(),
        }
    }
}
