//! `weir xsk`: AF_XDP sockets at work. Arguments to setups, reports to text.
//!
//! Exit status 0 if it ran to its end, losses or not: they are a result. 1 if something failed at work (a link that went down, a busy queue, no answer at all to ping), 2 for what cannot be.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use weir_kernel::{iface, probes};
use weir_lab::afxdp::profile::{Given, Role};
use weir_lab::afxdp::recommend::Goal;
use weir_lab::xsk::{
    self, Bucket, Calibration, ForwardPlan, ForwardReport, Kind, LossReport, PingPlan, PingReport,
    ReceivePlan, ReceiveReport, SendPlan, SendReport, Setup, SocketReport, Summary, XskRunError,
};
use weir_xsk::{BusyPoll, Match, Mode, SocketConfig, UmemConfig, Wait};

use super::lab_afxdp_judge::{failure as profile_failure, named_profile};
use crate::args::xsk::{
    ForwardArgs, GoalName, PingArgs, ReceiveArgs, SendArgs, SocketArgs, SteerArgs, XskArgs,
    XskCommand,
};
use crate::failure::Failure;
use crate::limits::stop_on_signals;
use crate::output;

/// How long send works where nothing says.
const USUAL: Duration = Duration::from_secs(10);
/// Frames of ping where nothing says.
const USUAL_PINGS: u64 = 10;
/// Longest interval of frames of the warm-up.
const WARM_UP: Duration = Duration::from_millis(10);

pub(crate) fn run(args: &XskArgs) -> Result<ExitCode, Failure> {
    let stop = stop_on_signals()?;
    match &args.command {
        XskCommand::Send(args) => {
            let plan = SendPlan {
                size: args.size,
                count: args.count,
                rate: args.rate,
                interval: args.interval,
                lasting: or_usual(args.duration, args.count),
                to: args.dst_mac.map(|mac| mac.0),
                ethertype: args.ethertype,
            };
            let setup = setup(&args.socket, None, args.batch, Role::Prober)?;
            let told = output::Elapsed::begin("sending", plan.lasting);
            let report = xsk::send(&setup, &plan, &stop).map_err(failure)?;
            drop(told);
            show(&args.socket, &report, || sent(args, &report))
        }
        XskCommand::Receive(args) => {
            let plan = ReceivePlan {
                count: args.count,
                lasting: args.duration,
                idle: args.idle,
                delays: !args.no_delays,
                samples: args.samples,
            };
            let setup = setup(&args.socket, Some(&args.steer), args.batch, Role::Prober)?;
            let told = output::Elapsed::begin("receiving", plan.lasting);
            let report = xsk::receive(&setup, &plan, &stop).map_err(failure)?;
            drop(told);
            show(&args.socket, &report, || received(args, &report))
        }
        XskCommand::Forward(args) => {
            let plan = ForwardPlan {
                to: args.to.clone(),
                both_ways: args.both_ways,
                stamp: args.stamp,
                count: args.count,
                lasting: args.duration,
                idle: args.idle,
            };
            let setup = setup(&args.socket, Some(&args.steer), args.batch, Role::Forwarder)?;
            let told = output::Elapsed::begin("forwarding", plan.lasting);
            let report = xsk::forward(&setup, &plan, &stop).map_err(failure)?;
            drop(told);
            show(&args.socket, &report, || forwarded(args, &report))
        }
        XskCommand::Ping(args) => {
            let count = match (args.count, args.duration) {
                (None, None) => Some(USUAL_PINGS),
                (count, _) => count,
            };
            let plan = PingPlan {
                size: args.size,
                batch: args.batch,
                count,
                interval: args.interval,
                lasting: args.duration,
                timeout: args.timeout,
                warm_up: args.warm_up,
                // At the interval itself 100 frames could take minutes, without a word.
                warm_up_interval: args.interval.min(WARM_UP),
                back: None,
                to: args.dst_mac.map(|mac| mac.0),
                ethertype: args.ethertype,
                samples: args.samples,
                warm_up_lasting: None,
                calibration: None,
            };
            let setup = setup(&args.socket, Some(&args.steer), args.batch, Role::Prober)?;
            let told = output::Elapsed::begin("probing", plan.lasting);
            let report = xsk::ping(&setup, &plan, &stop).map_err(failure)?;
            drop(told);
            let shown = show(&args.socket, &report, || pinged(args, &report))?;
            if report.sent > 0 && report.received == 0 {
                return Err(Failure::failed(format!(
                    "nothing came back to {}: is `weir xsk forward` running at the far end, and is the address that of its interface (--dst-mac)?",
                    args.socket.interface
                )));
            }
            Ok(shown)
        }
    }
}

