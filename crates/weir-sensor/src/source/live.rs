//! Interfaces as a source: packet sockets with mapped rings, whose packets carry the kernel's time and what it knows of their checksums, and get back the VLAN tag that the device took out.
//!
//! A link that goes away is waited for: the socket of one that was taken down goes on by itself when it is up again, one that was removed is opened anew. Each such time is told once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::AsFd;
use weir_xsk::{
    BypassConfig, BypassFlow, Checksum, PacketConfig, PacketPort, Port, XskError, monotonic_ns,
};

use super::batch::{Batch, CHUNK};
use super::ring_group::RingGroup;
use super::shed::Shedder;
use super::{
    Bypass, BypassCounts, Filled, Gap, KeptAway, Notice, ShedCounts, Source, SourceCounts,
    SourceError,
};
use crate::decode::Sums;
use crate::flow::Info;

/// Where packets of flows that are let go are kept away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BypassMode {
    /// Nowhere: they are read.
    None,
    /// At the socket, if the kernel lets this process; else they are read, which is said.
    #[default]
    Auto,
    /// At the socket.
    Socket,
    /// In XDP, where they are dropped; what leaves by the interface at the socket.
    Xdp,
}

/// How interfaces are listened to.
#[derive(Clone, Copy, Debug)]
pub struct LiveOptions {
    /// Bytes of the ring that the kernel writes into, of each interface.
    pub ring: usize,
    /// How long a call waits for packets.
    pub wait: Duration,
    /// Share each interface with the other sensors of this number: all packets between two addresses come to one of them.
    pub cluster: Option<u16>,
    /// An interface that was removed is opened anew when it is there again; else the source ends with an error, as no socket can be opened.
    pub reopens: bool,
    /// Where packets of flows that are let go are kept away.
    pub bypass: BypassMode,
    /// Flows of which they are, at the same time.
    pub bypass_flows: u32,
    /// Whether flows of different VLANs are different.
    pub vlans: bool,
    /// While rings fill faster than they are read, flows are left out, the newest first.
    pub sheds: bool,
}

impl Default for LiveOptions {
    fn default() -> Self {
        LiveOptions {
            ring: 64 << 20,
            wait: Duration::from_millis(100),
            cluster: None,
            reopens: true,
            bypass: BypassMode::Auto,
            bypass_flows: 32_768,
            vlans: true,
            sheds: false,
        }
    }
}

/// Packets of one batch at most: one that waits for the others is looked at late.
const MOST: usize = 4096;
/// Packets that are taken at once.
const SOME: usize = 64;
/// Bytes of a block of the ring.
const BLOCK: u32 = 1 << 18;
/// Milliseconds after which the kernel hands over a block of the ring that is not full; and how long after the last packet it surely has.
const RETIRE: u32 = 10;
const CLOSES: Duration = Duration::from_millis(100);
/// How often a link is looked at from which nothing comes.
const LOOK: Duration = Duration::from_millis(500);
/// The most interfaces: frames say in a byte which one they are from.
const MOST_INTERFACES: usize = 64;

/// Interfaces of the current network namespace.
#[derive(Debug)]
pub struct Interfaces {
    ports: Vec<Listener>,
    options: LiveOptions,
    counts: SourceCounts,
    notices: Vec<Notice>,
    /// Since when nothing more is received.
    closed: Option<Instant>,
    bypass: Option<Arc<KernelBypass>>,
    /// The ring of one of several workers, with its number.
    ring: Option<(Arc<RingGroup>, usize)>,
    shedder: Shedder,
}

/// The kernel's part of flows that are let go.
#[derive(Debug)]
struct KernelBypass {
    kernel: weir_xsk::Bypass,
    /// Tags tell flows apart.
    vlans: bool,
    /// Flows that the kernel refused.
    refused: AtomicU64,
}

/// One of them.
#[derive(Debug)]
struct Listener {
    name: String,
    /// None if the interface was removed.
    port: Option<PacketPort>,
    /// Packets of this socket that were read.
    read: u64,
    /// What came to sockets that are no more, what they lost, and what was in their rings.
    before: [u64; 3],
    /// Since when its link is away, and why.
    away: Option<(u64, String)>,
    /// When the link was looked at last, or packets came.
    looked: Instant,
    /// The socket has the filter.
    filtered: bool,
}

