//! Protocols that are recognized and have no parser: rules with them inspect the stream. A row moves next to its parser when there is one.

use super::names::App;
use super::probe::{Certainty, First, Look, StreamProbe};
use super::protocol::Protocol;

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
