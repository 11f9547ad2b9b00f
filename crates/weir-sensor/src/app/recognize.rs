//! Recognition of protocols from the first bytes of a flow, in either direction and whatever its ports. Ports decide only between protocols that look alike.
//!
//! A stream is recognized by the first direction that shows it. A direction that shows nothing leaves the decision to the other, whose bytes are kept meanwhile.

use crate::app::App;
use crate::app::bytes::{be16, be32};
use crate::packet::Direction;

/// Bytes kept of each direction while nothing is recognized.
const MOST_KEPT: usize = 16 * 1024;
/// Bytes of a direction from which on it is said to be of no known protocol, rather than too short.
const ENOUGH: usize = 16;
/// Segments kept while nothing is recognized.
const MOST_SEGMENTS: usize = 1024;
/// A first line that is longer belongs to no protocol known here.
const MOST_LINE: usize = 2048;

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

use Recognized::{Failed, More};

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
        }
    }

    /// The next bytes of one direction.
    pub fn stream(&mut self, direction: Direction, bytes: &[u8], time: u64) -> Recognized {
        let at = direction.index();
        self.first[at].extend_from_slice(bytes);
        self.order.push((direction, bytes.len(), time));
        if !self.over[at] && self.sides[at] == App::Unknown {
            let other = &self.first[1 - at];
            match probe(direction, &self.first[at], other, self.ports) {
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
    pub fn datagram(direction: Direction, bytes: &[u8], ports: Ports) -> Recognized {
        match datagram(direction, bytes, ports) {
            Some(app) => Recognized::App(app),
            None => Failed,
        }
    }

    /// Bytes were lost in one direction, or it has ended; returns whether there is no hope left.
    pub fn gap(&mut self, direction: Direction) -> bool {
        self.over[direction.index()] = true;
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
            let start = at[direction.index()];
            at[direction.index()] += length;
            let bytes = &self.first[direction.index()][start..start + length];
            (direction, bytes, time)
        })
    }

    /// The first bytes of a direction.
    pub fn first(&self, direction: Direction) -> &[u8] {
        &self.first[direction.index()]
    }

    /// Memory it holds.
    pub fn memory(&self) -> usize {
        self.first[0].capacity() + self.first[1].capacity() + self.order.capacity() * 32
    }
}

/// Compares with a prefix that may not be whole yet.
fn begins(bytes: &[u8], prefix: &[u8]) -> Option<bool> {
    let n = bytes.len().min(prefix.len());
    if !bytes[..n].eq_ignore_ascii_case(&prefix[..n]) {
        Some(false)
    } else {
        (n == prefix.len()).then_some(true)
    }
}

/// What the first bytes of one direction of a stream look like.
fn probe(direction: Direction, bytes: &[u8], other: &[u8], ports: Ports) -> Recognized {
    if bytes.is_empty() {
        return More;
    }
    let mut more = false;
    let mut ask = |r: Recognized| match r {
        Recognized::App(_) => Some(r),
        More => {
            more = true;
            None
        }
        Failed => None,
    };
    let server = direction == Direction::ToClient;
    let found = ask(http(server, bytes))
        .or_else(|| ask(tls(server, bytes)))
        .or_else(|| ask(prefixed(bytes, b"SSH-", App::Ssh)))
        .or_else(|| ask(smb(bytes)))
        .or_else(|| ask(text(server, bytes, other, ports)))
        .or_else(|| ask(binary(server, bytes, ports)));
    match found {
        Some(r) => r,
        None if more && bytes.len() < MOST_LINE => More,
        None => Failed,
    }
}

fn prefixed(bytes: &[u8], prefix: &[u8], app: App) -> Recognized {
    match begins(bytes, prefix) {
        Some(true) => Recognized::App(app),
        Some(false) => Failed,
        None => More,
    }
}

/// Methods of HTTP that requests begin with.
const METHODS: &[&[u8]] = &[
    b"GET",
    b"POST",
    b"HEAD",
    b"PUT",
    b"OPTIONS",
    b"CONNECT",
    b"DELETE",
    b"PATCH",
    b"TRACE",
    b"PROPFIND",
    b"PROPPATCH",
    b"MKCOL",
    b"COPY",
    b"MOVE",
    b"LOCK",
    b"UNLOCK",
    b"REPORT",
    b"MKACTIVITY",
    b"CHECKOUT",
    b"MERGE",
    b"VERSION-CONTROL",
    b"UNCHECKOUT",
    b"CHECKIN",
    b"UPDATE",
    b"LABEL",
    b"MKWORKSPACE",
    b"BASELINE-CONTROL",
    b"INVALID",
];

