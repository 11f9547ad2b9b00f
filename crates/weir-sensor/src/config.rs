//! What a sensor is told: variables, limits, policies, logs. Read from [`Settings`] by the keys that users know; what is not said has the value written here.
//!
//! A key that nothing here asks for changes nothing; how many there are is told, so that nobody believes in one.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use crate::app::{HttpWanted, Said, Sums};
use crate::output::eve::EveOptions;
use crate::output::{Rotation, Target};
use crate::settings::{Settings, SettingsError};
use crate::stream::Policy;
use crate::{decode, defragment, flow, stream};

/// All of it.
#[derive(Clone, Debug)]
pub struct Config {
    /// `vars.address-groups`, in the order of names: over those that rule sets expect.
    pub addresses: Vec<(String, String)>,
    /// `vars.port-groups`.
    pub ports: Vec<(String, String)>,
    /// Rule files of the configuration.
    pub rule_files: Vec<PathBuf>,
    /// `classification-file`.
    pub classification: Option<PathBuf>,
    /// `threshold-file`.
    pub thresholds: Option<PathBuf>,
    /// Files of `reputation-files`, with `reputation-categories-file`.
    pub reputation: Vec<PathBuf>,
    /// Names of reputation categories.
    pub reputation_categories: Option<PathBuf>,
    /// Whether checksums are verified.
    pub checksums: bool,
    /// Tunnels on UDP.
    pub tunnels: Tunnels,
    /// Parts that state is divided into, each with its share of every cap. Results depend on it, and not on the number of workers, of which there are at most so many.
    pub slices: u16,
    /// Fragments.
    pub defragment: Defragment,
    /// Flows.
    pub flow: Flow,
    /// Streams.
    pub stream: Stream,
    /// How hosts take overlaps that no prefix of `hosts` names.
    pub overlaps: Overlaps,
    /// Which hosts are of which system.
    pub hosts: Vec<Host>,
    /// Limits of applications.
    pub app: App,
    /// Alerts that one packet may give; the rest of them is counted. Not said: all.
    pub alerts: Option<usize>,
    /// How many steps one match of a regular expression may take, if said.
    pub regex_steps: Option<u64>,
    /// Logs.
    pub logs: Logs,
    /// Keys that change nothing.
    pub unknown: Vec<String>,
}

/// What a system keeps where fragments and segments overlap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overlaps {
    /// Of segments.
    pub segments: Policy,
    /// Of fragments.
    pub fragments: defragment::Policy,
}

/// Hosts of a system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    /// Their network.
    pub address: IpAddr,
    /// Bits of its prefix; the longest one counts.
    pub length: u8,
    /// What they keep.
    pub overlaps: Overlaps,
}

/// Tunnels on UDP, by ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunnels {
    /// VXLAN.
    pub vxlan: Vec<u16>,
    /// Geneve.
    pub geneve: Vec<u16>,
    /// Teredo.
    pub teredo: Vec<u16>,
}

/// Fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defragment {
    /// Bytes of all fragments that wait.
    pub memory: u64,
    /// Datagrams that wait.
    pub datagrams: u64,
    /// Seconds until a datagram is given up.
    pub timeout: u64,
}

/// Flows: seconds without a packet after which one is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Bytes of all flows.
    pub memory: u64,
    /// Bytes of all TCP sessions, which are part of flows.
    pub sessions: u64,
    /// Flows at most.
    pub flows: u64,
    /// TCP before, during and after a session.
    pub tcp: [u64; 3],
    /// UDP before and after an answer.
    pub udp: [u64; 2],
    /// ICMP before and after an answer.
    pub icmp: [u64; 2],
    /// Other protocols before and after an answer.
    pub other: [u64; 2],
    /// Whether flows of different VLANs are different.
    pub vlans: bool,
}

/// What becomes of urgent data.
const URGENT: &str = "stream.reassembly.urgent.policy";

/// Streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Bytes of all segments that wait.
    pub memory: u64,
    /// Bytes of a stream that are reassembled; 0: all.
    pub depth: u64,
    /// The same of SMB (`app-layer.protocols.smb.stream-depth`), which carries many files in one session.
    pub smb_depth: u64,
    /// Take up sessions whose beginning was not seen.
    pub midstream: bool,
    /// Believe one side where the other one is not seen.
    pub one_sided: bool,
    /// Hand bytes on when they arrive, not when they are acknowledged.
    pub inline: bool,
    /// What becomes of urgent data.
    pub urgent: stream::Urgent,
}

