//! GRE (PPTP included), ESP, SCTP, IPIP and AH through masquerading: raw sockets of the kernels at both ends, IPv4 and IPv6, on XDP and on tc.
//! Each is translated or dropped with its reason; the server never sees a private address.

use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::live_bed::{Run, root};
use crate::live_path::{ALIAS, Path, SERVER, run};

const PORTS: [&str; 2] = ["box0", "box1"];
const START: Duration = Duration::from_secs(30);

const MASQUERADE: &str = "nat4: add-stateful in box0 net-proto ip4 map ip-saddr 10.9.9.1\n\
    nat6: add-stateful in box0 ip6-saddr fd00:1::/64 map ip6-saddr fd00:9::1\n";

/// Answers each packet with the same bytes, the first eight turned around, and says who sent it.
const ECHO: &str = r"
import select, socket, sys
sockets = {}
for family in (socket.AF_INET, socket.AF_INET6):
    for number in map(int, sys.argv[1].split(',')):
        sockets[socket.socket(family, socket.SOCK_RAW, number)] = (family, number)
print('ready', flush=True)
while True:
    for s in select.select(list(sockets), [], [])[0]:
        data, peer = s.recvfrom(2000)
        family, number = sockets[s]
        body = data[20:] if family == socket.AF_INET else data
        print(number, peer[0], flush=True)
        s.sendto(body[2:4] + body[:2] + body[4:], peer)
";

/// Sends a packet from an address and says what came back within a second.
const ASK: &str = r"
import select, socket, sys
number, source, server, body = int(sys.argv[1]), sys.argv[2], sys.argv[3], bytes.fromhex(sys.argv[4])
family = socket.AF_INET6 if ':' in server else socket.AF_INET
s = socket.socket(family, socket.SOCK_RAW, number)
s.bind((source, 0))
s.sendto(body, (server, 0))
if not select.select([s], [], [], 1)[0]:
    print('nothing')
else:
    data, peer = s.recvfrom(2000)
    answer = data[20:] if family == socket.AF_INET else data
    print('answer' if peer[0] == server and answer == body[2:4] + body[:2] + body[4:] else 'wrong')
";

#[test]
fn protocols_without_ports_on_xdp() {
    if root("protocols_without_ports_on_xdp") {
        protocols(&Path::build("weirn-px"), "xdp");
    }
}

#[test]
fn protocols_without_ports_on_tc() {
    if root("protocols_without_ports_on_tc") {
        protocols(&Path::build("weirn-pt"), "tc");
    }
}

fn protocols(path: &Path, hook: &str) {
    for address in ["10.0.1.3/24", "fd00:1::3/64"] {
        let added = run(
            &path.client,
            "ip",
            &["address", "add", address, "dev", "cl0", "nodad"],
        );
        assert!(added.expect("ip runs").status.success());
    }
    let echo = Echo::start(path);
    let weir = Run::start(&path.middle, MASQUERADE, &PORTS, &["--hook", hook]);
    let ask = |number: u8, source: &str, server: &str, body: &str| {
        let number = number.to_string();
        let output = run(
            &path.client,
            "python3",
            &["-c", ASK, &number, source, server, body],
        );
        String::from_utf8_lossy(&output.expect("python runs").stdout)
            .trim()
            .to_owned()
    };
    let hosts = [["10.0.1.2", "10.0.1.3"], ["fd00:1::2", "fd00:1::3"]];
    for (server, [first, second]) in SERVER.into_iter().zip(hosts) {
        for (number, body) in [
            (47, "2000080000000001616263646566"),
            // PPTP: version 1, a call identifier.
            (47, "3001880b000400070000000170707021"),
            (50, "0000004d00000001000102030405060708090a0b0c0d0e0f"),
            (4, "4500001400010000400100000102030405060708"),
        ] {
            assert_eq!(
                ask(number, first, server, body),
                "answer",
                "{number} {server}"
            );
            assert_eq!(
                ask(number, second, server, body),
                "nothing",
                "{number} {server}"
            );
        }
        // SCTP: ports 4000 and 4001 to 2905.
        let sctp = |port: &str| format!("{port}0b590000000000000000000102030405");
        assert_eq!(ask(132, first, server, &sctp("0fa0")), "answer", "{server}");
        assert_eq!(
            ask(132, second, server, &sctp("0fa1")),
            "answer",
            "{server}"
        );
        assert_eq!(
            ask(132, second, server, &sctp("0fa0")),
            "nothing",
            "{server}"
        );
        // No next header, 24 bytes.
        let ah = "3b0400000000000100000001000000000000000000000000";
        assert_eq!(ask(51, first, server, ah), "nothing", "{server}");
    }
    let report = weir.stop();
    let reasons = &report["reasons"];
    assert_eq!(reasons["nat_peer_busy"], 10, "{report}");
    assert_eq!(reasons["nat_protocol"], 2, "{report}");
    assert_eq!(report["packets"]["drop"], 12, "{report}");
    let seen = echo.stop();
    assert_eq!(seen.len(), 12, "{seen:?}");
    for line in seen {
        assert!(
            ALIAS
                .iter()
                .any(|alias| line.ends_with(&format!(" {alias}"))),
            "{line}"
        );
    }
}

/// The server's raw sockets.
struct Echo {
    child: Child,
}

impl Echo {
    fn start(path: &Path) -> Echo {
        let mut child = (path.server.command("python3").expect("a command"))
            .args(["-uc", ECHO, "4,47,50,51,132"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("python runs");
        let end = Instant::now() + START;
        let stdout = child.stdout.as_mut().expect("piped");
        let mut ready = [0; 6];
        while std::io::Read::read_exact(stdout, &mut ready).is_err() {
            assert!(Instant::now() < end, "the server does not start");
            thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(&ready, b"ready\n");
        Echo { child }
    }

    /// Lines of protocol and sender.
    fn stop(mut self) -> Vec<String> {
        let mut text = String::new();
        self.child.kill().expect("it runs");
        let mut stdout = self.child.stdout.take().expect("piped");
        std::io::Read::read_to_string(&mut stdout, &mut text).expect("readable");
        text.lines().map(str::to_owned).collect()
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
