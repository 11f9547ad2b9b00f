//! Flows whose packets the kernel keeps away from packet sockets, and counts: `bpf/tools/bypass.c` as a filter of the socket, and as XDP on ports that carry a copy of traffic.
//!
//! A flow has a slot of counters in memory that is mapped here, so that to read them takes no system call, and two keys that lead to it, one for each direction. When it ends the keys
//! go first. A packet that was looked up just before may still be counted then: a slot rests before it is used again, and what came late is added to [`BypassTotal::late`].
//!
//! While the sensor cannot keep up, the same filter leaves flows out that began after a time that is set for a ring ([`Bypass::leave_out_since`]).
//!
//! Invariant: the packets of [`BypassTotal`] are those of all flows, ended or not, and the late ones. Nothing stays when the process ends, whatever ended it: no pins, and links that go with it.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use weir_bpf::abi::{BYPASS_VLANS, BypassCount, BypassKey, BypassSlot, SHED_TICK, ShedCount};
use weir_kernel::{
    KernelError, KernelObject, Link, LoadedProgram, MmapArray, XdpMode, addresses, iface, links,
    monotonic_ns, possible_cpus,
};
use zerocopy::IntoBytes as _;

use crate::{PacketPort, XskError};

/// Names of the programs and maps.
const FILTER: &str = "bypass_socket";
const XDP: &str = "bypass_xdp";
const FLOWS: &str = "bypass_flows";
const SLOTS: &str = "bypass_slots";
const TOTAL: &str = "bypass_total";
const SHED_SLOTS: &str = "shed_slots";
const SHED_SINCE: &str = "shed_since";
const SHED_TOTAL: &str = "shed_total";
/// Flows that are remembered while some may be left out: a power of two.
const REMEMBERED: u32 = 1 << 18;
/// How long a slot rests: longer than any run of a program.
const REST_NS: u64 = 1_000_000_000;

/// A flow: client and server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BypassFlow {
    /// Who opened it, and the other end.
    pub ends: [IpAddr; 2],
    /// Their ports.
    pub ports: [u16; 2],
    /// IANA number: TCP or UDP.
    pub protocol: u8,
    /// Identifiers of VLANs, the outermost first; `vlans` of them count.
    pub vlan: [u16; BYPASS_VLANS],
    /// How many.
    pub vlans: u8,
}

impl BypassFlow {
    /// The key of the client's packets (0) or the server's (1).
    fn key(&self, way: usize) -> BypassKey {
        let bytes = |address: IpAddr| {
            let mut bytes = [0; 16];
            match address {
                IpAddr::V4(a) => bytes[..4].copy_from_slice(&a.octets()),
                IpAddr::V6(a) => bytes = a.octets(),
            }
            bytes
        };
        let [from, to] = [way & 1, 1 - (way & 1)];
        BypassKey {
            source: bytes(self.ends[from]),
            destination: bytes(self.ends[to]),
            source_port: self.ports[from].to_be_bytes(),
            destination_port: self.ports[to].to_be_bytes(),
            vlan: self.vlan,
            protocol: self.protocol,
            version: if self.ends[0].is_ipv4() { 4 } else { 6 },
            vlans: self.vlans,
            pad: 0,
        }
    }
}

/// What was kept away of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bypassed {
    /// Packets of the client, and of the server.
    pub packets: [u64; 2],
    /// Their bytes.
    pub bytes: [u64; 2],
    /// When the last of them came, by `CLOCK_MONOTONIC`; 0: there was none.
    pub last_ns: u64,
}

/// What was kept away in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BypassTotal {
    /// Packets, as the programs count them.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Of those: packets counted for a flow after it had ended.
    pub late: u64,
    /// Flows that were read on, as there was no room for another.
    pub full: u64,
}

/// What was left out for load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shed {
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Flows, each as often as it was left out.
    pub flows: u64,
}

/// What filters do.
#[derive(Clone, Copy, Debug)]
pub struct BypassConfig {
    /// Flows whose packets may be kept away at the same time.
    pub flows: u32,
    /// Tags tell flows apart.
    pub vlans: bool,
    /// Rings, each with a filter.
    pub rings: u32,
    /// Flows may be left out for load.
    pub sheds: bool,
}

