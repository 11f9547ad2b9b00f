//! The one table of commands and flags. Help, and every other appearance of a command, is generated from it.

pub(crate) mod generate;
pub(crate) mod lab;
pub(crate) mod net;
pub(crate) mod ports;
pub(crate) mod prog;
pub(crate) mod route;
pub(crate) mod sensor;
pub(crate) mod service;
pub(crate) mod watch;
pub(crate) mod xsk;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use weir_lab::generate::Gaps;

/// weir turns a Linux host into a programmable packet-processing edge.
#[derive(Debug, Parser)]
#[command(
    name = "weir",
    version,
    arg_required_else_help = true,
    after_help = "Exit status: 0 done, 1 failed, 2 bad usage or configuration."
)]
pub(crate) struct Args {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// All commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Read a policy and report every mistake in it
    Check(CheckArgs),
    /// Format policies in place, or print one
    Fmt(FmtArgs),
    /// Say in words what the rules of a policy do, or which of them match the packets of a capture and why
    Explain(ExplainArgs),
    /// Show what a policy, or a running instance, compiles to: classifier tables, and the most one packet can cost
    Tables(TablesArgs),
    /// Change and list the rules of a running `weir run`
    Rule(RuleArgs),
    /// List, count or end the connections of a running `weir run`
    Connections(ConnectionsArgs),
    /// Run a policy or a graph over a capture, without privileges unless the engine is the kernel
    Replay(ReplayArgs),
    /// Run a policy on interfaces until Ctrl-C, with live counters
    Run(RunArgs),
    /// Make an edge what a configuration says: ports, functions, links; changes nothing that stays the same
    Apply(ApplyArgs),
    /// Say what `weir apply` of a configuration would change of what runs
    Diff(EdgeDiffArgs),
    /// Show running edges: links, and what became of packets at every port and function
    Status(StatusArgs),
    /// Show and change the routes of a running router that has tables of its own, or let them follow the kernel's
    Route(route::RouteArgs),
    /// Show and change the services of a running balancer, in words of its own or those of ipvsadm
    Service(Box<service::ServiceArgs>),
    /// Virtual networks of tenants on this host and others, from a document that declares them
    Net(net::NetArgs),
    /// Show rates of a running edge, again and again: packets and bits of every port and function, drops by reason
    Top(watch::TopArgs),
    /// Write packets of a running edge into a pcapng file, at any stage, with the verdict and the path of each
    Capture(watch::CaptureArgs),
    /// Show the way of packets through a running edge, function by function, and why each ended where it did
    Trace(watch::TraceArgs),
    /// Take down an edge, or remove what a killed `weir run` left attached
    Down(DownArgs),
    /// Take eBPF objects apart, run and judge them: weir's own and those of others
    Prog(prog::ProgArgs),
    /// Send made-up packets out of an interface, and count what arrives at another
    Generate(generate::GenerateArgs),
    /// Signature intrusion detection over captures or an interface: rules in, alerts out
    Sensor(Box<sensor::SensorArgs>),
    /// AF_XDP sockets: send, receive, forward and measure round trips, with every knob a flag
    Xsk(xsk::XskArgs),
    /// Probe what this kernel can do and name the fallback for what it cannot
    Doctor(DoctorArgs),
    /// Experiments on test beds that weir builds from network namespaces (package weir-lab)
    #[command(disable_help_flag = true)]
    Lab(PassedOn),
    /// Measure weir beside its peers, on test beds of its own (package weir-lab)
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
    version,
    arg_required_else_help = true,
    after_help = "Exit status: 0 done, 1 failed, 2 bad usage or configuration."
)]
pub(crate) struct LabProgram {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: LabCommand,
}

/// The commands of `weir-lab`.
#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// Experiments on test beds that weir builds from network namespaces
    Lab(lab::LabArgs),
    /// Measure weir beside its peers, on test beds of its own
    Bench(BenchArgs),
}

