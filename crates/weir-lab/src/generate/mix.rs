//! Mixes of application traffic as captures: templates of flows, each begun so many times a second, with addresses and ports of their own.
//!
//! A mix is read from a document in the form of the TRex traffic generator (`cap_info` with `name`, `cps`, `ipg`, `rtt`; `generator` with address ranges), or given as frames. The rate
//! of all flows can be multiplied, their number and the time in which they begin limited, and the gaps between their packets changed, which makes flows longer or shorter.
//! Invariant: what is written depends on the mix and the plan alone. A flow that has begun is written to its end, so that its number of packets is that of its template.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufReader, Write};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_packet::checksum;
use weir_packet::pcap::{Capture, LinkType, Writer};

/// When the first flow begins: some day, the same for all captures.
const BEGIN_NS: u64 = 1_700_000_000 * 1_000_000_000;
/// The first source port of clients.
const FIRST_PORT: u64 = 1024;

/// Gaps between the packets of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gaps {
    /// As the mix says: `ipg` after a packet of the same end, `rtt` after one of the other.
    #[default]
    Mix,
    /// As in the templates' captures.
    Templates,
    /// All the same.
    Fixed(Duration),
}

/// How much of a mix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// Times the rates of the mix.
    pub multiple: f64,
    /// Flows at most.
    pub flows: Option<u64>,
    /// Flows begin during so long.
    pub lasting: Option<Duration>,
    /// Within flows.
    pub gaps: Gaps,
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Written {
    /// Flows.
    pub flows: u64,
    /// Their packets.
    pub packets: u64,
    /// Bytes of frames.
    pub bytes: u64,
    /// Seconds in which flows began.
    pub begun_in: f64,
    /// Seconds from the first packet to the last.
    pub seconds: f64,
    /// The most flows at a time.
    pub most_at_once: u64,
}

/// Why there is no mix.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MixError {
    /// A file cannot be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The document is none of a mix.
    #[error("{}: {why}", path.display())]
    Document {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A capture is no template.
    #[error("{}: {why}", path.display())]
    Template {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// What is asked for is nothing, or without end.
    #[error("{0}")]
    Plan(String),
    /// The capture cannot be written.
    #[error("cannot write the capture: {0}")]
    Write(#[from] io::Error),
}

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    generator: Option<Generator>,
    #[serde(default)]
    cap_info: Vec<Entry>,
}

#[derive(Deserialize)]
struct Generator {
    clients_start: Ipv4Addr,
    clients_end: Ipv4Addr,
    servers_start: Ipv4Addr,
    servers_end: Ipv4Addr,
}

#[derive(Deserialize)]
struct Entry {
    name: PathBuf,
    cps: f64,
    ipg: u64,
    rtt: u64,
}

/// Addresses of one kind of hosts, taken in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pool {
    first: u32,
    count: u64,
}

impl Pool {
    fn new(first: Ipv4Addr, last: Ipv4Addr) -> Option<Pool> {
        let (first, last) = (u32::from(first), u32::from(last));
        Some(Pool {
            first,
            count: u64::from(last.checked_sub(first)?) + 1,
        })
    }

    fn of(self, n: u64) -> [u8; 4] {
        (self.first + (n % self.count) as u32).to_be_bytes()
    }
}

/// A frame of a template, with what is needed to give it other addresses.
#[derive(Clone, Debug)]
struct Part {
    frame: Vec<u8>,
    /// Nanoseconds after the one before, in the capture.
    gap: u64,
    from_client: bool,
    /// Which of the template's client ports it is about.
    port: u64,
    /// Where IPv4 begins.
    ip: usize,
    /// Where the ports are, and the checksum that covers them, if there are any.
    ports: Option<(usize, usize)>,
    /// UDP without a checksum.
    unsummed: bool,
}

/// A template.
#[derive(Clone, Debug)]
struct Template {
    parts: Vec<Part>,
    /// Flows begun a second.
    rate: f64,
    same_end: u64,
    other_end: u64,
}

