//! Arguments of `weir service`: words of its own, and the spellings of ipvsadm.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand, ValueEnum};

/// Arguments of `weir service`.
#[derive(Debug, Args)]
#[command(
    group(ArgGroup::new("what").args(["add_service", "edit_service", "delete_service", "add_server", "edit_server", "delete_server", "list", "save", "restore", "clear", "zero"])),
    after_help = "ipvsadm's spellings work, too: -A -t 192.0.2.1:80, then -a -t 192.0.2.1:80 -r 10.0.0.1 -w 2 -i, -L -n --stats."
)]
pub(crate) struct ServiceArgs {
    /// Name of the edge; default: the one that runs here
    #[arg(long, value_name = "NAME", global = true)]
    pub(crate) edge: Option<String>,
    /// The balancer; default: the only one
    #[arg(long, value_name = "NAME", global = true)]
    pub(crate) function: Option<String>,
    /// Print one JSON object
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Packets, bytes and flows of each
    #[arg(long, global = true)]
    pub(crate) stats: bool,
    /// Packets, bytes and flows of each in a second, which is waited for
    #[arg(long, global = true, conflicts_with = "stats")]
    pub(crate) rate: bool,
    /// Counts in full, as they always are here
    #[arg(long, hide = true)]
    pub(crate) exact: bool,
    /// What to do; default: list
    #[command(subcommand)]
    pub(crate) command: Option<ServiceCommand>,
    /// As ipvsadm: add a service
    #[arg(short = 'A', long)]
    pub(crate) add_service: bool,
    /// As ipvsadm: edit a service
    #[arg(short = 'E', long)]
    pub(crate) edit_service: bool,
    /// As ipvsadm: delete a service and its servers
    #[arg(short = 'D', long)]
    pub(crate) delete_service: bool,
    /// As ipvsadm: add a server to a service
    #[arg(short = 'a', long, requires = "real_server")]
    pub(crate) add_server: bool,
    /// As ipvsadm: edit a server of a service
    #[arg(short = 'e', long, requires = "real_server")]
    pub(crate) edit_server: bool,
    /// As ipvsadm: delete a server of a service
    #[arg(short = 'd', long, requires = "real_server")]
    pub(crate) delete_server: bool,
    /// As ipvsadm: list services
    #[arg(short = 'L', visible_short_alias = 'l', long)]
    pub(crate) list: bool,
    /// As ipvsadm: print services and servers as lines for -R
    #[arg(short = 'S', long)]
    pub(crate) save: bool,
    /// As ipvsadm: read such lines from standard input, all of them or none
    #[arg(short = 'R', long)]
    pub(crate) restore: bool,
    /// As ipvsadm: delete all services
    #[arg(short = 'C', long)]
    pub(crate) clear: bool,
    /// As ipvsadm: set the counters of all services or of one, and of their servers, to 0
    #[arg(short = 'Z', long)]
    pub(crate) zero: bool,
    /// Addresses as numbers, as they always are here
    #[arg(short = 'n', long)]
    pub(crate) numeric: bool,
    #[command(flatten)]
    pub(crate) place: Place,
    /// Server: `ADDRESS`, `ADDRESS:PORT` or `[ADDRESS]:PORT`
    #[arg(short = 'r', long, value_name = "SERVER")]
    pub(crate) real_server: Option<String>,
    #[command(flatten)]
    pub(crate) how: How,
    #[command(flatten)]
    pub(crate) foreign: Foreign,
}

/// Options of ipvsadm's that mean nothing here: known, so that they are refused with a reason.
#[derive(Debug, Args)]
pub(crate) struct Foreign {
    #[arg(short = 's', long, hide = true)]
    pub(crate) scheduler: Option<String>,
    #[arg(short = 'p', long, hide = true, num_args = 0..=1, default_missing_value = "300")]
    pub(crate) persistent: Option<String>,
    #[arg(short = 'c', long, hide = true)]
    pub(crate) connection: bool,
    #[arg(long, hide = true)]
    pub(crate) timeout: bool,
    #[arg(long, hide = true, num_args = 3)]
    pub(crate) set: Option<Vec<String>>,
    #[arg(long, hide = true)]
    pub(crate) daemon: bool,
    #[arg(long, hide = true)]
    pub(crate) start_daemon: Option<String>,
    #[arg(long, hide = true)]
    pub(crate) stop_daemon: Option<String>,
    #[arg(long, hide = true)]
    pub(crate) thresholds: bool,
    #[arg(short = 'x', long, hide = true)]
    pub(crate) u_threshold: Option<String>,
    #[arg(short = 'y', long, hide = true)]
    pub(crate) l_threshold: Option<String>,
    #[arg(long, hide = true)]
    pub(crate) persistent_conn: bool,
    #[arg(short = 'f', long, hide = true)]
    pub(crate) fwmark_service: Option<String>,
}

