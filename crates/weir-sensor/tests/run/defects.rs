//! What once went wrong in whole runs: checksums that senders leave to their devices, logs beside logs, keys of configurations, valid rules.

use std::path::PathBuf;

use weir_packet::build::Frame;
use weir_sensor::config::{Checksums, SensorConfig, Verified};
use weir_sensor::load::book;
use weir_sensor::rules::{Dialect, Refused};
use weir_sensor::settings::Settings;

use super::bed::{ANSWER, CLIENT, Folder, How, SERVER, Tape, sense, sense_tape, web};

const NEEDLE: &str =
    "alert http any any -> any any (msg:\"n\"; http.uri; content:\"needle\"; sid:1;)\n";

/// Sessions whose client leaves its checksums to a device, beside others that do not.
fn sessions(unfinished: usize, finished: usize) -> Tape {
    let mut tape = Tape::default();
    for n in 0..unfinished + finished {
        let request = format!("GET /needle/{n} HTTP/1.1\r\nHost: a\r\n\r\n");
        let from = tape.frames.len();
        web(&mut tape, 1000 + n as u16, &request, ANSWER);
        if n < unfinished {
            for (_, frame) in &mut tape.frames[from..] {
                // Client's segments only: as captured on its host. The field holds what is summed already.
                if frame[26..30] == CLIENT {
                    frame[50] ^= 0x55;
                }
            }
        }
    }
    tape
}

#[test]
fn checksums_of_captures() {
    let of = |tape: &Tape, which: Option<&str>, workers| {
        let mut how = How::rules(NEEDLE).workers(workers);
        if let Some(which) = which {
            how = how.set(&format!("pcap-file.checksum-checks={which}"));
        }
        let left = sense_tape(tape, &how);
        assert_eq!(
            left.summary.ledger.unaccounted(),
            0,
            "{:?}",
            left.summary.ledger
        );
        (left.sids().len(), left.summary.ledger.bad_checksum)
    };
    // More than a tenth of the first thousand: the rest is read.
    let tape = sessions(300, 0);
    let each = tape.frames.len() / 300;
    let wrong = tape
        .frames
        .iter()
        .filter(|(_, f)| f[26..30] == CLIENT)
        .count();
    let first = tape.frames[..1000]
        .iter()
        .filter(|(_, f)| f[26..30] == CLIENT)
        .count() as u64;
    for workers in [1, 2] {
        let (alerts, lost) = of(&tape, None, workers);
        assert!(alerts >= 300 - 1000 / each - 1, "{alerts}");
        assert_eq!(lost, first, "{workers} workers");
        assert_eq!(of(&tape, Some("auto"), workers), (alerts, lost));
        // Each that is left out is counted.
        assert_eq!(of(&tape, Some("yes"), workers), (0, wrong as u64));
        assert_eq!(of(&tape, Some("no"), workers), (300, 0));
    }
    // Fewer: they stay out, wherever they are.
    let mut few = sessions(5, 300);
    let (alerts, lost) = of(&few, None, 1);
    assert_eq!((alerts, lost), (300, 5 * 6));
    // Each capture for itself: a second one that is right is looked at again.
    let folder = Folder::new();
    let write = |name: &str, tape: &Tape| -> PathBuf {
        let path = folder.0.join(name);
        std::fs::write(&path, tape.pcap()).expect("written");
        path
    };
    for (time, _) in &mut few.frames {
        *time += 3_600_000_000_000;
    }
    let both = [write("a.pcap", &tape), write("b.pcap", &few)];
    let left = sense(&both, &How::rules(NEEDLE));
    assert_eq!(left.summary.ledger.bad_checksum, first + 5 * 6);
    // A short one is not judged, and says what was left out.
    assert_eq!(of(&sessions(3, 0), None, 1), (0, 3 * 6));
}

#[test]
fn keys_of_checksums() {
    let read = |text: &str| {
        let settings = Settings::parse(text, false).expect("YAML");
        let config = SensorConfig::from_settings(&settings).expect("right");
        assert!(config.unknown.is_empty(), "{:?}", config.unknown);
        config.checksums
    };
    assert_eq!(read(""), Checksums::all(Verified::Auto));
    assert_eq!(
        read("stream:\n  checksum-validation: yes\n"),
        Checksums::all(Verified::Auto)
    );
    assert_eq!(
        read("stream:\n  checksum-validation: no\n"),
        Checksums::all(Verified::None)
    );
    let some =
        read("af-packet:\n  - checksum-checks: kernel\npcap-file:\n  checksum-checks: yes\n");
    assert_eq!(
        (some.files, some.interfaces),
        (Verified::All, Verified::Auto)
    );
    let bad = Settings::parse("pcap-file:\n  checksum-checks: sometimes\n", false).expect("YAML");
    assert!(SensorConfig::from_settings(&bad).is_err());
}

