//! Recognition of protocols from the first bytes of a flow, in either direction and whatever its ports: asks the probes of all rows of the table, the surest first.
//!
//! A stream is recognized by the first direction that shows it. A direction that shows nothing leaves the decision to the other, whose bytes are kept meanwhile.

#![expect(
    clippy::indexing_slicing,
    reason = "older than the lint: lengths are compared before; a place that is touched gets a checked access"
)]

use std::sync::LazyLock;

use super::PROTOCOLS;
use super::names::App;
use super::probe::{First, Look, Ports, Recognized, StreamProbe};
use super::protocol::Protocol;
use super::switches::Off;
use crate::packet::Direction;

/// Bytes kept of each direction while nothing is recognized.
const MOST_KEPT: usize = 16 * 1024;
/// Bytes of a direction from which on it is said to be of no known protocol, rather than too short.
const ENOUGH: usize = 16;
/// Segments kept while nothing is recognized.
const MOST_SEGMENTS: usize = 1024;
/// A first line that is longer belongs to no protocol known here.
const MOST_LINE: usize = 2048;

use Recognized::{Failed, More};

/// The probes of streams, the surest first; equally sure ones in the order of the table.
static PROBES: LazyLock<Vec<(App, StreamProbe)>> = LazyLock::new(|| {
    let rows = PROTOCOLS.iter().filter_map(|p| Some((p.app, p.stream?)));
    let mut probes: Vec<(App, StreamProbe)> = rows.collect();
    probes.sort_by_key(|(_, probe)| probe.certainty);
    probes
});

/// What the first bytes of one direction of a stream look like.
fn probe(first: &First<'_>, off: Off) -> Recognized {
    if first.bytes.is_empty() {
        return More;
    }
    let mut more = false;
    for (app, probe) in PROBES.iter() {
        if off.has(*app) {
            continue;
        }
        match (probe.look)(first) {
            Look::Yes => return Recognized::App(*app),
            Look::Maybe => more = true,
            Look::No => {}
        }
        if (probe.claims)(first) {
            break;
        }
    }
    match more && first.bytes.len() < MOST_LINE {
        true => More,
        false => Failed,
    }
}

/// The beginning of a stream whose protocol is not known yet.
#[derive(Debug)]
pub struct Recognizer {
    ports: Ports,
    /// First bytes of each direction.
    first: [Vec<u8>; 2],
    /// In which order they came: direction, length, time.
    order: Vec<(Direction, usize, u64)>,
    sides: [App; 2],
    /// Directions that nothing more is hoped of.
    over: [bool; 2],
    off: Off,
}

impl Recognizer {
    /// At the beginning of a stream.
    pub fn new(ports: Ports) -> Recognizer {
        Recognizer {
            ports,
            first: [Vec::new(), Vec::new()],
            order: Vec::new(),
            sides: [App::Unknown; 2],
            over: [false; 2],
            off: Off::default(),
        }
    }

    /// Without these protocols.
    pub(super) fn without(&mut self, off: Off) -> &mut Recognizer {
        self.off = off;
        self
    }

    /// The next bytes of one direction.
    pub fn stream(&mut self, direction: Direction, bytes: &[u8], time: u64) -> Recognized {
        let at = direction.index();
        self.first[at].extend_from_slice(bytes);
        self.order.push((direction, bytes.len(), time));
        if !self.over[at] && self.sides[at] == App::Unknown {
            let other = &self.first[1 - at];
            let first = First::new(direction, &self.first[at], other, self.ports);
            match probe(&first, self.off) {
                Recognized::App(app) => {
                    self.sides[at] = app;
                    return Recognized::App(app);
                }
                More => {}
                Failed => self.sides[at] = App::Failed,
            }
        }
        if self.sides == [App::Failed; 2]
            || self.first[at].len() > MOST_KEPT
            || self.order.len() > MOST_SEGMENTS
        {
            return Failed;
        }
        More
    }

    /// One datagram.
    pub(super) fn datagram(
        direction: Direction,
        bytes: &[u8],
        ports: Ports,
        off: Off,
    ) -> Recognized {
        // Shorter ones tell nothing.
        let first = First::new(direction, bytes, &[], ports);
        let is = |p: &&Protocol| {
            bytes.len() >= 4 && !off.has(p.app) && p.datagram.is_some_and(|is| is(&first))
        };
        match PROTOCOLS.iter().find(is) {
            Some(protocol) => Recognized::App(protocol.app),
            None => Failed,
        }
    }

    /// Bytes were lost in one direction, or it has ended; returns whether there is no hope left.
    pub fn gap(&mut self, direction: Direction) -> bool {
        *direction.of_mut(&mut self.over) = true;
        [0, 1]
            .iter()
            .all(|&i| self.over[i] || self.sides[i] == App::Failed)
    }

    /// Whether a direction said less than recognition may need.
    pub fn is_short(&self) -> bool {
        self.first.iter().any(|bytes| bytes.len() < ENOUGH)
    }

    /// What each direction looks like.
    pub fn sides(&self) -> [App; 2] {
        self.sides
    }

    /// Everything it was given, in order.
    pub fn seen(&self) -> impl Iterator<Item = (Direction, &[u8], u64)> {
        let mut at = [0; 2];
        self.order.iter().map(move |&(direction, length, time)| {
            let start = *direction.of(&at);
            *direction.of_mut(&mut at) += length;
            let first = direction.of(&self.first).get(start..start + length);
            let bytes = first.unwrap_or_default();
            (direction, bytes, time)
        })
    }

