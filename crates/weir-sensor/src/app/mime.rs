//! MIME messages line by line: headers, and the parts that are files, decoded.

#![expect(
    clippy::indexing_slicing,
    reason = "older than the lint: lengths are compared before; a place that is touched gets a checked access"
)]

use super::http::multipart::{parameter, parameter_until};
use super::text::text;
use super::transaction::Transaction;
use super::wanted::Wanted;
use crate::base64;
use crate::buffer::Buffer;
use crate::packet::Direction;
use md5::{Digest, Md5};

/// Parts in parts beyond it are not opened.
const MOST_DEPTH: usize = 16;
/// The same of messages that are encoded within each other.
const MOST_CARRIED: u8 = 4;
/// Files of one message beyond it are not looked at.
const MOST_FILES: usize = 128;
/// The longest header with its continuation lines.
const MOST_HEADER: usize = 8 * 1024;
/// The longest line; longer ones are taken in pieces.
const MOST_LINE: usize = 8 * 1024;
/// Senders keep lines (RFC 5322, section 2.1.1), lines of encoded parts (RFC 2045, section 6.7) and boundaries (RFC 2046, section 5.1.1) to these lengths; a longer one has an event.
const LONG_LINE: usize = 998;
const LONG_ENCODED_LINE: usize = 76;
const LONG_BOUNDARY: usize = 254;
/// The same of headers' names and values and of names of files, by the custom of mail filters.
const LONG_HEADER_NAME: usize = 75;
const LONG_HEADER_VALUE: usize = 2000;
const LONG_FILE_NAME: usize = 255;

/// A message in progress.
#[derive(Default)]
pub(super) struct Mime {
    /// The beginning of a line.
    line: Vec<u8>,
    /// A header whose continuation may follow.
    header: Vec<u8>,
    state: State,
    boundaries: Vec<Vec<u8>>,
    part: Part,
    /// Whether the headers of the message itself are read.
    inner: bool,
    /// A message that is encoded as a part of this one: its lines are those of what is decoded.
    carried: Option<Box<Mime>>,
    /// How deep this one is in others.
    depth: u8,
    /// The sum of all lines behind the headers of the message itself as they were sent, if records have it.
    sum: Option<Md5>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Headers,
    Body,
}

/// A part whose headers are known.
#[derive(Default)]
struct Part {
    encoding: Encoding,
    kind: Vec<u8>,
    boundary: Option<Vec<u8>>,
    name: Option<Vec<u8>>,
    attachment: bool,
    /// Number of its file, and the body it fills.
    file: Option<(usize, Option<usize>)>,
    /// A text that is looked through for addresses of pages.
    readable: bool,
    /// A line end that belongs to the part unless a boundary follows.
    newline: bool,
    /// Base64 digits that do not make a byte yet.
    bits: u32,
    digits: u8,
    /// Base64 was padded: nothing should follow.
    padded: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Encoding {
    #[default]
    Plain,
    Base64,
    Quoted,
}

impl Mime {
    /// The next bytes of the message, cut anywhere.
    pub(super) fn data(&mut self, mut bytes: &[u8], t: &mut Transaction, w: &Wanted) {
        while !bytes.is_empty() {
            let newline = memchr::memchr(b'\n', bytes);
            let room = MOST_LINE - self.line.len();
            let end = newline.map_or(bytes.len(), |n| n + 1).min(room);
            self.line.extend_from_slice(&bytes[..end]);
            bytes = &bytes[end..];
            let whole = self.line.last() == Some(&b'\n');
            if whole || self.line.len() >= MOST_LINE {
                let line = std::mem::take(&mut self.line);
                self.take_line(&line, t, w);
                self.line = line;
                self.line.clear();
            }
        }
    }

    /// The line that comes next was sent with a dot in front of it, which the sum includes.
    pub(super) fn stuffed(&mut self) {
        if let Some(sum) = &mut self.sum {
            sum.update(b".");
        }
    }

    /// The message is over.
    pub(super) fn end(&mut self, t: &mut Transaction, w: &Wanted) {
        if !self.line.is_empty() {
            let line = std::mem::take(&mut self.line);
            self.take_line(&line, t, w);
        }
        if self.state == State::Headers {
            self.header_done(t, w);
        }
        self.close(t, w, true);
        let sum = self.sum.take().filter(|_| self.depth == 0);
        let sum = sum.map(|sum| super::text::hex(&sum.finalize()));
        if let Some(sum) = &sum
            && w.buffers.has(Buffer::EmailBodyMd5)
        {
            t.push(Buffer::EmailBodyMd5, Direction::ToServer, sum.as_bytes());
        }
        if w.records && self.depth == 0 {
            email(t).insert("status".into(), "PARSE_DONE".into());
            if let Some(sum) = sum.filter(|_| w.said.mail_body_md5) {
                email(t).insert("body_md5".into(), sum.into());
            }
        }
    }

