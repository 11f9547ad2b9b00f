//! What a sensor is told: variables, limits, policies, logs. Read from [`Settings`] by the keys that users know; what is not said has the value written here.
//!
//! A key that nothing here asks for changes nothing; how many there are is told, so that nobody believes in one.

mod analysis;
mod capture;
mod inline;
mod logs;
mod prevention;
mod scripts;
mod sets;
mod stages;
mod vital;

pub use analysis::{Analysis, Grouping};
pub use capture::{Capture, Threads};
pub use inline::{FAIL_OPEN, JOINED, Joined, joined};
pub use logs::{DNS_VERSION, DnsKinds, Drops, Eve, Kinds, Log, Logs, Record};
pub use prevention::{FIREWALL, Policy, SIMULATE};
pub use scripts::{OutputScript, Wants};
pub use sets::{ConfiguredSet, Sets};
pub use stages::{App, Checksums, Defragment, Flow, Host, Overlaps, Stream, Tunnels, Verified};

use std::path::PathBuf;

use self::logs::logs;
use self::stages::{app, checksums, defragment, flow, hosts, interfaces, slices, stream, tunnels};
use self::vital::vital;
use crate::rules::ActionOrder;
use crate::script::Limits;
use crate::settings::{Settings, SettingsError};

/// All of it.
#[derive(Clone, Debug)]
pub struct SensorConfig {
    /// `vars.address-groups`, in the order of names: over those that rule sets expect.
    pub addresses: Vec<(String, String)>,
    /// `vars.port-groups`.
    pub ports: Vec<(String, String)>,
    /// Rule files of the configuration.
    pub rule_files: Vec<PathBuf>,
    /// `default-rule-path`.
    pub rule_folder: Option<PathBuf>,
    /// Where data is kept from run to run (`default-data-dir`).
    pub data_folder: Option<PathBuf>,
    /// Sets of values.
    pub sets: Sets,
    /// What scripts of rules may cost (`security.lua`); `None`: rules have none.
    pub scripts: Option<Limits>,
    /// `classification-file`.
    pub classification: Option<PathBuf>,
    /// `reference-config-file`.
    pub references: Option<PathBuf>,
    /// `threshold-file`.
    pub thresholds: Option<PathBuf>,
    /// Files of `reputation-files`, with `reputation-categories-file`.
    pub reputation: Vec<PathBuf>,
    /// Names of reputation categories.
    pub reputation_categories: Option<PathBuf>,
    /// Whose checksums are verified.
    pub checksums: Checksums,
    /// Interfaces to listen to where the command line names none: `af-packet`, and `pcap` for libpcap.
    pub interfaces: [Vec<String>; 2],
    /// How they are read, as entries of `af-packet` say it.
    pub captures: Vec<Capture>,
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
    /// Alerts that one packet may give; the rest of them is counted.
    pub alerts: usize,
    /// How often a transaction is shown with alerts of rules that do not ask for one, if it is the only one of its flow (`detect.guess-applayer-tx`); 0: not at all.
    pub guesses: u8,
    /// Rules that are loaded anew count even if more of them are broken than before.
    pub broken_reloads: bool,
    /// How many steps one match of a regular expression may take, if said.
    pub regex_steps: Option<u64>,
    /// `profiling.rules.enabled`: whether it is counted what each rule costs.
    pub profile_rules: bool,
    /// Actions, the one first whose rules are decided first.
    pub actions: ActionOrder,
    /// Rules that drop do so, as in an inline sensor (of captures: what it would have done).
    pub ips: bool,
    /// The two interfaces that the sensor stands between; none: it listens, or reads captures.
    pub inline: Option<Joined>,
    /// What becomes of sessions whose beginning was not seen.
    pub midstream: Policy,
    /// Somebody asked for that policy.
    pub midstream_told: bool,
    /// What becomes of flows whose parser gives up (`app-layer.error-policy`).
    pub app_errors: Policy,
    /// Files of the firewall's rules, if there is one (`firewall.enabled`): what no rule accepts is dropped.
    pub firewall: Option<Vec<PathBuf>>,
    /// What an analysis of rules writes.
    pub analysis: Analysis,
    /// Logs.
    pub logs: Logs,
    /// Keys that change nothing.
    pub unknown: Vec<String>,
    /// Those of them that somebody counts on for data, alerts or records: the key with its value, and what there is instead.
    pub vital: Vec<(String, &'static str)>,
    /// Keys that contradict others, in the same form.
    pub contrary: Vec<(String, &'static str)>,
    /// Keys that could be set once, or hold in part only, and what holds now, in the same form.
    pub obsolete: Vec<(String, &'static str)>,
}

/// The key of the folder for data.
pub const DATA_FOLDER: &str = "default-data-dir";

/// Alerts of one packet, as users of such sensors are used to.
const ALERTS: usize = 15;
/// How often the only transaction of a flow is shown with such alerts if nothing else is set.
const GUESSES: u8 = 4;
/// What becomes of rules that are loaded anew and of which more are broken.
const BROKEN: &str = "rule-reload.broken";

impl Default for SensorConfig {
    #[expect(
        clippy::expect_used,
        reason = "default settings are part of the program"
    )]
    fn default() -> Self {
        SensorConfig::from_settings(&Settings::default()).expect("what is written here is right")
    }
}

impl SensorConfig {
    /// Reads the settings.
    ///
    /// # Errors
    /// A value means nothing for its key.
    pub fn from_settings(s: &Settings) -> Result<SensorConfig, SettingsError> {
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
        let data_folder = file(DATA_FOLDER);
        let ips = s.truth(SIMULATE)?.unwrap_or(false);
        let config = SensorConfig {
            addresses: variables("vars.address-groups"),
            ports: variables("vars.port-groups"),
            rule_files,
            rule_folder: folder,
            sets: sets::sets(s, data_folder.as_ref())?,
            data_folder,
            scripts: scripts::limits(s)?,
            classification: file("classification-file"),
            references: file("reference-config-file"),
            thresholds: file("threshold-file"),
            reputation,
            reputation_categories: file("reputation-categories-file"),
            checksums: checksums(s)?,
            interfaces: interfaces(s),
            captures: capture::captures(s)?,
            tunnels: tunnels(s)?,
            slices: slices(s)?,
            defragment: defragment(s)?,
            flow: flow(s)?,
            stream: stream(s, ips)?,
            overlaps,
            hosts,
            app: app(s)?,
            alerts: s
                .number("packet-alert-max")?
                .map_or(ALERTS, |n| usize::try_from(n).unwrap_or(usize::MAX)),
            guesses: match s.truth("detect.guess-applayer-tx")? {
                Some(true) => s
                    .number("detect.stream-tx-log-limit")?
                    .map_or(GUESSES, |n| u8::try_from(n).unwrap_or(u8::MAX)),
                _ => 0,
            },
            broken_reloads: match s.text(BROKEN).as_deref() {
                None | Some("keep") => false,
                Some("load") => true,
                Some(other) => {
                    return Err(SettingsError::Value {
                        key: BROKEN.to_owned(),
                        value: other.to_owned(),
                        expected: "keep or load",
                    });
                }
            },
            regex_steps: s.number("pcre.match-limit")?,
            profile_rules: s.truth("profiling.rules.enabled")?.unwrap_or(false),
            actions: prevention::action_order(s)?,
            ips,
            inline: inline::joined(s)?,
            midstream: prevention::midstream(s, ips)?,
            midstream_told: prevention::is_told(s),
            app_errors: prevention::app_errors(s, ips)?,
            firewall: prevention::firewall(s, ips)?,
            analysis: analysis::analysis(s)?,
            logs: logs(s)?,
            unknown: Vec::new(),
            vital: Vec::new(),
            contrary: prevention::contrary(s)?.into_iter().collect(),
            obsolete: vital::obsolete(s),
        };
        let unknown = s.unknown();
        let vital: Vec<(String, &'static str)> = (unknown.iter())
            .filter_map(|key| {
                let value = s.text_of_unknown(key).unwrap_or_default();
                vital(s, key, &value).map(|what| (format!("{key}: {value}"), what))
            })
            .collect();
        let mut contrary = config.contrary;
        contrary.extend(two_anomaly_logs(&config.logs));
        let mut obsolete = config.obsolete;
        obsolete.extend(prevention::unmet(s));
        Ok(SensorConfig {
            unknown,
            vital,
            contrary,
            obsolete,
            ..config
        })
    }
}

/// Other programs do not start with two logs of anomalies, so that a configuration with two is not portable. Both are written.
fn two_anomaly_logs(logs: &Logs) -> Option<(String, &'static str)> {
    let has = |k: &Kinds| k.anomaly_decode || k.anomaly_stream || k.anomaly_app;
    let count = logs.eve.iter().filter(|one| has(&one.kinds)).count();
    (count > 1).then(|| {
        (
            format!("outputs: {count} eve-logs with anomaly"),
            "elsewhere only one 'anomaly' logger can be enabled; all of them are written",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::LogDestination;
    use crate::stream::Policy;

    #[test]
    fn what_is_not_said_has_a_value() {
        let config = SensorConfig::default();
        assert_eq!(config.flow.tcp, [60, 600, 60]);
        assert!(
            config.logs.kinds.has_app("dns")
                && config.checksums == Checksums::default()
                && config.unknown.is_empty()
        );
    }

    /// What a program's environment says holds where the section says nothing.
    #[test]
    fn the_version_of_records_of_names() {
        for (set, older) in [
            (&[][..], false),
            (&["eve-dns-version=2"], true),
            (
                &["eve-dns-version=2", "outputs.0.eve-log.types.dns.version=3"],
                false,
            ),
        ] {
            let mut settings = Settings::default();
            for one in [&["outputs.0.eve-log.types.dns.requests=yes"], set].concat() {
                settings.set(one).expect(one);
            }
            let config = SensorConfig::from_settings(&settings).expect("right");
            assert_eq!(config.logs.kinds.dns.older, older, "{set:?}");
        }
    }

    /// All names that configurations of such sensors list by default, most with nothing in them.
    #[test]
    fn every_usual_system_has_a_policy() {
        let names = "windows bsd bsd-right old-linux linux old-solaris solaris hpux10 hpux11 irix macos vista windows2k3 first last";
        for name in names.split(' ') {
            let text = format!("host-os-policy:\n  {name}: []\n  linux: [10.0.0.0/8]\n");
            let settings = Settings::parse(&text, false).expect("YAML");
            SensorConfig::from_settings(&settings).expect(name);
        }
    }

    #[test]
    fn a_configuration_as_users_have_it() {
        let text = "vars:\n  address-groups:\n    HOME_NET: [10.0.0.0/8, 192.0.2.0/24]\n    MINE: 10.0.0.1\n  port-groups:\n    VXLAN_PORTS: 8472\ndecoder:\n  vxlan:\n    enabled: true\n    ports: $VXLAN_PORTS\n  teredo:\n    enabled: false\nstream:\n  memcap: 64mb\n  checksum-validation: no\n  reassembly:\n    depth: 2mb\nhost-os-policy:\n  windows: [0.0.0.0/0]\n  linux: [10.0.0.0/8, \"2001:db8::/32\"]\n  bsd: []\nflow-timeouts:\n  tcp:\n    established: 30\noutputs:\n  - fast:\n      enabled: no\n  - eve-log:\n      enabled: yes\n      filetype: unix_dgram\n      filename: /run/eve.sock\n      community-id: true\n      community-id-seed: 7\n      types:\n        - alert:\n            payload: yes\n        - dns\n        - anomaly:\n            enabled: yes\n            types:\n              decode: yes\n        - ikev2\nrule-files:\n  - one.rules\nthreading:\n  cpu-affinity: no\n";
        let settings = Settings::parse(text, false).expect("YAML");
        let config = SensorConfig::from_settings(&settings).expect("right");
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
            (Checksums::all(Verified::None), 2 << 20, 30)
        );
        assert_eq!(config.hosts.len(), 3);
        assert_eq!(config.overlaps.segments, Policy::Windows);
        let logs = config.logs;
        assert!(logs.fast.is_none());
        assert_eq!(
            logs.eve[0].log.target,
            LogDestination::UnixDatagram(PathBuf::from("/run/eve.sock"))
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
