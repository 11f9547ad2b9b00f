//! Function `router` forwards as the kernel does: random routers and random packets, first through the kernel alone, then with weir's router
//! on the same devices, with both kinds of tables. Everything that comes out at the far ends is compared byte for byte.
//!
//! What is masked says `router/compare.rs`; where the two differ on purpose says docs/differences-router.md. 5 routers of 1,000 packets each;
//! with `WEIR_LONG=1` 50 of 2,000. `WEIR_WORLD=N` begins at another one, `WEIR_PACKET=N` sends one packet
//! of it only.

#[path = "router/bed.rs"]
mod bed;
#[path = "router/compare.rs"]
mod compare;
#[path = "router/differ.rs"]
mod differ;
#[path = "router/draw.rs"]
mod draw;
#[path = "router/packets.rs"]
mod packets;
#[path = "router/weir.rs"]
mod weir;
#[path = "router/world.rs"]
mod world;

use std::collections::BTreeMap;

use crate::common;
use bed::{Bed, Seen};
use compare::{Difference, count, differences, told};
use draw::Draw;
use packets::{Packet, draw_packets};
use weir::Running;
use weir_engine::EngineKind;
use world::{PORTS, Route, To, World, host_mac};

/// Whether there is a kernel to compare with.
fn root() -> bool {
    common::engines().contains(&EngineKind::Kernel)
}

/// Routers, the first one's number, and packets of each.
fn extent() -> (u64, u64, usize) {
    let first = std::env::var("WEIR_WORLD").ok();
    let first = first.and_then(|n| n.parse().ok()).unwrap_or(1);
    if std::env::var_os("WEIR_PACKET").is_some() {
        return (first, 1, 1000);
    }
    match std::env::var("WEIR_LONG").as_deref() == Ok("1") {
        true => (first, 50, 2000),
        false => (first, 5, 1000),
    }
}

#[test]
fn two_kernels_agree() {
    if !root() {
        return;
    }
    let (first, worlds, packets) = extent();
    let mut seen = BTreeMap::new();
    for seed in first..first + worlds {
        let world = World::draw(seed);
        let packets = draw_packets(&world, &mut Draw::new(!seed), packets);
        let (a, b) = (Bed::build(&world), Bed::build(&world));
        let (expected, found) = (a.pass(&world, &packets), b.pass(&world, &packets));
        agree(&world, &packets, &differences(&world, &expected, &found));
        count(&mut seen, &world, &packets, &expected);
    }
    println!("{seen:#?}");
    met(&seen);
}

#[test]
fn weir_agrees_with_the_kernel() {
    if !root() {
        return;
    }
    let (first, worlds, packets) = extent();
    let (mut seen, mut known) = (BTreeMap::new(), BTreeMap::new());
    let mut unknown = Vec::new();
    for seed in first..first + worlds {
        let world = World::draw(seed);
        let packets = draw_packets(&world, &mut Draw::new(!seed), packets);
        let expected = Bed::build(&world).pass(&world, &packets);
        count(&mut seen, &world, &packets, &expected);
        for form in weir::FORMS {
            let bed = Bed::build(&world);
            let running = Running::apply(&bed, &world, form);
            let found = bed.pass(&world, &packets);
            for difference in differences(&world, &expected, &found) {
                match differ::why(&world, form, &packets, &difference) {
                    Some(why) => *known.entry((form.name(), why)).or_insert(0) += 1,
                    None => unknown.push(format!(
                        "world {seed}, {}: {}",
                        form.name(),
                        told(&packets, &difference)
                    )),
                }
            }
            running.count(&mut seen);
        }
    }
    println!("{seen:#?}\n{known:#?}");
    let shown: Vec<&str> = unknown.iter().take(10).map(String::as_str).collect();
    assert!(
        unknown.is_empty(),
        "{} differences\n{}",
        unknown.len(),
        shown.join("\n")
    );
    met(&seen);
}

/// The user engine is told of the world what the kernel knows of it.
#[test]
fn the_user_engine_agrees_with_the_kernel() {
    if !root() {
        return;
    }
    let (first, worlds, packets) = extent();
    let mut seen = BTreeMap::new();
    for seed in first..first + worlds {
        let world = World::draw(seed).plain();
        let packets = draw_packets(&world, &mut Draw::new(!seed), packets);
        let bed = Bed::build(&world);
        for form in weir::FORMS {
            let runs = |kind| {
                bed.router
                    .run(|| weir::replay(&world, form, kind, &packets))
            };
            let expected = runs(EngineKind::Kernel).expect("namespace");
            for kind in common::engines() {
                let found = runs(kind).expect("namespace");
                for (n, (a, b)) in expected.iter().zip(&found).enumerate() {
                    assert_eq!(
                        a,
                        b,
                        "world {seed}, {}, {kind:?}: packet {} ({}) {}",
                        form.name(),
                        n + 1,
                        packets[n].what,
                        weir_packet::summary(&packets[n].frame)
                    );
                }
            }
            for (outcome, _) in &expected {
                *seen.entry(outcome.verdict.to_string()).or_insert(0) += 1;
            }
        }
    }
    println!("{seen:#?}");
    for verdict in ["pass", "drop", "redirect"] {
        assert!(seen.get(verdict).is_some_and(|n| *n > 20), "{verdict}");
    }
}

