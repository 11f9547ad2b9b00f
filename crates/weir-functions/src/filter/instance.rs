//! `kind = "filter"`: the keys of the configuration, read and checked.
//!
//! Mistakes are told all at once: of every rule the first one, of every list file the first twenty lines.

use std::path::{Path, PathBuf};

use toml::Value;

use super::list::{self, Entry};
use super::rule::{self, Addresses, Rule};
use super::{CPUS_MAX, Compiled, Filter, Otherwise, Set};
use crate::request::{FunctionError, Key, Kind, Planned, Request, suggest};

const KEYS: &[Key] = &[
    Key::new("rules", "none", "rules as texts, see [rules](#rules)"),
    Key::new(
        "sets",
        "none",
        "name -> list of entries, `{ list = [...] }` or `{ file = \"PATH\" }`",
    ),
    Key::new(
        "default",
        "`\"pass\"`",
        "`\"pass\"` or `\"drop\"` for IP packets that no rule decides",
    ),
    Key::new(
        "other",
        "`\"pass\"`",
        "the same for frames without IP; those that pass are counted as `not_ip`",
    ),
    Key::new(
        "cpu",
        "none",
        "CPUs that accepted IP packets are moved to, by flow if there are several; their path through the graph ends there",
    ),
    Key::new(
        "queue",
        "192",
        "with `cpu`: length of the queue to each CPU",
    ),
    Key::new("hits", "`true`", "count hits of set entries"),
    Key::new("sources", "65,536", "capacity for sources of limits"),
    Key::new("blocks", "16,384", "capacity for blocked sources, about"),
    Key::new("flows", "65,536", "capacity for flows behind SYN cookies"),
];

/// The kind's row in `kind`.
pub const KIND: Kind = Kind {
    judge: Some(|request| Ok(Box::new(Filter::read(request)?))),
    ..Kind::new("filter", plan, &[("", KEYS)])
};

/// Plans an instance.
///
/// # Errors
/// Keys, rules or lists are wrong, or more than the data plane can hold.
pub fn plan(request: &Request<'_>) -> Result<Planned, FunctionError> {
    let filter = Filter::read(request)?;
    let compiled = filter
        .compile()
        .map_err(|error| FunctionError::key("rules", error.to_string()))?;
    let Compiled { plan, load, .. } = compiled;
    let mut planned = Planned::new(plan);
    planned.asks.secret = filter.remembers().then_some("weir_filter_secret");
    planned.asks.finished_checksums = filter.moves();
    planned.asks.syn_cookies = filter
        .rules
        .iter()
        .any(|r| r.action == rule::Action::Cookie);
    planned.notes = filter.unused();
    if let Some(load) = load {
        let note = format!(
            "`shed` reads the map `load` of this function, which is 0 unless it is a shared map that another program writes: maps = {{ load = \"{load}\" }}"
        );
        planned.unshared.push(("load".to_owned(), note));
    }
    Ok(planned)
}

impl Filter {
    /// Reads the keys of an instance and the list files they name.
    ///
    /// # Errors
    /// All mistakes that were found.
    pub fn read(request: &Request<'_>) -> Result<Filter, FunctionError> {
        request.only(KEYS)?;
        let mut errors = Vec::new();
        let mut rules = Vec::new();
        for (number, text) in (1..).zip(request.texts("rules")?) {
            match rule::parse(text) {
                Ok(rule) => rules.push(rule),
                Err(wrong) => errors.push(FunctionError {
                    advice: wrong.advice,
                    ..FunctionError::key(
                        format!("rules.{}", number - 1),
                        format!(
                            "rule {number}, column {}: {} in `{text}`",
                            text[..wrong.column.min(text.len())].chars().count() + 1,
                            wrong.message
                        ),
                    )
                }),
            }
        }
        let mut sets = Vec::new();
        for (name, value) in request.table("sets")?.into_iter().flatten() {
            match set(request, name, value) {
                Ok(entries) => sets.push(Set {
                    name: name.clone(),
                    entries,
                }),
                Err(mut found) => errors.append(&mut found),
            }
        }
        let names: Vec<&str> = request
            .table("sets")?
            .into_iter()
            .flat_map(|t| t.keys())
            .map(String::as_str)
            .collect();
        for (number, rule) in (1..).zip(&rules) {
            for name in named(rule).filter(|name| !names.contains(name)) {
                let advice = match names.is_empty() {
                    true => format!("add `sets.{name} = {{ file = \"...\" }}`"),
                    false => suggest(name, &names),
                };
                errors.push(
                    FunctionError::key(
                        format!("rules.{}", number - 1),
                        format!("rule {number} names the set `@{name}`, which there is not"),
                    )
                    .advice(advice),
                );
            }
        }
        let mut filter = Filter {
            rules,
            sets,
            ..Filter::default()
        };
        filter.default = verdict(request, "default")?;
        filter.other = verdict(request, "other")?;
        filter.cpus = cpus(request)?;
        filter.queue = request
            .number("queue", 1..=16_384)?
            .map_or(filter.queue, |n| n as u32);
        filter.hits = match request.keys.get("hits") {
            None => true,
            Some(_) => request.flag("hits")?,
        };
        filter.sources = request
            .number("sources", 1..=1 << 24)?
            .map_or(filter.sources, |n| n as u32);
        filter.blocks = request
            .number("blocks", 1..=1 << 24)?
            .map_or(filter.blocks, |n| n as u32);
        filter.flows = request
            .number("flows", 1..=1 << 24)?
            .map_or(filter.flows, |n| n as u32);
        match FunctionError::join(errors) {
            Some(error) => Err(error),
            None => Ok(filter),
        }
    }

