//! `weir replay DOCUMENT.toml`: networks of the example over captures, from one edge through its tunnel to the other, without privileges.

use std::path::Path;

use crate::common::{Folder, read_capture, root, run, weir};
use weir_network::values::mac_of_name;
use weir_packet::build::Frame;

fn text(path: &Path) -> &str {
    path.to_str().expect("a name")
}

/// From workload w1 of the example to a station.
fn from_w1(to: [u8; 6], source: [u8; 4], destination: [u8; 4], port: u16) -> Vec<u8> {
    let mut frame = Frame::new()
        .ip4(source, destination)
        .udp(1000, port)
        .payload(&[0x42; 40])
        .build();
    frame[..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 7]);
    frame
}

const W1: [u8; 4] = [10, 1, 0, 7];
const W2: [u8; 4] = [10, 1, 0, 8];
const STORE: [u8; 4] = [10, 2, 0, 2];
/// The router's interface to w1's subnet: made of its name, which has no address of its own in the example.
const GATEWAY: [u8; 6] = [0x3e, 0x9f, 0x3a, 0x3d, 0x50, 0x98];

fn replay<'a>(document: &'a str, edge: &'a str, port: &'a str, input: &'a Path) -> Vec<&'a str> {
    vec![
        "replay",
        document,
        "--edge",
        edge,
        "--port",
        port,
        "--in",
        text(input),
    ]
}

#[test]
fn a_capture_goes_through_two_edges_of_the_example() {
    let folder = Folder::new();
    let document = root().join("examples/network.toml");
    let document = text(&document);
    let w2 = mac_of_name("shop/w2").0;
    let frames = [
        from_w1(GATEWAY, W1, STORE, 53),
        from_w1(w2, W1, W2, 80),
        from_w1([0xff; 6], W1, [10, 1, 0, 255], 9),
        // A source that is not w1's.
        from_w1(w2, [10, 1, 0, 99], W2, 80),
        vec![0; 10],
    ];
    let input = folder.capture("in.pcap", &frames);
    let out = folder.join("e1");
    let args = replay(document, "e1", "shop/w1", &input);
    let all = [&args[..], &["--out", text(&out), "--json", "--verdicts"]].concat();
    let first = weir(&all).succeeded().json();
    let packets = &first["packets"];
    // The broadcast becomes a copy for the router and one for the other edge.
    assert_eq!(packets["received"], 5, "{first}");
    assert_eq!(packets["copies"], 2, "{first}");
    assert_eq!(packets["flooded"], 1, "{first}");
    assert_eq!(packets["left"], 3, "{first}");
    assert_eq!(packets["dropped"], 3, "{first}");
    assert_eq!(first["left_by"]["underlay"], 3, "{first}");
    assert_eq!(
        first["reasons"],
        serde_json::json!({ "frame_short": 1, "router_local": 1, "spoofed": 1 })
    );
    assert_eq!(
        first["verdicts"][3]["ends"][0]["dropped"], "spoofed",
        "{first}"
    );
    assert_eq!(
        first["verdicts"][1]["ends"][0]["left"], "underlay",
        "{first}"
    );
    let entered = first["interfaces"].as_array().expect("a list").iter();
    let mut entered = entered.filter(|one| one["interface"] == "workload w1");
    let entered = entered.next().expect("the workload's own");
    assert_eq!(entered["packets"], 4, "{first}");
    assert_eq!(entered["dropped"], 1, "{first}");
    let wire = out.join("underlay.pcap");
    let sent = read_capture(&wire);
    // Geneve to the other edge.
    for (_, frame) in &sent {
        assert_eq!(frame[26..34], [192, 0, 2, 1, 192, 0, 2, 2]);
        assert_eq!(frame[36..38], 6081_u16.to_be_bytes());
    }
    let far = folder.join("e2");
    let args = replay(document, "e2", "underlay", &wire);
    let second = weir([&args[..], &["--out", text(&far), "--json"]].concat())
        .succeeded()
        .json();
    assert_eq!(second["packets"]["left"], 3, "{second}");
    assert_eq!(second["reasons"], serde_json::json!({}), "{second}");
    let of = |name: &str| {
        let read = read_capture(&far.join(name)).into_iter();
        read.map(|(_, frame)| frame).collect::<Vec<_>>()
    };
    assert_eq!(of("shop.w2.pcap"), frames[1..3]);
    let [routed] = &of("shop.store.pcap")[..] else {
        panic!("{second}");
    };
    let mut expected = frames[0].clone();
    expected[..6].copy_from_slice(&mac_of_name("shop/store").0);
    expected[6..12].copy_from_slice(&[2, 0, 0, 0, 2, 1]);
    expected[22] -= 1;
    expected[24] += 1;
    assert_eq!(*routed, expected);
    // For people, the same figures.
    let said = weir(replay(document, "e1", "shop/w1", &input)).succeeded();
    assert!(
        said.stdout
            .contains("5 received + 2 copies = 3 left + 1 flooded + 3 dropped"),
        "{said:?}"
    );
    assert!(said.stdout.contains("left by underlay: 3"), "{said:?}");
}

