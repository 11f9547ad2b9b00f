//! Arguments of `weir history` and `weir rollback`.

/// Arguments of `weir history`.
#[derive(Debug, clap::Args)]
pub(crate) struct HistoryArgs {
    /// Show this change with all that differed; default: list all changes
    #[arg(value_name = "NUMBER")]
    pub(crate) number: Option<u32>,
    /// Edge; default: the only one that runs here
    #[arg(long, value_name = "NAME")]
    pub(crate) edge: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `weir rollback`.
#[derive(Debug, clap::Args)]
pub(crate) struct RollbackArgs {
    /// Number of the change whose state to restore; default: the one before the newest
    #[arg(value_name = "NUMBER")]
    pub(crate) number: Option<u32>,
    /// Edge; default: the only one that runs here
    #[arg(long, value_name = "NAME")]
    pub(crate) edge: Option<String>,
    /// Print what would change, without changing it
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
