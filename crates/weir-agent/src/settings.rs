//! The agent's own settings: `agent.toml` in its folder. Without the file, or without a key, the defaults hold.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::AgentError;
use crate::sensors::{Sensor, SensorSettings};

/// Name of the file in the folder of the edges.
pub const SETTINGS: &str = "agent.toml";

/// Name of the file beside it that says how commands of this host reach other agents.
pub const CLIENT: &str = "client.toml";

/// What becomes of edits of a running edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Edits {
    /// They are reported, and stay until the file changes.
    #[default]
    Report,
    /// The file is applied again.
    Revert,
}

/// Settings of the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Settings {
    /// What becomes of edits of a running edge.
    pub edits: Edits,
    /// Of single edges, by name.
    pub edge: BTreeMap<String, EdgeSettings>,
    /// Sensors that run as children, by name.
    pub sensor: BTreeMap<String, SensorSettings>,
    /// Of the API.
    pub api: ApiSettings,
    /// Where the networks of this host are declared beside the folder.
    pub store: Option<weir_store::Settings>,
}

/// Settings of the API: where it listens, and to whom.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ApiSettings {
    /// The Unix socket.
    pub socket: Socket,
    /// Members of this group may read.
    pub read_group: Option<Group>,
    /// Members of this group may read, and change edges.
    pub operate_group: Option<Group>,
    /// Where metrics are read over TCP.
    pub metrics: Option<LoopbackAddress>,
    /// Where browsers find the page.
    pub page: Option<LoopbackAddress>,
    /// Where sensors log, whose alerts are events.
    pub alerts: AlertFolder,
    /// Where other hosts reach the API by TLS.
    pub listen: Option<RemoteAddress>,
    /// The certificate that is shown there (PEM), with those of authorities in between.
    pub tls_certificate: Option<PathBuf>,
    /// Its private key (PEM).
    pub tls_key: Option<PathBuf>,
    /// Certificates of authorities that clients' certificates are verified with (PEM).
    pub client_ca: Option<PathBuf>,
    /// Roles of clients, by the common name or a URI of their certificate.
    pub clients: BTreeMap<String, ClientRole>,
}

/// What the owner of a certificate may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClientRole {
    /// See everything.
    Read,
    /// Change edges, too.
    Operate,
}

/// Files of the address that other hosts reach.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TlsFiles<'s> {
    pub(crate) certificate: &'s Path,
    pub(crate) key: &'s Path,
    pub(crate) client_ca: &'s Path,
}

impl ApiSettings {
    /// Files of the address that other hosts reach; `None`: there is none.
    pub(crate) fn tls_files(&self) -> Option<TlsFiles<'_>> {
        self.listen?;
        Some(TlsFiles {
            certificate: self.tls_certificate.as_deref()?,
            key: self.tls_key.as_deref()?,
            client_ca: self.client_ca.as_deref()?,
        })
    }

    /// What several keys say together.
    fn check(&self) -> Result<(), String> {
        if self.page.is_some() && self.socket == Socket::Off {
            return Err(
                "`page` needs the socket, through which `weir page` asks for a login link: remove `socket = \"off\"`"
                    .to_owned(),
            );
        }
        let files = [
            ("tls-certificate", &self.tls_certificate),
            ("tls-key", &self.tls_key),
            ("client-ca", &self.client_ca),
        ];
        for (key, path) in files {
            match (path, self.listen.is_some()) {
                (None, true) => {
                    return Err(format!(
                        "`listen` needs `{key}`: other hosts are served by TLS with certificates of both sides only"
                    ));
                }
                (Some(path), _) if !path.is_absolute() => {
                    return Err(format!(
                        "`{key}` is `{}`: expected an absolute path",
                        path.display()
                    ));
                }
                (Some(_), false) => {
                    return Err(format!(
                        "`{key}` is for `listen`, which is missing: add it, as `listen = \"192.0.2.1:9479\"`"
                    ));
                }
                _ => {}
            }
        }
        if self.listen.is_some() == self.clients.is_empty() {
            return Err(match self.listen {
                Some(_) => "`listen` serves nobody without `[api.clients]`: name certificates there, as `\"noc.example.net\" = \"read\"`".to_owned(),
                None => "`[api.clients]` is for `listen`, which is missing: add it, as `listen = \"192.0.2.1:9479\"`".to_owned(),
            });
        }
        if self.clients.keys().any(|name| name.trim().is_empty()) {
            return Err("a name of `[api.clients]` is empty: write the common name or the URI of a certificate".to_owned());
        }
        Ok(())
    }
}

