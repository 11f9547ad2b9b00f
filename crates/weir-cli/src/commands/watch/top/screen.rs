//! What is on the screen of `weir top`, and what keys change of it. Nothing here reads or draws.

use std::time::Instant;

use serde_json::Value;

use super::grid::{self, Grid, Pair};
use super::source::{Reading, What};
use super::terminal::Key;

/// Seconds for which drops are watched.
pub(super) const WATCH: u64 = 5;

/// The tabs.
pub(super) const TABS: [&str; 5] = ["Graph", "Rules", "Connections", "Drops", "Workers"];
const GRAPH: usize = 0;
const RULES: usize = 1;
const CONNECTIONS: usize = 2;
const DROPS: usize = 3;

/// How a tab is looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct View {
    /// Column; `None`: in the order of the edge.
    pub(super) sort: Option<usize>,
    pub(super) is_reverse: bool,
    pub(super) selected: usize,
}

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Nothing,
    /// Something else than the last reading.
    Read(What),
    End,
}

/// The screen.
#[derive(Debug)]
pub(super) struct Screen {
    pub(super) edge: String,
    pub(super) place: String,
    pub(super) tab: usize,
    pub(super) views: [View; TABS.len()],
    pub(super) filter: String,
    /// Keys go into the filter.
    pub(super) is_typing: bool,
    pub(super) is_paused: bool,
    /// Drops are being watched since then.
    pub(super) watching: Option<Instant>,
    /// What a watch of drops found.
    pub(super) report: Option<Value>,
    /// Why the last reading failed.
    pub(super) error: Option<String>,
    before: Option<(What, Instant, Value)>,
    now: Option<(What, Instant, Value)>,
    /// Rows that were drawn last, for keys that move by pages.
    pub(super) height: usize,
}

impl Screen {
    pub(super) fn new(edge: String, place: String) -> Screen {
        Screen {
            edge,
            place,
            tab: GRAPH,
            views: [View::default(); TABS.len()],
            filter: String::new(),
            is_typing: false,
            is_paused: false,
            watching: None,
            report: None,
            error: None,
            before: None,
            now: None,
            height: 1,
        }
    }

    /// What the tab shows.
    pub(super) fn what(&self) -> What {
        match self.tab {
            GRAPH | DROPS => What::Graph,
            RULES => What::Rules,
            CONNECTIONS => What::Connections,
            _ => What::Children,
        }
    }

    /// Takes a reading.
    pub(super) fn take(&mut self, reading: Reading) {
        let value = match reading.value {
            Ok(value) => value,
            Err(error) => {
                if matches!(reading.what, What::Drops(_)) {
                    self.watching = None;
                }
                self.error = Some(error);
                return;
            }
        };
        self.error = None;
        if matches!(reading.what, What::Drops(_)) {
            self.watching = None;
            self.report = Some(value);
            return;
        }
        // A reading of a tab that was left meanwhile.
        if reading.what != self.what() {
            return;
        }
        let is_next = |one: &(What, Instant, Value)| one.0 == reading.what;
        self.before = self.now.take().filter(is_next);
        self.now = Some((reading.what, reading.at, value));
    }

    /// The latest value of the tab, and the one before it.
    pub(super) fn pair(&self) -> Option<Pair<'_>> {
        let (what, at, now) = self.now.as_ref()?;
        if *what != self.what() {
            return None;
        }
        let before = self.before.as_ref();
        let before = before.map(|(_, earlier, value)| (value, (*at - *earlier).as_secs_f64()));
        Some(Pair { before, now })
    }

    /// The rows of the tab; `None`: nothing is read yet.
    pub(super) fn grid(&self) -> Option<Grid> {
        let view = self.views.get(self.tab).copied().unwrap_or_default();
        let mut grid = match (&self.report, self.tab) {
            (Some(report), DROPS) => grid::causes(report),
            _ => {
                let pair = self.pair()?;
                match self.tab {
                    GRAPH => grid::graph(pair),
                    RULES => grid::rules(pair),
                    CONNECTIONS => grid::connections(pair.now),
                    DROPS => grid::drops(pair),
                    _ => grid::workers(pair.now),
                }
            }
        };
        grid.arrange(&self.filter, view.sort, view.is_reverse);
        Some(grid)
    }

    /// Does what a key says.
    pub(super) fn press(&mut self, key: Key) -> Wanted {
        if self.is_typing {
            match key {
                Key::Char(c) => self.filter.push(c),
                Key::Backspace => drop(self.filter.pop()),
                Key::Enter => self.is_typing = false,
                Key::Escape => {
                    self.is_typing = false;
                    self.filter.clear();
                }
                Key::Ctrl('c') => return Wanted::End,
                _ => {}
            }
            return Wanted::Nothing;
        }
        let rows = self.grid().map_or(0, |grid| grid.rows.len());
        let columns = self.grid().map_or(0, |grid| grid.columns.len());
        let (page, last) = (self.height.max(1), rows.saturating_sub(1));
        let tab = self.tab;
        let Some(view) = self.views.get_mut(tab) else {
            return Wanted::Nothing;
        };
        match key {
            Key::Char('q') | Key::Ctrl('c') => return Wanted::End,
            Key::Char(digit @ '1'..='5') => return self.go(digit as usize - '1' as usize),
            Key::Tab | Key::Right => return self.go((tab + 1) % TABS.len()),
            Key::BackTab | Key::Left => return self.go((tab + TABS.len() - 1) % TABS.len()),
            Key::Up | Key::Char('k') => view.selected = view.selected.min(last).saturating_sub(1),
            Key::Down | Key::Char('j') => view.selected = (view.selected + 1).min(last),
            Key::PageUp => view.selected = view.selected.saturating_sub(page),
            Key::PageDown => view.selected = (view.selected + page).min(last),
            Key::Home => view.selected = 0,
            Key::End => view.selected = last,
            Key::Char('s') => {
                view.sort = match view.sort {
                    None if columns > 0 => Some(0),
                    Some(column) if column + 1 < columns => Some(column + 1),
                    _ => None,
                }
            }
            Key::Char('r') => view.is_reverse = !view.is_reverse,
            Key::Char('/') => self.is_typing = true,
            Key::Char('p' | ' ') => self.is_paused = !self.is_paused,
            Key::Char('w') if tab == DROPS && self.watching.is_none() => {
                self.watching = Some(Instant::now());
                self.report = None;
                return Wanted::Read(What::Drops(WATCH));
            }
            Key::Escape => {
                self.report = None;
                self.filter.clear();
            }
            _ => {}
        }
        Wanted::Nothing
    }

    fn go(&mut self, tab: usize) -> Wanted {
        self.tab = tab;
        self.error = None;
        Wanted::Read(self.what())
    }
}
