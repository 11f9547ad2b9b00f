//! The one table of commands and flags. Help, and every other appearance of a command, is generated from it.

pub(crate) mod agent;
#[cfg(test)]
mod conventions;
pub(crate) mod examples;
pub(crate) mod generate;
pub(crate) mod history;
pub(crate) mod import;
pub(crate) mod init;
pub(crate) mod lab;
pub(crate) mod net;
pub(crate) mod ports;
pub(crate) mod prog;
pub(crate) mod reach;
#[cfg(test)]
mod reference;
pub(crate) mod route;
pub(crate) mod sensor;
pub(crate) mod service;
pub(crate) mod set;
#[cfg(test)]
mod spellings;
pub(crate) mod table;
pub(crate) mod value;
pub(crate) mod watch;
pub(crate) mod xsk;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ColorChoice, Parser, Subcommand, ValueEnum};
use weir_lab::bench::Made;
use weir_lab::generate::Gaps;

/// weir turns a Linux host into a programmable packet-processing edge.
#[derive(Debug, Parser)]
#[command(name = "weir", arg_required_else_help = true)]
pub(crate) struct Args {
    /// Colors in messages; auto: on a terminal, unless NO_COLOR is set
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "WHEN",
        default_value = "auto",
        hide_default_value = true
    )]
    pub(crate) color: ColorChoice,
    /// Which agent.
    #[command(flatten)]
    pub(crate) reach: reach::ReachArgs,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// All commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Check policies, configurations, documents of networks
    ///
    /// And report all errors.
    Check(CheckArgs),
    /// Format policies in place, or print one
    Fmt(FmtArgs),
    /// Translate rules of iptables, nftables, pf
    ///
    /// Or xdp-filter to a policy; names each line that cannot be translated, and what that means.
    Import(import::ImportArgs),
    /// Write a policy as rules of nftables
    ///
    /// Names the rules that nftables cannot express.
    Export(import::ExportArgs),
    /// Explain rules, and which of them match packets
    ///
    /// In plain English; with a capture, which rules match its packets and why.
    Explain(ExplainArgs),
    /// Show classifier tables and the worst-case cost
    ///
    /// Of a policy or a running instance.
    Tables(TablesArgs),
    /// List and edit the rules of a running policy
    Rule(RuleArgs),
    /// List, count or delete tracked connections
    Connections(ConnectionsArgs),
    /// List and edit the dynamic sets of a running policy
    Set(set::SetArgs),
    /// Run a policy, graph or network over a capture
    ///
    /// No privileges are needed.
    Replay(ReplayArgs),
    /// Run a policy on interfaces, with live counters
    ///
    /// Until Ctrl-C, or for a time.
    Run(RunArgs),
    /// Write a commented configuration for a usual job
    ///
    /// A firewall, a gateway, a guard against floods, a load balancer, a virtual network, a sensor. What options leave open is taken from this
    /// host; on a terminal it is asked.
    Init(init::InitArgs),
    /// Show the plan of a file and what it would change
    ///
    /// Of a configuration, or of an edge's networks. Changes nothing.
    Plan(PlanArgs),
    /// Apply a configuration or a document of networks
    ///
    /// Idempotent: what is the same stays as it is.
    Apply(ApplyArgs),
    /// Show the difference between a file and the running state
    Diff(EdgeDiffArgs),
    /// Show what runs here: edges, policies, programs
    ///
    /// Edges with their graphs and networks, policies, loaded programs.
    Status(StatusArgs),
    /// List and edit the routes of a running router
    ///
    /// Or follow the kernel's routing table.
    Route(route::RouteArgs),
    /// List and edit load-balanced services and servers
    ///
    /// Also in ipvsadm syntax.
    Service(Box<service::ServiceArgs>),
    /// Manage tenants' virtual networks across hosts
    Net(net::NetArgs),
    /// Live rates, rules, connections, drops and workers
    ///
    /// A screen on a terminal, a table each interval otherwise. Keys: q quit, 1-5 tab, s sort, r reverse, / filter, p pause; w in the tab
    /// Drops: watch why. As root this host is read; other users, and --agent, read through the agent.
    Top(watch::TopArgs),
    /// Capture packets of a running graph to pcapng
    ///
    /// At any stage, with verdict and path.
    Capture(watch::CaptureArgs),
    /// Show why a running graph drops packets, each cause once
    ///
    /// With the number of packets, the function, the rule and one of the packets. Watches for 10 seconds, unless --duration or --count says
    /// otherwise.
    Drops(watch::DropsArgs),
    /// Trace packets through a running graph
    ///
    /// With verdicts and reasons.
    Trace(watch::TraceArgs),
    /// Keep edges as their files say, and their commands alive
    ///
    /// Applies the files of a folder, repairs what is damaged, reports what was edited.
    Agent(agent::AgentArgs),
    /// Show events of the agent: changes, drift, health, drops
    ///
    /// Those that it keeps, and with -f the next ones.
    Logs(agent::LogsArgs),
    /// Print a login link for the agent's page
    ///
    /// The link is valid once, for a minute. Whoever opens it has the role of the user who asked for it.
    Page(agent::PageArgs),
    /// Show what an edge was changed to, when and by whom
    History(history::HistoryArgs),
    /// Restore an earlier state of an edge from its history
    Rollback(history::RollbackArgs),
    /// Stop an edge, or clean up after a killed `weir run`
    Down(DownArgs),
    /// Inspect, verify, run and attach eBPF objects
    Prog(prog::ProgArgs),
    /// Generate synthetic traffic, and count what arrives
    Generate(generate::GenerateArgs),
    /// Signature-based intrusion detection
    ///
    /// On captures or interfaces.
    Sensor(Box<sensor::SensorArgs>),
    /// Send, receive, forward and measure with AF_XDP sockets
    ///
    /// Every socket option is a flag.
    Xsk(xsk::XskArgs),
    /// Probe kernel features and list the fallbacks in use
    Doctor(DoctorArgs),
    /// Print shell completions
    Completions(CompletionsArgs),
    /// Write man pages
    Man(ManArgs),
    /// Run experiments in network namespaces (weir-lab)
    #[command(disable_help_flag = true)]
    Lab(PassedOn),
    /// Run benchmarks against other tools (weir-lab)
    #[command(disable_help_flag = true)]
    Bench(PassedOn),
}

