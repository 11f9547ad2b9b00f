//! `weir xsk ping`: the prober. Batches of numbered frames at an interval to a forwarder that sends them back, and how long each took.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use serde::Serialize;
use weir_xsk::{Port, Steer, Wait};

use super::payload::{self, Mark, Numbers};
use super::receive::SteerReport;
use super::setup::{self, Kind, LossReport, Setup, SocketReport, Told, Ways};
use super::{
    Calibration, Clock, Delays, Metered, Summary, XskRunError, calibrate, now_ns, send, tag,
};

/// What to probe with.
#[derive(Clone, Debug)]
pub struct PingPlan {
    /// Bytes of a frame without its check sequence.
    pub size: usize,
    /// Frames of a batch, sent at once.
    pub batch: usize,
    /// Frames; `None`: until time is over.
    pub count: Option<u64>,
    /// From batch to batch; zero: the next one as soon as all of one came back, or are given up.
    pub interval: Duration,
    /// How long.
    pub lasting: Option<Duration>,
    /// When a frame is given up.
    pub timeout: Duration,
    /// Frames at the beginning that are not counted.
    pub warm_up: u64,
    /// From batch to batch of those; zero: as for `interval`.
    pub warm_up_interval: Duration,
    /// The longest that those may take; what was sent by then is the warm-up.
    pub warm_up_lasting: Option<Duration>,
    /// The interface that frames come back to, if it is another one: for chains of forwarders.
    pub back: Option<String>,
    /// Where to; as for `weir xsk send`.
    pub to: Option<[u8; 6]>,
    /// EtherType of frames.
    pub ethertype: u16,
    /// Round trips of which exact values are kept.
    pub samples: usize,
    /// What measuring costs, where that is known; else it is measured, which takes some ten milliseconds.
    pub calibration: Option<Calibration>,
}

/// How long they took.
#[derive(Clone, Debug, Serialize)]
pub struct PingReport {
    /// Frames sent, without those of the warm-up.
    pub sent: u64,
    /// Of them, those that came back in time.
    pub received: u64,
    /// Those that did not: lost, or too late.
    pub lost: u64,
    /// Of the lost ones, those that came too late.
    pub late: u64,
    /// Frames that came back twice.
    pub repeated: u64,
    /// Frames that came back behind a later one.
    pub reordered: u64,
    /// Seconds from the first counted frame to the end; 0: there was none.
    pub seconds: f64,
    /// Round trips, ns.
    pub round_trip_ns: Option<Summary>,
    /// From sending to the forwarder's hook or socket, ns; where it stamps, and has this host's clock.
    pub there_ns: Option<Summary>,
    /// From there to being seen here again, ns.
    pub back_ns: Option<Summary>,
    /// From the XDP program here to being seen, ns; with marks only.
    pub hook_delay_ns: Option<Summary>,
    /// The round trips that were kept, in their order, ns.
    #[serde(skip)]
    pub samples: Vec<u64>,
    /// What measuring costs.
    pub calibration: Calibration,
    /// Losses of the socket.
    pub losses: LossReport,
    /// What the XDP program counted.
    pub steered: Option<SteerReport>,
    /// The socket.
    pub sockets: Vec<SocketReport>,
}

/// Probes.
///
/// # Errors
/// The interface is not fit, goes down or away, or a setting cannot be.
pub fn ping(setup: &Setup, plan: &PingPlan, stop: &AtomicBool) -> Result<PingReport, XskRunError> {
    setup.check()?;
    setup.check_owned(&setup.interface)?;
    send::check_size(&setup.interface, plan.size)?;
    if setup.sockets != 1 {
        return Err(XskRunError::Usage(
            "ping has one socket: leave --sockets out".to_owned(),
        ));
    }
    if plan.batch == 0 {
        return Err(XskRunError::Usage(
            "a batch of 0 frames: at least 1".to_owned(),
        ));
    }
    let ways = Ways {
        receives: true,
        sends: true,
    };
    match setup.kind {
        Kind::Xsk => {
            let (there, here) = match &plan.back {
                None => (setup::open_xsk(setup, ways)?, None),
                Some(back) => {
                    let beyond = Setup {
                        interface: back.clone(),
                        ..setup.clone()
                    };
                    beyond.check_owned(back)?;
                    let [only_sends, only_receives] = [true, false].map(|sends| Ways {
                        receives: !sends,
                        sends,
                    });
                    (
                        setup::open_xsk(setup, only_sends)?,
                        Some(setup::open_xsk(&beyond, only_receives)?),
                    )
                }
            };
            let (back, steers) = match here {
                Some(here) => (here.ports, [there.steer, here.steer]),
                None => (Vec::new(), [there.steer, None]),
            };
            let open = setup::Ports {
                steer: steers.into_iter().flatten().next(),
                ports: pair(there.ports, back),
                queues: there.queues,
            };
            let mut open = open;
            let mut report = run(setup, plan, &mut open.ports, stop)?;
            let counted = open.steer.as_ref().map(Steer::counted).transpose()?;
            report.steered = counted.map(SteerReport::from);
            Ok(report)
        }
        Kind::Packet if plan.back.is_some() => Err(XskRunError::Usage(
            "frames that come back to another interface: AF_XDP sockets only".to_owned(),
        )),
        Kind::Packet => {
            let open = setup::open_packet(setup, ways, plan.size)?;
            let mut open = setup::Ports {
                steer: open.steer,
                ports: pair(open.ports, Vec::new()),
                queues: open.queues,
            };
            run(setup, plan, &mut open.ports, stop)
        }
    }
}

