//! Arguments of `weir route`.

use std::net::IpAddr;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::value::duration;

/// Arguments of `weir route`.
#[derive(Debug, Args)]
pub(crate) struct RouteArgs {
    /// Name of the edge; default: the one running here
    #[arg(long, value_name = "NAME", global = true)]
    pub(crate) edge: Option<String>,
    /// The router; default: the only one
    #[arg(long, value_name = "NAME", global = true)]
    pub(crate) function: Option<String>,
    /// Print one JSON object (follow: one a line)
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: RouteCommand,
}

/// Commands on the routes of a running router.
#[derive(Debug, Subcommand)]
pub(crate) enum RouteCommand {
    /// List the routes, as `ip route` would
    #[command(alias = "show")]
    List {
        /// Only routes to this prefix and those in it
        #[arg(value_name = "PREFIX")]
        within: Option<String>,
    },
    /// Say which route packets to an address take
    Get {
        /// Where to
        #[arg(value_name = "ADDRESS", value_parser = weir_value::address)]
        address: IpAddr,
    },
    /// List next hops and interfaces, with what was sent to each and the link-layer addresses that were learned
    Hops,
    /// Add or replace a route, in `ip route` syntax; `-` reads one per line from standard input, atomically
    #[command(aliases = ["replace", "append"])]
    Add {
        /// As in: 10.0.0.0/8 via 192.0.2.1 dev lan metric 10
        #[arg(
            required = true,
            trailing_var_arg = true,
            allow_hyphen_values = true,
            value_name = "ROUTE"
        )]
        words: Vec<String>,
    },
    /// Delete the route to a prefix: the given metric, or the lowest
    #[command(alias = "del")]
    Delete {
        /// As in: 10.0.0.0/8 metric 10
        #[arg(required = true, trailing_var_arg = true, value_name = "PREFIX")]
        words: Vec<String>,
    },
    /// Import the kernel's routes once; configured and added routes stay
    Sync {
        /// Kernel routing table: `main`, or a number
        #[arg(long, value_name = "TABLE", default_value = "main")]
        table: String,
    },
    /// Follow the kernel's routing table, so that BIRD, FRR or `ip route` feed the router
    Follow {
        /// Kernel routing table: `main`, or a number
        #[arg(long, value_name = "TABLE", default_value = "main")]
        table: String,
        /// Stop after this time
        #[arg(long = "duration", alias = "for", value_name = "TIME", value_parser = duration)]
        duration: Option<Duration>,
    },
}
