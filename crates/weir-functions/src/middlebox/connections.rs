//! Stateful rules -> sizes of the tables of connections, their constants, and what is chosen for a connection.
//!
//! Sizes follow docs/design/connections.md: places for 1.67 times the connections asked for, so that two choices of 15 places
//! each are practically never both full below that number.

use weir_bpf::abi::{
    self, Bucket, Flow, Frag, Held, NatBucket, Op, Pool, choice, feature, op_kind,
};
use weir_policy::field::Field;
use weir_policy::model::{Connections, Policy, Ranges, Target};
use zerocopy::{FromBytes, IntoBytes};

use crate::plan::{Constant, MapPlan};

/// Intervals a pool may be made of: they are walked one by one when a connection is opened.
pub const POOL_INTERVALS: usize = 1024;

/// Connections a bucket of [`abi::WAYS`] is planned for.
const LOAD: usize = 9;

/// Buckets of remembered fragments.
const FRAG_BUCKETS: usize = 4096;

/// Buckets of held fragments: half a megabyte.
const HOLD_BUCKETS: usize = 64;

/// The ephemeral ports, which `shuffle` of a port chooses from (RFC 6335 section 6).
const EPHEMERAL: (u128, u128) = (49_152, 65_535);

/// What a stateful target chooses, and from what; `None` for other targets, and for what follows by itself (SACK blocks).
pub(super) fn choice_of(target: &Target) -> Option<(u8, Option<Ranges>)> {
    match target {
        Target::Map { field, pool } => Some((what(*field)?, Some(Ranges::clone(pool)))),
        Target::Shuffle { field } => {
            let what = what(*field)?;
            let is_port = matches!(what, choice::SPORT | choice::DPORT);
            Some((what, is_port.then(|| Ranges::new(vec![EPHEMERAL]))))
        }
        _ => None,
    }
}

fn what(field: Field) -> Option<u8> {
    Some(match field.info().name {
        "ip-saddr" | "ip6-saddr" => choice::SADDR,
        "ip-daddr" | "ip6-daddr" => choice::DADDR,
        "tcp-sport" | "udp-sport" => choice::SPORT,
        "tcp-dport" | "udp-dport" => choice::DPORT,
        "ip-id" => choice::ID,
        "ip6-flow-label" => choice::LABEL,
        "tcp-seq-num" => choice::SEQ,
        "tcp-ack-num" => choice::ACK,
        _ => return None,
    })
}

/// The operation of a choice. `first` is where the pool's intervals lie.
pub(super) fn operation(what: u8, pool: Option<(&Ranges, u32)>) -> Op {
    let mut op = Op {
        kind: op_kind::SHUFFLE,
        base: what,
        flags: 0,
        option: 0,
        off: 0,
        len: 0,
        u: [0; abi::VALUE_MAX],
    };
    if let Some((ranges, first)) = pool {
        op.kind = op_kind::MAP;
        let pool = Pool {
            first,
            count: ranges.intervals().len() as u32,
            size: size(ranges),
        };
        op.u[..size_of::<Pool>()].copy_from_slice(pool.as_bytes());
    }
    op
}

/// Moves the intervals of a pool that many elements on.
pub(super) fn move_pool(op: &mut Op, by: u32) {
    // The bytes of an operation need not be aligned as a pool is.
    if op.kind == op_kind::MAP
        && let Ok((mut pool, _)) = Pool::read_from_prefix(&op.u)
    {
        pool.first += by;
        op.u[..size_of::<Pool>()].copy_from_slice(pool.as_bytes());
    }
}

/// Values in a pool; the language allows 2^32 at most.
fn size(pool: &Ranges) -> u64 {
    let sizes = pool
        .intervals()
        .iter()
        .map(|&(lo, hi)| (hi - lo).saturating_add(1));
    sizes.sum::<u128>().min(1 << 32) as u64
}

/// Features that the operation of a choice switches on.
pub(super) fn features(op: &Op) -> u32 {
    match (op.kind, op.base) {
        (op_kind::MAP | op_kind::SHUFFLE, choice::SADDR..=choice::DPORT) => {
            feature::TRANSLATE | feature::NAT
        }
        (op_kind::SHUFFLE, choice::SEQ | choice::ACK) => feature::TRANSLATE | feature::SEQUENCE,
        (op_kind::MAP | op_kind::SHUFFLE, _) => feature::TRANSLATE,
        _ => 0,
    }
}

/// Sizes of the tables for these features.
pub(super) fn maps(connections: &Connections, features: u32) -> Vec<MapPlan> {
    let sizes = Sizes::new(connections, features);
    vec![
        MapPlan::empty("flows", sizes.buckets * abi::WAYS, size_of::<Flow>()),
        MapPlan::empty("flow_index", sizes.buckets, size_of::<Bucket>()),
        MapPlan::empty("nat_index", sizes.nat_buckets, size_of::<NatBucket>()),
        MapPlan::empty(
            "frags",
            sizes.frag_buckets * abi::FRAG_WAYS,
            size_of::<Frag>(),
        ),
        MapPlan::empty(
            "held",
            sizes.hold_buckets * abi::HELD_WAYS,
            size_of::<Held>(),
        ),
    ]
}

/// Constants of the tables.
pub(super) fn constants(connections: &Connections, features: u32) -> Vec<Constant> {
    let sizes = Sizes::new(connections, features);
    let number = |n: usize| (n as u32).to_ne_bytes().to_vec();
    let mut timeouts = [0u64; 32];
    timeouts[..abi::FLOW_STATES].copy_from_slice(&connections.timeouts_ns);
    vec![
        ("weir_flow_buckets".into(), number(sizes.buckets)),
        ("weir_nat_buckets".into(), number(sizes.nat_buckets)),
        ("weir_frag_buckets".into(), number(sizes.frag_buckets)),
        ("weir_hold_buckets".into(), number(sizes.hold_buckets)),
        ("weir_timeout".into(), timeouts.as_bytes().to_vec()),
        ("weir_loose".into(), number(connections.loose_tcp.into())),
        ("weir_min_pmtu".into(), number(connections.min_pmtu.into())),
        ("weir_zone".into(), number(zone(connections.timezone))),
    ]
}

/// Seconds that the time of the policy is ahead of UTC, as a number from 0: weeks do not count.
fn zone(minutes: i16) -> usize {
    const WEEK: i32 = 7 * 86_400;
    (i32::from(minutes) * 60).rem_euclid(WEEK) as usize
}

/// Whether a policy keeps connections.
pub fn is_stateful(policy: &Policy) -> bool {
    policy.rules.iter().any(|rule| rule.stateful)
}

struct Sizes {
    buckets: usize,
    nat_buckets: usize,
    frag_buckets: usize,
    hold_buckets: usize,
}

impl Sizes {
    fn new(connections: &Connections, features: u32) -> Sizes {
        if features & feature::STATE == 0 {
            return Sizes {
                buckets: 1,
                nat_buckets: 1,
                frag_buckets: 1,
                hold_buckets: 1,
            };
        }
        let capacity = connections.capacity as usize;
        let translated = features & feature::NAT != 0;
        Sizes {
            buckets: capacity.div_ceil(LOAD).max(2),
            // Seven entries for each connection, four for each place. With a table full of a flood's connections two buckets
            // must not both be full, or a translated tuple that is free could not be had: with half as many buckets that met
            // 1 new connection in 700, with these 1 in 300,000.
            nat_buckets: if translated { capacity.max(2) } else { 1 },
            frag_buckets: FRAG_BUCKETS,
            hold_buckets: HOLD_BUCKETS,
        }
    }
}
