//! An interface through libpcap, for what packet sockets do not give: `any`, the monitor mode of radio interfaces, USB and whatever else the system's library has a module for.
//!
//! Copied once more than the mapped rings of `live`, and the library must be there at run time: a feature, so that the program without it needs no library. The library itself puts back VLAN
//! tags that the device takes out.

use std::os::fd::AsFd;

use pcap::{Active, Capture, Error};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::batch::Batch;
use super::live::LiveOptions;
use super::{Filled, Source, SourceCounts, SourceError};

/// An interface of the current network namespace, as libpcap opens it.
pub struct Libpcap {
    capture: Capture<Active>,
    interface: String,
    /// As the library numbers it, which is as capture files do but for raw IP (12), known here as well.
    link: u16,
    options: LiveOptions,
    counts: SourceCounts,
    /// Of the library's last report, whose counters wrap.
    dropped: u32,
}

/// Packets of one batch at most: one that waits for the others is looked at late.
const MOST: usize = 4096;
/// Bytes of a frame that are kept: all of them, also of frames that were put together by offloads.
const SNAPLEN: i32 = 256 << 10;
/// After so many milliseconds the kernel hands over what there is.
const RETIRE_MS: i32 = 10;

impl Libpcap {
    /// Begins to listen, to everything that comes in or leaves by it.
    ///
    /// # Errors
    /// No permission, no such interface, a link type that no file could name.
    pub fn open(interface: &str, options: LiveOptions) -> Result<Libpcap, SourceError> {
        let buffer = i32::try_from(options.ring).unwrap_or(i32::MAX);
        let opened = Capture::from_device(interface).and_then(|inactive| {
            inactive
                // The library refuses it for all interfaces together.
                .promisc(interface != "any")
                .snaplen(SNAPLEN)
                .buffer_size(buffer)
                .timeout(RETIRE_MS)
                .open()
        });
        // A reader that waits inside the library could not be told to stop.
        let capture = opened
            .and_then(Capture::setnonblock)
            .map_err(|e| failed(interface, &e))?;
        let datalink = capture.get_datalink();
        let link = u16::try_from(datalink.0).map_err(|_| SourceError::Interface {
            interface: interface.to_owned(),
            message: format!("its link type {} is not known", datalink.0),
        })?;
        Ok(Libpcap {
            capture,
            interface: interface.to_owned(),
            link,
            options,
            counts: SourceCounts::default(),
            dropped: 0,
        })
    }

    /// Takes what is there; returns how many packets.
    fn take(&mut self, batch: &mut Batch) -> Result<usize, SourceError> {
        let mut taken = 0;
        while taken < MOST && !batch.is_full() {
            match self.capture.next_packet() {
                Ok(packet) => {
                    // Microseconds: not every module of the library has finer times, and which it took cannot be asked.
                    let ts = packet.header.ts;
                    let time = u64::try_from(ts.tv_sec).unwrap_or(0) * 1_000_000_000
                        + u64::try_from(ts.tv_usec).unwrap_or(0) * 1_000;
                    let wire = packet.header.len;
                    batch.push(time, &[packet.data], wire, self.link);
                    taken += 1;
                    self.counts.frames += 1;
                    self.counts.wire_bytes += u64::from(wire);
                    self.counts.cut += u64::from(packet.header.caplen < wire);
                }
                Err(Error::TimeoutExpired) => break,
                Err(e) => return Err(failed(&self.interface, &e)),
            }
        }
        Ok(taken)
    }
}

fn failed(interface: &str, error: &Error) -> SourceError {
    let message = match error {
        Error::PcapError(text) => text.clone(),
        other => other.to_string(),
    };
    SourceError::Interface {
        interface: interface.to_owned(),
        message: format!("libpcap: {message}"),
    }
}

impl Source for Libpcap {
    fn fill(&mut self, batch: &mut Batch) -> Result<Filled, SourceError> {
        if self.take(batch)? > 0 {
            return Ok(Filled::Frames);
        }
        // A time that does not fit is for ever.
        let wait = Timespec::try_from(self.options.wait).ok();
        let mut ready = [PollFd::from_borrowed_fd(
            self.capture.as_fd(),
            PollFlags::IN,
        )];
        match poll(&mut ready, wait.as_ref()) {
            // A signal: the caller looks whether it is to stop.
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => {
                return Err(SourceError::Interface {
                    interface: self.interface.clone(),
                    message: e.to_string(),
                });
            }
        }
        Ok(match self.take(batch)? {
            0 => Filled::Idle,
            _ => Filled::Frames,
        })
    }

    fn counts(&mut self) -> SourceCounts {
        if let Ok(stat) = self.capture.stats() {
            let new = stat.dropped.wrapping_sub(self.dropped);
            self.dropped = stat.dropped;
            self.counts.kernel_drops += u64::from(new);
        }
        self.counts
    }

    fn is_live(&self) -> bool {
        true
    }
}
