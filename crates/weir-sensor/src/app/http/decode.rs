//! Content encodings: gzip, zlib, raw deflate, brotli and LZMA as streams, whatever their headers claim, with bounded output.

use std::borrow::Cow;
use std::io::Write;

use brotli_decompressor::DecompressorWriter;
use flate2::{Decompress, FlushDecompress, Status};

use super::lzma::{Lzma, Step};

/// An encoding that a header names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Gzip,
    Deflate,
    Brotli,
    Lzma,
}

/// The encodings of a header, in the order they were applied, and whether it named others. Words are found in whatever stands around them, as by the most forgiving ends.
pub(super) fn encodings(value: &[u8], lzma: bool) -> (Vec<Encoding>, bool) {
    let mut found = Vec::new();
    let mut odd = false;
    let clean: Vec<u8> = value
        .iter()
        .filter(|b| **b != 0)
        .map(u8::to_ascii_lowercase)
        .collect();
    odd |= clean.len() < value.len() || memchr::memchr(b';', value).is_some();
    for word in clean.split(|b| matches!(b, b',' | b';' | b' ' | b'\t'..=b'\r' | 0xa0)) {
        let has = |name: &[u8]| memchr::memmem::find(word, name).is_some();
        match word {
            b"" | b"identity" | b"none" | b"inflate" => {}
            b"br" => found.push(Encoding::Brotli),
            b"lzma" if lzma => found.push(Encoding::Lzma),
            w if has(b"gzip") => {
                odd |= w != b"gzip" && w != b"x-gzip";
                found.push(Encoding::Gzip);
            }
            w if has(b"deflate") => {
                odd |= w != b"deflate" && w != b"x-deflate";
                found.push(Encoding::Deflate);
            }
            b"chunked" | b"lzma" => {}
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
    /// It would take more memory than it may: the rest is dropped.
    Memory,
}

/// One layer.
pub(super) struct Decoder {
    encoding: Encoding,
    state: State,
    /// Input that has yielded nothing yet: should it prove to be no such encoding, another one is tried, and at last it is passed on as it is.
    held: Vec<u8>,
    yielded: bool,
    /// Ways of reading `held` that were tried.
    tries: u8,
    /// Members of a gzip file seen, or streams in a row.
    members: u8,
    /// How much memory LZMA may take for its window.
    memory: usize,
    /// Nothing but the header's word says that it is this encoding: what is decoded waits in `shadow`, and all of the input is `held`.
    doubt: bool,
    shadow: Vec<u8>,
}

enum State {
    /// The header is not whole.
    Header,
    Inflate {
        stream: Box<Decompress>,
        gzip: bool,
    },
    /// After a gzip member: bytes of its trailer that are left.
    Trailer(u8),
    /// After a stream that is in doubt: where in `held` it ended.
    Ended(usize),
    /// What is in doubt broke before there was enough to tell whether it is text.
    Broken,
    Brotli(Box<DecompressorWriter<Bounded>>),
    Lzma(Box<Lzma>),
    Plain,
    Dead,
}

/// Most bytes held for a second try, and of a gzip header.
const MOST_HELD: usize = 8 * 1024;
/// More members than this in one body are not looked at: each costs a copy of what follows.
const MOST_MEMBERS: u8 = 32;
const STEP: usize = 16 * 1024;
/// Bytes behind a stream that are no sign against it: a trailer.
const TRAILER: usize = 8;
/// Text from the first byte on over so many bytes is no compressed data.
const TEXT: usize = 16;

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

/// A way of reading what is held: behind so many bytes, with a header of zlib or without, and whether a gzip trailer follows.
#[derive(Clone, Copy)]
struct Try {
    skip: usize,
    zlib: bool,
    gzip: bool,
}

enum Begin {
    /// More bytes are needed to tell.
    More,
    Now(Try),
    /// No way is left.
    Never,
}

impl Decoder {
    pub(super) fn new(encoding: Encoding, memory: usize) -> Decoder {
        Decoder {
            encoding,
            state: State::Header,
            held: Vec::new(),
            yielded: false,
            tries: 0,
            members: 0,
            memory,
            doubt: false,
            shadow: Vec::new(),
        }
    }

    /// The body is over: what was in doubt is decided.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>, most: usize) -> Outcome {
        match &self.state {
            State::Header if !self.held.is_empty() && self.members == 0 => self.plain(out, most),
            State::Broken => self.broken(out, most),
            State::Inflate { .. } | State::Brotli(_) | State::Ended(_) if self.doubt => {
                if self.shadow.is_empty() || is_text(&self.held) {
                    return self.plain(out, most);
                }
                self.trust(out, most)
            }
            _ => Outcome::Ok,
        }
    }

    /// It is no such encoding: the bytes are passed on as they are.
    fn plain(&mut self, out: &mut Vec<u8>, most: usize) -> Outcome {
        self.state = State::Plain;
        (self.doubt, self.shadow) = (false, Vec::new());
        push(&std::mem::take(&mut self.held), out, most)
    }

    /// It is this encoding.
    fn trust(&mut self, out: &mut Vec<u8>, most: usize) -> Outcome {
        self.doubt = false;
        self.held = Vec::new();
        push(&std::mem::take(&mut self.shadow), out, most)
    }

    /// What was in doubt cannot be read on.
    fn broken(&mut self, out: &mut Vec<u8>, most: usize) -> Outcome {
        let promised = self.encoding != Encoding::Gzip && !self.shadow.is_empty();
        if !promised || is_text(&self.held) {
            return self.plain(out, most);
        }
        match self.trust(out, most) {
            Outcome::Ok => self.die(Outcome::Failed),
            other => self.die(other),
        }
    }

    /// Decodes, appending to `out` until it holds `most` bytes.
    pub(super) fn decode(&mut self, input: &[u8], out: &mut Vec<u8>, most: usize) -> Outcome {
        let mut rest = input;
        loop {
            // What is decided by so many bytes is decided by as many, however they come.
            let open = self.doubt || matches!(self.state, State::Header);
            let step = match open {
                true => (MOST_HELD + 1).saturating_sub(self.held.len()).max(1),
                false => rest.len(),
            };
            let (now, later) = rest.split_at(step.min(rest.len()));
            let outcome = self.decode_some(now, out, most);
            if outcome != Outcome::Ok || later.is_empty() {
                return outcome;
            }
            rest = later;
        }
    }

    fn decode_some(&mut self, input: &[u8], out: &mut Vec<u8>, most: usize) -> Outcome {
        let mut input = Cow::Borrowed(input);
        // Whether `held` has this input already.
        let mut is_held = false;
        loop {
            match &mut self.state {
                State::Dead => return Outcome::Ok,
                State::Plain => return push(&input, out, most),
                State::Header => {
                    if !is_held {
                        self.held.extend_from_slice(&input);
                        is_held = true;
                    }
                    match self.encoding {
                        Encoding::Brotli => {
                            let stream = DecompressorWriter::new(Bounded::default(), 4096);
                            self.state = State::Brotli(Box::new(stream));
                            input = Cow::Owned(self.held.clone());
                            self.doubt = true;
                            continue;
                        }
                        Encoding::Lzma => {
                            self.state = State::Lzma(Box::new(Lzma::new(self.memory)));
                            input = Cow::Owned(std::mem::take(&mut self.held));
                            continue;
                        }
                        _ => {}
                    }
                    match self.begin() {
                        Begin::More if self.held.len() <= MOST_HELD => return Outcome::Ok,
                        Begin::Now(way) => {
                            self.doubt = !way.gzip && self.members == 0;
                            if self.doubt && self.held.len() >= TEXT && is_text(&self.held) {
                                return self.plain(out, most);
                            }
                            self.state = State::Inflate {
                                stream: Box::new(Decompress::new(way.zlib)),
                                gzip: way.gzip,
                            };
                            input = Cow::Owned(self.held[way.skip..].to_vec());
                        }
                        // What follows a stream and is none is garbage that ends ignore.
                        _ if self.members > 0 => return self.die(Outcome::Ok),
                        _ => return self.plain(out, most),
                    }
                }
                State::Broken => {
                    self.held.extend_from_slice(&input);
                    return match self.held.len() < TEXT {
                        true => Outcome::Ok,
                        false => self.broken(out, most),
                    };
                }
                State::Ended(at) => {
                    self.held.extend_from_slice(&input);
                    let at = &*at;
                    if self.held.len() >= TEXT && is_text(&self.held) {
                        return self.plain(out, most);
                    }
                    if self.held.len() - *at <= TRAILER {
                        return Outcome::Ok;
                    }
                    // Who was promised gzip takes all of it as it is; who was promised deflate takes what was, and perhaps another stream.
                    if self.encoding == Encoding::Gzip {
                        return self.plain(out, most);
                    }
                    let rest = self.held.split_off(*at);
                    let outcome = self.trust(out, most);
                    if outcome != Outcome::Ok || !self.again() {
                        return outcome;
                    }
                    input = Cow::Owned(rest);
                    is_held = false;
                }
                State::Trailer(left) => {
                    let skip = input.len().min(usize::from(*left));
                    *left -= skip as u8;
                    if skip == input.len() {
                        return Outcome::Ok;
                    }
                    // Another member may follow; anything else is garbage that clients ignore.
                    if input[skip] != 0x1f {
                        return self.die(Outcome::Ok);
                    }
                    if !self.again() {
                        return Outcome::Ok;
                    }
                    input = Cow::Owned(input[skip..].to_vec());
                    is_held = false;
                }
                State::Inflate { stream, .. } if self.doubt => {
                    let room = most.saturating_sub(out.len());
                    let (outcome, used) = inflate(stream, &input, &mut self.shadow, room);
                    if !is_held {
                        self.held.extend_from_slice(&input);
                        is_held = true;
                    }
                    if self.held.len() >= TEXT && is_text(&self.held) {
                        return self.plain(out, most);
                    }
                    match outcome {
                        Inflated::All if self.held.len() <= MOST_HELD => return Outcome::Ok,
                        Inflated::All => {
                            self.yielded = true;
                            return self.trust(out, most);
                        }
                        Inflated::Full => {
                            return match self.trust(out, most) {
                                Outcome::Ok => self.die(Outcome::Full),
                                other => self.die(other),
                            };
                        }
                        Inflated::End => {
                            // The sum at the end of zlib's is right.
                            if stream.total_in() > 0 && self.is_zlib() {
                                let rest = input[used..].to_vec();
                                let outcome = self.trust(out, most);
                                if outcome != Outcome::Ok || !self.again() || rest.is_empty() {
                                    return outcome;
                                }
                                input = Cow::Owned(rest);
                                is_held = false;
                                continue;
                            }
                            let at = self.held.len() - (input.len() - used);
                            self.state = State::Ended(at);
                            // Counted as what comes later is.
                            input = Cow::Owned(self.held.split_off(at));
                            if input.is_empty() {
                                return Outcome::Ok;
                            }
                        }
                        Inflated::Broken => {
                            // Another way may be right; what this one yielded counts if none is.
                            let last = self.tries;
                            self.tries += 1;
                            if self.held.len() > MOST_HELD || !matches!(self.begin(), Begin::Now(_))
                            {
                                self.tries = last;
                                if self.held.len() < TEXT {
                                    self.state = State::Broken;
                                    return Outcome::Ok;
                                }
                                return self.broken(out, most);
                            }
                            self.shadow.clear();
                            self.state = State::Header;
                        }
                    }
                }
                State::Inflate { stream, gzip } => {
                    let gzip = *gzip;
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
                            let rest = input[used..].to_vec();
                            if gzip {
                                self.state = State::Trailer(8);
                            } else if !self.again() {
                                return Outcome::Ok;
                            }
                            if rest.is_empty() {
                                return Outcome::Ok;
                            }
                            input = Cow::Owned(rest);
                            is_held = false;
                        }
                        Inflated::Broken if self.yielded || self.held.len() > MOST_HELD => {
                            return self.die(Outcome::Failed);
                        }
                        Inflated::Broken => {
                            if !is_held {
                                self.held.extend_from_slice(&input);
                                is_held = true;
                            }
                            self.tries += 1;
                            self.state = State::Header;
                        }
                    }
                }
                State::Brotli(stream) if self.doubt => {
                    let room = most.saturating_sub(out.len());
                    let outcome = unbrotli(stream, &input, &mut self.shadow, room);
                    if !is_held {
                        self.held.extend_from_slice(&input);
                    }
                    return match outcome {
                        Outcome::Ok if self.held.len() <= MOST_HELD => Outcome::Ok,
                        Outcome::Ok => self.trust(out, most),
                        Outcome::Full => match self.trust(out, most) {
                            Outcome::Ok => self.die(Outcome::Full),
                            other => self.die(other),
                        },
                        _ if self.held.len() < TEXT => {
                            self.state = State::Broken;
                            Outcome::Ok
                        }
                        _ => self.broken(out, most),
                    };
                }
                State::Brotli(stream) => {
                    return match unbrotli(stream, &input, out, most) {
                        Outcome::Ok => Outcome::Ok,
                        o => self.die(o),
                    };
                }
                State::Lzma(stream) => {
                    let outcome = match stream.decode(&input, out, most) {
                        Step::More => return Outcome::Ok,
                        Step::End => Outcome::Ok,
                        Step::Full => Outcome::Full,
                        Step::Memory => Outcome::Memory,
                        Step::Broken => Outcome::Failed,
                    };
                    return self.die(outcome);
                }
            }
        }
    }

    /// Whether what is read has a header of zlib.
    fn is_zlib(&self) -> bool {
        matches!(self.begin(), Begin::Now(way) if way.zlib)
    }

    fn die(&mut self, outcome: Outcome) -> Outcome {
        self.state = State::Dead;
        self.held = Vec::new();
        (self.doubt, self.shadow) = (false, Vec::new());
        outcome
    }

    /// Another stream may follow the one that has ended.
    fn again(&mut self) -> bool {
        self.members += 1;
        self.held = Vec::new();
        self.yielded = false;
        self.tries = 0;
        let more = self.members <= MOST_MEMBERS;
        self.state = if more { State::Header } else { State::Dead };
        more
    }

    /// Decides by the first bytes how to read them, each time another way.
    fn begin(&self) -> Begin {
        // White space in front of a file is passed over.
        let blank = self.held.iter().take(4);
        let blank = blank.take_while(|b| b.is_ascii_whitespace()).count();
        let (front, h) = match self.held.get(blank..blank + 2) {
            Some([0x1f, 0x8b]) => (blank, &self.held[blank..]),
            _ => (0, self.held.as_slice()),
        };
        if h.len() < 2 || blank > 0 && front == 0 && self.held.len() < blank + 2 {
            return Begin::More;
        }
        let way = |skip, zlib, gzip| Try {
            skip: front + skip,
            zlib,
            gzip,
        };
        let check = u16::from_be_bytes([h[0], h[1]]);
        let zlib = h[0] & 0x0f == 8 && h[0] >> 4 <= 7 && check.is_multiple_of(31);
        // A magic number that is half wrong is still one where gzip was promised.
        let magic = h[0] == 0x1f && (h[1] == 0x8b || self.encoding == Encoding::Gzip);
        let ways: Vec<Try> = if magic {
            let Some(header) = gzip_header(h) else {
                return Begin::More;
            };
            let mut ways = vec![way(header, false, true), way(header, true, true)];
            if h[3] & 2 != 0 {
                // The flag says that there is a checksum, and there is none.
                ways.push(way(header - 2, false, true));
            }
            ways
        } else if zlib {
            vec![way(0, true, false), way(0, false, false)]
        } else {
            vec![way(0, false, false)]
        };
        ways.get(usize::from(self.tries))
            .map_or(Begin::Never, |way| Begin::Now(*way))
    }

    pub(super) fn memory(&self) -> usize {
        // A window of 32 KiB, and the tables.
        self.held.capacity()
            + self.shadow.capacity()
            + match &self.state {
                State::Inflate { .. } => 44 * 1024,
                State::Brotli(_) => 128 * 1024,
                State::Lzma(stream) => stream.memory(),
                _ => 0,
            }
    }
}

/// Whether bytes look like text as far as that is asked: such a beginning no compressor makes.
fn is_text(bytes: &[u8]) -> bool {
    let first = &bytes[..bytes.len().min(TEXT)];
    let plain = |b: &u8| !b.is_ascii_control() || matches!(b, b'\t' | b'\r' | b'\n' | 0x0c);
    let whole = match std::str::from_utf8(first) {
        Ok(_) => true,
        // Cut in the middle of a character.
        Err(e) => e.error_len().is_none() && first.len() - e.valid_up_to() < 4,
    };
    whole && first.iter().all(plain)
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
