//! Sockets: which kind a helper yields, what of it may be read, and which references it carries.
//!
//! The user engine has no sockets: lookups find none, so nothing here is ever reached by a run. The verdict is the kernel's all the
//! same. Invariant: a socket's kind is in the register's `map`, which means nothing else for sockets.

use super::rejection::{Birth, Rule, ValueKind};
use super::state::{Held, Reg};
use super::walk::{Step, Walk, stop_at};

/// The kinds of sockets that the kernel tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum SocketKind {
    /// Found in an XSKMAP.
    Xdp = 0,
    /// Any, also one that is no full socket (`struct sock_common`).
    Common = 1,
    /// A full socket.
    Full = 2,
    /// A TCP socket's own fields.
    Tcp = 3,
}

/// The kernel's struct for a socket of this kind; none for those of an XSKMAP.
pub(super) fn struct_name(kind: u32) -> &'static str {
    match kind {
        1 => "sock_common",
        2 => "sock",
        3 => "tcp_sock",
        _ => "",
    }
}

/// `bpf_sk_release`.
pub(super) const RELEASE: u32 = 86;

/// What a helper yields: the kind, and whether the program must release it.
fn yields(helper: u32) -> (SocketKind, bool) {
    match helper {
        84 | 85 => (SocketKind::Full, true),
        99 => (SocketKind::Common, true),
        96 => (SocketKind::Tcp, false),
        // `bpf_sk_fullsock`, `bpf_get_listener_sock`.
        _ => (SocketKind::Full, false),
    }
}

/// Whether the result is the argument seen otherwise, which is gone with it.
fn casts(helper: u32) -> bool {
    matches!(helper, 95 | 96)
}

/// Whether `size` bytes at `off` of such a socket may be read (net/core/filter.c: bpf_sock_is_valid_access and its siblings).
fn readable(kind: u32, off: i64, size: i64) -> bool {
    if off < 0 || size == 0 || off % size != 0 {
        return false;
    }
    if kind == SocketKind::Xdp as u32 {
        // The queue.
        return off == 0 && size == 4;
    }
    let narrow = size <= 4;
    if kind == SocketKind::Tcp as u32 {
        return match off {
            80..96 => size == 8,
            _ => off < 112 && size == 4,
        };
    }
    if kind == SocketKind::Common as u32 && (8..24).contains(&off) {
        return false;
    }
    match off {
        // Family, type, protocol, source port, state, mapping of the receive queue: at their start, also in part.
        4 | 8 | 12 | 44 | 72 | 76 => narrow,
        // Addresses: any part.
        24..44 | 52..72 => narrow,
        // Destination port: 16 bits, which were 32 once.
        48 | 49 => size == 4 || size <= 2,
        50..52 => false,
        _ => off < 80 && size == 4,
    }
}

impl Walk<'_> {
    /// What a helper that yields a socket leaves in r0; `argument` is the reference of the socket it was given.
    pub(super) fn socket_or_null(&mut self, helper: u32, argument: u32) -> Reg {
        let (kind, acquired) = yields(helper);
        let mut reg = Reg::pointer(ValueKind::Socket, Birth::Helper(helper), self.at);
        reg.map = kind as u32;
        reg.or_null = true;
        reg.id = self.new_id();
        if acquired {
            reg.ref_id = reg.id;
            self.state.held.push(Held {
                id: reg.id,
                at: self.at,
                kind: ValueKind::Socket,
            });
        } else if casts(helper) {
            reg.ref_id = argument;
        }
        reg
    }

    /// The socket of a tc program's packet, if it has one.
    pub(super) fn context_socket(&mut self, birth: Birth) -> Reg {
        let mut reg = Reg::pointer(ValueKind::Socket, birth, self.at);
        reg.map = SocketKind::Common as u32;
        reg.or_null = true;
        reg.id = self.new_id();
        reg
    }

    /// A load from a socket.
    pub(super) fn read_socket(&mut self, register: u8, off: i32, bytes: u8) -> Step<Reg> {
        let base = *self.state.reg(register);
        if base.or_null {
            return stop_at(
                register,
                Rule::NullValue {
                    kind: base.kind,
                    map: None,
                },
            );
        }
        let offset = i64::from(base.off) + i64::from(off);
        let known = base.num.value() == Some(0);
        if !known || !readable(base.map, offset, i64::from(bytes)) {
            return stop_at(
                register,
                Rule::SocketField {
                    offset,
                    size: i64::from(bytes),
                },
            );
        }
        self.note_access(&base);
        Ok(Reg::unknown(Birth::Loaded(ValueKind::Socket), self.at))
    }
}
