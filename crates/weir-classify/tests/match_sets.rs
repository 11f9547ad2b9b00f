//! Match sets of the classifier against brute force: every ClassBench set that is there, generated IPv6 and option sets, and
//! adversarial ones. The lookup is the model of the data plane; weir-engine tests a sample through the data plane itself.

use std::collections::HashSet;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use weir_bpf::abi::{Cond, Interval, KEY_WORDS, VALUE_MAX, cond_op, key, valid};
use weir_classify::{Classifier, ExactKey, MaskedWord, Offsets, RuleKey, RuleSet, Scheme, build};

const PROTO: usize = key::IP4 + 9;
const SRC: usize = key::IP4 + 12;
const DST: usize = key::IP4 + 16;
const SPORT: usize = key::L4;
const DPORT: usize = key::L4 + 2;
const FLAGS: usize = key::L4 + 13;
const MSS: usize = key::SLOT;

#[test]
fn classbench_sets_match_as_brute_force_does() {
    let Some(folder) = weir_testdata::find("classbench") else {
        return;
    };
    for family in ["acl1", "fw1", "ipc1"] {
        for size in ["1000", "10000", "100000"] {
            let name = format!("{family}_{size}");
            let text = unpack(&folder.join(format!("{name}.gz")));
            let mut set = Set::default();
            text.lines()
                .filter(|l| l.starts_with('@'))
                .for_each(|l| set.classbench(l));
            let mut packets = set.packets(600);
            let trace = folder.join(format!("{name}_trace.gz"));
            if trace.exists() {
                packets.extend(unpack(&trace).lines().take(600).map(trace_packet));
            }
            compare(&name, &set, &packets);
        }
    }
}

#[test]
fn ipv6_sets_match_as_brute_force_does() {
    let mut random = Random(1);
    let mut set = Set::default();
    let sites: Vec<[u8; 16]> = (0..60).map(|_| random.address6()).collect();
    for _ in 0..20_000 {
        let mut rule = vec![];
        rule.extend(number(key::VALID, &2u64.to_ne_bytes(), 2));
        for at in [key::IP6 + 8, key::IP6 + 24] {
            let mut address = sites[random.below(60)];
            address[8 + random.below(8)] = random.below(4) as u8;
            let bits = [0, 32, 48, 56, 64, 64, 96, 127, 128][random.below(9)];
            rule.extend(prefix(at, &address, bits));
        }
        let port = random.below(60_000) as u16;
        match random.below(3) {
            0 => set.push(&rule, &[(DPORT, port, port + 900, false)]),
            1 => {
                rule.extend(exact(DPORT, &port.to_be_bytes()));
                set.push(&rule, &[]);
            }
            _ => set.push(&rule, &[]),
        }
    }
    let packets = set.packets(800);
    compare("ipv6", &set, &packets);
}

#[test]
fn option_sets_match_as_brute_force_does() {
    let present = number(key::VALID, &(1u64 << valid::SLOT).to_ne_bytes(), 0)
        .into_iter()
        .chain(exact(MSS, &[2]));
    let present: Vec<_> = present.collect();
    let mut equal = Set::default();
    for value in 0..10_000u64 {
        let mut rule = present.clone();
        rule.extend(exact(MSS + 8, &value.to_be_bytes()));
        equal.push(&rule, &[]);
    }
    let packets = equal.packets(300);
    let built = compare("option equality", &equal, &packets);
    assert_eq!(built.tables.len(), 1, "equal options are key words");
    assert!(built.worst.candidates <= 8, "{:?}", built.worst);

    let mut random = Random(7);
    let mut ranges = Set::default();
    for _ in 0..1000 {
        let lo = random.below(64_000) as u16;
        ranges.push64(&present, MSS + 8, lo, lo + random.below(60) as u16);
    }
    let packets = ranges.packets(300);
    let built = compare("option ranges", &ranges, &packets);
    assert!(built.worst.candidates < 100, "{:?}", built.worst);
}

