//! The same spellings of values, accepted and refused by policies, configurations, documents of networks and options alike, with the same
//! message: the table is `tests/values/spellings.txt`.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use clap::Parser;
use weir_functions::kind::Files;
use weir_graph::Numbers;
use weir_policy::{NoFiles, Source};
use weir_value::{InterfaceAddress, Invalid, Mac, PortRange, Prefix};

use super::Args;

const TABLE: &str = include_str!("../../../../tests/values/spellings.txt");

/// Where a value can be written: a name, and what is said about the text there; empty if it is accepted.
type Surface = (&'static str, fn(&str) -> String);

/// What is wrong with a text as a value of a kind.
type Reads = fn(&str) -> Option<Invalid>;

/// Every kind of the table: the parser, and where such values are written.
const KINDS: &[(&str, Reads, &[Surface])] = &[
    (
        "duration",
        |text| weir_value::duration(text).err(),
        &[
            ("policy", |text| {
                policy(&format!(
                    "timeout udp-stream {text}\nadd-stateful udp-sport 1 accept"
                ))
            }),
            ("configuration", |text| {
                rule(&format!("limit rate 5/s per source block {text}"))
            }),
            ("configuration, key", |text| {
                configuration(&format!(
                    "kind = \"balancer\"\nsource4 = \"10.99.0.0/16\"\nidle = {{ tcp = {} }}\n{SERVICE}",
                    quoted(text)
                ))
            }),
            ("document", |text| {
                document(
                    "dhcp = true\n",
                    &format!("dhcp = true\nlease = {}\n", quoted(text)),
                )
            }),
            ("option", |text| {
                option(&["run", "p", "-i", "e"], "--duration", text)
            }),
        ],
    ),
    (
        "count",
        |text| weir_value::count(text).err(),
        &[
            ("configuration", |text| {
                rule(&format!("limit rate 5/s burst {text}"))
            }),
            ("option", |text| {
                option(&["generate", "-i", "e"], "--frames", text)
            }),
        ],
    ),
    (
        "rate",
        |text| weir_value::rate(text).err(),
        &[
            ("policy", |text| {
                policy(&format!("tcp-syn drop over {text}"))
            }),
            ("configuration", |text| rule(&format!("limit rate {text}"))),
            ("document", |text| {
                document("dhcp = true\n", &format!("storm = {}\n", quoted(text)))
            }),
            ("option", |text| {
                option(&["generate", "-i", "e"], "--rate", text)
            }),
        ],
    ),
    (
        "mac",
        |text| text.parse::<Mac>().err(),
        &[
            ("policy", |text| policy(&format!("eth-saddr {text} drop"))),
            ("configuration", |text| {
                configuration(&format!(
                    "kind = \"balancer\"\n{}mac = {}\n",
                    SERVICE.replace("ipip", "dsr"),
                    quoted(text)
                ))
            }),
            ("document", |text| {
                document(
                    "device = \"tap0\"\n",
                    &format!("device = \"tap0\"\nmac = {}\n", quoted(text)),
                )
            }),
            ("option", |text| {
                option(&["generate", "-i", "e"], "--dst-mac", text)
            }),
            ("option of ping", |text| {
                option(&["net", "ping", "n/w", "10.0.0.1"], "--mac", text)
            }),
        ],
    ),
    (
        "prefix",
        |text| text.parse::<Prefix>().err(),
        &[
            ("policy", |text| {
                policy(&format!("{} {text} drop", field(text)))
            }),
            ("configuration", |text| rule(&format!("deny from {text}"))),
            ("configuration, key", |text| {
                configuration(&format!(
                    "kind = \"decapsulate\"\naddress = \"10.0.0.1\"\nfrom = {}\n",
                    quoted(text)
                ))
            }),
            ("document", |text| {
                read(&format!(
                    "[[tenant]]\nname = \"t\"\n[[network]]\nname = \"n\"\ntenant = \"t\"\n[[network.subnet]]\nname = \"s\"\nprefix = {}\n",
                    quoted(text)
                ))
            }),
            ("option", |text| {
                option(&["generate", "-i", "e"], "--src", text)
            }),
        ],
    ),
    (
        "address",
        |text| weir_value::address(text).err(),
        &[
            ("policy", |text| {
                let first = if text.contains(':') { "::" } else { "0.0.0.0" };
                policy(&format!("{} {first}-{text} drop", field(text)))
            }),
            ("configuration", |text| {
                configuration(&format!(
                    "kind = \"decapsulate\"\naddress = {}\n",
                    quoted(text)
                ))
            }),
            ("document", |text| {
                read(&format!(
                    "[[tenant]]\nname = \"t\"\n[[network]]\nname = \"n\"\ntenant = \"t\"\n[[network.subnet]]\nname = \"s\"\ngateway = {}\n",
                    quoted(text)
                ))
            }),
            ("option", |text| option(&["connections"], "--address", text)),
        ],
    ),
    (
        "interface address",
        |text| text.parse::<InterfaceAddress>().err(),
        &[
            ("configuration", |text| {
                configuration(&format!(
                    "kind = \"router\"\n[[function.interface]]\nport = \"wan\"\naddress = {}\n",
                    quoted(text)
                ))
            }),
            ("document", |text| {
                read(&format!(
                    "[[tenant]]\nname = \"t\"\n[[network]]\nname = \"n\"\ntenant = \"t\"\n[[network.function]]\nname = \"r\"\nkind = \"router\"\ninterface = [{{ name = \"a\", address = {} }}]\n",
                    quoted(text)
                ))
            }),
        ],
    ),
    (
        "port range",
        |text| text.parse::<PortRange>().err(),
        &[
            ("configuration", |text| {
                rule(&format!("deny udp to-port {text}"))
            }),
            ("document", |text| {
                read(&format!(
                    "[[tenant]]\nname = \"t\"\n[[network]]\nname = \"n\"\ntenant = \"t\"\n[[network.chain]]\nname = \"c\"\nat = \"r\"\nthrough = [\"f\"]\nselect = [{{ protocol = \"udp\", port = {} }}]\n",
                    quoted(text)
                ))
            }),
            ("option", |text| {
                option(&["generate", "-i", "e"], "--dport", text)
            }),
        ],
    ),
    (
        "protocol",
        |text| weir_value::protocol(text).err(),
        &[
            // Numbers of fields are numbers of the language there: refused in its words.
            ("policy", |text| policy(&format!("ip-proto {text} drop"))),
            // A word of a rule may be any of its keywords: the same.
            ("configuration", |text| {
                rule(&format!("deny {text} from 10.0.0.0/8"))
            }),
            ("document", |text| {
                read(&format!(
                    "[[tenant]]\nname = \"t\"\n[[network]]\nname = \"n\"\ntenant = \"t\"\n[[network.chain]]\nname = \"c\"\nat = \"r\"\nthrough = [\"f\"]\nselect = [{{ protocol = {} }}]\n",
                    quoted(text)
                ))
            }),
            ("option", |text| {
                option(&["connections"], "--protocol", text)
            }),
        ],
    ),
    (
        "interface",
        |text| weir_value::interface(text).err(),
        &[
            ("policy", |text| policy(&format!("in {text} drop"))),
            ("configuration", |text| {
                graph(&format!(
                    "[[port]]\nname = \"wan\"\ndevice = {}\n",
                    quoted(text)
                ))
            }),
            ("document", |text| {
                document(
                    "device = \"tap0\"\n",
                    &format!("device = {}\n", quoted(text)),
                )
            }),
            ("option", |text| option(&["generate"], "--interface", text)),
        ],
    ),
];

const SERVICE: &str = "\
[[function.service]]
address = \"192.0.2.1\"
protocol = \"tcp\"
port = 80
mode = \"ipip\"
[[function.service.server]]
address = \"10.0.0.1\"
";

/// An edge with one workload, whose lines can be replaced.
const NETWORK: &str = "\
[[edge]]
name = \"e1\"
underlay = \"192.0.2.1\"
device = \"uplink0\"
mtu = 1600
[[tenant]]
name = \"red\"
[[network]]
name = \"shop\"
tenant = \"red\"
[[network.subnet]]
name = \"web\"
prefix = \"10.1.0.0/24\"
dhcp = true
[[network.workload]]
name = \"w1\"
subnet = \"web\"
edge = \"e1\"
device = \"tap0\"
address = \"10.1.0.7\"
";

struct Nothing;

impl Files for Nothing {
    fn read(&self, _: &Path) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::NotFound.into())
    }
}

