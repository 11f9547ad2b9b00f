//! What the tests of all parsers share, and tests over all of them.

use super::*;
use crate::buffer::BufferSet;
use crate::packet::Direction;

/// Everything, with limits that no small test meets.
pub(crate) fn wanted() -> Asked {
    Asked::from(Wanted {
        buffers: BufferSet::all(),
        request_body: 100_000,
        response_body: 100_000,
        decompressed: 1 << 20,
        records: true,
        sums: crate::app::Sums::default(),
        whole_files: false,
        keys: true,
        said: crate::app::Said::ALL,
    })
}

/// Everything that transactions say, to be compared.
pub(super) fn dump(out: &Transactions) -> Vec<String> {
    out.live
        .iter()
        .map(|t| {
            let buffers: Vec<_> = t
                .all()
                .map(|(b, d, bytes)| format!("{b:?} {d:?} {:?}", String::from_utf8_lossy(bytes)))
                .collect();
            format!(
                "{} {:?} {:?} {:?} {:?} {:?} {:?} {:#?}",
                t.id, t.app, t.complete, t.done, t.events, t.facts, t.files, buffers
            ) + &serde_json::to_string(&(&t.record, &t.beside)).unwrap()
        })
        .collect()
}

/// Feeds a conversation in pieces of `step` bytes.
pub(super) fn converse(parts: &[(Direction, &[u8])], step: usize, ports: Ports) -> Conversation {
    let w = wanted();
    let mut c = Conversation::stream(ports);
    for (d, bytes) in parts {
        for piece in bytes.chunks(step) {
            c.data(*d, piece, 9, &w);
        }
    }
    c.close();
    c
}

/// Feeds whole and in pieces: all must agree.
pub(super) fn converse_all(parts: &[(Direction, &[u8])], ports: Ports) -> Conversation {
    let whole = converse(parts, usize::MAX, ports);
    for step in [1, 2, 3, 5, 7, 11, 64, 500] {
        let cut = converse(parts, step, ports);
        assert_eq!(cut.app(), whole.app());
        let (a, b) = (dump(&cut.transactions), dump(&whole.transactions));
        for (a, b) in a.iter().zip(&b) {
            assert_eq!(a, b, "pieces of {step}");
        }
        assert_eq!(a.len(), b.len());
    }
    whole
}
