//! One direction of a connection: what its sender sent, kept until it may be handed on. Offsets count from 0 at the first byte after the SYN.
//!
//! Invariants: pieces are sorted, do not overlap, are not empty, and none begins before `base`; no held byte is at or beyond the depth; `memory` is what the pieces occupy.

use std::collections::VecDeque;
use std::ops::Range;

use super::{End, Ledger, Policy, Sink, Urgent};
use crate::event::{Event, Events};
use crate::packet::Direction;

/// What a piece costs beside its bytes.
pub(super) const PIECE: usize = size_of::<Piece>();

/// Bytes of one segment, or what overlaps left of them.
#[derive(Debug)]
pub(super) struct Piece {
    start: i64,
    bytes: Vec<u8>,
    /// Bytes at the front that were handed on.
    taken: u32,
    kind: Kind,
}

/// What a piece is to its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Data,
    /// A probe of a closed window: the receiver may have dropped it, so anything replaces it.
    Weak,
    /// Sent out of band: it is no part of what an application reads.
    Urgent,
}

impl Piece {
    fn range(&self) -> Range<i64> {
        self.start + i64::from(self.taken)..self.start + self.bytes.len() as i64
    }

    fn slice(&self, range: &Range<i64>) -> &[u8] {
        let from = usize::try_from(range.start - self.start).unwrap_or(0);
        let to = usize::try_from(range.end - self.start).unwrap_or(0);
        self.bytes.get(from..to).unwrap_or_default()
    }

    fn cost(&self) -> usize {
        PIECE + self.bytes.capacity()
    }
}

/// Buffers for pieces, used again: by capacity, so that small segments do not occupy large ones.
#[derive(Debug, Default)]
pub(super) struct Pool {
    free: [Vec<Vec<u8>>; SIZES.len()],
}

const SIZES: [usize; 3] = [128, 512, 2048];
/// Of each size; 0.7 MB in all.
const KEPT: usize = 256;

impl Pool {
    fn take(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut classes = SIZES.iter().zip(&mut self.free);
        let class = classes.find(|(size, _)| **size >= bytes.len());
        let (size, free) = class.map_or((bytes.len(), None), |(size, free)| (*size, free.pop()));
        let mut buffer = free.unwrap_or_else(|| Vec::with_capacity(size));
        buffer.extend_from_slice(bytes);
        buffer
    }

    fn give(&mut self, mut buffer: Vec<u8>) {
        let mut classes = SIZES.iter().zip(&mut self.free);
        if let Some((_, free)) = classes.find(|(size, _)| **size == buffer.capacity())
            && free.len() < KEPT
        {
            buffer.clear();
            free.push(buffer);
        }
    }
}

/// The first bytes (or numbers) of a slice.
pub(super) fn first<T>(all: &[T], count: usize) -> &[T] {
    all.get(..count).unwrap_or(all)
}

/// What is behind the first ones.
fn behind<T>(all: &[T], count: usize) -> &[T] {
    all.get(count..).unwrap_or_default()
}

/// What a side needs of the reassembler while it works.
pub(super) struct Tools<'a> {
    pub(super) pool: &'a mut Pool,
    pub(super) ledger: &'a mut Ledger,
    pub(super) events: &'a mut Events,
    pub(super) max_pieces: usize,
    /// Bytes that may still be held.
    pub(super) room: usize,
    /// Bytes are handed on when they arrive, not when they are acknowledged.
    pub(super) inline: bool,
    pub(super) urgent: Urgent,
}

impl Tools<'_> {
    fn hand_on(&mut self, kind: Kind, direction: Direction, bytes: &[u8], sink: &mut impl Sink) {
        if kind != Kind::Urgent {
            self.ledger.delivered += bytes.len() as u64;
            sink.data(direction, bytes);
            return;
        }
        self.ledger.urgent += bytes.len() as u64;
        if self.urgent == Urgent::Gap {
            sink.gap(direction, bytes.len() as u64);
        }
    }
}