fn quoted(text: &str) -> String {
    format!("{text:?}")
}

fn field(text: &str) -> &'static str {
    if text.contains(':') {
        "ip6-saddr"
    } else {
        "ip-saddr"
    }
}

fn policy(text: &str) -> String {
    match weir_policy::parse(&Source::new("p.weir", text), &NoFiles) {
        Ok(_) => String::new(),
        Err(found) => found.render(false),
    }
}

/// A rule of a filter, in the configuration of an edge.
fn rule(text: &str) -> String {
    configuration(&format!(
        "kind = \"filter\"\nrules = [{}, \"allow\"]\n",
        quoted(text)
    ))
}

fn configuration(function: &str) -> String {
    graph(&format!(
        "[[port]]\nname = \"wan\"\ndevice = \"veth0\"\n[[function]]\nname = \"f\"\n{function}\n[[link]]\nfrom = \"wan\"\nto = \"f\"\n"
    ))
}

fn graph(text: &str) -> String {
    let planned = weir_graph::parse(text, "edge.toml")
        .and_then(|config| weir_graph::plan(&config, &Nothing, &Numbers::new()).map(drop));
    planned.map_or_else(|found| found.render(false), |()| String::new())
}

fn document(line: &str, by: &str) -> String {
    let text = NETWORK.replacen(line, by, 1);
    assert_ne!(text, NETWORK.replacen(line, "", 1));
    let checked = weir_network::parse(&text, "net.toml")
        .and_then(|document| weir_network::check(document, &Nothing).map(drop));
    checked.map_or_else(|found| found.render(false), |()| String::new())
}

