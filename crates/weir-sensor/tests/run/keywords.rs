//! Keywords about parts of packets, requests and hellos: each with what must alert, and what must not.

use weir_packet::build::Frame;
use weir_sensor::matcher;

use super::bed::{CLIENT, How, Left, SERVER, Tape, counts, sense_tape};
use super::schema::hold;

/// Runs with one, two and four workers and with both engines, which must leave the same.
fn alike(tape: &Tape, rules: &str, settings: &[&str]) -> Left {
    let how = || {
        let how = How::rules(rules);
        settings.iter().fold(how, |how, one| how.set(one))
    };
    let left = sense_tape(tape, &how());
    for workers in [2, 4] {
        assert_eq!(sense_tape(tape, &how().workers(workers)).text, left.text);
    }
    let other = How {
        matcher: matcher::Engine::AhoCorasick,
        ..how()
    };
    assert_eq!(sense_tape(tape, &other).text, left.text);
    left
}

/// Rules that alerted, each as often as it did, are those with a number below 100, once each; those from 100 on never alert.
fn once(left: &Left, rules: &str) {
    let numbers = rules.lines().filter_map(|line| {
        let (_, rest) = line.split_once("sid:")?;
        rest.split(';').next()?.parse::<u64>().ok()
    });
    let wanted: Vec<(u64, usize)> = numbers.filter(|n| *n < 100).map(|n| (n, 1)).collect();
    assert_eq!(counts(&left.of("alert")), wanted, "{}", left.text);
}

#[test]
fn headers_of_ethernet_and_messages_of_igmp() {
    let mut tape = Tape::default();
    let report = [0x16, 0, 0x09, 0x04, 224, 0, 0, 251];
    let igmp = Frame::new()
        .ip4(CLIENT, [224, 0, 0, 251])
        .ip_options(&[148, 4, 0, 0])
        .protocol(2)
        .ttl(1);
    tape.push(&igmp.payload(&report));
    tape.push(
        &Frame::new()
            .vlan(7)
            .ip4(CLIENT, SERVER)
            .udp(1, 9)
            .payload(b"tagged"),
    );
    // Seven bytes are no message.
    let short = Frame::new().ip4(SERVER, CLIENT).protocol(2);
    tape.push(&short.payload(&report[..7]));
    let rules = r#"
alert igmp any any -> any any (msg:"type"; igmp.type:0x16; sid:1;)
alert ip any any -> any any (msg:"range"; igmp.type:>0x15; ttl:1; sid:2;)
alert igmp any any -> any any (msg:"group"; igmp.hdr; content:"|e0 00 00 fb|"; offset:4; bsize:8; sid:3;)
alert igmp any any -> 224.0.0.251 any (msg:"router alert"; ipopts:rtralt; sid:4;)
alert udp any any -> any any (msg:"behind a tag"; ether.hdr; content:"|81 00|"; offset:12; bsize:14; sid:5;)
alert igmp any any -> 224.0.0.0/4 any (msg:"Ethernet"; ether.hdr; content:"|08 00|"; endswith; sid:6;)
alert igmp any any -> any any (msg:"another type"; igmp.type:0x11; sid:100;)
alert udp any any -> any any (msg:"not IGMP"; igmp.type:<255; sid:101;)
alert igmp any any -> any any (msg:"too short"; igmp.hdr; content:"|16|"; bsize:7; sid:102;)
alert igmp any any -> any any (msg:"another option"; ipopts:rr; sid:103;)
"#;
    once(&alike(&tape, rules, &[]), rules);
    // What a tunnel carries from its IP header on has no Ethernet header.
    let inner = &tape.frames[0].1[14..];
    let mut carried = Tape::default();
    let gre = Frame::new().ip4(CLIENT, SERVER).protocol(47);
    carried.push(&gre.payload(&[&[0, 0, 8, 0], inner].concat()));
    let rules = r#"
alert igmp any any -> any any (msg:"inside"; igmp.type:0x16; sid:1;)
alert igmp any any -> any any (msg:"no frame"; ether.hdr; content:"|08 00|"; sid:100;)
"#;
    once(&alike(&carried, rules, &[]), rules);
}

