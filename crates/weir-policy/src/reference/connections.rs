//! Connections: docs/semantics.md section 7, all but the rewriting of packets, which is `translate`.
//!
//! Owns the table of flows and the memory of first fragments: which flow a packet belongs to, whether it may open one, what
//! is chosen for it, and when a flow is dead. Nothing is ever swept: a dead flow is passed over when it is looked for, and
//! makes room when one of its tuples is taken. Invariant: no two flows of the table share a tuple, in either direction.

mod choose;
mod expect;
mod mapping;
mod quote;
mod tuple;
mod window;

use std::collections::HashMap;

use weir_packet::Reason;
use weir_packet::checksum::{fold, sum};
use weir_packet::parse::{Fragment, Ip, Layout, Protocol, Version, protocol, word16};

use super::rewrite::is_unfinished;
use super::{ChecksumMode, ConnectionState, Input, Part, random};
use crate::model::{Filtering, FlowState, Helper, Policy};

pub(super) use choose::{Change, Chosen};
pub(super) use expect::Expected;
pub(super) use mapping::Inbound;
pub(super) use quote::Quote;
pub(super) use tuple::{Tuple, is_query};

use choose::Choice;
use expect::{Expectations, answers_request, is_request};
use mapping::{Clock, Endpoint, Kept, Mappings, has_mappings};
use window::{Judgement, Segment, Times, Window};

/// Why a packet is dropped before any rule sees it although it is well formed.
pub(super) const REFUSALS: [Reason; 10] = [
    Reason::FragBeforeFirst,
    Reason::TcpFlags,
    Reason::TcpWindow,
    Reason::TcpRstStale,
    Reason::TcpChecksum,
    Reason::IcmpWindow,
    Reason::IcmpChecksum,
    Reason::PmtuFloor,
    Reason::FragOverlap,
    Reason::NatProtocol,
];

/// The state that a policy with stateful rules keeps.
#[derive(Clone, Debug, Default)]
pub(super) struct Connections {
    flows: HashMap<FlowId, Flow>,
    by_tuple: HashMap<Tuple, FlowId>,
    opened: u64,
    fragments: HashMap<FragmentKey, Remembered>,
    mappings: Mappings,
    expectations: Expectations,
}

/// A flow's number, never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FlowId(u64);

/// A connection.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    /// As the packet that opened it was received.
    pub(super) orig: Tuple,
    /// As that packet was sent on.
    pub(super) trans: Tuple,
    /// Indices of its rules, ascending.
    pub(super) rules: Vec<usize>,
    /// What else was chosen for it.
    pub(super) chosen: Chosen,
    /// Smallest `timeout T` of its rules, ns.
    timeout_ns: Option<u64>,
    /// Flags of the forward side, which opened it, and of the reverse side.
    seen: [Seen; 2],
    /// Of TCP.
    window: Option<Window>,
    last_ns: u64,
    /// The mapping that packets of its host keep.
    kept: Option<Kept>,
    /// Who reads its packets.
    helper: Option<Helper>,
    /// A helper of another flow let it in.
    was_expected: bool,
}

/// What was seen of one side.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    any: bool,
    ack: bool,
    fin: bool,
    rst: bool,
    /// It acknowledged the FIN of the other side.
    acked_fin: bool,
}

/// How a packet's tuple is that of a flow, in the order in which they are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    OrigDirect,
    OrigReversed,
    TransDirect,
    TransReversed,
}

impl Fit {
    /// Whether a packet that fits so goes the way of the one that opened the flow.
    pub(super) fn is_forward(self) -> bool {
        matches!(self, Fit::OrigDirect | Fit::TransDirect)
    }
}

/// What a packet has to do with the flows there are.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// It belongs to one.
    Of(FlowId, Fit),
    /// It quotes a packet of one.
    Quotes(FlowId, Fit, Quote),
    /// To none, and may open one with this tuple; it may be for a mapping.
    MayOpen(Tuple, Option<Inbound>),
    /// To none, and a helper expects it.
    Expected(Tuple, Expected),
    /// To this one, which it opened.
    Opened(FlowId),
    /// To none, and may open none.
    Outside,
    /// To none that it could belong to, and it is dropped for this before any rule sees it.
    Refused(Reason),
}

