//! The sockets of several workers' rings.
//!
//! The first worker opens sockets, all of an interface together, as their order decides what comes to which. When an interface was removed and is there again it does so anew, and the others
//! find theirs in the [`RingGroup`].

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use weir_xsk::{Fanout, PacketConfig, PacketPort, Port as _, XskError};

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
