//! Where frames come from: capture files, and interfaces. A source fills batches; it decodes nothing.

mod batch;
mod bypass;
mod file;
pub mod filter;
mod framer;
#[cfg(feature = "live")]
mod inline;
#[cfg(feature = "libpcap")]
mod libpcap;
mod link;
#[cfg(feature = "live")]
mod live;
#[cfg(feature = "live")]
mod ring_group;
#[cfg(feature = "live")]
mod rings;
#[cfg(feature = "live")]
mod shed;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use batch::{Batch, CHUNK, Frame};
pub use bypass::{Bypass, KeptAway};
pub use file::{FileOptions, Files};
pub use framer::{Framer, Step};
#[cfg(feature = "live")]
pub use inline::{Inline, InlineOptions, detach};
#[cfg(feature = "libpcap")]
pub use libpcap::Libpcap;
#[cfg(feature = "live")]
pub use live::{BypassMode, Interfaces, LiveOptions};
#[cfg(feature = "live")]
pub use ring_group::RingGroup;
#[cfg(feature = "live")]
pub use rings::Rings;
use weir_packet::pcap::CaptureError;

/// What a call to [`Source::fill`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filled {
    /// Frames.
    Frames,
    /// Nothing now; there may be more later.
    Idle,
    /// Nothing, ever.
    End,
}

/// What a source has seen, and lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceCounts {
    /// Frames delivered.
    pub frames: u64,
    /// Their bytes on the wire.
    pub wire_bytes: u64,
    /// Bytes read from files.
    pub bytes_read: u64,
    /// Frames of which the capture kept only the start.
    pub cut: u64,
    /// Files begun.
    pub files: u64,
    /// Files that could not be read to their end.
    pub broken_files: u64,
    /// Files of directories that are no captures; they are left out.
    pub skipped_files: u64,
    /// Live: frames that the kernel had for the sensor by its own count, lost ones included; none where it does not count them so.
    pub kernel_packets: Option<u64>,
    /// Live: frames that the kernel lost because its ring was full; they were not delivered.
    pub kernel_drops: u64,
    /// Live: frames that were in the ring of an interface when it was removed.
    pub removed: u64,
    /// Live: what was kept away of flows that are let go.
    pub bypass: BypassCounts,
    /// Live, with a ring for each worker: frames that another worker was to get, and that its queue had no room for.
    pub not_handed_over: u64,
    /// Live: what was left out while the sensor could not keep up.
    pub shed: ShedCounts,
    /// Live: times that a link was away.
    pub gaps: u64,
    /// Inline: what became of the frames.
    pub inline: Option<InlineCounts>,
}

impl SourceCounts {
    /// Those of two sources together, of which at most one is inline.
    pub fn plus(self, other: &SourceCounts) -> SourceCounts {
        let both = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (Some(a), Some(b)) => Some(a + b),
            _ => a.or(b),
        };
        SourceCounts {
            frames: self.frames + other.frames,
            wire_bytes: self.wire_bytes + other.wire_bytes,
            bytes_read: self.bytes_read + other.bytes_read,
            cut: self.cut + other.cut,
            files: self.files + other.files,
            broken_files: self.broken_files + other.broken_files,
            skipped_files: self.skipped_files + other.skipped_files,
            kernel_packets: both(self.kernel_packets, other.kernel_packets),
            kernel_drops: self.kernel_drops + other.kernel_drops,
            removed: self.removed + other.removed,
            bypass: BypassCounts {
                packets: self.bypass.packets + other.bypass.packets,
                bytes: self.bypass.bytes + other.bypass.bytes,
                late: self.bypass.late + other.bypass.late,
                refused: self.bypass.refused + other.bypass.refused,
            },
            not_handed_over: self.not_handed_over + other.not_handed_over,
            shed: ShedCounts {
                packets: self.shed.packets + other.shed.packets,
                bytes: self.shed.bytes + other.shed.bytes,
                flows: self.shed.flows + other.shed.flows,
            },
            gaps: self.gaps + other.gaps,
            inline: self.inline.or(other.inline),
        }
    }

    /// Frames that the kernel had for the sensor and that are neither read nor named as lost: those that wait; 0 of a run that is over.
    pub fn unaccounted(&self) -> i128 {
        let kept_away = self.bypass.packets;
        let left_out = self.shed.packets;
        let found = [
            self.frames,
            self.kernel_drops,
            self.removed,
            kept_away,
            left_out,
        ];
        let found: i128 = found.into_iter().map(i128::from).sum();
        self.kernel_packets.map_or(0, |all| i128::from(all) - found)
    }
}

/// What the kernel kept away of flows that are let go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BypassCounts {
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Of those: packets that came as their flow ended, and are in no record of it.
    pub late: u64,
    /// Flows that were read on, as there was no room, or the kernel refused.
    pub refused: u64,
}

/// What the kernel left out of flows while the sensor could not keep up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShedCounts {
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Flows, each as often as it was left out.
    pub flows: u64,
}

/// What became of the frames that two joined interfaces received: each is in one of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InlineCounts {
    /// Received by the two interfaces, as the program at their receive side counts.
    pub received: u64,
    /// Inspected and sent by the other interface.
    pub forwarded: u64,
    /// Inspected and dropped.
    pub dropped: u64,
    /// Inspected, and the other interface did not take them: it is down, its queue is full, or they are longer than its MTU.
    pub failed: u64,
    /// Lost between the program and the sensor.
    pub overrun: u64,
    /// Passed uninspected, as the sensor was stopped or dead.
    pub passed_away: u64,
    /// Passed uninspected, as the sensor was late.
    pub passed_late: u64,
    /// Dropped uninspected, as the sensor was stopped or dead.
    pub dropped_away: u64,
    /// Dropped uninspected, as the sensor was late.
    pub dropped_late: u64,
    /// Frames sent that answer rejected ones; nobody sent them to an interface.
    pub answers: u64,
    /// What became of frames between the sensor before and this one, and of those that were lost with it; none if there was none.
    pub before: Option<Uninspected>,
}