/// Templates with their rates.
#[derive(Clone, Debug)]
pub struct Mix {
    templates: Vec<Template>,
    clients: Pool,
    servers: Pool,
    /// Client ports of the template with the most.
    ports: u64,
}

impl Mix {
    /// Reads a document and the captures that it names, which are beside it.
    ///
    /// # Errors
    /// A file cannot be read, or is not what it should be.
    pub fn read(path: &Path) -> Result<Mix, MixError> {
        let wrong = |why: String| MixError::Document {
            path: path.to_path_buf(),
            why,
        };
        let text = std::fs::read_to_string(path).map_err(|error| MixError::Read {
            path: path.to_path_buf(),
            error,
        })?;
        let documents: Vec<Document> =
            serde_saphyr::from_str(&text).map_err(|e| wrong(e.to_string()))?;
        let mut mix = Mix::empty();
        for document in documents {
            if let Some(g) = document.generator {
                let pools = (
                    Pool::new(g.clients_start, g.clients_end),
                    Pool::new(g.servers_start, g.servers_end),
                );
                let (Some(clients), Some(servers)) = pools else {
                    return Err(wrong(
                        "a range of addresses ends before it begins".to_owned(),
                    ));
                };
                (mix.clients, mix.servers) = (clients, servers);
            }
            for entry in document.cap_info {
                if !(entry.cps.is_finite() && entry.cps > 0.0) {
                    return Err(wrong(format!(
                        "{}: cps is {}; it must be above 0",
                        entry.name.display(),
                        entry.cps
                    )));
                }
                let file = path.parent().unwrap_or(Path::new("")).join(&entry.name);
                let micros = |us: u64| Duration::from_micros(us);
                mix.add_capture(&file, entry.cps, micros(entry.ipg), micros(entry.rtt))?;
            }
        }
        if mix.templates.is_empty() {
            return Err(wrong(
                "no template: `cap_info` is missing or empty".to_owned(),
            ));
        }
        Ok(mix)
    }

    /// A mix of nothing, between 16.0.0.1 to 16.0.0.255 and 48.0.0.1 to 48.0.255.255.
    pub(crate) fn empty() -> Mix {
        Mix {
            templates: Vec::new(),
            clients: Pool {
                first: 0x1000_0001,
                count: 255,
            },
            servers: Pool {
                first: 0x3000_0001,
                count: 65_535,
            },
            ports: 1,
        }
    }

    /// A mix of nothing between these addresses, the first and the last of each; none are not a range.
    pub(crate) fn between(
        clients: (Ipv4Addr, Ipv4Addr),
        servers: (Ipv4Addr, Ipv4Addr),
    ) -> Option<Mix> {
        Some(Mix {
            clients: Pool::new(clients.0, clients.1)?,
            servers: Pool::new(servers.0, servers.1)?,
            ..Mix::empty()
        })
    }

    fn add_capture(
        &mut self,
        path: &Path,
        rate: f64,
        ipg: Duration,
        rtt: Duration,
    ) -> Result<(), MixError> {
        let wrong = |why: String| MixError::Template {
            path: path.to_path_buf(),
            why,
        };
        let file = File::open(path).map_err(|error| MixError::Read {
            path: path.to_path_buf(),
            error,
        })?;
        let mut capture = Capture::open(BufReader::new(file)).map_err(|e| wrong(e.to_string()))?;
        let mut frames = Vec::new();
        while let Some(packet) = capture.next_packet().map_err(|e| wrong(e.to_string()))? {
            if packet.interface.link_type != LinkType::ETHERNET {
                return Err(wrong("templates are captures of Ethernet".to_owned()));
            }
            if packet.data.len() < packet.original_len as usize {
                return Err(wrong(format!(
                    "packet {} is cut; a template holds whole packets",
                    frames.len() + 1
                )));
            }
            frames.push((packet.timestamp_ns, packet.data.to_vec()));
        }
        self.add(frames, rate, ipg, rtt).map_err(wrong)
    }

