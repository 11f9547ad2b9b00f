//! Intervals -> the tables that the data plane looks addresses up in (bpf/include/prefixes.h), and rows of bits.
//!
//! Whatever has a row here is a piece of a packet: an address, a port, a kind. The bit of a rule is set in the rows of all pieces that the
//! rule does not refuse; the rules that match are the AND of the rows of a packet.

use std::collections::HashMap;

use weir_bpf::abi::{FilterLife, FilterTop, filter};
use zerocopy::IntoBytes;

use super::intervals::{Intervals, NONE, States};

/// In a row of IPv6: the lower half of the address decides.
pub(super) const SUBTREE: u32 = 1 << 31;

/// Rows, each kept once.
pub(super) struct Rows {
    words: usize,
    known: HashMap<Vec<u64>, u32>,
    data: Vec<u64>,
}

/// More rows than have numbers.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooManyRows;

impl Rows {
    /// For so many rules.
    pub(super) fn new(rules: usize) -> Rows {
        Rows {
            words: rules.div_ceil(64).max(1).next_power_of_two(),
            known: HashMap::new(),
            data: Vec::new(),
        }
    }

    /// Words of a row.
    pub(super) fn words(&self) -> usize {
        self.words
    }

    /// Rows of an element of the map, as a power of two.
    pub(super) fn shift(&self) -> u32 {
        (filter::CHUNK / 8 / self.words).ilog2()
    }

    /// The row in which the bits of these rules are set.
    pub(super) fn of(&mut self, rules: impl Iterator<Item = usize>) -> Result<u32, TooManyRows> {
        let mut row = vec![0u64; self.words];
        for rule in rules {
            row[rule / 64] |= 1 << (rule % 64);
        }
        if let Some(number) = self.known.get(&row) {
            return Ok(*number);
        }
        let number = self.known.len() as u32;
        if number > 0xffff {
            return Err(TooManyRows);
        }
        self.data.extend_from_slice(&row);
        self.known.insert(row, number);
        Ok(number)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.data.as_bytes()
    }
}

/// What rules ask about the addresses of one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asks {
    /// Nothing.
    Nothing,
    /// That this list covers the address.
    List(u16),
    /// That it does not.
    NotList(u16),
}

/// What stands for no rule where rules stand in the place of rows.
pub(super) const NO_RULE: usize = filter::WORDS * 64;

/// The rows of the states of one family, and which lists overlap. `first_only`: nothing else has rows, and the number of the first rule
/// takes the place of a row.
pub(super) fn rows_of(
    states: &States,
    asks: &[Asks],
    rows: &mut Rows,
    overlaps: &mut Vec<Vec<u16>>,
    first_only: bool,
) -> Result<Vec<u16>, TooManyRows> {
    let mut known: HashMap<Vec<u16>, u16> = HashMap::new();
    let mut lists: Vec<u16> = Vec::new();
    let mut out = Vec::with_capacity(states.len());
    for state in 0..states.len() as u32 {
        let cover = states.cover(state);
        let is_same = state > 0
            && cover.len() == lists.len()
            && cover.iter().zip(&lists).all(|((l, _), k)| l == k);
        if is_same && let Some(row) = out.last() {
            out.push(*row);
            continue;
        }
        lists.clear();
        lists.extend(cover.iter().map(|(list, _)| *list));
        let row = match known.get(&lists) {
            Some(row) => *row,
            None => {
                let holds = |ask: &Asks| match ask {
                    Asks::Nothing => true,
                    Asks::List(list) => lists.contains(list),
                    Asks::NotList(list) => !lists.contains(list),
                };
                let mut matching = (0..asks.len()).filter(|rule| holds(&asks[*rule]));
                let row = match first_only {
                    true => matching.next().unwrap_or(NO_RULE) as u16,
                    false => rows.of(matching)? as u16,
                };
                known.insert(lists.clone(), row);
                if lists.len() > 1 {
                    overlaps.push(lists.clone());
                }
                row
            }
        };
        out.push(row);
    }
    Ok(out)
}

/// Slots for the counters of lists: lists that overlap somewhere have different ones. Yields them, and how many there are; nothing if
/// there are not enough.
pub(super) fn slots(lists: usize, overlaps: &[Vec<u16>]) -> Option<(Vec<u8>, usize)> {
    let mut slots: Vec<u8> = Vec::with_capacity(lists);
    for list in 0..lists as u16 {
        let mut taken = [false; 256];
        for overlap in overlaps.iter().filter(|o| o.contains(&list)) {
            for other in overlap.iter().filter(|other| **other < list) {
                taken[usize::from(slots[usize::from(*other)])] = true;
            }
        }
        let free = taken.iter().position(|t| !t)?;
        slots.push(free as u8);
    }
    let count = slots.iter().map(|s| usize::from(*s) + 1).max().unwrap_or(1);
    Some((slots, count))
}

