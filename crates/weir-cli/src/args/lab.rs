//! Arguments of `weir lab`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;

use super::value::duration;
use super::{DemoArgs, ForwardArgs};
use crate::commands::lab_afxdp_judge::JudgeArgs;

/// Arguments of `weir lab`.
#[derive(Debug, clap::Args)]
pub(crate) struct LabArgs {
    /// The experiment.
    #[command(subcommand)]
    pub(crate) experiment: Experiment,
}

/// All experiments.
#[derive(Debug, Subcommand)]
pub(crate) enum Experiment {
    /// Demonstration: real HTTP and iperf3 traffic through an example policy; without root, from a capture
    Demo(DemoArgs),
    /// Sweep AF_XDP settings: round-trip times of all valid combinations, beside plain sockets (root)
    Afxdp(Box<AfxdpArgs>),
    /// Accuracy suite of the sensor: generated captures of attacks and of normal usage, and the alerts expected for each
    Sensor(SensorSuiteArgs),
    /// Compare weir (XDP, tc) with nftables and connection tracking, packet by packet: TCP, ICMP, fragments, NAT (root)
    Firewall(FirewallArgs),
    /// Forward frames between two interfaces in user space; a baseline of `weir bench network` (root)
    #[command(hide = true)]
    Forward(ForwardArgs),
}

/// Arguments of `weir lab sensor`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit status 1 if a case is not as it must be. Captures are the same bytes everywhere; no traffic is sent, and no privileges are needed."
)]
pub(crate) struct SensorSuiteArgs {
    /// Write captures, rules, expectations, logs and a script that runs another sensor to this directory
    #[arg(long, value_name = "DIR", conflicts_with = "judge")]
    pub(crate) keep: Option<PathBuf>,
    /// Only evaluate the logs that another sensor wrote to this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) judge: Option<PathBuf>,
    /// Also run these rules over the captures of normal usage and count alerts (false positives); repeatable
    #[arg(
        short = 'S',
        long = "rules",
        value_name = "RULES",
        conflicts_with = "judge"
    )]
    pub(crate) rules: Vec<PathBuf>,
    /// Show only classes and failed cases
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `weir lab firewall`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Runs in network namespaces that it creates and removes. Exit status 1 if weir does not do what a case expects, or passes what nftables drops."
)]
pub(crate) struct FirewallArgs {
    /// Run only cases with TEXT in their group or title; repeat for more
    #[arg(long = "case", value_name = "TEXT")]
    pub(crate) only: Vec<String>,
    /// Run only under this policy; repeat for more
    #[arg(long = "policy", value_name = "NAME")]
    pub(crate) policies: Vec<String>,
    /// Run only this device; repeat for more
    #[arg(long = "device", value_name = "DEVICE", value_parser = ["weir-xdp", "weir-tc", "nftables"])]
    pub(crate) devices: Vec<String>,
    /// Read cases from this file instead of the built-in ones; repeat for more
    #[arg(long = "script", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Write firewall.json and firewall.md into this folder
    #[arg(short = 'o', long = "output", alias = "out", value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `weir lab afxdp`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "With --from and --compare nothing runs, and no privileges are needed.\n\
Without -i the sweep makes two namespaces with a veth pair and removes them afterwards.\n\
Every setting that it changes is put back, also after an error or a signal; after a kill the next sweep, or --restore, does it."
)]
pub(crate) struct AfxdpArgs {
    /// Sweep definition (TOML); default: a preset
    #[arg(value_name = "SWEEP", conflicts_with = "preset")]
    pub(crate) document: Option<PathBuf>,
    /// Built-in sweep: default, paper, quick
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub(crate) preset: String,
    /// Print the definition and exit
    #[arg(long, conflicts_with_all = ["dry_run", "restore"])]
    pub(crate) show: bool,
    /// Print what would run, what cannot and why, and the estimated time
    #[arg(long, conflicts_with = "restore")]
    pub(crate) dry_run: bool,
    /// Only restore settings left by killed sweeps
    #[arg(long)]
    pub(crate) restore: bool,
    /// Interface of the prober
    #[arg(
        short = 'i',
        long = "interface",
        value_name = "IF", value_parser = weir_value::interface,
        requires = "forwarder"
    )]
    pub(crate) interface: Option<String>,
    /// Interface of the forwarder, connected to the prober's
    #[arg(long, value_name = "IF", value_parser = weir_value::interface, requires = "interface")]
    pub(crate) forwarder: Option<String>,
    /// Where the forwarder's host listens
    #[arg(
        long,
        value_name = "HOST:PORT",
        requires = "interface",
        conflicts_with = "forwarder"
    )]
    pub(crate) remote: Option<String>,
    /// Run as forwarder on the interface of -i for sweeps of another host; unauthenticated: any host that connects controls it
    #[arg(long, value_name = "ADDRESS:PORT", requires = "interface", conflicts_with_all = ["forwarder", "remote", "document", "show", "dry_run", "output"])]
    pub(crate) listen: Option<std::net::SocketAddr>,
    #[command(flatten)]
    pub(crate) judge: JudgeArgs,
    /// Output directory; an interrupted sweep resumes there. At the end: results.json, report.html, judgement.json, cells.csv
    #[arg(short = 'o', long = "output", alias = "out", value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Random seed of the order; overrides the definition
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Repetitions of every cell; overrides the definition
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) blocks: Option<u32>,
    /// Time limit of the sweep; overrides the definition: 25m, 90s
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) time_limit: Option<Duration>,
    /// Allow interfaces that may lead to a real network
    #[arg(long)]
    pub(crate) i_own_this_network: bool,
    /// Show progress even if standard error is not a terminal
    #[arg(long)]
    pub(crate) progress: bool,
    /// Print one JSON object: results, or the plan; with --from the judgement, with --compare what the sweeps share
    #[arg(long)]
    pub(crate) json: bool,
}
