//! The tutorial of a Markdown page as steps: all of a page in `docs/tutorials`, of any other the section `## Try it`, up to the next heading of that level.
//!
//! What counts is what a reader sees: a fence of `sh` is typed in; in one of `console` lines with `$` in front are, and those below show what
//! comes out, where `...` stands for anything; every other fence is a file, whose name the sentence in front of it ends with (``Save as
//! `lb.toml`:``). What stands in front of the first heading `Example: ...` prepares the bed; each example begins from there and works by itself.

use std::path::Path;

/// The folder whose pages are tutorials from end to end.
pub(crate) const FOLDER: &str = "docs/tutorials/";
/// The heading of a tutorial in another page.
const HEADING: &str = "## Try it";

/// What a reader does at one place of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// Line of the page, from 1.
    pub(crate) line: usize,
    pub(crate) what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    File { name: String, text: String },
    Command { text: String, shows: Vec<String> },
}

/// A part of a tutorial that works by itself behind the set-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) title: String,
    pub(crate) steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tutorial {
    /// Name of the page, as its path from the root of the project.
    pub(crate) page: String,
    pub(crate) setup: Vec<Step>,
    pub(crate) sections: Vec<Section>,
}

impl Tutorial {
    /// Reads the tutorial of a page of the project.
    pub(crate) fn of(page: &str) -> Tutorial {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .join(page);
        let text = std::fs::read_to_string(&path)
            .unwrap_or_else(|e| panic!("cannot read {}: {e}", path.display()));
        Tutorial::parse(page, &text).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Mistakes are told with page and line.
    pub(crate) fn parse(page: &str, text: &str) -> Result<Tutorial, String> {
        let lines: Vec<&str> = text.lines().collect();
        let mut found = Tutorial {
            page: page.to_owned(),
            setup: Vec::new(),
            sections: Vec::new(),
        };
        let whole = page.starts_with(FOLDER);
        let mut at = match whole {
            true => 0,
            false => {
                1 + heading(&lines).ok_or_else(|| format!("{page}: no section `{HEADING}`"))?
            }
        };
        let mut sentence = "";
        while let Some(&line) = lines.get(at) {
            if !whole && (line.starts_with("## ") || line.starts_with("# ")) {
                break;
            }
            if let Some((_, title)) = line.split_once("## Example: ") {
                found.sections.push(Section {
                    title: title.to_owned(),
                    steps: Vec::new(),
                });
            } else if let Some(language) = line.strip_prefix("```") {
                let body = &lines[at + 1..];
                let length = body
                    .iter()
                    .position(|l| *l == "```")
                    .ok_or_else(|| format!("{page}:{}: the fence is not closed", at + 1))?;
                let steps = fence(language, sentence, at + 2, &body[..length])
                    .map_err(|what| format!("{page}:{}: {what}", at + 1))?;
                match found.sections.last_mut() {
                    Some(section) => section.steps.extend(steps),
                    None => found.setup.extend(steps),
                }
                at += length + 1;
            } else if !line.trim().is_empty() {
                sentence = line;
            }
            at += 1;
        }
        // A tutorial without parts is one part.
        if found.sections.is_empty() {
            let steps = std::mem::take(&mut found.setup);
            let title = "all of it".to_owned();
            found.sections.push(Section { title, steps });
        }
        match found.sections.iter().find(|s| !s.shows_something()) {
            Some(section) => Err(format!("{page}: `{}` shows no result", section.title)),
            None => Ok(found),
        }
    }
}

impl Tutorial {
    /// Whether it makes network namespaces in front of its first command of weir: traps are set there.
    pub(crate) fn has_hosts(&self) -> bool {
        let parts = self.sections.iter().flat_map(|section| &section.steps);
        let steps = self.setup.iter().chain(parts);
        let mut before = steps.take_while(|step| !step.is_weir());
        before.any(
            |step| matches!(&step.what, What::Command { text, .. } if text.contains("ip netns add")),
        )
    }
}

impl Section {
    /// Whether the page says what some command prints: a part without that proves nothing.
    fn shows_something(&self) -> bool {
        self.steps
            .iter()
            .any(|step| matches!(&step.what, What::Command { shows, .. } if !shows.is_empty()))
    }
}

impl Step {
    /// Whether it is a command of weir.
    pub(crate) fn is_weir(&self) -> bool {
        self.words().any(|word| word == "weir")
    }

