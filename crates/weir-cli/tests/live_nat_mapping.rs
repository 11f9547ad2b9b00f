//! Mapping, filtering and hairpin as programs that talk peer to peer find them: a server that answers as STUN servers do (RFC 5780), from the
//! address and port that was asked, from another port, or from another address; and two hosts behind weir that punch holes. On XDP and on tc.

use std::process::{Child, Stdio};

use crate::live_bed::{Run, root};
use crate::live_path::{Path, run};

const PORTS: [&str; 2] = ["box0", "box1"];

/// Answers with who it saw, from the socket that the first byte names: this one, one with another port, one with another address.
const SERVER: &str = r"
import select, socket
places = [('10.0.2.2', 3478), ('10.0.2.2', 3479), ('10.0.2.3', 3478), ('10.0.2.3', 3479)]
sockets = []
for place in places:
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(place)
    sockets.append(s)
print('ready', flush=True)
while True:
    for s in select.select(sockets, [], [])[0]:
        data, peer = s.recvfrom(100)
        by = sockets[sockets.index(s) ^ int(data[:1])]
        by.sendto(repr(peer).encode(), peer)
";

/// Two hosts, one port: what each finds out, line by line.
const HOSTS: &str = r"
import select, socket
def host(address):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind((address, 4000))
    return s
def heard(s):
    if not select.select([s], [], [], 0.7)[0]:
        return None
    return s.recvfrom(100)
def seen(s, server, how=b'0'):
    s.sendto(how, server)
    answer = heard(s)
    return eval(answer[0]) if answer else None
a, b = host('10.0.1.2'), host('10.0.1.3')
main, other = ('10.0.2.2', 3478), ('10.0.2.3', 3479)
first, second = seen(a, main), seen(b, main)
print('kept', first == ('10.9.9.1', 4000), second[0] == '10.9.9.1' and second[1] != 4000 and second[1] % 2 == 0)
print('mapping', seen(b, ('10.0.2.2', 3479)) == second, seen(b, other) == second)
c = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
c.bind(('10.0.1.3', 4002))
own = seen(c, main)
print('other port', seen(c, main, b'1') == own)
print('other address', seen(c, main, b'2') == own)
# Both sides send at once, and again: what RFC 8445 calls connectivity checks.
got = set()
for turn in range(3):
    a.sendto(b'to b', second)
    b.sendto(b'to a', first)
    for s, name, peer in ((a, 'a', second), (b, 'b', first)):
        answer = heard(s)
        if answer and answer[1] == peer and answer[0].startswith(b'to'):
            got.add(name)
print('hairpin', 'a' in got, 'b' in got)
";

#[test]
fn peers_find_each_other_on_xdp() {
    if root("peers_find_each_other_on_xdp") {
        peers(&Path::build("weirn-ex"), "xdp");
    }
}

#[test]
fn peers_find_each_other_on_tc() {
    if root("peers_find_each_other_on_tc") {
        peers(&Path::build("weirn-et"), "tc");
    }
}

fn peers(path: &Path, hook: &str) {
    for (ns, address, dev) in [
        (&path.client, "10.0.1.3/24", "cl0"),
        (&path.server, "10.0.2.3/24", "sv0"),
    ] {
        let added = run(ns, "ip", &["address", "add", address, "dev", dev]);
        assert!(added.expect("ip runs").status.success());
    }
    let server = Server::start(path);
    for (options, found) in [
        ("", ["False False", "False", "False", "False False"]),
        (
            "mapping endpoint-independent",
            ["True True", "False", "False", "False False"],
        ),
        (
            "mapping endpoint-independent filtering address-dependent",
            ["True True", "True", "False", "True True"],
        ),
        (
            "mapping endpoint-independent filtering endpoint-independent",
            ["True True", "True", "True", "True True"],
        ),
    ] {
        let policy = format!(
            "nat: add-stateful in box0 ip-saddr 10.0.1.0/24 map ip-saddr 10.9.9.1 {options}\n"
        );
        let weir = Run::start(&path.middle, &policy, &PORTS, &["--hook", hook]);
        let output = run(&path.client, "python3", &["-c", HOSTS]).expect("python runs");
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        let report = weir.stop();
        let [mapping, port, address, hairpin] = found;
        let expected = format!(
            "kept True True\nmapping {mapping}\nother port {port}\nother address {address}\nhairpin {hairpin}\n"
        );
        assert_eq!(text, expected, "{options}: {report}");
        assert_eq!(
            report["packets"]["drop"],
            report["reasons"]["nat_filtered"].as_u64().unwrap_or(0),
            "{report}"
        );
    }
    drop(server);
    assert_eq!(path.checksum_errors(), 0);
}

/// The server of addresses.
struct Server {
    child: Child,
}

impl Server {
    fn start(path: &Path) -> Server {
        let mut child = (path.server.command("python3").expect("a command"))
            .args(["-uc", SERVER])
            .stdout(Stdio::piped())
            .spawn()
            .expect("python runs");
        let mut ready = [0; 6];
        let stdout = child.stdout.as_mut().expect("piped");
        std::io::Read::read_exact(stdout, &mut ready).expect("the server starts");
        Server { child }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