/// The folder of the folders that sensors log to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum AlertFolder {
    /// That of the units of sensors.
    #[default]
    Default,
    /// This one.
    Path(PathBuf),
    /// Alerts are not events.
    Off,
}

impl AlertFolder {
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            AlertFolder::Default => Some(Path::new(crate::sensors::LOGS)),
            AlertFolder::Path(path) => Some(path),
            AlertFolder::Off => None,
        }
    }
}

impl TryFrom<String> for AlertFolder {
    type Error = String;

    fn try_from(text: String) -> Result<AlertFolder, String> {
        match text.as_str() {
            "off" => Ok(AlertFolder::Off),
            _ if text.starts_with('/') => Ok(AlertFolder::Path(text.into())),
            _ => Err(format!(
                "expected an absolute path or \"off\", found `{text}`"
            )),
        }
    }
}

/// An address and port that other hosts may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct RemoteAddress(pub SocketAddr);

impl TryFrom<String> for RemoteAddress {
    type Error = String;

    fn try_from(text: String) -> Result<RemoteAddress, String> {
        address(&text, "192.0.2.1:9479 or [2001:db8::1]:9479").map(RemoteAddress)
    }
}

/// An address with a port that is the same each time.
fn address(text: &str, example: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text
        .parse()
        .map_err(|_| format!("expected an address and a port, as {example}, found `{text}`"))?;
    if address.port() == 0 {
        return Err(format!(
            "port 0 is a different port each time: name one, as in {example}"
        ));
    }
    Ok(address)
}

/// An address and port of this host that other hosts do not reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct LoopbackAddress(pub SocketAddr);

impl TryFrom<String> for LoopbackAddress {
    type Error = String;

    fn try_from(text: String) -> Result<LoopbackAddress, String> {
        let address = address(&text, "127.0.0.1:9477 or [::1]:9477")?;
        if !address.ip().is_loopback() {
            return Err(format!(
                "{} is not a loopback address, and the connection is not encrypted. Listen on 127.0.0.1 or [::1], and let a proxy with TLS or a tunnel lead there",
                address.ip()
            ));
        }
        Ok(LoopbackAddress(address))
    }
}

/// Where the API's Unix socket is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Socket {
    /// `agent.sock` in the run folder of weir.
    #[default]
    Default,
    /// There.
    Path(PathBuf),
    /// Nowhere.
    Off,
}

impl TryFrom<String> for Socket {
    type Error = String;

    fn try_from(text: String) -> Result<Socket, String> {
        match text.as_str() {
            "off" => Ok(Socket::Off),
            _ if text.starts_with('/') && text.len() <= SOCKET_MAX => Ok(Socket::Path(text.into())),
            _ if text.starts_with('/') => Err(format!(
                "a path of a socket has at most {SOCKET_MAX} bytes: choose a shorter one"
            )),
            _ => Err(format!(
                "expected an absolute path or \"off\", found `{text}`"
            )),
        }
    }
}

/// Longest path of a socket: `sun_path` without its final zero.
const SOCKET_MAX: usize = 107;

/// A group by name or number, as its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "GroupName")]
pub struct Group(pub u32);

#[derive(Deserialize)]
#[serde(untagged)]
enum GroupName {
    Number(u32),
    Name(String),
}

impl TryFrom<GroupName> for Group {
    type Error = String;

