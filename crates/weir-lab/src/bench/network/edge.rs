//! Virtual networks as benchmarks stand them up: a document applied to an edge in a namespace, as `weir apply` does it.
//!
//! Invariant: networks are removed with their value, and their namespace lives as long as that.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use weir_engine::network::{self, Applied, Networks};
use weir_functions::kind::Files;
use weir_kernel::NetNs;

use crate::LabError;

/// Networks that run.
pub(super) struct Standing {
    name: String,
    edge: &'static str,
    ns: Arc<NetNs>,
}

/// What an apply took, in seconds.
pub(super) struct Took {
    /// Reading and checking the document.
    pub(super) document: f64,
    /// The edge's part of it as tables without devices.
    pub(super) plan: f64,
    /// Devices, maps, programs, the switch.
    pub(super) apply: f64,
}

impl Standing {
    /// Nothing runs yet of what an edge of a document is to carry out.
    pub(super) fn new(ns: &Arc<NetNs>, edge: &'static str) -> Standing {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        Standing {
            name: format!("bench-{}-{n}", std::process::id()),
            edge,
            ns: Arc::clone(ns),
        }
    }

    /// Makes the networks what a document says.
    pub(super) fn apply(&self, text: &str) -> Result<(Applied, Took), LabError> {
        let begin = Instant::now();
        let wanted = checked(text)?;
        let document = begin.elapsed().as_secs_f64();
        let applied = self.ns.run(|| {
            let begin = Instant::now();
            let mut networks = Networks::open(&self.name).map_err(engine)?;
            let open = begin.elapsed();
            let plan = wanted.plan(self.edge, networks.numbers()).map_err(engine)?;
            let plan_done = begin.elapsed();
            let applied = networks.apply(&plan, text).map_err(engine)?;
            let took = Took {
                document,
                plan: (plan_done - open).as_secs_f64(),
                apply: (begin.elapsed() - plan_done + open).as_secs_f64(),
            };
            Ok((applied, took))
        });
        applied?
    }

    /// Packets that were dropped, by reason.
    pub(super) fn drops(&self) -> Result<String, LabError> {
        let drops = self.ns.run(|| {
            let look = network::look(&self.name).map_err(engine)?;
            let drops = look.map(|look| look.set.drops().map_err(engine));
            drops.transpose()
        })??;
        let shown: Vec<String> = drops
            .unwrap_or_default()
            .iter()
            .map(|(drop, count)| {
                let reason = weir_packet::Reason::ALL.get(drop.reason as usize);
                format!("{} {count}", reason.map_or("?", |reason| reason.name()))
            })
            .collect();
        Ok(shown.join(", "))
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        // Runs while dropping: what fails here is found by whoever looks at the pins.
        let _ = self.ns.run(|| Networks::open(&self.name)?.remove());
    }
}

/// A document, checked.
pub(super) fn checked(text: &str) -> Result<weir_network::Networks, LabError> {
    let bad = |errors: String| LabError::Policy {
        name: "networks".to_owned(),
        why: errors,
    };
    let document = weir_network::parse(text, "bench").map_err(|e| bad(format!("{e:?}")))?;
    let checked = weir_network::check(document, &NoFiles).map_err(|e| bad(format!("{e:?}")))?;
    Ok(checked.0)
}

pub(super) fn engine(error: impl std::fmt::Display) -> LabError {
    LabError::Engine(error.to_string())
}

/// Documents of benchmarks name no files.
struct NoFiles;

impl Files for NoFiles {
    fn read(&self, _: &Path) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::NotFound.into())
    }
}
