//! Rule sets in the format of ClassBench, where they are: the project ships none.
//!
//! A line is `@source/len destination/len low : high low : high protocol/mask flags/mask`. Rules with ports and any protocol become two, for TCP
//! and for UDP; a line that cannot be read is an error with its number.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::rules::{ANY, Rule, TCP, UDP, mask};
use crate::LabError;

/// A rule set with the name of its file.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    /// As in `acl1_1000`.
    pub(crate) name: String,
    pub(crate) rules: Vec<Rule>,
}

/// Reads a set, or all sets of a folder: every file that is not a trace. Files may be packed with gzip.
pub(crate) fn read(path: &Path) -> Result<Vec<Named>, LabError> {
    if !path.exists() {
        return Err(LabError::RuleSet {
            file: path.to_owned(),
            why: "no such file or folder".to_owned(),
        });
    }
    let mut files: Vec<PathBuf> = vec![path.to_owned()];
    if path.is_dir() {
        let entries =
            fs::read_dir(path).map_err(LabError::io(format!("read {}", path.display())))?;
        files = entries.flatten().map(|e| e.path()).collect();
        files.retain(|f| f.is_file() && !f.to_string_lossy().contains("_trace"));
        files.sort();
    }
    files.iter().map(|file| read_file(file)).collect()
}

fn read_file(file: &Path) -> Result<Named, LabError> {
    let bad = |why: String| LabError::RuleSet {
        file: file.to_owned(),
        why,
    };
    let bytes = if file.extension().is_some_and(|e| e == "gz") {
        let output = Command::new("gzip")
            .arg("-dc")
            .arg(file)
            .output()
            .map_err(LabError::io("start gzip"))?;
        if !output.status.success() {
            return Err(bad("gzip cannot unpack it".to_owned()));
        }
        output.stdout
    } else {
        fs::read(file).map_err(LabError::io(format!("read {}", file.display())))?
    };
    let text = String::from_utf8(bytes).map_err(|_| bad("it is not text".to_owned()))?;
    let mut rules = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let Some(rest) = line.strip_prefix('@') else {
            continue;
        };
        let of_line =
            parse(rest).ok_or_else(|| bad(format!("line {number} is not a rule: {line}")))?;
        rules.extend(of_line);
    }
    if rules.is_empty() {
        return Err(bad("no line of it is a rule (`@source/len ...`)".to_owned()));
    }
    let stem = file.file_name().unwrap_or_default().to_string_lossy();
    Ok(Named {
        name: stem.trim_end_matches(".gz").to_owned(),
        rules,
    })
}

fn parse(line: &str) -> Option<Vec<Rule>> {
    let part: Vec<&str> = line.split_whitespace().collect();
    let [
        source,
        destination,
        s0,
        ":",
        s1,
        d0,
        ":",
        d1,
        protocol,
        flags,
        ..,
    ] = part[..]
    else {
        return None;
    };
    let (protocol, protocol_mask) = masked(protocol)?;
    let (flags, flag_mask) = masked(flags)?;
    let rule = Rule {
        source: prefix(source)?,
        destination: prefix(destination)?,
        protocol: if protocol_mask == 0 {
            0
        } else {
            protocol as u8
        },
        sport: (s0.parse().ok()?, s1.parse().ok()?),
        dport: (d0.parse().ok()?, d1.parse().ok()?),
        // The byte of the flags stands in front of that of the window.
        flags: (((flags & flag_mask) >> 8) as u8, (flag_mask >> 8) as u8),
    };
    if rule.sport.0 > rule.sport.1 || rule.dport.0 > rule.dport.1 {
        return None;
    }
    let with = |protocol| Rule {
        protocol,
        flags: if protocol == TCP { rule.flags } else { (0, 0) },
        ..rule
    };
    let has_ports = rule.sport != ANY || rule.dport != ANY;
    Some(match rule.protocol {
        0 if has_ports => vec![with(TCP), with(UDP)],
        TCP | UDP => vec![with(rule.protocol)],
        // Nothing else has ports or flags here.
        other => vec![Rule {
            sport: ANY,
            dport: ANY,
            ..with(other)
        }],
    })
}

fn prefix(text: &str) -> Option<(u32, u32)> {
    let (address, bits) = text.split_once('/')?;
    let bits: u32 = bits.parse().ok().filter(|bits| *bits <= 32)?;
    let address: Ipv4Addr = address.parse().ok()?;
    Some((u32::from(address) & mask(bits), bits))
}

fn masked(text: &str) -> Option<(u16, u16)> {
    let (value, mask) = text.split_once('/')?;
    let hex = |text: &str| u16::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    Some((hex(value)?, hex(mask)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_each_kind() {
        let tcp = parse("1.2.3.0/24\t5.6.7.8/32\t0 : 65535\t80 : 80\t0x06/0xFF\t0x1000/0x1000\t");
        let tcp = tcp.expect("a rule");
        assert_eq!(tcp.len(), 1);
        assert_eq!(tcp[0].source, (0x0102_0300, 24));
        assert_eq!(tcp[0].dport, (80, 80));
        assert_eq!((tcp[0].protocol, tcp[0].flags), (TCP, (16, 16)));
        let any = parse("0.0.0.0/0 0.0.0.0/0 0 : 65535 53 : 53 0x00/0x00 0x0000/0x0000");
        assert_eq!(any.map(|rules| rules.len()), Some(2));
        for bad in [
            "",
            "1.2.3.4/33 0.0.0.0/0 0 : 1 0 : 1 0x06/0xFF 0x0/0x0",
            "1.2.3.4/3 0.0.0.0/0 9 : 1 0 : 1 0x06/0xFF 0x0/0x0",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