fn or_usual(duration: Option<Duration>, count: Option<u64>) -> Option<Duration> {
    match (duration, count) {
        (None, None) => Some(USUAL),
        (given, _) => given,
    }
}

fn setup(
    args: &SocketArgs,
    steer: Option<&SteerArgs>,
    batch: usize,
    role: Role,
) -> Result<Setup, Failure> {
    let usual = SocketConfig::default();
    let mut setup = Setup {
        interface: args.interface.clone(),
        kind: if args.packet { Kind::Packet } else { Kind::Xsk },
        sockets: args.sockets,
        umem: UmemConfig {
            frame_size: args.frame_size.unwrap_or(4096),
            frames: args.frames,
            headroom: args.headroom,
            unaligned: args.unaligned,
            huge_pages: args.huge_pages,
        },
        socket: SocketConfig {
            queue: args.queue,
            rx: args.rx_ring.unwrap_or(usual.rx),
            tx: args.tx_ring.unwrap_or(usual.tx),
            fill: args.fill_ring.unwrap_or(usual.fill),
            completion: args.completion_ring.unwrap_or(usual.completion),
            mode: args.mode.map_or(Mode::Auto, Into::into),
            need_wakeup: !args.no_need_wakeup,
            multi_buffer: args.multi_buffer,
            busy_poll: args
                .busy_poll
                .filter(|micros| *micros > 0)
                .map(|micros| BusyPoll {
                    micros,
                    budget: args.busy_poll_budget,
                    prefer: !args.no_prefer_busy_poll,
                }),
            tx_budget: args.tx_budget,
            patience: args.bind_wait,
        },
        shared: args.shared_umem,
        generic: args.generic,
        what: steer.map_or(Match::EtherType(xsk::ETHERTYPE), |steer| steer.what),
        mark: steer.is_some_and(|steer| steer.mark),
        wait: args.wait.map_or(Wait::Spin, Into::into),
        batch,
        cpus: args.cpu.clone(),
        priority: args.priority,
        queues: args.set_queues,
        retire_ms: args.retire,
        owned: args.i_own_this_network,
        ready: |text| output::tell(&format!("{text}\n")),
        armed: None,
        meter: None,
    };
    if let Some(name) = &args.profile {
        use_profile(args, name, role, &mut setup)?;
    }
    Ok(setup)
}

/// Puts a profile's settings under the flags, and says what of it may not hold or is not for sockets to set.
fn use_profile(
    args: &SocketArgs,
    name: &Path,
    role: Role,
    setup: &mut Setup,
) -> Result<(), Failure> {
    let (path, profile) = named_profile(name)?;
    let goal = match args.profile_for {
        GoalName::Latency => Goal::Latency,
        GoalName::Throughput => Goal::Throughput,
        GoalName::Cpu => Goal::Cpu,
    };
    let given = Given {
        mode: args.mode.is_some() || args.generic,
        wait: args.wait.is_some(),
        need_wakeup: args.need_wakeup || args.no_need_wakeup,
        busy_poll: args.busy_poll.is_some(),
        rings: [
            args.rx_ring,
            args.tx_ring,
            args.fill_ring,
            args.completion_ring,
        ]
        .map(|ring| ring.is_some()),
        frame_size: args.frame_size.is_some(),
        priority: args.priority.is_some(),
    };
    let entry = profile.entry(goal).map_err(profile_failure)?;
    let left = entry.apply(role, given, setup).map_err(profile_failure)?;
    // An interface that is not there is told of when it is opened.
    let device: Vec<(String, String)> = iface::find(&args.interface)
        .map(|found| (found.name, found.driver))
        .into_iter()
        .collect();
    for doubt in profile.doubts(&probes::kernel_release(), &device) {
        output::complain(&format!("the profile {}: {doubt}", path.display()));
    }
    if !left.is_empty() {
        output::complain(&format!(
            "the profile {} also has {}, which is for the machine or the interface, not for a socket, and is left as it is",
            path.display(),
            left.join(", ")
        ));
    }
    Ok(())
}

