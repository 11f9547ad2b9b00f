//! TCP segments judged by their numbers.

use super::*;

const ACK: u8 = Frame::ACK;
const SYN: u8 = Frame::SYN;
const FIN: u8 = Frame::FIN;
const RST: u8 = Frame::RST;

/// Timeouts that differ by state.
const POLICY: &str = "
    timeout tcp-syn-sent 10s
    timeout tcp-syn-recv 20s
    timeout tcp-established 30s
    timeout tcp-fin-wait 40s
    timeout tcp-time-wait 50s
    timeout tcp-close 5s
    timeout tcp-close-wait 60s
    timeout tcp-last-ack 70s
    timeout tcp-retrans 25s
    timeout tcp-unack 28s
    add-stateful ip-saddr 10.0.0.0/8 accept
    all drop
";

const SCALE: &[u8] = &[7];

fn out(flags: u8, sequence: u32, acknowledgement: u32) -> Frame {
    tcp(CLIENT, SERVER, flags).numbers(sequence, acknowledgement)
}

fn back(flags: u8, sequence: u32, acknowledgement: u32) -> Frame {
    tcp(SERVER, CLIENT, flags).numbers(sequence, acknowledgement)
}

/// A connection after its handshake, at 1001 and 5001: the client's windows are of 500 * 128 bytes, the server's of 100 * 128.
fn established() -> Bench {
    let mut bench = Bench::new(POLICY);
    bench.pass(&out(SYN, 1000, 0).window(500).tcp_option(3, SCALE).build());
    bench.pass(
        &back(SYN | ACK, 5000, 1001)
            .window(100)
            .tcp_option(3, SCALE)
            .build(),
    );
    bench.pass(&out(ACK, 1001, 5001).window(500).build());
    bench.pass(&back(ACK, 5001, 1001).window(100).build());
    bench
}

/// For how long the connection of a bench lives without packets, in seconds.
fn lives(bench: &Bench) -> u64 {
    let found: Vec<u64> = [5, 10, 20, 25, 28, 30, 40, 50, 60, 70]
        .into_iter()
        .filter(|&seconds| {
            let asked = |extra: u64| {
                let ns = (bench.seconds * 1e9) as u64 + seconds * 1_000_000_000 + extra;
                let mut bench = bench.clone();
                // Passes and changes nothing whatever the numbers are, and opens nothing.
                let probe = back(SYN | ACK, 5000, 1001).build();
                bench.run_at_ns(&probe, ns).connection.is_some()
            };
            asked(0) && !asked(1)
        })
        .collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found[0]
}

/// What becomes of a segment, and the state after it by its timeout.
fn after(bench: &Bench, segment: Frame) -> (Option<Reason>, u64) {
    let mut bench = bench.clone();
    let outcome = bench.run(&segment.build());
    let reason = (outcome.verdict == Verdict::Drop).then(|| outcome.reasons[0]);
    if reason.is_some() {
        assert_eq!(outcome.matched, [0; 0], "no rule sees it");
    }
    (reason, lives(&bench))
}

const OUTSIDE_WINDOW: Option<Reason> = Some(Reason::TcpWindow);
const STALE: Option<Reason> = Some(Reason::TcpRstStale);

#[test]
fn a_reset_counts_at_the_next_number_only() {
    let bench = established();
    for (sequence, expected) in [
        (5001, (None, 5)),
        // In the window, which ends at 5001 + 64,000: the host asks back, and so the connection stays.
        (5002, (None, 30)),
        (69_001, (None, 30)),
        (69_002, (OUTSIDE_WINDOW, 30)),
        // Old: as far back as the largest window of the client, 65,535 * 128 bytes, may reach.
        (5000, (STALE, 30)),
        (5001u32.wrapping_sub(65_535 * 128), (STALE, 30)),
        (5000u32.wrapping_sub(65_535 * 128), (OUTSIDE_WINDOW, 30)),
        (0x8000_0000, (OUTSIDE_WINDOW, 30)),
        (0, (STALE, 30)),
    ] {
        assert_eq!(
            after(&bench, back(RST, sequence, 0)),
            expected,
            "{sequence}"
        );
        let with = back(RST | ACK, sequence, 1001);
        assert_eq!(after(&bench, with), expected, "{sequence}");
    }
    assert_eq!(after(&bench, out(RST, 1001, 0)), (None, 5));
    assert_eq!(after(&bench, out(RST, 1002, 0)), (None, 30));
    // The server's window ends at 1001 + 12,800.
    assert_eq!(after(&bench, out(RST, 13_802, 0)), (OUTSIDE_WINDOW, 30));
}

