//! A call of a container runtime: what the environment and standard input say (CNI specification 1.1.0, sections 1 and 2), and errors in its words.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{Value, json};

/// Versions of the specification, the one that answers have if the call names none last.
pub(super) const VERSIONS: [&str; 5] = ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];

/// Code of this plugin's own: no networks run on this host.
const ABSENT: u32 = 101;

/// Why a call failed: codes of the specification, section "Error".
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CniError {
    code: u32,
    text: String,
}

impl CniError {
    fn new(code: u32, text: impl Into<String>) -> CniError {
        CniError {
            code,
            text: text.into(),
        }
    }

    /// A version that this plugin does not speak.
    fn version(text: impl Into<String>) -> CniError {
        CniError::new(1, text)
    }

    /// A container or namespace that does not exist.
    pub(super) fn unknown_container(text: impl Into<String>) -> CniError {
        CniError::new(3, text)
    }

    /// An environment variable is missing or invalid.
    fn environment(text: impl Into<String>) -> CniError {
        CniError::new(4, text)
    }

    /// Standard input or output failed.
    pub(super) fn io(error: &std::io::Error) -> CniError {
        CniError::new(5, error.to_string())
    }

    /// No networks run here: nothing of an addition is left, either.
    pub(super) fn absent(text: impl Into<String>) -> CniError {
        CniError::new(ABSENT, text)
    }

    /// Whether no networks run here.
    pub(super) fn is_absent(&self) -> bool {
        self.code == ABSENT
    }

    /// Standard input is not the JSON of a configuration.
    fn unreadable(text: impl Into<String>) -> CniError {
        CniError::new(6, text)
    }

    /// The configuration is wrong.
    pub(super) fn config(text: impl Into<String>) -> CniError {
        CniError::new(7, text)
    }

    /// It may work later.
    pub(super) fn later(text: impl Into<String>) -> CniError {
        CniError::new(11, text)
    }

    /// The plugin cannot serve additions now.
    pub(super) fn unavailable(text: impl Into<String>) -> CniError {
        CniError::new(50, text)
    }

    /// The host refused.
    pub(super) fn host(text: impl Into<String>) -> CniError {
        CniError::new(100, text)
    }

    /// What happened.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// What the runtime reads.
    pub(super) fn json(&self, version: &str) -> Value {
        json!({ "cniVersion": version, "code": self.code, "msg": self.text })
    }
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// Join a container to a network.
    Add,
    /// Undo that.
    Del,
    /// Say whether a container is joined as it was told.
    Check,
    /// Undo the additions of containers that are gone.
    Gc,
    /// Say whether additions can be served.
    Status,
}

/// A configuration of a network, as the runtime passes it.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Config {
    #[serde(rename = "cniVersion", default)]
    pub(super) version: String,
    /// Network of the document.
    #[serde(default)]
    pub(super) network: String,
    /// Its subnet.
    #[serde(default)]
    pub(super) subnet: String,
    /// Security groups of the network that containers are in.
    #[serde(default)]
    groups: Vec<String>,
    /// The edge, where several run on this host.
    pub(super) edge: Option<String>,
    /// The folder of the agent's settings.
    pub(super) config: Option<PathBuf>,
    /// Passed on to the runtime.
    pub(super) dns: Option<Value>,
    ipam: Option<Value>,
    #[serde(rename = "runtimeConfig", default)]
    runtime: Runtime,
    #[serde(rename = "prevResult")]
    pub(super) before: Option<Value>,
    #[serde(rename = "cni.dev/valid-attachments")]
    pub(super) valid: Option<Vec<Valid>>,
}

/// What the runtime adds for one container.
#[derive(Clone, Debug, Default, Deserialize)]
struct Runtime {
    #[serde(default)]
    ips: Vec<String>,
}

/// An attachment that is still wanted.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Valid {
    #[serde(rename = "containerID")]
    pub(super) container: String,
    pub(super) ifname: String,
}

/// A container's interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attachment {
    /// Made of the container and the interface: it finds what an addition left, also where the runtime passes nothing else any more.
    pub(super) digest: String,
    /// Device on the host.
    pub(super) device: String,
}

/// Digits of the digest: with [`PREFIX`] it is a name of a device.
const DIGITS: usize = 11;
const PREFIX: &str = "cni";

impl Attachment {
    pub(super) fn of(container: &str, interface: &str) -> Attachment {
        let whole = weir_graph::digest(format!("{container}/{interface}").as_bytes());
        let digest = whole[..DIGITS.min(whole.len())].to_owned();
        Attachment {
            device: format!("{PREFIX}{digest}"),
            digest,
        }
    }

    /// Whether a workload with this device is of an addition, whatever container it is of.
    pub(super) fn is_one(device: &str, workload: &str) -> bool {
        let digest = device.strip_prefix(PREFIX);
        digest.is_some_and(|digest| digest.len() == DIGITS && ends_with(workload, digest))
    }

