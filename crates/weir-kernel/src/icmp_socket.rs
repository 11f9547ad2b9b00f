//! The ICMP packets that pass a device, in both directions, each with the kernel's time of it: a packet socket (packet(7)) with a filter, so that a busy
//! device does not fill it.
//!
//! Sees what the stack and programs send by the device's own transmit path and what it receives; not what goes straight to the peer of a veth.

#![expect(unsafe_code, reason = "socket calls take raw pointers")]

use std::ffi::{c_int, c_void};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use crate::KernelError;
use crate::frames::{address, bind, set};
use crate::sys::c_string;

/// Bytes of a receive buffer: thousands of packets.
const ROOM: c_int = 1 << 22;

/// A socket on one device.
#[derive(Debug)]
pub struct IcmpSocket {
    fd: OwnedFd,
    device: String,
}

/// A packet that passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed<'b> {
    /// Its bytes, cut to the buffer; a VLAN tag that lies beside them is not among them.
    pub frame: &'b [u8],
    /// It left by the device; else it came in.
    pub left: bool,
    /// When, in nanoseconds of the calendar.
    pub at_ns: u64,
}

/// Takes packets whose EtherType and protocol, or next header, say ICMP: jumps count from the step behind them.
const ICMP: [libc::sock_filter; 9] = [
    step(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, 12, 0, 0),
    step(libc::BPF_JMP | libc::BPF_JEQ, 0x0800, 0, 2),
    step(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 23, 0, 0),
    step(libc::BPF_JMP | libc::BPF_JEQ, 1, 3, 4),
    step(libc::BPF_JMP | libc::BPF_JEQ, 0x86dd, 0, 3),
    step(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 20, 0, 0),
    step(libc::BPF_JMP | libc::BPF_JEQ, 58, 0, 1),
    step(libc::BPF_RET, 0x40000, 0, 0),
    step(libc::BPF_RET, 0, 0, 0),
];

const fn step(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    }
}

impl IcmpSocket {
    /// Opens one on a device of the current namespace.
    ///
    /// # Errors
    /// There is no such device, or the kernel refused: it takes CAP_NET_RAW.
    pub fn open(device: &str) -> Result<Self, KernelError> {
        let fd = open(device)
            .map_err(|e| KernelError::sys(format!("open a packet socket on {device}"), e))?;
        Ok(Self {
            fd,
            device: device.to_owned(),
        })
    }

    /// The next packet, if one passes within `patience`.
    ///
    /// # Errors
    /// The device is gone, or the kernel refused.
    pub fn next<'b>(
        &self,
        buffer: &'b mut [u8],
        patience: Duration,
    ) -> Result<Option<Passed<'b>>, KernelError> {
        let failed = |e| KernelError::sys(format!("receive on {}", self.device), e);
        if !self.is_ready(patience).map_err(failed)? {
            return Ok(None);
        }
        let mut from = address(0);
        let mut part = libc::iovec {
            iov_base: buffer.as_mut_ptr().cast::<c_void>(),
            iov_len: buffer.len(),
        };
        // Room for a time, aligned as control messages are.
        let mut control = [0_u64; 16];
        // SAFETY: the structure is plain numbers and pointers, for which zero bytes are valid.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        message.msg_name = (&raw mut from).cast();
        message.msg_namelen = mem::size_of_val(&from) as libc::socklen_t;
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = mem::size_of_val(&control) as _;
        // SAFETY: all pointers in `message` are valid for the lengths beside them during the call.
        let got =
            unsafe { libc::recvmsg(self.fd.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
        let Ok(got) = usize::try_from(got) else {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(failed(error)),
            };
        };
        let at_ns = time_of(&message).ok_or_else(|| {
            failed(io::Error::other(
                "the kernel delivered a packet without the requested timestamp",
            ))
        })?;
        Ok(Some(Passed {
            frame: buffer.get(..got).unwrap_or_default(),
            left: from.sll_pkttype == libc::PACKET_OUTGOING,
            at_ns,
        }))
    }

    /// Packets that found no room since the last call.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn missed(&self) -> Result<u64, KernelError> {
        // SAFETY: the structure is plain numbers, for which zero bytes are valid.
        let mut counted: libc::tpacket_stats = unsafe { mem::zeroed() };
        let mut len = mem::size_of_val(&counted) as libc::socklen_t;
        // SAFETY: the pointers are valid for the length given.
        let ret = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut counted).cast(),
                &raw mut len,
            )
        };
        match ret {
            0 => Ok(counted.tp_drops.into()),
            _ => Err(KernelError::sys(
                format!("count packets on {}", self.device),
                io::Error::last_os_error(),
            )),
        }
    }

    fn is_ready(&self, patience: Duration) -> io::Result<bool> {
        let mut poll = libc::pollfd {
            fd: self.fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let wait = libc::timespec {
            tv_sec: patience.as_secs() as libc::time_t,
            tv_nsec: patience.subsec_nanos().into(),
        };
        // SAFETY: both pointers are valid for the call, and no signal mask is given.
        let ready = unsafe { libc::ppoll(&raw mut poll, 1, &raw const wait, std::ptr::null()) };
        match ready {
            0 => Ok(false),
            1 => Ok(true),
            _ => {
                let error = io::Error::last_os_error();
                match error.kind() {
                    io::ErrorKind::Interrupted => Ok(false),
                    _ => Err(error),
                }
            }
        }
    }
}

/// The time in a received message.
fn time_of(message: &libc::msghdr) -> Option<u64> {
    // SAFETY: the kernel filled in the control messages, and `message` still points to their buffer.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: a header that these macros yield lies in the buffer whole.
        let (level, kind) = unsafe { ((*header).cmsg_level, (*header).cmsg_type) };
        if level == libc::SOL_SOCKET && kind == libc::SCM_TIMESTAMPNS {
            // SAFETY: a message of this kind holds a `timespec`; its place need not be aligned.
            let time: libc::timespec =
                unsafe { std::ptr::read_unaligned(libc::CMSG_DATA(header).cast()) };
            return Some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64);
        }
        // SAFETY: as for the first one.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
    None
}

fn open(device: &str) -> io::Result<OwnedFd> {
    let name = c_string(device)?;
    // SAFETY: `name` is a valid C string for the duration of the call.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    if index == 0 {
        return Err(io::Error::last_os_error());
    }
    // Protocol 0 receives nothing: filter and time are set before binding names device and protocol.
    // SAFETY: takes no pointers.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so `fd` is a fresh descriptor that nobody else owns.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    set(&fd, libc::SO_RCVBUFFORCE, &ROOM)?;
    set(&fd, libc::SO_TIMESTAMPNS, &1)?;
    let mut steps = ICMP;
    let program = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    set(&fd, libc::SO_ATTACH_FILTER, &program)?;
    bind(&fd, index)?;
    Ok(fd)
}
