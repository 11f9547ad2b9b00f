//! From chains at hooks to one policy: which chains received packets pass, in which order, and what the host must tell.

use crate::chains::{Chains, Decision, Flatten, Verdict, in_series};
use crate::condition::{CT_ESTABLISHED, CT_RELATED, Condition, Field, narrowed, product};
use crate::finding::{Effect, Finding};
use crate::nat::{self, Translations};
use crate::nat_chains::NatChains;
use crate::numbers::Numbers;
use crate::options::Error;
use crate::packets_before::{Change, Per};
use crate::policy::Draft;
use crate::state::State;

/// The priority of destination NAT.
const NAT: i32 = -100;

/// Where a base chain stands in the path of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Hook {
    Ingress,
    Prerouting,
    Input,
    Forward,
    Output,
    Postrouting,
    Egress,
}

impl Hook {
    /// As `--chain` spells it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Hook::Ingress => "ingress",
            Hook::Prerouting => "prerouting",
            Hook::Input => "input",
            Hook::Forward => "forward",
            Hook::Output => "output",
            Hook::Postrouting => "postrouting",
            Hook::Egress => "egress",
        }
    }
}

/// A chain that packets enter by themselves.
#[derive(Clone, Debug)]
pub(crate) struct Base {
    pub(crate) hook: Hook,
    pub(crate) priority: i32,
    /// Key in [`Rules::chains`].
    pub(crate) chain: String,
    /// For messages.
    pub(crate) name: String,
    /// For the head of the policy.
    pub(crate) short: String,
    /// Whether packets that no rule decides are dropped.
    pub(crate) drops: bool,
    /// Packets that the chain sees.
    pub(crate) covers: Vec<Condition>,
    pub(crate) line: u32,
}

/// What a file of chains says.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    pub(crate) chains: Chains,
    pub(crate) bases: Vec<Base>,
    pub(crate) nat: NatChains,
    /// Packets of the families that the file is about.
    pub(crate) covers: Vec<Condition>,
}

