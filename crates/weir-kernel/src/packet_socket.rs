//! A packet socket (packet(7)) as a port of the user engine: batches of whole frames in and out of one interface.
//!
//! Each frame comes with what the kernel knows about it beside its bytes: a VLAN tag that the device took out is put back, an
//! unfinished checksum and a size to segment by are reported (`virtio_net_hdr`) for the caller to carry out. Frames that this
//! host sends on the interface are not received. Invariant: closing the socket undoes everything, promiscuous mode included.

#![expect(unsafe_code, reason = "socket calls take raw pointers")]

use std::ffi::{c_int, c_void};
use std::io;
use std::mem;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::{KernelError, iface};

/// Frames of one batch.
pub const BATCH: usize = 32;
/// Longest frame, its VLAN tags included: what a GSO packet can have, and then some.
const FRAME_MAX: usize = 1 << 17;
/// Bytes of `struct virtio_net_hdr`, which stands before every frame.
const VNET: usize = 10;
/// Room for one control message with a `tpacket_auxdata`.
const CONTROL: usize = 64;
/// Receive buffer of the socket in bytes.
const RECEIVE_BUFFER: c_int = 8 << 20;
const ETH_ADDRESSES: usize = 12;
const VLAN_TAG: usize = 4;

const VIRTIO_NET_HDR_F_NEEDS_CSUM: u8 = 1;
const VIRTIO_NET_HDR_GSO_NONE: u8 = 0;

/// What the kernel left to be done to a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unfinished {
    /// Where the checksum is to be computed from and stored: (first byte covered, the field), from the start of the frame.
    pub checksum: Option<(usize, usize)>,
    /// `VIRTIO_NET_HDR_GSO_*` and the payload bytes of each segment.
    pub segments: Option<(u8, u16)>,
}

/// Received frames.
pub struct Frames {
    bytes: Vec<u8>,
    frames: Vec<(Range<usize>, Unfinished)>,
}

impl Frames {
    /// Room for one batch. Memory that no frame ever needed is not touched.
    pub fn new() -> Frames {
        Frames {
            bytes: vec![0; BATCH * (FRAME_MAX + VNET)],
            frames: Vec::with_capacity(BATCH),
        }
    }

    /// The frames of the last [`PacketSocket::receive`].
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Unfinished)> {
        self.frames
            .iter()
            .filter_map(|(at, rest)| Some((self.bytes.get(at.clone())?, *rest)))
    }
}

impl Default for Frames {
    fn default() -> Self {
        Frames::new()
    }
}

/// A packet socket bound to one interface of the current namespace.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
    name: String,
    ifindex: u32,
}

impl PacketSocket {
    /// Opens one that receives every frame of the interface, whoever it is addressed to.
    ///
    /// # Errors
    /// [`KernelError`] when there is no such interface or the process may not open packet sockets.
    pub fn open(name: &str) -> Result<Self, KernelError> {
        let ifindex = iface::index_of(name)?;
        let fd = open(ifindex).map_err(|e| {
            if e.kind() == io::ErrorKind::PermissionDenied {
                return KernelError::NoPermission {
                    what: format!("open a packet socket on {name}"),
                };
            }
            KernelError::sys(format!("open a packet socket on {name}"), e)
        })?;
        Ok(Self {
            fd,
            name: name.to_owned(),
            ifindex,
        })
    }

    /// Name of the interface.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its index.
    pub fn ifindex(&self) -> u32 {
        self.ifindex
    }

