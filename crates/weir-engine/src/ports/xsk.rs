//! A policy or a program over AF_XDP queues: in front of the stack, with a way to it.
//!
//! The steering program hands every frame of an interface to the sockets of its queues; what the judge passes goes to the stack by a tap device, what the stack sends to the
//! tap leaves by the interface. One thread does all of it, because the maps have one owner: so frames of a queue keep their order, whatever becomes of them.
//! Invariants: every frame that the steering program handed over is in exactly one count of [`PortLedger`]; whether it ends, fails or is killed, no program and no tap stays that was not there.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use weir_functions::plan::{ChecksumMode, Port as PlanPort};
use weir_kernel::iface::{self, Feature, Interface};

use weir_kernel::{KernelError, Tap, XdpMode};
use weir_packet::Verdict;
use weir_policy::model::Policy;
use weir_xsk::{
    Match, Port as _, Socket, SocketConfig, Steer, Umem, UmemConfig, Wait, XskError, XskPort,
};

use super::finish::finish_received;
use super::judge::{Arriving, Judge, JudgeError, Judged};
use super::redirect::RedirectTarget;
use crate::live::{
    Hook, LiveError, SwitchedOff, checksums_of, find_all, refuse_hidden_tags, unattached_ports,
};

/// How often it is looked whether interfaces are still there.
const LOOK: Duration = Duration::from_millis(100);
/// Longest sleep, so that signals are seen in time.
const SLEEP: Duration = Duration::from_millis(20);
/// How long frames that are queued may take to leave at the end.
const PATIENCE: Duration = Duration::from_secs(2);
/// Frames of the stack that are still carried out at the end; more than a tap's queue of 1,000 holds.
const LEFT: usize = 4096;
/// Longer than any frame of a tap: 64 KiB, and tags.
const LONGEST: usize = 66_000;

/// Sockets of each interface.
#[derive(Clone, Copy, Debug)]
pub struct Sockets {
    /// How many, on queues from `socket.queue` on; none: one for each queue that the interface has from there on.
    pub count: Option<u32>,
    /// The steering program runs in the stack instead of the driver.
    pub generic: bool,
    /// Frames of each socket.
    pub umem: UmemConfig,
    /// Rings, mode and polling of each socket.
    pub socket: SocketConfig,
    /// How to wait for frames.
    pub wait: Wait,
    /// Frames taken from a socket at once.
    pub batch: usize,
}

/// Where frames go that pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToStack {
    /// To the stack as received by this tap device, which is made unless it is there; what the stack sends to it leaves by the interface.
    Tap(String),
    /// Nowhere: passing is a loss by name.
    Nowhere,
    /// Out by the other of two interfaces.
    Across,
}

/// One interface to serve.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Its name.
    pub interface: String,
    /// Where frames go that pass.
    pub to: ToStack,
}

