//! `weir bench xsk`: what receiving over AF_XDP costs beside the least C program for the same rings, how much is received and forwarded beside packet sockets of the same job,
//! and round trips beside UDP sockets. One veth pair, the generator on one CPU and what is measured on another; rounds are interleaved.

use std::fs::File;
use std::io::{self, Write};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::Value;
use weir_kernel::bed::{self, End};
use weir_kernel::{NetNs, XdpMode};
use weir_xsk::{Match, Steer};

use super::measure::{Samples, schedstat_ns};
use super::report::{Absent, Figure, Outcome, Promise};
use super::{Bench, BenchOptions, Scale};
use crate::LabError;
use crate::process::{Running, Scratch, missing};

/// The program to compare with.
const SOURCE: &str = include_str!("receive.c");
/// How long anything may take to get ready, or to end.
const PATIENCE: Duration = Duration::from_secs(20);
/// CPUs of the generator or prober, and of what is measured.
const NEAR_CPU: usize = 0;
const FAR_CPU: usize = 1;
/// Between frames that arrive and the reading of counters.
const QUIET: Duration = Duration::from_millis(60);

/// Runs the benchmark of AF_XDP sockets, tells about it on `out`.
///
/// # Errors
/// When it could not be carried out. Missed targets are results.
pub fn xsk(options: &BenchOptions<'_>, out: &mut dyn Write) -> Result<Outcome, LabError> {
    let mut bench = Bench {
        options,
        groups: Vec::new(),
        scale: Scale::of(options),
        outcome: Outcome::new("xsk", options.quick),
        out,
    };
    if thread::available_parallelism().map_or(1, usize::from) < 2 {
        bench.refuse("xsk", "both ends need a CPU each, and there is one");
        return Ok(bench.outcome);
    }
    let bed = Bed::new()?;
    measure(&mut bench, &bed)?;
    bench.progress("")?;
    Ok(bench.outcome)
}

struct Bed {
    near: NetNs,
    far: NetNs,
    scratch: Scratch,
}

impl Bed {
    fn new() -> Result<Bed, LabError> {
        let bed = Bed {
            near: NetNs::create("weir-bx-a")?,
            far: NetNs::create("weir-bx-b")?,
            scratch: Scratch::create("weir-bench-xsk")?,
        };
        for ns in [&bed.near, &bed.far] {
            for which in ["all", "default"] {
                ns.sysctl(&format!("net.ipv6.conf.{which}.disable_ipv6"), "1")?;
            }
        }
        let end = |ns, name, addresses| End {
            ns,
            name,
            addresses,
        };
        bed::veth(
            end(&bed.near, "near", &["10.83.0.1/24"]),
            end(&bed.far, "far", &["10.83.0.2/24"]),
        )?;
        Ok(bed)
    }
}

