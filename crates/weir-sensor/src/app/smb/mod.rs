//! SMB 1 to 3 as far as rules and logs look: requests with their status, shares, named pipes, file names, names of NTLMSSP, and DCE/RPC over pipes.
//! What is read and written of files is put together in `files`.

#![expect(
    clippy::indexing_slicing,
    reason = "older than the lint: lengths are compared before; a place that is touched gets a checked access"
)]

mod files;
mod message;
mod named;
mod names;
mod ntlm;
mod rpc;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use self::files::{Content, Files, Part, part_of};
use self::message::{
    Message, dialects, file_name, first_version, le16, le32, le64, natives, next_of_chain,
    second_version, service, tree_path, words,
};
use self::names::{
    DISPOSITIONS, command_name, control_name, dialect, dos_status, identifier, seconds, status_name,
};
use self::ntlm::{Ntlm, ntlm};
use self::rpc::{Calls, asked, is_rpc};
use super::framed::Frames;
use super::names::App;
use super::probe::{Certainty, First, Look, StreamProbe, prefixed};
use super::protocol::{Fact, Parser, Protocol};
use super::text::text;
use super::transaction::{Kind, Transaction, Transactions};
use super::wanted::Wanted;
use crate::buffer::Buffer;
use crate::packet::Direction;
use crate::packet::Direction::{ToClient, ToServer};

/// Bytes of a message that are looked at, but for contents of files; the rest is passed over.
const MOST_MESSAGE: usize = 16 * 1024;
/// Messages with contents of files that are waited for as a whole where frames are asked for, bytes. Of others a loss costs no more than what is lost.
const MOST_AWAITED: usize = 512;
/// Messages in one compound.
const MOST_COMPOUND: usize = 64;
/// Commands that a message of version 1 chains.
const MOST_CHAIN: usize = 16;
/// Trees whose share is remembered.
const MOST_TREES: usize = 64;
/// Bytes in which a message says whether and where it carries contents of a file: of version 2 a header and the longest fixed part.
const HEAD: usize = 112;
/// Options of a file that is opened: it is a folder, and it goes when it is closed ([MS-SMB2], 2.2.13).
const FOLDER: u32 = 1;
const DELETE_ON_CLOSE: u32 = 0x1000;
/// Bytes that tell whether contents are DCE/RPC.
const RPC: usize = 24;

pub(super) const SMB: Protocol = Protocol {
    app: App::Smb,
    // Calls are also carried by its pipes.
    aliases: &["dcerpc"],
    services: &["netbios-ssn", "cifs"],
    stream: Some(StreamProbe::new(Certainty::Sure, stream)),
    parser: Some(|start| Box::new(Smb::new(start.asked))),
    kind: Some(&KIND),
    unraised_events: &[
        "internal_error",
        "malformed_ntlmssp_request",
        "negotiate_malformed_dialects",
        "negotiate_max_read_size_too_large",
        "negotiate_max_write_size_too_large",
        "read_queue_cnt_exceeded",
        "read_queue_size_exceeded",
        "read_request_too_large",
        "read_response_too_large",
        "request_to_client",
        "response_to_server",
        "write_queue_cnt_exceeded",
        "write_queue_size_exceeded",
        "write_request_too_large",
    ],
    facts: &[Fact {
        keyword: "smb.version",
        what: "version of SMB",
        ..Fact::NONE
    }],
    files: true,
    ..Protocol::NONE
};

static KIND: Kind = Kind {
    app: App::Smb,
    events: &["file_overlap", "file_skip", "malformed_data"],
    most: 1024,
    ..Kind::EXCHANGE
};

fn stream(first: &First<'_>) -> Look {
    let bytes = first.bytes;
    // A NetBIOS session request comes before on port 139.
    let session = matches!(first.at(0), Some(0x81..=0x83)) && matches!(first.at(1), None | Some(0));
    let message = if session {
        let (Some(a), Some(b)) = (first.at(2), first.at(3)) else {
            return Look::Maybe;
        };
        let length = usize::from(u16::from_be_bytes([a, b]));
        if length > 256 {
            return Look::No;
        }
        match bytes.get(4 + length..) {
            Some([]) | None => return Look::Maybe,
            Some(rest) => rest,
        }
    } else {
        bytes
    };
    if message.first() != Some(&0) {
        return Look::No;
    }
    match message.get(4..) {
        Some([]) | None => Look::Maybe,
        Some([0xfd..=0xff, rest @ ..]) => prefixed(rest, b"SMB"),
        Some(_) => Look::No,
    }
}

