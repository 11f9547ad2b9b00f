//! Two interfaces joined through a process: every frame that one receives is read here and sent by the other, or not. `bpf/tools/wire.c` stands at the receive side of both.
//!
//! The program hands each frame to a tap that this process reads, so the stack sees none, nobody sees one twice, and checksums and long segments that are left to devices stay so. Where
//! the process is dead, stopped or late the program decides: frames pass to the other interface, or are dropped. It stays when the process ends, whatever ended it, until [`detach`].
//!
//! Invariant: of the frames that an interface received while joined, each is in one of the counters of [`WireCounts`].

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use weir_kernel::iface::LinkWatch;
use weir_kernel::{
    Direction, Filter, KernelError, KernelObject, LoadedProgram, MmapArray, VnetHeader, VnetSender,
    VnetTap, iface, monotonic_ns,
};

use crate::XskError;

/// How long a process may give no sign of life before it counts as dead.
pub const AWAY: Duration = Duration::from_millis(500);
/// Room of the tap beyond what may wait: frames that several CPUs hand over at the same time.
const SLACK: u32 = 256;
/// Name of the program and its map.
const PROGRAM: &str = "wire";
const STATE: &str = "wire_state";

/// Words of `struct wire_state`.
#[derive(Clone, Copy)]
enum Word {
    Device,
    Beat,
    Taken,
    Qdisc,
    Promiscuous,
    Handed,
    PassedAway,
    PassedLate,
    DroppedAway,
    DroppedLate,
}

/// How two interfaces are joined.
#[derive(Clone, Copy, Debug)]
pub struct WireConfig {
    /// What the process cannot take passes; else it is dropped.
    pub fail_open: bool,
    /// Frames that may wait for the process, of each interface. Beyond that it is late.
    pub bound: u32,
}

/// What became of the frames that an interface received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireCounts {
    /// Handed to the process.
    pub handed: u64,
    /// Of those: read by it.
    pub taken: u64,
    /// Of those: lost on the way, as the tap says.
    pub overrun: u64,
    /// Passed uninspected, as the process was dead or stopped.
    pub passed_away: u64,
    /// Passed uninspected, as it was late.
    pub passed_late: u64,
    /// Dropped, as it was dead or stopped.
    pub dropped_away: u64,
    /// Dropped, as it was late.
    pub dropped_late: u64,
}

impl WireCounts {
    /// Frames that the interface received.
    pub fn received(&self) -> u64 {
        self.handed + self.passed_away + self.passed_late + self.dropped_away + self.dropped_late
    }

    /// Frames that were handed over and are neither read nor counted as lost: those that wait, and those that were lost with their process.
    pub fn waiting(&self) -> u64 {
        self.handed.saturating_sub(self.taken + self.overrun)
    }

    fn read(state: &MmapArray) -> Result<WireCounts, KernelError> {
        Ok(WireCounts {
            handed: word(state, Word::Handed)?,
            taken: word(state, Word::Taken)?,
            overrun: 0,
            passed_away: word(state, Word::PassedAway)?,
            passed_late: word(state, Word::PassedLate)?,
            dropped_away: word(state, Word::DroppedAway)?,
            dropped_late: word(state, Word::DroppedLate)?,
        })
    }
}

/// Two joined interfaces.
#[derive(Debug)]
pub struct Wire {
    sides: [Side; 2],
}

/// One of them: what comes in by it, and what leaves by it.
#[derive(Debug)]
struct Side {
    name: String,
    tap: VnetTap,
    sender: VnetSender,
    link: LinkWatch,
    state: MmapArray,
    taken: u64,
    /// What became of frames after the process before was gone, and of those it had.
    before: Option<WireCounts>,
}

/// A program on an interface that a process left behind, or has there still.
struct Left {
    ifindex: u32,
    state: MmapArray,
}

impl Left {
    /// The one on an interface; none if there is none, an error if weir's program there is another.
    fn find(name: &str) -> Result<Option<Left>, XskError> {
        let ifindex = iface::index_of(name)?;
        let filter = Filter::existing(ifindex, Direction::Ingress, false);
        let found = filter.prog_id();
        // Looking takes nothing off.
        filter.keep();
        let Some(prog_id) = found? else {
            return Ok(None);
        };
        let program = LoadedProgram::by_id(prog_id)?;
        if program.name() != PROGRAM {
            return Err(XskError::Kernel(KernelError::AlreadyRunning {
                iface: name.to_owned(),
                prog_id,
            }));
        }
        let state = program.mmap_array(STATE)?;
        let left = Left { ifindex, state };
        match left.is_in_use()? {
            true => Err(XskError::Excluded(format!(
                "{name} is joined by a sensor that runs: end that one first"
            ))),
            false => Ok(Some(left)),
        }
    }

