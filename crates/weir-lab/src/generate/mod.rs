//! The packet generator of `weir generate`: frames that the kernel makes up and sends out of an interface, paced or as fast as it goes,
//! and a sink on another interface that counts what arrived.
//!
//! [`Load`] says what is sent, [`Pace`] how fast and how long, [`run`] does it on the calling thread, whose CPU time is the cost.
//! Every frame is written anew on every run and carries its number, so that lost, repeated and reordered ones are told apart. What the
//! device did not take is told by tracepoints (`weir_engine::monitor`). Invariant: nothing is sent out of a device that may lead into a real network unless the caller says that
//! it is his.

pub mod abi;
mod mix;
mod traffic;

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use weir_engine::monitor;
use weir_kernel::iface::{self, Interface};
use weir_kernel::{KernelError, KernelObject, Link, LoadedProgram, XdpMode, netns};
use zerocopy::{FromBytes, IntoBytes};

use abi::{Arrived, State};
pub use mix::{Gaps, Mix, MixError, Plan, Written};
pub use traffic::{CAPTURE_MAX, FLOWS_MAX, Load, Protocol, Traffic, benchmark};

/// Frames of a call at most: a call ends early only by a signal.
const CALL_MAX: u64 = 1 << 28;
/// ns of a run that gives its frame back, at least: it looks at the clock 16 times.
const IDLE_NS: u64 = 100;
/// ns that sending a frame is taken to cost before it was measured.
const SEND_NS: u64 = 100;
/// Numbers whose arrival is kept track of: 32 MiB.
const NUMBERS_MAX: u64 = 1 << 28;
/// How long after the last frame others may arrive.
const QUIET: Duration = Duration::from_millis(60);

/// How fast, and until when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// Frames a second; `None`: as fast as it goes.
    pub rate: Option<u64>,
    /// Frames to send; `None`: until the time is over.
    pub frames: Option<u64>,
    /// How long at most.
    pub lasting: Option<Duration>,
}

/// Where to send and what to count.
#[derive(Clone, Copy, Debug)]
pub struct Endpoints<'a> {
    /// Interface to send from, of the current namespace.
    pub interface: &'a str,
    /// Interface at which to count what arrives; nothing else may be attached there.
    pub count_on: Option<&'a str>,
    /// The caller answers for whatever network the interface leads to.
    pub owned: bool,
}

/// What was sent and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Where it was sent from.
    pub interface: String,
    /// Frames written.
    pub sent: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Seconds from the first to the last.
    pub seconds: f64,
    /// Frames a second over that time.
    pub rate: f64,
    /// Frames that the device took; `None` where not reported by this kernel.
    pub taken: Option<u64>,
    /// Frames that it did not take, by reason.
    pub refused: BTreeMap<String, u64>,
    /// What arrived where it was counted.
    pub arrived: Option<Arrival>,
    /// Whether it was interrupted.
    pub interrupted: bool,
    /// What a user should know, one sentence each.
    pub notes: Vec<String>,
}

/// What arrived.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Arrival {
    /// Where.
    pub interface: String,
    /// Frames of this run.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Numbers that never arrived; `None` where they were not all kept track of.
    pub lost: Option<u64>,
    /// Frames that arrived once more.
    pub repeated: u64,
    /// Frames behind one that was sent later, on the same CPU.
    pub reordered: u64,
    /// Frames of others, which went on to the stack.
    pub other: u64,
    /// Mean time from writing a frame to counting it, of one frame in 64, in ns.
    pub delay_mean_ns: Option<u64>,
    /// The longest of those.
    pub delay_max_ns: Option<u64>,
}

/// Why nothing can be sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GenerateError {
    /// What is to be sent cannot be.
    #[error("{0}")]
    Traffic(String),
    /// The interface may lead into a network that is not the caller's.
    #[error(
        "{name} is {what}: frames from it may reach a real network; generate on a veth or a tap, \
         or say --i-own-this-network"
    )]
    NotYours {
        /// The interface.
        name: String,
        /// What kind it is.
        what: String,
    },
    /// The interface is down.
    #[error("{0} is down: `ip link set {0} up`")]
    Down(String),
    /// The frames are longer than the interface takes.
    #[error("{name} takes packets of {mtu} bytes, and the longest frame has {longest}: `ip link set {name} mtu {}`", longest - 14)]
    TooLong {
        /// The interface.
        name: String,
        /// Its MTU.
        mtu: u32,
        /// Bytes of the longest frame.
        longest: usize,
    },
    /// The device took nothing.
    #[error("{name} took none of {sent} frames: {why}{cure}")]
    NothingTaken {
        /// The interface.
        name: String,
        /// Frames written.
        sent: u64,
        /// Reasons and numbers.
        why: String,
        /// The next step, with a leading separator.
        cure: String,
    },
    /// The generator could not write its frames: a defect of weir.
    #[error("the generator could not write {0} frames; this is a defect of weir")]
    Unwritten(u64),
    /// The kernel refused something.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