    fn take_line(&mut self, line: &[u8], t: &mut Transaction, w: &Wanted) {
        if let Some(sum) = &mut self.sum {
            sum.update(line);
        }
        let ended = line.last() == Some(&b'\n');
        let content = match line {
            [c @ .., b'\r', b'\n'] | [c @ .., b'\n'] => c,
            c => c,
        };
        if content.len() > LONG_LINE {
            t.event("mime_long_line");
        }
        if content.starts_with(b"--") && self.boundary(content, t, w) {
            return;
        }
        match self.state {
            State::Headers => {
                if content.is_empty() {
                    self.header_done(t, w);
                    self.open(t, w);
                } else if matches!(content[0], b' ' | b'\t') && !self.header.is_empty() {
                    if self.header.len() + content.len() > MOST_HEADER {
                        t.event("mime_long_header_value");
                    } else {
                        self.header.push(b' ');
                        self.header.extend_from_slice(content.trim_ascii_start());
                    }
                } else {
                    self.header_done(t, w);
                    self.header.extend_from_slice(content);
                }
            }
            State::Body => self.body(content, ended, t, w),
        }
    }

    /// A delimiter of one of the open parts: what is inside of it is over.
    fn boundary(&mut self, line: &[u8], t: &mut Transaction, w: &Wanted) -> bool {
        let rest = &line[2..];
        let found = self
            .boundaries
            .iter()
            .rposition(|b| rest.starts_with(b) && rest[b.len()..].trim_ascii_end().len() <= 2);
        let Some(at) = found else {
            return false;
        };
        let last = rest[self.boundaries[at].len()..].starts_with(b"--");
        self.close(t, w, true);
        self.boundaries.truncate(if last { at } else { at + 1 });
        self.part = Part::default();
        self.header.clear();
        self.inner = true;
        self.state = if last { State::Body } else { State::Headers };
        true
    }

    fn header_done(&mut self, t: &mut Transaction, w: &Wanted) {
        let header = std::mem::take(&mut self.header);
        let Some(colon) = memchr::memchr(b':', &header) else {
            return;
        };
        let name = header[..colon].trim_ascii().to_ascii_lowercase();
        let value = header[colon + 1..].trim_ascii();
        if name.len() > LONG_HEADER_NAME {
            t.event("mime_long_header_name");
        }
        if value.len() > LONG_HEADER_VALUE {
            t.event("mime_long_header_value");
        }
        match name.as_slice() {
            b"content-type" => {
                let end = memchr::memchr(b';', value).unwrap_or(value.len());
                self.part.kind = value[..end].trim_ascii().to_ascii_lowercase();
                self.part.boundary = parameter(value, b"boundary");
                if let Some(name) = file_name(value, b"name") {
                    self.part.name.get_or_insert(name);
                }
            }
            b"content-disposition" => {
                let lower = value.to_ascii_lowercase();
                self.part.attachment = lower.starts_with(b"attachment");
                if let Some(name) = file_name(value, b"filename") {
                    self.part.name = Some(name);
                }
            }
            b"content-transfer-encoding" => {
                self.part.encoding = match value.to_ascii_lowercase().as_slice() {
                    v if v.starts_with(b"base64") => Encoding::Base64,
                    v if v.starts_with(b"quoted-printable") => Encoding::Quoted,
                    _ => Encoding::Plain,
                };
            }
            _ => {}
        }
        if self.inner {
            return;
        }
        if w.records && w.said.mail {
            said(t, &name, value);
        }
        let buffer = match name.as_slice() {
            b"from" => Buffer::EmailFrom,
            b"to" => Buffer::EmailTo,
            b"cc" => Buffer::EmailCc,
            b"subject" => Buffer::EmailSubject,
            b"date" => Buffer::EmailDate,
            b"message-id" => Buffer::EmailMessageId,
            b"x-mailer" => Buffer::EmailXMailer,
            b"received" => {
                let few = || t.get(Buffer::EmailReceived, Direction::ToServer).count() < MOST_PAGES;
                if w.buffers.has(Buffer::EmailReceived) && few() {
                    t.push(Buffer::EmailReceived, Direction::ToServer, value);
                }
                return;
            }
            _ => return,
        };
        if w.buffers.has(buffer) && t.get(buffer, Direction::ToServer).next().is_none() {
            t.push(buffer, Direction::ToServer, value);
        }
        if w.records {
            let people = || -> serde_json::Value {
                let mut quoted = false;
                let all = value.split(|b| {
                    quoted ^= *b == b'"';
                    *b == b',' && !quoted
                });
                let all: Vec<_> = all.map(|p| text(p.trim_ascii())).collect();
                all.into()
            };
            match buffer {
                Buffer::EmailFrom => email(t).insert("from".into(), text(value)),
                Buffer::EmailTo => email(t).insert("to".into(), people()),
                Buffer::EmailCc => email(t).insert("cc".into(), people()),
                _ => None,
            };
        }
    }

