//! Arguments of `weir sensor`: where frames come from, which rules they are held to, where logs go. Letters are those that users of such sensors know.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};

/// Arguments of `weir sensor`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct SensorArgs {
    /// What else to do; without it, the sensor runs.
    #[command(subcommand)]
    pub(crate) command: Option<SensorCommand>,
    #[command(flatten)]
    pub(crate) run: SensorRunArgs,
}

/// Commands beside running it.
#[derive(Debug, Subcommand)]
pub(crate) enum SensorCommand {
    /// Look at rules without traffic
    Rules(RulesArgs),
}

/// Arguments of `weir sensor rules`.
#[derive(Debug, clap::Args)]
pub(crate) struct RulesArgs {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: RulesCommand,
}

/// What can be done with rules.
#[derive(Debug, Subcommand)]
pub(crate) enum RulesCommand {
    /// Load rules as a run would, and say which are refused, where and why; exit status 1 if some are
    Check(CheckArgs),
    /// Load rules and say which have no good lead: they are asked of much traffic. Also which look far for a regular expression, and how many contents each has
    Analyse(CheckArgs),
}

/// Arguments of `weir sensor rules check`.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// Rule files, patterns with `*`, or directories (their `.rules` files)
    #[arg(required = true, value_name = "RULES")]
    pub(crate) rules: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
    /// How many refused rules are shown with their line; 0: all
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) show: usize,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Dialects of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DialectName {
    /// Of Suricata 5 and later, with the old keywords
    Suricata,
    /// Of Snort 3
    Snort3,
}

/// Engines that look for contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MatcherName {
    /// Windows of four bytes, hashed: fast, small
    Prefilter,
    /// Aho-Corasick over all contents: the oracle of the other
    AhoCorasick,
}

/// Ways to listen to an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CaptureName {
    /// The kernel's packet socket with a mapped ring
    AfPacket,
    /// The system's libpcap, for `any` and for what only it can open; slower. Builds with the feature `libpcap` have it
    Libpcap,
}

/// Checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ChecksumsName {
    /// Of an interface as the kernel knows of each frame, of a capture unless more than a tenth of its first thousand frames are wrong
    Auto,
    /// Packets with wrong ones are left out of streams, as their receivers leave them out
    All,
    /// They are not looked at
    None,
}

/// What decides how rules are read.
#[derive(Debug, clap::Args)]
pub(crate) struct SettingsArgs {
    /// Configuration: TOML (a name that ends in .toml), or YAML of which the parts that users share are read; repeat to override
    #[arg(short = 'c', long = "config", value_name = "FILE")]
    pub(crate) configs: Vec<PathBuf>,
    /// Override one value of it: KEY=VALUE, as vars.address-groups.HOME_NET=10.0.0.0/8
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) sets: Vec<String>,
    /// Dialect of the rules
    #[arg(long, value_enum, default_value = "suricata")]
    pub(crate) dialect: DialectName,
}

/// Arguments of a run.
#[derive(Debug, clap::Args)]
pub(crate) struct SensorRunArgs {
    /// Read captures: a file, or a directory (its files by name); repeat for more
    #[arg(short = 'r', long = "read", value_name = "CAPTURE")]
    pub(crate) read: Vec<PathBuf>,
    /// Listen to an interface; repeat for more. Without -r and -i, to those of the configuration (af-packet, or pcap with --capture libpcap)
    #[arg(
        short = 'i',
        long = "interface",
        value_name = "IF",
        conflicts_with = "read"
    )]
    pub(crate) interfaces: Vec<String>,
    /// How an interface is listened to
    #[arg(long, value_enum, default_value = "af-packet", conflicts_with = "read")]
    pub(crate) capture: CaptureName,
    /// Also directories in directories
    #[arg(long)]
    pub(crate) recursive: bool,
    /// Wait for more at the end of the last file, and for new files in directories, until Ctrl-C
    #[arg(long, requires = "read")]
    pub(crate) follow: bool,
    /// With --follow or an interface: end after so many seconds without a frame
    #[arg(long, value_name = "SECONDS")]
    pub(crate) idle: Option<f64>,
    /// Only frames that a filter in the syntax of tcpdump takes
    #[arg(short = 'f', long = "filter", value_name = "FILTER")]
    pub(crate) filter: Option<String>,
    /// Only these rules, not those of the configuration: a file, a pattern with `*`, or a directory; repeat for more
    #[arg(short = 'S', value_name = "RULES")]
    pub(crate) only_rules: Vec<PathBuf>,
    /// These rules beside those of the configuration
    #[arg(short = 's', value_name = "RULES")]
    pub(crate) rules: Vec<PathBuf>,
    /// Directory of the logs; it is made if it is not there
    #[arg(short = 'l', long = "log", value_name = "DIR", default_value = ".")]
    pub(crate) log: PathBuf,
    /// Checksums; default: what the configuration says, else auto
    #[arg(short = 'k', long = "checksums", value_enum, value_name = "WHICH")]
    pub(crate) checksums: Option<ChecksumsName>,
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
    /// Threads that flows are spread over; results are the same for any number
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) workers: u16,
    /// What looks for contents; results are the same
    #[arg(long, value_enum, default_value = "prefilter")]
    pub(crate) engine: MatcherName,
    /// Count what each rule costs, and show those that cost most, with the buffer that each cost most for
    #[arg(long)]
    pub(crate) profile_rules: bool,
    /// Exit with status 2 if a rule is refused, or if a key of the configuration asks for what would be lost
    #[arg(long)]
    pub(crate) strict: bool,
    /// Print the summary as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Say more: refused rules one by one, all keys of the configuration that change nothing, all counters
    #[arg(short = 'v', long, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}
