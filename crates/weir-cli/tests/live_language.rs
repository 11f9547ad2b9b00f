//! The policies of docs/language.md, live: each is taken from the page by its text and run between hosts that have the kernel's settings, and does
//! what the page says of it. The box forwards, and public addresses are routed to it or belong to it: that much the page says.
//!
//! A policy on the page without a judge here fails the test, so nothing is left out.

use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use weir_kernel::NetNs;
use weir_kernel::bed::{self, End};
use weir_policy::{NoFiles, Source, parse};

use crate::live_bed::{Run, root, stderr, weir};
use crate::live_helpers;
use crate::live_path::{Peers, TCP, UDP, connect, ping, serve, tcp, udp, udp_socket};

const PUBLIC: &str = "198.51.100.1";
const SERVER: &str = "192.0.2.2";
const SERVER6: &str = "2001:db8:2::2";
const INSIDE: &str = "10.0.0.2";
const INSIDE6: &str = "2001:db8:1::2";
const SOON: Duration = Duration::from_millis(400);
const LENGTHS: [usize; 2] = [20, 3000];

/// A host inside, the box, a host outside.
struct Net {
    inside: NetNs,
    gate: NetNs,
    outside: NetNs,
    /// Who spoke to the host inside, by TCP.
    heard_inside: Peers,
    heard_outside: [Peers; 2],
    /// Of the box: nothing.
    _served: Vec<[Peers; 2]>,
}

impl Net {
    /// `owns_public`: the public address is one of the box's own, else it is routed there.
    fn build(prefix: &str, owns_public: bool) -> Net {
        let name = |part: &str| NetNs::create(&format!("{prefix}-{part}")).expect("namespace");
        let (inside, gate, outside) = (name("i"), name("g"), name("o"));
        let end = |ns, name, addresses| End {
            ns,
            name,
            addresses,
        };
        bed::veth(
            end(&inside, "eth0", &["10.0.0.2/24", "2001:db8:1::2/64"]),
            end(&gate, "lan0", &["10.0.0.1/24", "2001:db8:1::1/64"]),
        )
        .expect("veth");
        let own = format!("{PUBLIC}/32");
        let mut wan = vec!["192.0.2.1/24", "2001:db8:2::1/64"];
        if owns_public {
            wan.push(&own);
        }
        bed::veth(
            end(&outside, "eth0", &["192.0.2.2/24", "2001:db8:2::2/64"]),
            end(&gate, "wan0", &wan),
        )
        .expect("veth");
        for (ns, via) in [
            (&inside, "10.0.0.1"),
            (&inside, "2001:db8:1::1"),
            (&outside, "192.0.2.1"),
            (&outside, "2001:db8:2::1"),
        ] {
            bed::default_route(ns, via).expect("route");
        }
        bed::forward(&gate).expect("forwards");
        let heard = serve(&inside, TCP, UDP);
        let sip = serve(&outside, 443, 5060);
        let heard_outside = serve(&outside, TCP, UDP);
        let ssh = serve(&inside, 22, 2200);
        let games = serve(&outside, 3074, 3074);
        let own = serve(&gate, TCP, UDP);
        let net = Net {
            inside,
            gate,
            outside,
            heard_inside: heard[0].clone(),
            heard_outside,
            _served: vec![heard, sip, ssh, games, own],
        };
        // Neighbours are found before the policy comes, and again behind it.
        for (from, to) in [(&net.inside, SERVER), (&net.inside, SERVER6)] {
            let end = std::time::Instant::now() + Duration::from_secs(30);
            while tcp(from, (to, TCP), 10).is_err() {
                assert!(
                    std::time::Instant::now() < end,
                    "no way to {to} without weir"
                );
            }
        }
        net.forget();
        net
    }

    /// Everyone forgets where the others are: ARP and neighbour discovery must pass the policy.
    fn forget(&self) {
        for ns in [&self.inside, &self.gate, &self.outside] {
            ns.ip(&["neigh", "flush", "all"]).expect("flushed");
        }
        drop(self.heard_inside.take());
        self.heard_outside
            .iter()
            .for_each(|peers| drop(peers.take()));
    }

