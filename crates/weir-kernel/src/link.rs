//! XDP and tcx attachments as `bpf_link`s: the program leaves the interface when
//! the link is dropped, unless the link was pinned.
//!
//! Invariant: an unpinned [`Link`] that goes out of scope leaves nothing
//! behind, whatever ended the process.

#![expect(unsafe_code, reason = "link calls take raw pointers")]

use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use crate::{KernelError, LoadedProgram, iface, sys};

/// Where on the receive path the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// In the driver, before a socket buffer exists.
    Native,
    /// In the stack, on every device, slower.
    Generic,
}

impl XdpMode {
    fn flags(self) -> u32 {
        match self {
            Self::Native => libbpf_sys::XDP_FLAGS_DRV_MODE,
            Self::Generic => libbpf_sys::XDP_FLAGS_SKB_MODE,
        }
    }
}

impl std::fmt::Display for XdpMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Native => "native",
            Self::Generic => "generic",
        })
    }
}

/// Which packets of an interface a tc program sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// Those that come in by it.
    Ingress,
    /// Those that leave by it.
    Egress,
}

impl std::fmt::Display for Direction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        })
    }
}

/// A program attached to one interface.
#[derive(Debug)]
pub struct Link {
    fd: OwnedFd,
    ifindex: u32,
    /// `None`: XDP.
    direction: Option<Direction>,
}

impl Link {
    /// Attaches `program`; the interface must be free.
    pub(crate) fn attach(
        program: BorrowedFd<'_>,
        ifindex: u32,
        mode: XdpMode,
    ) -> Result<Self, KernelError> {
        sys::silence_libbpf();
        let opts = libbpf_sys::bpf_link_create_opts {
            sz: mem::size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
            flags: mode.flags(),
            ..Default::default()
        };
        // SAFETY: `opts` is valid for the call and states its size.
        let ret = unsafe {
            libbpf_sys::bpf_link_create(
                program.as_raw_fd(),
                ifindex as i32,
                libbpf_sys::BPF_XDP,
                &opts,
            )
        };
        match sys::own_fd(ret) {
            Ok(fd) => Ok(Self {
                fd,
                ifindex,
                direction: None,
            }),
            Err(e) => Err(attach_error(ifindex, mode, e)),
        }
    }

    /// Attaches `program` behind whatever runs at this tcx hook. Kernels before 6.6 have no tcx:
    /// [`KernelError::NoTcx`], and [`crate::Filter`] is the other way.
    pub(crate) fn attach_tcx(
        program: BorrowedFd<'_>,
        ifindex: u32,
        direction: Direction,
    ) -> Result<Self, KernelError> {
        sys::silence_libbpf();
        let kind = match direction {
            Direction::Ingress => libbpf_sys::BPF_TCX_INGRESS,
            Direction::Egress => libbpf_sys::BPF_TCX_EGRESS,
        };
        // SAFETY: no pointers but a null options argument.
        let ret = unsafe {
            libbpf_sys::bpf_link_create(program.as_raw_fd(), ifindex as i32, kind, std::ptr::null())
        };
        match sys::own_fd(ret) {
            Ok(fd) => Ok(Self {
                fd,
                ifindex,
                direction: Some(direction),
            }),
            Err(e) => Err(match e.raw_os_error() {
                Some(libc::ENODEV | libc::EINVAL) if iface::name_of(ifindex).is_none() => {
                    KernelError::NoSuchInterface {
                        name: interface_label(ifindex),
                        near: iface::names().unwrap_or_default(),
                    }
                }
                // An attach type that the kernel does not know.
                Some(libc::EINVAL) => KernelError::NoTcx,
                _ => KernelError::sys(
                    format!("attach to tcx {direction} of {}", interface_label(ifindex)),
                    e,
                ),
            }),
        }
    }

    /// A link that another process made.
    pub(crate) fn existing(fd: OwnedFd, ifindex: u32, direction: Option<Direction>) -> Self {
        Self {
            fd,
            ifindex,
            direction,
        }
    }

