//! Capture filters held to tcpdump's, where that is installed: the same frames of the same captures.

use std::path::{Path, PathBuf};
use std::process::Command;

use weir_sensor::source::filter::Filter;
use weir_sensor::source::{Batch, FileOptions, Files, Filled, Source};

const FILTERS: &[&str] = &[
    "tcp",
    "udp port 53",
    "not ip",
    "ip6",
    "icmp or icmp6",
    "port 80 or port 443",
    "tcp dst portrange 1-1023",
    "src net 10.0.0.0/8",
    "net 192.168",
    "host 127.0.0.1 or ::1",
    "vlan",
    "vlan and tcp",
    "vlan and vlan and ip",
    "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0",
    "ip[6:2] & 0x1fff != 0",
    "(ip[0] & 0xf) * 4 + 8 > 30",
    "greater 500",
    "len <= 60 and not arp",
    "ether broadcast or ether multicast",
    "ip multicast",
    "ip proto 47 or ip6 proto 58",
    "arp host 192.168.1.1",
    "ether proto 0x8847",
    "udp[4:2] < 100",
    "sctp or proto 50",
    "src or dst port 53",
    "src port 80 or dst port 25",
];

fn count(path: &Path, filter: &Filter) -> (u64, Option<u16>) {
    let Ok(mut files) = Files::open(&[path.to_path_buf()], FileOptions::default()) else {
        return (0, None);
    };
    let (mut batch, mut count, mut link) = (Batch::default(), 0, None);
    loop {
        batch.clear();
        match files.fill(&mut batch) {
            Ok(Filled::Frames) => {}
            // A capture that is damaged ends elsewhere for libpcap.
            _ if !files.problems().is_empty() => return (0, None),
            _ => return (count, link),
        }
        for frame in &batch.frames {
            // Made up by a fuzzer: longer than the capture's own limit, which libpcap cuts it to.
            if frame.len > 65_535 {
                return (0, None);
            }
            link = Some(frame.link);
            count += u64::from(filter.takes(frame.link, batch.bytes(frame), frame.wire));
        }
    }
}

#[test]
fn filters_take_what_tcpdump_takes() {
    if Command::new("tcpdump").arg("--version").output().is_err() {
        weir_testdata::not_run("there is no tcpdump");
        return;
    }
    let mut paths: Vec<PathBuf> = ["pcaps", "zeek-traces"]
        .iter()
        .filter_map(|folder| weir_testdata::find(folder))
        .flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten().flatten())
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .collect();
    paths.sort();
    // A sample; the long form takes all.
    let step = if std::env::var_os("WEIR_LONG").is_some() {
        1
    } else {
        37
    };
    let (mut compared, mut taken) = (0, 0);
    let mut wrong = Vec::new();
    for path in paths.iter().step_by(step) {
        for text in FILTERS {
            let filter = Filter::parse(text).expect(text);
            let (ours, link) = count(path, &filter);
            // tcpdump refuses filters that mean nothing for a link type, and captures of link types that it does not know.
            if link != Some(1) {
                continue;
            }
            let output = Command::new("tcpdump")
                .arg("-r")
                .arg(path)
                .args(["-n", "--count", text])
                .output()
                .expect("it runs");
            let told = String::from_utf8_lossy(&output.stdout);
            let Some(theirs) = told
                .split_whitespace()
                .next()
                .and_then(|n| n.parse::<u64>().ok())
            else {
                continue;
            };
            if ours != theirs {
                wrong.push(format!(
                    "{text} of {}: {ours}, tcpdump {theirs}",
                    path.display()
                ));
            }
            compared += 1;
            taken += ours;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    println!("{compared} filters of captures compared, {taken} frames taken");
}