pub(super) struct Smb {
    wanted: Wanted,
    halves: [Half; 2],
    /// Requests without an answer: number of the message, transaction, share asked for.
    pending: VecDeque<(u64, u64, Vec<u8>)>,
    trees: VecDeque<Tree>,
    files: Files,
    dialect: String,
    /// Dialects that a client of version 1 offered, for the log.
    offered: Vec<Vec<u8>>,
    calls: Calls,
}

/// A share that is used.
struct Tree {
    id: u32,
    path: Vec<u8>,
    /// It has named pipes and no files.
    is_pipe: bool,
}

#[derive(Default)]
struct Half {
    carry: Vec<u8>,
    /// Bytes of the frame that come behind the message in progress.
    left: usize,
    /// Messages of the frame that were begun.
    begun: usize,
    /// Contents of a file that come now.
    content: Option<Content>,
    /// Bytes behind them that are passed over.
    skip: usize,
}

type Record = serde_json::Map<String, serde_json::Value>;

impl Smb {
    pub(super) fn new(wanted: &Wanted) -> Smb {
        Smb {
            wanted: *wanted,
            halves: [Half::default(), Half::default()],
            pending: VecDeque::new(),
            trees: VecDeque::new(),
            files: Files::default(),
            dialect: String::new(),
            offered: Vec::new(),
            calls: Calls::default(),
        }
    }

    /// Takes what is at the front of these bytes, and returns how many that was; 0: more are needed.
    fn take(&mut self, d: Direction, bytes: &[u8], time: u64, out: &mut Transactions) -> usize {
        let half = d.of_mut(&mut self.halves);
        if let Some(content) = &mut half.content {
            let count = content.left.min(bytes.len());
            self.files.feed(content, &bytes[..count], &self.wanted, out);
            self.end_content(d, out);
            return count;
        }
        if half.skip > 0 {
            let count = half.skip.min(bytes.len());
            half.skip -= count;
            return count;
        }
        if half.left > 0 {
            return self.element(d, bytes, time, out);
        }
        let Some(head) = bytes.first_chunk::<4>() else {
            return 0;
        };
        let length = u32::from_be_bytes([0, head[1], head[2], head[3]]) as usize;
        if head[0] == 0 {
            (half.left, half.begun) = (length, 0);
            if d == ToServer {
                self.files.begin_frame();
            }
            return 4;
        }
        // Session requests, their answers and keep-alives hold nothing.
        if !matches!(head[0], 0x81..=0x85) || length > 1024 {
            out.event("malformed_data");
            out.failed = true;
            return bytes.len();
        }
        if bytes.len() < 4 + length {
            return 0;
        }
        4 + length
    }

    /// The same within a frame, which is one message or a compound of some. What a message is about must not depend on how many bytes of it are there: no more are
    /// looked at than are waited for.
    fn element(&mut self, d: Direction, bytes: &[u8], time: u64, out: &mut Transactions) -> usize {
        let half = d.of(&self.halves);
        let (left, begun) = (half.left, half.begun);
        let Some(head) = bytes.get(..left.min(24)) else {
            return 0;
        };
        let length = match head.starts_with(b"\xfeSMB").then(|| le32(head, 20)) {
            Some(Some(next)) if next >= 64 && (next as usize) < left => next as usize,
            _ => left,
        };
        let Some(head) = bytes.get(..length.min(HEAD)) else {
            return 0;
        };
        let part = read_message(head)
            .filter(|m| !self.is_pipe(m))
            .and_then(|m| part_of(&m).map(|p| (p, self.tree(self.tree_of(&m)).is_some())))
            // What does not fit into its message is refused by every end.
            .filter(|(p, _)| p.at.checked_add(p.length).is_some_and(|end| end <= length));
        let looked_at = match part {
            // Of an unknown share it may be DCE/RPC all the same.
            Some((part, known)) => {
                let at = part.at.max(HEAD);
                at + if known { 0 } else { RPC }
            }
            None => MOST_MESSAGE,
        };
        let framed = self.wanted.said.frames != Frames::None;
        let mut looked_at = match framed {
            true if length <= MOST_AWAITED => length,
            _ => looked_at.min(MOST_MESSAGE).min(length),
        };
        let Some(mut message) = bytes.get(..looked_at) else {
            return 0;
        };
        if part.is_some_and(|(p, known)| !known && is_rpc(message, p.at)) {
            looked_at = MOST_MESSAGE.min(length);
            let Some(whole) = bytes.get(..looked_at) else {
                return 0;
            };
            message = whole;
        }
        let part = part.map(|p| p.0).filter(|p| p.at <= looked_at);
        let found = if begun < MOST_COMPOUND {
            let found = self.message(d, message, (part, length), time, out);
            let all = self.wanted.said.frames == Frames::All;
            let parts = (message, length, bytes.len());
            if framed && let Some(t) = out.live.back_mut() {
                frames(t, d, parts, &self.wanted);
            } else if all {
                frames(out.loose.get_or_insert_default(), d, parts, &self.wanted);
            }
            found
        } else {
            None
        };
        let half = d.of_mut(&mut self.halves);
        half.left -= length;
        half.begun += 1;
        let taken = found.as_ref().map_or(looked_at, |(_, part)| part.at);
        half.content = found.map(|(content, _)| content);
        let inside = half.content.as_ref().map_or(0, |c| c.left);
        half.skip = length - taken - inside;
        self.end_content(d, out);
        taken
    }

