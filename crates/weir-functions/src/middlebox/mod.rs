//! The middlebox: a policy becomes classifier tables, residual conditions and rewrite operations.
//!
//! [`plan`] is the whole of it. What one match becomes is in `conditions`, what one target becomes in `operations`; [`RuleBook`]
//! changes the rules of a running instance.
//! A policy the data plane cannot hold is refused here, with the rule and the reason.

mod book;
mod conditions;
pub mod connections;
mod counts;
pub mod dynamic;
pub mod flows;
pub mod instance;
mod meters;
mod operations;
mod past;
mod room;
pub mod translations;

use std::collections::{BTreeSet, VecDeque};

use weir_bpf::abi::{self, feature, rule_flag};
use weir_classify::{Classifier, ClassifyError, RuleKey, RuleSet, Scheme};
use weir_policy::model::{
    Connections, DropWhen, Filtering, Helper, Match, Place, Policy, Rule, Target,
};
use zerocopy::IntoBytes;

use crate::plan::{Constant, InstancePlan, MapPlan, ObjectSource, Port};
pub use book::{Edit, EditError, Entry, Origin, Rebuild, RuleBook, Staged, Step, Write, Written};
use conditions::Lowering;
pub use counts::{COUNT_MAPS, LimitTable, Place as CountPlace, limit_tables};
use dynamic::{SetPlan, SetsError};
pub use meters::TablesTooLarge;
pub use past::{Past, PastChange, PastRule, PastTables, Succession};
use room::{EditCapacity, Sizes};