/// Sends, on the calling thread and in its namespace. `stop` ends it early (with the next signal, too).
///
/// # Errors
/// The interface is not fit, the kernel refuses, or the device took nothing.
pub fn run(
    load: &Load,
    pace: Pace,
    place: Endpoints<'_>,
    stop: &AtomicBool,
) -> Result<Report, GenerateError> {
    let interface = iface::find(place.interface)?;
    check(&interface, load, place.owned)?;
    let tag = tag();
    let sink = match place.count_on {
        Some(name) => Some(Sink::attach(name, tag, load.capture, numbers(pace))?),
        None => None,
    };
    let watch = monitor::watch()?;
    let before = watch.read()?;
    let program = generator(load, pace, tag)?;
    let interrupted = send(&program, load, pace, &interface, stop)?;
    let state = state(&program)?;
    if let Some(sink) = &sink {
        sink.settle(state.sent)?;
    }
    let told = watch
        .absent()
        .iter()
        .all(|absent| absent.tracepoint != "xdp_devmap_xmit");
    let netns = netns::current_inode()? as u32;
    let seen = watch.read()?.since(&before);
    let (device, whole) = (
        seen.device(netns, interface.ifindex),
        seen.refused_by_device(netns, interface.ifindex),
    );
    let mut refused = device.dropped;
    for (why, frames) in whole.dropped {
        *refused.entry(why).or_default() += frames;
    }
    if state.failed > 0 {
        return Err(GenerateError::Unwritten(state.failed));
    }
    if told && state.sent > 0 && device.sent == 0 && !refused.is_empty() {
        return Err(nothing_taken(&interface, state.sent, &refused));
    }
    let seconds = state.end.saturating_sub(state.start) as f64 / 1e9;
    Ok(Report {
        interface: interface.name.clone(),
        sent: state.sent,
        bytes: state.bytes,
        seconds,
        rate: if seconds > 0.0 {
            state.sent as f64 / seconds
        } else {
            0.0
        },
        taken: told.then_some(device.sent),
        refused,
        arrived: sink
            .map(|sink| sink.report(state.sent, load.capture))
            .transpose()?,
        interrupted,
        notes: notes(load, &interface),
    })
}

/// Refuses interfaces that cannot or should not be sent from.
fn check(interface: &Interface, load: &Load, owned: bool) -> Result<(), GenerateError> {
    let name = interface.name.clone();
    let harmless = matches!(interface.driver.as_str(), "veth" | "tun") || name == "lo";
    if !harmless && !owned {
        let what = match interface.driver.as_str() {
            "" => "a device without a driver's name".to_owned(),
            driver => format!("a device of driver {driver}"),
        };
        return Err(GenerateError::NotYours { name, what });
    }
    if !interface.up {
        return Err(GenerateError::Down(name));
    }
    let longest = load.longest();
    if longest > interface.mtu as usize + 14 {
        let mtu = interface.mtu;
        return Err(GenerateError::TooLong { name, mtu, longest });
    }
    Ok(())
}

fn nothing_taken(
    interface: &Interface,
    sent: u64,
    refused: &BTreeMap<String, u64>,
) -> GenerateError {
    let why: Vec<String> = refused
        .iter()
        .map(|(why, frames)| format!("{frames} because {why}"))
        .collect();
    let cure = match interface.driver.as_str() {
        "veth" => {
            let far = netns::far_end(interface.ifindex).ok().flatten();
            let here = far
                .as_ref()
                .is_some_and(|far| far.place == netns::NetnsRef::Here);
            let known = far.and_then(|far| Some((far.place.prefix()?, far.name?)));
            let (there, peer) = match &known {
                Some((there, peer)) => (there.as_str(), peer.as_str()),
                None => ("", "NAME"),
            };
            let place = match (known.is_some(), here) {
                (false, _) => ", in another namespace: there",
                _ => "",
            };
            let attaches = match here {
                true => format!(" (--count-on {peer} attaches one)"),
                false => String::new(),
            };
            format!(
                "; on the far end{place}, `{there}ethtool -K {peer} gro on` lets frames into its stack, an XDP program takes them itself{attaches}"
            )
        }
        "tun" => "; start the virtual machine that opens the tap".to_owned(),
        _ if interface.name == "lo" => {
            "; the loopback device takes no XDP frames, use a veth pair".to_owned()
        }
        driver => format!(
            "; driver {driver} may not transmit XDP frames, `weir doctor` and `ethtool -i` tell more"
        ),
    };
    GenerateError::NothingTaken {
        name: interface.name.clone(),
        sent,
        why: why.join(", "),
        cure,
    }
}

