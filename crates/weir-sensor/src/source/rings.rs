//! Interfaces with a ring for each worker: the kernel chooses the ring by the slice of state that a packet is about, so that no reader stands between them.
//!
//! The first worker opens sockets, all of an interface together, as their order decides what comes to which. When an interface was removed and is there again it does so anew, and the others
//! find theirs in the [`RingGroup`].

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weir_xsk::{Fanout, PacketConfig, PacketPort, Port, XskError};

use super::live::{Interfaces, LiveOptions};
use super::{Batch, Bypass, Filled, Notice, Source, SourceCounts, SourceError};

/// How long a worker waits for packets: the others' results wait for it that long.
const WAIT: Duration = Duration::from_millis(20);
/// Bytes of a ring at least.
const LEAST_RING: usize = 16 << 20;

/// Sockets of several workers.
#[derive(Debug)]
pub struct RingGroup {
    fanout: Fanout,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// By interface and worker, until the worker takes it.
    ports: BTreeMap<String, Vec<Option<PacketPort>>>,
    /// Of those that nobody took before their interface was removed: what came, what was lost, and the rest.
    lost: [u64; 3],
}

impl RingGroup {
    /// Has the kernel spread packets over so many workers by slices of state.
    ///
    /// # Errors
    /// It refuses: without CAP_BPF, or where it is too old.
    pub fn load(workers: u16, slices: u16) -> Result<RingGroup, XskError> {
        Ok(RingGroup {
            fanout: Fanout::load(workers, slices)?,
            waiting: Mutex::default(),
        })
    }

    /// How many.
    pub fn workers(&self) -> u16 {
        self.fanout.workers()
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The socket of a worker for an interface; the first worker opens all of them.
    pub(super) fn listen(
        &self,
        name: &str,
        worker: usize,
        config: &PacketConfig,
    ) -> Result<PacketPort, XskError> {
        let mut waiting = self.lock();
        if worker == 0 {
            let ports = PacketPort::open_group(name, config, &self.fanout)?;
            let new = ports.into_iter().map(Some).collect();
            let old = waiting.ports.insert(name.to_owned(), new);
            for mut port in old.into_iter().flatten().flatten() {
                let (received, losses) = (port.received()?, port.losses()?);
                let more = [received, losses.ring_drops, received - losses.ring_drops];
                for (all, more) in waiting.lost.iter_mut().zip(more) {
                    *all += more;
                }
            }
        }
        let of = waiting.ports.get_mut(name).and_then(|p| p.get_mut(worker));
        of.and_then(Option::take).ok_or_else(|| XskError::Gone {
            iface: name.to_owned(),
        })
    }

    /// What came to sockets that nobody took, what they lost, and what was in their rings.
    pub(super) fn lost(&self) -> [u64; 3] {
        self.lock().lost
    }
}

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
