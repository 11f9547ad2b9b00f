//! All devices of the current namespace in one request over rtnetlink: who attaches to thousands cannot ask for each.

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
    let mut request = request();
    if let RouteNetlinkMessage::GetLink(link) = &mut request {
        link.header.index = index;
    }
    routes::send(&socket, request, NLM_F_REQUEST | NLM_F_ACK).map_err(told)?;
    let mut found = None;
    let answered = routes::answers(&socket, |_, message| {
        if let RouteNetlinkMessage::NewLink(link) = message {
            found = Some(device(link));
        }
        Ok(true)
    });
    match answered {
        // It went meanwhile.
        Err(e) if e.raw_os_error() == Some(libc::ENODEV) => Ok(None),
        Err(e) => Err(told(e)),
        Ok(()) => Ok(found),
    }
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
            LinkAttribute::LinkInfo(infos) => {
                veth = infos
                    .iter()
                    .any(|info| matches!(info, LinkInfo::Kind(InfoKind::Veth)));
            }
            LinkAttribute::LinkNetNsId(_) => elsewhere = true,
            _ => {}
        }
    }
    device.is_veth_to_elsewhere = veth && elsewhere;
    device
}
