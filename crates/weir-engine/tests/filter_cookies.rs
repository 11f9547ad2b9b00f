//! SYN cookies live: a TCP server behind the filter and clients in another namespace, both families.
//!
//! The server's namespace has tcp_syncookies = 2. The first SYN for a while goes through to the stack; the others are answered by the filter. A flow without
//! a handshake gets nothing through.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use crate::filters;
use crate::filters::runs::load;
use crate::filters::{compiled, filter, is_root};
use weir_bpf::abi::Stats;
use weir_kernel::bed::{self, End};
use weir_kernel::{KernelObject, LoadedProgram, NetNs, XdpMode, iface};
use weir_packet::build::Frame;
use weir_packet::{Reason, checksum};
use zerocopy::FromBytes;

const PORT: u16 = 8080;

fn stats(program: &LoadedProgram) -> Stats {
    let mut sum: Option<Stats> = None;
    for one in program
        .lookup_percpu("stats", &0u32.to_ne_bytes())
        .expect("read")
    {
        let one = Stats::read_from_bytes(&one).expect("its size");
        sum = Some(match sum {
            None => one,
            Some(mut sum) => {
                sum.received += one.received;
                sum.verdict
                    .iter_mut()
                    .zip(one.verdict)
                    .for_each(|(a, b)| *a += b);
                sum.reason
                    .iter_mut()
                    .zip(one.reason)
                    .for_each(|(a, b)| *a += b);
                sum
            }
        });
    }
    sum.expect("a CPU")
}

/// Sends a request and takes the answer, both of several segments.
fn talk(address: &str) {
    let address: SocketAddr = address.parse().expect("an address");
    let mut stream =
        TcpStream::connect_timeout(&address, Duration::from_secs(5)).expect("connects");
    stream
        .set_read_timeout(Some(Duration::from_secs(5)))
        .expect("a timeout");
    stream.write_all(&[7; 20_000]).expect("sent");
    let mut answer = vec![0; 40_000];
    stream.read_exact(&mut answer).expect("answered");
    assert!(answer.iter().all(|byte| *byte == 9));
}

#[test]
fn handshakes_are_completed_before_the_server_sees_anything() {
    if !is_root() {
        return;
    }
    let server = NetNs::create("weir-cookie-server").expect("namespace");
    let client = NetNs::create("weir-cookie-client").expect("namespace");
    let end = |ns, name, addresses| End {
        ns,
        name,
        addresses,
    };
    bed::veth(
        end(&server, "s0", &["10.77.0.1/24", "fd77::1/64"]),
        end(&client, "c0", &["10.77.0.2/24", "fd77::2/64"]),
    )
    .expect("veth");
    server
        .sysctl("net.ipv4.tcp_syncookies", "2")
        .expect("sysctl");
    let filter = filter(&format!("rules = [\"syncookie to-port {PORT}\"]"));
    let compiled = compiled(&filter).expect("compiles");
    let program = load(&compiled, &[("weir_csum_mode", 1)]);
    let pass = KernelObject::open(weir_bpf::baseline("harness").expect("compiled"))
        .and_then(|object| object.load("harness"))
        .expect("loads");
    let _links = [(&server, "s0", &program), (&client, "c0", &pass)].map(|(ns, name, program)| {
        ns.run(|| program.attach_xdp(iface::index_of(name)?, XdpMode::Native))
            .expect("a namespace")
            .expect("attached")
    });
    for (bind, connect) in [("10.77.0.1", "10.77.0.1"), ("[fd77::1]", "[fd77::1]")] {
        let before = stats(&program);
        let listener = server
            .run(|| TcpListener::bind(format!("{bind}:{PORT}")))
            .expect("a namespace")
            .expect("listens");
        const TALKS: u64 = 5;
        let serving = std::thread::spawn(move || {
            for _ in 0..TALKS {
                let (mut stream, _) = listener.accept().expect("accepted");
                let mut request = vec![0; 20_000];
                stream.read_exact(&mut request).expect("asked");
                stream.write_all(&[9; 40_000]).expect("sent");
            }
        });
        for _ in 0..TALKS {
            client
                .run(|| talk(&format!("{connect}:{PORT}")))
                .expect("a namespace");
        }
        serving.join().expect("served");
        let after = stats(&program);
        // All SYNs but the first are answered here.
        assert_eq!(
            after.verdict[3] - before.verdict[3],
            TALKS - 1,
            "answers to {connect}"
        );
        assert_eq!(
            after.reason[Reason::CookieBad as usize],
            before.reason[Reason::CookieBad as usize]
        );
        assert_eq!(after.received, after.verdict.iter().sum::<u64>());
    }
    let wrong = server
        .run(|| bed::counter(&server, "Tcp", "InCsumErrors"))
        .expect("a namespace")
        .expect("counters");
    assert_eq!(wrong, Some(0), "checksums of what the server received");
    let wrong = bed::counter(&client, "Tcp", "InCsumErrors").expect("counters");
    assert_eq!(wrong, Some(0), "checksums of what the client received");
}

