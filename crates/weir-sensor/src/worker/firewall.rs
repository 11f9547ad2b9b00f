//! The firewall in front of the inspection: a packet that no rule accepts is dropped, and with it what it would have told the inspection.

use super::prevention::{Reason, Walled};
use super::{FlowAnalysis, PipelineState};
use crate::detect::{FlowView, Moment, PacketFlow, PacketTable};
use crate::event::Events;
use crate::flow::{self, Flow};
use crate::packet::{Direction, Packet};
use crate::rules::{Scope, Verdict};

impl PipelineState {
    /// Whether a packet goes on to its flow.
    pub(super) fn wall_before_flow(&mut self, packet: &Packet<'_>) -> bool {
        if !self.prevention.has_firewall() || !self.detector.filters_early()[0] {
            return true;
        }
        let table = PacketTable::PreFlow;
        let ruling = (self.detector).filter_packet(table, packet, packet.events, None);
        if ruling.verdict == Verdict::Accept && ruling.scope != Scope::Hook {
            self.prevention.accept();
        }
        self.prevention.rule(&ruling, Reason::PreFlow, None)
    }

    /// Whether a packet goes on from its flow to its stream.
    pub(super) fn wall_before_stream(
        &mut self,
        packet: &Packet<'_>,
        flow: &mut Flow<FlowAnalysis>,
        direction: Direction,
    ) -> bool {
        let asked = self.prevention.has_firewall()
            && self.detector.filters_early()[1]
            && flow.extra.standing.walled.is_none()
            && !self.prevention.is_accepted();
        if !asked {
            return true;
        }
        self.renew(&mut flow.extra);
        let view = self.view(flow, flow.info.state != flow::State::New);
        let in_flow = PacketFlow {
            view: &view,
            state: &mut flow.extra.state,
            direction,
            offset: None,
            transaction: None,
        };
        let table = PacketTable::PreStream;
        let ruling = (self.detector).filter_packet(table, packet, packet.events, Some(in_flow));
        if ruling.verdict == Verdict::Accept && ruling.scope == Scope::Packet {
            self.prevention.accept();
        }
        let standing = &mut flow.extra.standing;
        self.prevention
            .rule(&ruling, Reason::PreStream, Some(standing))
    }

    /// Whether a packet of no flow is inspected.
    pub(super) fn wall(&mut self, packet: &Packet<'_>, events: Events) -> bool {
        if !self.prevention.has_firewall() || self.prevention.is_accepted() {
            return true;
        }
        let table = PacketTable::Filter;
        let ruling = self.detector.filter_packet(table, packet, events, None);
        self.prevention.rule(&ruling, Reason::FirewallPacket, None)
    }

    /// Whether a packet of a flow is inspected: it is accepted, and so is all that transactions have come to by it.
    pub(super) fn wall_flow(
        &mut self,
        packet: &Packet<'_>,
        events: Events,
        (view, offset): (&FlowView, Option<u64>),
        extra: &mut FlowAnalysis,
        direction: Direction,
    ) -> bool {
        let accepted =
            extra.standing.walled == Some(Walled::Accepted) || self.prevention.is_accepted();
        if !self.prevention.has_firewall() || accepted {
            return true;
        }
        let in_flow = PacketFlow {
            view,
            state: &mut extra.state,
            direction,
            offset,
            transaction: None,
        };
        let table = PacketTable::Filter;
        let ruling = (self.detector).filter_packet(table, packet, events, Some(in_flow));
        let standing = &mut extra.standing;
        if !(self.prevention).rule(&ruling, Reason::FirewallPacket, Some(standing)) {
            return false;
        }
        if ruling.scope != Scope::Hook || !extra.changed[direction.index()] {
            return true;
        }
        let moment = Moment {
            time: packet.time,
            number: packet.number,
            packet: Some(packet),
        };
        let Some(talk) = &mut extra.talk else {
            return true;
        };
        for transaction in &mut talk.transactions.live {
            let state = &mut extra.state;
            let found =
                (self.detector).filter_transaction(&moment, view, state, transaction, direction);
            let Some(ruling) = found else { continue };
            let standing = &mut extra.standing;
            if !(self.prevention).rule(&ruling, Reason::FirewallState, Some(standing)) {
                return false;
            }
            // The packet, or the flow, is accepted whatever else is in it.
            return true;
        }
        true
    }
}
