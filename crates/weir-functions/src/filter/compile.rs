//! The model of a filter -> maps and constants of the data plane.
//!
//! A rule becomes one bit, or several where entries of its sets name protocols or ports: one for each combination, a *variant* of the rule. Bits are sorted
//! by action, which is the order in which the data plane asks.

use std::collections::HashMap;

use weir_bpf::abi::filter::{self, feature};
use weir_bpf::abi::{FilterBlock, FilterCount, FilterLimit, FilterRule};
use zerocopy::IntoBytes;

use super::address::{self, List, Meters};
use super::list::Only;
use super::parts::Parts;
use super::rule::{Action, Addresses, Kind, Per, Rule, Test};
use super::tables::{Asks, Rows};
use super::{Filter, Otherwise};
use crate::plan::{Constant, InstancePlan, MapPlan, ObjectSource};

/// Why a filter cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// A rule names a set that there is not.
    #[error("rule {rule}: unknown set `@{name}`")]
    NoSet {
        /// Number of the rule from 1.
        rule: usize,
        /// Name of the set.
        name: String,
    },
    /// A negated set with entries that are about more than addresses.
    #[error(
        "rule {rule}: `not @{name}` cannot be asked: line {line} of the set is about a protocol or port, and so neither in nor out for an address; move such lines to another set"
    )]
    NegatedQualified {
        /// Number of the rule from 1.
        rule: usize,
        /// Name of the set.
        name: String,
        /// Line of the set.
        line: u32,
    },
    /// Entries of one rule's set name too many protocols and ports, or there are too many rules.
    #[error(
        "{bits} combinations of rules with the protocols and ports that entries of their sets name, {max} are possible: put ports into rules (`to-port`) and addresses into sets"
    )]
    TooManyRules {
        /// What there would be.
        bits: usize,
        /// Limit.
        max: usize,
    },
    /// Too many different combinations of lists overlap.
    #[error(
        "prefixes and ports overlap in more than 65,536 different combinations of rules; split the filter in two"
    )]
    TooManyRows,
    /// What holds of one address changes too often.
    #[error(
        "more than {max} entries that end at different times cover the same address; give them fewer different times"
    )]
    TooManyLives {
        /// Limit.
        max: usize,
    },
    /// Too many lists cover one address.
    #[error(
        "more than 256 lists cover the same address, and their hits could not be distinguished; join sets, or split the filter in two"
    )]
    TooManyOverlaps,
    /// The table of IPv4 does not fit.
    #[error("the prefixes need more than 4 GiB of tables; split the filter in two")]
    TooLarge,
    /// More CPUs than there are places.
    #[error(
        "{named} CPUs are named by the filter and its rules together, {max} are possible; name them once, in `cpu`"
    )]
    TooManyCpus {
        /// What there would be.
        named: usize,
        /// Limit.
        max: usize,
    },
    /// Two load values.
    #[error(
        "rules are shed by `{first}` and by `{second}`: one filter looks at one load value; use two filters"
    )]
    TwoLoads {
        /// Name in the first rule.
        first: String,
        /// Another name.
        second: String,
    },
}

/// Names of the objects of filters, without the suffix of their form: for all features, and for few.
pub const OBJECTS: [&str; 3] = ["filter", "filter_quick", "filter_one"];

/// A filter ready for any engine, and what reads its counters.
#[derive(Debug)]
pub struct Compiled {
    /// Object, constants, maps.
    pub plan: InstancePlan,
    /// Name of the load value that `shed` rules look at, in the map `load`.
    pub load: Option<String>,
    /// Rule of each bit.
    pub(super) rule_of: Vec<usize>,
    /// What the counters of entries mean.
    pub(super) meters: Meters,
}

/// One bit of the rows.
pub(super) struct Variant {
    pub(super) rule: usize,
    /// What the entries on each side are about besides their addresses.
    pub(super) only: [Only; 2],
    /// The lists of both sides.
    pub(super) asks: [Asks; 2],
}

/// The lists of one side.
#[derive(Default)]
struct Side {
    lists: Vec<List>,
    known: HashMap<(Vec<String>, Only), u16>,
}