fn measure(bench: &mut Bench<'_>, bed: &Bed) -> Result<(), LabError> {
    let c = compile(bench, bed)?;
    let (rounds, frames, pings) = if bench.scale.quick {
        (3, "400k", 2_000)
    } else {
        (9, "3M", 20_000)
    };
    let weir = bench.options.weir.to_string_lossy().into_owned();
    let mut found: Vec<(&str, &'static str, Samples)> = Vec::new();
    let mut note = |name: &'static str, unit: &'static str, value: f64| match found
        .iter_mut()
        .find(|(n, ..)| *n == name)
    {
        Some((_, _, samples)) => samples.push(value),
        None => found.push((name, unit, Samples(vec![value]))),
    };
    for round in 0..rounds {
        bench.progress(&format!("round {} of {rounds}", round + 1))?;
        // Alternately first, so that neither has the warmer or the colder half of a round.
        let mut order = [true, false];
        if round % 2 == 1 {
            order.reverse();
        }
        for ours in order {
            if ours {
                let seen = receive(
                    bed,
                    &weir,
                    &mut receiver(bed, &weir, &["--wait", "poll"])?,
                    frames,
                )?;
                note("xsk.receive.weir.cpu", "ns", seen.cpu_ns);
            } else if let Some(c) = &c {
                let mut command = bed.far.command(c)?;
                command.args(["far", &FAR_CPU.to_string(), "10"]);
                let seen = receive(bed, &weir, &mut command, frames)?;
                note("xsk.receive.c.cpu", "ns", seen.cpu_ns);
            }
        }
        let seen = receive(bed, &weir, &mut receiver(bed, &weir, &[])?, frames)?;
        note("xsk.receive.weir.rate", "Mpps", seen.rate);
        if let Some(c) = &c {
            let mut command = bed.far.command(c)?;
            command.args(["far", &FAR_CPU.to_string(), "0"]);
            let seen = receive(bed, &weir, &mut command, frames)?;
            note("xsk.receive.c.rate", "Mpps", seen.rate);
        }
        let seen = forward(bed, &weir, &["--match", "all"], frames)?;
        note("xsk.forward.weir.rate", "Mpps", seen);
        {
            // What the generator sends reaches a veth only if a program runs at its far end.
            let pass = bed
                .far
                .run(|| Steer::attach("far", XdpMode::Native, Match::EtherType(0xffff), false))?;
            let _pass = pass.map_err(|e| LabError::Engine(e.to_string()))?;
            let seen = receive(
                bed,
                &weir,
                &mut receiver(bed, &weir, &["--packet"])?,
                frames,
            )?;
            note("xsk.receive.packet.rate", "Mpps", seen.rate);
            let seen = forward(bed, &weir, &["--match", "all", "--packet"], frames)?;
            note("xsk.forward.packet.rate", "Mpps", seen);
        }
        note("xsk.trip.weir.p50", "us", trip(bed, &weir, pings)?);
        note("xsk.trip.udp.p50", "us", udp(bed, pings, false)?);
        note("xsk.trip.udp-blocking.p50", "us", udp(bed, pings, true)?);
    }
    for (name, unit, samples) in found {
        bench.figure(Figure::new(name, unit, samples));
    }
    let outcome = &mut bench.outcome;
    for (above, below, promise) in [
        (
            "xsk.receive.weir.cpu",
            "xsk.receive.c.cpu",
            Promise::AtMost(1.1),
        ),
        (
            "xsk.receive.weir.rate",
            "xsk.receive.c.rate",
            Promise::Reported,
        ),
        (
            "xsk.receive.weir.rate",
            "xsk.receive.packet.rate",
            Promise::AtLeast(1.0),
        ),
        (
            "xsk.forward.weir.rate",
            "xsk.forward.packet.rate",
            Promise::AtLeast(1.0),
        ),
        (
            "xsk.trip.weir.p50",
            "xsk.trip.udp.p50",
            Promise::AtMost(1.1),
        ),
        (
            "xsk.trip.weir.p50",
            "xsk.trip.udp-blocking.p50",
            Promise::AtMost(0.35),
        ),
    ] {
        outcome.compare(above, below, promise);
    }
    bench.note("cpu: CPU time of the receiving thread, in poll, over frames received; the generator offers more than either takes, and its CPU does the kernel's part".to_owned());
    Ok(())
}

/// The C program, if there is a compiler.
fn compile(bench: &mut Bench<'_>, bed: &Bed) -> Result<Option<String>, LabError> {
    if !missing(&["cc"]).is_empty() {
        bench.outcome.absent.push(Absent {
            program: "cc".to_owned(),
            package: "gcc".to_owned(),
        });
        return Ok(None);
    }
    let source = bed.scratch.write("receive.c", SOURCE.as_bytes())?;
    let program = bed.scratch.path().join("receive");
    let output = Command::new("cc")
        .args(["-O2", "-o"])
        .arg(&program)
        .arg(&source)
        .output()
        .map_err(LabError::io("run cc"))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        bench.refuse("xsk.receive.c", words.lines().next().unwrap_or("cc failed"));
        return Ok(None);
    }
    Ok(Some(program.to_string_lossy().into_owned()))
}