    /// Adds a template: times and Ethernet frames of IPv4 between two hosts, of whom the first sender is the client.
    pub(crate) fn add(
        &mut self,
        frames: Vec<(u64, Vec<u8>)>,
        rate: f64,
        ipg: Duration,
        rtt: Duration,
    ) -> Result<(), String> {
        let mut ports: Vec<u16> = Vec::new();
        let mut hosts = None;
        let mut before = None;
        let mut parts = Vec::new();
        for (n, (time, frame)) in frames.into_iter().enumerate() {
            let found = Addressed::of(&frame)
                .ok_or_else(|| format!("packet {} is not whole IPv4 over Ethernet", n + 1))?;
            let (client, server) = *hosts.get_or_insert((found.source, found.destination));
            let from_client = match (found.source, found.destination) {
                ends if ends == (client, server) => true,
                ends if ends == (server, client) => false,
                _ => {
                    return Err(format!(
                        "packet {} is between other hosts; a template has two",
                        n + 1
                    ));
                }
            };
            let port = match found.ports {
                Some((at, _)) => {
                    let at = if from_client { at } else { at + 2 };
                    let number = u16::from_be_bytes([frame[at], frame[at + 1]]);
                    let known = ports.iter().position(|p| *p == number);
                    known.unwrap_or_else(|| {
                        ports.push(number);
                        ports.len() - 1
                    }) as u64
                }
                None => 0,
            };
            parts.push(Part {
                gap: time.saturating_sub(before.unwrap_or(time)),
                from_client,
                port,
                ip: found.ip,
                ports: found.ports,
                unsummed: found.unsummed,
                frame,
            });
            before = Some(time);
        }
        if parts.is_empty() {
            return Err("no packet".to_owned());
        }
        self.ports = self.ports.max(ports.len() as u64);
        self.templates.push(Template {
            parts,
            rate,
            same_end: ipg.as_nanos() as u64,
            other_end: rtt.as_nanos() as u64,
        });
        Ok(())
    }

    /// Packets, bits and flows a second at a multiple, when as many flows end as begin.
    pub fn rates(&self, multiple: f64) -> (f64, f64, f64) {
        let sum = |of: fn(&Template) -> f64| {
            self.templates.iter().map(|t| t.rate * of(t)).sum::<f64>() * multiple
        };
        (
            sum(|t| t.parts.len() as f64),
            sum(|t| t.parts.iter().map(|p| p.frame.len() as f64 * 8.0).sum()),
            sum(|_| 1.0),
        )
    }