    /// Whether anything is remembered of sources.
    fn remembers(&self) -> bool {
        self.rules
            .iter()
            .any(|rule| matches!(rule.action, rule::Action::Limit(_) | rule::Action::Cookie))
    }

    /// Whether packets are moved to other CPUs.
    fn moves(&self) -> bool {
        let moves = |rule: &Rule| matches!(&rule.action, rule::Action::Allow { cpus, .. } if !cpus.is_empty());
        !self.cpus.is_empty() || self.rules.iter().any(moves)
    }

    fn unused(&self) -> Vec<String> {
        let is_named = |set: &Set| {
            self.rules
                .iter()
                .any(|rule| named(rule).any(|name| name == set.name))
        };
        let unused = self.sets.iter().filter(|set| !is_named(set));
        unused
            .map(|set| format!("no rule names the set `@{}`", set.name))
            .collect()
    }
}

/// Sets that a rule names.
fn named(rule: &Rule) -> impl Iterator<Item = &str> {
    let tests = [&rule.from, &rule.to].into_iter().flatten();
    tests
        .flat_map(|test| &test.any)
        .filter_map(|one| match one {
            Addresses::Set(name) => Some(name.as_str()),
            Addresses::Prefix(_) => None,
        })
}

fn verdict(request: &Request<'_>, key: &str) -> Result<Otherwise, FunctionError> {
    match request.text(key)? {
        None | Some("pass") => Ok(Otherwise::Pass),
        Some("drop") => Ok(Otherwise::Drop),
        Some(other) => Err(FunctionError::key(
            key,
            format!("`{key}` is \"pass\" or \"drop\", not \"{other}\""),
        )
        .advice(suggest(other, &["pass", "drop"]))),
    }
}

fn cpus(request: &Request<'_>) -> Result<Vec<u32>, FunctionError> {
    let wrong = || {
        FunctionError::key("cpu", "`cpu` is a list of numbers of CPUs").advice(format!(
            "write `cpu = [1]`; numbers go from 0 to {}",
            CPUS_MAX - 1
        ))
    };
    let cpu = |value: &Value| {
        value
            .as_integer()
            .and_then(|n| u32::try_from(n).ok())
            .filter(|n| *n < CPUS_MAX)
            .ok_or_else(wrong)
    };
    match request.keys.get("cpu") {
        None => Ok(Vec::new()),
        Some(Value::Array(list)) => list.iter().map(cpu).collect(),
        Some(one) => Ok(vec![cpu(one)?]),
    }
}

/// The entries of a set: inline, or those of a file.
fn set(request: &Request<'_>, name: &str, value: &Value) -> Result<Vec<Entry>, Vec<FunctionError>> {
    let key = format!("sets.{name}");
    let wrong = || {
        vec![
            FunctionError::key(
                &key,
                format!("`{key}` is neither a list of prefixes nor a file"),
            )
            .advice("write [\"192.0.2.0/24\"] or { file = \"list.txt\" }"),
        ]
    };
    match value {
        Value::Array(list) => inline(&key, list),
        Value::Table(table) if table.len() == 1 => match (table.get("file"), table.get("list")) {
            (Some(Value::String(path)), _) => file(request, &key, Path::new(path)),
            (_, Some(Value::Array(list))) => inline(&key, list),
            _ => Err(wrong()),
        },
        _ => Err(wrong()),
    }
}

fn inline(key: &str, list: &[Value]) -> Result<Vec<Entry>, Vec<FunctionError>> {
    let (mut entries, mut errors) = (Vec::new(), Vec::new());
    for (place, value) in (1..).zip(list) {
        let read = match value.as_str() {
            Some(text) => list::entry(text.trim(), place, None),
            None => Err("it is not text".to_owned()),
        };
        match read {
            Ok(entry) => entries.push(entry),
            Err(message) => errors.push(FunctionError::key(
                key,
                format!("element {place} of `{key}`: {message}"),
            )),
        }
    }
    if errors.is_empty() {
        Ok(entries)
    } else {
        Err(errors)
    }
}

