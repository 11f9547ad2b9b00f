//! Making and removing devices over rtnetlink: the veth pair of its own through which an edge sends packets back to itself, the VXLAN
//! device of the kernel's that networks may use, and the pair of a container. Also where the far end of a veth is.
//!
//! Requests go to the namespace of the calling thread. Message formats: rtnetlink(7), include/uapi/linux/if_link.h.

#![expect(unsafe_code, reason = "socket calls take raw pointers")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::{KernelError, iface};

const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
const RTM_GETNSID: u16 = 90;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;
const NLMSG_ERROR: u16 = 2;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_LINK_NETNSID: u16 = 37;
const NETNSA_NSID: u16 = 1;
const NETNSA_FD: u16 = 3;
const IFLA_AF_SPEC: u16 = 26;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const IFLA_VXLAN_LEARNING: u16 = 7;
const IFLA_VXLAN_PORT: u16 = 15;
const IFLA_VXLAN_UDP_ZERO_CSUM6_RX: u16 = 20;
const IFLA_VXLAN_COLLECT_METADATA: u16 = 25;
const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
/// No link-local address is made.
const IN6_ADDR_GEN_MODE_NONE: u8 = 1;
/// Bytes of `struct nlmsghdr`.
const HEADER: usize = 16;

/// Makes a veth pair in the current namespace, both ends without any address and up.
pub fn create_veth(name: &str, peer: &str, mtu: u32) -> Result<(), KernelError> {
    let mut end = Message::link(0);
    end.attribute(IFLA_IFNAME, &c_name(peer));
    end.attribute(IFLA_MTU, &mtu.to_ne_bytes());
    let what = format!("create the veth pair {name} and {peer}");
    create(name, "veth", mtu, what, |data| {
        data.attribute(VETH_INFO_PEER, &end.0)
    })?;
    up_or_gone(name)?;
    up_or_gone(peer)
}

/// Makes a veth pair whose other end lies in another namespace, under a name and with a hardware address there. This end is up and without any
/// address; the other one is down.
///
/// # Errors
/// What the kernel refused: one of the names is taken.
pub fn create_veth_into(
    name: &str,
    mtu: u32,
    netns: BorrowedFd<'_>,
    inside: &str,
    mac: [u8; 6],
) -> Result<(), KernelError> {
    let mut end = Message::link(0);
    end.attribute(IFLA_IFNAME, &c_name(inside));
    end.attribute(IFLA_MTU, &mtu.to_ne_bytes());
    end.attribute(IFLA_ADDRESS, &mac);
    end.attribute(IFLA_NET_NS_FD, &netns.as_raw_fd().to_ne_bytes());
    let what = format!("create the veth pair {name} and {inside} in another namespace");
    create(name, "veth", mtu, what, |data| {
        data.attribute(VETH_INFO_PEER, &end.0)
    })?;
    up_or_gone(name)
}

/// Brings a device of the current namespace up. The kernel may add its link-local address.
///
/// # Errors
/// No such device, or what the kernel refused.
pub fn set_up(name: &str) -> Result<(), KernelError> {
    let mut up = Message::link(iface::index_of(name)?);
    up.flags(libc::IFF_UP);
    send(RTM_NEWLINK, 0, &up).map_err(|e| KernelError::sys(format!("set {name} up"), e))
}

/// Makes a VXLAN device that is told by each packet where it goes (`external` in words of ip-link), up and without any address.
///
/// # Errors
/// What the kernel refused: a VXLAN device of somebody else's that has the port does not let this one come up.
pub fn create_vxlan(name: &str, port: u16, mtu: u32) -> Result<(), KernelError> {
    let what = format!("create the VXLAN device {name} at UDP port {port}");
    create(name, "vxlan", mtu, what, |data| {
        data.attribute(IFLA_VXLAN_COLLECT_METADATA, &[1]);
        data.attribute(IFLA_VXLAN_LEARNING, &[0]);
        data.attribute(IFLA_VXLAN_PORT, &port.to_be_bytes());
        // Other edges send checksum 0 (RFC 6935).
        data.attribute(IFLA_VXLAN_UDP_ZERO_CSUM6_RX, &[1]);
    })?;
    up_or_gone(name)
}