/// Why a policy cannot be planned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// `out` on a hook in front of routing.
    #[error(
        "{at}: `out` cannot be known here: XDP, tc on receive and replay see packets before routing decides where they leave; use `weir run --egress`, in a graph a link from `PORT.transmit` of a port with `hook = \"tc\"`, or match `in` or addresses instead"
    )]
    OutUnknown {
        /// The rule.
        at: Place,
    },
    /// `mark` or `priority` where packets have no socket buffer.
    #[error(
        "{at}: packets have no `{name}` on {hook}: it belongs to the socket buffer, which the kernel makes behind XDP. Use `--hook tc`, in a graph `hook = \"tc\"` of the port"
    )]
    MetaUnknown {
        /// The rule.
        at: Place,
        /// `mark` or `priority`.
        name: &'static str,
        /// Where.
        hook: String,
    },
    /// More option kinds with value tests than the flat key has slots for.
    #[error(
        "{at}: the policy tests the values of more than {max} kinds of TCP options; test presence (`tcp-opt KIND`) for the others"
    )]
    TooManyOptionKinds {
        /// The rule that needs one too many.
        at: Place,
        /// Limit.
        max: usize,
    },
    /// More rewriting rules could match one packet than are collected.
    #[error(
        "{worst} rules with rewrites or log lines could match one packet, {max} are collected: make their matches exclude each other, or join rules with sets"
    )]
    TooManyHits {
        /// Bound computed from the tables.
        worst: usize,
        /// Limit.
        max: usize,
    },
    /// More stateful rules could match one packet than a connection can have.
    #[error(
        "{worst} stateful rules could match one packet, a connection can have {max}: make their matches exclude each other, or join rules"
    )]
    TooManyStateful {
        /// Bound computed from the tables.
        worst: usize,
        /// Limit.
        max: usize,
    },
    /// A pool of too many intervals.
    #[error(
        "{at}: `map` chooses from {count} separate ranges, {max} are possible; use fewer, larger ones"
    )]
    ScatteredPool {
        /// The rule.
        at: Place,
        /// Intervals of the pool.
        count: usize,
        /// Limit.
        max: usize,
    },
    /// See [`TablesTooLarge`].
    #[error(transparent)]
    Limits(#[from] TablesTooLarge),
    /// Several conditional drops in one rule.
    #[error("{at}: one rule cannot drop in two ways; write two rules")]
    TwoDrops {
        /// The rule.
        at: Place,
    },
    /// See [`SetsError`].
    #[error(transparent)]
    Sets(#[from] SetsError),
    /// See [`ClassifyError`].
    #[error(transparent)]
    Classify(#[from] ClassifyError),
}

/// Maps whose contents outlive a layout of the rules: copies of the program that replace others go on with them.
pub const STATE_MAPS: &[&str] = &[
    "counters",
    "rates",
    "meters",
    "stats",
    "flows",
    "flow_index",
    "nat_index",
    "frags",
    "count_names",
    "count_words",
];

/// Of [`STATE_MAPS`], those that hold connections: good together or not at all.
pub const CONNECTION_MAPS: &[&str] = &["flows", "flow_index", "nat_index", "frags"];

/// Static bounds of a plan: what one packet can cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Tables of the classifier.
    pub tables: usize,
    /// Tables probed for a packet at most, after pruning.
    pub probes: usize,
    /// Rules that may be compared with a packet, all buckets at their largest.
    pub candidates: usize,
    /// Rules with rewrites or log lines that could match one packet. Not above [`abi::HITS`], so no packet overflows the list.
    pub hits: usize,
}

/// Compiles a policy for a hook in front of routing (XDP, replay). `ports` are the ports that `in` may name; an `in` that names
/// no port never matches.
pub fn plan(policy: &Policy, ports: &[Port]) -> Result<(InstancePlan, Bounds), PlanError> {
    compile(policy, ports, Scheme::Merged, false)
}

/// [`plan`] with a chosen layout of the classifier; other layouts than the default are baselines to measure against.
pub fn plan_with(
    policy: &Policy,
    ports: &[Port],
    scheme: Scheme,
) -> Result<(InstancePlan, Bounds), PlanError> {
    compile(policy, ports, scheme, false)
}

/// [`plan`] for a hook that may see packets on their way out, too (tc): there `out` is known, and only there; `in` is not known of
/// packets that this host sends itself. What is not known matches nothing, negated or not.
pub fn plan_for(
    policy: &Policy,
    ports: &[Port],
    sees_egress: bool,
) -> Result<(InstancePlan, Bounds), PlanError> {
    compile(policy, ports, Scheme::Merged, sees_egress)
}

fn compile(
    policy: &Policy,
    ports: &[Port],
    scheme: Scheme,
    sees_egress: bool,
) -> Result<(InstancePlan, Bounds), PlanError> {
    let mut tables = 0..;
    let mut places = counts::Places::new(policy.connections.limits);
    let rules = (0u32..).zip(&policy.rules).map(|(slot, rule)| {
        let table = rule.counts_apart().then(|| tables.next()).flatten();
        let count = places.take(rule);
        let seat = Seat {
            slot,
            table,
            count,
            counts_as: rule.id,
        };
        (rule, seat)
    });
    let rules: Vec<(&Rule, Seat)> = rules.collect();
    let rules = rules.into_iter();
    let lowered = lower(rules, Lowering::new(ports, sees_egress))?;
    let state = StateOf {
        connections: &policy.connections,
        keep: 0,
        aliases: &[],
        last_id: policy.rules.len() as u32,
        tables: 0,
    };
    let (plan, layout) = lay_out(
        &lowered,
        scheme,
        EditCapacity::NONE,
        policy.rules.len(),
        0,
        state,
    )?;
    Ok((plan, layout.bounds))
}

/// Rules, each with its part of the arrays, before they are laid out.
struct Lowered<'a> {
    lowering: Lowering<'a>,
    keys: Vec<RuleKey>,
    rules: Vec<abi::Rule>,
    ops: Vec<abi::Op>,
}

