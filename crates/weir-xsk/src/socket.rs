//! One AF_XDP socket: its rings, its settings, what took effect, and what the kernel counted.
//!
//! Invariants: frames enter rings only as tokens of the socket's own [`Umem`]; the descriptor closes before its rings are unmapped, and the
//! frames' memory outlives both. A value is for one thread at a time, as the rings demand.

#![expect(unsafe_code, reason = "socket calls take raw pointers")]

use std::ffi::{c_int, c_void};
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use weir_kernel::iface::{self, Interface, LinkWatch};

use crate::XskError;
use crate::mapped::{Incoming, Outgoing};
use crate::ring::Size;
use crate::umem::{self, Frame, Umem};

/// `SO_INCOMING_NAPI_ID` (include/uapi/asm-generic/socket.h), which libc lacks.
const SO_INCOMING_NAPI_ID: c_int = 56;
/// `XDP_MAX_TX_SKB_BUDGET` (Linux 6.17).
const XDP_MAX_TX_SKB_BUDGET: c_int = 9;
/// Between two tries to bind a busy queue.
const BUSY_PAUSE: Duration = Duration::from_millis(2);

/// How many packets before a received one is looked at its first bytes are fetched.
const AHEAD: usize = 16;

/// How frames reach the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// As the kernel chooses: zero-copy if the driver can, else copy mode.
    #[default]
    Auto,
    /// Copied between frames and the kernel's own buffers; works on every device.
    Copy,
    /// The device reads and writes the frames; an error where it cannot.
    ZeroCopy,
}

/// Busy polling: the process that waits runs the driver's receive loop itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyPoll {
    /// Microseconds that a call polls (`SO_BUSY_POLL`).
    pub micros: u32,
    /// Packets that it takes at most (`SO_BUSY_POLL_BUDGET`).
    pub budget: u16,
    /// Leave the queue to busy polling as long as it is polled often enough (`SO_PREFER_BUSY_POLL`).
    pub prefer: bool,
}

/// What a socket should be like.
#[derive(Clone, Copy, Debug)]
pub struct SocketConfig {
    /// Receive and transmit queue of the interface.
    pub queue: u32,
    /// Entries of the RX ring; 0: the socket does not receive.
    pub rx: u32,
    /// Entries of the TX ring; 0: the socket does not send.
    pub tx: u32,
    /// Entries of the fill ring.
    pub fill: u32,
    /// Entries of the completion ring.
    pub completion: u32,
    /// Copy or zero-copy.
    pub mode: Mode,
    /// The kernel says when it must be woken (`XDP_USE_NEED_WAKEUP`).
    pub need_wakeup: bool,
    /// Packets may take several frames (`XDP_USE_SG`).
    pub multi_buffer: bool,
    /// Busy polling.
    pub busy_poll: Option<BusyPoll>,
    /// Frames that one system call sends at most in copy mode (`XDP_MAX_TX_SKB_BUDGET`, Linux 6.17): 32 to the entries of the TX ring.
    pub tx_budget: Option<u32>,
    /// How long to try while the queue is busy. A queue stays busy for 15 to 30 ms after its socket closed.
    pub patience: Duration,
}

impl Default for SocketConfig {
    fn default() -> Self {
        SocketConfig {
            queue: 0,
            rx: 2048,
            tx: 2048,
            fill: 2048,
            completion: 2048,
            mode: Mode::Auto,
            need_wakeup: true,
            multi_buffer: false,
            busy_poll: None,
            tx_budget: None,
            patience: Duration::from_millis(500),
        }
    }
}

/// What holds, as the kernel tells after binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effective {
    /// Frames are not copied (`XDP_OPTIONS`).
    pub zero_copy: bool,
    /// The driver's receive loop that busy polling would run; 0: none is known, and busy polling does nothing.
    pub napi_id: u32,
    /// The kernel asks to be woken for sending, now.
    pub tx_needs_wakeup: bool,
    /// The kernel asks to be woken for receiving, now.
    pub fill_needs_wakeup: bool,
}

