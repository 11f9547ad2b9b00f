//! What runs beside edges: policies of `weir run`, and programs loaded by `weir prog`.

use std::fmt::Write as _;

use serde::Serialize;
use weir_engine::control::Client;

use crate::commands::prog::pinned::list::{Row, rows};
use crate::failure::Failure;

/// A policy that `weir run` keeps on interfaces.
#[derive(Serialize)]
pub(super) struct Policy {
    interfaces: Vec<String>,
    process: u32,
    policy: String,
}

/// Policies that run in this network namespace.
pub(super) fn policies() -> Result<Vec<Policy>, Failure> {
    let clients = Client::all()?;
    let policies = clients.iter().map(|client| {
        let hello = client.hello();
        Policy {
            interfaces: hello.interfaces.clone(),
            process: hello.pid,
            policy: hello.policy.display().to_string(),
        }
    });
    Ok(policies.collect())
}

/// Programs that are loaded.
pub(super) fn programs() -> Result<Vec<Row>, Failure> {
    rows()
}

pub(super) fn text(policies: &[Policy], programs: &[Row]) -> String {
    let mut text = String::new();
    for one in policies {
        let _ = writeln!(
            text,
            "policy {} on {} (process {}): `weir rule list -i {}` shows its counters",
            one.policy,
            one.interfaces.join(", "),
            one.process,
            one.interfaces.first().map_or("", String::as_str)
        );
    }
    for one in programs {
        let _ = writeln!(text, "{}: `weir prog list` says more", one.line());
    }
    text
}
