//! Arguments of `weir sensor`: where frames come from, which rules they are held to, where logs go. Letters are those that users of such sensors know.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Subcommand, ValueEnum};

use super::value::duration;

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
    /// Check and analyze rules without traffic
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
    /// Load rules and report which are rejected, where and why; exit status 1 if any is
    Check(CheckArgs),
    /// Analyze rules: weak or missing fast patterns, expensive regular expressions, number of contents
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
    /// Number of rejected rules to show; 0: all
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) show: usize,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Dialects of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DialectName {
    /// Suricata 5 and later, including deprecated keywords
    Suricata,
    /// Snort 3
    Snort3,
}

/// Engines that look for contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MatcherName {
    /// Hashed four-byte windows: fast and small
    Prefilter,
    /// Aho-Corasick over all contents: slower, for cross-checks
    AhoCorasick,
}

/// Ways to listen to an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CaptureName {
    /// AF_PACKET with a memory-mapped ring (TPACKET_V3)
    AfPacket,
    /// libpcap, for `any` and devices that only libpcap supports; slower; needs a build with the feature `libpcap`
    Libpcap,
}

/// Where the kernel keeps packets of bypassed flows away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BypassName {
    /// At the socket, if the kernel permits it
    Auto,
    /// At the socket; the host's traffic is not affected
    Socket,
    /// XDP drops them, before the stack: for interfaces that carry a copy of traffic only
    Xdp,
    /// Nowhere: the sensor reads and counts them
    None,
}

/// What is left out while packets come faster than they are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ShedName {
    /// Whole flows, the newest first, in the kernel; counted
    Flows,
    /// Packets at random, as rings are full
    #[default]
    None,
}

/// Checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ChecksumsName {
    /// Interfaces: use the kernel's checksum status of each frame. Captures: validate, unless more than 10 % of the first 1,000 frames are wrong
    Auto,
    /// Discard packets with bad checksums
    All,
    /// Ignore checksums
    None,
}

/// What decides how rules are read.
#[derive(Debug, clap::Args)]
pub(crate) struct SettingsArgs {
    /// Configuration file: TOML (*.toml) or Suricata-style YAML; repeatable, later files override
    #[arg(short = 'c', long = "config", value_name = "FILE")]
    pub(crate) configs: Vec<PathBuf>,
    /// Read this file after the configuration: what it says overrides; repeatable
    #[arg(long = "include", value_name = "FILE")]
    pub(crate) includes: Vec<PathBuf>,
    /// Override a configuration value: KEY=VALUE, for example vars.address-groups.HOME_NET=10.0.0.0/8
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) sets: Vec<String>,
    /// Rule syntax
    #[arg(long, value_enum, default_value = "suricata")]
    pub(crate) dialect: DialectName,
}

/// Two interfaces with a colon between them.
fn joined(text: &str) -> Result<[String; 2], String> {
    let (a, b) = text
        .split_once(':')
        .ok_or("expected two interfaces, as eth1:eth2")?;
    if a == b {
        return Err(format!("{a} cannot be joined with itself"));
    }
    let name = |text| weir_value::interface(text).map_err(|e| e.to_string());
    Ok([name(a)?, name(b)?])
}

