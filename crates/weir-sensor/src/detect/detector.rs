//! One worker's detection: from packets, pieces and transactions to matches. It owns scratch memory only; what is remembered of flows is in their `FlowState`.

use std::sync::Arc;

use crate::app::{App, MOST_LIVE, Transaction};
use crate::buffer::Buffer;
use crate::event::Events;
use crate::matcher::Hits;
use crate::packet::{Direction, Packet, Transport};

use super::bits::{Arithmetic, BitAction, BitTest, Compare, Operand};
use super::check::Scene;
use super::compile::{Compiled, CompiledGroup, Kind, When, is_of_packets};
use super::ends::{Ends, is_cut};
use super::gate::{Class, open};
use super::lists::TOGETHER;
use super::plan::{self, Met, Plan, Table};
use super::program::{Scratch, Subject};
use super::ruleset::{ByAddress, Ruleset, Scan};
use super::transform::Change;
use super::{EvaluationCounts, FlowState, FlowView, LOOKBACK, Match, Moment, PacketFlow, Piece};

/// Most stream rules of one direction of a flow that wait for the rest of what they want.
const MOST_PENDING: usize = 64;
/// Most rules of a flow whose stream part waits for a transaction.
const MOST_HELD: usize = 64;

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
}

/// Detection of one worker.
#[derive(Debug)]
pub struct Detector {
    rules: Arc<Ruleset>,
    work: Work,
}

#[derive(Debug, Default)]
struct Work {
    hits: Hits,
    scratch: Scratch,
    candidates: Vec<u32>,
    met: Met,
    /// The round that last made a rule a candidate.
    stamps: Vec<u32>,
    round: u32,
    changed: [Vec<u8>; 2],
    matches: Vec<Match>,
    /// Of the current packet: its number, and where its matches begin.
    packet: u64,
    first: usize,
    order: u32,
    /// Rank of the `pass` rule that held for the current packet.
    packet_passed: Option<u32>,
    counts: DetectCounts,
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

    /// The rules.
    pub fn rules(&self) -> &Arc<Ruleset> {
        &self.rules
    }

    /// What was counted so far.
    pub fn counts(&self) -> DetectCounts {
        DetectCounts {
            evaluation: self.work.scratch.counts,
            ..self.work.counts
        }
    }

    /// Matches since the last `clear`, in the order of packets, and of rank in each inspection.
    pub fn matches(&self) -> &[Match] {
        &self.work.matches
    }

