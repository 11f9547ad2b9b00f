//! The Linux error numbers helpers and maps return, negative as a program sees them in r0.
//!
//! Invariant: the values are those of x86-64 Linux.

/// Not permitted: the map is frozen or created for programs only.
pub const EPERM: i64 = -1;
/// No such entry.
pub const ENOENT: i64 = -2;
/// Argument list too long: the map is full or the index is outside.
pub const E2BIG: i64 = -7;
/// Try again: the ring buffer is full.
pub const EAGAIN: i64 = -11;
/// Out of memory.
pub const ENOMEM: i64 = -12;
/// Permission denied: bad metadata length.
pub const EACCES: i64 = -13;
/// Bad address: offset or length above 65,535.
pub const EFAULT: i64 = -14;
/// The key exists.
pub const EEXIST: i64 = -17;
/// No such device.
pub const ENODEV: i64 = -19;
/// Invalid argument.
pub const EINVAL: i64 = -22;
/// No space: the longest-prefix map is full.
pub const ENOSPC: i64 = -28;
/// A number does not fit.
pub const ERANGE: i64 = -34;
/// Another protocol than asked for: the tunnel's key is of the other family.
pub const EPROTO: i64 = -71;
/// The map has no such operation.
pub const EOPNOTSUPP: i64 = -95;
/// Neither IPv4 nor IPv6.
pub const EAFNOSUPPORT: i64 = -97;
/// It is so already: the packet is in a tunnel.
pub const EALREADY: i64 = -114;
/// Not supported; the kernel's own number.
pub const ENOTSUPP: i64 = -524;
