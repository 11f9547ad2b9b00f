//! Scratch memory of one worker's detection, and what packets, pieces and transactions have in common: from patterns to candidates, and from a rule that holds to a match.

use std::collections::BTreeMap;

use crate::buffer::Buffer;
use crate::matcher::Hits;
use crate::packet::{Direction, Packet, Transport};
use crate::rules::{Action, Scope};

use super::compile::CompiledGroup;
use super::detector::DetectCounts;
use super::ends::Ends;
use super::plan::{Met, Plan, Table};
use super::program::{Ask, Program, Scratch, Subject};
use super::ruleset::{ByAddress, Ruleset, Scan};
use super::script::{Kept, Scripts, Shown};
use super::transform::change;
use super::{FlowState, FlowView, LOOKBACK, Match, RuleCost};

/// Most stream rules of one direction of a flow that wait for the rest of what they want.
pub(super) const MOST_PENDING: usize = 64;
/// Most rules of a flow whose stream part waits for a transaction.
const MOST_HELD: usize = 64;

/// One worker's: what outlives an inspection are matches and counts.
#[derive(Debug, Default)]
pub(super) struct Work {
    pub(super) hits: Hits,
    pub(super) scratch: Scratch,
    pub(super) scripts: Scripts,
    /// What the rule at hand asks of sets that rules change.
    pub(super) asks: Vec<Vec<Vec<Ask>>>,
    pub(super) candidates: Vec<u32>,
    pub(super) met: Met,
    /// The round that last made a rule a candidate.
    pub(super) stamps: Vec<u32>,
    pub(super) round: u32,
    pub(super) changed: [Vec<u8>; 2],
    /// Bits of the flow before its stream was inspected.
    pub(super) bits: Vec<u64>,
    pub(super) matches: Vec<Match>,
    /// Of the current packet: its number, and where its matches begin.
    pub(super) packet: u64,
    pub(super) first: usize,
    pub(super) order: u32,
    /// Rank of the `pass` rule that held for the current packet.
    pub(super) packet_passed: Option<u32>,
    pub(super) counts: DetectCounts,
    /// By generator and number of the rule: how often it was given up at a limit.
    pub(super) limited: BTreeMap<(u32, u32), u64>,
    /// By the same: what it cost, if that is asked for.
    pub(super) costs: BTreeMap<(u32, u32), RuleCost>,
}

/// Circumstances of a match.
#[derive(Clone, Copy)]
pub(super) struct Found {
    pub(super) time: u64,
    pub(super) transaction: Option<u64>,
    pub(super) file: Option<u32>,
    pub(super) frame: Option<u32>,
    pub(super) stream: bool,
    pub(super) whole_flow: bool,
    pub(super) direction: Option<Direction>,
}

impl Work {
    pub(super) fn begin(&mut self, number: u64) {
        if self.packet != number {
            self.packet = number;
            self.first = self.matches.len();
            self.order = 0;
            self.packet_passed = None;
        }
    }

    /// A new list of candidates.
    pub(super) fn round(&mut self) {
        self.round = self.round.wrapping_add(1);
        if self.round == 0 {
            self.stamps.fill(0);
            self.round = 1;
        }
        self.candidates.clear();
    }

