//! What is remembered of the rules of an instance, so that another policy, or another control program, can go on with its
//! connections, counters and rate words.
//!
//! A rule is the same if its text is, and what the sets mean that it names. Invariant: an id never means two rules, so a connection
//! that names one finds the rule that opened it or none.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};
use weir_bpf::abi::feature;
use weir_policy::model::Rule;

use super::counts::Place;
use super::dynamic::PastSet;
use super::{EditError, Rebuild, Written};

/// The rules of an instance as they are remembered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Past {
    /// Ascending by id.
    pub rules: Vec<PastRule>,
    /// Former ids of rules, with their present ones.
    pub aliases: Vec<(u32, u32)>,
    /// The id that comes next.
    pub next_id: u32,
    /// Number of the state of the rules.
    pub generation: u64,
    /// Room for counters.
    pub slots: u32,
    /// Features that the programs were compiled with.
    pub features: u32,
    /// Connections that were asked for.
    pub capacity: u32,
    /// Sets that packets fill, in the order in which their elements lie.
    #[serde(default)]
    pub sets: Vec<PastSet>,
    /// Tables of limits that count addresses apart.
    #[serde(default)]
    pub tables: PastTables,
}

/// Tables of limits that count addresses apart, as they are remembered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastTables {
    /// `limits N` of the policy: how large each is.
    pub limits: u32,
    /// How many there are.
    pub tables: u32,
}

/// A rule as it is remembered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastRule {
    /// Its id.
    pub id: u32,
    /// Where its counters and rate word lie.
    pub slot: u32,
    /// How it was written.
    pub text: String,
    /// What the sets mean that it names; 0 if it names none.
    pub meaning: u64,
    /// The id that its limits count under.
    #[serde(default)]
    pub counts_as: u32,
    /// Its table, if it is a limit that counts addresses apart.
    #[serde(default)]
    pub table: Option<u32>,
    /// Its table, if it limits connections at a time.
    #[serde(default)]
    pub count: Option<Place>,
}

/// What an edit in place changes of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastChange {
    /// Ids that go.
    pub gone: BTreeSet<u32>,
    /// Rules that come.
    pub added: Vec<PastRule>,
    /// The generation that begins.
    pub generation: u64,
}

/// A policy that takes the place of another one.
#[derive(Debug)]
pub struct Succession {
    /// What is to be loaded.
    pub rebuild: Rebuild,
    /// Rules that stay.
    pub kept: usize,
    /// Of them, those that have other ids now.
    pub renumbered: usize,
    /// Rules that go.
    pub removed: usize,
    /// Rules that come.
    pub added: usize,
}

impl Past {
    /// Whether its programs kept connections.
    pub fn is_stateful(&self) -> bool {
        self.features & feature::STATE != 0
    }

    /// Follows an edit.
    pub fn apply(&mut self, change: PastChange) {
        // An edit that failed after it was written down was never there.
        let first = change.added.first().map_or(u32::MAX, |rule| rule.id);
        self.rules
            .retain(|rule| !change.gone.contains(&rule.id) && rule.id < first);
        self.next_id = change.added.last().map_or(self.next_id, |rule| rule.id + 1);
        self.rules.extend(change.added);
        self.generation = change.generation;
    }
}

impl PastRule {
    /// Of a rule with its slot.
    pub(super) fn new(rule: &Rule, text: &str, slot: u32) -> PastRule {
        PastRule {
            id: rule.id,
            slot,
            text: text.to_owned(),
            meaning: meaning(rule, text),
            counts_as: rule.id,
            table: None,
            count: None,
        }
    }
}

/// New rules with what they inherit.
pub(super) struct Heirs<'p> {
    /// In rule order, with ids, and what is remembered of those that stay.
    pub(super) rules: Vec<(Written, Option<&'p PastRule>)>,
    pub(super) aliases: Vec<(u32, u32)>,
    pub(super) next_id: u32,
    pub(super) kept: usize,
    pub(super) renumbered: usize,
}