impl Interfaces {
    /// Begins to listen, to everything that comes in or leaves by them.
    ///
    /// # Errors
    /// No permission, no such interface, no memory for the ring.
    pub fn open(names: &[String], options: LiveOptions) -> Result<Interfaces, SourceError> {
        Interfaces::begin(names, options, None, None)
    }

    /// The rings of one worker of several. `first`: those of the first one, if it is another.
    ///
    /// # Errors
    /// As [`Interfaces::open`].
    pub(super) fn open_ring(
        names: &[String],
        options: LiveOptions,
        (group, number): (&Arc<RingGroup>, usize),
        first: Option<&Interfaces>,
    ) -> Result<Interfaces, SourceError> {
        let ring = Some((Arc::clone(group), number));
        Interfaces::begin(names, options, ring, first)
    }

    fn begin(
        names: &[String],
        options: LiveOptions,
        ring: Option<(Arc<RingGroup>, usize)>,
        first: Option<&Interfaces>,
    ) -> Result<Interfaces, SourceError> {
        if names.len() > MOST_INTERFACES {
            return Err(SourceError::Interface {
                interface: names.join(", "),
                message: format!("at most {MOST_INTERFACES} interfaces are listened to"),
            });
        }
        let open = |name: &String| {
            let port =
                listen(name, options, ring.as_ref()).map_err(|e| SourceError::Interface {
                    interface: name.clone(),
                    message: e.to_string(),
                })?;
            Ok(Listener {
                name: name.clone(),
                port: Some(port),
                read: 0,
                before: [0; 3],
                away: None,
                looked: Instant::now(),
                filtered: false,
            })
        };
        let ports = names.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let mut all = Interfaces {
            ports,
            options,
            counts: SourceCounts::default(),
            notices: Vec::new(),
            closed: None,
            bypass: None,
            ring: ring.clone(),
            shedder: Shedder::default(),
        };
        if let Some(first) = first {
            all.bypass.clone_from(&first.bypass);
            for at in 0..all.ports.len() {
                all.look(at);
            }
            return Ok(all);
        }
        match all.load_bypass(names) {
            Ok(bypass) => all.bypass = bypass.map(Arc::new),
            Err(e) if options.bypass == BypassMode::Auto && !options.sheds => {
                all.notices.push(Notice::NoBypass { why: e.to_string() })
            }
            Err(e) => {
                return Err(SourceError::Interface {
                    interface: names.join(", "),
                    message: e.to_string(),
                });
            }
        }
        // One that is down now is waited for, and that is said.
        for at in 0..all.ports.len() {
            all.look(at);
        }
        Ok(all)
    }

    fn load_bypass(&self, names: &[String]) -> Result<Option<KernelBypass>, XskError> {
        let options = self.options;
        if options.bypass == BypassMode::None && !options.sheds {
            return Ok(None);
        }
        let rings = (self.ring.as_ref()).map_or(1, |(group, _)| u32::from(group.workers()));
        let mut kernel = weir_xsk::Bypass::load(BypassConfig {
            flows: options.bypass_flows,
            vlans: options.vlans,
            rings,
            sheds: options.sheds,
        })?;
        if options.bypass == BypassMode::Xdp {
            kernel.drop_on(names, options.vlans)?;
        }
        Ok(Some(KernelBypass {
            kernel,
            vlans: options.vlans,
            refused: AtomicU64::new(0),
        }))
    }

    /// Gives sockets their filter once there is a flow for it.
    fn filter(&mut self) -> Result<(), SourceError> {
        let Some(bypass) = self.bypass.as_ref().filter(|b| b.kernel.is_wanted()) else {
            return Ok(());
        };
        // A socket that is closed has stopped receiving in its own way.
        if self.closed.is_some() {
            return Ok(());
        }
        let ring = self.ring.as_ref().map_or(0, |(_, number)| *number);
        for listener in self.ports.iter_mut().filter(|l| !l.filtered) {
            if let Some(port) = &listener.port {
                (bypass.kernel.attach(port, ring)).map_err(|e| SourceError::Interface {
                    interface: listener.name.clone(),
                    message: e.to_string(),
                })?;
                listener.filtered = true;
            }
        }
        Ok(())
    }

