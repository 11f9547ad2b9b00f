//! Helpers with real clients: curl as TFTP client, and a server that answers from another port for each file, as all servers do. On XDP and on tc,
//! through NAT on receive and on transmit, past a firewall without NAT, and to a server behind a forwarded port.

use std::process::{Child, Command, Stdio};

use weir_kernel::NetNs;

use crate::live_bed::{Run, matched, root};
use crate::live_path::{Path, message, run};

const PORTS: [&str; 2] = ["box0", "box1"];
const HOOKS: [&str; 2] = ["tc", "xdp"];

/// Serves one file, keeps what is written, each transfer from a port of its own; tells lengths of what was written.
const SERVER: &str = r"
import socket, struct, sys, threading
content = open(sys.argv[1], 'rb').read()
def transfer(request, peer, family):
    s = socket.socket(family, socket.SOCK_DGRAM)
    s.settimeout(1)
    def ask(packet):
        for turn in range(5):
            s.sendto(packet, peer)
            try:
                return s.recvfrom(2000)
            except socket.timeout:
                pass
        raise SystemExit
    if request[1] == 1:
        for number in range(len(content) // 512 + 1):
            block = content[number * 512:][:512]
            ask(struct.pack('!HH', 3, number + 1) + block)
        return
    got, number = b'', 0
    while True:
        data, peer = ask(struct.pack('!HH', 4, number))
        number += 1
        got += data[4:]
        if len(data) < 516:
            break
    s.sendto(struct.pack('!HH', 4, number), peer)
    print('written', got == content, flush=True)
def serve(family, address):
    s = socket.socket(family, socket.SOCK_DGRAM)
    s.bind((address, 69))
    print('ready', flush=True)
    while True:
        request, peer = s.recvfrom(1000)
        threading.Thread(target=transfer, args=(request, peer, family)).start()
threading.Thread(target=serve, args=(socket.AF_INET, '0.0.0.0')).start()
six = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
six.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
six.bind(('::', 69))
print('ready', flush=True)
while True:
    request, peer = six.recvfrom(1000)
    threading.Thread(target=transfer, args=(request, peer, socket.AF_INET6)).start()
";

pub(crate) struct Server {
    child: Child,
}

impl Server {
    pub(crate) fn start(ns: &NetNs, file: &str) -> Server {
        let mut child = (ns.command("python3").expect("a command"))
            .args(["-uc", SERVER, file])
            .stdout(Stdio::piped())
            .spawn()
            .expect("python runs");
        let mut ready = [0; 12];
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

/// Whether a client gets the file, and its bytes are right.
pub(crate) fn gets(ns: &NetNs, server: &str) -> bool {
    let address = format!("tftp://{server}/boot");
    let args = ["-s", "-g", "--max-time", "3", "--tftp-no-options", &address];
    let output = run(ns, "curl", &args).expect("curl runs");
    output.status.success() && output.stdout == message(5_000)
}

/// Whether it can write one.
fn puts(ns: &NetNs, server: &str, file: &str) -> bool {
    let address = format!("tftp://{server}/boot");
    let args = [
        "-s",
        "-g",
        "--max-time",
        "3",
        "--tftp-no-options",
        "-T",
        file,
        &address,
    ];
    run(ns, "curl", &args).expect("curl runs").status.success()
}

pub(crate) fn file() -> String {
    let path = crate::live_bed::file("tftp", "");
    std::fs::write(&path, message(5_000)).expect("writable");
    path.to_str().expect("a path in UTF-8").to_owned()
}

#[test]
fn tftp_passes_nat_and_firewall() {
    if !root("tftp_passes_nat_and_firewall") {
        return;
    }
    let path = Path::build("weirhp");
    let file = file();
    let server = Server::start(&path.server, &file);
    let inside = Server::start(&path.client, &file);
    assert!(gets(&path.client, "10.0.2.2"), "without weir");
    for hook in HOOKS {
        let hook = ["--hook", hook];
        let with = |policy: &str, more: &[&str], works: bool| {
            for helper in ["", "helper tftp"] {
                let policy = policy.replace("HELPER", helper);
                let args = [&hook[..], more].concat();
                let weir = Run::start(&path.middle, &policy, &PORTS, &args);
                let works = works && !helper.is_empty();
                assert_eq!(gets(&path.client, "10.0.2.2"), works, "{policy} {args:?}");
                if works {
                    assert!(puts(&path.client, "10.0.2.2", &file), "{policy} {args:?}");
                }
                let report = weir.stop();
                assert!(matched(&report, "tftp") > 0, "{report}");
            }
        };
        with(
            "nat: add-stateful in box0 ip-saddr 10.0.1.0/24 map ip-saddr 10.9.9.1\n\
             tftp: add-stateful in box0 udp-dport 69 accept HELPER\n",
            &[],
            true,
        );
        with(
            "tftp: add-stateful in box0 udp-dport 69 accept HELPER\n\
             in box1 udp-dport 1-65535 drop\n",
            &[],
            true,
        );
        // Six, and a port that is forwarded.
        for (helper, works) in [("", false), ("helper tftp", true)] {
            let policy = format!(
                "tftp: add-stateful in box0 udp-dport 69 accept {helper}\n\
                 forward: add-stateful in box1 ip-daddr 10.9.9.1 udp-dport 69 map ip-daddr 10.0.1.2 accept {helper}\n\
                 in box1 udp-dport 1-65535 drop\nin box0 udp-dport 1-65535 ip-daddr 10.0.2.0/24 drop\n"
            );
            let weir = Run::start(&path.middle, &policy, &PORTS, &hook);
            assert_eq!(gets(&path.client, "[fd00:2::2]"), works, "{helper}");
            assert_eq!(gets(&path.server, "10.9.9.1"), works, "{helper}");
            weir.stop();
        }
    }
    // Masquerading behind the interface's own address, where packets leave.
    for ports in [&PORTS[..], &PORTS[1..]] {
        for (helper, works) in [("", false), ("helper tftp", true)] {
            let policy = format!(
                "tftp: add-stateful out box1 ip-saddr 10.0.1.0/24 map ip-saddr 10.0.4.1 {helper}\n"
            );
            let args = ["--hook", "tc", "--egress"];
            let weir = Run::start(&path.middle, &policy, ports, &args);
            assert_eq!(gets(&path.client, "10.0.2.2"), works, "{helper} {ports:?}");
            weir.stop();
        }
    }
    drop((server, inside));
    assert_eq!(path.checksum_errors(), 0);
}

/// A server that abuses what it was asked: sends from ports and addresses, each datagram with its name.
const ABUSER: &str = r"
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('10.0.2.2', 69))
print('ready', flush=True)
while True:
    request, peer = s.recvfrom(1000)
    def send(address, payload, to=peer):
        other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        other.bind((address, 0))
        other.sendto(payload, to)
        return other
    time.sleep(2.2 if b'late' in request else 0)
    send('10.0.2.3', b'\0\3\0\1another host')
    send('10.0.2.2', b'\0\1another opcode\0')
    send('10.0.2.2', b'\0\3\0\1another port', (peer[0], peer[1] + 1))
    first = send('10.0.2.2', b'\0\3\0\1first')
    send('10.0.2.2', b'\0\3\0\1second')
    first.sendto(b'\0\3\0\2first again', peer)
";

const VICTIM: &str = r"
import select, socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('10.0.1.2', int(sys.argv[2])))
t = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
t.bind(('10.0.1.2', int(sys.argv[2]) + 1))
s.sendto(bytes.fromhex(sys.argv[1]), ('10.0.2.2', 69))
while True:
    ready = select.select([s, t], [], [], float(sys.argv[3]))[0]
    if not ready:
        break
    print(ready[0].recvfrom(1000)[0][4:].decode())
";

#[test]
fn a_server_gets_no_further_than_it_was_asked() {
    if !root("a_server_gets_no_further_than_it_was_asked") {
        return;
    }
    let path = Path::build("weirha");
    let added = run(
        &path.server,
        "ip",
        &["address", "add", "10.0.2.3/24", "dev", "sv0"],
    );
    assert!(added.expect("ip runs").status.success());
    let mut command: Command = path.server.command("python3").expect("a command");
    let mut child = command
        .args(["-uc", ABUSER])
        .stdout(Stdio::piped())
        .spawn()
        .expect("python runs");
    let mut ready = [0; 6];
    let stdout = child.stdout.as_mut().expect("piped");
    std::io::Read::read_exact(stdout, &mut ready).expect("the server starts");
    let server = Server { child };
    let policy = "timeout expectation 1s\n\
        nat: add-stateful in box0 ip-saddr 10.0.1.0/24 map ip-saddr 10.9.9.1\n\
        tftp: add-stateful in box0 udp-dport 69 accept helper tftp\n\
        in box1 ip-daddr 10.9.9.1 drop\n";
    for hook in HOOKS {
        for (port, request, wait, heard) in [
            (
                "4000",
                "00016200 6f6374657400",
                "0.7",
                "first\nfirst again\n",
            ),
            // Not ended, a helper's port of a service, and too late.
            ("4002", "00016200 6f63746574", "0.7", ""),
            ("1000", "00016200 6f6374657400", "0.7", ""),
            ("4004", "00016c617465 00 6f6374657400", "3", ""),
        ] {
            let weir = Run::start(&path.middle, policy, &PORTS, &["--hook", hook]);
            let request = request.replace(' ', "");
            let args = ["-c", VICTIM, &request, port, wait];
            let output = run(&path.client, "python3", &args).expect("python runs");
            let text =
                String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
            let report = weir.stop();
            assert_eq!(text, heard, "{hook} {port} {request}: {report}");
            let refused = if heard.is_empty() { 6 } else { 4 };
            assert_eq!(
                report["reasons"]["rule_drop"], refused,
                "{hook} {port}: {report}"
            );
        }
    }
    drop(server);
}
