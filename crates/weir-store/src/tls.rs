//! TLS 1.2 and newer with certificates from files: the one place where keys and certificates are read, for clients of the store and for the
//! agent's API.
//!
//! Names of authorities of the operating system are never used: who is trusted, a file says.

use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use tokio_rustls::rustls::crypto::{self, CryptoProvider};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};

/// What both ends speak.
const PROTOCOL: &[u8] = b"http/1.1";

/// A file with keys or certificates that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {why}")]
pub struct TlsError {
    /// The file.
    pub path: String,
    /// What is wrong with it.
    pub why: String,
}

impl TlsError {
    fn new(path: &Path, why: impl ToString) -> TlsError {
        TlsError {
            path: path.display().to_string(),
            why: why.to_string(),
        }
    }
}

/// A certificate with its private key, as files (PEM).
#[derive(Clone, Copy, Debug)]
pub struct Identity<'p> {
    /// The certificate, and those of the authorities in between.
    pub certificate: &'p Path,
    /// Its private key.
    pub key: &'p Path,
}

impl Identity<'_> {
    fn read(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
        let key = PrivateKeyDer::from_pem_file(self.key)
            .map_err(|error| TlsError::new(self.key, error))?;
        Ok((certificates(self.certificate)?, key))
    }
}

/// A client that trusts the authorities of a file, and shows a certificate if it has one.
///
/// # Errors
/// A file cannot be read, has nothing of what it should have, or key and certificate do not belong together.
pub fn client(ca: &Path, identity: Option<Identity<'_>>) -> Result<Arc<ClientConfig>, TlsError> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::new(ca, error))?
        .with_root_certificates(roots(ca)?);
    let mut config = match identity {
        Some(identity) => {
            let (chain, key) = identity.read()?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| TlsError::new(identity.certificate, error))?
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(Arc::new(config))
}

/// A server that shows a certificate, and only talks to clients whose certificate an authority of a file has signed.
///
/// Each connection is verified: a session that is resumed would outlive its certificate.
///
/// # Errors
/// As of [`client`].
pub fn server(identity: Identity<'_>, client_ca: &Path) -> Result<Arc<ServerConfig>, TlsError> {
    let roots = Arc::new(roots(client_ca)?);
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider())
        .build()
        .map_err(|error| TlsError::new(client_ca, error))?;
    let (chain, key) = identity.read()?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::new(identity.certificate, error))?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(|error| TlsError::new(identity.certificate, error))?;
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(crypto::ring::default_provider())
}

fn roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        let added = roots.add(certificate);
        added.map_err(|error| TlsError::new(path, error))?;
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| TlsError::new(path, error))?;
    match all.is_empty() {
        true => Err(TlsError::new(path, "it has no certificate (PEM)")),
        false => Ok(all),
    }
}

/// A server that is reached by TLS.
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
                    "`{text}` is not encrypted, and whoever reads along could change networks: serve it with TLS and write https://"
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

impl Endpoint {
    /// Host and port, as in a URL and the header `Host`.
    #[must_use]
    pub fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "https://{}", self.authority())
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
