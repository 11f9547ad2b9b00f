//! The firewall in front of the inspection: a packet that no rule accepts is dropped, and with it what it would have told the inspection.

use super::prevention::{Reason, Walled};
use super::{FlowAnalysis, PipelineState};
use crate::detect::{FlowView, Moment, PacketFlow};
use crate::event::Events;
use crate::packet::{Direction, Packet};
use crate::rules::Scope;

impl PipelineState {
    /// Whether a packet of no flow is inspected.
    pub(super) fn wall(&mut self, packet: &Packet<'_>, events: Events) -> bool {
        if !self.prevention.has_firewall() {
            return true;
        }
        let ruling = self.detector.filter_packet(packet, events, None);
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
        if !self.prevention.has_firewall() || extra.standing.walled == Some(Walled::Accepted) {
            return true;
        }
        let in_flow = PacketFlow {
            view,
            state: &mut extra.state,
            direction,
            offset,
            transaction: None,
        };
        let ruling = self.detector.filter_packet(packet, events, Some(in_flow));
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
