//! Mirror of `bpf/include/bypass.h` and `shed.h`: flows whose packets are kept away from a sensor.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `BYPASS_VLANS`: tags that a key holds.
pub const BYPASS_VLANS: usize = 2;

/// `struct bypass_key`: a flow in one direction, as its packets have it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct BypassKey {
    /// Who sends; of IPv4 the first four bytes.
    pub source: [u8; 16],
    /// Who receives.
    pub destination: [u8; 16],
    /// Network order.
    pub source_port: [u8; 2],
    /// Network order.
    pub destination_port: [u8; 2],
    /// Identifiers, the outermost first.
    pub vlan: [u16; BYPASS_VLANS],
    /// IANA number.
    pub protocol: u8,
    /// 4 or 6.
    pub version: u8,
    /// How many tags.
    pub vlans: u8,
    /// 0.
    pub pad: u8,
}

/// `struct bypass_count`: what was kept away of a direction.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct BypassCount {
    /// Packets.
    pub packets: u64,
    /// Their bytes, link headers and tags included.
    pub bytes: u64,
    /// When the last of them came, by `CLOCK_MONOTONIC`.
    pub last_ns: u64,
    /// 0.
    pub pad: [u64; 5],
}

/// `struct bypass_slot`: both directions of a flow.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct BypassSlot {
    /// Of the client, and of the server.
    pub way: [BypassCount; 2],
}

/// `SHED_TICK`: a tick of times of flows is so many bits of nanoseconds.
pub const SHED_TICK: u32 = 20;

/// `struct shed_count`: what was left out for load.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct ShedCount {
    /// Packets.
    pub packets: u64,
    /// Their bytes, link headers and tags included.
    pub bytes: u64,
    /// Flows.
    pub flows: u64,
    /// 0.
    pub pad: [u64; 5],
}
