//! Every frame ends in one counter, and what was lost is said.

use serde_json::Value;
use std::fs;

use weir_packet::build::Frame;

use super::bed::{ANSWER, CLIENT, Folder, How, SERVER, Tape, sense, sense_tape, web};

fn mixed() -> Tape {
    let mut tape = Tape::default();
    web(&mut tape, 1, "GET / HTTP/1.0\r\n\r\n", ANSWER);
    tape.push(&Frame::new().ether_type(0x88cc).payload(&[0; 46]));
    let request = [&[0, 1, 8, 0, 6, 4, 0, 1][..], &[0; 38]].concat();
    tape.push(&Frame::new().ether_type(0x0806).payload(&request));
    tape.push(
        &Frame::new()
            .ip4(CLIENT, SERVER)
            .id(9)
            .fragment(0, true)
            .protocol(17)
            .payload(&[0, 1, 0, 2, 0, 24, 0, 0]),
    );
    tape.push(
        &Frame::new()
            .ip4(CLIENT, SERVER)
            .id(9)
            .fragment(1, false)
            .protocol(17)
            .payload(b"the end of it..."),
    );
    tape.push(
        &Frame::new()
            .ip4(CLIENT, SERVER)
            .id(10)
            .fragment(4, true)
            .protocol(17)
            .payload(&[0; 16]),
    );
    tape.push(&Frame::new().ip4(CLIENT, SERVER).udp(7, 9).payload(b"hello"));
    // Cut inside its IP header.
    let whole = Frame::new().ip4(CLIENT, SERVER).udp(7, 9).build();
    tape.frames
        .push((super::bed::START + 1, whole[..20].to_vec()));
    tape.frames
        .push((super::bed::START + 2, whole[..5].to_vec()));
    tape
}

#[test]
fn every_frame_is_in_one_counter() {
    for workers in [1, 3] {
        let how = How::rules("")
            .workers(workers)
            .set("outputs.0.eve-log.types.stats.extended=yes")
            .set("outputs.1.fast.enabled=yes");
        let left = sense_tape(&mixed(), &how);
        let ledger = left.summary.ledger;
        assert_eq!(ledger.read, mixed().frames.len() as u64);
        assert_eq!(ledger.unaccounted(), 0, "{ledger:?}");
        assert_eq!(
            (
                ledger.not_ip,
                ledger.invalid,
                ledger.fragments,
                ledger.filtered
            ),
            (2, 2, 3, 0),
            "{ledger:?}"
        );
        let stats = left.of("stats");
        let eve = &stats[stats.len() - 1]["stats"]["ledger"];
        assert_eq!(eve["read"].as_u64(), Some(ledger.read));
        assert_eq!(eve["inspected"].as_u64(), Some(ledger.inspected));
    }
}

#[test]
fn what_a_filter_leaves_out_is_counted() {
    let how = How {
        filter: Some("udp and not ip[6:2] & 0x3fff != 0"),
        ..How::rules("alert udp any any -> any any (msg:\"u\"; content:\"hello\"; sid:1;)\n")
    };
    let left = sense_tape(&mixed(), &how);
    assert_eq!(left.sids(), [1]);
    assert_eq!(left.summary.ledger.inspected, 1);
    assert_eq!(left.summary.ledger.unaccounted(), 0);
}

#[test]
fn a_capture_that_is_cut_is_read_up_to_there_and_said() {
    let folder = Folder::new();
    let mut tape = Tape::default();
    for _ in 0..2 {
        tape.push(&Frame::new().ip4(CLIENT, SERVER).udp(7, 9).payload(b"hello"));
    }
    let bytes = tape.pcap();
    let (cut, none) = (folder.0.join("a.pcap"), folder.0.join("b.pcap"));
    fs::write(&cut, &bytes[..bytes.len() - 3]).expect("written");
    fs::write(&none, b"this is no capture").expect("written");
    let left = sense(
        &[cut.clone(), none],
        &How::rules("alert udp any any -> any any (msg:\"u\"; content:\"hello\"; sid:1;)\n"),
    );
    assert_eq!(left.sids(), [1]);
    assert_eq!((left.summary.problems.len(), left.summary.partial), (2, 1));
    assert_eq!(left.summary.problems[0].0, cut);
    assert!(
        left.summary.problems[0].1.contains("cut off"),
        "{:?}",
        left.summary.problems
    );
}

#[test]
fn counters_that_are_zero_may_be_left_out() {
    let with = |setting: &str| {
        let how = How::rules("")
            .set("outputs.0.eve-log.types.stats.extended=yes")
            .set(setting)
            .set("outputs.1.fast.enabled=yes");
        let left = sense_tape(&mixed(), &how);
        let stats = left.of("stats");
        stats[stats.len() - 1]["stats"].clone()
    };
    let usual = with("outputs.0.eve-log.types.stats.null-values=yes");
    assert_eq!(
        (&usual["decoder"]["mpls"], &usual["ips"]),
        (&0.into(), &Value::Null)
    );
    let short = with("outputs.0.eve-log.types.stats.null-values=no");
    assert_eq!(short["decoder"]["mpls"], Value::Null);
    assert_eq!(short["decoder"]["udp"], usual["decoder"]["udp"]);
    assert!(short["decoder"]["udp"].as_u64() > Some(0));
}
