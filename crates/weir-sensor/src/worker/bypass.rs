//! Flows that are let go: who decides it, what of them the source keeps away, and how both are counted.

use super::prevention::{Asked, Fate};
use super::{FlowAnalysis, PipelineState};
use crate::config::Wants;
use crate::flow::{Flow, Info};
use crate::packet::Packet;
use crate::source::KeptAway;

impl PipelineState {
    /// Lets a flow go that was inspected as far as it is to be.
    pub(super) fn let_go(&mut self, packet: &Packet<'_>, extra: &mut FlowAnalysis) {
        let (depth, apps) = &self.bypass;
        let deep = *depth && extra.deep;
        let encrypted = || {
            let talk = extra.talk.as_ref();
            talk.is_some_and(|t| t.is_encrypted() && apps.contains(&t.app()))
        };
        let decided = deep || extra.state.is_bypassed() || encrypted();
        if extra.standing.fate != Fate::Inspected || !decided {
            return;
        }
        extra.standing.fate = Fate::Bypassed;
        extra.standing.let_go = true;
        // The depth was reached by the packet before, which this one acknowledges.
        if deep {
            self.count_let_go(packet, extra);
        }
    }

    pub(super) fn count_let_go(&mut self, packet: &Packet<'_>, extra: &FlowAnalysis) {
        let counts = &mut self.counts.let_go;
        let [packets, bytes] = match extra.asked {
            Asked::KeepsAway(_) => &mut counts.capture,
            Asked::Not | Asked::Reads => &mut counts.local,
        };
        *packets += 1;
        *bytes += packet.data.len() as u64;
    }

    /// Asks the source to keep the packets of a flow away that was let go. Returns whether it does so from now on.
    pub(super) fn keep_away(&mut self, packet: &Packet<'_>, flow: &mut Flow<FlowAnalysis>) -> bool {
        let Some(source) = &self.source else {
            return false;
        };
        let extra = &mut flow.extra;
        if extra.standing.fate != Fate::Bypassed || extra.asked != Asked::Not {
            return false;
        }
        extra.asked = Asked::Reads;
        // A flow that carries others is read for their sake; tagged packets and those that scripts see are wanted one by one.
        let is_wanted = packet.is_carrier()
            || packet.quoted.is_some()
            || self.engine.tags && self.logs.options.tagged
            || self.logs.calls(Wants::Packets);
        if is_wanted {
            return false;
        }
        let Some(number) = source.begin(&flow.info) else {
            return false;
        };
        extra.asked = Asked::KeepsAway(number);
        true
    }

    /// Time of the last packet that the source kept away.
    pub(super) fn last_kept_away(&self, extra: &FlowAnalysis) -> Option<u64> {
        match (&self.source, extra.asked) {
            (Some(source), Asked::KeepsAway(number)) => Some(source.look(number).last),
            _ => None,
        }
    }

    /// The source keeps nothing of a flow away any more; what it did is the flow's.
    pub(super) fn read_again(&mut self, info: &mut Info, extra: &mut FlowAnalysis) {
        let (Some(source), Asked::KeepsAway(number)) = (&self.source, extra.asked) else {
            return;
        };
        extra.asked = Asked::Reads;
        extra.kept_away = true;
        let KeptAway {
            packets,
            bytes,
            last,
        } = source.end(number);
        for d in 0..2 {
            info.packets[d] += packets[d];
            info.bytes[d] += bytes[d];
        }
        info.last = info.last.max(last);
        let [all, all_bytes] = &mut self.counts.let_go.kept_away;
        *all += packets.iter().sum::<u64>();
        *all_bytes += bytes.iter().sum::<u64>();
    }
}
