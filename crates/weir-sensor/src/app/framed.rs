//! Frames: parts of messages as sent, with their numbers and their places in the stream of their direction.

use crate::buffer::Buffer;
use crate::packet::Direction;

/// Where the bytes of a frame are in its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A buffer that is whole.
    Entry(usize),
    /// One that grows.
    Body(usize),
}

/// A frame of a transaction.
#[derive(Clone, Copy, Debug)]
pub struct Framed {
    /// Its buffer.
    pub buffer: Buffer,
    /// The direction of the transaction that has it.
    pub direction: Direction,
    /// Who sent it.
    pub sender: Direction,
    /// Its number among the frames of its direction of the flow, from 1; 0: it has none yet.
    pub number: u64,
    /// Where it begins in the stream of its direction, bytes, if that is known.
    pub offset: Option<u64>,
    /// How long it is, where not all of it is kept.
    pub length: Option<u64>,
    /// It is in the log.
    pub logged: bool,
    pub(super) place: Place,
    /// Bytes from its first one to the end of what the parser had been given.
    behind: Option<usize>,
}

impl Framed {
    /// More of it may come.
    pub(crate) fn grows(&self) -> bool {
        matches!(self.place, Place::Body(_))
    }

    pub(super) fn new(
        (buffer, direction): (Buffer, Direction),
        place: Place,
        behind: Option<usize>,
    ) -> Framed {
        Framed {
            buffer,
            direction,
            sender: direction,
            number: 0,
            offset: None,
            length: None,
            logged: false,
            place,
            behind,
        }
    }

    /// Takes the next number, if it has none.
    pub(super) fn settle(&mut self, sender: Direction, framing: &mut Framing) {
        if self.number == 0 {
            self.sender = sender;
            framing.count += 1;
            self.number = framing.count;
            let behind = self.behind.map(|behind| behind as u64);
            self.offset = behind.map(|behind| framing.given.saturating_sub(behind));
        }
    }
}

/// How far a direction of a flow is in frames.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Framing {
    /// Frames so far.
    pub(crate) count: u64,
    /// Bytes of the stream that parsers were given, with those that were lost.
    pub(crate) given: u64,
}

/// Which frames are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Frames {
    /// None.
    #[default]
    None,
    /// Those that rules ask for.
    OfRules,
    /// All, for the log.
    All,
}
