//! Section 3, "Limits apart": what is counted together, and what is forgotten where a table is full.

use std::collections::HashMap;

use proptest::prelude::*;
use weir_packet::build::Frame;
use weir_packet::{Reason, Verdict};

use super::{Input, Options, Reference, policy, present};
use crate::model::{DropWhen, Per, Policy, Target};

const MS: u64 = 1_000_000;

const SOURCE: Per = Per {
    source: true,
    destination: false,
    len4: 32,
    len6: 128,
};
const DESTINATION: Per = Per {
    source: false,
    destination: true,
    ..SOURCE
};
const PAIR: Per = Per {
    destination: true,
    ..SOURCE
};

/// A rule for everything: one packet each 100 ms.
fn limited(per: Per, burst: u32, limits: u32) -> Policy {
    let when = DropWhen::OverEach {
        period_ns: 100 * MS,
        burst,
        per,
    };
    let mut policy = policy(vec![(vec![present("all")], vec![Target::Drop(when)])]);
    policy.connections.limits = limits;
    policy
}

struct Bench(Reference);

impl Bench {
    fn new(policy: Policy) -> Bench {
        Bench(Reference::new(policy, Options::default()))
    }

    /// Whether a packet passes, and whether it displaced an address.
    fn meets(&mut self, frame: &[u8], now_ns: u64) -> (bool, bool) {
        let outcome = self.0.run(Input {
            now_ns,
            ..Input::new(frame)
        });
        let displaced = outcome.reasons.contains(&Reason::LimitDisplaced);
        (outcome.verdict == Verdict::Pass, displaced)
    }

    fn passes(&mut self, frame: &[u8], now_ns: u64) -> bool {
        self.meets(frame, now_ns).0
    }
}

fn four(from: u8, to: u8) -> Vec<u8> {
    let frame = Frame::new().ip4([10, 0, from, 1], [192, 0, 2, to]);
    frame.udp(5000, 53).build()
}

fn six(from: u8, to: u8) -> Vec<u8> {
    let address = |net: u8, host: u8| {
        let mut address = [0x20; 16];
        (address[7], address[15]) = (net, host);
        address
    };
    let frame = Frame::new().ip6(address(from, 1), address(0, to));
    frame.udp(5000, 53).build()
}

#[test]
fn what_is_counted_together() {
    for made in [four, six] {
        for (per, same, other) in [
            (SOURCE, (1, 2), (2, 1)),
            (DESTINATION, (2, 1), (1, 2)),
            (PAIR, (1, 1), (1, 2)),
            (PAIR, (1, 1), (2, 1)),
        ] {
            let mut bench = Bench::new(limited(per, 1, 65_536));
            assert!(bench.passes(&made(1, 1), 0));
            assert!(!bench.passes(&made(same.0, same.1), 0), "{per:?}");
            assert!(bench.passes(&made(other.0, other.1), 0), "{per:?}");
        }
    }
}

#[test]
fn lengths_say_how_much_of_an_address_counts() {
    let networks = Per {
        len4: 22,
        len6: 63,
        ..SOURCE
    };
    for made in [four, six] {
        let mut bench = Bench::new(limited(networks, 1, 65_536));
        assert!(bench.passes(&made(4, 1), 0));
        assert!(!bench.passes(&made(5, 1), 0));
        assert!(bench.passes(&made(8, 1), 0));
        assert!(bench.passes(&made(0, 1), 0));
    }
}

#[test]
fn families_are_apart() {
    let mut bench = Bench::new(limited(SOURCE, 1, 65_536));
    let mapped = Frame::new().ip6(
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 1, 1],
        [0x20; 16],
    );
    assert!(bench.passes(&four(1, 1), 0));
    assert!(bench.passes(&mapped.udp(5000, 53).build(), 0));
}

#[test]
fn what_has_no_address_is_within() {
    let mut bench = Bench::new(limited(SOURCE, 1, 1));
    let mut arp = vec![2; 42];
    (arp[12], arp[13]) = (8, 6);
    for _ in 0..9 {
        assert_eq!(bench.meets(&arp, 5), (true, false));
    }
}

