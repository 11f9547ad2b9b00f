//! Commands and flags of `weir prog`: eBPF objects, of weir and of others. Part of the one table in `args`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Subcommand, ValueEnum};
use weir_vm::catalogue::Kernel;

use super::value::duration;

/// Arguments of `weir prog`.
#[derive(Debug, clap::Args)]
pub(crate) struct ProgArgs {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: ProgCommand,
}

/// `NAME=N`: a map and its number of entries.
fn map_size(text: &str) -> Result<(String, u32), String> {
    let (name, entries) = text.split_once('=').ok_or("write NAME=N")?;
    let entries: u32 = entries
        .parse()
        .map_err(|_| format!("{entries:?} is not a number from 1 to {}", u32::MAX))?;
    if entries == 0 {
        return Err("a map has one entry at least".to_owned());
    }
    Ok((name.to_owned(), entries))
}

/// What to do with a program.
#[derive(Debug, Subcommand)]
pub(crate) enum ProgCommand {
    /// Verify programs as the kernel would; explain rejections with the missing check and a counterexample packet
    Verify(VerifyArgs),
    /// Run a program over a capture, with verdicts, output packets and faults
    Run(RunArgs),
    /// Run a program in user space on interfaces, through packet sockets or AF_XDP
    Serve(Box<ServeArgs>),
    /// Disassemble, with source lines and names of maps, helpers and functions
    Disasm(DisasmArgs),
    /// List maps and data sections, with types
    Maps(MapsArgs),
    /// Load an XDP program and pin it with its maps (root)
    Load(LoadArgs),
    /// Attach a loaded program to an interface (root)
    Attach(AttachArgs),
    /// Detach a loaded program from an interface; it stays loaded (root)
    Detach(DetachArgs),
    /// Replace a loaded program atomically on all its interfaces, keeping its maps (root)
    Replace(ReplaceArgs),
    /// List loaded programs with interfaces, maps and load time (root)
    List(ListArgs),
    /// Unload a detached program and its maps (root)
    Unload(UnloadArgs),
    /// Run raw instructions from standard input (hex) and print r0: the protocol of the BPF conformance suite
    Exec(ExecArgs),
}

/// Engines that run bare instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExecEngine {
    /// Interpreter with run-time checks
    Interpreter,
    /// Native code with run-time checks (x86-64)
    Jit,
}

/// Arguments of `weir prog exec`.
#[derive(Debug, clap::Args)]
pub(crate) struct ExecArgs {
    /// Memory that r1 points to, in hex; r2 is its length
    #[arg(
        value_name = "MEMORY_HEX",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) memory: String,
    /// Engine that runs the instructions
    #[arg(long, value_enum, default_value = "interpreter")]
    pub(crate) engine: ExecEngine,
}

