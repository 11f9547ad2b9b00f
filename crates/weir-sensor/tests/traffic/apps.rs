//! Parsers over captures of real traffic: nothing panics, what is held stays bounded, and the transactions do not depend on how bytes were cut into segments.
//!
//! The captures are test data of other projects; without them the test says so. Streams are put together in the simplest way here: what does not come in order is a gap.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use weir_packet::parse::{Fragment, Protocol, Version, parse};
use weir_packet::pcap::{Capture, LinkType};
use weir_sensor::app::{App, Asked, Conversation, Ports, Transactions, Wanted};
use weir_sensor::buffer::{Buffer, BufferSet};
use weir_sensor::packet::Direction;

fn say(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
    found.sort();
}

fn wanted() -> Asked {
    Asked::from(Wanted {
        buffers: BufferSet::all(),
        request_body: 100_000,
        response_body: 100_000,
        decompressed: 1 << 20,
        records: true,
        sums: weir_sensor::app::Sums::default(),
        whole_files: false,
        keys: true,
        said: weir_sensor::app::Said::ALL,
    })
}

/// What happened in one flow, to be replayed in other pieces.
enum Step {
    Data(Direction, Vec<u8>, u64),
    Gap(Direction, u64),
    End(Direction),
}

struct Flow {
    client: (IpAddr, u16),
    ports: Ports,
    udp: bool,
    next: [Option<u32>; 2],
    steps: Vec<Step>,
}

fn address(b: &[u8]) -> IpAddr {
    match <[u8; 4]>::try_from(b) {
        Ok(four) => four.into(),
        Err(_) => <[u8; 16]>::try_from(b).unwrap().into(),
    }
}

fn flows(path: &Path) -> Vec<Flow> {
    let mut found: Vec<Flow> = Vec::new();
    let mut index: BTreeMap<(bool, [(IpAddr, u16); 2]), usize> = BTreeMap::new();
    let Ok(file) = std::fs::File::open(path) else {
        return found;
    };
    let Ok(mut capture) = Capture::open(std::io::BufReader::new(file)) else {
        return found;
    };
    while let Ok(Some(packet)) = capture.next_packet() {
        if packet.interface.link_type != LinkType(1) {
            continue;
        }
        let Ok(layout) = parse(packet.data) else {
            continue;
        };
        let (Some(ip), Some(l4)) = (&layout.ip, &layout.l4) else {
            continue;
        };
        if ip.fragment != Fragment::Whole {
            continue;
        }
        let b = &packet.data[ip.at..];
        let (source, destination) = match ip.version {
            Version::V4 => (address(&b[12..16]), address(&b[16..20])),
            Version::V6 => (address(&b[8..24]), address(&b[24..40])),
        };
        let b = &packet.data[l4.at..];
        let port = |at: usize| u16::from_be_bytes([b[at], b[at + 1]]);
        let udp = match l4.protocol {
            Protocol::Tcp => false,
            Protocol::Udp => true,
            _ => continue,
        };
        let (from, to) = ((source, port(0)), (destination, port(2)));
        let mut key = [from, to];
        key.sort();
        let at = *index.entry((udp, key)).or_insert_with(|| {
            found.push(Flow {
                client: from,
                ports: Ports {
                    client: from.1,
                    server: to.1,
                },
                udp,
                next: [None; 2],
                steps: Vec::new(),
            });
            found.len() - 1
        });
        let flow = &mut found[at];
        let d = if from == flow.client {
            Direction::ToServer
        } else {
            Direction::ToClient
        };
        let payload = &packet.data[l4.payload.clone()];
        let time = packet.timestamp_ns;
        if udp {
            flow.steps.push(Step::Data(d, payload.to_vec(), time));
            continue;
        }
        let sequence = u32::from_be_bytes([b[4], b[5], b[6], b[7]]);
        let flags = b[13];
        let next = &mut flow.next[d.index()];
        if flags & 2 != 0 {
            *next = Some(sequence.wrapping_add(1));
            continue;
        }
        let ahead = sequence.wrapping_sub(next.unwrap_or(sequence)) as i32;
        if ahead > 0 && !payload.is_empty() {
            flow.steps.push(Step::Gap(d, ahead as u64));
        }
        let skip = ahead.min(0).unsigned_abs() as usize;
        if skip < payload.len() {
            flow.steps
                .push(Step::Data(d, payload[skip..].to_vec(), time));
            *next = Some(sequence.wrapping_add(payload.len() as u32));
        }
        if flags & 5 != 0 {
            flow.steps.push(Step::End(d));
        }
    }
    found
}

fn dump(out: &Transactions) -> Vec<String> {
    out.live
        .iter()
        .map(|t| {
            let buffers: Vec<_> = t
                .all()
                .map(|(b, d, x)| format!("{b:?} {d:?} {:?}", String::from_utf8_lossy(x)))
                .collect();
            format!(
                "{} {:?} {:?} {:?} {:?} {buffers:#?} {:?}",
                t.id, t.app, t.events, t.facts, t.files, t.record
            )
        })
        .collect()
}

