//! Three edges that follow one store: etcd of three members with TLS, agents in namespaces, two tenants with the same addresses, and packets that go on
//! whatever becomes of the store.
//!
//! ```text
//! red/w1  blue/w1      red/w2  blue/w2      red/w3  blue/w3  blue/w9
//!      [e1]                 [e2]                 [e3]
//!        +------------ bridge, 10.9.0.0/24 --------+---- three members of etcd (10.9.0.254)
//! ```
//!
//! `WEIR_LONG=1`: more changes are timed.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use weir_kernel::NetNs;
use weir_testdata::etcd::has_etcd;

use crate::live_bed::{root, stderr};
use crate::live_store_bed::{ANSWER, Bed, PATIENCE, SILENCE, Station, Stream, cluster_in, report};

/// Each workload sends to each address of its subnet: exactly the workloads declared there in its own network answer.
fn reach_as_declared(stations: &BTreeMap<(&'static str, u8), Station>) {
    for (network, from) in stations.keys() {
        for host in [1, 2, 3, 9] {
            if host == *from {
                continue;
            }
            let is_declared = stations.contains_key(&(*network, host));
            let patience = if is_declared { ANSWER } else { SILENCE };
            let answer = stations[&(*network, *from)].asks(host, patience);
            let wanted = is_declared.then(|| format!("{network}/w{host}"));
            assert_eq!(answer, wanted, "{network}/w{from} to 10.1.0.{host}");
        }
    }
}

#[test]
fn edges_follow_the_store_and_forward_without_it() {
    let test = "edges_follow_the_store_and_forward_without_it";
    if !root(test) || !has_etcd() {
        return;
    }
    let is_long = std::env::var_os("WEIR_LONG").is_some();
    let core = NetNs::create("wstc").expect("a namespace");
    let mut bed = Bed::new(&core, 3);
    let mut cluster = cluster_in(&core, &bed.folder.join("etcd"));
    cluster.start_all();
    bed.configure(&cluster);
    for edge in &mut bed.edges {
        edge.start();
    }
    let mut stations = BTreeMap::new();
    for (network, hosts) in [
        ("red-net", [1, 2, 3].as_slice()),
        ("blue-net", &[1, 2, 3, 9]),
    ] {
        for &host in hosts {
            let edge = &bed.edges[usize::from(host.min(3)) - 1];
            stations.insert(
                (network, host),
                Station::new(edge, network, &format!("w{host}"), host),
            );
        }
    }
    let red: Vec<(&str, usize, u8)> = vec![("w1", 0, 1), ("w2", 1, 2), ("w3", 2, 3)];
    let blue = [red.as_slice(), &[("w9", 2, 9)]].concat();
    let first = &bed.edges[0];
    first.done(&[
        "net",
        "store",
        "push",
        &bed.document("red", 1, &red, true),
        "--wait",
        "20s",
    ]);
    first.done(&[
        "net",
        "store",
        "push",
        &bed.document("blue", 1, &blue, false),
        "--wait",
        "20s",
    ]);
    reach_as_declared(&stations);

    // The same is nothing new; another text of the same version is refused, and so is what makes no valid document.
    let again = first.done(&["net", "store", "push", &bed.document("red", 1, &red, true)]);
    assert!(again.contains("the store says the same"), "{again}");
    let refused = first.weir(&[
        "net",
        "store",
        "push",
        &bed.document("red", 1, &red[..2], true),
    ]);
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    assert!(
        stderr(&refused).contains("raise `version`"),
        "{}",
        stderr(&refused)
    );
    let add = |name: &str, host: &str| {
        let on = bed.edges[2].name.clone();
        let words = [
            "net",
            "store",
            "workload",
            "add",
            name,
            "--subnet",
            "web",
            "--on",
            &on,
            "--device",
            "red-w5",
            "--address",
            host,
        ];
        words.map(str::to_owned)
    };
    let run = |all: &[String]| first.weir(&all.iter().map(String::as_str).collect::<Vec<_>>());
    let refused = run(&add("red-net/w5", "10.7.0.5"));
    assert!(
        stderr(&refused).contains("10.7.0.5"),
        "{}",
        stderr(&refused)
    );

    // A change of one workload is everywhere soon.
    let fifth = Station::new(&bed.edges[2], "red-net", "w5", 5);
    let mut times = Vec::new();
    for _ in 0..if is_long { 50 } else { 4 } {
        for edge in &bed.edges {
            edge.agent().skip();
        }
        let begun = Instant::now();
        let output = run(&add("red-net/w5", "10.1.0.5"));
        assert!(output.status.success(), "{}", stderr(&output));
        for edge in &bed.edges {
            edge.agent().event("applied");
        }
        times.push(begun.elapsed());
        assert_eq!(
            stations[&("red-net", 1)].asks(5, ANSWER).as_deref(),
            Some("red-net/w5")
        );
        assert_eq!(stations[&("blue-net", 1)].asks(5, SILENCE), None);
        first.done(&["net", "store", "workload", "delete", "red-net/w5"]);
        for edge in &bed.edges {
            edge.agent().event("applied");
        }
        assert_eq!(
            stations[&("red-net", 1)].asks(5, SILENCE),
            None,
            "after the grace period"
        );
    }
    times.sort();
    let at = |part: usize| times[(times.len() - 1) * part / 100];
    report(&format!(
        "one workload, from the command's start to all three edges: p50 {:?}, p99 {:?}, {} changes",
        at(50),
        at(99),
        times.len()
    ));

    let stream = Stream::start(&stations[&("red-net", 1)], 2);
    // A member dies; changes go on through the others.
    let leader = cluster.leader();
    cluster.kill(leader);
    cluster.wait();
    let output = run(&add("red-net/w5", "10.1.0.5"));
    assert!(output.status.success(), "{}", stderr(&output));
    first.status("30s");
    assert_eq!(
        stations[&("red-net", 2)].asks(5, ANSWER).as_deref(),
        Some("red-net/w5")
    );

    // All die; an agent is killed and starts without them.
    cluster.kill_all();
    bed.edges[1].agent = None;
    bed.edges[1].start();
    bed.edges[1].agent().event("adopted");
    std::thread::sleep(Duration::from_secs(2));
    let refused = bed.edges[0].weir(&["net", "store", "status"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        stderr(&refused).contains("no member of the store answers"),
        "{}",
        stderr(&refused)
    );
    cluster.start_all();
    bed.edges[0].status("30s");

    // What a restored store lacks is kept; so is everything while it is empty.
    let snapshot = bed.folder.join("snapshot.db").display().to_string();
    cluster.save(&snapshot);
    let sixth = Station::new(&bed.edges[1], "red-net", "w6", 6);
    let (first, on) = (&bed.edges[0], &bed.edges[1].name);
    first.done(&[
        "net",
        "store",
        "workload",
        "add",
        "red-net/w6",
        "--subnet",
        "web",
        "--on",
        on,
        "--device",
        "red-w6",
        "--address",
        "10.1.0.6",
    ]);
    first.status("20s");
    let reaches_all = || {
        for host in [2, 5, 6] {
            let answer = stations[&("red-net", 1)].asks(host, ANSWER);
            assert_eq!(answer, Some(format!("red-net/w{host}")));
        }
    };
    reaches_all();
    cluster.kill_all();
    cluster.wipe();
    cluster.start_all();
    let empty = first.weir(&["net", "store", "status"]);
    assert_eq!(empty.status.code(), Some(1));
    assert!(
        stderr(&empty).contains("the store is empty"),
        "{}",
        stderr(&empty)
    );
    for edge in &bed.edges {
        assert_eq!(
            edge.agent().event_of("store", "held")["edge"],
            edge.name.as_str()
        );
    }
    reaches_all();
    cluster.kill_all();
    cluster.wipe();
    cluster.restore(&snapshot);
    for edge in &bed.edges {
        edge.agent().skip();
    }
    cluster.start_all();
    // Until an edge has come back, the store has its result of before.
    for edge in &bed.edges {
        edge.agent().event_of("store", "held");
    }
    let status = first.status("30s");
    let held: u64 = status["edges"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| one["held"].as_u64().expect("a number"))
        .sum();
    assert!(held >= 3, "each edge keeps w6: {status}");
    // Longer than the grace period.
    std::thread::sleep(Duration::from_millis(1500));
    reaches_all();
    let (sent, received, _) = stream.end();
    report(&format!(
        "while members, all of etcd and an agent were killed, the store was wiped and restored: {sent} sent, {} lost",
        sent - received
    ));
    assert_eq!(
        (sent, received),
        (sent, sent),
        "nothing of the stream is lost"
    );
    assert!(sent > 2000, "{sent}");

    // The operator accepts the restored state.
    first.done(&["net", "store", "accept"]);
    first.status("20s");
    let until = Instant::now() + PATIENCE;
    while stations[&("red-net", 1)].asks(6, SILENCE).is_some() {
        assert!(Instant::now() < until, "w6 is let go");
    }
    assert_eq!(
        stations[&("red-net", 1)].asks(5, ANSWER).as_deref(),
        Some("red-net/w5")
    );
    reach_as_declared(&stations);
    drop((fifth, sixth));
}
