//! Conversations by hand.

use super::*;
use crate::app::tests::{converse_all, wanted};
use crate::app::{Conversation, Ports};

fn tlv(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let inside = parts.concat();
    let length = inside.len() as u32;
    match length {
        0..=0x7f => [&[tag, length as u8][..], &inside].concat(),
        _ => [&[tag, 0x84][..], &length.to_be_bytes(), &inside].concat(),
    }
}

fn string(text: &[u8]) -> Vec<u8> {
    tlv(4, &[text])
}

fn message(id: u8, tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    tlv(0x30, &[&[2, 1, id], &tlv(tag, parts)])
}

fn result(id: u8, tag: u8, code: u8, text: &[u8]) -> Vec<u8> {
    message(id, tag, &[&[10, 1, code], &string(b""), &string(text)])
}

fn attribute(name: &[u8], values: &[&[u8]]) -> Vec<u8> {
    let values: Vec<u8> = values.iter().flat_map(|v| string(v)).collect();
    tlv(0x30, &[&string(name), &tlv(0x31, &[&values])])
}

fn names(t: &Transaction, b: Buffer, d: Direction) -> Vec<String> {
    let lossy = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    t.get(b, d).map(lossy).collect()
}

fn search(id: u8) -> Vec<u8> {
    let numbers = [10, 1, 2, 10, 1, 0, 2, 1, 0, 2, 1, 0, 1, 1, 0];
    let asked = tlv(0x30, &[&string(b"*"), &string(b"mail")]);
    let filter = tlv(0x87, &[b"objectClass"]);
    message(
        id,
        0x63,
        &[&string(b"dc=example"), &numbers, &filter, &asked],
    )
}

#[test]
fn a_search_and_its_results_are_one() {
    let bind = message(
        1,
        0x60,
        &[&[2, 1, 3], &string(b"cn=admin"), &tlv(0x80, &[b"secret"])],
    );
    let entry = |who: &[u8]| {
        let found = tlv(0x30, &[&attribute(b"mail", &[who, b"second"])]);
        message(2, 0x64, &[&string(who), &found])
    };
    let client = [bind, search(2), message(3, 0x42, &[])].concat();
    let server = [
        result(1, 0x61, 49, b"no such luck"),
        entry(b"uid=a"),
        entry(b"uid=b"),
        result(2, 0x65, 0, b""),
    ]
    .concat();
    let c = converse_all(
        &[(ToServer, &client), (ToClient, &server)],
        Ports::default(),
    );
    assert_eq!(c.app(), App::Ldap);
    let [bind, search, unbind] = &c.transactions.live.iter().collect::<Vec<_>>()[..] else {
        panic!("{} transactions", c.transactions.live.len());
    };
    assert_eq!(bind.record["request"]["bind_request"]["name"], "cn=admin");
    assert!(
        !serde_json::to_string(&bind.record)
            .unwrap()
            .contains("secret")
    );
    let refused = &bind.record["responses"][0]["bind_response"];
    assert_eq!(refused["result_code"], "invalid_credentials");
    assert_eq!(
        names(bind, Buffer::LdapResponseMessage, ToClient),
        ["no such luck"]
    );
    let said = &search.record["request"]["search_request"];
    assert_eq!(
        (&said["scope"], &said["attributes"][1]),
        (&json!(2), &json!("mail"))
    );
    assert_eq!(
        names(search, Buffer::LdapRequestName, ToServer),
        ["dc=example"]
    );
    assert_eq!(
        names(search, Buffer::LdapRequestAttribute, ToServer),
        ["*", "mail"]
    );
    assert_eq!(
        names(search, Buffer::LdapResponseName, ToClient),
        ["uid=a", "uid=b", ""]
    );
    assert_eq!(
        names(search, Buffer::LdapResponseAttribute, ToClient),
        ["mail", "mail"]
    );
    let facts: Vec<u64> = search.facts(OPERATION).collect();
    assert_eq!(
        (facts, search.facts(COUNT).next()),
        (vec![4, 4, 5], Some(3))
    );
    let codes: Vec<u64> = search.facts(RESULT).collect();
    assert_eq!(codes, [UNTOLD, UNTOLD, 0]);
    let entry = &search.record["responses"][1]["search_result_entry"];
    assert_eq!(entry["attributes"][0]["values"], json!(["uid=b", "second"]));
    assert_eq!(unbind.record["request"]["operation"], "unbind_request");
    assert!(
        [bind, search, unbind]
            .iter()
            .all(|t| t.done && t.events.is_empty())
    );
}

