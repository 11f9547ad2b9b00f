//! Targets that change nothing, or not what they seem to.

use super::solve::{Demand, made, satisfiable};
use super::view::{Seen, View};
use crate::ast::{self, Action};
use crate::diagnostic::Report;
use crate::field::{Field, Kind};
use crate::model::{Classes, Match, Subject, Target, Test};

pub(super) fn judge(view: &View<'_>, report: &mut Report) {
    for seen in &view.rules {
        options(view, seen, report);
        fields(view, seen, report);
    }
}

/// Changes of options that are not there, and additions that do not fit.
fn options(view: &View<'_>, seen: &Seen<'_>, report: &mut Report) {
    let meets = |one: &Match| {
        let mut all = seen.demands.clone();
        all.extend([Demand::Has(Classes::TCP), Demand::Holds(one)]);
        satisfiable(&all, view.known)
    };
    let mut stripped = false;
    for target in &seen.written.targets {
        let (keyword, reference) = match &target.action {
            Action::Mod(reference, _) => ("mod", reference),
            Action::Add(reference, _) => ("add", reference),
            Action::Strip(false, reference) => ("strip", reference),
            Action::StripAll | Action::Strip(true, _) => {
                stripped = true;
                continue;
            }
            _ => continue,
        };
        stripped |= keyword == "strip";
        let Some(kind) = kind_of(seen, reference, target) else {
            continue;
        };
        let name = reference.field.info().name;
        let present = |negated| Match {
            negated,
            subject: Subject {
                field: reference.field,
                option: Some(kind),
                at: 0,
            },
            test: Test::Present,
        };
        if keyword != "add" && !meets(&present(false)) {
            let help = match keyword {
                "mod" => format!("to append the option write `add {name}` and the value"),
                _ => "remove this target".to_owned(),
            };
            report
                .warning(
                    0,
                    target.span,
                    format!("this rule matches packets without the option only, so this `{keyword}` changes nothing"),
                )
                .help(help);
        }
        if keyword != "add" {
            continue;
        }
        if !stripped && !meets(&present(true)) {
            report
                .warning(
                    0,
                    target.span,
                    "the packets of this rule have this option already, and get a second one",
                )
                .help(format!(
                    "to change the one that is there write `mod {name}` and the value"
                ));
        }
        let Some(data) = made("tcp-syn", true, Test::Present) else {
            continue;
        };
        if !stripped && meets(&data) {
            report
                .warning(
                    0,
                    target.span,
                    "this adds an option to segments with data, and full ones have no room for it",
                )
                .label("what grows above the MTU is left as it is, and counted as `too_big`")
                .help("match `tcp-syn`, where options are offered; or make room: lower `tcp-opt-mss` in SYNs, too");
        }
    }
}

/// The kind of the option that a target names.
fn kind_of(seen: &Seen<'_>, reference: &ast::FieldRef, target: &ast::Target) -> Option<u8> {
    let Kind::TcpOption(named) = reference.field.info().kind else {
        return None;
    };
    if named.is_some() {
        return named;
    }
    // Of those that are given by number the lowered target knows it; they come in the same order.
    let is_like =
        |action: &Action| std::mem::discriminant(action) == std::mem::discriminant(&target.action);
    let is_option = |action: &Action| match action {
        Action::Mod(reference, _) | Action::Add(reference, _) => {
            matches!(reference.field.info().kind, Kind::TcpOption(_))
        }
        _ => false,
    };
    let nth = (seen.written.targets.iter())
        .filter(|other| is_like(&other.action) && is_option(&other.action))
        .position(|other| other.span == target.span)?;
    let kinds = seen
        .rule
        .targets
        .iter()
        .filter_map(|lowered| match (lowered, &target.action) {
            (Target::SetOption { kind, .. }, Action::Mod(..))
            | (Target::AddOption { kind, .. }, Action::Add(..)) => Some(*kind),
            _ => None,
        });
    kinds.into_iter().nth(nth)
}

/// Fields that are written twice, or with what they hold.
fn fields(view: &View<'_>, seen: &Seen<'_>, report: &mut Report) {
    let mut written: Vec<(Field, crate::ast::Span)> = Vec::new();
    for target in &seen.written.targets {
        let Action::Mod(reference, value) = &target.action else {
            continue;
        };
        let field = reference.field;
        if !matches!(
            field.info().kind,
            Kind::Number | Kind::Addr4 | Kind::Addr6 | Kind::Is(_)
        ) {
            continue;
        }
        if let Some(&(_, first)) = written.iter().find(|(other, _)| *other == field) {
            report
                .warning(
                    0,
                    first,
                    format!("`{}` is written again behind this", field.info().name),
                )
                .also(0, target.span, "this one counts")
                .help("remove one of them");
        }
        written.push((field, target.span));
        let set = seen.rule.targets.iter().find_map(|lowered| match lowered {
            Target::Set { field: of, value } if *of == field => Some(*value),
            _ => None,
        });
        let names_it = seen
            .rule
            .matches
            .iter()
            .any(|one| one.subject.field == field);
        let (Some(set), true, Some(_)) = (set, names_it, value) else {
            continue;
        };
        let Some(same) = super::solve::among(field.info().name, [set]) else {
            continue;
        };
        if matches!(field.info().kind, Kind::Is(_)) {
            continue;
        }
        let mut all = seen.demands.clone();
        all.push(Demand::Fails(&same));
        if !satisfiable(&all, view.known) {
            report
                .warning(
                    0,
                    target.span,
                    "the packets of this rule have this value already, so this changes nothing",
                )
                .help("remove this target, or write another value");
        }
    }
}