/// The port that frames leave by, and the one that they come back to where that is another one.
struct Both<P> {
    there: P,
    back: Option<P>,
}

impl<P> Both<P> {
    fn back(&mut self) -> &mut P {
        self.back.as_mut().unwrap_or(&mut self.there)
    }
}

fn pair<P>(there: Vec<P>, back: Vec<P>) -> Vec<Both<P>> {
    let mut back = back.into_iter();
    there
        .into_iter()
        .map(|there| Both {
            there,
            back: back.next(),
        })
        .collect()
}

/// What the loop has seen.
struct Seen {
    run: u32,
    /// Frames of the warm-up.
    warm_up: u64,
    /// Frames handed over, those of the warm-up included.
    sent: u64,
    numbers: Numbers,
    /// Of the counted ones.
    received: u64,
    late: u64,
    trips: Delays,
    there: Delays,
    back: Delays,
    hook: Delays,
    /// When the first counted frame was sent.
    begun_ns: Option<u64>,
    ended_ns: u64,
}

impl Seen {
    /// Seconds from the first counted frame to the end.
    fn seconds(&self) -> f64 {
        let begun = self.begun_ns.unwrap_or(self.ended_ns);
        self.ended_ns.saturating_sub(begun) as f64 / 1e9
    }
}

fn run<P: Told>(
    setup: &Setup,
    plan: &PingPlan,
    ports: &mut [Both<P>],
    stop: &AtomicBool,
) -> Result<PingReport, XskRunError> {
    let calibration = plan.calibration.unwrap_or_else(calibrate);
    let macs = send::macs(&setup.interface, plan.to)?;
    let failed = AtomicBool::new(false);
    let mut all = super::on_threads(setup, ports, &failed, |_, port| {
        let clock = Clock::new(plan.lasting, stop, &failed);
        probe(setup, plan, port, clock, &macs)
    })?;
    let Some(seen) = all.pop() else {
        return Err(XskRunError::Usage("no socket".to_owned()));
    };
    let sockets: Vec<SocketReport> = ports
        .iter_mut()
        .flat_map(|both| std::iter::once(&mut both.there).chain(&mut both.back))
        .map(Told::told)
        .collect::<Result<_, _>>()?;
    let mut losses = LossReport::default();
    for socket in &sockets {
        losses.add(&socket.losses);
    }
    let sent = seen.sent.saturating_sub(seen.warm_up);
    Ok(PingReport {
        sent,
        received: seen.received,
        lost: sent.saturating_sub(seen.received),
        late: seen.late,
        repeated: seen.numbers.repeated,
        reordered: seen.numbers.reordered,
        seconds: seen.seconds(),
        round_trip_ns: seen.trips.summary(),
        there_ns: seen.there.summary(),
        back_ns: seen.back.summary(),
        hook_delay_ns: seen.hook.summary(),
        samples: seen.trips.kept().to_vec(),
        calibration,
        losses,
        steered: None,
        sockets,
    })
}

