//! A control program that is killed and started anew, and a policy that takes the place of another one: connections go on, no packet is without
//! a program, and what cannot go on is said. Needs root.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common;
use crate::live_bed::{Bed, Run, file, matched, pinned, root, stderr, weir};
use rustix::process::Signal;
use serde_json::Value;
use weir_kernel::{NetNs, Note, pins};

/// Translated TCP and UDP, and a connection of one second, without which answers from port 7003 are dropped.
const POLICY: &str = "connections 1024\ntimeout udp-new 1s\ntimeout udp 1s\n\
    tcp: add-stateful in box0 tcp-dport 7001 map ip-saddr 10.9.9.1 map tcp-sport 40000-40100\n\
    udp: add-stateful in box0 udp-dport 7002 map ip-saddr 10.9.9.1\n\
    idle: add-stateful in box0 udp-dport 7003 accept\n\
    in box1 udp-sport 7003 drop\n";

const PORTS: &[&str] = &["box0", "box1"];

#[test]
fn connections_go_on_when_weir_is_killed_and_when_the_policy_changes() {
    if !root("connections_go_on_when_weir_is_killed_and_when_the_policy_changes") {
        return;
    }
    pins::ensure_bpffs().expect("bpffs");
    let bed = Bed::build("weirt-on");
    let run = Run::start(&bed.middle, POLICY, PORTS, &[]);
    let echo = bed
        .server
        .run(|| TcpListener::bind("10.0.2.2:7001"))
        .expect("namespace")
        .expect("bind");
    let numbered = bed
        .server
        .run(|| UdpSocket::bind("10.0.2.2:7002"))
        .expect("namespace")
        .expect("bind");
    let idle = Pair::open(&bed, 7003);
    assert!(idle.both_ways(), "a connection lets the answer in");

    let sender = bed
        .client
        .run(|| UdpSocket::bind("10.0.1.2:7777"))
        .expect("namespace")
        .expect("bind");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stops = common::Stops(&stop);
        scope.spawn(|| answer(&echo));
        let talk = scope.spawn(|| {
            let stream = bed.client.run(|| TcpStream::connect("10.0.2.2:7001"));
            ask(stream.expect("namespace").expect("connects"), &stop)
        });
        let sent = scope.spawn(|| number(&sender, &stop));
        let heard = scope.spawn(|| hear(&numbered));
        std::thread::sleep(Duration::from_millis(300));

        run.signal(Signal::KILL);
        drop(run.wait());
        std::thread::sleep(Duration::from_millis(1500));
        assert!(!idle.answer(), "it timed out while no control program ran");

        // The same policy.
        let run = Run::start(&bed.middle, POLICY, PORTS, &[]);
        assert!(
            run.words().contains("4 rules kept, 0 added, 0 removed"),
            "{}",
            run.words()
        );
        assert!(!idle.answer(), "and is not back");
        assert!(idle.both_ways(), "a new one opens");
        std::thread::sleep(Duration::from_millis(200));

        // A living one is not taken over.
        let policy = file("second.weir", POLICY);
        let second = weir(
            &bed.middle,
            &["run", "-i", "box0", policy.to_str().expect("text")],
        );
        assert_eq!(second.status.code(), Some(1));
        let said = stderr(&second);
        assert!(
            said.contains("box0 already carries weir's program"),
            "{said}"
        );

        // Killed again, and another policy: a rule in front, one behind.
        run.signal(Signal::KILL);
        drop(run.wait());
        let more = POLICY.replace("tcp: ", "udp-dport 9 drop\ntcp: ") + "udp-dport 10 drop\n";
        let run = Run::start(&bed.middle, &more, PORTS, &[]);
        assert!(
            run.words().contains("4 rules kept, 2 added, 0 removed"),
            "{}",
            run.words()
        );
        std::thread::sleep(Duration::from_millis(200));

        // While it runs: one behind, in place; then one in front, classifier rebuilt.
        let behind = file("behind.weir", &(more.clone() + "udp-dport 11 drop\n"));
        let said = load(&bed.middle, &[behind.to_str().expect("text")]);
        assert_eq!(
            (&said["kept"], &said["added"], &said["rebuilt"]),
            (&6.into(), &1.into(), &false.into())
        );
        std::thread::sleep(Duration::from_millis(100));
        let front = file(
            "front.weir",
            &more.replace("tcp: ", "udp-dport 12 drop\ntcp: "),
        );
        let said = load(&bed.middle, &[front.to_str().expect("text")]);
        assert_eq!(
            (&said["kept"], &said["added"], &said["removed"]),
            (&6.into(), &1.into(), &1.into())
        );
        assert_eq!(
            (&said["renumbered"], &said["rebuilt"]),
            (&5.into(), &true.into())
        );
        std::thread::sleep(Duration::from_millis(200));

        // The connection shows the present id of its rule.
        let shown = weir(&bed.middle, &["connections", "--json"]);
        assert!(shown.status.success(), "{}", stderr(&shown));
        let shown: Value = serde_json::from_slice(&shown.stdout).expect("one JSON object");
        let all = shown["connections"].as_array().expect("connections");
        let tcp = (all.iter().find(|c| c["protocol"] == "tcp")).expect("it lives");
        let rules = weir(&bed.middle, &["rule", "list", "--json"]);
        let rules: Value = serde_json::from_slice(&rules.stdout).expect("one JSON object");
        let named = |r: &&Value| {
            r["rule"]
                .as_str()
                .is_some_and(|text| text.starts_with("tcp:"))
        };
        let rule = (rules["rules"].as_array().expect("rules").iter().find(named)).expect("runs");
        assert_eq!(tcp["rules"][0], rule["id"]);
        assert!(rule["id"].as_u64() > Some(6), "it was renumbered: {rule}");

        stop.store(true, Ordering::Relaxed);
        let rounds = talk.join().expect("the connection goes on");
        let sent = sent.join().expect("no panic");
        let heard = heard.join().expect("no panic");
        assert!(rounds > 100, "{rounds}");
        assert!(sent > 1000, "{sent}");
        assert_eq!(heard, sent, "every packet arrived, translated");
        let report = run.stop();
        // Counters are those of all runs together.
        assert_eq!(matched(&report, "udp"), sent);
    });
    assert_eq!(bed.checksum_errors(), 0);
    assert_clean(&bed.middle);
}

