//! Logs: where they go, which records EVE has, and what these say.

use std::path::PathBuf;

use super::scripts::{self, OutputScript, Wants};
use crate::app::{Frames, PROTOCOLS, Protocol, Said, Sums, URL_SCHEMES};
use crate::output::eve::{EveOptions, Forwarded};
use crate::output::{LogDestination, Rotation};
use crate::settings::{Settings, SettingsError};

/// Logs.
#[derive(Clone, Debug)]
pub struct Logs {
    /// EVE, as often as it is configured.
    pub eve: Vec<Eve>,
    /// fast.log.
    pub fast: Option<Log>,
    /// stats.log; only if the configuration lists it.
    pub stats: Option<Log>,
    /// What sessions say, in hexadecimal (tcp-data.log); only if the configuration lists it.
    pub data: Option<Log>,
    /// All that is known of each alert (alert-debug.log); only if the configuration lists it.
    pub debug: Option<Log>,
    /// Where files are written out; only if the configuration lists it.
    pub store: Option<StoreOptions>,
    /// The folder that certificates are written to; only if the configuration lists it. A relative one is in the log directory.
    pub certificates: Option<PathBuf>,
    /// Scripts that are outputs.
    pub scripts: Vec<OutputScript>,
    /// Which records any of them has.
    pub kinds: Kinds,
    /// What they say: what any of them asks for.
    pub options: EveOptions,
    /// Seconds between records of counters of an interface, or of files that grow; the last one is always written.
    pub stats_interval: u64,
    /// The same of files, by the time of their frames; 0: only the last one.
    pub stats_file_interval: u64,
}

/// The store of files (`file-store`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// Its folder; a relative one is in the log directory.
    pub folder: PathBuf,
    /// All files are written out, whether a rule wants it or not.
    pub all: bool,
    /// The record of a file is written beside it, each time that it is seen.
    pub records: bool,
}

/// One log of EVE.
#[derive(Clone, Debug)]
pub struct Eve {
    /// Where it goes.
    pub log: Log,
    /// Which records it has.
    pub kinds: Kinds,
}

/// A record, as far as configurations tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// An alert.
    Alert,
    /// The end of a flow.
    Flow,
    /// One direction of it.
    Netflow,
    /// A dropped packet.
    Drop,
    /// A packet of ARP.
    Arp,
    /// A file.
    File,
    /// An event of decoding.
    Decode,
    /// An event of a stream.
    Stream,
    /// An event of an application.
    Application,
    /// A frame.
    Frame,
    /// A transaction of an application, by the name of its records.
    App(&'static str),
    /// A part of a stream, which tcp-data has.
    Data,
}

/// One log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// Where it goes; relative names are in the log directory.
    pub target: LogDestination,
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
    /// Those that only this sensor has are among them.
    pub all_stats: bool,
    /// So are those that are 0.
    pub zero_stats: bool,
    /// Events of decoding.
    pub anomaly_decode: bool,
    /// Events of streams.
    pub anomaly_stream: bool,
    /// Events of applications.
    pub anomaly_app: bool,
    /// Dropped packets.
    pub drop: Option<Drops>,
    /// Packets of ARP; only if the configuration lists them.
    pub arp: bool,
    /// Files.
    pub files: bool,
    /// Applications by the names of their records; `None`: all.
    pub apps: Option<Vec<String>>,
    /// Which of DNS.
    pub dns: DnsKinds,
    /// Which records of SMB are written, by what they are about; `None`: all.
    pub smb: Option<Vec<String>>,
    /// Fields that records of TLS have; `None`: the usual ones.
    pub tls: Option<Vec<String>>,
    /// Sessions of TLS that were resumed have records.
    pub tls_resumed: bool,
    /// Records of HTTP/1 have method, status and what else goes beyond host, target, agent and type.
    pub http_extended: bool,
    /// Fields that `email` has beside the usual ones.
    pub mail: Vec<String>,
    /// What parsers are to read for records only.
    pub said: Said,
}

impl Logs {
    /// Whether a script is to be called for something.
    pub fn calls(&self, what: Wants) -> bool {
        self.scripts.iter().any(|s| s.wants == what)
    }
}

