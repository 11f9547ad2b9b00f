//! Experiments on test beds that weir builds from network namespaces: the demo that `make run` shows, and benchmarks.
//!
//! On interfaces they drive the program `weir` as a child process, so that what is shown is what a user gets. Invariant: an experiment
//! leaves no namespace, process or file behind, whether it ends, fails, panics or is interrupted.

pub mod accuracy;
pub mod afxdp;
pub mod bench;
pub mod demo;
mod error;
pub mod firewall;
pub mod forward;
pub mod generate;
mod process;
pub mod xsk;

pub use demo::{Check, DemoOptions, DemoOutcome};
pub use error::LabError;
