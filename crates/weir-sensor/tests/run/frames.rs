//! Frames: rules about parts of messages as sent, what alerts say of them, and their records.

use serde_json::Value;

use super::bed::{CLIENT, How, SERVER, Tape, counts, sense_tape};
use super::schema::hold;

const REQUEST: &[u8] = b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello";
const CHUNKED: &[u8] =
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
const SECOND: &[u8] = b"GET /b HTTP/1.1\r\nHost: h\r\n\r\n";

fn web() -> Tape {
    let mut tape = Tape::default();
    let said: &[&[u8]] = &[REQUEST, CHUNKED, SECOND];
    tape.session((CLIENT, 40_000), (SERVER, 80), said);
    tape
}

/// Number of the rule, kind of frame, number, place, length and transaction.
fn told(events: &[&Value]) -> Vec<(u64, String, [u64; 4])> {
    let mut told: Vec<_> = (events.iter())
        .map(|e| {
            let f = &e["frame"];
            let numbers = ["id", "stream_offset", "length", "tx_id"];
            (
                e["alert"]["signature_id"].as_u64().unwrap_or(0),
                f["type"].as_str().unwrap_or_default().to_owned(),
                numbers.map(|name| f[name].as_u64().expect("a number")),
            )
        })
        .collect();
    told.sort();
    told
}

#[test]
fn alerts_say_which_frame_they_are_about() {
    let rules = r#"
alert http any any -> any any (msg:"all of it"; flow:to_server; frame:http1.request; content:"POST /a"; startswith; content:"hello"; endswith; sid:1;)
alert http1 any any -> any any (msg:"as sent"; flow:to_client; frame:response; content:"3|0d 0a|abc"; sid:2;)
alert http any any -> any any (msg:"each of them"; frame:http1.request; content:"Host"; sid:3;)
alert tcp any any -> any any (msg:"the stream"; frame:http1.stream; content:"/b"; sid:4;)
alert http any any -> any any (msg:"another's"; frame:http1.request; content:"abc"; sid:20;)
"#;
    let left = sense_tape(&web(), &How::rules(rules));
    hold(left.eve.iter());
    let alerts = left.of("alert");
    let framed: Vec<&Value> = alerts
        .iter()
        .filter(|e| !e["frame"].is_null())
        .copied()
        .collect();
    let all = REQUEST.len() as u64;
    let kind = |name: &str| name.to_owned();
    assert_eq!(
        told(&framed),
        [
            (1, kind("request"), [1, 0, all, 0]),
            (2, kind("response"), [1, 0, CHUNKED.len() as u64, 0]),
            (3, kind("request"), [1, 0, all, 0]),
            (3, kind("request"), [2, all, SECOND.len() as u64, 1]),
        ]
    );
    assert_eq!(left.sids().iter().filter(|s| **s == 4).count(), 1);
    for workers in [2, 4] {
        let how = How::rules(rules).workers(workers);
        assert_eq!(sense_tape(&web(), &how).text, left.text);
    }
}

#[test]
fn records_of_frames() {
    let how = How::rules("")
        .set("outputs.0.eve-log.types.0.frame.enabled=yes")
        .set("outputs.1.fast.enabled=yes");
    let left = sense_tape(&web(), &how);
    hold(left.eve.iter());
    // The first frame of a direction is its stream.
    let all = REQUEST.len() as u64;
    let expected = [
        (0, "request".to_owned(), [2, 0, all, 0]),
        (0, "request".to_owned(), [3, all, SECOND.len() as u64, 1]),
        (0, "response".to_owned(), [2, 0, CHUNKED.len() as u64, 0]),
    ];
    assert_eq!(told(&left.of("frame")), expected);
}

