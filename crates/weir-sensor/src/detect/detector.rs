//! One worker's detection: from packets, pieces and transactions to matches. It owns scratch memory only; what is remembered of flows is in their `FlowState`.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::app::{App, Transaction};
use crate::buffer::Buffer;
use crate::event::Events;
use crate::matcher::Hits;
use crate::packet::{Direction, Packet};
use crate::script::ScriptCounts;

use super::bits::{held, hold, hold_of};
use super::check::Scene;
use super::compile::{Compiled, Kind, When, is_of_packets};
use super::ends::{Ends, is_cut};
use super::gate::{Class, open};
use super::growth::Growth;
use super::lists::TOGETHER;
use super::plan;
use super::program::Subject;
use super::ruleset::Ruleset;
use super::script::Shown;
use super::transform::change;
use super::work::{Found, MOST_PENDING, Work, header_buffer};
use super::{EvaluationCounts, FlowState, FlowView, Match, Moment, PacketFlow, Piece, RuleCost};

/// What a detector counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DetectCounts {
    /// Packets inspected.
    pub packets: u64,
    /// Pieces of streams inspected.
    pub pieces: u64,
    /// Directions of transactions inspected.
    pub transactions: u64,
    /// Packets, pieces and transactions that were not, as a `pass` rule took them out.
    pub passed: u64,
    /// Rules that a pattern or a list led to.
    pub candidates: u64,
    /// Rules that were evaluated: cheap conditions held.
    pub evaluations: u64,
    /// Rules that held.
    pub matches: u64,
    /// Stream rules of a flow that waited, or had alerted on a packet, and were forgotten for newer ones.
    pub pending_dropped: u64,
    /// Waiting parts of transaction rules given up for newer ones.
    pub held_dropped: u64,
    /// What evaluation counts.
    pub evaluation: EvaluationCounts,
    /// Calls of scripts that failed.
    pub scripts: ScriptCounts,
}

/// Detection of one worker.
#[derive(Debug)]
pub struct Detector {
    rules: Arc<Ruleset>,
    work: Work,
}

impl Detector {
    /// With scratch memory for these rules.
    pub fn new(rules: Arc<Ruleset>) -> Detector {
        let work = Work {
            hits: Hits::new(rules.most_patterns()),
            stamps: vec![0; rules.len()],
            ..Work::default()
        };
        Detector { rules, work }
    }

    /// The rules, and the scratch memory.
    pub(super) fn parts(&mut self) -> (&Ruleset, &mut Work) {
        (&self.rules, &mut self.work)
    }

    /// The rules.
    pub fn rules(&self) -> &Arc<Ruleset> {
        &self.rules
    }

    /// What was counted so far.
    pub fn counts(&self) -> DetectCounts {
        DetectCounts {
            evaluation: self.work.scratch.counts,
            scripts: self.work.scripts.counts,
            ..self.work.counts
        }
    }

    /// Matches since the last `clear`, in the order of packets, and of rank in each inspection.
    pub fn matches(&self) -> &[Match] {
        &self.work.matches
    }

    /// Whether a rule has passed the packet that was inspected last.
    pub(crate) fn has_passed(&self) -> bool {
        self.work.packet_passed.is_some()
    }

    /// By generator and number of a rule: how often it was given up at a limit, and counted as not holding.
    pub fn limited(&self) -> &BTreeMap<(u32, u32), u64> {
        &self.work.limited
    }

    /// By generator and number of a rule: what it cost, if the rules were loaded to be profiled.
    pub fn costs(&self) -> &BTreeMap<(u32, u32), RuleCost> {
        &self.work.costs
    }

    /// What there is to tell of scripts that failed, each once.
    pub(crate) fn take_told(&mut self) -> Vec<String> {
        self.work.scripts.take_told()
    }

    /// Goes on counting where another stands, which goes on here.
    pub(crate) fn swap_counts(&mut self, other: &mut Detector) {
        let (mine, others) = (&mut self.work, &mut other.work);
        std::mem::swap(&mut mine.counts, &mut others.counts);
        std::mem::swap(&mut mine.scratch.counts, &mut others.scratch.counts);
        std::mem::swap(&mut mine.scripts.counts, &mut others.scripts.counts);
        std::mem::swap(&mut mine.limited, &mut others.limited);
        std::mem::swap(&mut mine.costs, &mut others.costs);
    }