/// What fragments of a packet have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FragmentKey {
    family: u8,
    source: u128,
    destination: u128,
    identification: u32,
    /// 0 in IPv6.
    protocol: u8,
}

/// A first fragment that passed.
#[derive(Clone, Copy, Debug)]
struct Remembered {
    flow: Option<(FlowId, Fit)>,
    at_ns: u64,
    /// Where its data end, in units of 8 bytes.
    end: usize,
}

impl Place {
    /// What users are told.
    pub(super) fn part(&self) -> Option<Part> {
        match self {
            Place::Of(_, fit) if fit.is_forward() => Some(Part::Forward),
            Place::Of(..) => Some(Part::Reverse),
            Place::Quotes(..) => Some(Part::Error),
            Place::Opened(_) => Some(Part::Opened),
            Place::MayOpen(..) | Place::Expected(..) | Place::Outside | Place::Refused(_) => None,
        }
    }
}

impl Connections {
    /// What `ct-state` is of a packet at this place, before it counts.
    pub(super) fn state(
        &self,
        place: &Place,
        input: &Input<'_>,
        layout: &Layout,
    ) -> Option<ConnectionState> {
        let ip = layout.ip.as_ref()?;
        Some(match place {
            Place::Of(id, fit) if !fit.is_forward() || self.flow(*id).seen[1].any => {
                ConnectionState::Established
            }
            Place::Of(id, _) if self.flow(*id).was_expected => ConnectionState::Related,
            Place::Of(..) | Place::MayOpen(..) => ConnectionState::New,
            Place::Quotes(..) | Place::Expected(..) => ConnectionState::Related,
            Place::Opened(_) | Place::Refused(_) => return None,
            Place::Outside if ip.fragment == Fragment::Later => ConnectionState::Untracked,
            Place::Outside
                if Tuple::of_packet(input.frame, layout).is_some()
                    || Quote::of_packet(input.frame, layout).is_some() =>
            {
                ConnectionState::Invalid
            }
            Place::Outside => ConnectionState::Untracked,
        })
    }

    /// What a packet has to do with the flows there are.
    pub(super) fn place(
        &self,
        policy: &Policy,
        input: &Input<'_>,
        layout: &Layout,
        checksums: ChecksumMode,
    ) -> Place {
        let Some(ip) = &layout.ip else {
            return Place::Outside;
        };
        let now = Now {
            ns: input.now_ns,
            syn: is_syn(input.frame, layout),
        };
        if ip.fragment == Fragment::Later {
            return self.place_of_fragment(policy, input, layout, now);
        }
        if let Some(reason) = wrong_in_tcp(input.frame, layout, checksums) {
            return Place::Refused(reason);
        }
        if let Some(reason) = wrong_in_icmp(policy, input.frame, layout) {
            return Place::Refused(reason);
        }
        if let Some(tuple) = Tuple::of_packet(input.frame, layout) {
            if let Some((id, fit)) = self.find(policy, &tuple, now) {
                if self.flow(id).translated_before(fit) {
                    return Place::Outside;
                }
                if self.flow(id).translates() && is_authenticated(layout) {
                    return Place::Refused(Reason::NatProtocol);
                }
                let judged = self.flow(id).judge(policy, fit, input, layout);
                if let Some(Judgement::Outside(reason)) = judged {
                    return Place::Refused(reason);
                }
                return Place::Of(id, fit);
            }
            if may_open(input.frame, layout) {
                if answers_request(input.frame, layout)
                    && let Some(expected) = self
                        .expectations
                        .of(&tuple, clock(policy, input, FlowState::Expectation))
                {
                    return Place::Expected(tuple, expected);
                }
                let inbound = (tuple.protocol != protocol::TCP || now.syn)
                    .then(|| {
                        self.mappings
                            .inbound(&tuple, clock(policy, input, FlowState::Mapping))
                    })
                    .flatten();
                return Place::MayOpen(tuple, inbound);
            }
            return Place::Outside;
        }
        let Some(quote) = Quote::of_packet(input.frame, layout) else {
            return Place::Outside;
        };
        match self.find(policy, &quote.tuple, now) {
            Some((id, fit)) if self.flow(id).quoted_before(fit) => Place::Outside,
            Some((id, _)) if self.flow(id).translates() && is_authenticated(layout) => {
                Place::Refused(Reason::NatProtocol)
            }
            Some((id, fit))
                if !policy.connections.loose_tcp
                    && !self.flow(id).holds_quote(fit, &quote, input.frame) =>
            {
                Place::Refused(Reason::IcmpWindow)
            }
            Some((id, fit)) => Place::Quotes(id, fit, quote),
            None => Place::Outside,
        }
    }

