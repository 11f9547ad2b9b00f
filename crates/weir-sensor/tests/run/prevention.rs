//! Prevention on captures (`--simulate-ips`): which packets are dropped, what is still inspected then, and what the records say.

use weir_packet::build::Frame;
use weir_sensor::config::SIMULATE;

use super::bed::{ANSWER, CLIENT, How, Left, SERVER, Tape, sense_tape, web};
use super::schema::hold;

/// A sensor in the traffic's way that logs everything of it.
fn inline(rules: &str) -> How {
    let mut how = How::rules(rules)
        .set(&format!("{SIMULATE}=yes"))
        .set("outputs.0.eve-log.types.drop.alerts=yes")
        .set("outputs.0.eve-log.types.drop.flows=all")
        .set("outputs.0.eve-log.types.alert.verdict=yes")
        .set("outputs.1.fast.enabled=yes");
    for kind in ["flow", "http", "stats", "anomaly"] {
        how = how.set(&format!("outputs.0.eve-log.types.{kind}.enabled=yes"));
    }
    how
}

fn request(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n")
}

/// Frames by their numbers, with the reason why each was dropped.
fn drops(left: &Left) -> Vec<(u64, &str)> {
    let records = left.of("drop").into_iter();
    records
        .map(|r| {
            let number = r["pcap_cnt"].as_u64().expect("a number");
            (number, r["drop"]["reason"].as_str().expect("a reason"))
        })
        .collect()
}

fn count(left: &Left, name: &str) -> u64 {
    left.summary.counters.get(name).copied().unwrap_or_default()
}

/// Every packet is accepted or blocked, and each blocked one has a reason.
fn balanced(left: &Left) {
    let (accepted, blocked) = (count(left, "ips.accepted"), count(left, "ips.blocked"));
    assert_eq!(accepted + blocked, left.summary.ledger.read);
    let reasons = left.summary.counters.iter();
    let reasons = reasons.filter(|(name, _)| name.starts_with("ips.drop_reason."));
    assert_eq!(reasons.map(|(_, n)| n).sum::<u64>(), blocked);
    hold(left.eve.iter());
}

#[test]
fn a_flow_is_dropped_from_the_packet_that_matched() {
    let rules = r#"
drop http any any -> any any (msg:"bad"; http.uri; content:"/bad"; sid:1;)
alert http any any -> any any (msg:"answer"; file.data; content:"hello"; sid:2;)
"#;
    let mut tape = Tape::default();
    web(&mut tape, 2000, &request("/bad"), ANSWER);
    let whole = tape.frames.len() as u64;
    web(&mut tape, 2001, &request("/good"), ANSWER);
    let left = sense_tape(&tape, &inline(rules));
    balanced(&left);
    // The request is the fourth frame; the rest of its session goes with it, and nothing of that is inspected.
    let mut expected = vec![(4, "rules")];
    expected.extend((5..=whole).map(|number| (number, "flow drop")));
    assert_eq!(drops(&left), expected);
    assert_eq!(left.sids(), [1, 2]);
    let alerts = left.of("alert");
    assert_eq!(alerts[0]["alert"]["action"], "blocked");
    assert_eq!(alerts[0]["verdict"]["action"], "drop");
    assert_eq!(alerts[1]["alert"]["action"], "allowed");
    assert_eq!(alerts[1]["verdict"]["action"], "alert");
    assert!(
        left.fast.contains("[Drop] [**] [1:1:0] bad"),
        "{}",
        left.fast
    );
    let first = left.of("drop")[0];
    assert_eq!(first["alert"]["signature_id"], 1);
    assert_eq!(first["drop"]["ack"], true);
    assert_eq!(first["direction"], "to_server");
    assert!(left.of("drop")[1].get("alert").is_none());
    let flows = left.of("flow");
    let of = |port: u64| flows.iter().find(|f| f["src_port"] == port).expect("there");
    assert_eq!(of(2000)["flow"]["action"], "drop");
    assert_eq!(
        of(2000)["flow"]["pkts_toserver"]
            .as_u64()
            .expect("a number")
            + of(2000)["flow"]["pkts_toclient"]
                .as_u64()
                .expect("a number"),
        whole
    );
    assert!(of(2001)["flow"].get("action").is_none());
    // Of the dropped session there is no transaction that anybody got.
    let uris: Vec<_> = left
        .of("http")
        .iter()
        .map(|r| r["http"]["url"].clone())
        .collect();
    assert_eq!(uris, ["/good"]);

    // Beside the traffic the same rules alert only.
    let beside = sense_tape(&tape, &How::rules(rules));
    assert_eq!(beside.sids(), [1, 2, 2]);
    assert_eq!(beside.of("alert")[0]["alert"]["action"], "allowed");
    assert!(beside.fast.contains("[wDrop] [**] [1:1:0] bad"));
    assert!(beside.of("drop").is_empty());
    assert!(!beside.summary.counters.contains_key("ips.accepted"));
}

