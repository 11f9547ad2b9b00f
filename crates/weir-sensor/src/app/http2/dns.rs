//! DNS in HTTP/2 (RFC 8484): a message is the body of a request or an answer, or a parameter of a target.

use crate::app::bytes::split_most;
use crate::app::dns;
use crate::app::http::head::{Head, Known};
use crate::app::transaction::Transaction;
use crate::app::wanted::Asked;
use crate::packet::Direction;
use crate::packet::Direction::ToServer;

/// The longest message of DNS, bytes.
const MOST: usize = 65_535;

/// Whether a type of contents is that of messages of DNS.
pub(super) fn is_message(kind: Option<&[u8]>) -> bool {
    kind.is_some_and(|k| {
        let name = k.split(|b| *b == b';').next().unwrap_or_default();
        name.trim_ascii()
            .eq_ignore_ascii_case(b"application/dns-message")
    })
}

/// Whether a request asks DNS, and the question if it is in the target.
pub(super) fn asks(head: &Head, query: Option<&[u8]>) -> Option<Option<Vec<u8>>> {
    if is_message(head.known(Known::ContentType)) {
        return Some(None);
    }
    let parameters = query?.split(|b| *b == b'&');
    let value = parameters.filter_map(|p| p.strip_prefix(b"dns=")).next()?;
    let plain: Vec<u8> = (value.iter())
        .map(|b| match b {
            b'-' => b'+',
            b'_' => b'/',
            other => *other,
        })
        .collect();
    let mut message = Vec::new();
    crate::base64::decode_until_invalid(&plain, &mut message);
    // Others have a parameter of that name as well.
    let declared = is_message(head.known(Known::Accept));
    (declared || dns::is_query(&message)).then_some(Some(message))
}

/// More of a message.
pub(super) fn more(d: Direction, message: &mut Vec<u8>, bytes: &[u8], t: &mut Transaction) {
    let (taken, left) = split_most(bytes, MOST.saturating_sub(message.len()));
    message.extend_from_slice(taken);
    if !left.is_empty() {
        too_long(d, t);
    }
}

fn too_long(d: Direction, t: &mut Transaction) {
    t.event(match d {
        ToServer => "dns_request_too_long",
        Direction::ToClient => "dns_response_too_long",
    });
}

/// A message is there.
pub(super) fn message(d: Direction, message: &[u8], whole: bool, t: &mut Transaction, w: &Asked) {
    if message.len() > MOST {
        return too_long(d, t);
    }
    if !message.is_empty() && !dns::carried(message, d, w, t) && whole {
        t.event("dns_message_invalid");
    }
}