    /// Whether a flow is there, alive and not closed.
    pub(super) fn is_open(&self, policy: &Policy, id: FlowId, now_ns: u64) -> bool {
        let now = Now {
            ns: now_ns,
            syn: true,
        };
        (self.flows.get(&id)).is_some_and(|flow| flow.lives(policy, Fit::OrigDirect, now))
    }

    /// A flow that was found before.
    pub(super) fn flow(&self, id: FlowId) -> &Flow {
        &self.flows[&id]
    }

    /// Opens a flow for a packet that matched these rules, and belongs to it as [`Fit::OrigDirect`] from then on. One that has only
    /// the rules of the mapping that it is for is translated to the host inside, and nothing is chosen for it.
    #[expect(clippy::too_many_arguments, reason = "all that a packet is judged by")]
    pub(super) fn open(
        &mut self,
        policy: &Policy,
        rules: &[usize],
        orig: Tuple,
        inbound: Option<&Inbound>,
        own_rules: bool,
        input: &Input<'_>,
        layout: &Layout,
        seed: u64,
    ) -> Result<FlowId, Reason> {
        // Only for the packet's own tuple is a closed connection gone.
        let now = Now {
            ns: input.now_ns,
            syn: false,
        };
        let draw = |id: u32| random(seed, input.number, id);
        let choosing: &[usize] = if own_rules { rules } else { &[] };
        let choice = Choice::of_rules(choosing.iter().map(|&i| &policy.rules[i]), &draw);
        let filtering = (choosing.iter()).filter_map(|&i| policy.rules[i].mapping);
        let filtering = filtering.max().filter(|_| has_mappings(&orig));
        let clock = clock(policy, input, FlowState::Mapping);
        let (mut kept, mut outer) = (None, None);
        if let Some(filtering) = filtering {
            let end = self.take_mapping(&choice, orig, &draw, rules, filtering, layout, clock)?;
            let inner = Endpoint::source(&orig);
            kept = (self.mappings).send(inner, orig.destination, filtering, clock);
            outer = Some(end);
        }
        let mapped = inbound.filter(|_| !choice.maps_destination());
        if outer.is_some() && mapped.is_some_and(|inbound| !inbound.may_enter) {
            return Err(Reason::NatFiltered);
        }
        // Where no mapping could be had, or the packet is filtered, nothing was begun, and the connection that is dead to it stays.
        self.make_room(orig);
        let inbound = mapped.filter(|inbound| inbound.may_enter);
        let inner = inbound.map(|inbound| inbound.inner);
        let kept = kept.or(inbound.map(|inbound| inbound.kept));
        let tries = if own_rules { usize::MAX } else { 1 };
        let tuples = choice.tuples(orig, &draw).take(tries);
        let mut tuples = tuples
            .map(|trans| with_ends(trans, outer, inner))
            .peekable();
        if is_authenticated(layout) && tuples.peek().is_some_and(|&trans| trans != orig) {
            return Err(Reason::NatProtocol);
        }
        let taken = if orig.is_generic() {
            Reason::NatPeerBusy
        } else {
            Reason::PoolBusy
        };
        let trans = tuples
            .find(|&trans| trans == orig || self.find(policy, &trans, now).is_none())
            .ok_or(taken)?;
        let mut helpers = choosing.iter().filter_map(|&i| policy.rules[i].helper);
        let (chosen, helper) = (choice.chosen, helpers.next());
        Ok(self.insert(
            policy, rules, orig, trans, chosen, kept, helper, input, layout,
        ))
    }

