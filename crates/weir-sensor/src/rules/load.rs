//! Loading: files to rules, one after another, with what was refused and noted on the way. Neither a file nor what was read of it need be in memory as a whole.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::addresses::Groups;
use super::expression::{Expressions, MATCH_LIMIT};
use super::files::{Classes, Reputation};
use super::live::{LiveSets, MEMCAP, SetFiles};
use super::model::{Rule, SourceLocation};
use super::parse::{self, Context};
use super::phrase::Phrase;
use super::problem::{Kind, Problem, Refused};
use super::scan::{Statement, Statements, whole};
use super::text::Text;
use super::variables::Variables;
use crate::script::Limits;

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
pub struct LoadSettings {
    /// The language.
    pub dialect: Dialect,
    /// Variables of headers.
    pub variables: Variables,
    /// Classes, by name.
    pub classes: Classes,
    /// What stands before the value of a reference, by its kind.
    pub references: BTreeMap<String, String>,
    /// Categories and scores of addresses.
    pub reputation: Arc<Reputation>,
    /// Where files of `dataset` are; a rule file's own folder, if `None`.
    pub datasets: Option<PathBuf>,
    /// Steps of one match of a regular expression.
    pub match_limit: u32,
    /// What rules may require.
    pub features: Features,
    /// Files are written out: a rule that asks for it where they are not has a note.
    pub stores: bool,
    /// The same of certificates.
    pub certificates: bool,
    /// Sets that outlive the rules.
    pub sets: Arc<LiveSets>,
    /// Where rules may have sets written.
    pub set_files: SetFiles,
    /// Bytes of a set whose rule says nothing of it.
    pub set_memory: u64,
    /// What scripts of rules may cost; `None`: rules have none.
    pub scripts: Option<Limits>,
    /// The folder of rules of the configuration: scripts may be there, too.
    pub folder: Option<PathBuf>,
    /// Whether rules keep how they were written ([`Rule::source`]).
    pub written: bool,
}

/// Parts of a sensor that may be off, and that rules may require (`requires: feature ja3`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// JA3 is computed.
    pub ja3: bool,
    /// JA4 is.
    pub ja4: bool,
}

impl Default for Features {
    fn default() -> Self {
        Features {
            ja3: true,
            ja4: true,
        }
    }
}

impl Default for LoadSettings {
    fn default() -> Self {
        LoadSettings {
            dialect: Dialect::Suricata,
            variables: Variables::conventional(),
            classes: Classes::default(),
            references: BTreeMap::new(),
            reputation: Arc::default(),
            datasets: None,
            match_limit: MATCH_LIMIT,
            features: Features::default(),
            stores: false,
            certificates: false,
            sets: Arc::default(),
            set_files: SetFiles::default(),
            set_memory: MEMCAP,
            scripts: Some(Limits::USUAL),
            folder: None,
            written: false,
        }
    }
}

/// Something about a rule that was loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// File and line.
    pub place: SourceLocation,
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
pub fn load(files: &[PathBuf], settings: &LoadSettings) -> Result<Loaded, LoadError> {
    let mut loader = Loader::new(settings);
    for path in files {
        for file in rule_files(path)? {
            loader.file(&file)?;
        }
    }
    Ok(loader.finish())
}

/// Who takes rules when they are read: a list, or somebody who makes something else of each at once.
pub trait Keep {
    /// Takes the next rule. `expressions` has the regular expressions of all so far.
    fn keep(&mut self, rule: Rule, expressions: &mut Expressions);

    /// The rule that was taken after so many others, and where it was written. Its conditions need not be there.
    fn kept(&self, at: usize) -> Option<(&SourceLocation, &Rule)>;
}

impl Keep for Vec<Rule> {
    fn keep(&mut self, rule: Rule, _: &mut Expressions) {
        self.push(rule);
    }

    fn kept(&self, at: usize) -> Option<(&SourceLocation, &Rule)> {
        self.get(at).map(|rule| (&rule.place, rule))
    }
}

/// Bytes of a file that are read at once, unless a rule is longer.
const PIECE: usize = 1 << 16;

/// Loads one file after another, of which a piece is in memory at a time.
pub struct Loader<'a, K = Vec<Rule>> {
    settings: &'a LoadSettings,
    groups: Groups,
    sets: parse::Sets,
    /// Sets that cannot be loaded, as rules define them.
    broken_sets: HashSet<String>,
    /// Without rules until the end.
    loaded: Loaded,
    kept: K,
    /// Generator and number to the place in `kept`.
    numbers: HashMap<(u32, u32), usize>,
    /// Rules that a later revision replaced; taken out at the end.
    replaced: Vec<bool>,
    /// What is read are rules of the firewall.
    firewall: bool,
}

