//! Captures as commands read them: the ports in them, and each packet with its port.

use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use weir_functions::plan::Port;
use weir_packet::pcap::{Capture, CaptureError};

use crate::failure::Failure;

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
