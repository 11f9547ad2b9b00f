//! Arguments of the commands that watch a running edge.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::value::duration;

/// Which edge.
#[derive(Debug, Args)]
pub(crate) struct EdgeArgs {
    /// Configuration file of the running edge; default: the only edge in this network namespace
    #[arg(value_name = "CONFIG", conflicts_with = "edge")]
    pub(crate) config: Option<PathBuf>,
    /// Name of the edge
    #[arg(long, value_name = "NAME")]
    pub(crate) edge: Option<String>,
}

/// Which packets.
#[derive(Clone, Debug, Args)]
pub(crate) struct PacketArgs {
    /// Only packets that match on receive, in rule syntax: 'tcp-dport 80 ip-saddr 192.0.2.0/24'
    #[arg(long, value_name = "MATCHES")]
    pub(crate) filter: Option<String>,
    /// Only packets received on this port, of NETWORK/WORKLOAD, or of tunnels (`underlay`); repeatable
    #[arg(long = "port", value_name = "PORT")]
    pub(crate) ports: Vec<String>,
    /// Sample one packet in N
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) sample: u32,
    /// Stop after N packets
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Stop after this time
    #[arg(long = "duration", alias = "for", value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Duration>,
}

/// Arguments of `weir trace`.
#[derive(Debug, Args)]
pub(crate) struct TraceArgs {
    #[command(flatten)]
    pub(crate) edge: EdgeArgs,
    #[command(flatten)]
    pub(crate) packets: PacketArgs,
    /// Only dropped packets
    #[arg(long)]
    pub(crate) drops: bool,
    /// Clean up after a killed trace or capture
    #[arg(long, conflicts_with_all = ["filter", "ports", "sample", "count", "duration", "drops"])]
    pub(crate) off: bool,
    /// Print one JSON object per packet
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `weir drops`.
#[derive(Debug, Args)]
pub(crate) struct DropsArgs {
    #[command(flatten)]
    pub(crate) edge: EdgeArgs,
    #[command(flatten)]
    pub(crate) packets: PacketArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `weir capture`.
#[derive(Debug, Args)]
pub(crate) struct CaptureArgs {
    #[command(flatten)]
    pub(crate) edge: EdgeArgs,
    #[command(flatten)]
    pub(crate) packets: PacketArgs,
    /// Capture point: `entry`, `end`, `drops`, `all`, a function (packets as it sends them on), or NETWORK/WORKLOAD (from and to it)
    #[arg(long, value_name = "STAGE", default_value = "entry")]
    pub(crate) at: String,
    /// File to write; `-`: standard output
    #[arg(
        short = 'o',
        long = "output",
        alias = "out",
        value_name = "FILE",
        default_value = "-"
    )]
    pub(crate) output: PathBuf,
    /// Snapshot length in bytes, at most 9216; 0: maximum
    #[arg(long, value_name = "BYTES", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=9216))]
    pub(crate) snap: u32,
    /// Print the counters as one JSON object to standard error
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `weir top`.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(crate) edge: EdgeArgs,
    /// Interval between updates
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    pub(crate) interval: Duration,
    /// Stop after one interval
    #[arg(long)]
    pub(crate) once: bool,
    /// Print tables with ns per packet, by kernel statistics; costs every eBPF program on this host about 20 ns per run meanwhile
    #[arg(long)]
    pub(crate) time: bool,
    /// Print one JSON object per interval
    #[arg(long)]
    pub(crate) json: bool,
}
