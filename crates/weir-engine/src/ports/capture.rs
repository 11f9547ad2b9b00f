//! A port that reads a capture and writes one.

use std::fs::File;
use std::io::{self, BufReader, BufWriter};
use std::sync::{Mutex, PoisonError};

use weir_packet::pcap::{Capture, Writer};

use super::{Arrival, Look, Port};

/// Frames read at a time, so that workers take turns.
const BATCH: usize = 32;

/// A capture as a port: its frames arrive as fast as they are taken, in their order; what is sent or passes is written.
pub struct CapturePort {
    name: String,
    ifindex: u32,
    from: Mutex<Capture<BufReader<File>>>,
    to: Option<Mutex<Writer<BufWriter<File>>>>,
}

impl CapturePort {
    /// A port that reads `from` and, if there is one, writes to `to`.
    pub fn new(
        name: &str,
        ifindex: u32,
        from: Capture<BufReader<File>>,
        to: Option<Writer<BufWriter<File>>>,
    ) -> Self {
        CapturePort {
            name: name.to_owned(),
            ifindex,
            from: Mutex::new(from),
            to: to.map(Mutex::new),
        }
    }

    /// Completes the written capture.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(self) -> io::Result<()> {
        if let Some(to) = self.to {
            let writer = to.into_inner().unwrap_or_else(PoisonError::into_inner);
            writer.finish()?;
        }
        Ok(())
    }
}

impl Port for CapturePort {
    fn name(&self) -> &str {
        &self.name
    }

    fn ifindex(&self) -> u32 {
        self.ifindex
    }

    fn receive(&self, into: &mut Vec<Arrival>) -> io::Result<Look> {
        let mut from = self.from.lock().unwrap_or_else(PoisonError::into_inner);
        for n in 0..BATCH {
            let packet = from.next_frame().map_err(io::Error::other)?;
            let Some(packet) = packet else {
                return Ok(match n {
                    0 => Look::Over,
                    n => Look::Frames(n),
                });
            };
            into.push(Arrival {
                frame: packet.data.to_vec(),
                now_ns: packet.timestamp_ns,
            });
        }
        Ok(Look::Frames(BATCH))
    }

    fn send(&self, frame: &[u8], now_ns: u64) -> io::Result<()> {
        let Some(to) = &self.to else {
            return Ok(());
        };
        let mut to = to.lock().unwrap_or_else(PoisonError::into_inner);
        to.write(now_ns, frame, frame.len() as u32)
    }

    fn pass(&self, frame: &[u8], now_ns: u64) -> io::Result<()> {
        self.send(frame, now_ns)
    }
}