/// What the kernel counted of a socket (`XDP_STATISTICS`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Steered here and lost: no frame was in the fill ring, or it did not fit one.
    pub rx_dropped: u64,
    /// Frames in the fill ring that the kernel did not take.
    pub rx_invalid: u64,
    /// Frames in the TX ring that the kernel did not take.
    pub tx_invalid: u64,
    /// Steered here and lost: the RX ring was full.
    pub rx_ring_full: u64,
    /// How often the kernel found the fill ring empty. No loss by itself.
    pub rx_fill_ring_empty: u64,
    /// How often the kernel found the TX ring empty. No loss.
    pub tx_ring_empty: u64,
}

/// What a call that makes the kernel send said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kick {
    /// It sent what it could.
    Done,
    /// There is more to send, or the device was busy: call again.
    Again,
    /// The device dropped one frame; what follows it is still to be sent.
    Refused,
}

/// An AF_XDP socket bound to one queue of one interface.
#[derive(Debug)]
pub struct Socket {
    // The order of the fields is the order in which they end.
    fd: OwnedFd,
    rx: Option<Incoming<libc::xdp_desc>>,
    tx: Option<Outgoing<libc::xdp_desc>>,
    fill: Option<Outgoing<u64>>,
    completion: Option<Incoming<u64>>,
    umem: Umem,
    iface: Interface,
    link: LinkWatch,
    config: SocketConfig,
}

/// Whose frames a socket uses.
enum Frames<'a> {
    /// Of an area that no other socket has registered.
    Own,
    /// Of the area that another socket registered.
    SharedWith(&'a Socket),
}

impl Socket {
    /// Opens the first socket of an area of frames, and binds it.
    ///
    /// # Errors
    /// [`XskError`] when something demanded cannot be.
    pub fn open(umem: &Umem, name: &str, config: &SocketConfig) -> Result<Socket, XskError> {
        Socket::new(umem.clone(), Frames::Own, name, config)
    }

    /// Opens one more socket on the frames of `first`: on another queue or another interface with its own fill and completion ring, or on the
    /// same queue with neither (`fill` and `completion` are 0 in `config`; the first one's rings serve both, and completions of both come there). Mode, wakeup flags and
    /// multi-buffer are the first one's.
    ///
    /// # Errors
    /// [`XskError`] when something demanded cannot be.
    pub fn open_shared(
        first: &Socket,
        name: &str,
        config: &SocketConfig,
    ) -> Result<Socket, XskError> {
        let config = SocketConfig {
            mode: first.config.mode,
            need_wakeup: first.config.need_wakeup,
            multi_buffer: first.config.multi_buffer,
            ..*config
        };
        Socket::new(first.umem.clone(), Frames::SharedWith(first), name, &config)
    }

