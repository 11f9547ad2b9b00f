//! What runs beside edges: policies of `weir run`, programs loaded by `weir prog`, and what killed processes and namespaces that are gone left.

use std::fmt::Write as _;

use serde::Serialize;
use weir_engine::control::Client;
use weir_engine::edge;
use weir_kernel::pins;

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

/// What is left of a process or a namespace that is gone.
#[derive(Serialize)]
pub(super) struct Remains {
    /// An edge whose devices are gone, in another namespace.
    edge: Option<String>,
    /// Of a `weir run` that was killed: the interface, if it exists here.
    interface: Option<String>,
    ifindex: Option<u32>,
    /// The namespace of that interface, by its inode.
    netns: Option<u64>,
    /// The program that runs there, if one does.
    program: Option<u32>,
}

/// What `weir down --all` removes beside the edges of this namespace.
pub(super) fn remains() -> Result<Vec<Remains>, Failure> {
    let here = pins::left_here().map_err(Failure::failed)?;
    let elsewhere = pins::orphans().map_err(Failure::failed)?;
    let mut all: Vec<Remains> = (here.into_iter().chain(elsewhere))
        .map(|pin| Remains {
            edge: None,
            interface: pin.name,
            ifindex: Some(pin.ifindex),
            netns: Some(pin.netns),
            program: pin.prog_id,
        })
        .collect();
    all.extend(edge::orphans()?.into_iter().map(|name| Remains {
        edge: Some(name),
        interface: None,
        ifindex: None,
        netns: None,
        program: None,
    }));
    Ok(all)
}

impl Remains {
    fn line(&self) -> String {
        if let Some(edge) = &self.edge {
            return format!(
                "edge {edge}: its devices in another network namespace are gone; `weir down --all` removes it"
            );
        }
        let index = self.ifindex.unwrap_or_default();
        match (&self.interface, self.program) {
            (Some(name), Some(id)) => format!(
                "{name}: program {id} of a `weir run` that was killed; `weir down -i {name}` removes it"
            ),
            (Some(name), None) => format!(
                "{name}: a pin of a `weir run` that was killed; `weir down -i {name}` removes it"
            ),
            (None, _) => format!(
                "a pin of a `weir run` that was killed, for interface {index} (gone) of network namespace {}; `weir down --all` removes it",
                self.netns.unwrap_or_default()
            ),
        }
    }
}

/// Programs that are loaded.
pub(super) fn programs() -> Result<Vec<Row>, Failure> {
    rows()
}

pub(super) fn text(policies: &[Policy], programs: &[Row], remains: &[Remains]) -> String {
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
    for one in remains {
        let _ = writeln!(text, "{}", one.line());
    }
    text
}
