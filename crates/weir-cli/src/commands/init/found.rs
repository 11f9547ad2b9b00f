//! What a host looks like to somebody who writes a configuration for it: devices, their addresses and networks, and the way out.

use std::collections::BTreeMap;
use std::net::IpAddr;

use weir_kernel::{KernelError, addresses, iface, routes};
use weir_value::Prefix;

/// A device that packets can come in by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Device {
    pub(super) name: String,
    /// Own addresses, IPv4 first; none of one link only.
    pub(super) addresses: Vec<IpAddr>,
    /// Networks that are reached without a router.
    pub(super) networks: Vec<Prefix>,
    /// Whether a default route leaves by it.
    pub(super) is_way_out: bool,
}

impl Device {
    /// The first IPv4 address.
    pub(super) fn ipv4(&self) -> Option<IpAddr> {
        self.addresses.iter().copied().find(IpAddr::is_ipv4)
    }

    /// Its networks of IPv4.
    pub(super) fn networks4(&self) -> Vec<Prefix> {
        let all = self.networks.iter().copied();
        all.filter(|prefix| !prefix.is_ip6).collect()
    }

    /// `eth0 (192.0.2.1, default route)`.
    pub(super) fn shown(&self) -> String {
        let addresses = self.addresses.iter().map(IpAddr::to_string);
        let mut parts: Vec<String> = addresses.collect();
        if self.is_way_out {
            parts.push("default route".to_owned());
        }
        match parts.is_empty() {
            true => self.name.clone(),
            false => format!("{} ({})", self.name, parts.join(", ")),
        }
    }
}

/// The devices of this network namespace that are up or have addresses, loopback left out.
pub(super) fn devices() -> Result<Vec<Device>, KernelError> {
    let mut devices: BTreeMap<u32, (Device, bool)> = BTreeMap::new();
    for one in iface::list()?.into_iter().filter(|one| one.name != "lo") {
        let device = Device {
            name: one.name,
            ..Device::default()
        };
        devices.insert(one.ifindex, (device, one.up));
    }
    for own in addresses::read()? {
        let Some((device, _)) = devices.get_mut(&own.device) else {
            continue;
        };
        if of_link(own.address) {
            continue;
        }
        device.addresses.push(own.address);
        let network = Prefix::around(own.address, own.len);
        if !device.networks.contains(&network) {
            device.networks.push(network);
        }
    }
    for route in routes::read(routes::MAIN)? {
        for hop in route.hops.iter().filter(|_| route.len == 0) {
            if let Some((device, _)) = devices.get_mut(&hop.device) {
                device.is_way_out = true;
            }
        }
    }
    let devices = devices.into_values();
    let found = devices.filter(|(device, up)| *up || !device.addresses.is_empty());
    let mut found: Vec<Device> = found.map(|(device, _)| device).collect();
    for device in &mut found {
        device.addresses.sort_unstable();
    }
    Ok(found)
}

/// Whether an address means something on one link only.
fn of_link(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}
