//! Logs: EVE JSON and fast.log, and where their lines go.

mod community;
pub mod eve;
pub mod fast;
pub mod json;
mod sink;
mod time;

pub use sink::{Rotation, Sink, SinkError, Target};