/// What is wrong with the values of a document, and not with what they mean together.
fn read(text: &str) -> String {
    let read = weir_network::parse(text, "net.toml");
    read.map_or_else(|found| found.render(false), |_| String::new())
}

fn option(command: &[&str], flag: &str, text: &str) -> String {
    let mut words = vec!["weir".to_owned()];
    words.extend(command.iter().map(|word| (*word).to_owned()));
    words.push(format!("{flag}={text}"));
    match Args::try_parse_from(words) {
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    }
}

/// Texts of a kind, right or wrong.
fn texts<'t>(kind: &str, which: &str) -> Vec<&'t str> {
    let head = format!("[{kind}]");
    let section = TABLE.lines().skip_while(|line| **line != head);
    let lines = section.skip(1).take_while(|line| !line.starts_with('['));
    let mut texts = Vec::new();
    for line in lines.filter_map(|line| line.strip_prefix(which)) {
        texts.extend(line.split('|').skip(1).step_by(2));
    }
    assert_eq!(texts.len(), 20, "{kind}: {which}");
    texts
}

/// Whether a text is one word in policies and rules, and read as the value that is meant.
fn is_word(kind: &str, text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ".:/+-%_".contains(c);
    let is_value = text.starts_with(|c: char| c.is_ascii_digit()) || kind == "duration";
    is_value && text.chars().all(is_plain)
}

#[test]
fn all_surfaces_agree_on_all_spellings() {
    let mut wrong = String::new();
    for (kind, reads, surfaces) in KINDS {
        for text in texts(kind, "good") {
            if let Some(invalid) = reads(text) {
                let _ = writeln!(wrong, "{kind}: {invalid}");
            }
            for (surface, said) in *surfaces {
                let said = said(text);
                // Ranges are those of fields.
                let in_range = ["cannot be", "is not from", "whole seconds"]
                    .iter()
                    .any(|words| said.contains(words));
                if !(said.is_empty() || *kind == "duration" && in_range) {
                    let _ = writeln!(wrong, "{kind} `{text}`, {surface}:\n{said}");
                }
            }
        }
        for text in texts(kind, "bad") {
            let Some(invalid) = reads(text) else {
                let _ = writeln!(wrong, "{kind} `{text}` is accepted");
                continue;
            };
            for (surface, said) in *surfaces {
                let is_text = matches!(*surface, "policy" | "configuration");
                if is_text && (text.is_empty() || text.contains(' ')) {
                    // Not one word: another text, in which it is not a value.
                    continue;
                }
                let said = said(text);
                // Ends of a range; and any number of a policy may be hex.
                let is_other = *surface == "policy"
                    && (text.starts_with("0x") || (*kind != "prefix" && text.contains('/')));
                let own_words =
                    is_text && (*kind == "protocol" || is_other || !is_word(kind, text));
                if said.is_empty() || !(own_words || said.contains(&invalid.to_string())) {
                    let _ = writeln!(
                        wrong,
                        "{kind} `{text}`, {surface}: not `{invalid}`, but:\n{said}"
                    );
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
