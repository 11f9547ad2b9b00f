//! `weir import`: a rule set of another firewall as a policy.

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;
use weir_import::{Finding, Options, import};

use super::policy::count;
use crate::args::import::ImportArgs;
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
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<&'a str>,
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
        routes: args.route.clone(),
    };
    let source = format!("{} ({})", name, args.format.name());
    let made = import(args.format, &text, &source, &options)
        .map_err(|error| Failure::usage(format!("{name}: {error}")))?;
    if let Some(path) = &args.output {
        std::fs::write(path, &made.policy)
            .map_err(|e| Failure::failed(format!("cannot write {}: {e}", path.display())))?;
    }
    if args.json {
        output::json(&Document {
            format: args.format.name(),
            rules: made.rules,
            findings: made.findings.iter().map(line).collect(),
            policy: args.output.is_none().then_some(made.policy.as_str()),
        })?;
    } else {
        if args.output.is_none() {
            output::out(&made.policy)?;
        }
        for finding in &made.findings {
            output::complain(&format!("{name}:{}: {}", finding.line, finding.words()));
        }
        let lines: std::collections::BTreeSet<u32> =
            made.findings.iter().map(|finding| finding.line).collect();
        if !lines.is_empty() {
            output::complain(&format!(
                "{}; {} not translated as they stand",
                count(made.rules, "rule"),
                count(lines.len(), "line")
            ));
        }
    }
    Ok(match args.strict && !made.findings.is_empty() {
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