#[test]
fn a_reset_answers_what_was_acknowledged_or_follows_what_was_sent() {
    let mut bench = established();
    bench.pass(&back(ACK, 5001, 1001).payload(&[1; 100]).build());
    // The client got nothing of it yet, or all of it.
    assert_eq!(after(&bench, back(RST, 5001, 0)).1, 5);
    assert_eq!(after(&bench, back(RST, 5101, 0)).1, 5);
    assert_eq!(after(&bench, back(RST, 5050, 0)), (None, 28));
    bench.pass(&out(ACK, 1001, 5101).build());
    assert_eq!(after(&bench, back(RST, 5001, 0)), (STALE, 30));
}

#[test]
fn a_refused_connection_is_closed_by_a_reset_that_acknowledges_its_syn() {
    let mut bench = Bench::new(POLICY);
    bench.pass(&out(SYN, 1000, 0).build());
    assert_eq!(after(&bench, back(RST | ACK, 0, 1001)), (None, 5));
    for forged in [
        back(RST, 0, 0),
        back(RST | ACK, 0, 1000),
        back(RST | ACK, 0, 1002),
        back(RST | ACK, 0, 0x8000_0000),
    ] {
        assert_eq!(after(&bench, forged), (OUTSIDE_WINDOW, 10));
    }
    // The client may give up, and answer what it did not ask for.
    assert_eq!(after(&bench, out(RST, 1001, 0)), (None, 5));
    assert_eq!(after(&bench, out(RST, 77, 0)), (None, 10));
}

#[test]
fn a_fin_counts_within_the_window() {
    let bench = established();
    assert_eq!(after(&bench, back(FIN | ACK, 5001, 1001)), (None, 40));
    assert_eq!(after(&bench, back(FIN | ACK, 69_001, 1001)), (None, 40));
    for (sequence, acknowledgement) in [
        (69_002, 1001),
        (5001, 1002),
        (5001, 0x8000_0000),
        (5001, 1000u32.wrapping_sub(65_535 * 128)),
        (4999u32.wrapping_sub(65_535 * 128), 1001),
    ] {
        let forged = back(FIN | ACK, sequence, acknowledgement);
        assert_eq!(after(&bench, forged), (OUTSIDE_WINDOW, 30));
    }
    // What was acknowledged already cannot end anything.
    assert_eq!(after(&bench, back(FIN | ACK, 5000, 1001)), (None, 30));
    let mut bench = bench;
    bench.pass(&back(FIN | ACK, 5001, 1001).build());
    bench.pass(&out(FIN | ACK, 1001, 5002).build());
    bench.pass(&back(ACK, 5002, 1002).build());
    assert_eq!(lives(&bench), 50);
}

#[test]
fn data_stays_within_what_the_other_side_offered() {
    let bench = established();
    let data = |sequence: u32| out(ACK, sequence, 5001).payload(&[7; 1000]);
    assert_eq!(after(&bench, data(1001)), (None, 28));
    assert_eq!(after(&bench, data(13_801)), (None, 28));
    assert_eq!(after(&bench, data(13_802)), (OUTSIDE_WINDOW, 30));
    // Repeated: as far back as a window may reach.
    let oldest = 1001u32.wrapping_sub(65_535 * 128 + 1000);
    assert_eq!(after(&bench, data(oldest)), (None, 30));
    assert_eq!(
        after(&bench, data(oldest.wrapping_sub(1))),
        (OUTSIDE_WINDOW, 30)
    );
    // Nobody acknowledges what was not sent.
    let ack = |number: u32| out(ACK, 1001, number);
    assert_eq!(after(&bench, ack(5001)), (None, 30));
    assert_eq!(after(&bench, ack(5002)), (OUTSIDE_WINDOW, 30));
    // What was acknowledged moves the window: of 500 * 128 bytes.
    let mut bench = bench;
    bench.pass(&back(ACK, 5001, 1001).payload(&[1; 1000]).build());
    assert_eq!(after(&bench, back(ACK, 69_002, 1001)).0, OUTSIDE_WINDOW);
    bench.pass(&out(ACK, 1001, 6001).window(500).build());
    assert_eq!(after(&bench, back(ACK, 70_001, 1001)).0, None);
    assert_eq!(after(&bench, back(ACK, 70_002, 1001)).0, OUTSIDE_WINDOW);
    // A window that is closed lets a probe of one byte through.
    bench.pass(&back(ACK, 6001, 1001).window(0).build());
    assert_eq!(
        after(&bench, data(13_801)).0,
        None,
        "a window does not shrink"
    );
}