/// Sources that have all the connections that they may have stay there, whatever happens to the rules and to the process.
#[test]
fn names_at_their_limit_stay_at_it() {
    if !root("names_at_their_limit_stay_at_it") {
        return;
    }
    pins::ensure_bpffs().expect("bpffs");
    let bed = Bed::build("weirt-count");
    let policy = "connections 1024\nadd-stateful in box0 udp-dport 7005 timeout 1h\n\
        in box0 udp-dport 7005 drop over 2 connections per source\n";
    let bind = |ns: &NetNs, at: (&'static str, u16)| {
        let socket = ns.run(move || UdpSocket::bind(at));
        let socket = socket.expect("namespace").expect("bind");
        (socket.set_read_timeout(Some(Duration::from_millis(300)))).expect("timeout");
        socket
    };
    let server = bind(&bed.server, ("10.0.2.2", 7005));
    let clients: Vec<UdpSocket> = (5001..5004)
        .map(|port| bind(&bed.client, ("10.0.1.2", port)))
        .collect();
    let arrives = |n: usize| {
        let client = &clients[n];
        client.send_to(b"ask", "10.0.2.2:7005").expect("sends");
        server.recv(&mut [0; 8]).is_ok()
    };
    let open = |what: &str| {
        let shown = weir(&bed.middle, &["tables", "--json"]);
        assert!(shown.status.success(), "{what}: {}", stderr(&shown));
        let shown: Value = serde_json::from_slice(&shown.stdout).expect("one JSON object");
        let open = &shown["limits"][0]["open"];
        assert_eq!(
            (&open["names"], &open["at_limit"], &open["connections"]),
            (&1.into(), &1.into(), &2.into()),
            "{what}: {shown}"
        );
        assert!(!arrives(2), "{what}: a third connection");
        assert!(arrives(0) && arrives(1), "{what}: those that are open");
    };
    let run = Run::start(&bed.middle, policy, PORTS, &[]);
    assert!(arrives(0) && arrives(1));
    open("at first");
    let behind = file("behind.weir", &format!("{policy}udp-dport 9 drop\n"));
    let said = load(&bed.middle, &[behind.to_str().expect("text")]);
    assert_eq!(said["rebuilt"], false, "{said}");
    open("a rule behind");
    let front = policy.replace("1024\n", "1024\nudp-dport 8 drop\n");
    let front = file("front.weir", &front);
    let said = load(&bed.middle, &[front.to_str().expect("text")]);
    assert_eq!(said["rebuilt"], true, "{said}");
    open("a rule in front");
    let rebuilt = weir(&bed.middle, &["rule", "compact"]);
    assert!(rebuilt.status.success(), "{}", stderr(&rebuilt));
    open("a rebuild");
    run.signal(Signal::KILL);
    drop(run.wait());
    let run = Run::start(&bed.middle, policy, PORTS, &[]);
    open("a take-over");
    run.signal(Signal::KILL);
    drop(run.wait());
    let more = format!("{policy}tcp-dport 9 drop\n");
    let run = Run::start(&bed.middle, &more, PORTS, &[]);
    open("a take-over with another rule");
    // A connection that is ended makes room for one.
    let ended = weir(&bed.middle, &["connections", "delete", "--port", "5001"]);
    assert!(ended.status.success(), "{}", stderr(&ended));
    assert!(arrives(2), "there is room again");
    assert!(!arrives(0), "and no more");
    run.stop();
    assert_clean(&bed.middle);
}

