//! `pass`: what a rule of that kind takes from the rules behind it, by what it matched on.

use weir_packet::build::Frame;

use super::bed::{ANSWER, How, SERVER, Tape, sense_tape};

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").into_bytes()
}

/// Rules and traffic; the paths, commands and datagrams that alert have a number in them.
fn sids(rules: &str, tape: &Tape) -> Vec<(u64, String)> {
    let one = sense_tape(tape, &How::rules(rules));
    let many = sense_tape(tape, &How::rules(rules).workers(4));
    assert_eq!(one.sids(), many.sids());
    let alerts = one.of("alert").into_iter().map(|r| {
        let sid = r["alert"]["signature_id"].as_u64().expect("a number");
        (sid, r["src_ip"].as_str().expect("an address").to_owned())
    });
    alerts.collect()
}

fn of(sid: u64, address: &str) -> (u64, String) {
    (sid, address.to_owned())
}

#[test]
fn one_that_matches_a_datagram_takes_that_datagram() {
    // The alert is written first and has a higher priority: `pass` goes before it all the same.
    let rules = r#"
alert udp any any -> any 4001 (msg:"evil"; content:"evil"; priority:1; sid:2;)
pass udp any any -> any 4001 (msg:"good"; content:"good"; sid:1;)
"#;
    let mut tape = Tape::default();
    for text in ["evil", "good evil", "evil", "good"] {
        let frame = Frame::new().ip4([10, 0, 0, 1], SERVER).udp(4000, 4001);
        tape.push(&frame.payload(text.as_bytes()));
    }
    assert_eq!(sids(rules, &tape), [of(2, "10.0.0.1"), of(2, "10.0.0.1")]);
}

#[test]
fn one_that_matches_a_transaction_takes_the_rest_of_its_flow() {
    let rules = r#"
pass http any any -> any any (msg:"fine"; http.uri; content:"/fine"; sid:1;)
alert http any any -> any any (msg:"odd"; http.uri; content:"/odd"; sid:2;)
alert http any any -> any any (msg:"hello"; file.data; content:"hello"; sid:3;)
"#;
    let mut tape = Tape::default();
    let [odd, fine] = ["/odd", "/fine"].map(get);
    let answer = ANSWER.as_bytes();
    // Before it the flow alerts, its own answer and what follows it do not.
    let said: [&[u8]; 6] = [&odd, answer, &fine, answer, &odd, answer];
    tape.session(([10, 0, 0, 2], 2000), (SERVER, 80), &said);
    // Another flow between the same hosts has nothing to do with it.
    tape.session(([10, 0, 0, 2], 2001), (SERVER, 80), &[&odd, answer]);
    let server = "198.51.100.80";
    assert_eq!(
        sids(rules, &tape),
        [
            of(2, "10.0.0.2"),
            of(3, server),
            of(2, "10.0.0.2"),
            of(3, server)
        ]
    );
}

#[test]
fn one_that_matches_a_stream_takes_the_rest_of_its_flow() {
    let rules = r#"
pass tcp any any -> any 7000 (msg:"trusted"; flow:established,to_server; content:"LOGIN trusted"; sid:1;)
alert tcp any any -> any 7000 (msg:"command"; flow:established,to_server; content:"EVIL"; sid:2;)
alert tcp any 7000 -> any any (msg:"secret"; flow:established,to_client; content:"SECRET"; sid:3;)
"#;
    let mut tape = Tape::default();
    let said: [&[u8]; 4] = [b"LOGIN trusted\n", b"ok\n", b"EVIL\n", b"SECRET\n"];
    tape.session(([10, 0, 0, 3], 2000), (SERVER, 7000), &said);
    let said: [&[u8]; 4] = [b"LOGIN other\n", b"ok\n", b"EVIL\n", b"SECRET\n"];
    tape.session(([10, 0, 0, 4], 2000), (SERVER, 7000), &said);
    assert_eq!(
        sids(rules, &tape),
        [of(2, "10.0.0.4"), of(3, "198.51.100.80")]
    );
}

#[test]
fn one_about_addresses_takes_the_flows_that_they_begin() {
    let rules = r#"
pass ip 10.9.9.9 any -> any any (msg:"scanner"; sid:1;)
alert udp any any -> any 4001 (msg:"evil"; content:"evil"; sid:2;)
alert http any any -> any any (msg:"odd"; http.uri; content:"/odd"; sid:3;)
"#;
    let mut tape = Tape::default();
    let odd = get("/odd");
    for client in [[10, 9, 9, 9], [10, 9, 9, 8]] {
        let frame = Frame::new().ip4(client, SERVER).udp(4000, 4001);
        tape.push(&frame.payload(b"evil"));
        tape.session((client, 2000), (SERVER, 80), &[&odd, ANSWER.as_bytes()]);
    }
    assert_eq!(sids(rules, &tape), [of(2, "10.9.9.8"), of(3, "10.9.9.8")]);
}
