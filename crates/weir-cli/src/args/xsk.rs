//! Arguments of `weir xsk`: one flag for each knob of a socket, shared by its four commands.

use std::time::Duration;

use clap::{Subcommand, ValueEnum};
use weir_value::Mac;
use weir_xsk::Match;

use super::value::{count, duration, micros, millis, rate};

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
    /// Send numbered, timestamped frames: at full speed, at a rate, or in batches
    Send(Box<SendArgs>),
    /// Receive frames and report loss, duplicates, reordering and delay
    Receive(Box<ReceiveArgs>),
    /// Reflect frames with swapped addresses, or forward them to another interface
    Forward(Box<ForwardArgs>),
    /// Measure round-trip times to a `weir xsk forward`
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
    /// Spin: lowest latency, uses a whole CPU
    Spin,
    /// Spin with a system call each time; required for busy polling
    Call,
    /// Block in poll()
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
    #[arg(short = 'i', long = "interface", value_name = "IF", value_parser = weir_value::interface)]
    pub(crate) interface: String,
    /// Queue of the first socket
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) queue: u32,
    /// Number of sockets, on consecutive queues from --queue, one thread each
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) sockets: u32,
    /// Set the number of queues of the interface; restored afterwards
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
    /// Use generic XDP: slower, works with every driver
    #[arg(long)]
    pub(crate) generic: bool,
    /// Packet sockets (TPACKET_V3) instead of AF_XDP
    #[arg(long)]
    pub(crate) packet: bool,
    /// Packet sockets: block timeout
    #[arg(long, value_name = "TIME", default_value = "1ms", requires = "packet", value_parser = millis)]
    pub(crate) retire: u32,
    /// UMEM frame size in bytes [default: 4096]
    #[arg(long, value_name = "BYTES")]
    pub(crate) frame_size: Option<u32>,
    /// UMEM frames per socket
    #[arg(long, value_name = "N", default_value_t = 4096)]
    pub(crate) frames: u32,
    /// UMEM headroom in bytes, in addition to the kernel's 256
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    pub(crate) headroom: u32,
    /// Unaligned chunks: --frame-size need not be a power of two
    #[arg(long)]
    pub(crate) unaligned: bool,
    /// UMEM in huge pages; they must be reserved
    #[arg(long)]
    pub(crate) huge_pages: bool,
    /// Shared UMEM: all sockets use one
    #[arg(long)]
    pub(crate) shared_umem: bool,
    /// Multi-buffer: a packet may span several frames
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
    /// Disable XDP_USE_NEED_WAKEUP
    #[arg(long, conflicts_with = "need_wakeup")]
    pub(crate) no_need_wakeup: bool,
    /// Enable XDP_USE_NEED_WAKEUP (default), overriding a profile
    #[arg(long)]
    pub(crate) need_wakeup: bool,
    /// Busy polling: duration of a call, such as 20us; with --wait call or poll. 0: none, for a profile that says otherwise
    #[arg(long, value_name = "TIME", value_parser = micros)]
    pub(crate) busy_poll: Option<u32>,
    /// Busy polling budget in packets (SO_BUSY_POLL_BUDGET)
    #[arg(long, value_name = "N", default_value_t = 64, requires = "busy_poll")]
    pub(crate) busy_poll_budget: u16,
    /// Do not set SO_PREFER_BUSY_POLL
    #[arg(long, requires = "busy_poll")]
    pub(crate) no_prefer_busy_poll: bool,
    /// Frames that a send call takes at most in copy mode (Linux 6.17)
    #[arg(long, value_name = "N")]
    pub(crate) tx_budget: Option<u32>,
    /// Wait method [default: spin]
    #[arg(long, value_enum)]
    pub(crate) wait: Option<WaitName>,
    /// CPUs to pin threads to, in order
    #[arg(long, value_name = "CPUS", value_delimiter = ',')]
    pub(crate) cpu: Vec<usize>,
    /// Real-time priority of threads
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=99))]
    pub(crate) priority: Option<u8>,
    /// Time to retry while a queue is busy
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = duration)]
    pub(crate) bind_wait: Duration,
    /// Allow interfaces that may lead to a real network
    #[arg(long)]
    pub(crate) i_own_this_network: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// What is steered to sockets.
