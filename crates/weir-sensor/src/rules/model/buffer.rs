//! Conditions on the bytes of a buffer, and changes of it before it is inspected.

use std::sync::Arc;

use crate::buffer::Buffer;
use crate::packet::Direction;
use crate::rules::live::{LiveSet, Members};
use crate::script::Script;

/// Conditions on one buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Which.
    pub buffer: Buffer,
    /// Of which direction it is, if the rule says so of a buffer that both have (`http.connection: to_client`, in rules with `=>`).
    pub way: Option<Direction>,
    /// What is done to it first, in order.
    pub transforms: Vec<Transform>,
    /// In the order written: contents relative to what came before depend on it. None (Snort 3): the buffer is there.
    pub conditions: Vec<Condition>,
}

/// A change of a buffer before it is inspected.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Transform {
    /// `dotprefix`: a dot before it.
    DotPrefix,
    /// `to_lowercase`.
    Lowercase,
    /// `to_uppercase`.
    Uppercase,
    /// `strip_whitespace`.
    StripWhitespace,
    /// `compress_whitespace`.
    CompressWhitespace,
    /// `url_decode`.
    UrlDecode,
    /// `to_md5`.
    Md5,
    /// `to_sha1`.
    Sha1,
    /// `to_sha256`.
    Sha256,
    /// `xor:"..."`.
    Xor(Vec<u8>),
    /// `pcrexform:"..."`: the first capture.
    Pcre(String),
    /// `header_lowercase`.
    HeaderLowercase,
    /// `strip_pseudo_headers`.
    StripPseudoHeaders,
    /// `domain`: last two labels that are no public suffix.
    Domain,
    /// `tld`.
    Tld,
    /// `from_base64`, options as written.
    Base64(Base64),
    /// `gunzip`, `zlib_deflate`: at most so many bytes.
    Inflate {
        /// As gzip writes it, else as zlib does.
        gzip: bool,
        /// `max-size`.
        most: u32,
    },
    /// `subslice`: a part of the buffer.
    Subslice {
        /// Where it begins; below 0 from the end.
        offset: i32,
        /// How many bytes, or below 0 how many before the end it ends; `None`: up to the end.
        bytes: Option<i32>,
        /// What goes beyond the buffer is left out, rather than all.
        truncate: bool,
    },
    /// `http_header: field NAME` of Snort 3: the value of that line, without the name and the blanks around it; no buffer where there is no such line.
    Field(String),
    /// `luaxform`: a script, and the words behind its name.
    Lua(Arc<Script>, Vec<String>),
}

/// Of which bytes of a buffer the entropy is asked, and what it must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entropy {
    /// How many; `None`: all. A buffer that has fewer does not hold.
    pub bytes: Option<u32>,
    /// From where.
    pub offset: u32,
    /// In millionths of a bit for each byte.
    pub value: Range,
}

/// A number written in the rule, or the name of one extracted before.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Number {
    /// Written.
    Is(i64),
    /// Extracted by `byte_extract` or `byte_math`.
    Variable(String),
}

/// A condition on a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// `content`.
    Content(Content),
    /// `pcre`.
    Pcre(Pcre),
    /// `isdataat`.
    IsDataAt {
        /// How far.
        offset: Number,
        /// From the end of the last match.
        relative: bool,
        /// There must not be.
        negated: bool,
    },
    /// `byte_test`.
    ByteTest(ByteTest),
    /// `byte_jump`.
    ByteJump(ByteJump),
    /// `byte_extract`.
    ByteExtract(ByteExtract),
    /// `byte_math`.
    ByteMath(ByteMath),
    /// `bsize`, and `urilen` on its buffer.
    Size(Range),
    /// `base64_decode`: what follows inspects what it yields, after `base64_data`.
    Base64Decode(Base64),
    /// `base64_data`: the conditions after it are about the decoded bytes.
    Base64Data,
    /// `absent` (`or_else` if true): the buffer is not there.
    Absent(bool),
    /// `dataset:isset,...` and `datarep` on values given in a file.
    Dataset(Arc<Dataset>),
    /// `entropy`.
    Entropy(Entropy),
    /// `asn1`.
    Asn1(Asn1),
}

/// What is asked of elements of ASN.1, and where they begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asn1 {
    /// A string of bits has more unused bits than bits.
    pub bitstring: bool,
    /// A number in decimal digits has more than 256 bytes.
    pub double: bool,
    /// The length of an element is larger.
    pub oversize: Option<u32>,
    /// Where the first of them begins.
    pub offset: i32,
    /// From the end of the match before.
    pub relative: bool,
}

