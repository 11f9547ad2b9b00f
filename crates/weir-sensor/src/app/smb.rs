//! SMB 1 to 3 as far as rules and logs look: requests with their status, shares, named pipes, file names, names of NTLMSSP, and DCE/RPC over pipes.
//! Contents of files are not put together.

use std::collections::VecDeque;

use super::text::{hex, text};
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
    /// Interfaces of DCE/RPC that the client asked for last, for the log.
    interfaces: Vec<serde_json::Value>,
}

#[derive(Default)]
struct Half {
    carry: Vec<u8>,
    /// Bytes of a message that is passed over.
    skip: usize,
}

/// What a header says.
struct Message<'a> {
    version: u8,
    command: u16,
    status: u32,
    response: bool,
    unicode: bool,
    number: u64,
    tree: u32,
    session: u64,
    /// The whole message, which offsets count from.
    all: &'a [u8],
    /// What follows the header.
    body: &'a [u8],
}

fn le16(b: &[u8], at: usize) -> Option<usize> {
    Some(usize::from(u16::from_le_bytes([
        *b.get(at)?,
        *b.get(at + 1)?,
    ])))
}

fn le32(b: &[u8], at: usize) -> Option<u32> {
    Some(le16(b, at)? as u32 | (le16(b, at + 2)? as u32) << 16)
}

fn le64(b: &[u8], at: usize) -> Option<u64> {
    Some(u64::from(le32(b, at)?) | u64::from(le32(b, at + 4)?) << 32)
}

impl Smb {
    pub(super) fn new(wanted: &Wanted) -> Smb {
        Smb {
            wanted: *wanted,
            halves: [Half::default(), Half::default()],
            pending: VecDeque::new(),
            trees: VecDeque::new(),
            dialect: String::new(),
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
                let list: Vec<_> = dialects(m).iter().map(|d| text(d)).collect();
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
            (1, 0x72) => Some("NT LM 0.12".to_string()),
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
            r.insert("status".into(), status_name(m.status).into());
            r.insert("status_code".into(), format!("0x{:x}", m.status).into());
            if m.session != 0 {
                r.insert("session_id".into(), m.session.into());
            }
            if m.tree != 0 {
                r.insert("tree_id".into(), m.tree.into());
            }
            if m.version == 2 {
                answered(r, m);
            }
        }
        // More processing required: the same exchange goes on in requests of their own.
        t.finish_side(d);
    }
}

/// How a file is to be opened.
const DISPOSITIONS: [&str; 6] = [
    "FILE_SUPERSEDE",
    "FILE_OPEN",
    "FILE_CREATE",
    "FILE_OPEN_IF",
    "FILE_OVERWRITE",
    "FILE_OVERWRITE_IF",
];

type Record = serde_json::Map<String, serde_json::Value>;

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

/// What came of each interface that a bind asked for: result and reason.
fn accepted(interfaces: &mut [serde_json::Value], data: &[u8]) {
    // The second address has a length of its own, and what follows it is aligned to four bytes.
    let Some(list) = le16(data, 24).and_then(|n| data.get((26 + n).next_multiple_of(4)..)) else {
        return;
    };
    let count = usize::from(list.first().copied().unwrap_or_default());
    for (n, interface) in interfaces.iter_mut().enumerate().take(count) {
        if let (Some(result), Some(reason), Some(i)) = (
            le16(list, 4 + 24 * n),
            le16(list, 6 + 24 * n),
            interface.as_object_mut(),
        ) {
            i.insert("ack_result".into(), result.into());
            i.insert("ack_reason".into(), reason.into());
        }
    }
}

