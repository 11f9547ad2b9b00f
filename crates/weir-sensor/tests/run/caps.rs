//! Floods at caps: what is given up is the same for any number of workers, is counted by name, and memory stays below the caps by the sensor's own accounts.

use weir_packet::build::Frame;

use super::bed::{ANSWER, Folder, How, Left, SERVER, START, Tape, sense_tape};

/// Numbers of workers that must not change anything.
const WORKERS: [usize; 3] = [1, 2, 4];

fn client(n: u32) -> [u8; 4] {
    [10, (n >> 16) as u8, (n >> 8) as u8, n as u8]
}

/// Runs with each number of workers; all of them must agree in every line and every counter.
fn agree(tape: &Tape, how: &How) -> Left {
    let one = sense_tape(tape, how);
    assert_eq!(one.summary.ledger.unaccounted(), 0);
    for workers in &WORKERS[1..] {
        let many = sense_tape(tape, &how.clone().workers(*workers));
        assert_eq!(many.fast, one.fast, "{workers} workers");
        assert_eq!(
            many.summary.counters, one.summary.counters,
            "{workers} workers"
        );
        assert_eq!(many.text, one.text, "{workers} workers");
    }
    one
}

fn count(left: &Left, name: &str) -> u64 {
    *left
        .summary
        .counters
        .get(name)
        .unwrap_or_else(|| panic!("{name} is no counter"))
}

fn alerts(left: &Left, sid: u64) -> usize {
    left.sids().iter().filter(|s| **s == sid).count()
}

const TWO_STEPS: &str = "alert udp any any -> any 9 (msg:\"first\"; content:\"first\"; flowbits:set,met; flowbits:noalert; sid:1;)\n\
alert udp any any -> any 9 (msg:\"second\"; content:\"second\"; flowbits:isset,met; sid:2;)\n";

/// Flows whose second packet comes after 0 to 4,000 others have begun: those that were ended by then have forgotten the first one.
fn flows() -> Tape {
    let mut tape = Tape::default();
    let mut second: Vec<Vec<u32>> = vec![Vec::new(); 10_000];
    for n in 0..6_000_u32 {
        second[(n + n * 7919 % 4_000) as usize].push(n);
    }
    let frame = |n: u32, text: &[u8]| {
        Frame::new()
            .ip4(client(n), SERVER)
            .udp(1000, 9)
            .payload(text)
    };
    for n in 0..10_000_u32 {
        if n < 6_000 {
            tape.push(&frame(n, b"first"));
        }
        for other in &second[n as usize] {
            tape.push(&frame(*other, b"second"));
        }
    }
    // All within a second, so that nothing ends by its timeout.
    for (n, (time, _)) in tape.frames.iter_mut().enumerate() {
        *time = START + n as u64 * 1_000;
    }
    tape
}

#[test]
fn a_flood_of_flows() {
    let tape = flows();
    let free = sense_tape(&tape, &How::rules(TWO_STEPS));
    let left = agree(&tape, &How::rules(TWO_STEPS).set("flow.max-flows=1000"));
    let (all, some) = (alerts(&free, 2), alerts(&left, 2));
    assert!(
        some > 0 && some < all,
        "{some} of {all} second steps were known"
    );
    assert_eq!(count(&free, "flow.end.forced"), 0);
    assert!(count(&left, "flow.end.forced") > 1_000);
    // By memory: the same, and the account never passes the cap.
    let left = agree(&tape, &How::rules(TWO_STEPS).set("flow.memcap=1mb"));
    assert!(count(&left, "flow.end.forced") > 1_000);
    assert!(
        count(&left, "flow.memuse_peak") <= 1 << 20,
        "{}",
        count(&left, "flow.memuse_peak")
    );
    assert!(count(&left, "flow.memuse_peak") > 1 << 19);
}

