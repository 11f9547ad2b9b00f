//! What is wrong with a rule, and where: a span while it is parsed, file, line and column once it is reported.

use std::fmt;

use super::model::SourceLocation;
use super::phrase::Phrase;

/// Sorts of reasons, for counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// The text is not in the form of a rule or of an option.
    Syntax,
    /// A keyword that the dialect does not have.
    Unknown,
    /// A keyword, protocol or value that the language has and this sensor does not.
    Unsupported,
    /// A value out of its range or of the wrong sort.
    Value,
    /// Options that exclude each other.
    Conflict,
    /// A variable that is not defined, or not usable here.
    Variable,
    /// A regular expression that does not compile.
    Expression,
    /// A file that the rule needs.
    File,
    /// Another rule has the number.
    Duplicate,
}

impl Kind {
    /// As reports name it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Syntax => "syntax",
            Kind::Unknown => "unknown keyword",
            Kind::Unsupported => "unsupported",
            Kind::Value => "value",
            Kind::Conflict => "conflict",
            Kind::Variable => "variable",
            Kind::Expression => "expression",
            Kind::File => "file",
            Kind::Duplicate => "duplicate",
        }
    }
}

/// A reason with the bytes of the rule's text that it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    /// First byte.
    pub(super) start: usize,
    /// Byte behind the last.
    pub(super) end: usize,
    pub(super) kind: Kind,
    pub(super) reason: String,
    /// The keyword concerned, for counting.
    pub(super) keyword: Option<String>,
    /// What logs call it, if they have a phrase for it.
    pub(super) phrase: Option<Box<Phrase>>,
}

impl Problem {
    /// The same, with what logs call it; the first phrase stays.
    pub(super) fn called(mut self, phrase: Phrase) -> Problem {
        self.phrase.get_or_insert_with(|| Box::new(phrase));
        self
    }
}

/// What a step of parsing gives.
pub(super) type Parsed<T> = Result<T, Problem>;

/// A rule that was not loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// File and line.
    pub place: SourceLocation,
    /// Column in characters, from 1.
    pub column: u32,
    /// How many characters the reason is about; at least 1.
    pub width: u32,
    /// Its number, if it could be read.
    pub sid: Option<u32>,
    /// Sort of reason.
    pub kind: Kind,
    /// The keyword concerned, if it is one.
    pub keyword: Option<String>,
    /// Why.
    pub reason: String,
    /// What logs call that, if they have a phrase for it.
    pub phrase: Option<Box<Phrase>>,
    /// The line; of a rule that a later revision replaced, its message.
    pub text: String,
}

impl Refused {
    /// What the log of a run says of it: the part that says it, and the message.
    pub fn logged(&self) -> (String, String) {
        match &self.phrase {
            Some(phrase) => (phrase.module(), phrase.text(self.sid.unwrap_or(0))),
            None => {
                let word = self.keyword.as_deref().unwrap_or("parse");
                let module = format!("detect-{}", word.replace(['.', '_'], "-"));
                (module, self.reason.clone())
            }
        }
    }

    /// It is not in error: it asks for another sensor, or a later revision took its place.
    pub fn is_skipped(&self) -> bool {
        match self.keyword.as_deref() {
            Some("requires") => true,
            Some("rev") => self.kind == Kind::Duplicate,
            _ => false,
        }
    }

    /// What equal reasons have in common: sort and keyword.
    pub fn class(&self) -> String {
        match &self.keyword {
            Some(word) => format!("{}: {word}", self.kind.name()),
            None => self.kind.name().to_owned(),
        }
    }

    /// The reason with the line below it and carets under the part that it is about. Long lines are cut to what surrounds it.
    pub fn explain(&self) -> String {
        const BEFORE: usize = 60;
        const AFTER: usize = 60;
        let characters: Vec<char> = self.text.chars().collect();
        let at = (self.column as usize - 1).min(characters.len());
        let width = (self.width as usize).clamp(1, AFTER);
        let from = at.saturating_sub(BEFORE);
        let to = (at + width + AFTER / 2).min(characters.len());
        let head = if from > 0 { "..." } else { "" };
        let tail = if to < characters.len() { "..." } else { "" };
        // Control characters would move the carets.
        let shown: String = characters[from..to]
            .iter()
            .map(|c| if c.is_control() { ' ' } else { *c })
            .collect();
        let margin = " ".repeat(self.place.line.to_string().len());
        let indent = " ".repeat(head.len() + at - from);
        let carets = "^".repeat(width);
        format!(
            "{self}\n{} | {head}{shown}{tail}\n{margin} | {indent}{carets}",
            self.place.line
        )
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SourceLocation { file, line } = &self.place;
        write!(f, "{file}:{line}:{}: ", self.column)?;
        if let Some(sid) = self.sid {
            write!(f, "rule {sid}: ")?;
        }
        f.write_str(&self.reason)
    }
}
