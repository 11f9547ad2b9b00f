//! Frames by hand.

use super::*;
use crate::app::Ports;
use crate::app::tests::{converse_all, wanted};
use crate::app::transaction::Transaction;
use crate::packet::Direction::ToClient;

/// A frame with these data.
fn framed(control: u8, data: &[u8]) -> Vec<u8> {
    let mut frame = vec![5, 0x64, data.len() as u8 + 5, control, 2, 0, 3, 0];
    let sum = frame::sum(&frame);
    frame.extend_from_slice(&sum.to_le_bytes());
    for block in data.chunks(16) {
        frame.extend_from_slice(block);
        frame.extend_from_slice(&frame::sum(block).to_le_bytes());
    }
    frame
}

/// A message in one frame.
fn message(control: u8, bytes: &[u8]) -> Vec<u8> {
    framed(control, &[&[0xc0][..], bytes].concat())
}

fn facts(t: &Transaction, name: &str) -> Vec<u64> {
    t.facts(name).collect()
}

#[test]
fn the_sum_is_that_of_the_standard() {
    assert_eq!(frame::sum(b"123456789"), 0xea82);
}

#[test]
fn requests_and_answers_name_functions_and_objects() {
    // Select of a relay by its index, of two bytes; the answer repeats it.
    let relay = [12, 1, 0x28, 1, 0, 1, 0, 3, 1, 100, 0, 0, 0, 100, 0, 0, 0, 0];
    let select = message(0xc4, &[&[0xc7, 3][..], &relay, &[60, 2, 6]].concat());
    let status = [1, 2, 0, 0, 2, 1, 1, 1, 30, 1, 0x17, 1, 9, 1, 0, 0, 0, 0];
    let answer = message(0x44, &[&[0xc7, 129, 0x90, 2][..], &status].concat());
    let told = message(0x44, &[0xf0, 130, 0x80, 0]);
    // A test of the link has no data, and a confirmation says nothing else.
    let client = [select, framed(0xc2, &[]), message(0xc4, &[0xc0, 0])].concat();
    let c = converse_all(
        &[(ToServer, &client), (ToClient, &[answer, told].concat())],
        Ports::default(),
    );
    assert_eq!(c.app(), App::Dnp3);
    let [select, answer, told] = &c.transactions.live.iter().collect::<Vec<_>>()[..] else {
        panic!("{} transactions", c.transactions.live.len());
    };
    assert_eq!(facts(select, FUNCTION), [3]);
    assert_eq!(facts(select, OBJECT), [12 << 8 | 1, 60 << 8 | 2]);
    let object = &select.record["application"]["objects"][0];
    assert_eq!(
        (&object["count"], &object["prefix_code"]),
        (&json!(1), &json!(2))
    );
    assert_eq!(select.record["application"]["complete"], true);
    assert_eq!(select.record["control"]["function_code"], 4);
    assert_eq!(
        (&select.record["src"], &select.record["dst"]),
        (&json!(3), &json!(2))
    );
    assert_eq!(facts(answer, OBJECT), [1 << 8 | 2, 30 << 8 | 1]);
    let stop = &answer.record["application"]["objects"][0]["stop"];
    assert_eq!(
        (stop, &answer.record["type"]),
        (&json!(2), &json!("response"))
    );
    let told_of = json!(["need_time", "device_restart", "object_unknown"]);
    assert_eq!(answer.record["iin"]["indicators"], told_of);
    assert_eq!(told.record["type"], "unsolicited_response");
    assert_eq!(told.record["application"]["control"]["uns"], true);
    assert!(
        c.transactions
            .live
            .iter()
            .all(|t| t.done && t.events.is_empty())
    );
}

#[test]
fn fragments_are_put_together() {
    let first = framed(0xc4, &[0x40, 0xc0, 1, 60, 2]);
    let second = framed(0xc4, &[0x01, 6, 60]);
    let third = framed(0xc4, &[0x82, 3, 6]);
    let c = converse_all(
        &[(ToServer, &[first, second, third].concat())],
        Ports::default(),
    );
    let [t] = &c.transactions.live.iter().collect::<Vec<_>>()[..] else {
        panic!("{} transactions", c.transactions.live.len());
    };
    assert_eq!(facts(t, OBJECT), [60 << 8 | 2, 60 << 8 | 3]);
}

#[test]
fn what_is_wrong_is_said() {
    let read = message(0xc4, &[0xc0, 1, 60, 2, 6]);
    let mut link = read.clone();
    link[4] ^= 1;
    let mut data = read.clone();
    data[12] ^= 1;
    let mut short = vec![5, 0x64, 4, 0xc4, 2, 0, 3, 0];
    short.extend_from_slice(&frame::sum(&short).to_le_bytes());
    for (bytes, event, count, failed) in [
        ([&read[..], &link, &read].concat(), "bad_link_crc", 2, true),
        (
            [&read[..], &data, &read].concat(),
            "bad_transport_crc",
            3,
            false,
        ),
        (
            [&read[..], &short, &read].concat(),
            "len_too_small",
            2,
            true,
        ),
        (
            [&read[..], &message(0xc4, &[0xc0])].concat(),
            "malformed",
            2,
            false,
        ),
        (
            [&read[..], &message(0x44, &[0xc0, 129, 0, 0, 99, 1, 7, 1])].concat(),
            "unknown_object",
            2,
            false,
        ),
    ] {
        let c = converse_all(&[(ToServer, &bytes)], Ports::default());
        let live = &c.transactions.live;
        assert_eq!(
            (live.len(), c.transactions.failed),
            (count, failed),
            "{event}"
        );
        assert_eq!(live[1].events, [event]);
    }
}

#[test]
fn a_message_without_an_end_is_given_up() {
    let mut parser = Dnp3::new(&wanted());
    let mut out = Transactions::default();
    parser.data(ToServer, &framed(0xc4, &[0x40, 0xc0, 1]), 1, &mut out);
    for n in 0..200 {
        parser.data(
            ToServer,
            &framed(0xc4, &[&[n & 0x3f][..], &[0; 249]].concat()),
            1,
            &mut out,
        );
        assert!(parser.memory() < 16 * 1024, "{}", parser.memory());
    }
    assert_eq!(out.live.len(), 1);
    assert_eq!(out.live[0].events, ["too_long_reassembly"]);
    let mut long = framed(0xc4, &[0; 250]);
    long.pop();
    parser.data(ToServer, &long, 1, &mut out);
    assert!(parser.memory() < 16 * 1024, "{}", parser.memory());
}