    /// If the contents in progress are over, what follows from that.
    fn end_content(&mut self, d: Direction, out: &mut Transactions) {
        let over = |c: &mut Content| c.left == 0;
        if let Some(content) = d.of_mut(&mut self.halves).content.take_if(over) {
            self.files.finish(&content, &self.wanted, out);
        }
    }

    /// One message of so many bytes, not all of which need be there; returns the contents of a file that come behind it, and where: in the part that was found in it, or in a
    /// command that it chains.
    fn message(
        &mut self,
        d: Direction,
        bytes: &[u8],
        (part, length): (Option<Part>, usize),
        time: u64,
        out: &mut Transactions,
    ) -> Option<(Content, Part)> {
        match bytes.get(..4) {
            Some(b"\xffSMB" | b"\xfeSMB") => {
                let mut m = read_message(bytes)?;
                self.files.chain = None;
                if let Some(content) = self.act(d, &m, part, time, out) {
                    return Some((content, part?));
                }
                for _ in 0..MOST_CHAIN {
                    if (m.command, m.response) == (0xa2, false) {
                        self.files.chain = Some(m.number);
                    }
                    let (command, at) = next_of_chain(&m)?;
                    m = Message {
                        command,
                        body: bytes.get(at..)?,
                        ..m
                    };
                    let fits = |p: &Part| {
                        let end = p.at.checked_add(p.length);
                        end.is_some_and(|end| end <= length) && p.at <= bytes.len()
                    };
                    let part = part_of(&m).filter(|_| !self.is_pipe(&m)).filter(fits);
                    if let Some(content) = self.act(d, &m, part, time, out) {
                        return Some((content, part?));
                    }
                }
                None
            }
            // Encrypted or compressed: nothing to see.
            Some(b"\xfdSMB" | b"\xfcSMB") => None,
            _ if d.of(&self.halves).begun > 0 => None,
            _ => {
                out.event("malformed_data");
                None
            }
        }
    }

    fn tree(&self, id: u32) -> Option<&Tree> {
        self.trees.iter().rfind(|t| t.id == id)
    }

    /// The tree that a message is about: an answer that comes late says something else in its place.
    fn tree_of(&self, m: &Message<'_>) -> u32 {
        let asked = m.response.then(|| self.files.tree_of_answer(m)).flatten();
        asked.unwrap_or(m.tree)
    }

    /// Whether it is about a named pipe.
    fn is_pipe(&self, m: &Message<'_>) -> bool {
        self.tree(self.tree_of(m)).is_some_and(|t| t.is_pipe)
    }

