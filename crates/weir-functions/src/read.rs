//! Typed reading of TOML tables with places: every key of a wrong type and every key that is not known is reported, not only the first.
//!
//! What a table means belongs to who reads it: the configuration of a graph, the document of virtual networks.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use toml::Value;
use toml::de::{DeTable, DeValue};
use weir_policy::Report;
use weir_policy::ast::Span;

use crate::request::suggest;

/// Name of an edge whose configuration does not say another one.
pub const DEFAULT_EDGE: &str = "default";

/// A value and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spanned<T> {
    /// The value.
    pub value: T,
    /// Its place.
    pub span: Span,
}

/// One table of a file.
pub struct Section<'a, 'i> {
    /// What it is, for messages: `a port`.
    what: &'static str,
    /// In front of its keys where they are tables of their own: `network.`.
    path: String,
    table: &'a DeTable<'i>,
    /// Where it begins.
    pub span: Span,
    known: BTreeSet<&'static str>,
}

impl<'a, 'i> Section<'a, 'i> {
    /// A table that begins at `span`; `what` as in "`what` needs ...".
    pub fn new(what: &'static str, table: &'a DeTable<'i>, span: Span) -> Section<'a, 'i> {
        Section {
            what,
            path: String::new(),
            table,
            span,
            known: BTreeSet::new(),
        }
    }

    /// A text, which must be there.
    pub fn need(&mut self, key: &'static str, report: &mut Report) -> Option<Spanned<String>> {
        self.present(key, "\"...\"", report)
            .then(|| self.text(key, report))?
    }

    /// A whole number from 1 to `most`, which must be there.
    pub fn need_count(&mut self, key: &'static str, most: u32, report: &mut Report) -> Option<u32> {
        let found = self
            .present(key, "NUMBER", report)
            .then(|| self.count(key, most, report))?;
        found.map(|number| number.value)
    }

    fn present(&mut self, key: &'static str, example: &str, report: &mut Report) -> bool {
        self.known.insert(key);
        let is_present = self.table.contains_key(key);
        if !is_present {
            report
                .error(0, self.span, format!("{} needs `{key}`", self.what))
                .help(format!("add `{key} = {example}`"));
        }
        is_present
    }

    /// A text.
    pub fn text(&mut self, key: &'static str, report: &mut Report) -> Option<Spanned<String>> {
        self.typed(key, "a text in quotes", report, |value| {
            value.as_str().map(str::to_owned)
        })
    }

    /// `true` or `false`.
    pub fn flag(&mut self, key: &'static str, report: &mut Report) -> Option<Spanned<bool>> {
        self.typed(key, "true or false", report, DeValue::as_bool)
    }

    /// A whole number from 1 to `most`.
    pub fn count(
        &mut self,
        key: &'static str,
        most: u32,
        report: &mut Report,
    ) -> Option<Spanned<u32>> {
        let number = self.typed(key, "a whole number", report, integer)?;
        match u32::try_from(number.value)
            .ok()
            .filter(|n| (1..=most).contains(n))
        {
            Some(value) => Some(Spanned {
                value,
                span: number.span,
            }),
            None => {
                let text = format!("`{key}` cannot be {}", number.value);
                report
                    .error(0, number.span, text)
                    .help(format!("it is from 1 to {most}"));
                None
            }
        }
    }

    /// A whole number from `least` to `most`.
    pub fn number(
        &mut self,
        key: &'static str,
        least: u64,
        most: u64,
        report: &mut Report,
    ) -> Option<Spanned<u64>> {
        let number = self.typed(key, "a whole number", report, integer)?;
        match u64::try_from(number.value)
            .ok()
            .filter(|n| (least..=most).contains(n))
        {
            Some(value) => Some(Spanned {
                value,
                span: number.span,
            }),
            None => {
                let text = format!("`{key}` cannot be {}", number.value);
                report
                    .error(0, number.span, text)
                    .help(format!("it is from {least} to {most}"));
                None
            }
        }
    }

