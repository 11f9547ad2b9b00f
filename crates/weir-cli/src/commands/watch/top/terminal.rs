//! The terminal: raw mode, the alternate screen, what ratatui draws as ANSI sequences (ECMA-48), and keys.
//!
//! Whatever ends the program in order, the terminal is as it was before: [`Raw`] sees to that when it is dropped.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::time::Duration;

use ratatui_core::backend::{Backend, ClearType, WindowSize};
use ratatui_core::buffer::Cell;
use ratatui_core::layout::{Position, Size};
use ratatui_core::style::{Color, Modifier};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// What is drawn for where the terminal does not say how large it is.
const SIZE: Size = Size {
    width: 80,
    height: 24,
};

/// A terminal in raw mode. Without a terminal as standard input there are no keys, and signals end the program.
#[derive(Debug)]
pub(super) struct Raw {
    before: Option<Termios>,
}

impl Raw {
    pub(super) fn begin() -> io::Result<Raw> {
        let before = tcgetattr(io::stdin()).ok();
        if let Some(before) = &before {
            let mut raw = before.clone();
            raw.make_raw();
            tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        }
        let raw = Raw { before };
        write("\x1b[?1049h\x1b[?25l\x1b[2J")?;
        Ok(raw)
    }

    /// Keys that were pressed; waits so long for the first. `None`: the terminal is gone.
    pub(super) fn keys(&self, wait: Duration) -> io::Result<Option<Vec<Key>>> {
        if self.before.is_none() {
            std::thread::sleep(wait);
            return Ok(Some(Vec::new()));
        }
        let stdin = io::stdin();
        let mut ready = [PollFd::new(&stdin, PollFlags::IN)];
        let limit = Timespec {
            tv_sec: wait.as_secs() as i64,
            tv_nsec: wait.subsec_nanos().into(),
        };
        match poll(&mut ready, Some(&limit)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(Some(Vec::new())),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let mut bytes = [0; 256];
        match rustix::io::read(&stdin, &mut bytes) {
            Ok(0) => Ok(None),
            Ok(count) => Ok(Some(keys(bytes.get(..count).unwrap_or_default()))),
            Err(rustix::io::Errno::INTR) => Ok(Some(Vec::new())),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = write("\x1b[0m\x1b[?25h\x1b[?1049l");
        if let Some(before) = &self.before {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    Enter,
    Escape,
    Backspace,
    Tab,
    BackTab,
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
    /// Ctrl with a letter.
    Ctrl(char),
}

/// Keys of what a terminal sends; sequences that mean none here are skipped.
fn keys(bytes: &[u8]) -> Vec<Key> {
    let text = String::from_utf8_lossy(bytes);
    let mut rest = text.chars().peekable();
    let mut found = Vec::new();
    while let Some(c) = rest.next() {
        let key = match c {
            '\x1b' => match rest.peek() {
                Some('[' | 'O') => {
                    rest.next();
                    let mut sequence = String::new();
                    for c in rest.by_ref() {
                        sequence.push(c);
                        if ('@'..='~').contains(&c) {
                            break;
                        }
                    }
                    match named(&sequence) {
                        Some(key) => key,
                        None => continue,
                    }
                }
                _ => Key::Escape,
            },
            '\r' | '\n' => Key::Enter,
            '\t' => Key::Tab,
            '\x7f' | '\x08' => Key::Backspace,
            '\x01'..='\x1a' => Key::Ctrl(char::from(c as u8 + b'a' - 1)),
            c if c.is_control() => continue,
            c => Key::Char(c),
        };
        found.push(key);
    }
    found
}

/// The key of a sequence without its introducer.
fn named(sequence: &str) -> Option<Key> {
    Some(match sequence {
        "A" => Key::Up,
        "B" => Key::Down,
        "C" => Key::Right,
        "D" => Key::Left,
        "H" | "1~" | "7~" => Key::Home,
        "F" | "4~" | "8~" => Key::End,
        "5~" => Key::PageUp,
        "6~" => Key::PageDown,
        "Z" => Key::BackTab,
        _ => return None,
    })
}

/// Draws by ANSI sequences, all of a frame in one write.
#[derive(Debug)]
pub(super) struct Ansi {
    text: String,
    has_color: bool,
    at: Position,
}

impl Ansi {
    pub(super) fn new(has_color: bool) -> Ansi {
        Ansi {
            text: String::new(),
            has_color,
            at: Position::ORIGIN,
        }
    }

    fn go(&mut self, at: Position) {
        let _ = write!(self.text, "\x1b[{};{}H", at.y + 1, at.x + 1);
        self.at = at;
    }
}

impl Backend for Ansi {
    type Error = io::Error;

    fn draw<'c, I>(&mut self, content: I) -> io::Result<()>
    where
        I: Iterator<Item = (u16, u16, &'c Cell)>,
    {
        let mut next = None;
        let mut style = String::new();
        for (x, y, cell) in content {
            if next != Some((x, y)) {
                self.go(Position { x, y });
            }
            let wanted = sequence(cell, self.has_color);
            if wanted != style {
                self.text.push_str(&wanted);
                style = wanted;
            }
            self.text.push_str(cell.symbol());
            next = Some((x + 1, y));
        }
        self.text.push_str("\x1b[0m");
        Ok(())
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        self.text.push_str("\x1b[?25l");
        Ok(())
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        self.text.push_str("\x1b[?25h");
        Ok(())
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        Ok(self.at)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        self.go(position.into());
        Ok(())
    }

    fn clear(&mut self) -> io::Result<()> {
        self.clear_region(ClearType::All)
    }

    fn clear_region(&mut self, clear_type: ClearType) -> io::Result<()> {
        self.text.push_str(match clear_type {
            ClearType::All => "\x1b[2J",
            ClearType::AfterCursor => "\x1b[J",
            ClearType::BeforeCursor => "\x1b[1J",
            ClearType::CurrentLine => "\x1b[2K",
            ClearType::UntilNewLine => "\x1b[K",
        });
        Ok(())
    }

    fn size(&self) -> io::Result<Size> {
        Ok(match tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => Size {
                width: size.ws_col,
                height: size.ws_row,
            },
            _ => SIZE,
        })
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        Ok(WindowSize {
            columns_rows: self.size()?,
            pixels: Size::ZERO,
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        let text = std::mem::take(&mut self.text);
        write(&text)
    }
}

/// Select Graphic Rendition of a cell.
fn sequence(cell: &Cell, has_color: bool) -> String {
    let mut text = "\x1b[0".to_owned();
    for (modifier, code) in [
        (Modifier::BOLD, ";1"),
        (Modifier::DIM, ";2"),
        (Modifier::UNDERLINED, ";4"),
        (Modifier::REVERSED, ";7"),
    ] {
        if cell.modifier.contains(modifier) {
            text.push_str(code);
        }
    }
    let color = match cell.fg {
        Color::Red => ";31",
        Color::Green => ";32",
        Color::Yellow => ";33",
        Color::Cyan => ";36",
        _ => "",
    };
    if has_color {
        text.push_str(color);
    }
    text.push('m');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_from_what_terminals_send() {
        for (bytes, expected) in [
            (&b"q"[..], vec![Key::Char('q')]),
            (b"\x1b[A\x1bOB", vec![Key::Up, Key::Down]),
            (b"\x1b", vec![Key::Escape]),
            (
                b"\x1b[5~\x1b[6~\x1b[Z",
                vec![Key::PageUp, Key::PageDown, Key::BackTab],
            ),
            // F5 and a mouse report mean nothing here.
            (b"\x1b[15~\x1b[<0;1;1Mx", vec![Key::Char('x')]),
            (
                b"\x03\x7f\r",
                vec![Key::Ctrl('c'), Key::Backspace, Key::Enter],
            ),
            ("ä".as_bytes(), vec![Key::Char('ä')]),
            (b"\x1b[", vec![]),
        ] {
            assert_eq!(keys(bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn a_frame_is_drawn_by_runs() {
        let mut plain = Cell::new("a");
        let mut red = Cell::new("b");
        red.set_fg(Color::Red);
        red.modifier = Modifier::BOLD;
        let mut ansi = Ansi::new(true);
        let cells = [(3, 1, &plain), (4, 1, &red), (0, 2, &plain)];
        ansi.draw(cells.into_iter()).expect("drawn");
        assert_eq!(
            ansi.text,
            "\x1b[2;4H\x1b[0ma\x1b[0;1;31mb\x1b[3;1H\x1b[0ma\x1b[0m"
        );
        plain.set_fg(Color::Red);
        assert_eq!(sequence(&plain, false), "\x1b[0m");
    }
}
