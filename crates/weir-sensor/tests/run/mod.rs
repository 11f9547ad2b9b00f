//! Whole runs: captures made here, rules written here, and what the logs say of them.

mod bed;
mod caps;
mod datagrams;
mod defects;
mod encrypted;
mod events;
mod fuzzed;
mod hostile;
mod language;
mod layers;
mod logs;
mod mail;
mod mqtt;
mod names;
mod numbers;
mod pass;
mod prevention;
mod records;
mod reload;
mod rfb;
mod schema;
mod sets;
mod sip;
mod spread;
mod transfers;
mod web;
