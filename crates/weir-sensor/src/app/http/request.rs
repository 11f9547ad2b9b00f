//! Heads of requests: the transaction that begins, its buffers and its record.

use crate::app::text::text;
use crate::app::transaction::{Transaction, Transactions, Upgrade};
use crate::buffer::Buffer;
use crate::packet::Direction::ToServer;

use super::body::{Body, Framing, framing};
use super::fields::fields;
use super::head::{Field, Head, Known};
use super::multipart::Multipart;
use super::{Http1, KIND, MOST_PENDING, Method, Pending, State, probe, uri};

impl Http1 {
    pub(super) fn request(
        &mut self,
        head: &Head,
        (line_as_sent, raw): (&[u8], &[u8]),
        out: &mut Transactions,
    ) {
        let w = &self.wanted;
        let line = RequestLine::of(head.line());
        let connect = line.method.eq_ignore_ascii_case(b"CONNECT");
        let method = if connect {
            Method::Connect
        } else if line.method.eq_ignore_ascii_case(b"HEAD") {
            Method::Head
        } else {
            Method::Other
        };
        let time = self.halves[0].time;
        let t = out.begin(&KIND, time);
        let id = t.id;
        let b = w.buffers;
        let d = ToServer;
        let target = uri::split(line.target, connect);
        let host = head.known(Known::Host);
        let named = w.records || b.has(Buffer::FileName);
        let mut uri = std::mem::take(&mut self.scratch[0]);
        uri.clear();
        let mut path = 0..0;
        if named || b.has(Buffer::HttpUri) {
            let twice;
            (path, twice) = uri::normalize(&target, &w.http, &mut uri);
            if twice {
                t.event("double_encoded_uri");
            }
        }
        if b.has(Buffer::HttpMethod) {
            t.push(Buffer::HttpMethod, d, line.method);
        }
        if b.has(Buffer::HttpUriRaw) {
            t.push(Buffer::HttpUriRaw, d, line.target);
        }
        if b.has(Buffer::HttpUri) {
            t.push(Buffer::HttpUri, d, &uri);
        }
        if b.has(Buffer::HttpRequestLine) {
            t.push(Buffer::HttpRequestLine, d, head.line());
        }
        if b.has(Buffer::HttpProtocol) && !line.protocol.is_empty() {
            t.push(Buffer::HttpProtocol, d, line.protocol);
        }
        // The host of an absolute target outweighs the header.
        let raw_host = target.host.or(host);
        // That of a tunnel is nothing but a host.
        let bare = connect && target.host.is_some();
        if let Some(raw_host) = raw_host {
            if b.has(Buffer::HttpHost) {
                t.build(Buffer::HttpHost, d, |o| host_name(raw_host, bare, o));
            }
            if b.has(Buffer::HttpHostRaw) {
                t.push(Buffer::HttpHostRaw, d, raw_host);
            }
        }
        let old = line.protocol.is_empty();
        self::note(t, &line, head, &target, host);
        fields(t, head, raw, d, w);
        if w.records {
            let r = &mut t.record;
            if let Some(h) = raw_host {
                let mut name = Vec::new();
                host_name(h, bare, &mut name);
                r.insert("hostname".into(), text(&name));
                let port = target
                    .port
                    .or_else(|| uri::authority(h).1.filter(|_| !bare));
                if let Some(port) = port.filter(|p| *p > 0) {
                    r.insert("http_port".into(), port.into());
                }
            }
            r.insert("url".into(), text(line.target));
            if let Some(v) = head.known(Known::UserAgent) {
                r.insert("http_user_agent".into(), text(v));
            }
            if let Some(v) = head.known(Known::XForwardedFor) {
                r.insert("xff".into(), text(v));
            }
            if let Some(v) = head.known(Known::Referer) {
                r.insert("http_refer".into(), text(v));
            }
            if !line.method.is_empty() {
                r.insert("http_method".into(), text(line.method));
                r.insert("length".into(), 0.into());
            }
            if !old {
                r.insert("protocol".into(), text(line.protocol));
            }
        }
        let how = if connect || old && head.fields.is_empty() {
            Framing::NONE
        } else {
            framing(head, raw, ToServer, line.protocol == b"HTTP/1.0", t)
        };
        // What an upload without a form is called: the path it goes to.
        let uploads = line.method == b"POST" || line.method == b"PUT";
        let path = uri[path].to_vec();
        self.scratch[0] = uri;
        let name = if uploads { path.clone() } else { Vec::new() };
        let mut body = Body::new(how, uploads, name);
        if how.state != State::Fixed(0) {
            let form = head.known(Known::ContentType).and_then(Multipart::new);
            body.form(form.filter(|_| uploads));
            body.layers(head, raw, w, t);
        }
        if let Some(t) = out.find(id) {
            self.frame((Buffer::FrameHttpRequest, d), [line_as_sent, raw], t);
        }
        let half = &mut self.halves[0];
        half.id = Some(id);
        half.body = body;
        half.state = if connect { State::Waiting } else { how.state };
        if self.pending.len() >= MOST_PENDING {
            self.pending.pop_front();
        }
        let upgrade = upgrade(head, &line, raw_host);
        self.pending.push_back(Pending {
            id,
            method,
            path,
            upgrade,
        });
        match self.halves[0].state {
            State::Fixed(0) => self.complete(ToServer, out),
            State::Waiting => {
                if let Some(t) = out.find(id) {
                    t.finish_side(ToServer);
                }
                self.halves[0].id = None;
            }
            _ => {}
        }
    }
}

