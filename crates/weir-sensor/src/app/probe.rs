//! What probes of protocols are given: the first bytes of a flow, in one direction. Ports decide only between protocols that look alike.

use std::cell::OnceCell;

use super::names::App;
use crate::packet::Direction;

/// Ports of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// Of who opened it.
    pub client: u16,
    /// Of the other end.
    pub server: u16,
}

/// What is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recognized {
    /// More bytes are needed.
    More,
    /// This protocol.
    App(App),
    /// None that is known.
    Failed,
}

/// What a probe says of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// It is not of this protocol.
    No,
    /// It may be: more bytes are needed.
    Maybe,
    /// It is.
    Yes,
}

/// How surely a probe tells its protocol from others. Surer ones are asked first, and the first `Yes` decides; equally sure ones in the order of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Certainty {
    /// By what only this protocol begins with.
    Sure,
    /// By a word in a line of text.
    Word,
    /// By the first byte and the form of what follows.
    Form,
    /// By a form that others may have by chance.
    Chance,
}

/// How the beginning of a stream shows a protocol.
#[derive(Clone, Copy)]
pub struct StreamProbe {
    /// How surely.
    pub certainty: Certainty,
    /// Looks at the first bytes of a direction; there is at least one.
    pub look: fn(&First<'_>) -> Look,
    /// Whether what begins so is of this protocol or of none: no later probe is asked.
    pub claims: fn(&First<'_>) -> bool,
}

impl StreamProbe {
    /// One that leaves to others what it does not know.
    pub const fn new(certainty: Certainty, look: fn(&First<'_>) -> Look) -> StreamProbe {
        StreamProbe {
            certainty,
            look,
            claims: |_| false,
        }
    }
}

/// The first bytes of one direction of a stream, or a datagram.
pub struct First<'a> {
    /// Which direction.
    pub direction: Direction,
    /// The bytes.
    pub bytes: &'a [u8],
    /// The first bytes of the other direction.
    pub other: &'a [u8],
    /// Ports of the flow.
    pub ports: Ports,
    line: OnceCell<Option<Line<'a>>>,
}

/// The first line, if it is text.
#[derive(Clone, Copy)]
pub struct Line<'a> {
    /// Its bytes, without the newline.
    pub bytes: &'a [u8],
    /// Its newline has come.
    pub whole: bool,
}

impl<'a> First<'a> {
    /// Of a direction.
    pub fn new(direction: Direction, bytes: &'a [u8], other: &'a [u8], ports: Ports) -> First<'a> {
        First {
            direction,
            bytes,
            other,
            ports,
            line: OnceCell::new(),
        }
    }

    /// Whether the server says this.
    pub fn is_server(&self) -> bool {
        self.direction == Direction::ToClient
    }

    /// Whether either port is this one.
    pub fn has_port(&self, port: u16) -> bool {
        self.ports.server == port || self.ports.client == port
    }

    /// A byte.
    pub fn at(&self, place: usize) -> Option<u8> {
        self.bytes.get(place).copied()
    }

    /// The first line; `None`: it has control characters, and is no text.
    pub fn line(&self) -> Option<Line<'a>> {
        *self.line.get_or_init(|| {
            let end = memchr::memchr(b'\n', self.bytes);
            let bytes = self.bytes.get(..end.unwrap_or(self.bytes.len()))?;
            let control = |b: &u8| *b < 0x20 && !matches!(b, b'\r' | b'\t');
            (!bytes.iter().any(control)).then_some(Line {
                bytes,
                whole: end.is_some(),
            })
        })
    }

    /// Whether the bytes begin with one of these prefixes, in either case.
    pub fn begins_with(&self, prefixes: &[&[u8]]) -> Look {
        let looks = prefixes.iter().map(|p| prefixed(self.bytes, p));
        looks.fold(Look::No, |all, one| match (all, one) {
            (Look::Yes, _) | (_, Look::Yes) => Look::Yes,
            (Look::Maybe, _) | (_, Look::Maybe) => Look::Maybe,
            _ => Look::No,
        })
    }
}

/// Compares with a prefix that may not be whole yet; `None`: it is right as far as it goes.
pub(super) fn begins(bytes: &[u8], prefix: &[u8]) -> Option<bool> {
    let n = bytes.len().min(prefix.len());
    let same = bytes.iter().zip(prefix);
    if !same.into_iter().all(|(a, b)| a.eq_ignore_ascii_case(b)) {
        Some(false)
    } else {
        (n == prefix.len()).then_some(true)
    }
}

/// The same as what a probe says.
pub(super) fn prefixed(bytes: &[u8], prefix: &[u8]) -> Look {
    match begins(bytes, prefix) {
        Some(true) => Look::Yes,
        Some(false) => Look::No,
        None => Look::Maybe,
    }
}