    fn new(
        umem: Umem,
        frames: Frames<'_>,
        name: &str,
        config: &SocketConfig,
    ) -> Result<Socket, XskError> {
        let iface = iface::find(name)?;
        let own_rings = config.fill > 0 || config.completion > 0;
        let sizes = [
            ("RX", config.rx, true),
            ("TX", config.tx, true),
            ("fill", config.fill, matches!(frames, Frames::SharedWith(_))),
            (
                "completion",
                config.completion,
                matches!(frames, Frames::SharedWith(_)),
            ),
        ];
        let mut known = [None; 4];
        for (to, (ring, entries, may_lack)) in known.iter_mut().zip(sizes) {
            *to = match entries {
                0 if may_lack => None,
                _ => Some(Size::new(entries).ok_or(XskError::RingSize { ring, entries })?),
            };
        }
        let [rx, tx, fill, completion] = known;
        if rx.is_none() && tx.is_none() {
            return Err(XskError::NoRing {
                iface: name.to_owned(),
                ring: "RX and no TX",
            });
        }
        if own_rings && (fill.is_none() || completion.is_none()) {
            return Err(XskError::NoRing {
                iface: name.to_owned(),
                ring: if fill.is_none() { "fill" } else { "completion" },
            });
        }
        let fd = socket()?;
        if matches!(frames, Frames::Own) {
            register(&fd, &umem)?;
        }
        let make = |option, size: Option<Size>, what: &str| match size {
            Some(size) => set(&fd, libc::SOL_XDP, option, &size.entries())
                .map_err(|e| ring_failed(what, size, e)),
            None => Ok(()),
        };
        make(libc::XDP_UMEM_FILL_RING, fill, "fill")?;
        make(libc::XDP_UMEM_COMPLETION_RING, completion, "completion")?;
        make(libc::XDP_RX_RING, rx, "RX")?;
        make(libc::XDP_TX_RING, tx, "TX")?;
        if let Some(budget) = config.tx_budget {
            tx_budget(&fd, budget, config.tx)?;
        }
        if let Some(busy) = config.busy_poll {
            busy_poll(&fd, busy)?;
        }
        let offsets = offsets(&fd)?;
        let mapped = |what: &str, e| XskError::sys(format!("map the {what} ring"), e);
        let rx = rx
            .map(|size| Incoming::new(fd.as_fd(), libc::XDP_PGOFF_RX_RING, offsets.rx, size))
            .transpose()
            .map_err(|e| mapped("RX", e))?;
        let tx = tx
            .map(|size| Outgoing::new(fd.as_fd(), libc::XDP_PGOFF_TX_RING, offsets.tx, size))
            .transpose()
            .map_err(|e| mapped("TX", e))?;
        let fill = fill
            .map(|size| {
                let at = libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t;
                Outgoing::new(fd.as_fd(), at, offsets.fr, size)
            })
            .transpose()
            .map_err(|e| mapped("fill", e))?;
        let completion = completion
            .map(|size| {
                let at = libc::XDP_UMEM_PGOFF_COMPLETION_RING as libc::off_t;
                Incoming::new(fd.as_fd(), at, offsets.cr, size)
            })
            .transpose()
            .map_err(|e| mapped("completion", e))?;
        let socket = Socket {
            fd,
            rx,
            tx,
            fill,
            completion,
            umem,
            link: LinkWatch::new(name)?,
            iface,
            config: *config,
        };
        socket.bind(&frames)?;
        if config.mode == Mode::ZeroCopy && !socket.effective()?.zero_copy {
            return Err(
                socket.no_zero_copy("the kernel bound the socket in copy mode all the same")
            );
        }
        Ok(socket)
    }

