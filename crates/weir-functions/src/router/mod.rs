//! The function that routes by the kernel's tables.
//!
//! What a router is made of is in [`interface`] (ports and VLANs).

pub mod interface;

use weir_bpf::abi::router::feature;
use weir_bpf::abi::{PortAt, panel, router as abi};
use zerocopy::IntoBytes;

use crate::kind::{FunctionError, Planned, Request, suggest};
use crate::plan::{Constant, DeviceField, HostElement, MapPlan};
use interface::Interface;

/// Keys of an instance.
const KEYS: &[&str] = &[
    "table",
    "interface",
    "station",
    "errors",
    "errors_per_second",
    "reverse_path",
];
/// ICMP errors a second, unless the configuration says otherwise: what Linux sends to all peers together.
const ERRORS_PER_SECOND: u64 = 1000;
/// Errors that may follow each other at once.
const ERRORS_AT_ONCE: u64 = 50;

/// Plans an instance.
///
/// # Errors
/// Keys, interfaces or routes are wrong, or more than the data plane can hold.
pub fn plan(request: &Request<'_>) -> Result<Planned, FunctionError> {
    request.only(KEYS)?;
    match request.text("table")? {
        None | Some("kernel") => {}
        Some(other) => return Err(wrong("table", other, &["kernel"])),
    }
    let interfaces = interface::read(request)?;
    let mut features = match request.text("errors")? {
        Some("own") => feature::ERRORS,
        None | Some("stack") => 0,
        Some("none") => feature::SILENT,
        Some(other) => return Err(wrong("errors", other, &["own", "stack", "none"])),
    };
    features |= match request.text("reverse_path")? {
        None | Some("off") => 0,
        Some("loose") => feature::LOOSE,
        Some("strict") => feature::STRICT,
        Some(other) => return Err(wrong("reverse_path", other, &["off", "loose", "strict"])),
    };
    let stations = interface::stations(request, &interfaces)?;
    if stations.is_some() {
        features |= feature::MACS;
    }
    let tagged = interfaces.iter().any(|one| one.vlan != 0);
    if tagged {
        features |= feature::VLAN;
    }
    let rate = request
        .number("errors_per_second", 1..=1_000_000)?
        .unwrap_or(ERRORS_PER_SECOND);
    let interval = 1_000_000_000 / rate;

    let mut planned = Planned::embedded("router");
    let word = |name: &'static str, value: u64| -> Constant {
        (name.into(), value.to_ne_bytes().to_vec())
    };
    planned.instance.constants = vec![
        (
            "weir_router_features".into(),
            features.to_ne_bytes().to_vec(),
        ),
        word("weir_error_interval_ns", interval),
        word("weir_error_burst_ns", interval * ERRORS_AT_ONCE.min(rate)),
    ];
    planned.instance.maps = maps(&interfaces);
    planned.instance.maps.extend(stations);
    planned.ports = interfaces.iter().map(|one| one.port.into()).collect();
    planned.ports.sort_unstable();
    planned.ports.dedup();
    planned.asks.finished_checksums = true;
    planned.asks.vlan_in_frame = tagged;
    if features & feature::ERRORS != 0 {
        planned.notes.extend(silent(&interfaces));
    }
    Ok(planned)
}

/// Interfaces that could not say who they are.
fn silent(interfaces: &[Interface]) -> Option<String> {
    let names: Vec<&str> = interfaces
        .iter()
        .filter(|one| one.address4.is_none() && one.address6.is_none())
        .map(|one| one.name.as_str())
        .collect();
    (!names.is_empty()).then(|| {
        format!(
            "packets that come in by {} are not answered by ICMP errors: give these interfaces an `address`",
            names.join(", ")
        )
    })
}

fn wrong(key: &str, value: &str, known: &[&str]) -> FunctionError {
    FunctionError::key(key, format!("`{key}` cannot be `{value}`")).advice(suggest(value, known))
}

/// The maps by which interfaces are found.
fn maps(interfaces: &[Interface]) -> Vec<MapPlan> {
    let mut described = MapPlan::empty(
        "interfaces",
        abi::INTERFACES,
        size_of::<weir_bpf::abi::Interface>(),
    );
    let mut by_index = MapPlan::empty("ports_by_index", interfaces.len(), size_of::<PortAt>());
    let mut untagged = vec![0u32; panel::PORTS];
    let mut tagged = MapPlan::empty("tagged", interfaces.len(), 4);
    for (number, one) in (0u32..).zip(interfaces) {
        described.host.push(one.element(number));
        by_index.host.push(HostElement {
            device: one.device.clone(),
            port: one.port.into(),
            key: None,
            value: PortAt {
                port: one.port,
                interface: number as u16 + 1,
                mtu: one.mtu,
            }
            .as_bytes()
            .to_vec(),
            fields: match one.mtu {
                0 => vec![(std::mem::offset_of!(PortAt, mtu), DeviceField::Mtu)],
                _ => Vec::new(),
            },
        });
        if one.vlan == 0 {
            if let Some(place) = untagged.get_mut(usize::from(one.port)) {
                *place = number + 1;
            }
        } else {
            let key = u32::from(one.port) << 16 | u32::from(one.vlan);
            tagged.keys.extend(key.to_ne_bytes());
            tagged.values.extend((number + 1).to_ne_bytes());
        }
    }
    vec![
        described,
        by_index,
        MapPlan::array("untagged", &untagged),
        tagged,
    ]
}
