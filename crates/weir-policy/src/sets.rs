//! Named sets: finding them, reading their files, and typing their elements by use.
//!
//! A set has no type of its own. Each use asks for it as numbers of a domain or as interfaces; the answer is kept, so a set
//! of a million lines is read once however many rules use it.

use std::collections::HashMap;
use std::sync::Arc;

use crate::ast::{self, SetBody, Span};
use crate::diagnostic::Report;
use crate::dynamic::DynamicSet;
use crate::field::Field;
use crate::include::beside;
use crate::model::{PortName, Ranges};
use crate::source::{SetLoader, Source};
use crate::value::{ClockField, Domain, Problem, interval};
use crate::words::nearest;

/// Errors shown for one use of a set; the rest of the set is then left unread.
const MAX_ERRORS: usize = 20;

/// All sets of a policy.
pub(crate) struct Sets<'a> {
    text: &'a str,
    /// What the text is of.
    file: &'a ast::File,
    by_name: HashMap<&'a str, Entry<'a>>,
    /// Groups of the network that the policy is for.
    groups: HashMap<String, Arc<DynamicSet>>,
    numbers: HashMap<(&'a str, Use), Option<Arc<Ranges>>>,
    ports: HashMap<&'a str, Option<Vec<PortName>>>,
    /// Texts that spans point into: the policy is number 0, set files follow.
    pub(crate) files: Vec<Source>,
}

struct Entry<'a> {
    name: Span,
    body: &'a SetBody,
    /// File number once the file was read; `None` inside: it could not be.
    file: Option<Option<u32>>,
    used: bool,
    /// What it is if packets fill it, once its line was read.
    filled: Option<Arc<DynamicSet>>,
}