    /// The filter; it goes with the value unless that is kept.
    fn filter(&self) -> Result<Filter, KernelError> {
        let made_qdisc = word(&self.state, Word::Qdisc)? != 0;
        Ok(Filter::existing(
            self.ifindex,
            Direction::Ingress,
            made_qdisc,
        ))
    }

    /// Whether its process lives.
    fn is_in_use(&self) -> Result<bool, KernelError> {
        let device = word(&self.state, Word::Device)?;
        let since = monotonic_ns().saturating_sub(word(&self.state, Word::Beat)?);
        let device = u32::try_from(device).unwrap_or(0);
        Ok(device != 0 && iface::name_of(device).is_some() && since < AWAY.as_nanos() as u64)
    }
}

impl Wire {
    /// Joins two interfaces of the current namespace. Until the first [`Wire::beat`] the process counts as dead.
    ///
    /// # Errors
    /// An interface is not there, another process joins it, or the kernel refuses.
    pub fn join(names: [&str; 2], config: WireConfig) -> Result<Wire, XskError> {
        let indices = [iface::index_of(names[0])?, iface::index_of(names[1])?];
        if indices[0] == indices[1] {
            return Err(XskError::Excluded(format!(
                "{} cannot be joined with itself",
                names[0]
            )));
        }
        let mut made = Vec::new();
        for (at, name) in names.into_iter().enumerate() {
            made.push(side(name, indices[at], indices[1 - at], config)?);
        }
        let mut sides = Vec::new();
        for (side, filter) in made {
            // From here on it stays, whatever becomes of the process.
            if let Some(filter) = filter {
                filter.keep();
            }
            sides.push(side);
        }
        let sides: [Side; 2] = sides
            .try_into()
            .map_err(|_| XskError::Excluded("two interfaces are joined".to_owned()))?;
        Ok(Wire { sides })
    }

    /// A sign of life: the process will read what comes in the next [`AWAY`].
    ///
    /// # Errors
    /// The kernel's memory is not writable; it always is.
    pub fn beat(&self) -> Result<(), XskError> {
        let now = monotonic_ns();
        for side in &self.sides {
            let device = u64::from(side.tap.ifindex());
            put(&side.state, Word::Beat, now)?;
            put(&side.state, Word::Device, device)?;
        }
        Ok(())
    }

    /// Takes no more: the program decides from here on. What was handed over until now can still be read.
    ///
    /// # Errors
    /// As of [`Wire::beat`].
    pub fn stop(&self) -> Result<(), XskError> {
        for side in &self.sides {
            put(&side.state, Word::Device, 0)?;
        }
        // A program that has just looked may still hand a frame over.
        weir_kernel::grace_period()?;
        Ok(())
    }

    /// The next frame that an interface (0 or 1) has received; none if there is none now. `buffer` is longer than any frame with its header.
    ///
    /// # Errors
    /// What the system says of the tap.
    pub fn read<'b>(
        &mut self,
        from: usize,
        buffer: &'b mut [u8],
    ) -> Result<Option<(VnetHeader, &'b [u8])>, XskError> {
        let Some(side) = self.sides.get_mut(from) else {
            return Ok(None);
        };
        let found = (side.tap.read(buffer))
            .map_err(|e| XskError::sys(format!("read {}", side.tap.name()), e))?;
        if found.is_some() {
            side.taken += 1;
            put(&side.state, Word::Taken, side.taken)?;
        }
        Ok(found)
    }

    /// Sends a frame by an interface (0 or 1).
    ///
    /// # Errors
    /// The system's, as of [`VnetSender::send`].
    pub fn send(&self, by: usize, header: &VnetHeader, frame: &[u8]) -> io::Result<()> {
        match self.sides.get(by) {
            Some(side) => side.sender.send(header, frame),
            None => Err(io::Error::from_raw_os_error(libc::ENXIO)),
        }
    }

    /// Name of an interface (0 or 1).
    pub fn name(&self, of: usize) -> &str {
        self.sides.get(of).map_or("", |side| &side.name)
    }

    /// What became of the frames that an interface (0 or 1) received since the process joined it.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn counts(&self, of: usize) -> Result<WireCounts, XskError> {
        let Some(side) = self.sides.get(of) else {
            return Ok(WireCounts::default());
        };
        let mut counts = WireCounts::read(&side.state)?;
        counts.overrun = iface::dropped_on_transmit(side.tap.name())?;
        Ok(counts)
    }

    /// What became of them under the process before, if there was one, until this one took over.
    pub fn before(&self, of: usize) -> Option<WireCounts> {
        self.sides.get(of).and_then(|side| side.before)
    }

    /// Whether an interface (0 or 1) is there, up and with a carrier.
    ///
    /// # Errors
    /// It is not, which is what the error says.
    pub fn check_link(&self, of: usize) -> Result<(), XskError> {
        match self.sides.get(of) {
            Some(side) => crate::check_link(&side.link),
            None => Ok(()),
        }
    }

    /// What becomes readable when a frame comes in, by interface.
    pub fn waits(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sides.iter().map(|side| side.tap.as_fd())
    }
}

