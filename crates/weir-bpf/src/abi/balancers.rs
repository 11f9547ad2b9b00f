//! The part of the contract that function `balancer` and its control side share (bpf/include/abi/balancer.h): services, servers,
//! remembered flows, counters.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `struct weir_lb_key`: a place where services are looked for, in host order.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct LbKey {
    /// The upper half of an IPv6 address; 0 in IPv4.
    pub high: u64,
    /// The lower half, or the IPv4 address.
    pub low: u64,
    /// 0: any.
    pub port: u16,
    /// IP protocol.
    pub protocol: u8,
    /// 4 or 6.
    pub family: u8,
    /// Zero.
    pub pad: u32,
}

/// `struct weir_lb_prefix`: the same for prefixes, in the order of a trie.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct LbPrefix {
    /// 32 and those of the address.
    pub bits: u32,
    /// IP protocol.
    pub protocol: u8,
    /// 4 or 6.
    pub family: u8,
    /// Network order; 0: any.
    pub port: u16,
    /// Network order; IPv4: the first four bytes.
    pub address: [u8; 16],
}

/// `struct weir_lb_service`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct LbService {
    /// Its number, by which it counts.
    pub number: u32,
    /// What its servers have, too.
    pub identity: u32,
    /// Place of its ring among all.
    pub ring_first: u32,
    /// Places of its ring; 0: no server takes new flows.
    pub ring_size: u32,
    /// [`balancer::mode`].
    pub mode: u8,
    /// [`balancer::service`].
    pub flags: u8,
    /// QUIC: bytes of a server's id, behind the first byte of a connection id.
    pub id_bytes: u8,
    /// Zero.
    pub pad: u8,
}

/// `struct weir_lb_server`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct LbServer {
    /// Of service, address and port; 0: no server has this number.
    pub identity: u64,
    /// Identity of its service.
    pub service: u32,
    /// [`balancer::state`].
    pub state: u8,
    /// [`balancer::mode`].
    pub mode: u8,
    /// [`balancer::deliver`].
    pub deliver: u8,
    /// 4 or 6.
    pub family: u8,
    /// Network order; IPv4: the first four bytes.
    pub address: [u8; 16],
    /// Network order; 0: it stays.
    pub port: u16,
    /// Number of the port it is behind.
    pub to: u16,
    /// Destination MAC address.
    pub mac: [u8; 6],
    /// Source MAC address; all 0: the one that the packet was sent to.
    pub from: [u8; 6],
    /// Number of its service.
    pub service_number: u32,
    /// CPU of this host.
    pub cpu: u32,
    /// Of servers that are gone: later ones have higher numbers.
    pub gone_at: u32,
    /// Host order; GUE: where tunnels go; NAT: the port that its packets come from, 0: any.
    pub other_port: u16,
    /// Its part of the ring; 0: it gets no new flows by configuration.
    pub weight: u16,
}

/// `struct weir_lb_back`: the service that a server's packets belong to.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct LbBack {
    /// Of the service, network order.
    pub address: [u8; 16],
    /// Network order; 0: it stays.
    pub port: u16,
    /// Zero.
    pub pad: u16,
    /// Number of the server.
    pub server: u32,
}

/// `struct weir_lb_bucket`: remembered flows.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct LbBucket {
    /// Tag, state, server, time; 0: free.
    pub entry: [u64; balancer::WAYS],
}

/// `struct weir_lb_count`: what a service or a server counts on one CPU.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct LbCount {
    /// Packets.
    pub packets: u64,
    /// Their frame bytes, as received.
    pub bytes: u64,
    /// Flows that began.
    pub flows: u64,
    /// Zero.
    pub pad: u64,
}

/// Numbers of the balancer.
#[expect(missing_docs, reason = "documented in abi/balancer.h")]
pub mod balancer {
    pub const WAYS: usize = 8;
    pub const QUOTA: usize = 4;
    pub const CHUNK: usize = 32_768;
    pub const CPUS: usize = 256;
    pub const ECHO: u32 = 0xffff_ffff;
    pub const TAG: u32 = 35;
    pub const STATE: u32 = 32;
    pub const SERVER: u32 = 16;
    pub const TIME: u32 = 32;
    pub const STATES: usize = 8;

    /// How packets get to servers.
    pub mod mode {
        pub const IPIP: u8 = 0;
        pub const GUE: u8 = 1;
        pub const GUE0: u8 = 2;
        pub const NAT: u8 = 3;
        pub const DSR: u8 = 4;
    }

    /// Flags of services.
    pub mod service {
        pub const QUIC: u8 = 1 << 0;
        pub const DROP: u8 = 1 << 1;
    }

    /// What becomes of a server.
    pub mod state {
        pub const NONE: u8 = 0;
        pub const UP: u8 = 1;
        pub const DRAIN: u8 = 2;
        pub const GONE: u8 = 3;
    }

    /// How a server is reached.
    pub mod deliver {
        pub const MAC: u8 = 1 << 0;
        pub const PORT: u8 = 1 << 1;
        pub const CPU: u8 = 1 << 2;
    }

    /// States of remembered flows.
    pub mod flow {
        pub const NEW: usize = 1;
        pub const TCP: usize = 2;
        pub const UDP: usize = 3;
        pub const CLOSING: usize = 4;
        pub const TOWARDS: usize = 5;
        pub const FROM: usize = 6;
    }

    /// What the services of an instance need.
    pub mod feature {
        pub const ENCAP: u32 = 1 << 0;
        pub const NAT: u32 = 1 << 1;
        pub const PREFIX: u32 = 1 << 2;
        pub const ANY_PORT: u32 = 1 << 3;
        pub const QUIC: u32 = 1 << 4;
        pub const CPU: u32 = 1 << 5;
        pub const UNKNOWN: u32 = 1 << 6;
    }
}
