//! Frames: rules about parts of messages as sent, what alerts say of them, and their records.

use serde_json::Value;

use super::bed::{CLIENT, How, SERVER, Tape, sense_tape};
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