    /// Forgets the matches, when the caller has taken them; not between the calls for one packet.
    pub fn clear(&mut self) {
        self.work.matches.clear();
        self.work.first = 0;
    }

    /// What comes next is not about the packet that was last inspected, even if it has the same number: it is about a flow that ends there.
    pub(crate) fn turn(&mut self) {
        self.work.packet = u64::MAX;
    }

    /// Inspects a packet: its headers and its payload. `events` are those of decoding and of the stream. To be called before the stream and the transactions that the packet
    /// completes.
    pub fn packet(&mut self, packet: &Packet<'_>, events: Events, flow: Option<PacketFlow<'_>>) {
        self.ask_packet(packet, events, flow, false);
    }

    /// Notes which bits a flow has before its stream is inspected, where rules about packets ask for bits that rules about streams set.
    pub(crate) fn before_stream(&mut self, state: &FlowState) {
        if !self.rules.follows.is_empty() {
            self.work.bits.clone_from(&state.bits);
        }
    }

    /// Asks rules about the packet again for which the stream has set a bit: the packet that completes what sets it is one that has it.
    pub(crate) fn after_stream(
        &mut self,
        packet: &Packet<'_>,
        events: Events,
        flow: PacketFlow<'_>,
    ) {
        if !self.rules.follows.is_empty() && self.work.bits != flow.state.bits {
            self.ask_packet(packet, events, Some(flow), true);
        }
    }