/// Limits of applications.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct App {
    /// Bytes of a request's body that are inspected; 0: all.
    pub request_body: u64,
    /// Bytes of a response's body.
    pub response_body: u64,
    /// Bytes that a compressed body may become.
    pub decompressed: u64,
    /// What is asked of HTTP beside that.
    pub http: Arc<HttpWanted>,
    /// Whether records have JA3 of TLS; not said: if rules ask for it.
    pub ja3: Option<bool>,
    /// The same of JA4, of which records have it if not said.
    pub ja4: Option<bool>,
    /// The same of HASSH of SSH, as JA3.
    pub hassh: Option<bool>,
    /// Whether contents are looked for in what TLS and SSH encrypted: `encryption-handling: full`.
    pub encrypted_tls: bool,
    /// The same of SSH.
    pub encrypted_ssh: bool,
    /// Bytes of all conversations and of what detection looks back to; beyond it, the flows that were quiet for longest end.
    pub memory: u64,
}

/// Logs.
#[derive(Clone, Debug)]
pub struct Logs {
    /// EVE.
    pub eve: Option<Log>,
    /// fast.log.
    pub fast: Option<Log>,
    /// Which records EVE has.
    pub kinds: Kinds,
    /// What they say.
    pub options: EveOptions,
    /// Seconds between records of counters; the last one is always written.
    pub stats_interval: u64,
}

/// One log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// Where it goes; relative names are in the log directory.
    pub target: Target,
    /// When a file is put aside.
    pub rotation: Rotation,
}

/// Records that are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kinds {
    /// Alerts.
    pub alert: bool,
    /// Ends of flows.
    pub flow: bool,
    /// The same, each direction for itself.
    pub netflow: bool,
    /// Counters.
    pub stats: bool,
    /// Events of decoding.
    pub anomaly_decode: bool,
    /// Events of streams.
    pub anomaly_stream: bool,
    /// Events of applications.
    pub anomaly_app: bool,
    /// Files.
    pub files: bool,
    /// Applications by the names of their records; `None`: all.
    pub apps: Option<Vec<String>>,
    /// Which of DNS.
    pub dns: DnsKinds,
    /// Fields that records of TLS have; `None`: the usual ones.
    pub tls: Option<Vec<String>>,
    /// Fields that `email` has beside the usual ones.
    pub mail: Vec<String>,
    /// What parsers are to read for records only.
    pub said: Said,
}

/// Which records of DNS are written, and what answers they show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsKinds {
    /// Those of requests.
    pub requests: bool,
    /// Those of responses.
    pub responses: bool,
    /// Of questions with one of these types, in capitals; empty: any.
    pub types: Vec<String>,
    /// `answers` and the other sections, record by record.
    pub detailed: bool,
    /// `grouped`: answers by type.
    pub grouped: bool,
    /// As version 2 of the records had it.
    pub older: bool,
}

impl Default for DnsKinds {
    fn default() -> Self {
        DnsKinds {
            requests: true,
            responses: true,
            types: Vec::new(),
            detailed: true,
            grouped: true,
            older: false,
        }
    }
}

impl Kinds {
    /// Whether transactions of an application are written.
    pub fn has_app(&self, name: &str) -> bool {
        self.apps
            .as_ref()
            .is_none_or(|list| list.iter().any(|n| n == name))
    }

    fn none() -> Kinds {
        Kinds {
            alert: false,
            flow: false,
            netflow: false,
            stats: false,
            anomaly_decode: false,
            anomaly_stream: false,
            anomaly_app: false,
            files: false,
            apps: Some(Vec::new()),
            dns: DnsKinds::default(),
            tls: None,
            mail: Vec::new(),
            said: Said::default(),
        }
    }

    fn all() -> Kinds {
        Kinds {
            alert: true,
            flow: true,
            netflow: false,
            stats: true,
            anomaly_decode: false,
            anomaly_stream: false,
            anomaly_app: true,
            files: true,
            apps: None,
            dns: DnsKinds::default(),
            tls: None,
            mail: Vec::new(),
            said: Said::default(),
        }
    }
}

/// Records whose name in a list of types is not that of the application.
const TYPES: &[(&str, &str)] = &[
    ("http", "http"),
    ("dns", "dns"),
    ("tls", "tls"),
    ("smtp", "smtp"),
    ("ftp", "ftp"),
    ("ssh", "ssh"),
    ("smb", "smb"),
    ("quic", "quic"),
    ("ftp_data", "ftp_data"),
    ("ftp-data", "ftp_data"),
    ("tftp", "tftp"),
    ("snmp", "snmp"),
];