#[test]
fn what_cannot_go_on_is_said_and_down_removes_everything() {
    if !root("what_cannot_go_on_is_said_and_down_removes_everything") {
        return;
    }
    pins::ensure_bpffs().expect("bpffs");
    let bed = Bed::build("weirt-not");
    let middle = &bed.middle;
    killed(middle, POLICY, PORTS, &[]);
    let policy = file("policy.weir", POLICY);
    let policy = policy.to_str().expect("text");
    for (arguments, words) in [
        (&["-i", "box0"][..], "add -i box1 to take over all of them"),
        (
            &["-i", "box0", "-i", "box1", "--hook", "xdp"],
            "at tc ingress, which is not among",
        ),
        (
            &["-i", "box0", "-i", "box1", "--hook", "clsact"],
            "add --hook tc to take it over",
        ),
    ] {
        let refused = weir(middle, &[&["run", policy], arguments].concat());
        assert!(!refused.status.success());
        let said = stderr(&refused);
        assert!(said.contains(words) && said.contains("weir down"), "{said}");
        assert_eq!(pinned(middle), 2, "{arguments:?}");
    }
    // More ports, and clsact where it was left, are fine.
    let run = Run::start(middle, POLICY, PORTS, &["--egress"]);
    assert!(run.words().contains("4 rules kept"), "{}", run.words());
    assert_eq!(pinned(middle), 4);
    run.stop();
    assert_clean(middle);
    killed(middle, POLICY, PORTS, &["--hook", "clsact"]);
    let run = Run::start(middle, POLICY, PORTS, &["--hook", "clsact"]);
    assert!(run.words().contains("4 rules kept"), "{}", run.words());
    run.stop();
    assert_clean(middle);

    // Another number of connections.
    killed(middle, POLICY, PORTS, &[]);
    let run = Run::start(middle, &POLICY.replace("1024", "4096"), PORTS, &[]);
    assert!(
        run.words()
            .contains("connections are lost: the policy asks for `connections 4096`"),
        "{}",
        run.words()
    );
    let refused = weir(middle, &["rule", "load", policy]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        stderr(&refused).contains("--flush-connections"),
        "{}",
        stderr(&refused)
    );
    assert_eq!(load(middle, &[policy, "--flush-connections"])["kept"], 4);
    let broken = file("broken.weir", "udp-dport 9 dorp\n");
    let refused = weir(middle, &["rule", "load", broken.to_str().expect("text")]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("dorp"), "{}", stderr(&refused));
    run.signal(Signal::KILL);
    drop(run.wait());

    // Tables of another version.
    middle
        .run(|| {
            for pin in pins::list().expect("readable") {
                let (_left, program) = pins::open(&pin).expect("opens");
                let note = Note::new(b"{\"layout\":99}\n", 0).expect("made");
                note.bind(&program).expect("bound");
            }
        })
        .expect("namespace");
    let run = Run::start(middle, POLICY, PORTS, &[]);
    assert!(run.words().contains("connections and counters start from zero: it was another version of weir: its tables have layout 99"), "{}", run.words());
    run.signal(Signal::KILL);
    drop(run.wait());
    assert_eq!(pinned(middle), 2);
    assert!(weir(middle, &["down"]).status.success());
    assert_clean(middle);
}

/// Leaves what a killed run leaves.
fn killed(ns: &NetNs, policy: &str, ports: &[&str], more: &[&str]) {
    let run = Run::start(ns, policy, ports, more);
    run.signal(Signal::KILL);
    drop(run.wait());
}

