//! Stateful rules: which of them open connections, whose answers get through, and settings of protocols that no rule opens.

use super::solve::{Demand, among, made, satisfiable};
use super::view::{Seen, View};
use crate::ast::{self, Action, SettingKind, Span};
use crate::diagnostic::Report;
use crate::field::{Field, Kind};
use crate::model::{Classes, Match, Policy, Rule, Subject, Target, Test};

/// A protocol that has connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opens {
    Tcp,
    Udp,
    Icmp,
    /// Everything else, by the two addresses.
    Other,
}

/// Tests of states that no packet has, because nothing opens connections.
pub(super) fn states(policy: &Policy, written: &[&ast::Rule], report: &mut Report) {
    if policy.rules.iter().any(|rule| rule.stateful) {
        return;
    }
    let tests = written.iter().flat_map(|rule| &rule.matches);
    for one in tests.filter(|one| one.field.field.info().kind == Kind::CtState) {
        report
            .warning(
                0,
                one.span,
                "no rule opens connections, so no packet has a state",
            )
            .help("write `add-stateful` in front of the rules whose packets may open connections");
    }
    let limits = written.iter().flat_map(|rule| &rule.targets);
    for one in limits.filter(|one| matches!(one.action, Action::DropConnections(..))) {
        report
            .warning(
                0,
                one.span,
                "no rule opens connections, so this limit has none to count",
            )
            .help("write `add-stateful` in front of the rules whose packets may open connections");
    }
}

/// Kinds of packets that open connections: docs/semantics.md section 7.
fn openers() -> Vec<(Opens, Classes, Vec<Match>)> {
    let not = |name| made(name, true, Test::Present);
    let icmp = |name, types: &[u128]| among(name, types.iter().copied());
    let all = [
        (
            Opens::Tcp,
            Classes::TCP,
            vec![not("tcp-rst"), not("tcp-fin"), not("tcp-syn")],
        ),
        (
            Opens::Tcp,
            Classes::TCP,
            vec![not("tcp-rst"), not("tcp-fin"), not("tcp-ack")],
        ),
        (Opens::Udp, Classes::UDP, vec![]),
        (
            Opens::Icmp,
            Classes::ICMP,
            vec![icmp("icmp-type", &[8, 13])],
        ),
        (
            Opens::Icmp,
            Classes::ICMP6,
            vec![icmp("icmp6-type", &[128])],
        ),
        (
            Opens::Other,
            Classes::NONE,
            vec![
                made("net-proto", false, Test::Present),
                not("frag-later"),
                not("tcp-sport"),
                not("udp-sport"),
                not("icmp-type"),
                not("icmp6-type"),
            ],
        ),
    ];
    all.into_iter()
        .map(|(opens, class, tests)| (opens, class, tests.into_iter().flatten().collect()))
        .collect()
}

