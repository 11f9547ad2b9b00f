//! The writer: little-endian pcap with nanosecond timestamps, link type Ethernet.

use std::io::Write;

use super::{LinkType, MAX_PACKET};

/// Writes a capture. The output should be buffered.
#[derive(Debug)]
pub struct Writer<W> {
    output: W,
}

impl<W: Write> Writer<W> {
    /// Writes the file header.
    ///
    /// # Errors
    /// Writing failed.
    pub fn new(mut output: W) -> std::io::Result<Self> {
        let mut header = Vec::with_capacity(24);
        header.extend_from_slice(&0xa1b2_3c4d_u32.to_le_bytes());
        header.extend_from_slice(&2_u16.to_le_bytes());
        header.extend_from_slice(&4_u16.to_le_bytes());
        header.extend_from_slice(&[0; 8]);
        header.extend_from_slice(&MAX_PACKET.to_le_bytes());
        header.extend_from_slice(&u32::from(LinkType::ETHERNET.0).to_le_bytes());
        output.write_all(&header)?;
        Ok(Writer { output })
    }

    /// Appends a frame. `original_len` is its length on the wire, at least that of the frame; a time after 2106,
    /// when the format's seconds end, is written as its last second.
    ///
    /// # Errors
    /// Writing failed.
    pub fn write(
        &mut self,
        timestamp_ns: u64,
        frame: &[u8],
        original_len: u32,
    ) -> std::io::Result<()> {
        let seconds = u32::try_from(timestamp_ns / 1_000_000_000).unwrap_or(u32::MAX);
        let nanoseconds = (timestamp_ns % 1_000_000_000) as u32;
        let captured = u32::try_from(frame.len())
            .ok()
            .filter(|&length| length <= MAX_PACKET)
            .ok_or_else(|| {
                std::io::Error::new(
                    std::io::ErrorKind::InvalidInput,
                    format!(
                        "a frame of {} bytes is longer than a capture holds ({MAX_PACKET})",
                        frame.len()
                    ),
                )
            })?;
        for word in [seconds, nanoseconds, captured, original_len.max(captured)] {
            self.output.write_all(&word.to_le_bytes())?;
        }
        self.output.write_all(frame)
    }

    /// Flushes and gives the output back.
    ///
    /// # Errors
    /// Flushing failed.
    pub fn finish(mut self) -> std::io::Result<W> {
        self.output.flush()?;
        Ok(self.output)
    }
}