#[test]
fn adversarial_sets_match_as_brute_force_does_and_degrade_gently() {
    let mut random = Random(3);
    // Nested ranges: half of them hold for any value, yet lists stay n log n.
    let mut nested = Set::default();
    for i in 0..2000 {
        nested.push(&[], &[(DPORT, i, 65_535 - i, i % 7 == 0)]);
    }
    let packets = nested.packets(100);
    let built = compare("nested ranges", &nested, &packets);
    assert!(built.lists.len() < 2000 * 64, "{}", built.lists.len());

    // One key, ranges on two fields.
    let mut crossed = Set::default();
    for i in 0..3000u16 {
        let (a, b) = (random.below(60_000) as u16, random.below(60_000) as u16);
        crossed.push(
            &exact(PROTO, &[6]),
            &[
                (SPORT, a, a + i, false),
                (DPORT, b, b + 3000 - i, i % 5 == 0),
            ],
        );
    }
    let packets = crossed.packets(200);
    compare("crossed ranges", &crossed, &packets);

    // A rule for each of 1,024 combinations of prefix lengths.
    let mut masks = Set::default();
    for s in 1..=32 {
        for d in 1..=32 {
            let mut rule = prefix(SRC, &random.address4(), s);
            rule.extend(prefix(DST, &random.address4(), d));
            masks.push(&rule, &[]);
        }
    }
    let packets = masks.packets(400);
    let built = compare("1,024 masks", &masks, &packets);
    assert!(built.tables.len() < 200, "{} tables", built.tables.len());

    // Masks that no rounding helps: any bits of two bytes.
    let mut odd = Set::default();
    for mask in 1..=2000u16 {
        let bytes = mask.to_be_bytes();
        let value = random.next() as u16 & mask;
        let value = value.to_be_bytes();
        odd.push(
            &[
                (key::IP4 + 4, bytes[0], value[0]),
                (key::IP4 + 5, bytes[1], value[1]),
            ],
            &[],
        );
    }
    let packets = odd.packets(200);
    compare("odd masks", &odd, &packets);

    // Rules that say nothing, and the same rule many times.
    let mut same = Set::default();
    for i in 0..500 {
        same.push(
            if i % 2 == 0 {
                &[]
            } else {
                &[(PROTO, 0xff, 17)]
            },
            &[],
        );
    }
    let packets = same.packets(20);
    let built = compare("wildcards", &same, &packets);
    assert_eq!(
        built.worst.candidates, 500,
        "they do match, and the bound says so"
    );

    // Half of the values by negation.
    let mut not = Set::default();
    for i in 0..400u16 {
        not.push(&[], &[(SPORT, i * 100, i * 100, true)]);
    }
    let packets = not.packets(100);
    compare("negations", &not, &packets);
}

#[test]
fn any_small_set_matches_as_brute_force_does() {
    let mut random = Random(11);
    for round in 0..400 {
        let mut set = Set::default();
        for _ in 0..1 + random.below(60) {
            let mut rule = Vec::new();
            for at in [PROTO, SRC, SRC + 1, DST, DPORT, FLAGS, key::VALID, MSS + 15] {
                if random.below(3) == 0 {
                    let mask = [0xff, 0xff, 0xf0, 0x12, 0x80][random.below(5)];
                    rule.push((at, mask, (random.below(4) as u8 * 0x11) & mask));
                }
            }
            let mut ranges = Vec::new();
            for at in [SPORT, DPORT] {
                if random.below(3) == 0 {
                    let lo = random.below(8) as u16 * 0x11;
                    ranges.push((at, lo, lo + random.below(80) as u16, random.below(4) == 0));
                }
            }
            set.push(&rule, &ranges);
        }
        let packets = set.packets(40);
        check(
            &format!("small set {round}"),
            &set,
            &packets,
            Scheme::Merged,
        );
        check(
            &format!("small set {round}"),
            &set,
            &packets,
            Scheme::TablePerMask,
        );
    }
}

#[test]
fn a_set_beyond_the_limits_is_refused_with_the_reason() {
    let mut same = Set::default();
    for _ in 0..100_001 {
        same.push(&[], &[]);
    }
    let error = build(&same.view(), Scheme::Merged).expect_err("too many");
    assert!(
        error
            .to_string()
            .starts_with("100001 rules could have to be tested for one packet"),
        "{error}"
    );
}

