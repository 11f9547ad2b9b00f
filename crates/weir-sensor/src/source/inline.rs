//! Two joined interfaces as a source: what one receives is read, and sent by the other unless it is dropped.
//!
//! Frames are read and sent in one order, so flows keep theirs. What the kernel knows of a frame (an unfinished checksum, the size of its segments) is kept beside the batch and goes out with
//! the frame. Batches are short: the first frame of one waits for the last.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use weir_xsk::{VnetHeader, Wire, WireConfig, XskError, wire};

use super::batch::Batch;
use super::{
    Answer, Filled, Gap, InlineCounts, Notice, Source, SourceCounts, SourceError, Uninspected,
};
use crate::decode::Sums;

/// How interfaces are joined.
#[derive(Clone, Copy, Debug)]
pub struct InlineOptions {
    /// What the sensor cannot take passes; else it is dropped.
    pub fail_open: bool,
    /// Frames that may wait for the sensor, of each interface.
    pub queue: u32,
    /// How long a call waits for frames.
    pub wait: Duration,
}

impl Default for InlineOptions {
    fn default() -> Self {
        InlineOptions {
            fail_open: false,
            queue: 1024,
            wait: Duration::from_millis(100),
        }
    }
}

/// Frames of a batch at most.
const MOST: usize = 64;
/// Longest frame with its header: one of 64 KiB that is to be cut into segments, and its tags.
const LONGEST: usize = 1 << 17;
/// How often links are looked at.
const LOOK: Duration = Duration::from_millis(500);

/// Two joined interfaces of the current network namespace.
#[derive(Debug)]
pub struct Inline {
    wire: Wire,
    options: InlineOptions,
    buffer: Vec<u8>,
    /// What is left to be done to each frame of the batch.
    headers: Vec<VnetHeader>,
    counts: SourceCounts,
    done: InlineCounts,
    /// Since when each link is away, and why.
    away: [Option<(u64, String)>; 2],
    looked: Instant,
    notices: Vec<Notice>,
    closed: bool,
}

impl Inline {
    /// Joins them. Until the first call of [`Source::fill`] no sensor is there: frames pass or are dropped as the options say.
    ///
    /// # Errors
    /// No permission, no such interface, another sensor joins one of them.
    pub fn open(names: &[String; 2], options: InlineOptions) -> Result<Inline, SourceError> {
        let [a, b] = names;
        let config = WireConfig {
            fail_open: options.fail_open,
            bound: options.queue,
        };
        let wire = Wire::join([a, b], config).map_err(|e| failed(&format!("{a}:{b}"), &e))?;
        let before = [0, 1].map(|side| wire.before(side));
        let before = before.iter().flatten().fold(None, |all, one| {
            let all: Uninspected = all.unwrap_or_default();
            Some(Uninspected {
                passed: all.passed + one.passed_away + one.passed_late,
                dropped: all.dropped + one.dropped_away + one.dropped_late,
                lost: all.lost + one.waiting(),
            })
        });
        let mut inline = Inline {
            wire,
            options,
            buffer: vec![0; LONGEST],
            headers: Vec::with_capacity(MOST),
            counts: SourceCounts::default(),
            done: InlineCounts {
                before,
                ..InlineCounts::default()
            },
            away: [None, None],
            looked: Instant::now(),
            notices: Vec::new(),
            closed: false,
        };
        // One that is down now is waited for, and that is said.
        inline.look()?;
        Ok(inline)
    }

    /// Takes what is there of both, in turns.
    fn take(&mut self, batch: &mut Batch) -> Result<bool, SourceError> {
        self.headers.clear();
        let mut more = [true; 2];
        while more != [false; 2] && self.headers.len() < MOST && !batch.is_full() {
            for (side, more) in more.iter_mut().enumerate() {
                let found = match self.wire.read(side, &mut self.buffer) {
                    Ok(found) => found,
                    Err(e) => return Err(failed(self.wire.name(side), &e)),
                };
                let Some((header, frame)) = found else {
                    *more = false;
                    continue;
                };
                let len = frame.len() as u64;
                if !batch.push(now(), &[frame], 0, 1) {
                    return Err(SourceError::Interface {
                        interface: self.wire.name(side).to_owned(),
                        message: format!("a frame of {len} bytes does not fit a batch"),
                    });
                }
                if let Some(frame) = batch.frames.last_mut() {
                    frame.interface = side as u8;
                    frame.sums = match (header.is_unfinished(), header.is_valid()) {
                        (true, _) => Sums::Unfinished,
                        (_, true) => Sums::Valid,
                        _ => Sums::Unknown,
                    };
                }
                self.headers.push(header);
                self.counts.frames += 1;
                self.counts.wire_bytes += len;
            }
        }
        Ok(!self.headers.is_empty())
    }

    fn beat(&self) -> Result<(), SourceError> {
        match self.closed {
            true => Ok(()),
            false => (self.wire.beat()).map_err(|e| failed(&self.names(), &e)),
        }
    }

