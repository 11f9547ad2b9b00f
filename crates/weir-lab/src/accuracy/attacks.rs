//! Cases: client side, bad traffic, fragments, shell codes, denial of service, brute force.

use weir_packet::build::Frame;

use super::tape::{
    ATTACKER, Client, INSIDE, MS, OUTSIDE, SERVER, Server, Tape, Tcp, answer, base64, between,
    chunked, deflate, fragments, get, greeted, gzip, page, session, v4, web,
};
use super::{Case, Class, case};

const SPRAY: &[u8] = b"<html><script>var a = unescape(\"%u9090%u9090%u4141\"); while (a.length < 0x40000) a += a;</script></html>";
const FRAME: &[u8] =
    b"<html><body><IFRAME src='http://198.51.100.7/x' width=0 height=0></iframe></body></html>";
pub(super) const DOS_PROGRAM: &[u8] = b"MZ\x90\x00\x03\x00\x00\x00\x04\x00\x00\x00\xff\xff\x00\x00\xb8\x00\x00\x00\x00\x00\x00\x00\x40\x00This program cannot be run in DOS mode.\r\r\n$";
const SCRIPT: &[u8] =
    b"<html><script>eval(String.fromCharCode(97,108,101,114,116))</script></html>";

fn pdf() -> Vec<u8> {
    let mut bytes = b"%PDF-1.4\n1 0 obj\n<< /Type /Catalog /OpenAction 4 0 R >>\nendobj\n".to_vec();
    bytes.extend_from_slice(&b"% nothing to see here\n".repeat(40));
    bytes.extend_from_slice(
        b"4 0 obj\n<< /S /JavaScript /JS (app.alert\\(1\\)) >>\nendobj\n%%EOF\n",
    );
    bytes
}

/// A page of `size` bytes around something.
fn around(what: &[u8], size: usize) -> Vec<u8> {
    let mut bytes = b"<html>\n".to_vec();
    while bytes.len() + what.len() < size {
        bytes.extend_from_slice(
            format!("<p>Line {} of a page about gardens.</p>\n", bytes.len()).as_bytes(),
        );
    }
    bytes.extend_from_slice(what);
    bytes
}

pub(super) fn client_side() -> Vec<Case> {
    let download = |name: &str, sid: u32, said: &[u8]| {
        let mut tape = Tape::new();
        web(
            &mut tape,
            (INSIDE, 40_001),
            OUTSIDE,
            &get("/download"),
            said,
        );
        case(Class::ClientSide, name, tape).fires(sid, 1)
    };
    let mut cases = vec![
        download(
            "script with a heap spray",
            910_101,
            &answer("text/html", "", SPRAY),
        ),
        download(
            "script with a heap spray, gzip",
            910_101,
            &answer(
                "text/html",
                "Content-Encoding: gzip\r\n",
                &gzip(&around(SPRAY, 9_000)),
            ),
        ),
        download(
            "script with a heap spray, deflate",
            910_101,
            &answer(
                "text/html",
                "Content-Encoding: deflate\r\n",
                &deflate(&around(SPRAY, 9_000)),
            ),
        ),
        download(
            "script with a heap spray, chunks of 7 bytes",
            910_101,
            &chunked("text/html", "", SPRAY, 7),
        ),
        download(
            "script with a heap spray, gzip in chunks",
            910_101,
            &chunked(
                "text/html",
                "Content-Encoding: gzip\r\n",
                &gzip(&around(SPRAY, 9_000)),
                11,
            ),
        ),
        download(
            "script with a heap spray, 60 kB into the page",
            910_101,
            &answer("text/html", "", &around(SPRAY, 60_000)),
        ),
        download("invisible frame", 910_102, &answer("text/html", "", FRAME)),
        download(
            "PDF that runs a script",
            910_103,
            &answer("application/pdf", "", &pdf()),
        ),
        download(
            "PDF that runs a script, gzip",
            910_103,
            &answer(
                "application/pdf",
                "Content-Encoding: gzip\r\n",
                &gzip(&pdf()),
            ),
        ),
        download(
            "program as an image",
            910_104,
            &answer("image/png", "", DOS_PROGRAM),
        ),
        download(
            "script that hides another",
            910_105,
            &answer("text/html", "", SCRIPT),
        ),
    ];
    let mut tape = Tape::new();
    let request = b"GET /applet.jar HTTP/1.1\r\nHost: www.example.org\r\nUser-Agent: Mozilla/4.0 Java/1.6.0_26\r\n\r\n";
    web(&mut tape, (INSIDE, 40_002), OUTSIDE, request, &page());
    cases.push(case(Class::ClientSide, "plug-in of an old version", tape).fires(910_107, 1));
    let mut tape = Tape::new();
    session(
        &mut tape,
        (INSIDE, 40_003),
        (OUTSIDE, 8_123),
        &[&get("/x"), &answer("text/html", "", SPRAY)],
    );
    cases.push(
        case(
            Class::ClientSide,
            "script with a heap spray, port 8123",
            tape,
        )
        .fires(910_101, 1),
    );
    // Both answers in one connection: each is one alert of its own rule.
    let mut tape = Tape::new();
    let both = [
        answer("text/html", "", FRAME),
        answer("text/html", "", SCRIPT),
    ]
    .concat();
    let asked = [get("/one"), get("/two")].concat();
    web(&mut tape, (INSIDE, 40_004), OUTSIDE, &asked, &both);
    cases.push(
        case(Class::ClientSide, "two pages in one connection", tape)
            .fires(910_102, 1)
            .fires(910_105, 1),
    );
    let mut tape = Tape::new();
    let mut tcp = Tcp::open(&mut tape, (INSIDE, 40_005), (OUTSIDE, 80));
    tcp.say(&mut tape, Client, &get("/x"));
    tcp.say_in(&mut tape, Server, &answer("text/html", "", SPRAY), 3);
    tcp.close(&mut tape);
    cases.push(
        case(
            Class::ClientSide,
            "script with a heap spray, segments of 3 bytes",
            tape,
        )
        .fires(910_101, 1),
    );
    let mut tape = Tape::new();
    mail(&mut tape, "report.pdf", "application/pdf", &pdf());
    cases.push(case(Class::ClientSide, "PDF that runs a script, by mail", tape).fires(910_106, 1));
    cases
}