#[test]
fn rules_that_exclude_each_other_count_once() {
    let mut set = Set::default();
    for i in 0..200u16 {
        let mut rule = exact(PROTO, &[6]);
        rule.extend(exact(DPORT, &(i / 2).to_be_bytes()));
        set.push(&rule, &[]);
    }
    let all: Vec<u32> = (0..200).collect();
    let most = |set: &Set, rules: &[u32]| {
        let built = build(&set.view(), Scheme::Merged).expect("small");
        built.most_at_once(&set.view(), rules, 64)
    };
    assert!(most(&set, &all) <= 64);
    // Of different masks, and apart all the same.
    let mut mixed = Set::default();
    for i in 0..200u16 {
        let mut rule = exact(DPORT, &i.to_be_bytes());
        rule.extend(prefix(SRC, &[10, 0, 0, 0], usize::from(i % 16)));
        mixed.push(&rule, &[]);
    }
    assert!(most(&mixed, &all) <= 64);
    let mut alike = Set::default();
    for _ in 0..70 {
        alike.push(&exact(PROTO, &[6]), &[]);
    }
    assert_eq!(most(&alike, &all[..70]), 70);
}

/// The bound of a selection of the rules: what the planner asks of rules that rewrite. Asked for with the number that a packet
/// reached, so that the search for a better bound goes on as long as it may.
#[test]
fn the_bound_of_any_selection_holds_for_every_packet() {
    let mut random = Random(21);
    for round in 0..120 {
        let mut set = Set::default();
        // Few rules, each a few times and in any order: buckets and shapes of different sizes, trees in some of them.
        let mut pool: Vec<(Vec<Byte>, Vec<Range>)> = Vec::new();
        let (masks, fields) = (1 + random.below(4), 1 + random.below(4));
        for _ in 0..2 + random.below(8) {
            let mut rule = Vec::new();
            for at in &[DPORT, SRC, DST, PROTO][..fields] {
                if masks == 1 || random.below(2) == 0 {
                    let mask = [0xff, 0xf0, 0xff, 0xc0][random.below(masks)];
                    rule.push((*at, mask, (random.below(3) as u8 * 0x41) & mask));
                }
            }
            let lo = random.below(6) as u16 * 0x21;
            let ranges = [(SPORT, lo, lo + random.below(90) as u16, false)];
            pool.push((rule, ranges[..random.below(2)].to_vec()));
        }
        for _ in 0..2 + random.below(60) {
            let (rule, ranges) = &pool[random.below(pool.len())];
            set.push(rule, ranges);
        }
        let view = set.view();
        let selection: Vec<u32> = (0..set.rules.len() as u32)
            .filter(|_| round % 3 == 0 || random.below(2) == 0)
            .collect();
        let selected = |packet| {
            let matched = set.brute_force(packet);
            (matched.iter().filter(|&rule| selection.contains(rule))).count()
        };
        let reached = (set.packets(120).iter().map(selected)).max().unwrap_or(0);
        for scheme in [Scheme::Merged, Scheme::Unpruned, Scheme::TablePerMask] {
            let built = build(&view, scheme).expect("a small set");
            let bound = built.most_at_once(&view, &selection, reached);
            assert!(
                (reached..=selection.len()).contains(&bound),
                "round {round}, {scheme:?}: {reached} selected rules match a packet, the bound is {bound}"
            );
        }
    }
}

