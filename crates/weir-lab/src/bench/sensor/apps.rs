//! Mixes for the bench: web pages, filler, applications side by side, and bodies that were made to cost much. Clients are in the conventional HOME_NET and servers are not, so that published
//! rules apply.

use std::net::Ipv4Addr;
use std::time::Duration;

use weir_packet::build::Frame;

use super::bodies::{Kind, Numbers};
use crate::generate::Mix;

const CLIENT: [u8; 4] = [10, 0, 0, 1];
const SERVER: [u8; 4] = [198, 51, 100, 1];
const CLIENT_PORT: u16 = 40_000;
const SEGMENT: usize = 1448;
const FIN: u8 = 1;
const SYN: u8 = 2;
const PUSH: u8 = 8;
const ACK: u8 = 16;

/// Traffic that the bench makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    /// Web pages.
    Html,
    /// Pages, scripts, styles, data and images.
    Web,
    /// Bodies of one byte or one phrase again and again.
    Filler,
    /// HTTP, TLS, DNS, mail and SMB.
    Apps,
    /// Bodies against published rules that once stopped sensors.
    Hostile,
}

impl Made {
    /// All, by their names.
    pub const ALL: [(&'static str, Made); 5] = [
        ("html", Made::Html),
        ("web", Made::Web),
        ("filler", Made::Filler),
        ("apps", Made::Apps),
        ("hostile", Made::Hostile),
    ];

    /// By its name.
    ///
    /// # Errors
    /// There is none of that name; the text lists those that there are.
    pub fn named(name: &str) -> Result<Made, String> {
        let found = Made::ALL.iter().find(|(known, _)| *known == name);
        found.map(|(_, made)| *made).ok_or_else(|| {
            let names: Vec<&str> = Made::ALL.iter().map(|(name, _)| *name).collect();
            format!("unknown traffic `{name}`; known: {}", names.join(", "))
        })
    }

    pub(super) fn name(self) -> &'static str {
        Made::ALL
            .iter()
            .find(|(_, made)| *made == self)
            .map_or("", |(name, _)| name)
    }

    pub(super) fn mix(self) -> Result<Mix, String> {
        let mut mix = Mix::between(
            (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 15, 254)),
            (
                Ipv4Addr::new(198, 51, 100, 1),
                Ipv4Addr::new(198, 51, 103, 254),
            ),
        )
        .ok_or("the addresses are not a range")?;
        let gap = Duration::from_micros(100);
        let mut add = |frames, rate| mix.add(frames, rate, gap, 20 * gap);
        match self {
            Made::Html => {
                for seed in 0..40 {
                    let body = Kind::Page.body(4_000 + 1_500 * seed as usize, seed);
                    add(web(&[(Kind::Page, body)], seed), 10.0)?;
                }
            }
            Made::Web => {
                for seed in 0..40 {
                    add(web(&objects(seed), seed), 10.0)?;
                }
            }
            Made::Filler => {
                let fill = |unit: &[u8], length: usize| -> Vec<u8> {
                    unit.iter().copied().cycle().take(length).collect()
                };
                for (seed, unit) in (0..).zip([
                    &b"x"[..],
                    b"\0",
                    b"0123456789abcdef",
                    b"lorem ipsum dolor sit amet ",
                    b"a b ",
                ]) {
                    add(web(&[(Kind::Page, fill(unit, 60_000))], seed), 20.0)?;
                }
            }
            Made::Apps => {
                for seed in 0..12 {
                    add(web(&objects(seed), seed), 8.0)?;
                    add(tls(seed), 20.0)?;
                    add(dns(seed), 60.0)?;
                    add(mail(seed), 3.0)?;
                    add(smb(seed), 4.0)?;
                }
            }
            Made::Hostile => {
                for (seed, body) in (0..).zip(hostile()) {
                    add(web(&[(Kind::Page, body)], seed), 10.0)?;
                }
            }
        }
        Ok(mix)
    }
}

/// What a page of the web consists of.
fn objects(seed: u64) -> Vec<(Kind, Vec<u8>)> {
    let mut n = Numbers(seed ^ 0x5eed);
    let mut all = Vec::new();
    for (kind, most) in [
        (Kind::Page, 40_000),
        (Kind::Script, 60_000),
        (Kind::Style, 20_000),
        (Kind::Data, 8_000),
        (Kind::Image, 50_000),
    ] {
        let length = 1_000 + n.below(most);
        all.push((kind, kind.body(length, seed)));
    }
    all
}