/// A listening socket that has sent no cookie itself resets whoever brings one: the first SYN for every destination must reach it, also
/// when many destinations are asked for at once.
#[test]
fn the_first_syns_for_many_destinations_reach_the_stack() {
    const PASS: u32 = 2;
    const ANSWERED: u32 = 3;
    const AT_ONCE: u8 = 100;
    const BEGIN_NS: u64 = 1_000_000_000_000;
    let filter = filter(&format!("rules = [\"syncookie to-port {PORT}\"]"));
    let compiled = compiled(&filter).expect("compiles");
    for mut run in filters::engines(&compiled) {
        let mut out = Vec::new();
        let mut syn = |host: u8, at_ns: u64| {
            let frame = Frame::new()
                .ip4([10, 0, 0, 1], [192, 0, 2, host])
                .tcp(1, PORT)
                .flags(2);
            run.packet(&frame.build(), BEGIN_NS + at_ns, &mut out)
        };
        for host in 0..AT_ONCE {
            assert_eq!(syn(host, 0), PASS, "destination {host}");
            assert_eq!(syn(host, 1), ANSWERED, "destination {host} again");
        }
        assert_eq!(syn(AT_ONCE, 2), ANSWERED, "one destination too many");
        // It was not let through, so it need not wait for 20 s.
        assert_eq!(syn(AT_ONCE, 10_000_000), PASS, "as soon as the rule may");
        assert_eq!(syn(AT_ONCE, 20_000_000), ANSWERED);
        assert_eq!(syn(AT_ONCE, 20_010_000_000), PASS, "20 s later");
    }
}

#[test]
fn what_belongs_to_no_handshake_is_dropped() {
    let filter = filter(&format!("rules = [\"syncookie to-port {PORT}\"]"));
    let compiled = compiled(&filter).expect("compiles");
    for mut run in filters::engines(&compiled) {
        let mut out = Vec::new();
        let numbered = |port: u16, flags: u8, seq: u32, ack: u32| {
            Frame::new()
                .ip4([10, 0, 0, 1], [192, 0, 2, 1])
                .tcp(port, PORT)
                .flags(flags)
                .numbers(seq, ack)
                .build()
        };
        let segment = |port, flags, ack| numbered(port, flags, 1000, ack);
        // The first SYN for a destination goes to the stack.
        assert_eq!(
            run.packet(&segment(1, 2, 0), 1_000_000_000_000, &mut out),
            2,
            "{}",
            run.name()
        );
        for (flags, what) in [
            (16, "ACK"),
            (24, "data"),
            (17, "FIN"),
            (4, "RST"),
            (18, "SYN-ACK"),
            (0, "nothing"),
            (6, "SYN-RST"),
        ] {
            let verdict = run.packet(&segment(2, flags, 5), 1_000_000_000_001, &mut out);
            assert_eq!(verdict, 1, "{}: {what}", run.name());
        }
        // A SYN is answered, and an acknowledgement of the answer opens the flow, for data, too.
        assert_eq!(
            run.packet(&segment(3, 2, 0), 1_000_000_000_002, &mut out),
            3,
            "{}",
            run.name()
        );
        let layout = weir_packet::parse::parse(&out).expect("the answer is well formed");
        let l4 = layout.l4.expect("TCP");
        let cookie = u32::from_be_bytes(out[l4.at + 4..l4.at + 8].try_into().expect("4 bytes"));
        assert_eq!(
            out[l4.at + 8..l4.at + 12],
            1001u32.to_be_bytes(),
            "acknowledges the SYN"
        );
        assert_eq!(out[l4.at + 13], 0x12);
        assert_eq!(
            l4.options
                .iter()
                .map(|o| (o.kind, o.len))
                .collect::<Vec<_>>(),
            [(2, 4)]
        );
        let pseudo = checksum::pseudo_header4([192, 0, 2, 1], [10, 0, 0, 1], 6, 24);
        assert_eq!(
            checksum::fold(pseudo + checksum::sum(&out[l4.at..])),
            0xffff,
            "{}: checksum of the answer",
            run.name()
        );
        let third = numbered(3, 16, 1001, cookie.wrapping_add(1));
        assert_eq!(
            run.packet(&third, 1_000_000_000_003, &mut out),
            2,
            "{}: the cookie comes back",
            run.name()
        );
        assert_eq!(
            run.packet(&segment(3, 24, 77), 1_000_000_000_004, &mut out),
            2,
            "{}: data",
            run.name()
        );
        assert_eq!(
            run.packet(&segment(4, 24, 77), 1_000_000_000_005, &mut out),
            1,
            "{}: another flow",
            run.name()
        );
        let udp = Frame::new()
            .ip4([10, 0, 0, 1], [192, 0, 2, 1])
            .udp(5, PORT)
            .build();
        assert_eq!(
            run.packet(&udp, 1_000_000_000_006, &mut out),
            2,
            "{}: UDP is nobody's affair",
            run.name()
        );
    }
}