impl Default for Config {
    fn default() -> Self {
        Config::from_settings(&Settings::default()).expect("what is written here is right")
    }
}

impl Config {
    /// Reads the settings.
    ///
    /// # Errors
    /// A value means nothing for its key.
    pub fn from_settings(s: &Settings) -> Result<Config, SettingsError> {
        let variables = |key: &str| {
            let mut list: Vec<(String, String)> = Vec::new();
            for name in s.keys(key) {
                let key = format!("{key}.{name}");
                // A list of addresses is the same as its text in brackets.
                let Some(words) = s.list(&key) else { continue };
                let value = if words.len() == 1 {
                    words[0].clone()
                } else {
                    format!("[{}]", words.join(","))
                };
                list.push((name, value));
            }
            list
        };
        let folder = s.text("default-rule-path").map(|path| s.path(&path));
        let rule_files = s
            .list("rule-files")
            .unwrap_or_default()
            .into_iter()
            .map(|name| match &folder {
                Some(folder) => folder.join(name),
                None => s.path(&name),
            })
            .collect();
        let file = |key: &str| s.text(key).map(|path| s.path(&path));
        let reputation_folder = s.text("default-reputation-path").map(|path| s.path(&path));
        let reputation = s
            .list("reputation-files")
            .unwrap_or_default()
            .into_iter()
            .map(|name| {
                reputation_folder
                    .as_ref()
                    .map_or_else(|| s.path(&name), |folder| folder.join(&name))
            })
            .collect();
        let (overlaps, hosts) = hosts(s)?;
        let config = Config {
            addresses: variables("vars.address-groups"),
            ports: variables("vars.port-groups"),
            rule_files,
            classification: file("classification-file"),
            thresholds: file("threshold-file"),
            reputation,
            reputation_categories: file("reputation-categories-file"),
            checksums: s.truth("stream.checksum-validation")?.unwrap_or(true),
            tunnels: Tunnels {
                vxlan: tunnel(s, "vxlan", 4789)?,
                geneve: tunnel(s, "geneve", 6081)?,
                teredo: tunnel(s, "teredo", 3544)?,
            },
            slices: slices(s)?,
            defragment: Defragment {
                memory: s.bytes("defrag.memcap")?.unwrap_or(32 << 20),
                datagrams: s.number("defrag.trackers")?.unwrap_or(65_535),
                timeout: s.seconds("defrag.timeout")?.unwrap_or(60),
            },
            flow: flow(s)?,
            stream: Stream {
                memory: s.bytes("stream.reassembly.memcap")?.unwrap_or(256 << 20),
                depth: s.bytes("stream.reassembly.depth")?.unwrap_or(1 << 20),
                smb_depth: s
                    .bytes("app-layer.protocols.smb.stream-depth")?
                    .unwrap_or(0),
                midstream: s.truth("stream.midstream")?.unwrap_or(false),
                one_sided: s.truth("stream.async-oneside")?.unwrap_or(false),
                // `auto` is what a sensor beside the traffic does: it waits.
                inline: match s.text("stream.inline").as_deref() {
                    None | Some("auto") => false,
                    Some(_) => s.truth("stream.inline")?.unwrap_or(false),
                },
                urgent: match s.text(URGENT) {
                    None => stream::Urgent::default(),
                    Some(word) => {
                        stream::Urgent::named(&word).ok_or_else(|| SettingsError::Value {
                            key: URGENT.to_owned(),
                            value: word.clone(),
                            expected: "oob, inline, drop or gap",
                        })?
                    }
                },
            },
            overlaps,
            hosts,
            app: app(s)?,
            alerts: s
                .number("packet-alert-max")?
                .map(|n| usize::try_from(n).unwrap_or(usize::MAX)),
            regex_steps: s.number("pcre.match-limit")?,
            logs: logs(s)?,
            unknown: Vec::new(),
        };
        Ok(Config {
            unknown: s.unknown(),
            ..config
        })
    }
}

/// What stages are told.
impl Config {
    pub(crate) fn decoder(&self) -> decode::Config {
        decode::Config {
            checksums: self.checksums,
            vxlan: self.tunnels.vxlan.clone(),
            geneve: self.tunnels.geneve.clone(),
            teredo: self.tunnels.teredo.clone(),
            ..decode::Config::default()
        }
    }

    /// What a slice may have of a cap: the sum of all shares is the cap.
    pub(crate) fn share(&self, cap: u64, slice: usize) -> usize {
        let slices = u64::from(self.slices);
        let share = cap / slices + u64::from((slice as u64) < cap % slices);
        usize::try_from(share).unwrap_or(usize::MAX)
    }

