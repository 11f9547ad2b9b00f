//! The address for other hosts: certificates and roles, what is refused and with which words, limits, and certificates that are renewed.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use hyper::Method;
use rustix::net::{AddressFamily, SocketType};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConnection, StreamOwned};
use weir_store::tls::{self, Endpoint, Identity};
use weir_testdata::etcd::{Authority, has_openssl};

use super::{MadeUp, PATIENCE};
use crate::agent::View;
use crate::api::client::{AgentClient, ClientError, Target};
use crate::api::hub::Hub;
use crate::api::keys::{Keys, Renewal};
use crate::api::limits::Limits;
use crate::api::remote::Remote;
use crate::api::server::{Places, Server};
use crate::api::{Api, asks};
use crate::event::Event;
use crate::settings::{ApiSettings, ClientRole, RemoteAddress, Socket};

/// A URI, as SPIFFE has them.
const OPS: &str = "spiffe://example.net/ops";

/// Certificates in a folder, and settings that name them.
struct Bed {
    authority: Authority,
    settings: ApiSettings,
}

impl Bed {
    fn new() -> Bed {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("weir-remote-{}-{next}", std::process::id());
        let authority = Authority::new(&std::env::temp_dir().join(name));
        authority.issue("agent", "/CN=agent", "IP:127.0.0.1", 2);
        authority.issue("noc", "/CN=noc", "DNS:noc.example.net", 2);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let path = |name: &str| Some(PathBuf::from(authority.path(name)));
        let settings = ApiSettings {
            socket: Socket::Off,
            listen: Some(RemoteAddress(address)),
            tls_certificate: path("agent.pem"),
            tls_key: path("agent.key"),
            client_ca: path("ca.pem"),
            clients: [
                ("noc".to_owned(), ClientRole::Read),
                (OPS.to_owned(), ClientRole::Operate),
            ]
            .into(),
            ..ApiSettings::default()
        };
        Bed {
            authority,
            settings,
        }
    }

    fn address(&self) -> SocketAddr {
        self.settings.listen.expect("it listens").0
    }

    fn serve(&self, limits: Limits) -> Server {
        let mut keys = Keys::default();
        let read = keys.look(&self.settings);
        assert!(matches!(read, Renewal::Authority), "{read:?}");
        let places = Places {
            remote: Some(Remote {
                address: self.address(),
                roles: Arc::new(self.settings.clients.clone()),
                keys: keys.follow().expect("keys"),
            }),
            ..Places::default()
        };
        let (queue, _) = asks::queue();
        let hub = Arc::<Hub>::default();
        Server::start(&places, limits, hub, Arc::new(MadeUp), queue).expect("it starts")
    }

    /// A client with the certificate of that name.
    fn client(&self, name: &str) -> AgentClient {
        self.client_at("127.0.0.1", &self.authority, name)
    }

    fn client_at(&self, host: &str, of: &Authority, name: &str) -> AgentClient {
        let (certificate, key) = (
            of.path(&format!("{name}.pem")),
            of.path(&format!("{name}.key")),
        );
        let identity = Identity {
            certificate: Path::new(&certificate),
            key: Path::new(&key),
        };
        let ca = self.authority.path("ca.pem");
        let target = Target::tls(self.endpoint(host), Path::new(&ca), identity);
        AgentClient::new(target.expect("files")).expect("a client")
    }

    fn endpoint(&self, host: &str) -> Endpoint {
        Endpoint {
            host: host.to_owned(),
            port: self.address().port(),
        }
    }

    /// A connection with the certificate of that name, to send anything by.
    fn raw(&self, name: &str) -> StreamOwned<ClientConnection, TcpStream> {
        let paths = [&format!("{name}.pem"), &format!("{name}.key"), "ca.pem"]
            .map(|name| self.authority.path(name));
        let identity = Identity {
            certificate: Path::new(&paths[0]),
            key: Path::new(&paths[1]),
        };
        let config = tls::client(Path::new(&paths[2]), Some(identity)).expect("files");
        let name = ServerName::try_from("127.0.0.1").expect("a name");
        let connection = ClientConnection::new(config, name).expect("a client");
        let stream = TcpStream::connect(self.address()).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        StreamOwned::new(connection, stream)
    }
}

/// A connection from another address of loopback.
fn from_elsewhere(port: u16) -> TcpStream {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None);
    let socket = socket.expect("a socket");
    let at = |last, port| SocketAddrV4::new([127, 0, 0, last].into(), port);
    rustix::net::bind(&socket, &at(2, 0)).expect("free");
    rustix::net::connect(&socket, &at(1, port)).expect("it listens");
    socket.into()
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.authority.folder);
    }
}