/// Arguments of `weir prog verify`.
#[derive(Debug, clap::Args)]
pub(crate) struct VerifyArgs {
    /// eBPF object
    #[arg(value_name = "OBJ")]
    pub(crate) object: PathBuf,
    /// The program to verify; default: all XDP and tc programs
    #[arg(long, value_name = "NAME")]
    pub(crate) prog: Option<String>,
    /// Give a map N entries (bytes for a ring buffer), whatever the object declares; repeatable
    #[arg(long = "map-size", value_name = "NAME=N", value_parser = map_size)]
    pub(crate) map_sizes: Vec<(String, u32)>,
    /// Show the first kernel version of each helper, map type and instruction
    #[arg(long)]
    pub(crate) kernels: bool,
    /// Say whether these Linux releases take the programs, and why not; repeatable
    #[arg(long = "kernel", value_name = "VERSION", value_delimiter = ',')]
    pub(crate) releases: Vec<Kernel>,
    /// Reject unaligned packet and map accesses, as on architectures with strict alignment
    #[arg(long)]
    pub(crate) strict_alignment: bool,
    /// Reject reads of uninitialized stack, as kernels before 6.3 and unprivileged mode do
    #[arg(long)]
    pub(crate) strict_stack: bool,
    /// Write the counterexample packet of a rejected program to this capture
    #[arg(long, value_name = "CAPTURE")]
    pub(crate) counterexample: Option<PathBuf>,
    /// Packets to derive counterexamples from; default: packets of common protocols
    #[arg(long = "in", value_name = "CAPTURE")]
    pub(crate) input: Option<PathBuf>,
    /// Print every verified instruction with the state before it
    #[arg(long)]
    pub(crate) log: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Engines of `weir prog run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RunEngine {
    /// Interpreter with run-time checks: no privileges, also runs rejected programs
    Interpreter,
    /// Native code of verified programs (x86-64)
    Jit,
    /// The running kernel (BPF_PROG_TEST_RUN); requires root
    Kernel,
}

/// Arguments of `weir prog run`.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// eBPF object
    #[arg(value_name = "OBJ")]
    pub(crate) object: PathBuf,
    /// The program to run; required if the object has several
    #[arg(long, value_name = "NAME")]
    pub(crate) prog: Option<String>,
    /// Capture to read (pcap or pcapng)
    #[arg(long = "in", value_name = "CAPTURE")]
    pub(crate) input: PathBuf,
    /// Write every packet that was not dropped, as modified by the program (pcap, nanoseconds)
    #[arg(short = 'o', long = "output", alias = "out", value_name = "CAPTURE")]
    pub(crate) output: Option<PathBuf>,
    /// Engine that runs the program
    #[arg(long, value_enum, default_value = "interpreter")]
    pub(crate) engine: RunEngine,
    /// Receive queue of the packets
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) queue: u32,
    /// Index of the receive interface; the kernel engine accepts existing ones only
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) ifindex: u32,
    /// Instruction limit per packet (interpreter; default: 10,000,000)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit_insns: Option<u64>,
    /// Give a map N entries (bytes for a ring buffer), whatever the object declares; repeatable
    #[arg(long = "map-size", value_name = "NAME=N", value_parser = map_size)]
    pub(crate) map_sizes: Vec<(String, u32)>,
    /// Initial map contents: a JSON file as written by --dump-maps
    #[arg(long, value_name = "FILE")]
    pub(crate) maps: Option<PathBuf>,
    /// Dump map contents as JSON after the last packet; `-`: standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) dump_maps: Option<PathBuf>,
    /// Print the verdict of every packet
    #[arg(short = 'v', long)]
    pub(crate) verbose: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `weir prog disasm`.
#[derive(Debug, clap::Args)]
pub(crate) struct DisasmArgs {
    /// eBPF object
    #[arg(value_name = "OBJ")]
    pub(crate) object: PathBuf,
    /// Only this program and the functions it reaches
    #[arg(long, value_name = "NAME")]
    pub(crate) prog: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `weir prog maps`.
#[derive(Debug, clap::Args)]
pub(crate) struct MapsArgs {
    /// eBPF object
    #[arg(value_name = "OBJ")]
    pub(crate) object: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Engines of `weir prog serve`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ServeEngine {
    /// Interpreter with run-time checks: also runs rejected programs
    Interpreter,
    /// Native code of verified programs (x86-64)
    Jit,
}

/// Arguments of `weir prog serve`.
#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    /// eBPF object
    #[arg(value_name = "OBJ")]
    pub(crate) object: PathBuf,
    /// The program to run; required if the object has several
    #[arg(long, value_name = "NAME")]
    pub(crate) prog: Option<String>,
    /// Interface; repeatable. Without --xsk the kernel's stack still sees every frame: assign no addresses
    #[arg(short = 'i', long = "interface", value_name = "IF", value_parser = weir_value::interface, required = true)]
    pub(crate) interfaces: Vec<String>,
    /// Bridge two interfaces: a packet passed on one leaves through the other. Otherwise PASS has no effect, or follows --to-stack
    #[arg(long, conflicts_with = "to_stack")]
    pub(crate) wire: bool,
    /// Use AF_XDP instead of packet sockets: the program sees frames first, the stack gets what --to-stack passes on
    #[arg(long, conflicts_with = "workers")]
    pub(crate) xsk: bool,
    /// With --xsk: generic XDP; slower, works with every driver
    #[arg(long, requires = "xsk")]
    pub(crate) generic: bool,
    /// Worker threads; each acts as one CPU of the program. An interface has one worker; CPU maps redirect to any
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) workers: u16,
    /// Engine that runs the program
    #[arg(long, value_enum, default_value = "interpreter")]
    pub(crate) engine: ServeEngine,
    /// Instruction limit per packet
    #[arg(long, value_name = "N", default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit_insns: u64,
    /// Give a map N entries (bytes for a ring buffer), whatever the object declares; repeatable
    #[arg(long = "map-size", value_name = "NAME=N", value_parser = map_size)]
    pub(crate) map_sizes: Vec<(String, u32)>,
    /// Initial map contents: a JSON file as written by `weir prog run --dump-maps`
    #[arg(long, value_name = "FILE")]
    pub(crate) maps: Option<PathBuf>,
    /// Dump map contents as JSON at the end; `-`: standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) dump_maps: Option<PathBuf>,
    /// Stop after this time
    #[arg(long = "duration", alias = "for", value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Duration>,
    /// Print the totals as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Sockets of --xsk.
    #[command(flatten)]
    pub(crate) ports: super::ports::PortArgs,
}

/// What `weir prog load` and `weir prog replace` do with an object.
#[derive(Debug, clap::Args)]
pub(crate) struct LoadingArgs {
    /// eBPF object
    #[arg(value_name = "OBJ")]
    pub(crate) object: PathBuf,
    /// The program to load; required if the object has several
    #[arg(long = "program", alias = "prog", value_name = "NAME")]
    pub(crate) program: Option<String>,
    /// Set a `const volatile` global: a number, true, false, hex:00ff or text:words; repeatable
    #[arg(long = "constant", value_name = "NAME=VALUE")]
    pub(crate) constants: Vec<String>,
    /// Give a map N entries (bytes for a ring buffer), whatever the object declares; repeatable
    #[arg(long = "map-size", value_name = "NAME=N", value_parser = map_size)]
    pub(crate) map_sizes: Vec<(String, u32)>,
    /// Reuse an existing map: a pinned path, or PROGRAM:MAP of a loaded program; repeatable
    #[arg(long = "map", value_name = "NAME=MAP")]
    pub(crate) maps: Vec<String>,
    /// Skip weir's verifier; only the kernel verifies
    #[arg(long)]
    pub(crate) unverified: bool,
    /// Print the full kernel verifier log on rejection
    #[arg(long)]
    pub(crate) log: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `weir prog load`.
#[derive(Debug, clap::Args)]
pub(crate) struct LoadArgs {
    /// What to load.
    #[command(flatten)]
    pub(crate) loading: LoadingArgs,
    /// Name of the loaded program; default: the name of the program
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
}

/// Where on the receive path a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AttachMode {
    /// Native XDP, in the driver
    Native,
    /// Generic XDP, in the stack: slower, works with every driver
    Generic,
    /// Offloaded to the device
    Offload,
}

/// Arguments of `weir prog attach`.
#[derive(Debug, clap::Args)]
pub(crate) struct AttachArgs {
    /// Number or name of a loaded program
    #[arg(value_name = "PROGRAM")]
    pub(crate) program: String,
    /// Interface
    #[arg(short = 'i', long = "interface", value_name = "IF", value_parser = weir_value::interface)]
    pub(crate) interface: String,
    /// Attach mode; weir never falls back to another
    #[arg(long, value_enum, default_value = "native")]
    pub(crate) mode: AttachMode,
}

/// Arguments of `weir prog detach`.
#[derive(Debug, clap::Args)]
pub(crate) struct DetachArgs {
    /// Number or name of a loaded program
    #[arg(value_name = "PROGRAM")]
    pub(crate) program: String,
    /// Interface
    #[arg(short = 'i', long = "interface", value_name = "IF", value_parser = weir_value::interface)]
    pub(crate) interface: String,
}

/// Arguments of `weir prog replace`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReplaceArgs {
    /// Number or name of a loaded program
    #[arg(value_name = "PROGRAM")]
    pub(crate) replaced: String,
    /// What to load in its place.
    #[command(flatten)]
    pub(crate) loading: LoadingArgs,
    /// Recreate maps whose definition changed instead of refusing; unchanged maps keep their contents
    #[arg(long)]
    pub(crate) fresh: bool,
}

/// Arguments of `weir prog list`.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `weir prog unload`.
#[derive(Debug, clap::Args)]
pub(crate) struct UnloadArgs {
    /// Number or name of a loaded program
    #[arg(value_name = "PROGRAM")]
    pub(crate) program: String,
}
