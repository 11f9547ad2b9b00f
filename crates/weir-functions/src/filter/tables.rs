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
const NO_RULE: usize = filter::WORDS * 64;

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

/// Lays out the intervals of IPv4.
pub(super) fn lay_out4(intervals: &Intervals, row_of: &[u16]) -> Table {
    const UNITS: usize = filter::CHUNK / 4;
    let mut table = Table {
        top: vec![FilterTop::default(); filter::TOP],
        bounds: vec![0; 4],
        state_at: vec![NONE],
        ..Table::default()
    };
    let starts = &intervals.starts;
    let mut at = 0usize;
    let mut shared = (usize::MAX, 0u32);
    for (i, top) in table.top.iter_mut().enumerate() {
        let (from, to) = ((i as u128) << 16, ((i as u128) << 16) + 0xffff);
        while at + 1 < starts.len() && starts[at + 1] <= from {
            at += 1;
        }
        let mut end = at + 1;
        while end < starts.len() && starts[end] <= to {
            end += 1;
        }
        let n = end - at;
        if n == 1 {
            let state = intervals.states[at];
            let first = match state {
                0 => 0,
                _ if shared.0 == at => shared.1,
                _ => {
                    table.state_at.push(state);
                    table.bounds.extend([0; 4]);
                    shared = (at, table.state_at.len() as u32 - 1);
                    shared.1
                }
            };
            *top = FilterTop {
                first,
                what: row_of[state as usize].into(),
            };
            continue;
        }
        let mut first = table.state_at.len();
        if first % UNITS + n > UNITS {
            first = first.next_multiple_of(UNITS);
            table.state_at.resize(first, NONE);
            table.bounds.resize(first * 4, 0);
        }
        let states = &intervals.states[at..end];
        for (place, start) in starts[at..end].iter().enumerate() {
            let low = if place == 0 {
                0
            } else {
                (*start & 0xffff) as u16
            };
            table.bounds.extend(low.to_ne_bytes());
        }
        for state in states {
            table.bounds.extend(row_of[*state as usize].to_ne_bytes());
        }
        table.state_at.extend(states);
        *top = FilterTop {
            first: first as u32,
            what: ((n - 1) as u32) << 16,
        };
    }
    table
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