/// What follows a command of another program.
#[derive(Debug, clap::Args)]
pub(crate) struct PassedOn {
    /// See --help
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGUMENT"
    )]
    pub(crate) arguments: Vec<OsString>,
}

/// Test beds and benchmarks of weir; `weir lab` and `weir bench` start this program.
#[derive(Debug, Parser)]
#[command(
    name = "weir-lab",
    bin_name = "weir",
    arg_required_else_help = true,
    after_help = "Exit status: 0 done, 1 failed, 2 bad usage or configuration."
)]
pub(crate) struct LabProgram {
    /// Colors in messages; auto: on a terminal, unless NO_COLOR is set
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "WHEN",
        default_value = "auto",
        hide_default_value = true
    )]
    pub(crate) color: ColorChoice,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: LabCommand,
}

/// The commands of `weir-lab`.
#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// Run experiments in network namespaces
    Lab(lab::LabArgs),
    /// Run benchmarks against other tools in network namespaces
    Bench(BenchArgs),
}

/// Arguments of `weir check`.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// Policies, edge configurations, documents of networks
    #[arg(required = true, value_name = "FILE")]
    pub(crate) policies: Vec<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `weir fmt`.
#[derive(Debug, clap::Args)]
pub(crate) struct FmtArgs {
    /// Policy files; `-` reads standard input and prints
    #[arg(required = true, value_name = "POLICY")]
    pub(crate) policies: Vec<PathBuf>,
    /// Only check; exit with status 1 if a file is not formatted
    #[arg(long)]
    pub(crate) check: bool,
}

