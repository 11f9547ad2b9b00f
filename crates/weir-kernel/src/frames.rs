//! Whole Ethernet frames in and out of one interface, for test beds: a raw
//! packet socket (packet(7)). What it sends meets everything that a received
//! frame meets at the other end of a veth pair.
//!
//! Not for the data plane. Frames of the interface's own sending are not
//! received.

#![expect(unsafe_code, reason = "socket calls take raw pointers")]

use std::ffi::{c_int, c_void};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use crate::sys::c_string;
use crate::{KernelError, NetNs};

/// A raw packet socket on one interface.
#[derive(Debug)]
pub struct FrameSocket {
    fd: OwnedFd,
    iface: String,
}

impl FrameSocket {
    /// Opens one on an interface of a namespace. `room` is the receive buffer in
    /// bytes, above the host's limit if need be; [`FrameSocket::receive`] gives
    /// up after `patience`.
    pub fn open(
        ns: &NetNs,
        iface: &str,
        room: usize,
        patience: Duration,
    ) -> Result<Self, KernelError> {
        let opened = ns.run(|| open(iface, room, patience))?;
        let fd = opened.map_err(|e| {
            KernelError::sys(format!("open a raw socket on {iface} in {}", ns.name()), e)
        })?;
        Ok(Self {
            fd,
            iface: iface.to_owned(),
        })
    }

    /// Sends one frame as it is.
    pub fn send(&self, frame: &[u8]) -> Result<(), KernelError> {
        // SAFETY: the pointer is valid for the length that goes with it.
        let sent = unsafe {
            libc::send(
                self.fd.as_raw_fd(),
                frame.as_ptr().cast::<c_void>(),
                frame.len(),
                0,
            )
        };
        match usize::try_from(sent) {
            Ok(_) => Ok(()),
            Err(_) => Err(KernelError::sys(
                format!("send {} bytes on {}", frame.len(), self.iface),
                io::Error::last_os_error(),
            )),
        }
    }

    /// Receives the next frame into `buffer`, cut to its length; `None` if none
    /// came within the socket's patience. A VLAN tag that the device keeps
    /// beside the frame is not among the bytes.
    pub fn receive<'b>(&self, buffer: &'b mut [u8]) -> Result<Option<&'b [u8]>, KernelError> {
        loop {
            let mut from = address(0);
            let mut from_len = mem::size_of_val(&from) as libc::socklen_t;
            // SAFETY: both pointers are valid for the lengths that go with them.
            let got = unsafe {
                libc::recvfrom(
                    self.fd.as_raw_fd(),
                    buffer.as_mut_ptr().cast::<c_void>(),
                    buffer.len(),
                    0,
                    (&raw mut from).cast::<libc::sockaddr>(),
                    &raw mut from_len,
                )
            };
            let Ok(got) = usize::try_from(got) else {
                let error = io::Error::last_os_error();
                return match error.kind() {
                    io::ErrorKind::WouldBlock => Ok(None),
                    io::ErrorKind::Interrupted => continue,
                    _ => Err(KernelError::sys(
                        format!("receive on {}", self.iface),
                        error,
                    )),
                };
            };
            if from.sll_pkttype != libc::PACKET_OUTGOING {
                return Ok(Some(&buffer[..got]));
            }
        }
    }
}

fn open(iface: &str, room: usize, patience: Duration) -> io::Result<OwnedFd> {
    let name = c_string(iface)?;
    // SAFETY: `name` is a valid C string for the duration of the call.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    if index == 0 {
        return Err(io::Error::last_os_error());
    }
    // Protocol 0 receives nothing; binding names the interface and the protocol at once, so that
    // no frame of another interface is ever in the queue.
    // SAFETY: takes no pointers.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so `fd` is a fresh descriptor that nobody else owns.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let room = c_int::try_from(room).unwrap_or(c_int::MAX);
    set(&fd, libc::SO_RCVBUFFORCE, &room)?;
    let patience = libc::timeval {
        tv_sec: patience.as_secs() as libc::time_t,
        tv_usec: patience.subsec_micros().into(),
    };
    set(&fd, libc::SO_RCVTIMEO, &patience)?;
    bind(&fd, index)?;
    Ok(fd)
}

/// Gives a packet socket the frames of an interface, of every protocol.
pub(crate) fn bind(fd: &OwnedFd, index: u32) -> io::Result<()> {
    let to = address(index);
    // SAFETY: `to` is a link-layer address and valid for the length given.
    let bound = unsafe {
        libc::bind(
            fd.as_raw_fd(),
            (&raw const to).cast::<libc::sockaddr>(),
            mem::size_of_val(&to) as libc::socklen_t,
        )
    };
    match bound {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

pub(crate) fn set<T>(fd: &OwnedFd, option: c_int, value: &T) -> io::Result<()> {
    // SAFETY: the pointer is valid for the length given, and the caller pairs option and type; what it points to outlives the call.
    let ret = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            std::ptr::from_ref(value).cast::<c_void>(),
            mem::size_of::<T>() as libc::socklen_t,
        )
    };
    match ret {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Every protocol on one interface.
pub(crate) fn address(index: u32) -> libc::sockaddr_ll {
    // SAFETY: the structure is plain numbers, for which zero bytes are valid.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as c_int;
    address
}
