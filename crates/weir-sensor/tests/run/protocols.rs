//! Rules about protocols, and their records, over the conversations that fuzzing begins with: what alerts, what does not, the same for any number of workers and both matchers,
//! and records that hold to the schema.

use std::path::Path;

use serde_json::Value;
use weir_packet::build::Frame;
use weir_sensor::matcher;

use super::bed::{CLIENT, How, Left, SERVER, Tape, counts, sense_tape};
use super::schema::hold;

/// A conversation of `fuzz/corpus`: of each step whether the server says it, and what.
fn corpus(file: &str) -> Vec<(bool, Vec<u8>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let bytes = std::fs::read(path.join(file)).expect("a conversation");
    let mut rest = bytes.as_slice();
    let mut steps = Vec::new();
    while let [kind, a, b, after @ ..] = rest {
        let (said, after) = after.split_at(usize::from(u16::from_le_bytes([*a, *b])));
        steps.push((kind & 1 != 0, said.to_vec()));
        rest = after;
    }
    steps
}

/// Over TCP.
fn stream(file: &str, port: u16) -> Tape {
    let mut said: Vec<Vec<u8>> = Vec::new();
    for (server, bytes) in corpus(file) {
        // The client speaks first on the tape, and the two take turns.
        while (said.len() % 2 == 1) != server {
            said.push(Vec::new());
        }
        said.push(bytes);
    }
    let said: Vec<&[u8]> = said.iter().map(Vec::as_slice).collect();
    let mut tape = Tape::default();
    tape.session((CLIENT, 40_000), (SERVER, port), &said);
    tape
}

/// Over UDP.
fn datagrams(file: &str, ports: [u16; 2]) -> Tape {
    let mut tape = Tape::default();
    for (server, bytes) in corpus(file) {
        let frame = match server {
            true => Frame::new().ip4(SERVER, CLIENT).udp(ports[1], ports[0]),
            false => Frame::new().ip4(CLIENT, SERVER).udp(ports[0], ports[1]),
        };
        tape.push(&frame.payload(&bytes));
    }
    tape
}

/// Runs it in all ways; rules below 20 alert as often as said, the others never.
fn sense(tape: &Tape, rules: &str, found: &[(u64, usize)]) -> Left {
    let left = sense_tape(tape, &How::rules(rules));
    assert_eq!(counts(&left.of("alert")), found, "{}", left.text);
    hold(left.eve.iter());
    for workers in [2, 4] {
        let how = How::rules(rules).workers(workers);
        assert_eq!(sense_tape(tape, &how).text, left.text);
    }
    let how = How {
        matcher: matcher::Engine::AhoCorasick,
        ..How::rules(rules)
    };
    assert_eq!(sense_tape(tape, &how).text, left.text);
    left
}

/// Runs it with a log that has one type of records, with one key of its section.
fn logged(tape: &Tape, key: &str) -> Left {
    let how = How::rules("")
        .set(&format!("outputs.0.eve-log.types.0.{key}=yes"))
        .set("outputs.1.fast.enabled=yes");
    let left = sense_tape(tape, &how);
    hold(left.eve.iter());
    left
}

/// What records of a type say.
fn said<'a>(left: &'a Left, kind: &str) -> Vec<&'a Value> {
    left.of(kind).iter().map(|r| &r[kind]).collect()
}

#[test]
fn kerberos() {
    let rules = r#"
alert krb5 any any -> any any (msg:"request"; krb5_msg_type:10; sid:1;)
alert krb5 any any -> any any (msg:"error"; krb5_msg_type:error; krb5_err_code:25; sid:2;)
alert krb5 any any -> any any (msg:"server"; krb5.sname; content:"krbtgt"; startswith; endswith; sid:3;)
alert tcp any 88 -> any any (msg:"client"; krb5_cname; content:"user"; sid:4;)
alert krb5 any any -> any any (msg:"weak"; krb5.ticket_encryption:weak; sid:5;)
alert krb5 any any -> any any (msg:"named"; krb5.ticket_encryption:rc4-hmac,rc4-hmac-exp; sid:6;)
alert krb5 any any -> any any (msg:"another"; krb5.ticket_encryption:aes256-cts-hmac-sha1-96,17; sid:20;)
alert krb5 any any -> any any (msg:"not weak"; krb5.ticket_encryption:!weak; sid:21;)
alert krb5 any any -> any any (msg:"malformed"; app-layer-event:krb5.malformed_data; sid:22;)
alert krb5 any any -> any any (msg:"weak"; app-layer-event:krb5.weak_encryption; sid:23;)
"#;
    let found = [(1, 2), (2, 1), (3, 2), (4, 1), (5, 1), (6, 1)];
    let left = sense(&stream("sensor_krb5/login", 88), rules, &found);
    let records = said(&left, "krb5");
    assert_eq!(records.len(), 4, "{}", left.text);
    assert_eq!(records[1]["failed_request"], "KRB_AS_REQ");
    assert_eq!(records[1]["error_code"], "KDC_ERR_PREAUTH_REQUIRED");
    assert_eq!(records[3]["sname"], "krbtgt/REALM");
    assert_eq!(records[3]["encryption"], "aes256-cts-hmac-sha1-96");
    assert_eq!(records[3]["ticket_weak_encryption"], true);
    let left = sense_tape(
        &datagrams("sensor_krb5/datagrams", [40_000, 88]),
        &How::rules(""),
    );
    assert_eq!(said(&left, "krb5")[1]["msg_type"], "KRB_AS_REP");
}