#[test]
fn interfaces_of_a_configuration() {
    let text = "af-packet:\n  - interface: eth1\n  - interface: eth2\n    cluster-id: 99\n  - interface: eth1\n  - interface: default\npcap:\n  - interface: any\n";
    let settings = Settings::parse(text, false).expect("YAML");
    let config = SensorConfig::from_settings(&settings).expect("right");
    assert_eq!(
        config.interfaces,
        [
            vec!["eth1".to_owned(), "eth2".to_owned()],
            vec!["any".to_owned()]
        ]
    );
}

#[test]
fn two_logs_of_eve() {
    let text = "outputs:\n  - eve-log:\n      enabled: yes\n      filename: eve.json\n      types:\n        - alert:\n            payload: yes\n        - stats\n  - eve-log:\n      enabled: yes\n      filename: other.json\n      types:\n        - http\n        - flow\n        - dns\n  - fast:\n      enabled: yes\n";
    let folder = Folder::new();
    let config = folder.0.join("config.yaml");
    std::fs::write(&config, text).expect("written");
    let mut tape = Tape::default();
    web(
        &mut tape,
        1,
        "GET /needle HTTP/1.1\r\nHost: a\r\n\r\n",
        ANSWER,
    );
    let capture = folder.0.join("x.pcap");
    std::fs::write(&capture, tape.pcap()).expect("written");
    // The second one beside the captures, which the run leaves where they are.
    let other = folder.0.join("other.json");
    let mut how =
        How::rules(NEEDLE).set(&format!("outputs.1.eve-log.filename={}", other.display()));
    how.config = Some(config);
    let left = sense(&[capture], &how);
    let kinds = |text: &str| -> Vec<String> {
        let mut kinds: Vec<String> = text
            .lines()
            .map(|l| {
                serde_json::from_str::<serde_json::Value>(l).expect("JSON")["event_type"]
                    .as_str()
                    .expect("text")
                    .to_owned()
            })
            .collect();
        kinds.sort();
        kinds
    };
    assert_eq!(kinds(&left.text), ["alert", "stats"]);
    assert!(left.of("alert")[0]["payload"].is_string());
    let second = std::fs::read_to_string(&other).expect("there");
    assert_eq!(kinds(&second), ["flow", "http"]);
    // The same file twice is a mistake.
    let twice = text.replace("other.json", "eve.json");
    let settings = Settings::parse(&twice, false).expect("YAML");
    assert!(SensorConfig::from_settings(&settings).is_err());
}

#[test]
fn keys_that_would_be_missed() {
    let text = "max-pending-packets: 1024\nexception-policy: auto\nflow:\n  memcap-policy: ignore\n  hash-size: 65536\nstream:\n  memcap-policy: drop-flow\n  midstream-policy: pass-flow\noutputs:\n  - http-body-data:\n      enabled: yes\n      type: file\n  - pcap-log:\n      enabled: no\n      filename: log.pcap\n  - http-log:\n      enabled: on\napp-layer:\n  error-policy: reject\naf-packet:\n  - interface: eth0\n    bpf-filter: port 80\n    threads: auto\n";
    let settings = Settings::parse(text, false).expect("YAML");
    let config = SensorConfig::from_settings(&settings).expect("right");
    let keys: Vec<&str> = config.vital.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(
        keys,
        [
            "af-packet.0.bpf-filter: port 80",
            "outputs.0.http-body-data.enabled: true",
            "outputs.2.http-log.enabled: true",
            "stream.memcap-policy: drop-flow",
        ]
    );
    // The master switch is met in part only, which does not end a run.
    let settings = Settings::parse("exception-policy: pass-flow\n", false).expect("YAML");
    let config = SensorConfig::from_settings(&settings).expect("right");
    assert!(config.vital.is_empty());
    let keys: Vec<&str> = config
        .obsolete
        .iter()
        .map(|(key, _)| key.as_str())
        .collect();
    assert_eq!(keys, ["exception-policy: pass-flow"]);
    // Two logs of anomalies are not portable.
    let two = "outputs:\n  - eve-log:\n      types: [anomaly]\n  - eve-log:\n      filename: other.json\n      types: [anomaly]\n";
    for (text, count) in [(two, 1), (&two.replacen("anomaly", "dns", 1), 0)] {
        let settings = Settings::parse(text, false).expect("YAML");
        let config = SensorConfig::from_settings(&settings).expect("right");
        assert_eq!(config.contrary.len(), count, "{text}");
    }
    let settings = Settings::parse(text, false).expect("YAML");
    let config = SensorConfig::from_settings(&settings).expect("right");
    assert!(config.unknown.len() > config.vital.len());
    assert_eq!(config.alerts, 15);
}