    /// Opens the flow that a helper expects. The attempt uses the expectation up.
    pub(super) fn open_expected(
        &mut self,
        policy: &Policy,
        rules: &[usize],
        orig: Tuple,
        expected: &Expected,
        input: &Input<'_>,
        layout: &Layout,
    ) -> Result<FlowId, Reason> {
        self.make_room(orig);
        self.expectations.use_up(&orig);
        let trans = expected.translated(orig);
        if is_authenticated(layout) && trans != orig {
            return Err(Reason::NatProtocol);
        }
        let now = Now {
            ns: input.now_ns,
            syn: false,
        };
        if trans != orig && self.find(policy, &trans, now).is_some() {
            return Err(Reason::PoolBusy);
        }
        let chosen = Chosen::default();
        let id = self.insert(
            policy, rules, orig, trans, chosen, None, None, input, layout,
        );
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.was_expected = true;
        }
        Ok(id)
    }

    /// Whoever has the tuple is dead to its packet, and makes room even if nothing is opened.
    fn make_room(&mut self, tuple: Tuple) {
        for tuple in [tuple, tuple.reversed()] {
            if let Some(dead) = self.by_tuple.get(&tuple).copied() {
                self.forget(dead);
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "all that a flow is made of")]
    fn insert(
        &mut self,
        policy: &Policy,
        rules: &[usize],
        orig: Tuple,
        trans: Tuple,
        chosen: Chosen,
        kept: Option<Kept>,
        helper: Option<Helper>,
        input: &Input<'_>,
        layout: &Layout,
    ) -> FlowId {
        self.make_room(trans);
        let id = FlowId(self.opened);
        self.opened += 1;
        self.by_tuple.insert(orig, id);
        self.by_tuple.insert(trans, id);
        let flow = Flow {
            orig,
            trans,
            rules: rules.to_vec(),
            chosen,
            timeout_ns: rules
                .iter()
                .filter_map(|&i| policy.rules[i].timeout_ns)
                .min(),
            seen: [Seen::default(); 2],
            window: None,
            last_ns: input.now_ns,
            kept,
            helper,
            was_expected: false,
        };
        let flow = self.flows.entry(id).or_insert(flow);
        flow.seen[0].any = true;
        let moved = flow.chosen.acknowledgement;
        if let Some(segment) = Segment::of_packet(input.frame, layout, moved) {
            flow.seen[0] = segment.seen();
            flow.window = Some(Window::opened_by(&segment));
        }
        id
    }

    /// The endpoint outside of the host that opens a flow with mappings: that of its mapping, which is opened if there is none.
    #[expect(clippy::too_many_arguments, reason = "all that a packet is judged by")]
    fn take_mapping(
        &mut self,
        choice: &Choice,
        orig: Tuple,
        draw: &dyn Fn(u32) -> u32,
        rules: &[usize],
        filtering: Filtering,
        layout: &Layout,
        clock: Clock,
    ) -> Result<Endpoint, Reason> {
        let inner = Endpoint::source(&orig);
        if let Some(outer) = self.mappings.outer(inner, clock) {
            return Ok(outer);
        }
        if self.mappings.is_outer(inner, clock) {
            return Err(Reason::PoolBusy);
        }
        let tuples = choice.tuples(orig, draw);
        let mut ends = tuples.map(|trans| Endpoint::source(&trans)).peekable();
        if is_authenticated(layout) && ends.peek().is_some_and(|&outer| outer != inner) {
            return Err(Reason::NatProtocol);
        }
        let outer = ends
            .find(|&outer| outer == inner || !self.mappings.is_taken(outer, clock))
            .ok_or(Reason::PoolBusy)?;
        self.mappings.open(inner, outer, rules, filtering, clock.ns);
        Ok(outer)
    }

    /// A handled packet of the flow passes, or opened it. The window is that of its first segment already: to judge that again would take it for a
    /// retransmission.
    pub(super) fn mark(
        &mut self,
        policy: &Policy,
        id: FlowId,
        fit: Fit,
        opens: bool,
        input: &Input<'_>,
        layout: &Layout,
    ) {
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        let side = usize::from(!fit.is_forward());
        if flow.window.is_some() && !opens {
            match flow.judge(policy, fit, input, layout) {
                Some(Judgement::Counts(window, shown)) => {
                    flow.window = Some(window);
                    let seen = &mut flow.seen[side];
                    seen.any |= shown.any;
                    seen.ack |= shown.ack;
                    seen.fin |= shown.fin;
                    seen.rst |= shown.rst;
                    seen.acked_fin |= shown.acked_fin;
                }
                Some(Judgement::Restarts(window, seen)) => {
                    flow.window = Some(window);
                    flow.seen = seen;
                }
                Some(Judgement::Handshakes(window)) => {
                    flow.window = Some(window);
                    return;
                }
                _ => return,
            }
        } else {
            flow.seen[side].any = true;
        }
        flow.last_ns = flow.last_ns.max(input.now_ns);
        if let Some(kept) = &flow.kept
            && kept.by_host == fit.is_forward()
        {
            (self.mappings).keep(kept, clock(policy, input, FlowState::Mapping));
        }
    }

    /// A packet of the flow passes: what its helper expects because of it.
    pub(super) fn expect(&mut self, id: FlowId, fit: Fit, input: &Input<'_>, layout: &Layout) {
        let flow = &self.flows[&id];
        if flow.helper == Some(Helper::Tftp) && fit.is_forward() && is_request(input.frame, layout)
        {
            self.expectations
                .add(flow.orig, flow.trans, &flow.rules, input.now_ns);
        }
    }

    /// A first fragment passes.
    pub(super) fn remember(
        &mut self,
        flow: Option<(FlowId, Fit)>,
        input: &Input<'_>,
        layout: &Layout,
    ) {
        if let Some(key) = FragmentKey::of(input.frame, layout) {
            let at_ns = input.now_ns;
            let end = fragment_data(input.frame, layout).map_or(0, |data| data.1);
            self.fragments.insert(key, Remembered { flow, at_ns, end });
        }
    }

    fn place_of_fragment(
        &self,
        policy: &Policy,
        input: &Input<'_>,
        layout: &Layout,
        now: Now,
    ) -> Place {
        let remembered = FragmentKey::of(input.frame, layout)
            .and_then(|key| self.fragments.get(&key))
            .filter(|first| {
                let timeout = policy.connections.timeouts_ns[FlowState::Fragment as usize];
                now.ns.saturating_sub(first.at_ns) <= timeout
            });
        let offset = fragment_data(input.frame, layout).map_or(0, |data| data.0);
        if remembered.is_some_and(|first| offset < first.end) {
            return Place::Refused(Reason::FragOverlap);
        }
        match remembered.map(|first| first.flow) {
            None => Place::Refused(Reason::FragBeforeFirst),
            Some(None) => Place::Outside,
            Some(Some((id, fit))) => match self.flows.get(&id) {
                Some(flow) if flow.lives(policy, fit, now) => {
                    if flow.translates() && is_authenticated(layout) {
                        Place::Refused(Reason::NatProtocol)
                    } else {
                        Place::Of(id, fit)
                    }
                }
                _ => Place::Refused(Reason::FragBeforeFirst),
            },
        }
    }

    /// The live flow that has the tuple, direct or reversed.
    fn find(&self, policy: &Policy, tuple: &Tuple, now: Now) -> Option<(FlowId, Fit)> {
        let reversed = tuple.reversed();
        [tuple, &reversed].into_iter().find_map(|key| {
            let id = *self.by_tuple.get(key)?;
            let flow = self.flows.get(&id)?;
            let (_, fit) = [
                (flow.orig, Fit::OrigDirect),
                (flow.orig.reversed(), Fit::OrigReversed),
                (flow.trans, Fit::TransDirect),
                (flow.trans.reversed(), Fit::TransReversed),
            ]
            .into_iter()
            .find(|(own, _)| own == tuple)?;
            flow.lives(policy, fit, now).then_some((id, fit))
        })
    }

    fn forget(&mut self, id: FlowId) {
        if let Some(flow) = self.flows.remove(&id) {
            self.by_tuple.remove(&flow.orig);
            self.by_tuple.remove(&flow.trans);
        }
    }
}

