//! Logs: EVE JSON, fast.log and stats.log, and where their lines go; and files that are written out.

mod community;
pub(crate) mod dump;
pub mod eve;
pub mod fast;
pub mod json;
mod sink;
pub mod stats_log;
mod store;

pub use sink::{LogDestination, Rotation, Sink, SinkError};
pub(crate) use store::{CertificateStore, Store, Stored, StoredCertificates, StoredFile, What};
