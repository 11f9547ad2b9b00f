//! What becomes of a frame on one edge, by the tables alone: which functions have it, what each decides, and the frames that leave, byte for byte.
//!
//! The reference that the data plane is compared with: it shares no code with it, and reads the same tables. Not in it: the limit of floods
//! (it counts time), helpers (they are taken to listen, and to have installed no flow), what functions with programs of their own do (they
//! are asked for through [`Private`]; [`Functions`] knows balancers), and encapsulation, whose inner frames it gives with remote and identifier.

mod bridge;
mod chain;
mod frames;
mod functions;
mod guard;
mod punt;
mod router;
mod translate;

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use weir_bpf::abi::{ACCEPTS_NO_TENANT, NET_CALLS, NET_ROUNDS, Vi, exact_kind, net_slot};
use weir_packet::Reason;

use crate::exact::scope;
use crate::tables::Tables;
use crate::values::{Kind, Mac, number, words};
pub use functions::Functions;

use frames::{HEADER, ether_type, is_tag, word16};
use guard::Admitted;

/// An edge as packets see it: tables, and what was learned from packets before.
#[derive(Clone, Debug)]
pub struct Reference<'a> {
    tables: &'a Tables,
    stations: HashMap<(u32, u64), (u32, u32)>,
    neighbours: HashMap<(u32, [u64; 2]), Mac>,
}

/// Functions with programs of their own.
pub trait Private {
    /// What becomes of a frame that comes in by an interface of the function in a slot.
    ///
    /// # Errors
    /// Why it is dropped.
    fn pass(&mut self, slot: u32, vid: u32, frame: Vec<u8>) -> Result<Passed, &'static str>;
}

/// A frame that a function with a program of its own let through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passed {
    /// Its bytes.
    pub frame: Vec<u8>,
    /// It goes back by the interface that it came in by, not on by the other one.
    pub back: bool,
    /// What a balancer did.
    pub balanced: Option<Balanced>,
}

impl Passed {
    /// One that goes on.
    pub fn on(frame: Vec<u8>) -> Passed {
        Passed {
            frame,
            back: false,
            balanced: None,
        }
    }
}

/// What a balancer did with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balanced {
    /// It gave a flow to a server.
    Given {
        /// Where the packet went.
        service: SocketAddr,
        /// Where it goes.
        server: SocketAddr,
    },
    /// It made a server's packet one of the service.
    Returned {
        /// Where the packet came from.
        server: SocketAddr,
        /// Where it comes from now.
        service: SocketAddr,
    },
    /// It made an ICMP error about one end of a flow one about another.
    Quoted {
        /// The end that it quoted.
        about: SocketAddr,
        /// The one it quotes now.
        now: SocketAddr,
    },
    /// It answered an echo request.
    Echoed {
        /// Of a service.
        address: IpAddr,
    },
}

/// They let everything through as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Open;

impl Private for Open {
    fn pass(&mut self, _: u32, _: u32, frame: Vec<u8>) -> Result<Passed, &'static str> {
        Ok(Passed::on(frame))
    }
}

/// What became of a frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Walk {
    /// Frames that leave, in the order in which they do.
    pub leaving: Vec<Leaving>,
    /// What was decided, in order; copies follow each other.
    pub steps: Vec<Step>,
}

impl Walk {
    /// Why frames were dropped, in order.
    pub fn drops(&self) -> Vec<&'static str> {
        let drop = |step: &Step| match step.what {
            What::Dropped(reason) => Some(reason),
            _ => None,
        };
        self.steps.iter().filter_map(drop).collect()
    }
}

/// A frame that leaves the edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// Where to.
    pub to: To,
    /// Its bytes; of a tunnel, those of the inner frame.
    pub frame: Vec<u8>,
}

/// Where frames leave to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// Out of a device.
    Device {
        /// VID of the bridge's interface.
        vid: u32,
        /// Index of the device.
        index: u32,
    },
    /// To another edge.
    Remote {
        /// VID of the tunnel's interface.
        vid: u32,
        /// Its record.
        remote: u32,
        /// On the wire.
        identifier: u32,
        /// On the wire where the kind has room for it.
        tenant: u32,
    },
    /// To a process.
    Process {
        /// VID of the function's interface that it came in by.
        vid: u32,
    },
}

/// A decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// VID of the interface that the frame came in by to whoever decides.
    pub vid: u32,
    /// What is decided.
    pub what: What,
}

