//! What a replayed graph counted, in the words of the user: the object `weir replay GRAPH --json` prints.
//!
//! Owns the sums over stages and the question whether the ledger balances. Invariant: every packet that a stage received has one
//! verdict there, every packet that went on was received by another stage, and every packet of the graph ended in one of them.

use std::collections::BTreeMap;

use serde::Serialize;
use weir_bpf::abi::{NEXT, Stats};
use weir_functions::report::Packets;
use weir_graph::EdgePlan;
use weir_packet::Reason;

use super::Totals;

/// Everything an engine reports of a graph. Equal for all engines but for `engine`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GraphReport {
    /// `user`, `user-jit` or `kernel`.
    pub engine: &'static str,
    /// The ledger of the graph as a whole: verdicts that ended packets' ways.
    pub packets: Packets,
    /// Reasons of all stages that occurred, by name.
    pub reasons: BTreeMap<&'static str, u64>,
    /// Ports in order.
    pub ports: Vec<PortReport>,
    /// Instances in order.
    pub instances: Vec<InstanceReport>,
    /// Where packets came back from the pair for recirculation; `None` if the graph has no path so long.
    pub recirculated: Option<Stage>,
}

/// A port's side of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PortReport {
    /// Name in the configuration.
    pub name: String,
    /// Interface.
    pub device: String,
    /// Ledger of packets that came in here.
    #[serde(flatten)]
    pub stage: Stage,
    /// Ledger of packets that left here; absent where no program sees them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transmit: Option<Stage>,
    /// Packets that were redirected to it.
    pub sent: u64,
}

/// An instance's side of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InstanceReport {
    /// Name in the configuration.
    pub name: String,
    /// Object it runs.
    pub object: String,
    /// Its ledger.
    #[serde(flatten)]
    pub stage: Stage,
}

/// The ledger of a port or an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stage {
    /// Packets whose way ended here, by verdict; `received` counts all that came.
    pub packets: Packets,
    /// Packets that went on to a function.
    pub next: u64,
    /// Bytes of the frames that came.
    pub bytes: u64,
    /// Reasons that occurred here, by name.
    pub reasons: BTreeMap<&'static str, u64>,
}

impl Stage {
    fn new(stats: &Stats) -> Stage {
        let [aborted, drop, pass, tx, redirect, ..] = stats.verdict;
        Stage {
            packets: Packets {
                received: stats.received,
                pass,
                drop,
                tx,
                redirect,
                aborted,
            },
            next: stats.verdict[NEXT],
            bytes: stats.bytes,
            reasons: Reason::ALL
                .iter()
                .map(|reason| (reason.name(), stats.reason[*reason as usize]))
                .filter(|(_, count)| *count > 0)
                .collect(),
        }
    }

    /// Whether every packet that came has one verdict.
    pub fn balanced(&self) -> bool {
        let mut ended = self.packets;
        ended.received = ended.received.wrapping_sub(self.next);
        ended.balanced()
    }
}

impl PortReport {
    /// Of packets that came in, and of those that left.
    fn stages(&self) -> impl Iterator<Item = &Stage> {
        std::iter::once(&self.stage).chain(&self.transmit)
    }
}

impl GraphReport {
    /// From what an engine counted.
    pub fn new(engine: &'static str, plan: &EdgePlan, totals: &Totals) -> GraphReport {
        let ports: Vec<PortReport> = plan
            .ports
            .iter()
            .zip(totals.ports.iter().zip(&totals.transmits))
            .map(|(port, (stats, transmit))| PortReport {
                transmit: transmit.as_ref().map(Stage::new),
                name: port.name.clone(),
                device: port.device.clone(),
                stage: Stage::new(stats),
                sent: totals.left_by.get(&port.number).copied().unwrap_or(0),
            })
            .collect();
        let instances: Vec<InstanceReport> = plan
            .instances
            .iter()
            .zip(&totals.instances)
            .map(|(instance, stats)| InstanceReport {
                name: instance.name.clone(),
                object: instance.planned.instance.object.to_string(),
                stage: Stage::new(stats),
            })
            .collect();
        let mut packets = Packets {
            received: (ports.iter().flat_map(PortReport::stages))
                .map(|stage| stage.packets.received)
                .sum(),
            ..Packets::default()
        };
        let mut reasons = BTreeMap::new();
        let recirculated = totals.resumed.as_ref().map(Stage::new);
        let stages = ports.iter().flat_map(PortReport::stages);
        let stages = stages.chain(instances.iter().map(|i| &i.stage));
        for stage in stages.chain(&recirculated) {
            packets.pass += stage.packets.pass;
            packets.drop += stage.packets.drop;
            packets.tx += stage.packets.tx;
            packets.redirect += stage.packets.redirect;
            packets.aborted += stage.packets.aborted;
            for (name, count) in &stage.reasons {
                *reasons.entry(*name).or_default() += count;
            }
        }
        // Into the pair and back is no end.
        let back = recirculated.as_ref().map_or(0, |s| s.packets.received);
        packets.redirect = packets.redirect.saturating_sub(back);
        GraphReport {
            engine,
            packets,
            reasons,
            ports,
            instances,
            recirculated,
        }
    }

    /// Whether the ledger balances: in every stage, between stages, and as a whole.
    pub fn balanced(&self) -> bool {
        let stages = || {
            let ports = self.ports.iter().flat_map(PortReport::stages);
            let all = ports.chain(self.instances.iter().map(|i| &i.stage));
            all.chain(&self.recirculated)
        };
        let went_on: u64 = stages().map(|s| s.next).sum();
        let came: u64 = self
            .instances
            .iter()
            .map(|i| i.stage.packets.received)
            .sum();
        stages().all(Stage::balanced) && went_on == came && self.packets.balanced()
    }
}
