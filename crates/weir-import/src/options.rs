//! What is said about the host besides the file, and why a file cannot be read at all.

use weir_value::Prefix;

/// Longest text that is read, in bytes.
pub(crate) const MAX_BYTES: usize = 16 << 20;

/// What the file does not say about the host that it is for.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// `input` or `forward`: the packets that the policy is for. `None`: those that the file has rules for.
    pub chain: Option<String>,
    /// Addresses of the host, each with its interface if that is known.
    pub local: Vec<(Option<String>, Prefix)>,
    /// Which addresses are reached by which interface.
    pub routes: Vec<(String, Prefix)>,
    /// The MTU of the paths that packets take, in bytes: what rules clamp segments to.
    pub mtu: Option<u16>,
}

/// Why a file cannot be imported at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The file filters packets for the host and packets for others.
    #[error(
        "the file filters packets for this host (input) and packets that it forwards (forward): give the addresses of the host with `--local ADDRESS`, or choose one with `--chain input` or `--chain forward`"
    )]
    TwoPaths,
    /// The text is too long.
    #[error("the file has {0} bytes; at most {MAX_BYTES} are read")]
    TooLong(usize),
}
