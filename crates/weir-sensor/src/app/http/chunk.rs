//! The transfer encoding: lengths of chunks, and the header lines after the last one.

use crate::app::protocol::Parser;
use crate::app::transaction::Transactions;
use crate::packet::Direction;
use crate::packet::Direction::ToClient;

use super::{Http1, State};

/// The longest line of a chunk's length.
const MOST_CHUNK_LINE: usize = 8 * 1024;
/// The longest such line where nobody promised chunks.
const MOST_GUESS: usize = 16;

impl Http1 {
    /// A chunk's length. LF ends its line, and so do CRs behind a length.
    pub(super) fn chunk_line<'a>(
        &mut self,
        direction: Direction,
        input: &'a [u8],
        out: &mut Transactions,
    ) -> &'a [u8] {
        let half = &mut self.halves[direction.index()];
        let guess = half.body.guess;
        let mut at = 0;
        while let Some(&byte) = input.get(at) {
            if half.carry.is_empty() && !guess && is_blank(byte) {
                // Some servers end a chunk with more than one line end.
                half.body.framing += 1;
                at += 1;
                continue;
            }
            if byte != b'\n' && byte != b'\r' && half.carry.last() == Some(&b'\r') {
                // CRs alone end a line only if there is no doubt about it.
                let length = chunk_length(&half.carry);
                if let Some(length) = length.filter(|_| !guess) {
                    self.chunk(direction, length, out);
                    return &input[at..];
                }
            }
            half.carry.push(byte);
            at += 1;
            if byte == b'\n' {
                let length = if guess {
                    guessed_length(&half.carry)
                } else {
                    chunk_length(&half.carry)
                };
                match length {
                    Some(length) => self.chunk(direction, length, out),
                    None => self.no_chunk(direction, out),
                }
                return &input[at..];
            }
            let possible = if guess {
                half.carry.len() <= MOST_GUESS && half.carry[0].is_ascii_hexdigit()
            } else {
                half.carry.len() <= MOST_CHUNK_LINE && may_be_length(&half.carry)
            };
            if !possible {
                self.no_chunk(direction, out);
                return &input[at..];
            }
        }
        &[]
    }

    fn chunk(&mut self, direction: Direction, length: Length, out: &mut Transactions) {
        let half = &mut self.halves[direction.index()];
        half.body.framing += half.carry.len() as u64;
        half.body.guess = false;
        half.body.chunks = true;
        half.carry.clear();
        half.state = if length.bytes == 0 {
            State::Trailer
        } else {
            State::Chunk(length.bytes)
        };
        if length.extension {
            self.oddity(
                direction,
                "request_chunk_extension",
                "response_chunk_extension",
                out,
            );
        }
    }

    /// What should have been a length is none: ends take it, and what follows, as it is.
    fn no_chunk(&mut self, direction: Direction, out: &mut Transactions) {
        let half = &mut self.halves[direction.index()];
        let line = std::mem::take(&mut half.carry);
        let time = half.time;
        if direction == ToClient && !half.body.guess && line.starts_with(b"HTTP/") {
            // Nothing more of this message: the next one begins.
            self.finish_body(direction, false, out);
            self.complete(direction, out);
        } else {
            half.state = half.body.otherwise.unwrap_or(State::Close);
            if !half.body.guess {
                self.oddity(
                    direction,
                    "invalid_request_chunk_len",
                    "invalid_response_chunk_len",
                    out,
                );
            }
        }
        let half = &mut self.halves[direction.index()];
        half.body.guess = false;
        if half.state == State::Fixed(0) {
            self.finish_body(direction, true, out);
            self.complete(direction, out);
        }
        self.data(direction, &line, time, out);
    }

    /// The line end behind a chunk. What stands before it is passed over, as ends do.
    pub(super) fn chunk_end<'a>(&mut self, direction: Direction, input: &'a [u8]) -> &'a [u8] {
        let half = &mut self.halves[direction.index()];
        for (at, &byte) in input.iter().enumerate() {
            match byte {
                b'\n' => {
                    half.carry.clear();
                    half.body.framing += at as u64 + 1;
                    half.state = State::ChunkLine;
                    return &input[at + 1..];
                }
                b'\r' => {
                    half.carry.clear();
                    half.carry.push(byte);
                }
                _ if half.carry.last() == Some(&b'\r') => {
                    // CRs were all the line end there is.
                    half.carry.clear();
                    half.body.framing += at as u64;
                    half.state = State::ChunkLine;
                    return &input[at..];
                }
                _ => {}
            }
        }
        half.body.framing += input.len() as u64;
        &[]
    }

    pub(super) fn trailer<'a>(
        &mut self,
        direction: Direction,
        input: &'a [u8],
        out: &mut Transactions,
    ) -> &'a [u8] {
        let half = &mut self.halves[direction.index()];
        let newline = memchr::memchr(b'\n', input);
        let (line, rest) = input.split_at(newline.map_or(input.len(), |n| n + 1));
        // Only how the line begins counts; `carry` keeps a little of it.
        let room = 5_usize.saturating_sub(half.carry.len());
        let kept = line.len().min(room);
        half.carry.extend_from_slice(&line[..kept]);
        if direction == ToClient && half.carry == b"HTTP/" && kept > 0 {
            // The empty line was left out, and the next message begins.
            let begun = std::mem::take(&mut half.carry);
            let time = half.time;
            self.finish_body(direction, true, out);
            self.complete(direction, out);
            self.data(direction, &begun, time, out);
            return &input[kept..];
        }
        if newline.is_some() {
            let empty = half.carry.iter().all(|b| matches!(b, b'\r' | b'\n'));
            half.carry.clear();
            if empty {
                self.finish_body(direction, true, out);
                self.complete(direction, out);
            }
        }
        rest
    }

    /// The stream ends in a line of a length: whether that was the last chunk.
    pub(super) fn last_line(&mut self, direction: Direction, out: &mut Transactions) -> bool {
        let half = &mut self.halves[direction.index()];
        let line = std::mem::take(&mut half.carry);
        if line.is_empty() {
            return false;
        }
        match chunk_length(&line).filter(|_| !half.body.guess) {
            Some(length) => length.bytes == 0,
            None => {
                self.body(direction, &line, out);
                let otherwise = self.halves[direction.index()].body.otherwise;
                matches!(otherwise, None | Some(State::Close))
            }
        }
    }
}