/// Rules of a text that are refused, by their numbers, with the reason.
fn refused(rules: &str, settings: &[&str]) -> Vec<String> {
    let folder = Folder::new();
    let path = folder.0.join("r.rules");
    std::fs::write(&path, rules).expect("written");
    let mut all = Settings::default();
    for one in settings {
        all.set(one).expect(one);
    }
    let config = SensorConfig::from_settings(&all).expect("right");
    let book = book(&config, Dialect::Suricata, &[path]).expect("read");
    book.loaded.refused.iter().map(Refused::explain).collect()
}

#[test]
fn valid_rules_are_loaded() {
    let rules = "alert tcp any any -> any any (msg:\"a\"; content:\"x\"; byte_test:4,>,1,2000000; sid:1;)\n\
alert tcp any any -> any any (msg:\"b\"; content:\"x\"; byte_jump:0,0,relative,post_offset 4; content:\"y\"; distance:0; sid:2;)\n\
alert ftp any any -> any any (msg:\"c\"; ftp.reply_received:on; sid:3;)\n\
alert ftp any any -> any any (msg:\"c\"; ftp.reply_received:off; sid:4;)\n\
alert tls any any -> any any (msg:\"d\"; ssl_version:tls1.2,!sslv3; sid:5;)\n\
alert tls any any -> any any (msg:\"d\"; ssl_state:client_hello,!server_hello; sid:6;)\n\
alert http any any => any any (msg:\"e\"; http.connection: to_client; content:\"close\"; http.connection: to_server; content:\"keep\"; sid:7;)\n\
alert tls any any -> any any (msg:\"f\"; app-layer-event:tls.invalid_ssl_record; sid:8;)\n\
alert tls any any -> any any (msg:\"f\"; app-layer-event:tls.invalid_tls_header; sid:9;)\n\
alert tcp any any -> any any (msg:\"g\"; stream-event:3whs_syn_flood; sid:10;)\n\
alert tls any any -> any any (msg:\"h\"; requires: feature ja3; ja3.hash; content:\"0\"; sid:11;)\n";
    assert_eq!(refused(rules, &[]), [""; 0]);
    // What is off cannot be required.
    let off = refused(rules, &["app-layer.protocols.tls.ja3-fingerprints=no"]);
    assert!(off.len() == 1 && off[0].contains("feature ja3"), "{off:?}");
    // What contradicts itself is no rule.
    let bad = "alert tls any any -> any any (msg:\"d\"; ssl_version:tls1.2,!tls1.2; sid:5;)\n\
alert http any any => any any (msg:\"e\"; http.uri: to_client; content:\"close\"; sid:7;)\n\
alert http any any -> any any (msg:\"e\"; http.connection: to_client; content:\"close\"; sid:8;)\n";
    assert_eq!(refused(bad, &[]).len(), 3);
}