    fn act(
        &mut self,
        d: Direction,
        m: &Message<'_>,
        part: Option<Part>,
        time: u64,
        out: &mut Transactions,
    ) -> Option<Content> {
        let w = self.wanted;
        let tree = self.tree_of(m);
        let share = self.trees.iter().rfind(|t| t.id == tree);
        let said = files::Said {
            wanted: &w,
            dialect: &self.dialect,
            share: share.map(|t| t.path.as_slice()),
            time,
        };
        // Of a share that is known to have files, what looks like DCE/RPC is none.
        let may_call = share.is_none_or(|t| t.is_pipe);
        let rpc = asked(m).filter(|_| may_call && !m.response);
        let mut content = None;
        match (m.version, m.command) {
            _ if m.response => {
                if matches!((m.version, m.command), (2, 8) | (1, 0x2e)) && !is_pending(m) {
                    let rpc = part.is_some_and(|p| share.is_none() && is_rpc(m.all, p.at));
                    content = self.files.answered(m, part.filter(|_| !rpc), &said, out);
                }
                self.answer(d, m, out);
                return content;
            }
            (2, 8) | (1, 0x2e) => {
                self.files.asked(m);
                if may_call {
                    self.calls.reads(m);
                }
            }
            (2, 9) | (1, 0x2f | 0x0b) => {
                if let Some(part) = part.filter(|_| rpc.is_none()) {
                    content = self.files.written(m, part, &said, out);
                }
            }
            (2, 6) | (1, 4) => self.files.closes(m, &w, out),
            _ => {}
        }
        // Reads and writes of files, and questions about them, would be transactions by the thousand that no rule looks at. Of what is set of a file, new names and its end count.
        let bulk = if m.version == 2 {
            let told = m.body.get(2..4);
            matches!(m.command, 8 | 9 | 12 | 13 | 16)
                || m.command == 17 && !matches!(told, Some([1, 10 | 13]))
        } else {
            matches!(m.command, 0x2e | 0x2f | 0x2b)
        };
        if bulk && rpc.is_none() {
            return content;
        }
        if rpc.as_ref().is_some_and(|r| self.calls.goes_on(r, &w, out)) {
            return content;
        }
        if !out.may_begin(&KIND) {
            return content;
        }
        let t = out.begin(&KIND, time);
        let id = t.id;
        t.facts.push(("smb.version", u64::from(m.version)));
        if w.records {
            let r = &mut t.record;
            r.insert("id".into(), (id + 1).into());
            let dialect = match self.dialect.as_str() {
                "" => "unknown",
                known => known,
            };
            r.insert("dialect".into(), dialect.into());
            r.insert("command".into(), command_name(m).into());
            // Nothing is agreed yet.
            let new = m.version == 1 && m.command == 0x72;
            r.insert("session_id".into(), if new { 0 } else { m.session }.into());
            r.insert("tree_id".into(), if new { 0 } else { m.tree }.into());
        }
        let mut share = Vec::new();
        match (m.version, m.command) {
            (2, 0) | (1, 0x72) if w.records => {
                let offered = dialects(m);
                let list: Vec<_> = offered.iter().map(|d| text(d)).collect();
                if m.version == 1 {
                    self.offered = offered;
                }
                if !list.is_empty() || m.version == 2 {
                    t.record.insert("client_dialects".into(), list.into());
                }
                if let Some(id) = m.body.get(12..28).filter(|_| m.version == 2) {
                    t.record.insert("client_guid".into(), identifier(id).into());
                }
            }
            (2, 1) | (1, 0x73) => {
                if let Some(n) = Ntlm::find(m.all) {
                    ntlm(t, &n, &w);
                }
                if let Some(natives) = natives(m).filter(|_| w.records && m.version == 1) {
                    t.record.insert("request".into(), ends(natives).into());
                }
                if let Some(ticket) = w.records.then(|| named::kerberos(m.all)).flatten() {
                    t.record.insert("kerberos".into(), ticket.into());
                }
            }
            (2, 3) | (1, 0x75) => {
                share = tree_path(m).unwrap_or_default();
                let pipe = is_pipe(&share);
                let buffer = if pipe {
                    Buffer::SmbNamedPipe
                } else {
                    Buffer::SmbShare
                };
                if w.buffers.has(buffer) && !share.is_empty() {
                    t.push(buffer, ToServer, &share);
                }
                if w.records && !share.is_empty() {
                    let key = if pipe { "named_pipe" } else { "share" };
                    t.record.insert(key.into(), text(&share));
                }
                if let Some(service) = service(m).filter(|_| w.records && m.version == 1) {
                    let asked = Record::from_iter([("request".to_owned(), text(service))]);
                    t.record.insert("service".into(), asked.into());
                }
            }
            (2, 5) | (1, 0xa2) => {
                let name = file_name(m).unwrap_or_default();
                self.files.opens(m, &name);
                if w.records {
                    let shown = match name.as_slice() {
                        b"" => b"<share_root>",
                        name => name,
                    };
                    // How it is opened, and what else is asked for.
                    let (how, options) = match m.version {
                        2 => (le32(m.body, 36), le32(m.body, 40)),
                        _ => words(m).map_or((None, None), |(w, ..)| (le32(w, 35), le32(w, 39))),
                    };
                    let options = options.unwrap_or_default();
                    let is_folder = options & FOLDER != 0 && !name.is_empty();
                    let key = if is_folder { "directory" } else { "filename" };
                    t.record.insert(key.into(), text(shown));
                    let how = how.unwrap_or_default() as usize;
                    let how = DISPOSITIONS.get(how).copied().unwrap_or("UNKNOWN");
                    t.record.insert("disposition".into(), how.into());
                    let access = match options & DELETE_ON_CLOSE {
                        0 => "normal",
                        _ => "delete on close",
                    };
                    t.record.insert("access".into(), access.into());
                }
            }
            (2, 17) | (1, 0x32 | 7) if w.records => {
                let said = match (m.version, m.command) {
                    (2, _) => named::set_info(m, |id| self.files.name_of(id).to_vec()),
                    (_, 7) => named::rename(m),
                    _ => named::set_information(m, |id| self.files.name_of_first(id).to_vec()),
                };
                t.record.extend(said.into_iter().flatten());
            }
            _ => {}
        }
        let (mut more, mut given_up) = (false, None);
        if let Some(rpc) = rpc {
            (more, given_up) = self.calls.begin(&rpc, t, &w);
        } else if w.records
            && (m.version, m.command) == (2, 11)
            && let Some(name) = le32(m.body, 4).and_then(control_name)
        {
            t.record.insert("function".into(), name.into());
        }
        t.finish_side(ToServer);
        // The arguments of a call may come in several messages.
        *ToServer.of_mut(&mut t.complete) = !more;
        if let Some(t) = given_up.and_then(|id| out.find(id)) {
            t.finish();
        }
        if self.pending.len() >= out.most(&KIND)
            && let Some((_, old, _)) = self.pending.pop_front()
            && let Some(t) = out.find(old)
        {
            t.finish();
        }
        self.pending.push_back((m.number, id, share));
        content
    }

