//! Every packet that leaves an edge by redirect or transmission is accounted for where it ends: what arrives is counted at the far end, and
//! equals what `weir status` says was sent; the rest is lost for a reason, and `weir apply` and `weir doctor` said how to cure it.
//!
//! ```text
//! source: far0 ---- in0 [edge] out0 ---- end0: target       (function `cookies` answers: there the target is far0)
//! ```

use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::live_bed::{file, root, stderr, weir};
use serde_json::Value;
use weir_kernel::bed::{self, End};
use weir_kernel::{Frames, KernelObject, Link, NetNs, PacketSocket, Tap, XdpMode, iface};
use weir_packet::build::Frame;

/// Packets of a case.
const N: u64 = 200;
/// Longest wait for packets to arrive.
const PATIENCE: Duration = Duration::from_secs(30);
const MARK: &[u8] = b"counted at the far end";
const VLAN: u16 = 7;

/// What takes the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    /// A veth; whether its far end has GRO, and an XDP program.
    Veth { gro: bool, program: bool },
    /// A tap that this process has opened.
    Tap,
    /// A veth that is a port of a bridge; its far end has GRO.
    BridgePort,
    /// A veth with packets of a VLAN; its far end has GRO.
    Vlan,
}

const TARGETS: [Target; 7] = [
    Target::Veth {
        gro: true,
        program: false,
    },
    Target::Veth {
        gro: false,
        program: false,
    },
    Target::Veth {
        gro: true,
        program: true,
    },
    Target::Veth {
        gro: false,
        program: true,
    },
    Target::Tap,
    Target::BridgePort,
    Target::Vlan,
];

impl Target {
    fn has_gro(self) -> bool {
        !matches!(self, Target::Veth { gro: false, .. })
    }

    fn has_program(self) -> bool {
        matches!(self, Target::Veth { program: true, .. })
    }

    /// Whether it takes frames of native XDP.
    fn takes(self) -> bool {
        self.has_gro() || self.has_program()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    Redirect,
    Router,
    Balancer,
    Cookies,
}

/// Where frames go in and come out.
enum Port {
    Veth(PacketSocket),
    Tap(Tap),
}

impl Port {
    fn send(&mut self, frame: &[u8]) {
        match self {
            Port::Veth(socket) => socket.send(frame).expect("sends"),
            Port::Tap(tap) => tap.send(frame).expect("sends"),
        }
    }

    /// Frames that are there and are what is looked for.
    fn receive(&mut self, wanted: impl Fn(&[u8]) -> bool) -> u64 {
        let mut found = 0;
        match self {
            Port::Veth(socket) => {
                let mut frames = Frames::new();
                while socket.receive(&mut frames).expect("receives") > 0 {
                    found += frames.iter().filter(|(frame, _)| wanted(frame)).count() as u64;
                }
            }
            Port::Tap(tap) => {
                while let Some(frame) = tap.receive().expect("reads") {
                    found += u64::from(wanted(&frame));
                }
            }
        }
        found
    }
}

struct Bed {
    left: NetNs,
    middle: NetNs,
    right: NetNs,
    edge: String,
    /// A program at the far end.
    _program: Option<Link>,
}

impl Bed {
    fn namespaces(name: &str) -> Bed {
        let ns = |what: &str| NetNs::create(&format!("weir-acc-{what}")).expect("namespace");
        let bed = Bed {
            left: ns("l"),
            middle: ns("m"),
            right: ns("r"),
            edge: format!("acc-{name}-{}", std::process::id()),
            _program: None,
        };
        for ns in [&bed.left, &bed.middle, &bed.right] {
            for which in ["all", "default"] {
                ns.sysctl(&format!("net.ipv6.conf.{which}.disable_ipv6"), "1")
                    .expect("IPv6 off");
            }
        }
        bed
    }

    fn veths(&self) {
        let end = |ns, name, addresses| End {
            ns,
            name,
            addresses,
        };
        bed::veth(
            end(&self.middle, "in0", &["10.82.1.1/24"]),
            end(&self.left, "far0", &["10.82.1.2/24"]),
        )
        .expect("veth");
        bed::veth(
            end(&self.middle, "out0", &["10.82.2.1/24"]),
            end(&self.right, "end0", &["10.82.2.2/24"]),
        )
        .expect("veth");
    }

