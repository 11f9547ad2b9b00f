//! The home router: masquerading behind the address of the box's own interface, a port forwarded from it, hairpin, and the box's own traffic, with real
//! clients on a box that has the kernel's settings. The stack is told to take what gets its own address as source, and gets its settings
//! back whatever becomes of weir: at the end, after a kill, when rules change, when an edge goes.

use std::fs;
use std::io;

use rustix::process::Signal;
use weir_kernel::bed::{self, End};
use weir_kernel::{NetNs, pins};

use crate::live_bed::{Run, file, pinned, root, stderr, weir};
use crate::live_path::{TCP, UDP, connect, ping, serve, tcp, udp};

const PORTS: &[&str] = &["lan0", "wan0"];
const TC: &[&str] = &["--hook", "tc"];
const XDP: &[&str] = &["--hook", "xdp"];
const LENGTHS: [usize; 3] = [1, 1400, 4000];

/// As docs/language.md has it.
const POLICY: &str = "nat: add-stateful in lan0 ip-saddr 10.1.0.0/24 ! ip-daddr 10.1.0.0/24 map ip-saddr 192.0.2.1\n\
    tcp: add-stateful ip-daddr 192.0.2.1 tcp-dport 8080 map ip-daddr 10.1.0.2 map tcp-dport 80\n\
    udp: add-stateful ip-daddr 192.0.2.1 udp-dport 5300 map ip-daddr 10.1.0.2 map udp-dport 53\n";

/// A port forwarded, and nothing else.
const FORWARD: &str = "forward: add-stateful in wan0 ip-daddr 192.0.2.1 tcp-dport 8080 map ip-daddr 10.1.0.2 map tcp-dport 80\n";

/// A host inside, the box, a host outside that knows the box's outer address only. Offloads and settings are the kernel's; the box forwards.
struct Home {
    inside: NetNs,
    gate: NetNs,
    outside: NetNs,
}

impl Home {
    fn build(prefix: &str) -> Home {
        let name = |part: &str| NetNs::create(&format!("{prefix}-{part}")).expect("namespace");
        let home = Home {
            inside: name("i"),
            gate: name("g"),
            outside: name("o"),
        };
        let end = |ns, name, addresses| End {
            ns,
            name,
            addresses,
        };
        bed::veth(
            end(&home.inside, "eth0", &["10.1.0.2/24"]),
            end(&home.gate, "lan0", &["10.1.0.1/24"]),
        )
        .expect("veth");
        bed::veth(
            end(&home.outside, "eth0", &["192.0.2.2/24"]),
            end(&home.gate, "wan0", &["192.0.2.1/24"]),
        )
        .expect("veth");
        bed::default_route(&home.inside, "10.1.0.1").expect("route");
        home.gate
            .sysctl("net.ipv4.ip_forward", "1")
            .expect("sysctl");
        for ns in [&home.inside, &home.gate, &home.outside] {
            ns.ip(&["link", "set", "lo", "up"]).expect("lo");
        }
        home
    }

    /// A setting of the box, of a device.
    fn setting(&self, device: &str, name: &str) -> u32 {
        let path = format!("/proc/sys/net/ipv4/conf/{device}/{name}");
        let text = self.gate.run(|| fs::read_to_string(path));
        let text = text.expect("namespace").expect("readable");
        text.trim().parse().expect("a number")
    }

    /// All that weir may change of it.
    fn settings(&self) -> Vec<u32> {
        let names = ["accept_local", "rp_filter"];
        let devices = ["all", "default", "lan0", "wan0"];
        let of = |device: &str| names.map(|name| self.setting(device, name));
        devices.into_iter().flat_map(of).collect()
    }

    fn forwarded(&self) -> io::Result<()> {
        tcp(&self.outside, ("192.0.2.1", 8080), 20_000)
    }
}

/// Records that are left of a namespace.
fn records(ns: &NetNs) -> usize {
    let inode = fs::metadata(format!("/run/netns/{}", ns.name())).expect("exists");
    let inode = std::os::unix::fs::MetadataExt::ino(&inode);
    let Ok(entries) = fs::read_dir(weir_kernel::own_source::RECORDS) else {
        return 0;
    };
    let names = entries.flatten().map(|entry| entry.file_name());
    let here = format!("{inode}-");
    names
        .filter(|name| name.to_string_lossy().starts_with(&here))
        .count()
}