    /// Receives what is there, up to [`BATCH`] frames, without waiting; `into` holds them afterwards.
    ///
    /// # Errors
    /// [`KernelError`] when the interface went away.
    pub fn receive(&self, into: &mut Frames) -> Result<usize, KernelError> {
        into.frames.clear();
        let mut control = [[0u64; CONTROL / 8]; BATCH];
        let mut vectors: Vec<libc::iovec> = into
            .bytes
            .chunks_exact_mut(FRAME_MAX + VNET)
            .map(|chunk| libc::iovec {
                // Four bytes stay free in front, for a tag that is put back.
                iov_base: chunk[VLAN_TAG..].as_mut_ptr().cast::<c_void>(),
                iov_len: chunk.len() - VLAN_TAG,
            })
            .collect();
        let mut messages: Vec<libc::mmsghdr> = vectors
            .iter_mut()
            .zip(&mut control)
            .map(|(vector, control)| {
                // SAFETY: the structure is plain numbers and pointers, for which zero bytes are valid.
                let mut message: libc::mmsghdr = unsafe { mem::zeroed() };
                message.msg_hdr.msg_iov = vector;
                message.msg_hdr.msg_iovlen = 1;
                message.msg_hdr.msg_control = control.as_mut_ptr().cast::<c_void>();
                message.msg_hdr.msg_controllen = CONTROL;
                message
            })
            .collect();
        // SAFETY: every message points to one vector, one buffer and one control area, all of which outlive the call and
        // are as long as they say.
        let got = unsafe {
            libc::recvmmsg(
                self.fd.as_raw_fd(),
                messages.as_mut_ptr(),
                messages.len() as u32,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        let Ok(got) = usize::try_from(got) else {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(0),
                _ => Err(KernelError::sys(format!("receive on {}", self.name), error)),
            };
        };
        let lengths: Vec<(usize, Option<[u8; VLAN_TAG]>)> = messages
            .iter()
            .take(got)
            .map(|m| (m.msg_len as usize, taken_tag(&m.msg_hdr)))
            .collect();
        for (n, (len, tag)) in lengths.into_iter().enumerate() {
            let start = n * (FRAME_MAX + VNET);
            if let Some(chunk) = into.bytes.get_mut(start..start + FRAME_MAX + VNET)
                && let Some((at, unfinished)) = whole(chunk, len, tag)
            {
                into.frames
                    .push((start + at.start..start + at.end, unfinished));
            }
        }
        Ok(into.frames.len())
    }

    /// Sends one complete frame. The queueing discipline of the interface applies.
    ///
    /// # Errors
    /// The system's error: `EMSGSIZE` above the MTU, `ENOBUFS` when the device's queue is full, `ENETDOWN`.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        let header = [0u8; VNET];
        let mut parts = [
            libc::iovec {
                iov_base: header.as_ptr().cast_mut().cast::<c_void>(),
                iov_len: VNET,
            },
            libc::iovec {
                iov_base: frame.as_ptr().cast_mut().cast::<c_void>(),
                iov_len: frame.len(),
            },
        ];
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

    /// Frames that found the socket's buffer full since the last call.
    ///
    /// # Errors
    /// [`KernelError`] when the kernel does not say.
    pub fn missed(&self) -> Result<u64, KernelError> {
        let mut stats = libc::tpacket_stats {
            tp_packets: 0,
            tp_drops: 0,
        };
        let mut len = mem::size_of_val(&stats) as libc::socklen_t;
        // SAFETY: both pointers are valid, and `len` is the size of what the first points to.
        let ret = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut stats).cast::<c_void>(),
                &raw mut len,
            )
        };
        match ret {
            0 => Ok(u64::from(stats.tp_drops)),
            _ => Err(KernelError::sys(
                format!("read the statistics of the socket on {}", self.name),
                io::Error::last_os_error(),
            )),
        }
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Where the frame of a message lies in its chunk, its tag put back, and what is to be done to it.
fn whole(
    chunk: &mut [u8],
    len: usize,
    tag: Option<[u8; VLAN_TAG]>,
) -> Option<(Range<usize>, Unfinished)> {
    let frame = VLAN_TAG + VNET;
    let end = VLAN_TAG + len;
    if len < VNET || end > chunk.len() {
        return None;
    }
    let header: [u8; VNET] = chunk.get(VLAN_TAG..frame)?.try_into().ok()?;
    let half = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
    let (start, moved) = match tag {
        Some(tag) if end - frame >= ETH_ADDRESSES => {
            chunk.copy_within(frame..frame + ETH_ADDRESSES, frame - VLAN_TAG);
            let at = frame - VLAN_TAG + ETH_ADDRESSES;
            chunk.get_mut(at..at + VLAN_TAG)?.copy_from_slice(&tag);
            (frame - VLAN_TAG, VLAN_TAG)
        }
        _ => (frame, 0),
    };
    let checksum = (header[0] & VIRTIO_NET_HDR_F_NEEDS_CSUM != 0).then(|| {
        let from = usize::from(half(6)) + moved;
        (from, from + usize::from(half(8)))
    });
    let segments = (header[1] != VIRTIO_NET_HDR_GSO_NONE).then(|| (header[1], half(4)));
    Some((start..end, Unfinished { checksum, segments }))
}

