//! The middlebox: a policy becomes classifier tables, residual conditions and rewrite operations.
//!
//! [`plan`] is the whole of it. What one match becomes is in `conditions`, what one target becomes in `operations`.
//! A policy the data plane cannot hold is refused here, with the rule and the reason.

mod conditions;
pub mod connections;
pub mod flows;
mod operations;

use weir_bpf::abi::{self, feature, rule_flag};
use weir_classify::{Classifier, ClassifyError, RuleKey, RuleSet, Scheme};
use weir_policy::model::{DropWhen, Policy, Rule, Target};
use zerocopy::IntoBytes;

use crate::plan::{InstancePlan, MapPlan, Port};
use conditions::Lowering;

/// Why a policy cannot be planned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// `out` on a hook in front of routing.
    #[error(
        "line {line}: `out` cannot be known here: XDP, tc on receive and replay see packets before routing decides where they leave; use `weir run --egress`, or match `in` or addresses instead"
    )]
    OutUnknown {
        /// Line of the rule.
        line: u32,
    },
    /// More option kinds with value tests than the flat key has slots for.
    #[error(
        "line {line}: the policy tests the values of more than {max} kinds of TCP options; test presence (`tcp-opt KIND`) for the others"
    )]
    TooManyOptionKinds {
        /// Line of the rule that needs one too many.
        line: u32,
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
        "line {line}: `map` chooses from {count} separate ranges, {max} are possible; use fewer, larger ones"
    )]
    ScatteredPool {
        /// Line of the rule.
        line: u32,
        /// Intervals of the pool.
        count: usize,
        /// Limit.
        max: usize,
    },
    /// Several conditional drops in one rule.
    #[error("line {line}: one rule cannot drop in two ways; write two rules")]
    TwoDrops {
        /// Line of the rule.
        line: u32,
    },
    /// See [`ClassifyError`].
    #[error(transparent)]
    Classify(#[from] ClassifyError),
}

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
    let mut lowering = Lowering::new(ports, sees_egress);
    let mut keys: Vec<RuleKey> = Vec::with_capacity(policy.rules.len());
    let mut rules = Vec::with_capacity(policy.rules.len());
    let mut ops = Vec::new();
    for rule in &policy.rules {
        let (exact, conds) = lowering.rule(rule)?;
        let op_first = ops.len() as u32;
        for target in &rule.targets {
            ops.extend(operations::lower(target));
            ops.extend(stateful_op(target, rule, &mut lowering)?);
        }
        let op_count = ops.len() as u32 - op_first;
        let mut lowered = abi_rule(rule, conds, (op_first, op_count))?;
        lowered.value = exact.values();
        rules.push(lowered);
        keys.push(RuleKey {
            exact,
            cond_first: conds.0,
            cond_count: conds.1,
        });
    }
    let set = RuleSet {
        rules: &keys,
        conds: lowering.conds(),
        intervals: lowering.intervals(),
    };
    let built = weir_classify::build(&set, scheme)?;
    for (rule, &shape) in rules.iter_mut().zip(&built.shape_of) {
        rule.shape = shape;
    }
    let stateful: Vec<u32> = with_flag(&rules, rule_flag::STATEFUL).collect();
    let worst = built.most_at_once(&set, &stateful, abi::FLOW_RULES);
    if worst > abi::FLOW_RULES {
        return Err(PlanError::TooManyStateful {
            worst,
            max: abi::FLOW_RULES,
        });
    }
    let bounds = bounds(&built, &set, &rules);
    if bounds.hits > abi::HITS {
        return Err(PlanError::TooManyHits {
            worst: bounds.hits,
            max: abi::HITS,
        });
    }
    let ordered: Vec<abi::Rule> = built.order.iter().map(|&i| rules[i as usize]).collect();
    let mut features = lowering.features() | operations::features(&ops);
    if !stateful.is_empty() {
        features |= feature::STATE;
    }
    let n = rules.len();
    let mut rule_at = vec![0u32; if stateful.is_empty() { 0 } else { n }];
    for (position, &i) in (1..).zip(&built.order) {
        if let Some(at) = rule_at.get_mut(i as usize) {
            *at = position;
        }
    }
    let mut constants = constants(&built, features, lowering.slot_of());
    constants.extend(connections::constants(&policy.connections, features));
    let plan = InstancePlan {
        object: "middlebox",
        program: "middlebox",
        constants,
        maps: vec![
            MapPlan::array("tables", &built.tables),
            MapPlan::array("shapes", &built.shapes),
            MapPlan::array("cells", &built.cells),
            MapPlan::array("nodes", &built.nodes),
            MapPlan::array("lists", &built.lists),
            MapPlan::array("dims", &built.pruning.dim_rows),
            MapPlan::array("rows", &built.pruning.rows),
            MapPlan::array("rules", &ordered),
            MapPlan::array("conds", lowering.conds()),
            MapPlan::array("intervals", lowering.intervals()),
            MapPlan::array("ops", &ops),
            MapPlan::empty("counters", n, size_of::<abi::Counter>()),
            MapPlan::empty("rates", n, size_of::<u64>()),
            MapPlan::array("rule_at", &rule_at),
        ]
        .into_iter()
        .chain(connections::maps(&policy.connections, features))
        .collect(),
    };
    Ok((plan, bounds))
}

