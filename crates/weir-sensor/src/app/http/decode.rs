//! Content encodings: gzip, zlib, raw deflate and brotli as streams, whatever their headers claim, with bounded output.

use std::borrow::Cow;
use std::io::Write;

use brotli_decompressor::DecompressorWriter;
use flate2::{Decompress, FlushDecompress, Status};

/// An encoding that a header names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Gzip,
    Deflate,
    Brotli,
}

/// More layers than this are left as they are.
pub(super) const MOST_LAYERS: usize = 4;

/// The encodings of a Content-Encoding header, in the order they were applied, and whether it named others.
pub(super) fn encodings(value: &[u8]) -> (Vec<Encoding>, bool) {
    let mut found = Vec::new();
    let mut odd = false;
    for word in value.split(|b| matches!(b, b',' | b' ' | b'\t' | b';')) {
        let word = word.to_ascii_lowercase();
        match word.as_slice() {
            b"" | b"identity" | b"none" | b"inflate" => {}
            b"br" => found.push(Encoding::Brotli),
            w if memchr::memmem::find(w, b"gzip").is_some() => {
                odd |= w != b"gzip" && w != b"x-gzip";
                found.push(Encoding::Gzip);
            }
            w if memchr::memmem::find(w, b"deflate").is_some() => {
                odd |= w != b"deflate" && w != b"x-deflate";
                found.push(Encoding::Deflate);
            }
            _ => odd = true,
        }
    }
    (found, odd)
}

/// What came of decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// All is well.
    Ok,
    /// The bytes are not of this encoding (any more); what follows is dropped.
    Failed,
    /// No more room: the rest is dropped.
    Full,
}

/// One layer.
pub(super) struct Decoder {
    encoding: Encoding,
    state: State,
    /// Input that has yielded nothing yet: should it prove to be no such encoding, it is passed on as it is.
    held: Vec<u8>,
    yielded: bool,
    /// Members of a gzip file seen.
    members: u8,
}

enum State {
    /// The header is not whole.
    Header,
    Inflate {
        stream: Box<Decompress>,
        zlib: bool,
    },
    /// After a gzip member: bytes of its trailer that are left.
    Trailer(u8),
    Brotli(Box<DecompressorWriter<Bounded>>),
    Plain,
    Dead,
}

/// Most bytes held for a second try, and of a gzip header.
const MOST_HELD: usize = 8 * 1024;
/// More members than this in one body are not looked at: each costs a copy of what follows.
const MOST_MEMBERS: u8 = 32;
const STEP: usize = 16 * 1024;