    fn bind(&self, frames: &Frames<'_>) -> Result<(), XskError> {
        let flags = match frames {
            Frames::SharedWith(_) => libc::XDP_SHARED_UMEM,
            Frames::Own => {
                let mode = match self.config.mode {
                    Mode::Auto => 0,
                    Mode::Copy => libc::XDP_COPY,
                    Mode::ZeroCopy => libc::XDP_ZEROCOPY,
                };
                let wakeup = if self.config.need_wakeup {
                    libc::XDP_USE_NEED_WAKEUP
                } else {
                    0
                };
                let buffers = if self.config.multi_buffer {
                    libc::XDP_USE_SG
                } else {
                    0
                };
                mode | wakeup | buffers
            }
        };
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: flags,
            sxdp_ifindex: self.iface.ifindex,
            sxdp_queue_id: self.config.queue,
            sxdp_shared_umem_fd: match frames {
                Frames::SharedWith(first) => first.fd.as_raw_fd() as u32,
                Frames::Own => 0,
            },
        };
        let begun = Instant::now();
        loop {
            // SAFETY: the address is one of AF_XDP and valid for the length given.
            let bound = unsafe {
                libc::bind(
                    self.fd.as_raw_fd(),
                    (&raw const address).cast::<libc::sockaddr>(),
                    mem::size_of_val(&address) as libc::socklen_t,
                )
            };
            if bound == 0 {
                return Ok(());
            }
            let e = io::Error::last_os_error();
            if e.raw_os_error() == Some(libc::EBUSY) && begun.elapsed() < self.config.patience {
                thread::sleep(BUSY_PAUSE);
                continue;
            }
            return Err(self.bind_error(e, begun.elapsed(), frames));
        }
    }

    /// Sorts the answers of `bind`; the kernel gives only a number.
    fn bind_error(&self, e: io::Error, waited: Duration, frames: &Frames<'_>) -> XskError {
        let name = &self.iface.name;
        let queue = self.config.queue;
        if let Ok(queues) = iface::queues(name)
            && queue >= queues.usable()
        {
            return XskError::NoSuchQueue {
                iface: name.clone(),
                queue,
                queues: queues.usable(),
                most: queues.most,
            };
        }
        match e.raw_os_error() {
            Some(libc::EBUSY) => XskError::QueueBusy {
                iface: name.clone(),
                queue,
                waited_ms: waited.as_millis(),
            },
            Some(libc::ENETDOWN) => XskError::LinkDown {
                iface: name.clone(),
            },
            Some(libc::ENODEV) => XskError::Gone {
                iface: name.clone(),
            },
            Some(libc::EOPNOTSUPP | libc::EINVAL) if self.config.mode == Mode::ZeroCopy => {
                self.no_zero_copy(&self.why_no_zero_copy(&e))
            }
            Some(libc::EOPNOTSUPP | libc::EINVAL) if self.config.multi_buffer => {
                XskError::NoMultiBuffer {
                    iface: name.clone(),
                    driver: self.iface.driver.clone(),
                }
            }
            Some(libc::EINVAL) if matches!(frames, Frames::SharedWith(_)) => {
                XskError::Excluded(format!(
                    "the socket on queue {queue} of {name} cannot share the frames: on another queue or interface it needs its own fill and completion rings, on the same queue it must have neither"
                ))
            }
            _ => XskError::sys(format!("bind to queue {queue} of {name}"), e),
        }
    }

    fn no_zero_copy(&self, why: &str) -> XskError {
        XskError::NoZeroCopy {
            iface: self.iface.name.clone(),
            driver: self.iface.driver.clone(),
            why: why.to_owned(),
        }
    }

    fn why_no_zero_copy(&self, e: &io::Error) -> String {
        if self.iface.is_veth() {
            return "a veth has no hardware that could read or write frames in memory; every packet crosses it in the kernel's own buffers".to_owned();
        }
        match iface::does_zero_copy(self.iface.ifindex) {
            Ok(Some(false)) => "its driver has no zero-copy sockets".to_owned(),
            Ok(Some(true)) if self.config.multi_buffer => {
                format!(
                    "its driver has zero-copy, but perhaps not with packets of several frames ({e})"
                )
            }
            Ok(Some(true)) => format!(
                "its driver has zero-copy, but not as it is set up now ({e}): frame size, MTU, ring sizes or offloads are in the way"
            ),
            _ => format!("the kernel refused it ({e})"),
        }
    }

    /// Name of the interface.
    pub fn name(&self) -> &str {
        &self.iface.name
    }

    /// The interface as it was when the socket opened.
    pub fn interface(&self) -> &Interface {
        &self.iface
    }

    /// The queue it is bound to.
    pub fn queue(&self) -> u32 {
        self.config.queue
    }

    /// What was asked for.
    pub fn config(&self) -> &SocketConfig {
        &self.config
    }

    /// The area of its frames.
    pub fn umem(&self) -> &Umem {
        &self.umem
    }

    /// Gives frames to the kernel to receive into, from the end of `frames`, as many as there is room for. Returns how many.
    ///
    /// # Errors
    /// [`XskError::NoRing`], or [`XskError::ForeignFrame`]: the frames before it were given.
    pub fn fill(&mut self, frames: &mut Vec<Frame>) -> Result<usize, XskError> {
        self.fill_keeping(frames, 0)
    }

    /// The same, and `keep` of the frames stay.
    ///
    /// # Errors
    /// As [`Socket::fill`].
    pub fn fill_keeping(
        &mut self,
        frames: &mut Vec<Frame>,
        keep: usize,
    ) -> Result<usize, XskError> {
        let Socket {
            fill, umem, iface, ..
        } = self;
        let fill = fill.as_mut().ok_or_else(|| no_ring(iface, "fill"))?;
        let wanted = frames.len().saturating_sub(keep).min(u32::MAX as usize) as u32;
        let count = fill.free(wanted).min(wanted);
        let mut result = Ok(count as usize);
        for _ in 0..count {
            match frames.pop() {
                Some(frame) if umem.owns(&frame) => fill.put(umem.give(frame)),
                Some(frame) => {
                    frames.push(frame);
                    result = Err(foreign(iface));
                    break;
                }
                None => break,
            }
        }
        fill.submit();
        result
    }

    /// Takes received frames, up to `most`, and puts them at the end of `into`. Returns how many.
    ///
    /// # Errors
    /// [`XskError::NoRing`], or [`XskError::BadDescriptor`].
    pub fn receive(&mut self, into: &mut Vec<Frame>, most: usize) -> Result<usize, XskError> {
        let Socket {
            rx, umem, iface, ..
        } = self;
        let rx = rx.as_mut().ok_or_else(|| no_ring(iface, "RX"))?;
        let count = (rx.ready() as usize).min(most);
        let mut result = Ok(count);
        for _ in 0..count {
            let desc = rx.get();
            umem.prefetch(&desc);
            match umem.received(desc) {
                Ok(frame) => into.push(frame),
                Err(e) => result = Err(e),
            }
        }
        rx.release();
        result
    }

    /// Lends received frames, up to `most`, one after the other, and gives each to the fill ring again: what a program needs that only reads, without a list of frames between.
    /// Frames for which the fill ring has no room are put at the end of `spare`. Returns how many were lent.
    ///
    /// # Errors
    /// [`XskError::NoRing`], or [`XskError::BadDescriptor`]: the others were lent.
    #[inline]
    pub fn read(
        &mut self,
        most: usize,
        spare: &mut Vec<Frame>,
        mut take: impl FnMut(&Umem, &mut Frame),
    ) -> Result<usize, XskError> {
        let Socket {
            rx,
            fill,
            umem,
            iface,
            ..
        } = self;
        let rx = rx.as_mut().ok_or_else(|| no_ring(iface, "RX"))?;
        let fill = fill.as_mut().ok_or_else(|| no_ring(iface, "fill"))?;
        let count = (rx.ready() as usize).min(most);
        if count == 0 {
            return Ok(0);
        }
        for n in 0..count.min(AHEAD) {
            if let Some(desc) = rx.ahead(n as u32) {
                umem.prefetch(&desc);
            }
        }
        // As many as came were taken from the fill ring, so it has room for them, but for frames that other sockets of the area gave it.
        let room = fill.free(count as u32) as usize;
        let mut result = Ok(count);
        for n in 0..count {
            if let Some(desc) = rx.ahead(AHEAD as u32) {
                umem.prefetch(&desc);
            }
            match umem.received(rx.get()) {
                Ok(mut frame) => {
                    take(umem, &mut frame);
                    if n < room {
                        fill.put(umem.give(frame));
                    } else {
                        spare.push(frame);
                    }
                }
                Err(e) => result = Err(e),
            }
        }
        rx.release();
        fill.submit();
        result
    }

    /// How many frames the TX ring has room for now, up to `wanted` at least if there are so many.
    ///
    /// # Errors
    /// [`XskError::NoRing`].
    pub fn tx_room(&mut self, wanted: usize) -> Result<usize, XskError> {
        let Socket { tx, iface, .. } = self;
        let tx = tx.as_mut().ok_or_else(|| no_ring(iface, "TX"))?;
        Ok(tx.free(wanted.min(u32::MAX as usize) as u32) as usize)
    }

    /// Puts frames into the TX ring in their order, as many as there is room for; the rest stays in `frames`. A packet of several frames must be put there whole:
    /// see [`Socket::tx_room`]. Nothing is sent before [`Socket::kick`], unless the driver sends by itself. Returns how many.
    ///
    /// # Errors
    /// [`XskError::NoRing`], or [`XskError::ForeignFrame`]: the frames before it were put there.
    pub fn send(&mut self, frames: &mut Vec<Frame>) -> Result<usize, XskError> {
        let Socket {
            tx, umem, iface, ..
        } = self;
        let tx = tx.as_mut().ok_or_else(|| no_ring(iface, "TX"))?;
        let wanted = frames.len().min(u32::MAX as usize) as u32;
        let mut count = (tx.free(wanted) as usize).min(frames.len());
        let mut result = Ok(count);
        if let Some(at) = frames[..count].iter().position(|frame| !umem.owns(frame)) {
            count = at;
            result = Err(foreign(iface));
        }
        for frame in frames.drain(..count) {
            tx.put(umem.give_packet(frame));
        }
        tx.submit();
        result
    }

    /// Takes back frames that were sent, or dropped by the device, up to `most`, and puts them at the end of `into`. Returns how many.
    ///
    /// # Errors
    /// [`XskError::NoRing`], or [`XskError::BadDescriptor`].
    pub fn complete(&mut self, into: &mut Vec<Frame>, most: usize) -> Result<usize, XskError> {
        let Socket {
            completion,
            umem,
            iface,
            ..
        } = self;
        let completion = completion
            .as_mut()
            .ok_or_else(|| no_ring(iface, "completion"))?;
        let count = (completion.ready() as usize).min(most);
        let mut result = Ok(count);
        for _ in 0..count {
            match umem.returned(completion.get()) {
                Ok(frame) => into.push(frame),
                Err(e) => result = Err(e),
            }
        }
        completion.release();
        result
    }

    /// Frames in the TX ring that the kernel has not taken yet.
    pub fn unsent(&mut self) -> u32 {
        self.tx.as_mut().map_or(0, Outgoing::outstanding)
    }

    /// Whether sending needs a system call: always without need_wakeup, else if the kernel says so. Copy mode always says so.
    pub fn tx_needs_kick(&self) -> bool {
        match &self.tx {
            Some(tx) => !self.config.need_wakeup || tx.needs_wakeup(),
            None => false,
        }
    }

    /// Whether receiving needs a system call: the kernel waits for frames or for being polled.
    pub fn fill_needs_wakeup(&self) -> bool {
        self.config.need_wakeup && self.fill.as_ref().is_some_and(Outgoing::needs_wakeup)
    }

    /// Makes the kernel send what is in the TX ring; with busy polling it also receives.
    ///
    /// # Errors
    /// The interface went down, lost its carrier or is gone.
    pub fn kick(&self) -> Result<Kick, XskError> {
        // SAFETY: no buffer and no address.
        let sent = unsafe {
            libc::sendto(
                self.fd.as_raw_fd(),
                std::ptr::null(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null(),
                0,
            )
        };
        if sent >= 0 {
            return Ok(Kick::Done);
        }
        let e = io::Error::last_os_error();
        match e.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR | libc::ENOBUFS) => Ok(Kick::Again),
            Some(libc::EBUSY) => Ok(Kick::Refused),
            _ => Err(self.failed("send", e)),
        }
    }

    /// Makes the kernel receive: wakes a driver that waits for frames, runs busy polling. Cheap, and it finds out whether the interface is still there and up.
    ///
    /// # Errors
    /// The interface went down or is gone.
    pub fn wake(&self) -> Result<(), XskError> {
        // SAFETY: no buffer and no address.
        let got = unsafe {
            libc::recvfrom(
                self.fd.as_raw_fd(),
                std::ptr::null_mut(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            )
        };
        if got >= 0 {
            return Ok(());
        }
        let e = io::Error::last_os_error();
        match e.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR | libc::EBUSY | libc::ENOBUFS) => Ok(()),
            // Drivers that have no wakeup.
            Some(libc::EOPNOTSUPP) => Ok(()),
            _ => Err(self.failed("receive", e)),
        }
    }

    /// Sleeps until frames were received, or until `send` and the TX ring has room; at most `timeout`. Wakes the kernel for both. Whether something happened.
    ///
    /// # Errors
    /// The interface is gone, or polling failed.
    pub fn poll(&self, send: bool, timeout: Duration) -> Result<bool, XskError> {
        let mut events = libc::POLLIN;
        if send {
            events |= libc::POLLOUT;
        }
        let mut entry = libc::pollfd {
            fd: self.fd.as_raw_fd(),
            events,
            revents: 0,
        };
        let time = timespec(timeout);
        // SAFETY: one entry and one time, both valid for the call; no signal mask.
        let found = unsafe { libc::ppoll(&raw mut entry, 1, &raw const time, std::ptr::null()) };
        if found < 0 {
            let e = io::Error::last_os_error();
            if e.kind() == io::ErrorKind::Interrupted {
                return Ok(false);
            }
            return Err(XskError::sys(format!("poll {}", self.iface.name), e));
        }
        if entry.revents & (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) != 0 {
            self.wake()?;
            return Err(XskError::Gone {
                iface: self.iface.name.clone(),
            });
        }
        Ok(found > 0)
    }

    /// Whether the interface is up and has a carrier.
    ///
    /// # Errors
    /// [`XskError::LinkDown`], [`XskError::NoCarrier`], [`XskError::Gone`].
    pub fn check_link(&self) -> Result<(), XskError> {
        crate::check_link(&self.link)
    }

    fn failed(&self, what: &str, e: io::Error) -> XskError {
        match e.raw_os_error() {
            Some(libc::ENETDOWN) => self
                .check_link()
                .err()
                .unwrap_or_else(|| XskError::LinkDown {
                    iface: self.iface.name.clone(),
                }),
            Some(libc::ENXIO | libc::ENODEV) => XskError::Gone {
                iface: self.iface.name.clone(),
            },
            _ => XskError::sys(format!("{what} on {}", self.iface.name), e),
        }
    }

    /// What took effect.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn effective(&self) -> Result<Effective, XskError> {
        let options: libc::xdp_options = get(&self.fd, libc::SOL_XDP, libc::XDP_OPTIONS)
            .map_err(|e| XskError::sys("read the options of a socket", e))?;
        let napi_id: u32 = get(&self.fd, libc::SOL_SOCKET, SO_INCOMING_NAPI_ID)
            .map_err(|e| XskError::sys("read the NAPI id of a socket", e))?;
        Ok(Effective {
            zero_copy: options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0,
            napi_id,
            tx_needs_wakeup: self.tx.as_ref().is_some_and(Outgoing::needs_wakeup),
            fill_needs_wakeup: self.fill.as_ref().is_some_and(Outgoing::needs_wakeup),
        })
    }

    /// What the kernel counted since the socket was made.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn statistics(&self) -> Result<Statistics, XskError> {
        let s: libc::xdp_statistics = get(&self.fd, libc::SOL_XDP, libc::XDP_STATISTICS)
            .map_err(|e| XskError::sys("read the statistics of a socket", e))?;
        Ok(Statistics {
            rx_dropped: s.rx_dropped,
            rx_invalid: s.rx_invalid_descs,
            tx_invalid: s.tx_invalid_descs,
            rx_ring_full: s.rx_ring_full,
            rx_fill_ring_empty: s.rx_fill_ring_empty_descs,
            tx_ring_empty: s.tx_ring_empty_descs,
        })
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// For waiting; nanoseconds, because intervals between probes may be shorter than a millisecond.
pub(crate) fn timespec(time: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(time.subsec_nanos().cast_signed()),
    }
}

