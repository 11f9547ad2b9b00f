//! Rules about SIP, and its records: each message is one transaction, over UDP and over TCP.

use weir_packet::build::Frame;
use weir_sensor::matcher;

use super::bed::{CLIENT, How, SERVER, Tape, counts, sense_tape};

const INVITE: &[u8] = b"INVITE sip:bob@b.example SIP/2.0\r\nVia: SIP/2.0/UDP a.example\r\nv: SIP/2.0/UDP p.example\r\nf: <sip:a@a.example>\r\nTo: <sip:bob@b.example>\r\nUser-Agent: phone\r\nContent-Type: application/sdp\r\nContent-Length: 5\r\n\r\nv=0\r\n";
const RINGING: &[u8] = b"SIP/2.0 180 Ringing\r\nl: 0\r\n\r\n";

const RULES: &str = r#"
alert sip any any -> any any (msg:"request"; sip.method; content:"INVITE"; bsize:6; sip.uri; content:"bob"; sip.protocol; content:"SIP/2.0"; sid:1;)
alert sip any any -> any any (msg:"lines"; sip.request_line; content:"INVITE sip:bob@b.example SIP/2.0"; startswith; endswith; sid:2;)
alert sip any any -> any any (msg:"fields"; sip.from; content:"sip:a@"; sip.to; content:"bob@"; sip.user_agent; content:"phone"; sip.content_type; content:"sdp"; sip.content_length; content:"5"; bsize:1; sid:3;)
alert sip any any -> any any (msg:"the second one"; sip.via; content:"p.example"; endswith; sid:4;)
alert sip any any -> any any (msg:"response"; flow:to_client; sip.stat_code; content:"180"; sip.stat_msg; content:"Ringing"; bsize:7; sip.response_line; content:"SIP/2.0 180 Ringing"; bsize:19; sid:5;)
alert sip any any -> any any (msg:"event"; app-layer-event:sip.invalid_data; sid:6;)
alert sip any any -> any any (msg:"another method"; sip.method; content:"BYE"; sid:20;)
alert sip any any -> any any (msg:"of a response"; sip.method; content:"180"; sid:21;)
alert sip any any -> any any (msg:"of the other end"; flow:to_client; sip.method; content:"INVITE"; sid:22;)
alert sip any any -> any any (msg:"another code"; sip.stat_code; content:"200"; sid:23;)
alert sip any any -> any any (msg:"a body is no field"; sip.via; content:"v=0"; sid:24;)
"#;

fn over_udp() -> Tape {
    let mut tape = Tape::default();
    let question = Frame::new().ip4(CLIENT, SERVER).udp(5060, 5060);
    let answer = Frame::new().ip4(SERVER, CLIENT).udp(5060, 5060);
    tape.push(&question.clone().payload(INVITE));
    tape.push(&answer.payload(RINGING));
    tape.push(&question.payload(b"ACK sip:b SIP/2.0\r\nno colon\r\n\r\n"));
    tape
}

fn over_tcp() -> Tape {
    let mut tape = Tape::default();
    let said: &[&[u8]] = &[INVITE, RINGING, b"ACK sip:b SIP/2.0\r\nno colon\r\n\r\n"];
    tape.session((CLIENT, 40_000), (SERVER, 5060), said);
    tape
}

#[test]
fn messages_are_told_by_lines_and_fields() {
    for tape in [over_udp(), over_tcp()] {
        let how = || How::rules(RULES);
        let left = sense_tape(&tape, &how());
        let once = (1..=6).map(|sid| (sid, 1)).collect::<Vec<_>>();
        assert_eq!(counts(&left.of("alert")), once, "{}", left.text);
        for workers in [2, 4] {
            assert_eq!(sense_tape(&tape, &how().workers(workers)).text, left.text);
        }
        let how = How {
            matcher: matcher::Engine::AhoCorasick,
            ..how()
        };
        assert_eq!(sense_tape(&tape, &how).text, left.text);
    }
}

#[test]
fn a_message_is_one_record() {
    for tape in [over_udp(), over_tcp()] {
        let left = sense_tape(&tape, &How::rules(""));
        let records = left.of("sip");
        let [request, response, ..] = &records[..] else {
            panic!("two records: {}", left.text);
        };
        assert_eq!(request["sip"]["method"], "INVITE");
        assert_eq!(request["sip"]["uri"], "sip:bob@b.example");
        assert_eq!(request["dest_port"], 5060);
        assert_eq!(response["src_port"], 5060);
        assert_eq!(response["sip"]["code"], "180");
        assert_eq!(response["sip"]["reason"], "Ringing");
        assert_eq!(left.of("anomaly").len(), 1, "{}", left.text);
    }
}

/// What a description of a session says, in records and for rules, over UDP and over TCP, also where the body comes by itself.
#[test]
fn descriptions_of_sessions() {
    let body = "v=0\r\no=a 1 2 IN IP4 192.0.2.1\r\ns=call\r\nt=0 0\r\nm=audio 4000 RTP/AVP 0\r\na=rtpmap:0 PCMU/8000\r\nm=video 4002 RTP/AVP 31\r\nc=IN IP4 192.0.2.9\r\n";
    let head = format!(
        "INVITE sip:bob@b.example SIP/2.0\r\nc: application/SDP;a=b\r\nl: {}\r\n\r\n",
        body.len()
    );
    let whole = [head.as_bytes(), body.as_bytes()].concat();
    let rules = r#"
alert sip any any -> any any (msg:"a"; sdp.session_name; content:"call"; bsize:4; sdp.media.media; content:"video"; startswith; sid:1;)
alert sip any any -> any any (msg:"b"; sdp.attribute; content:"PCMU"; sdp.origin; content:"192.0.2.1"; endswith; sid:2;)
alert sip any any -> any any (msg:"c"; sdp.media.connection_data; content:"192.0.2.9"; sdp.time; content:"0 0"; sid:3;)
alert sip any any -> any any (msg:"of the session"; sdp.connection_data; content:"192.0.2.9"; sid:4;)
"#;
    let mut udp = Tape::default();
    udp.push(
        &Frame::new()
            .ip4(CLIENT, SERVER)
            .udp(5060, 5060)
            .payload(&whole),
    );
    let mut tcp = Tape::default();
    tcp.session(
        (CLIENT, 40_000),
        (SERVER, 5060),
        &[head.as_bytes(), b"", body.as_bytes()],
    );
    for tape in [udp, tcp] {
        let left = sense_tape(&tape, &How::rules(rules));
        let once = (1..=3).map(|sid| (sid, 1)).collect::<Vec<_>>();
        assert_eq!(counts(&left.of("alert")), once, "{}", left.text);
        let sdp = &left.of("sip")[0]["sip"]["sdp"];
        assert_eq!(sdp["session_name"], "call");
        assert_eq!(
            sdp["media_descriptions"][0]["attributes"][0],
            "rtpmap:0 PCMU/8000"
        );
        assert_eq!(
            sdp["media_descriptions"][1]["connection_data"],
            "IN IP4 192.0.2.9"
        );
    }
}
