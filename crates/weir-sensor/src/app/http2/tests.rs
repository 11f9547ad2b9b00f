//! Connections by hand.

use super::*;
use crate::app::tests::{converse_all, wanted};
use crate::app::{Conversation, Ports};
use crate::buffer::Buffer;

/// A frame.
pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
    [&head[..], payload].concat()
}

/// A block of fields that are not kept.
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let string = |text: &str| [&[text.len() as u8][..], text.as_bytes()].concat();
    let one = |(name, value): &(&str, &str)| [vec![0], string(name), string(value)].concat();
    fields.iter().flat_map(one).collect()
}

const GET: &[(&str, &str)] = &[
    (":method", "GET"),
    (":scheme", "https"),
    (":path", "/a%20b/../c?x=1"),
    (":authority", "Example.com:8443"),
    ("user-agent", "tester"),
    ("cookie", "a=1"),
    ("cookie", "b=2"),
];
const OK: &[(&str, &str)] = &[(":status", "200"), ("content-type", "text/plain; x")];

fn opening() -> Vec<u8> {
    let settings = [0, 3, 0, 0, 0, 100, 0, 9, 0, 0, 0, 1];
    [frame::PREFACE, &frame(frame::SETTINGS, 0, 0, &settings)].concat()
}

fn text(t: &Transaction, b: Buffer, d: Direction) -> Vec<String> {
    let lossy = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    t.get(b, d).map(lossy).collect()
}

fn run(parts: &[(Direction, &[u8])]) -> Conversation {
    let c = converse_all(parts, Ports::default());
    assert!([App::Http2, App::Doh2].contains(&c.app()));
    c
}

#[test]
fn streams_are_transactions_with_the_buffers_of_http() {
    let end = frame::END_HEADERS | frame::END_STREAM;
    let client = [
        opening(),
        frame(frame::HEADERS, end, 1, &block(GET)),
        frame(frame::HEADERS, end, 3, &block(&GET[..4])),
    ]
    .concat();
    // Answers come in turns, and a block in two frames; one body is padded.
    let answer = block(OK);
    let (first, second) = answer.split_at(9);
    let server = [
        frame(frame::SETTINGS, 0, 0, &[]),
        frame(frame::HEADERS, frame::END_HEADERS, 3, &answer),
        frame(frame::DATA, 0, 3, b"of three"),
        frame(frame::HEADERS, 0, 1, first),
        frame(frame::CONTINUATION, frame::END_HEADERS, 1, second),
        frame(frame::DATA, frame::PADDED, 1, b"\x03of one\0\0\0"),
        frame(frame::DATA, frame::END_STREAM, 3, b", and more"),
        frame(frame::DATA, frame::END_STREAM, 1, b""),
    ]
    .concat();
    let c = run(&[(ToServer, &client), (ToClient, &server)]);
    let live = &c.transactions.live;
    assert_eq!(live.len(), 4);
    let one = &live[1];
    let request = |b| text(one, b, ToServer);
    assert_eq!(request(Buffer::HttpMethod), ["GET"]);
    assert_eq!(request(Buffer::HttpUri), ["/c?x=1"]);
    assert_eq!(request(Buffer::HttpUriRaw), ["/a%20b/../c?x=1"]);
    assert_eq!(request(Buffer::HttpHost), ["example.com"]);
    assert_eq!(request(Buffer::HttpHostRaw), ["Example.com:8443"]);
    assert_eq!(request(Buffer::HttpUserAgent), ["tester"]);
    assert_eq!(request(Buffer::HttpCookie), ["a=1; b=2"]);
    assert_eq!(
        request(Buffer::HttpRequestLine),
        ["GET /a%20b/../c?x=1 HTTP/2\r\n"]
    );
    assert_eq!(request(Buffer::Http2HeaderName).len(), 6);
    let response = |t, b| text(t, b, ToClient);
    assert_eq!(response(one, Buffer::HttpStatusCode), ["200"]);
    assert_eq!(response(one, Buffer::HttpResponseLine), ["HTTP/2 200\r\n"]);
    assert_eq!(response(one, Buffer::HttpStatusMessage), [""]);
    assert_eq!(response(one, Buffer::HttpResponseBody), ["of one"]);
    assert_eq!(
        response(&live[2], Buffer::HttpResponseBody),
        ["of three, and more"]
    );
    let r = &one.record;
    assert_eq!(r["version"], "2");
    assert_eq!(r["http2"]["stream_id"], 1);
    assert_eq!(
        (&r["hostname"], &r["http_port"]),
        (&"example.com".into(), &8443.into())
    );
    assert_eq!((&r["status"], &r["length"]), (&200.into(), &6.into()));
    assert_eq!(r["response_headers"][0]["name"], ":status");
    assert!(one.files[0].whole && one.files[0].size == 6);
    let settings = &live[0].record["http2"]["request"]["settings"];
    assert_eq!(settings[0]["settings_id"], "SETTINGSMAXCONCURRENTSTREAMS");
    assert_eq!(settings[1]["settings_value"], 1);
    // What says nothing has no record.
    assert!(live[3].record.is_empty() && live[3].done);
    assert!(live.iter().all(|t| t.events.is_empty()));
}