/// A router that is wrong in one thing.
#[test]
fn a_wrong_router_is_noticed() {
    if !root() {
        return;
    }
    let world = World::draw(3);
    let packets = draw_packets(&world, &mut Draw::new(3), 600);
    let bed = Bed::build(&world);
    let expected = bed.pass(&world, &packets);
    let again = bed.pass(&world, &packets);
    agree(&world, &packets, &differences(&world, &expected, &again));

    // One next hop has another address, one destination another way, one kind of refusal is another.
    let (blackhole, _) = line_of(&world, |to| *to == To::Blackhole);
    let (_, route) = line_of(&world, |to| matches!(to, To::Hosts(all) if all.len() == 1));
    let To::Hosts(hops) = &route.to else {
        unreachable!("chosen so")
    };
    let (port, host) = hops[0];
    let elsewhere = Route {
        to: To::Hosts(vec![((port + 1) % PORTS, host)]),
        ..route.clone()
    };
    let refusal = blackhole.replacen("blackhole", "unreachable", 1);
    for wrong in [
        "neigh replace 10.1.0.2 lladdr 02:00:00:00:00:99 dev p0 nud permanent\n".to_owned(),
        format!("route replace {}\n", elsewhere.line()),
        format!("route del {blackhole}\nroute add {refusal}\n"),
        "link set p0 mtu 1300\n".to_owned(),
    ] {
        let bed = Bed::build(&world);
        bed.change(&wrong);
        let all = differences(&world, &expected, &bed.pass(&world, &packets));
        assert!(!all.is_empty(), "nobody noticed {wrong}");
        println!("{} differences: {}", all.len(), wrong.trim_end());
    }
    // Every byte of a frame matters but for those that are masked.
    let wrong = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut found = expected.clone();
        let forwarded = |s: &&mut Vec<Seen>| s.iter().any(|s| s.frame.starts_with(&host_mac(1, 0)));
        let place = found.seen.iter_mut().find(forwarded).expect("some");
        change(&mut place[0].frame);
        differences(&world, &expected, &found).len()
    };
    for byte in [0, 6, 15, 22, 24, 30, 33] {
        assert_eq!(wrong(&|frame| frame[byte] ^= 1), 1, "byte {byte}");
    }
    assert_eq!(wrong(&|frame| frame.truncate(40)), 1);
    assert_eq!(wrong(&|_| ()), 0);
}

/// The first route that leads so, in words.
fn line_of(world: &World, leads: impl Fn(&To) -> bool) -> (String, &Route) {
    let four = world.routes.iter().filter(|r| r.network.is_ipv4());
    let found = four.filter(|r| r.mtu.is_none()).find(|r| leads(&r.to));
    let found = found.expect("the world has such a route");
    (found.line(), found)
}

fn agree(world: &World, packets: &[Packet], all: &[Difference]) {
    let words: Vec<String> = all.iter().take(5).map(|d| told(packets, d)).collect();
    assert!(
        all.is_empty(),
        "world {}: {} differences\n{}",
        world.seed,
        all.len(),
        words.join("\n")
    );
}

/// Agreement about nothing is no agreement: fails unless packets met what they can meet.
fn met(seen: &BTreeMap<String, usize>) {
    for what in [
        "IPv4 forwarded",
        "IPv6 forwarded",
        "IPv4 back by its port",
        "IPv4 in 2 pieces",
        "IPv4 reset",
        "IPv4 ICMP 0/0",
        "IPv4 ICMP 11/0",
        "IPv4 ICMP 3/0",
        "IPv4 ICMP 3/1",
        "IPv4 ICMP 3/4",
        "IPv4 ICMP 3/13",
        "IPv6 ICMP 1/0",
        "IPv6 ICMP 1/1",
        "IPv6 ICMP 129/0",
        "IPv6 ICMP 2/0",
        "IPv6 ICMP 3/0",
        "nothing",
    ] {
        let n = seen.get(what).copied().unwrap_or_default();
        assert!(n > 4, "{what}: {n} packets");
    }
}