/// What an ioctl asks for, by its number ([MS-SMB2], 2.2.31).
fn control_name(number: u32) -> Option<&'static str> {
    Some(match number {
        0x0006_0194 => "FSCTL_DFS_GET_REFERRALS",
        0x0006_01b0 => "FSCTL_DFS_GET_REFERRALS_EX",
        0x0009_00a4 => "FSCTL_SET_REPARSE_POINT",
        0x0009_8208 => "FSCTL_FILE_LEVEL_TRIM",
        0x0011_0018 => "FSCTL_PIPE_WAIT",
        0x0011_400c => "FSCTL_PIPE_PEEK",
        0x0011_c017 => "FSCTL_PIPE_TRANSCEIVE",
        0x0014_0078 => "FSCTL_SRV_REQUEST_RESUME_KEY",
        0x0014_01d4 => "FSCTL_LMR_REQUEST_RESILIENCY",
        0x0014_01fc => "FSCTL_QUERY_NETWORK_INTERFACE_INFO",
        0x0014_0204 => "FSCTL_VALIDATE_NEGOTIATE_INFO",
        0x0014_4064 => "FSCTL_SRV_ENUMERATE_SNAPSHOTS",
        0x0014_40f2 => "FSCTL_SRV_COPYCHUNK",
        0x0014_41bb => "FSCTL_SRV_READ_HASH",
        0x0014_80f2 => "FSCTL_SRV_COPYCHUNK_WRITE",
        _ => return None,
    })
}

/// What the log says of the arguments of a DCE/RPC message: one fragment, as each message is looked at by itself.
fn stub(data: &[u8]) -> Record {
    let length = le16(data, 8).unwrap_or_default();
    let mut r = Record::new();
    r.insert("frag_cnt".into(), 1.into());
    r.insert("stub_data_size".into(), length.saturating_sub(24).into());
    r
}

/// Seconds since 1970 of a time of Windows; 0 for none.
fn seconds(time: u64) -> u64 {
    (time / 10_000_000).saturating_sub(11_644_473_600)
}

/// An identifier of a server or of an open file, as the log has it.
fn identifier(b: &[u8]) -> String {
    let swapped = |r: std::ops::Range<usize>| {
        let mut part = b[r].to_vec();
        part.reverse();
        hex(&part)
    };
    format!(
        "{}-{}-{}-{}-{}{}",
        swapped(0..4),
        swapped(4..6),
        swapped(6..8),
        swapped(8..10),
        swapped(10..12),
        swapped(12..16)
    )
}

/// The dialects that a client offers, by name.
fn dialects(m: &Message<'_>) -> Vec<Vec<u8>> {
    if m.version == 2 {
        let count = le16(m.body, 2).unwrap_or_default().min(64);
        let numbers = m.body.get(36..).unwrap_or_default().chunks_exact(2);
        return numbers
            .take(count)
            .map(|v| dialect([v[0], v[1]]).into_bytes())
            .collect();
    }
    let Some((_, bytes, _)) = words(m) else {
        return Vec::new();
    };
    let names = bytes.split(|b| *b == 0).take(32);
    names
        .filter_map(|n| n.strip_prefix(b"\x02"))
        .map(<[u8]>::to_vec)
        .collect()
}

/// A dialect of version 2 or 3 by its number.
fn dialect(number: [u8; 2]) -> String {
    match number {
        [0x02, 0x02] => "2.02".to_owned(),
        [0x10, 0x02] => "2.10".to_owned(),
        [0x22, 0x02] => "2.22".to_owned(),
        [0x24, 0x02] => "2.24".to_owned(),
        [0x00, 0x03] => "3.00".to_owned(),
        [0x02, 0x03] => "3.02".to_owned(),
        [0x10, 0x03] => "3.10".to_owned(),
        [0x11, 0x03] => "3.11".to_owned(),
        [0xff, 0x02] => "2.??".to_owned(),
        other => u16::from_le_bytes(other).to_string(),
    }
}

fn first_version(b: &[u8]) -> Option<Message<'_>> {
    Some(Message {
        version: 1,
        command: u16::from(*b.get(4)?),
        status: le32(b, 5)?,
        response: b.get(9)? & 0x80 != 0,
        unicode: le16(b, 10)? & 0x8000 != 0,
        number: (le16(b, 30)? | le16(b, 26)? << 16) as u64,
        tree: le16(b, 24)? as u32,
        session: le16(b, 28)? as u64,
        all: b,
        body: b.get(32..)?,
    })
}

/// A message of versions 2 and 3, and where the next of its compound begins.
fn second_version(b: &[u8]) -> Option<(Message<'_>, usize)> {
    if b.get(..4)? != b"\xfeSMB" {
        return None;
    }
    let m = Message {
        version: 2,
        command: le16(b, 12)? as u16,
        status: le32(b, 8)?,
        response: le32(b, 16)? & 1 != 0,
        unicode: true,
        number: le64(b, 24)?,
        tree: le32(b, 36)?,
        session: le64(b, 40)?,
        all: b,
        body: b.get(64..)?,
    };
    Some((m, le32(b, 20)? as usize))
}

