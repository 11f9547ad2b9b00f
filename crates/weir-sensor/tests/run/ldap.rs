//! Rules about LDAP, and its record: a request with all its responses.

use weir_sensor::matcher;

use super::bed::{CLIENT, How, SERVER, Tape, counts, sense_tape};
use super::schema::hold;

fn tlv(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let inside = parts.concat();
    [&[tag, inside.len() as u8][..], &inside].concat()
}

fn message(id: u8, tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    tlv(0x30, &[&[2, 1, id], &tlv(tag, parts)])
}

/// A bind that fails, and a search that finds one entry and then too many.
fn session() -> Tape {
    let string = |text: &[u8]| tlv(4, &[text]);
    let bind = message(
        1,
        0x60,
        &[&[2, 1, 3], &string(b"cn=admin"), &tlv(0x80, &[b"pw"])],
    );
    let refused = message(
        1,
        0x61,
        &[&[10, 1, 49], &string(b""), &string(b"wrong password")],
    );
    let numbers = [10, 1, 2, 10, 1, 0, 2, 1, 0, 2, 1, 0, 1, 1, 0];
    let filter = tlv(0x87, &[b"objectClass"]);
    let asked = tlv(0x30, &[&string(b"userPassword")]);
    let search = message(
        2,
        0x63,
        &[&string(b"dc=example,dc=com"), &numbers, &filter, &asked],
    );
    let values = tlv(0x31, &[&string(b"x")]);
    let found = tlv(0x30, &[&tlv(0x30, &[&string(b"userPassword"), &values])]);
    let entry = message(2, 0x64, &[&string(b"uid=joe,dc=example"), &found]);
    let over = message(2, 0x65, &[&[10, 1, 4], &string(b""), &string(b"too many")]);
    let results = [entry, over].concat();
    let said: &[&[u8]] = &[&bind, &refused, &search, &results];
    let mut tape = Tape::default();
    tape.session((CLIENT, 40_000), (SERVER, 389), said);
    tape
}

const RULES: &str = r#"
alert ldap any any -> any any (msg:"operation"; ldap.request.operation:search_request; sid:1;)
alert tcp any any -> any any (msg:"by number"; ldap.request.operation:0; sid:2;)
alert ldap any any -> any any (msg:"name"; ldap.request.dn; content:"dc=example,dc=com"; bsize:17; sid:3;)
alert ldap any any -> any any (msg:"attribute"; ldap.request.attribute_type; content:"userPassword"; sid:4;)
alert ldap any any -> any any (msg:"entry"; ldap.responses.dn; content:"uid=joe"; startswith; sid:5;)
alert ldap any any -> any any (msg:"found"; ldap.responses.attribute_type; content:"userPassword"; sid:6;)
alert ldap any any -> any any (msg:"refused"; ldap.responses.result_code:invalid_credentials,all; sid:7;)
alert ldap any any -> any any (msg:"second"; ldap.responses.result_code:size_limit_exceeded,1; sid:8;)
alert ldap any any -> any any (msg:"last"; ldap.responses.operation:search_result_done,-1; sid:9;)
alert ldap any any -> any any (msg:"message"; ldap.responses.message; content:"wrong password"; sid:10;)
alert ldap any any -> any any (msg:"count"; ldap.responses.count:>1; sid:11;)
alert ldap any any -> any any (msg:"not at first"; ldap.responses.operation:search_result_done,0; sid:20;)
alert ldap any any -> any any (msg:"not all"; ldap.responses.operation:search_result_done,all; sid:21;)
alert ldap any any -> any any (msg:"an entry has no result"; ldap.responses.result_code:!4,0; ldap.responses.count:2; sid:22;)
alert ldap any any -> any any (msg:"no third"; ldap.responses.operation:<30,2; sid:23;)
alert ldap any any -> any any (msg:"event"; app-layer-event:ldap.invalid_data; sid:24;)
"#;

#[test]
fn requests_and_responses_are_told_by_names_and_results() {
    let tape = session();
    let how = || How::rules(RULES);
    let left = sense_tape(&tape, &how());
    let found: Vec<(u64, usize)> = (1..=11).map(|sid| (sid, 1)).collect();
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
fn a_request_and_its_responses_are_one_record() {
    let left = sense_tape(&session(), &How::rules(""));
    let [bind, search] = left.of("ldap")[..] else {
        panic!("two records: {}", left.text);
    };
    assert_eq!(bind["ldap"]["request"]["bind_request"]["name"], "cn=admin");
    hold(left.eve.iter());
    assert!(!left.text.contains("\"pw\""));
    let responses = &search["ldap"]["responses"];
    assert_eq!(responses[0]["operation"], "search_result_entry");
    let done = &responses[1]["search_result_done"];
    assert_eq!(done["result_code"], "size_limit_exceeded");
    assert_eq!(done["message"], "too many");
}
