//! Packets after alerts that rules want logged: of sessions and hosts, by number, bytes and time.

use weir_packet::build::Frame;

use super::bed::{CLIENT, How, Left, SERVER, START, Tape, sense_tape};
use super::schema::hold;

const OTHER: [u8; 4] = [192, 168, 1, 11];

/// Datagrams, half a second apart: six of one flow to the server and back, and four from another client.
fn tape() -> Tape {
    let mut tape = Tape::default();
    let mut push = |from: ([u8; 4], u16), to: ([u8; 4], u16), text: &[u8]| {
        let frame = Frame::new().ip4(from.0, to.0).udp(from.1, to.1);
        let time = START + tape.frames.len() as u64 * 500_000_000;
        tape.frames.push((time, frame.payload(text).build()));
    };
    let (client, server, other) = ((CLIENT, 1000), (SERVER, 4000), (OTHER, 1000));
    push(other, server, b"first");
    push(client, server, b"begin");
    for _ in 0..2 {
        push(server, client, b"back");
        push(other, server, b"also");
        push(client, server, b"more");
    }
    push(client, server, b"last");
    push(other, server, b"last");
    tape
}

fn sense(tag: &str) -> Left {
    let rule =
        format!("alert udp any any -> any any (msg:\"m\"; content:\"begin\"; {tag} sid:1;)\n");
    let how = How::rules(&rule)
        .set("outputs.0.eve-log.enabled=yes")
        .set("outputs.0.eve-log.types.0.alert.tagged-packets=yes")
        .set("outputs.1.fast.enabled=yes");
    let left = sense_tape(&tape(), &how);
    hold(left.eve.iter());
    for workers in [2, 4] {
        let other = sense_tape(&tape(), &how.clone().workers(workers));
        assert_eq!(other.text, left.text, "{workers} workers");
    }
    left
}

/// Numbers of the packets that were logged.
fn logged(tag: &str) -> Vec<u64> {
    let left = sense(tag);
    assert_eq!(left.sids(), [1]);
    let packets = left.of("packet");
    packets
        .iter()
        .map(|p| p["pcap_cnt"].as_u64().expect("a number"))
        .collect()
}

#[test]
fn sessions_and_hosts_are_tagged() {
    assert_eq!(logged("tag:session;"), [3, 5, 6, 8, 9]);
    assert_eq!(logged("tag:session,3,packets;"), [3, 5]);
    assert_eq!(logged("tag:host,4,packets,src;"), [3, 5, 6]);
    assert_eq!(logged("tag:host;"), [3, 4, 5, 6, 7, 8, 9, 10]);
    assert_eq!(logged("tag:host,3,packets,dst;"), [3, 4]);
    // Of two tags the longer one holds, and a packet has one record.
    assert_eq!(
        logged("tag:host,2,packets,src; tag:session;"),
        [3, 5, 6, 8, 9]
    );
    // Two seconds behind the alert, that one included.
    assert_eq!(logged("tag:session,1,seconds;"), [3, 5]);
    // 47 bytes are those of the alert, 46 each of the next ones.
    assert_eq!(logged("tag:session,140,bytes;"), [3, 5]);
    assert_eq!(logged(""), [0_u64; 0]);
}

#[test]
fn records_of_packets_are_those_of_the_flow() {
    let left = sense("tag:session,2,packets;");
    let packets = left.of("packet");
    let (alert, packet) = (left.of("alert")[0], packets[0]);
    assert_eq!(packet["flow_id"], alert["flow_id"]);
    assert_eq!(
        (&packet["src_ip"], &packet["dest_ip"]),
        (&alert["dest_ip"], &alert["src_ip"])
    );
    assert_eq!(packet["packet_info"]["linktype"], 1);
    assert!(packet["packet"].as_str().is_some_and(|p| p.len() > 40));
}

#[test]
fn nothing_is_logged_unless_it_is_asked_for() {
    let rule = "alert udp any any -> any any (msg:\"m\"; content:\"begin\"; tag:session; sid:1;)\n";
    let left = sense_tape(&tape(), &How::rules(rule));
    assert_eq!((left.sids().len(), left.of("packet").len()), (1, 0));
}