fn file(request: &Request<'_>, key: &str, path: &Path) -> Result<Vec<Entry>, Vec<FunctionError>> {
    let bytes = request.file(key, path).map_err(|error| vec![error])?;
    let modified = request.files.modified(path);
    list::parse(&bytes, modified).map_err(|told| {
        let place = |one: list::LineError| {
            FunctionError::key(key, one.message).at(PathBuf::from(path), one.line as usize)
        };
        told.into_iter().map(place).collect()
    })
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::request::Files;

    /// One list, changed at second 1000.
    struct OneFile;

    impl Files for OneFile {
        fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
            match path.to_str() {
                Some("block.txt") => Ok(b"192.0.2.0/24 # a block\n10.0.0.1 for 1m\n".to_vec()),
                Some("wrong.txt") => Ok([&b"10.0.0.1/8\n"[..], &b"fine?\n".repeat(30)].concat()),
                _ => Err(io::ErrorKind::NotFound.into()),
            }
        }

        fn modified(&self, _: &Path) -> Option<u64> {
            Some(1000)
        }
    }

    fn read(text: &str) -> Result<Filter, FunctionError> {
        let keys = text.parse().expect("TOML");
        Filter::read(&Request {
            name: "shield",
            keys: &keys,
            files: &OneFile,
            ports: &[],
            transmits: false,
        })
    }

    fn refused(text: &str) -> FunctionError {
        read(text).expect_err("refused")
    }

    #[test]
    fn keys_become_a_filter() {
        let filter = read("rules = [\"deny from @bad\"]\nsets.bad = { file = \"block.txt\" }\ndefault = \"drop\"\ncpu = 1\nhits = false").expect("read");
        assert_eq!(filter.sets[0].entries.len(), 2);
        assert_eq!(filter.sets[0].entries[1].until, 1060);
        assert_eq!(
            (filter.default, filter.other),
            (Otherwise::Drop, Otherwise::Pass)
        );
        assert_eq!((filter.cpus.as_slice(), filter.hits), (&[1][..], false));
        let keys = "rules = [\"shed udp when load > 8\"]\nsets.x = []"
            .parse()
            .expect("TOML");
        let planned = plan(&Request {
            name: "shield",
            keys: &keys,
            files: &OneFile,
            ports: &[],
            transmits: false,
        })
        .expect("planned");
        assert_eq!(planned.notes[0], "no rule names the set `@x`");
        let (map, note) = &planned.unshared[0];
        assert!(
            map == "load" && note.contains("maps = { load = \"load\" }"),
            "{note}"
        );
        assert!(planned.asks.secret.is_none() && !planned.asks.finished_checksums);
    }

    #[test]
    fn mistakes_are_told_with_their_place() {
        let error = refused("rules = [\"allow\", \"deny form 10.0.0.0/8\"]");
        assert_eq!(
            error.message,
            "rule 2, column 6: `form` is not understood in `deny form 10.0.0.0/8`"
        );
        assert_eq!(error.advice.as_deref(), Some("did you mean `from`?"));
        let error = refused("rules = [\"deny from @bda\"]\nsets.bad = []");
        assert_eq!(
            error.message,
            "rule 1 names the set `@bda`, which there is not"
        );
        assert_eq!(error.advice.as_deref(), Some("did you mean `bad`?"));
        let error = refused("sets.bad = { file = \"wrong.txt\" }");
        assert_eq!(error.file, Some((PathBuf::from("wrong.txt"), 1)));
        assert_eq!(error.others.len(), 20);
        assert_eq!(error.others[19].message, "this line and 10 more are wrong");
        assert_eq!(error.others[0].file, Some((PathBuf::from("wrong.txt"), 2)));
        assert!(
            refused("sets.bad = { file = \"none.txt\" }")
                .message
                .starts_with("cannot read `none.txt`")
        );
        assert!(
            refused("sets.bad = [\"10.0.0.0/8\", \"x\"]")
                .message
                .starts_with("element 2 of `sets.bad`")
        );
        assert!(
            refused("sets.bad = 7")
                .message
                .contains("neither a list of prefixes nor a file")
        );
        assert_eq!(
            refused("cpu = [64]").advice.as_deref(),
            Some("write `cpu = [1]`; numbers go from 0 to 63")
        );
        assert_eq!(
            refused("default = \"dorp\"").advice.as_deref(),
            Some("did you mean `drop`?")
        );
        assert_eq!(
            refused("rule = []").advice.as_deref(),
            Some("did you mean `rules`?")
        );
    }

    #[test]
    fn what_cannot_be_compiled_says_why() {
        let error = |text: &str| {
            read(text)
                .expect("read")
                .compile()
                .expect_err("refused")
                .to_string()
        };
        assert!(
            error("rules = [\"shed udp when a > 1\", \"shed tcp when b > 1\"]")
                .starts_with("rules are shed by `a` and by `b`")
        );
        assert!(
            error("rules = [\"deny from not @q\"]\nsets.q = [\"10.0.0.1 udp\"]")
                .contains("`not @q` cannot be asked: line 1")
        );
        let many: Vec<String> = (0..1100)
            .map(|port| format!("\"10.0.0.1:{port}\""))
            .collect();
        assert!(
            error(&format!(
                "rules = [\"deny from @q\"]\nsets.q = [{}]",
                many.join(",")
            ))
            .starts_with("1025 combinations of rules")
        );
        let ends: Vec<String> = (8..30)
            .map(|len| format!("\"10.0.0.0/{len} until {}\"", 2000 - len))
            .collect();
        assert!(
            error(&format!(
                "rules = [\"deny from @q\"]\nsets.q = [{}]",
                ends.join(",")
            ))
            .starts_with("more than 7 entries")
        );
    }
}
