//! The addresses of the interfaces of a network namespace, as `ip address` lists and adds them.

use std::io;
use std::net::IpAddr;

use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REPLACE, NLM_F_REQUEST};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::KernelError;
use crate::routes::{answers, send, socket};

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnAddress {
    /// Index of the interface.
    pub device: u32,
    /// The address.
    pub address: IpAddr,
    /// Bits of its network.
    pub len: u8,
}

/// All addresses of both families.
///
/// # Errors
/// What the kernel refused.
pub fn read() -> Result<Vec<OwnAddress>, KernelError> {
    let mut found = Vec::new();
    let mut asked = || -> io::Result<()> {
        let socket = socket(0)?;
        let message = AddressMessage::default();
        let message = RouteNetlinkMessage::GetAddress(message);
        send(&socket, message, NLM_F_REQUEST | NLM_F_DUMP)?;
        answers(&socket, |_, message| {
            if let RouteNetlinkMessage::NewAddress(message) = message {
                found.extend(own(message));
            }
            Ok(true)
        })
    };
    asked().map_err(|e| KernelError::sys("read the addresses", e))?;
    Ok(found)
}

/// Gives an interface of the current namespace an address, without duplicate address detection; one that it has stays.
///
/// # Errors
/// What the kernel refused.
pub fn add(address: &OwnAddress) -> Result<(), KernelError> {
    let asked = || -> io::Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = match address.address {
            IpAddr::V4(_) => AddressFamily::Inet,
            IpAddr::V6(_) => AddressFamily::Inet6,
        };
        message.header.prefix_len = address.len;
        message.header.index = address.device;
        message.header.flags = AddressHeaderFlags::Nodad;
        message
            .attributes
            .push(AddressAttribute::Local(address.address));
        message
            .attributes
            .push(AddressAttribute::Address(address.address));
        let socket = socket(0)?;
        let flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE;
        send(&socket, RouteNetlinkMessage::NewAddress(message), flags)?;
        answers(&socket, |_, _| Ok(true))
    };
    asked().map_err(|e| KernelError::sys(format!("add the address {}", address.address), e))
}

fn own(message: &AddressMessage) -> Option<OwnAddress> {
    let attributes = message.attributes.iter();
    // Of a device with a peer, `Address` is the peer's, and `Local` its own (rtnetlink(7)).
    let local = attributes.clone().find_map(|attribute| match attribute {
        AddressAttribute::Local(address) => Some(*address),
        _ => None,
    });
    let address = attributes.clone().find_map(|attribute| match attribute {
        AddressAttribute::Address(address) => Some(*address),
        _ => None,
    });
    let is_ip = matches!(
        message.header.family,
        AddressFamily::Inet | AddressFamily::Inet6
    );
    Some(OwnAddress {
        device: message.header.index,
        address: local.or(address).filter(|_| is_ip)?,
        len: message.header.prefix_len,
    })
}
