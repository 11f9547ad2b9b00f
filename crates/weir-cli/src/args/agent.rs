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

/// Arguments of `weir logs`.
#[derive(Debug, clap::Args)]
pub(crate) struct LogsArgs {
    /// Wait for the next events, until Ctrl-C
    #[arg(short = 'f', long)]
    pub(crate) follow: bool,
    /// Only events of the last TIME; default: all that the agent keeps
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) since: Option<Duration>,
    /// Only events of this kind, as `drops` or `applied`; repeatable
    #[arg(long = "event", value_name = "KIND")]
    pub(crate) events: Vec<String>,
    /// Only events of this edge
    #[arg(long, value_name = "NAME")]
    pub(crate) edge: Option<String>,
    /// Socket of the agent; default: that of /etc/weir/agent.toml
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Print one JSON object per event
    #[arg(long)]
    pub(crate) json: bool,
}
