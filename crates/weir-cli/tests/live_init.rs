//! What `weir init` writes on a host with a network inside and one outside, applied as it is: real clients, and a session that is open already.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Output;
use std::thread;
use std::time::Duration;

use weir_kernel::NetNs;
use weir_kernel::bed::{self, End};

use crate::live_bed::{file, root, stderr};

const PATIENCE: Duration = Duration::from_millis(700);

/// A host inside, the host itself, and one outside.
struct Bed {
    inside: NetNs,
    host: NetNs,
    outside: NetNs,
    config: PathBuf,
    edge: String,
}

impl Bed {
    fn new(name: &str) -> Bed {
        let ns = |part: &str| NetNs::create(&format!("weiri-{name}-{part}")).expect("namespace");
        let (inside, host, outside) = (ns("i"), ns("h"), ns("o"));
        let end = |ns, name, addresses| End {
            ns,
            name,
            addresses,
        };
        bed::veth(
            end(&inside, "eth0", &["10.1.0.2/24"]),
            end(&host, "lan0", &["10.1.0.1/24"]),
        )
        .expect("veth");
        bed::veth(
            end(&outside, "eth0", &["192.0.2.2/24"]),
            end(&host, "wan0", &["192.0.2.1/24"]),
        )
        .expect("veth");
        let bed = Bed {
            inside,
            host,
            outside,
            config: file(&format!("{name}.toml"), ""),
            edge: format!("i{}-{name}", std::process::id()),
        };
        bed.ip(&bed.inside, "route add default via 10.1.0.1");
        bed.ip(&bed.host, "route add default via 192.0.2.2");
        bed.host
            .run(|| fs::write("/proc/sys/net/ipv4/ip_forward", "1"))
            .expect("namespace")
            .expect("a sysctl of the namespace");
        bed
    }

    fn ip(&self, ns: &NetNs, words: &str) {
        let mut command = ns.command("ip").expect("namespace");
        let done = command.args(words.split(' ')).status().expect("ip starts");
        assert!(done.success(), "ip {words}");
    }

    fn weir(&self, args: &[&str]) -> Output {
        let mut command = self
            .host
            .command(env!("CARGO_BIN_EXE_weir"))
            .expect("namespace");
        command.args(args).output().expect("weir starts")
    }

    #[track_caller]
    fn done(&self, args: &[&str]) -> Output {
        let output = self.weir(args);
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        output
    }

    /// Writes the configuration of a job with what the host shows by itself, and applies it.
    #[track_caller]
    fn init(&self, args: &[&str]) -> String {
        let path = self.config.to_str().expect("UTF-8");
        let fixed = ["--edge", &self.edge, "-o", path, "--force"];
        self.done(&[&["init"], args, &fixed].concat());
        self.done(&["apply", path]);
        fs::read_to_string(&self.config).expect("written")
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = self.weir(&["down", "--edge", &self.edge]);
    }
}

