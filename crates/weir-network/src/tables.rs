//! Plan + what the host knows -> the contents of one half of each array.
//!
//! Invariant: every VID, record and bucket that something in a half names is in that half.

use weir_bpf::abi::{
    Exact, NetBridge, NetHop, NetPunt, NetRemote, NetRouter, NetSelection, NetSteer, NetTunnel, Vi,
    exact_kind, net_slot, tunnel_kind, vi_flag, vi_onward,
};

use crate::exact::{PlaceError, Table, place, scope};
use crate::plan::EdgeNetworks;

/// A device as its host knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its index.
    pub index: u32,
    /// It is a veth whose other end lies in another namespace.
    pub peer: bool,
}

/// What only the host of an edge knows.
pub trait Host {
    /// A device by its name.
    fn device(&self, name: &str) -> Option<Device>;

    /// Index of the device of the kernel that makes VXLAN, where the edge sends that.
    fn kernel_tunnel(&self) -> Option<u32>;
}

/// One half of each array, as long as it has to be. Record 0 of each is nobody's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tables {
    /// By VID.
    pub interfaces: Vec<Vi>,
    /// Buckets of exact matches.
    pub exact: Table,
    /// By number.
    pub bridges: Vec<NetBridge>,
    /// By number.
    pub routers: Vec<NetRouter>,
    /// Runs of hops.
    pub hops: Vec<NetHop>,
    /// By number.
    pub remotes: Vec<NetRemote>,
    /// By number.
    pub tunnels: Vec<NetTunnel>,
    /// Runs of VIDs and remotes.
    pub lists: Vec<u32>,
    /// By the instance of interfaces of what leads into and out of chains.
    pub steers: Vec<NetSteer>,
    /// Runs of what is sent through chains.
    pub selections: Vec<NetSelection>,
    /// By the instance of interfaces of functions that hand packets to a helper.
    pub punts: Vec<NetPunt>,
}

impl Tables {
    /// The interfaces as the data plane reads them: in the record of one side of a function stands what lies behind the other one, so that
    /// a packet that passes through needs one record, not two.
    #[must_use]
    pub fn shortened(&self) -> Vec<Vi> {
        let mut interfaces = self.interfaces.clone();
        for vi in interfaces.iter_mut().filter(|vi| vi.onward != 0) {
            let Some(onward) = self.interfaces.get(vi.onward as usize) else {
                continue;
            };
            if onward.peer != 0 && onward.slot != net_slot::DEVICE {
                vi.address6[vi_onward::PEER] = onward.peer;
                vi.address6[vi_onward::SLOT] = onward.slot;
            }
        }
        interfaces
    }
}

/// Why a plan has no tables.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TablesError {
    /// Devices that the host does not have.
    #[error(
        "edge `{edge}` has no device named {}; make it, or take the workload out of the document",
        names(devices)
    )]
    Devices {
        /// Name of the edge.
        edge: String,
        /// Names of the devices.
        devices: Vec<String>,
    },
    /// Two names for one device.
    #[error("`{one}` and `{other}` are the same device; a device is one workload")]
    Same {
        /// One of the names.
        one: String,
        /// The other one.
        other: String,
    },
    /// The exact matches.
    #[error(transparent)]
    Place(#[from] PlaceError),
}

fn names(devices: &[String]) -> String {
    let shown: Vec<String> = devices
        .iter()
        .take(5)
        .map(|name| format!("`{name}`"))
        .collect();
    match devices.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} (and {more} more)", shown.join(", ")),
    }
}

impl EdgeNetworks {
    /// The contents of a half. `buckets`: how many buckets of exact matches the maps have, 0 if there are none yet; the table may come
    /// out larger, and maps must be made anew then.
    ///
    /// # Errors
    /// The host does not have a device, or the exact matches have no table.
    pub fn tables(&self, host: &dyn Host, buckets: u32) -> Result<Tables, TablesError> {
        let mut missing = Vec::new();
        let mut interfaces = self.interfaces.clone();
        let mut exact = self.exact.clone();
        let mut seen = foldhash::HashMap::default();
        for one in &self.devices {
            let Some(device) = host.device(&one.device) else {
                missing.push(one.device.clone());
                continue;
            };
            if let Some(other) = seen.insert(device.index, &one.device) {
                let (one, other) = (other.clone(), one.device.clone());
                return Err(TablesError::Same { one, other });
            }
            for vid in [one.vid, one.port] {
                let vi = &mut interfaces[vid as usize];
                vi.device = device.index;
                if device.peer {
                    vi.flags |= vi_flag::PEER;
                }
            }
            exact.push(Exact {
                value: one.vid,
                scope: scope(exact_kind::DEVICE, 0, 0),
                key: [device.index.into(), 0],
                extra: 0,
            });
        }
        let mut remotes = self.remotes.clone();
        let used = remotes.iter_mut().filter(|remote| remote.family != 0);
        for remote in used {
            let (index, name) = match remote.kind {
                tunnel_kind::KERNEL => (host.kernel_tunnel(), "of kernel-vxlan"),
                _ => {
                    let name = self.underlay.device.as_deref().unwrap_or("of the underlay");
                    (host.device(name).map(|device| device.index), name)
                }
            };
            match index {
                Some(index) => remote.device = index,
                None if missing.iter().any(|one| one == name) => {}
                None => missing.push(name.to_owned()),
            }
        }
        if !missing.is_empty() {
            let edge = self.edge.clone();
            return Err(TablesError::Devices {
                edge,
                devices: missing,
            });
        }
        Ok(Tables {
            interfaces,
            exact: place(&exact, buckets)?,
            bridges: self.bridges.clone(),
            routers: self.routers.clone(),
            hops: self.hops.clone(),
            remotes,
            tunnels: self.tunnels.clone(),
            lists: self.lists.clone(),
            steers: self.steers.clone(),
            selections: self.selections.clone(),
            punts: self.punts.clone(),
        })
    }
}