    /// `again`: only rules that did not hold for want of a bit.
    fn ask_packet(
        &mut self,
        packet: &Packet<'_>,
        events: Events,
        mut flow: Option<PacketFlow<'_>>,
        again: bool,
    ) {
        let rules = &*self.rules;
        let work = &mut self.work;
        work.begin(packet.number);
        if flow.as_ref().is_some_and(|f| f.state.passed) {
            work.counts.passed += 1;
            return;
        }
        work.counts.packets += u64::from(!again);
        let mut ends = Ends::of_packet(packet);
        if let Some(flow) = &flow {
            ends.established = Some(flow.view.established);
            ends.app = flow.view.app;
        }
        let direction = flow.as_ref().map(|f| f.direction);
        let view = flow.as_ref().map(|f| f.view);
        let scene = Scene {
            packet: Some(packet),
            time: packet.time,
            events,
            flow: view,
            direction,
            transaction: None,
        };
        work.round();
        let ports = (ends.source.1, ends.destination.1);
        let gate = |rule: u32| {
            rules.quick[rule as usize].may(ends.class, direction, ends.established, ends.app, ports)
                && open(
                    &rules.compiled[rule as usize].gate,
                    &rules.rule(rule).header,
                    &ends,
                    direction,
                )
        };
        let plan = {
            let held = flow
                .as_mut()
                .and_then(|f| f.state.plans[f.direction.index()].take());
            work.met.plan(held, rules, &ends, direction)
        };
        match &mut flow {
            Some(_) if again => {}
            Some(flow) => {
                let d = flow.direction.index();
                if !std::mem::replace(&mut flow.state.addresses_done[d], true) {
                    work.by_address(&rules.addresses, &ends, gate);
                }
                // What a direction speaks is told when its sender has said enough, and again when that changed.
                let app = flow.view.sides[d];
                if app != App::Unknown && std::mem::replace(&mut flow.state.app_done[d], app) != app
                {
                    work.consider(&rules.apps, |rule| plan.has(rule));
                }
                if flow.view.protocol != 6 {
                    // Parts of transactions are about this packet.
                    flow.state.held.clear();
                }
            }
            None => work.by_address(&rules.addresses, &ends, gate),
        }
        if again {
            work.consider(&rules.follows, gate);
        } else {
            if ends.syn {
                work.by_address(&rules.syn, &ends, gate);
            }
            work.consider(&plan.packets, |_| true);
        }
        // What follows a header that could not be read is nobody's payload. What is encrypted counts as none: headers, sizes and numbers are asked as ever.
        let opaque = flow.as_ref().is_some_and(|f| f.view.opaque);
        // What is carried is inspected by itself, what is in fragments when they are put together.
        let part = packet.ip.as_ref().is_some_and(|ip| ip.fragment);
        let payload = if opaque || part || is_cut(packet) || packet.is_carrier() {
            &[][..]
        } else {
            packet.payload()
        };
        let in_stream = flow.as_ref().and_then(|f| f.offset);
        if !payload.is_empty() && !again {
            for table in plan.payload_tables(rules, payload.len()) {
                work.scan_part(rules, table, &plan, (payload, 0, 0));
            }
            if ends.class == Class::Tcp && in_stream.is_none() {
                for table in plan.stream_tables(rules) {
                    work.scan_part(rules, table, &plan, (payload, 0, 0));
                }
                work.consider(&plan.streams, |_| true);
            }
        }
        let candidates = work.take();
        let before = std::mem::take(&mut work.bits);
        for index in candidates.iter().copied() {
            let rule = &rules.compiled[index as usize];
            if again && held(&rule.tests, &before) {
                continue;
            }
            if rule.payload.is_some() && payload.is_empty() {
                continue;
            }
            let end = in_stream.map(|o| o + payload.len() as u64);
            if let (Kind::PayloadAndStream, Some(end), Some(flow)) = (rule.kind, end, &flow)
                && end <= flow.state.inspected[flow.direction.index()]
            {
                // Sent again: the stream was decided on.
                continue;
            }
            if rule.kind == Kind::Stream
                && ends.class == Class::Tcp
                && rules.rule(index).flow.stream == Some(true)
            {
                // What is in no stream is not asked by `only_stream`.
                continue;
            }
            let waits = matches!(rule.kind, Kind::Transaction(_));
            let asked = waits
                || hold(&rule.tests, flow.as_ref().map(|f| &*f.state))
                    && rule.checks.iter().all(|c| c.holds(&scene));
            if !asked {
                continue;
            }
            work.counts.evaluations += 1;
            if rule.captures {
                work.scratch.captured.clear();
            }
            work.clear();
            if let Some(program) = &rule.payload {
                let subject = Subject::whole(payload);
                if !work.decide((rules, index), program, &subject) {
                    continue;
                }
                work.payload_asks();
            }
            if waits {
                if let Some(flow) = &mut flow {
                    work.hold(flow.state, index, flow.direction);
                }
                continue;
            }
            let held = rule.groups.iter().all(|g| {
                work.group(
                    (rules, index),
                    g,
                    &mut header_buffer(packet, g.buffer).into_iter(),
                )
            });
            if !held {
                continue;
            }
            if !rule.scripts.is_empty() {
                let shown = Shown {
                    packet: Some(packet),
                    time: packet.time,
                    number: packet.number,
                    flow: view.map(|v| v.facts(packet.time)),
                    transaction: flow.as_ref().and_then(|f| f.transaction),
                    direction,
                    bytes: payload,
                    streamed: false,
                    counters: &[],
                    numbers: &[],
                };
                let state = flow.as_mut().map(|f| &mut *f.state);
                if !work.scripted((rules, index), state, shown) {
                    continue;
                }
            }
            // Data of a SYN may be part of the stream all the same: once is enough.
            let end =
                end.or((rule.kind == Kind::Stream && ends.syn).then_some(payload.len() as u64));
            if let (Kind::PayloadAndStream | Kind::Stream, Some(end), Some(flow)) =
                (rule.kind, end, &mut flow)
            {
                work.fired(flow.state, index, flow.direction, end);
            }
            // A rule that asks about the packet itself is about no other packet.
            let whole_flow = rule.whole_flow;
            let found = Found {
                time: packet.time,
                transaction: None,
                file: None,
                frame: None,
                stream: false,
                whole_flow,
                direction,
            };
            work.matched(
                rules,
                index,
                found,
                &ends,
                view,
                flow.as_mut().map(|f| &mut *f.state),
            );
        }
        work.give_back(candidates);
        work.bits = before;
        if let Some(flow) = flow {
            flow.state.plans[flow.direction.index()] = plan::hold(plan);
        }
    }

