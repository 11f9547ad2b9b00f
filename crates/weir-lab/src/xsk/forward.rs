//! `weir xsk forward`: the forwarder on the link layer. Frames go back where they came from with their addresses swapped, or on to another interface as they are.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use weir_kernel::iface;
use weir_xsk::{
    Bounced, Packet, PacketPort, Port, Socket, SocketConfig, Steer, Steered, Wait, XskError,
    XskPort,
};

use super::payload;
use super::receive::SteerReport;
use super::setup::{self, Kind, LossReport, Setup, SocketReport, Told, Ways};
use super::{Clock, Idle, Metered, PATIENCE, XskRunError, begin, now_ns, on_threads, per_second};

/// Where frames go.
#[derive(Clone, Debug, Default)]
pub struct ForwardPlan {
    /// The other interface; `None`: back where they came from.
    pub to: Option<String>,
    /// Also from the other interface to the first one.
    pub both_ways: bool,
    /// Write the times of arrival and departure into frames of `weir xsk`.
    pub stamp: bool,
    /// Frames received, of all sockets together.
    pub count: Option<u64>,
    /// How long.
    pub lasting: Option<Duration>,
    /// End when nothing came for so long, once something did.
    pub idle: Option<Duration>,
}

/// What was forwarded.
#[derive(Clone, Debug, Serialize)]
pub struct ForwardReport {
    /// Frames received.
    pub received: u64,
    /// Frames handed to the kernel to be sent.
    pub forwarded: u64,
    /// From the first frame to the last.
    pub seconds: f64,
    /// Frames received a second.
    pub rate: f64,
    /// Losses of all sockets.
    pub losses: LossReport,
    /// What the XDP programs counted.
    pub steered: Option<SteerReport>,
    /// Each socket, those of the other interface last.
    pub sockets: Vec<SocketReport>,
}

/// What one thread did.
#[derive(Default)]
struct Done {
    received: u64,
    forwarded: u64,
    begun: u64,
    ended: u64,
}

/// Forwards.
///
/// # Errors
/// An interface is not fit, goes down or away, or a setting cannot be.
pub fn forward(
    setup: &Setup,
    plan: &ForwardPlan,
    stop: &AtomicBool,
) -> Result<ForwardReport, XskRunError> {
    setup.check()?;
    setup.check_owned(&setup.interface)?;
    let ways = Ways {
        receives: true,
        sends: true,
    };
    let Some(to) = &plan.to else {
        if plan.both_ways {
            return Err(XskRunError::Usage(
                "--both-ways without --to: name the other interface".to_owned(),
            ));
        }
        let bounce = |port: &mut XskPort| port.bounce(setup.batch, |p| edit(plan, p, true));
        let bounce_packet =
            |port: &mut PacketPort| port.bounce(setup.batch, |p| edit(plan, p, true));
        return match setup.kind {
            Kind::Xsk => {
                let mut open = setup::open_xsk(setup, ways)?;
                let done = run(setup, plan, &mut open.ports, stop, |p| p, bounce)?;
                let counted = open.steer.as_ref().map(Steer::counted).transpose()?;
                report(open.ports.iter_mut(), &done, counted)
            }
            Kind::Packet => {
                let mut open = setup::open_packet(setup, ways, longest(&setup.interface)?)?;
                let done = run(setup, plan, &mut open.ports, stop, |p| p, bounce_packet)?;
                report(open.ports.iter_mut(), &done, None)
            }
        };
    };
    setup.check_owned(to)?;
    if *to == setup.interface {
        return Err(XskRunError::Usage(format!(
            "--to {to}: that is the interface itself; without --to frames go back with their addresses swapped"
        )));
    }
    match setup.kind {
        Kind::Xsk => between_sockets(setup, plan, to, stop),
        Kind::Packet => between_packet_sockets(setup, plan, to, stop),
    }
}

/// Two interfaces. Fields end in their order: programs before sockets.
struct Between<P> {
    steers: Vec<Steer>,
    pairs: Vec<(P, P)>,
    _queues: Option<setup::Restore>,
}

/// Without copying: each pair of sockets, one on each interface, has one area of frames.
fn between_sockets(
    setup: &Setup,
    plan: &ForwardPlan,
    to: &str,
    stop: &AtomicBool,
) -> Result<ForwardReport, XskRunError> {
    if setup.shared {
        return Err(XskRunError::Usage(
            "--shared-umem and --to: each pair of sockets has one area of frames as it is"
                .to_owned(),
        ));
    }
    let mut between = open_between(setup, plan, to)?;
    let both_ways = plan.both_ways;
    let done = run(
        setup,
        plan,
        &mut between.pairs,
        stop,
        |(near, _)| near,
        |(near, far)| {
            let mut sum = near.pass_on(far, setup.batch, |p| edit(plan, p, false))?;
            if both_ways {
                let back = far.pass_on(near, setup.batch, |p| edit(plan, p, false))?;
                sum.received += back.received;
                sum.queued += back.queued;
            }
            Ok(sum)
        },
    )?;
    let mut counted = Steered::default();
    for steer in &between.steers {
        let more = steer.counted()?;
        counted.steered += more.steered;
        counted.passed += more.passed;
        counted.lonely += more.lonely;
        counted.unmarked += more.unmarked;
    }
    let ports = between.pairs.iter_mut().flat_map(|(a, b)| [a, b]);
    report(ports, &done, Some(counted))
}