    fn answer(&mut self, d: Direction, m: &Message<'_>, out: &mut Transactions) {
        let w = self.wanted;
        let negotiated = match (m.version, m.command) {
            (2, 0) => m.body.get(4..6).map(|v| dialect([v[0], v[1]])),
            // Which of those that were offered; the newest one if that was not seen.
            (1, 0x72) => {
                let chosen = words(m).and_then(|(words, ..)| le16(words, 0));
                let name = chosen.and_then(|n| self.offered.get(n));
                let name = name.map(|n| String::from_utf8_lossy(n).into_owned());
                Some(name.unwrap_or_else(|| "NT LM 0.12".to_owned()))
            }
            _ => None,
        };
        if is_pending(m) {
            return;
        }
        if matches!((m.version, m.command), (2, 8) | (1, 0x2e)) {
            if let Some(id) = self.calls.answered(m, None, &w, out) {
                self.calls.forget(id);
                if let Some(t) = out.find(id) {
                    t.finish();
                }
            }
            return;
        }
        // A server may answer the old question in the new way.
        let at = (self.pending.iter().position(|p| p.0 == m.number))
            .or((m.version == 2 && m.command == 0 && !self.pending.is_empty()).then_some(0));
        let Some((_, id, share)) = at.and_then(|at| self.pending.remove(at)) else {
            return;
        };
        if let Some(dialect) = negotiated {
            self.dialect = dialect;
        }
        if matches!((m.version, m.command), (2, 3) | (1, 0x75))
            && m.status == 0
            && !share.is_empty()
        {
            if self.trees.len() >= MOST_TREES {
                self.trees.pop_front();
            }
            let told = m.version == 2 && m.body.get(2) == Some(&2);
            self.trees.push_back(Tree {
                id: m.tree,
                is_pipe: told || is_pipe(&share),
                path: share,
            });
        }
        if matches!((m.version, m.command), (2, 5) | (1, 0xa2)) {
            self.files.opened(m, &w, out);
        }
        // What was written to a pipe is answered by what is read of it; an error is an answer, too.
        let calls = matches!((m.version, m.command), (2, 11) | (1, 0x25))
            .then(|| self.calls.answered(m, Some(id), &w, out))
            .flatten();
        if calls.is_some() || !matches!(m.status, 0 | 0x8000_0005) {
            self.calls.forget(id);
        }
        let Some(t) = out.find(id) else {
            return;
        };
        if w.records {
            let r = &mut t.record;
            if !self.dialect.is_empty() {
                r.insert("dialect".into(), self.dialect.clone().into());
            }
            let (name, code) = match m.dos {
                true if m.status != 0 => dos_status(m.status),
                _ => (status_name(m.status), format!("0x{:x}", m.status)),
            };
            r.insert("status".into(), name.into());
            r.insert("status_code".into(), code.into());
            if m.session != 0 {
                r.insert("session_id".into(), m.session.into());
            }
            if m.tree != 0 {
                r.insert("tree_id".into(), m.tree.into());
            }
            if m.version == 2 {
                answered(r, m);
            } else {
                answered_before(r, m);
            }
        }
        if self.calls.waits(id) {
            return;
        }
        // More processing required: the same exchange goes on in requests of their own.
        t.finish_side(ToServer);
        t.finish_side(d);
    }
}