#[test]
fn a_role_follows_from_the_certificate() {
    if !has_openssl() {
        return;
    }
    let bed = Bed::new();
    let names = format!("URI:https://example.net/other,URI:{OPS}");
    bed.authority.issue("ops", "/CN=noc", &names, 2);
    bed.authority.issue("guest", "/CN=guest", "URI:urn:x", 2);
    bed.authority
        .issue("several", "/CN=other/CN=noc", "DNS:a", 2);
    let _server = bed.serve(Limits::default());
    let mut noc = bed.client("noc");
    let session = noc.get("/v1/session").expect("a role");
    assert_eq!(
        session,
        json!({ "user": "tls:noc", "role": "read", "seconds": 0 })
    );
    // The same connection.
    assert!(noc.get("/v1/edges/office").is_ok());
    let refused =
        |error: Result<serde_json::Value, ClientError>| error.expect_err("refused").to_string();
    let error = refused(noc.ask(Method::POST, "/v1/edges/office/rollback", None));
    assert!(error.contains(r#"`"noc" = "operate"`"#), "{error}");
    let error = refused(noc.ask(Method::POST, "/v1/session/link", None));
    assert!(error.contains("connect to the Unix socket"), "{error}");
    // The higher role of two names. The loop of the agent is gone, which is not a lack of rights.
    let mut ops = bed.client("ops");
    let session = ops.get("/v1/session").expect("a role");
    assert_eq!(session["user"], format!("tls:{OPS}"));
    assert_eq!(session["role"], "operate");
    let error = refused(ops.ask(Method::POST, "/v1/edges/office/rollback", None));
    assert!(error.contains("did not carry it out"), "{error}");
    let error = refused(bed.client("guest").get("/v1/session"));
    assert!(
        error.contains("`guest`, `urn:x`") && error.contains("[api.clients]"),
        "{error}"
    );
    // It is not said which of two common names is meant.
    assert!(refused(bed.client("several").get("/metrics")).contains("neither"));
}

#[test]
fn a_common_name_is_no_uri() {
    if !has_openssl() {
        return;
    }
    let mut bed = Bed::new();
    bed.settings.clients = [("urn:ops".to_owned(), ClientRole::Operate)].into();
    bed.authority.issue("false", "/CN=urn:ops", "DNS:a", 2);
    bed.authority.issue("true", "/CN=a", "URI:urn:ops", 2);
    let _server = bed.serve(Limits::default());
    assert!(bed.client("false").get("/v1/session").is_err());
    assert!(bed.client("true").get("/v1/session").is_ok());
}

#[test]
fn others_are_refused_with_the_next_step() {
    if !has_openssl() {
        return;
    }
    let bed = Bed::new();
    bed.authority.issue("late", "/CN=noc", "DNS:a", -1);
    let foreign = Authority::new(&bed.authority.folder.join("foreign"));
    foreign.issue("noc", "/CN=noc", "DNS:a", 2);
    foreign.issue("agent", "/CN=agent", "IP:127.0.0.1", 2);
    let server = bed.serve(Limits::default());
    let ca = bed.authority.path("ca.pem");
    let bare = Target::Tls {
        endpoint: bed.endpoint("127.0.0.1"),
        config: tls::client(Path::new(&ca), None).expect("files"),
    };
    let bare = AgentClient::new(bare).expect("a client");
    for (mut client, why) in [
        (bare, "give one with --cert and --key"),
        (bed.client("late"), "your certificate has expired"),
        (
            bed.client_at("127.0.0.1", &foreign, "noc"),
            "it does not trust the authority of your certificate",
        ),
        (
            bed.client_at("localhost", &bed.authority, "noc"),
            "its certificate is for another name",
        ),
    ] {
        let error = client.get("/v1/session").expect_err(why).to_string();
        assert!(error.contains(why), "{why}: {error}");
    }
    // HTTP without TLS gets no HTTP.
    let mut plain = TcpStream::connect(bed.address()).expect("it listens");
    plain.set_read_timeout(Some(PATIENCE)).expect("set");
    let _ = plain.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    // Another agent's certificate.
    drop(server);
    let error = bed
        .client("noc")
        .get("/v1/session")
        .expect_err("it is gone");
    assert!(error.to_string().contains("`[api] listen`"), "{error}");
    let mut settings = bed.settings.clone();
    settings.tls_certificate = Some(foreign.path("agent.pem").into());
    settings.tls_key = Some(foreign.path("agent.key").into());
    let mut api = Api::new(Arc::new(MadeUp));
    assert_eq!(api.hold(&settings).len(), 1);
    let error = bed.client("noc").get("/v1/session").expect_err("foreign");
    assert!(
        error.to_string().contains("no authority of --ca"),
        "{error}"
    );
}

#[test]
fn requests_of_other_hosts_have_the_same_limits() {
    if !has_openssl() {
        return;
    }
    let bed = Bed::new();
    let limits = Limits {
        head_time: Duration::from_millis(300),
        handshake_time: Duration::from_millis(300),
        ..Limits::default()
    };
    let _server = bed.serve(limits);
    bed.authority
        .issue("ops", "/CN=x", &format!("URI:{OPS}"), 2);
    // It is refused for what its head says: nothing of the body is waited for.
    let large = limits.body + 1;
    let mut ops = bed.raw("ops");
    let head = format!(
        "POST /v1/edges/office/plan HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {large}\r\n\r\n"
    );
    ops.write_all(head.as_bytes()).expect("sent");
    let mut answer = String::new();
    let _ = ops.read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    // A head that never ends, byte by byte.
    let mut slow = bed.raw("noc");
    let begun = Instant::now();
    while slow.write_all(b"G").and_then(|()| slow.flush()).is_ok() {
        assert!(begun.elapsed() < PATIENCE, "it may send for ever");
        std::thread::sleep(Duration::from_millis(20));
    }
    // A handshake that never ends.
    let mut mute = TcpStream::connect(bed.address()).expect("it listens");
    mute.set_read_timeout(Some(PATIENCE)).expect("set");
    let _ = mute.write_all(b"\x16\x03\x01\x02");
    let mut answer = Vec::new();
    let _ = mute.read_to_end(&mut answer);
    assert!(answer.is_empty(), "it is closed, and nothing is said");
    // A page of another site, in a browser that has a certificate.
    let mut page = bed.raw("noc");
    page.write_all(
        b"GET /v1/session HTTP/1.1\r\nHost: a\r\nOrigin: https://b\r\nConnection: close\r\n\r\n",
    )
    .expect("sent");
    let mut answer = String::new();
    let _ = page.read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
}

#[test]
fn a_thousand_idle_connections_take_nothing_from_clients_elsewhere() {
    if !has_openssl() {
        return;
    }
    let bed = Bed::new();
    let limits = Limits {
        handshake_time: Duration::from_secs(3),
        of_user: 3,
        ..Limits::default()
    };
    let (resource, files) = (Resource::Nofile, getrlimit(Resource::Nofile));
    let current = files.maximum;
    setrlimit(resource, Rlimit { current, ..files }).expect("up to the maximum");
    let mut everywhere = bed.settings.clone();
    let port = bed.address().port();
    everywhere.listen = Some(RemoteAddress(([0, 0, 0, 0], port).into()));
    let bed = Bed {
        settings: everywhere,
        authority: Authority {
            folder: bed.authority.folder.clone(),
        },
    };
    let _server = bed.serve(limits);
    let idle: Vec<TcpStream> = (0..1000).map(|_| from_elsewhere(port)).collect();
    let begun = Instant::now();
    let mut closed = 0;
    for mut stream in &idle[limits.handshakes_of_address..] {
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        let mut byte = [0];
        closed += usize::from(!matches!(stream.read(&mut byte), Ok(1..)));
    }
    assert_eq!(closed, 1000 - limits.handshakes_of_address);
    // The host that holds nothing is served while the others wait.
    let mut noc = bed.client("noc");
    noc.get("/v1/session").expect("served");
    let waited = begun.elapsed();
    // With a certificate there are places as well.
    let mut more: Vec<AgentClient> = (1..limits.of_user).map(|_| bed.client("noc")).collect();
    for client in &mut more {
        client.get("/v1/session").expect("served");
    }
    let error = bed.client("noc").get("/v1/session").expect_err("enough");
    assert!(
        error.to_string().contains("too many connections"),
        "{error}"
    );
    drop(more);
    // The first ones are closed, too: the address is served again.
    let until = Instant::now() + PATIENCE;
    let mut first = &idle[0];
    first.set_read_timeout(Some(PATIENCE)).expect("set");
    assert!(!matches!(first.read(&mut [0]), Ok(1..)));
    assert!(Instant::now() < until && waited < PATIENCE);
}

#[test]
fn certificates_are_renewed_while_it_serves() {
    if !has_openssl() {
        return;
    }
    let bed = Bed::new();
    let mut api = Api::new(Arc::new(MadeUp));
    let said = api.hold(&bed.settings);
    let line = format!("the API serves at https://{}/", bed.address());
    assert_eq!(said.first().map(Event::to_string), Some(line), "{said:?}");
    assert!(api.hold(&bed.settings).is_empty(), "said once");
    let mut open = bed.client("noc");
    open.get("/v1/session").expect("served");
    assert!(
        bed.client_at("localhost", &bed.authority, "noc")
            .get("/v1/session")
            .is_err()
    );
    // A half of a pair is not used.
    std::fs::write(bed.authority.path("agent.key"), "nothing").expect("written");
    let said = api.hold(&bed.settings);
    assert!(
        matches!(&said[..], [Event::Warning { text }] if text.contains("agent.key") && text.contains("the certificates before")),
        "{said:?}"
    );
    assert!(api.hold(&bed.settings).is_empty(), "said once");
    bed.client("noc")
        .get("/v1/session")
        .expect("served as before");
    let problems = |api: &mut Api| {
        api.show(View::default());
        let agent = bed.client("noc").get("/v1/agent").expect("served");
        agent["problems"].as_array().expect("a list").clone()
    };
    let found = problems(&mut api);
    assert!(
        found.len() == 1
            && found[0]
                .as_str()
                .is_some_and(|text| text.contains("agent.key")),
        "{found:?}"
    );
    bed.authority
        .issue("agent", "/CN=agent", "IP:127.0.0.1,DNS:localhost", 2);
    let said = api.hold(&bed.settings);
    assert!(matches!(&said[..], [Event::Renewed { .. }]), "{said:?}");
    bed.client_at("localhost", &bed.authority, "noc")
        .get("/v1/session")
        .expect("the renewed certificate");
    open.get("/v1/session")
        .expect("the open connection goes on");
    assert!(problems(&mut api).is_empty(), "they are read again");
    // Authorities that cannot be read lock nobody out, and nobody in: it is said, and seen, which ones hold.
    let ca = bed.authority.path("ca.pem");
    let right = std::fs::read(&ca).expect("there");
    std::fs::remove_file(&ca).expect("removed");
    let said = api.hold(&bed.settings);
    assert!(
        matches!(&said[..], [Event::Warning { text }] if text.contains("ca.pem") && text.contains("verified with the authorities before")),
        "{said:?}"
    );
    api.show(View::default());
    let agent = open.get("/v1/agent").expect("served as before");
    let text = agent["problems"][0].as_str().unwrap_or_default();
    assert!(text.contains("authorities before"), "{agent}");
    std::fs::write(&ca, right).expect("written");
    let said = api.hold(&bed.settings);
    assert!(
        !said.iter().any(|one| matches!(one, Event::Warning { .. })),
        "{said:?}"
    );
    let mut open = bed.client("noc");
    open.get("/v1/session").expect("served again");
    assert!(problems(&mut api).is_empty(), "they are read again");
    // Who signs clients' certificates is another: nobody goes on with what the former signed.
    let other = Authority::new(&bed.authority.folder.join("other"));
    other.issue("noc", "/CN=noc", "DNS:a", 2);
    let own = std::fs::read(bed.authority.path("ca.pem")).expect("there");
    let folder = bed.authority.folder.join("trusted");
    std::fs::create_dir(&folder).expect("made");
    std::fs::write(folder.join("ca.pem"), &own).expect("written");
    std::fs::copy(other.path("ca.pem"), bed.authority.path("ca.pem")).expect("copied");
    let said = api.hold(&bed.settings);
    assert!(matches!(&said[..], [Event::Serving { .. }]), "{said:?}");
    let target = |certificates: &Authority| {
        let paths = ["noc.pem", "noc.key"].map(|name| certificates.path(name));
        let identity = Identity {
            certificate: Path::new(&paths[0]),
            key: Path::new(&paths[1]),
        };
        let ca = folder.join("ca.pem");
        let target = Target::tls(bed.endpoint("127.0.0.1"), &ca, identity).expect("files");
        AgentClient::new(target).expect("a client")
    };
    assert!(
        open.get("/v1/session").is_err(),
        "it connects again, and is refused"
    );
    assert!(target(&bed.authority).get("/v1/session").is_err());
    target(&other).get("/v1/session").expect("served");
}