/// Why ports cannot be opened, or not go on.
#[derive(Debug, thiserror::Error)]
pub enum XskPortsError {
    /// A socket, its interface or the steering program.
    #[error(transparent)]
    Xsk(#[from] XskError),
    /// Interfaces that do not fit.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// The judge.
    #[error(transparent)]
    Judge(#[from] JudgeError),
    /// A tap failed in a way that ends the service.
    #[error("cannot read from {tap}: {source}")]
    Tap {
        /// Its name.
        tap: String,
        /// What the system said.
        source: io::Error,
    },
    /// What was asked for cannot be.
    #[error("{0}")]
    Usage(String),
}

impl XskPortsError {
    /// Whether what was asked for is wrong, rather than the host.
    pub fn is_usage(&self) -> bool {
        match self {
            XskPortsError::Usage(_) => true,
            XskPortsError::Live(e) => e.is_usage(),
            XskPortsError::Xsk(e) => matches!(
                e,
                XskError::RingSize { .. }
                    | XskError::FrameSize { .. }
                    | XskError::FrameCount { .. }
                    | XskError::NoSuchQueue { .. }
                    | XskError::Excluded(_)
            ),
            XskPortsError::Judge(_) | XskPortsError::Tap { .. } => false,
        }
    }
}

impl From<KernelError> for XskPortsError {
    fn from(error: KernelError) -> Self {
        XskPortsError::Xsk(error.into())
    }
}

/// What became of the frames of one interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PortLedger {
    /// Its name.
    pub interface: String,
    /// Handed to the sockets, as the steering program counted.
    pub steered: u64,
    /// Came on queues without a socket, and went to the interface's own stack unjudged.
    pub unserved: u64,
    /// Handed over and lost: no frame to receive into, or it did not fit one.
    pub rx_dropped: u64,
    /// Handed over and lost: the RX ring was full.
    pub rx_ring_full: u64,
    /// Judged; the five verdicts below add up to it.
    pub received: u64,
    /// Verdict aborted, or a fault.
    pub aborted: u64,
    /// Verdict drop.
    pub drop: u64,
    /// Verdict pass.
    pub pass: u64,
    /// Verdict tx.
    pub tx: u64,
    /// Verdict redirect.
    pub redirect: u64,
    /// The tap that leads to the stack.
    pub to_stack: Option<String>,
    /// Frames that the stack took.
    pub stack: u64,
    /// For the stack, and lost: there is no way to it.
    pub no_stack: u64,
    /// For the stack, and lost: the tap was down.
    pub stack_down: u64,
    /// For the stack, and lost: it had no room.
    pub stack_full: u64,
    /// For the stack, which refused them for another reason.
    pub stack_refused: u64,
    /// Frames that the stack sent to the tap.
    pub from_stack: u64,
    /// Frames that were to leave by this interface, whoever sent them there.
    pub leaving: u64,
    /// Frames that left.
    pub sent: u64,
    /// To leave, and lost: the device dropped them.
    pub refused: u64,
    /// To leave, and lost: no room in the TX ring.
    pub no_room: u64,
    /// To leave, and lost: longer than a frame's memory.
    pub too_big: u64,
    /// To leave, and lost: the kernel did not take the descriptor.
    pub tx_invalid: u64,
    /// Still queued at the end.
    pub unsent: u64,
    /// The sockets, by queue.
    pub sockets: Vec<SocketFacts>,
}

/// What holds of one socket, as the kernel tells.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SocketFacts {
    /// Its queue.
    pub queue: u32,
    /// `copy` or `zero-copy`.
    pub mode: &'static str,
    /// Whether busy polling can take effect; none if it was not asked for.
    pub busy_poll_effective: Option<bool>,
    /// System calls to send and to wake the kernel; sleeps serve all sockets and are not counted.
    pub calls: u64,
}

/// What became of all frames.
#[derive(Clone, Debug, Default, Serialize)]
pub struct XskLedger {
    /// By interface, in the order given.
    pub ports: Vec<PortLedger>,
    /// Targets of redirects beyond the first: copies of broadcasts.
    pub copies: u64,
    /// Redirected to an interface that is not served, or to an empty entry.
    pub no_port: u64,
    /// Redirected to another CPU than the first; there is one.
    pub no_worker: u64,
    /// Redirected to a socket of the program's own map, which has none here.
    pub no_socket: u64,
    /// Redirected by an entry with a second program, which is not run.
    pub second_program: u64,
    /// Frames at which the program faulted; they are among the aborted.
    pub faults: u64,
    /// The first fault.
    #[serde(skip)]
    pub first_fault: Option<String>,
    /// Whether the account adds up, packet for packet.
    pub balanced: bool,
}

