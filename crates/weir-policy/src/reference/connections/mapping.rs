//! Mappings that do not depend on who is sent to: docs/semantics.md section 7, "Mappings".
//!
//! Owns which address and port outside stands for one inside, and who may send there. Nothing is swept, as in the table of flows.

use std::collections::HashMap;

use weir_packet::parse::protocol;

use super::tuple::Tuple;
use crate::model::Filtering;

/// An address and port of a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Endpoint {
    family: u8,
    protocol: u8,
    pub(super) address: u128,
    pub(super) port: u16,
}

/// A mapping's number, never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MappingId(u64);

/// What a host's endpoint is outside.
#[derive(Clone, Debug)]
pub(super) struct Mapping {
    id: MappingId,
    pub(super) outer: Endpoint,
    /// Indices of the rules of the flow that opened it.
    pub(super) rules: Vec<usize>,
    filtering: Filtering,
    last_ns: u64,
    /// Addresses that were sent to, and when last.
    permitted: HashMap<u128, (MappingId, u64)>,
}

/// What a flow keeps alive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    inner: Endpoint,
    mapping: MappingId,
    /// The address that may send to the mapping because of the flow.
    permission: Option<(u128, MappingId)>,
    /// Whether the host inside opened the flow.
    pub(super) by_host: bool,
}

/// A mapping that a packet from outside is for.
#[derive(Clone, Debug)]
pub(in crate::reference) struct Inbound {
    pub(super) inner: Endpoint,
    pub(in crate::reference) rules: Vec<usize>,
    pub(super) kept: Kept,
    /// Whether the filtering lets the packet in.
    pub(in crate::reference) may_enter: bool,
}

/// All mappings, by the endpoint inside.
#[derive(Clone, Debug, Default)]
pub(super) struct Mappings {
    by_inner: HashMap<Endpoint, Mapping>,
    opened: u64,
}

/// The time, and how long a mapping lives without packets of its host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    pub(super) ns: u64,
    pub(super) timeout_ns: u64,
}

impl Clock {
    pub(super) fn is_over(self, last_ns: u64) -> bool {
        self.ns.saturating_sub(last_ns) > self.timeout_ns
    }
}

impl Endpoint {
    /// That of the source.
    pub(super) fn source(tuple: &Tuple) -> Endpoint {
        Endpoint {
            family: tuple.family,
            protocol: tuple.protocol,
            address: tuple.source,
            port: tuple.source_port,
        }
    }

    /// That of the destination.
    pub(super) fn destination(tuple: &Tuple) -> Endpoint {
        Endpoint::source(&tuple.reversed())
    }
}

impl Mappings {
    /// The live mapping of an endpoint inside.
    fn of(&self, inner: Endpoint, clock: Clock) -> Option<&Mapping> {
        let mapping = self.by_inner.get(&inner)?;
        (!clock.is_over(mapping.last_ns)).then_some(mapping)
    }

    /// The live mapping that translates to an endpoint outside, and its endpoint inside.
    fn to(&self, outer: Endpoint, clock: Clock) -> Option<(Endpoint, &Mapping)> {
        let live = (self.by_inner.iter()).find(|(inner, mapping)| {
            mapping.outer == outer && **inner != outer && !clock.is_over(mapping.last_ns)
        });
        live.map(|(inner, mapping)| (*inner, mapping))
    }

    /// Whether an endpoint is one end of a live mapping.
    pub(super) fn is_taken(&self, end: Endpoint, clock: Clock) -> bool {
        self.of(end, clock).is_some() || self.to(end, clock).is_some()
    }

    /// The mapping whose endpoint outside is a packet's destination.
    pub(super) fn inbound(&self, tuple: &Tuple, clock: Clock) -> Option<Inbound> {
        if !has_mappings(tuple) {
            return None;
        }
        let (inner, mapping) = self.to(Endpoint::destination(tuple), clock)?;
        let own = self.of(Endpoint::source(tuple), clock);
        let sender = own.map_or(tuple.source, |own| own.outer.address);
        let may_enter = match mapping.filtering {
            Filtering::EndpointIndependent => true,
            Filtering::AddressDependent => (mapping.permitted.get(&sender))
                .is_some_and(|&(_, last_ns)| !clock.is_over(last_ns)),
            Filtering::AddressAndPortDependent => false,
        };
        Some(Inbound {
            inner,
            may_enter,
            rules: mapping.rules.clone(),
            kept: Kept {
                inner,
                mapping: mapping.id,
                permission: None,
                by_host: false,
            },
        })
    }

    /// The endpoint outside of an endpoint that sends, if it has one already.
    pub(super) fn outer(&self, inner: Endpoint, clock: Clock) -> Option<Endpoint> {
        self.of(inner, clock).map(|mapping| mapping.outer)
    }

    /// Whether an endpoint is that of another host's mapping outside.
    pub(super) fn is_outer(&self, end: Endpoint, clock: Clock) -> bool {
        self.to(end, clock).is_some()
    }

    /// Opens a mapping.
    pub(super) fn open(
        &mut self,
        inner: Endpoint,
        outer: Endpoint,
        rules: &[usize],
        filtering: Filtering,
        now_ns: u64,
    ) {
        let mapping = Mapping {
            id: self.next_id(),
            outer,
            rules: rules.to_vec(),
            filtering,
            last_ns: now_ns,
            permitted: HashMap::new(),
        };
        self.by_inner.insert(inner, mapping);
    }

    /// The host at this endpoint opens a flow to an address.
    pub(super) fn send(
        &mut self,
        inner: Endpoint,
        to: u128,
        filtering: Filtering,
        clock: Clock,
    ) -> Option<Kept> {
        let next = self.next_id();
        let mapping = self.by_inner.get_mut(&inner)?;
        mapping.last_ns = mapping.last_ns.max(clock.ns);
        let permission = (filtering == Filtering::AddressDependent).then(|| {
            let entry = mapping.permitted.entry(to).or_insert((next, clock.ns));
            if clock.is_over(entry.1) {
                *entry = (next, clock.ns);
            }
            entry.1 = entry.1.max(clock.ns);
            (to, entry.0)
        });
        Some(Kept {
            inner,
            mapping: mapping.id,
            permission,
            by_host: true,
        })
    }

    /// A packet of the host inside passes in a flow.
    pub(super) fn keep(&mut self, kept: &Kept, clock: Clock) {
        let Some(mapping) = self.by_inner.get_mut(&kept.inner) else {
            return;
        };
        if mapping.id == kept.mapping && !clock.is_over(mapping.last_ns) {
            mapping.last_ns = mapping.last_ns.max(clock.ns);
        }
        if let Some((address, id)) = kept.permission
            && let Some(entry) = mapping.permitted.get_mut(&address)
            && entry.0 == id
            && !clock.is_over(entry.1)
        {
            entry.1 = entry.1.max(clock.ns);
        }
    }

    fn next_id(&mut self) -> MappingId {
        self.opened += 1;
        MappingId(self.opened)
    }
}

/// Whether the protocol has mappings.
pub(super) fn has_mappings(tuple: &Tuple) -> bool {
    matches!(tuple.protocol, protocol::TCP | protocol::UDP)
}