impl Lowered<'_> {
    fn set(&self) -> RuleSet<'_> {
        RuleSet {
            rules: &self.keys,
            conds: self.lowering.conds(),
            intervals: self.lowering.intervals(),
        }
    }

    fn features(&self) -> u32 {
        let mut features = self.lowering.features() | operations::features(&self.ops);
        if with_flag(&self.rules, rule_flag::STATEFUL).next().is_some() {
            features |= feature::STATE;
        }
        if with_flag(&self.rules, rule_flag::MAPPING).next().is_some() {
            features |= feature::MAPPING;
        }
        if (with_flag(&self.rules, rule_flag::HELPER_TFTP).next()).is_some() {
            features |= feature::EXPECT;
        }
        if with_flag(&self.rules, rule_flag::ANSWER).next().is_some() {
            features |= feature::REJECT;
        }
        if with_flag(&self.rules, rule_flag::METER).next().is_some() {
            features |= feature::METER;
        }
        if with_flag(&self.rules, rule_flag::QUOTA).next().is_some() {
            features |= feature::QUOTA;
        }
        if with_flag(&self.rules, rule_flag::COUNT).next().is_some() {
            features |= feature::COUNT;
        }
        features
    }
}

/// Where a rule keeps what it counts.
#[derive(Clone, Copy, Debug, Default)]
struct Seat {
    /// Of its counters and rate word.
    slot: u32,
    /// Its table, if it is a limit that counts addresses apart.
    table: Option<u32>,
    /// Its table, if it limits connections at a time.
    count: Option<counts::Place>,
    /// The id that it had when its limits began to count: their names hold it.
    counts_as: u32,
}

/// Lowers rules in rule order, each with its places for what it counts.
fn lower<'r, 'a>(
    rules: impl ExactSizeIterator<Item = (&'r Rule, Seat)>,
    mut lowering: Lowering<'a>,
) -> Result<Lowered<'a>, PlanError> {
    let mut keys: Vec<RuleKey> = Vec::with_capacity(rules.len());
    let mut out = Vec::with_capacity(rules.len());
    let mut ops = Vec::new();
    for (rule, seat) in rules {
        let (exact, conds) = lowering.rule(rule)?;
        let op_first = ops.len() as u32;
        for target in &rule.targets {
            if let Target::ChangeSet(change) = target {
                let number = lowering.filled.number(&change.set, rule)?;
                ops.push(dynamic::operation(change, number));
            }
            ops.extend(operations::lower(target, seat.slot));
            ops.extend(stateful_op(target, rule, &mut lowering)?);
        }
        let op_count = ops.len() as u32 - op_first;
        let mut lowered = abi_rule(rule, conds, (op_first, op_count), seat)?;
        lowered.value = exact.values();
        out.push(lowered);
        keys.push(RuleKey {
            exact,
            cond_first: conds.0,
            cond_count: conds.1,
        });
    }
    Ok(Lowered {
        lowering,
        keys,
        rules: out,
        ops,
    })
}

/// How connections are kept.
#[derive(Clone, Copy, Debug)]
struct StateOf<'a> {
    connections: &'a Connections,
    /// Features that stay on while an instance runs: connections may still need them when their rules are gone.
    keep: u32,
    /// Former ids of rules, with their present ones: connections may still name them.
    aliases: &'a [(u32, u32)],
    /// The last id that was given.
    last_id: u32,
    /// How many tables of limits of addresses there are already, of this size: words stay in them if there are as many again.
    tables: u32,
}

/// Where a plan has put its rules, and what it holds beside them.
#[derive(Clone, Debug)]
struct Layout {
    /// Place of each rule, given in rule order, in the rule array.
    positions: Vec<u32>,
    /// Elements of each array that the plan's own rules take.
    own: Sizes,
    room: EditCapacity,
    features: u32,
    slot_of: [u8; 256],
    sets: SetPlan,
    bounds: Bounds,
    worst: Worst,
    /// The last id that connections can find a rule by.
    last_id: u32,
    /// Tables for limits beside the plan that count addresses apart.
    tables: VecDeque<u32>,
    /// How many there are with those that rules have.
    all_tables: u32,
}

