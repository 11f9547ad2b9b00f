//! Rules of signature sensors: the language that rule sets are published in, in two dialects, to a model that says what they mean.
//!
//! file -> `scan` (lines, options, places) -> `parse` (one option after another into a draft) -> `check` (what options mean together) -> `model`. A rule is loaded whole or refused with its
//! place and the reason; what is accepted but decides nothing is noted. `files` reads the tables beside the rules: classes, thresholds, reputation. Nothing here looks at packets.

mod addresses;
mod bytes;
mod check;
mod content;
mod expression;
mod fast;
mod files;
mod header;
pub mod keywords;
mod linear;
mod live;
mod load;
mod model;
mod options;
mod parse;
mod phrase;
mod problem;
mod reach;
mod scan;
mod source;
mod text;
mod trail;
mod values;
mod variables;

pub use addresses::parse_addresses;
pub(crate) use check::carriers;
pub use expression::{Expression, ExpressionError, Expressions, MATCH_LIMIT, NotFound};
pub use fast::{Fast, fast_pattern};
pub use files::{
    Class, Classes, EventFilter, FilterKind, Reputation, ReputationError, read_classes,
    read_filters, read_references,
};
pub(crate) use linear::Found;
pub use live::{LiveSet, LiveSets, SetFiles};
pub use load::{
    Dialect, Features, Keep, LoadError, LoadSettings, Loaded, Loader, Note, load, rule_files,
};
pub use model::*;
pub(crate) use options::configure;
pub use phrase::{Phrase, Room};
pub use problem::{Kind, Refused};
pub(crate) use reach::Anchoring;
pub use source::{Source, Written};
pub use values::{Comparison, compared};
pub use variables::Variables;
