//! Where a program's redirect goes, as far as its maps tell: what the kernel looks up behind `xdp_do_redirect`.
//!
//! Does not know ports. Invariant: a redirect has at least one target, unless a broadcast leaves out the only interface there is.

use weir_vm::{Machine, MapKind, Redirect};

const BPF_F_BROADCAST: u64 = 8;
const BPF_F_EXCLUDE_INGRESS: u64 = 16;

/// One target of a redirect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedirectTarget {
    /// An interface, by index.
    Interface(u32),
    /// A CPU, whose queue holds so many.
    Cpu {
        /// Its number.
        cpu: usize,
        /// Frames that its queue holds.
        room: usize,
    },
    /// An AF_XDP socket of the program's own map.
    Socket,
    /// An entry with a program of its own, which is not run.
    SecondProgram,
    /// No entry, no map.
    Nothing,
}

/// Targets of the machine's last redirect, of a packet that came by `from`.
pub(super) fn targets(program: &Machine, from: u32) -> Vec<RedirectTarget> {
    let (name, key, flags) = match program.redirect() {
        Some(Redirect::Interface { ifindex } | Redirect::Device { ifindex, .. }) => {
            return vec![RedirectTarget::Interface(*ifindex)];
        }
        Some(Redirect::Map { map, key, flags }) => (map, *key, *flags),
        None => return vec![RedirectTarget::Nothing],
    };
    let Some(map) = program.map(name) else {
        return vec![RedirectTarget::Nothing];
    };
    if flags & BPF_F_BROADCAST == 0 {
        let key = (key as u32).to_le_bytes();
        return vec![entry(map.kind(), &key, map.value(&key).unwrap_or_default())];
    }
    let all = map
        .keys()
        .map(|key| entry(map.kind(), &key, map.value(&key).unwrap_or_default()));
    all.filter(|target| {
        flags & BPF_F_EXCLUDE_INGRESS == 0 || *target != RedirectTarget::Interface(from)
    })
    .collect()
}

fn entry(kind: MapKind, key: &[u8], value: &[u8]) -> RedirectTarget {
    let word = |at: usize| {
        let bytes = value.get(at..at + 4).and_then(<[u8]>::first_chunk);
        bytes.map(|b| u32::from_le_bytes(*b))
    };
    let Some(target) = word(0) else {
        return RedirectTarget::Nothing;
    };
    if word(4).is_some_and(|program| program != 0) {
        return RedirectTarget::SecondProgram;
    }
    match kind {
        MapKind::CpuMap => match key.first_chunk() {
            Some(cpu) => RedirectTarget::Cpu {
                cpu: u32::from_le_bytes(*cpu) as usize,
                room: target as usize,
            },
            None => RedirectTarget::Nothing,
        },
        MapKind::XskMap => RedirectTarget::Socket,
        _ => RedirectTarget::Interface(target),
    }
}