#[test]
fn all_clients_of_a_home_router_are_served() {
    if !root("all_clients_of_a_home_router_are_served") {
        return;
    }
    let home = Home::build("weirh-all");
    let inside = serve(&home.inside, TCP, UDP);
    let outside = serve(&home.outside, TCP, UDP);
    serve(&home.gate, TCP, UDP);
    for (filter, hook) in [(0, TC), (0, XDP), (1, TC), (1, XDP)] {
        for which in ["all", "lan0", "wan0"] {
            let name = format!("net.ipv4.conf.{which}.rp_filter");
            home.gate
                .sysctl(&name, &filter.to_string())
                .expect("sysctl");
        }
        let before = home.settings();
        let run = Run::start(&home.gate, POLICY, PORTS, hook);
        let words = run.words();
        assert!(
            words.contains("net.ipv4.conf.lan0.accept_local=1"),
            "{words}"
        );
        assert_eq!(words.contains("rp_filter=2"), filter == 1, "{words}");
        assert!(!words.contains("the stack drops"), "{words}");
        assert_eq!(
            home.setting("wan0", "accept_local"),
            0,
            "only where it is needed"
        );
        let failed: Vec<String> = [
            ("a client", tcp(&home.inside, ("192.0.2.2", TCP), 500_000)),
            ("UDP", udp(&home.inside, ("192.0.2.2", UDP), &LENGTHS)),
            ("ping", ping(&home.inside, "192.0.2.2", 56)),
            (
                "the forwarded port",
                tcp(&home.outside, ("192.0.2.1", 8080), 500_000),
            ),
            (
                "UDP to it",
                udp(&home.outside, ("192.0.2.1", 5300), &LENGTHS),
            ),
            ("hairpin", tcp(&home.inside, ("192.0.2.1", 8080), 500_000)),
            (
                "UDP hairpin",
                udp(&home.inside, ("192.0.2.1", 5300), &LENGTHS),
            ),
            (
                "the box itself",
                tcp(&home.gate, ("192.0.2.2", TCP), 500_000),
            ),
            ("its UDP", udp(&home.gate, ("192.0.2.2", UDP), &LENGTHS)),
            ("its pings", ping(&home.gate, "192.0.2.2", 56)),
            (
                "the box to a host inside",
                tcp(&home.gate, ("10.1.0.2", TCP), 20_000),
            ),
            (
                "a service of the box, from inside",
                tcp(&home.inside, ("10.1.0.1", TCP), 20_000),
            ),
            (
                "from outside",
                tcp(&home.outside, ("192.0.2.1", TCP), 20_000),
            ),
            (
                "a name server on the box",
                udp(&home.inside, ("10.1.0.1", UDP), &LENGTHS),
            ),
        ]
        .into_iter()
        .filter_map(|(what, result)| Some(format!("{what}: {}", result.err()?)))
        .collect();
        assert!(
            failed.is_empty(),
            "rp_filter {filter}, {hook:?}: {failed:?}\n{words}"
        );
        // Who spoke to whom: the box's address outside, the client's own inside, and the box's in a hairpin.
        let seen = outside[0].take();
        assert!(
            seen.iter().all(|peer| peer.ip().to_string() == "192.0.2.1") && seen.len() >= 2,
            "{seen:?}"
        );
        let seen: Vec<String> = inside[0]
            .take()
            .iter()
            .map(|p| p.ip().to_string())
            .collect();
        assert!(
            seen.contains(&"192.0.2.2".to_owned()) && seen.contains(&"192.0.2.1".to_owned()),
            "{seen:?}"
        );
        run.stop();
        assert_eq!(home.settings(), before, "{words}");
        assert_eq!(records(&home.gate), 0);
    }
}

#[test]
fn settings_come_back_after_a_kill() {
    if !root("settings_come_back_after_a_kill") {
        return;
    }
    pins::ensure_bpffs().expect("bpffs");
    let home = Home::build("weirh-kill");
    serve(&home.inside, TCP, UDP);
    home.gate
        .sysctl("net.ipv4.conf.lan0.rp_filter", "1")
        .expect("sysctl");
    let before = home.settings();
    let start = |policy: &str| Run::start(&home.gate, policy, PORTS, TC);
    let kill = |run: Run| {
        run.signal(Signal::KILL);
        drop(run.wait());
        assert_eq!(
            home.setting("lan0", "accept_local"),
            1,
            "the programs go on"
        );
        assert_eq!(home.setting("lan0", "rp_filter"), 2);
    };
    let run = start(FORWARD);
    home.forwarded().expect("with weir");
    kill(run);
    home.forwarded()
        .expect("its programs and the settings stay");

    // Taken over, and stopped in order.
    let run = start(FORWARD);
    home.forwarded().expect("goes on");
    run.stop();
    assert_eq!(home.settings(), before);

    // Taken over by a policy that needs nothing of it.
    kill(start(FORWARD));
    let run = start("telnet: tcp-dport 23 drop\n");
    assert_eq!(home.settings(), before);
    run.stop();

    // Taken down.
    kill(start(FORWARD));
    let down = weir(&home.gate, &["down"]);
    assert!(down.status.success(), "{}", stderr(&down));
    let said = String::from_utf8_lossy(&down.stdout).into_owned();
    assert!(
        said.contains("lan0: restored the settings of its stack"),
        "{said}"
    );
    assert_eq!(
        (home.settings(), pinned(&home.gate), records(&home.gate)),
        (before.clone(), 0, 0)
    );

    // What someone else set meanwhile stays.
    let run = start(FORWARD);
    home.gate
        .sysctl("net.ipv4.conf.lan0.rp_filter", "0")
        .expect("sysctl");
    run.stop();
    assert_eq!(home.setting("lan0", "rp_filter"), 0);
    assert_eq!(home.setting("lan0", "accept_local"), 0);

    // What was on before weir came stays on.
    home.gate
        .sysctl("net.ipv4.conf.lan0.accept_local", "1")
        .expect("sysctl");
    let run = start(FORWARD);
    assert!(!run.words().contains("accept_local"), "{}", run.words());
    home.forwarded().expect("nothing was needed");
    run.stop();
    assert_eq!(home.setting("lan0", "accept_local"), 1);
    assert_eq!(records(&home.gate), 0);
}

