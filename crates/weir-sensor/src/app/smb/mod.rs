//! SMB 1 to 3 as far as rules and logs look: requests with their status, shares, named pipes, file names, names of NTLMSSP, and DCE/RPC over pipes.
//! Contents of files are not put together.

mod message;
mod names;
mod ntlm;
mod rpc;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use self::message::{
    Message, dialects, file_name, first_version, le16, le32, le64, natives, second_version,
    service, tree_path, words,
};
use self::names::{
    DISPOSITIONS, command_name, control_name, dialect, dos_status, identifier, seconds, status_name,
};
use self::ntlm::{Ntlm, ntlm};
use self::rpc::{accepted, dcerpc_of, stub};
use super::text::text;
use super::{App, Parser, Transaction, Transactions, Wanted};
use crate::buffer::Buffer;
use crate::packet::Direction;
use crate::packet::Direction::{ToClient, ToServer};

/// Bytes of a message that are looked at; the rest, contents of files, is passed over.
const MOST_MESSAGE: usize = 16 * 1024;
/// Requests that may wait for an answer.
const MOST_PENDING: usize = 256;
/// Messages in one compound.
const MOST_COMPOUND: usize = 64;
/// Trees whose share is remembered.
const MOST_TREES: usize = 64;

pub(super) struct Smb {
    wanted: Wanted,
    halves: [Half; 2],
    /// Requests without an answer: number of the message, transaction, share asked for.
    pending: VecDeque<(u64, u64, Vec<u8>)>,
    /// Trees that are pipes, and their shares.
    trees: VecDeque<(u32, Vec<u8>)>,
    dialect: String,
    /// Dialects that a client of version 1 offered, for the log.
    offered: Vec<Vec<u8>>,
    /// Interfaces of DCE/RPC that the client asked for last, for the log.
    interfaces: Vec<serde_json::Value>,
}

#[derive(Default)]
struct Half {
    carry: Vec<u8>,
    /// Bytes of a message that is passed over.
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
            dialect: String::new(),
            offered: Vec::new(),
            interfaces: Vec::new(),
        }
    }

    fn message(&mut self, d: Direction, bytes: &[u8], time: u64, out: &mut Transactions) {
        match bytes.get(..4) {
            Some(b"\xffSMB") => {
                if let Some(m) = first_version(bytes) {
                    self.act(d, &m, time, out);
                }
            }
            Some(b"\xfeSMB") => {
                let mut rest = bytes;
                for _ in 0..MOST_COMPOUND {
                    let Some((m, next)) = second_version(rest) else {
                        break;
                    };
                    self.act(d, &m, time, out);
                    match rest.get(next..) {
                        Some(r) if next >= 64 => rest = r,
                        _ => break,
                    }
                }
            }
            // Encrypted or compressed: nothing to see.
            Some(b"\xfdSMB" | b"\xfcSMB") => {}
            _ => out.event("malformed_data"),
        }
    }

    fn act(&mut self, d: Direction, m: &Message<'_>, time: u64, out: &mut Transactions) {
        let w = self.wanted;
        if m.response {
            return self.answer(d, m, out);
        }
        let rpc = dcerpc_of(m);
        // Reads and writes of files, and questions about them, would be transactions by the thousand that no rule looks at. Of what is set of a file, new names and its end count.
        let bulk = if m.version == 2 {
            let told = m.body.get(2..4);
            matches!(m.command, 8 | 9 | 12 | 13 | 16)
                || m.command == 17 && !matches!(told, Some([1, 10 | 13]))
        } else {
            matches!(m.command, 0x2e | 0x2f | 0x2b)
        };
        if bulk && rpc.is_none() {
            return;
        }
        let t = out.begin(App::Smb, time);
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
            }
            (2, 3) | (1, 0x75) => {
                share = tree_path(m).unwrap_or_default();
                let pipe = share.to_ascii_uppercase().ends_with(b"IPC$");
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
                if w.buffers.has(Buffer::FileName) && !name.is_empty() {
                    t.push(Buffer::FileName, ToServer, &name);
                }
                if w.records {
                    let shown = match name.as_slice() {
                        b"" => b"<share_root>",
                        name => name,
                    };
                    t.record.insert("filename".into(), text(shown));
                    if m.version == 2 {
                        let how = le32(m.body, 36).unwrap_or_default() as usize;
                        let how = DISPOSITIONS.get(how).copied().unwrap_or("UNKNOWN");
                        t.record.insert("disposition".into(), how.into());
                        let goes = le32(m.body, 40).is_some_and(|o| o & 0x1000 != 0);
                        let access = if goes { "delete on close" } else { "normal" };
                        t.record.insert("access".into(), access.into());
                    }
                }
            }
            _ => {}
        }
        if let Some(rpc) = rpc {
            rpc.note(t, &w, &mut self.interfaces);
        } else if w.records
            && (m.version, m.command) == (2, 11)
            && let Some(name) = le32(m.body, 4).and_then(control_name)
        {
            t.record.insert("function".into(), name.into());
        }
        t.finish_side(ToServer);
        if self.pending.len() >= MOST_PENDING
            && let Some((_, old, _)) = self.pending.pop_front()
            && let Some(t) = out.find(old)
        {
            t.finish();
        }
        self.pending.push_back((m.number, id, share));
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
        // The answer proper comes later.
        if m.version == 2 && m.status == 0x0000_0103 {
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
            self.trees.push_back((m.tree, share));
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
        // More processing required: the same exchange goes on in requests of their own.
        t.finish_side(d);
    }
}

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
            let times = [
                ("created", 8),
                ("accessed", 16),
                ("modified", 24),
                ("changed", 32),
            ];
            for (key, at) in times {
                let time = le64(b, at).filter(|_| good).unwrap_or(0);
                r.insert(key.into(), seconds(time).into());
            }
            let size = le64(b, 48).filter(|_| good).unwrap_or(0);
            r.insert("size".into(), size.into());
            let id = b.get(64..80).filter(|_| good).map(identifier);
            r.insert("fuid".into(), id.unwrap_or_default().into());
        }
        11 if good => {
            // The answer of a pipe is that of its DCE/RPC.
            let data = le32(b, 32).and_then(|at| m.all.get(at as usize..));
            let (Some(data), Some(rpc)) = (data, r.get_mut("dcerpc")) else {
                return;
            };
            let Some(rpc) = rpc.as_object_mut().filter(|_| data.first() == Some(&5)) else {
                return;
            };
            let name = match data.get(2) {
                Some(2) => "RESPONSE",
                Some(3) => "FAULT",
                Some(12) => "BINDACK",
                Some(13) => "BINDNAK",
                Some(15) => "ALTER_CONTEXT_RESP",
                _ => return,
            };
            rpc.insert("response".into(), name.into());
            if name == "BINDACK"
                && let Some(serde_json::Value::Array(list)) = rpc.get_mut("interfaces")
            {
                accepted(list, data);
            }
            if name == "RESPONSE" {
                rpc.insert("res".into(), stub(data).into());
            }
        }
        _ => {}
    }
}