/// A message with an attachment.
pub(super) fn mail(tape: &mut Tape, name: &str, kind: &str, file: &[u8]) {
    let message = format!(
        "From: a@example.net\r\nTo: b@example.org\r\nSubject: papers\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=\"=part=\"\r\n\r\n--=part=\r\nContent-Type: text/plain\r\n\r\nAs promised.\r\n--=part=\r\nContent-Type: {kind}; name=\"{name}\"\r\nContent-Transfer-Encoding: base64\r\nContent-Disposition: attachment; filename=\"{name}\"\r\n\r\n{}\r\n--=part=--\r\n.\r\n",
        base64(file)
    );
    greeted(
        tape,
        (OUTSIDE, 40_010),
        (v4(10, 0, 0, 25), 25),
        &[
            "220 mail.example.org ESMTP\r\n",
            "EHLO mx.example.net\r\n",
            "250 mail.example.org\r\n",
            "MAIL FROM:<a@example.net>\r\n",
            "250 ok\r\n",
            "RCPT TO:<b@example.org>\r\n",
            "250 ok\r\n",
            "DATA\r\n",
            "354 go on\r\n",
            &message,
            "250 queued\r\n",
            "QUIT\r\n",
            "221 bye\r\n",
        ],
    );
}

pub(super) fn bad_traffic() -> Vec<Case> {
    let frame = || between(ATTACKER, SERVER);
    let tcp = || frame().tcp(4_000, 99);
    let one = |name: &str, sid: u32, frame: &Frame| {
        let mut tape = Tape::new();
        tape.push(frame);
        case(Class::BadTraffic, name, tape).fires(sid, 1)
    };
    // `change` spoils a frame that was right.
    let spoilt = |name: &str, sid: u32, frame: &Frame, change: &dyn Fn(&mut Vec<u8>)| {
        let mut tape = Tape::new();
        let mut bytes = frame.build();
        change(&mut bytes);
        tape.raw(bytes);
        case(Class::BadTraffic, name, tape).fires(sid, 1)
    };
    vec![
        one(
            "one address on both ends (land)",
            910_201,
            &between(SERVER, SERVER).tcp(99, 99).flags(Frame::SYN),
        ),
        one(
            "SYN with FIN",
            910_202,
            &tcp().flags(Frame::SYN | Frame::FIN),
        ),
        one("no flags", 910_203, &tcp().flags(0)),
        one(
            "FIN, PSH and URG",
            910_204,
            &tcp().flags(Frame::FIN | Frame::PSH | 0x20),
        ),
        one(
            "time to live 0",
            910_205,
            &frame().udp(5, 6).payload(b"x").ttl(0),
        ),
        one(
            "TCP port 0",
            910_206,
            &frame().tcp(4_000, 0).flags(Frame::SYN),
        ),
        one(
            "TCP from port 0",
            910_206,
            &frame().tcp(0, 99).flags(Frame::SYN),
        ),
        one(
            "loopback address",
            910_207,
            &between(v4(127, 0, 0, 1), SERVER).udp(5, 6).payload(b"x"),
        ),
        one(
            "loose source route",
            910_208,
            &frame()
                .udp(5, 6)
                .ip_options(&[131, 7, 4, 192, 0, 2, 1, 0])
                .payload(b"x"),
        ),
        one(
            "ICMP redirect",
            910_209,
            &frame()
                .icmp(5, 1)
                .payload(&frame().udp(5, 6).payload(&[0; 8]).build()[14..]),
        ),
        spoilt(
            "wrong checksum of IP",
            910_210,
            &frame().udp(5, 6).payload(b"x"),
            &|b| b[24] ^= 0x55,
        ),
        one(
            "wrong checksum of TCP",
            910_211,
            &tcp().flags(Frame::SYN).wrong_checksum(1),
        ),
        one(
            "wrong checksum of UDP",
            910_212,
            &frame().udp(5, 6).payload(b"x").wrong_checksum(1),
        ),
        one(
            "no checksum of UDP",
            0,
            &frame().udp(5, 6).payload(b"x").zero_checksum(),
        ),
        spoilt(
            "IP header of 16 bytes",
            910_213,
            &frame().udp(5, 6).payload(b"x"),
            &|b| b[14] = 0x44,
        ),
        spoilt(
            "IP packet cut off",
            910_214,
            &frame().udp(5, 6).payload(&[b'x'; 64]),
            &|b| b.truncate(60),
        ),
        spoilt(
            "TCP header of 16 bytes",
            910_215,
            &tcp().flags(Frame::SYN),
            &|b| b[46] = 0x40,
        ),
        one(
            "TCP option of length 1",
            910_216,
            &tcp().flags(Frame::SYN).tcp_bytes(&[2, 1, 5, 180]),
        ),
        one(
            "ICMP of unknown type",
            910_217,
            &frame().icmp(200, 0).payload(b"x"),
        ),
        one(
            "reserved protocol",
            910_218,
            &frame().protocol(255).payload(&[0; 20]),
        ),
        one(
            "IPv6 routing header of type 0",
            910_219,
            &Frame::new()
                .ip6([0xfd; 16], [0xfe; 16])
                .extension(
                    43,
                    &[
                        0, 1, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                    ],
                )
                .udp(5, 6)
                .payload(b"x"),
        ),
    ]
}

