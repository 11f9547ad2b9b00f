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
    /// Print the document that runs
    Export {
        /// The edge; default: the only one that runs here
        #[arg(long, value_name = "NAME")]
        edge: Option<String>,
    },
}
