//! Payloads and patterns of public captures and rule sets (weir-testdata), for tests of the matcher and of detection. Without that data both are empty, and tests say so.
#![allow(unreachable_pub, dead_code, reason = "shared by test files")]

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use pcap_parser::{PcapBlockOwned, PcapError};

/// Says a line past the test harness's capture.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Seconds of processor time that this thread has had: what a busy machine does not change much.
pub fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let first = text.split(' ').next().and_then(|n| n.parse::<f64>().ok());
    first.unwrap_or(0.0) / 1e9
}

/// A pattern of a rule: buffer, bytes, caseless.
pub struct FastPattern {
    pub buffer: String,
    pub bytes: Vec<u8>,
    pub nocase: bool,
}

/// TCP and UDP payloads of all captures.
pub fn payloads() -> Vec<Vec<u8>> {
    let mut files = Vec::new();
    for folder in ["pcaps", "zeek-traces"] {
        if let Some(folder) = weir_testdata::find(folder) {
            collect(&folder, &mut files);
        }
    }
    files.sort();
    let mut out = Vec::new();
    for file in files {
        let Ok(mut opened) = File::open(&file) else {
            continue;
        };
        let mut bytes = Vec::new();
        if opened.read_to_end(&mut bytes).is_err() {
            continue;
        }
        read_capture(&bytes, &mut out);
    }
    out
}

fn collect(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, out);
        } else {
            out.push(path);
        }
    }
}

fn read_capture(bytes: &[u8], out: &mut Vec<Vec<u8>>) {
    let Ok(mut reader) = pcap_parser::create_reader(1 << 20, bytes) else {
        return;
    };
    loop {
        match reader.next() {
            Ok((used, block)) => {
                let frame: &[u8] = match &block {
                    PcapBlockOwned::Legacy(b) => b.data,
                    PcapBlockOwned::NG(pcap_parser::Block::EnhancedPacket(b)) => b.data,
                    PcapBlockOwned::NG(pcap_parser::Block::SimplePacket(b)) => b.data,
                    _ => &[],
                };
                if let Some(payload) = payload(frame)
                    && !payload.is_empty()
                {
                    out.push(payload.to_vec());
                }
                reader.consume(used);
            }
            Err(PcapError::Incomplete(_)) => {
                if reader.refill().is_err() {
                    return;
                }
            }
            Err(_) => return,
        }
    }
}

/// The payload of TCP or UDP over IPv4 over Ethernet; of others whatever follows the link header.
fn payload(frame: &[u8]) -> Option<&[u8]> {
    if frame.get(12..14)? != [8, 0] {
        return frame.get(14..);
    }
    let ip = frame.get(14..)?;
    let header = usize::from(ip.first()? & 15) * 4;
    let upper = ip.get(header..)?;
    match ip.get(9)? {
        6 => upper.get(usize::from(upper.get(12)? >> 4) * 4..),
        17 => upper.get(8..),
        _ => Some(upper),
    }
}

/// The text of the ET rules, if they are there.
pub fn rules_text() -> Option<String> {
    let archive = weir_testdata::find("rules/et-open-half.tar.gz")?;
    let output = std::process::Command::new("tar")
        .args(["-xzOf"])
        .arg(&archive)
        .args(["--wildcards", "*.rules"])
        .output()
        .ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// For each rule the pattern a prefilter would take: the one marked, else the longest.
pub fn fast_patterns() -> Vec<FastPattern> {
    let Some(text) = rules_text() else {
        return Vec::new();
    };
    text.lines()
        .filter(|l| l.starts_with("alert"))
        .filter_map(fast_pattern)
        .collect()
}

fn fast_pattern(line: &str) -> Option<FastPattern> {
    let mut best: Option<(usize, FastPattern)> = None;
    let mut buffer = "payload";
    let body = line.get(line.find('(')? + 1..)?;
    for option in split(body) {
        let (word, value) = option.split_once(':').unwrap_or((option, ""));
        match word.trim() {
            "content" if !value.trim_start().starts_with('!') => {
                let bytes = unquote(value.trim().trim_matches('"'));
                let weight = bytes.len();
                let candidate = FastPattern {
                    buffer: buffer.to_owned(),
                    bytes,
                    nocase: false,
                };
                // Kept only if better; modifiers that follow look at `current`.
                if best.as_ref().is_none_or(|(w, _)| weight > *w) {
                    best = Some((weight, candidate));
                }
            }
            "nocase" => {
                if let Some((_, b)) = &mut best {
                    b.nocase = true;
                }
            }
            "fast_pattern" => {
                if let Some((w, _)) = &mut best {
                    *w = usize::MAX / 2;
                }
            }
            w @ ("http.uri" | "http.host" | "dns.query" | "file.data" | "file_data" | "tls.sni"
            | "http.request_body" | "http.user_agent" | "tls.certs" | "http.header"
            | "http.method" | "http.cookie") => {
                buffer = w;
            }
            _ => {}
        }
    }
    best.map(|(_, b)| b).filter(|b| !b.bytes.is_empty())
}

fn split(body: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let (mut start, mut quoted, mut escaped) = (0, false, false);
    for (at, c) in body.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => quoted = !quoted,
            ';' if !quoted => {
                out.push(body[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    out
}

fn unquote(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut hex = false;
    let mut digits = String::new();
    let mut escaped = false;
    for c in text.bytes() {
        match c {
            _ if escaped => {
                out.push(c);
                escaped = false;
            }
            b'|' => {
                hex = !hex;
                digits.clear();
            }
            b'\\' => escaped = true,
            b' ' if hex => {}
            _ if hex => {
                digits.push(char::from(c));
                if digits.len() == 2 {
                    out.extend(u8::from_str_radix(&digits, 16));
                    digits.clear();
                }
            }
            _ => out.push(c),
        }
    }
    out
}

/// A small generator of numbers, so that seeds mean the same everywhere.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    pub fn chance(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }
}