/// One direction.
#[derive(Debug, Default)]
pub(super) struct Side {
    /// Sequence number of offset 0.
    pub(super) zero: u32,
    /// Whether `zero` is known.
    pub(super) known: bool,
    /// First offset not handed on.
    pub(super) base: i64,
    /// End of the furthest byte seen.
    pub(super) next: i64,
    /// First offset that the receiver has not acknowledged.
    pub(super) acked: i64,
    /// First offset that the receiver has no room for; none known: `None`.
    pub(super) window_end: Option<i64>,
    /// Shift of the windows that this side announces.
    pub(super) scale: u8,
    /// Bytes beyond the window that came last; should the receiver acknowledge them, what was before them was lost by the sensor.
    pub(super) stray: Option<Range<i64>>,
    /// Its last timestamp in order, and when it came (RFC 7323: TS.Recent).
    pub(super) stamp: Option<(u32, u64)>,
    /// Offset of its FIN.
    pub(super) fin: Option<i64>,
    /// `Sink::end` was called.
    pub(super) ended: bool,
    /// Bytes from here on are not handed on; `i64::MAX`: all are.
    pub(super) depth: i64,
    pub(super) policy: Policy,
    pieces: VecDeque<Piece>,
    memory: usize,
    /// Holes of [`REGION`] bytes or more that were waited for at once, at most.
    holes: u16,
}

/// A hole of so many bytes parts what is held into regions.
const REGION: i64 = 256 << 10;

impl Side {
    pub(super) fn new(policy: Policy, depth: i64) -> Side {
        Side {
            policy,
            depth,
            ..Side::default()
        }
    }

    /// The offset of a sequence number, of all that have it the one nearest to what was seen last.
    pub(super) fn offset(&self, sequence: u32) -> i64 {
        let near = self.zero.wrapping_add(self.next as u32);
        self.next + i64::from(sequence.wrapping_sub(near) as i32)
    }