#[test]
fn settings_follow_the_rules_while_weir_runs() {
    if !root("settings_follow_the_rules_while_weir_runs") {
        return;
    }
    let home = Home::build("weirh-edit");
    serve(&home.inside, TCP, UDP);
    let before = home.settings();
    let run = Run::start(&home.gate, "telnet: tcp-dport 23 drop\n", PORTS, TC);
    assert_eq!(home.settings(), before);
    let rule = |words: &[&str]| {
        let output = weir(&home.gate, &[&["rule"], words].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        stderr(&output)
    };
    let words: Vec<&str> = FORWARD.split_whitespace().skip(2).collect();
    let said = rule(&[&["add-stateful"], words.as_slice()].concat());
    assert!(said.contains("net.ipv4.conf.lan0.accept_local=1"), "{said}");
    home.forwarded().expect("the rule works at once");
    rule(&["delete", "2"]);
    assert_eq!(home.settings(), before);
    let policy = file("forward.weir", FORWARD);
    let said = rule(&["load", policy.to_str().expect("UTF-8")]);
    assert!(said.contains("net.ipv4.conf.lan0.accept_local=1"), "{said}");
    home.forwarded().expect("the policy works at once");
    run.stop();
    assert_eq!(home.settings(), before);
}

#[test]
fn a_host_that_cannot_be_told_is_left_alone() {
    if !root("a_host_that_cannot_be_told_is_left_alone") {
        return;
    }
    let home = Home::build("weirh-ro");
    let policy = file("forward.weir", FORWARD);
    let script = format!(
        "mount -t proc proc /proc && mount -o remount,bind,ro /proc/sys 2>/dev/null || mount -o bind,ro /proc/sys /proc/sys; \
         exec {} run {} -i lan0 -i wan0 --hook tc",
        env!("CARGO_BIN_EXE_weir"),
        policy.display()
    );
    let output = home
        .gate
        .command("unshare")
        .expect("namespace")
        .args(["--mount", "--propagation", "private", "sh", "-c", &script])
        .output()
        .expect("runs");
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("net.ipv4.conf.lan0.accept_local=1"), "{said}");
    assert!(!said.contains("attached to"), "{said}");
    assert_eq!((pinned(&home.gate), records(&home.gate)), (0, 0));
}

#[test]
fn an_edge_keeps_the_settings_until_it_needs_them_no_more() {
    if !root("an_edge_keeps_the_settings_until_it_needs_them_no_more") {
        return;
    }
    let home = Home::build("weirh-edge");
    serve(&home.inside, TCP, UDP);
    let before = home.settings();
    let edge = format!("home-{}", std::process::id());
    let config = |rules: &str| {
        let mut text = format!(
            "edge = \"{edge}\"\n[[function]]\nname = \"nat\"\nkind = \"middlebox\"\nrules = '''\n{rules}'''\n"
        );
        for (port, device) in [("inside", "lan0"), ("outside", "wan0")] {
            text.push_str(&format!(
                "[[port]]\nname = \"{port}\"\ndevice = \"{device}\"\n[[link]]\nfrom = \"{port}\"\nto = \"nat\"\n"
            ));
        }
        text.push_str("[[link]]\nfrom = \"nat\"\nto = \"stack\"\n");
        file("home.toml", &text)
    };
    let apply = |rules: &str| {
        let config = config(rules);
        let output = weir(&home.gate, &["apply", config.to_str().expect("UTF-8")]);
        assert!(output.status.success(), "{}", stderr(&output));
        stderr(&output)
    };
    let said = apply(FORWARD);
    assert!(said.contains("net.ipv4.conf.lan0.accept_local=1"), "{said}");
    home.forwarded().expect("the edge forwards");
    // The same again says nothing.
    let said = apply(FORWARD);
    assert!(!said.contains("accept_local"), "{said}");
    assert_eq!(home.setting("lan0", "accept_local"), 1);
    // The same port of an address that is routed to the box needs nothing.
    apply(
        &FORWARD
            .replace("192.0.2.1", "198.51.100.1")
            .replace("wan0", "outside"),
    );
    assert_eq!(home.settings(), before);
    apply(FORWARD);
    home.forwarded().expect("and again");
    let down = weir(&home.gate, &["down", "--edge", &edge]);
    assert!(down.status.success(), "{}", stderr(&down));
    assert_eq!((home.settings(), records(&home.gate)), (before, 0));
    assert!(
        connect(
            &home.outside,
            ("192.0.2.1", 8080),
            std::time::Duration::from_millis(300)
        )
        .is_err()
    );
}
