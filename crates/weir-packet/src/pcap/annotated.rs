//! The writer of pcapng: several interfaces, and packets with a comment, a verdict and a receive queue.
//!
//! One section, little-endian, nanoseconds, link type Ethernet (draft-ietf-opsawg-pcapng). Readable while it is written: every
//! block stands by itself. Numbers of interfaces are given in the order in which they were added.

use std::io::Write;

use super::{LinkType, MAX_PACKET};

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const INTERFACE_STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;

const OPT_COMMENT: u16 = 1;
const SHB_USERAPPL: u16 = 4;
const IF_NAME: u16 = 2;
const IF_DESCRIPTION: u16 = 3;
const IF_TSRESOL: u16 = 9;
const EPB_PACKETID: u16 = 5;
const EPB_QUEUE: u16 = 6;
const EPB_VERDICT: u16 = 7;
/// First byte of `epb_verdict`: what follows is what an XDP program returned, 64 bits.
const VERDICT_XDP: u8 = 2;
const ISB_IFRECV: u16 = 4;
const ISB_IFDROP: u16 = 5;
const ISB_FILTERACCEPT: u16 = 6;
const ISB_OSDROP: u16 = 7;

/// Writes an annotated capture. The output should be buffered.
#[derive(Debug)]
pub struct Annotated<W> {
    output: W,
    interfaces: u32,
    block: Vec<u8>,
}

/// What is said about a packet beside its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Note<'a> {
    /// A line for people.
    pub comment: Option<&'a str>,
    /// What an XDP program returned.
    pub xdp_verdict: Option<u64>,
    /// Receive queue.
    pub queue: Option<u32>,
    /// The same for every appearance of one packet at several interfaces.
    pub packet: Option<u64>,
}

/// What was counted at an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets that came in.
    pub received: u64,
    /// Packets that passed the filter.
    pub accepted: u64,
    /// Packets that passed it and are not in the capture.
    pub lost: u64,
}

impl<W: Write> Annotated<W> {
    /// Writes the section header. `application`: what writes it.
    ///
    /// # Errors
    /// Writing failed.
    pub fn new(output: W, application: &str) -> std::io::Result<Self> {
        let mut writer = Annotated {
            output,
            interfaces: 0,
            block: Vec::new(),
        };
        writer.begin(SECTION_HEADER);
        writer
            .block
            .extend_from_slice(&0x1a2b_3c4d_u32.to_le_bytes());
        writer.block.extend_from_slice(&1_u16.to_le_bytes());
        writer.block.extend_from_slice(&0_u16.to_le_bytes());
        // Length of the section: not known.
        writer.block.extend_from_slice(&u64::MAX.to_le_bytes());
        writer.option(SHB_USERAPPL, application.as_bytes());
        writer.end()?;
        Ok(writer)
    }

    /// Adds an interface and returns its number. `snap_len`: bytes kept of each packet, 0 for all.
    ///
    /// # Errors
    /// Writing failed.
    pub fn interface(
        &mut self,
        name: &str,
        description: &str,
        snap_len: u32,
    ) -> std::io::Result<u32> {
        self.begin(INTERFACE_DESCRIPTION);
        self.block
            .extend_from_slice(&LinkType::ETHERNET.0.to_le_bytes());
        self.block.extend_from_slice(&[0; 2]);
        self.block.extend_from_slice(&snap_len.to_le_bytes());
        self.option(IF_NAME, name.as_bytes());
        self.option(IF_DESCRIPTION, description.as_bytes());
        self.option(IF_TSRESOL, &[9]);
        self.end()?;
        self.interfaces += 1;
        Ok(self.interfaces - 1)
    }

    /// Appends a frame. `original_len` is its length on the wire, at least that of the frame.
    ///
    /// # Errors
    /// Writing failed, there is no such interface, or the frame is longer than [`MAX_PACKET`].
    pub fn write(
        &mut self,
        interface: u32,
        timestamp_ns: u64,
        frame: &[u8],
        original_len: u32,
        note: Note<'_>,
    ) -> std::io::Result<()> {
        let wrong = |what: String| std::io::Error::new(std::io::ErrorKind::InvalidInput, what);
        if interface >= self.interfaces {
            return Err(wrong(format!("the capture has no interface {interface}")));
        }
        let captured = u32::try_from(frame.len())
            .ok()
            .filter(|&length| length <= MAX_PACKET)
            .ok_or_else(|| {
                wrong(format!(
                    "a frame of {} bytes is longer than a capture holds ({MAX_PACKET})",
                    frame.len()
                ))
            })?;
        self.begin(ENHANCED_PACKET);
        for word in [
            interface,
            (timestamp_ns >> 32) as u32,
            timestamp_ns as u32,
            captured,
            original_len.max(captured),
        ] {
            self.block.extend_from_slice(&word.to_le_bytes());
        }
        self.block.extend_from_slice(frame);
        self.pad();
        if let Some(comment) = note.comment {
            self.option(OPT_COMMENT, comment.as_bytes());
        }
        if let Some(packet) = note.packet {
            self.option(EPB_PACKETID, &packet.to_le_bytes());
        }
        if let Some(queue) = note.queue {
            self.option(EPB_QUEUE, &queue.to_le_bytes());
        }
        if let Some(verdict) = note.xdp_verdict {
            let mut value = [VERDICT_XDP; 9];
            value[1..].copy_from_slice(&verdict.to_le_bytes());
            self.option(EPB_VERDICT, &value);
        }
        self.end()
    }

