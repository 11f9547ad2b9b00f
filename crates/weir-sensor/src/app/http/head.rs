//! Heads of HTTP messages: where one ends, its first line, its header lines. As forgiving as the most forgiving end, because an attacker chooses the end.

use super::body::content_length;

/// Known header names, so that none is compared twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::app) enum Known {
    Accept,
    AcceptEncoding,
    AcceptLanguage,
    Authorization,
    Connection,
    ContentDisposition,
    ContentEncoding,
    ContentLength,
    ContentRange,
    ContentType,
    Cookie,
    Host,
    Location,
    Referer,
    Server,
    SetCookie,
    TransferEncoding,
    Upgrade,
    UserAgent,
    XForwardedFor,
    Other,
}

fn known(name: &[u8]) -> Known {
    let candidates: &[(&[u8], Known)] = match name.len() {
        4 => &[(b"host", Known::Host)],
        6 => &[
            (b"accept", Known::Accept),
            (b"cookie", Known::Cookie),
            (b"server", Known::Server),
        ],
        7 => &[(b"referer", Known::Referer), (b"upgrade", Known::Upgrade)],
        8 => &[(b"location", Known::Location)],
        10 => &[
            (b"user-agent", Known::UserAgent),
            (b"connection", Known::Connection),
            (b"set-cookie", Known::SetCookie),
        ],
        12 => &[(b"content-type", Known::ContentType)],
        13 => &[
            (b"content-range", Known::ContentRange),
            (b"authorization", Known::Authorization),
        ],
        14 => &[(b"content-length", Known::ContentLength)],
        15 => &[
            (b"accept-encoding", Known::AcceptEncoding),
            (b"accept-language", Known::AcceptLanguage),
            (b"x-forwarded-for", Known::XForwardedFor),
        ],
        16 => &[(b"content-encoding", Known::ContentEncoding)],
        17 => &[(b"transfer-encoding", Known::TransferEncoding)],
        19 => &[(b"content-disposition", Known::ContentDisposition)],
        _ => &[],
    };
    candidates
        .iter()
        .find(|(n, _)| name.eq_ignore_ascii_case(n))
        .map_or_else(|| mixed(name), |c| c.1)
}

/// Some ends do not see what some senders mix into names.
fn mixed(name: &[u8]) -> Known {
    if memchr::memchr2(0, 0x7f, name).is_none() {
        return Known::Other;
    }
    let name: Vec<u8> = name
        .iter()
        .filter(|b| **b != 0 && **b != 0x7f)
        .copied()
        .collect();
    known(&name)
}

/// Values of one name beyond it are left out, with an event.
const MOST_REPEATED: u8 = 64;

/// One header: its name, and the values of all lines with that name, joined by ", ".
#[derive(Clone, Copy, Debug)]
pub(in crate::app) struct Field {
    pub(super) known: Known,
    name: (u32, u32),
    value: (u32, u32),
    repeated: u8,
    /// A line without a colon: all of it is the value.
    bare: bool,
}

/// A head, parsed. Kept between messages for its memory.
#[derive(Debug, Default)]
pub(in crate::app) struct Head {
    arena: Vec<u8>,
    pub(in crate::app) fields: Vec<Field>,
    /// The first line without its end.
    line: (u32, u32),
    /// Cookies come in pieces, as in HTTP/2.
    crumbs: bool,
    /// Every header line for itself, before those of one name were put together: name and value.
    pub(super) lines: Vec<((u32, u32), (u32, u32))>,
    /// Whether those are wanted.
    pub(super) keep_lines: bool,
    /// Most header lines.
    pub(super) most: usize,
    /// Events of the header lines; the caller adds the direction.
    pub(super) oddities: Oddities,
}

/// What was odd about header lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Oddities {
    /// A continuation of nothing.
    pub(super) folding: bool,
    /// No colon, or nothing before it.
    pub(super) no_colon: bool,
    /// A name that is no token.
    pub(super) no_token: bool,
    /// White space between a name and its colon.
    pub(super) blank_after_name: bool,
    pub(super) repeated: bool,
    /// Content-Length twice, with different values.
    pub(super) lengths: bool,
    pub(super) too_many: bool,
    /// A line longer than ends take.
    pub(super) too_long: bool,
    /// A line that a CR alone ended.
    pub(super) lone_cr: bool,
}

impl Oddities {
    /// Whether ends may read these lines in more than one way.
    pub(super) fn hide(&self) -> bool {
        self.no_colon || self.no_token || self.blank_after_name || self.folding || self.lone_cr
    }
}

/// A longer line has an event.
const LONG_LINE: usize = 18_432;

