//! Errors and warnings about text that people write (policies, and the configuration of an edge): where, what, and what to
//! do about it.
//!
//! A [`Diagnostics`] is complete in itself: it keeps the lines it points at, so it can be rendered after the source is
//! gone. Lines and columns count from 1; columns count characters.

use std::fmt;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

use crate::ast::{Part, Span};

/// Most diagnostics kept; what is beyond is only counted.
const MAX_KEPT: usize = 1000;

/// Most bytes shown in front of a place, and from its start on.
const MAX_CONTEXT: usize = 2000;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The policy is refused.
    Error,
    /// The policy is accepted, and probably not what was meant.
    Warning,
}

impl Severity {
    /// `error` or `warning`.
    pub fn text(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        }
    }
}

/// One error or warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Error or warning.
    pub severity: Severity,
    /// File that holds the place: the policy, or a set file.
    pub file: String,
    /// Line of the place, from 1.
    pub line: u32,
    /// Column of the place in characters, from 1.
    pub column: u32,
    /// What is wrong, in one line.
    pub message: String,
    /// What was expected, or what to write instead.
    pub help: Option<String>,
    places: Vec<Place>,
}

/// A marked piece of one or more lines, with those lines.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    file: String,
    line: u32,
    /// In the file, not in `text`.
    column: u32,
    text: String,
    start: usize,
    end: usize,
    label: String,
}

impl Place {
    fn is_beside(&self, other: &Place) -> bool {
        self.file == other.file && self.line == other.line && self.text == other.text
    }
}

/// All that was found in a policy, in the order of the text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnostics {
    list: Vec<Diagnostic>,
    omitted: usize,
}

impl Diagnostics {
    /// Whether there is nothing to say.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// How many there are, those left out for being too many included.
    pub fn len(&self) -> usize {
        self.list.len() + self.omitted
    }

    /// Each of them, in the order of the text.
    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.list.iter()
    }

    /// For a terminal: message, file, line, marked source and help of each. Ends with a line feed unless empty.
    pub fn render(&self, colour: bool) -> String {
        let renderer = if colour {
            Renderer::styled()
        } else {
            Renderer::plain()
        };
        let mut out = String::new();
        for diagnostic in &self.list {
            out.push_str(&diagnostic.render(&renderer));
            out.push('\n');
        }
        if self.omitted > 0 {
            out.push_str(&format!("... and {} more\n", self.omitted));
        }
        out
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.render(false).trim_end())
    }
}

impl std::error::Error for Diagnostics {}

impl<'a> IntoIterator for &'a Diagnostics {
    type Item = &'a Diagnostic;
    type IntoIter = std::slice::Iter<'a, Diagnostic>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl Diagnostic {
    fn render(&self, renderer: &Renderer) -> String {
        let level = match self.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let mut group = Group::with_title(level.primary_title(self.message.as_str()));
        let mut rest = self.places.as_slice();
        while let Some((first, others)) = rest.split_first() {
            // Places on the same lines share one excerpt.
            let same = others.iter().take_while(|p| p.is_beside(first)).count();
            let mut snippet = Snippet::source(first.text.as_str())
                .line_start(first.line as usize)
                .path(first.file.as_str());
            for (i, place) in std::iter::once(first).chain(&others[..same]).enumerate() {
                let is_primary = i == 0 && rest.len() == self.places.len();
                let kind = if is_primary {
                    AnnotationKind::Primary
                } else {
                    AnnotationKind::Context
                };
                let mut annotation = kind.span(place.start..place.end);
                if !place.label.is_empty() {
                    annotation = annotation.label(place.label.as_str());
                }
                snippet = snippet.annotation(annotation);
            }
            group = group.element(snippet);
            rest = &others[same..];
        }
        if let Some(help) = &self.help {
            group = group.element(Level::HELP.message(help.as_str()));
        }
        renderer.render(&[group])
    }
}

/// What was found, before lines and columns are known.
#[derive(Debug)]
pub struct Draft {
    severity: Severity,
    file: u32,
    span: Span,
    message: String,
    label: String,
    help: Option<String>,
    also: Vec<(u32, Span, String)>,
}

impl Draft {
    /// Says what was expected or what to write instead.
    pub fn help(&mut self, help: impl Into<String>) -> &mut Draft {
        self.help = Some(help.into());
        self
    }

