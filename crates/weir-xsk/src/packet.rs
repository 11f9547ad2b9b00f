//! A packet socket with mapped rings (`TPACKET_V3`, packet(7)) as a [`Port`]: what is left where there is no AF_XDP, and what it is compared with.
//!
//! The kernel hands over received packets in blocks, full ones or those that a timer closes; sent packets have slots of one size. Packets go through the stack's own path, so no
//! program is needed, and packets that the socket receives are received by everybody else, too. VLAN tags that a device takes out are not put back.
//!
//! Invariant: a block is read only while its status word says that it is the process's, a slot is written only while its word says so; both words are shared
//! with the kernel and ordered by acquire and release.

#![expect(unsafe_code, reason = "rings are memory shared with the kernel")]

use std::ffi::{c_int, c_void};
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use weir_kernel::iface::{self, LinkWatch};

use crate::port::{Bounced, Losses, Packet, Port, Wait};
use crate::socket::timespec;
use crate::{Fanout, XskError, cluster};

/// What a packet socket should be like.
#[derive(Clone, Copy, Debug)]
pub struct PacketConfig {
    /// EtherType to receive; `None`: all.
    pub ethertype: Option<u16>,
    /// Bytes of a block of the receiving ring: a power of two, at least a page.
    pub block_size: u32,
    /// Blocks of it; 0: the socket does not receive.
    pub blocks: u32,
    /// Milliseconds after which the kernel hands over a block that is not full.
    pub retire_ms: u32,
    /// Slots of the sending ring; 0: the socket does not send.
    pub slots: u32,
    /// Bytes of the longest packet to send.
    pub longest: u32,
    /// Do not pass the queueing discipline (`PACKET_QDISC_BYPASS`), as AF_XDP does not.
    pub bypass: bool,
    /// Receive what the host itself sends by the interface as well.
    pub outgoing: bool,
    /// Share what comes in with the other sockets of this number on the interface, of whatever process: all packets between two addresses come to one of them (`cluster.rs`).
    pub cluster: Option<u16>,
}

impl Default for PacketConfig {
    fn default() -> Self {
        PacketConfig {
            ethertype: None,
            block_size: 1 << 18,
            blocks: 32,
            retire_ms: 1,
            slots: 2048,
            longest: 1514,
            bypass: true,
            outgoing: false,
            cluster: None,
        }
    }
}

/// `TPACKET_ALIGN` of the header of a packet.
const HEADER: usize = 48;
/// The frame size that receiving rings are made with; blocks are filled without gaps, so it only has to be valid.
const RX_FRAME: u32 = 2048;

/// A packet socket with rings.
#[derive(Debug)]
pub struct PacketPort {
    fd: OwnedFd,
    link: LinkWatch,
    map: Map,
    config: PacketConfig,
    /// Bytes of a sending slot.
    slot: usize,
    /// The block that is read next, and what is left of it: packets, and where the next one lies.
    block: u32,
    left: u32,
    at: usize,
    /// The slot that is written next; slots queued and not yet known to be sent.
    next: u32,
    queued: u32,
    /// Of all that came to the socket: how many, and those of them that found the ring full.
    received: u64,
    dropped: u64,
    no_room: u64,
    calls: u64,
    /// It is one of a group.
    shares: bool,
}

#[derive(Debug)]
struct Map {
    base: NonNull<u8>,
    len: usize,
    /// Where the sending ring begins.
    tx: usize,
}

