//! What is chosen for a flow when it is opened: docs/semantics.md section 7, "Choosing".

use std::sync::Arc;

use weir_packet::parse::protocol;

use super::Tuple;
use crate::model::{Ranges, Rule, Target};
use crate::reference::draw::splitmix64;

/// Tuples that are tried before a pool is busy.
const TRIES: u32 = 32;

/// Number of the first draw.
const FIRST_DRAW: u32 = 1 << 31;

/// Tries that take the next element of every pool; later ones take any.
const TRIES_NEXT: u32 = 16;

/// Tries, at most, that leave a source port alone which no rule maps.
const TRIES_KEEP_PORT: u128 = 8;

/// Number of the draws of try 0; each try has eight numbers.
const TRY_DRAW: u32 = FIRST_DRAW + (1 << 16);

/// What is chosen besides the tuple.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::reference) struct Chosen {
    /// Added to the sequence numbers of the forward side.
    pub(in crate::reference) sequence: u32,
    /// Added to the sequence numbers of the reverse side.
    pub(in crate::reference) acknowledgement: u32,
    /// Of the IPv4 identification.
    pub(in crate::reference) identification: Option<Change>,
    /// Of the IPv6 flow label.
    pub(in crate::reference) label: Option<Change>,
}

/// What happens to a field of all packets of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::reference) enum Change {
    /// It becomes this.
    Set(u32),
    /// This is added to it.
    Move(u32),
}

/// Everything drawn for a flow.
#[derive(Debug, Default)]
pub(super) struct Choice {
    pub(super) chosen: Chosen,
    source: Option<Drawn>,
    destination: Option<Drawn>,
    source_port: Option<Drawn>,
    destination_port: Option<Drawn>,
}

/// A field of the tuple that is mapped.
#[derive(Debug)]
struct Drawn {
    pool: Arc<Ranges>,
    draw: u32,
}

/// What stands in for the draw of a source address: the same for all connections of a host.
fn paired(source: u128) -> u32 {
    let high = splitmix64((source >> 64) as u64);
    (splitmix64(high.wrapping_add(source as u64)) >> 32) as u32
}

impl Drawn {
    /// Element number `index`, beginning anew behind the last.
    fn element(&self, index: u128) -> u128 {
        self.pool.nth(index % self.pool.size()).unwrap_or_default()
    }

    /// The element that try `t` takes; `draw` is its own number.
    fn tried(&self, t: u32, draw: u32) -> u128 {
        if t < TRIES_NEXT {
            self.element(u128::from(self.draw) % self.pool.size() + u128::from(t))
        } else {
            self.element(u128::from(draw))
        }
    }
}

/// A field of the tuple, as draws of tries are numbered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Source,
    Destination,
    SourcePort,
    DestinationPort,
}