/// Arguments of `weir check`.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// Policy files
    #[arg(required = true, value_name = "POLICY")]
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
    /// Change nothing; exit with 1 if a file is not formatted
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
    /// Name of the interface the packets came in by, for captures that do not say
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
    /// An interface of the running instance; needed where more than one runs
    #[arg(
        short = 'i',
        long = "interface",
        value_name = "IF",
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
    /// An interface of the instance; needed where more than one runs
    #[arg(short = 'i', long = "interface", value_name = "IF", global = true)]
    pub(crate) interface: Option<String>,
    /// Change rules only if they are still at this generation, as `weir rule list` shows it
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
    /// Add a rule behind all others, written as in a policy; `-` reads one a line from standard input, all of which hold at once
    #[command(alias = "add-stateless")]
    Add(RuleLine),
    /// Add a stateful rule
    AddStateful(RuleLine),
    /// Replace a rule by another one, in one step; the new one has a new id
    Replace(ReplaceArgs),
    /// Delete rules by their ids, all at once
    #[command(alias = "del")]
    Delete(DeleteArgs),
    /// List the rules with ids and counters; + was added live, - is only in the policy file
    List,
    /// Delete all rules, at once
    Flush,
    /// Put a policy in place of the one that runs; rules that are in both go on with their counters and connections
    Load(LoadArgs),
    /// Write the rules to the policy file, or to another one
    Save(SaveArgs),
    /// Lay all rules out anew, so that those added are found as fast as the others
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
    /// Matches and targets of the new one
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
    /// Policy file; default: the one that runs, read again
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// End all connections; needed where the policy changes how many are kept
    #[arg(long)]
    pub(crate) flush_connections: bool,
}

/// Arguments of `weir rule save`.
#[derive(Debug, clap::Args)]
pub(crate) struct SaveArgs {
    /// File to write; default: the policy that `weir run` was started with
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Also over a file that changed since it was read, or that is another one
    #[arg(long)]
    pub(crate) force: bool,
}

/// Arguments of `weir connections`.
#[derive(Debug, clap::Args)]
pub(crate) struct ConnectionsArgs {
    /// An interface of the instance; needed where more than one runs
    #[arg(short = 'i', long = "interface", value_name = "IF", global = true)]
    pub(crate) interface: Option<String>,
    /// Print one JSON object
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Only this connection, as `weir connections` shows it
    #[arg(long, value_name = "ID", global = true)]
    pub(crate) id: Option<u64>,
    /// Only those one end of which, original or translated, has this address
    #[arg(long, value_name = "ADDRESS", global = true)]
    pub(crate) address: Option<std::net::IpAddr>,
    /// Only those one end of which has this port (with --address: the same end)
    #[arg(long, value_name = "PORT", global = true)]
    pub(crate) port: Option<u16>,
    /// Only this protocol
    #[arg(long, value_name = "PROTOCOL", global = true, value_parser = ["tcp", "udp", "icmp", "icmp6", "sctp", "gre", "esp", "ah"])]
    pub(crate) protocol: Option<String>,
    /// Only those in this state, as `timeout` in a policy spells it
    #[arg(long, value_name = "STATE", global = true, value_parser = ["tcp-syn-sent", "tcp-syn-received", "tcp-established", "tcp-fin", "tcp-time-wait", "tcp-closed", "udp-new", "udp", "icmp", "generic-new", "generic"])]
    pub(crate) state: Option<String>,
    /// Only those of this rule
    #[arg(long, value_name = "ID", global = true)]
    pub(crate) rule: Option<u32>,
    /// What to do; default: list
    #[command(subcommand)]
    pub(crate) command: Option<ConnectionsCommand>,
}

/// What to do with connections.
#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum ConnectionsCommand {
    /// List them
    List,
    /// Count them by protocol and state
    Count,
    /// End them: their next packets are judged as if they had never been
    Delete {
        /// All of them; else say which ones
        #[arg(long)]
        all: bool,
    },
}

/// Engines of `weir replay`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EngineName {
    /// The compiled data plane in weir's own interpreter: no privileges
    User,
    /// The same, verified and as native code: some thirty times as fast; XDP on x86-64
    UserJit,
    /// The compiled data plane in the running kernel (BPF_PROG_TEST_RUN): root
    Kernel,
    /// The semantics in plain Rust, the oracle of the others
    Reference,
}

/// How checksums in the capture are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Checksums {
    /// Finished, as on a wire
    Complete,
    /// Local packets may carry the pseudo-header sum only, as on veth
    Offloaded,
}