fn failure(error: XskRunError) -> Failure {
    if error.is_usage() {
        Failure::usage(error)
    } else {
        Failure::failed(error)
    }
}

fn show(
    args: &SocketArgs,
    report: &impl serde::Serialize,
    text: impl FnOnce() -> String,
) -> Result<ExitCode, Failure> {
    if args.json {
        output::json(report)?;
    } else {
        output::out(&text())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn sent(args: &SendArgs, report: &SendReport) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "sent      {} frames ({} bytes) from {} in {:.3} s, {:.0} a second",
        report.sent, report.bytes, args.socket.interface, report.seconds, report.rate
    );
    if report.unsent > 0 {
        let _ = writeln!(text, "unsent    {} frames were still queued", report.unsent);
    }
    losses(&mut text, &report.losses);
    sockets(&mut text, &report.sockets);
    text
}

fn received(args: &ReceiveArgs, report: &ReceiveReport) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "received  {} frames ({} bytes) at {} in {:.3} s, {:.0} a second",
        report.received, report.bytes, args.socket.interface, report.seconds, report.rate
    );
    let _ = writeln!(
        text,
        "missing   {} numbers; {} repeated, {} reordered",
        report.missing, report.repeated, report.reordered
    );
    if report.ancient > 0 {
        let _ = writeln!(
            text,
            "late      {} frames, too late to detect duplicates",
            report.ancient
        );
    }
    if report.others > 0 {
        let _ = writeln!(text, "others    {} other frames", report.others);
    }
    losses(&mut text, &report.losses);
    if let Some(steered) = &report.steered {
        let _ = writeln!(
            text,
            "steered   {} to sockets; {} passed to the stack, {} without a socket",
            steered.steered, steered.passed, steered.lonely
        );
    }
    summary(&mut text, "delay", report.delay_ns.as_ref());
    summary(&mut text, "from hook", report.hook_delay_ns.as_ref());
    if let Some(calibration) = &report.calibration {
        calibrated(&mut text, calibration);
    }
    sockets(&mut text, &report.sockets);
    text
}

fn forwarded(args: &ForwardArgs, report: &ForwardReport) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "forwarded {} of {} frames from {} to {} in {:.3} s, {:.0} a second",
        report.forwarded,
        report.received,
        args.socket.interface,
        args.to.as_deref().unwrap_or("where they came from"),
        report.seconds,
        report.rate
    );
    losses(&mut text, &report.losses);
    sockets(&mut text, &report.sockets);
    text
}

fn pinged(args: &PingArgs, report: &PingReport) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "sent      {} frames from {}, {} came back in {:.3} s",
        report.sent, args.socket.interface, report.received, report.seconds
    );
    let _ = writeln!(
        text,
        "lost      {} ({} of them late); {} repeated, {} reordered",
        report.lost, report.late, report.repeated, report.reordered
    );
    losses(&mut text, &report.losses);
    summary(&mut text, "round trip", report.round_trip_ns.as_ref());
    summary(&mut text, "there", report.there_ns.as_ref());
    summary(&mut text, "back", report.back_ns.as_ref());
    summary(&mut text, "from hook", report.hook_delay_ns.as_ref());
    calibrated(&mut text, &report.calibration);
    if let Some(trips) = &report.round_trip_ns {
        histogram(&mut text, &trips.histogram);
    }
    sockets(&mut text, &report.sockets);
    text
}

