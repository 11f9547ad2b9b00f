//! An agent that is upgraded under traffic: stopped or killed, and started again by another program, with the state that the former left.
//!
//! `WEIR_PREVIOUS=PROGRAM` names a `weir` of an earlier build that begins; without it, it is a copy of this one.

use std::collections::BTreeSet;
use std::fs;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::common::Stops;
use crate::live_agent::{Bed, Running};
use crate::live_bed::{root, stderr};

/// Between two datagrams of the stream.
const PAUSE: Duration = Duration::from_millis(2);

/// Bytes of datagrams that may wait for a reader that does not get a processor: ten seconds of the stream.
const BUFFER: usize = 8 << 20;

/// Long enough for a host that is busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// A numbered stream that only passes as the answer of a connection.
struct Stream {
    from: UdpSocket,
    to: UdpSocket,
    sent: AtomicU64,
    heard: AtomicU64,
}

impl Stream {
    fn open(bed: &Bed) -> Stream {
        let bind = |ns: &weir_kernel::NetNs, address: &str| {
            let socket = ns.run(|| UdpSocket::bind(address));
            socket.expect("namespace").expect("binds")
        };
        let (from, to) = (
            bind(&bed.left, "10.79.0.1:7008"),
            bind(&bed.right, "10.79.0.2:7007"),
        );
        set_socket_recv_buffer_size_force(&to, BUFFER).expect("root may");
        to.set_read_timeout(Some(Duration::from_millis(200)))
            .expect("set");
        // The host begins, so answers pass.
        to.send_to(b"begin", "10.79.0.1:7008").expect("sent");
        Stream {
            from,
            to,
            sent: AtomicU64::new(0),
            heard: AtomicU64::new(0),
        }
    }

    fn send(&self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            let number = self.sent.load(Ordering::Relaxed);
            self.from
                .send_to(&number.to_be_bytes(), "10.79.0.2:7007")
                .expect("sent");
            self.sent.store(number + 1, Ordering::Relaxed);
            std::thread::sleep(PAUSE);
        }
    }

    /// Numbers that are missing, once the stream has ended.
    fn hear(&self, stop: &AtomicBool) -> Vec<u64> {
        let mut heard = BTreeSet::new();
        let mut ended = None;
        loop {
            let mut number = [0; 8];
            if self.to.recv(&mut number).is_ok() {
                heard.insert(u64::from_be_bytes(number));
                self.heard.store(heard.len() as u64, Ordering::Relaxed);
            }
            let sent = self.sent.load(Ordering::Relaxed);
            if !stop.load(Ordering::Relaxed) {
                continue;
            }
            let since = *ended.get_or_insert_with(Instant::now);
            if heard.len() as u64 == sent || since.elapsed() > PATIENCE {
                return (0..sent).filter(|number| !heard.contains(number)).collect();
            }
        }
    }

    /// Waits until so many more have come.
    #[track_caller]
    fn wait(&self, more: u64) {
        let wanted = self.heard.load(Ordering::Relaxed) + more;
        let until = Instant::now() + PATIENCE;
        while self.heard.load(Ordering::Relaxed) < wanted {
            assert!(Instant::now() < until, "the stream stops");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Packets that the port received, and the number of the stream's connection.
fn counted(bed: &Bed) -> (u64, Value) {
    let read = |args: &[&str]| -> Value {
        let output = bed.weir(args);
        assert!(output.status.success(), "{}", stderr(&output));
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let status = read(&["status", "--edge", &bed.edge, "--json"]);
    let packets = status["edges"][0]["ports"][0]["ledger"]["received"]
        .as_u64()
        .expect("a number");
    let path = format!("/v1/edges/{}/connections", bed.edge);
    let tables = bed.ask(&path);
    let all = tables["tables"][0]["connections"]
        .as_array()
        .expect("a list");
    let is_own = |one: &&Value| one["original"]["source_port"] == 7007;
    let own = all
        .iter()
        .find(is_own)
        .unwrap_or_else(|| panic!("no connection: {tables}"));
    (packets, own["id"].clone())
}

#[test]
fn an_upgrade_loses_no_packet_no_counter_and_no_connection() {
    if !root("an_upgrade_loses_no_packet_no_counter_and_no_connection") {
        return;
    }
    let bed = Bed::new("upgrade");
    let file = bed.file();
    let init = bed.weir(&[
        "init",
        "firewall",
        "--interface",
        "right0",
        "--defaults",
        "--force",
        "--edge",
        &bed.edge,
        "-o",
        file.to_str().expect("UTF-8"),
    ]);
    assert!(init.status.success(), "{}", stderr(&init));
    // Programs are told apart by their path.
    let previous = bed.folder.with_extension("previous");
    let of = std::env::var_os("WEIR_PREVIOUS").map(PathBuf::from);
    let of = of.unwrap_or_else(|| env!("CARGO_BIN_EXE_weir").into());
    // By a process of its own: children that other tests start would hold a file open that this one writes, and it could not be executed.
    let copied = Command::new("cp").arg(&of).arg(&previous).status();
    assert!(copied.expect("cp starts").success());
    let agent = Running::start_program(&previous, &bed.right, &bed.folder, &bed.state);
    agent.event("applied");
    let generation = bed.generation();
    let stream = Stream::open(&bed);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stops = Stops(&stop);
        scope.spawn(|| stream.send(&stop));
        let heard = scope.spawn(|| stream.hear(&stop));
        stream.wait(200);
        let (before, connection) = counted(&bed);
        // As a package upgrade restarts the unit: the former build ends, the new one starts.
        agent.signal(Signal::TERM);
        drop(agent);
        stream.wait(200);
        older_state(&bed);
        let agent = bed.agent();
        let adopted = agent.event("adopted");
        assert_eq!(adopted["edge"], bed.edge.as_str(), "{adopted}");
        stream.wait(200);
        let (now, same) = counted(&bed);
        assert!(now >= before + 400, "{before} {now}");
        assert_eq!(same, connection, "the connection is another");
        assert_eq!(bed.generation(), generation, "nothing was applied");
        // Killed, and one of the former build again: a downgrade.
        drop(agent);
        let agent = Running::start_program(&previous, &bed.right, &bed.folder, &bed.state);
        agent.event("adopted");
        stream.wait(200);
        let (last, same) = counted(&bed);
        assert!(last >= now + 200, "{now} {last}");
        assert_eq!((same, bed.generation()), (connection, generation));
        stop.store(true, Ordering::Relaxed);
        let missing = heard.join().expect("no panic");
        assert_eq!(
            missing,
            Vec::<u64>::new(),
            "lost of {}",
            stream.sent.load(Ordering::Relaxed)
        );
        let (all, _) = counted(&bed);
        assert!(all >= stream.sent.load(Ordering::Relaxed), "{all}");
    });
    let _ = fs::remove_file(previous);
}

/// The state folder as earlier builds wrote it: of an edge its file and digest alone, compact, and no history.
fn older_state(bed: &Bed) {
    let path = bed.state.join("agent.json");
    let text = fs::read_to_string(&path).expect("the agent wrote it");
    let now: Value = serde_json::from_str(&text).expect("JSON");
    let own = &now[&bed.edge];
    let older = json!({ &bed.edge: { "file": own["file"], "digest": own["digest"] } });
    fs::write(&path, older.to_string()).expect("writable");
    fs::remove_dir_all(bed.state.join("history")).expect("there was one");
}
