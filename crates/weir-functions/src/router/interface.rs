//! Interfaces of a router: ports of the edge and VLANs of them, and the stations whose frames it forwards by their address.
//!
//! Without any `[[function.interface]]` every port is one. Invariant: no two interfaces take the same packets.

use std::mem::offset_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use toml::Table;
use weir_bpf::abi;
use weir_value::{InterfaceAddress, Invalid, Mac};
use zerocopy::IntoBytes;

use crate::plan::{DeviceField, HostElement, MapPlan};
use crate::request::{EdgePort, FunctionError, Key, Request, suggest};

pub(super) const KEYS: &[Key] = &[
    Key::new(
        "name",
        "the port's, with `.VLAN`",
        "name in routes and reports",
    ),
    Key::new("port", "required", "port of the edge"),
    Key::new(
        "vlan",
        "untagged",
        "1 to 4094: packets with this tag. Tags are removed, added and changed as packets go from one interface to another; priorities are kept",
    ),
    Key::new(
        "device",
        "the port's device, with `.VLAN`",
        "the kernel's name of the interface, for `table = \"kernel\"`",
    ),
    Key::new(
        "address",
        "none",
        "its addresses, `\"192.0.2.1/24\"`: the source of ICMP errors, and with `table = \"own\"` its connected networks",
    ),
    Key::new(
        "mtu",
        "that of the device when the edge was applied",
        "largest packet",
    ),
];

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name in routes and reports.
    pub name: String,
    /// weir's number of the port.
    pub port: u16,
    /// Tag of its packets; 0: untagged.
    pub vlan: u16,
    /// What the host calls it.
    pub device: String,
    /// Its addresses, with the lengths of their networks.
    pub addresses: Vec<InterfaceAddress>,
    /// The first of them of each family: who answers with errors.
    pub address4: Option<Ipv4Addr>,
    /// See `address4`.
    pub address6: Option<Ipv6Addr>,
    /// Largest L3 packet; 0: that of the device.
    pub mtu: u32,
}

impl Interface {
    fn of(port: &EdgePort) -> Interface {
        Interface {
            name: port.name.clone(),
            port: port.number as u16,
            vlan: 0,
            device: port.device.clone(),
            addresses: Vec::new(),
            address4: None,
            address6: None,
            mtu: 0,
        }
    }

    /// Its description in the data plane.
    pub fn element(&self, number: u32) -> HostElement {
        let mut fields = vec![
            (offset_of!(abi::Interface, ifindex), DeviceField::Index),
            (offset_of!(abi::Interface, mac), DeviceField::Mac),
        ];
        if self.mtu == 0 {
            fields.push((offset_of!(abi::Interface, mtu), DeviceField::Mtu));
        }
        let value = abi::Interface {
            port: self.port,
            vlan: self.vlan,
            mtu: self.mtu,
            address4: self.address4.map(|a| a.octets()).unwrap_or_default(),
            address6: self.address6.map(|a| a.octets()).unwrap_or_default(),
            ..abi::Interface::default()
        };
        HostElement {
            device: self.device.clone(),
            port: self.port.into(),
            key: Some(number.to_ne_bytes().to_vec()),
            value: value.as_bytes().to_vec(),
            below: 0,
            fields,
        }
    }
}

/// The interfaces of an instance.
///
/// # Errors
/// Keys, ports or addresses are wrong, or two interfaces are the same.
pub fn read(request: &Request<'_>) -> Result<Vec<Interface>, FunctionError> {
    let tables = request.tables("interface")?;
    let interfaces: Vec<Interface> = match tables.is_empty() {
        true => request.ports.iter().map(Interface::of).collect(),
        false => tables
            .iter()
            .enumerate()
            .map(|(at, table)| one(request, at, table))
            .collect::<Result<_, _>>()?,
    };
    let most = abi::router::INTERFACES;
    if interfaces.is_empty() || interfaces.len() > most {
        return Err(FunctionError::key(
            "interface",
            format!("{} interfaces in one router", interfaces.len()),
        )
        .advice(format!("a router has 1 to {most}")));
    }
    for (at, this) in interfaces.iter().enumerate() {
        for other in &interfaces[..at] {
            let twice = |what: String| {
                FunctionError::key(format!("interface.{at}"), what)
                    .advice("every packet comes in by one interface")
            };
            if this.name == other.name {
                return Err(twice(format!("two interfaces are named `{}`", this.name)));
            }
            if (this.port, this.vlan) == (other.port, other.vlan) {
                return Err(twice(format!(
                    "interfaces `{}` and `{}` take the same packets",
                    other.name, this.name
                )));
            }
            if this.device == other.device && (this.vlan == 0) == (other.vlan == 0) {
                return Err(twice(format!(
                    "interfaces `{}` and `{}` are both the device `{}`",
                    other.name, this.name, this.device
                )));
            }
            if let Some(InterfaceAddress { address, .. }) = this
                .addresses
                .iter()
                .find(|a| other.addresses.iter().any(|b| a.address == b.address))
            {
                return Err(twice(format!(
                    "interfaces `{}` and `{}` have the same address {address}",
                    other.name, this.name
                )));
            }
        }
    }
    Ok(interfaces)
}

