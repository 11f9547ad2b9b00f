//! MAC addresses of workloads: which one each has to send from, what its device has, and what to do where they differ.
//!
//! What a workload sends from is the MAC address of its own end of the device: of a veth pair the far end, which may lie in any namespace that
//! the kernel lets this one read. Of a tap or another device nobody but the workload knows it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use weir_kernel::links::{self, FarEnd};
use weir_network::model::Document;
use weir_network::values::{Mac, address, number};
use weir_network::{EdgeNetworks, Networks, Numbers};
use weir_packet::Reason;

use crate::error::RuntimeError;

/// A workload of a plan, and the other end of its device.
#[derive(Debug)]
pub struct Station<'p> {
    /// `network/workload`.
    pub name: String,
    /// Its device on this host.
    pub device: &'p str,
    /// What it may send from; `None`: anything.
    pub mac: Option<Mac>,
    /// Where that comes from: `document`, `names`, `device`.
    pub from: &'static str,
    far: Option<FarEnd>,
}

impl Station<'_> {
    /// What its device has; `None`: it cannot be read.
    #[must_use]
    pub fn of_device(&self) -> Option<Mac> {
        self.far.as_ref().map(|far| Mac(far.mac))
    }

    /// The address that the document says and the other one that the device has.
    #[must_use]
    pub fn difference(&self) -> Option<(Mac, Mac)> {
        let (mac, has) = (self.mac?, self.of_device()?);
        (mac != has).then_some((mac, has))
    }
}

fn failed(error: weir_kernel::KernelError) -> RuntimeError {
    RuntimeError::Failed(error.to_string())
}

fn far_end(device: &str) -> Result<Option<FarEnd>, RuntimeError> {
    links::far_end(device).map_err(failed)
}

/// Reads the addresses that workloads of an edge take from their devices: those, by full name.
pub(crate) fn read(
    document: &mut Document,
    edge: &str,
) -> Result<BTreeMap<String, String>, RuntimeError> {
    let mut found = BTreeMap::new();
    document.read_devices(edge, |name: &str, device: &str| -> Result<Option<Mac>, RuntimeError> {
        let far = far_end(device)?;
        if far.is_none() && weir_kernel::iface::find_index(device).is_none() {
            // An apply refuses the device by its name, or waits for it and reads its address then.
            return Ok(None);
        }
        let far = far.ok_or_else(|| {
            RuntimeError::Failed(format!(
                "workload {name} has `mac = \"device\"`, and {device} is not a veth whose peer can be read from here; write its MAC address: `mac = \"02:...\"`"
            ))
        })?;
        let mac = Mac(far.mac);
        found.insert(name.to_owned(), mac.to_string());
        Ok(Some(mac))
    })?;
    Ok(found)
}

/// Workloads of a plan in its order.
///
/// # Errors
/// The kernel refused to tell.
pub fn of(plan: &EdgeNetworks) -> Result<Vec<Station<'_>>, RuntimeError> {
    plan.devices
        .iter()
        .map(|workload| {
            Ok(Station {
                name: format!("{}/{}", workload.network, workload.workload),
                device: &workload.device,
                mac: workload.mac,
                from: workload.mac_from,
                far: far_end(&workload.device)?,
            })
        })
        .collect()
}

/// What is wrong with the addresses of some workloads of a network.
///
/// # Errors
/// The kernel refused to tell.
pub fn of_ends(
    plan: &EdgeNetworks,
    network: &str,
    names: &[Option<&str>],
) -> Result<Vec<String>, RuntimeError> {
    let names: Vec<String> = names
        .iter()
        .flatten()
        .map(|name| format!("{network}/{name}"))
        .collect();
    let stations = of(plan)?;
    let named = stations.iter().filter(|one| names.contains(&one.name));
    Ok(named.filter_map(warning).collect())
}