const WORD: &[u8] = b"................the fragmented-attack is here.................";

/// A datagram with the word, as a tape of one frame.
fn word() -> Tape {
    let mut tape = Tape::new();
    tape.udp((ATTACKER, 4_000), (SERVER, 99), WORD);
    tape
}

/// Policies of fragments, and whether each keeps the new one of two fragments that overlap: a published comparison (Novak 2005, "Target-Based Fragmentation Reassembly").
/// `same`: both are of one place. `before`: the new one begins before the old one and ends within it.
const FRAGMENT_POLICIES: &[(&str, bool, bool)] = &[
    ("first", false, false),
    ("last", true, true),
    ("bsd", false, true),
    ("bsd-right", true, false),
    ("linux", true, true),
    ("windows", false, false),
    ("solaris", false, false),
];

pub(super) fn fragmented() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let mut add = |name: &str, tape: Tape, sids: &[u32]| {
        let case = case(Class::Fragments, name, tape);
        cases.push(sids.iter().fold(case, |case, sid| case.fires(*sid, 1)));
    };
    add(
        "datagram in pieces of 24 bytes",
        word().fragmented(24, |p| p),
        &[910_301],
    );
    add(
        "datagram in pieces of 8 bytes",
        word().fragmented(8, |p| p),
        &[910_301],
    );
    let backwards = |mut p: Vec<Vec<u8>>| {
        p.reverse();
        p
    };
    add(
        "pieces backwards",
        word().fragmented(8, backwards),
        &[910_301],
    );
    add(
        "one piece missing",
        word().fragmented(16, |mut p| {
            p.remove(2);
            p
        }),
        &[],
    );
    // Another datagram's pieces between them.
    let mut other = Tape::new();
    other.udp((ATTACKER, 4_000), (SERVER, 99), &[b'-'; 62]);
    let first = word().fragmented(16, |p| p);
    let mut between_them = Tape::new();
    let second = fragments(&other.frames[0].1, 0x2222, 16);
    for (a, b) in first.frames.iter().zip(second) {
        between_them.raw(a.1.clone()).raw(b);
    }
    add("pieces of two datagrams in turn", between_them, &[910_301]);
    let mut tape = Tape::new();
    let mut pieces = fragments(&word().frames[0].1, 7, 24);
    let last = pieces.pop();
    for piece in pieces {
        tape.raw(piece);
    }
    tape.wait(90_000 * MS);
    tape.raw(last.unwrap_or_default());
    add("the last piece 90 s later", tape, &[]);
    // TCP whose every packet is in pieces, so that the first has no flags.
    let mut stream = Tape::new();
    session(
        &mut stream,
        (ATTACKER, 4_001),
        (SERVER, 99),
        &[
            b"this is a fragmented-stream-attack, in pieces",
            b"so it is",
        ],
    );
    add(
        "stream in pieces of 8 bytes",
        stream.clone().fragmented(8, |p| p),
        &[910_302],
    );
    add(
        "stream in pieces of 16 bytes, backwards",
        stream.fragmented(16, backwards),
        &[910_302],
    );
    let mut tape = Tape::new();
    let syn = between(ATTACKER, SERVER)
        .tcp(4_002, 99)
        .flags(Frame::SYN)
        .window(0x1234)
        .build();
    for piece in fragments(&syn, 8, 8) {
        tape.raw(piece);
    }
    add("SYN whose flags are in the second piece", tape, &[910_306]);
    let ping = |at: u16, more| {
        between(ATTACKER, SERVER)
            .protocol(1)
            .id(9)
            .fragment(at, more)
            .payload(&[8; 1480])
    };
    let mut tape = Tape::new();
    for n in 0..44 {
        tape.push(&ping(n * 185, true));
    }
    tape.push(&ping(8_140, false));
    add("datagram of more than 65535 bytes", tape, &[910_303]);
    // The second piece lies inside of the first.
    let piece = |at: u16, more, bytes: &[u8]| {
        between(ATTACKER, SERVER)
            .protocol(17)
            .id(10)
            .fragment(at, more)
            .payload(bytes)
    };
    let mut tape = Tape::new();
    tape.push(&piece(0, true, &[0; 40]))
        .push(&piece(1, false, &[0; 8]));
    add(
        "second piece inside of the first (teardrop)",
        tape,
        &[910_304],
    );
    // IPv6: pieces that overlap are no datagram (RFC 5722).
    let six = |at: u16, more, bytes: &[u8]| {
        Frame::new()
            .ip6([0xfd; 16], [0xfe; 16])
            .fragment(at, more)
            .protocol(17)
            .payload(bytes)
    };
    let datagram = Frame::new()
        .ip6([0xfd; 16], [0xfe; 16])
        .udp(1, 2)
        .payload(WORD)
        .build();
    let bytes = &datagram[54..];
    let mut tape = Tape::new();
    tape.push(&six(0, true, &bytes[..32]))
        .push(&six(3, true, &bytes[24..48]))
        .push(&six(6, false, &bytes[48..]));
    add("IPv6, pieces that overlap", tape, &[910_305]);
    // Five pieces: the copies of the first four overlap what is there, that of the last one comes when the datagram is whole.
    let twice = |p: Vec<Vec<u8>>| p.into_iter().flat_map(|x| [x.clone(), x]).collect();
    let tape = word().fragmented(16, twice);
    let c = case(Class::Fragments, "every piece twice", tape);
    cases.push(c.fires(910_301, 1).fires(910_304, 4));
    // Where pieces contradict each other, the policy of the receiver decides whether the word is there.
    for (policy, same, before) in FRAGMENT_POLICIES {
        let setting = format!("host-os-policy.{policy}=0.0.0.0/0");
        // Without a checksum: which bytes win changes it.
        let datagram = between(ATTACKER, SERVER)
            .udp(4_000, 99)
            .payload(WORD)
            .zero_checksum()
            .build()
            .split_off(34);
        let harmless = [b'-'; 64];
        let piece = |at: usize, more, bytes: &[u8]| {
            between(ATTACKER, SERVER)
                .protocol(17)
                .id(11)
                .fragment((at / 8) as u16, more)
                .payload(bytes)
        };
        let (end, n) = (datagram.len(), 40);
        for (word_is_new, kind) in [(false, "word first"), (true, "word last")] {
            let (old, new) = if word_is_new {
                (&harmless[..32], &datagram[8..40])
            } else {
                (&datagram[8..40], &harmless[..32])
            };
            let mut tape = Tape::new();
            tape.push(&piece(8, true, old))
                .push(&piece(8, true, new))
                .push(&piece(0, true, &datagram[..8]))
                .push(&piece(n, false, &datagram[n..end]));
            let found = *same == word_is_new;
            let c = case(
                Class::Fragments,
                &format!("two pieces of one place, {kind}, {policy}"),
                tape,
            )
            .set(&setting)
            .fires(910_304, 1);
            cases.push(if found { c.fires(910_301, 1) } else { c });
        }
        // The old piece is 24..40, the new one 8..32: what both have is 24..32.
        let old_word = {
            let mut t = Tape::new();
            t.push(&piece(24, true, &datagram[24..40]))
                .push(&piece(
                    8,
                    true,
                    &[&datagram[8..24], &harmless[..8]].concat(),
                ))
                .push(&piece(0, true, &datagram[..8]))
                .push(&piece(n, false, &datagram[n..end]));
            t
        };
        let c = case(
            Class::Fragments,
            &format!("new piece begins before the old one, {policy}"),
            old_word,
        )
        .set(&setting)
        .fires(910_304, 1);
        cases.push(if *before { c } else { c.fires(910_301, 1) });
    }
    cases
}

