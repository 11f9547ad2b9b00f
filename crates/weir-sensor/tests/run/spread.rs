//! Results are the same for any number of workers and for both engines; with thresholds and bits that reach over flows.

use weir_sensor::matcher;

use super::bed::{ANSWER, How, Left, SERVER, Tape, sense_tape};

fn tape() -> Tape {
    let mut tape = Tape::default();
    // Many clients, in turn, so that packets of different workers lie between each other.
    for round in 0..6_u8 {
        for client in 0..20_u8 {
            let request = format!(
                "GET /{}/{round} HTTP/1.1\r\nHost: h{client}.example.org\r\n\r\n",
                ["evil", "good", "odd"][usize::from((client + round) % 3)]
            );
            tape.session(
                ([10, 0, client, 1], 2000 + u16::from(round)),
                (SERVER, 80),
                &[request.as_bytes(), ANSWER.as_bytes()],
            );
        }
    }
    tape
}

const RULES: &str = r#"
alert http any any -> any any (msg:"evil"; http.uri; content:"/evil/"; sid:1;)
alert http any any -> any any (msg:"limited"; http.uri; content:"/odd/"; threshold:type limit, track by_dst, count 2, seconds 60; sid:2;)
alert http any any -> any any (msg:"every tenth"; http.method; content:"GET"; threshold:type threshold, track by_dst, count 10, seconds 3600; sid:3;)
alert http any any -> any any (msg:"sets"; http.uri; content:"/good/"; xbits:set,seen,track ip_dst,expire 100; noalert; sid:4;)
alert http any any -> any any (msg:"asks"; http.uri; content:"/evil/"; xbits:isset,seen,track ip_dst; sid:5;)
alert tcp any 80 -> any any (msg:"answer"; flow:established,to_client; content:"hello"; sid:6;)
"#;

fn lines(left: &Left) -> Vec<&str> {
    // Counters differ in what the number of workers decides.
    left.text
        .lines()
        .filter(|l| !l.contains("\"event_type\":\"stats\""))
        .collect()
}

#[test]
fn any_number_of_workers_writes_the_same_lines() {
    let tape = tape();
    let one = sense_tape(&tape, &How::rules(RULES));
    let count = |sid| one.sids().iter().filter(|s| **s == sid).count();
    assert_eq!(
        (count(1), count(2), count(3), count(4), count(6)),
        (40, 2, 12, 0, 120),
        "{:?}",
        one.summary.rules
    );
    assert!(count(5) > 0 && count(5) < 40, "{}", count(5));
    for workers in [2, 4, 7] {
        let many = sense_tape(&tape, &How::rules(RULES).workers(workers));
        assert_eq!(lines(&many), lines(&one), "{workers} workers");
        assert_eq!(many.fast, one.fast);
        assert_eq!(many.summary.ledger, one.summary.ledger);
    }
}

#[test]
fn both_engines_write_the_same_lines() {
    let tape = tape();
    let one = sense_tape(&tape, &How::rules(RULES));
    let other = sense_tape(
        &tape,
        &How {
            matcher: matcher::Engine::AhoCorasick,
            ..How::rules(RULES)
        },
    );
    assert_eq!(lines(&one), lines(&other));
}
