//! Another handshake between the ports of a session that goes on.

use super::{Segment, Session};
use crate::packet::{Direction, Packet, Tcp, flag};
use crate::stream::{Reassembler, Sink};

/// A handshake between the ports of a session that goes on: who is asked lost his end of it, or the packets that closed it were not seen. A SYN alone proves nothing: an end that
/// still has the session asks back (RFC 5961, section 4), so that the other end answers and the first one confirms before the old session is given up.
#[derive(Clone, Debug)]
pub(crate) struct Again {
    /// Who opens it, as a direction of the old session.
    pub(crate) opener: Direction,
    syn: Tcp,
    /// The SYN/ACK.
    answer: Option<Tcp>,
    /// Times of both.
    times: [u64; 2],
    /// Where both directions of the old session were at the SYN: one that goes on is not over.
    at: [(i64, i64); 2],
    /// Number of the SYN's packet, and time of the one before it.
    pub(crate) number: u64,
    pub(crate) before: u64,
    /// Packets and bytes of it that the old session was counted, by direction of that.
    pub(crate) packets: [u64; 2],
    pub(crate) bytes: [u64; 2],
}

impl Again {
    /// Time of its SYN.
    pub(crate) fn time(&self) -> u64 {
        self.times[0]
    }
}

impl Reassembler {
    /// Begins a session with the SYN and the SYN/ACK that came while another one was there.
    pub(crate) fn resume(&mut self, session: &mut Session, again: &Again, sink: &mut impl Sink) {
        self.with(session, sink, |session, tools, sink| {
            let both = [Some(&again.syn), again.answer.as_ref()];
            let ways = [Direction::ToServer, Direction::ToClient];
            for ((tcp, direction), time) in both.into_iter().zip(ways).zip(again.times) {
                let Some(tcp) = tcp else { continue };
                *direction.of_mut(&mut session.flags) |= tcp.flags;
                // Their data is with the old session, as refused.
                let segment = Segment {
                    tcp,
                    payload: &[],
                    direction,
                    time,
                    midstream: false,
                    one_sided: false,
                    doubtful: false,
                };
                *direction.of_mut(&mut session.signatures) = Some(tcp.signature);
                session.take(&segment, tools, sink);
            }
        });
    }
}

impl Session {
    /// Remembers a SYN, or the answer to one that was remembered, which may begin another session with the same ports. `before`: the time of the packet before it.
    #[cold]
    pub(crate) fn ask_again(
        &mut self,
        packet: &Packet<'_>,
        tcp: &Tcp,
        direction: Direction,
        before: u64,
    ) {
        if packet.bad_checksum || tcp.flags & (flag::RST | flag::FIN) != 0 {
            return;
        }
        if tcp.flags & flag::ACK == 0 {
            let side = direction.of(&self.sides);
            let new = !side.known || side.zero != tcp.sequence.wrapping_add(1);
            if !new || !self.state.is_established() || self.state.is_over() {
                return;
            }
            let known = |a: &Again| (a.opener, a.syn.sequence) == (direction, tcp.sequence);
            if !self.again.as_deref().is_some_and(known) {
                self.again = Some(Box::new(Again {
                    opener: direction,
                    syn: tcp.clone(),
                    answer: None,
                    times: [packet.time; 2],
                    at: self.progress(),
                    number: packet.number,
                    before,
                    packets: [0; 2],
                    bytes: [0; 2],
                }));
            }
        }
        let Some(again) = &mut self.again else { return };
        if tcp.flags & flag::ACK != 0 {
            if direction == again.opener
                || tcp.acknowledgement != again.syn.sequence.wrapping_add(1)
            {
                return;
            }
            again.answer = Some(tcp.clone());
            again.times[1] = packet.time;
        }
        *direction.of_mut(&mut again.packets) += 1;
        *direction.of_mut(&mut again.bytes) += packet.data.len() as u64;
    }

    /// Whether a segment completes a handshake of another session with the same ports, which this one is then given up for.
    #[inline]
    pub(crate) fn is_followed_by(&self, tcp: &Tcp, direction: Direction) -> bool {
        self.again.is_some() && self.confirms(tcp, direction)
    }

    #[cold]
    fn confirms(&self, tcp: &Tcp, direction: Direction) -> bool {
        let Some(again) = &self.again else {
            return false;
        };
        tcp.flags & (flag::SYN | flag::RST | flag::ACK) == flag::ACK
            && direction == again.opener
            && tcp.sequence == again.syn.sequence.wrapping_add(1)
            && (again.answer.as_ref())
                .is_some_and(|answer| tcp.acknowledgement == answer.sequence.wrapping_add(1))
            && self.progress() == again.at
    }

    /// The handshake that [`Session::is_followed_by`] was about.
    pub(crate) fn take_again(&mut self) -> Option<Box<Again>> {
        self.again.take()
    }

    /// What was sent and acknowledged of each direction.
    fn progress(&self) -> [(i64, i64); 2] {
        self.sides.each_ref().map(|side| (side.next, side.acked))
    }
}