pub(super) fn shell_codes() -> Vec<Case> {
    let mut cases = Vec::new();
    let sled = [0x90; 64];
    let setuid = [0x31, 0xdb, 0x31, 0xc0, 0xb0, 0x17, 0xcd, 0x80];
    let push = [
        0x31, 0xc0, 0x50, 0x68, 0x2f, 0x2f, 0x73, 0x68, 0x68, 0x2f, 0x62, 0x69, 0x6e, 0x89, 0xe3,
    ];
    let wide = [
        0x48, 0x31, 0xd2, 0x48, 0xbb, 0x2f, 0x62, 0x69, 0x6e, 0x2f, 0x2f, 0x73, 0x68, 0x53, 0x54,
        0x5f, 0x0f, 0x05,
    ];
    let own = [0xe8, 0xff, 0xff, 0xff, 0xff, 0xc1, 0x5e, 0x30, 0x4c];
    let arm = [0x01, 0x30, 0x8f, 0xe2, 0x13, 0xff, 0x2f, 0xe1, 0x78, 0x46];
    let letters = [&b"ABCDEFGHIJKLMNO"[..]; 5].concat();
    let letters = [&letters[..], &[0xeb, 0x10]].concat();
    let list: &[(&str, u32, Option<u32>, Vec<u8>)] = &[
        (
            "x86 no-operation sled",
            910_501,
            Some(910_502),
            sled.to_vec(),
        ),
        ("x86 setuid(0)", 910_503, None, setuid.to_vec()),
        ("x86 pushes //bin/sh", 910_504, Some(910_505), push.to_vec()),
        ("x86-64 /bin//sh", 910_506, None, wide.to_vec()),
        ("x86 finds its own address", 910_507, None, own.to_vec()),
        (
            "SPARC sled",
            910_508,
            Some(910_509),
            [0x13, 0xc0, 0x1c, 0xa6].repeat(4),
        ),
        (
            "MIPS sled",
            910_510,
            None,
            [0x03, 0xe0, 0xf8, 0x25].repeat(4),
        ),
        (
            "POWER sled",
            910_511,
            None,
            [0x4f, 0xff, 0xfb, 0x82].repeat(4),
        ),
        (
            "Alpha sled",
            910_512,
            None,
            [0x47, 0xff, 0x04, 0x1f].repeat(4),
        ),
        ("ARM branches into Thumb", 910_513, None, arm.to_vec()),
        ("x86 sled of letters", 910_514, None, letters),
    ];
    for (name, tcp, udp, code) in list {
        let payload = [&b"LOGIN "[..], code, b"\r\n"].concat();
        for (how, size) in [("in one segment", 1400), ("a byte a segment", 1)] {
            let mut tape = Tape::new();
            let mut conversation = Tcp::open(&mut tape, (ATTACKER, 4_010), (SERVER, 1_099));
            conversation.say_in(&mut tape, Client, &payload, size);
            conversation.say(&mut tape, Server, b"?\r\n");
            conversation.close(&mut tape);
            cases
                .push(case(Class::ShellCodes, &format!("{name}, TCP, {how}"), tape).fires(*tcp, 1));
        }
        let mut tape = Tape::new();
        tape.udp((ATTACKER, 4_011), (SERVER, 514), &payload);
        let c = case(Class::ShellCodes, &format!("{name}, UDP"), tape);
        cases.push(match udp {
            Some(sid) => c.fires(*sid, 1),
            None => c,
        });
    }
    cases
}

