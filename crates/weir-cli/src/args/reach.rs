//! Arguments in front of a command: the agent that it goes through.

use std::path::PathBuf;

/// Which agent.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct ReachArgs {
    /// Agent to go through: https://HOST:PORT, the path of its socket, or a name of client.toml
    #[arg(long, value_name = "AGENT")]
    pub(crate) agent: Option<String>,
    /// Certificate to show to it (PEM)
    #[arg(long, value_name = "FILE")]
    pub(crate) cert: Option<PathBuf>,
    /// Private key of that certificate (PEM)
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// Certificates of authorities that its certificate is verified with (PEM)
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
}