/// What is decided about a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// It came in by a workload's device, and says of itself what the workload may say.
    Entered,
    /// It came from another edge.
    Arrived {
        /// The edge.
        remote: u32,
        /// On the wire.
        identifier: u32,
    },
    /// A bridge knows the station.
    Station {
        /// Which one.
        mac: Mac,
        /// The VLAN it is in.
        vlan: u16,
        /// VID that leads there.
        to: u32,
        /// The edge it is on, 0: this one.
        remote: u32,
        /// Nobody declared it.
        learned: bool,
    },
    /// ARP, a neighbour solicitation or an echo request was answered here.
    Answered {
        /// What for.
        question: Question,
        /// The address that was asked.
        address: IpAddr,
        /// The answer; of echo, who answers.
        mac: Mac,
    },
    /// A bridge sends copies to all.
    Flooded {
        /// VIDs of interfaces here.
        members: Vec<u32>,
        /// Other edges.
        remotes: Vec<u32>,
    },
    /// A router has a route.
    Routed {
        /// Bits of its prefix; `None`: the destination is a neighbour.
        length: Option<u8>,
        /// The next hop.
        next: IpAddr,
        /// VID that it leaves by.
        to: u32,
        /// Its MAC address.
        mac: Mac,
        /// TTL or hop limit that it leaves with.
        ttl: u8,
    },
    /// A router does not know the next hop, and asks for it instead.
    Asked {
        /// The next hop.
        next: IpAddr,
        /// VID that the question leaves by.
        to: u32,
    },
    /// The packet was dropped, and its sender is told so.
    Error {
        /// Type of ICMP or ICMPv6.
        kind: u8,
        /// Its code.
        code: u8,
        /// The packet would have been dropped with this reason.
        reason: &'static str,
    },
    /// A function with a program of its own let it through.
    Passed {
        /// Its slot.
        slot: u32,
    },
    /// A balancer did something with it.
    Balanced(Balanced),
    /// What leads into and out of a chain sends it on.
    Steered {
        /// VID that it leaves by.
        to: u32,
        /// The chain's functions that it could pass next; 0: it leaves the chain, or passes it by.
        ways: u32,
    },
    /// It took all calls the kernel allows, and goes around.
    Recirculated,
    /// It left.
    Left(To),
    /// It was dropped.
    Dropped(&'static str),
}

/// What was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// RFC 826.
    Arp,
    /// RFC 4861.
    Solicitation,
    /// Echo request of ICMP or ICMPv6.
    Echo,
}

/// What arrives from another edge.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// Where the outer packet comes from.
    pub from: IpAddr,
    /// How it came.
    pub kind: Kind,
    /// On the wire.
    pub identifier: u32,
    /// What the packet says of its tenant, if it does.
    pub tenant: Option<u32>,
    /// The inner frame.
    pub frame: Vec<u8>,
}

/// A frame on its way. Its outermost VLAN tag stands beside it, as in the kernel.
#[derive(Clone, Debug)]
struct Packet {
    bytes: Vec<u8>,
    /// EtherType and TCI.
    tag: Option<(u16, u16)>,
    /// The edge that it goes to or came from.
    remote: u32,
    calls: u32,
    rounds: u32,
    /// It asks whether somebody has an address that is not its sender's: for the bridge alone.
    probe: bool,
}

impl Packet {
    fn new(mut bytes: Vec<u8>) -> Packet {
        let mut tag = None;
        if bytes.len() >= HEADER + 4 && is_tag(ether_type(&bytes)) {
            tag = Some((ether_type(&bytes), word16(&bytes, HEADER)));
            bytes.drain(12..16);
        }
        Packet {
            bytes,
            tag,
            remote: 0,
            calls: 0,
            rounds: 0,
            probe: false,
        }
    }

    /// Takes a priority tag off: VLAN 0 is no VLAN. Behind it there may be no other one.
    fn untag(&mut self) -> Result<(), Refused> {
        match self.tag {
            Some((_, tci)) if tci & 0xfff == 0 => {}
            _ => return Ok(()),
        }
        if is_tag(ether_type(&self.bytes)) {
            return Err(Reason::VlanNotAllowed.name());
        }
        self.tag = None;
        Ok(())
    }

    fn into_bytes(self) -> Vec<u8> {
        let mut bytes = self.bytes;
        if let Some((kind, tci)) = self.tag {
            let [a, b] = kind.to_be_bytes();
            let [c, d] = tci.to_be_bytes();
            bytes.splice(12..12, [a, b, c, d]);
        }
        bytes
    }
}

/// Why a packet is dropped: its name in counters.
type Refused = &'static str;

