//! Sequence numbers, acknowledgements and SACK blocks that are moved.

use super::*;

const ACK: u8 = Frame::ACK;
const SYN: u8 = Frame::SYN;
const FIRST: u32 = 1 << 31;

fn numbers(frame: &[u8]) -> (u32, u32) {
    let at = parse(frame).expect("well formed").l4.expect("TCP").at;
    let word = |at: usize| u32::from_be_bytes(frame[at..at + 4].try_into().expect("four bytes"));
    (word(at + 4), word(at + 8))
}

fn blocks(edges: &[u32]) -> Vec<u8> {
    edges.iter().flat_map(|edge| edge.to_be_bytes()).collect()
}

#[test]
fn each_side_is_moved_by_its_own_offset() {
    let mut bench = Bench::new(
        "add-stateful tcp-syn shuffle tcp-seq-num shuffle tcp-ack-num shuffle tcp-opt-sack",
    );
    let (seq, ack) = (bench.draw(FIRST), bench.draw(FIRST + 1));
    let out = |flags, a: u32, b: u32| tcp(CLIENT, SERVER, flags).numbers(a, b);
    let back = |flags, a: u32, b: u32| tcp(SERVER, CLIENT, flags).numbers(a, b);
    // A SYN acknowledges nothing: the field is left alone.
    assert_eq!(
        numbers(&bench.pass(&out(SYN, 100, 55).build())),
        (seq.wrapping_add(100), 55)
    );
    let synack = bench.pass(&back(SYN | ACK, 9000, seq.wrapping_add(101)).build());
    assert_eq!(numbers(&synack), (ack.wrapping_add(9000), 101));
    let third = bench.pass(
        &out(ACK, 101, ack.wrapping_add(9001))
            .payload(b"GET")
            .build(),
    );
    assert_eq!(numbers(&third), (seq.wrapping_add(101), 9001));
    let far = bench.pass(&back(ACK, 9001, seq.wrapping_add(104)).build());
    assert_eq!(numbers(&far), (ack.wrapping_add(9001), 104));
    // Both wrap.
    let (seq, ack) = (bench.draw(FIRST), bench.draw(FIRST + 1));
    let other = (CLIENT.0, 4001);
    let syn = tcp(other, SERVER, SYN).numbers(u32::MAX, 0);
    assert_eq!(numbers(&bench.pass(&syn.build())), (seq.wrapping_sub(1), 0));
    let answer = tcp(SERVER, other, SYN | ACK).numbers(u32::MAX - 3, seq);
    assert_eq!(
        numbers(&bench.pass(&answer.build())),
        (ack.wrapping_sub(4), 0)
    );
}

