//! Ports as a run wants them: queues, frames, sockets and the program that steers packets, made in this order and taken down in the opposite one; and what is
//! reported of each socket afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use weir_kernel::iface::{self, Queues};
use weir_kernel::{XdpMode, sched};
use weir_xsk::{
    BusyPoll, Losses, Match, Mode, PacketConfig, PacketPort, Port, Socket, SocketConfig,
    Statistics, Steer, Umem, UmemConfig, Wait, XskPort,
};

use super::{Meter, XskRunError};

/// Which sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// AF_XDP.
    #[default]
    Xsk,
    /// AF_PACKET with rings of version 3.
    Packet,
}

/// What a run's ports should be like.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The interface.
    pub interface: String,
    /// Which sockets.
    pub kind: Kind,
    /// How many, on queues from `socket.queue` on.
    pub sockets: u32,
    /// Frames; as many for each socket.
    pub umem: UmemConfig,
    /// Rings, mode and polling of each.
    pub socket: SocketConfig,
    /// All sockets use one area of frames.
    pub shared: bool,
    /// The program runs in the stack instead of the driver.
    pub generic: bool,
    /// What is steered to the sockets.
    pub what: Match,
    /// The program writes the time in front of frames.
    pub mark: bool,
    /// How threads wait.
    pub wait: Wait,
    /// Packets handled at once.
    pub batch: usize,
    /// CPUs of threads, in turn; none: as the system likes.
    pub cpus: Vec<usize>,
    /// Real-time priority of threads.
    pub priority: Option<u8>,
    /// Give the interface so many queues for the time of the run.
    pub queues: Option<u32>,
    /// Packet sockets: milliseconds until a block that is not full is handed over.
    pub retire_ms: u32,
    /// Frames may reach a real network.
    pub owned: bool,
    /// Told once sockets are open and packets steered to them, by what receives.
    pub ready: fn(&str),
    /// Set at the same time, for whoever waits in this process.
    pub armed: Option<Arc<AtomicBool>>,
    /// Where threads count their CPU time.
    pub meter: Option<Arc<Meter>>,
}

impl Setup {
    /// The defaults on an interface.
    pub fn new(interface: &str) -> Setup {
        Setup {
            interface: interface.to_owned(),
            kind: Kind::default(),
            sockets: 1,
            umem: UmemConfig::default(),
            socket: SocketConfig::default(),
            shared: false,
            generic: false,
            what: Match::EtherType(super::ETHERTYPE),
            mark: false,
            wait: Wait::default(),
            batch: 64,
            cpus: Vec::new(),
            priority: None,
            queues: None,
            retire_ms: 1,
            owned: false,
            ready: |_| (),
            armed: None,
            meter: None,
        }
    }

    /// Tells whoever waits in this process that what receives is ready.
    pub(crate) fn arm(&self) {
        if let Some(armed) = &self.armed {
            armed.store(true, Ordering::Release);
        }
    }

    /// Says that what receives is ready.
    pub(super) fn say_ready(&self, what: &str) {
        self.arm();
        let sockets = match self.sockets {
            1 => "1 socket".to_owned(),
            n => format!("{n} sockets"),
        };
        (self.ready)(&format!(
            "{what} on {} with {sockets}; Ctrl-C stops",
            self.interface
        ));
    }

    /// Where the program runs.
    pub(super) fn hook(&self) -> XdpMode {
        if self.generic {
            XdpMode::Generic
        } else {
            XdpMode::Native
        }
    }

    /// Puts the calling thread where the `n`th belongs.
    pub(crate) fn place(&self, n: usize) -> Result<(), XskRunError> {
        use rustix::thread::{CpuSet, gettid, sched_setaffinity};
        if !self.cpus.is_empty() {
            let cpu = self.cpus[n % self.cpus.len()];
            let mut set = CpuSet::new();
            if cpu < CpuSet::MAX_CPU {
                set.set(cpu);
            }
            sched_setaffinity(None, &set).map_err(|e| XskRunError::Placement {
                what: format!("run on CPU {cpu}"),
                source: e.into(),
            })?;
        }
        if let Some(priority) = self.priority {
            sched::realtime(gettid().as_raw_nonzero().get().unsigned_abs(), priority)?;
        }
        Ok(())
    }