impl Kinds {
    /// Whether transactions of an application are written.
    pub fn has_app(&self, name: &str) -> bool {
        self.apps
            .as_ref()
            .is_none_or(|list| list.iter().any(|n| n == name))
    }

    /// Whether a record is written.
    pub fn takes(&self, record: Record) -> bool {
        match record {
            Record::Alert => self.alert,
            Record::Flow => self.flow,
            Record::Netflow => self.netflow,
            Record::Drop => self.drop.is_some(),
            Record::Arp => self.arp,
            Record::File => self.files,
            Record::Decode => self.anomaly_decode,
            Record::Stream => self.anomaly_stream,
            Record::Application => self.anomaly_app,
            Record::Frame => self.said.frames == Frames::All,
            Record::App(name) => self.has_app(name),
            Record::Data => false,
        }
    }

    /// What either of two asks for.
    fn join(&mut self, other: &Kinds) {
        self.alert |= other.alert;
        self.flow |= other.flow;
        self.netflow |= other.netflow;
        self.stats |= other.stats;
        self.all_stats |= other.all_stats;
        self.zero_stats |= other.zero_stats;
        self.anomaly_decode |= other.anomaly_decode;
        self.anomaly_stream |= other.anomaly_stream;
        self.anomaly_app |= other.anomaly_app;
        self.drop = match (self.drop, other.drop) {
            (Some(a), Some(b)) => Some(Drops {
                alerts: a.alerts || b.alerts,
                all: a.all || b.all,
            }),
            (a, b) => a.or(b),
        };
        self.arp |= other.arp;
        self.files |= other.files;
        let both = |a: &mut Option<Vec<String>>, b: &Option<Vec<String>>| {
            let joined = a.take().zip(b.clone());
            *a = joined.map(|(a, b)| [a, b].concat());
        };
        // Who has no records of TLS or DNS says nothing of them.
        let (mine, others) = (self.has_app("tls"), other.has_app("tls"));
        match (mine, others) {
            (true, true) => both(&mut self.tls, &other.tls),
            (false, true) => self.tls.clone_from(&other.tls),
            _ => {}
        }
        self.tls_resumed |= other.tls_resumed;
        self.http_extended |= other.http_extended;
        match (self.has_app("smb"), other.has_app("smb")) {
            (true, true) => both(&mut self.smb, &other.smb),
            (false, true) => self.smb.clone_from(&other.smb),
            _ => {}
        }
        match (self.has_app("dns"), other.has_app("dns")) {
            (true, true) => self.dns.join(&other.dns),
            (false, true) => self.dns = other.dns.clone(),
            _ => {}
        }
        let talks = self.has_app("mqtt");
        both(&mut self.apps, &other.apps);
        self.mail.extend(other.mail.iter().cloned());
        let (a, b) = (&mut self.said, other.said);
        a.certificates |= b.certificates;
        a.handshakes |= b.handshakes;
        a.mail |= b.mail;
        a.mail_body_md5 |= b.mail_body_md5;
        a.urls |= b.urls;
        a.schemes |= b.schemes;
        a.url_scheme |= b.url_scheme;
        a.dhcp_all |= b.dhcp_all;
        a.ike_extended |= b.ike_extended;
        a.pgsql_passwords |= b.pgsql_passwords;
        if b.frames == Frames::All {
            a.frames = b.frames;
        }
        match (talks, other.has_app("mqtt")) {
            (true, true) => a.mqtt_no_passwords &= b.mqtt_no_passwords,
            (false, true) => a.mqtt_no_passwords = b.mqtt_no_passwords,
            _ => {}
        }
    }

    /// Adds an application to those that are written.
    fn add(&mut self, name: &str) {
        let list = self.apps.get_or_insert_with(Vec::new);
        list.push(name.to_owned());
    }