#[test]
fn data_that_is_not_acknowledged_shortens_the_time_out() {
    let mut bench = established();
    assert_eq!(lives(&bench), 30);
    bench.pass(&back(ACK, 5001, 1001).payload(&[1; 100]).build());
    assert_eq!(lives(&bench), 28);
    bench.pass(&out(ACK, 1001, 5051).build());
    assert_eq!(lives(&bench), 28);
    bench.pass(&out(ACK, 1001, 5101).build());
    assert_eq!(lives(&bench), 30);
    bench.pass(&out(ACK, 1001, 5101).payload(b"x").build());
    assert_eq!(lives(&bench), 28);
    // One that is longer than the time-out of the state changes nothing, be it the policy's or the rule's.
    let mut bench = Bench::new(
        "timeout tcp-unack 1h
add-stateful all accept timeout 30s
all drop",
    );
    bench.pass(&out(SYN, 1000, 0).build());
    bench.pass(&back(SYN | ACK, 5000, 1001).build());
    bench.pass(&out(ACK, 1001, 5001).payload(b"x").build());
    assert_eq!(lives(&bench), 30);
}

#[test]
fn three_retransmissions_in_a_row_shorten_the_time_out() {
    let data = || out(ACK, 1001, 5001).payload(&[1; 100]).build();
    let mut bench = established();
    bench.pass(&data());
    for _ in 0..2 {
        bench.pass(&data());
        assert_eq!(lives(&bench), 28);
    }
    let before = bench.clone();
    bench.pass(&data());
    assert_eq!(lives(&bench), 25);
    bench.pass(&data());
    assert_eq!(lives(&bench), 25);
    // An acknowledgement of something new begins the count again; an old one does not.
    bench.pass(&back(ACK, 5001, 1001).build());
    assert_eq!(lives(&bench), 25);
    bench.pass(&back(ACK, 5001, 1051).build());
    assert_eq!(lives(&bench), 28);
    // Keep-alives and bare acknowledgements are no retransmissions.
    let mut bench = before;
    bench.pass(&back(ACK, 5001, 1101).build());
    for _ in 0..5 {
        bench.pass(&out(ACK, 1100, 5001).build());
        bench.pass(&out(ACK, 1100, 5001).payload(b"k").build());
    }
    assert_eq!(lives(&bench), 30);
}

#[test]
fn a_segment_that_opens_a_connection_is_no_retransmission() {
    let data = || out(ACK, 1001, 5001).payload(&[1; 100]).build();
    let mut bench = Bench::new(POLICY);
    bench.pass(&data());
    bench.pass(&back(ACK, 5001, 1001).build());
    for _ in 0..2 {
        bench.pass(&data());
        assert_eq!(lives(&bench), 28);
    }
    bench.pass(&data());
    assert_eq!(lives(&bench), 25);
}

