//! The firewall: rules that say what may pass before anything is inspected, by tables, in the order they are written. Design: `docs/design/sensor-firewall.md`.
//!
//! There are few such rules, and each packet must be accepted by one: they are asked one after another, without a search for patterns.

use crate::app::{self, Protocol, Transaction};
use crate::buffer::{Buffer, Sides};
use crate::event::Events;
use crate::packet::{Direction, Packet};
use crate::rules::{FirewallRule, Rule, Scope, Verdict};

use super::bits::{hold, hold_of};
use super::check::{Scene, reached};
use super::compile::{Compiled, is_of_packets};
use super::detector::Detector;
use super::ends::{Ends, is_cut};
use super::gate::open;
use super::program::Subject;
use super::ruleset::Ruleset;
use super::tables::StateRule;
use super::work::{Found, Work, header_buffer};
use super::{FlowState, FlowView, Moment, PacketFlow};

/// What the firewall decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ruling {
    /// By which rule; `None`: none accepted it.
    pub rule: Option<u32>,
    /// What.
    pub verdict: Verdict,
    /// Of what.
    pub scope: Scope,
}

/// Tables of rules about packets, in the order in which they are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketTable {
    /// Before the packet's flow is looked up.
    PreFlow,
    /// Before its stream takes it.
    PreStream,
    /// Before it is inspected.
    Filter,
}

impl Ruling {
    /// What becomes of what no rule accepts.
    fn default_of(scope: Scope) -> Ruling {
        Ruling {
            rule: None,
            verdict: Verdict::Drop,
            scope,
        }
    }
}

impl Detector {
    /// Whether rules of the firewall are asked before flows, and before streams.
    pub fn filters_early(&self) -> [bool; 2] {
        let [flow, stream] = &self.rules().firewall.early;
        [!flow.is_empty(), !stream.is_empty()]
    }

    /// Asks the rules of one table of the firewall about a packet. What none accepts is dropped; before its flow, or its stream, it goes on.
    pub fn filter_packet(
        &mut self,
        table: PacketTable,
        packet: &Packet<'_>,
        events: Events,
        mut flow: Option<PacketFlow<'_>>,
    ) -> Ruling {
        let (rules, work) = self.parts();
        let list = match table {
            PacketTable::PreFlow => &rules.firewall.early[0],
            PacketTable::PreStream => &rules.firewall.early[1],
            PacketTable::Filter => &rules.firewall.packets,
        };
        work.begin(packet.number);
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
        let part = packet.ip.as_ref().is_some_and(|ip| ip.fragment);
        let payload = match part || is_cut(packet) || packet.is_carrier() {
            true => &[][..],
            false => packet.payload(),
        };
        for index in list.iter().copied() {
            let Some((compiled, rule, decision)) = of(rules, index) else {
                continue;
            };
            if !may(rules, index, &ends, direction)
                || !open(&compiled.gate, &rule.header, &ends, direction)
            {
                continue;
            }
            let state = flow.as_ref().map(|f| &*f.state);
            if !hold(&compiled.tests, state) || !compiled.checks.iter().all(|c| c.holds(&scene)) {
                continue;
            }
            if compiled.captures {
                work.scratch.captured.clear();
            }
            work.clear();
            if let Some(program) = &compiled.payload
                && (payload.is_empty()
                    || !work.decide((rules, index), program, &Subject::whole(payload)))
            {
                continue;
            }
            let held = compiled.groups.iter().all(|g| {
                let bytes = header_buffer(packet, g.buffer);
                work.group((rules, index), g, &mut bytes.into_iter())
            });
            if !held {
                continue;
            }
            let found = Found {
                time: packet.time,
                transaction: None,
                file: None,
                frame: None,
                stream: false,
                whole_flow: decision.scope == Scope::Flow,
                direction,
            };
            let mut state = flow.as_mut().map(|f| &mut *f.state);
            work.matched(rules, index, found, &ends, view, state.as_deref_mut());
            pass(rules, work, state, decision);
            return Ruling {
                rule: Some(index),
                verdict: decision.verdict,
                scope: decision.scope,
            };
        }
        match table {
            PacketTable::Filter => Ruling::default_of(Scope::Packet),
            PacketTable::PreFlow | PacketTable::PreStream => Ruling {
                rule: None,
                verdict: Verdict::Accept,
                scope: Scope::Hook,
            },
        }
    }