/// Arguments of `weir replay`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReplayArgs {
    /// Policy file, or the configuration of a graph or a document of virtual networks (a file whose name ends in .toml)
    #[arg(value_name = "POLICY")]
    pub(crate) policy: PathBuf,
    /// Capture to read (pcap or pcapng)
    #[arg(long = "in", value_name = "CAPTURE")]
    pub(crate) input: PathBuf,
    /// Write every packet that was not dropped, as rewritten, with its timestamp (pcap, nanoseconds); of virtual networks, a folder with a capture for each
    /// device that packets left by
    #[arg(long = "out", value_name = "CAPTURE|FOLDER")]
    pub(crate) output: Option<PathBuf>,
    /// What executes the policy
    #[arg(long, value_enum, default_value = "user")]
    pub(crate) engine: EngineName,
    /// Name of the interface the packets came in by; default: what the capture says
    #[arg(long, value_name = "NAME")]
    pub(crate) in_if: Option<String>,
    /// Port of the graph that the packets came in by; default: the one the capture names, or the only one. Of virtual networks `NETWORK/WORKLOAD`, or
    /// `underlay`
    #[arg(long, value_name = "NAME")]
    pub(crate) port: Option<String>,
    /// Of virtual networks: the edge that packets are on; default: the only one of the document, or the one with this host's name
    #[arg(long, value_name = "NAME")]
    pub(crate) edge: Option<String>,
    /// Of virtual networks: say of every packet what became of it
    #[arg(long)]
    pub(crate) verdicts: bool,
    /// What a router by the kernel's tables finds there: `host`, or a file of lines as `ip route`, `ip neigh` and `ip link` write them
    #[arg(long, value_name = "host|FILE")]
    pub(crate) routes: Option<PathBuf>,
    /// Receive queue the packets came in by
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
    /// Traffic control through a clsact filter, where something else wants it so
    Clsact,
}

/// Engines of `weir run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RunEngineName {
    /// The running kernel
    Kernel,
    /// weir's interpreter over AF_XDP sockets; what passes goes to the stack by a tap
    User,
    /// The same, verified and as native code (x86-64)
    UserJit,
}

