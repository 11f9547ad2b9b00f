//! `weir apply` killed at random moments under traffic: what runs is entirely the old or entirely the new configuration, a numbered stream loses
//! nothing, an open session goes on, what was acknowledged is there, and the next command cleans up.
//!
//! 20 moments; with `WEIR_LONG=1` 200.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use weir_kernel::bed::{self, End};
use weir_kernel::{NetNs, iface};

use crate::common::long;
use crate::live_bed::{file, pinned, root, stderr, weir};

const HOST: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 2);
/// Ports of the stream, of the last probe, and of the session.
const STREAM: u16 = 9000;
const LAST: u16 = 7999;
const SESSION: u16 = 80;
/// What each configuration drops: one port in each of its functions.
const DROPS: [[u16; 2]; 2] = [[7001, 7011], [7002, 7012]];
/// Between two datagrams of the stream.
const PACE: Duration = Duration::from_millis(1);

struct Bed {
    left: NetNs,
    right: NetNs,
    edge: String,
    configs: [PathBuf; 2],
    probe: UdpSocket,
    ports: Vec<(u16, UdpSocket)>,
    last: UdpSocket,
}

impl Bed {
    fn new() -> Bed {
        let ns = |part: &str| NetNs::create(&format!("weirk-{part}")).expect("namespace");
        let (left, right) = (ns("l"), ns("r"));
        let end = |ns, name, addresses| End {
            ns,
            name,
            addresses,
        };
        bed::veth(
            end(&left, "left0", &["10.79.0.1/24"]),
            end(&right, "right0", &["10.79.0.2/24"]),
        )
        .expect("veth");
        let edge = format!("k{}", std::process::id());
        let config = |[filter, middlebox]: [u16; 2]| {
            let text = format!(
                "edge = \"{edge}\"\n[[port]]\nname = \"wan\"\ndevice = \"right0\"\n[[function]]\nname = \"shield\"\nkind = \"filter\"\n\
                 rules = [\"deny udp to-port {filter}\"]\n[[function]]\nname = \"wall\"\nkind = \"middlebox\"\nrules = \"udp-dport {middlebox} drop\"\n\
                 [[link]]\nfrom = \"wan\"\nto = \"shield\"\n[[link]]\nfrom = \"shield\"\nto = \"wall\"\n"
            );
            file("edge.toml", &text)
        };
        let bind = |ns: &NetNs, address: (Ipv4Addr, u16)| {
            let socket = ns.run(|| UdpSocket::bind(address)).expect("namespace");
            socket.expect("binds")
        };
        let probe = bind(&left, (Ipv4Addr::UNSPECIFIED, 0));
        let ports = DROPS.iter().flatten();
        let ports = ports.map(|port| {
            let socket = bind(&right, (HOST, *port));
            socket.set_nonblocking(true).expect("a socket");
            (*port, socket)
        });
        let ports = ports.collect();
        let last = bind(&right, (HOST, LAST));
        let patience = Some(Duration::from_secs(10));
        last.set_read_timeout(patience).expect("a socket");
        Bed {
            configs: DROPS.map(config),
            probe,
            ports,
            last,
            edge,
            left,
            right,
        }
    }

    fn apply(&self, which: usize) -> Child {
        let mut command = self
            .right
            .command(env!("CARGO_BIN_EXE_weir"))
            .expect("namespace");
        let command = command.arg("apply").arg(&self.configs[which]);
        let command = command.stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("weir starts")
    }

    /// Which configuration runs, by what packets meet. Nothing else than one of both may be seen.
    #[track_caller]
    fn observed(&self) -> usize {
        for (port, _) in &self.ports {
            self.probe.send_to(b"?", (HOST, *port)).expect("sent");
        }
        // On one path in one order: what is not there before the last one does not come.
        self.probe.send_to(b"!", (HOST, LAST)).expect("sent");
        self.last
            .recv(&mut [0; 8])
            .expect("no configuration drops this");
        let passed = self
            .ports
            .iter()
            .filter(|(_, socket)| socket.recv(&mut [0; 8]).is_ok());
        let passed: Vec<u16> = passed.map(|(port, _)| *port).collect();
        match passed {
            ref all if *all == DROPS[1] => 0,
            ref all if *all == DROPS[0] => 1,
            half => panic!("half a change: only {half:?} pass"),
        }
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = weir(&self.right, &["down", "--edge", &self.edge]);
        for config in &self.configs {
            let _ = fs::remove_file(config);
        }
    }
}

/// A numbered stream, and what arrived of it.
struct Stream {
    ends: Arc<AtomicBool>,
    arrived: Arc<AtomicU64>,
    sender: thread::JoinHandle<u64>,
    receiver: thread::JoinHandle<()>,
}