    /// Inspects a piece of a stream.
    pub fn stream(
        &mut self,
        at: &Moment<'_>,
        view: &FlowView,
        state: &mut FlowState,
        piece: &Piece<'_>,
    ) {
        let rules = &*self.rules;
        let work = &mut self.work;
        work.begin(at.number);
        if state.passed {
            work.counts.passed += 1;
            return;
        }
        work.counts.pieces += 1;
        let d = piece.direction.index();
        let ends = Ends::of_flow(view, piece.direction);
        let scene = Scene {
            packet: at.packet,
            time: at.time,
            events: Events::default(),
            flow: Some(view),
            direction: Some(piece.direction),
            transaction: None,
        };
        let direction = Some(piece.direction);
        let plan = (work.met).plan(state.plans[d].take(), rules, &ends, direction);
        let fresh = piece.fresh.min(piece.window.len());
        let end = piece.base + piece.window.len() as u64;
        work.round();
        for table in plan.stream_tables(rules) {
            let bytes = (piece.window, fresh, piece.base);
            work.scan_part(rules, table, &plan, bytes);
        }
        work.consider(&plan.streams, |_| true);
        // A rule that waits may go on waiting until its pattern has left the window.
        let mut pending = std::mem::take(&mut state.pending[d]);
        pending.retain(|(_, seen)| *seen > piece.base);
        for (rule, _) in &pending {
            work.consider(&[*rule], |rule| plan.has(rule));
        }
        let candidates = work.take();
        for index in candidates.iter().copied() {
            let rule = &rules.compiled[index as usize];
            let waits = matches!(rule.kind, Kind::Transaction(_));
            let asked = waits
                || hold(&rule.tests, Some(state)) && rule.checks.iter().all(|c| c.holds(&scene));
            if !asked {
                continue;
            }
            let Some(program) = &rule.payload else {
                continue;
            };
            work.counts.evaluations += 1;
            if rule.captures {
                work.scratch.captured.clear();
            }
            work.clear();
            let floor = state
                .fired
                .iter()
                .filter(|(r, w, _)| *r == index && *w == piece.direction)
                .map(|(_, _, end)| end.saturating_sub(piece.base) as usize)
                .max()
                .unwrap_or(0);
            let subject = Subject {
                bytes: piece.window,
                base: piece.base,
                fresh: fresh.max(floor),
            };
            let waiting = pending.iter().position(|(r, _)| *r == index);
            // Without a new byte nothing is decided anew that asks for none.
            let old = fresh == piece.window.len() && !program.finds();
            if old || !work.decide((rules, index), program, &subject) {
                if waiting.is_none() && !piece.last {
                    if pending.len() == MOST_PENDING {
                        pending.remove(0);
                        work.counts.pending_dropped += 1;
                    }
                    pending.push((index, end));
                }
                continue;
            }
            if let Some(at) = waiting {
                pending.remove(at);
            }
            if waits {
                work.hold(state, index, piece.direction);
                continue;
            }
            work.payload_asks();
            if !rule.scripts.is_empty() {
                let shown = Shown {
                    packet: at.packet,
                    time: at.time,
                    number: at.number,
                    flow: Some(view.facts(at.time)),
                    transaction: None,
                    direction,
                    bytes: piece.window,
                    streamed: true,
                    counters: &[],
                    numbers: &[],
                };
                if !work.scripted((rules, index), Some(state), shown) {
                    continue;
                }
            }
            let found = Found {
                time: at.time,
                transaction: None,
                file: None,
                frame: None,
                stream: true,
                whole_flow: true,
                direction,
            };
            work.matched(rules, index, found, &ends, Some(view), Some(state));
        }
        work.give_back(candidates);
        state.plans[d] = plan::hold(plan);
        state.pending[d] = pending;
        state.inspected[d] = state.inspected[d].max(end);
        if !state.fired.is_empty() {
            state
                .fired
                .retain(|(_, w, reached)| *w != piece.direction || *reached > end);
        }
    }

    /// A message of a direction is over, and nothing of the next has come: what rules of transactions have found in its bytes is not about the next.
    pub(crate) fn message_over(&self, state: &mut FlowState, direction: Direction, all: bool) {
        if state.held.is_empty() {
            return;
        }
        // Rules about both directions wait for the answer.
        let together = |rule: u32| {
            let rule = self.rules.compiled.get(rule as usize);
            rule.is_some_and(|r| r.kind == Kind::Transaction(When::Together))
        };
        state
            .held
            .retain(|(rule, way)| !all && (*way != direction || together(*rule)));
    }

