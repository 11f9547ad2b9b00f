//! What the verifier must know of helpers beside their prototypes, which are in the catalogue.
//!
//! Owns which helpers work on which maps, read packets, call back or change the packet. Invariant: a helper without a
//! prototype is refused.

use crate::catalogue::{self, Call, IteratorStep};
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
pub(super) fn arguments(number: u32, hook: Hook) -> u8 {
    if let Some(function) = catalogue::kernel_function(number) {
        return match function.step {
            IteratorStep::New => 3,
            IteratorStep::Next | IteratorStep::Destroy => 1,
        };
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
    matches!(number, FOR_EACH | LOOP)
}

/// Whether every loop through the call ends, because an iterator does.
pub(super) fn converges(number: u32) -> bool {
    catalogue::kernel_function(number).is_some_and(|f| f.step == IteratorStep::Next)
}

/// Whether packet pointers are stale afterwards.
pub(super) fn changes_packet(number: u32, hook: Hook) -> bool {
    prototype(number, hook).is_some_and(|p| p.moves_packet)
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
        RingBuf => matches!(number, 130 | 131 | 134),
        DevMap | DevMapHash | XskMap => matches!(number, LOOKUP | REDIRECT_MAP),
        CpuMap => number == REDIRECT_MAP,
        ArrayOfMaps | HashOfMaps => number == LOOKUP,
        Queue | Stack => matches!(number, 87..=89),
        BloomFilter => matches!(number, 87 | 89),
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