/// Arguments of `weir explain`.
#[derive(Debug, clap::Args)]
pub(crate) struct ExplainArgs {
    /// Policy file
    #[arg(value_name = "POLICY")]
    pub(crate) policy: PathBuf,
    /// Explain the policy on the packets of this capture
    #[arg(long = "in", value_name = "CAPTURE")]
    pub(crate) input: Option<PathBuf>,
    /// Only this packet, counted from 1
    #[arg(long, value_name = "N", requires = "input")]
    pub(crate) packet: Option<u64>,
    /// Only this rule, counted from 1
    #[arg(long, value_name = "ID")]
    pub(crate) rule: Option<u32>,
    /// Receive interface of the packets, if the capture does not record it
    #[arg(long, value_name = "NAME", requires = "input")]
    pub(crate) in_if: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `weir tables`.
#[derive(Debug, clap::Args)]
pub(crate) struct TablesArgs {
    /// Policy file; without one, the running instance
    #[arg(value_name = "POLICY")]
    pub(crate) policy: Option<PathBuf>,
    /// Interface of the running instance; required if several instances run
    #[arg(
        short = 'i',
        long = "interface",
        value_name = "IF", value_parser = weir_value::interface,
        conflicts_with = "policy"
    )]
    pub(crate) interface: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `weir rule`.
#[derive(Debug, clap::Args)]
pub(crate) struct RuleArgs {
    /// Interface of the instance; required if several instances run
    #[arg(short = 'i', long = "interface", value_name = "IF", value_parser = weir_value::interface, global = true)]
    pub(crate) interface: Option<String>,
    /// Edit only if the rules are still at this generation (see `weir rule list`)
    #[arg(long, value_name = "N", global = true)]
    pub(crate) if_generation: Option<u64>,
    /// Print one JSON object
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: RuleCommand,
}

/// Commands on the rules of a running instance.
#[derive(Debug, Subcommand)]
pub(crate) enum RuleCommand {
    /// Append a rule, in policy syntax; `-` reads one rule per line from standard input and adds all atomically
    #[command(alias = "add-stateless")]
    Add(RuleLine),
    /// Add a stateful rule
    AddStateful(RuleLine),
    /// Replace a rule atomically; the new rule gets a new id
    Replace(ReplaceArgs),
    /// Delete rules by id, atomically
    #[command(alias = "del")]
    Delete(DeleteArgs),
    /// List rules with ids and counters; + added live, - only in the policy file
    List,
    /// Delete all rules, atomically
    Flush,
    /// Replace the running policy; unchanged rules keep counters and connections
    Load(LoadArgs),
    /// Save the running rules to the policy file or to another file
    Save(SaveArgs),
    /// Rebuild the classifier, so that added rules match as fast as the others
    Compact,
}

/// A rule on the command line.
#[derive(Debug, clap::Args)]
pub(crate) struct RuleLine {
    /// Matches and targets
    #[arg(required = true, trailing_var_arg = true, value_name = "RULE")]
    pub(crate) words: Vec<String>,
}

/// Arguments of `weir rule replace`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReplaceArgs {
    /// The rule to replace
    #[arg(value_name = "ID")]
    pub(crate) id: u32,
    /// Matches and targets of the new rule
    #[arg(required = true, trailing_var_arg = true, value_name = "RULE")]
    pub(crate) words: Vec<String>,
}

/// Arguments of `weir rule delete`.
#[derive(Debug, clap::Args)]
pub(crate) struct DeleteArgs {
    /// Ids, as `weir rule list` shows them
    #[arg(required = true, value_name = "ID")]
    pub(crate) ids: Vec<u32>,
}

/// Arguments of `weir rule load`.
#[derive(Debug, clap::Args)]
pub(crate) struct LoadArgs {
    /// Policy file; default: re-read the running one
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Delete all connections; required if the policy changes the size of the table
    #[arg(long)]
    pub(crate) flush_connections: bool,
}

/// Arguments of `weir rule save`.
#[derive(Debug, clap::Args)]
pub(crate) struct SaveArgs {
    /// File to write; default: the policy file of the running instance
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Overwrite a file that was modified since it was read, or another file
    #[arg(long)]
    pub(crate) force: bool,
}