/// A sink that refuses what exceeds its room.
#[derive(Default)]
struct Bounded {
    bytes: Vec<u8>,
    room: usize,
    full: bool,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let taken = bytes.len().min(self.room - self.bytes.len().min(self.room));
        self.bytes.extend_from_slice(&bytes[..taken]);
        if taken < bytes.len() {
            self.full = true;
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        Ok(taken)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Decoder {
    pub(super) fn new(encoding: Encoding) -> Decoder {
        Decoder {
            encoding,
            state: State::Header,
            held: Vec::new(),
            yielded: false,
            members: 0,
        }
    }

    /// Decodes, appending to `out` until it holds `most` bytes.
    pub(super) fn decode(&mut self, input: &[u8], out: &mut Vec<u8>, most: usize) -> Outcome {
        let mut input = Cow::Borrowed(input);
        // Whether `held` has this input already.
        let mut is_held = false;
        loop {
            match &mut self.state {
                State::Dead => return Outcome::Ok,
                State::Plain => return push(&input, out, most),
                State::Header => {
                    self.held.extend_from_slice(&input);
                    match self.begin() {
                        Begin::More if self.held.len() > MOST_HELD => {
                            self.state = State::Plain;
                            input = Cow::Owned(std::mem::take(&mut self.held));
                        }
                        Begin::More => return Outcome::Ok,
                        Begin::Now(state, skip) => {
                            self.state = state;
                            input = Cow::Owned(self.held[skip..].to_vec());
                            is_held = true;
                        }
                    }
                }
                State::Trailer(left) => {
                    let skip = input.len().min(usize::from(*left));
                    *left -= skip as u8;
                    if skip == input.len() {
                        return Outcome::Ok;
                    }
                    // Another member may follow; anything else is garbage that clients ignore.
                    self.members += 1;
                    if input[skip] != 0x1f || self.members > MOST_MEMBERS {
                        self.state = State::Dead;
                        return Outcome::Ok;
                    }
                    self.held.clear();
                    self.state = State::Header;
                    input = Cow::Owned(input[skip..].to_vec());
                }
                State::Inflate { stream, zlib } => {
                    let zlib = *zlib;
                    let before = out.len();
                    let (outcome, used) = inflate(stream, &input, out, most);
                    self.yielded |= out.len() > before;
                    match outcome {
                        Inflated::All => {
                            if self.yielded {
                                self.held = Vec::new();
                            } else if !is_held && self.held.len() <= MOST_HELD {
                                self.held.extend_from_slice(&input);
                            }
                            return Outcome::Ok;
                        }
                        Inflated::Full => return self.die(Outcome::Full),
                        Inflated::End => {
                            self.held = Vec::new();
                            self.yielded = true;
                            self.state = match self.encoding {
                                Encoding::Gzip if !zlib => State::Trailer(8),
                                _ => State::Dead,
                            };
                            if used == input.len() {
                                return Outcome::Ok;
                            }
                            input = Cow::Owned(input[used..].to_vec());
                        }
                        Inflated::Broken if self.yielded || self.held.len() > MOST_HELD => {
                            return self.die(Outcome::Failed);
                        }
                        Inflated::Broken => {
                            if !is_held {
                                self.held.extend_from_slice(&input);
                                is_held = true;
                            }
                            if !zlib {
                                self.state = State::Plain;
                                let held = std::mem::take(&mut self.held);
                                return match push(&held, out, most) {
                                    Outcome::Ok => Outcome::Failed,
                                    o => o,
                                };
                            }
                            self.encoding = Encoding::Deflate;
                            self.state = State::Inflate {
                                stream: Box::new(Decompress::new(false)),
                                zlib: false,
                            };
                            input = Cow::Owned(self.held.clone());
                        }
                    }
                }
                State::Brotli(stream) => {
                    self.held = Vec::new();
                    return match unbrotli(stream, &input, out, most) {
                        Outcome::Ok => Outcome::Ok,
                        o => self.die(o),
                    };
                }
            }
        }
    }

    fn die(&mut self, outcome: Outcome) -> Outcome {
        self.state = State::Dead;
        self.held = Vec::new();
        outcome
    }

    /// Decides by the first bytes what this is.
    fn begin(&self) -> Begin {
        let h = self.held.as_slice();
        match self.encoding {
            Encoding::Brotli => Begin::Now(
                State::Brotli(Box::new(DecompressorWriter::new(Bounded::default(), 4096))),
                0,
            ),
            Encoding::Gzip | Encoding::Deflate => {
                if h.len() < 2 {
                    return Begin::More;
                }
                if h[0] == 0x1f && h[1] == 0x8b {
                    return match gzip_header(h) {
                        Some(skip) => Begin::Now(
                            State::Inflate {
                                stream: Box::new(Decompress::new(false)),
                                zlib: false,
                            },
                            skip,
                        ),
                        None => Begin::More,
                    };
                }
                let check = u16::from_be_bytes([h[0], h[1]]);
                let zlib = h[0] & 0x0f == 8 && h[0] >> 4 <= 7 && check.is_multiple_of(31);
                Begin::Now(
                    State::Inflate {
                        stream: Box::new(Decompress::new(zlib)),
                        zlib,
                    },
                    0,
                )
            }
        }
    }

    pub(super) fn memory(&self) -> usize {
        // A window of 32 KiB, and the tables.
        self.held.capacity()
            + match self.state {
                State::Inflate { .. } => 44 * 1024,
                State::Brotli(_) => 128 * 1024,
                _ => 0,
            }
    }
}

enum Begin {
    More,
    Now(State, usize),
}

fn push(input: &[u8], out: &mut Vec<u8>, most: usize) -> Outcome {
    let taken = input.len().min(most.saturating_sub(out.len()));
    out.extend_from_slice(&input[..taken]);
    if taken < input.len() {
        Outcome::Full
    } else {
        Outcome::Ok
    }
}

enum Inflated {
    All,
    End,
    Full,
    Broken,
}

fn inflate(
    stream: &mut Decompress,
    input: &[u8],
    out: &mut Vec<u8>,
    most: usize,
) -> (Inflated, usize) {
    let mut used = 0;
    loop {
        let from = out.len();
        let room = STEP.min(most.saturating_sub(from));
        if room == 0 {
            return (Inflated::Full, used);
        }
        out.resize(from + room, 0);
        let (before_in, before_out) = (stream.total_in(), stream.total_out());
        let status = stream.decompress(&input[used..], &mut out[from..], FlushDecompress::None);
        used += (stream.total_in() - before_in) as usize;
        let made = (stream.total_out() - before_out) as usize;
        out.truncate(from + made);
        match status {
            Err(_) => return (Inflated::Broken, used),
            Ok(Status::StreamEnd) => return (Inflated::End, used),
            Ok(_) if made < room && used >= input.len() => return (Inflated::All, used),
            Ok(_) if made == 0 && used >= input.len() => return (Inflated::All, used),
            // No progress with input left: it cannot be understood.
            Ok(_) if made == 0 && stream.total_in() == before_in => {
                return (Inflated::Broken, used);
            }
            Ok(_) => {}
        }
    }
}

fn unbrotli(
    stream: &mut DecompressorWriter<Bounded>,
    input: &[u8],
    out: &mut Vec<u8>,
    most: usize,
) -> Outcome {
    stream.get_mut().room = most.saturating_sub(out.len());
    stream.get_mut().full = false;
    let result = stream.write_all(input);
    // What it has decoded so far stays in its buffer until it is flushed.
    let flushed = stream.flush();
    let sink = stream.get_mut();
    out.append(&mut sink.bytes);
    if sink.full {
        Outcome::Full
    } else if result.is_err() || flushed.is_err() {
        Outcome::Failed
    } else {
        Outcome::Ok
    }
}

/// Length of a gzip header, if it is whole.
fn gzip_header(h: &[u8]) -> Option<usize> {
    let flags = *h.get(3)?;
    let mut at = 10;
    if flags & 4 != 0 {
        let extra = u16::from_le_bytes([*h.get(at)?, *h.get(at + 1)?]);
        at += 2 + usize::from(extra);
    }
    for flag in [8, 16] {
        if flags & flag != 0 {
            at += memchr::memchr(0, h.get(at..)?)? + 1;
        }
    }
    if flags & 2 != 0 {
        at += 2;
    }
    (h.len() >= at).then_some(at)
}
