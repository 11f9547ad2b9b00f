//! A router's tables against the plainest model of longest prefixes: whatever is put in and taken out in whatever order, every address gets
//! what the longest prefix says, no node is lost, and who opens the memory later goes on as if he had been there from the start.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weir_bpf::abi::router::hop;
use weir_functions::router::memory::{PlanMemory, Size};
use weir_functions::router::rib::{Hop, Memory, Rib, RibError, TableCapacity, Way};
use weir_value::Prefix;

/// A sequence of numbers that is the same everywhere (splitmix64).
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

fn size(wide: bool, counted: bool) -> Size {
    Size {
        wide,
        nodes: 4096,
        room: TableCapacity {
            routes: 2000,
            hops: 300,
            groups: 64,
        },
        counted,
    }
}

fn hop(number: u64) -> Hop {
    Hop {
        kind: hop::GATEWAY,
        interface: (number % 3) as u16,
        address: Some(Ipv4Addr::from(0x0a00_0000 + number as u32).into()),
        mtu: 0,
        mac: [0; 6],
    }
}

fn gateway(number: u64) -> Way {
    Way {
        hops: match number % 7 {
            0 => vec![(hop(number), 1), (hop(number + 1), 3)],
            _ => vec![(hop(number), 1)],
        },
    }
}

/// Addresses that crowd, so that prefixes lie in each other.
fn prefix(draws: &mut Draws) -> Prefix {
    let v6 = draws.below(3) == 0;
    let bits: u128 = match v6 {
        false => {
            let high = [0u32, 10, 10, 192][draws.below(4) as usize] << 24;
            u128::from(high | (draws.below(4) as u32) << 16 | draws.below(1 << 10) as u32) << 96
        }
        true => {
            let high = 0x2001_0db8u128 << 96 | u128::from(draws.below(4)) << 80;
            let low = u128::from(draws.below(16)) << 8 | u128::from(draws.below(16));
            high | u128::from(draws.below(8)) << 62 | low
        }
    };
    let len = match draws.below(4) {
        0 => [0, 8, 16, 24, 32, 25, 17][draws.below(7) as usize],
        _ => draws.below(if v6 { 129 } else { 33 }) as u8,
    };
    Prefix::around(address(v6, bits), len)
}

fn address(v6: bool, bits: u128) -> IpAddr {
    match v6 {
        false => Ipv4Addr::from((bits >> 96) as u32).into(),
        true => Ipv6Addr::from(bits).into(),
    }
}

type Model = BTreeMap<Prefix, BTreeMap<u32, Way>>;

fn longest(model: &Model, address: IpAddr) -> Option<Way> {
    let holds = model
        .iter()
        .filter(|(p, _)| p.is_ip6 == address.is_ipv6() && Prefix::around(address, p.len) == **p);
    let (_, ways) = holds.max_by_key(|(p, _)| p.len)?;
    ways.values().next().cloned()
}

/// Of a group only who is in it can be compared: buckets are shares, not weights.
fn members(way: Option<Way>) -> Option<Vec<Hop>> {
    let mut hops: Vec<Hop> = way?.hops.into_iter().map(|(hop, _)| hop).collect();
    hops.sort_by_key(|hop| (hop.address, hop.interface));
    Some(hops)
}

/// First and last addresses of prefixes, their neighbours, and others.
fn probes(model: &Model, draws: &mut Draws) -> Vec<IpAddr> {
    let edges = model.keys().flat_map(|p| {
        let first = match p.is_ip6 {
            true => p.first,
            false => p.first << 96,
        };
        let last = first | u128::MAX.checked_shr(p.len.into()).unwrap_or(0);
        [first, last, first.wrapping_sub(1), last.wrapping_add(1)]
            .map(|bits| address(p.is_ip6, bits))
    });
    let mut all: Vec<IpAddr> = edges.collect();
    all.extend((0..50).map(|_| prefix(draws).address()));
    all
}