#[test]
fn ike() {
    let rules = r#"
alert ike any any -> any any (msg:"initiator"; ike.init_spi; content:"1111111111111111"; sid:1;)
alert ike any any -> any any (msg:"responder"; ike.resp_spi; content:"2222"; startswith; sid:2;)
alert ike any any -> any any (msg:"chosen"; ike.chosen_sa_attribute:alg_enc=7; ike.chosen_sa_attribute:sa_key_length=128; sid:3;)
alert udp any any -> any any (msg:"key"; ike.key_exchange_payload_length:>32; ike.nonce_payload_length:20; sid:4;)
alert ike any any -> any any (msg:"vendor"; ike.vendor; content:"76656e646f72"; sid:5;)
alert ike any any -> any any (msg:"nonce"; ike.nonce_payload; content:"88888888"; ike.exchtype:2; sid:6;)
alert ike any any -> any any (msg:"another"; ike.chosen_sa_attribute:alg_enc=5; sid:20;)
alert ike any any -> any any (msg:"weak"; app-layer-event:ike.weak_crypto_dh; sid:21;)
"#;
    let found = [(1, 2), (2, 2), (3, 1), (4, 1), (5, 1), (6, 1)];
    let left = sense(&datagrams("sensor_ike/main", [500, 500]), rules, &found);
    let records = said(&left, "ike");
    assert_eq!(records[1]["alg_enc"], "EncAesCbc");
    // Numbers are told if that is asked for.
    assert!(records[1].get("alg_enc_raw").is_none());
    let left = logged(&datagrams("sensor_ike/main", [500, 500]), "ike.extended");
    assert_eq!(said(&left, "ike")[1]["alg_enc_raw"], 7);
    let rules = r#"
alert ikev2 any any -> any any (msg:"weak"; app-layer-event:ikev2.weak_crypto_dh; sid:1;)
alert ike any any -> any any (msg:"older name"; app-layer-event:ike.weak_crypto_nodh; sid:20;)
"#;
    let tape = datagrams("sensor_ike/second", [500, 500]);
    let left = sense(&tape, rules, &[(1, 2)]);
    assert_eq!(said(&left, "ike")[0]["payload"][3], "Notify");
}

#[test]
fn postgresql() {
    let rules = r#"
alert pgsql any any -> any any (msg:"query"; pgsql.query; content:"select 1"; bsize:8; sid:1;)
alert postgresql any any -> any any (msg:"stream"; content:"shop"; sid:2;)
alert pgsql any any -> any any (msg:"another"; pgsql.query; content:"drop"; sid:20;)
alert pgsql any any -> any any (msg:"event"; app-layer-event:pgsql.malformed_request; sid:21;)
"#;
    let tape = stream("sensor_pgsql/query", 5432);
    let left = sense(&tape, rules, &[(1, 1), (2, 1)]);
    let records = said(&left, "pgsql");
    assert_eq!(records[2]["request"]["password_redacted"], true);
    assert_eq!(records[3]["response"]["data_size"], 1);
    let left = logged(&tape, "pgsql.passwords");
    assert_eq!(said(&left, "pgsql")[2]["request"]["password"], "md5secret");
    let left = sense(&stream("sensor_pgsql/cancel", 5432), "", &[]);
    assert_eq!(said(&left, "pgsql")[0]["request"]["process_id"], 1);
}

