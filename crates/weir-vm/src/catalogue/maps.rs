//! The table of map kinds up to Linux 6.18.

use crate::catalogue::Kernel;

/// A kind of map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapKindInfo {
    /// `BPF_MAP_TYPE_` number.
    pub number: u32,
    /// Name without `BPF_MAP_TYPE_`, in small letters.
    pub name: &'static str,
    /// First kernel that has it.
    pub since: Kernel,
}

const fn kind(number: u32, name: &'static str, major: u8, minor: u8) -> MapKindInfo {
    MapKindInfo {
        number,
        name,
        since: Kernel(major, minor),
    }
}

/// All kinds, by number.
pub const MAP_KINDS: &[MapKindInfo] = &[
    kind(1, "hash", 3, 19),
    kind(2, "array", 3, 19),
    kind(3, "prog_array", 4, 2),
    kind(4, "perf_event_array", 4, 3),
    kind(5, "percpu_hash", 4, 6),
    kind(6, "percpu_array", 4, 6),
    kind(7, "stack_trace", 4, 6),
    kind(8, "cgroup_array", 4, 8),
    kind(9, "lru_hash", 4, 10),
    kind(10, "lru_percpu_hash", 4, 10),
    kind(11, "lpm_trie", 4, 11),
    kind(12, "array_of_maps", 4, 12),
    kind(13, "hash_of_maps", 4, 12),
    kind(14, "devmap", 4, 14),
    kind(15, "sockmap", 4, 14),
    kind(16, "cpumap", 4, 15),
    kind(17, "xskmap", 4, 18),
    kind(18, "sockhash", 4, 18),
    kind(19, "cgroup_storage", 4, 19),
    kind(20, "reuseport_sockarray", 4, 19),
    kind(21, "percpu_cgroup_storage", 4, 20),
    kind(22, "queue", 4, 20),
    kind(23, "stack", 4, 20),
    kind(24, "sk_storage", 5, 2),
    kind(25, "devmap_hash", 5, 4),
    kind(26, "struct_ops", 5, 6),
    kind(27, "ringbuf", 5, 8),
    kind(28, "inode_storage", 5, 10),
    kind(29, "task_storage", 5, 11),
    kind(30, "bloom_filter", 5, 16),
    kind(31, "user_ringbuf", 6, 1),
    kind(32, "cgrp_storage", 6, 2),
    kind(33, "arena", 6, 9),
];