/// Whether a word is a method that requests begin with.
pub(super) fn is_method(word: &[u8]) -> bool {
    METHODS.contains(&word) || RARE.contains(&word)
}

/// Methods that are no sign of HTTP by themselves: other protocols have them, or few servers do.
const RARE: &[&[u8]] = &[
    b"SEARCH",
    b"NOTIFY",
    b"M-SEARCH",
    b"SUBSCRIBE",
    b"UNSUBSCRIBE",
    b"BITS_POST",
    b"CCM_POST",
    b"SSTP_DUPLEX_POST",
    b"RPC_CONNECT",
    b"RPC_IN_DATA",
    b"RPC_OUT_DATA",
    b"POLL",
    b"BPROPFIND",
    b"BPROPPATCH",
    b"BMOVE",
    b"BDELETE",
    b"BCOPY",
];

/// Whether the first bytes of a direction are, as far as they go, how HTTP/1 begins without doubt. What is no such beginning may be HTTP for all that.
pub(super) fn begins_like_http(direction: Direction, bytes: &[u8]) -> bool {
    let starts = |word: &[u8]| {
        let n = bytes.len().min(word.len());
        bytes[..n].eq_ignore_ascii_case(&word[..n])
    };
    match direction {
        Direction::ToClient => [&b"HTTP/0.9"[..], b"HTTP/1.0", b"HTTP/1.1"]
            .into_iter()
            .any(starts),
        Direction::ToServer => METHODS.iter().any(|method| {
            starts(method) && matches!(bytes.get(method.len()), None | Some(b' ' | b'\t'))
        }),
    }
}

fn http(server: bool, bytes: &[u8]) -> Recognized {
    let blank = |b: &u8| matches!(b, b'\r' | b'\n' | b' ' | b'\t');
    let start = bytes.iter().position(|b| !blank(b)).unwrap_or(bytes.len());
    let bytes = &bytes[start..];
    if bytes.is_empty() {
        return More;
    }
    if server {
        return prefixed(bytes, b"HTTP/", App::Http1);
    }
    let preface = prefixed(bytes, b"PRI * HTTP/2.0\r\n", App::Http2);
    if preface != Failed {
        return preface;
    }
    let word = bytes.iter().position(|b| b.is_ascii_whitespace());
    if let Some(end) = word {
        if METHODS
            .iter()
            .chain(RARE)
            .any(|m| m.eq_ignore_ascii_case(&bytes[..end]))
        {
            // "GET\n" alone is no request.
            if !matches!(bytes.get(end), Some(b' ' | b'\t')) {
                return Failed;
            }
            // SIP has some of these words, too.
            let shared = [&b"OPTIONS"[..], b"NOTIFY", b"SUBSCRIBE"];
            if shared.iter().any(|w| w.eq_ignore_ascii_case(&bytes[..end])) {
                match begins(&bytes[end + 1..], b"sip") {
                    Some(true) => return Failed,
                    None => return More,
                    Some(false) => {}
                }
            }
            return Recognized::App(App::Http1);
        }
    } else if bytes.len() > 32 {
        return Failed;
    } else {
        let token = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
        return if bytes.iter().all(token) {
            More
        } else {
            Failed
        };
    }
    // Any other word: the line must say its version.
    match memchr::memchr(b'\n', bytes) {
        Some(end) => {
            let line = bytes[..end].trim_ascii_end();
            let tail = line.len().checked_sub(9).map(|at| &line[at..]);
            if tail.is_some_and(|t| t.starts_with(b" HTTP/1.")) {
                Recognized::App(App::Http1)
            } else {
                Failed
            }
        }
        None if bytes
            .iter()
            .all(|b| *b >= 0x20 || matches!(b, b'\r' | b'\t')) =>
        {
            More
        }
        None => Failed,
    }
}