    /// The headers of a part are over.
    fn open(&mut self, t: &mut Transaction, w: &Wanted) {
        self.state = State::Body;
        if !self.inner && (w.records && w.said.mail_body_md5 || w.buffers.has(Buffer::EmailBodyMd5))
        {
            self.sum = Some(Md5::new());
        }
        self.inner = true;
        let part = &mut self.part;
        if part.kind.starts_with(b"multipart/") {
            if let Some(b) = part.boundary.take() {
                if b.len() > LONG_BOUNDARY {
                    t.event("mime_long_boundary");
                }
                if self.boundaries.len() < MOST_DEPTH && !b.is_empty() {
                    self.boundaries.push(b);
                }
            }
            return;
        }
        if part.kind == b"message/rfc822" && part.encoding == Encoding::Plain {
            // A message in a message has headers of its own.
            self.part = Part::default();
            self.state = State::Headers;
            return;
        }
        if part.kind == b"message/rfc822" && self.depth < MOST_CARRIED {
            self.carried = Some(Box::new(Mime {
                inner: true,
                depth: self.depth + 1,
                ..Mime::default()
            }));
            // With a name it is a file as well.
            if part.name.is_none() && !part.attachment {
                return;
            }
        }
        let textual = part.kind.is_empty() || part.kind.starts_with(b"text/");
        if part.name.is_none() && !part.attachment && textual {
            let asked = w.records && w.said.urls || w.buffers.has(Buffer::EmailUrl);
            part.readable = asked && part.encoding != Encoding::Base64;
            return;
        }
        if t.files.len() >= MOST_FILES {
            t.event("mime_too_many_files");
            return;
        }
        let mut name = part.name.clone().unwrap_or_default();
        if name.len() > LONG_FILE_NAME {
            t.event("mime_long_filename");
            name.truncate(LONG_FILE_NAME);
        }
        let d = Direction::ToServer;
        if w.buffers.has(Buffer::FileName) && !name.is_empty() {
            t.push(Buffer::FileName, d, &name);
        }
        let body = w
            .buffers
            .has(Buffer::FileData)
            .then(|| t.begin_body(Buffer::FileData, None, d));
        if w.records {
            let list = email(t)
                .entry("attachment")
                .or_insert_with(|| Vec::<serde_json::Value>::new().into());
            if let serde_json::Value::Array(list) = list {
                list.push(text(&name));
            }
        }
        let file = t.begin_file(name, d, w.sums);
        t.show_file(file, body);
        part.file = Some((file, body));
    }

    fn body(&mut self, line: &[u8], ended: bool, t: &mut Transaction, w: &Wanted) {
        let part = &mut self.part;
        if part.file.is_none() && self.carried.is_none() {
            if part.readable {
                pages(line, part.encoding, t, w);
            }
            return;
        }
        let mut out = Vec::with_capacity(line.len() + 2);
        part.decode(line, ended, t, &mut out);
        if let Some((file, body)) = part.file {
            t.file_data(file, &out);
            if let Some(body) = body {
                t.append_to(body, &out, w.request_body);
            }
        }
        if let Some(carried) = &mut self.carried {
            carried.data(&out, t, w);
        }
    }

    /// The part is over.
    fn close(&mut self, t: &mut Transaction, w: &Wanted, whole: bool) {
        let mut out = Vec::new();
        self.part.flush(&mut out);
        if let Some(mut carried) = self.carried.take() {
            carried.data(&out, t, w);
            carried.end(t, w);
        }
        if let Some((file, body)) = self.part.file.take() {
            t.file_data(file, &out);
            t.end_file(file, whole);
            if let Some(body) = body {
                t.append_to(body, &out, usize::MAX);
            }
        }
    }

