//! All devices of the current namespace in one request over rtnetlink: who attaches to thousands cannot ask for each.

use std::io;
use std::os::fd::OwnedFd;

use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoKind, LinkAttribute, LinkExtentMask, LinkFlags, LinkInfo, LinkMessage,
};

use crate::{KernelError, iface, routes};

/// A device as a dump tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Name, at most 15 bytes.
    pub name: String,
    /// Index, unique within the namespace.
    pub ifindex: u32,
    /// Largest packet behind the link header, bytes.
    pub mtu: u32,
    /// Hardware address; zero where the device has none of 6 bytes.
    pub mac: [u8; 6],
    /// Whether it is administratively up.
    pub up: bool,
    /// Whether it is a veth whose other end lies in another namespace.
    pub is_veth_to_elsewhere: bool,
}

/// The other end of a veth pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FarEnd {
    /// Its name in its own namespace.
    pub name: String,
    /// Its hardware address.
    pub mac: [u8; 6],
    /// Whether it lies in another namespace.
    pub elsewhere: bool,
}

/// All devices, by index.
///
/// # Errors
/// What the kernel refused.
pub fn all() -> Result<Vec<Device>, KernelError> {
    let told = |e| KernelError::sys("list the devices", e);
    let socket = routes::socket(0).map_err(told)?;
    routes::send(&socket, request(), NLM_F_REQUEST | NLM_F_DUMP).map_err(told)?;
    let mut devices = Vec::new();
    routes::answers(&socket, |_, message| {
        if let RouteNetlinkMessage::NewLink(link) = message {
            devices.push(device(link));
        }
        Ok(true)
    })
    .map_err(told)?;
    devices.sort_unstable_by_key(|device| device.ifindex);
    Ok(devices)
}

/// A device by its name; `None` if there is none.
///
/// # Errors
/// What the kernel refused.
pub fn named(name: &str) -> Result<Option<Device>, KernelError> {
    let Some(index) = iface::find_index(name) else {
        return Ok(None);
    };
    let told = |e| KernelError::sys(format!("look at device {name}"), e);
    let socket = routes::socket(0).map_err(told)?;
    let found = link(&socket, index, None).map_err(told)?;
    Ok(found.as_ref().map(device))
}

/// The bridge or bond that a device is a port of.
///
/// # Errors
/// What the kernel refused, or no such device.
pub fn controller(name: &str) -> Result<Option<String>, KernelError> {
    let index = iface::index_of(name)?;
    let told = |e| KernelError::sys(format!("look at device {name}"), e);
    let socket = routes::socket(0).map_err(told)?;
    let found = link(&socket, index, None).map_err(told)?;
    let attributes = found.iter().flat_map(|message| &message.attributes);
    let of = attributes
        .into_iter()
        .find_map(|attribute| match attribute {
            LinkAttribute::Controller(of) => Some(*of),
            _ => None,
        });
    Ok(of.map(|of| iface::name_of(of).unwrap_or_else(|| format!("device {of}"))))
}

/// The other end of a veth pair, whatever namespace it lies in; `None` if the device is no veth, or the namespace cannot be read from here.
///
/// The kernel is asked by index and namespace id (`IFLA_LINK`, `IFLA_LINK_NETNSID`): the namespace needs no name, and is not entered.
///
/// # Errors
/// What the kernel refused.
pub fn far_end(name: &str) -> Result<Option<FarEnd>, KernelError> {
    let Some(index) = iface::find_index(name) else {
        return Ok(None);
    };
    let told = |e| KernelError::sys(format!("look at the other end of {name}"), e);
    let socket = routes::socket(0).map_err(told)?;
    let Some(near) = link(&socket, index, None).map_err(told)? else {
        return Ok(None);
    };
    let (mut far, mut space, mut veth) = (None, None, false);
    for attribute in &near.attributes {
        match attribute {
            LinkAttribute::Link(index) => far = Some(*index),
            LinkAttribute::LinkNetNsId(id) => space = Some(*id),
            LinkAttribute::LinkInfo(infos) => veth = is_veth(infos),
            _ => {}
        }
    }
    let Some(far) = far.filter(|_| veth) else {
        return Ok(None);
    };
    let found = match link(&socket, far, space) {
        // Its namespace has no id here, or belongs to a user who does not let this one look.
        Err(e) if matches!(e.raw_os_error(), Some(libc::EPERM | libc::EINVAL)) => None,
        other => other.map_err(told)?,
    };
    Ok(found.map(|found| {
        let device = device(&found);
        FarEnd {
            name: device.name,
            mac: device.mac,
            elsewhere: space.is_some(),
        }
    }))
}

/// What the kernel says of a device, by its index in this namespace or in the one of an id; `None` if there is none.
fn link(socket: &OwnedFd, index: u32, space: Option<i32>) -> io::Result<Option<LinkMessage>> {
    let mut request = request();
    if let RouteNetlinkMessage::GetLink(link) = &mut request {
        link.header.index = index;
        (link.attributes).extend(space.map(LinkAttribute::IfNetnsId));
    }
    routes::send(socket, request, NLM_F_REQUEST | NLM_F_ACK)?;
    let mut found = None;
    let answered = routes::answers(socket, |_, message| {
        if let RouteNetlinkMessage::NewLink(link) = message {
            found = Some(link.clone());
        }
        Ok(true)
    });
    match answered {
        // It went meanwhile.
        Err(e) if e.raw_os_error() == Some(libc::ENODEV) => Ok(None),
        Err(e) => Err(e),
        Ok(()) => Ok(found),
    }
}

fn is_veth(infos: &[LinkInfo]) -> bool {
    infos
        .iter()
        .any(|info| matches!(info, LinkInfo::Kind(InfoKind::Veth)))
}

/// Statistics are most of what the kernel would write down: they are left out.
fn request() -> RouteNetlinkMessage {
    let mut request = LinkMessage::default();
    request
        .attributes
        .push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
    RouteNetlinkMessage::GetLink(request)
}

fn device(link: &LinkMessage) -> Device {
    let mut device = Device {
        name: String::new(),
        ifindex: link.header.index,
        mtu: 0,
        mac: [0; 6],
        up: link.header.flags.contains(LinkFlags::Up),
        is_veth_to_elsewhere: false,
    };
    let (mut veth, mut elsewhere) = (false, false);
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(name) => device.name.clone_from(name),
            LinkAttribute::Mtu(mtu) => device.mtu = *mtu,
            LinkAttribute::Address(address) => {
                if let Ok(mac) = <[u8; 6]>::try_from(address.as_slice()) {
                    device.mac = mac;
                }
            }
            LinkAttribute::LinkInfo(infos) => veth = is_veth(infos),
            LinkAttribute::LinkNetNsId(_) => elsewhere = true,
            _ => {}
        }
    }
    device.is_veth_to_elsewhere = veth && elsewhere;
    device
}