/// What is asked of a set of values that stands in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dataset {
    /// Its name.
    pub name: String,
    /// `isset`, `isnotset`, or a comparison of `datarep`.
    pub test: SetTest,
    /// `match subdomain`: a member may also be the value from one of its dots on.
    pub subdomains: bool,
    /// The set as it was loaded.
    pub members: Arc<Members>,
    /// The set as it is, if rules change it.
    pub live: Arc<LiveSet>,
    /// What its file says of each member; `None`: it lists values and nothing else.
    pub said: Option<Said>,
}

/// What the file of a set in JSON says of its members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// The name that alerts show it under.
    pub name: Arc<str>,
    /// By member: JSON.
    pub values: Arc<std::collections::HashMap<Vec<u8>, Box<str>>>,
}

/// What is asked of a value's membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTest {
    /// It is a member.
    In,
    /// It is none.
    NotIn,
    /// It becomes a member, and was none.
    Add,
    /// It ceases to be a member, and was one.
    Remove,
    /// It is a member whose reputation compares so with this.
    Score(std::cmp::Ordering, u16),
}

impl Dataset {
    /// Whether the answer for a value is yes.
    pub fn holds(&self, value: &[u8]) -> bool {
        let found = self.member(value);
        match self.test {
            SetTest::In => found.is_some(),
            SetTest::NotIn => found.is_none(),
            // Decided where matches come together.
            SetTest::Add | SetTest::Remove => false,
            SetTest::Score(order, than) => found.is_some_and(|(_, s)| s.cmp(&than) == order),
        }
    }

    /// The answer for a value of a set that rules change, and the change that the rule makes.
    pub(crate) fn decide(&self, value: &[u8]) -> bool {
        let has = || {
            let dots = value.iter().zip(0..).filter(|(b, _)| **b == b'.');
            let mut parts = dots.filter_map(|(_, at): (_, usize)| value.get(at..));
            self.live.has(value) || self.subdomains && parts.any(|part| self.live.has(part))
        };
        match self.test {
            SetTest::Add => self.live.add(value),
            SetTest::Remove => self.live.remove(value),
            SetTest::In => has(),
            SetTest::NotIn => !has(),
            SetTest::Score(..) => self.holds(value),
        }
    }

    /// The member that a value is, or ends with, and its reputation.
    fn member<'a>(&'a self, value: &[u8]) -> Option<(&'a Vec<u8>, u16)> {
        let get = |value: &[u8]| self.members.get_key_value(value);
        let mut found = get(value);
        if found.is_none() && self.subdomains {
            let dots = value.iter().zip(0..).filter(|(b, _)| **b == b'.');
            found = dots
                .filter_map(|(_, at): (_, usize)| get(&value[at..]))
                .next();
        }
        found.map(|(member, score)| (member, *score))
    }

    /// What alerts show of a value that is a member, as JSON, and under which name.
    pub fn says(&self, value: &[u8]) -> Option<(Capture, &str)> {
        let said = self.said.as_ref().filter(|_| self.test == SetTest::In)?;
        let value = said.values.get(self.member(value)?.0)?;
        let capture = Capture {
            group: 0,
            keep: Kept::Json,
            name: Arc::clone(&said.name),
        };
        Some((capture, value))
    }
}

/// `content`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// `!`.
    pub negated: bool,
    /// `nocase`.
    pub nocase: bool,
    /// `offset`: first place, from the buffer's start.
    pub offset: Option<Number>,
    /// `depth`: how many bytes from there may hold it.
    pub depth: Option<Number>,
    /// `distance`: from the end of the match before.
    pub distance: Option<Number>,
    /// `within`.
    pub within: Option<Number>,
    /// `startswith`.
    pub starts: bool,
    /// `endswith`.
    pub ends: bool,
    /// `rawbytes`.
    pub raw: bool,
    /// `fast_pattern:only`: it is only for the prefilter, its place does not matter.
    pub only: bool,
}

impl Content {
    /// These bytes, anywhere.
    pub fn new(bytes: Vec<u8>) -> Content {
        Content {
            bytes,
            negated: false,
            nocase: false,
            offset: None,
            depth: None,
            distance: None,
            within: None,
            starts: false,
            ends: false,
            raw: false,
            only: false,
        }
    }
}

