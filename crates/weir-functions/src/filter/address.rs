//! The addresses of a filter: lists of both sides and families -> maps, constants, and what their counters mean.
//!
//! Both sides share the maps of a family: what belongs to destinations lies behind what belongs to sources. Positions count through
//! both; the first counter and the first life of a table are given as if its positions began at 0.

use std::hash::Hasher;

use weir_bpf::abi::filter::{self, feature};
use weir_bpf::abi::{FilterLife, FilterTop};
use zerocopy::IntoBytes;

use super::Filter;
use super::compile::{CompileError, chunks};
use super::intervals::{self, Item, NONE, States};
use super::tables::{self, Asks, Rows, Table};
use crate::plan::{Constant, MapPlan};
use weir_value::Prefix;

/// What one condition names: prefix, end (0: none), and number among all entries.
pub(super) type List = Vec<(Prefix, u32, u32)>;

/// What the counters of entries mean.
#[derive(Debug, Default)]
pub(super) struct Meters {
    /// By `side * 2 + IPv6`.
    pub(super) tables: [Meter; 4],
    /// By side: counters of a position.
    pub(super) slots: [usize; 2],
    /// By side and list: the place among them.
    pub(super) slot_of: [Vec<u8>; 2],
    /// Set and place in it of every entry that lists name; of prefixes in rules `usize::MAX` and the rule.
    pub(super) entries: Vec<(usize, usize)>,
    /// Counters in all.
    pub(super) counters: usize,
}

/// Positions of one table.
#[derive(Debug, Default)]
pub(super) struct Meter {
    /// First counter.
    pub(super) first: usize,
    /// The state at each position.
    pub(super) state_at: Vec<u32>,
    pub(super) states: States,
}

/// Counters of an interval up to which they lie in its block: a block of 256 intervals must fit an element.
const SLOTS_IN_BLOCKS: usize = 30;

/// What lists became.
pub(super) struct Laid {
    pub(super) features: u32,
    pub(super) constants: Vec<Constant>,
    pub(super) maps: Vec<MapPlan>,
}

#[derive(Default)]
struct Maps {
    top4: Vec<FilterTop>,
    top6: Vec<FilterTop>,
    sub4: Vec<FilterTop>,
    blocks4: Vec<u8>,
    /// Bytes of an interval of IPv4.
    unit: usize,
    /// By counter: where in the blocks it is.
    homes: Vec<u32>,
    /// Counters up to the last one that is in `hits`.
    aside: usize,
    bounds6: Vec<u8>,
    low6: Vec<FilterTop>,
    lives: Vec<FilterLife>,
    owners: Vec<u64>,
    outside: [u32; 2],
    common: [u64; 2],
    common_mask: [u64; 2],
    window: [u32; 2],
    first_life: [u32; 4],
    first_hit: [u32; 4],
}