    pub(super) fn memory(&self) -> usize {
        let names = self.boundaries.iter().map(Vec::capacity).sum::<usize>();
        let carried = self.carried.as_ref();
        let carried = carried.map_or(0, |c| size_of::<Mime>() + c.memory());
        self.line.capacity() + self.header.capacity() + names + carried
    }
}

impl Part {
    /// Undoes the encoding of a line.
    fn decode(&mut self, line: &[u8], ended: bool, t: &mut Transaction, out: &mut Vec<u8>) {
        let part = self;
        if part.encoding != Encoding::Plain && line.len() > LONG_ENCODED_LINE {
            t.event("mime_long_enc_line");
        }
        match part.encoding {
            Encoding::Plain => {
                if part.newline {
                    out.extend_from_slice(b"\r\n");
                }
                out.extend_from_slice(line);
                part.newline = ended;
            }
            Encoding::Quoted => {
                if part.newline {
                    out.extend_from_slice(b"\r\n");
                }
                let trimmed = line.trim_ascii_end();
                let soft = trimmed.last() == Some(&b'=');
                let content = if soft {
                    &trimmed[..trimmed.len() - 1]
                } else {
                    line
                };
                let odd = quoted(content, out);
                if odd || soft && trimmed.len() < line.len() {
                    t.event("mime_invalid_qp");
                }
                part.newline = ended && !soft;
            }
            Encoding::Base64 => {
                for &b in line {
                    // What is no digit is passed over (RFC 2045, section 6.8).
                    let Some(value) = base64::digit(b) else {
                        if b == b'=' {
                            part.flush(out);
                            part.padded = true;
                        }
                        continue;
                    };
                    if part.padded {
                        t.event("mime_invalid_base64");
                    }
                    part.bits = part.bits << 6 | value;
                    part.digits += 1;
                    if part.digits == 4 {
                        out.extend_from_slice(&part.bits.to_be_bytes()[1..]);
                        (part.bits, part.digits) = (0, 0);
                    }
                }
            }
        }
    }