/// What decides how an element is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Use {
    /// Width, and the first of the names that values may have.
    Number(u16, Option<(&'static str, u32)>),
    Flags,
    Addr4,
    Addr6,
    Mac,
    Class,
    Clock(ClockField),
}

impl<'a> Sets<'a> {
    /// Takes the definitions of a file.
    pub(crate) fn new(
        file: &'a ast::File,
        loader: &dyn SetLoader,
        report: &mut Report,
    ) -> Sets<'a> {
        let groups = loader.groups().into_iter().map(|name| {
            let group = Arc::new(DynamicSet::of_group(&name));
            (name, group)
        });
        let text: &'a str = &file.text;
        let mut sets = Sets {
            text,
            file,
            by_name: HashMap::new(),
            groups: groups.collect(),
            numbers: HashMap::new(),
            ports: HashMap::new(),
            files: Vec::new(),
        };
        for item in &file.items {
            let ast::Item::Set(set) = item else { continue };
            let name = set.name.of(text);
            if sets.groups.contains_key(name) {
                report
                    .error(
                        0,
                        set.name,
                        format!("`{name}` is a group of the network, and a set here"),
                    )
                    .help("give the set another name");
                continue;
            }
            if let Some(first) = sets.by_name.get(name) {
                report
                    .error(0, set.name, format!("the set `{name}` is defined twice"))
                    .also(0, first.name, "first here");
                continue;
            }
            sets.by_name.insert(
                name,
                Entry {
                    name: set.name,
                    body: &set.body,
                    file: None,
                    used: false,
                    filled: None,
                },
            );
        }
        sets
    }

    /// The set at `name`, as numbers of the field's domain. `None`: an error was reported, now or at an earlier use.
    pub(crate) fn numbers(
        &mut self,
        name: Span,
        field: Field,
        domain: Domain,
        loader: &dyn SetLoader,
        report: &mut Report,
    ) -> Option<Arc<Ranges>> {
        let key = self.known(name, report)?;
        let how = match domain {
            Domain::Number(bits, names) => Use::Number(bits, names.first().copied()),
            Domain::Flags(_) => Use::Flags,
            Domain::Addr4 => Use::Addr4,
            Domain::Addr6 => Use::Addr6,
            Domain::Mac => Use::Mac,
            Domain::Class => Use::Class,
            Domain::Clock(clock) => Use::Clock(clock),
        };
        if let Some(done) = self.numbers.get(&(key, how)) {
            return done.clone();
        }
        let mut intervals = Vec::new();
        let used = (name, format!("used here for `{}`", field.info().name));
        let ok = self.each(key, &used, loader, report, &mut |word| {
            let found = interval(word, domain)?;
            intervals.extend(found.intervals());
            Ok(())
        });
        let ranges = ok.then(|| Arc::new(Ranges::new(intervals)));
        self.numbers.insert((key, how), ranges.clone());
        ranges
    }

    /// The set at `name`, as interfaces.
    pub(crate) fn ports(
        &mut self,
        name: Span,
        loader: &dyn SetLoader,
        report: &mut Report,
    ) -> Option<Vec<PortName>> {
        let key = self.known(name, report)?;
        if let Some(done) = self.ports.get(key) {
            return done.clone();
        }
        let mut ports = Vec::new();
        let used = (name, "used here for interfaces".to_owned());
        let ok = self.each(key, &used, loader, report, &mut |word| {
            ports.push(port(word)?);
            Ok(())
        });
        let ports = ok.then_some(ports);
        self.ports.insert(key, ports.clone());
        ports
    }

    /// Says what a set is that packets fill.
    pub(crate) fn fill(&mut self, name: &str, set: Arc<DynamicSet>) {
        if let Some(entry) = self.by_name.get_mut(name) {
            entry.filled.get_or_insert(set);
        }
    }

    /// A set that packets fill, which is used then, or a group; `None`: none has this name. The inner `None`: its line is wrong.
    pub(crate) fn dynamic(&mut self, name: &str) -> Option<Option<Arc<DynamicSet>>> {
        if let Some(group) = self.groups.get(name) {
            return Some(Some(Arc::clone(group)));
        }
        let entry = self.by_name.get_mut(name)?;
        matches!(entry.body, SetBody::Dynamic { .. }).then(|| {
            entry.used = true;
            entry.filled.clone()
        })
    }

    /// Warns about sets that no rule used.
    pub(crate) fn warn_unused(&self, report: &mut Report) {
        for (name, entry) in &self.by_name {
            if !entry.used {
                report
                    .warning(0, entry.name, format!("no rule uses the set `{name}`"))
                    .help(format!("remove it, or use it: `FIELD in @{name}`"));
            }
        }
    }

    pub(crate) fn known(&mut self, name: Span, report: &mut Report) -> Option<&'a str> {
        let word = name.of(self.text);
        if let Some((&key, entry)) = self.by_name.get_key_value(word) {
            let _: &Entry<'_> = entry;
            if let Some(entry) = self.by_name.get_mut(key) {
                entry.used = true;
            }
            return Some(key);
        }
        let groups = self.groups.keys().map(String::as_str);
        let near = nearest(word, self.by_name.keys().copied().chain(groups));
        let what = match self.groups.is_empty() {
            true => "set",
            false => "set or group",
        };
        let draft = report.error(0, name, format!("there is no {what} named `{word}`"));
        match near {
            Some(near) => draft.help(format!("did you mean `@{near}`?")),
            None => draft.help(format!(
                "define it: `set {word} = {{ ... }}`, `set {word} = file \"path\"`, or `set {word} = dynamic` if rules fill it"
            )),
        };
        None
    }

    /// Calls `read` with every element; true if all were right. `read` may return a warning.
    fn each(
        &mut self,
        key: &'a str,
        used: &(Span, String),
        loader: &dyn SetLoader,
        report: &mut Report,
        read: &mut dyn FnMut(&str) -> Result<(), Problem>,
    ) -> bool {
        let Some(body) = self.by_name.get(key).map(|e| e.body) else {
            return false;
        };
        let mut errors = 0;
        let mut judge = |file: u32, span: Span, found: Result<(), Problem>, report: &mut Report| {
            match found {
                Ok(()) => {}
                Err(problem) => {
                    errors += 1;
                    let draft = report.error(file, span, problem.message);
                    draft.also(0, used.0, used.1.as_str());
                    if errors == MAX_ERRORS {
                        draft.help("further errors in this set are not shown");
                    } else if let Some(help) = problem.help {
                        draft.help(help);
                    }
                }
            }
            errors < MAX_ERRORS
        };
        match body {
            SetBody::Dynamic { .. } => {
                report
                    .error(
                        0,
                        used.0,
                        format!("packets fill the set `{key}`: it can only be tested, and changed"),
                    )
                    .help(format!(
                        "list the values in another set, or write `ip-saddr in @{key}`"
                    ));
                return false;
            }
            SetBody::List(elements) => {
                for &span in elements {
                    if !judge(0, span, read(span.of(self.text)), report) {
                        break;
                    }
                }
            }
            &SetBody::File(path) => {
                let Some(file) = self.load(key, path, loader, report) else {
                    return false;
                };
                let Some(source) = self.files.get(file as usize - 1) else {
                    return false;
                };
                let mut at = 0usize;
                let mut count = 0usize;
                // Lists of others have them by the thousand: told once.
                let mut host_bits: Option<(Span, usize)> = None;
                for line in source.text.split_inclusive('\n') {
                    let start = at;
                    at += line.len();
                    let content = line.find('#').map_or(line, |i| &line[..i]);
                    let blank = |c: char| c.is_whitespace() || c == '\u{feff}';
                    let word = content.trim_matches(blank);
                    if word.is_empty() {
                        continue;
                    }
                    count += 1;
                    let from = start + (content.len() - content.trim_start_matches(blank).len());
                    let span = Span {
                        start: from as u32,
                        end: (from + word.len()) as u32,
                    };
                    let found = read(word);
                    if found.is_err() && without_host_bits(word).is_some() {
                        host_bits.get_or_insert((span, 0)).1 += 1;
                        continue;
                    }
                    if !judge(file, span, found, report) {
                        break;
                    }
                }
                if let Some((first, prefixes)) = host_bits {
                    let word = first.of(&source.text);
                    let fixed = without_host_bits(word).unwrap_or_default();
                    report
                        .error(
                            file,
                            first,
                            format!(
                                "host bits are set in {prefixes} prefix{} of this file; the first is `{word}`",
                                if prefixes == 1 { "" } else { "es" }
                            ),
                        )
                        .also(0, used.0, used.1.as_str())
                        .help(format!("write `{fixed}`, or the address alone"));
                    return false;
                }
                if count == 0 {
                    report
                        .error(
                            0,
                            path,
                            format!("the set file `{}` has no elements", source.name),
                        )
                        .help("write one value a line");
                    return false;
                }
            }
        }
        errors == 0
    }

    fn load(
        &mut self,
        key: &'a str,
        path: Span,
        loader: &dyn SetLoader,
        report: &mut Report,
    ) -> Option<u32> {
        let entry = self.by_name.get_mut(key)?;
        if let Some(file) = entry.file {
            return file;
        }
        let written = path.of(self.text).trim_matches('"');
        let folder = self.file.part(path).and_then(|part| part.path.as_deref());
        let from_policy = match folder {
            Some(including) => beside(Some(including), written).display().to_string(),
            None => written.to_owned(),
        };
        let file = match loader.load(&from_policy) {
            Ok(source) if u32::try_from(source.text.len()).is_ok() => {
                self.files.push(source);
                u32::try_from(self.files.len()).ok()
            }
            Ok(_) => {
                report.error(
                    0,
                    path,
                    format!("the set file `{written}` is longer than 4 GiB"),
                );
                None
            }
            Err(error) => {
                report
                    .error(
                        0,
                        path,
                        format!("cannot read the set file `{written}`: {error}"),
                    )
                    .help("paths are relative to the folder of the file that names them");
                None
            }
        };
        entry.file = Some(file);
        file
    }
}

/// The prefix that is meant where host bits are set.
fn without_host_bits(word: &str) -> Option<String> {
    let (address, length) = word.split_once('/')?;
    let address: std::net::IpAddr = weir_value::address(address).ok()?;
    let length: u8 = length.parse().ok()?;
    let width = if address.is_ipv4() { 32 } else { 128 };
    let prefix = weir_value::Prefix::around(address, length.min(width));
    (length <= width && prefix.address() != address).then(|| prefix.to_string())
}

/// An interface as written: a number is an index.
pub(crate) fn port(word: &str) -> Result<PortName, Problem> {
    if word.bytes().all(|b| b.is_ascii_digit()) && !word.is_empty() {
        return match word.parse::<u32>() {
            Ok(index) if index > 0 && index <= i32::MAX as u32 => Ok(PortName::Index(index)),
            _ => Err(Problem::with_help(
                format!("`{word}` is not an interface index"),
                "indexes count from 1; `ip link` shows them",
            )),
        };
    }
    Ok(PortName::Name(weir_value::interface(word)?))
}
