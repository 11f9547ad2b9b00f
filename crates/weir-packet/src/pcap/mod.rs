//! Capture files: pcap and pcapng in, nanosecond pcap and pcapng out.
//!
//! Reading streams from any [`std::io::Read`] and never holds more than one block. A file that ends inside a record
//! yields all its whole packets, then [`CaptureError::Truncated`]. [`Capture::next_packet`] gives packets as captured, whatever their
//! link type; [`Capture::next_frame`] gives Ethernet frames, for which frames of some other link types get an Ethernet header (`link`).

mod annotated;
mod link;
mod reader;
mod writer;

pub use annotated::{Annotated, Note, Statistics};
pub use reader::Capture;
pub use writer::Writer;

/// The longest packet that is read or written, in bytes: libpcap's own limit.
pub const MAX_PACKET: u32 = 262_144;

/// A link type of the registry at tcpdump.org: what the first byte of a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkType(pub u16);

impl LinkType {
    /// Ethernet frames.
    pub const ETHERNET: LinkType = LinkType(1);

    /// The registry's name, without `LINKTYPE_`, of the types that are met in practice.
    pub fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            0 => "NULL",
            1 => "ETHERNET",
            6 => "IEEE802_5",
            7 => "ARCNET_BSD",
            8 => "SLIP",
            9 => "PPP",
            10 => "FDDI",
            50 => "PPP_HDLC",
            51 => "PPP_ETHER",
            101 => "RAW",
            104 => "C_HDLC",
            105 => "IEEE802_11",
            107 => "FRELAY",
            108 => "LOOP",
            113 => "LINUX_SLL",
            117 => "PFLOG",
            119 => "IEEE802_11_PRISM",
            127 => "IEEE802_11_RADIOTAP",
            129 => "ARCNET_LINUX",
            149 => "USER2",
            182 => "MFR",
            187 => "BLUETOOTH_HCI_H4",
            189 => "USB_LINUX",
            195 => "IEEE802_15_4_WITHFCS",
            201 => "BLUETOOTH_HCI_H4_WITH_PHDR",
            220 => "USB_LINUX_MMAPPED",
            226 => "IPNET",
            228 => "IPV4",
            229 => "IPV6",
            230 => "IEEE802_15_4_NOFCS",
            239 => "NFLOG",
            240 => "NETANALYZER",
            252 => "WIRESHARK_UPPER_PDU",
            253 => "NETLINK",
            276 => "LINUX_SLL2",
            _ => return None,
        })
    }
}

impl std::fmt::Display for LinkType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{} ({name})", self.0),
            None => write!(f, "{}", self.0),
        }
    }
}

/// An interface that packets of a capture came in by. A pcap file has exactly one, without a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Number in the file from 0, counted on over the sections of a pcapng file.
    pub index: u32,
    /// `if_name` of a pcapng file.
    pub name: Option<String>,
    /// What its packets begin with.
    pub link_type: LinkType,
    /// Bytes kept of each packet; 0 if all.
    pub snap_len: u32,
    resolution: Resolution,
}

impl Interface {
    /// Refuses interfaces whose packets [`Capture::next_frame`] cannot give as Ethernet frames.
    ///
    /// # Errors
    /// [`CaptureError::UnsupportedLinkType`] with the number and the name of the type.
    pub fn require_frames(&self) -> Result<(), CaptureError> {
        if link::is_read(self.link_type.0) {
            return Ok(());
        }
        Err(CaptureError::UnsupportedLinkType {
            number: self.link_type.0,
            name: self.link_type.name().unwrap_or("unknown"),
        })
    }
}

/// One packet of a capture.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Number in the file from 0.
    pub number: u64,
    /// Nanoseconds since 1970; a packet without a timestamp (simple packet block) has that of the packet before it.
    pub timestamp_ns: u64,
    /// The captured bytes.
    pub data: &'a [u8],
    /// Length on the wire in bytes.
    pub original_len: u32,
    /// Where it came in.
    pub interface: &'a Interface,
}

