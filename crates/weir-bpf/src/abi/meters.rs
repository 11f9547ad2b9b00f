//! The part of abi.h for limits that count sources, destinations or pairs apart (`abi/meter.h`).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `WEIR_METER_WAYS`: words of a bucket.
pub const METER_WAYS: usize = 4;

/// `WEIR_METER_*`: what a rule with [`rule_flag::METER`](super::rule_flag::METER) has in place of a time-out. The same of one with [`rule_flag::COUNT`](super::rule_flag::COUNT).
#[expect(missing_docs, reason = "documented in abi/meter.h")]
pub mod meter {
    pub const TABLE: u64 = 0xff_ffff;
    pub const SOURCE: u32 = 24;
    pub const DESTINATION: u32 = 25;
    pub const LEN4: u32 = 26;
    pub const LEN6: u32 = 32;
    pub const NAME: u32 = 40;
}

/// `struct weir_meter`: a bucket.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Meter {
    /// Hashes of rule and addresses, 0: never used.
    pub name: [u64; METER_WAYS],
    /// Words of the limit: theoretical arrival times, ns.
    pub tat: [u64; METER_WAYS],
}

/// `WEIR_COUNT_WAYS`: names of a bucket of a limit of connections.
pub const COUNT_WAYS: usize = 4;

/// `struct weir_count`: such a bucket.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Count {
    /// Hashes of rule and addresses, 0: never used.
    pub name: [u64; COUNT_WAYS],
}
