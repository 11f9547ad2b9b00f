//! What stands in the logs, to the letter.

use weir_packet::build::Frame;

use super::bed::{ANSWER, CLIENT, Folder, How, Left, SERVER, Tape, sense, sense_tape, web};
use super::schema::hold;

const RULE: &str = "alert tcp $HOME_NET any -> $EXTERNAL_NET any (msg:\"TEST \\\"evil\\\" word\"; flow:established,to_server; content:\"evil\"; classtype:misc-attack; metadata:tag one, tag two, where here; sid:7; rev:3;)\n";

fn tape() -> Tape {
    let mut tape = Tape::default();
    web(
        &mut tape,
        40_000,
        "GET /evil.html HTTP/1.1\r\nHost: www.example.org\r\nUser-Agent: me\r\n\r\n",
        ANSWER,
    );
    tape
}

#[test]
fn an_alert_in_both_logs() {
    let left = sense_tape(&tape(), &How::rules(RULE));
    assert_eq!(left.sids(), [7]);
    let line = left.fast.lines().next().expect("one");
    assert_eq!(left.fast.lines().count(), 1);
    let after = line.strip_prefix("01/01/2024-00:00:00.00").expect(line);
    assert_eq!(
        &after[4..],
        "  [**] [1:7:3] TEST \"evil\" word [**] [Classification: (null)] [Priority: 3] {TCP} 192.168.1.10:40000 -> 198.51.100.80:80"
    );
    let alert = left.of("alert")[0];
    assert!(
        alert["timestamp"]
            .as_str()
            .expect("text")
            .starts_with("2024-01-01T00:00:00.00")
    );
    assert!(
        alert["timestamp"]
            .as_str()
            .expect("text")
            .ends_with("+0000")
    );
    for (key, value) in [
        ("src_ip", "192.168.1.10"),
        ("dest_ip", "198.51.100.80"),
        ("proto", "TCP"),
        ("app_proto", "http"),
        ("direction", "to_server"),
    ] {
        assert_eq!(alert[key], value, "{key} of {alert}");
    }
    assert_eq!(
        (alert["src_port"].as_u64(), alert["dest_port"].as_u64()),
        (Some(40_000), Some(80))
    );
    let inner = &alert["alert"];
    assert_eq!(inner["action"], "allowed");
    assert_eq!(
        (
            inner["gid"].as_u64(),
            inner["signature_id"].as_u64(),
            inner["rev"].as_u64(),
            inner["severity"].as_u64()
        ),
        (Some(1), Some(7), Some(3), Some(3))
    );
    assert_eq!(inner["signature"], "TEST \"evil\" word");
    assert_eq!(
        inner["metadata"],
        serde_json::json!({"tag": ["two", "one"], "where": ["here"]})
    );
    assert!(
        alert["flow"]["pkts_toserver"]
            .as_u64()
            .is_some_and(|n| n >= 3)
    );
}

#[test]
fn flows_transactions_and_counters_are_recorded() {
    let left = sense_tape(&tape(), &How::rules(RULE));
    let flow = left.of("flow");
    assert_eq!(flow.len(), 1);
    let flow = flow[0];
    assert_eq!(flow["app_proto"], "http");
    assert_eq!(flow["flow"]["alerted"], true);
    assert_eq!(
        (
            flow["flow"]["pkts_toserver"].as_u64(),
            flow["flow"]["pkts_toclient"].as_u64()
        ),
        (Some(6), Some(4)),
        "{flow}"
    );
    assert_eq!(flow["flow"]["state"], "closed");
    assert_eq!(flow["flow"]["reason"], "shutdown");
    assert_eq!(flow["tcp"]["tcp_flags"], "1b");
    let http = left.of("http");
    assert_eq!(http.len(), 1, "{}", left.text);
    let record = &http[0]["http"];
    assert_eq!(
        (
            record["hostname"].as_str(),
            record["url"].as_str(),
            record["http_method"].as_str()
        ),
        (Some("www.example.org"), Some("/evil.html"), Some("GET"))
    );
    assert_eq!(record["status"].as_u64(), Some(200));
    assert_eq!(http[0]["flow_id"], flow["flow_id"]);
    let stats = left.of("stats");
    assert_eq!(stats.len(), 1);
    assert_eq!(stats[0]["stats"]["decoder"]["pkts"].as_u64(), Some(10));
    assert_eq!(stats[0]["stats"]["detect"]["alert"].as_u64(), Some(1));
    assert_eq!(left.summary.counters["flow.tcp"], 1);
}