/// A configuration that declares the same networks itself, beside a graph and without one.
#[test]
fn networks_of_a_configuration_are_replayed_alike() {
    let folder = Folder::new();
    let document = root().join("examples/network.toml");
    let example = std::fs::read_to_string(&document).expect("the example");
    let inline = example.replace("[[", "[[networks.");
    let alone = folder.join("alone.toml");
    std::fs::write(&alone, format!("edge = \"e1\"\n[networks]\n{inline}")).expect("written");
    let beside = folder.join("beside.toml");
    let graph = "edge = \"e1\"\n[[port]]\nname = \"up\"\ndevice = \"up0\"\n[[link]]\nfrom = \"up\"\nto = \"drop\"\n[networks]\n";
    std::fs::write(&beside, format!("{graph}{inline}")).expect("written");
    let frames = [from_w1(mac_of_name("shop/w2").0, W1, W2, 80), vec![0; 10]];
    let input = folder.capture("in.pcap", &frames);
    let of = |path: &std::path::Path, port: &str| {
        let args = [
            "replay",
            text(path),
            "--in",
            text(&input),
            "--port",
            port,
            "--json",
        ];
        weir(args).succeeded().json()
    };
    let args = replay(text(&document), "e1", "shop/w1", &input);
    let expected = weir([&args[..], &["--json"]].concat()).succeeded().json();
    assert_eq!(expected["packets"]["received"], 2, "{expected}");
    for path in [&alone, &beside] {
        assert_eq!(of(path, "shop/w1"), expected);
    }
    // The graph's own ports are still replayed as a graph.
    let graph = of(&beside, "up");
    assert_eq!(graph["ports"][0]["name"], "up", "{graph}");
}

#[test]
fn routes_of_the_underlay_can_be_said() {
    let folder = Folder::new();
    let document = root().join("examples/network.toml");
    let frame = from_w1(mac_of_name("shop/w2").0, W1, W2, 80);
    let input = folder.capture("in.pcap", &[frame]);
    let routes = folder.write(
        "routes",
        "192.0.2.0/24 dev under0 proto kernel scope link src 192.0.2.1\n192.0.2.2 dev under0 lladdr 02:00:00:00:00:99 REACHABLE\n",
    );
    let stations = |more: &[&str]| {
        let out = folder.join(&format!("out{}", more.len()));
        let args = replay(text(&document), "e1", "shop/w1", &input);
        weir([&args[..], &["--out", text(&out)], more].concat()).succeeded();
        read_capture(&out.join("underlay.pcap"))[0].1[..6].to_vec()
    };
    assert_eq!(stations(&[]), [0; 6]);
    assert_eq!(
        stations(&["--routes", text(&routes)]),
        [2, 0, 0, 0, 0, 0x99]
    );
}

