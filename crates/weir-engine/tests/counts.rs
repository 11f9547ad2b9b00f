//! Limits of connections at a time under a flood of sources, in every engine: whoever is above stays above, what finds no room is refused
//! and counted, and what has ended makes room. 5,000 sources here, also a million with `WEIR_LONG=1`.

#![allow(clippy::print_stderr, reason = "figures are said where the test runs")]

use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Duration;

use weir_engine::live::{Hook, Live, OpenConnections, Options, written};
use weir_engine::{EngineKind, Packet, ReplayHook, ReplayOptions};
use weir_functions::middlebox::Edit;
use weir_functions::plan::Port;
use weir_kernel::{NetNs, XdpMode, bed};
use weir_packet::build::Frame;
use weir_packet::{Reason, Verdict};
use weir_policy::model::Policy;
use weir_policy::{FileSets, Parsed, Source, parse};

use crate::common::{engines, policy, tc_engines};

/// Sources that send one packet each, and `limits N`: so many buckets of four names.
const SHORT: (u32, u32) = (5_000, 64);
const LONG: (u32, u32) = (1_000_000, 16_384);

/// What one engine did.
#[derive(Debug, PartialEq, Eq)]
struct Flooded {
    /// Whether each packet of the source that has all its connections open passed.
    heavy: Vec<bool>,
    /// Packets of the flood that passed.
    passed: u32,
    /// Whether another source had a connection when the flood was over.
    late: bool,
    dropped: u64,
    full: u64,
}

fn from(source: [u8; 4], port: u16) -> Vec<u8> {
    Frame::new()
        .ip4(source, [192, 0, 2, 1])
        .udp(port, 53)
        .payload(b"flood")
        .build()
}

fn flood(hook: ReplayHook, kind: EngineKind, policy: &Arc<Policy>, sources: u32) -> Flooded {
    let options = ReplayOptions {
        ports: vec![Port {
            number: 1,
            name: Some("eth0".to_owned()),
            index: 2,
        }],
        ..ReplayOptions::default()
    };
    let mut engine = weir_engine::open_for(hook, kind, policy, &options).expect("loads");
    let (mut number, mut out) = (0, Vec::new());
    let mut judge = |frame: &[u8], now_ns| {
        let packet = Packet {
            frame,
            now_ns,
            number,
            port: 1,
            queue: 0,
        };
        number += 1;
        engine.packet(&packet, &mut out).expect("runs") == Verdict::Pass
    };
    let start = 1_000_000_000u64;
    let heavy = [10, 0, 0, 1];
    let mut done = Flooded {
        heavy: vec![judge(&from(heavy, 1), start), judge(&from(heavy, 2), start)],
        passed: 0,
        late: false,
        dropped: 0,
        full: 0,
    };
    for n in 0..sources {
        let now_ns = start + u64::from(n) * 1000;
        let [_, a, b, c] = n.to_be_bytes();
        done.passed += u32::from(judge(&from([11, a, b, c], 1), now_ns));
        if n % 50 == 0 {
            done.heavy
                .push(judge(&from(heavy, 3 + (n % 1000) as u16), now_ns));
        }
    }
    // All connections are dead by then.
    let late = start + 600_000_000_000;
    done.late = (0..8).all(|n| judge(&from([12, 0, 0, n], 1), late));
    let (stats, _) = engine.totals().expect("reads");
    assert_eq!(stats.received, number);
    done.dropped = stats.reason[Reason::RuleDrop as usize];
    done.full = stats.reason[Reason::LimitFull as usize];
    done
}

#[test]
fn a_flood_of_sources_lets_nobody_in_above_the_limit() {
    for hook in [ReplayHook::Xdp, ReplayHook::Tc] {
        let kinds = match hook {
            ReplayHook::Tc => tc_engines(),
            _ => engines(),
        };
        limit_holds(hook, &kinds, SHORT);
    }
}

#[test]
fn a_flood_of_a_million_sources_lets_nobody_in_above_the_limit() {
    if std::env::var("WEIR_LONG").as_deref() != Ok("1") {
        return;
    }
    // The interpreter has its part above; a million packets take it too long.
    let mut kinds = engines();
    kinds.retain(|kind| *kind != EngineKind::User);
    limit_holds(ReplayHook::Xdp, &kinds, LONG);
}