    /// The direction of a tcx link; `None` for XDP.
    pub fn direction(&self) -> Option<Direction> {
        self.direction
    }

    /// Whether the program is still on the interface: the device may have gone, or somebody else may have taken it off.
    pub fn is_attached(&self) -> Result<bool, KernelError> {
        sys::link_info(self.fd.as_fd())
            .map(|(_, ifindex)| ifindex != 0)
            .map_err(|e| KernelError::sys("inspect a link", e))
    }

    /// Index of the interface it was attached to.
    pub fn ifindex(&self) -> u32 {
        self.ifindex
    }

    /// Id of the program that runs there now.
    pub fn prog_id(&self) -> Result<u32, KernelError> {
        sys::link_info(self.fd.as_fd())
            .map(|(prog, _)| prog)
            .map_err(|e| KernelError::sys("inspect a link", e))
    }

    /// Replaces the program in one step: no packet meets an empty interface.
    pub fn update(&mut self, program: &LoadedProgram) -> Result<(), KernelError> {
        sys::link_update(self.fd.as_fd(), program.as_fd()).map_err(|e| {
            KernelError::sys(
                format!("replace the program on {}", interface_label(self.ifindex)),
                e,
            )
        })
    }

    /// Takes the program off the interface now, also where the link is pinned
    /// (the pin itself stays and is dead; see [`crate::pins`]).
    pub fn detach(self) -> Result<(), KernelError> {
        self.take_off()
    }

    /// [`Self::detach`] for an owner that is being dropped itself.
    pub(crate) fn take_off(&self) -> Result<(), KernelError> {
        match sys::link_detach(self.fd.as_fd()) {
            Ok(()) => Ok(()),
            // The device is gone, and the attachment with it.
            Err(e) if e.raw_os_error() == Some(libc::ENOLINK) => Ok(()),
            Err(e) => Err(KernelError::sys("detach a link", e)),
        }
    }

    /// Pins the link at `path` inside a bpffs; from then on dropping does not detach.
    pub fn pin(&self, path: &Path) -> Result<(), KernelError> {
        sys::pin_object(self.fd.as_fd(), path)
            .map_err(|e| KernelError::sys(format!("pin a link at {}", path.display()), e))
    }
}

/// Sorts the answers of an attach; the kernel gives only a number here.
fn attach_error(ifindex: u32, mode: XdpMode, e: std::io::Error) -> KernelError {
    let iface = interface_label(ifindex);
    match e.raw_os_error() {
        // An index that nobody has is EINVAL from some kernels.
        Some(libc::ENODEV | libc::EINVAL) if iface::name_of(ifindex).is_none() => {
            KernelError::NoSuchInterface {
                name: iface,
                near: iface::names().unwrap_or_default(),
            }
        }
        // EBUSY: a link or program of this mode; EEXIST: one of the other mode.
        Some(libc::EBUSY | libc::EEXIST) => KernelError::AlreadyAttached {
            prog_id: iface::xdp_prog_id(ifindex).ok().flatten().unwrap_or(0),
            iface,
        },
        Some(libc::EOPNOTSUPP) if mode == XdpMode::Native => KernelError::NativeUnsupported {
            driver: iface::driver_of(&iface).unwrap_or_else(|_| "unknown".to_owned()),
            iface,
        },
        Some(libc::ERANGE) => KernelError::Sys {
            what: format!(
                "attach {mode} XDP to {iface}: its MTU, or its peer's, is too large for the driver; lower it with `ip link set dev {iface} mtu 1500` or use --generic"
            ),
            source: e,
        },
        Some(libc::ENOSPC) => KernelError::Sys {
            what: format!(
                "attach {mode} XDP to {iface}: the far end of a veth must not have more transmit queues than it has receive queues; `ethtool -L` sets both"
            ),
            source: e,
        },
        _ => KernelError::sys(format!("attach {mode} XDP to {iface}"), e),
    }
}

/// Name of the interface with this index, or the index itself as text.
fn interface_label(ifindex: u32) -> String {
    iface::name_of(ifindex).unwrap_or_else(|| format!("#{ifindex}"))
}