#[test]
fn parts_of_a_buffer() {
    let mut tape = Tape::default();
    let request = "GET /a HTTP/1.1\r\nHost: a.example\r\nUser-Agent: curl/7.64.1\r\n\r\n";
    super::bed::web(&mut tape, 40_000, request, super::bed::ANSWER);
    let rules = r#"
alert http any any -> any any (msg:"first"; http.user_agent; subslice:0,4; content:"curl"; bsize:4; sid:1;)
alert http any any -> any any (msg:"rest"; http.user_agent; subslice:5; content:"7.64.1"; bsize:6; sid:2;)
alert http any any -> any any (msg:"from the end"; http.user_agent; subslice:-6,1; content:"7"; bsize:1; sid:3;)
alert http any any -> any any (msg:"up to the end"; http.user_agent; subslice:0,-6; content:"curl/"; bsize:5; sid:4;)
alert http any any -> any any (msg:"cut"; http.user_agent; subslice:0,30,truncate; content:"curl/7.64.1"; bsize:11; sid:5;)
alert http any any -> any any (msg:"nothing"; http.user_agent; subslice:0,30; bsize:0; sid:6;)
alert http any any -> any any (msg:"and changed"; http.user_agent; subslice:0,4; to_uppercase; content:"CURL"; sid:7;)
alert http any any -> any any (msg:"both"; http.user_agent; content:"7.64"; subslice:0,4; content:"curl"; sid:8;)
alert http any any -> any any (msg:"outside"; http.user_agent; subslice:0,4; content:"7"; sid:100;)
alert http any any -> any any (msg:"too much"; http.user_agent; subslice:0,12; content:"curl"; sid:101;)
"#;
    once(&alike(&tape, rules, &[]), rules);
}

/// A request of Modbus to unit 7.
fn modbus(number: u16, function: u8, data: &[u8]) -> Vec<u8> {
    let mut m = number.to_be_bytes().to_vec();
    m.extend_from_slice(&[0, 0]);
    m.extend_from_slice(&(data.len() as u16 + 2).to_be_bytes());
    m.extend_from_slice(&[7, function]);
    m.extend_from_slice(data);
    m
}

#[test]
fn requests_of_modbus() {
    let exchanges: [(u8, &[u8], &[u8]); 6] = [
        // Two registers from 16 on, which rules count from 17.
        (3, &[0, 16, 0, 2], &[4, 1, 2, 3, 4]),
        // The coil 1 is turned on.
        (5, &[0, 1, 0xff, 0], &[0, 1, 0xff, 0]),
        // Registers 500 and 501: 200, 300.
        (16, &[1, 0xf4, 0, 2, 4, 0, 200, 1, 44], &[1, 0xf4, 0, 2]),
        // Ten coils from 100 on, of which the ninth is on.
        (15, &[0, 100, 0, 10, 2, 0, 1], &[0, 100, 0, 10]),
        // Listen only.
        (8, &[0, 4, 0, 0], &[0, 4, 0, 0]),
        (66, &[1], &[1]),
    ];
    let mut said = Vec::new();
    for (number, (function, request, answer)) in exchanges.into_iter().enumerate() {
        said.push(modbus(number as u16, function, request));
        said.push(modbus(number as u16, function, answer));
    }
    let said: Vec<&[u8]> = said.iter().map(Vec::as_slice).collect();
    let mut tape = Tape::default();
    tape.session((CLIENT, 40_000), (SERVER, 502), &said);
    let rules = r#"
alert modbus any any -> any any (msg:"function"; modbus:function 3; sid:1;)
alert tcp any any -> any 502 (msg:"subfunction"; modbus: function 8, subfunction 4; sid:2;)
alert modbus any any -> any any (msg:"user"; modbus: function user; sid:3;)
alert modbus any any -> any any (msg:"unit"; modbus: unit 7, function 16; sid:4;)
alert modbus any any -> any any (msg:"read"; modbus: access read holding; sid:5;)
alert modbus any any -> any any (msg:"read at"; modbus: access read holding, address 18; sid:6;)
alert modbus any any -> any any (msg:"write at"; modbus: access write holding, address 501<>503, value >250; sid:7;)
alert modbus any any -> any any (msg:"write one"; modbus: access write holding, address 501, value 200; sid:8;)
alert modbus any any -> any any (msg:"coil"; modbus: access write coils, address 2, value 1; sid:9;)
alert modbus any any -> any any (msg:"coils"; modbus: access write coils, address 109, value 1; sid:10;)
alert modbus any any -> any any (msg:"coils, off"; modbus: access write coils, address 108, value 0; sid:11;)
alert modbus any any -> any any (msg:"two conditions"; modbus: unit >6; modbus: function 66; sid:12;)
alert modbus any any -> any any (msg:"not assigned"; modbus: function !assigned; sid:13;)
alert modbus any any -> any any (msg:"another function"; modbus: function 4; sid:100;)
alert modbus any any -> any any (msg:"another subfunction"; modbus: function 8, subfunction 3; sid:101;)
alert modbus any any -> any any (msg:"another unit"; modbus: unit 8; sid:102;)
alert modbus any any -> any any (msg:"another address"; modbus: access read holding, address 16; sid:103;)
alert modbus any any -> any any (msg:"behind"; modbus: access read holding, address >18; sid:104;)
alert modbus any any -> any any (msg:"another value"; modbus: access write holding, address 501, value 300; sid:105;)
alert modbus any any -> any any (msg:"another table"; modbus: access read coils; sid:106;)
alert modbus any any -> any any (msg:"reserved"; modbus: function reserved; sid:107;)
alert modbus any any -> any any (msg:"off"; modbus: access write coils, address 109, value 0; sid:108;)
"#;
    once(&alike(&tape, rules, &[]), rules);
    let rules = r#"alert modbus any any -> any any (msg:"each request"; modbus: function all; sid:1;)
alert modbus any any -> any any (msg:"each write"; modbus: access write; sid:2;)
"#;
    let left = alike(&tape, rules, &[]);
    assert_eq!(counts(&left.of("alert")), [(1, 6), (2, 3)], "{}", left.text);
}