impl Filter {
    /// Compiles the filter.
    ///
    /// # Errors
    /// See [`CompileError`].
    pub fn compile(&self) -> Result<Compiled, CompileError> {
        let load = self.load()?;
        let mut order: Vec<usize> = (0..self.rules.len()).collect();
        order.sort_by_key(|rule| self.rules[*rule].action.number());
        let mut meters = Meters::default();
        let mut sides = [Side::default(), Side::default()];
        let mut variants = Vec::new();
        for rule in order {
            self.variants(rule, &mut sides, &mut meters.entries, &mut variants)?;
        }
        if variants.len() > filter::RULES {
            return Err(CompileError::TooManyRules {
                bits: variants.len(),
                max: filter::RULES,
            });
        }
        let mut features = self.features(&variants);
        let mut rows = Rows::new(variants.len());
        let asks = [0, 1].map(|side| variants.iter().map(|v| v.asks[side]).collect::<Vec<Asks>>());
        let lists = sides.map(|side| side.lists);
        let addresses = address::lay_out(self, lists, asks, features, &mut rows, &mut meters)?;
        features |= addresses.features;
        let (mut constants, mut maps) = (addresses.constants, addresses.maps);
        let mut parts = Parts {
            filter: self,
            variants: &variants,
            rows: &mut rows,
        };
        if features & (feature::SPORT | feature::DPORT) != 0 {
            let (ports, none) = parts.ports()?;
            maps.push(chunks("ports", ports.as_bytes(), 2 * 65_536));
            constants.push(number("weir_no_ports", none));
        }
        maps.push(chunks(
            "kinds",
            parts.kinds(features & feature::ONE != 0)?.as_bytes(),
            2 * filter::KINDS,
        ));
        let mut cpus = self.cpus.clone();
        let rules: Vec<FilterRule> = variants
            .iter()
            .map(|v| parts.rule(v, &meters, &mut cpus))
            .collect();
        if !cpus.is_empty() {
            self.cpus(cpus, &mut constants, &mut maps)?;
            features |= feature::CPU;
        }
        maps.push(MapPlan::array("rules", &rules));
        maps.push(chunks("rows", rows.bytes(), filter::CHUNK));
        for name in ["counts", "carried_counts"] {
            maps.push(MapPlan::empty(
                name,
                variants.len(),
                size_of::<FilterCount>(),
            ));
        }
        self.state(features, &mut constants, &mut maps);
        let slow = |v: &&Variant| self.rules[v.rule].action.number() >= filter::action::SHED;
        let slow = variants.iter().filter(slow).count();
        constants.extend([
            number("weir_filter_features", features),
            number("weir_words", rows.words() as u32),
            number("weir_row_shift", rows.shift()),
            number("weir_row_mask", (1 << rows.shift()) - 1),
            number("weir_slow_rules", (slow + rows.words()) as u32),
        ]);
        Ok(Compiled {
            plan: InstancePlan {
                object: ObjectSource::Embedded(object(features)),
                program: "filter".into(),
                constants,
                maps,
            },
            load,
            rule_of: variants.iter().map(|v| v.rule).collect(),
            meters,
        })
    }

    /// The CPUs that packets are moved to: those of the filter, then those of rules.
    fn cpus(
        &self,
        cpus: Vec<u32>,
        constants: &mut Vec<Constant>,
        maps: &mut Vec<MapPlan>,
    ) -> Result<(), CompileError> {
        if cpus.len() > filter::CPUS {
            return Err(CompileError::TooManyCpus {
                named: cpus.len(),
                max: filter::CPUS,
            });
        }
        let distinct: std::collections::BTreeSet<u32> = cpus.iter().copied().collect();
        let places = distinct.last().map_or(1, |last| *last as usize + 1);
        let mut map = MapPlan::empty("cpus", places, 8);
        map.keys = distinct.iter().flat_map(|cpu| cpu.to_ne_bytes()).collect();
        // struct bpf_cpumap_val: size of the queue, then the descriptor of a program, 0: none.
        map.values = distinct
            .iter()
            .flat_map(|_| u64::from(self.queue).to_ne_bytes())
            .collect();
        maps.push(map);
        let mut list = cpus;
        list.resize(filter::CPUS, 0);
        constants.push(("weir_filter_cpu".into(), list.as_bytes().to_vec()));
        constants.push(number("weir_filter_cpus", self.cpus.len() as u32));
        Ok(())
    }