/// Gives ids to the rules of a policy that follows another one. Ids ascend in rule order, so from the first rule on that is new or
/// elsewhere, rules that stay get new ids, too; their former ones remain as aliases where connections may name them.
pub(super) fn inherit(past: &Past, rules: Vec<Written>) -> Result<Heirs<'_>, EditError> {
    let mut former: HashMap<&str, VecDeque<&PastRule>> = HashMap::new();
    for rule in &past.rules {
        former.entry(&rule.text).or_default().push_back(rule);
    }
    let mut find = |written: &Written| {
        let meaning = meaning(&written.rule, &written.text);
        let same = former.get_mut(written.text.as_str())?;
        let at = same.iter().position(|rule| rule.meaning == meaning)?;
        same.remove(at)
    };
    let found: Vec<Option<&PastRule>> = rules.iter().map(&mut find).collect();
    let mut next_id = past.next_id;
    let mut last = 0;
    let mut now_of: BTreeMap<u32, u32> = BTreeMap::new();
    let mut heirs = Vec::with_capacity(rules.len());
    let (mut kept, mut renumbered) = (0, 0);
    for (mut written, old) in rules.into_iter().zip(found) {
        let id = match old {
            Some(old) if old.id > last => old.id,
            _ => {
                let id = next_id.max(last + 1);
                next_id = id.checked_add(1).ok_or(EditError::NoIds)?;
                id
            }
        };
        last = id;
        if let Some(old) = old {
            kept += 1;
            renumbered += usize::from(old.id != id);
            if written.rule.stateful {
                now_of.insert(old.id, id);
            }
        }
        written.rule.id = id;
        heirs.push((written, old));
    }
    let former_ids = past.aliases.iter();
    let mut aliases: Vec<(u32, u32)> = former_ids
        .filter_map(|(old, was)| Some((*old, *now_of.get(was)?)))
        .collect();
    aliases.extend(now_of.into_iter().filter(|(old, now)| old != now));
    Ok(Heirs {
        rules: heirs,
        aliases,
        next_id,
        kept,
        renumbered,
    })
}

/// What a rule means beyond its text.
fn meaning(rule: &Rule, text: &str) -> u64 {
    if !text.contains('@') {
        return 0;
    }
    let mut digest = Digest(0xcbf2_9ce4_8422_2325);
    // A digest takes everything.
    let _ = write!(digest, "{:?}{:?}", rule.matches, rule.targets);
    digest.0
}

/// FNV-1a: the same in every build, which the standard library's hashes need not be.
struct Digest(u64);