    fn wait(&self) -> Result<(), SourceError> {
        let mut ready: Vec<PollFd<'_>> = (self.wire.waits())
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let wait = Timespec::try_from(self.options.wait).ok();
        match poll(&mut ready, wait.as_ref()) {
            // A signal: the caller looks whether it is to stop.
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(SourceError::Interface {
                interface: self.names(),
                message: e.to_string(),
            }),
        }
    }

    fn names(&self) -> String {
        format!("{}:{}", self.wire.name(0), self.wire.name(1))
    }

    /// Looks whether the links are there, and notes what has become of them.
    fn look(&mut self) -> Result<(), SourceError> {
        self.looked = Instant::now();
        for side in 0..2 {
            let found = self.wire.check_link(side);
            let name = self.wire.name(side).to_owned();
            if let Err(e @ XskError::Gone { .. }) = &found {
                return Err(failed(&name, e));
            }
            match (found, self.away[side].is_some()) {
                (Ok(()), false) | (Err(_), true) => {}
                (Err(e), false) => {
                    let why = e.to_string();
                    self.away[side] = Some((now(), why.clone()));
                    self.notices.push(Notice::Down {
                        interface: name,
                        why,
                    });
                }
                (Ok(()), true) => self.back(side, true),
            }
        }
        Ok(())
    }

    fn back(&mut self, side: usize, back: bool) {
        if let Some((from, why)) = self.away[side].take() {
            self.counts.gaps += 1;
            self.notices.push(Notice::Gap(Gap {
                interface: self.wire.name(side).to_owned(),
                why,
                from,
                to: now(),
                back,
            }));
        }
    }
}

/// Gives interfaces back to the host that sensors left joined. Returns those that were.
///
/// # Errors
/// No such interface, a sensor still runs, or another program of weir's is there.
pub fn detach(names: &[String; 2]) -> Result<Vec<&str>, SourceError> {
    let [a, b] = names;
    wire::detach(&[a, b]).map_err(|e| failed(&format!("{a}:{b}"), &e))
}

fn failed(interface: &str, e: &XskError) -> SourceError {
    SourceError::Interface {
        interface: interface.to_owned(),
        message: e.to_string(),
    }
}

/// The system's clock: frames have their times when they are read.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_nanos() as u64
}

impl Source for Inline {
    fn fill(&mut self, batch: &mut Batch) -> Result<Filled, SourceError> {
        self.beat()?;
        if self.looked.elapsed() >= LOOK {
            self.look()?;
        }
        if self.take(batch)? {
            return Ok(Filled::Frames);
        }
        if self.closed {
            return Ok(Filled::End);
        }
        self.wait()?;
        self.beat()?;
        Ok(match self.take(batch)? {
            true => Filled::Frames,
            false => Filled::Idle,
        })
    }

    fn counts(&mut self) -> SourceCounts {
        let mut inline = self.done;
        self.counts.kernel_drops = 0;
        let mut handed = 0;
        for counts in [0, 1].into_iter().flat_map(|side| self.wire.counts(side)) {
            inline.received += counts.received();
            inline.overrun += counts.overrun;
            inline.passed_away += counts.passed_away;
            inline.passed_late += counts.passed_late;
            inline.dropped_away += counts.dropped_away;
            inline.dropped_late += counts.dropped_late;
            self.counts.kernel_drops += counts.overrun;
            handed += counts.handed;
        }
        self.counts.kernel_packets = Some(handed);
        self.counts.inline = Some(inline);
        self.counts
    }

    fn is_live(&self) -> bool {
        true
    }

    fn notices(&mut self, ends: bool) -> Vec<Notice> {
        if ends {
            for side in 0..2 {
                self.back(side, false);
            }
        }
        std::mem::take(&mut self.notices)
    }

    fn close(&mut self) -> Result<bool, SourceError> {
        self.closed = true;
        self.wire
            .stop()
            .map_err(|e| failed(&self.names(), &e))
            .map(|()| true)
    }

    fn decided(
        &mut self,
        batch: &Batch,
        dropped: &[u32],
        answers: &[Answer],
    ) -> Result<(), SourceError> {
        let mut dropped = dropped.iter().map(|at| *at as usize).peekable();
        for (at, (frame, header)) in batch.frames.iter().zip(&self.headers).enumerate() {
            if dropped.next_if_eq(&at).is_some() {
                self.done.dropped += 1;
                continue;
            }
            let other = 1 - usize::from(frame.interface.min(1));
            match self.wire.send(other, header, batch.bytes(frame)) {
                Ok(()) => self.done.forwarded += 1,
                Err(_) => {
                    self.done.failed += 1;
                    // It may have waited for its queue.
                    self.beat()?;
                }
            }
        }
        for answer in answers {
            let Some(frame) = batch.frames.get(answer.at as usize) else {
                continue;
            };
            let side = usize::from(frame.interface.min(1));
            let by = match answer.back {
                true => side,
                false => 1 - side,
            };
            let sent = (self.wire).send(by, &VnetHeader::default(), &answer.bytes);
            self.done.answers += u64::from(sent.is_ok());
        }
        Ok(())
    }

    fn knows_sums(&self) -> bool {
        true
    }
}
