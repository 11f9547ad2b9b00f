//! Handshakes as ends send them, cut in pieces, garbled and old.

use super::*;
use crate::app::tests::{converse, converse_all, wanted};
use crate::app::{Conversation, Ports};

fn list(bytes: usize, content: &[u8]) -> Vec<u8> {
    let n = (content.len() as u32).to_be_bytes();
    [&n[4 - bytes..], content].concat()
}

fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &list(2, content)].concat()
}

fn client_hello() -> Vec<u8> {
    let extensions = [
        extension(0x0a0a, &[]),
        extension(
            0,
            &list(2, &[&[0][..], &list(2, b"www.Example.com")].concat()),
        ),
        extension(10, &list(2, &[0, 29, 0, 23])),
        extension(11, &list(1, &[0])),
        extension(
            16,
            &list(2, &[list(1, b"h2"), list(1, b"http/1.1")].concat()),
        ),
    ]
    .concat();
    let body = [
        &[3, 3][..],
        &[7; 32],
        &list(1, &[]),
        &list(2, &[0x1a, 0x1a, 0x13, 1, 0xc0, 0x2f]),
        &list(1, &[0]),
        &list(2, &extensions),
    ]
    .concat();
    [&[1][..], &list(3, &body)].concat()
}

fn server_hello() -> Vec<u8> {
    let body = [
        &[3, 3][..],
        &[8; 32],
        &list(1, &[]),
        &[0xc0, 0x2f, 0],
        &list(2, &extension(65281, &[0])),
    ]
    .concat();
    [&[2][..], &list(3, &body)].concat()
}

fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    if content.len() < 128 {
        [&[tag, content.len() as u8][..], content].concat()
    } else {
        [&[tag, 0x82][..], &list(2, content)].concat()
    }
}

pub(super) fn certificate() -> Vec<u8> {
    let name = |cn: &[u8]| {
        let c = der(0x30, &[der(6, &[0x55, 4, 6]), der(0x13, b"US")].concat());
        let n = der(0x30, &[der(6, &[0x55, 4, 3]), der(0x0c, cn)].concat());
        der(0x30, &[der(0x31, &c), der(0x31, &n)].concat())
    };
    let san = der(
        0x30,
        &[der(0x82, b"a.example"), der(0x87, &[1, 2, 3, 4])].concat(),
    );
    let ext = der(0x30, &[der(6, &[0x55, 0x1d, 0x11]), der(4, &san)].concat());
    let tbs = [
        der(0xa0, &der(2, &[2])),
        der(2, &[0, 0xab, 1]),
        der(0x30, &[]),
        name(b"Root"),
        der(
            0x30,
            &[der(0x17, b"240101000000Z"), der(0x17, b"250101000000Z")].concat(),
        ),
        name(b"a.example"),
        der(0x30, &[]),
        der(0xa3, &der(0x30, &ext)),
    ]
    .concat();
    der(
        0x30,
        &[der(0x30, &tbs), der(0x30, &[]), der(3, &[0])].concat(),
    )
}

fn record(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind, 3, 1][..], &list(2, body)].concat()
}

fn server_flight() -> Vec<u8> {
    let chain = list(3, &list(3, &certificate()));
    let messages = [
        server_hello(),
        [&[11][..], &list(3, &chain)].concat(),
        vec![14, 0, 0, 0],
    ]
    .concat();
    // Messages over records of a few bytes, which no message boundary heeds.
    messages.chunks(50).flat_map(|c| record(22, c)).collect()
}