impl Parser for Smb {
    fn data(&mut self, d: Direction, bytes: &[u8], time: u64, out: &mut Transactions) {
        let i = d.index();
        let skip = self.halves[i].skip.min(bytes.len());
        self.halves[i].skip -= skip;
        let mut carry = std::mem::take(&mut self.halves[i].carry);
        carry.extend_from_slice(&bytes[skip..]);
        let mut rest = carry.as_slice();
        while rest.len() >= 4 {
            let length = u32::from_be_bytes([0, rest[1], rest[2], rest[3]]) as usize;
            if rest[0] != 0 {
                // Session requests, their answers and keep-alives hold nothing.
                if !matches!(rest[0], 0x81..=0x85) || length > 1024 {
                    out.event("malformed_data");
                    out.failed = true;
                    return;
                }
                match rest.get(4 + length..) {
                    Some(r) => rest = r,
                    None => break,
                }
                continue;
            }
            let kept = length.min(MOST_MESSAGE);
            let Some(message) = rest.get(4..4 + kept) else {
                break;
            };
            self.message(d, message, time, out);
            let here = (4 + length).min(rest.len());
            self.halves[i].skip = 4 + length - here;
            rest = &rest[here..];
        }
        let left = carry.len() - rest.len();
        carry.drain(..left);
        self.halves[i].carry = carry;
    }

    fn gap(&mut self, d: Direction, length: u64, out: &mut Transactions) {
        let half = &mut self.halves[d.index()];
        // Inside of what is passed over anyway, nothing is lost.
        if half.carry.is_empty() && half.skip as u64 >= length {
            half.skip -= length as usize;
            return;
        }
        for t in &mut out.live {
            t.finish();
        }
        out.event("file_skip");
        out.failed = true;
    }

    fn end(&mut self, d: Direction, out: &mut Transactions) {
        if d == ToClient {
            for (_, id, _) in std::mem::take(&mut self.pending) {
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
            .map(|t| t.1.capacity() + 32)
            .sum::<usize>();
        size_of::<Smb>() + half(&self.halves[0]) + half(&self.halves[1]) + names + trees
    }
}
