//! Prefixes -> disjoint intervals: which lists cover every address, by which entry, until when.
//!
//! A list is what one condition of a rule names: prefixes of sets and of the rule itself. Prefixes nest or are apart, so that a stack
//! finds the most specific entry everywhere in one pass; lists are then merged. Intervals are sorted, disjoint and cover all
//! addresses of a family. An interval whose entries end has later *lives*: what holds of it from then on.

use std::collections::HashMap;

/// No entry, no life.
pub(super) const NONE: u32 = u32::MAX;

/// An entry of a list, in one family.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    /// First and last address.
    pub(super) first: u128,
    pub(super) last: u128,
    /// Seconds since 1970 from which on it no longer holds; 0: for ever.
    pub(super) until: u32,
    /// What its hits are counted for.
    pub(super) entry: u32,
}

/// What holds in an interval: the lists that cover it, each with the entry that does.
type Cover = [(u16, u32)];

/// The merged intervals of one side and family.
#[derive(Debug, Default)]
pub(super) struct Intervals {
    /// First address of each.
    pub(super) starts: Vec<u128>,
    /// What holds there: index into the states.
    pub(super) states: Vec<u32>,
    /// All states; the first is that nothing covers.
    pub(super) all: States,
}

/// States of intervals and of their later lives.
#[derive(Debug, Default)]
pub(super) struct States {
    /// Covers, one behind the other.
    covers: Vec<(u16, u32)>,
    /// End of each state's cover.
    ends: Vec<u32>,
    /// When each state ends (0: never), and what follows.
    pub(super) until: Vec<u32>,
    pub(super) then: Vec<u32>,
}

impl States {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The lists that cover, and their entries.
    pub(super) fn cover(&self, state: u32) -> &Cover {
        let at = state as usize;
        let from = match at {
            0 => 0,
            _ => self.ends[at - 1] as usize,
        };
        &self.covers[from..self.ends[at] as usize]
    }

    fn push(&mut self, cover: impl IntoIterator<Item = (u16, u32)>, until: u32, then: u32) -> u32 {
        self.covers.extend(cover);
        self.ends.push(self.covers.len() as u32);
        self.until.push(until);
        self.then.push(then);
        (self.ends.len() - 1) as u32
    }

    /// Whether any state ends.
    pub(super) fn end(&self) -> bool {
        self.until.iter().any(|until| *until > 0)
    }
}

/// Too many times at which what holds of one address changes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooManyLives;

/// One list after its sweep.
struct Swept {
    items: Vec<Item>,
    /// What takes over when an item ends, `NONE` if nothing does.
    then: Vec<u32>,
    /// Where the most specific item changes, and to what.
    segments: Vec<(u128, u32)>,
}

/// Merges lists. `distinct`: intervals that the same lists cover stay apart where the entries differ.
pub(super) fn merge(
    lists: Vec<Vec<Item>>,
    distinct: bool,
    lives_max: usize,
) -> Result<Intervals, TooManyLives> {
    let swept: Vec<Swept> = lists.into_iter().map(sweep).collect();
    let mut out = Intervals::default();
    out.all.push([], 0, NONE);
    let mut current = vec![NONE; swept.len()];
    let mut next = vec![0usize; swept.len()];
    let mut known: HashMap<Vec<(u16, u32)>, u32> = HashMap::new();
    let mut cover: Vec<(u16, u32)> = Vec::new();
    let mut at = 0u128;
    loop {
        for (list, place) in next.iter_mut().enumerate() {
            while let Some((start, item)) = swept[list].segments.get(*place).filter(|s| s.0 == at) {
                debug_assert!(*start == at);
                current[list] = *item;
                *place += 1;
            }
        }
        cover.clear();
        cover.extend(
            (0u16..)
                .zip(&current)
                .filter(|(_, item)| **item != NONE)
                .map(|(l, i)| (l, *i)),
        );
        let state = match cover.as_slice() {
            [] => 0,
            // Most intervals are those of one entry; a table of all of them would cost more than it saves.
            [(list, item)] if swept[*list as usize].items[*item as usize].until == 0 => {
                let entry = swept[*list as usize].items[*item as usize].entry;
                let same = out.states.last().filter(|s| {
                    out.all.cover(**s) == [(*list, entry)] && out.all.until[**s as usize] == 0
                });
                match same {
                    Some(state) => *state,
                    None if distinct => out.all.push([(*list, entry)], 0, NONE),
                    None => *known
                        .entry(vec![(*list, 0)])
                        .or_insert_with(|| out.all.push([(*list, NONE)], 0, NONE)),
                }
            }
            _ => {
                // The key keeps entries apart where that matters, and lives always.
                let key: Vec<(u16, u32)> = cover
                    .iter()
                    .map(|(list, item)| {
                        let ends = swept[*list as usize].items[*item as usize].until > 0;
                        (*list, if distinct || ends { *item + 1 } else { 0 })
                    })
                    .collect();
                match known.get(&key) {
                    Some(state) => *state,
                    None => {
                        let state = live(&swept, &cover, &mut out.all, lives_max)?;
                        known.insert(key, state);
                        state
                    }
                }
            }
        };
        if out.states.last() != Some(&state) {
            out.starts.push(at);
            out.states.push(state);
        }
        let nearest = swept
            .iter()
            .zip(&next)
            .filter_map(|(s, place)| s.segments.get(*place))
            .map(|s| s.0)
            .min();
        match nearest {
            Some(start) => at = start,
            None => return Ok(out),
        }
    }
}

