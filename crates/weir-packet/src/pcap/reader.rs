//! The streaming reader of both formats.
//!
//! Records and blocks are framed here, by their own length words, and read whole; `pcap-parser` decodes what is inside.
//! Invariant: a length word never decides how much memory is taken before that many bytes have been read.
//!
//! In a pcap header only the low 16 bits of the link-type word are the link type. The upper bits say whether packets
//! end with a frame check sequence; packets are delivered as captured, so such bytes are a trailer behind the IP packet.

use std::io::Read;

use pcap_parser::pcapng::{Block, OptionCode, PcapNGOption};
use pcap_parser::traits::PcapNGPacketBlock;

use super::link::{self, ETHERNET_HEADER};
use super::{CaptureError, Frame, Interface, LinkType, MAX_PACKET, Packet, Resolution};

/// Blocks that are decoded may be this long; a packet with generous options is far below it.
const MAX_BLOCK: u32 = 16 << 20;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

/// An open capture.
#[derive(Debug)]
pub struct Capture<R> {
    input: R,
    buffer: Vec<u8>,
    /// The Ethernet frame made of the last packet, if it was none.
    frame: Vec<u8>,
    format: Format,
    /// All interfaces seen so far, over all sections.
    interfaces: Vec<Interface>,
    packets: u64,
    last_ns: u64,
    ended: bool,
}

#[derive(Clone, Copy, Debug)]
enum Format {
    Pcap {
        big_endian: bool,
        minor: u16,
    },
    PcapNg {
        big_endian: bool,
        /// Index of the running section's interface 0 in `interfaces`.
        section: usize,
    },
}

/// A decoded packet, its bytes as a range of the buffer.
struct Found {
    interface: usize,
    timestamp_ns: u64,
    data: std::ops::Range<usize>,
    original_len: u32,
}

impl<R: Read> Capture<R> {
    /// Reads the file header. The input should be buffered.
    ///
    /// # Errors
    /// [`CaptureError::NotACapture`], [`CaptureError::UnsupportedFormat`] or [`CaptureError::TruncatedHeader`], or reading failed.
    pub fn open(input: R) -> Result<Self, CaptureError> {
        let mut capture = Capture {
            input,
            buffer: Vec::new(),
            frame: Vec::new(),
            format: Format::Pcap {
                big_endian: false,
                minor: 4,
            },
            interfaces: Vec::new(),
            packets: 0,
            last_ns: 0,
            ended: false,
        };
        capture.fill(0, 4)?;
        let Some(&magic) = capture.buffer.first_chunk::<4>() else {
            return Err(not_a_capture(&capture.buffer));
        };
        match magic {
            [0xd4, 0xc3, 0xb2, 0xa1]
            | [0x4d, 0x3c, 0xb2, 0xa1]
            | [0xa1, 0xb2, 0xc3, 0xd4]
            | [0xa1, 0xb2, 0x3c, 0x4d] => {
                capture.open_pcap().map_err(in_header)?;
            }
            [0x0a, 0x0d, 0x0d, 0x0a] => capture.open_pcapng().map_err(in_header)?,
            _ => return Err(variant(magic).unwrap_or_else(|| not_a_capture(&capture.buffer))),
        }
        Ok(capture)
    }

