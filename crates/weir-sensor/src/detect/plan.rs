//! What is worth asking of a kind of traffic: which rules its headers do not rule out, and the patterns that lead to those.
//!
//! A packet or a piece asks a hundred rules that no pattern leads to, and is searched for a few hundred patterns. Most of them are about another direction, state, application,
//! address or port. Those are few combinations, so each gets a plan: a bit for each rule that may hold of it, the list of those without a pattern, and tables of the patterns that lead
//! to the others. The header of a rule is not asked again. Plans and tables are shared by all workers and made when traffic first wants them; a flow holds the plans of its two
//! directions, so that its packets look nothing up. Tables have a cap, beyond which the whole set is searched. What is left out could not have held, so whether it is changes nothing
//! but speed; the automaton, which is the oracle, always searches for everything.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use foldhash::HashMap;

use crate::app::App;
use crate::matcher::Part;
use crate::packet::Direction;
use crate::rules::{Header, PacketCondition, Rule};

use super::compile::{Compiled, Kind};
use super::ends::{Ends, Traffic};
use super::gate::{Class, speaks};
use super::groups::{Addresses, End, Mask, Ports, no_rule, set};
use super::ruleset::{Ruleset, Scan};

/// Bytes of tables and plans that are made at most.
const MOST_BYTES: usize = 32 << 20;
/// Plans that are remembered at most; with those that flows still hold, twice as many.
const MOST_PLANS: usize = 4096;
/// Plans that each worker remembers at most.
const MOST_MET: usize = 1024;
/// Payloads of packets are of a size up to one of these, or larger: rules with `dsize` have few that they could hold of.
const SIZES: [usize; 2] = [100, 600];

/// Some patterns of a scan.
#[derive(Debug)]
pub(super) struct Table {
    /// Index in `Ruleset::scans`.
    pub(super) scan: u32,
    /// `None`: all of them.
    pub(super) part: Option<Arc<Part>>,
}

/// What is worth asking of traffic of a kind between ends that no rule tells apart.
#[derive(Debug)]
pub(crate) struct Plan {
    traffic: Traffic,
    direction: Option<Direction>,
    class: Class,
    /// The rules whose header takes it.
    open: Mask,
    /// Rules of packets without a pattern.
    pub(super) packets: Box<[u32]>,
    /// Rules of streams without a pattern.
    pub(super) streams: Box<[u32]>,
    payload_tables: [OnceLock<Box<[Table]>>; SIZES.len() + 1],
    stream_tables: OnceLock<Box<[Table]>>,
    /// Too many are held: this one is made anew for each packet.
    passing: bool,
    alive: Arc<AtomicUsize>,
}

impl Drop for Plan {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Plan {
    /// Whether the header of a rule takes such traffic. Not to be asked of rules about addresses only, or about SYN, which `Plans` leaves out.
    pub(super) fn has(&self, rule: u32) -> bool {
        let word = self.open.get(rule as usize / 64).copied().unwrap_or(0);
        word >> (rule % 64) & 1 != 0
    }

    /// What the payload of a packet of this length is searched for.
    pub(super) fn payload_tables(&self, rules: &Ruleset, length: usize) -> &[Table] {
        let size = SIZES.partition_point(|most| *most < length);
        let Some(tables) = self.payload_tables.get(size) else {
            return &[];
        };
        tables.get_or_init(|| {
            let d = self.direction.map_or(0, Direction::index);
            let least = size.checked_sub(1).and_then(|at| SIZES.get(at));
            let least = least.map_or(0, |most| *most as u64 + 1);
            let most = SIZES.get(size).map_or(u64::MAX, |most| *most as u64);
            // What waits for a transaction is asked of its packet then.
            let waits = |number: u32| {
                let compiled = rules.compiled.get(number as usize);
                compiled.is_none_or(|c| matches!(c.kind, Kind::Transaction(_)))
            };
            let fits = |number: u32| {
                let mut conditions = rules
                    .rules
                    .get(number as usize)
                    .into_iter()
                    .flat_map(|r| &r.packet);
                waits(number)
                    || conditions.all(|condition| match condition {
                        PacketCondition::PayloadSize(range) => {
                            range.negated
                                || range.mask != u64::MAX
                                || range.low <= most && range.high >= least
                        }
                        _ => true,
                    })
            };
            self.tables(rules, &rules.payloads[self.class as usize][d], fits)
        })
    }

    /// What a stream is searched for.
    pub(super) fn stream_tables(&self, rules: &Ruleset) -> &[Table] {
        self.stream_tables.get_or_init(|| {
            let d = self.direction.map_or(0, Direction::index);
            self.tables(rules, &rules.streams[d], |_| true)
        })
    }

