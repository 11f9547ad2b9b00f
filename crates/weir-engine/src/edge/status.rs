//! What an edge does: ledgers of ports and instances, read from their maps without disturbing anybody.
//!
//! Reading takes no lock, so that it works while another process applies; a generation that is switched away meanwhile is read again.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use weir_bpf::abi::Stats;
use weir_kernel::pinned::PinnedLink;
use weir_kernel::{LoadedProgram, Map};

use super::error::EdgeError;
use super::form::Form;
use super::ledgers::{reasons, stats_of, stats_of_link, stats_of_program};
use super::second::{self, SecondStage};
use super::state::State;

/// A running edge.
#[derive(Clone, Debug)]
pub struct Status {
    /// Its name.
    pub name: String,
    /// The generation that packets follow, from 1.
    pub generation: u64,
    /// The configuration it was made from.
    pub text: String,
    /// Its ports, as configured.
    pub ports: Vec<PortStatus>,
    /// Its instances; those that weir put there by itself come last.
    pub instances: Vec<InstanceStatus>,
    /// Names of shared maps and their kernel ids.
    pub maps: Vec<(String, u32)>,
    /// Names of hooks and where they are.
    pub hooks: Vec<(String, String)>,
    /// Recirculation, if a path is long enough to need it.
    pub recirculation: Option<Recirculation>,
    /// What became of packets after a program decided: the second stage of the ledger. `None`: this kernel tells nothing of it.
    pub second: Option<SecondStage>,
    /// Which build of the programs runs.
    pub form: Form,
    /// The process that watches the edge; `None`: nobody, or it is gone.
    pub watcher: Option<u32>,
    /// Calls that found a retired program. Calls that found none are in the ledger of the caller, reason `missed_call`.
    pub missed: u64,
}

/// A port.
#[derive(Clone, Debug)]
pub struct PortStatus {
    /// Name in the configuration.
    pub name: String,
    /// Name of the device when it was attached.
    pub device: String,
    /// Its index.
    pub ifindex: u32,
    /// weir's number.
    pub number: u32,
    /// `native`, `generic` or `tc`.
    pub mode: String,
    /// Whether the device is there and runs the program.
    pub attached: bool,
    /// The kernel's id of the program that its received packets begin at; `None`: it is not attached.
    pub program: Option<u32>,
    /// What came in since it was attached.
    pub ledger: Stats,
    /// What left by it since that is seen; `None`: no program sees it.
    pub transmit: Option<Stats>,
}

/// An instance.
#[derive(Clone, Debug)]
pub struct InstanceStatus {
    /// Name in the configuration.
    pub name: String,
    /// Its object or file.
    pub object: String,
    /// Its number.
    pub vid: u32,
    /// The kernel's id of its program.
    pub program: u32,
    /// Outputs and what they lead to.
    pub outs: Vec<(String, String)>,
    /// Whether weir put it there by itself.
    pub implicit: bool,
    /// What it did since it was there, over all replacements.
    pub ledger: Stats,
    /// Its maps and their kernel ids.
    pub maps: Vec<(String, u32)>,
    /// The constant of it that is random.
    pub secret: Option<[u8; 8]>,
}

/// The pair that packets are sent through when a path is longer than the kernel lets programs call each other.
#[derive(Clone, Debug)]
pub struct Recirculation {
    /// Devices.
    pub devices: (String, String),
    /// Packets that came back.
    pub ledger: Stats,
}

impl InstanceStatus {
    /// Reasons that were counted, by name.
    pub fn reasons(&self) -> Vec<(&'static str, u64)> {
        reasons(&self.ledger)
    }
}

impl PortStatus {
    /// Reasons that were counted, by name.
    pub fn reasons(&self) -> Vec<(&'static str, u64)> {
        reasons(&self.ledger)
    }
}

/// Pauses between looks at an edge that has redirected packets which no account has, in milliseconds. A packet on its way is in some account
/// at a later look: the softirq thread that carries it may wait for its CPU as long as other threads' time slices take. A lost one is missing
/// from all of them.
const PAUSES: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];