    /// The interfaces seen so far; in a pcapng file more may follow.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// The next packet; `None` at the end, and after an error.
    ///
    /// # Errors
    /// All whole packets have been delivered before any error.
    #[expect(
        clippy::indexing_slicing,
        reason = "what was found lies in the buffer, and its interface was read"
    )]
    pub fn next_packet(&mut self) -> Result<Option<Packet<'_>>, CaptureError> {
        let Some(found) = self.find()? else {
            return Ok(None);
        };
        Ok(Some(Packet {
            number: self.packets - 1,
            timestamp_ns: found.timestamp_ns,
            data: &self.buffer[found.data],
            original_len: found.original_len,
            interface: &self.interfaces[found.interface],
        }))
    }

    /// The next packet as an Ethernet frame; `None` at the end, and after an error. docs/semantics.md section 8 says what
    /// the Ethernet header of a frame of another link type holds.
    ///
    /// # Errors
    /// As of [`Capture::next_packet`]; [`CaptureError::UnsupportedLinkType`] for a packet of which no frame can be made, after which reading goes on.
    #[expect(
        clippy::indexing_slicing,
        reason = "what was found lies in the buffer, and its interface was read"
    )]
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, CaptureError> {
        let Some(found) = self.find()? else {
            return Ok(None);
        };
        let interface = &self.interfaces[found.interface];
        let data = &self.buffer[found.data];
        let mut frame = Frame {
            number: self.packets - 1,
            timestamp_ns: found.timestamp_ns,
            data,
            original_len: found.original_len.max(data.len() as u32),
            interface,
            device: None,
            cut_in_link_header: false,
        };
        if interface.link_type == LinkType::ETHERNET {
            return Ok(Some(frame));
        }
        interface.require_frames()?;
        let Some(header) = link::header(interface.link_type.0, data) else {
            frame.cut_in_link_header = true;
            frame.data = data.get(..ETHERNET_HEADER - 1).unwrap_or(data);
            return Ok(Some(frame));
        };
        let lost = frame.original_len - data.len() as u32;
        self.frame.clear();
        self.frame.extend_from_slice(&header.bytes());
        self.frame
            .extend_from_slice(data.get(header.length..).unwrap_or_default());
        let whole = self.frame.len() as u32;
        self.frame.truncate(MAX_PACKET as usize);
        frame.data = &self.frame;
        frame.original_len = whole.saturating_add(lost);
        frame.device = header.device;
        Ok(Some(frame))
    }

    /// Finds the next packet and counts it.
    fn find(&mut self) -> Result<Option<Found>, CaptureError> {
        if self.ended {
            return Ok(None);
        }
        let found = match self.format {
            Format::Pcap { big_endian, minor } => self.next_record(big_endian, minor),
            Format::PcapNg { .. } => self.next_block_with_packet(),
        };
        match &found {
            Ok(Some(found)) => {
                self.packets += 1;
                self.last_ns = found.timestamp_ns;
            }
            _ => self.ended = true,
        }
        found
    }

    fn open_pcap(&mut self) -> Result<(), CaptureError> {
        if self.fill(4, 20)? < 20 {
            return Err(self.truncated());
        }
        let (_, header) = pcap_parser::parse_pcap_header(&self.buffer)
            .map_err(|_| not_a_capture(&self.buffer))?;
        if header.version_major != 2 {
            return Err(CaptureError::UnsupportedFormat {
                what: format!(
                    "pcap version {}.{}",
                    header.version_major, header.version_minor
                ),
            });
        }
        self.format = Format::Pcap {
            big_endian: header.is_bigendian(),
            minor: header.version_minor,
        };
        let nanoseconds = header.is_nanosecond_precision();
        self.interfaces.push(Interface {
            index: 0,
            name: None,
            link_type: LinkType((header.network.0 & 0xffff) as u16),
            snap_len: header.snaplen,
            resolution: if nanoseconds {
                Resolution::NANOSECONDS
            } else {
                Resolution::MICROSECONDS
            },
        });
        Ok(())
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "a pcap file has the one interface that its header describes"
    )]
    fn next_record(&mut self, big_endian: bool, minor: u16) -> Result<Option<Found>, CaptureError> {
        match self.fill(0, 16)? {
            0 => return Ok(None),
            16 => {}
            _ => return Err(self.truncated()),
        }
        let mut captured = self.word(8, big_endian);
        let mut original = self.word(12, big_endian);
        // Files before version 2.3 have the two lengths the other way round, those of 2.3 either way.
        if minor < 3 || (minor == 3 && captured > original) {
            std::mem::swap(&mut captured, &mut original);
        }
        if captured > MAX_PACKET {
            return Err(CaptureError::Oversized {
                whole: self.packets,
                length: captured,
            });
        }
        if self.fill(16, captured as usize)? < captured as usize {
            return Err(self.truncated());
        }
        let seconds = u64::from(self.word(0, big_endian));
        let fraction = u64::from(self.word(4, big_endian));
        let unit = if self.interfaces[0].resolution == Resolution::NANOSECONDS {
            1
        } else {
            1_000
        };
        Ok(Some(Found {
            interface: 0,
            timestamp_ns: seconds * 1_000_000_000 + fraction * unit,
            data: 16..16 + captured as usize,
            original_len: original,
        }))
    }

    /// The first block is a section header, of which the type word has been read.
    fn open_pcapng(&mut self) -> Result<(), CaptureError> {
        if self.fill(4, 8)? < 8 {
            return Err(self.truncated());
        }
        self.section_header()
    }

    /// Reads the rest of a section header whose first 12 bytes are in the buffer.
    fn section_header(&mut self) -> Result<(), CaptureError> {
        let big_endian = match self.buffer.get(8..12) {
            Some([0x4d, 0x3c, 0x2b, 0x1a]) => false,
            Some([0x1a, 0x2b, 0x3c, 0x4d]) => true,
            _ if self.packets == 0 && self.interfaces.is_empty() => {
                return Err(not_a_capture(&self.buffer));
            }
            _ => return Err(self.malformed("a section header without a byte-order mark")),
        };
        self.rest_of_block(12, big_endian)?;
        let whole = self.packets;
        let (_, header) = pcap_parser::parse_sectionheaderblock(&self.buffer).map_err(|_| {
            CaptureError::Malformed {
                whole,
                what: "a section header that is too short".to_owned(),
            }
        })?;
        if header.major_version != 1 {
            return Err(CaptureError::UnsupportedFormat {
                what: format!(
                    "pcapng version {}.{}",
                    header.major_version, header.minor_version
                ),
            });
        }
        self.format = Format::PcapNg {
            big_endian,
            section: self.interfaces.len(),
        };
        Ok(())
    }

    fn next_block_with_packet(&mut self) -> Result<Option<Found>, CaptureError> {
        loop {
            match self.fill(0, 12)? {
                0 => return Ok(None),
                12 => {}
                _ => return Err(self.truncated()),
            }
            let Format::PcapNg {
                big_endian,
                section,
            } = self.format
            else {
                return Ok(None);
            };
            // The section header's type reads the same in both byte orders.
            let kind = self.word(0, big_endian);
            match kind {
                SECTION_HEADER => self.section_header()?,
                INTERFACE_DESCRIPTION => {
                    self.rest_of_block(12, big_endian)?;
                    self.interface_description(big_endian)?;
                }
                OBSOLETE_PACKET | SIMPLE_PACKET | ENHANCED_PACKET => {
                    self.rest_of_block(12, big_endian)?;
                    return self.packet_block(kind, big_endian, section).map(Some);
                }
                _ => self.skip_block(big_endian)?,
            }
        }
    }

    fn interface_description(&mut self, big_endian: bool) -> Result<(), CaptureError> {
        let Some(Block::InterfaceDescription(block)) = decode(&self.buffer, big_endian) else {
            return Err(self.malformed("an interface description that contradicts its length"));
        };
        let mut interface = Interface {
            index: u32::try_from(self.interfaces.len()).unwrap_or(u32::MAX),
            name: None,
            link_type: LinkType(block.linktype.0 as u16),
            snap_len: block.snaplen,
            resolution: Resolution::MICROSECONDS,
        };
        for option in &block.options {
            read_interface_option(&mut interface, option, big_endian);
        }
        self.interfaces.push(interface);
        Ok(())
    }

    fn packet_block(
        &self,
        kind: u32,
        big_endian: bool,
        section: usize,
    ) -> Result<Found, CaptureError> {
        let damaged = || self.malformed("a packet block that contradicts its length");
        let (local, units, captured, original, start) = match kind {
            OBSOLETE_PACKET => {
                // Type, length, interface and drop count in 16 bits each, then as the enhanced block.
                if self.buffer.len() < 32 {
                    return Err(damaged());
                }
                let ids = self.word(8, big_endian);
                let local = if big_endian { ids >> 16 } else { ids & 0xffff };
                let units = u64::from(self.word(12, big_endian)) << 32
                    | u64::from(self.word(16, big_endian));
                (
                    local,
                    Some(units),
                    self.word(20, big_endian),
                    self.word(24, big_endian),
                    28,
                )
            }
            ENHANCED_PACKET => {
                let Some(Block::EnhancedPacket(block)) = decode(&self.buffer, big_endian) else {
                    return Err(damaged());
                };
                let units = u64::from(block.ts_high) << 32 | u64::from(block.ts_low);
                (block.if_id, Some(units), block.caplen, block.origlen, 28)
            }
            _ => {
                let Some(Block::SimplePacket(block)) = decode(&self.buffer, big_endian) else {
                    return Err(damaged());
                };
                let snap = self
                    .interfaces
                    .get(section)
                    .map_or(0, |interface| interface.snap_len);
                let held = u32::try_from(block.raw_packet_data().len()).unwrap_or(u32::MAX);
                let kept = if snap == 0 {
                    block.origlen
                } else {
                    block.origlen.min(snap)
                };
                (0, None, kept.min(held), block.origlen, 12)
            }
        };
        if captured > MAX_PACKET {
            return Err(CaptureError::Oversized {
                whole: self.packets,
                length: captured,
            });
        }
        // The last four bytes are the block's length again.
        let end = start + captured as usize;
        if end + 4 > self.buffer.len() {
            return Err(damaged());
        }
        let index = section + local as usize;
        let interface = self.interfaces.get(index).ok_or_else(|| {
            self.malformed(&format!(
                "a packet of interface {local}, which the section does not describe"
            ))
        })?;
        Ok(Found {
            interface: index,
            timestamp_ns: units.map_or(self.last_ns, |units| {
                interface.resolution.nanoseconds(units)
            }),
            data: start..end,
            original_len: original,
        })
    }

    /// Reads on to the end of the block whose first `have` bytes are in the buffer.
    fn rest_of_block(&mut self, have: usize, big_endian: bool) -> Result<(), CaptureError> {
        let length = self.block_length(big_endian)?;
        if length > MAX_BLOCK {
            return Err(CaptureError::Oversized {
                whole: self.packets,
                length,
            });
        }
        let rest = length as usize - have;
        if self.fill(have, rest)? < rest {
            return Err(self.truncated());
        }
        if self.word(length as usize - 4, big_endian) != length {
            return Err(self.malformed("a block whose two lengths differ"));
        }
        Ok(())
    }

    fn skip_block(&mut self, big_endian: bool) -> Result<(), CaptureError> {
        let rest = u64::from(self.block_length(big_endian)?) - 12;
        let skipped = std::io::copy(&mut self.input.by_ref().take(rest), &mut std::io::sink())?;
        if skipped < rest {
            return Err(self.truncated());
        }
        Ok(())
    }

    fn block_length(&self, big_endian: bool) -> Result<u32, CaptureError> {
        let length = self.word(4, big_endian);
        if length < 12 || !length.is_multiple_of(4) {
            return Err(self.malformed(&format!(
                "a block of {length} bytes, not a multiple of 4 from 12 on"
            )));
        }
        Ok(length)
    }

    /// Cuts the buffer to `keep` bytes and reads up to `want` more; returns how many came.
    fn fill(&mut self, keep: usize, want: usize) -> Result<usize, CaptureError> {
        self.buffer.truncate(keep);
        Ok(self
            .input
            .by_ref()
            .take(want as u64)
            .read_to_end(&mut self.buffer)?)
    }

    fn word(&self, at: usize, big_endian: bool) -> u32 {
        let bytes = self
            .buffer
            .get(at..)
            .and_then(|tail| tail.first_chunk::<4>())
            .copied()
            .unwrap_or_default();
        if big_endian {
            u32::from_be_bytes(bytes)
        } else {
            u32::from_le_bytes(bytes)
        }
    }

    fn truncated(&self) -> CaptureError {
        CaptureError::Truncated {
            whole: self.packets,
        }
    }

    fn malformed(&self, what: &str) -> CaptureError {
        CaptureError::Malformed {
            whole: self.packets,
            what: what.to_owned(),
        }
    }
}

