//! Text to tokens, one logical line at a time.
//!
//! A logical line ends at a line feed that no `\` precedes. The lexer knows no fields and no values: everything that is not
//! punctuation is a word. It never fails; what it cannot use becomes [`Kind::Stray`].

use crate::ast::{Cond, Span};

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Field, keyword, value or name.
    Word,
    /// `"..."`
    Text,
    /// A quote that nothing closes.
    OpenText,
    /// `{`
    Open,
    /// `}`
    Close,
    /// `[`
    OpenIndex,
    /// `]`
    CloseIndex,
    /// `,`
    Comma,
    /// `!`
    Not,
    /// `=`
    Assign,
    /// A condition.
    Cond(Cond),
    /// `\` in the middle of a line.
    Stray,
}

/// A token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) span: Span,
}

/// One logical line.
#[derive(Debug, Default)]
pub(crate) struct Line {
    /// Physical line it starts on, from 1.
    pub(crate) number: u32,
    /// Its tokens without the comment.
    pub(crate) tokens: Vec<Token>,
    /// From `#` to the end of the line, without trailing blanks.
    pub(crate) comment: Option<Span>,
}

/// Reads logical lines.
#[derive(Debug)]
pub(crate) struct Lexer<'a> {
    text: &'a [u8],
    at: usize,
    line: u32,
}

impl<'a> Lexer<'a> {
    /// Starts at the beginning of a file in a text shorter than 4 GiB.
    pub(crate) fn new(text: &'a str, from: u32) -> Lexer<'a> {
        let from = from as usize;
        let has_mark = text
            .get(from..)
            .is_some_and(|rest| rest.starts_with('\u{feff}'));
        let at = from + if has_mark { 3 } else { 0 };
        Lexer {
            text: text.as_bytes(),
            at,
            line: 1,
        }
    }

    /// Fills `line` with the next logical line; false at the end of the text.
    pub(crate) fn next_line(&mut self, line: &mut Line) -> bool {
        line.tokens.clear();
        line.comment = None;
        line.number = self.line;
        if self.at >= self.text.len() {
            return false;
        }
        while let Some(&byte) = self.text.get(self.at) {
            let start = self.at;
            let kind = match byte {
                b'\n' => {
                    self.at += 1;
                    self.line += 1;
                    return true;
                }
                b' ' | b'\t' | b'\r' => {
                    self.at += 1;
                    continue;
                }
                b'#' => {
                    self.skip_to_line_end();
                    let end = self.text[start..self.at].trim_ascii_end().len() + start;
                    line.comment = Some(span(start, end));
                    continue;
                }
                b'\\' => {
                    self.at += 1;
                    let blanks = self.text[self.at..]
                        .iter()
                        .take_while(|b| matches!(b, b' ' | b'\t' | b'\r'))
                        .count();
                    if matches!(self.text.get(self.at + blanks), Some(b'\n') | None) {
                        self.at = (self.at + blanks + 1).min(self.text.len());
                        self.line += 1;
                        continue;
                    }
                    Kind::Stray
                }
                b'"' => {
                    let rest = &self.text[start + 1..];
                    match rest.iter().position(|&b| matches!(b, b'"' | b'\n')) {
                        Some(n) if rest[n] == b'"' => {
                            self.at = start + n + 2;
                            Kind::Text
                        }
                        _ => {
                            self.skip_to_line_end();
                            Kind::OpenText
                        }
                    }
                }
                b'{' => self.single(Kind::Open),
                b'}' => self.single(Kind::Close),
                b'[' => self.single(Kind::OpenIndex),
                b']' => self.single(Kind::CloseIndex),
                b',' => self.single(Kind::Comma),
                b'!' => self.maybe_equals(Kind::Not, Kind::Cond(Cond::Ne)),
                b'=' => self.maybe_equals(Kind::Assign, Kind::Cond(Cond::Eq)),
                b'<' => self.maybe_equals(Kind::Cond(Cond::Lt), Kind::Cond(Cond::Le)),
                b'>' => self.maybe_equals(Kind::Cond(Cond::Gt), Kind::Cond(Cond::Ge)),
                _ => {
                    self.at += self.text[start..]
                        .iter()
                        .take_while(|&&b| in_word(b))
                        .count();
                    Kind::Word
                }
            };
            line.tokens.push(Token {
                kind,
                span: span(start, self.at),
            });
        }
        true
    }

    fn single(&mut self, kind: Kind) -> Kind {
        self.at += 1;
        kind
    }

    fn maybe_equals(&mut self, alone: Kind, with_equals: Kind) -> Kind {
        self.at += 1;
        if self.text.get(self.at) == Some(&b'=') {
            self.at += 1;
            return with_equals;
        }
        alone
    }

    fn skip_to_line_end(&mut self) {
        self.at += self.text[self.at..]
            .iter()
            .take_while(|&&b| b != b'\n')
            .count();
    }
}

fn in_word(byte: u8) -> bool {
    !matches!(
        byte,
        b' ' | b'\t'
            | b'\r'
            | b'\n'
            | b'#'
            | b'"'
            | b'{'
            | b'}'
            | b'['
            | b']'
            | b','
            | b'!'
            | b'='
            | b'<'
            | b'>'
            | b'\\'
    )
}

/// The parser refuses texts whose offsets do not fit.
fn span(start: usize, end: usize) -> Span {
    Span {
        start: start as u32,
        end: end as u32,
    }
}