/// A message of so many bytes as sent, for rules and the log; `behind`: bytes from its first one to the end of what was given.
fn frames(
    t: &mut Transaction,
    d: Direction,
    (message, length, behind): (&[u8], usize, usize),
    w: &Wanted,
) {
    let (names, head) = match message.get(..4) {
        Some(b"\xffSMB") => (SMB1_FRAMES, 32),
        Some(b"\xfeSMB") => (SMB2_FRAMES, 64),
        _ => return,
    };
    let (header, data) = message.split_at_checked(head).unwrap_or((message, &[]));
    let rest = |all: usize| all.saturating_sub(header.len());
    let parts = [
        ((message, length), behind),
        ((header, header.len()), behind),
        ((data, rest(length)), rest(behind)),
    ];
    for (buffer, (bytes, behind)) in names.into_iter().zip(parts) {
        if w.buffers.has(buffer) {
            t.frame_part((buffer, d), bytes, Some(behind));
        }
    }
}

/// Frames of a message of version 1: all of it, its head, what is behind that.
const SMB1_FRAMES: [Buffer; 3] = [
    Buffer::FrameSmb1Pdu,
    Buffer::FrameSmb1Header,
    Buffer::FrameSmb1Data,
];

/// The same of version 2 and 3.
const SMB2_FRAMES: [Buffer; 3] = [
    Buffer::FrameSmb2Pdu,
    Buffer::FrameSmb2Header,
    Buffer::FrameSmb2Data,
];

/// System and program of an end, as records have them.
fn ends([system, program]: [Vec<u8>; 2]) -> Record {
    Record::from_iter([
        ("native_os".to_owned(), text(&system)),
        ("native_lm".to_owned(), text(&program)),
    ])
}

/// What answers of version 1 tell the log.
fn answered_before(r: &mut Record, m: &Message<'_>) {
    match m.command {
        0x72 => {
            // Without extended security there stand a challenge and names in its place.
            let id = words(m).and_then(|(_, bytes, _)| bytes.get(..16));
            let id = id.map(identifier).unwrap_or_default();
            r.insert("server_guid".into(), id.into());
        }
        0x73 => {
            if let Some(natives) = natives(m) {
                r.insert("response".into(), ends(natives).into());
            }
        }
        0xa2 => {
            let words = words(m).map(|(words, ..)| words).unwrap_or_default();
            let good = m.status == 0 && words.len() >= 63;
            let id = le16(words, 5).filter(|_| good);
            let id = id.map(|id| format!("{id:04x}"));
            opened(r, words, [11, 55], good, id.unwrap_or_default());
        }
        0x75 => {
            if let (Some(service), Some(asked)) = (
                service(m),
                r.get_mut("service").and_then(|s| s.as_object_mut()),
            ) {
                asked.insert("response".into(), text(service));
            }
        }
        _ => {}
    }
}

/// A message of any version.
fn read_message(bytes: &[u8]) -> Option<Message<'_>> {
    match bytes.get(..4)? {
        b"\xffSMB" => first_version(bytes),
        _ => second_version(bytes),
    }
}

/// Whether the answer proper comes later.
fn is_pending(m: &Message<'_>) -> bool {
    m.version == 2 && m.status == 0x0000_0103
}

