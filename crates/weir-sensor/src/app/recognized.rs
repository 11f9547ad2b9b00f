//! Protocols that are recognized and have no parser: rules with them inspect the stream. A row moves next to its parser when there is one.

use super::bytes::be32;
use super::names::App;
use super::probe::{Certainty, First, Look, StreamProbe};
use super::protocol::{Carrier, Protocol};

/// A probe by the first byte: what begins with it is of this protocol or of none.
const fn claiming(
    look: fn(&First<'_>) -> Look,
    claims: fn(&First<'_>) -> bool,
) -> Option<StreamProbe> {
    Some(StreamProbe {
        certainty: Certainty::Form,
        look,
        claims,
    })
}

fn when(yes: bool) -> Look {
    if yes { Look::Yes } else { Look::No }
}

/// Telnet negotiates.
pub(super) const TELNET: Protocol = Protocol {
    app: App::Telnet,
    stream: claiming(
        |first| match first.bytes {
            [0xff, 0xfb..=0xfe, option, ..] => when(*option < 50),
            [0xff] | [0xff, _] => Look::Maybe,
            _ => Look::No,
        },
        |first| first.at(0) == Some(0xff),
    ),
    ..Protocol::NONE
};

/// RDP: TPKT, then a connection request or confirm of X.224.
pub(super) const RDP: Protocol = Protocol {
    app: App::Rdp,
    stream: claiming(
        |first| match first.at(5) {
            _ if !is_tpkt(first) => Look::No,
            Some(code) => when(code == if first.is_server() { 0xd0 } else { 0xe0 }),
            None => Look::Maybe,
        },
        is_tpkt,
    ),
    ..Protocol::NONE
};

fn is_tpkt(first: &First<'_>) -> bool {
    first.at(0) == Some(3) && first.at(1).is_none_or(|b| b == 0)
}

/// Kerberos: a tag of ASN.1, on its own port.
pub(super) const KRB5: Protocol = Protocol {
    app: App::Krb5,
    services: &["kerberos"],
    carrier: Carrier::Both,
    stream: claiming(
        // A length comes before.
        |first| match (first.ports.server, first.at(4)) {
            (88, Some(tag)) => when(matches!(tag, 0x6a..=0x7e)),
            _ => Look::No,
        },
        |first| first.ports.server == 88 && first.at(4).is_some(),
    ),
    datagram: Some(|first| first.has_port(88) && matches!(first.at(0), Some(0x6a..=0x7e))),
    ..Protocol::NONE
};

/// NFS: a call of its program.
pub(super) const NFS: Protocol = Protocol {
    app: App::Nfs,
    carrier: Carrier::Both,
    stream: claiming(
        // A record mark comes before.
        |first| match be32(first.bytes, 16) {
            _ if !is_marked(first) => Look::No,
            Some(_) => when(is_call(first.bytes, 8)),
            None => Look::Maybe,
        },
        is_marked,
    ),
    datagram: Some(|first| !first.is_server() && is_call(first.bytes, 4)),
    files: true,
    ..Protocol::NONE
};

fn is_marked(first: &First<'_>) -> bool {
    first.at(0).is_some_and(|b| b & 0x80 != 0) && !first.is_server()
}

fn is_call(bytes: &[u8], at: usize) -> bool {
    be32(bytes, at) == Some(0)
        && be32(bytes, at + 4) == Some(2)
        && be32(bytes, at + 8) == Some(100_003)
}

/// Without its ports IKE is too alike to chance.
pub(super) const IKE: Protocol = Protocol {
    app: App::Ike,
    aliases: &["ikev2"],
    carrier: Carrier::Udp,
    datagram: Some(|first| {
        let b = first.bytes;
        let ike = b.strip_prefix(&[0; 4]).unwrap_or(b);
        (first.has_port(500) || first.has_port(4500))
            && b.len() >= 28
            && matches!(ike.get(17), Some(0x10 | 0x20))
            && be32(ike, 24).is_some_and(|n| n as usize == ike.len())
    }),
    ..Protocol::NONE
};

/// WebSocket is what HTTP/1 changes to.
pub(super) const WEBSOCKET: Protocol = Protocol {
    app: App::Websocket,
    ..Protocol::NONE
};