    /// Inspects those of the named directions of a transaction that became complete since it was given last. `ended`: nothing will follow, so what is not complete is inspected as it is.
    /// For rules that also look at the stream, the pieces up to the end of a complete direction are to be given before.
    pub fn transaction(
        &mut self,
        at: &Moment<'_>,
        view: &FlowView,
        state: &mut FlowState,
        transaction: &mut Transaction,
        sides: &[Direction],
        ended: bool,
    ) {
        self.work.begin(at.number);
        let before = transaction.inspected;
        for direction in sides.iter().copied() {
            let d = direction.index();
            if transaction.inspected[d] {
                continue;
            }
            if !(transaction.complete[d] || ended) {
                if transaction.is_over_window(direction) && !state.passed {
                    self.window(at, view, state, transaction, direction);
                } else if self.rules.hooked && !state.passed {
                    let matched = std::mem::take(&mut transaction.matched);
                    let which = (Some(direction), Least::Hooked);
                    transaction.matched = self.side(at, view, state, transaction, matched, which);
                }
                continue;
            }
            transaction.inspected[d] = true;
            if state.passed {
                self.work.counts.passed += 1;
                continue;
            }
            self.work.counts.transactions += 1;
            let matched = std::mem::take(&mut transaction.matched);
            let least = least(transaction);
            let way = Some(direction);
            transaction.matched = self.side(at, view, state, transaction, matched, (way, least));
        }
        if before != [true; 2] && transaction.inspected == [true; 2] && !state.passed {
            let matched = std::mem::take(&mut transaction.matched);
            let least = least(transaction);
            transaction.matched = self.side(at, view, state, transaction, matched, (None, least));
        }
    }

    /// Inspects what there is of the bodies of a transaction that is not whole, as far as rules may be asked of it.
    pub(crate) fn grown(
        &mut self,
        at: &Moment<'_>,
        view: &FlowView,
        state: &mut FlowState,
        transaction: &mut Transaction,
    ) {
        self.work.begin(at.number);
        for direction in [Direction::ToServer, Direction::ToClient] {
            let d = direction.index();
            let done = transaction.inspected[d] || transaction.complete[d] || state.passed;
            if done || !transaction.has_grown(direction) {
                continue;
            }
            self.work.counts.transactions += 1;
            let least = least(transaction).unfinished();
            let matched = std::mem::take(&mut transaction.matched);
            let way = Some(direction);
            transaction.matched = self.side(at, view, state, transaction, matched, (way, least));
            transaction.looked_at(direction);
        }
    }

    /// Inspects a body of which more is there than is kept, and lets go of its front. The first time all rules are decided, as at a limit.
    fn window(
        &mut self,
        at: &Moment<'_>,
        view: &FlowView,
        state: &mut FlowState,
        transaction: &mut Transaction,
        direction: Direction,
    ) {
        self.work.counts.transactions += 1;
        let least = least(transaction);
        let matched = std::mem::take(&mut transaction.matched);
        let way = Some(direction);
        transaction.matched = self.side(at, view, state, transaction, matched, (way, least));
        transaction.looked_at(direction);
        transaction.slide(direction);
    }

