//! Which packets and which rules the sensor is measured on: those that the user names, a mix, the public ones beside the project, or the project's own.

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use weir_packet::pcap::{Capture, LinkType, Writer};
use weir_sensor::load::named;

use super::apps::Made;
use super::own;
use crate::LabError;
use crate::generate::{Gaps, Mix, Plan};
use crate::process::Scratch;

/// Between captures that are chained.
const BETWEEN: u64 = 1_000_000_000;
/// The longest gap that is left between packets of a chained capture: some claim to have taken years.
const LONGEST_GAP: u64 = 60_000_000_000;

/// What the user asks for.
#[derive(Clone, Debug, Default)]
pub struct Traffic {
    /// Captures, or folders of captures.
    pub captures: Vec<PathBuf>,
    /// A mix in the form of the TRex traffic generator.
    pub mix: Option<PathBuf>,
    /// Times the rates of the mix.
    pub multiple: f64,
    /// Flows of it at most.
    pub flows: Option<u64>,
    /// Seconds in which its flows begin.
    pub seconds: Option<f64>,
    /// Between the packets of its flows.
    pub gaps: Gaps,
    /// Packets that the bench makes, for published rules.
    pub made: Option<Made>,
    /// The project's own packets and rules, whatever else is at hand.
    pub own: bool,
    /// Where the capture is left when the bench is over.
    pub keep: Option<PathBuf>,
    /// Rule files and folders.
    pub rules: Vec<PathBuf>,
    /// Where public data may be.
    pub shared: PathBuf,
}

/// What is measured.
pub(super) struct Input {
    /// The part of figures' names: `capture`, `mix`, `own`, or what is made.
    pub(super) name: &'static str,
    pub(super) capture: PathBuf,
    pub(super) rules: Vec<PathBuf>,
    /// What it is, a sentence each.
    pub(super) said: Vec<String>,
}

impl Input {
    pub(super) fn new(
        traffic: &Traffic,
        quick: bool,
        scratch: &Scratch,
    ) -> Result<Input, LabError> {
        let mut said = Vec::new();
        let chained = scratch.path().join("capture.pcap");
        let (name, capture) = if let Some(path) = &traffic.mix {
            let mix = Mix::read(path)?;
            said.push(written(
                &mix,
                traffic,
                quick,
                &chained,
                &path.display().to_string(),
            )?);
            ("mix", chained)
        } else if let Some(made) = traffic.made {
            let mix = made.mix().map_err(LabError::Engine)?;
            let name = made.name();
            said.push(written(&mix, traffic, quick, &chained, name)?);
            (name, chained)
        } else if !traffic.captures.is_empty() {
            match &traffic.captures[..] {
                // As it is, with its own times.
                [one] if one.is_file() => {
                    said.push(format!("packets: {}", one.display()));
                    ("capture", one.clone())
                }
                several => {
                    said.push(chain(several, &chained)?);
                    ("capture", chained)
                }
            }
        } else {
            let folders: Vec<PathBuf> = ["pcaps", "zeek-traces"]
                .iter()
                .map(|f| traffic.shared.join(f))
                .filter(|f| f.is_dir() && !traffic.own)
                .collect();
            if folders.is_empty() {
                let mix = own::mix().map_err(LabError::Engine)?;
                said.push(written(&mix, traffic, quick, &chained, "own packets")?);
                ("own", chained)
            } else {
                said.push(chain(&folders, &chained)?);
                ("capture", chained)
            }
        };
        if let Some(keep) = &traffic.keep {
            std::fs::copy(&capture, keep)
                .map_err(LabError::io(format!("write {}", keep.display())))?;
        }
        let archive = traffic.shared.join("rules/et-open-half.tar.gz");
        let rules = if !traffic.rules.is_empty() {
            let mut files = Vec::new();
            for path in &traffic.rules {
                files.extend(named(path).map_err(|e| LabError::RuleSet {
                    file: path.clone(),
                    why: e.to_string(),
                })?);
            }
            said.push(format!("rules: {} files as named", files.len()));
            files
        } else if archive.is_file() && !traffic.own {
            said.push(format!("rules: {}", archive.display()));
            unpack(&archive, scratch)?
        } else {
            said.push("rules: the bench's own".to_owned());
            vec![scratch.write("own.rules", own::RULES.as_bytes())?]
        };
        Ok(Input {
            name,
            capture,
            rules,
            said,
        })
    }
}