#[test]
fn nfs() {
    let rules = r#"
alert nfs any any -> any any (msg:"version"; nfs.version:3; flow:to_server; nfs_procedure:3; sid:1;)
alert nfs any any -> any any (msg:"file"; flow:to_client; file.name; content:"evil.exe"; sid:2;)
alert nfs any any -> any any (msg:"data"; file.data; content:"hello"; sid:3;)
alert nfs any any -> any any (msg:"with its ends"; flow:to_server; nfs_procedure:7<>21; sid:4;)
alert nfs any any -> any any (msg:"another"; nfs_version:2; sid:20;)
alert nfs any any -> any any (msg:"event"; app-layer-event:nfs.malformed_data; sid:21;)
"#;
    let found = [(1, 1), (2, 1), (3, 1), (4, 2)];
    for tape in [
        stream("sensor_nfs/stream", 2049),
        datagrams("sensor_nfs/datagrams", [700, 2049]),
    ] {
        let left = sense(&tape, rules, &found);
        let records = said(&left, "nfs");
        assert_eq!(records.len(), 4, "{}", left.text);
        assert_eq!(records[1]["read"]["last"], true);
        assert_eq!(records[0]["status"], "OK");
        let rpc = &left.of("nfs")[0]["rpc"];
        assert_eq!(
            (&rpc["status"], &rpc["creds"]["uid"]),
            (&"ACCEPTED".into(), &1000.into())
        );
        let left = logged(&tape, "files.enabled");
        let files = said(&left, "fileinfo");
        assert_eq!(files[0]["filename"], "evil.exe");
        assert_eq!(
            (&files[0]["state"], &files[1]["size"]),
            (&"CLOSED".into(), &3.into())
        );
    }
    let left = sense(&stream("sensor_nfs/others", 2049), "", &[]);
    assert!(said(&left, "nfs").is_empty(), "not in records of a mark");
}

#[test]
fn ethernet_ip() {
    let rules = r#"
alert enip any any -> any any (msg:"command"; enip_command:list_identity; sid:1;)
alert tcp any any -> any any (msg:"product"; enip.product_name; content:"1756"; sid:2;)
alert enip any any -> any any (msg:"vendor"; flow:to_client; enip.vendor_id:1; enip.serial:>10; sid:3;)
alert enip any any -> any any (msg:"service"; enip.service_name; content:"Comm"; startswith; sid:4;)
alert enip any any -> any any (msg:"another"; enip_command:112; sid:20;)
"#;
    let found = [(1, 2), (2, 1), (3, 1), (4, 1)];
    let left = sense(&stream("sensor_enip/list", 44_818), rules, &found);
    let records = said(&left, "enip");
    assert_eq!(records[0]["response"]["identity"]["revision"], "4.3");
    let rules = r#"
alert ip any any -> any any (msg:"service"; flow:to_server; cip_service:10; sid:1;)
alert enip any any -> any any (msg:"class"; flow:to_server; cip_service:3,1; sid:2;)
alert enip any any -> any any (msg:"attribute"; flow:to_server; cip_service:3,1,5; enip.cip_instance:1; sid:3;)
alert enip any any -> any any (msg:"status"; flow:to_client; enip.cip_status:8; enip.cip_extendedstatus:0x1234; sid:4;)
alert enip any any -> any any (msg:"another class"; cip_service:3,2; sid:20;)
alert enip any any -> any any (msg:"another attribute"; cip_service:3,1,6; sid:21;)
"#;
    let found = [(1, 1), (2, 1), (3, 1), (4, 1)];
    let left = sense(&stream("sensor_enip/several", 44_818), rules, &found);
    assert_eq!(
        said(&left, "enip")[0]["request"]["cip"]["class_name"],
        "Message Router"
    );
}

#[test]
fn mail_desktops_and_names() {
    let rules = r#"
alert pop3 any any -> any any (msg:"stream"; content:"c2VjcmV0"; sid:1;)
alert pop3 any any -> any any (msg:"event"; app-layer-event:pop3.unknown_command; sid:20;)
"#;
    let left = sense(&stream("sensor_pop3/login", 110), rules, &[(1, 1)]);
    let records = said(&left, "pop3");
    assert_eq!(records[3]["request"]["command"], "<SASL DATA>");
    assert_eq!(records[1]["response"]["data"][0], "TOP");
    let rules = "alert rdp any any -> any any (msg:\"stream\"; content:\"mstshash\"; sid:1;)\n";
    let left = sense(&stream("sensor_rdp/connect", 3389), rules, &[(1, 1)]);
    let records = said(&left, "rdp");
    assert_eq!(records[0]["cookie"], "bob");
    assert_eq!(records[2]["client"]["client_name"], "DESK");
    let rules = r#"
alert mdns any any -> any any (msg:"query"; mdns.queries.rrname; content:"_http"; sid:1;)
alert mdns any any -> any any (msg:"another"; mdns.answers.rrname; content:"_ssh"; sid:20;)
"#;
    let left = sense(
        &datagrams("sensor_mdns/ask", [5353, 5353]),
        rules,
        &[(1, 1)],
    );
    assert_eq!(said(&left, "mdns")[0]["type"], "request");
    let rules = r#"
alert ip any any -> any any (msg:"answer"; mdns.answers.rrname; content:"_http"; sid:1;)
alert mdns any any -> any any (msg:"any name"; mdns.response.rrname; content:"box._http"; sid:2;)
alert mdns any any -> any any (msg:"more"; mdns.additionals.rrname; content:"h.local"; sid:3;)
alert mdns any any -> any any (msg:"another"; mdns.authorities.rrname; content:"h.local"; sid:20;)
"#;
    let found = [(1, 1), (2, 1), (3, 1)];
    sense(&datagrams("sensor_mdns/tell", [5353, 5353]), rules, &found);
}

