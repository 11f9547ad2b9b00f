//! Rules about MQTT, and its records: a message and its acknowledgements are one transaction.

use weir_sensor::matcher;

use super::bed::{CLIENT, How, SERVER, Tape, counts, sense_tape};

/// A session of version 5: CONNECT with a user, a subscription, something published with each quality of service, DISCONNECT.
fn session() -> Tape {
    let mut tape = Tape::default();
    let said: &[&[u8]] = &[
        b"\x10\x19\0\x04MQTT\x05\xc2\0\x3c\x03\x21\0\x14\0\x02me\0\x01u\0\x02pw",
        b"\x20\x03\0\0\0",
        b"\x82\x0c\0\x01\0\0\x01a\x01\0\x02b/\x02",
        b"\x90\x05\0\x01\0\x01\x80\x30\x08\0\x01a\0news",
        b"\x3b\x0b\0\x01t\0\x07\0hello\x30\x07\0\x01t\0abc\xa2\x06\0\x02\0\0\x01a",
        b"\x40\x02\0\x07\xb0\x04\0\x02\0\x11",
        b"\x40\x02\0\x55\xe0\0",
    ];
    tape.session((CLIENT, 40_000), (SERVER, 1883), said);
    tape
}

const RULES: &str = r#"
alert mqtt any any -> any any (msg:"type"; mqtt.type:CONNACK; sid:1;)
alert mqtt any any -> any any (msg:"of its carrier"; mqtt.connect.username; content:"u"; bsize:1; sid:2;)
alert mqtt any any -> any any (msg:"flags"; mqtt.type:PUBLISH; mqtt.flags:retain,dup; mqtt.qos:1; sid:3;)
alert mqtt any any -> any any (msg:"flags of CONNECT"; mqtt.connect.flags:username,password,!will; mqtt.protocol_version:5; sid:4;)
alert mqtt any any -> any any (msg:"topics"; mqtt.subscribe.topic; content:"b/"; bsize:2; mqtt.reason_code:128; sid:5;)
alert mqtt any any -> any any (msg:"published"; mqtt.publish.message; content:"hello"; mqtt.publish.topic; content:"t"; sid:6;)
alert mqtt any any -> any any (msg:"from the server"; flow:to_client; mqtt.publish.message; content:"news"; sid:7;)
alert mqtt any any -> any any (msg:"given up"; mqtt.unsubscribe.topic; content:"a"; mqtt.reason_code:17; sid:8;)
alert mqtt any any -> any any (msg:"new session"; mqtt.connack.session_present:no; sid:9;)
alert mqtt any any -> any any (msg:"event"; app-layer-event:mqtt.missing_publish; sid:10;)
alert mqtt any any -> any any (msg:"who"; mqtt.connect.clientid; content:"me"; mqtt.connect.password; content:"pw"; mqtt.connect.protocol_string; content:"MQTT"; sid:11;)
alert mqtt any any -> any any (msg:"kept session"; mqtt.connack.session_present:yes; sid:20;)
alert mqtt any any -> any any (msg:"other flags"; mqtt.type:CONNECT; mqtt.connect.flags:will; sid:21;)
alert mqtt any any -> any any (msg:"from the client"; flow:to_server; mqtt.publish.message; content:"news"; sid:22;)
alert mqtt any any -> any any (msg:"another version"; mqtt.protocol_version:<5; sid:23;)
alert mqtt any any -> any any (msg:"no will"; mqtt.connect.willtopic; content:"a"; sid:24;)
"#;

#[test]
fn exchanges_are_told_by_what_their_messages_say() {
    let tape = session();
    let how = || How::rules(RULES);
    let left = sense_tape(&tape, &how());
    let once = (1..=11).map(|sid| (sid, 1)).collect::<Vec<_>>();
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

#[test]
fn an_exchange_is_one_record() {
    let left = sense_tape(&session(), &How::rules(""));
    let records = left.of("mqtt");
    assert_eq!(records.len(), 8, "{}", left.text);
    assert!(records.iter().all(|r| r["dest_port"] == 1883));
    assert!(records.iter().all(|r| r.get("tx_id").is_none()));
    let said = |n: usize| &records[n]["mqtt"];
    assert_eq!(said(0)["connect"]["username"], "u");
    assert_eq!(said(0)["connect"]["password"], "pw");
    assert_eq!(said(0)["connect"]["properties"]["receive_maximum"], 20);
    assert_eq!(said(0)["connack"]["return_code"], 0);
    let of = |name: &str| {
        records
            .iter()
            .filter(|r| !r["mqtt"][name].is_null())
            .count()
    };
    assert_eq!((of("publish"), of("puback"), of("subscribe")), (3, 2, 1));
    assert_eq!(left.of("anomaly").len(), 1);
}

#[test]
fn long_messages_and_passwords_are_left_out_if_asked_for() {
    let how = How::rules("")
        .set("outputs.0.eve-log.enabled=yes")
        .set("outputs.0.eve-log.filename=eve.json")
        .set("outputs.1.fast.enabled=yes")
        .set("outputs.0.eve-log.types.0.mqtt.passwords=no")
        .set("app-layer.protocols.mqtt.max-msg-length=26");
    let mut tape = session();
    let said: &[&[u8]] = &[
        b"\x10\x0e\0\x04MQTT\x04\x02\0\x3c\0\x02me",
        b"\x20\x02\0\0",
        b"\x30\x20\0\x01t01234567890123456789012345678",
    ];
    tape.session((CLIENT, 40_001), (SERVER, 1883), said);
    let left = sense_tape(&tape, &how);
    let records = left.of("mqtt");
    let connect = &records[0]["mqtt"]["connect"];
    assert_eq!(connect["username"], "u");
    assert!(connect.get("password").is_none());
    let publish = records
        .iter()
        .find(|r| r["mqtt"]["publish"]["truncated"] == true);
    let publish = &publish.expect("a long message")["mqtt"]["publish"];
    assert_eq!(publish["skipped_length"], 34);
    assert!(publish.get("message").is_none());
}
