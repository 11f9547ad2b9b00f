//! The part of abi.h about sets that packets fill: `bpf/include/abi/dynset.h`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Sets of a policy.
pub const DYNSETS: usize = 32;
/// Pairs of a set and an address that its rules test.
pub const SET_BITS: usize = 32;
/// Places of a bucket.
pub const ELEMENTS: usize = 8;

/// [`Element::what`]: sequence number << 32 | tag of its set << [`element::TAG`] | kind.
pub mod element {
    /// Nothing is there.
    pub const FREE: u64 = 0;
    /// A MAC address.
    pub const MAC: u64 = 2;
    /// An IPv4 address.
    pub const IP4: u64 = 4;
    /// An IPv6 address.
    pub const IP6: u64 = 6;
    /// One CPU is writing it.
    pub const CLAIMED: u64 = 0x80;
    /// From this bit on: the tag.
    pub const TAG: u32 = 8;
}

/// `struct weir_element`: an address in a set, as a number of 128 bits.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Element {
    /// See [`element`].
    pub what: u64,
    /// It is in the set before this time, ns; all ones: always.
    pub until_ns: u64,
    /// Upper half of the address.
    pub high: u64,
    /// Lower half.
    pub low: u64,
}

/// `struct weir_elements`: a bucket.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Elements {
    /// Filled in any order.
    pub place: [Element; ELEMENTS],
}

/// `struct weir_set`: where a set lies.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct SetPlace {
    /// Its first bucket; of a security group, its number.
    pub first: u32,
    /// How many it has; 0: it is a security group of a network.
    pub buckets: u32,
    /// Of its name, shifted by [`element::TAG`].
    pub tag: u32,
}

/// `struct weir_set_bit`: what a bit of the flat key says.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct SetBit {
    /// Number of the set.
    pub set: u8,
    /// `enum weir_address`.
    pub address: u8,
}