#[test]
fn bodies_are_decoded_and_forms_have_files() {
    let gzip = b"\x1f\x8b\x08\0\0\0\0\0\0\xff\xcb\x48\xcd\xc9\xc9\x07\0\x86\xa6\x10\x36\x05\0\0\0";
    let form = b"--x\r\nContent-Disposition: form-data; name=\"f\"; filename=\"a.txt\"\r\n\r\ncontents\r\n--x--\r\n";
    let post = [
        (":method", "POST"),
        (":path", "/up"),
        ("content-type", "multipart/form-data; boundary=x"),
    ];
    let client = [
        opening(),
        frame(frame::HEADERS, frame::END_HEADERS, 1, &block(&post)),
        frame(frame::DATA, frame::END_STREAM, 1, form),
    ]
    .concat();
    let coded = [(":status", "200"), ("content-encoding", "gzip")];
    let server = [
        frame(frame::HEADERS, frame::END_HEADERS, 1, &block(&coded)),
        frame(frame::DATA, frame::END_STREAM, 1, gzip),
    ]
    .concat();
    let c = run(&[(ToServer, &client), (ToClient, &server)]);
    let t = &c.transactions.live[1];
    assert_eq!(text(t, Buffer::HttpResponseBody, ToClient), ["hello"]);
    assert_eq!(t.files[0].name, b"a.txt");
    assert_eq!(text(t, Buffer::FileData, ToServer), ["contents"]);
    let broken = [
        frame(frame::HEADERS, frame::END_HEADERS, 1, &block(&coded)),
        frame(
            frame::DATA,
            frame::END_STREAM,
            1,
            &[&gzip[..14], &[0x1b; 40]].concat(),
        ),
    ];
    let c = run(&[(ToServer, &client), (ToClient, &broken.concat())]);
    let t = &c.transactions.live[1];
    assert_eq!(t.events, ["failed_decompression"]);
}

#[test]
fn numbers_are_told_by_who_sent_them() {
    let client = [
        opening(),
        frame(frame::WINDOW_UPDATE, 0, 0, &[0, 0, 1, 0]),
        frame(
            frame::HEADERS,
            frame::END_HEADERS | frame::HAS_PRIORITY,
            1,
            &[&[0, 0, 0, 0, 200][..], &block(GET)].concat(),
        ),
        frame(frame::RST_STREAM, 0, 1, &[0, 0, 0, 8]),
    ]
    .concat();
    let server = [
        frame(
            frame::HEADERS,
            frame::END_HEADERS,
            1,
            &[&[0x3f, 0x45][..], &block(OK)].concat(),
        ),
        frame(frame::DATA, frame::END_STREAM, 1, b"under way"),
        frame(frame::GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 11]),
    ]
    .concat();
    let c = run(&[(ToServer, &client), (ToClient, &server)]);
    let live = &c.transactions.live;
    let told = |t: &Transaction, name: &'static str, d| -> Vec<u64> {
        t.facts_of(name, Some(d)).collect()
    };
    let setting = told(&live[0], "http2.settings", ToServer);
    assert_eq!(setting[0], 3 << 32 | 100);
    assert!(told(&live[0], "http2.settings", ToClient).is_empty());
    assert_eq!(told(&live[1], "http2.window", ToServer), [256]);
    let stream = &live[2];
    assert_eq!(told(stream, "http2.frametype", ToServer), [1, 3]);
    assert_eq!(told(stream, "http2.frametype", ToClient), [1, 0]);
    assert_eq!(told(stream, "http2.priority", ToServer), [200]);
    assert_eq!(told(stream, "http2.errorcode", ToServer), [8]);
    assert_eq!(told(stream, "http2.size_update", ToClient), [100]);
    // What the server had sent before it knew is its answer.
    assert_eq!(
        text(stream, Buffer::HttpResponseBody, ToClient),
        ["under way"]
    );
    let record = &stream.record["http2"]["request"];
    assert_eq!(
        (&record["error_code"], &record["priority"]),
        (&"CANCEL".into(), &200.into())
    );
    let away = &live[3].record["http2"]["response"];
    assert_eq!(away["error_code"], "ENHANCEYOURCALM");
}