impl PortLedger {
    /// Losses with names, behind the verdict.
    pub fn losses(&self) -> [(&'static str, u64); 11] {
        [
            ("rx_dropped", self.rx_dropped),
            ("rx_ring_full", self.rx_ring_full),
            ("no_stack", self.no_stack),
            ("stack_down", self.stack_down),
            ("stack_full", self.stack_full),
            ("stack_refused", self.stack_refused),
            ("refused", self.refused),
            ("no_room", self.no_room),
            ("too_big", self.too_big),
            ("tx_invalid", self.tx_invalid),
            ("unsent", self.unsent),
        ]
    }

    fn adds_up(&self) -> bool {
        self.steered == self.received + self.rx_dropped + self.rx_ring_full
            && self.received == self.aborted + self.drop + self.pass + self.tx + self.redirect
            && self.leaving
                == self.sent
                    + self.refused
                    + self.no_room
                    + self.too_big
                    + self.tx_invalid
                    + self.unsent
    }
}

impl XskLedger {
    fn adds_up(&self) -> bool {
        let to_go: u64 = self
            .ports
            .iter()
            .map(|p| p.pass + p.tx + p.redirect + p.from_stack)
            .sum();
        let went: u64 = self
            .ports
            .iter()
            .map(|p| {
                p.stack + p.no_stack + p.stack_down + p.stack_full + p.stack_refused + p.leaving
            })
            .sum();
        self.ports.iter().all(PortLedger::adds_up)
            && to_go + self.copies
                == went + self.no_port + self.no_worker + self.no_socket + self.second_program
    }
}

/// Interfaces as a policy's plan knows them.
#[derive(Clone, Debug)]
pub struct PlannedPorts {
    /// Numbers from 1 in the order given.
    pub ports: Vec<PlanPort>,
    /// The least MTU.
    pub mtu: Option<u32>,
    /// What the user should know, a line each.
    pub notes: Vec<String>,
}

impl PlannedPorts {
    /// Looks the interfaces up.
    ///
    /// # Errors
    /// One of them is not there, or named twice.
    pub fn of(wanted: &[Wanted], policy: &Policy) -> Result<PlannedPorts, XskPortsError> {
        let names: Vec<String> = wanted.iter().map(|w| w.interface.clone()).collect();
        let interfaces = find_all(&names)?;
        Ok(PlannedPorts {
            mtu: interfaces.iter().map(|i| i.mtu).min(),
            notes: unattached_ports(policy.rules.iter(), &interfaces),
            ports: (1u32..)
                .zip(interfaces)
                .map(|(number, i)| PlanPort {
                    number,
                    name: Some(i.name),
                    index: i.ifindex,
                })
                .collect(),
        })
    }
}

/// An interface as it is served. Fields end in their order: the program leaves before the sockets, which [`XskPorts`] has behind its places, close.
struct ServedInterface {
    steer: Steer,
    /// An offload that would have hidden VLAN tags.
    _tags: Option<SwitchedOff>,
    interface: Interface,
    to: ToStack,
    tap: Option<Tap>,
    /// Checksums may be unfinished.
    finishes: bool,
    /// The first of its sockets, and how many they are.
    first: usize,
    count: usize,
    /// Frames that found no room, before they were queued.
    full: u64,
    ledger: PortLedger,
}

/// A socket; none while it is being served.
struct Slot {
    place: usize,
    queue: u32,
    port: Option<XskPort>,
}

/// Interfaces, each with the steering program, sockets, and a way to the stack.
pub struct XskPorts {
    places: Vec<ServedInterface>,
    slots: Vec<Slot>,
    wait: Wait,
    batch: usize,
    work: Work,
    looked: Instant,
    notes: Vec<String>,
}

/// What frames go through, and what is counted of all of them.
#[derive(Default)]
struct Work {
    /// The frame as it is judged.
    arrived: Vec<u8>,
    /// The frame as it goes on.
    out: Vec<u8>,
    targets: Vec<RedirectTarget>,
    /// Further copies for the socket that is being served.
    again: Vec<Vec<u8>>,
    totals: XskLedger,
}

impl XskPorts {
    /// Opens everything. From here on the interfaces' frames wait to be judged. `checksums`: how to read them; none: by driver. `vlan`: frames are told by their VLAN tags, and
    /// must have them.
    ///
    /// # Errors
    /// An interface, a socket, a tap or a setting cannot be; nothing is left of what was opened before.
    pub fn open(
        wanted: &[Wanted],
        sockets: &Sockets,
        checksums: Option<ChecksumMode>,
        vlan: bool,
    ) -> Result<XskPorts, XskPortsError> {
        if wanted.iter().any(|w| w.to == ToStack::Across) && wanted.len() != 2 {
            return Err(XskPortsError::Usage(
                "a wire has two ends: name two interfaces".to_owned(),
            ));
        }
        if sockets.batch == 0 {
            return Err(XskPortsError::Usage(
                "a batch of 0 frames: at least 1".to_owned(),
            ));
        }
        let names: Vec<String> = wanted.iter().map(|w| w.interface.clone()).collect();
        let interfaces = find_all(&names)?;
        if vlan {
            refuse_hidden_tags(interfaces.iter())?;
        }
        let mode = if sockets.generic {
            XdpMode::Generic
        } else {
            XdpMode::Native
        };
        let mut ports = XskPorts {
            places: Vec::new(),
            slots: Vec::new(),
            wait: sockets.wait,
            batch: sockets.batch,
            work: Work::default(),
            looked: Instant::now(),
            notes: Vec::new(),
        };
        for (interface, wanted) in interfaces.into_iter().zip(wanted) {
            ports.open_one(interface, wanted, sockets, mode, checksums)?;
        }
        Ok(ports)
    }

