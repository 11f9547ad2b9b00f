//! Request bodies of type multipart/form-data: the parts that are files.

use memchr::memmem;

use crate::app::transaction::Transaction;
use crate::app::wanted::Asked;
use crate::buffer::Buffer;
use crate::packet::Direction;

/// Headers of one part beyond it end the search for files.
const MOST_HEADERS: usize = 8 * 1024;

/// A body being split at its boundary.
pub(in crate::app) struct Multipart {
    /// Two dashes and the boundary.
    delimiter: Vec<u8>,
    carry: Vec<u8>,
    state: State,
}

enum State {
    Preamble,
    Headers,
    /// In a part: the body that is filled and the number of its file, if it is one.
    Part(Option<(Option<usize>, usize)>),
    Over,
}

impl Multipart {
    /// If a Content-Type names a boundary.
    pub(in crate::app) fn new(content_type: &[u8]) -> Option<Multipart> {
        let lower = content_type.to_ascii_lowercase();
        if !lower.starts_with(b"multipart/") {
            return None;
        }
        let boundary = parameter(content_type, b"boundary")?;
        if boundary.is_empty() || boundary.len() > 256 {
            return None;
        }
        Some(Multipart {
            delimiter: [b"--", boundary.as_slice()].concat(),
            carry: Vec::new(),
            state: State::Preamble,
        })
    }

    pub(super) fn data(&mut self, bytes: &[u8], t: &mut Transaction, w: &Asked, limit: usize) {
        let wanted = w.buffers;
        self.carry.extend_from_slice(bytes);
        let mut carry = std::mem::take(&mut self.carry);
        let mut at = 0;
        loop {
            let rest = &carry[at..];
            match &mut self.state {
                State::Over => {
                    at = carry.len();
                    break;
                }
                State::Preamble => {
                    let Some(found) = memmem::find(rest, &self.delimiter) else {
                        at += rest.len().saturating_sub(self.delimiter.len());
                        break;
                    };
                    // What follows the delimiter decides whether it is the last one.
                    let after = found + self.delimiter.len();
                    let Some(line) = memchr::memchr(b'\n', &rest[after..]) else {
                        if rest[after..].starts_with(b"--") {
                            self.state = State::Over;
                        } else if rest.len() - after > 256 {
                            at += after;
                            continue;
                        } else {
                            at += found;
                            break;
                        }
                        continue;
                    };
                    let over = rest[after..].starts_with(b"--");
                    at += after + line + 1;
                    self.state = if over { State::Over } else { State::Headers };
                }
                State::Headers => {
                    let end = if rest.starts_with(b"\r\n") {
                        Some((0, 2))
                    } else if rest.starts_with(b"\n") {
                        Some((0, 1))
                    } else {
                        let crlf = memmem::find(rest, b"\r\n\r\n").map(|e| (e, e + 4));
                        let lf = memmem::find(rest, b"\n\n").map(|e| (e, e + 2));
                        [crlf, lf].into_iter().flatten().min()
                    };
                    let Some((end, next)) = end else {
                        if rest.len() > MOST_HEADERS {
                            t.event("multipart_invalid_header");
                            self.state = State::Over;
                            continue;
                        }
                        break;
                    };
                    if rest[..end].split(|b| *b == b'\n').any(|line| {
                        !line.trim_ascii().is_empty() && memchr::memchr(b':', line).is_none()
                    }) {
                        t.event("multipart_invalid_header");
                    }
                    let name = file_name(&rest[..end]);
                    at += next;
                    self.state = State::Part(name.map(|name| {
                        if wanted.has(Buffer::FileName) {
                            t.push(Buffer::FileName, Direction::ToServer, &name);
                        }
                        let body = wanted
                            .has(Buffer::FileData)
                            .then(|| t.begin_body(Buffer::FileData, None, Direction::ToServer));
                        let file = t.begin_file(name, Direction::ToServer, w.sums);
                        t.show_file(file, body);
                        (body, file)
                    }));
                }
                State::Part(file) => {
                    let found = memmem::find(rest, &self.delimiter);
                    let end = match found {
                        // The line end before a delimiter belongs to it.
                        Some(f) => {
                            let f = f - usize::from(f > 0 && rest[f - 1] == b'\n');
                            f - usize::from(f > 0 && rest[f - 1] == b'\r')
                        }
                        None => rest.len().saturating_sub(self.delimiter.len() + 2),
                    };
                    if let Some((body, file)) = file {
                        let data = &rest[..end];
                        t.file_data(*file, data);
                        if found.is_some() {
                            if found == Some(0) && t.files[*file].size == 0 {
                                t.event("multipart_no_filedata");
                            }
                            t.end_file(*file, true);
                        }
                        if let Some(body) = body {
                            t.append_to(*body, data, limit);
                        }
                    }
                    at += end;
                    if found.is_none() {
                        break;
                    }
                    self.state = State::Preamble;
                }
            }
        }
        carry.drain(..at);
        self.carry = carry;
    }