fn lay_out(
    lowered: &Lowered<'_>,
    scheme: Scheme,
    room: EditCapacity,
    counters: usize,
    generation: u64,
    state: StateOf<'_>,
) -> Result<(InstancePlan, Layout), PlanError> {
    let set = lowered.set();
    let built = weir_classify::build(&set, scheme)?;
    let worst = Worst::of(&built, &set, &lowered.rules);
    if worst.stateful > abi::FLOW_RULES {
        return Err(PlanError::TooManyStateful {
            worst: worst.stateful,
            max: abi::FLOW_RULES,
        });
    }
    if worst.hits() > abi::HITS {
        return Err(PlanError::TooManyHits {
            worst: worst.hits(),
            max: abi::HITS,
        });
    }
    let bounds = Bounds {
        tables: built.tables.len(),
        probes: built.worst.tables,
        candidates: built.worst.candidates,
        hits: worst.hits(),
    };
    let ordered = ordered(&built, &lowered.rules);
    let features = lowered.features() | state.keep;
    let mut positions = vec![0; ordered.len()];
    for (at, &rule) in (0u32..).zip(&built.order) {
        positions[rule as usize] = at;
    }
    let own = Sizes::of(lowered, &built);
    let live = abi::LiveWord {
        now: generation << 1,
        half: [0, 1].map(|half| own.behind(&room.halves, half).header(0, 1)),
    };
    let with_room = |map: MapPlan, of: fn(&Sizes) -> u32| map.with_room(of(&room.halves) * 2);
    let places = places_by_id(&ordered, state.aliases);
    let last_id = match (features & feature::STATE, room.ids()) {
        (0, _) | (_, 0) => 0,
        (_, ids) => state.last_id.saturating_add(ids),
    };
    let ids_to_come = last_id.saturating_sub(places.len() as u32);
    let mut constants = constants(&built, features, lowered.lowering.slot_of());
    constants.extend(connections::constants(state.connections, features));
    let used: BTreeSet<u32> = (lowered.rules.iter())
        .filter(|rule| rule.flags & rule_flag::METER != 0)
        .map(meters::table_of)
        .collect();
    // Rules that stay have their numbers, so there may be free ones between them.
    let tables = used.last().map_or(0, |last| last + 1);
    let limits = state.connections.limits;
    let total = match (tables, room.halves.rules) {
        (0, _) => 0,
        _ if tables <= state.tables => state.tables,
        (_, 0) => tables,
        _ => tables + meters::spare(limits, tables as usize) as u32,
    };
    let (mask, meters) = meters::plan(limits, total as usize)?;
    constants.push(mask);
    let count_maps = counts::plan(limits, &lowered.rules)?;
    constants.extend(lowered.lowering.filled.constants());
    let plan = InstancePlan {
        object: ObjectSource::Embedded("middlebox"),
        program: "middlebox".into(),
        constants,
        maps: vec![
            with_room(MapPlan::array("tables", &built.tables), |s| s.tables),
            with_room(MapPlan::array("shapes", &built.shapes), |s| s.shapes),
            with_room(MapPlan::array("cells", &built.cells), |s| s.cells),
            with_room(MapPlan::array("nodes", &built.nodes), |s| s.nodes),
            with_room(MapPlan::array("lists", &built.lists), |s| s.lists),
            MapPlan::array("dims", &built.pruning.dim_rows),
            MapPlan::array("rows", &built.pruning.rows),
            with_room(MapPlan::array("rules", &ordered), |s| s.rules),
            with_room(MapPlan::array("conds", set.conds), |s| s.conds),
            with_room(MapPlan::array("intervals", set.intervals), |s| s.intervals),
            with_room(MapPlan::array("ops", &lowered.ops), |s| s.ops),
            MapPlan::array("live", &[live]),
            MapPlan::empty("counters", counters, size_of::<abi::Counter>()),
            MapPlan::empty("rates", counters, size_of::<u64>()),
            MapPlan::array("rule_at", &places).with_room(ids_to_come),
        ]
        .into_iter()
        .chain(connections::maps(state.connections, features))
        .chain([meters])
        .chain(count_maps)
        .chain(lowered.lowering.filled.maps())
        .collect(),
    };
    let layout = Layout {
        positions,
        own,
        room,
        features,
        slot_of: *lowered.lowering.slot_of(),
        sets: lowered.lowering.filled.clone(),
        bounds,
        worst,
        last_id,
        all_tables: total,
        tables: (0..total).filter(|table| !used.contains(table)).collect(),
    };
    Ok((plan, layout))
}