/// Two subnets of one segment with functions of their own between them.
const WALLED: &str = r#"
[[edge]]
name = "e1"
[[tenant]]
name = "red"
[[network]]
name = "n"
tenant = "red"
[[network.subnet]]
name = "inside"
prefix = "10.1.0.0/24"
[[network.subnet]]
name = "outside"
prefix = "10.1.0.0/24"
[[network.function]]
name = "wall"
kind = "filter"
rules = ["deny udp to-port 53"]
[[network.function]]
name = "box"
kind = "middlebox"
rules = """
tcp-dport 8080 mod tcp-dport 80
tcp-syn log "opens"
"""
[[network.link]]
from = "inside"
to = "wall"
[[network.link]]
from = "wall"
to = "box"
[[network.link]]
from = "box"
to = "outside"
[[network.workload]]
name = "a"
subnet = "inside"
edge = "e1"
device = "wa"
mac = "02:00:00:00:00:0a"
address = "10.1.0.10"
[[network.workload]]
name = "b"
subnet = "outside"
edge = "e1"
device = "wb"
mac = "02:00:00:00:00:0b"
address = "10.1.0.11"
"#;

#[test]
fn functions_of_their_own_take_part() {
    let folder = Folder::new();
    let document = folder.write("net.toml", WALLED);
    let frame = |frame: Frame| {
        let mut bytes = frame.payload(&[7; 20]).build();
        bytes[..6].copy_from_slice(&[2, 0, 0, 0, 0, 0x0b]);
        bytes[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 0x0a]);
        bytes
    };
    let ip = || Frame::new().ip4([10, 1, 0, 10], [10, 1, 0, 11]);
    let frames = [
        frame(ip().udp(1000, 53)),
        frame(ip().udp(1000, 54)),
        frame(ip().tcp(1000, 8080)),
    ];
    let input = folder.capture("in.pcap", &frames);
    let out = folder.join("out");
    let args = replay(text(&document), "e1", "n/a", &input);
    let report = weir([&args[..], &["--out", text(&out), "--json"]].concat())
        .succeeded()
        .json();
    assert_eq!(report["packets"]["left"], 2, "{report}");
    assert_eq!(report["packets"]["dropped"], 1, "{report}");
    let left = read_capture(&out.join("n.b.pcap"));
    assert_eq!(left[0].1, frames[1]);
    assert_eq!(left[1].1[36..38], 80_u16.to_be_bytes());
}