impl Choice {
    /// Draws for the targets of a flow's rules. A later target for the same field replaces an earlier one.
    pub(super) fn of_rules<'r>(
        rules: impl Iterator<Item = &'r Rule>,
        draw: &dyn Fn(u32) -> u32,
    ) -> Choice {
        let mut choice = Choice::default();
        let targets = rules
            .flat_map(|rule| &rule.targets)
            .filter(|target| matches!(target, Target::Map { .. } | Target::Shuffle { .. }));
        for (k, target) in (FIRST_DRAW..).zip(targets) {
            choice.take(target, draw(k));
        }
        choice
    }

    fn take(&mut self, target: &Target, draw: u32) {
        let (field, pool) = match target {
            Target::Map { field, pool } => (*field, Some(Arc::clone(pool))),
            Target::Shuffle { field } => (*field, None),
            _ => return,
        };
        let mapped = |pool: Option<Arc<Ranges>>| {
            let pool = pool.unwrap_or_else(|| Arc::new(Ranges::new(vec![(49_152, 65_535)])));
            Drawn { pool, draw }
        };
        let changed = |pool: Option<Arc<Ranges>>, bits: u32| match pool {
            Some(pool) => Change::Set(Drawn { pool, draw }.tried(0, 0) as u32),
            None => Change::Move(draw & ((1 << bits) - 1)),
        };
        match field.info().name {
            "ip-saddr" | "ip6-saddr" => self.source = Some(mapped(pool)),
            "ip-daddr" | "ip6-daddr" => self.destination = Some(mapped(pool)),
            "tcp-sport" | "udp-sport" => self.source_port = Some(mapped(pool)),
            "tcp-dport" | "udp-dport" => self.destination_port = Some(mapped(pool)),
            "ip-id" => self.chosen.identification = Some(changed(pool, 16)),
            "ip6-flow-label" => self.chosen.label = Some(changed(pool, 20)),
            "tcp-seq-num" => self.chosen.sequence = draw,
            "tcp-ack-num" => self.chosen.acknowledgement = draw,
            _ => {}
        }
    }

    /// Whether an address or port of the destination is mapped.
    pub(super) fn maps_destination(&self) -> bool {
        self.destination.is_some() || self.destination_port.is_some()
    }

    /// The translated tuples to try, in order.
    pub(super) fn tuples<'a>(
        &'a self,
        orig: Tuple,
        draw: &'a dyn Fn(u32) -> u32,
    ) -> impl Iterator<Item = Tuple> + 'a {
        (0..TRIES).map_while(move |t| self.tuple(orig, t, draw))
    }

    /// The source address of try `t`: that of the host's other connections, and one of the others at last. A tuple whose port stays tries
    /// them at once.
    fn source(&self, orig: Tuple, t: u32, draw: u32) -> u128 {
        let Some(drawn) = &self.source else {
            return orig.source;
        };
        let pool = Arc::clone(&drawn.pool);
        let paired = Drawn {
            pool,
            draw: paired(orig.source),
        };
        if t < TRIES_NEXT && !orig.is_generic() {
            paired.tried(0, 0)
        } else {
            paired.tried(t, draw)
        }
    }

    /// The tuple of try `t`; `None` if there are no more tries.
    fn tuple(&self, orig: Tuple, t: u32, draw: &dyn Fn(u32) -> u32) -> Option<Tuple> {
        let size = |drawn: &Option<Drawn>| drawn.as_ref().map_or(1, |drawn| drawn.pool.size());
        let mapped = [&self.destination, &self.source_port, &self.destination_port];
        let largest = mapped.map(size).into_iter().max().unwrap_or(1);
        let is_fixed = self.source_port.is_some() || orig.is_generic();
        if t > 0 && largest == 1 && size(&self.source) == 1 && is_fixed {
            return None;
        }
        let own = |part: Part| draw(TRY_DRAW + 8 * t + part as u32);
        let value = |drawn: &Option<Drawn>, part: Part| {
            drawn.as_ref().map(|drawn| drawn.tried(t, own(part)))
        };
        let port = |drawn, part| value(drawn, part).map(|port| port as u16);
        let keeps_port = orig.is_generic() || u128::from(t) < largest.min(TRIES_KEEP_PORT);
        let source_port = match port(&self.source_port, Part::SourcePort) {
            Some(port) => port,
            None if keeps_port => orig.source_port,
            None => like_port(&orig, own(Part::SourcePort)),
        };
        Some(Tuple {
            source: self.source(orig, t, own(Part::Source)),
            destination: value(&self.destination, Part::Destination).unwrap_or(orig.destination),
            source_port,
            destination_port: port(&self.destination_port, Part::DestinationPort)
                .unwrap_or(orig.destination_port),
            ..orig
        })
    }
}

/// Another source port than the packet's, of the same range, and of UDP of the same parity (RFC 4787 REQ-3 and REQ-4); any ICMP identifier.
fn like_port(orig: &Tuple, draw: u32) -> u16 {
    let port = u32::from(orig.source_port);
    let odd = port & 1;
    let port = match (orig.protocol, port < 1024) {
        (protocol::ICMP | protocol::ICMP6, _) => draw & 0xffff,
        (protocol::UDP, true) => 2 + 2 * (draw % 511) - odd,
        (protocol::UDP, false) => 1024 + 2 * (draw % 32_256) + odd,
        (_, true) => 1 + draw % 1023,
        (_, false) => 1024 + draw % 64_512,
    };
    port as u16
}
