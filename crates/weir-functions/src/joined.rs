//! A configuration or document and the files that it includes, as one text.
//!
//! Included files consist of sections, and TOML puts sections of one name into one list wherever they stand. So the texts are put one behind the
//! other, and one reader reads them as one file. Places are found again by where each file begins.

use std::io;

use serde::{Deserialize, Serialize};
use toml::de::{DeTable, DeValue};
use weir_policy::ast::{Part, Span};
use weir_policy::{Diagnostics, Report};

use crate::read::{Section, span};

/// Tables that are not lists of sections, and that an included file may fill.
const TABLES: [&str; 1] = ["networks"];

/// The text of a file with the texts of the files that it includes, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Joined {
    /// What messages call the file, usually its path.
    pub name: String,
    /// The whole text. It includes nothing: where `include` stood are spaces.
    pub text: String,
    /// Where included files begin in it.
    pub included: Vec<Included>,
}

/// A file within the text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Included {
    name: String,
    /// Where it begins; it ends where the next one begins.
    start: u32,
}

impl Joined {
    /// A text that includes nothing.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Joined {
        Joined {
            name: name.into(),
            text: text.into(),
            included: Vec::new(),
        }
    }

    /// Puts the files that `include = "FILE"` or `include = ["FILE", ...]` names behind the text. `load` reads one, and says what messages call it.
    ///
    /// # Errors
    /// A file cannot be read, is not TOML, or contains something else than sections.
    pub fn read(
        name: &str,
        text: String,
        load: &mut dyn FnMut(&str) -> io::Result<(String, String)>,
    ) -> Result<Joined, Diagnostics> {
        let mut report = Report::default();
        let (table, errors) = DeTable::parse_recoverable(&text);
        let mut keys = table.get_ref().iter();
        let place = keys
            .find(|(key, _)| key.get_ref() == "include")
            .map(|(key, value)| key.span().start..value.span().end);
        // Whoever reads the sections reports what is not TOML.
        let Some(place) = place.filter(|_| errors.is_empty()) else {
            drop((table, errors));
            return Ok(Joined::new(name, text));
        };
        let mut root = Section::new("the file", table.get_ref(), Span::default());
        let files = root.texts("include", &mut report);
        let blank = |c: char| if c == '\n' { c } else { ' ' };
        let old = text.get(place.clone()).unwrap_or_default();
        // One space for each byte: what stands behind keeps its place.
        let new: String = old
            .chars()
            .flat_map(|c| std::iter::repeat_n(blank(c), c.len_utf8()))
            .collect();
        let mut joined = Joined::new(name, text.clone());
        joined.text.replace_range(place, &new);
        let mut texts = Vec::new();
        for file in files {
            match load(&file.value) {
                Ok((name, text)) => {
                    let number = texts.len() as u32 + 1;
                    let fits = joined.text.len() + text.len() < u32::MAX as usize;
                    if !fits {
                        report.error(0, file.span, "files of 4 GiB or more are not read");
                    } else if check(&text, &name, number, &mut report) {
                        joined.push(name.clone(), &text);
                    }
                    texts.push((name, text));
                }
                Err(error) => {
                    let why = format!("cannot read `{}`: {error}", file.value);
                    report.error(0, file.span, why);
                }
            }
        }
        if !report.has_errors() {
            return Ok(joined);
        }
        let mut named = vec![(name, text.as_str())];
        named.extend(
            texts
                .iter()
                .map(|(name, text)| (name.as_str(), text.as_str())),
        );
        Err(report.finish(&named).0)
    }

    fn push(&mut self, name: String, text: &str) {
        self.text.push('\n');
        let start = self.text.len() as u32;
        self.text.push_str(text);
        self.included.push(Included { name, start });
    }

    /// The text as TOML; `None`: it is not TOML, which was reported. Nothing is returned behind a syntax error: sections that
    /// are there would seem to be missing.
    pub fn table(&self, report: &mut Report) -> Option<toml::Spanned<DeTable<'_>>> {
        if self.text.len() >= u32::MAX as usize {
            report.error(0, Span::default(), "files of 4 GiB or more are not read");
            return None;
        }
        let (table, errors) = DeTable::parse_recoverable(&self.text);
        not_toml(&errors, 0, report);
        errors.is_empty().then_some(table)
    }

    /// The errors and the warnings of a report on this text, each with its file and line. `texts` are names and texts of other files, which have
    /// the numbers from 1 on in the report.
    pub fn finish(
        &self,
        mut report: Report,
        texts: &[(String, String)],
    ) -> (Diagnostics, Diagnostics) {
        let parts = self.parts();
        report.part(&parts, texts.len() as u32 + 1);
        let mut named = vec![(self.name.as_str(), self.text.as_str())];
        named.extend(
            texts
                .iter()
                .map(|(name, text)| (name.as_str(), text.as_str())),
        );
        named.extend(parts.iter().map(|part| {
            let text = self.text.get(part.start as usize..part.end as usize);
            (&*part.name, text.unwrap_or_default())
        }));
        report.finish(&named)
    }

    fn parts(&self) -> Vec<Part> {
        let ends = self.included.iter().skip(1).map(|next| next.start);
        let ends = ends.chain([self.text.len() as u32]);
        let parts = self.included.iter().zip(ends);
        parts
            .map(|(one, end)| Part {
                start: one.start,
                end,
                name: one.name.as_str().into(),
                path: None,
            })
            .collect()
    }

    /// The same files with a text that was changed in one place.
    #[must_use]
    pub fn with_text(&self, text: String) -> Joined {
        let same = self.text.bytes().zip(text.bytes());
        let changed = same.take_while(|(old, new)| old == new).count() as u32;
        let (old, new) = (self.text.len() as i64, text.len() as i64);
        let moved = |at: u32| match at > changed {
            true => (i64::from(at) + new - old).clamp(0, new) as u32,
            false => at,
        };
        Joined {
            name: self.name.clone(),
            included: (self.included.iter())
                .map(|one| Included {
                    name: one.name.clone(),
                    start: moved(one.start),
                })
                .collect(),
            text,
        }
    }
}