#[test]
fn websocket() {
    let mut said_: Vec<Vec<u8>> = vec![
        b"GET /chat HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
            .to_vec(),
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
            .to_vec(),
    ];
    said_.extend(
        corpus("sensor_websocket/fragments")
            .into_iter()
            .map(|(_, b)| b),
    );
    let turns: Vec<&[u8]> = said_.iter().map(Vec::as_slice).collect();
    let mut tape = Tape::default();
    tape.session((CLIENT, 40_000), (SERVER, 80), &turns);
    let rules = r#"
alert websocket any any -> any any (msg:"opcode"; flow:to_client; websocket.opcode:text; sid:1;)
alert websocket any any -> any any (msg:"mask"; websocket.mask:0x01020304; sid:2;)
alert websocket any any -> any any (msg:"flags"; flow:to_server; websocket.flags:!fin; sid:3;)
alert websocket any any -> any any (msg:"bits"; flow:to_client; websocket.flags:&0x80=0x80; sid:4;)
alert websocket any any -> any any (msg:"payload"; websocket.payload; content:"hello"; bsize:5; sid:5;)
alert websocket any any -> any any (msg:"pdu"; flow:to_client; frame:websocket.pdu; content:"|81 7e 00 05|hello"; bsize:9; sid:6;)
alert websocket any any -> any any (msg:"head"; flow:to_server; frame:header; content:"|01 83 01 02 03 04|"; bsize:6; sid:7;)
alert websocket any any -> any any (msg:"as sent"; flow:to_server; frame:data; content:"abc"; sid:8;)
alert websocket any any -> any any (msg:"compressed"; websocket.flags:comp; sid:20;)
alert websocket any any -> any any (msg:"event"; app-layer-event:websocket.skip_end_of_payload; sid:21;)
"#;
    let found = [
        (1, 1),
        (2, 2),
        (3, 1),
        (4, 2),
        (5, 1),
        (6, 1),
        (7, 1),
        (8, 1),
    ];
    let left = sense(&tape, rules, &found);
    assert_eq!(said(&left, "websocket")[1]["opcode"], "ping");
    let how = How::rules("").set("app-layer.protocols.websocket.max-payload-size=3");
    let limited = sense_tape(&tape, &how);
    assert!(
        limited.text.contains("skip_end_of_payload"),
        "{}",
        limited.text
    );
}

#[test]
fn frames() {
    let rules = r#"
alert enip any any -> any any (msg:"inside another"; frame:enip.cip; content:"|03 02 20 01|"; startswith; bsize:10; sid:1;)
alert enip any any -> any any (msg:"of the header's protocol"; flow:to_server; frame:hdr; content:"|70 00|"; startswith; bsize:24; sid:2;)
alert enip any any -> any any (msg:"item"; frame:enip.enip.item; content:"|b1 00|"; startswith; sid:3;)
alert tcp any any -> any any (msg:"of TCP"; flow:to_server; frame:enip.pdu; content:"|70 00|"; startswith; sid:4;)
alert enip any any -> any any (msg:"not of a head"; frame:enip.hdr; content:"|20 01|"; sid:20;)
"#;
    let found = [(1, 1), (2, 1), (3, 2), (4, 1)];
    sense(&stream("sensor_enip/several", 44_818), rules, &found);
    let rules = r#"
alert dcerpc any any -> any any (msg:"head"; flow:to_server; frame:dcerpc.hdr; content:"|05 00|"; startswith; bsize:16; sid:1;)
alert dcerpc any any -> any any (msg:"not of a head"; frame:dcerpc.hdr; bsize:>16; sid:20;)
"#;
    let bind: &[u8] = b"\x05\x00\x0b\x03\x10\0\0\0\x48\0\0\0\x01\0\0\0\xd0\x16\xd0\x16\0\0\0\0\x01\0\0\0\0\0\x01\0\
\x78\x56\x34\x12\x34\x12\xcd\xab\xef\x00\x01\x23\x45\x67\x89\xab\x01\0\0\0\
\x04\x5d\x88\x8a\xeb\x1c\xc9\x11\x9f\xe8\x08\0\x2b\x10\x48\x60\x02\0\0\0";
    let mut tape = Tape::default();
    tape.session((CLIENT, 40_000), (SERVER, 135), &[bind]);
    sense(&tape, rules, &[(1, 1)]);
}

