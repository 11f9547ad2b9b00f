//! Captures as commands read and write them: the ports in them, each packet with its port, and how far a long one is.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use weir_functions::plan::Port;
use weir_packet::pcap::{Capture, CaptureError, Writer};

use crate::failure::Failure;
use crate::output;

/// What a first pass over a capture tells.
pub(crate) struct Survey {
    /// A port for each interface, numbered from 1.
    pub(crate) ports: Vec<Port>,
    /// Packets it holds, as far as it can be read.
    pub(crate) packets: u64,
    /// Packets that were cut by the snap length.
    pub(crate) cut: u64,
}

impl Survey {
    /// Number of the port that packets of an interface come in by.
    pub(crate) fn port_of(&self, interface: u32) -> u32 {
        self.ports
            .get(interface as usize)
            .map_or(0, |port| port.number)
    }
}

/// Opens a capture.
pub(crate) fn open(path: &Path) -> Result<Capture<BufReader<File>>, Failure> {
    let shown = path.display();
    let file = File::open(path)
        .map_err(|e| Failure::usage(format!("cannot read {shown}: {e}; check the path")))?;
    if file.metadata().is_ok_and(|m| m.is_dir()) {
        return Err(Failure::usage(format!(
            "{shown} is a folder; name a capture file in it"
        )));
    }
    if !file.metadata().is_ok_and(|m| m.is_file()) {
        return Err(Failure::usage(format!(
            "{shown} is not a regular file, and a capture is read twice (first for its interfaces); save it to a file"
        )));
    }
    Capture::open(BufReader::with_capacity(1 << 16, file))
        .map_err(|e| Failure::usage(format!("{shown}: {e}")))
}

/// Reads a capture once for its interfaces, and refuses what is not Ethernet. `in_if` names the interface of every packet.
/// A capture that is cut off is surveyed up to the cut; reading it again meets the cut again.
pub(crate) fn survey(path: &Path, in_if: Option<&str>) -> Result<Survey, Failure> {
    let mut capture = open(path)?;
    let mut survey = Survey {
        ports: Vec::new(),
        packets: 0,
        cut: 0,
    };
    let mut refused: HashMap<u32, CaptureError> = HashMap::new();
    loop {
        match capture.next_packet() {
            Ok(Some(packet)) => {
                survey.packets += 1;
                survey.cut += u64::from(packet.original_len as usize > packet.data.len());
                if let Err(error) = packet.interface.require_ethernet() {
                    refused.entry(packet.interface.index).or_insert(error);
                }
            }
            Ok(None) => break,
            Err(error)
                if survey.packets == 0 && !matches!(error, CaptureError::Truncated { .. }) =>
            {
                return Err(Failure::usage(format!("{}: {error}", path.display())));
            }
            Err(_) => break,
        }
    }
    // A capture without packets has a link type all the same.
    for interface in capture.interfaces() {
        if survey.packets == 0
            && let Err(error) = interface.require_ethernet()
        {
            refused.entry(interface.index).or_insert(error);
        }
        survey.ports.push(Port {
            number: (interface.index + 1).min(65_535),
            name: in_if.map(str::to_owned).or_else(|| interface.name.clone()),
            index: interface.index,
        });
    }
    if let Some((_, error)) = refused.into_iter().min_by_key(|(index, _)| *index) {
        return Err(Failure::usage(format!("{}: {error}", path.display())));
    }
    Ok(survey)
}

/// Creates a capture to write.
pub(crate) fn create(path: &Path) -> Result<Writer<BufWriter<File>>, Failure> {
    let failed =
        |e: std::io::Error| Failure::failed(format!("cannot write {}: {e}", path.display()));
    Writer::new(BufWriter::with_capacity(
        1 << 16,
        File::create(path).map_err(failed)?,
    ))
    .map_err(failed)
}

/// Whether two paths are one file; by inode, because a hard link has another path.
pub(crate) fn same_file(a: &Path, b: &Path) -> bool {
    match (a.metadata(), b.metadata()) {
        (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
        _ => false,
    }
}

/// A line on a terminal that says how far a long replay is; nothing in a pipe.
pub(crate) struct Progress {
    total: u64,
    shown: Instant,
    on: bool,
    drawn: bool,
}

impl Progress {
    /// For `total` packets.
    pub(crate) fn new(total: u64) -> Progress {
        Progress {
            total,
            shown: Instant::now(),
            on: output::stderr_is_terminal(),
            drawn: false,
        }
    }

    /// `done` packets are done.
    pub(crate) fn tick(&mut self, done: u64) {
        if self.on && done.is_multiple_of(64) && self.shown.elapsed() > Duration::from_millis(250) {
            self.shown = Instant::now();
            self.drawn = true;
            output::tell(&format!("\r{done} of {} packets", self.total));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.drawn {
            output::tell("\r\x1b[K");
        }
    }
}
