//! Rules about HTTP/2 and DNS in it, and their records.

use weir_sensor::matcher;

use super::bed::{CLIENT, How, SERVER, Tape, counts, sense_tape};
use super::schema::hold;

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let [high, low] = (payload.len() as u16).to_be_bytes();
    [&[0, high, low, kind, flags, 0, 0, 0, stream][..], payload].concat()
}

fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let string = |text: &str| [&[text.len() as u8][..], text.as_bytes()].concat();
    let one = |(name, value): &(&str, &str)| [vec![0], string(name), string(value)].concat();
    fields.iter().flat_map(one).collect()
}

/// A request and its answer, a question of DNS and its answer, and the end.
fn session() -> Tape {
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let get = block(&[
        (":method", "GET"),
        (":path", "/index"),
        (":authority", "www.example.com"),
        ("user-agent", "tester"),
    ]);
    let ask = block(&[
        (":method", "POST"),
        (":path", "/dns-query"),
        (":authority", "resolver"),
        ("content-type", "application/dns-message"),
    ]);
    let query = b"\0\0\x01\0\0\x01\0\0\0\0\0\0\x03www\x07example\x03com\0\0\x01\0\x01";
    let mut answer = query.to_vec();
    (answer[2], answer[7]) = (0x81, 1);
    answer.extend(b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x01");
    let page = block(&[
        (":status", "200"),
        ("server", "test"),
        ("content-length", "5"),
    ]);
    let found = block(&[
        (":status", "200"),
        ("content-type", "application/dns-message"),
    ]);
    let said = [
        [
            &preface[..],
            &frame(4, 0, 0, &[0, 1, 0, 0, 16, 0]),
            &frame(1, 5, 1, &get),
        ]
        .concat(),
        [
            frame(4, 0, 0, &[]),
            frame(1, 4, 1, &page),
            frame(0, 1, 1, b"hello"),
        ]
        .concat(),
        [frame(1, 4, 3, &ask), frame(0, 1, 3, query)].concat(),
        [frame(1, 4, 3, &found), frame(0, 1, 3, &answer)].concat(),
        frame(7, 0, 0, &[0, 0, 0, 3, 0, 0, 0, 0]),
    ];
    let said: Vec<&[u8]> = said.iter().map(Vec::as_slice).collect();
    let mut tape = Tape::default();
    tape.session((CLIENT, 40_000), (SERVER, 8080), &said);
    tape
}

const RULES: &str = r#"
alert http2 any any -> any any (msg:"target"; http.uri; content:"/index"; sid:1;)
alert http any any -> any any (msg:"either version"; http.host; content:"www.example.com"; bsize:15; sid:2;)
alert http2 any any -> any any (msg:"body"; http.response_body; content:"hello"; sid:3;)
alert http2 any any -> any any (msg:"file"; file.data; content:"hello"; sid:4;)
alert http2 any any -> any any (msg:"frame of the client"; flow:to_server; http2.frametype:GOAWAY; sid:5;)
alert http2 any any -> any any (msg:"error"; http2.errorcode:NO_ERROR; sid:6;)
alert http2 any any -> any any (msg:"setting"; http2.settings:SETTINGS_HEADER_TABLE_SIZE>4095; sid:7;)
alert http2 any any -> any any (msg:"name"; flow:to_client; http2.header_name; content:"server"; bsize:6; sid:8;)
alert dns any any -> any any (msg:"question"; dns.query; content:"www.example.com"; sid:9;)
alert doh2 any any -> any any (msg:"both"; dns.query; content:"example"; http.host; content:"resolver"; sid:10;)
alert dns any any -> any any (msg:"answer"; flow:to_client; dns.answers.rrname; content:"www.example.com"; sid:11;)
alert http2 any any -> any any (msg:"of the other"; http.host; content:"resolver"; sid:12;)
alert http1 any any -> any any (msg:"not of version 1"; http.uri; content:"/index"; sid:20;)
alert http2 any any -> any any (msg:"not of the server"; flow:to_client; http2.frametype:GOAWAY; sid:21;)
alert http2 any any -> any any (msg:"another setting"; http2.settings:SETTINGS_ENABLE_PUSH; sid:22;)
alert http2 any any -> any any (msg:"another value"; http2.settings:SETTINGS_HEADER_TABLE_SIZE<4096; sid:23;)
alert doh2 any any -> any any (msg:"not of DNS"; http.uri; content:"/index"; sid:24;)
alert dns any any -> any any (msg:"another name"; dns.query; content:"www.example.org"; sid:25;)
"#;

#[test]
fn streams_and_dns_in_them_match_and_are_written() {
    let tape = session();
    let how = || How::rules(RULES);
    let left = sense_tape(&tape, &how());
    let found: Vec<(u64, usize)> = (1..=12).map(|sid| (sid, 1)).collect();
    assert_eq!(counts(&left.of("alert")), found, "{}", left.text);
    for workers in [2, 4] {
        assert_eq!(sense_tape(&tape, &how().workers(workers)).text, left.text);
    }
    let automaton = How {
        matcher: matcher::Engine::AhoCorasick,
        ..how()
    };
    assert_eq!(sense_tape(&tape, &automaton).text, left.text);
    hold(left.eve.iter());
    let (http, dns) = (left.of("http"), left.of("dns"));
    assert_eq!((http.len(), dns.len()), (3, 1), "{}", left.text);
    let settings = &http[0]["http"]["http2"]["request"]["settings"];
    assert_eq!(settings[0]["settings_value"], 4096);
    assert_eq!(http[1]["http"]["url"], "/index");
    assert_eq!(http[1]["http"]["length"], 5);
    let end = &http[2]["http"]["http2"]["request"];
    assert_eq!(end["error_code"], "NOERROR");
    assert_eq!(dns[0]["dns"]["answers"][0]["rdata"], "192.0.2.1");
    assert_eq!(dns[0]["http"]["hostname"], "resolver");
    let flow = &left.of("flow")[0];
    assert_eq!(flow["app_proto"], "doh2");
    assert_eq!(flow["app_proto_orig"], "http2");
    let stats = left.of("stats");
    assert_eq!(stats[0]["stats"]["app_layer"]["flow"]["http2"], 1);
}