/// Whether a share is the one of named pipes.
fn is_pipe(share: &[u8]) -> bool {
    share.to_ascii_uppercase().ends_with(b"IPC$")
}

/// What the answer to a request that opens a file tells the log: four times from the first of `places` on, and the length at the second one.
fn opened(r: &mut Record, b: &[u8], [times, size]: [usize; 2], good: bool, fuid: String) {
    for (n, key) in ["created", "accessed", "modified", "changed"]
        .into_iter()
        .enumerate()
    {
        let time = le64(b, times + 8 * n).filter(|_| good).unwrap_or(0);
        r.insert(key.into(), seconds(time).into());
    }
    let size = le64(b, size).filter(|_| good).unwrap_or(0);
    r.insert("size".into(), size.into());
    r.insert("fuid".into(), fuid.into());
}

/// What answers of version 2 tell the log.
fn answered(r: &mut Record, m: &Message<'_>) {
    let b = m.body;
    let good = m.status == 0;
    match m.command {
        0 if good => {
            if let Some(id) = b.get(8..24) {
                r.insert("server_guid".into(), identifier(id).into());
            }
            for (key, at) in [("max_read_size", 32), ("max_write_size", 36)] {
                if let Some(n) = le32(b, at) {
                    r.insert(key.into(), n.into());
                }
            }
        }
        3 if good => {
            let kind = match b.get(2) {
                Some(1) => "FILE",
                Some(2) => "PIPE",
                Some(3) => "PRINT",
                _ => "UNKNOWN",
            };
            r.insert("share_type".into(), kind.into());
        }
        5 => {
            let id = b.get(64..80).filter(|_| good).map(identifier);
            opened(r, b, [8, 48], good, id.unwrap_or_default());
        }
        _ => {}
    }
}

impl Parser for Smb {
    fn data(&mut self, d: Direction, bytes: &[u8], time: u64, out: &mut Transactions) {
        let mut carry = std::mem::take(&mut d.of_mut(&mut self.halves).carry);
        let mut rest = bytes;
        if !carry.is_empty() {
            carry.extend_from_slice(bytes);
            rest = &carry;
        }
        while !rest.is_empty() && !out.failed {
            match self.take(d, rest, time, out) {
                0 => break,
                taken => rest = &rest[taken..],
            }
        }
        d.of_mut(&mut self.halves).carry = if carry.is_empty() {
            rest.to_vec()
        } else {
            let taken = carry.len() - rest.len();
            carry.drain(..taken);
            carry
        };
    }

    fn gap(&mut self, d: Direction, length: u64, out: &mut Transactions) {
        let half = d.of_mut(&mut self.halves);
        let inside = half.content.as_ref().map_or(0, |c| c.left) + half.skip;
        // Of contents, the rest goes on; inside of what is passed over anyway, nothing is lost.
        if half.carry.is_empty() && inside as u64 >= length {
            let mut length = length as usize;
            if let Some(content) = &mut half.content {
                let lost = content.left.min(length);
                self.files.lose(content, lost, &self.wanted, out);
                length -= lost;
            }
            half.skip -= length;
            self.end_content(d, out);
            return;
        }
        for d in [ToServer, ToClient] {
            self.files.end_stream(d, &self.wanted, out);
        }
        for t in &mut out.live {
            t.finish();
        }
        out.event("file_skip");
        out.failed = true;
    }

    fn end(&mut self, d: Direction, out: &mut Transactions) {
        self.files.end_stream(d, &self.wanted, out);
        if d == ToClient {
            let pending = std::mem::take(&mut self.pending);
            let pending = pending.into_iter().map(|p| p.1);
            for id in pending.chain(self.calls.give_up()) {
                if let Some(t) = out.find(id) {
                    t.finish();
                }
            }
        }
    }

    fn memory(&self) -> usize {
        let names = self
            .pending
            .iter()
            .map(|p| p.2.capacity() + 40)
            .sum::<usize>();
        let half = |h: &Half| h.carry.capacity();
        let trees = self
            .trees
            .iter()
            .map(|t| t.path.capacity() + size_of::<Tree>())
            .sum::<usize>();
        let halves = half(&self.halves[0]) + half(&self.halves[1]);
        size_of::<Smb>() + halves + names + trees + self.files.memory() + self.calls.memory()
    }
}