#[test]
fn windows_are_scaled_if_both_sides_say_so() {
    for (client, server, edge) in [
        (true, true, 1001 + (100 << 7)),
        (true, false, 1001 + 100),
        (false, true, 1001 + 100),
    ] {
        let mut bench = Bench::new(POLICY);
        let scaled = |frame: Frame, yes: bool| {
            if yes {
                frame.tcp_option(3, SCALE)
            } else {
                frame
            }
        };
        bench.pass(&scaled(out(SYN, 1000, 0), client).build());
        bench.pass(&scaled(back(SYN | ACK, 5000, 1001).window(100), server).build());
        // The window of a SYN is not scaled.
        assert_eq!(after(&bench, out(ACK, 1101, 5001)).0, None);
        assert_eq!(after(&bench, out(ACK, 1102, 5001)).0, OUTSIDE_WINDOW);
        bench.pass(&out(ACK, 1001, 5001).build());
        bench.pass(&back(ACK, 5001, 1001).window(100).build());
        assert_eq!(after(&bench, out(ACK, edge, 5001)).0, None);
        assert_eq!(after(&bench, out(ACK, edge + 1, 5001)).0, OUTSIDE_WINDOW);
    }
}

#[test]
fn a_syn_is_challenged_and_not_believed() {
    let bench = established();
    for forged in [out(SYN, 77, 0), back(SYN | ACK, 77, 99), out(SYN, 1001, 0)] {
        let mut bench = bench.clone();
        bench.wait(1.0);
        let outcome = bench.run(&forged.build());
        assert_eq!(outcome.verdict, Verdict::Pass);
        // It does not even keep the connection alive.
        bench.wait(-1.0);
        assert_eq!(lives(&bench), 30);
        bench.pass(&out(ACK, 1001, 5001).payload(b"on it goes").build());
        bench.pass(&back(ACK, 5001, 1011).build());
    }
    // Nobody opens the other way what is open.
    assert_eq!(after(&bench, back(SYN, 77, 0)), (OUTSIDE_WINDOW, 30));
    let answer = out(SYN | ACK, 77, 99);
    assert_eq!(after(&bench, answer), (OUTSIDE_WINDOW, 30));
    let mut late = Bench::new(POLICY);
    late.pass(&out(ACK, 1000, 5000).build());
    assert_eq!(after(&late, back(SYN, 77, 0)), (None, 10));
    assert_eq!(after(&late, out(SYN | ACK, 77, 99)), (None, 10));
    // The host's challenge is answered by a reset at exactly its number, if the client knows nothing of the connection any more.
    let mut bench = bench;
    bench.pass(&out(SYN, 77, 0).build());
    bench.pass(&back(ACK, 5001, 1001).build());
    bench.pass(&out(RST, 1001, 0).build());
    assert_eq!(lives(&bench), 5);
    assert_eq!(
        bench.run(&out(SYN, 77, 0).build()).connection,
        Some(Part::Opened)
    );
}

#[test]
fn only_what_acknowledges_the_syn_answers_it() {
    let mut bench = Bench::new(POLICY);
    bench.pass(&out(SYN, 1000, 0).payload(b"early").build());
    for number in [1001, 1003, 1006] {
        assert_eq!(after(&bench, back(SYN | ACK, 5000, number)), (None, 20));
    }
    for number in [1000, 1007, 0, 0x8000_0000] {
        let forged = back(SYN | ACK, 5000, number);
        assert_eq!(after(&bench, forged), (OUTSIDE_WINDOW, 10));
    }
    // Of a connection that the server still has from before: the client answers that by a reset.
    assert_eq!(after(&bench, back(ACK, 99, 98)), (None, 10));
    // The client has nothing to acknowledge.
    assert_eq!(after(&bench, out(ACK, 1006, 5001)), (OUTSIDE_WINDOW, 10));
}

#[test]
fn handshakes_are_repeated_and_begun_anew() {
    let mut bench = Bench::new(POLICY);
    for _ in 0..3 {
        bench.pass(&out(SYN, 1000, 0).build());
    }
    // With other numbers; then either of them may be answered.
    bench.pass(&out(SYN, 2000, 0).build());
    for number in [1001, 2001] {
        assert_eq!(after(&bench, back(SYN | ACK, 5000, number)), (None, 20));
    }
    bench.pass(&back(SYN | ACK, 5000, 1001).build());
    bench.pass(&back(SYN | ACK, 5000, 1001).build());
    bench.pass(&out(ACK, 1001, 5001).build());
    bench.pass(&back(SYN | ACK, 5000, 1001).build());
    bench.pass(&out(ACK, 1001, 5001).build());
    assert_eq!(lives(&bench), 30);
    // Which numbers were forged is settled by the answer.
    assert_eq!(after(&bench, out(RST, 2001, 0)), (None, 30));
    assert_eq!(after(&bench, out(RST, 1001, 0)), (None, 5));
}

