//! The policy file of a running instance: its text as it is configured, which of its rules have which ids, and writing live edits back
//! into it.
//!
//! Lines that no edit concerns stay as they are, comments and layout included. Invariant: what is written parses to just the rules that
//! run, in their order, and it replaces the file in one step.

use std::collections::{BTreeMap, HashSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use weir_functions::middlebox::{Origin, RuleBook};
use weir_policy::{FileSets, Parsed, Source, ast, parse};

use super::Saved;

/// A policy as it was read, or saved last.
#[derive(Clone, Debug)]
pub struct PolicyFile {
    path: PathBuf,
    tree: ast::File,
    /// Number of a rule in the text, from 0, and an id that it runs with: those of chains may have several, ascending by id.
    ids: Vec<(usize, u32)>,
}

/// Why a policy was not written.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// The file is not what was read.
    #[error(
        "{path} changed since it was read: look at it, then save to another file, or overwrite it with --force"
    )]
    Changed {
        /// The file.
        path: String,
    },
    /// It is more than one file.
    #[error(
        "{path} includes other files, and a save writes one: `weir rule save FILE` writes all rules to a new file, or edit the files and load them with `weir rule load`"
    )]
    Included {
        /// The file.
        path: String,
    },
    /// Another file is there.
    #[error("{path} exists: choose another file, or overwrite it with --force")]
    Exists {
        /// The file.
        path: String,
    },
    /// The new text does not say what runs.
    #[error("the rules cannot be written to {path}: {why}")]
    Unfaithful {
        /// The file.
        path: String,
        /// What is wrong.
        why: String,
    },
    /// The system refused.
    #[error("cannot write {path}: {source}")]
    Write {
        /// The file.
        path: String,
        /// What it said.
        source: std::io::Error,
    },
}

