//! `weir check`: reads files of all kinds and plans them, so that what passes here runs.

use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;
use weir_functions::middlebox::dynamic::SetsError;
use weir_functions::middlebox::{self, PlanError};
use weir_network::model::Document;
use weir_policy::model::Place;
use weir_policy::{Diagnostic, Diagnostics, Parsed, PolicyError, parse_file};
use weir_runtime::networks::Record;
use weir_runtime::{Kind, RuntimeError};

use super::policy::{count, ports_named};
use crate::args::CheckArgs;
use crate::failure::Failure;
use crate::output;

#[derive(Serialize)]
struct Report {
    ok: bool,
    policies: Vec<PolicyReport>,
}

#[derive(Serialize)]
struct PolicyReport {
    policy: String,
    /// `policy`, `configuration`, `networks`.
    kind: &'static str,
    ok: bool,
    rules: usize,
    diagnostics: Vec<Found>,
    /// What it declares, in words.
    #[serde(skip)]
    declares: String,
}

#[derive(Serialize)]
struct Found {
    severity: &'static str,
    file: String,
    line: u32,
    column: u32,
    message: String,
    help: Option<String>,
}

pub(crate) fn run(args: &CheckArgs) -> Result<ExitCode, Failure> {
    let mut report = Report {
        ok: true,
        policies: Vec::new(),
    };
    for path in &args.policies {
        let name = path.display().to_string();
        let kind = Kind::of(path);
        let mut one = PolicyReport {
            policy: name.clone(),
            kind: match kind {
                Kind::Policy => "policy",
                Kind::Configuration => "configuration",
                Kind::Networks => "networks",
            },
            ok: true,
            rules: 0,
            diagnostics: Vec::new(),
            declares: String::new(),
        };
        if kind != Kind::Policy {
            if let Err(error) = declared(&mut one, path, kind, args.json) {
                one.ok = false;
                match &error {
                    RuntimeError::Mistakes { found, .. } => take(&mut one, found, args.json),
                    _ => say(&mut one, args.json, "error", 0, &error.to_string()),
                }
            }
            end(&mut report, one, args.json)?;
            continue;
        }
        match parse_file(path) {
            Ok(parsed) => {
                one.rules = parsed.policy.rules.len();
                take(&mut one, &parsed.warnings, args.json);
                // Whether `out` is known is a matter of the hook, not of the policy.
                match middlebox::plan(&parsed.policy, &ports_named(&parsed.policy)) {
                    Ok(_) => {}
                    Err(error) => {
                        let is_hint = matches!(error, PlanError::OutUnknown { .. });
                        one.ok = is_hint;
                        match planned(&error, &parsed, &name, is_hint) {
                            Some(found) => take(&mut one, &found, args.json),
                            None => say(&mut one, args.json, "error", 0, &error.to_string()),
                        }
                    }
                }
            }
            Err(PolicyError::Invalid(diagnostics)) => {
                one.ok = false;
                take(&mut one, &diagnostics, args.json);
            }
            Err(error) => {
                one.ok = false;
                // The message names the file.
                let message = error.to_string();
                if !args.json {
                    output::tell(&format!("error: {message}\n"));
                }
                note(&mut one, "error", 0, message);
            }
        }
        one.declares = count(one.rules, "rule");
        end(&mut report, one, args.json)?;
    }
    if args.json {
        output::json(&report)?;
    }
    Ok(if report.ok {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(2)
    })
}

/// Says how a file fared.
fn end(report: &mut Report, one: PolicyReport, json: bool) -> Result<(), Failure> {
    if !json {
        let errors = one
            .diagnostics
            .iter()
            .filter(|d| d.severity == "error")
            .count();
        let warnings = one.diagnostics.len() - errors;
        let verdict = match one.ok {
            true => format!("ok, {}", one.declares),
            false => count(errors, "error"),
        };
        let rest = match warnings {
            0 => String::new(),
            some => format!(", {}", count(some, "warning")),
        };
        output::out(&format!("{}: {verdict}{rest}\n", one.policy))?;
    }
    report.ok &= one.ok;
    report.policies.push(one);
    Ok(())
}

