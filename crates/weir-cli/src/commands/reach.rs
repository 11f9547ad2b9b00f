//! How a command reaches an agent, in this order: its options, the environment, and `/etc/weir/client.toml`. The one place that knows.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;
use weir_agent::api::{AgentClient, Target, socket_path};
use weir_agent::{CLIENT, Settings};
use weir_store::tls::{Endpoint, Identity};

use crate::args::reach::ReachArgs;
use crate::failure::Failure;

/// The folder of the agent's files and of client.toml.
const FOLDER: &str = "/etc/weir";

/// Names of variables: an agent, files as of the options, and another file than client.toml.
const AGENT: &str = "WEIR_REMOTE";
const CERT: &str = "WEIR_CERT";
const KEY: &str = "WEIR_KEY";
const CA: &str = "WEIR_CA";
const FILE: &str = "WEIR_CLIENT";

/// client.toml: files for all agents, and agents by name.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Client {
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    ca: Option<PathBuf>,
    agents: BTreeMap<String, Named>,
}

/// An agent with a name.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(untagged)]
enum Named {
    Address(String),
    #[serde(rename_all = "kebab-case")]
    Files {
        address: String,
        cert: Option<PathBuf>,
        key: Option<PathBuf>,
        ca: Option<PathBuf>,
    },
}

/// The agent that a command goes through; `None`: none is named, and the command works on this host.
pub(crate) fn target(args: &ReachArgs) -> Result<Option<Target>, Failure> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let path = |name: &str| variable(name).map(PathBuf::from);
    let agent = match &args.agent {
        Some(agent) => Some(agent.clone()),
        None => match variable(AGENT).map(std::ffi::OsString::into_string) {
            Some(Ok(agent)) => Some(agent),
            Some(Err(_)) => return Err(Failure::usage(format!("{AGENT} is not UTF-8"))),
            None => None,
        },
    };
    let has_files = args.cert.is_some() || args.key.is_some() || args.ca.is_some();
    let Some(agent) = agent else {
        return match has_files {
            true => Err(Failure::usage(
                "--cert, --key and --ca are for an agent: name it with --agent https://HOST:PORT",
            )),
            false => Ok(None),
        };
    };
    if agent.starts_with('/') {
        if has_files {
            return Err(Failure::usage(format!(
                "--cert, --key and --ca are for TLS, and {agent} is a socket: leave them out, or name https://HOST:PORT"
            )));
        }
        return Ok(Some(Target::Socket(agent.into())));
    }
    let given = path(FILE);
    let file = given
        .clone()
        .unwrap_or_else(|| Path::new(FOLDER).join(CLIENT));
    let client = read(&file, given.is_some())?;
    let named = client.agents.get(&agent);
    let (address, files) = match named {
        Some(Named::Address(address)) => (address.clone(), [None, None, None]),
        Some(Named::Files {
            address,
            cert,
            key,
            ca,
        }) => (address.clone(), [cert.clone(), key.clone(), ca.clone()]),
        None if agent.contains("://") => (agent, [None, None, None]),
        None => return Err(unknown(&agent, &client, &file)),
    };
    let [cert, key, ca] = files;
    let cert = args
        .cert
        .clone()
        .or_else(|| path(CERT))
        .or(cert)
        .or(client.cert);
    let key = args
        .key
        .clone()
        .or_else(|| path(KEY))
        .or(key)
        .or(client.key);
    let ca = args.ca.clone().or_else(|| path(CA)).or(ca).or(client.ca);
    let endpoint = Endpoint::try_from(address).map_err(Failure::usage)?;
    let missing = |option: &str, what: &str| {
        Failure::usage(format!(
            "{endpoint} needs {what}: give --{option} FILE, or `{option}` in {}",
            file.display()
        ))
    };
    let cert = cert.ok_or_else(|| missing("cert", "a certificate to show"))?;
    let key = key.ok_or_else(|| missing("key", "the key of the certificate"))?;
    let ca = ca.ok_or_else(|| missing("ca", "the authority of the agent's certificate"))?;
    let identity = Identity {
        certificate: &cert,
        key: &key,
    };
    let target = Target::tls(endpoint.clone(), &ca, identity).map_err(Failure::usage)?;
    Ok(Some(target))
}

/// The agent of this host, by the socket that is named or that its agent.toml names.
pub(crate) fn here(socket: Option<&Path>, folder: &Path) -> Result<Target, Failure> {
    if let Some(path) = socket {
        return Ok(Target::Socket(path.to_owned()));
    }
    let settings = Settings::of(folder).map_err(|error| {
        Failure::usage(format!(
            "{}\nname the agent's socket with --socket to do without that file",
            error.to_string().trim_end()
        ))
    })?;
    let path = socket_path(&settings.api.socket).ok_or_else(|| {
        Failure::usage(
            "agent.toml has `socket = \"off\"`: commands of this host reach the agent by the socket",
        )
    })?;
    Ok(Target::Socket(path))
}