/// Makes one list of decisions of the chains that received packets pass.
pub(crate) fn assemble(rules: Rules, state: &mut State, source: &str) -> Result<Draft, Error> {
    let is_empty = |base: &Base| {
        let chain = rules.chains.get(&base.chain);
        !base.drops && chain.is_none_or(|chain| chain.rules.is_empty())
    };
    let mut bases: Vec<&Base> = rules.bases.iter().filter(|base| !is_empty(base)).collect();
    bases.sort_by_key(|base| base.priority);
    let with = |hook: Hook| bases.iter().any(|base| base.hook == hook);
    let chosen: Vec<Hook> = match state.options.chain.as_deref() {
        Some(name) => [Hook::Input, Hook::Forward]
            .into_iter()
            .filter(|hook| hook.name() == name)
            .collect(),
        None => [Hook::Input, Hook::Forward]
            .into_iter()
            .filter(|&hook| with(hook))
            .collect(),
    };
    if chosen.len() > 1 && state.options.local.is_empty() {
        return Err(Error::TwoPaths);
    }
    let mut head = vec![format!("made by `weir import` from {source}")];
    let translations = rules.nat.translations(state);
    let mut translations = Translations::of(&translations, state);
    let mut decisions: Vec<Decision> = Vec::new();
    let mut rest: Vec<Condition> = Vec::new();
    let mut judged: Vec<Hook> = vec![Hook::Ingress, Hook::Prerouting];
    judged.extend(&chosen);
    let early = bases.iter().filter(|base| base.hook <= Hook::Prerouting);
    let mut stages: Vec<(&Base, Vec<Condition>)> =
        early.map(|&base| (base, base.covers.clone())).collect();
    for &hook in &chosen {
        for &base in bases.iter().filter(|base| base.hook == hook) {
            let mut covers = base.covers.clone();
            if chosen.len() > 1 {
                let half = state.for_host(hook == Hook::Input);
                covers = product(&covers, &half).unwrap_or_default();
            }
            stages.push((base, covers));
        }
    }
    // A packet passes if no chain drops it, so their order makes no difference; one that drops by default is written last. It does to what counts
    // packets or fills sets.
    let in_order = stages.is_sorted_by_key(|(base, _)| base.drops);
    stages.sort_by_key(|(base, _)| base.drops);
    for (at, (base, covers)) in stages.iter().enumerate() {
        let mut found = flatten(&rules, base, covers, state);
        if !in_order {
            found = without_memory(found, state);
        }
        if base.hook == Hook::Forward {
            found = without_ttl(found, state);
            for decision in &mut found {
                decision.when = decision.when.iter().map(before_forwarding).collect();
            }
        }
        // No other chain judges the packets of this one.
        let later = stages.get(at + 1..).unwrap_or_default();
        let mut later = later.iter().flat_map(|(_, covers)| covers);
        let is_last = later.all(|other| covers.iter().all(|one| one.and(other).is_none()));
        if !is_last {
            if base.drops {
                refuse_policy(base, state);
            }
            found = in_series_of(found, state);
        }
        let translated = base.hook > Hook::Prerouting || base.priority > NAT;
        let mut accepted: Vec<Condition> = Vec::new();
        for mut decision in found {
            if let Err(reason) = answers_are_said(&decision, translated, &accepted) {
                let effect = effect_of(decision.verdict);
                let finding = Finding::new(decision.line, &decision.text, reason, effect);
                state.findings.push(finding);
                if !translated {
                    continue;
                }
            }
            if decision.verdict == Verdict::Accept && decision.limited.is_none() {
                accepted.extend(decision.when.iter().cloned());
            }
            if translated && translations.has_destinations() && by_destination(&decision, state) {
                let reason = "it counts or tests destinations as they were translated, and rules of weir see them as received";
                let effect = effect_of(decision.verdict);
                let finding = Finding::new(decision.line, &decision.text, reason, effect);
                state.findings.push(finding);
                continue;
            }
            if translated {
                // Filters see destinations as they were translated, rules of weir as they were received.
                match translations.before(&decision.when) {
                    Ok(when) => decision.when = when,
                    Err(reason) => {
                        let effect = effect_of(decision.verdict);
                        let finding = Finding::new(decision.line, &decision.text, reason, effect);
                        state.findings.push(finding);
                        continue;
                    }
                }
            }
            decisions.push(decision);
        }
        if is_last && base.drops {
            match translations.before(covers) {
                Ok(covers) if translated => rest.extend(covers),
                Err(_) if translated => refuse_policy(base, state),
                _ => rest.extend(covers.iter().cloned()),
            }
        }
        head.push(format!(
            "chain {}: {}",
            base.short,
            if base.drops {
                "drops what no rule accepts"
            } else {
                "accepts what no rule drops"
            }
        ));
    }
    for base in &bases {
        if judged.contains(&base.hook) {
            continue;
        }
        elsewhere(&rules, base, state);
    }
    let ready = translations.rules(state);
    let tracked = match &rules.covers[..] {
        [] => vec![Condition::of(Field::EthType, crate::condition::ip()).unwrap_or_default()],
        covers => covers.to_vec(),
    };
    Ok(Draft {
        head,
        decisions,
        rest,
        ready,
        tracked,
    })
}

/// The kernel takes one off TTL and hop limit in front of the chains for forwarded packets; what would become 0 is not forwarded.
fn before_forwarding(condition: &Condition) -> Condition {
    let mut out = condition.clone();
    for field in [Field::Ttl, Field::HopLimit] {
        if let Some(values) = out.has.get_mut(&field) {
            let received = values.intervals().iter().map(|&(low, high)| {
                let low = if low == 0 { 0 } else { low + 1 };
                (low, (high + 1).min(255))
            });
            *values = Numbers::new(received.collect());
        }
    }
    out
}

/// Whether a decision about translated destinations can be said: of packets that open connections, if the rest is accepted before.
fn answers_are_said(
    decision: &Decision,
    translated: bool,
    accepted: &[Condition],
) -> Result<(), &'static str> {
    let mut asking = decision.when.iter().filter(|one| nat::asks(one)).peekable();
    if asking.peek().is_none() {
        return Ok(());
    }
    if !translated {
        return Err("whether a destination was translated is not known before it is");
    }
    let known = [CT_ESTABLISHED, CT_RELATED].map(|one| (one, one)).to_vec();
    let mut answers = asking.filter_map(|one| {
        let mut one = one.clone();
        let values = one.has.remove(&Field::Translated)?;
        // Where packets must not be translated, nothing is left out.
        (values == Numbers::one(1)).then_some(())?;
        narrowed(&one, Field::CtState, Numbers::new(known.clone()))
    });
    let said = |answer: Condition| accepted.iter().any(|one| one.covers(&answer));
    match answers.all(said) {
        true => Ok(()),
        false => Err(
            "it is about all packets of connections whose destination was translated; weir takes those to the destination as it was",
        ),
    }
}