impl Flow {
    /// Whether addresses, ports or the identifier are translated.
    pub(super) fn translates(&self) -> bool {
        self.orig != self.trans
    }

    /// Whether a packet that fits so looks as if it had been translated. It was received, as all packets are in replay,
    /// so that somebody else sent it.
    fn translated_before(&self, fit: Fit) -> bool {
        self.translates() && matches!(fit, Fit::TransDirect | Fit::OrigReversed)
    }

    /// The same of an error whose quote fits so: it travels against what it quotes.
    fn quoted_before(&self, fit: Fit) -> bool {
        self.translates() && matches!(fit, Fit::OrigDirect | Fit::TransReversed)
    }

    /// What a packet that fits so does to it, if that depends on numbers: of TCP, but for later fragments.
    fn judge(
        &self,
        policy: &Policy,
        fit: Fit,
        input: &Input<'_>,
        layout: &Layout,
    ) -> Option<Judgement> {
        let moved = if fit.is_forward() {
            self.chosen.acknowledgement
        } else {
            self.chosen.sequence
        };
        let window = self.window.as_ref()?;
        let segment = Segment::of_packet(input.frame, layout, moved)?;
        let forward = fit.is_forward();
        let times = Times {
            now: input.now_ns,
            last: self.last_ns,
        };
        match window.judge(&segment, forward, &self.seen, times) {
            Judgement::Outside(_) if policy.connections.loose_tcp => {
                Some(window.let_in(&segment, forward))
            }
            Judgement::Handshakes(_) if policy.connections.loose_tcp => Some(Judgement::Idle),
            judged => Some(judged),
        }
    }

