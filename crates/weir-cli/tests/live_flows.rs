//! The table of connections under a live `weir run`: floods, a full table, an exhausted pool, timeouts state by state, and all of it
//! without a control program. IPv4; both families, and what translation does to traffic, are in live_nat.rs.

use std::net::{TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::live_bed::{Bed, Run, look_at, pinned, root, stderr, weir};
use crate::live_path;
use crate::live_path::{SERVER, TCP, UDP, ask, connect, octets, serve, settle, udp_socket};
use rustix::process::Signal;
use serde_json::Value;
use weir_kernel::{FrameSocket, pins};
use weir_packet::build::Frame;

const PORTS: [&str; 2] = ["box0", "box1"];
const HOOKS: [&str; 2] = ["tc", "xdp"];
const PATIENCE: Duration = Duration::from_secs(30);
/// Long enough for a handshake, too short for a second SYN.
const ONE_TRY: Duration = Duration::from_millis(700);
const ALIAS: &str = "10.9.9.1";
/// Hosts on both sides that are frames only: no kernel answers for them.
const HERE: &str = "10.0.1.77";
const THERE: &str = "10.0.2.77";
const ACK: u8 = Frame::ACK;
const SYN: u8 = Frame::SYN;
const FIN: u8 = Frame::FIN;
const RST: u8 = Frame::RST;

/// Raw frames into the box from both sides, and what comes out of it.
struct Wires {
    here: FrameSocket,
    there: FrameSocket,
    to_box0: [u8; 6],
    to_box1: [u8; 6],
}

impl Wires {
    fn open(bed: &Bed) -> Wires {
        for (address, port) in [(HERE, "box0"), (THERE, "box1")] {
            let mac = "02:00:00:00:00:09";
            let args = [
                "neigh",
                "add",
                address,
                "lladdr",
                mac,
                "dev",
                port,
                "nud",
                "permanent",
            ];
            bed.middle.ip(&args).expect("neighbour");
        }
        let socket = |ns, name| {
            FrameSocket::open(ns, name, 1 << 24, Duration::from_millis(100)).expect("socket")
        };
        let mac = |name| look_at(&bed.middle, name).0.mac;
        Wires {
            here: socket(&bed.client, "cl0"),
            there: socket(&bed.server, "sv0"),
            to_box0: mac("box0"),
            to_box1: mac("box1"),
        }
    }

    /// From the client's side.
    fn send(&self, frame: Frame) {
        let mut bytes = frame.build();
        bytes[..6].copy_from_slice(&self.to_box0);
        send(&self.here, &bytes);
    }

    /// From the server's side.
    fn answer(&self, frame: Frame) {
        let mut bytes = frame.build();
        bytes[..6].copy_from_slice(&self.to_box1);
        send(&self.there, &bytes);
    }
}

/// Sends a frame as soon as the interface has room for it.
fn send(wire: &FrameSocket, frame: &[u8]) {
    let end = Instant::now() + PATIENCE;
    while let Err(error) = wire.send(frame) {
        assert!(Instant::now() < end, "{error}");
        thread::sleep(Duration::from_micros(50));
    }
}

/// Everything that came out and was not read yet.
fn came_out(wire: &FrameSocket) -> Vec<Vec<u8>> {
    let mut buffer = [0; 2048];
    let mut frames = Vec::new();
    while let Some(frame) = wire.receive(&mut buffer).expect("receives") {
        frames.push(frame.to_vec());
    }
    frames
}

fn holds(frames: &[Vec<u8>], text: &str) -> bool {
    let holds = |frame: &Vec<u8>| frame.windows(text.len()).any(|w| w == text.as_bytes());
    frames.iter().any(holds)
}

fn number(report: &Value, reason: &str) -> u64 {
    report["reasons"][reason].as_u64().unwrap_or(0)
}

/// A flood of 60,000 handshakes that nobody answers, against a table for 4,096 connections.
#[test]
fn answered_connections_survive_a_flood() {
    if !root("answered_connections_survive_a_flood") {
        return;
    }
    const FLOOD: u32 = 60_000;
    let policies = [
        "connections 4096\nall: add-stateful in box0 net-proto ip4 accept\n",
        "connections 4096\nall: add-stateful in box0 net-proto ip4 map ip-saddr 10.9.9.1\n",
        "connections 4096\nall: add-stateful in box0 tcp-dport map ip-saddr 10.9.9.0/28 shuffle tcp-sport\n\
         udp: add-stateful in box0 udp-dport map ip-saddr 10.9.9.1\n",
    ];
    for hook in HOOKS {
        let bed = Bed::build("weirf-syn");
        let [_, heard] = serve(&bed.server, TCP, UDP);
        settle(&bed.client);
        let wires = Wires::open(&bed);
        swallow_flood(&bed);
        for policy in policies {
            let run = Run::start(&bed.middle, policy, &PORTS, &["--hook", hook]);
            let streams: Vec<TcpStream> = (0..64)
                .map(|_| connect(&bed.client, (SERVER[0], TCP), PATIENCE).expect("connects"))
                .collect();
            let datagrams = udp_socket(&bed.client, (SERVER[0], UDP)).expect("socket");
            drop(heard.take());
            // A full device ring drops datagrams during the flood; UDP does not retransmit.
            let lost = AtomicU32::new(0);
            let ask_all = || {
                for (n, stream) in streams.iter().enumerate() {
                    ask(stream, b"still there?").unwrap_or_else(|e| panic!("{n}: {e}"));
                }
                while let Err(error) = ask_datagram(&datagrams) {
                    let lost = lost.fetch_add(1, Ordering::Relaxed) + 1;
                    assert!(lost < 4, "no answers to {lost} datagrams: {error}");
                }
            };
            ask_all();
            let over = AtomicBool::new(false);
            let rounds = thread::scope(|scope| {
                let asking = scope.spawn(|| {
                    let mut rounds = 0;
                    while !over.load(Ordering::Relaxed) {
                        ask_all();
                        rounds += 1;
                    }
                    rounds
                });
                // From both CPUs at once.
                let floods = [0, 1].map(|half| {
                    let wires = &wires;
                    scope.spawn(move || {
                        for n in (half..FLOOD).step_by(2) {
                            let source = [10, 66, (n >> 8) as u8, n as u8];
                            let frame = Frame::new().ip4(source, [10, 0, 5, 5]);
                            wires.send(frame.tcp(1024, 80).flags(SYN));
                        }
                    })
                });
                let floods = floods.map(thread::ScopedJoinHandle::join);
                over.store(true, Ordering::Relaxed);
                for flood in floods {
                    flood.expect("all sent");
                }
                asking.join().expect("every connection answers")
            });
            ask_all();
            // Who comes now is served, too: handshakes of the flood give way.
            let late = connect(&bed.client, (SERVER[0], TCP), PATIENCE).expect("connects");
            ask(&late, b"late").expect("an answer");
            // One connection all the time: a displaced one would have come back with another port, or not at all.
            let peers = heard.take();
            assert!(
                peers.iter().all(|peer| peer == &peers[0]),
                "{hook}, {policy}: {peers:?}"
            );
            let report = run.stop();
            assert!(rounds > 0, "nothing was asked during the flood");
            let displaced = number(&report, "flow_displaced");
            // The table has 6,840 places.
            assert!(
                (u64::from(FLOOD) - 6_840..u64::from(FLOOD) + 10).contains(&displaced),
                "{hook}, {policy}: {report}"
            );
            // A race that three tries did not win is no defect; many would be.
            let lost = number(&report, "flow_busy");
            assert!(lost < 10, "{hook}, {policy}: {report}");
            assert_eq!(
                report["packets"]["drop"], lost,
                "{hook}, {policy}: {report}"
            );
        }
    }
}

fn ask_datagram(socket: &UdpSocket) -> std::io::Result<()> {
    socket.send(b"datagram")?;
    socket.recv(&mut [0; 64]).map(drop)
}

/// While a flood fills every place, new connections still keep their source ports, and tuples of which there is one choice only are had.
#[test]
fn a_flood_takes_no_translated_tuples() {
    if !root("a_flood_takes_no_translated_tuples") {
        return;
    }
    let policy = "connections 4096\n\
        tcp: add-stateful in box0 tcp-dport map ip-saddr 10.9.9.1 map tcp-sport 7\n\
        udp: add-stateful in box0 udp-dport map ip-saddr 10.9.9.1\n";
    for hook in HOOKS {
        let bed = Bed::build("weirf-port");
        let [_, peers] = serve(&bed.server, TCP, UDP);
        settle(&bed.client);
        let wires = Wires::open(&bed);
        swallow_flood(&bed);
        let run = Run::start(&bed.middle, policy, &PORTS, &["--hook", hook]);
        for n in 0..20_000u16 {
            let [high, low] = n.to_be_bytes();
            let frame = Frame::new().ip4([10, 66, high, low], [10, 0, 5, 5]);
            wires.send(frame.udp(1024 + n, 80));
        }
        let kept = (0..200).filter(|_| {
            let socket = udp_socket(&bed.client, (SERVER[0], UDP)).expect("socket");
            ask_datagram(&socket).expect("an answer");
            let port = socket.local_addr().expect("bound").port();
            peers.take().last().is_some_and(|peer| peer.port() == port)
        });
        let kept = kept.count();
        for n in 0..1000u16 {
            // To a port each, so all can leave from the same one.
            let frame = Frame::new().ip4([10, 77, 0, 1], [10, 0, 5, 5]);
            wires.send(frame.tcp(5000, 1000 + n).flags(SYN));
        }
        let report = run.stop();
        assert!(
            number(&report, "flow_displaced") > 10_000,
            "{hook}: {report}"
        );
        assert!(
            kept >= 199,
            "{hook}: {kept} of 200 kept their port; {report}"
        );
        assert!(number(&report, "pool_busy") <= 10, "{hook}: {report}");
    }
}

/// The server does not forward, so what is sent there ends without an answer.
fn swallow_flood(bed: &Bed) {
    bed.middle
        .ip(&["route", "add", "10.0.5.0/24", "via", "10.0.2.2"])
        .expect("route");
}

/// A table for 60 connections, full of answered ones: new ones are refused and counted, old ones work, and time makes room.
#[test]
fn a_full_table_refuses_new_connections() {
    if !root("a_full_table_refuses_new_connections") {
        return;
    }
    const ASKED: u16 = 1000;
    /// Less than the time-out of UDP in the policy: after it, refusing says nothing about the table.
    const STILL_FULL: Duration = Duration::from_secs(2);
    for hook in HOOKS {
        let bed = Bed::build("weirf-full");
        serve(&bed.server, TCP, UDP);
        settle(&bed.client);
        let wires = Wires::open(&bed);
        let policy = "connections 60\ntimeout udp-stream 2s\n\
            all: add-stateful in box0 net-proto ip4 accept\n";
        let run = Run::start(&bed.middle, policy, &PORTS, &["--hook", hook]);
        let stream = connect(&bed.client, (SERVER[0], TCP), PATIENCE).expect("connects");
        ask(&stream, b"before").expect("an answer");
        for port in 1..=ASKED {
            let frame = Frame::new().ip4(octets(HERE), octets(THERE));
            wires.send(frame.udp(port, 9));
            let frame = Frame::new().ip4(octets(THERE), octets(HERE));
            wires.answer(frame.udp(9, port));
        }
        let filled = Instant::now();
        ask(&stream, b"full").expect("an answer");
        let refused = connect(&bed.client, (SERVER[0], TCP), ONE_TRY);
        assert!(refused.is_err(), "{hook}: there was room");
        assert!(filled.elapsed() < STILL_FULL, "too slow a bed");
        thread::sleep(Duration::from_millis(2500).saturating_sub(filled.elapsed()));
        let late = connect(&bed.client, (SERVER[0], TCP), PATIENCE).expect("room again");
        ask(&late, b"after").expect("an answer");
        ask(&stream, b"after").expect("an answer");
        let report = run.stop();
        let full = number(&report, "flow_full");
        // 105 places in all; one is the stream's, and two choices may leave a few empty.
        assert!((890..=950).contains(&full), "{hook}: {report}");
        assert_eq!(report["packets"]["drop"], full, "{hook}: {report}");
        assert_eq!(number(&report, "flow_displaced"), 0, "{hook}: {report}");
    }
}

/// One address and four ports for everybody: the fifth connection to the same server is refused until one of them is closed.
#[test]
fn an_exhausted_pool_refuses_new_connections() {
    if !root("an_exhausted_pool_refuses_new_connections") {
        return;
    }
    for hook in HOOKS {
        let bed = Bed::build("weirf-pool");
        serve(&bed.server, TCP, UDP);
        serve(&bed.server, TCP + 1, UDP + 1);
        settle(&bed.client);
        let policy = "timeout tcp-time-wait 1s\ntimeout tcp-last-ack 1s\ntimeout udp-stream 1s\n\
            tcp: add-stateful in box0 tcp-dport map ip-saddr 10.9.9.1 map tcp-sport 40000-40003\n\
            udp: add-stateful in box0 udp-dport map ip-saddr 10.9.9.1 map udp-sport 40000-40003\n";
        let run = Run::start(&bed.middle, policy, &PORTS, &["--hook", hook]);
        let to = (SERVER[0], TCP);
        let mut streams: Vec<TcpStream> = (0..4)
            .map(|_| connect(&bed.client, to, PATIENCE).expect("connects"))
            .collect();
        let sockets: Vec<UdpSocket> = (0..5)
            .map(|_| udp_socket(&bed.client, (SERVER[0], UDP)).expect("socket"))
            .collect();
        for socket in &sockets[..4] {
            ask_datagram(socket).expect("an answer");
        }
        sockets[4]
            .set_read_timeout(Some(Duration::from_millis(200)))
            .expect("set");
        assert!(ask_datagram(&sockets[4]).is_err(), "{hook}: a fifth port");
        assert!(
            connect(&bed.client, to, ONE_TRY).is_err(),
            "{hook}: a fifth port"
        );
        for stream in &streams {
            ask(stream, b"still mine").expect("an answer");
        }
        // Another service may be reached from the same ports.
        let other = connect(&bed.client, (SERVER[0], TCP + 1), PATIENCE).expect("connects");
        ask(&other, b"yes").expect("an answer");

        drop(streams.pop());
        thread::sleep(Duration::from_millis(1500));
        let fifth = connect(&bed.client, to, ONE_TRY).expect("a port is free");
        ask(&fifth, b"mine now").expect("an answer");
        ask_datagram(&sockets[4]).expect("a port is free");
        for stream in &streams {
            ask(stream, b"still mine").expect("an answer");
        }
        let report = run.stop();
        let busy = number(&report, "pool_busy");
        // A SYN, perhaps sent again, and a datagram.
        assert!((2..=4).contains(&busy), "{hook}: {report}");
        assert_eq!(report["packets"]["drop"], busy, "{hook}: {report}");
    }
}

/// A connection in every state, each with its own time: half a second before it is over an answer comes in, half a second after
/// it none does.
#[test]
fn every_state_has_its_time() {
    if !root("every_state_has_its_time") {
        return;
    }
    thread::scope(|scope| {
        for hook in HOOKS {
            scope.spawn(move || every_state(hook));
        }
    });
}

fn every_state(hook: &str) {
    let bed = Bed::build("weirf-time");
    let wires = Wires::open(&bed);
    let mut policy = "nat: add-stateful in box0 net-proto ip4 map ip-saddr 10.9.9.1\n".to_owned();
    for (n, state) in STATES.iter().enumerate() {
        policy += &format!("timeout {} {}ms\n", state.name, time_of(n).as_millis());
    }
    let run = Run::start(&bed.middle, &policy, &PORTS, &["--hook", hook]);
    let mut probes = Vec::new();
    for (n, state) in STATES.iter().enumerate() {
        // An answer makes a connection young again, so there are two of each.
        for (k, late) in [false, true].into_iter().enumerate() {
            let id = (100 + 2 * n + k) as u16;
            for step in state.steps {
                wires.step(step, id, "setup");
            }
            let half = Duration::from_millis(500);
            let at = if late {
                time_of(n) + half
            } else {
                time_of(n) - half
            };
            probes.push((Instant::now(), at, state, id, late));
        }
    }
    probes.sort_by_key(|&(since, at, ..)| since + at);
    for &(since, at, state, id, late) in &probes {
        thread::sleep(at.saturating_sub(since.elapsed()));
        let delay = since.elapsed() - at;
        assert!(delay < Duration::from_millis(450), "too slow a bed");
        let word = if late { "late" } else { "early" };
        wires.step(&state.probe, id, &format!("{word} {}", state.name));
    }
    let frames = [came_out(&wires.here), came_out(&wires.there)];
    run.stop();
    for state in STATES {
        let name = state.name;
        // Behind the box: it answers what it cannot route with a quote.
        let frames = &frames[usize::from(matches!(state.probe, Step::LaterFragment))];
        assert!(
            holds(frames, &format!("early {name}.")),
            "{hook}: {name} was over too early"
        );
        assert!(
            !holds(frames, &format!("late {name}.")),
            "{hook}: {name} lasts too long"
        );
    }
}

/// Times lie 600 ms apart, so that a state with its neighbour's time is found out.
fn time_of(n: usize) -> Duration {
    Duration::from_millis(1000 + 600 * n as u64)
}

/// How a connection gets into a state, and the packet that shows whether it is there.
struct State {
    name: &'static str,
    steps: &'static [Step],
    probe: Step,
}

/// A packet of one side.
enum Step {
    /// TCP flags from the client.
    Tcp(u8),
    /// TCP flags from the server.
    TcpBack(u8),
    /// TCP flags from the client without a word, so far behind its first byte and acknowledging so much.
    TcpAt(u8, u32, u32),
    /// The same from the server.
    TcpBackAt(u8, u32, u32),
    Udp,
    UdpBack,
    Echo,
    EchoBack,
    FirstFragment,
    LaterFragment,
}

/// Bytes of "setup.", which every step says that prepares a state.
const SPOKEN: u32 = 6;

const HANDSHAKE: [Step; 3] = [Step::Tcp(SYN), Step::TcpBack(SYN | ACK), Step::Tcp(ACK)];

const STATES: &[State] = &[
    State {
        name: "fragment",
        steps: &[Step::FirstFragment],
        probe: Step::LaterFragment,
    },
    State {
        name: "tcp-syn-sent",
        steps: &[Step::Tcp(SYN)],
        probe: Step::TcpBack(SYN | ACK),
    },
    State {
        name: "tcp-syn-recv",
        steps: &[Step::Tcp(SYN), Step::TcpBack(SYN | ACK)],
        probe: Step::TcpBack(SYN | ACK),
    },
    State {
        name: "tcp-fin-wait",
        steps: &[
            Step::Tcp(SYN),
            Step::TcpBack(SYN | ACK),
            Step::Tcp(ACK),
            Step::TcpBack(FIN | ACK),
        ],
        probe: Step::TcpBack(ACK),
    },
    State {
        name: "tcp-close-wait",
        steps: &[
            Step::Tcp(SYN),
            Step::TcpBack(SYN | ACK),
            Step::Tcp(ACK),
            Step::TcpBack(FIN | ACK),
            Step::TcpAt(ACK, SPOKEN, SPOKEN + 1),
        ],
        probe: Step::TcpBack(ACK),
    },
    State {
        name: "tcp-last-ack",
        steps: &[
            Step::Tcp(SYN),
            Step::TcpBack(SYN | ACK),
            Step::Tcp(FIN | ACK),
            Step::TcpBack(FIN | ACK),
        ],
        probe: Step::TcpBack(ACK),
    },
    State {
        name: "tcp-time-wait",
        steps: &[
            Step::Tcp(SYN),
            Step::TcpBack(SYN | ACK),
            Step::Tcp(FIN | ACK),
            Step::TcpBack(FIN | ACK),
            Step::TcpAt(ACK, SPOKEN + 1, SPOKEN + 1),
            Step::TcpBackAt(ACK, SPOKEN + 1, SPOKEN + 1),
        ],
        probe: Step::TcpBack(ACK),
    },
    State {
        name: "tcp-close",
        steps: &[Step::Tcp(SYN), Step::TcpBack(RST | ACK)],
        probe: Step::TcpBack(RST | ACK),
    },
    State {
        name: "udp-unreplied",
        steps: &[Step::Udp],
        probe: Step::UdpBack,
    },
    State {
        name: "udp-stream",
        steps: &[Step::Udp, Step::UdpBack],
        probe: Step::UdpBack,
    },
    State {
        name: "icmp",
        steps: &[Step::Echo],
        probe: Step::EchoBack,
    },
    State {
        name: "tcp-retrans",
        steps: &[
            Step::Tcp(SYN),
            Step::TcpBack(SYN | ACK),
            Step::Tcp(ACK),
            Step::Tcp(ACK),
            Step::Tcp(ACK),
            Step::Tcp(ACK),
        ],
        probe: Step::TcpBack(ACK),
    },
    State {
        name: "tcp-unack",
        steps: &HANDSHAKE,
        probe: Step::TcpBack(ACK),
    },
    State {
        name: "tcp-established",
        steps: &[
            Step::Tcp(SYN),
            Step::TcpBack(SYN | ACK),
            Step::Tcp(ACK),
            Step::TcpBackAt(ACK, SPOKEN, SPOKEN),
            Step::TcpAt(ACK, SPOKEN, SPOKEN),
        ],
        probe: Step::TcpBack(ACK),
    },
];

impl Wires {
    /// Sends a packet of the connection `id` that says `text`.
    fn step(&self, step: &Step, id: u16, text: &str) {
        let text = format!("{text}.");
        let out = Frame::new()
            .ip4(octets(HERE), octets(THERE))
            .payload(text.as_bytes());
        let back = Frame::new()
            .ip4(octets(THERE), octets(ALIAS))
            .payload(text.as_bytes());
        match *step {
            // Numbers that are right however much was said: what a side says first is never acknowledged.
            Step::Tcp(flags) => {
                let number = 1000 + u32::from(flags & SYN == 0);
                self.send(out.tcp(id, 9).flags(flags).numbers(number, 5001));
            }
            Step::TcpBack(flags) => {
                let number = 5000 + u32::from(flags & SYN == 0);
                self.answer(back.tcp(9, id).flags(flags).numbers(number, 1001));
            }
            Step::TcpAt(flags, sent, acked) => {
                let out = out.payload(&[]).tcp(id, 9).flags(flags);
                self.send(out.numbers(1001 + sent, 5001 + acked));
            }
            Step::TcpBackAt(flags, sent, acked) => {
                let back = back.payload(&[]).tcp(9, id).flags(flags);
                self.answer(back.numbers(5001 + sent, 1001 + acked));
            }
            Step::Udp => self.send(out.udp(id, 9)),
            Step::UdpBack => self.answer(back.udp(9, id)),
            Step::Echo => self.send(out.icmp(8, 0).echo(id, 1)),
            Step::EchoBack => self.answer(back.icmp(0, 0).echo(id, 1)),
            Step::FirstFragment => {
                let out = out.payload(&[0; 64]).udp(id, 9).udp_len(200);
                self.send(out.id(id).fragment(0, true));
            }
            Step::LaterFragment => self.send(out.protocol(17).id(id).fragment(9, false)),
        }
    }
}

/// The program that was left behind by a killed `weir run` keeps translating, opens connections and forgets them in time.
#[test]
fn connections_need_no_control_program() {
    if !root("connections_need_no_control_program") {
        return;
    }
    pins::ensure_bpffs().expect("bpffs");
    for hook in HOOKS {
        let bed = Bed::build("weirf-kill");
        let [tcp_peers, _] = serve(&bed.server, TCP, UDP);
        settle(&bed.client);
        drop(tcp_peers.take());
        let wires = Wires::open(&bed);
        let policy = "timeout udp-unreplied 1s\ntimeout udp-stream 1s\n\
            nat: add-stateful in box0 net-proto ip4 map ip-saddr 10.9.9.1\n";
        let run = Run::start(&bed.middle, policy, &PORTS, &["--hook", hook]);
        let stream = connect(&bed.client, (SERVER[0], TCP), PATIENCE).expect("connects");
        wires.step(&Step::Udp, 500, "before");
        run.signal(Signal::KILL);
        drop(run.wait());
        assert!(pinned(&bed.middle) > 0, "{hook}: pinned");

        ask(&stream, b"still there?").expect("an answer");
        let new = connect(&bed.client, (SERVER[0], TCP), PATIENCE).expect("connects");
        ask(&new, &live_path::message(100_000)).expect("an answer");
        let seen = tcp_peers.take();
        assert!(seen.iter().all(|p| p.ip().to_string() == ALIAS), "{seen:?}");
        wires.step(&Step::UdpBack, 500, "in time");
        thread::sleep(Duration::from_millis(1300));
        wires.step(&Step::UdpBack, 500, "too late");
        let frames = came_out(&wires.here);
        assert!(holds(&frames, "in time."), "{hook}");
        assert!(!holds(&frames, "too late."), "{hook}");

        let down = weir(&bed.middle, &["down"]);
        assert!(down.status.success(), "{}", stderr(&down));
        assert_eq!(pinned(&bed.middle), 0, "{hook}");
        drop(new);
        let plain = connect(&bed.client, (SERVER[0], TCP), PATIENCE).expect("connects");
        ask(&plain, b"plain").expect("an answer");
        let seen = tcp_peers.take();
        assert!(
            seen.iter().all(|p| p.ip().to_string() == "10.0.1.2"),
            "{seen:?}"
        );
    }
}