impl fmt::Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::middlebox::RuleBook;
    use weir_policy::model::Connections;
    use weir_policy::{FileSets, Source, ast, parse};

    fn written(text: &str) -> Vec<Written> {
        let parsed = parse(
            &Source::new("test", text),
            &FileSets::beside("test".as_ref()),
        )
        .unwrap_or_else(|e| panic!("{}", e.render(false)));
        let texts = parsed.ast.items.iter().filter_map(|item| match item {
            ast::Item::Rule(rule) => Some(weir_policy::one_line(&parsed.ast.text, rule)),
            _ => None,
        });
        let rules = parsed.policy.rules.iter().cloned();
        rules
            .zip(texts)
            .map(|(rule, text)| Written { rule, text })
            .collect()
    }

    fn book(text: &str) -> RuleBook {
        let made = RuleBook::new(written(text), &Connections::default(), &[], false);
        made.expect("plans").0
    }

    fn ids(heirs: &Heirs<'_>) -> Vec<(u32, Option<u32>)> {
        heirs
            .rules
            .iter()
            .map(|(w, old)| (w.rule.id, old.map(|old| old.slot)))
            .collect()
    }

    const OLD: &str =
        "udp-dport 1 drop\nadd-stateful tcp-dport 80 accept\nadd-stateful udp-dport 2 accept\n";

    #[test]
    fn a_rule_behind_the_others_leaves_them_their_ids() {
        let past = book(OLD).past();
        let heirs = inherit(&past, written(&format!("{OLD}udp-dport 3 drop\n"))).expect("ids");
        assert_eq!(
            ids(&heirs),
            [(1, Some(0)), (2, Some(1)), (3, Some(2)), (4, None)]
        );
        assert_eq!((heirs.kept, heirs.renumbered, heirs.next_id), (3, 0, 5));
        assert!(heirs.aliases.is_empty());
    }

    #[test]
    fn a_rule_in_front_moves_ids_and_leaves_aliases() {
        let past = book(OLD).past();
        let text = format!("udp-dport 3 drop\n{OLD}");
        let heirs = inherit(&past, written(&text)).expect("ids");
        assert_eq!(
            ids(&heirs),
            [(4, None), (5, Some(0)), (6, Some(1)), (7, Some(2))]
        );
        assert_eq!(heirs.aliases, [(2, 6), (3, 7)]);
        assert_eq!((heirs.kept, heirs.renumbered), (3, 3));
        // Once more: the first ids lead to the latest ones.
        let (rebuild, _) = (RuleBook::following(
            &past,
            written(&text),
            &Connections::default(),
            &[],
            false,
            true,
        ))
        .map(|s| (s.rebuild, s.kept))
        .expect("plans");
        let places = rebuild
            .plan
            .maps
            .iter()
            .find(|m| m.name == "rule_at")
            .expect("planned");
        let at = |id: usize| &places.values[(id - 1) * 8..id * 8];
        assert_eq!(at(2), at(6));
        assert_eq!(at(3), at(7));
        assert_ne!(at(6), at(7));
        assert_ne!(at(6), [0; 8]);
        assert_eq!(at(1), [0; 8]);
        let again = format!("udp-dport 4 drop\n{text}");
        let past = rebuild.past();
        let heirs = inherit(&past, written(&again)).expect("ids");
        assert_eq!(heirs.aliases, [(2, 11), (3, 12), (6, 11), (7, 12)]);
    }

    #[test]
    fn a_set_that_changed_makes_another_rule() {
        let with = |port: u32| {
            format!("set ports = {{ {port} }}\nadd-stateful udp-dport in @ports accept\n")
        };
        let past = book(&with(5)).past();
        let heirs = |text: &str| inherit(&past, written(text)).expect("ids").kept;
        assert_eq!(heirs(&with(5)), 1);
        assert_eq!(heirs(&with(6)), 0);
    }

    #[test]
    fn rules_of_the_same_text_inherit_once_each() {
        let twice = "udp-dport 1 drop\nudp-dport 1 drop\n";
        let past = book(twice).past();
        let heirs = inherit(&past, written(&format!("{twice}udp-dport 1 drop\n")));
        let heirs = heirs.expect("ids");
        assert_eq!(ids(&heirs), [(1, Some(0)), (2, Some(1)), (3, None)]);
    }

    /// Names and tables of limits stay with their rules, whatever numbers these get and whatever other limits come and go.
    #[test]
    fn limits_follow_their_rules() {
        let each = |port: u16| format!("udp-dport {port} drop over 3/s per source\n");
        let count = "udp-dport 9 drop over 2 connections per source\n";
        let connections = Connections::default();
        let first = book(&format!("{}{}{count}", each(1), each(2)));
        let past = first.past();
        let seats = |past: &Past| -> Vec<(String, u32, Option<u32>)> {
            let seat = |rule: &PastRule| (rule.text.clone(), rule.counts_as, rule.table);
            past.rules.iter().map(seat).collect()
        };
        let former = seats(&past);
        for text in [
            format!("udp-dport 7 drop\n{}{}{count}", each(1), each(2)),
            format!("{}{}{}{count}", each(3), each(2), each(1)),
            format!("{count}{}", each(2)),
        ] {
            let made = RuleBook::following(&past, written(&text), &connections, &[], false, true);
            let made = made.expect("plans");
            let now = made.rebuild.past();
            assert_eq!(now.tables, past.tables, "the map has the same size");
            for (rule, counts_as, table) in seats(&now) {
                match former.iter().find(|(former, ..)| *former == rule) {
                    Some(stays) => assert_eq!(stays, &(rule, counts_as, table), "{text}"),
                    None => assert!(former.iter().all(|(_, was, at)| {
                        *was != counts_as && (table.is_none() || *at != table)
                    })),
                }
            }
            assert!(made.rebuild.counts_lie_as_past(&past), "{text}");
            assert!(made.rebuild.counts_lie_as(&first), "{text}");
        }
        let two = format!("udp-dport 8 drop over 2 connections per source\n{count}");
        let made = RuleBook::following(&past, written(&two), &connections, &[], false, true);
        assert!(!made.expect("plans").rebuild.counts_lie_as_past(&past));
    }
}