fn tls(server: bool, bytes: &[u8]) -> Recognized {
    if bytes[0] & 0x80 != 0 && !server {
        // An SSLv2 hello: length, type 1, version 2.0 or 3.x.
        if bytes.len() < 5 {
            return if bytes.get(2).is_none_or(|b| *b == 1) {
                More
            } else {
                Failed
            };
        }
        let version = u16::from_be_bytes([bytes[3], bytes[4]]);
        let good = bytes[2] == 1 && matches!(version, 2 | 0x0200 | 0x0300..=0x0304);
        return if good {
            Recognized::App(App::Tls)
        } else {
            Failed
        };
    }
    if !matches!(bytes[0], 0x15 | 0x16) {
        return Failed;
    }
    let rest = [
        bytes.get(1).is_none_or(|b| *b == 3),
        bytes.get(2).is_none_or(|b| *b <= 4),
        bytes.get(3).is_none_or(|b| *b <= 0x48),
    ];
    if rest.contains(&false) {
        return Failed;
    }
    let Some(kind) = bytes.get(5) else {
        return More;
    };
    let good = match bytes[0] {
        0x15 => bytes[3..5] == [0, 2] && matches!(kind, 1 | 2),
        _ => *kind == if server { 2 } else { 1 },
    };
    if good {
        Recognized::App(App::Tls)
    } else {
        Failed
    }
}

fn smb(bytes: &[u8]) -> Recognized {
    // A NetBIOS session request comes before on port 139.
    let session = matches!(bytes[0], 0x81..=0x83) && bytes.get(1).is_none_or(|b| *b == 0);
    let message = if session {
        let length = match (bytes.get(2), bytes.get(3)) {
            (Some(a), Some(b)) => usize::from(u16::from_be_bytes([*a, *b])),
            _ => return More,
        };
        if length > 256 {
            return Failed;
        }
        match bytes.get(4 + length..) {
            Some([]) | None => return More,
            Some(rest) => rest,
        }
    } else {
        bytes
    };
    if message[0] != 0 {
        return Failed;
    }
    let Some(id) = message.get(4..) else {
        return More;
    };
    if id.first().is_some_and(|b| !matches!(b, 0xfd..=0xff)) {
        return Failed;
    }
    match id.get(1..) {
        Some(rest) => prefixed(rest, b"SMB", App::Smb),
        None => More,
    }
}

/// Protocols of lines.
fn text(server: bool, bytes: &[u8], other: &[u8], ports: Ports) -> Recognized {
    let line_end = memchr::memchr(b'\n', bytes);
    let line = &bytes[..line_end.unwrap_or(bytes.len())];
    if line
        .iter()
        .any(|b| *b == 0 || (*b < 0x20 && !matches!(b, b'\r' | b'\t')))
    {
        return Failed;
    }
    if server {
        // A server of POP3 speaks first; others answer with these words, too.
        let first = b"USER PASS APOP CAPA AUTH STLS QUIT NOOP STAT";
        let asked = other.get(..4).is_some_and(|word| {
            let word = word.to_ascii_uppercase();
            !first.split(|b| *b == b' ').any(|w| w == word)
        });
        for (prefix, app) in [(&b"+OK"[..], App::Pop3), (b"-ERR", App::Pop3)]
            .into_iter()
            .filter(|_| !asked)
            .chain([
                (&b"* OK"[..], App::Imap),
                (b"* PREAUTH", App::Imap),
                (b"SIP/2.0 ", App::Sip),
                (b"RFB 003.", App::Rfb),
            ])
        {
            match prefixed(bytes, prefix, app) {
                Failed => {}
                r => return r,
            }
        }
        if begins(bytes, b"220") == Some(false) {
            return Failed;
        }
        if line_end.is_none() {
            return More;
        }
        // SMTP and FTP greet alike: their own words, then the client's command, then the port decide.
        let all: Vec<u8> = bytes.iter().map(u8::to_ascii_uppercase).collect();
        let has = |w: &[u8]| memchr::memmem::find(&all, w).is_some();
        return if has(b"SMTP") {
            Recognized::App(App::Smtp)
        } else if has(b"FTP") {
            Recognized::App(App::Ftp)
        } else {
            match ports.server {
                21 => Recognized::App(App::Ftp),
                25 | 465 | 587 | 2525 => Recognized::App(App::Smtp),
                _ => More,
            }
        };
    }
    for (prefix, app) in [
        (&b"EHLO "[..], App::Smtp),
        (b"HELO ", App::Smtp),
        (b"LHLO ", App::Smtp),
        (b"FEAT\r", App::Ftp),
        (b"AUTH TLS", App::Ftp),
        (b"AUTH SSL", App::Ftp),
        (b"PASV\r", App::Ftp),
        (b"EPSV\r", App::Ftp),
        (b"SYST\r", App::Ftp),
        (b"CAPA\r", App::Pop3),
        (b"RFB 003.", App::Rfb),
        (b"INVITE sip", App::Sip),
        (b"REGISTER sip", App::Sip),
        (b"OPTIONS sip", App::Sip),
        (b"NOTIFY sip", App::Sip),
        (b"SUBSCRIBE sip", App::Sip),
        (b"MAIL FROM:", App::Smtp),
    ] {
        match prefixed(bytes, prefix, app) {
            Failed => {}
            r => return r,
        }
    }
    for prefix in [&b"USER "[..], b"PASS "] {
        match begins(bytes, prefix) {
            None => return More,
            Some(false) => {}
            Some(true) if line_end.is_none() => return More,
            // POP3 and FTP begin alike; a server that greeted decides, then the port. IRC's has four words.
            Some(true) => {
                let words = line
                    .split(u8::is_ascii_whitespace)
                    .filter(|w| !w.is_empty())
                    .count();
                return if words > 3 {
                    Failed
                } else if other.starts_with(b"+OK") || (other.is_empty() && ports.server == 110) {
                    Recognized::App(App::Pop3)
                } else {
                    Recognized::App(App::Ftp)
                };
            }
        }
    }
    // IMAP: a tag, then a command.
    let mut words = line.split(|b| *b == b' ');
    let (tag, command) = (words.next().unwrap_or_default(), words.next());
    let tagged = !tag.is_empty() && tag.len() <= 8 && tag.iter().all(u8::is_ascii_alphanumeric);
    match command {
        Some(command) if tagged => {
            let command = command.trim_ascii_end().to_ascii_uppercase();
            let known = [
                &b"CAPABILITY"[..],
                b"LOGIN",
                b"STARTTLS",
                b"AUTHENTICATE",
                b"ID",
                b"NAMESPACE",
            ];
            if line_end.is_none() {
                More
            } else if known.contains(&command.as_slice()) {
                Recognized::App(App::Imap)
            } else {
                Failed
            }
        }
        None if tagged && line_end.is_none() => More,
        _ => Failed,
    }
}

