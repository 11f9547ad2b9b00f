//! The XDP program that hands packets to sockets (`bpf/tools/steer.c`), on one interface.
//!
//! Invariants: packets that do not match, and those of a queue without a socket, reach the stack; the program leaves the interface with the value,
//! and nothing is pinned. It must go before the sockets do (drivers have crashed under load the other way round): give the value up first.

use std::os::fd::{AsFd, AsRawFd};

use weir_kernel::{KernelObject, Link, LoadedProgram, XdpMode, iface};

use crate::XskError;
use crate::socket::Socket;

/// Queues that sockets can be on (`max_entries` of the map).
pub const QUEUES: u32 = 64;
/// Bytes of the mark in front of a frame (`struct steer_mark`).
pub const MARK: usize = 16;
const MARK_WORD: u32 = 0x5745_4952;

/// Which packets go to sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// All.
    All,
    /// Those of this EtherType, as it stands in the Ethernet header.
    EtherType(u16),
    /// UDP datagrams to this port. Not later fragments, not behind IPv6 extension headers or VLAN tags.
    UdpPort(u16),
}

/// What the program counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steered {
    /// Handed to a socket; what is lost there the socket counts.
    pub steered: u64,
    /// Did not match: on to the stack.
    pub passed: u64,
    /// Matched, and their queue has no socket: on to the stack.
    pub lonely: u64,
    /// Handed over without the mark that was asked for.
    pub unmarked: u64,
}

/// The program on an interface.
#[derive(Debug)]
pub struct Steer {
    link: Option<Link>,
    program: Program,
}

/// For `Debug`: a loaded program has none.
struct Program(LoadedProgram);

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.name())
    }
}

impl Steer {
    /// Attaches the program. Until sockets are added everything goes to the stack. With `mark`, frames carry the time in front ([`read_mark`]).
    ///
    /// # Errors
    /// The interface is not there, has another program, or cannot run one.
    pub fn attach(name: &str, mode: XdpMode, what: Match, mark: bool) -> Result<Steer, XskError> {
        let (kind, value) = match what {
            Match::All => (0u32, 0u32),
            Match::EtherType(kind) => (1, u32::from(kind)),
            Match::UdpPort(port) => (2, u32::from(port)),
        };
        let mut object = KernelObject::open(weir_bpf::tool("steer").unwrap_or_default())?;
        for (symbol, value) in [
            ("weir_what", kind),
            ("weir_value", value),
            ("weir_mark", u32::from(mark)),
        ] {
            object.set_rodata(symbol, &value.to_ne_bytes())?;
        }
        let program = object.load("steer")?;
        let link = program.attach_xdp(iface::index_of(name)?, mode)?;
        Ok(Steer {
            link: Some(link),
            program: Program(program),
        })
    }

    /// Sends what matches on the socket's queue to it.
    ///
    /// # Errors
    /// The kernel refuses: the socket is on another interface, or its queue is beyond [`QUEUES`].
    pub fn add(&self, socket: &Socket) -> Result<(), XskError> {
        let fd = socket.as_fd().as_raw_fd() as u32;
        self.program.0.update(
            "sockets",
            &socket.queue().to_ne_bytes(),
            &fd.to_ne_bytes(),
            0,
        )?;
        Ok(())
    }

    /// What it has counted.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn counted(&self) -> Result<Steered, XskError> {
        let mut sum = Steered::default();
        for value in self
            .program
            .0
            .lookup_percpu("counters", &0u32.to_ne_bytes())?
        {
            let mut words = value
                .chunks_exact(8)
                .filter_map(|w| w.try_into().ok().map(u64::from_ne_bytes));
            for to in [
                &mut sum.steered,
                &mut sum.passed,
                &mut sum.lonely,
                &mut sum.unmarked,
            ] {
                *to += words.next().unwrap_or(0);
            }
        }
        Ok(sum)
    }

    /// Takes the program off the interface.
    ///
    /// # Errors
    /// The kernel refuses; an interface that is gone is none.
    pub fn detach(mut self) -> Result<(), XskError> {
        self.stop()
    }

    /// Takes the program off the interface and keeps what it has counted. What it handed over until then is in the sockets' rings, or counted as lost there.
    ///
    /// # Errors
    /// The kernel refuses; an interface that is gone is none.
    pub fn stop(&mut self) -> Result<(), XskError> {
        match self.link.take() {
            Some(link) => Ok(link.detach()?),
            None => Ok(()),
        }
    }
}

/// The time in ns (`CLOCK_MONOTONIC`) in the mark in front of a frame, given all that lies in front of it, and the queue it came on. The mark is wiped out, so that it
/// cannot be found a second time.
pub fn read_mark(front: &mut [u8]) -> Option<(u64, u32)> {
    let at = front.len().checked_sub(MARK)?;
    let mark = front.get_mut(at..)?;
    let word = |bytes: &[u8]| bytes.try_into().ok().map(u32::from_ne_bytes);
    if word(&mark[..4])? != MARK_WORD {
        return None;
    }
    let queue = word(&mark[4..8])?;
    let time = u64::from_ne_bytes(mark[8..16].try_into().ok()?);
    mark[..4].fill(0);
    Some((time, queue))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_once() {
        let mut front = vec![9u8; 40];
        assert_eq!(read_mark(&mut front), None);
        front[24..28].copy_from_slice(&MARK_WORD.to_ne_bytes());
        front[28..32].copy_from_slice(&3u32.to_ne_bytes());
        front[32..].copy_from_slice(&77u64.to_ne_bytes());
        assert_eq!(read_mark(&mut front), Some((77, 3)));
        assert_eq!(read_mark(&mut front), None);
        assert_eq!(read_mark(&mut [0; 10]), None);
    }
}
