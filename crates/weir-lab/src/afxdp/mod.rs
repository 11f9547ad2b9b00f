//! `weir lab afxdp`: finds out which settings of AF_XDP matter on this machine.
//!
//! A sweep names the values of each knob; every possible combination is a cell. Cells run in random order, in blocks with controls in each, and what the kernel really did
//! is part of a result. Cells that failed to do what they were asked are classed apart; the others are clustered, and what the members of a cluster share is its finding.

mod beside;
pub mod cluster;
mod control;
pub mod density;
pub(crate) mod draw;
pub mod effects;
pub mod extras;
pub mod judgement;
mod machine;
pub mod profile;
pub mod recommend;
mod records;
pub mod remote;
pub mod report;
pub mod results;
pub mod run;
pub mod settings;
mod side;
pub mod space;
pub mod statistics;
pub mod sweep;

pub use run::{AfxdpError, Bed, Beside, Ends, Options, Plan, Told, run};
pub use settings::restore_orphans;
pub use sweep::{Mistakes, PRESETS, Sweep};
