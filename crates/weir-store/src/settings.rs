//! How the store is reached: the section `[store]` of agent.toml.

use std::path::PathBuf;

use serde::Deserialize;

/// How the store is reached, and as whom.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Settings {
    /// Members of the cluster, as `https://HOST:PORT`; each is tried when another does not answer.
    pub endpoints: Vec<Endpoint>,
    /// Certificates of authorities that members' certificates are verified with (PEM).
    pub ca: PathBuf,
    /// Certificate to show (PEM), with `key`.
    pub cert: Option<PathBuf>,
    /// Its private key (PEM).
    pub key: Option<PathBuf>,
    /// User of etcd, with `password-file`.
    pub user: Option<String>,
    /// File with the password, whose final line break does not belong to it.
    pub password_file: Option<PathBuf>,
    /// Edge of documents that this host is; default: the host's name.
    pub edge: Option<String>,
    /// Seconds for which something that the store no longer has stays in force.
    #[serde(default = "default_grace")]
    pub grace: u64,
}

fn default_grace() -> u64 {
    5
}

/// A member of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Endpoint {
    /// Name or address.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl TryFrom<String> for Endpoint {
    type Error = String;

    fn try_from(text: String) -> Result<Endpoint, String> {
        let wrong = || format!("expected https://HOST:PORT, found `{text}`");
        let rest = match text.strip_prefix("https://") {
            Some(rest) => rest.strip_suffix('/').unwrap_or(rest),
            None if text.starts_with("http://") => {
                return Err(format!(
                    "`{text}` is not encrypted, and whoever changes the store changes networks: serve etcd with TLS and write https://"
                ));
            }
            None => return Err(wrong()),
        };
        let (host, port) = rest.rsplit_once(':').ok_or_else(wrong)?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let is_name = |host: &str| {
            !host.is_empty()
                && host
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b".-:_".contains(&byte))
        };
        match port.parse() {
            Ok(port) if port != 0 && is_name(host) => Ok(Endpoint {
                host: host.to_owned(),
                port,
            }),
            _ => Err(wrong()),
        }
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "https://[{}]:{}", self.host, self.port),
            false => write!(f, "https://{}:{}", self.host, self.port),
        }
    }
}

impl Settings {
    /// What several keys say together.
    ///
    /// # Errors
    /// What is missing.
    pub fn check(&self) -> Result<(), String> {
        if self.endpoints.is_empty() {
            return Err("`endpoints` of [store] is empty: name at least one member of the cluster, as https://10.0.0.1:2379".to_owned());
        }
        if self.cert.is_some() != self.key.is_some() {
            return Err("`cert` and `key` of [store] belong together: give both".to_owned());
        }
        if self.user.is_some() != self.password_file.is_some() {
            return Err(
                "`user` and `password-file` of [store] belong together: give both".to_owned(),
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_encrypted_and_have_a_port() {
        let read = |text: &str| Endpoint::try_from(text.to_owned());
        for (text, shown) in [
            ("https://10.0.0.1:2379", "https://10.0.0.1:2379"),
            (
                "https://etcd-1.example:2379/",
                "https://etcd-1.example:2379",
            ),
            ("https://[2001:db8::1]:2379", "https://[2001:db8::1]:2379"),
        ] {
            assert_eq!(read(text).expect("right").to_string(), shown);
        }
        let refused = read("http://10.0.0.1:2379").expect_err("plain");
        assert!(refused.contains("not encrypted"), "{refused}");
        for text in [
            "10.0.0.1:2379",
            "https://10.0.0.1",
            "https://a b:1",
            "https://:1",
            "https://a:0",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