    fn tables(&self, rules: &Ruleset, scans: &[u32], fits: impl Fn(u32) -> bool) -> Box<[Table]> {
        let may = |rule: &u32| self.has(*rule) && fits(*rule);
        let tables = scans.iter().filter_map(|number| {
            let scan = rules.scans.get(*number as usize)?;
            let patterns = scan.heads.len().saturating_sub(1) as u32;
            let wanted: Box<[u32]> = (0..patterns)
                .filter(|pattern| scan.rules(*pattern).iter().any(may))
                .collect();
            (!wanted.is_empty()).then(|| Table {
                scan: *number,
                part: rules.plans.part(*number, scan, wanted),
            })
        });
        tables.collect()
    }
}

/// A part of a header that traffic either takes or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Asked {
    Class(Class),
    Direction(Option<Direction>),
    Established(Option<bool>),
    Version(u8),
    Reassembled(bool),
    App(App),
    /// Ports are not asked of rules for a service that is known.
    PortsFree(App),
    Port(End, u16),
    Address(End, u32),
}

/// A scan, and the patterns of it that are wanted.
type Wanted = (u32, Box<[u32]>);

/// All plans of a rule set, and what they are made from.
#[derive(Debug)]
pub(super) struct Plans {
    ports: Ports,
    addresses: Addresses,
    /// Rules that may hold either way round.
    both_ways: Option<Mask>,
    shared: Mutex<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    plans: HashMap<u128, Arc<Plan>>,
    masks: HashMap<Asked, Arc<Mask>>,
    /// Tables by the patterns of a scan they are of: different traffic often has the same.
    parts: HashMap<Wanted, Option<Arc<Part>>>,
    memory: usize,
    /// Plans that somebody holds.
    alive: Arc<AtomicUsize>,
}

impl Plans {
    pub(super) fn new(rules: &[Arc<Rule>], compiled: &[Compiled]) -> Plans {
        // Lists of thousands of addresses would be as many groups; rules about SYN and addresses have a map of their own.
        let left_out = |c: &Compiled| c.kind == Kind::Addresses || c.gate.needs_syn;
        let headers = || {
            (0..)
                .zip(rules.iter().zip(compiled))
                .filter_map(|(number, (rule, compiled))| {
                    (!left_out(compiled)).then_some((number, &rule.header))
                })
        };
        let mut both_ways = no_rule(rules.len());
        for (number, _) in headers().filter(|(_, h): &(u32, &Header)| h.both_ways) {
            set(&mut both_ways, number);
        }
        Plans {
            ports: Ports::new(headers(), rules.len()),
            addresses: Addresses::new(headers(), rules.len()),
            both_ways: both_ways.iter().any(|w| *w != 0).then_some(both_ways),
            shared: Mutex::default(),
        }
    }

    pub(super) fn memory(&self) -> usize {
        self.ports.memory() + self.addresses.memory() + self.shared().memory
    }

    /// A worker that panicked has left nothing half done in there: entries are added whole.
    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn key(&self, traffic: Traffic, ends: &Ends) -> u128 {
        let source = u128::from(self.addresses.group(ends.source.0));
        let destination = u128::from(self.addresses.group(ends.destination.0));
        let source_port = u128::from(self.ports.group(ends.source.1));
        let destination_port = u128::from(self.ports.group(ends.destination.1));
        const { assert!(64 + 32 + Traffic::BITS <= 128) };
        traffic.key() << 96
            | source_port << 80
            | destination_port << 64
            | source << 32
            | destination
    }

    fn find(
        &self,
        key: u128,
        rules: &Ruleset,
        traffic: Traffic,
        ends: &Ends,
        direction: Option<Direction>,
    ) -> Arc<Plan> {
        let mut shared = self.shared();
        if let Some(plan) = shared.plans.get(&key) {
            return Arc::clone(plan);
        }
        let open = self.open(&mut shared, rules, ends, direction);
        let may = |rule: &&u32| open[**rule as usize / 64] >> (**rule % 64) & 1 != 0;
        let d = direction.map_or(0, Direction::index);
        let passing = shared.alive.fetch_add(1, Ordering::Relaxed) >= 2 * MOST_PLANS;
        let listed = |list: &[u32]| list.iter().filter(may).copied().collect();
        let plan = Arc::new(Plan {
            traffic,
            direction,
            class: ends.class,
            packets: listed(&rules.packets[ends.class as usize]),
            streams: listed(&rules.bare_streams[d]),
            payload_tables: Default::default(),
            stream_tables: OnceLock::new(),
            open,
            passing,
            alive: Arc::clone(&shared.alive),
        });
        if passing {
            return plan;
        }
        if shared.plans.len() == MOST_PLANS || shared.memory > MOST_BYTES {
            // Flows go on holding theirs.
            shared.plans.clear();
            shared.masks.clear();
            shared.parts.clear();
            shared.memory = 0;
        }
        shared.memory +=
            size_of::<Plan>() + plan.open.len() * 8 + (plan.packets.len() + plan.streams.len()) * 4;
        shared.plans.insert(key, Arc::clone(&plan));
        plan
    }