    /// Sizes of what the data plane remembers.
    fn state(&self, features: u32, constants: &mut Vec<Constant>, maps: &mut Vec<MapPlan>) {
        let buckets = |wanted: u32| (wanted as usize / filter::WAYS).max(1).next_power_of_two();
        if features & (feature::LIMIT | feature::COOKIE) != 0 {
            // Twice the room, so that few buckets are full.
            let count = buckets(self.sources.saturating_mul(2).min(1 << 26));
            maps.push(MapPlan::empty("limits", count, size_of::<FilterLimit>()));
            constants.push(number("weir_limit_mask", count as u32 - 1));
        }
        if features & feature::COOKIE != 0 {
            let count = buckets(self.flows.saturating_mul(2).min(1 << 26));
            maps.push(MapPlan::empty("verified", count, size_of::<FilterLimit>()));
            constants.push(number("weir_flow_mask", count as u32 - 1));
        }
        if features & feature::BLOCK != 0 {
            let count = buckets(self.blocks.saturating_mul(2).min(1 << 26));
            maps.push(MapPlan::empty(
                "blocks",
                count,
                filter::WAYS * size_of::<FilterBlock>(),
            ));
            constants.push(number("weir_block_mask", count as u32 - 1));
        }
    }

    fn load(&self) -> Result<Option<String>, CompileError> {
        let mut name: Option<&String> = None;
        for rule in &self.rules {
            if let Action::Shed { load, .. } = &rule.action {
                match name {
                    Some(first) if first != load => {
                        return Err(CompileError::TwoLoads {
                            first: first.clone(),
                            second: load.clone(),
                        });
                    }
                    _ => name = Some(load),
                }
            }
        }
        Ok(name.cloned())
    }

    /// The bits of a rule: the combinations of what the entries of its sets are about.
    fn variants(
        &self,
        rule: usize,
        sides: &mut [Side; 2],
        entries: &mut Vec<(usize, usize)>,
        out: &mut Vec<Variant>,
    ) -> Result<(), CompileError> {
        let [src, dst] = sides;
        let model = &self.rules[rule];
        let sources = self.asks(rule, &model.from, src, entries)?;
        let destinations = self.asks(rule, &model.to, dst, entries)?;
        for source in &sources {
            for destination in &destinations {
                out.push(Variant {
                    rule,
                    only: [source.1, destination.1],
                    asks: [source.0, destination.0],
                });
            }
        }
        Ok(())
    }

    /// The lists of one condition, one for each combination of protocol and port that its entries name.
    fn asks(
        &self,
        rule: usize,
        test: &Option<Test<Addresses>>,
        side: &mut Side,
        entries: &mut Vec<(usize, usize)>,
    ) -> Result<Vec<(Asks, Only)>, CompileError> {
        let Some(test) = test else {
            return Ok(vec![(Asks::Nothing, Only::default())]);
        };
        let mut groups: Vec<(Only, List)> = vec![(Only::default(), Vec::new())];
        let mut place: HashMap<Only, usize> = HashMap::from([(Only::default(), 0)]);
        let mut names = Vec::new();
        for one in &test.any {
            match one {
                Addresses::Prefix(prefix) => {
                    names.push(format!("{rule}:{prefix}"));
                    groups[0].1.push((*prefix, 0, entries.len() as u32));
                    entries.push((usize::MAX, rule));
                }
                Addresses::Set(name) => {
                    names.push(name.clone());
                    let Some(set) = self.sets.iter().position(|s| s.name == *name) else {
                        return Err(CompileError::NoSet {
                            rule: rule + 1,
                            name: name.clone(),
                        });
                    };
                    for (number, entry) in self.sets[set].entries.iter().enumerate() {
                        if test.is_negated && entry.only != Only::default() {
                            return Err(CompileError::NegatedQualified {
                                rule: rule + 1,
                                name: name.clone(),
                                line: entry.line,
                            });
                        }
                        let group = match entry.only == Only::default() {
                            true => 0,
                            false => *place.entry(entry.only).or_insert_with(|| {
                                groups.push((entry.only, Vec::new()));
                                groups.len() - 1
                            }),
                        };
                        if groups.len() > filter::RULES {
                            return Err(CompileError::TooManyRules {
                                bits: groups.len(),
                                max: filter::RULES,
                            });
                        }
                        groups[group]
                            .1
                            .push((entry.prefix, entry.until, entries.len() as u32));
                        entries.push((set, number));
                    }
                }
            }
        }
        // A list without plain entries is still a list: its rule matches nothing where it is empty.
        let qualified = groups.len() > 1;
        let asks = groups
            .into_iter()
            .filter(|(only, list)| !list.is_empty() || (*only == Only::default() && !qualified))
            .map(|(only, list)| {
                let next = side.lists.len() as u16;
                let number = *side.known.entry((names.clone(), only)).or_insert_with(|| {
                    side.lists.push(list);
                    next
                });
                (
                    if test.is_negated {
                        Asks::NotList(number)
                    } else {
                        Asks::List(number)
                    },
                    only,
                )
            });
        Ok(asks.collect())
    }

