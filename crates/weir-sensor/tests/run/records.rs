//! What readers of such logs count on: one alert a message, who is named as sender, where a packet came from, what records say of flows and sessions.

use serde_json::Value;
use weir_packet::build::Frame;

use super::bed::{CLIENT, How, Left, SERVER, Tape, counts, sense_tape};

#[test]
fn what_was_inspected_is_shown() {
    let mut tape = Tape::default();
    let get = b"GET /one HTTP/1.1\r\nHost: a\r\n\r\n";
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let second = b"GET /two\tx HTTP/1.1\r\nHost: a\r\n\r\n";
    tape.session(
        (CLIENT, 41_001),
        (SERVER, 80),
        &[get, answer, second, answer],
    );
    tape.push(
        &Frame::new()
            .ip4(CLIENT, SERVER)
            .udp(40_053, 53)
            .payload(b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x00\x00\x01\x00\x01"),
    );
    let rules = "alert http any any -> any any (msg:\"m\"; http.uri; content:\"/one\"; sid:1;)\n\
        alert http any any -> any any (msg:\"m\"; http.uri; content:\"/two\"; sid:2;)\n\
        alert dns any any -> any any (msg:\"m\"; sid:3;)\n";
    let alert = "outputs.0.eve-log.types.alert";
    let mut how = How::rules(rules).set("outputs.1.fast.enabled=yes");
    for one in [
        "payload=yes",
        "payload-printable=yes",
        "payload-length=yes",
        "packet=yes",
        "verdict=yes",
    ] {
        how = how.set(&format!("{alert}.{one}"));
    }
    let left = sense_tape(&tape, &how);
    let of = |sid: u64| {
        let all = left.of("alert");
        let found = all.into_iter().find(|a| a["alert"]["signature_id"] == sid);
        found
            .unwrap_or_else(|| panic!("{sid}: {}", left.text))
            .clone()
    };
    let (one, two, name) = (of(1), of(2), of(3));
    assert_eq!(
        one["payload_printable"],
        std::str::from_utf8(get).expect("text")
    );
    assert_eq!(
        (&one["payload_length"], &one["stream"]),
        (&Value::from(get.len()), &Value::from(1))
    );
    assert_eq!(
        two["payload_printable"],
        "GET /two.x HTTP/1.1\r\nHost: a\r\n\r\n"
    );
    assert_eq!(one["packet_info"]["linktype_name"], "EN10MB");
    assert_eq!(one["verdict"]["action"], "alert");
    // A rule that looks into no message says which one it was all the same.
    assert_eq!(
        (&name["tx_id"], &name["stream"]),
        (&Value::from(0), &Value::from(0))
    );
    assert_eq!(name["dns"]["queries"][0]["rrname"], "a");
}

#[test]
fn which_packets_make_flows_and_what_these_say() {
    let mut tape = Tape::default();
    let frame = |from: [u8; 4], to: [u8; 4]| Frame::new().ip4(from, to);
    // Two pings with two identifiers, one of them answered; ESP; what has no flows.
    for number in [1, 2] {
        tape.push(
            &frame(CLIENT, SERVER)
                .icmp(8, 0)
                .echo(number, 1)
                .payload(b"ping"),
        );
    }
    tape.push(&frame(SERVER, CLIENT).icmp(0, 0).echo(1, 1).payload(b"ping"));
    tape.push(
        &frame(CLIENT, SERVER)
            .protocol(50)
            .payload(b"\x00\x00\x12\x34\x00\x00\x00\x01secret"),
    );
    tape.push(&frame(CLIENT, SERVER).protocol(88).payload(&[0; 40]));
    // Unknown datagrams, and a session whose beginning was not seen.
    tape.push(
        &frame(CLIENT, SERVER)
            .udp(4000, 4001)
            .payload(b"nobody knows"),
    );
    tape.push(
        &frame(CLIENT, SERVER)
            .tcp(4002, 4003)
            .flags(Frame::ACK | Frame::PSH)
            .numbers(7, 9)
            .payload(b"late"),
    );
    let left = sense_tape(
        &tape,
        &How::rules("alert ip any any -> any any (msg:\"m\"; ip_proto:88; sid:1;)\n"),
    );
    let flows = left.of("flow");
    let of = |name: &str| {
        let mut found = flows.iter().filter(|f| f["proto"] == name);
        let one = found
            .next()
            .unwrap_or_else(|| panic!("{name}: {}", left.text));
        assert!(found.next().is_none(), "{}", left.text);
        *one
    };
    let ping = of("ICMP");
    assert_eq!(
        (&ping["icmp_type"], &ping["response_icmp_type"]),
        (&Value::from(8), &Value::from(0))
    );
    assert_eq!(ping["flow"]["pkts_toserver"], 2);
    assert_eq!(of("ESP")["spi"], 0x1234);
    assert_eq!(of("UDP")["app_proto"], "failed");
    let late = of("TCP");
    assert_eq!(late["tcp"]["tcp_flags"], "00");
    assert!(late["tcp"].get("state").is_none() && late["tcp"].get("ack").is_none());
    assert_eq!(flows.len(), 4, "{}", left.text);
    let alert = left.of("alert")[0];
    assert!(alert["proto"] == "EIGRP" && alert.get("flow").is_none());
}

#[test]
fn mails_say_what_is_asked_for() {
    let mut tape = Tape::default();
    let mail = b"DATA\r\n";
    tape.session((CLIENT, 41_002), (SERVER, 25), &[
        b"\r\n", b"220 x ESMTP\r\n", b"EHLO a\r\n", b"250 x\r\n",
        b"MAIL FROM:<a@example.net>\r\n", b"250 ok\r\n", b"RCPT TO:<b@example.org>\r\n", b"250 ok\r\n",
        mail, b"354 go\r\n",
        b"From: a@example.net\r\nTo: b@example.org\r\nBcc: c@d, e@f\r\nSubject: papers\r\nX-Mailer: pen\r\nDate: today\r\n\r\nSee http://www.Example.com/a?b=c, soon\r\n..\r\n.\r\n",
        b"250 queued\r\n",
    ]);
    let smtp = "outputs.0.eve-log.types.smtp";
    let run = |settings: &[&str]| {
        let mut how = How::rules("").set("outputs.1.fast.enabled=yes");
        for one in settings {
            how = how.set(&format!("{smtp}.{one}"));
        }
        let left = sense_tape(&tape, &how);
        let all = left.of("smtp");
        let email = all.iter().find_map(|r| r.get("email")).cloned();
        email.unwrap_or_else(|| panic!("{}", left.text))
    };
    let usual = run(&["enabled=yes"]);
    assert_eq!(usual["url"], serde_json::json!(["www.Example.com/a?b=c,"]));
    assert!(usual.get("subject").is_none(), "{usual}");
    assert!(usual.get("body_md5").is_none(), "{usual}");
    let more = run(&["extended=yes", "md5=[subject]", "custom=[date]"]);
    assert!(more.get("body_md5").is_none(), "{more}");
    assert_eq!(
        (&more["subject"], &more["x_mailer"], &more["date"]),
        (
            &Value::from("papers"),
            &Value::from("pen"),
            &Value::from("today")
        )
    );
    assert_eq!(more["bcc"], serde_json::json!(["c@d", "e@f"]));
    assert_eq!(more["subject_md5"], "a566b2bebc62611dff4cdaceac1a7bbd");
    // What was sent behind the headers, without the line that ends the mail.
    let sums = run(&["md5=[body, subject]"]);
    assert_eq!(sums["body_md5"], "446ed98e9e92cf0ee188bb74805a9d32");
}

#[test]
fn one_packet_gives_no_more_alerts_than_is_said() {
    let mut tape = Tape::default();
    tape.push(
        &Frame::new()
            .ip4(CLIENT, SERVER)
            .udp(4000, 4001)
            .payload(b"evil"),
    );
    let rules: String = (1..=5)
        .map(|n| format!("alert udp any any -> any any (msg:\"m\"; content:\"evil\"; sid:{n};)\n"))
        .collect();
    assert_eq!(
        sense_tape(&tape, &How::rules(&rules)).sids(),
        [1, 2, 3, 4, 5]
    );
    let left = sense_tape(&tape, &How::rules(&rules).set("packet-alert-max=3"));
    assert_eq!(left.sids(), [1, 2, 3]);
    let stats = left.of("stats");
    let last = &stats.last().expect("one")["stats"];
    assert_eq!(last["detect"]["alert_queue_overflow"], 2);
    assert_eq!(
        (
            &last["decoder"]["max_pkt_size"],
            &last["flow"]["end"]["state"]["new"]
        ),
        (&Value::from(46), &Value::from(1))
    );
    assert_eq!(
        (
            &last["app_layer"]["flow"]["failed_udp"],
            &last["decoder"]["event"]["udp"]["pkt_too_small"]
        ),
        (&Value::from(1), &Value::from(0))
    );
}

#[test]
fn two_applications_in_one_flow() {
    let mut tape = Tape::default();
    tape.session(
        (CLIENT, 42_000),
        (SERVER, 80),
        &[
            b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            b"SSH-2.0-OpenSSH_9.6\r\n",
            b"GET /2 HTTP/1.1\r\nHost: a\r\n\r\n",
            b"more\r\n",
        ],
    );
    let rules = "alert ip any any -> any any (msg:\"m\"; flow:established; app-layer-event:applayer_mismatch_protocol_both_directions; sid:1;)\n";
    let left = sense_tape(&tape, &How::rules(rules));
    assert_eq!(left.sids(), [1], "{}", left.text);
    let anomalies: Vec<_> = left
        .of("anomaly")
        .into_iter()
        .filter(|a| a["anomaly"]["layer"] == "proto_detect")
        .collect();
    assert_eq!(anomalies.len(), 1);
    assert_eq!(
        anomalies[0]["anomaly"]["event"],
        "APPLAYER_MISMATCH_PROTOCOL_BOTH_DIRECTIONS"
    );
    let flow = left.of("flow")[0];
    assert_eq!(flow["app_proto"], "http");
    assert_eq!(flow["app_proto_tc"], "ssh");
}

/// What is odd about how a flow's application showed itself, or changed.
#[test]
fn applications_that_are_not_what_they_should_be() {
    let much = [b'a'; 20_000];
    let hello: &[u8] = b"EHLO me\r\n";
    let ready: &[u8] = b"220 mail ESMTP\r\n250 STARTTLS\r\n";
    let cases: [(&str, u16, &[&[u8]]); 5] = [
        (
            "applayer_wrong_direction_first_data",
            80,
            &[
                b"",
                b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
                b"GET / HTTP/1.1\r\n\r\n",
            ],
        ),
        (
            "applayer_unexpected_protocol",
            25,
            &[
                hello,
                ready,
                b"STARTTLS\r\n",
                b"220 go on\r\n",
                b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
                b"500 what\r\n",
            ],
        ),
        (
            "applayer_no_tls_after_starttls",
            25,
            &[
                hello,
                ready,
                b"STARTTLS\r\n",
                b"220 go on\r\n",
                b"\x01\x02\x03\x04 and no hello at all\r\n",
                b"500 what\r\n",
            ],
        ),
        ("applayer_proto_detection_skipped", 9999, &[&much]),
        (
            "smtp.unable_to_match_reply_with_request",
            25,
            &[
                hello,
                ready,
                b"MAIL FROM:<a@b>\r\n",
                b"250 ok\r\n250 why\r\n",
                b"QUIT\r\n",
                b"221 bye\r\n",
            ],
        ),
    ];
    let rules: String = (1..)
        .zip(&cases)
        .map(|(sid, (event, ..))| {
            format!(
                "alert tcp any any -> any any (msg:\"m\"; app-layer-event:{event}; sid:{sid};)\n"
            )
        })
        .collect();
    for (sid, (event, port, said)) in (1..).zip(cases) {
        let mut tape = Tape::default();
        tape.session((CLIENT, 43_000), (SERVER, port), said);
        let left = sense_tape(&tape, &How::rules(&rules));
        assert_eq!(left.sids(), [sid], "{event}: {}", left.text);
    }
    // Ordinary sessions have none of them.
    let mut tape = Tape::default();
    let quiet: &[&[u8]] = &[hello, ready, b"QUIT\r\n", b"221 bye\r\n"];
    tape.session((CLIENT, 43_000), (SERVER, 25), quiet);
    let left = sense_tape(&tape, &How::rules(&rules));
    assert!(left.sids().is_empty(), "{}", left.text);
}

#[test]
fn mail_stands_beside_its_session() {
    let mut tape = Tape::default();
    let message = b"From: A <a@example.org>\r\nTo: b@example.org\r\nSubject: hi\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=x\r\n\r\n--x\r\nContent-Type: text/plain\r\nContent-Disposition: attachment; filename=evil.txt\r\n\r\nthe evil body\r\n--x--\r\n.\r\n";
    tape.session(
        (CLIENT, 43_000),
        (SERVER, 25),
        &[
            b"EHLO me\r\n",
            b"220 hi\r\n250 ok\r\n",
            b"MAIL FROM:<a@example.org>\r\n",
            b"250 ok\r\n",
            b"RCPT TO:<b@example.org>\r\n",
            b"250 ok\r\n",
            b"DATA\r\n",
            b"354 go\r\n",
            message,
            b"250 ok\r\n",
            b"QUIT\r\n",
            b"221 bye\r\n",
        ],
    );
    let rules =
        "alert smtp any any -> any any (msg:\"m\"; file.data; content:\"evil body\"; sid:1;)\n";
    let left = sense_tape(&tape, &How::rules(rules));
    assert_eq!(left.sids(), [1], "{}", left.text);
    for kind in ["smtp", "alert", "fileinfo"] {
        let record = left.of(kind)[0];
        assert_eq!(record["smtp"]["mail_from"], "<a@example.org>", "{record}");
        assert_eq!(record["email"]["from"], "A <a@example.org>", "{record}");
    }
    assert_eq!(left.of("smtp")[0]["email"]["attachment"][0], "evil.txt");
    assert_eq!(left.of("fileinfo")[0]["fileinfo"]["filename"], "evil.txt");
}

#[test]
fn where_packets_come_from() {
    let mut tape = Tape::default();
    // IPv4 in IPv4.
    let inner = Frame::new()
        .ip4([10, 0, 0, 1], [10, 0, 0, 2])
        .udp(1, 2)
        .payload(b"evil")
        .build();
    tape.push(
        &Frame::new()
            .ip4(CLIENT, SERVER)
            .protocol(4)
            .payload(&inner[14..]),
    );
    // Two fragments of a datagram.
    let whole = Frame::new()
        .ip4(CLIENT, SERVER)
        .udp(7, 8)
        .payload(b"0123456789abcdefevil")
        .build();
    let piece = |from: usize, to: usize, more: bool| {
        Frame::new()
            .ip4(CLIENT, SERVER)
            .protocol(17)
            .id(77)
            .fragment((from / 8) as u16, more)
            .payload(&whole[34 + from..34 + to])
    };
    tape.push(&piece(0, 16, true));
    tape.push(&piece(16, 28, false));
    // What a packet carries is no payload of its own.
    let rules = "\
        alert udp any any -> any any (msg:\"m\"; content:\"evil\"; sid:1;)\n\
        alert ip any any -> any any (msg:\"m\"; ip_proto:4; content:\"evil\"; sid:2;)\n\
        alert ip any any -> any any (msg:\"m\"; ip_proto:4; dsize:>0; sid:3;)\n";
    let how = How::rules(rules)
        .set("outputs.0.eve-log.types.alert.packet=yes")
        .set("outputs.1.fast.enabled=yes");
    let left = sense_tape(&tape, &how);
    let alerts = left.of("alert");
    assert_eq!(alerts.len(), 2, "{}", left.text);
    let tunnel = &alerts[0]["tunnel"];
    assert_eq!(alerts[0]["src_ip"], "10.0.0.1");
    assert_eq!(alerts[0]["pkt_src"], "ipv4 tunnel");
    assert_eq!(tunnel["src_ip"], "192.168.1.10");
    assert_eq!(tunnel["dest_ip"], "198.51.100.80");
    assert_eq!(tunnel["depth"], 1);
    assert_eq!(tunnel["pkt_src"], "wire/pcap");
    assert_eq!(alerts[1]["pkt_src"], "defrag");
    // It stands behind the headers of the frame that made it whole.
    assert_eq!(alerts[1]["packet_info"]["linktype"], 1);
    let shown = alerts[1]["packet"].as_str().expect("base64");
    assert_eq!(shown.len(), (14 + 20 + 28_usize).div_ceil(3) * 4);
    // What was put together has no frame of its own; the last of its pieces is said beside it.
    assert!(alerts[1].get("pcap_cnt").is_none());
    assert_eq!(alerts[1]["tunnel"]["pcap_cnt"], 3);
    assert_eq!(alerts[1]["tunnel"]["depth"], 0);
}

/// A datagram in fragments within PPP within GRE, larger than what is shown of a stream.
#[test]
fn a_datagram_put_together_in_a_tunnel() {
    let mut whole = Frame::new()
        .ip4([10, 0, 0, 1], [10, 0, 0, 2])
        .udp(1, 2)
        .payload(&[b'A'; 6000])
        .build();
    whole.drain(..34);
    let mut tape = Tape::default();
    let pieces = whole.chunks(1000).count();
    for (n, piece) in whole.chunks(1000).enumerate() {
        let inner = Frame::new()
            .ip4([10, 0, 0, 1], [10, 0, 0, 2])
            .protocol(17)
            .id(7)
            .fragment((n * 1000 / 8) as u16, n + 1 < pieces)
            .payload(piece)
            .build();
        let carried = [&[0, 0, 0x88, 0x0b, 0, 0x21][..], &inner[14..]].concat();
        tape.push(
            &Frame::new()
                .ip4(CLIENT, SERVER)
                .protocol(47)
                .payload(&carried),
        );
    }
    let rules = "alert udp any any -> any any (msg:\"m\"; dsize:6000; sid:1;)\n";
    let how = How::rules(rules)
        .set("outputs.0.eve-log.types.alert.packet=yes")
        .set("outputs.0.eve-log.types.alert.payload=yes")
        .set("outputs.1.fast.enabled=yes");
    let left = sense_tape(&tape, &how);
    let alerts = left.of("alert");
    assert_eq!(alerts.len(), 1, "{}", left.text);
    let length = |key: &str| alerts[0][key].as_str().expect("base64").len();
    assert_eq!(alerts[0]["pkt_src"], "defrag");
    assert!(alerts[0].get("pcap_cnt").is_none());
    assert_eq!(alerts[0]["packet_info"]["linktype"], 12);
    // The number of PPP is before it.
    assert_eq!(length("packet"), (2 + 20 + 8 + 6000_usize).div_ceil(3) * 4);
    assert_eq!(length("payload"), 8000);
    assert_eq!(alerts[0]["tunnel"]["proto"], "GRE");
    assert_eq!(alerts[0]["tunnel"]["pcap_cnt"], pieces);
}

#[test]
fn cut_headers_are_of_their_protocol() {
    let mut tape = Tape::default();
    for (protocol, payload) in [
        (6, &b""[..]),
        (17, b""),
        (17, b"\x81\x58\x00\x35"),
        (47, b""),
    ] {
        tape.push(
            &Frame::new()
                .ip4(CLIENT, SERVER)
                .protocol(protocol)
                .payload(payload)
                .unfinished(),
        );
    }
    let rules = "\
        alert tcp any any -> any any (msg:\"m\"; decode-event:tcp.pkt_too_small; sid:1;)\n\
        alert udp any any -> any any (msg:\"m\"; decode-event:udp.hlen_too_small; sid:2;)\n\
        alert ip any any -> any any (msg:\"m\"; decode-event:gre.pkt_too_small; sid:3;)\n\
        alert udp any any -> any any (msg:\"m\"; content:\"|81 58|\"; sid:4;)\n";
    let left = sense_tape(
        &tape,
        &How::rules(rules).set("stream.checksum-validation=no"),
    );
    assert_eq!(
        counts(&left.of("alert")),
        [(1, 1), (2, 2), (3, 1)],
        "{}",
        left.text
    );
}

#[test]
fn alerts_that_grow_rarer() {
    let mut tape = Tape::default();
    for n in 0..100 {
        tape.push(
            &Frame::new()
                .ip4(CLIENT, SERVER)
                .udp(5, 6)
                .payload(&[b'a', n]),
        );
    }
    let rules = "\
        alert udp any any -> any any (msg:\"m\"; dsize:>0; threshold:type backoff, track by_flow, count 1, multiplier 10; sid:1;)\n\
        alert udp any any -> any any (msg:\"m\"; dsize:>0; threshold:type backoff, track by_flow, count 3, multiplier 2; sid:2;)\n";
    let left = sense_tape(&tape, &How::rules(rules));
    // At 1, 10, 100; at 3, 6, 12, 24, 48, 96.
    assert_eq!(counts(&left.of("alert")), [(1, 3), (2, 6)], "{}", left.text);
}

#[test]
fn a_request_and_its_response_together() {
    let mut tape = Tape::default();
    super::bed::web(
        &mut tape,
        44_000,
        "GET /evil HTTP/1.1\r\nHost: a\r\n\r\n",
        super::bed::ANSWER,
    );
    let rules = "\
        alert http any any => any 80 (msg:\"m\"; http.uri; content:\"/evil\"; http.stat_code; content:\"200\"; sid:1;)\n\
        alert http any any => any 80 (msg:\"m\"; http.uri; content:\"/evil\"; http.stat_code; content:\"404\"; sid:2;)\n";
    let left = sense_tape(&tape, &How::rules(rules));
    assert_eq!(left.sids(), [1], "{}", left.text);
}

#[test]
fn the_acknowledgement_that_ends_a_handshake_belongs_to_it() {
    let mut tape = Tape::default();
    super::bed::web(
        &mut tape,
        44_001,
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        super::bed::ANSWER,
    );
    let rules = "\
        alert tcp any any -> any any (msg:\"m\"; flow:not_established; sid:2;)\n\
        alert tcp any any -> any any (msg:\"m\"; flow:established; sid:3;)\n\
        alert tcp any any -> any any (msg:\"m\"; flags:!SA; sid:4;)\n\
        alert tcp any any -> any any (msg:\"m\"; flow:only_stream; sid:5;)\n\
        alert tcp any any -> any any (msg:\"m\"; tcpv4-csum:valid; l3_proto:ipv4; flags:S; sid:6;)\n\
        alert tcp any any -> any any (msg:\"m\"; tcpv4-csum:invalid; sid:7;)\n\
        alert tcp any any -> any any (msg:\"m\"; tcpv6-csum:valid; sid:8;)\n";
    let left = sense_tape(&tape, &How::rules(rules));
    let frames = tape.frames.len();
    assert_eq!(
        counts(&left.of("alert")),
        // All but the SYN/ACK lack one of SYN and ACK.
        [(2, 3), (3, frames - 3), (4, frames - 1), (5, 2), (6, 1)],
        "{}",
        left.text
    );
}

#[test]
fn an_alert_names_a_packet_of_its_sender() {
    let mut tape = Tape::default();
    super::bed::web(
        &mut tape,
        44_002,
        "GET /evil HTTP/1.1\r\nHost: a\r\n\r\n",
        super::bed::ANSWER,
    );
    let rules = "\
        alert http any any -> any any (msg:\"m\"; http.uri; content:\"/evil\"; sid:1;)\n\
        alert http any any -> any any (msg:\"m\"; file.data; content:\"hello\"; sid:2;)\n\
        alert tcp any any -> any any (msg:\"m\"; content:\"/evil\"; sid:3;)\n";
    let left = sense_tape(&tape, &How::rules(rules));
    let found: Vec<_> = left
        .of("alert")
        .iter()
        .map(|a| (a["alert"]["signature_id"].clone(), a["pcap_cnt"].clone()))
        .collect();
    // 4 asks, 5 acknowledges it, 6 answers, 7 acknowledges that, 8 and 9 close.
    let wanted = [(3, 7), (1, 7), (2, 9)].map(|(sid, n): (u64, u64)| (sid.into(), n.into()));
    assert_eq!(found, wanted, "{}", left.text);
}

#[test]
fn how_much_a_buffer_tells() {
    let mut tape = Tape::default();
    super::bed::web(
        &mut tape,
        44_003,
        "GET /abcdabcd HTTP/1.1\r\nHost: aaaa\r\n\r\n",
        super::bed::ANSWER,
    );
    // `/abcdabcd`: four letters of two bits each behind the slash.
    let rules = "\
        alert http any any -> any any (msg:\"m\"; http.uri; entropy:value = 2, offset 1; sid:1;)\n\
        alert http any any -> any any (msg:\"m\"; http.uri; entropy:value > 2; sid:2;)\n\
        alert http any any -> any any (msg:\"m\"; http.uri; entropy:bytes 2, offset 1, value <=1; sid:3;)\n\
        alert http any any -> any any (msg:\"m\"; http.uri; entropy:value >= 0, bytes 10; sid:4;)\n\
        alert http any any -> any any (msg:\"m\"; http.host; entropy:value != 0; sid:5;)\n\
        alert http any any -> any any (msg:\"m\"; http.host; entropy:value 0; sid:6;)\n\
        alert tcp any any -> any any (msg:\"m\"; flags:S; flowint:count,isnotset,1; sid:7;)\n";
    let left = sense_tape(&tape, &How::rules(rules));
    let wanted = [(1, 1), (2, 1), (3, 1), (6, 1), (7, 1)];
    assert_eq!(counts(&left.of("alert")), wanted, "{}", left.text);
}

#[test]
fn what_rules_have_set_in_a_flow() {
    let mut tape = Tape::default();
    super::bed::web(
        &mut tape,
        45_000,
        "GET /flowboss HTTP/1.1\r\nHost: a\r\n\r\n",
        super::bed::ANSWER,
    );
    let rules = "\
        alert tcp any any -> any any (msg:\"m\"; content:\"boss\"; flowbits:isset,two; flowbits:set,three; sid:1;)\n\
        alert tcp any any -> any any (msg:\"m\"; content:\"flow\"; flowbits:isset,one; flowbits:set,two; flowbits:set,traffic/label/web; sid:2;)\n\
        alert tcp any any -> any any (msg:\"m\"; content:\"GET\"; flowbits:set,one; flowbits:set,traffic/id/me; flowint:n,+,3; sid:3;)\n";
    let left = sense_tape(&tape, &How::rules(rules));
    assert_eq!(
        counts(&left.of("alert")),
        [(1, 1), (2, 1), (3, 1)],
        "{}",
        left.text
    );
    for kind in ["http", "flow", "fileinfo"] {
        let record = left.of(kind)[0];
        assert_eq!(
            record["metadata"],
            serde_json::json!({"flowbits": ["one", "two", "three"], "flowints": {"n": 3}}),
            "{record}"
        );
        assert_eq!(
            record["traffic"],
            serde_json::json!({"id": ["me"], "label": ["web"]})
        );
    }
    let how = How::rules(rules)
        .set("outputs.0.eve-log.metadata=no")
        .set("outputs.1.fast.enabled=yes");
    let left = sense_tape(&tape, &how);
    assert!(left.of("flow")[0].get("metadata").is_none());
}

/// A handshake message in a record.
fn handshake(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32).to_be_bytes();
    let message = [&[kind][..], &length[1..], body].concat();
    let outer = (message.len() as u16).to_be_bytes();
    [&[22, 3, 1][..], &outer, &message].concat()
}