    pub(crate) fn defragmenter(&self, slice: usize) -> defragment::Config {
        defragment::Config {
            policy: self.overlaps.fragments,
            hosts: self
                .hosts
                .iter()
                .map(|h| (h.address, h.length, h.overlaps.fragments))
                .collect(),
            memory: self.share(self.defragment.memory, slice),
            datagrams: self.share(self.defragment.datagrams, slice),
            timeout: u32::try_from(self.defragment.timeout).unwrap_or(u32::MAX),
            ..defragment::Config::default()
        }
    }

    pub(crate) fn tracker(&self, slice: usize) -> flow::Config {
        let timeouts = |new: u64, established: u64, closed: u64| {
            let seconds = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
            flow::Timeouts {
                new: seconds(new),
                established: seconds(established),
                closed: seconds(closed),
            }
        };
        let f = &self.flow;
        flow::Config {
            tcp: timeouts(f.tcp[0], f.tcp[1], f.tcp[2]),
            udp: timeouts(f.udp[0], f.udp[1], 0),
            icmp: timeouts(f.icmp[0], f.icmp[1], 0),
            other: timeouts(f.other[0], f.other[1], 0),
            flows: self.share(f.flows, slice),
            memory: self.share(f.memory, slice),
            session_memory: self.share(f.sessions, slice),
            vlans: f.vlans,
            ..flow::Config::default()
        }
    }

    pub(crate) fn reassembler(&self, slice: usize) -> stream::Config {
        stream::Config {
            policy: self.overlaps.segments,
            hosts: self
                .hosts
                .iter()
                .map(|h| (h.address, h.length, h.overlaps.segments))
                .collect(),
            depth: [self.stream.depth; 2],
            memory: self.share(self.stream.memory, slice),
            midstream: self.stream.midstream,
            one_sided: self.stream.one_sided,
            inline: self.stream.inline,
            urgent: self.stream.urgent,
            ..stream::Config::default()
        }
    }
}

fn tunnel(s: &Settings, name: &str, usual: u16) -> Result<Vec<u16>, SettingsError> {
    if s.truth(&format!("decoder.{name}.enabled"))? == Some(false) {
        return Ok(Vec::new());
    }
    let key = format!("decoder.{name}.ports");
    let Some(words) = s.list(&key) else {
        return Ok(vec![usual]);
    };
    // `$VXLAN_PORTS` is a variable of ports; one that is not set stands for the usual port.
    let text = words.join(",");
    let text = match text.strip_prefix('$') {
        Some(name) => s
            .text(&format!("vars.port-groups.{name}"))
            .unwrap_or_else(|| usual.to_string()),
        None => text,
    };
    if text == "any" {
        return Ok(vec![usual]);
    }
    text.trim_matches(['[', ']', ' '])
        .split(',')
        .map(|word| word.trim().parse())
        .collect::<Result<Vec<u16>, _>>()
        .map_err(|_| SettingsError::Value {
            key,
            value: text.clone(),
            expected: "a list of ports",
        })
}

/// `host-os-policy`: prefixes by policy; the one that holds for every address is the policy of all others.
fn hosts(s: &Settings) -> Result<(Overlaps, Vec<Host>), SettingsError> {
    let (mut usual, mut list) = (Overlaps::default(), Vec::new());
    for name in s.keys("host-os-policy") {
        let key = format!("host-os-policy.{name}");
        let wrong = |value: &str, expected| SettingsError::Value {
            key: key.clone(),
            value: value.to_owned(),
            expected,
        };
        let unknown = || wrong(&name, "a system whose policy is known");
        let overlaps = Overlaps {
            segments: Policy::named(&name).ok_or_else(unknown)?,
            fragments: defragment::Policy::named(&name).ok_or_else(unknown)?,
        };
        for word in s.list(&key).unwrap_or_default() {
            for word in word
                .trim_matches(['[', ']'])
                .split(',')
                .map(str::trim)
                .filter(|w| !w.is_empty())
            {
                let bad = || wrong(word, "an address or a prefix");
                let (address, length) = word
                    .split_once('/')
                    .map_or((word, None), |(a, l)| (a, Some(l)));
                let address: IpAddr = address.parse().map_err(|_| bad())?;
                let most = if address.is_ipv4() { 32 } else { 128 };
                let length = length
                    .map_or(Ok(most), str::parse)
                    .ok()
                    .filter(|l| *l <= most)
                    .ok_or_else(bad)?;
                if length == 0 && address.is_ipv4() {
                    usual = overlaps;
                }
                list.push(Host {
                    address,
                    length,
                    overlaps,
                });
            }
        }
    }
    Ok((usual, list))
}

