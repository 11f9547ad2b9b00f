//! All integration tests of weir-import in one program.

mod answers;
mod bed;
mod nat;
mod packets;
mod pf_evaluator;

mod round_trip;
mod snapshots;
mod translations;
mod verdicts;
