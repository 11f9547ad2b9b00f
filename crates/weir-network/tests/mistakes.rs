//! Documents that are wrong: what is said, where, and what to do about it, against `mistakes.snap`.
//!
//! `WEIR_UPDATE=1 cargo test -p weir-network mistakes::` writes the file anew; read the difference before keeping it.

use std::path::Path;

use crate::bench;
use crate::bench::NoFiles;
use weir_network::{check, export, parse};

/// Two edges, a router between two subnets, a workload on each edge.
const BASE: &str = "\
[[edge]]
name = \"e1\"
underlay = \"192.0.2.1\"
device = \"eth0\"
mtu = 1600
[[edge]]
name = \"e2\"
underlay = \"192.0.2.2\"
device = \"eth0\"
mtu = 1600
[[tenant]]
name = \"red\"
[[network]]
name = \"shop\"
tenant = \"red\"
[[network.subnet]]
name = \"web\"
prefix = \"10.1.0.0/24\"
[[network.subnet]]
name = \"db\"
prefix = [\"10.2.0.0/24\", \"fd00:2::/64\"]
[[network.function]]
name = \"gw\"
kind = \"router\"
interface = [
  { name = \"web\", address = \"10.1.0.1/24\" },
  { name = \"db\", address = [\"10.2.0.1/24\", \"fd00:2::1/64\"] },
]
route = \"0.0.0.0/0 via 10.2.0.254\"
[[network.link]]
from = \"web\"
to = \"gw.web\"
[[network.link]]
from = \"db\"
to = \"gw.db\"
[[network.workload]]
name = \"w1\"
subnet = \"web\"
edge = \"e1\"
device = \"tap1\"
address = \"10.1.0.7\"
[[network.workload]]
name = \"w2\"
subnet = \"db\"
edge = \"e2\"
device = \"tap1\"
address = [\"10.2.0.7\", \"fd00:2::7\"]
";

/// A bridge between two others, over a filter.
const BRIDGES: &str = "\
[[network.subnet]]
name = \"more\"
[[network.function]]
name = \"wall\"
kind = \"empty\"
[[network.link]]
from = \"web\"
to = \"wall\"
[[network.link]]
from = \"wall\"
to = \"more\"
";

struct Case {
    title: &'static str,
    text: String,
}

/// The base with a piece of it replaced, which must be there.
fn with(title: &'static str, old: &str, new: &str) -> Case {
    assert!(BASE.contains(old), "{title}: {old}");
    Case {
        title,
        text: BASE.replacen(old, new, 1),
    }
}

/// The base and more.
fn and(title: &'static str, more: &str) -> Case {
    Case {
        title,
        text: format!("{BASE}{more}"),
    }
}

fn workload(name: &str, keys: &str) -> String {
    format!("[[network.workload]]\nname = \"{name}\"\ndevice = \"{name}\"\n{keys}")
}

fn reading() -> Vec<Case> {
    vec![
        and("no TOML", "[[network]\n"),
        and("a section that is none", "[router]\n"),
        and(
            "tables of a network that are none",
            "[[network]]\nname = \"n\"\ntenant = \"red\"\nworkload = 1\n[network.link]\nfrom = \"web\"\n",
        ),
        with(
            "unknown keys and wrong types",
            "mtu = 1600\n",
            "mut = 1600\nmtu = \"large\"\naccepts = 1\n",
        ),
        with(
            "numbers out of range",
            "mtu = 1600\n",
            "mtu = 67\n[[network]]\nname = \"n\"\ntenant = \"red\"\n[[network.subnet]]\nname = \"s\"\nidentifier = 16777216\nage = 0\n[[edge]]\nname = \"e3\"\n",
        ),
        with(
            "addresses that are none",
            "address = \"10.1.0.7\"\n",
            "address = \"10.1.0.700\"\nmac = \"2:0:0:0:0:1\"\n",
        ),
        with(
            "an interface without the length of its prefix",
            "address = \"10.1.0.1/24\"",
            "address = \"10.1.0.1\"",
        ),
        with(
            "a route that is none",
            "0.0.0.0/0 via 10.2.0.254",
            "default via 10.2.0.254",
        ),
        with(
            "a kind of tunnel that is none",
            "mtu = 1600\n",
            "mtu = 1600\ntunnel = \"geneva\"\naccepts = [\"gre\", \"stt\"]\n",
        ),
        with(
            "a VLAN that is none",
            "device = \"tap1\"\n",
            "device = \"tap1\"\nvlan = [1, 4095]\n",
        ),
        with("an edge without a name", "name = \"e1\"\n", ""),
        and("a file without text", "[[network.file]]\nname = \"a\"\n"),
        and(
            "names of files that are no plain paths, and a file that is there twice",
            "[[network.file]]\nname = \"./a\"\ntext = \"\"\n[[network.file]]\nname = \"\"\ntext = \"\"\n\
             [[network.file]]\nname = \"b\"\ntext = \"\"\n[[network.file]]\nname = \"b\"\ntext = \"\"\n\
             [[network.file]]\nname = \"c\\u0007\"\ntext = \"\"\n",
        ),
        with(
            "something that nobody can be allowed",
            "address = \"10.1.0.7\"\n",
            "address = \"10.1.0.7\"\nallow = [\"ra\", \"dhcp\"]\n",
        ),
        with(
            "an MTU that IPv6 does not take",
            "tenant = \"red\"\n",
            "tenant = \"red\"\nmtu = 1200\n",
        ),
        with(
            "an interface with an MTU that IPv6 does not take",
            "address = [\"10.2.0.1/24\", \"fd00:2::1/64\"] }",
            "address = [\"10.2.0.1/24\", \"fd00:2::1/64\"], mtu = 1279 }",
        ),
        with(
            "groups that are not declared, and one that is named twice",
            "address = \"10.1.0.7\"\n",
            "address = \"10.1.0.7\"\ngroups = [\"wbe\", \"web\", \"web\"]\n[[network.group]]\nname = \"web\"\n",
        ),
        with(
            "a group where none is declared",
            "address = \"10.1.0.7\"\n",
            "address = \"10.1.0.7\"\ngroups = \"web\"\n",
        ),
        with(
            "groups of one name, one that is no name, and a member without addresses",
            "address = \"10.1.0.7\"\n",
            "address = \"any\"\ngroups = \"web\"\n[[network.group]]\nname = \"web\"\n[[network.group]]\nname = \"web\"\n[[network.group]]\nname = \"a b\"\n",
        ),
        and(
            "policies that misuse groups",
            &(BRIDGES.replace(
                "kind = \"empty\"",
                "kind = \"middlebox\"\nrules = \"\"\"\nset db = { 10.0.0.1 }\nip-saddr in @wbe drop\neth-saddr in @web drop\n\
                 tcp-dport in @web drop\ntcp-syn add @web source\n\"\"\"",
            ) + "[[network.group]]\nname = \"web\"\n[[network.group]]\nname = \"db\"\n"),
        ),
        with(
            "a MAC address that only one edge can read",
            "address = \"10.1.0.7\"\n",
            "address = \"10.1.0.7\"\nmac = \"device\"\n",
        ),
    ]
}

fn naming() -> Vec<Case> {
    vec![
        and(
            "names that are taken",
            &format!(
                "{}{}",
                workload(
                    "w1",
                    "subnet = \"web\"\nedge = \"e1\"\naddress = \"10.1.0.8\"\n"
                ),
                "[[network.subnet]]\nname = \"gw\"\n[[tenant]]\nname = \"red\"\n"
            ),
        ),
        and(
            "names that cannot be",
            "[[edge]]\nname = \"edge three\"\n[[tenant]]\nname = \"\"\n",
        ),
        with(
            "an edge that is not there",
            "edge = \"e2\"",
            "edge = \"e3\"",
        ),
        with(
            "a home that is not there",
            "kind = \"router\"\n",
            "kind = \"router\"\nhome = \"nowhere\"\n",
        ),
        with(
            "a subnet that is not there",
            "subnet = \"web\"\nedge",
            "subnet = \"wbe\"\nedge",
        ),
        with(
            "a tenant that is not there",
            "tenant = \"red\"",
            "tenant = \"blue\"",
        ),
        with(
            "a kind of function that is not there",
            "kind = \"router\"",
            "kind = \"rooter\"",
        ),
        with(
            "a link to what is not there",
            "to = \"gw.web\"",
            "to = \"gv.web\"",
        ),
        with(
            "a link to an interface that is not there",
            "to = \"gw.web\"",
            "to = \"gw.wbe\"",
        ),
        with(
            "a link to a router as a whole",
            "to = \"gw.web\"",
            "to = \"gw\"",
        ),
        with(
            "a link to an interface of a subnet",
            "from = \"web\"",
            "from = \"web.a\"",
        ),
        with(
            "an interface that is not linked",
            "[[network.link]]\nfrom = \"db\"\nto = \"gw.db\"\n",
            "",
        ),
        and(
            "an interface that is linked twice",
            "[[network.link]]\nfrom = \"web\"\nto = \"gw.db\"\n",
        ),
        and(
            "a link to itself",
            "[[network.link]]\nfrom = \"web\"\nto = \"web\"\n",
        ),
        and(
            "a router without interfaces",
            "[[network.function]]\nname = \"r\"\nkind = \"router\"\n",
        ),
        with(
            "a device that is there twice",
            "edge = \"e2\"\ndevice = \"tap1\"",
            "edge = \"e1\"\ndevice = \"tap1\"",
        ),
        with(
            "the device of the underlay",
            "edge = \"e2\"\ndevice = \"tap1\"",
            "edge = \"e2\"\ndevice = \"eth0\"",
        ),
        with(
            "a device that cannot be",
            "device = \"tap1\"",
            "device = \"a/very/long/device\"",
        ),
        and(
            "a key that a kind has not",
            "[[network.function]]\nname = \"p\"\nkind = \"punt\"\nrules = \"\"\n[[network.link]]\nfrom = \"web\"\nto = \"p\"\n[[network.link]]\nfrom = \"p\"\nto = \"db\"\n",
        ),
        and(
            "a function that hands packets over, with values that cannot be",
            &two_sided("kind = \"punt\"\nrate = -1\nflows = 20000\nselect = [{ port = \"1\" }]\n"),
        ),
        with(
            "addresses leased where there are none",
            "prefix = \"10.1.0.0/24\"",
            "prefix = \"fd00:1::/64\"\ndhcp = true",
        ),
        with(
            "a lease without DHCP, and one that is too short",
            "prefix = \"10.1.0.0/24\"",
            "prefix = \"10.1.0.0/24\"\nlease = 600\n[[network.subnet]]\nname = \"x\"\ndhcp = true\nlease = 1",
        ),
        and(
            "a mistake in the rules of a function",
            &two_sided("kind = \"middlebox\"\nrules = \"\"\"\nall accept\nip-tll 3 drop\n\"\"\"\n"),
        ),
    ]
}

/// Keys of a function that keeps state of flows.
const NAT: &str = "kind = \"middlebox\"\nrules = \"all accept\\nadd-stateful ip-saddr 10.0.0.0/8 map ip-saddr 198.51.100.1\"\n";

/// The base with a balancer in front of the router, with these keys.
fn balanced(title: &'static str, keys: &str) -> Case {
    let link = "to = \"lb\"\n[[network.link]]\nfrom = \"lb\"\nto = \"gw.web\"";
    let lb =
        format!("[[network.function]]\nname = \"lb\"\nkind = \"balancer\"\nhome = \"e1\"\n{keys}");
    let mut case = with(title, "to = \"gw.web\"", link);
    case.text.push_str(&lb);
    case
}

/// A service of a balancer.
const SERVICE: &str = "[[network.function.service]]\nname = \"shop\"\naddress = \"10.9.0.1\"\nprotocol = \"tcp\"\nport = 80\nmode = \"nat\"\nserver = [{ address = \"10.2.0.7\" }]\n";

/// A function between two bridges that have nobody.
fn two_sided(keys: &str) -> String {
    format!(
        "[[network.subnet]]\nname = \"x\"\n[[network.subnet]]\nname = \"y\"\n[[network.function]]\nname = \"wall\"\n{keys}[[network.link]]\nfrom = \"x\"\nto = \"wall\"\n[[network.link]]\nfrom = \"wall\"\nto = \"y\"\n"
    )
}

fn addressing() -> Vec<Case> {
    let lengths: Vec<String> = (16..=22)
        .map(|length| format!("\"10.64.0.0/{length} via 10.2.0.254\""))
        .collect();
    vec![
        with(
            "a MAC address that is there twice",
            "name = \"web\", address = \"10.1.0.1/24\"",
            "name = \"web\", mac = \"02:00:00:00:00:01\", address = \"10.1.0.1/24\"",
        )
        .then(
            "device = \"tap1\"\naddress = \"10.1",
            "device = \"tap1\"\nmac = \"02:00:00:00:00:01\"\naddress = \"10.1",
        ),
        with(
            "a MAC address of many stations",
            "device = \"tap1\"\n",
            "device = \"tap1\"\nmac = \"01:00:5e:00:00:01\"\n",
        ),
        with(
            "an address that is there twice",
            "\"10.1.0.7\"",
            "[\"10.1.0.7\", \"10.1.0.1\"]",
        ),
        with(
            "an address outside of its subnet",
            "\"10.1.0.7\"",
            "\"10.9.0.7\"",
        ),
        with(
            "an address of a family that the subnet has not",
            "\"10.1.0.7\"",
            "[\"10.1.0.7\", \"fd00:1::7\"]",
        ),
        with(
            "addresses that are nobody's",
            "\"10.1.0.7\"",
            "[\"10.1.0.0\", \"10.1.0.255\", \"224.0.0.1\", \"0.0.0.0\", \"127.0.0.1\"]",
        ),
        with(
            "a workload without an address",
            "address = \"10.1.0.7\"\n",
            "",
        ),
        with(
            "a trunk without a VLAN",
            "device = \"tap1\"\n",
            "device = \"tap1\"\nvlan = []\n",
        ),
        with(
            "a prefix with bits behind its length",
            "prefix = \"10.1.0.0/24\"",
            "prefix = \"10.1.0.1/24\"",
        ),
        with(
            "an interface that is not in its subnet",
            "\"10.1.0.1/24\"",
            "\"10.9.0.1/24\"",
        ),
        with(
            "an interface with another length than its subnet",
            "\"10.1.0.1/24\"",
            "\"10.1.0.1/16\"",
        ),
        with(
            "an interface without an address",
            ", address = \"10.1.0.1/24\"",
            "",
        ),
        with(
            "an interface with an address that is nobody's",
            "\"10.1.0.1/24\"",
            "\"10.1.0.255/24\"",
        ),
        with(
            "subnets that overlap in a network",
            "[\"10.2.0.0/24\", \"fd00:2::/64\"]",
            "[\"10.1.0.0/16\", \"10.2.0.0/24\", \"fd00:2::/64\"]",
        ),
        and(
            "subnets that overlap in two networks of a tenant",
            "[[network]]\nname = \"other\"\ntenant = \"red\"\n[[network.subnet]]\nname = \"s\"\nprefix = \"10.1.0.128/25\"\n",
        ),
        with(
            "a gateway that is no router's",
            "prefix = \"10.1.0.0/24\"\n",
            "prefix = \"10.1.0.0/24\"\ngateway = \"10.1.0.254\"\n",
        ),
        with(
            "a gateway on no interface",
            "via 10.2.0.254",
            "via 10.3.0.254",
        ),
        with(
            "a gateway of another family",
            "via 10.2.0.254",
            "via fd00:2::fe",
        ),
        with(
            "a gateway that is the router",
            "via 10.2.0.254",
            "via 10.1.0.1",
        ),
        with(
            "a route with bits behind its length",
            "0.0.0.0/0 via",
            "10.5.0.1/16 via",
        ),
        with(
            "two ways to one prefix",
            "\"0.0.0.0/0 via 10.2.0.254\"",
            "[\"10.2.0.0/24 blackhole\", \"10.7.0.0/16 prohibit\", \"10.7.0.0/16 via 10.2.0.254\"]",
        ),
        with(
            "more gateways than a route can have",
            "via 10.2.0.254",
            &format!("via{}", " 10.2.0.254".repeat(65)),
        ),
        with(
            "more lengths of prefixes than a router can have",
            "\"0.0.0.0/0 via 10.2.0.254\"",
            &format!("[\"0.0.0.0/0 via 10.2.0.254\", {}]", lengths.join(", ")),
        ),
    ]
}

fn shaping() -> Vec<Case> {
    vec![
        and(
            "a loop of bridges",
            &format!("{BRIDGES}[[network.link]]\nfrom = \"more\"\nto = \"web\"\n"),
        ),
        Case {
            title: "a path over the budget",
            text: chain(300),
        },
        and("state without a home", &two_sided(NAT)),
        and(
            "a filter that moves packets to CPUs",
            "[[network.function]]\nname = \"wall\"\nkind = \"filter\"\ncpu = [0]\nrules = [\"deny from 10.9.0.0/16\"]\n",
        ),
        and(
            "a balancer without a home",
            &two_sided("kind = \"balancer\"\n"),
        ),
        and(
            "a balancer without a router",
            &two_sided(&format!("kind = \"balancer\"\nhome = \"e1\"\n{SERVICE}")),
        ),
        balanced(
            "a balancer in modes that networks have not",
            &(String::from("source4 = \"10.99.0.0/16\"\n")
                + &SERVICE.replace("nat", "ipip")
                + &SERVICE
                    .replace("shop", "more")
                    .replace("port = 80", "port = 81")
                    .replace(
                        "\"nat\"",
                        "\"dsr\"\ncheck = { kind = \"tcp\" }\nall_down = \"drop\"",
                    )
                    .replace("0.7\"", "0.7\", mac = \"02:00:00:00:00:01\"")),
        ),
        balanced(
            "a mistake in a service of a balancer",
            &SERVICE.replace("\"tcp\"", "\"sctp\""),
        ),
        balanced(
            "a balancer whose addresses are on the wrong side",
            &(SERVICE
                .replace("10.9.0.1", "10.1.0.100")
                .replace("10.2.0.7", "10.1.0.7")
                + &SERVICE
                    .replace("shop", "more")
                    .replace("10.9.0.1", "10.2.0.7")
                    .replace("\"10.2.0.7\" }", "\"10.2.0.8\" }")),
        ),
        and(
            "a chain that passes a balancer",
            &format!(
                "[[network.function]]\nname = \"lb\"\nkind = \"balancer\"\nhome = \"e1\"\n{SERVICE}[[network.chain]]\nname = \"look\"\nat = \"gw.web\"\nthrough = [\"lb\"]\n"
            ),
        ),
    ]
}

/// A chain in front of the router, of a function that has no links.
const CHAIN: &str = "\
[[network.function]]
name = \"wall\"
kind = \"empty\"
[[network.chain]]
name = \"look\"
at = \"gw.web\"
through = [\"wall\"]
";

fn chaining() -> Vec<Case> {
    let chain = |title, old: &str, new: &str| {
        assert!(CHAIN.contains(old), "{title}");
        and(title, &CHAIN.replacen(old, new, 1))
    };
    vec![
        chain("a chain at what is not there", "gw.web", "gv.web"),
        chain("a chain at a subnet", "gw.web", "web"),
        chain("a chain at an interface without a link", "gw.web", "wall.a"),
        chain("a chain of nothing", "[\"wall\"]", "[]"),
        chain(
            "a chain of what is not there",
            "[\"wall\"]",
            "[[\"wall\", \"wal\"]]",
        ),
        chain("a chain through a router", "[\"wall\"]", "[\"gw\"]"),
        chain(
            "a chain through a function twice",
            "[\"wall\"]",
            "[\"wall\", \"wall\"]",
        ),
        chain(
            "a chain through a function that has links",
            "[[network.chain]]\n",
            "[[network.link]]\nfrom = \"web\"\nto = \"wall\"\n[[network.link]]\nfrom = \"db\"\nto = \"wall.b\"\n[[network.chain]]\n",
        ),
        chain("a chain with a name that is taken", "\"look\"", "\"web\""),
        chain("a chain whose functions are no texts", "[\"wall\"]", "[1]"),
        chain(
            "a selection that cannot be",
            "[\"wall\"]\n",
            "[\"wall\"]\nselect = [{ protocol = \"tpc\" }, { port = \"443-80\" }, { port = \"443\" }, { from = \"10.0.0.0/8\", to = \"fd00::/8\" }]\n",
        ),
        chain(
            "more selections than a chain can have",
            "[\"wall\"]\n",
            &format!("[\"wall\"]\nselect = [{}]\n", "{}, ".repeat(1001)),
        ),
        chain(
            "a function that looks like one of a chain",
            "kind = \"empty\"",
            "kind = \"steer\"",
        ),
    ]
}

/// Routers and bridges in a row.
fn chain(routers: usize) -> String {
    let mut text = "[[edge]]\nname = 'e1'\n[[tenant]]\nname = 'red'\n[[network]]\nname = 'long'\ntenant = 'red'\n".to_owned();
    for n in 0..=routers {
        text += &format!(
            "[[network.subnet]]\nname = 's{n}'\nprefix = '10.{}.{}.0/24'\n",
            n / 256,
            n % 256
        );
    }
    for n in 0..routers {
        let [left, right] = [n, n + 1].map(|n| format!("10.{}.{}", n / 256, n % 256));
        text += &format!(
            "[[network.function]]\nname = 'r{n}'\nkind = 'router'\ninterface = [{{ name = 'l', address = '{left}.1/24' }}, {{ name = 'r', address = '{right}.2/24' }}]\n\
             [[network.link]]\nfrom = 's{n}'\nto = 'r{n}.l'\n[[network.link]]\nfrom = 's{}'\nto = 'r{n}.r'\n",
            n + 1
        );
    }
    for (name, n) in [("first", 0), ("last", routers)] {
        text += &format!(
            "[[network.workload]]\nname = '{name}'\nsubnet = 's{n}'\nedge = 'e1'\ndevice = '{name}'\naddress = '10.{}.{}.9'\n",
            n / 256,
            n % 256
        );
    }
    text
}

fn spreading() -> Vec<Case> {
    let many = "[[edge]]\nname = \"e3\"\n";
    vec![
        with("packets that do not fit with a tunnel around them", "device = \"eth0\"\nmtu = 1600\n[[tenant]]", "device = \"eth0\"\n[[tenant]]"),
        with("the same over IPv6 with Geneve", "underlay = \"192.0.2.1\"\ndevice = \"eth0\"\nmtu = 1600\n", "underlay = \"2001:db8::1\"\ndevice = \"eth0\"\nmtu = 1570\ntunnel = \"geneve\"\naccepts = [\"vxlan\", \"geneve\"]\n")
            .then("underlay = \"192.0.2.2\"\n", "underlay = \"2001:db8::2\"\naccepts = [\"geneve\", \"vxlan\"]\n"),
        with("GRE over IPv4", "mtu = 1600\n[[tenant]]", "mtu = 1541\ntunnel = \"gre\"\n[[tenant]]").then("mtu = 1600\n", "mtu = 1600\ntunnel = \"gre\"\n"),
        with("a kind that the other edge does not accept", "mtu = 1600\n", "mtu = 1600\ntunnel = \"geneve\"\naccepts = [\"geneve\", \"vxlan\"]\n"),
        with("an edge without an underlay", "underlay = \"192.0.2.1\"\n", ""),
        with("an edge without a device of the underlay", "underlay = \"192.0.2.1\"\ndevice = \"eth0\"\n", "underlay = \"192.0.2.1\"\n"),
        with("no family in common", "underlay = \"192.0.2.1\"\n", "underlay = \"2001:db8::1\"\n"),
        with("an address of the underlay that is there twice", "underlay = \"192.0.2.2\"\n", "underlay = \"192.0.2.1\"\n"),
        and("addresses of the underlay that cannot be", &format!("{many}underlay = [\"127.0.0.1\", \"192.0.2.9\"]\n")),
        with("an identifier that is there twice", "prefix = \"10.1.0.0/24\"\n", "prefix = \"10.1.0.0/24\"\nidentifier = 7\n").then("name = \"db\"\nprefix", "name = \"db\"\nidentifier = 7\nprefix"),
        Case {
            title: "tenants whose numbers are the same",
            text: BASE.replacen("name = \"red\"", "name = \"t124543\"\n[[tenant]]\nname = \"t131208\"\n[[tenant]]\nname = \"red\"", 1),
        },
    ]
}

impl Case {
    fn then(mut self, old: &str, new: &str) -> Case {
        assert!(self.text.contains(old), "{}: {old}", self.title);
        self.text = self.text.replacen(old, new, 1);
        self
    }
}

fn said(text: &str) -> String {
    match parse(text, "net.toml").and_then(|document| check(document, &NoFiles)) {
        Ok((_, warnings)) => panic!("nothing is wrong; warnings: {warnings}"),
        Err(errors) => errors.to_string(),
    }
}

#[test]
fn every_mistake_is_shown_as_recorded() {
    let mut found = String::new();
    let cases = [
        reading(),
        naming(),
        addressing(),
        chaining(),
        shaping(),
        spreading(),
    ];
    for case in cases.into_iter().flatten() {
        found += &format!("## {}\n{}\n", case.title, said(&case.text));
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mistakes.snap");
    if std::env::var_os("WEIR_UPDATE").is_some_and(|value| value == "1") {
        std::fs::write(&path, &found).expect("the record can be written");
    }
    let recorded = std::fs::read_to_string(&path).expect("tests/mistakes.snap is there");
    for (number, (found, recorded)) in (1..).zip(found.lines().zip(recorded.lines())) {
        assert_eq!(found, recorded, "line {number} of mistakes.snap");
    }
    assert_eq!(found.lines().count(), recorded.lines().count());
}

#[test]
fn what_the_mistakes_are_made_of_is_right() {
    bench::networks(BASE);
    bench::networks(&format!("{BASE}{BRIDGES}"));
    bench::networks(&format!("{BASE}{CHAIN}"));
    bench::networks(&chain(255));
    // With a home, or with all workloads on one edge, state is no mistake.
    bench::networks(&format!(
        "{BASE}{}",
        two_sided(&format!("{NAT}home = \"e2\"\n"))
    ));
    let one = BASE.replacen(
        "edge = \"e2\"\ndevice = \"tap1\"",
        "edge = \"e1\"\ndevice = \"tap2\"",
        1,
    );
    bench::networks(&format!("{one}{}", two_sided(NAT)));
    let balanced = balanced("a balancer", &format!("connections = 1000\n{SERVICE}"));
    let read = bench::networks(&balanced.text).document;
    assert_eq!(parse(&export(&read), "written").expect("read again"), read);
}

#[test]
fn what_is_allowed_and_odd_is_a_warning() {
    let text = BASE.replacen("to = \"gw.web\"\n", "to = \"gw.web\"\nidentifier = 9\n", 1);
    let document = parse(&text, "net.toml").expect("read");
    let (_, warnings) = check(document, &NoFiles).expect("checked");
    assert_eq!(
        warnings.to_string(),
        "\
warning: the link from `web` to `gw.web` never leaves an edge: its identifier is not used
  --> net.toml:33:14
   |
33 | identifier = 9
   |              ^
   |
   = help: leave it out"
    );
}

#[test]
fn other_tenants_may_have_the_same_addresses() {
    let other = "[[tenant]]\nname = \"blue\"\n[[network]]\nname = \"lab\"\ntenant = \"blue\"\n[[network.subnet]]\nname = \"web\"\nprefix = \"10.1.0.0/16\"\n\
                 [[network.workload]]\nname = \"w\"\nsubnet = \"web\"\nedge = \"e1\"\ndevice = \"tap9\"\naddress = \"10.1.0.7\"\n";
    bench::networks(&format!("{BASE}{other}"));
}

/// Bridges of one segment may have the same prefix; those of different segments may not.
#[test]
fn bridges_of_one_segment_share_its_prefix() {
    let shared = BRIDGES.replace(
        "name = \"more\"\n",
        "name = \"more\"\nprefix = \"10.1.0.0/24\"\n",
    );
    bench::networks(&format!("{BASE}{shared}"));
}
