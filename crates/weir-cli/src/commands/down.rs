//! `weir down`: takes down edges, or takes off what a killed `weir run` left on the interfaces of this network namespace; with `--all` as
//! well what is left of namespaces that are gone.
//!
//! An edge goes only if it is asked for: nobody left it behind, it has no process.

use std::process::ExitCode;

use serde::Serialize;
use weir_engine::control::Client;
use weir_engine::edge;
use weir_engine::live::OWNER;
use weir_kernel::own_source;
use weir_kernel::pins::{self, PinnedLink};
use weir_kernel::{KernelError, iface, netns};
use weir_runtime::Kind;

use crate::args::DownArgs;
use crate::failure::Failure;
use crate::output;

/// An edge that stays, because it could not be read or removed.
#[derive(Serialize)]
struct Stays {
    edge: String,
    error: String,
}

#[derive(Serialize)]
struct Removed {
    interface: Option<String>,
    ifindex: u32,
    /// Inode of its network namespace.
    netns: u64,
    /// Absent where only a pin was left.
    program: Option<u32>,
}

pub(crate) fn run(args: &DownArgs) -> Result<ExitCode, Failure> {
    let edges = match (&args.edge, &args.config) {
        (edge, Some(path)) => Some(vec![super::edge::name(path, edge.as_deref())?]),
        (Some(name), None) => Some(vec![name.clone()]),
        (None, None) if args.all => None,
        (None, None) => Some(Vec::new()),
    };
    let only_edges = args.edge.is_some() || args.config.is_some();
    // A document says nothing of the graph of its edge.
    let only_networks =
        (args.config.as_deref()).is_some_and(|path| Kind::of(path) == Kind::Networks);
    let mut gone = Vec::new();
    let mut stay = Vec::new();
    let all = || -> Result<Vec<String>, Failure> {
        Ok([weir_runtime::edges()?, edge::orphans()?].concat())
    };
    for name in edges.map_or_else(all, Ok)? {
        let went = match only_networks {
            true => weir_runtime::down_networks(&name),
            false => weir_runtime::down(&name),
        };
        match went {
            Ok(true) => {
                super::history::note(&name);
                gone.push(name);
            }
            Ok(false) => {}
            Err(error) if only_edges => return Err(error.into()),
            // It must not keep the others.
            Err(error) => stay.push(Stays {
                edge: name,
                error: error.to_string(),
            }),
        }
    }
    if only_edges {
        return down_to(args, &gone);
    }
    let mut found = pins::list().map_err(Failure::failed)?;
    if !args.interfaces.is_empty() {
        let mut wanted = Vec::with_capacity(args.interfaces.len());
        for name in &args.interfaces {
            wanted.push(iface::index_of(name).map_err(Failure::usage)?);
        }
        found.retain(|pin| wanted.contains(&pin.ifindex));
    }
    if args.all {
        found.extend(pins::orphans().map_err(Failure::failed)?);
    }
    let here = netns::current_inode().map_err(Failure::failed)?;
    let mut removed = Vec::with_capacity(found.len());
    let mut failed: Option<KernelError> = None;
    // One that cannot be removed must not keep the others.
    for pin in found {
        let forgotten = match pin.netns == here {
            true => Ok(()),
            false => own_source::forget(OWNER, pin.netns, pin.ifindex),
        };
        match pins::remove(&pin).and(forgotten) {
            Ok(()) => removed.push(pin),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    pins::sweep_claims();
    Client::sweep();
    let only: Option<Vec<u32>> = match args.interfaces.is_empty() {
        true => None,
        false => Some(
            (args.interfaces.iter())
                .filter_map(|name| iface::find_index(name))
                .collect(),
        ),
    };
    let restored = own_source::release_all(OWNER, only.as_deref()).map_err(Failure::failed)?;
    if args.json {
        let rows: Vec<Removed> = removed
            .into_iter()
            .map(|pin| Removed {
                interface: pin.name,
                ifindex: pin.ifindex,
                netns: pin.netns,
                program: pin.prog_id,
            })
            .collect();
        output::json(
            &serde_json::json!({ "edges": gone, "stay": stay, "removed": rows, "restored": restored }),
        )?;
    } else if removed.is_empty()
        && gone.is_empty()
        && stay.is_empty()
        && restored.is_empty()
        && failed.is_none()
    {
        output::out("nothing to remove: no `weir run` left anything here\n")?;
        let running = weir_runtime::edges()?;
        if !running.is_empty() {
            output::complain(&format!(
                "running edges stay: {}; stop them with --edge NAME or --all",
                running.join(", ")
            ));
        }
    } else {
        output::out(
            &gone
                .iter()
                .map(|name| format!("edge {name}: down\n"))
                .collect::<String>(),
        )?;
        output::out(
            &removed
                .iter()
                .map(|pin| line(pin, here))
                .collect::<String>(),
        )?;
        let back = |name: &String| format!("{name}: restored the settings of its stack\n");
        output::out(&restored.iter().map(back).collect::<String>())?;
    }
    for one in &stay {
        output::complain(&format!("edge {} stays: {}", one.edge, one.error));
    }
    match failed {
        None => Ok(ExitCode::from(u8::from(!stay.is_empty()))),
        Some(error) => Err(Failure::failed(error)),
    }
}

/// What became of one edge that was named.
fn down_to(args: &DownArgs, gone: &[String]) -> Result<ExitCode, Failure> {
    if args.json {
        output::json(&serde_json::json!({ "edges": gone, "removed": [] }))?;
    } else if gone.is_empty() {
        output::out("nothing to stop: that edge is not running\n")?;
    } else {
        output::out(
            &gone
                .iter()
                .map(|name| format!("edge {name}: down\n"))
                .collect::<String>(),
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

fn line(pin: &PinnedLink, here: u64) -> String {
    let mut name = pin
        .name
        .clone()
        .unwrap_or_else(|| format!("interface {} (gone)", pin.ifindex));
    if pin.netns != here {
        name.push_str(&format!(" of network namespace {}", pin.netns));
    }
    match pin.prog_id {
        Some(id) => format!("{name}: removed program {id}\n"),
        None => format!("{name}: removed a pin without a program\n"),
    }
}
