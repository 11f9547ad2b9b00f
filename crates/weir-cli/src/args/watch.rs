//! Arguments of the commands that watch a running edge.

use std::path::PathBuf;

use clap::Args;

/// Which edge.
#[derive(Debug, Args)]
pub(crate) struct EdgeArgs {
    /// Configuration file of the edge, as it runs; default: the one edge in this network namespace
    #[arg(value_name = "CONFIG", conflicts_with = "edge")]
    pub(crate) config: Option<PathBuf>,
    /// Name of the edge
    #[arg(long, value_name = "NAME")]
    pub(crate) edge: Option<String>,
}

/// Which packets.
#[derive(Debug, Args)]
pub(crate) struct PacketArgs {
    /// Only packets that match, as they come in: the match part of a rule, as in 'tcp-dport 80 ip-saddr 192.0.2.0/24'
    #[arg(long, value_name = "MATCHES")]
    pub(crate) filter: Option<String>,
    /// Only packets that come in by this port; may be given more than once
    #[arg(long = "port", value_name = "PORT")]
    pub(crate) ports: Vec<String>,
    /// Only one packet in so many
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) sample: u32,
    /// Stop after so many packets
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Stop after this many seconds
    #[arg(long = "for", value_name = "SECONDS")]
    pub(crate) duration: Option<f64>,
}

/// Arguments of `weir trace`.
#[derive(Debug, Args)]
pub(crate) struct TraceArgs {
    #[command(flatten)]
    pub(crate) edge: EdgeArgs,
    #[command(flatten)]
    pub(crate) packets: PacketArgs,
    /// Only packets that are dropped
    #[arg(long)]
    pub(crate) drops: bool,
    /// End what a killed watcher left: let the edge run programs again that cannot be watched
    #[arg(long, conflicts_with_all = ["filter", "ports", "sample", "count", "duration", "drops"])]
    pub(crate) off: bool,
    /// Print one JSON object a packet
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
    /// Where: `entry`, `end`, `drops`, `all`, or the name of a function, behind which packets are as it left them
    #[arg(long, value_name = "STAGE", default_value = "entry")]
    pub(crate) at: String,
    /// File to write; `-`: standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    pub(crate) out: PathBuf,
    /// Bytes of each packet to keep, at most 9216; 0: as many as there can be
    #[arg(long, value_name = "BYTES", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=9216))]
    pub(crate) snap: u32,
    /// Print what was counted as one JSON object to standard error
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `weir top`.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(crate) edge: EdgeArgs,
    /// Seconds between updates
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    pub(crate) interval: f64,
    /// Stop after one interval
    #[arg(long)]
    pub(crate) once: bool,
    /// Also let the kernel measure ns a packet, entry to end; costs every eBPF program of this host some 20 ns a run meanwhile
    #[arg(long)]
    pub(crate) time: bool,
    /// Print one JSON object an interval
    #[arg(long)]
    pub(crate) json: bool,
}