/// A flood between two hosts ends no flow of others: each slice of pairs has its own share of the cap.
#[test]
fn a_flood_between_two_hosts_is_theirs() {
    let mut tape = Tape::default();
    let hosts = 200_u32;
    for n in 0..hosts {
        tape.push(
            &Frame::new()
                .ip4(client(n), SERVER)
                .udp(1000, 9)
                .payload(b"first"),
        );
    }
    for port in 1..20_000_u16 {
        tape.push(
            &Frame::new()
                .ip4([203, 0, 113, 1], SERVER)
                .udp(port, 9)
                .payload(b"x"),
        );
    }
    for n in 0..hosts {
        tape.push(
            &Frame::new()
                .ip4(client(n), SERVER)
                .udp(1000, 9)
                .payload(b"second"),
        );
    }
    for (n, (time, _)) in tape.frames.iter_mut().enumerate() {
        *time = START + n as u64 * 1_000;
    }
    let left = agree(&tape, &How::rules(TWO_STEPS).set("flow.max-flows=1600"));
    let known = alerts(&left, 2);
    // Those in the slice of the flood are gone: a sixteenth, give or take.
    assert!((170..200).contains(&known), "{known} of {hosts}");
}

#[test]
fn a_flood_of_fragments() {
    let mut tape = Tape::default();
    let half = |n: u32, last: bool| {
        let datagram = Frame::new()
            .ip4(client(n), SERVER)
            .udp(1000, 9)
            .payload(&[&[b'.'; 192][..], b" the needle"].concat())
            .build();
        let bytes = &datagram[34..];
        Frame::new()
            .ip4(client(n), SERVER)
            .protocol(17)
            .id(n as u16)
            .fragment(if last { 24 } else { 0 }, !last)
            .payload(if last { &bytes[192..] } else { &bytes[..192] })
    };
    // The second half comes after 0 to 900 other datagrams have begun.
    let mut second: Vec<Vec<u32>> = vec![Vec::new(); 5_000];
    for n in 0..4_000_u32 {
        second[(n + n * 7919 % 900) as usize].push(n);
    }
    for n in 0..5_000_u32 {
        if n < 4_000 {
            tape.push(&half(n, false));
        }
        for other in &second[n as usize] {
            tape.push(&half(*other, true));
        }
    }
    for (n, (time, _)) in tape.frames.iter_mut().enumerate() {
        *time = START + n as u64 * 1_000;
    }
    let rules = "alert udp any any -> any 9 (msg:\"needle\"; content:\"needle\"; sid:3;)\n";
    let free = sense_tape(&tape, &How::rules(rules));
    let left = agree(&tape, &How::rules(rules).set("defrag.memcap=128kb"));
    let (all, some) = (alerts(&free, 3), alerts(&left, 3));
    assert!(
        some > 0 && some < all,
        "{some} of {all} datagrams became whole"
    );
    assert!(count(&left, "defrag.over_cap") > 0);
    assert!(count(&left, "defrag.memuse_peak") <= 128 << 10);
    let ends = [
        "used", "timeout", "over_cap", "overlap", "invalid", "pending",
    ];
    let sum: u64 = ends
        .iter()
        .map(|end| count(&left, &format!("defrag.{end}")))
        .sum();
    assert_eq!(sum, count(&left, "defrag.fragments"));
}

/// Sessions with a hole each: what is behind it is held until the hole is filled, or until there is no room.
fn holes() -> Tape {
    let mut tape = Tape::default();
    let segment = |n: u32, from: u32, flags: u8, numbers: (u32, u32), payload: &[u8]| {
        let frame = match from {
            0 => Frame::new().ip4(client(n), SERVER).tcp(2000, 99),
            _ => Frame::new().ip4(SERVER, client(n)).tcp(99, 2000),
        };
        frame
            .flags(flags)
            .numbers(numbers.0, numbers.1)
            .payload(payload)
    };
    let sessions = 600_u32;
    let behind = [&[b'.'; 1200][..], b"needle"].concat();
    for n in 0..sessions {
        tape.push(&segment(n, 0, Frame::SYN, (100, 0), b""));
        tape.push(&segment(n, 1, Frame::SYN | Frame::ACK, (500, 101), b""));
        tape.push(&segment(n, 0, Frame::ACK, (101, 501), b""));
        // 101 to 104 are missing.
        tape.push(&segment(n, 0, Frame::ACK, (105, 501), &behind));
        if n >= 200 {
            let filled = n - n * 13 % 200;
            tape.push(&segment(filled, 0, Frame::ACK, (101, 501), b"the "));
            tape.push(&segment(
                filled,
                1,
                Frame::ACK,
                (501, 105 + behind.len() as u32),
                b"",
            ));
        }
    }
    for (n, (time, _)) in tape.frames.iter_mut().enumerate() {
        *time = START + n as u64 * 1_000;
    }
    tape
}

