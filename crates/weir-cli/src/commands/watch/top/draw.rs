//! Draws the screen of `weir top`: 80 columns and 24 lines suffice, more are used.

use ratatui_core::buffer::Buffer;
use ratatui_core::style::{Color, Modifier, Style};

use super::grid::{Column, Field, Grid, Row};
use super::rates::short;
use super::row::{rate, rows};
use super::screen::{Screen, TABS, WATCH};

/// The smallest screen.
const LEAST: (u16, u16) = (50, 10);

/// Lines above and below the rows.
const ABOVE: u16 = 4;
const BELOW: u16 = 3;

/// Draws all of it.
pub(super) fn draw(screen: &mut Screen, buffer: &mut Buffer) {
    let area = *buffer.area();
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let text = format!("{}x{} at least", LEAST.0, LEAST.1);
        buffer.set_stringn(0, 0, text, area.width.into(), Style::new());
        return;
    }
    let mut page = Page {
        buffer,
        width: area.width,
    };
    let height = area.height - ABOVE - BELOW;
    screen.height = height.into();
    let grid = screen.grid();
    head(screen, &mut page);
    tabs(screen, grid.as_ref(), &mut page);
    let mut detail = String::new();
    match &grid {
        None => page.line(ABOVE, "reading ...", Style::new()),
        Some(grid) => {
            let view = screen.views.get_mut(screen.tab);
            let selected = view.map_or(0, |view| {
                view.selected = view.selected.min(grid.rows.len().saturating_sub(1));
                view.selected
            });
            if let Some(row) = grid.rows.get(selected) {
                detail.clone_from(&row.detail);
            }
            table(grid, selected, height, &mut page);
        }
    }
    let bottom = area.height - BELOW;
    match &screen.error {
        Some(error) => page.wrapped(bottom, error, Style::new().fg(Color::Red)),
        None => page.wrapped(bottom, &detail, Style::new()),
    }
    page.line(
        area.height - 1,
        &keys(screen),
        Style::new().add_modifier(Modifier::DIM),
    );
}

/// The buffer, by lines.
struct Page<'b> {
    buffer: &'b mut Buffer,
    width: u16,
}

impl Page<'_> {
    fn line(&mut self, y: u16, text: &str, style: Style) {
        self.put(0, y, text, self.width, style);
    }

    fn put(&mut self, x: u16, y: u16, text: &str, most: u16, style: Style) {
        self.buffer.set_stringn(x, y, text, most.into(), style);
    }

    /// Two lines of text, broken between words.
    fn wrapped(&mut self, y: u16, text: &str, style: Style) {
        let mut lines = [String::new(), String::new()];
        let mut at = 0;
        for word in text.split_whitespace() {
            let is_full = |line: &String| {
                !line.is_empty()
                    && line.chars().count() + 1 + word.chars().count() > self.width.into()
            };
            if at == 0 && lines.first().is_some_and(is_full) {
                at = 1;
            }
            if let Some(line) = lines.get_mut(at) {
                if !line.is_empty() {
                    line.push(' ');
                }
                line.push_str(word);
            }
        }
        for (y, line) in (y..).zip(&lines) {
            self.line(y, line, style);
        }
    }
}

/// What is looked at, and the sums over all ports.
fn head(screen: &Screen, page: &mut Page<'_>) {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let mut title = format!("weir top  edge {}  at {}", screen.edge, screen.place);
    if screen.is_paused {
        title.push_str("  paused");
    }
    page.line(0, &title, bold);
    let Some(pair) = screen.pair() else {
        return;
    };
    let generation = &pair.now["generation"];
    let mut text = match generation.as_u64() {
        Some(generation) => format!("generation {generation}"),
        None => String::new(),
    };
    if let Some((before, seconds)) = pair.before
        && pair.now["nodes"].is_array()
    {
        let sum = |member: &str, is_meant: &dyn Fn(&str) -> bool| -> f64 {
            let nodes = rows(&pair.now["nodes"]).iter();
            nodes
                .filter(|node| is_meant(node["kind"].as_str().unwrap_or_default()))
                .map(|node| {
                    let mut earlier = rows(&before["nodes"]).iter();
                    let earlier = earlier.find(|one| one["id"] == node["id"]);
                    let earlier = earlier.map_or(&serde_json::Value::Null, |one| &one[member]);
                    rate(earlier, &node[member], seconds)
                })
                .sum()
        };
        let is_entry = |kind: &str| matches!(kind, "port" | "workload");
        text.push_str(&format!(
            "  in: {} packets/s, {} bits/s  dropped: {}/s  over {seconds:.1} s",
            short(sum("packets", &is_entry)),
            short(sum("bytes", &is_entry) * 8.0),
            short(sum("drops", &|_| true)),
        ));
    }
    page.line(1, text.trim_start(), Style::new());
}