fn probe(
    setup: &Setup,
    plan: &PingPlan,
    ports: &mut Both<impl Port>,
    mut clock: Clock<'_>,
    macs: &[[u8; 6]; 2],
) -> Result<Seen, XskRunError> {
    let mut seen = Seen {
        run: tag(),
        warm_up: plan.warm_up,
        sent: 0,
        numbers: Numbers::default(),
        received: 0,
        late: 0,
        trips: Delays::new(plan.samples),
        there: Delays::new(plan.samples),
        back: Delays::new(plan.samples),
        hook: Delays::new(if setup.mark { plan.samples } else { 0 }),
        begun_ns: None,
        ended_ns: 0,
    };
    clock.begin(&ports.there)?;
    if let Some(back) = &ports.back {
        clock.begin(back)?;
    }
    let begun = Instant::now();
    let mut metered = Metered::new(setup.meter.as_deref());
    let mut due = Instant::now();
    loop {
        // One batch. Its frames are written and sent one after the other, but leave in one call.
        if seen.sent < seen.warm_up
            && plan
                .warm_up_lasting
                .is_some_and(|most| begun.elapsed() >= most)
        {
            seen.warm_up = seen.sent;
        }
        let all = plan.count.map(|count| count.saturating_add(seen.warm_up));
        let mut most = plan.batch as u64;
        if let Some(all) = all {
            most = most.min(all - seen.sent);
        }
        for _ in 0..most {
            if seen.sent == seen.warm_up {
                seen.begun_ns = Some(now_ns());
                if let Some(meter) = &setup.meter {
                    meter.begin();
                }
                metered.look();
            }
            let mark = Mark {
                run: seen.run,
                stream: 0,
                number: seen.sent,
                sent_ns: 0,
                arrived_ns: 0,
                left_ns: 0,
            };
            let queued = ports.there.queue(plan.size, |part, bytes| {
                if part == 0 {
                    let sent_ns = now_ns();
                    payload::write(bytes, macs, plan.ethertype, &Mark { sent_ns, ..mark });
                }
            })?;
            if !queued {
                break;
            }
            seen.sent += 1;
        }
        while ports.there.flush()? > 0 {
            std::thread::yield_now();
            if !clock.looks(&ports.there)? {
                break;
            }
        }
        let over = all.is_some_and(|all| seen.sent >= all);
        let now = Instant::now();
        let interval = match seen.sent < seen.warm_up {
            true => plan.warm_up_interval,
            false => plan.interval,
        };
        due += interval;
        // Late: not made up for, which would be a burst.
        due = due.max(now);
        let until = if over || interval.is_zero() {
            now + plan.timeout
        } else {
            due
        };
        let goes_on = collect(
            setup,
            plan,
            ports.back(),
            &mut clock,
            &mut seen,
            until,
            over || interval.is_zero(),
        )?;
        if over || !goes_on {
            if !goes_on {
                // What is under way may still come.
                let stop = AtomicBool::new(false);
                let until = Instant::now() + plan.timeout;
                let mut last = Clock::new(None, &stop, clock.failed);
                collect(setup, plan, ports.back(), &mut last, &mut seen, until, true)?;
            }
            seen.ended_ns = now_ns();
            if let Some(meter) = &setup.meter {
                meter.end();
            }
            return Ok(seen);
        }
    }
}

/// Receives until a time, with `early` only until nothing is under way. Whether to go on.
fn collect(
    setup: &Setup,
    plan: &PingPlan,
    port: &mut impl Port,
    clock: &mut Clock<'_>,
    seen: &mut Seen,
    until: Instant,
    early: bool,
) -> Result<bool, XskRunError> {
    let timeout = plan.timeout.as_nanos() as u64;
    loop {
        let got = port.receive(setup.batch.max(plan.batch), |packet| {
            let now = now_ns();
            let Some(mark) = payload::read(packet.bytes) else {
                return;
            };
            if mark.run != seen.run || mark.number >= seen.sent {
                return;
            }
            let had = seen.numbers.distinct;
            seen.numbers.note(mark.number);
            if seen.numbers.distinct == had || mark.number < seen.warm_up {
                return;
            }
            let trip = now.saturating_sub(mark.sent_ns);
            if trip > timeout {
                seen.late += 1;
                return;
            }
            seen.received += 1;
            seen.trips.note(trip);
            if mark.arrived_ns > 0 {
                seen.there
                    .note(mark.arrived_ns.saturating_sub(mark.sent_ns));
                seen.back.note(now.saturating_sub(mark.left_ns));
            }
            if let Some(hook) = packet.seen_ns {
                seen.hook.note(now.saturating_sub(hook));
            }
        })?;
        if early && seen.numbers.distinct >= seen.sent {
            return clock.looks(port).map_err(Into::into);
        }
        if got > 0 {
            continue;
        }
        let now = Instant::now();
        if now >= until {
            return Ok(clock.looks(port)?);
        }
        if !clock.goes_on(port)? {
            return Ok(false);
        }
        let wait = (until - now).min(super::LOOK);
        port.wait(setup.wait, wait)?;
        if setup.wait == Wait::Poll && !clock.looks(port)? {
            return Ok(false);
        }
    }
}
