//! In which order rules are decided.

use std::sync::Arc;

use foldhash::{HashMap, HashMapExt};

use crate::rules::{ActionOrder, Bit, BitOperation, Rule};

/// The order in which rules are decided: those of the firewall as written; the others by their actions, as `actions` has them; rules that set a bit before those that ask for it; then by priority, then as loaded.
pub(super) fn order(rules: &[Arc<Rule>], actions: &ActionOrder) -> Vec<usize> {
    let mut setters: HashMap<(u8, &str), Vec<usize>> = HashMap::new();
    for (i, rule) in rules.iter().enumerate() {
        for key in touched(rule, true) {
            setters.entry(key).or_default().push(i);
        }
    }
    // Depth of the longest chain of setters behind each rule. A cycle is cut where it closes, in the order of loading.
    let mut levels: Vec<Option<u32>> = vec![None; rules.len()];
    let mut entered = vec![false; rules.len()];
    for start in 0..rules.len() {
        let mut stack = vec![(start, false)];
        while let Some((i, leaving)) = stack.pop() {
            if levels[i].is_some() || (entered[i] && !leaving) {
                continue;
            }
            let behind = || {
                touched(&rules[i], false)
                    .into_iter()
                    .filter_map(|k| setters.get(&k))
                    .flatten()
                    .copied()
                    .filter(|s| *s != i)
            };
            if leaving {
                levels[i] = Some(
                    behind()
                        .filter_map(|s| levels[s])
                        .map(|l| l + 1)
                        .max()
                        .unwrap_or(0),
                );
                continue;
            }
            entered[i] = true;
            stack.push((i, true));
            stack.extend(behind().filter(|s| !entered[*s]).map(|s| (s, false)));
        }
    }
    let mut order: Vec<usize> = (0..rules.len()).collect();
    order.sort_by_key(|i| {
        let rule = &rules[*i];
        let action = actions.iter().position(|a| *a == rule.action);
        match rule.firewall {
            // In the order they are written, before all others.
            Some(_) => (None, 0, 0, *i),
            None => (action, levels[*i].unwrap_or(0), rule.priority, *i),
        }
    });
    order
}

/// Names of bits that a rule changes, or asks for.
fn touched(rule: &Rule, changes: bool) -> Vec<(u8, &str)> {
    let asks = |o: BitOperation| matches!(o, BitOperation::IsSet | BitOperation::IsNotSet);
    let mut out = Vec::new();
    for bit in &rule.bits {
        match bit {
            Bit::Flow { operation, names } if asks(*operation) != changes => {
                out.extend(names.iter().map(|n| (0, n.as_str())));
            }
            Bit::Host {
                operation, name, ..
            } if asks(*operation) != changes => out.push((1, name.as_str())),
            Bit::Transaction { operation, name } if asks(*operation) != changes => {
                out.push((3, name.as_str()));
            }
            Bit::Counter { name, operator, .. }
                if matches!(operator.as_str(), "=" | "+" | "-") == changes =>
            {
                out.push((2, name.as_str()));
            }
            _ => {}
        }
    }
    out
}
