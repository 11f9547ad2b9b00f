//! What AF_XDP is compared with: round trips by plain UDP sockets and by packet sockets, spinning and blocking, one packet under way.
//!
//! The loops do what the ones over AF_XDP do, with the clock at the same places. Invariant: both ends end within a fifth of a second of being told to.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::net::RecvFlags;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use weir_kernel::{PacketSocket, iface};

use super::sweep::Combination;
use crate::xsk::{ETHERTYPE, Metered, Setup, XskRunError, now_ns};

/// How often a blocked end looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(100);
/// The port of the UDP echo.
const PORT: u16 = 7;
/// In front of frames of a packet socket (`struct virtio_net_hdr`).
const VNET: usize = 10;
/// Where a frame has its number.
const AT_NUMBER: usize = 18;
const MAGIC: [u8; 4] = *b"weic";
/// Longest packet.
const ROOM: usize = 4096;

/// Which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Control {
    /// As in results.
    pub(super) name: &'static str,
    udp: bool,
    pub(super) spins: bool,
}

/// All of them.
pub(super) const CONTROLS: [Control; 4] = [
    Control {
        name: "udp-spin",
        udp: true,
        spins: true,
    },
    Control {
        name: "udp-block",
        udp: true,
        spins: false,
    },
    Control {
        name: "packet-spin",
        udp: false,
        spins: true,
    },
    Control {
        name: "packet-block",
        udp: false,
        spins: false,
    },
];

/// A control's measurement.
pub(super) struct Plan {
    pub(super) control: Control,
    /// Bytes of a packet without its check sequence.
    pub(super) size: usize,
    pub(super) count: u64,
    pub(super) warm_up: u64,
    pub(super) interval: Duration,
    pub(super) lasting: Duration,
    pub(super) timeout: Duration,
    /// The forwarder's address and Ethernet address.
    pub(super) to: (Ipv4Addr, [u8; 6]),
}

impl Plan {
    /// The packets of a combination; how many and for how long the prober adds.
    pub(super) fn of(control: Control, one: &Combination, to: (Ipv4Addr, [u8; 6])) -> Plan {
        Plan {
            control,
            size: one.size as usize,
            count: 0,
            warm_up: 0,
            interval: one.interval,
            lasting: Duration::ZERO,
            timeout: Duration::ZERO,
            to,
        }
    }
}

/// What it came to.
#[derive(Debug, Default)]
pub(super) struct Probed {
    pub(super) samples: Vec<u64>,
    pub(super) sent: u64,
}

/// One end.
enum End {
    Udp(UdpSocket),
    /// With the frame that it sends.
    Packet(PacketSocket, Vec<u8>),
}

impl End {
    /// Blocking, unless it spins.
    fn open(
        setup: &Setup,
        plan: &Plan,
        from: SocketAddr,
        to: Option<SocketAddr>,
    ) -> Result<End, XskRunError> {
        let failed = |what: &str| {
            let what = format!("{what} of {}", plan.control.name);
            move |source| XskRunError::Placement { what, source }
        };
        if plan.control.udp {
            let socket = UdpSocket::bind(from).map_err(failed("open the socket"))?;
            if let Some(to) = to {
                socket.connect(to).map_err(failed("connect the socket"))?;
            }
            socket
                .set_nonblocking(plan.control.spins)
                .and_then(|()| socket.set_read_timeout(Some(LOOK)))
                .map_err(failed("set up the socket"))?;
            return Ok(End::Udp(socket));
        }
        let socket = PacketSocket::open(&setup.interface)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(LOOK))
            .map_err(|e| failed("set up the socket")(e.into()))?;
        let mut frame = vec![0; VNET + plan.size.max(60)];
        let ethernet = &mut frame[VNET..];
        ethernet[..6].copy_from_slice(&plan.to.1);
        ethernet[6..12].copy_from_slice(&iface::find(&setup.interface)?.mac);
        ethernet[12..14].copy_from_slice(&ETHERTYPE.to_be_bytes());
        ethernet[14..AT_NUMBER].copy_from_slice(&MAGIC);
        Ok(End::Packet(socket, frame))
    }

    /// Sends a number.
    fn send(&mut self, number: u64, payload: &mut [u8]) -> io::Result<()> {
        match self {
            End::Udp(socket) => {
                payload[..8].copy_from_slice(&number.to_be_bytes());
                socket.send(payload).map(drop)
            }
            End::Packet(socket, frame) => {
                let at = VNET + AT_NUMBER;
                frame[at..at + 8].copy_from_slice(&number.to_be_bytes());
                rustix::io::write(socket.as_fd(), frame)
                    .map_err(Into::into)
                    .map(drop)
            }
        }
    }

    /// A number that came; none if nothing did for now.
    fn receive(&mut self, spins: bool, buffer: &mut [u8]) -> io::Result<Option<u64>> {
        let got = match self {
            End::Udp(socket) => none_yet(socket.recv(buffer))?.map(|n| (n, 0)),
            End::Packet(socket, _) => {
                none_yet(packet(socket, spins, buffer))?.map(|n| (n, VNET + AT_NUMBER))
            }
        };
        Ok(got.and_then(|(len, at)| {
            if at > 0 && !is_ours(buffer.get(VNET..len)?) {
                return None;
            }
            buffer
                .get(..len)?
                .get(at..at + 8)?
                .try_into()
                .ok()
                .map(u64::from_be_bytes)
        }))
    }

    /// Sends back what comes. Whether anything did.
    fn echo(&mut self, spins: bool, buffer: &mut [u8]) -> io::Result<bool> {
        match self {
            End::Udp(socket) => match none_yet(socket.recv_from(buffer))? {
                Some((len, from)) => socket.send_to(&buffer[..len], from).map(|_| true),
                None => Ok(false),
            },
            End::Packet(socket, _) => match none_yet(packet(socket, spins, buffer))? {
                Some(len) if len > VNET && is_ours(&buffer[VNET..len]) => {
                    let (to, from) = buffer[VNET..VNET + 12].split_at_mut(6);
                    to.swap_with_slice(from);
                    rustix::io::write(socket.as_fd(), &buffer[..len]).map_err(io::Error::from)?;
                    Ok(true)
                }
                other => Ok(other.is_some()),
            },
        }
    }
}