/// Arguments of `weir run`.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// Policy file
    #[arg(value_name = "POLICY")]
    pub(crate) policy: PathBuf,
    /// Interface to attach to; repeat for more
    #[arg(short = 'i', long = "interface", required = true, value_name = "IF")]
    pub(crate) interfaces: Vec<String>,
    /// What carries the policy out
    #[arg(long, value_enum, default_value = "kernel")]
    pub(crate) engine: RunEngineName,
    /// Where to attach; default: tc on veth, whose other end keeps its offloads then, XDP elsewhere
    #[arg(long, value_enum)]
    pub(crate) hook: Option<HookName>,
    /// Also filter what leaves by the interfaces (tc)
    #[arg(long)]
    pub(crate) egress: bool,
    /// Use generic XDP, for drivers without native support: slower, works anywhere
    #[arg(long)]
    pub(crate) generic: bool,
    /// How to read checksums; default: by driver (veth, tap and virtio are offloaded)
    #[arg(long, value_enum)]
    pub(crate) checksums: Option<Checksums>,
    /// Seconds between updates of the counters
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    pub(crate) interval: f64,
    /// Stop by itself after this many seconds
    #[arg(long = "for", value_name = "SECONDS")]
    pub(crate) duration: Option<f64>,
    /// Policies that name VLANs on a device that may hide tags from XDP: you have seen to it that it does not
    #[arg(long)]
    pub(crate) vlan_in_frame: bool,
    /// Print one JSON object when stopped, and nothing on the way
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
#[derive(Debug, clap::Args)]
pub(crate) struct ApplyArgs {
    /// Configuration file (TOML)
    #[arg(value_name = "CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Change nothing; print the plan and what it would change
    #[arg(long, conflicts_with_all = ["watch", "confirm", "confirm_now"])]
    pub(crate) dry_run: bool,
    /// Stay, and apply again whenever the configuration or a file it names changes
    #[arg(long)]
    pub(crate) watch: bool,
    /// Go back to what ran before unless this is confirmed within so many seconds, by ENTER here or by `weir apply --confirm-now`
    #[arg(long, value_name = "SECONDS")]
    pub(crate) confirm: Option<f64>,
    /// Confirm what another `weir apply --confirm` has applied
    #[arg(long, conflicts_with_all = ["watch", "confirm"])]
    pub(crate) confirm_now: bool,
    /// The edge to confirm, where several wait
    #[arg(long, value_name = "NAME", requires = "confirm_now")]
    pub(crate) edge: Option<String>,
    /// Print one JSON object for each apply
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `weir diff`.
#[derive(Debug, clap::Args)]
pub(crate) struct EdgeDiffArgs {
    /// Configuration file (TOML)
    #[arg(value_name = "CONFIG")]
    pub(crate) config: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `weir status`.
#[derive(Debug, clap::Args)]
pub(crate) struct StatusArgs {
    /// Configuration file whose edge to show; default: all edges in this network namespace
    #[arg(value_name = "CONFIG", conflicts_with = "edge")]
    pub(crate) config: Option<PathBuf>,
    /// Name of the edge to show
    #[arg(long, value_name = "NAME")]
    pub(crate) edge: Option<String>,
    /// Also show what each rule of a filter counted, and each entry of its sets
    #[arg(long)]
    pub(crate) hits: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `weir down`.
#[derive(Debug, clap::Args)]
pub(crate) struct DownArgs {
    /// Configuration file whose edge to take down
    #[arg(value_name = "CONFIG", conflicts_with_all = ["edge", "all", "interfaces"])]
    pub(crate) config: Option<PathBuf>,
    /// Name of the edge to take down
    #[arg(long, value_name = "NAME", conflicts_with_all = ["all", "interfaces"])]
    pub(crate) edge: Option<String>,
    /// Take down all edges in this network namespace, and remove what killed `weir run`s left
    #[arg(long, conflicts_with = "interfaces")]
    pub(crate) all: bool,
    /// Interface to take a killed `weir run` off; default: all in this network namespace
    #[arg(short = 'i', long = "interface", value_name = "IF")]
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
    /// Seconds the iperf3 stream runs
    #[arg(long, value_name = "SECONDS", default_value_t = 3)]
    pub(crate) seconds: u32,
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
    /// Rule counts, mask counts and option rules: weir, nftables, iptables, xdp-filter and the baselines of the mmb paper (root)
    Middlebox(MiddleboxBenchArgs),
    /// The user engine's native code beside the running kernel, its own interpreter and rbpf (root)
    Vm(VmBenchArgs),
    /// Drop, transmit, redirect and pass, chains of functions and large filters beside minimal XDP programs, iptables, nftables and xdp-filter: section 4 of the XDP paper (root)
    Xdp(XdpBenchArgs),
    /// Transactions of a TCP service under a flood of UDP packets, with and without filters: section 5.1 of the XDP paper (root)
    Ddos(DdosBenchArgs),
    /// Packets a router forwards, with one route and a table of the Internet's size, beside the kernel: section 5.2 of the XDP paper (root)
    Router(RouterBenchArgs),
    /// Packets a load balancer sends to a hundred servers, beside nftables and a bare TX, and how flows are spread: section 5.3 of the XDP paper (root)
    Balancer(BalancerBenchArgs),
    /// Virtual networks: rows of bridges and routers beside the kernel's, processes and Open vSwitch, the cost of a hop, and ten thousand workloads: section 4 of the InKeV paper (root)
    Network(NetworkBenchArgs),
    /// AF_XDP sockets: what receiving costs beside a minimal C program, rates beside packet sockets, round trips beside UDP (root)
    Xsk(XskBenchArgs),
    /// The sensor on captures or mixes of traffic: packets per CPU-second with no rule, one and all, by engine and workers, memory, loading, the cost of each stage
    Sensor(Box<SensorBenchArgs>),
    /// A sensor that runs when it is told to on standard input, for `weir bench sensor`
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
    /// Packets and rules of the bench's own
    #[arg(long, conflicts_with = "rules")]
    pub(crate) own: bool,
    /// Times the rates of the mix
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    pub(crate) multiple: f64,
    /// Flows of the mix at most
    #[arg(long, value_name = "N", value_parser = generate::count)]
    pub(crate) flows: Option<u64>,
    /// Seconds in which its flows begin; default: 3, or until so many --flows have begun
    #[arg(long, value_name = "S")]
    pub(crate) seconds: Option<f64>,
    /// Between the packets of a flow: mix (its ipg and rtt), templates (as captured), or a time as 100us, which sets how long flows last
    #[arg(long, value_name = "GAPS", value_parser = generate::gaps, default_value = "mix")]
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
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
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
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
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
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
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
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Only groups of figures: balancer.cost, balancer.attack, balancer.spread
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
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
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Only groups of figures whose names start so: router.one, router.full, router.changes
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
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
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
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
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
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
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
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
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
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