#[test]
fn changes_name_what_they_change() {
    let pair = |n: u8, a: &[u8]| tlv(0x30, &[&[10, 1, n], a]);
    let changes = pair(2, &attribute(b"mail", &[b"new"]));
    let modify = message(1, 0x66, &[&string(b"uid=a"), &tlv(0x30, &[&changes])]);
    let add = tlv(0x30, &[&attribute(b"objectClass", &[b"top", b"person"])]);
    let add = message(2, 0x68, &[&string(b"uid=b"), &add]);
    let rename = message(
        3,
        0x6c,
        &[&string(b"uid=b"), &string(b"uid=c"), &[1, 1, 255]],
    );
    let compared = tlv(0x30, &[&string(b"kind"), &string(b"paid")]);
    let compare = message(4, 0x6e, &[&string(b"uid=c"), &compared]);
    let delete = message(5, 0x4a, &[b"uid=c"]);
    let client = [modify, add, rename, compare, delete].concat();
    let server = [
        result(1, 0x67, 0, b""),
        result(2, 0x69, 68, b""),
        result(3, 0x6d, 0, b""),
        result(4, 0x6f, 6, b""),
        result(5, 0x6b, 200, b""),
    ]
    .concat();
    let c = converse_all(
        &[(ToServer, &client), (ToClient, &server)],
        Ports::default(),
    );
    let live = &c.transactions.live;
    let asked = |n: usize, name: &str| &live[n].record["request"][name];
    let change = &asked(0, "modify_request")["changes"][0];
    assert_eq!(change["operation"], "replace");
    assert_eq!(change["modification"]["attribute_values"], json!(["new"]));
    assert_eq!(
        asked(1, "add_request")["attributes"][0]["values"][1],
        "person"
    );
    assert_eq!(asked(2, "mod_dn_request")["delete_old_rdn"], true);
    let assertion = &asked(3, "compare_request")["attribute_value_assertion"];
    assert_eq!(assertion, &json!({"description": "kind", "value": "paid"}));
    assert_eq!(asked(4, "del_request")["dn"], "uid=c");
    let told = |n: usize, name: &str| &live[n].record["responses"][0][name]["result_code"];
    assert_eq!(told(1, "add_response"), "entry_already_exists");
    assert_eq!(told(3, "compare_response"), "compare_true");
    assert_eq!(told(4, "del_response"), "unknown-200");
    assert_eq!(
        names(&live[0], Buffer::LdapRequestAttribute, ToServer),
        ["mail"]
    );
}

#[test]
fn tls_begins_when_it_is_granted() {
    let start = message(1, 0x77, &[&tlv(0x80, &[START_TLS])]);
    let hello = b"\x16\x03\x01\x00\x01\x01";
    for (code, app) in [(0, App::Tls), (2, App::Ldap)] {
        let parts = [
            (ToServer, &start[..]),
            (ToClient, &result(1, 0x78, code, b"")),
            (ToServer, hello),
        ];
        let c = converse_all(&parts, Ports::default());
        assert_eq!(c.app(), app);
        assert_eq!(c.before().is_some(), code == 0);
    }
}

#[test]
fn what_has_no_request_and_what_is_no_message() {
    let notice = message(0, 0x78, &[&[10, 1, 52], &string(b""), &string(b"bye")]);
    let late = result(9, 0x65, 0, b"");
    // What a security layer wraps begins with its length.
    let server = [notice, late, vec![0, 0, 0, 9, 1, 2, 3]].concat();
    let c = converse_all(&[(ToClient, &server)], Ports::default());
    let live = &c.transactions.live;
    assert_eq!(live[0].record["responses"][0]["message_id"], 0);
    assert!(live[0].events.is_empty());
    assert_eq!(live[1].events, ["request_not_found"]);
    assert!(c.transactions.failed && live.len() == 2);
    // A value that is too long is passed over, and what follows it is read.
    let long = vec![b'x'; MOST_MESSAGE];
    let entry = message(2, 0x64, &[&string(&long), &tlv(0x30, &[])]);
    let mut parser = Ldap::new(&wanted(), true);
    let mut out = Transactions::default();
    parser.data(ToServer, &search(2), 1, &mut out);
    for piece in entry.chunks(1400) {
        parser.data(ToClient, piece, 1, &mut out);
        assert!(parser.memory() < 16 * 1024);
    }
    parser.data(ToClient, &result(2, 0x65, 4, b""), 1, &mut out);
    assert!(out.live[0].done && !out.failed);
}

#[test]
fn what_waits_is_bounded() {
    let w = wanted();
    let mut parser = Ldap::new(&w, true);
    let mut out = Transactions::default();
    for _ in 0..1000 {
        parser.data(ToServer, &search(7), 1, &mut out);
        out.live.retain(|t| !t.done);
    }
    assert!(out.live.len() <= MOST_PENDING);
    let entry = message(7, 0x64, &[&string(&[b'n'; 100]), &tlv(0x30, &[])]);
    for _ in 0..5000 {
        parser.data(ToClient, &entry, 1, &mut out);
    }
    let t = &out.live[0];
    assert!(t.memory() <= MOST_NAMES, "{}", t.memory());
    let shown = t.record["responses"].as_array().map(Vec::len);
    assert_eq!(
        (shown, t.facts(COUNT).next()),
        (Some(MOST_RESPONSES), Some(5000))
    );
    let mut long = message(1, 0x63, &[&string(&[0; MOST_MESSAGE - 100])]);
    long.pop();
    parser.data(ToServer, &long, 1, &mut out);
    assert!(parser.memory() < 2 * MOST_MESSAGE, "{}", parser.memory());
}

#[test]
fn datagrams_hold_one_or_more_messages() {
    let w = wanted();
    let found = message(
        3,
        0x64,
        &[
            &string(b""),
            &tlv(0x30, &[&attribute(b"netlogon", &[b"x"])]),
        ],
    );
    let answer = [found, result(3, 0x65, 0, b"")].concat();
    let mut c = Conversation::datagrams(Ports::default());
    c.data(ToServer, &search(3), 1, &w);
    c.data(ToClient, &answer, 1, &w);
    assert_eq!(c.app(), App::Ldap);
    let [t] = &c.transactions.live.iter().collect::<Vec<_>>()[..] else {
        panic!("{} transactions", c.transactions.live.len());
    };
    assert!(t.done && t.facts(COUNT).next() == Some(2));
    c.data(ToClient, b"\x30\x03abc", 1, &w);
    assert_eq!(c.transactions.live[1].events, ["invalid_data"]);
}