/// `weir xsk receive` on the far end.
fn receiver(bed: &Bed, weir: &str, more: &[&str]) -> Result<Command, LabError> {
    let mut command = bed.far.command(weir)?;
    command
        .args([
            "xsk",
            "receive",
            "-i",
            "far",
            "--match",
            "all",
            "--no-delays",
            "--json",
        ])
        .args(["--cpu", &FAR_CPU.to_string()])
        .args(more);
    Ok(command)
}

/// What a receiver did with what the generator sent.
struct Seen {
    /// CPU time of it for each frame received.
    cpu_ns: f64,
    /// Frames received a microsecond of sending.
    rate: f64,
}

fn receive(bed: &Bed, weir: &str, command: &mut Command, frames: &str) -> Result<Seen, LabError> {
    let (mut running, stdout) = started(bed, command, "receive")?;
    let before = running.threads_ns();
    let seconds = generate(bed, weir, frames)?;
    thread::sleep(QUIET);
    let cpu = running.threads_ns() - before;
    let report = ended(&mut running, &stdout)?;
    let received = number(&report, "received") + number(&report, "others");
    if received == 0.0 {
        return Err(running.failed("received nothing"));
    }
    Ok(Seen {
        cpu_ns: cpu / received,
        rate: received / seconds / 1e6,
    })
}

/// Frames that a forwarder sent back a microsecond of sending.
fn forward(bed: &Bed, weir: &str, more: &[&str], frames: &str) -> Result<f64, LabError> {
    let mut command = bed.far.command(weir)?;
    command
        .args(["xsk", "forward", "-i", "far", "--json"])
        .args(["--cpu", &FAR_CPU.to_string()])
        .args(more);
    let (mut running, stdout) = started(bed, &mut command, "forward")?;
    let seconds = generate(bed, weir, frames)?;
    thread::sleep(QUIET);
    let report = ended(&mut running, &stdout)?;
    Ok(number(&report, "forwarded") / seconds / 1e6)
}

/// Starts a child that is placed by its arguments, and waits until it is ready.
fn started(bed: &Bed, command: &mut Command, name: &str) -> Result<(Running, PathBuf), LabError> {
    let stdout = bed.scratch.fresh(name, "stdout");
    let file =
        File::create(&stdout).map_err(LabError::io(format!("create {}", stdout.display())))?;
    command.stdout(file);
    let mut running = Running::start(command, name, &bed.scratch)?;
    running.wait_until(PATIENCE, |r| Ok(r.stderr().contains("Ctrl-C stops")))?;
    Ok((running, stdout))
}

fn ended(running: &mut Running, stdout: &Path) -> Result<Value, LabError> {
    running.signal(Signal::TERM)?;
    let status = running.wait(PATIENCE)?;
    if !status.success() {
        return Err(running.failed(&format!("failed ({status})")));
    }
    json(stdout)
}

fn json(path: &Path) -> Result<Value, LabError> {
    let text =
        std::fs::read_to_string(path).map_err(LabError::io(format!("read {}", path.display())))?;
    serde_json::from_str(&text).map_err(|e| LabError::Engine(format!("{}: {e}", path.display())))
}

fn number(report: &Value, name: &str) -> f64 {
    report[name].as_f64().unwrap_or(0.0)
}

/// Sends frames of 64 bytes as fast as it goes. Returns how long that took.
fn generate(bed: &Bed, weir: &str, frames: &str) -> Result<f64, LabError> {
    let output = bed
        .near
        .command(weir)?
        .args([
            "generate", "-i", "near", "--udp", "--frames", frames, "--json",
        ])
        .args(["--cpu", &NEAR_CPU.to_string()])
        .output()
        .map_err(LabError::io("start weir generate"))?;
    let report: Value = serde_json::from_slice(&output.stdout).map_err(|_| LabError::Child {
        what: "weir generate".to_owned(),
        why: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })?;
    Ok(number(&report, "seconds").max(1e-9))
}

