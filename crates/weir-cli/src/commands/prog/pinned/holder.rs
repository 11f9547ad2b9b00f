//! Who is on an interface that is occupied, and which command takes it off.
//!
//! Asked when the kernel has refused already: what cannot be found out is left out of the sentence.

use weir_engine::edge;
use weir_kernel::{LoadedProgram, pins};

use super::store;
use crate::failure::Failure;

/// Who is on the interface, and what to do about it.
pub(in crate::commands) fn occupied(interface: &str, prog_id: u32) -> Failure {
    let name = LoadedProgram::by_id(prog_id)
        .map_or_else(|_| "unknown".to_owned(), |p| p.name().to_owned());
    let there = format!("{interface} is occupied by program {name} (kernel id {prog_id})");
    let ours = store::kept().unwrap_or_default().into_iter().find(|kept| {
        let id = kept
            .program()
            .ok()
            .and_then(|p| p.info().ok())
            .map(|i| i.id);
        id == Some(prog_id)
    });
    if let Some(kept) = ours {
        return Failure::failed(format!(
            "{there}, which is program {kept} of weir: `weir prog detach {} -i {interface}` detaches it, `weir prog replace {} OBJ` replaces it",
            kept.id, kept.id
        ));
    }
    let run = pins::list()
        .unwrap_or_default()
        .into_iter()
        .any(|pin| pin.prog_id == Some(prog_id));
    if run {
        return Failure::failed(format!(
            "{there}, which a `weir run` put there: stop it, or `weir down -i {interface}` if it was killed"
        ));
    }
    if let Some(edge) = edge_of(interface) {
        return Failure::failed(format!(
            "{there}, which is of edge {edge}: `weir down --edge {edge}` detaches it, `weir status --edge {edge}` shows what it does"
        ));
    }
    Failure::failed(format!(
        "{there}, which weir did not put there: end what did (`bpftool link` shows it), \
         or `ip link set dev {interface} xdp off` if nothing holds it"
    ))
}

/// The edge whose port the interface is, in this namespace.
fn edge_of(interface: &str) -> Option<String> {
    let names = edge::list().unwrap_or_default();
    names.into_iter().find(|name| {
        edge::status(name).is_ok_and(|status| {
            let mut ports = status.ports.iter();
            ports.any(|port| port.attached && port.device == interface)
        })
    })
}