    /// The rules that `gate::open` lets by.
    fn open(
        &self,
        shared: &mut Shared,
        rules: &Ruleset,
        ends: &Ends,
        direction: Option<Direction>,
    ) -> Mask {
        let mut mask = |asked: Asked, ends: &Ends| -> Arc<Mask> {
            let Shared { masks, memory, .. } = &mut *shared;
            let made = masks.entry(asked).or_insert_with(|| {
                let mask = self.mask(asked, rules, ends);
                *memory += mask.len() * 8;
                Arc::new(mask)
            });
            Arc::clone(made)
        };
        let mut open = mask(Asked::Class(ends.class), ends).to_vec();
        for asked in [
            Asked::Direction(direction),
            Asked::Established(ends.established),
            Asked::Version(ends.version),
            Asked::Reassembled(ends.reassembled),
            Asked::App(ends.app),
        ] {
            for (open, mask) in open.iter_mut().zip(mask(asked, ends).iter()) {
                *open &= mask;
            }
        }
        let free = mask(Asked::PortsFree(ends.app), ends);
        let mut fits = |ends: &Ends| -> Mask {
            let port = |end, port| Asked::Port(end, self.ports.group(port));
            let address = |end, address| Asked::Address(end, self.addresses.group(address));
            let source_port = mask(port(End::Source, ends.source.1), ends);
            let destination_port = mask(port(End::Destination, ends.destination.1), ends);
            let source = mask(address(End::Source, ends.source.0), ends);
            let destination = mask(address(End::Destination, ends.destination.0), ends);
            let words = source.iter().zip(destination.iter());
            let ports = source_port.iter().zip(destination_port.iter());
            words
                .zip(ports.zip(free.iter()))
                .map(|((s, d), ((sp, dp), free))| s & d & (sp | free) & (dp | free))
                .collect()
        };
        let straight = fits(ends);
        let reverse = self.both_ways.as_ref().map(|both| {
            let turned = Ends {
                source: ends.destination,
                destination: ends.source,
                ..*ends
            };
            (both, fits(&turned))
        });
        for (at, open) in open.iter_mut().enumerate() {
            let turned = match &reverse {
                Some((both, mask)) => both[at] & mask[at],
                None => 0,
            };
            *open &= straight[at] | turned;
        }
        open.into()
    }

    fn mask(&self, asked: Asked, rules: &Ruleset, ends: &Ends) -> Mask {
        match asked {
            Asked::Port(End::Source, _) => return self.ports.mask(End::Source, ends.source.1),
            Asked::Port(End::Destination, _) => {
                return self.ports.mask(End::Destination, ends.destination.1);
            }
            Asked::Address(End::Source, _) => {
                return self.addresses.mask(End::Source, ends.source.0);
            }
            Asked::Address(End::Destination, _) => {
                return self.addresses.mask(End::Destination, ends.destination.0);
            }
            _ => {}
        }
        let mut mask = no_rule(rules.compiled.len());
        for (number, compiled) in (0..).zip(&rules.compiled) {
            let gate = &compiled.gate;
            let known = |app| !matches!(app, App::Unknown | App::Failed);
            let takes = match asked {
                Asked::Class(class) => gate.classes >> (class as u8) & 1 != 0,
                Asked::Direction(direction) => match gate.to_server {
                    None => true,
                    Some(true) => direction == Some(Direction::ToServer),
                    Some(false) => direction == Some(Direction::ToClient),
                },
                Asked::Established(state) => {
                    gate.established.is_none_or(|wanted| state == Some(wanted))
                }
                Asked::Version(0) => gate.broken && gate.version == 0,
                Asked::Version(version) => gate.version == version || gate.version == 0,
                Asked::Reassembled(is) => gate.only_fragment.is_none_or(|wanted| wanted == is),
                Asked::App(app) => {
                    let served = |apps: &[App]| !known(app) || apps.contains(&app);
                    (gate.apps.is_empty() || speaks(&gate.apps, app))
                        && gate.services.as_deref().is_none_or(served)
                }
                Asked::PortsFree(app) => gate.services.is_some() && known(app),
                Asked::Port(..) | Asked::Address(..) => false,
            };
            if takes {
                set(&mut mask, number);
            }
        }
        mask
    }