    /// The first bytes of a direction.
    pub fn first(&self, direction: Direction) -> &[u8] {
        direction.of(&self.first).as_slice()
    }

    /// Memory it holds.
    pub fn memory(&self) -> usize {
        self.first[0].capacity() + self.first[1].capacity() + self.order.capacity() * 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::App;
    use crate::packet::Direction::{ToClient, ToServer};

    fn stream(direction: Direction, bytes: &[u8], server: u16) -> Recognized {
        let ports = Ports {
            client: 40000,
            server,
        };
        let whole = Recognizer::new(ports).stream(direction, bytes, 0);
        // One byte at a time must come to the same end.
        let mut r = Recognizer::new(ports);
        let mut last = More;
        for b in bytes {
            last = r.stream(direction, &[*b], 0);
            if last != More {
                break;
            }
        }
        if whole != More {
            assert_eq!(last, whole, "{:?}", String::from_utf8_lossy(bytes));
        }
        whole
    }

    #[test]
    fn protocols_are_recognized_on_any_port_and_in_pieces() {
        for (direction, bytes, port, app) in [
            (ToServer, &b"GET / HTTP/1.1\r\n"[..], 9999, App::Http1),
            (ToServer, b"\r\nPOST /x HTTP/1.0\r\n", 53, App::Http1),
            (ToServer, b"FROBNICATE /x HTTP/1.1\r\n", 1, App::Http1),
            (ToServer, b"PRI * HTTP/2.0\r\n\r\nSM", 1, App::Http2),
            (ToServer, b"OPTIONS * HTTP/1.1\r\n", 5060, App::Http1),
            (ToServer, b"OPTIONS sip:a@b SIP/2.0\r\n", 80, App::Sip),
            (ToClient, b"HTTP/1.1 200 OK\r\n", 25, App::Http1),
            (ToClient, b"SSH-2.0-x\r\n", 443, App::Ssh),
            (ToServer, b"\x16\x03\x01\x02\x00\x01\x00", 80, App::Tls),
            (ToServer, b"\x80\x2e\x01\x00\x02\x00\x15", 80, App::Tls),
            (ToClient, b"\x16\x03\x03\x00\x40\x02\x00", 80, App::Tls),
            (ToClient, b"220 mail ESMTP ready\r\n", 80, App::Smtp),
            (ToClient, b"220 Welcome to FTP\r\n", 80, App::Ftp),
            (ToClient, b"220 hello\r\n", 21, App::Ftp),
            (ToServer, b"EHLO me\r\n", 80, App::Smtp),
            (ToServer, b"USER anonymous\r\n", 2121, App::Ftp),
            (ToClient, b"+OK ready\r\n", 9, App::Pop3),
            (ToClient, b"* OK IMAP4 ready\r\n", 9, App::Imap),
            (ToServer, b"a1 CAPABILITY\r\n", 9, App::Imap),
            (ToServer, b"\0\0\0\x20\xffSMBr", 9, App::Smb),
            (ToServer, b"\0\0\0\x20\xfeSMB@", 9, App::Smb),
            (ToServer, b"\xff\xfb\x18", 9, App::Telnet),
            (ToServer, b"\x30\x0c\x02\x01\x01\x60\x07", 9, App::Ldap),
            (
                ToClient,
                b"\x30\x84\0\0\0\x10\x02\x01\x01\x61",
                9,
                App::Ldap,
            ),
            (ToServer, b"\x03\x00\x00\x13\x0e\xe0", 9, App::Rdp),
            (ToServer, b"\x10\x0c\x00\x04MQTT\x04", 9, App::Mqtt),
        ] {
            assert_eq!(
                stream(direction, bytes, port),
                Recognized::App(app),
                "{:?}",
                String::from_utf8_lossy(bytes)
            );
        }
    }

    #[test]
    fn what_is_unknown_fails_in_the_end() {
        let mut r = Recognizer::new(Ports::default());
        assert_eq!(r.stream(ToServer, &[0xee; 24], 0), More);
        assert_eq!(r.stream(ToClient, &[0xee; 600], 0), Failed);
        let mut r = Recognizer::new(Ports::default());
        let mut last = More;
        for _ in 0..20 {
            last = r.stream(ToServer, &[b'a'; 1000], 0);
        }
        assert_eq!(last, Failed);
        assert!(!r.gap(ToClient) || r.gap(ToServer));
    }

    #[test]
    fn a_greeting_without_a_name_waits_for_the_client() {
        let mut r = Recognizer::new(Ports {
            client: 1,
            server: 8025,
        });
        assert_eq!(r.stream(ToClient, b"220 hi\r\n", 0), More);
        assert_eq!(
            r.stream(ToServer, b"EHLO x\r\n", 1),
            Recognized::App(App::Smtp)
        );
        let seen: Vec<_> = r.seen().map(|(d, b, t)| (d, b.to_vec(), t)).collect();
        assert_eq!(seen[0], (ToClient, b"220 hi\r\n".to_vec(), 0));
        assert_eq!(seen[1], (ToServer, b"EHLO x\r\n".to_vec(), 1));
    }
}