    /// Refuses what cannot be, before anything is touched.
    pub(super) fn check(&self) -> Result<(), XskRunError> {
        let usage = |text: String| Err(XskRunError::Usage(text));
        if self.sockets == 0 || self.sockets > weir_xsk::steer::QUEUES {
            return usage(format!(
                "{} sockets: 1 to {}",
                self.sockets,
                weir_xsk::steer::QUEUES
            ));
        }
        if self.batch == 0 {
            return usage("a batch of 0 packets: at least 1".to_owned());
        }
        if self.kind == Kind::Packet {
            let beside = [
                (self.sockets > 1, "several sockets"),
                (self.shared, "--shared-umem"),
                (self.generic, "--generic"),
                (self.mark, "--mark"),
                (self.socket.busy_poll.is_some(), "--busy-poll"),
                (self.socket.mode != Mode::Auto, "--mode"),
                (self.socket.multi_buffer, "--multi-buffer"),
                (self.wait == Wait::SpinCalling, "--wait call"),
                (matches!(self.what, Match::UdpPort(_)), "--match udp:PORT"),
            ];
            if let Some((_, what)) = beside.iter().find(|(there, _)| *there) {
                return usage(format!(
                    "--packet and {what}: packet sockets have no such thing"
                ));
            }
        }
        if self.wait == Wait::Spin
            && self.cpus.len() > 1
            && let Some(cpu) = self
                .cpus
                .iter()
                .enumerate()
                .find(|(n, cpu)| self.cpus[..*n].contains(cpu))
                .map(|(_, cpu)| cpu)
        {
            return usage(format!(
                "two spinning threads on CPU {cpu}: each would wait for the other's time slice, milliseconds a packet; use separate CPUs, or --wait poll"
            ));
        }
        Ok(())
    }

    /// Refuses interfaces that should not be sent from.
    pub(crate) fn check_owned(&self, name: &str) -> Result<(), XskRunError> {
        let found = iface::find(name)?;
        let harmless = matches!(found.driver.as_str(), "veth" | "tun") || name == "lo";
        if harmless || self.owned {
            return Ok(());
        }
        Err(XskRunError::NotYours {
            name: name.to_owned(),
            driver: found.driver,
        })
    }
}

/// Ports and what they need. Fields end in their order: the program goes first, then sockets, then the number of queues is put back.
pub(super) struct Ports<P> {
    pub(super) steer: Option<Steer>,
    pub(super) ports: Vec<P>,
    pub(super) queues: Option<Restore>,
}

/// The number of queues that an interface had.
pub(super) struct Restore {
    name: String,
    queues: Queues,
}

impl Drop for Restore {
    fn drop(&mut self) {
        // Dropping has nobody to tell; an interface that is gone needs nothing.
        let _ = iface::set_queues(&self.name, self.queues);
    }
}

fn set_queues(name: &str, count: u32) -> Result<Option<Restore>, XskRunError> {
    let had = iface::queues(name)?;
    let mut wanted = had;
    for kind in [&mut wanted.rx, &mut wanted.tx, &mut wanted.combined] {
        if *kind > 0 {
            *kind = count;
        }
    }
    if wanted == had {
        return Ok(None);
    }
    iface::set_queues(name, wanted)?;
    Ok(Some(Restore {
        name: name.to_owned(),
        queues: had,
    }))
}

/// Which ways packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ways {
    pub(super) receives: bool,
    pub(super) sends: bool,
}

