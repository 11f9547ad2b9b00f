//! What limits of connections at a time count while packets use their tables.
//!
//! Nothing is changed here. A reference that a packet writes meanwhile may be missing or there.

use serde::{Deserialize, Serialize};
use weir_bpf::abi::{COUNT_WAYS, Count};
use weir_functions::middlebox::LimitTable;
use weir_kernel::{KernelError, LoadedProgram, MmapArray};

use super::flows::FlowTable;

/// States of TCP in which a connection is not open for a limit: docs/semantics.md section 3.
const CLOSED: &[&str] = &["tcp-last-ack", "tcp-time-wait", "tcp-close"];

/// A limit that counts addresses apart, or connections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitInUse {
    /// Id of the rule.
    pub rule: u32,
    /// How many connections each name may have; `None`: a limit of packets.
    pub connections: Option<u32>,
    /// Names that fit: addresses, pairs, or one of the whole rule.
    pub names: u64,
    /// What the table takes.
    pub bytes: u64,
    /// Of a limit of connections: what is open.
    pub open: Option<OpenConnections>,
}

/// What a limit of connections counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenConnections {
    /// Names with open connections.
    pub names: u64,
    /// Of these, those that may open no more.
    pub at_limit: u64,
    /// Open connections.
    pub connections: u64,
}

/// The tables of limits of connections as memory.
pub(super) struct CountTables {
    names: MmapArray,
    words: MmapArray,
    flows: FlowTable,
}

impl CountTables {
    pub(super) fn of(
        program: &LoadedProgram,
        flows: FlowTable,
    ) -> Result<CountTables, KernelError> {
        Ok(CountTables {
            names: program.mmap_array("count_names")?,
            words: program.mmap_array("count_words")?,
            flows,
        })
    }

    /// What is open under each name of a table.
    pub(super) fn open(&self, table: &LimitTable) -> Result<OpenConnections, KernelError> {
        let mut open = OpenConnections::default();
        for (number, bucket) in (0..).zip(table.buckets()) {
            for way in 0..COUNT_WAYS {
                let at = bucket as usize * size_of::<Count>() + way * size_of::<u64>();
                if read(&self.names, at)? == 0 {
                    continue;
                }
                let mut connections = 0;
                for word in table.words(number, way as u64) {
                    let reference = read(&self.words, word as usize * size_of::<u64>())?;
                    if reference == 0 {
                        break;
                    }
                    connections += u64::from(self.is_open(reference)?);
                }
                open.names += u64::from(connections > 0);
                let most = table.connections.map_or(u64::MAX, u64::from);
                open.at_limit += u64::from(connections >= most);
                open.connections += connections;
            }
        }
        Ok(open)
    }

    /// A reference is a place + 1, and above it the sequence number of a life there.
    fn is_open(&self, reference: u64) -> Result<bool, KernelError> {
        let id = reference - 1;
        let found = self.flows.at(id as u32)?;
        Ok(found.is_some_and(|connection| {
            connection.id == id && !CLOSED.contains(&connection.state.as_str())
        }))
    }
}

fn read(array: &MmapArray, at: usize) -> Result<u64, KernelError> {
    let mut word = [0; size_of::<u64>()];
    array.read(at, &mut word)?;
    Ok(u64::from_ne_bytes(word))
}
