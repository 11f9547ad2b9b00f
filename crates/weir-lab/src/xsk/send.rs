//! `weir xsk send`: the generator. Numbered frames with the time in them, as fast as they go, at a rate, or in batches at an interval.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use serde::Serialize;
use weir_kernel::{iface, netns};
use weir_xsk::Port;

use super::payload::{self, Mark, SHORTEST};
use super::setup::{self, Kind, LossReport, Setup, SocketReport, Told, Ways};
use super::{Clock, PATIENCE, XskRunError, now_ns, on_threads, per_second, tag};

/// What to send.
#[derive(Clone, Debug)]
pub struct SendPlan {
    /// Bytes of a frame without its check sequence.
    pub size: usize,
    /// Frames of all sockets together; `None`: until time is over.
    pub count: Option<u64>,
    /// Frames a second of all sockets together.
    pub rate: Option<u64>,
    /// Time from batch to batch of each socket.
    pub interval: Option<Duration>,
    /// How long.
    pub lasting: Option<Duration>,
    /// Where to; `None`: the far end of a veth in this namespace, else an address of nobody.
    pub to: Option<[u8; 6]>,
    /// EtherType of frames.
    pub ethertype: u16,
}

/// What became of it.
#[derive(Clone, Debug, Serialize)]
pub struct SendReport {
    /// Tag of the run.
    pub run: u32,
    /// Frames handed to the kernel.
    pub sent: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Frames that were still queued when patience ended; not in `sent`.
    pub unsent: u64,
    /// From the first frame to the last.
    pub seconds: f64,
    /// Frames a second.
    pub rate: f64,
    /// Losses of all sockets: `sent` less `refused` and `tx_invalid` left the interface.
    pub losses: LossReport,
    /// Each socket.
    pub sockets: Vec<SocketReport>,
}

/// What one thread did.
struct Done {
    sent: u64,
    unsent: u64,
    begun: u64,
    ended: u64,
}

/// Sends.
///
/// # Errors
/// The interface is not fit, goes down or away, or a setting cannot be.
pub fn send(setup: &Setup, plan: &SendPlan, stop: &AtomicBool) -> Result<SendReport, XskRunError> {
    setup.check()?;
    setup.check_owned(&setup.interface)?;
    check_size(&setup.interface, plan.size)?;
    let ways = Ways {
        receives: false,
        sends: true,
    };
    match setup.kind {
        Kind::Xsk => {
            let mut open = setup::open_xsk(setup, ways)?;
            run(setup, plan, &mut open.ports, stop)
        }
        Kind::Packet => {
            let mut open = setup::open_packet(setup, ways, plan.size)?;
            run(setup, plan, &mut open.ports, stop)
        }
    }
}

/// Refuses sizes that frames cannot have.
pub(super) fn check_size(name: &str, size: usize) -> Result<(), XskRunError> {
    let mtu = iface::find(name)?.mtu as usize;
    let most = mtu + 14;
    if (SHORTEST..=most).contains(&size) {
        return Ok(());
    }
    let cure = if size > most {
        format!(
            "; `ip link set {name} mtu {}` on both ends makes room",
            size - 14
        )
    } else {
        String::new()
    };
    Err(XskRunError::Usage(format!(
        "frames of {size} bytes: {name} takes {SHORTEST} to {most}{cure}"
    )))
}

/// Source and destination address of frames.
pub(super) fn macs(name: &str, to: Option<[u8; 6]>) -> Result<[[u8; 6]; 2], XskRunError> {
    /// Locally administered, of nobody.
    const NOBODY: [u8; 6] = [2, 0, 0, 0, 0, 2];
    let interface = iface::find(name)?;
    let peer = netns::peer_here(&interface);
    Ok([
        interface.mac,
        to.or(peer.map(|peer| peer.mac)).unwrap_or(NOBODY),
    ])
}

