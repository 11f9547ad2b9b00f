//! Arguments of `weir net`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use weir_value::Mac;

use super::value::up_to_an_hour;

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
    /// Same as `weir check DOCUMENT`
    #[command(hide = true)]
    Check {
        /// Document of networks (TOML)
        #[arg(value_name = "DOCUMENT")]
        document: PathBuf,
    },
    /// Same as `weir plan DOCUMENT`
    #[command(hide = true)]
    Plan {
        /// Document of networks (TOML)
        #[arg(value_name = "DOCUMENT")]
        document: PathBuf,
        /// The edge of this host
        #[arg(long, value_name = "NAME")]
        edge: Option<String>,
    },
    /// Same as `weir apply DOCUMENT`
    #[command(hide = true)]
    Apply {
        /// Document of networks (TOML)
        #[arg(value_name = "DOCUMENT")]
        document: PathBuf,
        /// The edge of this host
        #[arg(long, value_name = "NAME")]
        edge: Option<String>,
        /// Apply although the running document has a higher version
        #[arg(long)]
        force: bool,
    },
    /// Delete networks from this host; without a name, all of them
    Delete {
        /// Names of networks
        #[arg(value_name = "NETWORK")]
        networks: Vec<String>,
        /// The edge; default: the only one running here
        #[arg(long, value_name = "NAME")]
        edge: Option<String>,
    },
    /// Add, move, group or delete a workload of the running networks
    #[command(subcommand)]
    Workload(WorkloadCommand),
    /// Serve one call of a container runtime as a CNI plugin; for the link `weir-cni` in a folder of plugins
    Cni,
    /// Manage the networks of many edges in etcd: push documents, wait until all edges run them
    Store(StoreArgs),
    /// Show running networks, functions and workloads, with counters and drop reasons
    Show {
        /// Only these networks
        #[arg(value_name = "NETWORK")]
        networks: Vec<String>,
        /// The edge; default: the only one running here
        #[arg(long, value_name = "NAME")]
        edge: Option<String>,
    },
    /// Trace a simulated packet of a workload through functions and edges; changes nothing
    Trace {
        /// Document of networks (TOML)
        #[arg(value_name = "DOCUMENT")]
        document: PathBuf,
        /// Source workload
        #[arg(value_name = "NETWORK/WORKLOAD")]
        from: String,
        /// Destination address
        #[arg(value_name = "ADDRESS", value_parser = weir_value::address)]
        to: IpAddr,
        /// Protocol: `echo`, `tcp PORT`, `udp PORT` or an IP protocol number
        #[arg(value_name = "WHAT", default_values = ["echo"], num_args = 1..=2)]
        what: Vec<String>,
        /// Source port
        #[arg(long, value_name = "PORT", default_value_t = 40_000)]
        source_port: u16,
        /// Source address; default: the first of the workload
        #[arg(long, value_name = "ADDRESS", value_parser = weir_value::address)]
        source: Option<IpAddr>,
        /// Destination MAC address; default: resolved as the workload would by ARP
        #[arg(long, value_name = "MAC")]
        mac: Option<Mac>,
        /// TTL or hop limit
        #[arg(long, value_name = "N", default_value_t = 64)]
        ttl: u8,
        /// Packet size in bytes; default: headers only
        #[arg(long, value_name = "BYTES", default_value_t = 0)]
        length: u16,
    },
    /// Ping through the running networks with a workload as source, and report where lost packets were dropped (root)
    Ping(PingArgs),
    /// Run the helper daemon of an edge: DHCP server, and a socket for controllers of punt functions
    Helper {
        /// The edge; default: the only one running here
        #[arg(long, value_name = "NAME")]
        edge: Option<String>,
        /// Controller socket; default: /run/weir/net/EDGE.sock
        #[arg(long, value_name = "PATH")]
        socket: Option<PathBuf>,
        /// Disable the DHCP server
        #[arg(long)]
        no_dhcp: bool,
    },
    /// Print the running document
    Export {
        /// The edge; default: the only one running here
        #[arg(long, value_name = "NAME")]
        edge: Option<String>,
    },
}