#[test]
fn both_sides_may_open_at_once() {
    let mut bench = Bench::new(POLICY);
    bench.pass(&out(SYN, 1000, 0).build());
    bench.pass(&back(SYN, 5000, 0).build());
    bench.pass(&out(SYN | ACK, 1000, 5001).build());
    bench.pass(&back(SYN | ACK, 5000, 1001).build());
    assert_eq!(lives(&bench), 20);
    bench.pass(&out(ACK, 1001, 5001).payload(b"data").build());
    bench.pass(&back(ACK, 5001, 1005).build());
    assert_eq!(lives(&bench), 30);
}

/// RFC 5382 REQ-2: also through a translation, in which each side sees the other's SYN with the address it knows.
#[test]
fn both_sides_may_open_at_once_through_a_translation() {
    let mut bench = Bench::new("add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 192.0.2.1");
    let outside: End = (OUTSIDE, CLIENT.1);
    let from_server = |flags, sequence, acknowledgement| {
        let segment: Frame = tcp(SERVER, outside, flags);
        segment.numbers(sequence, acknowledgement)
    };
    let sent = bench.pass(&out(SYN, 1000, 0).build());
    assert_eq!(ends(&sent), (outside, SERVER));
    let crossing = bench.pass(&from_server(SYN, 5000, 0).build());
    assert_eq!(ends(&crossing), (SERVER, CLIENT));
    for frame in [
        out(SYN | ACK, 1000, 5001),
        from_server(SYN | ACK, 5000, 1001),
        out(ACK, 1001, 5001).payload(b"data"),
        from_server(ACK, 5001, 1005).payload(b"data"),
        out(ACK, 1005, 5005),
    ] {
        let frame = frame.build();
        let to = ends(&bench.pass(&frame));
        let expected = if ends(&frame).0 == CLIENT {
            (outside, SERVER)
        } else {
            (SERVER, CLIENT)
        };
        assert_eq!(to, expected);
    }
    // And it is judged as any other connection from then on.
    let far = from_server(ACK, 0x4000_0000, 1005).build();
    assert_eq!(bench.drop(&far), Reason::TcpWindow);
}

#[test]
fn who_joins_late_is_judged_by_the_largest_window_there_is() {
    const MOST: u32 = 65_535 << 14;
    let mut bench = Bench::new(POLICY);
    bench.pass(&out(ACK, 1000, 5000).window(10).payload(&[1; 10]).build());
    assert_eq!(lives(&bench), 10);
    for (sequence, number, expected) in [
        (5000, 1010, None),
        // More was on its way when the first packet came by.
        (5000, 1010 + MOST, None),
        (5000, 1011 + MOST, OUTSIDE_WINDOW),
        (5000 + (10 << 14), 1000, None),
        (5001 + (10 << 14), 1000, OUTSIDE_WINDOW),
    ] {
        let segment = back(ACK, sequence, number);
        assert_eq!(after(&bench, segment).0, expected, "{sequence} {number}");
    }
    bench.pass(&back(ACK, 5000, 1010).build());
    assert_eq!(lives(&bench), 30);
    assert_eq!(after(&bench, back(RST, 5000, 0)), (None, 5));
    assert_eq!(after(&bench, back(RST, 4999, 0)), (STALE, 30));
    assert_eq!(after(&bench, back(RST, 5001, 0)), (None, 30));
}

#[test]
fn what_is_a_fragment_cannot_be_checked_and_changes_nothing() {
    let bench = established();
    let fragment = |frame: Frame| frame.fragment(0, true).payload(&[1; 8]);
    let data = |frame: Frame| after(&bench, fragment(frame));
    assert_eq!(data(back(FIN | ACK, 5001, 1001)), (None, 30));
    assert_eq!(data(back(RST, 5001, 0)), (None, 30));
    assert_eq!(data(back(RST, 4000, 0)), (STALE, 30));
    // What it sends may be as long as a datagram; all of it may be acknowledged.
    let mut bench = bench.clone();
    bench.pass(&fragment(back(ACK, 5001, 1001)).build());
    // So nobody can tell whether it is acknowledged.
    assert_eq!(lives(&bench), 30);
    assert_eq!(after(&bench, out(ACK, 1001, 5001 + 65_535)).0, None);
    let mut bench = Bench::new(POLICY);
    let syn = fragment(out(SYN, 1000, 0)).build();
    assert_eq!(bench.drop(&syn), Reason::RuleDrop);
}