/// The median round trip over AF_XDP, both ends spinning, in us.
fn trip(bed: &Bed, weir: &str, pings: u32) -> Result<f64, LabError> {
    let mut command = bed.far.command(weir)?;
    command
        .args(["xsk", "forward", "-i", "far", "--json"])
        .args(["--cpu", &FAR_CPU.to_string()]);
    let (mut running, stdout) = started(bed, &mut command, "forward")?;
    let output = bed
        .near
        .command(weir)?
        .args([
            "xsk",
            "ping",
            "-i",
            "near",
            "--json",
            "--interval",
            "0",
            "--warm-up",
            "500",
        ])
        .args([
            "--cpu",
            &NEAR_CPU.to_string(),
            "--count",
            &pings.to_string(),
        ])
        .output()
        .map_err(LabError::io("start weir xsk ping"))?;
    ended(&mut running, &stdout)?;
    let report: Value = serde_json::from_slice(&output.stdout).map_err(|_| LabError::Child {
        what: "weir xsk ping".to_owned(),
        why: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })?;
    Ok(number(&report["round_trip_ns"], "median") / 1e3)
}

/// The median round trip over UDP sockets, in us.
fn udp(bed: &Bed, pings: u32, blocking: bool) -> Result<f64, LabError> {
    let failed = LabError::io("exchange datagrams");
    let open = |ns: &NetNs, address: &str| -> Result<UdpSocket, LabError> {
        let socket = ns.run(|| UdpSocket::bind(address))?;
        let socket = socket.map_err(LabError::io("open a UDP socket"))?;
        socket
            .set_nonblocking(!blocking)
            .and_then(|()| socket.set_read_timeout(Some(Duration::from_millis(200))))
            .map_err(LabError::io("set up a UDP socket"))?;
        Ok(socket)
    };
    let far = open(&bed.far, "10.83.0.2:7")?;
    let near = open(&bed.near, "10.83.0.1:0")?;
    let stop = AtomicBool::new(false);
    let mut trips = thread::scope(|scope| -> Result<Vec<u64>, io::Error> {
        scope.spawn(|| {
            let _ = bind(FAR_CPU);
            let mut bytes = [0; 64];
            while !stop.load(Ordering::Relaxed) {
                if let Ok((len, from)) = far.recv_from(&mut bytes) {
                    let _ = far.send_to(&bytes[..len], from);
                }
            }
        });
        let prober = scope.spawn(|| {
            let _ = bind(NEAR_CPU);
            let result = probe(&near, pings);
            stop.store(true, Ordering::Relaxed);
            result
        });
        prober
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
    .map_err(failed)?;
    trips.sort_unstable();
    Ok(trips
        .get(trips.len() / 2)
        .map_or(f64::NAN, |ns| *ns as f64 / 1e3))
}

fn probe(socket: &UdpSocket, pings: u32) -> io::Result<Vec<u64>> {
    const WARM_UP: u32 = 500;
    let mut trips = Vec::with_capacity(pings as usize);
    let mut bytes = [0; 64];
    for n in 0..pings + WARM_UP {
        bytes[..4].copy_from_slice(&n.to_ne_bytes());
        let begun = Instant::now();
        socket.send_to(&bytes, "10.83.0.2:7")?;
        loop {
            match socket.recv_from(&mut bytes) {
                Ok(_) if bytes[..4] == n.to_ne_bytes() => break,
                Ok(_) => {}
                // Nobody loses datagrams here; one that comes late is not waited for.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    if begun.elapsed() > Duration::from_millis(200) {
                        break;
                    }
                }
                Err(e) => return Err(e),
            }
        }
        if n >= WARM_UP {
            trips.push(begun.elapsed().as_nanos() as u64);
        }
    }
    Ok(trips)
}

impl Running {
    /// CPU time of all its threads so far, ns.
    fn threads_ns(&self) -> f64 {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.id()));
        tasks
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|task| task.file_name().to_string_lossy().parse().ok())
            .filter_map(schedstat_ns)
            .sum()
    }
}

fn bind(cpu: usize) -> Result<(), LabError> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).map_err(|e| LabError::Io {
        what: "place a thread".to_owned(),
        source: e.into(),
    })
}