    fn try_from(group: GroupName) -> Result<Group, String> {
        match group {
            GroupName::Number(number) => Ok(Group(number)),
            GroupName::Name(name) => {
                let groups = std::fs::read_to_string(GROUPS).unwrap_or_default();
                group_number(&groups, &name).map(Group).ok_or_else(|| {
                    format!(
                        "unknown group `{name}`: {GROUPS} does not have it. Create it with `groupadd`, or give the number of a group of a directory service"
                    )
                })
            }
        }
    }
}

/// Where groups have names.
const GROUPS: &str = "/etc/group";

fn group_number(groups: &str, name: &str) -> Option<u32> {
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == name).then(|| fields.nth(1)?.parse().ok())?
    })
}

/// Settings of one edge: which commands run beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct EdgeSettings {
    /// `weir service check` of balancers whose services have a `check`.
    pub check_services: bool,
    /// `weir net helper` of virtual networks.
    pub helper: bool,
    /// `weir route follow`.
    pub follow_routes: bool,
}

impl Default for EdgeSettings {
    fn default() -> EdgeSettings {
        EdgeSettings {
            check_services: true,
            helper: true,
            follow_routes: false,
        }
    }
}

impl Settings {
    /// Of a folder.
    ///
    /// # Errors
    /// The file cannot be read, or has a mistake.
    pub fn of(folder: &Path) -> Result<Settings, AgentError> {
        let path = folder.join(SETTINGS);
        let wrong = |text: String| AgentError::Settings {
            path: path.display().to_string(),
            text,
        };
        match std::fs::read_to_string(&path) {
            Ok(text) => parse(&text).map_err(wrong),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Settings::default()),
            Err(error) => Err(wrong(format!("cannot be read: {error}"))),
        }
    }

    /// The sensors.
    pub(crate) fn sensors(&self) -> impl Iterator<Item = Sensor> {
        (self.sensor.iter()).map(|(name, settings)| Sensor::new(name, settings.clone()))
    }

    /// Of an edge.
    #[must_use]
    pub fn of_edge(&self, name: &str) -> EdgeSettings {
        self.edge.get(name).copied().unwrap_or_default()
    }
}

