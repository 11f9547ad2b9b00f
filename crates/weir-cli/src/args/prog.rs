//! Commands and flags of `weir prog`: eBPF objects, of weir and of others. Part of the one table in `args`.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};

/// Arguments of `weir prog`.
#[derive(Debug, clap::Args)]
pub(crate) struct ProgArgs {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: ProgCommand,
}

/// What to do with a program.
#[derive(Debug, Subcommand)]
pub(crate) enum ProgCommand {
    /// Judge programs as the kernel would: accepted with figures, or rejected with the reason, the missing check and a packet that breaks them
    Verify(VerifyArgs),
    /// Run a program over a capture: verdicts, packets as it leaves them, faults
    Run(RunArgs),
    /// Serve interfaces with a program in user space, through packet sockets or AF_XDP sockets, until interrupted
    Serve(Box<ServeArgs>),
    /// Show the code as text, with source lines and the names of maps, helpers and functions
    Disasm(DisasmArgs),
    /// List the maps and data sections, with their types
    Maps(MapsArgs),
    /// Load an XDP program and keep it, with its maps, under a number and a name (root)
    Load(LoadArgs),
    /// Put a loaded program on an interface (root)
    Attach(AttachArgs),
    /// Take a loaded program off an interface; it stays loaded (root)
    Detach(DetachArgs),
    /// Put the program of another object in the place of a loaded one, on all its interfaces at once and with its maps (root)
    Replace(ReplaceArgs),
    /// List loaded programs: where they run, their maps, since when (root)
    List(ListArgs),
    /// Remove a loaded program that is on no interface, and its maps (root)
    Unload(UnloadArgs),
    /// Run bare instructions, read as hexadecimal bytes from standard input, and print r0 in hexadecimal; the protocol of conformance suites
    Exec(ExecArgs),
}

/// Engines that run bare instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExecEngine {
    /// The checked interpreter
    Interpreter,
    /// Native code with every access checked (x86-64)
    Jit,
}

/// Arguments of `weir prog exec`.
#[derive(Debug, clap::Args)]
pub(crate) struct ExecArgs {
    /// Memory that r1 points at, as hexadecimal bytes; r2 is its length
    #[arg(
        value_name = "MEMORY_HEX",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) memory: String,
    /// What runs the instructions
    #[arg(long, value_enum, default_value = "interpreter")]
    pub(crate) engine: ExecEngine,
}

