//! One match -> masked words of the flat key where it is exact, residual conditions where it is not.
//!
//! Required classes are exact bits of every rule, so a condition never asks whether its field is there: a rule whose
//! classes are missing is not a candidate. That is how "a value test on an absent field is false, negated or not" holds.

use std::collections::HashMap;
use std::sync::Arc;

use weir_bpf::abi::{
    self, Cond, EXT_HEADERS, Interval, SLOTS, VALUE_MAX, cond_op, feature, key, valid,
};
use weir_classify::{ExactKey, MaskedWord};
use weir_policy::dynamic::{Address, DynamicSet};
use weir_policy::field::{Field, Header, Kind};
use weir_policy::model::{Classes, Match, PortName, Ranges, Rule, Subject, Test};
use zerocopy::IntoBytes;

use super::PlanError;
use super::dynamic::SetPlan;
use crate::plan::Port;

/// Slot number of a kind that has none.
const NO_SLOT: u8 = 0xff;

/// What the rules of a policy share while they are lowered: slots, sets, conditions.
pub(super) struct Lowering<'a> {
    ports: &'a [Port],
    /// The program sees packets on their way out, too: `out` is known of those, and `in` not of this host's own.
    sees_egress: bool,
    conds: Vec<Cond>,
    intervals: Vec<Interval>,
    sets: HashMap<SetId, (u32, u32)>,
    /// Keeps shared sets alive while their addresses identify them.
    kept: Vec<Arc<Ranges>>,
    slot_of: [u8; 256],
    slots: u8,
    features: u32,
    /// Sets that packets fill.
    pub(super) filled: SetPlan,
}

/// Where the key has the number of the port that a packet came in or leaves by.
fn port_place(kind: Kind) -> FieldPosition {
    let at = match kind {
        Kind::OutPort => key::OUT,
        _ => key::IN,
    };
    FieldPosition {
        at,
        bit: 0,
        bits: 16,
    }
}

/// Address of a shared set: the same named set used by many rules is stored once.
type SetId = usize;

impl<'a> Lowering<'a> {
    pub(super) fn new(ports: &'a [Port], sees_egress: bool) -> Lowering<'a> {
        Lowering {
            ports,
            sees_egress,
            conds: Vec::new(),
            intervals: Vec::new(),
            sets: HashMap::new(),
            kept: Vec::new(),
            slot_of: [NO_SLOT; 256],
            slots: 0,
            features: 0,
            filled: SetPlan::default(),
        }
    }

    /// With sets that have their numbers already.
    pub(super) fn with_sets(mut self, sets: SetPlan) -> Lowering<'a> {
        self.filled = sets;
        self
    }

