//! `kind = "filter"`: rules and lists become the tables of bpf/functions/filter.c, and its counters a report.
//!
//! [`Filter::read`] is configuration -> model, [`Filter::compile`] model -> [`Compiled`], which holds the plan and what is needed to read the
//! counters again. docs/filter.md is the manual, docs/design/filter.md says how the tables work.

mod address;
pub mod carry;
mod compile;
pub mod hits;
mod instance;
mod intervals;
mod judge;
pub mod list;
mod parts;
pub mod report;
pub mod rule;
mod tables;
mod units;

use weir_bpf::abi::filter as limits;

pub use compile::{CompileError, Compiled, OBJECTS};
pub use instance::{KIND, plan};
pub use list::{Entry, Only};
pub use report::{EntryHits, FilterReport, RuleCount};
pub use rule::Rule;

/// CPUs that packets may be moved to.
pub const CPUS_MAX: u32 = limits::CPUS as u32;

/// A filter as configuration describes it, lists included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// In the order of the configuration.
    pub rules: Vec<Rule>,
    /// Sets that rules name.
    pub sets: Vec<Set>,
    /// What becomes of IP packets that no rule decides.
    pub default: Otherwise,
    /// What becomes of frames that are neither IPv4 nor IPv6.
    pub other: Otherwise,
    /// CPUs that accepted packets are moved to; empty: they stay where they are.
    pub cpus: Vec<u32>,
    /// Packets that wait for one of these CPUs at most.
    pub queue: u32,
    /// Whether hits of entries are counted.
    pub hits: bool,
    /// Sources that limits remember at least.
    pub sources: u32,
    /// Sources that can be blocked at a time, about.
    pub blocks: u32,
    /// Flows behind SYN cookies that are remembered at least.
    pub flows: u32,
}

impl Default for Filter {
    fn default() -> Filter {
        Filter {
            rules: Vec::new(),
            sets: Vec::new(),
            default: Otherwise::Pass,
            other: Otherwise::Pass,
            cpus: Vec::new(),
            queue: 192,
            hits: true,
            sources: 65_536,
            blocks: 16_384,
            flows: 65_536,
        }
    }
}

/// What becomes of packets that nothing else decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Otherwise {
    /// They pass.
    Pass,
    /// They are dropped.
    Drop,
}

/// A named set of entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    /// As rules name it, without the `@`.
    pub name: String,
    /// Its entries.
    pub entries: Vec<Entry>,
}