fn slices(s: &Settings) -> Result<u16, SettingsError> {
    const KEY: &str = "threading.slices";
    match s.number(KEY)? {
        None => Ok(16),
        Some(n @ 1..=1024) => Ok(n as u16),
        Some(n) => Err(SettingsError::Value {
            key: KEY.to_owned(),
            value: n.to_string(),
            expected: "a number from 1 to 1024",
        }),
    }
}

fn flow(s: &Settings) -> Result<Flow, SettingsError> {
    let of = |protocol: &str, state: &str, usual: u64| -> Result<u64, SettingsError> {
        let own = s.seconds(&format!("flow-timeouts.{protocol}.{state}"))?;
        let default = s.seconds(&format!("flow-timeouts.default.{state}"))?;
        Ok(own.or(default).unwrap_or(usual))
    };
    Ok(Flow {
        memory: s.bytes("flow.memcap")?.unwrap_or(128 << 20),
        // Sessions are part of flows, whose cap holds for them if this one is not said.
        sessions: s.bytes("stream.memcap")?.unwrap_or(u64::MAX),
        flows: s.number("flow.max-flows")?.unwrap_or(1 << 20),
        tcp: [
            of("tcp", "new", 60)?,
            of("tcp", "established", 600)?,
            of("tcp", "closed", 60)?,
        ],
        udp: [of("udp", "new", 30)?, of("udp", "established", 300)?],
        icmp: [of("icmp", "new", 30)?, of("icmp", "established", 300)?],
        other: [
            of("default", "new", 30)?,
            of("default", "established", 300)?,
        ],
        vlans: s.truth("vlan.use-for-tracking")?.unwrap_or(true),
    })
}

fn app(s: &Settings) -> Result<App, SettingsError> {
    let http = "app-layer.protocols.http.libhtp.default-config";
    Ok(App {
        request_body: s
            .bytes(&format!("{http}.request-body-limit"))?
            .unwrap_or(100 << 10),
        response_body: s
            .bytes(&format!("{http}.response-body-limit"))?
            .unwrap_or(100 << 10),
        decompressed: s
            .bytes(&format!("{http}.compression-bomb-limit"))?
            .unwrap_or(1 << 20),
        http: Arc::new(HttpWanted::read(s)?),
        ja3: automatic(s, "tls.ja3-fingerprints")?,
        ja4: automatic(s, "tls.ja4-fingerprints")?,
        hassh: automatic(s, "ssh.hassh")?,
        encrypted_tls: encrypted(s, "tls")?,
        encrypted_ssh: encrypted(s, "ssh")?,
        memory: s.bytes("app-layer.memcap")?.unwrap_or(512 << 20),
    })
}

/// Yes, no, or as rules need it (`auto`).
fn automatic(s: &Settings, key: &str) -> Result<Option<bool>, SettingsError> {
    let key = format!("app-layer.protocols.{key}");
    match s.text(&key).as_deref() {
        None | Some("auto") => Ok(None),
        Some(_) => s.truth(&key),
    }
}

/// Whether what a protocol encrypts is inspected. `bypass` needs a capture that can leave flows out; here it does what `track-only` does.
fn encrypted(s: &Settings, protocol: &str) -> Result<bool, SettingsError> {
    let key = format!("app-layer.protocols.{protocol}.encryption-handling");
    match s.text(&key).as_deref() {
        None | Some("default" | "track-only" | "bypass") => Ok(false),
        Some("full") => Ok(true),
        Some(other) => Err(SettingsError::Value {
            key,
            value: other.to_owned(),
            expected: "default, track-only, bypass or full",
        }),
    }
}