/// Whether an included file consists of sections; what else it holds is reported as of the file of that number.
fn check(text: &str, name: &str, number: u32, report: &mut Report) -> bool {
    let (table, errors) = DeTable::parse_recoverable(text);
    not_toml(&errors, number, report);
    if !errors.is_empty() {
        return false;
    }
    let mut holds = true;
    for (key, value) in table.get_ref() {
        let word = key.get_ref();
        let is_list = |value: &DeValue<'_>| {
            let list = value.as_array();
            list.is_some_and(|list| list.iter().all(|one| one.get_ref().is_table()))
        };
        let is_table = TABLES.contains(&word.as_ref()) && value.get_ref().is_table();
        if is_table || is_list(value.get_ref()) {
            continue;
        }
        holds = false;
        let at = span(key.span());
        match word.as_ref() {
            "include" => report
                .error(number, at, format!("`{name}` is included and cannot include files"))
                .help("name all files in the one that is applied"),
            _ => report
                .error(
                    number,
                    at,
                    format!("an included file holds sections, and `{word}` is none"),
                )
                .help(format!(
                    "write `[[{word}]]` above its keys if it is one, or move it to the file that includes this one"
                )),
        };
    }
    holds
}

fn not_toml(errors: &[toml::de::Error], file: u32, report: &mut Report) {
    for error in errors {
        let place = error.span().map_or(Span::default(), span);
        report.error(
            file,
            place,
            format!("this is not TOML: {}", error.message()),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Joins texts by their names.
    fn joined(text: &str, files: &[(&str, &str)]) -> Result<Joined, Diagnostics> {
        Joined::read("edge.toml", text.to_owned(), &mut |wanted| {
            let found = files.iter().find(|(name, _)| *name == wanted);
            let (name, text) = found.ok_or(io::ErrorKind::NotFound)?;
            Ok(((*name).to_owned(), (*text).to_owned()))
        })
    }

    #[test]
    fn sections_of_all_files_are_one_list() {
        let main = "edge = 'e'\ninclude = [\n  'a.toml', # é\n  'b.toml',\n]\n[[port]]\nname = 'p'";
        let whole = joined(
            main,
            &[
                ("a.toml", "[[port]]\nname = 'q'\n[port.deep]\nx = 1"),
                (
                    "b.toml",
                    "[networks]\nversion = 2\n[[networks.network]]\nname = 'n'\n",
                ),
            ],
        )
        .expect("right");
        assert!(whole.text.starts_with("edge = 'e'\n         "), "{whole:?}");
        let table: toml::Table = whole.text.parse().expect("TOML");
        assert!(!table.contains_key("include"));
        assert_eq!(table["port"].as_array().expect("a list").len(), 2);
        assert_eq!(table["networks"]["version"].as_integer(), Some(2));
        // Read again, it is what it is.
        let again = Joined::read("edge.toml", whole.text.clone(), &mut |_| unreachable!());
        assert_eq!(again.expect("right").text, whole.text);
    }

    #[test]
    fn places_are_those_of_the_files() {
        let files = [
            ("a.toml", "[[port]]\nname = 'q'\n"),
            ("b.toml", "[[map]]\nname = 'm'\n"),
        ];
        let whole = joined(
            "include = ['a.toml', 'b.toml']\n[[port]]\nname = 'p'\n",
            &files,
        );
        let whole = whole.expect("right");
        let told = |whole: &Joined| {
            let mut report = Report::default();
            for word in ["'p'", "'q'", "'m'"] {
                let at = whole.text.find(word).expect("it is there");
                report.error(0, span(at..at + 3), word);
            }
            let (errors, _) = whole.finish(report, &[("policy.weir".into(), String::new())]);
            let places = errors.iter();
            places
                .map(|one| format!("{}:{}:{} {}", one.file, one.line, one.column, one.message))
                .collect::<Vec<_>>()
        };
        let expected = ["edge.toml:3:8 'p'", "a.toml:2:8 'q'", "b.toml:2:8 'm'"];
        assert_eq!(told(&whole), expected);
        // A line more in the first file, a word less in the second.
        let edited = whole.with_text(whole.text.replace("name = 'p'", "mtu = 9\nname = 'p'"));
        assert_eq!(
            told(&edited),
            ["edge.toml:4:8 'p'", expected[1], expected[2]]
        );
        let edited = whole.with_text(whole.text.replace("name = 'q'", "n = 'q'"));
        assert_eq!(told(&edited), [expected[0], "a.toml:2:5 'q'", expected[2]]);
    }

    #[test]
    fn what_is_no_section_is_refused_where_it_stands() {
        for (text, said) in [
            (
                "edge = 'e'\n",
                "an included file holds sections, and `edge` is none",
            ),
            (
                "[port]\nname = 'p'\n",
                "an included file holds sections, and `port` is none",
            ),
            (
                "# deep\n[[port.deep]]\n",
                "an included file holds sections, and `port` is none",
            ),
            (
                "ports = [1]\n",
                "an included file holds sections, and `ports` is none",
            ),
            (
                "include = 'b.toml'\n",
                "`a.toml` is included and cannot include files",
            ),
            ("[[port]\n", "this is not TOML"),
        ] {
            let found = joined("include = 'a.toml'\n", &[("a.toml", text)]);
            let found = found.expect_err("it is refused");
            let first = found.iter().next().expect("a reason");
            assert!(first.message.contains(said), "{text}: {}", first.message);
            assert_eq!(first.file, "a.toml", "{text}");
        }
        let absent = joined("x = 1\ninclude = ['none.toml']\n", &[]).expect_err("absent");
        let first = absent.iter().next().expect("a reason");
        assert_eq!((first.file.as_str(), first.line), ("edge.toml", 2));
        assert!(first.message.contains("cannot read `none.toml`"));
        let wrong = joined("include = 7\n", &[]).expect_err("a number");
        assert!(
            wrong
                .iter()
                .next()
                .expect("a reason")
                .message
                .contains("`include` is a text")
        );
    }
}
