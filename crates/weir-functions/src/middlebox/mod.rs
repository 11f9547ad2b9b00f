//! The middlebox: a policy becomes classifier tables, residual conditions and rewrite operations.
//!
//! [`plan`] is the whole of it. What one match becomes is in `conditions`, what one target becomes in `operations`.
//! A policy the data plane cannot hold is refused here, with the rule and the reason.

mod conditions;
mod operations;

use weir_bpf::abi::{self, feature, rule_flag};
use weir_classify::{ClassifyError, ExactKey};
use weir_policy::model::{DropWhen, Policy, Rule, Target};
use zerocopy::IntoBytes;

use crate::plan::{InstancePlan, MapPlan, Port};
use conditions::Lowering;

/// Why a policy cannot be planned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// `out` on a hook in front of routing.
    #[error(
        "line {line}: `out` cannot be known here: XDP and replay see packets before routing decides where they leave; match `in` or addresses instead"
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
    /// Tables probed for every packet.
    pub tables: usize,
    /// Rules whose residual conditions may be tested, all buckets at their largest.
    pub candidates: usize,
    /// Rules with rewrites or log lines that could match one packet.
    pub hits: usize,
}

/// Compiles a policy for a hook in front of routing (XDP, replay). `ports` are the ports that `in` may name; an `in` that names
/// no port never matches.
pub fn plan(policy: &Policy, ports: &[Port]) -> Result<(InstancePlan, Bounds), PlanError> {
    let mut lowering = Lowering::new(ports);
    let mut keys: Vec<ExactKey> = Vec::with_capacity(policy.rules.len());
    let mut rules = Vec::with_capacity(policy.rules.len());
    let mut ops = Vec::new();
    for rule in &policy.rules {
        let (key, conds) = lowering.rule(rule)?;
        keys.push(key);
        let op_first = ops.len() as u32;
        ops.extend(rule.targets.iter().flat_map(operations::lower));
        let op_count = ops.len() as u32 - op_first;
        rules.push(abi_rule(rule, conds, (op_first, op_count))?);
    }
    let tables = weir_classify::build(&keys)?;
    let bounds = bounds(&tables, &rules);
    if bounds.hits > abi::HITS {
        return Err(PlanError::TooManyHits {
            worst: bounds.hits,
            max: abi::HITS,
        });
    }
    let ordered: Vec<abi::Rule> = tables.order.iter().map(|&i| rules[i as usize]).collect();
    let features = lowering.features() | operations::features(&ops);
    let n = rules.len();
    let plan = InstancePlan {
        object: "middlebox",
        program: "middlebox",
        constants: vec![
            (
                "weir_tables",
                (tables.tables.len() as u32).to_ne_bytes().to_vec(),
            ),
            ("weir_features", features.to_ne_bytes().to_vec()),
            ("weir_slot_of", lowering.slot_of().to_vec()),
        ],
        maps: vec![
            MapPlan::array("tables", &tables.tables),
            MapPlan {
                name: "buckets",
                max_entries: (tables.buckets.len() as u32).max(1),
                key_size: size_of::<abi::Probe>(),
                value_size: size_of::<abi::Bucket>(),
                keys: tables
                    .buckets
                    .iter()
                    .flat_map(|(probe, _)| probe.as_bytes().to_vec())
                    .collect(),
                values: tables
                    .buckets
                    .iter()
                    .flat_map(|(_, bucket)| bucket.as_bytes().to_vec())
                    .collect(),
            },
            MapPlan::array("rules", &ordered),
            MapPlan::array("conds", lowering.conds()),
            MapPlan::array("intervals", lowering.intervals()),
            MapPlan::array("ops", &ops),
            MapPlan::empty("counters", n, size_of::<abi::Counter>()),
            MapPlan::empty("rates", n, size_of::<u64>()),
        ],
    };
    Ok((plan, bounds))
}

fn abi_rule(rule: &Rule, conds: (u32, u32), ops: (u32, u32)) -> Result<abi::Rule, PlanError> {
    let mut out = abi::Rule {
        id: rule.id,
        cond_first: conds.0,
        cond_count: conds.1,
        op_first: ops.0,
        op_count: ops.1,
        ..abi::Rule::default()
    };
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

fn bounds(tables: &weir_classify::Tables, rules: &[abi::Rule]) -> Bounds {
    let mut candidates = vec![0; tables.tables.len()];
    let mut hits = vec![0; tables.tables.len()];
    for (probe, bucket) in &tables.buckets {
        let members = &tables.order[bucket.first as usize..][..bucket.count as usize];
        let hit = members
            .iter()
            .filter(|&&i| rules[i as usize].flags & rule_flag::HIT != 0)
            .count();
        let table = probe.table as usize;
        candidates[table] = candidates[table].max(members.len());
        hits[table] = hits[table].max(hit);
    }
    Bounds {
        tables: tables.tables.len(),
        candidates: candidates.iter().sum(),
        hits: hits.iter().sum(),
    }
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