#[test]
fn messages_of_a_handshake_alert_in_their_direction() {
    let client = handshake(
        1,
        &[&[3, 3][..], &[7; 32], &[0, 0, 2, 0xc0, 0x2f, 1, 0]].concat(),
    );
    let server = handshake(2, &[&[3, 3][..], &[8; 32], &[0, 0xc0, 0x2f, 0]].concat());
    let mut tape = Tape::default();
    tape.session((CLIENT, 46_000), (SERVER, 443), &[&client, &server]);
    let rules = "\
        alert tls any any -> any any (msg:\"m\"; ssl_state:client_hello; sid:1;)\n\
        alert tls any any -> any any (msg:\"m\"; ssl_state:server_hello; sid:2;)\n\
        alert tls any any -> any any (msg:\"m\"; ssl_state:server_hello; flow:to_server; sid:3;)\n\
        alert tls any any -> any any (msg:\"m\"; tls.random; content:\"|07 07|\"; startswith; bsize:32; sid:4;)\n\
        alert tls any any -> any any (msg:\"m\"; flow:to_client; tls.random_time; content:\"|08 08 08 08|\"; bsize:4; sid:5;)\n\
        alert tls any any -> any any (msg:\"m\"; tls.random_bytes; content:\"|08|\"; bsize:28; sid:6;)\n\
        alert tls any any -> any any (msg:\"m\"; tls.cert_chain_len:>0; sid:7;)\n\
        alert tls any any -> any any (msg:\"m\"; tls_cert_expired; sid:8;)\n";
    let left = sense_tape(&tape, &How::rules(rules));
    assert_eq!(
        counts(&left.of("alert")),
        [(1, 1), (2, 1), (4, 1), (5, 1), (6, 1)],
        "{}",
        left.text
    );
}

