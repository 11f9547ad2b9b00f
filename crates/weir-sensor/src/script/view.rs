//! What a script may see while it is called: of the packet, the flow, the transaction, the rule that is decided.
//!
//! In rules all of it is borrowed from what is inspected. Outputs run where logs are written, later and elsewhere: there it is owned, which the same types say with `'static`.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use crate::app::Transaction;
use crate::packet::{Direction, Packet, Transport};

/// What a script may see.
#[derive(Debug, Default)]
pub struct View<'a> {
    /// The packet; of what a flow says when it is over, one without payload.
    pub packet: Option<PacketView<'a>>,
    /// The flow.
    pub flow: Option<FlowFacts>,
    /// The transaction.
    pub transaction: Option<Cow<'a, Transaction>>,
    /// The rule.
    pub rule: Option<RuleView<'a>>,
    /// A file of the transaction.
    pub file: Option<FileView>,
    /// Values of the call's table: `packet`, `payload`, `stream`, `buffer`.
    pub arguments: Vec<(&'static str, Cow<'a, [u8]>)>,
    /// Counters, of an output of counters.
    pub counters: Vec<(String, u64)>,
    /// A part of a stream, of an output of streams.
    pub streamed: Option<Streamed>,
    /// What rules keep in the flow.
    pub variables: Option<Variables<'a>>,
    /// Numbers that the rule has extracted.
    pub numbers: &'a [(Arc<str>, i64)],
}

/// A part of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Streamed {
    /// Which way it goes.
    pub direction: Direction,
    /// Nothing came before it.
    pub opens: bool,
    /// Nothing comes after it.
    pub closes: bool,
}

/// What rules keep in a flow.
#[derive(Debug)]
pub struct Variables<'a> {
    /// Captures and variables, by name.
    pub strings: &'a mut Vec<(Arc<str>, Vec<u8>)>,
    /// Counters, by their place in `names`.
    pub counters: &'a mut Vec<(u16, u32)>,
    /// Names of counters.
    pub names: &'a [String],
}

/// A packet.
#[derive(Clone, Debug)]
pub struct PacketView<'a> {
    /// Nanoseconds since 1970.
    pub time: u64,
    /// Number of the frame.
    pub number: u64,
    /// Sender and receiver.
    pub addresses: Option<(IpAddr, IpAddr)>,
    /// IANA number of the transport.
    pub protocol: u8,
    /// Ports, of protocols that have some.
    pub ports: Option<(u16, u16)>,
    /// Type and code of ICMP.
    pub icmp: Option<(u8, u8)>,
    /// What it carries.
    pub payload: Cow<'a, [u8]>,
    /// All of it.
    pub data: Cow<'a, [u8]>,
}

impl<'a> PacketView<'a> {
    /// Of a decoded packet.
    pub fn of(packet: &'a Packet<'_>) -> PacketView<'a> {
        let ported = matches!(
            packet.transport,
            Transport::Tcp(_) | Transport::Udp { .. } | Transport::Sctp { .. }
        );
        PacketView {
            time: packet.time,
            number: packet.number,
            addresses: packet.ip.as_ref().map(|ip| (ip.source, ip.destination)),
            protocol: packet.ip.as_ref().map_or(0, |ip| ip.protocol),
            ports: ported.then(|| packet.ports()),
            icmp: match packet.transport {
                Transport::Icmp { kind, code, .. } => Some((kind, code)),
                _ => None,
            },
            payload: Cow::Borrowed(packet.payload()),
            data: Cow::Borrowed(packet.data),
        }
    }

    /// One without bytes: of the end of a flow.
    pub fn bare(time: u64, number: u64, flow: &FlowFacts) -> PacketView<'static> {
        PacketView {
            time,
            number,
            addresses: Some((flow.client.0, flow.server.0)),
            protocol: flow.protocol,
            ports: matches!(flow.protocol, 6 | 17 | 132).then_some((flow.client.1, flow.server.1)),
            icmp: None,
            payload: Cow::Borrowed(&[]),
            data: Cow::Borrowed(&[]),
        }
    }

    /// The same, of memory of its own.
    pub fn owned(self) -> PacketView<'static> {
        PacketView {
            payload: Cow::Owned(self.payload.into_owned()),
            data: Cow::Owned(self.data.into_owned()),
            ..self
        }
    }
}

/// A flow.
#[derive(Clone, Debug)]
pub struct FlowFacts {
    /// Its number in records.
    pub id: u64,
    /// Who opened it.
    pub client: (IpAddr, u16),
    /// The other end.
    pub server: (IpAddr, u16),
    /// IANA number of the transport.
    pub protocol: u8,
    /// Times of the first packet and the last one until now, nanoseconds.
    pub times: [u64; 2],
    /// Packets by direction.
    pub packets: [u64; 2],
    /// Their bytes.
    pub bytes: [u64; 2],
    /// A rule has alerted on it.
    pub alerted: bool,
    /// Names of its protocol, of what each direction looks like, and of the one before a change.
    pub apps: [&'static str; 4],
}

/// A rule.
#[derive(Clone, Debug)]
pub struct RuleView<'a> {
    /// Signature number.
    pub sid: u32,
    /// Generator.
    pub gid: u32,
    /// Revision.
    pub rev: u32,
    /// What it does.
    pub action: &'static str,
    /// Its message.
    pub message: Cow<'a, str>,
    /// Description of its class.
    pub class: Cow<'a, str>,
    /// Its priority.
    pub priority: u8,
}

/// A file that was transferred.
#[derive(Clone, Debug, Default)]
pub struct FileView {
    /// Which file of its transaction it is.
    pub id: u64,
    /// Number of the transaction.
    pub transaction: u64,
    /// Its name.
    pub name: Vec<u8>,
    /// Its size.
    pub size: u64,
    /// What it is, by its content.
    pub magic: Option<String>,
    /// Names of sums, and the sums in hexadecimal.
    pub sums: Vec<(&'static str, String)>,
    /// `CLOSED` or `TRUNCATED`.
    pub state: &'static str,
    /// It is written out.
    pub stored: bool,
}
