//! TFTP: the request that opens a transfer.

use super::names::App;
use super::probe::First;
use super::protocol::{Carrier, Log, Parser, Protocol};
use super::text::text;
use super::transaction::{Kind, Transactions, Turns};
use super::wanted::Wanted;
use crate::buffer::Buffer;
use crate::packet::Direction;

pub(super) const TFTP: Protocol = Protocol {
    app: App::Tftp,
    carrier: Carrier::Udp,
    datagram: Some(is_request),
    parser: Some(|start| Box::new(Tftp::new(start.asked))),
    kind: Some(&KIND),
    log: Log {
        numbered: false,
        direction: |_, packet| packet,
        ..Protocol::NONE.log
    },
    ..Protocol::NONE
};

static KIND: Kind = Kind {
    app: App::Tftp,
    turns: Turns::Message,
    ..Kind::EXCHANGE
};

fn is_request(first: &First<'_>) -> bool {
    let [0, 1 | 2, rest @ ..] = first.bytes else {
        return false;
    };
    let mut words = rest.split(|b| *b == 0);
    let name = words.next().unwrap_or_default();
    let mode = words.next().unwrap_or_default().to_ascii_lowercase();
    let known = matches!(mode.as_slice(), b"netascii" | b"octet" | b"mail");
    !first.is_server() && !name.is_empty() && known
}

pub(super) struct Tftp {
    wanted: Wanted,
    asked: bool,
}

impl Tftp {
    pub(super) fn new(wanted: &Wanted) -> Tftp {
        Tftp {
            wanted: *wanted,
            asked: false,
        }
    }
}

impl Parser for Tftp {
    fn data(&mut self, d: Direction, bytes: &[u8], time: u64, out: &mut Transactions) {
        if self.asked {
            return;
        }
        self.asked = true;
        let t = out.begin(&KIND, time);
        t.only(d);
        let mut words = bytes.get(2..).unwrap_or_default().split(|b| *b == 0);
        let (name, mode) = (words.next().unwrap_or_default(), words.next());
        if self.wanted.buffers.has(Buffer::FileName) {
            t.push(Buffer::FileName, d, name);
        }
        if self.wanted.records {
            let packet = match bytes {
                [0, 1, ..] => "read",
                [0, 2, ..] => "write",
                _ => "unknown",
            };
            t.record.insert("packet".into(), packet.into());
            t.record.insert("file".into(), text(name));
            if let Some(mode) = mode {
                // Its letters may be of either case.
                let mode = mode.to_ascii_lowercase();
                t.record.insert("mode".into(), text(&mode));
            }
        }
        t.finish();
    }

    fn gap(&mut self, _: Direction, _: u64, _: &mut Transactions) {}

    fn end(&mut self, _: Direction, _: &mut Transactions) {}

    fn memory(&self) -> usize {
        size_of::<Tftp>()
    }
}
