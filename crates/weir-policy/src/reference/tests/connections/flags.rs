//! Flags of TCP that no stack sends together.

use super::*;

const FIN: u8 = Frame::FIN;
const SYN: u8 = Frame::SYN;
const RST: u8 = Frame::RST;
const ACK: u8 = Frame::ACK;
const URG: u8 = 0x20;
const PSH_ECE_CWR: u8 = 0x08 | 0x40 | 0x80;

/// What `tcp_valid_flags` of Linux' nf_conntrack_proto_tcp.c lets pass.
const SENT: [u8; 9] = [
    SYN,
    SYN | URG,
    SYN | ACK,
    RST,
    RST | ACK,
    FIN | ACK,
    FIN | ACK | URG,
    ACK,
    ACK | URG,
];

#[test]
fn combinations_that_no_stack_sends_open_nothing_and_are_dropped() {
    for flags in 0..=u8::MAX {
        let mut bench = Bench::new("add-stateful ip-saddr 10.0.0.0/8 accept");
        let packet = tcp(CLIENT, SERVER, flags).build();
        let outcome = bench.run(&packet);
        if SENT.contains(&(flags & !PSH_ECE_CWR)) {
            assert_eq!(outcome.verdict, Verdict::Pass, "{flags:#x}");
        } else {
            assert_eq!(outcome.reasons, [Reason::TcpFlags], "{flags:#x}");
            assert_eq!(outcome.matched, [0; 0]);
            assert_eq!(outcome.connection, None);
            // Nothing is there for an answer.
            let answer = tcp(SERVER, CLIENT, ACK).build();
            assert_eq!(bench.run(&answer).connection, None);
        }
    }
}

#[test]
fn they_change_no_connection_that_is_there() {
    for flags in (0..=u8::MAX).filter(|flags| !SENT.contains(&(flags & !PSH_ECE_CWR))) {
        let mut bench = Bench::new(
            "timeout tcp-syn-sent 10s
             timeout tcp-closed 1s
             timeout tcp-fin 1s
             add-stateful ip-saddr 10.0.0.0/8 accept",
        );
        bench.pass(&tcp(CLIENT, SERVER, SYN).build());
        bench.wait(5.0);
        let forged = tcp(SERVER, CLIENT, flags).build();
        assert_eq!(bench.drop(&forged), Reason::TcpFlags);
        bench.wait(5.0);
        let answer = tcp(SERVER, CLIENT, SYN | ACK).numbers(5000, 1001).build();
        assert_eq!(bench.run(&answer).connection, Some(Part::Reverse));
    }
}

#[test]
fn without_stateful_rules_they_pass() {
    let mut bench = Bench::new("tcp-dport 81 drop");
    for flags in 0..=u8::MAX {
        bench.pass(&tcp(CLIENT, SERVER, flags).build());
    }
}
