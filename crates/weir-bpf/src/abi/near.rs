//! The part of abi.h that functions share which send packets by themselves: next hops and the devices behind which they are.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `struct weir_near`: where packets to a next hop go, as one CPU knows it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Near {
    /// Coarse time in units of 2^30 ns until which it holds; 0: never asked.
    pub until: u32,
    /// weir's number of the port out; 0: not known how to get there.
    pub port: u16,
    /// Of a router: number of the interface + 1.
    pub interface: u16,
    /// Link-layer address of the next hop.
    pub to: [u8; 6],
    /// ... and that of the device.
    pub from: [u8; 6],
    /// Largest L3 packet on the way there; 0: not known.
    pub mtu: u16,
    /// Zero.
    pub pad: u16,
}

/// `struct weir_port_at`: the port of a device.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct PortAt {
    /// weir's number.
    pub port: u16,
    /// Of a router: number of the interface + 1.
    pub interface: u16,
    /// Largest L3 packet it carries.
    pub mtu: u32,
}
