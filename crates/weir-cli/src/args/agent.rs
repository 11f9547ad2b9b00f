//! Arguments of `weir agent`.

use std::path::PathBuf;
use std::time::Duration;

use super::value::duration;

/// Arguments of `weir agent`.
#[derive(Debug, clap::Args)]
pub(crate) struct AgentArgs {
    /// Folder of the edges' files (*.toml), and of agent.toml
    #[arg(value_name = "FOLDER", default_value = "/etc/weir")]
    pub(crate) folder: PathBuf,
    /// Interval between looks at files and edges
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = duration)]
    pub(crate) interval: Duration,
    /// Print one JSON object for each event
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `weir page`.
#[derive(Debug, clap::Args)]
pub(crate) struct PageArgs {
    /// Folder of the agent, whose agent.toml names its socket
    #[arg(value_name = "FOLDER", default_value = "/etc/weir")]
    pub(crate) folder: PathBuf,
    /// Socket of the agent; default: that of agent.toml
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
