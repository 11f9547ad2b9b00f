//! The part of abi.h that the functions of virtual networks own: interfaces, exact matches, bridges, routers, tunnels.
//! Field for field as in `bpf/include/abi/network.h`, which says what each means; `tests/abi_network.rs` compares them.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `struct weir_vi`: A virtual interface, by its VID. One cache line.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[expect(missing_docs, reason = "documented in abi/network.h")]
pub struct Vi {
    pub peer: u32,
    pub slot: u32,
    pub onward: u32,
    pub instance: u32,
    pub device: u32,
    pub flags: u32,
    pub tenant: u32,
    pub mtu: u16,
    pub vlan: u16,
    pub mac: [u8; 6],
    pub room: u16,
    pub address4: u32,
    pub address6: [u32; 4],
    pub state: u32,
}

/// `struct weir_exact`: A cell of the table of exact matches.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[expect(missing_docs, reason = "documented in abi/network.h")]
pub struct Exact {
    pub value: u32,
    pub scope: u32,
    pub key: [u64; 2],
    pub extra: u64,
}

/// `struct weir_net_bridge`: A bridge.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[expect(missing_docs, reason = "documented in abi/network.h")]
pub struct NetBridge {
    pub members: u32,
    pub n_members: u32,
    pub remotes: u32,
    pub n_remotes: u32,
    pub tunnel: u32,
    pub storm: u32,
    pub age: u32,
    pub learned: u32,
    pub learned_mask: u32,
    pub flags: u32,
    pub tenant: u32,
    pub state: u32,
    pub pad: [u32; 4],
}

/// `struct weir_net_router`: A router of a virtual network.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[expect(missing_docs, reason = "documented in abi/network.h")]
pub struct NetRouter {
    pub length4: [u8; 8],
    pub length6: [u8; 8],
    pub learned: u32,
    pub learned_mask: u32,
    pub flags: u32,
    pub tenant: u32,
    pub state: u32,
    pub pad: [u32; 7],
}

/// `struct weir_net_hop`: A way that routes take.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[expect(missing_docs, reason = "documented in abi/network.h")]
pub struct NetHop {
    pub kind: u32,
    pub vid: u32,
    pub gateway: [u32; 4],
    pub mac: [u8; 6],
    pub pad: u16,
}

/// `struct weir_net_remote`: Another edge. One cache line.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[expect(missing_docs, reason = "documented in abi/network.h")]
pub struct NetRemote {
    pub family: u8,
    pub kind: u8,
    pub port: u16,
    pub device: u32,
    pub local: [u32; 4],
    pub address: [u32; 4],
    pub mtu: u16,
    pub accepts: u16,
    pub state: u32,
    pub pad: [u32; 4],
}

/// `struct weir_net_tunnel`: A segment or link that reaches other edges: record of a tunnel's interface.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[expect(missing_docs, reason = "documented in abi/network.h")]
pub struct NetTunnel {
    pub identifier: u32,
    pub tenant: u32,
    pub remote: u32,
    pub pad: u32,
}

/// `struct weir_net_steer`: Where packets go that come in by an interface of what leads into and out of a chain.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[expect(missing_docs, reason = "documented in abi/network.h")]
pub struct NetSteer {
    pub ways: u32,
    pub n_ways: u32,
    pub selections: u32,
    pub n_selections: u32,
}

/// `struct weir_net_selection`: Packets of one kind.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[expect(missing_docs, reason = "documented in abi/network.h")]
pub struct NetSelection {
    pub source: [u64; 2],
    pub source_mask: [u64; 2],
    pub target: [u64; 2],
    pub target_mask: [u64; 2],
    pub source_low: u16,
    pub source_high: u16,
    pub target_low: u16,
    pub target_high: u16,
    pub protocol: u8,
    pub ports: u8,
    pub pad: [u8; 6],
}

/// `struct weir_net_punt`: What becomes of packets that come in by an interface of a punt function.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[expect(missing_docs, reason = "documented in abi/network.h")]
pub struct NetPunt {
    pub selections: u32,
    pub n_selections: u32,
    pub rate: u32,
    pub pad: u32,
}

