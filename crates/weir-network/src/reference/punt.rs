//! What goes to the helper: of functions of that kind what they select, of subnets with `dhcp` what clients send.

use weir_bpf::abi::Vi;
use weir_packet::Reason;

use super::chain::Fields;
use super::frames::{ETH_IP4, HEADER, ether_type, word16};
use super::{Done, Going, Packet, To};

/// UDP.
const UDP: u8 = 17;

impl Going<'_, '_> {
    pub(super) fn punt(&mut self, vid: u32, vi: &Vi, packet: Packet) -> Done {
        let tables = self.edge.tables;
        let punt = tables.punts.get(vi.instance as usize);
        let punt = punt.ok_or(Reason::Internal.name())?;
        let (first, count) = (punt.selections as usize, punt.n_selections as usize);
        let selections: Vec<_> = tables.selections.iter().skip(first).take(count).collect();
        let fields = Fields::of(&packet.bytes);
        let is_selected = fields.is_some_and(|fields| {
            selections.is_empty() || selections.iter().any(|one| fields.is_of(one))
        });
        match is_selected {
            true => self.leave(vid, To::Process { vid }, packet),
            false => self.ahead.push_back((vi.onward, packet)),
        }
        Ok(())
    }
}

/// Whether a frame is of a DHCP client (RFC 2131): UDP from port 68 to 67, without options of IPv4, and no fragment.
pub(super) fn is_dhcp(frame: &[u8]) -> bool {
    frame.len() >= HEADER + 20 + 8
        && ether_type(frame) == ETH_IP4
        && frame[HEADER] == 0x45
        && frame[HEADER + 9] == UDP
        && word16(frame, HEADER + 6) & 0x3fff == 0
        && (word16(frame, HEADER + 20), word16(frame, HEADER + 22)) == (68, 67)
}