/// Bodies in which contents and expressions of published rules nearly match, again and again.
fn hostile() -> Vec<Vec<u8>> {
    let repeat = |head: &[u8], unit: &[u8], length: usize, tail: &[u8]| -> Vec<u8> {
        let mut body = head.to_vec();
        body.extend(unit.iter().cycle().take(length));
        body.extend_from_slice(tail);
        body
    };
    vec![
        [
            &b"<script"[..],
            &b"<".repeat(3_000),
            &b"g".repeat(90_000),
            b".length x",
        ]
        .concat(),
        repeat(b"createElement(\"div\")", b"for(a=0;aa<1;", 90_000, b""),
        repeat(b"unescape", b"'%u'%u4141", 90_000, b""),
        repeat(b"<object ", b"classid='clsid:", 90_000, b""),
        repeat(b"eval(", b"String.fromCharCode(", 90_000, b"x"),
    ]
}

/// Objects fetched one after the other.
fn web(objects: &[(Kind, Vec<u8>)], seed: u64) -> Vec<(u64, Vec<u8>)> {
    let mut turns = Vec::new();
    for (at, (kind, body)) in objects.iter().enumerate() {
        turns.push((
            false,
            format!(
                "GET /{seed}/object{at}.{} HTTP/1.1\r\nHost: www.weir.example\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\nAccept: */*\r\nAccept-Language: en-US,en;q=0.5\r\nConnection: keep-alive\r\nReferer: http://www.weir.example/{seed}/\r\n\r\n",
                kind.ending()
            )
            .into_bytes(),
        ));
        let mut answer = format!(
            "HTTP/1.1 200 OK\r\nServer: nginx\r\nContent-Type: {}\r\nContent-Length: {}\r\nCache-Control: max-age=3600\r\nConnection: keep-alive\r\n\r\n",
            kind.media_type(),
            body.len()
        )
        .into_bytes();
        answer.extend_from_slice(body);
        turns.push((true, answer));
    }
    session(80, &turns)
}

fn random(length: usize, seed: u64) -> Vec<u8> {
    let mut n = Numbers(seed);
    (0..length).map(|_| n.below(256) as u8).collect()
}

/// A record of TLS 1.2.
fn record(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind, 3, 3][..], &(body.len() as u16).to_be_bytes(), body].concat()
}

/// A handshake with a name, and encrypted records.
fn tls(seed: u64) -> Vec<(u64, Vec<u8>)> {
    let name = format!("host{seed}.weir.example");
    let size = name.len() as u16;
    let mut extension = vec![0, 0];
    extension.extend((size + 5).to_be_bytes());
    extension.extend((size + 3).to_be_bytes());
    extension.push(0);
    extension.extend(size.to_be_bytes());
    extension.extend(name.as_bytes());
    let hello = |kind: u8, rest: &[u8]| {
        let mut body = vec![3, 3];
        body.extend(random(32, seed + u64::from(kind)));
        body.push(0);
        body.extend(rest);
        let length = (body.len() as u32).to_be_bytes();
        record(22, &[&[kind], &length[1..], &body[..]].concat())
    };
    let extensions = (extension.len() as u16).to_be_bytes();
    let client = hello(
        1,
        &[
            &[0, 4, 0xc0, 0x2f, 0x13, 1, 1, 0][..],
            &extensions,
            &extension,
        ]
        .concat(),
    );
    let server = hello(2, &[0xc0, 0x2f, 0, 0, 0]);
    let changed = record(20, &[1]);
    let finished = |seed| [&changed[..], &record(22, &random(40, seed))].concat();
    let data = |length, seed| record(23, &random(length, seed));
    session(
        443,
        &[
            (false, client),
            (true, server),
            (false, finished(seed + 10)),
            (true, finished(seed + 11)),
            (false, data(400, seed + 12)),
            (
                true,
                [data(14_000, seed + 13), data(9_000, seed + 14)].concat(),
            ),
        ],
    )
}

/// A question and its answer.
fn dns(seed: u64) -> Vec<(u64, Vec<u8>)> {
    let mut name = Vec::new();
    for label in [&format!("www{seed}")[..], "weir", "example"] {
        name.push(label.len() as u8);
        name.extend(label.as_bytes());
    }
    name.extend([0, 0, 1, 0, 1]);
    let message = |flags: [u8; 2], answer: &[u8]| {
        let head = [
            0x12,
            0x34,
            flags[0],
            flags[1],
            0,
            1,
            0,
            u8::from(!answer.is_empty()),
            0,
            0,
            0,
            0,
        ];
        [&head[..], &name, answer].concat()
    };
    let address = [0xc0, 12, 0, 1, 0, 1, 0, 0, 1, 0, 0, 4, 203, 0, 113, 1];
    let question = Frame::new().ip4(CLIENT, SERVER).udp(CLIENT_PORT, 53);
    let answer = Frame::new().ip4(SERVER, CLIENT).udp(53, CLIENT_PORT);
    vec![
        (0, question.payload(&message([1, 0], &[])).build()),
        (0, answer.payload(&message([0x81, 0x80], &address)).build()),
    ]
}