    /// Who spoke to the host outside, by TCP or UDP.
    fn seen(&self) -> Vec<std::net::SocketAddr> {
        self.heard_outside.iter().flat_map(Peers::take).collect()
    }
}

/// What was wrong, with what it was.
type Faults = Vec<String>;

fn works(what: &str, result: io::Result<()>, faults: &mut Faults) {
    if let Err(error) = result {
        faults.push(format!("{what}: {error}"));
    }
}

fn closed(what: &str, from: &NetNs, to: (&str, u16), faults: &mut Faults) {
    if connect(from, to, SOON).is_ok() {
        faults.push(format!("{what}: open"));
    }
}

/// A policy of the page: something in it that no other has, the interfaces it runs on, and what it does.
struct Judge {
    mark: &'static str,
    ports: &'static [&'static str],
    check: fn(&Net, &mut Faults),
}

const BOTH: &[&str] = &["lan0", "wan0"];

const JUDGES: &[Judge] = &[
    Judge {
        mark: "web-in:",
        ports: &["wan0"],
        check: |net, faults| {
            works(
                "the web server",
                tcp(&net.outside, (INSIDE, TCP), 50_000),
                faults,
            );
            works(
                "over IPv6",
                tcp(&net.outside, (INSIDE6, TCP), 50_000),
                faults,
            );
            closed("SSH", &net.outside, (INSIDE, 22), faults);
            if ping(&net.outside, INSIDE, 56).is_ok() {
                faults.push("pings pass".to_owned());
            }
        },
    },
    Judge {
        mark: "web:  add-stateful in wan0",
        ports: BOTH,
        check: |net, faults| {
            for (server, host) in [(SERVER, INSIDE), (SERVER6, INSIDE6)] {
                works(
                    "out by TCP",
                    tcp(&net.inside, (server, TCP), 50_000),
                    faults,
                );
                works(
                    "out by UDP",
                    udp(&net.inside, (server, UDP), &LENGTHS),
                    faults,
                );
                works("pings out", ping(&net.inside, server, 56), faults);
                works(
                    "the web server",
                    tcp(&net.outside, (host, TCP), 50_000),
                    faults,
                );
                closed("SSH", &net.outside, (host, 22), faults);
                if udp(&net.outside, (host, UDP), &[20]).is_ok() {
                    faults.push("UDP comes in".to_owned());
                }
            }
        },
    },
    Judge {
        mark: "add-stateful in lan0 ip-saddr 10.0.0.0/8 ! ip-daddr 10.0.0.0/8 map ip-saddr 198.51.100.1\n",
        ports: BOTH,
        check: |net, faults| {
            works("TCP", tcp(&net.inside, (SERVER, TCP), 200_000), faults);
            works("UDP", udp(&net.inside, (SERVER, UDP), &LENGTHS), faults);
            works("ping", ping(&net.inside, SERVER, 56), faults);
            let seen = net.seen();
            if seen.len() < 2 || seen.iter().any(|peer| peer.ip().to_string() != PUBLIC) {
                faults.push(format!("the server saw {seen:?}"));
            }
            works(
                "the box itself",
                tcp(&net.inside, ("10.0.0.1", TCP), 10_000),
                faults,
            );
            works(
                "from the box",
                tcp(&net.gate, (SERVER, TCP), 10_000),
                faults,
            );
        },
    },
    Judge {
        mark: "ban:  tcp-dport 23",
        ports: &["wan0"],
        check: |net, faults| {
            works("TCP", tcp(&net.outside, (INSIDE, TCP), 50_000), faults);
            closed("telnet", &net.outside, (INSIDE, 23), faults);
            closed("the banned host", &net.outside, (INSIDE, TCP), faults);
            works(
                "its other address",
                tcp(&net.outside, (INSIDE6, TCP), 50_000),
                faults,
            );
        },
    },
    Judge {
        mark: "games:",
        ports: BOTH,
        check: |net, faults| {
            let begun = dropped_now();
            let games = udp(&net.inside, (SERVER, 3074), &[20]).is_err();
            let night = connect(&net.inside, (SERVER, TCP), SOON).is_err();
            works("UDP", udp(&net.inside, (SERVER, UDP), &LENGTHS), faults);
            let out = tcp(&net.outside, (INSIDE, TCP), 10);
            // The answers of the host inside are TCP from `lan0`, too.
            let answered = out.is_err() == night;
            // An hour that begins or ends meanwhile decides nothing.
            if begun == dropped_now() && ((games, night) != begun || !answered) {
                faults.push(format!(
                    "games and night: dropped {:?}, not {begun:?}; from outside {out:?}",
                    (games, night)
                ));
            }
        },
    },
    Judge {
        mark: "set knock1",
        ports: BOTH,
        check: |net, faults| {
            let knock = |port: u16| match udp_socket(&net.outside, (INSIDE, port)) {
                Ok(socket) => {
                    let _ = socket.send(b"!");
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(error) => panic!("no socket: {error}"),
            };
            // The neighbour is found first, so that no knock is overtaken.
            closed("SSH", &net.outside, (INSIDE, 22), faults);
            [7003, 7002, 7001].into_iter().for_each(knock);
            closed("SSH by the wrong order", &net.outside, (INSIDE, 22), faults);
            [7002, 7003].into_iter().for_each(knock);
            works("SSH", tcp(&net.outside, (INSIDE, 22), 50_000), faults);
            closed("another port", &net.outside, (INSIDE, TCP), faults);
        },
    },
    Judge {
        mark: "set once",
        ports: &["wan0"],
        check: |net, faults| {
            for which in ["first", "second"] {
                works(which, tcp(&net.outside, (INSIDE, 22), 10_000), faults);
            }
            closed("the third", &net.outside, (INSIDE, 22), faults);
            closed("the banned host", &net.outside, (INSIDE, TCP), faults);
        },
    },
    Judge {
        mark: "chain web",
        ports: &["wan0"],
        check: |net, faults| {
            let owned = net.gate.ip(&["address", "show", "wan0"]);
            if owned.is_ok_and(|shown| shown.contains(PUBLIC)) {
                works("the web", tcp(&net.outside, (PUBLIC, TCP), 50_000), faults);
            }
            closed("SSH", &net.outside, (INSIDE, 22), faults);
            closed("the web of others", &net.outside, (INSIDE, TCP), faults);
            works("UDP", udp(&net.outside, (INSIDE, UDP), &LENGTHS), faults);
        },
    },
    Judge {
        mark: "set admins",
        ports: &["wan0"],
        check: |net, faults| {
            works("the web", tcp(&net.outside, (INSIDE, TCP), 50_000), faults);
            closed("SSH of strangers", &net.outside, (INSIDE, 22), faults);
            let admin = ["address", "add", "192.0.2.10/24", "dev", "eth0"];
            net.outside.ip(&admin).expect("an address");
            let route = |verb, source: &[&str]| {
                let words = [&["route", verb, "10.0.0.0/24", "via", "192.0.2.1"], source];
                net.outside.ip(&words.concat()).expect("a route");
            };
            route("add", &["src", "192.0.2.10"]);
            works(
                "SSH of admins",
                tcp(&net.outside, (INSIDE, 22), 50_000),
                faults,
            );
            route("del", &[]);
            net.outside
                .ip(&["address", "del", "192.0.2.10/24", "dev", "eth0"])
                .expect("no address");
        },
    },
    Judge {
        mark: "icmp-type in { 5, 9 }",
        ports: BOTH,
        check: |net, faults| {
            works("TCP", tcp(&net.inside, (SERVER, TCP), 50_000), faults);
            works("ping", ping(&net.inside, SERVER, 56), faults);
            works("over IPv6", ping(&net.inside, SERVER6, 56), faults);
        },
    },
    Judge {
        mark: "map ip-saddr 198.51.100.1 mapping endpoint-independent filtering address-dependent",
        ports: BOTH,
        check: |net, faults| {
            works("TCP", tcp(&net.inside, (SERVER, TCP), 50_000), faults);
            works("UDP", udp(&net.inside, (SERVER, UDP), &LENGTHS), faults);
            let seen = net.seen();
            if seen.len() < 2 || seen.iter().any(|peer| peer.ip().to_string() != PUBLIC) {
                faults.push(format!("the server saw {seen:?}"));
            }
        },
    },
    Judge {
        mark: "helper tftp",
        ports: BOTH,
        check: |net, faults| {
            works("TCP", tcp(&net.inside, (SERVER, TCP), 50_000), faults);
            let file = live_helpers::file();
            let _server = live_helpers::Server::start(&net.outside, &file);
            if !live_helpers::gets(&net.inside, SERVER) {
                faults.push("TFTP: no file".to_owned());
            }
        },
    },
    Judge {
        mark: "set public",
        ports: BOTH,
        check: |net, faults| {
            works("TCP", tcp(&net.inside, (SERVER, TCP), 200_000), faults);
            works("IPv6", tcp(&net.inside, (SERVER6, TCP), 200_000), faults);
            works(
                "UDP over IPv6",
                udp(&net.inside, (SERVER6, UDP), &LENGTHS),
                faults,
            );
            let seen = net.seen();
            let is_right = |peer: &std::net::SocketAddr| {
                let text = peer.ip().to_string();
                let pool = (8..=15)
                    .map(|n| format!("198.51.100.{n}"))
                    .chain(["203.0.113.7".to_owned()]);
                match peer.is_ipv4() {
                    true => {
                        pool.collect::<Vec<_>>().contains(&text)
                            && (32768..=60999).contains(&peer.port())
                    }
                    false => text.starts_with("2001:db8:ffff::"),
                }
            };
            if seen.len() < 3 || !seen.iter().all(is_right) {
                faults.push(format!("the server saw {seen:?}"));
            }
        },
    },
    Judge {
        mark: "add-stateful ip-daddr 198.51.100.1 tcp-dport 8080 map ip-daddr 10.0.0.2 map tcp-dport 80\n",
        ports: BOTH,
        check: |net, faults| {
            works(
                "the port",
                tcp(&net.outside, (PUBLIC, 8080), 200_000),
                faults,
            );
            let seen = net.heard_inside.take();
            if seen.is_empty() || seen.iter().any(|peer| peer.ip().to_string() != SERVER) {
                faults.push(format!("the server inside saw {seen:?}"));
            }
        },
    },
    Judge {
        mark: "hairpin:",
        ports: BOTH,
        check: |net, faults| {
            works(
                "from outside",
                tcp(&net.outside, (PUBLIC, 8080), 200_000),
                faults,
            );
            drop(net.heard_inside.take());
            works(
                "from inside",
                tcp(&net.inside, (PUBLIC, 8080), 200_000),
                faults,
            );
            let seen = net.heard_inside.take();
            if seen.is_empty() || seen.iter().any(|peer| peer.ip().to_string() != PUBLIC) {
                faults.push(format!("the server inside saw {seen:?}"));
            }
        },
    },
    Judge {
        mark: "shuffle tcp-seq-num",
        ports: BOTH,
        check: |net, faults| {
            works("TCP", tcp(&net.inside, (SERVER, TCP), 400_000), faults);
            works("back", tcp(&net.outside, (INSIDE, TCP), 400_000), faults);
            works("UDP", udp(&net.inside, (SERVER, UDP), &LENGTHS), faults);
            works(
                "a shuffled port",
                tcp(&net.inside, (SERVER, 443), 50_000),
                faults,
            );
            let shown = weir(&net.gate, &["connections", "--json"]);
            let shown: serde_json::Value = match serde_json::from_slice(&shown.stdout) {
                Ok(shown) => shown,
                Err(error) => return faults.push(format!("{error}: {}", stderr(&shown))),
            };
            if !shown.to_string().contains("49152") && !shuffled(&shown) {
                faults.push(format!("no port is shuffled: {shown}"));
            }
        },
    },
    Judge {
        mark: "sip:",
        ports: BOTH,
        check: |net, faults| {
            works("a call", udp(&net.inside, (SERVER, 5060), &LENGTHS), faults);
            works("TCP", tcp(&net.inside, (SERVER, TCP), 50_000), faults);
            let shown = weir(&net.gate, &["connections"]);
            let text = String::from_utf8_lossy(&shown.stdout).into_owned();
            if !text.contains("5060") {
                faults.push(format!("no connection of the call: {text}"));
            }
        },
    },
];

/// Whether `games` and `night` drop at this time, an hour ahead of UTC.
fn dropped_now() -> (bool, bool) {
    let utc = (SystemTime::now().duration_since(UNIX_EPOCH)).expect("after 1970");
    let seconds = utc.as_secs() + 3600;
    let (day, second) = ((seconds / 86_400 + 4) % 7, seconds % 86_400);
    let at_work = (8 * 3600..=17 * 3600).contains(&second);
    (
        (1..=5).contains(&day) && at_work,
        second >= 22 * 3600 || second <= 6 * 3600,
    )
}

/// Whether some connection to port 443 has a source port from 49152 on.
fn shuffled(shown: &serde_json::Value) -> bool {
    let text = shown.to_string();
    let numbers = text.split(|c: char| !c.is_ascii_digit());
    let ports: Vec<u32> = numbers.filter_map(|n| n.parse().ok()).collect();
    ports.contains(&443) && ports.iter().any(|port| (49_152..65_536).contains(port))
}

/// Policies of the page: fences without a language that hold rules.
fn policies() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/language.md");
    let page = std::fs::read_to_string(path).expect("the page");
    let mut found = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(kind) = line.strip_prefix("```") else {
            continue;
        };
        let body: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        let text = body.join("\n") + "\n";
        let holds_rules = || {
            let parsed = parse(&Source::new("language.md", text.as_str()), &NoFiles);
            parsed.is_ok_and(|parsed| !parsed.policy.rules.is_empty())
        };
        if kind.is_empty() && holds_rules() {
            found.push(text);
        }
    }
    found
}