/// Opens AF_XDP ports. Steering is on once it returns.
pub(super) fn open_xsk(setup: &Setup, ways: Ways) -> Result<Ports<XskPort>, XskRunError> {
    let queues = match setup.queues {
        Some(count) => set_queues(&setup.interface, count)?,
        None => None,
    };
    let steer = if ways.receives {
        let hook = setup.hook();
        Some(Steer::attach(
            &setup.interface,
            hook,
            setup.what,
            setup.mark,
        )?)
    } else {
        None
    };
    let mut config = setup.socket;
    if !ways.receives {
        config.rx = 0;
    }
    if !ways.sends {
        config.tx = 0;
    }
    let mut opened: Ports<XskPort> = Ports {
        steer,
        ports: Vec::new(),
        queues,
    };
    let all = UmemConfig {
        frames: if setup.shared {
            setup.umem.frames.saturating_mul(setup.sockets)
        } else {
            setup.umem.frames
        },
        ..setup.umem
    };
    let mut shared: Option<(Umem, Vec<weir_xsk::Frame>)> = None;
    for n in 0..setup.sockets {
        let config = SocketConfig {
            queue: setup.socket.queue + n,
            ..config
        };
        let (socket, frames) = match (&mut shared, opened.ports.first()) {
            (Some((_, frames)), Some(first)) => {
                let socket = Socket::open_shared(first.socket(), &setup.interface, &config)?;
                let own = frames.split_off(frames.len() - setup.umem.frames as usize);
                (socket, own)
            }
            _ => {
                let (umem, mut frames) = Umem::new(&all)?;
                let socket = Socket::open(&umem, &setup.interface, &config)?;
                if setup.shared {
                    let own = frames.split_off(frames.len() - setup.umem.frames as usize);
                    shared = Some((umem, frames));
                    (socket, own)
                } else {
                    (socket, frames)
                }
            }
        };
        if let Some(steer) = &opened.steer {
            steer.add(&socket)?;
        }
        let mut port = XskPort::new(socket, frames)?;
        port.expect_marks(setup.mark);
        opened.ports.push(port);
    }
    Ok(opened)
}

/// Opens a packet port.
pub(super) fn open_packet(
    setup: &Setup,
    ways: Ways,
    longest: usize,
) -> Result<Ports<PacketPort>, XskRunError> {
    let usual = PacketConfig::default();
    let config = PacketConfig {
        ethertype: match setup.what {
            Match::EtherType(kind) => Some(kind),
            _ => None,
        },
        blocks: if ways.receives { usual.blocks } else { 0 },
        slots: if ways.sends { setup.socket.tx } else { 0 },
        longest: (longest as u32).max(usual.longest),
        retire_ms: setup.retire_ms,
        ..usual
    };
    Ok(Ports {
        steer: None,
        ports: vec![PacketPort::open(&setup.interface, &config)?],
        queues: None,
    })
}

/// What is told of a socket: what was asked for, what holds, and what the kernel counted.
#[derive(Clone, Debug, Serialize)]
pub struct SocketReport {
    /// Its interface.
    pub interface: String,
    /// `af_xdp` or `af_packet`.
    pub kind: &'static str,
    /// Its queue; none of a packet socket.
    pub queue: Option<u32>,
    /// `copy` or `zero-copy`, as the kernel tells.
    pub mode: Option<&'static str>,
    /// Asked for.
    pub need_wakeup: bool,
    /// Asked for: microseconds and budget.
    pub busy_poll: Option<(u32, u16)>,
    /// What busy polling would serve; 0: nothing, it does nothing.
    pub napi_id: Option<u32>,
    /// Whether busy polling can take effect; none if it was not asked for.
    pub busy_poll_effective: Option<bool>,
    /// System calls.
    pub calls: u64,
    /// Times that nothing had to be called to send: the wakeup flag was clear.
    pub kicks_saved: u64,
    /// Losses by name.
    pub losses: LossReport,
    /// How often the kernel found the fill ring empty.
    pub rx_fill_ring_empty: Option<u64>,
    /// How often the kernel found the TX ring empty.
    pub tx_ring_empty: Option<u64>,
}