/// The programs, and the flows they know.
#[derive(Debug)]
pub struct Bypass {
    filter: LoadedProgram,
    /// Filters of the other rings, if they are others.
    more: Vec<LoadedProgram>,
    /// Times from which on flows are left out, by ring, and what was; none: none is.
    shed: Option<(MmapArray, MmapArray)>,
    slots: MmapArray,
    total: MmapArray,
    cpus: u32,
    /// A flow was added: until then sockets need no filter.
    wanted: AtomicBool,
    state: Mutex<State>,
    /// On ports with a copy of traffic, with what keeps it loaded.
    xdp: Option<(LoadedProgram, Mutex<Vec<Link>>)>,
}

#[derive(Debug)]
struct State {
    free: Vec<u32>,
    /// Whose each slot is.
    flows: Vec<Option<BypassFlow>>,
    /// Slots of ended flows, since when, and what was counted when they ended.
    resting: VecDeque<(u32, u64, u64)>,
    late: u64,
    full: u64,
}

impl Bypass {
    /// Loads the filters.
    ///
    /// # Errors
    /// The kernel refuses, above all without CAP_BPF.
    pub fn load(config: BypassConfig) -> Result<Bypass, XskError> {
        let cpus = u32::try_from(possible_cpus()?).unwrap_or(u32::MAX);
        let flows = config.flows;
        let open = |ring: u32| -> Result<KernelObject, KernelError> {
            let mut object = KernelObject::open(weir_bpf::tool("bypass").unwrap_or_default())?;
            object.set_rodata("bypass_vlans", &u32::from(config.vlans).to_ne_bytes())?;
            if config.sheds {
                object.set_rodata("shed_mask", &(REMEMBERED - 1).to_ne_bytes())?;
                object.set_rodata("shed_ring", &ring.to_ne_bytes())?;
            }
            Ok(object)
        };
        let mut object = open(0)?;
        object.set_map_entries(FLOWS, flows.saturating_mul(2))?;
        object.set_map_entries(SLOTS, flows)?;
        object.set_map_entries(TOTAL, cpus)?;
        if config.sheds {
            object.set_map_entries(SHED_SLOTS, REMEMBERED)?;
            object.set_map_entries(SHED_SINCE, config.rings)?;
            object.set_map_entries(SHED_TOTAL, cpus)?;
        }
        let filter = object.load(FILTER)?;
        let mut more = Vec::new();
        // Without a time of their own one does for all.
        let rings = if config.sheds { config.rings } else { 1 };
        for ring in 1..rings {
            let mut object = open(ring)?;
            for map in [FLOWS, SLOTS, TOTAL, SHED_SLOTS, SHED_SINCE, SHED_TOTAL] {
                object.reuse_map(map, &filter)?;
            }
            more.push(object.load(FILTER)?);
        }
        let shed = match config.sheds {
            true => Some((
                filter.mmap_array(SHED_SINCE)?,
                filter.mmap_array(SHED_TOTAL)?,
            )),
            false => None,
        };
        Ok(Bypass {
            slots: filter.mmap_array(SLOTS)?,
            total: filter.mmap_array(TOTAL)?,
            filter,
            more,
            shed,
            cpus,
            wanted: AtomicBool::new(config.sheds),
            state: Mutex::new(State {
                free: (0..flows).rev().collect(),
                flows: vec![None; flows as usize],
                resting: VecDeque::new(),
                late: 0,
                full: 0,
            }),
            xdp: None,
        })
    }

    /// Drops what is kept away where interfaces receive, too. For those that carry a copy of traffic only.
    ///
    /// # Errors
    /// One of them has an address, forwards, or has another XDP program; or the kernel refuses.
    pub fn drop_on(&mut self, names: &[String], vlans: bool) -> Result<(), XskError> {
        for name in names {
            carries_a_copy(name)?;
        }
        let mut object = KernelObject::open(weir_bpf::tool("bypass").unwrap_or_default())?;
        object.set_rodata("bypass_vlans", &u32::from(vlans).to_ne_bytes())?;
        for map in [FLOWS, SLOTS, TOTAL, SHED_SLOTS, SHED_SINCE, SHED_TOTAL] {
            object.reuse_map(map, &self.filter)?;
        }
        let program = object.load(XDP)?;
        let mut links = Vec::new();
        for name in names {
            let ifindex = iface::index_of(name)?;
            let native = program.attach_xdp(ifindex, XdpMode::Native);
            links.push(match native {
                // Drivers without XDP.
                Err(KernelError::Sys { .. }) => program.attach_xdp(ifindex, XdpMode::Generic)?,
                other => other?,
            });
        }
        self.xdp = Some((program, Mutex::new(links)));
        Ok(())
    }

