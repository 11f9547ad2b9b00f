//! One target -> operations of the data plane: header words, payload bytes, option edits, log lines.

use weir_bpf::abi::{Op, PREFIX_MAX, VALUE_MAX, base, feature, meta, op_flag, op_kind};
use weir_policy::field::{Header, Kind};
use weir_policy::model::Target;
use zerocopy::IntoBytes;

use super::{REWRITES, connections};

/// Operations of a target, in order; none for verdicts. `slot` is where its rule counts.
pub(super) fn lower(target: &Target, slot: u32) -> Vec<Op> {
    match target {
        Target::Set { field, value } => {
            let info = field.info();
            words(info.header, info.kind, info.offset, info.bits, *value)
        }
        Target::PushTag { tci } => vec![Op {
            kind: op_kind::VLAN_PUSH,
            off: *tci,
            ..EMPTY
        }],
        Target::DecrementTtl => vec![Op {
            kind: op_kind::TTL,
            ..EMPTY
        }],
        Target::PopTag => vec![Op {
            kind: op_kind::VLAN_POP,
            ..EMPTY
        }],
        Target::SetMeta { field, value, mask } => {
            let mut op = Op {
                kind: op_kind::META,
                base: match field.info().offset {
                    0 => meta::MARK,
                    _ => meta::PRIORITY,
                },
                ..EMPTY
            };
            op.u[..8].copy_from_slice([*mask, *value].as_bytes());
            vec![op]
        }
        Target::SetPayload { subject, bytes } => {
            let ip = matches!(subject.field.info().header, Header::Ip4 | Header::Ip6);
            let kind = if ip {
                op_kind::IP_PAYLOAD
            } else {
                op_kind::L4_PAYLOAD
            };
            vec![with_bytes(
                Op {
                    kind,
                    off: subject.at,
                    ..EMPTY
                },
                bytes,
            )]
        }
        Target::SetOption { kind, value } => {
            vec![with_bytes(
                Op {
                    kind: op_kind::SET_OPTION,
                    option: *kind,
                    ..EMPTY
                },
                value,
            )]
        }
        Target::AddOption { kind, value } => {
            vec![with_bytes(
                Op {
                    kind: op_kind::ADD_OPTION,
                    option: *kind,
                    ..EMPTY
                },
                value,
            )]
        }
        Target::Strip(kinds) => {
            let mut op = Op {
                kind: op_kind::STRIP,
                ..EMPTY
            };
            op.u[..32].copy_from_slice(kinds.0.as_bytes());
            vec![op]
        }
        Target::Log { prefix, limit } => {
            let text = &prefix.as_bytes()[..prefix.len().min(PREFIX_MAX - 1)];
            let mut op = with_bytes(
                Op {
                    kind: op_kind::LOG,
                    ..EMPTY
                },
                text,
            );
            if let Some(limit) = limit {
                let ahead = u64::from(limit.burst).saturating_sub(1);
                op.flags = op_flag::LIMITED;
                let words = [limit.period_ns, limit.period_ns.saturating_mul(ahead)];
                op.u[PREFIX_MAX..PREFIX_MAX + 16].copy_from_slice(words.as_bytes());
                op.u[PREFIX_MAX + 16..PREFIX_MAX + 20].copy_from_slice(slot.as_bytes());
            }
            vec![op]
        }
        // Those of connections need room for their pools: see `connections`; those of sets their numbers: see `dynamic`.
        Target::ChangeSet(_)
        | Target::Drop(_)
        | Target::Accept
        | Target::Map { .. }
        | Target::Shuffle { .. } => Vec::new(),
    }
}

/// Features that operations switch on.
pub(super) fn features(ops: &[Op]) -> u32 {
    let mut features = 0;
    for op in ops {
        features |= match op.kind {
            op_kind::LOG if op.flags & op_flag::LIMITED != 0 => feature::LOG | feature::LOG_LIMIT,
            op_kind::LOG => feature::LOG,
            op_kind::IP_PAYLOAD | op_kind::L4_PAYLOAD => feature::PAYLOAD_OPS,
            op_kind::WORD => feature::REWRITE,
            op_kind::META => feature::REWRITE | feature::META,
            op_kind::TTL => feature::REWRITE | feature::TTL,
            op_kind::VLAN_PUSH | op_kind::VLAN_POP => feature::REWRITE | feature::VLAN,
            op_kind::SET_ADD | op_kind::SET_DELETE => feature::SETS,
            op_kind::MAP | op_kind::SHUFFLE => connections::features(op),
            _ => feature::OPTION_OPS,
        };
    }
    if features & REWRITES != 0 {
        features |= feature::REWRITE;
    }
    features
}