/// Arguments of `weir connections`.
#[derive(Debug, clap::Args)]
pub(crate) struct ConnectionsArgs {
    /// Interface of a `weir run`; required if several tables of connections are kept here
    #[arg(short = 'i', long = "interface", value_name = "IF", global = true, conflicts_with_all = ["edge", "function"])]
    pub(crate) interface: Option<String>,
    /// Edge whose function keeps the connections
    #[arg(long, value_name = "NAME", global = true)]
    pub(crate) edge: Option<String>,
    /// The function: its name in the graph, or NETWORK/FUNCTION
    #[arg(long, value_name = "NAME", global = true)]
    pub(crate) function: Option<String>,
    /// Print one JSON object
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Only the connection with this id
    #[arg(long, value_name = "ID", global = true)]
    pub(crate) id: Option<u64>,
    /// Only connections with this address at either end, original or translated
    #[arg(long, value_name = "ADDRESS", global = true, value_parser = weir_value::address)]
    pub(crate) address: Option<std::net::IpAddr>,
    /// Only connections with this port at either end (with --address: at the same end)
    #[arg(long, value_name = "PORT", global = true, value_parser = weir_value::port)]
    pub(crate) port: Option<u16>,
    /// Only this protocol, by name or number
    #[arg(long, value_name = "PROTOCOL", global = true, value_parser = value::protocol)]
    pub(crate) protocol: Option<String>,
    /// Only connections in this state
    #[arg(long, value_name = "STATE", global = true, value_parser = value::states())]
    pub(crate) state: Option<String>,
    /// Only connections of this rule
    #[arg(long, value_name = "ID", global = true)]
    pub(crate) rule: Option<u32>,
    /// What to do; default: list
    #[command(subcommand)]
    pub(crate) command: Option<ConnectionsCommand>,
}

/// What to do with connections.
#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum ConnectionsCommand {
    /// List connections
    List,
    /// Count connections by protocol and state
    Count,
    /// Delete connections: their next packets match rules like new ones
    Delete {
        /// Delete all connections; otherwise a filter is required
        #[arg(long)]
        all: bool,
    },
}

/// Engines of `weir replay`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EngineName {
    /// eBPF in weir's interpreter; no privileges needed
    User,
    /// eBPF verified and compiled to native code, about 30 times as fast; XDP on x86-64 only
    UserJit,
    /// eBPF in the running kernel (BPF_PROG_TEST_RUN); requires root
    Kernel,
    /// Reference interpreter of the policy language
    Reference,
}

/// How checksums in the capture are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Checksums {
    /// Complete, as on the wire
    Complete,
    /// Local packets may carry only the pseudo-header sum, as on veth
    Offloaded,
}

/// Arguments of `weir replay`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReplayArgs {
    /// Policy, or a graph configuration or virtual network document (*.toml)
    #[arg(value_name = "POLICY")]
    pub(crate) policy: PathBuf,
    /// Capture to read (pcap or pcapng)
    #[arg(long = "in", value_name = "CAPTURE")]
    pub(crate) input: PathBuf,
    /// Write every packet that was not dropped, as rewritten, with its timestamp (pcap, nanoseconds, link type Ethernet); of virtual networks, a folder with a capture for each
    /// device that packets left by
    #[arg(
        short = 'o',
        long = "output",
        alias = "out",
        value_name = "CAPTURE|FOLDER"
    )]
    pub(crate) output: Option<PathBuf>,
    /// Compare with another policy or graph: which packets it gave another verdict or other bytes, and by which rules
    #[arg(long, value_name = "POLICY", conflicts_with_all = ["output", "edge", "verdicts"])]
    pub(crate) against: Option<PathBuf>,
    /// Engine that runs the policy
    #[arg(long, value_enum, default_value = "user")]
    pub(crate) engine: EngineName,
    /// Receive interface of the packets; default: as recorded in the capture
    #[arg(long, value_name = "NAME")]
    pub(crate) in_if: Option<String>,
    /// Port of the graph that the packets came in by; default: the one the capture names, or the only one. Of virtual networks `NETWORK/WORKLOAD`, or
    /// `underlay`
    #[arg(long, value_name = "NAME")]
    pub(crate) port: Option<String>,
    /// Virtual networks: the edge; default: the only one, or the one with this host's name
    #[arg(long, value_name = "NAME")]
    pub(crate) edge: Option<String>,
    /// Virtual networks: print the verdict of every packet
    #[arg(long)]
    pub(crate) verdicts: bool,
    /// Kernel tables for routers: `host`, or a file with output of `ip route`, `ip neigh` and `ip link`
    #[arg(long, value_name = "host|FILE")]
    pub(crate) routes: Option<PathBuf>,
    /// Receive queue of the packets
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) queue: u16,
    /// How to read checksums in the capture; a port of a graph that says so itself knows better
    #[arg(long, value_enum, default_value = "complete")]
    pub(crate) checksums: Checksums,
    /// Largest L3 packet in bytes a rewrite may produce; default: no limit
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(68..=65_575))]
    pub(crate) mtu: Option<u32>,
    /// Seed of random drops
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Hooks of `weir run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum HookName {
    /// In front of the stack, received packets only: fastest
    Xdp,
    /// Traffic control: tcx, or clsact on kernels before 6.6
    Tc,
    /// tc through a clsact filter, for coexistence with other clsact users
    Clsact,
}

/// Engines of `weir run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RunEngineName {
    /// The running kernel
    Kernel,
    /// weir's interpreter over AF_XDP; passed packets enter the stack through a tap device
    User,
    /// eBPF verified and compiled to native code (x86-64), over AF_XDP
    UserJit,
}

