//! Arguments of `weir generate`.

use std::path::PathBuf;
use std::time::Duration;

use weir_value::{Mac, PortRange, Prefix};

use super::value::{count, duration, rate};

/// Arguments of `weir generate`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Frames are made in the kernel on one CPU. Without --frames and --duration: 10 s.\n\
    Sent is what was written, taken what the device accepted, and with --count-on lost what did not arrive."
)]
pub(crate) struct GenerateArgs {
    /// Interface to send from
    #[arg(short = 'i', long = "interface", value_name = "IF", value_parser = weir_value::interface)]
    pub(crate) interface: String,
    /// Number of frames: 5000, 2M
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) frames: Option<u64>,
    /// Duration: 10s, 500ms, 2m
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Duration>,
    /// Rate in frames per second: 1M/s, 500k; default: unlimited
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(crate) rate: Option<u64>,
    /// Number of flows
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        conflicts_with = "capture"
    )]
    pub(crate) flows: u32,
    /// Frame sizes in bytes, without FCS; several are mixed in equal parts: 64, 64,64,64,1500
    #[arg(
        long,
        value_name = "BYTES",
        value_delimiter = ',',
        conflicts_with = "capture"
    )]
    pub(crate) size: Vec<usize>,
    /// IPv6 instead of IPv4
    #[arg(long, conflicts_with = "capture")]
    pub(crate) ipv6: bool,
    /// Source prefix [default: 198.18.0.0/16 or 2001:2:0:1::/64]
    #[arg(long, value_name = "PREFIX", conflicts_with = "capture")]
    pub(crate) src: Option<Prefix>,
    /// Destination prefix [default: 198.19.0.0/16 or 2001:2:0:2::/64]
    #[arg(long, value_name = "PREFIX", conflicts_with = "capture")]
    pub(crate) dst: Option<Prefix>,
    /// Source ports: 1024-65535
    #[arg(
        long,
        value_name = "PORTS",
        default_value = "1024-65535",
        conflicts_with = "capture"
    )]
    pub(crate) sport: PortRange,
    /// Destination ports: 80, 8000-8999
    #[arg(
        long,
        value_name = "PORTS",
        default_value = "9",
        conflicts_with = "capture"
    )]
    pub(crate) dport: PortRange,
    /// UDP datagrams (default)
    #[arg(long, conflicts_with = "capture")]
    pub(crate) udp: bool,
    /// TCP SYN segments
    #[arg(long, conflicts_with_all = ["capture", "udp"])]
    pub(crate) tcp_syn: bool,
    /// ICMP echo requests
    #[arg(long, conflicts_with_all = ["capture", "udp", "tcp_syn"])]
    pub(crate) icmp: bool,
    /// Source MAC address [default: of the interface]
    #[arg(long, value_name = "MAC", conflicts_with = "capture")]
    pub(crate) src_mac: Option<Mac>,
    /// Destination MAC address [default: of the veth peer in this namespace, else 02:00:00:00:00:02]
    #[arg(long, value_name = "MAC", conflicts_with = "capture")]
    pub(crate) dst_mac: Option<Mac>,
    /// Random seed for addresses and ports
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        conflicts_with = "capture"
    )]
    pub(crate) seed: u64,
    /// Replay the frames of a capture unmodified, in order
    #[arg(long, value_name = "FILE")]
    pub(crate) capture: Option<PathBuf>,
    /// Repetitions of the capture [default: 1, or until the duration ends]
    #[arg(
        long = "loop",
        value_name = "N",
        requires = "capture",
        conflicts_with = "frames"
    )]
    pub(crate) times: Option<u64>,
    /// Count and drop frames arriving on this interface; report loss, duplicates and reordering
    #[arg(long, value_name = "IF", value_parser = weir_value::interface)]
    pub(crate) count_on: Option<String>,
    /// CPU to run on
    #[arg(long, value_name = "N")]
    pub(crate) cpu: Option<usize>,
    /// Allow sending from interfaces that may lead to a real network
    #[arg(long)]
    pub(crate) i_own_this_network: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