    fn features(&self, variants: &[Variant]) -> u32 {
        let mut features = 0;
        let mut set = |feature: u32, on: bool| features |= if on { feature } else { 0 };
        let any = |test: fn(&Rule) -> bool| self.rules.iter().any(test);
        let only =
            |side: usize, test: fn(&Only) -> bool| variants.iter().any(|v| test(&v.only[side]));
        set(feature::SRC, any(|r| r.from.is_some()));
        set(feature::DST, any(|r| r.to.is_some()));
        let sport = any(|r| r.from_port.is_some()) || only(0, |o| o.port.is_some());
        let dport = any(|r| r.to_port.is_some()) || only(1, |o| o.port.is_some());
        set(feature::SPORT, sport);
        set(feature::DPORT, dport);
        let syn = any(|r| r.kinds.iter().any(|t| t.any.contains(&Kind::TcpSyn)));
        let cookie = any(|r| r.action == Action::Cookie);
        set(feature::L4, sport || dport || syn || cookie);
        let protocol = any(|r| !r.kinds.is_empty())
            || only(0, |o| o.protocol.is_some())
            || only(1, |o| o.protocol.is_some());
        set(feature::PROTOCOL, protocol || sport || dport || cookie);
        // Rules that ask nothing at all still have rows.
        let addresses = any(|r| r.from.is_some() || r.to.is_some());
        let kind = protocol || cookie || !(addresses || sport || dport);
        set(feature::KIND, kind);
        // With one piece alone a table can say the first rule itself.
        let pieces = [any(|r| r.from.is_some()), any(|r| r.to.is_some()), kind];
        let is_one = pieces.iter().filter(|asked| **asked).count() == 1;
        let slow = any(|r| r.action.number() >= filter::action::SHED);
        set(
            feature::ONE,
            is_one && !(sport || dport || syn || cookie || slow),
        );
        set(
            feature::SHED,
            any(|r| matches!(r.action, Action::Shed { .. })),
        );
        set(
            feature::LIMIT,
            any(|r| matches!(r.action, Action::Limit(_))),
        );
        set(
            feature::BLOCK,
            any(|r| matches!(r.action, Action::Limit(l) if l.block_ns > 0)),
        );
        set(
            feature::ENTRY,
            any(|r| matches!(r.action, Action::Limit(l) if l.per == Per::Entry)),
        );
        set(feature::COOKIE, cookie);
        // The coarse clock moves every 4 or 10 ms: bursts of less than four such steps want the exact one.
        set(
            feature::EXACT,
            any(|r| matches!(r.action, Action::Limit(l) if l.ahead_ns() < 40_000_000)),
        );
        set(feature::DENY_REST, self.default == Otherwise::Drop);
        set(feature::DENY_OTHER, self.other == Otherwise::Drop);
        features
    }
}

/// The smallest of the objects that bpf/functions/filter.c is compiled to that has these features.
fn object(features: u32) -> &'static str {
    const ONE: u32 = feature::ONE
        | feature::SRC
        | feature::DST
        | feature::KIND
        | feature::IP6_SRC
        | feature::IP6_DST
        | feature::HITS
        | feature::DENY_REST
        | feature::DENY_OTHER
        | feature::PROTOCOL;
    const QUICK: u32 = ONE & !feature::ONE | feature::SPORT | feature::DPORT | feature::L4;
    match features {
        one if one & feature::ONE != 0 && one & !ONE == 0 => OBJECTS[2],
        quick if quick & !QUICK == 0 => OBJECTS[1],
        _ => OBJECTS[0],
    }
}

pub(super) fn number(name: &'static str, value: u32) -> Constant {
    (name.into(), value.to_ne_bytes().to_vec())
}

/// An array of elements of this size, filled with these bytes and then zeros.
pub(super) fn chunks(name: &'static str, bytes: &[u8], size: usize) -> MapPlan {
    let count = bytes.len().div_ceil(size);
    let mut values = bytes.to_vec();
    values.resize(count * size, 0);
    MapPlan {
        name: name.into(),
        max_entries: (count as u32).max(1),
        key_size: 4,
        value_size: size,
        keys: (0..count as u32).flat_map(u32::to_ne_bytes).collect(),
        values,
        devices: Vec::new(),
        host: Vec::new(),
    }
}