/// Arguments of `weir run`.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// Policy file
    #[arg(value_name = "POLICY")]
    pub(crate) policy: PathBuf,
    /// Interface to attach to; repeatable
    #[arg(short = 'i', long = "interface", required = true, value_name = "IF", value_parser = weir_value::interface)]
    pub(crate) interfaces: Vec<String>,
    /// Engine that runs the policy
    #[arg(long, value_enum, default_value = "kernel")]
    pub(crate) engine: RunEngineName,
    /// Hook to attach to; default: tc on veth (keeps the peer's offloads), XDP elsewhere
    #[arg(long, value_enum)]
    pub(crate) hook: Option<HookName>,
    /// Also process packets on transmit (tc egress)
    #[arg(long)]
    pub(crate) egress: bool,
    /// Use generic XDP: slower, works with every driver
    #[arg(long)]
    pub(crate) generic: bool,
    /// Checksum mode; default: by driver (veth, tap and virtio: offloaded)
    #[arg(long, value_enum)]
    pub(crate) checksums: Option<Checksums>,
    /// Interval between counter updates
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = value::duration)]
    pub(crate) interval: Duration,
    /// Stop after this time
    #[arg(long = "duration", alias = "for", value_name = "TIME", value_parser = value::duration)]
    pub(crate) duration: Option<Duration>,
    /// Accept a policy that matches VLANs on a device that may strip tags in hardware: you have disabled that offload
    #[arg(long)]
    pub(crate) vlan_in_frame: bool,
    /// Print one JSON object when stopped, and nothing else
    #[arg(long)]
    pub(crate) json: bool,
    /// Also write the final counters to this file, as one JSON object
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Sockets of the user engine.
    #[command(flatten)]
    pub(crate) ports: ports::PortArgs,
}