impl Head {
    pub(super) fn line(&self) -> &[u8] {
        &self.arena[self.line.0 as usize..self.line.1 as usize]
    }

    pub(in crate::app) fn name(&self, field: &Field) -> &[u8] {
        &self.arena[field.name.0 as usize..field.name.1 as usize]
    }

    pub(in crate::app) fn value(&self, field: &Field) -> &[u8] {
        &self.arena[field.value.0 as usize..field.value.1 as usize]
    }

    /// The value of a header that is there.
    pub(in crate::app) fn known(&self, known: Known) -> Option<&[u8]> {
        let field = self.fields.iter().find(|f| f.known == known)?;
        Some(self.value(field))
    }

    /// One of [`Head::lines`].
    pub(super) fn bytes(&self, (start, end): (u32, u32)) -> &[u8] {
        &self.arena[start as usize..end as usize]
    }

    /// Begins a head whose fields come one by one, as in HTTP/2: at most so many.
    pub(in crate::app) fn clear(&mut self, most: usize) {
        self.arena.clear();
        self.fields.clear();
        self.lines.clear();
        self.oddities = Oddities::default();
        self.line = (0, 0);
        (self.most, self.crumbs) = (most, true);
    }

    /// Adds a field.
    pub(in crate::app) fn put(&mut self, name: &[u8], value: &[u8]) {
        if self.fields.len() >= self.most {
            self.oddities.too_many = true;
            return;
        }
        let (known, name, value) = (known(name), self.add(name), self.add(trim(value)));
        self.fields.push(Field {
            known,
            name,
            value,
            repeated: 0,
            bare: false,
        });
    }

    /// All fields are there.
    pub(in crate::app) fn finish(&mut self) {
        self.merge();
    }

    /// Parses a whole head. `response`: a lone CR ends lines, as some clients have it. Returns where the header lines begin.
    pub(super) fn parse(&mut self, bytes: &[u8], response: bool) -> usize {
        self.arena.clear();
        self.fields.clear();
        self.lines.clear();
        self.oddities = Oddities::default();
        let mut lines = Lines::new(bytes, 0, response, true);
        let first = lines.next().unwrap_or(&[]);
        self.arena.extend_from_slice(first);
        self.line = (0, first.len() as u32);
        self.oddities.too_long = first.len() > LONG_LINE;
        let after = lines.at;
        while let Some(line) = lines.next() {
            self.oddities.lone_cr |= lines.after_cr;
            if line.is_empty() || response && line.iter().all(|b| *b == 0) {
                // One that was overlooked, or the last.
                continue;
            }
            self.oddities.too_long |= line.len() > LONG_LINE;
            let indented = matches!(line[0], b' ' | b'\t');
            if indented && self.fields.is_empty() {
                let blank = trim(line).is_empty();
                self.oddities.no_colon |= blank;
                self.oddities.folding |= !blank;
            }
            let folds = indented && !self.fields.is_empty();
            if folds && !(response && looks_like_field(line)) {
                self.fold(line);
            } else {
                self.field(line);
            }
        }
        for field in &self.fields {
            let name = &self.arena[field.name.0 as usize..field.name.1 as usize];
            self.oddities.no_colon |= field.bare || name.is_empty();
            self.oddities.no_token |= !name.iter().all(is_token);
        }
        if self.keep_lines {
            self.lines
                .extend(self.fields.iter().map(|f| (f.name, f.value)));
        }
        self.merge();
        after
    }

    fn field(&mut self, line: &[u8]) {
        if self.fields.len() >= self.most {
            self.oddities.too_many = true;
            return;
        }
        let (name, value, bare) = match memchr::memchr(b':', line) {
            Some(at) => {
                self.oddities.blank_after_name |= at > 0 && matches!(line[at - 1], b' ' | b'\t');
                (trim_name(&line[..at]), trim(&line[at + 1..]), false)
            }
            None => (&b""[..], trim(line), true),
        };
        let name = self.add(name);
        let value = self.add(value);
        let known = known(&self.arena[name.0 as usize..name.1 as usize]);
        self.fields.push(Field {
            known,
            name,
            value,
            repeated: 0,
            bare,
        });
    }

    /// Joins a continuation line with the white space it began with. The last value is at the end of the arena, so it grows in place.
    fn fold(&mut self, line: &[u8]) {
        let rest = trim(line);
        let Some(field) = self.fields.last_mut() else {
            return;
        };
        if field.value.1 > field.value.0 && !rest.is_empty() {
            self.arena.push(line[0]);
        }
        self.arena.extend_from_slice(rest);
        field.value.1 = self.arena.len() as u32;
        if !field.bare {
            return;
        }
        // The colon may come after the fold.
        let (start, end) = (field.value.0 as usize, field.value.1 as usize);
        let Some(colon) = memchr::memchr(b':', &self.arena[start..end]) else {
            return;
        };
        let name = trim_name(&self.arena[start..start + colon]).len();
        let from = start + colon + 1;
        let blank = self.arena[from..end].iter().take_while(|b| is_space(b));
        let value = from + blank.count();
        field.name = (start as u32, (start + name) as u32);
        field.value = (value as u32, end as u32);
        field.known = known(&self.arena[start..start + name]);
        field.bare = false;
    }

