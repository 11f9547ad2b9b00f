//! `weir replay CONFIG --routes`: a router by the kernel's tables forwards in the user engine as those tables say, from a file and from a host; what
//! this host has is what `ip` writes of it.

use std::path::Path;

use crate::common::{Folder, read_capture};
use crate::live_bed;
use weir_kernel::NetNs;
use weir_kernel::bed::{self, End};
use weir_packet::build::Frame;

const ROUTER: &str = r#"
[[port]]
name = "wan"
device = "w0"
[[port]]
name = "lan"
device = "l0"
[[function]]
name = "core"
kind = "router"
errors = "own"
[[link]]
from = "wan"
to = "core"
[[link]]
from = "lan"
to = "core"
"#;

const TABLES: &str = "\
# as ip -o link, ip route, ip -6 route and ip neigh write them
2: w0@if3: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc noqueue state UP mode DEFAULT group default qlen 1000\\    link/ether 02:00:00:00:00:01 brd ff:ff:ff:ff:ff:ff
3: l0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1400 qdisc noqueue state UP
    link/ether 02:00:00:00:00:02 brd ff:ff:ff:ff:ff:ff link-netnsid 0
default via 10.1.0.254 dev w0 proto static metric 100
10.1.0.0/24 dev w0 proto kernel scope link src 10.1.0.1
10.2.0.0/24 dev l0 proto kernel scope link src 10.2.0.1
10.3.0.0/16 proto static
\tnexthop via 10.2.0.9 dev l0 weight 1
\tnexthop via 10.1.0.9 dev w0 weight 1
blackhole 10.9.0.0/16
10.7.0.0/16 via 10.2.0.9 dev eth7
10.6.0.0/16 via 10.2.0.9 dev l0 table 100
fd02::/64 dev l0 proto kernel metric 256 pref medium
local fd02::1 dev l0 table local proto kernel metric 0 pref medium
10.2.0.2 dev l0 lladdr 02:00:00:00:02:02 REACHABLE
10.2.0.9 dev l0 lladdr 02:00:00:00:02:09 STALE
10.1.0.254 dev w0 lladdr 02:00:00:00:01:fe PERMANENT
10.2.0.3 dev l0 FAILED
fd02::2 dev l0 lladdr 02:00:00:00:02:02 router REACHABLE
";

fn udp(to: [u8; 4], ttl: u8) -> Vec<u8> {
    let frame = Frame::new().ip4([10, 1, 0, 7], to).ttl(ttl);
    frame.udp(5, 9).payload(b"on its way").build()
}

