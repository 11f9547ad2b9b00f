//! Logs: where they go, which records EVE has, and what these say.

use std::path::PathBuf;

use crate::app::{Said, Sums};
use crate::output::eve::EveOptions;
use crate::output::{Rotation, Target};
use crate::settings::{Settings, SettingsError};

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

pub(super) fn logs(s: &Settings) -> Result<Logs, SettingsError> {
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