    /// A bed of the matrix; where its packets begin and where they should end.
    fn new(name: &str, function: Function, target: Target) -> (Bed, Port, Option<Port>) {
        let mut bed = Bed::namespaces(name);
        bed.veths();
        let answers = function == Function::Cookies;
        // The device whose far end is the target, and that.
        let (near, (ns, far)) = match answers {
            true => ("in0", (&bed.left, "far0")),
            false => ("out0", (&bed.right, "end0")),
        };
        let gro = if target.has_gro() { "on" } else { "off" };
        ns.output("ethtool", &["-K", far, "gro", gro])
            .expect("ethtool");
        match target {
            Target::BridgePort => {
                bed.middle
                    .ip(&["link", "add", "br0", "type", "bridge"])
                    .expect("bridge");
                bed.middle
                    .ip(&["link", "set", near, "master", "br0"])
                    .expect("port");
                bed.middle.ip(&["link", "set", "br0", "up"]).expect("up");
            }
            Target::Vlan => {
                // Tags stay in the frames.
                for (ns, device, feature) in [
                    (&bed.middle, "in0", "rxvlan"),
                    (&bed.middle, "out0", "rxvlan"),
                    (&bed.left, "far0", "txvlan"),
                    (&bed.right, "end0", "txvlan"),
                ] {
                    ns.offloads_off(device, &[feature]).expect("ethtool");
                }
            }
            _ => {}
        }
        if target.has_program() {
            let elf = weir_bpf::baseline("harness").expect("compiled");
            let pass = KernelObject::open(elf).and_then(|object| object.load("harness"));
            let pass = pass.expect("loads");
            let link = ns
                .run(|| pass.attach_xdp(iface::index_of(far)?, XdpMode::Native))
                .expect("namespace")
                .expect("attached");
            bed._program = Some(link);
        }
        let tap = (target == Target::Tap).then(|| {
            bed.middle
                .ip(&["link", "delete", near])
                .expect("made before");
            let tap = bed.middle.run(|| Tap::open(near)).expect("namespace");
            let tap = tap.expect("a tap");
            bed.middle.ip(&["link", "set", near, "up"]).expect("up");
            tap
        });
        let socket = |ns: &NetNs, device: &str| {
            let opened = ns.run(|| PacketSocket::open(device)).expect("namespace");
            Port::Veth(opened.expect("opens"))
        };
        match (answers, tap) {
            (true, Some(tap)) => (bed, Port::Tap(tap), None),
            (true, None) => {
                let source = socket(&bed.left, "far0");
                (bed, source, None)
            }
            (false, Some(tap)) => {
                let source = socket(&bed.left, "far0");
                (bed, source, Some(Port::Tap(tap)))
            }
            (false, None) => {
                let (source, target) = (socket(&bed.left, "far0"), socket(&bed.right, "end0"));
                (bed, source, Some(target))
            }
        }
    }

    fn weir(&self, args: &[&str]) -> Output {
        weir(&self.middle, args)
    }

    /// Applies an edge; what that said.
    fn apply(&self, config: &str) -> String {
        let config = file(
            "accounts.toml",
            &format!("edge = \"{}\"\n{config}", self.edge),
        );
        let applied = self.weir(&["apply", config.to_str().expect("UTF-8")]);
        assert!(applied.status.success(), "{}", stderr(&applied));
        let said = [&applied.stdout[..], &applied.stderr].concat();
        String::from_utf8_lossy(&said).into_owned()
    }

    fn json(&self) -> Value {
        let status = self.weir(&["status", "--edge", &self.edge, "--json"]);
        let all: Value = serde_json::from_slice(&status.stdout).expect("JSON");
        all["edges"][0].clone()
    }