fn run(flow: &Flow, piece: usize) -> Conversation {
    let w = wanted();
    let mut c = if flow.udp {
        Conversation::datagrams(flow.ports)
    } else {
        Conversation::stream(flow.ports)
    };
    for step in &flow.steps {
        match step {
            Step::Data(d, bytes, time) if flow.udp => c.data(*d, bytes, *time, &w),
            Step::Data(d, bytes, time) => {
                for part in bytes.chunks(piece) {
                    c.data(*d, part, *time, &w);
                }
            }
            Step::Gap(d, n) => c.gap(*d, *n),
            Step::End(d) => c.end(*d),
        }
        assert!(c.memory() < 4 << 20, "{} bytes held", c.memory());
    }
    c.close();
    assert!(c.transactions.live.iter().all(|t| t.done));
    c
}

#[test]
fn captures_are_parsed_whatever_their_segments() {
    let Some(root) = weir_testdata::find("zeek-traces") else {
        return;
    };
    let mut paths = Vec::new();
    files(&root, &mut paths);
    let mut counts: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    let mut differ = Vec::new();
    let long = std::env::var_os("WEIR_LONG").is_some();
    for path in &paths {
        for flow in flows(path) {
            let whole = run(&flow, usize::MAX);
            let count = counts.entry(whole.app().name()).or_default();
            count.0 += 1;
            count.1 += whole.transactions.count;
            let bytes: usize = flow
                .steps
                .iter()
                .map(|s| match s {
                    Step::Data(_, b, _) => b.len(),
                    _ => 0,
                })
                .sum();
            // Small pieces of large flows take their time.
            if flow.udp || (bytes > 100_000 && !long) {
                continue;
            }
            for piece in [1, 13] {
                let cut = run(&flow, piece);
                let place = format!(
                    "{:?} {:?} pieces of {piece}",
                    path.file_name().unwrap_or_default(),
                    flow.ports
                );
                if cut.app() != whole.app() {
                    differ.push(format!("{place}: {:?}, not {:?}", cut.app(), whole.app()));
                    continue;
                }
                let (a, b) = (dump(&cut.transactions), dump(&whole.transactions));
                let first = a.iter().zip(&b).find(|(a, b)| a != b);
                if let Some((a, b)) = first {
                    differ.push(format!("{place}:\n{a:.1500}\nnot\n{b:.1500}"));
                } else if a.len() != b.len() {
                    differ.push(format!(
                        "{place}: {} transactions, not {}",
                        a.len(),
                        b.len()
                    ));
                }
            }
        }
    }
    for (name, (flows, transactions)) in &counts {
        say(&format!(
            "{name}: {flows} flows, {transactions} transactions"
        ));
    }
    assert!(
        differ.is_empty(),
        "{} differ: {}",
        differ.len(),
        differ[..differ.len().min(8)].join("\n")
    );
    for app in [
        App::Http1,
        App::Dns,
        App::Tls,
        App::Smtp,
        App::Ftp,
        App::Ssh,
        App::Smb,
        App::Quic,
        App::Snmp,
    ] {
        assert!(
            counts.get(app.name()).is_some_and(|c| c.1 > 0),
            "no {} found",
            app.name()
        );
    }
}

/// Figures for the page of the design; nothing is asserted of them.
#[test]
fn speed_is_printed() {
    let mut few = wanted();
    few.wanted.records = false;
    few.wanted.buffers = BufferSet::default();
    for name in [
        "http.uri",
        "http.host",
        "http.method",
        "http.user_agent",
        "http.header",
        "file.data",
    ] {
        few.wanted.buffers.insert(Buffer::sticky(name).unwrap());
    }
    let request = b"GET /index.html?q=some%20query&x=1 HTTP/1.1\r\nHost: www.example.com\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:109.0) Gecko/20100101 Firefox/115.0\r\nAccept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\nAccept-Language: en-US,en;q=0.5\r\nAccept-Encoding: gzip, deflate\r\nConnection: keep-alive\r\nReferer: http://www.example.com/start\r\nCookie: session=0123456789abcdef\r\n\r\n";
    let mut response = b"HTTP/1.1 200 OK\r\nServer: nginx\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: 8000\r\nConnection: keep-alive\r\n\r\n".to_vec();
    response.resize(response.len() + 8000, b'x');
    for (name, w) in [("everything", wanted()), ("six buffers, no records", few)] {
        let rounds = 2000u32;
        let mut c = Conversation::stream(Ports {
            client: 1,
            server: 80,
        });
        let start = std::time::Instant::now();
        for _ in 0..rounds {
            c.data(Direction::ToServer, request, 1, &w);
            for part in response.chunks(1448) {
                c.data(Direction::ToClient, part, 1, &w);
            }
            c.transactions.live.retain(|t| !t.done);
        }
        let took = start.elapsed().as_secs_f64() * 1e6 / f64::from(rounds);
        let bytes = request.len() + response.len();
        say(&format!(
            "HTTP, {name}: {took:.2} us a transaction of {bytes} bytes, {:.3} us a KB",
            took * 1024.0 / bytes as f64
        ));
    }
}
