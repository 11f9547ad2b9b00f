//! The part of abi.h that tunnels between edges own: numbers on the wire, probes.
//! Field for field as in `bpf/include/abi/tunnel.h`, which says what each means; `tests/abi_network.rs` compares them.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `struct weir_net_probe`: a probe behind its Ethernet header, numbers as on the wire (big endian).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[expect(missing_docs, reason = "documented in abi/tunnel.h")]
pub struct NetProbe {
    pub magic: u32,
    pub op: u16,
    pub anti: u16,
    pub nonce: u64,
    pub sent_ns: u64,
}

/// `struct weir_net_heard`: what is known of a remote, by its `state`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[expect(missing_docs, reason = "documented in abi/tunnel.h")]
pub struct NetHeard {
    pub nonce: u64,
    pub heard_ns: u64,
    pub rtt_ns: u64,
    pub answers: u32,
    pub asked: u32,
    pub down: u32,
    pub pad: u32,
}

/// Tunnels on the wire, and what is kept of them.
pub mod tunnel {
    /// UDP port of VXLAN.
    pub const VXLAN_PORT: u16 = 4789;
    /// UDP port of Geneve.
    pub const GENEVE_PORT: u16 = 6081;
    /// Class of weir's option of Geneve.
    pub const CLASS: u16 = 0xff77;
    /// Type of the option with the tenant's number.
    pub const TENANT: u8 = 1;
    /// Remotes whose way is remembered.
    pub const NEAR: u32 = 4096;
    /// Words that limit the rate of errors.
    pub const ERRORS: u32 = 1024;
}

/// Probes of tunnels.
pub mod probe {
    /// The identifier that only probes have.
    pub const IDENTIFIER: u32 = 0xff_ffff;
    /// EtherType of their frames.
    pub const ETHERTYPE: u16 = 0x88b5;
    /// First word.
    pub const MAGIC: u32 = 0x7765_6972;
    /// Asks for an answer.
    pub const ASK: u16 = 1;
    /// Is one.
    pub const ANSWER: u16 = 2;
}
