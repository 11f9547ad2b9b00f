//! What stages are told: tunnels, the systems of hosts, limits and timeouts, and how each stage takes it.

use std::net::IpAddr;
use std::sync::Arc;

use super::SensorConfig;
use crate::app::{App as AppName, Carrier, HttpWanted, Limits, PROTOCOLS, Switch, Switches};
use crate::settings::{Settings, SettingsError};
use crate::stream::Policy;
use crate::{decode, defragment, flow, stream};

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

/// Whose checksums are verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verified {
    /// Those of interfaces as the kernel knows of each frame; those of captures unless more than a tenth of their first thousand frames are wrong, as where a sender leaves them to
    /// its device.
    #[default]
    Auto,
    /// All.
    All,
    /// None.
    None,
}

/// The same for captures and for interfaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checksums {
    /// Of captures, and of what libpcap listens to.
    pub files: Verified,
    /// Of interfaces.
    pub interfaces: Verified,
}

impl Checksums {
    /// The same for both.
    pub fn all(which: Verified) -> Checksums {
        Checksums {
            files: which,
            interfaces: which,
        }
    }
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

/// Streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Bytes of all segments that wait.
    pub memory: u64,
    /// Bytes of a stream that are reassembled; 0: all.
    pub depth: u64,
    /// The same of SMB (`app-layer.protocols.smb.stream-depth`), which carries many files in one session.
    pub smb_depth: u64,
    /// Flows are let go when one of their streams has reached its depth.
    pub bypass: bool,
    /// Take up sessions whose beginning was not seen.
    pub midstream: bool,
    /// Believe one side where the other one is not seen.
    pub one_sided: bool,
    /// Hand bytes on when they arrive, not when they are acknowledged.
    pub inline: bool,
    /// What becomes of urgent data.
    pub urgent: stream::Urgent,
}

/// What becomes of urgent data.
const URGENT: &str = "stream.reassembly.urgent.policy";

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
    /// Applications whose flows are let go once both ends encrypt: `encryption-handling: bypass`.
    pub bypass: Vec<AppName>,
    /// Whether contents are looked for in what TLS and SSH encrypted: `encryption-handling: full`.
    pub encrypted_tls: bool,
    /// The same of SSH.
    pub encrypted_ssh: bool,
    /// Protocols that are not recognized, or not parsed.
    pub switches: Switches,
    /// How many transactions of a flow may wait (`max-tx`).
    pub limits: Limits,
    /// Bytes of all conversations and of what detection looks back to; beyond it, the flows that were quiet for longest end.
    pub memory: u64,
    /// Bytes of parts of files (`Content-Range`) that wait for earlier parts, and seconds after which a file without a new part is forgotten.
    pub ranges: (u64, u64),
}

/// What stages are told.
impl SensorConfig {
    pub(crate) fn decoder(&self) -> decode::DecodeConfig {
        decode::DecodeConfig {
            checksums: self.checksums != Checksums::all(Verified::None),
            vxlan: self.tunnels.vxlan.clone(),
            geneve: self.tunnels.geneve.clone(),
            teredo: self.tunnels.teredo.clone(),
            ..decode::DecodeConfig::default()
        }
    }

    /// What a slice may have of a cap: the sum of all shares is the cap.
    pub(crate) fn share(&self, cap: u64, slice: usize) -> usize {
        let slices = u64::from(self.slices);
        let share = cap / slices + u64::from((slice as u64) < cap % slices);
        usize::try_from(share).unwrap_or(usize::MAX)
    }

    pub(crate) fn defragmenter(&self, slice: usize) -> defragment::DefragConfig {
        defragment::DefragConfig {
            policy: self.overlaps.fragments,
            hosts: self
                .hosts
                .iter()
                .map(|h| (h.address, h.length, h.overlaps.fragments))
                .collect(),
            memory: self.share(self.defragment.memory, slice),
            datagrams: self.share(self.defragment.datagrams, slice),
            timeout: u32::try_from(self.defragment.timeout).unwrap_or(u32::MAX),
            ..defragment::DefragConfig::default()
        }
    }

