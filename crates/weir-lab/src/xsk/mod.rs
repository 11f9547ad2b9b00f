//! What `weir xsk` does: a generator, a sink, a forwarder and a prober over AF_XDP sockets, or over packet sockets with rings for comparison.
//!
//! One thread for each socket, each with a port of its own (`weir_xsk::Port`); no locks, allocations or output while packets move. Invariant:
//! whether a run ends, fails, panics or is told to stop, the XDP program leaves its interface before the sockets close, and the number of queues is what it was. A killed process
//! takes its program and sockets along; only the number of queues then stays.

mod figures;
mod forward;
mod meter;
mod payload;
mod ping;
mod receive;
mod send;
mod setup;

pub use figures::{Bucket, Calibration, Delays, Summary, calibrate, now_ns};
pub(crate) use forward::Chain;
pub use forward::{ForwardPlan, ForwardReport, forward};
pub use meter::Meter;
pub(crate) use meter::Metered;
pub use payload::{ETHERTYPE, SHORTEST};
pub use ping::{PingPlan, PingReport, ping};
pub use receive::{ReceivePlan, ReceiveReport, receive};
pub use send::{SendPlan, SendReport, send};
pub use setup::{Kind, LossReport, Setup, SocketReport};

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use weir_kernel::KernelError;
use weir_xsk::{Port, XskError};

/// How often a run looks at whether its interface is there and up.
const LOOK: Duration = Duration::from_millis(100);
/// How long what is queued may take to leave at the end of a run.
const PATIENCE: Duration = Duration::from_secs(2);

/// A far end that was just set up may take a moment to give a carrier.
const CARRIER: Duration = Duration::from_secs(2);

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum XskRunError {
    /// A socket or its interface.
    #[error(transparent)]
    Xsk(#[from] XskError),
    /// Settings that cannot be together, or values that cannot be.
    #[error("{0}")]
    Usage(String),
    /// It might lead into a real network.
    #[error(
        "{name} is a device of driver {driver}, and frames may reach a real network: --i-own-this-network says that they may"
    )]
    NotYours {
        /// The interface.
        name: String,
        /// Its driver.
        driver: String,
    },
    /// A thread cannot be placed.
    #[error("cannot {what}: {source}")]
    Placement {
        /// An infinitive without "to".
        what: String,
        /// The system's answer.
        source: std::io::Error,
    },
}

impl From<KernelError> for XskRunError {
    fn from(error: KernelError) -> XskRunError {
        XskRunError::Xsk(error.into())
    }
}

impl XskRunError {
    /// Whether the user asked for something that cannot be, rather than it failing at work.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            XskRunError::Usage(_)
                | XskRunError::NotYours { .. }
                | XskRunError::Xsk(
                    XskError::RingSize { .. }
                        | XskError::FrameSize { .. }
                        | XskError::FrameCount { .. }
                        | XskError::NoSuchQueue { .. }
                        | XskError::Excluded(_)
                        | XskError::Kernel(KernelError::NoSuchInterface { .. })
                )
        )
    }
}

/// When a loop is to look at more than packets: whether it is told to stop, its time is over, its interface is still there.
struct Clock<'a> {
    begun: Instant,
    lasting: Option<Duration>,
    stop: &'a AtomicBool,
    /// Set by a thread that fails, so that the others end.
    failed: &'a AtomicBool,
    looked: Instant,
    turns: u32,
}