    fn words(&self, command: &[&str]) -> String {
        let output = self.weir(command);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn mac(&self, device: &str) -> [u8; 6] {
        let found = self.middle.run(|| iface::find(device)).expect("namespace");
        found.expect("there").mac
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.weir(&["down", "--edge", &self.edge]);
    }
}

/// The configuration of a function between the two ports.
fn config(function: Function, target: Target, mode: &str) -> String {
    let port = |name, device| {
        format!("[[port]]\nname = \"{name}\"\ndevice = \"{device}\"\nmode = \"{mode}\"\n")
    };
    let link = "[[link]]\nfrom = \"in\"\nto = \"it\"\n";
    let input = port("in", "in0");
    let both = format!("{input}{}", port("out", "out0"));
    let vlan = |device| match target {
        Target::Vlan => format!("vlan = {VLAN}\ndevice = \"{device}\"\n"),
        _ => String::new(),
    };
    let (vlan_in, vlan_out) = (vlan("in0"), vlan("out0"));
    match function {
        Function::Redirect => format!(
            "{input}[[function]]\nname = \"it\"\nkind = \"redirect\"\ndevice = [\"out0\"]\n{link}"
        ),
        Function::Router => format!(
            "{both}[[function]]\nname = \"it\"\nkind = \"router\"\ntable = \"own\"\n\
             routes = [\"198.51.100.0/24 via 10.82.2.2 lladdr 02:00:00:00:00:99\"]\n\
             [[function.interface]]\nport = \"in\"\n{vlan_in}address = [\"10.82.1.1/24\"]\n\
             [[function.interface]]\nport = \"out\"\n{vlan_out}address = [\"10.82.2.1/24\"]\n{link}"
        ),
        Function::Balancer => format!(
            "{both}[[function]]\nname = \"it\"\nkind = \"balancer\"\n\
             [[function.service]]\nname = \"s\"\naddress = \"198.51.100.1\"\nprotocol = \"udp\"\nport = 9\nmode = \"dsr\"\n\
             [[function.service.server]]\naddress = \"10.82.2.2\"\nmac = \"02:00:00:00:00:99\"\nto = \"out\"\n{link}"
        ),
        Function::Cookies => format!(
            "{input}[[function]]\nname = \"it\"\nkind = \"filter\"\nrules = [\"syncookie to-port 80\"]\n{link}"
        ),
    }
}

/// One frame of a case.
fn frame(bed: &Bed, function: Function, target: Target, number: u64) -> Vec<u8> {
    let start = match target {
        Target::Vlan => Frame::new().vlan(VLAN),
        _ => Frame::new(),
    };
    let source = 1024 + number as u16;
    let frame = match function {
        Function::Cookies => start
            .ip4([10, 82, 1, 2], [10, 82, 1, 1])
            .tcp(source, 80)
            .flags(2),
        _ => start
            .ip4([10, 82, 1, 2], [198, 51, 100, 1])
            .ttl(9)
            .udp(source, 9)
            .payload(MARK),
    };
    let mut bytes = frame.build();
    bytes[..6].copy_from_slice(&bed.mac("in0"));
    bytes[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    bytes
}

/// Whether a frame that arrived is one of those that are counted.
fn counts(function: Function, frame: &[u8]) -> bool {
    if function != Function::Cookies {
        return frame.windows(MARK.len()).any(|bytes| bytes == MARK);
    }
    const SYN_ACK: u8 = 0x12;
    let ip = if frame[12..14] == [0x81, 0] { 18 } else { 14 };
    // TCP behind an IPv4 header without options, from port 80.
    let tcp = ip + 20;
    frame.len() > tcp + 13
        && frame[ip + 9] == 6
        && frame[tcp..tcp + 2] == [0, 80]
        && frame[tcp + 13] == SYN_ACK
}

fn case(function: Function, target: Target, mode: &str) {
    let what = format!("{function:?}, {target:?}, {mode}");
    let name = format!("{function:?}-{mode}").to_lowercase();
    let (bed, mut source, mut sink) = Bed::new(&name, function, target);
    let said = bed.apply(&config(function, target, mode));
    let device = if sink.is_some() { "out0" } else { "in0" };
    // Native frames need a far end that takes them; socket buffers of generic mode do not.
    let takes = mode == "generic" || target.takes();
    let warned = said.contains(&format!("{device} takes no redirected frames"));
    assert_eq!(warned, !takes, "{what}: {said}");
    if !takes {
        let (ns, far) = match device {
            "in0" => (&bed.left, "far0"),
            _ => (&bed.right, "end0"),
        };
        let cure = format!("`ip netns exec {} ethtool -K {far} gro on`", ns.name());
        assert!(said.contains(&cure), "{what}: {said}");
    }
    for number in 0..N {
        source.send(&frame(&bed, function, target, number));
    }
    let end = Instant::now() + PATIENCE;
    let mut arrived = 0;
    let (json, sent, lost, handed) = loop {
        let port = sink.as_mut().unwrap_or(&mut source);
        arrived += port.receive(|frame| counts(function, frame));
        let json = bed.json();
        let ledger = &json["functions"][0]["ledger"];
        let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{json}"));
        let verdicts = &ledger["verdicts"];
        let handed = number(&verdicts["redirect"]) + number(&verdicts["tx"]);
        let all = json["second_stage"]["devices"].as_array().expect("a list");
        let account = all.iter().find(|one| one["device"] == device);
        let account = account.unwrap_or_else(|| panic!("{what}: {json}"));
        let ways = [&account["redirected"], &account["transmitted"]];
        let sent: u64 = ways.iter().map(|way| number(&way["sent"])).sum();
        let dropped = ways.map(|way| way["dropped"].as_object().expect("reasons").clone());
        let lost: u64 = dropped
            .iter()
            .flat_map(|all| all.values())
            .map(number)
            .sum();
        let done = number(&ledger["received"]) >= N && sent + lost == handed && arrived >= sent;
        if done || Instant::now() > end {
            break (json, sent, lost, handed);
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    // Nothing comes later.
    std::thread::sleep(Duration::from_millis(20));
    let port = sink.as_mut().unwrap_or(&mut source);
    arrived += port.receive(|frame| counts(function, frame));
    let words = bed.words(&["status", "--edge", &bed.edge]);
    // SYNs that the server's own cookies need go on to the stack.
    let least = if function == Function::Cookies {
        N - 5
    } else {
        N
    };
    assert!(handed >= least, "{what}: {handed} handed over: {words}");
    assert_eq!(handed, sent + lost, "{what}: {words}");
    assert_eq!(arrived, sent, "{what}: {words}");
    assert_eq!(lost, if takes { 0 } else { handed }, "{what}: {words}");
    assert_eq!(json["second_stage"]["unaccounted"], 0, "{what}: {json}");
    assert!(!words.contains("unaccounted"), "{what}: {words}");
    assert_eq!(
        words.contains("because the device takes no XDP frames"),
        !takes,
        "{what}: {words}"
    );
}

fn matrix(function: Function) {
    for target in TARGETS {
        for mode in ["native", "generic"] {
            case(function, target, mode);
        }
    }
}

#[test]
fn redirected_packets_arrive_or_are_lost_for_a_reason() {
    if root("redirected_packets_arrive_or_are_lost_for_a_reason") {
        matrix(Function::Redirect);
    }
}

#[test]
fn routed_packets_arrive_or_are_lost_for_a_reason() {
    if root("routed_packets_arrive_or_are_lost_for_a_reason") {
        matrix(Function::Router);
    }
}

#[test]
fn balanced_packets_arrive_or_are_lost_for_a_reason() {
    if root("balanced_packets_arrive_or_are_lost_for_a_reason") {
        matrix(Function::Balancer);
    }
}

#[test]
fn answers_with_cookies_arrive_or_are_lost_for_a_reason() {
    if root("answers_with_cookies_arrive_or_are_lost_for_a_reason") {
        matrix(Function::Cookies);
    }
}

/// A router between two hosts as a new user has them: veths whose far ends lie in other namespaces, GRO off.
#[test]
fn a_router_between_veths_without_gro_says_what_is_lost_and_how_to_cure_it() {
    const SENT: u64 = 9;
    if !root("a_router_between_veths_without_gro_says_what_is_lost_and_how_to_cure_it") {
        return;
    }
    let bed = Bed::namespaces("user");
    bed.veths();
    bed::forward(&bed.middle).expect("forwards");
    bed::default_route(&bed.left, "10.82.1.1").expect("route");
    let far = bed.right.run(|| iface::find("end0")).expect("namespace");
    let mac = far
        .expect("there")
        .mac
        .map(|byte| format!("{byte:02x}"))
        .join(":");
    let neighbour = [
        "neigh",
        "add",
        "10.82.2.2",
        "lladdr",
        &mac,
        "dev",
        "out0",
        "nud",
        "permanent",
    ];
    bed.middle.ip(&neighbour).expect("neighbour");
    let said = bed.apply(
        "[[port]]\nname = \"lan\"\ndevice = \"in0\"\n[[port]]\nname = \"wan\"\ndevice = \"out0\"\n\
         [[function]]\nname = \"core\"\nkind = \"router\"\n\
         [[link]]\nfrom = \"lan\"\nto = \"core\"\n[[link]]\nfrom = \"wan\"\nto = \"core\"\n",
    );
    let server = bed.right.run(|| UdpSocket::bind("10.82.2.2:9"));
    let server = server.expect("namespace").expect("binds");
    server.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let client = bed.left.run(|| UdpSocket::bind("10.82.1.2:0"));
    let client = client.expect("namespace").expect("binds");
    let send = || {
        for _ in 0..SENT {
            client.send_to(MARK, "10.82.2.2:9").expect("sends");
        }
    };
    let status = || bed.words(&["status", "--edge", &bed.edge]);
    let wait = |line: &str| {
        let end = Instant::now() + PATIENCE;
        while !status().contains(line) {
            assert!(Instant::now() < end, "{line}: {}", status());
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    // Said before anything is lost, with the command to run.
    let there = bed.right.name();
    let cure = format!("`ip netns exec {there} ethtool -K end0 gro on`");
    let warning = format!(
        "out0 takes no redirected frames until its far end has an XDP program or its GRO on: {cure}"
    );
    assert!(said.contains(&warning), "{said}");
    assert!(
        status().contains(&format!("warning: {warning}")),
        "{}",
        status()
    );
    let doctor = bed.words(&["doctor"]);
    assert!(
        doctor.contains(&format!("edge {}: {warning}", bed.edge)),
        "{doctor}"
    );
    send();
    wait(&format!(
        "redirected to out0: 0 sent, {SENT} not, because the device takes no XDP frames"
    ));
    let top = bed.words(&["top", "--edge", &bed.edge, "--once", "--interval", "0.1"]);
    assert!(top.contains(&format!("warning: {warning}")), "{top}");
    // As it was told.
    bed.right
        .output("ethtool", &["-K", "end0", "gro", "on"])
        .expect("ethtool");
    assert!(!status().contains("out0 takes no"), "{}", status());
    send();
    wait(&format!("redirected to out0: {SENT} sent, {SENT} not"));
    let mut bytes = [0; 100];
    for _ in 0..SENT {
        let got = server.recv(&mut bytes).expect("arrives");
        assert_eq!(&bytes[..got], MARK);
    }
    assert_eq!(bed.json()["second_stage"]["unaccounted"], 0);
}

/// Packets of generic ports that an object redirects by itself are told of by nobody, wherever they end: then that is said.
#[test]
fn what_no_account_has_is_unaccounted() {
    if !root("what_no_account_has_is_unaccounted") {
        return;
    }
    let gro = Target::Veth {
        gro: true,
        program: false,
    };
    let object = compile("leave");
    for (mode, to, unaccounted) in [
        ("native", "out0", 0),
        ("generic", "out0", N),
        // Sent back: by a redirect of weir's, since the far end has no program.
        ("native", "", 0),
        ("generic", "", 0),
    ] {
        let what = format!("{mode}, {to}");
        let (bed, mut source, sink) = Bed::new(&format!("none-{mode}"), Function::Redirect, gro);
        let mut sink = sink.expect("a device behind the edge");
        let device = match to {
            "" => 0,
            name => {
                let index = bed.middle.run(|| iface::index_of(name));
                index.expect("namespace").expect("there")
            }
        };
        bed.left
            .output("ethtool", &["-K", "far0", "gro", "on"])
            .expect("ethtool");
        let object = object.display();
        bed.apply(&format!(
            "[[port]]\nname = \"in\"\ndevice = \"in0\"\nmode = \"{mode}\"\n[[function]]\nname = \"it\"\nkind = \"object\"\n\
             file = \"{object}\"\nconstants = {{ device = {device} }}\n[[link]]\nfrom = \"in\"\nto = \"it\"\n"
        ));
        for number in 0..N {
            source.send(&frame(&bed, Function::Redirect, gro, number));
        }
        let port = if device == 0 { &mut source } else { &mut sink };
        let end = Instant::now() + PATIENCE;
        let mut arrived = 0;
        while arrived < N && Instant::now() < end {
            arrived += port.receive(|frame| counts(Function::Redirect, frame));
            std::thread::sleep(Duration::from_millis(5));
        }
        let words = bed.words(&["status", "--edge", &bed.edge]);
        assert_eq!(arrived, N, "{what}: {words}");
        let json = bed.json();
        assert_eq!(
            json["second_stage"]["unaccounted"], unaccounted,
            "{what}: {json}"
        );
        let said = words.contains(&format!("unaccounted: {unaccounted} redirected packets"));
        assert_eq!(said, unaccounted > 0, "{what}: {words}");
        let top = bed.words(&["top", "--edge", &bed.edge, "--once", "--interval", "0.1"]);
        assert_eq!(
            top.contains("unaccounted"),
            unaccounted > 0,
            "{what}: {top}"
        );
    }
}

/// Instances and their counters come and go; what became of their packets stays counted, and the sums stay right.
#[test]
fn accounts_stay_right_when_functions_change() {
    if !root("accounts_stay_right_when_functions_change") {
        return;
    }
    let gro = Target::Veth {
        gro: true,
        program: false,
    };
    for mode in ["native", "generic"] {
        let name = format!("change-{mode}");
        let (bed, mut source, sink) = Bed::new(&name, Function::Redirect, gro);
        let mut sink = sink.expect("a device behind the edge");
        let first = config(Function::Redirect, gro, mode);
        let other = first.replace("\"it\"", "\"other\"");
        // Its tables are new ones then, and its ledger is not.
        let turned = other.replace("[\"out0\"]\n", "[\"out0\"]\nspread = \"round-robin\"\n");
        assert_ne!(other, turned);
        for (turn, config) in [&first, &other, &turned, &first].into_iter().enumerate() {
            bed.apply(config);
            for number in 0..N {
                source.send(&frame(&bed, Function::Redirect, gro, number));
            }
            let end = Instant::now() + PATIENCE;
            let mut arrived = 0;
            while arrived < N && Instant::now() < end {
                arrived += sink.receive(|frame| counts(Function::Redirect, frame));
                std::thread::sleep(Duration::from_millis(5));
            }
            let json = bed.json();
            assert_eq!(arrived, N, "{mode}, turn {turn}: {json}");
            assert_eq!(
                json["second_stage"]["unaccounted"], 0,
                "{mode}, turn {turn}: {json}"
            );
        }
    }
}

fn compile(name: &str) -> PathBuf {
    let source = format!("{}/tests/objects/{name}.c", env!("CARGO_MANIFEST_DIR"));
    let object = file(&format!("{name}.o"), "");
    let clang = std::env::var_os("WEIR_CLANG").unwrap_or_else(|| "clang".into());
    let arguments = [
        "-O2", "-g", "-target", "bpf", "-mcpu=v3", "-c", &source, "-o",
    ];
    let done = Command::new(clang).args(arguments).arg(&object).output();
    let done = done.expect("clang starts");
    assert!(done.status.success(), "{}", stderr(&done));
    object
}