/// What one function does with a packet.
type Done = Result<(), Refused>;

/// A walk that is going on.
struct Going<'r, 'a> {
    edge: &'r mut Reference<'a>,
    private: &'r mut dyn Private,
    walk: Walk,
    /// Packets, and interfaces that they leave by.
    ahead: VecDeque<(u32, Packet)>,
}

impl<'a> Reference<'a> {
    /// An edge that has learned nothing.
    pub fn new(tables: &'a Tables) -> Reference<'a> {
        Reference {
            tables,
            stations: HashMap::new(),
            neighbours: HashMap::new(),
        }
    }

    /// A frame comes out of a workload by its device.
    pub fn from_device(&mut self, index: u32, frame: &[u8], private: &mut dyn Private) -> Walk {
        let mut going = self.begin(private);
        let found = going
            .edge
            .tables
            .exact
            .find(scope(exact_kind::DEVICE, 0, 0), [index.into(), 0]);
        match found.map(|cell| cell.value) {
            None => going.drop_at(0, Reason::NoLink.name()),
            Some(vid) => going.enter(vid, Packet::new(frame.to_vec())),
        }
        going.finish()
    }

    /// A packet comes from another edge.
    pub fn from_tunnel(&mut self, arrival: &Arrival, private: &mut dyn Private) -> Walk {
        let mut going = self.begin(private);
        if let Err(reason) = going.arrive(arrival) {
            going.drop_at(0, reason);
        }
        going.finish()
    }

    fn begin<'r>(&'r mut self, private: &'r mut dyn Private) -> Going<'r, 'a> {
        Going {
            edge: self,
            private,
            walk: Walk::default(),
            ahead: VecDeque::new(),
        }
    }

    fn vi(&self, vid: u32) -> Option<&'a Vi> {
        self.tables.interfaces.get(vid as usize)
    }
}

impl Going<'_, '_> {
    fn step(&mut self, vid: u32, what: What) {
        self.walk.steps.push(Step { vid, what });
    }

    fn drop_at(&mut self, vid: u32, reason: Refused) {
        self.step(vid, What::Dropped(reason));
    }

    fn find(&self, kind: u32, instance: u32, length: u8, key: [u64; 2]) -> Option<(u32, u64)> {
        let cell = self
            .edge
            .tables
            .exact
            .find(scope(kind, instance, length.into()), key)?;
        Some((cell.value, cell.extra))
    }

    fn finish(mut self) -> Walk {
        while let Some((vid, packet)) = self.ahead.pop_front() {
            self.send(vid, packet);
        }
        self.walk
    }

    fn enter(&mut self, vid: u32, mut packet: Packet) {
        let Some(vi) = self.edge.vi(vid) else {
            return self.drop_at(vid, Reason::NoLink.name());
        };
        match self.admit(vid, vi, &packet.bytes) {
            Err(reason) => return self.drop_at(vid, reason),
            Ok(admitted) => packet.probe = admitted == Admitted::Probe,
        }
        self.step(vid, What::Entered);
        self.ahead.push_back((vid, packet));
    }

    fn arrive(&mut self, arrival: &Arrival) -> Done {
        let key = words(number(arrival.from));
        let (remote, _) = self
            .find(exact_kind::PEER, 0, 0, key)
            .ok_or("unknown_vtep")?;
        let record = self
            .edge
            .tables
            .remotes
            .get(remote as usize)
            .ok_or("unknown_vtep")?;
        if record.accepts >> arrival.kind.number() & 1 == 0 {
            return Err("tunnel_kind");
        }
        let identifier = u64::from(arrival.identifier);
        let (vid, _) = self
            .find(exact_kind::TUNNEL, 0, 0, [identifier, 0])
            .ok_or("tunnel_unknown")?;
        self.find(exact_kind::MEMBER, 0, 0, [identifier, remote.into()])
            .ok_or("tunnel_member")?;
        let vi = self.edge.vi(vid).ok_or("tunnel_unknown")?;
        if arrival.tenant.is_some_and(|tenant| tenant != vi.tenant) {
            return Err("tunnel_tenant");
        }
        let needs_tenant = arrival.kind == Kind::Geneve && record.accepts & ACCEPTS_NO_TENANT == 0;
        if needs_tenant && arrival.tenant.is_none() {
            return Err(Reason::TunnelNoTenant.name());
        }
        self.step(
            vid,
            What::Arrived {
                remote,
                identifier: arrival.identifier,
            },
        );
        let mut packet = Packet::new(arrival.frame.clone());
        packet.remote = remote;
        self.ahead.push_back((vid, packet));
        Ok(())
    }

