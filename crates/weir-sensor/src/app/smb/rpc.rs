//! DCE/RPC over named pipes: interfaces that are bound, operations that are called.

use super::Record;
use super::message::{Message, le16, le32, words};
use super::names::uuid;
use crate::app::transaction::Transaction;
use crate::app::wanted::Wanted;

/// A request of DCE/RPC over a pipe.
pub(super) struct Dcerpc<'a>(&'a [u8]);

/// The DCE/RPC in a write, a transaction or an ioctl.
pub(super) fn dcerpc_of<'a>(m: &Message<'a>) -> Option<Dcerpc<'a>> {
    let data = match (m.version, m.command) {
        (2, 9) => m.all.get(le16(m.body, 2)?..)?,
        // Ioctl: only the one that talks to pipes.
        (2, 11) if le32(m.body, 4)? == 0x0011_c017 => m.all.get(le32(m.body, 24)? as usize..)?,
        (1, 0x25) => m.all.get(le16(words(m)?.0, 24)?..)?,
        (1, 0x2f) => m.all.get(le16(words(m)?.0, 22)?..)?,
        _ => return None,
    };
    (is_rpc(data, 0) && matches!(data[2], 0 | 11 | 14 | 16)).then_some(Dcerpc(data))
}

/// Whether a request or an answer of DCE/RPC over connections begins there.
pub(super) fn is_rpc(bytes: &[u8], at: usize) -> bool {
    let Some(data) = bytes.get(at..).filter(|d| d.len() >= 24) else {
        return false;
    };
    let little = data[4] & 0x10 != 0;
    data[..2] == [5, 0] && little && matches!(data[2], 0 | 2 | 3 | 11..=16)
}

impl Dcerpc<'_> {
    /// What the log and rules are told of it.
    pub(super) fn note(&self, t: &mut Transaction, w: &Wanted, known: &mut Vec<serde_json::Value>) {
        let b = self.0;
        let mut r = Record::new();
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
                let mut i = Record::new();
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
            // One that asks for nothing lists nothing.
            if !interfaces.is_empty() {
                r.insert("interfaces".into(), interfaces.into());
            }
        }
        r.insert("call_id".into(), le32(b, 12).unwrap_or_default().into());
        if w.records {
            t.record.insert("dcerpc".into(), r.into());
        }
    }
}

/// What came of each interface that a bind asked for: result and reason.
pub(super) fn accepted(interfaces: &mut [serde_json::Value], data: &[u8]) {
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

/// What the log says of the arguments of a DCE/RPC message: one fragment, as each message is looked at by itself.
pub(super) fn stub(data: &[u8]) -> Record {
    let length = le16(data, 8).unwrap_or_default();
    let mut r = Record::new();
    r.insert("frag_cnt".into(), 1.into());
    r.insert("stub_data_size".into(), length.saturating_sub(24).into());
    r
}
