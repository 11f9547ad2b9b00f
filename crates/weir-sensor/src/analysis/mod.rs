//! Analysis of rules (`weir sensor --engine-analysis`): what each rule asks of packets, streams and transactions, which of its contents leads to it, and which rules are held to traffic of a
//! port. Written to files for those who check rules by program, in the format that such programs read. Nothing here decides about packets: it shows what `rules` has understood.

mod dependencies;
mod details;
mod engines;
mod grouping;
mod kind;
mod lists;
mod names;
mod patterns;
mod report;

pub use report::{Analysis, AnalysisError, analyze};
