//! Text to tokens.

use std::collections::BTreeMap;

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Word,
    /// In quotes, which are gone.
    Text,
    Open,
    Close,
    Comma,
    /// `==`, `!=`, `<`, `&`, `|`, `(`, `)`, `=`
    Sign,
    /// End of a line, or `;`.
    End,
}

/// A token and its line.
#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) text: String,
    pub(super) line: u32,
}

/// All tokens of a text.
pub(super) fn lines(text: &str) -> Vec<Token> {
    let mut out = Vec::new();
    let mut line = 1u32;
    let mut rest = text.char_indices().peekable();
    while let Some((at, c)) = rest.next() {
        let mut push = |kind, text: &str| {
            out.push(Token {
                kind,
                text: text.to_owned(),
                line,
            });
        };
        match c {
            '\n' => {
                push(Kind::End, "");
                line = line.saturating_add(1);
            }
            ';' => push(Kind::End, ""),
            '#' => while rest.next_if(|&(_, c)| c != '\n').is_some() {},
            '\\' if rest.next_if(|&(_, c)| c == '\n').is_some() => line = line.saturating_add(1),
            '{' => push(Kind::Open, "{"),
            '}' => push(Kind::Close, "}"),
            ',' => push(Kind::Comma, ","),
            '(' | ')' | '&' | '|' => push(Kind::Sign, &c.to_string()),
            '=' | '!' | '<' | '>' => {
                let mut sign = c.to_string();
                while let Some((_, c)) = rest.next_if(|&(_, c)| matches!(c, '=' | '<' | '>')) {
                    sign.push(c);
                }
                push(Kind::Sign, &sign);
            }
            '"' => {
                let mut end = text.len();
                for (at, c) in rest.by_ref() {
                    if c == '"' || c == '\n' {
                        end = at;
                        break;
                    }
                }
                push(Kind::Text, text.get(at + 1..end).unwrap_or_default());
            }
            c if c.is_whitespace() => {}
            _ => {
                let in_word = |c: char| {
                    !c.is_whitespace()
                        && !matches!(
                            c,
                            '{' | '}'
                                | ','
                                | ';'
                                | '('
                                | ')'
                                | '&'
                                | '|'
                                | '='
                                | '!'
                                | '<'
                                | '>'
                                | '"'
                                | '#'
                        )
                };
                let mut end = at + c.len_utf8();
                while let Some((at, c)) = rest.next_if(|&(_, c)| in_word(c)) {
                    end = at + c.len_utf8();
                }
                push(Kind::Word, text.get(at..end).unwrap_or_default());
            }
        }
    }
    out
}

/// Most tokens that variables may become.
const MAX_GROWTH: usize = 50_000;

/// Puts values in the place of `$NAME`.
pub(super) fn substitute(tokens: &[Token], variables: &BTreeMap<String, Vec<Token>>) -> Vec<Token> {
    let mut out = Vec::with_capacity(tokens.len());
    for token in tokens {
        let value = token
            .text
            .strip_prefix('$')
            .filter(|_| token.kind == Kind::Word)
            .and_then(|name| variables.get(name));
        match value {
            Some(value) if out.len() < MAX_GROWTH => out.extend(value.iter().map(|one| Token {
                line: token.line,
                ..one.clone()
            })),
            _ => out.push(token.clone()),
        }
    }
    out
}

/// Tokens as one line.
pub(super) fn text_of(tokens: &[Token]) -> String {
    let mut out = String::new();
    for token in tokens {
        if token.kind == Kind::End {
            continue;
        }
        if !out.is_empty() && token.kind != Kind::Comma {
            out.push(' ');
        }
        match token.kind {
            Kind::Text => {
                out.push('"');
                out.push_str(&token.text);
                out.push('"');
            }
            _ => out.push_str(&token.text),
        }
    }
    out
}
