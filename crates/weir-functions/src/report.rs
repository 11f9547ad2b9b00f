//! What an instance counted, in the words of the user: the object `weir replay --json` prints.

use std::collections::BTreeMap;

use serde::Serialize;
use weir_bpf::abi::{Counter, Stats};
use weir_packet::{Fate, Reason};
use weir_policy::model::Policy;

/// Packets by verdict. `received` is counted on its own and equals the sum of the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Packets {
    /// Entered the program.
    pub received: u64,
    /// Went on to the stack, or into the output capture.
    pub pass: u64,
    /// Dropped.
    pub drop: u64,
    /// Sent back out of the port they came in by.
    pub tx: u64,
    /// Sent elsewhere.
    pub redirect: u64,
    /// The program failed.
    pub aborted: u64,
}

impl Packets {
    /// Whether every packet has one verdict.
    pub fn balanced(&self) -> bool {
        self.received == self.pass + self.drop + self.tx + self.redirect + self.aborted
    }
}

/// One rule's counters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuleReport {
    /// Number from 1.
    pub id: u32,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Packets that matched.
    pub packets: u64,
    /// Their bytes as received.
    pub bytes: u64,
}

/// Everything an engine reports. Equal for all engines but for `engine`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// `user`, `kernel` or `reference`.
    pub engine: &'static str,
    /// The ledger.
    pub packets: Packets,
    /// All rules in order.
    pub rules: Vec<RuleReport>,
    /// Reasons that occurred, by name.
    pub reasons: BTreeMap<&'static str, u64>,
}

impl Report {
    /// From the sums over all CPUs.
    pub fn new(
        engine: &'static str,
        policy: &Policy,
        stats: &Stats,
        counters: &[Counter],
    ) -> Report {
        let rules = policy.rules.iter().map(|r| (r.id, r.name.as_deref()));
        let counters = counters.iter().chain(std::iter::repeat(&NOTHING));
        Report::of(engine, rules.zip(counters.copied()), stats)
    }

    /// From rules by id and name, each with its counters.
    pub fn of<'a>(
        engine: &'static str,
        rules: impl Iterator<Item = ((u32, Option<&'a str>), Counter)>,
        stats: &Stats,
    ) -> Report {
        let [aborted, drop, pass, tx, redirect, ..] = stats.verdict;
        Report {
            engine,
            packets: Packets {
                received: stats.received,
                pass,
                drop,
                tx,
                redirect,
                aborted,
            },
            rules: rules
                .map(|((id, name), counter)| RuleReport {
                    id,
                    name: name.map(str::to_owned),
                    packets: counter.packets,
                    bytes: counter.bytes,
                })
                .collect(),
            reasons: Reason::ALL
                .iter()
                .map(|reason| (reason.name(), stats.reason[*reason as usize]))
                .filter(|(_, count)| *count > 0)
                .collect(),
        }
    }

    /// Packets dropped by reason; equals `packets.drop`.
    pub fn dropped_with_reason(&self) -> u64 {
        Reason::ALL
            .iter()
            .filter(|reason| reason.fate() == Fate::Drop)
            .map(|reason| self.reasons.get(reason.name()).copied().unwrap_or(0))
            .sum()
    }
}

const NOTHING: Counter = Counter {
    packets: 0,
    bytes: 0,
};