#[test]
fn what_those_rules_find() {
    let mut tape = Tape::default();
    web(
        &mut tape,
        1,
        "GET /x HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\n\r\n",
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 6\r\n\r\nx....y",
    );
    let http = |options: &str, sid: u32| {
        format!("alert http any any => any any (msg:\"e\"; {options} sid:{sid};)\n")
    };
    let rules = [
        http("http.connection: to_client; content:\"close\"; http.connection: to_server; content:\"keep\";", 1),
        http("http.connection: to_client; content:\"keep\"; http.uri; content:\"x\";", 2),
        http("http.connection: to_server; content:\"close\"; http.stat_code; content:\"200\";", 3),
        http("http.connection: to_client; content:\"close\"; http.uri; content:\"x\";", 4),
        "alert http any any -> any any (msg:\"j\"; flow:to_client; file.data; content:\"x\"; byte_jump:0,0,relative,post_offset 4; content:\"y\"; within:1; sid:5;)\n".to_owned(),
        "alert http any any -> any any (msg:\"j\"; flow:to_client; file.data; content:\"x\"; byte_jump:0,0,relative,post_offset 5; content:\"y\"; within:1; sid:6;)\n".to_owned(),
    ];
    let mut sids = sense_tape(&tape, &How::rules(&rules.concat())).sids();
    sids.sort_unstable();
    assert_eq!(sids, [1, 4, 5]);
    // TLS that goes on as something else.
    let hello = b"\x16\x03\x01\x00\x2f\x01\x00\x00\x2b\x03\x03aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\x00\x00\x04\xc0\x2f\x13\x01\x01\x00";
    let mut tape = Tape::default();
    tape.session(
        (CLIENT, 1),
        (SERVER, 443),
        &[&[&hello[..], &[0xff; 30]].concat()],
    );
    let rules = "alert tls any any -> any any (msg:\"a\"; app-layer-event:tls.invalid_ssl_record; sid:1;)\n\
alert tls any any -> any any (msg:\"b\"; app-layer-event:tls.invalid_tls_header; sid:2;)\n\
alert tls any any -> any any (msg:\"c\"; ssl_version:tls1.2,!sslv3; sid:3;)\n\
alert tls any any -> any any (msg:\"d\"; ssl_version:!tls1.2,sslv3; sid:4;)\n\
alert tls any any -> any any (msg:\"e\"; ssl_state:client_hello,!server_hello; sid:5;)\n";
    let mut sids = sense_tape(&tape, &How::rules(rules)).sids();
    sids.sort_unstable();
    sids.dedup();
    assert_eq!(sids, [1, 2, 3, 5]);
}

/// Data of a SYN alerts once, when the server has taken it.
#[test]
fn data_of_a_syn_alerts_once() {
    for accepted in [true, false] {
        let text: &[u8] = b"the needle in a SYN";
        let end = if accepted {
            101 + text.len() as u32
        } else {
            101
        };
        let to = || Frame::new().ip4(CLIENT, SERVER).tcp(1, 99);
        let from = || Frame::new().ip4(SERVER, CLIENT).tcp(99, 1);
        let mut tape = Tape::default();
        tape.push(&to().flags(Frame::SYN).numbers(100, 0).payload(text));
        tape.push(&from().flags(Frame::SYN | Frame::ACK).numbers(500, end));
        tape.push(&to().flags(Frame::ACK).numbers(end, 501));
        if !accepted {
            tape.push(
                &to()
                    .flags(Frame::ACK | Frame::PSH)
                    .numbers(101, 501)
                    .payload(text),
            );
        }
        let end = 101 + text.len() as u32;
        tape.push(
            &from()
                .flags(Frame::ACK | Frame::PSH)
                .numbers(501, end)
                .payload(b"ok"),
        );
        tape.push(&to().flags(Frame::ACK).numbers(end, 503));
        for options in ["flow:to_server;", "", "flow:to_server,only_stream;"] {
            let rule = format!(
                "alert tcp any any -> any 99 (msg:\"n\"; {options} content:\"needle\"; sid:1;)\n"
            );
            let left = sense_tape(&tape, &How::rules(&rule));
            let alerts = left.of("alert");
            assert_eq!(
                alerts.len(),
                1,
                "{options} accepted: {accepted}\n{}",
                left.fast
            );
            if accepted {
                // At once, as nobody is expected to read it; what is about streams alone, with what its sender sends once the other end has answered.
                let packet = if options.contains("only_stream") {
                    5
                } else {
                    1
                };
                assert_eq!(alerts[0]["pcap_cnt"], packet, "{}", alerts[0]);
            }
        }
    }
}

