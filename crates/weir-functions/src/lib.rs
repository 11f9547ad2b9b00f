//! The Rust half of every function: configuration -> plan, counters -> report. Pure: no kernel, no file, no clock.
//!
//! A [`plan::InstancePlan`] says which object to load, with which constants and which map contents; an engine carries it
//! out. The same configuration gives the same plan on every machine.

#![warn(clippy::expect_used, clippy::unwrap_used)]

pub mod balancer;
pub mod decapsulate;
pub mod empty;
pub mod filter;
pub mod joined;
pub mod kind;
pub mod middlebox;
pub mod object;
pub mod plan;
pub mod read;
pub mod redirect;
pub mod report;
pub mod request;
pub mod router;
