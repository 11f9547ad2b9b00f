//! Captures as commands read and write them: the ports in them, each packet with its port, and how far a long one is.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use weir_functions::plan::Port;
use weir_packet::pcap::{Capture, CaptureError, Frame, Writer};

use super::policy::count;
use crate::failure::Failure;
use crate::output;

/// What a first pass over a capture tells.
pub(crate) struct Survey {
    /// A port for each interface of the file, and behind them one for each network interface that its packets name; numbered from 1.
    pub(crate) ports: Vec<Port>,
    /// Where the ports of network interfaces are in `ports`, by interface of the file and index.
    devices: HashMap<(u32, u32), usize>,
    /// Packets it holds, as far as it can be read.
    pub(crate) packets: u64,
    /// Packets that were cut by the snap length.
    pub(crate) cut: u64,
    /// Packets that end inside the header of their link type.
    pub(crate) cut_in_link_header: u64,
}

impl Survey {
    /// Place in `ports` of the port that a frame came in by.
    pub(crate) fn place_of(&self, frame: &Frame<'_>) -> usize {
        let interface = frame.interface.index;
        let device = frame
            .device
            .and_then(|device| self.devices.get(&(interface, device)));
        device.copied().unwrap_or(interface as usize)
    }

    /// The port that a frame came in by.
    pub(crate) fn port_of(&self, frame: &Frame<'_>) -> Option<&Port> {
        self.ports.get(self.place_of(frame))
    }

    fn add_port(&mut self, name: Option<&str>, index: u32) {
        self.ports.push(Port {
            number: (self.ports.len() + 1).min(65_535) as u32,
            name: name.map(str::to_owned),
            index,
        });
    }

    /// Remarks for people about what of the capture is not whole; empty if all is.
    pub(crate) fn notes(&self) -> String {
        let mut notes = String::new();
        let packets = |n: u64| count(n as usize, "packet");
        if self.cut > 0 {
            let _ = write!(
                notes,
                "\n{} of the capture were cut by its snap length; weir processes the bytes that were captured (see ip4_len_over, ip6_len_over)\n",
                packets(self.cut)
            );
        }
        if self.cut_in_link_header > 0 {
            let _ = write!(
                notes,
                "\n{} of the capture cut inside the header of the link type, counted as frame_short\n",
                packets(self.cut_in_link_header)
            );
        }
        notes
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

/// Reads a capture once for its interfaces, and refuses packets of which no Ethernet frames can be made. `in_if` names the interface of every packet.
/// A capture that is cut off is surveyed up to the cut; reading it again meets the cut again.
pub(crate) fn survey(path: &Path, in_if: Option<&str>) -> Result<Survey, Failure> {
    let mut capture = open(path)?;
    let mut survey = Survey {
        ports: Vec::new(),
        devices: HashMap::new(),
        packets: 0,
        cut: 0,
        cut_in_link_header: 0,
    };
    let mut devices: Vec<(u32, u32)> = Vec::new();
    loop {
        match capture.next_frame() {
            Ok(Some(frame)) => {
                survey.packets += 1;
                survey.cut += u64::from(frame.original_len as usize > frame.data.len());
                survey.cut_in_link_header += u64::from(frame.cut_in_link_header);
                if let Some(device) = frame.device {
                    let device = (frame.interface.index, device);
                    // 0 until its place is known: all interfaces of the file come first.
                    if survey.devices.insert(device, 0).is_none() {
                        devices.push(device);
                    }
                }
            }
            Ok(None) => break,
            Err(CaptureError::Truncated { .. }) => break,
            Err(error)
                if survey.packets == 0
                    || matches!(error, CaptureError::UnsupportedLinkType { .. }) =>
            {
                return Err(Failure::usage(format!("{}: {error}", path.display())));
            }
            Err(_) => break,
        }
    }
    for interface in capture.interfaces() {
        // A capture without packets has a link type all the same.
        if survey.packets == 0
            && let Err(error) = interface.require_frames()
        {
            return Err(Failure::usage(format!("{}: {error}", path.display())));
        }
        survey.add_port(in_if.or(interface.name.as_deref()), interface.index);
    }
    for (interface, index) in devices {
        survey
            .devices
            .insert((interface, index), survey.ports.len());
        survey.add_port(in_if, index);
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