/// Text of the wire in one-byte characters, up to its NUL; others are replaced.
fn narrow(bytes: &[u8], unicode: bool) -> Vec<u8> {
    if !unicode {
        let end = memchr::memchr(0, bytes).unwrap_or(bytes.len());
        return bytes[..end].to_vec();
    }
    let units: Vec<u16> = bytes
        .chunks_exact(2)
        .map(|p| u16::from_le_bytes([p[0], p[1]]))
        .take_while(|u| *u != 0)
        .collect();
    String::from_utf16_lossy(&units).into_bytes()
}

/// Words and bytes of a message of version 1, and where the bytes begin.
fn words<'a>(m: &Message<'a>) -> Option<(&'a [u8], &'a [u8], usize)> {
    let n = usize::from(*m.body.first()?) * 2;
    let words = m.body.get(1..1 + n)?;
    Some((words, m.body.get(3 + n..)?, 32 + 3 + n))
}

fn tree_path(m: &Message<'_>) -> Option<Vec<u8>> {
    if m.version == 2 {
        let (at, length) = (le16(m.body, 4)?, le16(m.body, 6)?);
        return Some(narrow(m.all.get(at..at + length)?, true));
    }
    let (words, bytes, at) = words(m)?;
    let password = le16(words, 6)?;
    let mut path = bytes.get(password..)?;
    if m.unicode && (at + password) % 2 == 1 {
        path = path.get(1..)?;
    }
    Some(narrow(path, m.unicode))
}

fn file_name(m: &Message<'_>) -> Option<Vec<u8>> {
    if m.version == 2 {
        let (at, length) = (le16(m.body, 44)?, le16(m.body, 46)?);
        return Some(narrow(m.all.get(at..at + length)?, true));
    }
    let (words, bytes, at) = words(m)?;
    let length = le16(words, 5)?;
    let pad = usize::from(m.unicode && at % 2 == 1);
    Some(narrow(bytes.get(pad..pad + length)?, m.unicode))
}

/// The names of an authenticate message of NTLMSSP.
struct Ntlm {
    domain: Vec<u8>,
    user: Vec<u8>,
    host: Vec<u8>,
    /// Of the system.
    version: Option<String>,
}

impl Ntlm {
    fn find(all: &[u8]) -> Option<Ntlm> {
        let at = memchr::memmem::find(all, b"NTLMSSP\0")?;
        let b = &all[at..];
        if le32(b, 8)? != 3 {
            return None;
        }
        let unicode = le32(b, 60).is_none_or(|f| f & 1 != 0);
        let field = |at: usize| {
            let (length, offset) = (le16(b, at)?, le32(b, at + 4)? as usize);
            Some(narrow(b.get(offset..offset.checked_add(length)?)?, unicode))
        };
        let flags = le32(b, 60).unwrap_or_default();
        let version = b.get(64..72).filter(|_| flags & 0x0200_0000 != 0).map(|v| {
            let build = u16::from_le_bytes([v[2], v[3]]);
            format!("{}.{} build {build} rev {}", v[0], v[1], v[7])
        });
        Some(Ntlm {
            version,
            domain: field(28)?,
            user: field(36)?,
            host: field(44)?,
        })
    }
}

fn ntlm(t: &mut Transaction, n: &Ntlm, w: &Wanted) {
    for (buffer, name) in [
        (Buffer::SmbNtlmUser, &n.user),
        (Buffer::SmbNtlmDomain, &n.domain),
    ] {
        if w.buffers.has(buffer) {
            t.push(buffer, ToServer, name);
        }
    }
    if w.records {
        let mut r = serde_json::Map::new();
        r.insert("domain".into(), text(&n.domain));
        r.insert("user".into(), text(&n.user));
        r.insert("host".into(), text(&n.host));
        if let Some(version) = &n.version {
            r.insert("version".into(), version.as_str().into());
        }
        t.record.insert("ntlmssp".into(), r.into());
    }
}

/// A request of DCE/RPC over a pipe.
struct Dcerpc<'a>(&'a [u8]);