    /// Says something at the marked place.
    pub fn label(&mut self, label: impl Into<String>) -> &mut Draft {
        self.label = label.into();
        self
    }

    /// Marks another place, in file number `file`.
    pub fn also(&mut self, file: u32, span: Span, label: impl Into<String>) -> &mut Draft {
        self.also.push((file, span, label.into()));
        self
    }
}

/// Collects what is found while parsing. File 0 is the text itself, others are files it names.
#[derive(Debug, Default)]
pub struct Report {
    drafts: Vec<Draft>,
    errors: usize,
    warnings: usize,
    omitted_errors: usize,
    omitted_warnings: usize,
    /// Takes what no longer fits, so that callers need not care.
    spill: Option<Draft>,
}

/// How much a report held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    drafts: usize,
    counts: [usize; 4],
}

impl Report {
    /// Whether an error was reported.
    pub fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// Whether an error was reported at a place inside this one.
    pub fn has_error_in(&self, file: u32, span: Span) -> bool {
        let is_inside = |d: &Draft| {
            d.severity == Severity::Error
                && d.file == file
                && (span.start..=span.end).contains(&d.span.start)
        };
        self.errors > 0 && self.drafts.iter().any(is_inside)
    }

    /// How many errors were reported.
    pub fn errors(&self) -> usize {
        self.errors + self.omitted_errors
    }

    /// A place to go back to with [`Report::take_back`].
    pub(crate) fn mark(&self) -> Mark {
        Mark {
            drafts: self.drafts.len(),
            counts: [
                self.errors,
                self.warnings,
                self.omitted_errors,
                self.omitted_warnings,
            ],
        }
    }

    /// Forgets what was reported since a mark.
    pub(crate) fn take_back(&mut self, mark: Mark) {
        self.drafts.truncate(mark.drafts);
        [
            self.errors,
            self.warnings,
            self.omitted_errors,
            self.omitted_warnings,
        ] = mark.counts;
    }

    /// Forgets what was reported since a mark and before it as well: the same words were looked at twice.
    pub(crate) fn forget_repeats(&mut self, mark: Mark) {
        let at = mark.drafts.min(self.drafts.len());
        let new = self.drafts.split_off(at);
        for draft in new {
            let same = |old: &Draft| {
                (old.severity, old.file, old.span, old.message.as_str())
                    == (
                        draft.severity,
                        draft.file,
                        draft.span,
                        draft.message.as_str(),
                    )
            };
            if !self.drafts.iter().any(same) {
                self.drafts.push(draft);
                continue;
            }
            match draft.severity {
                Severity::Error => self.errors -= 1,
                Severity::Warning => self.warnings -= 1,
            }
        }
    }

    /// Warnings about the text itself since a mark: places and what they say.
    pub(crate) fn warnings_since(&self, mark: Mark) -> impl Iterator<Item = (Span, &str)> {
        let of_text = |d: &&Draft| d.severity == Severity::Warning && d.file == 0;
        let drafts = self.drafts.iter().skip(mark.drafts).filter(of_text);
        drafts.map(|d| (d.span, d.message.as_str()))
    }

    /// Keeps of them those that `keep` is true of.
    pub(crate) fn keep_warnings_since(
        &mut self,
        mark: Mark,
        mut keep: impl FnMut(Span, &str) -> bool,
    ) {
        let before = self.drafts.len();
        let mut at = 0;
        self.drafts.retain(|d| {
            at += 1;
            at <= mark.drafts
                || d.severity != Severity::Warning
                || d.file != 0
                || keep(d.span, &d.message)
        });
        self.warnings -= before - self.drafts.len();
    }

    /// Marks one more place in everything that was reported since a mark.
    pub(crate) fn also_since(&mut self, mark: Mark, span: Span, label: &str) {
        for draft in self.drafts.iter_mut().skip(mark.drafts) {
            draft.also(0, span, label);
        }
    }

    /// Reports an error in file number `file`.
    pub fn error(&mut self, file: u32, span: Span, message: impl Into<String>) -> &mut Draft {
        self.push(Severity::Error, file, span, message.into())
    }

    /// Reports a warning in file number `file`.
    pub fn warning(&mut self, file: u32, span: Span, message: impl Into<String>) -> &mut Draft {
        self.push(Severity::Warning, file, span, message.into())
    }