/// What became of frames while no sensor stood between two joined interfaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uninspected {
    /// They passed.
    pub passed: u64,
    /// They were dropped.
    pub dropped: u64,
    /// They waited for the sensor that ended, and were lost with it.
    pub lost: u64,
}

impl InlineCounts {
    /// All of them by the names that records have.
    pub fn named(&self) -> Vec<(&'static str, u64)> {
        let mut all = vec![
            ("received", self.received),
            ("forwarded", self.forwarded),
            ("dropped", self.dropped),
            ("send_failed", self.failed),
            ("overrun", self.overrun),
            ("passed_away", self.passed_away),
            ("passed_late", self.passed_late),
            ("dropped_away", self.dropped_away),
            ("dropped_late", self.dropped_late),
            ("answers", self.answers),
        ];
        if let Some(before) = self.before {
            all.extend([
                ("before.passed", before.passed),
                ("before.dropped", before.dropped),
                ("before.lost", before.lost),
            ]);
        }
        all
    }

    /// What is missing; 0 of a run that is over.
    pub fn unaccounted(&self) -> i128 {
        let ends = [
            self.forwarded,
            self.dropped,
            self.failed,
            self.overrun,
            self.passed_away,
            self.passed_late,
            self.dropped_away,
            self.dropped_late,
        ];
        i128::from(self.received) - ends.iter().map(|n| i128::from(*n)).sum::<i128>()
    }
}

/// A frame that answers one that was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Place of the rejected frame in its batch.
    pub at: u32,
    /// Whether it goes to who sent that one; else to who was to receive it.
    pub back: bool,
    /// Its bytes, from the Ethernet header on, checksums filled in.
    pub bytes: Vec<u8>,
}

/// What happened to an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Its link is away; the sensor waits for it.
    Down {
        /// Which.
        interface: String,
        /// What is the matter.
        why: String,
    },
    /// It was away for a time, and is back; or the run ends before it is.
    Gap(Gap),
    /// The kernel keeps no packets away: flows that are let go are read.
    NoBypass {
        /// Why.
        why: String,
    },
}

/// A time in which an interface was not listened to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Which.
    pub interface: String,
    /// What was the matter.
    pub why: String,
    /// From when, nanoseconds since 1970.
    pub from: u64,
    /// Until when.
    pub to: u64,
    /// Whether it is back.
    pub back: bool,
}

/// Why there are no frames.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// A file or directory cannot be read.
    #[error("{}: {error}", path.display())]
    Open {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// A directory is empty.
    #[error("{}: no capture in this directory; --recursive looks into the directories below it", path.display())]
    NoFiles {
        /// Which.
        path: PathBuf,
    },
    /// An interface cannot be listened to.
    #[error("{interface}: {message}")]
    Interface {
        /// Which.
        interface: String,
        /// Why.
        message: String,
    },
}

/// Where frames come from.
pub trait Source: Send {
    /// Puts the next frames into an empty batch.
    ///
    /// # Errors
    /// Nothing more can be read, of any file or interface. What is wrong with one file of several is a problem, not an error.
    fn fill(&mut self, batch: &mut Batch) -> Result<Filled, SourceError>;

    /// What was seen and lost so far.
    fn counts(&mut self) -> SourceCounts;

    /// Files that could not be read, or not to their end; each is told once.
    fn problems(&mut self) -> Vec<(PathBuf, CaptureError)> {
        Vec::new()
    }

    /// Files of directories that are no captures; each is told once.
    fn skipped(&mut self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Bytes done and to do, where that is known.
    fn progress(&self) -> Option<(u64, u64)> {
        None
    }

    /// Whether the end is not known: frames come as time goes by.
    fn is_live(&self) -> bool;

    /// What happened to interfaces since this was asked last. `ends`: it is not asked again.
    fn notices(&mut self, _ends: bool) -> Vec<Notice> {
        Vec::new()
    }

    /// Takes no more frames in. Returns whether some that it has are still to be read.
    ///
    /// # Errors
    /// The kernel refuses.
    fn close(&mut self) -> Result<bool, SourceError> {
        Ok(false)
    }

    /// What was decided of the frames of a batch: those that are dropped, by their places, rising; all others go on where the source stands between two interfaces.
    ///
    /// # Errors
    /// An interface is gone.
    fn decided(
        &mut self,
        _batch: &Batch,
        _dropped: &[u32],
        _answers: &[Answer],
    ) -> Result<(), SourceError> {
        Ok(())
    }

    /// The sources of its workers, if it has one for each: what a frame is about decides which of them it comes to, as a rule by the remainder of its slice's number.
    fn rings(&mut self) -> Vec<&mut dyn Source> {
        Vec::new()
    }

    /// What keeps packets of flows away that are let go, if there is something.
    fn bypass(&self) -> Option<Arc<dyn Bypass>> {
        None
    }

    /// Whether it says of each frame what is known of its checksums.
    fn knows_sums(&self) -> bool {
        false
    }

    /// From now on no batch has frames of several captures, and each says of which it has.
    fn keep_apart(&mut self) {}

    /// The file that is being read.
    fn name(&self) -> Option<&Path> {
        None
    }
}