    /// Decides what is left out, by how full the rings are.
    fn shed(&mut self) -> Result<(), SourceError> {
        let Some(bypass) = self.bypass.as_ref().filter(|_| self.options.sheds) else {
            return Ok(());
        };
        let ports = self.ports.iter().filter_map(|l| l.port.as_ref());
        if let Some(since) = self.shedder.look(ports) {
            let ring = self.ring.as_ref().map_or(0, |(_, number)| *number);
            let set = bypass.kernel.leave_out_since(ring, since);
            set.map_err(|e| SourceError::Interface {
                interface: self.names(),
                message: e.to_string(),
            })?;
        }
        Ok(())
    }

    /// Takes what is there.
    fn take(&mut self, batch: &mut Batch) -> bool {
        let counts = &mut self.counts;
        let (mut any, mut heard) = (false, false);
        for (number, listener) in self.ports.iter_mut().enumerate() {
            let Some(port) = &mut listener.port else {
                continue;
            };
            let (mut read, from) = (0, batch.used);
            // What a batch has stays in a cache, and rings are looked at between batches.
            while read < MOST && batch.used - from < CHUNK {
                let mut take = |seen: weir_xsk::Seen<'_>| {
                    let wire = u32::try_from(seen.len).unwrap_or(u32::MAX);
                    let tag = seen.tag.map(|(tpid, tci)| {
                        let (a, b) = (tpid.to_be_bytes(), tci.to_be_bytes());
                        [a[0], a[1], b[0], b[1]]
                    });
                    // A tag stands behind the two addresses.
                    match (tag, seen.bytes.split_at_checked(12)) {
                        (Some(tag), Some((addresses, rest))) => {
                            let parts = [addresses, &tag, rest];
                            batch.push(seen.time, &parts, wire.saturating_add(4), 1);
                        }
                        _ => {
                            batch.push(seen.time, &[seen.bytes], wire, 1);
                        }
                    }
                    if let Some(frame) = batch.frames.last_mut() {
                        frame.interface = number as u8;
                        frame.sums = match seen.checksum {
                            Checksum::Unknown => Sums::Unknown,
                            Checksum::Valid => Sums::Valid,
                            Checksum::Unfinished => Sums::Unfinished,
                        };
                    }
                    counts.frames += 1;
                    counts.wire_bytes += u64::from(wire);
                    counts.cut += u64::from((seen.bytes.len() as u64) < u64::from(wire));
                };
                let some = port.receive_seen(SOME, &mut take);
                read += some;
                if some < SOME {
                    break;
                }
            }
            listener.read += read as u64;
            if read > 0 {
                any = true;
                listener.looked = Instant::now();
                heard |= listener.away.is_some();
            }
        }
        if heard {
            for at in 0..self.ports.len() {
                self.look(at);
            }
        }
        if self.ports.len() > 1 {
            // Each ring is in order; together they are by their times.
            batch.frames.sort_by_key(|f| f.time);
        }
        any
    }

    /// Waits until something comes, or until links are to be looked at.
    fn wait(&mut self) -> Result<(), SourceError> {
        let here = |l: &&Listener| l.port.is_some() && l.away.is_none();
        let listening = self.ports.iter().filter(here);
        let mut ready: Vec<PollFd<'_>> = listening
            .filter_map(|l| l.port.as_ref())
            .map(|port| PollFd::from_borrowed_fd(port.as_fd(), PollFlags::IN))
            .collect();
        // A time that does not fit is for ever.
        let wait = Timespec::try_from(self.options.wait).ok();
        match poll(&mut ready, wait.as_ref()) {
            // A signal: the caller looks whether it is to stop.
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => {
                return Err(SourceError::Interface {
                    interface: self.names(),
                    message: e.to_string(),
                });
            }
        }
        let failed = ready
            .iter()
            .any(|one| one.revents().intersects(PollFlags::ERR | PollFlags::HUP));
        for at in 0..self.ports.len() {
            if failed {
                self.look(at);
            }
        }
        Ok(())
    }

    /// It is not one of several workers' rings, or it is the first: it speaks, and counts, for what they share.
    fn is_first(&self) -> bool {
        self.ring.as_ref().is_none_or(|(_, number)| *number == 0)
    }

    fn names(&self) -> String {
        let names: Vec<&str> = self.ports.iter().map(|l| l.name.as_str()).collect();
        names.join(", ")
    }

    /// Looks whether a link is there, and notes what has become of it.
    fn look(&mut self, at: usize) {
        let options = self.options;
        let Some(listener) = self.ports.get_mut(at) else {
            return;
        };
        listener.looked = Instant::now();
        let found = match &listener.port {
            Some(port) => port.forget_error().and_then(|()| port.check_link()),
            None if !options.reopens => return,
            None => listen(&listener.name, options, self.ring.as_ref()).and_then(|port| {
                let state = port.check_link();
                listener.port = Some(port);
                listener.filtered = false;
                state
            }),
        };
        if matches!(found, Err(XskError::Gone { .. }))
            && let Some(mut port) = listener.port.take()
            && let (Ok(received), Ok(losses)) = (port.received(), port.losses())
        {
            // Another one of its name has another socket.
            let read = std::mem::take(&mut listener.read);
            let rest = received.saturating_sub(read + losses.ring_drops);
            let more = [received, losses.ring_drops, rest];
            for (all, more) in listener.before.iter_mut().zip(more) {
                *all += more;
            }
        }
        match (found, &listener.away) {
            (Ok(()), None) | (Err(_), Some(_)) => {}
            (Err(e), None) => {
                let why = e.to_string();
                listener.away = Some((now(), why.clone()));
                self.notices.push(Notice::Down {
                    interface: listener.name.clone(),
                    why,
                });
            }
            (Ok(()), Some(_)) => self.back(at, true),
        }
    }

    /// Notes the time in which a link was away.
    fn back(&mut self, at: usize, back: bool) {
        if let Some(listener) = self.ports.get_mut(at)
            && let Some((from, why)) = listener.away.take()
        {
            let first = self.ring.as_ref().is_none_or(|(_, number)| *number == 0);
            self.counts.gaps += u64::from(first);
            self.notices.push(Notice::Gap(Gap {
                interface: listener.name.clone(),
                why,
                from,
                to: now(),
                back,
            }));
        }
    }
}