/// Ranges of whole IPv6 addresses: both halves of a pivot decide.
#[test]
fn trees_over_addresses_of_128_bits_match_as_brute_force_does() {
    let mut random = Random(5);
    let mut bounds = Vec::new();
    for i in 0..400u32 {
        // Half of the ranges differ in the first 64 bits, half in the last.
        let high = u128::from(0x2001_0db8_0000_0000 + u64::from(i % 2) * (random.next() >> 40));
        let low = (high << 64) + u128::from(random.next() >> 8);
        let spread = random.next() >> 16;
        let spread = u128::from(spread) << if i % 4 == 0 { 32 } else { 0 };
        bounds.push((low, low + spread));
    }
    let (rules, conds) = wide_ranges(&bounds);
    let view = RuleSet {
        rules: &rules,
        conds: &conds,
        intervals: &[],
    };
    let built = build(&view, Scheme::Merged).expect("a small set");
    assert!(!built.nodes.is_empty(), "ranges make a tree");
    let mut found_any = 0;
    for &(low, high) in &bounds {
        for address in [
            low,
            high,
            low.wrapping_sub(1),
            high + 1,
            low + (high - low) / 2,
        ] {
            let (found, cost) = built.find(&view, &at_address(address));
            let wanted: Vec<u32> = (0u32..)
                .zip(&bounds)
                .filter(|(_, (low, high))| (low..=high).contains(&&address))
                .map(|(i, _)| i)
                .collect();
            assert_eq!(found, wanted, "{address:#x}");
            assert!(cost.candidates <= built.worst.candidates);
            found_any += found.len();
        }
    }
    assert!(found_any >= 3 * bounds.len());
}

/// A classifier that was moved finds the same rules in arrays that begin with something else.
#[test]
fn a_moved_classifier_finds_the_same() {
    let mut random = Random(6);
    // A large bucket with a tree, small ones without.
    let mut bounds = Vec::new();
    for _ in 0..200 {
        let low = u128::from(random.next()) << 32;
        bounds.push((low, low + u128::from(random.next())));
    }
    let (mut rules, conds) = wide_ranges(&bounds);
    for i in 0..50u8 {
        let mut exact = ExactKey::default();
        assert!(exact.require(&[MaskedWord {
            word: (PROTO / 8) as u8,
            mask: 0xff << (PROTO % 8 * 8),
            value: u64::from(i) << (PROTO % 8 * 8),
        }]));
        rules.push(RuleKey {
            exact,
            ..RuleKey::default()
        });
    }
    let view = RuleSet {
        rules: &rules,
        conds: &conds,
        intervals: &[],
    };
    let built = build(&view, Scheme::Merged).expect("a small set");
    assert!(!built.nodes.is_empty(), "there is a tree");
    let place = Offsets {
        shapes: 3,
        nodes: 7,
        lists: 11,
        rules: 13,
        conds: 17,
    };
    let mut moved = built.clone().moved_to(&place);
    // In front of its arrays lie those of a policy that does not concern it.
    let before = |n: u32| std::iter::repeat_n(0, n as usize);
    moved
        .shapes
        .splice(0..0, before(place.shapes).map(|_| Default::default()));
    moved
        .nodes
        .splice(0..0, before(place.nodes).map(|_| Default::default()));
    moved.lists.splice(0..0, before(place.lists));
    moved.order.splice(0..0, before(place.rules));
    let mut behind = conds.clone();
    behind.splice(
        0..0,
        before(place.conds).map(|_| Cond { off: 0, ..conds[0] }),
    );
    let mut shifted = rules.clone();
    shifted
        .iter_mut()
        .for_each(|rule| rule.cond_first += place.conds);
    let there = RuleSet {
        rules: &shifted,
        conds: &behind,
        intervals: &[],
    };
    let mut found_any = 0;
    for i in 0..600usize {
        let (low, high) = bounds[i % bounds.len()];
        let mut flat = at_address(low + (high - low) / (1 + i as u128 % 3));
        flat[PROTO / 8] |= (i as u64 % 60) << (PROTO % 8 * 8);
        let (found, cost) = built.find(&view, &flat);
        assert_eq!(
            moved.find(&there, &flat),
            (found.clone(), cost),
            "packet {i}"
        );
        found_any += found.len();
    }
    assert!(found_any >= 900, "{found_any}");
}

/// Rules with one range of the IPv6 source address each, and nothing else.
fn wide_ranges(bounds: &[(u128, u128)]) -> (Vec<RuleKey>, Vec<Cond>) {
    let mut conds = Vec::new();
    let mut rules = Vec::new();
    for &(low, high) in bounds {
        let mut u = [0; VALUE_MAX];
        for (i, number) in [low, high].into_iter().enumerate() {
            u[i * 16..][..8].copy_from_slice(&((number >> 64) as u64).to_ne_bytes());
            u[i * 16 + 8..][..8].copy_from_slice(&(number as u64).to_ne_bytes());
        }
        rules.push(RuleKey {
            cond_first: conds.len() as u32,
            cond_count: 1,
            ..RuleKey::default()
        });
        conds.push(Cond {
            op: cond_op::RANGE,
            flags: 0,
            width: 16,
            shift: 0,
            off: (key::IP6 + 8) as u16,
            len: 0,
            mask: u64::MAX,
            set_first: 0,
            set_count: 0,
            u,
        });
    }
    (rules, conds)
}