    fn open_one(
        &mut self,
        interface: Interface,
        wanted: &Wanted,
        sockets: &Sockets,
        mode: XdpMode,
        checksums: Option<ChecksumMode>,
    ) -> Result<(), XskPortsError> {
        let name = interface.name.clone();
        let there = iface::queues(&name).map_or(1, |q| q.usable());
        let first_queue = sockets.socket.queue;
        let count = sockets
            .count
            .unwrap_or(there.saturating_sub(first_queue).max(1));
        if count == 0 || first_queue.saturating_add(count) > weir_xsk::steer::QUEUES {
            return Err(XskPortsError::Usage(format!(
                "{count} sockets from queue {first_queue} on: 1 to {} in all",
                weir_xsk::steer::QUEUES
            )));
        }
        if first_queue > 0 || first_queue + count < there {
            self.notes.push(format!(
                "{name} has {there} queues, and sockets are on {first_queue} to {}: what comes on the others goes to the stack of {name} unjudged",
                first_queue + count - 1
            ));
        }
        let tags = SwitchedOff::new(&name, Feature::RxVlan)?;
        if tags.is_some() && !interface.is_veth() {
            self.notes.push(format!(
                "{name}: rx-vlan-offload is off while weir runs, so that VLAN tags stay in the frame; it is restored at the end"
            ));
        }
        // The tap before the program: a name that cannot be takes no frame from the stack.
        let tap = match &wanted.to {
            ToStack::Tap(tap) => {
                let (opened, made) = Tap::beside(tap, &interface)?;
                let how = if made { "made" } else { "there" };
                self.notes.push(format!(
                    "{name}: what passes is received by {tap} ({how}); addresses belong there"
                ));
                Some(opened)
            }
            ToStack::Nowhere | ToStack::Across => None,
        };
        let steer = Steer::attach(&name, mode, Match::All, false)?;
        let at = self.places.len();
        let first = self.slots.len();
        let checksums = checksums.unwrap_or_else(|| checksums_of(&interface, Hook::Xdp(mode)));
        self.places.push(ServedInterface {
            steer,
            _tags: tags,
            to: wanted.to.clone(),
            finishes: checksums == ChecksumMode::Offloaded,
            first,
            count: count as usize,
            full: 0,
            ledger: PortLedger {
                interface: name.clone(),
                to_stack: match &wanted.to {
                    ToStack::Tap(tap) => Some(tap.clone()),
                    _ => None,
                },
                ..PortLedger::default()
            },
            tap,
            interface,
        });
        for n in 0..count {
            let config = SocketConfig {
                queue: first_queue + n,
                ..sockets.socket
            };
            let (umem, frames) = Umem::new(&sockets.umem)?;
            let socket = Socket::open(&umem, &name, &config)?;
            let port = XskPort::new(socket, frames)?;
            self.places[at].steer.add(port.socket())?;
            self.slots.push(Slot {
                place: at,
                queue: config.queue,
                port: Some(port),
            });
        }
        Ok(())
    }

    /// What the user should know, a line each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Serves until `stop` is set or `until` is reached.
    ///
    /// # Errors
    /// An interface went down or away, or the judge cannot go on. [`XskPorts::finish`] still accounts for everything.
    pub fn serve(
        &mut self,
        judge: &mut dyn Judge,
        stop: &AtomicBool,
        until: Instant,
    ) -> Result<(), XskPortsError> {
        loop {
            let now = Instant::now();
            if stop.load(Ordering::Relaxed) || now >= until {
                return Ok(());
            }
            let mut any = false;
            for at in 0..self.slots.len() {
                any |= self.round(at, judge)? > 0;
            }
            for at in 0..self.places.len() {
                any |= self.carry_out(at, self.batch)? > 0;
            }
            self.flush()?;
            if now - self.looked >= LOOK {
                self.looked = now;
                self.look()?;
            }
            if !any {
                self.wait(until - now)?;
            }
        }
    }