    /// For rules added to others: their options keep the slots they have.
    pub(super) fn continuing(mut self, slot_of: &[u8; 256]) -> Lowering<'a> {
        self.slot_of = *slot_of;
        self.slots = slot_of.iter().filter(|&&slot| slot != NO_SLOT).count() as u8;
        self
    }

    pub(super) fn conds(&self) -> &[Cond] {
        &self.conds
    }

    pub(super) fn intervals(&self) -> &[Interval] {
        &self.intervals
    }

    pub(super) fn slot_of(&self) -> &[u8; 256] {
        &self.slot_of
    }

    pub(super) fn features(&self) -> u32 {
        self.features | self.filled.features()
    }

    /// Where the intervals of a pool lie.
    pub(super) fn pool(&mut self, pool: &Ranges) -> u32 {
        let first = self.intervals.len() as u32;
        let intervals = pool.intervals().iter();
        self.intervals
            .extend(intervals.map(|&(lo, hi)| Interval::new(lo, hi)));
        first
    }

    /// Exact key of a rule, and first index and number of its residual conditions.
    pub(super) fn rule(&mut self, rule: &Rule) -> Result<(ExactKey, (u32, u32)), PlanError> {
        let first = self.conds.len();
        let mut exact = ExactKey::default();
        self.require_bits(&mut exact, rule.requires.0, rule.requires.0);
        for m in &rule.matches {
            self.one(&mut exact, m, rule)?;
        }
        Ok((exact, (first as u32, (self.conds.len() - first) as u32)))
    }

    fn one(&mut self, exact: &mut ExactKey, m: &Match, rule: &Rule) -> Result<(), PlanError> {
        let info = m.subject.field.info();
        self.features |= match (info.header, info.kind) {
            (Header::EtherAddr, _) => feature::MAC,
            (Header::Skb, _) => feature::META,
            (Header::Clock, _) => feature::CLOCK,
            (Header::Ports, _) => feature::PORTS,
            (_, Kind::L4Proto) => feature::L4PROTO,
            (_, Kind::CtState) => feature::CT,
            _ => 0,
        };
        match &m.test {
            Test::Always => {}
            Test::Present => self.presence(exact, m, rule)?,
            Test::Port(names) => match info.kind {
                Kind::OutPort if !self.sees_egress => {
                    return Err(PlanError::OutUnknown { at: rule.place() });
                }
                kind => {
                    let numbers = self.ports_named(names);
                    self.number(exact, port_place(kind), &Arc::new(numbers), m.negated);
                    if m.negated && self.sees_egress {
                        self.port_known(kind, true);
                    }
                }
            },
            Test::In(ranges) => match info.kind {
                Kind::NetProto => {
                    self.net_proto(exact, |version| ranges.contains(version) != m.negated)
                }
                Kind::TcpOption(_) => self.option_number(exact, m, ranges, rule)?,
                Kind::OutPort => return Err(PlanError::OutUnknown { at: rule.place() }),
                Kind::CtState => {
                    self.has_ct_state(true);
                    self.number(exact, place(m.subject.field), ranges, m.negated);
                }
                Kind::L4Proto => {
                    self.has_l4_proto(exact, true);
                    self.number(exact, place(m.subject.field), ranges, m.negated);
                }
                _ => self.number(exact, place(m.subject.field), ranges, m.negated),
            },
            Test::Masked { value, mask } => {
                self.masked_number(exact, place(m.subject.field), (*value, *mask), m.negated);
            }
            Test::Dynamic(set) => self.membership(exact, m, set, rule)?,
            Test::Bytes(bytes) => self.bytes(exact, &m.subject, bytes, m.negated, rule)?,
        }
        Ok(())
    }

    /// A bit of the key, which is looked up before rules are matched.
    fn membership(
        &mut self,
        exact: &mut ExactKey,
        m: &Match,
        set: &Arc<DynamicSet>,
        rule: &Rule,
    ) -> Result<(), PlanError> {
        // The language lets nothing else be tested.
        let Some(address) = Address::of(m.subject.field) else {
            self.constant(false);
            return Ok(());
        };
        let bit = self.filled.bit(set, address, rule)?;
        let (at, mask) = (key::SETS + bit / 8, 1u8 << (bit % 8));
        if !exact.require(&masked(&[(at, mask, if m.negated { 0 } else { mask })])) {
            let place = FieldPosition {
                at,
                bit: 7 - (bit % 8) as u16,
                bits: 1,
            };
            let number = u128::from(!m.negated);
            self.push_range(place, number, number, false);
        }
        Ok(())
    }

    fn presence(&mut self, exact: &mut ExactKey, m: &Match, rule: &Rule) -> Result<(), PlanError> {
        let info = m.subject.field.info();
        let there = !m.negated;
        match info.kind {
            Kind::OutPort if !self.sees_egress => {
                return Err(PlanError::OutUnknown { at: rule.place() });
            }
            kind @ (Kind::OutPort | Kind::InPort) if self.sees_egress => {
                self.port_known(kind, there);
            }
            Kind::OutPort => self.constant(!there),
            Kind::All | Kind::InPort => self.constant(there),
            Kind::NetProto => self.net_proto(exact, |_| there),
            Kind::L4Proto => self.has_l4_proto(exact, there),
            Kind::CtState => self.has_ct_state(there),
            Kind::Is(value) => {
                let ranges = Arc::new(Ranges::new(vec![(value.into(), value.into())]));
                self.number(exact, place(m.subject.field), &ranges, m.negated);
            }
            Kind::Exists => {
                let bit = match info.name {
                    "vlan" => Classes::VLAN.0,
                    "vlan2" => Classes::VLAN2.0,
                    "tcp" => Classes::TCP.0,
                    "udp" => Classes::UDP.0,
                    "icmp" => Classes::ICMP.0,
                    "icmp6" => Classes::ICMP6.0,
                    "frag" => valid::FRAG,
                    "frag-first" => valid::FRAG_FIRST,
                    _ => valid::FRAG_LATER,
                };
                self.require_bits(exact, bit, if there { bit } else { 0 });
            }
            Kind::TcpOption(_) => {
                self.features |= feature::TCPOPT;
                self.kind_present(exact, m.subject.option, valid::TCPOPT, key::TCPOPT, there);
            }
            Kind::Ip4Option(_) => {
                self.kind_present(exact, m.subject.option, valid::IP4OPT, key::IP4OPT, there)
            }
            Kind::ExtHeader(which) => {
                let bit = match which.and_then(|proto| EXT_HEADERS.iter().position(|&p| p == proto))
                {
                    Some(i) => valid::EH_FIRST << i,
                    None => valid::EH,
                };
                self.require_bits(exact, bit, if there { bit } else { 0 });
            }
            Kind::Number | Kind::Addr4 | Kind::Addr6 | Kind::Mac | Kind::Payload => {
                match class_bit(info.header) {
                    Some(bit) => self.require_bits(exact, bit, if there { bit } else { 0 }),
                    None => self.constant(there),
                }
            }
        }
        Ok(())
    }

    /// Presence of an option kind in a 256-bit map of the key; kinds 0 and 1 are no options.
    fn kind_present(
        &mut self,
        exact: &mut ExactKey,
        kind: Option<u8>,
        any: u64,
        map_at: usize,
        there: bool,
    ) {
        match kind {
            None => self.require_bits(exact, any, if there { any } else { 0 }),
            Some(0 | 1) => self.constant(!there),
            Some(kind) => {
                let bit = 1u8 << (kind & 7);
                let at = map_at + usize::from(kind >> 3);
                let bits = masked(&[(at, bit, if there { bit } else { 0 })]);
                let number = u128::from(there);
                if !exact.require(&bits) {
                    let place = FieldPosition {
                        at,
                        bit: 7 - u16::from(kind & 7),
                        bits: 1,
                    };
                    self.push_range(place, number, number, false);
                }
            }
        }
    }

    /// Bits of the valid word. They fit the key always: word 0 is in it from the start or is its first.
    fn require_bits(&mut self, exact: &mut ExactKey, mask: u64, value: u64) {
        if mask == 0 {
            return;
        }
        if !exact.require(&[MaskedWord {
            word: (key::VALID / 8) as u8,
            mask,
            value,
        }]) {
            // A contradiction (no packet is both), or the key is full: test byte by byte.
            for (i, (mask, value)) in mask
                .to_le_bytes()
                .into_iter()
                .zip(value.to_le_bytes())
                .enumerate()
            {
                for bit in (0..8).filter(|bit| mask & (1 << bit) != 0) {
                    let number = u128::from(value >> bit & 1);
                    self.push_range(
                        FieldPosition {
                            at: key::VALID + i,
                            bit: 7 - bit,
                            bits: 1,
                        },
                        number,
                        number,
                        false,
                    );
                }
            }
        }
    }

    /// The byte in front of the protocol is 1 in packets with an IP header.
    fn has_l4_proto(&mut self, exact: &mut ExactKey, there: bool) {
        let number = u8::from(there);
        if !exact.require(&masked(&[(key::L4PROTO, 1, number)])) {
            let place = FieldPosition {
                at: key::L4PROTO,
                bit: 7,
                bits: 1,
            };
            self.push_range(place, number.into(), number.into(), false);
        }
    }

    /// 0 is in the key of packets without a state.
    fn has_ct_state(&mut self, there: bool) {
        let place = FieldPosition {
            at: key::CT,
            bit: 8,
            bits: 8,
        };
        self.push_range(place, 0, 0, there);
    }

    fn net_proto(&mut self, exact: &mut ExactKey, holds: impl Fn(u128) -> bool) {
        match (holds(4), holds(6)) {
            (true, false) => self.require_bits(exact, Classes::IP4.0, Classes::IP4.0),
            (false, true) => self.require_bits(exact, Classes::IP6.0, Classes::IP6.0),
            // Either family, or (a negated presence test) neither. The value test `net-proto` in nothing never holds.
            (true, true) => self.push_range(
                FieldPosition {
                    at: key::VALID,
                    bit: 6,
                    bits: 2,
                },
                1,
                3,
                false,
            ),
            (false, false) => self.push_range(
                FieldPosition {
                    at: key::VALID,
                    bit: 6,
                    bits: 2,
                },
                0,
                0,
                false,
            ),
        }
    }

    /// A number in the key is in the set.
    fn number(
        &mut self,
        exact: &mut ExactKey,
        place: FieldPosition,
        ranges: &Arc<Ranges>,
        negated: bool,
    ) {
        match (ranges.intervals(), negated) {
            (&[(lo, hi)], false) => {
                let in_key = place
                    .prefix(lo, hi)
                    .is_some_and(|bits| exact.require(&bits));
                if !in_key {
                    self.push_range(place, lo, hi, false);
                }
            }
            (&[(lo, hi)], true) => self.push_range(place, lo, hi, true),
            ([], _) => self.constant(negated),
            (many, _) => {
                let set = self.set(ranges, many);
                let mut cond = place.cond(cond_op::SET, negated);
                (cond.set_first, cond.set_count) = set;
                self.conds.push(cond);
            }
        }
    }

    /// Bits of a number of 32 bits in the key.
    fn masked_number(
        &mut self,
        exact: &mut ExactKey,
        place: FieldPosition,
        (value, mask): (u32, u32),
        negated: bool,
    ) {
        let bytes = mask.to_be_bytes().into_iter().zip(value.to_be_bytes());
        let bytes: Vec<_> = (place.at..)
            .zip(bytes)
            .map(|(at, (mask, value))| (at, mask, value))
            .collect();
        if !negated && exact.require(&masked(&bytes)) {
            return;
        }
        let mut cond = place.cond(cond_op::RANGE, negated);
        cond.mask = mask.into();
        let range = Interval::new(value.into(), value.into());
        cond.u[..32].copy_from_slice(range.as_bytes());
        self.conds.push(cond);
    }

    fn set(&mut self, ranges: &Arc<Ranges>, intervals: &[(u128, u128)]) -> (u32, u32) {
        let id = Arc::as_ptr(ranges) as SetId;
        if let Some(&run) = self.sets.get(&id) {
            return run;
        }
        let run = (self.intervals.len() as u32, intervals.len() as u32);
        self.intervals
            .extend(intervals.iter().map(|&(lo, hi)| Interval::new(lo, hi)));
        self.sets.insert(id, run);
        self.kept.push(Arc::clone(ranges));
        run
    }

    fn push_range(&mut self, place: FieldPosition, lo: u128, hi: u128, negated: bool) {
        let mut cond = place.cond(cond_op::RANGE, negated);
        let range = Interval::new(lo, hi);
        cond.u[..32].copy_from_slice(range.as_bytes());
        self.conds.push(cond);
    }

    /// A match that does not depend on the packet: true needs nothing, false is a set without members.
    fn constant(&mut self, holds: bool) {
        if !holds {
            self.conds.push(
                FieldPosition {
                    at: key::VALID,
                    bit: 0,
                    bits: 8,
                }
                .cond(cond_op::SET, false),
            );
        }
    }

    /// Ports are numbered from 1; 0 is in the key where the packet has none.
    fn port_known(&mut self, kind: Kind, known: bool) {
        self.push_range(port_place(kind), 0, 0, known);
    }

    fn ports_named(&self, names: &[PortName]) -> Ranges {
        let named = |port: &&Port| {
            names.iter().any(|name| match name {
                PortName::Name(name) => port.name.as_ref() == Some(name),
                PortName::Index(index) => port.index == *index,
            })
        };
        Ranges::new(
            self.ports
                .iter()
                .filter(named)
                .map(|p| (p.number.into(), p.number.into()))
                .collect(),
        )
    }

    /// The slot of an option kind, and the requirement that it is present.
    fn slot(&mut self, exact: &mut ExactKey, kind: u8, rule: &Rule) -> Result<usize, PlanError> {
        if self.slot_of[usize::from(kind)] == NO_SLOT {
            if usize::from(self.slots) == SLOTS {
                return Err(PlanError::TooManyOptionKinds {
                    at: rule.place(),
                    max: SLOTS,
                });
            }
            self.slot_of[usize::from(kind)] = self.slots;
            self.slots += 1;
            self.features |= feature::SLOTS;
        }
        let slot = self.slot_of[usize::from(kind)];
        let bit = 1u64 << (valid::SLOT + u32::from(slot));
        self.require_bits(exact, bit, bit);
        Ok(usize::from(slot))
    }

    fn option_number(
        &mut self,
        exact: &mut ExactKey,
        m: &Match,
        ranges: &Arc<Ranges>,
        rule: &Rule,
    ) -> Result<(), PlanError> {
        // NOP and EOL are no options, and "any option" has no value: such a test is never true.
        let Some(kind @ 2..) = m.subject.option else {
            self.constant(false);
            return Ok(());
        };
        let at = key::SLOT + 16 * self.slot(exact, kind, rule)?;
        let length = match kind {
            2 => (2, 2),
            3 => (1, 1),
            8 => (8, 8),
            _ => (1, 8),
        };
        self.number(
            exact,
            FieldPosition {
                at,
                bit: 0,
                bits: 8,
            },
            &Arc::new(Ranges::new(vec![length])),
            false,
        );
        self.number(
            exact,
            FieldPosition {
                at: at + 8,
                bit: 0,
                bits: 64,
            },
            ranges,
            m.negated,
        );
        Ok(())
    }

    fn bytes(
        &mut self,
        exact: &mut ExactKey,
        subject: &Subject,
        bytes: &[u8],
        negated: bool,
        rule: &Rule,
    ) -> Result<(), PlanError> {
        let info = subject.field.info();
        let (op, off) = match info.kind {
            Kind::TcpOption(_) => {
                let Some(kind @ 2..) = subject.option else {
                    self.constant(false);
                    return Ok(());
                };
                (cond_op::OPTION, self.slot(exact, kind, rule)? as u16)
            }
            _ if matches!(info.header, Header::Ip4 | Header::Ip6) => {
                (cond_op::IP_PAYLOAD, subject.at)
            }
            _ => (cond_op::L4_PAYLOAD, subject.at),
        };
        let mut cond = Cond {
            op,
            off,
            len: bytes.len() as u16,
            ..empty_cond(negated)
        };
        cond.u[..bytes.len()].copy_from_slice(bytes);
        self.conds.push(cond);
        Ok(())
    }
}