    /// Whether what an ICMP error quotes may be on its way; known of TCP only.
    fn holds_quote(&self, fit: Fit, quote: &Quote, frame: &[u8]) -> bool {
        let Some(window) = &self.window else {
            return true;
        };
        let at = quote.l4_at + 4;
        let sent = u32::from(word16(frame, at)) << 16 | u32::from(word16(frame, at + 2));
        let moved = if fit.is_forward() {
            self.chosen.sequence
        } else {
            self.chosen.acknowledgement
        };
        window.holds_quote(sent.wrapping_sub(moved), fit.is_forward())
    }

    /// Whether it is alive for a packet that fits so.
    fn lives(&self, policy: &Policy, fit: Fit, now: Now) -> bool {
        let state = self.state();
        let timeouts = &policy.connections.timeouts_ns;
        let mut timeout = match (state, self.timeout_ns) {
            (state, Some(own)) if state.takes_rule_timeout() => own,
            _ => timeouts[state as usize],
        };
        if let Some(window) = &self.window
            && state == FlowState::TcpEstablished
            && !policy.connections.loose_tcp
        {
            if window.is_retransmitting() {
                timeout = timeout.min(timeouts[FlowState::TcpRetrans as usize]);
            }
            if window.has_unacknowledged() {
                timeout = timeout.min(timeouts[FlowState::TcpUnack as usize]);
            }
        }
        let closed = matches!(
            state,
            FlowState::TcpLastAck | FlowState::TcpTimeWait | FlowState::TcpClose
        );
        let reopened = now.syn && closed && matches!(fit, Fit::OrigDirect | Fit::OrigReversed);
        now.ns.saturating_sub(self.last_ns) <= timeout && !reopened
    }

