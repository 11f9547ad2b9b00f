//! Arguments of `weir xsk`: one flag for each knob of a socket, shared by its four commands.

use std::time::Duration;

use clap::{Subcommand, ValueEnum};
use weir_xsk::Match;

use super::generate::{count, duration, mac, rate};

/// Arguments of `weir xsk`.
#[derive(Debug, clap::Args)]
pub(crate) struct XskArgs {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: XskCommand,
}

/// What sockets can be used for.
#[derive(Debug, Subcommand)]
pub(crate) enum XskCommand {
    /// Send numbered frames with the time in them: as fast as it goes, at a rate, or in batches at an interval
    Send(Box<SendArgs>),
    /// Receive frames and account for each: lost, repeated, reordered ones, and how long they took
    Receive(Box<ReceiveArgs>),
    /// Send frames back with their addresses swapped, or on to another interface
    Forward(Box<ForwardArgs>),
    /// Measure round trips to a `weir xsk forward`
    Ping(Box<PingArgs>),
}

/// How frames reach the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModeName {
    /// Zero-copy where the driver can, else copy; the report says which
    Auto,
    /// Copied; works on every device
    Copy,
    /// Not copied; an error where it cannot be
    ZeroCopy,
}

/// How a thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WaitName {
    /// Look again at once: quickest, and takes a CPU
    Spin,
    /// Look again and call the kernel each time: needed for busy polling
    Call,
    /// Sleep in poll() until something comes
    Poll,
}

impl From<ModeName> for weir_xsk::Mode {
    fn from(name: ModeName) -> Self {
        match name {
            ModeName::Auto => Self::Auto,
            ModeName::Copy => Self::Copy,
            ModeName::ZeroCopy => Self::ZeroCopy,
        }
    }
}

impl From<WaitName> for weir_xsk::Wait {
    fn from(name: WaitName) -> Self {
        match name {
            WaitName::Spin => Self::Spin,
            WaitName::Call => Self::SpinCalling,
            WaitName::Poll => Self::Poll,
        }
    }
}

/// What a profile's settings are wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum GoalName {
    /// Short round trips
    Latency,
    /// Many packets
    Throughput,
    /// Little CPU time for each packet
    Cpu,
}