#[test]
fn an_upgrade_goes_on_in_http2() {
    let upgrade = b"GET /first HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n";
    let mut server =
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n".to_vec();
    server.extend(frame(frame::HEADERS, frame::END_HEADERS, 1, &block(OK)));
    server.extend(frame(frame::DATA, frame::END_STREAM, 1, b"first"));
    let c = run(&[
        (ToServer, upgrade),
        (ToClient, &server),
        (ToServer, frame::PREFACE),
    ]);
    assert_eq!(c.before(), Some(App::Http1));
    let t = c.transactions.live.iter().find(|t| t.app == App::Http2);
    let t = t.unwrap();
    assert_eq!(text(t, Buffer::HttpUri, ToServer), ["/first"]);
    assert_eq!(text(t, Buffer::HttpResponseBody, ToClient), ["first"]);
    let settings = t.record["http2"]["request"]["settings"].as_array();
    assert_eq!(settings.unwrap().len(), 2);
    assert!(t.events.is_empty(), "{:?}", t.events);
    let odd = upgrade.to_vec();
    let odd = String::from_utf8(odd)
        .unwrap()
        .replace("AAMAAABkAAQAAP__", "A!");
    let c = run(&[(ToServer, odd.as_bytes()), (ToClient, &server)]);
    let t = c.transactions.live.iter().find(|t| t.app == App::Http2);
    assert_eq!(t.unwrap().events, ["invalid_http1_settings"]);
}

#[test]
fn a_message_of_dns_makes_the_connection_one_of_dns() {
    let query = b"\0\0\x01\0\0\x01\0\0\0\0\0\0\x03www\x07example\x03com\0\0\x01\0\x01";
    let mut answer = query.to_vec();
    answer[2] = 0x81;
    answer[7] = 1;
    answer.extend(b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x01");
    let post = [
        (":method", "POST"),
        (":path", "/dns-query"),
        ("content-type", "application/dns-message"),
    ];
    let get = [
        (":method", "GET"),
        (
            ":path",
            "/dns-query?dns=AAABAAABAAAAAAAAA3d3dwdleGFtcGxlA2NvbQAAAQAB",
        ),
    ];
    let end = frame::END_HEADERS | frame::END_STREAM;
    let client = [
        opening(),
        frame(frame::HEADERS, frame::END_HEADERS, 1, &block(&post)),
        frame(frame::DATA, frame::END_STREAM, 1, query),
        frame(frame::HEADERS, end, 3, &block(&get)),
        frame(frame::PING, 0, 0, &[0; 8]),
    ]
    .concat();
    let said = [
        (":status", "200"),
        ("content-type", "application/dns-message"),
    ];
    let mut server = Vec::new();
    for stream in [1, 3] {
        server.extend(frame(
            frame::HEADERS,
            frame::END_HEADERS,
            stream,
            &block(&said),
        ));
        server.extend(frame(frame::DATA, frame::END_STREAM, stream, &answer));
    }
    let c = run(&[(ToServer, &client), (ToClient, &server)]);
    assert_eq!((c.app(), c.before()), (App::Doh2, Some(App::Http2)));
    assert!(c.transactions.events.is_empty());
    let live = &c.transactions.live;
    assert_eq!(live[0].app, App::Http2);
    assert_eq!(live[3].app, App::Doh2);
    for t in [&live[1], &live[2]] {
        assert_eq!(t.app, App::Doh2);
        assert_eq!(text(t, Buffer::DnsQuery, ToServer), ["www.example.com"]);
        assert_eq!(
            text(t, Buffer::DnsAnswerName, ToClient),
            ["www.example.com"]
        );
        assert_eq!(t.beside["dns"]["answers"][0]["rdata"], "192.0.2.1");
        assert!(t.events.is_empty() && t.files.is_empty());
    }
}

/// The events of a connection whose client says this behind its opening.
fn events(client: &[Vec<u8>]) -> Vec<&'static str> {
    let said = [opening(), client.concat()].concat();
    let c = run(&[(ToServer, &said)]);
    let all = c.transactions.live.iter().flat_map(|t| t.events.clone());
    all.collect()
}