    /// Writes a capture with nanosecond times.
    ///
    /// # Errors
    /// The plan is of nothing or without end, or the output fails.
    pub fn write(&self, plan: &Plan, output: impl Write) -> Result<Written, MixError> {
        if !(plan.multiple.is_finite() && plan.multiple > 0.0) {
            return Err(MixError::Plan(format!(
                "invalid multiple {} of rates",
                plan.multiple
            )));
        }
        if plan.flows.is_none() && plan.lasting.is_none() {
            return Err(MixError::Plan(
                "without a number of flows and a time the capture would not end".to_owned(),
            ));
        }
        let most = plan.flows.unwrap_or(u64::MAX);
        let lasting = plan.lasting.map_or(f64::INFINITY, |d| d.as_secs_f64());
        let mut writer = Writer::new(output)?;
        let mut written = Written::default();
        // When the next flow of each template begins. They are spread over the first interval of theirs, so that not all begin at once.
        let count = self.templates.len() as f64;
        let mut next: Vec<(f64, u64)> = self
            .templates
            .iter()
            .enumerate()
            .map(|(n, t)| ((n as f64 + 0.5) / count / (t.rate * plan.multiple), 0))
            .collect();
        let first: Vec<f64> = next.iter().map(|(at, _)| *at).collect();
        // Packets that are due: time, flow, template, index.
        let mut due: BinaryHeap<Reverse<(u64, u64, u32, u32)>> = BinaryHeap::new();
        let mut frame = Vec::new();
        let mut last = 0;
        loop {
            let begins = next
                .iter()
                .enumerate()
                .filter(|(_, (at, _))| *at < lasting && written.flows < most)
                .min_by(|a, b| a.1.0.total_cmp(&b.1.0));
            let begin_ns = begins.map(|(_, (at, _))| (at * 1e9) as u64);
            let due_ns = due.peek().map(|Reverse((at, ..))| *at);
            match (begin_ns, due_ns) {
                (None, None) => break,
                (Some(at), due_at) if due_at.is_none_or(|d| at <= d) => {
                    let which = begins.map_or(0, |(n, _)| n);
                    due.push(Reverse((at, written.flows, which as u32, 0)));
                    written.flows += 1;
                    written.begun_in = at as f64 / 1e9;
                    written.most_at_once = written.most_at_once.max(due.len() as u64);
                    let (time, begun) = &mut next[which];
                    *begun += 1;
                    // Not added up, so that a rate holds however long it lasts.
                    *time =
                        first[which] + *begun as f64 / (self.templates[which].rate * plan.multiple);
                }
                _ => {
                    let Some(Reverse((at, flow, which, index))) = due.pop() else {
                        break;
                    };
                    let template = &self.templates[which as usize];
                    let part = &template.parts[index as usize];
                    self.address(part, flow, &mut frame);
                    writer.write(BEGIN_NS + at, &frame, frame.len() as u32)?;
                    written.packets += 1;
                    written.bytes += frame.len() as u64;
                    last = at;
                    if let Some(following) = template.parts.get(index as usize + 1) {
                        let gap = match plan.gaps {
                            Gaps::Fixed(gap) => gap.as_nanos() as u64,
                            Gaps::Templates => following.gap,
                            Gaps::Mix if following.from_client == part.from_client => {
                                template.same_end
                            }
                            Gaps::Mix => template.other_end,
                        };
                        due.push(Reverse((at + gap, flow, which, index + 1)));
                    }
                }
            }
        }
        writer.finish()?;
        written.seconds = last as f64 / 1e9;
        Ok(written)
    }

    /// A frame of a template with the addresses and the client's port of a flow, and right checksums if they were right.
    fn address(&self, part: &Part, flow: u64, frame: &mut Vec<u8>) {
        frame.clear();
        frame.extend_from_slice(&part.frame);
        let (client, server) = (self.clients.of(flow), self.servers.of(flow));
        // As many flows as there are ports for the clients differ in address or port.
        let serial = flow / self.clients.count * self.ports + part.port;
        let port = (FIRST_PORT + serial % (65_536 - FIRST_PORT)) as u16;
        let (source, destination) = if part.from_client {
            (client, server)
        } else {
            (server, client)
        };
        let addresses = part.ip + 12..part.ip + 20;
        let old = checksum::sum(&frame[addresses.clone()]);
        frame[part.ip + 12..part.ip + 16].copy_from_slice(&source);
        frame[part.ip + 16..part.ip + 20].copy_from_slice(&destination);
        let new = checksum::sum(&frame[addresses]);
        renew(frame, part.ip + 10, old, new);
        if let Some((at, sum)) = part.ports {
            let of_client = if part.from_client { at } else { at + 2 };
            let before = u64::from(u16::from_be_bytes([frame[of_client], frame[of_client + 1]]));
            frame[of_client..of_client + 2].copy_from_slice(&port.to_be_bytes());
            if !part.unsummed {
                renew(frame, sum, old + before, new + u64::from(port));
            }
        }
    }
}

/// Renews the checksum at `at` after words with the sum `old` became words with the sum `new`.
fn renew(frame: &mut [u8], at: usize, old: u64, new: u64) {
    let field = u16::from_be_bytes([frame[at], frame[at + 1]]);
    let renewed = checksum::update(field, old, new);
    // Over UDP a zero says that there is no checksum; both zeros of ones' complement are the same to who verifies.
    let field = if renewed == 0 { 0xffff } else { renewed };
    frame[at..at + 2].copy_from_slice(&field.to_be_bytes());
}