/// The VLAN tag the device took out of a frame, as bytes of the frame.
fn taken_tag(message: &libc::msghdr) -> Option<[u8; VLAN_TAG]> {
    // SAFETY: the kernel filled the control area and its length; the macros only walk inside it.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !next.is_null() {
        // SAFETY: not null, so it points to a control message inside the control area, which is aligned to eight bytes.
        let control = unsafe { &*next };
        let needed = mem::size_of::<libc::tpacket_auxdata>();
        // SAFETY: takes no pointers.
        let least = unsafe { libc::CMSG_LEN(needed as u32) } as usize;
        if control.cmsg_level == libc::SOL_PACKET
            && control.cmsg_type == libc::PACKET_AUXDATA
            && control.cmsg_len >= least
        {
            // SAFETY: the message is long enough for the structure, which is plain numbers; it may be unaligned.
            let aux: libc::tpacket_auxdata =
                unsafe { std::ptr::read_unaligned(libc::CMSG_DATA(next).cast()) };
            if aux.tp_status & libc::TP_STATUS_VLAN_VALID == 0 {
                return None;
            }
            let kind = match aux.tp_status & libc::TP_STATUS_VLAN_TPID_VALID {
                0 => 0x8100,
                _ => aux.tp_vlan_tpid,
            };
            let [k0, k1] = kind.to_be_bytes();
            let [t0, t1] = aux.tp_vlan_tci.to_be_bytes();
            return Some([k0, k1, t0, t1]);
        }
        // SAFETY: `next` is a control message of `message`.
        next = unsafe { libc::CMSG_NXTHDR(message, next) };
    }
    None
}

fn open(ifindex: u32) -> io::Result<OwnedFd> {
    // Protocol 0 receives nothing; binding names interface and protocol at once, when all options are set.
    // SAFETY: takes no pointers.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so `fd` is a fresh descriptor that nobody else owns.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let on: c_int = 1;
    set(&fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &RECEIVE_BUFFER)?;
    set(&fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &on)?;
    set(&fd, libc::SOL_PACKET, libc::PACKET_AUXDATA, &on)?;
    set(&fd, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &on)?;
    let mut address: libc::sockaddr_ll =
        // SAFETY: the structure is plain numbers, for which zero bytes are valid.
        unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = ifindex as c_int;
    // SAFETY: the address is a link-layer one and valid for the length given.
    let bound = unsafe {
        libc::bind(
            fd.as_raw_fd(),
            (&raw const address).cast::<libc::sockaddr>(),
            mem::size_of_val(&address) as libc::socklen_t,
        )
    };
    if bound != 0 {
        return Err(io::Error::last_os_error());
    }
    let all = libc::packet_mreq {
        mr_ifindex: ifindex as c_int,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set(&fd, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &all)?;
    Ok(fd)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(header: [u8; VNET], frame: &[u8]) -> Vec<u8> {
        let mut chunk = vec![0; VLAN_TAG];
        chunk.extend(header);
        chunk.extend(frame);
        chunk
    }

    #[test]
    fn a_taken_tag_is_put_back_and_moves_the_checksum() {
        let frame: Vec<u8> = (0..60).collect();
        let mut header = [0; VNET];
        header[0] = VIRTIO_NET_HDR_F_NEEDS_CSUM;
        header[6..8].copy_from_slice(&34u16.to_ne_bytes());
        header[8..10].copy_from_slice(&16u16.to_ne_bytes());
        let mut bytes = chunk(header, &frame);
        let (at, unfinished) =
            whole(&mut bytes, VNET + 60, Some([0x81, 0, 0, 5])).expect("a frame");
        assert_eq!(bytes[at.clone()][..12], frame[..12]);
        assert_eq!(bytes[at.clone()][12..16], [0x81, 0, 0, 5]);
        assert_eq!(bytes[at][16..], frame[12..]);
        assert_eq!(unfinished.checksum, Some((38, 54)));
        assert_eq!(unfinished.segments, None);
    }

    #[test]
    fn what_is_no_frame_is_left_out() {
        let mut bytes = chunk([0; VNET], &[1; 20]);
        assert_eq!(whole(&mut bytes, VNET - 1, None), None);
        assert_eq!(whole(&mut bytes, 1000, None), None);
        let (at, rest) = whole(&mut bytes, VNET + 20, None).expect("a frame");
        assert_eq!((at.len(), rest), (20, Unfinished::default()));
    }
}
