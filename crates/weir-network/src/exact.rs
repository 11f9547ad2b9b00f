//! The table of exact matches: where a key lies, and placing all keys before anything is written.
//!
//! The Rust half of `bpf/include/exact.h`: [`hash`] and [`find`] are the same arithmetic. Invariant of a [`Table`] that [`place`] made:
//! each of its keys lies in one of its two buckets, once.

use weir_bpf::abi::{Exact, exact, exact_kind};

/// Cells of a bucket.
const WAYS: usize = exact::WAYS as usize;

/// Most steps of one placement before a larger table is taken.
const STEPS: usize = 500;

/// Largest table: buckets.
const MOST_BUCKETS: usize = 1 << 24;

/// Instances that a scope has room for.
pub const INSTANCES: u32 = 1 << (exact::KIND - exact::INSTANCE);

/// What a key is asked for: kind, whose, and length of a prefix.
pub fn scope(kind: u32, instance: u32, length: u32) -> u32 {
    kind << exact::KIND | instance << exact::INSTANCE | length
}

/// Both bucket numbers of a key: low and high half, each before its mask.
pub fn hash(scope: u32, key: [u64; 2]) -> u64 {
    let mut h = (exact::SEED ^ key[0]).wrapping_mul(exact::FIRST);
    h ^= key[1] ^ u64::from(scope);
    h ^= h >> 32;
    h = h.wrapping_mul(exact::SECOND);
    h ^= h >> 29;
    h = h.wrapping_mul(exact::FIRST);
    h ^ h >> 32
}

fn buckets(scope: u32, key: [u64; 2], mask: u32) -> [usize; 2] {
    let h = hash(scope, key);
    [h as u32 & mask, (h >> 32) as u32 & mask].map(|bucket| bucket as usize)
}

/// One half of the table, in the order of the map: bucket by bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// All cells; [`exact::WAYS`] for each bucket.
    pub cells: Vec<Exact>,
    /// Number of buckets - 1.
    pub mask: u32,
}

impl Table {
    /// What lies under a key.
    pub fn find(&self, scope: u32, key: [u64; 2]) -> Option<&Exact> {
        find(&self.cells, self.mask, scope, key)
    }
}

/// The look-up of the data plane, in one half.
pub fn find(cells: &[Exact], mask: u32, scope: u32, key: [u64; 2]) -> Option<&Exact> {
    buckets(scope, key, mask)
        .into_iter()
        .flat_map(|bucket| cells.iter().skip(bucket * WAYS).take(WAYS))
        .find(|cell| cell.scope == scope && cell.key == key)
}

/// Why entries have no table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// The same key twice.
    #[error("the key {key:x?} of scope {scope:#x} is there twice: a defect of weir")]
    Twice {
        /// Its scope.
        scope: u32,
        /// The key.
        key: [u64; 2],
    },
    /// There is no larger table to try.
    #[error("{0} exact matches are more than a table holds")]
    TooMany(usize),
}

/// Places all entries in the smallest table that holds them; at least `least` buckets. The same entries in the same order give the
/// same table.
///
/// # Errors
/// A key that is there twice, or more entries than the largest table takes.
pub fn place(entries: &[Exact], least: u32) -> Result<Table, PlaceError> {
    // Two buckets of two cells fill to 7/8 before placement begins to fail.
    let wanted = (entries.len() * 4 / 3).div_ceil(WAYS).max(least as usize);
    let mut size = wanted.max(1).next_power_of_two();
    while size <= MOST_BUCKETS {
        if let Some(table) = place_in(entries, size)? {
            return Ok(table);
        }
        size *= 2;
    }
    Err(PlaceError::TooMany(entries.len()))
}

/// `None`: some entry finds no cell.
fn place_in(entries: &[Exact], size: usize) -> Result<Option<Table>, PlaceError> {
    let mask = (size - 1) as u32;
    let mut cells = vec![Exact::default(); size * WAYS];
    // Which cell of a full bucket has to move: any sequence that repeats does; xorshift.
    let mut chance = exact::SEED;
    'entries: for entry in entries {
        let mut homeless = *entry;
        let both = buckets(homeless.scope, homeless.key, mask);
        if find(&cells, mask, homeless.scope, homeless.key).is_some() {
            let (scope, key) = (homeless.scope, homeless.key);
            return Err(PlaceError::Twice { scope, key });
        }
        if both
            .iter()
            .any(|&bucket| settle(&mut cells, bucket, homeless))
        {
            continue;
        }
        let mut bucket = both[0];
        for _ in 0..STEPS {
            chance ^= chance << 13;
            chance ^= chance >> 7;
            chance ^= chance << 17;
            let cell = bucket * WAYS + chance as usize % WAYS;
            std::mem::swap(&mut cells[cell], &mut homeless);
            let both = buckets(homeless.scope, homeless.key, mask);
            bucket = if both[0] == bucket { both[1] } else { both[0] };
            if settle(&mut cells, bucket, homeless) {
                continue 'entries;
            }
        }
        return Ok(None);
    }
    Ok(Some(Table { cells, mask }))
}

