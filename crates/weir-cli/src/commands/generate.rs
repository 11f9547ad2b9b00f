//! `weir generate`: made-up packets out of an interface, and what became of them.
//!
//! Exit status 0 if the device took frames, also if some were lost later: losses are a result. 1 if nothing could be sent.

use std::fmt::Write as _;
use std::fs::File;
use std::io::BufReader;
use std::process::ExitCode;
use std::time::Duration;

use weir_kernel::{KernelError, iface, netns};
use weir_lab::generate::{
    self, Arrival, Endpoints, GenerateError, Load, Pace, Protocol, Report, Traffic,
};

use crate::args::generate::GenerateArgs;
use crate::failure::Failure;
use crate::limits::stop_on_signals;
use crate::output;

/// How long it sends where nothing says.
const USUAL: Duration = Duration::from_secs(10);

pub(crate) fn run(args: &GenerateArgs) -> Result<ExitCode, Failure> {
    let load = load(args)?;
    let stop = stop_on_signals()?;
    if let Some(cpu) = args.cpu {
        keep_to(cpu)?;
    }
    let place = Endpoints {
        interface: &args.interface,
        count_on: args.count_on.as_deref(),
        owned: args.i_own_this_network,
    };
    let pace = pace(args, &load);
    let told = output::Elapsed::begin("sending", pace.lasting);
    let report = generate::run(&load, pace, place, &stop).map_err(failure)?;
    drop(told);
    if args.json {
        output::json(&report)?;
    } else {
        output::out(&text(&report))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn load(args: &GenerateArgs) -> Result<Load, Failure> {
    if let Some(path) = &args.capture {
        let file =
            File::open(path).map_err(|e| Failure::Usage(format!("{}: {e}", path.display())))?;
        return Load::from_capture(BufReader::new(file))
            .map_err(|e| Failure::Usage(format!("{}: {e}", path.display())));
    }
    let given = [args.src, args.dst]
        .into_iter()
        .flatten()
        .any(|prefix| prefix.is_ip6);
    let [sources, destinations] = generate::benchmark(args.ipv6 || given);
    let interface = iface::find(&args.interface).map_err(Failure::usage)?;
    let peer = netns::peer_here(&interface);
    let usual = Traffic::new(false);
    let traffic = Traffic {
        protocol: match (args.tcp_syn, args.icmp) {
            (true, _) => Protocol::TcpSyn,
            (_, true) => Protocol::Icmp,
            // --udp says what holds anyway.
            _ => Protocol::Udp,
        },
        sources: args.src.unwrap_or(sources),
        destinations: args.dst.unwrap_or(destinations),
        source_ports: args.sport.range(),
        destination_ports: args.dport.range(),
        flows: args.flows,
        sizes: args.size.clone(),
        macs: [
            args.src_mac.map_or(interface.mac, |mac| mac.0),
            args.dst_mac
                .map(|mac| mac.0)
                .or(peer.map(|peer| peer.mac))
                .unwrap_or(usual.macs[1]),
        ],
        seed: args.seed,
    };
    if args.ipv6 && !traffic.sources.is_ip6 {
        return Err(Failure::Usage(format!(
            "--ipv6 and --src {}: leave one out",
            traffic.sources
        )));
    }
    Load::new(&traffic).map_err(Failure::usage)
}

fn pace(args: &GenerateArgs, load: &Load) -> Pace {
    let once = load.templates.len() as u64;
    let frames = match (args.frames, load.capture, args.times, args.duration) {
        (Some(frames), ..) => Some(frames),
        (None, true, Some(times), _) => Some(once.saturating_mul(times)),
        (None, true, None, None) => Some(once),
        _ => None,
    };
    let lasting = match (args.duration, frames) {
        (None, None) => Some(USUAL),
        (given, _) => given,
    };
    Pace {
        rate: args.rate,
        frames,
        lasting,
    }
}

fn keep_to(cpu: usize) -> Result<(), Failure> {
    use rustix::thread::{CpuSet, Pid, sched_setaffinity};
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut set = CpuSet::new();
    if cpu >= CpuSet::MAX_CPU {
        return Err(Failure::Usage(format!(
            "--cpu {cpu}: this machine has CPUs 0 to {}",
            cpus - 1
        )));
    }
    set.set(cpu);
    sched_setaffinity(None::<Pid>, &set)
        .map_err(|e| Failure::Usage(format!("--cpu {cpu}: {e}; this machine has {cpus} CPUs")))
}

fn failure(error: GenerateError) -> Failure {
    match error {
        GenerateError::NotYours { .. }
        | GenerateError::Traffic(_)
        | GenerateError::Kernel(KernelError::NoSuchInterface { .. }) => Failure::usage(error),
        other => Failure::failed(other),
    }
}

fn text(report: &Report) -> String {
    let mut text = String::new();
    let frames = |n: u64| {
        if n == 1 {
            "1 frame".to_owned()
        } else {
            format!("{n} frames")
        }
    };
    let _ = writeln!(
        text,
        "sent      {} ({} bytes) from {} in {:.3} s, {:.0} a second{}",
        frames(report.sent),
        report.bytes,
        report.interface,
        report.seconds,
        report.rate,
        if report.interrupted {
            ", interrupted"
        } else {
            ""
        }
    );
    match report.taken {
        Some(taken) => {
            let _ = writeln!(text, "taken     {} by the device", frames(taken));
        }
        None => text.push_str("taken     not reported by this kernel\n"),
    }
    for (why, count) in &report.refused {
        let _ = writeln!(text, "refused   {}: {why}", frames(*count));
    }
    if let Some(arrival) = &report.arrived {
        arrived(&mut text, arrival);
    }
    for note in &report.notes {
        let _ = writeln!(text, "note      {note}");
    }
    text
}

fn arrived(text: &mut String, a: &Arrival) {
    let _ = writeln!(
        text,
        "arrived   {} ({} bytes) at {}",
        a.frames, a.bytes, a.interface
    );
    let lost = a.lost.map_or_else(
        || "unknown: too many sequence numbers".to_owned(),
        |lost| lost.to_string(),
    );
    let _ = writeln!(text, "lost      {lost}");
    let _ = writeln!(text, "repeated  {}", a.repeated);
    let _ = writeln!(text, "reordered {}", a.reordered);
    if let (Some(mean), Some(max)) = (a.delay_mean_ns, a.delay_max_ns) {
        let us = |ns: u64| ns as f64 / 1e3;
        let _ = writeln!(
            text,
            "delay     mean {:.1} us, longest {:.1} us, of one frame in 64",
            us(mean),
            us(max)
        );
    }
    if a.other > 0 {
        let _ = writeln!(
            text,
            "others    {} other frames passed to the stack",
            a.other
        );
    }
}