#[test]
fn lines_and_letters_of_mail() {
    let mut tape = Tape::default();
    let said: &[&[u8]] = &[
        b"",
        b"220 mx ESMTP\r\n",
        b"EHLO a\r\n",
        b"250 mx\r\n",
        b"MAIL FROM:<a@b>\r\n",
        b"250 ok\r\n",
        b"RCPT TO:<c@d>\r\n",
        b"250 ok\r\n",
        b"DATA\r\n",
        b"354 go\r\n",
        b"Subject: x\r\n\r\nhello\r\n.\r\n",
        b"250 ok\r\n",
    ];
    tape.session((CLIENT, 40_000), (SERVER, 25), said);
    let rules = r#"
alert smtp any any -> any any (msg:"greeting"; frame:smtp.response_line; content:"220 "; startswith; content:"|0d 0a|"; endswith; sid:1;)
alert smtp any any -> any any (msg:"each"; frame:smtp.response_line; content:"250 ok"; startswith; sid:2;)
alert smtp any any -> any any (msg:"line"; frame:smtp.command_line; content:"MAIL FROM"; startswith; bsize:17; sid:3;)
alert smtp any any -> any any (msg:"letter"; frame:smtp.data; content:"Subject"; startswith; content:"hello"; sid:4;)
alert smtp any any -> any any (msg:"no line"; frame:smtp.command_line; content:"Subject"; sid:20;)
"#;
    let left = sense_tape(&tape, &How::rules(rules));
    hold(left.eve.iter());
    let mut sids = left.sids();
    sids.sort_unstable();
    assert_eq!(sids, [1, 2, 2, 2, 3, 4], "{}", left.text);
}

/// Rules that match, by their number, of one session with a server's port.
fn matched(port: u16, said: &[&[u8]], rules: &str) -> Vec<(u64, usize)> {
    let mut tape = Tape::default();
    tape.session((CLIENT, 40_000), (SERVER, port), said);
    let left = sense_tape(&tape, &How::rules(rules));
    for workers in [2, 4] {
        let how = How::rules(rules).workers(workers);
        assert_eq!(sense_tape(&tape, &how).text, left.text);
    }
    counts(&left.of("alert"))
}

#[test]
fn messages_of_dns_without_their_length() {
    let query = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x03www\x07example\0\0\x01\0\x01";
    let said = [&[0, query.len() as u8][..], query].concat();
    let rules = r#"
alert dns any any -> any any (msg:"a message"; flow:to_server; frame:dns.pdu; content:"|12 34 01 00|"; startswith; bsize:29; sid:1;)
alert dns any any -> any any (msg:"its protocol is that of the header"; frame:pdu; content:"example"; sid:2;)
alert dns any any -> any any (msg:"its length"; frame:dns.pdu; content:"|00 1d|"; startswith; sid:20;)
"#;
    assert_eq!(matched(53, &[&said], rules), [(1, 1), (2, 1)]);
    let mut tape = Tape::default();
    let datagram = weir_packet::build::Frame::new()
        .ip4(CLIENT, SERVER)
        .udp(40_000, 53)
        .payload(query);
    tape.push(&datagram);
    let left = sense_tape(&tape, &How::rules(rules));
    assert_eq!(counts(&left.of("alert")), [(1, 1), (2, 1)], "{}", left.text);
}

#[test]
fn packets_of_ssh_until_they_are_encrypted() {
    // A key exchange offer with empty lists, and the end of the exchange.
    let offer = [&[20][..], &[7; 16], &[0; 4 * 10 + 5], &[0; 6]].concat();
    let packet = |payload: &[u8]| {
        let head = [0, 0, 0, payload.len() as u8 + 1, 0];
        [&head[..], payload].concat()
    };
    let (offer, keys) = (packet(&offer), packet(&[21]));
    let client = [b"SSH-2.0-a\r\n".as_slice(), &offer].concat();
    let server = [b"SSH-2.0-b\r\n".as_slice(), &offer, &keys].concat();
    let rules = r#"
alert ssh any any -> any any (msg:"all of it"; flow:to_server; frame:ssh.record_pdu; content:"|14 07 07|"; offset:5; depth:3; sid:1;)
alert ssh any any -> any any (msg:"head"; flow:to_client; frame:ssh.record_hdr; content:"|00 15|"; offset:4; depth:2; bsize:6; sid:2;)
alert ssh any any -> any any (msg:"the rest"; flow:to_server; frame:ssh.record_data; content:"|07 07|"; startswith; sid:3;)
alert ssh any any -> any any (msg:"banner"; frame:ssh.record_pdu; content:"SSH"; sid:20;)
"#;
    let found = matched(22, &[&client, &server], rules);
    assert_eq!(found, [(1, 1), (2, 1), (3, 1)]);
}

