//! Arguments of `weir net`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Arguments of `weir net`.
#[derive(Debug, Args)]
pub(crate) struct NetArgs {
    /// Print one JSON object
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: NetCommand,
}

/// Commands on virtual networks.
#[derive(Debug, Subcommand)]
pub(crate) enum NetCommand {
    /// Read a document and report every mistake in it
    Check {
        /// Document of networks (TOML)
        #[arg(value_name = "DOCUMENT")]
        document: PathBuf,
    },
    /// Show what an edge would run of a document: interfaces with their numbers, functions, devices, other edges; touches nothing
    Plan {
        /// Document of networks (TOML)
        #[arg(value_name = "DOCUMENT")]
        document: PathBuf,
        /// The edge; default: the only one of the document, or the one with this host's name
        #[arg(long, value_name = "NAME")]
        edge: Option<String>,
    },
    /// Make this host run its part of a document, in one step for all networks
    Apply {
        /// Document of networks (TOML)
        #[arg(value_name = "DOCUMENT")]
        document: PathBuf,
        /// The edge that this host is; default: the only one of the document, or the one with this host's name
        #[arg(long, value_name = "NAME")]
        edge: Option<String>,
        /// Apply although the running document has a higher version
        #[arg(long)]
        force: bool,
    },
    /// Take networks off this host; without a name all of them, and everything of theirs
    Delete {
        /// Networks by name
        #[arg(value_name = "NETWORK")]
        networks: Vec<String>,
        /// The edge; default: the only one that runs here
        #[arg(long, value_name = "NAME")]
        edge: Option<String>,
    },
    /// Show what runs: networks, functions, workloads, what came in by each interface, and drops by reason
    Show {
        /// Only these networks
        #[arg(value_name = "NETWORK")]
        networks: Vec<String>,
        /// The edge; default: the only one that runs here
        #[arg(long, value_name = "NAME")]
        edge: Option<String>,
    },
    /// Follow a packet that a workload sends over functions and edges, by the tables they would have, naming each decision; touches nothing
    Trace {
        /// Document of networks (TOML)
        #[arg(value_name = "DOCUMENT")]
        document: PathBuf,
        /// The workload that sends it
        #[arg(value_name = "NETWORK/WORKLOAD")]
        from: String,
        /// Address it goes to
        #[arg(value_name = "ADDRESS")]
        to: IpAddr,
        /// What it carries: `echo`, `tcp PORT`, `udp PORT` or a number of a protocol
        #[arg(value_name = "WHAT", default_values = ["echo"], num_args = 1..=2)]
        what: Vec<String>,
        /// Port that it comes from
        #[arg(long, value_name = "PORT", default_value_t = 40_000)]
        source_port: u16,
        /// Address that it comes from; default: the workload's first
        #[arg(long, value_name = "ADDRESS")]
        source: Option<IpAddr>,
        /// Station it is sent to; default: the one the workload would find by ARP
        #[arg(long, value_name = "MAC")]
        mac: Option<String>,
        /// TTL or hop limit
        #[arg(long, value_name = "N", default_value_t = 64)]
        ttl: u8,
        /// Bytes of the packet; default: no more than its headers
        #[arg(long, value_name = "BYTES", default_value_t = 0)]
        length: u16,
    },
    /// Send echo requests through the running networks in a workload's name, from the edge it is on, and say what became of them (root)
    Ping(PingArgs),
    /// Be the helper of an edge until stopped: answer DHCP clients, and let controllers at a socket get and send packets of punt functions
    Helper {
        /// The edge; default: the only one that runs here
        #[arg(long, value_name = "NAME")]
        edge: Option<String>,
        /// The socket for controllers; default: /run/weir/net/EDGE.sock
        #[arg(long, value_name = "PATH")]
        socket: Option<PathBuf>,
        /// Do not answer DHCP clients
        #[arg(long)]
        no_dhcp: bool,
    },
    /// Print the document that runs
    Export {
        /// The edge; default: the only one that runs here
        #[arg(long, value_name = "NAME")]
        edge: Option<String>,
    },
}

/// Arguments of `weir net ping`.
#[derive(Debug, Args)]
pub(crate) struct PingArgs {
    /// The workload in whose name requests are sent; it sits on this edge
    #[arg(value_name = "NETWORK/WORKLOAD")]
    pub(crate) from: String,
    /// Where to: an address, or a workload of the same network
    #[arg(value_name = "ADDRESS|WORKLOAD")]
    pub(crate) to: String,
    /// Requests to send
    #[arg(short = 'c', long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) count: u16,
    /// Seconds from one request to the next, 0.001 or more
    #[arg(short = 'i', long, value_name = "SECONDS", default_value_t = 1.0)]
    pub(crate) interval: f64,
    /// Seconds to wait for the last answer
    #[arg(short = 'W', long, value_name = "SECONDS", default_value_t = 1.0)]
    pub(crate) wait: f64,
    /// Bytes of data in a request
    #[arg(short = 's', long, value_name = "BYTES", default_value_t = 56, value_parser = clap::value_parser!(u16).range(8..=3300))]
    pub(crate) size: u16,
    /// TTL or hop limit of requests
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) ttl: u8,
    /// Address that requests come from; default: the workload's first of that family
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) source: Option<IpAddr>,
    /// Station that requests are sent to; default: the one the workload would find by ARP
    #[arg(long, value_name = "MAC")]
    pub(crate) mac: Option<String>,
    /// The edge; default: the only one that runs here
    #[arg(long, value_name = "NAME")]
    pub(crate) edge: Option<String>,
}