/// Arguments of `weir apply`.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct ApplyArgs {
    /// Configuration of an edge, or document of networks (TOML)
    #[arg(value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print the plan and its changes without applying it
    #[arg(long, conflicts_with_all = ["watch", "confirm", "confirm_now"])]
    pub(crate) dry_run: bool,
    /// Keep running, and apply again whenever the configuration or a file it references changes
    #[arg(long)]
    pub(crate) watch: bool,
    /// Replay a capture through the running graph and the new one first, show which packets change verdict, and apply only if none does
    #[arg(long, value_name = "CAPTURE", conflicts_with_all = ["watch", "confirm_now"])]
    pub(crate) check_with: Option<PathBuf>,
    /// With --check-with: apply if at most N packets change verdict
    #[arg(long, value_name = "N", default_value_t = 0, requires = "check_with")]
    pub(crate) max_changes: u64,
    /// With --check-with: port of both graphs that the packets came in by; default: the one the capture names, or the only one
    #[arg(long, value_name = "NAME", requires = "check_with")]
    pub(crate) port: Option<String>,
    /// Roll back automatically unless confirmed within TIME, by ENTER or `weir apply --confirm-now`
    #[arg(long, value_name = "TIME", value_parser = value::duration)]
    pub(crate) confirm: Option<Duration>,
    /// Confirm a pending `weir apply --confirm`
    #[arg(long, conflicts_with_all = ["watch", "confirm"])]
    pub(crate) confirm_now: bool,
    /// Which edge of a document this host is; default: the only one, or the one with this host's name. With --confirm-now: the edge to confirm
    #[arg(long, value_name = "NAME")]
    pub(crate) edge: Option<String>,
    /// Apply a document although a higher version runs, or a configuration owns the networks
    #[arg(long)]
    pub(crate) force: bool,
    /// Print one JSON object for each apply
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `weir plan`.
#[derive(Debug, clap::Args)]
pub(crate) struct PlanArgs {
    /// Configuration of an edge, or document of networks (TOML)
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Which edge of a document this host is; default: the only one, or the one with this host's name
    #[arg(long, value_name = "NAME")]
    pub(crate) edge: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `weir diff`.
#[derive(Debug, clap::Args)]
pub(crate) struct EdgeDiffArgs {
    /// Configuration of an edge, or document of networks (TOML)
    #[arg(value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// Which edge of a document this host is; default: the only one, or the one with this host's name
    #[arg(long, value_name = "NAME")]
    pub(crate) edge: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `weir status`.
#[derive(Debug, clap::Args)]
pub(crate) struct StatusArgs {
    /// Show the edge of this file; default: everything that runs in this network namespace
    #[arg(value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Name of the edge to show; with a document, which edge of it this host is
    #[arg(long, value_name = "NAME")]
    pub(crate) edge: Option<String>,
    /// Show the counters of every filter rule and set entry
    #[arg(long)]
    pub(crate) hits: bool,
    /// Print metrics of all edges as OpenMetrics text, for example for the textfile collector of Prometheus' node_exporter
    #[arg(long, conflicts_with_all = ["config", "edge", "hits", "json"])]
    pub(crate) openmetrics: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `weir down`.
#[derive(Debug, clap::Args)]
pub(crate) struct DownArgs {
    /// Stop what this file declares: the edge of a configuration, or the networks of a document
    #[arg(value_name = "FILE", conflicts_with_all = ["all", "interfaces"])]
    pub(crate) config: Option<PathBuf>,
    /// Name of the edge to stop; with a document, which edge of it this host is
    #[arg(long, value_name = "NAME", conflicts_with_all = ["all", "interfaces"])]
    pub(crate) edge: Option<String>,
    /// Stop all edges in this network namespace, and remove the remains of killed `weir run` processes and of namespaces that are gone
    #[arg(long, conflicts_with = "interfaces")]
    pub(crate) all: bool,
    /// Interface to detach a killed `weir run` from; default: all in this network namespace
    #[arg(short = 'i', long = "interface", value_name = "IF", value_parser = weir_value::interface)]
    pub(crate) interfaces: Vec<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `weir doctor`.
#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,

    /// Write a report for a bug report to this file: versions, features, what runs; no names, addresses, values or payloads
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub(crate) report: Option<PathBuf>,
}

/// Shells that completions are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ShellName {
    Bash,
    Zsh,
    Fish,
}

/// Arguments of `weir completions`.
#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArgs {
    /// Shell
    #[arg(value_name = "SHELL", value_enum)]
    pub(crate) shell: ShellName,
}

/// Arguments of `weir man`.
#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// Directory; created if missing. Gets a page for each command
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
}

/// Arguments of `weir lab forward`.
#[derive(Debug, clap::Args)]
pub(crate) struct ForwardArgs {
    /// One interface
    pub(crate) one: String,
    /// The other one
    pub(crate) other: String,
    /// CPU that it runs on
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) cpu: usize,
}