    /// Takes the programs off, judges what was handed over until then, lets what is queued leave, and says what became of everything.
    pub fn finish(mut self, judge: &mut dyn Judge) -> (XskLedger, Option<XskPortsError>) {
        let mut failed = self.drain(judge).err();
        let mut ledger = self.work.totals.clone();
        for at in 0..self.places.len() {
            if let Err(error) = self.account(at) {
                failed.get_or_insert(error);
            }
            ledger.ports.push(self.places[at].ledger.clone());
        }
        ledger.balanced = ledger.adds_up();
        (ledger, failed)
    }

    /// The account until now; what is on its way is not in it.
    ///
    /// # Errors
    /// The kernel does not tell its counts.
    pub fn ledger(&mut self) -> Result<XskLedger, XskPortsError> {
        let mut ledger = self.work.totals.clone();
        for at in 0..self.places.len() {
            self.account(at)?;
            ledger.ports.push(self.places[at].ledger.clone());
        }
        ledger.balanced = ledger.adds_up();
        Ok(ledger)
    }

    fn drain(&mut self, judge: &mut dyn Judge) -> Result<(), XskPortsError> {
        let mut failed = None;
        for place in &mut self.places {
            if let Err(error) = place.steer.stop() {
                failed.get_or_insert(error);
            }
        }
        for at in 0..self.slots.len() {
            // A socket of a link that went down still has what came before.
            while self.round(at, judge)? > 0 {}
        }
        for at in 0..self.places.len() {
            let mut left = LEFT;
            while left > 0 {
                match self.carry_out(at, self.batch.min(left))? {
                    0 => break,
                    read => left -= read,
                }
                self.flush()?;
            }
        }
        let end = Instant::now() + PATIENCE;
        while self.flush()? > 0 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        failed.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Judges what one socket received. Returns how many frames.
    fn round(&mut self, at: usize, judge: &mut dyn Judge) -> Result<usize, XskPortsError> {
        let XskPorts {
            places,
            slots,
            work,
            batch,
            ..
        } = self;
        let (home, queue) = (slots[at].place, slots[at].queue);
        let Some(mut port) = slots[at].port.take() else {
            return Ok(0);
        };
        let mut failed: Option<XskPortsError> = None;
        let mut now_ns = 0;
        let result = port.exchange(*batch, |mut lent| {
            if now_ns == 0 {
                now_ns = monotonic_ns();
            }
            let place = &mut places[home];
            place.ledger.received += 1;
            work.arrived.clear();
            lent.copy_to(&mut work.arrived);
            if place.finishes {
                finish_received(&mut work.arrived);
            }
            let arriving = Arriving {
                frame: &work.arrived,
                now_ns,
                ifindex: place.interface.ifindex,
                port: home as u32 + 1,
                queue,
            };
            work.targets.clear();
            let verdict = match judge.judge(&arriving, &mut work.out, &mut work.targets) {
                Ok(Judged::Verdict(verdict)) => verdict,
                Ok(Judged::Fault(fault)) => {
                    work.totals.faults += 1;
                    work.totals
                        .first_fault
                        .get_or_insert_with(|| fault.to_string());
                    Verdict::Aborted
                }
                Err(error) => {
                    failed.get_or_insert(error.into());
                    Verdict::Aborted
                }
            };
            let ledger = &mut place.ledger;
            let back = match verdict {
                Verdict::Aborted => {
                    ledger.aborted += 1;
                    false
                }
                Verdict::Drop => {
                    ledger.drop += 1;
                    false
                }
                Verdict::Pass => {
                    ledger.pass += 1;
                    match pass(places, slots, home, queue, &work.out) {
                        Ok(()) => {}
                        Err(error) => drop(failed.get_or_insert(error.into())),
                    }
                    false
                }
                Verdict::Tx => {
                    ledger.tx += 1;
                    true
                }
                Verdict::Redirect => {
                    ledger.redirect += 1;
                    match redirect(places, slots, home, queue, work) {
                        Ok(back) => back,
                        Err(error) => {
                            failed.get_or_insert(error.into());
                            false
                        }
                    }
                }
            };
            if !back {
                return false;
            }
            let ledger = &mut places[home].ledger;
            ledger.leaving += 1;
            let fits = lent.replace(&work.out);
            ledger.too_big += u64::from(!fits);
            fits
        });
        for frame in work.again.drain(..) {
            if let Err(error) = leave(&mut port, &mut places[home], &frame) {
                failed.get_or_insert(error.into());
            }
        }
        slots[at].port = Some(port);
        match failed {
            Some(error) => Err(error),
            None => Ok(result?.received),
        }
    }

    /// Carries up to `most` frames from the stack to the interface. Returns how many.
    fn carry_out(&mut self, at: usize, most: usize) -> Result<usize, XskPortsError> {
        let place = &mut self.places[at];
        let Some(port) = self.slots[place.first].port.as_mut() else {
            return Ok(0);
        };
        self.work.arrived.resize(LONGEST, 0);
        let mut read = 0;
        while let (true, Some(tap)) = (read < most, &place.tap) {
            let len = tap.read_frame(&mut self.work.arrived);
            let len = len.map_err(|source| XskPortsError::Tap {
                tap: place.ledger.to_stack.clone().unwrap_or_default(),
                source,
            })?;
            let Some(len) = len else { break };
            read += 1;
            place.ledger.from_stack += 1;
            leave(port, place, &self.work.arrived[..len])?;
        }
        Ok(read)
    }

    /// Makes what is queued leave. Returns how many frames are left.
    fn flush(&mut self) -> Result<usize, XskPortsError> {
        let mut left = 0;
        for slot in &mut self.slots {
            if let Some(port) = &mut slot.port {
                left += port.flush()?;
            }
        }
        Ok(left)
    }

    /// Whether all interfaces are there and up. One without a carrier may get it back.
    fn look(&self) -> Result<(), XskPortsError> {
        for place in &self.places {
            if let Some(port) = &self.slots[place.first].port {
                match port.check_link() {
                    Err(XskError::NoCarrier { .. }) | Ok(()) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    /// Waits until frames come, or not for long.
    fn wait(&mut self, left: Duration) -> Result<(), XskPortsError> {
        if self.wait != Wait::Poll {
            for slot in &mut self.slots {
                if let Some(port) = &mut slot.port {
                    port.wait(self.wait, Duration::ZERO)?;
                }
            }
            return Ok(());
        }
        let mut sleep = SLEEP.min(left);
        // `poll` on a socket sends, too, and does not tell what the device dropped: those with something to send are left out, and soon looked at again.
        let mut idle = Vec::with_capacity(self.slots.len());
        for (at, slot) in self.slots.iter_mut().enumerate() {
            if slot.port.as_mut().is_some_and(|port| port.unsent() > 0) {
                sleep = sleep.min(Duration::from_millis(1));
            } else {
                idle.push(at);
            }
        }
        let sockets = idle
            .iter()
            .filter_map(|at| self.slots[*at].port.as_ref())
            .map(|port| port.socket().as_fd());
        let taps = self
            .places
            .iter()
            .filter_map(|place| place.tap.as_ref())
            .map(AsFd::as_fd);
        let mut fds: Vec<PollFd<'_>> = sockets
            .chain(taps)
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let time = Timespec {
            tv_sec: 0,
            tv_nsec: sleep.subsec_nanos().into(),
        };
        // Interrupted or not, the loop looks at everything again.
        let _ = poll(&mut fds, Some(&time));
        Ok(())
    }

    /// Brings the counts of the kernel into the ledger of a place.
    fn account(&mut self, at: usize) -> Result<(), XskPortsError> {
        let place = &mut self.places[at];
        let counted = place.steer.counted()?;
        let ledger = &mut place.ledger;
        ledger.steered = counted.steered;
        ledger.unserved = counted.lonely;
        ledger.sockets.clear();
        (ledger.rx_dropped, ledger.rx_ring_full, ledger.refused) = (0, 0, 0);
        (ledger.tx_invalid, ledger.unsent) = (0, 0);
        let (mut handed, mut in_ring) = (0, 0);
        ledger.no_room = place.full;
        for slot in &mut self.slots[place.first..place.first + place.count] {
            let Some(port) = &mut slot.port else { continue };
            let losses = port.losses()?;
            ledger.rx_dropped += losses.rx_dropped;
            ledger.rx_ring_full += losses.rx_ring_full;
            ledger.refused += losses.refused;
            ledger.tx_invalid += losses.tx_invalid;
            ledger.no_room += losses.no_room;
            ledger.unsent += port.unsent();
            in_ring += u64::from(port.in_ring());
            handed += port.handed();
            let effective = port.socket().effective()?;
            let busy_poll = port.socket().config().busy_poll;
            ledger.sockets.push(SocketFacts {
                queue: slot.queue,
                mode: if effective.zero_copy {
                    "zero-copy"
                } else {
                    "copy"
                },
                busy_poll_effective: busy_poll.map(|_| effective.napi_id != 0),
                calls: port.calls(),
            });
        }
        // Counted at the rings, not as the rest of what was to leave.
        ledger.sent = handed.saturating_sub(in_ring + ledger.refused + ledger.tx_invalid);
        Ok(())
    }
}

/// Gives a frame that passed to the stack, or what stands for it.
fn pass(
    places: &mut [ServedInterface],
    slots: &mut [Slot],
    home: usize,
    queue: u32,
    frame: &[u8],
) -> Result<(), XskError> {
    let place = &mut places[home];
    if place.to == ToStack::Across {
        return leave_by(places, slots, 1 - home, queue, frame);
    }
    let ledger = &mut place.ledger;
    let Some(tap) = &place.tap else {
        ledger.no_stack += 1;
        return Ok(());
    };
    let count = match tap.write_frame(frame) {
        Ok(()) => &mut ledger.stack,
        Err(error) => match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::IO) => &mut ledger.stack_down,
            Some(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => &mut ledger.stack_full,
            _ => &mut ledger.stack_refused,
        },
    };
    *count += 1;
    Ok(())
}

/// Sends a frame to the targets of its redirect. Returns whether it goes back by the socket that it came by.
fn redirect(
    places: &mut [ServedInterface],
    slots: &mut [Slot],
    home: usize,
    queue: u32,
    work: &mut Work,
) -> Result<bool, XskError> {
    let mut back = false;
    work.totals.copies += work.targets.len().saturating_sub(1) as u64;
    for target in &work.targets {
        match *target {
            RedirectTarget::Interface(ifindex) => {
                match places.iter().position(|p| p.interface.ifindex == ifindex) {
                    Some(to) if to == home && !back => back = true,
                    Some(to) if to == home => {
                        work.again.push(work.out.clone());
                    }
                    Some(to) => leave_by(places, slots, to, queue, &work.out)?,
                    None => work.totals.no_port += 1,
                }
            }
            RedirectTarget::Cpu { cpu: 0, .. } => pass(places, slots, home, queue, &work.out)?,
            RedirectTarget::Cpu { .. } => work.totals.no_worker += 1,
            RedirectTarget::Socket => work.totals.no_socket += 1,
            RedirectTarget::SecondProgram => work.totals.second_program += 1,
            RedirectTarget::Nothing => work.totals.no_port += 1,
        }
    }
    Ok(back)
}

/// Queues a frame at another interface: always at the same socket for one queue, which keeps its order.
fn leave_by(
    places: &mut [ServedInterface],
    slots: &mut [Slot],
    to: usize,
    queue: u32,
    frame: &[u8],
) -> Result<(), XskError> {
    let place = &mut places[to];
    let slot = place.first + queue as usize % place.count;
    match slots.get_mut(slot).and_then(|slot| slot.port.as_mut()) {
        Some(port) => leave(port, place, frame),
        None => {
            place.ledger.leaving += 1;
            place.full += 1;
            Ok(())
        }
    }
}

/// Queues a frame.
fn leave(port: &mut XskPort, place: &mut ServedInterface, frame: &[u8]) -> Result<(), XskError> {
    place.ledger.leaving += 1;
    let long = frame.len() > port.socket().umem().frame_room();
    if long && !port.socket().config().multi_buffer {
        place.ledger.too_big += 1;
        return Ok(());
    }
    for again in [false, true] {
        if again {
            port.flush()?;
        }
        let mut rest = frame;
        let queued = port.queue(frame.len(), |_, to| {
            let (part, more) = rest.split_at(to.len().min(rest.len()));
            to[..part.len()].copy_from_slice(part);
            rest = more;
        })?;
        if queued {
            return Ok(());
        }
    }
    place.full += 1;
    Ok(())
}

fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    (now.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(now.tv_nsec as u64)
}