/// What goes on in HTTP/2 if the server agrees (RFC 7540, 3.2).
fn upgrade(head: &Head, line: &RequestLine<'_>, host: Option<&[u8]>) -> Option<Box<Upgrade>> {
    let wanted = head.known(Known::Upgrade)?.to_ascii_lowercase();
    memchr::memmem::find(&wanted, b"h2c")?;
    let is = |f: &&Field| head.name(f).eq_ignore_ascii_case(b"http2-settings");
    let settings = head.fields.iter().find(is);
    Some(Box::new(Upgrade {
        method: line.method.to_vec(),
        target: line.target.to_vec(),
        host: host.map(<[u8]>::to_vec),
        settings: settings.map_or(Vec::new(), |f| head.value(f).to_vec()),
    }))
}

/// Events of a request's head.
fn note(
    t: &mut Transaction,
    line: &RequestLine<'_>,
    head: &Head,
    target: &uri::RequestTarget<'_>,
    host: Option<&[u8]>,
) {
    if line.indented {
        t.event("request_line_leading_whitespace");
    }
    if line.odd_method_end {
        t.event("method_delim_non_compliant");
    }
    if line.odd_target_end {
        t.event("uri_delim_non_compliant");
    }
    if line.protocol.is_empty() {
        if !head.fields.is_empty() {
            t.event("request_line_missing_protocol");
        }
        if !probe::is_method(line.method) {
            t.event("request_line_invalid");
        }
    } else if !probe::is_method(line.method) && !is_known_protocol(line.protocol) {
        t.event("request_line_invalid");
    }
    let header = host.map(uri::authority);
    if host.is_none() && target.host.is_none() && is_new(line.protocol) {
        t.event("missing_host_header");
    }
    if let (Some(a), Some((Some(h), port))) = (target.host, header) {
        let ports = target.port.is_some() && port.is_some() && target.port != port;
        if !h.eq_ignore_ascii_case(a) || ports {
            t.event("host_header_ambiguous");
        }
    }
    if target.host.is_some_and(|h| !is_host(h)) || target.odd_port {
        t.event("request_uri_host_invalid");
    }
    if let Some(raw) = host {
        let (name, port) = uri::authority(raw);
        if name.is_none_or(|h| !is_host(h)) || port.is_none() && uri::has_port(raw) {
            t.event("request_header_host_invalid");
        }
    }
    if head
        .known(Known::Authorization)
        .is_some_and(is_odd_authorization)
    {
        t.event("request_auth_unrecognized");
    }
}