#[test]
fn modbus() {
    let rules = r#"
alert modbus any any -> any any (msg:"unasked"; flow:to_client; app-layer-event:modbus.unsolicited_response; sid:1;)
alert modbus any any -> any any (msg:"length"; app-layer-event:modbus.invalid_length; sid:2;)
alert modbus any any -> any any (msg:"flood"; app-layer-event:modbus.flooded; sid:20;)
alert modbus any any -> any any (msg:"value"; app-layer-event:modbus.invalid_value; sid:21;)
"#;
    let left = sense(
        &stream("sensor_modbus/exceptions", 502),
        rules,
        &[(1, 1), (2, 1)],
    );
    let records = said(&left, "modbus");
    assert_eq!(records[0]["response"]["exception"]["raw"], 2);
    assert_eq!(records[1]["request"]["diagnostic"]["code"], "RetQueryData");
    let left = sense(&stream("sensor_modbus/registers", 502), rules, &[]);
    let records = said(&left, "modbus");
    assert_eq!(records.len(), 5, "{}", left.text);
    assert_eq!(records[0]["request"]["read"]["quantity"], 2);
    assert_eq!(records[4]["response"]["function_code"], "RdWrMultRegs");
}

#[test]
fn frames_of_calls_and_queues() {
    let check = |tape: &Tape, rules: &str, found: &[(u64, usize)]| {
        let left = sense_tape(tape, &How::rules(rules));
        assert_eq!(counts(&left.of("alert")), found, "{}", left.text);
        for workers in [2, 4] {
            let how = How::rules(rules).workers(workers);
            assert_eq!(sense_tape(tape, &how).text, left.text);
        }
    };
    let mut tape = Tape::default();
    tape.session(
        (CLIENT, 40_000),
        (SERVER, 5060),
        &[
            b"REGISTER sip:a SIP/2.0\r\nVia: x\r\nContent-Length: 4\r\n\r\nbody",
            b"SIP/2.0 200 OK\r\nVia: y\r\nContent-Length: 0\r\n\r\n",
        ],
    );
    let rules = r#"
alert sip any any -> any any (msg:"all"; flow:to_server; frame:pdu; content:"REGISTER"; startswith; content:"|0d 0a 0d 0a|body"; endswith; sid:1;)
alert sip any any -> any any (msg:"line"; frame:request.line; content:"SIP/2.0|0d 0a|"; endswith; sid:2;)
alert sip any any -> any any (msg:"fields"; frame:request.headers; content:"Via:"; startswith; content:"4|0d 0a|"; endswith; sid:3;)
alert tcp any any -> any any (msg:"body"; frame:sip.request.body; content:"body"; bsize:4; sid:4;)
alert sip any any -> any any (msg:"answer"; flow:to_client; frame:response.line; content:"200 OK|0d 0a|"; endswith; sid:5;)
alert sip any any -> any any (msg:"its fields"; frame:response.headers; content:"Via:"; startswith; content:"0|0d 0a|"; endswith; sid:6;)
alert sip any any -> any any (msg:"no field"; frame:request.body; content:"Via"; sid:20;)
"#;
    let found: Vec<(u64, usize)> = (1..=6).map(|sid| (sid, 1)).collect();
    check(&tape, rules, &found);
    let mut tape = Tape::default();
    let connect: &[u8] = b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00";
    tape.session(
        (CLIENT, 40_000),
        (SERVER, 1883),
        &[connect, b"\x20\x02\x00\x00"],
    );
    let rules = r#"
alert mqtt any any -> any any (msg:"all"; frame:pdu; content:"|10 0c 00 04|MQTT"; startswith; bsize:14; sid:1;)
alert mqtt any any -> any any (msg:"head"; frame:header; content:"|20 02|"; bsize:2; sid:2;)
alert tcp any any -> any any (msg:"rest"; frame:mqtt.data; content:"|00 04|MQTT"; startswith; bsize:12; sid:3;)
alert mqtt any any -> any any (msg:"not the head"; frame:mqtt.data; content:"|10 0c|"; sid:20;)
"#;
    check(&tape, rules, &[(1, 1), (2, 1), (3, 1)]);
}