/// One table of addresses, as it goes into maps.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) top: Vec<FilterTop>,
    /// IPv4: the same for parts that are crowded, 256 for each.
    pub(super) sub: Vec<FilterTop>,
    /// IPv4: bytes of an interval in a block.
    pub(super) unit: usize,
    /// IPv4: first position and number of intervals of each block.
    pub(super) runs: Vec<(u32, u32)>,
    /// IPv4: blocks. IPv6: where intervals begin.
    pub(super) bounds: Vec<u8>,
    /// IPv6: rows by position.
    pub(super) rows: Vec<u32>,
    /// IPv6: intervals of lower halves.
    pub(super) low: Vec<FilterTop>,
    /// The state at each position; `NONE` where there is no interval.
    pub(super) state_at: Vec<u32>,
    /// IPv6: what all prefixes begin with, its mask, and the shift of the window.
    pub(super) common: u64,
    pub(super) common_mask: u64,
    pub(super) window: u32,
}

/// Lays out the intervals of IPv4. `unit`: bytes of an interval in a block, 4 and those of its counters.
pub(super) fn lay_out4(intervals: &Intervals, row_of: &[u16], unit: usize) -> Table {
    let mut table = Table {
        top: vec![FilterTop::default(); filter::TOP],
        state_at: vec![NONE],
        unit,
        ..Table::default()
    };
    let mut parts = Parts4 {
        intervals,
        row_of,
        at: 0,
        shared: (usize::MAX, 0),
    };
    for i in 0..filter::TOP as u64 {
        let (from, to) = (i << 16, (i << 16) + 0xffff);
        let kept = parts.at;
        table.top[i as usize] = match parts.put(&mut table, from, to) {
            Some(top) => top,
            None => {
                parts.at = kept;
                let number = (table.sub.len() / filter::SUB) as u32;
                for j in 0..filter::SUB as u64 {
                    let from = from + (j << 8);
                    // 256 addresses have at most 256 intervals, and a block has room for them.
                    let sub = parts.put(&mut table, from, from + 0xff);
                    table.sub.push(sub.unwrap_or_default());
                }
                FilterTop {
                    first: number,
                    what: filter::CROWD,
                }
            }
        };
    }
    table
}

/// Intervals of IPv4 that are put down from the lowest address to the highest.
struct Parts4<'i> {
    intervals: &'i Intervals,
    row_of: &'i [u16],
    /// The interval at the lowest address that is not put down.
    at: usize,
    /// The last interval that was larger than a part, and its position.
    shared: (usize, u32),
}

impl Parts4<'_> {
    /// Puts down what lies between two addresses; nothing if that is more than a block holds.
    fn put(&mut self, table: &mut Table, from: u64, to: u64) -> Option<FilterTop> {
        let starts = &self.intervals.starts;
        let (from, to) = (u128::from(from), u128::from(to));
        while self.at + 1 < starts.len() && starts[self.at + 1] <= from {
            self.at += 1;
        }
        let at = self.at;
        let n = 1 + starts[at + 1..]
            .iter()
            .take_while(|start| **start <= to)
            .count();
        if n == 1 {
            let state = self.intervals.states[at];
            let first = match state {
                0 => 0,
                _ if self.shared.0 == at => self.shared.1,
                _ => {
                    table.state_at.push(state);
                    self.shared = (at, table.state_at.len() as u32 - 1);
                    self.shared.1
                }
            };
            return Some(FilterTop {
                first,
                what: self.row_of[state as usize].into(),
            });
        }
        // A block may begin some bytes behind the start of an element.
        if (n + 1) * table.unit > filter::BLOCKS {
            return None;
        }
        self.at = at + n - 1;
        let mut first = table.state_at.len();
        if first * table.unit % filter::BLOCKS + n * table.unit > filter::BLOCKS {
            first = (first * table.unit)
                .next_multiple_of(filter::BLOCKS)
                .div_ceil(table.unit);
            table.state_at.resize(first, NONE);
        }
        let place = first * table.unit;
        table.bounds.resize(place, 0);
        let states = &self.intervals.states[at..at + n];
        for (number, start) in starts[at..at + n].iter().enumerate() {
            let low = match number {
                0 => from as u16,
                _ => *start as u16,
            };
            table.bounds.extend(low.to_ne_bytes());
        }
        for state in states {
            table
                .bounds
                .extend(self.row_of[*state as usize].to_ne_bytes());
        }
        table.runs.push((first as u32, n as u32));
        table.state_at.extend(states);
        Some(FilterTop {
            first: first as u32,
            what: ((n - 1) as u32) << 16,
        })
    }
}

impl Table {
    /// Where in its blocks the first counter of each position is, in bytes.
    pub(super) fn homes(&self) -> Vec<u32> {
        let alone = |position: usize| (position * self.unit + 4) as u32;
        let mut homes: Vec<u32> = (0..self.state_at.len()).map(alone).collect();
        for (first, n) in &self.runs {
            for i in 0..*n {
                homes[(first + i) as usize] =
                    *first * self.unit as u32 + n * 4 + i * (self.unit as u32 - 4);
            }
        }
        homes
    }
}