/// Arguments of `weir prog verify`.
#[derive(Debug, clap::Args)]
pub(crate) struct VerifyArgs {
    /// eBPF object
    #[arg(value_name = "OBJ")]
    pub(crate) object: PathBuf,
    /// The program to judge; default: all XDP programs
    #[arg(long, value_name = "NAME")]
    pub(crate) prog: Option<String>,
    /// Also say from which kernel version on each helper, map kind and instruction is there
    #[arg(long)]
    pub(crate) kernels: bool,
    /// Refuse accesses to packets and map values that are not aligned, as on machines that cannot do them
    #[arg(long)]
    pub(crate) strict_alignment: bool,
    /// Refuse reads of stack that was never written, as kernels before 6.3 do, and later ones to users who are not root
    #[arg(long)]
    pub(crate) strict_stack: bool,
    /// Write the packet that breaks a rejected program, if one is found, to this capture
    #[arg(long, value_name = "CAPTURE")]
    pub(crate) counterexample: Option<PathBuf>,
    /// Packets to search among, as they are, cut and changed; default: packets of common protocols
    #[arg(long = "in", value_name = "CAPTURE")]
    pub(crate) input: Option<PathBuf>,
    /// Also print every instruction walked, with the state before it
    #[arg(long)]
    pub(crate) log: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Engines of `weir prog run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RunEngine {
    /// The checked interpreter: no privileges, also for programs that no verifier accepts
    Interpreter,
    /// Native code of programs that the verifier accepts (x86-64)
    Jit,
    /// The running kernel (BPF_PROG_TEST_RUN): root
    Kernel,
}

/// Arguments of `weir prog run`.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// eBPF object
    #[arg(value_name = "OBJ")]
    pub(crate) object: PathBuf,
    /// The program to run; needed where the object has several
    #[arg(long, value_name = "NAME")]
    pub(crate) prog: Option<String>,
    /// Capture to read (pcap or pcapng)
    #[arg(long = "in", value_name = "CAPTURE")]
    pub(crate) input: PathBuf,
    /// Write every packet that goes on (pass, tx, redirect), as the program left it (pcap, nanoseconds)
    #[arg(long = "out", value_name = "CAPTURE")]
    pub(crate) output: Option<PathBuf>,
    /// What runs the program
    #[arg(long, value_enum, default_value = "interpreter")]
    pub(crate) engine: RunEngine,
    /// Receive queue the packets came in by
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) queue: u32,
    /// Number of the interface the packets came in by; the kernel engine takes only those that exist
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) ifindex: u32,
    /// Most instructions for one packet (interpreter; default: 10,000,000)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit_insns: Option<u64>,
    /// What is in the maps before the first packet: a JSON file as --dump-maps writes it
    #[arg(long, value_name = "FILE")]
    pub(crate) maps: Option<PathBuf>,
    /// Write what is in the maps after the last packet as JSON; `-`: to standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) dump_maps: Option<PathBuf>,
    /// Say for each packet what became of it
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
    /// The checked interpreter: also for programs that no verifier accepts
    Interpreter,
    /// Native code of programs that the verifier accepts (x86-64)
    Jit,
}

/// Arguments of `weir prog serve`.
#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    /// eBPF object
    #[arg(value_name = "OBJ")]
    pub(crate) object: PathBuf,
    /// The program to run; needed where the object has several
    #[arg(long, value_name = "NAME")]
    pub(crate) prog: Option<String>,
    /// Interface to serve; may be given several times. Without --xsk its own stack still sees every frame: give it no addresses
    #[arg(short = 'i', long = "interface", value_name = "IF", required = true)]
    pub(crate) interfaces: Vec<String>,
    /// What passes one of two interfaces leaves by the other, as on a wire; else passing does nothing here, or is what --to-stack says
    #[arg(long, conflicts_with = "to_stack")]
    pub(crate) wire: bool,
    /// AF_XDP sockets instead of packet sockets: frames come to the program first, and the stack gets what --to-stack gives it
    #[arg(long, conflicts_with = "workers")]
    pub(crate) xsk: bool,
    /// With --xsk: the steering program runs in the stack instead of the driver; works on every device, slower
    #[arg(long, requires = "xsk")]
    pub(crate) generic: bool,
    /// Workers, each a CPU of the program; an interface is served by one of them, CPU maps steer to any
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) workers: u16,
    /// What runs the program
    #[arg(long, value_enum, default_value = "interpreter")]
    pub(crate) engine: ServeEngine,
    /// Most instructions for one packet
    #[arg(long, value_name = "N", default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit_insns: u64,
    /// What is in the maps at the start: a JSON file as `weir prog run --dump-maps` writes it
    #[arg(long, value_name = "FILE")]
    pub(crate) maps: Option<PathBuf>,
    /// Write what is in the maps at the end as JSON; `-`: to standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) dump_maps: Option<PathBuf>,
    /// Stop by itself after this many seconds
    #[arg(long = "for", value_name = "SECONDS")]
    pub(crate) duration: Option<f64>,
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
    /// The program to load; needed where the object has several
    #[arg(long = "program", alias = "prog", value_name = "NAME")]
    pub(crate) program: Option<String>,
    /// Set a `const volatile` global: a number, true, false, hex:00ff or text:words; may be given several times
    #[arg(long = "constant", value_name = "NAME=VALUE")]
    pub(crate) constants: Vec<String>,
    /// Use a map that exists instead of a new one: a pinned file, or PROGRAM:MAP of a loaded program; may be given several times
    #[arg(long = "map", value_name = "NAME=MAP")]
    pub(crate) maps: Vec<String>,
    /// Leave the judgement to the kernel: weir's verifier is not asked
    #[arg(long)]
    pub(crate) unverified: bool,
    /// If the kernel refuses the program, print all that its verifier said
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
    /// Name to keep it under; default: that of the program
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
}

/// Where on the receive path a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AttachMode {
    /// In the driver
    Native,
    /// In the stack: on every device, slower
    Generic,
    /// In the device's hardware
    Offload,
}

/// Arguments of `weir prog attach`.
#[derive(Debug, clap::Args)]
pub(crate) struct AttachArgs {
    /// Number or name of a loaded program
    #[arg(value_name = "PROGRAM")]
    pub(crate) program: String,
    /// Interface
    #[arg(short = 'i', long = "interface", value_name = "IF")]
    pub(crate) interface: String,
    /// Where it runs; weir never chooses another mode by itself
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
    #[arg(short = 'i', long = "interface", value_name = "IF")]
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
    /// Give maps whose definition changed a new start instead of refusing; those that did not change keep their contents
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
