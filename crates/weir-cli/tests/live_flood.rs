//! A flood of sources against a running policy: limits for each source, of packets and of connections, hold those above them, a dynamic set keeps
//! the latest, and none takes more memory than the policy says. 20,000 sources here, a million with `WEIR_LONG=1`. Needs root.

#![allow(clippy::print_stderr, reason = "figures are said where the test runs")]

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use crate::live_bed::{Run, matched, root, stderr, weir};
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};
use serde_json::Value;
use weir_kernel::{FrameSocket, NetNs, bed, pins};
use weir_packet::build::Frame;

/// Sources that send packet after packet to the limited port.
const HEAVY: u32 = 20;
/// Packets of the flood between two of theirs.
const BETWEEN: u32 = 10;
/// 1 a minute, 3 at once.
const BURST: u64 = 3;
/// Connections that a source may have open.
const OPEN: u64 = 2;

fn frame(source: u32, port: u16) -> Vec<u8> {
    frame_from(source, 5000, port)
}

fn frame_from(source: u32, sport: u16, port: u16) -> Vec<u8> {
    Frame::new()
        .ip4(source.to_be_bytes(), [10, 84, 0, 2])
        .udp(sport, port)
        .payload(b"flood")
        .build()
}

#[test]
fn a_flood_of_sources_displaces_itself_in_bounded_memory() {
    if !root("a_flood_of_sources_displaces_itself_in_bounded_memory") {
        return;
    }
    pins::ensure_bpffs().expect("bpffs");
    let sources: u32 = match std::env::var("WEIR_LONG").as_deref() == Ok("1") {
        true => 1_000_000,
        false => 20_000,
    };
    let (left, right) = (
        NetNs::create("weirf-l").expect("namespace"),
        NetNs::create("weirf-r").expect("namespace"),
    );
    let end = |ns, name, addresses| bed::End {
        ns,
        name,
        addresses,
    };
    bed::veth(
        end(&left, "left0", &["10.84.0.1/24"]),
        end(&right, "right0", &["10.84.0.2/24"]),
    )
    .expect("veth");
    // Far fewer words and places than sources.
    let (limits, size) = (sources / 16, u64::from(sources / 64));
    let policy = format!(
        "limits {limits}\nconnections {}\nset seen = dynamic size {size} timeout 1h\nlimit: udp-dport 53 drop over 1/m burst {BURST} per source\n\
         fill: udp-dport 54 add @seen source\n\
         add-stateful udp-dport 55 timeout 1h\ncount: udp-dport 55 drop over {OPEN} connections per source\n",
        8 * limits.next_power_of_two()
    );
    let words = 4 * u64::from(limits.next_power_of_two());
    let places = size.div_ceil(2) * 8;
    let run = Run::start(&right, &policy, &["right0"], &[]);
    let kept = weir(&right, &["set", "add", "seen", "192.0.2.9", "--permanent"]);
    assert!(kept.status.success(), "{}", stderr(&kept));
    let before_kib = run.peak_kib();

    // From one CPU, so that packets are judged one after the other.
    let mut one = CpuSet::new();
    one.set(sched_getcpu());
    sched_setaffinity(None, &one).expect("one CPU");
    let socket =
        FrameSocket::open(&left, "left0", 1 << 16, Duration::from_secs(1)).expect("socket");
    let began = Instant::now();
    let mut heavy = 0u64;
    for n in 0..sources {
        if n % BETWEEN == 0 {
            let source = 0x0a00_0100 + n / BETWEEN % HEAVY;
            socket.send(&frame(source, 53)).expect("sent");
            heavy += 1;
        }
        socket.send(&frame(0x0b00_0000 + n, 53)).expect("sent");
    }
    let limited = began.elapsed();
    for n in 0..sources {
        socket.send(&frame(0x0b00_0000 + n, 54)).expect("sent");
    }
    let filled = began.elapsed() - limited;
    // Sources at their limit, then the flood, then those again.
    for n in 0..HEAVY * OPEN as u32 {
        let source = 0x0a00_0100 + n % HEAVY;
        socket
            .send(&frame_from(source, 1 + n as u16, 55))
            .expect("sent");
    }
    let mut refused = 0u64;
    for n in 0..sources {
        if n % BETWEEN == 0 {
            let source = 0x0a00_0100 + n / BETWEEN % HEAVY;
            let sport = 1000 + (n / BETWEEN % 60_000) as u16;
            socket.send(&frame_from(source, sport, 55)).expect("sent");
            refused += 1;
        }
        socket.send(&frame(0x0b00_0000 + n, 55)).expect("sent");
    }
    let counted = began.elapsed() - filled - limited;
    // Before the tables are asked for: who shows them maps them.
    let after_kib = run.peak_kib();
    let tables = weir(&right, &["tables", "--json"]);
    assert!(tables.status.success(), "{}", stderr(&tables));
    let tables: Value = serde_json::from_slice(&tables.stdout).expect("JSON");
    let listed = weir(&right, &["set", "list", "seen", "--json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).expect("JSON");
    let report = run.stop();
    let reason = |name: &str| report["reasons"][name].as_u64().unwrap_or(0);

    // The limit: whoever sends one packet passes, and displaces others of the flood, not those above.
    assert!(
        limited < Duration::from_secs(55),
        "{limited:?}: nothing is due yet"
    );
    let judged = matched(&report, "limit");
    assert_eq!(judged, u64::from(sources) + heavy, "{report}");
    // None of the heavy sources opened more than it may, and whoever found no room was told from them.
    let dropped = reason("rule_drop") - refused;
    assert_eq!(heavy - dropped, u64::from(HEAVY) * BURST, "{report}");
    let no_room = reason("limit_full");
    let opened = u64::from(sources) - no_room;
    assert!(
        opened <= words && opened > words / 10 * 9,
        "{opened} of {words} names"
    );
    let limit = (tables["limits"].as_array().expect("limits").iter())
        .find(|limit| limit["connections"] == OPEN)
        .expect("the limit of connections");
    assert_eq!(
        (&limit["names"], &limit["open"]["at_limit"]),
        (&words.into(), &HEAVY.into())
    );
    assert_eq!(limit["open"]["names"], opened + u64::from(HEAVY), "{limit}");
    assert_eq!(
        limit["open"]["connections"],
        opened + u64::from(HEAVY) * OPEN,
        "{limit}"
    );
    let displaced = reason("limit_displaced");
    let names = u64::from(sources + HEAVY);
    assert!(
        (names - words..names).contains(&displaced),
        "{displaced} of {names}, {words} words"
    );

    // The set: full, with the latest sources and what was put in for good.
    assert_eq!(matched(&report, "fill"), u64::from(sources));
    let elements = listed["elements"].as_array().expect("a list");
    assert_eq!(elements.len() as u64, places);
    let pushed_out = u64::from(sources) - (places - 1);
    assert_eq!(
        (reason("set_displaced"), reason("set_full")),
        (pushed_out, 0)
    );
    let held: Vec<&str> = elements
        .iter()
        .filter_map(|one| one["element"].as_str())
        .collect();
    assert!(held.contains(&"192.0.2.9"));
    // A bucket has 8 places: of the last sources as many as one eighth of the set, hardly any meets 8 later ones in its bucket.
    let latest = (sources - places as u32 / 8..sources).map(|n| Ipv4Addr::from(0x0b00_0000 + n));
    let missing = latest
        .filter(|one| !held.contains(&one.to_string().as_str()))
        .count();
    assert!(
        missing as u64 * 100 <= places / 8,
        "{missing} of the last {}",
        places / 8
    );

    eprintln!(
        "{sources} sources: {displaced} displaced another one in {words} words, {pushed_out} in {places} places; {dropped} of {heavy} packets of \
         {HEAVY} heavy sources were dropped; {opened} opened a connection in {words} names, {no_room} found no room, {refused} of heavy sources were \
         refused; {limited:?}, {filled:?} and {counted:?}; memory of the process {before_kib} KiB before, {after_kib} KiB behind"
    );
    // Tables are as large as the policy says from the start.
    assert!(
        after_kib < before_kib + 1024,
        "{before_kib} KiB, {after_kib} KiB"
    );
}
