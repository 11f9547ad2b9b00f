//! Fields of the contexts, and the first Linux release that has each (`xdp_is_valid_access` and `tc_cls_act_is_valid_access` in
//! `net/core/filter.c` of the releases).
//!
//! Owns names and versions. Which fields may be read, in which width, is said where they are implemented.

use super::Kernel;

/// Name of the context's structure.
pub(super) fn structure(tc: bool) -> &'static str {
    if tc { "__sk_buff" } else { "xdp_md" }
}

/// The field at a byte offset, where not every release with the hook has it.
pub(super) fn field(tc: bool, offset: usize) -> Option<(&'static str, Kernel)> {
    let table: &[(usize, usize, &str, Kernel)] = if tc { SK_BUFF } else { XDP_MD };
    let entry = table
        .iter()
        .find(|(from, bytes, ..)| (*from..from + bytes).contains(&offset))?;
    Some((entry.2, entry.3))
}

/// Offset, bytes, name, release.
const XDP_MD: &[(usize, usize, &str, Kernel)] = &[
    (8, 4, "data_meta", Kernel(4, 15)),
    (12, 4, "ingress_ifindex", Kernel(4, 16)),
    (16, 4, "rx_queue_index", Kernel(4, 16)),
    (20, 4, "egress_ifindex", Kernel(5, 8)),
];

/// As [`XDP_MD`].
const SK_BUFF: &[(usize, usize, &str, Kernel)] = &[
    (72, 4, "tc_classid", Kernel(4, 2)),
    (76, 4, "data", Kernel(4, 7)),
    (80, 4, "data_end", Kernel(4, 7)),
    (84, 4, "napi_id", Kernel(4, 12)),
    (140, 4, "data_meta", Kernel(4, 15)),
    (152, 8, "tstamp", Kernel(5, 0)),
    (160, 4, "wire_len", Kernel(5, 0)),
    (164, 4, "gso_segs", Kernel(5, 1)),
    (168, 8, "sk", Kernel(5, 1)),
    (176, 4, "gso_size", Kernel(5, 7)),
    (180, 1, "tstamp_type", Kernel(5, 18)),
    (184, 8, "hwtstamp", Kernel(5, 16)),
];
