//! Loading: files to rules, one after another, with what was refused and noted on the way.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::addresses::Groups;
use super::expression::{Expressions, MATCH_LIMIT};
use super::files::{Classes, Reputation};
use super::model::{Place, Rule};
use super::parse::{self, Context};
use super::problem::{Kind, Problem, Refused};
use super::scan::{Statement, Statements};
use super::text::Text;
use super::variables::Variables;

/// In whose language rules are written. Never guessed: the same words mean different things.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// Suricata 5 and later, with the older modifiers.
    #[default]
    Suricata,
    /// Snort 3.
    Snort,
}

impl Dialect {
    /// Both, with the names that users write.
    pub const ALL: &'static [(&'static str, Dialect)] =
        &[("suricata", Dialect::Suricata), ("snort3", Dialect::Snort)];

    /// As users write it.
    pub fn name(self) -> &'static str {
        match self {
            Dialect::Suricata => "suricata",
            Dialect::Snort => "snort3",
        }
    }
}

/// What the loader needs beside the rules.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The language.
    pub dialect: Dialect,
    /// Variables of headers.
    pub variables: Variables,
    /// Classes, by name.
    pub classes: Classes,
    /// Categories and scores of addresses.
    pub reputation: Arc<Reputation>,
    /// Where files of `dataset` are; a rule file's own folder, if `None`.
    pub datasets: Option<PathBuf>,
    /// Steps of one match of a regular expression.
    pub match_limit: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            dialect: Dialect::Suricata,
            variables: Variables::conventional(),
            classes: Classes::default(),
            reputation: Arc::default(),
            datasets: None,
            match_limit: MATCH_LIMIT,
        }
    }
}

/// Something about a rule that was loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// File and line.
    pub place: Place,
    /// The rule.
    pub sid: u32,
    /// What.
    pub text: String,
}

/// What loading gave. Each active rule of the files is in `rules` or in `refused`.
#[derive(Debug)]
pub struct Loaded {
    /// In the order of files and lines.
    pub rules: Vec<Rule>,
    /// Rules that were not loaded.
    pub refused: Vec<Refused>,
    /// What was accepted and decides nothing, and the like.
    pub notes: Vec<Note>,
    /// Rules that are commented out.
    pub disabled: usize,
    /// The regular expressions of the rules, compiled.
    pub expressions: Expressions,
    /// How many files were read.
    pub files: usize,
}

impl Loaded {
    /// Active rules in the files.
    pub fn active(&self) -> usize {
        self.rules.len() + self.refused.len()
    }

    /// How many rules were refused for equal reasons, most first, then by name.
    pub fn reasons(&self) -> Vec<(String, usize)> {
        let mut counts: HashMap<String, usize> = HashMap::new();
        for refused in &self.refused {
            *counts.entry(refused.class()).or_default() += 1;
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        counts
    }
}

/// A file that could not be read.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A rule file.
    #[error("cannot read rules from {}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A folder without rule files.
    #[error("{} has no file that ends in .rules", path.display())]
    Empty {
        /// Which.
        path: PathBuf,
    },
}

/// The files that a path names: itself, or those of a folder that end in `.rules`, by name.
pub fn rule_files(path: &Path) -> Result<Vec<PathBuf>, LoadError> {
    let failed = |source| LoadError::Read {
        path: path.to_owned(),
        source,
    };
    if !fs::metadata(path).map_err(failed)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        let file = entry.map_err(failed)?.path();
        if file.extension().is_some_and(|e| e == "rules") {
            files.push(file);
        }
    }
    files.sort();
    match files.is_empty() {
        true => Err(LoadError::Empty {
            path: path.to_owned(),
        }),
        false => Ok(files),
    }
}

/// Loads files, and the `.rules` files of folders. A broken rule is listed and the rest is loaded; a file that cannot be read ends it.
pub fn load(files: &[PathBuf], settings: &Settings) -> Result<Loaded, LoadError> {
    let mut loader = Loader::new(settings);
    for path in files {
        for file in rule_files(path)? {
            loader.file(&file)?;
        }
    }
    Ok(loader.finish())
}

/// Loads one file after another; only one is in memory at a time.
pub struct Loader<'a> {
    settings: &'a Settings,
    groups: Groups,
    loaded: Loaded,
    /// Generator and number to the place in `rules`.
    numbers: HashMap<(u32, u32), usize>,
    /// Rules that a later revision replaced; taken out at the end.
    replaced: Vec<bool>,
}