fn tabs(screen: &Screen, grid: Option<&Grid>, page: &mut Page<'_>) {
    let mut x = 0;
    for (number, name) in (0..).zip(TABS) {
        let text = format!(" {} {name} ", number + 1);
        let style = match number == screen.tab {
            true => Style::new().add_modifier(Modifier::REVERSED | Modifier::BOLD),
            false => Style::new(),
        };
        let width = text.chars().count() as u16;
        page.put(x, 2, &text, width, style);
        x += width;
    }
    let view = screen.views.get(screen.tab).copied().unwrap_or_default();
    let mut notes = Vec::new();
    let column = view
        .sort
        .zip(grid)
        .and_then(|(at, grid)| grid.columns.get(at));
    if let Some(column) = column {
        notes.push(format!("by {}", column.title));
    }
    if view.is_reverse {
        notes.push("reverse".to_owned());
    }
    if !screen.filter.is_empty() && !screen.is_typing {
        notes.push(format!("/{}", screen.filter));
    }
    let note = notes.join(", ");
    let left = page.width.saturating_sub(x + 1);
    page.put(x + 1, 2, &note, left, Style::new().fg(Color::Cyan));
}

/// Where the columns begin, and how wide they are; 0: it is not shown.
fn widths(columns: &[Column], width: u16) -> Vec<u16> {
    let is_shown = |column: &&Column| column.from <= width;
    let shown = columns.iter().filter(is_shown);
    let fixed: u16 = shown.clone().map(|column| column.width).sum();
    let gaps = shown.clone().count().saturating_sub(1) as u16;
    let shares: u16 = shown.map(|column| column.share).sum();
    let rest = width.saturating_sub(fixed + gaps);
    let width_of = |column: &Column| match (column.from <= width, column.width) {
        (false, _) => 0,
        (true, 0) => rest * column.share / shares.max(1),
        (true, width) => width,
    };
    columns.iter().map(width_of).collect()
}

fn table(grid: &Grid, selected: usize, height: u16, page: &mut Page<'_>) {
    let widths = widths(grid.columns, page.width);
    let title = Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED);
    let first = grid.rows.first();
    let mut x = 0;
    for (at, (column, width)) in grid.columns.iter().zip(&widths).enumerate() {
        if *width == 0 {
            continue;
        }
        let is_number = first
            .and_then(|row| row.fields.get(at))
            .is_some_and(|field| matches!(field, Field::Number(..)));
        cell(page, x, ABOVE - 1, *width, column.title, is_number, title);
        x += width + 1;
    }
    if grid.rows.is_empty() {
        page.line(ABOVE, grid.empty, Style::new());
        return;
    }
    // The selected row is on the screen.
    let height = usize::from(height);
    let top = selected.saturating_sub(height.saturating_sub(1));
    let shown = grid.rows.iter().enumerate().skip(top).take(height);
    for (y, (number, row)) in (ABOVE..).zip(shown) {
        line(page, y, row, &widths, number == selected);
    }
}

fn line(page: &mut Page<'_>, y: u16, row: &Row, widths: &[u16], is_selected: bool) {
    let mut style = Style::new();
    if row.is_alert {
        style = style.fg(Color::Red);
    }
    if is_selected {
        style = style.add_modifier(Modifier::REVERSED);
        page.line(y, &" ".repeat(page.width.into()), style);
    }
    let mut x = 0;
    for (field, width) in row.fields.iter().zip(widths) {
        if *width == 0 {
            continue;
        }
        let is_number = matches!(field, Field::Number(..));
        cell(page, x, y, *width, field.shown(), is_number, style);
        x += width + 1;
    }
}

fn cell(page: &mut Page<'_>, x: u16, y: u16, width: u16, text: &str, is_right: bool, style: Style) {
    let length = text.chars().count().min(width.into()) as u16;
    let begin = if is_right { x + width - length } else { x };
    page.put(begin, y, text, width, style);
}

fn keys(screen: &Screen) -> String {
    if screen.is_typing {
        return format!("filter: {}_  ENTER keeps it, ESC clears it", screen.filter);
    }
    if let Some(since) = screen.watching {
        let left = WATCH.saturating_sub(since.elapsed().as_secs());
        return format!("watching why packets are dropped, {left} s left");
    }
    let watch = match (screen.tab, &screen.report) {
        (3, None) => "  w watch why",
        (3, Some(_)) => "  w again  ESC back",
        _ => "",
    };
    format!("q quit  1-5 tab  UP/DOWN row  s sort  r reverse  / filter  p pause{watch}")
}

/// What is drawn on a screen of that size, line by line.
#[cfg(test)]
pub(super) fn lines(screen: &mut Screen, width: u16, height: u16) -> Vec<String> {
    use ratatui_core::backend::TestBackend;
    use ratatui_core::terminal::Terminal;
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
    terminal
        .draw(|frame| draw(screen, frame.buffer_mut()))
        .expect("drawn");
    let buffer = terminal.backend().buffer();
    let area = *buffer.area();
    let line = |y: u16| {
        let cells = (0..area.width).filter_map(|x| buffer.cell((x, y)));
        let text: String = cells.map(|cell| cell.symbol()).collect();
        text.trim_end().to_owned()
    };
    (0..area.height).map(line).collect()
}