#[test]
fn loose_tcp_drops_nothing_and_is_ended_by_no_forgery() {
    let mut bench = Bench::new(&format!("loose tcp\n{POLICY}"));
    // One direction only.
    bench.pass(&out(SYN, 1000, 0).build());
    bench.pass(&out(ACK, 1001, 5001).payload(&[1; 100]).build());
    bench.wait(6.0);
    bench.pass(&out(ACK, 1101, 7001).payload(&[1; 100]).build());
    assert_eq!(lives(&bench), 10);
    assert_eq!(after(&bench, out(RST, 77, 0)), (None, 10));
    assert_eq!(after(&bench, out(FIN | ACK, 1201, 7001)), (None, 10));
    assert_eq!(after(&bench, out(RST, 1201, 0)), (None, 5));
    // Both, far from what was seen.
    let mut bench = Bench::new(&format!("loose tcp\n{POLICY}"));
    bench.pass(&out(SYN, 1000, 0).build());
    bench.pass(&back(SYN | ACK, 5000, 1001).build());
    bench.pass(&out(ACK, 1001, 5001).build());
    bench.pass(&back(ACK, 900_000, 800_000).build());
    assert_eq!(
        after(&bench, back(FIN | ACK, 0x7000_0000, 1001)),
        (None, 30)
    );
    assert_eq!(after(&bench, back(RST, 0x7000_0000, 1001)), (None, 30));
    let about = tcp(CLIENT, SERVER, ACK).numbers(77, 0).build();
    let error = Frame::new()
        .ip4(SERVER.0, CLIENT.0)
        .icmp(3, 1)
        .payload(&about[14..42])
        .build();
    assert_eq!(bench.run(&error).connection, Some(Part::Error));
}

#[test]
fn numbers_wrap() {
    let mut bench = Bench::new(POLICY);
    bench.pass(&out(SYN, u32::MAX, 0).build());
    bench.pass(&back(SYN | ACK, u32::MAX - 5, 0).build());
    bench.pass(&out(ACK, 0, u32::MAX - 4).build());
    bench.pass(&back(ACK, u32::MAX - 4, 0).payload(&[1; 20]).build());
    bench.pass(&out(ACK, 0, 15).build());
    assert_eq!(after(&bench, back(RST, 15, 0)), (None, 5));
    assert_eq!(after(&bench, back(RST, u32::MAX, 0)), (STALE, 30));
    assert_eq!(after(&bench, back(FIN | ACK, 15, 0)), (None, 40));
}

/// Both hosts restarted, and the client takes the port it had: NFS does.
fn forgotten(client: u32, server: u32) -> [Vec<u8>; 3] {
    let (syn, answer) = (
        out(SYN, client, 0).window(500),
        back(SYN | ACK, server, client + 1),
    );
    [
        syn.tcp_option(3, &[2]).build(),
        answer.window(100).tcp_option(3, &[3]).build(),
        out(ACK, client + 1, server + 1).window(300).build(),
    ]
}