/// Where a number lies in the flat key: byte offset of its header, bits from there.
#[derive(Clone, Copy)]
struct FieldPosition {
    at: usize,
    bit: u16,
    bits: u16,
}

impl FieldPosition {
    /// The masked words that hold exactly for [lo, hi], if that is a prefix of the field.
    fn prefix(self, lo: u128, hi: u128) -> Option<Vec<MaskedWord>> {
        let span = hi - lo;
        if span & span.wrapping_add(1) != 0 || lo & span != 0 {
            return None;
        }
        let max = if self.bits == 128 {
            u128::MAX
        } else {
            (1 << self.bits) - 1
        };
        if hi > max {
            return None;
        }
        let fixed = max & !span;
        let mut bytes = Vec::with_capacity(17);
        let (start, end) = (usize::from(self.bit), usize::from(self.bit + self.bits));
        for byte in start / 8..end.div_ceil(8) {
            let (mut mask, mut value) = (0u8, 0u8);
            for bit in 0..8 {
                let position = byte * 8 + bit;
                if position < start || position >= end {
                    continue;
                }
                let from_right = end - 1 - position;
                let out = 1u8 << (7 - bit);
                if fixed >> from_right & 1 != 0 {
                    mask |= out;
                    if lo >> from_right & 1 != 0 {
                        value |= out;
                    }
                }
            }
            bytes.push((self.at + byte, mask, value));
        }
        Some(masked(&bytes))
    }