/// Creates a device of a kind, down. `data`: what is the kind's own.
fn create(
    name: &str,
    kind: &str,
    mtu: u32,
    what: String,
    data: impl FnOnce(&mut Message),
) -> Result<(), KernelError> {
    let mut message = Message::link(0);
    message.attribute(IFLA_IFNAME, &c_name(name));
    message.attribute(IFLA_MTU, &mtu.to_ne_bytes());
    message.nested(IFLA_LINKINFO, |info| {
        info.attribute(IFLA_INFO_KIND, kind.as_bytes());
        info.nested(IFLA_INFO_DATA, data);
    });
    send(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &message).map_err(|e| KernelError::sys(what, e))
}

/// Brings a device up that was just created; removes it if that fails.
fn up_or_gone(name: &str) -> Result<(), KernelError> {
    let brought = iface::index_of(name).and_then(|index| bring_up(name, index));
    if brought.is_err() {
        // The error to report is why it did not come up.
        let _ = remove(name);
    }
    brought
}

/// Gives a device of the current namespace another MTU.
pub fn set_mtu(name: &str, mtu: u32) -> Result<(), KernelError> {
    let mut message = Message::link(iface::index_of(name)?);
    message.attribute(IFLA_MTU, &mtu.to_ne_bytes());
    send(RTM_NEWLINK, 0, &message)
        .map_err(|e| KernelError::sys(format!("set the MTU of {name} to {mtu}"), e))
}

/// Removes a device of the current namespace, of a veth pair both ends; `false` if there is none.
pub fn remove(name: &str) -> Result<bool, KernelError> {
    let Some(index) = iface::find_index(name) else {
        return Ok(false);
    };
    match send(RTM_DELLINK, 0, &Message::link(index)) {
        Ok(()) => Ok(true),
        // Gone meanwhile: with the namespace of its other end, or by another hand.
        Err(e) if e.raw_os_error() == Some(libc::ENODEV) => Ok(false),
        Err(e) => Err(KernelError::sys(format!("remove device {name}"), e)),
    }
}

/// Up, and without an IPv6 address of its own making, so that the stack says nothing on it.
fn bring_up(name: &str, index: u32) -> Result<(), KernelError> {
    let mut silent = Message::link(index);
    silent.nested(IFLA_AF_SPEC, |families| {
        families.nested(libc::AF_INET6 as u16, |inet6| {
            inet6.attribute(IFLA_INET6_ADDR_GEN_MODE, &[IN6_ADDR_GEN_MODE_NONE]);
        });
    });
    match send(RTM_NEWLINK, 0, &silent) {
        // A host without IPv6 has nothing to silence.
        Err(e) if matches!(e.raw_os_error(), Some(libc::EAFNOSUPPORT)) => {}
        Err(e) => {
            return Err(KernelError::sys(
                format!("keep IPv6 addresses off {name}"),
                e,
            ));
        }
        Ok(()) => {}
    }
    let mut up = Message::link(index);
    up.flags(libc::IFF_UP);
    send(RTM_NEWLINK, 0, &up).map_err(|e| KernelError::sys(format!("set {name} up"), e))
}

fn c_name(name: &str) -> Vec<u8> {
    name.bytes().chain([0]).collect()
}

/// The part of a message behind its header: `struct ifinfomsg` and attributes.
struct Message(Vec<u8>);

impl Message {
    /// About the link of this index, 0: a new one.
    fn link(index: u32) -> Message {
        let mut info = vec![0u8; 16];
        info[4..8].copy_from_slice(&index.to_ne_bytes());
        Message(info)
    }

    /// Sets flags of the link: `ifi_flags` and `ifi_change` of struct ifinfomsg.
    fn flags(&mut self, flags: i32) {
        for at in [8, 12] {
            self.0[at..at + 4].copy_from_slice(&flags.to_ne_bytes());
        }
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) {
        let len = (4 + value.len()) as u16;
        self.0.extend(len.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Message)) {
        let mut inner = Message(Vec::new());
        fill(&mut inner);
        self.attribute(kind, &inner.0);
    }
}

/// The device that an interface belongs to, of a veth its far end: index, and the number that the namespace of that device has in
/// the caller's if it is another one. `None`: there is no such device.
pub(crate) fn far_end(ifindex: u32) -> io::Result<Option<(u32, Option<i32>)>> {
    let answer = exchange(RTM_GETLINK, 0, &Message::link(ifindex))?;
    // Behind struct ifinfomsg.
    let body = answer.get(HEADER + 16..).unwrap_or_default();
    let far = attribute(body, IFLA_LINK).map(u32::from_ne_bytes);
    let netns = attribute(body, IFLA_LINK_NETNSID).map(i32::from_ne_bytes);
    Ok(far.filter(|far| *far != 0).map(|far| (far, netns)))
}