/// Arguments of a replay, and what it says.
fn replay(ns: Option<&NetNs>, args: &[&str]) -> std::process::Output {
    let mut command = match ns {
        Some(ns) => ns.command(env!("CARGO_BIN_EXE_weir")).expect("namespace"),
        None => std::process::Command::new(env!("CARGO_BIN_EXE_weir")),
    };
    command.arg("replay").args(args).output().expect("it runs")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn a_file_says_what_a_router_finds() {
    let folder = Folder::new();
    let config = folder.write("router.toml", ROUTER);
    let tables = folder.write("tables", TABLES);
    let six = Frame::new()
        .ip6(
            [0xfd, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7],
            [0xfd, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2],
        )
        .udp(5, 9)
        .payload(b"six")
        .build();
    let input = folder.capture(
        "in.pcap",
        &[
            udp([10, 2, 0, 2], 64),
            udp([10, 3, 4, 5], 64),
            udp([8, 8, 8, 8], 64),
            six,
            // To the host, to a table of rules, to a device that is no port, and to a neighbour that is not known: for the stack.
            udp([10, 2, 0, 1], 64),
            udp([10, 7, 0, 1], 64),
            udp([10, 2, 0, 3], 64),
            udp([10, 9, 9, 9], 64),
        ],
    );
    for engine in ["user", "user-jit"] {
        let out = folder.join(&format!("{engine}.pcap"));
        let args = [
            text(&config),
            "--in",
            text(&input),
            "--out",
            text(&out),
            "--port",
            "wan",
            "--routes",
            text(&tables),
            "--engine",
            engine,
            "--json",
        ];
        let output = replay(None, &args);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{told}");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let packets = &report["packets"];
        assert_eq!(packets["redirect"], 3, "{report}");
        assert_eq!(packets["tx"], 1, "by where it came from: {report}");
        assert_eq!(packets["pass"], 3, "{report}");
        assert_eq!(packets["drop"], 1, "{report}");
        let sent: Vec<Vec<u8>> = read_capture(&out).into_iter().map(|(_, f)| f).collect();
        for (frame, to, from) in [
            (&sent[0], [2, 0, 0, 0, 2, 2], 2),
            (&sent[1], [2, 0, 0, 0, 2, 9], 2),
            (&sent[2], [2, 0, 0, 0, 1, 0xfe], 1),
            (&sent[3], [2, 0, 0, 0, 2, 2], 2),
        ] {
            assert_eq!(frame[..6], to);
            assert_eq!(frame[6..12], [2, 0, 0, 0, 0, from]);
        }
        assert_eq!((sent[0][22], sent[3][21]), (63, 63), "one hop further");
    }
}

#[test]
fn lines_that_are_not_understood_are_refused_with_their_place() {
    let folder = Folder::new();
    let config = folder.write("router.toml", ROUTER);
    let input = folder.capture("in.pcap", &[udp([10, 2, 0, 2], 64)]);
    for (lines, why) in [
        ("10.0.0.0/33 dev w0\n", ":1: invalid prefix `10.0.0.0/33`"),
        ("\nhello world\n", ":2: `world` is not understood"),
        ("default dev w0\n", "is of neither family"),
        ("10.0.0.0/8 via nobody dev w0\n", "invalid address `nobody`"),
        ("10.0.0.0/8 via\n", "`via` has no value"),
        (
            "10.0.0.0/8 proto static\n",
            "the route to 10.0.0.0/8 has no `dev`",
        ),
        (
            "10.0.0.1 dev w0 lladdr 02:00 REACHABLE\n",
            "invalid MAC address `02:00`",
        ),
        ("nexthop via 10.0.0.1 dev w0\n", "`nexthop` without a route"),
        ("    link/ether 02:00:00:00:00:01\n", "no line of a device"),
        ("2: w0: <UP> mtu many\n", "invalid MTU `many`"),
    ] {
        let tables = folder.write("tables", lines);
        let args = [
            text(&config),
            "--in",
            text(&input),
            "--port",
            "wan",
            "--routes",
            text(&tables),
        ];
        let output = replay(None, &args);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{lines}: {told}");
        assert!(told.contains(why), "{lines}: {told}");
    }
    let policy = folder.write("p.weir", "all accept\n");
    let args = [text(&policy), "--in", text(&input), "--routes", "host"];
    let told = String::from_utf8_lossy(&replay(None, &args).stderr).into_owned();
    assert!(told.contains("--routes is for graphs"), "{told}");
}

#[test]
fn a_host_says_the_same_as_what_ip_writes_of_it() {
    if !live_bed::root("a_host_says_the_same_as_what_ip_writes_of_it") {
        return;
    }
    let router = NetNs::create("weirrr-r").expect("namespace");
    let (left, right) = (
        NetNs::create("weirrr-1").expect("namespace"),
        NetNs::create("weirrr-2").expect("namespace"),
    );
    let end = |ns, name, addresses| End {
        ns,
        name,
        addresses,
    };
    bed::veth(
        end(&left, "far", &["10.1.0.7/24", "fd01::7/64"]),
        end(&router, "w0", &["10.1.0.1/24", "fd01::1/64"]),
    )
    .expect("veth");
    bed::veth(
        end(&right, "far", &["10.2.0.2/24", "fd02::2/64"]),
        end(&router, "l0", &["10.2.0.1/24", "fd02::1/64"]),
    )
    .expect("veth");
    bed::forward(&router).expect("forwards");
    for line in [
        "route add 10.3.0.0/16 via 10.2.0.9",
        "route add blackhole 10.9.0.0/16",
        "route add unreachable 10.8.0.0/16",
        "-6 route add fd03::/48 via fd02::9",
        "neigh add 10.2.0.2 dev l0 lladdr 02:00:00:00:02:02 nud permanent",
        "neigh add 10.2.0.9 dev l0 lladdr 02:00:00:00:02:09 nud permanent",
        "neigh add fd02::9 dev l0 lladdr 02:00:00:00:02:09 nud permanent",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        router.ip(&words).unwrap_or_else(|e| panic!("{line}: {e}"));
    }
    let folder = Folder::new();
    let config = folder.write("router.toml", ROUTER);
    let six = |to: u8| {
        let mut dst = [0; 16];
        (dst[0], dst[1], dst[15]) = (0xfd, to, 5);
        let mut src = [0; 16];
        (src[0], src[1], src[15]) = (0xfd, 1, 7);
        Frame::new().ip6(src, dst).udp(5, 9).payload(b"six").build()
    };
    let input = folder.capture(
        "in.pcap",
        &[
            udp([10, 2, 0, 2], 64),
            udp([10, 3, 4, 5], 64),
            udp([10, 9, 4, 5], 64),
            udp([10, 8, 4, 5], 64),
            udp([10, 2, 0, 1], 64),
            udp([192, 0, 2, 1], 64),
            udp([10, 2, 0, 2], 1),
            six(3),
            six(4),
        ],
    );
    let mut tables = String::new();
    for args in [
        "-o link show dev w0",
        "-o link show dev l0",
        "route show table local",
        "route",
        "-6 route show table local",
        "-6 route",
        "neigh",
        "-6 neigh",
    ] {
        let words: Vec<&str> = args.split(' ').collect();
        tables.push_str(&router.ip(&words).expect("ip writes"));
        tables.push('\n');
    }
    let tables = folder.write("tables", &tables);
    let mut all = Vec::new();
    for from in ["host", text(&tables)] {
        let out = folder.join("out.pcap");
        let args = [
            text(&config),
            "--in",
            text(&input),
            "--out",
            text(&out),
            "--port",
            "wan",
            "--routes",
            from,
            "--json",
        ];
        let output = replay(Some(&router), &args);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{from}: {told}");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        all.push((report, read_capture(&out)));
    }
    assert_eq!(all[0], all[1]);
    let packets = &all[0].0["packets"];
    assert_eq!(packets["redirect"], 3, "{packets}");
    assert_eq!(packets["drop"], 3, "{packets}");
    let kernel = [
        text(&config),
        "--in",
        text(&input),
        "--port",
        "wan",
        "--routes",
        "host",
        "--engine",
        "kernel",
    ];
    let refused = replay(Some(&router), &kernel);
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(told.contains("the kernel's asks the host"), "{told}");
}
