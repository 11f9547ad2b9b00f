//! The test program of this crate.

mod corpus;