/// Checks a configuration, and the document that it names; or a document of networks, for all of its edges.
fn declared(
    one: &mut PolicyReport,
    path: &Path,
    kind: Kind,
    json: bool,
) -> Result<(), RuntimeError> {
    if kind == Kind::Networks {
        let (networks, warnings) = Record::of_file(path)?.check()?;
        take(one, &warnings, json);
        one.declares = networks_text(&networks.document);
        return Ok(());
    }
    let planned = weir_runtime::plan(path, None)?;
    for warnings in &planned.warnings {
        take(one, warnings, json);
    }
    for note in &planned.notes {
        say(one, json, "warning", 0, note);
    }
    let mut parts = Vec::new();
    if let Some(part) = &planned.graph {
        parts.push(count(part.plan.ports.len(), "port"));
        parts.push(count(part.plan.configured().count(), "function"));
    }
    if let Some(part) = &planned.networks {
        parts.push(networks_text(&part.checked.document));
    }
    one.declares = parts.join(", ");
    Ok(())
}

fn networks_text(document: &Document) -> String {
    let networks = document.networks.iter();
    let workloads: usize = networks.map(|one| one.workloads.len()).sum();
    format!(
        "version {}, {}, {}, {}, {}",
        document.version,
        count(document.edges.len(), "edge"),
        count(document.tenants.len(), "tenant"),
        count(document.networks.len(), "network"),
        count(workloads, "workload"),
    )
}

/// What cannot be planned, at its place in the policy; `None`: it has none.
fn planned(error: &PlanError, parsed: &Parsed, name: &str, is_hint: bool) -> Option<Diagnostics> {
    let at = place_of(error)?;
    let found = parsed.policy.rules.iter().zip(parsed.written());
    let mut found = found.filter(|(rule, _)| rule.place() == *at);
    let (_, rule) = found.next()?;
    let mut matches = rule.matches.iter();
    let out = matches.find(|one| is_hint && one.field.field.info().name == "out");
    let place = out.map_or(rule.span, |one| one.span);
    let text = error.to_string();
    let text = text.strip_prefix(&format!("{at}: ")).unwrap_or(&text);
    // What to do stands behind the reason.
    let (message, help) = text.split_once("; ").unwrap_or((text, ""));
    let mut report = weir_policy::Report::default();
    let draft = match is_hint {
        true => report.warning(0, place, message),
        false => report.error(0, place, message),
    };
    if !help.is_empty() {
        draft.help(help);
    }
    let (errors, warnings) = parsed.finish(name, report);
    Some(if is_hint { warnings } else { errors })
}

fn take(report: &mut PolicyReport, diagnostics: &Diagnostics, json: bool) {
    if !json {
        output::tell(&diagnostics.render(output::stderr_has_color()));
    }
    report
        .diagnostics
        .extend(diagnostics.iter().map(|d: &Diagnostic| Found {
            severity: d.severity.text(),
            file: d.file.clone(),
            line: d.line,
            column: d.column,
            message: d.message.clone(),
            help: d.help.clone(),
        }));
}

fn say(report: &mut PolicyReport, json: bool, severity: &'static str, line: u32, message: &str) {
    if !json {
        output::tell(&format!("{severity}: {}: {message}\n", report.policy));
    }
    note(report, severity, line, message.to_owned());
}

fn note(report: &mut PolicyReport, severity: &'static str, line: u32, message: String) {
    report.diagnostics.push(Found {
        severity,
        file: report.policy.clone(),
        line,
        column: 0,
        message,
        help: None,
    });
}

fn place_of(error: &PlanError) -> Option<&Place> {
    match error {
        PlanError::OutUnknown { at }
        | PlanError::MetaUnknown { at, .. }
        | PlanError::TooManyOptionKinds { at, .. }
        | PlanError::ScatteredPool { at, .. }
        | PlanError::TwoDrops { at }
        | PlanError::Sets(SetsError::TooManySets { at, .. } | SetsError::TooManyTests { at, .. }) => {
            Some(at)
        }
        PlanError::TooManyHits { .. }
        | PlanError::TooManyStateful { .. }
        | PlanError::Limits(_)
        | PlanError::Classify(_) => None,
    }
}