impl<'a> Loader<'a> {
    /// Begins.
    pub fn new(settings: &'a Settings) -> Self {
        Loader {
            settings,
            groups: Groups::default(),
            loaded: Loaded {
                rules: Vec::new(),
                refused: Vec::new(),
                notes: Vec::new(),
                disabled: 0,
                expressions: Expressions::new(settings.match_limit),
                files: 0,
            },
            numbers: HashMap::new(),
            replaced: Vec::new(),
        }
    }

    /// Loads a file.
    pub fn file(&mut self, path: &Path) -> Result<(), LoadError> {
        let bytes = fs::read(path).map_err(|source| LoadError::Read {
            path: path.to_owned(),
            source,
        })?;
        let folder = path.parent().map(Path::to_owned);
        self.read(&path.display().to_string(), folder, &bytes);
        Ok(())
    }

    /// Loads a text, called `name` in messages; rules in it cannot name files unless the settings say where those are.
    pub fn text(&mut self, name: &str, bytes: &[u8]) {
        self.read(name, None, bytes);
    }

    fn read(&mut self, name: &str, folder: Option<PathBuf>, bytes: &[u8]) {
        let file: Arc<str> = name.into();
        let datasets = self.settings.datasets.clone().or(folder);
        let mut statements = Statements::new(bytes, self.settings.dialect);
        for statement in statements.by_ref() {
            self.statement(&file, datasets.as_deref(), &statement);
        }
        self.loaded.disabled += statements.disabled;
        self.loaded.files += 1;
    }

    fn statement(&mut self, file: &Arc<str>, datasets: Option<&Path>, statement: &Statement) {
        let place = Place {
            file: file.clone(),
            line: statement.line(),
        };
        let mut context = Context {
            settings: self.settings,
            groups: &mut self.groups,
            expressions: &mut self.loaded.expressions,
            datasets,
        };
        let text = Text::new(&statement.bytes);
        let (rule, notes) = match parse::rule(text, place.clone(), &mut context) {
            Ok(parsed) => parsed,
            Err(problem) => {
                let sid = parse::sid_of(text, self.settings.dialect);
                self.refuse(file, statement, sid, problem);
                return;
            }
        };
        let sid = rule.sid;
        if let Some(at) = self.numbers.get(&(rule.gid, sid)).copied() {
            let other = &self.loaded.rules[at];
            let Place { file: f, line } = other.place.clone();
            if rule.rev <= other.rev {
                let what = match rule.rev == other.rev {
                    true => "the same revision of it",
                    false => "a later revision of it",
                };
                let reason = format!("the number is in use: {f}:{line} has {what}");
                self.refuse(file, statement, Some(sid), duplicate(text, reason));
                return;
            }
            let reason = format!("{file}:{} has a later revision of it", place.line);
            self.loaded.refused.push(Refused {
                place: other.place.clone(),
                column: 1,
                width: 1,
                sid: Some(sid),
                kind: Kind::Duplicate,
                keyword: Some("sid".to_owned()),
                reason,
                text: other.message.clone(),
            });
            self.replaced[at] = true;
        }
        let at = self.loaded.rules.len();
        self.numbers.insert((rule.gid, sid), at);
        self.loaded.rules.push(rule);
        self.replaced.push(false);
        self.loaded.notes.extend(notes.into_iter().map(|text| Note {
            place: place.clone(),
            sid,
            text,
        }));
    }

    fn refuse(&mut self, file: &Arc<str>, stmt: &Statement, sid: Option<u32>, problem: Problem) {
        let (line, column, width, text) = stmt.locate(problem.start..problem.end);
        self.loaded.refused.push(Refused {
            place: Place {
                file: file.clone(),
                line,
            },
            column,
            width,
            sid,
            kind: problem.kind,
            keyword: problem.keyword,
            reason: problem.reason,
            text,
        });
    }

    /// What was loaded.
    pub fn finish(mut self) -> Loaded {
        let mut replaced = self.replaced.iter();
        self.loaded
            .rules
            .retain(|_| !replaced.next().copied().unwrap_or(false));
        self.loaded.rules.shrink_to_fit();
        self.loaded
    }
}

fn duplicate(text: Text<'_>, reason: String) -> Problem {
    let at = text
        .bytes
        .windows(4)
        .position(|w| w == b"sid:")
        .unwrap_or(0);
    let mut problem = text
        .part(at..(at + 4).min(text.len()))
        .fail(Kind::Duplicate, reason);
    problem.keyword = Some("sid".to_owned());
    problem
}
