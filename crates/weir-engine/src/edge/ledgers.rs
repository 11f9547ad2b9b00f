//! The counters that every program keeps, summed over CPUs: of instances, of links, of the pair.

use weir_bpf::abi::Stats;
use weir_kernel::pinned::PinnedLink;
use weir_kernel::{LoadedProgram, Map};
use weir_packet::Reason;
use zerocopy::FromBytes;

use super::error::EdgeError;
use super::state::{InstanceState, PairState};

/// Reasons of a ledger that are not zero, by name.
pub fn reasons(ledger: &Stats) -> Vec<(&'static str, u64)> {
    Reason::ALL
        .iter()
        .map(|reason| (reason.name(), ledger.reason[reason.index() as usize]))
        .filter(|(_, count)| *count > 0)
        .collect()
}

/// The ledger of an instance; zeroes if its object keeps none.
pub(super) fn stats_of(instance: &InstanceState) -> Result<Stats, EdgeError> {
    let Some(map) = instance.maps.get("stats") else {
        return Ok(crate::no_stats());
    };
    Ok(stats_in(&Map::by_id(map.id, "stats")?)?)
}

/// Packets that came back through the pair.
pub(super) fn returned(pair: &PairState) -> Result<u64, EdgeError> {
    let program = weir_kernel::iface::xdp_prog_id(pair.far_ifindex)?;
    match program {
        Some(id) => Ok(stats_of_program(&LoadedProgram::by_id(id)?)?.received),
        None => Ok(0),
    }
}

pub(super) fn stats_of_link(link: &PinnedLink) -> Result<Stats, EdgeError> {
    stats_of_program(&LoadedProgram::by_id(link.prog_id()?)?)
}

pub(super) fn stats_of_program(program: &LoadedProgram) -> Result<Stats, EdgeError> {
    Ok(stats_in(&Map::of(program, "stats")?)?)
}

fn stats_in(map: &Map) -> Result<Stats, weir_kernel::KernelError> {
    let values = map.lookup_percpu(&0u32.to_ne_bytes())?;
    if values.iter().any(|v| Stats::read_from_bytes(v).is_err()) {
        // An object of somebody else may have a map of that name.
        return Ok(crate::no_stats());
    }
    Ok(crate::sum_stats(values.iter().map(Vec::as_slice)))
}