#[test]
fn a_flood_of_segments_out_of_order() {
    let rules = "alert tcp any any -> any 99 (msg:\"over the hole\"; flow:established,to_server; content:\"the ....\"; content:\"needle\"; sid:4;)\n";
    let tape = holes();
    let free = sense_tape(&tape, &How::rules(rules));
    let left = agree(
        &tape,
        &How::rules(rules).set("stream.reassembly.memcap=256kb"),
    );
    let (all, some) = (alerts(&free, 4), alerts(&left, 4));
    assert!(some > 0 && some < all, "{some} of {all} sessions were read");
    assert!(count(&left, "tcp.sessions_relieved") > 0 && count(&left, "tcp.bytes.over_cap") > 0);
    assert!(count(&left, "tcp.reassembly_memuse_peak") <= 256 << 10);
    // Where the bytes went.
    let ends = [
        "delivered",
        "overlapped",
        "beyond_depth",
        "over_cap",
        "out_of_window",
        "bad_checksum",
        "untracked",
        "closed",
    ];
    let sum: u64 = ends
        .iter()
        .map(|end| count(&left, &format!("tcp.bytes.{end}")))
        .sum();
    assert_eq!(sum, count(&left, "tcp.bytes.payload"));
}

#[test]
fn sessions_have_a_cap_of_their_own() {
    let rules = "alert tcp any any -> any 99 (msg:\"read\"; flow:established,to_server; content:\"needle\"; sid:5;)\n";
    let left = agree(&holes(), &How::rules(rules).set("stream.memcap=128kb"));
    assert!(
        count(&left, "flow.end.forced_for_sessions") > 100,
        "{:?}",
        left.summary.counters
    );
    assert!(count(&left, "tcp.memuse") <= 128 << 10);
    assert_eq!(
        count(&left, "flow.end.forced"),
        count(&left, "flow.end.forced_for_sessions")
    );
}