/// The DCE/RPC in a write, a transaction or an ioctl.
fn dcerpc_of<'a>(m: &Message<'a>) -> Option<Dcerpc<'a>> {
    let data = match (m.version, m.command) {
        (2, 9) => m.all.get(le16(m.body, 2)?..)?,
        // Ioctl: only the one that talks to pipes.
        (2, 11) if le32(m.body, 4)? == 0x0011_c017 => m.all.get(le32(m.body, 24)? as usize..)?,
        (1, 0x25) => m.all.get(le16(words(m)?.0, 24)?..)?,
        (1, 0x2f) => m.all.get(le16(words(m)?.0, 22)?..)?,
        _ => return None,
    };
    let little = data.get(4)? & 0x10 != 0;
    (data[..2] == [5, 0] && matches!(data[2], 0 | 11 | 14 | 16) && little && data.len() >= 24)
        .then_some(Dcerpc(data))
}

impl Dcerpc<'_> {
    fn note(&self, t: &mut Transaction, w: &Wanted, known: &mut Vec<serde_json::Value>) {
        let b = self.0;
        let mut r = serde_json::Map::new();
        if b[2] == 0 {
            let opnum = le16(b, 22).unwrap_or_default();
            t.facts.push(("dcerpc.opnum", opnum as u64));
            r.insert("request".into(), "REQUEST".into());
            r.insert("opnum".into(), opnum.into());
            r.insert("req".into(), stub(b).into());
            if !known.is_empty() {
                r.insert("interfaces".into(), known.clone().into());
            }
        } else if b[2] == 16 {
            // The third leg of authentication, which has no answer.
            r.insert("request".into(), "AUTH3".into());
            r.insert("response".into(), "UNREPLIED".into());
        } else {
            let mut interfaces = Vec::new();
            let mut at = 28;
            for _ in 0..b.get(24).copied().unwrap_or_default().min(16) {
                let (Some(id), Some(major), Some(minor)) =
                    (b.get(at + 4..at + 20), le16(b, at + 20), le16(b, at + 22))
                else {
                    break;
                };
                let mut i = serde_json::Map::new();
                i.insert("uuid".into(), uuid(id).into());
                i.insert("version".into(), format!("{major}.{minor}").into());
                interfaces.push(serde_json::Value::from(i));
                at += 24 + 20 * usize::from(b.get(at + 2).copied().unwrap_or_default());
            }
            let name = if b[2] == 11 { "BIND" } else { "ALTER_CONTEXT" };
            r.insert("request".into(), name.into());
            if w.records {
                known.clone_from(&interfaces);
            }
            r.insert("interfaces".into(), interfaces.into());
        }
        r.insert("call_id".into(), le32(b, 12).unwrap_or_default().into());
        if w.records {
            t.record.insert("dcerpc".into(), r.into());
        }
    }
}

fn uuid(b: &[u8]) -> String {
    let swapped = |r: std::ops::Range<usize>| {
        let mut part = b[r].to_vec();
        part.reverse();
        hex(&part)
    };
    format!(
        "{}-{}-{}-{}-{}",
        swapped(0..4),
        swapped(4..6),
        swapped(6..8),
        hex(&b[8..10]),
        hex(&b[10..16])
    )
}

fn command_name(m: &Message<'_>) -> String {
    const SECOND: [&str; 19] = [
        "NEGOTIATE_PROTOCOL",
        "SESSION_SETUP",
        "SESSION_LOGOFF",
        "TREE_CONNECT",
        "TREE_DISCONNECT",
        "CREATE",
        "CLOSE",
        "FLUSH",
        "READ",
        "WRITE",
        "LOCK",
        "IOCTL",
        "CANCEL",
        "KEEPALIVE",
        "FIND",
        "CHANGE_NOTIFY",
        "GET_INFO",
        "SET_INFO",
        "OPLOCK_BREAK",
    ];
    if m.version == 2 {
        return match SECOND.get(usize::from(m.command)) {
            Some(name) => format!("SMB2_COMMAND_{name}"),
            None => m.command.to_string(),
        };
    }
    let name = match m.command {
        0x00 => "CREATE_DIRECTORY",
        0x04 => "CLOSE",
        0x06 => "DELETE",
        0x07 => "RENAME",
        0x25 => "TRANS",
        0x2b => "ECHO",
        0x2e => "READ_ANDX",
        0x2f => "WRITE_ANDX",
        0x32 => "TRANS2",
        0x34 => "FIND_CLOSE2",
        0x71 => "TREE_DISCONNECT",
        0x72 => "NEGOTIATE_PROTOCOL",
        0x73 => "SESSION_SETUP_ANDX",
        0x74 => "LOGOFF_ANDX",
        0x75 => "TREE_CONNECT_ANDX",
        0x80 => "QUERY_INFO_DISK",
        0xa0 => "NT_TRANS",
        0xa2 => "NT_CREATE_ANDX",
        0xa4 => "NT_CANCEL",
        other => return format!("SMB1_COMMAND_{other:#x}"),
    };
    format!("SMB1_COMMAND_{name}")
}

