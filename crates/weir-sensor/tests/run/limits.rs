//! What waits is limited, packets of no stream are looked at by themselves, and an inline sensor decides with each packet.

use weir_packet::build::Frame;

use super::bed::{CLIENT, How, Left, SERVER, Tape, counts, sense_tape};
use super::schema::hold;

/// A run, the same for any number of workers.
fn sense(tape: &Tape, how: &How) -> Left {
    let left = sense_tape(tape, how);
    for workers in [2, 4] {
        assert_eq!(
            sense_tape(tape, &how.clone().workers(workers)).text,
            left.text
        );
    }
    hold(left.eve.iter());
    left
}

/// Of FTP, a parser stops where more commands wait than may (`max-tx`); the oldest of them has the event.
#[test]
fn unanswered_commands_are_limited() {
    let mut tape = Tape::default();
    tape.session(
        (CLIENT, 40_000),
        (SERVER, 21),
        &[
            b"",
            b"220 ready\r\n",
            b"USER a\r\n",
            b"331 more\r\n",
            b"PWD\r\nNOOP\r\nSYST\r\n",
            b"257 here\r\n",
            b"QUIT\r\n",
        ],
    );
    let rules = "alert ftp any any -> any any (flow:to_server; app-layer-event:ftp.too_many_transactions; sid:1;)\n";
    let run = |most: u32| {
        let setting = format!("app-layer.protocols.ftp.max-tx={most}");
        sense(&tape, &How::rules(rules).set(&setting))
    };
    let few = run(1);
    // The greeting, and what was said before too many waited.
    assert_eq!(few.of("ftp").len(), 3, "{}", few.text);
    assert_eq!(few.sids(), [1], "{}", few.text);
    assert_eq!(few.of("ftp")[2]["ftp"]["command"], "PWD");
    let many = run(3);
    assert_eq!(many.of("ftp").len(), 6, "{}", many.text);
    assert!(many.sids().is_empty());
}

/// Data of a SYN that asks for no Fast Open is a packet by itself; with the option it is part of the stream.
#[test]
fn data_of_a_syn_is_looked_at() {
    let rules = "alert tcp any any -> any any (content:\"secret\"; sid:1;)\n\
        alert tcp any any -> any any (flags:S; content:\"secret\"; sid:2;)\n\
        alert tcp any any -> any any (flags:S; content:\"nothing\"; sid:3;)\n";
    for (option, expected) in [(false, &[1, 2][..]), (true, &[2])] {
        let mut syn = Frame::new().ip4(CLIENT, SERVER).tcp(40_000, 80);
        syn = syn.flags(Frame::SYN).numbers(100, 0);
        if option {
            syn = syn.tcp_option(34, &[1, 2, 3, 4, 5, 6, 7, 8]);
        }
        let mut tape = Tape::default();
        tape.push(&syn.payload(b"a secret"));
        let left = sense(&tape, &How::rules(rules));
        assert_eq!(left.sids(), expected, "option: {option}");
    }
}

/// Each index of ESP is a flow, and so is what each of two hosts asks the other by ICMP.
#[test]
fn flows_of_esp_and_icmp() {
    let mut tape = Tape::default();
    for spi in [7_u32, 7, 9] {
        let mut payload = spi.to_be_bytes().to_vec();
        payload.extend_from_slice(&[0; 12]);
        tape.push(
            &Frame::new()
                .ip4(CLIENT, SERVER)
                .protocol(50)
                .payload(&payload),
        );
    }
    tape.push(&Frame::new().ip4(CLIENT, SERVER).icmp(8, 0).echo(1, 1));
    tape.push(&Frame::new().ip4(SERVER, CLIENT).icmp(0, 0).echo(1, 1));
    tape.push(&Frame::new().ip4(SERVER, CLIENT).icmp(8, 0).echo(1, 1));
    let left = sense(&tape, &How::rules(""));
    let flows: Vec<_> = left.of("flow").into_iter().collect();
    let packets = |proto: &str| {
        let of = flows.iter().filter(|f| f["proto"] == proto);
        let mut all: Vec<_> = of
            .map(|f| {
                let n = |side: &str| f["flow"][side].as_u64().unwrap();
                (n("pkts_toserver"), n("pkts_toclient"))
            })
            .collect();
        all.sort_unstable();
        all
    };
    assert_eq!(packets("ESP"), [(1, 0), (2, 0)], "{}", left.text);
    assert_eq!(packets("ICMP"), [(1, 0), (1, 1)], "{}", left.text);
}