impl<'a> Clock<'a> {
    fn new(lasting: Option<Duration>, stop: &'a AtomicBool, failed: &'a AtomicBool) -> Clock<'a> {
        let now = Instant::now();
        Clock {
            begun: now,
            lasting,
            stop,
            failed,
            looked: now,
            turns: 0,
        }
    }

    /// Begins anew once the interface is fit: up, and with a carrier, which may follow within a moment.
    fn begin(&mut self, port: &impl Port) -> Result<(), XskError> {
        while let Err(e) = port.check_link() {
            let soon = matches!(e, XskError::NoCarrier { .. }) && self.begun.elapsed() < CARRIER;
            if !soon || self.stop.load(Ordering::Relaxed) {
                return Err(e);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.begun = Instant::now();
        Ok(())
    }

    /// The carrier of an interface that is taken down or deleted goes first: the second look says which it is.
    fn check(&self, port: &impl Port) -> Result<(), XskError> {
        match port.check_link() {
            Err(XskError::NoCarrier { .. }) => {
                std::thread::sleep(Duration::from_millis(30));
                port.check_link()
            }
            other => other,
        }
    }

    /// Whether to go on. Cheap: clocks are read in one turn of 16.
    fn goes_on(&mut self, port: &impl Port) -> Result<bool, XskError> {
        self.turns = self.turns.wrapping_add(1);
        if !self.turns.is_multiple_of(16) {
            return Ok(!self.stop.load(Ordering::Relaxed));
        }
        self.looks(port)
    }

    /// The same with a look at the clock each time, for loops whose turns are long.
    fn looks(&mut self, port: &impl Port) -> Result<bool, XskError> {
        if self.stop.load(Ordering::Relaxed) || self.failed.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let now = Instant::now();
        if now - self.looked >= LOOK {
            self.looked = now;
            self.check(port)?;
        }
        Ok(self.lasting.is_none_or(|all| now - self.begun < all))
    }
}

/// How long nothing came, for one of the threads that count what came together. Time in which its thread did not run, or the machine stood still, does not
/// count: packets may wait that nobody has looked for.
struct Idle {
    limit: Option<Duration>,
    total: u64,
    spent: Duration,
    looked: Instant,
}

impl Idle {
    fn new(limit: Option<Duration>) -> Idle {
        Idle {
            limit,
            total: 0,
            spent: Duration::ZERO,
            looked: Instant::now(),
        }
    }

    /// To be asked after each look that found nothing: whether the limit is reached, once anything came at all.
    fn is_over(&mut self, total: u64) -> bool {
        /// The longest that one look counts for: a wait, and a little.
        const LOOK: Duration = Duration::from_millis(20);
        let Some(limit) = self.limit else {
            return false;
        };
        let now = Instant::now();
        if total == self.total {
            self.spent += (now - self.looked).min(LOOK);
        } else {
            self.total = total;
            self.spent = Duration::ZERO;
        }
        self.looked = now;
        total > 0 && self.spent >= limit
    }
}

/// Waits until the interfaces of ports are fit.
fn begin<'a, P: Port + 'a>(
    ports: impl Iterator<Item = &'a P>,
    stop: &AtomicBool,
    failed: &AtomicBool,
) -> Result<(), XskError> {
    for port in ports {
        Clock::new(None, stop, failed).begin(port)?;
    }
    Ok(())
}

/// Runs `work` for each port, or pair of ports, on a thread of its own, placed as the setup says. One that fails stops the others; its error is returned.
fn on_threads<T: Send, R: Send>(
    setup: &Setup,
    ports: &mut [T],
    failed: &AtomicBool,
    work: impl Fn(usize, &mut T) -> Result<R, XskRunError> + Sync,
) -> Result<Vec<R>, XskRunError> {
    let results: Vec<Result<R, XskRunError>> = std::thread::scope(|scope| {
        let threads: Vec<_> = ports
            .iter_mut()
            .enumerate()
            .map(|(n, port)| {
                let work = &work;
                scope.spawn(move || {
                    let result = setup.place(n).and_then(|()| work(n, port));
                    if result.is_err() {
                        failed.store(true, Ordering::Relaxed);
                    }
                    result
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| {
                thread.join().unwrap_or_else(|panic| {
                    failed.store(true, Ordering::Relaxed);
                    std::panic::resume_unwind(panic)
                })
            })
            .collect()
    });
    results.into_iter().collect()
}

/// Tag of a run: another one each time.
fn tag() -> u32 {
    (now_ns() ^ u64::from(std::process::id()) << 20)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_shr(32) as u32
        | 1
}

/// Events a second.
fn per_second(count: u64, ns: u64) -> f64 {
    if ns == 0 {
        return 0.0;
    }
    count as f64 * 1e9 / ns as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idleness_is_what_was_looked_at() {
        let limit = Duration::from_millis(50);
        let mut idle = Idle::new(Some(limit));
        assert!(!idle.is_over(0), "nothing came yet");
        assert!(!idle.is_over(5));
        // Away for longer than the limit, which counts as one look.
        idle.looked -= Duration::from_secs(10);
        assert!(!idle.is_over(5));
        idle.looked -= Duration::from_secs(10);
        assert!(!idle.is_over(6), "something came meanwhile");
        for _ in 0..2 {
            idle.looked -= Duration::from_secs(1);
            assert!(!idle.is_over(6));
        }
        idle.looked -= Duration::from_secs(1);
        assert!(idle.is_over(6));
        assert!(!Idle::new(None).is_over(6));
    }
}
