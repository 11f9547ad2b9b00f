//! Lines of protocols of text, put together from pieces, and how several of these protocols begin alike.

use std::borrow::Cow;

use super::probe::{First, begins};

/// Puts lines together.
#[derive(Default)]
pub(super) struct Line {
    carry: Vec<u8>,
    too_long: bool,
    /// Bytes that ended the last line before its line feed.
    returns: usize,
}

impl Line {
    /// Takes bytes up to the next line end; returns the line without it when it is whole, and what is left. A line that came in one piece is not copied.
    pub(super) fn next<'a>(
        &mut self,
        bytes: &'a [u8],
        most: usize,
    ) -> (Option<Cow<'a, [u8]>>, &'a [u8]) {
        let newline = memchr::memchr(b'\n', bytes);
        let end = newline.unwrap_or(bytes.len());
        let room = most.saturating_sub(self.carry.len());
        self.too_long |= end > room;
        let new = bytes.get(..end.min(room)).unwrap_or_default();
        let Some(end) = newline else {
            self.carry.extend_from_slice(new);
            return (None, &[]);
        };
        let line = if self.carry.is_empty() {
            let line = trimmed(new);
            self.returns = new.len() - line.len();
            Cow::Borrowed(line)
        } else {
            let mut line = std::mem::take(&mut self.carry);
            line.extend_from_slice(new);
            let all = line.len();
            line.truncate(trimmed(&line).len());
            self.returns = all - line.len();
            Cow::Owned(line)
        };
        (Some(line), bytes.get(end + 1..).unwrap_or_default())
    }

    /// Whether the last line was cut; asked once.
    pub(super) fn was_too_long(&mut self) -> bool {
        std::mem::take(&mut self.too_long)
    }

    /// The last line, with what ended it.
    pub(super) fn ended(&self, line: &[u8]) -> Vec<u8> {
        let mut all = line.to_vec();
        all.resize(line.len() + self.returns, b'\r');
        all.push(b'\n');
        all
    }

    /// Whether no line has begun.
    pub(super) fn is_empty(&self) -> bool {
        self.carry.is_empty()
    }

    /// Memory it holds.
    pub(super) fn memory(&self) -> usize {
        self.carry.capacity()
    }
}

/// A line without what ends it before its line feed.
pub(super) fn trimmed(line: &[u8]) -> &[u8] {
    let end = line.iter().rposition(|b| *b != b'\r');
    line.get(..end.map_or(0, |last| last + 1))
        .unwrap_or_default()
}

/// A client names itself with `USER` or `PASS`, as in FTP and in POP3.
pub(super) enum Login {
    /// It does not.
    No,
    /// It may: more bytes are needed.
    Maybe,
    /// It does, in an ordinary line; `true`: to a server that speaks POP3.
    Yes { pop3: bool },
    /// In a line of four words or more, as in IRC.
    Long,
}

/// Whether a client begins with its name.
pub(super) fn login(first: &First<'_>) -> Login {
    let Some(line) = first.line() else {
        return Login::No;
    };
    for prefix in [&b"USER "[..], b"PASS "] {
        match begins(first.bytes, prefix) {
            None => return Login::Maybe,
            Some(true) if !line.whole => return Login::Maybe,
            Some(true) => {
                let words = line.bytes.split(u8::is_ascii_whitespace);
                if words.filter(|w| !w.is_empty()).count() > 3 {
                    return Login::Long;
                }
                // A server that greeted decides, then the port.
                let port = first.other.is_empty() && first.ports.server == 110;
                return Login::Yes {
                    pop3: first.other.starts_with(b"+OK") || port,
                };
            }
            Some(false) => {}
        }
    }
    Login::No
}

/// Who a server is that greets with `220`, as in SMTP and in FTP.
pub(super) enum Greeting {
    /// It does not greet so.
    No,
    /// The line is not whole, or does not tell; what the client says will.
    Maybe,
    Smtp,
    Ftp,
}

/// Who a server is that greets with `220`: its own words, then the port decide.
pub(super) fn greeting(first: &First<'_>) -> Greeting {
    let Some(line) = first.line() else {
        return Greeting::No;
    };
    if begins(first.bytes, b"220") == Some(false) {
        return Greeting::No;
    }
    if !line.whole {
        return Greeting::Maybe;
    }
    let all = first.bytes.to_ascii_uppercase();
    let has = |word: &[u8]| memchr::memmem::find(&all, word).is_some();
    if has(b"SMTP") {
        return Greeting::Smtp;
    }
    if has(b"FTP") {
        return Greeting::Ftp;
    }
    match first.ports.server {
        21 => Greeting::Ftp,
        25 | 465 | 587 | 2525 => Greeting::Smtp,
        _ => Greeting::Maybe,
    }
}