fn no_ring(iface: &Interface, ring: &'static str) -> XskError {
    XskError::NoRing {
        iface: iface.name.clone(),
        ring,
    }
}

fn foreign(iface: &Interface) -> XskError {
    XskError::ForeignFrame {
        iface: iface.name.clone(),
    }
}

fn socket() -> Result<OwnedFd, XskError> {
    // SAFETY: takes no pointers.
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        let e = io::Error::last_os_error();
        return Err(match e.raw_os_error() {
            Some(libc::EAFNOSUPPORT) => XskError::NoSockets,
            _ => XskError::sys("open an AF_XDP socket", e),
        });
    }
    // SAFETY: the call succeeded, so `fd` is a fresh descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn register(fd: &OwnedFd, umem: &Umem) -> Result<(), XskError> {
    let (addr, len) = umem.registration();
    let config = umem.config();
    let request = libc::xdp_umem_reg {
        addr,
        len,
        chunk_size: config.frame_size,
        headroom: config.headroom,
        flags: if config.unaligned {
            libc::XDP_UMEM_UNALIGNED_CHUNK_FLAG
        } else {
            0
        },
        tx_metadata_len: 0,
    };
    set(fd, libc::SOL_XDP, libc::XDP_UMEM_REG, &request).map_err(|e| match e.raw_os_error() {
        Some(libc::ENOBUFS | libc::ENOMEM) => umem::too_large(len, &e),
        Some(libc::EINVAL) => XskError::FrameSize {
            size: config.frame_size,
            why: "this kernel does not take them".to_owned(),
        },
        _ => XskError::sys("register frames", e),
    })
}