/// The sockets of a command.
#[derive(Debug, clap::Args)]
pub(crate) struct SocketArgs {
    /// Interface
    #[arg(short = 'i', long = "interface", value_name = "IF")]
    pub(crate) interface: String,
    /// Queue of the first socket
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) queue: u32,
    /// Sockets, on queues from --queue on, each with a thread
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) sockets: u32,
    /// Give the interface so many queues, and put them back afterwards
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) set_queues: Option<u32>,
    /// Settings that a sweep found best for this machine: `measured` (the profile that `weir lab afxdp --recommend` wrote), or a profile's file. Flags win over it
    #[arg(long, value_name = "measured|FILE", conflicts_with = "packet")]
    pub(crate) profile: Option<std::path::PathBuf>,
    /// What the profile's settings are wanted for
    #[arg(long, value_enum, default_value = "latency", requires = "profile")]
    pub(crate) profile_for: GoalName,
    /// Zero-copy or copy mode [default: auto]
    #[arg(long, value_enum)]
    pub(crate) mode: Option<ModeName>,
    /// Run the XDP program in the stack instead of the driver: works on every device, slower
    #[arg(long)]
    pub(crate) generic: bool,
    /// Packet sockets (TPACKET_V3) instead of AF_XDP
    #[arg(long)]
    pub(crate) packet: bool,
    /// Packet sockets: milliseconds until a block that is not full is handed over
    #[arg(long, value_name = "MS", default_value_t = 1, requires = "packet", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) retire: u32,
    /// Bytes of a frame in memory [default: 4096]
    #[arg(long, value_name = "BYTES")]
    pub(crate) frame_size: Option<u32>,
    /// Frames of each socket
    #[arg(long, value_name = "N", default_value_t = 4096)]
    pub(crate) frames: u32,
    /// Bytes that stay free in front of received packets, beside the kernel's 256
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    pub(crate) headroom: u32,
    /// Frames may begin anywhere: --frame-size need not be a power of two
    #[arg(long)]
    pub(crate) unaligned: bool,
    /// Frames lie in huge pages, which must have been reserved
    #[arg(long)]
    pub(crate) huge_pages: bool,
    /// All sockets use one area of frames
    #[arg(long)]
    pub(crate) shared_umem: bool,
    /// Packets may take several frames: for MTUs beyond a frame
    #[arg(long)]
    pub(crate) multi_buffer: bool,
    /// Entries of the RX ring [default: 2048]
    #[arg(long, value_name = "N")]
    pub(crate) rx_ring: Option<u32>,
    /// Entries of the TX ring [default: 2048]
    #[arg(long, value_name = "N")]
    pub(crate) tx_ring: Option<u32>,
    /// Entries of the fill ring [default: 2048]
    #[arg(long, value_name = "N")]
    pub(crate) fill_ring: Option<u32>,
    /// Entries of the completion ring [default: 2048]
    #[arg(long, value_name = "N")]
    pub(crate) completion_ring: Option<u32>,
    /// Let the kernel not say when it must be woken: sending always calls it
    #[arg(long, conflicts_with = "need_wakeup")]
    pub(crate) no_need_wakeup: bool,
    /// Let the kernel say when it must be woken: as usual, for a profile that says otherwise
    #[arg(long)]
    pub(crate) need_wakeup: bool,
    /// Busy polling: microseconds of a call; with --wait call or poll. 0: none, for a profile that says otherwise
    #[arg(long, value_name = "US")]
    pub(crate) busy_poll: Option<u32>,
    /// Packets that busy polling takes at once
    #[arg(long, value_name = "N", default_value_t = 64, requires = "busy_poll")]
    pub(crate) busy_poll_budget: u16,
    /// Busy polling beside interrupts: do not prefer it
    #[arg(long, requires = "busy_poll")]
    pub(crate) no_prefer_busy_poll: bool,
    /// Frames that a send call takes at most in copy mode (Linux 6.17)
    #[arg(long, value_name = "N")]
    pub(crate) tx_budget: Option<u32>,
    /// How threads wait for packets [default: spin]
    #[arg(long, value_enum)]
    pub(crate) wait: Option<WaitName>,
    /// CPUs of threads, in turn
    #[arg(long, value_name = "CPUS", value_delimiter = ',')]
    pub(crate) cpu: Vec<usize>,
    /// Real-time priority of threads
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=99))]
    pub(crate) priority: Option<u8>,
    /// How long to try while a queue is busy
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = duration)]
    pub(crate) bind_wait: Duration,
    /// Also on interfaces that may lead into a real network
    #[arg(long)]
    pub(crate) i_own_this_network: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// What is steered to sockets.
#[derive(Debug, clap::Args)]
pub(crate) struct SteerArgs {
    /// Packets for the sockets: weir (frames of `weir xsk`), all, ethertype:0x88b5, udp:PORT; all others go on to the stack
    #[arg(long = "match", value_name = "WHAT", default_value = "weir", value_parser = what)]
    pub(crate) what: Match,
    /// The XDP program writes the time in front of frames: the way from there is told by itself
    #[arg(long)]
    pub(crate) mark: bool,
}

/// Arguments of `weir xsk send`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Without --count and --duration: 10 s.")]
pub(crate) struct SendArgs {
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
    /// Bytes of a frame without its check sequence
    #[arg(long, value_name = "BYTES", default_value_t = 60)]
    pub(crate) size: usize,
    /// Frames of all sockets: 5000, 2M
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) count: Option<u64>,
    /// How long: 10s, 500ms
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Duration>,
    /// Frames a second of all sockets: 1M/s, 500k; without it as fast as it goes
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(crate) rate: Option<u64>,
    /// Frames at once
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(crate) batch: usize,
    /// From batch to batch of a socket: 1ms, 100us
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "rate")]
    pub(crate) interval: Option<Duration>,
    /// Destination address [default: that of the far end of a veth in this namespace, else 02:00:00:00:00:02]
    #[arg(long, value_name = "MAC", value_parser = mac)]
    pub(crate) dst_mac: Option<[u8; 6]>,
    /// EtherType of frames
    #[arg(long, value_name = "NUMBER", default_value = "0x88b5", value_parser = ethertype)]
    pub(crate) ethertype: u16,
}