fn logs(s: &Settings) -> Result<Logs, SettingsError> {
    let file = |name: &str| Log {
        target: Target::File(PathBuf::from(name)),
        rotation: Rotation::default(),
    };
    let mut logs = Logs {
        eve: Some(file("eve.json")),
        fast: Some(file("fast.log")),
        kinds: Kinds::all(),
        options: EveOptions::usual(),
        stats_interval: s.seconds("stats.interval")?.unwrap_or(8),
    };
    let listed = s.keys("outputs");
    // A configuration that lists outputs has no others.
    if !listed.is_empty() {
        (logs.eve, logs.fast) = (None, None);
    }
    for n in listed {
        let at = format!("outputs.{n}");
        for name in s.keys(&at) {
            let at = format!("{at}.{name}");
            if !matches!(name.as_str(), "fast" | "eve-log")
                || s.truth(&format!("{at}.enabled"))? == Some(false)
            {
                continue;
            }
            let usual = if name == "fast" {
                "fast.log"
            } else {
                "eve.json"
            };
            let path = PathBuf::from(
                s.text(&format!("{at}.filename"))
                    .unwrap_or_else(|| usual.to_owned()),
            );
            let kind = format!("{at}.filetype");
            let target = match s.text(&kind).as_deref() {
                None | Some("regular" | "file") => Target::File(path),
                Some("unix_stream") => Target::UnixStream(path),
                Some("unix_dgram") => Target::UnixDatagram(path),
                Some("stdout") => Target::Stdout,
                Some(other) => {
                    return Err(SettingsError::Value {
                        key: kind,
                        value: other.to_owned(),
                        expected: "one of regular, unix_stream, unix_dgram, stdout",
                    });
                }
            };
            let interval =
                s.text(&format!("{at}.rotate-interval"))
                    .map(|word| match word.as_str() {
                        "minute" => "60".to_owned(),
                        "hour" => "3600".to_owned(),
                        "day" => "86400".to_owned(),
                        other => other.to_owned(),
                    });
            let seconds = match interval {
                None => None,
                Some(word) => {
                    let number = word
                        .strip_suffix('s')
                        .unwrap_or(&word)
                        .parse()
                        .map_err(|_| SettingsError::Value {
                            key: format!("{at}.rotate-interval"),
                            value: word.clone(),
                            expected: "minute, hour, day or a number of seconds",
                        })?;
                    Some(number)
                }
            };
            let log = Log {
                target,
                rotation: Rotation {
                    bytes: s.bytes(&format!("{at}.rotate-size"))?,
                    seconds,
                },
            };
            if name == "fast" {
                logs.fast = Some(log);
            } else {
                logs.eve = Some(log);
                eve(s, &at, &mut logs)?;
            }
        }
    }
    logs.options.host = s.text("sensor-name").filter(|name| !name.is_empty());
    let line = s.bytes("app-layer.protocols.ftp.max-line-length")?;
    logs.kinds.said.ftp_line = line.unwrap_or(0).min(1 << 20) as u32;
    Ok(logs)
}

