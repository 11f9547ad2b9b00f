//! The part of the contract that function `decapsulate` and its control side share (bpf/include/abi/decapsulate.h).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `struct weir_tunnel_end`: an end of tunnels, in host order.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct TunnelEnd {
    /// The upper half of an IPv6 address; 0 in IPv4.
    pub high: u64,
    /// The lower half, or the IPv4 address.
    pub low: u64,
    /// 4 or 6.
    pub family: u32,
    /// Zero.
    pub pad: u32,
}

/// `struct weir_tunnel_from`: where tunnels may begin, in the order of a trie.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct TunnelFrom {
    /// 32 and those of the address.
    pub bits: u32,
    /// 4 or 6.
    pub family: u32,
    /// Network order; IPv4: the first four bytes.
    pub address: [u8; 16],
}

/// Numbers of decapsulation.
#[expect(missing_docs, reason = "documented in abi/decapsulate.h")]
pub mod decapsulate {
    pub const IPIP: u32 = 1 << 0;
    pub const GUE: u32 = 1 << 1;
    pub const FROM: u32 = 1 << 2;
}