#[test]
fn sack_blocks_move_as_the_acknowledgement_does() {
    let mut bench = Bench::new("add-stateful tcp-syn shuffle tcp-seq-num shuffle tcp-ack-num");
    let (seq, ack) = (bench.draw(FIRST), bench.draw(FIRST + 1));
    let sent = bench.pass(&tcp(CLIENT, SERVER, SYN).build());
    bench.pass(&answer_to(&sent).build());
    let frame = tcp(SERVER, CLIENT, ACK)
        .numbers(5001, seq.wrapping_add(1001))
        .tcp_bytes(&[1, 1])
        .tcp_option(5, &blocks(&[1, 2, 3, 4].map(|edge| seq.wrapping_add(edge))))
        .tcp_option(8, &[7; 8])
        .payload(b"more");
    let received = bench.pass(&frame.build());
    let mut expected = vec![1, 1, 5, 18];
    expected.extend(blocks(&[1, 2, 3, 4]));
    expected.extend([8, 10, 7, 7, 7, 7, 7, 7, 7, 7, 0, 0]);
    assert_eq!(tcp_options(&received), expected);
    // Forward, by the other offset; two options of the kind; at an odd place.
    let frame = tcp(CLIENT, SERVER, ACK)
        .numbers(1001, ack.wrapping_add(5005))
        .tcp_bytes(&[1])
        .tcp_option(5, &blocks(&[ack, ack.wrapping_add(9)]))
        .tcp_option(5, &blocks(&[ack, ack]));
    let mut expected = vec![1, 5, 10];
    expected.extend(blocks(&[0, 9]));
    expected.extend([5, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    expected.resize(24, 0);
    assert_eq!(tcp_options(&bench.pass(&frame.build())), expected);
}

#[test]
fn what_is_no_sack_block_stays() {
    let mut bench = Bench::new("add-stateful tcp-syn shuffle tcp-seq-num shuffle tcp-ack-num");
    let ack = bench.draw(FIRST + 1);
    let sent = bench.pass(&tcp(CLIENT, SERVER, SYN).build());
    bench.pass(&answer_to(&sent).build());
    for (flags, kind, value) in [
        (ACK, 5, vec![1; 7]),
        (ACK, 5, vec![1; 12]),
        (ACK, 5, vec![]),
        (ACK, 6, vec![1; 8]),
        (SYN, 5, vec![1; 8]),
    ] {
        let frame = tcp(CLIENT, SERVER, flags)
            .numbers(1001, ack.wrapping_add(5001))
            .tcp_option(kind, &value)
            .build();
        assert_eq!(tcp_options(&bench.pass(&frame)), tcp_options(&frame));
    }
}

#[test]
fn rules_rewrite_the_options_as_they_are_after_that() {
    let mut bench = Bench::new(
        "add-stateful tcp-syn shuffle tcp-seq-num mod tcp-opt-ts x0102030405060708
         tcp-opt-sack strip tcp-opt-mss",
    );
    let seq = bench.draw(FIRST);
    bench.pass(&tcp(CLIENT, SERVER, SYN).build());
    // Values in place.
    let frame = tcp(SERVER, CLIENT, ACK)
        .tcp_option(5, &blocks(&[seq.wrapping_add(1), seq.wrapping_add(2)]))
        .tcp_option(8, &[0; 8]);
    let expected = [
        &[5, 10][..],
        &blocks(&[1, 2]),
        &[8, 10, 1, 2, 3, 4, 5, 6, 7, 8],
    ]
    .concat();
    assert_eq!(tcp_options(&bench.pass(&frame.clone().build())), expected);
    // Written anew.
    let frame = tcp(SERVER, CLIENT, ACK)
        .tcp_option(2, &[5, 180])
        .tcp_option(5, &blocks(&[seq.wrapping_add(1), seq.wrapping_add(2)]));
    let expected = [&[5, 10][..], &blocks(&[1, 2]), &[0, 0]].concat();
    assert_eq!(tcp_options(&bench.pass(&frame.build())), expected);
}

#[test]
fn numbers_and_addresses_together_over_ipv6() {
    let mut bench = Bench::new(
        "add-stateful tcp-syn map ip6-saddr 2001:db8:900::1 shuffle tcp-sport shuffle tcp-seq-num",
    );
    let (port, seq) = (
        49_152 + (bench.draw(FIRST + 1) % 16_384) as u16,
        bench.draw(FIRST + 2),
    );
    let out = Frame::new()
        .ip6(address6(1), address6(7))
        .tcp(9, 80)
        .flags(SYN)
        .numbers(5, 0);
    assert_eq!(numbers(&bench.pass(&out.build())), (seq.wrapping_add(5), 0));
    let back = Frame::new()
        .ip6(address6(7), OUTSIDE6)
        .tcp(80, port)
        .flags(ACK)
        .numbers(1, seq.wrapping_add(6))
        .tcp_option(5, &blocks(&[seq, seq.wrapping_add(1)]))
        .payload(b"odd");
    let received = bench.pass(&back.build());
    assert_eq!(numbers(&received), (1, 6));
    assert_eq!(received[38..54], address6(1));
    assert_eq!(
        tcp_options(&received)[..10],
        [5, 10, 0, 0, 0, 0, 0, 0, 0, 1]
    );
}
