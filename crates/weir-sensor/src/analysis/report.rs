//! From a configuration and rule files to the files of an analysis.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::config::SensorConfig;
use crate::load::{Book, BookError, empty_book, kept_book};
use crate::rules::{Condition, Dialect, Expressions, Note, Rule, Source};

use super::dependencies::Bits;
use super::details::{conditions, is_first, options};
use super::engines::{leading, of_packets, of_transactions};
use super::grouping::Groups;
use super::kind::{Needs, flags, kind, requirements};
use super::lists::{Lists, decoded};
use super::names::{engine_name, written};
use super::patterns::{Lead, Patterns, lead};

/// Rules that were analyzed.
#[derive(Debug)]
pub struct Analysis {
    /// The rules, and those that were refused.
    pub book: Book,
    /// Files that were written.
    pub files: Vec<PathBuf>,
}

/// Why rules cannot be analyzed.
#[derive(Debug, thiserror::Error)]
pub enum AnalysisError {
    /// They cannot be loaded.
    #[error(transparent)]
    Load(#[from] BookError),
    /// A file cannot be written.
    #[error("cannot write {}: {error}", path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
}

/// What is written to each file.
#[derive(Default)]
struct Written {
    /// One object a line.
    rules: String,
    analysis: String,
    fast: String,
}

/// Loads rules and writes to a folder what the configuration asks for: `rules.json` and `rules_analysis.txt`, `patterns.json` and `rules_fast_pattern.txt`, `rule_group.json`.
///
/// # Errors
/// A file cannot be read or written. Broken rules are listed in the book.
pub fn analyze(
    config: &SensorConfig,
    dialect: Dialect,
    files: &[PathBuf],
    folder: &Path,
) -> Result<Analysis, AnalysisError> {
    let mut empty = empty_book(config, dialect, files)?;
    empty.settings.written = true;
    let expressions = Expressions::new(empty.settings.match_limit);
    let (mut book, kept, replaced) =
        kept_book(config, empty, files, Vec::<Rule>::new(), expressions)?;
    let rules = kept
        .into_iter()
        .zip(replaced)
        .filter(|(_, replaced)| !replaced);
    book.loaded.rules = rules.map(|(rule, _)| rule).collect();
    let lists: Vec<Lists<'_>> = book
        .loaded
        .rules
        .iter()
        .filter_map(|rule| Some(Lists::new(rule, rule.source.as_deref()?, dialect)))
        .collect();
    let mut bits = Bits::default();
    for (at, lists) in lists.iter().enumerate() {
        bits.add(at, lists);
    }
    let (mut out, mut patterns, mut groups) =
        (Written::default(), Patterns::default(), Groups::default());
    for (at, lists) in lists.iter().enumerate() {
        let needs = Needs::of(lists);
        let kind = kind(lists, needs);
        let lead = lead(lists);
        patterns.add(lists, lead.as_ref());
        groups.add(lists, kind);
        let notes = &book.loaded.notes;
        let object = object(lists, kind, needs, lead.as_ref(), bits.json(at), notes);
        out.rules += &format!("{object}\n");
        out.tell(lists, kind, lead.as_ref());
    }
    for refused in book.refused.iter().chain(&book.loaded.refused) {
        let _ = writeln!(out.analysis, "refused\n{}\n", refused.explain());
    }
    drop(lists);
    let mut all = Vec::new();
    if config.analysis.rules {
        all.push(("rules.json", out.rules));
        all.push(("rules_analysis.txt", out.analysis));
    }
    if config.analysis.patterns {
        all.push(("patterns.json", format!("{}\n", patterns.json())));
        all.push(("rules_fast_pattern.txt", out.fast));
    }
    if let Some(grouping) = &config.analysis.grouping {
        all.push(("rule_group.json", format!("{}\n", groups.json(grouping))));
    }
    let mut files = Vec::new();
    for (name, text) in all {
        let path = folder.join(name);
        if let Err(error) = std::fs::write(&path, text) {
            return Err(AnalysisError::Write { path, error });
        }
        files.push(path);
    }
    Ok(Analysis { book, files })
}

/// What becomes of options that say something else than they seem to.
fn of_options(lists: &Lists<'_>) -> Vec<&'static str> {
    let (mut within, mut distance, mut raw) = (false, false, false);
    for group in &lists.rule.groups {
        for (at, condition) in group.conditions.iter().enumerate() {
            if let Condition::Content(content) = condition
                && is_first(group, at)
            {
                within |= content.within.is_some();
                distance |= content.distance.is_some();
            }
        }
    }
    for option in lists.source.options.iter().filter(|o| o.name == "pcre") {
        let flags = option.value.rsplit('/').next().unwrap_or_default();
        raw |= flags.contains('B');
    }
    let notes = [
        (
            within,
            "'within' option for pattern w/o previous content was converted to 'depth'",
        ),
        (
            distance,
            "'distance' option for pattern w/o previous content was converted to 'offset'",
        ),
        (
            raw,
            "'/B' (rawbytes) option is a no-op and is silently ignored",
        ),
    ];
    let notes = notes.into_iter().filter(|(said, _)| *said);
    notes.map(|(_, note)| note).collect()
}

/// A rule as `rules.json` has it.
fn object(
    lists: &Lists<'_>,
    kind: &str,
    needs: Needs,
    lead: Option<&Lead<'_>>,
    dependencies: Option<Value>,
    notes: &[Note],
) -> Value {
    let (rule, source) = (lists.rule, lists.source);
    let mut out = json!({
        "raw": source.text,
        "id": rule.sid,
        "gid": rule.gid,
        "rev": rule.rev,
        "msg": rule.message,
        "app_proto": lists.app.unwrap_or("unknown"),
        "requirements": requirements(lists),
        "type": kind,
        "flags": flags(lists, needs, lead),
        "pkt_engines": of_packets(lists, lead),
        "lists": by_list(lists, lead),
    });
    let mut notes: Vec<&str> = notes
        .iter()
        .filter(|n| n.sid == rule.sid && n.place == rule.place)
        .map(|n| n.text.as_str())
        .collect();
    notes.extend(of_options(lists));
    let prefilter = || {
        let at = source.options.iter().position(|o| o.name == "prefilter")?;
        let before = lists.packet.iter().rfind(|p| **p < at)?;
        Some(json!({"buffer": "packet", "name": lists.name(*before)}))
    };
    let more = [
        ("dependencies", dependencies),
        (
            "engines",
            (lists.asks_transactions()).then(|| of_transactions(lists, lead).into()),
        ),
        ("mpm", lead.and_then(|lead| leading(lists, lead))),
        ("prefilter", prefilter().filter(|_| lead.is_none())),
        ("notes", (!notes.is_empty()).then(|| notes.into())),
    ];
    if let Value::Object(map) = &mut out {
        for (key, value) in more {
            if let Some(value) = value {
                map.insert(key.to_owned(), value);
            }
        }
    }
    out
}

/// Conditions by the list that they are in.
fn by_list(lists: &Lists<'_>, lead: Option<&Lead<'_>>) -> Map<String, Value> {
    let mut out = Map::new();
    let mut put = |name: &str, matches: Vec<Value>| {
        if !matches.is_empty() {
            out.insert(name.to_owned(), json!({"matches": matches}));
        }
    };
    put("packet", options(lists, &lists.packet));
    put("postmatch", options(lists, &lists.post));
    if let Some((at, group)) = lists.payload() {
        let (own, _) = decoded(group);
        put("payload", conditions(lists, at, 0..own, lead));
    }
    let groups = lists.rule.groups.iter().enumerate();
    let of_decoded = groups.flat_map(|(at, group)| {
        let (_, from) = decoded(group);
        conditions(lists, at, from..group.conditions.len(), lead)
    });
    put("base64_data", of_decoded.collect());
    out
}

impl Written {
    /// What is said of a rule in text.
    fn tell(&mut self, lists: &Lists<'_>, kind: &str, lead: Option<&Lead<'_>>) {
        let (rule, source): (&Rule, &Source) = (lists.rule, lists.source);
        let number = format!("{}:{}:{}", rule.gid, rule.sid, rule.rev);
        let ways = match lists.directions {
            [true, true] => "both directions",
            [true, _] => "to the server",
            _ => "to the client",
        };
        let text = &mut self.analysis;
        let _ = writeln!(text, "rule {number}\n{}", source.text);
        let app = lists.app.unwrap_or("any application");
        let _ = writeln!(text, "  type {kind}, {app}, {ways}");
        for group in &rule.groups {
            let (name, conditions) = (engine_name(group.buffer), group.conditions.len());
            let _ = writeln!(text, "  {name}: {conditions} conditions");
        }
        let leads = match lead.and_then(|l| Some((l, rule.groups.get(l.group)?))) {
            None => "no content leads to it".to_owned(),
            Some((lead, group)) => {
                let marked = match rule.fast_pattern {
                    Some(_) => "fast_pattern",
                    None => "chosen",
                };
                let content = written(&lead.content.bytes);
                let name = engine_name(group.buffer);
                format!(
                    "{marked} \"{content}\" of {name}, {} bytes",
                    lead.content.bytes.len()
                )
            }
        };
        let _ = writeln!(text, "  {leads}\n");
        let _ = writeln!(self.fast, "rule {number}: {leads}");
    }
}
