//! A policy as a rule set of nftables, and what has no place in it.

mod nft;

use weir_policy::describe;
use weir_policy::model::{DropWhen, Policy, Rule, Target};

use crate::finding::{Effect, Finding};

pub use nft::{Inexpressible, chain, lines_of};

/// What was made of a policy.
#[derive(Clone, Debug)]
pub struct Exported {
    /// For `nft -f`: replaces the table of the same name.
    pub ruleset: String,
    /// Rules that are in it.
    pub rules: usize,
    /// What is not in it, by line of the policy.
    pub findings: Vec<Finding>,
}

/// A policy as table `weir` of family netdev, on these interfaces.
pub fn export_nft(policy: &Policy, interfaces: &[String]) -> Exported {
    let mut findings = Vec::new();
    let mut parts: [Vec<String>; 3] = Default::default();
    let mut rules = 0;
    for rule in &policy.rules {
        match lines(rule, &mut findings) {
            Ok(lines) => {
                rules += usize::from(lines.iter().any(|lines| !lines.is_empty()));
                for (part, lines) in parts.iter_mut().zip(lines) {
                    part.extend(lines);
                }
            }
            Err(reason) => findings.push(finding(rule, reason, lost(rule))),
        }
    }
    findings.sort_by_key(|finding: &Finding| finding.line);
    let devices: Vec<String> = interfaces
        .iter()
        .map(|name| format!("\"{name}\""))
        .collect();
    let [logs, accepts, drops] = parts;
    let mut ruleset = "# made by `weir export nft`\ntable netdev weir\ndelete table netdev weir\ntable netdev weir {\n    chain ingress {\n".to_owned();
    ruleset.push_str(&format!(
        "        type filter hook ingress devices = {{ {} }} priority 0; policy accept;\n",
        devices.join(", ")
    ));
    let sections = [
        ("every match is logged", logs),
        ("an accept overrides every drop", accepts),
        ("drops", drops),
    ];
    for (title, lines) in sections {
        if !lines.is_empty() {
            ruleset.push_str(&format!("\n        # {title}\n"));
        }
        for line in lines {
            ruleset.push_str(&format!("        {line}\n"));
        }
    }
    ruleset.push_str("    }\n}\n");
    Exported {
        ruleset,
        rules,
        findings,
    }
}

fn finding(rule: &Rule, reason: impl Into<String>, effect: Effect) -> Finding {
    Finding::new(rule.line, &describe(rule), reason, effect)
}

/// What it means that a rule is not there.
fn lost(rule: &Rule) -> Effect {
    let accepts = rule.targets.contains(&Target::Accept);
    let drops = (rule.targets.iter()).any(|target| matches!(target, Target::Drop(_)));
    match (accepts, drops) {
        (true, _) => Effect::Narrower,
        (_, true) => Effect::Wider,
        _ => Effect::NoChange,
    }
}

/// Lines that log, accept and drop; targets that nftables has not got are named.
fn lines(rule: &Rule, findings: &mut Vec<Finding>) -> Result<[Vec<String>; 3], &'static str> {
    if rule.stateful {
        return Err("nftables has no connections at this hook");
    }
    let mut out: [Vec<String>; 3] = Default::default();
    let [logs, accepts, drops] = &mut out;
    for target in &rule.targets {
        let said = |what: &str| nft::statement(rule, what).map_err(|Inexpressible(what)| what);
        let reason = match target {
            Target::Accept => {
                accepts.extend(said("accept")?);
                continue;
            }
            Target::Drop(DropWhen::Always) => {
                drops.extend(said("drop")?);
                continue;
            }
            Target::Log { prefix, limit } => {
                let prefix = prefix.replace('"', "'");
                let limit = limit.as_ref().map(nft::limit).unwrap_or_default();
                logs.extend(said(&format!("{limit}log prefix \"{prefix}\""))?);
                continue;
            }
            Target::Drop(DropWhen::Answered(_)) => {
                return Err("answers of `reject` are not exported");
            }
            Target::Drop(DropWhen::Quota { .. }) => {
                return Err("`quota` of nftables counts bytes without Ethernet headers");
            }
            Target::Drop(DropWhen::OverConnections { .. }) => {
                return Err("nftables has no connections at this hook");
            }
            Target::Drop(_) => return Err("nftables counts and draws in another way"),
            Target::ChangeSet(_) => "dynamic sets are not exported",
            _ => "rewriting is not exported",
        };
        let known = findings
            .last()
            .is_some_and(|last: &Finding| last.line == rule.line && last.reason == reason);
        if !known {
            findings.push(finding(rule, reason, Effect::NoChange));
        }
    }
    Ok(out)
}