/// Arguments of a run.
#[derive(Debug, clap::Args)]
pub(crate) struct SensorRunArgs {
    /// Read captures: a file, or a directory (files in order of their names); repeatable
    #[arg(short = 'r', long = "read", value_name = "CAPTURE")]
    pub(crate) read: Vec<PathBuf>,
    /// Capture from an interface; repeatable. Without -r and -i: the interfaces of the configuration (af-packet, or pcap with --capture libpcap)
    #[arg(
        short = 'i',
        long = "interface",
        value_name = "IF", value_parser = weir_value::interface,
        conflicts_with = "read"
    )]
    pub(crate) interfaces: Vec<String>,
    /// Capture method
    #[arg(long, value_enum, default_value = "af-packet", conflicts_with = "read")]
    pub(crate) capture: CaptureName,
    /// Share the interfaces with the other sensors that say the same number: each pair of addresses is read by one of them
    #[arg(long, value_name = "NUMBER", conflicts_with = "read")]
    pub(crate) cluster: Option<u16>,
    /// Where the kernel keeps packets of bypassed flows away from the sensor (xdp: drops them, for interfaces that carry a copy of traffic); default: from the configuration, else auto
    #[arg(long, value_enum, value_name = "WHERE", conflicts_with_all = ["read", "inline"])]
    pub(crate) bypass: Option<BypassName>,
    /// What to leave out while packets come faster than they are read
    #[arg(long, value_enum, value_name = "WHAT", default_value = "none", conflicts_with_all = ["read", "inline"])]
    pub(crate) shed: ShedName,
    /// Stand between two interfaces (IF1:IF2): frames pass from one to the other unless a rule drops or rejects them. Also: af-packet in the configuration, with copy-mode: ips and copy-iface
    #[arg(
        long,
        value_name = "IF1:IF2", value_parser = joined,
        conflicts_with_all = ["read", "interfaces", "filter", "capture", "cluster"]
    )]
    pub(crate) inline: Option<[String; 2]>,
    /// Inline: frames that the sensor cannot take, as it is late, stopped or dead, pass uninspected
    #[arg(long, overrides_with = "fail_closed", conflicts_with_all = ["read", "interfaces"])]
    pub(crate) fail_open: bool,
    /// Inline: such frames are dropped (default)
    #[arg(long, overrides_with = "fail_open", conflicts_with_all = ["read", "interfaces"])]
    pub(crate) fail_closed: bool,
    /// Give the interfaces of --inline back to the host, and exit: they stay joined when the sensor ends
    #[arg(long, requires = "inline")]
    pub(crate) detach: bool,
    /// Read directories recursively
    #[arg(long)]
    pub(crate) recursive: bool,
    /// Keep reading growing files and new files in directories until Ctrl-C
    #[arg(long, requires = "read")]
    pub(crate) follow: bool,
    /// With --follow or an interface: stop after this time without a frame
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) idle: Option<Duration>,
    /// Capture filter in tcpdump syntax
    #[arg(short = 'f', long = "filter", value_name = "FILTER")]
    pub(crate) filter: Option<String>,
    /// Load only these rules: a file, a glob pattern or a directory; repeatable
    #[arg(short = 'S', value_name = "RULES")]
    pub(crate) only_rules: Vec<PathBuf>,
    /// Load these rules in addition to those of the configuration
    #[arg(short = 's', value_name = "RULES")]
    pub(crate) rules: Vec<PathBuf>,
    /// Log directory; created if missing
    #[arg(short = 'l', long = "log", value_name = "DIR", default_value = ".")]
    pub(crate) log: PathBuf,
    /// Checksum validation; default: from the configuration, else auto
    #[arg(short = 'k', long = "checksums", value_enum, value_name = "WHICH")]
    pub(crate) checksums: Option<ChecksumsName>,
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
    /// Where sets that rules change are kept from run to run (`dataset` with `state`, `save`)
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Show what an inline sensor would do to these captures: rules with drop and reject take effect, later packets of dropped flows are not inspected
    #[arg(long, conflicts_with = "interfaces", overrides_with = "simulate_ips")]
    pub(crate) simulate_ips: bool,
    /// Load the firewall's rules from these files, and from no other: what no rule of them accepts is dropped; repeatable
    #[arg(long, value_name = "FILE", requires = "simulate_ips")]
    pub(crate) firewall_rules_exclusive: Vec<PathBuf>,
    /// Once sockets are open: drop capabilities, allow few system calls (seccomp), write only to --log and --data-dir (Landlock)
    #[arg(long, conflicts_with_all = ["inline", "capture"])]
    pub(crate) confine: bool,
    /// Limit memory to so many MiB; a sensor that needs more ends
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(64..=1 << 24))]
    pub(crate) memory_limit: Option<u32>,
    /// Number of worker threads, on interfaces each with its own ring; results do not depend on it. Default: af-packet.N.threads, else 1. With --inline and --simulate-ips there is one
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) workers: Option<u16>,
    /// Pattern matching engine; results do not depend on it
    #[arg(long, value_enum, default_value = "prefilter")]
    pub(crate) engine: MatcherName,
    /// Profile rules: show the most expensive ones, with the buffer that cost most
    #[arg(long)]
    pub(crate) profile_rules: bool,
    /// Test the configuration and the rules, and exit; with --strict, status 1 if anything is rejected
    #[arg(short = 'T', long = "test-config")]
    pub(crate) test_config: bool,
    /// Write an analysis of the rules to the log directory (rules.json, patterns.json, text reports, rule_group.json, as the configuration says), and exit; status 1 if a rule is rejected
    #[arg(long, conflicts_with_all = ["test_config", "interfaces", "read"])]
    pub(crate) engine_analysis: bool,
    /// Exit with status 1 if a rule is rejected, 2 if a configuration key asks for an unsupported output
    #[arg(long)]
    pub(crate) strict: bool,
    /// Print the configuration with what the command line changes of it, one `key = value` a line, and exit
    #[arg(long, hide_short_help = true)]
    pub(crate) dump_config: bool,
    /// List the keywords of rules, and exit
    #[arg(long, hide_short_help = true)]
    pub(crate) list_keywords: bool,
    /// List the application protocols that rules may name, and exit
    #[arg(long, hide_short_help = true)]
    pub(crate) list_app_layer_protos: bool,
    /// Accepted for configurations of others: nothing here depends on chance
    #[arg(long, hide_short_help = true)]
    pub(crate) no_random: bool,
    /// Print the summary as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Verbose: every rejected rule, every ignored configuration key, all counters
    #[arg(short = 'v', long, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}