#[test]
fn streams_are_inspected_with_their_messages() {
    let mut tape = Tape::default();
    let request: &[u8] = b"GET /flowboss HTTP/1.1\r\nHost: a\r\n\r\n";
    let answer = super::bed::ANSWER.as_bytes();
    tape.session(
        (CLIENT, 47_000),
        (SERVER, 80),
        &[request, answer, request, answer],
    );
    // Nothing of an application: what is said is inspected once it is answered.
    tape.session(
        (CLIENT, 47_001),
        (SERVER, 4_444),
        &[b"ask once", b"told", b"ask again", b"told", b"end"],
    );
    let rules = "\
        alert tcp any any -> any 80 (msg:\"m\"; content:\"GET\"; flowbits:set,asked; sid:1;)\n\
        alert http any any -> any any (msg:\"m\"; http.uri; content:\"boss\"; flowbits:isset,asked; sid:2;)\n\
        alert tcp any 80 -> any any (msg:\"m\"; flow:to_client; content:\"hello\"; flowbits:isset,asked; sid:3;)\n\
        alert tcp any any -> any 4444 (msg:\"m\"; content:\"ask\"; flowbits:set,asked; sid:4;)\n\
        alert tcp any 4444 -> any any (msg:\"m\"; content:\"told\"; flowbits:isset,asked; flowbits:unset,asked; sid:5;)\n";
    for workers in [1, 3] {
        let left = sense_tape(&tape, &How::rules(rules).workers(workers));
        assert_eq!(
            counts(&left.of("alert")),
            [(1, 2), (2, 2), (3, 2), (4, 2), (5, 2)],
            "{}",
            left.text
        );
    }
}

