//! An interface as a source: a packet socket with mapped rings, whose packets carry the kernel's time and get back the VLAN tag that the device took out.

use std::time::Duration;

use weir_xsk::{PacketConfig, PacketPort, Port, Wait};

use super::batch::Batch;
use super::{Filled, Source, SourceCounts, SourceError};

/// How an interface is listened to.
#[derive(Clone, Copy, Debug)]
pub struct LiveOptions {
    /// Bytes of the ring that the kernel writes into.
    pub ring: usize,
    /// How long a call waits for packets.
    pub wait: Duration,
}

impl Default for LiveOptions {
    fn default() -> Self {
        LiveOptions {
            ring: 64 << 20,
            wait: Duration::from_millis(100),
        }
    }
}

/// An interface of the current network namespace.
#[derive(Debug)]
pub struct Live {
    port: PacketPort,
    options: LiveOptions,
    counts: SourceCounts,
}

/// Packets of one batch at most: one that waits for the others is looked at late.
const MOST: usize = 4096;
/// Bytes of a block of the ring.
const BLOCK: u32 = 1 << 18;

impl Live {
    /// Begins to listen, to everything that comes in or leaves by it.
    ///
    /// # Errors
    /// No permission, no such interface, no memory for the ring.
    pub fn open(interface: &str, options: LiveOptions) -> Result<Live, SourceError> {
        let config = PacketConfig {
            block_size: BLOCK,
            blocks: u32::try_from(options.ring / BLOCK as usize)
                .unwrap_or(u32::MAX)
                .clamp(2, 1 << 14),
            retire_ms: 10,
            slots: 0,
            // A host that looks at itself sees both ends of its connections.
            outgoing: true,
            ..PacketConfig::default()
        };
        let port = PacketPort::open(interface, &config).map_err(|e| failed(interface, &e))?;
        Ok(Live {
            port,
            options,
            counts: SourceCounts::default(),
        })
    }
}

fn failed(interface: &str, error: &weir_xsk::XskError) -> SourceError {
    SourceError::Interface {
        interface: interface.to_owned(),
        message: error.to_string(),
    }
}

impl Source for Live {
    fn fill(&mut self, batch: &mut Batch) -> Result<Filled, SourceError> {
        let counts = &mut self.counts;
        let mut take = |seen: weir_xsk::Seen<'_>| {
            let wire = u32::try_from(seen.len).unwrap_or(u32::MAX);
            let tag = seen.tag.map(|(tpid, tci)| {
                let (a, b) = (tpid.to_be_bytes(), tci.to_be_bytes());
                [a[0], a[1], b[0], b[1]]
            });
            // A tag stands behind the two addresses.
            match (tag, seen.bytes.split_at_checked(12)) {
                (Some(tag), Some((addresses, rest))) => {
                    batch.push(
                        seen.time,
                        &[addresses, &tag, rest],
                        wire.saturating_add(4),
                        1,
                    );
                }
                _ => {
                    batch.push(seen.time, &[seen.bytes], wire, 1);
                }
            }
            counts.frames += 1;
            counts.wire_bytes += u64::from(wire);
            counts.cut += u64::from((seen.bytes.len() as u64) < u64::from(wire));
        };
        if self.port.receive_seen(MOST, &mut take) == 0 {
            self.port
                .wait(Wait::Poll, self.options.wait)
                .map_err(|e| failed(self.port.name(), &e))?;
            if self.port.receive_seen(MOST, &mut take) == 0 {
                return Ok(Filled::Idle);
            }
        }
        Ok(Filled::Frames)
    }

    fn counts(&mut self) -> SourceCounts {
        if let Ok(losses) = self.port.losses() {
            self.counts.kernel_drops = losses.ring_drops;
        }
        self.counts
    }

    fn is_live(&self) -> bool {
        true
    }
}
