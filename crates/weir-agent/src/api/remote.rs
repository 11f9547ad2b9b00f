//! The address that other hosts reach: TCP, TLS with certificates of both sides, and a role that follows from the client's.
//!
//! Until a client has shown its certificate it holds a place among the handshakes only, which are counted by address: so whoever has no
//! certificate takes nothing from those who have one, unless they come from the same address.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use hyper::StatusCode;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::server::TlsStream;
use webpki::EndEntityCert;

use super::access::{Connections, Listener, Place, Role};
use super::answer::{Client, Shared, Who};
use super::conversation::{PAUSE, refusal, refuse, serve};
use super::limits::Limits;
use super::problem::Problem;
use crate::settings::ClientRole;

/// Where other hosts reach the API, and who may do what there.
#[derive(Clone, Debug)]
pub(super) struct Remote {
    pub(super) address: SocketAddr,
    pub(super) roles: Arc<BTreeMap<String, ClientRole>>,
    /// Certificates, as they are now.
    pub(super) keys: watch::Receiver<Arc<ServerConfig>>,
}

/// Serves all who connect.
pub(super) async fn accept(listener: TcpListener, remote: Remote, shared: Arc<Shared>) {
    let limits = shared.limits;
    let handshakes = Connections::<IpAddr>::default();
    let clients = Arc::new(Connections::<Arc<str>>::default());
    let refused = Arc::new(Semaphore::new(limits.refused));
    loop {
        let Ok((stream, from)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        // Nothing can be said before there is a key to say it with.
        let address = source(from.ip());
        let Some(place) =
            handshakes.enter(address, limits.handshakes_of_address, limits.handshakes)
        else {
            continue;
        };
        // Certificates that were renewed hold from the next connection on.
        let config = Arc::clone(&remote.keys.borrow());
        let (shared, roles) = (Arc::clone(&shared), Arc::clone(&remote.roles));
        let (clients, refused) = (Arc::clone(&clients), Arc::clone(&refused));
        tokio::spawn(async move {
            let accepted = timeout(
                limits.handshake_time,
                TlsAcceptor::from(config).accept(stream),
            );
            let accepted = accepted.await;
            drop(place);
            let Ok(Ok(stream)) = accepted else {
                return;
            };
            match admit(&stream, &roles, &clients, &limits) {
                Ok((client, place)) => {
                    // A certificate that expires meanwhile has no connection for ever.
                    let _ = timeout(limits.remote_time, serve(stream, client, shared)).await;
                    drop(place);
                }
                Err(problem) => turn_away(stream, problem, limits, &refused).await,
            }
        });
    }
}

/// The address that handshakes are counted by: of IPv6 the /64, which is the least that one host has (RFC 7421).
fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let prefix = address.to_bits() & (u128::MAX << 64);
            IpAddr::V6(prefix.into())
        }
        address => address,
    }
}

/// Whether the owner of a certificate may talk.
fn admit(
    stream: &TlsStream<TcpStream>,
    roles: &BTreeMap<String, ClientRole>,
    clients: &Connections<Arc<str>>,
    limits: &Limits,
) -> Result<(Client, Place<Arc<str>>), Problem> {
    // The handshake does not end without one, and it was verified.
    let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let names = certificates.first().map(names).unwrap_or_default();
    let Some((name, role)) = role_of(&names, roles) else {
        let detail = match names.as_slice() {
            [] => "the certificate has no name: neither a common name nor a URI".to_owned(),
            names => format!(
                "the certificate has no role: its names are {}",
                quoted(names)
            ),
        };
        return Err(Problem::new(
            StatusCode::FORBIDDEN,
            detail,
            "add a name of it to `[api.clients]` of agent.toml on that host, with the role \"read\" or \"operate\"",
        ));
    };
    let name: Arc<str> = name.into();
    let Some(place) = clients.enter(Arc::clone(&name), limits.of_user, limits.remotes) else {
        return Err(Problem::new(
            StatusCode::TOO_MANY_REQUESTS,
            format!(
                "too many connections: {} of one client, {} of all",
                limits.of_user, limits.remotes
            ),
            "close some, and try again",
        ));
    };
    let client = Client {
        who: Who::Certificate(name),
        role,
        listener: Listener::Remote,
    };
    Ok((client, place))
}

fn quoted(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

/// The name that gives a certificate its role, and the role: the highest that its names have.
fn role_of<'n>(
    names: &'n [String],
    roles: &BTreeMap<String, ClientRole>,
) -> Option<(&'n str, Role)> {
    let mut best: Option<(&str, Role)> = None;
    for name in names {
        let role = match roles.get(name) {
            Some(ClientRole::Read) => Role::Read,
            Some(ClientRole::Operate) => Role::Operate,
            None => continue,
        };
        if best.is_none_or(|(_, other)| role > other) {
            best = Some((name, role));
        }
    }
    best
}

/// Names of a certificate: its common name, if it has exactly one, and the URIs among its alternative names.
fn names(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok(certificate) = EndEntityCert::try_from(certificate) else {
        return Vec::new();
    };
    let common = weir_packet::x509::common_names(certificate.subject());
    // With several of them it is not said which one is meant.
    let common = match common.as_deref() {
        Some([only]) => Some((*only).to_owned()),
        _ => None,
    };
    // What is a URI in the table is one in the certificate: nobody gets a role by a common name that looks like one.
    let common = common.filter(|name| !is_uri(name));
    let uris = certificate.valid_uri_names().filter(|uri| is_uri(uri));
    common.into_iter().chain(uris.map(str::to_owned)).collect()
}

/// Whether a name is meant as a URI.
pub(crate) fn is_uri(name: &str) -> bool {
    name.contains(':')
}

/// Says why, if there is room for that.
async fn turn_away(
    mut stream: TlsStream<TcpStream>,
    problem: Problem,
    limits: Limits,
    refused: &Semaphore,
) {
    match refused.try_acquire() {
        Ok(_listens) => refuse(stream, problem, limits).await,
        Err(_) => {
            let said = async {
                stream.write_all(&refusal(&problem)).await?;
                stream.shutdown().await
            };
            let _ = timeout(limits.refused_time, said).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::source;

    #[test]
    fn a_host_has_a_whole_prefix_of_ipv6() {
        let of = |text: &str| source(text.parse().expect("an address")).to_string();
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), "192.0.2.1");
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}