fn listen(
    name: &str,
    options: LiveOptions,
    ring: Option<&(Arc<RingGroup>, usize)>,
) -> Result<PacketPort, XskError> {
    let config = PacketConfig {
        block_size: BLOCK,
        blocks: u32::try_from(options.ring / BLOCK as usize)
            .unwrap_or(u32::MAX)
            .clamp(2, 1 << 14),
        retire_ms: RETIRE,
        slots: 0,
        // A host that looks at itself sees both ends of its connections.
        outgoing: true,
        cluster: options.cluster,
        ..PacketConfig::default()
    };
    match ring {
        Some((group, number)) => group.listen(name, *number, &config),
        None => PacketPort::open(name, &config),
    }
}

/// The system's clock, which frames have their times from.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_nanos() as u64
}

impl Source for Interfaces {
    fn fill(&mut self, batch: &mut Batch) -> Result<Filled, SourceError> {
        self.filter()?;
        self.shed()?;
        for at in 0..self.ports.len() {
            // One that is busy is there; the others do not wait for it to be quiet.
            if self.ports[at].looked.elapsed() >= LOOK {
                self.look(at);
            }
        }
        let is_gone = |l: &&Listener| !self.options.reopens && l.port.is_none();
        if let Some(gone) = self.ports.iter().find(is_gone) {
            return Err(SourceError::Interface {
                interface: gone.name.clone(),
                message: "the interface was removed, and a confined sensor cannot open another of its name: start it again".to_owned(),
            });
        }
        if !self.take(batch) {
            if self.closed.is_some_and(|since| since.elapsed() >= CLOSES) {
                return Ok(Filled::End);
            }
            self.wait()?;
            if !self.take(batch) {
                return Ok(Filled::Idle);
            }
        }
        Ok(Filled::Frames)
    }