    /// The packet leaves by an interface: out of a device, or to the function that it is linked to.
    fn send(&mut self, vid: u32, mut packet: Packet) {
        let Some(out) = self
            .edge
            .vi(vid)
            .filter(|vi| vi.slot == net_slot::DEVICE || vi.peer != 0)
        else {
            return self.drop_at(vid, Reason::NoLink.name());
        };
        if out.slot == net_slot::DEVICE {
            if out.mtu != 0
                && packet.bytes.len() - HEADER.min(packet.bytes.len()) > usize::from(out.mtu)
            {
                return self.drop_at(vid, Reason::PathMtu.name());
            }
            return self.leave(
                vid,
                To::Device {
                    vid,
                    index: out.device,
                },
                packet,
            );
        }
        if packet.calls >= NET_CALLS {
            if packet.rounds >= NET_ROUNDS {
                return self.drop_at(vid, Reason::LoopGuard.name());
            }
            packet.rounds += 1;
            packet.calls = 0;
            self.step(vid, What::Recirculated);
        }
        packet.calls += 1;
        let peer = out.peer;
        let Some(vi) = self.edge.vi(peer) else {
            return self.drop_at(vid, Reason::NoLink.name());
        };
        let done = match out.slot {
            net_slot::BRIDGE => self.bridge(peer, vi, packet),
            net_slot::ROUTER => self.router(peer, vi, packet),
            net_slot::TUNNEL => self.tunnel(peer, vi, packet),
            net_slot::EMPTY => {
                self.ahead.push_back((vi.onward, packet));
                Ok(())
            }
            net_slot::STEER => self.steer(peer, vi, packet),
            net_slot::PUNT => self.punt(peer, vi, packet),
            slot if slot >= net_slot::PRIVATE => self.private(slot, peer, vi, packet),
            _ => Err(Reason::MissedCall.name()),
        };
        if let Err(reason) = done {
            self.drop_at(peer, reason);
        }
    }

    fn leave(&mut self, vid: u32, to: To, packet: Packet) {
        self.step(vid, What::Left(to));
        let frame = packet.into_bytes();
        self.walk.leaving.push(Leaving { to, frame });
    }

    fn private(&mut self, slot: u32, vid: u32, vi: &Vi, packet: Packet) -> Done {
        let (calls, rounds, remote) = (packet.calls, packet.rounds, packet.remote);
        let passed = self.private.pass(slot, vid, packet.into_bytes())?;
        self.step(
            vid,
            match passed.balanced {
                None => What::Passed { slot },
                Some(balanced) => What::Balanced(balanced),
            },
        );
        let packet = Packet {
            calls,
            rounds,
            remote,
            ..Packet::new(passed.frame)
        };
        let out = if passed.back { vid } else { vi.onward };
        self.ahead.push_back((out, packet));
        Ok(())
    }

    fn tunnel(&mut self, vid: u32, vi: &Vi, packet: Packet) -> Done {
        let tables = self.edge.tables;
        let record = tables
            .tunnels
            .get(vi.instance as usize)
            .ok_or(Reason::Internal.name())?;
        let remote = match record.remote {
            0 => packet.remote,
            fixed => fixed,
        };
        let other = tables
            .remotes
            .get(remote as usize)
            .filter(|one| one.family != 0)
            .ok_or("no_remote_vtep")?;
        let kind = Kind::ALL
            .iter()
            .find(|(_, kind)| kind.number() == other.kind);
        let overhead = kind.map_or(0, |(_, kind)| usize::from(kind.overhead(other.family == 6)));
        // The tag of a frame is inside of the tunnel, too.
        let inner = packet.bytes.len() - HEADER.min(packet.bytes.len())
            + if packet.tag.is_some() { 4 } else { 0 };
        if inner + overhead > usize::from(other.mtu) {
            return Err(Reason::PathMtu.name());
        }
        let to = To::Remote {
            vid,
            remote,
            identifier: record.identifier,
            tenant: record.tenant,
        };
        self.leave(vid, to, packet);
        Ok(())
    }
}

/// An address of a record as in keys of exact matches.
fn words_of(words: [u32; 4]) -> [u64; 2] {
    let [a, b, c, d] = words.map(u64::from);
    if cfg!(target_endian = "little") {
        [b << 32 | a, d << 32 | c]
    } else {
        [a << 32 | b, c << 32 | d]
    }
}