/// The rule array: rules bucket by bucket, each with its shape.
fn ordered(built: &Classifier, rules: &[abi::Rule]) -> Vec<abi::Rule> {
    let rule = |&i: &u32| abi::Rule {
        shape: built.shape_of[i as usize],
        ..rules[i as usize]
    };
    built.order.iter().map(rule).collect()
}

fn constants(built: &Classifier, features: u32, slot_of: &[u8; 256]) -> Vec<Constant> {
    let number = |n: usize| (n as u32).to_ne_bytes().to_vec();
    let mut halves = built.pruning.halves.clone();
    halves.resize(abi::DIMS, 0);
    let mut first = built.pruning.row_first.clone();
    first.resize(abi::DIMS, 0);
    vec![
        ("weir_tables".into(), number(built.tables.len())),
        ("weir_cells_mask".into(), number(built.cells.len() - 1)),
        ("weir_dims".into(), number(built.pruning.halves.len())),
        ("weir_dim_half".into(), halves),
        ("weir_dim_row".into(), first.as_bytes().to_vec()),
        ("weir_features".into(), features.to_ne_bytes().to_vec()),
        ("weir_slot_of".into(), slot_of.to_vec()),
    ]
}

fn abi_rule(
    rule: &Rule,
    conds: (u32, u32),
    ops: (u32, u32),
    seat: Seat,
) -> Result<abi::Rule, PlanError> {
    let mut out = abi::Rule {
        id: rule.id,
        slot: seat.slot,
        cond_first: conds.0,
        cond_count: conds.1,
        op_first: ops.0,
        op_count: ops.1,
        dead_from: abi::NEVER,
        flags: (rule.requires.0 as u32 & 0xffff) << rule_flag::REQUIRES,
        timeout_ns: rule.timeout_ns.unwrap_or(0),
        ..abi::Rule::default()
    };
    if rule.stateful {
        out.flags |= rule_flag::STATEFUL;
    }
    if rule.accepts_icmp_type() {
        out.flags |= rule_flag::ACCEPT_ICMP;
    }
    out.flags |= match rule.mapping {
        None => 0,
        Some(Filtering::AddressAndPortDependent) => rule_flag::MAPPING,
        Some(Filtering::AddressDependent) => rule_flag::MAPPING | rule_flag::FILTER_ADDRESS,
        Some(Filtering::EndpointIndependent) => rule_flag::MAPPING | rule_flag::FILTER_NONE,
    };
    out.flags |= match rule.helper {
        None => 0,
        Some(Helper::Tftp) => rule_flag::HELPER_TFTP,
    };
    if ops.1 > 0 {
        out.flags |= rule_flag::HIT;
    }
    for target in &rule.targets {
        match target {
            Target::Accept => out.flags |= rule_flag::ACCEPT,
            Target::DecrementTtl => out.flags |= rule_flag::TTL,
            Target::Drop(_) if out.flags & (rule_flag::DROP | rule_flag::COUNT) != 0 => {
                return Err(PlanError::TwoDrops { at: rule.place() });
            }
            // It drops where a connection would open, not where it matches.
            Target::Drop(DropWhen::OverConnections { most, per }) => {
                let place = seat.count.unwrap_or_default();
                counts::write(&mut out, *most, *per, seat.counts_as, place);
            }
            Target::Drop(when) => {
                out.flags |= rule_flag::DROP;
                match *when {
                    DropWhen::Always | DropWhen::OverConnections { .. } => {}
                    DropWhen::Answered(how) => {
                        out.flags |= rule_flag::RATE | rule_flag::ANSWER;
                        out.drop_param = (u64::from(how.reset) * abi::answer::RESET)
                            | (u64::from(how.icmp4) << abi::answer::ICMP4)
                            | (u64::from(how.icmp6) << abi::answer::ICMP6);
                    }
                    DropWhen::Random { below } => {
                        out.flags |= rule_flag::RANDOM;
                        out.drop_param = below;
                    }
                    DropWhen::Over { period_ns, burst } => over(&mut out, period_ns, burst),
                    DropWhen::Quota { bytes } => {
                        out.flags |= rule_flag::RATE | rule_flag::QUOTA;
                        out.drop_param = bytes;
                    }
                    DropWhen::OverEach {
                        period_ns,
                        burst,
                        per,
                    } => {
                        over(&mut out, period_ns, burst);
                        out.flags |= rule_flag::METER;
                        out.timeout_ns = meters::word(seat.counts_as, Some(per))
                            | meters::table(seat.table.unwrap_or_default());
                    }
                }
            }
            _ => {}
        }
    }
    Ok(out)
}