/// Losses by name (`weir_xsk::Losses`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LossReport {
    /// Sent, and dropped by the device.
    pub refused: u64,
    /// To be sent back or on, and there was no room.
    pub no_room: u64,
    /// No frame to receive into, or it did not fit one.
    pub rx_dropped: u64,
    /// The RX ring was full.
    pub rx_ring_full: u64,
    /// Frames to receive into that the kernel did not take.
    pub rx_invalid: u64,
    /// Frames to send that the kernel did not take.
    pub tx_invalid: u64,
    /// The packet socket's ring was full.
    pub ring_drops: u64,
}

impl From<Losses> for LossReport {
    fn from(l: Losses) -> LossReport {
        LossReport {
            refused: l.refused,
            no_room: l.no_room,
            rx_dropped: l.rx_dropped,
            rx_ring_full: l.rx_ring_full,
            rx_invalid: l.rx_invalid,
            tx_invalid: l.tx_invalid,
            ring_drops: l.ring_drops,
        }
    }
}

impl LossReport {
    /// Names and numbers of those that occurred.
    pub fn named(&self) -> Vec<(&'static str, u64)> {
        [
            ("refused", self.refused),
            ("no_room", self.no_room),
            ("rx_dropped", self.rx_dropped),
            ("rx_ring_full", self.rx_ring_full),
            ("rx_invalid", self.rx_invalid),
            ("tx_invalid", self.tx_invalid),
            ("ring_drops", self.ring_drops),
        ]
        .into_iter()
        .filter(|(_, n)| *n > 0)
        .collect()
    }

    /// Adds those of another socket.
    pub fn add(&mut self, other: &LossReport) {
        self.refused += other.refused;
        self.no_room += other.no_room;
        self.rx_dropped += other.rx_dropped;
        self.rx_ring_full += other.rx_ring_full;
        self.rx_invalid += other.rx_invalid;
        self.tx_invalid += other.tx_invalid;
        self.ring_drops += other.ring_drops;
    }
}

/// A port that can tell of its socket.
pub(super) trait Told: Port {
    fn told(&mut self) -> Result<SocketReport, XskRunError>;
}

impl Told for XskPort {
    fn told(&mut self) -> Result<SocketReport, XskRunError> {
        let losses = self.losses()?.into();
        let Statistics {
            rx_fill_ring_empty,
            tx_ring_empty,
            ..
        } = self.statistics()?;
        let effective = self.socket().effective()?;
        let config = self.socket().config();
        Ok(SocketReport {
            interface: self.socket().name().to_owned(),
            kind: "af_xdp",
            queue: Some(config.queue),
            mode: Some(if effective.zero_copy {
                "zero-copy"
            } else {
                "copy"
            }),
            need_wakeup: config.need_wakeup,
            busy_poll: config
                .busy_poll
                .map(|BusyPoll { micros, budget, .. }| (micros, budget)),
            napi_id: Some(effective.napi_id),
            busy_poll_effective: config.busy_poll.map(|_| effective.napi_id != 0),
            calls: self.calls(),
            kicks_saved: self.kicks_saved(),
            losses,
            rx_fill_ring_empty: Some(rx_fill_ring_empty),
            tx_ring_empty: Some(tx_ring_empty),
        })
    }
}

impl Told for PacketPort {
    fn told(&mut self) -> Result<SocketReport, XskRunError> {
        let losses = self.losses()?.into();
        Ok(SocketReport {
            interface: self.name().to_owned(),
            kind: "af_packet",
            queue: None,
            mode: None,
            need_wakeup: false,
            busy_poll: None,
            napi_id: None,
            busy_poll_effective: None,
            calls: self.calls(),
            kicks_saved: 0,
            losses,
            rx_fill_ring_empty: None,
            tx_ring_empty: None,
        })
    }
}
