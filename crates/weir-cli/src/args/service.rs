//! Arguments of `weir service`: words of its own, and the spellings of ipvsadm.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand, ValueEnum};

use weir_value::Mac;

use super::value::duration;

/// Arguments of `weir service`.
#[derive(Debug, Args)]
#[command(
    group(ArgGroup::new("what").args(["add_service", "edit_service", "delete_service", "add_server", "edit_server", "delete_server", "list", "save", "restore", "clear", "zero"])),
    after_help = "ipvsadm's spellings work, too: -A -t 192.0.2.1:80, then -a -t 192.0.2.1:80 -r 10.0.0.1 -w 2 -i, -L -n --stats."
)]
pub(crate) struct ServiceArgs {
    /// Name of the edge; default: the one running here
    #[arg(long, value_name = "NAME", global = true)]
    pub(crate) edge: Option<String>,
    /// The balancer; default: the only one
    #[arg(long, value_name = "NAME", global = true)]
    pub(crate) function: Option<String>,
    /// Print one JSON object
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Show packets, bytes and flows
    #[arg(long, global = true)]
    pub(crate) stats: bool,
    /// Show rates per second (takes a second)
    #[arg(long, global = true, conflicts_with = "stats")]
    pub(crate) rate: bool,
    /// Exact counts (always on)
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
    /// As ipvsadm: print services and servers in the format of -R
    #[arg(short = 'S', long)]
    pub(crate) save: bool,
    /// As ipvsadm: restore services from standard input, atomically
    #[arg(short = 'R', long)]
    pub(crate) restore: bool,
    /// As ipvsadm: delete all services
    #[arg(short = 'C', long)]
    pub(crate) clear: bool,
    /// As ipvsadm: zero the counters of all services or of one
    #[arg(short = 'Z', long)]
    pub(crate) zero: bool,
    /// Numeric addresses (always on)
    #[arg(short = 'n', long)]
    pub(crate) numeric: bool,
    #[command(flatten)]
    pub(crate) place: ServiceSelector,
    /// Server: `ADDRESS`, `ADDRESS:PORT` or `[ADDRESS]:PORT`
    #[arg(short = 'r', long, value_name = "SERVER")]
    pub(crate) real_server: Option<String>,
    #[command(flatten)]
    pub(crate) how: How,
    #[command(flatten)]
    pub(crate) foreign: Foreign,
}

/// ipvsadm options without a meaning here: known, so that they are refused with a reason.
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
pub(crate) struct ServiceSelector {
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
    /// Weight
    #[arg(short = 'w', long, value_name = "N")]
    pub(crate) weight: Option<u32>,
    /// NAT (masquerading)
    #[arg(short = 'm', long, group = "mode_flag")]
    pub(crate) masquerading: bool,
    /// IPIP tunnel
    #[arg(short = 'i', long, group = "mode_flag")]
    pub(crate) ipip: bool,
    /// Direct routing (DSR)
    #[arg(short = 'g', long, group = "mode_flag")]
    pub(crate) gatewaying: bool,
    /// Forwarding method
    #[arg(long, value_name = "MODE", group = "mode_flag")]
    pub(crate) mode: Option<ServiceMode>,
    /// As ipvsadm, with -i: tunnel type
    #[arg(long, value_name = "TYPE", hide = true)]
    pub(crate) tun_type: Option<TunType>,
    /// As ipvsadm: destination port of gue
    #[arg(long, value_name = "PORT", hide = true)]
    pub(crate) tun_port: Option<u16>,
    /// As ipvsadm: tunnels without checksum (always)
    #[arg(long, hide = true)]
    pub(crate) tun_nocsum: bool,
    /// MAC address of the server or its gateway
    #[arg(long, value_name = "MAC", value_parser = Mac::of_station)]
    pub(crate) mac: Option<Mac>,
    /// Port of the edge towards the server
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
    /// IPIP tunnel
    Ipip,
    /// GUE: tunnel over UDP
    Gue,
    /// NAT
    Nat,
    /// Direct server return: rewrite the MAC address only
    Dsr,
}

/// Commands on the services of a running balancer.
#[derive(Debug, Subcommand)]
pub(crate) enum ServiceCommand {
    /// List services and servers
    #[command(alias = "show")]
    List {
        /// Numeric addresses (always on)
        #[arg(short = 'n', long)]
        numeric: bool,
    },
    /// Add a service
    Add {
        #[command(flatten)]
        place: ServiceSelector,
        #[command(flatten)]
        how: How,
    },
    /// Edit a service: its mode or name
    Edit {
        #[command(flatten)]
        place: ServiceSelector,
        #[command(flatten)]
        how: How,
    },
    /// Delete a service and its servers
    Delete {
        #[command(flatten)]
        place: ServiceSelector,
    },
    /// Add a server to a service
    AddServer {
        #[command(flatten)]
        place: ServiceSelector,
        /// Server
        #[arg(short = 'r', long, value_name = "SERVER")]
        real_server: String,
        #[command(flatten)]
        how: How,
    },
    /// Edit a server of a service
    EditServer {
        #[command(flatten)]
        place: ServiceSelector,
        /// Server
        #[arg(short = 'r', long, value_name = "SERVER")]
        real_server: String,
        #[command(flatten)]
        how: How,
    },
    /// Delete a server of a service
    DeleteServer {
        #[command(flatten)]
        place: ServiceSelector,
        /// Server
        #[arg(short = 'r', long, value_name = "SERVER")]
        real_server: String,
    },
    /// Drain a server: keep existing flows, accept no new ones; --off ends it
    Drain {
        #[command(flatten)]
        place: ServiceSelector,
        /// Server
        #[arg(short = 'r', long, value_name = "ADDRESS", value_parser = weir_value::address)]
        real_server: IpAddr,
        /// Accept new flows again
        #[arg(long)]
        off: bool,
    },
    /// Run health checks: as configured by `check`, otherwise for TCP services by these options
    Check(Check),
    /// Save the running configuration, with all live changes, to a file
    Save {
        /// The file
        #[arg(short = 'o', long, value_name = "FILE")]
        output: PathBuf,
    },
}

/// How servers are asked.
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// HTTP check: GET this path, expect status 200 to 399; default: TCP connect
    #[arg(long, value_name = "PATH")]
    pub(crate) http: Option<String>,
    /// Interval between checks
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = duration)]
    pub(crate) interval: Duration,
    /// Timeout of a check
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    pub(crate) timeout: Duration,
    /// Consecutive failures until a server is down
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(crate) fall: u32,
    /// Consecutive successes until a server is up again
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(crate) rise: u32,
    /// Stop after this time
    #[arg(long = "duration", alias = "for", value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Duration>,
}