/// The key of a packet with this IPv6 source address.
fn at_address(address: u128) -> [u64; KEY_WORDS] {
    let mut flat = [0; KEY_WORDS];
    for (i, word) in address.to_be_bytes().chunks_exact(8).enumerate() {
        let mut eight = [0; 8];
        eight.copy_from_slice(word);
        flat[(key::IP6 + 8) / 8 + i] = u64::from_ne_bytes(eight);
    }
    flat
}

/// {offset in the key, mask, value}
type Byte = (usize, u8, u8);
/// {offset of a be16, first, last, negated}
type Range = (usize, u16, u16, bool);

/// A rule as given: bytes, and ranges {offset of a be16, first, last, negated}.
type Plain = (Vec<Byte>, Vec<(usize, u64, u64, bool)>);

#[derive(Default)]
struct Set {
    rules: Vec<RuleKey>,
    conds: Vec<Cond>,
    /// For brute force: bytes and ranges as given.
    plain: Vec<Plain>,
}

impl Set {
    fn push(&mut self, bytes: &[Byte], ranges: &[Range]) {
        let wide: Vec<_> = ranges
            .iter()
            .map(|&(at, lo, hi, not)| (at, 2, u64::from(lo), u64::from(hi), not))
            .collect();
        self.add(bytes, &wide);
    }

    fn push64(&mut self, bytes: &[Byte], at: usize, lo: u16, hi: u16) {
        self.add(bytes, &[(at, 8, lo.into(), hi.into(), false)]);
    }

    fn add(&mut self, bytes: &[Byte], ranges: &[(usize, u8, u64, u64, bool)]) {
        let mut exact = ExactKey::default();
        for &(at, mask, value) in bytes.iter().filter(|b| b.1 != 0) {
            let shift = at % 8 * 8;
            let word = MaskedWord {
                word: (at / 8) as u8,
                mask: u64::from(mask) << shift,
                value: u64::from(value) << shift,
            };
            assert!(exact.require(&[word]));
        }
        let cond_first = self.conds.len() as u32;
        for &(at, width, lo, hi, not) in ranges {
            let mut u = [0; VALUE_MAX];
            for (i, half) in [0, lo, 0, hi].into_iter().enumerate() {
                u[i * 8..][..8].copy_from_slice(&half.to_ne_bytes());
            }
            self.conds.push(Cond {
                op: cond_op::RANGE,
                flags: if not { cond_op::NEGATED } else { 0 },
                width,
                shift: 0,
                off: at as u16,
                len: 0,
                mask: u64::MAX >> (64 - u32::from(width) * 8),
                set_first: 0,
                set_count: 0,
                u,
            });
        }
        self.rules.push(RuleKey {
            exact,
            cond_first,
            cond_count: ranges.len() as u32,
        });
        let ranges = ranges
            .iter()
            .map(|&(at, width, lo, hi, not)| {
                // Narrow numbers of wide fields: the bytes above are zero in every packet made here.
                (at + usize::from(width) - 2, lo, hi, not)
            })
            .collect();
        self.plain.push((bytes.to_vec(), ranges));
    }