/// Options of TCP that say nothing, or too little.
#[test]
fn options_without_a_value() {
    let rules =
        "alert tcp any any -> any any (msg:\"o\"; decode-event:tcp.opt_invalid_len; sid:1;)\n";
    for (option, expected) in [
        (&[5, 2, 1, 1][..], 0),
        (&[1, 1, 5, 2], 0),
        (&[5, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 1], 0),
        (&[5, 6, 0, 0, 0, 1, 1, 1], 1),
        (&[4, 2, 1, 1], 0),
        (&[8, 2, 1, 1], 1),
    ] {
        let mut tape = Tape::default();
        tape.push(
            &Frame::new()
                .ip4(CLIENT, SERVER)
                .tcp(1, 2)
                .flags(Frame::SYN)
                .tcp_bytes(option),
        );
        let left = sense_tape(&tape, &How::rules(rules));
        assert_eq!(left.sids().len(), expected, "{option:?}");
    }
}

/// A body that comes over a minute is looked at while it comes.
#[test]
fn bodies_are_inspected_while_they_come() {
    let to = || Frame::new().ip4(CLIENT, SERVER).tcp(1, 80);
    let from = || Frame::new().ip4(SERVER, CLIENT).tcp(80, 1);
    let second = 1_000_000_000_u64;
    let mut tape = Tape::default();
    let mut push =
        |at: u64, frame: &Frame| tape.frames.push((super::bed::START + at, frame.build()));
    push(0, &to().flags(Frame::SYN).numbers(100, 0));
    push(1, &from().flags(Frame::SYN | Frame::ACK).numbers(500, 101));
    push(2, &to().flags(Frame::ACK).numbers(101, 501));
    let request = b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n";
    push(
        3,
        &to()
            .flags(Frame::ACK | Frame::PSH)
            .numbers(101, 501)
            .payload(request),
    );
    let asked = 101 + request.len() as u32;
    let parts: [&[u8]; 5] = [
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 5000\r\n\r\n<html>start",
        b"here is the <script>needle</script>",
        b"nothing",
        b"the late one",
        b"and so on",
    ];
    let mut next = 501;
    for (n, part) in parts.iter().enumerate() {
        let at = 4 + n as u64 * 15 * second;
        push(
            at,
            &from()
                .flags(Frame::ACK | Frame::PSH)
                .numbers(next, asked)
                .payload(part),
        );
        next += part.len() as u32;
        push(at + 1000, &to().flags(Frame::ACK).numbers(asked, next));
    }
    // Others go on meanwhile: seconds pass.
    for n in 0..65_u64 {
        push(
            n * second + second / 2,
            &Frame::new()
                .ip4([10, 9, 9, 9], SERVER)
                .udp(9, 9)
                .payload(b"x"),
        );
    }
    tape.frames.sort_by_key(|(time, _)| *time);
    let of = |options: &str, sid: u32| {
        format!("alert http any any -> any any (msg:\"m\"; flow:to_client; {options} sid:{sid};)\n")
    };
    let rules = [
        of("file.data; content:\"needle\";", 1),
        of("http.response_body; content:\"late\"; distance:0;", 2),
        of("file.data; content:\"<html>\"; startswith;", 3),
        of("file.data; content:\"needle\"; content:!\"absent\";", 4),
        of("file.data; content:\"needle\"; content:!\"so on\";", 5),
        of("file.data; content:\"needle\"; endswith;", 6),
        of(
            "file.data; content:\"needle\"; http.stat_code; content:\"200\";",
            7,
        ),
    ]
    .concat();
    for workers in [1, 3] {
        let left = sense_tape(&tape, &How::rules(&rules).workers(workers));
        let mut alerts: Vec<(u64, u64)> = left
            .of("alert")
            .iter()
            .map(|a| {
                let time = a["timestamp"].as_str().expect("text");
                let seconds = time[17..19].parse::<u64>().expect("a number")
                    + 60 * time[14..16].parse::<u64>().expect("a number");
                (
                    a["alert"]["signature_id"].as_u64().expect("a number"),
                    seconds,
                )
            })
            .collect();
        alerts.sort_unstable();
        // What is there, within two seconds; what is not there, at the end.
        assert_eq!(
            alerts.iter().map(|a| a.0).collect::<Vec<_>>(),
            [1, 2, 3, 4, 7],
            "{}",
            left.fast
        );
        for ((sid, at), came) in alerts.iter().zip([15, 45, 0, 60, 15]) {
            assert!(
                (came..=came + 6).contains(at) && (*sid == 4 || *at <= came + 2),
                "{sid} at {at}"
            );
        }
    }
}

