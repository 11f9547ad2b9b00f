//! The window of a TCP connection: docs/semantics.md section 7, "Window".
//!
//! Judges a segment by what both sides told before, and says what it changes. Pure: a window is replaced by the next one when
//! the segment passes. Numbers are those of the side that sends them; what moves them on the way is put back by the caller.

use weir_packet::Reason;
use weir_packet::parse::{Fragment, Layout, Protocol, word16};

use super::{ACK, FIN, RST, SYN, Seen};

/// The largest window there is.
const MOST: u32 = 65_535 << LARGEST_SCALE;

/// RFC 7323.
const LARGEST_SCALE: u32 = 14;

/// How long a handshake in an open connection must go uncontradicted.
const QUIET_NS: u64 = 2_000_000_000;

/// So many retransmissions without progress shorten the time-out.
const RETRANSMITTED: u8 = 3;

/// A segment of which the first fragment was seen may be as long.
const FRAGMENT_LEN: u32 = 65_535;

/// A segment in numbers: its own side's, and those of the other side in what it acknowledges.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    flags: u8,
    sequence: u32,
    end: u32,
    acknowledgement: u32,
    window: u32,
    scale: Option<u32>,
    /// A fragment is not whole: what its checksum covers is not all there.
    whole: bool,
}

/// What is known of both sides: that which opened the connection, and the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    sides: [Side; 2],
    /// Whether no SYN opened it.
    picked: bool,
    /// Whether a side may have sent less than `end` says: of a fragment the length is not known.
    inexact: bool,
    /// Segments retransmitted in a row, at most [`RETRANSMITTED`].
    retransmitted: u8,
    /// The last handshake in the open connection.
    again: Option<Handshake>,
}

/// A SYN in an open connection that both hosts may have forgotten, and its answer.
#[derive(Clone, Copy, Debug)]
struct Handshake {
    at_ns: u64,
    syn: Segment,
    answer: Option<Segment>,
}

/// When a segment comes, and when the last one counted, ns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) now: u64,
    pub(super) last: u64,
}

impl Times {
    /// Whether so much time passed since then that a host which knows the connection would have said so.
    fn quiet_since(self, then: u64) -> bool {
        self.now.saturating_sub(then) > QUIET_NS
    }
}

/// What one side told.
#[derive(Clone, Copy, Debug, Default)]
struct Side {
    /// Behind the last byte that it sent.
    end: u32,
    /// How far it lets the other side send; of a SYN that was not answered, its window.
    edge: u32,
    /// The highest number of the other side that it acknowledged.
    acked: u32,
    scale: Option<u32>,
}

/// What a segment does to its connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum Judgement {
    /// It does not belong, and is dropped for this.
    Outside(Reason),
    /// It passes and changes nothing.
    Idle,
    /// It passes, this is the window from then on, and these flags were seen of its side.
    Counts(Window, Seen),
    /// It passes; only the handshake beside the connection changes.
    Handshakes(Window),
    /// It passes and ends such a handshake: the connection begins again, with this window and what was seen of both sides.
    Restarts(Window, [Seen; 2]),
}

const OUTSIDE: Judgement = Judgement::Outside(Reason::TcpWindow);

impl Segment {
    /// Of a TCP packet whose acknowledgement was moved on the way by so much.
    pub(super) fn of_packet(frame: &[u8], layout: &Layout, moved: u32) -> Option<Segment> {
        let (ip, l4) = (layout.ip.as_ref()?, layout.l4.as_ref()?);
        if l4.protocol != Protocol::Tcp {
            return None;
        }
        let whole = ip.fragment == Fragment::Whole;
        let number = |at: usize| {
            u32::from(word16(frame, l4.at + at)) << 16 | u32::from(word16(frame, l4.at + at + 2))
        };
        let flags = *frame.get(l4.at + 13)?;
        let scale = l4.options.iter().rev().find(|o| o.kind == 3 && o.len == 3);
        let len = if whole {
            l4.payload.len() as u32
        } else {
            FRAGMENT_LEN
        };
        let counted = u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
        let sequence = number(4);
        Some(Segment {
            flags,
            sequence,
            end: sequence.wrapping_add(len + counted),
            acknowledgement: number(8).wrapping_sub(moved),
            window: u32::from(word16(frame, l4.at + 14)),
            scale: scale
                .and_then(|option| frame.get(option.at + 2))
                .map(|&shift| u32::from(shift).min(LARGEST_SCALE)),
            whole,
        })
    }

    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// What its flags say of its side.
    pub(super) fn seen(&self) -> Seen {
        Seen {
            any: true,
            ack: self.has(ACK),
            fin: self.has(FIN) && self.whole,
            ..Seen::default()
        }
    }
}