#[test]
fn a_reset_acknowledges_what_was_said_and_says_nothing() {
    let mut tape = Tape::default();
    let segment = |to_server: bool, flags: u8, numbers: (u32, u32), payload: &[u8]| {
        let (a, b) = if to_server {
            ((CLIENT, 12_345), (SERVER, 8_080))
        } else {
            ((SERVER, 8_080), (CLIENT, 12_345))
        };
        Frame::new()
            .vlan(6)
            .ip4(a.0, b.0)
            .tcp(a.1, b.1)
            .flags(flags)
            .numbers(numbers.0, numbers.1)
            .payload(payload)
    };
    let (syn, ack, push, reset) = (Frame::SYN, Frame::ACK, Frame::PSH, 4);
    tape.push(&segment(true, syn, (1, 0), b""));
    tape.push(&segment(false, syn | ack, (1000, 2), b""));
    tape.push(&segment(true, ack, (2, 1001), b""));
    let mut next = 1001;
    for word in [&b"Open "[..], b"the ", b"door, ", b"now!"] {
        tape.push(&segment(false, ack | push, (next, 2), word));
        next += word.len() as u32;
    }
    tape.push(&segment(true, reset | ack, (2, next), b"Go away"));
    let rules = "\
        alert tcp-pkt any any -> any any (msg:\"m\"; tcp.flags:R,A; content:\"Go away\"; startswith; endswith; sid:1;)\n\
        alert tcp any any -> any any (msg:\"m\"; flow:only_stream; content:\"Go away\"; sid:2;)\n\
        alert tcp any any -> any any (msg:\"m\"; content:\"Open the door, now!\"; sid:4;)\n";
    let left = sense_tape(&tape, &How::rules(rules));
    assert_eq!(counts(&left.of("alert")), [(1, 1), (4, 1)], "{}", left.text);
    assert_eq!(left.of("flow")[0]["vlan"], serde_json::json!([6]));
}

