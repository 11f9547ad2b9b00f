//! NTLMSSP: who logs on, and from where.

use super::Record;
use super::message::{le16, le32, narrow};
use crate::app::text::text;
use crate::app::transaction::Transaction;
use crate::app::wanted::Wanted;
use crate::buffer::Buffer;
use crate::packet::Direction::ToServer;

/// The names of an authenticate message of NTLMSSP.
pub(super) struct Ntlm {
    pub(super) domain: Vec<u8>,
    pub(super) user: Vec<u8>,
    pub(super) host: Vec<u8>,
    /// Of the system.
    version: Option<String>,
}

impl Ntlm {
    /// Looks for it in a whole message: it is within other tokens.
    pub(super) fn find(all: &[u8]) -> Option<Ntlm> {
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

pub(super) fn ntlm(t: &mut Transaction, n: &Ntlm, w: &Wanted) {
    for (buffer, name) in [
        (Buffer::SmbNtlmUser, &n.user),
        (Buffer::SmbNtlmDomain, &n.domain),
    ] {
        if w.buffers.has(buffer) {
            t.push(buffer, ToServer, name);
        }
    }
    if w.records {
        let mut r = Record::new();
        r.insert("domain".into(), text(&n.domain));
        r.insert("user".into(), text(&n.user));
        r.insert("host".into(), text(&n.host));
        if let Some(version) = &n.version {
            r.insert("version".into(), version.as_str().into());
        }
        t.record.insert("ntlmssp".into(), r.into());
    }
}