    /// Whether a workload is of this addition.
    pub(super) fn owns(&self, workload: &str) -> bool {
        ends_with(workload, &self.digest)
    }

    /// Name of its workload: with that of its pod, for who reads it.
    pub(super) fn workload(&self, args: &BTreeMap<String, String>) -> String {
        let pod = args.get("K8S_POD_NAME").map_or("cni", String::as_str);
        let plain = |c: char| match c.is_ascii_alphanumeric() || c == '-' || c == '_' {
            true => c,
            false => '-',
        };
        // Names of workloads have 32 characters at most.
        let pod: String = pod.chars().map(plain).take(31 - DIGITS).collect();
        format!("{pod}-{}", self.digest)
    }
}

fn ends_with(workload: &str, digest: &str) -> bool {
    workload
        .strip_suffix(digest)
        .is_some_and(|rest| rest.ends_with('-'))
}

/// A call that can be served.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) command: Command,
    pub(super) config: Config,
    /// Of the answer.
    pub(super) version: &'static str,
    /// File of the container's network namespace; `None`: it is gone.
    pub(super) netns: Option<PathBuf>,
    /// Interface inside.
    pub(super) interface: String,
    pub(super) container: String,
    pub(super) args: BTreeMap<String, String>,
}

/// What a call turned out to be.
#[derive(Debug)]
pub(super) enum Read {
    /// The runtime asks for versions.
    Version(String),
    Call(Box<Call>),
}

/// Reads a call. `variable`: of the environment.
pub(super) fn read(
    variable: &dyn Fn(&str) -> Option<OsString>,
    input: &str,
) -> Result<Read, CniError> {
    let text = |name: &str| -> Result<Option<String>, CniError> {
        let Some(value) = variable(name).filter(|value| !value.is_empty()) else {
            return Ok(None);
        };
        let value = value.into_string();
        value
            .map(Some)
            .map_err(|_| CniError::environment(format!("{name} is not UTF-8")))
    };
    let needed =
        |name: &str| text(name)?.ok_or_else(|| CniError::environment(format!("{name} is not set")));
    let command = needed("CNI_COMMAND")?;
    let config: Config = serde_json::from_str(input)
        .map_err(|error| CniError::unreadable(format!("the configuration: {error}")))?;
    let command = match command.as_str() {
        "VERSION" => return Ok(Read::Version(config.version)),
        "ADD" => Command::Add,
        "DEL" => Command::Del,
        "CHECK" => Command::Check,
        "GC" => Command::Gc,
        "STATUS" => Command::Status,
        other => {
            return Err(CniError::environment(format!(
                "CNI_COMMAND is `{other}`: unknown command"
            )));
        }
    };
    let spoken = VERSIONS.iter().find(|one| **one == config.version);
    let Some(version) = spoken else {
        return Err(CniError::version(format!(
            "cniVersion `{}` is not supported: use one of {}",
            config.version,
            VERSIONS.join(", ")
        )));
    };
    for (key, value) in [("network", &config.network), ("subnet", &config.subnet)] {
        if value.is_empty() {
            return Err(CniError::config(format!(
                "`{key}` is missing: name the {key} of the document that containers join"
            )));
        }
    }
    if config
        .ipam
        .as_ref()
        .is_some_and(|ipam| ipam.as_object().is_none_or(|keys| !keys.is_empty()))
    {
        return Err(CniError::config(
            "`ipam` is not supported: weir assigns addresses of the subnet; remove the key",
        ));
    }
    let (mut container, mut interface, mut netns) = (String::new(), String::new(), None);
    if matches!(command, Command::Add | Command::Del | Command::Check) {
        container = needed("CNI_CONTAINERID")?;
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        if !container.starts_with(|c: char| c.is_ascii_alphanumeric())
            || !container.chars().all(is_part)
        {
            return Err(CniError::environment(format!(
                "CNI_CONTAINERID is `{container}`: invalid container ID"
            )));
        }
        interface = needed("CNI_IFNAME")?;
        if let Err(invalid) = weir_value::interface(&interface) {
            return Err(CniError::environment(format!("CNI_IFNAME: {invalid}")));
        }
        netns = text("CNI_NETNS")?.map(PathBuf::from);
        if netns.is_none() && command != Command::Del {
            return Err(CniError::environment("CNI_NETNS is not set"));
        }
    }
    let args = text("CNI_ARGS")?.unwrap_or_default();
    let pairs = args.split(';').filter_map(|pair| pair.split_once('='));
    let args = pairs.map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()));
    Ok(Read::Call(Box::new(Call {
        command,
        config,
        version,
        netns,
        interface,
        container,
        args: args.collect(),
    })))
}

impl Call {
    pub(super) fn attachment(&self) -> Attachment {
        Attachment::of(&self.container, &self.interface)
    }

