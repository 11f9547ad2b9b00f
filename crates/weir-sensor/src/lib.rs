//! The sensor: signature intrusion detection over captures and live packets.
//!
//! source -> decode -> defragment -> flow -> TCP reassembly -> application parsers -> detection -> output. Each stage is a module, knows only the types of the stages before it,
//! and counts what it gives up. Invariants: the same packets give the same multiset of alerts for any number of workers; nothing a capture or a rule file holds panics or
//! makes memory grow without a bound that is stated. Design: `docs/design/sensor.md`.

#![warn(clippy::expect_used, clippy::unwrap_used)]
#![forbid(unsafe_code)]

pub mod analysis;
pub mod app;
mod base64;
pub mod buffer;
pub mod config;
pub mod decode;
pub mod defragment;
pub mod detect;
pub mod event;
pub mod flow;
pub mod load;
pub mod matcher;
pub mod output;
pub mod packet;
pub mod rules;
pub mod run;
pub mod script;
pub mod settings;
pub mod source;
pub mod stages;
pub mod stream;
mod time;
pub mod worker;
mod worker_pool;