    /// A duration of whole seconds, from `least` to `most` of them: a text, or their number.
    pub fn seconds(
        &mut self,
        key: &'static str,
        least: u64,
        most: u64,
        report: &mut Report,
    ) -> Option<Spanned<u64>> {
        let found = self.typed(key, "a duration such as \"30s\"", report, |value| {
            let number = value.as_integer().map(|number| number.as_str());
            value.as_str().or(number).map(str::to_owned)
        })?;
        let read = weir_value::whole_seconds(&found.value);
        let wrong = match read {
            Ok(value) if (least..=most).contains(&value) => {
                return Some(Spanned {
                    value,
                    span: found.span,
                });
            }
            Ok(_) => format!("`{key}` cannot be {}", found.value),
            Err(invalid) => invalid.to_string(),
        };
        report
            .error(0, found.span, wrong)
            .help(format!("it is from {least} to {most} seconds"));
        None
    }

    /// Packets per second: a rate, or their number, which may be 0.
    pub fn per_second(&mut self, key: &'static str, report: &mut Report) -> Option<Spanned<u32>> {
        let found = self.typed(key, "a rate such as \"10k/s\"", report, |value| {
            let number = value.as_integer().map(|number| number.as_str());
            value.as_str().or(number).map(str::to_owned)
        })?;
        let read = match found.value.as_str() {
            "0" => Ok(0),
            text => weir_value::rate(text)
                .map_err(|invalid| invalid.to_string())
                .and_then(|rate| {
                    let whole = rate.per_second().and_then(|n| u32::try_from(n).ok());
                    whole.ok_or_else(|| format!("`{key}` cannot be {text}"))
                }),
        };
        match read {
            Ok(value) => Some(Spanned {
                value,
                span: found.span,
            }),
            Err(wrong) => {
                let most = u32::MAX;
                report
                    .error(0, found.span, wrong)
                    .help(format!("it is from 0 to {most} a second, a whole number"));
                None
            }
        }
    }

