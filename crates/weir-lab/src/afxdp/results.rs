//! What a sweep leaves: the contract between running it (settings, runners), judging it (statistics, clusters) and showing it (report, recommendation).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A sweep's results, whole: `results.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    /// Of the format; readers refuse others.
    pub version: u32,
    /// The machine: CPU, kernel, driver, device, commit, date, in the order to show.
    pub machine: Vec<(String, String)>,
    /// Where the measured device sat: `veth`, `virtio_net`, ...
    pub driver: String,
    /// `uname -r`.
    pub kernel: String,
    /// The seed of the order.
    pub seed: u64,
    /// How many blocks ran.
    pub blocks: u32,
    /// How long all of it took, seconds.
    pub seconds: f64,
    /// Cells that ran, controls included.
    pub cells: Vec<Cell>,
    /// Impossible combinations, counted by reason.
    pub pruned: Vec<Pruned>,
    /// What happened beside the cells: rate searches, chains.
    pub extras: Vec<Extra>,
    /// What was to happen beside the cells, and would have begun after the time limit, by name.
    #[serde(default)]
    pub left_out: Vec<String>,
}

/// One combination of settings and all of its runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cell {
    /// Stable name made of its knobs.
    pub id: String,
    /// Knob -> value, as in the sweep's document. Knobs with one value in the whole sweep are here as well.
    pub knobs: BTreeMap<String, String>,
    /// AF_XDP cells are measured; `udp-spin`, `udp-block`, `packet-spin`, `packet-block` are controls.
    pub control: Option<String>,
    /// One for each block.
    pub runs: Vec<Run>,
}

/// One run of a cell.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// Which block.
    pub block: u32,
    /// Its place in the order of the block.
    pub place: u32,
    /// Round trips in nanoseconds, in the order they were made, warm-up left out.
    pub samples: Vec<u64>,
    /// Pings sent after the warm-up.
    pub sent: u64,
    /// Those that came back.
    pub received: u64,
    /// CPU time of prober and forwarder (threads and their system calls) for each round trip, nanoseconds.
    pub cpu_per_packet: f64,
    /// CPU time of the kernel's own threads for packets (ksoftirqd, NAPI in threads) over the run, for each round trip, nanoseconds.
    #[serde(default)]
    pub kernel_cpu_per_packet: f64,
    /// Energy of all packages over the run, where the machine counts it.
    #[serde(default)]
    pub joules: Option<f64>,
    /// What the kernel did.
    pub effective: Effective,
    /// Why it did not run to its end.
    pub failure: Option<String>,
}

/// What was asked for and what holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Effective {
    /// `XDP_OPTIONS`: zero-copy at the forwarder.
    pub zero_copy: bool,
    /// `SO_INCOMING_NAPI_ID` of prober and forwarder; 0: busy polling has nothing to poll.
    pub napi: [u32; 2],
    /// Growth of `BusyPollRxPackets` over the run (TcpExt of both namespaces).
    pub busy_poll_packets: u64,
    /// Whether the wakeup flag was seen clear on the transmit ring.
    pub wakeup_skipped: bool,
    /// Requested, and not so: one sentence for each.
    pub unmet: Vec<String>,
}

/// Combinations that were not run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pruned {
    /// Why they cannot be.
    pub reason: String,
    /// How many.
    pub count: u64,
    /// One of them.
    pub example: String,
}

/// A measurement beside the cells.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Extra {
    /// `load`, `chain`.
    pub kind: String,
    /// The cell it used.
    pub cell: String,
    /// What was varied: offered packets a second, number of forwarders.
    pub at: f64,
    /// Its unit.
    pub unit: String,
    /// Round trips, nanoseconds.
    pub samples: Vec<u64>,
    /// Sent and received.
    pub counts: [u64; 2],
}