/// What is wrong with the addresses of some workloads of an edge, if that is an edge whose networks run here.
///
/// # Errors
/// The kernel refused to tell.
pub fn here(
    networks: &Networks,
    edge: &str,
    names: &[String],
) -> Result<Vec<String>, RuntimeError> {
    // Without the right to look nothing is known of devices.
    let running = weir_engine::network::list_here().unwrap_or_default();
    if !running.iter().any(|one| one == edge) {
        return Ok(Vec::new());
    }
    let plan = networks
        .plan(edge, &Numbers::default())
        .map_err(|error| RuntimeError::Usage(error.to_string()))?;
    let stations = of(&plan)?;
    let named = stations.iter().filter(|one| names.contains(&one.name));
    Ok(named.filter_map(warning).collect())
}

/// A sentence for each workload whose device has another address than it may send from.
#[must_use]
pub fn warnings(stations: &[Station<'_>]) -> Vec<String> {
    let found = stations.iter().filter_map(warning);
    found.map(|text| format!("warning: {text}")).collect()
}

/// What is wrong with a workload's MAC address, and what to do.
fn warning(one: &Station<'_>) -> Option<String> {
    let (mac, has) = one.difference()?;
    let far = one.far.as_ref()?;
    Some(format!(
        "workload {} sends from {has} ({}, the other end of {}), and may send from {mac} only: all its packets are dropped (spoofed_mac). {}",
        one.name,
        far.name,
        one.device,
        how(far, mac, has)
    ))
}

/// How to make document and device agree.
fn how(far: &FarEnd, mac: Mac, has: Mac) -> String {
    let place = match far.elsewhere {
        true => " in its namespace",
        false => "",
    };
    format!(
        "Run `ip link set dev {} address {mac}`{place}, or write `mac = \"{has}\"` or `mac = \"device\"` in the document",
        far.name
    )
}

/// What to do about drops at an interface, where the next step is known.
///
/// # Errors
/// The kernel refused to tell.
pub fn cure(plan: &EdgeNetworks, vid: u32, reason: Reason) -> Result<Option<String>, RuntimeError> {
    let Some(workload) = plan.devices.iter().find(|one| one.vid == vid) else {
        return Ok(weir_network::cure(reason).map(str::to_owned));
    };
    let device = &workload.device;
    Ok(match (reason, workload.mac) {
        (Reason::SpoofedMac, Some(mac)) => Some(match far_end(device)? {
            Some(far) if far.mac != mac.0 => {
                let has = Mac(far.mac);
                format!(
                    "it may send from {mac} only, and {} (the other end of {device}) has {has}. {}",
                    far.name,
                    how(&far, mac, has)
                )
            }
            _ => format!(
                "it may send from {mac} only: give its interface that address, or write the one that it has as `mac`; `tcpdump -e -i {device}` shows what it sends from"
            ),
        }),
        (Reason::Spoofed, _) => Some(format!(
            "it may send from {} only: give it that address, or add the one that it has to `address`; `tcpdump -n -i {device}` shows what it sends from",
            addresses(plan, vid)
        )),
        _ => weir_network::cure(reason).map(str::to_owned),
    })
}

/// Addresses that a workload may send from, as its record has them.
fn addresses(plan: &EdgeNetworks, vid: u32) -> String {
    let Some(vi) = plan.interfaces.get(vid as usize) else {
        return String::new();
    };
    let mut list: Vec<IpAddr> = Vec::new();
    if vi.address4 != 0 {
        list.push(Ipv4Addr::from(vi.address4.to_ne_bytes()).into());
    }
    let mut bytes = [0; 16];
    for (at, word) in vi.address6.iter().enumerate() {
        bytes[at * 4..at * 4 + 4].copy_from_slice(&word.to_ne_bytes());
    }
    if bytes != [0; 16] {
        list.push(IpAddr::from(bytes));
    }
    let more = weir_network::exact::scope(weir_bpf::abi::exact_kind::ADDRESS, vid, 0);
    list.extend(
        plan.exact
            .iter()
            .filter(|one| one.scope == more)
            .map(|one| {
                let [high, low] = one.key.map(u64::to_ne_bytes);
                let mut bytes = [0; 16];
                bytes[..8].copy_from_slice(&high);
                bytes[8..].copy_from_slice(&low);
                address(u128::from_be_bytes(bytes))
            }),
    );
    list.sort_by_key(|one| number(*one));
    let texts: Vec<String> = list.iter().map(ToString::to_string).collect();
    texts.join(", ")
}
