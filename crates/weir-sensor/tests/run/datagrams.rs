//! Rules about protocols of datagrams: what their parsers say decides.

use weir_packet::build::Frame;

use super::bed::{CLIENT, How, SERVER, Tape, counts, sense_tape};

/// GetRequest of version 2c, community `public`.
const GET: &[u8] = b"\x30\x26\x02\x01\x01\x04\x06public\xa0\x19\x02\x04\x01\x02\x03\x04\x02\x01\x00\x02\x01\x00\x30\x0b\x30\x09\x06\x05\x2b\x06\x01\x02\x01\x05\x00";

#[test]
fn snmp_is_told_by_version_type_and_community() {
    let mut tape = Tape::default();
    let question = Frame::new().ip4(CLIENT, SERVER).udp(40_000, 161);
    tape.push(&question.payload(GET));
    let rules = r#"
alert snmp any any -> any any (msg:"all"; snmp.version:2; snmp.pdu_type:0; snmp.community; content:"public"; sid:1;)
alert udp any any -> any 161 (msg:"of its carrier"; snmp.community; content:"public"; sid:2;)
alert snmp any any -> any any (msg:"another version"; snmp.version:!2; sid:3;)
alert snmp any any -> any any (msg:"another type"; snmp.pdu_type:3; sid:4;)
alert snmp any any -> any any (msg:"another community"; snmp.community; content:"private"; sid:5;)
"#;
    let mut sids = sense_tape(&tape, &How::rules(rules)).sids();
    sids.sort_unstable();
    assert_eq!(sids, [1, 2]);
}

#[test]
fn a_transfer_over_tftp_is_a_record_of_its_own() {
    let mut tape = Tape::default();
    let question = Frame::new().ip4(CLIENT, SERVER).udp(40_000, 69);
    tape.push(&question.payload(b"\0\x01boot.img\0OCTET\0"));
    let left = sense_tape(&tape, &How::rules(""));
    let [record] = left.of("tftp")[..] else {
        panic!("one record: {}", left.text);
    };
    assert_eq!(record["tftp"]["mode"], "octet");
    assert_eq!(record["tftp"]["file"], "boot.img");
    // A request is all of it: there is nothing to count.
    assert!(record.get("tx_id").is_none());
}

/// A message of NTP.
fn ntp(version: u8, mode: u8, stratum: u8, reference: &[u8; 4]) -> Vec<u8> {
    let mut bytes = vec![0; 48];
    bytes[0] = version << 3 | mode;
    bytes[1] = stratum;
    bytes[12..16].copy_from_slice(reference);
    bytes
}

#[test]
fn ntp_is_told_by_version_mode_stratum_and_reference() {
    let mut tape = Tape::default();
    let question = Frame::new().ip4(CLIENT, SERVER).udp(40_000, 123);
    let answer = Frame::new().ip4(SERVER, CLIENT).udp(123, 40_000);
    tape.push(&question.payload(&ntp(4, 3, 0, &[0; 4])));
    tape.push(&answer.clone().payload(&ntp(4, 4, 2, b"LOCL")));
    tape.push(&answer.payload(&ntp(4, 4, 2, b"LOCL")));
    let rules = r#"
alert ntp any any -> any any (msg:"all"; ntp.version:4; sid:1;)
alert ntp any any -> any any (msg:"questions"; ntp.mode:client; sid:2;)
alert ntp any any -> any any (msg:"answers"; ntp.mode:!client; ntp.stratum:>=2; sid:3;)
alert ntp any any -> any any (msg:"reference"; flow:to_client; ntp.reference_id; content:"LOCL"; bsize:4; sid:4;)
alert ntp any any -> any any (msg:"second answer"; app-layer-event:ntp.unsolicited_response; sid:5;)
alert ntp any any -> any any (msg:"another version"; ntp.version:<4; sid:6;)
alert ntp any any -> any any (msg:"of the question"; flow:to_server; ntp.reference_id; content:"LOCL"; sid:7;)
alert ntp any any -> any any (msg:"another stratum"; ntp.stratum:1; sid:8;)
"#;
    let left = sense_tape(&tape, &How::rules(rules));
    assert_eq!(
        counts(&left.of("alert")),
        [(1, 3), (2, 1), (3, 2), (4, 2), (5, 1)]
    );
    let records = left.of("ntp");
    assert_eq!(records.len(), 3);
    assert_eq!(records[0]["ntp"]["stratum"], 0);
    assert_eq!(records[1]["ntp"]["reference_id"], "4c:4f:43:4c");
    assert_eq!(records[1]["src_port"], 123);
    assert_eq!(left.of("anomaly").len(), 1);
}