const EMPTY: Op = Op {
    kind: 0,
    base: 0,
    flags: 0,
    option: 0,
    off: 0,
    len: 0,
    u: [0; VALUE_MAX],
};

fn with_bytes(mut op: Op, bytes: &[u8]) -> Op {
    op.len = bytes.len() as u16;
    op.u[..bytes.len()].copy_from_slice(bytes);
    op
}

/// A fixed field as 32-bit words of its header (docs/semantics.md section 4).
fn words(header: Header, kind: Kind, offset: u16, bits: u16, value: u128) -> Vec<Op> {
    let base = match header {
        Header::Vlan => base::VLAN,
        Header::Vlan2 => base::VLAN2,
        Header::Ip4 => base::IP4,
        Header::Ip6 => base::IP6,
        Header::Icmp | Header::Icmp6 | Header::Udp | Header::Tcp => base::L4,
        // The table of fields has nothing writable elsewhere.
        Header::Meta
        | Header::Skb
        | Header::Clock
        | Header::Ether
        | Header::EtherAddr
        | Header::Ip6Frag
        | Header::Ports => {
            return Vec::new();
        }
    };
    let first = offset / 32;
    let count = (offset % 32 + bits).div_ceil(32);
    (0..count)
        .map(|i| {
            let word = first + i;
            let (mask, value) = if bits > 32 {
                (u32::MAX, (value >> (32 * u32::from(count - 1 - i))) as u32)
            } else {
                let shift = 32 - offset % 32 - bits;
                let mask = (((1u64 << bits) - 1) as u32) << shift;
                (mask, ((value as u32) << shift) & mask)
            };
            let address = matches!(kind, Kind::Addr4 | Kind::Addr6);
            let (ip_mask, l4_mask, flags) = checksums(header, word, address, offset, bits);
            let mut op = Op {
                kind: op_kind::WORD,
                base,
                flags,
                off: word * 4,
                ..EMPTY
            };
            for (to, part) in
                op.u.chunks_exact_mut(4)
                    .zip([mask.to_be(), value.to_be(), ip_mask, l4_mask])
            {
                to.copy_from_slice(&part.to_ne_bytes());
            }
            op
        })
        .collect()
}

/// Bits of a word that count in the IPv4 checksum and in the L4 checksum, and how.
fn checksums(header: Header, word: u16, address: bool, offset: u16, bits: u16) -> (u32, u32, u8) {
    /// The half of word 2 of the IPv4 header that is not the checksum.
    const NOT_IP_CHECKSUM: u32 = 0xffff_0000;
    match header {
        Header::Ip4 if address => (u32::MAX, u32::MAX, op_flag::PSEUDO),
        Header::Ip4 if (offset, bits) == (72, 8) => (NOT_IP_CHECKSUM, 0x00ff_0000, op_flag::PSEUDO),
        Header::Ip4 if word == 2 => (NOT_IP_CHECKSUM, 0, 0),
        Header::Ip4 => (u32::MAX, 0, 0),
        Header::Ip6 if address => (0, u32::MAX, op_flag::PSEUDO),
        Header::Ip6 if (offset, bits) == (48, 8) => {
            (0, 0x0000_ff00, op_flag::PSEUDO | op_flag::NEXT_HEADER)
        }
        Header::Tcp if word == 4 => (0, 0x0000_ffff, 0),
        Header::Udp if word == 1 => (0, 0xffff_0000, 0),
        Header::Icmp | Header::Icmp6 if word == 0 => (0, 0xffff_0000, 0),
        Header::Tcp | Header::Udp | Header::Icmp | Header::Icmp6 => (0, u32::MAX, 0),
        _ => (0, 0, 0),
    }
}