/// Security groups in the user engine: addresses of members and no others, each in its family.
#[test]
fn groups_hold_the_addresses_of_their_members() {
    let folder = Folder::new();
    let groups = WALLED
        .replace(
            "tcp-dport 8080 mod tcp-dport 80\ntcp-syn log \"opens\"\n",
            "udp-dport 7 ! ip-saddr in @web drop\nudp-dport 7 ! ip6-saddr in @web drop\n\
             udp-dport 8 ip-daddr in @web drop\nudp-dport 8 ip6-daddr in @web drop\nudp-dport 9 ip-saddr in @none drop\n",
        )
        .replace("\"10.1.0.0/24\"", "[\"10.1.0.0/24\", \"fd00::/64\"]")
        .replace("address = \"10.1.0.10\"", "address = \"any\"")
        .replace("[[network.workload]]\nname = \"a\"", "[[network.group]]\nname = \"web\"\n[[network.group]]\nname = \"none\"\n[[network.workload]]\nname = \"a\"")
        + "[[network.workload]]\nname = \"c\"\nsubnet = \"outside\"\nedge = \"e1\"\ndevice = \"wc\"\n\
           address = [\"10.1.0.30\", \"fd00::30\"]\ngroups = \"web\"\n";
    let document = folder.write("net.toml", &groups);
    let v6 = |text: &str| {
        text.parse::<std::net::Ipv6Addr>()
            .expect("an address")
            .octets()
    };
    let (member, other) = ([10, 1, 0, 30], [10, 1, 0, 31]);
    let from4 = |from: [u8; 4], port| Frame::new().ip4(from, other).udp(1000, port);
    let from6 = |from: &str, port| Frame::new().ip6(v6(from), v6("fd00::99")).udp(1000, port);
    let cases = [
        (from4(member, 7), true),
        (from4(other, 7), false),
        (from6("fd00::30", 7), true),
        (from6("fd00::31", 7), false),
        // The same numbers, in the other family.
        (from6("::ffff:10.1.0.30", 7), false),
        (from6("::a01:1e", 7), false),
        (Frame::new().ip4(other, member).udp(1000, 8), false),
        (Frame::new().ip4(member, other).udp(1000, 8), true),
        (
            Frame::new()
                .ip6(v6("fd00::99"), v6("fd00::30"))
                .udp(1000, 8),
            false,
        ),
        (from6("fd00::30", 8), true),
        (from4(member, 9), true),
    ];
    let build = |frame: Frame| {
        let mut bytes = frame.payload(&[7; 20]).build();
        bytes[..6].copy_from_slice(&[2, 0, 0, 0, 0, 0x0b]);
        bytes[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 0x0a]);
        bytes
    };
    let passes: Vec<bool> = cases.iter().map(|(_, passes)| *passes).collect();
    let frames: Vec<Vec<u8>> = cases.into_iter().map(|(frame, _)| build(frame)).collect();
    let input = folder.capture("in.pcap", &frames);
    let out = folder.join("out");
    let args = replay(text(&document), "e1", "n/a", &input);
    weir([&args[..], &["--out", text(&out)]].concat()).succeeded();
    let left: Vec<Vec<u8>> = read_capture(&out.join("n.b.pcap"))
        .into_iter()
        .map(|one| one.1)
        .collect();
    let wanted = frames.iter().zip(passes).filter(|(_, passes)| *passes);
    let wanted: Vec<Vec<u8>> = wanted.map(|(frame, _)| frame.clone()).collect();
    assert_eq!(left, wanted);
}

#[test]
fn what_is_wrong_is_told_in_a_line() {
    let folder = Folder::new();
    let document = root().join("examples/network.toml");
    let document = text(&document);
    let input = folder.capture("in.pcap", &[vec![0; 60]]);
    let policy = folder.write("a.weir", "udp-dport 443 drop\n");
    let fixed = replay(document, "e1", "shop/w1", &input);
    let refused = |args: &[&str], what: &str| {
        let said = weir(args);
        assert_eq!(said.status, 2, "{said:?}");
        assert!(said.stderr.contains(what), "{said:?}");
    };
    let with = |more: &[&'static str]| [&fixed[..], more].concat();
    refused(&with(&["--engine", "kernel"]), "--engine user");
    refused(&with(&["--in-if", "x"]), "--port");
    refused(&with(&["--queue", "3"]), "--queue");
    refused(&with(&["--out", "somewhere.pcap"]), "folder");
    refused(&replay(document, "e3", "shop/w1", &input), "`e3`");
    refused(
        &replay(document, "e1", "shop/w2", &input),
        "shop/w1, lab/a, underlay",
    );
    refused(
        &["replay", document, "--edge", "e1", "--in", text(&input)],
        "choose with --port",
    );
    refused(
        &[
            "replay",
            text(&policy),
            "--edge",
            "e1",
            "--in",
            text(&input),
        ],
        "documents of virtual networks",
    );
    // A capture in the folder that would be written over.
    let own = folder.capture(
        "underlay.pcap",
        &[from_w1(mac_of_name("shop/w2").0, W1, W2, 80)],
    );
    let args = replay(document, "e1", "shop/w1", &own);
    refused(
        &[&args[..], &["--out", text(folder.path())]].concat(),
        "choose another folder",
    );
    assert_eq!(read_capture(&own).len(), 1);
    let absent = run(
        std::process::Command::new(env!("CARGO_BIN_EXE_weir")).args([
            "replay",
            "nowhere.toml",
            "--in",
            text(&input),
        ]),
    );
    assert_eq!(absent.status, 2);
}
