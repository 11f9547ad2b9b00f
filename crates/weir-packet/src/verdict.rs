//! What a function decides about a packet.

/// The end of a packet's way through a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verdict {
    /// Goes on to where it was going.
    Pass,
    /// Is gone.
    Drop,
    /// Leaves by the port it came in by.
    Tx,
    /// Leaves by another port.
    Redirect,
    /// The program failed; the packet is gone.
    Aborted,
}

impl Verdict {
    /// Every verdict.
    pub const ALL: [Verdict; 5] = [
        Verdict::Pass,
        Verdict::Drop,
        Verdict::Tx,
        Verdict::Redirect,
        Verdict::Aborted,
    ];

    /// The name used in output, JSON and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::Drop => "drop",
            Verdict::Tx => "tx",
            Verdict::Redirect => "redirect",
            Verdict::Aborted => "aborted",
        }
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}