fn eve(s: &Settings, at: &str, logs: &mut Logs) -> Result<(), SettingsError> {
    logs.options.marks = s.truth(&format!("{at}.metadata"))?.unwrap_or(true);
    if s.truth(&format!("{at}.community-id"))?.unwrap_or(false) {
        let seed = s.number(&format!("{at}.community-id-seed"))?.unwrap_or(0);
        logs.options.community = Some(seed as u16);
    }
    let types = format!("{at}.types");
    let listed = s.keys(&types);
    if listed.is_empty() {
        return Ok(());
    }
    logs.kinds = Kinds::none();
    for n in listed {
        // A list as `- dns` or `- dns: {...}`; or a table by names, as TOML likes it.
        let (at, names) = if n.parse::<u32>().is_ok() {
            let at = format!("{types}.{n}");
            let names = s.text(&at).map_or_else(|| s.keys(&at), |name| vec![name]);
            (at, names)
        } else {
            if s.text(&format!("{types}.{n}")).is_some()
                && s.truth(&format!("{types}.{n}"))? == Some(false)
            {
                continue;
            }
            (types.clone(), vec![n])
        };
        for name in names {
            let at = format!("{at}.{name}");
            if s.truth(&format!("{at}.enabled"))? == Some(false) {
                continue;
            }
            let truth = |key: &str, usual: bool| {
                Ok::<_, SettingsError>(s.truth(&format!("{at}.{key}"))?.unwrap_or(usual))
            };
            let kinds = &mut logs.kinds;
            match name.as_str() {
                "alert" => {
                    kinds.alert = true;
                    let o = &mut logs.options;
                    o.payload = truth("payload", false)?;
                    o.printable = truth("payload-printable", false)?;
                    o.packet = truth("packet", false)?;
                    o.length = truth("payload-length", false)?;
                    o.verdict = truth("verdict", false)?;
                    o.http_body = truth("http-body", false)?;
                    o.http_printable = truth("http-body-printable", false)?;
                    o.payload_limit = s
                        .bytes(&format!("{at}.payload-buffer-size"))?
                        .unwrap_or(4096) as usize;
                    o.app_fields = match s.text(&format!("{at}.metadata")) {
                        Some(_) => truth(
                            "metadata.app-layer",
                            truth("metadata", true).unwrap_or(true),
                        )?,
                        None => truth("metadata.app-layer", true)?,
                    };
                    o.metadata = truth("metadata.rule.metadata", true)?;
                }
                "flow" => kinds.flow = true,
                "netflow" => kinds.netflow = true,
                "stats" => kinds.stats = true,
                "anomaly" => {
                    let any = s.has(&format!("{at}.types"));
                    kinds.anomaly_decode = truth("types.decode", false)?;
                    kinds.anomaly_stream = truth("types.stream", false)?;
                    kinds.anomaly_app = truth("types.applayer", !any)?;
                }
                "files" => {
                    kinds.files = true;
                    let words = s.list(&format!("{at}.force-hash")).unwrap_or_default();
                    let has = |name: &str| {
                        words
                            .iter()
                            .flat_map(|w| w.split(','))
                            .any(|w| w.trim_matches(['[', ']', ' ']) == name)
                    };
                    logs.options.sums = Sums {
                        md5: has("md5"),
                        sha1: has("sha1"),
                        sha256: has("sha256"),
                    };
                }
                "dns" => {
                    let list = |key: &str| {
                        let words = words(s, &format!("{at}.{key}"));
                        let words = words.iter().map(|w| w.to_ascii_uppercase());
                        words.collect::<Vec<String>>()
                    };
                    // The older names are those of queries and answers.
                    let dns = &mut kinds.dns;
                    dns.requests = truth("requests", truth("query", true)?)?;
                    dns.responses = truth("responses", truth("answer", true)?)?;
                    dns.types = list("types");
                    dns.older = match s.text(&format!("{at}.version")).as_deref() {
                        None | Some("3") => false,
                        Some("2") => true,
                        Some(other) => {
                            return Err(SettingsError::Value {
                                key: format!("{at}.version"),
                                value: other.to_owned(),
                                expected: "2 or 3",
                            });
                        }
                    };
                    let formats = list("formats");
                    let shown =
                        |name: &str| formats.is_empty() || formats.iter().any(|f| f == name);
                    (dns.detailed, dns.grouped) = (shown("DETAILED"), shown("GROUPED"));
                    kinds
                        .apps
                        .get_or_insert_with(Vec::new)
                        .push("dns".to_owned());
                }
                "tls" => {
                    let custom = words(s, &format!("{at}.custom"));
                    if !custom.is_empty() {
                        let has = |names: &[&str]| custom.iter().any(|w| names.contains(&&**w));
                        kinds.said.certificates =
                            has(&["certificate", "chain", "client_certificate", "client_chain"]);
                        kinds.said.handshakes = has(&["client_handshake", "server_handshake"]);
                        kinds.tls = Some(custom.iter().map(|w| tls_field(w).to_owned()).collect());
                    } else if truth("extended", true)? {
                        kinds.tls = None;
                    } else {
                        let usual = ["subject", "issuerdn", "subjectaltname", "session_resumed"];
                        kinds.tls = Some(usual.map(str::to_owned).to_vec());
                    }
                    kinds
                        .apps
                        .get_or_insert_with(Vec::new)
                        .push("tls".to_owned());
                }
                "smtp" => {
                    let mut fields = words(s, &format!("{at}.custom"));
                    if truth("extended", false)? {
                        fields.extend(EXTENDED_MAIL.map(str::to_owned));
                    }
                    if words(s, &format!("{at}.md5"))
                        .iter()
                        .any(|w| w == "subject")
                    {
                        fields.push("subject_md5".to_owned());
                    }
                    let urls = "app-layer.protocols.smtp.mime.extract-urls";
                    kinds.said.urls = s.truth(urls)?.unwrap_or(true);
                    kinds.said.mail = !fields.is_empty();
                    kinds.mail = fields.iter().map(|f| f.replace('-', "_")).collect();
                    kinds
                        .apps
                        .get_or_insert_with(Vec::new)
                        .push("smtp".to_owned());
                }
                other => {
                    // What is transferred belongs to the conversation about it.
                    if other == "ftp" {
                        kinds
                            .apps
                            .get_or_insert_with(Vec::new)
                            .push("ftp_data".to_owned());
                    }
                    if let Some((_, app)) = TYPES.iter().find(|(name, _)| *name == other) {
                        kinds
                            .apps
                            .get_or_insert_with(Vec::new)
                            .push((*app).to_owned());
                    }
                }
            }
        }
    }
    Ok(())
}