    /// Decides the rules of one direction of a transaction, or (`None`) those that look at both. `matched` are those that did before, and is returned with those that do now.
    fn side(
        &mut self,
        at: &Moment<'_>,
        view: &FlowView,
        state: &mut FlowState,
        transaction: &Transaction,
        mut matched: Vec<(u32, Option<Direction>)>,
        (side, least): (Option<Direction>, Least),
    ) -> Vec<(u32, Option<Direction>)> {
        let rules = &*self.rules;
        let work = &mut self.work;
        work.round();
        let directions: &[Direction] = match side {
            Some(Direction::ToServer) => &[Direction::ToServer],
            Some(Direction::ToClient) => &[Direction::ToClient],
            None => &[Direction::ToServer, Direction::ToClient],
        };
        let plans = [Direction::ToServer, Direction::ToClient].map(|direction| {
            let ends = Ends {
                app: transaction.app,
                ..Ends::of_flow(view, direction)
            };
            let held = state.plans[direction.index()].take();
            (work.met).plan(held, rules, &ends, Some(direction))
        });
        for direction in directions.iter().copied() {
            let list = match side {
                Some(d) => d.index(),
                None => TOGETHER + direction.index(),
            };
            let leads = &rules.leads[list];
            let gate = |rule: u32| {
                let asked = rules.compiled.get(rule as usize);
                asked.is_some_and(|c| plans[way(side, c).index()].has(rule))
            };
            work.consider(&leads.always, gate);
            let mut all = transaction.all().peekable();
            while let Some((buffer, way, bytes)) = all.next() {
                if way != direction {
                    continue;
                }
                // The same bytes are a file.
                let twice = all.peek().is_some_and(|(also, to, same)| {
                    *also == Buffer::FileData && *to == way && std::ptr::eq(*same, bytes)
                });
                if let Some(bare) = leads.bare.get(buffer as usize) {
                    work.consider(bare, gate);
                }
                let Some(scans) = leads.scans.get(buffer as usize) else {
                    continue;
                };
                for scan in scans {
                    let scan = &rules.scans[*scan as usize];
                    if scan.joined && twice {
                        continue;
                    }
                    if scan.changes.is_empty() {
                        work.scan(scan, bytes, gate);
                        continue;
                    }
                    let mut changed = std::mem::take(&mut work.changed);
                    if let Some(bytes) =
                        change(&scan.changes, bytes, &mut changed, &mut work.scripts)
                    {
                        work.scan(scan, bytes, gate);
                    }
                    work.changed = changed;
                }
            }
        }
        let candidates = work.take();
        for index in candidates.iter().copied() {
            let rule = &rules.compiled[index as usize];
            let may = match least {
                Least::All => true,
                Least::Hooked => rule.hooked,
                Least::Beginning => rule.growth >= Growth::Beginning,
                Least::Part => rule.growth == Growth::Part,
                // What is left of the bodies is only their end.
                Least::End => matches!(rule.growth, Growth::None | Growth::Part),
            };
            if !may {
                continue;
            }
            let direction = way(side, rule);
            let scene = Scene {
                packet: at.packet,
                time: at.time,
                events: Events::default(),
                flow: Some(view),
                direction: Some(direction),
                transaction: Some(transaction),
            };
            // Decided anew, as more of it came; of events, once is enough.
            let before =
                |(r, s): &(u32, Option<Direction>)| *r == index && (*s == side || rule.of_events);
            if matched.iter().any(before) {
                continue;
            }
            if !hold(&rule.tests, Some(state))
                || !hold_of(&rule.tests, state, transaction.id)
                || !rule.checks.iter().all(|c| c.holds(&scene))
            {
                continue;
            }
            if rule.payload.is_some() {
                // Of a rule about one direction at a time the bytes are of that one, too.
                let right = |w: Direction| side.is_none_or(|d| d == w);
                if !state.held.iter().any(|(r, w)| *r == index && right(*w)) {
                    continue;
                }
            }
            work.counts.evaluations += 1;
            if rule.captures {
                work.scratch.captured.clear();
            }
            work.clear();
            let held = rule.groups.iter().all(|group| {
                if is_of_packets(group.buffer) {
                    let bytes = at.packet.and_then(|p| header_buffer(p, group.buffer));
                    return work.group((rules, index), group, &mut bytes.into_iter());
                }
                // Of a rule of one direction every buffer is of that direction.
                let way = match side.or(group.way) {
                    Some(d) => d,
                    None => match group.buffer.sides() {
                        crate::buffer::Sides::Request => Direction::ToServer,
                        crate::buffer::Sides::Response => Direction::ToClient,
                        crate::buffer::Sides::Both => direction,
                    },
                };
                if group.absent.is_some() && !transaction.may_lack(way) {
                    return false;
                }
                work.scratch.little =
                    group.buffer == Buffer::DcerpcStub && *way.of(&transaction.little);
                work.group(
                    (rules, index),
                    group,
                    &mut transaction.get(group.buffer, way),
                )
            });
            work.scratch.little = false;
            if !held {
                continue;
            }
            if !rule.scripts.is_empty() {
                let shown = Shown {
                    packet: at.packet,
                    time: at.time,
                    number: at.number,
                    flow: Some(view.facts(at.time)),
                    transaction: Some(transaction),
                    direction: Some(direction),
                    bytes: &[],
                    streamed: true,
                    counters: &[],
                    numbers: &[],
                };
                if !work.scripted((rules, index), Some(state), shown) {
                    continue;
                }
            }
            let found = Found {
                time: at.time,
                transaction: Some(transaction.id),
                file: None,
                frame: None,
                stream: false,
                whole_flow: true,
                direction: Some(direction),
            };
            let ends = Ends {
                app: transaction.app,
                ..Ends::of_flow(view, direction)
            };
            // A rule about names of files is about each file that has such a name, and such contents: those of another file of the message are not its own.
            let about = |buffer| rule.groups.iter().filter(move |g| g.buffer == buffer);
            let (mut named, mut again) = (false, false);
            // What is asked of sets for the rule is asked for each of its files.
            let asks = std::mem::take(&mut work.asks);
            let of_files = [Buffer::FileName, Buffer::FileMagic];
            if of_files.iter().any(|b| about(*b).next().is_some()) {
                for (file, number) in transaction.files.iter().zip(0..) {
                    let mut fits =
                        |g| work.group((rules, index), g, &mut std::iter::once(&file.name[..]));
                    if file.direction != direction || !about(Buffer::FileName).all(&mut fits) {
                        continue;
                    }
                    named = true;
                    let magic = file.magic.as_deref().map(str::as_bytes);
                    let mut fits = |g| {
                        magic
                            .is_some_and(|m| work.group((rules, index), g, &mut std::iter::once(m)))
                    };
                    if !about(Buffer::FileMagic).all(&mut fits) {
                        continue;
                    }
                    let bytes = transaction.contents(file);
                    let mut fits = |g| {
                        bytes.is_none_or(|b| work.group((rules, index), g, &mut std::iter::once(b)))
                    };
                    if !about(Buffer::FileData).all(&mut fits) {
                        continue;
                    }
                    let found = Found {
                        file: Some(number),
                        ..found
                    };
                    again = true;
                    work.asks.clone_from(&asks);
                    work.matched(rules, index, found, &ends, Some(view), Some(state));
                }
            }
            // One about a frame is about each that it holds for.
            let mut asked = rule.groups.iter().filter(|g| g.buffer.frame().is_some());
            if let (Some(group), None, false) = (asked.next(), asked.next(), named) {
                for ((of, bytes), number) in transaction.frames().zip(0..) {
                    let right = of.buffer == group.buffer && side.is_none_or(|d| d == of.direction);
                    let mut one = std::iter::once(bytes);
                    if !right || !work.group((rules, index), group, &mut one) {
                        continue;
                    }
                    let found = Found {
                        frame: Some(number),
                        ..found
                    };
                    again = true;
                    work.asks.clone_from(&asks);
                    work.matched(rules, index, found, &ends, Some(view), Some(state));
                }
            }
            if named && !again {
                continue;
            }
            matched.push((index, side));
            if again {
                continue;
            }
            work.asks = asks;
            work.matched(rules, index, found, &ends, Some(view), Some(state));
        }
        work.give_back(candidates);
        state.plans = plans.map(plan::hold);
        matched
    }
}