fn status_name(status: u32) -> String {
    match status {
        0 => "STATUS_SUCCESS",
        0x0000_0103 => "STATUS_PENDING",
        0x8000_0005 => "STATUS_BUFFER_OVERFLOW",
        0x8000_0006 => "STATUS_NO_MORE_FILES",
        0xc000_000d => "STATUS_INVALID_PARAMETER",
        0xc000_000f => "STATUS_NO_SUCH_FILE",
        0xc000_0011 => "STATUS_END_OF_FILE",
        0xc000_0016 => "STATUS_MORE_PROCESSING_REQUIRED",
        0xc000_0022 => "STATUS_ACCESS_DENIED",
        0xc000_0034 => "STATUS_OBJECT_NAME_NOT_FOUND",
        0xc000_003a => "STATUS_OBJECT_PATH_NOT_FOUND",
        0xc000_006d => "STATUS_LOGON_FAILURE",
        0xc000_00bb => "STATUS_NOT_SUPPORTED",
        0xc000_00cc => "STATUS_BAD_NETWORK_NAME",
        0xc000_0225 => "STATUS_NOT_FOUND",
        0x0000_0102 => "STATUS_TIMEOUT",
        0x0000_010b => "STATUS_NOTIFY_CLEANUP",
        0x0000_010c => "STATUS_NOTIFY_ENUM_DIR",
        0x8000_0002 => "STATUS_DATATYPE_MISALIGNMENT",
        0x8000_001a => "STATUS_NO_MORE_ENTRIES",
        0xc000_0001 => "STATUS_UNSUCCESSFUL",
        0xc000_0002 => "STATUS_NOT_IMPLEMENTED",
        0xc000_0003 => "STATUS_INVALID_INFO_CLASS",
        0xc000_0008 => "STATUS_INVALID_HANDLE",
        0xc000_0010 => "STATUS_INVALID_DEVICE_REQUEST",
        0xc000_0023 => "STATUS_BUFFER_TOO_SMALL",
        0xc000_0033 => "STATUS_OBJECT_NAME_INVALID",
        0xc000_0035 => "STATUS_OBJECT_NAME_COLLISION",
        0xc000_0043 => "STATUS_SHARING_VIOLATION",
        0xc000_0056 => "STATUS_DELETE_PENDING",
        0xc000_0064 => "STATUS_NO_SUCH_USER",
        0xc000_006a => "STATUS_WRONG_PASSWORD",
        0xc000_006e => "STATUS_ACCOUNT_RESTRICTION",
        0xc000_0072 => "STATUS_ACCOUNT_DISABLED",
        0xc000_009a => "STATUS_INSUFFICIENT_RESOURCES",
        0xc000_00ac => "STATUS_PIPE_NOT_AVAILABLE",
        0xc000_00ba => "STATUS_FILE_IS_A_DIRECTORY",
        0xc000_00c9 => "STATUS_NETWORK_NAME_DELETED",
        0xc000_00d0 => "STATUS_REQUEST_NOT_ACCEPTED",
        0xc000_0101 => "STATUS_DIRECTORY_NOT_EMPTY",
        0xc000_0103 => "STATUS_NOT_A_DIRECTORY",
        0xc000_0120 => "STATUS_CANCELLED",
        0xc000_0121 => "STATUS_CANNOT_DELETE",
        0xc000_0128 => "STATUS_FILE_CLOSED",
        0xc000_014b => "STATUS_PIPE_BROKEN",
        0xc000_0203 => "STATUS_USER_SESSION_DELETED",
        0xc000_0205 => "STATUS_INSUFF_SERVER_RESOURCES",
        0xc000_0234 => "STATUS_ACCOUNT_LOCKED_OUT",
        0xc000_0257 => "STATUS_PATH_NOT_COVERED",
        0xc000_035c => "STATUS_NETWORK_SESSION_EXPIRED",
        other => return format!("0x{other:08x}"),
    }
    .to_string()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::Ports;
    use crate::app::tests::converse_all;

    fn wide(text: &str) -> Vec<u8> {
        text.encode_utf16().flat_map(u16::to_le_bytes).collect()
    }

    fn second(command: u16, response: bool, number: u64, tree: u32, body: &[u8]) -> Vec<u8> {
        let mut h = b"\xfeSMB\x40\0\0\0".to_vec();
        h.extend_from_slice(&0u32.to_le_bytes());
        h.extend_from_slice(&command.to_le_bytes());
        h.extend_from_slice(&[0, 0]);
        h.extend_from_slice(&u32::from(response).to_le_bytes());
        h.extend_from_slice(&[0; 4]);
        h.extend_from_slice(&number.to_le_bytes());
        h.extend_from_slice(&[0; 4]);
        h.extend_from_slice(&tree.to_le_bytes());
        h.extend_from_slice(&7u64.to_le_bytes());
        h.extend_from_slice(&[0; 16]);
        h.extend_from_slice(body);
        framed(&h)
    }

    fn framed(message: &[u8]) -> Vec<u8> {
        [&(message.len() as u32).to_be_bytes()[..], message].concat()
    }

    fn connect(number: u64, path: &str) -> Vec<u8> {
        let path = wide(path);
        let body = [
            &[9, 0, 0, 0, 72, 0][..],
            &(path.len() as u16).to_le_bytes(),
            &path,
        ]
        .concat();
        second(3, false, number, 0, &body)
    }

    #[test]
    fn what_has_no_name_is_a_number() {
        assert_eq!(dialect([0x11, 3]), "3.11");
        assert_eq!(dialect([0x99, 9]), "2457");
        let mut b = [0; 64];
        b[..4].copy_from_slice(b"\xfeSMB");
        for (command, name) in [(18, "SMB2_COMMAND_OPLOCK_BREAK"), (48, "48")] {
            b[12] = command;
            assert_eq!(command_name(&second_version(&b).unwrap().0), name);
        }
    }

    #[test]
    fn shares_pipes_and_calls() {
        let write = {
            let rpc = [
                &[5, 0, 0, 3, 0x10, 0, 0, 0, 24, 0, 0, 0, 9, 0, 0, 0][..],
                &[0, 0, 0, 0, 0, 0, 15, 0],
            ]
            .concat();
            let mut body = vec![49, 0, 64 + 48, 0];
            body.resize(48, 0);
            body.extend_from_slice(&rpc);
            second(9, false, 3, 5, &body)
        };
        let create = {
            let name = wide("srvsvc");
            let mut body = vec![57, 0];
            body.resize(44, 0);
            body.extend_from_slice(&[64 + 56, 0, name.len() as u8, 0]);
            body.resize(56, 0);
            body.extend_from_slice(&name);
            second(5, false, 4, 5, &body)
        };
        let client = [
            connect(1, "\\\\host\\IPC$"),
            connect(2, "\\\\host\\data"),
            write,
            create,
        ]
        .concat();
        let server = [
            second(3, true, 1, 5, &[16, 0, 2, 0]),
            second(3, true, 2, 6, &[16, 0, 1, 0]),
            second(9, true, 3, 5, &[0; 16]),
        ]
        .concat();
        let c = converse_all(
            &[(ToServer, &client), (ToClient, &server)],
            Ports::default(),
        );
        assert_eq!(c.app(), App::Smb);
        let t = &c.transactions.live;
        let one = |t: &Transaction, b| t.get(b, ToServer).next().map(<[u8]>::to_vec);
        assert_eq!(one(&t[0], Buffer::SmbNamedPipe).unwrap(), b"\\\\host\\IPC$");
        assert_eq!(one(&t[0], Buffer::SmbShare), None);
        assert_eq!(one(&t[1], Buffer::SmbShare).unwrap(), b"\\\\host\\data");
        assert_eq!(t[1].record["status"], "STATUS_SUCCESS");
        assert_eq!(t[1].record["command"], "SMB2_COMMAND_TREE_CONNECT");
        assert_eq!(t[2].facts("dcerpc.opnum").next(), Some(15));
        assert_eq!(t[2].record["dcerpc"]["request"], "REQUEST");
        assert_eq!(one(&t[3], Buffer::FileName).unwrap(), b"srvsvc");
        assert!(t.iter().all(|t| t.done));
    }

    #[test]
    fn binds_controls_and_what_comes_later() {
        // An ioctl with data behind its fixed part.
        let control = |number, response, code: u32, data: &[u8]| {
            let mut body = vec![if response { 49 } else { 57 }, 0, 0, 0];
            body.extend_from_slice(&code.to_le_bytes());
            body.resize(24, 0);
            body.extend_from_slice(&120u32.to_le_bytes());
            body.resize(32, 0);
            body.extend_from_slice(&120u32.to_le_bytes());
            body.resize(56, 0);
            body.extend_from_slice(data);
            second(11, response, number, 5, &body)
        };
        let interface = [&[0, 0, 1, 0][..], &[7; 16], &[3, 0, 0, 0], &[8; 20]].concat();
        let head = |kind| [5, 0, kind, 3, 0x10, 0, 0, 0, 72, 0, 0, 0, 1, 0, 0, 0];
        let bind = [&head(11)[..], &[0; 8], &[1, 0, 0, 0], &interface].concat();
        let taken = [
            &head(12)[..],
            &[0; 8],
            &[3, 0, b'p', b'i', 0],
            &[0; 3],
            &[1, 0, 0, 0, 2, 0, 1, 0],
            &[8; 20],
        ]
        .concat();
        let mut later = second(15, true, 3, 5, &[0; 8]);
        // Its length, in front, and its identifier are before the status.
        later[4 + 8..4 + 12].copy_from_slice(&0x103u32.to_le_bytes());
        let client = [
            control(1, false, 0x0011_c017, &bind),
            control(2, false, 0x0011_0018, b""),
            second(15, false, 3, 5, &[0; 32]),
            second(16, false, 4, 5, &[0; 40]),
        ]
        .concat();
        let server = [
            control(1, true, 0x0011_c017, &taken),
            control(2, true, 0x0011_0018, b""),
            later,
        ]
        .concat();
        let c = converse_all(
            &[(ToServer, &client), (ToClient, &server)],
            Ports::default(),
        );
        let t = &c.transactions.live;
        let rpc = &t[0].record["dcerpc"];
        assert_eq!(rpc["response"], "BINDACK");
        assert_eq!(
            (
                &rpc["interfaces"][0]["ack_result"],
                &rpc["interfaces"][0]["ack_reason"]
            ),
            (&2.into(), &1.into())
        );
        assert_eq!(t[1].record["function"], "FSCTL_PIPE_WAIT");
        assert_eq!((t.len(), t[2].record.get("status")), (3, None));
    }

    #[test]
    fn the_first_version_and_its_names() {
        let mut h = b"\xffSMB\x75\0\0\0\0\0\0\x80".to_vec();
        h.resize(32, 0);
        h.extend_from_slice(&[4, 0xff, 0, 0, 0, 0, 0, 1, 0]);
        let bytes = [&[0][..], &wide("\\\\h\\C$\0"), b"?????\0"].concat();
        h.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
        h.extend_from_slice(&bytes);
        let c = converse_all(&[(ToServer, &framed(&h))], Ports::default());
        let t = &c.transactions.live[0];
        let share: Vec<_> = t.get(Buffer::SmbShare, ToServer).collect();
        assert_eq!(share, [b"\\\\h\\C$"]);
        let mut auth = b"NTLMSSP\0\x03\0\0\0".to_vec();
        auth.resize(64, 0);
        for (at, text) in [(28, "DOM"), (36, "user"), (44, "HOST")] {
            let w = wide(text);
            auth[at] = w.len() as u8;
            auth[at + 4] = auth.len() as u8;
            auth.extend_from_slice(&w);
        }
        auth[60] = 1;
        let n = Ntlm::find(&auth).unwrap();
        assert_eq!(
            (n.domain, n.user, n.host),
            (b"DOM".to_vec(), b"user".to_vec(), b"HOST".to_vec())
        );
    }
}