#[test]
fn hellos_of_early_quic() {
    let mut hello = b"CHLO".to_vec();
    let values: [(&[u8; 4], &[u8]); 4] = [
        (b"PAD\0", &[b'-'; 200]),
        (b"SNI\0", b"q.example"),
        (b"VER\0", b"Q046"),
        (b"UAID", b"agent/7"),
    ];
    hello.extend_from_slice(&[values.len() as u8, 0, 0, 0]);
    let mut end = 0;
    for (tag, value) in values {
        end += value.len() as u32;
        hello.extend_from_slice(tag);
        hello.extend_from_slice(&end.to_le_bytes());
    }
    hello.extend(values.iter().flat_map(|(_, value)| value.iter()));
    let length = (hello.len() as u16).to_be_bytes();
    let datagram = [
        &b"\xc3Q046\x50"[..],
        &[7; 8],
        &[0, 0, 0, 1],
        &[9; 12],
        &[0xa0, 1],
        &length,
        &hello,
        &[0; 40],
    ];
    let mut tape = Tape::default();
    let frame = Frame::new().ip4(CLIENT, SERVER).udp(40_000, 443);
    tape.push(&frame.payload(&datagram.concat()));
    let rules = r#"
alert quic any any -> any any (msg:"tags"; quic.cyu.string; content:"46,PAD-SNI-VER-UAID"; bsize:19; sid:1;)
alert quic any any -> any any (msg:"hash"; quic.cyu.hash; content:"HASH"; bsize:32; sid:2;)
alert quic any any -> any any (msg:"agent"; quic.ua; content:"agent/7"; bsize:7; sid:3;)
alert quic any any -> any any (msg:"name"; quic.sni; content:"q.example"; bsize:9; sid:4;)
alert quic any any -> any any (msg:"version"; quic.version; content:"Q046"; sid:5;)
alert quic any any -> any any (msg:"other tags"; quic.cyu.string; content:"46,PAD-VER"; sid:100;)
"#;
    let cyu = "46,PAD-SNI-VER-UAID";
    let settings = [
        "outputs.0.eve-log.types.quic.enabled=yes",
        "outputs.1.fast.enabled=yes",
    ];
    let left = alike(&tape, "", &settings);
    let record = left.of("quic")[0];
    assert_eq!(record["quic"]["cyu"][0]["string"], cyu);
    assert_eq!(record["quic"]["ua"], "agent/7");
    hold(left.eve.iter());
    let hash = record["quic"]["cyu"][0]["hash"].as_str().expect("text");
    let rules = rules.replace("HASH", hash);
    once(&alike(&tape, &rules, &[]), &rules);
}

#[test]
fn sums_of_mails() {
    let mut tape = Tape::default();
    tape.session(
        (CLIENT, 41_002),
        (SERVER, 25),
        &[
            b"\r\n",
            b"220 x ESMTP\r\n",
            b"EHLO a\r\n",
            b"250 x\r\n",
            b"MAIL FROM:<a@example.net>\r\n",
            b"250 ok\r\n",
            b"RCPT TO:<b@example.org>\r\n",
            b"250 ok\r\n",
            b"DATA\r\n",
            b"354 go\r\n",
            b"From: a@example.net\r\nSubject: papers\r\n\r\nSee http://www.Example.com/a?b=c, soon\r\n..\r\n.\r\n",
            b"250 queued\r\n",
        ],
    );
    let rules = r#"
alert smtp any any -> any any (msg:"sum"; email.body_md5; content:"446ED98E9E92CF0EE188BB74805A9D32"; bsize:32; sid:1;)
alert smtp any any -> any any (msg:"another"; email.body_md5; content:"446ed98e9e92cf0ee188bb74805a9d33"; sid:100;)
"#;
    let settings = [
        "outputs.0.eve-log.types.smtp.enabled=yes",
        "outputs.1.fast.enabled=yes",
    ];
    let left = alike(&tape, rules, &settings);
    // A record has it only where that is asked for.
    assert!(!left.text.contains("body_md5"), "{}", left.text);
    once(&alike(&tape, rules, &[]), rules);
}

