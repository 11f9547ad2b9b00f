//! Arguments of `weir set`.

use std::time::Duration;

use clap::{Args, Subcommand};
use weir_policy::dynamic::Element;

use super::value::duration;

/// Arguments of `weir set`.
#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// Interface of a `weir run`; required if several policies with dynamic sets run here
    #[arg(short = 'i', long = "interface", value_name = "IF", value_parser = weir_value::interface, global = true, conflicts_with_all = ["edge", "function"])]
    pub(crate) interface: Option<String>,
    /// Edge whose function has the sets
    #[arg(long, value_name = "NAME", global = true)]
    pub(crate) edge: Option<String>,
    /// The function: its name in the graph, or NETWORK/FUNCTION
    #[arg(long, value_name = "NAME", global = true)]
    pub(crate) function: Option<String>,
    /// Print one JSON object
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: SetCommand,
}

/// Commands on the dynamic sets of a running policy.
#[derive(Debug, Subcommand)]
pub(crate) enum SetCommand {
    /// List the sets, or the elements of one with the time they have left
    List {
        /// The set; default: all sets, with how many elements each has
        #[arg(value_name = "SET")]
        set: Option<String>,
    },
    /// Add addresses to a set; the time-out of those that are in it is replaced
    Add {
        /// The set
        #[arg(value_name = "SET")]
        set: String,
        /// IPv4, IPv6 or MAC addresses
        #[arg(required = true, value_name = "ADDRESS")]
        elements: Vec<Element>,
        /// How long they stay; default: the set's time-out
        #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "permanent")]
        timeout: Option<Duration>,
        /// Keep them until they are deleted
        #[arg(long)]
        permanent: bool,
    },
    /// Delete addresses from a set
    #[command(alias = "del")]
    Delete {
        /// The set
        #[arg(value_name = "SET")]
        set: String,
        /// IPv4, IPv6 or MAC addresses
        #[arg(required = true, value_name = "ADDRESS")]
        elements: Vec<Element>,
    },
    /// Delete all elements of a set
    Flush {
        /// The set
        #[arg(value_name = "SET")]
        set: String,
    },
}
