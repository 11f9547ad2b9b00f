//! Bodies: how a message says where its ends, and where the bytes go: decoders, buffers, files, the parts of a form.

use crate::app::names::App;
use crate::app::transaction::{Transaction, Transactions};
use crate::app::wanted::Asked;
use crate::buffer::Buffer;
use crate::packet::Direction;
use crate::packet::Direction::{ToClient, ToServer};

use super::State;
use super::decode::{Decoder, Encoding, Outcome, encodings};
use super::head::{Head, Known};
use super::multipart::Multipart;

/// A longer name of a file is cut, with an event.
const LONG_NAME: usize = 4096;
/// Beyond the limit of decoded bytes, a body may become so many times as long as it is: text does not reach it, and what does is made to.
const BOMB_RATIO: u64 = 100;

/// Bytes that decoders may have held back in doubt, however little a body may become.
const MOST_SETTLED: usize = 1 << 20;

/// How the body of a message is delimited.
#[derive(Clone, Copy)]
pub(in crate::app) struct Framing {
    pub(super) state: State,
    /// Nobody promised chunks in words that all ends understand: they are believed when they are seen.
    guess: bool,
    /// What holds if there are no chunks.
    otherwise: Option<State>,
}

impl Framing {
    /// Without a body.
    pub(in crate::app) const NONE: Framing = Framing {
        state: State::Fixed(0),
        guess: false,
        otherwise: None,
    };
}

/// Reads how a body is delimited. `raw`: the header lines as sent, in which a promise of chunks may be hidden.
pub(super) fn framing(
    head: &Head,
    raw: &[u8],
    direction: Direction,
    old: bool,
    t: &mut Transaction,
) -> Framing {
    let request = direction == ToServer;
    let transfer = head.known(Known::TransferEncoding);
    let chunked = transfer.is_some_and(says_chunked);
    let plain = match head.known(Known::ContentLength).map(content_length) {
        Some(Some(n)) => {
            let value = head
                .known(Known::ContentLength)
                .unwrap_or_default()
                .trim_ascii();
            let before = value.iter().take_while(|b| !b.is_ascii_digit()).count();
            if before > 0 {
                t.event("content_length_extra_data_start");
            }
            if value[before..].iter().any(|b| !b.is_ascii_digit()) {
                t.event("content_length_extra_data_end");
            }
            State::Fixed(n)
        }
        length => {
            if length.is_some() {
                t.event(if request {
                    "invalid_content_length_field_in_request"
                } else {
                    "invalid_content_length_field_in_response"
                });
            }
            if request {
                State::Fixed(0)
            } else {
                State::Close
            }
        }
    };
    if let Some(v) = transfer
        && !v.eq_ignore_ascii_case(b"chunked")
    {
        if request && !v.eq_ignore_ascii_case(b"identity") {
            t.event("invalid_transfer_encoding_value_in_request");
        } else if chunked {
            t.event("response_abnormal_transfer_encoding");
        }
    }
    if chunked && old {
        t.event(if request {
            "invalid_transfer_encoding_value_in_request"
        } else {
            "response_chunked_old_proto"
        });
    }
    let identity = transfer.is_none_or(|v| v.eq_ignore_ascii_case(b"identity"));
    let hidden = || {
        head.known(Known::ContentEncoding).is_some_and(says_chunked)
            || !request && plain == State::Close && head.oddities.hide() && says(raw, b"chunked")
    };
    let guess = !chunked && (!identity || hidden());
    Framing {
        state: if chunked || guess {
            State::ChunkLine
        } else {
            plain
        },
        guess,
        otherwise: Some(plain),
    }
}

/// Whether the word is there, whatever stands around it or is mixed into it.
fn says(value: &[u8], word: &[u8]) -> bool {
    let clean: Vec<u8> = value
        .iter()
        .filter(|b| **b != 0 && **b != 0x7f)
        .map(u8::to_ascii_lowercase)
        .collect();
    memchr::memmem::find(&clean, word).is_some()
}

