//! Whether a device can run XDP in its hardware: a program that passes everything is offered to it.
//!
//! Nothing is attached. The driver's answer to loading a program for the device is the only one there is.

#![expect(unsafe_code, reason = "loading takes raw pointers")]

use std::mem;

use crate::{KernelError, sys};

/// `r0 = XDP_PASS; exit`, 8 bytes each.
const PASS: [u64; 2] = [0x0000_0002_0000_00b7, 0x95];

/// Whether the device of this index takes programs for its hardware.
pub fn offers_offload(ifindex: u32) -> Result<bool, KernelError> {
    sys::silence_libbpf();
    let mut opts = libbpf_sys::bpf_prog_load_opts {
        sz: mem::size_of::<libbpf_sys::bpf_prog_load_opts>() as libbpf_sys::size_t,
        prog_ifindex: ifindex,
        ..Default::default()
    };
    // SAFETY: two instructions of eight bytes, C string literals, and options that state their size.
    let ret = unsafe {
        libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_XDP,
            c"offload".as_ptr(),
            c"GPL".as_ptr(),
            PASS.as_ptr().cast(),
            PASS.len() as libbpf_sys::size_t,
            &mut opts,
        )
    };
    match sys::own_fd(ret) {
        Ok(_) => Ok(true),
        Err(e) if matches!(e.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => Ok(false),
        Err(e) => Err(KernelError::sys(
            format!("offer a program to interface {ifindex}"),
            e,
        )),
    }
}