/// Several forwarders of a chain on the calling thread, one after the other in each turn: as many programs that spin could not share a CPU. Frames go from the first interface
/// of each to the second.
pub(crate) struct Chain {
    hops: Vec<Between<XskPort>>,
}

impl Chain {
    /// One without forwarders.
    pub(crate) fn new() -> Chain {
        Chain { hops: Vec::new() }
    }

    /// Adds a forwarder between two interfaces of the thread's namespace.
    pub(crate) fn add(&mut self, setup: &Setup, to: &str) -> Result<(), XskRunError> {
        setup.check()?;
        setup.check_owned(&setup.interface)?;
        setup.check_owned(to)?;
        self.hops
            .push(open_between(setup, &ForwardPlan::default(), to)?);
        Ok(())
    }

    /// Forwards until told to stop, placed as `setup` says, which waits by spinning in whatever way.
    pub(crate) fn run(&mut self, setup: &Setup, stop: &AtomicBool) -> Result<(), XskRunError> {
        setup.place(0)?;
        let failed = AtomicBool::new(false);
        let near = self
            .hops
            .iter()
            .flat_map(|hop| &hop.pairs)
            .map(|(near, _)| near);
        begin(near, stop, &failed)?;
        setup.arm();
        let mut metered = Metered::new(setup.meter.as_deref());
        let mut turns = 0u32;
        while !stop.load(Ordering::Relaxed) {
            metered.look();
            turns = turns.wrapping_add(1);
            for (near, far) in self.hops.iter_mut().flat_map(|hop| &mut hop.pairs) {
                let bounced = near.pass_on(far, setup.batch, |_| true)?;
                if bounced.received == 0 {
                    near.wait(setup.wait, Duration::ZERO)?;
                }
                if turns.is_multiple_of(1 << 16) {
                    near.check_link()?;
                }
            }
        }
        Ok(())
    }
}

/// Sockets and programs of a forwarder between two interfaces.
fn open_between(
    setup: &Setup,
    plan: &ForwardPlan,
    to: &str,
) -> Result<Between<XskPort>, XskRunError> {
    let near = setup::open_xsk(
        setup,
        Ways {
            receives: true,
            sends: true,
        },
    )?;
    let mut between = Between {
        steers: near.steer.into_iter().collect(),
        pairs: Vec::new(),
        _queues: near.queues,
    };
    if plan.both_ways {
        between
            .steers
            .push(Steer::attach(to, setup.hook(), setup.what, setup.mark)?);
    }
    for mut port in near.ports {
        let config = SocketConfig {
            queue: port.socket().queue(),
            rx: if plan.both_ways { setup.socket.rx } else { 0 },
            ..setup.socket
        };
        let socket = Socket::open_shared(port.socket(), to, &config)?;
        if let Some(steer) = between.steers.get(1) {
            steer.add(&socket)?;
        }
        let mut far = XskPort::new(socket, Vec::new())?;
        far.expect_marks(setup.mark);
        if plan.both_ways {
            port.share_with(&mut far)?;
        }
        between.pairs.push((port, far));
    }
    Ok(between)
}

/// Frames are copied from ring to ring: the kernel has no other way.
fn between_packet_sockets(
    setup: &Setup,
    plan: &ForwardPlan,
    to: &str,
    stop: &AtomicBool,
) -> Result<ForwardReport, XskRunError> {
    let ways = Ways {
        receives: true,
        sends: true,
    };
    let beyond = Setup {
        interface: to.to_owned(),
        ..setup.clone()
    };
    let room = longest(&setup.interface)?.max(longest(to)?);
    let near = setup::open_packet(setup, ways, room)?;
    let far_ways = Ways {
        receives: plan.both_ways,
        sends: true,
    };
    let far = setup::open_packet(&beyond, far_ways, room)?;
    let mut pairs: Vec<(PacketPort, PacketPort)> = near.ports.into_iter().zip(far.ports).collect();
    let done = run(
        setup,
        plan,
        &mut pairs,
        stop,
        |(near, _)| near,
        |(near, far)| {
            let mut sum = copy_on(near, far, setup.batch, plan)?;
            if plan.both_ways {
                let back = copy_on(far, near, setup.batch, plan)?;
                sum.received += back.received;
                sum.queued += back.queued;
            }
            Ok(sum)
        },
    )?;
    report(pairs.iter_mut().flat_map(|(a, b)| [a, b]), &done, None)
}

