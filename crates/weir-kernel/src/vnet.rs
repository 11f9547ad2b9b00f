//! Frames together with what the kernel left to devices (`struct virtio_net_hdr`): a tap that hands them over whole, and a socket that sends them as they came.
//!
//! A sender leaves checksums and the cutting of long segments to its device. Who takes such frames out of one interface and puts them into another must keep both, or cuts and sums itself:
//! here the header travels with the frame and the last device does it. VLAN tags are part of the frame; the header counts them.

#![expect(
    unsafe_code,
    reason = "taps and packet sockets are ioctls and raw pointers"
)]

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io::{self, Read};
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::tap::open_tap;
use crate::{KernelError, iface};

/// Bytes of the header.
pub const VNET_HEADER: usize = 10;
/// `IFF_VNET_HDR`: the header stands before each frame.
const IFF_VNET_HDR: i16 = 0x4000;
/// `TUNSETOFFLOAD`: `_IOW('T', 208, unsigned int)`.
const TUNSETOFFLOAD: libc::Ioctl = 0x4004_54d0;
/// What the reader takes unfinished: `TUN_F_CSUM`, `TSO4`, `TSO6`, `TSO_ECN`, and since Linux 6.2 `USO4`, `USO6`.
const OFFLOADS: libc::c_ulong = 1 | 2 | 4 | 8;
const UDP_OFFLOADS: libc::c_ulong = 0x20 | 0x40;
/// Bytes that a sending socket may have in queues before it waits, and how long it waits then.
const SEND_BUFFER: c_int = 4 << 20;
const SEND_WAIT: libc::timeval = libc::timeval {
    tv_sec: 0,
    tv_usec: 100_000,
};
const NEEDS_CSUM: u8 = 1;
const DATA_VALID: u8 = 2;

/// What is left to be done to a frame, as the kernel says it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VnetHeader([u8; VNET_HEADER]);

impl VnetHeader {
    /// The transport checksum is not filled in.
    pub fn is_unfinished(&self) -> bool {
        self.0[0] & NEEDS_CSUM != 0
    }

    /// The transport checksum was found right.
    pub fn is_valid(&self) -> bool {
        self.0[0] & DATA_VALID != 0
    }
}

/// The inside of a tap device that keeps checksums and long segments as they were sent. The device goes with the value, however the process ends.
#[derive(Debug)]
pub struct VnetTap {
    file: File,
    name: String,
    ifindex: u32,
}

impl VnetTap {
    /// Makes a device of that name with room for `queue` frames, sets it up, and keeps the stack from sending by it. Reading does not wait.
    ///
    /// # Errors
    /// A device of that name is there, or the kernel makes none.
    pub fn make(name: &str, mtu: u32, queue: u32) -> Result<VnetTap, KernelError> {
        if iface::find_index(name).is_some() {
            return Err(KernelError::sys(
                format!("make tap device {name}"),
                io::Error::from_raw_os_error(libc::EEXIST),
            ));
        }
        let file = open_tap(name, IFF_VNET_HDR)?;
        let offer = |what: libc::c_ulong| {
            // SAFETY: the command takes its argument as a number.
            match unsafe { libc::ioctl(file.as_raw_fd(), TUNSETOFFLOAD, what) } {
                0.. => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        };
        offer(OFFLOADS | UDP_OFFLOADS)
            .or_else(|_| offer(OFFLOADS))
            .map_err(|e| KernelError::sys(format!("take long segments from {name}"), e))?;
        iface::set_queue_length(name, queue)?;
        // It is no host's: no neighbour discovery or listener report of the stack is to be read as if a port had received it.
        match std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), b"1") {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                return Err(KernelError::sys(format!("switch IPv6 off on {name}"), e));
            }
            _ => {}
        }
        iface::dress(name, [0; 6], mtu)?;
        Ok(VnetTap {
            ifindex: iface::index_of(name)?,
            file,
            name: name.to_owned(),
        })
    }

    /// Name of the device.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its index.
    pub fn ifindex(&self) -> u32 {
        self.ifindex
    }

    /// Reads the next frame into `buffer`, header first; `None` if there is none now.
    ///
    /// # Errors
    /// What the system says.
    pub fn read<'b>(&self, buffer: &'b mut [u8]) -> io::Result<Option<(VnetHeader, &'b [u8])>> {
        let len = match (&self.file).read(buffer) {
            Ok(len) => len,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(e) => return Err(e),
        };
        let whole = buffer.get(..len).unwrap_or_default();
        let Some((header, frame)) = whole.split_first_chunk::<VNET_HEADER>() else {
            return Err(io::Error::other("a frame without its header"));
        };
        Ok(Some((VnetHeader(*header), frame)))
    }
}

impl AsFd for VnetTap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Sends frames by an interface of the current namespace, and receives none.
#[derive(Debug)]
pub struct VnetSender {
    fd: OwnedFd,
}

impl VnetSender {
    /// Opens one.
    ///
    /// # Errors
    /// No such interface, or no permission to open packet sockets.
    pub fn open(name: &str) -> Result<VnetSender, KernelError> {
        let ifindex = iface::index_of(name)?;
        open(ifindex)
            .map(|fd| VnetSender { fd })
            .map_err(|e| match e.kind() {
                io::ErrorKind::PermissionDenied => KernelError::NoPermission {
                    what: format!("open a packet socket on {name}"),
                },
                _ => KernelError::sys(format!("open a packet socket on {name}"), e),
            })
    }

    /// Sends a frame with what is left to be done to it. Where the queue of the interface is full it waits a tenth of a second.
    ///
    /// # Errors
    /// The system's: `EMSGSIZE` above the MTU, `ENOBUFS` and `EAGAIN` where queues stay full, `ENETDOWN`, `ENXIO`.
    pub fn send(&self, header: &VnetHeader, frame: &[u8]) -> io::Result<()> {
        let mut header = header.0;
        header[0] &= NEEDS_CSUM;
        let mut parts = [&header[..], frame].map(|part| libc::iovec {
            iov_base: part.as_ptr().cast_mut().cast::<c_void>(),
            iov_len: part.len(),
        });
        // SAFETY: the structure is plain numbers and pointers, for which zero bytes are valid.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = parts.len();
        loop {
            // SAFETY: both vectors outlive the call and are as long as they say; sending only reads them.
            let sent = unsafe { libc::sendmsg(self.fd.as_raw_fd(), &raw const message, 0) };
            if sent >= 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
}

fn open(ifindex: u32) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so `fd` is a fresh descriptor that nobody else owns.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let on: c_int = 1;
    set(&fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &on)?;
    set(&fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BUFFER)?;
    set(&fd, libc::SOL_SOCKET, libc::SO_SNDTIMEO, &SEND_WAIT)?;
    // SAFETY: the structure is plain numbers, for which zero bytes are valid.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    // Protocol 0 receives nothing.
    address.sll_ifindex = ifindex.cast_signed();
    // SAFETY: the address is a link-layer one and valid for the length given.
    let bound = unsafe {
        libc::bind(
            fd.as_raw_fd(),
            (&raw const address).cast::<libc::sockaddr>(),
            mem::size_of_val(&address) as libc::socklen_t,
        )
    };
    match bound {
        0 => Ok(fd),
        _ => Err(io::Error::last_os_error()),
    }
}

fn set<T>(fd: &OwnedFd, level: c_int, option: c_int, value: &T) -> io::Result<()> {
    // SAFETY: the pointer is valid for the length given, and the caller pairs option and type.
    let ret = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
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