/// A mail with a page in it.
fn mail(seed: u64) -> Vec<(u64, Vec<u8>)> {
    let text = |line: &str| line.as_bytes().to_vec();
    let mut message = text(
        "From: a@weir.example\r\nTo: b@weir.example\r\nSubject: report\r\nMIME-Version: 1.0\r\nContent-Type: text/html\r\n\r\n",
    );
    for line in Kind::Page.body(12_000, seed).split(|b| *b == b'\n') {
        message.extend_from_slice(line);
        message.extend_from_slice(b"\r\n");
    }
    message.extend_from_slice(b".\r\n");
    session(
        25,
        &[
            (true, text("220 mail.weir.example ESMTP\r\n")),
            (false, text("EHLO client.weir.example\r\n")),
            (true, text("250-mail.weir.example\r\n250 8BITMIME\r\n")),
            (false, text("MAIL FROM:<a@weir.example>\r\n")),
            (true, text("250 ok\r\n")),
            (false, text("RCPT TO:<b@weir.example>\r\n")),
            (true, text("250 ok\r\n")),
            (false, text("DATA\r\n")),
            (true, text("354 go\r\n")),
            (false, message),
            (true, text("250 queued\r\n")),
            (false, text("QUIT\r\n")),
            (true, text("221 bye\r\n")),
        ],
    )
}

/// Reads of a file over SMB 2.
fn smb(seed: u64) -> Vec<(u64, Vec<u8>)> {
    let message = |command: u8, response: bool, number: u64, body: &[u8]| {
        let mut message = b"\xfeSMB\x40\0\0\0\0\0\0\0".to_vec();
        message.extend([command, 0, 1, 0, u8::from(response), 0, 0, 0, 0, 0, 0, 0]);
        message.extend(number.to_le_bytes());
        message.extend([0, 0, 0, 0, 5, 0, 0, 0]);
        message.resize(64, 0);
        message.extend(body);
        [&(message.len() as u32).to_be_bytes()[..], &message].concat()
    };
    let mut turns = Vec::new();
    for number in 0..6 {
        let mut read = vec![49, 0, 80, 0];
        read.extend(8_000_u32.to_le_bytes());
        read.resize(49, 0);
        let mut answer = vec![17, 0, 80, 0];
        answer.extend(8_000_u32.to_le_bytes());
        answer.resize(16, 0);
        answer.extend(random(8_000, seed + number));
        turns.push((false, message(8, false, number, &read)));
        turns.push((true, message(8, true, number, &answer)));
    }
    session(445, &turns)
}

/// A connection in which the ends take turns (`true`: the server), each half acknowledged every other segment.
fn session(port: u16, turns: &[(bool, Vec<u8>)]) -> Vec<(u64, Vec<u8>)> {
    let mut frames = Vec::new();
    let mut next = [1_000_u32, 9_000];
    let mut send = |server: bool, flags: u8, bytes: &[u8]| {
        let (from, to) = if server {
            (SERVER, CLIENT)
        } else {
            (CLIENT, SERVER)
        };
        let ports = if server {
            (port, CLIENT_PORT)
        } else {
            (CLIENT_PORT, port)
        };
        let (own, other) = (usize::from(server), usize::from(!server));
        let acknowledged = if flags & ACK == 0 { 0 } else { next[other] };
        let frame = Frame::new()
            .ip4(from, to)
            .tcp(ports.0, ports.1)
            .flags(flags)
            .numbers(next[own], acknowledged)
            .payload(bytes);
        let control = u32::from(flags & (SYN | FIN) != 0);
        next[own] = next[own].wrapping_add(bytes.len() as u32 + control);
        frames.push((0, frame.build()));
    };
    send(false, SYN, b"");
    send(true, SYN | ACK, b"");
    send(false, ACK, b"");
    for (server, bytes) in turns {
        let last = bytes.chunks(SEGMENT).count().saturating_sub(1);
        for (at, segment) in bytes.chunks(SEGMENT).enumerate() {
            let push = if at == last { PUSH } else { 0 };
            send(*server, ACK | push, segment);
            if at % 2 == 1 || at == last {
                send(!server, ACK, b"");
            }
        }
    }
    send(false, FIN | ACK, b"");
    send(true, FIN | ACK, b"");
    send(false, ACK, b"");
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_traffic_is_a_mix() {
        for (name, made) in Made::ALL {
            assert_eq!(Made::named(name), Ok(made));
            let (packets, bits, flows) = made.mix().expect(name).rates(1.0);
            assert!(
                packets > 5.0 * flows && bits > 100.0 * packets,
                "{name}: {packets} {bits} {flows}"
            );
        }
        assert!(Made::named("none").expect_err("unknown").contains("html"));
    }
}