    fn push(&mut self, severity: Severity, file: u32, span: Span, message: String) -> &mut Draft {
        let draft = Draft {
            severity,
            file,
            span,
            message,
            label: String::new(),
            help: None,
            also: Vec::new(),
        };
        let (kept, omitted) = match severity {
            Severity::Error => (&mut self.errors, &mut self.omitted_errors),
            Severity::Warning => (&mut self.warnings, &mut self.omitted_warnings),
        };
        if *kept >= MAX_KEPT {
            *omitted += 1;
            return self.spill.insert(draft);
        }
        *kept += 1;
        let at = self.drafts.len();
        self.drafts.push(draft);
        &mut self.drafts[at]
    }

    /// Gives what was reported of included files, which stand behind the text, to files of their own: numbers from `first` on.
    pub fn part(&mut self, included: &[Part], first: u32) {
        let place = |file: &mut u32, span: &mut Span| {
            let after = included.partition_point(|part| part.start <= span.start);
            if let (0, Some(n)) = (*file, after.checked_sub(1))
                && let Some(part) = included.get(n)
            {
                *file = first + n as u32;
                span.start -= part.start;
                span.end = span.end.saturating_sub(part.start);
            }
        };
        for draft in &mut self.drafts {
            place(&mut draft.file, &mut draft.span);
            for (file, span, _) in &mut draft.also {
                place(file, span);
            }
        }
    }

    /// The errors and the warnings, with lines. `files` are (name, text) by file number.
    pub fn finish(mut self, files: &[(&str, &str)]) -> (Diagnostics, Diagnostics) {
        self.drafts
            .sort_by_key(|d| (d.file, d.span.start, d.severity == Severity::Warning));
        let mut lines: Vec<Option<Vec<u32>>> = vec![None; files.len()];
        let mut errors = Diagnostics {
            list: Vec::new(),
            omitted: self.omitted_errors,
        };
        let mut warnings = Diagnostics {
            list: Vec::new(),
            omitted: self.omitted_warnings,
        };
        for draft in self.drafts {
            let mut places = Vec::with_capacity(1 + draft.also.len());
            places.extend(place(
                files,
                &mut lines,
                draft.file,
                draft.span,
                draft.label,
            ));
            for (file, span, label) in draft.also {
                places.extend(place(files, &mut lines, file, span, label));
            }
            let (file, line, column) = match places.first() {
                Some(p) => (p.file.clone(), p.line, p.column),
                None => (String::new(), 1, 1),
            };
            let list = match draft.severity {
                Severity::Error => &mut errors.list,
                Severity::Warning => &mut warnings.list,
            };
            list.push(Diagnostic {
                severity: draft.severity,
                file,
                line,
                column,
                message: draft.message,
                help: draft.help,
                places,
            });
        }
        (errors, warnings)
    }
}

/// Cuts the lines that hold `span` out of its file.
fn place(
    files: &[(&str, &str)],
    lines: &mut [Option<Vec<u32>>],
    file: u32,
    span: Span,
    label: String,
) -> Option<Place> {
    let (name, text) = files.get(file as usize)?;
    let starts = lines[file as usize].get_or_insert_with(|| {
        let breaks = text.bytes().enumerate().filter(|&(_, b)| b == b'\n');
        std::iter::once(0)
            .chain(breaks.map(|(i, _)| i as u32 + 1))
            .collect()
    });
    let start = text.floor_char_boundary((span.start as usize).min(text.len()));
    let end = text.ceil_char_boundary((span.end as usize).clamp(start, text.len()));
    let line = starts
        .partition_point(|&s| s as usize <= start)
        .saturating_sub(1);
    let line_start = starts[line] as usize;
    let line_end = text[end..].find('\n').map_or(text.len(), |i| end + i);
    // A line without end would be kept once for each of its errors.
    let from = text.ceil_char_boundary(line_start.max(start.saturating_sub(MAX_CONTEXT)));
    let to = text.floor_char_boundary(line_end.min(start + MAX_CONTEXT));
    let shown = text[from..to].trim_end_matches('\r');
    Some(Place {
        file: (*name).to_owned(),
        line: line as u32 + 1,
        column: text[line_start..start].chars().count() as u32 + 1,
        text: shown.to_owned(),
        start: (start - from).min(shown.len()),
        end: (end - from).min(shown.len()),
        label,
    })
}