#[test]
fn a_full_bucket_forgets_what_is_due_first() {
    let mut bench = Bench::new(limited(SOURCE, 1, 1));
    // One bucket of four words, due at 100, 110, 120 and 130 ms.
    for n in 0..4 {
        assert_eq!(
            bench.meets(&four(n, 1), u64::from(n) * 10 * MS),
            (true, false)
        );
    }
    assert_eq!(bench.meets(&four(4, 1), 40 * MS), (true, true));
    for n in 1..5 {
        assert!(!bench.passes(&four(n, 1), 50 * MS), "{n}");
    }
    assert_eq!(bench.meets(&four(0, 1), 60 * MS), (true, true));
    assert!(!bench.passes(&four(0, 1), 60 * MS));
    // The one due at 120 is nobody's loss by then.
    assert_eq!(bench.meets(&four(5, 1), 120 * MS), (true, false));
}

#[test]
fn rules_do_not_share_tables() {
    let one = limited(SOURCE, 1, 1);
    let rule = |id| crate::model::Rule {
        id,
        ..one.rules[0].clone()
    };
    let both = Policy {
        rules: vec![rule(1), rule(2)],
        ..one.clone()
    };
    let mut bench = Bench::new(both);
    // Both count the packet, and neither takes the other's words.
    for n in 0..4 {
        assert_eq!(bench.meets(&four(n, 1), 0), (true, false));
        assert_eq!(bench.meets(&four(n, 1), 0), (false, false));
    }
}

/// GCRA, by tokens of whole nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Tokens {
    used_ns: u64,
    at: u64,
}

impl Tokens {
    fn take(&mut self, burst: u64, now: u64) -> bool {
        self.used_ns = self.used_ns.saturating_sub(now - self.at);
        self.at = now;
        let has = self.used_ns + 100 * MS <= burst * 100 * MS;
        if has {
            self.used_ns += 100 * MS;
        }
        has
    }
}

proptest! {
    /// Where there is room, each address has tokens of its own.
    #[test]
    fn addresses_with_room_have_tokens_of_their_own(
        burst in 1u32..4,
        packets in prop::collection::vec((0u8..9, 0u64..60), 1..200),
    ) {
        let mut bench = Bench::new(limited(SOURCE, burst, 65_536));
        let mut tokens: HashMap<u8, Tokens> = HashMap::new();
        let mut now = 0;
        for (from, gap) in packets {
            now += gap * MS;
            let wanted = tokens.entry(from).or_default().take(u64::from(burst), now);
            prop_assert_eq!(bench.meets(&four(from, 1), now), (wanted, false));
        }
    }

    /// In one bucket four addresses are remembered, and the one with most tokens is forgotten.
    #[test]
    fn a_bucket_remembers_those_that_used_most(
        burst in 1u32..4,
        packets in prop::collection::vec((0u8..9, 0u64..60), 1..200),
    ) {
        let mut bench = Bench::new(limited(SOURCE, burst, 1));
        let mut bucket: Vec<(u8, Tokens)> = Vec::new();
        let mut now = 0;
        for (from, gap) in packets {
            now += gap * MS;
            let is_above = |tokens: Tokens| !tokens.clone().take(u64::from(burst), now);
            let held: Vec<u8> = bucket.iter().filter(|(_, t)| is_above(*t)).map(|(name, _)| *name).collect();
            // When a word is full again.
            let due = |tokens: &Tokens| tokens.at + tokens.used_ns;
            let at = bucket.iter().position(|(name, _)| *name == from);
            let mut displaces = false;
            let at = match at {
                Some(at) => at,
                None if bucket.len() < 4 => {
                    bucket.push((from, Tokens { used_ns: 0, at: now }));
                    bucket.len() - 1
                }
                None => {
                    let at = (0..4).min_by_key(|&i| due(&bucket[i].1)).expect("four");
                    displaces = due(&bucket[at].1) > now;
                    bucket[at] = (from, Tokens { used_ns: 0, at: now });
                    at
                }
            };
            let wanted = bucket[at].1.take(u64::from(burst), now);
            prop_assert_eq!(bench.meets(&four(from, 1), now), (wanted, displaces));
            // Who was above its limit is still there, unless all were.
            let is_there = |name: &u8| bucket.iter().any(|(there, _)| there == name);
            prop_assert!(held.len() == 4 || held.iter().all(is_there));
        }
    }
}
