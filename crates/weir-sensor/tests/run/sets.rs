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

/// Questions of names, and what rules that change sets say of them.
fn names(rules: &str, set: &[String], workers: usize) -> super::bed::Left {
    let mut tape = Tape::default();
    for (port, host) in [
        (1, "a.com"),
        (2, "b.com"),
        (3, "a.com"),
        (4, "c.com"),
        (5, "b.com"),
    ] {
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nUser-Agent: {host}\r\n\r\n");
        // From hosts of their own, so that they are of different slices.
        let client = ([10, 0, 0, port as u8], 40_000 + port);
        tape.session(
            client,
            ([10, 0, 1, port as u8], 80),
            &[request.as_bytes(), ANSWER.as_bytes()],
        );
    }
    let mut how = How::rules(rules).workers(workers);
    how.beside = vec![("empty", "")];
    how.settings.extend(set.iter().cloned());
    sense_tape(&tape, &how)
}

#[test]
fn rules_change_sets_in_the_order_of_packets() {
    let rules = "\
alert http any any -> any any (msg:\"m\"; http.host; dataset:isset,seen; sid:1;)
alert http any any -> any any (msg:\"m\"; http.host; dataset:set,seen,type string; sid:2;)
alert http any any -> any any (msg:\"m\"; http.host; dataset:isnotset,seen; sid:3;)
alert http any any -> any any (msg:\"m\"; http.host; content:\"b.com\"; dataset:unset,seen; sid:4;)
alert http any any -> any any (msg:\"m\"; http.user_agent; to_md5; dataset:set,sums,type md5; sid:5;)
alert http any any -> any any (msg:\"m\"; http.host; content:\"none\"; dataset:set,never,type string; sid:6;)
alert http any any -> any any (msg:\"m\"; http.host; dataset:isset,never; sid:7;)
";
    // The first rule comes before the one that makes the set: it is refused, as a rule of an unknown set.
    let rules = rules.replacen(
        "dataset:isset,seen;",
        "dataset:isset,seen,type string,load empty;",
        1,
    );
    let how = |workers| {
        How {
            beside: vec![("empty", "")],
            ..How::rules(&rules)
        }
        .workers(workers)
    };
    let mut tape = Tape::default();
    for (port, host) in [
        (1, "a.com"),
        (2, "b.com"),
        (3, "a.com"),
        (4, "c.com"),
        (5, "b.com"),
    ] {
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nUser-Agent: {host}\r\n\r\n");
        let client = ([10, 0, 0, port], 40_000);
        tape.session(
            client,
            ([10, 0, 1, port], 80),
            &[request.as_bytes(), ANSWER.as_bytes()],
        );
    }
    let left = sense_tape(&tape, &how(1));
    // Each of b.com is new, as the rule behind has taken it out; the second a.com is not.
    let expected = [(1, 1), (2, 4), (4, 2), (5, 3)];
    assert_eq!(counts(&left.of("alert")), expected, "{}", left.text);
    for workers in [2, 4] {
        assert_eq!(
            sense_tape(&tape, &how(workers)).text,
            left.text,
            "{workers} workers"
        );
    }
}

/// A rule that only asks may come before the one that changes the set, with the same file; what the set is saved to is said once.
#[test]
fn rules_with_one_name_and_file_share_the_set() {
    let folder = super::bed::Folder::new();
    let data = format!("default-data-dir={}", folder.0.display());
    let rules = "alert http any any -> any any (msg:\"m\"; http.host; dataset:isset,seen,type string,load empty; sid:1;)\n\
        alert http any any -> any any (msg:\"m\"; http.host; dataset:set,seen,type string,load empty,save out.lst; sid:2;)\n\
        alert http any any -> any any (msg:\"m\"; http.host; dataset:isnotset,seen,type string,load empty,save other.lst,memcap 3mb; sid:3;)\n";
    for workers in [1, 4] {
        let _ = std::fs::remove_file(folder.0.join("out.lst"));
        let left = names(rules, std::slice::from_ref(&data), workers);
        let expected = [(1, 2), (2, 3)];
        assert_eq!(counts(&left.of("alert")), expected, "{}", left.text);
        let kept = std::fs::read_to_string(folder.0.join("out.lst")).expect("written");
        assert_eq!(kept.lines().count(), 3);
        assert!(!folder.0.join("other.lst").exists());
    }
}

#[test]
fn a_set_outlives_the_run_in_a_file() {
    let folder = super::bed::Folder::new();
    let data = format!("default-data-dir={}", folder.0.display());
    let rule = "alert http any any -> any any (msg:\"m\"; http.host; dataset:set,seen,type string,state seen.lst; sid:1;)\n\
        alert http any any -> any any (msg:\"m\"; ip.src; dataset:set,ends,type ip,save ends.lst; sid:2;)\n";
    let first = names(rule, std::slice::from_ref(&data), 1);
    // Both ends of five flows.
    assert_eq!(
        counts(&first.of("alert")),
        [(1, 3), (2, 10)],
        "{}",
        first.text
    );
    let read = |name: &str| std::fs::read_to_string(folder.0.join(name)).expect("written");
    assert_eq!(read("seen.lst"), "YS5jb20=\nYi5jb20=\nYy5jb20=\n");
    assert_eq!(read("ends.lst").lines().count(), 10);
    let again = names(rule, std::slice::from_ref(&data), 4);
    assert_eq!(
        counts(&again.of("alert")),
        [(2, 10)],
        "what is kept is not new"
    );
}

#[test]
fn a_set_of_the_configuration_is_there_before_rules() {
    let folder = super::bed::Folder::new();
    std::fs::write(folder.0.join("hosts"), "YS5jb20=\n").expect("written");
    let set = [
        "datasets.hosts.type=string".to_owned(),
        format!("datasets.hosts.load={}", folder.0.join("hosts").display()),
        "datasets.few.type=string".to_owned(),
        // One name and what it takes.
        "datasets.few.memcap=70".to_owned(),
    ];
    let rules = "\
alert http any any -> any any (msg:\"m\"; http.host; dataset:isset,hosts; sid:1;)
alert http any any -> any any (msg:\"m\"; http.host; dataset:set,few; sid:2;)
";
    let left = names(rules, &set, 1);
    assert_eq!(counts(&left.of("alert")), [(1, 2), (2, 1)], "{}", left.text);
    assert_eq!(left.summary.counters["detect.dataset_full"], 3);
}