#[test]
fn records_of_tls_and_alerts() {
    let hello = [&[3, 3][..], &[9; 32], &[0, 0, 2, 0x13, 1, 1, 0]].concat();
    let message = [&[1, 0, 0, hello.len() as u8][..], &hello].concat();
    let record = [&[22, 3, 1, 0, message.len() as u8][..], &message].concat();
    let alert = [21, 3, 3, 0, 2, 2, 40];
    let rules = r#"
alert tls any any -> any any (msg:"record"; flow:to_server; frame:tls.pdu; content:"|16 03 01|"; startswith; sid:1;)
alert tls any any -> any any (msg:"head"; flow:to_client; frame:tls.hdr; content:"|15 03 03 00 02|"; startswith; endswith; sid:2;)
alert tls any any -> any any (msg:"hello"; flow:to_server; frame:tls.data; content:"|01 00 00|"; startswith; sid:3;)
alert tls any any -> any any (msg:"alert"; flow:to_client; frame:tls.alert; content:"|02 28|"; startswith; endswith; sid:4;)
alert tls any any -> any any (msg:"heartbeat"; frame:tls.hb; content:"|02|"; sid:20;)
"#;
    let found = matched(443, &[&record, &alert], rules);
    assert_eq!(found, [(1, 1), (2, 1), (3, 1), (4, 1)]);
}

#[test]
fn messages_of_rfb_modbus_and_postgresql() {
    let rules = r#"
alert rfb any any -> any any (msg:"version"; flow:to_client; frame:rfb.pdu; content:"RFB 003.008|0a|"; startswith; endswith; sid:1;)
alert rfb any any -> any any (msg:"choice"; flow:to_server; frame:pdu; content:"|01|"; bsize:1; sid:2;)
"#;
    let said: &[&[u8]] = &[
        b"",
        b"RFB 003.008\n",
        b"RFB 003.008\n",
        b"\x01\x01",
        b"\x01",
        b"\0\0\0\0",
        b"\x01",
    ];
    // The type of security that it chooses, and that the screen is shared.
    assert_eq!(matched(5900, said, rules), [(1, 1), (2, 2)]);
    let rules = r#"
alert modbus any any -> any any (msg:"request"; flow:to_server; frame:modbus.pdu; content:"|00 01 00 00 00 06 07 03|"; startswith; bsize:12; sid:1;)
alert modbus any any -> any any (msg:"answer"; flow:to_client; frame:pdu; content:"|01 02|"; endswith; sid:2;)
"#;
    let said: &[&[u8]] = &[
        &[0, 1, 0, 0, 0, 6, 7, 3, 0, 16, 0, 1],
        &[0, 1, 0, 0, 0, 5, 7, 3, 2, 1, 2],
    ];
    assert_eq!(matched(502, said, rules), [(1, 1), (2, 1)]);
    let rules = r#"
alert pgsql any any -> any any (msg:"start"; flow:to_server; frame:pgsql.pdu; content:"|00 03 00 00|user"; offset:4; depth:8; sid:1;)
alert pgsql any any -> any any (msg:"query"; flow:to_server; frame:pdu; content:"Q"; startswith; content:"select"; sid:2;)
alert pgsql any any -> any any (msg:"ready"; flow:to_client; frame:pgsql.pdu; content:"Z|00 00 00 05|I"; startswith; endswith; sid:3;)
"#;
    let said: &[&[u8]] = &[
        b"\0\0\0\x14\0\x03\0\0user\0alice\0\0",
        b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I",
        b"Q\0\0\0\x0dselect 1\0",
        b"C\0\0\0\x0dSELECT 1\0Z\0\0\0\x05I",
    ];
    assert_eq!(matched(5432, said, rules), [(1, 1), (2, 1), (3, 2)]);
}