/// Numbers of the frames that records of a type name.
fn frames(left: &Left, kind: &str) -> Vec<Option<u64>> {
    left.of(kind)
        .iter()
        .map(|r| r["pcap_cnt"].as_u64())
        .collect()
}

#[test]
fn each_direction_of_a_flow_for_itself() {
    let mut tape = Tape::default();
    super::bed::web(
        &mut tape,
        4000,
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        super::bed::ANSWER,
    );
    let frame = Frame::new().ip4(CLIENT, SERVER).udp(4001, 4002);
    tape.push(&frame.payload(b"alone"));
    let how = How::rules("")
        .set("outputs.0.eve-log.types.netflow=yes")
        .set("outputs.1.fast.enabled=yes")
        .set("sensor-name=gate");
    let left = sense_tape(&tape, &how);
    let flows = left.of("netflow");
    assert!(
        left.of("flow").is_empty() && flows.len() == 3,
        "{}",
        left.text
    );
    assert!(
        flows
            .iter()
            .all(|f| f["host"] == "gate" && f.get("ip_v").is_none())
    );
    let of = |port: u64| *flows.iter().find(|f| f["src_port"] == port).expect("there");
    let (asks, answers, alone) = (of(4000), of(80), of(4001));
    assert_eq!(
        (&asks["netflow"]["pkts"], &answers["netflow"]["pkts"]),
        (&6.into(), &4.into())
    );
    assert_eq!(
        (&asks["app_proto"], &answers["netflow"]["tx_cnt"]),
        (&"http".into(), &1.into())
    );
    assert_eq!(asks["netflow"]["min_ttl"], asks["netflow"]["max_ttl"]);
    assert_eq!(
        (&asks["tcp"]["tcp_flags"], &asks["tcp"]["fin"]),
        (&"1b".into(), &true.into())
    );
    assert!(alone.get("tcp").is_none() && alone["netflow"]["pkts"] == 1);
}