fn settle(cells: &mut [Exact], bucket: usize, entry: Exact) -> bool {
    let place = cells[bucket * WAYS..][..WAYS]
        .iter_mut()
        .find(|cell| cell.scope == 0);
    match place {
        Some(cell) => {
            *cell = entry;
            true
        }
        None => false,
    }
}

/// The name of a kind, for messages and traces.
pub fn kind_name(kind: u32) -> &'static str {
    match kind {
        exact_kind::DEVICE => "device",
        exact_kind::STATION => "station",
        exact_kind::NEIGHBOUR => "neighbour",
        exact_kind::ROUTE => "route",
        exact_kind::ARP => "arp",
        exact_kind::ADDRESS => "address",
        exact_kind::PEER => "peer",
        exact_kind::TUNNEL => "tunnel",
        exact_kind::MEMBER => "member",
        exact_kind::VLAN => "vlan",
        exact_kind::LOCAL => "local",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(kind: u32, instance: u32, key: [u64; 2], value: u32) -> Exact {
        Exact {
            value,
            scope: scope(kind, instance, 0),
            key,
            extra: 0,
        }
    }

    fn address4(n: u32) -> [u64; 2] {
        let [a, b, c, d] = n.to_be_bytes();
        [0, u64::from_le_bytes([0, 0, 0xff, 0xff, a, b, c, d])]
    }

    #[test]
    fn every_entry_is_found_and_no_other() {
        let mut entries = Vec::new();
        for network in 1..300_u32 {
            for host in 0..30 {
                let address = address4(0x0a00_0000 + host);
                entries.push(entry(exact_kind::NEIGHBOUR, network, address, host));
                entries.push(entry(exact_kind::ARP, network, address, host));
                let mac = 0x0200_0000_0000 + u64::from(host);
                entries.push(entry(exact_kind::STATION, network, [mac << 16, 0], host));
            }
        }
        let table = place(&entries, 0).expect("placed");
        assert_eq!(table.cells.len(), (table.mask as usize + 1) * WAYS);
        for one in &entries {
            assert_eq!(table.find(one.scope, one.key), Some(one));
            assert_eq!(table.find(one.scope, [one.key[0], one.key[1] ^ 1]), None);
        }
        let full = table.cells.iter().filter(|cell| cell.scope != 0).count();
        assert_eq!(full, entries.len());
        assert_eq!(place(&entries, 0), Ok(table));
    }

    /// Keys that differ in few bits must not share buckets more often than chance has it: else placement would not come near this load.
    #[test]
    fn keys_of_all_kinds_spread() {
        type Set = (&'static str, fn(u32) -> Exact);
        let sets: [Set; 8] = [
            ("addresses", |i| entry(3, 1, address4(0x0a00_0000 + i), 0)),
            ("networks", |i| entry(3, 1, address4(i << 8), 0)),
            ("tenants", |i| entry(3, i / 4, address4(i % 4), 0)),
            ("stations", |i| {
                entry(2, 1, [(0x0200_0000_0000 + u64::from(i)) << 16, 0], 0)
            }),
            ("prefixes", |i| {
                entry(4, 1, [u64::from(i).swap_bytes(), 0], 0)
            }),
            ("sites", |i| {
                entry(4, 1, [u64::from(i << 8).swap_bytes() | 0xfd, 0], 0)
            }),
            ("defaults", |i| entry(4, i, [0, 0], 0)),
            ("members", |i| {
                entry(9, 0, [u64::from(i / 64), u64::from(i % 64)], 0)
            }),
        ];
        for (name, make) in sets {
            for size in (6..14).map(|bits| 1 << bits) {
                let count = size * WAYS as u32 * 3 / 4;
                let entries: Vec<Exact> = (0..count).map(make).collect();
                let table = place_in(&entries, size as usize).expect("no key twice");
                assert!(table.is_some(), "{name} in {size} buckets");
            }
        }
    }

    #[test]
    fn a_key_that_is_there_twice_is_refused() {
        let one = entry(exact_kind::ARP, 7, address4(1), 3);
        let (scope, key) = (one.scope, one.key);
        assert_eq!(place(&[one, one], 0), Err(PlaceError::Twice { scope, key }));
    }

    #[test]
    fn no_entries_have_a_table_too() {
        let table = place(&[], 0).expect("placed");
        assert_eq!((table.mask, table.cells.len()), (0, WAYS));
        assert_eq!(table.find(scope(1, 0, 0), [0, 0]), None);
        assert_eq!(place(&[], 8).expect("placed").mask, 7);
    }
}