fn losses(text: &mut String, losses: &LossReport) {
    for (name, count) in losses.named() {
        let what = match name {
            "refused" => "dropped by the device when sent",
            "no_room" => "no buffer to send them",
            "rx_dropped" => "no frame to receive into, or too long for one",
            "rx_ring_full" => "the RX ring was full",
            "rx_invalid" => "frames to receive into that the kernel did not take",
            "tx_invalid" => "frames to send that the kernel did not take",
            _ => "the packet socket's ring was full",
        };
        let _ = writeln!(text, "loss      {count} {name}: {what}");
    }
}

fn summary(text: &mut String, name: &str, summary: Option<&Summary>) {
    let Some(s) = summary else { return };
    let us = |ns: f64| ns / 1e3;
    let _ = writeln!(
        text,
        "{name:<10} us: min {:.1}, median {:.1}, mean {:.1}, p90 {:.1}, p99 {:.1}, p99.9 {:.1}, max {:.1}",
        us(s.min as f64),
        us(s.median as f64),
        us(s.mean),
        us(s.p90 as f64),
        us(s.p99 as f64),
        us(s.p999 as f64),
        us(s.max as f64)
    );
    let _ = writeln!(
        text,
        "           quartiles {:.1} and {:.1}, deviation {:.1}, jitter {:.1}, of {}{}",
        us(s.q1 as f64),
        us(s.q3 as f64),
        us(s.deviation),
        us(s.jitter),
        s.count,
        if s.exact { "" } else { "; quantiles to 1.6 %" }
    );
}

fn calibrated(text: &mut String, calibration: &Calibration) {
    let _ = writeln!(
        text,
        "measuring a reading of the clock takes {:.0} ns, noting a frame {:.0} ns",
        calibration.clock_ns, calibration.note_ns
    );
}

/// Rows of half powers of two, from the first to the last that is not empty.
fn histogram(text: &mut String, buckets: &[Bucket]) {
    const WIDTH: u64 = 40;
    let row = |ns: u64| (2.0 * (ns.max(1) as f64).log2()).floor() as i32;
    let mut rows: std::collections::BTreeMap<i32, u64> = std::collections::BTreeMap::new();
    for bucket in buckets {
        *rows.entry(row(bucket.from)).or_default() += bucket.count;
    }
    let most = rows.values().copied().max().unwrap_or(1).max(1);
    let (Some(first), Some(last)) = (rows.keys().next(), rows.keys().next_back()) else {
        return;
    };
    for at in *first..=*last {
        let count = rows.get(&at).copied().unwrap_or(0);
        let from = 2f64.powf(f64::from(at) / 2.0) / 1e3;
        let bar = "#".repeat((count * WIDTH).div_ceil(most) as usize);
        let _ = writeln!(text, "{from:>10.1} us {count:>9} {bar}");
    }
}

fn sockets(text: &mut String, sockets: &[SocketReport]) {
    for s in sockets {
        let _ = write!(text, "socket    {} on {}", s.kind, s.interface);
        if let (Some(queue), Some(mode)) = (s.queue, s.mode) {
            let _ = write!(
                text,
                " queue {queue}, {mode}, need_wakeup {}",
                if s.need_wakeup { "on" } else { "off" }
            );
        }
        let _ = write!(text, ", {} system calls", s.calls);
        match s.busy_poll_effective {
            Some(true) => {
                let _ = write!(text, ", busy polling NAPI {}", s.napi_id.unwrap_or(0));
            }
            Some(false) => text.push_str(
                ", busy polling does nothing: the driver names no NAPI for this queue (a veth does not from Linux 6.13 on)",
            ),
            None => {}
        }
        text.push('\n');
    }
}