fn load(ns: &NetNs, arguments: &[&str]) -> Value {
    let output = weir(ns, &[&["rule", "load", "--json"], arguments].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

/// No pins, no claims.
fn assert_clean(ns: &NetNs) {
    assert_eq!(pinned(ns), 0);
    let prefix = format!("{}-", ns.inode().expect("readable"));
    let claims = match fs::read_dir(pins::CLAIMS) {
        // The last claim takes the folder with it.
        Err(error) if error.kind() == ErrorKind::NotFound => return,
        claims => claims.expect("readable"),
    };
    let mut names = claims.map(|e| {
        e.expect("readable")
            .file_name()
            .to_string_lossy()
            .into_owned()
    });
    assert_eq!(names.find(|name| name.starts_with(&prefix)), None);
}

/// A UDP client and a server.
struct Pair {
    client: UdpSocket,
    server: UdpSocket,
}

impl Pair {
    fn open(bed: &Bed, port: u16) -> Pair {
        let bind = |ns: &NetNs, at: (&'static str, u16)| {
            let socket = ns
                .run(move || UdpSocket::bind(at))
                .expect("namespace")
                .expect("bind");
            socket
                .set_read_timeout(Some(Duration::from_millis(300)))
                .expect("timeout");
            socket
        };
        let pair = Pair {
            client: bind(&bed.client, ("10.0.1.2", port)),
            server: bind(&bed.server, ("10.0.2.2", port)),
        };
        pair.client.connect(("10.0.2.2", port)).expect("connects");
        pair.server.connect(("10.0.1.2", port)).expect("connects");
        pair
    }

    fn both_ways(&self) -> bool {
        self.client.send(b"ask").expect("sends");
        self.server.recv(&mut [0; 8]).is_ok() && self.answer()
    }

    fn answer(&self) -> bool {
        self.server.send(b"answer").expect("sends");
        self.client.recv(&mut [0; 8]).is_ok()
    }
}

/// Sends back what one client sends; it must come from the translated address.
fn answer(at: &TcpListener) {
    at.set_nonblocking(true).expect("set");
    let end = Instant::now() + Duration::from_secs(30);
    let (mut stream, from) = loop {
        match at.accept() {
            Ok(accepted) => break accepted,
            Err(e) if e.kind() == ErrorKind::WouldBlock && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(e) => panic!("nobody connects: {e}"),
        }
    };
    stream.set_nonblocking(false).expect("set");
    stream
        .set_read_timeout(Some(Duration::from_secs(5)))
        .expect("timeout");
    assert_eq!(from.ip().to_string(), "10.9.9.1");
    assert!((40000..=40100).contains(&from.port()), "{from}");
    let mut word = [0; 8];
    while stream.read_exact(&mut word).is_ok() {
        stream.write_all(&word).expect("sends");
    }
}

/// Asks until it is time to stop; every question has its answer. Returns how many.
fn ask(mut stream: TcpStream, stop: &AtomicBool) -> u64 {
    stream
        .set_read_timeout(Some(Duration::from_secs(5)))
        .expect("timeout");
    let mut n = 0u64;
    while !stop.load(Ordering::Relaxed) {
        stream.write_all(&n.to_ne_bytes()).expect("sends");
        let mut word = [0; 8];
        stream.read_exact(&mut word).expect("answered");
        assert_eq!(u64::from_ne_bytes(word), n);
        n += 1;
        std::thread::sleep(Duration::from_millis(1));
    }
    n
}

/// Sends numbered datagrams until it is time to stop, then one that says so. Returns how many.
fn number(from: &UdpSocket, stop: &AtomicBool) -> u64 {
    let mut n = 0u64;
    while !stop.load(Ordering::Relaxed) {
        from.send_to(&n.to_ne_bytes(), "10.0.2.2:7002")
            .expect("sends");
        n += 1;
        std::thread::sleep(Duration::from_micros(200));
    }
    from.send_to(&u64::MAX.to_ne_bytes(), "10.0.2.2:7002")
        .expect("sends");
    n + 1
}

/// Receives them; each must be the next, and translated. Returns how many.
fn hear(at: &UdpSocket) -> u64 {
    at.set_read_timeout(Some(Duration::from_secs(5)))
        .expect("timeout");
    let mut n = 0u64;
    loop {
        let mut word = [0; 8];
        let (_, from) = at.recv_from(&mut word).expect("arrives");
        assert_eq!(from.to_string(), "10.9.9.1:7777", "packet {n}");
        let number = u64::from_ne_bytes(word);
        if number == u64::MAX {
            return n + 1;
        }
        assert_eq!(number, n);
        n += 1;
    }
}