    /// Takes the program off the interfaces, by closing what holds it there: a confined process may do that. Sockets keep theirs.
    pub fn take_off(&self) {
        if let Some((_, links)) = &self.xdp {
            (links.lock().unwrap_or_else(PoisonError::into_inner)).clear();
        }
    }

    /// Leaves flows of a ring out that began at this time or later, by `CLOCK_MONOTONIC`; none: no more than those that are left out already.
    ///
    /// # Errors
    /// There is no such ring.
    pub fn leave_out_since(&self, ring: usize, time_ns: Option<u64>) -> Result<(), XskError> {
        let Some((since, _)) = &self.shed else {
            return Ok(());
        };
        // A tick of 0 is none.
        let tick = time_ns.map_or(0, |ns| (ns >> SHED_TICK).max(1));
        Ok(since.write(ring * size_of::<u64>(), &tick.to_ne_bytes())?)
    }

    /// What was left out.
    ///
    /// # Errors
    /// The kernel's memory cannot be read; it always can.
    pub fn shed(&self) -> Result<Shed, XskError> {
        let mut all = Shed::default();
        let Some((_, total)) = &self.shed else {
            return Ok(all);
        };
        for cpu in 0..self.cpus {
            let at = cpu as usize * size_of::<ShedCount>();
            all.packets += self.word(total, at)?;
            all.bytes += self.word(total, at + 8)?;
            all.flows += self.word(total, at + 16)?;
        }
        Ok(all)
    }