/// Where the addresses and ports of a frame are.
struct Addressed {
    ip: usize,
    source: [u8; 4],
    destination: [u8; 4],
    ports: Option<(usize, usize)>,
    unsummed: bool,
}

impl Addressed {
    fn of(frame: &[u8]) -> Option<Addressed> {
        let mut ip = 14;
        let mut kind = frame.get(12..14)?;
        while kind == [0x81, 0] || kind == [0x88, 0xa8] {
            kind = frame.get(ip + 2..ip + 4)?;
            ip += 4;
        }
        let header = frame.get(ip..ip + 20)?;
        if kind != [8, 0] || header[0] >> 4 != 4 {
            return None;
        }
        let upper = ip + usize::from(header[0] & 15) * 4;
        // Later fragments have no ports; the first one's checksum covers those of all.
        let first = u16::from_be_bytes([header[6], header[7]]) & 0x1fff == 0;
        let sum = match header[9] {
            6 if first => Some(upper + 16),
            17 if first => Some(upper + 6),
            _ => None,
        };
        let unsummed = match sum {
            Some(at) => frame.get(at..at + 2)? == [0, 0] && header[9] == 17,
            None => false,
        };
        Some(Addressed {
            ip,
            source: *header[12..].first_chunk()?,
            destination: *header[16..].first_chunk()?,
            ports: sum.map(|sum| (upper, sum)),
            unsummed,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use weir_packet::build::Frame;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn mix() -> Mix {
        let mut mix = Mix::empty();
        let (a, b) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        let frames = vec![
            (
                5,
                Frame::new()
                    .ip4(a, b)
                    .udp(4000, 53)
                    .payload(b"question")
                    .build(),
            ),
            (
                9,
                Frame::new()
                    .ip4(b, a)
                    .udp(53, 4000)
                    .payload(b"the answer")
                    .build(),
            ),
        ];
        mix.add(frames, 100.0, 2 * MS, 3 * MS).expect("a template");
        let frames = (0..4)
            .map(|n| {
                let frame = Frame::new().ip4(a, b).tcp(4001, 80).numbers(n, 0);
                (u64::from(n) * 7, frame.payload(b"abc").build())
            })
            .collect();
        mix.add(frames, 50.0, 2 * MS, 3 * MS).expect("a template");
        mix
    }

    fn plan() -> Plan {
        Plan {
            multiple: 1.0,
            flows: None,
            lasting: Some(Duration::from_secs(1)),
            gaps: Gaps::Mix,
        }
    }

    fn frames(mix: &Mix, plan: &Plan) -> (Written, Vec<(u64, Vec<u8>)>) {
        let mut bytes = Vec::new();
        let written = mix.write(plan, &mut bytes).expect("memory");
        let mut capture = Capture::open(&bytes[..]).expect("a capture");
        let mut frames = Vec::new();
        while let Some(packet) = capture.next_packet().expect("whole") {
            frames.push((packet.timestamp_ns - BEGIN_NS, packet.data.to_vec()));
        }
        (written, frames)
    }

    #[test]
    fn flows_have_the_rate_the_packets_and_the_checksums_of_the_mix() {
        let (written, frames) = frames(&mix(), &plan());
        assert_eq!((written.flows, written.packets), (150, 100 * 2 + 50 * 4));
        assert_eq!(frames.len() as u64, written.packets);
        assert!(frames.windows(2).all(|w| w[0].0 <= w[1].0), "times rise");
        let mut flows = BTreeMap::<_, Vec<u64>>::new();
        for (time, frame) in &frames {
            let ip = &frame[14..34];
            assert_eq!(
                checksum::checksum(ip),
                0,
                "IPv4 sums to zero with its checksum"
            );
            let length = u16::from_be_bytes([ip[2], ip[3]]) as usize;
            let upper = &frame[34..14 + length];
            let pseudo = checksum::pseudo_header4(
                *ip[12..].first_chunk().expect("whole"),
                *ip[16..].first_chunk().expect("whole"),
                ip[9],
                upper.len() as u32,
            );
            assert_eq!(
                !checksum::fold(checksum::sum(upper) + pseudo),
                0,
                "the transport's, too"
            );
            let mut ends = [(&ip[12..16], &upper[..2]), (&ip[16..20], &upper[2..4])];
            ends.sort();
            flows
                .entry(format!("{} {ends:?}", ip[9]))
                .or_default()
                .push(*time);
        }
        assert_eq!(flows.len(), 150, "no two flows share addresses and ports");
        let lengths: BTreeSet<u64> = flows.values().map(|t| t[t.len() - 1] - t[0]).collect();
        assert_eq!(
            lengths,
            BTreeSet::from([3_000_000, 3 * 2_000_000]),
            "rtt once, ipg three times"
        );
    }

    #[test]
    fn rate_number_and_length_of_flows_can_be_chosen() {
        let faster = Plan {
            multiple: 3.0,
            ..plan()
        };
        assert_eq!(frames(&mix(), &faster).0.flows, 450);
        let few = Plan {
            flows: Some(7),
            lasting: None,
            ..plan()
        };
        assert_eq!(frames(&mix(), &few).0.flows, 7);
        let longer = Plan {
            gaps: Gaps::Fixed(Duration::from_secs(2)),
            ..plan()
        };
        let (written, _) = frames(&mix(), &longer);
        assert_eq!(written.packets, 400);
        assert!(
            written.seconds > 6.9 && written.most_at_once == 150,
            "{written:?}"
        );
        let own = Plan {
            gaps: Gaps::Templates,
            flows: Some(1),
            ..plan()
        };
        assert_eq!(frames(&mix(), &own).1[1].0 - frames(&mix(), &own).1[0].0, 4);
        assert_eq!(
            frames(&mix(), &plan()).1,
            frames(&mix(), &plan()).1,
            "always the same"
        );
        for bad in [
            Plan {
                multiple: 0.0,
                ..plan()
            },
            Plan {
                lasting: None,
                ..plan()
            },
        ] {
            assert!(matches!(
                mix().write(&bad, Vec::new()),
                Err(MixError::Plan(_))
            ));
        }
    }

    #[test]
    fn what_is_no_template_is_refused() {
        let six = Frame::new().ip6([1; 16], [2; 16]).udp(1, 2).build();
        let other = |last| {
            Frame::new()
                .ip4([1, 1, 1, 1], [1, 1, 1, last])
                .udp(1, 2)
                .build()
        };
        for (frames, word) in [
            (vec![], "no packet"),
            (vec![(0, six)], "IPv4"),
            (vec![(0, other(2)), (0, other(3))], "two"),
        ] {
            let why = Mix::empty().add(frames, 1.0, MS, MS).expect_err(word);
            assert!(why.contains(word), "{why}");
        }
        let folder = crate::process::Scratch::create("weir-mix").expect("a folder");
        for (text, word) in [
            ("- duration: 1\n", "cap_info"),
            (
                "- cap_info:\n  - {name: none.pcap, cps: 1.0, ipg: 1, rtt: 1}\n",
                "none.pcap",
            ),
            (
                "- cap_info:\n  - {name: none.pcap, cps: 0, ipg: 1, rtt: 1}\n",
                "cps",
            ),
            ("- [1, 2]\n", "mix.yaml"),
        ] {
            let path = folder.write("mix.yaml", text.as_bytes()).expect("written");
            let why = Mix::read(&path).expect_err(word).to_string();
            assert!(why.contains(word), "{why}");
        }
    }

    /// The published mix, where it is at hand: at 1x 300,640 packets, 1,058.7 Mbit and 4,510 flows a second.
    #[test]
    fn the_published_mix_has_its_published_rates() {
        let Some(path) = weir_testdata::find("trex-templates/sfr.yaml") else {
            return;
        };
        let mix = Mix::read(&path).expect("it is there");
        let (packets, bits, flows) = mix.rates(1.0);
        assert_eq!((packets.round(), flows.round()), (300_640.0, 4_510.0));
        assert!((bits / 1e6 - 1058.7).abs() < 0.1, "{bits}");
    }
}