/// `pcre`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pcre {
    /// The expression without slashes.
    pub pattern: String,
    /// `!`.
    pub negated: bool,
    /// `i`.
    pub caseless: bool,
    /// `m`.
    pub multiline: bool,
    /// `s`.
    pub dotall: bool,
    /// `x`.
    pub extended: bool,
    /// `A`.
    pub anchored: bool,
    /// `E`.
    pub dollar_end_only: bool,
    /// `G`.
    pub ungreedy: bool,
    /// `R`: begins at the end of the match before.
    pub relative: bool,
    /// Captures that are kept.
    pub captures: Vec<Capture>,
}

/// A capture that is kept when the rule holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    /// Its number in the expression, from 1.
    pub group: usize,
    /// Where it stands in the log.
    pub keep: Kept,
    /// Under which name.
    pub name: Arc<str>,
}

/// For how long a capture is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// `flow:`: with its flow.
    Flow,
    /// `pkt:`: for the records of its packet.
    Packet,
    /// `alert:`: for the alert.
    Alert,
    /// For the alert, which shows it as JSON: what a set says of its member.
    Json,
}

impl Pcre {
    /// A pattern without flags.
    pub fn new(pattern: String) -> Pcre {
        Pcre {
            pattern,
            negated: false,
            caseless: false,
            multiline: false,
            dotall: false,
            extended: false,
            anchored: false,
            dollar_end_only: false,
            ungreedy: false,
            relative: false,
            captures: Vec::new(),
        }
    }
}

/// How a number is read out of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// How many bytes. Of a string: how many may be digits; 0: all up to the buffer's end.
    pub bytes: Number,
    /// Where.
    pub offset: Number,
    /// From the end of the match before.
    pub relative: bool,
    /// Little-endian.
    pub little: bool,
    /// As text in this base.
    pub string: Option<u32>,
    /// In the order that the header of a DCE/RPC call says of its arguments; of other bytes: big-endian.
    pub dce: bool,
    /// `bitmask`, applied and shifted to its lowest bit.
    pub bitmask: Option<u32>,
}

/// `byte_test`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByteTest {
    /// How to read.
    pub read: Read,
    /// `!` before the operator.
    pub negated: bool,
    /// The operator.
    pub operator: TestOperator,
    /// With what.
    pub value: Number,
}

/// Operator of `byte_test`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestOperator {
    /// `<`.
    Less,
    /// `>`.
    Greater,
    /// `=`.
    Equal,
    /// `<=`.
    LessEqual,
    /// `>=`.
    GreaterEqual,
    /// `&`: any common bit.
    And,
    /// `^`: no common bit, in the language's way: (a ^ b) is not 0.
    Xor,
}

/// `byte_jump`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByteJump {
    /// How to read.
    pub read: Read,
    /// `multiplier`.
    pub multiplier: u32,
    /// `align`: up to a multiple of four.
    pub align: bool,
    /// `from_beginning`.
    pub from_beginning: bool,
    /// `from_end`.
    pub from_end: bool,
    /// `post_offset`.
    pub post_offset: Number,
}

/// `byte_extract`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByteExtract {
    /// How to read.
    pub read: Read,
    /// `multiplier`.
    pub multiplier: u32,
    /// `align` to 2 or 4; 0: not.
    pub align: u8,
    /// What it is called. A name extracted again takes the later value.
    pub name: String,
}

/// `byte_math`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByteMath {
    /// How to read.
    pub read: Read,
    /// `+ - * / << >>`.
    pub operator: MathOperator,
    /// With what.
    pub value: Number,
    /// What it is called.
    pub name: String,
}

/// Operator of `byte_math`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MathOperator {
    /// `+`.
    Add,
    /// `-`.
    Subtract,
    /// `*`.
    Multiply,
    /// `/`.
    Divide,
    /// `<<`.
    Left,
    /// `>>`.
    Right,
}

/// `base64_decode` and `from_base64`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Base64 {
    /// How many encoded bytes; `None`: all.
    pub bytes: Option<u32>,
    /// Where they begin.
    pub offset: u32,
    /// From the end of the match before.
    pub relative: bool,
    /// `mode` of `from_base64`, as written.
    pub mode: Option<String>,
}

/// A range of a number, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// From.
    pub low: u64,
    /// To.
    pub high: u64,
    /// Not in it.
    pub negated: bool,
    /// Bits of the number that are looked at; all of them unless the rule names some (`&0xf0=0x10`).
    pub mask: u64,
}

impl Range {
    /// From one number to another.
    pub const fn new(low: u64, high: u64, negated: bool) -> Range {
        Range {
            low,
            high,
            negated,
            mask: u64::MAX,
        }
    }

    /// Whether a number is in it.
    pub const fn has(&self, number: u64) -> bool {
        let number = number & self.mask;
        (self.low <= number && number <= self.high) != self.negated
    }
}