    /// Says what was counted at an interface up to a time; the last such block of an interface holds.
    ///
    /// # Errors
    /// Writing failed.
    pub fn statistics(
        &mut self,
        interface: u32,
        timestamp_ns: u64,
        counted: Statistics,
    ) -> std::io::Result<()> {
        self.begin(INTERFACE_STATISTICS);
        for word in [interface, (timestamp_ns >> 32) as u32, timestamp_ns as u32] {
            self.block.extend_from_slice(&word.to_le_bytes());
        }
        self.option(ISB_IFRECV, &counted.received.to_le_bytes());
        self.option(ISB_IFDROP, &0_u64.to_le_bytes());
        self.option(ISB_FILTERACCEPT, &counted.accepted.to_le_bytes());
        self.option(ISB_OSDROP, &counted.lost.to_le_bytes());
        self.end()
    }

    /// Hands everything on to whoever reads along.
    ///
    /// # Errors
    /// Writing failed.
    pub fn flush(&mut self) -> std::io::Result<()> {
        self.output.flush()
    }

    /// Flushes and gives the output back.
    ///
    /// # Errors
    /// Flushing failed.
    pub fn finish(mut self) -> std::io::Result<W> {
        self.output.flush()?;
        Ok(self.output)
    }

    fn begin(&mut self, kind: u32) {
        self.block.clear();
        self.block.extend_from_slice(&kind.to_le_bytes());
        // Its length, when it is known.
        self.block.extend_from_slice(&[0; 4]);
    }

    /// An option; a value that is too long for one is cut.
    fn option(&mut self, code: u16, value: &[u8]) {
        let value = value.get(..usize::from(u16::MAX)).unwrap_or(value);
        self.block.extend_from_slice(&code.to_le_bytes());
        self.block
            .extend_from_slice(&(value.len() as u16).to_le_bytes());
        self.block.extend_from_slice(value);
        self.pad();
    }

    fn pad(&mut self) {
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }

    /// Ends the options, and the block.
    #[expect(
        clippy::indexing_slicing,
        reason = "every block begins with its kind and room for its length"
    )]
    fn end(&mut self) -> std::io::Result<()> {
        self.block.extend_from_slice(&[0; 4]);
        let length = (self.block.len() + 4) as u32;
        self.block[4..8].copy_from_slice(&length.to_le_bytes());
        self.block.extend_from_slice(&length.to_le_bytes());
        self.output.write_all(&self.block)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Capture;
    use super::*;

    fn written() -> Vec<u8> {
        let mut writer = Annotated::new(Vec::new(), "a test").expect("memory");
        let wan = writer
            .interface("wan", "as they came in", 0)
            .expect("memory");
        let shield = writer
            .interface("shield", "behind shield", 96)
            .expect("memory");
        let note = Note {
            comment: Some("wan > shield: drop denied"),
            xdp_verdict: Some(1),
            queue: Some(3),
            packet: Some(7),
        };
        writer
            .write(wan, 1 << 40, &[1; 61], 61, Note::default())
            .expect("memory");
        writer
            .write(shield, (1 << 40) + 1, &[2; 96], 1500, note)
            .expect("memory");
        writer
            .statistics(
                wan,
                1 << 41,
                Statistics {
                    received: 9,
                    accepted: 2,
                    lost: 1,
                },
            )
            .expect("memory");
        writer.finish().expect("memory")
    }

    #[test]
    fn what_was_written_is_read() {
        let bytes = written();
        let mut capture = Capture::open(&bytes[..]).expect("a capture");
        let first = capture.next_packet().expect("whole").expect("one");
        assert_eq!(
            (
                first.timestamp_ns,
                first.data,
                first.interface.name.as_deref()
            ),
            (1 << 40, &[1; 61][..], Some("wan"))
        );
        let second = capture.next_packet().expect("whole").expect("two");
        assert_eq!(
            (
                second.original_len,
                second.data.len(),
                second.interface.index
            ),
            (1500, 96, 1)
        );
        assert!(capture.next_packet().expect("whole").is_none());
    }

    /// Every block ends with its length, so that it can be read from behind.
    #[test]
    fn blocks_and_options_are_where_the_format_has_them() {
        let bytes = written();
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let (mut at, mut kinds) = (0, Vec::new());
        while at < bytes.len() {
            let length = word(at + 4) as usize;
            assert_eq!(length % 4, 0);
            assert_eq!(word(at + length - 4) as usize, length);
            kinds.push(word(at));
            at += length;
        }
        assert_eq!(kinds, [SECTION_HEADER, 1, 1, 6, 6, 5]);
        let comment = b"wan > shield: drop denied";
        let found = bytes
            .windows(comment.len())
            .position(|w| w == comment)
            .expect("there");
        assert_eq!(bytes[found - 4..found], [1, 0, comment.len() as u8, 0]);
        let verdict = [7, 0, 9, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0];
        assert!(bytes.windows(verdict.len()).any(|w| w == verdict));
    }

    #[test]
    fn a_packet_of_an_interface_that_is_not_there_is_refused() {
        let mut writer = Annotated::new(Vec::new(), "a test").expect("memory");
        let error = writer
            .write(0, 0, &[0; 60], 60, Note::default())
            .expect_err("none was added");
        assert_eq!(error.to_string(), "the capture has no interface 0");
    }
}