/// Protocols of messages in a stream.
fn binary(server: bool, bytes: &[u8], ports: Ports) -> Recognized {
    // Telnet negotiates.
    if bytes[0] == 0xff {
        return match bytes.get(1..3) {
            Some([0xfb..=0xfe, option]) if *option < 50 => Recognized::App(App::Telnet),
            Some(_) => Failed,
            None => More,
        };
    }
    // DCE/RPC: version 5.0 or 5.1, a bind or its answer, data representation, fragment length.
    if bytes[0] == 5 && bytes.get(1).is_none_or(|b| *b <= 1) {
        let kind = if server { 12..=13 } else { 11..=14 };
        return match bytes.get(..10) {
            Some(h) => {
                let ends = [h[8], h[9]];
                let length = match h[4] {
                    0x10 => u16::from_le_bytes(ends),
                    0 => u16::from_be_bytes(ends),
                    _ => return Failed,
                };
                if kind.contains(&h[2]) && length >= 16 {
                    Recognized::App(App::Dcerpc)
                } else {
                    Failed
                }
            }
            None => More,
        };
    }
    // RDP: TPKT, then a connection request or confirm of X.224.
    if bytes[0] == 3 && bytes.get(1).is_none_or(|b| *b == 0) {
        return match bytes.get(5) {
            Some(code) if *code == if server { 0xd0 } else { 0xe0 } => Recognized::App(App::Rdp),
            Some(_) => Failed,
            None => More,
        };
    }
    // LDAP: a sequence, the number of the message, what is asked or answered.
    if bytes[0] == 0x30 {
        let at = match bytes.get(1) {
            Some(n @ 0x81..=0x84) => 2 + usize::from(n - 0x80),
            Some(n) if *n < 0x80 => 2,
            Some(_) => return Failed,
            None => return More,
        };
        let length = match bytes.get(at..at + 2) {
            Some([2, n @ 1..=4]) => usize::from(*n),
            Some(_) => return Failed,
            None => return More,
        };
        let known: &[u8] = match server {
            true => &[
                0x61, 0x64, 0x65, 0x67, 0x69, 0x6b, 0x6d, 0x6f, 0x73, 0x78, 0x79,
            ],
            false => &[0x42, 0x60, 0x63, 0x66, 0x68, 0x4a, 0x6c, 0x6e, 0x50, 0x77],
        };
        return match bytes.get(at + 2 + length) {
            Some(what) if known.contains(what) => Recognized::App(App::Ldap),
            Some(_) => Failed,
            None => More,
        };
    }
    // MQTT: CONNECT with its name, or CONNACK.
    if bytes[0] == 0x10 && !server {
        let name = bytes.iter().skip(1).take(4).position(|b| b & 0x80 == 0);
        return match name.and_then(|n| bytes.get(n + 2..n + 8)) {
            Some(n) if &n[..6] == b"\0\x04MQTT" || &n[..6] == b"\0\x06MQIs" => {
                Recognized::App(App::Mqtt)
            }
            Some(_) => Failed,
            None => More,
        };
    }
    // An HTTP/2 server begins with its settings.
    if server && bytes.len() >= 9 && bytes[0] == 0 && bytes[1] == 0 && bytes[3] == 4 {
        let length = bytes[2];
        if bytes[4] == 0 && bytes[5..9] == [0; 4] && length.is_multiple_of(6) && length <= 60 {
            return Recognized::App(App::Http2);
        }
    }
    // Kerberos: length, then an application tag of ASN.1.
    if ports.server == 88
        && let Some(tag) = bytes.get(4)
    {
        return if matches!(tag, 0x6a..=0x7e) {
            Recognized::App(App::Krb5)
        } else {
            Failed
        };
    }
    // NFS: a record mark, then a call of its program.
    if bytes[0] & 0x80 != 0 && !server {
        let Some(program) = be32(bytes, 16) else {
            return More;
        };
        let call = be32(bytes, 8) == Some(0) && be32(bytes, 12) == Some(2);
        return if call && program == 100_003 {
            Recognized::App(App::Nfs)
        } else {
            Failed
        };
    }
    let Some(length) = be16(bytes, 0) else {
        return More;
    };
    if length < 12 || length > 8 * 1024 && ports.server != 53 {
        return Failed;
    }
    // DNS: a length, then a message. The whole question must be there and make sense.
    match super::dns::looks_like(&bytes[2..], usize::from(length), server, ports.server == 53) {
        Some(true) => Recognized::App(App::Dns),
        Some(false) => Failed,
        None => More,
    }
}