#[test]
fn options_of_eve() {
    let how = How::rules(RULE)
        .set("outputs.0.eve-log.enabled=yes")
        .set("outputs.0.eve-log.community-id=yes")
        .set("outputs.0.eve-log.types.alert.payload=yes")
        .set("outputs.0.eve-log.types.alert.payload-printable=yes")
        .set("outputs.1.fast.enabled=yes");
    let left = sense_tape(&tape(), &how);
    let alert = left.of("alert")[0];
    assert!(
        alert["community_id"]
            .as_str()
            .is_some_and(|id| id.starts_with("1:") && id.len() == 30)
    );
    assert!(alert["payload_printable"].is_string() && alert["payload"].is_string());
    assert!(
        left.of("flow").is_empty() && left.of("http").is_empty() && left.of("stats").is_empty()
    );
}

#[test]
fn names_and_icmp() {
    let mut tape = Tape::default();
    let query = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03www\x07example\x03com\x00\x00\x01\x00\x01";
    tape.push(
        &Frame::new()
            .ip4(CLIENT, SERVER)
            .udp(40_053, 53)
            .payload(query),
    );
    tape.push(
        &Frame::new()
            .ip4(CLIENT, SERVER)
            .icmp(8, 0)
            .echo(1, 1)
            .payload(&[0; 32]),
    );
    let rules = "alert dns any any -> any any (msg:\"name\"; dns.query; content:\"example\"; sid:1;)\nalert icmp any any -> any any (msg:\"echo\"; itype:8; sid:2;)\n";
    let left = sense_tape(&tape, &How::rules(rules));
    assert_eq!(left.sids(), [1, 2], "{}", left.text);
    assert!(
        left.fast
            .contains("{ICMP} 192.168.1.10:8 -> 198.51.100.80:0"),
        "{}",
        left.fast
    );
    let alert = left.of("alert")[1];
    assert_eq!(
        (alert["icmp_type"].as_u64(), alert["icmp_code"].as_u64()),
        (Some(8), Some(0))
    );
    assert!(alert.get("src_port").is_none());
    let dns = left.of("dns");
    assert!(!dns.is_empty(), "{}", left.text);
}

/// Two captures in one run.
#[test]
fn addresses_of_the_link_layer_and_names_of_captures() {
    let folder = Folder::new();
    let paths = ["one.pcap", "two.pcap"].map(|name| folder.0.join(name));
    let mut other = Tape::default();
    web(
        &mut other,
        40_001,
        "GET /evil.html HTTP/1.1\r\nHost: b\r\n\r\n",
        ANSWER,
    );
    for (path, tape) in paths.iter().zip([tape(), other]) {
        std::fs::write(path, tape.pcap()).expect("written");
    }
    let how = |file: &str| {
        How::rules(RULE)
            .set("outputs.0.eve-log.enabled=yes")
            .set("outputs.0.eve-log.ethernet=yes")
            .set(&format!("outputs.0.eve-log.pcap-file={file}"))
            .set("outputs.0.eve-log.types.alert.packet=yes")
            .set("outputs.0.eve-log.types.flow=yes")
            .set("outputs.0.eve-log.types.netflow=yes")
            .set("outputs.0.eve-log.types.http=yes")
            .set("outputs.0.eve-log.types.stats=yes")
            .set("outputs.1.fast.enabled=yes")
    };
    for workers in [1, 3] {
        let left = sense(&paths, &how("yes").workers(workers));
        let (alerts, web) = (left.of("alert"), left.of("http"));
        assert_eq!((alerts.len(), web.len()), (2, 2), "{}", left.text);
        for (n, path) in paths.iter().enumerate() {
            for record in [alerts[n], web[n]] {
                assert_eq!(record["pcap_filename"], path.to_str().expect("UTF-8"));
            }
        }
        // Frames are built with these ends whichever way they go; records of a flow turn them to its direction.
        let (a, b) = ("02:00:00:00:00:01", "02:00:00:00:00:02");
        for alert in alerts {
            let ether = serde_json::json!({"ether_type": 2048, "src_mac": a, "dest_mac": b});
            assert_eq!(alert["ether"], ether, "{alert}");
        }
        for record in web {
            assert_eq!(record["ether"]["ether_type"], 2048);
        }
        for flow in left.of("flow").into_iter().chain(left.of("netflow")) {
            let ends = ["src_macs", "dest_macs"].map(|e| flow["ether"][e].as_array().map(Vec::len));
            assert_eq!(ends, [Some(2); 2], "{flow}");
            assert_eq!(flow["pcap_filename"], paths[1].to_str().expect("UTF-8"));
        }
        assert_eq!(left.of("stats").len(), 1);
    }
    let left = sense(&paths, &how("no"));
    assert!(!left.text.contains("pcap_filename"), "{}", left.text);
    assert_eq!(left.of("alert").len(), 2);
}