/// One packet of a capture as an Ethernet frame.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Number in the file from 0.
    pub number: u64,
    /// Nanoseconds since 1970, as of [`Packet`].
    pub timestamp_ns: u64,
    /// The frame, at most [`MAX_PACKET`] bytes. Of a packet that ends inside the header of its link type: fewer than the 14 bytes of an Ethernet header.
    pub data: &'a [u8],
    /// Length of the whole frame in bytes, at least that of `data`.
    pub original_len: u32,
    /// Where it was captured.
    pub interface: &'a Interface,
    /// Index of the network interface, of link types that say it for each packet (`LINUX_SLL2`).
    pub device: Option<u32>,
    /// The packet ends inside the header of its link type, which is not Ethernet.
    pub cut_in_link_header: bool,
}

/// Why a capture cannot be read, or not any further.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The first bytes are those of no capture format.
    #[error("not a capture file: it starts with {start}, which is neither pcap nor pcapng{hint}")]
    NotACapture {
        /// The first bytes in hex, or `nothing`.
        start: String,
        /// The next step where it can be guessed, with a leading separator.
        hint: &'static str,
    },
    /// A known but unusual format.
    #[error("{what} is not supported: convert the file with `editcap -F pcapng`")]
    UnsupportedFormat {
        /// The variant.
        what: String,
    },
    /// The file ends inside the header of its format: it holds no packet.
    #[error("the capture is cut off: it ends inside its file header, before any packet")]
    TruncatedHeader,
    /// The file ends inside a record or block.
    #[error("the capture is cut off: it ends inside {}", record(*whole))]
    Truncated {
        /// Whole packets before the cut; all have been delivered.
        whole: u64,
    },
    /// A record says it is longer than a packet can be.
    #[error(
        "the capture is damaged: {} claims {length} bytes, more than {MAX_PACKET}",
        record(*whole)
    )]
    Oversized {
        /// Whole packets before it.
        whole: u64,
        /// What it claims.
        length: u32,
    },
    /// A block contradicts itself.
    #[error("the capture is damaged at {}: {what}", record(*whole))]
    Malformed {
        /// Whole packets before it.
        whole: u64,
        /// What is wrong.
        what: String,
    },
    /// Packets of which no Ethernet frames can be made.
    #[error(
        "link type {number} ({name}) is not supported: weir reads {}",
        link::READ
    )]
    UnsupportedLinkType {
        /// Number of the registry.
        number: u16,
        /// Its name, or `unknown`.
        name: &'static str,
    },
    /// Reading failed.
    #[error("reading the capture failed: {0}")]
    Io(#[from] std::io::Error),
}

impl CaptureError {
    /// How many packets stand in front of where the file is cut off or damaged; all have been delivered. 0: none, or it is not read for another reason.
    pub fn whole(&self) -> u64 {
        match self {
            CaptureError::Truncated { whole }
            | CaptureError::Oversized { whole, .. }
            | CaptureError::Malformed { whole, .. } => *whole,
            _ => 0,
        }
    }
}

/// The record behind so many whole packets, as people count.
fn record(whole: u64) -> String {
    match whole {
        0 => "its first record".to_owned(),
        _ => format!("the record after packet {whole} (packets counted from 1)"),
    }
}

/// How timestamps of an interface count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Resolution {
    /// `if_tsresol`: 10^-n s, or with the top bit 2^-n s.
    exponent: u8,
    /// `if_tsoffset`: seconds to add.
    offset: i64,
}

impl Resolution {
    const MICROSECONDS: Resolution = Resolution {
        exponent: 6,
        offset: 0,
    };
    const NANOSECONDS: Resolution = Resolution {
        exponent: 9,
        offset: 0,
    };

    /// Nanoseconds since 1970 of a count of units, cut to what 64 bits hold.
    fn nanoseconds(self, units: u64) -> u64 {
        let power = u32::from(self.exponent & 0x7f);
        let units = u128::from(units);
        let ns = if self.exponent & 0x80 != 0 {
            // 64 + 30 bits: the product does not overflow; 2^-127 s is 0 of anything that fits.
            (units * 1_000_000_000) >> power
        } else if power <= 9 {
            units * 10u128.pow(9 - power)
        } else {
            10u128
                .checked_pow(power - 9)
                .map_or(0, |divisor| units / divisor)
        };
        let shift = i128::from(self.offset) * 1_000_000_000;
        let total = i128::try_from(ns)
            .unwrap_or(i128::MAX)
            .saturating_add(shift)
            .max(0);
        u64::try_from(total).unwrap_or(u64::MAX)
    }
}
