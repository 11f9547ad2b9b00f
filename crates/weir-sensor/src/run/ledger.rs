//! The ledger of a run: where each frame ended.

/// Where every frame that was read ended: each is in one of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Frames read.
    pub read: u64,
    /// Left out by the capture filter.
    pub filtered: u64,
    /// No IP, or a link type that is not decoded.
    pub not_ip: u64,
    /// Headers that are broken before or in IP.
    pub invalid: u64,
    /// Fragments: put together, or waiting, or given up; which, the counters of defragmentation say.
    pub fragments: u64,
    /// Frames of which something was left out for a wrong checksum: a segment of a stream, or a fragment, which no receiver takes.
    pub bad_checksum: u64,
    /// Whole packets that were inspected.
    pub inspected: u64,
}

impl Ledger {
    /// What is missing; 0 of a run that is over.
    pub fn unaccounted(&self) -> i128 {
        let ends = [
            self.filtered,
            self.not_ip,
            self.invalid,
            self.fragments,
            self.bad_checksum,
            self.inspected,
        ];
        i128::from(self.read) - ends.iter().map(|n| i128::from(*n)).sum::<i128>()
    }
}