#[test]
fn tables_say_what_the_longest_prefix_says() {
    let rounds = std::env::var("WEIR_CASES")
        .ok()
        .and_then(|n| n.parse().ok());
    for seed in 0..rounds.unwrap_or(24u64) {
        let (wide, counted) = (seed % 8 == 0, seed % 3 == 0);
        let mut draws = Draws(seed);
        let mut rib = Rib::open(PlanMemory::new(size(wide, counted)), counted);
        let mut model = Model::new();
        for step in 0..400 {
            let here = prefix(&mut draws);
            let metric = [0, 0, 0, 5, 10][draws.below(5) as usize];
            if draws.below(3) > 0 {
                let way = gateway(draws.below(40));
                rib.put(here, &way, metric, 0).expect("there is room");
                model.entry(here).or_default().insert(metric, way);
            } else {
                // One that is there, as often as not.
                let known = model
                    .keys()
                    .nth(draws.below(model.len().max(1) as u64) as usize);
                let here = known.copied().filter(|_| step % 2 == 0).unwrap_or(here);
                let first = model
                    .get(&here)
                    .and_then(|ways| ways.keys().next().copied());
                assert_eq!(
                    rib.remove(here, None),
                    first.is_some(),
                    "seed {seed} {here}"
                );
                if let (Some(first), Some(ways)) = (first, model.get_mut(&here)) {
                    ways.remove(&first);
                    if ways.is_empty() {
                        model.remove(&here);
                    }
                }
            }
            if draws.below(5) == 0 {
                rib.settle();
            }
            if step % 40 == 39 {
                for address in probes(&model, &mut draws) {
                    let want = members(longest(&model, address));
                    let at = format!("seed {seed} step {step} {address}");
                    assert_eq!(members(rib.find(address)), want, "{at}");
                    assert_eq!(members(rib.lookup(address).map(|f| f.1)), want, "{at}");
                }
                // Who comes later finds the same, and what is free.
                let (len, nodes) = (rib.len(), rib.nodes());
                rib = Rib::open(rib.into_memory(), counted);
                assert_eq!(
                    (rib.len(), rib.nodes()),
                    (len, nodes),
                    "seed {seed} step {step}"
                );
            }
        }
        for here in model.keys().copied().collect::<Vec<_>>() {
            while rib.remove(here, None) {}
        }
        assert!(
            rib.is_empty() && rib.nodes() == 0,
            "seed {seed}: {} nodes stay",
            rib.nodes()
        );
        assert_eq!(rib.find(Ipv4Addr::new(10, 0, 0, 1).into()), None);
    }
}

#[test]
fn a_full_table_changes_nothing() {
    let small = Size {
        nodes: 1,
        room: TableCapacity {
            routes: 600,
            hops: 4,
            groups: 2,
        },
        ..size(false, false)
    };
    let net = |a: u8, b: u8, c: u8, len: u8| Prefix::around(Ipv4Addr::new(a, b, c, 0).into(), len);
    let mut rib = Rib::open(PlanMemory::new(small), false);
    let way = gateway(1);
    // One element of nodes holds 256 of them.
    for n in 0..=255 {
        rib.put(net(10, n, 1, 24), &way, 0, 0).expect("room");
    }
    let none = RibError::Nodes { waiting: false };
    assert_eq!(rib.put(net(11, 0, 1, 24), &way, 0, 0), Err(none));
    assert_eq!(rib.len(), 256);
    assert_eq!(rib.find(Ipv4Addr::new(11, 0, 1, 1).into()), None);
    assert_eq!(
        rib.find(Ipv4Addr::new(10, 7, 1, 1).into()),
        Some(way.clone())
    );
    // One that goes makes room once nobody reads it any more.
    assert!(rib.remove(net(10, 7, 1, 24), None));
    let waiting = RibError::Nodes { waiting: true };
    assert_eq!(rib.put(net(11, 0, 1, 24), &way, 0, 0), Err(waiting));
    rib.settle();
    assert_eq!(rib.put(net(11, 0, 1, 24), &way, 0, 0), Ok(()));
    // Next hops, too.
    for n in [2, 3] {
        rib.put(net(12, n, 0, 16), &gateway(n.into()), 0, 0)
            .expect("room");
    }
    assert_eq!(
        rib.put(net(12, 9, 0, 16), &gateway(9), 0, 0),
        Err(RibError::Hops(3))
    );
}

#[test]
fn few_flows_move_when_a_next_hop_goes() {
    let mut rib = Rib::open(PlanMemory::new(size(false, false)), false);
    let here = Prefix::around(Ipv4Addr::new(10, 0, 0, 0).into(), 8);
    let way = |members: &[u64]| Way {
        hops: members.iter().map(|n| (hop(*n), 1)).collect(),
    };
    let buckets = |rib: &Rib<PlanMemory>| {
        let (_, _, _, _, at) = rib.routes().next().expect("a route");
        let to = rib.memory().route(at as usize).expect("in memory").to;
        let group = rib
            .memory()
            .group((to & 0xff_ffff) as usize)
            .expect("a group");
        group
            .hop
            .map(|n| rib.memory().hop(n.into()).expect("a hop").address[3])
    };
    rib.put(here, &way(&[1, 2, 3, 4]), 0, 0).expect("room");
    let before = buckets(&rib);
    assert!((1..=4).all(|n| before.iter().filter(|b| **b == n).count() == 64));
    rib.put(here, &way(&[1, 2, 4]), 0, 0).expect("room");
    let after = buckets(&rib);
    let pairs = before.iter().zip(&after);
    let moved = pairs.filter(|(b, a)| **b != 3 && b != a).count();
    assert_eq!(moved, 0, "flows of hops that stay do not move");
    assert!(after.iter().all(|n| *n != 3));
    rib.put(here, &way(&[1, 2, 3, 4]), 0, 0).expect("room");
    let last = buckets(&rib);
    let moved = last
        .iter()
        .zip(&after)
        .filter(|(b, a)| **b != 3 && b != a)
        .count();
    assert_eq!(moved, 0, "only what the new hop gets moves");
}