    fn add(&mut self, bytes: &[u8]) -> (u32, u32) {
        let start = self.arena.len() as u32;
        self.arena.extend_from_slice(bytes);
        (start, self.arena.len() as u32)
    }

    /// Puts the lines of one name together, where the first of them stands.
    fn merge(&mut self) {
        let mut kept = 0;
        for i in 0..self.fields.len() {
            let field = self.fields[i];
            let length = field.name.1 - field.name.0;
            let name = field.name.0 as usize..field.name.1 as usize;
            let same = (0..kept).find(|&k| {
                let other = &self.fields[k];
                other.known == field.known
                    && other.name.1 - other.name.0 == length
                    && (field.known != Known::Other
                        || self.arena[other.name.0 as usize..other.name.1 as usize]
                            .eq_ignore_ascii_case(&self.arena[name.clone()]))
            });
            match same {
                Some(k) if length > 0 => self.join(k, field),
                _ => {
                    self.fields[kept] = field;
                    kept += 1;
                }
            }
        }
        self.fields.truncate(kept);
    }

    fn join(&mut self, into: usize, from: Field) {
        let mut to = self.fields[into];
        self.oddities.repeated = true;
        if to.known == Known::ContentLength {
            // The first decides, as for most servers; a list of lengths is no length.
            let number = |v: (u32, u32)| content_length(&self.arena[v.0 as usize..v.1 as usize]);
            let (a, b) = (number(to.value), number(from.value));
            self.oddities.lengths |= a.is_none() || a != b;
            return;
        }
        if to.repeated >= MOST_REPEATED {
            self.oddities.too_many = true;
            return;
        }
        to.repeated += 1;
        let start = self.arena.len() as u32;
        self.arena
            .extend_from_within(to.value.0 as usize..to.value.1 as usize);
        let glue = match to.known {
            Known::Cookie if self.crumbs => b"; ",
            _ => b", ",
        };
        self.arena.extend_from_slice(glue);
        self.arena
            .extend_from_within(from.value.0 as usize..from.value.1 as usize);
        to.value = (start, self.arena.len() as u32);
        self.fields[into] = to;
    }

    pub(in crate::app) fn memory(&self) -> usize {
        self.arena.capacity()
            + self.fields.capacity() * size_of::<Field>()
            + self.lines.capacity() * 16
    }
}

fn is_space(b: &u8) -> bool {
    matches!(b, b' ' | b'\t'..=b'\r')
}

/// Which bytes names are made of.
static TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let odd = b"!#$%&'*+-.^_`|~";
    let mut at = 0;
    while at < odd.len() {
        table[odd[at] as usize] = true;
        at += 1;
    }
    let mut b = 0;
    while b < 128 {
        table[b] |= (b as u8).is_ascii_alphanumeric();
        b += 1;
    }
    table
};

fn is_token(b: &u8) -> bool {
    TOKEN[usize::from(*b)]
}

fn trim_by(bytes: &[u8], odd: impl Fn(&u8) -> bool) -> &[u8] {
    let start = bytes.iter().position(|b| !odd(b)).unwrap_or(bytes.len());
    let end = bytes.iter().rposition(|b| !odd(b)).map_or(start, |e| e + 1);
    &bytes[start..end]
}

fn trim(bytes: &[u8]) -> &[u8] {
    trim_by(bytes, is_space)
}

/// Of names, NULs are taken off too.
fn trim_name(bytes: &[u8]) -> &[u8] {
    trim_by(bytes, |b| is_space(b) || *b == 0)
}

/// Whether an indented line is rather a header of its own: a token, then a colon.
fn looks_like_field(line: &[u8]) -> bool {
    let line = trim(line);
    match memchr::memchr(b':', line) {
        Some(at) => at > 0 && line[..at].iter().all(is_token),
        None => false,
    }
}

/// Lines of a head. LF ends a line, CRs before it are dropped; in responses a lone CR does too.
pub(super) struct Lines<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Lone CRs end lines.
    cr: bool,
    /// What is there is all there will be.
    whole: bool,
    /// The line before was ended by a lone CR.
    after_cr: bool,
}