fn limit_holds(hook: ReplayHook, kinds: &[EngineKind], (sources, limits): (u32, u32)) {
    let names = 4 * limits;
    let policy = policy(&format!(
        "limits {limits}\nconnections {}\nadd-stateful udp timeout 20s\nudp-dport 53 drop over 2 connections per source",
        2 * names
    ));
    let reference = flood(hook, EngineKind::Reference, &policy, sources);
    for kind in kinds {
        let done = flood(hook, *kind, &policy, sources);
        assert_eq!(done, reference, "{hook:?} {kind:?}");
    }
    assert_eq!(reference.heavy[..2], [true, true]);
    assert!(!reference.heavy[2..].contains(&true));
    assert!(reference.passed < names, "{}", reference.passed);
    // Nearly every bucket met more than four.
    assert!(reference.passed > names / 10 * 9, "{}", reference.passed);
    assert_eq!(u64::from(sources - reference.passed), reference.full);
    assert_eq!(reference.dropped, reference.heavy.len() as u64 - 2);
    assert!(reference.late);
    eprintln!(
        "{hook:?}: of {sources} sources {} opened a connection in a table of {names} names, {} found no room; {} packets of one at its limit were dropped",
        reference.passed, reference.full, reference.dropped
    );
}

/// Its tables are as the packets left them: seen from outside, and by the packets behind an edit and a rebuild.
#[test]
fn names_at_their_limit_stay_at_it_through_rebuilds() {
    if !engines().contains(&EngineKind::Kernel) {
        return;
    }
    for (name, hook) in [("xdp", Hook::Xdp(XdpMode::Native)), ("tc", Hook::Tc)] {
        stay_at_their_limit(name, hook);
    }
}

fn stay_at_their_limit(name: &str, hook: Hook) {
    let near = NetNs::create(&format!("weir-cnt-{name}-1")).expect("namespace");
    let far = NetNs::create(&format!("weir-cnt-{name}-2")).expect("namespace");
    let end = |ns, address| bed::End {
        ns,
        name: "wcount",
        addresses: address,
    };
    let ends = [end(&near, &["10.78.0.1/24"]), end(&far, &["10.78.0.2/24"])];
    bed::veth(ends[0], ends[1]).expect("veth");
    let bind = |ns: &NetNs, at: (&'static str, u16)| {
        let socket = ns.run(move || UdpSocket::bind(at));
        let socket = socket.expect("namespace").expect("bind");
        (socket.set_read_timeout(Some(Duration::from_millis(200)))).expect("timeout");
        socket
    };
    let server = bind(&far, ("10.78.0.2", 7005));
    let clients: Vec<UdpSocket> = (5001..5004)
        .map(|port| bind(&near, ("10.78.0.1", port)))
        .collect();
    let arrives = |n: usize| {
        let client = &clients[n];
        client.send_to(b"ask", "10.78.0.2:7005").expect("sends");
        server.recv(&mut [0; 8]).is_ok()
    };
    let policy = "connections 1024\nadd-stateful udp-dport 7005 timeout 1h\nudp-dport 7005 drop over 2 connections per source\n";
    let start = || {
        let options = Options {
            hook: Some(hook),
            egress: false,
            checksums: None,
            vlan_in_frame: false,
        };
        Live::start(&read(policy), &["wcount".to_owned()], options).expect("runs")
    };
    let live = far.run(start).expect("namespace");
    let edit = |text: &str| {
        let added = written(&read(text)).into_iter();
        let edits = added.map(|rule| Edit::Add(Box::new(rule))).collect();
        let edited = far.run(|| {
            let mut running = live.running().lock().expect("not poisoned");
            running.edit(edits)
        });
        edited.expect("namespace").expect("changes").rebuilt
    };
    let open = || {
        let running = live.running().lock().expect("not poisoned");
        let limits = running.limits().expect("reads");
        assert_eq!((limits[0].rule, limits[0].connections), (2, Some(2)));
        limits[0].open.expect("connections are counted")
    };
    let stays = |what: &str| {
        let full = OpenConnections {
            names: 1,
            at_limit: 1,
            connections: 2,
        };
        assert_eq!(open(), full, "{name}, {what}");
        assert!(!arrives(2), "{name}, {what}: a third connection");
        assert!(arrives(0) && arrives(1), "{name}, {what}: open ones");
    };
    assert_eq!(open(), OpenConnections::default());
    assert!(arrives(0) && arrives(1));
    stays("at first");
    assert!(!edit("udp-dport 9 drop\n"));
    stays("a rule behind");
    let compact = || {
        let mut running = live.running().lock().expect("not poisoned");
        running.compact().map(drop)
    };
    far.run(compact).expect("namespace").expect("rebuilds");
    stays("a rebuild");
    assert!(edit("tcp-dport 9 mod ip-dscp 8\n"));
    stays("a rebuild for a rule that rewrites");
    // With another limit of this kind the tables have another layout, and all counts start from 0.
    assert!(edit("udp-dport 10 drop over 1 connections\n"));
    assert_eq!(open(), OpenConnections::default());
    assert!(arrives(2), "{name}: it is the first that is counted");
    assert_eq!(open().connections, 1);
    far.run(|| live.stop()).expect("namespace").expect("stops");
}

fn read(text: &str) -> Parsed {
    match parse(&Source::new("test.weir", text), &FileSets::relative_to(".")) {
        Ok(parsed) => parsed,
        Err(diagnostics) => panic!("{diagnostics}\n{text}"),
    }
}