/// The number that a namespace has in the caller's; `None` if it has none.
pub(crate) fn netns_number(netns: BorrowedFd<'_>) -> io::Result<Option<i32>> {
    // struct rtgenmsg, padded.
    let mut message = Message(vec![0; 4]);
    message.attribute(NETNSA_FD, &netns.as_raw_fd().to_ne_bytes());
    let answer = exchange(RTM_GETNSID, 0, &message)?;
    let body = answer.get(HEADER + 4..).unwrap_or_default();
    let number = attribute(body, NETNSA_NSID).map(i32::from_ne_bytes);
    // NETNSA_NSID_NOT_ASSIGNED is -1.
    Ok(number.filter(|number| *number >= 0))
}

/// The first four bytes of an attribute.
fn attribute(mut body: &[u8], wanted: u16) -> Option<[u8; 4]> {
    while let Some((head, _)) = body.split_first_chunk::<4>() {
        let len = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        // The two highest bits are flags.
        let kind = u16::from_ne_bytes([head[2], head[3]]) & 0x3fff;
        if kind == wanted {
            return body.get(4..len)?.first_chunk().copied();
        }
        body = body.get(len.max(4).next_multiple_of(4)..)?;
    }
    None
}

/// Sends one request that is carried out or refused, and waits for the kernel's answer.
fn send(kind: u16, flags: u16, message: &Message) -> io::Result<()> {
    let answer = exchange(kind, flags | NLM_F_ACK, message)?;
    // Whatever is refused is an error already.
    match answer_kind(&answer) {
        Some(NLMSG_ERROR) => Ok(()),
        _ => Err(io::Error::from(io::ErrorKind::InvalidData)),
    }
}

fn answer_kind(answer: &[u8]) -> Option<u16> {
    let kind = answer.get(4..6)?;
    Some(u16::from_ne_bytes([kind[0], kind[1]]))
}

/// Sends one request and waits for the kernel's answer: the message, header included. A refusal is an error.
fn exchange(kind: u16, flags: u16, message: &Message) -> io::Result<Vec<u8>> {
    // SAFETY: no pointers.
    let fd = unsafe {
        libc::socket(
            libc::AF_NETLINK,
            libc::SOCK_RAW | libc::SOCK_CLOEXEC,
            libc::NETLINK_ROUTE,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that nobody else owns.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut request = Vec::with_capacity(HEADER + message.0.len());
    request.extend(((HEADER + message.0.len()) as u32).to_ne_bytes());
    request.extend(kind.to_ne_bytes());
    request.extend((flags | NLM_F_REQUEST).to_ne_bytes());
    request.extend([0; 8]);
    request.extend(&message.0);
    // SAFETY: the pointer is valid for the length that goes with it.
    let sent = unsafe {
        libc::send(
            socket.as_raw_fd(),
            request.as_ptr().cast(),
            request.len(),
            0,
        )
    };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    // A link with all its attributes fits: libnl and iproute2 give them as much.
    let mut answer = vec![0u8; 32_768];
    // SAFETY: the pointer is valid for the length that goes with it.
    let got = unsafe {
        libc::recv(
            socket.as_raw_fd(),
            answer.as_mut_ptr().cast(),
            answer.len(),
            0,
        )
    };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    answer.truncate(got.cast_unsigned());
    if answer_kind(&answer) != Some(NLMSG_ERROR) {
        return Ok(answer);
    }
    // struct nlmsgerr begins with the negative error number, 0 for success.
    let error = answer.get(HEADER..).and_then(|error| error.first_chunk());
    match error.copied().map(i32::from_ne_bytes) {
        Some(0) => Ok(answer),
        Some(error) => Err(io::Error::from_raw_os_error(-error)),
        None => Err(io::Error::from(io::ErrorKind::InvalidData)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_and_nested() {
        let mut message = Message(Vec::new());
        message.nested(18, |inner| inner.attribute(1, b"veth5"));
        let mut want = Vec::new();
        want.extend(16u16.to_ne_bytes());
        want.extend(18u16.to_ne_bytes());
        want.extend(9u16.to_ne_bytes());
        want.extend(1u16.to_ne_bytes());
        want.extend(b"veth5\0\0\0");
        assert_eq!(message.0, want);
    }
}