fn ring_failed(what: &str, size: Size, e: io::Error) -> XskError {
    XskError::sys(
        format!("make a {what} ring of {} entries", size.entries()),
        e,
    )
}

fn tx_budget(fd: &OwnedFd, budget: u32, ring: u32) -> Result<(), XskError> {
    set(fd, libc::SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &budget).map_err(|e| match e.raw_os_error() {
        Some(libc::ENOPROTOOPT) => XskError::Excluded(
            "this kernel sends 32 frames a call and cannot be configured (Linux 6.17 can)"
                .to_owned(),
        ),
        Some(libc::EACCES | libc::EINVAL) => XskError::Excluded(format!(
            "{budget} frames a call: 32 to the {ring} entries of the TX ring"
        )),
        _ => XskError::sys("set the frames of a send call", e),
    })
}

fn busy_poll(fd: &OwnedFd, busy: BusyPoll) -> Result<(), XskError> {
    let prefer = c_int::from(busy.prefer);
    let micros = c_int::try_from(busy.micros).unwrap_or(c_int::MAX);
    for (option, value, what) in [
        (libc::SO_PREFER_BUSY_POLL, prefer, "prefer busy polling"),
        (libc::SO_BUSY_POLL, micros, "set the time of busy polling"),
        (
            libc::SO_BUSY_POLL_BUDGET,
            c_int::from(busy.budget),
            "set the budget of busy polling",
        ),
    ] {
        set(fd, libc::SOL_SOCKET, option, &value).map_err(|e| XskError::sys(what, e))?;
    }
    Ok(())
}