impl PolicyFile {
    /// A policy that was read from this file and runs, with these ids.
    pub fn new(path: &Path, parsed: &Parsed, book: &RuleBook) -> PolicyFile {
        PolicyFile {
            path: std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf()),
            tree: parsed.ast.clone(),
            ids: ids(parsed, book),
        }
    }

    /// Reads a policy as the file says it now. Returns what it means, or all that is wrong with it.
    pub fn read(path: &Path) -> Result<Parsed, String> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        let source = Source::new(path.display().to_string(), text);
        parse(&source, &FileSets::beside(path))
            .map_err(|diagnostics| diagnostics.render(false).trim_end().to_owned())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads one rule as if it stood in this file: its sets are known. Returns what it means, or all that is wrong with it.
    pub fn parse_rule(&self, line: &str) -> Result<Parsed, String> {
        if line.contains(['\n', '\r']) {
            return Err("a rule is one line; use one `add` for each".to_owned());
        }
        let mut text = format!("{line}\n");
        text.push_str(&self.sets_named_in(line));
        // Chains that a jump may name: it is refused below, in better words.
        for chain in chains_of(&self.tree) {
            text.push_str(&format!("chain {chain} {{\n}}\n"));
        }
        let source = Source::new("rule", text);
        let parsed = parse(&source, &FileSets::beside(&self.path))
            .map_err(|diagnostics| diagnostics.render(false).trim_end().to_owned())?;
        if weir_policy::leads_to_chains(&parsed.ast) {
            return Err(format!(
                "`jump` and `choose` stand for several rules, and live edits are of one: write it in {}, then `weir rule load`",
                self.path.display()
            ));
        }
        match parsed.policy.rules.len() {
            1 => Ok(parsed),
            0 => Err("expected a rule: write matches, then targets".to_owned()),
            n => Err(format!("{n} rules in one line")),
        }
    }

    /// Writes what runs. To the configured file itself, it is the configuration from then on.
    pub fn save(
        &mut self,
        book: &RuleBook,
        to: Option<&Path>,
        force: bool,
    ) -> Result<Saved, SaveError> {
        let path = to.unwrap_or(&self.path).to_path_buf();
        let shown = || path.display().to_string();
        let own = path == self.path;
        let is_one = self.tree.parts.len() <= 1;
        if own && !is_one {
            return Err(SaveError::Included { path: shown() });
        }
        if !force {
            match std::fs::read_to_string(&path) {
                Ok(text) if own && *text == *self.tree.text => {}
                Err(e) if e.kind() == std::io::ErrorKind::NotFound && !own => {}
                _ if own => return Err(SaveError::Changed { path: shown() }),
                _ => return Err(SaveError::Exists { path: shown() }),
            }
        }
        let unfaithful = |why| SaveError::Unfaithful { path: shown(), why };
        let (text, added, removed) = match is_one {
            true => self.edited(book),
            false => self.in_one().and_then(|whole| whole.edited(book)),
        }
        .map_err(unfaithful)?;
        let parsed = self.check(&text, &path, book)?;
        replace(&path, &text).map_err(|source| SaveError::Write {
            path: shown(),
            source,
        })?;
        if own {
            self.ids = ids(&parsed, book);
            self.tree = parsed.ast;
        }
        Ok(Saved {
            file: path,
            rules: book.entries().len(),
            added,
            removed,
        })
    }

    /// The policy as one file, in canonical format: lines of included files stand where they are included.
    fn in_one(&self) -> Result<PolicyFile, String> {
        let text = weir_policy::format(&self.tree);
        let source = Source::new(self.path.display().to_string(), text);
        let parsed =
            parse(&source, &FileSets::beside(&self.path)).map_err(|found| found.render(false))?;
        Ok(PolicyFile {
            path: self.path.clone(),
            tree: parsed.ast,
            ids: self.ids.clone(),
        })
    }

    /// The text with what was deleted taken out and what was added behind it; and how many of each. An error: a rule of a chain was deleted
    /// for one way into the chain and not for another.
    fn edited(&self, book: &RuleBook) -> Result<(String, usize, usize), String> {
        let old = &self.tree.text;
        let mut removed = 0;
        // Of each written rule: ids that are gone, and such that run.
        let mut fates: BTreeMap<usize, (Option<u32>, Option<u32>)> = BTreeMap::new();
        for &(number, id) in &self.ids {
            let fate = fates.entry(number).or_default();
            match book.entry(id) {
                Some(_) => fate.1 = Some(id),
                None => {
                    fate.0 = Some(id);
                    removed += 1;
                }
            }
        }
        let mut gone: Vec<(usize, usize)> = Vec::new();
        for (number, rule) in rules_of(&self.tree.items).enumerate() {
            match fates.get(&number) {
                Some((Some(deleted), Some(runs))) => {
                    return Err(format!(
                        "rule {deleted} was deleted and rule {runs}, which stands on the same line {}, runs: delete that one, too, or edit the file and load it with `weir rule load`",
                        rule.line
                    ));
                }
                Some((Some(_), None)) => gone.push(lines_of(old, rule)),
                _ => {}
            }
        }
        let mut text = String::with_capacity(old.len());
        let mut kept = 0;
        for &(start, end) in &gone {
            text.push_str(&old[kept..start]);
            kept = end;
        }
        text.push_str(&old[kept..]);
        let configured: HashSet<u32> = self.ids.iter().map(|&(_, id)| id).collect();
        let new = book
            .entries()
            .filter(|entry| entry.origin == Origin::Added || !configured.contains(&entry.rule.id));
        let mut added = 0;
        for entry in new {
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            text.push_str(&entry.text);
            text.push('\n');
            added += 1;
        }
        Ok((text, added, removed))
    }

    fn check(&self, text: &str, path: &Path, book: &RuleBook) -> Result<Parsed, SaveError> {
        let unfaithful = |why: String| SaveError::Unfaithful {
            path: path.display().to_string(),
            why,
        };
        let source = Source::new(path.display().to_string(), text);
        let parsed = parse(&source, &FileSets::beside(path))
            .map_err(|diagnostics| unfaithful(diagnostics.render(false)))?;
        // Rules without a name are called by their number in their chain, and the chain may have become shorter.
        let numbered = |n: usize| {
            let flat = parsed.flat.as_ref().and_then(|flat| flat.get(n));
            flat.is_some_and(|one| one.chain.is_some() && one.rule.name.is_none())
        };
        let pairs = parsed.policy.rules.iter().zip(book.entries());
        let same = parsed.policy.rules.len() == book.entries().len()
            && pairs.enumerate().all(|(n, (rule, entry))| {
                let have = &entry.rule;
                (rule.name == have.name || numbered(n))
                    && rule.requires == have.requires
                    && rule.matches == have.matches
                    && rule.targets == have.targets
            });
        if same {
            return Ok(parsed);
        }
        Err(unfaithful(
            "its sets are not those that the rules were started with".to_owned(),
        ))
    }

    /// Definitions of the sets that a line names.
    fn sets_named_in(&self, line: &str) -> String {
        if !line.contains('@') {
            return String::new();
        }
        let named: HashSet<&str> = (line
            .split(|c: char| c.is_whitespace() || c == '{' || c == '}'))
        .filter_map(|word| word.strip_prefix('@'))
        .collect();
        let text = &self.tree.text;
        let sets = self.tree.items.iter().filter_map(|item| match item {
            ast::Item::Set(set) if named.contains(set.name.of(text)) => Some(set),
            _ => None,
        });
        sets.map(|set| format!("{}\n", weir_policy::set_line(&self.tree, set)))
            .collect()
    }
}

/// Whole lines that a rule stands on, its comment among them.
fn lines_of(text: &str, rule: &ast::Rule) -> (usize, usize) {
    let (from, to) = (rule.span.start as usize, rule.span.end as usize);
    let start = text[..from].rfind('\n').map_or(0, |at| at + 1);
    let end = text[to..].find('\n').map_or(text.len(), |at| to + at + 1);
    (start, end)
}

/// Which rules of the text run with which ids.
fn ids(parsed: &Parsed, book: &RuleBook) -> Vec<(usize, u32)> {
    let running = book.entries().map(|entry| entry.rule.id);
    parsed.sources().zip(running).collect()
}

/// Names of the chains of a file.
fn chains_of(tree: &ast::File) -> impl Iterator<Item = &str> {
    tree.items.iter().filter_map(|item| match item {
        ast::Item::Chain(chain) => Some(chain.name.of(&tree.text)),
        _ => None,
    })
}

fn rules_of(items: &[ast::Item]) -> impl Iterator<Item = &ast::Rule> {
    items.iter().filter_map(|item| match item {
        ast::Item::Rule(rule) => Some(rule),
        _ => None,
    })
}

/// Replaces a file in one step, so that a crash leaves the old or the new text.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    // A link stays a link: its target is replaced.
    let path = &path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let mut temporary = path.clone().into_os_string();
    temporary.push(format!(".weir-{}", std::process::id()));
    let temporary = PathBuf::from(temporary);
    let written = std::fs::File::create(&temporary).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        if let Ok(old) = std::fs::metadata(path) {
            file.set_permissions(old.permissions())?;
        }
        file.sync_all()?;
        std::fs::rename(&temporary, path)
    });
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written
}
