//! Rules about RFB, and its record: the handshake of a session is one transaction.

use weir_sensor::matcher;

use super::bed::{CLIENT, How, SERVER, Tape, counts, sense_tape};

/// A server that asks for a password, which is right.
fn session() -> Tape {
    let mut tape = Tape::default();
    // Clients speak first on the tape; this one has nothing to say yet.
    let said: &[&[u8]] = &[
        b"",
        b"RFB 003.008\n",
        b"RFB 003.008\n",
        b"\x01\x02",
        b"\x02",
        &[0xab; 16],
        &[0xcd; 16],
        b"\0\0\0\0",
        b"\x01",
        b"\x03\x20\x02\x58\x20\x18\0\x01\0\xff\0\xff\0\xff\x10\x08\0\0\0\0\0\0\0\x04desk",
    ];
    tape.session((CLIENT, 40_000), (SERVER, 5900), said);
    tape
}

const RULES: &str = r#"
alert rfb any any -> any any (msg:"result"; rfb.secresult:ok; sid:1;)
alert rfb any any -> any any (msg:"type"; rfb.sectype:2; sid:2;)
alert rfb any any -> any any (msg:"name"; rfb.name; content:"desk"; bsize:4; sid:3;)
alert rfb any any -> any any (msg:"another result"; rfb.secresult:!0; sid:20;)
alert rfb any any -> any any (msg:"another type"; rfb.sectype:>2; sid:21;)
alert rfb any any -> any any (msg:"another name"; rfb.name; content:"other"; sid:22;)
alert rfb any any -> any any (msg:"event"; app-layer-event:rfb.malformed_message; sid:23;)
"#;

#[test]
fn sessions_are_told_by_security_and_name() {
    let tape = session();
    let how = || How::rules(RULES);
    let left = sense_tape(&tape, &how());
    let once = [(1, 1), (2, 1), (3, 1)];
    assert_eq!(counts(&left.of("alert")), once, "{}", left.text);
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
fn a_handshake_is_one_record() {
    let left = sense_tape(&session(), &How::rules(""));
    let [record] = left.of("rfb")[..] else {
        panic!("one record: {}", left.text);
    };
    let rfb = &record["rfb"];
    assert_eq!(rfb["server_protocol_version"]["minor"], "008");
    assert_eq!(rfb["authentication"]["vnc"]["challenge"], "ab".repeat(16));
    assert_eq!(rfb["framebuffer"]["height"], 600);
    assert_eq!(record["dest_port"], 5900);
}
