//! Limits that count sources, destinations or pairs apart: the size of their tables, and what a rule says of its own.

use weir_bpf::abi::{METER_WAYS, Meter, meter};
use weir_policy::model::Per;

use crate::plan::{Constant, MapPlan};

/// Most buckets of all tables: 1 GiB.
const MAX_BUCKETS: u64 = 1 << 24;

/// Most buckets of tables that are kept ready: two tables of the usual size. They take memory, and emptying one takes time.
const SPARE_BUCKETS: u64 = 1 << 17;

/// Most tables that are kept ready.
const SPARE_TABLES: u64 = 64;

/// The tables of limits that count addresses apart are too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{tables} limits that tell {limits} addresses apart each take {mib} MiB, and {max} MiB are possible: write a smaller `limits N`, or fewer such rules"
)]
pub struct TablesTooLarge {
    /// Rules with such limits.
    pub tables: usize,
    /// N of `limits N`.
    pub limits: u32,
    /// What their tables would take.
    pub mib: u64,
    /// Limit.
    pub max: u64,
}

/// What a rule has in place of a time-out, without the number of its table. `name`: the id that it began to count under. Of ids that are
/// 2^24 apart the names are the same, so they must not share a table: none lives that long beside the other.
pub(super) fn word(name: u32, per: Option<Per>) -> u64 {
    let name = u64::from(name) << meter::NAME;
    per.map_or(name, |per| {
        name | u64::from(per.len4) << meter::LEN4
            | u64::from(per.len6) << meter::LEN6
            | u64::from(per.source) << meter::SOURCE
            | u64::from(per.destination) << meter::DESTINATION
    })
}

/// Number of a table in a rule's word.
pub(super) fn table(table: u32) -> u64 {
    u64::from(table) & meter::TABLE
}

/// The number of its table in a rule.
pub(super) fn table_of(rule: &weir_bpf::abi::Rule) -> u32 {
    (rule.timeout_ns & meter::TABLE) as u32
}

/// Constant and map of so many tables, each for `limits` addresses.
pub(super) fn plan(limits: u32, tables: usize) -> Result<(Constant, MapPlan), TablesTooLarge> {
    let buckets = buckets(limits);
    let all = tables as u64 * u64::from(buckets);
    let bytes = size_of::<Meter>();
    if all > MAX_BUCKETS {
        return Err(TablesTooLarge {
            tables,
            limits,
            mib: (all * bytes as u64) >> 20,
            max: (MAX_BUCKETS * bytes as u64) >> 20,
        });
    }
    let mask = (buckets - 1).to_ne_bytes().to_vec();
    let map = MapPlan::empty("meters", all as usize, bytes);
    Ok((("weir_meter_mask".into(), mask), map))
}

/// Tables that are kept ready, beside so many, for rules that come while others run.
pub(super) fn spare(limits: u32, tables: usize) -> usize {
    let buckets = u64::from(buckets(limits));
    let possible = (MAX_BUCKETS / buckets).saturating_sub(tables as u64);
    (SPARE_BUCKETS / buckets).min(SPARE_TABLES).min(possible) as usize
}

/// Addresses that fit into a table, and the bytes that it takes.
pub(super) fn size(limits: u32) -> (u64, u64) {
    let buckets = u64::from(buckets(limits));
    let bytes = buckets * size_of::<Meter>() as u64;
    (buckets * METER_WAYS as u64, bytes)
}

/// First bucket of a table, and the bytes of an empty one.
pub(super) fn empty(limits: u32, table: u32) -> (u32, Vec<u8>) {
    let buckets = buckets(limits);
    (
        table * buckets,
        vec![0; size_of::<Meter>() * buckets as usize],
    )
}

/// Buckets of a table: one for each address that was asked for, so that few of so many meet in a full one (docs/design/limits.md).
fn buckets(limits: u32) -> u32 {
    limits.next_power_of_two()
}