/// A server that answers every line with the address it came from.
fn serve(ns: &NetNs, address: &str) {
    let address: SocketAddr = address.parse().expect("an address");
    let listener = ns.run(|| TcpListener::bind(address)).expect("namespace");
    let listener = listener.expect("binds");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            thread::spawn(move || {
                let peer = stream.peer_addr().expect("connected").ip().to_string();
                let mut byte = [0; 1];
                while stream.read_exact(&mut byte).is_ok() {
                    if stream.write_all(format!("{peer}\n").as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
}

fn connect(ns: &NetNs, address: &str) -> Option<TcpStream> {
    let address: SocketAddr = address.parse().expect("an address");
    let stream = ns.run(|| TcpStream::connect_timeout(&address, PATIENCE));
    let stream = stream.expect("namespace").ok()?;
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    Some(stream)
}

/// What a server says of who asks; `None`: it does not answer.
fn asked(stream: &mut TcpStream) -> Option<String> {
    stream.write_all(b"?").ok()?;
    let mut said = Vec::new();
    let mut byte = [0; 1];
    while stream.read_exact(&mut byte).is_ok() && byte != *b"\n" {
        said.push(byte[0]);
    }
    String::from_utf8(said).ok().filter(|said| !said.is_empty())
}

/// What a server says to a new connection.
fn answer(ns: &NetNs, address: &str) -> Option<String> {
    asked(&mut connect(ns, address)?)
}

#[test]
fn a_gateway_works_as_it_is_written() {
    if !root("a_gateway_works_as_it_is_written") {
        return;
    }
    let bed = Bed::new("gate");
    serve(&bed.outside, "192.0.2.2:80");
    serve(&bed.inside, "10.1.0.2:80");
    serve(&bed.host, "0.0.0.0:8000");
    // Interfaces, the address outside and the network inside are found.
    let text = bed.init(&["gateway", "--forward", "8080=10.1.0.2:80"]);
    for found in [
        "\"wan0\"",
        "\"lan0\"",
        "{ 10.1.0.0/24 }",
        "ip-saddr 192.0.2.1",
    ] {
        assert!(text.contains(found), "{found}: {text}");
    }
    let said = |ns: &NetNs, address: &str| answer(ns, address);
    let outside = Some("192.0.2.1".to_owned());
    assert_eq!(said(&bed.inside, "192.0.2.2:80"), outside, "by NAT");
    assert_eq!(
        said(&bed.host, "192.0.2.2:80"),
        outside,
        "the gateway itself"
    );
    let inside = Some("10.1.0.2".to_owned());
    assert_eq!(
        said(&bed.inside, "10.1.0.1:8000"),
        inside,
        "inside to the gateway"
    );
    assert_eq!(
        said(&bed.outside, "192.0.2.1:8000"),
        None,
        "outside to the gateway"
    );
    let own = Some("10.1.0.1".to_owned());
    assert_eq!(
        said(&bed.host, "10.1.0.2:80"),
        own,
        "the gateway to a host inside"
    );
    let from = Some("192.0.2.2".to_owned());
    assert_eq!(
        said(&bed.outside, "192.0.2.1:8080"),
        from,
        "the forwarded port"
    );
    bed.ip(&bed.outside, "route add 10.1.0.0/24 via 192.0.2.1");
    assert_eq!(said(&bed.outside, "10.1.0.2:80"), None, "past the gateway");
}

#[test]
fn a_firewall_keeps_the_session_that_applies_it() {
    if !root("a_firewall_keeps_the_session_that_applies_it") {
        return;
    }
    let bed = Bed::new("fire");
    serve(&bed.host, "0.0.0.0:22");
    serve(&bed.host, "0.0.0.0:80");
    serve(&bed.host, "0.0.0.0:8000");
    serve(&bed.outside, "192.0.2.2:80");
    let mut session = connect(&bed.outside, "192.0.2.1:22").expect("no firewall yet");
    let from = Some("192.0.2.2".to_owned());
    assert_eq!(asked(&mut session), from);
    assert_eq!(answer(&bed.outside, "192.0.2.1:8000"), from);
    bed.init(&["firewall", "--tcp", "http", "--ssh-from", "192.0.2.0/25"]);
    assert_eq!(
        asked(&mut session),
        from,
        "a session that was open before goes on"
    );
    assert_eq!(answer(&bed.outside, "192.0.2.1:22"), from, "a new one");
    assert_eq!(answer(&bed.outside, "192.0.2.1:80"), from, "an open port");
    assert_eq!(answer(&bed.outside, "192.0.2.1:8000"), None, "a closed one");
    let own = Some("192.0.2.1".to_owned());
    assert_eq!(
        answer(&bed.host, "192.0.2.2:80"),
        own,
        "what the host begins"
    );
    // SSH is for the networks that were named.
    bed.init(&["firewall", "--ssh-from", "198.51.100.0/24"]);
    assert_eq!(answer(&bed.outside, "192.0.2.1:22"), None);
    assert_eq!(answer(&bed.outside, "192.0.2.1:80"), None);
}