#[test]
fn a_rule_about_packets_drops_those_alone() {
    let rules = "drop udp any any -> any 4001 (msg:\"bad\"; content:\"bad\"; sid:1;)\n\
        reject udp any any -> any 4002 (msg:\"no\"; content:\"bad\"; sid:2;)\n\
        drop udp any any -> any 4003 (msg:\"unheard\"; content:\"bad\"; noalert; sid:3;)\n";
    let mut tape = Tape::default();
    for (port, text) in [
        (4001, "good"),
        (4001, "bad"),
        (4001, "good"),
        (4002, "bad"),
        (4003, "bad"),
        (4003, "good"),
    ] {
        let frame = Frame::new().ip4(CLIENT, SERVER).udp(4000, port);
        tape.push(&frame.payload(text.as_bytes()));
    }
    let left = sense_tape(&tape, &inline(rules));
    balanced(&left);
    assert_eq!(drops(&left), [(2, "rules"), (4, "rules"), (5, "rules")]);
    assert_eq!(left.sids(), [1, 2]);
    assert_eq!(count(&left, "ips.rejected"), 1);
    assert!(
        left.of("flow")
            .iter()
            .all(|f| f["flow"].get("action").is_none())
    );
    // `start`: packets that a rule dropped are always logged.
    let how = inline(rules).set("outputs.0.eve-log.types.drop.flows=start");
    assert_eq!(drops(&sense_tape(&tape, &how)).len(), 3);
}

#[test]
fn the_first_action_wins() {
    let rules = "pass http any any -> any any (msg:\"fine\"; http.uri; content:\"/a\"; sid:1;)\n\
        drop http any any -> any any (msg:\"bad\"; http.uri; content:\"/ab\"; sid:2;)\n";
    let mut tape = Tape::default();
    web(&mut tape, 2000, &request("/ab"), ANSWER);
    let left = sense_tape(&tape, &inline(rules));
    balanced(&left);
    assert_eq!((left.sids().len(), drops(&left).len()), (0, 0));
    assert_eq!(left.of("flow")[0]["flow"]["action"], "pass");
    let mut how = inline(rules);
    for (n, action) in ["drop", "pass", "reject", "alert"].iter().enumerate() {
        how = how.set(&format!("action-order.{n}={action}"));
    }
    let left = sense_tape(&tape, &how);
    balanced(&left);
    assert_eq!(left.sids(), [2]);
    assert_eq!(left.of("flow")[0]["flow"]["action"], "drop");
    // Of a flow that is dropped as a whole each direction has one record, and the packet that a rule dropped.
    let left = sense_tape(&tape, &how.set("outputs.0.eve-log.types.drop.flows=start"));
    assert_eq!(drops(&left), [(4, "rules"), (5, "flow drop")]);
}

#[test]
fn thresholds_decide_with_the_packets() {
    let rules = "drop udp any any -> any 4001 (msg:\"few\"; content:\"x\"; detection_filter:track by_src, count 2, seconds 60; sid:1;)\n\
        drop udp any any -> any 4002 (msg:\"once\"; content:\"x\"; threshold:type limit, track by_src, count 1, seconds 60; sid:2;)\n\
        alert udp any any -> any 4003 (msg:\"rate\"; content:\"x\"; sid:3;)\n";
    let mut tape = Tape::default();
    for port in [4001, 4002, 4003] {
        for _ in 0..4 {
            let frame = Frame::new().ip4(CLIENT, SERVER).udp(4000, port);
            tape.push(&frame.payload(b"x"));
        }
    }
    let mut how = inline(rules);
    how.beside = vec![(
        "threshold.config",
        "rate_filter gen_id 1, sig_id 3, track by_src, count 2, seconds 60, new_action drop, timeout 60\n",
    )];
    let left = {
        let folder = super::bed::Folder::new();
        let file = folder.0.join("threshold.config");
        std::fs::write(&file, how.beside[0].1).expect("written");
        sense_tape(
            &tape,
            &how.set(&format!("threshold-file={}", file.display())),
        )
    };
    balanced(&left);
    // The alert of a threshold is held back, what the rule does is not; below a detection filter it does nothing.
    assert_eq!(
        drops(&left),
        [
            (3, "rules"),
            (4, "rules"),
            (5, "rules"),
            (6, "rules"),
            (7, "rules"),
            (8, "rules"),
            (11, "threshold detection_filter"),
            (12, "threshold detection_filter"),
        ]
    );
    assert_eq!(left.sids(), [1, 1, 2, 3, 3, 3, 3]);
}