/// Copies what one port received into frames of another and sends it.
fn copy_on(
    from: &mut PacketPort,
    to: &mut PacketPort,
    most: usize,
    plan: &ForwardPlan,
) -> Result<Bounced, XskError> {
    let mut queued = 0;
    let mut wrong = None;
    let received = from.receive(most, |mut packet| {
        edit(plan, &mut packet, false);
        match to.queue_or_lose(packet.bytes) {
            Ok(there_was_room) => queued += usize::from(there_was_room),
            Err(e) => wrong = Some(e),
        }
    })?;
    if let Some(e) = wrong {
        return Err(e);
    }
    to.flush()?;
    Ok(Bounced { received, queued })
}

/// What happens to each frame. All are sent on.
fn edit(plan: &ForwardPlan, packet: &mut Packet<'_>, back: bool) -> bool {
    if back {
        payload::swap_macs(packet.bytes);
    }
    if plan.stamp {
        // Both times are of now: what follows is the kernel's. The hook's time, where there is one, says when it came.
        let now = now_ns();
        payload::stamp(packet.bytes, packet.seen_ns.unwrap_or(now), now);
    }
    true
}

/// The longest frame of an interface.
fn longest(name: &str) -> Result<usize, XskRunError> {
    Ok(iface::find(name)?.mtu as usize + 14)
}

/// Runs `work` on each port, or pair of ports, until the end. `waits` is the port that is waited for when nothing came.
fn run<T: Send, P: Port>(
    setup: &Setup,
    plan: &ForwardPlan,
    items: &mut [T],
    stop: &AtomicBool,
    waits: impl Fn(&mut T) -> &mut P + Sync,
    work: impl Fn(&mut T) -> Result<Bounced, XskError> + Sync,
) -> Result<Vec<Done>, XskRunError> {
    let failed = AtomicBool::new(false);
    begin(items.iter_mut().map(|item| &*waits(item)), stop, &failed)?;
    setup.say_ready("forwarding");
    let total = AtomicU64::new(0);
    // Where packets come both ways, sleeping for one side would hold up the other.
    let wait = match setup.wait {
        Wait::Poll if plan.both_ways => Duration::from_micros(50),
        _ => Duration::from_millis(10),
    };
    on_threads(setup, items, &failed, |_, item| {
        let mut clock = Clock::new(plan.lasting, stop, &failed);
        let mut idle = Idle::new(plan.idle);
        let mut done = Done::default();
        let mut metered = Metered::new(setup.meter.as_deref());
        loop {
            metered.look();
            let bounced = work(item)?;
            let goes_on = if bounced.received == 0 {
                let over = idle.is_over(total.load(Ordering::Relaxed));
                let port = waits(item);
                let goes_on = !over && clock.looks(port)?;
                if goes_on {
                    port.wait(setup.wait, wait)?;
                }
                goes_on
            } else {
                done.received += bounced.received as u64;
                done.forwarded += bounced.queued as u64;
                done.ended = now_ns();
                if done.begun == 0 {
                    done.begun = done.ended;
                }
                total.fetch_add(bounced.received as u64, Ordering::Relaxed);
                clock.goes_on(waits(item))?
            };
            let enough = plan
                .count
                .is_some_and(|count| total.load(Ordering::Relaxed) >= count);
            if enough || !goes_on {
                return Ok(done);
            }
        }
    })
}

fn report<'a, P: Told + 'a>(
    ports: impl Iterator<Item = &'a mut P>,
    done: &[Done],
    counted: Option<Steered>,
) -> Result<ForwardReport, XskRunError> {
    let mut sockets = Vec::new();
    let mut losses = LossReport::default();
    for port in ports {
        // What is queued leaves, or is told as what did not.
        let deadline = Instant::now() + PATIENCE;
        while port.flush()? > 0 && Instant::now() < deadline {
            std::thread::yield_now();
        }
        let socket = port.told()?;
        losses.add(&socket.losses);
        sockets.push(socket);
    }
    let begun = done.iter().map(|d| d.begun).filter(|t| *t > 0).min();
    let ended = done.iter().map(|d| d.ended).max().unwrap_or(0);
    let ns = begun.map_or(0, |begun| ended.saturating_sub(begun));
    let received = done.iter().map(|d| d.received).sum();
    Ok(ForwardReport {
        received,
        forwarded: done.iter().map(|d| d.forwarded).sum(),
        seconds: ns as f64 / 1e9,
        rate: per_second(received, ns),
        losses,
        steered: counted.map(SteerReport::from),
        sockets,
    })
}