pub(super) fn of(
    name: &str,
    folder: &Path,
    state: &State,
    stub: &LoadedProgram,
) -> Result<Status, EdgeError> {
    let unaccounted = |status: &Status| {
        let second = status.second.as_ref();
        second.and_then(|second| second.unaccounted).unwrap_or(0)
    };
    let mut best = look(name, folder, state, stub)?;
    for pause in PAUSES {
        if unaccounted(&best) == 0 {
            break;
        }
        sleep(Duration::from_millis(pause));
        let next = look(name, folder, state, stub)?;
        if unaccounted(&next) < unaccounted(&best) {
            best = next;
        }
    }
    Ok(best)
}

fn look(
    name: &str,
    folder: &Path,
    state: &State,
    stub: &LoadedProgram,
) -> Result<Status, EdgeError> {
    let mut ports = Vec::with_capacity(state.ports.len());
    for port in &state.ports {
        let of = |pin: &str| -> Result<(Option<u32>, Stats), EdgeError> {
            Ok(match PinnedLink::open(&folder.join(pin))? {
                Some(link) => {
                    let program = link.is_attached()?.then(|| link.prog_id()).transpose()?;
                    (program, stats_of_link(&link)?)
                }
                None => (None, crate::no_stats()),
            })
        };
        let (program, ledger) = of(&port.pin)?;
        let mut attached = program.is_some();
        let mut transmit = None;
        if let Some(pin) = &port.transmit {
            let (program, stats) = of(pin)?;
            attached &= program.is_some();
            transmit = Some(stats);
        }
        ports.push(PortStatus {
            name: port.name.clone(),
            device: port.device.clone(),
            ifindex: port.ifindex,
            number: port.number,
            mode: port.mode.clone(),
            attached,
            program,
            ledger,
            transmit,
        });
    }
    let mut instances = Vec::with_capacity(state.instances.len());
    for instance in &state.instances {
        instances.push(InstanceStatus {
            name: instance.name.clone(),
            object: instance.object.clone(),
            vid: instance.vid,
            program: match instance.program {
                0 => instance.tc_program.unwrap_or_default(),
                program => program,
            },
            outs: instance.outs.clone(),
            implicit: instance.implicit,
            ledger: stats_of(instance)?,
            maps: (instance.maps.iter())
                .map(|(name, map)| (name.clone(), map.id))
                .collect(),
            secret: instance.secret,
        });
    }
    let recirculation = match &state.pair {
        Some(pair) => {
            let link = PinnedLink::open(&folder.join(&pair.pin))?;
            Some(Recirculation {
                devices: (pair.near.clone(), pair.far.clone()),
                ledger: match &link {
                    Some(link) => stats_of_link(link)?,
                    None => crate::no_stats(),
                },
            })
        }
        None => None,
    };
    let of_ports = ports
        .iter()
        .flat_map(|port: &PortStatus| std::iter::once(&port.ledger).chain(&port.transmit));
    let of_instances = instances.iter().map(|one: &InstanceStatus| &one.ledger);
    let returned = recirculation
        .iter()
        .map(|pair: &Recirculation| &pair.ledger);
    let ledgers: Vec<&Stats> = of_ports.chain(of_instances).chain(returned).collect();
    let second = second::read(name, folder, state, &ledgers)?;
    Ok(Status {
        name: name.to_owned(),
        generation: state.generation,
        text: state.text.clone(),
        ports,
        instances,
        maps: state.maps.iter().map(|m| (m.name.clone(), m.id)).collect(),
        hooks: (state.hooks.iter())
            .map(|h| (h.name.clone(), h.point.clone()))
            .collect(),
        second,
        recirculation,
        form: state.form(),
        watcher: match Map::open(&folder.join(crate::watch::MAPS[0]))? {
            Some(want) if state.watched => crate::watch::owner(&want).unwrap_or_default(),
            _ => None,
        },
        missed: stats_of_program(stub)?.received,
    })
}