fn decode(block: &[u8], big_endian: bool) -> Option<Block<'_>> {
    let decoded = if big_endian {
        pcap_parser::parse_block_be(block)
    } else {
        pcap_parser::parse_block_le(block)
    };
    decoded.ok().map(|(_, block)| block)
}

fn read_interface_option(interface: &mut Interface, option: &PcapNGOption<'_>, big_endian: bool) {
    let Ok(value) = option.as_bytes() else {
        return;
    };
    match (option.code, value) {
        (OptionCode::IfName, _) => {
            let name = String::from_utf8_lossy(value);
            interface.name = Some(name.trim_end_matches('\0').to_owned());
        }
        (OptionCode::IfTsresol, &[exponent]) => interface.resolution.exponent = exponent,
        (OptionCode::IfTsoffset, &[a, b, c, d, e, f, g, h]) => {
            let bytes = [a, b, c, d, e, f, g, h];
            interface.resolution.offset = if big_endian {
                i64::from_be_bytes(bytes)
            } else {
                i64::from_le_bytes(bytes)
            };
        }
        _ => {}
    }
}

/// What is cut off before the first record is cut in the file header.
fn in_header(error: CaptureError) -> CaptureError {
    match error {
        CaptureError::Truncated { .. } => CaptureError::TruncatedHeader,
        other => other,
    }
}