/// A message of DHCP with these options.
fn dhcp(kind: u8, options: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 236];
    bytes[..3].copy_from_slice(&[kind, 1, 6]);
    bytes.extend_from_slice(b"\x63\x82\x53\x63");
    bytes.extend_from_slice(options);
    bytes
}

#[test]
fn leases_are_told_and_more_if_asked_for() {
    let mut tape = Tape::default();
    let question = Frame::new().ip4(CLIENT, SERVER).udp(68, 67);
    let answer = Frame::new().ip4(SERVER, CLIENT).udp(67, 68);
    tape.push(&question.payload(&dhcp(1, b"\x35\x01\x01\x0c\x01h\xff")));
    let times = b"\x35\x01\x05\x33\x04\0\0\x0e\x10\x3a\x04\0\0\x07\x08\x3b\x04\0\0\x0c\x4e\xff";
    tape.push(&answer.clone().payload(&dhcp(2, times)));
    tape.push(&answer.payload(&dhcp(2, b"\x33\x02\0\0\x0c\x09h")));
    let rules = r#"
alert dhcp any any -> any any (msg:"times"; dhcp.leasetime:3600; dhcp.renewal_time:<3600; dhcp.rebinding_time:>1800; sid:1;)
alert dhcp any any -> any any (msg:"event"; app-layer-event:dhcp.truncated_options; sid:2;)
alert dhcp any any -> any any (msg:"other times"; dhcp.leasetime:<3600; sid:20;)
"#;
    let left = sense_tape(&tape, &How::rules(rules));
    assert_eq!(counts(&left.of("alert")), [(1, 1), (2, 1)], "{}", left.text);
    let records = left.of("dhcp");
    let [lease] = records[..] else {
        panic!("one record: {}", left.text);
    };
    assert_eq!(lease["dhcp"]["dhcp_type"], "ack");
    assert!(lease["dhcp"].get("lease_time").is_none());
    let how = How::rules("")
        .set("outputs.0.eve-log.enabled=yes")
        .set("outputs.0.eve-log.filename=eve.json")
        .set("outputs.1.fast.enabled=yes")
        .set("outputs.0.eve-log.types.0.dhcp.extended=yes");
    let left = sense_tape(&tape, &how);
    let records = left.of("dhcp");
    assert_eq!(records.len(), 3, "{}", left.text);
    assert_eq!(records[0]["dhcp"]["hostname"], "h");
    assert_eq!(records[1]["dhcp"]["lease_time"], 3600);
}

/// What the first datagram seemed to be does not stand against an answer of another protocol.
#[test]
fn an_answer_corrects_what_junk_looked_like() {
    let question = b"\xc5\x8e\x01\x20\0\x01\0\0\0\0\0\0\x01a\x03org\0\0\x01\0\x01";
    let refusal = b"\x30\x26\x80\x81\0\0\0\0\0\0\0\0";
    let mut tape = Tape::default();
    let there = Frame::new().ip4(CLIENT, SERVER).udp(40_000, 53);
    let back = Frame::new().ip4(SERVER, CLIENT).udp(53, 40_000);
    tape.push(&there.clone().payload(GET));
    tape.push(&back.payload(refusal));
    tape.push(&there.payload(question));
    let left = sense_tape(&tape, &How::rules(""));
    let names = left.of("dns");
    assert!(
        (names.iter()).any(|r| r["dns"]["queries"][0]["rrname"] == "a.org"),
        "{}",
        left.text
    );
    assert_eq!(left.of("flow")[0]["app_proto"], "dns");
}