/// Fields of `email` that `extended` adds.
const EXTENDED_MAIL: [&str; 5] = ["bcc", "message-id", "subject", "x-mailer", "user-agent"];

/// The field of a record of TLS that `custom` names.
fn tls_field(word: &str) -> &str {
    match word {
        "issuer" => "issuerdn",
        "not_before" => "notbefore",
        "not_after" => "notafter",
        other => other,
    }
}

/// The words of a list, in small letters.
fn words(s: &Settings, key: &str) -> Vec<String> {
    let words = s.list(key).unwrap_or_default();
    let words = words.iter().flat_map(|w| w.split(','));
    words
        .map(|w| w.trim_matches(['[', ']', ' ', '"']).to_ascii_lowercase())
        .filter(|w| !w.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_has_a_value() {
        let config = Config::default();
        assert_eq!(config.flow.tcp, [60, 600, 60]);
        assert!(config.logs.kinds.has_app("dns") && config.checksums && config.unknown.is_empty());
    }

    /// All names that configurations of such sensors list by default, most with nothing in them.
    #[test]
    fn every_usual_system_has_a_policy() {
        let names = "windows bsd bsd-right old-linux linux old-solaris solaris hpux10 hpux11 irix macos vista windows2k3 first last";
        for name in names.split(' ') {
            let text = format!("host-os-policy:\n  {name}: []\n  linux: [10.0.0.0/8]\n");
            let settings = Settings::parse(&text, false).expect("YAML");
            Config::from_settings(&settings).expect(name);
        }
    }

    #[test]
    fn a_configuration_as_users_have_it() {
        let text = "vars:\n  address-groups:\n    HOME_NET: [10.0.0.0/8, 192.0.2.0/24]\n    MINE: 10.0.0.1\n  port-groups:\n    VXLAN_PORTS: 8472\ndecoder:\n  vxlan:\n    enabled: true\n    ports: $VXLAN_PORTS\n  teredo:\n    enabled: false\nstream:\n  memcap: 64mb\n  checksum-validation: no\n  reassembly:\n    depth: 2mb\nhost-os-policy:\n  windows: [0.0.0.0/0]\n  linux: [10.0.0.0/8, \"2001:db8::/32\"]\n  bsd: []\nflow-timeouts:\n  tcp:\n    established: 30\noutputs:\n  - fast:\n      enabled: no\n  - eve-log:\n      enabled: yes\n      filetype: unix_dgram\n      filename: /run/eve.sock\n      community-id: true\n      community-id-seed: 7\n      types:\n        - alert:\n            payload: yes\n        - dns\n        - anomaly:\n            enabled: yes\n            types:\n              decode: yes\n        - ikev2\nrule-files:\n  - one.rules\nthreading:\n  cpu-affinity: no\n";
        let settings = Settings::parse(text, false).expect("YAML");
        let config = Config::from_settings(&settings).expect("right");
        let value = |name: &str| {
            config
                .addresses
                .iter()
                .find(|(n, _)| n == name)
                .map(|(_, v)| v.as_str())
        };
        assert_eq!(
            (value("HOME_NET"), value("MINE")),
            (Some("[10.0.0.0/8,192.0.2.0/24]"), Some("10.0.0.1"))
        );
        assert_eq!(
            (config.tunnels.vxlan, config.tunnels.teredo),
            (vec![8472], vec![])
        );
        assert_eq!(
            (config.checksums, config.stream.depth, config.flow.tcp[1]),
            (false, 2 << 20, 30)
        );
        assert_eq!(config.hosts.len(), 3);
        assert_eq!(config.overlaps.segments, Policy::Windows);
        let logs = config.logs;
        assert!(logs.fast.is_none());
        assert_eq!(
            logs.eve.expect("one").target,
            Target::UnixDatagram(PathBuf::from("/run/eve.sock"))
        );
        assert!(
            logs.kinds.alert
                && !logs.kinds.flow
                && logs.kinds.has_app("dns")
                && !logs.kinds.has_app("http")
                && logs.kinds.anomaly_decode
                && !logs.kinds.anomaly_app
        );
        assert_eq!(
            (logs.options.community, logs.options.payload),
            (Some(7), true)
        );
        assert!(
            config
                .unknown
                .contains(&"threading.cpu-affinity".to_owned())
                && config.flow.sessions == 64 << 20
                && !config.unknown.contains(&"stream.memcap".to_owned()),
            "{:?}",
            config.unknown
        );
    }
}
