//! tc programs as filters of the clsact qdisc: what kernels without tcx have.
//!
//! A filter outlives its process by itself; for `weir down` its program is pinned (see [`crate::pins`]). Weir's filter is
//! known by its handle. A qdisc that weir made goes with its last filter, together with what others may have put on it meanwhile.

#![expect(unsafe_code, reason = "libbpf's tc calls take raw pointers")]

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd};

use crate::link::Direction;
use crate::{KernelError, LoadedProgram, iface, sys};

/// Handle of weir's filters: "weir" in ASCII.
const HANDLE: u32 = 0x7765_6972;
/// Filters with smaller numbers run before weir's.
const PRIORITY: u32 = 30_000;

/// A filter on one direction of an interface. Dropping it takes it off, and the qdisc if weir made it and no other
/// filter of weir's is left.
#[derive(Debug)]
pub struct Filter {
    ifindex: u32,
    direction: Direction,
    made_qdisc: bool,
}

impl Filter {
    /// Attaches a tc program; makes the qdisc unless there is one. `made_before`: weir made it, for the other direction.
    pub fn attach(
        program: &LoadedProgram,
        ifindex: u32,
        direction: Direction,
        made_before: bool,
    ) -> Result<Filter, KernelError> {
        sys::silence_libbpf();
        let name = iface::name_of(ifindex).unwrap_or_else(|| format!("#{ifindex}"));
        let mut both = hook(ifindex, libbpf_sys::BPF_TC_INGRESS);
        // SAFETY: `both` is valid for the call and states its size.
        let made = match sys::check(unsafe { libbpf_sys::bpf_tc_hook_create(&mut both) }) {
            Ok(_) => true,
            Err(e) if e.raw_os_error() == Some(libc::EEXIST) => false,
            Err(e) => return Err(KernelError::sys(format!("add a clsact qdisc to {name}"), e)),
        };
        let filter = Filter {
            ifindex,
            direction,
            made_qdisc: made || made_before,
        };
        if let Some(prog_id) = prog_id(ifindex, direction)? {
            if made {
                destroy(ifindex);
            }
            mem::forget(filter);
            return Err(KernelError::AlreadyRunning {
                iface: name,
                prog_id,
            });
        }
        let mut opts = options(program.as_fd().as_raw_fd());
        let at = hook(ifindex, point(direction));
        // SAFETY: both are valid for the call and state their sizes.
        sys::check(unsafe { libbpf_sys::bpf_tc_attach(&at, &mut opts) }).map_err(|e| {
            KernelError::sys(format!("attach a filter to {direction} of {name}"), e)
        })?;
        Ok(filter)
    }

    /// One that another process attached.
    pub fn existing(ifindex: u32, direction: Direction, made_qdisc: bool) -> Filter {
        Filter {
            ifindex,
            direction,
            made_qdisc,
        }
    }

    /// Puts another program in its place; every packet meets one of them.
    pub fn replace(&self, program: &LoadedProgram) -> Result<(), KernelError> {
        let mut opts = options(program.as_fd().as_raw_fd());
        opts.flags = libbpf_sys::BPF_TC_F_REPLACE;
        let at = hook(self.ifindex, point(self.direction));
        // SAFETY: both are valid for the call and state their sizes.
        sys::check(unsafe { libbpf_sys::bpf_tc_attach(&at, &mut opts) })
            .map(drop)
            .map_err(|e| {
                KernelError::sys(
                    format!(
                        "replace the {} filter of interface {}",
                        self.direction, self.ifindex
                    ),
                    e,
                )
            })
    }

    /// Index of the interface it was attached to.
    pub fn ifindex(&self) -> u32 {
        self.ifindex
    }

    /// Its direction.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// Whether weir made the qdisc it is on.
    pub fn made_qdisc(&self) -> bool {
        self.made_qdisc
    }

    /// Id of the program it runs now, `None` once somebody took it off.
    pub fn prog_id(&self) -> Result<Option<u32>, KernelError> {
        prog_id(self.ifindex, self.direction)
    }

