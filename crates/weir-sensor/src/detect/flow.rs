//! What detection needs to know of a flow, and what it remembers of one. The flow table owns both; detection only ever sees them through these two types.

use std::net::IpAddr;
use std::sync::Arc;

use crate::app::App;
use crate::packet::Direction;
use crate::rules::{Capture, Kept};
use crate::script::FlowFacts;

use super::plan::Plan;

/// A flow as it stands at one packet, that packet included.
#[derive(Clone, Debug)]
pub struct FlowView {
    /// Its identity in logs: a function of its packets, unique among the flows of a run.
    pub id: u64,
    /// Who opened it.
    pub client: IpAddr,
    /// Port of the client; 0 where there are none.
    pub client_port: u16,
    /// The other end.
    pub server: IpAddr,
    /// Port of the server.
    pub server_port: u16,
    /// IANA number of the transport.
    pub protocol: u8,
    /// TCP: the handshake is over and no reset came. Others: both ends have sent.
    pub established: bool,
    /// Protocol of the application, `Unknown` until it is recognized.
    pub app: App,
    /// What the bytes of each direction alone look like.
    pub sides: [App; 2],
    /// Its protocol before a change.
    pub before: Option<App>,
    /// Its payload is encrypted and not inspected.
    pub opaque: bool,
    /// Packets by direction.
    pub packets: [u64; 2],
    /// Bytes of those packets, from their IP headers on.
    pub bytes: [u64; 2],
    /// Bytes of TCP payload that were sequenced, by direction.
    pub stream: [u64; 2],
    /// Time of the first packet, nanoseconds.
    pub start: u64,
    /// A rule has alerted on it.
    pub alerted: bool,
}

impl FlowView {
    /// What scripts see of it.
    pub(super) fn facts(&self, time: u64) -> FlowFacts {
        let [to_server, to_client] = self.sides.map(App::name);
        FlowFacts {
            id: self.id,
            client: (self.client, self.client_port),
            server: (self.server, self.server_port),
            protocol: self.protocol,
            times: [self.start, time],
            packets: self.packets,
            bytes: self.bytes,
            alerted: self.alerted,
            apps: [
                self.app.name(),
                to_server,
                to_client,
                self.before.map_or("unknown", App::name),
            ],
        }
    }

    /// Sender and receiver of a direction.
    pub fn ends(&self, direction: Direction) -> ((IpAddr, u16), (IpAddr, u16)) {
        let client = (self.client, self.client_port);
        let server = (self.server, self.server_port);
        match direction {
            Direction::ToServer => (client, server),
            Direction::ToClient => (server, client),
        }
    }
}

/// A name and what was captured under it.
pub(crate) type Captured = (Arc<str>, Vec<u8>);

/// What rules have captured in a flow, by name, and what they keep out of the log.
#[derive(Clone, Debug, Default)]
pub(crate) struct Said {
    /// For the flow.
    pub(crate) flow: Vec<Captured>,
    /// For the records of one packet, with its number.
    pub(crate) packet: (u64, Vec<Captured>),
    /// For alerts of a packet, by the rule's number; `true`: it is JSON.
    pub(crate) alerts: (u64, Vec<(u32, Captured, bool)>),
    /// Transactions.
    pub(crate) unlogged: Vec<u64>,
}

impl Said {
    /// Takes over what a rule has captured when it held for a packet.
    pub(super) fn keep(&mut self, captured: Vec<(Capture, Vec<u8>)>, rule: u32, packet: u64) {
        fn put(list: &mut Vec<Captured>, name: Arc<str>, value: Vec<u8>) {
            match list.iter_mut().find(|(n, _)| *n == name) {
                Some(known) => known.1 = value,
                None => list.push((name, value)),
            }
        }
        for (capture, value) in captured {
            match capture.keep {
                Kept::Flow => put(&mut self.flow, capture.name, value),
                Kept::Packet => {
                    if self.packet.0 != packet {
                        self.packet = (packet, Vec::new());
                    }
                    put(&mut self.packet.1, capture.name, value);
                }
                Kept::Alert | Kept::Json => {
                    if self.alerts.0 != packet {
                        self.alerts = (packet, Vec::new());
                    }
                    let list = &mut self.alerts.1;
                    list.retain(|(r, (name, _), _)| *r != rule || *name != capture.name);
                    let json = capture.keep == Kept::Json;
                    list.push((rule, (capture.name, value), json));
                }
            }
        }
    }

    fn memory(&self) -> usize {
        let values =
            |list: &[Captured]| -> usize { list.iter().map(|(_, v)| v.capacity() + 40).sum() };
        let alerts: usize = self.alerts.1.iter().map(|a| a.1.1.capacity() + 48).sum();
        size_of::<Said>()
            + values(&self.flow)
            + values(&self.packet.1)
            + alerts
            + self.unlogged.capacity() * 8
    }
}

/// What detection remembers of a flow. Empty (no allocation) until a rule gives it something to remember.
#[derive(Clone, Debug, Default)]
pub struct FlowState {
    /// A `pass` rule took the flow out of inspection.
    pub(crate) passed: bool,
    /// A rule with `bypass` let the flow go.
    pub(crate) bypassed: bool,
    /// Whether rules that are only about addresses were decided, by direction.
    pub(crate) addresses_done: [bool; 2],
    /// The application's protocol for which rules that are only about it were decided, by direction: a flow may change its own.
    pub(crate) app_done: [App; 2],
    /// `flowbits` that are set, a bit for each name.
    pub(crate) bits: Vec<u64>,
    /// Bits that are set of transactions, with their identity: `MOST_LIVE` at most, the oldest goes.
    pub(crate) transaction_bits: Vec<(u64, u32)>,
    /// `flowint` counters that exist.
    pub(crate) counters: Vec<(u16, u32)>,
    /// Rules whose stream (or payload) part held while they wait for a transaction.
    pub(crate) held: Vec<(u32, Direction)>,
    /// Stream rules whose prefilter pattern was seen at this offset of a direction while the rest of the rule did not hold yet.
    pub(crate) pending: [Vec<(u32, u64)>; 2],
    /// How far each direction's stream was inspected.
    pub(crate) inspected: [u64; 2],
    /// Rules that alerted on a packet of a stream not yet inspected, and the offset up to which they did.
    pub(crate) fired: Vec<(u32, Direction, u64)>,
    /// What rules have captured, and which transactions are not to be logged.
    pub(crate) said: Option<Box<Said>>,
    /// What is worth asking of its packets, by direction, as they were last.
    pub(crate) plans: [Option<Arc<Plan>>; 2],
}

impl FlowState {
    /// Whether a rule has set a bit or a counter in it.
    pub(crate) fn is_marked(&self) -> bool {
        !self.bits.is_empty() || !self.counters.is_empty() || self.said.is_some()
    }

    /// Whether a `pass` rule took the flow out of inspection: nothing of it need be given to detection any more.
    pub fn is_passed(&self) -> bool {
        self.passed
    }

    /// Whether a rule let the flow go: nothing more of it is looked at.
    pub(crate) fn is_bypassed(&self) -> bool {
        self.bypassed
    }

    /// Bytes it holds outside of itself.
    pub fn memory(&self) -> usize {
        self.bits.capacity() * 8
            + self.counters.capacity() * 8
            + self.transaction_bits.capacity() * 16
            + self.held.capacity() * 8
            + (self.pending[0].capacity() + self.pending[1].capacity()) * 16
            + self.fired.capacity() * 16
            + self.said.as_ref().map_or(0, |s| s.memory())
    }
}