#[test]
fn anomalies_name_their_flow_and_show_the_frame() {
    let mut tape = Tape::default();
    for n in 0..2 {
        let frame = Frame::new()
            .ip4(CLIENT, SERVER)
            .icmp(200, 0)
            .echo(1, n)
            .payload(&[0; 64]);
        tape.push(&frame);
    }
    let how = How::rules("alert icmp any any -> any any (msg:\"m\"; flowbits:set,seen; sid:1;)\n")
        .set("outputs.0.eve-log.types.alert=yes")
        .set("outputs.0.eve-log.types.flow=yes")
        .set("outputs.0.eve-log.types.anomaly.types.decode=yes")
        .set("outputs.0.eve-log.types.anomaly.packethdr=yes")
        .set("outputs.1.fast.enabled=yes");
    let left = sense_tape(&tape, &how);
    let found = left.of("anomaly");
    assert_eq!(found.len(), 2, "{}", left.text);
    assert_eq!(found[0]["anomaly"]["event"], "decoder.icmpv4.unknown_type");
    for one in &found {
        assert_eq!(one["flow_id"], left.of("flow")[0]["flow_id"], "{one}");
        assert_eq!(one["packet_info"]["linktype"], 1);
        // 32 bytes in base64.
        assert_eq!(one["packet"].as_str().map(str::len), Some(44));
    }
    // The second packet finds what the first one's rule has set.
    assert_eq!(found[1]["metadata"]["flowbits"][0], "seen");
}

#[test]
fn counters_say_what_rules_there_are_and_what_never_happened() {
    let rules = "\
        alert tcp any any -> any any (msg:\"m\"; requires:feature ja3; sid:1;)\n\
        alert tcp any any -> any any (msg:\"m\"; sid:2;)\n";
    let left = sense_tape(&tape(), &How::rules(rules));
    let stats = &left.of("stats")[0]["stats"];
    let engine =
        serde_json::json!({"id": 0, "rules_loaded": 2, "rules_failed": 0, "rules_skipped": 0});
    assert_eq!(stats["detect"]["engines"][0], engine);
    for name in [
        "/app_layer/flow/failed_tcp",
        "/app_layer/flow/failed_udp",
        "/stream/pkt_invalid_timestamp",
        "/decoder/chdlc",
        "/decoder/sll2",
        "/decoder/vlan_qinqinq",
        "/decoder/ipv4_in_ipv6",
        "/defrag/mgr/tracker_timeout",
    ] {
        assert_eq!(stats.pointer(name), Some(&0.into()), "{name}");
    }
}

#[test]
fn counters_as_a_table() {
    let folder = Folder::new();
    let file = folder.0.join("stats.log");
    let how = How::rules(RULE)
        .set("outputs.0.eve-log.enabled=yes")
        .set("outputs.1.fast.enabled=yes")
        .set("outputs.2.stats.enabled=yes")
        .set(&format!("outputs.2.stats.filename={}", file.display()));
    let left = sense_tape(&tape(), &how);
    let text = std::fs::read_to_string(file).expect("written");
    assert!(
        text.contains("Date: 01/01/2024 -- 00:00:00 (uptime: 0d, 00h 00m 00s)"),
        "{text}"
    );
    let value = |name: &str| {
        let mut rows = text.lines().map(|line| line.split('|').map(str::trim));
        rows.find_map(|mut row| (row.next() == Some(name)).then(|| row.nth(1))?)
    };
    let counters = &left.summary.counters;
    let packets = counters["decoder.pkts"].to_string();
    assert_eq!(value("decoder.pkts"), Some(packets.as_str()));
    // What never happened has no row.
    assert_eq!(counters["decoder.sctp"], 0);
    assert_eq!(value("decoder.sctp"), None);
}

