//! `weir import`: a rule set of another firewall as a policy; `weir export`: the other way.

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;
use weir_import::{Finding, Options, export_nft, import};

use super::policy::count;
use crate::args::import::{ExportArgs, ImportArgs};
use crate::failure::Failure;
use crate::output;

/// Longest file that is read, in bytes.
const MAX_BYTES: u64 = 16 << 20;

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'a> {
    format: &'a str,
    rules: usize,
    findings: Vec<Line<'a>>,
    /// The policy or the rule set, unless it went to a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
}

/// A line that is not translated as it stands.
#[derive(Serialize)]
struct Line<'a> {
    line: u32,
    text: &'a str,
    reason: &'a str,
    effect: &'a str,
}

pub(crate) fn run(args: &ImportArgs) -> Result<ExitCode, Failure> {
    let (name, text) = read(&args.file)?;
    let options = Options {
        chain: args.chain.clone(),
        local: args.local.clone(),
        mtu: args.mtu,
        routes: args.route.clone(),
    };
    let source = format!("{} ({})", name, args.format.name());
    let made = import(args.format, &text, &source, &options)
        .map_err(|error| Failure::usage(format!("{name}: {error}")))?;
    tell(&Told {
        name: &name,
        format: args.format.name(),
        text: &made.policy,
        rules: made.rules,
        findings: &made.findings,
        output: args.output.as_deref(),
        strict: args.strict,
        json: args.json,
    })
}

pub(crate) fn export(args: &ExportArgs) -> Result<ExitCode, Failure> {
    let parsed = super::policy::read(&args.policy)?;
    let made = export_nft(&parsed.policy, &args.interface);
    tell(&Told {
        name: &args.policy.display().to_string(),
        format: &args.format,
        text: &made.ruleset,
        rules: made.rules,
        findings: &made.findings,
        output: args.output.as_deref(),
        strict: args.strict,
        json: args.json,
    })
}

/// What was translated, and how it is shown.
struct Told<'a> {
    name: &'a str,
    format: &'a str,
    text: &'a str,
    rules: usize,
    findings: &'a [Finding],
    output: Option<&'a Path>,
    strict: bool,
    json: bool,
}

fn tell(told: &Told<'_>) -> Result<ExitCode, Failure> {
    if let Some(path) = told.output {
        std::fs::write(path, told.text)
            .map_err(|e| Failure::failed(format!("cannot write {}: {e}", path.display())))?;
    }
    let shown = told.output.is_none().then_some(told.text);
    if told.json {
        output::json(&Document {
            format: told.format,
            rules: told.rules,
            findings: told.findings.iter().map(line).collect(),
            text: shown,
        })?;
    } else {
        if let Some(text) = shown {
            output::out(text)?;
        }
        for finding in told.findings {
            output::complain(&format!(
                "{}:{}: {}",
                told.name,
                finding.line,
                finding.words()
            ));
        }
        let lines: std::collections::BTreeSet<u32> =
            told.findings.iter().map(|finding| finding.line).collect();
        if !lines.is_empty() {
            output::complain(&format!(
                "{}; {} not translated as they stand",
                count(told.rules, "rule"),
                count(lines.len(), "line")
            ));
        }
    }
    Ok(match told.strict && !told.findings.is_empty() {
        true => ExitCode::from(1),
        false => ExitCode::SUCCESS,
    })
}

fn line(finding: &Finding) -> Line<'_> {
    Line {
        line: finding.line,
        text: &finding.text,
        reason: &finding.reason,
        effect: finding.effect.name(),
    }
}

/// Name and text of the file.
fn read(path: &Path) -> Result<(String, String), Failure> {
    let from_stdin = path == Path::new("-");
    let name = match from_stdin {
        true => "<stdin>".to_owned(),
        false => path.display().to_string(),
    };
    let failed = |e: std::io::Error| Failure::usage(format!("cannot read {name}: {e}"));
    let mut bytes = Vec::new();
    let limit = MAX_BYTES + 1;
    match from_stdin {
        true => std::io::stdin().take(limit).read_to_end(&mut bytes),
        false => {
            std::fs::File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes))
        }
    }
    .map_err(failed)?;
    let text = String::from_utf8(bytes)
        .map_err(|_| Failure::usage(format!("{name} is not text in UTF-8")))?;
    Ok((name, text))
}