fn offsets(fd: &OwnedFd) -> Result<libc::xdp_mmap_offsets, XskError> {
    get(fd, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS)
        .map_err(|e| XskError::sys("read where rings lie", e))
}

/// Values of socket options: plain numbers, for which any bytes are valid.
trait Plain: Copy {}
impl Plain for u32 {}
impl Plain for c_int {}
impl Plain for libc::xdp_umem_reg {}
impl Plain for libc::xdp_mmap_offsets {}
impl Plain for libc::xdp_options {}
impl Plain for libc::xdp_statistics {}

fn set<T: Plain>(fd: &OwnedFd, level: c_int, option: c_int, value: &T) -> io::Result<()> {
    // SAFETY: the pointer is valid for the length given.
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

/// Reads an option; one that the kernel fills only in part is an error.
fn get<T: Plain>(fd: &OwnedFd, level: c_int, option: c_int) -> io::Result<T> {
    // SAFETY: plain numbers, for which zero bytes are valid.
    let mut value: T = unsafe { mem::zeroed() };
    let mut len = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: both pointers are valid, and `len` is the size of what the first points to.
    let ret = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            level,
            option,
            (&raw mut value).cast::<c_void>(),
            &raw mut len,
        )
    };
    if ret != 0 {
        return Err(io::Error::last_os_error());
    }
    if len as usize != mem::size_of::<T>() {
        return Err(io::Error::from(io::ErrorKind::InvalidData));
    }
    Ok(value)
}
