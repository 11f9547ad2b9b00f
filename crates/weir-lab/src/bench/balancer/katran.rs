//! Katran as a peer: its own object, filled as its controller does for one service, on a bed like that of weir's balancer.
//!
//! The object is not part of weir: the user names it. Invariant: the same flows, servers and room for flows as weir's balancer in mode `ipip`.

use std::os::fd::{AsFd, AsRawFd};

use weir_kernel::{KernelObject, LoadedProgram, Map};

use super::traffic::{PORT, SERVICE};
use crate::LabError;

/// Program of the object.
const PROGRAM: &str = "balancer_ingress";
/// Places of a service's ring, as Katran is compiled.
const RING: u32 = 65_537;
const UDP: u8 = 17;
/// Link-layer address of the far end, where all packets go.
const GATEWAY: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// The balancer with one service in front of these servers and a cache of so many flows for each CPU.
pub(crate) fn katran(
    elf: &[u8],
    servers: &[(u32, u32)],
    flows: u32,
) -> Result<LoadedProgram, LabError> {
    let object = KernelObject::open(elf)?;
    let mut cache = object.map_definition("fallback_cache")?;
    let program = object.load(PROGRAM)?;
    cache.entries = flows;
    let mut gateway = [0; 8];
    gateway[..6].copy_from_slice(&GATEWAY);
    program.update("ctl_array", &[0; 4], &gateway, 0)?;
    // `struct vip_definition`: address (16), port, protocol; `struct vip_meta`: flags, number of the service.
    let mut vip = [0; 20];
    vip[..4].copy_from_slice(&SERVICE.octets());
    vip[16..18].copy_from_slice(&PORT.to_be_bytes());
    vip[18] = UDP;
    program.update("vip_map", &vip, &[0; 8], 0)?;
    for (number, _) in servers {
        // `struct real_definition`: address (16), flags.
        let mut real = [0; 20];
        let [high, low] = (*number as u16).to_be_bytes();
        real[..4].copy_from_slice(&[10, 77, high, low]);
        program.update("reals", &number.to_ne_bytes(), &real, 0)?;
    }
    let places: Vec<u8> = (0..RING).flat_map(u32::to_ne_bytes).collect();
    let chosen: Vec<u8> = (0..RING)
        .map(|place| servers[spread(place) as usize % servers.len()].0)
        .flat_map(u32::to_ne_bytes)
        .collect();
    program.update_batch("ch_rings", &places, &chosen)?;
    for cpu in 0..program.cpus() as u32 {
        // The map of maps keeps it.
        let one = Map::create("flows", cache)?;
        let fd = one.as_fd().as_raw_fd() as u32;
        program.update("lru_mapping", &cpu.to_ne_bytes(), &fd.to_ne_bytes(), 0)?;
    }
    Ok(program)
}

/// A place's server: the servers of neighbouring places follow from nothing. Each has about the same number of places, which is all that
/// matters for the cost.
fn spread(place: u32) -> u32 {
    place.wrapping_mul(2_654_435_761) >> 8
}