fn notes(load: &Load, interface: &Interface) -> Vec<String> {
    let mut notes = Vec::new();
    if load.left_out > 0 {
        notes.push(format!(
            "{} frames of the capture were left out: cut off, or longer than {} bytes",
            load.left_out,
            abi::FRAME
        ));
    }
    if interface.driver == "veth" && interface.veth_peer.is_none() {
        notes.push(format!("{} does not tell its far end", interface.name));
    }
    notes
}

/// Tag of a run: another one each time, so that late frames of an earlier run are not counted.
fn tag() -> u32 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let ns = (now.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(now.tv_nsec as u64);
    (ns ^ u64::from(std::process::id()) << 20)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_shr(32) as u32
        | 1
}

/// How many numbers a run can use.
fn numbers(pace: Pace) -> u64 {
    // What one CPU can send.
    const FASTEST: f64 = 20e6;
    let by_time = pace.lasting.map(|time| {
        let rate = pace.rate.map_or(FASTEST, |rate| rate as f64);
        (time.as_secs_f64() * rate) as u64 + 1024
    });
    let most = [pace.frames, by_time].into_iter().flatten().min();
    most.unwrap_or(NUMBERS_MAX).clamp(64, NUMBERS_MAX)
}

fn generator(load: &Load, pace: Pace, tag: u32) -> Result<LoadedProgram, GenerateError> {
    let mut object = KernelObject::open(weir_bpf::tool("generator").unwrap_or_default())?;
    let longest = load.longest().max(traffic::SHORTEST) as u32;
    for (name, value) in [
        ("weir_templates", load.templates.len() as u32),
        ("weir_flows", load.flows.len().max(1) as u32),
        ("weir_longest", longest),
        ("weir_run", tag),
        ("weir_in_turn", u32::from(load.capture)),
    ] {
        object.set_rodata(name, &value.to_ne_bytes())?;
    }
    object.set_map_entries("templates", load.templates.len() as u32)?;
    object.set_map_entries("flows", load.flows.len().max(1) as u32)?;
    let program = object.load("generator")?;
    for (first, some) in (0u32..).step_by(64).zip(load.templates.chunks(64)) {
        program.write_array("templates", first, some.as_bytes())?;
    }
    program.write_array("flows", 0, load.flows.as_bytes())?;
    let state = State {
        rate: pace.rate.unwrap_or(0),
        frames: pace.frames.unwrap_or(0),
        lasting: pace.lasting.map_or(0, |time| time.as_nanos() as u64),
        ..State::default()
    };
    program.update("state", &0u32.to_ne_bytes(), state.as_bytes(), 0)?;
    Ok(program)
}

fn state(program: &LoadedProgram) -> Result<State, KernelError> {
    let bytes = program.lookup("state", &0u32.to_ne_bytes())?;
    let state = bytes.and_then(|bytes| State::read_from_bytes(&bytes).ok());
    Ok(state.unwrap_or_default())
}

/// Calls the kernel until it is over; returns whether it was interrupted.
fn send(
    program: &LoadedProgram,
    load: &Load,
    pace: Pace,
    interface: &Interface,
    stop: &AtomicBool,
) -> Result<bool, GenerateError> {
    let frame = vec![0; load.longest().max(traffic::SHORTEST)];
    let begun = Instant::now();
    let mut send_ns = SEND_NS;
    loop {
        let before = state(program)?;
        if before.over != 0 || before.failed > 0 {
            return Ok(false);
        }
        if stop.load(Ordering::Relaxed) {
            // The end is when the last call returned.
            let mut state = before;
            state.end = state.start + begun.elapsed().as_nanos() as u64;
            program.update("state", &0u32.to_ne_bytes(), state.as_bytes(), 0)?;
            return Ok(true);
        }
        let runs = runs(pace, &before, begun.elapsed(), send_ns);
        let called = Instant::now();
        match program.run_live(&frame, interface.ifindex, runs as u32) {
            Err(KernelError::Sys { source, .. }) if source.kind() == io::ErrorKind::Interrupted => {
            }
            other => other?,
        }
        let sent = state(program)?.sent - before.sent;
        if pace.rate.is_none() && sent > 10_000 {
            send_ns = (called.elapsed().as_nanos() as u64 / sent).max(20);
        }
    }
}