fn not_a_capture(start: &[u8]) -> CaptureError {
    let hint = match start {
        [] => "; the file is empty",
        [0x1f, 0x8b, ..] => "; it is compressed: decompress it with gunzip",
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "; it is compressed: decompress it with zstd -d",
        [0xfd, b'7', b'z', b'X', ..] => "; it is compressed: decompress it with xz -d",
        _ => "",
    };
    let start = if start.is_empty() {
        "nothing".to_owned()
    } else {
        start
            .iter()
            .take(4)
            .map(|byte| format!("{byte:02x}"))
            .collect()
    };
    CaptureError::NotACapture { start, hint }
}

/// The variants of pcap whose record headers have grown.
fn variant(magic: [u8; 4]) -> Option<CaptureError> {
    let what = match u32::from_be_bytes(magic) {
        0xa1b2_cd34 | 0x34cd_b2a1 => {
            "the \"modified\" pcap format of patched libpcap versions (magic a1b2cd34)"
        }
        0xa1b2_34cd | 0xcd34_b2a1 => "the Navtel pcap format (magic a1b234cd)",
        0xa1e2_cb12 | 0x12cb_e2a1 => "the IXIA pcap format (magic a1e2cb12)",
        _ => return None,
    };
    Some(CaptureError::UnsupportedFormat {
        what: what.to_owned(),
    })
}