fn packet(socket: &PacketSocket, spins: bool, buffer: &mut [u8]) -> io::Result<usize> {
    let flags = if spins {
        RecvFlags::DONTWAIT
    } else {
        RecvFlags::empty()
    };
    let (_, len) = rustix::net::recv(socket.as_fd(), buffer, flags)?;
    Ok(len.min(ROOM))
}

fn is_ours(frame: &[u8]) -> bool {
    frame.get(12..14) == Some(&ETHERTYPE.to_be_bytes()) && frame.get(14..AT_NUMBER) == Some(&MAGIC)
}

/// A wait that ended is no failure.
fn none_yet<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(e)
            if matches!(
                e.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
            ) =>
        {
            Ok(None)
        }
        Err(e) => Err(e),
    }
}

fn failed(plan: &Plan, source: io::Error) -> XskRunError {
    XskRunError::Placement {
        what: format!("go on with {}", plan.control.name),
        source,
    }
}

/// The forwarder's end, until told to stop. `setup` says where it runs.
pub(super) fn echo(setup: &Setup, plan: &Plan, stop: &AtomicBool) -> Result<(), XskRunError> {
    let mut end = End::open(setup, plan, (plan.to.0, PORT).into(), None)?;
    setup.place(0)?;
    let mut metered = Metered::new(setup.meter.as_deref());
    let mut buffer = vec![0; ROOM];
    setup.arm();
    while !stop.load(Ordering::Relaxed) {
        metered.look();
        let came = end
            .echo(plan.control.spins, &mut buffer)
            .map_err(|e| failed(plan, e))?;
        if !came && plan.control.spins {
            std::hint::spin_loop();
        }
    }
    Ok(())
}

/// The prober's end.
pub(super) fn probe(
    setup: &Setup,
    plan: &Plan,
    from: Ipv4Addr,
    stop: &AtomicBool,
) -> Result<Probed, XskRunError> {
    // Ethernet, IPv4 and UDP headers; a number must fit.
    let mut payload = vec![0; plan.size.saturating_sub(42).max(8)];
    let to = (plan.to.0, PORT).into();
    let mut end = End::open(setup, plan, (from, 0).into(), Some(to))?;
    let mut buffer = vec![0; ROOM];
    let mut probed = Probed {
        samples: Vec::with_capacity(plan.count as usize),
        sent: 0,
    };
    // On a thread of its own: its place ends with it.
    std::thread::scope(|scope| {
        scope
            .spawn(|| {
                setup.place(0)?;
                let mut metered = Metered::new(setup.meter.as_deref());
                let begun = Instant::now();
                let mut due = begun;
                let mut number = 0;
                let mut warm_up = plan.warm_up;
                while number < warm_up + plan.count
                    && begun.elapsed() < plan.lasting
                    && !stop.load(Ordering::Relaxed)
                {
                    if number < warm_up && begun.elapsed() > plan.lasting / 5 {
                        warm_up = number;
                    }
                    if number == warm_up {
                        if let Some(meter) = &setup.meter {
                            meter.begin();
                        }
                        metered.look();
                    }
                    let sent_ns = now_ns();
                    end.send(number, &mut payload)
                        .map_err(|e| failed(plan, e))?;
                    probed.sent += u64::from(number >= warm_up);
                    let limit = Instant::now() + plan.timeout;
                    let mut turns = 0u32;
                    loop {
                        if end
                            .receive(plan.control.spins, &mut buffer)
                            .map_err(|e| failed(plan, e))?
                            == Some(number)
                        {
                            if number >= warm_up {
                                probed.samples.push(now_ns().saturating_sub(sent_ns));
                            }
                            break;
                        }
                        turns = turns.wrapping_add(1);
                        if (turns.is_multiple_of(16) || !plan.control.spins)
                            && (Instant::now() > limit || stop.load(Ordering::Relaxed))
                        {
                            break;
                        }
                    }
                    number += 1;
                    due = (due + plan.interval).max(Instant::now());
                    while let Some(left) = due
                        .checked_duration_since(Instant::now())
                        .filter(|left| !left.is_zero())
                    {
                        if plan.control.spins {
                            std::hint::spin_loop();
                        } else {
                            std::thread::sleep(left.min(LOOK));
                        }
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                    }
                }
                if let Some(meter) = &setup.meter {
                    meter.end();
                }
                Ok::<_, XskRunError>(())
            })
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    Ok(probed)
}