/// `struct weir_net_punted`: What goes to the helper and comes from it, by VID.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[expect(missing_docs, reason = "documented in abi/network.h")]
pub struct NetPunted {
    pub heard_ns: u64,
    pub window: u64,
    pub punted: u64,
    pub injected: u64,
}

/// `struct weir_net_record`: In front of a packet in the ring `net_ring`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[expect(missing_docs, reason = "documented in abi/network.h")]
pub struct NetRecord {
    pub time_ns: u64,
    pub generation: u64,
    pub vid: u32,
    pub tenant: u32,
    pub len: u32,
    pub unfinished: u16,
    pub l4: u16,
}

/// `struct weir_net_inject`: Behind a packet that a helper sends.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[expect(missing_docs, reason = "documented in abi/network.h")]
pub struct NetInject {
    pub generation: u64,
    pub vid: u32,
    pub magic: u32,
}

/// `struct weir_net_flow_key`: An installed flow.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[expect(missing_docs, reason = "documented in abi/network.h")]
pub struct NetFlowKey {
    pub source: [u64; 2],
    pub target: [u64; 2],
    pub vid: u32,
    pub from: u16,
    pub to: u16,
    pub protocol: u8,
    pub pad: [u8; 7],
}

/// `struct weir_net_flow`: What becomes of an installed flow.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[expect(missing_docs, reason = "documented in abi/network.h")]
pub struct NetFlow {
    pub action: u32,
    pub vid: u32,
    pub idle_ns: u64,
    pub seen_ns: u64,
    pub packets: u64,
    pub bytes: u64,
}

/// `struct weir_net_learned`: What was learned: a station of a bridge, or a neighbour of a router.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[expect(missing_docs, reason = "documented in abi/network.h")]
pub struct NetLearned {
    pub key: [u64; 2],
    pub extra: u64,
    pub vid: u32,
    pub seen: u32,
}

/// `struct weir_net_count`: What came in by an interface, by its VID and CPU.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[expect(missing_docs, reason = "documented in abi/network.h")]
pub struct NetCount {
    pub packets: u64,
    pub bytes: u64,
    pub dropped: u64,
    pub pad: u64,
}

/// `struct weir_net_chain`: A packet's way through networks as the programs of a chain share it, one for each CPU.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[expect(missing_docs, reason = "documented in abi/network.h")]
pub struct NetChain {
    pub vid: u32,
    pub half: u32,
    pub place: u32,
    pub calls: u32,
    pub rounds: u32,
    pub remote: u32,
    pub origin: u32,
    pub mark: u32,
    pub cause: u32,
    pub reason: u32,
    pub generation: u64,
    pub number: u64,
}

/// `struct weir_net_edge`: The word that says which generation holds.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[expect(missing_docs, reason = "documented in abi/network.h")]
pub struct NetEdge {
    pub generation: u64,
}

/// `struct weir_net_drop`: What drops are counted by, beside the ledger of the program.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[expect(missing_docs, reason = "documented in abi/network.h")]
pub struct NetDrop {
    pub vid: u32,
    pub reason: u32,
}

/// Slots of the program array of an edge's networks.
pub const NET_PROGRAMS: usize = 4096;
/// Lengths of prefixes that routes of one router and family may have.
pub const NET_LENGTHS: usize = 8;
/// Calls a packet may take before it is recirculated.
pub const NET_CALLS: u32 = 32;
/// Times a packet may be recirculated.
pub const NET_ROUNDS: u32 = 16;

/// Slots of the program array (`enum weir_net_slot`).
#[expect(missing_docs, reason = "documented in abi/network.h")]
pub mod net_slot {
    pub const NOWHERE: u32 = 0;
    pub const DEVICE: u32 = 1;
    pub const BRIDGE: u32 = 2;
    pub const ROUTER: u32 = 3;
    pub const TUNNEL: u32 = 4;
    pub const FLOOD: u32 = 5;
    pub const STEER: u32 = 6;
    pub const PUNT: u32 = 7;
    pub const EMPTY: u32 = 8;
    pub const REFUSE: u32 = 9;
    pub const PRIVATE: u32 = 16;
}

/// What the record of one side of a function says of the other one, as places in `address6` (`WEIR_ON_*`).
#[expect(missing_docs, reason = "documented in abi/network.h")]
pub mod vi_onward {
    pub const PEER: usize = 0;
    pub const SLOT: usize = 1;
}