    pub(crate) fn tracker(&self, slice: usize) -> flow::FlowConfig {
        let timeouts = |new: u64, established: u64, closed: u64| {
            let seconds = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
            flow::Timeouts {
                new: seconds(new),
                established: seconds(established),
                closed: seconds(closed),
            }
        };
        let f = &self.flow;
        flow::FlowConfig {
            tcp: timeouts(f.tcp[0], f.tcp[1], f.tcp[2]),
            udp: timeouts(f.udp[0], f.udp[1], 0),
            icmp: timeouts(f.icmp[0], f.icmp[1], 0),
            other: timeouts(f.other[0], f.other[1], 0),
            flows: self.share(f.flows, slice),
            memory: self.share(f.memory, slice),
            session_memory: self.share(f.sessions, slice),
            vlans: f.vlans,
            ..flow::FlowConfig::default()
        }
    }

    pub(crate) fn reassembler(&self, slice: usize) -> stream::StreamConfig {
        stream::StreamConfig {
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
            ..stream::StreamConfig::default()
        }
    }
}

pub(super) fn checksums(s: &Settings) -> Result<Checksums, SettingsError> {
    let of = |key: &str| {
        Ok(match s.text(key).as_deref() {
            None => None,
            Some("auto" | "kernel") => Some(Verified::Auto),
            Some(value) => match s.truth(key) {
                Ok(Some(true)) => Some(Verified::All),
                Ok(_) => Some(Verified::None),
                Err(_) => {
                    return Err(SettingsError::Value {
                        key: key.to_owned(),
                        value: value.to_owned(),
                        expected: "kernel, auto, yes or no",
                    });
                }
            },
        })
    };
    let files = of("pcap-file.checksum-checks")?.unwrap_or_default();
    let mut interfaces = Verified::default();
    for (n, _) in s.keys("af-packet").iter().enumerate() {
        // The first one that says something; that of `default` is for those that do not.
        if let Some(which) = of(&format!("af-packet.{n}.checksum-checks"))? {
            interfaces = which;
            break;
        }
    }
    // Yes is what captures and interfaces say; no is for all.
    if s.truth("stream.checksum-validation")? == Some(false) {
        return Ok(Checksums::all(Verified::None));
    }
    Ok(Checksums { files, interfaces })
}

/// Interfaces that a configuration lists, for packet sockets and for libpcap.
pub(super) fn interfaces(s: &Settings) -> [Vec<String>; 2] {
    ["af-packet", "pcap"].map(|section| {
        let mut names = Vec::new();
        for n in s.keys(section) {
            if let Some(name) = s.text(&format!("{section}.{n}.interface"))
                && name != "default"
                && !names.contains(&name)
            {
                names.push(name);
            }
        }
        names
    })
}

