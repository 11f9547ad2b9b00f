//! Sets of values that stand in files beside the rules, and what files in JSON say of their members.

use weir_sensor::matcher;

use super::bed::{ANSWER, How, Tape, counts, sense_tape, web};

const HOSTS: &str = r#"{"list": {"bad": [
    {"name": {"host": "www.example.com", "of": "us"}, "year": 2005},
    {"name": {"host": "www.example.com"}, "year": 2006},
    {"name": {"other": "x"}},
    {"name": {"host": ".example.org"}, "year": 1999}]}}"#;
const ADDRESSES: &str =
    "{\"ip\": \"192.168.1.10\", \"note\": \"ours\"}\n\n{\"ip\": \"2001:db8::1\"}\n";

fn how(rules: &str) -> How {
    How {
        beside: vec![("hosts", HOSTS), ("addresses", ADDRESSES)],
        ..How::rules(rules)
    }
}

fn tape() -> Tape {
    let mut tape = Tape::default();
    for (port, host) in [(41_000, "www.example.com"), (41_001, "a.example.org")] {
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        web(&mut tape, port, &request, ANSWER);
    }
    tape
}

#[test]
fn alerts_show_what_a_set_says_of_its_member() {
    let rules = r#"
alert http any any -> any any (msg:"m"; http.host; dataset:isset,hosts,type string,load hosts,format json,array_key list.bad,value_key name.host,context_key host,remove_key; ip.src; dataset:isset,ends,type ip,load addresses,format ndjson,value_key ip,context_key end; sid:1;)
alert http any any -> any any (msg:"m"; http.host; dataset:isset,hosts,type string,match subdomain; sid:2;)
alert http any any -> any any (msg:"m"; http.host; dataset:isnotset,hosts; sid:3;)
"#;
    let left = sense_tape(&tape(), &how(rules));
    let alerts = left.of("alert");
    assert_eq!(counts(&alerts), [(1, 1), (2, 2), (3, 1)], "{}", left.text);
    let context = |sid: u64, nth: usize| {
        let mut own = alerts.iter().filter(|a| a["alert"]["signature_id"] == sid);
        own.nth(nth).expect("an alert")["alert"]["context"].clone()
    };
    let first = context(1, 0);
    assert_eq!(first["host"]["year"], 2005);
    assert_eq!(first["host"]["name"]["of"], "us");
    assert!(first["host"]["name"].get("host").is_none());
    assert_eq!(first["end"]["ip"], "192.168.1.10");
    assert_eq!(first["end"]["note"], "ours");
    assert_eq!(context(2, 1)["host"]["year"], 1999);
    assert!(context(3, 0).is_null());
    for workers in [2, 4] {
        let other = sense_tape(&tape(), &how(rules).workers(workers));
        assert_eq!(other.text, left.text);
    }
    let other = How {
        matcher: matcher::Engine::AhoCorasick,
        ..how(rules)
    };
    assert_eq!(sense_tape(&tape(), &other).text, left.text);
}