    fn state(&self) -> FlowState {
        let [forward, reverse] = self.seen;
        match self.orig.protocol {
            _ if self.orig.is_generic() && reverse.any => FlowState::Generic,
            _ if self.orig.is_generic() => FlowState::GenericNew,
            6 if forward.rst || reverse.rst => FlowState::TcpClose,
            6 if forward.fin && reverse.fin => {
                if forward.acked_fin && reverse.acked_fin {
                    FlowState::TcpTimeWait
                } else {
                    FlowState::TcpLastAck
                }
            }
            6 if forward.fin || reverse.fin => {
                if forward.acked_fin || reverse.acked_fin {
                    FlowState::TcpCloseWait
                } else {
                    FlowState::TcpFinWait
                }
            }
            6 if forward.ack && reverse.ack => FlowState::TcpEstablished,
            6 if reverse.any => FlowState::TcpSynRecv,
            6 => FlowState::TcpSynSent,
            17 if reverse.any => FlowState::UdpStream,
            17 => FlowState::UdpUnreplied,
            _ => FlowState::Icmp,
        }
    }
}

impl FragmentKey {
    fn of(frame: &[u8], layout: &Layout) -> Option<FragmentKey> {
        let ip = layout.ip.as_ref()?;
        let (identification, protocol) = match ip.version {
            Version::V4 => (u32::from(word16(frame, ip.at + 4)), ip.protocol),
            Version::V6 => {
                let at = ip.fragment_header()?;
                let high = u32::from(word16(frame, at + 4));
                (high << 16 | u32::from(word16(frame, at + 6)), 0)
            }
        };
        let (source, destination) = tuple::addresses(frame, ip.version, ip.at);
        Some(FragmentKey {
            family: tuple::family(ip.version),
            source,
            destination,
            identification,
            protocol,
        })
    }
}

/// Where the data of a fragment begin and end in its datagram, in units of 8 bytes.
fn fragment_data(frame: &[u8], layout: &Layout) -> Option<(usize, usize)> {
    let ip = layout.ip.as_ref()?;
    let (offset, start) = match ip.version {
        Version::V4 => (word16(frame, ip.at + 6) & 0x1fff, ip.payload.start),
        Version::V6 => {
            let at = ip.fragment_header()?;
            (word16(frame, at + 2) >> 3, at + 8)
        }
    };
    let offset = usize::from(offset);
    let len = (ip.payload.end - start).div_ceil(8);
    Some((offset, offset + len))
}

/// How old mappings or expectations may be at the time of a packet.
fn clock(policy: &Policy, input: &Input<'_>, of: FlowState) -> Clock {
    Clock {
        ns: input.now_ns,
        timeout_ns: policy.connections.timeouts_ns[of as usize],
    }
}

/// A translated tuple with the endpoint that its host has outside, and that of the host inside that it is for.
fn with_ends(mut trans: Tuple, outer: Option<Endpoint>, inner: Option<Endpoint>) -> Tuple {
    if let Some(outer) = outer {
        (trans.source, trans.source_port) = (outer.address, outer.port);
    }
    if let Some(inner) = inner {
        (trans.destination, trans.destination_port) = (inner.address, inner.port);
    }
    trans
}

/// What decides whether a flow is alive for a packet.
#[derive(Clone, Copy, Debug)]
struct Now {
    ns: u64,
    /// The packet is TCP with SYN and without ACK.
    syn: bool,
}

/// RFC 8200 section 5.
const MIN_MTU_IP6: u16 = 1280;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;
const URG: u8 = 32;

/// Whether a stack sends these flags together; the others go with anything.
pub(crate) fn is_sane(flags: u8) -> bool {
    let flags = flags & (FIN | SYN | RST | ACK | URG);
    flags == RST
        || matches!(flags & !URG, SYN | ACK)
        || [SYN | ACK, RST | ACK].contains(&flags)
        || flags & !URG == FIN | ACK
}

fn is_syn(frame: &[u8], layout: &Layout) -> bool {
    tcp_flags(frame, layout).is_some_and(|flags| flags & (SYN | ACK) == SYN)
}

/// Why a TCP packet is dropped whatever its connection is.
fn wrong_in_tcp(frame: &[u8], layout: &Layout, checksums: ChecksumMode) -> Option<Reason> {
    let flags = tcp_flags(frame, layout)?;
    if !is_sane(flags) {
        return Some(Reason::TcpFlags);
    }
    let ip = layout.ip.as_ref()?;
    if flags & (SYN | FIN | RST) == 0 || ip.fragment != Fragment::Whole {
        return None;
    }
    tcp_checksum_wrong(frame, layout, checksums).then_some(Reason::TcpChecksum)
}