/// The state of a cover and of its later lives, the last one first.
fn live(
    swept: &[Swept],
    cover: &Cover,
    all: &mut States,
    lives_max: usize,
) -> Result<u32, TooManyLives> {
    let mut now: Vec<(u16, u32)> = cover.to_vec();
    let mut lives = Vec::new();
    loop {
        let item = |(list, item): &(u16, u32)| swept[*list as usize].items[*item as usize];
        let until = now
            .iter()
            .map(|c| item(c).until)
            .filter(|until| *until > 0)
            .min()
            .unwrap_or(0);
        let entries: Vec<(u16, u32)> = now.iter().map(|c| (c.0, item(c).entry)).collect();
        lives.push((entries, until));
        if until == 0 {
            break;
        }
        if lives.len() > lives_max {
            return Err(TooManyLives);
        }
        for (list, item) in &mut now {
            let list = &swept[*list as usize];
            // What is left of several that end at once is what lives longer.
            while *item != NONE && list.items[*item as usize].until == until {
                *item = list.then[*item as usize];
            }
        }
        now.retain(|(_, item)| *item != NONE);
    }
    let mut then = NONE;
    for (entries, until) in lives.into_iter().rev() {
        then = match entries.is_empty() {
            true => 0,
            false => all.push(entries, until, then),
        };
    }
    Ok(then)
}

/// The most specific item everywhere in a list.
fn sweep(mut items: Vec<Item>) -> Swept {
    // Longer prefixes behind the shorter ones they lie in; of equal ones the one that lives longest last, on top.
    items.sort_by_key(|item| {
        (
            item.first,
            u128::MAX - item.last,
            item.until.wrapping_sub(1),
        )
    });
    let mut then = vec![NONE; items.len()];
    let mut segments: Vec<(u128, u32)> = Vec::with_capacity(items.len() * 2);
    let mut stack: Vec<u32> = Vec::new();
    let cut = |start: u128, item: u32, segments: &mut Vec<(u128, u32)>| {
        while segments.last().is_some_and(|last| last.0 == start) {
            segments.pop();
        }
        let before = segments.last().map_or(NONE, |last| last.1);
        if before != item {
            segments.push((start, item));
        }
    };
    let close = |stack: &mut Vec<u32>,
                 limit: Option<u128>,
                 items: &[Item],
                 segments: &mut Vec<(u128, u32)>| {
        while let Some(&top) = stack.last() {
            let last = items[top as usize].last;
            if limit.is_some_and(|limit| last >= limit) {
                break;
            }
            stack.pop();
            if let Some(behind) = last.checked_add(1) {
                cut(behind, stack.last().copied().unwrap_or(NONE), segments);
            }
        }
    };
    for (number, item) in items.iter().enumerate() {
        close(&mut stack, Some(item.first), &items, &mut segments);
        if item.until > 0 {
            let lives_longer = |other: &&u32| {
                let until = items[**other as usize].until;
                until == 0 || until > item.until
            };
            then[number] = stack
                .iter()
                .rev()
                .find(lives_longer)
                .copied()
                .unwrap_or(NONE);
        }
        stack.push(number as u32);
        cut(item.first, number as u32, &mut segments);
    }
    close(&mut stack, None, &items, &mut segments);
    Swept {
        items,
        then,
        segments,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(first: u128, last: u128, until: u32, entry: u32) -> Item {
        Item {
            first,
            last,
            until,
            entry,
        }
    }

    fn shown(lists: Vec<Vec<Item>>) -> Vec<(u128, Vec<(u16, u32)>)> {
        let merged = merge(lists, true, 8).expect("few lives");
        let cover = |s: &u32| merged.all.cover(*s).to_vec();
        merged
            .starts
            .iter()
            .copied()
            .zip(merged.states.iter().map(cover))
            .collect()
    }

    #[test]
    fn nested_prefixes_are_cut_at_each_other() {
        let list = vec![
            item(0x10, 0x1f, 0, 1),
            item(0x14, 0x17, 0, 2),
            item(0x10, 0x11, 0, 3),
            item(0x1f, 0x1f, 0, 4),
        ];
        let expected = [
            (0, None),
            (0x10, Some(3)),
            (0x12, Some(1)),
            (0x14, Some(2)),
            (0x18, Some(1)),
            (0x1f, Some(4)),
            (0x20, None),
        ];
        let expected: Vec<_> = expected
            .into_iter()
            .map(|(s, e)| (s, e.map(|e| (0u16, e)).into_iter().collect()))
            .collect();
        assert_eq!(shown(vec![list]), expected);
    }

    #[test]
    fn the_last_address_of_all_ends_nothing() {
        assert_eq!(
            shown(vec![vec![item(0, u128::MAX, 0, 7)]]),
            [(0, vec![(0, 7)])]
        );
        assert_eq!(shown(vec![vec![]]), [(0, vec![])]);
    }

    #[test]
    fn an_interval_lives_on_as_what_is_left_of_it() {
        let lists = vec![
            vec![
                item(0, 0xff, 0, 1),
                item(0x10, 0x1f, 50, 2),
                item(0x10, 0x13, 40, 3),
            ],
            vec![item(0x10, 0x10, 45, 4)],
        ];
        let merged = merge(lists, true, 8).expect("few lives");
        let at = merged
            .starts
            .iter()
            .position(|s| *s == 0x10)
            .expect("an interval begins there");
        let mut state = merged.states[at];
        let mut lives = Vec::new();
        loop {
            lives.push((
                merged.all.cover(state).to_vec(),
                merged.all.until[state as usize],
            ));
            state = merged.all.then[state as usize];
            if state == NONE {
                break;
            }
        }
        assert_eq!(
            lives,
            [
                (vec![(0, 3), (1, 4)], 40),
                (vec![(0, 2), (1, 4)], 45),
                (vec![(0, 2)], 50),
                (vec![(0, 1)], 0),
            ]
        );
    }
}