/// Commands on workloads of the networks that run here. Each host has its own copy of the document.
#[derive(Debug, Subcommand)]
pub(crate) enum WorkloadCommand {
    /// Add a workload; one that is there with the same values stays as it is
    Add {
        /// The workload
        #[arg(value_name = "NETWORK/WORKLOAD")]
        workload: String,
        /// Its subnet
        #[arg(long, value_name = "NAME")]
        subnet: String,
        /// Interface on its edge
        #[arg(long, value_name = "IF")]
        device: String,
        /// Addresses that it may send from. Repeatable, or with commas
        #[arg(long, value_name = "ADDRESSES", required = true, value_delimiter = ',', value_parser = weir_value::address)]
        address: Vec<IpAddr>,
        /// MAC address that it sends from, or `device`: that of its interface; default: made of its name
        #[arg(long, value_name = "MAC|device")]
        mac: Option<String>,
        /// Security groups that it is in. Repeatable, or with commas
        #[arg(long, value_name = "GROUPS", value_delimiter = ',')]
        group: Vec<String>,
        /// Edge that the workload is on; default: this one
        #[arg(long, value_name = "NAME")]
        on: Option<String>,
        /// The edge that is told; default: the only one running here
        #[arg(long, value_name = "NAME")]
        edge: Option<String>,
    },
    /// Move a workload to another edge or interface: tell the new edge first, then all others, the old one last
    Move {
        /// The workload
        #[arg(value_name = "NETWORK/WORKLOAD")]
        workload: String,
        /// Edge that it moves to
        #[arg(long, value_name = "NAME")]
        to: Option<String>,
        /// Interface there
        #[arg(long, value_name = "IF")]
        device: Option<String>,
        /// The edge that is told; default: the only one running here
        #[arg(long, value_name = "NAME")]
        edge: Option<String>,
    },
    /// Set the security groups of a workload; without GROUP it leaves all
    Groups {
        /// The workload
        #[arg(value_name = "NETWORK/WORKLOAD")]
        workload: String,
        /// Groups of its network
        #[arg(value_name = "GROUP")]
        group: Vec<String>,
        /// The edge that is told; default: the only one running here
        #[arg(long, value_name = "NAME")]
        edge: Option<String>,
    },
    /// Delete a workload
    Delete {
        /// The workload
        #[arg(value_name = "NETWORK/WORKLOAD")]
        workload: String,
        /// The edge that is told; default: the only one running here
        #[arg(long, value_name = "NAME")]
        edge: Option<String>,
    },
}

/// Arguments of `weir net store`.
#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    /// Folder whose agent.toml says in `[store]` how etcd is reached
    #[arg(
        long,
        global = true,
        value_name = "FOLDER",
        default_value = "/etc/weir"
    )]
    pub(crate) config: PathBuf,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: StoreCommand,
}

/// Commands on the store.
#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Push a document: its tenants then have exactly the networks that it declares
    Push {
        /// Document of networks (TOML); without `[[edge]]` it uses the edges of the store
        #[arg(value_name = "DOCUMENT")]
        document: PathBuf,
        /// Push also an older version, or other declarations of edges
        #[arg(long)]
        force: bool,
        /// Check and show the difference; write nothing
        #[arg(long)]
        dry_run: bool,
        /// Wait until all edges run it, up to TIME
        #[arg(long, value_name = "TIME", value_parser = up_to_an_hour, conflicts_with = "dry_run")]
        wait: Option<Duration>,
    },
    /// Show what pushing a document would change
    Diff {
        /// Document of networks (TOML)
        #[arg(value_name = "DOCUMENT")]
        document: PathBuf,
    },
    /// Show documents and edges: which edge runs what the store says, and why others do not
    Status {
        /// Wait until all edges run what the store says, up to TIME
        #[arg(long, value_name = "TIME", value_parser = up_to_an_hour)]
        wait: Option<Duration>,
    },
    /// Print the networks of the store as one document
    Export {
        /// Only what this edge gets
        #[arg(long, value_name = "NAME")]
        edge: Option<String>,
    },
    /// Add, move, group or delete a workload on all edges
    #[command(subcommand)]
    Workload(StoreWorkloadCommand),
    /// Let edges remove what they kept because a restored store lacks it
    Accept,
}