    /// Whether a flow was ever added: before that a filter would only cost time.
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Acquire)
    }

    /// Filters what comes to a socket of a ring from here on.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn attach(&self, port: &PacketPort, ring: usize) -> Result<(), XskError> {
        let other = ring.checked_sub(1).and_then(|at| self.more.get(at));
        port.attach_program(other.unwrap_or(&self.filter).as_fd())
    }

    /// Keeps the packets of a flow away. The number of its slot; none if there is no room, which is counted.
    ///
    /// # Errors
    /// The kernel refuses, for another reason.
    pub fn begin(&self, flow: BypassFlow) -> Result<Option<u32>, XskError> {
        let mut state = self.lock();
        self.reuse(&mut state)?;
        if flow.key(0) == flow.key(1) {
            // Nothing tells its directions apart.
            state.full += 1;
            return Ok(None);
        }
        let Some(slot) = state.free.pop() else {
            state.full += 1;
            return Ok(None);
        };
        let fresh = BypassSlot::default();
        let at = self.at(slot);
        self.slots.write(at, fresh.as_bytes())?;
        for way in 0..2 {
            let key = flow.key(way);
            let value = slot << 1 | way as u32;
            let added = self
                .filter
                .update(FLOWS, key.as_bytes(), &value.to_ne_bytes(), 1);
            if added.is_err() {
                // There is no memory, or another flow has the key.
                if way == 1 {
                    self.filter.delete(FLOWS, flow.key(0).as_bytes())?;
                }
                let counted = self.read(slot)?.packets.iter().sum();
                state.resting.push_back((slot, monotonic_ns(), counted));
                state.late += counted;
                state.full += 1;
                return Ok(None);
            }
        }
        self.wanted.store(true, Ordering::Release);
        if let Some(whose) = state.flows.get_mut(slot as usize) {
            *whose = Some(flow);
        }
        Ok(Some(slot))
    }

    /// What was kept away until now of the flow of a slot.
    ///
    /// # Errors
    /// There is no such slot.
    pub fn look(&self, slot: u32) -> Result<Bypassed, XskError> {
        self.read(slot)
    }

    /// Lets the packets of the flow of a slot come again.
    ///
    /// # Errors
    /// There is no such slot, or the kernel refuses: then the slot is not used again.
    pub fn end(&self, slot: u32) -> Result<Bypassed, XskError> {
        let mut state = self.lock();
        let whose = state.flows.get_mut(slot as usize);
        let Some(flow) = whose.and_then(Option::take) else {
            return Ok(Bypassed::default());
        };
        for way in 0..2 {
            self.filter.delete(FLOWS, flow.key(way).as_bytes())?;
        }
        let counted = self.read(slot)?;
        let packets = counted.packets.iter().sum();
        state.resting.push_back((slot, monotonic_ns(), packets));
        Ok(counted)
    }

    /// What was kept away in all.
    ///
    /// # Errors
    /// The kernel's memory cannot be read; it always can.
    pub fn total(&self) -> Result<BypassTotal, XskError> {
        let state = self.lock();
        let mut all = BypassTotal {
            late: state.late,
            full: state.full,
            ..BypassTotal::default()
        };
        for (slot, _, counted) in &state.resting {
            let now: u64 = self.read(*slot)?.packets.iter().sum();
            all.late += now.saturating_sub(*counted);
        }
        for cpu in 0..self.cpus {
            let at = cpu as usize * size_of::<BypassCount>();
            all.packets += self.word(&self.total, at)?;
            all.bytes += self.word(&self.total, at + 8)?;
        }
        Ok(all)
    }

    /// Frees the slots that have rested.
    fn reuse(&self, state: &mut State) -> Result<(), XskError> {
        let now = monotonic_ns();
        while let Some((slot, since, counted)) = state.resting.front().copied()
            && now.saturating_sub(since) > REST_NS
        {
            let all: u64 = self.read(slot)?.packets.iter().sum();
            state.late += all.saturating_sub(counted);
            state.resting.pop_front();
            state.free.push(slot);
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn at(&self, slot: u32) -> usize {
        slot as usize * size_of::<BypassSlot>()
    }

    fn read(&self, slot: u32) -> Result<Bypassed, XskError> {
        let mut all = Bypassed::default();
        for way in 0..2 {
            let at = self.at(slot) + way * size_of::<BypassCount>();
            all.packets[way] = self.word(&self.slots, at)?;
            all.bytes[way] = self.word(&self.slots, at + 8)?;
            all.last_ns = all.last_ns.max(self.word(&self.slots, at + 16)?);
        }
        Ok(all)
    }

    fn word(&self, of: &MmapArray, at: usize) -> Result<u64, KernelError> {
        let mut bytes = [0; 8];
        of.read(at, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }
}

/// Whether nothing of the host's own comes in by an interface.
fn carries_a_copy(name: &str) -> Result<(), XskError> {
    let refused = |why: String| {
        Err(XskError::Excluded(format!(
            "{name} {why}: XDP would drop packets that others need. Use it on ports that carry a copy of traffic, and the socket filter (--bypass socket) elsewhere"
        )))
    };
    let ifindex = iface::index_of(name)?;
    let is_own = |a: &&addresses::OwnAddress| {
        // Each interface that is up has a link-local one.
        let local = matches!(a.address, IpAddr::V6(v6) if v6.is_unicast_link_local());
        a.device == ifindex && !local
    };
    if let Some(own) = addresses::read()?.iter().find(is_own) {
        return refused(format!("has the address {}", own.address));
    }
    for family in ["ipv4", "ipv6"] {
        let path = format!("/proc/sys/net/{family}/conf/{name}/forwarding");
        // Without the family there is nothing to forward.
        if std::fs::read_to_string(path).is_ok_and(|text| text.trim() == "1") {
            return refused(format!("forwards {family}"));
        }
    }
    match links::controller(name)? {
        Some(of) => refused(format!("is a port of {of}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow() -> BypassFlow {
        BypassFlow {
            ends: [IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2])],
            ports: [4000, 443],
            protocol: 6,
            vlan: [7, 0],
            vlans: 1,
        }
    }

    #[test]
    fn the_keys_of_a_flow_are_those_of_its_packets() {
        let [there, back] = [flow().key(0), flow().key(1)];
        assert_eq!(there.source[..5], [10, 0, 0, 1, 0]);
        assert_eq!(there.destination, back.source);
        assert_eq!(there.source_port, [0x0f, 0xa0]);
        assert_eq!(back.source_port, [0x01, 0xbb]);
        assert_eq!((back.vlan, back.vlans, back.version), ([7, 0], 1, 4));
    }
}
