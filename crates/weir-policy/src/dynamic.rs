//! Sets that packets fill: how large they are, how long elements stay, and what a rule does with them (docs/semantics.md section 9). Also
//! security groups, which virtual networks fill and rules only test.
//!
//! What a set holds is state of who carries the policy out, not part of it. Nothing here knows how it is kept.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::sync::Arc;

use weir_value::Mac;

use crate::field::Field;

/// A set that packets fill.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DynamicSet {
    /// Its name, unique in a policy.
    pub name: String,
    /// How many elements it is made for; of a group 0.
    pub size: u32,
    /// How long an element stays unless `add` gives another time, ns; `None`: for good.
    pub timeout_ns: Option<u64>,
    /// It is a security group: its elements are the IP addresses of workloads, which its network knows. No packet changes it.
    pub group: bool,
}

impl DynamicSet {
    /// Size unless the policy gives one.
    pub const USUAL_SIZE: u32 = 65_536;
    /// Largest size: half a gigabyte of elements.
    pub const MAX_SIZE: u32 = 4_194_304;

    /// A security group of a network.
    #[must_use]
    pub fn of_group(name: &str) -> DynamicSet {
        DynamicSet {
            name: name.to_owned(),
            size: 0,
            timeout_ns: None,
            group: true,
        }
    }
}

/// An address of a packet, by which it may be in a set. Discriminants are those of `enum weir_address`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Address {
    /// Source of the IPv4 or IPv6 header.
    Source = 0,
    /// Destination of the IPv4 or IPv6 header.
    Destination = 1,
    /// Source MAC address.
    EthSource = 2,
    /// Destination MAC address.
    EthDestination = 3,
}

impl Address {
    /// The words that stand for an address of either family.
    pub const WORDS: [(&'static str, Address); 2] = [
        ("source", Address::Source),
        ("destination", Address::Destination),
    ];

    /// The address that a field is; `None`: it is none.
    pub fn of(field: Field) -> Option<Address> {
        Some(match field.info().name {
            "ip-saddr" | "ip6-saddr" => Address::Source,
            "ip-daddr" | "ip6-daddr" => Address::Destination,
            "eth-saddr" => Address::EthSource,
            "eth-daddr" => Address::EthDestination,
            _ => return None,
        })
    }
}

/// What a rule does with an address of its packets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ChangeSet {
    /// The set.
    pub set: Arc<DynamicSet>,
    /// The address.
    pub address: Address,
    /// Puts it in or takes it out.
    pub change: Change,
}

/// A change of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// Puts the address in, or renews its time-out.
    Add {
        /// How long it stays, ns; `None`: for good.
        timeout_ns: Option<u64>,
    },
    /// Takes it out.
    Delete,
}

/// What a set holds: an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Element {
    /// Of IPv4.
    Ip4(Ipv4Addr),
    /// Of IPv6.
    Ip6(Ipv6Addr),
    /// Of a link layer.
    Mac(Mac),
}

impl Element {
    /// As a number: what a field of the packet with this address is.
    pub fn number(self) -> u128 {
        match self {
            Element::Ip4(address) => u32::from(address).into(),
            Element::Ip6(address) => address.into(),
            Element::Mac(address) => address.number().into(),
        }
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Element::Ip4(address) => address.fmt(f),
            Element::Ip6(address) => address.fmt(f),
            Element::Mac(address) => address.fmt(f),
        }
    }
}

impl FromStr for Element {
    type Err = String;

    fn from_str(text: &str) -> Result<Element, String> {
        if let Ok(address) = weir_value::address(text) {
            return Ok(match address {
                IpAddr::V4(address) => Element::Ip4(address),
                IpAddr::V6(address) => Element::Ip6(address),
            });
        }
        if text.contains('/') {
            return Err(format!(
                "invalid element `{text}`: a dynamic set holds single addresses, not prefixes"
            ));
        }
        text.parse()
            .map(Element::Mac)
            .map_err(|_| format!("invalid element `{text}`: expected an IPv4, IPv6 or MAC address"))
    }
}
