//! What a source keeps away of flows that are let go: their packets never come, and are counted where they are.

use std::fmt;

use crate::flow::Info;

/// What was kept away of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeptAway {
    /// Packets, by `Direction::index`.
    pub packets: [u64; 2],
    /// Their bytes, link headers included.
    pub bytes: [u64; 2],
    /// Time of the last of them, nanoseconds since 1970; 0: there was none.
    pub last: u64,
}

/// Keeps packets of flows away. Every worker asks it about flows of its own.
pub trait Bypass: Send + Sync + fmt::Debug {
    /// Keeps the packets of a flow away from here on. Its number; none if the source cannot, or has no room.
    fn begin(&self, flow: &Info) -> Option<u32>;

    /// What was kept away until now.
    fn look(&self, number: u32) -> KeptAway;

    /// Packets of the flow come again. What was kept away.
    fn end(&self, number: u32) -> KeptAway;
}