#[test]
fn a_connection_that_both_hosts_forgot_is_opened_again() {
    let [syn, answer, ack] = forgotten(0x4000_0000, 0x7000_0000);
    let mut bench = established();
    bench.pass(&back(FIN | ACK, 5001, 1001).build());
    bench.wait(3.0);
    bench.pass(&syn);
    bench.pass(&answer);
    // A host that knows the connection has its say first.
    bench.wait(2.0);
    assert_eq!(bench.drop(&ack), Reason::TcpWindow);
    bench.wait(0.001);
    bench.pass(&syn);
    bench.pass(&answer);
    bench.pass(&ack);
    assert_eq!(lives(&bench), 30);
    // Windows of 300 * 4 and 100 bytes now, and nothing of the old numbers.
    let (own, other) = (0x4000_0001, 0x7000_0001);
    assert_eq!(after(&bench, out(ACK, own + 100, other)).0, None);
    assert_eq!(after(&bench, out(ACK, own + 101, other)).0, OUTSIDE_WINDOW);
    assert_eq!(after(&bench, back(ACK, other + 1200, own)).0, None);
    assert_eq!(
        after(&bench, back(ACK, other + 1201, own)).0,
        OUTSIDE_WINDOW
    );
    assert_eq!(after(&bench, back(ACK, 5001, 1001)).0, OUTSIDE_WINDOW);
    bench.pass(&back(ACK, other, own).window(1000).build());
    assert_eq!(after(&bench, out(ACK, own + 8000, other)).0, None);
    assert_eq!(after(&bench, out(ACK, own + 8001, other)).0, OUTSIDE_WINDOW);
    assert_eq!(after(&bench, out(RST, own, 0)), (None, 5));
}

#[test]
fn a_challenge_keeps_the_connection() {
    let [syn, answer, ack] = forgotten(0x4000_0000, 0x7000_0000);
    let start = || {
        let mut bench = established();
        bench.wait(3.0);
        bench
    };
    // The server knows it; then a SYN soon after is not remembered, though challenges are limited.
    let mut bench = start();
    bench.pass(&syn);
    bench.pass(&back(ACK, 5001, 1001).build());
    bench.wait(0.1);
    bench.pass(&syn);
    bench.pass(&answer);
    bench.wait(10.0);
    assert_eq!(bench.drop(&ack), Reason::TcpWindow);
    // What was remembered before a segment that counts is nothing afterwards.
    let mut bench = start();
    bench.pass(&syn);
    bench.pass(&answer);
    bench.wait(2.5);
    bench.pass(&out(ACK, 1001, 5001).build());
    assert_eq!(bench.drop(&ack), Reason::TcpWindow);
    // Nothing but the whole handshake with its numbers restarts anything.
    let with = |packets: &[&[u8]]| {
        let mut bench = start();
        packets.iter().for_each(|packet| drop(bench.pass(packet)));
        bench.wait(3.0);
        bench
    };
    let other_answer = back(SYN | ACK, 0x7000_0000, 0x4000_0002).build();
    let fragment = |frame: Frame| frame.fragment(0, true).payload(&[1; 8]).build();
    let part = fragment(back(SYN | ACK, 0x7000_0000, 0x4000_0001));
    for packets in [
        &[&syn[..]][..],
        &[&answer],
        &[&answer, &syn],
        &[&syn, &other_answer],
        &[&syn, &part],
    ] {
        assert_eq!(with(packets).drop(&ack), Reason::TcpWindow);
    }
    let mut bench = with(&[&syn, &answer]);
    for wrong in [
        out(ACK, 0x4000_0002, 0x7000_0001),
        out(ACK, 0x4000_0001, 0x7000_0002),
        back(ACK, 0x7000_0001, 0x4000_0001),
    ] {
        assert_eq!(bench.drop(&wrong.build()), Reason::TcpWindow);
    }
    let part = fragment(out(ACK, 0x4000_0001, 0x7000_0001));
    assert_eq!(bench.drop(&part), Reason::TcpWindow);
    // Another SYN takes the place of the first and of its answer.
    let mut other = bench.clone();
    other.pass(&out(SYN, 0x5000_0000, 0).build());
    other.wait(3.0);
    assert_eq!(other.drop(&ack), Reason::TcpWindow);
    bench.pass(&ack);
    assert_eq!(lives(&bench), 30);
    let loose = Bench::new(&format!("loose tcp\n{POLICY}"));
    let mut bench = loose;
    bench.pass(&out(SYN, 1000, 0).build());
    bench.pass(&back(SYN | ACK, 5000, 1001).build());
    bench.pass(&out(ACK, 1001, 5001).build());
    bench.pass(&back(FIN | ACK, 5001, 1001).build());
    bench.wait(3.0);
    bench.pass(&syn);
    bench.pass(&answer);
    bench.wait(3.0);
    bench.pass(&ack);
    assert_eq!(lives(&bench), 40);
}