    /// Goes on counting from these.
    pub(crate) fn count_from(&mut self, counts: DetectCounts) {
        self.work.counts = counts;
        self.work.scratch.counts = counts.evaluation;
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
    pub fn packet(
        &mut self,
        packet: &Packet<'_>,
        events: Events,
        mut flow: Option<PacketFlow<'_>>,
    ) {
        let rules = &*self.rules;
        let work = &mut self.work;
        work.begin(packet.number);
        if flow.as_ref().is_some_and(|f| f.state.passed) {
            work.counts.passed += 1;
            return;
        }
        work.counts.packets += 1;
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
        if ends.syn {
            work.by_address(&rules.syn, &ends, gate);
        }
        work.consider(&plan.packets, |_| true);
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
        if !payload.is_empty() {
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
        for index in candidates.iter().copied() {
            let rule = &rules.compiled[index as usize];
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
                || tests(rule, flow.as_ref().map(|f| &*f.state))
                    && rule.checks.iter().all(|c| c.holds(&scene));
            if !asked {
                continue;
            }
            work.counts.evaluations += 1;
            if rule.captures {
                work.scratch.captured.clear();
            }
            if let Some(program) = &rule.payload {
                let subject = Subject::whole(payload);
                if !program.holds(&subject, &mut work.scratch) {
                    continue;
                }
            }
            if waits {
                if let Some(flow) = &mut flow {
                    work.hold(flow.state, index, flow.direction);
                }
                continue;
            }
            let held = rule
                .groups
                .iter()
                .all(|g| work.group(g, &mut header_buffer(packet, g.buffer).into_iter()));
            if !held {
                continue;
            }
            if let (Kind::PayloadAndStream, Some(end), Some(flow)) = (rule.kind, end, &mut flow) {
                work.fired(flow.state, index, flow.direction, end);
            }
            let whole_flow = matches!(rule.kind, Kind::Addresses | Kind::App)
                || rule.kind == Kind::Packet && !rule.gate.apps.is_empty();
            let found = Found {
                time: packet.time,
                transaction: None,
                file: None,
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
            let asked =
                waits || tests(rule, Some(state)) && rule.checks.iter().all(|c| c.holds(&scene));
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
            if old || !program.holds(&subject, &mut work.scratch) {
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
            let found = Found {
                time: at.time,
                transaction: None,
                file: None,
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
            if transaction.inspected[d] || !(transaction.complete[d] || ended) {
                continue;
            }
            transaction.inspected[d] = true;
            if state.passed {
                self.work.counts.passed += 1;
                continue;
            }
            self.work.counts.transactions += 1;
            let matched = std::mem::take(&mut transaction.matched);
            transaction.matched = self.side(at, view, state, transaction, matched, Some(direction));
        }
        if before != [true; 2] && transaction.inspected == [true; 2] && !state.passed {
            let matched = std::mem::take(&mut transaction.matched);
            transaction.matched = self.side(at, view, state, transaction, matched, None);
        }
    }

    /// Decides the rules of one direction of a transaction, or (`None`) those that look at both. `matched` are those that did before, and is returned with those that do now.
    fn side(
        &mut self,
        at: &Moment<'_>,
        view: &FlowView,
        state: &mut FlowState,
        transaction: &Transaction,
        mut matched: Vec<(u32, Option<Direction>)>,
        side: Option<Direction>,
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
            for (buffer, way, bytes) in transaction.all() {
                if way != direction {
                    continue;
                }
                if let Some(bare) = leads.bare.get(buffer as usize) {
                    work.consider(bare, gate);
                }
                let Some(scans) = leads.scans.get(buffer as usize) else {
                    continue;
                };
                for scan in scans {
                    let scan = &rules.scans[*scan as usize];
                    if scan.changes.is_empty() {
                        work.scan(scan, bytes, gate);
                        continue;
                    }
                    let mut changed = std::mem::take(&mut work.changed);
                    if let Some(bytes) = change(&scan.changes, bytes, &mut changed) {
                        work.scan(scan, bytes, gate);
                    }
                    work.changed = changed;
                }
            }
        }
        let candidates = work.take();
        for index in candidates.iter().copied() {
            let rule = &rules.compiled[index as usize];
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
            if !tests(rule, Some(state)) || !rule.checks.iter().all(|c| c.holds(&scene)) {
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
            let held = rule.groups.iter().all(|group| {
                if is_of_packets(group.buffer) {
                    let bytes = at.packet.and_then(|p| header_buffer(p, group.buffer));
                    return work.group(group, &mut bytes.into_iter());
                }
                // Of a rule of one direction every buffer is of that direction.
                let way = match side {
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
                work.group(group, &mut transaction.get(group.buffer, way))
            });
            if !held {
                continue;
            }
            let found = Found {
                time: at.time,
                transaction: Some(transaction.id),
                file: None,
                stream: false,
                whole_flow: true,
                direction: Some(direction),
            };
            let ends = Ends {
                app: transaction.app,
                ..Ends::of_flow(view, direction)
            };
            matched.push((index, side));
            // A rule about names of files is about each file that has such a name.
            let names = || rule.groups.iter().filter(|g| g.buffer == Buffer::FileName);
            let mut again = false;
            if names().next().is_some() {
                for (file, number) in transaction.files.iter().zip(0..) {
                    let mut fits = |g| work.group(g, &mut std::iter::once(&file.name[..]));
                    if file.direction == direction && names().all(&mut fits) {
                        let found = Found {
                            file: Some(number),
                            ..found
                        };
                        again = true;
                        work.matched(rules, index, found, &ends, Some(view), Some(state));
                    }
                }
            }
            if again {
                continue;
            }
            work.matched(rules, index, found, &ends, Some(view), Some(state));
        }
        work.give_back(candidates);
        state.plans = plans.map(plan::hold);
        matched
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

/// Circumstances of a match.
#[derive(Clone, Copy)]
struct Found {
    time: u64,
    transaction: Option<u64>,
    file: Option<u32>,
    stream: bool,
    whole_flow: bool,
    direction: Option<Direction>,
}

impl Work {
    fn begin(&mut self, number: u64) {
        if self.packet != number {
            self.packet = number;
            self.first = self.matches.len();
            self.order = 0;
            self.packet_passed = None;
        }
    }

    /// A new list of candidates.
    fn round(&mut self) {
        self.round = self.round.wrapping_add(1);
        if self.round == 0 {
            self.stamps.fill(0);
            self.round = 1;
        }
        self.candidates.clear();
    }

    fn consider(&mut self, rules: &[u32], gate: impl Fn(u32) -> bool) {
        for rule in rules {
            let Some(stamp) = self.stamps.get_mut(*rule as usize) else {
                continue;
            };
            if *stamp == self.round {
                continue;
            }
            *stamp = self.round;
            self.counts.candidates += 1;
            if gate(*rule) {
                self.candidates.push(*rule);
            }
        }
    }

    /// Rules that name an end's address, and those that name none.
    fn by_address(&mut self, rules: &ByAddress, ends: &Ends, gate: impl Fn(u32) -> bool) {
        self.consider(rules.source.get(ends.source.0), &gate);
        self.consider(rules.destination.get(ends.destination.0), &gate);
        self.consider(&rules.rest, &gate);
    }

    fn scan(&mut self, scan: &Scan, bytes: &[u8], gate: impl Fn(u32) -> bool) {
        let mut hits = std::mem::take(&mut self.hits);
        hits.clear();
        scan.matcher.scan(bytes, &mut hits);
        for pattern in hits.ids() {
            self.consider(scan.rules(*pattern), &gate);
        }
        self.hits = hits;
    }

    /// Scans bytes that begin at `base` of their buffer, from `fresh` on, as far as the patterns reach, for those that such traffic may have.
    fn scan_part(
        &mut self,
        rules: &Ruleset,
        table: &Table,
        plan: &Plan,
        (bytes, fresh, base): (&[u8], usize, u64),
    ) {
        let Some(scan) = rules.scans.get(table.scan as usize) else {
            return;
        };
        let reach = (scan.reach as u64).saturating_sub(base);
        let end = usize::try_from(reach).map_or(bytes.len(), |r| r.min(bytes.len()));
        // A pattern may have begun in the bytes before.
        let from = fresh.saturating_sub(scan.longest.saturating_sub(1));
        if from >= end {
            return;
        }
        let bytes = &bytes[from..end];
        let mut hits = std::mem::take(&mut self.hits);
        hits.clear();
        match &table.part {
            Some(part) => scan.matcher.scan_part(part, bytes, &mut hits),
            None => scan.matcher.scan(bytes, &mut hits),
        }
        for pattern in hits.ids() {
            self.consider(scan.rules(*pattern), |rule| plan.has(rule));
        }
        self.hits = hits;
    }

    /// The candidates by rank.
    fn take(&mut self) -> Vec<u32> {
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.sort_unstable();
        candidates
    }

    fn give_back(&mut self, mut candidates: Vec<u32>) {
        candidates.clear();
        self.candidates = candidates;
    }

    fn hold(&mut self, state: &mut FlowState, rule: u32, direction: Direction) {
        if state.held.contains(&(rule, direction)) {
            return;
        }
        if state.held.len() == MOST_HELD {
            state.held.remove(0);
            self.counts.held_dropped += 1;
        }
        state.held.push((rule, direction));
    }

    /// Notes that a rule alerted on a packet, up to this offset of its stream.
    fn fired(&mut self, state: &mut FlowState, rule: u32, direction: Direction, end: u64) {
        let same = |(r, w, _): &&mut (u32, Direction, u64)| *r == rule && *w == direction;
        if let Some(known) = state.fired.iter_mut().find(same) {
            known.2 = known.2.max(end);
            return;
        }
        if state.fired.len() == MOST_PENDING {
            state.fired.remove(0);
            self.counts.pending_dropped += 1;
        }
        state.fired.push((rule, direction, end));
    }

    /// Whether one of the instances of a buffer fulfils a group, or its absence does.
    fn group(&mut self, group: &CompiledGroup, instances: &mut dyn Iterator<Item = &[u8]>) -> bool {
        let mut there = false;
        for bytes in instances {
            let mut changed = std::mem::take(&mut self.changed);
            let bytes = if group.changes.is_empty() {
                Some(bytes)
            } else {
                change(&group.changes, bytes, &mut changed)
            };
            let held = bytes.is_some_and(|bytes| {
                there = true;
                group.absent != Some(false)
                    && group
                        .program
                        .holds(&Subject::whole(bytes), &mut self.scratch)
            });
            self.changed = changed;
            if held {
                return true;
            }
        }
        !there && group.absent.is_some()
    }

    fn matched(
        &mut self,
        rules: &Ruleset,
        index: u32,
        found: Found,
        ends: &Ends,
        view: Option<&FlowView>,
        state: Option<&mut FlowState>,
    ) {
        let rule = &rules.compiled[index as usize];
        self.counts.matches += 1;
        if let Some(state) = state {
            for action in &rule.actions {
                act(action, state, rules.flow_bits, found.transaction);
            }
            if rule.captures && !self.scratch.captured.is_empty() {
                let captured = std::mem::take(&mut self.scratch.captured);
                let said = state.said.get_or_insert_default();
                said.keep(captured, index, self.packet);
            }
            if rule.pass && found.whole_flow {
                state.passed = true;
            }
        }
        if rule.pass {
            // Rules that rank before it have been decided; those after it are void for this packet.
            let first = self.first.min(self.matches.len());
            let mut kept = first;
            for i in first..self.matches.len() {
                if self.matches[i].rule < index {
                    self.matches.swap(kept, i);
                    kept += 1;
                }
            }
            self.matches.truncate(kept);
            self.packet_passed = Some(self.packet_passed.map_or(index, |p| p.min(index)));
            if rule.untold {
                return;
            }
        }
        if self.packet_passed.is_some_and(|p| p < index) || rule.silent && !rule.reaches_over_flows
        {
            return;
        }
        self.matches.push(Match {
            rule: index,
            packet: self.packet,
            order: self.order,
            time: found.time,
            flow: view.map(|v| v.id),
            direction: found.direction,
            source: ends.source,
            destination: ends.destination,
            protocol: ends.protocol,
            app: ends.app,
            transaction: found.transaction,
            file: found.file,
            stream: found.stream,
            whole_flow: found.whole_flow,
        });
        self.order += 1;
    }
}

/// Whether bits and counters of the flow are as a rule wants them. Without a flow no bit is set.
fn tests(rule: &Compiled, state: Option<&FlowState>) -> bool {
    let value = |operand: &Operand| match operand {
        Operand::Number(n) => Some(*n),
        Operand::Counter(c) => counter(state, *c),
    };
    rule.tests.iter().all(|test| match test {
        BitTest::Set(bits, wanted) => bits.iter().any(|b| is_set(state, *b)) == *wanted,
        BitTest::Exists(name, wanted) => counter(state, *name).is_some() == *wanted,
        BitTest::Compare(name, how, with) => match (counter(state, *name), value(with)) {
            (Some(a), Some(b)) => match how {
                Compare::Less => a < b,
                Compare::LessEqual => a <= b,
                Compare::Greater => a > b,
                Compare::GreaterEqual => a >= b,
                Compare::Equal => a == b,
                Compare::NotEqual => a != b,
            },
            _ => false,
        },
    })
}

fn is_set(state: Option<&FlowState>, bit: u32) -> bool {
    let word = state.and_then(|s| s.bits.get(bit as usize / 64)).copied();
    word.unwrap_or(0) >> (bit % 64) & 1 != 0
}

fn counter(state: Option<&FlowState>, name: u16) -> Option<u32> {
    let counters = &state?.counters;
    counters.iter().find(|(n, _)| *n == name).map(|(_, v)| *v)
}

fn act(action: &BitAction, state: &mut FlowState, bits: usize, transaction: Option<u64>) {
    let mut change = |bit: u32, how: fn(&mut u64, u64)| {
        state.bits.resize(bits.div_ceil(64), 0);
        if let Some(word) = state.bits.get_mut(bit as usize / 64) {
            how(word, 1 << (bit % 64));
        }
    };
    match action {
        BitAction::Set(bit) => change(*bit, |w, b| *w |= b),
        BitAction::Unset(bit) => change(*bit, |w, b| *w &= !b),
        BitAction::Toggle(bit) => change(*bit, |w, b| *w ^= b),
        BitAction::Unlog => {
            let list = &mut state.said.get_or_insert_default().unlogged;
            if let Some(id) = transaction.filter(|id| !list.contains(id)) {
                if list.len() == MOST_LIVE {
                    // No more are live: it is over.
                    list.remove(0);
                }
                list.push(id);
            }
        }
        BitAction::Counter(name, how, by) => {
            let by = match by {
                Operand::Number(n) => *n,
                Operand::Counter(c) => counter(Some(state), *c).unwrap_or(0),
            };
            let at = state.counters.iter().position(|(n, _)| n == name);
            // Nothing is taken from a counter that is not there: it still is not.
            if at.is_none() && matches!(how, Arithmetic::Subtract) {
                return;
            }
            let at = at.unwrap_or_else(|| {
                state.counters.push((*name, 0));
                state.counters.len() - 1
            });
            let value = &mut state.counters[at].1;
            *value = match how {
                Arithmetic::Set => by,
                Arithmetic::Add => value.saturating_add(by),
                Arithmetic::Subtract => value.saturating_sub(by),
            };
        }
    }
}

/// Runs a chain of transforms; the result is in one of the two buffers. `None`: there is no buffer after them.
fn change<'a>(changes: &[Change], bytes: &[u8], [a, b]: &'a mut [Vec<u8>; 2]) -> Option<&'a [u8]> {
    let (mut now, mut next) = (a, b);
    now.clear();
    let mut first = true;
    for change in changes {
        let there = if first {
            change.apply(bytes, now)
        } else {
            let there = change.apply(now, next);
            std::mem::swap(&mut now, &mut next);
            there
        };
        if !there {
            return None;
        }
        first = false;
    }
    Some(now)
}

/// The bytes of a packet that a buffer shows.
fn header_buffer<'a>(packet: &'a Packet<'_>, buffer: Buffer) -> Option<&'a [u8]> {
    let ip = packet.ip.as_ref();
    let range = match (buffer, &packet.transport) {
        (Buffer::Payload, _) => packet.payload.clone(),
        (Buffer::Ipv4Header, _) => ip.filter(|i| i.source.is_ipv4())?.header.clone(),
        (Buffer::Ipv6Header, _) => ip.filter(|i| i.source.is_ipv6())?.header.clone(),
        (Buffer::IpSource | Buffer::IpDestination, _) => {
            let ip = ip?;
            let at = ip.header.start;
            let (from, length) = if ip.source.is_ipv4() {
                (at + 12, 4)
            } else {
                (at + 8, 16)
            };
            let from = from
                + if buffer == Buffer::IpSource {
                    0
                } else {
                    length
                };
            from..from + length
        }
        (Buffer::TcpHeader, Transport::Tcp(t)) => t.header.clone(),
        (Buffer::UdpHeader, Transport::Udp { header, .. }) => *header..*header + 8,
        (
            Buffer::Icmpv4Header,
            Transport::Icmp {
                v6: false, header, ..
            },
        )
        | (
            Buffer::Icmpv6Header,
            Transport::Icmp {
                v6: true, header, ..
            },
        ) => *header..packet.payload.start.max(*header),
        _ => return None,
    };
    packet.data.get(range)
}

const _: () = assert!(LOOKBACK >= 255, "patterns reach back so far");