#[derive(Debug, clap::Args)]
pub(crate) struct SteerArgs {
    /// Packets redirected to the sockets: weir (frames of `weir xsk`), all, ethertype:0x88b5, udp:PORT; others go to the stack
    #[arg(long = "match", value_name = "WHAT", default_value = "weir", value_parser = what)]
    pub(crate) what: Match,
    /// Timestamp frames in the XDP program, and report the delay from there separately
    #[arg(long)]
    pub(crate) mark: bool,
}

/// Arguments of `weir xsk send`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Without --count and --duration: 10 s.")]
pub(crate) struct SendArgs {
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
    /// Frame size in bytes, without FCS
    #[arg(long, value_name = "BYTES", default_value_t = 60)]
    pub(crate) size: usize,
    /// Number of frames, over all sockets: 5000, 2M
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) count: Option<u64>,
    /// Duration: 10s, 500ms
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Duration>,
    /// Rate in frames per second, over all sockets: 1M/s, 500k; default: unlimited
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(crate) rate: Option<u64>,
    /// Batch size in frames
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(crate) batch: usize,
    /// Interval between batches of a socket: 1ms, 100us
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "rate")]
    pub(crate) interval: Option<Duration>,
    /// Destination MAC address [default: of the veth peer in this namespace, else 02:00:00:00:00:02]
    #[arg(long, value_name = "MAC")]
    pub(crate) dst_mac: Option<Mac>,
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
    /// Number of frames, over all sockets: 5000, 2M
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) count: Option<u64>,
    /// Duration: 10s, 500ms
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Duration>,
    /// Stop after this time without traffic
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) idle: Option<Duration>,
    /// Batch size in frames
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(crate) batch: usize,
    /// Do not measure delay
    #[arg(long)]
    pub(crate) no_delays: bool,
    /// Exact delay samples to keep per socket; beyond that quantiles are accurate to 1.6 %
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
    /// Output interface; default: reflect with swapped addresses
    #[arg(long, value_name = "IF", value_parser = weir_value::interface)]
    pub(crate) to: Option<String>,
    /// Forward in both directions
    #[arg(long, requires = "to")]
    pub(crate) both_ways: bool,
    /// Timestamp frames of `weir xsk`, so that ping reports each direction
    #[arg(long)]
    pub(crate) stamp: bool,
    /// Number of received frames, over all sockets: 5000, 2M
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) count: Option<u64>,
    /// Duration: 10s, 500ms
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Duration>,
    /// Stop after this time without traffic
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) idle: Option<Duration>,
    /// Batch size in frames
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
    /// Frame size in bytes, without FCS
    #[arg(long, value_name = "BYTES", default_value_t = 60)]
    pub(crate) size: usize,
    /// Frames: 5000, 2M
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) count: Option<u64>,
    /// Duration: 10s, 500ms
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Duration>,
    /// Interval between batches; 0: send the next when the last is back
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = weir_value::duration)]
    pub(crate) interval: Duration,
    /// Batch size in frames
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) batch: usize,
    /// Time until a frame counts as lost
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    pub(crate) timeout: Duration,
    /// Warm-up frames, not counted
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) warm_up: u64,
    /// Exact round-trip samples to keep; beyond that quantiles are accurate to 1.6 %
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub(crate) samples: usize,
    /// Destination MAC address [default: of the veth peer in this namespace, else 02:00:00:00:00:02]
    #[arg(long, value_name = "MAC")]
    pub(crate) dst_mac: Option<Mac>,
    /// EtherType of frames
    #[arg(long, value_name = "NUMBER", default_value = "0x88b5", value_parser = ethertype)]
    pub(crate) ethertype: u16,
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
        .ok_or_else(|| format!("invalid EtherType `{text}`: write 0x88b5; the smallest is 0x0600"))
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