    fn none() -> Kinds {
        Kinds {
            alert: false,
            flow: false,
            netflow: false,
            stats: false,
            all_stats: false,
            zero_stats: true,
            anomaly_decode: false,
            anomaly_stream: false,
            anomaly_app: false,
            drop: None,
            arp: false,
            files: false,
            apps: Some(Vec::new()),
            dns: DnsKinds::default(),
            smb: None,
            tls: None,
            tls_resumed: false,
            http_extended: false,
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
            all_stats: false,
            zero_stats: true,
            anomaly_decode: false,
            anomaly_stream: false,
            anomaly_app: true,
            drop: None,
            arp: false,
            files: true,
            apps: None,
            dns: DnsKinds::default(),
            smb: None,
            tls: None,
            tls_resumed: true,
            http_extended: true,
            mail: Vec::new(),
            said: Said::default(),
        }
    }
}

/// What records of dropped packets say, and which of a flow have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drops {
    /// The rule that dropped the packet.
    pub alerts: bool,
    /// All packets of a flow that is dropped as a whole, not only the first of each direction.
    pub all: bool,
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

impl DnsKinds {
    fn join(&mut self, other: &DnsKinds) {
        self.requests |= other.requests;
        self.responses |= other.responses;
        self.detailed |= other.detailed;
        self.grouped |= other.grouped;
        self.older &= other.older;
        if other.types.is_empty() {
            self.types.clear();
        } else if !self.types.is_empty() {
            self.types.extend(other.types.iter().cloned());
        }
    }
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

pub(super) fn logs(s: &Settings) -> Result<Logs, SettingsError> {
    let file = |name: &str| Log {
        target: LogDestination::File(PathBuf::from(name)),
        rotation: Rotation::default(),
    };
    let mut logs = Logs {
        eve: vec![Eve {
            log: file("eve.json"),
            kinds: Kinds::all(),
        }],
        fast: Some(file("fast.log")),
        stats: None,
        data: None,
        debug: None,
        store: None,
        certificates: None,
        scripts: Vec::new(),
        kinds: Kinds::all(),
        options: EveOptions::usual(),
        stats_interval: s.seconds("stats.interval")?.unwrap_or(8),
        // Captures of many years have been made: a record for every eight seconds is more than what there is to say of them.
        stats_file_interval: s.seconds("stats.file-interval")?.unwrap_or(0),
    };
    let mut forced = Sums::default();
    let listed = s.keys("outputs");
    // A configuration that lists outputs has no others.
    if !listed.is_empty() {
        (logs.eve, logs.fast) = (Vec::new(), None);
    }
    for n in listed {
        let at = format!("outputs.{n}");
        for name in s.keys(&at) {
            let at = format!("{at}.{name}");
            let usual = match name.as_str() {
                "fast" => "fast.log",
                "eve-log" => "eve.json",
                "stats" => "stats.log",
                "tcp-data" => "tcp-data.log",
                "alert-debug" => "alert-debug.log",
                "tls-store" => {
                    if s.truth(&format!("{at}.enabled"))? == Some(true) {
                        let folder = s.text(&format!("{at}.certs-log-dir"));
                        let folder = folder.unwrap_or_else(|| "certs".to_owned());
                        logs.certificates = Some(PathBuf::from(folder));
                    }
                    continue;
                }
                "lua" => {
                    if s.truth(&format!("{at}.enabled"))? == Some(true) {
                        logs.scripts.extend(scripts::outputs(s, &at)?);
                    }
                    continue;
                }
                "file-store" => {
                    if s.truth(&format!("{at}.enabled"))? == Some(true) {
                        forced = store(s, &at, &mut logs)?;
                    }
                    continue;
                }
                _ => continue,
            };
            if s.truth(&format!("{at}.enabled"))? == Some(false) {
                continue;
            }
            let log = log(s, &at, usual)?;
            match name.as_str() {
                "tcp-data" => {
                    let kind = format!("{at}.type");
                    if let Some(value) = s.text(&kind).filter(|v| v != "file") {
                        return Err(SettingsError::Value {
                            key: kind,
                            value,
                            expected: "file",
                        });
                    }
                    logs.data = Some(log);
                    continue;
                }
                "alert-debug" => {
                    logs.debug = Some(log);
                    continue;
                }
                "fast" => {
                    logs.fast = Some(log);
                    continue;
                }
                "stats" => {
                    logs.stats = Some(log);
                    continue;
                }
                _ => {}
            }
            let same =
                |one: &Eve| one.log.target == log.target && log.target != LogDestination::Stdout;
            if logs.eve.iter().any(same) {
                return Err(SettingsError::Value {
                    key: format!("{at}.filename"),
                    value: s
                        .text(&format!("{at}.filename"))
                        .unwrap_or(usual.to_owned()),
                    expected: "another file than that of the eve-log before it",
                });
            }
            let mut one = Logs {
                eve: Vec::new(),
                fast: None,
                stats: None,
                data: None,
                debug: None,
                store: None,
                certificates: None,
                scripts: Vec::new(),
                kinds: Kinds::all(),
                options: EveOptions::usual(),
                ..logs
            };
            eve(s, &at, &mut one)?;
            if logs.eve.is_empty() {
                (logs.kinds, logs.options) = (one.kinds.clone(), one.options);
            } else {
                logs.kinds.join(&one.kinds);
                logs.options.join(&one.options);
            }
            logs.eve.push(Eve {
                log,
                kinds: one.kinds,
            });
        }
    }
    // Names of stored files are sums.
    let sums = &mut logs.options.sums;
    sums.sha256 |= logs.store.is_some();
    sums.md5 |= forced.md5;
    sums.sha1 |= forced.sha1;
    sums.magic |= forced.magic;
    logs.options.host = s.text("sensor-name").filter(|name| !name.is_empty());
    let line = s.bytes("app-layer.protocols.ftp.max-line-length")?;
    logs.kinds.said.ftp_line = line.unwrap_or(0).min(1 << 20) as u32;
    let message = s.bytes("app-layer.protocols.mqtt.max-msg-length")?;
    logs.kinds.said.mqtt_message = message.unwrap_or(0).min(1 << 24) as u32;
    let payload = s.bytes("app-layer.protocols.websocket.max-payload-size")?;
    logs.kinds.said.websocket_payload = payload.unwrap_or(0).min(1 << 20) as u32;
    Ok(logs)
}

/// The section of the store of files; returns the sums that it asks for.
fn store(s: &Settings, at: &str, logs: &mut Logs) -> Result<Sums, SettingsError> {
    let version = format!("{at}.version");
    if let Some(value) = s.text(&version).filter(|v| v != "2") {
        return Err(SettingsError::Value {
            key: version,
            value,
            expected: "2",
        });
    }
    let truth = |key: &str| Ok::<_, SettingsError>(s.truth(&format!("{at}.{key}"))? == Some(true));
    let folder = s.text(&format!("{at}.dir"));
    logs.store = Some(StoreOptions {
        folder: PathBuf::from(folder.unwrap_or_else(|| "filestore".to_owned())),
        all: truth("force-filestore")?,
        records: truth("write-fileinfo")?,
    });
    let section = Section {
        s,
        at: at.to_owned(),
    };
    let words = section.words("force-hash");
    let has = |name: &str| words.iter().any(|w| w == name);
    Ok(Sums {
        md5: has("md5"),
        sha1: has("sha1"),
        magic: truth("force-magic")?,
        ..Sums::default()
    })
}

/// Where a log goes, whose file is called `usual` if nothing else is said.
fn log(s: &Settings, at: &str, usual: &str) -> Result<Log, SettingsError> {
    let path = PathBuf::from(
        s.text(&format!("{at}.filename"))
            .unwrap_or_else(|| usual.to_owned()),
    );
    let kind = format!("{at}.filetype");
    let target = match s.text(&kind).as_deref() {
        None | Some("regular" | "file") => LogDestination::File(path),
        Some("unix_stream") => LogDestination::UnixStream(path),
        Some("unix_dgram") => LogDestination::UnixDatagram(path),
        Some("stdout") => LogDestination::Stdout,
        Some(other) => {
            return Err(SettingsError::Value {
                key: kind,
                value: other.to_owned(),
                expected: "one of regular, unix_stream, unix_dgram, stdout",
            });
        }
    };
    let key = format!("{at}.rotate-interval");
    let seconds = match s.text(&key).as_deref() {
        None => None,
        Some("minute") => Some(60),
        Some("hour") => Some(3_600),
        Some("day") => Some(86_400),
        Some(word) => {
            let number = word.strip_suffix('s').unwrap_or(word).parse();
            Some(number.map_err(|_| SettingsError::Value {
                key,
                value: word.to_owned(),
                expected: "minute, hour, day or a number of seconds",
            })?)
        }
    };
    Ok(Log {
        target,
        rotation: Rotation {
            bytes: s.bytes(&format!("{at}.rotate-size"))?,
            seconds,
        },
    })
}

fn eve(s: &Settings, at: &str, logs: &mut Logs) -> Result<(), SettingsError> {
    logs.options.marks = s.truth(&format!("{at}.metadata"))?.unwrap_or(true);
    if s.truth(&format!("{at}.community-id"))?.unwrap_or(false) {
        let seed = s.number(&format!("{at}.community-id-seed"))?.unwrap_or(0);
        logs.options.community = Some(seed as u16);
    }
    let truth = |key: &str| Ok::<_, SettingsError>(s.truth(&format!("{at}.{key}"))? == Some(true));
    logs.options.ethernet = truth("ethernet")?;
    logs.options.file = truth("pcap-file")?;
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
            let section = Section {
                s,
                at: format!("{at}.{name}"),
            };
            if s.truth(&section.key("enabled"))? != Some(false) {
                section.read(&name, logs)?;
            }
        }
    }
    Ok(())
}