/// Which service.
#[derive(Debug, Args)]
#[group(id = "place", multiple = false)]
pub(crate) struct Place {
    /// TCP service: ADDRESS:PORT, `[ADDRESS]:PORT`, or ADDRESS for all ports
    #[arg(short = 't', long, value_name = "SERVICE")]
    pub(crate) tcp_service: Option<String>,
    /// UDP service
    #[arg(short = 'u', long, value_name = "SERVICE")]
    pub(crate) udp_service: Option<String>,
}

/// What there is to say of a service or a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct How {
    /// Part of the flows
    #[arg(short = 'w', long, value_name = "N")]
    pub(crate) weight: Option<u32>,
    /// Change address and port (nat)
    #[arg(short = 'm', long, group = "mode_flag")]
    pub(crate) masquerading: bool,
    /// Send packets in packets (ipip)
    #[arg(short = 'i', long, group = "mode_flag")]
    pub(crate) ipip: bool,
    /// Change the MAC address alone (dsr)
    #[arg(short = 'g', long, group = "mode_flag")]
    pub(crate) gatewaying: bool,
    /// How packets get to servers
    #[arg(long, value_name = "MODE", group = "mode_flag")]
    pub(crate) mode: Option<ServiceMode>,
    /// As ipvsadm, with -i: what packets are put into; gue: with a header of its own
    #[arg(long, value_name = "TYPE", hide = true)]
    pub(crate) tun_type: Option<TunType>,
    /// As ipvsadm: destination port of gue
    #[arg(long, value_name = "PORT", hide = true)]
    pub(crate) tun_port: Option<u16>,
    /// As ipvsadm: tunnels without a checksum of their own, as they always are here
    #[arg(long, hide = true)]
    pub(crate) tun_nocsum: bool,
    /// MAC address of the server or its gateway
    #[arg(long, value_name = "MAC")]
    pub(crate) mac: Option<String>,
    /// Port of the edge that the server is behind
    #[arg(long, value_name = "PORT")]
    pub(crate) to: Option<String>,
    /// Name of the service
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
}

/// What ipvsadm puts packets into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TunType {
    Ipip,
    Gue,
}

/// How packets get to servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ServiceMode {
    /// In another IP packet
    Ipip,
    /// In UDP
    Gue,
    /// With another destination
    Nat,
    /// As they are, to the server's MAC address
    Dsr,
}

/// Commands on the services of a running balancer.
#[derive(Debug, Subcommand)]
pub(crate) enum ServiceCommand {
    /// List services and servers
    #[command(alias = "show")]
    List {
        /// Addresses as numbers, as they always are here
        #[arg(short = 'n', long)]
        numeric: bool,
    },
    /// Add a service
    Add {
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        how: How,
    },
    /// Edit a service: its mode or name
    Edit {
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        how: How,
    },
    /// Delete a service and its servers
    Delete {
        #[command(flatten)]
        place: Place,
    },
    /// Add a server to a service
    AddServer {
        #[command(flatten)]
        place: Place,
        /// Server
        #[arg(short = 'r', long, value_name = "SERVER")]
        real_server: String,
        #[command(flatten)]
        how: How,
    },
    /// Edit a server of a service
    EditServer {
        #[command(flatten)]
        place: Place,
        /// Server
        #[arg(short = 'r', long, value_name = "SERVER")]
        real_server: String,
        #[command(flatten)]
        how: How,
    },
    /// Delete a server of a service
    DeleteServer {
        #[command(flatten)]
        place: Place,
        /// Server
        #[arg(short = 'r', long, value_name = "SERVER")]
        real_server: String,
    },
    /// Let a server keep its flows and give it no new ones, in one service or in all; --off: give it new ones again
    Drain {
        #[command(flatten)]
        place: Place,
        /// Server
        #[arg(short = 'r', long, value_name = "ADDRESS")]
        real_server: IpAddr,
        /// New flows again
        #[arg(long)]
        off: bool,
    },
    /// Stay, and take servers that do not answer out of the ring until they do: as the services' `check` says, and else TCP services with a port as options say
    Check(Check),
    /// Write the configuration that runs, with all changes, into a file
    Save {
        /// The file
        #[arg(short = 'o', long, value_name = "FILE")]
        output: PathBuf,
    },
}

/// How servers are asked.
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Ask for this path by HTTP and want an answer of 200 to 399; without it a connection is enough
    #[arg(long, value_name = "PATH")]
    pub(crate) http: Option<String>,
    /// Seconds between two rounds
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    pub(crate) interval: f64,
    /// Seconds that an answer may take
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    pub(crate) timeout: f64,
    /// Failures in a row that make a server down
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(crate) fall: u32,
    /// Answers in a row that bring it back
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(crate) rise: u32,
    /// Stop by itself after this many seconds
    #[arg(long = "for", value_name = "SECONDS")]
    pub(crate) duration: Option<f64>,
}
