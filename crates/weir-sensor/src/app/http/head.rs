//! Heads of HTTP messages: where one ends, its first line, its header lines. As forgiving as the most forgiving end, because an attacker chooses the end.

/// Known header names, so that none is compared twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    Accept,
    AcceptEncoding,
    AcceptLanguage,
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
        13 => &[(b"content-range", Known::ContentRange)],
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
        .map_or(Known::Other, |c| c.1)
}

/// Header lines beyond it are left out, with an event.
const MOST_FIELDS: usize = 1024;
/// Values of one name beyond it are left out, with an event.
const MOST_REPEATED: u8 = 64;

/// One header: its name, and the values of all lines with that name, joined by ", ".
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub(super) known: Known,
    name: (u32, u32),
    value: (u32, u32),
    repeated: u8,
}

/// A head, parsed. Kept between messages for its memory.
#[derive(Debug, Default)]
pub(super) struct Head {
    arena: Vec<u8>,
    pub(super) fields: Vec<Field>,
    /// The first line without its end.
    line: (u32, u32),
    /// Events of the header lines; the caller adds the direction.
    pub(super) oddities: Oddities,
}

/// What was odd about header lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Oddities {
    pub(super) folded: bool,
    pub(super) no_colon: bool,
    pub(super) repeated: bool,
    pub(super) repeated_length: bool,
    pub(super) too_many: bool,
}

impl Head {
    pub(super) fn line(&self) -> &[u8] {
        &self.arena[self.line.0 as usize..self.line.1 as usize]
    }

    pub(super) fn name(&self, field: &Field) -> &[u8] {
        &self.arena[field.name.0 as usize..field.name.1 as usize]
    }

    pub(super) fn value(&self, field: &Field) -> &[u8] {
        &self.arena[field.value.0 as usize..field.value.1 as usize]
    }

    /// The value of a header that is there.
    pub(super) fn known(&self, known: Known) -> Option<&[u8]> {
        let field = self.fields.iter().find(|f| f.known == known)?;
        Some(self.value(field))
    }

    /// Parses a whole head. `response`: a lone CR ends lines, as some clients have it. Returns where the header lines begin.
    pub(super) fn parse(&mut self, bytes: &[u8], response: bool) -> usize {
        self.arena.clear();
        self.fields.clear();
        self.oddities = Oddities::default();
        let mut lines = Lines::new(bytes, 0, response, true);
        let first = lines.next().unwrap_or(&[]);
        self.arena.extend_from_slice(first);
        self.line = (0, first.len() as u32);
        let after = lines.at;
        // Where the field being read began in the list; continuation lines go to the last one.
        while let Some(line) = lines.next() {
            if line.is_empty() {
                break;
            }
            let folds = matches!(line[0], b' ' | b'\t') && !self.fields.is_empty();
            if folds && !(response && looks_like_field(line)) {
                self.oddities.folded = true;
                self.fold(line);
            } else {
                self.field(line);
            }
        }
        self.merge();
        after
    }

    fn field(&mut self, line: &[u8]) {
        if self.fields.len() >= MOST_FIELDS {
            self.oddities.too_many = true;
            return;
        }
        let (name, value) = match memchr::memchr(b':', line) {
            Some(at) => (trim(&line[..at]), trim(&line[at + 1..])),
            None => {
                self.oddities.no_colon = true;
                (&b""[..], trim(line))
            }
        };
        let name = self.add(name);
        let value = self.add(value);
        let known = known(&self.arena[name.0 as usize..name.1 as usize]);
        self.fields.push(Field {
            known,
            name,
            value,
            repeated: 0,
        });
    }

    /// Joins a continuation line with the white space it began with. The last value is at the end of the arena, so it grows in place.
    fn fold(&mut self, line: &[u8]) {
        let rest = trim(line);
        let field = self.fields.last_mut().expect("folding needs a field");
        if field.value.1 > field.value.0 && !rest.is_empty() {
            self.arena.push(line[0]);
        }
        self.arena.extend_from_slice(rest);
        field.value.1 = self.arena.len() as u32;
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
        if to.known == Known::ContentLength {
            // The first decides, as for most servers; a list of lengths is no length.
            self.oddities.repeated_length = true;
            return;
        }
        self.oddities.repeated = true;
        if to.repeated >= MOST_REPEATED {
            self.oddities.too_many = true;
            return;
        }
        to.repeated += 1;
        let start = self.arena.len() as u32;
        self.arena
            .extend_from_within(to.value.0 as usize..to.value.1 as usize);
        self.arena.extend_from_slice(b", ");
        self.arena
            .extend_from_within(from.value.0 as usize..from.value.1 as usize);
        to.value = (start, self.arena.len() as u32);
        self.fields[into] = to;
    }

    pub(super) fn memory(&self) -> usize {
        self.arena.capacity() + self.fields.capacity() * size_of::<Field>()
    }
}

fn trim(bytes: &[u8]) -> &[u8] {
    let odd = |b: &u8| matches!(b, b' ' | b'\t' | b'\r' | b'\n' | 0x0b | 0x0c);
    let start = bytes.iter().position(|b| !odd(b)).unwrap_or(bytes.len());
    let end = bytes.iter().rposition(|b| !odd(b)).map_or(start, |e| e + 1);
    &bytes[start..end]
}

/// Whether an indented line is rather a header of its own: a token, then a colon.
fn looks_like_field(line: &[u8]) -> bool {
    let line = trim(line);
    let token = |b: &u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b);
    match memchr::memchr(b':', line) {
        Some(at) => at > 0 && line[..at].iter().all(token),
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
            let run = rest[end..]
                .iter()
                .position(|&b| b != b'\r')
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
    /// Where the head ends, if all of it is there: after its empty line.
    pub(super) fn end(&mut self, bytes: &[u8], response: bool) -> Option<usize> {
        let mut lines = Lines::new(bytes, self.at, response, false);
        lines.after_cr = self.after_cr;
        while let Some(line) = lines.next() {
            let empty = line.is_empty() && self.first;
            self.first = true;
            self.at = lines.at;
            self.after_cr = lines.after_cr;
            if empty {
                return Some(lines.at);
            }
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