pub(super) fn denial_of_service() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |name: &str, tape: Tape, sids: &[(u32, u64)]| {
        let c = case(Class::DenialOfService, name, tape);
        cases.push(sids.iter().fold(c, |c, (sid, n)| c.fires(*sid, *n)));
    };
    let host = |n: u32| v4(203, 0, (n >> 8) as u8, n as u8);
    let syns = |count: u32, pause: u64| {
        let mut tape = Tape::new();
        for n in 0..count {
            tape.push(
                &between(host(n), SERVER)
                    .tcp(2_000 + n as u16, 80)
                    .flags(Frame::SYN)
                    .numbers(n, 0),
            );
            tape.wait(pause);
        }
        tape
    };
    // 300 in 3 s: one alert of the threshold, and one for each beyond 250.
    add(
        "300 SYN in 3 s, from many hosts",
        syns(300, 9 * MS),
        &[(910_601, 1), (910_602, 50)],
    );
    add("99 SYN in 1 s", syns(99, 9 * MS), &[]);
    add("300 SYN in 60 s", syns(300, 199 * MS), &[]);
    // In each period of 10 s there are 200.
    add("400 SYN in 20 s", syns(400, 49 * MS), &[(910_601, 2)]);
    let mut tape = Tape::new();
    for n in 0..250 {
        tape.udp((host(n), 9_000), (SERVER, 99), &[b'x'; 512]);
    }
    add("250 datagrams in 250 ms", tape, &[(910_603, 1)]);
    let ping = |from, n: u16| {
        between(from, SERVER)
            .icmp(8, 0)
            .echo(7, n)
            .payload(&[b'x'; 56])
    };
    let mut tape = Tape::new();
    for n in 0..150 {
        tape.push(&ping(ATTACKER, n));
    }
    add("150 echo requests", tape, &[(910_604, 1)]);
    let mut tape = Tape::new();
    for n in 0..150 {
        tape.push(&ping(host(u32::from(n)), n));
    }
    add(
        "150 echo requests, each of another host",
        tape,
        &[(910_604, 1)],
    );
    // Connections that say a little now and then, and never all.
    let mut tape = Tape::new();
    let mut open: Vec<Tcp> = (0..20)
        .map(|n| Tcp::open(&mut tape, (ATTACKER, 5_000 + n), (SERVER, 80)))
        .collect();
    for tcp in &mut open {
        tcp.say(&mut tape, Client, b"GET / HTTP/1.1\r\nHost: x\r\n");
    }
    for _ in 0..3 {
        tape.wait(5_000 * MS);
        for tcp in &mut open {
            tcp.say(&mut tape, Client, b"X-a: b\r\n");
        }
    }
    add(
        "60 headers in 20 requests that never end",
        tape,
        &[(910_605, 1)],
    );
    let mut tape = Tape::new();
    let mut big = vec![
        0x12, 0x34, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0, 1, b'x', 0, 0, 0xff, 0, 1,
    ];
    big.extend_from_slice(&[0xc0, 0x0c, 0, 16, 0, 1, 0, 0, 0, 60, 4, 7]);
    big.extend_from_slice(&[[255].as_slice(), &[b't'; 255]].concat().repeat(4));
    big.extend_from_slice(&[6, b't', b't', b't', b't', b't', b't']);
    for n in 0..60 {
        tape.udp((host(n), 53), (SERVER, 4_000), &big);
    }
    add("60 large answers of DNS", tape, &[(910_606, 1)]);
    let mut tape = Tape::new();
    for n in 0..30 {
        let requests: Vec<u8> = (0..5)
            .flat_map(|r| get(&format!("/search?q={r}")))
            .collect();
        let answers = page().repeat(5);
        web(
            &mut tape,
            (ATTACKER, 6_000 + n),
            SERVER,
            &requests,
            &answers,
        );
    }
    add("150 requests of one host", tape, &[(910_607, 1)]);
    let mut tape = Tape::new();
    for n in 0..120_u16 {
        tape.push(
            &between(host(u32::from(n)), SERVER)
                .tcp(2_000 + n, 99)
                .flags(Frame::RST)
                .numbers(u32::from(n), 0),
        );
    }
    add("120 RST", tape, &[(910_608, 1)]);
    cases
}

