//! Messages of names (DNS): which rules hold for which of them, and their records.

use serde_json::Value;
use weir_packet::build::Frame;

use super::bed::{CLIENT, How, SERVER, Tape, counts, sense_tape};

/// A question for www.example.com, type A, and its answer.
const QUERY: &[u8] =
    b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03www\x07example\x03com\x00\x00\x01\x00\x01";
const ANSWER: &[u8] = b"\x12\x34\x81\x83\x00\x01\x00\x01\x00\x00\x00\x00\x03www\x07example\x03com\x00\x00\x01\x00\x01\
    \xc0\x0c\x00\x05\x00\x01\x00\x00\x00\x3c\x00\x04\x01x\xc0\x10";

fn names() -> Tape {
    let mut tape = Tape::default();
    let one = |from, to, ports: (u16, u16), payload: &[u8]| {
        Frame::new()
            .ip4(from, to)
            .udp(ports.0, ports.1)
            .payload(payload)
    };
    tape.push(&one(CLIENT, SERVER, (40_053, 53), QUERY));
    tape.push(&one(SERVER, CLIENT, (53, 40_053), ANSWER));
    tape
}

#[test]
fn a_message_of_names_is_of_one_direction() {
    let rules = "\
        alert dns any any -> any any (msg:\"m\"; dns.opcode:QUERY; sid:1;)\n\
        alert dns any any -> any any (msg:\"m\"; dns.rrtype:A; flow:to_server; sid:2;)\n\
        alert dns any any -> any any (msg:\"m\"; dns.rrtype:!2; flow:to_client; sid:3;)\n\
        alert dns any any -> any any (msg:\"m\"; dns.rcode:NXDOMAIN; sid:4;)\n\
        alert dns any any -> any any (msg:\"m\"; dns.rcode:>3; sid:5;)\n\
        alert dns any any -> any any (msg:\"m\"; dns.rcode:2-4; sid:6;)\n\
        alert dns any any -> any any (msg:\"m\"; dns.response.rrname; content:\"x.example.com\"; bsize:13; sid:7;)\n\
        alert dns any any -> any any (msg:\"m\"; dns.queries.rrname; content:\"www\"; startswith; sid:8;)\n\
        alert udp any any -> any any (msg:\"m\"; ip.src; content:\"|c0 a8 01 0a|\"; bsize:4; sid:9;)\n\
        alert dns any any -> any any (msg:\"m\"; dns.rrtype:CNAME; sid:10;)\n\
        alert dns any any -> any any (msg:\"m\"; dns.rrtype:A; flow:to_client; sid:11;)\n";
    let left = sense_tape(&names(), &How::rules(rules));
    assert_eq!(
        counts(&left.of("alert")),
        [
            (1, 2),
            (2, 1),
            (3, 1),
            (4, 1),
            (6, 1),
            (7, 1),
            (8, 2),
            (9, 1),
            // The type of the answer's record, not of the question that it repeats.
            (10, 1)
        ],
        "{}",
        left.text
    );
    let records = left.of("dns");
    assert_eq!(records.len(), 2);
    for (record, kind, sender, number) in [
        (records[0], "request", "192.168.1.10", 1),
        (records[1], "response", "198.51.100.80", 2),
    ] {
        assert_eq!(record["dns"]["type"], kind);
        assert_eq!(record["dns"]["version"], 3);
        assert_eq!(record["dns"]["queries"][0]["rrname"], "www.example.com");
        assert_eq!(record["src_ip"], sender);
        assert_eq!(record["pcap_cnt"], number);
        assert_eq!(record["pkt_src"], "wire/pcap");
    }
    for alert in left.of("alert") {
        let to_server = alert["src_ip"] == "192.168.1.10";
        assert_eq!(alert["direction"] == "to_server", to_server);
        assert_eq!(alert["pcap_cnt"], if to_server { 1 } else { 2 });
    }
}

#[test]
fn an_answer_without_its_question_is_the_servers() {
    let mut tape = names();
    tape.frames.remove(0);
    let rules = "\
        alert dns any 53 -> any any (msg:\"m\"; flow:to_client; dns.response.rrname; content:\"x.example.com\"; sid:1;)\n\
        alert dns any any -> any any (msg:\"m\"; flow:to_server; sid:2;)\n\
        alert dns any any -> any any (msg:\"m\"; app-layer-event:dns.not_request; sid:3;)\n";
    let left = sense_tape(&tape, &How::rules(rules));
    assert_eq!(counts(&left.of("alert")), [(1, 1)], "{}", left.text);
    assert_eq!(left.of("flow")[0]["dest_port"], 53);
}

