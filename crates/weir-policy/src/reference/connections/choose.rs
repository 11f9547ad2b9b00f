//! What is chosen for a flow when it is opened: docs/semantics.md section 7, "Choosing".

use std::sync::Arc;

use weir_packet::parse::protocol;

use super::Tuple;
use crate::model::{Ranges, Rule, Target};

/// Tuples that are tried before a pool is busy.
const TRIES: u32 = 32;

/// Number of the first draw.
const FIRST_DRAW: u32 = 1 << 31;

/// Number of the draw of the source port of try 0; those of others follow.
const PORT_DRAW: u32 = FIRST_DRAW + (1 << 16);

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

impl Drawn {
    /// The element chosen at the first try, or `further` behind it.
    fn element(&self, further: u32) -> u128 {
        let size = self.pool.size();
        let index = (u128::from(self.draw) % size + u128::from(further)) % size;
        self.pool.nth(index).unwrap_or_default()
    }

    fn varies(&self) -> bool {
        self.pool.size() > 1
    }
}

/// The field of the tuple that further tries take from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Vary {
    SourcePort,
    Source,
    DestinationPort,
    Destination,
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
            Some(pool) => Change::Set(Drawn { pool, draw }.element(0) as u32),
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

    /// The translated tuples to try, in order.
    pub(super) fn tuples<'a>(
        &'a self,
        orig: Tuple,
        draw: &'a dyn Fn(u32) -> u32,
    ) -> impl Iterator<Item = Tuple> + 'a {
        (0..TRIES).map_while(move |t| self.tuple(orig, t, draw))
    }

    /// The tuple of try `t`; `None` if there are no more tries.
    fn tuple(&self, orig: Tuple, t: u32, draw: &dyn Fn(u32) -> u32) -> Option<Tuple> {
        let fields = [
            (Vary::SourcePort, &self.source_port),
            (Vary::Source, &self.source),
            (Vary::DestinationPort, &self.destination_port),
            (Vary::Destination, &self.destination),
        ];
        let vary = fields
            .into_iter()
            .find_map(|(vary, drawn)| drawn.as_ref().filter(|d| d.varies()).map(|d| (vary, d)));
        let size = vary.map_or(1, |(_, drawn)| drawn.pool.size());
        if u128::from(t) < size {
            let further = |field: Vary| match vary {
                Some((vary, _)) if vary == field => t,
                _ => 0,
            };
            return Some(self.translated(orig, further));
        }
        if self.source_port.is_some() {
            return None;
        }
        let number = draw(PORT_DRAW + t);
        let source_port = match orig.protocol {
            protocol::ICMP | protocol::ICMP6 => (number & 0xffff) as u16,
            _ => (1024 + number % 64_512) as u16,
        };
        Some(Tuple {
            source_port,
            ..self.translated(orig, |_| 0)
        })
    }

    fn translated(&self, orig: Tuple, further: impl Fn(Vary) -> u32) -> Tuple {
        let value = |drawn: &Option<Drawn>, field: Vary, old: u128| {
            drawn
                .as_ref()
                .map_or(old, |drawn| drawn.element(further(field)))
        };
        Tuple {
            source: value(&self.source, Vary::Source, orig.source),
            destination: value(&self.destination, Vary::Destination, orig.destination),
            source_port: value(
                &self.source_port,
                Vary::SourcePort,
                u128::from(orig.source_port),
            ) as u16,
            destination_port: value(
                &self.destination_port,
                Vary::DestinationPort,
                u128::from(orig.destination_port),
            ) as u16,
            ..orig
        }
    }
}