    /// The body has ended: what was held back for a delimiter belongs to the part.
    pub(super) fn end(&mut self, t: &mut Transaction, limit: usize) {
        if let State::Part(Some((body, file))) = self.state {
            t.file_data(file, &self.carry);
            t.end_file(file, false);
            if let Some(body) = body {
                t.append_to(body, &self.carry, limit);
            }
        }
        self.carry = Vec::new();
        self.state = State::Over;
    }

    pub(super) fn memory(&self) -> usize {
        self.carry.capacity() + self.delimiter.len()
    }
}

/// The file name of a part's headers.
fn file_name(headers: &[u8]) -> Option<Vec<u8>> {
    for line in headers.split(|b| *b == b'\n') {
        let Some(colon) = memchr::memchr(b':', line) else {
            continue;
        };
        if line[..colon]
            .trim_ascii()
            .eq_ignore_ascii_case(b"content-disposition")
        {
            return parameter(&line[colon + 1..], b"filename").filter(|n| !n.is_empty());
        }
    }
    None
}

/// A parameter of a header value: `; name=value` or `; name="value"`.
pub(crate) fn parameter(value: &[u8], name: &[u8]) -> Option<Vec<u8>> {
    parameter_until(value, name, |b| {
        matches!(b, b';' | b' ' | b'\t' | b',' | b'\r')
    })
}

/// The same; `ends`: what ends a value without quotes, beside white space at its end.
pub(crate) fn parameter_until(
    value: &[u8],
    name: &[u8],
    ends: impl Fn(u8) -> bool,
) -> Option<Vec<u8>> {
    let mut rest = value;
    loop {
        let semicolon = memchr::memchr(b';', rest)?;
        rest = rest[semicolon + 1..].trim_ascii_start();
        let end = rest
            .iter()
            .position(|b| matches!(b, b'=' | b';'))
            .unwrap_or(rest.len());
        if rest.get(end) != Some(&b'=') || !rest[..end].trim_ascii().eq_ignore_ascii_case(name) {
            // A quoted value may hold a semicolon.
            if rest.get(end) == Some(&b'=') && rest.get(end + 1) == Some(&b'"') {
                let quote = memchr::memchr(b'"', &rest[end + 2..])?;
                rest = &rest[end + 2 + quote..];
            }
            continue;
        }
        let v = rest[end + 1..].trim_ascii();
        return Some(match v.first() {
            Some(b'"') => {
                let mut out = Vec::new();
                let mut bytes = v[1..].iter().copied().peekable();
                while let Some(b) = bytes.next() {
                    match b {
                        b'"' => break,
                        b'\\' if matches!(bytes.peek(), Some(b'"' | b'\\')) => {
                            out.extend(bytes.next());
                        }
                        _ => out.push(b),
                    }
                }
                out
            }
            _ => {
                let end = v.iter().position(|b| ends(*b)).unwrap_or(v.len());
                v[..end].trim_ascii_end().to_vec()
            }
        });
    }
}