/// Whether a protocol is one that exists.
fn is_known_protocol(word: &[u8]) -> bool {
    matches!(word, b"HTTP/0.9" | b"HTTP/1.0" | b"HTTP/1.1")
}

/// Whether a version asks for a Host header.
fn is_new(protocol: &[u8]) -> bool {
    protocol == b"HTTP/1.1"
}

/// Whether a name or address may be that of a host: labels of letters, digits, hyphens and underscores, or an address in brackets.
fn is_host(name: &[u8]) -> bool {
    if let Some(rest) = name.strip_prefix(b"[") {
        return rest.strip_suffix(b"]").is_some_and(|a| {
            a.iter()
                .all(|b| b.is_ascii_hexdigit() || matches!(b, b':' | b'.' | b'%'))
        });
    }
    let name = name.strip_suffix(b".").unwrap_or(name);
    !name.is_empty()
        && name.len() <= 255
        && name.split(|b| *b == b'.').all(|label| {
            !label.is_empty()
                && label.len() <= 63
                && label
                    .iter()
                    .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
        })
}

/// Whether credentials are of no scheme that is known.
fn is_odd_authorization(value: &[u8]) -> bool {
    let end = value.iter().position(u8::is_ascii_whitespace);
    let scheme = &value[..end.unwrap_or(value.len())];
    ![&b"basic"[..], b"digest", b"bearer"]
        .iter()
        .any(|s| scheme.eq_ignore_ascii_case(s))
}

pub(super) struct RequestLine<'a> {
    pub(super) method: &'a [u8],
    pub(super) target: &'a [u8],
    pub(super) protocol: &'a [u8],
    /// White space before the method.
    indented: bool,
    /// White space other than one space behind the method, and behind the target.
    odd_method_end: bool,
    odd_target_end: bool,
}

impl RequestLine<'_> {
    pub(super) fn of(raw: &[u8]) -> RequestLine<'_> {
        let line = raw.trim_ascii_end();
        let indented = line.first().is_some_and(u8::is_ascii_whitespace);
        let line = line.trim_ascii_start();
        let end = line.iter().position(u8::is_ascii_whitespace);
        let (method, rest) = line.split_at(end.unwrap_or(line.len()));
        let odd_method_end = rest
            .iter()
            .take_while(|b| b.is_ascii_whitespace())
            .any(|b| *b != b' ');
        let rest = rest.trim_ascii();
        // A target may hold spaces: the version is the last word, if it is one.
        let last = rest.iter().rposition(u8::is_ascii_whitespace);
        let (target, protocol) = match last {
            Some(at) if is_protocol(&rest[at + 1..]) => (rest[..at].trim_ascii(), &rest[at + 1..]),
            None if is_protocol(rest) => (&b""[..], rest),
            _ => (rest, &b""[..]),
        };
        let between = rest.len() - protocol.len();
        let odd_target_end = !protocol.is_empty()
            && rest[target.len().min(between)..between]
                .iter()
                .any(|b| *b != b' ');
        RequestLine {
            method,
            target,
            protocol,
            indented,
            odd_method_end,
            odd_target_end,
        }
    }
}

/// `HTTP/` and anything, or another word with a version.
fn is_protocol(word: &[u8]) -> bool {
    if word.len() >= 5 && word[..5].eq_ignore_ascii_case(b"HTTP/") {
        return true;
    }
    let Some((name, [b'/', major, b'.', minor])) = word.split_last_chunk() else {
        return false;
    };
    major.is_ascii_digit() && minor.is_ascii_digit() && name.iter().all(u8::is_ascii_uppercase)
}

/// In lower case, without port and final dots. `bare`: there is no port, nor a user.
pub(in crate::app) fn host_name(raw: &[u8], bare: bool, out: &mut Vec<u8>) {
    let from = out.len();
    let host = match bare {
        true => raw,
        false => uri::authority(raw).0.unwrap_or_default(),
    };
    out.extend(host.iter().map(u8::to_ascii_lowercase));
    while out.len() > from && out.last() == Some(&b'.') {
        out.pop();
    }
}