/// Requests whose headers never end, and many requests in one connection.
#[test]
fn a_flood_of_headers_and_transactions() {
    let mut tape = Tape::default();
    let mut next: Vec<u32> = Vec::new();
    let to = |n: u32| Frame::new().ip4(client(n), SERVER).tcp(3000, 80);
    let sessions = 150_u32;
    for n in 0..sessions {
        tape.push(&to(n).flags(Frame::SYN).numbers(100, 0));
        tape.push(
            &Frame::new()
                .ip4(SERVER, client(n))
                .tcp(80, 3000)
                .flags(Frame::SYN | Frame::ACK)
                .numbers(500, 101),
        );
        tape.push(&to(n).numbers(101, 501));
        next.push(101);
    }
    for round in 0..12_u32 {
        for n in 0..sessions {
            let text = match (n % 3, round) {
                (_, 0) => b"GET /start HTTP/1.1\r\nHost: x\r\n".to_vec(),
                (0, _) => format!("X-{round}: {}\r\n", "h".repeat(1200)).into_bytes(),
                (1, _) => "\r\nGET /next HTTP/1.1\r\nHost: x\r\n"
                    .repeat(30)
                    .into_bytes(),
                _ => format!("X-Long-{}", "y".repeat(1200)).into_bytes(),
            };
            let at = next[n as usize];
            tape.push(&to(n).numbers(at, 501).payload(&text));
            next[n as usize] = at + text.len() as u32;
            tape.push(
                &Frame::new()
                    .ip4(SERVER, client(n))
                    .tcp(80, 3000)
                    .numbers(501, next[n as usize]),
            );
        }
    }
    let rules =
        "alert http any any -> any any (msg:\"next\"; http.uri; content:\"/next\"; sid:6;)\n";
    let free = sense_tape(&tape, &How::rules(rules));
    let cap = 512 << 10;
    let left = agree(
        &tape,
        &How::rules(rules).set(&format!("app-layer.memcap={cap}")),
    );
    assert!(
        alerts(&free, 6) > alerts(&left, 6) && alerts(&left, 6) > 0,
        "{} and {}",
        alerts(&free, 6),
        alerts(&left, 6)
    );
    assert!(count(&left, "flow.evicted_for_memory") > 0);
    assert!(count(&left, "app_layer.memuse") <= cap);
    // Counted after the packet that passed it: by what one packet can add, in each slice.
    assert!(
        count(&left, "app_layer.memuse_peak") <= cap + 16 * (64 << 10),
        "{}",
        count(&left, "app_layer.memuse_peak")
    );
    assert!(
        count(&free, "app_layer.memuse_peak") > 2 * cap,
        "{}",
        count(&free, "app_layer.memuse_peak")
    );
}

#[test]
fn more_workers_than_slices_are_refused() {
    let folder = Folder::new();
    let path = folder.0.join("x.pcap");
    std::fs::write(&path, Tape::default().pcap()).expect("written");
    let result = std::panic::catch_unwind(|| {
        super::bed::sense(
            &[path],
            &How::rules("").set("threading.slices=3").workers(4),
        )
    });
    let panic = result.err().expect("refused");
    let said = panic.downcast_ref::<String>().expect("text");
    assert!(said.contains("TooManyWorkers"), "{said}");
}

/// Gzip of so many zeros, with an end that says nothing wrong.
fn zeros(count: usize) -> Vec<u8> {
    use std::io::Write;
    let mut to = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    for _ in 0..count / 65_536 {
        to.write_all(&[0; 65_536]).expect("memory");
    }
    to.finish().expect("memory")
}

/// Answers that grow a thousandfold when they are decompressed: memory is that of the limit, and what was given up has a name.
#[test]
fn decompression_bombs() {
    let bomb = zeros(64 << 20);
    let answer = [
        format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n", bomb.len()).as_bytes(),
        &bomb,
    ]
    .concat();
    let mut tape = Tape::default();
    for n in 0..8_u8 {
        tape.session(
            ([10, 2, 0, n], 5000),
            (SERVER, 80),
            &[b"GET /bomb HTTP/1.1\r\nHost: x\r\n\r\n", &answer],
        );
    }
    let rules = "alert http any any -> any any (msg:\"page\"; flow:to_client; http.response_body; content:\"|00 00 00 00|\"; sid:7;)\n\
alert http any any -> any any (msg:\"bomb\"; app-layer-event:http.compression_bomb; sid:8;)\n";
    // Beyond the limit of inspection nothing is decompressed at all.
    let left = agree(&tape, &How::rules(rules));
    assert_eq!(
        (alerts(&left, 7), alerts(&left, 8)),
        (8, 0),
        "{:?}",
        left.summary.rules
    );
    let peak = count(&left, "app_layer.memuse_peak");
    assert!(peak < 8 * (300 << 10), "{peak}");
    // Where more is inspected, the limit of decompression holds, and says so.
    let more = "app-layer.protocols.http.libhtp.default-config.response-body-limit=20mb";
    let left = agree(&tape, &How::rules(rules).set(more));
    assert_eq!(
        (alerts(&left, 7), alerts(&left, 8)),
        (8, 8),
        "{:?}",
        left.summary.rules
    );
    let peak = count(&left, "app_layer.memuse_peak");
    assert!(peak < 8 * (3 << 20), "{peak}");
}

