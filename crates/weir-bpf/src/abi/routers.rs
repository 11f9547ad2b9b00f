//! The part of abi.h that function `router` and its control side share: interfaces, tables, next hops.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `struct weir_interface`: a port of a router, or a VLAN of it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Interface {
    /// Index in the host's tables; where there is no host, weir's number of the port.
    pub ifindex: u32,
    /// weir's number; 0: there is no such interface.
    pub port: u16,
    /// Tag of its packets, 0: untagged.
    pub vlan: u16,
    /// Largest L3 packet; 0: no limit.
    pub mtu: u32,
    /// Its link-layer address; zeros: every unicast address is its own.
    pub mac: [u8; 6],
    /// Zero.
    pub pad: u16,
    /// As in packets; source of ICMP errors, 0: none.
    pub address4: [u8; 4],
    /// Zero.
    pub pad2: u32,
    /// As in packets; source of ICMPv6 errors, 0: none.
    pub address6: [u8; 16],
}

/// `struct weir_next_hop`: where a route leads.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct NextHop {
    /// [`router::hop`].
    pub kind: u8,
    /// Of `address`: 4 or 6.
    pub family: u8,
    /// Number of the interface.
    pub interface: u16,
    /// Of the route; 0: that of the interface.
    pub mtu: u32,
    /// As in packets.
    pub address: [u8; 16],
    /// Link-layer address by configuration; zeros: resolved.
    pub mac: [u8; 6],
    /// Zero.
    pub pad: u16,
    /// Zero.
    pub pad2: [u32; 8],
}

/// `struct weir_group`: next hops that share a route, by hash of the flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Group {
    /// Number of a next hop.
    pub hop: [u16; router::BUCKETS],
}

/// `struct weir_route`: a route, for who edits the tables.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Route {
    /// As in packets.
    pub address: [u8; 16],
    /// Of the prefix.
    pub len: u8,
    /// 4 or 6; 0: free.
    pub family: u8,
    /// [`router::origin`].
    pub origin: u8,
    /// Zero.
    pub pad: u8,
    /// A next hop, or [`router::word::GROUP`] and a group.
    pub to: u32,
    /// Of several routes to one prefix the lowest counts.
    pub metric: u32,
    /// Zero.
    pub pad2: u32,
}

/// Numbers of a router.
#[expect(missing_docs, reason = "documented in abi/router.h")]
pub mod router {
    pub const INTERFACES: usize = 64;
    pub const LOW: usize = 1024;
    pub const CHUNK: usize = 65_536;
    pub const NODE: usize = 256;
    pub const BUCKETS: usize = 256;

    /// Words of the tables (`WEIR_RT_*`).
    pub mod word {
        pub const DEEPER: u32 = 1 << 31;
        pub const GROUP: u32 = 1 << 30;
        pub const NUMBER: u32 = (1 << 24) - 1;
    }

    /// `enum weir_next_hop_kind`.
    pub mod hop {
        pub const NONE: u8 = 0;
        pub const GATEWAY: u8 = 1;
        pub const LINK: u8 = 2;
        pub const LOCAL: u8 = 3;
        pub const BLACKHOLE: u8 = 4;
        pub const UNREACHABLE: u8 = 5;
        pub const PROHIBIT: u8 = 6;
    }

    /// `enum weir_route_origin`.
    pub mod origin {
        pub const CONFIGURED: u8 = 0;
        pub const COMMAND: u8 = 1;
        pub const KERNEL: u8 = 2;
    }

    /// `WEIR_RF_*`.
    pub mod feature {
        pub const OWN: u32 = 1 << 0;
        pub const VLAN: u32 = 1 << 1;
        pub const STRICT: u32 = 1 << 2;
        pub const LOOSE: u32 = 1 << 3;
        pub const ERRORS: u32 = 1 << 4;
        pub const SILENT: u32 = 1 << 5;
        pub const MACS: u32 = 1 << 6;
        pub const COUNT_ROUTES: u32 = 1 << 7;
        pub const WIDE: u32 = 1 << 8;
    }
}
