//! Agents that are killed, stopped and cut off from their store: what `weir net store status` says of them and when, and workloads that go on.

use std::time::{Duration, Instant};

use serde_json::Value;
use weir_kernel::NetNs;
use weir_testdata::etcd::has_etcd;

use crate::live_bed::root;
use crate::live_store_bed::{ANSWER, Bed, PATIENCE, Station, Stream, cluster_in, report};

/// Seconds of the bed's leases: short, so that the test is.
const LEASE: u64 = 4;
const REMOVE_AFTER: u64 = 6;

/// How much later than its lease an edge may become suspect: etcd looks for leases that are over twice a second.
const LATE: Duration = Duration::from_secs(1);

/// The stage of an edge, and whether `status` would wait for any.
fn stage(bed: &Bed, of: usize) -> (String, bool) {
    let output = bed.edges[0].weir(&["net", "store", "status", "--json"]);
    let status: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let edges = status["edges"].as_array().expect("a list");
    let name = bed.edges[of].name.as_str();
    let edge = edges.iter().find(|one| one["edge"] == name);
    let stage = edge.expect("it is there")["stage"].as_str();
    assert_eq!(output.status.success(), status["converged"] == true);
    (
        stage.expect("a text").to_owned(),
        status["converged"] == true,
    )
}

/// When a stage came. A look takes time, more on a busy machine: what is known are two times between which it came.
struct Came {
    /// The last look at the stage before began then.
    after: Instant,
    /// The first look at this stage ended then.
    seen: Instant,
}

/// Waits for a stage. The one before lasts until then.
#[track_caller]
fn becomes(bed: &Bed, of: usize, before: &str, wanted: &str) -> Came {
    let mut after = Instant::now();
    let until = after + PATIENCE;
    loop {
        let begun = Instant::now();
        let (now, _) = stage(bed, of);
        if now == wanted {
            let seen = Instant::now();
            return Came { after, seen };
        }
        assert_eq!(now, before, "until it is {wanted}");
        after = begun;
        assert!(Instant::now() < until, "it becomes {wanted}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_killed_edge_is_suspect_then_removed_and_forwards_on() {
    let test = "a_killed_edge_is_suspect_then_removed_and_forwards_on";
    if !root(test) || !has_etcd() {
        return;
    }
    let core = NetNs::create("wsl").expect("a namespace");
    let mut bed = Bed::new(&core, 2);
    let mut cluster = cluster_in(&core, &bed.folder.join("etcd"));
    cluster.start_all();
    bed.configure(&cluster);
    for edge in &mut bed.edges {
        let path = edge.folder.join("agent.toml");
        let text = std::fs::read_to_string(&path).expect("readable");
        let more = format!("{text}lease = {LEASE}\nremove-after = {REMOVE_AFTER}\n");
        std::fs::write(&path, more).expect("writable");
        edge.start();
    }
    let stations: Vec<Station> = (1..=2)
        .map(|n| Station::new(&bed.edges[n - 1], "red-net", &format!("w{n}"), n as u8))
        .collect();
    let workloads = [("w1", 0, 1), ("w2", 1, 2)];
    let push = |version: u32, workloads: &[(&str, usize, u8)]| {
        let document = bed.document("red", version, workloads, true);
        bed.edges[0].done(&["net", "store", "push", &document]);
    };
    push(1, &workloads);
    bed.edges[0].status("20s");
    assert_eq!(stage(&bed, 1), ("registered".to_owned(), true));
    assert_eq!(stations[0].asks(2, ANSWER).as_deref(), Some("red-net/w2"));
    let stream = Stream::start(&stations[0], 2);

    // A killed agent deletes nothing: its lease expires.
    let killed = Instant::now();
    bed.edges[1].agent = None;
    let came = becomes(&bed, 1, "registered", "suspect");
    let (registered, suspect) = (came.after - killed, came.seen - killed);
    let lease = Duration::from_secs(LEASE);
    assert!(
        registered <= lease + LATE,
        "still registered after {registered:?}"
    );
    // It was lengthened a third of the lease before at the earliest.
    assert!(suspect >= lease / 2, "suspect after {suspect:?}");
    // A change waits for it only while it may come back soon.
    let fifth = [workloads.as_slice(), &[("w5", 0, 5)]].concat();
    let document = bed.document("red", 2, &fifth, true);
    bed.edges[0].done(&["net", "store", "push", &document]);
    bed.edges[0].agent().event("applied");
    assert!(!stage(&bed, 1).1, "it has not applied that");
    let gone = becomes(&bed, 1, "suspect", "removed");
    let removed = gone.seen - came.seen;
    let after = Duration::from_secs(REMOVE_AFTER);
    let most = after * 4 / 3 + LATE + lease;
    assert!(
        gone.seen - came.after >= after - LATE,
        "removed after {removed:?}"
    );
    assert!(
        gone.after - came.seen <= most,
        "still suspect after {:?}",
        gone.after - came.seen
    );
    report(&format!(
        "an edge that was killed: suspect after {suspect:?} with a lease of {lease:?}, removed {removed:?} later with {after:?}"
    ));
    // `status --wait` does not wait for it, and its workloads are still reachable.
    let status = bed.edges[0].status("10s");
    assert_eq!(status["converged"], true, "{status}");
    let said = bed.edges[0].done(&["net", "store", "status"]);
    assert!(said.contains("removed: its agent is away"), "{said}");
    assert_eq!(stations[0].asks(2, ANSWER).as_deref(), Some("red-net/w2"));

    // It comes back, and has what it missed.
    bed.edges[1].start();
    becomes(&bed, 1, "removed", "registered");
    let status = bed.edges[0].status("20s");
    assert_eq!(
        status["edges"].as_array().map(Vec::len),
        Some(2),
        "{status}"
    );
    // A member that dies ends watches, not edges; a quorum that is lost for longer than a lease makes suspects, and deletes nothing.
    let leader = cluster.leader();
    cluster.kill(leader);
    cluster.wait();
    for _ in 0..10 {
        assert_eq!(stage(&bed, 1).0, "registered");
    }
    cluster.kill_all();
    std::thread::sleep(lease + LATE);
    cluster.start_all();
    let until = Instant::now() + PATIENCE;
    while stage(&bed, 1).0 != "registered" {
        assert!(Instant::now() < until, "it registers again");
    }
    bed.edges[0].status("30s");
    assert_eq!(stations[1].asks(1, ANSWER).as_deref(), Some("red-net/w1"));

    // Stopped: that is said.
    let pid = bed.edges[1].agent().child.id();
    let signalled = std::process::Command::new("kill")
        .args(["-TERM", &pid.to_string()])
        .status();
    assert!(signalled.expect("kill runs").success());
    becomes(&bed, 1, "registered", "stopped");
    let (sent, received, _) = stream.end();
    assert_eq!(
        (sent, received),
        (sent, sent),
        "nothing of the stream is lost"
    );
    assert!(sent > 2000, "{sent}");
}
