//! Logs: EVE JSON, fast.log and stats.log, and where their lines go.

mod community;
pub mod eve;
pub mod fast;
pub mod json;
mod sink;
pub mod stats_log;
mod time;

pub use sink::{LogDestination, Rotation, Sink, SinkError};