impl<'a> Lines<'a> {
    fn new(bytes: &'a [u8], at: usize, cr: bool, whole: bool) -> Lines<'a> {
        Lines {
            bytes,
            at,
            cr,
            whole,
            after_cr: false,
        }
    }

    /// The next line without its end, if it is whole.
    fn next(&mut self) -> Option<&'a [u8]> {
        let start = self.at;
        let rest = &self.bytes[start..];
        if rest.is_empty() {
            return None;
        }
        let mut from = 0;
        loop {
            let found = if self.cr {
                memchr::memchr2(b'\r', b'\n', &rest[from..])
            } else {
                memchr::memchr(b'\n', &rest[from..])
            };
            let Some(end) = found.map(|f| from + f) else {
                return self.last(rest);
            };
            if rest[end] == b'\n' {
                self.at = start + end + 1;
                self.after_cr = false;
                let content = rest[..end].iter().rposition(|&b| b != b'\r');
                return Some(&rest[..content.map_or(0, |c| c + 1)]);
            }
            // NULs between CR and LF are overlooked.
            let run = rest[end..]
                .iter()
                .position(|&b| b != b'\r' && b != 0)
                .map(|r| end + r);
            match run {
                None if self.whole => return self.last(rest),
                None => return None,
                Some(next) if rest[next] == b'\n' => {
                    self.at = start + next + 1;
                    self.after_cr = false;
                    return Some(&rest[..end]);
                }
                // After a line that LF ended, "\r" alone is noise, not an empty line.
                Some(next) if end == 0 && !self.after_cr => from = next,
                Some(_) => {
                    self.at = start + end + 1;
                    self.after_cr = true;
                    let content = rest[..end].iter().position(|&b| b != b'\r').unwrap_or(end);
                    return Some(&rest[content..end]);
                }
            }
        }
    }

    fn last(&mut self, rest: &'a [u8]) -> Option<&'a [u8]> {
        if !self.whole {
            return None;
        }
        self.at = self.bytes.len();
        let content = rest.iter().rposition(|&b| b != b'\r');
        Some(&rest[..content.map_or(0, |c| c + 1)])
    }
}

/// Whether an empty line ends a head; outer `None`: it is not empty; inner: that is not to be seen yet. `rest` begins with the line, which takes `length` bytes with its end.
/// Of answers, an empty line that is not written as it should be is overlooked if a header line follows. A line of nothing but white space is one for some ends, unless the head goes on.
fn ends_head(line: &[u8], rest: &[u8], length: usize, response: bool) -> Option<Option<bool>> {
    let nuls = response && line.iter().all(|b| *b == 0);
    let blank = !line.is_empty() && line.iter().all(|b| matches!(b, b' ' | b'\t'));
    if !line.is_empty() && !nuls && !blank {
        return None;
    }
    if !blank && (!response || matches!(rest[..length], [b'\n'] | [b'\r', b'\n'])) {
        return Some(Some(true));
    }
    for (at, byte) in rest[length..].iter().enumerate() {
        match byte {
            // The empty line proper, or more of what was folded.
            b'\r' | b'\n' | b' ' | b'\t' if blank && at == 0 => return Some(Some(false)),
            b':' => return Some(Some(at == 0)),
            b' ' | b'\t' if at > 0 => {}
            b if is_token(b) && at < 64 => {}
            _ => return Some(Some(true)),
        }
    }
    Some(None)
}

/// How far the search for the end of a head has come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Search {
    /// Where the first line not looked at begins.
    at: usize,
    after_cr: bool,
    /// Whether the first line has been passed.
    first: bool,
}

impl Search {
    /// Where the head ends, if all of it is there: after its empty line. `whole`: what is there is all there will be.
    pub(super) fn end(&mut self, bytes: &[u8], response: bool, whole: bool) -> Option<usize> {
        let mut lines = Lines::new(bytes, self.at, response, whole);
        lines.after_cr = self.after_cr;
        while let Some(line) = lines.next() {
            if self.first
                && let Some(ends) = ends_head(line, &bytes[self.at..], lines.at - self.at, response)
            {
                match ends.or(whole.then_some(true)) {
                    Some(true) => return Some(lines.at),
                    Some(false) => {}
                    // What follows the line decides, and is looked at when it is there.
                    None => return None,
                }
            }
            self.first = true;
            self.at = lines.at;
            self.after_cr = lines.after_cr;
        }
        None
    }

    /// The first line without its end, if it is whole.
    pub(super) fn first_line(bytes: &[u8], response: bool) -> Option<(&[u8], usize)> {
        let mut lines = Lines::new(bytes, 0, response, false);
        let line = lines.next()?;
        Some((line, lines.at))
    }
}