fn constants(
    built: &Classifier,
    features: u32,
    slot_of: &[u8; 256],
) -> Vec<(&'static str, Vec<u8>)> {
    let number = |n: usize| (n as u32).to_ne_bytes().to_vec();
    let mut halves = built.pruning.halves.clone();
    halves.resize(abi::DIMS, 0);
    let mut first = built.pruning.row_first.clone();
    first.resize(abi::DIMS, 0);
    vec![
        ("weir_tables", number(built.tables.len())),
        ("weir_cells_mask", number(built.cells.len() - 1)),
        ("weir_dims", number(built.pruning.halves.len())),
        ("weir_dim_half", halves),
        ("weir_dim_row", first.as_bytes().to_vec()),
        ("weir_features", features.to_ne_bytes().to_vec()),
        ("weir_slot_of", slot_of.to_vec()),
    ]
}

fn abi_rule(rule: &Rule, conds: (u32, u32), ops: (u32, u32)) -> Result<abi::Rule, PlanError> {
    let mut out = abi::Rule {
        id: rule.id,
        cond_first: conds.0,
        cond_count: conds.1,
        op_first: ops.0,
        op_count: ops.1,
        requires: rule.requires.0 as u32,
        timeout_ns: rule.timeout_ns.unwrap_or(0),
        ..abi::Rule::default()
    };
    if rule.stateful {
        out.flags |= rule_flag::STATEFUL;
    }
    if ops.1 > 0 {
        out.flags |= rule_flag::HIT;
    }
    for target in &rule.targets {
        match target {
            Target::Accept => out.flags |= rule_flag::ACCEPT,
            Target::Drop(_) if out.flags & rule_flag::DROP != 0 => {
                return Err(PlanError::TwoDrops { line: rule.line });
            }
            Target::Drop(when) => {
                out.flags |= rule_flag::DROP;
                match *when {
                    DropWhen::Always => {}
                    DropWhen::Random { below } => {
                        out.flags |= rule_flag::RANDOM;
                        out.drop_below = below;
                    }
                    DropWhen::Over { period_ns, burst } => {
                        out.flags |= rule_flag::RATE;
                        out.rate_period_ns = period_ns;
                        out.rate_limit_ns =
                            period_ns.saturating_mul(u64::from(burst).saturating_sub(1));
                    }
                }
            }
            _ => {}
        }
    }
    Ok(out)
}

fn bounds(built: &Classifier, set: &RuleSet<'_>, rules: &[abi::Rule]) -> Bounds {
    // The rules of a connection come on top of what matches a packet of it.
    let is_stateful = |i: &u32| rules[*i as usize].flags & rule_flag::STATEFUL != 0;
    let (stateful, hitting): (Vec<u32>, Vec<u32>) =
        with_flag(rules, rule_flag::HIT).partition(is_stateful);
    let of_connection = stateful.len().min(abi::FLOW_RULES);
    Bounds {
        tables: built.tables.len(),
        probes: built.worst.tables,
        candidates: built.worst.candidates,
        // Nothing matches that is not compared.
        hits: of_connection
            + built
                .most_at_once(set, &hitting, abi::HITS - of_connection)
                .min(built.worst.candidates),
    }
}

/// Positions of the rules with a flag.
fn with_flag(rules: &[abi::Rule], flag: u32) -> impl Iterator<Item = u32> {
    (0u32..)
        .zip(rules)
        .filter(move |(_, rule)| rule.flags & flag != 0)
        .map(|(i, _)| i)
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
            line: rule.line,
            count,
            max: connections::POOL_INTERVALS,
        });
    }
    let placed = pool.as_ref().map(|pool| (pool, lowering.pool(pool)));
    Ok(Some(connections::operation(what, placed)))
}

/// Whether a policy names VLAN fields, which some devices hide from XDP.
pub fn names_vlan(policy: &Policy) -> bool {
    use weir_policy::field::Header::{Vlan, Vlan2};
    policy.rules.iter().any(|rule| {
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

/// Whether any rule changes packets; such a policy has a stake in the checksum mode of its ports.
pub fn rewrites(policy: &Policy) -> bool {
    policy.rules.iter().any(|rule| {
        rule.targets
            .iter()
            .any(|t| !matches!(t, Target::Drop(_) | Target::Accept | Target::Log { .. }))
    })
}

/// The bits of `feature` that mean rewriting.
const REWRITES: u32 = feature::OPTION_OPS | feature::PAYLOAD_OPS | feature::REWRITE;
