//! What is watched of virtual networks: names of workloads and interfaces, and programs that tell.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weir_bpf::abi::{NetRemote, tunnel_kind};
use weir_engine::network;
use weir_engine::watch::Names;
use weir_engine::watch::words::{Ends, Named};
use weir_kernel::Map;
use weir_network::EdgeNetworks;
use weir_runtime::networks::{self, Record};

use super::side::{Place, Side};
use crate::failure::Failure;
use crate::output;

/// The name of all that comes in by tunnels, for `--port`.
const UNDERLAY: &str = "underlay";

/// Networks that run.
pub(super) struct Look {
    pub(super) side: Side,
    /// The document.
    pub(super) text: String,
    /// The process that watches them.
    pub(super) watcher: Option<u32>,
}

impl Look {
    /// Of an edge of this namespace; `None`: it has none.
    pub(super) fn of(edge: &str) -> Result<Option<Look>, Failure> {
        if !network::runs_here(edge)? {
            return Ok(None);
        }
        let Some(look) = network::look(edge)? else {
            return Ok(None);
        };
        let record = Record::read(&look.text)?;
        // What is probably not meant was said when it was applied.
        let (checked, _) = record.check()?;
        let plan = networks::planned(&checked, edge, &look.numbers)?;
        Ok(Some(Look {
            side: side(&plan),
            text: record.text,
            watcher: network::watcher(edge)?,
        }))
    }
}

/// Networks that run programs which tell; dropping it goes back to those of before.
pub(super) struct Watched {
    name: String,
    is_over: bool,
}

impl Watched {
    pub(super) fn begin(name: &str) -> Result<(Watched, [Map; 3]), Failure> {
        let maps = networks::watch(name)?;
        let runs = Watched {
            name: name.to_owned(),
            is_over: false,
        };
        Ok((runs, maps))
    }

    /// Whether they still do.
    pub(super) fn holds(&self) -> Result<bool, Failure> {
        Ok(network::is_watched(&self.name)?)
    }

    pub(super) fn end(&mut self) -> Result<(), Failure> {
        if !self.is_over {
            self.is_over = true;
            networks::unwatch(&self.name)?;
        }
        Ok(())
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Err(failure) = self.end() {
            output::complain(&format!(
                "the networks of edge {} still run programs that can be watched ({failure}): end that with `weir trace --off --edge {0}`",
                self.name
            ));
        }
    }
}

/// Names of interfaces are those of `weir net show`, behind that of their network.
fn side(plan: &EdgeNetworks) -> Side {
    let (mut ports, mut stages) = (BTreeMap::new(), BTreeMap::new());
    let mut by_number = BTreeMap::new();
    let (mut port_names, mut functions) = (Vec::new(), BTreeMap::new());
    let mut instances = BTreeMap::new();
    let mut ends = Ends {
        remotes: plan.labels.remotes.clone(),
        identifiers: BTreeMap::new(),
    };
    for (remote, name) in plan.remotes.iter().zip(&mut ends.remotes) {
        name.push_str(&format!(" ({}, {})", address(remote), kind(remote.kind)));
    }
    let tunnels: BTreeSet<u32> = (plan.interfaces.iter())
        .filter(|vi| vi.slot == weir_bpf::abi::net_slot::TUNNEL)
        .map(|vi| vi.peer)
        .collect();
    let mut behind = vec![0];
    for (vid, label) in (0..).zip(&plan.labels.interfaces) {
        if label.name.is_empty() {
            continue;
        }
        let name = format!("{}/{}", label.network, label.name);
        let named = Named {
            name: name.clone(),
            outs: Vec::new(),
        };
        instances.insert(vid, named);
        if tunnels.contains(&vid) {
            behind.push(vid);
            by_number.insert(vid, name.clone());
            let number = plan.interfaces.get(vid as usize).map(|vi| vi.instance);
            let tunnel = number.and_then(|number| plan.tunnels.get(number as usize));
            if let Some(tunnel) = tunnel {
                ends.identifiers.insert(vid, tunnel.identifier);
            }
        }
        let function = format!("{}/{}", label.network, label.function);
        let interfaces: &mut BTreeSet<u32> = functions.entry(function).or_default();
        interfaces.insert(vid);
        stages.insert(name, Place::Interfaces([vid].into()));
    }
    let stage_names = functions.keys().cloned().collect();
    for (name, vids) in functions {
        stages.insert(name, Place::Interfaces(vids));
    }
    for one in &plan.devices {
        let name = format!("{}/{}", one.network, one.workload);
        by_number.insert(one.vid, name.clone());
        ports.insert(one.device.clone(), vec![one.vid]);
        ports.insert(name.clone(), vec![one.vid]);
        stages.insert(name.clone(), Place::Workload(one.vid));
        port_names.push(name);
    }
    by_number.insert(0, UNDERLAY.to_owned());
    ports.insert(UNDERLAY.to_owned(), behind);
    port_names.push(UNDERLAY.to_owned());
    Side {
        names: Names {
            ports: by_number,
            instances,
            networks: Some(ends),
        },
        ports,
        port_names,
        stages,
        stage_names,
    }
}

fn address(remote: &NetRemote) -> IpAddr {
    let bytes = remote.address.map(u32::to_ne_bytes);
    match remote.family {
        6 => {
            let octets: [u8; 16] = std::array::from_fn(|i| bytes[i / 4][i % 4]);
            Ipv6Addr::from(octets).into()
        }
        _ => Ipv4Addr::from(bytes[0]).into(),
    }
}

fn kind(kind: u8) -> &'static str {
    match kind {
        tunnel_kind::GENEVE => "geneve",
        tunnel_kind::GRE => "gre",
        tunnel_kind::KERNEL => "kernel-vxlan",
        _ => "vxlan",
    }
}