impl Window {
    /// Of the connection that a segment opens.
    pub(super) fn opened_by(segment: &Segment) -> Window {
        let mut opener = Side {
            end: segment.end,
            ..Side::default()
        };
        let mut other = Side {
            acked: segment.sequence,
            ..Side::default()
        };
        let picked = !segment.has(SYN);
        if picked {
            opener.acked = segment.acknowledgement;
            opener.edge = (segment.acknowledgement).wrapping_add(segment.window << LARGEST_SCALE);
            other.end = segment.acknowledgement;
            other.edge = segment.sequence.wrapping_add(MOST);
        } else {
            opener.edge = segment.window;
            opener.scale = segment.scale;
            other.edge = segment.end;
        }
        Window {
            sides: [opener, other],
            picked,
            inexact: !segment.whole,
            retransmitted: 0,
            again: None,
        }
    }

    /// What a segment does, after this was seen of both sides.
    pub(super) fn judge(
        &self,
        segment: &Segment,
        forward: bool,
        seen: &[Seen; 2],
        times: Times,
    ) -> Judgement {
        let (met, begun) = (seen[1].any, seen[0].ack);
        // Until it is answered, a connection that a SYN opened knows nothing of the other side.
        let young = !met && !self.picked;
        if segment.has(SYN) {
            return match (young, forward, segment.has(ACK)) {
                (true, true, false) => self.syn_again(segment),
                (true, false, true) => self.answer(segment),
                // Nobody opens the other way what is open.
                (false, false, false) if !self.picked => OUTSIDE,
                (false, true, true) if !self.picked && begun => OUTSIDE,
                (false, true, false) | (false, false, true) => self.handshake(segment, times),
                _ => Judgement::Idle,
            };
        }
        if segment.has(RST) {
            return self.reset(segment, forward, young);
        }
        match (young, forward) {
            (true, true) => OUTSIDE,
            (true, false) => Judgement::Idle,
            (false, _) => {
                let closing = seen[usize::from(forward)].fin;
                match self.data(segment, forward, closing) {
                    Judgement::Outside(_) if forward && self.ends_handshake(segment, times) => {
                        self.restart(segment)
                    }
                    judged => judged,
                }
            }
        }
    }

    /// Whether segments were retransmitted again and again without an answer.
    pub(super) fn is_retransmitting(&self) -> bool {
        self.retransmitted == RETRANSMITTED
    }

    /// Whether a side sent what the other did not acknowledge.
    pub(super) fn has_unacknowledged(&self) -> bool {
        let [opener, other] = &self.sides;
        !self.inexact && (after(opener.end, other.acked) || after(other.end, opener.acked))
    }

    /// Whether a segment that an ICMP error quotes may be on its way.
    pub(super) fn holds_quote(&self, sequence: u32, forward: bool) -> bool {
        let (own, other) = self.sides(forward);
        !before(sequence, other.acked) && !after(sequence, own.end)
    }

    /// A SYN, repeated or with higher numbers, of the side that opened the connection.
    fn syn_again(&self, segment: &Segment) -> Judgement {
        if before(segment.end, self.sides[0].end) || !segment.whole {
            return Judgement::Idle;
        }
        let mut next = *self;
        next.sides[0].end = segment.end;
        next.sides[1].edge = segment.end;
        let seen = Seen {
            any: true,
            ..Seen::default()
        };
        Judgement::Counts(next, seen)
    }

    fn answer(&self, segment: &Segment) -> Judgement {
        if !self.answers(segment) {
            return OUTSIDE;
        }
        if !segment.whole {
            return Judgement::Idle;
        }
        let mut next = *self;
        let [opener, other] = &mut next.sides;
        opener.end = segment.acknowledgement;
        opener.acked = segment.sequence;
        opener.edge = opener.edge.wrapping_add(segment.end);
        other.end = segment.end;
        other.acked = segment.acknowledgement;
        other.edge = segment.acknowledgement.wrapping_add(segment.window);
        other.scale = segment.scale;
        let seen = Seen {
            any: true,
            ack: true,
            ..Seen::default()
        };
        Judgement::Counts(next, seen)
    }

    /// Whether a segment of the other side acknowledges the SYN that opened the connection.
    fn answers(&self, segment: &Segment) -> bool {
        let [opener, other] = &self.sides;
        let number = segment.acknowledgement;
        segment.has(ACK) && after(number, other.acked) && !after(number, opener.end)
    }

    /// A SYN or its answer in an open connection. The host it is for challenges it, unless it knows nothing of the connection any more.
    fn handshake(&self, segment: &Segment, times: Times) -> Judgement {
        let known = self.again.filter(|again| again.at_ns > times.last);
        let again = match known {
            _ if !segment.whole => None,
            Some(known) if segment.has(ACK) => (segment.acknowledgement == known.syn.end)
                .then_some(Handshake {
                    answer: Some(*segment),
                    ..known
                }),
            None if segment.has(ACK) => None,
            Some(known) if known.syn.end == segment.end => None,
            _ => times.quiet_since(times.last).then_some(Handshake {
                at_ns: times.now,
                syn: *segment,
                answer: None,
            }),
        };
        match again {
            Some(_) => Judgement::Handshakes(Window { again, ..*self }),
            None => Judgement::Idle,
        }
    }