pub(super) fn tunnels(s: &Settings) -> Result<Tunnels, SettingsError> {
    Ok(Tunnels {
        vxlan: tunnel(s, "vxlan", 4789)?,
        geneve: tunnel(s, "geneve", 6081)?,
        teredo: tunnel(s, "teredo", 3544)?,
    })
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
pub(super) fn hosts(s: &Settings) -> Result<(Overlaps, Vec<Host>), SettingsError> {
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

pub(super) fn slices(s: &Settings) -> Result<u16, SettingsError> {
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

pub(super) fn defragment(s: &Settings) -> Result<Defragment, SettingsError> {
    Ok(Defragment {
        memory: s.bytes("defrag.memcap")?.unwrap_or(32 << 20),
        datagrams: s.number("defrag.trackers")?.unwrap_or(65_535),
        timeout: s.seconds("defrag.timeout")?.unwrap_or(60),
    })
}

pub(super) fn flow(s: &Settings) -> Result<Flow, SettingsError> {
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

/// Bytes of a stream that are looked at: what the store of files asks for, if that is more.
fn depth(s: &Settings) -> Result<u64, SettingsError> {
    let usual = s.bytes("stream.reassembly.depth")?.unwrap_or(1 << 20);
    let mut depth = usual;
    for n in s.keys("outputs") {
        let at = format!("outputs.{n}.file-store");
        if s.truth(&format!("{at}.enabled"))? == Some(true)
            && let Some(own) = s.bytes(&format!("{at}.stream-depth"))?
        {
            // 0: all.
            depth = match (own, depth) {
                (0, _) | (_, 0) => 0,
                (own, depth) => own.max(depth),
            };
        }
    }
    Ok(depth)
}

pub(super) fn stream(s: &Settings, ips: bool) -> Result<Stream, SettingsError> {
    Ok(Stream {
        memory: s.bytes("stream.reassembly.memcap")?.unwrap_or(256 << 20),
        bypass: s.truth("stream.bypass")?.unwrap_or(false),
        depth: depth(s)?,
        smb_depth: s
            .bytes("app-layer.protocols.smb.stream-depth")?
            .unwrap_or(0),
        midstream: s.truth("stream.midstream")?.unwrap_or(false),
        one_sided: s.truth("stream.async-oneside")?.unwrap_or(false),
        // `auto`: a passive sensor waits, an inline one decides on each packet.
        inline: match s.text("stream.inline").as_deref() {
            None | Some("auto") => ips,
            Some(_) => s.truth("stream.inline")?.unwrap_or(false),
        },
        urgent: match s.text(URGENT) {
            None => stream::Urgent::default(),
            Some(word) => stream::Urgent::named(&word).ok_or_else(|| SettingsError::Value {
                key: URGENT.to_owned(),
                value: word.clone(),
                expected: "oob, inline, drop or gap",
            })?,
        },
    })
}

pub(super) fn app(s: &Settings) -> Result<App, SettingsError> {
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
        bypass: [AppName::Tls, AppName::Ssh]
            .into_iter()
            .filter(|app| s.text(&encryption_handling(app.name())).as_deref() == Some("bypass"))
            .collect(),
        encrypted_tls: encrypted(s, "tls")?,
        encrypted_ssh: encrypted(s, "ssh")?,
        switches: switches(s)?,
        limits: limits(s)?,
        memory: s.bytes("app-layer.memcap")?.unwrap_or(512 << 20),
        ranges: (
            (s.bytes("app-layer.protocols.http.byterange.memcap")?).unwrap_or(100 << 20),
            (s.seconds("app-layer.protocols.http.byterange.timeout")?).unwrap_or(60),
        ),
    })
}

/// `max-tx` of each protocol that tells transactions apart.
fn limits(s: &Settings) -> Result<Limits, SettingsError> {
    let mut limits = Vec::new();
    for row in PROTOCOLS.iter().filter(|row| row.kind.is_some()) {
        let at = match row.app {
            AppName::Http1 => "http.libhtp.default-config",
            app => app.name(),
        };
        let key = format!("app-layer.protocols.{at}.max-tx");
        if let Some(most) = s.number(&key)? {
            // A flow without any would tell nothing.
            limits.push((
                row.app,
                usize::try_from(most.clamp(1, 1 << 20)).unwrap_or(1),
            ));
        }
    }
    Ok(Limits::new(limits))
}

/// Which protocols are recognized and parsed: `enabled` of each, and of what carries it.
fn switches(s: &Settings) -> Result<Switches, SettingsError> {
    let read = |key: String| match s.text(&key).as_deref() {
        None => Ok(None),
        Some("detection-only") => Ok(Some(Switch::Recognized)),
        Some(_) => match s.truth(&key) {
            Ok(on) => Ok(on.map(|on| if on { Switch::On } else { Switch::Off })),
            Err(_) => Err(SettingsError::Value {
                value: s.text(&key).unwrap_or_default(),
                key,
                expected: "yes, no or detection-only",
            }),
        },
    };
    let mut switches = Switches::default();
    for row in PROTOCOLS {
        let at = format!("app-layer.protocols.{}", row.app.name());
        let all = read(format!("{at}.enabled"))?;
        for (tcp, name) in [(true, "tcp"), (false, "udp")] {
            let one = match row.carrier {
                Carrier::Both => read(format!("{at}.{name}.enabled"))?,
                Carrier::Tcp | Carrier::Udp => None,
            };
            let switch = match one.or(all) {
                // What has no transactions is parsed only to see where its stream changes to another protocol.
                Some(Switch::Recognized) if row.kind.is_none() => Switch::On,
                switch => switch.unwrap_or_default(),
            };
            switches.set(row.app, tcp, switch);
        }
    }
    Ok(switches)
}

/// Yes, no, or as rules need it (`auto`).
fn automatic(s: &Settings, key: &str) -> Result<Option<bool>, SettingsError> {
    let key = format!("app-layer.protocols.{key}");
    match s.text(&key).as_deref() {
        None | Some("auto") => Ok(None),
        Some(_) => s.truth(&key),
    }
}

fn encryption_handling(protocol: &str) -> String {
    format!("app-layer.protocols.{protocol}.encryption-handling")
}

/// Whether what a protocol encrypts is inspected.
fn encrypted(s: &Settings, protocol: &str) -> Result<bool, SettingsError> {
    let key = encryption_handling(protocol);
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