    fn counts(&mut self) -> SourceCounts {
        let mut all = match &self.ring {
            Some((group, 0)) => group.lost(),
            _ => [0; 3],
        };
        for listener in &mut self.ports {
            let now = listener.port.as_mut().and_then(|port| {
                let (received, losses) = (port.received().ok()?, port.losses().ok()?);
                Some([received, losses.ring_drops, 0])
            });
            let now = now.unwrap_or_default();
            for (all, (before, now)) in all.iter_mut().zip(listener.before.iter().zip(now)) {
                *all += before + now;
            }
        }
        // The kernel counts for a socket what its filter takes.
        let bypass = self.bypass.as_deref().filter(|_| self.is_first());
        let kept_away = bypass.map_or(BypassCounts::default(), KernelBypass::counts);
        let shed = bypass.map_or(ShedCounts::default(), KernelBypass::shed);
        let counts = &mut self.counts;
        (counts.bypass, counts.shed) = (kept_away, shed);
        let [received, dropped, removed] = all;
        counts.kernel_packets = Some(received + kept_away.packets + shed.packets);
        (counts.kernel_drops, counts.removed) = (dropped, removed);
        *counts
    }

    fn is_live(&self) -> bool {
        true
    }

    fn notices(&mut self, ends: bool) -> Vec<Notice> {
        if ends {
            for at in 0..self.ports.len() {
                self.back(at, false);
            }
        }
        let all = std::mem::take(&mut self.notices);
        // Each of them sees the same links.
        if self.is_first() { all } else { Vec::new() }
    }

    fn close(&mut self) -> Result<bool, SourceError> {
        // First: to stop a socket waits for programs that run, and what is kept away is final then.
        if let Some(bypass) = &self.bypass {
            bypass.kernel.take_off();
        }
        for listener in &mut self.ports {
            let Some(port) = &mut listener.port else {
                continue;
            };
            // One that was removed has stopped.
            if let Err(e) = port.stop()
                && !matches!(port.check_link(), Err(XskError::Gone { .. }))
            {
                return Err(SourceError::Interface {
                    interface: listener.name.clone(),
                    message: e.to_string(),
                });
            }
        }
        self.closed = Some(Instant::now());
        Ok(true)
    }

    fn bypass(&self) -> Option<Arc<dyn Bypass>> {
        let bypass = self.bypass.clone()?;
        (self.options.bypass != BypassMode::None).then_some(bypass)
    }

    fn knows_sums(&self) -> bool {
        true
    }
}

impl KernelBypass {
    fn shed(&self) -> ShedCounts {
        // Its memory is mapped: it can be read.
        let shed = self.kernel.shed().unwrap_or_default();
        ShedCounts {
            packets: shed.packets,
            bytes: shed.bytes,
            flows: shed.flows,
        }
    }

    fn counts(&self) -> BypassCounts {
        let refused = self.refused.load(Ordering::Relaxed);
        match self.kernel.total() {
            Ok(total) => BypassCounts {
                packets: total.packets,
                bytes: total.bytes,
                late: total.late,
                refused: refused + total.full,
            },
            // Its memory is mapped: it can be read.
            Err(_) => BypassCounts {
                refused,
                ..BypassCounts::default()
            },
        }
    }

    fn kept(&self, found: Result<weir_xsk::Bypassed, XskError>) -> KeptAway {
        let Ok(found) = found else {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return KeptAway::default();
        };
        // Frames have the system's clock.
        let ago = monotonic_ns().saturating_sub(found.last_ns);
        KeptAway {
            packets: found.packets,
            bytes: found.bytes,
            last: match found.last_ns {
                0 => 0,
                _ => now().saturating_sub(ago),
            },
        }
    }
}

impl Bypass for KernelBypass {
    fn begin(&self, flow: &Info) -> Option<u32> {
        let ([first, second, _], vlans) = match self.vlans {
            true => (flow.vlan, flow.vlans),
            false => ([0; 3], 0),
        };
        // Its packets are told apart by less.
        if usize::from(vlans) > 2 || flow.depth > 0 || !matches!(flow.protocol, 6 | 17) {
            return None;
        }
        let flow = BypassFlow {
            ends: [flow.client, flow.server],
            ports: [flow.client_port, flow.server_port],
            protocol: flow.protocol,
            vlan: [first, second],
            vlans,
        };
        match self.kernel.begin(flow) {
            Ok(number) => number,
            Err(_) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                None
            }
        }
    }

    fn look(&self, number: u32) -> KeptAway {
        self.kept(self.kernel.look(number))
    }

    fn end(&self, number: u32) -> KeptAway {
        self.kept(self.kernel.end(number))
    }
}