    /// What held pieces occupy, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.memory
    }

    /// Stretches that held bytes lay in at once, at most: parts with large holes between them.
    pub(super) fn most_regions(&self) -> u64 {
        u64::from(self.holes) + 1
    }

    /// Counts large holes, after a piece was put at a place.
    fn count_holes(&mut self, at: usize) {
        let end_before = |at: usize| match at.checked_sub(1) {
            Some(before) => self.pieces.get(before).map_or(0, |p| p.range().end),
            None => self.base,
        };
        let is_large = |at: usize| {
            let piece = self.pieces.get(at);
            piece.is_some_and(|p| p.start - end_before(at) >= REGION)
        };
        if is_large(at) {
            let holes = (0..self.pieces.len()).filter(|at| is_large(*at)).count();
            self.holes = self.holes.max(u16::try_from(holes).unwrap_or(u16::MAX));
        }
    }

    /// Bytes held.
    pub(super) fn held(&self) -> u64 {
        self.pieces
            .iter()
            .map(|p| (p.range().end - p.range().start) as u64)
            .sum()
    }

    /// Takes a segment's bytes; whether all of them were there already. `kind`: see [`Kind`]. Those in order are handed on at once if they may be and nothing is held.
    pub(super) fn insert(
        &mut self,
        mut start: i64,
        mut bytes: &[u8],
        kind: Kind,
        direction: Direction,
        tools: &mut Tools<'_>,
        sink: &mut impl Sink,
    ) -> bool {
        let end = start + bytes.len() as i64;
        self.next = self.next.max(end);
        if end > self.depth {
            let beyond = (end - start.max(self.depth)) as usize;
            tools.ledger.beyond_depth += beyond as u64;
            bytes = first(bytes, bytes.len().saturating_sub(beyond));
        }
        if start < self.base {
            let before = ((self.base - start) as usize).min(bytes.len());
            tools.ledger.overlapped += before as u64;
            bytes = behind(bytes, before);
            start += before as i64;
        }
        if bytes.is_empty() {
            return true;
        }
        if self.pieces.is_empty() && start == self.base && kind != Kind::Weak {
            let now = if tools.inline {
                bytes.len()
            } else {
                usize::try_from(self.acked - start)
                    .unwrap_or(0)
                    .min(bytes.len())
            };
            if now > 0 {
                self.base += now as i64;
                tools.hand_on(kind, direction, first(bytes, now), sink);
                bytes = behind(bytes, now);
                start = self.base;
                if bytes.is_empty() {
                    return false;
                }
            }
        }
        if self.pieces.len() >= tools.max_pieces && !tools.inline {
            // Nobody acknowledges; what is in order is better read than lost.
            self.release(direction, tools, sink);
        }
        let end = start + bytes.len() as i64;
        if self.pieces.back().is_none_or(|p| p.range().end <= start) {
            self.keep(self.pieces.len(), start, bytes, kind, tools);
            return false;
        }
        let first = self.pieces.partition_point(|p| p.range().end <= start);
        let last = self.pieces.partition_point(|p| p.range().start < end);
        if first >= last {
            self.keep(first, start, bytes, kind, tools);
            return false;
        }
        self.overlap(first..last, start, bytes, kind, tools)
    }

    fn keep(&mut self, at: usize, start: i64, bytes: &[u8], kind: Kind, tools: &mut Tools<'_>) {
        // The largest that `Pool::take` makes of it.
        let cost = PIECE
            + SIZES
                .iter()
                .copied()
                .find(|s| *s >= bytes.len())
                .unwrap_or(bytes.len());
        if self.pieces.len() >= tools.max_pieces || cost > tools.room {
            tools.ledger.over_cap += bytes.len() as u64;
            return;
        }
        let piece = Piece {
            start,
            bytes: tools.pool.take(bytes),
            taken: 0,
            kind,
        };
        self.memory += piece.cost();
        tools.room = tools.room.saturating_sub(piece.cost());
        self.pieces.insert(at, piece);
        self.count_holes(at);
    }

    /// Decides byte ranges that the new segment shares with the pieces of `hit`, and keeps what is new; whether nothing is.
    fn overlap(
        &mut self,
        hit: Range<usize>,
        start: i64,
        bytes: &[u8],
        kind: Kind,
        tools: &mut Tools<'_>,
    ) -> bool {
        let new = start..start + bytes.len() as i64;
        let of_new = |range: &Range<i64>| {
            let (from, to) = ((range.start - start) as usize, (range.end - start) as usize);
            bytes.get(from..to).unwrap_or_default()
        };
        let (mut changes, mut holes) = (false, false);
        // Up to where the new segment is decided.
        let mut at = start;
        for piece in self.pieces.range(hit.clone()) {
            let held = piece.range();
            let shared = held.start.max(new.start)..held.end.min(new.end);
            if piece.slice(&shared) != of_new(&shared) && !(piece.kind == Kind::Weak) {
                tools.events.insert(Event::OverlapDifferentData);
            }
            tools.ledger.overlapped += (shared.end - shared.start) as u64;
            holes |= at < shared.start || (piece.kind == Kind::Weak);
            changes |= kind != Kind::Weak && self.policy.takes_new(&held, &new);
            at = shared.end;
        }
        holes |= at < new.end;
        if !changes && !holes {
            return true;
        }
        let mut index = hit.start;
        let mut at = start;
        // A stretch of the new segment that is to be kept.
        let mut run: Option<Range<i64>> = None;
        let old: Vec<Piece> = self.pieces.drain(hit).collect();
        let mut put = |side: &mut Side,
                       range: Range<i64>,
                       bytes: &[u8],
                       kind: Kind,
                       tools: &mut Tools<'_>| {
            let before = side.pieces.len();
            side.keep(index, range.start, bytes, kind, tools);
            index += side.pieces.len() - before;
        };
        for piece in old {
            let held = piece.range();
            let shared = held.start.max(new.start)..held.end.min(new.end);
            self.memory -= piece.cost();
            tools.room += piece.cost();
            if at < shared.start {
                run = Some(run.map_or(at, |r| r.start)..shared.start);
            }
            let wins = kind != Kind::Weak && self.policy.takes_new(&held, &new);
            if (piece.kind == Kind::Weak) || wins {
                if held.start < shared.start {
                    put(
                        self,
                        held.start..shared.start,
                        piece.slice(&(held.start..shared.start)),
                        piece.kind,
                        tools,
                    );
                }
                run = Some(run.map_or(shared.start, |r| r.start)..shared.end);
                if shared.end < held.end {
                    if let Some(range) = run.take() {
                        put(self, range.clone(), of_new(&range), kind, tools);
                    }
                    put(
                        self,
                        shared.end..held.end,
                        piece.slice(&(shared.end..held.end)),
                        piece.kind,
                        tools,
                    );
                }
            } else {
                if let Some(range) = run.take() {
                    put(self, range.clone(), of_new(&range), kind, tools);
                }
                put(self, held.clone(), piece.slice(&held), piece.kind, tools);
            }
            tools.pool.give(piece.bytes);
            at = shared.end;
        }
        if at < new.end {
            run = Some(run.map_or(at, |r| r.start)..new.end);
        }
        if let Some(range) = run {
            put(self, range.clone(), of_new(&range), kind, tools);
        }
        !holes
    }

    /// Hands on what may be: bytes in order that were acknowledged (all of them if inline or flushing), and gaps that the acknowledgement passed and that have bytes
    /// behind them. `flush`: nothing more will come.
    pub(super) fn deliver(
        &mut self,
        flush: bool,
        direction: Direction,
        tools: &mut Tools<'_>,
        sink: &mut impl Sink,
    ) {
        let limit = if flush || tools.inline {
            i64::MAX
        } else {
            self.acked
        };
        while let Some(piece) = self.pieces.front_mut() {
            let range = piece.range();
            let mut upto = range.end.min(limit);
            if piece.kind == Kind::Weak {
                upto = upto.min(self.acked);
                if flush && upto <= range.start {
                    tools.ledger.out_of_window += (range.end - range.start) as u64;
                    self.drop_front(tools);
                    continue;
                }
            }
            if range.start > self.base {
                if !flush && range.start >= self.acked {
                    break;
                }
                self.gap(range.start, direction, tools, sink);
                continue;
            }
            if upto <= range.start {
                break;
            }
            piece.taken += (upto - range.start) as u32;
            let whole = upto == range.end;
            self.base = upto;
            tools.hand_on(
                piece.kind,
                direction,
                piece.slice(&(range.start..upto)),
                sink,
            );
            if whole {
                self.drop_front(tools);
            }
        }
        if flush || self.fin.is_some_and(|fin| self.acked > fin) {
            // What was acknowledged and never came: nothing will fill it.
            let last = self
                .fin
                .map_or(self.acked, |fin| self.acked.min(fin))
                .min(self.depth);
            if self.pieces.is_empty() && self.known && !self.ended && last > self.base {
                self.gap(last, direction, tools, sink);
            }
        }
        if !self.ended && self.base >= self.depth {
            self.ended = true;
            sink.end(direction, End::Depth);
        }
        if let Some(fin) = self.fin
            && !self.ended
        {
            // More than the FIN was acknowledged: its receiver took bytes beyond it, and never saw that FIN.
            let acknowledged = self.acked == fin + 1;
            if self.acked > fin + 1 || !acknowledged && !self.pieces.is_empty() && self.base >= fin
            {
                self.fin = None;
            } else if self.base >= fin && (acknowledged || tools.inline || flush) {
                // What was sent after it nobody reads.
                tools.ledger.closed += self.held();
                while !self.pieces.is_empty() {
                    self.drop_front(tools);
                }
                self.ended = true;
                sink.end(direction, End::Fin);
            }
        }
    }

    /// Hands on what is in order, and gives up the rest: to free memory while the connection goes on.
    pub(super) fn relieve(
        &mut self,
        direction: Direction,
        tools: &mut Tools<'_>,
        sink: &mut impl Sink,
    ) {
        self.release(direction, tools, sink);
        tools.ledger.over_cap += self.held();
        while !self.pieces.is_empty() {
            self.drop_front(tools);
        }
    }

    /// Hands on what is in order, acknowledged or not.
    fn release(&mut self, direction: Direction, tools: &mut Tools<'_>, sink: &mut impl Sink) {
        while let Some(piece) = self.pieces.front() {
            let range = piece.range();
            if range.start != self.base || (piece.kind == Kind::Weak) {
                break;
            }
            self.base = range.end;
            tools.hand_on(piece.kind, direction, piece.slice(&range), sink);
            self.drop_front(tools);
        }
    }

    /// Forgets what is held; the bytes were refused by the receiver.
    pub(super) fn refuse(&mut self, tools: &mut Tools<'_>) {
        tools.ledger.out_of_window += self.held();
        while !self.pieces.is_empty() {
            self.drop_front(tools);
        }
    }

    fn drop_front(&mut self, tools: &mut Tools<'_>) {
        if let Some(piece) = self.pieces.pop_front() {
            self.memory -= piece.cost();
            tools.room += piece.cost();
            tools.pool.give(piece.bytes);
        }
        if self.pieces.is_empty() && self.pieces.capacity() > 64 {
            self.pieces = VecDeque::new();
        }
    }

    fn gap(
        &mut self,
        upto: i64,
        direction: Direction,
        tools: &mut Tools<'_>,
        sink: &mut impl Sink,
    ) {
        let length = (upto - self.base) as u64;
        self.base = upto;
        tools.ledger.gaps += 1;
        tools.ledger.gap_bytes += length;
        tools.events.insert(Event::Gap);
        sink.gap(direction, length);
    }
}