/// Commands on workloads in the store.
#[derive(Debug, Subcommand)]
pub(crate) enum StoreWorkloadCommand {
    /// Add a workload; one that is there with the same values stays as it is
    Add {
        /// The workload
        #[arg(value_name = "NETWORK/WORKLOAD")]
        workload: String,
        /// Its subnet
        #[arg(long, value_name = "NAME")]
        subnet: String,
        /// Edge that the workload is on
        #[arg(long, value_name = "NAME")]
        on: String,
        /// Interface on that edge
        #[arg(long, value_name = "IF")]
        device: String,
        /// Addresses that it may send from. Repeatable, or with commas
        #[arg(long, value_name = "ADDRESSES", required = true, value_delimiter = ',', value_parser = weir_value::address)]
        address: Vec<IpAddr>,
        /// MAC address that it sends from; default: made of its name
        #[arg(long, value_name = "MAC")]
        mac: Option<Mac>,
        /// Security groups that it is in. Repeatable, or with commas
        #[arg(long, value_name = "GROUPS", value_delimiter = ',')]
        group: Vec<String>,
    },
    /// Move a workload to another edge or interface
    Move {
        /// The workload
        #[arg(value_name = "NETWORK/WORKLOAD")]
        workload: String,
        /// Edge that it moves to
        #[arg(long, value_name = "NAME")]
        to: Option<String>,
        /// Interface there
        #[arg(long, value_name = "IF")]
        device: Option<String>,
    },
    /// Set the security groups of a workload; without GROUP it leaves all
    Groups {
        /// The workload
        #[arg(value_name = "NETWORK/WORKLOAD")]
        workload: String,
        /// Groups of its network
        #[arg(value_name = "GROUP")]
        group: Vec<String>,
    },
    /// Delete a workload
    Delete {
        /// The workload
        #[arg(value_name = "NETWORK/WORKLOAD")]
        workload: String,
    },
}

impl StoreWorkloadCommand {
    /// `NETWORK/WORKLOAD`.
    pub(crate) fn workload(&self) -> &str {
        let (StoreWorkloadCommand::Add { workload, .. }
        | StoreWorkloadCommand::Move { workload, .. }
        | StoreWorkloadCommand::Groups { workload, .. }
        | StoreWorkloadCommand::Delete { workload }) = self;
        workload
    }
}

/// Arguments of `weir net ping`.
#[derive(Debug, Args)]
pub(crate) struct PingArgs {
    /// Source workload; must be on this edge
    #[arg(value_name = "NETWORK/WORKLOAD")]
    pub(crate) from: String,
    /// Destination: an address, or a workload of the same network
    #[arg(value_name = "ADDRESS|WORKLOAD")]
    pub(crate) to: String,
    /// Number of requests
    #[arg(short = 'c', long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) count: u16,
    /// Interval between requests, at least 1ms
    #[arg(short = 'i', long, value_name = "TIME", default_value = "1s", value_parser = up_to_an_hour)]
    pub(crate) interval: Duration,
    /// Time to wait for the last reply
    #[arg(short = 'W', long, value_name = "TIME", default_value = "1s", value_parser = up_to_an_hour)]
    pub(crate) wait: Duration,
    /// Payload size in bytes
    #[arg(short = 's', long, value_name = "BYTES", default_value_t = 56, value_parser = clap::value_parser!(u16).range(8..=3300))]
    pub(crate) size: u16,
    /// TTL or hop limit
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) ttl: u8,
    /// Source address; default: the workload's first of that family
    #[arg(long, value_name = "ADDRESS", value_parser = weir_value::address)]
    pub(crate) source: Option<IpAddr>,
    /// Destination MAC address; default: resolved as the workload would by ARP
    #[arg(long, value_name = "MAC")]
    pub(crate) mac: Option<Mac>,
    /// The edge; default: the only one running here
    #[arg(long, value_name = "NAME")]
    pub(crate) edge: Option<String>,
}
