//! IMAP only as far as the change to TLS: STARTTLS, and the answer that grants it. Rules inspect the stream.

use super::lines::{Line, Login, login};
use super::names::App;
use super::probe::{Certainty, First, Look, StreamProbe};
use super::protocol::{Parser, Protocol};
use super::transaction::{Change, Transactions};
use crate::packet::Direction;
use crate::packet::Direction::ToServer;

/// Bytes of a line that are kept; no command or answer looked for is longer.
const MOST_LINE: usize = 256;

pub(super) const IMAP: Protocol = Protocol {
    app: App::Imap,
    stream: Some(StreamProbe::new(Certainty::Word, imap)),
    parser: Some(|_| Box::new(Mail::default())),
    files: true,
    ..Protocol::NONE
};

fn imap(first: &First<'_>) -> Look {
    let Some(line) = first.line() else {
        return Look::No;
    };
    if first.is_server() {
        return first.begins_with(&[b"* OK", b"* PREAUTH"]);
    }
    if matches!(login(first), Login::Long) {
        return Look::No;
    }
    // A tag, then a command.
    let mut words = line.bytes.split(|b| *b == b' ');
    let (tag, command) = (words.next().unwrap_or_default(), words.next());
    if tag.is_empty() || tag.len() > 8 || !tag.iter().all(u8::is_ascii_alphanumeric) {
        return Look::No;
    }
    let known: &[&[u8]] = &[
        b"CAPABILITY",
        b"LOGIN",
        b"STARTTLS",
        b"AUTHENTICATE",
        b"ID",
        b"NAMESPACE",
    ];
    match command.map(<[u8]>::trim_ascii_end) {
        _ if !line.whole => Look::Maybe,
        Some(command) if known.iter().any(|k| k.eq_ignore_ascii_case(command)) => Look::Yes,
        _ => Look::No,
    }
}

#[derive(Default)]
pub(super) struct Mail {
    lines: [Line; 2],
    /// Beginning of the answer that grants the change.
    awaited: Option<Vec<u8>>,
}

impl Parser for Mail {
    fn data(&mut self, d: Direction, bytes: &[u8], _: u64, out: &mut Transactions) {
        let mut rest = bytes;
        while !rest.is_empty() && out.change.is_none() {
            let (line, left) = d.of_mut(&mut self.lines).next(rest, MOST_LINE);
            rest = left;
            let Some(line) = line else {
                break;
            };
            if d == ToServer {
                let mut words = line
                    .split(u8::is_ascii_whitespace)
                    .filter(|w| !w.is_empty());
                let (first, second) = (words.next().unwrap_or_default(), words.next());
                if second.is_some_and(|w| w.eq_ignore_ascii_case(b"STARTTLS")) {
                    self.awaited = Some([first, b" OK"].concat());
                }
            } else if let Some(awaited) = &self.awaited
                && line
                    .get(..awaited.len())
                    .is_some_and(|l| l.eq_ignore_ascii_case(awaited))
            {
                out.change = Some(Change {
                    to: Some(App::Tls),
                    ..Change::default()
                });
            } else if !line.starts_with(b"*") {
                // Refused.
                self.awaited = None;
            }
        }
        if let Some(change) = &mut out.change {
            d.of_mut(&mut change.rest).extend_from_slice(rest);
        }
    }

    fn gap(&mut self, d: Direction, _: u64, _: &mut Transactions) {
        *d.of_mut(&mut self.lines) = Line::default();
    }

    fn end(&mut self, _: Direction, _: &mut Transactions) {}

    fn memory(&self) -> usize {
        size_of::<Mail>() + self.lines.iter().map(Line::memory).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::Ports;
    use crate::app::tests::converse_all;
    use crate::packet::Direction::ToClient;

    #[test]
    fn tls_follows_if_it_is_granted() {
        let hello = b"\x16\x03\x01\x00\x01\x01";
        let parts: &[(Direction, &[u8])] = &[
            (ToClient, b"* OK IMAP4\r\n"),
            (ToServer, b"a1 starttls\r\n"),
            (ToClient, b"* note\r\na1 OK go\r\n"),
            (ToServer, hello),
        ];
        let c = converse_all(parts, Ports::default());
        assert_eq!((c.app(), c.before()), (App::Tls, Some(App::Imap)));
        let refused = converse_all(
            &[
                (ToClient, b"* OK IMAP4\r\n"),
                (ToServer, b"a1 STARTTLS\r\n"),
                (ToClient, b"a1 BAD no\r\na1 OK late\r\n"),
            ],
            Ports::default(),
        );
        assert_eq!(refused.app(), App::Imap);
    }
}
