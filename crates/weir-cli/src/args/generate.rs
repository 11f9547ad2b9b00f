//! Arguments of `weir generate`, and the units they are written in.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use weir_lab::generate::{Gaps, Prefix};

/// Arguments of `weir generate`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Frames are made in the kernel on one CPU. Without --frames and --duration: 10 s.\n\
    Sent is what was written, taken what the device accepted, and with --count-on lost what did not arrive."
)]
pub(crate) struct GenerateArgs {
    /// Interface to send from
    #[arg(short = 'i', long = "interface", value_name = "IF")]
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
    #[arg(long, value_name = "PORTS", value_parser = ports, default_value = "1024-65535", conflicts_with = "capture")]
    pub(crate) sport: RangeInclusive<u16>,
    /// Destination ports: 80, 8000-8999
    #[arg(long, value_name = "PORTS", value_parser = ports, default_value = "9", conflicts_with = "capture")]
    pub(crate) dport: RangeInclusive<u16>,
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
    #[arg(long, value_name = "MAC", value_parser = mac, conflicts_with = "capture")]
    pub(crate) src_mac: Option<[u8; 6]>,
    /// Destination MAC address [default: of the veth peer in this namespace, else 02:00:00:00:00:02]
    #[arg(long, value_name = "MAC", value_parser = mac, conflicts_with = "capture")]
    pub(crate) dst_mac: Option<[u8; 6]>,
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
    #[arg(long, value_name = "IF")]
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

/// A number with k, M or G behind it.
pub(crate) fn count(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is no number of frames: write 5000, 500k, 2M");
    let (digits, unit) = match text.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (&text[..at], 1e3),
        Some((at, 'm' | 'M')) => (&text[..at], 1e6),
        Some((at, 'g' | 'G')) => (&text[..at], 1e9),
        _ => (text, 1.0),
    };
    if unit == 1.0 {
        return digits.parse().ok().filter(|n| *n > 0).ok_or_else(wrong);
    }
    let number: f64 = digits.parse().map_err(|_| wrong())?;
    let number = number * unit;
    if !(1.0..1e18).contains(&number) {
        return Err(wrong());
    }
    Ok(number as u64)
}

pub(crate) fn rate(text: &str) -> Result<u64, String> {
    count(text.strip_suffix("/s").unwrap_or(text))
        .map_err(|_| format!("`{text}` is no rate: write 1M/s, 500k or 1000"))
}

pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no time: write 10s, 500ms or 2m");
    let (digits, unit) = [
        ("us", 1e-6),
        ("ms", 1e-3),
        ("s", 1.0),
        ("m", 60.0),
        ("h", 3600.0),
    ]
    .into_iter()
    .find_map(|(suffix, unit)| Some((text.strip_suffix(suffix)?, unit)))
    .ok_or_else(wrong)?;
    let number: f64 = digits.trim().parse().map_err(|_| wrong())?;
    match Duration::try_from_secs_f64(number * unit) {
        // A clock of 64 bits of ns.
        Ok(time) if !time.is_zero() && time < Duration::from_secs(1 << 32) => Ok(time),
        _ => Err(wrong()),
    }
}

/// What is between the packets of a flow of a mix.
pub(crate) fn gaps(text: &str) -> Result<Gaps, String> {
    match text {
        "mix" => Ok(Gaps::Mix),
        "templates" => Ok(Gaps::Templates),
        _ => duration(text)
            .map(Gaps::Fixed)
            .map_err(|_| format!("`{text}`: write mix, templates, or a time as 100us or 10ms")),
    }
}

fn ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let wrong = || format!("`{text}` is no port and no range of ports: write 80 or 8000-8999");
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (
        first.parse().map_err(|_| wrong())?,
        last.parse().map_err(|_| wrong())?,
    );
    if first > last {
        return Err(wrong());
    }
    Ok(first..=last)
}

pub(crate) fn mac(text: &str) -> Result<[u8; 6], String> {
    let parts: Vec<Option<u8>> = text
        .split(':')
        .map(|part| {
            u8::from_str_radix(part, 16)
                .ok()
                .filter(|_| part.len() <= 2)
        })
        .collect();
    let bytes: Option<Vec<u8>> = parts.into_iter().collect();
    bytes
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or_else(|| format!("`{text}` is no Ethernet address: write 02:00:00:00:00:02"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_read() {
        assert_eq!(rate("1M/s"), Ok(1_000_000));
        assert_eq!(rate("1.5k"), Ok(1_500));
        assert_eq!(count("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("100us"), Ok(Duration::from_micros(100)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(ports("8000-8999"), Ok(8000..=8999));
        assert_eq!(mac("2:0:0:0:0:ff"), Ok([2, 0, 0, 0, 0, 255]));
    }

    #[test]
    fn what_is_none_says_what_to_write() {
        for bad in ["", "0", "-1", "M", "1x", "nan", "1e99M", "é"] {
            assert!(count(bad).is_err(), "{bad}");
            assert!(rate(bad).expect_err(bad).contains("1M/s"));
        }
        for bad in ["", "10", "0s", "-1s", "infs", "s"] {
            assert!(duration(bad).expect_err(bad).contains("500ms"), "{bad}");
        }
        for bad in ["", "70000", "9-8", "a-b", "1-2-3"] {
            assert!(ports(bad).is_err(), "{bad}");
        }
        for bad in ["", "02:00", "02:00:00:00:00:00:00", "zz:0:0:0:0:0"] {
            assert!(mac(bad).is_err(), "{bad}");
        }
    }
}