impl<'a> Loader<'a> {
    /// Begins.
    pub fn new(settings: &'a LoadSettings) -> Self {
        Loader::with(settings, Vec::new(), Expressions::new(settings.match_limit))
    }

    /// What was loaded.
    pub fn finish(self) -> Loaded {
        let (mut loaded, rules, replaced) = self.finish_kept();
        let mut replaced = replaced.iter();
        loaded.rules = rules;
        loaded
            .rules
            .retain(|_| !replaced.next().copied().unwrap_or(false));
        loaded.rules.shrink_to_fit();
        loaded
    }
}

impl<'a, K: Keep> Loader<'a, K> {
    /// Begins, for somebody who keeps rules, with regular expressions that are at hand.
    pub fn with(settings: &'a LoadSettings, kept: K, expressions: Expressions) -> Self {
        Loader {
            settings,
            groups: Groups::default(),
            sets: parse::Sets::default(),
            broken_sets: HashSet::new(),
            loaded: Loaded {
                rules: Vec::new(),
                refused: Vec::new(),
                notes: Vec::new(),
                disabled: 0,
                expressions,
                files: 0,
            },
            kept,
            numbers: HashMap::new(),
            replaced: Vec::new(),
            firewall: false,
        }
    }

    /// From here on, files are of the firewall, or not.
    pub fn firewall(&mut self, is: bool) {
        self.firewall = is;
    }

    /// What was loaded, without rules; who kept those; and which of them a later revision replaced.
    pub fn finish_kept(self) -> (Loaded, K, Vec<bool>) {
        (self.loaded, self.kept, self.replaced)
    }

    /// Loads a file.
    pub fn file(&mut self, path: &Path) -> Result<(), LoadError> {
        let failed = |source| LoadError::Read {
            path: path.to_owned(),
            source,
        };
        let mut file = fs::File::open(path).map_err(failed)?;
        let folder = path.parent().map(Path::to_owned);
        let name: Arc<str> = path.display().to_string().into();
        let (mut piece, mut line) = (Vec::new(), 0);
        loop {
            // Twice as much where nothing is whole yet.
            let most = piece.len().max(PIECE);
            let more = (&mut file)
                .take(most as u64)
                .read_to_end(&mut piece)
                .map_err(failed)?;
            let end = match more {
                0 => piece.len(),
                _ => whole(&piece, self.settings.dialect),
            };
            line = self.read(&name, folder.as_deref(), &piece[..end], line);
            piece.drain(..end);
            if more == 0 {
                self.loaded.files += 1;
                return Ok(());
            }
        }
    }

    /// Loads a text, called `name` in messages; rules in it cannot name files unless the settings say where those are.
    pub fn text(&mut self, name: &str, bytes: &[u8]) {
        self.read(&name.into(), None, bytes, 0);
        self.loaded.files += 1;
    }

    /// Reads whole statements, behind so many lines of their file; returns how many lines there are with them.
    fn read(&mut self, file: &Arc<str>, folder: Option<&Path>, bytes: &[u8], line: u32) -> u32 {
        let datasets = self.settings.datasets.clone();
        let datasets = datasets.as_deref().or(folder);
        let mut statements = Statements::new(bytes, line, self.settings.dialect);
        for statement in statements.by_ref() {
            self.statement(file, datasets, &statement);
        }
        self.loaded.disabled += statements.disabled;
        statements.line
    }

    fn statement(&mut self, file: &Arc<str>, datasets: Option<&Path>, statement: &Statement) {
        let place = SourceLocation {
            file: file.clone(),
            line: statement.line(),
        };
        let mut context = Context {
            settings: self.settings,
            groups: &mut self.groups,
            expressions: &mut self.loaded.expressions,
            datasets,
            sets: &mut self.sets,
            broken_sets: &mut self.broken_sets,
            firewall: self.firewall,
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
        if let Some(at) = self.numbers.get(&(rule.gid, sid)).copied()
            && let Some((other_place, other)) = self.kept.kept(at)
        {
            let SourceLocation { file: f, line } = other_place;
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
                place: other_place.clone(),
                column: 1,
                width: 1,
                sid: Some(sid),
                kind: Kind::Duplicate,
                keyword: Some("rev".to_owned()),
                reason,
                phrase: Some(Box::new(Phrase::Duplicate)),
                text: other.message.clone(),
            });
            self.replaced[at] = true;
        }
        self.numbers.insert((rule.gid, sid), self.replaced.len());
        self.kept.keep(rule, &mut self.loaded.expressions);
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
            place: SourceLocation {
                file: file.clone(),
                line,
            },
            column,
            width,
            sid,
            kind: problem.kind,
            keyword: problem.keyword,
            reason: problem.reason,
            phrase: problem.phrase,
            text,
        });
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
        .fail(Kind::Duplicate, reason)
        .called(Phrase::Duplicate);
    problem.keyword = Some("sid".to_owned());
    problem
}
