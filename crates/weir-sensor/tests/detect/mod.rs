//! Detection, and the matcher under it: conditions against a reference that tries everything, the kinds of rules, what flows remember, the order that makes workers equal, and published rules.
#![allow(
    clippy::field_reassign_with_default,
    reason = "other fields are private"
)]

mod adversary;
mod build;
mod conditions;
mod flows;
mod hostile;
mod matcher;
mod material;
mod numbers;
mod reference;
mod ruleset;
mod sequence;
mod streams;
mod transactions;

use weir_sensor::matcher::Engine;

const ENGINES: [Engine; 2] = [Engine::Prefilter, Engine::AhoCorasick];
