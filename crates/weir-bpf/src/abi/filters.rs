//! The part of abi.h that function `filter` and its control side share: rules, tables, counters.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `struct weir_filter_rule`: what a rule of a filter does when it is asked.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct FilterRule {
    /// [`filter::action`].
    pub action: u8,
    /// [`filter::flag`].
    pub flags: u8,
    /// [`filter::per`].
    pub per: u8,
    /// Bits of an IPv4 source that count.
    pub len4: u8,
    /// Bits of an IPv6 source that count.
    pub len6: u8,
    /// Place among the counters of a source position.
    pub slot_src: u8,
    /// The same of a destination position.
    pub slot_dst: u8,
    /// CPUs to move to.
    pub cpus: u8,
    /// First of them in the list.
    pub cpu_first: u16,
    /// Place of the load value.
    pub shed: u16,
    /// From the rule's text.
    pub id: u32,
    /// Mark for the functions behind.
    pub mark: u32,
    /// Zero.
    pub pad: u32,
    /// Load above which packets are shed.
    pub above: u64,
    /// Nanoseconds a packet.
    pub interval_ns: u64,
    /// How far ahead of now the word may run.
    pub burst_ns: u64,
    /// How long a source is blocked; 0: not at all.
    pub block_ns: u64,
}

/// `struct weir_filter_count`: what a rule of a filter counts on one CPU.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct FilterCount {
    /// Packets that asked the rule.
    pub packets: u64,
    /// Their frame bytes.
    pub bytes: u64,
    /// Of them, those the rule dropped.
    pub dropped: u64,
    /// Sources it blocked.
    pub blocked: u64,
}

/// `struct weir_filter_life`: when what holds at a position ends, and what follows.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct FilterLife {
    /// Seconds since 1970, 0: never.
    pub until: u32,
    /// Position from then on.
    pub then: u32,
    /// Its row.
    pub row: u32,
    /// Zero.
    pub pad: u32,
}

/// `struct weir_filter_top`: where the intervals of a part of the address space lie.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct FilterTop {
    /// Position of the first; in IPv4 also the place of the block, in intervals.
    pub first: u32,
    /// IPv4: intervals - 1 << 16, or the row if there is one, or [`filter::CROWD`]; IPv6: intervals.
    pub what: u32,
}

/// `struct weir_filter_limit`: a bucket of rate limits.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct FilterLimit {
    /// Whose; 0: free.
    pub tag: [u64; filter::WAYS],
    /// When the packets counted so far are due.
    pub ahead_ns: [u64; filter::WAYS],
}

/// `struct weir_filter_block`: a blocked source.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct FilterBlock {
    /// Upper half of the address; IPv4 is ::ffff:a.b.c.d.
    pub high: u64,
    /// Lower half.
    pub low: u64,
    /// On the clock of the data plane; 0: free.
    pub until_ns: u64,
    /// Packets dropped for it.
    pub dropped: u64,
}

/// Numbers of filters (`WEIR_FILTER_*`, `WEIR_A_*`, `WEIR_P_*`, `WEIR_FR_*`, `WEIR_FF_*`, `WEIR_KIND_*`).
#[expect(missing_docs, reason = "documented in abi.h")]
pub mod filter {
    pub const CHUNK: usize = 262_144;
    pub const WORDS: usize = 16;
    pub const RULES: usize = 1024;
    pub const BLOCKS: usize = 16_384;
    pub const TOP: usize = 65_536;
    pub const SUB: usize = 256;
    pub const CROWD: u32 = 1 << 31;
    pub const KINDS: usize = 2048;
    pub const HITS: usize = 2048;
    pub const LIVES: usize = 8;
    pub const WAYS: usize = 4;
    pub const CPUS: usize = 64;

    pub mod kind {
        pub const IP6: u32 = 1 << 8;
        pub const FRAGMENT: u32 = 1 << 9;
        pub const SYN: u32 = 1 << 10;
    }

    pub mod action {
        pub const ALLOW: u8 = 0;
        pub const DENY: u8 = 1;
        pub const SHED: u8 = 2;
        pub const LIMIT: u8 = 3;
        pub const COOKIE: u8 = 4;
    }

    pub mod per {
        pub const RULE: u8 = 0;
        pub const SOURCE: u8 = 1;
        pub const ENTRY: u8 = 2;
    }

    pub mod flag {
        pub const HIT_SRC: u8 = 1 << 0;
        pub const HIT_DST: u8 = 1 << 1;
        pub const ENTRY_DST: u8 = 1 << 2;
        pub const MARK: u8 = 1 << 3;
        pub const CPU: u8 = 1 << 4;
    }

    pub mod feature {
        pub const SRC: u32 = 1 << 0;
        pub const DST: u32 = 1 << 1;
        pub const SPORT: u32 = 1 << 2;
        pub const DPORT: u32 = 1 << 3;
        pub const KIND: u32 = 1 << 4;
        pub const L4: u32 = 1 << 5;
        pub const IP6_SRC: u32 = 1 << 6;
        pub const IP6_DST: u32 = 1 << 7;
        pub const LIVES: u32 = 1 << 8;
        pub const HITS: u32 = 1 << 9;
        pub const SHED: u32 = 1 << 10;
        pub const LIMIT: u32 = 1 << 11;
        pub const BLOCK: u32 = 1 << 12;
        pub const COOKIE: u32 = 1 << 13;
        pub const CPU: u32 = 1 << 14;
        pub const EXACT: u32 = 1 << 15;
        pub const ENTRY: u32 = 1 << 16;
        pub const DENY_REST: u32 = 1 << 17;
        pub const DENY_OTHER: u32 = 1 << 18;
        pub const PROTOCOL: u32 = 1 << 19;
        pub const ONE: u32 = 1 << 20;
    }
}
