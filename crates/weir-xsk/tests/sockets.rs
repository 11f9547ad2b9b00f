//! Sockets on a veth in a namespace of their own: no frame is ever lost or doubled as a token, statistics count exactly what happened, and what cannot be
//! is an error that says so. Needs root; without it the tests say that they were skipped, and in CI that is a failure.

use std::io::Write as _;
use std::time::{Duration, Instant};

use weir_kernel::bed::{self, End};
use weir_kernel::{NetNs, XdpMode};
use weir_xsk::{
    Frame, Kick, Losses, Match, Mode, Port, Socket, SocketConfig, Statistics, Steer, Umem,
    UmemConfig, Wait, XskError, XskPort, steer, umem,
};

const ETHERTYPE: u16 = 0x88b5;
/// Longest wait for frames.
const PATIENCE: Duration = Duration::from_secs(20);

/// Whether there are privileges.
pub(crate) fn root() -> bool {
    if rustix::process::geteuid().is_root() {
        return true;
    }
    assert!(
        std::env::var("CI").as_deref() != Ok("true"),
        "this test needs root, and in CI it may not skip"
    );
    let _ = std::io::stderr().write_all(b"skipped, it needs root\n");
    false
}

/// `xa` and `xb` joined in one namespace; `None` without privileges.
fn pair() -> Option<NetNs> {
    if !root() {
        return None;
    }
    let ns = NetNs::create("weir-xsk").expect("namespace");
    for which in ["all", "default"] {
        ns.sysctl(&format!("net.ipv6.conf.{which}.disable_ipv6"), "1")
            .expect("IPv6 off");
    }
    let end = |name| End {
        ns: &ns,
        name,
        addresses: &[],
    };
    bed::veth(end("xa"), end("xb")).expect("veth");
    Some(ns)
}

/// Runs in the namespace.
fn inside(ns: &NetNs, work: impl FnOnce() + Send) {
    ns.run(work).expect("namespace");
}

fn frames(count: u32) -> UmemConfig {
    UmemConfig {
        frames: count,
        frame_size: 2048,
        ..UmemConfig::default()
    }
}

/// A frame to nobody, told apart by its last byte.
fn write(umem: &Umem, frame: &mut Frame, number: u8) {
    let bytes = umem.prepare(frame, 0, 60).expect("fits");
    bytes.fill(0);
    bytes[..6].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
    bytes[12..14].copy_from_slice(&ETHERTYPE.to_be_bytes());
    bytes[59] = number;
}

/// Sends all of `frames` and waits until they are back.
fn send_all(socket: &mut Socket, frames: &mut Vec<Frame>) {
    let want = frames.len();
    let begun = Instant::now();
    let mut back = Vec::new();
    while back.len() < want {
        socket.send(frames).expect("sends");
        if socket.tx_needs_kick() {
            while socket.kick().expect("kicks") != Kick::Done {}
        }
        socket.complete(&mut back, usize::MAX).expect("completes");
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "{} of {want}",
            back.len()
        );
    }
    frames.append(&mut back);
}