fn run<P: Told>(
    setup: &Setup,
    plan: &SendPlan,
    ports: &mut [P],
    stop: &AtomicBool,
) -> Result<SendReport, XskRunError> {
    let run = tag();
    let macs = macs(&setup.interface, plan.to)?;
    let failed = AtomicBool::new(false);
    let threads = ports.len() as u64;
    // What does not divide evenly, the first ones send.
    let share = |all: u64, n: usize| all / threads + u64::from((n as u64) < all % threads);
    let done = on_threads(setup, ports, &failed, |n, port| {
        let stream = Stream {
            batch: setup.batch,
            size: plan.size,
            frame_room: match setup.kind {
                Kind::Xsk => setup.umem.frame_size as usize,
                Kind::Packet => plan.size,
            },
            count: plan.count.map(|all| share(all, n)),
            rate: plan.rate.map(|all| share(all, n).max(1)),
            interval: plan.interval,
            macs,
            ethertype: plan.ethertype,
            mark: Mark {
                run,
                stream: n as u32,
                number: 0,
                sent_ns: 0,
                arrived_ns: 0,
                left_ns: 0,
            },
        };
        stream.send(port, Clock::new(plan.lasting, stop, &failed))
    })?;
    let sent = done.iter().map(|d| d.sent).sum();
    let begun = done.iter().map(|d| d.begun).min().unwrap_or(0);
    let ended = done.iter().map(|d| d.ended).max().unwrap_or(0);
    let ns = ended.saturating_sub(begun);
    let sockets: Vec<SocketReport> = ports.iter_mut().map(Told::told).collect::<Result<_, _>>()?;
    let mut losses = LossReport::default();
    for socket in &sockets {
        losses.add(&socket.losses);
    }
    Ok(SendReport {
        run,
        sent,
        bytes: sent * plan.size as u64,
        unsent: done.iter().map(|d| d.unsent).sum(),
        seconds: ns as f64 / 1e9,
        rate: per_second(sent, ns),
        losses,
        sockets,
    })
}

/// What one socket sends.
struct Stream {
    batch: usize,
    size: usize,
    /// Bytes that fit one frame.
    frame_room: usize,
    count: Option<u64>,
    rate: Option<u64>,
    interval: Option<Duration>,
    macs: [[u8; 6]; 2],
    ethertype: u16,
    mark: Mark,
}

impl Stream {
    fn send(&self, port: &mut impl Port, mut clock: Clock<'_>) -> Result<Done, XskRunError> {
        clock.begin(port)?;
        let begun = Instant::now();
        let begun_ns = now_ns();
        let mut queued = 0u64;
        let mut left;
        let mut next_batch = Duration::ZERO;
        let mut goes_on = true;
        while goes_on {
            let mut most = self.batch as u64;
            if let Some(count) = self.count {
                most = most.min(count - queued);
                if most == 0 {
                    break;
                }
            }
            let elapsed = begun.elapsed();
            if let Some(rate) = self.rate {
                // The first frame is due at once; a frame that is late is sent at once, so that the mean holds.
                let due = (elapsed.as_nanos() * u128::from(rate) / 1_000_000_000) as u64 + 1;
                most = most.min(due.saturating_sub(queued));
            }
            if elapsed < next_batch || most == 0 {
                self.idle(next_batch.saturating_sub(elapsed));
                goes_on = clock.looks(port)?;
                continue;
            }
            for _ in 0..most {
                if !self.queue(port, queued)? {
                    break;
                }
                queued += 1;
            }
            if let Some(interval) = self.interval {
                next_batch += interval;
            }
            left = port.flush()?;
            if left > 0 {
                // The device is busy: whoever empties its queue may need this CPU.
                std::thread::yield_now();
            }
            goes_on = clock.goes_on(port)?;
        }
        let deadline = Instant::now() + PATIENCE;
        left = port.flush()?;
        while left > 0 && Instant::now() < deadline {
            std::thread::yield_now();
            port.check_link()?;
            left = port.flush()?;
        }
        // What is left is counted in frames.
        let unsent = left.div_ceil(self.size.div_ceil(self.frame_room)) as u64;
        Ok(Done {
            sent: queued - unsent,
            unsent,
            begun: begun_ns,
            ended: now_ns(),
        })
    }

    fn queue(&self, port: &mut impl Port, number: u64) -> Result<bool, XskRunError> {
        Ok(port.queue(self.size, |part, bytes| {
            if part == 0 {
                let mark = Mark {
                    number,
                    sent_ns: now_ns(),
                    ..self.mark
                };
                payload::write(bytes, &self.macs, self.ethertype, &mark);
            }
        })?)
    }

    /// Waits for a batch: asleep where it is far, spinning where it is near.
    fn idle(&self, time: Duration) {
        const NEAR: Duration = Duration::from_micros(200);
        if time > NEAR {
            std::thread::sleep((time - NEAR).min(super::LOOK));
        } else {
            std::hint::spin_loop();
        }
    }
}