#[test]
fn alerts_name_the_references_of_their_rule() {
    let mut tape = Tape::default();
    web(
        &mut tape,
        40_000,
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        ANSWER,
    );
    let rule = "alert http any any -> any any (msg:\"m\"; http.method; content:\"GET\"; reference:CVE,2014-0160; reference:url,example.com/a; reference:own,7; sid:1;)\n";
    let mut how = How::rules(rule)
        .set("outputs.0.eve-log.types.alert=yes")
        .set("outputs.1.fast.enabled=yes");
    how.beside = vec![(
        "reference.config",
        "config reference: cve https://cve.example/?name=\nconfig reference: url https://\n",
    )];
    let named = |left: &Left| left.of("alert")[0]["alert"]["references"].clone();
    // Nobody asked.
    assert!(named(&sense_tape(&tape, &how)).is_null());
    let asks = how.set("outputs.0.eve-log.types.alert.metadata.rule.reference=yes");
    let left = sense_tape(&tape, &asks);
    let all = [
        "https://cve.example/?name=2014-0160",
        "https://example.com/a",
        "own:7",
    ];
    assert_eq!(named(&left), serde_json::json!(all), "{}", left.text);
    hold(left.eve.iter());
}

/// What sessions say, and what is known of alerts, in hexadecimal; the same for any number of workers.
#[test]
fn bytes_of_sessions_and_alerts() {
    let mut tape = tape();
    tape.session((CLIENT, 40_001), (SERVER, 25), &[b"", b"220 evil\r\n"]);
    let rules = format!(
        "{RULE}alert tcp any any -> any any (msg:\"rare\"; flow:to_client; content:\"evil\"; threshold:type limit, track by_src, count 1, seconds 60; sid:8;)\n"
    );
    let how = How::rules(&rules)
        .set("outputs.0.eve-log.enabled=yes")
        .set("outputs.1.fast.enabled=yes")
        .set("outputs.2.tcp-data.enabled=yes")
        .set("outputs.2.tcp-data.type=file")
        .set("outputs.3.alert-debug.enabled=yes");
    let mut all = Vec::new();
    for workers in [1, 2, 4] {
        let folder = Folder::new();
        let path = folder.0.join("tape.pcap");
        std::fs::write(&path, tape.pcap()).expect("written");
        super::bed::sense_within(&folder, &[path], &how.clone().workers(workers));
        let read = |name: &str| std::fs::read_to_string(folder.0.join(name)).expect(name);
        all.push((read("tcp-data.log"), read("alert-debug.log")));
    }
    assert!(all.iter().all(|one| *one == all[0]));
    let (data, debug) = &all[0];
    assert!(
        data.starts_with(
            "192.168.1.10_40000-198.51.100.80_80-ts:\n 0000  47 45 54 20 2F 65 76 69  6C 2E 68 74 6D 6C 20 48   GET /evi l.html H\n"
        ),
        "{data}"
    );
    assert_eq!(data.matches("-ts:\n").count(), 1);
    assert_eq!(data.matches("-tc:\n").count(), 2);
    let blocks: Vec<&str> = debug.split("+================\n").skip(1).collect();
    assert_eq!(blocks.len(), 2, "{debug}");
    for line in [
        "TIME:              01/01/2024-00:00:00.00",
        "SRC IP:            192.168.1.10\n",
        "FLOW:              to_server: TRUE, to_client: FALSE\n",
        "FLOW APP_LAYER:    DETECTED: TRUE, PROTO http\n",
        "ALERT MSG [00]:      TEST \"evil\" word\n",
        "ALERT SID [00]:      7\n",
        "PAYLOAD:\n 0000  47 45 54 20",
    ] {
        assert!(blocks[0].contains(line), "{line} in {}", blocks[0]);
    }
}