/// Protocols of which a rule opens connections.
fn opened(rule: &Rule, demands: &[Demand<'_>], known: super::solve::Known) -> Vec<Opens> {
    if !rule.stateful {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (opens, class, tests) in openers() {
        let mut all = demands.to_vec();
        all.push(Demand::Has(class));
        all.extend(tests.iter().map(Demand::Holds));
        if !found.contains(&opens) && satisfiable(&all, known) {
            found.push(opens);
        }
    }
    found
}

pub(super) fn judge(view: &View<'_>, file: &ast::File, report: &mut Report) {
    if !view.known.stateful {
        return;
    }
    let mut all = Vec::new();
    view.dead.iter().for_each(|seen| flags(seen, report));
    for seen in &view.rules {
        if !seen.rule.stateful {
            continue;
        }
        let opens = opened(seen.rule, &seen.demands, view.known);
        if opens.is_empty() {
            let keyword = seen.written.stateful.unwrap_or(seen.written.span);
            report
                .warning(0, keyword, "this rule never opens a connection")
                .help("ICMP errors and answers, TCP with RST or with SYN and ACK, and later fragments open none; a rule for these has no `add-stateful`");
            continue;
        }
        all.extend(opens);
        dropped(view, seen, report);
    }
    if !all.is_empty() {
        settings(file, &all, report);
    }
}

/// Flags that are dropped before rules see them.
fn flags(seen: &Seen<'_>, report: &mut Report) {
    let is_flag = |field: Field| {
        let name = field.info().name;
        name.starts_with("tcp-") && matches!(field.info().kind, Kind::Is(_)) || name == "tcp-flags"
    };
    let mut named = seen
        .written
        .matches
        .iter()
        .filter(|one| is_flag(one.field.field));
    let Some(first) = named.next() else {
        return;
    };
    let place = named
        .next_back()
        .map_or(first.span, |last| first.span.to(last.span));
    if !satisfiable(&seen.demands, super::solve::Known::PARSED) {
        return;
    }
    report
        .warning(
            0,
            place,
            "no stack sends these flags together, so this rule never matches",
        )
        .label("a policy with stateful rules drops them before")
        .help("remove the rule: such packets are counted as `tcp_flags`");
}

/// Connections that a drop without `accept` keeps from opening, or whose answers it takes.
fn dropped(view: &View<'_>, seen: &Seen<'_>, report: &mut Report) {
    let drops_itself = |target: &Target| matches!(target, Target::Drop(_));
    if seen.accepts() || seen.rule.targets.iter().any(drops_itself) {
        return;
    }
    let translates = |action: &Action| matches!(action, Action::Map(..) | Action::Shuffle(_));
    let place = seen.place(translates);
    let accepts = || view.all_accepts();
    if let Some(by) = view.wide_drops().find(|by| view.covers(by, &seen.demands))
        && !accepts().any(|by| view.meet(&[seen, by], &[]))
    {
        report
            .warning(
                0,
                place,
                format!(
                    "this rule opens no connection: {} drops all of its packets",
                    by.called()
                ),
            )
            .also(0, by.drop_place(), "dropped here, and nothing accepts them")
            .help(
                "end the rule with `accept`, which counts for both directions of its connections",
            );
        return;
    }
    let is_all = |by: &&Seen<'_>| by.rule.matches.iter().all(|one| one.test == Test::Always);
    let Some(by) = view.wide_drops().find(is_all) else {
        return;
    };
    let answers = answers(seen.rule);
    let demands: Vec<Demand<'_>> = [Demand::Has(seen.rule.requires)]
        .into_iter()
        .chain(answers.iter().map(Demand::Holds))
        .collect();
    // Another stateful rule that the connection may have accepts its answers.
    let has_other = accepts().any(|by| by.rule.stateful && view.meet(&[seen, by], &[]));
    let lets_in = || accepts().any(|by| view.meet(&[by], &demands));
    if !has_other && !lets_in() {
        report
            .warning(
                0,
                place,
                format!("answers do not come back: {} drops them", by.called()),
            )
            .also(0, by.drop_place(), "dropped here, and nothing accepts them")
            .help(
                "end the rule with `accept`, which counts for both directions of its connections",
            );
    }
}

/// What answers to the packets of a rule look like, as far as its matches and pools say.
fn answers(rule: &Rule) -> Vec<Match> {
    const ENDS: &[(&str, &str)] = &[
        ("ip-saddr", "ip-daddr"),
        ("ip6-saddr", "ip6-daddr"),
        ("tcp-sport", "tcp-dport"),
        ("udp-sport", "udp-dport"),
    ];
    let other = |field: Field| {
        let name = field.info().name;
        ENDS.iter().find_map(|&(a, b)| match name {
            _ if name == a => Field::find(b),
            _ if name == b => Field::find(a),
            _ => None,
        })
    };
    let chosen = |field: Field| {
        rule.targets.iter().find_map(|target| match target {
            Target::Map { field: of, pool } if *of == field => Some(Some(pool)),
            Target::Shuffle { field: of } if *of == field => Some(None),
            _ => None,
        })
    };
    let made = |field: Field, negated: bool, test: Test| Match {
        negated,
        subject: Subject {
            field,
            option: None,
            at: 0,
        },
        test,
    };
    let kept = rule.matches.iter().filter_map(|one| {
        let field = one.subject.field;
        let to = other(field)?;
        chosen(field)
            .is_none()
            .then(|| made(to, one.negated, one.test.clone()))
    });
    let pools = rule.targets.iter().filter_map(|target| match target {
        Target::Map { field, pool } => Some(made(other(*field)?, false, Test::In(pool.clone()))),
        _ => None,
    });
    kept.chain(pools).collect()
}

/// Lines about protocols of which no rule opens connections.
fn settings(file: &ast::File, opened: &[Opens], report: &mut Report) {
    for item in &file.items {
        let ast::Item::Setting(setting) = item else {
            continue;
        };
        let opens = match setting.what {
            SettingKind::LooseTcp => Some(Opens::Tcp),
            SettingKind::Timeout(state, _) => of_state(file, state),
            SettingKind::Connections(_)
            | SettingKind::MinPmtu(_)
            | SettingKind::Limits(_)
            | SettingKind::Timezone(_) => None,
        };
        let Some(opens) = opens.filter(|opens| !opened.contains(opens)) else {
            continue;
        };
        let protocol = match opens {
            Opens::Tcp => "TCP",
            Opens::Udp => "UDP",
            Opens::Icmp => "ICMP",
            Opens::Other => "other",
        };
        report
            .warning(
                0,
                setting.span,
                format!("no rule opens {protocol} connections, so this changes nothing"),
            )
            .help("remove this line");
    }
}

fn of_state(file: &ast::File, state: Span) -> Option<Opens> {
    let state = state.of(&file.text).to_ascii_lowercase();
    match state.split('-').next() {
        Some("tcp") => Some(Opens::Tcp),
        Some("udp") => Some(Opens::Udp),
        Some("icmp") => Some(Opens::Icmp),
        Some("generic") => Some(Opens::Other),
        _ => None,
    }
}
