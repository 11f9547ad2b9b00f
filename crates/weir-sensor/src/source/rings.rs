//! Interfaces with a ring for each worker: the kernel chooses the ring by the slice of state that a packet is about, so that no reader stands between them.

use std::sync::Arc;
use std::time::Duration;

use super::live::{Interfaces, LiveOptions};
use super::ring_group::RingGroup;
use super::{Batch, Bypass, Filled, Notice, Source, SourceCounts, SourceError};

/// How long a worker waits for packets: the others' results wait for it that long.
const WAIT: Duration = Duration::from_millis(20);
/// Bytes of a ring at least.
const LEAST_RING: usize = 16 << 20;

/// Interfaces of the current network namespace, once for each worker.
#[derive(Debug)]
pub struct Rings {
    rings: Vec<Interfaces>,
}

impl Rings {
    /// Begins to listen, to everything that comes in or leaves by them. The memory of the ring is divided among workers.
    ///
    /// # Errors
    /// No such interface, no memory for the rings.
    pub fn open(
        names: &[String],
        options: LiveOptions,
        group: RingGroup,
    ) -> Result<Rings, SourceError> {
        let workers = usize::from(group.workers()).max(1);
        let options = LiveOptions {
            ring: (options.ring / workers).max(LEAST_RING),
            wait: WAIT,
            ..options
        };
        let group = Arc::new(group);
        let mut rings: Vec<Interfaces> = Vec::new();
        for number in 0..workers {
            let ring = Interfaces::open_ring(names, options, (&group, number), rings.first())?;
            rings.push(ring);
        }
        Ok(Rings { rings })
    }
}

impl Source for Rings {
    /// One after the other, for who reads them alone.
    fn fill(&mut self, batch: &mut Batch) -> Result<Filled, SourceError> {
        let mut ended = 0;
        for ring in &mut self.rings {
            match ring.fill(batch)? {
                Filled::Frames => return Ok(Filled::Frames),
                Filled::Idle => {}
                Filled::End => ended += 1,
            }
        }
        Ok(match ended == self.rings.len() {
            true => Filled::End,
            false => Filled::Idle,
        })
    }

    fn counts(&mut self) -> SourceCounts {
        let all = self.rings.iter_mut().map(Source::counts);
        all.fold(SourceCounts::default(), |sum, one| sum.plus(&one))
    }

    fn is_live(&self) -> bool {
        true
    }

    fn notices(&mut self, ends: bool) -> Vec<Notice> {
        let all = self.rings.iter_mut().map(|ring| ring.notices(ends));
        all.flatten().collect()
    }

    fn close(&mut self) -> Result<bool, SourceError> {
        for ring in &mut self.rings {
            ring.close()?;
        }
        Ok(true)
    }

    fn bypass(&self) -> Option<Arc<dyn Bypass>> {
        self.rings.first().and_then(Source::bypass)
    }

    fn knows_sums(&self) -> bool {
        true
    }

    fn rings(&mut self) -> Vec<&mut dyn Source> {
        let all = self.rings.iter_mut();
        all.map(|ring| ring as &mut dyn Source).collect()
    }
}
