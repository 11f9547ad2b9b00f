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

/// Records of counters among them: each is about all frames up to one, whoever worked on them.
fn lines(left: &Left) -> Vec<&str> {
    left.text.lines().collect()
}

#[test]
fn any_number_of_workers_writes_the_same_lines() {
    let tape = tape();
    // Counters every second: in the midst of batches' work.
    let how = || How::rules(RULES).set("stats.file-interval=1");
    let one = sense_tape(&tape, &how());
    let count = |sid| one.sids().iter().filter(|s| **s == sid).count();
    assert_eq!(
        (count(1), count(2), count(3), count(4), count(6)),
        (40, 2, 12, 0, 120),
        "{:?}",
        one.summary.rules
    );
    assert!(count(5) > 0 && count(5) < 40, "{}", count(5));
    for workers in [2, 4, 7] {
        let many = sense_tape(&tape, &how().workers(workers));
        for (of_many, of_one) in lines(&many).iter().zip(lines(&one)) {
            assert_eq!(*of_many, of_one, "{workers} workers");
        }
        assert_eq!(lines(&many).len(), lines(&one).len());
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

/// More frames than one batch holds, of few hosts, so that batches wait for each other; and flows that end while others go on.
#[test]
fn batches_wait_for_their_slices() {
    let mut tape = Tape::default();
    let filler = "x".repeat(1300);
    for round in 0..120_u16 {
        // Most of it is between two hosts.
        for client in [1, 1, 1, 1, 2, (round % 90 + 3) as u8] {
            let request = format!(
                "GET /{}/{round} HTTP/1.1\r\nHost: h\r\nX: {filler}\r\n\r\n",
                ["evil", "good", "odd"][usize::from(round % 3)]
            );
            tape.session(
                ([10, 0, client, 1], 2000 + round),
                (SERVER, 80),
                &[request.as_bytes(), ANSWER.as_bytes()],
            );
        }
    }
    // Minutes go by: flows are over, seconds begin in every batch.
    for (at, (time, _)) in tape.frames.iter_mut().enumerate() {
        *time += (at as u64 / 10) * 1_000_000_000;
    }
    let how = || How::rules(RULES).set("stats.file-interval=30");
    let one = sense_tape(&tape, &how());
    assert!(one.text.contains("\"reason\":\"timeout\""));
    assert!(one.of("stats").len() > 2);
    let quiet = sense_tape(&tape, &How::rules(RULES).set("stats.interval=30"));
    assert_eq!(quiet.of("stats").len(), 1, "of a file that is whole");
    for workers in [2, 3, 16] {
        let many = sense_tape(&tape, &how().workers(workers));
        for (of_many, of_one) in lines(&many).iter().zip(lines(&one)) {
            assert_eq!(*of_many, of_one, "{workers} workers");
        }
        assert_eq!(lines(&many).len(), lines(&one).len());
        assert_eq!(many.summary.counters, one.summary.counters);
    }
}

/// What a rule passes of one flow says nothing of another one that ends at the same packet.
#[test]
fn flows_that_end_together_have_nothing_to_do_with_each_other() {
    let rules = r#"
pass http any any -> any any (msg:"not this one"; http.uri; content:"/fine"; sid:1;)
alert http any any -> any any (msg:"asked"; http.uri; content:"/odd"; sid:2;)
"#;
    let mut tape = Tape::default();
    // Requests that never end are decided when their flows do.
    for (client, path) in [(1, "/fine"), (2, "/odd"), (3, "/fine"), (4, "/odd")] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: h\r\n");
        tape.session(
            ([10, 0, client, 1], 2000),
            (SERVER, 80),
            &[request.as_bytes()],
        );
        // Nor do the sessions.
        tape.frames.truncate(tape.frames.len() - 3);
    }
    let one = sense_tape(&tape, &How::rules(rules));
    let many = sense_tape(&tape, &How::rules(rules).workers(4));
    assert_eq!(one.sids(), many.sids());
    assert_eq!(one.sids(), [2, 2]);
}