fn written(
    mix: &Mix,
    traffic: &Traffic,
    quick: bool,
    to: &Path,
    name: &str,
) -> Result<String, LabError> {
    let usual = if quick { 0.5 } else { 3.0 };
    let seconds = match (traffic.seconds, traffic.flows) {
        (None, None) => Some(usual),
        (seconds, _) => seconds,
    };
    let lasting = match seconds {
        Some(s) => {
            let time = Duration::try_from_secs_f64(s);
            Some(time.map_err(|e| LabError::Engine(e.to_string()))?)
        }
        None => None,
    };
    let plan = Plan {
        multiple: traffic.multiple,
        flows: traffic.flows,
        lasting,
        gaps: traffic.gaps,
    };
    let file = File::create(to).map_err(LabError::io(format!("create {}", to.display())))?;
    let written = mix.write(&plan, BufWriter::with_capacity(1 << 20, file))?;
    let (packets, bits, flows) = mix.rates(plan.multiple);
    Ok(format!(
        "packets: {name} at {}x ({:.0} Mbit/s, {packets:.0} packets/s, {flows:.0} new flows/s): {} flows of {} packets begun in {:.2} s, {} at once, {:.1} s in all",
        plan.multiple,
        bits / 1e6,
        written.flows,
        written.packets,
        written.begun_in,
        written.most_at_once,
        written.seconds
    ))
}

/// Writes all Ethernet frames of captures behind one another, with times that rise.
fn chain(paths: &[PathBuf], to: &Path) -> Result<String, LabError> {
    let mut files = Vec::new();
    for path in paths {
        collect(path, &mut files)?;
    }
    let create = LabError::io(format!("create {}", to.display()));
    let file = File::create(to).map_err(create)?;
    let failed = || LabError::io(format!("write {}", to.display()));
    let mut writer = Writer::new(BufWriter::with_capacity(1 << 20, file)).map_err(failed())?;
    let mut time = 1_700_000_000 * 1_000_000_000;
    let (mut used, mut left_out, mut frames, mut bytes) = (0, 0, 0_u64, 0_u64);
    for path in &files {
        let Ok(file) = File::open(path) else {
            left_out += 1;
            continue;
        };
        let Ok(mut capture) = Capture::open(BufReader::new(file)) else {
            left_out += 1;
            continue;
        };
        let mut before = None;
        // Of a capture that breaks off, the packets before.
        while let Ok(Some(packet)) = capture.next_packet() {
            if packet.interface.link_type != LinkType::ETHERNET {
                break;
            }
            let gap = packet
                .timestamp_ns
                .saturating_sub(before.unwrap_or(packet.timestamp_ns));
            time += gap.min(LONGEST_GAP);
            before = Some(packet.timestamp_ns);
            writer
                .write(time, packet.data, packet.original_len)
                .map_err(failed())?;
            frames += 1;
            bytes += u64::from(packet.original_len);
        }
        if before.is_some() {
            used += 1;
            time += BETWEEN;
        } else {
            left_out += 1;
        }
    }
    writer.finish().map_err(failed())?;
    if frames == 0 {
        return Err(LabError::RuleSet {
            file: paths.first().cloned().unwrap_or_default(),
            why: "no capture of Ethernet is there".to_owned(),
        });
    }
    Ok(format!(
        "packets: {used} captures of Ethernet chained ({frames} packets, {:.1} MB; {left_out} files are none)",
        bytes as f64 / 1e6
    ))
}

/// Files of a path, those of folders in folders, too, in the order of their names.
fn collect(path: &Path, files: &mut Vec<PathBuf>) -> Result<(), LabError> {
    let about =
        std::fs::metadata(path).map_err(LabError::io(format!("read {}", path.display())))?;
    if !about.is_dir() {
        files.push(path.to_path_buf());
        return Ok(());
    }
    let entries =
        std::fs::read_dir(path).map_err(LabError::io(format!("read {}", path.display())))?;
    let mut names: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
    names.sort();
    names.iter().try_for_each(|name| collect(name, files))
}

fn unpack(archive: &Path, scratch: &Scratch) -> Result<Vec<PathBuf>, LabError> {
    let folder = scratch.path().join("rules");
    std::fs::create_dir_all(&folder)
        .map_err(LabError::io(format!("create {}", folder.display())))?;
    let output = Command::new("tar")
        .arg("-xzf")
        .arg(archive)
        .arg("-C")
        .arg(&folder)
        .output()
        .map_err(LabError::io("run tar"))?;
    if !output.status.success() {
        return Err(LabError::RuleSet {
            file: archive.to_path_buf(),
            why: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        });
    }
    let mut files = Vec::new();
    collect(&folder, &mut files)?;
    files.retain(|f| f.extension().is_some_and(|e| e == "rules"));
    Ok(files)
}