/// Waits until the kernel has counted what it was sent.
fn settled(socket: &Socket, enough: impl Fn(&Statistics) -> bool) -> Statistics {
    let begun = Instant::now();
    loop {
        let s = socket.statistics().expect("told");
        if enough(&s) || begun.elapsed() > Duration::from_secs(5) {
            return s;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn every_token_comes_back_once() {
    let Some(ns) = pair() else { return };
    inside(&ns, || {
        let (umem, mut all) = Umem::new(&frames(64)).expect("memory");
        let config = SocketConfig {
            rx: 0,
            tx: 16,
            completion: 64,
            ..SocketConfig::default()
        };
        let mut socket = Socket::open(&umem, "xa", &config).expect("opens");
        for round in 0..50 {
            for frame in &mut all {
                write(&umem, frame, round);
            }
            send_all(&mut socket, &mut all);
            assert_eq!(all.len(), 64);
            for (n, frame) in all.iter().enumerate() {
                assert!(!all[..n].contains(frame), "a frame came back twice");
            }
        }
        assert_eq!(socket.unsent(), 0);
        assert_eq!(socket.statistics().expect("told").tx_invalid, 0);
        let effective = socket.effective().expect("told");
        assert!(!effective.zero_copy, "a veth copies");
        assert!(
            effective.tx_needs_wakeup,
            "in copy mode the kernel always asks"
        );
        let wrong = socket.receive(&mut Vec::new(), 1);
        assert!(matches!(wrong, Err(XskError::NoRing { ring: "RX", .. })));
    });
}

#[test]
fn frames_of_others_are_refused_and_kept() {
    let Some(ns) = pair() else { return };
    inside(&ns, || {
        let (umem, mut own) = Umem::new(&frames(8)).expect("memory");
        let (_other, mut others) = Umem::new(&frames(8)).expect("memory");
        let mut socket = Socket::open(&umem, "xa", &SocketConfig::default()).expect("opens");
        let mut mixed: Vec<Frame> = vec![
            own.pop().expect("one"),
            others.pop().expect("one"),
            own.pop().expect("one"),
        ];
        let wrong = socket.send(&mut mixed);
        assert!(matches!(wrong, Err(XskError::ForeignFrame { .. })));
        assert_eq!(mixed.len(), 2, "only the one before it went");
        // Given from the end: one goes, then the foreign one is met.
        let wrong = socket.fill(&mut mixed);
        assert!(matches!(wrong, Err(XskError::ForeignFrame { .. })));
        assert_eq!(mixed.len(), 1);
        assert!(!umem.owns(&mixed[0]));
    });
}

#[test]
fn statistics_name_what_was_lost() {
    let Some(ns) = pair() else { return };
    inside(&ns, || {
        let steer = Steer::attach("xb", XdpMode::Native, Match::EtherType(ETHERTYPE), false)
            .expect("attaches");
        let (there, mut to_fill) = Umem::new(&frames(64)).expect("memory");
        let config = SocketConfig {
            rx: 8,
            tx: 0,
            fill: 32,
            ..SocketConfig::default()
        };
        let mut receiver = Socket::open(&there, "xb", &config).expect("opens");
        steer.add(&receiver).expect("added");
        to_fill.truncate(16);
        assert_eq!(receiver.fill(&mut to_fill).expect("fills"), 16);
        let (umem, mut all) = Umem::new(&frames(20)).expect("memory");
        let mut sender = Socket::open(
            &umem,
            "xa",
            &SocketConfig {
                rx: 0,
                ..SocketConfig::default()
            },
        )
        .expect("opens");
        for (n, frame) in all.iter_mut().enumerate() {
            write(&umem, frame, n as u8);
        }
        send_all(&mut sender, &mut all);
        // Eight fit the ring; the others found it full.
        let s = settled(&receiver, |s| s.rx_ring_full + s.rx_dropped >= 12);
        assert_eq!((s.rx_ring_full, s.rx_dropped), (12, 0), "{s:?}");
        let mut got = Vec::new();
        assert_eq!(receiver.receive(&mut got, 100).expect("receives"), 8);
        for (n, frame) in got.iter().enumerate() {
            assert_eq!(there.bytes(frame)[59], n as u8);
            assert_eq!(frame.len(), 60);
        }
        // Now frames run out: 8 are left in the fill ring, the ring is read as it fills.
        for frame in &mut all {
            write(&umem, frame, 0);
        }
        for mut one in all.drain(..).map(|frame| vec![frame]) {
            send_all(&mut sender, &mut one);
            let begun = Instant::now();
            while receiver.receive(&mut got, 1).expect("receives") == 0
                && begun.elapsed() < Duration::from_millis(20)
            {
                std::hint::spin_loop();
            }
        }
        let seen = got.len() - 8;
        let s = settled(&receiver, |s| s.rx_dropped >= 12);
        assert_eq!((seen, s.rx_dropped), (8, 12), "{s:?}");
        assert!(s.rx_fill_ring_empty > 0, "{s:?}");
        let counted = steer.counted().expect("told");
        assert_eq!((counted.steered, counted.lonely), (40, 0));
        steer.detach().expect("detaches");
    });
}

#[test]
fn frames_that_were_read_go_back_at_once() {
    let Some(ns) = pair() else { return };
    inside(&ns, || {
        let steer = Steer::attach("xb", XdpMode::Native, Match::EtherType(ETHERTYPE), false)
            .expect("attaches");
        let (there, mut to_fill) = Umem::new(&frames(13)).expect("memory");
        let config = SocketConfig {
            rx: 8,
            tx: 0,
            fill: 8,
            ..SocketConfig::default()
        };
        let mut receiver = Socket::open(&there, "xb", &config).expect("opens");
        steer.add(&receiver).expect("added");
        let mut more = to_fill.split_off(8);
        assert_eq!(receiver.fill(&mut to_fill).expect("fills"), 8);
        let (umem, mut all) = Umem::new(&frames(8)).expect("memory");
        let config = SocketConfig {
            rx: 0,
            ..SocketConfig::default()
        };
        let mut sender = Socket::open(&umem, "xa", &config).expect("opens");
        let mut spare = Vec::new();
        let mut next = 0;
        let mut send = |count: usize| {
            for frame in &mut all[..count] {
                write(&umem, frame, next);
                next += 1;
            }
            let mut rest = all.split_off(count);
            send_all(&mut sender, &mut all);
            all.append(&mut rest);
        };
        // Reads until so many came, in steps of at most so many.
        let mut expected = 0;
        let mut read = |receiver: &mut Socket, spare: &mut Vec<Frame>, count: usize, most| {
            let begun = Instant::now();
            let mut seen = 0;
            while seen < count && begun.elapsed() < Duration::from_secs(10) {
                let lent = receiver.read(most, spare, |umem, frame| {
                    let bytes = umem.bytes_mut(frame);
                    assert_eq!((bytes.len(), bytes[59]), (60, expected));
                    expected += 1;
                });
                let lent = lent.expect("reads");
                assert!(lent <= most);
                seen += lent;
            }
            assert_eq!(seen, count);
        };
        // More often than there are frames, around both rings, and further than is looked ahead.
        for most in [3, 100, 1, 8] {
            for count in [8, 5, 8] {
                send(count);
                read(&mut receiver, &mut spare, count, most);
                assert!(spare.is_empty());
            }
        }
        // Where others took the room, frames are kept.
        send(5);
        let told = receiver.statistics().expect("told");
        assert_eq!((told.rx_dropped, told.rx_ring_full), (0, 0), "{told:?}");
        assert_eq!(receiver.fill(&mut more).expect("fills"), 5);
        read(&mut receiver, &mut spare, 5, 100);
        assert_eq!(spare.len(), 5);
        for (n, frame) in spare.iter().enumerate() {
            assert!(!spare[..n].contains(frame), "a frame came back twice");
        }
        let wrong = sender.read(1, &mut spare, |_, _| {});
        assert!(matches!(wrong, Err(XskError::NoRing { ring: "RX", .. })));
        steer.detach().expect("detaches");
    });
}

#[test]
fn frames_are_shared_as_the_kernel_allows() {
    let Some(ns) = pair() else { return };
    inside(&ns, || {
        let (umem, mut all) = Umem::new(&frames(32)).expect("memory");
        let mut first = Socket::open(&umem, "xa", &SocketConfig::default()).expect("opens");
        let beside = SocketConfig {
            rx: 0,
            fill: 0,
            completion: 0,
            ..SocketConfig::default()
        };
        // On the same queue without rings of its own: what it sends completes at the first.
        let mut second = Socket::open_shared(&first, "xa", &beside).expect("opens");
        for frame in &mut all {
            write(&umem, frame, 1);
        }
        assert_eq!(second.send(&mut all).expect("sends"), 32);
        while second.kick().expect("kicks") != Kick::Done {}
        assert_eq!(first.complete(&mut all, 100).expect("completes"), 32);
        let wrong = second.complete(&mut all, 1);
        assert!(matches!(
            wrong,
            Err(XskError::NoRing {
                ring: "completion",
                ..
            })
        ));
        // On another interface it needs them.
        let wrong = Socket::open_shared(&first, "xb", &beside).expect_err("no rings");
        assert!(
            wrong
                .to_string()
                .contains("its own fill and completion rings"),
            "{wrong}"
        );
        let third = Socket::open_shared(&first, "xb", &SocketConfig::default()).expect("opens");
        assert_eq!(third.name(), "xb");
        // One ring of the two is none.
        let half = SocketConfig {
            fill: 0,
            ..SocketConfig::default()
        };
        assert!(matches!(
            Socket::open_shared(&first, "xb", &half),
            Err(XskError::NoRing { ring: "fill", .. })
        ));
    });
}

#[test]
fn headroom_and_mark_are_in_front() {
    let Some(ns) = pair() else { return };
    inside(&ns, || {
        let steer = Steer::attach("xb", XdpMode::Native, Match::All, true).expect("attaches");
        let (there, mut to_fill) = Umem::new(&UmemConfig {
            headroom: 64,
            ..frames(8)
        })
        .expect("memory");
        let mut receiver = Socket::open(
            &there,
            "xb",
            &SocketConfig {
                tx: 0,
                ..SocketConfig::default()
            },
        )
        .expect("opens");
        receiver.fill(&mut to_fill).expect("fills");
        assert!(
            !receiver
                .poll(false, Duration::from_millis(5))
                .expect("polls"),
            "nothing came"
        );
        steer.add(&receiver).expect("added");
        let (umem, mut one) = Umem::new(&frames(1)).expect("memory");
        write(&umem, &mut one[0], 9);
        let mut sender = Socket::open(&umem, "xa", &SocketConfig::default()).expect("opens");
        send_all(&mut sender, &mut one);
        assert!(
            receiver.poll(false, Duration::from_secs(5)).expect("polls"),
            "something came"
        );
        let mut got = Vec::new();
        assert_eq!(receiver.receive(&mut got, 8).expect("receives"), 1);
        let front = there.front_mut(&mut got[0]);
        assert_eq!(front.len() as u32, umem::KERNEL_HEADROOM + 64);
        let (time, queue) = steer::read_mark(front).expect("marked");
        assert!(time > 0 && queue == 0);
        assert_eq!(steer::read_mark(front), None, "once");
        assert_eq!(there.bytes(&got[0])[59], 9);
        steer.detach().expect("detaches");
    });
}

#[test]
fn a_port_bounces_and_counts() {
    let Some(ns) = pair() else { return };
    inside(&ns, || {
        let open = |name| {
            let steer = Steer::attach(name, XdpMode::Native, Match::EtherType(ETHERTYPE), false)
                .expect("attaches");
            let (umem, all) = Umem::new(&frames(256)).expect("memory");
            let config = SocketConfig {
                mode: Mode::Copy,
                ..SocketConfig::default()
            };
            let socket = Socket::open(&umem, name, &config).expect("opens");
            steer.add(&socket).expect("added");
            (steer, XskPort::new(socket, all).expect("a port"))
        };
        let (near_steer, mut near) = open("xa");
        let (far_steer, mut far) = open("xb");
        let (mut bounced, mut back) = (0, 0);
        let begun = Instant::now();
        for n in 0..500u32 {
            let queued = near.queue(64, |part, bytes| {
                assert_eq!(part, 0);
                bytes.fill(0);
                bytes[12..14].copy_from_slice(&ETHERTYPE.to_be_bytes());
                bytes[14..18].copy_from_slice(&n.to_be_bytes());
            });
            assert!(queued.expect("fits"));
            while near.flush().expect("flushes") > 0 {}
            while back <= n as usize {
                bounced += far.bounce(8, |_| true).expect("bounces").queued;
                back += near
                    .receive(8, |packet| {
                        assert_eq!(packet.len, 64);
                        assert_eq!(packet.bytes[14..18], n.to_be_bytes());
                    })
                    .expect("receives");
                assert!(begun.elapsed() < PATIENCE, "{back} of {n}");
                near.wait(Wait::SpinCalling, Duration::ZERO).expect("waits");
            }
        }
        assert_eq!((bounced, back), (500, 500));
        for port in [&mut near, &mut far] {
            assert_eq!(port.losses().expect("told"), Losses::default());
        }
        // A packet that is not to be sent back is not, and its frame is not lost.
        for _ in 0..1_000 {
            assert!(
                near.queue(60, |_, bytes| {
                    bytes.fill(0);
                    bytes[12..14].copy_from_slice(&ETHERTYPE.to_be_bytes());
                })
                .expect("fits")
            );
            while near.flush().expect("flushes") > 0 {}
            let begun = Instant::now();
            while far.bounce(8, |_| false).expect("bounces").received == 0 {
                assert!(begun.elapsed() < PATIENCE, "it arrives");
            }
        }
        assert_eq!(near.receive(8, |_| ()).expect("receives"), 0);
        near_steer.detach().expect("detaches");
        far_steer.detach().expect("detaches");
    });
}
