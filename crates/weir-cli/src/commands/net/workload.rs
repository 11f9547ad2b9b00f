//! `weir net workload`: workloads that come, go and move, in the running document of this host.

use std::process::ExitCode;

use serde_json::json;
use weir_runtime::networks::running_edge;
use weir_runtime::stations;
use weir_runtime::workloads::{self, Change, Workload};

use super::names::workload_of;
use crate::args::net::WorkloadCommand;
use crate::commands::edge::networks::{applied_json, applied_text};
use crate::commands::history;
use crate::failure::Failure;
use crate::output;

pub(super) fn run(command: &WorkloadCommand, as_json: bool) -> Result<ExitCode, Failure> {
    let (change, edge) = match command {
        WorkloadCommand::Add {
            workload,
            subnet,
            device,
            address,
            mac,
            group,
            on,
            edge,
        } => {
            let (network, name) = workload_of(workload)?;
            let change = Change::Add(Workload {
                network: network.to_owned(),
                name: name.to_owned(),
                subnet: subnet.clone(),
                device: device.clone(),
                addresses: address.clone(),
                mac: mac.clone(),
                edge: on.clone(),
                groups: group.clone(),
            });
            (change, edge)
        }
        WorkloadCommand::Delete { workload, edge } => {
            let (network, name) = workload_of(workload)?;
            let change = Change::Remove {
                network: network.to_owned(),
                name: name.to_owned(),
            };
            (change, edge)
        }
        WorkloadCommand::Groups {
            workload,
            group,
            edge,
        } => {
            let (network, name) = workload_of(workload)?;
            let change = Change::Groups {
                network: network.to_owned(),
                name: name.to_owned(),
                groups: group.clone(),
            };
            (change, edge)
        }
        WorkloadCommand::Move {
            workload,
            to,
            device,
            edge,
        } => {
            let (network, name) = workload_of(workload)?;
            if to.is_none() && device.is_none() {
                return Err(Failure::usage(
                    "where to? Name an edge with --to, or an interface with --device",
                ));
            }
            let change = Change::Move {
                network: network.to_owned(),
                name: name.to_owned(),
                edge: to.clone(),
                device: device.clone(),
            };
            (change, edge)
        }
    };
    let (edge, _) = running_edge(edge.as_deref())?;
    let changed = workloads::change(&edge, &change)?;
    output::tell(&changed.warnings.render(output::stderr_has_color()));
    let Some(done) = &changed.applied else {
        match as_json {
            true => output::json(&json!({ "edge": edge, "changed": false }))?,
            false => output::out(&format!("edge {edge}: nothing to change\n"))?,
        }
        return Ok(ExitCode::SUCCESS);
    };
    history::note(&edge);
    let stations = stations::of(&done.plan)?;
    for warning in stations::warnings(&stations) {
        output::complain(&warning);
    }
    match as_json {
        true => output::json(&applied_json(&edge, done, &stations)?)?,
        false => output::out(&applied_text(&edge, done, &stations))?,
    }
    Ok(ExitCode::SUCCESS)
}