/// On its own port a message of names is one whatever it asks for, and what it says is told by its sections.
#[test]
fn what_messages_of_names_are_told_by() {
    let name = b"\x03www\x07example\0\0\x01\0\x01";
    let message = |flags: [u8; 2], counts: [u8; 8], rest: &[u8]| {
        [&[0, 7][..], &flags, &counts, name, rest].concat()
    };
    let soa = b"\xc0\x10\0\x06\0\x01\0\0\0\x3c\0\x1a\x02ns\xc0\x10\0\0\0\0\x01\0\0\0\x02\0\0\0\x03\0\0\0\x04\0\0\0\x05";
    let mut tape = Tape::default();
    let ask = Frame::new().ip4(CLIENT, SERVER).udp(40_000, 53);
    let answer = Frame::new().ip4(SERVER, CLIENT).udp(53, 40_000);
    tape.push(
        &ask.clone()
            .payload(&message([1, 0], [0, 1, 0, 0, 0, 0, 0, 0], b"")),
    );
    let denied = message([0x81, 0x83], [0, 1, 0, 0, 0, 1, 0, 0], soa);
    tape.push(&answer.payload(&denied));
    // Operation 9 is none, on a flow of its own.
    let odd = Frame::new().ip4(CLIENT, SERVER).udp(40_001, 53);
    tape.push(&odd.payload(&message([0x48, 0], [0, 1, 0, 0, 0, 0, 0, 0], b"")));
    let rule = |(n, what): (usize, &&str)| {
        format!(
            "alert dns any any -> any any (msg:\"m\"; {what} sid:{};)\n",
            n + 1
        )
    };
    let rules: String = [
        "dns.response.rrname; content:\"ns.example\";",
        "dns.opcode:9;",
        "app-layer-event:dns.invalid_opcode;",
        "dns.rcode:3;",
    ]
    .iter()
    .enumerate()
    .map(rule)
    .collect();
    let left = sense_tape(&tape, &How::rules(&rules));
    assert_eq!(counts(&left.of("alert")), [(1, 1), (2, 1), (3, 1), (4, 1)]);
    assert_eq!(left.of("dns").len(), 3, "{}", left.text);
    // Counters of parsers are there before anything is counted.
    let stats = left.of("stats");
    let stats = &stats.last().expect("counters")["stats"]["app_layer"];
    assert_eq!(stats["error"]["dns_udp"]["parser"], 0);
    assert_eq!(stats["tx"]["smtp"], 0);
}

#[test]
fn which_records_of_names_are_written() {
    let types = "outputs.0.eve-log.types.0.dns";
    let run = |settings: &[&str]| {
        let mut how = How::rules("").set("outputs.1.fast.enabled=yes");
        for one in settings {
            how = how.set(&format!("{types}.{one}"));
        }
        let left = sense_tape(&names(), &how);
        let shown = |r: &&Value| (r["dns"]["type"].clone(), r["dns"].get("answers").is_some());
        left.of("dns").iter().map(shown).collect::<Vec<_>>()
    };
    let (request, response) = (Value::from("request"), Value::from("response"));
    assert_eq!(
        run(&["enabled=yes"]),
        [(request.clone(), false), (response.clone(), true)]
    );
    assert_eq!(run(&["requests=no"]), [(response.clone(), true)]);
    assert_eq!(run(&["responses=no"]), [(request.clone(), false)]);
    assert_eq!(run(&["types=[aaaa]"]), []);
    assert_eq!(
        run(&["types=[a, mx]", "formats=[grouped]"]),
        [(request, false), (response, false)]
    );
}

#[test]
fn records_of_names_as_version_2_had_them() {
    let how = How::rules(
        "alert dns any any -> any any (msg:\"m\"; dns.query; content:\"www\"; sid:1;)\n",
    )
    .set("outputs.1.fast.enabled=yes")
    .set("outputs.0.eve-log.types.alert.enabled=yes")
    .set("outputs.0.eve-log.types.dns.version=2");
    let left = sense_tape(&names(), &how);
    let records = left.of("dns");
    assert_eq!(records.len(), 2, "{}", left.text);
    let (query, answer) = (&records[0]["dns"], &records[1]["dns"]);
    assert_eq!(
        (&query["type"], &query["version"]),
        (&Value::from("query"), &Value::from(2))
    );
    assert_eq!(
        (&query["rrname"], &query["tx_id"]),
        (&Value::from("www.example.com"), &Value::from(0))
    );
    assert!(query.get("queries").is_none() && query.get("rcode").is_none());
    assert_eq!(
        (&answer["type"], &answer["rrtype"]),
        (&Value::from("answer"), &Value::from("A"))
    );
    assert!(answer["answers"][0]["rrname"].is_string() && answer.get("tx_id").is_none());
    assert!(answer["grouped"].is_object());
    // Both as from the client.
    assert!(
        records.iter().all(|r| r["dest_port"] == 53),
        "{}",
        left.text
    );
    // Alerts have the newer form, and answers once.
    let shown = &left.of("alert")[0]["dns"];
    assert_eq!(
        (&shown["version"], &shown["rcode"]),
        (&Value::from(3), &Value::from("NOERROR"))
    );
    assert_eq!(shown["queries"][0]["rrname"], "www.example.com");
    let wrong = weir_sensor::settings::Settings::parse(
        "outputs:\n  - eve-log:\n      types:\n        - dns:\n            version: 4\n",
        false,
    );
    assert!(weir_sensor::config::SensorConfig::from_settings(&wrong.expect("YAML")).is_err());
}

#[test]
fn a_name_that_is_too_long_is_cut() {
    let mut query = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00".to_vec();
    for _ in 0..20 {
        query.push(63);
        query.extend_from_slice(&[b'a'; 63]);
    }
    query.extend_from_slice(&[0, 0, 1, 0, 1]);
    let mut tape = Tape::default();
    tape.push(
        &Frame::new()
            .ip4(CLIENT, SERVER)
            .udp(40_053, 53)
            .payload(&query),
    );
    let rules =
        "alert dns any any -> any any (msg:\"m\"; app-layer-event:dns.name_too_long; sid:1;)\n";
    let left = sense_tape(&tape, &How::rules(rules));
    assert_eq!(left.sids(), [1], "{}", left.text);
    let question = &left.of("dns")[0]["dns"]["queries"][0];
    assert_eq!(question["rrname"].as_str().map(str::len), Some(1025));
    assert_eq!(question["rrname_truncated"], true);
}