/// What begins at an upper half of an address.
enum Upper {
    State(u32),
    /// Several intervals lie below one upper half: a run of them.
    Lower(std::ops::Range<usize>),
}

/// Lays out the intervals of IPv6. `entries`: first address and length of all prefixes.
pub(super) fn lay_out6(
    intervals: &Intervals,
    row_of: &[u16],
    entries: impl Iterator<Item = (u128, u8)>,
) -> Table {
    let mut table = Table {
        state_at: vec![0],
        rows: vec![row_of[0].into()],
        ..Table::default()
    };
    let mut bounds = vec![0u64];
    let mut uppers: Vec<(u64, Upper)> = Vec::new();
    let mut lowers: Vec<(u64, u32)> = Vec::new();
    let halves = |at: usize| {
        (
            (intervals.starts[at] >> 64) as u64,
            intervals.starts[at] as u64,
        )
    };
    let count = intervals.starts.len();
    let mut at = 0;
    while at < count {
        let (high, low) = halves(at);
        let mut end = at + 1;
        while end < count && halves(end).0 == high {
            end += 1;
        }
        if end == at + 1 && low == 0 {
            uppers.push((high, Upper::State(intervals.states[at])));
        } else {
            let first = lowers.len();
            if low != 0 {
                lowers.push((0, intervals.states[at - 1]));
            }
            lowers.extend((at..end).map(|i| (halves(i).1, intervals.states[i])));
            uppers.push((high, Upper::Lower(first..lowers.len())));
            let next = (end < count).then(|| halves(end).0);
            if let Some(behind) = high.checked_add(1).filter(|behind| next != Some(*behind)) {
                uppers.push((behind, Upper::State(intervals.states[end - 1])));
            }
        }
        at = end;
    }

    let (common, bits) = window(entries);
    table.common = common;
    table.common_mask = if bits == 0 {
        0
    } else {
        u64::MAX << (64 - bits)
    };
    table.window = 48 - bits;
    table.top = vec![FilterTop::default(); filter::TOP];
    let mut at = 0usize;
    let mut shared = (usize::MAX, 0u32);
    for i in 0..filter::TOP {
        let from = common | (i as u64) << table.window;
        let to = from | ((1u64 << table.window) - 1);
        while at + 1 < uppers.len() && uppers[at + 1].0 <= from {
            at += 1;
        }
        let mut end = at + 1;
        while end < uppers.len() && uppers[end].0 <= to {
            end += 1;
        }
        let n = end - at;
        let first = match &uppers[at].1 {
            Upper::State(0) if n == 1 => 0,
            _ if n == 1 && shared.0 == at => shared.1,
            _ => bounds.len() as u32,
        };
        table.top[i] = FilterTop {
            first,
            what: n as u32,
        };
        if first != bounds.len() as u32 {
            continue;
        }
        shared = (at, first);
        for (high, upper) in &uppers[at..end] {
            bounds.push(*high);
            match upper {
                Upper::State(state) => {
                    table.rows.push(row_of[*state as usize].into());
                    table.state_at.push(*state);
                }
                Upper::Lower(run) => {
                    table.rows.push(SUBTREE | table.low.len() as u32);
                    table.state_at.push(NONE);
                    table.low.push(FilterTop {
                        first: run.start as u32,
                        what: run.len() as u32,
                    });
                }
            }
        }
    }
    let behind = bounds.len() as u32;
    for low in &mut table.low {
        low.first += behind;
    }
    for (low, state) in lowers {
        bounds.push(low);
        table.rows.push(row_of[state as usize].into());
        table.state_at.push(state);
    }
    table.bounds = bounds.as_bytes().to_vec();
    table
}

/// What all prefixes begin with, at most 48 bits of it, and how many bits that are.
fn window(entries: impl Iterator<Item = (u128, u8)>) -> (u64, u32) {
    let (mut common, mut bits) = (0u64, 64u32);
    for (number, (first, len)) in entries.enumerate() {
        let high = (first >> 64) as u64;
        if number == 0 {
            common = high;
        }
        bits = bits.min(len.into()).min((high ^ common).leading_zeros());
    }
    let bits = bits.min(48);
    (
        if bits == 0 {
            0
        } else {
            common & u64::MAX << (64 - bits)
        },
        bits,
    )
}

/// The later lives of a table's positions: they have positions of their own behind the others.
pub(super) fn lives(table: &mut Table, states: &States, row_of: &[u16]) -> Vec<FilterLife> {
    let mut lives = Vec::with_capacity(table.state_at.len());
    let mut at = 0;
    while at < table.state_at.len() {
        let state = table.state_at[at] as usize;
        let life = match states.until.get(state) {
            None | Some(0) => FilterLife::default(),
            Some(until) => {
                let then = states.then[state];
                let position = match then {
                    0 => 0,
                    _ => {
                        table.state_at.push(then);
                        table.state_at.len() as u32 - 1
                    }
                };
                FilterLife {
                    until: *until,
                    then: position,
                    row: row_of[then as usize].into(),
                    pad: 0,
                }
            }
        };
        lives.push(life);
        at += 1;
    }
    lives
}