/// A download of 100 MB on a sensor that has nothing else to do: all of it is inspected, little of it is kept, and the session goes on.
#[test]
fn a_long_download_is_taken_whole() {
    let to = || Frame::new().ip4(CLIENT, SERVER).tcp(1, 80);
    let from = || Frame::new().ip4(SERVER, CLIENT).tcp(80, 1);
    let size = 100_000_000_usize;
    let mut body = vec![b'.'; size];
    let mut put = |at: usize, text: &[u8]| body[at..at + text.len()].copy_from_slice(text);
    put(0, b"start");
    put(1_000_000, b"needle-A");
    // Across where windows end.
    put((2 << 20) - 4, b"needle-B");
    put(50_000_001, b"needle-C");
    put(50_000_100, b"behind it");
    put(size - 8, b"needle-D");
    let mut tape = Tape::default();
    tape.push(&to().flags(Frame::SYN).numbers(100, 0));
    tape.push(&from().flags(Frame::SYN | Frame::ACK).numbers(500, 101));
    tape.push(&to().flags(Frame::ACK).numbers(101, 501));
    let mut next = [101_u32, 501];
    let mut say = |side: usize, bytes: &[u8], tape: &mut Tape| {
        for chunk in bytes.chunks(32_000) {
            let frame = if side == 0 { to() } else { from() };
            tape.push(
                &frame
                    .flags(Frame::ACK | Frame::PSH)
                    .numbers(next[side], next[1 - side])
                    .payload(chunk),
            );
            next[side] = next[side].wrapping_add(chunk.len() as u32);
            let frame = if side == 0 { from() } else { to() };
            tape.push(&frame.flags(Frame::ACK).numbers(next[1 - side], next[side]));
        }
    };
    say(0, b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n", &mut tape);
    say(
        1,
        format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n").as_bytes(),
        &mut tape,
    );
    say(1, &body, &mut tape);
    say(
        0,
        b"GET /needle-after HTTP/1.1\r\nHost: a\r\n\r\n",
        &mut tape,
    );
    say(1, ANSWER.as_bytes(), &mut tape);
    let of = |options: &str, sid: u32| {
        format!("alert http any any -> any any (msg:\"m\"; {options} sid:{sid};)\n")
    };
    let rules = [
        of("flow:to_client; file.data; content:\"needle-A\";", 1),
        of("flow:to_client; file.data; content:\"needle-B\";", 2),
        of(
            "flow:to_client; file.data; content:\"needle-C\"; content:\"behind it\"; distance:0;",
            3,
        ),
        of("flow:to_client; file.data; content:\"needle-D\";", 4),
        of(
            "flow:to_client; file.data; content:\"start\"; startswith; content:\"needle-A\";",
            5,
        ),
        of(
            "flow:to_client; file.data; content:\"start\"; content:!\"absent\";",
            6,
        ),
        of("http.uri; content:\"needle-after\";", 7),
        of(
            "flow:to_client; file.data; content:\"needle-C\"; offset:0; depth:1000000;",
            8,
        ),
        of(
            "flow:to_client; file.data; content:\"needle-C\"; content:!\"start\";",
            9,
        ),
    ]
    .concat();
    for (limit, all) in [("0", true), ("43mb", false)] {
        let how = How::rules(&rules)
            .set("stream.reassembly.depth=0")
            .set(&format!(
                "app-layer.protocols.http.libhtp.default-config.response-body-limit={limit}"
            ));
        let left = sense_tape(&tape, &how);
        let mut sids = left.sids();
        sids.sort_unstable();
        let expected: &[u64] = if all {
            &[1, 2, 3, 4, 5, 6, 7]
        } else {
            &[1, 2, 5, 6, 7]
        };
        assert_eq!(sids, expected, "limit {limit}");
        let count = |name: &str| left.summary.counters[name];
        assert_eq!(count("flow.evicted_for_memory"), 0);
        assert_eq!(count("tcp.bytes.over_cap") + count("tcp.reassembly_gap"), 0);
        assert!(
            count("app_layer.memuse_peak") < 8 << 20,
            "{}",
            count("app_layer.memuse_peak")
        );
        let files = left.of("fileinfo");
        let file = files
            .iter()
            .find(|f| f["fileinfo"]["filename"] == "/big")
            .expect("a record");
        let told = file["fileinfo"]["size"].as_u64().expect("a number") as usize;
        assert_eq!(told, if all { size } else { 43 << 20 });
        assert_eq!(
            file["fileinfo"]["state"],
            if all { "CLOSED" } else { "TRUNCATED" }
        );
    }
}
