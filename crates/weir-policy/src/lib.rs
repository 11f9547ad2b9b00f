//! weir's rule language: text to typed policy, diagnostics, formatting, and the reference semantics.
//!
//! Pure: no kernel, no privilege, no clock. `parse` reads text into [`model::Policy`]; [`mod@reference`] executes
//! a policy over one packet in plain Rust and is the oracle of every engine.
//! What a rule means is stated in docs/semantics.md, how it is written in docs/language.md.

#![warn(clippy::expect_used, clippy::unwrap_used)]

pub mod ast;
mod describe;
pub mod diagnostic;
pub mod dynamic;
pub mod field;
mod filter;
mod flat;
mod fmt;
#[cfg(feature = "generate")]
pub mod generate;
mod include;
mod lexer;
mod lint;
mod lower;
pub mod model;
mod names;
mod parse;
pub mod reference;
mod reject;
mod sets;
mod source;
mod value;
mod words;

pub use describe::describe;
pub use diagnostic::{Diagnostic, Diagnostics, Draft, Report, Severity};
pub use filter::{Filter, FilterError};
pub use flat::{Flat, leads_to_chains};
pub use fmt::{format, format_source, one_line, set_line};
pub use names::names;
pub use source::{FileSets, MAX_BYTES, NoFiles, PolicyError, SetLoader, Source, read_source};
pub use words::nearest;

/// A policy that was read: what it means, how it was written, and what is odd about it.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// What it means.
    pub policy: model::Policy,
    /// How it was written.
    pub ast: ast::File,
    /// What is allowed and probably not meant.
    pub warnings: Diagnostics,
    /// What chains and choices make of the rules, one for each rule of the policy; `None`: rules are those of the text.
    pub flat: Option<Vec<Flat>>,
}

impl Parsed {
    /// The errors and warnings of a later stage about places of the text.
    pub fn finish(&self, name: &str, mut report: Report) -> (Diagnostics, Diagnostics) {
        let mut files = vec![(name, &*self.ast.text)];
        files.extend(parts_of(&self.ast, 1, &mut report));
        report.finish(&files)
    }

    /// Each rule of the policy as it would be written without chains.
    pub fn written(&self) -> Box<dyn Iterator<Item = &ast::Rule> + '_> {
        match &self.flat {
            Some(flat) => Box::new(flat.iter().map(|one| &one.rule)),
            None => Box::new(flat::rules(&self.ast).map(|(_, rule)| rule)),
        }
    }

    /// Each rule of the policy: the number of the rule in the text that it comes from, from 0.
    pub fn sources(&self) -> Box<dyn Iterator<Item = usize> + '_> {
        match &self.flat {
            Some(flat) => Box::new(flat.iter().map(|one| one.of as usize)),
            None => Box::new(0..self.policy.rules.len()),
        }
    }
}

/// Names and texts of included files, which get numbers from `first` on in the report.
fn parts_of<'a>(ast: &'a ast::File, first: u32, report: &mut Report) -> Vec<(&'a str, &'a str)> {
    let included = ast.parts.get(1..).unwrap_or_default();
    report.part(included, first);
    let text_of = |part: &'a ast::Part| {
        let place = ast::Span {
            start: part.start,
            end: part.end,
        };
        (&*part.name, place.of(&ast.text))
    };
    included.iter().map(text_of).collect()
}

/// Reads a policy.
///
/// # Errors
/// All errors of the text and of the set files it names, in the order of the text.
pub fn parse(source: &Source, loader: &dyn SetLoader) -> Result<Parsed, Diagnostics> {
    let mut report = diagnostic::Report::default();
    let ast = include::read(source, loader, &mut report);
    let (policy, flat, set_files) = lower::lower(&ast, loader, &mut report);
    let failed = report.has_errors();
    let mut files = vec![(source.name.as_str(), source.text.as_str())];
    files.extend(set_files.iter().map(|f| (f.name.as_str(), f.text.as_str())));
    let first = files.len() as u32;
    files.extend(parts_of(&ast, first, &mut report));
    let (errors, warnings) = report.finish(&files);
    if failed {
        return Err(errors);
    }
    Ok(Parsed {
        policy,
        ast,
        warnings,
        flat,
    })
}

/// Reads and parses a policy file; set files are found relative to it.
///
/// # Errors
/// The file cannot be read, or its text has errors.
pub fn parse_file(path: impl AsRef<std::path::Path>) -> Result<Parsed, PolicyError> {
    let path = path.as_ref();
    let source = read_source(path)?;
    parse(&source, &FileSets::beside(path)).map_err(PolicyError::Invalid)
}