fn says_chunked(value: &[u8]) -> bool {
    value.eq_ignore_ascii_case(b"chunked") || says(value, b"chunked")
}

/// The first number of a value.
pub(super) fn content_length(value: &[u8]) -> Option<u64> {
    let start = value.iter().position(u8::is_ascii_digit)?;
    let digits = value[start..]
        .iter()
        .take_while(|b| b.is_ascii_digit())
        .count();
    std::str::from_utf8(&value[start..start + digits])
        .ok()?
        .parse()
        .ok()
}

/// Where a body goes.
#[derive(Default)]
pub(in crate::app) struct Body {
    /// Bytes without transfer encoding.
    message: u64,
    /// Bytes of the transfer encoding itself.
    pub(super) framing: u64,
    /// Whether chunks are only guessed.
    pub(super) guess: bool,
    /// Whether there were chunks.
    pub(super) chunks: bool,
    /// How the body is delimited if there are no chunks.
    pub(super) otherwise: Option<State>,
    layers: Vec<Decoder>,
    /// The body of the transaction that is filled.
    target: Option<usize>,
    file: Option<usize>,
    multipart: Option<Multipart>,
    /// Bytes have come.
    begun: bool,
    /// Whether anything still wants its bytes.
    sinking: bool,
    /// Bytes of it were lost.
    gap: bool,
    /// Decoded bytes so far.
    decoded: usize,
    /// Whether it is a file: not that of a request that sends none.
    is_file: bool,
    name: Vec<u8>,
    /// Its file is followed to its end, however much of it is inspected.
    pub(in crate::app) followed: bool,
    /// It is a part of a file, which is put together with others.
    part: bool,
    /// Bytes that are promised, to make room for.
    promised: u64,
}

impl Body {
    /// Of a message whose head has been read. `name`: of the file that it is, if it is one.
    pub(in crate::app) fn new(framing: Framing, is_file: bool, name: Vec<u8>) -> Body {
        Body {
            guess: framing.guess,
            otherwise: framing.otherwise,
            is_file,
            name,
            promised: match framing.state {
                State::Fixed(n) => n,
                _ => 0,
            },
            ..Body::default()
        }
    }

    /// Whether it is a part of a file (`Content-Range`): that is followed to its end, and kept until it is put together with others.
    pub(in crate::app) fn range(&mut self, part: bool, w: &Asked) {
        self.part = w.records && part;
        self.followed |= self.part;
    }

    /// A form, whose parts are files.
    pub(in crate::app) fn form(&mut self, form: Option<Multipart>) {
        self.multipart = form;
    }

    /// Sets up what its Content-Encoding says, or its Transfer-Encoding. `raw`: the header lines as sent, in which the encoding may be hidden.
    pub(in crate::app) fn layers(
        &mut self,
        head: &Head,
        raw: &[u8],
        w: &Asked,
        t: &mut Transaction,
    ) {
        let mut found: Vec<Encoding> = Vec::new();
        if let Some(value) = head.known(Known::ContentEncoding) {
            let odd;
            (found, odd) = encodings(value, w.http.lzma_memory > 0);
            if odd {
                t.event("abnormal_ce_header");
            }
        }
        if let Some(value) = head.known(Known::TransferEncoding)
            && !value.eq_ignore_ascii_case(b"chunked")
        {
            found.extend(encodings(value, false).0);
        }
        if found.is_empty()
            && head.oddities.hide()
            && head
                .known(Known::ContentEncoding)
                .is_none_or(<[u8]>::is_empty)
            && says(raw, b"content-encoding")
        {
            // What proves to be no such encoding is passed on as it is.
            for (word, encoding) in [
                (&b"gzip"[..], Encoding::Gzip),
                (b"deflate", Encoding::Deflate),
            ] {
                if says(raw, word) {
                    found.push(encoding);
                }
            }
        }
        let most = w.http.layers.max(1);
        if found.len() > most {
            t.event("too_many_encoding_layers");
            found.drain(..found.len() - most);
        }
        // The last one applied is the first to be undone.
        self.layers = found
            .into_iter()
            .rev()
            .map(|e| Decoder::new(e, w.http.lzma_memory))
            .collect();
    }

