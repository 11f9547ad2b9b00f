//! All integration tests of weir-import in one program.

mod bed;
mod packets;
mod pf_evaluator;

mod snapshots;
mod translations;
mod verdicts;