/// Flags of interfaces.
#[expect(missing_docs, reason = "documented in abi/network.h")]
pub mod vi_flag {
    pub const ANY_MAC: u32 = 1 << 0;
    pub const ANY_ADDRESS: u32 = 1 << 1;
    pub const MORE_ADDRESSES: u32 = 1 << 2;
    pub const LEARN: u32 = 1 << 3;
    pub const TRUNK: u32 = 1 << 4;
    pub const TUNNEL: u32 = 1 << 5;
    pub const PEER: u32 = 1 << 6;
    pub const EXTERNAL: u32 = 1 << 7;
    pub const DHCP: u32 = 1 << 8;
    pub const PUNT: u32 = 1 << 9;
    pub const MAY_RA: u32 = 1 << 10;
    pub const MAY_DHCP: u32 = 1 << 11;
}

/// Bit of [`NetRemote::accepts`]: Geneve from there need not name the tenant.
pub const ACCEPTS_NO_TENANT: u16 = 1 << 15;

/// Limits and words of helpers.
#[expect(missing_docs, reason = "documented in abi/network.h")]
pub mod punt {
    pub const MAGIC: u32 = 0x7075_6e74;
    pub const MOST_BYTES: u32 = 9216;
    pub const HEARD_NS: u64 = 2_000_000_000;
    pub const DHCP_RATE: u32 = 16;
    pub const FORWARD: u32 = 1;
    pub const DROP: u32 = 2;
}

/// Kinds of exact matches (`enum weir_exact_kind`).
#[expect(missing_docs, reason = "documented in abi/network.h")]
pub mod exact_kind {
    pub const DEVICE: u32 = 1;
    pub const STATION: u32 = 2;
    pub const NEIGHBOUR: u32 = 3;
    pub const ROUTE: u32 = 4;
    pub const ARP: u32 = 5;
    pub const ADDRESS: u32 = 6;
    pub const PEER: u32 = 7;
    pub const TUNNEL: u32 = 8;
    pub const MEMBER: u32 = 9;
    pub const VLAN: u32 = 10;
    /// Addresses of this edge that tunnels end at.
    pub const LOCAL: u32 = 11;
    /// Of a security group; the length of the scope is the kind of address ([`element`](crate::abi::element)).
    pub const GROUP: u32 = 12;
}

/// How the table of exact matches is laid out.
#[expect(missing_docs, reason = "documented in abi/network.h")]
pub mod exact {
    pub const WAYS: u32 = 2;
    pub const KIND: u32 = 28;
    pub const INSTANCE: u32 = 8;
    pub const SEED: u64 = 0x51ed_270b_9f3c_a6d5;
    pub const FIRST: u64 = 0x9e37_79b9_7f4a_7c15;
    pub const SECOND: u64 = 0xbf58_476d_1ce4_e5b9;
}

/// Flags of bridges.
#[expect(missing_docs, reason = "documented in abi/network.h")]
pub mod bridge_flag {
    pub const CLOSED: u32 = 1 << 0;
}

/// Kinds of tunnels (`enum weir_tunnel_kind`).
#[expect(missing_docs, reason = "documented in abi/network.h")]
pub mod tunnel_kind {
    pub const VXLAN: u8 = 1;
    pub const GENEVE: u8 = 2;
    pub const GRE: u8 = 3;
    pub const KERNEL: u8 = 4;
}

/// Words of `cb` of a packet that is being recirculated.
#[expect(missing_docs, reason = "documented in abi/network.h")]
pub mod cb {
    pub const VID: u32 = 0;
    pub const WHERE: u32 = 1;
    pub const REMOTE: u32 = 2;
    pub const PORT: u32 = 3;
    pub const MAGIC: u32 = 4;
    pub const IS_OURS: u32 = 0x7765_6972;
}

/// Bits of one of those words.
#[expect(missing_docs, reason = "documented in abi/network.h")]
pub mod cb_where {
    pub const HALF: u32 = 1 << 0;
    pub const TUNNEL: u32 = 1 << 1;
    pub const SHOWN: u32 = 1 << 2;
}