#[test]
fn sessions_that_began_before_the_capture() {
    let mut tape = Tape::default();
    web(&mut tape, 2000, &request("/x"), ANSWER);
    tape.frames.drain(..3);
    let frames = tape.frames.len();
    let rules = "alert http any any -> any any (msg:\"x\"; http.uri; content:\"/x\"; sid:1;)\n\
        alert tcp any any -> any 80 (msg:\"any\"; dsize:>0; sid:2;)\n";
    for (policy, dropped, action, exception) in [
        ("ignore", 0, None, "ignore"),
        ("drop-flow", frames, Some("drop"), "drop_flow"),
        ("drop-packet", frames, None, "drop_packet"),
        ("reject", frames, Some("drop"), "reject"),
        ("pass-flow", 0, Some("pass"), "pass_flow"),
        ("bypass", 0, Some("pass"), "bypass"),
    ] {
        let how = inline(rules).set(&format!("stream.midstream-policy={policy}"));
        let left = sense_tape(&tape, &how);
        balanced(&left);
        let drops = drops(&left);
        assert_eq!(drops.len(), dropped, "{policy}: {drops:?}");
        if dropped > 0 {
            assert_eq!(drops[0].1, "stream midstream");
        }
        let flow = &left.of("flow")[0]["flow"];
        assert_eq!(flow["action"].as_str(), action, "{policy}");
        assert_eq!(flow["exception_policy"][0]["policy"], exception);
        let sids = left.sids();
        assert_eq!(
            sids,
            if policy == "ignore" { vec![2] } else { vec![] },
            "{policy}"
        );
        // What drops does nothing beside the traffic.
        let beside = How::rules(rules).set(&format!("stream.midstream-policy={policy}"));
        let left = sense_tape(&tape, &beside);
        let drops = matches!(policy, "drop-flow" | "drop-packet" | "reject");
        let expected = if drops || policy == "ignore" {
            vec![2]
        } else {
            vec![]
        };
        assert_eq!(left.sids(), expected, "{policy}");
    }
}

#[test]
fn alerts_name_the_client_behind_a_proxy() {
    let rules = "alert http any any -> any any (msg:\"x\"; http.uri; content:\"/x\"; sid:1;)\n\
        alert http any any -> any any (msg:\"hello\"; flow:to_client; file.data; content:\"hello\"; sid:2;)\n";
    let mut tape = Tape::default();
    let request = "GET /x HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 10.1.1.1, 10.2.2.2\r\n\r\n";
    web(&mut tape, 2000, request, ANSWER);
    let of = |settings: &[&str]| {
        let mut how = How::rules(rules)
            .set("outputs.0.eve-log.types.alert.xff.enabled=yes")
            .set("outputs.1.fast.enabled=yes");
        for setting in settings {
            how = how.set(&format!("outputs.0.eve-log.types.alert.xff.{setting}"));
        }
        let left = sense_tape(&tape, &how);
        hold(left.eve.iter());
        let text = |r: &serde_json::Value, key: &str| r[key].as_str().unwrap_or("").to_owned();
        let alerts = left.of("alert").into_iter();
        alerts
            .map(|r| {
                [
                    text(r, "src_ip"),
                    text(r, "dest_ip"),
                    text(&r["alert"], "xff"),
                ]
            })
            .collect::<Vec<_>>()
    };
    let (client, server) = ("192.168.1.10", "198.51.100.80");
    assert_eq!(
        of(&[]),
        [[client, server, "10.2.2.2"], [server, client, "10.2.2.2"]]
    );
    assert_eq!(of(&["deployment=forward"])[0], [client, server, "10.1.1.1"]);
    assert_eq!(
        of(&["mode=overwrite"]),
        [["10.2.2.2", server, ""], [server, "10.2.2.2", ""]]
    );
    assert_eq!(of(&["header=Via"])[0], [client, server, ""]);
}

#[test]
fn a_rate_filter_drops_the_flow_of_a_rule_about_its_application() {
    let mut tape = Tape::default();
    let said: &[&[u8]] = &[
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"GET /b HTTP/1.1\r\nHost: a\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    ];
    tape.session((CLIENT, 4000), (SERVER, 80), said);
    let folder = super::bed::Folder::new();
    let file = folder.0.join("threshold.config");
    let line = "rate_filter gen_id 1, sig_id 1, track by_both, count 1, seconds 60, new_action drop, timeout 60\n";
    std::fs::write(&file, line).expect("written");
    let how = inline("alert http any any -> any any (msg:\"any\"; sid:1;)\n");
    let left = sense_tape(
        &tape,
        &how.set(&format!("threshold-file={}", file.display())),
    );
    balanced(&left);
    let dropped = drops(&left);
    let [(_, first), rest @ ..] = &dropped[..] else {
        panic!("dropped: {}", left.text);
    };
    assert_eq!(*first, "threshold detection_filter");
    assert!(!rest.is_empty() && rest.iter().all(|d| d.1 == "flow drop"));
    assert_eq!(left.sids(), [1, 1]);
}
