//! Lines, words and macros of pf.conf.

use std::collections::BTreeMap;

/// Longest line after macros, in bytes.
const MAX_LINE: usize = 1 << 16;

/// Lines without comments, with their numbers; a `\` joins the next one, and braces go on over lines.
pub(super) fn logical_lines(text: &str) -> Vec<(u32, String)> {
    let mut out: Vec<(u32, String)> = Vec::new();
    let mut open: Option<(u32, String)> = None;
    let mut depth = 0i32;
    for (number, raw) in (1u32..).zip(text.lines()) {
        let code = without_comment(raw);
        let code = code.trim_end();
        let goes_on = code.ends_with('\\');
        let part = code.trim_end_matches('\\').trim();
        depth += part.matches('{').count() as i32 - part.matches('}').count() as i32;
        match &mut open {
            Some((_, line)) => {
                line.push(' ');
                line.push_str(part);
            }
            None => open = Some((number, part.to_owned())),
        }
        if !goes_on && depth <= 0 {
            depth = 0;
            out.extend(open.take().filter(|(_, line)| !line.is_empty()));
        }
    }
    out.extend(open.filter(|(_, line)| !line.is_empty()));
    out
}

fn without_comment(line: &str) -> &str {
    let mut quoted = false;
    for (at, c) in line.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '#' if !quoted => return line.get(..at).unwrap_or_default(),
            _ => {}
        }
    }
    line
}

/// `name = value`
pub(super) fn definition(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once('=')?;
    let name = name.trim();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    (!name.is_empty() && name.chars().all(is_name)).then_some((name, value.trim()))
}

/// Puts values in the place of `$name`, and takes quotes off.
pub(super) fn expand(text: &str, macros: &BTreeMap<String, String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['$', '"']) {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let after = from.get(1..).unwrap_or_default();
        if from.starts_with('"') {
            out.push(' ');
            rest = after;
            continue;
        }
        let end = after
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(after.len());
        let (name, behind) = after.split_at(end);
        match macros.get(name) {
            Some(value) if out.len() < MAX_LINE => out.push_str(value),
            _ => {
                out.push('$');
                out.push_str(name);
            }
        }
        rest = behind;
    }
    out.push_str(rest);
    out
}

/// Words; braces, parentheses, commas, `!` and signs of comparison stand alone.
pub(super) fn split(line: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let mut word = String::new();
    let mut characters = line.chars().peekable();
    let end = |word: &mut String, out: &mut Vec<String>| {
        if !word.is_empty() {
            out.push(std::mem::take(word));
        }
    };
    while let Some(c) = characters.next() {
        match c {
            c if c.is_whitespace() => end(&mut word, &mut out),
            '{' | '}' | '(' | ')' | ',' => {
                end(&mut word, &mut out);
                out.push(c.to_string());
            }
            // `<table>`
            '<' if characters
                .peek()
                .is_some_and(|c| c.is_ascii_alphabetic() || *c == '_') =>
            {
                end(&mut word, &mut out);
                word.push('<');
                for c in characters.by_ref() {
                    word.push(c);
                    if c == '>' || c.is_whitespace() {
                        break;
                    }
                }
                end(&mut word, &mut out);
            }
            '-' if word.is_empty() && characters.peek() == Some(&'>') => {
                characters.next();
                out.push("->".to_owned());
            }
            '<' | '>' | '=' | '!' => {
                end(&mut word, &mut out);
                let mut sign = c.to_string();
                if c != '='
                    && let Some(next) = characters.next_if(|c| matches!(c, '<' | '>' | '='))
                {
                    if c == '!' && next != '=' {
                        // `!<table>`
                        out.push(sign);
                        sign = String::new();
                        word.push(next);
                        for c in characters.by_ref() {
                            word.push(c);
                            if c == '>' || c.is_whitespace() {
                                break;
                            }
                        }
                        end(&mut word, &mut out);
                    } else {
                        sign.push(next);
                    }
                }
                if !sign.is_empty() {
                    out.push(sign);
                }
            }
            c => word.push(c),
        }
    }
    end(&mut word, &mut out);
    out
}