#[test]
fn what_is_wrong_has_an_event() {
    let end = frame::END_HEADERS | frame::END_STREAM;
    let get = || frame(frame::HEADERS, end, 1, &block(GET));
    let headers = |payload: &[u8]| frame(frame::HEADERS, end, 1, payload);
    assert!(events(&[get()]).is_empty());
    assert_eq!(
        events(&[frame(frame::SETTINGS, 0, 1, &[])]),
        ["invalid_frame_header"]
    );
    assert_eq!(
        events(&[frame(frame::DATA, 0, 0, b"x")]),
        ["invalid_frame_header"]
    );
    assert_eq!(
        events(&[frame(frame::PING, 0, 0, b"x")]),
        ["invalid_frame_length"]
    );
    assert_eq!(
        events(&[frame(frame::HEADERS, end | frame::PADDED, 1, b"\x05\x82")]),
        ["invalid_frame_data"]
    );
    assert_eq!(events(&[headers(b"\xff\x00")]), ["invalid_header"]);
    assert_eq!(
        events(&[headers(b"\xff\xff\xff\xff\xff\x7f")]),
        ["header_integer_overflow"]
    );
    assert_eq!(events(&[headers(b"\x82\x00\x05ab")]), ["extra_header_data"]);
    assert_eq!(events(&[get(), get()]), [] as [&str; 0]);
    let closed = [get(), frame(frame::RST_STREAM, 0, 1, &[0; 4])];
    assert_eq!(events(&closed), [] as [&str; 0]);
    let user = [(":path", "/"), (":authority", "me@host"), ("host", "other")];
    assert_eq!(
        events(&[headers(&block(&user))]),
        ["userinfo_in_uri", "authority_host_mismatch"]
    );
    let long = vec![b'a'; MOST_FRAME + 1];
    assert_eq!(
        events(&[frame(frame::HEADERS, end, 1, &long)]),
        ["long_frame_data"]
    );
    let mut parts = vec![frame(frame::HEADERS, 0, 1, &block(GET))];
    parts.extend((0..8).map(|_| frame(frame::CONTINUATION, 0, 1, &[0x82; 16_000])));
    parts.push(frame(frame::CONTINUATION, frame::END_HEADERS, 1, &[]));
    assert_eq!(events(&parts), ["reassembly_limit_reached"]);
    let many: Vec<_> = (0..=MOST_STREAMS as u32)
        .map(|n| frame(frame::HEADERS, frame::END_HEADERS, 2 * n + 1, b"\x82"))
        .collect();
    assert_eq!(events(&many), ["too_many_streams"]);
}

#[test]
fn a_stream_that_is_over_is_not_begun_twice() {
    let end = frame::END_HEADERS | frame::END_STREAM;
    let get = frame(frame::HEADERS, end, 1, &block(GET));
    let client = [opening(), get.clone()].concat();
    let server = frame(frame::HEADERS, end, 1, &block(OK));
    let c = run(&[(ToServer, &client), (ToClient, &server), (ToServer, &get)]);
    assert_eq!(c.transactions.live[2].events, ["stream_id_reuse"]);
}

