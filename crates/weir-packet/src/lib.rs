//! Packets as bytes: parsing, building, checksums, capture files, and the closed list of reasons.
//!
//! Everything here takes hostile input: no function panics on the content of a packet or of a file.
//! What a packet means is stated in docs/semantics.md section 1; rules and rewrites are not known here
//! (weir-policy owns them).

#![forbid(unsafe_code)]
#![warn(clippy::expect_used, clippy::indexing_slicing, clippy::unwrap_used)]

pub mod build;
pub mod checksum;
#[cfg(feature = "generate")]
pub mod generate;
pub mod parse;
pub mod pcap;
pub mod reason;
mod summary;
mod verdict;
pub mod x509;

pub use reason::{Fate, Reason};
pub use summary::summary;
pub use verdict::Verdict;
