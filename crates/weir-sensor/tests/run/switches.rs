//! Protocols that a configuration turns off.

use weir_packet::build::Frame;

use super::bed::{ANSWER, CLIENT, How, SERVER, Tape, counts, sense_tape, web};

/// A request of HTTP, and a query of DNS over UDP.
fn tape() -> Tape {
    let mut tape = Tape::default();
    web(
        &mut tape,
        40_000,
        "GET /a HTTP/1.1\r\nHost: a\r\n\r\n",
        ANSWER,
    );
    let query = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x01a\x04test\0\0\x01\0\x01";
    let frame = Frame::new().ip4(CLIENT, SERVER);
    tape.push(&frame.udp(40_001, 53).payload(query));
    tape
}

const RULES: &str = r#"
alert http any any -> any any (msg:"parsed"; http.uri; content:"/a"; sid:1;)
alert http any any -> any any (msg:"recognized"; content:"GET /a"; sid:2;)
alert tcp any any -> any any (msg:"bytes"; content:"GET /a"; sid:3;)
alert dns any any -> any any (msg:"query"; dns.query; content:"a.test"; sid:4;)
alert udp any any -> any any (msg:"bytes"; content:"test"; sid:5;)
"#;

/// Rules that alert, and the applications of both flows, with a setting.
fn with(setting: &str) -> (Vec<u64>, [String; 2], usize) {
    let how = How::rules(RULES);
    let how = if setting.is_empty() {
        how
    } else {
        how.set(setting)
    };
    let left = sense_tape(&tape(), &how);
    let found = counts(&left.of("alert")).into_iter().map(|c| c.0).collect();
    let app = |port: u16| {
        let flows = left.of("flow");
        let flow = flows
            .iter()
            .find(|f| f["src_port"] == port)
            .expect("a flow");
        flow["app_proto"].as_str().unwrap_or_default().to_owned()
    };
    for workers in [2, 4] {
        assert_eq!(
            sense_tape(&tape(), &how.clone().workers(workers)).text,
            left.text
        );
    }
    let records = left.of("http").len() + left.of("dns").len();
    (found, [app(40_000), app(40_001)], records)
}

#[test]
fn protocols_are_turned_off_by_name_and_carrier() {
    let apps = |http: &str, dns: &str| [http.to_owned(), dns.to_owned()];
    for (setting, found, names, records) in [
        ("", vec![1, 2, 3, 4, 5], apps("http", "dns"), 2),
        (
            "app-layer.protocols.http.enabled=yes",
            vec![1, 2, 3, 4, 5],
            apps("http", "dns"),
            2,
        ),
        (
            "app-layer.protocols.http.enabled=no",
            vec![3, 4, 5],
            apps("failed", "dns"),
            1,
        ),
        (
            "app-layer.protocols.http.enabled=detection-only",
            vec![2, 3, 4, 5],
            apps("http", "dns"),
            1,
        ),
        (
            "app-layer.protocols.dns.enabled=no",
            vec![1, 2, 3, 5],
            apps("http", "failed"),
            1,
        ),
        (
            "app-layer.protocols.dns.udp.enabled=no",
            vec![1, 2, 3, 5],
            apps("http", "failed"),
            1,
        ),
        (
            "app-layer.protocols.dns.tcp.enabled=no",
            vec![1, 2, 3, 4, 5],
            apps("http", "dns"),
            2,
        ),
    ] {
        assert_eq!(with(setting), (found, names, records), "{setting}");
    }
}