    /// Whether a segment of the side that opened the connection acknowledges the answer of a handshake that nothing contradicted.
    fn ends_handshake(&self, segment: &Segment, times: Times) -> bool {
        let Some(Handshake {
            at_ns,
            syn,
            answer: Some(answer),
        }) = self.again
        else {
            return false;
        };
        at_ns > times.last
            && times.quiet_since(at_ns)
            && segment.whole
            && segment.sequence == syn.end
            && segment.acknowledgement == answer.end
    }

    fn restart(&self, segment: &Segment) -> Judgement {
        let Some(Handshake {
            syn,
            answer: Some(answer),
            ..
        }) = self.again
        else {
            return OUTSIDE;
        };
        let opener = Side {
            end: syn.end,
            edge: answer.end.wrapping_add(syn.window),
            acked: answer.end,
            scale: syn.scale,
        };
        let other = Side {
            end: answer.end,
            edge: syn.end.wrapping_add(answer.window),
            acked: syn.end,
            scale: answer.scale,
        };
        let window = Window {
            sides: [opener, other],
            picked: false,
            inexact: false,
            retransmitted: 0,
            again: None,
        };
        let answered = Seen {
            any: true,
            ack: true,
            ..Seen::default()
        };
        Judgement::Restarts(window.moved_by(segment, true), [segment.seen(), answered])
    }

    fn reset(&self, segment: &Segment, forward: bool, young: bool) -> Judgement {
        let (own, other) = self.sides(forward);
        let sequence = segment.sequence;
        if young && !forward {
            if !self.answers(segment) {
                return OUTSIDE;
            }
        } else if sequence != own.end && sequence != other.acked {
            if young {
                return Judgement::Idle;
            }
            let lowest = self.lowest(forward);
            return match before(sequence, other.acked) {
                true if before(sequence, lowest) => OUTSIDE,
                true => Judgement::Outside(Reason::TcpRstStale),
                false if after(sequence, other.edge) => OUTSIDE,
                false => Judgement::Idle,
            };
        }
        if !segment.whole {
            return Judgement::Idle;
        }
        let seen = Seen {
            rst: true,
            ..Seen::default()
        };
        Judgement::Counts(*self, seen)
    }

    /// `closing`: a FIN of the other side was seen.
    fn data(&self, segment: &Segment, forward: bool, closing: bool) -> Judgement {
        let (own, other) = self.sides(forward);
        if after(segment.sequence, other.edge) || before(segment.end, self.lowest(forward)) {
            return OUTSIDE;
        }
        let number = segment.acknowledgement;
        let highest = other.end.wrapping_add(if self.picked { MOST } else { 0 });
        let lowest = own.acked.wrapping_sub(65_535 << self.shift(forward));
        if after(number, highest) || before(number, lowest) {
            return OUTSIDE;
        }
        let mut seen = segment.seen();
        seen.fin &= after(segment.end, other.acked);
        seen.acked_fin = closing && !before(number, other.end);
        Judgement::Counts(self.moved_by(segment, forward), seen)
    }

    /// What a segment does that does not belong, where none is dropped for that.
    pub(super) fn let_in(&self, segment: &Segment, forward: bool) -> Judgement {
        if segment.has(SYN | RST) {
            return Judgement::Idle;
        }
        let mut seen = segment.seen();
        seen.fin = false;
        Judgement::Counts(self.moved_by(segment, forward), seen)
    }

    /// With the numbers of a segment, where they are later.
    fn moved_by(&self, segment: &Segment, forward: bool) -> Window {
        let number = segment.acknowledgement;
        let edge = number.wrapping_add(segment.window << self.shift(forward));
        let mut next = *self;
        let (own, other) = self.sides(forward);
        let sent_before = segment.end != segment.sequence && !after(segment.end, own.end);
        if after(number, own.acked) {
            next.retransmitted = 0;
        } else if sent_before && after(segment.end, other.acked) {
            next.retransmitted = RETRANSMITTED.min(self.retransmitted + 1);
        }
        next.inexact |= !segment.whole;
        let side = &mut next.sides[usize::from(!forward)];
        side.end = later(side.end, segment.end);
        side.acked = later(side.acked, number);
        side.edge = later(side.edge, edge);
        next
    }

    /// The lowest number that a side may still send: what the other side acknowledged, less the largest window it can offer.
    fn lowest(&self, forward: bool) -> u32 {
        let (_, other) = self.sides(forward);
        (other.acked).wrapping_sub(65_535 << self.shift(!forward))
    }

    /// The side that sends in this direction, and the other.
    fn sides(&self, forward: bool) -> (&Side, &Side) {
        let [opener, other] = &self.sides;
        if forward {
            (opener, other)
        } else {
            (other, opener)
        }
    }

    /// By how much the windows are scaled that a side tells in segments without SYN.
    fn shift(&self, forward: bool) -> u32 {
        if self.picked {
            return LARGEST_SCALE;
        }
        let (own, other) = self.sides(forward);
        own.scale.filter(|_| other.scale.is_some()).unwrap_or(0)
    }
}

/// Whether one number comes before another one, at most half of all numbers away.
fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

fn after(a: u32, b: u32) -> bool {
    before(b, a)
}

fn later(a: u32, b: u32) -> u32 {
    if before(a, b) { b } else { a }
}
