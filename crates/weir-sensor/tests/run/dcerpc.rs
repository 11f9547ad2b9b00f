//! Rules about calls of DCE/RPC over TCP, and their records.

use weir_sensor::matcher;

use super::bed::{CLIENT, How, SERVER, Tape, counts, sense_tape};
use super::schema::hold;

fn pdu(kind: u8, flags: u8, call: u8, body: &[u8]) -> Vec<u8> {
    let length = 16 + body.len() as u8;
    let head = [
        5, 0, kind, flags, 0x10, 0, 0, 0, length, 0, 0, 0, call, 0, 0, 0,
    ];
    [&head[..], body].concat()
}

/// A bind of 12345678-1234-abcd-ef00-01234567cffb version 1.0 and two calls, the second of which is in two fragments and has no answer.
fn session() -> Tape {
    let interface = b"\x78\x56\x34\x12\x34\x12\xcd\xab\xef\x00\x01\x23\x45\x67\xcf\xfb\x01\0\0\0";
    let bind = [&[0; 8][..], &[1, 0, 0, 0, 0, 0, 1, 0], interface, &[8; 20]].concat();
    let bound = [
        &[0; 8][..],
        &[4, 0],
        b"135\0",
        &[0; 2],
        &[1, 0, 0, 0, 0, 0, 0, 0],
        &[8; 20],
    ];
    let request = |operation: u8, stub: &[u8]| {
        let head = [0, 0, 0, 0, 0, 0, operation, 0];
        [&head[..], stub].concat()
    };
    let said = [
        pdu(11, 3, 1, &bind),
        pdu(12, 3, 1, &bound.concat()),
        pdu(0, 3, 2, &request(26, b"\x07\0name of a host\0")),
        pdu(2, 3, 2, &request(0, b"an answer")),
        [
            pdu(0, 1, 3, &request(30, b"one ")),
            pdu(0, 2, 3, &request(30, b"two")),
        ]
        .concat(),
    ];
    let said: Vec<&[u8]> = said.iter().map(Vec::as_slice).collect();
    let mut tape = Tape::default();
    tape.session((CLIENT, 40_000), (SERVER, 49_668), &said);
    tape
}

const RULES: &str = r#"
alert dcerpc any any -> any any (msg:"interface"; flow:to_server; dcerpc.iface:12345678-1234-abcd-ef00-01234567cffb; sid:1;)
alert tcp any any -> any any (msg:"older names"; flow:to_server; dce_iface:12345678-1234-abcd-ef00-01234567cffb,<2,any_frag; dce_opnum:20-26,40; sid:2;)
alert tcp any any -> any any (msg:"across fragments"; flow:to_server; dce_stub_data; content:"one two"; bsize:7; sid:3;)
alert dcerpc any any -> any any (msg:"answer"; flow:to_client; dcerpc.stub_data; content:"an answer"; startswith; sid:4;)
alert dcerpc any any -> any any (msg:"order"; flow:to_server; dcerpc.stub_data; content:"name"; byte_test:2,=,7,0,dce; sid:5;)
alert tcp any any -> any any (msg:"order elsewhere"; flow:to_server; dcerpc.opnum:26; content:"name"; byte_test:2,=,0x0500,0,dce; sid:6;)
alert dcerpc any any -> any any (msg:"another version"; dcerpc.iface:12345678-1234-abcd-ef00-01234567cffb,>1; sid:20;)
alert dcerpc any any -> any any (msg:"another interface"; dcerpc.iface:12345678-1234-abcd-ef00-01234567cffc; sid:21;)
alert dcerpc any any -> any any (msg:"another operation"; dcerpc.opnum:0-25,27-29,>30; sid:22;)
alert dcerpc any any -> any any (msg:"the other order"; dcerpc.stub_data; content:"name"; byte_test:2,=,7,0; sid:23;)
alert smb any any -> any any (msg:"not over SMB"; dcerpc.opnum:26; sid:24;)
"#;

#[test]
fn calls_are_told_by_interface_operation_and_arguments() {
    let tape = session();
    let how = || How::rules(RULES);
    let left = sense_tape(&tape, &how());
    let found = [(1, 2), (2, 1), (3, 1), (4, 1), (5, 1), (6, 1)];
    assert_eq!(counts(&left.of("alert")), found, "{}", left.text);
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
fn a_call_and_its_answer_are_one_record() {
    let left = sense_tape(&session(), &How::rules(""));
    hold(left.eve.iter());
    let records = left.of("dcerpc");
    let said: Vec<_> = records
        .iter()
        .map(|r| {
            (
                r["dcerpc"]["request"].as_str(),
                r["dcerpc"]["response"].as_str(),
            )
        })
        .collect();
    let all = [
        (Some("BIND"), Some("BINDACK")),
        (Some("REQUEST"), Some("RESPONSE")),
        (Some("REQUEST"), Some("UNREPLIED")),
    ];
    assert_eq!(said, all, "{}", left.text);
    let call = &records[2]["dcerpc"];
    assert_eq!(call["req"]["frag_cnt"], 2);
    assert_eq!(call["req"]["opnum"], 30);
    assert_eq!(records[1]["tx_id"], 1);
    assert_eq!(records[1]["dcerpc"]["res"]["stub_data_size"], 9);
}