// SAFETY: shared memory at a fixed place; the thread that has the value is the only one of this process that uses it.
unsafe impl Send for Map {}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: mapped with this length; nothing borrows from it longer than `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

impl Map {
    /// The status word at an offset.
    fn word(&self, at: usize) -> &AtomicU32 {
        assert!(
            at + 4 <= self.len && at.is_multiple_of(4),
            "inside the rings"
        );
        // SAFETY: inside the mapping and aligned; the kernel changes it, too, which is what atomics are for.
        unsafe { &*self.base.as_ptr().add(at).cast::<AtomicU32>() }
    }

    /// A number that the kernel wrote before it handed its block over.
    fn number(&self, at: usize) -> u32 {
        self.word(at).load(Ordering::Relaxed)
    }

    /// Bytes that are the process's now; none if they do not lie in the mapping.
    fn bytes(&mut self, at: usize, len: usize) -> &mut [u8] {
        match at.checked_add(len) {
            // SAFETY: inside the mapping; its block or slot is the process's, so nobody else writes there, and `self` is borrowed.
            Some(end) if end <= self.len => unsafe {
                std::slice::from_raw_parts_mut(self.base.as_ptr().add(at), len)
            },
            _ => &mut [],
        }
    }
}

/// A received packet, lent, with what the kernel knows of it beside its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Its bytes, as many as the ring kept.
    pub bytes: &'a [u8],
    /// Bytes it had.
    pub len: usize,
    /// When the kernel received it: nanoseconds since 1970, by the system's clock.
    pub time: u64,
    /// The VLAN tag that the device took out of it: tag protocol and tag control information.
    pub tag: Option<(u16, u16)>,
    /// What is known of its checksums.
    pub checksum: Checksum,
}

/// What the kernel knows of a packet's transport checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// Nothing: nobody has looked.
    #[default]
    Unknown,
    /// It is right, as the device or the kernel has found.
    Valid,
    /// It is not filled in: the sender leaves that to the device (`CHECKSUM_PARTIAL`).
    Unfinished,
}

/// Offsets in `struct tpacket_block_desc`: version and private offset, then `struct tpacket_hdr_v1`.
const BLOCK_STATUS: usize = 8;
const BLOCK_PACKETS: usize = 12;
const BLOCK_FIRST: usize = 16;
/// Offsets in `struct tpacket3_hdr`.
const PACKET_NEXT: usize = mem::offset_of!(libc::tpacket3_hdr, tp_next_offset);
const PACKET_SNAPLEN: usize = mem::offset_of!(libc::tpacket3_hdr, tp_snaplen);
const PACKET_LEN: usize = mem::offset_of!(libc::tpacket3_hdr, tp_len);
const PACKET_STATUS: usize = mem::offset_of!(libc::tpacket3_hdr, tp_status);
const PACKET_MAC: usize = mem::offset_of!(libc::tpacket3_hdr, tp_mac);
const PACKET_SECONDS: usize = mem::offset_of!(libc::tpacket3_hdr, tp_sec);
const PACKET_NANOSECONDS: usize = mem::offset_of!(libc::tpacket3_hdr, tp_nsec);
/// `struct tpacket_hdr_variant1` in it: hash, tag control information, tag protocol.
const PACKET_TCI: usize = mem::offset_of!(libc::tpacket3_hdr, hv1) + 4;
const PACKET_TPID: usize = PACKET_TCI + 4;
/// Whether the two before are set; `libc` has no name for the second.
const TAG_VALID: u32 = 1 << 4;
const TPID_VALID: u32 = 1 << 6;
/// `TP_STATUS_CSUMNOTREADY` and `TP_STATUS_CSUM_VALID`.
const SUM_UNFINISHED: u32 = 1 << 3;
const SUM_VALID: u32 = 1 << 7;

impl PacketPort {
    /// Opens one on an interface of the current namespace, that receives what is addressed to anybody.
    ///
    /// # Errors
    /// No permission, no such interface, no memory for the rings.
    pub fn open(name: &str, config: &PacketConfig) -> Result<PacketPort, XskError> {
        PacketPort::open_as(name, config, false)
    }

    /// Opens the sockets of a group: each packet comes to one of them, whose place the program chooses.
    ///
    /// # Errors
    /// As [`PacketPort::open`]; or the kernel has no such groups.
    pub fn open_group(
        name: &str,
        config: &PacketConfig,
        fanout: &Fanout,
    ) -> Result<Vec<PacketPort>, XskError> {
        let failed = |e| XskError::sys(format!("share {name} between workers"), e);
        let mut ports: Vec<PacketPort> = Vec::new();
        let mut group = None;
        for _ in 0..fanout.workers() {
            // A socket that is bound and has not joined would receive everything.
            let port = PacketPort::open_as(name, config, true)?;
            group = Some(join_group(&port.fd, group).map_err(failed)?);
            ports.push(port);
        }
        if let Some(first) = ports.first() {
            let program: c_int = fanout.program().as_raw_fd();
            let option = libc::PACKET_FANOUT_DATA;
            set(&first.fd, libc::SOL_PACKET, option, &program).map_err(failed)?;
        }
        for port in &mut ports {
            set(&port.fd, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0).map_err(failed)?;
            // What came before it had joined is nobody's.
            port.losses()?;
            (port.received, port.dropped) = (0, 0);
        }
        Ok(ports)
    }

    /// `shares`: it is to join a group, and receives nothing until it has.
    fn open_as(name: &str, config: &PacketConfig, shares: bool) -> Result<PacketPort, XskError> {
        let ifindex = iface::index_of(name)?;
        let slot = slot_size(config.longest);
        let per_block = config.block_size / slot.max(1);
        if config.slots > 0 && per_block == 0 {
            return Err(XskError::Excluded(format!(
                "packets of {} bytes do not fit blocks of {}",
                config.longest, config.block_size
            )));
        }
        // SAFETY: takes no pointers.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(XskError::sys(
                "open a packet socket",
                io::Error::last_os_error(),
            ));
        }
        // SAFETY: the call succeeded, so `fd` is a fresh descriptor that nobody else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let option = |option, value: c_int, what: &str| {
            set(&fd, libc::SOL_PACKET, option, &value).map_err(|e| XskError::sys(what, e))
        };
        option(
            libc::PACKET_VERSION,
            libc::tpacket_versions::TPACKET_V3 as c_int,
            "use rings of version 3",
        )?;
        if !config.outgoing {
            option(libc::PACKET_IGNORE_OUTGOING, 1, "ignore sent packets")?;
        }
        if config.bypass && config.slots > 0 {
            option(libc::PACKET_QDISC_BYPASS, 1, "bypass queueing disciplines")?;
        }
        let ring = |option, block_nr: u32, frame_size: u32, retire_ms: u32, what: &str| {
            let request = libc::tpacket_req3 {
                tp_block_size: config.block_size,
                tp_block_nr: block_nr,
                tp_frame_size: frame_size,
                tp_frame_nr: config.block_size / frame_size * block_nr,
                tp_retire_blk_tov: retire_ms,
                tp_sizeof_priv: 0,
                tp_feature_req_word: 0,
            };
            set(&fd, libc::SOL_PACKET, option, &request)
                .map_err(|e| XskError::sys(format!("make the {what} ring of a packet socket"), e))
        };
        let mut config = *config;
        if config.blocks > 0 {
            let retire = config.retire_ms;
            ring(
                libc::PACKET_RX_RING,
                config.blocks,
                RX_FRAME,
                retire,
                "receiving",
            )?;
        }
        let mut tx_blocks = 0;
        if config.slots > 0 {
            tx_blocks = config.slots.div_ceil(per_block);
            config.slots = tx_blocks * per_block;
            ring(libc::PACKET_TX_RING, tx_blocks, slot, 0, "sending")?;
        }
        let tx = config.blocks as usize * config.block_size as usize;
        let len = tx + tx_blocks as usize * config.block_size as usize;
        let map = map(&fd, len, tx)?;
        if shares {
            let (level, option) = (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER);
            attach(&fd, level, option, cluster::nothing())
                .map_err(|e| XskError::sys("filter a packet socket", e))?;
        }
        bind(&fd, ifindex, config.ethertype, config.blocks > 0)
            .map_err(|e| XskError::sys(format!("bind a packet socket to {name}"), e))?;
        if let Some(number) = config.cluster {
            join(&fd, number)
                .map_err(|e| XskError::sys(format!("join cluster {number} of {name}"), e))?;
        }
        Ok(PacketPort {
            link: LinkWatch::new(name)?,
            fd,
            map,
            config,
            slot: slot as usize,
            block: 0,
            left: 0,
            at: 0,
            next: 0,
            queued: 0,
            received: 0,
            dropped: 0,
            no_room: 0,
            calls: 0,
            shares,
        })
    }

    /// Name of the interface.
    pub fn name(&self) -> &str {
        self.link.name()
    }

    /// Forgets that the link went away, which the socket says once and then again with every wait until somebody asks.
    ///
    /// # Errors
    /// The socket cannot be asked.
    pub fn forget_error(&self) -> Result<(), XskError> {
        let mut error: c_int = 0;
        let mut len = mem::size_of_val(&error) as libc::socklen_t;
        // SAFETY: both pointers are valid, and `len` is the size of what the first points to.
        let ret = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ERROR,
                (&raw mut error).cast::<c_void>(),
                &raw mut len,
            )
        };
        match ret {
            0 => Ok(()),
            _ => Err(XskError::sys(
                "ask a packet socket for its error",
                io::Error::last_os_error(),
            )),
        }
    }

    /// Takes only what a program of the kind "socket filter" takes, from here on.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn attach_program(&self, program: BorrowedFd<'_>) -> Result<(), XskError> {
        let fd: c_int = program.as_raw_fd();
        set(&self.fd, libc::SOL_SOCKET, libc::SO_ATTACH_BPF, &fd)
            .map_err(|e| XskError::sys(format!("filter what comes to {}", self.link.name()), e))
    }

    /// Receives no more. What came until now can still be read, the last of it when the kernel hands its block over ([`PacketConfig::retire_ms`]).
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn stop(&mut self) -> Result<(), XskError> {
        // A member of a cluster or group cannot be bound to nothing.
        let stopped = match self.shares || self.config.cluster.is_some() {
            true => attach(
                &self.fd,
                libc::SOL_SOCKET,
                libc::SO_ATTACH_FILTER,
                cluster::nothing(),
            ),
            false => bind(&self.fd, self.link.ifindex(), None, false),
        };
        stopped.map_err(|e| XskError::sys(format!("stop receiving on {}", self.link.name()), e))
    }

    /// Packets that came to the socket, lost ones included: what was read, what waits, and [`Losses::ring_drops`].
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn received(&mut self) -> Result<u64, XskError> {
        self.losses()?;
        Ok(self.received)
    }

    /// Whether more than so many of a hundred blocks of the ring wait to be read.
    pub fn is_fuller_than(&self, percent: u32) -> bool {
        let blocks = self.config.blocks;
        if blocks == 0 {
            return false;
        }
        let ahead = (u64::from(blocks) * u64::from(percent.min(99)) / 100) as u32;
        let block = (self.block + ahead) % blocks;
        let status = self
            .map
            .word(block as usize * self.config.block_size as usize + BLOCK_STATUS)
            .load(Ordering::Acquire);
        status & libc::TP_STATUS_USER != 0
    }

    /// System calls made to send or wait.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// Queues a copy of a packet; where there is no room it is lost, and counted. Whether there was.
    ///
    /// # Errors
    /// The packet is too long.
    pub fn queue_or_lose(&mut self, packet: &[u8]) -> Result<bool, XskError> {
        let room = self.queue(packet.len(), |_, to| to.copy_from_slice(packet))?;
        self.no_room += u64::from(!room);
        Ok(room)
    }

    /// Lends up to `most` received packets as [`Port::receive`] does, with their times and tags.
    pub fn receive_seen(&mut self, most: usize, mut take: impl FnMut(Seen<'_>)) -> usize {
        let mut count = 0;
        while count < most {
            let more = self.next_packet_at(|port, header, at, snap, len| {
                let map = &mut port.map;
                let seconds = u64::from(map.number(header + PACKET_SECONDS));
                let time =
                    seconds * 1_000_000_000 + u64::from(map.number(header + PACKET_NANOSECONDS));
                let status = map.number(header + PACKET_STATUS);
                let tag = (status & TAG_VALID != 0).then(|| {
                    let word = map.number(header + PACKET_TPID).to_ne_bytes();
                    let tpid = match status & TPID_VALID {
                        0 => 0x8100,
                        _ => u16::from_ne_bytes([word[0], word[1]]),
                    };
                    (tpid, map.number(header + PACKET_TCI) as u16)
                });
                let checksum = match status {
                    s if s & SUM_UNFINISHED != 0 => Checksum::Unfinished,
                    s if s & SUM_VALID != 0 => Checksum::Valid,
                    _ => Checksum::Unknown,
                };
                take(Seen {
                    bytes: map.bytes(at, snap),
                    len,
                    time,
                    tag,
                    checksum,
                });
            });
            if !more {
                break;
            }
            count += 1;
        }
        count
    }

    fn block_at(&self) -> usize {
        self.block as usize * self.config.block_size as usize
    }

    /// Lends the next packet, if there is one: where it lies, bytes kept, bytes in all.
    fn next_packet(&mut self, take: impl FnOnce(&mut PacketPort, usize, usize, usize)) -> bool {
        self.next_packet_at(|port, _, at, snap, len| take(port, at, snap, len))
    }

    /// The same, with the place of its header before.
    fn next_packet_at(
        &mut self,
        take: impl FnOnce(&mut PacketPort, usize, usize, usize, usize),
    ) -> bool {
        if self.config.blocks == 0 {
            return false;
        }
        let block = self.block_at();
        if self.left == 0 {
            let status = self.map.word(block + BLOCK_STATUS).load(Ordering::Acquire);
            if status & libc::TP_STATUS_USER == 0 {
                return false;
            }
            self.left = self.map.number(block + BLOCK_PACKETS);
            self.at = block + self.map.number(block + BLOCK_FIRST) as usize;
            if self.left == 0 {
                self.give_back();
                return false;
            }
        }
        let at = self.at;
        let snap = self.map.number(at + PACKET_SNAPLEN) as usize;
        let len = self.map.number(at + PACKET_LEN) as usize;
        // tp_mac and tp_net share a word.
        let word = self.map.number(at + PACKET_MAC).to_ne_bytes();
        let mac = usize::from(u16::from_ne_bytes([word[0], word[1]]));
        let next = self.map.number(at + PACKET_NEXT) as usize;
        take(self, at, at + mac, snap, len);
        self.left -= 1;
        self.at = at + next;
        if self.left == 0 {
            self.give_back();
        }
        true
    }

    /// Gives the block back to the kernel.
    fn give_back(&mut self) {
        let block = self.block_at();
        self.map
            .word(block + BLOCK_STATUS)
            .store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.block = (self.block + 1) % self.config.blocks;
        self.left = 0;
    }

    fn slot_at(&self, slot: u32) -> usize {
        let per_block = self.config.block_size as usize / self.slot;
        let (block, within) = (slot as usize / per_block, slot as usize % per_block);
        self.map.tx + block * self.config.block_size as usize + within * self.slot
    }

    /// Slots that were queued and that the kernel has not given back.
    fn unsent(&mut self) -> u32 {
        while self.queued > 0 {
            let oldest = (self.next + self.config.slots - self.queued) % self.config.slots;
            let status = self
                .map
                .word(self.slot_at(oldest) + PACKET_STATUS)
                .load(Ordering::Acquire);
            if status & (libc::TP_STATUS_SEND_REQUEST | libc::TP_STATUS_SENDING) != 0 {
                break;
            }
            self.queued -= 1;
        }
        self.queued
    }
}

impl Port for PacketPort {
    fn receive(
        &mut self,
        most: usize,
        mut take: impl FnMut(Packet<'_>),
    ) -> Result<usize, XskError> {
        let mut count = 0;
        while count < most
            && self.next_packet(|port, at, snap, len| {
                take(Packet {
                    bytes: port.map.bytes(at, snap),
                    len,
                    seen_ns: None,
                });
            })
        {
            count += 1;
        }
        Ok(count)
    }

    fn queue(
        &mut self,
        len: usize,
        mut write: impl FnMut(usize, &mut [u8]),
    ) -> Result<bool, XskError> {
        if len > self.config.longest as usize {
            return Err(XskError::Excluded(format!(
                "packets of {len} bytes do not fit slots for {}",
                self.config.longest
            )));
        }
        if self.config.slots == 0 {
            return Err(XskError::NoRing {
                iface: self.link.name().to_owned(),
                ring: "sending",
            });
        }
        if self.queued == self.config.slots && self.unsent() == self.config.slots {
            return Ok(false);
        }
        let at = self.slot_at(self.next);
        write(0, self.map.bytes(at + HEADER, len));
        self.map
            .word(at + PACKET_LEN)
            .store(len as u32, Ordering::Relaxed);
        self.map.word(at + PACKET_NEXT).store(0, Ordering::Relaxed);
        self.map
            .word(at + PACKET_STATUS)
            .store(libc::TP_STATUS_SEND_REQUEST, Ordering::Release);
        self.next = (self.next + 1) % self.config.slots;
        self.queued += 1;
        Ok(true)
    }

    fn flush(&mut self) -> Result<usize, XskError> {
        let before = self.queued;
        if before == 0 {
            return Ok(0);
        }
        self.calls += 1;
        // SAFETY: no buffer and no address.
        let sent = unsafe {
            libc::sendto(
                self.fd.as_raw_fd(),
                ptr::null(),
                0,
                libc::MSG_DONTWAIT,
                ptr::null(),
                0,
            )
        };
        if sent < 0 {
            let e = io::Error::last_os_error();
            match e.raw_os_error() {
                // ENOBUFS: the device dropped one; its slot asks to be sent again, so nothing is lost yet.
                Some(libc::EAGAIN | libc::EINTR | libc::ENOBUFS | libc::EBUSY) => {}
                Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => {
                    self.check_link()?;
                    return Err(XskError::LinkDown {
                        iface: self.link.name().to_owned(),
                    });
                }
                _ => return Err(XskError::sys(format!("send on {}", self.link.name()), e)),
            }
        }
        Ok(self.unsent() as usize)
    }

    fn bounce(
        &mut self,
        most: usize,
        mut edit: impl FnMut(&mut Packet<'_>) -> bool,
    ) -> Result<Bounced, XskError> {
        let mut done = Bounced::default();
        while done.received < most {
            let mut queue = None;
            let more = self.next_packet(|port, at, snap, len| {
                let keep = edit(&mut Packet {
                    bytes: port.map.bytes(at, snap),
                    len,
                    seen_ns: None,
                });
                if keep {
                    // The block is still the process's: copied slot to slot, without a buffer between.
                    let packet: *const [u8] = port.map.bytes(at, snap);
                    queue = Some(port.queue(snap, |_, to| {
                        // SAFETY: both lie in the mapping; a receiving block and a sending slot do not overlap.
                        let packet = unsafe { &*packet };
                        let n = to.len().min(packet.len());
                        to[..n].copy_from_slice(&packet[..n]);
                    }));
                }
            });
            if !more {
                break;
            }
            done.received += 1;
            match queue.transpose()? {
                Some(true) => done.queued += 1,
                Some(false) => self.no_room += 1,
                None => {}
            }
        }
        self.flush()?;
        Ok(done)
    }

    fn wait(&mut self, how: Wait, timeout: Duration) -> Result<(), XskError> {
        if how != Wait::Poll {
            std::hint::spin_loop();
            return Ok(());
        }
        let mut entry = libc::pollfd {
            fd: self.fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        self.calls += 1;
        let time = timespec(timeout);
        // SAFETY: one entry and one time, both valid for the call; no signal mask.
        let found = unsafe { libc::ppoll(&raw mut entry, 1, &raw const time, std::ptr::null()) };
        if found < 0 {
            let e = io::Error::last_os_error();
            if e.kind() != io::ErrorKind::Interrupted {
                return Err(XskError::sys(format!("poll {}", self.link.name()), e));
            }
        }
        if entry.revents & libc::POLLERR != 0 {
            self.check_link()?;
        }
        Ok(())
    }

    fn losses(&mut self) -> Result<Losses, XskError> {
        let mut stats = libc::tpacket_stats_v3 {
            tp_packets: 0,
            tp_drops: 0,
            tp_freeze_q_cnt: 0,
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
        if ret != 0 {
            return Err(XskError::sys(
                "read the statistics of a packet socket",
                io::Error::last_os_error(),
            ));
        }
        // Reading sets them to zero.
        self.dropped += u64::from(stats.tp_drops);
        // Lost ones are among them.
        self.received += u64::from(stats.tp_packets);
        Ok(Losses {
            ring_drops: self.dropped,
            no_room: self.no_room,
            ..Losses::default()
        })
    }

    fn check_link(&self) -> Result<(), XskError> {
        crate::check_link(&self.link)
    }
}

impl AsFd for PacketPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Bytes of a slot for packets of so many: header and packet, a power of two so that slots fill blocks.
fn slot_size(longest: u32) -> u32 {
    (longest.saturating_add(HEADER as u32 + 64))
        .checked_next_power_of_two()
        .unwrap_or(1 << 31)
}

fn map(fd: &OwnedFd, len: usize, tx: usize) -> Result<Map, XskError> {
    // SAFETY: asks for a mapping anywhere, of a descriptor that is open.
    let base = unsafe {
        libc::mmap(
            ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_POPULATE,
            fd.as_raw_fd(),
            0,
        )
    };
    if base == libc::MAP_FAILED {
        return Err(XskError::sys(
            format!("map {len} bytes of rings"),
            io::Error::last_os_error(),
        ));
    }
    let base = NonNull::new(base.cast::<u8>())
        .ok_or_else(|| XskError::sys("map rings", io::Error::from(io::ErrorKind::OutOfMemory)))?;
    Ok(Map { base, len, tx })
}

fn bind(fd: &OwnedFd, ifindex: u32, ethertype: Option<u16>, receives: bool) -> io::Result<()> {
    // SAFETY: the structure is plain numbers, for which zero bytes are valid.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = if receives {
        ethertype.unwrap_or(libc::ETH_P_ALL as u16).to_be()
    } else {
        // Protocol 0 receives nothing.
        0
    };
    address.sll_ifindex = ifindex.cast_signed();
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
    if !receives {
        return Ok(());
    }
    let all = libc::packet_mreq {
        mr_ifindex: ifindex.cast_signed(),
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set(fd, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &all)
}

/// Joins a bound socket to those of a number.
fn join(fd: &OwnedFd, number: u16) -> io::Result<()> {
    let how = u32::from(number) | (libc::PACKET_FANOUT_CBPF << 16);
    set(fd, libc::SOL_PACKET, libc::PACKET_FANOUT, &how)?;
    let program = cluster::program();
    attach(fd, libc::SOL_PACKET, libc::PACKET_FANOUT_DATA, program)
}

/// Joins a bound socket to a group of this process, or to a new one. Its number, which the kernel chooses.
fn join_group(fd: &OwnedFd, group: Option<u16>) -> io::Result<u16> {
    let number = u32::from(group.unwrap_or(0));
    let new = match group {
        None => libc::PACKET_FANOUT_FLAG_UNIQUEID,
        Some(_) => 0,
    };
    let how = number | (libc::PACKET_FANOUT_EBPF | new) << 16;
    set(fd, libc::SOL_PACKET, libc::PACKET_FANOUT, &how)?;
    let mut value: c_int = 0;
    let mut len = mem::size_of_val(&value) as libc::socklen_t;
    // SAFETY: both pointers are valid, and `len` is the size of what the first points to.
    let ret = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_FANOUT,
            (&raw mut value).cast::<c_void>(),
            &raw mut len,
        )
    };
    match ret {
        // The number is in the lower half.
        0 => Ok(value as u16),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Gives the kernel a program as the value of an option.
fn attach(
    fd: &OwnedFd,
    level: c_int,
    option: c_int,
    mut lines: Vec<libc::sock_filter>,
) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: lines.len() as u16,
        filter: lines.as_mut_ptr(),
    };
    // The kernel copies the lines before the call returns.
    set(fd, level, option, &program)
}

fn set<T>(fd: &OwnedFd, level: c_int, option: c_int, value: &T) -> io::Result<()> {
    // SAFETY: the pointer is valid for the length given, and the caller pairs option and type.
    let ret = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            option,
            ptr::from_ref(value).cast::<c_void>(),
            mem::size_of::<T>() as libc::socklen_t,
        )
    };
    match ret {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