/// Which rules may be asked of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Least {
    /// All: what it has is whole, or all that will be looked at.
    All,
    /// Those with scripts that wait for a state.
    Hooked,
    /// Those that may be asked of the beginning of a body.
    Beginning,
    /// Those that may be asked of any part of it.
    Part,
    /// Those, and those that ask nothing of bodies.
    End,
}

impl Least {
    /// The same of a transaction that is not whole.
    fn unfinished(self) -> Least {
        match self {
            Least::All | Least::Hooked | Least::Beginning => Least::Beginning,
            Least::Part | Least::End => Least::Part,
        }
    }
}

/// Of a transaction whose bodies lost their front only those that do not miss it.
fn least(transaction: &Transaction) -> Least {
    match transaction.has_slid() {
        true => Least::End,
        false => Least::All,
    }
}

/// The direction that a rule is about when one side of a transaction is decided, or (`None`) both.
fn way(side: Option<Direction>, rule: &Compiled) -> Direction {
    match (side, rule.gate.to_server) {
        // Events of the answer are events of the whole, and those of the request have been looked at before.
        (Some(Direction::ToClient), Some(true)) if rule.of_events => Direction::ToServer,
        (Some(d), _) => d,
        // Rules of both directions are about the one their flow condition names, else the request.
        (None, Some(false)) => Direction::ToClient,
        (None, _) => Direction::ToServer,
    }
}