/// Runs that are needed to get to the end, by what is known; more than needed come to nothing quickly.
fn runs(pace: Pace, state: &State, elapsed: Duration, send_ns: u64) -> u64 {
    let left = pace.frames.map(|frames| frames.saturating_sub(state.sent));
    let time_left = pace
        .lasting
        .map(|all| all.saturating_sub(elapsed).as_nanos() as u64);
    let needed = match (pace.rate, left, time_left) {
        // One more sees that it is over.
        (None, Some(left), None) => left.saturating_add(1),
        (None, left, Some(time)) => {
            (time / send_ns + 1_000).min(left.map_or(u64::MAX, |left| left.saturating_add(1)))
        }
        (None, None, None) => 1 << 22,
        (Some(rate), left, time) => {
            let by_frames = left.map(|left| left.saturating_mul(1_000_000_000) / rate.max(1));
            let ns = [by_frames, time]
                .into_iter()
                .flatten()
                .min()
                .unwrap_or(1_000_000_000);
            let frames = (ns as f64 / 1e9 * rate as f64) as u64;
            frames.saturating_add(ns / IDLE_NS).saturating_add(1_000)
        }
    };
    needed.clamp(64, CALL_MAX)
}

/// The counting program on an interface.
struct Sink {
    name: String,
    program: LoadedProgram,
    numbers: u64,
    _link: Link,
}

impl Sink {
    fn attach(name: &str, tag: u32, all: bool, numbers: u64) -> Result<Sink, GenerateError> {
        let mut object = KernelObject::open(weir_bpf::tool("sink").unwrap_or_default())?;
        object.set_rodata("weir_run", &tag.to_ne_bytes())?;
        object.set_rodata("weir_all", &u32::from(all).to_ne_bytes())?;
        let words = if all { 1 } else { numbers.div_ceil(64) };
        object.set_map_entries("numbers", words as u32)?;
        let program = object.load("sink")?;
        let link = program.attach_xdp(iface::index_of(name)?, XdpMode::Native)?;
        Ok(Sink {
            name: name.to_owned(),
            program,
            numbers,
            _link: link,
        })
    }

    fn read(&self) -> Result<Arrived, KernelError> {
        let mut sum = Arrived::default();
        for value in self.program.lookup_percpu("arrived", &0u32.to_ne_bytes())? {
            let Ok(one) = Arrived::read_from_bytes(&value) else {
                continue;
            };
            sum.frames += one.frames;
            sum.bytes += one.bytes;
            sum.repeated += one.repeated;
            sum.reordered += one.reordered;
            sum.untracked += one.untracked;
            sum.other += one.other;
            sum.delays += one.delays;
            sum.delay_sum += one.delay_sum;
            sum.delay_max = sum.delay_max.max(one.delay_max);
        }
        Ok(sum)
    }

    /// Waits until all of them are here or none came for a while.
    fn settle(&self, sent: u64) -> Result<(), KernelError> {
        let mut last = (self.read()?.frames, Instant::now());
        while last.0 < sent && last.1.elapsed() < QUIET {
            std::thread::sleep(Duration::from_millis(3));
            let now = self.read()?.frames;
            if now != last.0 {
                last = (now, Instant::now());
            }
        }
        Ok(())
    }

    fn report(&self, sent: u64, capture: bool) -> Result<Arrival, KernelError> {
        let seen = self.read()?;
        let tracked = seen.untracked == 0 && sent <= self.numbers;
        let lost = if capture {
            Some(sent.saturating_sub(seen.frames))
        } else {
            tracked.then(|| sent.saturating_sub(seen.frames - seen.repeated))
        };
        Ok(Arrival {
            interface: self.name.clone(),
            frames: seen.frames,
            bytes: seen.bytes,
            lost,
            repeated: seen.repeated,
            reordered: seen.reordered,
            other: seen.other,
            delay_mean_ns: seen.delay_sum.checked_div(seen.delays),
            delay_max_ns: (seen.delays > 0).then_some(seen.delay_max),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_as_long_as_what_is_left() {
        let state = State::default();
        let of = |pace| runs(pace, &state, Duration::ZERO, 100);
        let frames = |frames| Pace {
            frames: Some(frames),
            ..Pace::default()
        };
        assert_eq!(of(frames(1_000)), 1_001);
        assert_eq!(of(frames(u64::MAX)), CALL_MAX);
        let slow = Pace {
            rate: Some(1_000),
            frames: Some(1_000),
            lasting: None,
        };
        assert!(of(slow) > 1_000_000, "a second of looking at the clock");
        let both = Pace {
            rate: None,
            frames: Some(10),
            lasting: Some(Duration::from_secs(1)),
        };
        assert_eq!(of(both), 64);
    }

    #[test]
    fn numbers_are_kept_for_what_can_be_sent() {
        let pace = Pace {
            rate: Some(1_000),
            frames: None,
            lasting: Some(Duration::from_secs(2)),
        };
        assert_eq!(numbers(pace), 3_024);
        assert_eq!(numbers(Pace::default()), NUMBERS_MAX);
    }
}