    /// Asks the rules of the firewall about the states that a direction of a transaction has come to since it was asked last, and about the one that it is in. `None`: all are
    /// accepted. What no rule accepts is dropped, with its flow.
    pub fn filter_transaction(
        &mut self,
        at: &Moment<'_>,
        view: &FlowView,
        state: &mut FlowState,
        transaction: &mut Transaction,
        direction: Direction,
    ) -> Option<Ruling> {
        let (rules, work) = self.parts();
        work.begin(at.number);
        let row = app::protocol(transaction.app)?;
        let through = transaction.filtered.through;
        if through || !transaction.has_begun(direction) {
            return None;
        }
        let last = last_state(row, transaction, direction)?;
        let from = *direction.of(&transaction.filtered.from);
        // What has brought nothing new is not asked about again.
        let size = transaction.size_of(direction);
        let before = std::mem::replace(direction.of_mut(&mut transaction.filtered.size), size);
        if from == Some(last) && before == size {
            return None;
        }
        let from = from.unwrap_or(0);
        let table = rules.firewall.of(transaction.app, direction);
        let ends = Ends {
            app: transaction.app,
            ..Ends::of_flow(view, direction)
        };
        for now in from..=last {
            let mut ruling = None;
            for StateRule {
                index,
                state: own,
                before,
            } in table.iter().copied()
            {
                if own != now && !(before && now < own) {
                    continue;
                }
                let Some((compiled, rule, decision)) = of(rules, index) else {
                    continue;
                };
                if !may(rules, index, &ends, Some(direction))
                    || !open(&compiled.gate, &rule.header, &ends, Some(direction))
                {
                    continue;
                }
                if own != now {
                    // Of the states before its own a rule asks nothing.
                    ruling = Some((None, Verdict::Accept, Scope::Hook));
                    break;
                }
                let scene = Scene {
                    packet: at.packet,
                    time: at.time,
                    events: Events::default(),
                    flow: Some(view),
                    direction: Some(direction),
                    transaction: Some(transaction),
                };
                if !hold(&compiled.tests, Some(state))
                    || !hold_of(&compiled.tests, state, transaction.id)
                    || !compiled.checks.iter().all(|c| c.holds(&scene))
                {
                    continue;
                }
                if compiled.captures {
                    work.scratch.captured.clear();
                }
                work.clear();
                let held = (compiled.groups.iter())
                    .all(|group| buffers(work, (rules, index), group, at, transaction, direction));
                work.scratch.little = false;
                if !held {
                    continue;
                }
                // What a rule asks of buffers it says once of a transaction.
                let key = (index, Some(direction));
                let again = !compiled.groups.is_empty() && transaction.matched.contains(&key);
                if !again {
                    transaction.matched.push(key);
                    let found = Found {
                        time: at.time,
                        transaction: Some(transaction.id),
                        file: None,
                        frame: None,
                        stream: false,
                        whole_flow: decision.scope == Scope::Flow,
                        direction: Some(direction),
                    };
                    work.matched(rules, index, found, &ends, Some(view), Some(state));
                }
                pass(rules, work, Some(state), decision);
                ruling = Some((Some(index), decision.verdict, decision.scope));
                break;
            }
            let Some((rule, verdict, scope)) = ruling else {
                return Some(Ruling::default_of(Scope::Flow));
            };
            *direction.of_mut(&mut transaction.filtered.from) = Some(now);
            match (verdict, scope) {
                (Verdict::Accept, Scope::Hook) => {}
                (Verdict::Accept, Scope::Transaction) => {
                    transaction.filtered.through = true;
                    return None;
                }
                _ => {
                    return Some(Ruling {
                        rule,
                        verdict,
                        scope,
                    });
                }
            }
        }
        // The last state is left only with the transaction: it is asked once.
        if transaction.is_over(direction) {
            *direction.of_mut(&mut transaction.filtered.from) = Some(last.saturating_add(1));
        }
        None
    }
}

/// A rule with what it was compiled to.
fn of(rules: &Ruleset, index: u32) -> Option<(&Compiled, &Rule, FirewallRule)> {
    let at = index as usize;
    let (compiled, rule) = (rules.compiled.get(at)?, rules.rules.get(at)?);
    Some((compiled, rule, **rule.firewall.as_ref()?))
}

/// Whether the quick conditions of a rule hold.
fn may(rules: &Ruleset, index: u32, ends: &Ends, direction: Option<Direction>) -> bool {
    let ports = (ends.source.1, ends.destination.1);
    let quick = rules.quick.get(index as usize);
    quick.is_some_and(|q| q.may(ends.class, direction, ends.established, ends.app, ports))
}

/// What a rule lets pass by the inspection.
fn pass(rules: &Ruleset, work: &mut Work, state: Option<&mut FlowState>, decision: FirewallRule) {
    match decision.pass {
        Some(Scope::Flow) => {
            if let Some(state) = state {
                state.passed = true;
            }
        }
        Some(_) => {
            // Rules of the inspection rank behind all of the firewall.
            let last = rules.firewall.count.saturating_sub(1);
            work.packet_passed = Some(work.packet_passed.map_or(last, |p| p.min(last)));
        }
        None => {}
    }
}

/// The last state that a direction of a transaction has come to.
fn last_state(row: &Protocol, transaction: &Transaction, direction: Direction) -> Option<u8> {
    let names = direction.of(&row.states).iter();
    let mut last = None;
    for (name, number) in names.zip(0_u8..) {
        let (_, stage) = row.hook(name)?;
        if !reached(transaction, direction, stage) {
            break;
        }
        last = Some(number);
    }
    last
}

/// Whether one of the instances of a group's buffer fulfils it.
fn buffers(
    work: &mut Work,
    (rules, index): (&Ruleset, u32),
    group: &super::compile::CompiledGroup,
    at: &Moment<'_>,
    transaction: &Transaction,
    direction: Direction,
) -> bool {
    if is_of_packets(group.buffer) {
        let bytes = at.packet.and_then(|p| header_buffer(p, group.buffer));
        return work.group((rules, index), group, &mut bytes.into_iter());
    }
    let way = group.way.unwrap_or(match group.buffer.sides() {
        Sides::Request => Direction::ToServer,
        Sides::Response => Direction::ToClient,
        Sides::Both => direction,
    });
    if group.absent.is_some() && !transaction.may_lack(way) {
        return false;
    }
    work.scratch.little = group.buffer == Buffer::DcerpcStub && *way.of(&transaction.little);
    work.group(
        (rules, index),
        group,
        &mut transaction.get(group.buffer, way),
    )
}