impl Stream {
    fn start(bed: &Bed) -> Stream {
        let ends = Arc::new(AtomicBool::new(false));
        let arrived = Arc::new(AtomicU64::new(0));
        let bound = bed.right.run(|| UdpSocket::bind((HOST, STREAM)));
        let receiving = bound.expect("namespace").expect("binds");
        let patience = Some(Duration::from_millis(300));
        receiving.set_read_timeout(patience).expect("a socket");
        let bound = bed.left.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)));
        let sending = bound.expect("namespace").expect("binds");
        let (ended, count) = (Arc::clone(&ends), Arc::clone(&arrived));
        let receiver = thread::spawn(move || {
            let mut number = [0; 8];
            loop {
                match receiving.recv(&mut number) {
                    // Each once and in order: none is doubled or late.
                    Ok(_) => {
                        let next = count.fetch_add(1, Ordering::SeqCst);
                        assert!(u64::from_be_bytes(number) >= next);
                    }
                    Err(_) if ended.load(Ordering::SeqCst) => return,
                    Err(_) => {}
                }
            }
        });
        let ended = Arc::clone(&ends);
        let sender = thread::spawn(move || {
            let mut sent = 0u64;
            while !ended.load(Ordering::SeqCst) {
                sending
                    .send_to(&sent.to_be_bytes(), (HOST, STREAM))
                    .expect("sent");
                sent += 1;
                thread::sleep(PACE);
            }
            sent
        });
        Stream {
            ends,
            arrived,
            sender,
            receiver,
        }
    }

    /// Sent and lost.
    fn end(self) -> (u64, u64) {
        self.ends.store(true, Ordering::SeqCst);
        let sent = self.sender.join().expect("the sender ends");
        self.receiver.join().expect("the receiver ends");
        (sent, sent - self.arrived.load(Ordering::SeqCst))
    }
}

/// A session that stays open.
fn session(bed: &Bed) -> TcpStream {
    let bound = bed.right.run(|| TcpListener::bind((HOST, SESSION)));
    let listener = bound.expect("namespace").expect("binds");
    thread::spawn(move || {
        let Ok((mut stream, _)) = listener.accept() else {
            return;
        };
        let mut byte = [0; 1];
        while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
    });
    let stream = bed.left.run(|| TcpStream::connect((HOST, SESSION)));
    let stream = stream.expect("namespace").expect("connects");
    let patience = Some(Duration::from_secs(10));
    stream.set_read_timeout(patience).expect("a socket");
    stream
}

/// Numbers from 0 up to 1, the same in every run; when a process is at which step still differs.
fn moments(seed: u64) -> impl Iterator<Item = f64> {
    let mut state = seed;
    std::iter::repeat_with(move || {
        // xorshift64 (Marsaglia 2003).
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 53) as f64
    })
}

#[test]
fn an_apply_may_be_killed_at_any_moment() {
    if !root("an_apply_may_be_killed_at_any_moment") {
        return;
    }
    let bed = Bed::new();
    let begun = Instant::now();
    assert!(bed.apply(0).wait().expect("ends").success());
    let mut lasts = begun.elapsed();
    assert_eq!(bed.observed(), 0);
    let stream = Stream::start(&bed);
    let mut session = session(&bed);
    let (mut old, mut new, mut finished) = (0, 0, 0);
    let count = if long() { 200 } else { 20 };
    for moment in moments(0x9e37_79b9_7f4a_7c15).take(count) {
        let before = bed.observed();
        let wanted = 1 - before;
        let begun = Instant::now();
        let mut child = bed.apply(wanted);
        thread::sleep(lasts.mul_f64(moment * 1.1));
        child.kill().expect("a child that was not waited for");
        let status = child.wait().expect("ends");
        let after = bed.observed();
        if status.success() {
            assert_eq!(after, wanted, "what was acknowledged is there");
            lasts = (lasts + begun.elapsed()) / 2;
            finished += 1;
        } else if after == wanted {
            new += 1;
        } else {
            old += 1;
        }
        session.write_all(b"?").expect("the session is open");
        session
            .read_exact(&mut [0; 1])
            .expect("the session goes on");
    }
    let (sent, lost) = stream.end();
    println!(
        "{count} kills: old {old}, new {new}, done before {finished}; stream of {sent}: {lost} lost"
    );
    assert_eq!(lost, 0, "of {sent}");
    assert!(old > 0 && old + new + finished == count);
    // Whatever the last one left, the next command gets through, and nothing stays behind in the end.
    let wanted = 1 - bed.observed();
    assert!(bed.apply(wanted).wait().expect("ends").success());
    assert_eq!(bed.observed(), wanted);
    let down = weir(&bed.right, &["down", "--edge", &bed.edge]);
    assert!(down.status.success(), "{}", stderr(&down));
    assert_eq!(pinned(&bed.right), 0);
    let device = bed.right.run(|| iface::find("right0")).expect("namespace");
    assert_eq!(device.expect("it is there").xdp_prog_id, None);
}