    /// A condition on this number.
    fn cond(self, op: u8, negated: bool) -> Cond {
        let (byte, bit) = (self.bit / 8, self.bit % 8);
        let width: u16 = match (bit + self.bits).div_ceil(8) {
            1 => 1,
            2 => 2,
            3 | 4 => 4,
            5..=8 => 8,
            _ => 16,
        };
        let mut cond = Cond {
            op,
            width: width as u8,
            off: self.at as u16 + byte,
            ..empty_cond(negated)
        };
        if width < 16 {
            cond.shift = (width * 8 - bit - self.bits) as u8;
            cond.mask = if self.bits == 64 {
                u64::MAX
            } else {
                (1 << self.bits) - 1
            };
        }
        cond
    }
}

fn empty_cond(negated: bool) -> Cond {
    let flags = if negated { cond_op::NEGATED } else { 0 };
    Cond {
        op: 0,
        flags,
        width: 0,
        shift: 0,
        off: 0,
        len: 0,
        mask: 0,
        set_first: 0,
        set_count: 0,
        u: [0; VALUE_MAX],
    }
}

fn place(field: Field) -> FieldPosition {
    let info = field.info();
    if info.kind == Kind::L4Proto {
        return FieldPosition {
            at: key::L4PROTO,
            bit: 8,
            bits: 8,
        };
    }
    if info.kind == Kind::CtState {
        return FieldPosition {
            at: key::CT,
            bit: 8,
            bits: 8,
        };
    }
    if info.header == Header::Skb {
        return FieldPosition {
            at: match info.offset {
                0 => key::MARK,
                _ => key::PRIORITY,
            },
            bit: 0,
            bits: 32,
        };
    }
    let at = match info.header {
        // The other number of this header is the queue.
        Header::Meta | Header::Skb => key::QUEUE,
        Header::Clock => key::CLOCK,
        Header::EtherAddr => key::MAC,
        Header::Ether => key::ETHER,
        Header::Vlan => key::VLAN,
        Header::Vlan2 => key::VLAN2,
        Header::Ip4 => key::IP4,
        Header::Ip6 => key::IP6,
        Header::Ip6Frag => key::FRAG6,
        Header::Icmp | Header::Icmp6 | Header::Udp | Header::Tcp | Header::Ports => key::L4,
    };
    FieldPosition {
        at,
        bit: info.offset,
        bits: info.bits,
    }
}