/// More requests in one connection than are kept: the oldest are decided and counted, not held.
#[test]
fn transactions_without_end() {
    let mut tape = Tape::default();
    let requests = "GET /again HTTP/1.1\r\nHost: x\r\n\r\n".repeat(5_000);
    tape.session(
        ([10, 3, 0, 1], 5000),
        (SERVER, 80),
        &[requests.as_bytes(), ANSWER.as_bytes()],
    );
    let rules =
        "alert http any any -> any any (msg:\"again\"; http.uri; content:\"/again\"; sid:9;)\n";
    let left = agree(&tape, &How::rules(rules));
    assert!(
        count(&left, "app_layer.overflowed") > 0,
        "{:?}",
        left.summary.counters
    );
    assert!(alerts(&left, 9) > 0);
    assert!(
        count(&left, "app_layer.memuse_peak") < 4 << 20,
        "{}",
        count(&left, "app_layer.memuse_peak")
    );
}

/// Sessions with nothing but holes: each is counted, nothing is waited for.
#[test]
fn gaps_everywhere() {
    let mut tape = Tape::default();
    for n in 0..200_u32 {
        let to = Frame::new().ip4(client(n), SERVER).tcp(3000, 99);
        tape.push(&to.clone().flags(Frame::SYN).numbers(100, 0));
        tape.push(
            &Frame::new()
                .ip4(SERVER, client(n))
                .tcp(99, 3000)
                .flags(Frame::SYN | Frame::ACK)
                .numbers(500, 101),
        );
        tape.push(&to.clone().numbers(101, 501));
        for hole in 0..20_u32 {
            // 50 bytes that never come, 50 that do, and all acknowledged.
            let at = 101 + hole * 100 + 50;
            tape.push(&to.clone().numbers(at, 501).payload(&[b'.'; 50]));
            tape.push(
                &Frame::new()
                    .ip4(SERVER, client(n))
                    .tcp(99, 3000)
                    .numbers(501, at + 50),
            );
        }
    }
    let left = agree(&tape, &How::rules(""));
    assert_eq!(
        (
            count(&left, "tcp.reassembly_gap"),
            count(&left, "tcp.gap_bytes")
        ),
        (4_000, 200_000)
    );
    assert_eq!(count(&left, "tcp.bytes.delivered"), 200_000);
    assert_eq!(count(&left, "tcp.reassembly_memuse"), 0);
}

/// One pair of hosts has more than its part of a cap while the others want none of it, and gives it back when they do; the same for any number of workers.
#[test]
fn idle_parts_of_a_cap_are_lent() {
    let datagram = |from: [u8; 4], port: u16| {
        Frame::new()
            .ip4(from, SERVER)
            .udp(port, 9)
            .payload(&[b'.'; 1400])
    };
    let one = [203, 0, 113, 1];
    let mut tape = Tape::default();
    // Longer than batches that may be under way.
    for n in 0..15_000_u16 {
        tape.push(&datagram(one, 1 + n % 1500));
    }
    for port in 1501..9_000_u16 {
        tape.push(&datagram(one, port));
    }
    let quiet = tape.frames.len();
    // Others come, more than there is room for.
    for n in 0..45_000_u32 {
        tape.push(&datagram(client(n), 7));
    }
    for (n, (time, _)) in tape.frames.iter_mut().enumerate() {
        *time = START + n as u64 * 1_000;
    }
    let how = How::rules("").set("flow.max-flows=32000");
    let mut first = Tape::default();
    first.frames.extend_from_slice(&tape.frames[..quiet]);
    let left = agree(&first, &how);
    assert_eq!(count(&left, "flow.end.forced"), 0, "9,000 of 32,000 flows");
    assert_eq!(count(&left, "flow.total"), 8_999);
    let left = agree(&tape, &how);
    let forced = count(&left, "flow.end.forced");
    // All flows but those that there is room for; a part is not lent to the last.
    assert!((22_000..30_000).contains(&forced), "{forced}");
}
