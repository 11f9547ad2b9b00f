//! Rules about what lies below applications: fragments, headers of IP, and packets that are in no stream.

use weir_packet::build::Frame;

use super::bed::{CLIENT, How, SERVER, START, Tape, sense_tape};
use super::schema::hold;

fn sids(tape: &Tape, rules: &str) -> Vec<u64> {
    let mut sids = sense_tape(tape, &How::rules(rules)).sids();
    sids.sort_unstable();
    sids
}

/// An Ethernet frame with a fragment of a UDP datagram.
fn fragment(offset: u16, more: bool, payload: &[u8]) -> Vec<u8> {
    let mut frame = Frame::new().ip4(CLIENT, SERVER).udp(1, 9).build();
    frame.truncate(34);
    frame[16..18].copy_from_slice(&(20 + payload.len() as u16).to_be_bytes());
    frame[18..20].copy_from_slice(&[0, 242]);
    frame[20..22].copy_from_slice(&((offset / 8) | (u16::from(more) << 13)).to_be_bytes());
    frame[24..26].fill(0);
    let sum = weir_packet::checksum::checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

#[test]
fn a_fragment_is_of_its_protocol_and_has_no_payload_yet() {
    let mut tape = Tape::default();
    let whole = Frame::new()
        .ip4(CLIENT, SERVER)
        .udp(1, 9)
        .payload(b"a needle in the second fragment, and not in the first")
        .build();
    let datagram = &whole[34..];
    for (n, (at, end)) in [(0, 16), (16, datagram.len())].into_iter().enumerate() {
        let frame = fragment(at as u16, end < datagram.len(), &datagram[at..end]);
        tape.frames.push((START + n as u64 * 1_000_000, frame));
    }
    let rules = r#"
alert udp any any -> any any (msg:"teardrop"; fragbits:M; id:242; sid:1;)
alert tcp any any -> any any (msg:"another protocol"; fragbits:M; sid:2;)
alert udp any any -> any 0 (msg:"fragments have no ports"; sid:3;)
alert udp any any -> any any (msg:"large"; dsize:>40; sid:4;)
alert ip any any -> any any (msg:"once, of the whole"; content:"the second fragment"; sid:5;)
"#;
    assert_eq!(sids(&tape, rules), [1, 4, 5]);
}

#[test]
fn identification_and_bits_of_fragments_are_of_ipv4() {
    let mut tape = Tape::default();
    tape.push(&Frame::new().ip6([1; 16], [2; 16]).udp(1, 9).payload(b"x"));
    let rules = r#"
alert ip any any -> any any (msg:"id"; id:0; sid:1;)
alert ip any any -> any any (msg:"bits"; fragbits:!M; sid:2;)
alert udp any any -> any any (msg:"it is there"; dsize:1; sid:3;)
"#;
    assert_eq!(sids(&tape, rules), [3]);
}

/// What comes after a RST is in no stream; a rule on packets sees it all the same.
#[test]
fn packets_behind_the_end_of_a_session_are_inspected() {
    let segment = |up: bool, flags: u8, numbers: (u32, u32), text: &[u8]| {
        let (from, to) = if up {
            ((CLIENT, 4000), (SERVER, 80))
        } else {
            ((SERVER, 80), (CLIENT, 4000))
        };
        Frame::new()
            .ip4(from.0, to.0)
            .tcp(from.1, to.1)
            .flags(flags)
            .numbers(numbers.0, numbers.1)
            .payload(text)
    };
    let rules = r#"
alert tcp any any -> any any (msg:"before"; content:"before"; sid:1;)
alert tcp any any -> any any (msg:"after"; content:"after"; sid:2;)
"#;
    for end in [Frame::RST, Frame::FIN] {
        let mut tape = Tape::default();
        let (push, ack) = (Frame::ACK | Frame::PSH, Frame::ACK);
        tape.push(&segment(true, Frame::SYN, (9, 0), b""));
        tape.push(&segment(false, Frame::SYN | ack, (49, 10), b""));
        tape.push(&segment(true, ack, (10, 50), b""));
        tape.push(&segment(true, push, (10, 50), b"before"));
        tape.push(&segment(false, ack, (50, 16), b""));
        tape.push(&segment(true, end | ack, (16, 50), b""));
        if end == Frame::FIN {
            tape.push(&segment(false, end | ack, (50, 17), b""));
            tape.push(&segment(true, ack, (17, 51), b""));
        }
        tape.push(&segment(true, push, (17, 51), b"after"));
        assert_eq!(sids(&tape, rules), [1, 2]);
    }
}

#[test]
fn packets_of_arp_have_records_where_they_are_asked_for() {
    let arp = |opcode: u8| {
        let mut frame = vec![0xff; 6];
        frame.extend_from_slice(&[2, 0, 0, 0, 0, 1, 8, 6]);
        frame.extend_from_slice(&[0, 1, 8, 0, 6, 4, 0, opcode]);
        frame.extend_from_slice(&[2, 0, 0, 0, 0, 1, 192, 0, 2, 1]);
        frame.extend_from_slice(&[0, 0, 0, 0, 0, 0, 192, 0, 2, 9]);
        frame
    };
    let frames = vec![(START, arp(1)), (START + 1, arp(2)), (START + 2, arp(99))];
    let tape = Tape { frames };
    let rules = r#"alert pkthdr any any -> any any (msg:"odd"; decode-event:arp.unsupported_opcode; sid:1;)"#;
    let how = || {
        How::rules(rules)
            .set("outputs.0.eve-log.types.0.arp.enabled=yes")
            .set("outputs.0.eve-log.types.1.alert.enabled=yes")
            .set("outputs.1.fast.enabled=yes")
    };
    let left = sense_tape(&tape, &how());
    hold(left.eve.iter());
    let [request, reply] = left.of("arp")[..] else {
        panic!("two records: {}", left.text);
    };
    let said = serde_json::json!({
        "hw_type": "ethernet", "proto_type": "ipv4", "opcode": "request",
        "src_mac": "02:00:00:00:00:01", "src_ip": "192.0.2.1",
        "dest_mac": "00:00:00:00:00:00", "dest_ip": "192.0.2.9",
    });
    assert_eq!(request["arp"], said);
    assert_eq!(reply["arp"]["opcode"], "reply");
    assert_eq!(left.sids(), [1], "{}", left.text);
    for workers in [2, 4] {
        assert_eq!(sense_tape(&tape, &how().workers(workers)).text, left.text);
    }
    let quiet = sense_tape(&tape, &How::rules(rules));
    assert!(quiet.of("arp").is_empty());
}