    /// The first bytes have come.
    fn begin(&mut self, d: Direction, t: &mut Transaction, w: &Asked) {
        self.begun = true;
        let b = w.buffers;
        let whole = if d == ToServer {
            Buffer::HttpRequestBody
        } else {
            Buffer::HttpResponseBody
        };
        // The parts of a form are files; any other body is one.
        let file = b.has(Buffer::FileData) && self.is_file && self.multipart.is_none();
        self.target = match (b.has(whole), file) {
            (true, true) => Some(t.begin_body(whole, Some(Buffer::FileData), d)),
            (true, false) => Some(t.begin_body(whole, None, d)),
            (false, true) => Some(t.begin_body(Buffer::FileData, None, d)),
            (false, false) => None,
        };
        if let Some(body) = self.target
            && self.layers.is_empty()
        {
            // Growing step by step would copy a body several times over; a length that lies costs little.
            let room = limit(d, w).min(super::MOST_RESERVED);
            t.reserve(
                body,
                usize::try_from(self.promised).unwrap_or(room).min(room),
            );
        }
        if self.multipart.is_none() && self.is_file {
            if b.has(Buffer::FileName) && !self.name.is_empty() {
                t.push(Buffer::FileName, d, &self.name);
            }
            if self.name.len() > LONG_NAME {
                t.event("file_name_too_long");
                self.name.truncate(LONG_NAME);
            }
            let mut sums = w.sums;
            sums.kept |= self.part;
            self.file = Some(t.begin_file(std::mem::take(&mut self.name), d, sums));
        }
        self.sinking =
            self.target.is_some() || self.multipart.is_some() || w.records || w.sums.magic;
    }

    pub(in crate::app) fn data(
        &mut self,
        d: Direction,
        bytes: &[u8],
        t: &mut Transaction,
        w: &Asked,
        scratch: &mut [Vec<u8>; 2],
    ) {
        if bytes.is_empty() {
            return;
        }
        self.message += bytes.len() as u64;
        if !self.begun {
            self.begin(d, t, w);
        }
        if !self.sinking {
            return;
        }
        if self.layers.is_empty() {
            return self.sink(d, bytes, t, w);
        }
        let [from, into] = scratch;
        from.clear();
        from.extend_from_slice(bytes);
        let mut stop = false;
        // What is decoded beyond the limit of inspection serves nobody.
        let bomb = self.message.saturating_mul(BOMB_RATIO);
        let bomb = w
            .decompressed
            .max(usize::try_from(bomb).unwrap_or(usize::MAX));
        let most = bomb
            .min(limit(d, w).saturating_add(1))
            .saturating_sub(self.decoded);
        for layer in &mut self.layers {
            into.clear();
            match layer.decode(from, into, most) {
                Outcome::Ok => {}
                Outcome::Failed => t.event(match t.app {
                    App::Http1 => "gzip_decompression_failed",
                    _ => "failed_decompression",
                }),
                Outcome::Memory => t.event("lzma_memlimit_reached"),
                Outcome::Full => {
                    if self.decoded + into.len() >= bomb {
                        t.event("compression_bomb");
                    }
                    stop = true;
                }
            }
            std::mem::swap(from, into);
        }
        self.decoded += from.len();
        let decoded = std::mem::take(from);
        self.sink(d, &decoded, t, w);
        *from = decoded;
        if stop {
            self.sinking = false;
            t.complete[d.index()] = true;
        }
    }