fn over(out: &mut abi::Rule, period_ns: u64, burst: u32) {
    out.flags |= rule_flag::RATE;
    out.drop_param = period_ns;
    out.rate_limit_ns = period_ns.saturating_mul(u64::from(burst).saturating_sub(1));
}

/// How many rules of some kinds one packet can meet at most.
#[derive(Clone, Copy, Debug)]
struct Worst {
    /// Stateful rules that match it.
    stateful: usize,
    /// Stateful rules with operations: those of its connection come on top of what matches it.
    of_connection: usize,
    /// Other rules with operations that match it.
    others: usize,
}

impl Worst {
    fn of(built: &Classifier, set: &RuleSet<'_>, rules: &[abi::Rule]) -> Worst {
        let stateful: Vec<u32> = with_flag(rules, rule_flag::STATEFUL).collect();
        let is_stateful = |i: &u32| rules[*i as usize].flags & rule_flag::STATEFUL != 0;
        let (operating, hitting): (Vec<u32>, Vec<u32>) =
            with_flag(rules, rule_flag::HIT).partition(is_stateful);
        // Half of what is possible is left to rules that come beside these.
        let enough = (abi::HITS - abi::FLOW_RULES) / 2;
        Worst {
            stateful: built.most_at_once(set, &stateful, abi::FLOW_RULES / 2),
            of_connection: operating.len(),
            // Nothing matches that is not compared.
            others: (built.most_at_once(set, &hitting, enough)).min(built.worst.candidates),
        }
    }

    /// Of both: a packet may meet the worst of each.
    fn with(self, other: Worst) -> Worst {
        Worst {
            stateful: self.stateful + other.stateful,
            of_connection: self.of_connection + other.of_connection,
            others: self.others + other.others,
        }
    }

    /// Rules on the list of a packet.
    fn hits(self) -> usize {
        self.of_connection.min(abi::FLOW_RULES) + self.others
    }
}

/// Positions of the rules with a flag.
fn with_flag(rules: &[abi::Rule], flag: u32) -> impl Iterator<Item = u32> {
    (0u32..)
        .zip(rules)
        .filter(move |(_, rule)| rule.flags & flag != 0)
        .map(|(i, _)| i)
}

/// The place of each stateful rule by its ids - 1, former ones included: how connections, which outlive layouts, find their rules.
fn places_by_id(ordered: &[abi::Rule], aliases: &[(u32, u32)]) -> Vec<abi::RuleAt> {
    let stateful = || with_flag(ordered, rule_flag::STATEFUL);
    let last = stateful().map(|at| ordered[at as usize].id).max();
    let last = last
        .unwrap_or(0)
        .max(aliases.iter().map(|(old, _)| *old).max().unwrap_or(0));
    let mut places = vec![abi::RuleAt::default(); last as usize];
    for at in stateful() {
        places[ordered[at as usize].id as usize - 1] = abi::RuleAt { place: [at + 1; 2] };
    }
    for &(old, now) in aliases {
        places[old as usize - 1] = places.get(now as usize - 1).copied().unwrap_or_default();
    }
    places
}