    /// Texts; one text is a list of one. Empty if the key is absent.
    pub fn texts(&mut self, key: &'static str, report: &mut Report) -> Vec<Spanned<String>> {
        self.known.insert(key);
        let Some(value) = self.table.get(key) else {
            return Vec::new();
        };
        let one = |value: &toml::Spanned<DeValue<'_>>| {
            value.get_ref().as_str().map(|text| Spanned {
                value: text.to_owned(),
                span: span(value.span()),
            })
        };
        if let Some(text) = one(value) {
            return vec![text];
        }
        let Some(list) = value.get_ref().as_array() else {
            wrong_type(key, "a text in quotes or a list of such", value, report);
            return Vec::new();
        };
        let mut texts = Vec::new();
        for value in list {
            match one(value) {
                Some(text) => texts.push(text),
                None => wrong_type(key, "a text in quotes or a list of such", value, report),
            }
        }
        texts
    }

    /// Texts and lists of texts; one text is a list of one. Empty if the key is absent.
    pub fn groups(&mut self, key: &'static str, report: &mut Report) -> Vec<Vec<Spanned<String>>> {
        const WANTED: &str = "a list of texts in quotes or of lists of such";
        self.known.insert(key);
        let Some(value) = self.table.get(key) else {
            return Vec::new();
        };
        let Some(list) = value.get_ref().as_array() else {
            wrong_type(key, WANTED, value, report);
            return Vec::new();
        };
        let mut groups = Vec::new();
        for one in list {
            let texts: Vec<_> = match one.get_ref().as_array() {
                Some(inner) => inner.iter().collect(),
                None => vec![one],
            };
            let mut group = Vec::new();
            for text in texts {
                match text.get_ref().as_str() {
                    Some(value) => group.push(Spanned {
                        value: value.to_owned(),
                        span: span(text.span()),
                    }),
                    None => wrong_type(key, WANTED, text, report),
                }
            }
            groups.push(group);
        }
        groups
    }

    /// Whole numbers up to `most`, and whether they were written as a list. `None` if the key is absent or wrong.
    pub fn numbers(
        &mut self,
        key: &'static str,
        most: u32,
        report: &mut Report,
    ) -> Option<(Vec<Spanned<u32>>, bool)> {
        self.known.insert(key);
        let value = self.table.get(key)?;
        let (list, is_list) = match value.get_ref().as_array() {
            Some(list) => (list.iter().collect(), true),
            None => (vec![value], false),
        };
        let mut numbers = Vec::new();
        for one in list {
            let at = span(one.span());
            match integer(one.get_ref()) {
                None => wrong_type(key, "a whole number or a list of such", one, report),
                Some(number) if (0..=i128::from(most)).contains(&number) => numbers.push(Spanned {
                    value: number as u32,
                    span: at,
                }),
                Some(number) => {
                    report
                        .error(0, at, format!("`{key}` cannot be {number}"))
                        .help(format!("it is from 0 to {most}"));
                }
            }
        }
        Some((numbers, is_list))
    }

    /// Pairs of texts, `{ a = "b" }`.
    pub fn pairs(
        &mut self,
        key: &'static str,
        report: &mut Report,
    ) -> Vec<(Spanned<String>, Spanned<String>)> {
        self.known.insert(key);
        let Some(value) = self.table.get(key) else {
            return Vec::new();
        };
        let Some(table) = value.get_ref().as_table() else {
            wrong_type(
                key,
                "a table of names, as in `{ a = \"b\" }`",
                value,
                report,
            );
            return Vec::new();
        };
        let mut pairs = Vec::new();
        for (name, value) in table {
            match value.get_ref().as_str() {
                Some(text) => pairs.push((
                    Spanned {
                        value: name.get_ref().to_string(),
                        span: span(name.span()),
                    },
                    Spanned {
                        value: text.to_owned(),
                        span: span(value.span()),
                    },
                )),
                None => wrong_type(name.get_ref(), "a text in quotes", value, report),
            }
        }
        pairs
    }

    /// The table `[key]`; `None` if the key is absent, or is something else, which is not reported.
    pub fn table(&mut self, key: &'static str, what: &'static str) -> Option<Section<'a, 'i>> {
        self.known.insert(key);
        let value = self.table.get(key)?;
        Some(Section {
            path: format!("{}{key}.", self.path),
            ..Section::new(what, value.get_ref().as_table()?, span(value.span()))
        })
    }

    /// The tables of `[[key]]`.
    pub fn sections(
        &mut self,
        key: &'static str,
        what: &'static str,
        report: &mut Report,
    ) -> Vec<Section<'a, 'i>> {
        self.known.insert(key);
        let Some(value) = self.table.get(key) else {
            return Vec::new();
        };
        let path = format!("{}{key}", self.path);
        let wanted = format!("written `[[{path}]]`, once for each");
        let Some(list) = value.get_ref().as_array() else {
            let mut at = span(value.span());
            at.end = at.end.min(at.start + 1 + key.len() as u32 + 1);
            report
                .error(0, at, format!("`{key}` is {wanted}"))
                .help(format!("write `[[{path}]]` with two brackets"));
            return Vec::new();
        };
        let mut sections = Vec::new();
        for one in list {
            match one.get_ref().as_table() {
                Some(table) => sections.push(Section {
                    path: format!("{path}."),
                    ..Section::new(what, table, span(one.span()))
                }),
                None => wrong_type(key, &wanted, one, report),
            }
        }
        sections
    }

    /// Reports the keys nobody asked for.
    pub fn finish(self, report: &mut Report) {
        let known: Vec<&str> = self.known.iter().copied().collect();
        for (key, _) in self.table {
            if !self.known.contains(key.get_ref().as_ref()) {
                let text = format!("{} has no key `{}`", self.what, key.get_ref());
                report
                    .error(0, span(key.span()), text)
                    .help(suggest(key.get_ref(), &known));
            }
        }
    }

    /// The keys nobody asked for, with their places: `key`, `key.below`, `key.0`.
    pub fn rest(self, report: &mut Report) -> (toml::Table, BTreeMap<String, Span>) {
        let mut table = toml::Table::new();
        let mut places = BTreeMap::new();
        for (key, value) in self.table {
            let key = key.get_ref();
            if !self.known.contains(key.as_ref()) {
                let value = plain(value, key, &mut places, report);
                table.insert(key.to_string(), value);
            }
        }
        (table, places)
    }

    fn typed<T>(
        &mut self,
        key: &'static str,
        wanted: &str,
        report: &mut Report,
        read: impl FnOnce(&DeValue<'i>) -> Option<T>,
    ) -> Option<Spanned<T>> {
        self.known.insert(key);
        let value = self.table.get(key)?;
        match read(value.get_ref()) {
            Some(read) => Some(Spanned {
                value: read,
                span: span(value.span()),
            }),
            None => {
                wrong_type(key, wanted, value, report);
                None
            }
        }
    }
}