/// The agent of this host, by a socket or where its files are by default.
pub(crate) fn here_or(socket: Option<&Path>) -> Result<Target, Failure> {
    here(socket, Path::new(FOLDER))
}

fn read(file: &Path, must_exist: bool) -> Result<Client, Failure> {
    match std::fs::read_to_string(file) {
        Ok(text) => toml::from_str(&text)
            .map_err(|error| Failure::usage(format!("{}: {error}", file.display()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound && !must_exist => {
            Ok(Client::default())
        }
        Err(error) => Err(Failure::usage(format!(
            "{} cannot be read: {error}",
            file.display()
        ))),
    }
}

fn unknown(agent: &str, client: &Client, file: &Path) -> Failure {
    let names: Vec<&str> = client.agents.keys().map(String::as_str).collect();
    let known = match names.is_empty() {
        true => format!("{} has no `[agents]`", file.display()),
        false => format!("{} has {}", file.display(), names.join(", ")),
    };
    Failure::usage(format!(
        "unknown agent `{agent}`: expected https://HOST:PORT, the path of a socket, or a name ({known})"
    ))
}

/// The edge that is named, or the only one that runs there.
pub(crate) fn edge_of(agent: &mut AgentClient, given: Option<&str>) -> Result<String, Failure> {
    if let Some(given) = given {
        return Ok(given.to_owned());
    }
    let all = agent.get("/v1/status")?;
    let mut names = edges(&all);
    match (names.pop(), names.is_empty()) {
        (Some(only), true) => Ok(only),
        (Some(last), false) => Err(Failure::usage(format!(
            "several edges run there: select one with --edge ({}, {last})",
            names.join(", ")
        ))),
        (None, _) => Err(Failure::failed(format!(
            "no edge runs at {}; `weir apply` starts one there",
            agent.place()
        ))),
    }
}

/// Names of all edges of a status.
fn edges(status: &Value) -> Vec<String> {
    let parts = ["edges", "networks"].map(|part| status[part].as_array());
    let rows = parts.into_iter().flatten().flatten();
    let mut names: Vec<String> = rows
        .filter_map(|row| row["edge"].as_str())
        .map(str::to_owned)
        .collect();
    names.sort();
    names.dedup();
    names
}

/// A name as a part of a path.
pub(crate) fn quoted(name: &str) -> String {
    let mut text = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                text.push(char::from(byte));
            }
            byte => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn agents_have_names_and_files() {
        let client: Client = toml::from_str(
            "ca = '/ca.pem'\n[agents]\noffice = 'https://a:9479'\n[agents.lab]\naddress = 'https://b:9479'\ncert = '/c.pem'\n",
        )
        .expect("right");
        assert_eq!(client.ca.as_deref(), Some(Path::new("/ca.pem")));
        assert_eq!(client.agents.len(), 2);
        assert!(matches!(
            &client.agents["lab"],
            Named::Files { cert: Some(_), .. }
        ));
        for text in ["cat = '/ca.pem'", "ca = 5", "[agents]\na = 1", "ca ="] {
            assert!(toml::from_str::<Client>(text).is_err(), "{text}");
        }
        let error = unknown("ofice", &client, Path::new("/c.toml")).to_string();
        assert!(error.contains("(/c.toml has lab, office)"), "{error}");
    }

    #[test]
    fn nothing_is_left_out_silently() {
        let lonely = ReachArgs {
            cert: Some("/c.pem".into()),
            ..ReachArgs::default()
        };
        assert!(target(&lonely).is_err());
        let of = |agent: &str| ReachArgs {
            agent: Some(agent.to_owned()),
            ..ReachArgs::default()
        };
        let useless = ReachArgs {
            ca: Some("/ca.pem".into()),
            ..of("/run/a.sock")
        };
        let error = target(&useless).expect_err("a socket has no TLS");
        assert!(error.to_string().contains("is a socket"), "{error}");
        assert!(matches!(
            target(&of("/run/a.sock")),
            Ok(Some(Target::Socket(_)))
        ));
        for (agent, why) in [
            ("http://a:1", "not encrypted"),
            ("https://a", "https://HOST:PORT"),
            ("https://a:1", "--cert FILE"),
            ("nobody", "unknown agent"),
        ] {
            let error = target(&of(agent)).expect_err(agent).to_string();
            assert!(error.contains(why), "{agent}: {error}");
        }
    }

    #[test]
    fn names_are_parts_of_paths() {
        assert_eq!(quoted("office-1"), "office-1");
        assert_eq!(quoted("a/b ä?"), "a%2Fb%20%C3%A4%3F");
    }

    #[test]
    fn edges_are_those_of_graphs_and_networks() {
        let status =
            json!({ "edges": [{ "edge": "b" }], "networks": [{ "edge": "a" }, { "edge": "b" }] });
        assert_eq!(edges(&status), ["a", "b"]);
    }
}
