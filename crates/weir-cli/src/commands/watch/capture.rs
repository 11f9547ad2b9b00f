//! `weir capture`: packets of an edge as they are at a stage, in a pcapng file with an interface for each port and function, and what was
//! decided about each packet in its comment.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;
use weir_bpf::abi::{WatchEvent, net_slot, watch};
use weir_engine::watch::{Names, wall_offset};
use weir_packet::pcap::{Annotated, Note, Statistics};

use super::{Asked, End, Session, Stages, closing};
use crate::args::watch::CaptureArgs;
use crate::failure::Failure;
use crate::output;

/// What was counted, as JSON.
#[derive(Serialize)]
struct Report {
    /// Packets in the capture.
    captured: u64,
    /// Packets that came in meanwhile.
    packets: u64,
    /// Packets that the kernel told of.
    asked: u64,
    /// Events that there was no room for.
    lost: u64,
    /// Whether another configuration ended it.
    ended_by_apply: bool,
}

pub(crate) fn run(args: &CaptureArgs) -> Result<ExitCode, Failure> {
    let at = match args.at.as_str() {
        "entry" => Stages::Entry,
        "end" => Stages::End,
        "drops" => Stages::Drops,
        "all" => Stages::All,
        name => Stages::Function(name.to_owned()),
    };
    let to_stdout = args.output == Path::new("-");
    if to_stdout && io::stdout().is_terminal() {
        return Err(Failure::Usage(
            "refusing to write a binary capture to a terminal: give --output FILE, or pipe it to `tshark -r -`"
                .to_owned(),
        ));
    }
    let snap = match args.snap {
        0 => watch::SNAP as u32,
        snap => snap,
    };
    let mut session = Session::open(&args.edge, &args.packets, &Asked { at, snap })?;
    let output: Box<dyn Write> = match to_stdout {
        true => Box::new(io::stdout().lock()),
        false => Box::new(File::create(&args.output).map_err(|error| {
            Failure::Failed(format!("cannot write {}: {error}", args.output.display()))
        })?),
    };
    let file = std::cell::RefCell::new(Capture::new(output, snap)?);
    let most = args.packets.count.unwrap_or(u64::MAX);
    let end = session.run(
        |part, names, event, bytes| {
            let mut file = file.borrow_mut();
            file.write(part, names, event, bytes)?;
            Ok(file.packets < most)
        },
        || Ok(file.borrow_mut().output.flush()?),
    )?;
    let count = session.close()?;
    let report = Report {
        captured: file.borrow().packets,
        packets: count.packets,
        asked: count.asked,
        lost: count.lost,
        ended_by_apply: end == End::Applied,
    };
    file.into_inner().finish(&report)?;
    match args.json {
        true => output::tell(&format!("{}\n", serde_json::json!(report))),
        false => {
            for line in closing(end, &count) {
                output::complain(&line);
            }
            output::complain(&format!(
                "{} captured",
                crate::commands::policy::count(report.captured as usize, "packet")
            ));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What has an interface in the file.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Stage {
    Port(u32),
    Instance(u32),
    /// Of networks: a workload that packets leave for.
    Workload(u32),
}

impl Stage {
    fn of(names: &Names, event: &WatchEvent) -> Stage {
        let is_end = event.kind & (watch::END | watch::COPY) != 0;
        match event.vid {
            _ if names.networks.is_some() && is_end && event.next_slot == net_slot::DEVICE => {
                Stage::Workload(event.next_vid)
            }
            // Received packets get a separate interface: the entry also lets packets leave.
            0 => Stage::Port(event.port),
            vid => Stage::Instance(vid),
        }
    }

    fn describe(self, names: &Names) -> (String, &'static str) {
        match self {
            Stage::Port(port) => (names.port(port), "as packets come in"),
            Stage::Instance(vid) => (names.instance(vid), "behind the function"),
            Stage::Workload(vid) => (
                format!("{}.transmit", names.port(vid)),
                "as packets leave for the workload",
            ),
        }
    }
}

/// The file being written.
struct Capture<W: Write> {
    output: Annotated<BufWriter<W>>,
    /// By part of the edge and stage: number in the file.
    interfaces: HashMap<(usize, Stage), u32>,
    snap: u32,
    offset: i128,
    packets: u64,
    last_ns: u64,
}

impl<W: Write> Capture<W> {
    fn new(output: W, snap: u32) -> Result<Capture<W>, Failure> {
        let application = concat!("weir ", env!("CARGO_PKG_VERSION"));
        Ok(Capture {
            output: Annotated::new(BufWriter::with_capacity(1 << 16, output), application)?,
            interfaces: HashMap::new(),
            snap,
            offset: wall_offset(),
            packets: 0,
            last_ns: 0,
        })
    }

    fn write(
        &mut self,
        part: usize,
        names: &Names,
        event: &WatchEvent,
        bytes: &[u8],
    ) -> Result<(), Failure> {
        let is_entry = event.kind == watch::ENTRY;
        let stage = Stage::of(names, event);
        let interface = match self.interfaces.get(&(part, stage)) {
            Some(interface) => *interface,
            None => {
                let (name, what) = stage.describe(names);
                let interface = self.output.interface(&name, what, self.snap)?;
                self.interfaces.insert((part, stage), interface);
                interface
            }
        };
        let path = names.path(event);
        let verdict =
            (!is_entry && event.kind & watch::END != 0).then_some(u64::from(event.verdict));
        let note = Note {
            comment: Some(&path),
            xdp_verdict: verdict,
            queue: Some(event.queue),
            // 16 bits of CPUs are more than there are. Numbers of packets are those of a part.
            packet: Some(
                u64::from(event.cpu) << 48 | (part as u64) << 47 | event.number & 0x7fff_ffff_ffff,
            ),
        };
        self.last_ns = u64::try_from(i128::from(event.time_ns) + self.offset).unwrap_or(0);
        let kept = &bytes[..bytes.len().min(self.snap as usize)];
        self.output
            .write(interface, self.last_ns, kept, event.len, note)?;
        self.packets += 1;
        Ok(())
    }

    fn finish(mut self, report: &Report) -> Result<(), Failure> {
        let counted = Statistics {
            received: report.packets,
            accepted: report.asked,
            lost: report.lost,
        };
        for interface in self.interfaces.values() {
            self.output.statistics(*interface, self.last_ns, counted)?;
        }
        self.output.finish()?;
        Ok(())
    }
}