#[test]
fn states_of_transactions() {
    let mut tape = Tape::default();
    let head = b"POST /one HTTP/1.1\r\nHost: www.example\r\nContent-Length: 20\r\n\r\nten bytes!";
    let answer = super::bed::ANSWER.as_bytes();
    let said: &[&[u8]] = &[
        b"POST /one HT",
        b"",
        &head[12..],
        b"",
        b"ten bytes!",
        answer,
    ];
    tape.session((CLIENT, 40_000), (SERVER, 80), said);
    let rules = r#"
alert http1 any any -> any any (msg:"before the body"; app-layer-state:<request_body; sid:1;)
alert http1 any any -> any any (msg:"at the headers"; app-layer-state:request_headers; http.method; content:"POST"; sid:2;)
alert http1 any any -> any any (msg:"behind them"; app-layer-state:>request_headers; sid:3;)
alert http1 any any -> any any (msg:"behind the body"; app-layer-state:>request_body; sid:4;)
alert http1 any any -> any any (msg:"at the end"; app-layer-state:request_complete; sid:5;)
alert http1 any any -> any any (msg:"at the end"; app-layer-state:response_complete; sid:6;)
alert http1 any any -> any any (msg:"another method"; app-layer-state:request_line; http.method; content:"GET"; sid:101;)
"#;
    once(&alike(&tape, rules, &[]), rules);
    // What comes in one packet is not seen half.
    let mut tape = Tape::default();
    super::bed::web(
        &mut tape,
        40_001,
        "GET / HTTP/1.0\r\n\r\n",
        super::bed::ANSWER,
    );
    let rules = r#"
alert http1 any any -> any any (msg:"at the end"; app-layer-state:request_complete; sid:1;)
alert http1 any any -> any any (msg:"before the body"; app-layer-state:<request_body; sid:100;)
alert http1 any any -> any any (msg:"at the line"; app-layer-state:request_line; sid:101;)
"#;
    once(&alike(&tape, rules, &[]), rules);
}

#[test]
fn elements_of_asn1() {
    let mut tape = Tape::default();
    // A sequence of an integer and a text that says it has 1,000 bytes; a string of bits without bits.
    let payload = b"MAGIC\x30\x82\x03\xef\x02\x01\x05\x04\x82\x03\xe8abc";
    tape.push(&Frame::new().ip4(CLIENT, SERVER).udp(1, 9).payload(payload));
    tape.push(
        &Frame::new()
            .ip4(SERVER, CLIENT)
            .udp(1, 7)
            .payload(b"\x30\x80\x03\x01\x07"),
    );
    let rules = r#"
alert udp any any -> any any (msg:"behind a content"; content:"MAGIC"; asn1:oversize_length 500, relative_offset 0; sid:1;)
alert udp any any -> any any (msg:"at a place"; asn1:absolute_offset 9, oversize_length 999; sid:2;)
alert udp any any -> any any (msg:"bits"; asn1:bitstring_overflow, double_overflow, absolute_offset 0; sid:3;)
alert udp any any -> any any (msg:"with blanks"; content:"MAGIC"; asn1: bitstring_overflow oversize_length 1000 relative_offset 0; sid:4;)
alert udp any any -> any any (msg:"longer"; content:"MAGIC"; asn1:oversize_length 1007, relative_offset 0; sid:100;)
alert udp any any -> any any (msg:"elsewhere"; asn1:oversize_length 500, absolute_offset 0; sid:101;)
alert udp any any -> any any (msg:"no real number"; asn1:double_overflow; sid:102;)
"#;
    once(&alike(&tape, rules, &[]), rules);
}