/// Reads settings, and checks what several keys say together.
fn parse(text: &str) -> Result<Settings, String> {
    let settings: Settings = toml::from_str(text).map_err(|error| error.to_string())?;
    settings.api.check()?;
    for (name, sensor) in &settings.sensor {
        sensor.check(name)?;
    }
    if let Some(store) = &settings.store {
        store.check()?;
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_needs_the_socket() {
        let settings = parse("[api]\npage = '127.0.0.1:9478'").expect("right");
        let page = settings.api.page.map(|one| one.0.to_string());
        assert_eq!(page.as_deref(), Some("127.0.0.1:9478"));
        let error = parse("[api]\npage = '[::1]:9478'\nsocket = 'off'").expect_err("no socket");
        assert!(error.contains("weir page"), "{error}");
        assert!(parse("[api]\npage = '192.0.2.1:9478'").is_err());
    }

    #[test]
    fn other_hosts_are_served_with_certificates_only() {
        let files = "tls-certificate = '/c.pem'\ntls-key = '/c.key'\nclient-ca = '/ca.pem'\n";
        let clients = "[api.clients]\nnoc = 'read'\n'spiffe://example.net/ops' = 'operate'\n";
        let read = |text: &str| parse(&format!("[api]\n{text}")).map(|settings| settings.api);
        let listen = "listen = '0.0.0.0:9479'\n";
        let right = read(&format!("{listen}{files}{clients}")).expect("right");
        assert_eq!(right.clients.get("noc"), Some(&ClientRole::Read));
        assert!(right.tls_files().is_some());
        for (text, why) in [
            (format!("{listen}{clients}"), "needs `tls-certificate`"),
            (format!("{listen}{files}"), "[api.clients]"),
            (format!("{files}{clients}"), "`listen`, which is missing"),
            (clients.to_owned(), "`listen`, which is missing"),
            (
                format!("{listen}{files}{clients}").replace("/ca.pem", "ca.pem"),
                "absolute path",
            ),
            (format!("listen = '192.0.2.1'\n{files}{clients}"), "a port"),
            (
                format!("{listen}{files}[api.clients]\nnoc = 'root'\n"),
                "unknown variant",
            ),
            (
                format!("{listen}{files}[api.clients]\n'' = 'read'\n"),
                "is empty",
            ),
        ] {
            let error = read(&text).expect_err(&text);
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn the_store_is_reached_by_tls_only() {
        let read = |text: &str| parse(&format!("[store]\nca = '/ca.pem'\n{text}"));
        let settings = read("endpoints = ['https://10.0.0.1:2379']").expect("right");
        assert_eq!(
            settings.store.map(|one| (one.grace, one.edge)),
            Some((5, None))
        );
        for (text, why) in [
            ("endpoints = []", "at least one member"),
            ("endpoints = ['http://10.0.0.1:2379']", "not encrypted"),
            (
                "endpoints = ['https://a:1']\ncert = '/c.pem'",
                "belong together",
            ),
            (
                "endpoints = ['https://a:1']\nuser = 'weir'",
                "belong together",
            ),
            ("endpoints = ['https://a:1']\ntls = false", "unknown field"),
            ("", "endpoints"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn keys_have_defaults_and_unknown_ones_are_refused() {
        let read = |text: &str| toml::from_str::<Settings>(text);
        assert_eq!(read("").expect("right"), Settings::default());
        let settings = read("edits = 'revert'\n[edge.office]\nfollow-routes = true\n");
        let settings = settings.expect("right");
        assert_eq!(settings.edits, Edits::Revert);
        assert!(settings.of_edge("office").follow_routes && settings.of_edge("office").helper);
        assert_eq!(settings.of_edge("other"), EdgeSettings::default());
        for text in [
            "edit = 'revert'",
            "edits = 'undo'",
            "[edge.a]\nroutes = true",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sockets_and_groups_are_checked() {
        let read =
            |text: &str| toml::from_str::<Settings>(&format!("[api]\n{text}")).map(|s| s.api);
        assert_eq!(read("").expect("right"), ApiSettings::default());
        assert_eq!(read("socket = 'off'").expect("right").socket, Socket::Off);
        let settings =
            read("socket = '/run/a.sock'\nread-group = 'root'\noperate-group = 77").expect("right");
        assert_eq!(settings.socket, Socket::Path("/run/a.sock".into()));
        assert_eq!(
            (settings.read_group, settings.operate_group),
            (Some(Group(0)), Some(Group(77)))
        );
        for (text, why) in [
            ("socket = 'a.sock'", "absolute"),
            ("alerts = 'logs'", "absolute"),
            ("socket = ''", "absolute"),
            ("read-group = 'no such group'", "groupadd"),
            ("read-group = -1", ""),
            ("port = 80", "unknown field"),
            ("metrics = '0.0.0.0:9477'", "not a loopback address"),
            ("metrics = '[2001:db8::1]:9477'", "not a loopback address"),
            ("metrics = '127.0.0.1:0'", "name one"),
            ("metrics = '127.0.0.1'", "expected an address and a port"),
            (
                "metrics = 'localhost:9477'",
                "expected an address and a port",
            ),
        ] {
            let error = read(text).expect_err(text).to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
        for text in ["127.0.0.1:9477", "[::1]:9477", "127.8.8.8:80"] {
            let settings = read(&format!("metrics = '{text}'")).expect("right");
            assert_eq!(
                settings.metrics.map(|one| one.0.to_string()),
                Some(text.to_owned())
            );
        }
        let long = format!("socket = '/{}'", "a".repeat(SOCKET_MAX));
        assert!(read(&long).expect_err("long").to_string().contains("107"));
        assert_eq!(group_number("a:x:1:\nb:x:2:kim,lee\n", "b"), Some(2));
        assert_eq!(group_number("a:x:1:\nbroken\n", "c"), None);
    }
}
