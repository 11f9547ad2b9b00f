//! Flows that are let go (`stream.bypass`, `encryption-handling: bypass`): how far they are inspected, and how they are counted.

use super::bed::{ANSWER, CLIENT, How, Left, SERVER, Tape, sense_tape};
use super::schema::hold;

/// A session of the web with two requests. The first answer is the sixth frame and is acknowledged by the seventh.
fn tape() -> Tape {
    let mut tape = Tape::default();
    let ask = |path: &str| format!("GET /{path} HTTP/1.1\r\nHost: h\r\n\r\n").into_bytes();
    let (first, second) = (ask("first"), ask("second"));
    let answer = ANSWER.as_bytes();
    tape.session(
        (CLIENT, 2000),
        (SERVER, 80),
        &[&first, answer, &second, answer],
    );
    tape
}

const RULES: &str = "alert http any any -> any any (http.uri; content:\"/first\"; sid:1;)\n\
    alert tcp-pkt any any -> any 80 (content:\"/second\"; sid:2;)\n";

fn run(how: How) -> Left {
    let mut how = how.set("outputs.1.fast.enabled=yes");
    for kind in ["alert", "flow", "http", "stats"] {
        how = how.set(&format!("outputs.0.eve-log.types.{kind}.enabled=yes"));
    }
    let left = sense_tape(&tape(), &how);
    hold(left.eve.iter());
    left
}

fn count(left: &Left, name: &str) -> u64 {
    left.summary.counters[name]
}

#[test]
fn behind_its_depth_a_flow_is_let_go() {
    let how = How::rules(RULES).set("stream.reassembly.depth=40");
    // Without that it is followed no further, and its packets are inspected.
    let left = run(how.clone());
    assert_eq!(left.sids(), [1, 2]);
    assert_eq!(count(&left, "flow_bypassed.local_pkts"), 0);
    assert_eq!(left.of("flow")[0]["flow"]["state"], "closed");

    let mut texts = Vec::new();
    for workers in [1, 2, 4] {
        let left = run(how.clone().set("stream.bypass=yes").workers(workers));
        // What was read until then is decided and told.
        assert_eq!(left.sids(), [1]);
        assert_eq!(left.of("http").len(), 1);
        assert_eq!(left.of("flow")[0]["flow"]["state"], "bypassed");
        let frames = tape().frames;
        let rest = &frames[6..];
        assert_eq!(count(&left, "flow_bypassed.local_pkts"), rest.len() as u64);
        let bytes: usize = rest.iter().map(|(_, frame)| frame.len()).sum();
        assert_eq!(count(&left, "flow_bypassed.local_bytes"), bytes as u64);
        texts.push(left.text);
    }
    assert!(texts.iter().all(|text| *text == texts[0]));
}

#[test]
fn a_rule_lets_a_flow_go() {
    let rules = RULES.replace("sid:1;", "bypass; sid:1;");
    assert_ne!(rules, RULES);
    let mut texts = Vec::new();
    for workers in [1, 2, 4] {
        let left = run(How::rules(&rules).workers(workers));
        assert_eq!(left.sids(), [1]);
        let flow = &left.of("flow")[0]["flow"];
        assert_eq!(
            (&flow["state"], &flow["bypass"]),
            (&"bypassed".into(), &"local".into())
        );
        // Its packets are counted all the same.
        let counted = ["pkts_toserver", "pkts_toclient"].map(|name| flow[name].as_u64());
        let counted: u64 = counted.into_iter().flatten().sum();
        assert_eq!(counted, tape().frames.len() as u64);
        assert!(count(&left, "flow_bypassed.local_pkts") > 0);
        assert_eq!(count(&left, "flow_bypassed.closed"), 1);
        texts.push(left.text);
    }
    assert!(texts.iter().all(|text| *text == texts[0]));
}