/// What a datagram looks like.
fn datagram(direction: Direction, b: &[u8], ports: Ports) -> Option<App> {
    let server = direction == Direction::ToClient;
    let either = |p: u16| ports.server == p || ports.client == p;
    if b.len() < 4 {
        return None;
    }
    // Name services of the link look like DNS and are not what rules for DNS are about.
    if !either(5353) && !either(5355) && !either(137) {
        let response = b[2] & 0x80 != 0;
        if super::dns::looks_like(b, b.len(), response, either(53)) == Some(true) {
            return Some(App::Dns);
        }
    }
    if either(5353) && super::dns::looks_like(b, b.len(), b[2] & 0x80 != 0, true) == Some(true) {
        return Some(App::Mdns);
    }
    if b[0] & 0x80 != 0 && super::quic::looks_like(b) {
        return Some(App::Quic);
    }
    if b.len() >= 240 && matches!(b[0], 1 | 2) && b[236..240] == [0x63, 0x82, 0x53, 0x63] {
        return Some(App::Dhcp);
    }
    // Without their ports these are too alike to chance.
    if either(123) && b.len() >= 48 && matches!(b[0] & 7, 1..=7) && b[0] >> 3 & 7 <= 4 {
        return Some(App::Ntp);
    }
    if (either(500) || either(4500)) && b.len() >= 28 {
        let ike = if b[..4] == [0; 4] { &b[4..] } else { b };
        if matches!(ike.get(17), Some(0x10 | 0x20))
            && be32(ike, 24).is_some_and(|n| n as usize == ike.len())
        {
            return Some(App::Ike);
        }
    }
    if matches!(b[..2], [0, 1 | 2]) && !server {
        let mut words = b[2..].split(|b| *b == 0);
        let name = words.next().unwrap_or_default();
        let mode = words.next().unwrap_or_default().to_ascii_lowercase();
        if !name.is_empty() && matches!(mode.as_slice(), b"netascii" | b"octet" | b"mail") {
            return Some(App::Tftp);
        }
    }
    if super::snmp::looks_like(b) {
        return Some(App::Snmp);
    }
    for start in [
        &b"SIP/2.0 "[..],
        b"INVITE sip",
        b"REGISTER sip",
        b"OPTIONS sip",
        b"ACK sip",
        b"BYE sip",
        b"CANCEL sip",
        b"SUBSCRIBE sip",
        b"NOTIFY sip",
        b"MESSAGE sip",
    ] {
        if b.starts_with(start) {
            return Some(App::Sip);
        }
    }
    if either(88) && matches!(b[0], 0x6a..=0x7e) {
        return Some(App::Krb5);
    }
    if !server && be32(b, 4) == Some(0) && be32(b, 8) == Some(2) && be32(b, 12) == Some(100_003) {
        return Some(App::Nfs);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
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