    /// Security groups of the container: those of the configuration, and `GROUPS` of `CNI_ARGS`, with commas between.
    pub(super) fn groups(&self) -> Vec<String> {
        let of_args = self.args.get("GROUPS").map_or("", String::as_str);
        let of_args = of_args.split(',').map(str::trim).map(str::to_owned);
        let all = self.config.groups.iter().cloned().chain(of_args);
        let mut groups: Vec<String> = Vec::new();
        for group in all.filter(|group| !group.is_empty()) {
            if !groups.contains(&group) {
                groups.push(group);
            }
        }
        groups
    }

    /// Addresses that the runtime asks for: the capability `ips`, or `IP` of `CNI_ARGS`.
    pub(super) fn wanted(&self) -> Result<Vec<IpAddr>, CniError> {
        let of_args = self.args.get("IP").into_iter();
        let all = self.config.runtime.ips.iter().chain(of_args);
        let address = |text: &String| {
            let address = text.split('/').next().unwrap_or_default();
            address
                .parse()
                .map_err(|_| CniError::config(format!("`{text}` is not an IP address")))
        };
        all.map(address).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str =
        r#"{"cniVersion":"1.0.0","name":"pods","type":"weir-cni","network":"shop","subnet":"web"}"#;

    fn called(environment: &[(&str, &str)], input: &str) -> Result<Read, CniError> {
        let find = |name: &str| {
            let found = environment.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| OsString::from(value))
        };
        read(&find, input)
    }

    #[test]
    fn a_call_is_read() {
        let environment = [
            ("CNI_COMMAND", "ADD"),
            ("CNI_CONTAINERID", "0a1b"),
            ("CNI_IFNAME", "eth0"),
            ("CNI_NETNS", "/run/netns/pod"),
            (
                "CNI_ARGS",
                "IgnoreUnknown=1;K8S_POD_NAME=web.front;IP=10.1.0.9/24;GROUPS=web, db,web",
            ),
        ];
        let Ok(Read::Call(call)) = called(&environment, CONFIG) else {
            panic!("a call");
        };
        assert_eq!((call.command, call.version), (Command::Add, "1.0.0"));
        assert_eq!(
            call.wanted(),
            Ok(vec!["10.1.0.9".parse().expect("an address")])
        );
        assert_eq!(call.groups(), ["web", "db"]);
        let attachment = call.attachment();
        assert!(attachment.device.len() <= 15, "{attachment:?}");
        let workload = attachment.workload(&call.args);
        assert!(
            workload.starts_with("web-front-") && workload.len() <= 32,
            "{workload}"
        );
        assert!(attachment.owns(&workload) && Attachment::is_one(&attachment.device, &workload));
        let other = Attachment::of("0a1b", "eth1");
        assert!(!other.owns(&workload) && !Attachment::is_one("tap1", &workload));
    }

    #[test]
    fn a_long_name_of_a_pod_is_cut() {
        let args = BTreeMap::from([("K8S_POD_NAME".to_owned(), "x".repeat(253))]);
        let workload = Attachment::of("a", "eth0").workload(&args);
        assert_eq!(workload.len(), 32);
    }

    #[test]
    fn what_is_wrong_has_the_code_of_the_specification() {
        let add = [
            ("CNI_COMMAND", "ADD"),
            ("CNI_CONTAINERID", "0a1b"),
            ("CNI_IFNAME", "eth0"),
            ("CNI_NETNS", "/run/netns/pod"),
        ];
        let with = |key: &'static str, value: &'static str| {
            let mut all = add.to_vec();
            all.retain(|(name, _)| *name != key);
            all.push((key, value));
            all
        };
        type Case = (Vec<(&'static str, &'static str)>, &'static str, u32);
        let cases: Vec<Case> = vec![
            (vec![], CONFIG, 4),
            (with("CNI_COMMAND", "MOVE"), CONFIG, 4),
            (with("CNI_CONTAINERID", "-a"), CONFIG, 4),
            (with("CNI_CONTAINERID", "../a"), CONFIG, 4),
            (with("CNI_IFNAME", "a/b"), CONFIG, 4),
            (with("CNI_NETNS", ""), CONFIG, 4),
            (add.to_vec(), "{", 6),
            (
                add.to_vec(),
                r#"{"cniVersion":"0.1.0","network":"n","subnet":"s"}"#,
                1,
            ),
            (add.to_vec(), r#"{"cniVersion":"1.0.0","subnet":"s"}"#, 7),
            (
                add.to_vec(),
                r#"{"cniVersion":"1.0.0","network":"n","subnet":"s","ipam":{"type":"host-local"}}"#,
                7,
            ),
        ];
        for (environment, input, code) in cases {
            match called(&environment, input) {
                Err(error) => assert_eq!(error.code, code, "{environment:?} {input}: {error:?}"),
                Ok(read) => panic!("{environment:?} {input}: {read:?}"),
            }
        }
        let gone = with("CNI_COMMAND", "DEL");
        let gone: Vec<_> = gone
            .into_iter()
            .filter(|(name, _)| *name != "CNI_NETNS")
            .collect();
        assert!(called(&gone, CONFIG).is_ok(), "a namespace may be gone");
    }
}