#[test]
fn messages_of_the_hash_table_of_bittorrent() {
    let id = "abcdefghij0123456789";
    let mut tape = Tape::default();
    let ask = Frame::new().ip4(CLIENT, SERVER).udp(6881, 40_000);
    let ask_text = format!("d1:ad2:id20:{id}9:info_hash20:{id}e1:q9:get_peers1:t2:aa1:y1:qe");
    tape.push(&ask.payload(ask_text.as_bytes()));
    let answer = Frame::new().ip4(SERVER, CLIENT).udp(40_000, 6881);
    let mut text = format!("d1:rd2:id20:{id}5:token2:tk6:valuesl6:").into_bytes();
    text.extend_from_slice(b"\xc0\x00\x02\x02\x00\x50ee1:t2:aa1:y1:re");
    tape.push(&answer.payload(&text));
    tape.push(
        &Frame::new()
            .ip4(SERVER, CLIENT)
            .udp(40_000, 6881)
            .payload(b"d1:ad2:id99:x"),
    );
    let rules = r#"
alert bittorrent-dht any any -> any any (msg:"asks"; content:"9:get_peers"; sid:1;)
alert udp any any -> any any (msg:"broken"; app-layer-event:bittorrent_dht.malformed_packet; sid:2;)
alert bittorrent-dht any any -> any any (msg:"other"; content:"announce_peer"; sid:100;)
"#;
    let settings = [
        "outputs.0.eve-log.types.bittorrent-dht.enabled=yes",
        "outputs.0.eve-log.types.alert.enabled=yes",
        "outputs.1.fast.enabled=yes",
    ];
    let left = alike(&tape, rules, &settings);
    once(&left, rules);
    let records = left.of("bittorrent_dht");
    // What cannot be read says nothing.
    assert_eq!(records.len(), 2, "{}", left.text);
    let (ask, answer) = (&records[0], &records[1]);
    assert_eq!(ask["bittorrent_dht"]["request_type"], "get_peers");
    assert_eq!(ask["src_ip"], "192.168.1.10");
    assert_eq!(answer["src_ip"], "198.51.100.80");
    let values = &answer["bittorrent_dht"]["response"]["values"];
    assert_eq!(values[0]["ip"], "192.0.2.2");
    assert_eq!(values[0]["port"], 80);
    hold(left.eve.iter());
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    [&length[1..], &[kind, flags, 0, 0, 0, stream], payload].concat()
}

#[test]
fn frames_of_http2() {
    // GET / of a.example, and an answer with a body in two frames.
    let get = b"\x82\x84\x86\x41\x09a.example";
    let client = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        frame(4, 0, 0, &[0, 3, 0, 0, 0, 100]),
        frame(1, 5, 1, get),
    ]
    .concat();
    let long = [&b"begin"[..], &[b'.'; 2000], b"end"].concat();
    let server = [
        frame(4, 0, 0, &[]),
        frame(1, 4, 1, b"\x88"),
        frame(0, 8, 1, b"\x02hello\0\0"),
        frame(0, 1, 1, &long),
    ]
    .concat();
    let rules = r#"
alert http2 any any -> any any (msg:"settings"; flow:to_server; frame:pdu; content:"|00 00 06 04 00 00 00 00 00 00 03 00 00 00|d"; bsize:15; sid:1;)
alert http2 any any -> any any (msg:"head"; flow:to_server; frame:http2.hdr; content:"|01 05 00 00 00 01|"; endswith; bsize:9; sid:2;)
alert http2 any any -> any any (msg:"fields"; flow:to_server; frame:data; content:"|82 84 86 41 09|a.example"; bsize:14; sid:3;)
alert http2 any any -> any any (msg:"padded"; flow:to_client; frame:data; content:"|02|hello|00 00|"; bsize:8; sid:4;)
alert http2 any any -> any any (msg:"begins"; flow:to_client; frame:pdu; content:"begin"; offset:9; depth:5; sid:5;)
alert http2 any any -> any any (msg:"not kept"; flow:to_client; frame:data; content:"end"; sid:100;)
alert http2 any any -> any any (msg:"the other end"; flow:to_client; frame:data; content:"a.example"; sid:101;)
"#;
    let mut tape = Tape::default();
    tape.session((CLIENT, 40_000), (SERVER, 80), &[&client, &server]);
    let left = alike(&tape, rules, &[]);
    once(&left, rules);
    // The same in small pieces.
    let mut said: Vec<&[u8]> = Vec::new();
    said.extend(client.chunks(7).flat_map(|piece| [piece, b""]));
    said.extend(server.chunks(7).flat_map(|piece| [b"", piece]));
    let mut tape = Tape::default();
    tape.session((CLIENT, 40_000), (SERVER, 80), &said);
    once(&alike(&tape, rules, &[]), rules);
}