/// A file is logged with its sender's next packet after it was taken, as alerts on it are; the transaction with the packet that took its end.
#[test]
fn which_packet_a_file_is_logged_with() {
    let mut tape = Tape::default();
    super::bed::web(
        &mut tape,
        4000,
        "GET /f HTTP/1.1\r\nHost: a\r\n\r\n",
        super::bed::ANSWER,
    );
    let left = sense_tape(&tape, &How::rules(""));
    assert_eq!(frames(&left, "http"), [Some(7)], "{}", left.text);
    assert_eq!(frames(&left, "fileinfo"), [Some(9)], "{}", left.text);
}

/// What both ends say before they encrypt is logged as soon as it was said.
#[test]
fn when_secure_sessions_are_logged() {
    let said: &[&[u8]] = &[b"", b"SSH-2.0-x_1\r\n", b"SSH-2.0-y_2\r\n"];
    let mut tape = Tape::default();
    tape.session((CLIENT, 4000), (SERVER, 22), said);
    let left = sense_tape(&tape, &How::rules(""));
    // The handshake, the empty turn's acknowledgement, two banners with theirs.
    assert_eq!(frames(&left, "ssh"), [Some(8)], "{}", left.text);
    assert_eq!(
        left.of("ssh")[0]["ssh"]["client"]["software_version"],
        "y_2"
    );
}