    fn classbench(&mut self, line: &str) {
        let part: Vec<&str> = line.trim_start_matches('@').split_whitespace().collect();
        let mut bytes = Vec::new();
        for (at, text) in [(SRC, part[0]), (DST, part[1])] {
            let (address, bits) = text.split_once('/').expect("a prefix");
            let address: Vec<u8> = address
                .split('.')
                .map(|b| b.parse().expect("a byte"))
                .collect();
            bytes.extend(prefix(at, &address, bits.parse().expect("a length")));
        }
        let port = |text: &str| text.parse::<u16>().expect("a port");
        let mut ranges = Vec::new();
        for (at, lo, hi) in [
            (SPORT, port(part[2]), port(part[4])),
            (DPORT, port(part[5]), port(part[7])),
        ] {
            match (lo, hi) {
                (0, 65535) => {}
                (lo, hi) if lo == hi => bytes.extend(exact(at, &lo.to_be_bytes())),
                (lo, hi) => ranges.push((at, lo, hi, false)),
            }
        }
        let (proto, mask) = part[8].split_once('/').expect("a protocol");
        let hex = |text: &str| u16::from_str_radix(text.trim_start_matches("0x"), 16).expect("hex");
        bytes.push((PROTO, hex(mask) as u8, (hex(proto) & hex(mask)) as u8));
        let (flags, mask) = part[9].split_once('/').expect("flags");
        let (flags, mask) = (hex(flags) & hex(mask), hex(mask));
        bytes.push((FLAGS, (mask >> 8) as u8, (flags >> 8) as u8));
        bytes.push((FLAGS + 1, mask as u8, flags as u8));
        self.push(&bytes, &ranges);
    }

    fn view(&self) -> RuleSet<'_> {
        RuleSet {
            rules: &self.rules,
            conds: &self.conds,
            intervals: &[] as &[Interval],
        }
    }

    /// Packets that match rules spread over the set, and some that match by half.
    fn packets(&self, n: usize) -> Vec<[u8; KEY_WORDS * 8]> {
        let mut random = Random(99);
        (0..n)
            .map(|i| {
                let mut packet = [0u8; KEY_WORDS * 8];
                for at in [SRC, SRC + 1, DST, DST + 3, SPORT, DPORT, DPORT + 1] {
                    packet[at] = random.next() as u8;
                }
                let own = i * self.plain.len() / n;
                for rule in [random.below(self.plain.len()), own] {
                    let (bytes, ranges) = &self.plain[rule];
                    for &(at, lo, hi, not) in ranges.iter().filter(|r| r.1 <= r.2) {
                        let value = lo + random.next() % (hi - lo + 1) + u64::from(not);
                        packet[at..at + 2].copy_from_slice(&(value as u16).to_be_bytes());
                    }
                    for &(at, mask, value) in bytes {
                        packet[at] = packet[at] & !mask | value;
                    }
                    if i % 5 == 0 {
                        break;
                    }
                }
                packet
            })
            .collect()
    }

    fn brute_force(&self, packet: &[u8; KEY_WORDS * 8]) -> Vec<u32> {
        let matches = |(bytes, ranges): &Plain| {
            bytes
                .iter()
                .all(|&(at, mask, value)| packet[at] & mask == value)
                && ranges.iter().all(|&(at, lo, hi, not)| {
                    let value = u64::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
                    (lo <= value && value <= hi) != not
                })
        };
        (0u32..)
            .zip(&self.plain)
            .filter(|(_, rule)| matches(rule))
            .map(|(i, _)| i)
            .collect()
    }
}

fn compare(name: &str, set: &Set, packets: &[[u8; KEY_WORDS * 8]]) -> Classifier {
    check(name, set, packets, Scheme::Merged)
}