/// Arguments of `weir xsk receive`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Without --count, --duration and --idle: until Ctrl-C.")]
pub(crate) struct ReceiveArgs {
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
    #[command(flatten)]
    pub(crate) steer: SteerArgs,
    /// Frames of all sockets: 5000, 2M
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) count: Option<u64>,
    /// How long: 10s, 500ms
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Duration>,
    /// End when nothing came for so long, once something did
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) idle: Option<Duration>,
    /// Frames taken at once
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(crate) batch: usize,
    /// Do not note how long frames took
    #[arg(long)]
    pub(crate) no_delays: bool,
    /// Delays of which exact values are kept, for each socket; beyond that quantiles are exact to 1.6 %
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub(crate) samples: usize,
}

/// Arguments of `weir xsk forward`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Without --count, --duration and --idle: until Ctrl-C.")]
pub(crate) struct ForwardArgs {
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
    #[command(flatten)]
    pub(crate) steer: SteerArgs,
    /// The other interface; without it frames go back with their addresses swapped
    #[arg(long, value_name = "IF")]
    pub(crate) to: Option<String>,
    /// Also from the other interface to the first
    #[arg(long, requires = "to")]
    pub(crate) both_ways: bool,
    /// Write the time into frames of `weir xsk`, so that ping tells both ways apart
    #[arg(long)]
    pub(crate) stamp: bool,
    /// Frames received by all sockets: 5000, 2M
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) count: Option<u64>,
    /// How long: 10s, 500ms
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Duration>,
    /// End when nothing came for so long, once something did
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) idle: Option<Duration>,
    /// Frames taken at once
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(crate) batch: usize,
}

/// Arguments of `weir xsk ping`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Without --count and --duration: 10 frames.")]
pub(crate) struct PingArgs {
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
    #[command(flatten)]
    pub(crate) steer: SteerArgs,
    /// Bytes of a frame without its check sequence
    #[arg(long, value_name = "BYTES", default_value_t = 60)]
    pub(crate) size: usize,
    /// Frames: 5000, 2M
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) count: Option<u64>,
    /// How long: 10s, 500ms
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Duration>,
    /// From batch to batch; 0: the next one as soon as one is back
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = pause)]
    pub(crate) interval: Duration,
    /// Frames at once
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) batch: usize,
    /// When a frame is given up
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    pub(crate) timeout: Duration,
    /// Frames at the beginning that do not count
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) warm_up: u64,
    /// Round trips of which exact values are kept; beyond that quantiles are exact to 1.6 %
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub(crate) samples: usize,
    /// Destination address [default: that of the far end of a veth in this namespace, else 02:00:00:00:00:02]
    #[arg(long, value_name = "MAC", value_parser = mac)]
    pub(crate) dst_mac: Option<[u8; 6]>,
    /// EtherType of frames
    #[arg(long, value_name = "NUMBER", default_value = "0x88b5", value_parser = ethertype)]
    pub(crate) ethertype: u16,
}

/// A time that may be nothing.
fn pause(text: &str) -> Result<Duration, String> {
    match text {
        "0" => Ok(Duration::ZERO),
        _ => duration(text),
    }
}

fn number(text: &str) -> Option<u16> {
    match text.strip_prefix("0x") {
        Some(hex) => u16::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn ethertype(text: &str) -> Result<u16, String> {
    number(text)
        .filter(|kind| *kind >= 0x600)
        .ok_or_else(|| format!("`{text}` is no EtherType: write 0x88b5; the smallest is 0x0600"))
}

fn what(text: &str) -> Result<Match, String> {
    let wrong =
        || format!("`{text}` names no packets: write weir, all, ethertype:0x88b5 or udp:PORT");
    match text {
        "weir" => Ok(Match::EtherType(weir_lab::xsk::ETHERTYPE)),
        "all" => Ok(Match::All),
        _ => match text.split_once(':') {
            Some(("ethertype", kind)) => ethertype(kind).map(Match::EtherType),
            Some(("udp", port)) => number(port)
                .filter(|port| *port > 0)
                .map(Match::UdpPort)
                .ok_or_else(wrong),
            _ => Err(wrong()),
        },
    }
}