/// The section of one type of records.
struct Section<'a> {
    s: &'a Settings,
    /// Its key.
    at: String,
}

impl Section<'_> {
    fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.at)
    }

    fn truth(&self, key: &str, usual: bool) -> Result<bool, SettingsError> {
        Ok(self.s.truth(&self.key(key))?.unwrap_or(usual))
    }

    /// The words of a list, in small letters.
    fn words(&self, key: &str) -> Vec<String> {
        let words = self.s.list(&self.key(key)).unwrap_or_default();
        let words = words.iter().flat_map(|w| w.split(','));
        words
            .map(|w| w.trim_matches(['[', ']', ' ', '"']).to_ascii_lowercase())
            .filter(|w| !w.is_empty())
            .collect()
    }

    /// What is said of the records called `name`.
    fn read(&self, name: &str, logs: &mut Logs) -> Result<(), SettingsError> {
        let kinds = &mut logs.kinds;
        match name {
            "alert" => {
                kinds.alert = true;
                self.alert(&mut logs.options)?;
            }
            "flow" => kinds.flow = true,
            "arp" => kinds.arp = true,
            "netflow" => kinds.netflow = true,
            "frame" => kinds.said.frames = Frames::All,
            "drop" => {
                let flows = self.key("flows");
                kinds.drop = Some(Drops {
                    alerts: self.truth("alerts", false)?,
                    all: match self.s.text(&flows).as_deref() {
                        None | Some("start") => false,
                        Some("all") => true,
                        Some(other) => {
                            return Err(SettingsError::Value {
                                key: flows,
                                value: other.to_owned(),
                                expected: "start or all",
                            });
                        }
                    },
                });
            }
            "stats" => {
                kinds.stats = true;
                kinds.all_stats = self.truth("extended", false)?;
                kinds.zero_stats = self.truth("null-values", true)?;
            }
            "anomaly" => {
                let any = self.s.has(&self.key("types"));
                kinds.anomaly_decode = self.truth("types.decode", false)?;
                kinds.anomaly_stream = self.truth("types.stream", false)?;
                kinds.anomaly_app = self.truth("types.applayer", !any)?;
                logs.options.packet_header = self.truth("packethdr", false)?;
            }
            "files" => {
                kinds.files = true;
                let words = self.words("force-hash");
                let has = |name: &str| words.iter().any(|w| w == name);
                logs.options.sums = Sums {
                    md5: has("md5"),
                    sha1: has("sha1"),
                    sha256: has("sha256"),
                    magic: self.truth("force-magic", false)?,
                    kept: false,
                };
            }
            "dns" => {
                kinds.dns = self.dns()?;
                kinds.add("dns");
            }
            "tls" => {
                self.tls(kinds)?;
                kinds.add("tls");
            }
            "http" => {
                kinds.http_extended = self.truth("extended", false)?;
                kinds.add("http");
            }
            "smb" => {
                let types = self.words("types");
                if let Some(other) = types.iter().find(|t| !SMB_TYPES.contains(&t.as_str())) {
                    return Err(SettingsError::Value {
                        key: self.key("types"),
                        value: other.clone(),
                        expected: "some of file, tree_connect, negotiate, dcerpc, create, session_setup, ioctl, rename, set_file_path_info, generic",
                    });
                }
                kinds.smb = (!types.is_empty()).then_some(types);
                kinds.add("smb");
            }
            "smtp" => {
                self.mail(kinds)?;
                kinds.add("smtp");
            }
            "dhcp" => {
                kinds.said.dhcp_all = self.truth("extended", false)?;
                kinds.add("dhcp");
            }
            "ike" => {
                kinds.said.ike_extended = self.truth("extended", false)?;
                kinds.add("ike");
            }
            "pgsql" => {
                kinds.said.pgsql_passwords = self.truth("passwords", false)?;
                kinds.add("pgsql");
            }
            "mqtt" => {
                kinds.said.mqtt_no_passwords = !self.truth("passwords", true)?;
                kinds.add("mqtt");
            }
            other => {
                // What is transferred belongs to the conversation about it.
                if other == "ftp" {
                    kinds.add("ftp_data");
                }
                if let Some(name) = record_type(other) {
                    kinds.add(name);
                }
            }
        }
        Ok(())
    }

    fn alert(&self, o: &mut EveOptions) -> Result<(), SettingsError> {
        o.payload = self.truth("payload", false)?;
        o.printable = self.truth("payload-printable", false)?;
        o.packet = self.truth("packet", false)?;
        o.length = self.truth("payload-length", false)?;
        o.tagged = self.truth("tagged-packets", false)?;
        o.verdict = self.truth("verdict", false)?;
        o.http_body = self.truth("http-body", false)?;
        o.http_printable = self.truth("http-body-printable", false)?;
        let limit = self.s.bytes(&self.key("payload-buffer-size"))?;
        // One byte of it is the end that others put behind text.
        o.payload_limit = (limit.unwrap_or(4096) as usize).saturating_sub(1);
        o.forwarded = self.forwarded()?;
        // `metadata` is a word for all of it, or a section.
        let all = match self.s.text(&self.key("metadata")) {
            Some(_) => self.truth("metadata", true).unwrap_or(true),
            None => true,
        };
        o.app_fields = self.truth("metadata.app-layer", all)?;
        o.metadata = self.truth("metadata.rule.metadata", true)?;
        o.references = self.truth("metadata.rule.reference", false)?;
        Ok(())
    }

    fn forwarded(&self) -> Result<Option<Forwarded>, SettingsError> {
        if !self.truth("xff.enabled", false)? {
            return Ok(None);
        }
        let one_of = |key: &str, usual: &str, other: &str, expected: &'static str| {
            let key = self.key(key);
            match self.s.text(&key) {
                None => Ok(false),
                Some(word) if word == usual => Ok(false),
                Some(word) if word == other => Ok(true),
                Some(value) => Err(SettingsError::Value {
                    key,
                    value,
                    expected,
                }),
            }
        };
        let header = self.s.text(&self.key("xff.header"));
        Ok(Some(Forwarded {
            header: header.unwrap_or_else(|| "X-Forwarded-For".to_owned()),
            overwrite: one_of(
                "xff.mode",
                "extra-data",
                "overwrite",
                "extra-data or overwrite",
            )?,
            first: one_of("xff.deployment", "reverse", "forward", "reverse or forward")?,
        }))
    }

    fn dns(&self) -> Result<DnsKinds, SettingsError> {
        let list = |key: &str| {
            let words = self.words(key).into_iter();
            words.map(|w| w.to_ascii_uppercase()).collect::<Vec<_>>()
        };
        let formats = list("formats");
        let shown = |name: &str| formats.is_empty() || formats.iter().any(|f| f == name);
        let version = self.key("version");
        Ok(DnsKinds {
            // The older names are those of queries and answers.
            requests: self.truth("requests", self.truth("query", true)?)?,
            responses: self.truth("responses", self.truth("answer", true)?)?,
            types: list("types"),
            detailed: shown("DETAILED"),
            grouped: shown("GROUPED"),
            older: match (self.s.text(&version))
                .or_else(|| self.s.text(DNS_VERSION))
                .as_deref()
            {
                None | Some("3") => false,
                Some("2") => true,
                Some(other) => {
                    return Err(SettingsError::Value {
                        key: version,
                        value: other.to_owned(),
                        expected: "2 or 3",
                    });
                }
            },
        })
    }

    fn tls(&self, kinds: &mut Kinds) -> Result<(), SettingsError> {
        let custom = self.words("custom");
        // A bare word in the list has none; a section has them unless it says otherwise.
        let section = !self.s.keys(&self.at).is_empty();
        kinds.tls_resumed = self.truth("session-resumption", section)?;
        if !custom.is_empty() {
            let has = |names: &[&str]| custom.iter().any(|w| names.contains(&&**w));
            kinds.said.certificates =
                has(&["certificate", "chain", "client_certificate", "client_chain"]);
            kinds.said.handshakes = has(&["client_handshake", "server_handshake"]);
            kinds.tls = Some(custom.iter().map(|w| tls_field(w).to_owned()).collect());
        } else if self.truth("extended", false)? {
            kinds.tls = None;
        } else {
            let usual = ["subject", "issuerdn", "subjectaltname", "session_resumed"];
            kinds.tls = Some(usual.map(str::to_owned).to_vec());
        }
        Ok(())
    }

    fn mail(&self, kinds: &mut Kinds) -> Result<(), SettingsError> {
        let mut fields = self.words("custom");
        if self.truth("extended", false)? {
            fields.extend(EXTENDED_MAIL.map(str::to_owned));
        }
        let sums = self.words("md5");
        for (word, field) in [("subject", "subject_md5"), ("body", "body_md5")] {
            if sums.iter().any(|w| w == word) {
                fields.push(field.to_owned());
            }
        }
        kinds.said.mail_body_md5 = fields.iter().any(|f| f == "body_md5");
        let urls = "app-layer.protocols.smtp.mime.extract-urls";
        kinds.said.urls = self.s.truth(urls)?.unwrap_or(true);
        let scheme = "app-layer.protocols.smtp.mime.log-url-scheme";
        kinds.said.url_scheme = self.s.truth(scheme)?.unwrap_or(false);
        let schemes = "app-layer.protocols.smtp.mime.extract-urls-schemes";
        kinds.said.schemes = 1;
        if let Some(words) = self.s.list(schemes) {
            kinds.said.schemes = 0;
            for word in &words {
                let known = URL_SCHEMES.iter().position(|scheme| scheme == word);
                let Some(bit) = known else {
                    return Err(SettingsError::Value {
                        key: schemes.to_owned(),
                        value: word.clone(),
                        expected: "http, https, ftp or mailto",
                    });
                };
                kinds.said.schemes |= 1 << bit;
            }
        }
        kinds.said.mail = !fields.is_empty();
        kinds.mail = fields.iter().map(|f| f.replace('-', "_")).collect();
        Ok(())
    }
}

/// The version of records of DNS where their section names none; a program's environment says it so.
pub const DNS_VERSION: &str = "eve-dns-version";

/// The name of the records of a protocol that a list of types names, by that or by its own.
fn record_type(word: &str) -> Option<&'static str> {
    let mut rows = PROTOCOLS.iter().filter(|row| row.kind.is_some());
    let row = rows.find(|row| row.chosen() == word || row.app.name() == word);
    row.map(Protocol::chosen)
}

/// What records of SMB are about.
const SMB_TYPES: [&str; 10] = [
    "file",
    "tree_connect",
    "negotiate",
    "dcerpc",
    "create",
    "session_setup",
    "ioctl",
    "rename",
    "set_file_path_info",
    "generic",
];

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