    /// Leaves it there; it goes with its interface.
    pub fn keep(self) {
        mem::forget(self);
    }

    /// Takes it off, telling what went wrong; dropping does the same silently.
    pub fn detach(self) -> Result<(), KernelError> {
        let this = mem::ManuallyDrop::new(self);
        take_off(this.ifindex, this.direction, this.made_qdisc)
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        // Nobody is left to be told; `weir down` finds what remains.
        let _ = take_off(self.ifindex, self.direction, self.made_qdisc);
    }
}

/// Id of the program of weir's filter there, `None` if there is none.
pub(crate) fn prog_id(ifindex: u32, direction: Direction) -> Result<Option<u32>, KernelError> {
    sys::silence_libbpf();
    let at = hook(ifindex, point(direction));
    let mut opts = options(0);
    // SAFETY: both are valid for the call and state their sizes.
    match sys::check(unsafe { libbpf_sys::bpf_tc_query(&at, &mut opts) }) {
        Ok(_) => Ok(Some(opts.prog_id)),
        Err(e) if is_absent(&e) => Ok(None),
        Err(e) => Err(KernelError::sys(
            format!("ask for the {direction} filter of interface {ifindex}"),
            e,
        )),
    }
}

/// Removes weir's filter if it is there, and the qdisc if weir made it and has no other filter on it.
pub(crate) fn take_off(
    ifindex: u32,
    direction: Direction,
    made_qdisc: bool,
) -> Result<(), KernelError> {
    sys::silence_libbpf();
    let at = hook(ifindex, point(direction));
    let opts = options(0);
    // SAFETY: both are valid for the call and state their sizes.
    match sys::check(unsafe { libbpf_sys::bpf_tc_detach(&at, &opts) }) {
        Ok(_) => {}
        Err(e) if is_absent(&e) => {}
        Err(e) => {
            return Err(KernelError::sys(
                format!("take the {direction} filter off interface {ifindex}"),
                e,
            ));
        }
    }
    let other = match direction {
        Direction::Ingress => Direction::Egress,
        Direction::Egress => Direction::Ingress,
    };
    if made_qdisc && prog_id(ifindex, other)?.is_none() {
        destroy(ifindex);
    }
    Ok(())
}

/// Removes the qdisc; it may be gone already.
fn destroy(ifindex: u32) {
    let mut both = hook(
        ifindex,
        libbpf_sys::BPF_TC_INGRESS | libbpf_sys::BPF_TC_EGRESS,
    );
    // SAFETY: `both` is valid for the call and states its size.
    let _ = unsafe { libbpf_sys::bpf_tc_hook_destroy(&mut both) };
}

/// Without qdisc: EINVAL; without filter: ENOENT; without device: ENODEV.
fn is_absent(e: &io::Error) -> bool {
    matches!(
        e.raw_os_error(),
        Some(libc::ENOENT | libc::EINVAL | libc::ENODEV)
    )
}

fn point(direction: Direction) -> libbpf_sys::bpf_tc_attach_point {
    match direction {
        Direction::Ingress => libbpf_sys::BPF_TC_INGRESS,
        Direction::Egress => libbpf_sys::BPF_TC_EGRESS,
    }
}

fn hook(ifindex: u32, attach_point: libbpf_sys::bpf_tc_attach_point) -> libbpf_sys::bpf_tc_hook {
    libbpf_sys::bpf_tc_hook {
        sz: mem::size_of::<libbpf_sys::bpf_tc_hook>() as libbpf_sys::size_t,
        ifindex: ifindex as i32,
        attach_point,
        ..Default::default()
    }
}

fn options(prog_fd: i32) -> libbpf_sys::bpf_tc_opts {
    libbpf_sys::bpf_tc_opts {
        sz: mem::size_of::<libbpf_sys::bpf_tc_opts>() as libbpf_sys::size_t,
        prog_fd,
        handle: HANDLE,
        priority: PRIORITY,
        ..Default::default()
    }
}