#[test]
fn hellos_and_certificates_are_read_in_any_pieces() {
    let client = record(22, &client_hello());
    let server = server_flight();
    let after = [record(20, &[1]), record(22, &[9; 40])].concat();
    let c = converse_all(
        &[
            (ToServer, &client),
            (ToClient, &server),
            (ToServer, &after),
            (ToClient, &after),
        ],
        Ports::default(),
    );
    assert_eq!(c.app(), App::Tls);
    assert!(c.is_encrypted());
    let t = &c.transactions.live[0];
    assert!(t.done && t.events.is_empty(), "{:?}", t.events);
    let one = |b, d| String::from_utf8_lossy(t.get(b, d).next().unwrap()).into_owned();
    assert_eq!(one(Buffer::TlsSni, ToServer), "www.Example.com");
    assert_eq!(
        one(Buffer::Ja3String, ToServer),
        "771,4865-49199,0-10-11-16,29-23,0"
    );
    assert_eq!(one(Buffer::Ja3sString, ToClient), "771,49199,65281");
    assert_eq!(one(Buffer::TlsCertSubject, ToClient), "C=US, CN=a.example");
    assert_eq!(one(Buffer::TlsCertIssuer, ToClient), "C=US, CN=Root");
    assert_eq!(one(Buffer::TlsCertSerial, ToClient), "00:AB:01");
    assert_eq!(one(Buffer::TlsCertFingerprint, ToClient).len(), 59);
    assert_eq!(t.get(Buffer::TlsSubjectAltName, ToClient).count(), 2);
    assert_eq!(t.get(Buffer::TlsAlpn, ToServer).count(), 2);
    assert!(one(Buffer::Ja4Hash, ToServer).starts_with("t12d0204h2_"));
    for (way, byte) in [(ToServer, 7), (ToClient, 8)] {
        for (buffer, length) in [
            (Buffer::TlsRandom, 32),
            (Buffer::TlsRandomTime, 4),
            (Buffer::TlsRandomBytes, 28),
        ] {
            let found = t.get(buffer, way).next().unwrap();
            assert_eq!(found, vec![byte; length]);
        }
    }
    assert_eq!(t.facts("tls.cert_chain_len").next(), Some(1));
    assert_eq!(t.record["version"], "TLS 1.2");
    assert_eq!(t.record["notafter"], "2025-01-01T00:00:00");
    assert_eq!(t.record["subjectaltname"][1], "1.2.3.4");
    assert_eq!(t.record["sni"], "www.Example.com");
    assert_eq!(
        t.facts("ssl_state").next(),
        Some(CLIENT_HELLO | SERVER_HELLO)
    );
}

#[test]
fn what_one_end_garbles_hides_nothing_of_the_other() {
    let client = [&record(22, &client_hello())[..], &[0xff; 30]].concat();
    let c = converse_all(
        &[(ToServer, &client), (ToClient, &server_flight())],
        Ports::default(),
    );
    let t = &c.transactions.live[0];
    let events = [
        "invalid_record_version",
        "invalid_tls_header",
        "invalid_ssl_record",
    ];
    assert_eq!(t.events, events);
    assert_eq!(t.get(Buffer::TlsCertSubject, ToClient).count(), 1);
    assert!(is_told(t));
    // Both: nobody reads on.
    let server = [&server_flight()[..], &[0xff; 30]].concat();
    let c = converse_all(
        &[(ToServer, &client), (ToClient, &server)],
        Ports::default(),
    );
    assert!(!c.is_parsed() && c.transactions.live[0].done);
}

#[test]
fn heartbeats_that_ask_for_more_than_they_bring() {
    let hello = record(22, &client_hello());
    let padded = |kind: u8, said: u16, payload: &[u8]| {
        record(24, &[&[kind][..], &said.to_be_bytes(), payload].concat())
    };
    for (beat, odd) in [
        (padded(1, 5, &[0; 21]), None),
        (padded(1, 0x4000, b""), Some("overflow_heartbeat_message")),
        (padded(1, 5, b"hello"), Some("invalid_heartbeat_message")),
        (padded(9, 0, &[0; 16]), Some("invalid_heartbeat_message")),
    ] {
        let c = converse_all(
            &[(ToServer, &[hello.clone(), beat].concat())],
            Ports::default(),
        );
        let all: Vec<&str> = ["heartbeat_message"].into_iter().chain(odd).collect();
        assert_eq!(c.transactions.live[0].events, all);
    }
}

#[test]
fn many_records_in_one_segment_are_odd() {
    let hello = record(22, &client_hello());
    let warning = record(21, &[1, 0]);
    for (warnings, odd) in [(29, false), (30, true), (200, true)] {
        let said = [hello.clone(), warning.repeat(warnings)].concat();
        let mut c = Conversation::stream(Ports::default());
        c.data(ToServer, &said, 0, &wanted());
        let events = &c.transactions.live[0].events;
        assert_eq!(
            events.contains(&"too_many_records_in_packet"),
            odd,
            "{warnings}"
        );
    }
}

#[test]
fn a_handshake_without_a_certificate_is_a_record_only_if_a_session_goes_on() {
    let told = |client: &[u8], server: &[u8]| {
        let all = [(ToServer, client), (ToClient, server)];
        let c = converse_all(&all, Ports::default());
        let t = &c.transactions.live[0];
        (is_told(t), t.record.contains_key("session_resumed"))
    };
    let end = [record(20, &[1]), record(22, &[9; 40])].concat();
    let client = [record(22, &client_hello()), end.clone()].concat();
    let server = [record(22, &server_hello()), end.clone()].concat();
    assert_eq!(told(&client, &record(21, &[2, 40])), (false, false));
    assert_eq!(told(&client, &server), (false, false));
    // The same with a session that both name.
    let with_session = |hello: Vec<u8>| {
        let body = [&hello[4..38], &list(1, &[5; 32]), &hello[39..]].concat();
        [&hello[..1], &list(3, &body)].concat()
    };
    let client = [record(22, &with_session(client_hello())), end.clone()].concat();
    let server = [record(22, &with_session(server_hello())), end].concat();
    assert_eq!(told(&client, &server), (true, true));
}

