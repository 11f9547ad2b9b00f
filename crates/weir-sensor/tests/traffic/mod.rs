//! From frames to transactions: capture files and filters, decoding, fragments, streams, applications; each held to a reference, and all captures at hand through all of it.

mod apps;
mod captures;
mod common;
mod decode;
mod doubts;
mod files;
mod filter;
mod fragments;
mod spread;
mod streams;