/// The operation of a `map` or `shuffle`.
fn stateful_op(
    target: &Target,
    rule: &Rule,
    lowering: &mut Lowering<'_>,
) -> Result<Option<abi::Op>, PlanError> {
    let Some((what, pool)) = connections::choice_of(target) else {
        return Ok(None);
    };
    let count = pool.as_ref().map_or(0, |pool| pool.intervals().len());
    if count > connections::POOL_INTERVALS {
        return Err(PlanError::ScatteredPool {
            at: rule.place(),
            count,
            max: connections::POOL_INTERVALS,
        });
    }
    let placed = pool.as_ref().map(|pool| (pool, lowering.pool(pool)));
    Ok(Some(connections::operation(what, placed)))
}

/// Whether rules name VLAN fields, which some devices hide from XDP.
pub fn names_vlan<'a>(rules: impl IntoIterator<Item = &'a Rule>) -> bool {
    use weir_policy::field::Header::{Vlan, Vlan2};
    rules.into_iter().any(|rule| {
        let moves = |t: &Target| matches!(t, Target::PushTag { .. } | Target::PopTag);
        if rule.targets.iter().any(moves) {
            return true;
        }
        let matches = rule.matches.iter().map(|m| m.subject.field);
        let targets = rule.targets.iter().filter_map(|t| match t {
            Target::Set { field, .. } => Some(*field),
            _ => None,
        });
        matches
            .chain(targets)
            .any(|field| matches!(field.info().header, Vlan | Vlan2))
    })
}

/// Where rules name what only a socket buffer has: the first place, and the word.
pub fn names_meta<'a>(rules: impl IntoIterator<Item = &'a Rule>) -> Option<(Place, &'static str)> {
    use weir_policy::field::Header::Skb;
    rules.into_iter().find_map(|rule| {
        let matches = rule.matches.iter().map(|m| m.subject.field);
        let targets = rule.targets.iter().filter_map(|t| match t {
            Target::SetMeta { field, .. } => Some(*field),
            _ => None,
        });
        let named = matches.chain(targets).map(|field| field.info());
        let found = named.into_iter().find(|info| info.header == Skb)?;
        Some((rule.place(), found.name))
    })
}

/// Whether rules test the time of day or the day of the week.
pub fn tests_time<'a>(rules: impl IntoIterator<Item = &'a Rule>) -> bool {
    use weir_policy::field::Header::Clock;
    let of_time = |m: &Match| m.subject.field.info().header == Clock;
    rules
        .into_iter()
        .any(|rule| rule.matches.iter().any(of_time))
}

/// Refuses rules that name what only a socket buffer has, where packets have none yet.
///
/// # Errors
/// [`PlanError::MetaUnknown`] of the first.
pub fn refuse_meta<'a>(
    rules: impl IntoIterator<Item = &'a Rule>,
    at_hook: impl FnOnce() -> String,
) -> Result<(), PlanError> {
    match names_meta(rules) {
        None => Ok(()),
        Some((at, name)) => Err(PlanError::MetaUnknown {
            at,
            name,
            hook: at_hook(),
        }),
    }
}

/// Whether a rule may turn a whole packet into a fragment: it writes flags or offset of IPv4, or the next header of IPv6.
pub fn makes_fragments<'a>(rules: impl IntoIterator<Item = &'a Rule>) -> bool {
    use weir_policy::field::Header::{Ip4, Ip6};
    rules.into_iter().any(|rule| {
        rule.targets.iter().any(|target| {
            let Target::Set { field, .. } = target else {
                return false;
            };
            let info = field.info();
            match info.header {
                Ip4 => (48..64).contains(&info.offset),
                Ip6 => info.offset == 48,
                _ => false,
            }
        })
    })
}

/// Whether any rule changes packets or looks at checksums of TCP to answer them; such rules have a stake in the checksum mode of their ports.
pub fn rewrites<'a>(rules: impl IntoIterator<Item = &'a Rule>) -> bool {
    rules.into_iter().any(|rule| {
        rule.targets.iter().any(|t| match t {
            Target::Drop(when) => matches!(when, DropWhen::Answered(_)),
            Target::Accept | Target::Log { .. } | Target::ChangeSet(_) => false,
            _ => true,
        })
    })
}

/// The bits of `feature` that mean rewriting.
const REWRITES: u32 = feature::OPTION_OPS | feature::PAYLOAD_OPS | feature::REWRITE;