#[test]
fn certificates_are_read_as_far_as_they_go() {
    let good = certificate();
    let told = |der: &[u8]| {
        let chain = list(3, &list(3, der));
        let messages = [server_hello(), [&[11][..], &list(3, &chain)].concat()].concat();
        let c = converse_all(
            &[
                (ToServer, &record(22, &client_hello())),
                (ToClient, &record(22, &messages)),
            ],
            Ports::default(),
        );
        let t = &c.transactions.live[0];
        let subject = t.record.get("subject").and_then(|s| s.as_str());
        (t.events.clone(), subject.map(str::to_owned))
    };
    let find = |what: &[u8]| memchr::memmem::find(&good, what).unwrap();
    let all = Some("C=US, CN=a.example".to_owned());
    assert_eq!(told(&good), (vec![], all.clone()));
    // A time that is none, and an issuer that is no name, hide no subject.
    let mut odd = good.clone();
    odd[find(b"250101")] = b'x';
    assert_eq!(told(&odd), (vec!["certificate_invalid_date"], all.clone()));
    let mut odd = good.clone();
    odd[find(b"Root") - 1] = 0xff;
    assert_eq!(told(&odd), (vec![], all));
    for (bytes, event) in [
        (&b""[..], "certificate_invalid_length"),
        (b"\xde\xad\xbe\xef", "certificate_invalid_der"),
        (b"\x30\x80\0\0", "certificate_invalid_der"),
        (&good[..good.len() - 4], "invalid_certificate"),
    ] {
        assert_eq!(told(bytes), (vec![event], None));
    }
}

#[test]
fn an_old_hello_and_lies() {
    let old = b"\x80\x0b\x01\x00\x02\x00\x03\x00\x00\x00\x00\x07\x00\xc0";
    let c = converse(&[(ToServer, old)], 3, Ports::default());
    assert_eq!(c.app(), App::Tls);
    assert_eq!(c.transactions.live[0].facts("ssl_version").next(), Some(2));
    // Every cut of a flight ends, and none panics.
    let all = [record(22, &client_hello()), server_flight()].concat();
    for n in 0..all.len() {
        let mut bad = all[..n].to_vec();
        bad.extend_from_slice(&[0xff; 30]);
        converse(&[(ToServer, &bad)], 100, Ports::default());
        let mut flipped = all.clone();
        flipped[n] ^= 0x55;
        let cut = client_hello().len() + 5;
        converse(
            &[(ToServer, &flipped[..cut]), (ToClient, &flipped[cut..])],
            usize::MAX,
            Ports::default(),
        );
    }
}

/// Drafts up to 21 choose themselves in the header, and have neither a session nor a compression behind it.
#[test]
fn server_hellos_of_drafts() {
    for (version, name) in [
        (0x0304_u16, "TLS 1.3"),
        (0x7f0e, "TLS 1.3 draft-<16"),
        (0x7f12, "TLS 1.3 draft-18"),
    ] {
        let body = [
            &version.to_be_bytes()[..],
            &[8; 32],
            &[0x13, 1],
            &list(2, &extension(40, &[0, 29])),
        ]
        .concat();
        let hello = Hello::server(&body).expect("a hello");
        assert_eq!(
            (hello.version(), &hello.ciphers[..], &hello.extensions[..]),
            (version, &[0x1301][..], &[40][..])
        );
        assert!(hello.session.is_empty() && hello.events.is_empty());
        assert_eq!(show::version_name(hello.version()), name);
        for n in 0..body.len() {
            let _ = Hello::server(&body[..n]);
        }
    }
}

/// After a retry the client says hello again, with other extensions.
#[test]
fn fingerprints_are_of_the_first_hello() {
    let first = Hello::client(&client_hello()[4..]).expect("a hello");
    let second = Hello {
        extensions: vec![0, 44],
        ..first.clone()
    };
    let mut t = Transaction::default();
    for hello in [&first, &second] {
        show::client_record(&mut t, hello, crate::app::wanted::Said::ALL, false);
    }
    assert_eq!(t.record["ja3"]["string"], first.ja3().as_str());
    assert_eq!(t.record["ja4"], first.ja4(false).as_str());
}
