//! What the verifier must know of helpers beside their prototypes, which are in the catalogue.
//!
//! Owns which helpers work on which maps, read packets, call back or change the packet. Invariant: a helper without a
//! prototype is refused.

use crate::catalogue::{self, Call, flags};
use crate::machine::Code;
use crate::maps::{MapDefinition, MapKind};
use crate::program::ProgramKind;

/// Where a program runs, which decides its context and its helpers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hook {
    Xdp,
    Tc,
}

impl Hook {
    /// Of a program of this kind; bare code is taken for XDP.
    pub(super) fn of(kind: Option<&ProgramKind>) -> Hook {
        match kind {
            Some(ProgramKind::SchedCls) => Hook::Tc,
            _ => Hook::Xdp,
        }
    }

    /// Name of the context's structure, by which arguments of global functions are known.
    pub(super) fn context(self) -> &'static str {
        match self {
            Hook::Xdp => "xdp_md",
            Hook::Tc => "__sk_buff",
        }
    }

    /// Name of the structure that the kernel has for the context.
    pub(super) fn kernel_context(self) -> &'static str {
        match self {
            Hook::Xdp => "xdp_buff",
            Hook::Tc => "sk_buff",
        }
    }

    /// The name that messages use.
    pub(super) fn name(self) -> &'static str {
        match self {
            Hook::Xdp => "XDP",
            Hook::Tc => "tc",
        }
    }
}

/// `bpf_tail_call`.
pub(super) const TAIL_CALL: u32 = 12;
/// `bpf_map_lookup_elem`.
pub(super) const LOOKUP: u32 = 1;
/// `bpf_for_each_map_elem`.
pub(super) const FOR_EACH: u32 = 164;
/// `bpf_loop`.
pub(super) const LOOP: u32 = 181;
/// `bpf_spin_lock`.
pub(super) const SPIN_LOCK: u32 = 93;
/// `bpf_spin_unlock`.
pub(super) const SPIN_UNLOCK: u32 = 94;

/// `bpf_find_vma`.
pub(super) const FIND_VMA: u32 = 180;
/// `bpf_dynptr_from_mem`.
pub(super) const DYNPTR_FROM_MEM: u32 = 197;
/// `bpf_dynptr_write`.
pub(super) const DYNPTR_WRITE: u32 = 202;
/// `bpf_user_ringbuf_drain`.
pub(super) const DRAIN: u32 = 209;

const REDIRECT_MAP: u32 = 51;
const LOOKUP_PERCPU: u32 = 195;

/// How helper `number` is called, if programs of this hook may call it and its arguments can be checked.
pub(super) fn prototype(number: u32, hook: Hook) -> Option<Call> {
    let offered = |h: &&catalogue::HelperInfo| match hook {
        Hook::Xdp => h.xdp,
        Hook::Tc => h.tc,
    };
    catalogue::helper(number).filter(offered)?.call
}

/// Arguments helper `number` takes; 5 of one that is not known.
pub(super) fn arguments(number: u32, hook: Hook, code: &Code) -> u8 {
    if let Some(signature) = code.signatures.get(&number) {
        return signature.parameters.len() as u8;
    }
    prototype(number, hook).map_or(5, |p| p.arguments.len() as u8)
}

/// Whether packet pointers may be passed as memory.
pub(super) fn takes_packet(number: u32) -> bool {
    matches!(
        number,
        LOOKUP | 2 | 3 | 28 | 69 | 84 | 85 | 87 | 99 | 100 | 110 | LOOKUP_PERCPU | 204..=207
    )
}

/// Whether the kernel (6.18) offers the helper to GPL-compatible programs only.
pub(super) fn is_gpl(number: u32) -> bool {
    matches!(
        number,
        6 | 22 | 25 | 35 | 55 | 69 | 100 | 110 | 112..=115 | 158 | 163 | 165 | 169..=172 | 175..=177 | 191 | 204..=207
    )
}

/// Whether the helper calls a function of the program.
pub(super) fn calls_back(number: u32) -> bool {
    callback_context(number).is_some()
}

/// Of a helper that calls a function of the program: the callback's register of what the program passes to it, and the
/// helper's.
pub(super) fn callback_context(number: u32) -> Option<(u8, u8)> {
    match number {
        LOOP => Some((2, 3)),
        FOR_EACH => Some((4, 3)),
        FIND_VMA => Some((3, 4)),
        DRAIN => Some((2, 3)),
        _ => None,
    }
}

/// Whether every loop through the call ends, because an iterator does.
pub(super) fn converges(number: u32) -> bool {
    catalogue::kernel_function(number).is_some_and(|f| f.has(flags::ITER_NEXT))
}

/// Whether packet pointers are stale afterwards.
pub(super) fn changes_packet(number: u32, hook: Hook) -> bool {
    match catalogue::kernel_function(number) {
        Some(function) => function.has(flags::MOVES_PACKET),
        None => prototype(number, hook).is_some_and(|p| p.moves_packet),
    }
}

/// Whether the helper changes the map.
pub(super) fn writes_map(number: u32) -> bool {
    matches!(number, 2 | 3 | 87 | 88)
}

/// Whether helper `number` works on such a map.
pub(super) fn takes_map(number: u32, map: &MapDefinition) -> bool {
    use MapKind::*;
    let by_kind = match map.kind {
        ProgArray => number == TAIL_CALL,
        PerfEventArray => matches!(number, 22 | 25 | 55),
        RingBuf => matches!(number, 130 | 131 | 134 | 198),
        DevMap | DevMapHash | XskMap => matches!(number, LOOKUP | REDIRECT_MAP),
        CpuMap => number == REDIRECT_MAP,
        ArrayOfMaps | HashOfMaps => number == LOOKUP,
        Queue | Stack => matches!(number, 87..=89),
        BloomFilter => matches!(number, 87 | 89),
        SockMap | SockHash => matches!(number, LOOKUP | 2 | 3),
        SkStorage => matches!(number, 107 | 108),
        TaskStorage => matches!(number, 156 | 157),
        CgrpStorage => matches!(number, 210 | 211),
        UserRingBuf => number == DRAIN,
        CgroupArray => matches!(number, 33 | 37),
        // Helpers that fill it are not for XDP and tc programs.
        StackTrace => false,
        Hash | Array | PercpuHash | PercpuArray | LruHash | LruPercpuHash | LpmTrie => {
            matches!(number, LOOKUP | 2 | 3 | FOR_EACH | LOOKUP_PERCPU)
        }
    };
    by_kind
        && match number {
            LOOKUP_PERCPU => map.kind.is_percpu(),
            FOR_EACH => map.kind != LpmTrie,
            _ => true,
        }
}

/// Whether a constant key inside the map always finds a value.
pub(super) fn always_finds(map: &MapDefinition) -> bool {
    matches!(map.kind, MapKind::Array | MapKind::PercpuArray)
}