#[test]
fn a_session_seen_from_its_middle() {
    let mut tape = Tape::default();
    for (n, payload) in [&b"GET / HTTP/1.1\r\n"[..], b"Host: a\r\n\r\n"]
        .iter()
        .enumerate()
    {
        let frame = Frame::new().ip4(CLIENT, SERVER).tcp(4000, 80);
        let sequence = 1000 + 16 * n as u32;
        tape.push(
            &frame
                .flags(Frame::ACK | Frame::PSH)
                .numbers(sequence, 5000)
                .payload(payload),
        );
        let answer = Frame::new().ip4(SERVER, CLIENT).tcp(80, 4000);
        let taken = sequence + payload.len() as u32;
        tape.push(&answer.flags(Frame::ACK).numbers(5000, taken).payload(b""));
    }
    let left = sense_tape(&tape, &How::rules(""));
    let flow = &left.of("flow")[0]["flow"];
    assert_eq!(flow["exception_policy"][0]["target"], "stream_midstream");
    assert!(flow.get("midstream").is_none());
    let left = sense_tape(&tape, &How::rules("").set("stream.midstream=yes"));
    let flow = &left.of("flow")[0]["flow"];
    assert_eq!(flow["midstream"], true, "{}", left.text);
    assert!(flow.get("exception_policy").is_none());
    // The first packet is an answer: by its port, or by what it says.
    for port in [80, 8080] {
        let mut tape = Tape::default();
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        let get = b"GET /two HTTP/1.1\r\nHost: a\r\n\r\n";
        let first = Frame::new().ip4(SERVER, CLIENT).tcp(port, 4000);
        let first = first.flags(Frame::ACK).numbers(5000, 1000);
        tape.push(&first.payload(answer));
        let second = Frame::new().ip4(CLIENT, SERVER).tcp(4000, port);
        let taken = 5000 + answer.len() as u32;
        let second = second.flags(Frame::ACK).numbers(1000, taken);
        tape.push(&second.payload(get));
        let rules =
            "alert http any any -> any any (msg:\"m\"; http.uri; content:\"/two\"; sid:1;)\n";
        let left = sense_tape(&tape, &How::rules(rules).set("stream.midstream=yes"));
        assert_eq!(left.sids(), [1], "{}", left.text);
        assert_eq!(left.of("flow")[0]["dest_port"], port);
    }
}