fn check(name: &str, set: &Set, packets: &[[u8; KEY_WORDS * 8]], scheme: Scheme) -> Classifier {
    let view = set.view();
    let started = Instant::now();
    let built = build(&view, scheme).unwrap_or_else(|e| panic!("{name}: {e}"));
    let took = started.elapsed();
    let rules: HashSet<u32> = built.order.iter().copied().collect();
    assert_eq!(
        rules.len(),
        set.rules.len(),
        "{name}: every rule has a place"
    );
    assert_eq!(built.order.len(), set.rules.len());
    let (mut matches, mut tables, mut candidates) = (0, 0, 0);
    let all: Vec<u32> = (0..set.rules.len() as u32).collect();
    let bounding = Instant::now();
    let at_once = built.most_at_once(&view, &all, 64);
    let bounding = bounding.elapsed();
    for (i, packet) in packets.iter().enumerate() {
        let mut flat = [0u64; KEY_WORDS];
        for (word, bytes) in flat.iter_mut().zip(packet.chunks_exact(8)) {
            let mut eight = [0; 8];
            eight.copy_from_slice(bytes);
            *word = u64::from_ne_bytes(eight);
        }
        let (found, cost) = built.find(&view, &flat);
        let wanted = set.brute_force(packet);
        assert_eq!(found, wanted, "{name}: packet {i}");
        assert!(
            cost.tables <= built.worst.tables && cost.candidates <= built.worst.candidates,
            "{name}: {cost:?} is beyond the static bound {:?}",
            built.worst
        );
        assert!(
            found.len() <= at_once,
            "{name}: {} rules match packet {i}, the bound is {at_once}",
            found.len()
        );
        matches += found.len();
        tables += cost.tables;
        candidates += cost.candidates;
    }
    if set.rules.len() > 100 && scheme == Scheme::Merged {
        let per = |n: usize| n as f64 / packets.len() as f64;
        say(&format!(
            "{name}: {} rules of {} masks in {} tables, {} pieces, {} cells, {} rows; a packet: {:.1} matches, {:.1} probes, {:.1} candidates (at most {:?}); built in {took:?}; {at_once} at once, in {bounding:?}",
            set.rules.len(),
            built.shapes.len(),
            built.tables.len(),
            built.pruning.halves.len(),
            built.cells.len(),
            built.pruning.rows.len(),
            per(matches),
            per(tables),
            per(candidates),
            built.worst,
        ));
    }
    built
}

fn exact(at: usize, bytes: &[u8]) -> Vec<Byte> {
    (at..)
        .zip(bytes)
        .map(|(at, &value)| (at, 0xff, value))
        .collect()
}

/// Bits of a word in host order: those set in `value`, and `also`.
fn number(at: usize, value: &[u8; 8], also: u8) -> Vec<Byte> {
    (at..)
        .zip(value)
        .enumerate()
        .map(|(i, (at, &byte))| (at, if i == 0 { byte | also } else { byte }, byte))
        .filter(|b| b.1 != 0)
        .collect()
}

fn prefix(at: usize, address: &[u8], bits: usize) -> Vec<Byte> {
    (0..bits.div_ceil(8))
        .map(|i| {
            let mask = match bits - i * 8 {
                left @ 0..8 => !(0xffu8 >> left),
                _ => 0xff,
            };
            (at + i, mask, address[i] & mask)
        })
        .collect()
}

fn trace_packet(line: &str) -> [u8; KEY_WORDS * 8] {
    let part: Vec<u32> = line
        .split_whitespace()
        .map(|n| n.parse::<i64>().expect("a number") as u32)
        .collect();
    let mut packet = [0; KEY_WORDS * 8];
    packet[SRC..SRC + 4].copy_from_slice(&part[0].to_be_bytes());
    packet[DST..DST + 4].copy_from_slice(&part[1].to_be_bytes());
    packet[SPORT..SPORT + 2].copy_from_slice(&(part[2] as u16).to_be_bytes());
    packet[DPORT..DPORT + 2].copy_from_slice(&(part[3] as u16).to_be_bytes());
    packet[PROTO] = part[4] as u8;
    packet[FLAGS..FLAGS + 2].copy_from_slice(&((part[5] >> 16) as u16).to_be_bytes());
    packet
}

fn unpack(path: &Path) -> String {
    let mut child = Command::new("gzip")
        .arg("-dc")
        .arg(path)
        .stdout(Stdio::piped())
        .spawn()
        .expect("gzip runs");
    let mut text = String::new();
    let mut output = child.stdout.take().expect("it is piped");
    output.read_to_string(&mut text).expect("text");
    assert!(child.wait().expect("it ends").success());
    text
}

fn say(text: &str) {
    use std::io::Write;
    // A note for whoever reads the test's output; nobody may.
    let _ = writeln!(std::io::stderr(), "{text}");
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn address4(&mut self) -> [u8; 4] {
        (self.next() as u32).to_be_bytes()
    }

    fn address6(&mut self) -> [u8; 16] {
        let mut address = [0; 16];
        address[..8].copy_from_slice(&self.next().to_be_bytes());
        address[0..2].copy_from_slice(&[0x20, 1]);
        address
    }
}