    pub(super) fn consider(&mut self, rules: &[u32], gate: impl Fn(u32) -> bool) {
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
    pub(super) fn by_address(
        &mut self,
        rules: &ByAddress,
        ends: &Ends,
        gate: impl Fn(u32) -> bool,
    ) {
        self.consider(rules.source.get(ends.source.0), &gate);
        self.consider(rules.destination.get(ends.destination.0), &gate);
        self.consider(&rules.rest, &gate);
    }

    pub(super) fn scan(&mut self, scan: &Scan, bytes: &[u8], gate: impl Fn(u32) -> bool) {
        let mut hits = std::mem::take(&mut self.hits);
        hits.clear();
        let bytes = bytes.get(..scan.reach).unwrap_or(bytes);
        scan.matcher.scan(bytes, &mut hits);
        for pattern in hits.ids() {
            self.consider(scan.rules(*pattern), &gate);
        }
        self.hits = hits;
    }

    /// Scans bytes that begin at `base` of their buffer, from `fresh` on, as far as the patterns reach, for those that such traffic may have.
    pub(super) fn scan_part(
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
    pub(super) fn take(&mut self) -> Vec<u32> {
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.sort_unstable();
        candidates
    }

    pub(super) fn give_back(&mut self, mut candidates: Vec<u32>) {
        candidates.clear();
        self.candidates = candidates;
    }

    pub(super) fn hold(&mut self, state: &mut FlowState, rule: u32, direction: Direction) {
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
    pub(super) fn fired(
        &mut self,
        state: &mut FlowState,
        rule: u32,
        direction: Direction,
        end: u64,
    ) {
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

    /// Whether the conditions of a rule hold of a buffer.
    pub(super) fn decide(
        &mut self,
        (rules, index): (&Ruleset, u32),
        program: &Program,
        subject: &Subject<'_>,
    ) -> bool {
        let before = self.scratch.counts;
        let held = program.holds(subject, &mut self.scratch);
        let given_up = std::mem::take(&mut self.scratch.gave_up);
        if given_up {
            let rule = rules.rule(index);
            *self.limited.entry((rule.gid, rule.sid)).or_default() += 1;
        }
        if rules.profile {
            let rule = rules.rule(index);
            let now = self.scratch.counts;
            let work = now.work - before.work;
            let cost = RuleCost {
                checks: 1,
                held: u64::from(held),
                work,
                expressions: now.pcre_calls - before.pcre_calls,
                given_up: u64::from(given_up),
                most: work,
                most_bytes: subject.bytes.len() as u64,
                most_packet: self.packet,
            };
            self.costs
                .entry((rule.gid, rule.sid))
                .or_default()
                .add(&cost);
        }
        held
    }

    /// Before a rule is decided.
    pub(super) fn clear(&mut self) {
        self.scratch.numbers.clear();
        self.scratch.asked.clear();
        self.asks.clear();
    }

    /// What the payload has asked of sets is asked for the match.
    pub(super) fn payload_asks(&mut self) {
        if !self.scratch.asked.is_empty() {
            self.asks
                .push(vec![std::mem::take(&mut self.scratch.asked)]);
        }
    }

    /// Whether one of the instances of a buffer fulfils a group, or its absence does.
    pub(super) fn group(
        &mut self,
        rule: (&Ruleset, u32),
        group: &CompiledGroup,
        instances: &mut dyn Iterator<Item = &[u8]>,
    ) -> bool {
        let mut there = false;
        let mut asked = Vec::new();
        for bytes in instances {
            let mut changed = std::mem::take(&mut self.changed);
            let bytes = if group.changes.is_empty() {
                Some(bytes)
            } else {
                change(&group.changes, bytes, &mut changed, &mut self.scripts)
            };
            let held = bytes.is_some_and(|bytes| {
                there = true;
                group.absent != Some(false)
                    && self.decide(rule, &group.program, &Subject::whole(bytes))
            });
            self.changed = changed;
            if held && !self.scratch.asked.is_empty() {
                // The next one may hold where this one does not.
                asked.push(std::mem::take(&mut self.scratch.asked));
                continue;
            }
            if held {
                return true;
            }
        }
        if !asked.is_empty() {
            self.asks.push(asked);
            return true;
        }
        !there && group.absent.is_some()
    }

    /// Whether the scripts of a rule hold, of which all else does.
    pub(super) fn scripted(
        &mut self,
        (rules, index): (&Ruleset, u32),
        state: Option<&mut FlowState>,
        shown: Shown<'_>,
    ) -> bool {
        let Some(compiled) = rules.compiled.get(index as usize) else {
            return false;
        };
        let numbers = std::mem::take(&mut self.scratch.numbers);
        let shown = Shown {
            numbers: &numbers,
            counters: &rules.counter_names,
            ..shown
        };
        // What the flow keeps is lent for the calls.
        let mut kept: Kept = Default::default();
        let has_flow = state.is_some();
        let mut state = state;
        if let Some(state) = &mut state {
            kept.1 = std::mem::take(&mut state.counters);
            if let Some(said) = &mut state.said {
                kept.0 = std::mem::take(&mut said.flow);
            }
        }
        let lent = has_flow.then_some(&mut kept);
        let held = (self.scripts).hold(rules.rule(index), &compiled.scripts, &shown, lent);
        if let Some(state) = state {
            state.counters = kept.1;
            if !kept.0.is_empty() {
                state.said.get_or_insert_default().flow = kept.0;
            }
        }
        self.scratch.numbers = numbers;
        held
    }

    pub(super) fn matched(
        &mut self,
        rules: &Ruleset,
        index: u32,
        found: Found,
        ends: &Ends,
        view: Option<&FlowView>,
        state: Option<&mut FlowState>,
    ) {
        let rule = &rules.compiled[index as usize];
        let whole_flow = rule.scope.map_or(found.whole_flow, |s| s == Scope::Flow);
        let found = Found {
            whole_flow,
            ..found
        };
        self.counts.matches += 1;
        if let Some(state) = state {
            for action in &rule.actions {
                action.act(state, rules.flow_bits, found.transaction);
            }
            state.bypassed |= rule.bypass;
            if rule.captures && !self.scratch.captured.is_empty() {
                let captured = std::mem::take(&mut self.scratch.captured);
                let said = state.said.get_or_insert_default();
                said.keep(captured, index, self.packet);
            }
            if rule.pass && found.whole_flow {
                // What a rule that ranks before it drops is dropped, and its flow is not passed.
                let first = self.first.min(self.matches.len());
                let dropped = self.matches.iter().skip(first).any(|m| {
                    let before = m.rule < index && m.packet == self.packet;
                    before && matches!(rules.rule(m.rule).action, Action::Drop | Action::Reject)
                });
                state.passed |= !dropped;
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
            frame: found.frame,
            stream: found.stream,
            whole_flow: found.whole_flow,
            asks: self.asks.as_slice().into(),
        });
        self.order += 1;
    }
}

/// The bytes of a packet that a buffer shows.
pub(super) fn header_buffer<'a>(packet: &'a Packet<'_>, buffer: Buffer) -> Option<&'a [u8]> {
    let ip = packet.ip.as_ref();
    let range = match (buffer, &packet.transport) {
        (Buffer::Payload, _) => packet.payload.clone(),
        (Buffer::EtherHeader, _) => {
            let at = packet.ethernet?;
            at..at + 14
        }
        (Buffer::IgmpHeader, _) => packet.igmp()?,
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