fn class_bit(header: Header) -> Option<u64> {
    let class = match header {
        Header::Meta | Header::Skb | Header::Clock | Header::Ether | Header::EtherAddr => {
            return None;
        }
        Header::Ports => Classes::PORTS,
        Header::Vlan => Classes::VLAN,
        Header::Vlan2 => Classes::VLAN2,
        Header::Ip4 => Classes::IP4,
        Header::Ip6 => Classes::IP6,
        Header::Ip6Frag => Classes::IP6_FRAG,
        Header::Icmp => Classes::ICMP,
        Header::Icmp6 => Classes::ICMP6,
        Header::Udp => Classes::UDP,
        Header::Tcp => Classes::TCP,
    };
    Some(class.0)
}

/// Bytes of the key {offset, mask, value} as words.
fn masked(bytes: &[(usize, u8, u8)]) -> Vec<MaskedWord> {
    let mut words: Vec<([u8; 8], [u8; 8], u8)> = Vec::new();
    for &(at, mask, value) in bytes.iter().filter(|(_, mask, _)| *mask != 0) {
        debug_assert!(at < abi::KEY_WORDS * 8);
        let word = (at / 8) as u8;
        if words.last().is_none_or(|w| w.2 != word) {
            words.push(([0; 8], [0; 8], word));
        }
        if let Some((masks, values, _)) = words.last_mut() {
            masks[at % 8] |= mask;
            values[at % 8] |= value;
        }
    }
    words
        .into_iter()
        .map(|(mask, value, word)| MaskedWord {
            word,
            mask: u64::from_ne_bytes(mask),
            value: u64::from_ne_bytes(value),
        })
        .collect()
}
