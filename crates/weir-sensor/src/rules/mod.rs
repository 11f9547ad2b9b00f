//! Rules of signature sensors: the language that rule sets are published in, in two dialects, to a model that says what they mean.

mod model;

pub use model::*;
