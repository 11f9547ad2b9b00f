//! `include "file.weir"`: the files of a policy read into one text.
//!
//! The texts stand behind each other in [`File::text`], so that one offset says which file and which place in it; [`File::parts`] says where
//! each begins. Lines of an included file stand in the tree where the line that includes it stood. Nothing is included twice, so there are no
//! circles, and how deep files lead to others is bounded.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use crate::ast::{File, Include, Item, Part, Span};
use crate::diagnostic::Report;
use crate::parse::parse_part;
use crate::source::{SetLoader, Source};

/// Files that lead to each other.
const MOST_DEPTH: usize = 16;

/// Files of a policy.
const MOST_FILES: usize = 1000;

/// Reads a policy and the files that it includes. What is wrong goes to `report`; the tree then holds what could be read.
pub(crate) fn read(source: &Source, loader: &dyn SetLoader, report: &mut Report) -> File {
    let mut reading = Reading {
        loader,
        text: source.text.clone(),
        parts: vec![Part {
            start: 0,
            end: 0,
            name: Arc::from(source.name.as_str()),
            path: None,
        }],
        open: Vec::new(),
    };
    let items = reading.part(0, report);
    File {
        text: Arc::from(reading.text),
        items,
        parts: reading.parts,
    }
}

struct Reading<'a> {
    loader: &'a dyn SetLoader,
    text: String,
    parts: Vec<Part>,
    /// Files that are being read, outermost first.
    open: Vec<usize>,
}

impl Reading<'_> {
    /// The lines of a file whose text is the last one, and of those that it includes.
    fn part(&mut self, number: usize, report: &mut Report) -> Vec<Item> {
        let Some(part) = self.parts.get_mut(number) else {
            return Vec::new();
        };
        part.end = self.text.len() as u32;
        let lines = parse_part(&self.text, part.start, report);
        if !lines.iter().any(|item| matches!(item, Item::Include(_))) {
            return lines;
        }
        self.open.push(number);
        let mut items = Vec::with_capacity(lines.len());
        for item in lines {
            match item {
                Item::Include(include) => items.extend(self.include(number, include, report)),
                other => items.push(other),
            }
        }
        self.open.pop();
        items
    }

    fn include(&mut self, from: usize, include: Include, report: &mut Report) -> Vec<Item> {
        let at = include.path;
        let written = at.of(&self.text).trim_matches('"').to_owned();
        let path = beside(
            self.parts.get(from).and_then(|p| p.path.as_deref()),
            &written,
        );
        let mut refuse = |message: String, help: &str| {
            report.error(0, at, message).help(help);
            Vec::new()
        };
        if written.contains(['*', '?']) {
            return refuse(
                format!("`{written}` is a pattern, not a file"),
                "write one `include` for each file",
            );
        }
        let is_same = |part: &Part| part.path.as_deref() == Some(path.as_path());
        if let Some(first) = self
            .open
            .iter()
            .position(|&n| self.parts.get(n).is_some_and(is_same))
        {
            let circle = self
                .open
                .iter()
                .skip(first)
                .filter_map(|&n| self.parts.get(n));
            let mut names: Vec<String> = circle.map(|part| format!("`{}`", part.name)).collect();
            names.push(format!("`{}`", path.display()));
            return refuse(
                format!(
                    "files include each other in a circle: {}",
                    names.join(" -> ")
                ),
                "remove one of these lines",
            );
        }
        if self.parts.iter().any(is_same) {
            return refuse(
                format!("`{written}` is included twice"),
                "remove one of the lines: its rules apply to the whole policy",
            );
        }
        if self.open.len() >= MOST_DEPTH {
            return refuse(
                format!("files include each other more than {MOST_DEPTH} deep"),
                "include some of them from the first file",
            );
        }
        if self.parts.len() >= MOST_FILES {
            return refuse(
                format!("a policy has more than {MOST_FILES} files"),
                "join some of them",
            );
        }
        let source = match self.loader.load(&path.display().to_string()) {
            Ok(source) => source,
            Err(error) => {
                return refuse(
                    format!("cannot read `{written}`: {error}"),
                    "paths are relative to the folder of the file that includes",
                );
            }
        };
        // The policy itself has no path; its name is what it was opened by.
        if self
            .parts
            .first()
            .is_some_and(|main| same_file(&main.name, &source.name))
        {
            return refuse(
                format!(
                    "files include each other in a circle: `{}` is the policy itself",
                    source.name
                ),
                "remove this line",
            );
        }
        if u32::try_from(self.text.len() + source.text.len() + 1).is_err() {
            return refuse("the policy is longer than 4 GiB".to_owned(), "split it");
        }
        if !self.text.ends_with('\n') {
            self.text.push('\n');
        }
        let number = self.parts.len();
        self.parts.push(Part {
            start: self.text.len() as u32,
            end: 0,
            name: Arc::from(source.name),
            path: Some(path),
        });
        self.text.push_str(&source.text);
        self.part(number, report)
    }
}

/// A path as written in an included file, from the folder of the policy on.
pub(crate) fn beside(including: Option<&Path>, written: &str) -> PathBuf {
    let folder = including.and_then(Path::parent).unwrap_or(Path::new(""));
    plain(&folder.join(written))
}

fn same_file(a: &str, b: &str) -> bool {
    plain(Path::new(a)) == plain(Path::new(b))
}

/// Without `.` and, where a folder stands in front of it, `..`.
fn plain(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir
                if matches!(out.components().next_back(), Some(Component::Normal(_))) =>
            {
                out.pop();
            }
            other => out.push(other),
        }
    }
    out
}

impl File {
    /// The file that a place is in.
    pub fn part(&self, at: Span) -> Option<&Part> {
        let after = self.parts.partition_point(|part| part.start <= at.start);
        self.parts.get(after.checked_sub(1)?)
    }
}