    /// The table of some patterns of a scan. `None`: search for all.
    fn part(&self, number: u32, scan: &Scan, wanted: Box<[u32]>) -> Option<Arc<Part>> {
        let mut shared = self.shared();
        let key = (number, wanted);
        if let Some(part) = shared.parts.get(&key) {
            return part.clone();
        }
        if shared.memory > MOST_BYTES {
            return None;
        }
        let part = scan.matcher.part(|id| key.1.binary_search(&id).is_ok());
        let part = part.map(Arc::new);
        shared.memory += part.as_ref().map_or(0, |p| p.memory()) + key.1.len() * 4;
        shared.parts.insert(key, part.clone());
        part
    }
}

/// What a flow is to hold of the plan that was used.
pub(super) fn hold(plan: Arc<Plan>) -> Option<Arc<Plan>> {
    (!plan.passing).then_some(plan)
}

/// The plans that a worker has met.
#[derive(Debug, Default)]
pub(super) struct Met {
    plans: HashMap<u128, Arc<Plan>>,
}

impl Met {
    /// The plan for such traffic; `held` is what its flow holds.
    pub(super) fn plan(
        &mut self,
        held: Option<Arc<Plan>>,
        rules: &Ruleset,
        ends: &Ends,
        direction: Option<Direction>,
    ) -> Arc<Plan> {
        let traffic = ends.traffic(direction);
        if let Some(plan) = held.filter(|plan| plan.traffic == traffic) {
            return plan;
        }
        let key = rules.plans.key(traffic, ends);
        if let Some(plan) = self.plans.get(&key) {
            return Arc::clone(plan);
        }
        let plan = rules.plans.find(key, rules, traffic, ends, direction);
        if plan.passing {
            return plan;
        }
        if self.plans.len() == MOST_MET {
            self.plans.clear();
        }
        self.plans.insert(key, Arc::clone(&plan));
        plan
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::detect::gate::open;
    use crate::matcher::Engine;
    use crate::rules::{Dialect, LoadSettings, Loader};

    /// Numbers that look random and are the same each time.
    struct Numbers(u64);

    impl Numbers {
        fn of<'a, T>(&mut self, list: &'a [T]) -> &'a T {
            self.0 = self
                .0
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            &list[(self.0 >> 33) as usize % list.len()]
        }
    }

    const ADDRESSES: [&str; 8] = [
        "any",
        "10.0.0.0/8",
        "!10.0.0.0/8",
        "[192.0.2.1,10.1.0.0/16]",
        "[10.0.0.0/8,!10.1.0.0/16]",
        "2001:db8::/32",
        "!2001:db8::/32",
        "[0.0.0.0/0,2001:db8::1]",
    ];
    const PORTS: [&str; 6] = ["any", "80", "!80", "[80,443]", "1024:", "[1:100,!50]"];
    const FLOWS: [&str; 7] = [
        "",
        "flow:established,to_server; ",
        "flow:to_client; ",
        "flow:not_established; ",
        "flow:stateless; ",
        "flow:to_server,only_frag; ",
        "flow:no_frag; ",
    ];

    fn ruleset(dialect: Dialect, numbers: &mut Numbers) -> Ruleset {
        let (protocols, options): (&[&str], &[&str]) = match dialect {
            Dialect::Suricata => (
                &[
                    "tcp",
                    "udp",
                    "ip",
                    "icmp",
                    "http",
                    "tls",
                    "tcp-pkt",
                    "tcp-stream",
                    "pkthdr",
                    "ip4",
                    "ip6",
                    "dns",
                    "sctp",
                ],
                &[
                    "content:\"abcd\"; ",
                    "ttl:64; ",
                    "content:\"x\"; ",
                    "flags:S; ",
                    "",
                ],
            ),
            Dialect::Snort => (
                &["tcp", "udp", "ip", "http", "file"],
                &[
                    "content:\"abcd\"; service:http; ",
                    "content:\"abcd\"; service:dns,ssl; ",
                    "content:\"x\"; ",
                ],
            ),
        };
        let settings = LoadSettings {
            dialect,
            ..LoadSettings::default()
        };
        let mut loader = Loader::new(&settings);
        let mut text = String::new();
        for sid in 1..=400 {
            text += &format!(
                "alert {} {} {} {} {} {} (msg:\"m\"; {}{}sid:{sid};)\n",
                numbers.of(protocols),
                numbers.of(&ADDRESSES),
                numbers.of(&PORTS),
                numbers.of(&["->", "->", "<>"]),
                numbers.of(&ADDRESSES),
                numbers.of(&PORTS),
                numbers.of(&FLOWS),
                numbers.of(options),
            );
        }
        loader.text("test", text.as_bytes());
        let loaded = loader.finish();
        assert!(loaded.rules.len() > 200, "{:?}", loaded.reasons());
        let (rules, _) = Ruleset::build(
            loaded.rules,
            loaded.expressions,
            Arc::default(),
            Engine::Prefilter,
        );
        rules
    }

    #[test]
    fn a_plan_takes_the_rules_whose_header_takes_its_traffic() {
        let addresses = [
            "10.0.0.1",
            "10.1.2.3",
            "192.0.2.1",
            "192.0.2.2",
            "0.0.0.0",
            "255.255.255.255",
            "11.0.0.0",
            "9.255.255.255",
            "2001:db8::1",
            "2001:db9::",
            "::",
        ];
        let addresses = addresses.map(|a| a.parse::<IpAddr>().expect("an address"));
        let ports = [0, 1, 50, 79, 80, 81, 100, 101, 443, 1023, 1024, 65535];
        let classes = [
            Class::Tcp,
            Class::Udp,
            Class::Icmpv4,
            Class::Icmpv6,
            Class::Sctp,
            Class::Other,
            Class::TcpPart,
            Class::UdpPart,
        ];
        let mut numbers = Numbers(1);
        for dialect in [Dialect::Suricata, Dialect::Snort] {
            let rules = ruleset(dialect, &mut numbers);
            let mut met = Met::default();
            let (mut taken, mut refused) = (0, 0);
            for _ in 0..3000 {
                let source = *numbers.of(&addresses);
                let other = *numbers.of(&addresses);
                let version = if source.is_ipv4() { 4 } else { 6 };
                let same = source.is_ipv4() == other.is_ipv4();
                let ends = Ends {
                    source: (source, *numbers.of(&ports)),
                    destination: (if same { other } else { source }, *numbers.of(&ports)),
                    protocol: 6,
                    class: *numbers.of(&classes),
                    version: *numbers.of(&[version, version, version, version, 0]),
                    syn: false,
                    reassembled: *numbers.of(&[false, true]),
                    established: *numbers.of(&[None, Some(false), Some(true)]),
                    app: *numbers.of(&[App::Unknown, App::Failed, App::Http1, App::Tls, App::Dns]),
                };
                let directions = [None, Some(Direction::ToServer), Some(Direction::ToClient)];
                let direction = *numbers.of(&directions);
                let plan = met.plan(None, &rules, &ends, direction);
                for (number, rule) in (0..).zip(&rules.rules) {
                    let compiled = &rules.compiled[number as usize];
                    if compiled.kind == Kind::Addresses || compiled.gate.needs_syn {
                        continue;
                    }
                    let takes = open(&compiled.gate, &rule.header, &ends, direction);
                    assert_eq!(plan.has(number), takes, "{:?} {direction:?}", rule.header);
                    *(if takes { &mut taken } else { &mut refused }) += 1;
                }
            }
            assert!(taken > 5_000 && refused > 100_000, "{taken} {refused}");
        }
    }

    #[test]
    fn plans_that_nobody_holds_are_forgotten_and_too_many_are_not_kept() {
        let rules = ruleset(Dialect::Suricata, &mut Numbers(1));
        let ends = Ends {
            source: (IpAddr::from([10, 0, 0, 1]), 1024),
            destination: (IpAddr::from([192, 0, 2, 1]), 80),
            protocol: 6,
            class: Class::Tcp,
            version: 4,
            syn: false,
            reassembled: false,
            established: Some(true),
            app: App::Http1,
        };
        let traffic = ends.traffic(None);
        let make = |key: u128| rules.plans.find(key, &rules, traffic, &ends, None);
        let held: Vec<Arc<Plan>> = (0..3 * MOST_PLANS as u128)
            .filter_map(|key| hold(make(key)))
            .collect();
        assert_eq!(held.len(), 2 * MOST_PLANS);
        assert!(rules.plans.shared().plans.len() <= MOST_PLANS);
        assert!(hold(make(u128::MAX)).is_none());
        drop(held);
        assert!(hold(make(u128::MAX)).is_some());
    }
}