fn effect_of(verdict: Verdict) -> Effect {
    match verdict {
        Verdict::Accept => Effect::Narrower,
        Verdict::Drop => Effect::Wider,
        Verdict::Log => Effect::NotLogged,
        Verdict::Change => Effect::NotAdded,
        Verdict::Write => Effect::NoChange,
    }
}

fn flatten(rules: &Rules, base: &Base, covers: &[Condition], state: &mut State) -> Vec<Decision> {
    let mut flat = Flatten::new(&rules.chains);
    // The chain is there: its base names it.
    let _ = flat.chain(&base.chain, covers.to_vec(), 0);
    for refused in flat.refused {
        let known = (state.findings.iter())
            .any(|finding| finding.line == refused.line && finding.reason == refused.reason);
        if !known {
            state.findings.push(Finding::new(
                refused.line,
                &refused.text,
                refused.reason,
                Effect::Either,
            ));
        }
    }
    flat.decisions
}

/// Whether a limit or a set that packets fill looks at destinations.
fn by_destination(decision: &Decision, state: &State) -> bool {
    let per = decision.limited.as_ref().map(|limited| limited.limit.per);
    let counts = matches!(per, Some(Per::Destination(..) | Per::Pair));
    let changes =
        |change: &Change| matches!(change.field, "ip-daddr" | "ip6-daddr" | "destination");
    let tests = |field: &Field| {
        let tested = field
            .membership()
            .and_then(|number| state.names.dynamic.tested(number));
        tested.is_some_and(|(_, address)| matches!(address, Field::Daddr4 | Field::Daddr6))
    };
    counts
        || decision.change.as_ref().is_some_and(changes)
        || decision.when.iter().any(|when| when.has.keys().any(tests))
}

/// Leaves out limits and changes of sets.
fn without_memory(found: Vec<Decision>, state: &mut State) -> Vec<Decision> {
    let (without, with): (Vec<Decision>, Vec<Decision>) = (found.into_iter())
        .partition(|one| one.limited.is_none() && one.change.is_none() && one.write.is_none());
    for one in with {
        let reason = "a chain that drops by default comes in front of this one: which packets are counted or written here cannot be said";
        let effect = effect_of(one.verdict);
        (state.findings).push(Finding::new(one.line, &one.text, reason, effect));
    }
    without
}

/// Leaves out what writes a TTL in a chain for forwarded packets: weir comes in front of the kernel, which decrements what it wrote.
fn without_ttl(found: Vec<Decision>, state: &mut State) -> Vec<Decision> {
    let writes = |one: &Decision| {
        let field = one.write.as_ref().and_then(|write| write.field);
        matches!(field, Some(Field::Ttl | Field::HopLimit))
    };
    let (with, without): (Vec<Decision>, Vec<Decision>) = found.into_iter().partition(writes);
    for one in with {
        let reason = "the kernel decrements the TTL before this chain, and behind weir";
        let finding = Finding::new(one.line, &one.text, reason, Effect::NoChange);
        state.findings.push(finding);
    }
    without
}

fn in_series_of(found: Vec<Decision>, state: &mut State) -> Vec<Decision> {
    let mut refused = Vec::new();
    let out = in_series(found, &mut refused);
    for one in refused {
        state
            .findings
            .push(Finding::new(one.line, &one.text, one.reason, Effect::Wider));
    }
    out
}

fn refuse_policy(base: &Base, state: &mut State) {
    state.findings.push(Finding::new(
        base.line,
        &format!("policy drop of {}", base.name),
        "only the last chain of a path may drop by default",
        Effect::Wider,
    ));
}

/// Names the rules of a chain that received packets do not pass.
fn elsewhere(rules: &Rules, base: &Base, state: &mut State) {
    let of_path = matches!(base.hook, Hook::Input | Hook::Forward);
    let effect = match of_path {
        true => Effect::AsOthers,
        false => Effect::Elsewhere,
    };
    let reason = match base.hook {
        Hook::Input | Hook::Forward => {
            format!(
                "the policy is not for chain {}; give `--chain {}` for one that is",
                base.short,
                base.hook.name()
            )
        }
        _ => format!("packets that are received do not pass chain {}", base.short),
    };
    if base.drops {
        let text = format!("policy drop of {}", base.name);
        state
            .findings
            .push(Finding::new(base.line, &text, reason.as_str(), effect));
    }
    for rule in rules
        .chains
        .get(&base.chain)
        .into_iter()
        .flat_map(|chain| &chain.rules)
    {
        state
            .findings
            .push(Finding::new(rule.line, &rule.text, reason.as_str(), effect));
    }
}