#[test]
fn what_was_lost_is_shown_as_missing() {
    let mut tape = Tape::default();
    tape.session((CLIENT, 41_001), (SERVER, 9999), &[b"VERYGOODDATA"]);
    // Its one segment of data in three, of which the second was not captured.
    let at = (tape.frames.iter()).position(|(_, f)| f.ends_with(b"VERYGOODDATA"));
    let at = at.expect("what was said");
    let sent = |number: u32, text: &[u8]| {
        Frame::new()
            .ip4(CLIENT, SERVER)
            .tcp(41_001, 9999)
            .flags(Frame::ACK | Frame::PSH)
            .numbers(number, 5001)
            .payload(text)
            .build()
    };
    let time = tape.frames[at].0;
    tape.frames[at].1 = sent(1001, b"VERY");
    tape.frames
        .insert(at + 1, (time + 1000, sent(1009, b"DATA")));
    let rule = "alert tcp-stream any any -> any any (msg:\"m\"; content:\"DATA\"; sid:1;)\n";
    let how = How::rules(rule)
        .set("outputs.0.eve-log.types.alert.payload-printable=yes")
        .set("outputs.1.fast.enabled=yes");
    let left = sense_tape(&tape, &how);
    let alerts = left.of("alert");
    assert_eq!(alerts.len(), 1, "{}", left.text);
    assert_eq!(alerts[0]["payload_printable"], "VERY[4 bytes missing]DATA");
}