    fn sink(&mut self, d: Direction, bytes: &[u8], t: &mut Transaction, w: &Asked) {
        let limit = limit(d, w);
        if let Some(m) = &mut self.multipart {
            m.data(bytes, t, w, limit);
        }
        let mut full = false;
        if let Some(file) = self.file {
            // A file is followed as far as bodies are, unless a sum over all of it is wanted.
            let size = t.files[file].size;
            let room = if w.sums.any() || self.followed {
                usize::MAX
            } else {
                limit.saturating_sub(usize::try_from(size).unwrap_or(usize::MAX))
            };
            full = bytes.len() > room;
            t.file_data(file, &bytes[..bytes.len().min(room)]);
        }
        let mut decided = full;
        if let Some(target) = self.target {
            decided |= !t.append_to(target, bytes, limit);
        }
        if decided && self.multipart.is_none() {
            // Nothing more will be added: rules may decide.
            self.sinking = self.file.is_some() && !full;
            t.complete[d.index()] |= !(w.whole_files && self.sinking);
        }
    }

    /// Line ends behind the last byte, which belong to the file for many an end.
    pub(super) fn pad(&mut self, d: Direction, bytes: &[u8], t: &mut Transaction, w: &Asked) {
        if self.begun && self.sinking && self.layers.is_empty() && self.multipart.is_none() {
            self.message += bytes.len() as u64;
            self.sink(d, bytes, t, w);
            self.record_length(d, t, w);
        }
    }

    /// Bytes of it were lost: what is left cannot be decoded.
    pub(in crate::app) fn lost(
        &mut self,
        d: Direction,
        length: u64,
        out: &mut Transactions,
        id: Option<u64>,
        w: &Asked,
    ) {
        let Some(t) = id.and_then(|id| out.find(id)) else {
            return;
        };
        if !self.begun {
            self.begin(d, t, w);
        }
        self.gap = true;
        self.message += length;
        if !self.layers.is_empty() {
            self.settle(d, t, w);
            self.sinking = false;
        }
        if let Some(file) = self.file {
            let file = &mut t.files[file];
            file.gaps = true;
            file.size = file.size.saturating_add(length).min(limit(d, w) as u64);
        }
    }

    /// Nothing more of it can be decoded: what decoders held back in doubt is passed on.
    fn settle(&mut self, d: Direction, t: &mut Transaction, w: &Asked) {
        if !self.begun || !self.sinking {
            return;
        }
        let most = limit(d, w).saturating_add(1).saturating_sub(self.decoded);
        let most = most.min(w.decompressed.max(MOST_SETTLED));
        let mut bytes: Vec<u8> = Vec::new();
        for layer in &mut self.layers {
            let mut next = Vec::new();
            if !bytes.is_empty() {
                layer.decode(&bytes, &mut next, most);
            }
            layer.finish(&mut next, most);
            bytes = next;
        }
        if !bytes.is_empty() {
            self.decoded += bytes.len();
            self.sink(d, &bytes, t, w);
        }
    }

    pub(in crate::app) fn end(
        &mut self,
        d: Direction,
        whole: bool,
        t: &mut Transaction,
        w: &Asked,
    ) {
        self.settle(d, t, w);
        if let Some(m) = &mut self.multipart {
            m.end(t, limit(d, w));
        }
        if let Some(file) = self.file {
            t.end_file(file, whole && self.sinking && !self.gap);
        }
        self.record_length(d, t, w);
    }

    fn record_length(&self, d: Direction, t: &mut Transaction, w: &Asked) {
        if d == ToClient && w.records {
            t.record
                .insert("length".into(), (self.message + self.framing).into());
        }
    }

    /// Whether what else comes in this direction may yet be taken for more of it: only of short bodies, which are kept meanwhile.
    pub(super) fn may_grow(&self, most: u64) -> bool {
        !self.gap && self.message <= most && self.decoded as u64 <= most
    }

    pub(in crate::app) fn memory(&self) -> usize {
        self.layers.iter().map(Decoder::memory).sum::<usize>()
            + self.multipart.as_ref().map_or(0, Multipart::memory)
            + self.name.capacity()
    }
}

/// Bytes of a body that are inspected.
fn limit(d: Direction, w: &Asked) -> usize {
    if d == ToServer {
        w.request_body
    } else {
        w.response_body
    }
}