/// Lays out the lists of both sides. `asks`: what each rule asks of each side.
pub(super) fn lay_out(
    filter: &Filter,
    sides: [Vec<List>; 2],
    asks: [Vec<Asks>; 2],
    features: u32,
    rows: &mut Rows,
    meters: &mut Meters,
) -> Result<Laid, CompileError> {
    let by_entry = features & feature::ENTRY != 0;
    let counts = filter.hits || by_entry;
    let first_only = features & feature::ONE != 0;
    let mut maps = Maps::default();
    let mut found = 0;
    let identities = match counts {
        true => identities(filter, &sides, &meters.entries),
        false => Vec::new(),
    };
    // Both families of both sides, before anything is laid out: how much room counters need depends on all of them.
    let mut merged = Vec::new();
    for (side, (lists, asks)) in sides.iter().zip(&asks).enumerate() {
        let mut overlaps = Vec::new();
        for is_ip6 in [false, true] {
            let items = lists.iter().map(|list| items(list, is_ip6)).collect();
            let all = intervals::merge(items, counts, filter::LIVES - 1).map_err(|_| {
                CompileError::TooManyLives {
                    max: filter::LIVES - 1,
                }
            })?;
            let row_of = tables::rows_of(&all.all, asks, rows, &mut overlaps, first_only)
                .map_err(|_| CompileError::TooManyRows)?;
            if all.all.end() {
                found |= feature::LIVES;
            }
            merged.push((all, row_of));
        }
        let (slot_of, slots) =
            tables::slots(lists.len(), &overlaps).ok_or(CompileError::TooManyOverlaps)?;
        meters.slots[side] = slots;
        meters.slot_of[side] = slot_of;
    }
    let most = meters.slots[0].max(meters.slots[1]);
    // Not for limits alone, which only need numbers.
    let in_blocks = filter.hits && most <= SLOTS_IN_BLOCKS;
    maps.unit = if in_blocks { 4 + 2 * most } else { 4 };
    let mut merged: Vec<Option<_>> = merged.into_iter().map(Some).collect();
    // Those first whose counters are in `hits`, which so need not have room for the others.
    for at in [1, 3, 0, 2] {
        let Some((all, row_of)) = merged[at].take() else {
            continue;
        };
        let (side, is_ip6) = (at / 2, at % 2 == 1);
        let (lists, slots) = (&sides[side], meters.slots[side]);
        let prefixes = lists.iter().flatten().filter(|(prefix, ..)| prefix.is_ip6);
        let mut table = match is_ip6 {
            false => tables::lay_out4(&all, &row_of, maps.unit),
            true => tables::lay_out6(
                &all,
                &row_of,
                prefixes.map(|(prefix, ..)| (prefix.first, prefix.len)),
            ),
        };
        if is_ip6 {
            maps.outside[side] = row_of[0].into();
            if lists.iter().flatten().any(|(prefix, ..)| prefix.is_ip6) {
                found |= [feature::IP6_SRC, feature::IP6_DST][side];
            }
        }
        let lives = tables::lives(&mut table, &all.all, &row_of);
        let offset = maps.positions(at % 2);
        let homes = match in_blocks && !is_ip6 {
            true => table.homes(),
            false => Vec::new(),
        };
        let meter = Meter {
            first: meters.counters,
            state_at: std::mem::take(&mut table.state_at),
            states: all.all,
        };
        maps.first_hit[at] = (meter.first as u32).wrapping_sub(offset * slots as u32);
        if counts && !lists.is_empty() {
            meters.counters += meter.state_at.len() * slots;
            let base = offset * maps.unit as u32;
            maps.homes.resize(meter.first, 0);
            for home in &homes {
                // In units of two bytes, and one more.
                let first = (base + home) / 2 + 1;
                maps.homes.extend(first..first + slots as u32);
            }
            maps.homes.resize(meters.counters, 0);
            if homes.is_empty() {
                maps.aside = meters.counters;
            }
        }
        if counts {
            maps.owners.resize(meters.counters, 0);
            meter.owners(&meters.slot_of[side], slots, &identities, &mut maps.owners);
        }
        maps.first_life[at] = (maps.lives.len() as u32).wrapping_sub(offset);
        let moved = |life: &FilterLife| FilterLife {
            then: life.then + offset,
            ..*life
        };
        maps.lives.extend(lives.iter().map(moved));
        let positions = meter.state_at.len();
        match is_ip6 {
            false => maps.put4(table, offset, positions, side)?,
            true => maps.put6(table, offset, side),
        }
        meters.tables[at] = meter;
    }
    if filter.hits && meters.counters > 0 {
        found |= feature::HITS;
    }
    if found & feature::LIVES == 0 {
        maps.lives.clear();
    }
    let aside = maps.aside;
    let mut laid = maps.finish(meters.slots, features | found);
    if meters.counters > 0 {
        for (name, counters) in [
            ("hits", aside),
            ("wide_hits", if in_blocks { meters.counters } else { 0 }),
            ("carried_hits", meters.counters),
        ] {
            let elements = counters.div_ceil(filter::HITS).max(1);
            laid.maps
                .push(MapPlan::empty(name, elements, filter::HITS * 8));
        }
    }
    laid.features = found;
    Ok(laid)
}

fn items(list: &List, is_ip6: bool) -> Vec<Item> {
    let of_family = list.iter().filter(|(prefix, ..)| prefix.is_ip6 == is_ip6);
    let item = |(prefix, until, entry): &(Prefix, u32, u32)| Item {
        first: prefix.first,
        last: prefix.last(),
        until: *until,
        entry: *entry,
    };
    of_family.map(item).collect()
}

impl Meter {
    /// Whose each counter is: what tells its entry from all others, in this and in later plans.
    fn owners(&self, slot_of: &[u8], slots: usize, identities: &[u64], owners: &mut [u64]) {
        let places = self.state_at.iter().enumerate();
        for (position, state) in places.filter(|(_, state)| **state != NONE) {
            for (list, entry) in self.states.cover(*state) {
                let slot = usize::from(slot_of[usize::from(*list)]);
                owners[self.first + position * slots + slot] = identities[*entry as usize];
            }
        }
    }
}

/// What tells entries from each other: prefix, set, and what the entry is about besides. By number of the entry.
fn identities(filter: &Filter, sides: &[Vec<List>; 2], entries: &[(usize, usize)]) -> Vec<u64> {
    let mut out = vec![0; entries.len()];
    for (prefix, _, number) in sides.iter().flatten().flatten() {
        let number = *number as usize;
        let (set, place) = entries[number];
        let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
        hasher.write(&prefix.first.to_be_bytes());
        hasher.write(&[prefix.len, prefix.is_ip6.into()]);
        if let Some(set) = filter.sets.get(set) {
            let only = set.entries[place].only;
            hasher.write(set.name.as_bytes());
            hasher.write(&[
                0,
                only.protocol.is_some().into(),
                only.protocol.unwrap_or(0),
            ]);
            hasher.write(
                &only
                    .port
                    .map_or([0; 4], |port| u32::from(port).wrapping_add(1).to_be_bytes()),
            );
        }
        // 0 stands for nobody.
        out[number] = hasher.finish().max(1);
    }
    out
}