    /// Whether it is one that tells what is, and which a reader asks again.
    pub(crate) fn asks_weir(&self) -> bool {
        let mut words = self.words().skip_while(|word| *word != "weir").skip(1);
        matches!(
            (words.next(), words.next()),
            (Some("status" | "connections"), _)
                | (Some("service" | "rule" | "route"), Some("list"))
                | (Some("net"), Some("show"))
        )
    }

    /// Whether it goes on in the background.
    pub(crate) fn stays(&self) -> bool {
        matches!(&self.what, What::Command { text, .. } if text.trim_end().ends_with('&'))
    }

    fn words(&self) -> impl Iterator<Item = &str> {
        let text = match &self.what {
            What::Command { text, .. } => text.as_str(),
            What::File { .. } => "",
        };
        text.split_whitespace()
    }
}

/// Line of the tutorial's heading, outside of fences.
fn heading(lines: &[&str]) -> Option<usize> {
    let mut inside = false;
    lines.iter().position(|line| {
        if line.starts_with("```") {
            inside = !inside;
        }
        !inside && *line == HEADING
    })
}

/// Steps of one fence; `line` is that of its first line.
fn fence(language: &str, sentence: &str, line: usize, body: &[&str]) -> Result<Vec<Step>, String> {
    match language.trim() {
        "" => Err("the fence has no language: `sh`, `console`, or that of a file".to_owned()),
        "sh" => Ok(commands(line, body)),
        "console" => console(line, body),
        _ => {
            let name = file_name(sentence).ok_or_else(|| {
                format!("the sentence in front of the file does not end with its name: {sentence}")
            })?;
            let mut text = body.join("\n");
            text.push('\n');
            let what = What::File {
                name: name.to_owned(),
                text,
            };
            Ok(vec![Step { line, what }])
        }
    }
}

/// What stands in backquotes at the end of a sentence.
fn file_name(sentence: &str) -> Option<&str> {
    let sentence = sentence.trim_end().strip_suffix("`:")?;
    let name = &sentence[sentence.rfind('`')? + 1..];
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    (!name.is_empty() && name.chars().all(plain)).then_some(name)
}

fn commands(line: usize, body: &[&str]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut goes_on = false;
    for (at, &text) in body.iter().enumerate() {
        let belongs = goes_on || text.starts_with(' ') || text.starts_with("done");
        goes_on = text.ends_with('\\');
        if text.trim().is_empty() || text.starts_with('#') {
            continue;
        }
        match steps.last_mut().map(|step| &mut step.what) {
            Some(What::Command { text: before, .. }) if belongs => {
                before.push('\n');
                before.push_str(text);
            }
            _ => steps.push(command(line + at, text)),
        }
    }
    steps
}

fn console(line: usize, body: &[&str]) -> Result<Vec<Step>, String> {
    let mut steps: Vec<Step> = Vec::new();
    for (at, &text) in body.iter().enumerate() {
        if let Some(typed) = text.strip_prefix("$ ") {
            steps.push(command(line + at, typed));
            continue;
        }
        match steps.last_mut().map(|step| &mut step.what) {
            Some(What::Command { shows, .. }) => shows.push(text.to_owned()),
            _ => return Err("a console begins with `$ COMMAND`".to_owned()),
        }
    }
    Ok(steps)
}

fn command(line: usize, text: &str) -> Step {
    let what = What::Command {
        text: text.to_owned(),
        shows: Vec::new(),
    };
    Step { line, what }
}

/// Whether a command printed what the page shows. Widths of columns do not count; `...` is any text in a line, and a line of its own is any lines.
pub(crate) fn is_shown(shows: &[String], printed: &str) -> bool {
    let plain = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let shows: Vec<String> = shows.iter().map(|l| plain(l)).collect();
    let printed: Vec<String> = printed.trim_end().lines().map(plain).collect();
    lines_match(&shows, &printed)
}

fn lines_match(shows: &[String], printed: &[String]) -> bool {
    match shows.split_first() {
        None => printed.is_empty(),
        Some((first, rest)) if first == "..." => {
            (0..=printed.len()).any(|skipped| lines_match(rest, &printed[skipped..]))
        }
        Some((first, rest)) => printed
            .split_first()
            .is_some_and(|(line, more)| line_matches(first, line) && lines_match(rest, more)),
    }
}

fn line_matches(shown: &str, line: &str) -> bool {
    let Some((start, rest)) = shown.split_once("...") else {
        return shown == line;
    };
    let Some(line) = line.strip_prefix(start) else {
        return false;
    };
    let ends = |at: usize| line.is_char_boundary(at) && line_matches(rest, &line[at..]);
    (0..=line.len()).any(ends)
}