/// Whether the checksum of a whole TCP packet is wrong, and nobody will finish it.
pub(super) fn tcp_checksum_wrong(frame: &[u8], layout: &Layout, checksums: ChecksumMode) -> bool {
    let Some(ip) = &layout.ip else {
        return false;
    };
    let unfinished = checksums != ChecksumMode::Complete && is_unfinished(frame, layout);
    !unfinished && fold(pseudo_header(frame, ip) + sum(&frame[ip.payload.clone()])) != 0xffff
}

/// Sum of the pseudo-header.
fn pseudo_header(frame: &[u8], ip: &Ip) -> u64 {
    let addresses = match ip.version {
        Version::V4 => &frame[ip.at + 12..ip.at + 20],
        Version::V6 => &frame[ip.at + 8..ip.at + 40],
    };
    sum(addresses) + u64::from(ip.protocol) + ip.payload.len() as u64
}

/// Why an ICMP error is dropped whatever its connection is.
fn wrong_in_icmp(policy: &Policy, frame: &[u8], layout: &Layout) -> Option<Reason> {
    let (ip, l4) = (layout.ip.as_ref()?, layout.l4.as_ref()?);
    if !quote::is_error(l4.protocol, *frame.get(l4.at)?) {
        return None;
    }
    let pseudo = match ip.version {
        Version::V4 => 0,
        Version::V6 => pseudo_header(frame, ip),
    };
    let whole = ip.fragment == Fragment::Whole;
    if whole && fold(pseudo + sum(&frame[ip.payload.clone()])) != 0xffff {
        return Some(Reason::IcmpChecksum);
    }
    let (high, low) = (word16(frame, l4.at + 4), word16(frame, l4.at + 6));
    let too_small = match (ip.version, frame[l4.at], frame[l4.at + 1]) {
        (Version::V4, 3, 4) => low < policy.connections.min_pmtu,
        (Version::V6, 2, _) => high == 0 && low < MIN_MTU_IP6,
        _ => false,
    };
    too_small.then_some(Reason::PmtuFloor)
}

/// Whether a packet is ICMP that tells a host or router what to do and that no connection asked for: source quench, redirect,
/// router advertisement.
pub(super) fn needs_acceptance(frame: &[u8], layout: &Layout) -> bool {
    let kind = (layout.l4.as_ref()).and_then(|l4| Some((l4.protocol, *frame.get(l4.at)?)));
    matches!(
        kind,
        Some((Protocol::Icmp, 4 | 5 | 9) | (Protocol::Icmp6, 134 | 137))
    )
}

/// Whether an authentication header covers the packet's addresses.
fn is_authenticated(layout: &Layout) -> bool {
    layout.ip.as_ref().is_some_and(|ip| {
        ip.protocol == protocol::AH
            || (ip.extensions.iter()).any(|extension| extension.protocol == protocol::AH)
    })
}

/// Whether a packet with a tuple may open a flow.
fn may_open(frame: &[u8], layout: &Layout) -> bool {
    let Some(l4) = &layout.l4 else {
        return true;
    };
    let whole = (layout.ip.as_ref()).is_some_and(|ip| ip.fragment == Fragment::Whole);
    match l4.protocol {
        Protocol::Tcp => tcp_flags(frame, layout).is_some_and(|flags| {
            flags & (RST | FIN) == 0 && (flags & SYN == 0 || flags & ACK == 0 && whole)
        }),
        Protocol::Udp => true,
        Protocol::Icmp | Protocol::Icmp6 => frame
            .get(l4.at)
            .is_some_and(|&kind| tuple::is_query(l4.protocol, kind)),
    }
}

fn tcp_flags(frame: &[u8], layout: &Layout) -> Option<u8> {
    let l4 = layout.l4.as_ref()?;
    (l4.protocol == Protocol::Tcp)
        .then(|| frame.get(l4.at + 13).copied())
        .flatten()
}