/// Also where nothing can run: each policy has a judge, each judge a policy.
#[test]
fn every_policy_of_the_page_has_a_judge() {
    let policies = policies();
    assert_eq!(policies.len(), JUDGES.len(), "{policies:#?}");
    for judge in JUDGES {
        let with = policies.iter().filter(|text| text.contains(judge.mark));
        assert!(with.count() >= 1, "no policy has `{}`", judge.mark);
    }
}

#[test]
fn policies_of_the_page_do_what_it_says() {
    if !root("policies_of_the_page_do_what_it_says") {
        return;
    }
    let mut failed = Vec::new();
    for owns_public in [false, true] {
        let net = Net::build(
            if owns_public {
                "weirl-own"
            } else {
                "weirl-far"
            },
            owns_public,
        );
        for text in policies() {
            // The longest mark is the most particular one.
            let judges = JUDGES.iter().filter(|judge| text.contains(judge.mark));
            let judge = judges.max_by_key(|judge| {
                let is_whole = text.trim() == judge.mark.trim();
                (judge.mark == "hairpin:", is_whole, judge.mark.len())
            });
            let judge = judge.unwrap_or_else(|| panic!("no judge for\n{text}"));
            if owns_public && !text.contains(PUBLIC) {
                continue;
            }
            for hook in ["tc", "xdp"] {
                let run = Run::start(&net.gate, &text, judge.ports, &["--hook", hook]);
                net.forget();
                let mut faults = Vec::new();
                (judge.check)(&net, &mut faults);
                let words = run.words();
                run.stop();
                if !faults.is_empty() {
                    failed.push(format!(
                        "{hook}, public address {}:\n{text}{}\nweir said: {words}",
                        if owns_public { "of the box" } else { "routed" },
                        faults.join("\n")
                    ));
                }
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}