#[test]
fn what_begins_in_the_middle_is_read_from_there() {
    let end = frame::END_HEADERS | frame::END_STREAM;
    let server = [
        frame(frame::SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 9]),
        frame(frame::HEADERS, end, 5, &block(OK)),
    ]
    .concat();
    let client = frame(frame::HEADERS, end, 5, &block(GET));
    let c = run(&[(ToClient, &server), (ToServer, &client)]);
    let live = &c.transactions.live;
    assert_eq!(text(&live[1], Buffer::HttpStatusCode, ToClient), ["200"]);
    assert_eq!(live[2].events, ["invalid_client_magic"]);
    assert_eq!(text(&live[1], Buffer::HttpMethod, ToServer), ["GET"]);
}

#[test]
fn bodies_go_on_after_a_loss_within_them() {
    let w = wanted();
    let mut p = Http2::new(&w, None);
    let mut out = Transactions::default();
    let end = frame::END_HEADERS | frame::END_STREAM;
    let client = [opening(), frame(frame::HEADERS, end, 1, &block(GET))].concat();
    p.data(ToServer, &client, 1, &mut out);
    let body = frame(frame::DATA, frame::END_STREAM, 1, &[b'x'; 1000]);
    let head = frame(frame::HEADERS, frame::END_HEADERS, 1, &block(OK));
    p.data(ToClient, &[&head, &body[..100]].concat(), 1, &mut out);
    p.gap(ToClient, 500, &mut out);
    p.data(ToClient, &body[600..], 1, &mut out);
    let t = out.live.back().unwrap();
    assert!(t.done && t.files[0].gaps && !t.files[0].whole);
    p.gap(ToServer, 5, &mut out);
    p.data(ToServer, &client, 1, &mut out);
    assert_eq!(out.live.len(), 2);
}

#[test]
fn a_loss_within_padding_ends_the_direction() {
    let w = wanted();
    let mut p = Http2::new(&w, None);
    let mut out = Transactions::default();
    let end = frame::END_HEADERS | frame::END_STREAM;
    let client = [opening(), frame(frame::HEADERS, end, 1, &block(GET))].concat();
    p.data(ToServer, &client, 1, &mut out);
    let padded = [vec![50], vec![b'x'; 10], vec![0; 50]].concat();
    let flags = frame::END_STREAM | frame::PADDED;
    let body = frame(frame::DATA, flags, 1, &padded);
    let head = frame(frame::HEADERS, frame::END_HEADERS, 1, &block(OK));
    // Of the padding 30 bytes are left.
    p.data(
        ToClient,
        &[&head, &body[..body.len() - 30]].concat(),
        1,
        &mut out,
    );
    p.gap(ToClient, 5, &mut out);
    p.data(ToClient, &body[body.len() - 25..], 1, &mut out);
    let t = out.live.back().unwrap();
    assert!(
        t.done && t.files[0].size == 10 && !t.files[0].whole,
        "{t:?}"
    );
}

#[test]
fn memory_is_bounded() {
    let w = wanted();
    let mut p = Http2::new(&w, None);
    let mut out = Transactions::default();
    p.data(ToServer, &opening(), 1, &mut out);
    // Blocks that never end, tables as large as may be, streams that never end and promise encodings.
    for n in 0..5_000u32 {
        let fields = [
            (":method", "POST"),
            (":path", "/"),
            ("content-encoding", "gzip"),
        ];
        let mut bytes = vec![0x3f, 0xe1, 0xff, 0x03];
        bytes.extend(block(&fields));
        bytes.extend([0x40, 1, b'n', 100]);
        bytes.extend([n as u8; 100]);
        let head = frame(frame::HEADERS, frame::END_HEADERS, 2 * n + 1, &bytes);
        p.data(ToServer, &head, 1, &mut out);
        let body = frame(
            frame::DATA,
            0,
            2 * n + 1,
            b"\x1f\x8b\x08\0\0\0\0\0\0\xff\xcb",
        );
        p.data(ToServer, &body, 1, &mut out);
        out.live.retain(|t| !t.done);
    }
    for _ in 0..100 {
        let more = frame(frame::CONTINUATION, 0, 9_999, &[0x82; 16_000]);
        p.data(ToServer, &frame(frame::HEADERS, 0, 9_999, &[]), 1, &mut out);
        p.data(ToServer, &more, 1, &mut out);
    }
    assert!(p.streams.len() <= MOST_STREAMS);
    assert!(p.memory() < 16 << 20, "{} bytes", p.memory());
}