/// Gives interfaces back to the stack that processes left joined. Returns those that were.
///
/// # Errors
/// No such interface, another program of weir's is on it, or a process still joins them.
pub fn detach<'a>(names: &[&'a str]) -> Result<Vec<&'a str>, XskError> {
    let mut found = Vec::new();
    for name in names {
        if let Some(left) = Left::find(name)? {
            found.push((*name, left));
        }
    }
    for (name, left) in &found {
        if word(&left.state, Word::Promiscuous)? != 0 {
            iface::set_promiscuous(name, false)?;
        }
        left.filter()?.detach()?;
    }
    Ok(found.into_iter().map(|(name, _)| name).collect())
}

/// One side, and the filter if it is a new one.
fn side(
    name: &str,
    ifindex: u32,
    peer: u32,
    config: WireConfig,
) -> Result<(Side, Option<Filter>), XskError> {
    let left = Left::find(name)?;
    let mtu = iface::find(name)?.mtu;
    // An index is at most ten digits.
    let tap = VnetTap::make(&format!("wire{ifindex}"), mtu, config.bound + SLACK)?;
    let mut object = KernelObject::open(weir_bpf::tool(PROGRAM).unwrap_or_default())?;
    for (symbol, value) in [
        ("wire_peer", peer),
        ("wire_open", u32::from(config.fail_open)),
    ] {
        object.set_rodata(symbol, &value.to_ne_bytes())?;
    }
    for (symbol, value) in [
        ("wire_bound", u64::from(config.bound)),
        ("wire_away_ns", AWAY.as_nanos() as u64),
    ] {
        object.set_rodata(symbol, &value.to_ne_bytes())?;
    }
    let program = object.load(PROGRAM)?;
    let state = program.mmap_array(STATE)?;
    let changed = iface::set_promiscuous(name, true)?;
    let (mut made_qdisc, mut promiscuous, mut before) = (false, changed, None);
    let filter = match left {
        Some(left) => {
            let filter = left.filter()?;
            made_qdisc = filter.made_qdisc();
            promiscuous |= word(&left.state, Word::Promiscuous)? != 0;
            let replaced = filter.replace(&program);
            filter.keep();
            replaced?;
            // What ran when it was replaced counts on the old side still.
            weir_kernel::grace_period()?;
            before = Some(WireCounts::read(&left.state)?);
            None
        }
        None => {
            let filter = Filter::attach(&program, ifindex, Direction::Ingress, false)?;
            made_qdisc |= filter.made_qdisc();
            Some(filter)
        }
    };
    put(&state, Word::Qdisc, u64::from(made_qdisc))?;
    put(&state, Word::Promiscuous, u64::from(promiscuous))?;
    let side = Side {
        name: name.to_owned(),
        tap,
        sender: VnetSender::open(name)?,
        link: LinkWatch::new(name)?,
        state,
        taken: 0,
        before,
    };
    Ok((side, filter))
}

fn word(state: &MmapArray, which: Word) -> Result<u64, KernelError> {
    let mut bytes = [0; 8];
    state.read(which as usize * 8, &mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

fn put(state: &MmapArray, which: Word, value: u64) -> Result<(), KernelError> {
    state.publish(which as usize * 8, value)
}