fn one(request: &Request<'_>, at: usize, table: &Table) -> Result<Interface, FunctionError> {
    let inner = Request {
        keys: table,
        ..*request
    };
    let place = |error: FunctionError| FunctionError {
        key: Some(match &error.key {
            Some(key) => format!("interface.{at}.{key}"),
            None => format!("interface.{at}"),
        }),
        ..error
    };
    let read = || -> Result<Interface, FunctionError> {
        inner.only(KEYS)?;
        let name = inner.text("port")?.ok_or_else(|| {
            FunctionError::new("an interface needs a port").advice("write port = \"NAME\"")
        })?;
        let port = inner.port("port", name)?;
        let vlan = inner.number("vlan", 1..=4094)?.unwrap_or(0) as u16;
        let default = match vlan {
            0 => port.name.clone(),
            _ => format!("{}.{vlan}", port.name),
        };
        let device = match (inner.text("device")?, vlan) {
            (Some(device), _) => device.to_owned(),
            (None, 0) => port.device.clone(),
            // As `ip link add link ... type vlan` is told to call it by most.
            (None, _) => format!("{}.{vlan}", port.device),
        };
        weir_value::interface(&device)
            .map_err(|invalid| FunctionError::key("device", invalid.to_string()))?;
        let mut addresses = Vec::new();
        for text in inner.texts("address")? {
            addresses.push(address(text)?);
        }
        let first = |v6: bool| {
            addresses
                .iter()
                .map(|a: &InterfaceAddress| a.address)
                .find(|a| a.is_ipv6() == v6)
        };
        Ok(Interface {
            name: inner.text("name")?.map_or(default, str::to_owned),
            port: port.number as u16,
            vlan,
            device,
            address4: first(false).and_then(|a| match a {
                IpAddr::V4(a) => Some(a),
                IpAddr::V6(_) => None,
            }),
            address6: first(true).and_then(|a| match a {
                IpAddr::V6(a) => Some(a),
                IpAddr::V4(_) => None,
            }),
            addresses,
            mtu: inner.number("mtu", 68..=65_535)?.unwrap_or(0) as u32,
        })
    };
    read().map_err(place)
}

/// An address with the length of its prefix; without one it is alone.
fn address(text: &str) -> Result<InterfaceAddress, FunctionError> {
    let wrong = |message: String| FunctionError::key("address", message);
    let read: InterfaceAddress = text
        .parse()
        .map_err(|invalid: Invalid| wrong(invalid.to_string()))?;
    let own = read.address;
    match own.is_multicast() || own.is_unspecified() || own.is_loopback() {
        true => Err(wrong(format!("`{text}` is not the address of a station"))
            .advice("write \"192.0.2.1/24\" or \"2001:db8::1/64\"")),
        false => Ok(read),
    }
}

/// The table of stations, from `station = ["02:00:00:00:00:01 lan", ...]`; `None` if there are none.
///
/// # Errors
/// An address or interface is wrong, or a station is named twice.
pub fn stations(
    request: &Request<'_>,
    interfaces: &[Interface],
) -> Result<Option<MapPlan>, FunctionError> {
    let mut keys: Vec<[u8; 8]> = Vec::new();
    let mut map = MapPlan {
        key_size: 8,
        ..MapPlan::empty("stations", 1, 4)
    };
    for (at, text) in request.texts("station")?.into_iter().enumerate() {
        let wrong = |what: String, advice: String| {
            FunctionError::key(format!("station.{at}"), what).advice(advice)
        };
        let mut words = text.split_whitespace();
        let (Some(mac), Some(name), None) = (words.next(), words.next(), words.next()) else {
            return Err(wrong(
                format!("invalid station `{text}`"),
                "write \"02:00:00:00:00:01 INTERFACE\"".to_owned(),
            ));
        };
        let mac = Mac::of_station(mac)
            .map_err(|invalid| FunctionError::key(format!("station.{at}"), invalid.to_string()))?
            .0;
        let number = interfaces.iter().position(|one| one.name == name);
        let Some(number) = number else {
            let names: Vec<&str> = interfaces.iter().map(|one| one.name.as_str()).collect();
            return Err(wrong(
                format!("no interface is named `{name}`"),
                suggest(name, &names),
            ));
        };
        let vlan = interfaces[number].vlan;
        let key: [u8; 8] = std::array::from_fn(|i| match i {
            0..6 => mac[i],
            _ => vlan.to_ne_bytes()[i - 6],
        });
        if keys.contains(&key) {
            return Err(wrong(
                format!("station {text} is named twice"),
                "remove one of them".to_owned(),
            ));
        }
        keys.push(key);
        map.values.extend((number as u32 + 1).to_ne_bytes());
    }
    map.max_entries = keys.len().max(1) as u32;
    map.keys = keys.concat();
    Ok((!keys.is_empty()).then_some(map))
}