/// White space and control characters that ends pass over before a length.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | 0x0b | 0x0c | 0)
}

/// One of these may stand before a length by mistake.
fn is_stray(byte: u8) -> bool {
    matches!(byte, b'x' | b'X' | b',' | b';' | b'+' | b'"')
}

#[derive(Clone, Copy)]
struct Length {
    bytes: u64,
    extension: bool,
}

/// A line without what may stand before its number, and whether anything did.
fn number(line: &[u8]) -> (&[u8], bool) {
    let stray = line.first().is_some_and(|b| is_stray(*b));
    let rest = &line[usize::from(stray)..];
    let blank = if stray {
        rest.iter().take_while(|b| is_blank(**b)).count()
    } else {
        0
    };
    (&rest[blank..], stray)
}

/// Whether the beginning of a line may become one of a length.
fn may_be_length(line: &[u8]) -> bool {
    let (digits, _) = number(line);
    digits.first().is_none_or(u8::is_ascii_hexdigit)
}

/// The number of a chunk line: hexadecimal, and what follows it is an extension. `None`: no number, or one that no end takes.
/// Of more than 32 bits, the lower ones: that is what those ends see that take such a number at all.
fn chunk_length(line: &[u8]) -> Option<Length> {
    let (line, stray) = number(line);
    let digits = |b: &[u8]| b.iter().take_while(|b| b.is_ascii_hexdigit()).count();
    let line = match line {
        [b'0', b'x' | b'X', rest @ ..] if digits(rest) > 0 => rest,
        _ => line,
    };
    let (number, rest) = line.split_at(digits(line));
    if number.is_empty() {
        return None;
    }
    let blank = rest.iter().take_while(|b| is_blank(**b)).count();
    let after = rest.get(blank).copied();
    // Text that happens to begin like a number behind a stray character is none.
    if stray && !matches!(after, None | Some(b';')) {
        return None;
    }
    let mut n: u32 = 0;
    for b in number {
        n = n << 4 | (*b as char).to_digit(16)?;
    }
    (n <= i32::MAX as u32).then_some(Length {
        bytes: u64::from(n),
        extension: after == Some(b';'),
    })
}

/// The same where nobody promised chunks: digits, and a line end or an extension behind them.
fn guessed_length(line: &[u8]) -> Option<Length> {
    let digits = line.iter().take_while(|b| b.is_ascii_hexdigit()).count();
    let right = (1..=8).contains(&digits) && matches!(line[digits..], [b'\n'] | [b'\r', b'\n']);
    chunk_length(line).filter(|_| right)
}