/// Arguments of `weir lab demo`.
#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// Time the iperf3 stream runs, in whole seconds
    #[arg(long = "duration", alias = "seconds", value_name = "TIME", default_value = "3s", value_parser = value::seconds)]
    pub(crate) duration: u32,
    /// Replay the committed capture even when root
    #[arg(long)]
    pub(crate) replay: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `weir bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct BenchArgs {
    /// The benchmark.
    #[command(subcommand)]
    pub(crate) benchmark: Benchmark,
}

/// All benchmarks.
#[derive(Debug, Subcommand)]
pub(crate) enum Benchmark {
    /// Every benchmark below, and all targets in one table (root)
    All(AllBenchArgs),
    /// What memory, calls and look-ups cost on this machine: the floor of all other figures (root)
    Limits(LimitsBenchArgs),
    /// Rules, masks and TCP options: weir, nftables, iptables, xdp-filter, baselines of the mmb paper (root)
    Middlebox(MiddleboxBenchArgs),
    /// User engine JIT against the kernel, weir's interpreter and rbpf (root)
    Vm(VmBenchArgs),
    /// Drop, transmit, redirect, chains and large filters beside minimal XDP, nftables and xdp-filter: XDP paper, 4 (root)
    Xdp(XdpBenchArgs),
    /// Transactions of a TCP service under a UDP flood, with and without filters: XDP paper, 5.1 (root)
    Ddos(DdosBenchArgs),
    /// Packets a router forwards, with one route and with a full table, beside the kernel: XDP paper, 5.2 (root)
    Router(RouterBenchArgs),
    /// Packets a balancer sends to a hundred servers, beside nftables and a bare TX: XDP paper, 5.3 (root)
    Balancer(BalancerBenchArgs),
    /// Virtual networks beside the kernel's, processes and Open vSwitch: InKeV paper, 4 (root)
    Network(NetworkBenchArgs),
    /// AF_XDP sockets against a minimal C program, packet sockets and UDP (root)
    Xsk(XskBenchArgs),
    /// The sensor on captures or mixes of traffic: packets per CPU-second, memory, loading, cost of stages
    Sensor(Box<SensorBenchArgs>),
    /// Internal: sensor process of `weir bench sensor`, controlled through standard input
    #[command(hide = true)]
    SensorPart,
}

/// Arguments of `weir bench sensor`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Without --capture, --mix and --own: the captures and rules in ../shared/data if they are there, else packets and rules of the bench's own.\n\
    A mix is a document of the TRex traffic generator with its templates beside it. Runs that find different alerts are an error."
)]
pub(crate) struct SensorBenchArgs {
    /// Packets: a capture, or a folder of captures, whose Ethernet frames are chained; repeat for more
    #[arg(long, value_name = "FILE", conflicts_with_all = ["mix", "own"])]
    pub(crate) capture: Vec<PathBuf>,
    /// Packets: a mix of application traffic, as sfr.yaml of TRex
    #[arg(long, value_name = "YAML", conflicts_with = "own")]
    pub(crate) mix: Option<PathBuf>,
    /// Packets made by the bench, clients in HOME_NET: html, web (pages, scripts, styles, data, images), filler, apps (HTTP, TLS, DNS, mail, SMB), hostile
    #[arg(long, value_name = "NAME", value_parser = Made::named, conflicts_with_all = ["capture", "mix", "own"])]
    pub(crate) traffic: Option<Made>,
    /// Packets and rules of the bench's own
    #[arg(long, conflicts_with = "rules")]
    pub(crate) own: bool,
    /// Suricata, to run on the same packets and rules; default: the one installed
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) peer: Option<PathBuf>,
    /// Its configuration, whose outputs are replaced; default: /etc/suricata/suricata.yaml
    #[arg(long, value_name = "FILE")]
    pub(crate) peer_config: Option<PathBuf>,
    /// Times the rates of the mix
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    pub(crate) multiple: f64,
    /// Flows of the mix at most
    #[arg(long, value_name = "N", value_parser = value::count)]
    pub(crate) flows: Option<u64>,
    /// Time in which its flows begin; default: 3s, or until so many --flows have begun
    #[arg(long = "duration", alias = "seconds", value_name = "TIME", value_parser = value::duration)]
    pub(crate) duration: Option<Duration>,
    /// Between the packets of a flow: mix (its ipg and rtt), templates (as captured), or a time as 100us, which sets how long flows last
    #[arg(long, value_name = "GAPS", value_parser = value::gaps, default_value = "mix")]
    pub(crate) gaps: Gaps,
    /// Leave the capture that was measured on here
    #[arg(long, value_name = "FILE")]
    pub(crate) keep: Option<PathBuf>,
    /// Rules: a file, a pattern with `*`, or a folder; repeat for more
    #[arg(long, value_name = "RULES")]
    pub(crate) rules: Vec<PathBuf>,
    /// Write the costs of stages so that kcachegrind shows them
    #[arg(long, value_name = "FILE")]
    pub(crate) callgrind: Option<PathBuf>,
    /// Fewer forms, less of a mix, rough figures
    #[arg(long)]
    pub(crate) quick: bool,
    /// Write sensor.json and sensor.tsv into this folder
    #[arg(short = 'o', long = "output", alias = "out", value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `weir bench xsk`.
#[derive(Debug, clap::Args)]
pub(crate) struct XskBenchArgs {
    /// Under a minute: fewer frames, fewer rounds, rough figures
    #[arg(long)]
    pub(crate) quick: bool,
    /// Write xsk.json and xsk.tsv into this folder
    #[arg(short = 'o', long = "output", alias = "out", value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `weir bench network`.
#[derive(Debug, clap::Args)]
pub(crate) struct NetworkBenchArgs {
    /// Under a minute: fewer rows, fewer networks, shorter rounds, rough figures
    #[arg(long)]
    pub(crate) quick: bool,
    /// Write network.json and network.tsv into this folder
    #[arg(short = 'o', long = "output", alias = "out", value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Only groups of figures whose names start so: network.rtt, network.crr, network.flow, network.hop, network.scale
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `weir bench balancer`.
#[derive(Debug, clap::Args)]
pub(crate) struct BalancerBenchArgs {
    /// Under a minute: fewer flows, shorter rounds, rough figures
    #[arg(long)]
    pub(crate) quick: bool,
    /// Write balancer.json and balancer.tsv into this folder
    #[arg(short = 'o', long = "output", alias = "out", value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Only groups of figures: balancer.cost, balancer.attack, balancer.spread
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Object of Katran's balancer to measure beside weir's; default: ../shared/data/katran/balancer.bpf.o
    #[arg(long, value_name = "FILE")]
    pub(crate) katran: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `weir bench router`.
#[derive(Debug, clap::Args)]
pub(crate) struct RouterBenchArgs {
    /// Under a minute: a smaller table, fewer destinations, shorter rounds, rough figures
    #[arg(long)]
    pub(crate) quick: bool,
    /// Write router.json and router.tsv into this folder
    #[arg(short = 'o', long = "output", alias = "out", value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Only groups of figures whose names start so: router.one, router.full, router.changes
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `weir bench all`.
#[derive(Debug, clap::Args)]
pub(crate) struct AllBenchArgs {
    /// About a quarter of an hour: fewer sizes, shorter rounds, rough figures
    #[arg(long)]
    pub(crate) quick: bool,
    /// Write all.tsv with the table, and the files of each benchmark, into this folder
    #[arg(short = 'o', long = "output", alias = "out", value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Only benchmarks whose names start so, as in `limits,middlebox`
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `weir bench limits`.
#[derive(Debug, clap::Args)]
pub(crate) struct LimitsBenchArgs {
    /// Fewer rounds
    #[arg(long)]
    pub(crate) quick: bool,
    /// Write limits.json and limits.tsv into this folder
    #[arg(short = 'o', long = "output", alias = "out", value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `weir bench ddos`.
#[derive(Debug, clap::Args)]
pub(crate) struct DdosBenchArgs {
    /// Under a minute: fewer rates, shorter rounds, rough figures
    #[arg(long)]
    pub(crate) quick: bool,
    /// Write ddos.json, ddos.tsv and the plots into this folder
    #[arg(short = 'o', long = "output", alias = "out", value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `weir bench xdp`.
#[derive(Debug, clap::Args)]
pub(crate) struct XdpBenchArgs {
    /// Under a minute: fewer sizes, shorter rounds, rough figures
    #[arg(long)]
    pub(crate) quick: bool,
    /// Write xdp.json, xdp.tsv and the plots into this folder
    #[arg(short = 'o', long = "output", alias = "out", value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Only groups of figures whose names start so, as in `testrun.chain,live`
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `weir bench vm`.
#[derive(Debug, clap::Args)]
pub(crate) struct VmBenchArgs {
    /// Some seconds: shorter rounds, rough figures
    #[arg(long)]
    pub(crate) quick: bool,
    /// Write vm.json and vm.tsv into this folder
    #[arg(short = 'o', long = "output", alias = "out", value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `weir bench middlebox`.
#[derive(Debug, clap::Args)]
pub(crate) struct MiddleboxBenchArgs {
    /// Under a minute: fewer sizes, shorter rounds, rough figures
    #[arg(long)]
    pub(crate) quick: bool,
    /// Write middlebox.json, middlebox.tsv and the plots into this folder
    #[arg(short = 'o', long = "output", alias = "out", value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Only groups of figures whose names start so, as in `testrun.rules,live`
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Leave out rule sets larger than this
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_rules: Option<u32>,
    /// Rule sets in the format of ClassBench: a file or a folder; default: ../shared/data/classbench if it is there
    #[arg(long, value_name = "PATH")]
    pub(crate) rules: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