pub(super) fn brute_force() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |name: &str, tape: Tape, sids: &[(u32, u64)]| {
        let c = case(Class::BruteForce, name, tape);
        cases.push(sids.iter().fold(c, |c, (sid, n)| c.fires(*sid, *n)));
    };
    let ssh = |count: u16, pause: u64| {
        let mut tape = Tape::new();
        for n in 0..count {
            greeted(
                &mut tape,
                (ATTACKER, 7_000 + n),
                (v4(10, 0, 0, 22), 22),
                &["SSH-2.0-OpenSSH_9.6\r\n", "SSH-2.0-libssh_0.10\r\n"],
            );
            tape.wait(pause);
        }
        tape
    };
    add(
        "6 SSH logins in a minute",
        ssh(6, 1_000 * MS),
        &[(910_701, 1)],
    );
    add("4 SSH logins in a minute", ssh(4, 1_000 * MS), &[]);
    add("6 SSH logins in 10 minutes", ssh(6, 100_000 * MS), &[]);
    let mut tape = Tape::new();
    let mut said = vec!["220 files\r\n"];
    for _ in 0..7 {
        said.extend([
            "USER root\r\n",
            "331 password\r\n",
            "PASS secret\r\n",
            "530 Login incorrect.\r\n",
        ]);
    }
    greeted(&mut tape, (ATTACKER, 7_100), (v4(10, 0, 0, 21), 21), &said);
    add(
        "7 wrong passwords in one FTP connection",
        tape,
        &[(910_702, 1)],
    );
    let refused = b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"x\"\r\nContent-Length: 0\r\n\r\n";
    let mut tape = Tape::new();
    for n in 0..12 {
        let request = format!(
            "GET /admin HTTP/1.1\r\nHost: x\r\nAuthorization: Basic {}\r\n\r\n",
            base64(format!("admin:{n}").as_bytes())
        );
        web(
            &mut tape,
            (ATTACKER, 7_200 + n),
            SERVER,
            request.as_bytes(),
            refused,
        );
    }
    add("12 wrong passwords, HTTP", tape, &[(910_703, 1)]);
    let mut tape = Tape::new();
    for n in 0..35 {
        web(
            &mut tape,
            (v4(203, 0, 113, n), 7_300),
            SERVER,
            &get("/admin"),
            refused,
        );
    }
    add(
        "35 wrong passwords, each of another host",
        tape,
        &[(910_705, 1)],
    );
    let mut tape = Tape::new();
    let mut said = vec!["login: "];
    for _ in 0..4 {
        said.extend([
            "root\r\n",
            "Password: ",
            "secret\r\n",
            "\r\nLogin incorrect\r\nlogin: ",
        ]);
    }
    greeted(&mut tape, (ATTACKER, 7_400), (v4(10, 0, 0, 23), 23), &said);
    add("4 wrong passwords, Telnet", tape, &[(910_704, 1)]);
    let mut tape = Tape::new();
    // The answer begins its segment, and in the fourth and eighth connection it is one too many.
    for n in 0..9 {
        greeted(
            &mut tape,
            (ATTACKER, 7_500 + n),
            (v4(10, 0, 0, 25), 25),
            &[
                "220 mail\r\n",
                "EHLO x\r\n",
                "250 AUTH PLAIN\r\n",
                "AUTH PLAIN AGFkbWluAHB3\r\n",
                "535 no\r\n",
            ],
        );
    }
    add("9 wrong passwords, SMTP", tape, &[(910_706, 2)]);
    cases
}