/// FNV-1a: the same in every run and on every machine.
pub(super) struct Fnv(pub(super) u64);

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Maps {
    /// Positions in use of a family. In IPv4 a table begins with an element, as its blocks were cut.
    fn positions(&self, family: usize) -> u32 {
        match family {
            // As many units as fill whole elements.
            0 => self
                .blocks4
                .len()
                .div_ceil(self.unit)
                .next_multiple_of(filter::BLOCKS) as u32,
            _ => (self.bounds6.len() / 16) as u32,
        }
    }

    /// `positions`: of the table, those of later lives included.
    fn put4(
        &mut self,
        table: Table,
        offset: u32,
        positions: usize,
        side: usize,
    ) -> Result<(), CompileError> {
        let place = offset as usize * self.unit;
        let end = place + positions * self.unit;
        if u32::try_from(end).is_err() {
            return Err(CompileError::TooLarge);
        }
        self.blocks4.resize(place, 0);
        self.blocks4.extend(table.bounds);
        self.blocks4.resize(end, 0);
        let subs = (self.sub4.len() / filter::SUB) as u32;
        let moved = |top: &FilterTop| FilterTop {
            first: top.first
                + match top.what {
                    filter::CROWD => subs,
                    _ => offset,
                },
            ..*top
        };
        self.sub4.extend(table.sub.iter().map(moved));
        // A side without lists has a table, too: the program looks at its place in the map.
        self.top4.resize(side * filter::TOP, FilterTop::default());
        self.top4.extend(table.top.iter().map(moved));
        Ok(())
    }

    fn put6(&mut self, table: Table, offset: u32, side: usize) {
        let lows = self.low6.len() as u32;
        let row = |row: &u32| {
            if row & tables::SUBTREE != 0 {
                row + lows
            } else {
                *row
            }
        };
        for (bound, at) in table.bounds.chunks_exact(8).zip(&table.rows) {
            self.bounds6.extend(bound);
            self.bounds6.extend(row(at).to_ne_bytes());
            self.bounds6.extend([0; 4]);
        }
        self.low6.extend(table.low.iter().map(|low| FilterTop {
            first: low.first + offset,
            ..*low
        }));
        self.top6.extend(table.top.iter().map(|top| FilterTop {
            first: top.first + offset,
            ..*top
        }));
        self.common[side] = table.common;
        self.common_mask[side] = table.common_mask;
        self.window[side] = table.window;
    }

    /// Maps and constants. What no packet is looked up in is left out.
    fn finish(self, slots: [usize; 2], features: u32) -> Laid {
        let slots = slots.map(|n| n as u32);
        let unit = self.unit as u32;
        let constants: [(&str, &[u8]); 8] = [
            ("weir_unit4", unit.as_bytes()),
            ("weir_outside6", self.outside.as_bytes()),
            ("weir_window6", self.window.as_bytes()),
            ("weir_common6", self.common.as_bytes()),
            ("weir_common_mask6", self.common_mask.as_bytes()),
            ("weir_lives", self.first_life.as_bytes()),
            ("weir_hits", self.first_hit.as_bytes()),
            ("weir_hit_slots", slots.as_bytes()),
        ];
        let top = filter::TOP * size_of::<FilterTop>();
        let mut maps = Vec::new();
        if features & (feature::SRC | feature::DST) != 0 {
            maps.push(chunks("top4", self.top4.as_bytes(), top));
            maps.push(MapPlan::array("sub4", &self.sub4));
            maps.push(chunks("blocks4", &self.blocks4, filter::BLOCKS));
        }
        if features & (feature::IP6_SRC | feature::IP6_DST) != 0 {
            maps.push(chunks("top6", self.top6.as_bytes(), top));
            maps.push(chunks("bounds6", &self.bounds6, filter::CHUNK));
            maps.push(MapPlan::array("low6", &self.low6));
        }
        if features & feature::LIVES != 0 {
            maps.push(MapPlan::array("lives", &self.lives));
        }
        if !self.owners.is_empty() {
            maps.push(chunks("owners", self.owners.as_bytes(), filter::HITS * 8));
            maps.push(chunks("homes", self.homes.as_bytes(), filter::HITS * 4));
        }
        Laid {
            features: 0,
            constants: constants
                .into_iter()
                .map(|(name, bytes)| (name.into(), bytes.to_vec()))
                .collect(),
            maps,
        }
    }
}