/// An inline sensor looks at a stream with each packet: what it drops has not passed yet.
#[test]
fn streams_are_looked_at_with_each_packet() {
    let mut tape = Tape::default();
    let said: &[&[u8]] = &[b"nothing known, but a secret"];
    tape.session((CLIENT, 40_000), (SERVER, 4000), said);
    let rules = "drop tcp any any -> any any (content:\"secret\"; sid:1;)\n";
    let passive = sense(&tape, &How::rules(rules));
    assert_eq!(passive.of("alert")[0]["pcap_cnt"], 8, "{}", passive.text);
    let inline = sense_tape(&tape, &How::rules(rules).set("ips.simulate=yes"));
    assert_eq!(inline.of("alert")[0]["pcap_cnt"], 4, "{}", inline.text);
}

/// What a rule of higher rank drops is not passed by another, nor is the rest of its flow; what is passed has that verdict.
#[test]
fn what_is_dropped_is_not_passed() {
    let packet = |text: &[u8]| {
        let frame = Frame::new().ip4(CLIENT, SERVER).udp(40_000, 4000);
        frame.payload(text)
    };
    let mut tape = Tape::default();
    tape.push(&packet(b"bad"));
    tape.push(&packet(b"bad again"));
    tape.push(&packet(b"good"));
    tape.push(&packet(b"bad once more"));
    let rules = "pass udp any any -> any any (sid:1;)\ndrop udp any any -> any any (content:\"bad\"; sid:2;)\n";
    let mut how = How::rules(rules).set("ips.simulate=yes");
    for (n, action) in ["drop", "pass", "reject", "alert"].iter().enumerate() {
        how = how.set(&format!("action-order.{n}={action}"));
    }
    let left = sense_tape(&tape, &how);
    assert_eq!(counts(&left.of("alert")), [(2, 3)], "{}", left.text);
    let rules = "alert udp any any -> any any (content:\"good\"; sid:1;)\npass udp any any -> any any (content:\"good\"; sid:2;)\n";
    let mut how = How::rules(rules)
        .set("ips.simulate=yes")
        .set("outputs.0.eve-log.types.alert.verdict=yes")
        .set("outputs.1.fast.enabled=yes");
    for (n, action) in ["alert", "pass", "drop", "reject"].iter().enumerate() {
        how = how.set(&format!("action-order.{n}={action}"));
    }
    let left = sense_tape(&tape, &how);
    let alerts = left.of("alert");
    assert_eq!(alerts.len(), 1, "{}", left.text);
    assert_eq!(alerts[0]["verdict"]["action"], "pass");
}

/// An alert of a rule that asks for no transaction shows the only one of its flow, if that is wanted.
#[test]
fn transactions_are_guessed() {
    let mut tape = Tape::default();
    super::bed::web(
        &mut tape,
        40_000,
        "GET /secret HTTP/1.1\r\nHost: a\r\n\r\n",
        super::bed::ANSWER,
    );
    let rules = "alert tcp any any -> any any (flow:to_server; content:\"secret\"; sid:1;)\n";
    let plain = sense(&tape, &How::rules(rules));
    assert!(plain.of("alert")[0].get("http").is_none(), "{}", plain.text);
    let how = How::rules(rules).set("detect.guess-applayer-tx=yes");
    let guessed = sense(&tape, &how);
    let alert = guessed.of("alert")[0];
    assert_eq!(alert["http"]["url"], "/secret", "{}", guessed.text);
    assert_eq!(
        (&alert["tx_guessed"], &alert["tx_id"]),
        (&true.into(), &0.into())
    );
    let none = How::rules(rules)
        .set("detect.guess-applayer-tx=yes")
        .set("detect.stream-tx-log-limit=0");
    assert!(sense(&tape, &none).of("alert")[0].get("http").is_none());
}

/// Tags of PPPoE discovery, what is left behind an extension header, and events that nothing raises.
#[test]
fn odd_headers() {
    let rules = "alert pkthdr any any -> any any (decode-event:pppoe.malformed_tags; sid:1;)\n\
        alert pkthdr any any -> any any (decode-event:ipv6.trunc_exthdr; sid:2;)\n\
        alert pkthdr any any -> any any (decode-event:arp.pkt_too_small; sid:3;)\n\
        alert tcp any any -> any any (stream-event:pkt_bad_window_update; sid:4;)\n";
    let mut tape = Tape::default();
    for (length, tag) in [(4_u8, [1_u8, 1, 0, 0]), (4, [1, 1, 0, 9])] {
        let mut bytes = vec![0x11, 9, 0, 0, 0, length];
        bytes.extend_from_slice(&tag);
        tape.push(&Frame::new().ether_type(0x8863).payload(&bytes));
    }
    let six = || Frame::new().ip6([1; 16], [2; 16]);
    let body = [1, 4, 0, 0, 0, 0];
    tape.push(&six().extension(60, &body).protocol(58).payload(&[128]));
    tape.push(
        &six()
            .extension(60, &body)
            .protocol(58)
            .payload(&[128, 0, 0, 0, 0, 0, 0, 0]),
    );
    let left = sense(&tape, &How::rules(rules));
    assert_eq!(counts(&left.of("alert")), [(1, 1), (2, 1)], "{}", left.text);
}