impl Spanned<String> {
    /// What is in front of the first dot, and what is behind it if there is one.
    #[must_use]
    pub fn split(self) -> (Spanned<String>, Option<Spanned<String>>) {
        let out = self.value.split_once('.').map(|(_, out)| Spanned {
            value: out.to_owned(),
            span: self.span,
        });
        let name = self.value.split('.').next().unwrap_or_default().to_owned();
        let name = Spanned {
            value: name,
            span: self.span,
        };
        (name, out)
    }
}

/// The value that a word stands for; one that is not known is reported as `message` and the word.
pub fn one_of<T: Copy>(
    text: Option<Spanned<String>>,
    message: &str,
    known: &[(&str, T)],
    report: &mut Report,
) -> Option<T> {
    let text = text?;
    let found = known.iter().find(|(word, _)| *word == text.value);
    if found.is_none() {
        let words: Vec<&str> = known.iter().map(|(word, _)| *word).collect();
        report
            .error(0, text.span, format!("{message} `{}`", text.value))
            .help(suggest(&text.value, &words));
    }
    found.map(|(_, value)| *value)
}

/// Reports a name that is there already, with the place of the first one.
pub fn taken<'a>(
    seen: &mut BTreeMap<&'a str, Span>,
    name: &'a str,
    at: Span,
    help: &str,
    report: &mut Report,
) {
    match seen.get(name) {
        None => drop(seen.insert(name, at)),
        Some(first) => {
            report
                .error(0, at, format!("`{name}` is declared twice"))
                .help(help)
                .also(0, *first, "the first one");
        }
    }
}

fn integer(value: &DeValue<'_>) -> Option<i128> {
    let number = value.as_integer()?;
    Some(i128::from_str_radix(number.as_str(), number.radix()).unwrap_or(i128::MAX))
}

/// A range of the file.
pub fn span(range: Range<usize>) -> Span {
    Span {
        start: range.start as u32,
        end: range.end as u32,
    }
}

fn wrong_type(key: &str, wanted: &str, value: &toml::Spanned<DeValue<'_>>, report: &mut Report) {
    let found = value.get_ref().type_str();
    let article = if found.starts_with(['a', 'i']) {
        "an"
    } else {
        "a"
    };
    let text = format!("`{key}` is {wanted}, not {article} {found}");
    report.error(0, span(value.span()), text);
}

/// The value without places, which go to `places` under the value's path.
fn plain(
    value: &toml::Spanned<DeValue<'_>>,
    path: &str,
    places: &mut BTreeMap<String, Span>,
    report: &mut Report,
) -> Value {
    let at = span(value.span());
    places.insert(path.to_owned(), at);
    match value.get_ref() {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Value::Integer(number),
            Err(_) => {
                let text = format!("`{path}` cannot be {number}: it has more than 63 bits");
                report.error(0, at, text);
                Value::Integer(0)
            }
        },
        // The grammar of TOML is a part of what Rust reads as a number.
        DeValue::Float(number) => Value::Float(number.as_str().parse().unwrap_or(f64::NAN)),
        DeValue::Boolean(flag) => Value::Boolean(*flag),
        DeValue::Datetime(time) => Value::Datetime(*time),
        DeValue::Array(list) => {
            let below = |(i, one)| plain(one, &format!("{path}.{i}"), places, report);
            Value::Array(list.iter().enumerate().map(below).collect())
        }
        DeValue::Table(table) => {
            let mut out = toml::Table::new();
            for (key, value) in table {
                let key = key.get_ref();
                let value = plain(value, &format!("{path}.{key}"), places, report);
                out.insert(key.to_string(), value);
            }
            Value::Table(out)
        }
    }
}