    /// Digits that are left over make one or two bytes.
    fn flush(&mut self, out: &mut Vec<u8>) {
        match self.digits {
            2 => out.push((self.bits >> 4) as u8),
            3 => out.extend_from_slice(&((self.bits >> 2) as u16).to_be_bytes()),
            _ => {}
        }
        (self.bits, self.digits) = (0, 0);
    }
}

/// Undoes quoted-printable. Returns whether something in it was not written as it should be: no two digits, or small ones.
fn quoted(line: &[u8], out: &mut Vec<u8>) -> bool {
    escaped(line, b'=', out)
}

fn escaped(line: &[u8], sign: u8, out: &mut Vec<u8>) -> bool {
    let digit = |b: Option<&u8>| b.and_then(|b| (*b as char).to_digit(16));
    let (mut at, mut odd) = (0, false);
    while at < line.len() {
        if line[at] == sign
            && let (Some(a), Some(b)) = (digit(line.get(at + 1)), digit(line.get(at + 2)))
        {
            out.push((a << 4 | b) as u8);
            odd |= line[at + 1..at + 3].iter().any(u8::is_ascii_lowercase);
            at += 3;
        } else {
            odd |= line[at] == sign;
            out.push(line[at]);
            at += 1;
        }
    }
    odd
}

/// The name of a file: `name`, in parts (`name*0`, `name*1`; RFC 2231, section 3), or with its character set (`name*`; section 4). Without quotes it goes up to the semicolon, spaces and all.
fn file_name(value: &[u8], name: &[u8]) -> Option<Vec<u8>> {
    let numbered = |n: usize, star: &[u8]| {
        let part = [name, b"*", n.to_string().as_bytes(), star].concat();
        parameter(value, &part)
    };
    let whole = parameter_until(value, name, |b| b == b';');
    if whole.is_some() {
        return whole;
    }
    let mut joined = Vec::new();
    for n in 0..MOST_NAME_PARTS {
        match (numbered(n, b""), numbered(n, b"*")) {
            (Some(part), _) => joined.extend(part),
            (None, Some(part)) => joined.extend(unescaped(&part, n == 0)),
            (None, None) => break,
        }
    }
    if !joined.is_empty() {
        return Some(joined);
    }
    parameter(value, &[name, b"*"].concat()).map(|v| unescaped(&v, true))
}

/// Parts of one name beyond it are left out.
const MOST_NAME_PARTS: usize = 16;

/// `CHARSET'LANGUAGE'TEXT` with escaped bytes; only the first part of a name has the front.
fn unescaped(value: &[u8], front: bool) -> Vec<u8> {
    let mut parts = value.splitn(3, |b| *b == b'\'');
    let text = match (front, parts.nth(2)) {
        (true, Some(text)) => text,
        _ => value,
    };
    let mut out = Vec::new();
    escaped(text, b'%', &mut out);
    out
}

/// Addresses of pages that records have of one mail.
const MOST_PAGES: usize = 256;

/// Header lines of records, with the names of their fields; those of which there may be several are lists.
const LINES: [(&[u8], &str, bool); 15] = [
    (b"reply-to", "reply_to", false),
    (b"bcc", "bcc", true),
    (b"message-id", "message_id", false),
    (b"subject", "subject", false),
    (b"x-mailer", "x_mailer", false),
    (b"user-agent", "user_agent", false),
    (b"received", "received", true),
    (b"x-originating-ip", "x_originating_ip", false),
    (b"in-reply-to", "in_reply_to", false),
    (b"references", "references", false),
    (b"importance", "importance", false),
    (b"priority", "priority", false),
    (b"sensitivity", "sensitivity", false),
    (b"organization", "organization", false),
    (b"content-md5", "content_md5", false),
];

/// What records can have of a header line beyond the usual.
fn said(t: &mut Transaction, name: &[u8], value: &[u8]) {
    let known = LINES.iter().find(|(n, ..)| *n == name);
    let (field, several) = match known {
        Some((_, field, several)) => (*field, *several),
        None if name == b"date" => ("date", false),
        None => return,
    };
    if field == "subject" {
        let sum = super::text::hex(&Md5::digest(value));
        email(t).insert("subject_md5".into(), sum.into());
    }
    let email = email(t);
    if !several {
        email.insert(field.into(), text(value));
        return;
    }
    let list = email
        .entry(field)
        .or_insert_with(|| Vec::<serde_json::Value>::new().into());
    if let serde_json::Value::Array(list) = list
        && list.len() < MOST_PAGES
    {
        // Receivers stand in one line.
        let parts = value.split(|b| *b == b',' && field == "bcc");
        list.extend(parts.map(|p| text(p.trim_ascii())));
    }
}

/// Schemes of addresses that may be asked for.
pub(crate) const SCHEMES: [&str; 4] = ["http", "https", "ftp", "mailto"];

/// Notes the addresses in a line of text: those of the web for rules, without their scheme; those that are asked for in records.
fn pages(line: &[u8], encoding: Encoding, t: &mut Transaction, w: &Wanted) {
    if memchr::memmem::find(line, b"://").is_none() {
        return;
    }
    let mut decoded = Vec::new();
    let line = if encoding == Encoding::Quoted {
        quoted(line, &mut decoded);
        decoded.as_slice()
    } else {
        line
    };
    for (number, scheme) in SCHEMES.iter().enumerate() {
        let told = w.records && w.said.urls && w.said.schemes >> number & 1 != 0;
        let asked = number == 0 && w.buffers.has(Buffer::EmailUrl);
        if !told && !asked {
            continue;
        }
        let mut at = 0;
        while let Some(found) = line.get(at..).and_then(|l| memchr::memmem::find(l, b"://")) {
            let start = at + found + 3;
            let from = (at + found).checked_sub(scheme.len());
            at = start;
            let Some(from) = from else { continue };
            let before = from.checked_sub(1).and_then(|b| line.get(b));
            let word = line.get(from..start - 3);
            if !word.is_some_and(|s| s.eq_ignore_ascii_case(scheme.as_bytes()))
                || before.is_some_and(u8::is_ascii_alphanumeric)
            {
                continue;
            }
            let ends = |b: &u8| !b.is_ascii_graphic() || matches!(b, b'"' | b'\'' | b'<' | b'>');
            let rest = line.get(start..).unwrap_or_default();
            let end = rest.iter().position(ends).map_or(line.len(), |n| start + n);
            let page = line.get(start..end).unwrap_or_default();
            if page.is_empty() {
                continue;
            }
            let few = || t.get(Buffer::EmailUrl, Direction::ToServer).count() < MOST_PAGES;
            if asked && few() {
                t.push(Buffer::EmailUrl, Direction::ToServer, page);
            }
            if !told {
                continue;
            }
            let list = email(t)
                .entry("url")
                .or_insert_with(|| Vec::<serde_json::Value>::new().into());
            if let serde_json::Value::Array(list) = list
                && list.len() < MOST_PAGES
            {
                let shown = match w.said.url_scheme {
                    true => line.get(from..end).unwrap_or_default(),
                    false => page,
                };
                // The last one first, as readers of such records are used to.
                list.insert(0, text(shown));
            }
        }
    }
}

fn email(t: &mut Transaction) -> &mut serde_json::Map<String, serde_json::Value> {
    let entry = t
        .beside
        .entry("email")
        .or_insert_with(|| serde_json::Map::new().into());
    match entry {
        serde_json::Value::Object(map) => map,
        _ => unreachable!("only objects are put there"),
    }
}
